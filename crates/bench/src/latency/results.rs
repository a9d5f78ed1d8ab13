//! What a comparison measured: one JSON object, and a table with a row for each case.

use super::{Bulk, Case, Near};
use crate::host;
use crate::receive::coalescing_name;
use crate::results::Host;
use crate::statistics::{median, ratio};
use crate::table::{cells, headed};
use crate::workload::request_response::Asked;
use serde::{Deserialize, Serialize};

/// The name of this layout.
pub const SCHEMA: &str = "multidata-bench-latency/1";

/// What a comparison measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Results {
    /// [`SCHEMA`].
    pub schema: String,
    /// Where and when.
    pub host: Host,
    /// Length of a request and of its response.
    pub len_bytes: usize,
    /// One entry for each run, in the order in which they ran.
    pub runs: Vec<LatencyRun>,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LatencyRun {
    /// `multidata`, `multidata, relayed` or `kernel, relayed`.
    pub near: String,
    /// `adaptive` or the number of frames that come up at a time; empty for a kernel socket.
    pub coalescing: String,
    /// `idle`, `beside sending` or `beside receiving`.
    pub load: String,
    /// Transactions completed.
    pub transactions: u64,
    /// Seconds they took together.
    pub seconds: f64,
    /// Median time of one.
    pub median_us: f64,
    /// The time that one in a hundred exceeded.
    pub p99_us: f64,
    /// What the bulk transfer moved meanwhile, in 10^9 bits per second.
    pub bulk_gbps: f64,
}

impl LatencyRun {
    pub(super) fn of(case: Case, asked: Asked, bulk: Bulk) -> Self {
        Self {
            near: case.near.name().to_owned(),
            coalescing: match case.near {
                Near::KernelRelayed => String::new(),
                Near::Ours | Near::OursRelayed => coalescing_name(case.coalescing),
            },
            load: case.load.name().to_owned(),
            transactions: asked.transactions,
            seconds: asked.seconds,
            median_us: asked.median_ns as f64 / 1e3,
            p99_us: asked.p99_ns as f64 / 1e3,
            bulk_gbps: ratio(bulk.bytes as f64 * 8.0 / 1e9, bulk.seconds).unwrap_or(0.0),
        }
    }

    fn is_same_case(&self, other: &Self) -> bool {
        self.near == other.near && self.coalescing == other.coalescing && self.load == other.load
    }
}

/// Medians of the runs of a case.
struct Row<'a> {
    first: &'a LatencyRun,
    median_us: f64,
    p99_us: f64,
    per_s: f64,
    bulk_gbps: f64,
}

impl AsMut<Host> for Results {
    fn as_mut(&mut self) -> &mut Host {
        &mut self.host
    }
}

impl Results {
    /// Those of a comparison that begins: of requests of this length, with these arguments of the command.
    #[must_use]
    pub fn begin(len_bytes: usize, arguments: &[String]) -> Self {
        let host = host::describe(arguments);
        Self { schema: SCHEMA.to_owned(), host, len_bytes, runs: Vec::new() }
    }

    fn rows(&self) -> Vec<Row<'_>> {
        let mut firsts: Vec<&LatencyRun> = Vec::new();
        for run in &self.runs {
            if !firsts.iter().any(|first| first.is_same_case(run)) {
                firsts.push(run);
            }
        }
        let row = |first| {
            let runs = || self.runs.iter().filter(|run| run.is_same_case(first));
            let of = |figure: &dyn Fn(&LatencyRun) -> f64| {
                median(&runs().map(figure).collect::<Vec<f64>>()).unwrap_or(0.0)
            };
            Row {
                first,
                median_us: of(&|run| run.median_us),
                p99_us: of(&|run| run.p99_us),
                per_s: of(&|run| ratio(run.transactions as f64, run.seconds).unwrap_or(0.0)),
                bulk_gbps: of(&|run| run.bulk_gbps),
            }
        };
        firsts.into_iter().map(row).collect()
    }

    /// The table: medians over the runs, a row for each case.
    #[must_use]
    pub fn table(&self) -> String {
        let rows = self.rows();
        let heads = [
            "asks",
            "",
            "coales-\ncing",
            "beside",
            "median\nus",
            "/ the\nkernel",
            "p99\nus",
            "/ the\nkernel",
            "trans-\nactions\n/s",
            "bulk\nGbit/s",
        ];
        let mut table = headed(heads);
        for row in &rows {
            let kernel = kernel_row(&rows, &row.first.load);
            let against = |ours: f64, kernel: Option<f64>| {
                let ratio = kernel.and_then(|kernel| ratio(ours, kernel));
                ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}"))
            };
            let figures = [
                format!("{:.1}", row.median_us),
                against(row.median_us, kernel.map(|it| it.median_us)),
                format!("{:.1}", row.p99_us),
                against(row.p99_us, kernel.map(|it| it.p99_us)),
                format!("{:.0}", row.per_s),
                format!("{:.2}", row.bulk_gbps),
            ];
            let LatencyRun { near, coalescing, load, .. } = row.first;
            let (who, how) = near.split_once(", ").unwrap_or((near, ""));
            let load = load.strip_prefix("beside ").unwrap_or(load);
            table.add_row(cells([who, how, coalescing, load], figures));
        }
        table.to_string()
    }

    /// Whether this stack is slower than the kernel's socket, which is behind a relay, where it is not and where it is,
    /// too; and adaptive coalescing than one by one, a sentence for each load.
    #[must_use]
    pub fn findings(&self) -> Vec<String> {
        let rows = self.rows();
        let mut sentences = Vec::new();
        for kernel in rows.iter().filter(|row| row.first.near == Near::KernelRelayed.name()) {
            let load = &kernel.first.load;
            let of = |near: Near, coalescing: &str| {
                rows.iter().find(|row| {
                    row.first.near == near.name()
                        && row.first.coalescing == coalescing
                        && row.first.load == *load
                })
            };
            let Some(adaptive) = of(Near::Ours, "adaptive") else { continue };
            let against_kernel = |row: &Row<'_>| ratio(row.median_us, kernel.median_us);
            let relayed = of(Near::OursRelayed, "adaptive").and_then(against_kernel);
            if let (Some(share), Some(relayed)) = (against_kernel(adaptive), relayed) {
                sentences.push(format!(
                    "{load}: the median of this stack is {share:.2} times that of a kernel socket behind the \
                     relay, and behind the same relay {relayed:.2} times."
                ));
            }
            let one = of(Near::Ours, "1").and_then(|one| ratio(adaptive.median_us, one.median_us));
            if let Some(share) = one {
                sentences.push(format!(
                    "{load}: adaptive coalescing has {share:.2} times the median of one by one."
                ));
            }
        }
        sentences
    }
}

fn kernel_row<'a, 'b>(rows: &'a [Row<'b>], load: &str) -> Option<&'a Row<'b>> {
    rows.iter().find(|row| row.first.near == Near::KernelRelayed.name() && row.first.load == load)
}

#[cfg(test)]
mod tests {
    use super::super::{Load, cases};
    use super::*;

    #[test]
    fn a_row_is_compared_with_the_kernels_of_its_load() {
        let mut results = Results::begin(1, &[]);
        let cases = cases(&[Load::Idle, Load::Receive]);
        assert_eq!(cases.len(), 8);
        for (case, median_ns) in
            cases.into_iter().zip([10_000, 20_000, 30_000, 40_000, 60_000, 50_000, 70_000, 80_000])
        {
            let asked = Asked { transactions: 10, seconds: 1.0, median_ns, p99_ns: 2 * median_ns };
            results.runs.push(LatencyRun::of(case, asked, Bulk { bytes: 0, seconds: 1.0 }));
        }
        assert_eq!(
            results.findings(),
            [
                "idle: the median of this stack is 0.25 times that of a kernel socket behind the relay, and \
                 behind the same relay 0.75 times.",
                "idle: adaptive coalescing has 0.50 times the median of one by one.",
                "beside receiving: the median of this stack is 0.75 times that of a kernel socket behind the \
                 relay, and behind the same relay 0.88 times.",
                "beside receiving: adaptive coalescing has 1.20 times the median of one by one.",
            ]
        );
        let table = results.table();
        assert!(table.contains("0.88") && table.contains("140.0"), "{table}");
        // A terminal has 80 columns, and beside a bulk transfer a transaction may take milliseconds.
        for run in &mut results.runs {
            (run.median_us, run.p99_us, run.transactions) = (9_999.9, 99_999.9, 999_999);
        }
        let table = results.table();
        let width = table.lines().map(|line| line.trim_end().chars().count()).max();
        assert!(width.is_some_and(|width| width <= 80), "{width:?}:\n{table}");
        let text = crate::results::to_json(&results).expect("numbers");
        assert_eq!(serde_json::from_str::<Results>(&text).expect("as written"), results);
    }
}
