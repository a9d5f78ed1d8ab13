//! `multidata bench loss`: this stack and Linux as senders over the same bad paths.

use crate::arguments::LossArguments;
use crate::bench_verb::{Preparation, measured, prepare, tell};
use crate::output::deliver;
use bench::loss::{Cell, Results, run};
use bench::plan::each_once;
use bench::results::to_json;
use bench::{Attempt, Failure};
use linux::Sandbox;
use std::time::Duration;

/// Runs the comparison.
///
/// # Errors
/// A sentence: no namespace or device, a failed run, data that is not what was sent, no place for
/// the results.
pub(crate) fn run(arguments: &LossArguments) -> Result<(), Failure> {
    // Before anything starts a thread: namespaces belong to threads.
    let sandbox = Sandbox::enter().attempt(|| "no network to run in can be had")?;
    let Preparation { rounds, line, place } = prepare(&arguments.output)?;
    let comparison = run::Comparison {
        cells: cells(arguments),
        algorithm: arguments.congestion,
        time: arguments.seconds,
        rounds,
    };
    let (results, outcome) =
        measured(Results::begin(arguments.congestion, &line), move |results| {
            run::compare(&comparison, sandbox, results)
        });
    tell(outcome, rounds, !results.runs.is_empty(), |medians_of| {
        let text = format!(
            "{}\nGoodput of {} to a Linux receiver, {} Mbit/s, every byte \
             verified; medians of {medians_of} of {} s:\n{}\n",
            results.host,
            results.congestion,
            arguments.rate,
            arguments.seconds.as_secs_f64(),
            results.table(),
        );
        deliver(&text, place, || to_json(&results))
    })
}

/// Every loss with every round-trip time.
pub(crate) fn cells(arguments: &LossArguments) -> Vec<Cell> {
    let times = arguments.rtt.iter().map(|millis| Duration::from_millis(*millis));
    each_once(times.flat_map(|round_trip| {
        arguments.loss.iter().map(move |loss| Cell {
            reorder_percent: arguments.reorder,
            corrupt_percent: arguments.corrupt,
            rate_bits_per_s: arguments.rate * 1_000_000,
            ..Cell::new(*loss, round_trip)
        })
    }))
}
