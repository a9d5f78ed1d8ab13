//! Copying what is kept out of blocks that hold little of it.
//!
//! A part of a received frame holds the whole block that the frame came in. While there is memory that
//! costs nothing; when the pool runs low, whoever keeps such parts, for a reader that does not come, has
//! them copied together into blocks of their own, and the blocks go back to where devices get theirs.

use crate::block::{Block, Chunk};
use crate::pool::BlockPool;

/// Blocks that parts are copied into are not longer than this, unless one part is: what is read from them
/// piece by piece holds the rest of them.
const GATHERED_BYTES_MAX: usize = 16_384;

/// So many bytes may be held for nothing: what a size class is longer than what was asked for. Without it
/// a copy would be copied again.
const WASTE_BYTES_MIN: usize = 2_048;

/// Whether parts of `kept_bytes` hold so much more, `held_bytes`, that copying them is worth it: twice as
/// much, and more than a size class rounds up by.
#[must_use]
pub fn holds_much_more(kept_bytes: usize, held_bytes: usize) -> bool {
    held_bytes >= 2 * kept_bytes + WASTE_BYTES_MIN
}

/// Neighbours among the chunks that lie in one block.
#[derive(Clone, Copy)]
struct Group {
    /// How many they are.
    count: usize,
    bytes: usize,
    held_bytes: usize,
}

impl Group {
    /// The group that `chunks` begins with, if it is worth copying, be it together with others: of what is copied
    /// at least a quarter of the block is in use, but for a few bytes. Otherwise how many chunks it is.
    fn of_little(chunks: &[&mut Chunk], pool: &BlockPool) -> Result<Self, usize> {
        let Some(first) = chunks.first() else { return Err(0) };
        let in_block = |chunk: &&&mut Chunk| chunk.block().is_same(first.block());
        let count = chunks.iter().take_while(in_block).count();
        let bytes = chunks[..count].iter().map(|chunk| chunk.len()).sum();
        let held_bytes = first.block().len();
        let is_little = holds_much_more(bytes, held_bytes) || held_bytes >= 4 * bytes;
        match pool.owns(first.block()) && is_little {
            true => Ok(Self { count, bytes, held_bytes }),
            false => Err(count),
        }
    }
}

impl BlockPool {
    /// Copies those of `chunks` that hold much more of this pool's memory than they are long
    /// ([`holds_much_more`]; neighbours count together) into blocks of their size. Stops
    /// behind `bytes_max` copied bytes, or where the pool has nothing to copy to. Says how many bytes it
    /// copied.
    pub fn copy_out<'a>(
        &self,
        chunks: impl IntoIterator<Item = &'a mut Chunk>,
        bytes_max: usize,
    ) -> usize {
        let mut chunks: Vec<&mut Chunk> = chunks.into_iter().collect();
        let (mut rest, mut copied) = (&mut chunks[..], 0);
        while !rest.is_empty() && copied < bytes_max {
            let mut all = match Group::of_little(rest, self) {
                Ok(group) => group,
                Err(count) => {
                    rest = &mut rest[count..];
                    continue;
                }
            };
            while let Ok(next) = Group::of_little(&rest[all.count..], self)
                && all.bytes + next.bytes <= GATHERED_BYTES_MAX
            {
                all.count += next.count;
                all.bytes += next.bytes;
                all.held_bytes += next.held_bytes;
            }
            let (group, others) = rest.split_at_mut(all.count);
            rest = others;
            if !holds_much_more(all.bytes, all.held_bytes) {
                continue;
            }
            let Ok(mut block) = self.allocate_receive(all.bytes) else { break };
            // The pool may have no class that is short enough.
            if block.capacity() * 2 > all.held_bytes {
                continue;
            }
            let mut at = 0;
            for chunk in group.iter() {
                block.copy_in(at, chunk.bytes(), None);
                at += chunk.len();
            }
            move_to(&block.freeze(), group);
            copied += all.bytes;
        }
        copied
    }
}

/// Has the chunks lie end to end in `block`, which holds their bytes so.
fn move_to(block: &Block, chunks: &mut [&mut Chunk]) {
    let mut at = 0;
    for chunk in chunks {
        let end = at + chunk.len();
        **chunk = Chunk::new(block.clone(), at..end);
        at = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PoolConfig;
    use bytes::Bytes;

    /// Parts of `len` bytes, `each` of them in a block of 64 KiB.
    fn parts(pool: &BlockPool, count: usize, each: usize, len: usize) -> Vec<Chunk> {
        let mut chunks = Vec::new();
        for block in 0..count.div_ceil(each) {
            let mut filled = pool.allocate(65_536).expect("room");
            filled.bytes_mut().fill(block as u8);
            let filled = filled.freeze();
            chunks.extend((0..each).map(|at| Chunk::new(filled.clone(), at * len..(at + 1) * len)));
        }
        chunks.truncate(count);
        chunks
    }

    fn held(pool: &BlockPool) -> u64 {
        pool.counters().outstanding_bytes
    }

    #[test]
    fn what_holds_much_more_than_it_is_goes_to_blocks_of_its_size_and_is_the_same() {
        let pool = BlockPool::new(PoolConfig::default());
        let mut chunks = parts(&pool, 100, 1, 1_448);
        let before: Vec<Vec<u8>> = chunks.iter().map(|chunk| chunk.bytes().to_vec()).collect();
        assert_eq!(held(&pool), 100 * 65_536);
        assert_eq!(pool.copy_out(&mut chunks, usize::MAX), 144_800);
        assert!(held(&pool) < 170_000, "{}", held(&pool));
        assert!(chunks.iter().map(Chunk::bytes).eq(before.iter().map(|bytes| &bytes[..])));
        assert_eq!(pool.copy_out(&mut chunks, usize::MAX), 0, "a copy is not copied again");
        drop(chunks);
        assert_eq!(held(&pool), 0);
    }

    #[test]
    fn blocks_that_are_well_used_and_those_of_others_stay() {
        let pool = BlockPool::new(PoolConfig::default());
        let other = BlockPool::new(PoolConfig::default());
        // 32 of these fill more than half of a block together, though none does alone.
        let mut dense = parts(&pool, 64, 32, 1_448);
        assert_eq!(pool.copy_out(&mut dense, usize::MAX), 0);
        let mut foreign = parts(&other, 10, 1, 1_448);
        foreign.push(Chunk::new(Block::from(Bytes::from(vec![0; 65_536])), 0..10));
        assert_eq!(pool.copy_out(&mut foreign, usize::MAX), 0);
        assert_eq!(pool.copy_out(&mut Vec::new(), usize::MAX), 0);
    }

    #[test]
    fn it_stops_at_its_bound_and_where_nothing_is_left_to_copy_to() {
        let pool = BlockPool::new(PoolConfig::default());
        let mut chunks = parts(&pool, 100, 1, 1_448);
        let copied = pool.copy_out(&mut chunks, 20_000);
        assert!((20_000..40_000).contains(&copied), "{copied}");
        let coarse = PoolConfig { size_classes_bytes: vec![65_536], ..PoolConfig::default() };
        let coarse = BlockPool::new(coarse);
        let mut chunks = parts(&coarse, 1, 1, 1_448);
        assert_eq!(coarse.copy_out(&mut chunks, usize::MAX), 0, "nothing would be won");
        let full = BlockPool::new(PoolConfig {
            limit_bytes: 65_536,
            receive_reserve_bytes: 0,
            ..PoolConfig::default()
        });
        let mut chunks = parts(&full, 1, 1, 1_448);
        assert_eq!(full.copy_out(&mut chunks, usize::MAX), 0);
    }
}
