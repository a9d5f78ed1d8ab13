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

use crate::counters::Counting;
use crate::options::Negotiated;
use crate::receiver::Receiver;
use crate::receiver::acknowledging::Owed;
use crate::receiver::cuts::Cuts;
use crate::receiver::duplicates::Again;
use std::collections::VecDeque;
use time::Instant;
use wire::{SackBlocks, SeqNumber, TcpFlags, TcpHeader};

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

/// Data of which each segment may ask for an ACK of its own.
pub(crate) struct Arrived<'a> {
    pub(crate) header: &'a TcpHeader,
    /// RCV.NXT before it.
    pub(crate) start: SeqNumber,
    /// Its payload, which may be ahead of its turn.
    pub(crate) len: u32,
    /// What of it waited already.
    pub(crate) again: Again,
    pub(crate) cuts: Cuts,
    /// What went on beyond the window was cut off.
    pub(crate) beyond: bool,
    /// The FIN is behind it: the ACK of its last segment is as good behind the batch.
    pub(crate) ends_stream: bool,
}

impl Receiver {
    /// Data arrived that moved RCV.NXT on, or waits: notes the ACKs that its segments ask for.
    #[cold]
    pub(crate) fn note_each(
        &mut self,
        now: Instant,
        data: &Arrived<'_>,
        negotiated: &mut Negotiated,
        counters: &mut Counting,
    ) {
        let Arrived { header, start, len: own_len, again, cuts, beyond, ends_stream } = *data;
        let len = self.queue.next().offset_from(start);
        // The clock does not change what is echoed.
        let said = self.segment_options(Instant::ZERO, negotiated);
        let (number, echo) = (start, said.timestamps.map_or(0, |it| it.echo));
        let mut due = Due { number, echo, sack: said.sack, ecn: self.mark_echo.flags() };
        let segments = match len {
            // Ahead of its turn: who has no SACK counts the ACKs of its segments.
            0 if negotiated.sack => cuts.count(own_len).min(1 + u32::from(ends_stream)),
            0 => cuts.count(own_len),
            // What waited behind is acknowledged with it.
            _ if len > own_len => 1,
            _ => cuts.count(len),
        };
        // Where it fills a gap, all up to there is acknowledged at once (RFC 5681, 4.2) and as one, for no block tells
        // of what waited any more. A guest's header may call a super-frame tens of thousands.
        let through = if len > 0 { again.through.min(segments) } else { 0 };
        let first = through.max(1 + segments.saturating_sub(DUE_MAX as u32));
        for index in first..=segments {
            if due.number != start {
                // What is due is as good as sent, so the same timestamp may be the one to echo now.
                self.take_timestamp_of(now, header, due.number, negotiated);
                due.echo = negotiated.timestamps.map_or(0, |it| it.option(now).echo);
            }
            due.number = start + if index < segments { cuts.end(index, len) } else { len };
            // A segment that did not fit is acknowledged at once, as is what is behind a gap.
            let is_cut = index == segments && cuts.count_whole(own_len) < cuts.count(own_len);
            if len == 0 || self.queue.has_gap() || (beyond && is_cut) {
                self.acks.owe_now();
            }
            if index < segments || !ends_stream {
                let reports = index == first && self.acks.owed() == Owed::Now;
                self.note(due, reports, negotiated, counters);
            }
            if index == through && again.is_whole {
                // As is one that came again.
                self.acks.owe_now();
            }
        }
        if beyond && cuts.count_whole(own_len) == cuts.count(own_len) {
            // Whole segments did not fit.
            self.acks.owe_now();
        }
    }

    /// Notes the ACK that a segment asks for; with `reports` one for each duplicate that is to be reported, if any is.
    fn note(&mut self, due: Due, reports: bool, negotiated: &Negotiated, counters: &mut Counting) {
        let report = if reports { self.take_report(negotiated, counters) } else { None };
        self.acks.on_each(Due { sack: report.unwrap_or(due.sack), ..due });
        while report.is_some()
            && let Some(sack) = self.take_report(negotiated, counters)
        {
            self.acks.owe_now();
            self.acks.on_each(Due { sack, ..due });
        }
        // What is acknowledged decides which timestamp is kept (RFC 7323, 4.3).
        if let Some(due) = self.acks.due_count().checked_sub(1).and_then(|it| self.acks.due(it)) {
            self.last_ack_sent = due.number;
        }
    }

    /// Notes the ACKs that a follower asks for. Apart from the loop over followers, which would be prepared for it.
    #[cold]
    #[inline(never)]
    pub(crate) fn note_follower(
        &mut self,
        now: Instant,
        header: &TcpHeader,
        (start, cuts): (SeqNumber, Cuts),
        negotiated: &mut Negotiated,
        counters: &mut Counting,
    ) {
        let len = self.queue.next().offset_from(start);
        let (again, beyond, ends_stream) = (Again::default(), false, false);
        let data = Arrived { header, start, len, again, cuts, beyond, ends_stream };
        self.note_each(now, &data, negotiated, counters);
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
