//! ACKs that do not stretch: RFC 1122's letter ([`crate::Config::stretch_acks`] off).
//!
//! RFC 9293, 3.8.6.3, SHLD-19: an ACK for at least every second full-sized segment. A batch of the
//! device brings many segments at one instant, and one ACK behind it would stand for all of them. So
//! here each ACK is noted as the segment comes in that asks for it, with all that it would have said if
//! the segment had come alone, and what is noted goes out before anything else does. So it is with what
//! comes ahead of its turn (RFC 5681, 4.2). What is left of the batch waits for the delayed-ACK timer as
//! ever.
//!
//! ```text
//!   segments     1   2   3   4   5        of one batch, acknowledged two by two
//!   due              ^       ^            each with its own number
//!   later                        ^        the timer, or the next segment
//! ```

use std::collections::VecDeque;
use wire::{SackBlocks, SeqNumber, TcpFlags};

/// The most ACKs that are due at a time. Beyond it the oldest is left out: the next says more.
pub(crate) const DUE_MAX: usize = 2_048;

/// An ACK that is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    /// Its acknowledgment number.
    pub(crate) number: SeqNumber,
    /// TS.Recent when its segment came in (RFC 7323, 4.3).
    pub(crate) echo: u32,
    /// What waited out of order then.
    pub(crate) sack: SackBlocks,
    /// Whether the network had marked something then.
    pub(crate) ecn: TcpFlags,
}

/// What is due, and how far it is to the next.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unstretched {
    due: VecDeque<Due>,
    /// In-order segments behind the newest of them.
    segments: u32,
}

impl Unstretched {
    /// A segment came in order; where `every` have, their ACK is due. Says how many segments it stands
    /// for.
    pub(crate) fn on_segment(&mut self, due: Due, every: u32) -> Option<u32> {
        self.segments += 1;
        (self.segments >= every).then(|| self.owe(due))
    }

    /// An ACK is due at once. Says how many segments it stands for.
    pub(crate) fn owe(&mut self, due: Due) -> u32 {
        if self.due.len() >= DUE_MAX {
            self.due.pop_front();
        }
        self.due.push_back(due);
        core::mem::take(&mut self.segments)
    }

    /// Segments that nothing is due for.
    pub(crate) fn segments(&self) -> u32 {
        self.segments
    }

    pub(crate) fn len(&self) -> usize {
        self.due.len()
    }

    pub(crate) fn due(&self, index: usize) -> Option<Due> {
        self.due.get(index).copied()
    }

    /// The oldest was taken by the device.
    pub(crate) fn on_sent(&mut self) -> Option<Due> {
        let sent = self.due.pop_front();
        if self.due.is_empty() {
            // An idle connection keeps no memory for a burst.
            self.due = VecDeque::new();
        }
        sent
    }

    /// A segment with the newest number was taken.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_is_bounded_and_the_newest_is_among_it() {
        let mut acks = Unstretched::default();
        for number in 1..=3 * DUE_MAX as u32 {
            let (number, sack, ecn) = (SeqNumber(number), SackBlocks::NONE, TcpFlags::NONE);
            let due = Due { number, echo: 0, sack, ecn };
            assert_eq!(acks.on_segment(due, 2), number.0.is_multiple_of(2).then_some(2));
        }
        assert_eq!((acks.len(), acks.segments()), (DUE_MAX, 0));
        let newest = acks.due(DUE_MAX - 1).expect("it is there");
        assert_eq!(newest.number, SeqNumber(3 * DUE_MAX as u32));
        while acks.on_sent().is_some() {}
        assert_eq!((acks.len(), acks.due.capacity()), (0, 0));
    }
}
