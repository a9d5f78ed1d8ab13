//! How large a window to offer: dynamic right-sizing.
//!
//! A window of one round trip's worth of data keeps a path busy, and nobody knows beforehand how much
//! that is: from a few kilobytes beside us to megabytes across an ocean. So the window begins modest
//! and grows with what the application reads in a round trip. While the peer is in slow start, what
//! arrives doubles every round trip; so twice of what was read is offered, and more where the last
//! round read more than the one before it. Nothing shrinks here: a window that is not used costs
//! nothing but a promise, and the promise is bounded.
//!
//! ```text
//!   on_read(bytes)     on_echo(TSecr)     on_batch_end(now, RCV.NXT, edge)
//!            \               |               /
//!             read in this round trip  ->  capacity, up to the limit (`tcp_recv_hiwat`)
//! ```
//!
//! Beside us it does not grow that far ([`crate::buffers`]).
//!
//! The round trip is that of the receiver: how old the timestamp is that the newest data echoes, the
//! least of a round, because a sender with nothing to send lets echoes grow old. Our clock ticks in
//! milliseconds; below that, and without timestamps, it is what our own segments measured (the
//! handshake at least) or how long a whole window takes to turn over, whichever is less.

use crate::buffers::{NEAR, growth_max, is_near};
use time::{Duration, Instant, nanos};
use wire::SeqNumber;

/// Segments that are read in a first round trip without being remarkable: RFC 6928's window.
const FIRST_ROUND_SEGMENTS: u32 = 10;

/// Segments offered beside twice of what was read.
const SPARE_SEGMENTS: u32 = 16;

/// A tick of the clock of our timestamps.
const TICK_US: u32 = 1_000;

/// What is known at the end of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observed {
    pub(crate) now: Instant,
    /// RCV.NXT.
    pub(crate) next: SeqNumber,
    /// RCV.NXT + RCV.WND.
    pub(crate) edge: SeqNumber,
    /// The age of the timestamp that the newest data echoed, if it did for the first time: zero
    /// within the tick.
    pub(crate) echo: Option<Duration>,
    /// What our own segments measured, and the least of it.
    pub(crate) own_rtt_ns: Option<u64>,
    pub(crate) own_rtt_min_ns: Option<u64>,
    /// The peer's full segment.
    pub(crate) mss: u32,
}

/// The tuning of one connection's receive window.
#[derive(Clone, Debug)]
pub(crate) struct WindowTuning {
    /// The largest window; 0 where the size was fixed by the user.
    limit_bytes: u32,
    /// Read by the application in this round trip, and the most that was in one before.
    read_bytes: u32,
    read_bytes_max: u32,
    round_started_at: Instant,
    /// The least of this round's echoes, and what the last round found.
    echo_us: u32,
    rtt_us: u32,
    /// The newest timestamp echoed, and whether it was looked at.
    echoed: u32,
    is_echo_new: bool,
    /// When more has come than was offered at the beginning of this turn, a window has turned over.
    turn: Option<(SeqNumber, Instant)>,
    turn_us: u32,
    /// A window has turned over in less than [`NEAR`], or an echo came within the tick in which its
    /// timestamp went out. Both take a round trip at least, so the path is a near one, even where
    /// the handshake, the only segments a receiver can measure, was slow.
    was_near: bool,
}

const UNKNOWN: u32 = u32::MAX;

impl WindowTuning {
    pub(crate) fn new(now: Instant, limit_bytes: usize) -> Self {
        Self {
            limit_bytes: u32::try_from(limit_bytes).unwrap_or(u32::MAX),
            read_bytes: 0,
            read_bytes_max: 0,
            round_started_at: now,
            echo_us: UNKNOWN,
            rtt_us: UNKNOWN,
            echoed: 0,
            is_echo_new: false,
            turn: None,
            turn_us: UNKNOWN,
            was_near: false,
        }
    }

    /// No more than this can be announced.
    pub(crate) fn set_limit(&mut self, limit_bytes: usize) {
        self.limit_bytes = self.limit_bytes.min(u32::try_from(limit_bytes).unwrap_or(u32::MAX));
    }

    /// The user fixed the size.
    pub(crate) fn turn_off(&mut self) {
        self.limit_bytes = 0;
    }

    /// The application read so much.
    #[inline]
    pub(crate) fn on_read(&mut self, bytes: usize) {
        self.read_bytes = self.read_bytes.saturating_add(bytes as u32);
    }

    /// Data came that echoes this timestamp of ours.
    #[inline]
    pub(crate) fn on_echo(&mut self, echo: u32) {
        self.is_echo_new |= echo != self.echoed;
        self.echoed = echo;
    }

    /// The newest echo, once.
    pub(crate) fn take_echo(&mut self) -> Option<u32> {
        core::mem::take(&mut self.is_echo_new).then_some(self.echoed)
    }

    /// The receiver's estimate of the round-trip time, once there is one.
    pub(crate) fn rtt(&self, own_rtt_ns: Option<u64>) -> Option<Duration> {
        self.rtt_ns(own_rtt_ns).map(Duration::from_nanos)
    }

    /// The same in nanoseconds.
    #[inline]
    pub(crate) fn rtt_ns(&self, own_rtt_ns: Option<u64>) -> Option<u64> {
        let own_us = own_rtt_ns.map_or(UNKNOWN, |ns| bounded_us(ns / 1_000));
        // The last round may have had no echo but that of the data that ended a silence. It must not last as long as that.
        let echoed_us = self.rtt_us.min(self.echo_us);
        let us = match echoed_us {
            // Finer than the clock: the other sources may know better.
            UNKNOWN => own_us.min(self.turn_us),
            echoed_us if echoed_us <= TICK_US => own_us.min(self.turn_us).min(TICK_US),
            echoed_us => echoed_us,
        };
        (us != UNKNOWN).then(|| u64::from(us.max(1)) * 1_000)
    }

    /// A batch is through: says how large the buffer should be, where it should be larger than
    /// `capacity_bytes`.
    pub(crate) fn on_batch_end(
        &mut self,
        observed: &Observed,
        capacity_bytes: usize,
    ) -> Option<usize> {
        let Observed { now, mss, .. } = *observed;
        self.measure(observed);
        let rtt_ns = self.rtt_ns(observed.own_rtt_ns)?;
        if now < self.round_started_at.after_nanos(rtt_ns) {
            return None;
        }
        self.round_started_at = now;
        if self.echo_us != UNKNOWN {
            self.rtt_us = core::mem::replace(&mut self.echo_us, UNKNOWN);
        }
        let read = u64::from(core::mem::take(&mut self.read_bytes));
        // Of long segments the window of a first round takes in two or three, and half of it is much.
        let unremarkable = (FIRST_ROUND_SEGMENTS * mss).min(capacity_bytes as u32 / 2);
        let before = u64::from(self.read_bytes_max.max(unremarkable).max(1));
        if read <= before {
            return None;
        }
        self.read_bytes_max = read as u32;
        let twice = 2 * read + u64::from(SPARE_SEGMENTS * mss);
        // What was read grew: it will have grown again before a larger window takes effect.
        let ahead = (2 * twice).saturating_mul(read - before) / before;
        let is_near = self.was_near || is_near(observed.own_rtt_min_ns);
        let limit_bytes = growth_max(self.limit_bytes as usize, is_near);
        let wanted = twice.saturating_add(ahead).min(limit_bytes as u64) as usize;
        (wanted > capacity_bytes).then_some(wanted)
    }

    fn measure(&mut self, observed: &Observed) {
        if let Some(echo) = observed.echo {
            self.was_near |= echo < NEAR;
            self.echo_us = self.echo_us.min(to_us(echo).max(TICK_US));
        }
        let now = observed.now;
        match self.turn {
            // What lies beyond was sent by who had heard of more than this, and so after a round
            // trip; what lies within may have been under way when the turn began.
            Some((end, _)) if !observed.next.is_after(end) => return,
            Some((_, started_at)) => {
                let took = now - started_at;
                self.was_near |= took < NEAR;
                let sample_us = to_us(took).max(1);
                // The least counts, for a sender may pause; but paths become longer, too.
                let most_us = self.turn_us.saturating_add(self.turn_us / 8);
                self.turn_us = sample_us.min(most_us);
            }
            None => {}
        }
        self.turn = Some((observed.edge, now));
    }
}

fn to_us(duration: Duration) -> u32 {
    bounded_us(nanos(duration) / 1_000)
}

fn bounded_us(us: u64) -> u32 {
    u32::try_from(us).unwrap_or(UNKNOWN - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1_000;

    fn observed(now_ms: u64, echo_ms: Option<u64>) -> Observed {
        Observed {
            now: Instant::from_millis(now_ms),
            next: SeqNumber(0),
            edge: SeqNumber(1 << 20),
            echo: echo_ms.map(Duration::from_millis),
            own_rtt_ns: None,
            own_rtt_min_ns: None,
            mss: MSS,
        }
    }

    #[test]
    fn the_buffer_follows_what_is_read_in_a_round_trip_up_to_the_limit() {
        let mut tuning = WindowTuning::new(Instant::ZERO, 1_000_000);
        assert_eq!(tuning.on_batch_end(&observed(1, Some(20)), 100_000), None, "not a round yet");
        tuning.on_read(10_000);
        assert_eq!(tuning.on_batch_end(&observed(21, None), 100_000), None, "nothing remarkable");
        tuning.on_read(20_000);
        assert_eq!(tuning.on_batch_end(&observed(40, None), 100_000), None, "in the same round");
        // Twice as much as before: 2 * 20,000 + 16 segments, and as much again, twice.
        assert_eq!(tuning.on_batch_end(&observed(41, None), 100_000), Some(3 * 56_000));
        tuning.on_read(20_000);
        assert_eq!(tuning.on_batch_end(&observed(61, None), 100_000), None, "no more than before");
        tuning.on_read(600_000);
        assert_eq!(tuning.on_batch_end(&observed(81, None), 168_000), Some(1_000_000));
    }

    /// Interfaces with an MTU of 64 KiB, as containers without root have them.
    #[test]
    fn a_window_that_takes_in_two_segments_grows() {
        let mut tuning = WindowTuning::new(Instant::ZERO, 6 << 20);
        let long = |now_ms| Observed { mss: 65_468, ..observed(now_ms, None) };
        tuning.on_batch_end(&Observed { mss: 65_468, ..observed(1, Some(20)) }, 128 << 10);
        tuning.on_read(2 * 65_468);
        let grown = tuning.on_batch_end(&long(21), 128 << 10).expect("it limits");
        assert!(grown > 1 << 20, "{grown}");
    }

    #[test]
    fn however_much_is_read_the_limit_holds() {
        let mut tuning = WindowTuning::new(Instant::ZERO, 1 << 30);
        tuning.on_batch_end(&observed(1, Some(20)), 100_000);
        tuning.on_read(usize::MAX >> 1);
        tuning.on_read(usize::MAX >> 1);
        assert_eq!(tuning.on_batch_end(&observed(41, None), 100_000), Some(1 << 30));
    }

    #[test]
    fn on_a_near_path_a_buffer_stays_within_what_a_cache_holds() {
        let mut tuning = WindowTuning::new(Instant::ZERO, 6 << 20);
        let near = |now_ms| Observed {
            own_rtt_ns: Some(300_000),
            own_rtt_min_ns: Some(50_000),
            ..observed(now_ms, None)
        };
        tuning.on_read(1 << 20);
        assert_eq!(tuning.on_batch_end(&near(1), 100_000), Some(1 << 20));
        tuning.on_read(3 << 20);
        assert_eq!(tuning.on_batch_end(&near(2), 1 << 20), None);
    }

    #[test]
    fn a_window_that_turns_over_at_once_shows_a_near_path() {
        let mut tuning = WindowTuning::new(Instant::ZERO, 6 << 20);
        let at = |now_us, next, edge| Observed {
            now: Instant::from_micros(now_us),
            next: SeqNumber(next),
            edge: SeqNumber(edge),
            own_rtt_ns: Some(30_000_000),
            own_rtt_min_ns: Some(30_000_000),
            ..observed(0, None)
        };
        tuning.on_batch_end(&at(10, 0, 100_000), 100_000);
        tuning.on_read(3 << 20);
        assert_eq!(
            tuning.on_batch_end(&at(60_000, 100_000, 100_000), 100_000),
            Some(6 << 20),
            "to the edge: it may have been under way"
        );
        tuning.on_batch_end(&at(60_100, 100_001, 200_000), 100_000);
        tuning.on_batch_end(&at(60_900, 200_001, 300_000), 100_000);
        tuning.on_read(4 << 20);
        assert_eq!(tuning.on_batch_end(&at(99_000, 200_002, 300_000), 100_000), Some(1 << 20));
    }

    #[test]
    fn an_echo_within_its_tick_shows_a_near_path() {
        for (echo_ms, wanted) in [(0, 1 << 20), (1, 6 << 20)] {
            let mut tuning = WindowTuning::new(Instant::ZERO, 6 << 20);
            tuning.on_read(3 << 20);
            assert_eq!(tuning.on_batch_end(&observed(5, Some(echo_ms)), 100_000), Some(wanted));
        }
    }

    #[test]
    fn a_fixed_size_stays() {
        let mut tuning = WindowTuning::new(Instant::ZERO, 1_000_000);
        tuning.turn_off();
        for at in 0..100 {
            tuning.on_read(500_000);
            assert_eq!(tuning.on_batch_end(&observed(at * 20, Some(20)), 100_000), None);
        }
    }

    #[test]
    fn the_round_trip_is_the_least_of_a_round_and_below_a_tick_what_we_measured() {
        let mut tuning = WindowTuning::new(Instant::ZERO, 1_000_000);
        assert_eq!(tuning.rtt(None), None);
        let (own, own_ns) = (Some(Duration::from_micros(80)), Some(80_000));
        assert_eq!(tuning.rtt(own_ns), own);
        for (at, echo) in [(100, 50), (101, 30), (102, 70), (200, 40)] {
            tuning.on_batch_end(&observed(at, Some(echo)), 0);
        }
        assert_eq!(tuning.rtt(own_ns), Some(Duration::from_millis(30)));
        tuning.on_batch_end(&observed(300, Some(1)), 0);
        tuning.on_batch_end(&observed(400, None), 0);
        assert_eq!(tuning.rtt(own_ns), own);
        assert_eq!(tuning.rtt(None), Some(Duration::from_millis(1)));
    }

    // The peer had nothing to send for an hour, and so echoes what was sent to it an hour ago.
    #[test]
    fn a_silence_is_no_round_trip() {
        let mut tuning = WindowTuning::new(Instant::ZERO, 1_000_000);
        for (at, echo) in [(100, 20), (3_600_100, 3_600_000), (3_600_120, 20)] {
            tuning.on_batch_end(&observed(at, Some(echo)), 0);
        }
        assert_eq!(tuning.rtt(None), Some(Duration::from_millis(20)));
        tuning.on_read(20_000);
        assert_eq!(tuning.on_batch_end(&observed(3_600_140, None), 100_000), Some(168_000));
    }

    #[test]
    fn without_timestamps_the_turn_of_a_window_is_a_round_trip() {
        let mut tuning = WindowTuning::new(Instant::ZERO, 1_000_000);
        let at = |now_ms, next| Observed {
            next: SeqNumber(next),
            edge: SeqNumber(next + 1_000),
            ..observed(now_ms, None)
        };
        tuning.on_batch_end(&at(10, 0), 0);
        tuning.on_batch_end(&at(30, 1_000), 0);
        assert_eq!(tuning.rtt(None), None);
        tuning.on_batch_end(&at(40, 1_001), 0);
        assert_eq!(tuning.rtt(None), Some(Duration::from_millis(30)));
        tuning.on_batch_end(&at(9_000, 2_002), 0);
        assert_eq!(tuning.rtt(None), Some(Duration::from_micros(33_750)), "a pause is no path");
    }

    /// In a silence it would grow old, and be taken for the round trip.
    #[test]
    fn an_echo_is_looked_at_once() {
        let mut tuning = WindowTuning::new(Instant::ZERO, 1_000_000);
        for (echo, looked_at) in [(7, Some(7)), (7, None), (8, Some(8))] {
            tuning.on_echo(echo);
            assert_eq!(tuning.take_echo(), looked_at);
            assert_eq!(tuning.take_echo(), None);
        }
    }
}
