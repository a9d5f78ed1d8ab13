//! `multidata bench latency`: transactions of this stack beside those of a kernel socket.

use crate::arguments::LatencyArguments;
use crate::bench_verb::{Preparation, measured, prepare, tell};
use crate::output::deliver;
use bench::latency::{Comparison, Results, cases, compare};
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
    let Preparation { rounds, line, place } = prepare(&arguments.output)?;
    let comparison = Comparison {
        cases: cases(&arguments.loads()),
        len_bytes: arguments.size,
        time: arguments.seconds,
        rounds,
    };
    let (results, outcome) = measured(Results::begin(arguments.size, &line), move |results| {
        compare(&comparison, sandbox, results)
    });
    tell(outcome, rounds, !results.runs.is_empty(), |medians_of| {
        let text = format!(
            "{}\nTransactions of {} byte(s) each way with a kernel socket behind a \
             plain TAP, every response verified; medians of {medians_of} of {} s:\n{}\n\nA kernel \
             socket's frames cross a TAP only where a process carries them: the relay. \"multidata\" is \
             on the TAP itself.\n{}\n",
            results.host,
            results.len_bytes,
            arguments.seconds.as_secs_f64(),
            results.table(),
            results.findings().join("\n"),
        );
        deliver(&text, place, || to_json(&results))
    })
}
