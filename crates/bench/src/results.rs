//! Results as data: what a job measured, as one JSON object.
//!
//! The object has `schema`, `host` and `runs`. A reader that knows the schema's name knows every
//! field; fields are only ever added together with a new name.

use crate::scenario::Scenario;
use crate::workload::stream::Workers;
use crate::{Attempt, Failure, host, statistics};
use core::fmt;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The name of this layout.
pub const SCHEMA: &str = "multidata-bench/2";

/// What a job measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Results {
    /// [`SCHEMA`].
    pub schema: String,
    /// Where and when.
    pub host: Host,
    /// One entry for each timed run, in the order in which they ran.
    pub runs: Vec<Run>,
    /// Packets that are missing from the captures of all passes, which is no result.
    #[serde(skip)]
    pub capture_lost: u64,
}

/// Where, when and how a job ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Seconds since 1970-01-01 UTC at the start of the job.
    pub started_unix_s: u64,
    /// The date of that, UTC, as `2026-01-31`.
    pub date: String,
    /// Name and release of the kernel.
    pub kernel: String,
    /// The first CPU's model name.
    pub cpu: String,
    /// CPUs this process may use.
    pub cpus: usize,
    /// Memory of the machine, in bytes; zero where it is not known.
    pub memory_bytes: u64,
    /// The program and its version.
    pub program: String,
    /// `release` or `debug`: figures of a debug build mean nothing.
    pub profile: String,
    /// The arguments of the command, without its name.
    pub arguments: Vec<String>,
    /// What the device said is on, by scenario.
    pub devices: BTreeMap<String, String>,
    /// All was measured that the job asked for. Where it failed or was interrupted, the runs are those until then.
    pub complete: bool,
}

impl fmt::Display for Host {
    /// One line: what ran when, and on what.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { program, date, kernel, cpus, cpu, .. } = self;
        write!(f, "{program} ({date}), {kernel}, {cpus} CPUs, {cpu}")
    }
}

/// One timed run. Bytes are those of the application; a GB is 10^9 bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// The scenario's name; equal names are runs of the same scenario.
    pub scenario: String,
    /// `tap`, `tun`, `packet`, `xdp` or `wire`.
    pub device: String,
    /// Whether checksum offload and super-frames were on.
    pub offload: bool,
    /// Whether threaded NAPI was on.
    pub napi: bool,
    /// `kernel` or `self`.
    pub peer: String,
    /// `send`, `receive` or `both`, as seen from this stack.
    pub direction: String,
    /// `single`, `multidata` or `lso`.
    pub mode: String,
    /// What the application wrote in one call, in bytes: whichever end sends; a request, and its response.
    pub write_len_bytes: usize,
    /// Whether it wrote its own memory, without a copy.
    pub zero_copy: bool,
    /// Connections at the same time.
    pub connections: usize,
    /// Who does the work over them, which the scenario's name tells where it is not the usual.
    #[serde(skip)]
    pub workers: Workers,
    /// Longest IP packet, in bytes.
    pub mtu: usize,
    /// Bytes that arrived, both directions together; of datagrams those that were sent, and the figures below are of
    /// them.
    pub bytes: u64,
    /// Seconds by the clock of the receiving end, from the first byte to the end of the stream. Zero, as is the
    /// throughput, where one read brought all bytes: then nothing says how long they took.
    pub seconds: f64,
    /// Bytes times eight over seconds, in 10^9 bits per second; where connections are tasks' and
    /// sending ends by time, of the bytes and the seconds in which all had something to send.
    pub throughput_gbps: f64,
    /// CPU seconds of the process that holds this stack, for each 10^9 bytes. With peer `self`
    /// that is both stacks, but for a tunnel, whose far end is another process.
    pub stack_cpu_s_per_gb: f64,
    /// The part of it that the kernel took for the system calls of this process.
    pub stack_kernel_cpu_s_per_gb: f64,
    /// CPU seconds of the whole machine, for each 10^9 bytes.
    pub system_cpu_s_per_gb: f64,
    /// Packets of this stack in the direction of the bytes.
    pub packets: u64,
    /// Device calls that carried them.
    pub batches: u64,
    /// System calls of this stack's device, in both directions, waits included.
    pub syscalls: u64,
    /// Every byte of the pass before the timed runs, and the length and the first 4 MiB of this
    /// run, were what was sent.
    pub verified: bool,
    /// What every stage of the stack counted during the run; where it has several squeues, also what
    /// each did: `squeue_0.runtime.squeue_enters`.
    pub counters: BTreeMap<String, u64>,
}

impl Run {
    /// The parts of a run that its scenario decides; figures are zero.
    #[must_use]
    pub fn of(scenario: &Scenario) -> Self {
        Self {
            scenario: scenario.name(),
            device: scenario.device.name().to_owned(),
            offload: scenario.offload,
            napi: scenario.napi,
            peer: scenario.peer().name().to_owned(),
            direction: scenario.direction.name().to_owned(),
            mode: scenario.mode.to_string(),
            write_len_bytes: scenario.written_len_bytes(),
            zero_copy: scenario.zero_copy,
            connections: scenario.connections,
            workers: scenario.workers,
            mtu: scenario.mtu_bytes,
            bytes: 0,
            seconds: 0.0,
            throughput_gbps: 0.0,
            stack_cpu_s_per_gb: 0.0,
            stack_kernel_cpu_s_per_gb: 0.0,
            system_cpu_s_per_gb: 0.0,
            packets: 0,
            batches: 0,
            syscalls: 0,
            verified: false,
            counters: BTreeMap::new(),
        }
    }
}

impl AsMut<Host> for Results {
    fn as_mut(&mut self) -> &mut Host {
        &mut self.host
    }
}

impl Results {
    /// Those of a job that begins, with these arguments of the command.
    #[must_use]
    pub fn begin(arguments: &[String]) -> Self {
        let host = host::describe(arguments);
        Self { schema: SCHEMA.to_owned(), host, runs: Vec::new(), capture_lost: 0 }
    }

    /// The runs of each scenario by its name, scenarios in the order in which they first ran.
    pub(crate) fn groups(&self) -> Vec<(&str, Vec<&Run>)> {
        let mut groups: Vec<(&str, Vec<&Run>)> = Vec::new();
        for run in &self.runs {
            match groups.iter_mut().find(|(name, _)| *name == run.scenario) {
                Some((_, runs)) => runs.push(run),
                None => groups.push((&run.scenario, vec![run])),
            }
        }
        groups
    }

    /// The medians of each scenario's runs, scenarios in the order in which they first ran.
    #[must_use]
    pub fn by_scenario(&self) -> Vec<Summary> {
        self.groups().into_iter().map(|(_, runs)| Summary::of(&runs)).collect()
    }
}

/// Results of any kind as JSON text, indented, with a final newline.
///
/// # Errors
/// A sentence, where a figure cannot be written as JSON.
pub fn to_json(results: &impl Serialize) -> Result<String, Failure> {
    let mut text =
        serde_json::to_string_pretty(results).attempt(|| "cannot write the results as JSON")?;
    text.push('\n');
    Ok(text)
}

/// The medians of a scenario's runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The first of the runs, for what does not change between them.
    pub first: Run,
    /// How many runs.
    pub runs: usize,
    /// Median throughput, in 10^9 bits per second, of the runs that have one; zero where none has.
    pub throughput_gbps: f64,
    /// Median CPU of this stack's process, in seconds for each 10^9 bytes.
    pub stack_cpu_s_per_gb: f64,
    /// Median of the kernel's part of it.
    pub stack_kernel_cpu_s_per_gb: f64,
    /// Median CPU of the machine, in seconds for each 10^9 bytes.
    pub system_cpu_s_per_gb: f64,
    /// Median packets.
    pub packets: f64,
    /// Median of packets over batches.
    pub packets_per_batch: f64,
    /// Median of system calls over packets.
    pub syscalls_per_packet: f64,
    /// Median of pieces of memory that the device was shown over packets that it took; none where
    /// the device does not tell.
    pub mappings_per_packet: Option<f64>,
    /// Median transactions a second, for a request/response workload.
    pub transactions_per_s: Option<f64>,
    /// Median median time of a transaction, in microseconds.
    pub transaction_us: Option<f64>,
    /// Median of the time that one transaction in a hundred exceeded, in microseconds.
    pub transaction_p99_us: Option<f64>,
}

impl Summary {
    fn of(runs: &[&Run]) -> Self {
        let median = |figure: &dyn Fn(&Run) -> Option<f64>| {
            let figures: Vec<f64> = runs.iter().filter_map(|run| figure(run)).collect();
            statistics::median(&figures)
        };
        let ratio = |numerator: u64, denominator: u64| {
            statistics::ratio(numerator as f64, denominator as f64)
        };
        let counter = |run: &Run, name: &str| run.counters.get(name).map(|count| *count as f64);
        Self {
            first: runs.first().map_or_else(
                || unreachable!("a group has at least the run that founded it"),
                |run| (*run).clone(),
            ),
            runs: runs.len(),
            throughput_gbps: median(&|run| Some(run.throughput_gbps).filter(|it| *it > 0.0))
                .unwrap_or(0.0),
            stack_cpu_s_per_gb: median(&|run| Some(run.stack_cpu_s_per_gb)).unwrap_or(0.0),
            stack_kernel_cpu_s_per_gb: median(&|run| Some(run.stack_kernel_cpu_s_per_gb))
                .unwrap_or(0.0),
            system_cpu_s_per_gb: median(&|run| Some(run.system_cpu_s_per_gb)).unwrap_or(0.0),
            packets: median(&|run| Some(run.packets as f64)).unwrap_or(0.0),
            packets_per_batch: median(&|run| ratio(run.packets, run.batches)).unwrap_or(0.0),
            syscalls_per_packet: median(&|run| ratio(run.syscalls, run.packets)).unwrap_or(0.0),
            mappings_per_packet: median(&|run| {
                let mappings = counter(run, "device.transmit_mappings")?;
                statistics::ratio(mappings, counter(run, "device.transmit_packets")?)
            }),
            transactions_per_s: median(&|run| {
                counter(run, TRANSACTIONS).and_then(|count| statistics::ratio(count, run.seconds))
            }),
            transaction_us: median(&|run| {
                counter(run, TRANSACTION_MEDIAN_NS).map(|median_ns| median_ns / 1_000.0)
            }),
            transaction_p99_us: median(&|run| {
                counter(run, TRANSACTION_P99_NS).map(|p99_ns| p99_ns / 1_000.0)
            }),
        }
    }
}

/// The counter of what came over all connections to the end of which the next two are: this stack, where it receives.
pub const RECEIVED_BYTES: &str = "received_bytes";
/// The counter of what came over the connection over which the least came.
pub const LEAST_RECEIVED_BYTES: &str = "least_received_bytes";
/// The counter of what came over the connection over which the most came.
pub const MOST_RECEIVED_BYTES: &str = "most_received_bytes";
/// The counter of a run's transactions.
pub const TRANSACTIONS: &str = "transactions";
/// The counter that holds the median time of a transaction, in nanoseconds.
pub const TRANSACTION_MEDIAN_NS: &str = "transaction_median_ns";
/// The counter that holds the time that one transaction in a hundred exceeded, in nanoseconds.
pub const TRANSACTION_P99_NS: &str = "transaction_p99_ns";

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::scenario::{DeviceKind, Direction};
    use device::TransmitMode;

    pub(crate) fn run(mode: TransmitMode, throughput_gbps: f64) -> Run {
        let scenario = Scenario::stream(DeviceKind::Tap, Direction::Send, mode);
        Run {
            bytes: 1_000_000_000,
            seconds: 8.0 / throughput_gbps,
            throughput_gbps,
            stack_cpu_s_per_gb: 1.0 / throughput_gbps,
            stack_kernel_cpu_s_per_gb: 0.5 / throughput_gbps,
            system_cpu_s_per_gb: 2.0 / throughput_gbps,
            packets: 1_000,
            batches: if mode == TransmitMode::Single { 1_000 } else { 25 },
            syscalls: 1_100,
            verified: true,
            ..Run::of(&scenario)
        }
    }

    pub(crate) fn results(runs: Vec<Run>) -> Results {
        Results { runs, ..Results::begin(&[]) }
    }

    #[test]
    fn the_json_has_the_fields_of_the_schema_and_no_other() {
        let text = to_json(&results(vec![run(TransmitMode::Single, 8.0)])).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let names = |value: &serde_json::Value| {
            let mut names: Vec<String> = value.as_object().unwrap().keys().cloned().collect();
            names.sort();
            names
        };
        assert_eq!(names(&value), ["host", "runs", "schema"]);
        assert_eq!(value["schema"], "multidata-bench/2");
        let mut expected = [
            "scenario",
            "device",
            "offload",
            "napi",
            "peer",
            "direction",
            "mode",
            "write_len_bytes",
            "zero_copy",
            "connections",
            "mtu",
            "bytes",
            "seconds",
            "throughput_gbps",
            "stack_cpu_s_per_gb",
            "stack_kernel_cpu_s_per_gb",
            "system_cpu_s_per_gb",
            "packets",
            "batches",
            "syscalls",
            "verified",
            "counters",
        ];
        expected.sort_unstable();
        assert_eq!(names(&value["runs"][0]), expected);
        assert!(value["runs"][0]["counters"].is_object());
        assert_eq!(serde_json::from_str::<Results>(&text).unwrap().runs.len(), 1);
    }

    #[test]
    fn a_scenario_is_summed_up_by_its_medians() {
        let single = [8.0, 9.0, 100.0].map(|gbps| run(TransmitMode::Single, gbps));
        let batched = [10.0, 12.0].map(|gbps| run(TransmitMode::Multidata, gbps));
        let alternating = single.iter().zip(batched.iter().chain(&batched));
        let runs = alternating.flat_map(|(one, other)| [one.clone(), other.clone()]).collect();
        let summaries = results(runs).by_scenario();
        assert_eq!(summaries.len(), 2);
        assert_eq!(summaries[0].throughput_gbps, 9.0);
        assert_eq!(summaries[0].packets_per_batch, 1.0);
        assert_eq!(summaries[1].throughput_gbps, 10.0);
        assert_eq!(summaries[1].packets_per_batch, 40.0);
        assert_eq!(summaries[1].transactions_per_s, None);
    }
}
