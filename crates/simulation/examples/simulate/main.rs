//! `cargo xtask simulate` in the profile `checked`: runs seeds, as many at a time as there are cores,
//! and shows what they brought.
//!
//! Every run has a seed of its own and shares nothing with the others. A seed that fails is run
//! again with its frames written down and printed; the command goes on to the next, up to a limit.

mod output;

use clap::Parser;
use output::{Sum, Verdict};
use simulation::{Failure, Keep, Report};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often figures are written while seeds run.
const WRITTEN_EVERY: Duration = Duration::from_secs(60);

#[derive(Parser)]
#[command(about = "Run seeded simulations of stacks over bad links")]
struct CommandLine {
    /// The first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many seeds, one after the other
    #[arg(long, default_value_t = 1)]
    count: u64,
    /// Begin no seed after so many seconds
    #[arg(long)]
    seconds: Option<f64>,
    /// Seeds that run at the same time; as many as there are cores by default
    #[arg(long)]
    jobs: Option<usize>,
    /// Begin nothing more after so many failures
    #[arg(long, default_value_t = 5)]
    failures: usize,
    /// Run each seed twice and compare every bit
    #[arg(long)]
    twice: bool,
    /// Write the figures to this file as JSON, each minute and at the end
    #[arg(long)]
    json: Option<PathBuf>,
    /// Write all frames of the first seed to this file as pcapng
    #[arg(long)]
    pcapng: Option<PathBuf>,
    /// Print what the first seed means before it runs
    #[arg(long)]
    describe: bool,
}

fn main() -> ExitCode {
    let arguments = CommandLine::parse();
    if arguments.describe {
        println!("{:#?}", simulation::scenario::Scenario::draw(arguments.seed));
    }
    if let Some(path) = &arguments.pcapng
        && let Err(error) = capture(arguments.seed, path)
    {
        eprintln!("simulate: {}: {error}", path.display());
        return ExitCode::FAILURE;
    }
    // A panic is a finding like others; its message is part of it.
    let started = Instant::now();
    let sum = run_all(&arguments, started);
    sum.print(started.elapsed());
    if !is_written(&arguments, &sum, started) {
        return ExitCode::FAILURE;
    }
    if sum.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Writes the figures where they are wanted, and says whether that went well.
fn is_written(arguments: &CommandLine, sum: &Sum, started: Instant) -> bool {
    let Some(path) = &arguments.json else { return true };
    let written = sum.write_json(path, started.elapsed());
    if let Err(error) = &written {
        eprintln!("simulate: {}: {error}", path.display());
    }
    written.is_ok()
}

fn run_all(arguments: &CommandLine, started: Instant) -> Sum {
    let jobs = arguments
        .jobs
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, core::num::NonZero::get));
    let ends_at =
        arguments.seconds.map(|seconds| Instant::now() + Duration::from_secs_f64(seconds));
    let next = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let sum = Mutex::new((Sum::default(), started));
    let progress = output::progress(arguments.count, arguments.seconds);
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) && ends_at.is_none_or(|at| Instant::now() < at)
                {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= arguments.count {
                        break;
                    }
                    let verdict = judge(arguments.seed.wrapping_add(index), arguments.twice);
                    progress.inc(1);
                    let Ok(mut guard) = sum.lock() else { break };
                    let (sum, written_at) = &mut *guard;
                    if let Verdict::Failed(failure) = &verdict {
                        progress.suspend(|| println!("{failure}"));
                    }
                    sum.add(verdict);
                    if sum.failures.len() >= arguments.failures.max(1) {
                        stop.store(true, Ordering::Relaxed);
                    }
                    // A process that is ended in the night has left its figures.
                    if written_at.elapsed() >= WRITTEN_EVERY {
                        *written_at = Instant::now();
                        stop.fetch_or(!is_written(arguments, sum, started), Ordering::Relaxed);
                    }
                }
            });
        }
    });
    progress.finish_and_clear();
    sum.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner).0
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

fn capture(seed: u64, path: &std::path::Path) -> std::io::Result<()> {
    let scenario = simulation::scenario::Scenario::draw(seed);
    let ethernet = !scenario.bare_ip;
    let hosts = scenario.hosts.len();
    let keep = Keep { capture: true, ..Keep::default() };
    let (_, trace) = simulation::World::new(scenario, keep).run_captured();
    std::fs::write(path, output::pcapng(trace.captured(), hosts, ethernet))
}
