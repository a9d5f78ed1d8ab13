//! Results for a person: a table of medians, and sentences about what batching brought.

use crate::results::{Results, Run, Summary, TRANSACTIONS};
use crate::scenario::{DeviceKind, Direction, Outbound, Scenario, Times};
use crate::statistics::ratio;
use crate::times::Split;
use comfy_table::{Cell, CellAlignment, LineStyle, Table, TableStyle};
use device::TransmitMode;

/// The medians of every scenario, one row each; streams first, then transactions.
#[must_use]
pub fn render(results: &Results) -> String {
    render_with(results, stream_table)
}

/// The same, with how many pieces of memory the device was shown for each packet.
#[must_use]
pub fn render_transmit(results: &Results) -> String {
    render_with(results, transmit_table)
}

fn render_with(results: &Results, streams_table: fn(&[Summary]) -> Table) -> String {
    let (transactions, streams): (Vec<Summary>, Vec<Summary>) =
        results.by_scenario().into_iter().partition(|row| row.transactions_per_s.is_some());
    let mut text = String::new();
    if !streams.is_empty() {
        text += &streams_table(&streams).to_string();
        text.push('\n');
    }
    if !transactions.is_empty() {
        text += &transaction_table(&transactions);
        text.push('\n');
    }
    text
}

const STREAM_HEADS: [&str; 7] = [
    "scenario",
    "Gbit/s",
    "stack\nCPU\ns/GB",
    "system\nCPU\ns/GB",
    "packets",
    "packets\n/batch",
    "syscalls\n/packet",
];

fn stream_figures(row: &Summary) -> [String; 6] {
    [
        match row.throughput_gbps > 0.0 {
            true => gbps(row.throughput_gbps),
            false => "-".to_owned(),
        },
        format!("{:.3}", row.stack_cpu_s_per_gb),
        format!("{:.3}", row.system_cpu_s_per_gb),
        grouped(row.packets),
        format!("{:.1}", row.packets_per_batch),
        format!("{:.2}", row.syscalls_per_packet),
    ]
}

fn stream_table(rows: &[Summary]) -> Table {
    let mut table = headed(STREAM_HEADS);
    for row in rows {
        table.add_row(cells([&row.first.scenario], stream_figures(row)));
    }
    table
}

fn transmit_table(rows: &[Summary]) -> Table {
    let mut table = headed([&STREAM_HEADS[..], &["mappings\n/packet"]].concat());
    for row in rows {
        let mappings = row.mappings_per_packet.map_or_else(String::new, |it| format!("{it:.3}"));
        let figures = stream_figures(row).into_iter().chain([mappings]);
        table.add_row(cells([&row.first.scenario], figures));
    }
    table
}

/// Where the senders' time went, a row for each scenario of which that was measured; `None` where it was of
/// none. The last column holds the stack's CPU against that of the scenario that ran beside it unmeasured.
#[must_use]
pub fn render_times(results: &Results) -> Option<String> {
    let rows = results.by_scenario();
    let mut table = headed([
        "scenario",
        "time\ns/GB",
        "device\ntransmit, %",
        "device\nreceive, %",
        "copy-in\n%",
        "the rest\n%",
        "waiting\n%",
        "CPU\n/ not timed",
    ]);
    for row in &rows {
        let Some(split) = Split::of(results, &row.first.scenario) else { continue };
        let whole_s = split.whole_s();
        let mut figures = vec![format!("{whole_s:.3}")];
        let percent = |part_s| ratio(100.0 * part_s, whole_s).unwrap_or(0.0);
        figures.extend(split.parts().map(|part_s| format!("{:.0}", percent(part_s))));
        let beside = Times::Beside.word().and_then(|word| {
            let name = row.first.scenario.strip_suffix(word)?.trim_end();
            let plain = rows.iter().find(|other| other.first.scenario == name)?;
            ratio(row.stack_cpu_s_per_gb, plain.stack_cpu_s_per_gb)
        });
        figures.push(beside.map_or_else(String::new, |ratio| format!("{ratio:.2}")));
        table.add_row(cells([&row.first.scenario], figures));
    }
    (table.row_count() > 0).then(|| format!("{table}\n"))
}

fn transaction_table(rows: &[Summary]) -> String {
    let mut table = headed([
        "scenario",
        "transactions\n/s",
        "median\nus",
        "p99\nus",
        "stack CPU\nus each",
        "system CPU\nus each",
    ]);
    for row in rows {
        // Bytes of both directions, so that seconds for each GB become seconds for each transaction.
        let gb_each = row
            .transactions_per_s
            .map_or(0.0, |per_s| ratio(row.throughput_gbps / 8.0, per_s).unwrap_or(0.0));
        table.add_row(cells(
            [&row.first.scenario],
            [
                grouped(row.transactions_per_s.unwrap_or(0.0)),
                row.transaction_us.map_or_else(String::new, |us| format!("{us:.1}")),
                row.transaction_p99_us.map_or_else(String::new, |us| format!("{us:.1}")),
                format!("{:.1}", row.stack_cpu_s_per_gb * gb_each * 1e6),
                format!("{:.1}", row.system_cpu_s_per_gb * gb_each * 1e6),
            ],
        ));
    }
    table.to_string()
}

/// What the first and the last line of a table begin with, and no other line does.
pub const TABLE_EDGE: char = '─';

/// A table with these heads. There are no lines between columns and one space: all tables are to fit the
/// 80 columns of a terminal.
pub(crate) fn headed<T: ToString>(names: impl IntoIterator<Item = T>) -> Table {
    let mut table = Table::new();
    let line = |fill| LineStyle::none().fill(fill).junction(fill);
    let style = TableStyle::new().top_border(line(TABLE_EDGE)).header_separator(line('═'));
    table.load_style(style.bottom_border(line(TABLE_EDGE)));
    let head = |name: T| Cell::new(name.to_string()).set_alignment(CellAlignment::Center);
    table.set_header(names.into_iter().map(head));
    for column in table.column_iter_mut() {
        column.set_padding((0, 0));
    }
    table
}

/// A row: what it is of, and its figures.
pub(crate) fn cells<T: ToString>(
    words: impl IntoIterator<Item = T>,
    figures: impl IntoIterator<Item = String>,
) -> Vec<Cell> {
    let figures =
        figures.into_iter().map(|figure| Cell::new(figure).set_alignment(CellAlignment::Right));
    words.into_iter().map(|word| Cell::new(word.to_string())).chain(figures).collect()
}

/// A throughput: two decimals, or as many as two figures take where those would say that nothing moved, as held to a
/// rate of some Mbit/s.
fn gbps(gbps: f64) -> String {
    let decimals = match gbps {
        _ if gbps >= 0.1 || gbps <= 0.0 => 2,
        _ => 1 - (gbps.log10().floor() as i32).max(-8),
    };
    format!("{gbps:.*}", decimals as usize)
}

/// A whole number with its thousands set apart.
fn grouped(number: f64) -> String {
    let digits = format!("{:.0}", number.max(0.0));
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// What batching brought, in plain sentences, one for each pair of scenarios that differ in
/// nothing but the mode, or in nothing but the switch `ip_multidata_outbound`. Empty where there is
/// no such pair.
#[must_use]
pub fn findings(results: &Results) -> Vec<String> {
    let rows = results.by_scenario();
    let mut sentences = Vec::new();
    for single in rows.iter().filter(|row| row.first.mode == "single") {
        for other in rows.iter().filter(|row| differs_in_mode(&single.first, &row.first)) {
            sentences.extend(compare(single, other));
        }
    }
    for off in rows.iter().filter(|row| switch_of(&row.first).is_some()) {
        for on in rows.iter().filter(|row| differs_in_switch(&off.first, &row.first)) {
            sentences.extend(compare_switch(off, on));
        }
    }
    sentences
}

/// Whether `other` is the same scenario in another mode; `lso` implies offload, so offload may
/// differ there.
fn differs_in_mode(single: &Run, other: &Run) -> bool {
    let is_same = circumstances(single, &["single", "offload"])
        == circumstances(other, &[&other.mode, "offload"]);
    match other.mode.as_str() {
        "single" => false,
        "lso" => is_same,
        _ => is_same && single.offload == other.offload,
    }
}

/// Whether `on` is the same scenario with packets leaving in batches.
fn differs_in_switch(off: &Run, on: &Run) -> bool {
    let switches =
        [Outbound::OffAtInterface, Outbound::Off].map(|it| it.word().unwrap_or_default());
    off.mode == on.mode
        && switch_of(on).is_none()
        && circumstances(off, &switches) == circumstances(on, &[])
}

/// The word that says that `ip_multidata_outbound` was off.
fn switch_of(run: &Run) -> Option<&'static str> {
    let words = [Outbound::OffAtInterface, Outbound::Off].into_iter().filter_map(Outbound::word);
    words.into_iter().find(|word| run.scenario.split(' ').any(|other| other == *word))
}

/// All that a run's figures depend on, but for some words of its scenario's name.
fn circumstances<'a>(run: &'a Run, but: &[&str]) -> (Vec<&'a str>, &'a str, usize) {
    let words = run.scenario.split(' ').filter(|word| !but.contains(word)).collect();
    (words, &run.peer, run.mtu)
}

fn compare_switch(off: &Summary, on: &Summary) -> Option<String> {
    let speed = speed(off, on)?;
    let cost = ratio(off.stack_cpu_s_per_gb, on.stack_cpu_s_per_gb)?;
    let what = match switch_of(&off.first) {
        word if word == Outbound::Off.word() => "off",
        _ => "off for the interface",
    };
    Some(format!(
        "{}, {} mode moved {} Gbit/s with ip_multidata_outbound {what} and {} with it on \
         ({speed:.2} times), for {cost:.2} of the stack's CPU time per byte.",
        place(&on.first),
        on.first.mode,
        gbps(off.throughput_gbps),
        gbps(on.throughput_gbps),
    ))
}

/// How fast `one` was against `other`, where both have a throughput.
fn speed(one: &Summary, other: &Summary) -> Option<f64> {
    ratio(one.throughput_gbps, other.throughput_gbps).filter(|speed| *speed > 0.0)
}

/// Whether frames reached the device many by one call, as the scenario's name says.
fn is_by_ring(run: &Run) -> bool {
    run.scenario.split(' ').any(|word| word == "io-uring")
}

/// Fewer packets in a batch than this, and batching had nothing to do.
const ALONE_PACKETS_MAX: f64 = 1.5;

fn compare(single: &Summary, other: &Summary) -> Option<String> {
    let place = place(&other.first);
    if let (Some(one), Some(many)) = (single.transactions_per_s, other.transactions_per_s) {
        let why = match other.packets_per_batch < ALONE_PACKETS_MAX {
            true => ": one small packet at a time leaves nothing to batch",
            false => "",
        };
        return Some(format!(
            "{place}, {} mode answered {} transactions a second where single answered {} ({:.2} \
             times){why}.",
            other.first.mode,
            grouped(many),
            grouped(one),
            ratio(many, one)?,
        ));
    }
    let speed = speed(other, single)?;
    let cost = ratio(other.stack_cpu_s_per_gb, single.stack_cpu_s_per_gb)?;
    let what = match other.first.mode.as_str() {
        "lso" => "super-frames".to_owned(),
        "multidata" => format!("batches of {:.1} packets", other.packets_per_batch),
        "chain" => format!("chains of {:.1} packets", other.packets_per_batch),
        mode => format!("{mode} blocks of {:.1} packets", other.packets_per_batch),
    };
    Some(format!(
        "{place}, {what} moved {} Gbit/s where one packet at a time moved {} ({speed:.2} \
         times), for {cost:.2} of the stack's CPU time per byte.",
        gbps(other.throughput_gbps),
        gbps(single.throughput_gbps),
    ))
}

/// Words of scenarios' names that a sentence about them should not leave out.
const NAMED: &[(&str, &str)] = &[
    ("chacha20poly1305", "ChaCha20-Poly1305"),
    ("one-a-call", "one datagram a call"),
    ("ipv6", "IPv6"),
    ("io-uring", "io_uring"),
    ("gso", "split by the kernel"),
    ("outbound-off", "ip_multidata_outbound off"),
    ("outbound-off-at-interface", "ip_multidata_outbound off for the interface"),
    ("timed", "timed"),
];

fn place(run: &Run) -> String {
    let verb = match run.direction.as_str() {
        _ if run.counters.contains_key(TRANSACTIONS) => "Answering requests",
        "send" => "Sending",
        "receive" => "Receiving",
        _ => "Both ways at once",
    };
    let with = match (run.napi, run.offload) {
        (true, true) => " with offload and threaded NAPI",
        (true, false) => " with threaded NAPI",
        (false, true) => " with offload",
        (false, false) => "",
    };
    let device = match run.device.as_str() {
        "wire" => "over the in-process wire".to_owned(),
        "tunnel" => "over a UDP tunnel".to_owned(),
        "tap-pair" => format!("from TAP to TAP{with}"),
        "packet" => format!("over a packet socket{with}"),
        "xdp" => format!("over AF_XDP{with}"),
        name if with.is_empty() => format!("over a plain {}", name.to_uppercase()),
        name => format!("over a {}{with}", name.to_uppercase()),
    };
    let usual = Scenario::stream(DeviceKind::Wire, Direction::Send, TransmitMode::Multidata);
    let mut how = Vec::new();
    if is_by_ring(run) {
        how.push("io_uring".to_owned());
    }
    let written = crate::sizes::format_size(run.write_len_bytes as u64);
    match (run.counters.contains_key(TRANSACTIONS), run.write_len_bytes) {
        (true, 1) => {}
        (true, _) => how.push(format!("{written} each way")),
        (false, len_bytes) if len_bytes == usual.write_len_bytes => {}
        (false, _) => how.push(format!("{written} a write")),
    }
    if run.zero_copy {
        how.push("lent memory".to_owned());
    }
    for (word, sentence) in NAMED {
        if run.scenario.split(' ').any(|other| other == *word) {
            how.push((*sentence).to_owned());
        }
    }
    if run.connections > 1 {
        how.push(format!("{} connections", run.connections));
    }
    match how.is_empty() {
        true => format!("{verb} {device}"),
        false => format!("{verb} {device} ({})", how.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::{results, run};

    #[test]
    fn the_table_shows_the_medians() {
        let runs = [7.0, 9.0, 8.0].map(|gbps| run(TransmitMode::Multidata, gbps));
        let text = render(&results(runs.to_vec()));
        assert!(text.contains("tap send multidata"), "{text}");
        assert!(text.contains("8.00"), "{text}");
        assert!(text.contains("40.0"), "packets per batch: {text}");
        assert!(text.contains("1.10"), "system calls per packet: {text}");
    }

    #[test]
    fn slow_streams_have_figures_too() {
        let figures = [88.0, 0.1, 0.095, 0.001, 0.000_097_4, 0.0].map(gbps);
        assert_eq!(figures, ["88.00", "0.10", "0.095", "0.0010", "0.000097", "0.00"]);
        let runs = [TransmitMode::Single, TransmitMode::Multidata].map(|mode| run(mode, 0.001));
        let results = results(runs.to_vec());
        assert!(render(&results).contains("0.0010"), "{}", render(&results));
        assert!(findings(&results)[0].contains("0.0010 Gbit/s"), "{:?}", findings(&results));
    }

    #[test]
    fn the_tables_of_streams_fit_a_terminal() {
        let mut runs = Vec::new();
        for scenario in crate::plan::default_job(std::time::Duration::from_secs(1)) {
            runs.push(Run { scenario: scenario.name(), ..run(TransmitMode::Multidata, 88.0) });
        }
        let results = results(runs);
        for text in [render(&results), render_transmit(&results)] {
            let width = text.lines().map(|line| line.trim_end().chars().count()).max();
            assert!(width.is_some_and(|width| width <= 80), "{width:?}:\n{text}");
            assert!(text.starts_with(TABLE_EDGE), "{text}");
        }
    }

    #[test]
    fn what_the_device_was_shown_has_a_column_of_its_own() {
        let mut run = run(TransmitMode::Multidata, 8.0);
        assert!(!render_transmit(&results(vec![run.clone()])).contains("0.375"));
        for (name, count) in [("device.transmit_mappings", 75), ("device.transmit_packets", 200)] {
            run.counters.insert(name.to_owned(), count);
        }
        let results = results(vec![run]);
        let text = render_transmit(&results);
        assert!(text.contains("mappings") && text.contains("0.375"), "{text}");
        assert!(!render(&results).contains("mappings"));
    }

    #[test]
    fn where_time_went_has_a_table_of_its_own_and_its_cost_where_it_is_known() {
        let mut results = crate::times::tests::measured();
        assert_eq!(render_times(&self::results(vec![run(TransmitMode::Multidata, 8.0)])), None);
        let text = render_times(&results).expect("it was measured");
        for figure in ["0.400", " 30 ", " 5 ", " 10 ", " 25 "] {
            assert!(text.contains(figure), "{figure}: {text}");
        }
        for timed in &mut results.runs {
            timed.scenario += " timed";
            timed.stack_cpu_s_per_gb = 0.13;
        }
        results.runs.push(run(TransmitMode::Multidata, 8.0));
        let text = render_times(&results).expect("it was measured");
        assert!(text.contains("1.04"), "{text}");
        assert_eq!(text.matches("tap send multidata").count(), 1, "{text}");
    }

    #[test]
    fn each_device_has_its_own_name_in_sentences() {
        for (device, napi, words) in [
            ("packet", false, "Sending over a packet socket, batches"),
            ("packet", true, "Sending over a packet socket with threaded NAPI, batches"),
            ("xdp", false, "Sending over AF_XDP, batches"),
            ("tun", false, "Sending over a plain TUN, batches"),
            ("tap-pair", false, "Sending from TAP to TAP, batches"),
            ("tap", true, "Sending over a TAP with threaded NAPI, batches"),
        ] {
            let on = |mode| {
                let run = run(mode, 8.0);
                let scenario = format!("{device} send {mode}");
                Run { device: device.to_owned(), napi, scenario, ..run }
            };
            let runs = vec![on(TransmitMode::Single), on(TransmitMode::Multidata)];
            let sentence = findings(&results(runs)).remove(0);
            assert!(sentence.starts_with(words), "{sentence}");
        }
    }

    #[test]
    fn what_one_read_brought_has_no_rate_and_is_compared_with_nothing() {
        let at_once = |mode| Run { seconds: 0.0, throughput_gbps: 0.0, ..run(mode, 8.0) };
        let [single, multidata] = [TransmitMode::Single, TransmitMode::Multidata];
        let all = results(vec![at_once(single), run(multidata, 8.0), at_once(multidata)]);
        let text = render(&all);
        assert!(text.contains(" - ") && text.contains("8.00"), "of the runs that have one: {text}");
        assert!(findings(&all).is_empty(), "{:?}", findings(&all));
        let all = results(vec![run(single, 8.0), at_once(multidata)]);
        assert!(findings(&all).is_empty(), "{:?}", findings(&all));
    }

    #[test]
    fn the_sentence_tells_the_ratio() {
        let runs = vec![run(TransmitMode::Single, 8.0), run(TransmitMode::Multidata, 12.0)];
        let sentences = findings(&results(runs));
        assert_eq!(sentences.len(), 1);
        assert!(sentences[0].contains("1.50 times"), "{}", sentences[0]);
        assert!(sentences[0].contains("batches of 40.0 packets"), "{}", sentences[0]);
        assert!(sentences[0].contains("0.67 of the stack's CPU"), "{}", sentences[0]);
    }

    #[test]
    fn only_the_mode_differs_in_what_is_compared() {
        let long = |run: Run| Run {
            write_len_bytes: 1 << 20,
            zero_copy: true,
            scenario: format!("{} long", run.scenario),
            ..run
        };
        let modes = [TransmitMode::Single, TransmitMode::Multidata].map(|mode| run(mode, 8.0));
        let runs = modes.iter().cloned().chain(modes.iter().cloned().map(long)).collect();
        let sentences = findings(&results(runs));
        assert_eq!(sentences.len(), 2, "{sentences:?}");
        assert!(sentences[1].contains("(1M a write, lent memory)"), "{}", sentences[1]);
    }

    #[test]
    fn tunnels_with_different_transforms_are_not_compared() {
        let through = |transform: &str, mode, gbps| {
            let run = run(mode, gbps);
            let scenario = format!("tunnel{transform} send {mode}");
            Run { device: "tunnel".to_owned(), scenario, ..run }
        };
        let runs = vec![
            through("", TransmitMode::Single, 1.0),
            through(" chacha20poly1305", TransmitMode::Single, 2.0),
            through(" one-a-call", TransmitMode::Single, 4.0),
            through("", TransmitMode::Multidata, 8.0),
            through(" chacha20poly1305", TransmitMode::Multidata, 6.0),
        ];
        let sentences = findings(&results(runs));
        assert_eq!(sentences.len(), 2, "{sentences:?}");
        assert!(sentences[0].contains("over a UDP tunnel, batches"), "{}", sentences[0]);
        assert!(sentences[0].contains("8.00 times"), "{}", sentences[0]);
        assert!(sentences[1].contains("(ChaCha20-Poly1305)"), "{}", sentences[1]);
        assert!(sentences[1].contains("3.00 times"), "{}", sentences[1]);
    }

    #[test]
    fn the_switch_is_compared_with_the_same_mode_without_it() {
        let switched = |word: &str, gbps| {
            let run = run(TransmitMode::Multidata, gbps);
            Run { scenario: format!("tap{word} send multidata"), ..run }
        };
        let runs = vec![
            switched("", 12.0),
            switched(" outbound-off", 6.0),
            switched(" outbound-off-at-interface", 3.0),
        ];
        let sentences = findings(&results(runs));
        assert_eq!(sentences.len(), 2, "{sentences:?}");
        assert!(sentences[0].contains("ip_multidata_outbound off and 12.00"), "{}", sentences[0]);
        assert!(sentences[0].contains("0.50 times"), "{}", sentences[0]);
        assert!(sentences[1].contains("off for the interface and"), "{}", sentences[1]);
    }

    #[test]
    fn nothing_is_said_where_there_is_nothing_to_compare() {
        assert!(findings(&results(vec![run(TransmitMode::Multidata, 12.0)])).is_empty());
        assert!(findings(&results(Vec::new())).is_empty());
    }

    #[test]
    fn transactions_are_called_small_only_where_they_fit_a_packet() {
        let asked = |mode, batches, write_len_bytes| {
            let mut run = Run { batches, write_len_bytes, ..run(mode, 8.0) };
            run.counters.insert(TRANSACTIONS.to_owned(), 500);
            run
        };
        for (batches, len_bytes, place) in [(1_000, 1, "TAP,"), (100, 4_096, "TAP (4K each way),")]
        {
            let single = asked(TransmitMode::Single, 1_000, len_bytes);
            let runs = vec![single, asked(TransmitMode::Multidata, batches, len_bytes)];
            let sentence = findings(&results(runs)).remove(0);
            let place = format!("Answering requests over a plain {place}");
            assert!(sentence.starts_with(&place), "{sentence}");
            assert_eq!(sentence.contains("small packet"), len_bytes == 1, "{sentence}");
        }
    }

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!(grouped(0.0), "0");
        assert_eq!(grouped(999.0), "999");
        assert_eq!(grouped(1_234_567.0), "1,234,567");
    }
}
