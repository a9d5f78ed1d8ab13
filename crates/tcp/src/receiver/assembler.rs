//! Data that arrived ahead of its turn (RFC 9293, 3.10.7.4; RFC 2018).
//!
//! Segments beyond `RCV.NXT` wait here until the gap before them is filled. In go pieces (handles
//! on received bytes, never copies of them) with their offset from `RCV.NXT`; out come the pieces
//! in order, and the SACK blocks that tell the sender what is here.
//!
//! ```text
//!   offset 0 = RCV.NXT      runs = what SACK reports
//!      |           [ run         )        [ run  )
//!      |           [piece)[piece )        [piece )
//! ```
//!
//! What always holds:
//!
//! - pieces do not overlap and are not empty; on overlap the bytes that came first stay, so that a
//!   later segment cannot rewrite what SACK has already reported;
//! - runs are the pieces merged where they touch; two runs never touch;
//! - there are at most `pieces_max` pieces with at most `bytes_max` bytes. Data at `RCV.NXT` needs
//!   no room here, so a full assembler delays a connection but cannot stop it.
//!
//! Positions are 64-bit inside, counted from the beginning of the stream: they neither wrap nor
//! have to be renumbered when `RCV.NXT` moves.

use std::collections::VecDeque;

/// The most SACK blocks that fit a TCP header (RFC 2018, 3).
pub(crate) const SACK_BLOCKS_MAX: usize = 4;

/// How many arrivals are remembered for the order of SACK blocks; more than one ACK can report,
/// because runs merge.
const RECENT_MAX: usize = 8;

/// A handle on received bytes.
pub(crate) trait Piece: Sized {
    /// Bytes in the piece.
    fn len(&self) -> usize;

    /// Whether the piece has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops the first `count` bytes; `count` is at most [`Piece::len`].
    fn trim_front(&mut self, count: usize);

    /// Keeps the first `len` bytes; `len` is at most [`Piece::len`].
    fn truncate(&mut self, len: usize);

    /// Cuts the piece in two: keeps the first `at` bytes and returns the others, without copying
    /// them; `at` is at most [`Piece::len`].
    #[must_use]
    fn split_off(&mut self, at: usize) -> Self;

    /// Whether the `len` bytes from `at` on differ from those of `other` from `other_at` on; both
    /// ranges lie within their pieces.
    fn differs(&self, at: usize, other: &Self, other_at: usize, len: usize) -> bool;
}

/// A received payload, which is a counted reference to its block.
impl Piece for batch::Chunk {
    fn len(&self) -> usize {
        self.len()
    }

    fn trim_front(&mut self, count: usize) {
        self.trim_front(count);
    }

    fn truncate(&mut self, len: usize) {
        self.truncate(len);
    }

    fn split_off(&mut self, at: usize) -> Self {
        let mut rest = self.clone();
        rest.trim_front(at);
        self.truncate(at);
        rest
    }

    fn differs(&self, at: usize, other: &Self, other_at: usize, len: usize) -> bool {
        self.bytes().get(at..at + len) != other.bytes().get(other_at..other_at + len)
    }
}

/// What of a piece is here already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Overlap {
    /// The first contiguous range of it, as (start, end) offsets from `RCV.NXT` (RFC 2883, 4).
    pub(crate) first: Option<(u32, u32)>,
    /// Some of it has other content than what came first, and stays.
    pub(crate) is_conflicting: bool,
}

/// What became of an inserted piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Insert {
    /// `bytes` of it are new and were kept.
    Stored {
        /// More than 0, at most the length of the piece.
        bytes: usize,
    },
    /// All of it was here already.
    Duplicate,
    /// Some of it is new, but there was room for none of that.
    Full,
}

/// How much may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AssemblerConfig {
    /// Most pieces. Bounds the memory pinned by an attacker's one-byte segments, since each holds
    /// on to the block it arrived in, and the work of an insertion. Behind one lost segment a whole
    /// window of full ones may have to wait: 6 MiB are 4,300 of them. What is refused here is lost
    /// once more; with 1,024 a sender found half a thousand losses where the path had a hundred.
    pub pieces_max: usize,
    /// Most bytes.
    pub bytes_max: usize,
}

impl Default for AssemblerConfig {
    fn default() -> Self {
        Self { pieces_max: 8192, bytes_max: 16 << 20 }
    }
}

/// The out-of-order store of one connection.
#[derive(Debug)]
pub(crate) struct Assembler<P> {
    config: AssemblerConfig,
    /// The position of `RCV.NXT`.
    base: u64,
    /// Sorted by position.
    pieces: VecDeque<Stored<P>>,
    /// Sorted by position; the pieces, merged.
    runs: VecDeque<Run>,
    /// Where segments arrived, newest first; at most [`RECENT_MAX`].
    recent: VecDeque<u64>,
    bytes: usize,
}

#[derive(Debug)]
struct Stored<P> {
    start: u64,
    piece: P,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    start: u64,
    end: u64,
}

impl<P: Piece> Stored<P> {
    fn end(&self) -> u64 {
        self.start + self.piece.len() as u64
    }
}

impl<P: Piece> Assembler<P> {
    /// An empty assembler. It allocates when the first piece arrives.
    pub(crate) fn new(config: AssemblerConfig) -> Self {
        Self {
            config,
            base: 0,
            pieces: VecDeque::new(),
            runs: VecDeque::new(),
            recent: VecDeque::new(),
            bytes: 0,
        }
    }

    /// Keeps what is new in `piece`, which begins `offset` bytes after `RCV.NXT`.
    ///
    /// A piece that spans others is cut around them. Where room runs out, its first parts are kept.
    pub(crate) fn insert(&mut self, offset: u32, piece: P) -> Insert {
        if piece.is_empty() {
            return Insert::Duplicate;
        }
        let start = self.base + u64::from(offset);
        let stored_bytes = self.fill_gaps(Stored { start, piece });
        match stored_bytes {
            Some(0) => Insert::Full,
            Some(bytes) => {
                self.remember(start);
                Insert::Stored { bytes }
            }
            None => {
                // RFC 2018, 4: the first block MUST be the one that contains the segment which
                // triggered this ACK, and a duplicate triggers one as well.
                self.remember(start);
                Insert::Duplicate
            }
        }
    }

    /// What of `piece` waits here already. Costs one comparison of the bytes that do.
    pub(crate) fn overlap(&self, offset: u32, piece: &P) -> Overlap {
        let start = self.base + u64::from(offset);
        let end = start + piece.len() as u64;
        let mut overlap = Overlap::default();
        if piece.is_empty() {
            return overlap;
        }
        let index = self.pieces.partition_point(|stored| stored.end() <= start);
        for stored in self.pieces.iter().skip(index).take_while(|stored| stored.start < end) {
            let (from, to) = (start.max(stored.start), end.min(stored.end()));
            let range = (self.offset(from), self.offset(to));
            match &mut overlap.first {
                None => overlap.first = Some(range),
                Some(first) if first.1 == range.0 => first.1 = range.1,
                Some(_) => {}
            }
            overlap.is_conflicting |= piece.differs(
                to_usize(from - start),
                &stored.piece,
                to_usize(from - stored.start),
                to_usize(to - from),
            );
        }
        overlap
    }

    /// Where the first piece begins, in bytes after `RCV.NXT`.
    pub(crate) fn first_offset(&self) -> Option<u32> {
        self.pieces.front().map(|stored| self.offset(stored.start))
    }

    /// `RCV.NXT` moved on by `count` bytes that did not come from here: what was kept of them is
    /// dropped. Bytes handed out by [`Assembler::take_ready`] do not count.
    pub(crate) fn advance(&mut self, count: u32) {
        self.base += u64::from(count);
        while let Some(front) = self.pieces.front_mut() {
            if front.start >= self.base {
                break;
            }
            if front.end() > self.base {
                let passed = to_usize(self.base - front.start);
                front.piece.trim_front(passed);
                front.start = self.base;
                self.bytes -= passed;
                break;
            }
            self.bytes -= front.piece.len();
            self.pieces.pop_front();
        }
        self.drop_passed_runs();
    }

    /// Hands out the piece at `RCV.NXT`, if it is here, and moves on by its length: the caller
    /// adds [`Piece::len`] to its own `RCV.NXT` and calls again.
    pub(crate) fn take_ready(&mut self) -> Option<P> {
        if self.pieces.front()?.start != self.base {
            return None;
        }
        let Stored { piece, .. } = self.pieces.pop_front()?;
        self.base += piece.len() as u64;
        self.bytes -= piece.len();
        self.drop_passed_runs();
        Some(piece)
    }

    /// Up to `max` (and [`SACK_BLOCKS_MAX`]) runs as (start, end) offsets from `RCV.NXT`, in the
    /// order of RFC 2018, 4: first the run of the segment that arrived last, then the runs reported
    /// most recently, then others, for as many distinct blocks as possible SHOULD be included.
    pub(crate) fn sack_blocks(&self, max: usize) -> impl Iterator<Item = (u32, u32)> + use<P> {
        let max = max.min(SACK_BLOCKS_MAX).min(self.runs.len());
        let mut chosen = [0_usize; SACK_BLOCKS_MAX];
        let mut blocks = [(0, 0); SACK_BLOCKS_MAX];
        let mut count = 0;
        let recent = self.recent.iter().filter_map(|&position| self.run_of(position));
        for index in recent.chain(0..self.runs.len()) {
            if count == max {
                break;
            }
            if !chosen[..count].contains(&index) {
                let run = self.runs[index];
                chosen[count] = index;
                blocks[count] = (self.offset(run.start), self.offset(run.end));
                count += 1;
            }
        }
        blocks.into_iter().take(count)
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// The piece that lies last in the stream.
    pub(crate) fn last_piece(&self) -> Option<&P> {
        self.pieces.back().map(|stored| &stored.piece)
    }

    /// What waits, in stream order.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &P> {
        self.pieces.iter().map(|stored| &stored.piece)
    }

    /// The same, to be exchanged for pieces of the same bytes.
    pub(crate) fn pieces_mut(&mut self) -> impl Iterator<Item = &mut P> {
        self.pieces.iter_mut().map(|stored| &mut stored.piece)
    }

    /// Bytes that wait.
    pub(crate) fn len_bytes(&self) -> usize {
        self.bytes
    }

    /// Stores the parts of `rest` that lie between the pieces. `None` if there were none,
    /// otherwise the bytes stored, 0 if there was no room for the first part.
    fn fill_gaps(&mut self, mut rest: Stored<P>) -> Option<usize> {
        let length = rest.piece.len();
        let mut stored_bytes = None;
        // The first piece that ends beyond the beginning of `rest`.
        let mut index = self.pieces.partition_point(|stored| stored.end() <= rest.start);
        loop {
            let next = self.pieces.get(index).map(|stored| (stored.start, stored.end()));
            let end = rest.end();
            let Some((next_start, next_end)) = next.filter(|&(start, _)| start < end) else {
                // All that is left is new.
                let kept = self.store(index, rest);
                stored_bytes = Some(stored_bytes.unwrap_or(0) + kept);
                break;
            };
            if next_start > rest.start {
                let after = rest.piece.split_off(to_usize(next_start - rest.start));
                let part =
                    Stored { start: rest.start, piece: core::mem::replace(&mut rest.piece, after) };
                let part_len = part.piece.len();
                let kept = self.store(index, part);
                stored_bytes = Some(stored_bytes.unwrap_or(0) + kept);
                if kept < part_len {
                    break;
                }
                index += 1;
            }
            // `rest` now begins within the next piece, or had begun there.
            if next_end >= end {
                break;
            }
            let len = to_usize(end - next_end);
            rest.piece.trim_front(rest.piece.len() - len);
            rest.start = next_end;
            index += 1;
        }
        debug_assert!(stored_bytes.unwrap_or(0) <= length);
        stored_bytes
    }

    /// Stores one part before `pieces[index]`, as much of it as there is room for. Returns the
    /// bytes stored.
    fn store(&mut self, index: usize, mut part: Stored<P>) -> usize {
        let room = self.config.bytes_max.saturating_sub(self.bytes);
        if room == 0 || self.pieces.len() >= self.config.pieces_max {
            return 0;
        }
        if part.piece.len() > room {
            part.piece.truncate(room);
        }
        let bytes = part.piece.len();
        self.merge_run(Run { start: part.start, end: part.end() });
        self.bytes += bytes;
        self.pieces.insert(index, part);
        bytes
    }

    /// Adds a run that overlaps no other, and joins it to the neighbours that it touches.
    fn merge_run(&mut self, mut new: Run) {
        let index = self.runs.partition_point(|run| run.end < new.start);
        let mut joined = 0;
        for run in self.runs.iter().skip(index).take(2) {
            if run.start <= new.end {
                new = Run { start: run.start.min(new.start), end: run.end.max(new.end) };
                joined += 1;
            }
        }
        match joined {
            0 => self.runs.insert(index, new),
            1 => self.runs[index] = new,
            _ => {
                self.runs[index] = new;
                self.runs.remove(index + 1);
            }
        }
    }

    fn drop_passed_runs(&mut self) {
        while let Some(front) = self.runs.front_mut() {
            if front.end > self.base {
                front.start = front.start.max(self.base);
                break;
            }
            self.runs.pop_front();
        }
        if self.runs.is_empty() {
            self.recent.clear();
        }
    }

    /// Puts the run that holds `position` first in the order of SACK blocks.
    fn remember(&mut self, position: u64) {
        if let Some(run) = self.run_of(position).map(|index| self.runs[index]) {
            self.recent.retain(|&other| other < run.start || other >= run.end);
        }
        self.recent.truncate(RECENT_MAX - 1);
        self.recent.push_front(position);
    }

    fn run_of(&self, position: u64) -> Option<usize> {
        let index = self.runs.partition_point(|run| run.end <= position);
        self.runs.get(index).filter(|run| run.start <= position).map(|_| index)
    }

    fn offset(&self, position: u64) -> u32 {
        to_u32(position - self.base)
    }
}

impl<P: Piece> Default for Assembler<P> {
    fn default() -> Self {
        Self::new(AssemblerConfig::default())
    }
}

/// Lengths within one piece, which has a `usize` length itself.
fn to_usize(length: u64) -> usize {
    usize::try_from(length).unwrap_or(usize::MAX)
}

/// Offsets from `RCV.NXT`. A receive window is at most 2^30, so nothing beyond it is ever stored
/// by a caller that trims segments to the window.
fn to_u32(length: u64) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
