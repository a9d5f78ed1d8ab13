//! Bytes the application handed over that the peer has not acknowledged yet.
//!
//! Chunks lie in stream order, each with its position counted from the first byte ever queued, so
//! that the chunk of a sequence number is found by bisection and a burst then walks on from there.
//! Nothing is copied but small chunks into the free rest of the block before them.
//!
//! ```text
//!  SND.UNA (base)                SND.NXT              end
//!     |  chunk  |  chunk  |  chunk  |  chunk  |  chunk |
//!     |<------ may be sent again -->|<---- not sent -->|
//! ```
//!
//! What always holds: chunks are not empty and touch each other; the first begins at or before
//! the base and the last ends at the end.
//!
//! A chunk may be the last of a record: nothing is merged into it, and a segment ends where it ends.

use crate::room::{make_room, release};
use batch::{Block, Chunk};
use std::collections::VecDeque;
use wire::SeqNumber;

/// Chunks up to this length are copied behind the previous one where its block has room.
const MERGE_LEN_BYTES_MAX: usize = 1024;

/// Least number of chunks the queue takes, whatever its size in bytes.
const CHUNKS_MIN: usize = 1024;

/// A place in the queue, from which a burst walks on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cursor {
    index: usize,
    offset: usize,
}

#[derive(Debug)]
struct Stored {
    /// Its position, and in the lowest bit whether a record ends with it: every connection keeps room for some of these.
    place: u64,
    chunk: Chunk,
}

impl Stored {
    fn start(&self) -> u64 {
        self.place >> 1
    }

    fn ends_record(&self) -> bool {
        self.place & 1 != 0
    }
}

/// The send queue.
#[derive(Debug)]
pub(crate) struct SendQueue {
    chunks: VecDeque<Stored>,
    /// Position and sequence number of the first unacknowledged byte.
    base: u64,
    base_sequence: SeqNumber,
    /// How many of the chunks end a record: none, but for few applications, which is asked first.
    record_ends: u32,
    end: u64,
    capacity_bytes: usize,
}

impl SendQueue {
    /// An empty queue whose first byte will have this sequence number.
    pub(crate) fn new(first: SeqNumber, capacity_bytes: usize) -> Self {
        Self {
            chunks: VecDeque::new(),
            base: 0,
            base_sequence: first,
            record_ends: 0,
            end: 0,
            capacity_bytes,
        }
    }

    /// Bytes queued and not acknowledged.
    pub(crate) fn len(&self) -> usize {
        (self.end - self.base) as usize
    }

    /// How many bytes may be appended.
    pub(crate) fn room(&self) -> usize {
        // A bound on chunks as well, so that a writer of single bytes cannot make the
        // bookkeeping many times larger than the buffer.
        if self.chunks.len() >= CHUNKS_MIN.max(self.capacity_bytes / 256) {
            return 0;
        }
        self.capacity_bytes.saturating_sub(self.len())
    }

    pub(crate) fn set_capacity(&mut self, capacity_bytes: usize) {
        self.capacity_bytes = capacity_bytes;
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity_bytes
    }

    /// The sequence number behind the last queued byte; that of the FIN, once there is one.
    pub(crate) fn end_sequence(&self) -> SeqNumber {
        self.base_sequence + self.len() as u32
    }

    /// Bytes queued from `sequence` on; none where it lies behind the end.
    pub(crate) fn len_from(&self, sequence: SeqNumber) -> u32 {
        self.end_sequence().distance(sequence).max(0).cast_unsigned()
    }

    /// Queues a chunk; the caller has asked for [`SendQueue::room`].
    pub(crate) fn append(&mut self, mut chunk: Chunk) {
        if chunk.len() <= MERGE_LEN_BYTES_MAX
            && let Some(tail) = self.chunks.back_mut().filter(|tail| !tail.ends_record())
        {
            let merged = tail.chunk.append_in_place(chunk.bytes());
            self.end += merged as u64;
            chunk.trim_front(merged);
        }
        if !chunk.is_empty() {
            let start = self.end;
            self.end += chunk.len() as u64;
            make_room(&mut self.chunks);
            self.chunks.push_back(Stored { place: start << 1, chunk });
        }
    }

    /// What is queued last ends a record.
    pub(crate) fn end_record(&mut self) {
        if let Some(tail) = self.chunks.back_mut() {
            self.record_ends += u32::from(!tail.ends_record());
            tail.place |= 1;
        }
    }

    /// Lets go of everything before `sequence` and says how many bytes that were.
    pub(crate) fn acknowledge(&mut self, sequence: SeqNumber) -> usize {
        let ahead = usize::try_from(sequence.distance(self.base_sequence)).unwrap_or(0);
        let count = ahead.min(self.len());
        self.base += count as u64;
        self.base_sequence += count as u32;
        while let Some(front) = self.chunks.front() {
            if front.start() + front.chunk.len() as u64 > self.base {
                break;
            }
            self.record_ends -= u32::from(front.ends_record());
            self.chunks.pop_front();
        }
        release(&mut self.chunks);
        count
    }

    /// Lets go of everything, sent or not.
    pub(crate) fn clear(&mut self) {
        self.chunks = VecDeque::new();
        self.record_ends = 0;
        self.end = self.base;
    }

    /// The place of `sequence`.
    pub(crate) fn cursor(&self, sequence: SeqNumber) -> Cursor {
        let ahead = u64::try_from(sequence.distance(self.base_sequence)).unwrap_or(0);
        let position = self.base + ahead;
        let index =
            self.chunks.partition_point(|stored| stored.start() <= position).saturating_sub(1);
        let offset =
            self.chunks.get(index).map_or(0, |stored| (position - stored.start()) as usize);
        Cursor { index, offset }
    }

    /// Visits the pieces of the next `len` bytes, at most `pieces_max` of them, until the visitor
    /// refuses one. Moves the cursor behind what was visited and says how much that was; `None`
    /// where the visitor refused.
    #[inline]
    pub(crate) fn visit(
        &self,
        cursor: &mut Cursor,
        len: usize,
        pieces_max: usize,
        mut visitor: impl FnMut(&Block, usize, usize) -> bool,
    ) -> Option<usize> {
        let mut done = 0;
        let mut pieces = 0;
        while done < len && pieces < pieces_max {
            let Some(Stored { chunk, .. }) = self.chunks.get(cursor.index) else { break };
            let piece = (len - done).min(chunk.len().saturating_sub(cursor.offset));
            if piece > 0 {
                if !visitor(chunk.block(), chunk.offset() + cursor.offset, piece) {
                    return None;
                }
                pieces += 1;
                done += piece;
                cursor.offset += piece;
            }
            if cursor.offset >= chunk.len() {
                *cursor = Cursor { index: cursor.index + 1, offset: 0 };
            }
        }
        Some(done)
    }
}

impl SendQueue {
    /// How many of the bytes from `sequence` on one segment may have, which has room for `len_max`: what is queued, up
    /// to the end of the record.
    #[inline]
    pub(crate) fn len_of_segment(&self, sequence: SeqNumber, len_max: u32) -> u32 {
        let len = self.len_from(sequence).min(len_max);
        if self.record_ends == 0 { len } else { self.len_in_record(sequence, len) }
    }

    #[cold]
    fn len_in_record(&self, sequence: SeqNumber, len: u32) -> u32 {
        let cursor = self.cursor(sequence);
        let mut behind = 0;
        for stored in self.chunks.range(cursor.index.min(self.chunks.len())..) {
            behind += stored.chunk.len();
            let reached = behind.saturating_sub(cursor.offset);
            if stored.ends_record() || reached >= len as usize {
                return len.min(reached as u32);
            }
        }
        len
    }

    /// How many of `len_max` bytes from `sequence` on, but for the last of the queue or of a record, lie where the first
    /// does; where no record ends, those of other chunks are counted too.
    #[inline]
    pub(crate) fn len_together(&self, sequence: SeqNumber, len_max: u32) -> u32 {
        let len = self.len_from(sequence).saturating_sub(1).min(len_max);
        if self.record_ends == 0 { len } else { self.len_in_chunk(sequence, len) }
    }

    #[cold]
    fn len_in_chunk(&self, sequence: SeqNumber, len: u32) -> u32 {
        let cursor = self.cursor(sequence);
        let stored = self.chunks.get(cursor.index);
        let left = |it: &Stored| it.chunk.len() - usize::from(it.ends_record());
        let left = stored.map_or(0, left).saturating_sub(cursor.offset);
        len.min(u32::try_from(left).unwrap_or(u32::MAX))
    }

    /// Whether records end somewhere in the queue.
    pub(crate) fn has_records(&self) -> bool {
        self.record_ends > 0
    }

    /// Whether nothing is to be put behind the byte before `end`: it is the last there is, or the last of its record.
    #[inline]
    pub(crate) fn ends_at(&self, end: SeqNumber) -> bool {
        end == self.end_sequence() || (self.record_ends > 0 && self.ends_record_at(end))
    }

    #[cold]
    fn ends_record_at(&self, end: SeqNumber) -> bool {
        let cursor = self.cursor(end - 1);
        let stored = self.chunks.get(cursor.index);
        stored.is_some_and(|it| it.ends_record() && it.chunk.len() == cursor.offset + 1)
    }

    /// The chunk at the cursor as a part of its block: where what comes next begins, and how many
    /// pieces of `len` bytes follow each other there.
    #[inline]
    pub(crate) fn pieces(&self, cursor: &Cursor, len: usize) -> Option<(&Block, usize, usize)> {
        let chunk = &self.chunks.get(cursor.index)?.chunk;
        let count = chunk.len().saturating_sub(cursor.offset).checked_div(len)?;
        Some((chunk.block(), chunk.offset() + cursor.offset, count))
    }
}

impl Cursor {
    /// Moves on by `count` bytes of the chunk it is in; a visit goes on from there.
    pub(crate) fn advance(&mut self, count: usize) {
        self.offset += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use batch::{BlockPool, PoolConfig};
    use proptest::prelude::*;

    fn chunk(pool: &BlockPool, bytes: &[u8]) -> Chunk {
        let mut block = pool.allocate(bytes.len()).expect("room");
        block.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
        Chunk::new(block.freeze(), 0..bytes.len())
    }

    proptest! {
        #[test]
        fn any_range_reads_what_was_appended(
            lens in prop::collection::vec(1_usize..3000, 1..30),
            acknowledged in 0_usize..20_000,
            from in 0_usize..20_000,
            len in 0_usize..5_000,
        ) {
            let pool = BlockPool::new(PoolConfig::default());
            let first = SeqNumber(u32::MAX - 700);
            let mut queue = SendQueue::new(first, 1 << 20);
            let mut stream = Vec::new();
            for len in lens {
                let bytes: Vec<u8> = (stream.len()..stream.len() + len).map(|at| (at % 251) as u8).collect();
                queue.append(chunk(&pool, &bytes));
                stream.extend(bytes);
            }
            let acknowledged = acknowledged.min(stream.len());
            prop_assert_eq!(queue.acknowledge(first + acknowledged as u32), acknowledged);
            prop_assert_eq!(queue.len(), stream.len() - acknowledged);
            prop_assert_eq!(queue.end_sequence(), first + stream.len() as u32);
            let from = from.clamp(acknowledged, stream.len());
            let expected = &stream[from..(from + len).min(stream.len())];
            let mut cursor = queue.cursor(first + from as u32);
            let mut read = Vec::new();
            let visited = queue.visit(&mut cursor, len, 99, |block, offset, len| {
                read.extend_from_slice(&block.bytes()[offset..offset + len]);
                true
            });
            prop_assert_eq!(visited, Some(expected.len()));
            prop_assert_eq!(&read[..], expected);
        }
    }

    #[test]
    fn small_chunks_share_a_block() {
        let pool = BlockPool::new(PoolConfig::default());
        let mut queue = SendQueue::new(SeqNumber(0), 1000);
        for _ in 0..20 {
            queue.append(chunk(&pool, b"ten bytes."));
        }
        assert_eq!((queue.len(), queue.chunks.len(), queue.room()), (200, 1, 800));
        assert_eq!(pool.counters().outstanding_bytes, 256);
    }

    // What is asked with each segment of a burst looks at one chunk, however far the end of the record is.
    #[test]
    fn of_a_record_in_many_chunks_what_goes_together_lies_in_one() {
        let pool = BlockPool::new(PoolConfig::default());
        let mut queue = SendQueue::new(SeqNumber(0), 1 << 20);
        for _ in 0..3 {
            queue.append(chunk(&pool, &[0; 2_048]));
        }
        assert_eq!(queue.len_together(SeqNumber(1_000), 9_000), 5_143);
        queue.end_record();
        queue.append(chunk(&pool, &[0; 2_048]));
        assert_eq!(queue.len_together(SeqNumber(1_000), 9_000), 1_048);
        assert_eq!(
            queue.len_together(SeqNumber(4_096), 9_000),
            2_047,
            "the last of a record pushes"
        );
        assert_eq!(queue.len_together(SeqNumber(6_144), 9_000), 2_047);
        assert_eq!(queue.len_together(SeqNumber(8_192), 9_000), 0);
    }
}
