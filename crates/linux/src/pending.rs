//! Frames of one call on their way up: those that lie in the block which the call fills, and those that have
//! blocks of their own, as datagrams that were cut.
//!
//! They go up in their order. What the caller has no room for waits for the next call ([`Held`]).

use crate::datagrams::{self, Uncut};
use crate::held::Held;
use crate::vnet::Meaning;
use batch::{Block, BlockMut, BlockPool, Frame, ReceiveBatch};
use core::ops::Range;
use device::DeviceCounters;

/// The block being filled, to frames that wait to be handed up.
const COMMON: u32 = 0;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Pending {
    /// Length of the link header in front of a packet, in bytes.
    link_len: usize,
    /// Frames of the block being filled ([`COMMON`]), and those of blocks of their own.
    frames: Vec<Frame>,
    /// Blocks of their own, of which the first is block 1 to the frames.
    own: Vec<BlockMut>,
    /// Both, while they are handed up; empty otherwise.
    frozen: Vec<Block>,
    /// Frames that the last caller had no room for.
    held: Held,
}

impl Pending {
    /// Of frames whose packets begin behind `link_len` bytes.
    pub(crate) fn new(link_len: usize) -> Self {
        let (frames, own, frozen) = (Vec::new(), Vec::new(), Vec::new());
        Self { link_len, frames, own, frozen, held: Held::default() }
    }

    /// How many frames this call has brought so far.
    pub(crate) fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether frames of an earlier call still wait.
    pub(crate) fn has_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// Moves what waits since an earlier call into `batch`, at most `frames_max` frames, and says how many
    /// that were.
    pub(crate) fn hand_up_held(&mut self, batch: &mut ReceiveBatch, frames_max: usize) -> usize {
        self.held.hand_up(batch, frames_max)
    }

    /// Takes the frame at `range` of the bytes of the block being filled, as what it means. Datagrams are
    /// copied from there, and nothing of it is needed any more.
    pub(crate) fn accept(
        &mut self,
        pool: &BlockPool,
        bytes: &[u8],
        range: Range<usize>,
        meaning: Meaning,
        counters: &mut DeviceCounters,
    ) -> Result<(), Uncut> {
        match meaning {
            Meaning::Frame { checksum, segmented } => {
                let (offset, len) = (range.start as u32, range.len() as u32);
                self.frames.push(Frame { block: COMMON, offset, len, checksum, segmented });
                counters.receive_bytes += u64::from(len);
            }
            Meaning::Datagrams { payload_len } => {
                let frame = bytes.get(range).unwrap_or_default();
                let place = (self.link_len, 1 + self.own.len());
                let frames = &mut self.frames;
                self.own.push(datagrams::cut(frame, payload_len, pool, place, frames, counters)?);
            }
        }
        Ok(())
    }

    /// The same of a frame of `len` bytes at the front of a block of its own.
    pub(crate) fn accept_whole(
        &mut self,
        pool: &BlockPool,
        whole: BlockMut,
        len: usize,
        meaning: Meaning,
        counters: &mut DeviceCounters,
    ) -> Result<(), Uncut> {
        let before = self.frames.len();
        self.accept(pool, whole.bytes(), 0..len, meaning, counters)?;
        if matches!(meaning, Meaning::Frame { .. }) {
            self.own.push(whole);
            let block = self.own.len() as u32;
            self.frames.iter_mut().skip(before).for_each(|frame| frame.block = block);
        }
        Ok(())
    }

    /// Moves what the call brought into `batch`, at most `room` frames, and says how many that were, and
    /// gives the block back that was to be filled where no frame lies in it.
    pub(crate) fn hand_up(
        &mut self,
        block: BlockMut,
        batch: &mut ReceiveBatch,
        room: usize,
    ) -> (usize, Option<BlockMut>) {
        let mut blocks = core::mem::take(&mut self.frozen);
        let is_filled = self.frames.iter().any(|frame| frame.block == COMMON);
        let spare = if is_filled {
            blocks.push(block.freeze());
            None
        } else {
            self.frames.iter_mut().for_each(|frame| frame.block -= 1);
            Some(block)
        };
        blocks.extend(self.own.drain(..).map(BlockMut::freeze));
        let added = self.held.add(batch, &blocks, self.frames.drain(..), room);
        blocks.clear();
        self.frozen = blocks;
        (added, spare)
    }
}
