//! From those who read, to what is taken in.
//!
//! Where more comes than readers keep up with, a squeue that takes in whatever its devices have comes to hold all that may
//! be unread, and from then on drops what it has spent its work on: receive livelock (seed 003, chapter 2). What is left in
//! a device costs nothing, and its senders see the delay. So once half of what may be unread is, each batch *inhibits*
//! input until its readers have had their turn: until half of it was read, and all of it where no room is left. At most
//! for 4 ms, because some read late or never, and acknowledgments must come in; and where most who were waited for did not
//! come, for a quarter of that the next time: many hold what they do not read for long, and others are not to wait for
//! them. It grows again, two-fold each time, when readers come.
//!
//! The remedy, feedback from a queue with a timeout, is that of Mogul and Ramakrishnan, "Eliminating receive livelock in
//! an interrupt-driven kernel" (1997), 6.6.1.

use batch::UnreadBound;
use time::{Duration, Instant};

/// So long a batch keeps input inhibited at most, where readers come and where they do not.
const PATIENCE_MAX: Duration = Duration::from_millis(4);
const PATIENCE_MIN: Duration = Duration::from_micros(125);

/// See the module documentation. Nothing is inhibited at first.
#[derive(Clone, Copy, Debug)]
pub struct Feedback {
    /// Until when input is inhibited, and until so many bytes were read since the beginning.
    until: Instant,
    until_read_bytes: u64,
    /// How many had been when it began to be, and how long it is to be the next time.
    from_read_bytes: u64,
    patience: Duration,
}

impl Default for Feedback {
    fn default() -> Self {
        Self {
            until: Instant::ZERO,
            until_read_bytes: 0,
            from_read_bytes: 0,
            patience: PATIENCE_MAX,
        }
    }
}

impl Feedback {
    /// A batch was taken in that brought so many bytes for readers, who have read `read_bytes` since the beginning.
    #[inline]
    pub fn on_received(
        &mut self,
        now: Instant,
        brought_bytes: u64,
        read_bytes: u64,
        bound: UnreadBound,
    ) {
        if brought_bytes > 0 && bound.is_near() {
            self.inhibit(now, brought_bytes, read_bytes, bound);
        }
    }

    fn inhibit(&mut self, now: Instant, brought_bytes: u64, read_bytes: u64, bound: UnreadBound) {
        let awaited_bytes = self.until_read_bytes - self.from_read_bytes;
        let is_in_vain = read_bytes.saturating_sub(self.from_read_bytes) < awaited_bytes / 4;
        self.patience = match is_in_vain {
            true => PATIENCE_MIN.max(self.patience / 4),
            false => PATIENCE_MAX.min(self.patience * 2),
        };
        // Half of it may stay at first, and nothing in the end: so the bound is neared and not reached.
        let part = 2 * (bound.limit_bytes / 2 / bound.left_bytes.max(1)).max(1);
        self.from_read_bytes = read_bytes;
        self.until_read_bytes = read_bytes + brought_bytes - brought_bytes / part as u64;
        self.until = now + self.patience;
    }

    /// Whether nothing is to be taken in now, where so many bytes were read since the beginning.
    #[inline]
    #[must_use]
    pub fn inhibits(&self, now: Instant, read_bytes: u64, bound: UnreadBound) -> bool {
        self.awaits(read_bytes, bound) && now < self.until
    }

    /// Whether more is to be read, or time to pass, before anything is taken in. What is unread may also be let go of.
    #[inline]
    #[must_use]
    pub fn awaits(&self, read_bytes: u64, bound: UnreadBound) -> bool {
        read_bytes < self.until_read_bytes && bound.is_near()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT_BYTES: usize = 1_000_000;
    const BATCH_BYTES: u64 = 1_000;
    /// Read before.
    const READ_BYTES: u64 = 77_777;

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    fn left(left_bytes: usize) -> UnreadBound {
        UnreadBound { limit_bytes: LIMIT_BYTES, left_bytes }
    }

    /// After a batch that leaves room for so many bytes.
    fn received(brought_bytes: u64, left_bytes: usize) -> Feedback {
        let mut feedback = Feedback::default();
        feedback.on_received(at(0), brought_bytes, READ_BYTES, left(left_bytes));
        feedback
    }

    #[test]
    fn nothing_is_inhibited_while_half_is_left() {
        assert!(!Feedback::default().inhibits(at(0), 0, left(0)));
        let feedback = received(BATCH_BYTES, LIMIT_BYTES / 2);
        assert!(!feedback.inhibits(at(0), READ_BYTES, left(0)));
    }

    #[test]
    fn input_goes_on_when_half_was_read_and_all_of_it_near_the_limit() {
        for (left_bytes, may_stay_bytes) in
            [(LIMIT_BYTES / 2 - 1, 500), (LIMIT_BYTES / 20, 50), (0, 0)]
        {
            let feedback = received(BATCH_BYTES, left_bytes);
            let inhibits = |bytes| feedback.inhibits(at(0), READ_BYTES + bytes, left(left_bytes));
            assert!(inhibits(0), "nothing was read");
            assert!(inhibits(BATCH_BYTES - may_stay_bytes - 1), "with {left_bytes} left");
            assert!(!inhibits(BATCH_BYTES - may_stay_bytes), "with {left_bytes} left");
        }
    }

    /// As where connections that held much are closed, of which nothing is ever read.
    #[test]
    fn input_goes_on_when_half_is_left_again() {
        let feedback = received(BATCH_BYTES, 0);
        assert!(feedback.inhibits(at(0), READ_BYTES, left(LIMIT_BYTES / 2 - 1)));
        assert!(!feedback.inhibits(at(0), READ_BYTES, left(LIMIT_BYTES / 2)));
    }

    #[test]
    fn who_never_reads_delays_others_for_a_bounded_time() {
        let feedback = received(BATCH_BYTES, 0);
        assert_eq!(PATIENCE_MAX, Duration::from_millis(4));
        assert!(feedback.inhibits(at(3), READ_BYTES, left(0)));
        assert!(!feedback.inhibits(at(4), READ_BYTES, left(0)));
    }

    #[test]
    fn who_does_not_come_is_waited_for_less_and_less_until_somebody_does() {
        let mut feedback = received(BATCH_BYTES, 0);
        let mut read_bytes = READ_BYTES;
        let mut waits = |read: u64| {
            read_bytes += read;
            feedback.on_received(at(9), BATCH_BYTES, read_bytes, left(0));
            feedback.until.since(at(9)).as_micros()
        };
        assert_eq!([0; 4].map(&mut waits), [1_000, 250, 125, 125]);
        assert_eq!([BATCH_BYTES / 4; 6].map(&mut waits), [250, 500, 1_000, 2_000, 4_000, 4_000]);
        assert_eq!([BATCH_BYTES / 4 - 1].map(waits), [1_000]);
    }

    #[test]
    fn a_batch_that_brings_nothing_to_read_inhibits_nothing() {
        assert!(!received(0, 0).inhibits(at(0), READ_BYTES, left(0)));
    }
}
