//! Coalescing: how many frames are handed up in one call, and how long the first waits for the last.
//!
//! Seed 003, section 5.2: the adapter hands up several frames by one transfer, when a number of frames
//! that the host names has come or when no frame came for a time that the host sets; each frame sets
//! that timer anew. Here it is a state machine beside a queue. Whoever polls the queue asks how many
//! frames to fetch ([`Coalescer::frames_max`]), says how many there were ([`Coalescer::on_received`]),
//! and is told to hand them up or to come back, at the latest at a given time.
//!
//! ```text
//!                  frames_max() ---> fetch ---> on_received(now, frames, more)
//!                       ^                          |                  |
//!                       |            Hold { until }|                  | HandUp
//!                       +--- a frame, or `until` --+                  +--> process, on_handed_up()
//! ```
//!
//! * Both off (`count` 1 or less, no hold-off): one by one.
//! * A count alone: as many as are there, up to the count. Nothing is waited for, because without a timer
//!   nothing would end the wait (seed 003 has the same remark).
//! * A hold-off alone: until no frame came for so long, or [`FRAMES_MAX`] have.
//! * Adaptive, the default: nothing is ever held back, so a lone frame goes up at once. The number
//!   fetched in one call doubles while calls come back full with more behind them, and halves when they
//!   come back nearly empty: the batch grows under backlog and only there. It is never less than
//!   [`ADAPTIVE_MIN`], which is what a burst may be before it is a backlog: from one on, a burst of
//!   thirty-two would be handed up in six parts, with as many decisions what to acknowledge.

use time::{Duration, Instant};

/// The largest batch by any setting.
pub const FRAMES_MAX: usize = 256;

/// The least that is fetched by the adaptive setting, where there is so much. At a microsecond a frame
/// (a read from a TAP) the last of them delays the first by less than a wake-up does.
pub const ADAPTIVE_MIN: usize = 32;

/// How frames of a queue are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coalescing {
    /// Frames handed up in one call at most: the batch is complete with so many. 0 and 1 are off. With
    /// `adaptive` the bound that the batch may grow to, where 0 is [`FRAMES_MAX`].
    pub count: usize,
    /// How long after each frame the next is waited for; zero is off. Not used with `adaptive`.
    pub hold_off: Duration,
    /// Grow with the backlog and hold nothing back.
    pub adaptive: bool,
}

impl Default for Coalescing {
    fn default() -> Self {
        Self::ADAPTIVE
    }
}

impl Coalescing {
    /// Grows with the backlog, holds nothing back.
    pub const ADAPTIVE: Self = Self { count: 0, hold_off: Duration::ZERO, adaptive: true };

    /// One by one.
    pub const OFF: Self = Self { count: 0, hold_off: Duration::ZERO, adaptive: false };
}

/// What to do with the frames fetched so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Hand them up now.
    HandUp,
    /// Keep them, and fetch again when a frame comes, at the latest then.
    Hold {
        /// When the hold-off ends.
        until: Instant,
    },
}

/// The coalescing of one queue.
#[derive(Clone, Debug)]
pub struct Coalescer {
    config: Coalescing,
    /// Frames held.
    held: usize,
    /// Adaptive: how many to fetch in one call.
    window: usize,
    /// When the hold-off ends, while frames are held.
    until: Option<Instant>,
}

impl Coalescer {
    /// With nothing held.
    #[must_use]
    pub fn new(config: Coalescing) -> Self {
        Self { config, held: 0, window: ADAPTIVE_MIN, until: None }
    }

    /// The setting.
    #[must_use]
    pub fn config(&self) -> Coalescing {
        self.config
    }

    /// How many frames to fetch by the next call: at least 1, at most [`FRAMES_MAX`].
    #[must_use]
    pub fn frames_max(&self) -> usize {
        if self.config.adaptive {
            self.window.min(self.limit())
        } else {
            (self.limit() - self.held.min(self.limit())).max(1)
        }
    }

    /// When held frames are to be handed up at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.until
    }

    /// Takes note of a fetch at `now`, which brought `frames` and left `more` in the queue. To be told
    /// also of a fetch that brought none: it may be the end of a hold-off.
    pub fn on_received(&mut self, now: Instant, frames: usize, more: bool) -> Verdict {
        if self.config.adaptive {
            self.adapt(frames, more);
            return Verdict::HandUp;
        }
        self.held = self.held.saturating_add(frames);
        if self.config.hold_off.is_zero() || self.held >= self.limit() {
            return Verdict::HandUp;
        }
        if frames > 0 {
            self.until = Some(now + self.config.hold_off);
        }
        match self.until {
            // Frames that are there already need no wait; the bound is checked above.
            Some(until) if now < until => Verdict::Hold { until },
            _ => Verdict::HandUp,
        }
    }

    /// The frames were handed up: the next one begins a batch.
    pub fn on_handed_up(&mut self) {
        self.held = 0;
        self.until = None;
    }

    fn adapt(&mut self, frames: usize, more: bool) {
        if frames >= self.frames_max() && more {
            self.window = (2 * self.window).min(FRAMES_MAX);
        } else if frames.saturating_mul(4) < self.window {
            self.window = (self.window / 2).max(ADAPTIVE_MIN);
        }
    }

    fn limit(&self) -> usize {
        match self.config {
            Coalescing { count: 0, hold_off: Duration::ZERO, adaptive: false } => 1,
            Coalescing { count: 0, .. } => FRAMES_MAX,
            Coalescing { count, .. } => count.min(FRAMES_MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    fn at(us: u64) -> Instant {
        Instant::from_micros(us)
    }

    fn fixed(count: usize, hold_off: Duration) -> Coalescer {
        Coalescer::new(Coalescing { count, hold_off, adaptive: false })
    }

    #[test]
    fn both_off_is_one_by_one() {
        for count in [0, 1] {
            let mut coalescer = fixed(count, Duration::ZERO);
            for _ in 0..3 {
                assert_eq!(coalescer.frames_max(), 1);
                assert_eq!(coalescer.on_received(at(0), 1, true), Verdict::HandUp);
                coalescer.on_handed_up();
            }
        }
    }

    #[test]
    fn each_frame_sets_the_timer_anew_and_the_count_ends_the_wait() {
        let mut coalescer = fixed(4, 50 * US);
        assert_eq!(coalescer.on_received(at(0), 1, false), Verdict::Hold { until: at(50) });
        assert_eq!(coalescer.frames_max(), 3);
        assert_eq!(coalescer.on_received(at(40), 1, false), Verdict::Hold { until: at(90) });
        // Woken for nothing: the timer stands.
        assert_eq!(coalescer.on_received(at(60), 0, false), Verdict::Hold { until: at(90) });
        assert_eq!(coalescer.deadline(), Some(at(90)));
        assert_eq!(coalescer.on_received(at(89), 2, false), Verdict::HandUp);
        coalescer.on_handed_up();
        assert_eq!((coalescer.frames_max(), coalescer.deadline()), (4, None));
        // Seed 003: four frames of 42 came, and no more.
        assert_eq!(coalescer.on_received(at(100), 3, false), Verdict::Hold { until: at(150) });
        assert_eq!(coalescer.on_received(at(150), 0, false), Verdict::HandUp);
    }

    #[test]
    fn a_count_alone_waits_for_nothing() {
        let mut coalescer = fixed(42, Duration::ZERO);
        assert_eq!(coalescer.frames_max(), 42);
        assert_eq!(coalescer.on_received(at(0), 1, false), Verdict::HandUp);
    }

    #[test]
    fn a_hold_off_alone_ends_with_silence_or_the_largest_batch() {
        let mut coalescer = fixed(0, 10 * US);
        assert_eq!(coalescer.frames_max(), FRAMES_MAX);
        for us in 0..FRAMES_MAX as u64 - 1 {
            assert_eq!(
                coalescer.on_received(at(us), 1, false),
                Verdict::Hold { until: at(us + 10) }
            );
        }
        assert_eq!(coalescer.on_received(at(300), 1, false), Verdict::HandUp);
    }

    #[test]
    fn the_adaptive_batch_grows_under_backlog_and_only_there_and_holds_nothing() {
        let mut coalescer = Coalescer::new(Coalescing::default());
        // Request and response.
        for us in 0..100 {
            assert_eq!(coalescer.frames_max(), ADAPTIVE_MIN);
            assert_eq!(coalescer.on_received(at(us), 1, false), Verdict::HandUp);
            coalescer.on_handed_up();
        }
        for power in 5..=8 {
            assert_eq!(coalescer.frames_max(), 1 << power);
            assert_eq!(coalescer.on_received(at(200), 1 << power, true), Verdict::HandUp);
        }
        assert_eq!(coalescer.frames_max(), FRAMES_MAX);
        for _ in 0..8 {
            coalescer.on_received(at(300), 1, false);
        }
        assert_eq!(coalescer.frames_max(), ADAPTIVE_MIN);
        let bounded = Coalescing { count: 8, ..Coalescing::ADAPTIVE };
        let mut coalescer = Coalescer::new(bounded);
        for _ in 0..9 {
            coalescer.on_received(at(0), coalescer.frames_max(), true);
        }
        assert_eq!(coalescer.frames_max(), 8);
    }

    #[test]
    fn no_figure_makes_it_panic() {
        for config in [
            Coalescing { count: usize::MAX, hold_off: Duration::MAX / 4, adaptive: false },
            Coalescing { count: usize::MAX, ..Coalescing::ADAPTIVE },
        ] {
            let mut coalescer = Coalescer::new(config);
            for frames in [usize::MAX, 0, 1, usize::MAX / 2] {
                coalescer.on_received(at(1), frames, true);
                assert!((1..=FRAMES_MAX).contains(&coalescer.frames_max()));
            }
        }
    }
}
