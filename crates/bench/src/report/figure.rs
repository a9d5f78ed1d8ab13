//! What is drawn: figures of panels of series of points.

use super::bars::Bars;
use crate::results::{Results, Run, Summary};
use crate::scenario::Times;
use crate::sizes::format_size;
use crate::statistics::{median, ratio};
use crate::times::Split;

/// One figure: everything about one way of sending over one device.
pub(super) struct Figure {
    pub(super) title: String,
    /// What lies along the horizontal axis.
    pub(super) axis: &'static str,
    /// Its marks, such as lengths of a write.
    pub(super) marks: Vec<String>,
    pub(super) panels: Vec<Panel>,
    /// Where time went, where that was measured.
    pub(super) bars: Option<Bars>,
    /// The same numbers, as a table: a row for each scheme and length.
    pub(super) rows: Vec<Row>,
}

/// One plot.
pub(super) struct Panel {
    pub(super) title: &'static str,
    pub(super) unit: &'static str,
    /// By scheme: its name, and a figure at each mark where one was measured.
    pub(super) series: Vec<(String, Vec<Option<f64>>)>,
}

/// One line of the table.
pub(super) struct Row {
    /// What it is about: scheme and length of a write, or the like.
    pub(super) words: [String; 2],
    pub(super) figures: Vec<String>,
}

/// The columns of [`Row::figures`].
pub(super) const COLUMNS: [&str; 10] = [
    "Gbit/s",
    "stack CPU s/GB",
    "of it in the kernel",
    "system CPU s/GB",
    "packets/batch",
    "system calls/packet",
    "mappings/packet",
    "bytes copied/byte",
    "bytes summed/byte",
    "blocks/MB",
];

type Read = fn(&Summary) -> f64;

/// What the panels show.
const PANELS: [(&str, &str, Read); 4] = [
    ("Throughput", "Gbit/s", |row| row.throughput_gbps),
    ("CPU of the stack's process", "s/GB", |row| row.stack_cpu_s_per_gb),
    ("Packets in a batch", "packets", |row| row.packets_per_batch),
    ("System calls", "calls/packet", |row| row.syscalls_per_packet),
];

/// The figures of all that was measured, in the order in which it first ran.
pub(super) fn figures(results: &Results) -> Vec<Figure> {
    let rows = results.by_scenario();
    let mut titles: Vec<String> = Vec::new();
    for row in rows.iter().map(title) {
        if !titles.contains(&row) {
            titles.push(row);
        }
    }
    let of = |wanted: &String| -> Vec<&Summary> {
        rows.iter().filter(|row| title(row) == *wanted).collect()
    };
    let with_bars = |title: &String| {
        let rows = of(title);
        Figure { bars: bars(results, &rows), ..figure(title, results, &rows) }
    };
    titles.iter().map(with_bars).collect()
}

fn title(row: &Summary) -> String {
    let run = &row.first;
    let napi = if run.napi { ", threaded NAPI" } else { "" };
    let copy = if run.zero_copy { "lent memory" } else { "copied" };
    let connections = match run.connections {
        1 => "1 connection".to_owned(),
        count => format!("{count} connections"),
    };
    let ways = [
        ("io-uring", ", io_uring"),
        ("chacha20poly1305", ", ChaCha20-Poly1305"),
        ("one-a-call", ", one datagram a call"),
    ];
    let has = |word: &str| run.scenario.split(' ').any(|other| other == word);
    let way: String = ways.iter().filter(|(word, _)| has(word)).map(|(_, way)| *way).collect();
    format!("{}{napi}{way}: {copy}, {connections}, MTU {}", run.device, run.mtu)
}

/// Where the time of those who send went, a bar for each scheme and length.
fn bars(results: &Results, rows: &[&Summary]) -> Option<Bars> {
    let bar = |row: &&Summary| {
        let run = &row.first;
        let split = Split::of(results, &run.scenario)?;
        let name = format!("{} {}", run.mode, format_size(run.write_len_bytes as u64));
        Some((name, split.parts().to_vec()))
    };
    let bars: Vec<_> = rows.iter().filter_map(bar).collect();
    (!bars.is_empty()).then_some(Bars {
        title: "Where time goes",
        unit: "seconds for each GB sent",
        parts: &Split::NAMES,
        bars,
    })
}

fn figure(title: &str, results: &Results, rows: &[&Summary]) -> Figure {
    let mut lengths: Vec<usize> = rows.iter().map(|row| row.first.write_len_bytes).collect();
    lengths.sort_unstable();
    lengths.dedup();
    let mut modes: Vec<&str> = Vec::new();
    for row in rows {
        if !modes.contains(&row.first.mode.as_str()) {
            modes.push(&row.first.mode);
        }
    }
    // Of two runs beside each other the one that the measuring of time took nothing from.
    let at = |mode: &str, length: usize| {
        let all = rows.iter();
        let all = all.filter(|row| row.first.mode == mode && row.first.write_len_bytes == length);
        all.min_by_key(|row| timed_word(&row.first).is_some())
    };
    let panel = |(title, unit, read): (&'static str, &'static str, Read)| Panel {
        title,
        unit,
        series: modes
            .iter()
            .map(|mode| {
                let points = lengths.iter().map(|length| at(mode, *length).map(|row| read(row)));
                ((*mode).to_owned(), points.collect())
            })
            .collect(),
    };
    Figure {
        title: title.to_owned(),
        axis: "length of a write",
        marks: lengths.iter().map(|length| format_size(*length as u64)).collect(),
        panels: PANELS.into_iter().map(panel).collect(),
        bars: None,
        rows: rows.iter().map(|row| table_row(results, row)).collect(),
    }
}

/// The word that says that this is the run beside another in which time was measured.
fn timed_word(run: &Run) -> Option<&'static str> {
    Times::Beside.word().filter(|word| run.scenario.split(' ').any(|it| it == *word))
}

/// The scheme, and whether this is the run beside another in which time was measured.
fn scheme(run: &Run) -> String {
    match timed_word(run) {
        Some(word) => format!("{}, {word}", run.mode),
        None => run.mode.clone(),
    }
}

fn table_row(results: &Results, row: &Summary) -> Row {
    let run = &row.first;
    let runs: Vec<&Run> = results.runs.iter().filter(|it| it.scenario == run.scenario).collect();
    let each_byte = |name: &str| {
        let count = |run: &Run| run.counters.get(name).copied().unwrap_or(0) as f64;
        let each: Vec<f64> =
            runs.iter().filter_map(|run| ratio(count(run), run.bytes as f64)).collect();
        median(&each).unwrap_or(0.0)
    };
    Row {
        words: [scheme(run), format_size(run.write_len_bytes as u64)],
        figures: vec![
            format!("{:.2}", row.throughput_gbps),
            format!("{:.3}", row.stack_cpu_s_per_gb),
            format!("{:.3}", row.stack_kernel_cpu_s_per_gb),
            format!("{:.3}", row.system_cpu_s_per_gb),
            format!("{:.1}", row.packets_per_batch),
            format!("{:.3}", row.syscalls_per_packet),
            row.mappings_per_packet.map_or_else(String::new, |count| format!("{count:.3}")),
            format!("{:.2}", each_byte("runtime.bytes_copied_in")),
            format!("{:.2}", each_byte("stack.checksummed_transmit_bytes")),
            format!("{:.1}", each_byte("pool.allocations") * f64::from(1 << 20)),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::{results, run};
    use device::TransmitMode;

    #[test]
    fn what_was_counted_is_shown_as_the_median_of_all_runs() {
        let runs = [9_000, 1_000, 2_000].map(|allocations| {
            let mut run = run(TransmitMode::Multidata, 8.0);
            run.bytes = 1_000 << 20;
            run.counters.insert("pool.allocations".to_owned(), allocations);
            run.counters.insert("runtime.bytes_copied_in".to_owned(), allocations << 20);
            run
        });
        let figures = figures(&results(runs.to_vec()));
        let row = &figures[0].rows[0].figures;
        let of = |name| COLUMNS.iter().position(|column| *column == name).expect("a column");
        assert_eq!(row[of("bytes copied/byte")], "2.00");
        assert_eq!(row[of("blocks/MB")], "2.0", "a MB is 2^20 bytes");
    }

    #[test]
    fn curves_are_of_runs_in_which_time_was_not_measured() {
        let plain = run(TransmitMode::Multidata, 10.0);
        let timed = run(TransmitMode::Multidata, 8.0);
        let timed = Run { scenario: format!("{} timed", timed.scenario), ..timed };
        for runs in [[plain.clone(), timed.clone()], [timed, plain]] {
            let figures = figures(&results(runs.to_vec()));
            assert_eq!(figures[0].panels[0].series[0].1, [Some(10.0)]);
            assert_eq!(figures[0].rows.len(), 2, "the table has both");
        }
    }
}
