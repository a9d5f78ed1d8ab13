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
//!
//! A datagram, or many in one call, is a write whose boundaries are kept: copied by the same policy and the same
//! code, into blocks that datagrams share or that each has for itself, and then cut where it ended
//! ([`Copied::take`]).

use crate::RuntimeCounters;
use batch::{BlockMut, BlockPool, Chunk, Chunks, Exhausted, Pieces};
use stack::{DatagramPlan, SendPlan};
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
    /// One segment of the connection, or as much of a datagram as the interface takes in one packet: one
    /// buffer for each packet.
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
    /// (`tcp_maxpsz_multiplier`); `None` is all there is room for (INFPSZ). Of many datagrams in one call, how
    /// many packets' worth at once, but whole datagrams and at least one, and never more than 64 KiB of several.
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
    /// measured to be no gain (MEASUREMENTS.md), and off by default.
    pub fold_checksum: bool,
}

/// Sees when writes are copied in, for who wants to know what that takes
/// ([`StackBuilder::copy_observer`](crate::StackBuilder::copy_observer)). It is called by the thread that writes,
/// under no lock but that of the writers of one stream. What is lent is not copied.
pub trait CopyObserver: Send + Sync {
    /// A copy begins: of a write, or of a part of it that is handed over at once.
    fn on_begin(&self);

    /// It has ended.
    fn on_end(&self);
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
        let pieces = Pieces::new(plan.segment_len_bytes, plan.segment_done_bytes);
        let sums = if plan.needs_sums { Sums::Segments(pieces) } else { Sums::None };
        Layout { sums: self.sums(sums), ..self.layout(block_len) }
    }

    /// The layout of datagrams of one socket, one or many: a sum for each.
    pub(crate) fn of_datagrams(&self, plan: &DatagramPlan) -> Layout {
        let block_len = match self.block {
            BlockSize::Whole => usize::MAX,
            BlockSize::Page => PAGE_LEN_BYTES,
            BlockSize::Segment => plan.packet_len_bytes,
        };
        let sums = if plan.needs_sums { Sums::Writes } else { Sums::None };
        let is_block_shared = self.block != BlockSize::Segment;
        Layout { is_block_shared, sums: self.sums(sums), ..self.layout(block_len) }
    }

    /// Whether what is known of a socket's datagrams changes anything.
    pub(crate) fn minds_datagrams(&self) -> bool {
        self.block == BlockSize::Segment || self.hand_over_segments.is_some() || self.fold_checksum
    }

    fn sums(&self, sums: Sums) -> Sums {
        if self.fold_checksum { sums } else { Sums::None }
    }

    fn layout(&self, block_len_bytes: usize) -> Layout {
        Layout {
            order: self.order,
            block_len_bytes: block_len_bytes.min(self.block_len_bytes_max).max(1),
            header_room_bytes: self.header_room_bytes.min(HEADER_ROOM_BYTES_MAX),
            is_block_shared: true,
            sums: Sums::None,
        }
    }
}

/// Which sums are made in the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sums {
    None,
    /// One for each future segment of a stream, where these lie.
    Segments(Pieces),
    /// One for each write.
    Writes,
}

/// How one message is laid into blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    order: CopyOrder,
    block_len_bytes: usize,
    header_room_bytes: usize,
    /// Writes behind each other may lie in one block.
    is_block_shared: bool,
    sums: Sums,
}

impl Layout {
    /// How long the block is that the front of `len` bytes needs.
    pub(crate) fn first_block_len(&self, len: usize) -> usize {
        self.header_room_bytes + len.min(self.block_len_bytes)
    }

    /// Whether sums are made in the copy.
    fn makes_sums(&self) -> bool {
        self.sums != Sums::None
    }

    /// Where sums are wanted in a write of `len` bytes, behind another that had `before`.
    fn pieces(&self, len: usize, before: Option<Pieces>) -> Option<Pieces> {
        match self.sums {
            Sums::None => None,
            Sums::Segments(pieces) => before.or(Some(pieces)),
            Sums::Writes => Some(Pieces::new(len, 0)),
        }
    }

    /// Counts bytes that were copied in and handed over.
    pub(crate) fn count(&self, counters: &mut RuntimeCounters, len_bytes: usize) {
        counters.bytes_copied_in += len_bytes as u64;
        counters.bytes_summed_in_copy += if self.makes_sums() { len_bytes as u64 } else { 0 };
    }
}

/// A place in what is written: writes one behind the other.
struct Cursor<'a, I> {
    writes: I,
    /// What is left of the write it is in.
    rest: &'a [u8],
    pieces: Option<Pieces>,
}

impl<'a, I: Iterator<Item = &'a [u8]>> Cursor<'a, I> {
    fn new(writes: I) -> Self {
        Self { writes, rest: &[], pieces: None }
    }

    /// What is left of the write it is in, or of the next; empty at the end of all.
    fn rest(&mut self, layout: &Layout) -> &'a [u8] {
        while self.rest.is_empty() {
            let Some(write) = self.writes.next() else { break };
            (self.rest, self.pieces) = (write, layout.pieces(write.len(), self.pieces));
        }
        self.rest
    }

    fn advance(&mut self, len: usize) {
        self.rest = &self.rest[len..];
        self.pieces = self.pieces.map(|pieces| pieces.after(len));
    }

    /// How long the next block is, of at most `left` bytes; the cursor goes behind what it will hold, where blocks end
    /// with their writes.
    fn next_block(&mut self, layout: &Layout, left: usize) -> usize {
        if layout.is_block_shared {
            return layout.block_len_bytes.min(left);
        }
        let len = layout.block_len_bytes.min(self.rest(layout).len());
        self.advance(len);
        len
    }

    /// Copies the next `len` bytes to the block from byte `at` on.
    fn copy_to(&mut self, layout: &Layout, block: &mut BlockMut, at: usize, len: usize) {
        let mut done = 0;
        while done < len {
            let rest = self.rest(layout);
            let part = rest.len().min(len - done);
            block.copy_in(at + done, &rest[..part], self.pieces);
            self.advance(part);
            done += part;
        }
    }
}

/// Blocks on their way from the application into a send queue; its memory is reused.
#[derive(Debug, Default)]
pub(crate) struct Copied {
    blocks: Vec<(BlockMut, usize)>,
    pub(crate) chunks: VecDeque<Chunk>,
}

impl Copied {
    /// Copies `writes`, or as much of their front as the pool has blocks for, behind what is there,
    /// and says how many bytes. Where there is a `first` block already, it holds the front.
    ///
    /// # Errors
    /// The pool has no block at all.
    pub(crate) fn fill<'a>(
        &mut self,
        pool: &BlockPool,
        layout: &Layout,
        writes: impl Iterator<Item = &'a [u8]> + Clone,
        mut first: Option<BlockMut>,
    ) -> Result<usize, Exhausted> {
        let room = layout.header_room_bytes;
        let mut len: usize = writes.clone().map(<[u8]>::len).sum();
        let (mut ahead, mut source) = (Cursor::new(writes.clone()), Cursor::new(writes));
        let (mut allocated, mut done) = (0, 0);
        while done < len {
            // As many blocks as the order allows, then the copy over them.
            while allocated < len {
                let block_len = ahead.next_block(layout, len - allocated);
                match first.take().map_or_else(|| pool.allocate(room + block_len), Ok) {
                    Ok(block) => self.blocks.push((block, block_len)),
                    Err(exhausted) if allocated == 0 => return Err(exhausted),
                    Err(_) => {
                        // No more of it than there are blocks for.
                        len = allocated;
                        break;
                    }
                }
                allocated += block_len;
                if layout.order == CopyOrder::Interleaved {
                    break;
                }
            }
            for (mut block, block_len) in self.blocks.drain(..) {
                source.copy_to(layout, &mut block, room, block_len);
                self.chunks.push_back(Chunk::new(block.freeze(), room..room + block_len));
                done += block_len;
            }
        }
        Ok(done)
    }

    /// Takes the next `len` bytes as one whole: a datagram. `None` where there are fewer.
    pub(crate) fn take(&mut self, len: usize) -> Option<Chunks> {
        if len == 0 {
            return Some(Chunks::default());
        }
        if self.chunks.front()?.len() >= len {
            return self.take_part(len).map(Chunks::from);
        }
        if self.chunks.iter().map(Chunk::len).sum::<usize>() < len {
            return None;
        }
        let mut left = len;
        Some(
            core::iter::from_fn(|| {
                let part = self.take_part(left)?;
                left -= part.len();
                Some(part)
            })
            .collect(),
        )
    }

    /// Takes as much of the front chunk as `len_max` bytes, if that is any.
    fn take_part(&mut self, len_max: usize) -> Option<Chunk> {
        let front = self.chunks.front_mut().filter(|_| len_max > 0)?;
        if front.len() <= len_max {
            return self.chunks.pop_front();
        }
        let mut part = front.clone();
        part.truncate(len_max);
        front.trim_front(len_max);
        Some(part)
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

    const DATAGRAMS: DatagramPlan = DatagramPlan { packet_len_bytes: 1_472, needs_sums: true };

    fn once(bytes: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
        core::iter::once(bytes)
    }

    fn layout(block: BlockSize) -> Layout {
        CopyIn { block, ..CopyIn::default() }.of_stream(&plan())
    }

    fn folding() -> CopyIn {
        CopyIn { fold_checksum: true, ..CopyIn::default() }
    }

    fn any_policy() -> impl Strategy<Value = CopyIn> {
        let block =
            prop_oneof![Just(BlockSize::Whole), Just(BlockSize::Page), Just(BlockSize::Segment)];
        (any::<[bool; 2]>(), block, 1_000_usize..300_000, 0_usize..100).prop_map(
            |([is_interleaved, fold_checksum], block, block_len_bytes_max, header_room_bytes)| {
                let order = match is_interleaved {
                    true => CopyOrder::Interleaved,
                    false => CopyOrder::AllocateFirst,
                };
                CopyIn {
                    order,
                    block,
                    block_len_bytes_max,
                    header_room_bytes,
                    fold_checksum,
                    ..CopyIn::default()
                }
            },
        )
    }

    fn content(len: usize) -> Vec<u8> {
        (0..len as u32).map(|i| ((i * 31) >> 3) as u8).collect()
    }

    proptest! {
        #[test]
        fn every_policy_hands_over_what_was_written_with_its_sums(
            len in 1_usize..200_000,
            copy_in in any_policy(),
        ) {
            let bytes = content(len);
            let pool = BlockPool::new(PoolConfig::default());
            let mut copied = Copied::default();
            let filled = copied.fill(&pool, &copy_in.of_stream(&plan()), once(&bytes), None);
            prop_assert_eq!(filled, Ok(len));
            let all: Vec<u8> = copied.chunks.iter().flat_map(|it| it.bytes().to_vec()).collect();
            prop_assert_eq!(all, bytes);
            for chunk in &copied.chunks {
                prop_assert!(chunk.len() <= copy_in.block_len_bytes_max);
                prop_assert_eq!(chunk.offset(), copy_in.header_room_bytes);
                let (sum, read) = chunk.sum();
                prop_assert_eq!(sum, checksum_of(chunk.bytes()));
                prop_assert_eq!(read, if copy_in.fold_checksum { 0 } else { chunk.len() });
            }
        }

        #[test]
        fn every_policy_keeps_datagrams_apart_with_their_sums(
            lens in proptest::collection::vec(prop_oneof![0_usize..20, 0_usize..3_000, 0_usize..30_000], 1..20),
            copy_in in any_policy(),
        ) {
            let bytes = content(lens.iter().sum());
            let mut rest = &bytes[..];
            let datagrams: Vec<&[u8]> = lens.iter().map(|len| {
                let (datagram, behind) = rest.split_at(*len);
                rest = behind;
                datagram
            }).collect();
            let pool = BlockPool::new(PoolConfig::default());
            let mut copied = Copied::default();
            let layout = copy_in.of_datagrams(&DATAGRAMS);
            let filled = copied.fill(&pool, &layout, datagrams.iter().copied(), None);
            prop_assert_eq!(filled, Ok(bytes.len()));
            let blocks = copied.chunks.len();
            let block_len = match copy_in.block {
                BlockSize::Whole => usize::MAX,
                BlockSize::Page => PAGE_LEN_BYTES,
                BlockSize::Segment => DATAGRAMS.packet_len_bytes,
            }.min(copy_in.block_len_bytes_max);
            prop_assert_eq!(blocks, match copy_in.block {
                BlockSize::Segment => lens.iter().map(|len| len.div_ceil(block_len)).sum(),
                _ => bytes.len().div_ceil(block_len),
            });
            for datagram in datagrams {
                let taken = copied.take(datagram.len()).expect("all were copied");
                let mut all = vec![0; datagram.len() + 1];
                prop_assert_eq!(taken.copy_to(&mut all), datagram.len());
                prop_assert_eq!(&all[..datagram.len()], datagram);
                let (sum, read) = taken.sum();
                // One's complement writes zero in two ways.
                prop_assert_eq!(sum % 0xffff, checksum_of(datagram) % 0xffff);
                prop_assert_eq!(read, if copy_in.fold_checksum { 0 } else { datagram.len() });
            }
            prop_assert!(copied.take(1).is_none());
        }
    }

    #[test]
    fn what_was_not_copied_is_no_datagram() {
        let pool = BlockPool::new(PoolConfig {
            size_classes_bytes: vec![1_000],
            largest_cached_len_bytes: 1_000,
            limit_bytes: 2_500,
            receive_reserve_bytes: 0,
            cached_limit_bytes: 0,
            ..PoolConfig::default()
        });
        let small = CopyIn { block_len_bytes_max: 1_000, ..CopyIn::default() };
        let mut copied = Copied::default();
        let datagrams = [&[1; 700][..], &[2; 700], &[3; 700]];
        let layout = small.of_datagrams(&DATAGRAMS);
        assert_eq!(copied.fill(&pool, &layout, datagrams.into_iter(), None), Ok(2_000));
        let lens = datagrams.map(|it| copied.take(it.len()).map(|it| it.len()));
        assert_eq!(lens, [Some(700), Some(700), None]);
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
            assert_eq!(copied.fill(&pool, layout, once(&[7; 10_000]), None), Ok(10_000));
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
                ..PoolConfig::default()
            })
        };
        for order in [CopyOrder::AllocateFirst, CopyOrder::Interleaved] {
            let copy_in = CopyIn { order, block: BlockSize::Page, ..CopyIn::default() };
            let (pool, mut copied) = (pool(), Copied::default());
            let layout = copy_in.of_stream(&plan());
            assert_eq!(copied.fill(&pool, &layout, once(&[1; 20_000]), None), Ok(8_192));
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
            ..PoolConfig::default()
        });
        let small = CopyIn { block_len_bytes_max: 1_000, ..CopyIn::default() }.of_stream(&plan());
        let mut copied = Copied::default();
        assert_eq!(copied.fill(&pool, &small, once(&[7; 5_000]), None), Ok(2_000));
        assert_eq!(copied.fill(&pool, &small, once(&[7; 10]), None), Err(Exhausted));
        copied.chunks.clear();
        assert_eq!(copied.fill(&pool, &small, once(&[7; 5_000]), None), Ok(2_000));
        let mut other = Copied::default();
        assert_eq!(other.fill(&pool, &small, once(&[7; 10]), None), Err(Exhausted));
    }

    #[test]
    fn sums_are_made_only_where_somebody_wants_them() {
        let offloaded = SendPlan { needs_sums: false, ..plan() };
        assert!(folding().of_stream(&plan()).makes_sums());
        assert!(!folding().of_stream(&offloaded).makes_sums());
        assert!(!CopyIn::legacy().of_stream(&plan()).makes_sums());
        let offloaded = DatagramPlan { needs_sums: false, ..DATAGRAMS };
        assert!(folding().of_datagrams(&DATAGRAMS).makes_sums());
        assert!(!folding().of_datagrams(&offloaded).makes_sums());
        assert!(!CopyIn::legacy().of_datagrams(&DATAGRAMS).makes_sums());
        assert_eq!(CopyIn::legacy().hand_over_bytes(1_448), 2_896);
        assert_eq!(CopyIn::default().hand_over_bytes(1_448), usize::MAX);
    }
}
