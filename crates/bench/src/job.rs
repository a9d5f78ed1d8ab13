//! A job: scenarios, in rounds.
//!
//! First every scenario has its verification pass; then the rounds alternate, so that what drifts
//! on the machine drifts for all scenarios alike.

use crate::growing::Growing;
use crate::progress::Progress;
use crate::results::Results;
use crate::run::{Pass, Ran, run};
use crate::scenario::Scenario;
use crate::{Failure, plan};

/// Runs every scenario `rounds` times and adds what each run gave.
///
/// # Errors
/// The first failure ends the job; the results hold what was measured before it.
pub fn run_all(
    scenarios: &[Scenario],
    rounds: usize,
    results: &Growing<Results>,
) -> Result<(), Failure> {
    run_all_by(scenarios, rounds, results, run)
}

fn run_all_by(
    scenarios: &[Scenario],
    rounds: usize,
    results: &Growing<Results>,
    mut run: impl FnMut(&Scenario, Pass) -> Result<Ran, Failure>,
) -> Result<(), Failure> {
    let progress = Progress::steps(scenarios.len() * (rounds + 1));
    for scenario in scenarios {
        progress.say(&format!("verifying {}", scenario.name()));
        let ran = run(scenario, Pass::Verification)?;
        results.add(|all| {
            all.host.devices.insert(scenario.name(), ran.about);
            all.capture_lost += ran.capture_lost;
        });
        progress.advance(1);
    }
    for round in 0..rounds {
        for index in plan::round_order(round, scenarios.len()) {
            let scenario = &scenarios[index];
            progress.say(&format!("round {} of {rounds}: {}", round + 1, scenario.name()));
            let ran = run(scenario, Pass::Timed)?;
            results.add(|all| {
                all.runs.push(ran.run);
                all.capture_lost += ran.capture_lost;
            });
            progress.advance(1);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Run;

    #[test]
    fn what_was_measured_before_a_failure_is_kept() {
        let scenarios = plan::default_job(std::time::Duration::from_secs(1));
        let results = Growing::new(Results::begin(&[]));
        let mut runs = 0;
        let outcome = run_all_by(&scenarios, 3, &results, |scenario, pass| {
            runs += usize::from(pass == Pass::Timed);
            match runs {
                14 => Err(Failure::new("stuck")),
                _ => Ok(Ran { run: Run::of(scenario), about: String::new(), capture_lost: 0 }),
            }
        });
        assert_eq!(outcome, Err(Failure::new("stuck")));
        let results = results.so_far();
        assert_eq!((results.runs.len(), results.host.devices.len()), (13, scenarios.len()));
        let last = 2 * scenarios.len() - 13;
        let of_second_round = &results.runs[12].scenario;
        assert_eq!(*of_second_round, scenarios[last].name(), "which goes backwards");
    }
}
