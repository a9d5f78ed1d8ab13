//! Copy-in: the application's bytes become blocks. This is the stream head of seed 000, section 2.1.
//!
//! ```text
//!  write(bytes) -> message -> blocks -> send queue
//!                  as much    [room|....|....]  allocated and filled in one of two orders;
//!                  as is      [room|....|....]  where asked for and the device makes none,
//!                  handed over at once          a checksum for each future segment in the copy
//! ```
//!
//! By default all block space for a write is allocated first and then filled by one copy (seed 002's
//! `m_uiotombuf`), and one block holds as much as a device takes in one super-frame. Allocating and
//! copying in turn, a block for each packet, handing over two packets at a time, is what those seeds
//! replaced; [`CopyIn::legacy`] brings it back, because the difference is what there is to see.
//! All of it happens outside the squeue's lock: a cold megabyte takes longer to copy than to send.

use batch::{BlockMut, BlockPool, Chunk, Exhausted, Pieces};
use stack::SendPlan;
use std::collections::VecDeque;

/// In which order blocks are allocated and filled (seed 002).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyOrder {
    /// All blocks of a message first, then one copy over them: `m_uiotombuf`.
    #[default]
    AllocateFirst,
    /// A block, then its copy, then the next: `sosend_copyin`.
    Interleaved,
}

/// How long blocks are (seed 000's `sd_maxblk`); [`CopyIn::block_len_bytes_max`] bounds all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BlockSize {
    /// As long as the message: INFPSZ.
    #[default]
    Whole,
    /// A page of 4,096 bytes, as in seed 002.
    Page,
    /// One segment of the connection: one buffer for each packet. Datagrams are in one block.
    Segment,
}

/// The page of [`BlockSize::Page`].
const PAGE_LEN_BYTES: usize = 4_096;

/// Most room in front of a block.
const HEADER_ROOM_BYTES_MAX: usize = 4_096;

/// How a write is copied in: the stream head's tunables.
///
/// The names in brackets are those of seeds 000 and 001. `tcp_xmit_hiwat`, how much may be queued at
/// all, is [`tcp::Config::send_buffer_bytes`](tcp::Config); the largest block that is kept for reuse
/// is [`PoolConfig::largest_cached_len_bytes`](batch::PoolConfig::largest_cached_len_bytes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyIn {
    /// The order of allocating and copying.
    pub order: CopyOrder,
    /// How long blocks are (`sd_maxblk`).
    pub block: BlockSize,
    /// Longest block, in bytes (`strmsgsz`), at least 1. 64 KiB is one allocation for as much as a
    /// device takes in one super-frame.
    pub block_len_bytes_max: usize,
    /// How many segments' worth of bytes are copied and handed to TCP at once
    /// (`tcp_maxpsz_multiplier`); `None` is all there is room for (INFPSZ).
    pub hand_over_segments: Option<usize>,
    /// Bytes left free in front of the bytes of each block (`sd_wroff`), 4,096 at most. Headers lie
    /// in a block of their own here, so this stack needs none.
    pub header_room_bytes: usize,
    /// A blocking write waits until so many bytes fit (`tcp_xmit_lowat`), or all that it hands over
    /// at once, or a quarter of the send buffer, whichever is least, so that a full buffer is not
    /// topped up in crumbs.
    pub low_water_bytes: usize,
    /// Make the checksum of each segment in the copy, where the device makes none; otherwise the
    /// bytes are read again when the segment is sent. For devices that read the bytes themselves.
    /// Where this process copies them to the device after all, as to a TAP or over the wire in
    /// memory, the second reading fetches for that copy and costs nothing of its own: there it is
    /// measured to be no gain (TESTING.md), and off by default.
    pub fold_checksum: bool,
}

impl Default for CopyIn {
    fn default() -> Self {
        Self {
            order: CopyOrder::AllocateFirst,
            block: BlockSize::Whole,
            block_len_bytes_max: 65_536,
            hand_over_segments: None,
            header_room_bytes: 0,
            low_water_bytes: 65_536,
            fold_checksum: false,
        }
    }
}

impl CopyIn {
    /// The way of a stream head before Multidata (seed 000, section 2.1): a block for each segment
    /// with room for its headers, allocated and filled in turn, two handed over at a time, and the
    /// checksum made by a pass of its own.
    #[must_use]
    pub fn legacy() -> Self {
        Self {
            order: CopyOrder::Interleaved,
            block: BlockSize::Segment,
            hand_over_segments: Some(2),
            header_room_bytes: 80,
            ..Self::default()
        }
    }

    /// How many bytes are handed to TCP at once, at least 1.
    pub(crate) fn hand_over_bytes(&self, segment_len_bytes: usize) -> usize {
        let segments = self.hand_over_segments.unwrap_or(usize::MAX);
        segments.saturating_mul(segment_len_bytes).max(1)
    }

    /// The layout of a stream's blocks.
    pub(crate) fn of_stream(&self, plan: &SendPlan) -> Layout {
        let block_len = match self.block {
            BlockSize::Whole => usize::MAX,
            BlockSize::Page => PAGE_LEN_BYTES,
            BlockSize::Segment => plan.segment_len_bytes,
        };
        let sums = self.fold_checksum && plan.needs_sums;
        let pieces = sums.then(|| Pieces::new(plan.segment_len_bytes, plan.segment_done_bytes));
        self.layout(block_len.min(self.block_len_bytes_max), pieces)
    }

    /// The layout of a datagram of `len` bytes: one block, one sum.
    pub(crate) fn of_datagram(&self, len: usize, needs_sums: bool) -> Layout {
        let pieces = (self.fold_checksum && needs_sums).then(|| Pieces::new(len, 0));
        self.layout(len, pieces)
    }

    fn layout(&self, block_len_bytes: usize, pieces: Option<Pieces>) -> Layout {
        Layout {
            order: self.order,
            block_len_bytes: block_len_bytes.max(1),
            header_room_bytes: self.header_room_bytes.min(HEADER_ROOM_BYTES_MAX),
            pieces,
        }
    }
}

/// How one message is laid into blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    order: CopyOrder,
    block_len_bytes: usize,
    header_room_bytes: usize,
    /// Where the future segments lie, where their sums are wanted.
    pieces: Option<Pieces>,
}

impl Layout {
    /// How long the block is that the front of `len` bytes needs.
    pub(crate) fn first_block_len(&self, len: usize) -> usize {
        self.header_room_bytes + len.min(self.block_len_bytes)
    }

    /// Copies a message that must lie in one block.
    ///
    /// # Errors
    /// The pool has none.
    pub(crate) fn one_block(&self, pool: &BlockPool, bytes: &[u8]) -> Result<Chunk, Exhausted> {
        let room = self.header_room_bytes;
        let mut block = pool.allocate(room + bytes.len())?;
        block.copy_in(room, bytes, self.pieces);
        Ok(Chunk::new(block.freeze(), room..room + bytes.len()))
    }

    /// Whether sums are made in the copy.
    pub(crate) fn makes_sums(&self) -> bool {
        self.pieces.is_some()
    }
}

/// Blocks on their way from the application into a send queue; its memory is reused.
#[derive(Debug, Default)]
pub(crate) struct Copied {
    blocks: Vec<(BlockMut, usize)>,
    pub(crate) chunks: VecDeque<Chunk>,
}

impl Copied {
    /// Copies `bytes`, or as much of their front as the pool has blocks for, behind what is there,
    /// and says how much. Where there is a `first` block already, it holds the front.
    ///
    /// # Errors
    /// The pool has no block at all.
    pub(crate) fn fill(
        &mut self,
        pool: &BlockPool,
        layout: &Layout,
        bytes: &[u8],
        mut first: Option<BlockMut>,
    ) -> Result<usize, Exhausted> {
        let room = layout.header_room_bytes;
        let mut pieces = layout.pieces;
        let mut done = 0;
        while done < bytes.len() {
            // As many blocks as the order allows, then the copy over them.
            let mut allocated = done;
            while allocated < bytes.len() {
                let len = (bytes.len() - allocated).min(layout.block_len_bytes);
                match first.take().map_or_else(|| pool.allocate(room + len), Ok) {
                    Ok(block) => self.blocks.push((block, len)),
                    Err(exhausted) if allocated == 0 => return Err(exhausted),
                    Err(_) => break,
                }
                allocated += len;
                if layout.order == CopyOrder::Interleaved {
                    break;
                }
            }
            if self.blocks.is_empty() {
                break;
            }
            for (mut block, len) in self.blocks.drain(..) {
                block.copy_in(room, &bytes[done..done + len], pieces);
                pieces = pieces.map(|pieces| pieces.after(len));
                self.chunks.push_back(Chunk::new(block.freeze(), room..room + len));
                done += len;
            }
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use batch::PoolConfig;
    use proptest::prelude::*;

    fn plan() -> SendPlan {
        SendPlan {
            room_bytes: 1 << 20,
            lent_room_bytes: 1 << 20,
            share_bytes: 1 << 20,
            segment_len_bytes: 1_448,
            segment_done_bytes: 1_000,
            needs_sums: true,
        }
    }

    fn layout(block: BlockSize) -> Layout {
        CopyIn { block, ..CopyIn::default() }.of_stream(&plan())
    }

    fn folding() -> CopyIn {
        CopyIn { fold_checksum: true, ..CopyIn::default() }
    }

    proptest! {
        #[test]
        fn every_policy_hands_over_what_was_written_with_its_sums(
            len in 1_usize..200_000,
            is_interleaved in any::<bool>(),
            block in prop_oneof![
                Just(BlockSize::Whole), Just(BlockSize::Page), Just(BlockSize::Segment)
            ],
            block_len_bytes_max in 1_000_usize..300_000,
            header_room_bytes in 0_usize..100,
            fold_checksum in any::<bool>(),
        ) {
            let order = match is_interleaved {
                true => CopyOrder::Interleaved,
                false => CopyOrder::AllocateFirst,
            };
            let copy_in = CopyIn {
                order,
                block,
                block_len_bytes_max,
                header_room_bytes,
                fold_checksum,
                ..CopyIn::default()
            };
            let bytes: Vec<u8> = (0..len as u32).map(|i| ((i * 31) >> 3) as u8).collect();
            let pool = BlockPool::new(PoolConfig::default());
            let mut copied = Copied::default();
            let filled = copied.fill(&pool, &copy_in.of_stream(&plan()), &bytes, None);
            prop_assert_eq!(filled, Ok(len));
            let all: Vec<u8> = copied.chunks.iter().flat_map(|it| it.bytes().to_vec()).collect();
            prop_assert_eq!(all, bytes);
            for chunk in &copied.chunks {
                prop_assert!(chunk.len() <= block_len_bytes_max);
                prop_assert_eq!(chunk.offset(), header_room_bytes);
                let (sum, read) = chunk.sum();
                prop_assert_eq!(sum, checksum_of(chunk.bytes()));
                prop_assert_eq!(read, if fold_checksum { 0 } else { chunk.len() });
            }
        }
    }

    fn checksum_of(bytes: &[u8]) -> u16 {
        let mut block = BlockPool::new(PoolConfig::default()).allocate(bytes.len()).expect("room");
        block.copy_in(0, bytes, None);
        block.freeze().sum(0..bytes.len()).0
    }

    #[test]
    fn a_message_is_cut_into_blocks_of_the_size_asked_for() {
        let pool = BlockPool::new(PoolConfig::default());
        let mut copied = Copied::default();
        let mut lens = |layout: &Layout| -> Vec<usize> {
            copied.chunks.clear();
            assert_eq!(copied.fill(&pool, layout, &[7; 10_000], None), Ok(10_000));
            copied.chunks.iter().map(Chunk::len).collect()
        };
        assert_eq!(lens(&layout(BlockSize::Whole)), [10_000]);
        assert_eq!(lens(&layout(BlockSize::Page)), [4_096, 4_096, 1_808]);
        assert_eq!(
            lens(&layout(BlockSize::Segment)),
            [1_448, 1_448, 1_448, 1_448, 1_448, 1_448, 1_312]
        );
        let bounded = CopyIn { block_len_bytes_max: 6_000, ..CopyIn::default() };
        assert_eq!(lens(&bounded.of_stream(&plan())), [6_000, 4_000]);
        let nothing = CopyIn { block_len_bytes_max: 0, ..CopyIn::default() };
        assert_eq!(lens(&nothing.of_stream(&plan())).len(), 10_000, "a bound of none is one of 1");
    }

    #[test]
    fn the_old_order_takes_the_next_block_after_the_copy() {
        // A pool of one block: what is interleaved gets as far, and no block is taken in vain.
        let pool = || {
            BlockPool::new(PoolConfig {
                size_classes_bytes: vec![4_096],
                largest_cached_len_bytes: 4_096,
                limit_bytes: 2 * 4_096,
                receive_reserve_bytes: 0,
                cached_limit_bytes: 0,
            })
        };
        for order in [CopyOrder::AllocateFirst, CopyOrder::Interleaved] {
            let copy_in = CopyIn { order, block: BlockSize::Page, ..CopyIn::default() };
            let (pool, mut copied) = (pool(), Copied::default());
            let layout = copy_in.of_stream(&plan());
            assert_eq!(copied.fill(&pool, &layout, &[1; 20_000], None), Ok(8_192));
            assert_eq!(pool.counters().outstanding_bytes, 8_192);
        }
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
        let small = CopyIn { block_len_bytes_max: 1_000, ..CopyIn::default() }.of_stream(&plan());
        let mut copied = Copied::default();
        assert_eq!(copied.fill(&pool, &small, &[7; 5_000], None), Ok(2_000));
        assert_eq!(copied.fill(&pool, &small, &[7; 10], None), Err(Exhausted));
        copied.chunks.clear();
        assert_eq!(copied.fill(&pool, &small, &[7; 5_000], None), Ok(2_000));
        let mut other = Copied::default();
        assert_eq!(other.fill(&pool, &small, &[7; 10], None), Err(Exhausted));
    }

    #[test]
    fn sums_are_made_only_where_somebody_wants_them() {
        let offloaded = SendPlan { needs_sums: false, ..plan() };
        assert!(folding().of_stream(&plan()).makes_sums());
        assert!(!folding().of_stream(&offloaded).makes_sums());
        assert!(!CopyIn::legacy().of_stream(&plan()).makes_sums());
        assert!(folding().of_datagram(100, true).makes_sums());
        assert!(!folding().of_datagram(100, false).makes_sums());
        assert_eq!(CopyIn::legacy().hand_over_bytes(1_448), 2_896);
        assert_eq!(CopyIn::default().hand_over_bytes(1_448), usize::MAX);
    }
}
