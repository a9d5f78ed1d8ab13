//! What arrived twice and is to be told to the peer (RFC 2883).
//!
//! A peer that learns which of its segments came twice can tell a spurious retransmission from a
//! needed one. RFC 2883, 4: the first block of the next ACK's SACK option names the first contiguous
//! range of the duplicate, and each duplicate is reported in one ACK only. A batch of the device may
//! bring several: those that touch are one range, others wait for an ACK of their own, up to
//! [`RANGES_MAX`]; beyond that they are left out, which costs the peer a hint.

use crate::counters::Counting;
use crate::options::Negotiated;
use crate::receiver::Receiver;
use crate::receiver::cuts::Cuts;
use batch::Chunk;
use wire::{SackBlocks, SeqNumber};

/// Ranges that wait to be reported.
const RANGES_MAX: usize = 4;

/// Duplicate ranges not yet reported: start, and one past the end.
#[derive(Debug, Default)]
pub(crate) struct Duplicates {
    /// Boxed, for most connections never need it.
    waiting: Option<Box<Waiting>>,
}

#[derive(Debug)]
struct Waiting {
    ranges: [(SeqNumber, SeqNumber); RANGES_MAX],
    /// At least one.
    count: usize,
}

impl Duplicates {
    /// `start` to `end` was here already. Says whether it will be reported.
    pub(crate) fn add(&mut self, start: SeqNumber, end: SeqNumber) -> bool {
        let Some(waiting) = &mut self.waiting else {
            let ranges = [(start, end); RANGES_MAX];
            self.waiting = Some(Box::new(Waiting { ranges, count: 1 }));
            return true;
        };
        let last = &mut waiting.ranges[waiting.count - 1];
        if start.is_at_or_before(last.1) && end.is_at_or_after(last.0) {
            *last = (last.0.earlier_of(start), last.1.later_of(end));
            return true;
        }
        let Some(free) = waiting.ranges.get_mut(waiting.count) else { return false };
        *free = (start, end);
        waiting.count += 1;
        true
    }

    /// The range to report in the next ACK.
    #[inline]
    pub(crate) fn next(&self) -> Option<(SeqNumber, SeqNumber)> {
        self.waiting.as_ref().map(|waiting| waiting.ranges[0])
    }

    /// An ACK with that range was taken by a device.
    pub(crate) fn on_reported(&mut self) {
        match &mut self.waiting {
            Some(waiting) if waiting.count > 1 => {
                waiting.ranges.rotate_left(1);
                waiting.count -= 1;
            }
            _ => self.waiting = None,
        }
    }
}

/// What of a super-frame waited already.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Again {
    /// Segments of which all did.
    pub(crate) segments: u32,
    /// The last segment of which something did, counted from 1, and whether all of it did.
    pub(crate) through: u32,
    pub(crate) is_whole: bool,
}

impl Receiver {
    /// What of a payload from `start` on, all before RCV.NXT, arrived before.
    pub(crate) fn find_old(
        &mut self,
        start: SeqNumber,
        bytes: &[u8],
        received_bytes: u64,
        counters: &mut Counting,
    ) -> Option<(SeqNumber, SeqNumber)> {
        if self.queue.differs_from_unread(start, bytes) {
            counters.overlap_conflicts += 1;
        }
        // RFC 2883, 4: a block "is only used to report a duplicate contiguous sequence of data received". What lies
        // before all that this connection received is of another one with these ends, or of another SYN-ACK.
        let behind = u64::from(self.queue.next().offset_from(start));
        let received = received_bytes + u64::from(self.queue.has_fin());
        let first = start + behind.saturating_sub(received) as u32;
        let end = start + bytes.len() as u32;
        first.is_before(end).then_some((first, end))
    }

    /// Takes note of what arrived again.
    pub(crate) fn note_old(
        &mut self,
        old: Option<(SeqNumber, SeqNumber)>,
        reports: bool,
        counters: &mut Counting,
    ) {
        if let Some((start, end)) = old {
            self.note_duplicate(start, end, reports, counters);
        }
    }

    fn note_duplicate(
        &mut self,
        start: SeqNumber,
        end: SeqNumber,
        reports: bool,
        counters: &mut Counting,
    ) {
        if reports && !self.duplicates.add(start, end) {
            counters.duplicates_unreported += 1;
        }
    }

    /// Takes note of what of a payload waits already, and says of how many segments all does.
    #[inline]
    pub(crate) fn note_overlap(
        &mut self,
        offset: u32,
        payload: &Chunk,
        cuts: Cuts,
        reports: bool,
        counters: &mut Counting,
    ) -> Again {
        match self.queue.has_gap() {
            true => self.note_each_overlap(offset, payload, cuts, reports, counters),
            false => Again::default(),
        }
    }

    #[cold]
    fn note_each_overlap(
        &mut self,
        offset: u32,
        payload: &Chunk,
        cuts: Cuts,
        reports: bool,
        counters: &mut Counting,
    ) -> Again {
        let mut again = Again::default();
        if self.queue.overlap(offset, payload).first.is_none() {
            return again;
        }
        let len = payload.len() as u32;
        let mut start = 0;
        for index in 1..=cuts.count(len) {
            let end = cuts.end(index, len);
            let mut part = payload.clone();
            part.truncate(end as usize);
            part.trim_front(start as usize);
            let overlap = self.queue.overlap(offset + start, &part);
            if let Some((from, to)) = overlap.first {
                let next = self.queue.next();
                self.note_duplicate(next + from, next + to, reports, counters);
                again.through = index;
                again.is_whole = to - from == end - start;
                again.segments += u32::from(again.is_whole);
            }
            counters.overlap_conflicts += u64::from(overlap.is_conflicting);
            start = end;
        }
        again
    }

    /// So many segments have arrived of which all was here already.
    pub(crate) fn note_again(&mut self, segments: u32, counters: &mut Counting) {
        if segments > 0 {
            counters.duplicate_segments += u64::from(segments);
            self.acks.on_retransmission(segments);
        }
    }

    /// The blocks of an ACK that reports a duplicate, where there is one to report. RFC 2883, 4: the block that holds the
    /// duplicate, where it lies beyond RCV.NXT, is the second, though something else may have come behind it in the same
    /// batch; elsewhere it would be no report.
    pub(crate) fn report_sack(&self, negotiated: &Negotiated) -> Option<SackBlocks> {
        let (start, end) = self.duplicates.next()?;
        let max = negotiated.sack_blocks_max();
        let waits = self.queue.sack_blocks(max);
        let holds = |block: &&(SeqNumber, SeqNumber)| {
            start.is_at_or_after(block.0) && end.is_at_or_before(block.1)
        };
        let (holding, others) = (waits.as_slice().iter().filter(holds), waits.as_slice().iter());
        let mut sack = SackBlocks::NONE;
        sack.push(start, end);
        for (start, end) in holding.chain(others.filter(|it| !holds(it))).take(max - 1) {
            sack.push(*start, *end);
        }
        Some(sack)
    }

    /// An ACK with those blocks was taken by a device.
    pub(crate) fn on_duplicate_reported(&mut self, counters: &mut Counting) {
        self.duplicates.on_reported();
        counters.duplicates_reported += 1;
    }

    /// Takes the blocks of the next report, for an ACK that is as good as sent.
    pub(crate) fn take_report(
        &mut self,
        negotiated: &Negotiated,
        counters: &mut Counting,
    ) -> Option<SackBlocks> {
        let sack = self.report_sack(negotiated)?;
        self.on_duplicate_reported(counters);
        Some(sack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_are_one_and_others_are_reported_one_by_one() {
        let mut duplicates = Duplicates::default();
        let at = |offset: u32| SeqNumber(u32::MAX - 5) + offset;
        assert!(duplicates.add(at(0), at(10)));
        assert!(duplicates.add(at(10), at(20)));
        assert!(duplicates.add(at(5), at(12)), "within");
        for offset in [100, 200, 300] {
            assert!(duplicates.add(at(offset), at(offset + 1)));
        }
        assert!(!duplicates.add(at(400), at(401)), "no more are kept");
        assert_eq!(duplicates.next(), Some((at(0), at(20))));
        for offset in [100, 200, 300] {
            duplicates.on_reported();
            assert_eq!(duplicates.next(), Some((at(offset), at(offset + 1))));
        }
        duplicates.on_reported();
        assert!(duplicates.next().is_none() && duplicates.waiting.is_none());
    }
}
