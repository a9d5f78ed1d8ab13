//! `multidata bench latency`: transactions of this stack beside those of a kernel socket.

use crate::arguments::LatencyArguments;
use crate::bench_verb::{Preparation, prepare};
use crate::output::deliver;
use bench::latency::{Comparison, cases, compare};
use bench::results::to_json;
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
    let Preparation { rounds, line } = prepare(&arguments.output)?;
    let comparison = Comparison {
        cases: cases(&arguments.loads()),
        len_bytes: arguments.size,
        time: arguments.seconds,
        rounds,
    };
    let results = compare(&comparison, sandbox, &line)?;
    let text = format!(
        "{}\nTransactions of {} byte(s) each way with a kernel socket behind a \
         plain TAP, every response verified; medians of {} alternating runs of {} s:\n{}\n\nA kernel \
         socket's frames cross a TAP only where a process carries them: the relay. \"multidata\" is \
         on the TAP itself.\n{}\n",
        results.host,
        results.len_bytes,
        comparison.rounds,
        comparison.time.as_secs_f64(),
        results.table(),
        results.findings().join("\n"),
    );
    deliver(&text, arguments.output.json.as_deref(), || to_json(&results))
}
