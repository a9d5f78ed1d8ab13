//! For how long a frame is offered again that the interface did not take.
//!
//! packet(7) says ENOBUFS of a frame when a queue below was full. The kernel's copy is gone then, ours is not,
//! so the frame is offered again and nothing is lost. But the kernel says the same of a frame that something
//! below drops whatever the room: the far end of a veth pair has a shorter MTU, a program or a filter on the
//! way out does not want it. Offered again, such a frame would stand in front of all others for ever.
//!
//! So it is a matter of time. Where nothing was taken for [`PATIENCE`], the frame in front is given up, as a
//! host gives up what a full queue drops. Those behind it are likely to be of its kind, so for [`HASTE`] what is
//! refused is given up at once; that ends early after [`IN_A_ROW_MAX`] of them without one that
//! passed, because then the queue may be full after all.

use std::time::{Duration, Instant};

/// Longer than a queue takes to send one frame: a full one of 1,500 bytes at 120 kbit/s.
const PATIENCE: Duration = Duration::from_millis(100);

/// How long it is assumed that frames are dropped for what they are.
const HASTE: Duration = Duration::from_secs(1);

/// Frames given up one behind the other, at most: a batch.
const IN_A_ROW_MAX: usize = 64;

/// A refusal that was followed by no other for so long has nothing to do with the next one.
const FORGOTTEN: Duration = Duration::from_secs(1);

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// When a frame was refused first and last, of the refusals since one was taken.
    refused: Option<(Instant, Instant)>,
    /// Until when what is refused is given up.
    hasty_until: Option<Instant>,
    /// Frames given up since one was taken.
    in_a_row: usize,
}

impl Patience {
    /// A frame was taken.
    pub(super) fn on_taken(&mut self) {
        (self.refused, self.in_a_row) = (None, 0);
    }

    /// A frame was refused for want of room. Whether it is to be given up.
    pub(super) fn gives_up(&mut self, now: Instant) -> bool {
        let is_hasty = self.hasty_until.is_some_and(|until| now < until);
        if is_hasty && self.in_a_row < IN_A_ROW_MAX {
            self.in_a_row += 1;
            return true;
        }
        self.hasty_until = None;
        let is_recent = |last: Instant| now.saturating_duration_since(last) < FORGOTTEN;
        let first =
            self.refused.filter(|(_, last)| is_recent(*last)).map_or(now, |(first, _)| first);
        self.refused = Some((first, now));
        if now.saturating_duration_since(first) < PATIENCE {
            return false;
        }
        (self.refused, self.in_a_row) = (None, 1);
        self.hasty_until = Some(now + HASTE);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// How many milliseconds a frame is offered, at one offer each, before it is given up.
    fn offered(patience: &mut Patience, now: &mut Instant) -> usize {
        let mut count = 0;
        while !patience.gives_up(*now) {
            *now += MS;
            count += 1;
            assert!(count < 10_000, "it is offered for ever");
        }
        count
    }

    #[test]
    fn a_frame_that_is_never_taken_is_given_up_and_then_those_like_it() {
        let (mut patience, mut now) = (Patience::default(), Instant::now());
        assert_eq!(offered(&mut patience, &mut now), 100);
        // Others pass in between.
        for _ in 0..900 {
            assert_eq!(offered(&mut patience, &mut now), 0);
            patience.on_taken();
            now += MS;
        }
        now += 100 * MS;
        assert_eq!(offered(&mut patience, &mut now), 100, "once a second it is tried");
    }

    #[test]
    fn a_queue_that_drains_loses_nothing() {
        let (mut patience, mut now) = (Patience::default(), Instant::now());
        for _ in 0..1_000 {
            for _ in 0..100 {
                assert!(!patience.gives_up(now));
                now += MS;
            }
            patience.on_taken();
        }
    }

    #[test]
    fn a_queue_that_stands_still_loses_a_batch_and_not_all() {
        let (mut patience, mut now) = (Patience::default(), Instant::now());
        for _ in 0..3 {
            assert_eq!(offered(&mut patience, &mut now), 100);
            for _ in 1..IN_A_ROW_MAX {
                assert_eq!(offered(&mut patience, &mut now), 0);
            }
        }
    }

    #[test]
    fn a_refusal_of_long_ago_does_not_count() {
        let (mut patience, now) = (Patience::default(), Instant::now());
        assert!(!patience.gives_up(now));
        assert!(!patience.gives_up(now + 1_000 * MS));
        assert!(patience.gives_up(now + 1_100 * MS));
    }
}
