//! Frames that a caller had no room for: what comes up as one message may be more frames than are wanted.
//!
//! They come up with the next call, in their order, before anything else does.

use batch::{Block, Frame, ReceiveBatch};
use std::collections::VecDeque;
use std::vec::Drain;

/// A frame that waits for the next call.
#[derive(Debug)]
struct Waiting {
    block: Block,
    /// Bytes of frames in the block, of those that are handed up as well.
    filled_bytes: usize,
    frame: Frame,
}

/// See the module documentation. Who fills it adds no more than one call brings, and makes no other
/// before it is empty.
#[derive(Debug, Default)]
pub(crate) struct Held {
    frames: VecDeque<Waiting>,
}

impl Held {
    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Moves what waits into `batch`, at most `frames_max` frames, and says how many that were.
    pub(crate) fn hand_up(&mut self, batch: &mut ReceiveBatch, frames_max: usize) -> usize {
        let mut frames = 0;
        let mut last: Option<(Block, u32)> = None;
        while frames < frames_max {
            let Some(Waiting { block, filled_bytes, frame }) = self.frames.pop_front() else {
                break;
            };
            let index = match &last {
                Some((same, index)) if same.is_same(&block) => *index,
                _ => batch.add_part(block.clone(), filled_bytes),
            };
            frames += usize::from(batch.push_frame(Frame { block: index, ..frame }));
            last = Some((block, index));
        }
        frames
    }

    /// Adds `frames`, each of one of `blocks` by its index there, to `batch`, at most `room` of them, and
    /// keeps the others. Says how many were added.
    pub(crate) fn add(
        &mut self,
        batch: &mut ReceiveBatch,
        blocks: &[Block],
        frames: Drain<'_, Frame>,
        room: usize,
    ) -> usize {
        let filled_bytes = |index: usize| {
            let of_block = frames.as_slice().iter().filter(|frame| frame.block as usize == index);
            of_block.map(|frame| frame.len as usize).sum::<usize>()
        };
        // A block that is full is not the less so for coming up by pieces.
        let filled = (0..blocks.len()).map(filled_bytes);
        let waiting: Vec<usize> =
            if frames.len() > room { filled.clone().collect() } else { Vec::new() };
        let indices =
            blocks.iter().zip(filled).map(|(block, it)| batch.add_part(block.clone(), it));
        // They are numbered on.
        let Some(first) = indices.reduce(u32::min) else { return 0 };
        let mut added = 0;
        for frame in frames {
            let at = frame.block as usize;
            if added < room {
                added +=
                    usize::from(batch.push_frame(Frame { block: first + frame.block, ..frame }));
            } else if let (Some(block), Some(filled_bytes)) = (blocks.get(at), waiting.get(at)) {
                let (block, filled_bytes) = (block.clone(), *filled_bytes);
                self.frames.push_back(Waiting { block, filled_bytes, frame });
            }
        }
        added
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use batch::{BlockPool, PoolConfig, ReceivedChecksum};

    /// As few of them as are wanted come up at a time, and their block is as full as it was.
    #[test]
    fn a_block_whose_frames_wait_is_not_the_less_full() {
        let pool = BlockPool::new(PoolConfig::default());
        let block = || pool.allocate_receive(2_000).expect("room").freeze();
        let frame = |block, offset, len| {
            let (checksum, segmented) = (ReceivedChecksum::Unverified, None);
            Frame { block, offset, len, checksum, segmented }
        };
        let mut frames =
            vec![frame(0, 0, 900), frame(0, 960, 60), frame(1, 0, 70), frame(0, 1_024, 900)];
        let mut held = Held::default();
        let mut batch = ReceiveBatch::new();
        assert_eq!(held.add(&mut batch, &[block(), block()], frames.drain(..), 1), 1);
        let mut came = vec![(batch.bytes(0).len(), batch.filled_bytes(0))];
        while !held.is_empty() {
            batch.clear();
            assert_eq!(held.hand_up(&mut batch, 1), 1);
            came.push((batch.bytes(0).len(), batch.filled_bytes(0)));
        }
        assert_eq!(came, [(900, 1_860), (60, 1_860), (70, 70), (900, 1_860)]);
    }
}
