//! What a comparison measured: one JSON object, and a table with a row for each path.

use super::cell::Sender;
use crate::host;
use crate::results::Host;
use crate::statistics::{median, ratio};
use crate::table::{cells, headed};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tcp::Algorithm;

/// The name of this layout.
pub const SCHEMA: &str = "multidata-bench-loss/1";

/// What a comparison measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Results {
    /// [`SCHEMA`].
    pub schema: String,
    /// Where and when.
    pub host: Host,
    /// Congestion control of both senders.
    pub congestion: String,
    /// One entry for each run, in the order in which they ran.
    pub runs: Vec<LossRun>,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossRun {
    /// `multidata` or `linux`.
    pub sender: String,
    /// Frames lost on purpose each way, in percent.
    pub loss_percent: f64,
    /// Frames reordered each way, in percent.
    pub reorder_percent: f64,
    /// Frames corrupted each way, in percent.
    pub corrupt_percent: f64,
    /// Round-trip time of the path without its queue.
    pub round_trip_ms: f64,
    /// Rate of the path.
    pub rate_bits_per_s: u64,
    /// Bytes the receiving application read, each checked.
    pub bytes: u64,
    /// From the first byte to the end of the time.
    pub seconds: f64,
    /// Bytes times eight over seconds, in 10^6 bits per second.
    pub goodput_mbps: f64,
    /// Frames that reached the receiver's device.
    pub frames_carried: u64,
    /// Frames of the sender that found the path's queue full.
    pub frames_overflowed: u64,
    /// What this stack counted, where it was the sender.
    pub counters: BTreeMap<String, u64>,
}

impl AsMut<Host> for Results {
    fn as_mut(&mut self) -> &mut Host {
        &mut self.host
    }
}

impl Results {
    /// Those of a comparison that begins: with this congestion control, and these arguments of the command.
    #[must_use]
    pub fn begin(congestion: Algorithm, arguments: &[String]) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            host: host::describe(arguments),
            congestion: congestion.kernel_name().to_owned(),
            runs: Vec::new(),
        }
    }

    /// The table: medians of both senders and their ratio, a row for each path.
    #[must_use]
    pub fn table(&self) -> String {
        let mut table = headed(["loss %", "RTT ms", "multidata\nMbit/s", "Linux\nMbit/s", "ratio"]);
        for row in self.rows() {
            let figures = [
                row.path.to_owned(),
                format!("{:.0}", row.round_trip_ms),
                format!("{:.1}", row.ours_mbps),
                format!("{:.1}", row.linux_mbps),
                row.ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}")),
            ];
            table.add_row(cells::<String>([], figures));
        }
        table.to_string()
    }

    /// The rows of the table, in the order in which the paths were first run: those of paths that both senders took.
    #[must_use]
    pub fn rows(&self) -> Vec<Row> {
        let mut paths: Vec<&LossRun> = Vec::new();
        for run in &self.runs {
            if !paths.iter().any(|path| same_path(path, run)) {
                paths.push(run);
            }
        }
        paths.into_iter().filter_map(|path| self.row(path)).collect()
    }

    fn row(&self, path: &LossRun) -> Option<Row> {
        let goodput = |sender: Sender| {
            let runs = self.runs.iter().filter(|run| same_path(run, path));
            let of_sender = runs.filter(|run| run.sender == sender.name());
            let values: Vec<f64> = of_sender.map(|run| run.goodput_mbps).collect();
            median(&values)
        };
        let (ours_mbps, linux_mbps) = (goodput(Sender::Ours)?, goodput(Sender::Linux)?);
        let mut name = format!("{}", path.loss_percent);
        if path.reorder_percent > 0.0 {
            name += &format!(" + {} reordered", path.reorder_percent);
        }
        if path.corrupt_percent > 0.0 {
            name += &format!(" + {} corrupted", path.corrupt_percent);
        }
        Some(Row {
            path: name,
            round_trip_ms: path.round_trip_ms,
            ours_mbps,
            linux_mbps,
            ratio: ratio(ours_mbps, linux_mbps),
        })
    }
}

/// Medians over one path.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its faults.
    pub path: String,
    /// Its round-trip time.
    pub round_trip_ms: f64,
    /// Goodput of this stack as sender.
    pub ours_mbps: f64,
    /// Goodput of Linux as sender.
    pub linux_mbps: f64,
    /// The first over the second.
    pub ratio: Option<f64>,
}

fn same_path(a: &LossRun, b: &LossRun) -> bool {
    let key = |run: &LossRun| {
        (run.loss_percent, run.reorder_percent, run.corrupt_percent, run.round_trip_ms)
    };
    key(a) == key(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(sender: Sender, loss_percent: f64, goodput_mbps: f64) -> LossRun {
        LossRun {
            sender: sender.name().to_owned(),
            loss_percent,
            reorder_percent: 0.0,
            corrupt_percent: 0.0,
            round_trip_ms: 10.0,
            rate_bits_per_s: 1_000_000_000,
            bytes: 0,
            seconds: 1.0,
            goodput_mbps,
            frames_carried: 0,
            frames_overflowed: 0,
            counters: BTreeMap::new(),
        }
    }

    #[test]
    fn a_row_holds_the_medians_of_both_senders_over_one_path() {
        let runs = vec![
            run(Sender::Ours, 1.0, 30.0),
            run(Sender::Linux, 1.0, 20.0),
            run(Sender::Ours, 1.0, 10.0),
            run(Sender::Ours, 1.0, 90.0),
            run(Sender::Linux, 0.0, 900.0),
            run(Sender::Ours, 0.0, 450.0),
        ];
        let mut results = Results { runs, ..Results::begin(Algorithm::Cubic, &[]) };
        let rows = results.rows();
        assert_eq!(rows.len(), 2);
        // Broken off before the kernel's turn.
        results.runs.push(run(Sender::Ours, 5.0, 1.0));
        assert_eq!(results.rows(), rows);
        assert_eq!((rows[0].ours_mbps, rows[0].linux_mbps), (30.0, 20.0));
        assert_eq!(rows[0].ratio, Some(1.5));
        assert_eq!(rows[1].ratio, Some(0.5));
        assert!(results.table().contains("450.0"));
        let json = crate::results::to_json(&results).expect("numbers");
        assert_eq!(serde_json::from_str::<Results>(&json).expect("the same"), results);
    }
}
