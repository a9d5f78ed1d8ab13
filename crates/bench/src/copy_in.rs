//! What copying a write in costs, policy by policy.
//!
//! The shape is that of Table 1 of seed 000 (`sd_qn_maxpsz` and `sd_maxblk`; cross-calls and context
//! switches) and of the figures of seed 002 (the old order of allocating and copying against the new
//! one; CPU for each KB). Cross-calls were what a block beyond the largest cached one cost there; here
//! such a block is a pool miss. CPU is that of the sending threads alone, between the first write and
//! the last, so the receiver of an in-process wire is not in it. The work of seed 002 was on both ways of a socket,
//! a stream's and a datagram's (`sosend_dgram`), so a write goes as either here.

use crate::results::{Results, Run};
use crate::scenario::{Amount, DeviceKind, Scenario};
use crate::sizes::format_size;
use crate::statistics::{median, ratio};
use crate::table::{cells, headed};
use multidata::{BlockSize, CopyIn, CopyOrder};
use std::str::FromStr;
use std::time::Duration;

/// Counter of a run: CPU time of the threads that wrote, in nanoseconds.
pub const SENDER_CPU_NS: &str = "sender_cpu_ns";
/// Counter of a run: times one of them gave up its CPU to wait for something.
pub const SENDER_WAITS: &str = "sender_waits";

/// Counter of a run of datagrams: how many of their bytes arrived; of a stream all do.
pub const DATAGRAM_BYTES_ARRIVED: &str = "datagram_bytes_arrived";

/// Write sizes of the default job, in bytes.
pub const WRITE_LENS_BYTES: [usize; 4] = [16 << 10, 64 << 10, 256 << 10, 1 << 20];

/// A way to bring a write's bytes into the stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    name: String,
    copy_in: CopyIn,
    zero_copy: bool,
}

/// The policy that others are compared with.
const OLD: &str = "old";
/// The policy that lends the application's memory.
const ZERO_COPY: &str = "zero-copy";
/// What the stack does by itself.
const NEW: &str = "first-whole";
/// The same with checksums made in the copy.
const FOLDING: &str = "first-whole-folded";
/// Ending of the names of those that make checksums in the copy.
const FOLDED: &str = "-folded";

const ORDERS: [(&str, CopyOrder); 2] =
    [("interleaved", CopyOrder::Interleaved), ("first", CopyOrder::AllocateFirst)];
const BLOCKS: [(&str, BlockSize); 3] =
    [("mss", BlockSize::Segment), ("page", BlockSize::Page), ("whole", BlockSize::Whole)];

impl Policy {
    /// Every policy: the old way, order x block size x checksum in the copy or not, and no copy.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let mut names = vec![OLD.to_owned()];
        for ending in ["", FOLDED] {
            for (block, _) in BLOCKS {
                names.extend(ORDERS.map(|(order, _)| format!("{order}-{block}{ending}")));
            }
        }
        names.push(ZERO_COPY.to_owned());
        names.iter().filter_map(|name| name.parse().ok()).collect()
    }

    /// The same with other bounds on blocks and messages, where given.
    #[must_use]
    pub fn with(self, block_len_bytes_max: Option<usize>, low_water_bytes: Option<usize>) -> Self {
        let mut copy_in = self.copy_in;
        copy_in.block_len_bytes_max = block_len_bytes_max.unwrap_or(copy_in.block_len_bytes_max);
        copy_in.low_water_bytes = low_water_bytes.unwrap_or(copy_in.low_water_bytes);
        Self { copy_in, ..self }
    }
}

impl FromStr for Policy {
    type Err = String;

    /// Reads `old`, `zero-copy`, or order, block size and perhaps `folded`, as in
    /// `interleaved-page-folded`.
    fn from_str(name: &str) -> Result<Self, String> {
        let policy = |copy_in, zero_copy| Self { name: name.to_owned(), copy_in, zero_copy };
        match name {
            OLD => return Ok(policy(CopyIn::legacy(), false)),
            ZERO_COPY => return Ok(policy(CopyIn::default(), true)),
            _ => {}
        }
        let folded = name.strip_suffix(FOLDED);
        let (order, block) = folded.unwrap_or(name).split_once('-').unwrap_or_default();
        let order = ORDERS.iter().find(|(word, _)| *word == order);
        let block = BLOCKS.iter().find(|(word, _)| *word == block);
        match (order, block) {
            (Some((_, order)), Some((_, block))) => {
                let fold_checksum = folded.is_some();
                let (order, block) = (*order, *block);
                Ok(policy(CopyIn { order, block, fold_checksum, ..CopyIn::default() }, false))
            }
            _ => Err(format!(
                "give {OLD}, {ZERO_COPY}, or interleaved or first with -mss, -page or -whole and, for \
                 checksums made in the copy, {FOLDED}"
            )),
        }
    }
}

/// The job: every policy with every write size over each of these paths, as a stream and as datagrams of each
/// of these lengths; only as a stream where there are none.
#[must_use]
pub fn scenarios(
    paths: &[Scenario],
    write_lens_bytes: &[usize],
    policies: &[Policy],
    datagram_lens_bytes: &[usize],
    time: Duration,
) -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    let lens = datagram_lens_bytes.iter().map(|len_bytes| Some(*len_bytes));
    let lens: Vec<Option<usize>> = core::iter::once(None).chain(lens).collect();
    for (path, datagram_len_bytes) in
        paths.iter().flat_map(|path| lens.iter().map(move |it| (path, *it)))
    {
        for write_len_bytes in write_lens_bytes {
            scenarios.extend(policies.iter().map(|policy| Scenario {
                amount: Amount::Time(time),
                write_len_bytes: *write_len_bytes,
                datagram_len_bytes,
                zero_copy: policy.zero_copy,
                copy_in: policy.copy_in,
                label: Some(format!("{} {}", format_size(*write_len_bytes as u64), policy.name)),
                ..path.clone()
            }));
        }
    }
    scenarios
}

/// The devices of the default job: what copying costs alone, and beside a kernel.
#[must_use]
pub const fn default_devices() -> [DeviceKind; 2] {
    [DeviceKind::Wire, DeviceKind::Tap]
}

/// The medians of one policy with one write size over one path.
#[derive(Clone, Debug)]
struct Row {
    /// The path and the write size, which rows that are compared have in common.
    group: String,
    policy: String,
    throughput_gbps: f64,
    sender_cpu_us_per_kb: f64,
    allocations_per_mb: f64,
    misses_per_mb: f64,
    oversize_per_mb: f64,
    waits_per_mb: f64,
    wakeups_per_mb: f64,
    arrived_percent: f64,
    summed_in_copy_percent: f64,
    summed_again_percent: f64,
}

fn rows(results: &Results) -> Vec<Row> {
    results.groups().into_iter().map(|(name, runs)| row(name, &runs)).collect()
}

fn row(name: &str, runs: &[&Run]) -> Row {
    let of = |figure: &dyn Fn(&Run) -> f64| {
        let figures: Vec<f64> = runs.iter().map(|run| figure(run)).collect();
        median(&figures).unwrap_or(0.0)
    };
    let each = |counter: &str, unit_bytes: f64| {
        of(&|run| {
            let count = run.counters.get(counter).copied().unwrap_or(0) as f64;
            ratio(count, run.bytes as f64 / unit_bytes).unwrap_or(0.0)
        })
    };
    let per_mb = |counter: &str| each(counter, f64::from(1 << 20));
    let (group, policy) = name.rsplit_once(' ').unwrap_or((name, ""));
    Row {
        group: group.to_owned(),
        policy: policy.to_owned(),
        throughput_gbps: of(&|run| run.throughput_gbps),
        sender_cpu_us_per_kb: each(SENDER_CPU_NS, 1_024.0) / 1_000.0,
        allocations_per_mb: per_mb("pool.allocations"),
        misses_per_mb: per_mb("pool.allocation_misses"),
        oversize_per_mb: per_mb("pool.allocation_oversize"),
        waits_per_mb: per_mb(SENDER_WAITS),
        wakeups_per_mb: per_mb("runtime.wakeups_sent"),
        arrived_percent: of(&|run| {
            let arrived = run.counters.get(DATAGRAM_BYTES_ARRIVED).copied().unwrap_or(run.bytes);
            ratio(arrived as f64 * 100.0, run.bytes as f64).unwrap_or(0.0)
        }),
        summed_in_copy_percent: each("runtime.bytes_summed_in_copy", 1.0) * 100.0,
        summed_again_percent: each("stack.checksummed_transmit_bytes", 1.0) * 100.0,
    }
}

/// The medians as a table; the last column holds the sender's CPU against that of `old` on the same
/// path with the same write size, where that ran.
#[must_use]
pub fn render(results: &Results) -> String {
    let rows = rows(results);
    let heads = [
        "path, write, policy",
        "Gbit/s",
        "sender CPU\nus/KB",
        "blocks\n/MB",
        "pool misses\n/MB",
        "oversize\n/MB",
        "waits\n/MB",
        "wake-ups\n/MB",
        "summed in\ncopy, %",
        "summed\nagain, %",
        "arrived, %",
        "CPU\n/ old",
    ];
    let mut table = headed(heads);
    for row in &rows {
        let against = against(&rows, row, OLD);
        let figures = [
            format!("{:.2}", row.throughput_gbps),
            format!("{:.4}", row.sender_cpu_us_per_kb),
            format!("{:.1}", row.allocations_per_mb),
            format!("{:.2}", row.misses_per_mb),
            format!("{:.2}", row.oversize_per_mb),
            format!("{:.2}", row.waits_per_mb),
            format!("{:.2}", row.wakeups_per_mb),
            format!("{:.0}", row.summed_in_copy_percent),
            format!("{:.0}", row.summed_again_percent),
            format!("{:.0}", row.arrived_percent),
            against.map_or_else(String::new, |ratio| format!("{ratio:.2}")),
        ];
        table.add_row(cells([format!("{} {}", row.group, row.policy)], figures));
    }
    format!("{table}\n")
}

/// The sender's CPU of `row` against that of the policy `other` beside it.
fn against(rows: &[Row], row: &Row, other: &str) -> Option<f64> {
    let other = rows.iter().find(|it| it.group == row.group && it.policy == other)?;
    ratio(row.sender_cpu_us_per_kb, other.sender_cpu_us_per_kb)
}

/// What the new way brings against the old one, what the checksum in the copy brings, and what no
/// copy does: a sentence for each path and write size. Empty where nothing can be compared.
#[must_use]
pub fn findings(results: &Results) -> Vec<String> {
    let rows = rows(results);
    let mut sentences = Vec::new();
    for row in &rows {
        let (other, than) = match row.policy.as_str() {
            NEW => (OLD, "the old way"),
            FOLDING => (NEW, "a pass of its own for the checksums"),
            ZERO_COPY => (NEW, "one copy"),
            _ => continue,
        };
        if let Some(ratio) = against(&rows, row, other) {
            let less = less(ratio, than);
            sentences.push(format!("{}: {} takes the sender {less}.", row.group, row.policy));
        }
    }
    sentences
}

fn less(ratio: f64, than: &str) -> String {
    let percent = (1.0 - ratio) * 100.0;
    match percent < 0.0 {
        true => format!("{:.0} percent more CPU than {than}", -percent),
        false => format!("{percent:.0} percent less CPU than {than}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::{results, run};
    use crate::scenario::Direction;
    use device::TransmitMode;

    #[test]
    fn every_policy_has_a_name_of_its_own_that_is_read_back() {
        let all = Policy::all();
        assert_eq!(all.len(), 14, "old, two orders by three sizes by two checksums, zero-copy");
        for (index, policy) in all.iter().enumerate() {
            assert_eq!(policy.name.parse().as_ref(), Ok(policy));
            let same = all[..index].iter().any(|other| {
                (other.copy_in, other.zero_copy) == (policy.copy_in, policy.zero_copy)
            });
            assert!(!same, "{} is another one, too", policy.name);
        }
        assert_eq!(NEW.parse::<Policy>().unwrap().copy_in, CopyIn::default());
        for wrong in ["", "first", "first-", "whole-first", "old-folded", "first-mss-unfolded"] {
            assert!(wrong.parse::<Policy>().unwrap_err().contains("zero-copy"), "{wrong}");
        }
    }

    #[test]
    fn scenarios_of_a_job_have_names_of_their_own() {
        let path = |device| Scenario::stream(device, Direction::Send, TransmitMode::Multidata);
        let paths = default_devices().map(path);
        let time = Duration::from_secs(1);
        let job = scenarios(&paths, &WRITE_LENS_BYTES, &Policy::all(), &[1_472, 9_000], time);
        assert_eq!(job.len(), 2 * 3 * 4 * 14);
        let names: std::collections::BTreeSet<String> = job.iter().map(Scenario::name).collect();
        assert_eq!(names.len(), job.len());
        assert!(job.iter().all(|scenario| scenario.check().is_ok()));
    }

    #[test]
    fn policies_are_compared_on_the_same_path() {
        let run = |name: &str, cpu_ns| {
            let mut run = run(TransmitMode::Multidata, 8.0);
            run.scenario = name.to_owned();
            run.counters.insert(SENDER_CPU_NS.to_owned(), cpu_ns);
            run.counters.insert("pool.allocation_misses".to_owned(), 2_000);
            run
        };
        let results = results(vec![
            run("wire 64K old", 400_000_000),
            run("wire 64K first-whole", 100_000_000),
            run("wire 64K first-whole-folded", 90_000_000),
            run("wire 64K zero-copy", 110_000_000),
            run("wire 16K first-whole", 300_000_000),
        ]);
        let sentences = findings(&results);
        assert_eq!(
            sentences,
            [
                "wire 64K: first-whole takes the sender 75 percent less CPU than the old way.",
                "wire 64K: first-whole-folded takes the sender 10 percent less CPU than a pass of its \
                 own for the checksums.",
                "wire 64K: zero-copy takes the sender 10 percent more CPU than one copy.",
            ]
        );
        let text = render(&results);
        assert!(text.contains("0.25"), "{text}");
        assert!(text.contains("2.10"), "misses for each MB: {text}");
    }
}
