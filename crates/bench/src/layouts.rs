//! Layouts of the way in: `multidata bench receive --layout`.
//!
//! The axes are those of seed 004: how many rings the device has, how many soft rings stand behind each
//! and whether these go to different squeues (Figure 3i), over numbers of connections; and where the
//! application runs (Figure 3ii): on the core of its connection's squeue, on another, anywhere. Its
//! eight cores are as many here as the process may use.
//!
//! The receiver is laid out as the scenario says. The sender has a squeue for each ring, so that layouts
//! with as many rings meet the same sender. Over the wire both share the machine:
//!
//! ```text
//!   R2S0F0          R1S2F1              R1S2F0, R1S1F0
//!   far 0 -- near 0  far 0 -+- near 0   far 0 -- near 0        core, other: near 0 on the first CPU, near 1
//!   far 1 -- near 1         +- near 1                          on the second; the far end of ring r on CPU r,
//!                                                              that of an only ring on the last
//! ```

use crate::counted::{self, Counted};
use crate::results::{Results, Run};
use crate::scenario::{DeviceKind, PeerKind, Scenario};
use crate::statistics::{median, ratio};
use crate::table::{cells, headed};
use core::fmt;
use core::str::FromStr;
use multidata::{Layout, Polling};

/// Where the application's threads run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Placement {
    /// Each on the core of its connection's squeue, which is kept there.
    Core,
    /// Each on the core after it.
    Other,
    /// Where the system puts them, and squeues as well.
    Anywhere,
}

impl Placement {
    /// Every placement and its name.
    pub const ALL: [(Self, &'static str); 3] =
        [(Self::Core, "core"), (Self::Other, "other"), (Self::Anywhere, "anywhere")];

    /// The name on command lines and in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Core => "core",
            Self::Other => "other",
            Self::Anywhere => "anywhere",
        }
    }
}

impl FromStr for Placement {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|(_, name)| *name == text);
        found.map(|(placement, _)| placement).ok_or_else(|| {
            "the application is on its connection's core, on an other, or anywhere".to_owned()
        })
    }
}

/// How connections are spread, and where the application runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Spreading {
    /// The receiver's rings, soft rings and fan-out.
    pub layout: Layout,
    /// Where the application runs.
    pub placement: Placement,
    /// When the receiver polls, where that is not left to the stack.
    pub polling: Option<Polling>,
}

impl fmt::Display for Spreading {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} at {}", self.layout, self.placement.name())?;
        match self.polling {
            Some(polling) => write!(formatter, " polling {}", polling.name()),
            None => Ok(()),
        }
    }
}

impl Spreading {
    /// The layout of the sender over a wire: a squeue for each ring.
    #[must_use]
    pub fn of_sender(&self) -> Layout {
        Layout::new(self.layout.rings(), 0, false).unwrap_or(Layout::SINGLE)
    }

    /// The CPU, of these, that the threads of squeue `squeue` of the receiver are kept on, where they are.
    #[must_use]
    pub fn squeue_cpu(&self, squeue: usize, cpus: &[usize]) -> Option<usize> {
        (self.placement != Placement::Anywhere).then(|| at(cpus, squeue))?
    }

    /// The CPU, of these, for the thread of a connection of squeue `squeue` of the receiver.
    #[must_use]
    pub fn receiver_cpu(&self, squeue: usize, cpus: &[usize]) -> Option<usize> {
        match self.placement {
            Placement::Core => at(cpus, squeue),
            Placement::Other => at(cpus, squeue + 1),
            Placement::Anywhere => None,
        }
    }

    /// The same of the sender over a wire.
    #[must_use]
    pub fn sender_cpu(&self, squeue: usize, cpus: &[usize]) -> Option<usize> {
        match (self.placement, self.layout.rings()) {
            (Placement::Anywhere, _) => None,
            (_, 1) => cpus.last().copied(),
            _ => at(cpus, squeue),
        }
    }

    /// Why this device cannot be measured so.
    ///
    /// # Errors
    /// A sentence.
    pub fn check(&self, device: DeviceKind) -> Result<(), String> {
        let layout = self.layout;
        match device {
            DeviceKind::Wire | DeviceKind::Tap | DeviceKind::Tun => Ok(()),
            DeviceKind::Packet if ![1, layout.homes_max()].contains(&layout.rings()) => {
                Err(format!(
                    "--layout {layout} has several squeues behind a ring: packet sockets have one each, as \
                     in R{0}S{0}F1, or share one, as in R1S{0}F1",
                    layout.homes_max()
                ))
            }
            DeviceKind::Packet => Ok(()),
            other => {
                Err(format!("--layout is for wire, tap, tun and packet, not for {}", other.name()))
            }
        }
    }
}

fn at(cpus: &[usize], index: usize) -> Option<usize> {
    cpus.get(index % cpus.len().max(1)).copied()
}

/// The axes: every value of each with every value of the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axes {
    /// Layouts.
    pub layouts: Vec<Layout>,
    /// Where the application runs.
    pub placements: Vec<Placement>,
    /// When the receiver polls; empty where that is left to the stack.
    pub pollings: Vec<Polling>,
}

impl Axes {
    /// These scenarios, each with each combination. Neighbours differ in the layout only.
    #[must_use]
    pub fn scenarios(&self, scenarios: &[Scenario]) -> Vec<Scenario> {
        let mut all = Vec::new();
        let pollings: Vec<Option<Polling>> = match self.pollings.is_empty() {
            true => vec![None],
            false => self.pollings.iter().copied().map(Some).collect(),
        };
        let kinds =
            || self.layouts.iter().flat_map(|layout| pollings.iter().map(move |it| (*layout, *it)));
        for scenario in scenarios {
            for &placement in &self.placements {
                all.extend(kinds().map(|(layout, polling)| {
                    let spreading = Spreading { layout, placement, polling };
                    let label = scenario.label.as_deref().unwrap_or_default();
                    Scenario {
                        spreading: Some(spreading),
                        label: Some(format!("{label} by {spreading}").trim_start().to_owned()),
                        ..scenario.clone()
                    }
                }));
            }
        }
        all
    }
}

/// The medians of one layout, placement and number of connections.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// Device, direction and coalescing, and where the application runs: what layouts are compared in.
    pub(crate) path: String,
    pub(crate) layout: String,
    pub(crate) placement: String,
    pub(crate) connections: usize,
    pub(crate) throughput_gbps: f64,
    pub(crate) stack_cpu_s_per_gb: f64,
    pub(crate) counted: Counted,
}

/// The medians, in the order in which they first ran.
pub(crate) fn rows(results: &Results) -> Vec<Row> {
    results.groups().iter().filter_map(|(name, runs)| row(name, runs)).collect()
}

fn row(name: &str, runs: &[&Run]) -> Option<Row> {
    let (path, spreading) = name.split_once(" by ")?;
    let (layout, placement) = spreading.split_once(" at ")?;
    // Layouts are compared with each other, polled one way or another.
    let (placement, polling) = placement.split_once(" polling ").unwrap_or((placement, ""));
    let layout = format!("{layout} {polling}").trim_end().to_owned();
    let connections = runs.first()?.connections;
    let of = |figure: &dyn Fn(&Run) -> f64| {
        median(&runs.iter().map(|run| figure(run)).collect::<Vec<_>>()).unwrap_or(0.0)
    };
    Some(Row {
        path: path.replace(&format!(" x{connections}"), "").replace(" multidata up", ""),
        layout,
        placement: placement.to_owned(),
        connections,
        throughput_gbps: of(&|run| run.throughput_gbps),
        stack_cpu_s_per_gb: of(&|run| run.stack_cpu_s_per_gb),
        counted: Counted::of(runs, ""),
    })
}

const COLUMNS: [&str; 2] = ["Gbit/s", "stack CPU s/GB"];

/// What stands in [`COLUMNS`], behind path, placement, layout and connections.
fn figures(row: &Row) -> Vec<String> {
    vec![format!("{:.2}", row.throughput_gbps), format!("{:.3}", row.stack_cpu_s_per_gb)]
}

/// The columns of a page, which has room for all.
pub(crate) fn all_columns() -> Vec<&'static str> {
    COLUMNS.into_iter().chain(counted::columns()).collect()
}

/// What stands in [`all_columns`].
pub(crate) fn all_figures(row: &Row) -> Vec<String> {
    figures(row).into_iter().chain(row.counted.figures()).collect()
}

/// The medians as a table.
#[must_use]
pub fn render(results: &Results) -> String {
    let heads = ["path", "application", "layout", "connec-\ntions"].into_iter().chain(COLUMNS);
    let mut table = headed(heads);
    for row in rows(results) {
        let numbers = std::iter::once(row.connections.to_string()).chain(figures(&row));
        table.add_row(cells([&row.path, &row.placement, &row.layout], numbers));
    }
    format!("{table}\n")
}

/// For each path and placement, what each layout reached at best and at the most connections, beside the
/// findings of seed 004.
#[must_use]
pub fn findings(results: &Results) -> Vec<String> {
    let rows = rows(results);
    let mut groups: Vec<(&str, &str)> = Vec::new();
    for row in &rows {
        if !groups.contains(&(&row.path, &row.placement)) {
            groups.push((&row.path, &row.placement));
        }
    }
    let mut sentences = Vec::new();
    for (path, placement) in groups {
        let mut peaks: Vec<(&Row, &Row)> = Vec::new();
        for row in rows.iter().filter(|row| row.path == path && row.placement == placement) {
            match peaks.iter_mut().find(|(best, _)| best.layout == row.layout) {
                Some((best, most)) => {
                    if row.throughput_gbps > best.throughput_gbps {
                        *best = row;
                    }
                    if row.connections > most.connections {
                        *most = row;
                    }
                }
                None => peaks.push((row, row)),
            }
        }
        peaks.sort_by(|(a, _), (b, _)| b.throughput_gbps.total_cmp(&a.throughput_gbps));
        let words: Vec<String> = peaks
            .iter()
            .map(|(best, most)| {
                let kept = ratio(most.throughput_gbps, best.throughput_gbps).unwrap_or(0.0);
                format!(
                    "{} {:.2} Gbit/s with {}, {kept:.2} of it with {}",
                    best.layout, best.throughput_gbps, best.connections, most.connections
                )
            })
            .collect();
        sentences.push(format!("{path}, application at {placement}: {}.", words.join("; ")));
    }
    sentences
}

/// Whether a scenario is one that this bench can lay out.
pub(crate) fn check(scenario: &Scenario) -> Result<(), String> {
    let Some(spreading) = &scenario.spreading else { return Ok(()) };
    spreading.check(scenario.device)?;
    if scenario.pin || scenario.squeues > 1 {
        return Err("--layout says how many squeues there are, and --placement where they run: \
                    they stand without --squeues and --pin"
            .to_owned());
    }
    if scenario.peer() == PeerKind::Kernel && scenario.capture.is_some() {
        return Err("--capture is for one queue, without --layout".to_owned());
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::results::tests::{results, run};
    use crate::scenario::Direction;
    use device::TransmitMode;

    fn layout(text: &str) -> Layout {
        text.parse().expect("a layout")
    }

    fn spreading(layout_text: &str, placement: Placement) -> Spreading {
        Spreading { layout: layout(layout_text), placement, polling: None }
    }

    /// Two layouts, at one and at eight connections.
    pub(crate) fn measured() -> Results {
        let axes = Axes {
            layouts: vec![layout("R2S0F0"), layout("R1S2F1")],
            placements: vec![Placement::Core],
            pollings: vec![],
        };
        let plain = |connections| Scenario {
            connections,
            label: Some("up adaptive".to_owned()),
            ..Scenario::stream(DeviceKind::Wire, Direction::Receive, TransmitMode::Multidata)
        };
        let scenarios = axes.scenarios(&[plain(1), plain(8)]);
        let runs = scenarios.iter().zip([10.0, 8.0, 30.0, 4.0]).map(|(scenario, gbps)| {
            let figures = run(TransmitMode::Multidata, gbps);
            let mut counters = figures.counters.clone();
            for (name, count) in [
                ("runtime.squeue_enters", 20_000),
                ("runtime.squeue_enters_contended", 500),
                ("runtime.squeue_inline_batches", 3_000),
                ("runtime.squeue_queued_batches", 1_000),
            ] {
                counters.insert(name.to_owned(), count);
            }
            let (scenario, connections) = (scenario.name(), scenario.connections);
            Run { scenario, connections, device: "wire".to_owned(), counters, ..figures }
        });
        results(runs.collect())
    }

    #[test]
    fn what_was_measured_is_told_by_layout_and_connections() {
        let rows = rows(&measured());
        assert_eq!(rows.len(), 4);
        assert_eq!(rows[3].path, "wire receive adaptive");
        assert_eq!((rows[3].layout.as_str(), rows[3].connections), ("R1S2F1", 8));
        assert_eq!(rows[0].counted.contended_percent, 2.5);
        let mb = 1e9 / f64::from(1 << 20);
        assert!((rows[0].counted.each_mb[1] - 3_000.0 / mb).abs() < 1e-9, "in line, for each MB");
        assert_eq!(all_figures(&rows[0]).len(), all_columns().len());
        assert_eq!(
            findings(&measured()),
            [
                "wire receive adaptive, application at core: R2S0F0 30.00 Gbit/s with 8, 1.00 of it with \
              8; R1S2F1 8.00 Gbit/s with 1, 0.50 of it with 8."
            ]
        );
        assert!(render(&measured()).contains("R1S2F1"));
    }

    #[test]
    fn threads_are_put_where_the_placement_says() {
        let cpus = [4, 6];
        let core = spreading("R2S0F0", Placement::Core);
        assert_eq!([0, 1, 2].map(|home| core.receiver_cpu(home, &cpus)), [4, 6, 4].map(Some));
        assert_eq!([0, 1].map(|home| core.sender_cpu(home, &cpus)), [4, 6].map(Some));
        let other = spreading("R1S2F1", Placement::Other);
        assert_eq!([0, 1].map(|home| other.receiver_cpu(home, &cpus)), [6, 4].map(Some));
        assert_eq!(other.sender_cpu(0, &cpus), Some(6), "an only ring's sender is on the last");
        let anywhere = spreading("R1S2F1", Placement::Anywhere);
        assert_eq!((anywhere.receiver_cpu(0, &cpus), anywhere.sender_cpu(0, &cpus)), (None, None));
        assert_eq!(core.receiver_cpu(0, &[]), None);
        for (placement, name) in Placement::ALL {
            assert_eq!((name.parse(), placement.name()), (Ok(placement), name));
        }
        assert!("near".parse::<Placement>().expect_err("no placement").contains("anywhere"));
    }

    #[test]
    fn what_a_device_cannot_have_is_refused_with_the_reason() {
        for (text, device, part) in
            [("R2S4F1", DeviceKind::Packet, "R4S4F1"), ("R2S2F1", DeviceKind::Xdp, "not for xdp")]
        {
            let refused =
                spreading(text, Placement::Core).check(device).expect_err("no such rings");
            assert!(refused.contains(part), "{refused}");
        }
        for text in ["R1S1F0", "R1S2F1", "R2S2F1"] {
            assert_eq!(
                spreading(text, Placement::Core).check(DeviceKind::Packet),
                Ok(()),
                "{text}"
            );
        }
        for device in [DeviceKind::Wire, DeviceKind::Tap, DeviceKind::Packet] {
            assert_eq!(spreading("R2S0F0", Placement::Core).check(device), Ok(()), "{device:?}");
        }
        assert!(spreading("R2S2F1", Placement::Core).check(DeviceKind::Tap).is_ok());
        assert!(spreading("R1S2F0", Placement::Core).check(DeviceKind::Tun).is_ok());
        assert!(spreading("R1S1F0", Placement::Core).check(DeviceKind::Xdp).is_err());
    }
}
