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
//! copied once [`PINNED_FACTOR_MAX`] times the capacity is held, in order and ahead of it each; and where
//! copies of a few bytes each, ahead of their turn, come to hold so much, they are gathered. When the
//! pool has nothing left to share, whoever holds much more than is unread is asked to copy that out
//! ([`ReceiveQueue::copy_out`]).
//!
//! Many queues, each within its capacity, may hold more than there is memory. So all that share a pool hold a part of it
//! ([`BlockPool::streams_bound`]): a queue grows while it holds less than is left, and offers half of that, so that
//! little which was announced has to be refused. A few segments in order a reader gets at any time.

use crate::receiver::assembler::{Assembler, AssemblerConfig, Insert, Overlap, Piece};
use crate::room::{make_room, release};
use batch::{BlockPool, Chunk, holds_much_more};
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

/// Unread chunks that bytes which came again are compared with.
const CHUNKS_COMPARED_MAX: usize = 64;

/// Half of the largest window that a SYN can announce.
const SYN_WINDOW_LOW_BYTES: u32 = 32_768;

/// Unread bytes up to which a connection may go on receiving while the pool is low.
const UNREAD_LOW_BYTES_MAX: usize = 65_536;

/// Unread bytes up to which a connection may go on receiving whatever others hold: some segments of the usual size.
const UNREAD_LEAST_BYTES: usize = 8_192;

/// What is taken of a segment at a time while blocks are scarce: one of the usual size.
const SCARCE_LEN_BYTES_MAX: usize = 2_048;

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
    /// Too many pieces wait ahead of their turn.
    Refused,
    /// The pool is low, or has no block to copy it to: it was not kept, as if it had been lost.
    NoMemory,
    /// As much is unread as may be, in all connections, and too much in this one: it was not kept.
    TooMuchUnread,
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
    has_fin: bool,
    /// Only a SYN has announced a window so far, which could not say more than 65,535.
    is_syn_window: bool,
    /// Readers of all connections did not keep up when payload arrived last.
    is_much_unread: bool,
    /// What could be offered of the capacity when payload arrived last.
    offer_bytes_max: u32,
    /// RCV.NXT when a closed window was announced last; before that a number that is gone.
    closed_at: SeqNumber,
    /// What waits behind a gap, while anything does.
    ahead: Option<Box<Ahead>>,
    ahead_bounds: AssemblerConfig,
    /// As long as a window can be, 1 GiB at most.
    capacity_bytes: u32,
    copied_bytes: u64,
    /// Lengths of the blocks under `chunks`; a block counts once for neighbours in it.
    pinned_bytes: usize,
}

/// What came ahead of its turn. Most connections have nothing of it most of the time.
#[derive(Debug)]
struct Ahead {
    assembler: Assembler<Chunk>,
    /// Lengths of the blocks under what was put in here since these were counted.
    pinned_bytes: usize,
    /// The same when they were counted last.
    counted_bytes: usize,
    /// The number of the peer's FIN, where that came ahead, too.
    fin: Option<SeqNumber>,
}

impl ReceiveQueue {
    pub(crate) fn new(capacity_bytes: usize, assembler: AssemblerConfig) -> Self {
        Self {
            next: SeqNumber(0),
            edge: SeqNumber(0),
            chunks: VecDeque::new(),
            len: 0,
            tail_is_ours: false,
            has_fin: false,
            is_syn_window: true,
            is_much_unread: false,
            offer_bytes_max: u32::MAX,
            closed_at: SeqNumber(0),
            ahead: None,
            ahead_bounds: assembler,
            capacity_bytes: capacity_bytes as u32,
            copied_bytes: 0,
            pinned_bytes: 0,
        }
    }

    /// The peer's SYN is here: RCV.NXT is the number behind it. What our SYN announced was relative
    /// to a number not known then.
    pub(crate) fn on_syn(&mut self, irs: SeqNumber) {
        self.next = irs + 1;
        self.closed_at = irs - 1;
        self.edge = self.next + self.capacity_bytes.min(65_535);
    }

    /// The sequence number of the byte that is read next.
    pub(crate) fn position(&self) -> SeqNumber {
        self.next - (self.len as u32 + u32::from(self.has_fin))
    }

    /// RCV.NXT.
    pub(crate) fn next(&self) -> SeqNumber {
        self.next
    }

    /// RCV.WND: how far beyond RCV.NXT the announced window reaches.
    pub(crate) fn window(&self) -> u32 {
        self.edge.offset_from(self.next)
    }

    /// Whether the last byte may have been a probe of a closed window, which the peer does not count as sent (RFC 9293,
    /// 3.8.6.1), whatever was announced since: that may have been lost. A window may also have closed again behind it.
    pub(crate) fn ends_with_probe(&self) -> bool {
        [self.closed_at, self.closed_at + 1].contains(&self.next)
    }

    /// One past the last number of the announced window.
    pub(crate) fn edge(&self) -> SeqNumber {
        self.edge
    }

    /// Whether a larger buffer is of use: not where blocks were scarce when payload arrived last, nor where it is readers
    /// who do not keep up. A round trip is long then because so much waits, and all that is offered would wait, too.
    pub(crate) fn may_grow(&self) -> bool {
        self.capacity_bytes <= self.offer_bytes_max && !self.is_much_unread
    }

    /// The buffer that is offered: all of it, or what can be kept now; no less than two units of the window's scale, or
    /// nothing might be announced at all.
    fn offered_bytes(&self, shift: u8) -> u32 {
        self.capacity_bytes.min(self.offer_bytes_max.max(2 << shift))
    }

    /// What is held for the application, as it is counted in the pool: blocks, or what would be held at most if it was
    /// copied out of them.
    #[inline]
    pub(crate) fn held_bytes(&self) -> usize {
        let (waits, pinned) = self.ahead.as_ref().map_or((0, 0), |it| it.extent());
        (self.pinned_bytes + pinned).min(2 * (self.len + waits))
    }

    /// Bytes that wait for the application.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn copied_bytes(&self) -> u64 {
        self.copied_bytes
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity_bytes as usize
    }

    pub(crate) fn set_capacity(&mut self, capacity_bytes: usize) {
        self.capacity_bytes = capacity_bytes as u32;
    }

    /// Whether something waits behind a gap.
    pub(crate) fn has_gap(&self) -> bool {
        self.ahead.is_some()
    }

    /// The window to announce now, in bytes: what was announced before, or more by at least a
    /// segment or half the buffer (RFC 9293, 3.8.6.2.2: silly window avoidance, MUST-39).
    pub(crate) fn window_to_announce(&self, mss: u32, shift: u8) -> u32 {
        let announced = self.window();
        let offered = self.offered_bytes(shift);
        let free = offered.saturating_sub(self.len as u32);
        let step = mss.min(offered / 2);
        if free >= announced.saturating_add(step) { free } else { announced }
    }

    /// A segment announced this window, shifted by so many bits, and was taken.
    pub(crate) fn on_announced(&mut self, window: u32, shift: u8) {
        if window >> shift == 0 {
            self.closed_at = self.next;
        }
        self.is_syn_window = false;
        self.edge = self.edge.later_of(self.next + window);
    }

    /// Whether the application's reads re-opened the window so far that the peer should hear of it:
    /// by two segments or half the buffer, once less than half of it was left; and by enough to be another
    /// window where it is shifted by so many bits, or each read would send an ACK that says nothing new.
    pub(crate) fn wants_update(&self, mss: u32, shift: u8) -> bool {
        let half = self.offered_bytes(shift) / 2;
        let announced = self.window();
        if self.is_syn_window && announced >= SYN_WINDOW_LOW_BYTES {
            // The ACK of what arrives says more anyway; the first read of a small exchange is not
            // worth a segment.
            return false;
        }
        let window = self.window_to_announce(mss, shift);
        announced < half
            && window >= announced.saturating_add(half.min(2 * mss).max(1))
            && window >> shift > announced >> shift
    }

    /// Takes payload that begins `offset` bytes after RCV.NXT and lies within the window.
    #[inline]
    pub(crate) fn insert(
        &mut self,
        offset: u32,
        mut chunk: Chunk,
        sparse: bool,
        pool: &BlockPool,
    ) -> Arrival {
        // Under memory pressure only what comes next is kept, and only for a reader who keeps up:
        // what waits must not take the room in which that would arrive.
        let is_low = pool.is_low();
        let bound = pool.streams_bound();
        let left_bytes = bound.left_bytes;
        self.is_much_unread = bound.is_near();
        self.offer_bytes_max = offer_bytes_max(is_low, left_bytes);
        let is_scarce = is_low && pool.is_scarce();
        if is_low
            && (offset > 0
                || self.len >= UNREAD_LOW_BYTES_MAX
                || (is_scarce && (self.len > 0 || pool.is_nearly_exhausted())))
        {
            return Arrival::NoMemory;
        }
        if is_scarce {
            // The rest comes again, as if it had been lost.
            chunk.truncate(SCARCE_LEN_BYTES_MAX);
            return self.insert_scarce(&chunk, pool);
        }
        if self.held_bytes() >= left_bytes {
            if offset > 0 || self.len >= UNREAD_LEAST_BYTES {
                return Arrival::TooMuchUnread;
            }
            chunk.truncate(UNREAD_LEAST_BYTES - self.len);
        }
        if offset > 0 {
            return self.insert_ahead(offset, chunk, sparse, pool);
        }
        if self.ahead.is_some() {
            return self.insert_before_gap(chunk, sparse, pool);
        }
        let len = chunk.len();
        if !self.push(chunk, sparse, pool) {
            return Arrival::NoMemory;
        }
        self.next += len as u32;
        Arrival::InOrder
    }

    /// Takes what is next for a reader who has read everything, in a block of its size.
    #[cold]
    fn insert_scarce(&mut self, chunk: &Chunk, pool: &BlockPool) -> Arrival {
        let len = chunk.len();
        let Ok(mut block) = pool.allocate_receive(len) else { return Arrival::NoMemory };
        block.copy_in(0, chunk.bytes(), None);
        self.copied_bytes += len as u64;
        let copy = Chunk::new(block.freeze(), 0..len);
        if self.ahead.is_some() {
            return self.insert_before_gap(copy, false, pool);
        }
        self.tail_is_ours = false;
        self.keep(copy);
        self.len += len;
        self.next += len as u32;
        Arrival::InOrder
    }

    /// Whether the blocks that are held are much longer than what waits in them.
    pub(crate) fn holds_much_more(&self) -> bool {
        let (waits, pinned) = self.ahead.as_ref().map_or((0, 0), |it| it.extent());
        holds_much_more(self.len + waits, self.pinned_bytes + pinned)
    }

    /// Copies at most about `bytes_max` bytes that wait out of blocks that hold little else of this queue,
    /// and says how many.
    #[cold]
    pub(crate) fn copy_out(&mut self, pool: &BlockPool, bytes_max: usize) -> usize {
        let mut copied = pool.copy_out(&mut self.chunks, bytes_max);
        if copied > 0 {
            self.tail_is_ours = false;
            self.pinned_bytes = pinned_bytes(self.chunks.iter());
        }
        if let Some(ahead) = &mut self.ahead {
            copied += ahead.copy_out(pool, bytes_max - copied.min(bytes_max));
        }
        copied
    }

    /// Takes what is next while other data waits. Where the two overlap, what came first stays: it
    /// was reported by SACK already.
    fn insert_before_gap(&mut self, chunk: Chunk, sparse: bool, pool: &BlockPool) -> Arrival {
        let mut rest = Some(chunk);
        let mut arrival = Arrival::NoMemory;
        while let Some(mut chunk) = rest.take() {
            let first = self.ahead.as_ref().and_then(|ahead| ahead.assembler.first_offset());
            let gap = first.map_or(usize::MAX, |offset| offset as usize);
            let after = (chunk.len() > gap).then(|| chunk.split_off(gap));
            let len = chunk.len();
            if !self.push(chunk, sparse, pool) {
                break;
            }
            arrival = Arrival::FilledGap;
            self.next += len as u32;
            let taken = self.take_ready(len, pool);
            rest = after.filter(|after| after.len() > taken).map(|mut after| {
                after.trim_front(taken);
                after
            });
        }
        arrival
    }

    /// RCV.NXT moved on by `len`: takes over what waited for that, and says how much that was.
    fn take_ready(&mut self, len: usize, pool: &BlockPool) -> usize {
        let Some(mut ahead) = self.ahead.take() else { return 0 };
        let mut taken = 0;
        ahead.assembler.advance(len as u32);
        while let Some(ready) = ahead.assembler.take_ready() {
            taken += ready.len();
            // As what comes in its turn, so that a few bytes do not hold a block each; but what was
            // reported is kept, whatever it holds.
            if !self.push(ready.clone(), false, pool) {
                self.len += ready.len();
                self.tail_is_ours = false;
                self.keep(ready);
            }
        }
        self.next += taken as u32;
        self.put_back(ahead);
        taken
    }

    /// Keeps what is ahead for as long as there is something.
    fn put_back(&mut self, mut ahead: Box<Ahead>) {
        ahead.fin = ahead.fin.filter(|fin| fin.is_at_or_after(self.next));
        let is_needed = ahead.fin.is_some() || !ahead.assembler.is_empty();
        self.ahead = Some(ahead).filter(|_| is_needed);
    }

    fn take_ahead(&mut self) -> Box<Ahead> {
        let bounds = self.ahead_bounds;
        self.ahead.take().unwrap_or_else(|| {
            let assembler = Assembler::new(bounds);
            Box::new(Ahead { assembler, pinned_bytes: 0, counted_bytes: 0, fin: None })
        })
    }

    /// The peer's FIN came ahead of its turn, with this number. A later one with another number replaces it.
    pub(crate) fn hold_fin(&mut self, sequence: SeqNumber) {
        let mut ahead = self.take_ahead();
        ahead.fin = Some(sequence);
        self.put_back(ahead);
    }

    /// Whether a FIN that came ahead of its turn is next.
    pub(crate) fn is_fin_next(&self) -> bool {
        self.ahead.as_ref().is_some_and(|ahead| ahead.fin == Some(self.next))
    }

    /// What of a payload `offset` bytes after RCV.NXT waits already.
    pub(crate) fn overlap(&self, offset: u32, chunk: &Chunk) -> Overlap {
        let ahead = self.ahead.as_ref();
        ahead.map(|ahead| ahead.assembler.overlap(offset, chunk)).unwrap_or_default()
    }

    /// Whether bytes that came again from `start` on, all before RCV.NXT, differ from what came
    /// first, as far as that was not read yet. Looks at the newest chunks only.
    pub(crate) fn differs_from_unread(&self, start: SeqNumber, bytes: &[u8]) -> bool {
        // The sequence number behind the newest unread byte; the FIN takes one of its own.
        let mut end = self.next - u32::from(self.has_fin);
        for chunk in self.chunks.iter().rev().take(CHUNKS_COMPARED_MAX) {
            let chunk_start = end - chunk.len() as u32;
            let from = start.later_of(chunk_start);
            let to = (start + bytes.len() as u32).earlier_of(end);
            if from.is_before(to) {
                let len = to.offset_from(from) as usize;
                let old = from.offset_from(chunk_start) as usize;
                let new = from.offset_from(start) as usize;
                if chunk.bytes().get(old..old + len) != bytes.get(new..new + len) {
                    return true;
                }
            }
            if !chunk_start.is_after(start) {
                return false;
            }
            end = chunk_start;
        }
        false
    }

    fn insert_ahead(
        &mut self,
        offset: u32,
        chunk: Chunk,
        sparse: bool,
        pool: &BlockPool,
    ) -> Arrival {
        let pinned_bytes_max = self.pinned_bytes_max();
        let mut ahead = self.take_ahead();
        if ahead.pinned_bytes > pinned_bytes_max.max(2 * ahead.counted_bytes) {
            self.copied_bytes += ahead.copy_out(pool, usize::MAX) as u64;
        }
        let pinned_before = ahead.pinned_bytes;
        let arrival = match ahead.hold(chunk, sparse, pinned_bytes_max, pool) {
            Some((chunk, copied)) => {
                self.copied_bytes += copied as u64;
                ahead.insert(offset, chunk)
            }
            None => Arrival::NoMemory,
        };
        if arrival != Arrival::OutOfOrder {
            // It was let go of again.
            ahead.pinned_bytes = pinned_before;
        }
        self.put_back(ahead);
        arrival
    }

    /// Queues the next bytes, as a handle or as a copy.
    #[inline]
    fn push(&mut self, chunk: Chunk, sparse: bool, pool: &BlockPool) -> bool {
        let pinned_bytes = self.pinned_bytes + pins(self.chunks.back(), &chunk);
        if !sparse && chunk.len() > COPY_LEN_BYTES_MAX && pinned_bytes <= self.pinned_bytes_max() {
            self.len += chunk.len();
            self.tail_is_ours = false;
            self.keep_pinning(chunk, pinned_bytes);
            return true;
        }
        self.push_copied(chunk.bytes(), pool)
    }

    /// Queues a copy of the next bytes.
    #[inline(never)]
    fn push_copied(&mut self, bytes: &[u8], pool: &BlockPool) -> bool {
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

    /// Whether the peer's FIN is here, behind what there is to read.
    pub(crate) fn has_fin(&self) -> bool {
        self.has_fin
    }

    /// The peer's FIN is next: it takes one sequence number.
    pub(crate) fn on_fin(&mut self) {
        self.next += 1;
        self.has_fin = true;
        // What lies beyond a FIN is not data.
        self.ahead = None;
        self.edge = self.edge.later_of(self.next);
    }

    /// Copies the first bytes to `out` without taking them. Says how many.
    pub(crate) fn peek(&self, out: &mut [u8]) -> usize {
        let mut at = 0;
        for chunk in &self.chunks {
            let count = chunk.len().min(out.len() - at);
            out[at..at + count].copy_from_slice(&chunk.bytes()[..count]);
            at += count;
        }
        at
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
        self.ahead = None;
    }

    /// What waits behind gaps, for the SACK option. A FIN behind it is part of it (RFC 2018, 3): a peer that keeps the
    /// segment as one would take all of it for lost, and send it again.
    pub(crate) fn sack_blocks(&self, max: usize) -> SackBlocks {
        let mut blocks = SackBlocks::NONE;
        if let Some(ahead) = &self.ahead {
            for (start, end) in ahead.assembler.sack_blocks(max) {
                let (start, end) = (self.next + start, self.next + end);
                blocks.push(start, end + u32::from(ahead.fin == Some(end)));
            }
        }
        blocks
    }

    fn pinned_bytes_max(&self) -> usize {
        self.capacity().saturating_mul(PINNED_FACTOR_MAX)
    }

    /// Puts a chunk last.
    fn keep(&mut self, chunk: Chunk) {
        let pinned_bytes = self.pinned_bytes + pins(self.chunks.back(), &chunk);
        self.keep_pinning(chunk, pinned_bytes);
    }

    /// Puts a chunk last; `pinned_bytes` are held with it.
    #[inline]
    fn keep_pinning(&mut self, chunk: Chunk, pinned_bytes: usize) {
        self.pinned_bytes = pinned_bytes;
        make_room(&mut self.chunks);
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
            release(&mut self.chunks);
        }
    }
}

/// What may be offered of a buffer, where the pool is low or not and so much is left to all connections.
fn offer_bytes_max(is_low: bool, left_bytes: usize) -> u32 {
    let most_bytes = if is_low { UNREAD_LOW_BYTES_MAX } else { u32::MAX as usize };
    (left_bytes / 2).clamp(UNREAD_LEAST_BYTES, most_bytes) as u32
}

impl Ahead {
    /// How many bytes wait, and how long the blocks are that they lie in.
    fn extent(&self) -> (usize, usize) {
        (self.assembler.len_bytes(), self.pinned_bytes)
    }

    /// A handle on the bytes of `chunk` that may be kept: itself, or a copy where it would pin too
    /// much. Says how much was copied; `None` where there is no block to copy to.
    fn hold(
        &mut self,
        chunk: Chunk,
        sparse: bool,
        pinned_bytes_max: usize,
        pool: &BlockPool,
    ) -> Option<(Chunk, usize)> {
        let pinned_bytes = self.pinned_bytes + pins(self.assembler.last_piece(), &chunk);
        if !sparse && pinned_bytes <= pinned_bytes_max {
            self.pinned_bytes = pinned_bytes;
            return Some((chunk, 0));
        }
        let mut block = pool.allocate_receive(chunk.len()).ok()?;
        let len = chunk.len();
        block.bytes_mut()[..len].copy_from_slice(chunk.bytes());
        self.pinned_bytes += block.capacity();
        Some((Chunk::new(block.freeze(), 0..len), len))
    }

    /// Copies at most about `bytes_max` bytes together out of blocks that hold little else, and counts what is
    /// held then. Says how many.
    #[cold]
    fn copy_out(&mut self, pool: &BlockPool, bytes_max: usize) -> usize {
        let copied = pool.copy_out(self.assembler.pieces_mut(), bytes_max);
        self.pinned_bytes = pinned_bytes(self.assembler.pieces());
        self.counted_bytes = self.pinned_bytes;
        copied
    }

    fn insert(&mut self, offset: u32, chunk: Chunk) -> Arrival {
        match self.assembler.insert(offset, chunk) {
            Insert::Stored { .. } => Arrival::OutOfOrder,
            Insert::Duplicate => Arrival::Duplicate,
            Insert::Full => Arrival::Refused,
        }
    }
}

/// How many bytes of memory these hold on to.
fn pinned_bytes<'a>(chunks: impl Iterator<Item = &'a Chunk>) -> usize {
    let mut before = None;
    chunks.map(|chunk| pins(before.replace(chunk), chunk)).sum()
}

/// How many bytes of memory a chunk holds on to, beside a neighbour that is held as well.
fn pins(neighbour: Option<&Chunk>, chunk: &Chunk) -> usize {
    match neighbour.is_some_and(|neighbour| neighbour.block().is_same(chunk.block())) {
        true => 0,
        false => chunk.block().len(),
    }
}

#[cfg(test)]
mod tests;
