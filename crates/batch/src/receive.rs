//! The receive batch: frames in the blocks the device filled.
//!
//! The mirror image of a [`Multidata`](crate::Multidata): blocks by reference, one descriptor per
//! frame, offsets instead of pointers. A frame lies contiguous in one block, as a device writes it;
//! payload leaves the batch as [`Chunk`]s of that block. A block that holds few bytes of frames is
//! called *sparse*: keeping it for its payload would pin far more memory than the payload is long,
//! so who keeps payload of a sparse block copies it (the copybreak of other stacks). A device that hands
//! a block up in several batches says how much of it all of them hold: each part alone would look
//! sparse, and a block that is full is not the less so for coming up by pieces.

use crate::block::{Block, Chunk};
use core::ops::Range;

/// What the device knows of a frame's transport checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReceivedChecksum {
    /// Nothing: it must be verified.
    #[default]
    Unverified,
    /// The device verified it, or the frame never left memory that guards it.
    Verified,
    /// The sender left it to be completed by hardware and no hardware came: the payload is as the
    /// sender wrote it, the field holds only the pseudo-header's sum.
    Partial,
}

/// A super-frame: several segments of one flow that the device handed up as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segmented {
    /// Payload bytes of each segment but the last, which may be shorter.
    pub segment_len: u16,
}

/// A frame's descriptor.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// Index into the batch's blocks.
    pub block: u32,
    /// Where the frame begins in the block, in bytes.
    pub offset: u32,
    /// Its length in bytes.
    pub len: u32,
    /// State of the transport checksum.
    pub checksum: ReceivedChecksum,
    /// Set where the frame stands for several segments.
    pub segmented: Option<Segmented>,
}

/// A block of a batch.
#[derive(Debug)]
struct Filled {
    block: Block,
    /// Bytes of frames in it that are in this batch.
    here: usize,
    /// The same of all batches that share it, as far as whoever added it knows.
    in_all: usize,
}

impl Filled {
    fn bytes(&self) -> usize {
        self.here.max(self.in_all)
    }
}

/// Frames that came up in one call.
#[derive(Debug, Default)]
pub struct ReceiveBatch {
    blocks: Vec<Filled>,
    frames: Vec<Frame>,
}

impl ReceiveBatch {
    /// An empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Empties the batch; its blocks go back where they came from unless somebody kept a part.
    pub fn clear(&mut self) {
        self.frames.clear();
        self.blocks.clear();
    }

    /// How many frames the batch holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether the batch holds no frame.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Adds a filled block and returns its index for the frames in it.
    pub fn add_block(&mut self, block: Block) -> u32 {
        self.add_part(block, 0)
    }

    /// Adds a block that other batches share, as [`ReceiveBatch::add_block`] does, of which frames in
    /// all of them together fill `filled_bytes`: it is as sparse as that, however few of them are here.
    pub fn add_part(&mut self, block: Block, filled_bytes: usize) -> u32 {
        self.blocks.push(Filled { block, here: 0, in_all: filled_bytes });
        self.blocks.len() as u32 - 1
    }

    /// Adds a frame. One that does not lie within its block is refused.
    #[must_use]
    pub fn push_frame(&mut self, frame: Frame) -> bool {
        let Some(filled) = self.blocks.get_mut(frame.block as usize) else { return false };
        if frame.offset as usize + frame.len as usize > filled.block.len() {
            return false;
        }
        filled.here += frame.len as usize;
        self.frames.push(frame);
        true
    }

    /// Adds frame `index` of another batch, whose block both share from then on: no byte is copied.
    /// Frames of one block that are added one after the other count one reference to it. A shared
    /// block is as sparse here as it is there: what it holds, it holds for all who share it. Without
    /// such a frame nothing is added, and `false` says so.
    pub fn share_frame(&mut self, other: &Self, index: usize) -> bool {
        let Some(frame) = other.frames.get(index) else { return false };
        let Some(filled) = other.blocks.get(frame.block as usize) else { return false };
        if !self.blocks.last().is_some_and(|last| last.block.is_same(&filled.block)) {
            self.add_part(filled.block.clone(), filled.bytes());
        }
        self.frames.push(Frame { block: self.blocks.len() as u32 - 1, ..*frame });
        true
    }

    /// Moves all frames of another batch, in their order, behind those of this one. The other is
    /// empty afterwards and keeps the room it has allocated.
    pub fn append(&mut self, other: &mut Self) {
        if self.frames.is_empty() {
            self.clear();
            return core::mem::swap(self, other);
        }
        let base = self.blocks.len() as u32;
        self.blocks.append(&mut other.blocks);
        let moved = other.frames.drain(..).map(|it| Frame { block: it.block + base, ..it });
        self.frames.extend(moved);
    }

    /// Forgets every frame of which `keep`, asked with its index before the call, says `false`. The
    /// blocks stay, and as sparse as they were.
    pub fn retain(&mut self, mut keep: impl FnMut(usize, &Frame) -> bool) {
        let mut index = 0;
        self.frames.retain(|frame| {
            index += 1;
            keep(index - 1, frame)
        });
    }

    /// The descriptor of frame `index`.
    #[must_use]
    pub fn frame(&self, index: usize) -> Option<Frame> {
        self.frames.get(index).copied()
    }

    /// The bytes of frame `index`; empty where there is no such frame.
    #[inline]
    #[must_use]
    pub fn bytes(&self, index: usize) -> &[u8] {
        let Some(frame) = self.frames.get(index) else { return &[] };
        let start = frame.offset as usize;
        self.blocks
            .get(frame.block as usize)
            .and_then(|it| it.block.bytes().get(start..start + frame.len as usize))
            .unwrap_or(&[])
    }

    /// The bytes `range` of frame `index` as a part of their block; cut to the frame.
    #[must_use]
    pub fn chunk(&self, index: usize, range: Range<usize>) -> Option<Chunk> {
        let frame = self.frames.get(index)?;
        let block = &self.blocks.get(frame.block as usize)?.block;
        let end = range.end.min(frame.len as usize);
        let start = frame.offset as usize + range.start.min(end);
        Some(Chunk::new(block.clone(), start..frame.offset as usize + end))
    }

    /// Whether the block of frame `index` holds frames in less than a quarter of its bytes.
    #[must_use]
    pub fn is_sparse(&self, index: usize) -> bool {
        let is_little = |bytes: usize, block: &Block| bytes * 4 < block.len();
        self.filled(index)
            .is_some_and(|it| is_little(it.here, &it.block) && is_little(it.in_all, &it.block))
    }

    /// How many bytes of the block of frame `index` hold frames, for who hands it on by
    /// [`ReceiveBatch::add_part`]; 0 where there is no such frame.
    #[must_use]
    pub fn filled_bytes(&self, index: usize) -> usize {
        self.filled(index).map_or(0, Filled::bytes)
    }

    fn filled(&self, index: usize) -> Option<&Filled> {
        self.frames.get(index).and_then(|frame| self.blocks.get(frame.block as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn frame(offset: u32, len: u32) -> Frame {
        Frame { block: 0, offset, len, checksum: ReceivedChecksum::Unverified, segmented: None }
    }

    #[test]
    fn frames_and_their_parts_lie_in_the_block() {
        let mut batch = ReceiveBatch::new();
        batch.add_block(Block::from(Bytes::from_static(b"..headpayload....")));
        assert!(batch.push_frame(frame(2, 11)));
        assert!(!batch.push_frame(frame(10, 8)), "exceeds the block");
        assert_eq!(batch.bytes(0), b"headpayload");
        assert_eq!(batch.chunk(0, 4..99).expect("a frame").bytes(), b"payload");
        assert!(batch.chunk(1, 0..1).is_none());
        assert!(!batch.is_sparse(0));
        batch.clear();
        assert!(batch.is_empty() && batch.bytes(0).is_empty());
    }

    #[test]
    fn frames_are_shared_without_a_copy_and_stay_as_sparse_as_they_were() {
        let mut batch = ReceiveBatch::new();
        for _ in 0..2 {
            let block = batch.add_block(Block::from(Bytes::from(vec![7; 400])));
            for offset in [0, 80, 160] {
                assert!(batch.push_frame(Frame { block, ..frame(offset, 80) }));
            }
        }
        let mut shared = ReceiveBatch::new();
        for index in [1, 2, 5] {
            assert!(shared.share_frame(&batch, index));
        }
        assert!(!shared.share_frame(&batch, 6));
        assert_eq!((shared.len(), shared.blocks.len()), (3, 2));
        for (here, there) in [(0, 1), (1, 2), (2, 5)] {
            assert_eq!(shared.bytes(here).as_ptr(), batch.bytes(there).as_ptr());
            assert_eq!(shared.bytes(here).len(), 80);
        }
        // One frame of 80 in 400 bytes would be sparse; the block is not.
        assert!(!shared.is_sparse(2));
    }

    #[test]
    fn appended_frames_come_behind_in_order_and_forgotten_ones_do_not() {
        let one = |fill: u8| {
            let mut batch = ReceiveBatch::new();
            batch.add_block(Block::from(Bytes::from(vec![fill; 20])));
            assert!(batch.push_frame(frame(0, 10)) && batch.push_frame(frame(10, 5)));
            batch
        };
        let (mut all, mut second, mut third) = (ReceiveBatch::new(), one(2), one(3));
        all.append(&mut second);
        all.append(&mut third);
        assert!(second.is_empty() && third.is_empty());
        all.append(&mut third);
        all.retain(|index, frame| index != 1 && frame.len > 0);
        let bytes: Vec<_> = (0..all.len()).map(|index| all.bytes(index)).collect();
        assert_eq!(bytes, [&[2; 10][..], &[3; 10], &[3; 5]]);
    }

    #[test]
    fn a_block_with_few_bytes_of_frames_is_sparse() {
        let mut batch = ReceiveBatch::new();
        batch.add_block(Block::from(Bytes::from(vec![0; 400])));
        assert!(batch.push_frame(frame(0, 99)));
        assert!(batch.is_sparse(0));
        assert!(batch.push_frame(frame(99, 1)));
        assert!(!batch.is_sparse(0));
    }

    #[test]
    fn a_part_of_a_block_is_as_sparse_as_the_whole() {
        let block = Block::from(Bytes::from(vec![0; 400]));
        for (filled_bytes, is_sparse) in [(400, false), (100, false), (99, true)] {
            let mut part = ReceiveBatch::new();
            part.add_part(block.clone(), filled_bytes);
            assert!(part.push_frame(frame(0, 50)));
            assert_eq!(part.is_sparse(0), is_sparse, "frames are not counted twice");
            let mut shared = ReceiveBatch::new();
            assert!(shared.share_frame(&part, 0));
            assert_eq!((shared.is_sparse(0), shared.filled_bytes(0)), (is_sparse, filled_bytes));
            // Who says less than is there is not believed.
            assert!(part.push_frame(frame(50, 350)));
            assert!(!part.is_sparse(0) && part.filled_bytes(1) == 400);
        }
    }
}
