//! `multidata bench receive`: the way in, by how many frames come up at a time.
//!
//! The axes are those of seed 003, section 5.2: how many frames are coalesced, and how long the first of
//! them may wait for others; to which come the device, the number of connections, and the adaptive
//! setting, which is the default of the stack. Beside throughput and CPU stand the sizes of the batches
//! that really came up (a count is only a bound), waits for the device, system calls, and what the
//! squeues counted ([`counted`]). A bench of several rings
//! has one more axis, of the same kind: a word in the name of a scenario that its setting stands in.
//!
//! There a batch saved transfers over a bus and interrupts, here it saves layers; what the kernel does for
//! each frame below it cannot save, so that curves are flat on devices where that rules.

use crate::counted::{self, Counted};
use crate::plan::each_once;
use crate::results::{Results, Run};
use crate::scenario::{Amount, DeviceKind, Direction, Scenario};
use crate::statistics::{median, ratio};
use crate::table::{cells, headed};
use device::TransmitMode;
use multidata::Coalescing;
use std::str::FromStr;
use std::time::Duration;

/// Frames and Mbit/s of seed 003, appendix A.2: a gigabit adapter to its host, with coalescing.
pub const SEED_003_MBPS: [(usize, f64); 12] = [
    (1, 530.8730),
    (2, 729.5356),
    (3, 810.2943),
    (4, 864.3500),
    (6, 910.2290),
    (8, 942.1483),
    (12, 966.9150),
    (16, 973.6922),
    (20, 974.8811),
    (24, 971.6794),
    (32, 974.9424),
    (42, 974.3659),
];

/// What the stack takes at a time at most.
const FRAMES_MAX: usize = 256;

/// The word for the setting that grows with the backlog.
const ADAPTIVE: &str = "adaptive";

/// How many frames come up at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// So many at most.
    Frames(usize),
    /// As many as wait, the bound growing with the backlog.
    Adaptive,
}

impl FromStr for Count {
    type Err = String;

    /// Reads `adaptive`, or a number from 1 to 256.
    fn from_str(text: &str) -> Result<Self, String> {
        if text == ADAPTIVE {
            return Ok(Self::Adaptive);
        }
        match text.parse() {
            Ok(count) if (1..=FRAMES_MAX).contains(&count) => Ok(Self::Frames(count)),
            _ => Err(format!("give {ADAPTIVE}, or a number of frames from 1 to 256")),
        }
    }
}

/// Reads a hold-off: `off`, or a time such as `50us` or `1ms`.
///
/// # Errors
/// A sentence, where it is neither.
pub fn parse_hold_off(text: &str) -> Result<Duration, String> {
    let time = || {
        let (number, unit) = match text.strip_suffix("us") {
            Some(number) => (number, 1),
            None => (text.strip_suffix("ms")?, 1_000),
        };
        let us = number.parse::<u64>().ok()?.checked_mul(unit)?;
        (1..=1_000_000).contains(&us).then(|| Duration::from_micros(us))
    };
    match text {
        "off" => Ok(Duration::ZERO),
        _ => {
            time().ok_or_else(|| "give off, or a time such as 50us or 1ms, 1 s at most".to_owned())
        }
    }
}

/// After how long a packet socket's blocks are handed over at the latest: zero for `off`, or whole
/// milliseconds such as `1ms`.
///
/// # Errors
/// A sentence, where it is neither.
pub fn parse_blocks(text: &str) -> Result<Duration, String> {
    match parse_hold_off(text) {
        Ok(time) if time.subsec_micros().is_multiple_of(1_000) => Ok(time),
        _ => Err("give off, or whole milliseconds such as 1ms, 1 s at most".to_owned()),
    }
}

/// A setting as names have it: `adaptive`, `8`, or `8 held 50us`.
#[must_use]
pub fn coalescing_name(coalescing: Coalescing) -> String {
    match (coalescing.adaptive, coalescing.hold_off.as_micros()) {
        (true, _) => ADAPTIVE.to_owned(),
        (false, 0) => coalescing.count.max(1).to_string(),
        (false, us) => format!("{} held {us}us", coalescing.count),
    }
}

/// The axes: every value of each with every value of the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axes {
    /// Devices.
    pub devices: Vec<DeviceKind>,
    /// Whether a device hands up super-frames, where it can.
    pub offload: Vec<bool>,
    /// How many frames come up at a time.
    pub counts: Vec<Count>,
    /// How long frames wait for others; zero is not at all. One frame alone and the adaptive setting do
    /// not know it, and are measured once.
    pub hold_offs: Vec<Duration>,
    /// Numbers of connections.
    pub connections: Vec<usize>,
}

impl Axes {
    fn coalescings(&self) -> Vec<Coalescing> {
        let of = |count: Count, hold_off| match count {
            Count::Adaptive => Coalescing::ADAPTIVE,
            Count::Frames(1) => Coalescing { count: 1, ..Coalescing::OFF },
            Count::Frames(count) => Coalescing { count, hold_off, adaptive: false },
        };
        let counts = self.counts.iter();
        each_once(counts.flat_map(|count| self.hold_offs.iter().map(move |it| of(*count, *it))))
    }

    /// Every sound combination, each run for this long. Neighbours differ in coalescing only.
    #[must_use]
    pub fn scenarios(&self, time: Duration, common: &Scenario) -> Vec<Scenario> {
        let mut scenarios = Vec::new();
        for &device in &self.devices {
            for &offload in &self.offload {
                for &connections in &self.connections {
                    scenarios.extend(self.coalescings().into_iter().map(|coalescing| Scenario {
                        device,
                        offload,
                        connections,
                        coalescing,
                        mode: TransmitMode::Multidata,
                        direction: Direction::Receive,
                        amount: Amount::Time(time),
                        label: Some(format!("up {}", coalescing_name(coalescing))),
                        ..common.clone()
                    }));
                }
            }
        }
        scenarios.retain(|scenario| scenario.check().is_ok());
        scenarios
    }
}

/// The medians of one setting on one path.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// The path, which rows that are compared have in common.
    pub(crate) path: String,
    /// How many frames: `adaptive` or a number.
    pub(crate) count: String,
    /// How long they are held: empty, or as `50us`.
    pub(crate) held: String,
    pub(crate) throughput_gbps: f64,
    pub(crate) stack_cpu_s_per_gb: f64,
    pub(crate) system_cpu_s_per_gb: f64,
    pub(crate) frames_per_batch: f64,
    pub(crate) waits_per_mb: f64,
    pub(crate) syscalls_per_frame: f64,
    pub(crate) counted: Counted,
    /// Of all batches, the per cent with 1, 2, up to 4, ... up to 256, and more frames.
    pub(crate) sizes_percent: Vec<f64>,
}

/// The medians, in the order in which settings first ran.
pub(crate) fn rows(results: &Results) -> Vec<Row> {
    results.groups().iter().map(|(name, runs)| row(name, runs)).collect()
}

fn row(name: &str, runs: &[&Run]) -> Row {
    let of = |figure: &dyn Fn(&Run) -> Option<f64>| {
        let figures: Vec<f64> = runs.iter().filter_map(|run| figure(run)).collect();
        median(&figures).unwrap_or(0.0)
    };
    let counter = |run: &Run, name: &str| run.counters.get(name).copied().unwrap_or(0) as f64;
    let (path, setting) = name.split_once(" up ").unwrap_or((name, ""));
    let (count, held) = setting.split_once(" held ").unwrap_or((setting, ""));
    let buckets = sizes(runs.first().copied()).len();
    Row {
        path: path.trim_end_matches(" multidata").to_owned(),
        count: count.to_owned(),
        held: held.to_owned(),
        throughput_gbps: of(&|run| Some(run.throughput_gbps)),
        stack_cpu_s_per_gb: of(&|run| Some(run.stack_cpu_s_per_gb)),
        system_cpu_s_per_gb: of(&|run| Some(run.system_cpu_s_per_gb)),
        frames_per_batch: of(&|run| {
            ratio(counter(run, "device.receive_frames"), sizes(Some(run)).iter().sum())
        }),
        waits_per_mb: of(&|run| {
            let waits = counter(run, "runtime.leader_waits") + counter(run, "runtime.worker_turns");
            ratio(waits, run.bytes as f64 / f64::from(1 << 20))
        }),
        syscalls_per_frame: of(&|run| {
            ratio(run.syscalls as f64, counter(run, "device.receive_frames"))
        }),
        counted: Counted::of(runs, ""),
        sizes_percent: (0..buckets)
            .map(|bucket| {
                of(&|run| {
                    let sizes = sizes(Some(run));
                    Some(100.0 * ratio(*sizes.get(bucket)?, sizes.iter().sum())?)
                })
            })
            .collect(),
    }
}

/// How many batches of which size came up, in the order of the sizes.
fn sizes(run: Option<&Run>) -> Vec<f64> {
    let mut order = Vec::new();
    multidata::BatchSizes::ZERO.for_each(&mut |name, _| order.push(format!("receive.{name}")));
    let count = |name: &String| run?.counters.get(name).map(|count| *count as f64);
    order.iter().map(|name| count(name).unwrap_or(0.0)).collect()
}

/// The columns behind path and setting.
const COLUMNS: [&str; 7] = [
    "Gbit/s",
    "stack CPU s/GB",
    "system CPU s/GB",
    "frames/batch",
    "waits/MB",
    "system calls/frame",
    "against one by one",
];

/// What stands in [`COLUMNS`].
fn figures(rows: &[Row], row: &Row) -> Vec<String> {
    vec![
        format!("{:.2}", row.throughput_gbps),
        format!("{:.3}", row.stack_cpu_s_per_gb),
        format!("{:.3}", row.system_cpu_s_per_gb),
        format!("{:.1}", row.frames_per_batch),
        format!("{:.2}", row.waits_per_mb),
        format!("{:.3}", row.syscalls_per_frame),
        against_one(rows, row).map_or_else(String::new, |ratio| format!("{ratio:.2}")),
    ]
}

/// The columns of a page, which has room for all.
pub(crate) fn all_columns() -> Vec<&'static str> {
    let sizes = "batches of 1 / 2 / 4 / 8 / 16 / 32 / 64 / 128 / 256 / more frames, %";
    COLUMNS.into_iter().chain(counted::columns()).chain([sizes]).collect()
}

/// What stands in [`all_columns`].
pub(crate) fn all_figures(rows: &[Row], row: &Row) -> Vec<String> {
    let sizes: Vec<String> =
        row.sizes_percent.iter().map(|percent| format!("{percent:.0}")).collect();
    let counted = row.counted.figures().into_iter();
    figures(rows, row).into_iter().chain(counted).chain([sizes.join(" / ")]).collect()
}

/// Throughput of `row` against that of one frame at a time on its path.
pub(crate) fn against_one(rows: &[Row], row: &Row) -> Option<f64> {
    let one = one_by_one(rows, row)?;
    ratio(row.throughput_gbps, one.throughput_gbps)
}

fn one_by_one<'a>(rows: &'a [Row], row: &Row) -> Option<&'a Row> {
    rows.iter().find(|it| it.path == row.path && it.count == "1")
}

/// The medians as a table.
#[must_use]
pub fn render(results: &Results) -> String {
    let rows = rows(results);
    let heads = [
        "path",
        "frames\nat a time",
        "held",
        "Gbit/s",
        "stack\nCPU\ns/GB",
        "system\nCPU\ns/GB",
        "frames\n/batch",
        "waits\n/MB",
        "syscalls\n/frame",
        "/ one\nby one",
    ];
    let mut table = headed(heads);
    for row in &rows {
        table.add_row(cells([&row.path, &row.count, &row.held], figures(&rows, row)));
    }
    format!("{table}\n")
}

/// What the best batch brought on each path against one frame at a time, beside seed 003's figure; and
/// what the adaptive setting reached of the best.
#[must_use]
pub fn findings(results: &Results) -> Vec<String> {
    let rows = rows(results);
    let mut paths: Vec<&str> = Vec::new();
    for row in &rows {
        if !paths.contains(&row.path.as_str()) {
            paths.push(&row.path);
        }
    }
    let seed = SEED_003_MBPS.iter().fold(0.0_f64, |best, (_, mbps)| best.max(*mbps));
    let seed = seed / SEED_003_MBPS[0].1;
    let mut sentences = Vec::new();
    for path in paths {
        let of_path = || rows.iter().filter(|row| row.path == path);
        let best = of_path().max_by(|a, b| a.throughput_gbps.total_cmp(&b.throughput_gbps));
        let Some(best) = best else { continue };
        let setting = match best.held.as_str() {
            "" => best.count.clone(),
            held => format!("{} held {held}", best.count),
        };
        if let (Some(speed), Some(one)) = (against_one(&rows, best), one_by_one(&rows, best)) {
            let cpu = ratio(best.stack_cpu_s_per_gb, one.stack_cpu_s_per_gb).unwrap_or(0.0);
            sentences.push(format!(
                "{path}: at best ({setting}) {speed:.2} times the throughput of one frame at a time, \
                 for {cpu:.2} of the stack's CPU time per byte; a programmable adapter of 2001 (Wadge, A.2): {seed:.2} times."
            ));
        }
        let adaptive = of_path().find(|row| row.count == ADAPTIVE);
        if let Some(share) =
            adaptive.and_then(|row| ratio(row.throughput_gbps, best.throughput_gbps))
        {
            sentences.push(format!(
                "{path}: adaptive reached {:.0} percent of the best setting ({setting}).",
                share * 100.0
            ));
        }
    }
    sentences
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::results::tests::{results, run};

    pub(crate) fn axes() -> Axes {
        Axes {
            devices: vec![DeviceKind::Wire, DeviceKind::Xdp],
            offload: vec![false, true],
            counts: vec![Count::Frames(1), Count::Frames(8), Count::Adaptive],
            hold_offs: vec![Duration::ZERO, Duration::from_micros(50)],
            connections: vec![1, 64],
        }
    }

    /// Runs of one path: one by one, by eight, by eight held, adaptive.
    pub(crate) fn measured() -> Results {
        let time = Duration::from_millis(10);
        let common =
            Scenario::stream(DeviceKind::Wire, Direction::Receive, TransmitMode::Multidata);
        let axes = Axes { connections: vec![1], offload: vec![false], ..axes() };
        let axes = Axes { devices: vec![DeviceKind::Wire], ..axes };
        let runs = axes.scenarios(time, &common).into_iter().zip([2.0, 8.0, 4.0, 6.0]);
        results(
            runs.map(|(scenario, gbps)| {
                let figures = run(TransmitMode::Multidata, gbps);
                let mut counters = figures.counters.clone();
                for (name, count) in [
                    ("device.receive_frames", 1_000),
                    ("receive.batches_of_1", 100),
                    ("receive.batches_of_5_to_8", 300),
                    ("runtime.leader_waits", 2_000),
                ] {
                    counters.insert(name.to_owned(), count);
                }
                let scenario = scenario.name();
                Run { scenario, device: "wire".to_owned(), counters, ..figures }
            })
            .collect(),
        )
    }

    #[test]
    fn every_combination_is_sound_and_has_a_name_of_its_own() {
        let common =
            Scenario::stream(DeviceKind::Wire, Direction::Receive, TransmitMode::Multidata);
        let job = axes().scenarios(Duration::from_millis(10), &common);
        // One, eight, eight held, adaptive; AF_XDP has no offload.
        assert_eq!(job.len(), 4 * 2 * 3);
        assert!(job.iter().all(|scenario| scenario.check().is_ok()));
        let names: std::collections::BTreeSet<String> = job.iter().map(Scenario::name).collect();
        assert_eq!(names.len(), job.len());
        assert!(names.contains("wire receive x64 multidata up 8 held 50us"), "{names:?}");
    }

    #[test]
    fn counts_and_times_are_read_and_what_is_neither_is_refused() {
        assert_eq!("64".parse(), Ok(Count::Frames(64)));
        assert_eq!("adaptive".parse(), Ok(Count::Adaptive));
        assert_eq!(parse_hold_off("off"), Ok(Duration::ZERO));
        assert_eq!(parse_hold_off("50us"), Ok(Duration::from_micros(50)));
        assert_eq!(parse_hold_off("2ms"), Ok(Duration::from_millis(2)));
        for wrong in ["", "0", "257", "-1", "many"] {
            assert!(wrong.parse::<Count>().unwrap_err().contains("adaptive"), "{wrong}");
        }
        for wrong in ["", "50", "us", "0us", "1s", "9999999999999999999ms", "1001ms"] {
            assert!(parse_hold_off(wrong).unwrap_err().contains("50us"), "{wrong}");
        }
    }

    #[test]
    fn settings_are_compared_with_one_by_one_on_the_same_path() {
        let results = measured();
        assert_eq!(
            findings(&results),
            [
                "wire receive: at best (8) 4.00 times the throughput of one frame at a time, for 0.25 \
                 of the stack's CPU time per byte; a programmable adapter of 2001 (Wadge, A.2): 1.84 times.",
                "wire receive: adaptive reached 75 percent of the best setting (8).",
            ]
        );
        let rows = rows(&results);
        assert_eq!(rows.len(), 4);
        assert_eq!((rows[2].count.as_str(), rows[2].held.as_str()), ("8", "50us"));
        assert_eq!(rows[0].frames_per_batch, 2.5);
        assert_eq!(rows[0].sizes_percent[..4], [25.0, 0.0, 0.0, 75.0]);
        let text = render(&results);
        assert!(text.contains("4.00"), "{text}");
        let page = all_figures(&rows, &rows[0]);
        assert_eq!(page.len(), all_columns().len());
        let last = page.last().map(String::as_str);
        assert_eq!(last, Some("25 / 0 / 0 / 75 / 0 / 0 / 0 / 0 / 0 / 0"));
        assert!(
            counted::render(&results).contains("8/8"),
            "of four batches three have up to eight"
        );
    }
}
