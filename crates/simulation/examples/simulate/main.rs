//! `cargo xtask simulate` in the profile `checked`: runs seeds, as many at a time as there are cores,
//! and shows what they brought.
//!
//! Every run has a seed of its own and shares nothing with the others. A seed that fails is run
//! again with its frames written down and printed; the command goes on to the next, up to a limit.

mod count;
mod output;

use clap::Parser;
use count::{Count, Subject, Verdict};
use simulation::{Failure, Keep, Report};
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often figures are written while seeds run.
const WRITTEN_EVERY: Duration = Duration::from_secs(60);

#[derive(Parser)]
#[command(about = "Run seeded simulations of stacks over bad links")]
struct CommandLine {
    /// The first seed [default: 1, or where the file of --resume began]
    #[arg(long)]
    seed: Option<u64>,
    /// How many seeds, one after the other, those of earlier sittings included
    #[arg(long, default_value_t = 1)]
    count: u64,
    /// Begin no seed after so many seconds of this sitting
    #[arg(long, value_parser = parse_seconds)]
    seconds: Option<f64>,
    /// Seeds that run at the same time; as many as there are cores by default
    #[arg(long)]
    jobs: Option<usize>,
    /// Begin nothing more after so many failures, those of earlier sittings included
    #[arg(long, default_value_t = 5)]
    failures: usize,
    /// Run each seed twice and compare every bit
    #[arg(long)]
    twice: bool,
    /// Write the figures to this file as JSON, each minute and at the end
    #[arg(long)]
    json: Option<PathBuf>,
    /// Go on with the count whose figures are in the file of --json, where there is one
    #[arg(long, requires = "json")]
    resume: bool,
    /// Write all frames of the first seed to this file as pcapng
    #[arg(long)]
    pcapng: Option<PathBuf>,
    /// Print what the first seed means before it runs
    #[arg(long)]
    describe: bool,
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| Duration::try_from_secs_f64(*seconds).is_ok());
    seconds.ok_or_else(|| "give a number of seconds, 0 or more".to_owned())
}

fn main() -> ExitCode {
    match simulate(&CommandLine::parse()) {
        Ok(count) if count.failed() == 0 => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(sentence) => {
            eprintln!("simulate: {sentence}");
            ExitCode::FAILURE
        }
    }
}

/// Does what was asked for, and prints what all sittings of the count brought.
///
/// # Errors
/// A sentence.
fn simulate(arguments: &CommandLine) -> Result<Count, String> {
    let count = begin(arguments)?;
    let first_seed = count.first_seed();
    if arguments.describe {
        println!("{:#?}", simulation::scenario::Scenario::draw(first_seed));
    }
    if let Some(path) = &arguments.pcapng {
        capture(first_seed, path).map_err(of_file(path))?;
    }
    if count.seeds() >= arguments.count || count.failed() >= arguments.failures.max(1) {
        count.print();
        println!(
            "Nothing was left to run: these are {} seeds with {} failures, where --count is {} and \
             --failures {}.",
            count.seeds(),
            count.failed(),
            arguments.count,
            arguments.failures
        );
        return Ok(count);
    }
    let count = run_all(arguments, count);
    count.print();
    write(arguments, &count)?;
    Ok(count)
}

/// The count to be gone on with, or a new one.
///
/// # Errors
/// A sentence: there is one, and it cannot be gone on with.
fn begin(arguments: &CommandLine) -> Result<Count, String> {
    let twice = arguments.twice;
    let build = count::build().map_err(|error| format!("cannot read the executable: {error}"))?;
    if let Some(path) = arguments.json.as_ref().filter(|_| arguments.resume) {
        match std::fs::read_to_string(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => (),
            read => {
                let text = read.map_err(of_file(path))?;
                let resumed = Count::resume(&text, arguments.seed, twice, &build);
                return resumed.map_err(of_file(path));
            }
        }
    }
    Ok(Count::new(Subject { first_seed: arguments.seed.unwrap_or(1), twice, build }))
}

/// Puts the name of the file before what is said of it.
fn of_file<E: std::fmt::Display>(path: &Path) -> impl Fn(E) -> String {
    move |error| format!("{}: {error}", path.display())
}

/// Writes the figures where they are wanted.
///
/// # Errors
/// A sentence.
fn write(arguments: &CommandLine, count: &Count) -> Result<(), String> {
    let Some(path) = &arguments.json else { return Ok(()) };
    count::replace(path, &count.to_json()).map_err(of_file(path))
}

fn run_all(arguments: &CommandLine, count: Count) -> Count {
    let jobs = arguments
        .jobs
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, core::num::NonZero::get));
    // What no clock reaches is no end.
    let ends_at = arguments
        .seconds
        .and_then(|seconds| Instant::now().checked_add(Duration::from_secs_f64(seconds)));
    let first_seed = count.first_seed();
    let next = AtomicU64::new(count.seeds());
    let stop = AtomicBool::new(false);
    let progress = output::progress(arguments.count - count.seeds(), arguments.seconds);
    let count = Mutex::new((count, Instant::now()));
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) && ends_at.is_none_or(|at| Instant::now() < at)
                {
                    let distance = next.fetch_add(1, Ordering::Relaxed);
                    if distance >= arguments.count {
                        break;
                    }
                    let verdict = judge(first_seed.wrapping_add(distance), arguments.twice);
                    progress.inc(1);
                    let Ok(mut guard) = count.lock() else { break };
                    let (count, written_at) = &mut *guard;
                    if let Verdict::Failed(failure) = &verdict {
                        progress.suspend(|| println!("{failure}"));
                    }
                    count.add(distance, verdict);
                    if count.failed() >= arguments.failures.max(1) {
                        stop.store(true, Ordering::Relaxed);
                    }
                    // A process that is ended in the night has left its figures.
                    if written_at.elapsed() >= WRITTEN_EVERY {
                        *written_at = Instant::now();
                        if let Err(sentence) = write(arguments, count) {
                            progress.suspend(|| eprintln!("simulate: {sentence}"));
                            stop.store(true, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    progress.finish_and_clear();
    count.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner).0
}

/// Runs one seed; where it fails, again with its frames written down.
fn judge(seed: u64, twice: bool) -> Verdict {
    let begun = Instant::now();
    let first = attempt(seed, Keep::default());
    let took = begun.elapsed();
    match first {
        Ok(report) if twice => match attempt(seed, Keep::default()) {
            Ok(again) if again.hash == report.hash => Verdict::Held(Box::new(report), took),
            _ => Verdict::Failed(Box::new(other_result(seed))),
        },
        Ok(report) => Verdict::Held(Box::new(report), took),
        Err(failure) => {
            let keep = Keep { last_frames: true, ..Keep::default() };
            match attempt(seed, keep) {
                Err(again) if again.what == failure.what => Verdict::Failed(again),
                _ => Verdict::Failed(Box::new(Failure {
                    frames: vec!["(this did not repeat: the run is not deterministic)".to_owned()],
                    ..*failure
                })),
            }
        }
    }
}

/// A run in which a panic is a failure.
fn attempt(seed: u64, keep: Keep) -> Result<Report, Box<Failure>> {
    catch_unwind(AssertUnwindSafe(|| simulation::run(seed, keep))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(Box::new(Failure {
            seed,
            at: time::Instant::ZERO,
            property: "nothing from the network or an application makes the stack panic".to_owned(),
            what: text.unwrap_or_default(),
            host: None,
            flow: None,
            frames: Vec::new(),
        }))
    })
}

fn other_result(seed: u64) -> Failure {
    Failure {
        seed,
        at: time::Instant::ZERO,
        property: "a run repeats to the bit".to_owned(),
        what: "the second run of the same seed was another".to_owned(),
        host: None,
        flow: None,
        frames: Vec::new(),
    }
}

fn capture(seed: u64, path: &Path) -> std::io::Result<()> {
    let scenario = simulation::scenario::Scenario::draw(seed);
    let ethernet = !scenario.bare_ip;
    let hosts = scenario.hosts.len();
    let keep = Keep { capture: true, ..Keep::default() };
    let (_, trace) = simulation::World::new(scenario, keep).run_captured();
    std::fs::write(path, output::pcapng(trace.captured(), hosts, ethernet))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(path: &Path) -> serde_json::Value {
        let text = std::fs::read_to_string(path).expect("it was written");
        let mut file: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
        let all = file.as_object_mut().expect("an object");
        all.retain(|name, _| !name.contains("slowest") && name != "sittings");
        all.retain(|name, _| name != "seconds" && name != "cpu_seconds");
        file
    }

    #[test]
    fn the_same_command_goes_on_where_it_was_cut() {
        let directory = std::env::temp_dir().join(format!("simulate-cut-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let [whole, cut] = ["whole.json", "cut.json"].map(|name| directory.join(name));
        let run = |line: &str, json: &Path| {
            let words = ["simulate", "--json"].map(Into::into).into_iter();
            let words = words.chain([json.as_os_str().to_owned()]);
            simulate(&CommandLine::parse_from(words.chain(line.split(' ').map(Into::into))))
        };
        run("--seed 3 --count 4 --jobs 2", &whole).expect("it runs");
        for count in [1, 3, 4] {
            let line = format!("--seed 3 --count {count} --jobs 2 --resume");
            assert_eq!(run(&line, &cut).expect("it goes on").seeds(), count);
        }
        assert_eq!(sums(&cut), sums(&whole));
        assert!(sums(&whole)["established"].as_u64() > Some(100));
        // Where nothing is left, the file stays as it is.
        let text = std::fs::read_to_string(&cut).expect("it was written");
        assert_eq!(run("--count 4 --resume", &cut).expect("it is done").seeds(), 4);
        assert_eq!(std::fs::read_to_string(&cut).expect("it is there"), text);
        assert!(text.contains("\"sittings\": 3"), "{text}");
        let refused = run("--seed 4 --count 9 --resume", &cut).err().expect("another first seed");
        assert!(refused.contains("cut.json: its first seed is 3, not 4"), "{refused}");
        std::fs::remove_dir_all(directory).expect("it was ours");
    }
}
