//! Every script of `conformance/`: in virtual time against this stack, and in real time against
//! Linux where the script is not particular to this stack. What Linux does not do either is a
//! mistake of the script. A script must say in its opening comment which sentence it checks:
//! `RFC <number>, <section>`; one that checks a call of POSIX names the interface that it stands for
//! (RFC 9293, 3.9.1).
//!
//! Against this stack each runs once with packets one by one, and once (`batches/`) with those that
//! arrive together as one batch of the device, in which the stack finds trains. By the letter of
//! RFC 1122 all of them hold then; as configured, all that do not say `// batches: no`.
//!
//! The output has the form of the standard harness, and a filter on the command line works as
//! usual: `cargo test -p multidata-packetdrill --test conformance -- handshake`; the tests against
//! Linux have names that begin with `linux/`. Each of those is a process in a network namespace of
//! its own; what the machine does not grant is announced as `CANNOT RUN`. Several run at a time,
//! because they mostly sleep, in the real-time class where the machine grants it. One that fails is
//! tried again, and says so, at last with nothing beside it: on a busy machine a script's times may
//! be missed by no fault of its own. One that says so often stands on a race.

#[path = "conformance/sections.rs"]
mod sections;
#[path = "../../linux/tests/network/withheld.rs"]
mod withheld;

use packetdrill::{Failure, Judge, parse, run_on_stack, run_on_stack_in_batches};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use withheld::cannot_run;

/// Scripts against Linux at a time.
const PARALLEL: usize = 8;

/// Times a script is tried against Linux beside others, and then by itself.
const TRIES: u64 = 4;

/// Longest time of one try.
const PATIENCE: Duration = Duration::from_secs(150);

/// Packets that the scripts' batches bring as part of a train, at least.
const TRAIN_FRAMES_MIN: u64 = 40;

/// The exit code of the runner where the machine does not grant what it takes.
const CANNOT_RUN: i32 = 77;

/// How a script is run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    OnStack,
    /// What arrives together is one batch of the device.
    InBatches,
    OnLinux,
}

struct Test {
    name: String,
    file: PathBuf,
    how: How,
}

/// Packets of all scripts in batches that were taken as part of a train.
static TRAIN_FRAMES: AtomicU64 = AtomicU64::new(0);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let filter = arguments.iter().find(|argument| !argument.starts_with('-'));
    let mut tests = tests();
    tests.retain(|test| filter.is_none_or(|filter| test.name.contains(filter.as_str())));
    if arguments.iter().any(|argument| argument == "--list") {
        tests.iter().for_each(|test| println!("{}: test", test.name));
        return ExitCode::SUCCESS;
    }
    println!("\nrunning {} tests", tests.len());
    let started = Instant::now();
    let failures = Mutex::new(Vec::new());
    let report = |test: &Test, result: Result<(), String>| {
        println!("test {} ... {}", test.name, if result.is_ok() { "ok" } else { "FAILED" });
        if let Err(why) = result {
            failures.lock().expect("no thread panics with it").push(why);
        }
    };
    let (on_linux, on_stack): (Vec<&Test>, Vec<&Test>) =
        tests.iter().partition(|test| test.how == How::OnLinux);
    let next = AtomicUsize::new(0);
    let failed_beside_others = Mutex::new(Vec::new());
    let runner = Runner::new();
    std::thread::scope(|scope| {
        for _ in 0..PARALLEL.min(on_linux.len()) {
            scope.spawn(|| {
                while let Some(test) = on_linux.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match runner.against_linux(test) {
                        Ok(()) => report(test, Ok(())),
                        Err(_) => failed_beside_others.lock().expect("no panic").push(test),
                    }
                }
            });
        }
        for test in on_stack {
            report(test, against_stack(test));
        }
    });
    for test in failed_beside_others.into_inner().expect("no thread panics with it") {
        report(test, runner.against_linux(test));
    }
    let mut failures = failures.into_inner().expect("no thread panics with it");
    let train_frames = TRAIN_FRAMES.load(Ordering::Relaxed);
    println!("packets taken as part of a train: {train_frames}");
    if filter.is_none() && train_frames < TRAIN_FRAMES_MIN {
        failures.push(format!(
            "batches: {train_frames} packets came in trains, so that nothing is said of trains"
        ));
    }
    failures.sort();
    if !failures.is_empty() {
        println!("\nfailures:\n\n{}", failures.join("\n\n"));
    }
    let verdict = if failures.is_empty() { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {verdict}. {} passed; {} failed; 0 ignored; 0 measured; 0 filtered out; \
         finished in {:.2}s\n",
        tests.len() - failures.len(),
        failures.len(),
        started.elapsed().as_secs_f64()
    );
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn tests() -> Vec<Test> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance");
    let mut files = Vec::new();
    collect(&root, &mut files);
    files.sort();
    let mut tests = Vec::new();
    for file in files {
        let relative = file.strip_prefix(&root).unwrap_or(&file).with_extension("");
        let name = relative.to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&file).expect("a script");
        // One that cannot be read fails below, once.
        if parse(&text).is_ok_and(|script| script.not_on_linux.is_none()) {
            let name = format!("linux/{name}");
            tests.push(Test { name, file: file.clone(), how: How::OnLinux });
        }
        let in_batches = format!("batches/{name}");
        tests.push(Test { name: in_batches, file: file.clone(), how: How::InBatches });
        tests.push(Test { name, file, how: How::OnStack });
    }
    tests
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(directory).expect("the directory of scripts");
    for entry in entries.map(|entry| entry.expect("an entry of the directory")) {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "pkt") {
            files.push(path);
        }
    }
}

fn against_stack(test: &Test) -> Result<(), String> {
    let run = || {
        let text = std::fs::read_to_string(&test.file).map_err(|error| error.to_string())?;
        let at = |line: usize, message: String| format!("{}.pkt:{line}: {message}", test.name);
        if let Some(what) = sections::wrong(&text) {
            return Err(at(1, what));
        }
        let script = parse(&text).map_err(|error| at(error.line, error.message))?;
        if test.how == How::OnStack {
            let result = run_on_stack(&script, &text, Judge::Exactly);
            return result.map_err(|failure| at(failure.line, failure.message));
        }
        let says = |failure: Failure| at(failure.line, failure.message);
        // Each ACK as if its segment had come alone: every script holds.
        let by_the_letter = format!("{text}\n// stack: stretch_acks=0\n");
        let train_frames = run_on_stack_in_batches(&script, &by_the_letter).map_err(says)?;
        TRAIN_FRAMES.fetch_add(train_frames, Ordering::Relaxed);
        match (run_on_stack_in_batches(&script, &text), &script.not_in_batches) {
            (Err(_), Some(_)) => Ok(()),
            (Ok(_), Some(_)) => Err(at(1, "it holds in batches, too, and denies it".to_owned())),
            (result, None) => result.map(|_| ()).map_err(says),
        }
    };
    let result = catch_unwind(AssertUnwindSafe(run));
    result.unwrap_or_else(|_| Err(format!("{}.pkt: panicked", test.name)))
}

/// How the runner of scripts is called for Linux.
struct Runner {
    /// In the real-time class, in which it need not wait for the tests that run beside it.
    is_real_time: bool,
}

impl Runner {
    fn new() -> Self {
        let tried = Command::new("chrt").args(["--rr", "1", "true"]).stderr(Stdio::null()).status();
        Self { is_real_time: tried.is_ok_and(|status| status.success()) }
    }

    fn command(&self) -> Command {
        let program = env!("CARGO_BIN_EXE_multidata-packetdrill");
        if !self.is_real_time {
            return Command::new(program);
        }
        let mut command = Command::new("chrt");
        command.args(["--rr", "1", program]);
        command
    }

    fn against_linux(&self, test: &Test) -> Result<(), String> {
        let mut why = String::new();
        for number in 1..=TRIES {
            let mut command = self.command();
            command.arg("--linux").arg(&test.file).stdin(Stdio::null()).stdout(Stdio::piped());
            let mut child = command.spawn().map_err(|error| format!("{}: {error}", test.name))?;
            let code = wait(&mut child);
            let output = child.wait_with_output().map_err(|error| error.to_string())?;
            let output = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            match code {
                Some(0) => return Ok(()),
                Some(CANNOT_RUN) => {
                    cannot_run(&test.name, &output);
                    return Ok(());
                }
                _ => {
                    eprintln!("try {number} of {TRIES} of {}: {output}", test.name);
                    why = output;
                    // What holds the machine up may last; the next try waits longer than the one
                    // before.
                    std::thread::sleep(Duration::from_secs(number));
                }
            }
        }
        Err(format!("against Linux: {why}"))
    }
}

/// Waits for a process; ends it where it takes too long.
fn wait(child: &mut Child) -> Option<i32> {
    let started = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.code(),
            Ok(None) if started.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(5));
            }
            _ => {
                // It may have ended by itself just now.
                let _ = child.kill();
                return None;
            }
        }
    }
}
