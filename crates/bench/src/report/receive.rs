//! The figures about receiving: what coalescing brings, beside appendix A.2 of seed 003.

use super::figure::{Figure, Panel, Row as TableRow};
use super::page::Words;
use crate::receive::{Row, SEED_003_MBPS, against_one, all_columns, all_figures, findings, rows};
use crate::results::Results;

const FOREWORD: &str = "How many frames come up from the device by one call, at most, and how long the \
first of them may wait for others, the wait beginning anew with each frame. <b>1</b>: one by one. \
<b>adaptive</b>: nothing is held, the batch grows while calls come back full; the default. Points are \
medians of alternating runs; every axis begins at zero. The first plot of each figure shows throughput \
against that of one frame at a time, beside that of appendix A.2 of Wadge (2001), where an adapter \
coalesced frames into one transfer over a bus: that curve ends at the gigabit of its wire. Counters are \
the receiver's, for each MB (2^20 bytes); batches: the frames that half of them have at most, and 99 in \
100, in powers of two.";

const SEED: &str = "Wadge (2001), A.2";

type Read = fn(&Row) -> f64;

const PANELS: [(&str, &str, Read); 5] = [
    ("Throughput", "Gbit/s", |row| row.throughput_gbps),
    ("CPU of the stack's process", "s/GB", |row| row.stack_cpu_s_per_gb),
    ("Frames in a batch", "frames", |row| row.frames_per_batch),
    ("Waits for the device", "for each MB", |row| row.waits_per_mb),
    ("System calls", "calls/frame", |row| row.syscalls_per_frame),
];

/// What the page says.
pub(super) fn words(results: &Results) -> Words {
    Words {
        title: "coalescing",
        heading: "Receiving, by how many frames come up at a time",
        foreword: FOREWORD,
        found: "What coalescing brought",
        findings: findings(results),
        words: ["frames at a time", "held"],
        columns: all_columns(),
    }
}

/// A figure for each path, and one of seed 003.
pub(super) fn figures(results: &Results) -> Vec<Figure> {
    let rows = rows(results);
    let mut paths: Vec<&str> = Vec::new();
    for row in &rows {
        if !paths.contains(&row.path.as_str()) {
            paths.push(&row.path);
        }
    }
    let mut figures: Vec<Figure> = paths.iter().map(|path| figure(path, &rows)).collect();
    let (marks, points) =
        SEED_003_MBPS.iter().map(|(count, mbps)| (count.to_string(), Some(*mbps))).unzip();
    figures.push(Figure {
        title: format!("{SEED}: a gigabit adapter to its host"),
        axis: "frames at a time",
        marks,
        bars: None,
        panels: vec![Panel {
            title: "Throughput",
            unit: "Mbit/s",
            series: vec![(SEED.to_owned(), points)],
        }],
        rows: Vec::new(),
    });
    figures
}

fn figure(path: &str, all: &[Row]) -> Figure {
    let of_path: Vec<&Row> = all.iter().filter(|row| row.path == path).collect();
    // Numbers in their order, and words behind them.
    let order = |count: &str| count.parse::<usize>().unwrap_or(usize::MAX);
    let mut marks: Vec<String> = of_path.iter().map(|row| row.count.clone()).collect();
    marks.sort_by_key(|count| order(count));
    marks.dedup();
    let mut holds: Vec<&str> = Vec::new();
    for row in &of_path {
        if !holds.contains(&row.held.as_str()) {
            holds.push(&row.held);
        }
    }
    let series = |read: &dyn Fn(&Row) -> Option<f64>| -> Vec<(String, Vec<Option<f64>>)> {
        let of_hold = |held: &&str| {
            let name = if held.is_empty() { "not held".to_owned() } else { format!("held {held}") };
            let at = |count: &String| {
                let row = of_path.iter().find(|row| row.held == **held && row.count == *count);
                row.and_then(|row| read(row))
            };
            (name, marks.iter().map(at).collect())
        };
        holds.iter().map(of_hold).collect()
    };
    let mut against = series(&|row| against_one(all, row));
    let one = SEED_003_MBPS[0].1;
    let seed = |count: &String| {
        let figure = SEED_003_MBPS.iter().find(|(seed, _)| seed.to_string() == *count);
        figure.map(|(_, mbps)| mbps / one)
    };
    against.push((SEED.to_owned(), marks.iter().map(seed).collect()));
    let first = Panel { title: "Throughput against one by one", unit: "times", series: against };
    let others = PANELS.map(|(title, unit, read)| Panel {
        title,
        unit,
        series: series(&|row| Some(read(row))),
    });
    Figure {
        title: path.to_owned(),
        axis: "frames at a time",
        panels: std::iter::once(first).chain(others).collect(),
        bars: None,
        rows: of_path
            .iter()
            .map(|row| TableRow {
                words: [row.count.clone(), row.held.clone()],
                figures: all_figures(all, row),
            })
            .collect(),
        marks,
    }
}
