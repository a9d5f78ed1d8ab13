//! What the receiving stack counted beside throughput: who entered its squeues and what they did there, who
//! waited and who was woken, and how large batches were at each stage; of all squeues together and of each.
//!
//! ```text
//!   device queue --> [soft ring] --> squeue --> TCP
//!     receive        soft_rings      squeue     trains      the tables of `multidata::BatchSizes`
//! ```

use crate::results::{Results, Run};
use crate::statistics::{median, ratio};
use crate::table::{cells, headed};
use multidata::BatchSizes;

/// The head of a column and the counters whose sum stands in it, for each MB received.
type Column = (&'static str, &'static [&'static str]);

/// What is shown of the squeues. Batches in line are those that came by a squeue's own ring, queued ones
/// those that came by a soft ring.
pub(crate) const COUNTERS: [Column; 8] = [
    ("enters", &["runtime.squeue_enters"]),
    ("inline", &["runtime.squeue_inline_batches"]),
    ("queued", &["runtime.squeue_queued_batches"]),
    ("frames handed over", &["runtime.frames_handed_over", "stack.segments_handed_on"]),
    ("migrations", &["runtime.squeue_migrations"]),
    ("interrupt turns", &["runtime.leader_waits", "runtime.worker_turns"]),
    ("poll turns", &["runtime.poll_turns"]),
    ("wake-ups", &["runtime.wakeups_sent"]),
];

/// Where batches are measured: the head of a column, and the table of its sizes.
const STAGES: [(&str, &str); 4] = [
    ("batches: device queue", "receive"),
    ("batches: soft ring", "soft_rings"),
    ("batches: squeue", "squeue"),
    ("batches: TCP", "trains"),
];

/// The part of all batches that is no larger than what is shown, in per cent.
const PERCENTILES: [u64; 2] = [50, 99];

/// What the names of the counters of squeue `index` alone begin with.
pub(crate) fn squeue_prefix(index: usize) -> String {
    format!("squeue_{index}.")
}

/// What was counted in the runs of one scenario, of one squeue or of all.
#[derive(Clone, Debug)]
pub(crate) struct Counted {
    /// Medians for each MB, in the order of [`COUNTERS`].
    pub(crate) each_mb: Vec<f64>,
    /// Of all enters, the per cent that had to wait for another thread.
    pub(crate) contended_percent: f64,
    /// Batches of each size in all runs, for each of [`STAGES`].
    sizes: Vec<Vec<u64>>,
}

impl Counted {
    /// The counters whose names begin so: nothing, or one squeue's [`squeue_prefix`].
    pub(crate) fn of(runs: &[&Run], prefix: &str) -> Self {
        let of = |figure: &dyn Fn(&Run) -> f64| {
            median(&runs.iter().map(|run| figure(run)).collect::<Vec<_>>()).unwrap_or(0.0)
        };
        let count = |run: &Run, name: &str| {
            run.counters.get(&format!("{prefix}{name}")).copied().unwrap_or(0)
        };
        let sum = |run: &Run, names: &[&str]| -> f64 {
            names.iter().map(|name| count(run, name) as f64).sum()
        };
        let each_mb = |(_, names): &Column| {
            of(&|run| ratio(sum(run, names), run.bytes as f64 / f64::from(1 << 20)).unwrap_or(0.0))
        };
        let sizes = |(_, table): &(&str, &str)| {
            let mut counts = Vec::new();
            BatchSizes::ZERO.for_each(&mut |name, _| {
                let name = format!("{table}.{name}");
                counts.push(runs.iter().map(|run| count(run, &name)).sum());
            });
            counts
        };
        Self {
            each_mb: COUNTERS.iter().map(each_mb).collect(),
            contended_percent: of(&|run| {
                let contended = sum(run, &["runtime.squeue_enters_contended"]);
                100.0 * ratio(contended, sum(run, &["runtime.squeue_enters"])).unwrap_or(0.0)
            }),
            sizes: STAGES.iter().map(sizes).collect(),
        }
    }

    /// What stands in [`columns`].
    pub(crate) fn figures(&self) -> Vec<String> {
        let mut figures = vec![format!("{:.2}", self.contended_percent)];
        figures.extend(self.each_mb.iter().map(|count| format!("{count:.2}")));
        figures.extend(self.sizes.iter().map(|counts| percentiles(counts)));
        figures
    }
}

/// The heads of [`Counted::figures`].
pub(crate) fn columns() -> Vec<&'static str> {
    let counters = COUNTERS.iter().map(|(name, _)| *name);
    let stages = STAGES.iter().map(|(name, _)| *name);
    std::iter::once("contended %").chain(counters).chain(stages).collect()
}

/// The size that half of the batches do not exceed, and the one that 99 of 100 do not, each rounded up to
/// the end of its power of two; nothing where there were no batches.
fn percentiles(counts: &[u64]) -> String {
    let all: u64 = counts.iter().sum();
    if all == 0 {
        return String::new();
    }
    let largest = |percent: u64| {
        let mut seen = 0;
        let reached = |count: &u64| {
            seen += count;
            seen * 100 >= all * percent
        };
        match counts.iter().position(reached).and_then(|at| BatchSizes::LARGEST.get(at)) {
            Some(size) if *size <= 256 => size.to_string(),
            _ => "257+".to_owned(),
        }
    };
    PERCENTILES.map(largest).join("/")
}

/// The counters as a table: of each scenario the sums, and below them those of each squeue where there are
/// several.
#[must_use]
pub fn render(results: &Results) -> String {
    let heads = ["run", "squeue", "Gbit/s"].into_iter().chain(columns());
    let heads = heads.map(|head| match head {
        "migrations" => "migra-\ntions".to_owned(),
        head => head.replace(' ', "\n"),
    });
    let mut table = headed(heads);
    for (name, runs) in results.groups() {
        let name = name.replace(" multidata up", "");
        let gbps: Vec<f64> = runs.iter().map(|run| run.throughput_gbps).collect();
        let gbps = format!("{:.2}", median(&gbps).unwrap_or(0.0));
        let has = |prefix: &String| {
            let first = runs.first().and_then(|run| run.counters.range(prefix.clone()..).next());
            first.is_some_and(|(name, _)| name.starts_with(prefix))
        };
        let squeues = (0..).map(squeue_prefix).take_while(has).enumerate();
        let each = squeues
            .map(|(index, prefix)| (String::new(), index.to_string(), String::new(), prefix));
        let all = (name, "all".to_owned(), gbps, String::new());
        for (name, squeue, gbps, prefix) in std::iter::once(all).chain(each) {
            let figures = Counted::of(&runs, &prefix).figures();
            table.add_row(cells([name], [squeue, gbps].into_iter().chain(figures)));
        }
    }
    format!("{table}\n")
}

/// What is to be known about the figures of [`render`].
pub const EXPLANATION: &str = "Counters are the receiver's, for each MB (2^20 bytes) received: batches in line came by the squeue's own \
     ring, queued ones by a soft ring; an interrupt turn is a wait for the device; a migration is another \
     thread than the last; a wake-up is a thread or task that was woken. Batches: frames of half of them at \
     most, and of 99 in 100, in powers of two, as they come up from the device's queue, out of soft rings, to \
     the squeue, and as TCP takes segments as one; the whole histograms are in the JSON.\n";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::{results, run};
    use device::TransmitMode;

    fn counted() -> Run {
        let mut run = run(TransmitMode::Multidata, 8.0);
        for (name, count) in [
            ("runtime.squeue_enters", 30_000),
            ("runtime.squeue_enters_contended", 300),
            ("squeue_0.runtime.squeue_enters", 20_000),
            ("squeue_0.runtime.squeue_enters_contended", 300),
            ("squeue_1.runtime.squeue_enters", 10_000),
            ("squeue_1.trains.batches_of_33_to_64", 7),
            ("receive.batches_of_1", 49),
            ("receive.batches_of_5_to_8", 49),
            ("receive.batches_of_257_up", 2),
            ("trains.batches_of_33_to_64", 7),
        ] {
            run.counters.insert(name.to_owned(), count);
        }
        run
    }

    #[test]
    fn counters_are_shown_summed_and_for_each_squeue() {
        let run = counted();
        let all = Counted::of(&[&run], "");
        assert_eq!(all.contended_percent, 1.0);
        let mb = 1e9 / f64::from(1 << 20);
        assert!((all.each_mb[0] - 30_000.0 / mb).abs() < 1e-9);
        let sizes = all.figures().split_off(1 + COUNTERS.len());
        assert_eq!(sizes, ["8/257+", "", "", "64/64"]);
        let of = |index: usize| Counted::of(&[&run], &squeue_prefix(index));
        assert_eq!((of(0).contended_percent, of(1).contended_percent), (1.5, 0.0));
        assert_eq!(of(1).figures().last().map(String::as_str), Some("64/64"));
        assert_eq!(all.figures().len(), columns().len());

        let text = render(&results(vec![run]));
        // The row of the run names it; those of its squeues begin with their numbers.
        let squeue = |line: &str| {
            let mut words = line.split_whitespace();
            let all = words.clone().find(|word| *word == "all");
            all.or_else(|| words.next().filter(|word| word.parse::<u8>().is_ok()))
                .map(str::to_owned)
        };
        let squeues: Vec<String> = text.lines().filter_map(squeue).collect();
        assert_eq!(squeues, ["all", "0", "1"], "{text}");
        assert!(text.contains("8.00") && text.contains("8/257+"), "{text}");
    }

    #[test]
    fn percentiles_are_of_batches() {
        assert_eq!(percentiles(&[0; 10]), "");
        assert_eq!(percentiles(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0]), "1/1");
        assert_eq!(percentiles(&[98, 1, 0, 1, 0, 0, 0, 0, 0, 0]), "1/2");
        assert_eq!(percentiles(&[49, 0, 51, 0, 0, 0, 0, 0, 0, 0]), "4/4");
        assert_eq!(percentiles(&[0, 0, 0, 0, 0, 0, 0, 0, 98, 2]), "256/257+");
    }
}
