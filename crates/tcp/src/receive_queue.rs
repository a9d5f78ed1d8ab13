//! Bytes that arrived and the window that is announced for more.
//!
//! In order: chunks of the blocks the device filled, without a copy, unless a chunk is tiny or its
//! block holds little else; then its bytes move into the tail block of the queue, so that a few
//! bytes never pin a large block. Out of order: the same chunks in the [`Assembler`].
//!
//! ```text
//!   read by the application | waiting (len) |  RCV.NXT ... edge  = RCV.WND as announced
//!                           |<---------- capacity ------------>|
//! ```
//!
//! What always holds: the edge never moves back (RFC 9293, 3.8.6.2.1: a receiver SHOULD NOT shrink
//! the window); payload beyond the edge is not kept; so waiting and out-of-order bytes together
//! never exceed the capacity, except where the capacity itself was lowered; and the blocks kept for
//! them are bounded by it, too: where other connections' frames fill most of the blocks, payload is
//! copied once [`PINNED_FACTOR_MAX`] times the capacity is held, in order and ahead of it each.

use crate::assembler::{Assembler, AssemblerConfig, Insert, Piece};
use batch::{BlockPool, Chunk};
use std::collections::VecDeque;
use wire::{SackBlocks, SeqNumber};

/// Payload up to this length is copied: its handle would cost more than its bytes.
const COPY_LEN_BYTES_MAX: usize = 256;

/// Lengths of the blocks that copied payload is gathered in.
const TAIL_LEN_BYTES_MIN: usize = 4_096;
const TAIL_LEN_BYTES_MAX: usize = 16_384;

/// Bytes of blocks kept for each byte of capacity. A connection alone on its link never gets there,
/// because a block that is less than a quarter full is copied anyway.
const PINNED_FACTOR_MAX: usize = 4;

/// Unread bytes up to which a connection may go on receiving while the pool is low.
const UNREAD_LOW_BYTES_MAX: usize = 65_536;

/// What became of payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// It was next, and nothing waits behind it.
    InOrder,
    /// It was next, and filled at least a part of a gap (RFC 5681, 4.2).
    FilledGap,
    /// It waits for what is before it.
    OutOfOrder,
    /// It waits already.
    Duplicate,
    /// There was no room, or no block to copy it to.
    Refused,
    /// The pool is low: it was not kept, as if it had been lost.
    NoMemory,
}

/// The receive queue.
#[derive(Debug)]
pub(crate) struct ReceiveQueue {
    /// RCV.NXT.
    next: SeqNumber,
    /// RCV.NXT + RCV.WND, as announced in a segment that was taken by a device.
    edge: SeqNumber,
    chunks: VecDeque<Chunk>,
    len: usize,
    /// The last chunk lies in a block of our own, with room behind it.
    tail_is_ours: bool,
    assembler: Assembler<Chunk>,
    capacity_bytes: usize,
    copied_bytes: u64,
    /// Lengths of the blocks under `chunks`; a block counts once for neighbours in it.
    pinned_bytes: usize,
    /// The same of what was put into the assembler since it was last empty.
    pinned_ahead_bytes: usize,
}

impl ReceiveQueue {
    pub(crate) fn new(capacity_bytes: usize, assembler: AssemblerConfig) -> Self {
        Self {
            next: SeqNumber(0),
            edge: SeqNumber(0),
            chunks: VecDeque::new(),
            len: 0,
            tail_is_ours: false,
            assembler: Assembler::new(assembler),
            capacity_bytes,
            copied_bytes: 0,
            pinned_bytes: 0,
            pinned_ahead_bytes: 0,
        }
    }

    /// The peer's SYN is here: RCV.NXT is the number behind it. What our SYN announced was relative
    /// to a number not known then.
    pub(crate) fn on_syn(&mut self, irs: SeqNumber) {
        self.next = irs + 1;
        self.edge = self.next + self.capacity_bytes.min(65_535) as u32;
    }

    /// RCV.NXT.
    pub(crate) fn next(&self) -> SeqNumber {
        self.next
    }

    /// RCV.WND: how far beyond RCV.NXT the announced window reaches.
    pub(crate) fn window(&self) -> u32 {
        self.edge.offset_from(self.next)
    }

    /// Bytes that wait for the application.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn copied_bytes(&self) -> u64 {
        self.copied_bytes
    }

    pub(crate) fn set_capacity(&mut self, capacity_bytes: usize) {
        self.capacity_bytes = capacity_bytes;
    }

    /// Whether something waits behind a gap.
    pub(crate) fn has_gap(&self) -> bool {
        !self.assembler.is_empty()
    }

    /// The window to announce now, in bytes: what was announced before, or more by at least a
    /// segment or half the buffer (RFC 9293, 3.8.6.2.2: silly window avoidance, MUST-39).
    pub(crate) fn window_to_announce(&self, mss: u32) -> u32 {
        let announced = self.window();
        let free = self.capacity_bytes.saturating_sub(self.len) as u32;
        let step = mss.min(self.capacity_bytes as u32 / 2);
        if free >= announced.saturating_add(step) { free } else { announced }
    }

    /// A segment announced this window and was taken.
    pub(crate) fn on_announced(&mut self, window: u32) {
        self.edge = self.edge.later_of(self.next + window);
    }

    /// Whether the application's reads re-opened the window so far that the peer should hear of it:
    /// by two segments or half the buffer, once less than half of it was left.
    pub(crate) fn wants_update(&self, mss: u32) -> bool {
        let half = self.capacity_bytes as u32 / 2;
        let announced = self.window();
        announced < half
            && self.window_to_announce(mss) >= announced.saturating_add(half.min(2 * mss).max(1))
    }

    /// Takes payload that begins `offset` bytes after RCV.NXT and lies within the window.
    pub(crate) fn insert(
        &mut self,
        offset: u32,
        chunk: Chunk,
        sparse: bool,
        pool: &BlockPool,
    ) -> Arrival {
        // Under memory pressure only what comes next is kept, and only for a reader who keeps up:
        // what waits must not take the room in which that would arrive.
        if pool.is_low()
            && (offset > 0 || self.len >= UNREAD_LOW_BYTES_MAX || pool.is_nearly_exhausted())
        {
            return Arrival::NoMemory;
        }
        if offset > 0 {
            return self.insert_ahead(offset, chunk, sparse, pool);
        }
        let len = chunk.len();
        if !self.push(chunk, sparse, pool) {
            return Arrival::Refused;
        }
        self.next += len as u32;
        if self.assembler.is_empty() {
            // The usual case: keep the assembler's idea of RCV.NXT, touch nothing else.
            self.assembler.advance(len as u32);
            return Arrival::InOrder;
        }
        self.assembler.advance(len as u32);
        while let Some(ready) = self.assembler.take_ready() {
            self.next += ready.len() as u32;
            self.len += ready.len();
            self.tail_is_ours = false;
            self.keep(ready);
        }
        Arrival::FilledGap
    }

    fn insert_ahead(
        &mut self,
        offset: u32,
        mut chunk: Chunk,
        sparse: bool,
        pool: &BlockPool,
    ) -> Arrival {
        if self.assembler.is_empty() {
            self.pinned_ahead_bytes = 0;
        }
        let pinned_bytes = self.pinned_ahead_bytes + pins(self.assembler.last_piece(), &chunk);
        if !sparse && pinned_bytes <= self.pinned_bytes_max() {
            self.pinned_ahead_bytes = pinned_bytes;
        } else {
            let Ok(mut block) = pool.allocate_receive(chunk.len()) else {
                return Arrival::Refused;
            };
            let len = chunk.len();
            block.bytes_mut()[..len].copy_from_slice(chunk.bytes());
            self.copied_bytes += len as u64;
            chunk = Chunk::new(block.freeze(), 0..len);
        }
        match self.assembler.insert(offset, chunk) {
            Insert::Stored { .. } => Arrival::OutOfOrder,
            Insert::Duplicate => Arrival::Duplicate,
            Insert::Full => Arrival::Refused,
        }
    }

    /// Queues the next bytes, as a handle or as a copy.
    fn push(&mut self, chunk: Chunk, sparse: bool, pool: &BlockPool) -> bool {
        let pinned_bytes = self.pinned_bytes + pins(self.chunks.back(), &chunk);
        if !sparse && chunk.len() > COPY_LEN_BYTES_MAX && pinned_bytes <= self.pinned_bytes_max() {
            self.len += chunk.len();
            self.tail_is_ours = false;
            self.keep(chunk);
            return true;
        }
        let bytes = chunk.bytes();
        let mut done = 0;
        if self.tail_is_ours
            && let Some(tail) = self.chunks.back_mut()
        {
            done = tail.append_in_place(bytes);
        }
        let rest = &bytes[done..];
        if !rest.is_empty() {
            let wanted = rest.len().max(match rest.len() {
                0..=COPY_LEN_BYTES_MAX => TAIL_LEN_BYTES_MIN,
                _ => TAIL_LEN_BYTES_MAX,
            });
            let Ok(mut block) = pool.allocate_receive(wanted) else {
                if done > 0
                    && let Some(tail) = self.chunks.back_mut()
                {
                    tail.truncate(tail.len() - done);
                }
                return false;
            };
            block.bytes_mut()[..rest.len()].copy_from_slice(rest);
            self.keep(Chunk::new(block.freeze(), 0..rest.len()));
            self.tail_is_ours = true;
        }
        self.len += bytes.len();
        self.copied_bytes += bytes.len() as u64;
        true
    }

    /// The peer's FIN is next: it takes one sequence number.
    pub(crate) fn on_fin(&mut self) {
        self.next += 1;
        // What lies beyond a FIN is not data.
        self.assembler.clear();
        self.edge = self.edge.later_of(self.next);
    }

    /// Moves bytes to `out` and says how many.
    pub(crate) fn read(&mut self, out: &mut [u8]) -> usize {
        let mut done = 0;
        while done < out.len() {
            let Some(front) = self.chunks.front_mut() else { break };
            let count = front.len().min(out.len() - done);
            out[done..done + count].copy_from_slice(&front.bytes()[..count]);
            done += count;
            front.trim_front(count);
            if front.is_empty() {
                self.let_go();
            }
        }
        self.forget(done);
        done
    }

    /// Hands out the first chunk, or its first `len_max` bytes.
    pub(crate) fn read_chunk(&mut self, len_max: usize) -> Option<Chunk> {
        let front = self.chunks.front_mut().filter(|_| len_max > 0)?;
        let chunk = if front.len() <= len_max {
            self.let_go()?
        } else {
            let rest = front.split_off(len_max);
            core::mem::replace(front, rest)
        };
        self.forget(chunk.len());
        Some(chunk)
    }

    /// Lets go of everything; RCV.NXT and the window stay.
    pub(crate) fn clear(&mut self) {
        self.chunks = VecDeque::new();
        self.len = 0;
        self.pinned_bytes = 0;
        self.tail_is_ours = false;
        self.assembler.clear();
    }

    /// What waits behind gaps, for the SACK option.
    pub(crate) fn sack_blocks(&self, max: usize) -> SackBlocks {
        let mut blocks = SackBlocks::NONE;
        if !self.assembler.is_empty() {
            for (start, end) in self.assembler.sack_blocks(max) {
                blocks.push(self.next + start, self.next + end);
            }
        }
        blocks
    }

    fn pinned_bytes_max(&self) -> usize {
        self.capacity_bytes.saturating_mul(PINNED_FACTOR_MAX)
    }

    /// Puts a chunk last.
    fn keep(&mut self, chunk: Chunk) {
        self.pinned_bytes += pins(self.chunks.back(), &chunk);
        self.chunks.push_back(chunk);
    }

    /// Takes the first chunk out.
    fn let_go(&mut self) -> Option<Chunk> {
        let chunk = self.chunks.pop_front()?;
        self.pinned_bytes -= pins(self.chunks.front(), &chunk);
        Some(chunk)
    }

    fn forget(&mut self, count: usize) {
        self.len -= count;
        if self.chunks.is_empty() {
            self.tail_is_ours = false;
        }
    }
}

/// How many bytes of memory a chunk holds on to, beside a neighbour that is held as well.
fn pins(neighbour: Option<&Chunk>, chunk: &Chunk) -> usize {
    match neighbour.is_some_and(|neighbour| neighbour.block().is_same(chunk.block())) {
        true => 0,
        false => chunk.block().len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use batch::{Block, PoolConfig};

    fn queue(capacity_bytes: usize) -> (ReceiveQueue, BlockPool) {
        let mut queue = ReceiveQueue::new(capacity_bytes, AssemblerConfig::default());
        queue.on_syn(SeqNumber(u32::MAX - 10));
        (queue, BlockPool::new(PoolConfig::default()))
    }

    fn chunk(bytes: &'static [u8]) -> Chunk {
        let mut block = BlockPool::new(PoolConfig::default()).allocate(bytes.len()).expect("room");
        block.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
        Chunk::new(Block::clone(&block.freeze()), 0..bytes.len())
    }

    #[test]
    fn tiny_payload_is_gathered_and_large_payload_kept() {
        let (mut queue, pool) = queue(100_000);
        for _ in 0..100 {
            assert_eq!(queue.insert(0, chunk(&[7; 50]), false, &pool), Arrival::InOrder);
        }
        assert_eq!(pool.counters().outstanding_bytes, 2 * 4_096);
        assert_eq!(queue.insert(0, chunk(&[8; 1_000]), false, &pool), Arrival::InOrder);
        assert_eq!(pool.counters().outstanding_bytes, 2 * 4_096);
        assert_eq!(queue.insert(0, chunk(&[9; 1_000]), true, &pool), Arrival::InOrder);
        assert_eq!(pool.counters().outstanding_bytes, 2 * 4_096 + 16_384);
        let mut out = [0; 8_000];
        assert_eq!(queue.read(&mut out), 7_000);
        let expected = [vec![7; 5_000], vec![8; 1_000], vec![9; 1_000]].concat();
        assert_eq!(&out[..7_000], &expected[..]);
        assert_eq!(pool.counters().outstanding_bytes, 0);
    }

    #[test]
    fn blocks_shared_with_others_are_pinned_within_bounds() {
        for ahead in [0, 10] {
            let (mut queue, pool) = queue(300_000);
            let mut offset = ahead;
            for _ in 0..900 {
                // Other connections' frames fill the rest of the block, so it is not sparse.
                let block = pool.allocate(65_536).expect("within the pool's limit").freeze();
                let arrival = queue.insert(offset, Chunk::new(block, 0..300), false, &pool);
                assert_ne!(arrival, Arrival::Refused);
                offset += if ahead > 0 { 300 } else { 0 };
            }
            let outstanding = pool.counters().outstanding_bytes;
            assert!(outstanding < 4 * 300_000 + 900 * 1_024, "{outstanding} bytes");
            queue.insert(0, chunk(&[1; 10]), false, &pool);
            let mut out = vec![0; 300_000];
            assert_eq!(queue.read(&mut out), 900 * 300 + 10);
            assert_eq!((pool.counters().outstanding_bytes, queue.pinned_bytes), (0, 0));
        }
    }

    #[test]
    fn a_low_pool_keeps_only_what_comes_next_and_is_read() {
        let (mut queue, _) = queue(300_000);
        let pool = BlockPool::new(PoolConfig {
            size_classes_bytes: vec![1_000],
            limit_bytes: 200_000,
            receive_reserve_bytes: 160_000,
            ..PoolConfig::default()
        });
        let elsewhere: Vec<_> = (0..41).map(|_| pool.allocate_receive(1_000)).collect();
        assert!(pool.is_low() && !pool.is_nearly_exhausted());
        let next = || {
            let block = pool.allocate_receive(1_000).expect("within the reserve").freeze();
            Chunk::new(block, 0..1_000)
        };
        assert_eq!(queue.insert(1_000, next(), false, &pool), Arrival::NoMemory, "it would wait");
        for _ in 0..66 {
            assert_eq!(queue.insert(0, next(), false, &pool), Arrival::InOrder);
        }
        assert_eq!(queue.insert(0, next(), false, &pool), Arrival::NoMemory, "nobody reads");
        assert_eq!(queue.read(&mut vec![0; 10_000]), 10_000);
        assert_eq!(queue.insert(0, next(), false, &pool), Arrival::InOrder);
        drop(elsewhere);
        assert_eq!(queue.insert(1_000, next(), false, &pool), Arrival::NoMemory, "still low");
        assert_eq!(queue.read(&mut vec![0; 60_000]), 57_000);
        assert_eq!(queue.insert(1_000, next(), false, &pool), Arrival::OutOfOrder);
    }

    #[test]
    fn a_filled_gap_hands_out_what_waited() {
        let (mut queue, pool) = queue(1_000);
        assert_eq!(queue.insert(4, chunk(b"efgh"), false, &pool), Arrival::OutOfOrder);
        assert_eq!(queue.insert(4, chunk(b"efgh"), false, &pool), Arrival::Duplicate);
        assert_eq!(queue.sack_blocks(3).as_slice(), [(queue.next() + 4, queue.next() + 8)]);
        assert_eq!(queue.insert(0, chunk(b"abcdef"), false, &pool), Arrival::FilledGap);
        let mut out = [0; 10];
        assert_eq!(queue.read(&mut out), 8);
        assert_eq!(&out[..8], b"abcdefgh");
        assert!(!queue.has_gap());
    }

    // RFC 9293, 3.8.6.2.1 and 3.8.6.2.2.
    #[test]
    fn the_window_never_moves_back_and_opens_in_steps() {
        let (mut queue, pool) = queue(4_000);
        assert_eq!(queue.window(), 4_000);
        queue.insert(0, chunk(&[1; 3_900]), false, &pool);
        assert_eq!(queue.window_to_announce(1_000), 100);
        let mut out = [0; 999];
        queue.read(&mut out);
        assert_eq!(queue.window_to_announce(1_000), 100, "less than a segment more");
        assert!(!queue.wants_update(1_000));
        queue.read(&mut out[..1]);
        assert_eq!(queue.window_to_announce(1_000), 1_100);
        assert!(!queue.wants_update(1_000), "one segment is not worth an ACK of its own");
        queue.read(&mut out);
        queue.read(&mut out[..1]);
        assert!(queue.wants_update(1_000));
        queue.on_announced(2_100);
        assert_eq!(queue.window(), 2_100);
        queue.set_capacity(10);
        assert_eq!(queue.window_to_announce(1_000), 2_100);
    }
}
