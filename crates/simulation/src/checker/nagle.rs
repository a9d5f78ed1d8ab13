//! Nagle's algorithm (RFC 9293, 3.7.4) with Minshall's modification (A.3): while a small segment is
//! unacknowledged, no other small one is sent.
//!
//! What is small depends on a path of which the wire does not show all, so only what is small on every
//! path counts here. Half of the largest window that the peer ever had is worth sending, too (RFC 9293,
//! 3.8.6.2.1, MUST-38), so it is not small.

use super::Broken;
use crate::packet::Segment;
use time::{Duration, Instant};

/// Smaller than a full segment of every path of IPv4 with all options (RFC 9293, 3.7.1: 536).
const SMALL_MAX: u64 = 400;

/// RFC 8985, 7.3: a tail loss probe takes new data, and never goes out sooner than this after the last.
const PROBE_MIN: Duration = Duration::from_millis(2);

/// One that was sent so long ago may be behind what a timer let go.
const SMALL_AGE_MAX: Duration = Duration::from_millis(10);

/// The small segment that was sent last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Nagle {
    small_end: u64,
    small_at: Option<Instant>,
    sent_at: Option<Instant>,
}

impl Nagle {
    /// New data goes out, up to `end`, which is not the edge of the window. `full`: the peer's MSS, or its
    /// largest window where that is less.
    pub(super) fn judge(
        &self,
        now: Instant,
        segment: &Segment<'_>,
        (end, acked): (u64, u64),
        full: u64,
    ) -> Result<(), Broken> {
        let may_probe = self.sent_at.is_none_or(|at| now.since(at) >= PROBE_MIN)
            || self.small_at.is_none_or(|at| now.since(at) >= SMALL_AGE_MAX);
        if !is_small(segment.payload.len(), full) || self.small_end <= acked || may_probe {
            return Ok(());
        }
        let what = format!("{segment}: up to {end}, {self:?}, {acked} is acknowledged");
        Err(("RFC 9293, 3.7.4 and A.3: one small segment at a time", what))
    }

    /// Data went out, where it is new up to `new_to`. A single byte may be the probe of a closed window, which is not yet
    /// the sending of it.
    pub(super) fn on_sent(&mut self, now: Instant, new_to: Option<u64>, len: usize, full: u64) {
        if let Some(end) = new_to.filter(|_| len > 1 && is_small(len, full)) {
            (self.small_end, self.small_at) = (end, Some(now));
        }
        self.sent_at = Some(now);
    }
}

fn is_small(len: usize, full: u64) -> bool {
    (len as u64) < SMALL_MAX.min(full / 2)
}
