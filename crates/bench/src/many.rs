//! `multidata bench many`: a stream over each of very many connections at the same time.
//!
//! Every connection has data to send all the time. What a batch saves is work that segments of one
//! connection share, so with ten thousand connections taking turns it shrinks to what a turn brings;
//! and what a segment touches no longer lies in the caches. Both ends drive their connections by tasks
//! of one thread, whatever their number, so that the application's part is the same everywhere.
//!
//! Throughput and CPU for each byte are of the middle half of the time for sending, in which all are busy. How
//! evenly bytes were shared - what came over the connection over which the least came, against an even share -
//! is of the whole run, with the emptying of all buffers behind it.

use crate::results::{LEAST_RECEIVED_BYTES, MOST_RECEIVED_BYTES, RECEIVED_BYTES, Results, Run};
use crate::scenario::{Amount, DeviceKind, Direction, Scenario};
use crate::statistics::{median, ratio};
use crate::table::{cells, headed};
use crate::workload::stream::Workers;
use std::time::Duration;

/// The axes: every value of each with every value of the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axes {
    /// Devices.
    pub devices: Vec<DeviceKind>,
    /// Which way the bytes flow.
    pub directions: Vec<Direction>,
    /// Whether the threads of the tasks run their stacks as well; first those that do not.
    pub driven: Vec<bool>,
    /// Whether the kernel takes frames in with threads of its own (threaded NAPI).
    pub napi: Vec<bool>,
    /// Numbers of connections; the first is what the others are compared with.
    pub connections: Vec<usize>,
}

impl Axes {
    /// Every sound combination, each run for this long. Neighbours differ in connections only. The length of a
    /// device's queue is that of the devices that have one.
    #[must_use]
    pub fn scenarios(&self, time: Duration, common: &Scenario) -> Vec<Scenario> {
        let mut scenarios = Vec::new();
        for (device, napi, direction, workers) in self.paths() {
            scenarios.extend(self.connections.iter().map(|&connections| Scenario {
                device,
                napi,
                direction,
                connections,
                workers,
                amount: Amount::Time(time),
                queue_packets: common.queue_packets.filter(|_| device.is_tun()),
                ..common.clone()
            }));
        }
        scenarios.retain(|scenario| scenario.check().is_ok());
        scenarios
    }

    fn paths(&self) -> impl Iterator<Item = (DeviceKind, bool, Direction, Workers)> {
        let workers = |&driven| if driven { Workers::Drivers } else { Workers::Tasks };
        let ways = move |&direction| self.driven.iter().map(move |it| (direction, workers(it)));
        let of_device = move |&device| {
            self.napi.iter().flat_map(move |&napi| {
                let ways = self.directions.iter().flat_map(ways);
                ways.map(move |(direction, workers)| (device, napi, direction, workers))
            })
        };
        self.devices.iter().flat_map(of_device)
    }
}

/// The medians of one number of connections on one path.
struct Row {
    path: String,
    connections: usize,
    throughput_gbps: f64,
    stack_cpu_s_per_gb: f64,
    packets_per_batch: f64,
    frames_per_batch: f64,
    retransmitted_percent: f64,
    least_percent: f64,
    most_percent: f64,
}

/// The medians, in the order in which scenarios first ran.
fn rows(results: &Results) -> Vec<Row> {
    results.groups().into_iter().filter_map(|(_, runs)| row(&runs)).collect()
}

fn row(runs: &[&Run]) -> Option<Row> {
    let first = runs.first()?;
    let of = |figure: &dyn Fn(&Run) -> Option<f64>| {
        let figures: Vec<f64> = runs.iter().filter_map(|run| figure(run)).collect();
        median(&figures).unwrap_or(0.0)
    };
    let counter = |run: &Run, name: &str| run.counters.get(name).copied().unwrap_or(0) as f64;
    let share = |run: &Run, name: &str| {
        // Of the end that received: a run both ways moves the other end's bytes as well.
        let even = ratio(counter(run, RECEIVED_BYTES), run.connections as f64)?;
        Some(100.0 * ratio(counter(run, name), even)?)
    };
    let each = |run: &Run, what: &str, of: &str| ratio(counter(run, what), counter(run, of));
    Some(Row {
        path: path_of(first),
        connections: first.connections,
        throughput_gbps: of(&|run| Some(run.throughput_gbps)),
        stack_cpu_s_per_gb: of(&|run| Some(run.stack_cpu_s_per_gb)),
        packets_per_batch: of(&|run| {
            each(run, "device.transmit_packets", "device.transmit_batches")
        }),
        frames_per_batch: of(&|run| each(run, "device.receive_frames", "device.receive_batches")),
        retransmitted_percent: of(&|run| {
            let share = each(run, "stack.retransmitted_segments", "device.transmit_packets");
            Some(100.0 * share?)
        }),
        least_percent: of(&|run| share(run, LEAST_RECEIVED_BYTES)),
        most_percent: of(&|run| share(run, MOST_RECEIVED_BYTES)),
    })
}

/// The path of a run, by whatever its neighbours may differ in but the number of connections.
fn path_of(run: &Run) -> String {
    let napi = if run.napi { " napi" } else { "" };
    let driven = if run.workers == Workers::Drivers { " driven" } else { "" };
    format!("{}{napi} {}{driven}", run.device, run.direction)
}

/// What the row is compared with: the first number of connections on its path.
fn against_first(rows: &[Row], row: &Row) -> Option<f64> {
    let first = rows.iter().find(|other| other.path == row.path)?;
    ratio(row.throughput_gbps, first.throughput_gbps)
}

/// The medians as a table.
#[must_use]
pub fn render(results: &Results) -> String {
    let rows = rows(results);
    let heads = [
        "path",
        "connec-\ntions",
        "Gbit/s",
        "/ the\nfirst",
        "stack\nCPU\ns/GB",
        "packets\n/batch\nout",
        "frames\n/batch\nin",
        "sent\nagain, %",
        "least and\nmost of an\neven share, %",
    ];
    let mut table = headed(heads);
    for row in &rows {
        let figures = [
            row.connections.to_string(),
            format!("{:.2}", row.throughput_gbps),
            against_first(&rows, row).map_or_else(String::new, |ratio| format!("{ratio:.2}")),
            format!("{:.3}", row.stack_cpu_s_per_gb),
            format!("{:.1}", row.packets_per_batch),
            format!("{:.1}", row.frames_per_batch),
            format!("{:.2}", row.retransmitted_percent),
            format!("{:.0} to {:.0}", row.least_percent, row.most_percent),
        ];
        table.add_row(cells([&row.path], figures));
    }
    format!("{table}\n")
}

/// What most connections reach of what the fewest do, a sentence for each path.
#[must_use]
pub fn findings(results: &Results) -> Vec<String> {
    let rows = rows(results);
    let mut sentences = Vec::new();
    let mut paths: Vec<&str> = Vec::new();
    for row in &rows {
        if !paths.contains(&row.path.as_str()) {
            paths.push(&row.path);
        }
    }
    for path in paths {
        let of_path = || rows.iter().filter(|row| row.path == path);
        let most = of_path().max_by_key(|row| row.connections);
        if let (Some(first), Some(most)) = (of_path().next(), most)
            && most.connections != first.connections
            && let Some(share) = against_first(&rows, most)
        {
            sentences.push(format!(
                "{path}: {} connections have {share:.2} times the throughput of {}.",
                most.connections, first.connections
            ));
        }
    }
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::{results, run};
    use device::TransmitMode;

    fn axes() -> Axes {
        Axes {
            devices: vec![DeviceKind::Wire, DeviceKind::Tap],
            directions: vec![Direction::Send, Direction::Receive],
            driven: vec![false, true],
            napi: vec![false],
            connections: vec![64, 10_000],
        }
    }

    fn scenarios() -> Vec<Scenario> {
        let common = Scenario::stream(DeviceKind::Wire, Direction::Send, TransmitMode::Multidata);
        axes().scenarios(Duration::from_millis(10), &common)
    }

    #[test]
    fn every_combination_is_sound_and_has_a_name_of_its_own() {
        let scenarios = scenarios();
        assert_eq!(scenarios.len(), 16);
        let mut names: Vec<String> = scenarios.iter().map(Scenario::name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 16);
    }

    #[test]
    fn threads_of_the_kernel_are_measured_where_the_kernel_is_the_other_end() {
        let axes = Axes { napi: vec![false, true], ..axes() };
        let common = Scenario::stream(DeviceKind::Wire, Direction::Send, TransmitMode::Multidata);
        let scenarios = axes.scenarios(Duration::from_millis(10), &common);
        let with: Vec<_> = scenarios.iter().filter(|it| it.napi).collect();
        assert_eq!((scenarios.len(), with.len()), (24, 8));
        assert!(with.iter().all(|it| it.device == DeviceKind::Tap && it.name().contains("napi")));
        let run = run(TransmitMode::Multidata, 1.0);
        let path = |napi| path_of(&Run { napi, ..run.clone() });
        assert_ne!(path(true), path(false));
    }

    #[test]
    fn only_devices_that_have_a_queue_are_named_by_its_length() {
        let common = Scenario::stream(DeviceKind::Wire, Direction::Send, TransmitMode::Multidata);
        let common = Scenario { queue_packets: Some(5_000), ..common };
        let scenarios = axes().scenarios(Duration::from_millis(10), &common);
        let (queued, others): (Vec<_>, Vec<_>) =
            scenarios.iter().partition(|it| it.name().contains("queue-5000"));
        assert!(queued.len() == 8 && queued.iter().all(|it| it.device == DeviceKind::Tap));
        assert!(others.len() == 8 && others.iter().all(|it| it.device == DeviceKind::Wire));
    }

    #[test]
    fn each_number_of_connections_is_compared_with_the_first_of_its_path() {
        let gbps =
            [10.0, 8.0, 20.0, 18.0, 4.0, 3.0, 5.0, 4.0, 2.0, 1.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0];
        let runs = scenarios().into_iter().zip(gbps);
        let runs = runs.map(|(scenario, gbps)| {
            let mut figures = run(TransmitMode::Multidata, gbps);
            let even = figures.bytes / scenario.connections as u64;
            figures.counters.insert(RECEIVED_BYTES.to_owned(), figures.bytes);
            figures.counters.insert(LEAST_RECEIVED_BYTES.to_owned(), even / 2);
            figures.counters.insert(MOST_RECEIVED_BYTES.to_owned(), 2 * even);
            let of = Run::of(&scenario);
            let (connections, direction) = (of.connections, of.direction);
            let (scenario, device, workers) = (of.scenario, of.device, of.workers);
            Run { scenario, device, connections, workers, direction, ..figures }
        });
        let results = results(runs.collect());
        assert_eq!(
            findings(&results),
            [
                "wire send: 10000 connections have 0.80 times the throughput of 64.",
                "wire send driven: 10000 connections have 0.90 times the throughput of 64.",
                "wire receive: 10000 connections have 0.75 times the throughput of 64.",
                "wire receive driven: 10000 connections have 0.80 times the throughput of 64.",
                "tap send: 10000 connections have 0.50 times the throughput of 64.",
                "tap send driven: 10000 connections have 0.50 times the throughput of 64.",
                "tap receive: 10000 connections have 1.00 times the throughput of 64.",
                "tap receive driven: 10000 connections have 1.00 times the throughput of 64.",
            ]
        );
        assert!(render(&results).contains("50 to 200"), "{}", render(&results));
    }

    #[test]
    fn what_went_the_other_way_is_no_part_of_an_even_share() {
        let mut run = Run {
            connections: 4,
            direction: "both".to_owned(),
            ..run(TransmitMode::Multidata, 8.0)
        };
        run.bytes = 1_000;
        for (name, bytes) in
            [(RECEIVED_BYTES, 400), (LEAST_RECEIVED_BYTES, 90), (MOST_RECEIVED_BYTES, 120)]
        {
            run.counters.insert(name.to_owned(), bytes);
        }
        let text = render(&results(vec![run]));
        assert!(text.contains("90 to 120"), "{text}");
    }
}
