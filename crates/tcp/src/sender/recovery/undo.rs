//! Whether a recovery was a mistake.
//!
//! Four witnesses, any of which suffices:
//!
//! - *Originals*: all that was taken for lost has arrived, and nothing was sent again. That is so where what was
//!   overtaken comes in the batch that told of a loss, or while the reduced window has no room.
//! - *Timestamps* (Eifel detection, RFC 3522): the ACK that moves SND.UNA in recovery echoes a
//!   timestamp from before the first retransmission, so it answers the original.
//! - *Duplicates* (RFC 3708): the receiver reported every byte that was sent again as arrived twice
//!   (RFC 2883), be it after the recovery has ended.
//! - *F-RTO* (RFC 5682, with SACK): after a timeout only the first segment is sent again and then new
//!   data; if something that was never sent again is acknowledged next, the flight was only late.
//!
//! The reports of duplicates are the receiver's word. They are believed for no more bytes than were
//! sent again.

use super::{Recovery, RecoveryState};
use wire::SeqNumber;

/// What is kept of the current or the last recovery.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Undo {
    /// SND.UNA and SND.NXT when it began.
    from: SeqNumber,
    to: SeqNumber,
    /// Sent again in it, or before it and still on the way.
    again_bytes: u32,
    /// Something was sent again in it.
    has_repaired: bool,
    /// Of that, reported as duplicates.
    duplicate_bytes: u32,
    /// Our timestamp of the first retransmission.
    first_again: Option<u32>,
}

/// Which witness spoke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Witness {
    Originals,
    Timestamps,
    Duplicates,
    Frto,
}

impl Undo {
    /// A recovery begins while copies of `again_bytes` are on the way that were sent before it, a tail
    /// loss probe's among them: reports of those say nothing of what it sends.
    pub(crate) fn on_enter(una: SeqNumber, nxt: SeqNumber, again_bytes: u32) -> Self {
        let (duplicate_bytes, has_repaired, first_again) = (0, false, None);
        Self { from: una, to: nxt, again_bytes, has_repaired, duplicate_bytes, first_again }
    }

    /// Whether the recovery is too long ago to be taken back: what is kept of it must not outlive
    /// half of the sequence space.
    pub(crate) fn is_past(&self, una: SeqNumber) -> bool {
        una.offset_from(self.from) > 1 << 29
    }

    /// Bytes were sent again, stamped with this value of our clock.
    pub(crate) fn on_sent_again(&mut self, bytes: u32, timestamp: Option<u32>) {
        self.again_bytes = self.again_bytes.saturating_add(bytes);
        self.has_repaired = true;
        self.first_again = self.first_again.or(timestamp);
    }

    /// The receiver reported that this range arrived twice.
    pub(crate) fn on_duplicate(&mut self, start: SeqNumber, end: SeqNumber) {
        if start.is_at_or_after(self.from) && end.is_at_or_before(self.to) {
            self.duplicate_bytes = self.duplicate_bytes.saturating_add(end.offset_from(start));
        }
    }

    /// Whether there are no copies, of this recovery or from before it.
    pub(crate) fn is_without_copies(&self) -> bool {
        !self.has_repaired && self.again_bytes == 0
    }

    /// Whether all that was sent again was reported as duplicate.
    pub(crate) fn is_all_duplicate(&self) -> bool {
        self.has_repaired && self.duplicate_bytes >= self.again_bytes
    }

    /// Whether an ACK with this echo answers what was sent before the first retransmission.
    pub(crate) fn is_before_first_again(&self, echo: Option<u32>) -> bool {
        self.first_again
            .zip(echo)
            .is_some_and(|(first, echo)| SeqNumber(echo).is_before(SeqNumber(first)))
    }
}

impl Recovery {
    /// Whether the segment at `una` has gone again by the retransmission timer.
    pub(crate) fn is_timed_out(&self, una: SeqNumber) -> bool {
        let from = self.episode.as_ref().map(|episode| episode.undo.from);
        self.state == RecoveryState::Loss && from == Some(una)
    }
}

/// Where F-RTO stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Frto {
    #[default]
    Off,
    /// Step 1: the first segment was sent again; nothing else is.
    Waiting,
    /// Step 2.b: SND.UNA moved, and new data goes out instead of more retransmissions.
    NewData,
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 3708, 2: what counts is what this recovery sent again.
    #[test]
    fn reports_of_what_lies_outside_of_the_recovery_prove_nothing() {
        let mut undo = Undo::on_enter(SeqNumber(5_000), SeqNumber(9_000), 0);
        undo.on_sent_again(1_000, None);
        undo.on_duplicate(SeqNumber(4_000), SeqNumber(5_000));
        undo.on_duplicate(SeqNumber(9_000), SeqNumber(10_000));
        assert!(!undo.is_all_duplicate());
        undo.on_duplicate(SeqNumber(5_000), SeqNumber(6_000));
        assert!(undo.is_all_duplicate());
    }
}
