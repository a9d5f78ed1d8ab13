//! What was sent and is not acknowledged, and what became of it.
//!
//! One list of records serves SACK (RFC 2018, RFC 6675), RACK (RFC 8985), the undoing of mistakes
//! and the delivery rate. A record is a range of sequence numbers that left at one instant and had
//! the same fate since: a burst of sixty-four segments is one record until a SACK block, a loss or
//! a retransmission cuts it.
//!
//! ```text
//!  SND.UNA                                                            SND.NXT
//!     | flying, again | sacked | lost | lost | sacked |  flying  | flying |
//!     |---- t=70 -----|        | t=10 | t=20 |        |-- t=20 --|- t=30 -|
//! ```
//!
//! What always holds:
//!
//! - records are sorted, not empty and touch each other; together they cover what was sent and is
//!   not acknowledged (but for the byte of a zero-window probe);
//! - the byte at `SND.UNA` itself is never taken for received, so there always is something to send
//!   again;
//! - records sent once lie in the order in which they were sent; what was sent again stands in a
//!   queue of its own in that order ([`SentRecords::judge`] looks at the ends of both, so a judgement
//!   costs what it changes and not what is outstanding);
//! - neighbours that were SACKed are one record, and beyond [`RECORDS_MAX`] nothing is cut for a SACK
//!   block: the part of it that would need the cut is refused, which at worst sends again what the
//!   receiver has. So neither memory nor time grow with what a hostile peer reports.

use crate::room::{make_room, release};
use crate::sender::rate::Snapshot;
use std::collections::VecDeque;
use time::{Duration, Instant};
use wire::SeqNumber;

/// The most records that SACK blocks may cut. An honest receiver makes one per hole and one per
/// range; a thousand holes in one window are far beyond what recovery can mend quickly. (What is
/// sent again in pieces may double their number.)
pub(crate) const RECORDS_MAX: usize = 2_048;

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// On its way, as far as we know.
    Flying,
    /// Taken for lost, and to be sent again.
    Lost,
    /// Held by the receiver, which may still drop it (RFC 2018, 8).
    Sacked,
}

/// A range that was sent at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// First sequence number.
    pub(crate) start: SeqNumber,
    /// One past the last.
    pub(crate) end: SeqNumber,
    /// When it was sent last.
    pub(crate) sent_at: Instant,
    /// The delivery rate's sums as they were then.
    pub(crate) snapshot: Snapshot,
    /// How often it was sent; at most 255.
    pub(crate) transmissions: u8,
    /// Some of it left before `sent_at`, for want of records: its round trip is not known.
    pub(crate) is_joined: bool,
    /// Some of it was SACKed once and forgotten: that it is delivered was counted.
    pub(crate) was_sacked: bool,
    /// What became of it.
    pub(crate) fate: Fate,
}

impl Record {
    /// Sequence numbers in it.
    pub(crate) fn len(&self) -> u32 {
        self.end.offset_from(self.start)
    }

    /// Whether it was sent more than once.
    pub(crate) fn is_again(&self) -> bool {
        self.transmissions > 1
    }
}

/// `RACK_sent_after` (RFC 8985, 6.2): whether the first was sent after the second; of what was sent
/// at the same instant, the higher number was.
pub(crate) fn sent_after(first: (Instant, SeqNumber), second: (Instant, SeqNumber)) -> bool {
    first.0 > second.0 || (first.0 == second.0 && first.1.is_after(second.1))
}

/// A range that was sent again.
#[derive(Clone, Copy, Debug)]
struct Again {
    start: SeqNumber,
    end: SeqNumber,
    sent_at: Instant,
}

/// What a judgement found ([`SentRecords::judge`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Judged {
    /// Newly lost.
    pub(crate) lost_bytes: u32,
    /// Of these, in how many ranges that had been sent again.
    pub(crate) lost_again_count: u32,
    /// When the next one is due, if nothing is heard of it.
    pub(crate) next_at: Option<Instant>,
}

/// What a SACK block told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sacked {
    /// Bytes that no earlier block had covered.
    pub(crate) newly_bytes: u32,
    /// Edges that were refused because there are [`RECORDS_MAX`] records already.
    pub(crate) refused_count: u32,
}

/// The records of one connection.
#[derive(Clone, Debug)]
pub(crate) struct SentRecords {
    records: VecDeque<Record>,
    /// What was sent again, in the order of time. Entries of which nothing flies any more are
    /// dropped when they come to the front.
    again: VecDeque<Again>,
    sacked_bytes: u32,
    lost_bytes: u32,
    /// No record that ends at or before this is lost.
    lost_from: SeqNumber,
    /// No record sent once that ends at or before this flies still.
    judged_until: SeqNumber,
}

impl SentRecords {
    /// An empty list. It allocates when something is sent.
    pub(crate) fn new(iss: SeqNumber) -> Self {
        Self {
            records: VecDeque::new(),
            again: VecDeque::new(),
            sacked_bytes: 0,
            lost_bytes: 0,
            lost_from: iss,
            judged_until: iss,
        }
    }

    /// Begins anew where all was acknowledged.
    pub(crate) fn restart(&mut self, iss: SeqNumber) {
        debug_assert!(self.records.is_empty() && self.again.is_empty(), "all was acknowledged");
        debug_assert!(
            self.sacked_bytes == 0 && self.lost_bytes == 0,
            "nothing is left to be either"
        );
        (self.lost_from, self.judged_until) = (iss, iss);
    }

    /// New data, `start` being where the last ended.
    #[inline]
    pub(crate) fn on_sent(
        &mut self,
        now: Instant,
        start: SeqNumber,
        end: SeqNumber,
        snapshot: Snapshot,
    ) {
        let full = self.records.len() >= RECORDS_MAX;
        match self.records.back_mut() {
            Some(last)
                if last.fate == Fate::Flying
                    && !last.is_again()
                    && (last.sent_at == now || full) =>
            {
                // Of two instants the later one stands: it makes nothing lost too early.
                last.is_joined |= last.sent_at != now;
                last.end = end;
                last.sent_at = now;
                last.snapshot.on_joined(&snapshot);
            }
            _ => {
                if self.records.is_empty() {
                    self.lost_from = start;
                    self.judged_until = start;
                }
                let fate = Fate::Flying;
                let (sent_at, transmissions) = (now, 1);
                let (is_joined, was_sacked) = (false, false);
                let record = Record {
                    start,
                    end,
                    sent_at,
                    snapshot,
                    transmissions,
                    is_joined,
                    was_sacked,
                    fate,
                };
                make_room(&mut self.records);
                self.records.push_back(record);
            }
        }
    }

    /// The range was sent again. It was lost, or is the end of what was sent.
    pub(crate) fn on_sent_again(
        &mut self,
        now: Instant,
        start: SeqNumber,
        end: SeqNumber,
        snapshot: Snapshot,
    ) {
        let Some(first) = self.cut(start, usize::MAX) else { return };
        let behind = self.cut(end, usize::MAX).unwrap_or(self.records.len());
        let is_first_lost =
            self.next_lost(self.lost_from, 1).is_some_and(|(lost, _)| start.is_at_or_before(lost));
        let mut lost_bytes = 0;
        for record in self.records.range_mut(first..behind) {
            if record.fate == Fate::Sacked {
                continue;
            }
            if record.fate == Fate::Lost {
                lost_bytes += record.len();
            }
            record.fate = Fate::Flying;
            record.sent_at = now;
            record.snapshot = snapshot;
            record.transmissions = record.transmissions.saturating_add(1);
            record.is_joined = false;
        }
        self.lost_bytes -= lost_bytes;
        if is_first_lost {
            self.lost_from = self.lost_from.later_of(end);
        }
        let start = self.join_again(first, behind);
        let queue = &mut self.again;
        match queue.back_mut() {
            Some(last)
                if last.sent_at == now
                    && last.start.is_at_or_before(start)
                    && last.end.is_at_or_after(start) =>
            {
                last.end = last.end.later_of(end);
            }
            _ => {
                if queue.len() >= 2 * RECORDS_MAX {
                    // Left to the retransmission timer.
                    queue.pop_front();
                }
                queue.push_back(Again { start, end, sent_at: now });
            }
        }
    }

    /// Joins what was just sent again into one record and, in a crowded list, with what was sent
    /// again before it, so that sending in small pieces does not make more and more records. Says
    /// where it begins then.
    fn join_again(&mut self, first: usize, behind: usize) -> SeqNumber {
        let crowded = self.records.len() > RECORDS_MAX;
        let record = self.records[first];
        let alike = |other: &Record| {
            let is_twin =
                other.sent_at == record.sent_at && other.transmissions == record.transmissions;
            other.fate == Fate::Flying && other.is_again() && (crowded || is_twin)
        };
        let from = first - usize::from(first > 0 && alike(&self.records[first - 1]));
        if self.records.range(from..behind).all(alike) {
            self.collapse(from, behind, record);
            return self.records[from].start;
        }
        record.start
    }

    /// Everything before `una` is acknowledged. `visit` sees, in order, each part that was not known
    /// to have been delivered, with its fate before. Says whether the receiver no longer has what it
    /// had reported: the byte at `una` was SACKed, so it would have acknowledged it
    /// (RFC 2018, 8). Then all that was SACKed is lost.
    #[inline]
    pub(crate) fn on_ack(&mut self, una: SeqNumber, visit: &mut impl FnMut(&Record)) -> bool {
        while let Some(front) = self.records.front_mut() {
            if !front.start.is_before(una) {
                break;
            }
            let part = Record { end: front.end.earlier_of(una), ..*front };
            match part.fate {
                Fate::Flying => {}
                Fate::Lost => self.lost_bytes -= part.len(),
                Fate::Sacked => self.sacked_bytes -= part.len(),
            }
            if part.end == front.end {
                self.records.pop_front();
            } else {
                front.start = una;
            }
            if part.fate != Fate::Sacked {
                visit(&part);
            }
        }
        self.lost_from = self.lost_from.later_of(una);
        self.judged_until = self.judged_until.later_of(una);
        let Some(front) = self.records.front() else {
            release(&mut self.records);
            self.again = VecDeque::new();
            return false;
        };
        let reneged = front.fate == Fate::Sacked;
        if reneged {
            self.forget_sacks();
        }
        reneged
    }

    /// The receiver holds this range, which begins after `SND.UNA` and ends at or before `SND.NXT`.
    /// `visit` sees, in order, each part that was not known to have been delivered, with its fate
    /// before.
    pub(crate) fn on_sack(
        &mut self,
        start: SeqNumber,
        end: SeqNumber,
        visit: &mut impl FnMut(&Record),
    ) -> Sacked {
        let mut outcome = Sacked::default();
        let first = self.edge(start, true, &mut outcome);
        let behind = self.edge(end, false, &mut outcome);
        if first >= behind {
            return outcome;
        }
        for record in self.records.range(first..behind) {
            match record.fate {
                Fate::Sacked => continue,
                Fate::Lost => self.lost_bytes -= record.len(),
                Fate::Flying => {}
            }
            outcome.newly_bytes += record.len();
            visit(record);
        }
        self.sacked_bytes += outcome.newly_bytes;
        let is_sacked =
            |record: Option<&Record>| record.is_some_and(|record| record.fate == Fate::Sacked);
        let from = first - usize::from(first > 0 && is_sacked(self.records.get(first - 1)));
        let to = behind + usize::from(is_sacked(self.records.get(behind)));
        let mut newest = self.records[from];
        for record in self.records.range(from..to) {
            if sent_after((record.sent_at, record.end), (newest.sent_at, newest.end)) {
                newest = *record;
            }
        }
        // Should they be forgotten, the latest time makes nothing lost too early.
        self.collapse(from, to, Record { fate: Fate::Sacked, ..newest });
        outcome
    }

    /// Replaces a stretch of records by one with the other fields of `like`.
    fn collapse(&mut self, from: usize, behind: usize, like: Record) {
        if from >= behind {
            return;
        }
        let (start, end) = (self.records[from].start, self.records[behind - 1].end);
        let was_sacked = self.records.range(from..behind).any(|record| record.was_sacked);
        self.records[from] = Record { start, end, was_sacked, ..like };
        self.records.drain(from + 1..behind);
    }

    /// The index of the record that begins at the edge of a SACK block. Where a cut is refused, the
    /// block shrinks to the next (`up`) or the last whole record.
    fn edge(&mut self, at: SeqNumber, up: bool, outcome: &mut Sacked) -> usize {
        let index = self.index_of(at);
        let Some(record) = self.records.get(index) else { return index };
        if record.start.is_at_or_after(at) {
            return index;
        }
        if record.fate == Fate::Sacked {
            // Inside of what is SACKed already: that belongs to the stretch.
            return index + usize::from(!up);
        }
        if let Some(cut) = self.cut(at, RECORDS_MAX) {
            return cut;
        }
        outcome.refused_count += 1;
        index + usize::from(up)
    }

    /// Makes a record begin at `at`; says which, or `None` where there are `records_max` already or
    /// nothing was sent there.
    fn cut(&mut self, at: SeqNumber, records_max: usize) -> Option<usize> {
        let index = self.index_of(at);
        let len = self.records.len();
        let record = self.records.get_mut(index)?;
        if !record.start.is_before(at) {
            return Some(index);
        }
        if len >= records_max {
            return None;
        }
        let behind = Record { start: at, ..*record };
        record.end = at;
        self.records.insert(index + 1, behind);
        Some(index + 1)
    }

    /// The index of the first record that ends after `at`.
    fn index_of(&self, at: SeqNumber) -> usize {
        self.records.partition_point(|record| record.end.is_at_or_before(at))
    }

    /// `RACK_detect_loss` (RFC 8985, 6.2, step 5): what was sent before `newest`, the latest that was
    /// delivered, and `wait` ago or longer, is lost. `wait` is a round trip and the reordering
    /// window. `visit` sees each record that is newly lost.
    pub(crate) fn judge(
        &mut self,
        now: Instant,
        newest: (Instant, SeqNumber),
        wait: Duration,
        visit: &mut impl FnMut(&Record),
    ) -> Judged {
        let mut judged = Judged::default();
        let mut index = self.index_of(self.judged_until);
        while let Some(record) = self.records.get_mut(index) {
            if record.fate == Fate::Flying && !record.is_again() {
                if !sent_after(newest, (record.sent_at, record.end)) {
                    break;
                }
                let due = record.sent_at + wait;
                if due > now {
                    judged.next_at = Some(due);
                    break;
                }
                visit(record);
                record.fate = Fate::Lost;
                judged.lost_bytes += record.len();
                self.lost_from = self.lost_from.earlier_of(record.start);
            }
            self.judged_until = record.end;
            index += 1;
        }
        self.judge_again(now, newest, wait, &mut judged, visit);
        self.lost_bytes += judged.lost_bytes;
        judged
    }

    fn judge_again(
        &mut self,
        now: Instant,
        newest: (Instant, SeqNumber),
        wait: Duration,
        judged: &mut Judged,
        visit: &mut impl FnMut(&Record),
    ) {
        while let Some(again) = self.again.front().copied() {
            if !sent_after(newest, (again.sent_at, again.start + 1)) {
                return;
            }
            let index = self.index_of(again.start);
            let mut flying = self
                .records
                .range_mut(index..)
                .take_while(|record| record.start.is_before(again.end))
                .filter(|record| {
                    record.fate == Fate::Flying
                        && record.is_again()
                        && record.sent_at == again.sent_at
                        && sent_after(newest, (record.sent_at, record.end))
                })
                .peekable();
            if flying.peek().is_some() {
                let due = again.sent_at + wait;
                if due > now {
                    judged.next_at = Some(judged.next_at.map_or(due, |next| next.min(due)));
                    return;
                }
                judged.lost_again_count += 1;
                for record in flying {
                    visit(record);
                    record.fate = Fate::Lost;
                    judged.lost_bytes += record.len();
                    self.lost_from = self.lost_from.earlier_of(record.start);
                }
            }
            if !sent_after(newest, (again.sent_at, again.end)) {
                // Sent together with what was delivered last: the rest is yet to be heard of.
                return;
            }
            self.again.pop_front();
        }
    }

    /// The first `len` bytes are lost (RFC 6582, 3.2), unless they were sent again already. `visit`
    /// sees what is newly lost.
    pub(crate) fn mark_first_lost(&mut self, len: u32, visit: &mut impl FnMut(&Record)) {
        let Some(front) = self.records.front().copied() else { return };
        if front.fate != Fate::Flying || front.is_again() {
            return;
        }
        if len < front.len() {
            self.cut(front.start + len, usize::MAX);
        }
        if let Some(front) = self.records.front_mut() {
            visit(front);
            front.fate = Fate::Lost;
            self.lost_from = front.start;
            self.lost_bytes += front.len();
        }
    }

    /// The retransmission timer went off (RFC 8985, 6.3): the first record is lost, and every other
    /// that was sent `wait` ago or longer. `visit` sees what is newly lost.
    pub(crate) fn mark_lost_on_timeout(
        &mut self,
        now: Instant,
        wait: Duration,
        visit: &mut impl FnMut(&Record),
    ) {
        for (index, record) in self.records.iter_mut().enumerate() {
            if record.fate == Fate::Flying && (index == 0 || record.sent_at + wait <= now) {
                visit(record);
                record.fate = Fate::Lost;
                self.lost_bytes += record.len();
            }
        }
        if let Some(front) = self.records.front() {
            self.lost_from = front.start;
        }
    }

    /// Whether a record flies that is longer than `mss`.
    pub(crate) fn has_longer(&self, mss: u32) -> bool {
        self.records.iter().any(|it| it.fate == Fate::Flying && it.len() > mss)
    }

    /// What may have been longer than `mss` is lost. `visit` sees what is newly lost.
    pub(crate) fn mark_longer_lost(&mut self, mss: u32, visit: &mut impl FnMut(&Record)) {
        for record in &mut self.records {
            if record.fate == Fate::Flying && record.len() > mss {
                visit(record);
                record.fate = Fate::Lost;
                self.lost_bytes += record.len();
            }
        }
        if let Some(front) = self.records.front() {
            self.lost_from = front.start;
        }
    }

    /// It was a mistake to take anything for lost: it flies. What was lost after it had been sent
    /// again stays so.
    pub(crate) fn unmark_lost(&mut self) {
        for record in &mut self.records {
            if record.fate == Fate::Lost && !record.is_again() {
                record.fate = Fate::Flying;
                self.lost_bytes -= record.len();
            }
        }
        if let Some(front) = self.records.front() {
            self.judged_until = front.start;
        }
    }

    /// The receiver reneged, or may have (RFC 2018, 8): what it had reported is lost.
    pub(crate) fn forget_sacks(&mut self) {
        if self.sacked_bytes == 0 {
            return;
        }
        for record in &mut self.records {
            if record.fate == Fate::Sacked {
                record.fate = Fate::Lost;
                record.was_sacked = true;
                // That it arrives is no news of an original: it did so before.
                record.transmissions = record.transmissions.max(2);
            }
        }
        self.lost_bytes += core::mem::take(&mut self.sacked_bytes);
        if let Some(front) = self.records.front() {
            self.lost_from = front.start;
        }
    }

    /// The first lost range at or after `from`, at most `len_max` bytes: start and length. Neighbours
    /// that are lost make one range.
    #[inline]
    pub(crate) fn next_lost(&self, from: SeqNumber, len_max: u32) -> Option<(SeqNumber, u32)> {
        if self.lost_bytes == 0 {
            return None;
        }
        let index = self.index_of(from.later_of(self.lost_from));
        let mut records =
            self.records.range(index..).skip_while(|record| record.fate != Fate::Lost);
        let first = records.next()?;
        let start = first.start.later_of(from);
        let mut end = first.end;
        for record in records {
            if record.fate != Fate::Lost || end.offset_from(start) >= len_max {
                break;
            }
            end = record.end;
        }
        Some((start, end.offset_from(start).min(len_max)))
    }

    /// The last segments that were sent, the very last with those that left with it, unless they were SACKed: start and
    /// length.
    pub(crate) fn last_segments(&self) -> Option<(SeqNumber, u32)> {
        let last = self.last().filter(|last| last.fate != Fate::Sacked)?;
        Some((last.start, last.len()))
    }

    /// The last record.
    pub(crate) fn last(&self) -> Option<&Record> {
        self.records.back()
    }

    /// Whether the byte at `sequence` was sent more than once.
    pub(crate) fn is_again_at(&self, sequence: SeqNumber) -> bool {
        self.records.get(self.index_of(sequence)).is_some_and(Record::is_again)
    }

    /// The records, in the order of their sequence numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Record> + '_ {
        self.records.iter()
    }

    /// Whether nothing is outstanding.
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Bytes that were SACKed and are not acknowledged.
    pub(crate) fn sacked_bytes(&self) -> u32 {
        self.sacked_bytes
    }

    /// Bytes that are lost and were not sent again since.
    pub(crate) fn lost_bytes(&self) -> u32 {
        self.lost_bytes
    }

    /// Whether something that was sent again may be on its way still.
    pub(crate) fn has_again(&self) -> bool {
        !self.again.is_empty()
    }
}

#[cfg(test)]
mod tests;
