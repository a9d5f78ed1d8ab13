//! The squeue's discipline: who may do how much inside, and when the device is polled.
//!
//! A pure state machine, kept under the squeue's lock; it reads no clock and wakes nobody.
//!
//! * **Who comes in** is counted: whether it had to wait, and whether it is another thread than the one
//!   before ([`Discipline::on_enter`]).
//! * **Bounded work inline** (seed 004, section III C: an external thread processes for "a finite duration,
//!   after which it switches processing to squeue worker thread"): a [`Budget`] of frames and time that a
//!   thread takes along into each turn, the worker too, so that others come in between.
//! * **Interrupts or polling** (III A): while every turn finds a backlog, waiting for the device and being
//!   woken by it is waste; above a high mark the squeue polls, and it goes back when the backlog has been
//!   below a low mark for a while ([`Discipline::on_turn`]). "Interrupt" here is whatever wakes a thread
//!   that sleeps on a device: a poll set, an event, a soft ring's wake-up.

use crate::counting::SqueueCounters;
use core::fmt;
use core::str::FromStr;
use counters::BatchSizes;
use time::{Duration, Instant};

/// Frames that a thread processes in one turn before it lets others in.
const INLINE_FRAMES_MAX: usize = 1024;

/// How long such a turn may take.
const INLINE_TIME_MAX: Duration = Duration::from_millis(1);

/// When a squeue asks its devices again without sleeping, in place of waiting until they wake it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Polling {
    /// Never.
    Off,
    /// While there is a backlog, as these marks say.
    Adaptive(PollingMarks),
    /// Whenever there is nothing else to do: who waits for frames uses up a CPU, also where none come.
    Always,
}

impl Polling {
    /// [`Polling::Adaptive`] with marks that were found to do: from 64 frames in one turn on, until none had
    /// more than 8 for 200 us.
    pub const ADAPTIVE: Self = Self::Adaptive(PollingMarks {
        backlog_high: 64,
        backlog_low: 8,
        calm: Duration::from_micros(200),
    });

    /// Every kind and its name, adaptive with the usual marks.
    pub const ALL: [(Self, &'static str); 3] =
        [(Self::Off, "off"), (Self::ADAPTIVE, "adaptive"), (Self::Always, "always")];

    /// The name of its kind.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Adaptive(_) => "adaptive",
            Self::Always => "always",
        }
    }
}

impl FromStr for Polling {
    type Err = UnknownPolling;

    fn from_str(text: &str) -> Result<Self, UnknownPolling> {
        let found = Self::ALL.into_iter().find(|(_, name)| *name == text);
        found.map(|(polling, _)| polling).ok_or(UnknownPolling)
    }
}

/// No way of polling has this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownPolling;

impl fmt::Display for UnknownPolling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("devices are polled off, adaptive or always")
    }
}

impl core::error::Error for UnknownPolling {}

/// Between what marks a squeue changes from waiting to polling and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PollingMarks {
    /// A turn that finds more frames than this begins poll mode.
    pub backlog_high: usize,
    /// Turns that find no more frames than this let poll mode end; at most `backlog_high`.
    pub backlog_low: usize,
    /// For how long they must before it ends.
    pub calm: Duration,
}

/// How the next frames come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Somebody sleeps until the device, or a soft ring, wakes them.
    #[default]
    Interrupt,
    /// The device is asked again without sleeping.
    Poll,
}

/// A thread, by any number that is its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadToken(pub u64);

/// What an entering thread may do inside before it leaves the rest to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    frames: usize,
    until: Instant,
}

impl Budget {
    /// Takes note of frames processed, and says whether the thread may go on.
    pub fn spend(&mut self, now: Instant, frames: usize) -> bool {
        self.frames = self.frames.saturating_sub(frames);
        self.frames > 0 && now < self.until
    }
}

/// The discipline of one squeue.
#[derive(Clone, Debug)]
pub struct Discipline {
    polling: Polling,
    leader_polls: bool,
    mode: Mode,
    /// Frames that came since [`Discipline::on_turn`] was called last.
    arrived: usize,
    /// Since when, in poll mode, no turn found more than the low mark.
    calm_since: Option<Instant>,
    last_thread: Option<ThreadToken>,
    counters: SqueueCounters,
    sizes: BatchSizes,
}

impl Discipline {
    /// A squeue that nobody has entered, in interrupt mode unless it always polls.
    #[must_use]
    pub fn new(polling: Polling) -> Self {
        let mode = if polling == Polling::Always { Mode::Poll } else { Mode::Interrupt };
        Self {
            polling,
            leader_polls: false,
            mode,
            arrived: 0,
            calm_since: None,
            last_thread: None,
            counters: SqueueCounters::default(),
            sizes: BatchSizes::default(),
        }
    }

    /// As [`Discipline::new`], where application threads that wait for the device poll as well.
    #[must_use]
    pub fn for_everybody(polling: Polling) -> Self {
        Self { leader_polls: true, ..Self::new(polling) }
    }

    /// Whether application threads that wait for the device ask [`Discipline::on_turn`], too.
    #[must_use]
    pub fn leader_polls(&self) -> bool {
        self.leader_polls
    }

    /// A thread came in; `contended` if it had to wait for another.
    pub fn on_enter(&mut self, thread: ThreadToken, contended: bool) {
        self.counters.squeue_enters += 1;
        self.counters.squeue_enters_contended += u64::from(contended);
        let migrated = self.last_thread.is_some_and(|last| last != thread);
        self.counters.squeue_migrations += u64::from(migrated);
        self.last_thread = Some(thread);
    }

    /// What a thread that comes in with work may do.
    #[must_use]
    pub fn budget(&self, now: Instant) -> Budget {
        Budget { frames: INLINE_FRAMES_MAX, until: now + INLINE_TIME_MAX }
    }

    /// Frames came by the device.
    pub fn on_arrived(&mut self, frames: usize) {
        self.arrived += frames;
    }

    /// How many frames came since [`Discipline::on_turn`] was called last, by the device and by soft rings.
    #[must_use]
    pub fn arrived(&self) -> usize {
        self.arrived
    }

    /// A batch is processed by the thread that brought it.
    pub fn on_inline(&mut self, frames: usize) {
        self.counters.squeue_inline_batches += u64::from(frames > 0);
        self.sizes.add(frames);
    }

    /// A batch came by soft rings and is processed, which another thread had queued.
    pub fn on_drained(&mut self, frames: usize) {
        self.arrived += frames;
        self.counters.squeue_queued_batches += u64::from(frames > 0);
        self.sizes.add(frames);
    }

    /// The thread that just left found that work had been queued for it, see
    /// [`Door`](crate::Door::is_owed); counted when somebody is inside again.
    pub fn on_owed(&mut self) {
        self.counters.squeue_owed_on_leaving += 1;
    }

    /// Somebody was woken to run the squeue.
    pub fn on_wakeup(&mut self) {
        self.counters.squeue_worker_wakeups += 1;
    }

    /// A turn of the loop ended at `now`: what has arrived is the backlog that it found. Says how the next frames come.
    pub fn on_turn(&mut self, now: Instant) -> Mode {
        let backlog = core::mem::take(&mut self.arrived);
        match self.mode {
            Mode::Interrupt => self.counters.interrupt_turns += 1,
            Mode::Poll => self.counters.poll_turns += 1,
        }
        let Polling::Adaptive(marks) = self.polling else { return self.mode };
        match self.mode {
            Mode::Interrupt if backlog > marks.backlog_high => {
                self.mode = Mode::Poll;
                self.calm_since = None;
                self.counters.to_polling += 1;
            }
            Mode::Interrupt => {}
            Mode::Poll if backlog > marks.backlog_low.min(marks.backlog_high) => {
                self.calm_since = None;
            }
            Mode::Poll => {
                let since = *self.calm_since.get_or_insert(now);
                if now.since(since) >= marks.calm {
                    self.mode = Mode::Interrupt;
                }
            }
        }
        self.mode
    }

    /// How the next frames come.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// What happened at this squeue.
    #[must_use]
    pub fn counters(&self) -> &SqueueCounters {
        &self.counters
    }

    /// The sizes of the batches processed.
    #[must_use]
    pub fn batch_sizes(&self) -> &BatchSizes {
        &self.sizes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Instant {
        Instant::from_micros(us)
    }

    fn turn(discipline: &mut Discipline, us: u64, backlog: usize) -> Mode {
        discipline.on_arrived(backlog);
        discipline.on_turn(at(us))
    }

    #[test]
    fn polling_begins_above_the_high_mark_and_ends_after_a_calm() {
        let mut discipline = Discipline::new(Polling::ADAPTIVE);
        assert_eq!(turn(&mut discipline, 0, 64), Mode::Interrupt);
        assert_eq!(turn(&mut discipline, 1, 65), Mode::Poll);
        // Between the marks nothing changes, however long.
        assert_eq!(turn(&mut discipline, 1_000, 9), Mode::Poll);
        assert_eq!(turn(&mut discipline, 2_000, 8), Mode::Poll);
        assert_eq!(turn(&mut discipline, 2_199, 0), Mode::Poll);
        // A backlog begins the calm anew.
        assert_eq!(turn(&mut discipline, 2_200, 9), Mode::Poll);
        assert_eq!(turn(&mut discipline, 2_300, 0), Mode::Poll);
        assert_eq!(turn(&mut discipline, 2_499, 0), Mode::Poll);
        assert_eq!(turn(&mut discipline, 2_500, 0), Mode::Interrupt);
        assert_eq!(turn(&mut discipline, 2_501, 9), Mode::Interrupt);
        // The calm of another time is none of this one's.
        assert_eq!(turn(&mut discipline, 2_600, 65), Mode::Poll);
        assert_eq!(turn(&mut discipline, 2_601, 0), Mode::Poll);
        assert_eq!(turn(&mut discipline, 2_801, 0), Mode::Interrupt);
        let counters = discipline.counters();
        assert_eq!(counters.to_polling, 2);
        assert_eq!((counters.interrupt_turns, counters.poll_turns), (4, 9));
    }

    #[test]
    fn who_never_polls_and_who_always_does_go_by_no_mark() {
        for (polling, mode) in [(Polling::Off, Mode::Interrupt), (Polling::Always, Mode::Poll)] {
            let mut discipline = Discipline::new(polling);
            for (us, backlog) in [(0, 0), (1, 10_000), (2, 10_000), (1_000_000, 0)] {
                assert_eq!(turn(&mut discipline, us, backlog), mode);
            }
            let counters = discipline.counters();
            assert_eq!(counters.to_polling, 0);
        }
        for (polling, name) in Polling::ALL {
            assert_eq!((name.parse(), polling.name()), (Ok(polling), name));
        }
        assert_eq!("sometimes".parse::<Polling>(), Err(UnknownPolling));
    }

    #[test]
    fn who_comes_in_is_counted() {
        let mut discipline = Discipline::new(Polling::ADAPTIVE);
        for (thread, contended) in [(1, false), (1, true), (2, false), (1, false)] {
            discipline.on_enter(ThreadToken(thread), contended);
        }
        let counters = discipline.counters();
        assert_eq!(counters.squeue_enters, 4);
        assert_eq!(counters.squeue_enters_contended, 1);
        assert_eq!(counters.squeue_migrations, 2);
    }

    #[test]
    fn a_budget_ends_by_frames_or_by_time() {
        let discipline = Discipline::new(Polling::ADAPTIVE);
        let mut budget = discipline.budget(at(0));
        assert!(budget.spend(at(0), INLINE_FRAMES_MAX - 1));
        assert!(!budget.spend(at(0), 1));
        let mut budget = discipline.budget(at(0));
        assert!(budget.spend(at(999), 1));
        assert!(!budget.spend(at(1_000), 1));
    }
}
