//! `multidata ping`: echo requests of this stack, over a device that the user names.

use crate::arguments::PingArguments;
use crate::bench_verb::begin_place;
use crate::ending::{self, Why};
use crate::output::deliver;
use crate::transfer::{Sending, open};
use crate::tunnel;
use bench::Failure;
use bench::ping::{Plan, Results};
use bench::whole_file::WholeFile;

/// Asks, and prints what came of it.
///
/// # Errors
/// A sentence: no device, no route, nobody answered, no place for the results.
pub(crate) fn run(arguments: &PingArguments) -> Result<(), Failure> {
    ending::arrange()?;
    let place = arguments.json.as_deref().map(begin_place).transpose()?;
    let mut link = open(&arguments.link, Sending::default(), tunnel::open_to)?;
    link.watch()?;
    let plan = arguments.plan();
    // Who is interrupted hears what came of it until then.
    let outcome = bench::ping::ping(&link.stack, &plan, &|| ending::why().is_none())
        .and_then(|results| print(place, &plan, &results).map(|()| results));
    let closed = link.close();
    let results = outcome?;
    closed?;
    if let Some(Why::Useless(_)) = ending::why() {
        return ending::check();
    }
    match results.received {
        0 => Err(Failure::new(format!("{} did not answer", plan.to))),
        _ => Ok(()),
    }
}

fn print(place: Option<WholeFile>, plan: &Plan, results: &Results) -> Result<(), Failure> {
    let mut text = format!(
        "Echo requests to {}, {} bytes of data, {} in a batch:\n{}\n",
        plan.to,
        plan.len_bytes,
        plan.batch,
        results.table()
    );
    for remark in results.remarks() {
        text.push_str(&remark);
        text.push('\n');
    }
    deliver(&text, place, || bench::results::to_json(results))
}
