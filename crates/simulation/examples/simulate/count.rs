//! A count of seeds: what they brought, added up, and the file in which it outlives its process.
//!
//! Seeds are done in any order and added in their own: what comes before its turn waits. So the sums
//! are at any time those of all seeds from the first up to the next one, none missing and none twice,
//! and whoever goes on begins with the next. What still waits when a process is killed is run again.
//!
//! The file is replaced in one step, so that a kill at any moment leaves a whole one. It names its
//! build by a hash of the executable, because a count is of one code.

use serde_json::{Map, Value, json};
use simulation::link::LinkCounters;
use simulation::{Failure, Report, RunCounters};
use std::collections::BTreeMap;
use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// What a seed brought.
pub(crate) enum Verdict {
    Held(Box<Report>, Duration),
    Failed(Box<Failure>),
}

/// What a count is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subject {
    pub(crate) first_seed: u64,
    /// Each seed is run twice.
    pub(crate) twice: bool,
    pub(crate) build: String,
}

/// What all seeds brought, those of earlier sittings included.
pub(crate) struct Count {
    subject: Subject,
    /// How many, from the first on, one after the other.
    seeds: u64,
    /// What is done before its turn, by its distance from the first seed.
    waiting: BTreeMap<u64, Verdict>,
    /// Every counter by its name, in the order of declaration.
    figures: Vec<(&'static str, u64)>,
    virtual_time: Duration,
    slowest: Option<(Duration, u64)>,
    failures: Vec<Failure>,
    /// Processes that took part, this one included.
    sittings: u64,
    /// What earlier ones took, by the clock and of CPUs.
    earlier: [Duration; 2],
    started: Instant,
}

impl Count {
    pub(crate) fn new(subject: Subject) -> Self {
        let mut figures = Vec::new();
        let mut add = |name, value| figures.push((name, value));
        RunCounters::ZERO.for_each(&mut add);
        LinkCounters::ZERO.for_each(&mut add);
        Self {
            subject,
            seeds: 0,
            waiting: BTreeMap::new(),
            figures,
            virtual_time: Duration::ZERO,
            slowest: None,
            failures: Vec::new(),
            sittings: 1,
            earlier: [Duration::ZERO; 2],
            started: Instant::now(),
        }
    }

    /// The count that an earlier sitting left, in one more; its first seed may be left open.
    ///
    /// # Errors
    /// A sentence, where it is none, or not of this.
    pub(crate) fn resume(
        text: &str,
        seed: Option<u64>,
        twice: bool,
        build: &str,
    ) -> Result<Self, String> {
        let file: Value = serde_json::from_str(text)
            .map_err(|error| format!("no figures of simulate ({error}): name another file"))?;
        let theirs = file.get("build").and_then(Value::as_str).ok_or(
            "it does not say of which build its figures are, so nothing can be added to them: name \
             another file, for a count of its own",
        )?;
        if theirs != build {
            return Err(format!(
                "its figures are of the build {theirs}, this is {build}, and a count is of one code: go on \
                 with the executable that began it, or name another file for a count of this one"
            ));
        }
        let figures = Figures(&file);
        let subject = Subject {
            first_seed: figures.number("first_seed")?,
            twice: figures.get("twice", Value::as_bool)?,
            build: build.to_owned(),
        };
        if let Some(seed) = seed.filter(|seed| *seed != subject.first_seed) {
            let first_seed = subject.first_seed;
            return Err(format!(
                "its first seed is {first_seed}, not {seed}: leave --seed out, or name another file"
            ));
        }
        if subject.twice != twice {
            let how = if subject.twice { "with" } else { "without" };
            return Err(format!(
                "it was begun {how} --twice: go on like that, or name another file"
            ));
        }
        let mut count = Self::new(subject);
        for (name, value) in &mut count.figures {
            *value = figures.number(name)?;
        }
        Ok(Self {
            seeds: figures.number("seeds")?,
            virtual_time: figures.seconds("virtual_seconds")?,
            slowest: match figures.number("slowest_seed") {
                Ok(seed) => Some((figures.seconds("slowest_seconds")?, seed)),
                Err(_) => None,
            },
            failures: figures.failures()?,
            sittings: figures.number("sittings")?.saturating_add(1),
            earlier: [figures.seconds("seconds")?, figures.seconds("cpu_seconds")?],
            ..count
        })
    }

    pub(crate) fn first_seed(&self) -> u64 {
        self.subject.first_seed
    }

    /// How many seeds are added, which is the distance of the next from the first.
    pub(crate) fn seeds(&self) -> u64 {
        self.seeds
    }

    /// How many seeds failed.
    pub(crate) fn failed(&self) -> usize {
        let waiting = self.waiting.values();
        self.failures.len() + waiting.filter(|it| matches!(it, Verdict::Failed(_))).count()
    }

    /// Takes what the seed at this distance from the first brought.
    pub(crate) fn add(&mut self, distance: u64, verdict: Verdict) {
        self.waiting.insert(distance, verdict);
        while let Some(verdict) = self.waiting.remove(&self.seeds) {
            self.seeds += 1;
            match verdict {
                Verdict::Held(report, took) => self.add_held(&report, took),
                Verdict::Failed(failure) => self.failures.push(*failure),
            }
        }
    }

    fn add_held(&mut self, report: &Report, took: Duration) {
        let mut figures = self.figures.iter_mut();
        let mut add = |_, value| {
            if let Some((_, sum)) = figures.next() {
                *sum += value;
            }
        };
        report.counters.for_each(&mut add);
        report.links.for_each(&mut add);
        self.virtual_time += report.span;
        self.slowest = self.slowest.max(Some((took, report.seed)));
    }

    /// What all sittings took until now, by the clock and of CPUs.
    fn took(&self) -> [Duration; 2] {
        let [clock, cpu] = self.earlier;
        [clock + self.started.elapsed(), cpu + cpu_time()]
    }

    pub(crate) fn print(&self) {
        let line = |name: &str, value: &dyn std::fmt::Display| println!("{name:<24} {value:>16}");
        let [clock, cpu] = self.took().map(|took| format!("{:.1}", took.as_secs_f64()));
        line("first seed", &self.subject.first_seed);
        line("seeds", &self.seeds);
        for (name, value) in &self.figures {
            line(name, value);
        }
        line("virtual hours", &format!("{:.1}", self.virtual_time.as_secs_f64() / 3_600.0));
        line("seconds", &clock);
        line("CPU seconds", &cpu);
        line("sittings", &self.sittings);
        if let Some((took, seed)) = self.slowest {
            line("slowest seed", &format!("{seed} ({:.1} s)", took.as_secs_f64()));
        }
        line("failed seeds", &self.failures.len());
        for failure in &self.failures {
            println!("  replay with --seed {}: {}", failure.seed, failure.property);
        }
    }

    pub(crate) fn to_json(&self) -> String {
        let mut figures = Map::new();
        let mut add = |name: &str, value: Value| figures.insert(name.to_owned(), value);
        add("build", json!(self.subject.build));
        add("first_seed", json!(self.subject.first_seed));
        add("twice", json!(self.subject.twice));
        add("seeds", json!(self.seeds));
        for (name, value) in &self.figures {
            add(name, json!(value));
        }
        let [clock, cpu] = self.took();
        add("virtual_seconds", json!(self.virtual_time.as_secs_f64()));
        add("seconds", json!(clock.as_secs_f64()));
        add("cpu_seconds", json!(cpu.as_secs_f64()));
        add("sittings", json!(self.sittings));
        if let Some((took, seed)) = self.slowest {
            add("slowest_seconds", json!(took.as_secs_f64()));
            add("slowest_seed", json!(seed));
        }
        let failures: Vec<_> = self
            .failures
            .iter()
            .map(|f| json!({ "seed": f.seed, "property": f.property, "what": f.what }))
            .collect();
        add("failures", json!(failures));
        format!("{:#}\n", Value::Object(figures))
    }
}

/// The file of an earlier sitting.
struct Figures<'a>(&'a Value);

impl Figures<'_> {
    fn get<T>(&self, name: &str, read: impl FnOnce(&Value) -> Option<T>) -> Result<T, String> {
        let value = self.0.get(name).and_then(read);
        value.ok_or_else(|| format!("it has no sound \"{name}\": name another file"))
    }

    fn number(&self, name: &str) -> Result<u64, String> {
        self.get(name, Value::as_u64)
    }

    fn seconds(&self, name: &str) -> Result<Duration, String> {
        self.get(name, |value| Duration::try_from_secs_f64(value.as_f64()?).ok())
    }

    fn failures(&self) -> Result<Vec<Failure>, String> {
        let failure = |value: &Value| {
            let text = |name: &str| Some(value.get(name)?.as_str()?.to_owned());
            Some(Failure {
                seed: value.get("seed")?.as_u64()?,
                at: time::Instant::ZERO,
                property: text("property")?,
                what: text("what")?,
                host: None,
                flow: None,
                frames: Vec::new(),
            })
        };
        self.get("failures", |all| all.as_array()?.iter().map(failure).collect())
    }
}

/// What this process took of CPUs, or nothing where that cannot be known.
fn cpu_time() -> Duration {
    let now = nix::time::ClockId::CLOCK_PROCESS_CPUTIME_ID.now();
    now.map_or(Duration::ZERO, Duration::from)
}

/// A name for this build. Its hash is the same in each of its processes, whatever another release of
/// the compiler makes of the same bytes.
///
/// # Errors
/// The executable cannot be read.
pub(crate) fn build() -> io::Result<String> {
    // What runs, even where another file has its name by now.
    let mut executable = File::open("/proc/self/exe")?;
    let mut hasher = DefaultHasher::new();
    let mut piece = vec![0; 1 << 16];
    loop {
        match executable.read(&mut piece)? {
            0 => return Ok(format!("{:016x}", hasher.finish())),
            len => hasher.write(&piece[..len]),
        }
    }
}

/// Writes the file in one step: whoever ends the process has the old one or the new one.
///
/// # Errors
/// The system's own.
pub(crate) fn replace(path: &Path, text: &str) -> io::Result<()> {
    // What a link points to; of what is no file, such as a pipe, there is nothing to replace.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if path.exists() && !path.is_file() {
        return std::fs::write(path, text);
    }
    let partial = path.with_added_extension("partial");
    let mut file = File::create(&partial)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(partial, path)
}

#[cfg(test)]
mod tests;
