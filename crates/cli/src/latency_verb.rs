//! `multidata bench latency`: transactions of this stack beside those of a kernel socket.

use crate::arguments::LatencyArguments;
use crate::bench_verb::try_place;
use crate::output::{complain, deliver};
use bench::latency::{Comparison, cases, compare};
use bench::{Attempt, Failure};
use linux::Sandbox;

/// Runs the comparison.
///
/// # Errors
/// A sentence: no namespace or device, a failed run, a response that is not its request, no place for
/// the results.
pub(crate) fn run(arguments: &LatencyArguments) -> Result<(), Failure> {
    // Before anything starts a thread: namespaces belong to threads.
    let sandbox = Sandbox::enter().attempt(|| "no network to run in can be had")?;
    if let Some(file) = &arguments.output.json {
        try_place(file)?;
    }
    if cfg!(debug_assertions) {
        complain("this is a debug build: its figures say nothing; use cargo run --release");
    }
    let comparison = Comparison {
        cases: cases(&arguments.loads()),
        len_bytes: arguments.size,
        time: arguments.seconds,
        rounds: usize::try_from(arguments.output.runs).unwrap_or(usize::MAX),
    };
    let line: Vec<String> = std::env::args().skip(1).collect();
    let results = compare(&comparison, sandbox, &line)?;
    let text = format!(
        "{} ({}), {}, {} CPUs, {}\nTransactions of {} byte(s) each way with a kernel socket behind a \
         plain TAP, every response verified; medians of {} alternating runs of {} s:\n{}\n\nA kernel \
         socket's frames cross a TAP only where a process carries them: the relay. \"multidata\" is \
         on the TAP itself.\n{}\n",
        results.host.program,
        results.host.date,
        results.host.kernel,
        results.host.cpus,
        results.host.cpu,
        results.len_bytes,
        comparison.rounds,
        comparison.time.as_secs_f64(),
        results.table(),
        results.findings().join("\n"),
    );
    deliver(&text, arguments.output.json.as_deref(), || results.to_json())
}
