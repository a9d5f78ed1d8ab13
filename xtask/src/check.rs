//! `cargo xtask test`: the whole check, the one that CI runs.
//!
//! In: the work tree and what the machine grants. Out: the output of every step under a heading of
//! its own, then a table of steps with their times, the tests that could not run, what failed tests said, and as
//! the last line `N passed, N failed`.
//!
//! A failed step does not stop the ones after it: one run shows everything that is wrong. What the
//! machine does not grant (namespaces, the TUN driver) is printed at the start; where `CI=true` or
//! `MULTIDATA_REQUIRE_ALL=1` is set, lacking it is a failure, so that such a check cannot turn green
//! by testing less. cargo-deny tests nothing of what is built: where it is not installed that is a
//! warning, here and there.
//!
//! Warnings of clippy, and of the compiler as it runs, are refused by the toolchain that the
//! packages name (`rust-version`). A newer one may know more of them, which no change is to be
//! blamed for: there they are shown.

mod ground;
mod simulation;
mod smoke;
mod tally;
mod toolchain;
mod withheld;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use cargo_metadata::{Metadata, MetadataCommand};

use crate::{Failure, canaries, tidy};
use ground::Ground;
pub(crate) use ground::probe_namespace;
use tally::Tally;
use withheld::Withheld;

/// The package below everybody's that has `unsafe`: its tests also run optimised as a release is, which may show
/// what the dev profile hides.
const OPTIMISED_TESTS: &str = "multidata-checksum";

/// What the documentation is built with: a link that leads nowhere, or to what readers of it are not shown, is refused.
const REFUSED_LINKS: &str = r#"build.rustdocflags = ["-D", "rustdoc::broken-intra-doc-links", "-D", "rustdoc::private-intra-doc-links"]"#;

/// Runs the check, or only its quick part, and says whether all of it passed.
///
/// # Errors
/// When cargo cannot say where and by what it builds, or that place cannot be written.
pub(crate) fn run(root: &Path, quick: bool) -> Result<bool, Failure> {
    let metadata = MetadataCommand::new().current_dir(root).no_deps().exec()?;
    let target_dir = &metadata.target_directory;
    let withheld = Withheld::prepare(target_dir.join("cannot-run").into())?;
    let mut course = Course::new(root, withheld);

    let started = Instant::now();
    let ground = course.prepare(quick);
    course.cargo("fmt", &["fmt", "--all", "--check"]);
    let refusal = course.toolchain(&metadata);
    // Events for those who watch are compiled by this feature only, and nothing is where it is off.
    let lint = ["clippy", "--workspace", "--all-targets", "--features"];
    let traced = ["multidata/tracing,multidata-stack/tracing"];
    course.cargo("clippy", &[&lint[..], &traced, refusal].concat());
    course.step("tidy", |_| tidy::run(root));
    course.tests("test", &["test", "--workspace", "--no-fail-fast"]);
    let events = ["test", "--package", "multidata-stack", "--features", "tracing"];
    course.tests("test of events", &[&events[..], &["--test", "tracing"]].concat());
    if !quick {
        // Every interleaving of the threads around a squeue.
        let interleaved = ["test", "--package", "multidata-steering", "--features"];
        let filter = ["interleavings", "--lib", "interleavings"];
        course.tests("interleavings", &[&interleaved[..], &filter].concat());
        course.cargo("doc", &["doc", "--workspace", "--no-deps", "--config", REFUSED_LINKS]);
        let optimised = ["test", "--profile", "checked", "--package", OPTIMISED_TESTS];
        course.tests("test --profile checked", &optimised);
        let results_dir = PathBuf::from(target_dir.join("smoke"));
        course.step("build simulation", simulation::build);
        course.step("simulate", |course| simulation::run(course, &results_dir));
        course.step("canaries --sample", |_| canaries::run(root, None, true));
        course.step("build the command", smoke::build);
        for bench in smoke::BENCHES {
            if bench.needs_device && ground.device.is_err() {
                course.withheld.push(&bench.name(), "no TUN device or network namespace");
                continue;
            }
            course.step(&bench.name(), |course| smoke::run(course, bench, &results_dir));
        }
        course.deny(&ground);
    }
    course.finish(started.elapsed())
}

/// The steps as they are taken, and what they gave.
struct Course {
    root: PathBuf,
    steps: Vec<Step>,
    tally: Tally,
    withheld: Withheld,
    /// What the machine does not grant, or a test that could not run, is a failure.
    strict: bool,
}

struct Step {
    name: String,
    passed: bool,
    took: Duration,
}

impl Course {
    fn new(root: &Path, withheld: Withheld) -> Self {
        let is_set = |name: &str| {
            std::env::var(name).is_ok_and(|value| matches!(value.as_str(), "1" | "true"))
        };
        Self {
            root: root.to_owned(),
            steps: Vec::new(),
            tally: Tally::default(),
            withheld,
            strict: is_set("CI") || is_set("MULTIDATA_REQUIRE_ALL"),
        }
    }

    /// Takes one step under its heading. A step that cannot even be tried has failed.
    fn step(&mut self, name: &str, take: impl FnOnce(&mut Self) -> Result<bool, Failure>) {
        println!("\n== {name} ==");
        let started = Instant::now();
        let passed = take(self).unwrap_or_else(|failure| {
            println!("{failure}");
            false
        });
        self.steps.push(Step { name: name.to_owned(), passed, took: started.elapsed() });
    }

    /// Makes the ground fit for the tests and prints what it grants.
    fn prepare(&mut self, quick: bool) -> Ground {
        let mut ground = Ground::default();
        self.step("prepare", |course| {
            ground = Ground::prepare(&course.root);
            ground.print(quick);
            Ok(ground.device.is_ok() || !course.strict)
        });
        ground
    }

    /// What clippy is told of warnings: to refuse them, too, where it cannot be said whose they are.
    fn toolchain(&mut self, metadata: &Metadata) -> &'static [&'static str] {
        let mut refusal = toolchain::REFUSED;
        self.step("toolchain", |_| {
            refusal = toolchain::refusal(metadata)?;
            Ok(true)
        });
        refusal
    }

    fn cargo(&mut self, name: &str, arguments: &[&str]) {
        self.step(name, |course| Ok(course.cargo_command(arguments).status()?.success()));
    }

    /// A run of tests, counted. Each run has a directory of its own for tests that cannot run.
    fn tests(&mut self, name: &str, arguments: &[&str]) {
        self.step(name, |course| {
            let mut command = course.cargo_command(arguments);
            command.env("MULTIDATA_CANNOT_RUN_DIR", course.withheld.directory(name)?);
            let counted = tally::stream(&mut command, &mut std::io::stdout())?;
            let withheld = course.withheld.collect(name)?;
            course.tally.add(&counted, withheld);
            Ok(counted.success)
        });
    }

    fn deny(&mut self, ground: &Ground) {
        if ground.cargo_deny {
            self.cargo("deny", &["deny", "check", "licenses", "bans", "sources"]);
        } else {
            println!("\n== deny ==");
            println!("!!! NOT RUN: cargo-deny is not installed.");
            println!("!!! Licences, bans and sources of the dependencies are unchecked.");
        }
    }

    fn cargo_command(&self, arguments: &[&str]) -> Command {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.args(arguments).current_dir(&self.root);
        command
    }

    fn finish(self, took: Duration) -> Result<bool, Failure> {
        println!("\n== summary ==");
        for step in &self.steps {
            let verdict = if step.passed { "ok    " } else { "FAILED" };
            println!("{verdict} {:8.1} s  {}", step.took.as_secs_f64(), step.name);
        }
        println!("total  {:8.1} s", took.as_secs_f64());
        self.withheld.print();
        let all_ran = self.withheld.is_empty() || !self.strict;
        if !all_ran {
            println!("Here everything must run: what could not run counts as a failure.");
        }
        if !self.tally.failures().is_empty() {
            println!("What failed tests said:\n{}", self.tally.failures());
        }
        println!("{}", self.tally);
        Ok(all_ran && self.steps.iter().all(|step| step.passed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn course(name: &str) -> Course {
        let directory = std::env::temp_dir().join(format!("xtask-{name}-{}", std::process::id()));
        let withheld = Withheld::prepare(directory).expect("the temporary directory is writable");
        Course { strict: false, ..Course::new(Path::new("."), withheld) }
    }

    #[test]
    fn all_steps_passed_is_a_pass() {
        let mut course = course("passed");
        course.step("a", |_| Ok(true));
        assert!(course.finish(Duration::ZERO).expect("nothing to go wrong"));
    }

    #[test]
    fn one_failed_step_fails_the_check_and_the_next_is_still_taken() {
        let mut course = course("failed");
        let mut taken = false;
        course.step("a", |_| Err("broken".into()));
        course.step("b", |_| {
            taken = true;
            Ok(true)
        });
        assert!(taken);
        assert!(!course.finish(Duration::ZERO).expect("nothing to go wrong"));
    }

    #[test]
    fn a_test_that_could_not_run_fails_only_the_strict_check() {
        for strict in [false, true] {
            let mut course = Course { strict, ..course(&format!("strict-{strict}")) };
            course.withheld.push("tap", "no device");
            assert_eq!(course.finish(Duration::ZERO).expect("nothing to go wrong"), !strict);
        }
    }
}
