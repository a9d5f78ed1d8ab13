//! Checksums that were made while a block was filled.
//!
//! The copy of the application's bytes fetches each of them once anyway; their Internet checksum
//! costs next to nothing in the same pass (`checksum::copy_and_sum`). What is kept is a sum for each
//! *piece*: bytes that will probably leave in one segment. The sum of a segment that is exactly one
//! piece is then known without a look at its bytes; one that was cut otherwise - an option more in
//! its header, a smaller path MTU, the end of a window - is put together from the pieces inside it,
//! and at its two edges the shorter side of the cut is read.
//!
//! ```text
//!  block  | header room | first | piece | piece | ... | piece | appended later: not known |
//!                       ^ start                               ^ end
//! ```
//!
//! Where several copies fill a block one behind the other, as of datagrams that share it, each is a section
//! with pieces of its own.
//!
//! What always holds: sums describe the bytes as they are. Whoever gets the whole buffer to write
//! takes the sums away with it; what is appended lies behind their end.

use checksum::Accumulator;
use core::ops::Range;

/// Where pieces lie in a run of bytes that is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pieces {
    len_bytes: usize,
    done_bytes: usize,
}

impl Pieces {
    /// Pieces of `len_bytes` (at least one), of the first of which `done_bytes` went before.
    #[must_use]
    pub fn new(len_bytes: usize, done_bytes: usize) -> Self {
        let len_bytes = len_bytes.max(1);
        Self { len_bytes, done_bytes: done_bytes % len_bytes }
    }

    /// Where they lie behind the next `count` bytes.
    #[must_use]
    pub fn after(self, count: usize) -> Self {
        Self::new(self.len_bytes, self.done_bytes + count % self.len_bytes)
    }

    fn first_len_bytes(self) -> usize {
        self.len_bytes - self.done_bytes
    }
}

/// Bytes of one copy: pieces side by side.
#[derive(Debug)]
struct Section {
    start: usize,
    end: usize,
    pieces: Pieces,
    /// Which of all sums is that of its first piece.
    sum_first: usize,
}

/// The sums of a block's pieces: sections side by side, of a stream one, of datagrams one for each.
#[derive(Debug, Default)]
pub(crate) struct PieceSums {
    sections: Vec<Section>,
    /// Folded, not inverted, each as if its piece began at an even byte.
    sums: Vec<u16>,
}

impl PieceSums {
    /// Forgets everything but its memory.
    pub(crate) fn clear(&mut self) {
        self.sections.clear();
        self.sums.clear();
    }

    /// Where the bytes end that are described; 0 where none are.
    pub(crate) fn end(&self) -> usize {
        self.sections.last().map_or(0, |section| section.end)
    }

    /// Copies `source` to `buffer[at..]` and remembers the sum of each piece; what was known before
    /// is forgotten, unless it ends where this begins.
    ///
    /// # Panics
    /// Where the buffer is too short.
    pub(crate) fn copy(&mut self, buffer: &mut [u8], at: usize, source: &[u8], pieces: Pieces) {
        if self.end() != at {
            self.clear();
        }
        let destination = &mut buffer[at..at + source.len()];
        let sum_first = self.sums.len();
        self.sections.push(Section { start: at, end: at + source.len(), pieces, sum_first });
        let first_len = pieces.first_len_bytes().min(source.len());
        let (first_to, to) = destination.split_at_mut(first_len);
        let (first, rest) = source.split_at(first_len);
        self.sums.push(checksum::copy_and_sum(first_to, first));
        let rest = to.chunks_mut(pieces.len_bytes).zip(rest.chunks(pieces.len_bytes));
        self.sums.extend(rest.map(|(to, from)| checksum::copy_and_sum(to, from)));
    }

    /// The sum of `bytes[range]`, folded and not inverted, as if it began at an even byte; and how
    /// many bytes had to be read for it. `bytes` is the block that was copied to.
    ///
    /// # Panics
    /// Where the range is not within `bytes`.
    #[inline]
    pub(crate) fn sum(&self, bytes: &[u8], range: Range<usize>) -> (u16, usize) {
        let start = self.sections.first().map_or(0, |section| section.start);
        let known = range.start.max(start)..range.end.min(self.end());
        if known.is_empty() {
            return (checksum::sum(&bytes[range.clone()]), range.len());
        }
        let mut sum = Accumulator::new();
        let mut read = (known.start - range.start) + (range.end - known.end);
        sum.add(&bytes[range.start..known.start]);
        let first = self.sections.partition_point(|section| section.end <= known.start);
        for section in &self.sections[first..] {
            if section.start >= known.end {
                break;
            }
            let part = known.start.max(section.start)..known.end.min(section.end);
            read += self.add(section, bytes, part, &mut sum);
        }
        sum.add(&bytes[known.end..range.end]);
        (sum.sum(), read)
    }

    /// Adds the bytes `part` of a section, and says how many had to be read.
    #[inline]
    fn add(
        &self,
        section: &Section,
        bytes: &[u8],
        part: Range<usize>,
        sum: &mut Accumulator,
    ) -> usize {
        let (mut at, mut read) = (part.start, 0);
        let mut index = section.index_at(at);
        while at < part.end {
            let piece = section.piece(index);
            let part = at..piece.end.min(part.end);
            let of_piece = self.sums.get(section.sum_first + index).copied().unwrap_or(0);
            if part == piece {
                sum.add_sum(of_piece, part.len());
            } else {
                let (of_part, of_part_read) = sum_of_part(bytes, &piece, of_piece, &part);
                sum.add_sum(of_part, part.len());
                read += of_part_read;
            }
            at = part.end;
            index += 1;
        }
        read
    }
}

impl Section {
    fn index_at(&self, at: usize) -> usize {
        match (at - self.start).checked_sub(self.pieces.first_len_bytes()) {
            None => 0,
            Some(behind_first) => 1 + behind_first / self.pieces.len_bytes,
        }
    }

    fn piece(&self, index: usize) -> Range<usize> {
        let first_end = self.start + self.pieces.first_len_bytes();
        let end = first_end + index * self.pieces.len_bytes;
        let start = if index == 0 { self.start } else { end - self.pieces.len_bytes };
        start..end.min(self.end)
    }
}

/// The sum of `part`, which lies within `piece`: read, or what is left of the piece's sum without
/// what lies outside, whichever is less to read.
fn sum_of_part(
    bytes: &[u8],
    piece: &Range<usize>,
    of_piece: u16,
    part: &Range<usize>,
) -> (u16, usize) {
    let outside = piece.len() - part.len();
    if outside >= part.len() {
        return (checksum::sum(&bytes[part.clone()]), part.len());
    }
    // One's-complement subtraction is the addition of the complement. The part stands in for itself
    // as so many bytes that sum up to zero, so that what follows it keeps its place in a word.
    let mut around = Accumulator::new();
    around.add(&bytes[piece.start..part.start]);
    around.add_sum(0, part.len());
    around.add(&bytes[part.end..piece.end]);
    let mut left = Accumulator::new();
    left.add_u16(of_piece);
    left.add_u16(!around.sum());
    let is_odd = (part.start - piece.start) % 2 == 1;
    (if is_odd { left.sum().swap_bytes() } else { left.sum() }, outside)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BlockPool, PoolConfig};
    use proptest::prelude::*;

    /// A checksum of something that is never all zero, as every pseudo-header is, so that the two
    /// ways in which one's complement writes zero come to the same.
    fn checksum_with(sum: u16, len: usize) -> u16 {
        let mut all = Accumulator::new();
        all.add_u16(6);
        all.add_sum(sum, len);
        all.finish()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        #[test]
        fn folded_sums_equal_plain_ones_for_every_cut(
            content in prop_oneof![
                proptest::collection::vec(any::<u8>(), 1..6_000),
                proptest::collection::vec(Just(0_u8), 1..600),
                proptest::collection::vec(Just(0xff_u8), 1..600),
            ],
            piece_len in prop_oneof![1_usize..40, 500_usize..2_000],
            done in 0_usize..2_000,
            room in 0_usize..70,
            appended in 0_usize..200,
            cut in any::<(u16, u16)>(),
        ) {
            let pool = BlockPool::new(PoolConfig::default());
            let mut block = pool.allocate(room + content.len() + appended).expect("room");
            let pieces = Pieces::new(piece_len, done);
            block.copy_in(room, &content, Some(pieces));
            let mut chunk = crate::Chunk::new(block.freeze(), room..room + content.len());
            let tail: Vec<u8> = (0..appended).map(|i| i as u8).collect();
            prop_assert_eq!(chunk.append_in_place(&tail), appended);
            let whole: Vec<u8> = content.iter().chain(&tail).copied().collect();
            prop_assert_eq!(chunk.bytes(), &whole[..]);
            let start = usize::from(cut.0) % (whole.len() + 1);
            let len = usize::from(cut.1) % (whole.len() + 1 - start);
            let range = room + start..room + start + len;
            let plain = checksum::sum(&whole[start..start + len]);
            let (folded, read) = chunk.block().sum(range);
            prop_assert_eq!(checksum_with(folded, len), checksum_with(plain, len));
            prop_assert!(read <= len);
        }
    }

    proptest! {
        #[test]
        fn copies_behind_each_other_are_known_together(
            lens in proptest::collection::vec(0_usize..300, 1..12),
            piece_len in 1_usize..400,
            room in 0_usize..70,
            cut in any::<(u16, u16)>(),
        ) {
            let whole: Vec<u8> = (0..lens.iter().sum::<usize>()).map(|i| ((i * 31) >> 3) as u8).collect();
            let pool = BlockPool::new(PoolConfig::default());
            let mut block = pool.allocate(room + whole.len()).expect("room");
            let (mut at, mut ends) = (0, Vec::new());
            for len in lens {
                block.copy_in(room + at, &whole[at..at + len], Some(Pieces::new(piece_len, 0)));
                at += len;
                ends.push(at);
            }
            let block = block.freeze();
            let mut start = 0;
            for end in ends {
                prop_assert_eq!(block.sum(room + start..room + end).1, 0, "copied by itself");
                start = end;
            }
            let start = usize::from(cut.0) % (whole.len() + 1);
            let len = usize::from(cut.1) % (whole.len() + 1 - start);
            let (folded, read) = block.sum(room + start..room + start + len);
            let plain = checksum::sum(&whole[start..start + len]);
            prop_assert_eq!(checksum_with(folded, len), checksum_with(plain, len));
            prop_assert!(read <= len);
        }
    }

    #[test]
    fn a_copy_elsewhere_forgets_what_was_known() {
        let pool = BlockPool::new(PoolConfig::default());
        let mut block = pool.allocate(2_048).expect("room");
        let pieces = Some(Pieces::new(500, 0));
        block.copy_in(0, &[1; 1_000], pieces);
        block.copy_in(500, &[2; 500], pieces);
        block.copy_in(1_000, &[3; 500], pieces);
        let block = block.freeze();
        assert_eq!(block.sum(500..1_500), (checksum::sum(&block.bytes()[500..1_500]), 0));
        assert_eq!(block.sum(0..500), (checksum::sum(&[1; 500]), 500));
    }

    #[test]
    fn whole_pieces_are_not_read_and_a_small_cut_reads_the_small_side() {
        let pool = BlockPool::new(PoolConfig::default());
        let content: Vec<u8> = (0..10_000_u32).map(|i| (i * 7) as u8).collect();
        let mut block = pool.allocate(content.len()).expect("room");
        block.copy_in(0, &content, Some(Pieces::new(1_448, 1_000)));
        let block = block.freeze();
        assert_eq!(block.sum(448..448 + 1_448).1, 0, "one piece");
        assert_eq!(block.sum(0..448 + 5 * 1_448).1, 0, "the first and five more");
        assert_eq!(block.sum(9_136..10_000).1, 0, "the last, which is short");
        assert_eq!(
            block.sum(448..448 + 1_436).1,
            12,
            "the last twelve bytes of a piece are missing"
        );
        assert_eq!(block.sum(448 + 1_436..448 + 1_448).1, 12, "and are little to read");
        assert_eq!(block.sum(0..10_000).0, checksum::sum(&content));
    }

    #[test]
    fn whoever_may_write_anywhere_takes_the_sums_away() {
        let pool = BlockPool::new(PoolConfig::default());
        let mut block = pool.allocate(2_048).expect("room");
        block.copy_in(0, &[1; 2_048], Some(Pieces::new(1_024, 0)));
        block.bytes_mut()[5] = 9;
        let block = block.freeze();
        assert_eq!(block.sum(0..1_024), (checksum::sum(&block.bytes()[..1_024]), 1_024));
        // The next user of the same memory, who knows nothing of sums.
        drop(block);
        let mut again = pool.allocate(2_048).expect("room");
        assert_eq!(pool.counters().allocation_misses, 1, "it is the same memory");
        again.copy_in(0, &[3; 2_048], None);
        assert_eq!(again.freeze().sum(0..1_024).1, 1_024);
    }

    #[test]
    fn what_is_written_over_the_end_of_a_cut_chunk_is_not_believed_known() {
        let pool = BlockPool::new(PoolConfig::default());
        let mut block = pool.allocate(2_048).expect("room");
        block.copy_in(0, &[1; 1_000], Some(Pieces::new(500, 0)));
        let mut chunk = crate::Chunk::new(block.freeze(), 0..1_000);
        chunk.truncate(700);
        assert_eq!(chunk.append_in_place(&[9; 300]), 300);
        assert_eq!(chunk.block().sum(0..1_000), (checksum::sum(chunk.bytes()), 1_000));
    }
}
