//! Running the built command and looking at what it did.

#[path = "../../../linux/tests/network/withheld.rs"]
mod withheld;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use withheld::cannot_run;

/// What a run of the command did.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// The one sentence of a failure: nothing else on standard error but the note of debug builds.
    pub(crate) fn sentence(&self) -> &str {
        assert!(!self.stderr.contains("panicked"), "{self:?}");
        let mut lines = self.stderr.lines().filter(|line| !line.contains("debug build"));
        let sentence = lines.next().unwrap_or_default();
        assert_eq!(lines.next(), None, "one sentence: {self:?}");
        sentence.strip_prefix("multidata: ").unwrap_or_else(|| panic!("{self:?}"))
    }
}

/// The command with these arguments, a word each.
pub(crate) fn command(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_multidata"));
    command.args(arguments.split_whitespace());
    command
}

/// Runs it, for five minutes at most.
pub(crate) fn run(arguments: &str) -> Ran {
    finish(command(arguments))
}

/// Runs it from a shell, after this command of the shell's.
pub(crate) fn run_after(before: &str, arguments: &str) -> Ran {
    let mut shell = Command::new("sh");
    let command = env!("CARGO_BIN_EXE_multidata");
    shell.arg("-c").arg(format!("{before} && exec {command} {arguments}"));
    finish(shell)
}

/// Runs it, and interrupts it after a while. It heeds that also where the tests do not: they may be started in the
/// background of a script, which has its children ignore interruptions.
pub(crate) fn run_interrupted(arguments: &str, after: Duration) -> Ran {
    let mut heeding = Command::new("env");
    heeding.args(["--default-signal=INT", env!("CARGO_BIN_EXE_multidata")]);
    heeding.args(arguments.split_whitespace());
    finish_after(heeding, |child| {
        std::thread::sleep(after);
        let pid = Pid::from_raw(child.id().try_into().expect("a process id"));
        kill(pid, Signal::SIGINT).expect("a child of ours");
    })
}

pub(crate) fn finish(command: Command) -> Ran {
    finish_after(command, |_| ())
}

fn finish_after(mut command: Command, meanwhile: impl FnOnce(&Child)) -> Ran {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command was built");
    let mut stdout = child.stdout.take().expect("piped");
    let mut stderr = child.stderr.take().expect("piped");
    let output = std::thread::spawn(move || read_all(&mut stdout));
    let errors = std::thread::spawn(move || read_all(&mut stderr));
    meanwhile(&child);
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child of ours") {
            break Some(status);
        }
        if started.elapsed() > Duration::from_secs(300) {
            child.kill().expect("a child of ours");
            child.wait().expect("a child of ours");
            break None;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let [stdout, stderr] = [output, errors].map(|thread| thread.join().expect("it only reads"));
    assert!(status.is_some(), "it hangs: {command:?}\n{stdout}{stderr}");
    Ran { code: status.and_then(|status| status.code()), stdout, stderr }
}

fn read_all(from: &mut impl Read) -> String {
    let mut bytes = Vec::new();
    from.read_to_end(&mut bytes).expect("a pipe");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Runs a measurement that must succeed, and returns its JSON.
pub(crate) fn measure(arguments: &str) -> Value {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("results.json");
    let mut command = command(arguments);
    command.arg("--json").arg(&file);
    let ran = finish(command);
    assert_eq!(ran.code, Some(0), "{arguments}: {ran:?}");
    let text = std::fs::read_to_string(&file).expect("the results were written");
    serde_json::from_str(&text).expect("the results are JSON")
}

/// Whether TAP devices can be had here; announces the test where they cannot.
pub(crate) fn has_tap(test: &str) -> bool {
    static WHY_NOT: OnceLock<Option<String>> = OnceLock::new();
    let why_not = WHY_NOT.get_or_init(|| {
        let ran = run("bench stream --device tap --mode multidata --bytes 1 --runs 1");
        let refused = ran.code == Some(1) && ran.stderr.contains("no TAP device can be had");
        refused.then(|| ran.stderr.trim().to_owned())
    });
    match why_not {
        None => true,
        Some(why) => {
            cannot_run(test, why);
            false
        }
    }
}

/// What is said where namespaces are not granted.
const NO_NETWORK: &str = "no network of its own can be had";

/// Whether a network of one's own can be had here; announces the test where it cannot.
pub(crate) fn has_network(test: &str) -> bool {
    let ran = run("bench stream --device tunnel --mode multidata --bytes 1 --runs 1");
    if ran.code == Some(1) && ran.stderr.contains(NO_NETWORK) {
        cannot_run(test, ran.stderr.trim());
        return false;
    }
    true
}

/// Whether interfaces can be taken over by AF_XDP here; announces the test where they cannot.
pub(crate) fn has_xdp(test: &str) -> bool {
    let ran = run("bench stream --device xdp --mode multidata --bytes 1 --runs 1");
    let is_refused = ["no AF_XDP on", NO_NETWORK].iter().any(|why| ran.stderr.contains(why));
    if ran.code == Some(1) && is_refused {
        cannot_run(test, ran.stderr.trim());
        return false;
    }
    true
}
