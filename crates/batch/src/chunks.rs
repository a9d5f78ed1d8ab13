//! Chunks that are one whole.
//!
//! A stream has no boundaries, so its queues hold chunk behind chunk. A datagram has: what it carries
//! may lie in several blocks, as the copy-in laid it, and still is one payload.

use crate::block::{Block, Chunk};
use bytes::Bytes;
use checksum::Accumulator;
use core::ops::Range;
use std::sync::Arc;

/// What a datagram carries: one chunk or several, in order. Cloning it counts a reference.
#[derive(Clone, Debug)]
pub struct Chunks {
    pieces: Pieces,
}

#[derive(Clone, Debug)]
enum Pieces {
    One(Chunk),
    Several { chunks: Arc<[Chunk]>, len: usize },
}

impl Default for Chunks {
    /// Nothing.
    fn default() -> Self {
        Self::from(Chunk::whole(Block::from(Bytes::new())))
    }
}

impl From<Chunk> for Chunks {
    fn from(chunk: Chunk) -> Self {
        Self { pieces: Pieces::One(chunk) }
    }
}

impl FromIterator<Chunk> for Chunks {
    /// The chunks one behind the other.
    fn from_iter<I: IntoIterator<Item = Chunk>>(chunks: I) -> Self {
        let mut chunks = chunks.into_iter();
        let Some(first) = chunks.next() else { return Self::default() };
        let Some(second) = chunks.next() else { return Self::from(first) };
        let chunks: Arc<[Chunk]> = [first, second].into_iter().chain(chunks).collect();
        let len = chunks.iter().map(Chunk::len).sum();
        Self { pieces: Pieces::Several { chunks, len } }
    }
}

impl Chunks {
    /// The chunks.
    #[must_use]
    pub fn as_slice(&self) -> &[Chunk] {
        match &self.pieces {
            Pieces::One(chunk) => core::slice::from_ref(chunk),
            Pieces::Several { chunks, .. } => chunks,
        }
    }

    /// The only chunk, where there is one.
    #[must_use]
    pub fn as_one(&self) -> Option<&Chunk> {
        match &self.pieces {
            Pieces::One(chunk) => Some(chunk),
            Pieces::Several { .. } => None,
        }
    }

    /// Length of all together in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.pieces {
            Pieces::One(chunk) => chunk.len(),
            Pieces::Several { len, .. } => *len,
        }
    }

    /// Whether there is nothing in them.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The sum of all bytes, and how many had to be read for it; see [`Block::sum`].
    #[must_use]
    pub fn sum(&self) -> (u16, usize) {
        if let Pieces::One(chunk) = &self.pieces {
            return chunk.sum();
        }
        let (mut all, mut read) = (Accumulator::new(), 0);
        for chunk in self.as_slice() {
            let (sum, of_chunk) = chunk.sum();
            all.add_sum(sum, chunk.len());
            read += of_chunk;
        }
        (all.sum(), read)
    }

    /// Where the bytes `range` lie: blocks and what of them, nowhere empty. What is beyond the end is left
    /// out.
    pub fn range(
        &self,
        range: Range<usize>,
    ) -> impl Iterator<Item = (&Block, Range<usize>)> + Clone {
        let mut end = 0;
        self.as_slice().iter().filter_map(move |chunk| {
            let start = end;
            end += chunk.len();
            let part = range.start.max(start)..range.end.min(end);
            let at = chunk.offset() + part.start.saturating_sub(start);
            (!part.is_empty()).then(|| (chunk.block(), at..at + part.len()))
        })
    }

    /// Copies the front of the bytes, as much as there is and `out` holds, and says how much that is.
    pub fn copy_to(&self, out: &mut [u8]) -> usize {
        let mut done = 0;
        for chunk in self.as_slice() {
            let len = chunk.len().min(out.len() - done);
            out[done..done + len].copy_from_slice(&chunk.bytes()[..len]);
            done += len;
        }
        done
    }

    /// Forgets the first `count` bytes (all of them where there are fewer).
    pub fn trim_front(&mut self, count: usize) {
        match &mut self.pieces {
            Pieces::One(chunk) => chunk.trim_front(count),
            Pieces::Several { .. } if count == 0 => {}
            Pieces::Several { len, .. } => {
                let rest = count..*len;
                let chunk = |(block, range): (&Block, _)| Chunk::new(block.clone(), range);
                *self = self.range(rest).map(chunk).collect();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cut(bytes: &[u8], lens: &[usize]) -> Chunks {
        let mut rest = bytes;
        let mut pieces = Vec::new();
        for len in lens {
            let (piece, behind) = rest.split_at((*len).min(rest.len()));
            pieces.push(piece);
            rest = behind;
        }
        pieces.push(rest);
        let chunk = |it: &&[u8]| Chunk::whole(Block::from(Bytes::copy_from_slice(it)));
        pieces.iter().map(chunk).collect()
    }

    fn bytes_of(chunks: &Chunks) -> Vec<u8> {
        chunks.as_slice().iter().flat_map(|chunk| chunk.bytes().to_vec()).collect()
    }

    proptest! {
        #[test]
        fn pieces_are_as_the_whole(
            bytes in proptest::collection::vec(any::<u8>(), 0..500),
            lens in proptest::collection::vec(0_usize..90, 0..8),
            (start, len) in (0_usize..520, 0_usize..520),
            room in 0_usize..600,
        ) {
            let mut chunks = cut(&bytes, &lens);
            prop_assert_eq!(chunks.len(), bytes.len());
            prop_assert_eq!(chunks.is_empty(), bytes.is_empty());
            prop_assert_eq!(bytes_of(&chunks), &bytes[..]);
            // One's complement writes zero in two ways.
            let (sum, read) = chunks.sum();
            prop_assert_eq!(sum % 0xffff, checksum::sum(&bytes) % 0xffff);
            prop_assert_eq!(read, bytes.len());
            let end = (start + len).min(bytes.len());
            let part: Vec<u8> =
                chunks.range(start..start + len).flat_map(|it| it.0.bytes()[it.1].to_vec()).collect();
            prop_assert_eq!(part, &bytes[start.min(end)..end]);
            let mut out = vec![0; room];
            let copied = chunks.copy_to(&mut out);
            prop_assert_eq!(copied, room.min(bytes.len()));
            prop_assert_eq!(&out[..copied], &bytes[..copied]);
            chunks.trim_front(start);
            prop_assert_eq!(bytes_of(&chunks), &bytes[start.min(bytes.len())..]);
            prop_assert_eq!(chunks.len(), bytes.len() - start.min(bytes.len()));
        }
    }
}
