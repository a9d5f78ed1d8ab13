//! A minute of simulation, and figures that say what was in it.
//!
//! The seeds are always the same, and a machine that is slow runs the first of them: all have been
//! seen to pass. More of them is what `cargo xtask simulate` is for.

use std::path::Path;

use super::Course;
use crate::{Failure, simulate};

/// Seeds, from the first on, and how long they are begun at most: about what two idle cores do in a
/// minute.
const SEEDS: &str = "3000";
const SECONDS: &str = "60";

/// Connections that must have been opened by them.
const CONNECTIONS_MIN: u64 = 10_000;

/// Builds the simulator, so that the minute is the simulation's own.
pub(super) fn build(course: &mut Course) -> Result<bool, Failure> {
    Ok(simulate::cargo(&course.root, "build").status()?.success())
}

/// Runs the seeds on all cores and looks at the figures.
pub(super) fn run(course: &mut Course, results: &Path) -> Result<bool, Failure> {
    std::fs::create_dir_all(results)?;
    let path = results.join("simulate.json");
    let mut command = simulate::cargo(&course.root, "run");
    command.args(["--", "--seed", "1", "--count", SEEDS, "--seconds", SECONDS, "--json"]);
    if !command.arg(&path).status()?.success() {
        return Ok(false);
    }
    let figures: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path)?)?;
    Ok(is_enough(&figures))
}

/// What has to happen in the minute: faults, and uses of what the stack can do.
const HAPPENINGS: [&str; 30] = [
    "link_lost",
    "link_held",
    "link_doubled",
    "link_corrupted",
    "link_dark",
    "link_overflowed",
    "link_marked",
    "urgent_marks",
    "restarts",
    "connections_without_address",
    "duplicates_found",
    "fast_open_bytes",
    "train_frames",
    "segments_cut",
    "handed_on",
    "stalls",
    "super_frames",
    "devices_replaced",
    "swallowed",
    "reads_of_chunks",
    "peeks",
    "options_changed",
    "senders_bbr",
    "datagrams_due",
    "mtu_changes",
    "half_open_found",
    "slow_readers",
    "windows_closed",
    "window_probes",
    "keepalive_probes",
];

/// Whether so much happened that the run says something.
fn is_enough(figures: &serde_json::Value) -> bool {
    let figure = |name: &str| figures.get(name).and_then(serde_json::Value::as_u64).unwrap_or(0);
    let missing: Vec<_> = HAPPENINGS.into_iter().filter(|name| figure(name) == 0).collect();
    let connections = figure("established");
    if connections < CONNECTIONS_MIN {
        println!("only {connections} connections, {CONNECTIONS_MIN} are expected");
    }
    if !missing.is_empty() {
        println!("what never happened: {missing:?}");
    }
    connections >= CONNECTIONS_MIN && missing.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn too_few_connections_or_no_faults_are_not_enough() {
        let mut figures = json!({ "established": 20_000 });
        for name in HAPPENINGS {
            figures[name] = json!(5);
        }
        assert!(is_enough(&figures));
        figures["link_held"] = json!(0);
        assert!(!is_enough(&figures));
        figures["link_held"] = json!(5);
        figures["established"] = json!(9_999);
        assert!(!is_enough(&figures));
    }
}
