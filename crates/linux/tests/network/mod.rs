//! What runs tests in a network of their own; the tests of other crates use it, too.
//!
//! Such tests have no test harness, because namespaces must be entered before any thread starts.
//! The output has the harness's form, and a filter on the command line works as usual. What the
//! machine does not grant is announced as `CANNOT RUN`, never passed over in silence.

// Every test binary uses its own part of this.
#![allow(dead_code)]

mod withheld;

use linux::{Sandbox, TapConfig, TapDevice};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;
pub(crate) use withheld::cannot_run;

/// Runs those of `tests`, each with its name, that the command line asks for, once `enter` has made the
/// network; where it could not, says so for each.
pub(crate) fn run<N: AsRef<str>, T: Fn()>(
    tests: &[(N, T)],
    enter: impl FnOnce() -> Result<(), String>,
) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let filter = arguments.iter().find(|argument| !argument.starts_with('-'));
    let tests = tests.iter().map(|(name, test)| (name.as_ref(), test));
    let tests: Vec<(&str, &T)> =
        tests.filter(|(name, _)| filter.is_none_or(|it| name.contains(it.as_str()))).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        tests.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    println!("\nrunning {} tests", tests.len());
    let started = Instant::now();
    let ready = enter();
    let mut failed = 0;
    for (name, test) in &tests {
        let passed = match &ready {
            Err(why) => {
                cannot_run(name, why);
                true
            }
            Ok(()) => catch_unwind(AssertUnwindSafe(test)).is_ok(),
        };
        failed += usize::from(!passed);
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
    }
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {verdict}. {} passed; {failed} failed; 0 ignored; 0 measured; \
         0 filtered out; finished in {:.2}s\n",
        tests.len() - failed,
        started.elapsed().as_secs_f64()
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Enters a network of our own.
///
/// # Errors
/// The system does not allow it.
pub(crate) fn enter() -> Result<(), String> {
    let sandbox = Sandbox::enter().map_err(|error| error.message)?;
    sandbox.refused().iter().for_each(|sentence| eprintln!("note: {sentence}"));
    // The kernel resolves no neighbour while it still looks whether its own address is another's.
    let detection = "/proc/sys/net/ipv6/conf/default/accept_dad";
    std::fs::write(detection, "0").map_err(|error| format!("{detection}: {error}"))
}

/// As [`enter`], and tries whether the network has the TUN driver.
///
/// # Errors
/// It has not, or as [`enter`].
pub(crate) fn enter_with_tun() -> Result<(), String> {
    enter()?;
    TapDevice::open(&TapConfig::default()).map(drop).map_err(|error| error.message)
}
