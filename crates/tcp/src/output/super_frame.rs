//! Whole super-frames.
//!
//! Where the device takes a run of segments as one super-frame of 64 KiB at most, every burst costs a call
//! and a wake-up of whoever receives for each of them, however short the last is. Writes of 64 KiB
//! at an MSS of 1,448 leave a quarter of a segment behind each, and every fourth burst would be a whole
//! super-frame and one of a single segment.
//!
//! So the little that is left behind whole super-frames waits for what is written next, as Nagle's
//! algorithm has a part of a segment wait (RFC 9293, 3.7.4), and under its conditions: not with
//! TCP_NODELAY, not at the end of the stream, and no longer than a whole super-frame of this connection is
//! unacknowledged. A peer that owes the acknowledgment of so much does not delay it. And only where that
//! comes within a millisecond: on a longer path the wait would cost more than the call.

use super::plan::Planner;
use crate::connection::Connection;
use crate::options::Negotiated;
use crate::sender::Sender;
use time::Duration;

/// Full segments up to this part of a super-frame wait for more, and part of a segment behind them.
const CRUMB_DIVISOR: u32 = 8;

/// Longest round trip of paths on which anything waits.
const ROUND_TRIP_MAX: Duration = Duration::from_millis(1);

/// Bytes of a TCP header without options.
const HEADER_LEN_MIN: u32 = 20;

/// What goes to the device as one, and how little is not worth one of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whole {
    /// Full segments of a super-frame, two at least.
    segments: u32,
    /// Their payload bytes.
    payload_len: u32,
    /// So many payload bytes wait for more.
    crumb_len: u32,
}

impl Connection {
    /// From now on the device takes runs of segments as one: `len` is the longest TCP header and payload of
    /// such a super-frame, or zero where segments go one by one.
    pub fn set_super_frame_len(&mut self, len: u16) {
        self.sender.super_frame_len = len;
    }
}

impl Planner {
    /// Whether the `unsent` bytes, which are all there are, wait for more behind what is planned.
    #[inline]
    pub(super) fn is_crumb(&self, connection: &Connection, unsent: u32) -> bool {
        let Some(whole) = self.whole else { return false };
        unsent <= whole.crumb_len
            && self.full_segments.is_multiple_of(whole.segments)
            && self.nxt.offset_from(connection.sender.sequence.una) >= whole.payload_len
            && !connection.urgent.is_sending()
    }

    /// How many of `count` full segments, which are all that may follow and leave `left` bytes, should:
    /// so many that what is a crumb behind them waits.
    #[inline]
    pub(super) fn whole_count(&self, connection: &Connection, count: u32, left: u32) -> u32 {
        let Some(whole) = self.whole else { return count };
        let total = self.full_segments + count;
        let over = total % whole.segments;
        let waits = total > over && over <= count && !connection.owing.fin;
        let full = whole.payload_len / whole.segments;
        if waits && over * full + left <= whole.crumb_len { count - over } else { count }
    }
}

impl Sender {
    /// Whether what a super-frame has no place for waits: the device takes such frames, and the path is so
    /// short that it waits for a moment.
    #[inline]
    pub(super) fn waits_for_more(&self) -> bool {
        let is_near = || self.rtt.smoothed().is_some_and(|rtt| rtt <= ROUND_TRIP_MAX);
        self.super_frame_len > 0 && is_near()
    }

    /// The measure for segments of `full` payload bytes; `None` where nothing waits for more.
    #[inline]
    pub(super) fn whole_super_frame(&self, full: u32, negotiated: &Negotiated) -> Option<Whole> {
        // What ends a record waits for nothing.
        if self.nodelay || !self.waits_for_more() || self.queue.has_records() {
            return None;
        }
        let options = u32::from(negotiated.mss_send()).saturating_sub(full);
        let len = u32::from(self.super_frame_len).checked_sub(HEADER_LEN_MIN + options)?;
        let segments = len / full;
        (segments > 1).then_some(Whole {
            segments,
            payload_len: segments * full,
            crumb_len: (segments.div_ceil(CRUMB_DIVISOR) + 1) * full - 1,
        })
    }
}
