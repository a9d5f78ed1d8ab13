//! What the receiver said it holds beyond `SND.UNA` (RFC 6675, on the options of RFC 2018 and
//! RFC 2883).
//!
//! In go cumulative ACKs and SACK blocks; out come the answers loss recovery asks for: is this byte
//! lost (`IsLost`), how much is in the network (`SetPipe`), what to retransmit next (`NextSeg`).
//!
//! ```text
//!  SND.UNA          lost boundary                     highest SACKed      SND.NXT
//!     |  hole   [range)  hole  |[range) hole [range) hole [range)            |
//!     |<---- lost if not SACKed|
//! ```
//!
//! `IsLost` counts what was SACKed *above* a byte, so it is true for every un-SACKed byte below
//! one boundary and false above it. The boundary is found from the top after at most `DupThresh`
//! ranges, whatever the number of bytes; every other answer costs at most one pass over the ranges.
//!
//! What always holds:
//!
//! - ranges are sorted, not empty, do not overlap or touch, and begin after `SND.UNA`: the byte at
//!   `SND.UNA` itself is never taken for received, so there always is something to retransmit;
//! - there are at most [`RANGES_MAX`] ranges. When they are full, a block that would make another
//!   one is ignored, which at worst retransmits what the receiver has.
//!
//! Positions are 64-bit inside, counted from the initial sequence number, so that they have an
//! order. `HighRxt` and its like are one past the last byte here, as all ends are.

use wire::SeqNumber;

/// `DupThresh` (RFC 6675, 2; RFC 5681, 3.2).
pub const DUPLICATE_THRESHOLD: usize = 3;

/// The most ranges kept. An honest receiver reports one per gap; 256 gaps in one window are far
/// beyond what recovery can mend quickly.
pub const RANGES_MAX: usize = 256;

/// The most blocks of one ACK that are looked at; more do not fit an option (RFC 2018, 3).
const BLOCKS_MAX: usize = 4;

/// What the SACK blocks of one ACK told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SackOutcome {
    /// Bytes that no earlier block had covered.
    pub newly_sacked_bytes: u32,
    /// The range the receiver got twice (RFC 2883): start, and one past the end.
    pub duplicate: Option<(SeqNumber, SeqNumber)>,
    /// Blocks ignored because they are empty, reversed or outside what is outstanding.
    pub invalid_count: u32,
    /// Blocks ignored because there are [`RANGES_MAX`] ranges already.
    pub refused_count: u32,
}

/// The scoreboard of one connection.
#[derive(Clone, Debug)]
pub struct Scoreboard {
    una: SeqNumber,
    una_position: u64,
    ranges: Vec<Range>,
    sacked_bytes: u64,
    reneged_count: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    start: u64,
    end: u64,
}

impl Range {
    fn len(self) -> u64 {
        self.end - self.start
    }
}

impl Scoreboard {
    /// An empty scoreboard. It allocates when the first block arrives.
    #[must_use]
    pub fn new(snd_una: SeqNumber) -> Self {
        Self {
            una: snd_una,
            una_position: 0,
            ranges: Vec::new(),
            sacked_bytes: 0,
            reneged_count: 0,
        }
    }

    /// Everything before `snd_una` is acknowledged. An older value than before is ignored.
    ///
    /// A receiver that acknowledges up to the middle of a range it had reported no longer has the
    /// rest (it would have acknowledged it): the range is forgotten, for it has reneged
    /// (RFC 2018, 8).
    pub fn on_ack(&mut self, snd_una: SeqNumber) {
        if !snd_una.is_after(self.una) {
            return;
        }
        self.una_position = self.position(snd_una);
        self.una = snd_una;
        let una_position = self.una_position;
        let mut passed = self.ranges.partition_point(|range| range.end <= una_position);
        if self.ranges.get(passed).is_some_and(|range| range.start <= una_position) {
            self.reneged_count += 1;
            passed += 1;
        }
        for range in self.ranges.drain(..passed) {
            self.sacked_bytes -= range.len();
        }
    }

    /// Takes the blocks (start, one past the end) of an ACK in the order they stand there.
    ///
    /// `seg_ack` is the ACK's own acknowledgment number, `snd_nxt` ends what was ever sent
    /// (`HighData`). Call [`Scoreboard::on_ack`] first, if the ACK moves `SND.UNA`. An ACK that
    /// was overtaken by a later one does no harm.
    pub fn on_sack(
        &mut self,
        blocks: impl IntoIterator<Item = (SeqNumber, SeqNumber)>,
        seg_ack: SeqNumber,
        snd_nxt: SeqNumber,
    ) -> SackOutcome {
        let mut outcome = SackOutcome::default();
        let mut blocks = blocks.into_iter().take(BLOCKS_MAX).peekable();
        let mut first = true;
        while let Some(block) = blocks.next() {
            let may_be_duplicate = core::mem::replace(&mut first, false);
            let (start, end) = block;
            if !start.is_before(end) {
                outcome.invalid_count += 1;
            } else if may_be_duplicate && is_duplicate(block, blocks.peek().copied(), seg_ack) {
                outcome.duplicate = Some(block);
            } else if end.is_at_or_before(self.una) {
                // Told by an ACK that was overtaken.
            } else if let Some(range) = self.outstanding_range(block, snd_nxt) {
                match self.insert(range) {
                    Some(bytes) => outcome.newly_sacked_bytes += to_u32(bytes),
                    None => outcome.refused_count += 1,
                }
            } else {
                outcome.invalid_count += 1;
            }
        }
        outcome
    }

    /// The retransmission timer went off: forgets every range.
    ///
    /// RFC 2018, 8: the sender SHOULD turn off all SACKed bits, since the timeout might mean that
    /// the receiver has reneged, and MUST NOT keep the left edge of the window from being
    /// retransmitted. What the receiver still holds it will report again (RFC 6675, 5.1).
    pub fn on_timeout(&mut self) {
        self.ranges.clear();
        self.sacked_bytes = 0;
    }

    /// `IsLost` (RFC 6675, 4): `seq` is outstanding, not SACKed, and above it were SACKed
    /// `DupThresh` discontiguous ranges or more than `(DupThresh - 1) * mss` bytes.
    #[must_use]
    pub fn is_lost(&self, seq: SeqNumber, mss: u32) -> bool {
        seq.is_at_or_after(self.una)
            && self.position(seq) < self.lost_end(mss)
            && !self.is_sacked(seq)
    }

    /// Whether `seq` was SACKed and not yet acknowledged.
    #[must_use]
    pub fn is_sacked(&self, seq: SeqNumber) -> bool {
        if seq.is_before(self.una) {
            return false;
        }
        let position = self.position(seq);
        let index = self.ranges.partition_point(|range| range.end <= position);
        self.ranges.get(index).is_some_and(|range| range.start <= position)
    }

    /// `SetPipe` (RFC 6675, 4): an estimate of the bytes in the network.
    ///
    /// Counts un-SACKed bytes up to `snd_nxt` that are not lost, and once more those before
    /// `high_rxt`, which were retransmitted. `high_rxt` is one past RFC 6675's `HighRxt`; what was
    /// not retransmitted at all has it at or before `SND.UNA`.
    #[must_use]
    pub fn pipe(&self, high_rxt: SeqNumber, snd_nxt: SeqNumber, mss: u32) -> u32 {
        let end = self.position(snd_nxt.later_of(self.una));
        let retransmitted_end = self.position(high_rxt.later_of(self.una)).min(end);
        let lost_end = self.lost_end(mss).min(end);
        let not_lost = self.unsacked_before(end) - self.unsacked_before(lost_end);
        to_u32(not_lost + self.unsacked_before(retransmitted_end))
    }

    /// `NextSeg`, rule 1 (RFC 6675, 4): the first lost bytes at or after `high_rxt`, at most
    /// `max_len_bytes` and not beyond the hole: start and length.
    #[must_use]
    pub fn next_lost(
        &self,
        high_rxt: SeqNumber,
        mss: u32,
        max_len_bytes: u32,
    ) -> Option<(SeqNumber, u32)> {
        self.unsacked_in(high_rxt, self.lost_end(mss), max_len_bytes)
    }

    /// `NextSeg`, rule 3 (RFC 6675, 4): the first un-SACKed bytes at or after `high_rxt` and below
    /// the highest SACKed byte, lost or not. For when rules 1 and 2 (new data) give nothing.
    #[must_use]
    pub fn next_hole(&self, high_rxt: SeqNumber, max_len_bytes: u32) -> Option<(SeqNumber, u32)> {
        self.unsacked_in(high_rxt, self.ranges.last()?.end, max_len_bytes)
    }

    /// The first un-SACKed bytes at or after `from` and before `limit`: start and length. After a
    /// timeout, when `NextSeg` does not apply, this fills in what the receiver reports as missing
    /// (RFC 6675, 5.1).
    #[must_use]
    pub fn next_unsacked(
        &self,
        from: SeqNumber,
        limit: SeqNumber,
        max_len_bytes: u32,
    ) -> Option<(SeqNumber, u32)> {
        self.unsacked_in(from, self.position(limit.later_of(self.una)), max_len_bytes)
    }

    /// `NextSeg`, rule 4 (RFC 6675, 4): the rescue retransmission, at most `max_len_bytes` that
    /// MUST include the highest outstanding un-SACKed byte: start and length. Once per recovery;
    /// the caller sets `RescueRxt` and MUST NOT move `HighRxt`.
    #[must_use]
    pub fn rescue(&self, snd_nxt: SeqNumber, max_len_bytes: u32) -> Option<(SeqNumber, u32)> {
        let mut end = self.position(snd_nxt.later_of(self.una));
        let mut below = self.ranges.as_slice();
        // Ranges do not touch, so at most one lies at the very end.
        if let Some((last, others)) = below.split_last()
            && last.end >= end
        {
            end = last.start;
            below = others;
        }
        let hole_start = below.last().map_or(self.una_position, |range| range.end);
        let len = end.saturating_sub(hole_start).min(u64::from(max_len_bytes));
        (len > 0).then(|| (self.sequence(end - len), to_u32(len)))
    }

    /// One past the highest SACKed byte, if any is.
    #[must_use]
    pub fn highest_sacked(&self) -> Option<SeqNumber> {
        self.ranges.last().map(|range| self.sequence(range.end))
    }

    /// Bytes SACKed and not yet acknowledged.
    #[must_use]
    pub fn sacked_bytes(&self) -> u32 {
        to_u32(self.sacked_bytes)
    }

    /// The SACKed ranges (start, one past the end) in order.
    pub fn ranges(&self) -> impl Iterator<Item = (SeqNumber, SeqNumber)> + '_ {
        self.ranges.iter().map(|range| (self.sequence(range.start), self.sequence(range.end)))
    }

    /// Whether nothing is SACKed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// How often the receiver took back what it had SACKed.
    #[must_use]
    pub fn reneged_count(&self) -> u64 {
        self.reneged_count
    }

    /// The block as positions, if it lies after `SND.UNA` and before `snd_nxt`.
    fn outstanding_range(
        &self,
        (start, end): (SeqNumber, SeqNumber),
        snd_nxt: SeqNumber,
    ) -> Option<Range> {
        let (start, end) = (start.offset_from(self.una), end.offset_from(self.una));
        let outstanding = u32::try_from(snd_nxt.distance(self.una)).unwrap_or(0);
        (0 < start && start < end && end <= outstanding).then(|| Range {
            start: self.una_position + u64::from(start),
            end: self.una_position + u64::from(end),
        })
    }

    /// Adds a range, joined to those it overlaps or touches. Returns the new bytes, `None` if it
    /// was refused.
    fn insert(&mut self, new: Range) -> Option<u64> {
        let first = self.ranges.partition_point(|range| range.end < new.start);
        let last = self.ranges.partition_point(|range| range.start <= new.end);
        let Some(touched) = self.ranges.get(first..last).filter(|ranges| !ranges.is_empty()) else {
            if self.ranges.len() >= RANGES_MAX {
                return None;
            }
            self.ranges.insert(first, new);
            self.sacked_bytes += new.len();
            return Some(new.len());
        };
        let known_bytes: u64 = touched.iter().map(|range| range.len()).sum();
        let joined = touched.iter().fold(new, |joined, range| Range {
            start: joined.start.min(range.start),
            end: joined.end.max(range.end),
        });
        self.ranges[first] = joined;
        self.ranges.drain(first + 1..last);
        let new_bytes = joined.len() - known_bytes;
        self.sacked_bytes += new_bytes;
        Some(new_bytes)
    }

    /// The boundary below which every un-SACKed byte is lost; `SND.UNA` if nothing is lost.
    fn lost_end(&self, mss: u32) -> u64 {
        let bytes_threshold = (DUPLICATE_THRESHOLD as u64 - 1) * u64::from(mss);
        let mut bytes_above = 0;
        for (index, range) in self.ranges.iter().rev().enumerate() {
            bytes_above += range.len();
            if index + 1 >= DUPLICATE_THRESHOLD || bytes_above > bytes_threshold {
                return range.start;
            }
        }
        self.una_position
    }

    /// How many bytes from `SND.UNA` to before `end` are not SACKed.
    fn unsacked_before(&self, end: u64) -> u64 {
        let sacked_bytes: u64 = match self.ranges.last() {
            Some(last) if last.end > end => self
                .ranges
                .iter()
                .take_while(|range| range.start < end)
                .map(|range| range.end.min(end) - range.start)
                .sum(),
            _ => self.sacked_bytes,
        };
        end - self.una_position - sacked_bytes
    }

    /// The first un-SACKed bytes at or after `from` and before `limit`.
    fn unsacked_in(
        &self,
        from: SeqNumber,
        limit: u64,
        max_len_bytes: u32,
    ) -> Option<(SeqNumber, u32)> {
        let mut start = self.position(from.later_of(self.una));
        let index = self.ranges.partition_point(|range| range.end <= start);
        let mut following = self.ranges.iter().skip(index).peekable();
        if let Some(range) = following.peek()
            && range.start <= start
        {
            // Ranges do not touch, so a hole begins where this one ends.
            start = range.end;
            following.next();
        }
        let end = following.next().map_or(limit, |range| range.start.min(limit));
        let len = end.saturating_sub(start).min(u64::from(max_len_bytes));
        (len > 0).then(|| (self.sequence(start), to_u32(len)))
    }

    /// The position of a number at or after `SND.UNA`.
    fn position(&self, seq: SeqNumber) -> u64 {
        self.una_position + u64::from(seq.offset_from(self.una))
    }

    fn sequence(&self, position: u64) -> SeqNumber {
        self.una + to_u32(position - self.una_position)
    }
}

/// RFC 2883, 4: the first block reports a duplicate if it lies below the cumulative ACK or within
/// the second block.
fn is_duplicate(
    (start, end): (SeqNumber, SeqNumber),
    second: Option<(SeqNumber, SeqNumber)>,
    seg_ack: SeqNumber,
) -> bool {
    let within = |(outer_start, outer_end): (SeqNumber, SeqNumber)| {
        outer_start.is_at_or_before(start) && end.is_at_or_before(outer_end)
    };
    end.is_at_or_before(seg_ack) || second.is_some_and(within)
}

/// Lengths within the outstanding data, which spans less than 2^31 bytes.
fn to_u32(length: u64) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
