//! Copy-in: the application's bytes become blocks.
//!
//! All block space for a write is allocated first and then filled by one copy (seed 002's
//! `m_uiotombuf`); allocating and copying in turn, a block at a time, is what that seed replaced.
//! It happens outside the squeue's lock: a cold megabyte takes longer to copy than to send.

use batch::{BlockMut, BlockPool, Chunk, Exhausted};
use std::collections::VecDeque;

/// How a write is copied in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyIn {
    /// Longest block a write is cut into, in bytes (the seeds' `strmsgsz`). 64 KiB is one
    /// allocation for as much as a device takes in one super-frame; small values bring the legacy
    /// behaviour of one buffer per packet or two back.
    pub block_len_bytes: usize,
    /// A blocking write waits until so many bytes fit (or all of its own, or a quarter of the send
    /// buffer where those are fewer), so that a full buffer is not topped up in crumbs.
    pub low_water_bytes: usize,
}

impl Default for CopyIn {
    fn default() -> Self {
        Self { block_len_bytes: 65_536, low_water_bytes: 65_536 }
    }
}

/// Blocks on their way from the application into a send queue; its memory is reused.
#[derive(Debug, Default)]
pub(crate) struct Copied {
    blocks: Vec<(BlockMut, usize)>,
    pub(crate) chunks: VecDeque<Chunk>,
}

impl Copied {
    /// Copies `bytes`, or as much of their front as the pool has blocks for, and says how much.
    /// Where there is a `first` block already, it holds the front.
    ///
    /// # Errors
    /// The pool has no block at all.
    pub(crate) fn fill(
        &mut self,
        pool: &BlockPool,
        block_len_bytes: usize,
        bytes: &[u8],
        mut first: Option<BlockMut>,
    ) -> Result<usize, Exhausted> {
        self.chunks.clear();
        let mut allocated = 0;
        while allocated < bytes.len() {
            let len = (bytes.len() - allocated).min(block_len_bytes.max(1));
            match first.take().map_or_else(|| pool.allocate(len), Ok) {
                Ok(block) => self.blocks.push((block, len)),
                Err(exhausted) if allocated == 0 => return Err(exhausted),
                Err(_) => break,
            }
            allocated += len;
        }
        let mut rest = bytes;
        for (mut block, len) in self.blocks.drain(..) {
            let (now, later) = rest.split_at(len);
            block.bytes_mut()[..len].copy_from_slice(now);
            self.chunks.push_back(Chunk::new(block.freeze(), 0..len));
            rest = later;
        }
        Ok(allocated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use batch::PoolConfig;

    #[test]
    fn a_write_is_cut_into_blocks_of_the_length_asked_for() {
        let pool = BlockPool::new(PoolConfig::default());
        let bytes: Vec<u8> = (0..10_000u32).map(|i| i as u8).collect();
        let mut copied = Copied::default();
        assert_eq!(copied.fill(&pool, 4_096, &bytes, None), Ok(10_000));
        let lens: Vec<usize> = copied.chunks.iter().map(Chunk::len).collect();
        assert_eq!(lens, [4_096, 4_096, 1_808]);
        let all: Vec<u8> = copied.chunks.iter().flat_map(|chunk| chunk.bytes().to_vec()).collect();
        assert_eq!(all, bytes);
    }

    #[test]
    fn what_the_pool_cannot_hold_stays_with_the_caller() {
        let pool = BlockPool::new(PoolConfig {
            size_classes_bytes: vec![1_000],
            largest_cached_len_bytes: 1_000,
            limit_bytes: 2_500,
            receive_reserve_bytes: 0,
            cached_limit_bytes: 0,
        });
        let mut copied = Copied::default();
        assert_eq!(copied.fill(&pool, 1_000, &[7; 5_000], None), Ok(2_000));
        assert_eq!(
            copied.fill(&pool, 1_000, &[7; 5_000], None),
            Ok(2_000),
            "the old chunks went first"
        );
        let mut other = Copied::default();
        assert_eq!(other.fill(&pool, 1_000, &[7; 10], None), Err(Exhausted));
    }
}
