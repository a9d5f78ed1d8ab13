//! A job: scenarios, in rounds.
//!
//! First every scenario has its verification pass; then the rounds alternate, so that what drifts
//! on the machine drifts for all scenarios alike.

use crate::progress::Progress;
use crate::results::{Results, SCHEMA};
use crate::run::{Pass, run};
use crate::scenario::Scenario;
use crate::{Failure, host, plan};

/// Runs every scenario `rounds` times.
///
/// # Errors
/// The first failure ends the job; there are no results then.
pub fn run_all(
    scenarios: &[Scenario],
    rounds: usize,
    arguments: &[String],
) -> Result<Results, Failure> {
    let progress = Progress::steps(scenarios.len() * (rounds + 1));
    let mut results =
        Results { schema: SCHEMA.to_owned(), host: host::describe(arguments), runs: Vec::new() };
    for scenario in scenarios {
        progress.say(&format!("verifying {}", scenario.name()));
        let ran = run(scenario, Pass::Verification)?;
        results.host.devices.insert(scenario.name(), ran.about);
        progress.advance(1);
    }
    for round in 0..rounds {
        for index in plan::round_order(round, scenarios.len()) {
            let scenario = &scenarios[index];
            progress.say(&format!("round {} of {rounds}: {}", round + 1, scenario.name()));
            results.runs.push(run(scenario, Pass::Timed)?.run);
            progress.advance(1);
        }
    }
    Ok(results)
}
