//! The figures about layouts: rings, soft rings and fan-out over connections, as Figure 3i of seed 004, one
//! for each placement of the application, as its Figure 3ii.

use super::figure::{Figure, Panel, Row as TableRow};
use super::page::Words;
use crate::counted::COUNTERS;
use crate::layouts::{Row, all_columns, all_figures, findings, rows};
use crate::results::Results;

const FOREWORD: &str = "R: rings of the device; S: soft rings behind each; F1: each soft ring has a squeue \
of its own (fan-out), F0: each ring. <b>core</b>: the application's threads run on the core of their \
connection's squeue; <b>other</b>: on the core after it; <b>anywhere</b>: where the system puts them. Points \
are medians of alternating runs; every axis begins at zero. Counters are the receiver's, for each MB (2^20 \
bytes): enters of squeues; batches processed in line, by the thread that took them from the ring, and queued \
ones, which came by a soft ring; frames handed over to another squeue; enters by another thread than the \
last; waits for the device (interrupt turns), and turns without (poll turns); threads woken. Batches: the \
frames that half of them have at most, and 99 in 100, in powers of two.";

type Read = fn(&Row) -> f64;

const PANELS: [(&str, &str, Read); 6] = [
    ("Throughput", "Gbit/s", |row| row.throughput_gbps),
    ("CPU of both stacks", "s/GB", |row| row.stack_cpu_s_per_gb),
    ("Contended enters", "%", |row| row.counted.contended_percent),
    ("Frames handed over", "for each MB", |row| row.counted.each_mb[3]),
    ("Migrations", "for each MB", |row| row.counted.each_mb[4]),
    ("Wake-ups", "for each MB", |row| row.counted.each_mb[COUNTERS.len() - 1]),
];

/// What the page says.
pub(super) fn words(results: &Results) -> Words {
    Words {
        title: "layouts of the way in",
        heading: "Receiving, by rings, soft rings and fan-out",
        foreword: FOREWORD,
        found: "What each layout reached",
        findings: findings(results),
        words: ["layout", "connections"],
        columns: all_columns(),
    }
}

/// A figure for each path and placement.
pub(super) fn figures(results: &Results) -> Vec<Figure> {
    let rows = rows(results);
    let mut titles: Vec<String> = Vec::new();
    for title in rows.iter().map(title) {
        if !titles.contains(&title) {
            titles.push(title);
        }
    }
    let of = |wanted: &String| rows.iter().filter(|row| title(row) == *wanted).collect::<Vec<_>>();
    titles.iter().map(|title| figure(title, &of(title))).collect()
}

fn title(row: &Row) -> String {
    format!("{}, application at {}", row.path, row.placement)
}

fn figure(title: &str, rows: &[&Row]) -> Figure {
    let mut connections: Vec<usize> = rows.iter().map(|row| row.connections).collect();
    connections.sort_unstable();
    connections.dedup();
    let mut layouts: Vec<&str> = Vec::new();
    for row in rows {
        if !layouts.contains(&row.layout.as_str()) {
            layouts.push(&row.layout);
        }
    }
    let at = |layout: &str, count: usize| {
        rows.iter().find(|row| row.layout == layout && row.connections == count)
    };
    let panel = |(title, unit, read): (&'static str, &'static str, Read)| Panel {
        title,
        unit,
        series: layouts
            .iter()
            .map(|layout| {
                let points =
                    connections.iter().map(|count| at(layout, *count).map(|row| read(row)));
                ((*layout).to_owned(), points.collect())
            })
            .collect(),
    };
    Figure {
        title: title.to_owned(),
        axis: "connections",
        marks: connections.iter().map(ToString::to_string).collect(),
        panels: PANELS.into_iter().map(panel).collect(),
        bars: None,
        rows: rows
            .iter()
            .map(|row| TableRow {
                words: [row.layout.clone(), row.connections.to_string()],
                figures: all_figures(row),
            })
            .collect(),
    }
}
