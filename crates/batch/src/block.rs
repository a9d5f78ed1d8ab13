//! One contiguous buffer and the ways to hold it.
//!
//! A [`BlockMut`] has one owner, who fills it. Frozen, it becomes a [`Block`]: shared, immutable,
//! given back to its pool when the last holder lets go. A [`Chunk`] is a part of a block. The
//! caller's own memory (`bytes::Bytes`) is a block too, so zero-copy sends need no second path.
//!
//! There is no `unsafe` here: the last holder is found with `Arc::get_mut`. Where two threads let
//! go at the very same moment neither of them may see itself as the last; the buffer then goes
//! back to the allocator instead of the pool, which costs one later allocation and nothing else.

use crate::pool::{Depot, Slab};
use crate::sums::Pieces;
use bytes::Bytes;
use core::ops::Range;
use std::sync::{Arc, Weak};

/// A buffer with one owner, being filled.
#[derive(Debug)]
pub struct BlockMut {
    slab: Option<Arc<Slab>>,
}

impl BlockMut {
    pub(crate) fn new(slab: Arc<Slab>) -> Self {
        Self { slab: Some(slab) }
    }

    /// How many bytes the buffer holds; at least what was asked for.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.slab.as_ref().map_or(0, |slab| slab.bytes().len())
    }

    /// The whole buffer. Its content is whatever it last held.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.slab.as_ref().map_or(&[], |slab| slab.bytes())
    }

    /// The whole buffer, to be filled.
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.slab.as_mut().and_then(Arc::get_mut).map_or(&mut [], Slab::bytes_mut)
    }

    /// Copies `source` to the buffer from byte `at` on. With `pieces` the Internet checksum of each
    /// is made in the same pass and kept beside the buffer, for [`Block::sum`]. A copy right behind the
    /// last one, with pieces of its own, leaves what is known of that; any other forgets it.
    ///
    /// # Panics
    /// Where the buffer is too short.
    pub fn copy_in(&mut self, at: usize, source: &[u8], pieces: Option<Pieces>) {
        match (pieces, self.slab.as_mut().and_then(Arc::get_mut)) {
            _ if source.is_empty() => {}
            (Some(pieces), Some(slab)) => slab.copy_in(at, source, pieces),
            _ => self.bytes_mut()[at..at + source.len()].copy_from_slice(source),
        }
    }

    /// Ends the filling: from now on the buffer is shared and immutable.
    #[must_use]
    pub fn freeze(mut self) -> Block {
        match self.slab.take() {
            Some(slab) => Block { storage: Storage::Pooled(Some(slab)) },
            None => Block { storage: Storage::Caller(Bytes::new()) },
        }
    }
}

impl Drop for BlockMut {
    fn drop(&mut self) {
        if let Some(slab) = self.slab.take() {
            Depot::give_back(slab);
        }
    }
}

/// A shared, immutable buffer. Cloning it counts a reference.
#[derive(Clone, Debug)]
pub struct Block {
    storage: Storage,
}

#[derive(Clone, Debug)]
enum Storage {
    /// `None` only while the block is being dropped.
    Pooled(Option<Arc<Slab>>),
    Caller(Bytes),
}

impl Block {
    /// The whole buffer.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match &self.storage {
            Storage::Pooled(Some(slab)) => slab.bytes(),
            Storage::Pooled(None) => &[],
            Storage::Caller(bytes) => bytes,
        }
    }

    /// Length of the whole buffer in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes().len()
    }

    /// Whether the buffer holds nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether both are the same buffer (not: hold equal bytes).
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        match (&self.storage, &other.storage) {
            (Storage::Pooled(Some(a)), Storage::Pooled(Some(b))) => Arc::ptr_eq(a, b),
            (Storage::Caller(a), Storage::Caller(b)) => {
                a.as_ptr() == b.as_ptr() && a.len() == b.len()
            }
            _ => false,
        }
    }

    /// The pool it came from.
    pub(crate) fn home(&self) -> Option<&Weak<Depot>> {
        match &self.storage {
            Storage::Pooled(Some(slab)) => Some(slab.home()),
            Storage::Pooled(None) | Storage::Caller(_) => None,
        }
    }

    /// The buffer from byte `from` on for writing, where nobody else holds it.
    fn try_tail_mut(&mut self, from: usize) -> Option<&mut [u8]> {
        match &mut self.storage {
            Storage::Pooled(Some(slab)) => Arc::get_mut(slab)?.tail_mut(from),
            _ => None,
        }
    }

    /// The sum of the bytes `range` (folded, not inverted, as of bytes that begin a word), and how
    /// many bytes had to be read for it: none where they are pieces of a copy that was summed
    /// ([`BlockMut::copy_in`]), all where nothing is known of them.
    ///
    /// # Panics
    /// Where the range is not within the block.
    #[inline]
    #[must_use]
    pub fn sum(&self, range: Range<usize>) -> (u16, usize) {
        match &self.storage {
            Storage::Pooled(Some(slab)) => slab.sum(range),
            Storage::Pooled(None) | Storage::Caller(_) => {
                let bytes = &self.bytes()[range];
                (checksum::sum(bytes), bytes.len())
            }
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Storage::Pooled(slab) = &mut self.storage
            && let Some(slab) = slab.take()
        {
            Depot::give_back(slab);
        }
    }
}

impl From<Bytes> for Block {
    /// The caller's memory, used as it is: no copy is made.
    fn from(bytes: Bytes) -> Self {
        Self { storage: Storage::Caller(bytes) }
    }
}

/// Part of a block: how payload is held in send and receive queues.
///
/// `offset + len` never exceeds the block's length.
#[derive(Clone, Debug)]
pub struct Chunk {
    block: Block,
    offset: u32,
    len: u32,
}

impl Chunk {
    /// The bytes `range` of `block`, cut to the block where they exceed it.
    #[must_use]
    pub fn new(block: Block, range: Range<usize>) -> Self {
        let end = range.end.min(block.len()).min(u32::MAX as usize);
        let start = range.start.min(end);
        Self { block, offset: start as u32, len: (end - start) as u32 }
    }

    /// The whole block.
    #[must_use]
    pub fn whole(block: Block) -> Self {
        let len = block.len();
        Self::new(block, 0..len)
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        let start = self.offset as usize;
        &self.block.bytes()[start..start + self.len as usize]
    }

    /// The sum of the bytes, and how many had to be read for it; see [`Block::sum`].
    #[must_use]
    pub fn sum(&self) -> (u16, usize) {
        let start = self.offset as usize;
        self.block.sum(start..start + self.len as usize)
    }

    /// The block this is a part of.
    #[must_use]
    pub fn block(&self) -> &Block {
        &self.block
    }

    /// Where the part begins in its block, in bytes.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset as usize
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Forgets the first `count` bytes (all of them where there are fewer).
    pub fn trim_front(&mut self, count: usize) {
        let count = count.min(self.len()) as u32;
        self.offset += count;
        self.len -= count;
    }

    /// Keeps the first `len` bytes at most.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(u32::try_from(len).unwrap_or(u32::MAX));
    }

    /// Appends bytes behind this chunk in its own block, where nobody else holds the block and it
    /// has room left. Says how many bytes were taken; the rest needs another block.
    pub fn append_in_place(&mut self, bytes: &[u8]) -> usize {
        let end = (self.offset + self.len) as usize;
        let Some(buffer) = self.block.try_tail_mut(end) else { return 0 };
        let taken = bytes.len().min(buffer.len());
        buffer[..taken].copy_from_slice(&bytes[..taken]);
        self.len += taken as u32;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BlockPool, PoolConfig};

    #[test]
    fn a_chunk_is_cut_to_its_block_and_trims_at_both_ends() {
        let mut chunk = Chunk::new(Block::from(Bytes::from_static(b"batch of packets")), 6..99);
        assert_eq!(chunk.bytes(), b"of packets");
        chunk.trim_front(3);
        chunk.truncate(4);
        assert_eq!(chunk.bytes(), b"pack");
        chunk.trim_front(99);
        assert!(chunk.is_empty());
    }

    #[test]
    fn appending_in_place_needs_a_sole_owner_and_room() {
        let pool = BlockPool::new(PoolConfig::default());
        let block = pool.allocate(8).expect("an empty pool has room").freeze();
        let capacity = block.len();
        let mut chunk = Chunk::new(block, 0..0);
        assert_eq!(chunk.append_in_place(b"abc"), 3);
        let other = chunk.clone();
        assert_eq!(chunk.append_in_place(b"d"), 0, "somebody else reads this block");
        drop(other);
        assert_eq!(chunk.append_in_place(&vec![7; capacity]), capacity - 3);
        assert_eq!(&chunk.bytes()[..4], b"abc\x07");
        let mut foreign = Chunk::whole(Block::from(Bytes::from_static(b"x")));
        assert_eq!(foreign.append_in_place(b"y"), 0, "caller memory is never written");
    }
}
