//! Receiving: many frames in one recvmmsg(2), in few blocks.
//!
//! Nobody says beforehand whether super-frames will come: it depends on what the peers' interfaces
//! and this one merge. Two shapes of the room that a call is given serve both:
//!
//! * *narrow*: a slot of the MTU's length for each of many frames, side by side in a block. A frame
//!   that is longer goes on in a spill area, is put together by a copy, and makes the next calls
//!   wide.
//! * *wide*: room for the longest super-frame, one frame a call; the next one begins where it ended.
//!
//! After [`NARROW_AFTER`] frames in a row that a slot could have held, calls are narrow again.
//!
//! A super-frame of segments goes up as it is. One of datagrams is cut first, into a block of its own; what
//! the caller then has no room for waits for the next call. One of packets in a tunnel is lost: what the header
//! says of it is true of them and not of the frame ([`VnetHeader::meaning_of_frame`]).

use super::calls::{self, Arrival};
use crate::datagrams::{ETHERNET_LEN, Uncut};
use crate::pending::Pending;
use crate::vnet::{Meaning, VNET_HEADER_LEN, VnetHeader};
use batch::{BlockMut, BlockPool, ReceiveBatch};
use device::{DeviceCounters, Received};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::io::IoSliceMut;

/// Frames begin at multiples of this.
const FRAME_ALIGNMENT: usize = 64;

/// A call ends after this many bytes, so that what it brought is still in the cache when it is
/// looked at.
const CALL_BYTES_MAX: usize = 256 * 1_024;

/// Slots of a narrow call: few where few frames come, as ACKs do.
const SLOTS_MIN: usize = 4;
const SLOTS_MAX: usize = 32;

/// The longest block of a narrow call, and the block of wide ones.
const NARROW_BLOCK_BYTES_MAX: usize = 131_072;
const WIDE_BLOCK_BYTES: usize = 69_632;
const WIDE_BLOCK_BYTES_LARGE: usize = 131_072;

/// Frames in a row that fit a slot, until calls are narrow again.
const NARROW_AFTER: usize = 64;

/// Ethernet header and one VLAN tag in bytes.
const LINK_LEN_MAX: usize = 18;
const IP_LEN_MAX: usize = 65_535;

/// The room of a wide call: the longest super-frame.
const WIDE_ROOM: usize =
    (VNET_HEADER_LEN + LINK_LEN_MAX + IP_LEN_MAX).next_multiple_of(FRAME_ALIGNMENT);

/// Receives frames from a packet socket and chooses the blocks for them.
#[derive(Debug)]
pub(super) struct Receiver {
    /// The room of a narrow call for one frame, in bytes.
    slot: usize,
    is_wide: bool,
    /// Slots of the next narrow call.
    slots: usize,
    /// What the next wide block should hold, in bytes.
    wide_block: usize,
    /// Frames in a row that fit a slot.
    short_frames: usize,
    /// Where long frames go on in a narrow call: [`WIDE_ROOM`] for each slot. The pages are only
    /// touched when that happens.
    spill: Vec<u8>,
    /// A block that the last call allocated and had no frame for.
    spare: Option<BlockMut>,
    arrivals: Vec<Arrival>,
    /// What the calls brought, until it is handed up.
    pending: Pending,
    /// The pool was exhausted in the last call, so frames may wait in the kernel.
    pub(super) is_starved: bool,
}

/// Why a block is not filled any further.
enum End {
    /// No frame waits.
    Drained,
    /// No room for another frame.
    BlockFull,
    /// The caller's bound or that of the call is reached.
    Bounded,
    /// A long frame came: the next call is wide.
    Widened,
    Failed(Errno),
}

/// What a call may still take.
struct Allowance {
    frames: usize,
    bytes: usize,
}

impl Receiver {
    pub(super) fn new(mtu_bytes: usize) -> Self {
        let slot = (VNET_HEADER_LEN + LINK_LEN_MAX + mtu_bytes).next_multiple_of(FRAME_ALIGNMENT);
        Self {
            slot: slot.min(WIDE_ROOM),
            is_wide: false,
            slots: SLOTS_MIN,
            wide_block: WIDE_BLOCK_BYTES,
            short_frames: 0,
            spill: Vec::new(),
            spare: None,
            arrivals: Vec::new(),
            pending: Pending::new(ETHERNET_LEN),
            is_starved: false,
        }
    }

    /// Adds at most `frames_max` frames to `batch`. The error number says that a call failed; the
    /// result is valid all the same.
    pub(super) fn receive(
        &mut self,
        socket: &OwnedFd,
        pool: &BlockPool,
        batch: &mut ReceiveBatch,
        frames_max: usize,
        counters: &mut DeviceCounters,
    ) -> (Received, Option<Errno>) {
        let frames = self.pending.hand_up_held(batch, frames_max);
        let mut received = Received { frames, ..Received::default() };
        let mut left = Allowance { frames: frames_max - frames, bytes: CALL_BYTES_MAX };
        let mut failed = None;
        self.is_starved = false;
        loop {
            if left.frames == 0 || left.bytes == 0 {
                received.more = true;
                break;
            }
            // Where the pool is exhausted the frames wait in the kernel.
            let Some(mut block) = self.block(pool) else {
                self.is_starved = true;
                break;
            };
            let is_large_enough = block.capacity() >= self.room();
            let end = self.fill(socket, pool, block.bytes_mut(), &mut left, counters);
            let (added, spare) = self.pending.hand_up(block, batch, frames_max - received.frames);
            received.frames += added;
            self.spare = spare;
            match end {
                End::Drained => break,
                // The pool's classes are smaller than a frame; that must not be an endless loop.
                End::BlockFull if !is_large_enough => break,
                End::BlockFull | End::Widened => {}
                End::Bounded => received.more = true,
                End::Failed(errno) => {
                    failed = Some(errno);
                    break;
                }
            }
        }
        received.more |= self.pending.has_held();
        self.adapt(received.frames, CALL_BYTES_MAX - left.bytes);
        if received.frames > 0 {
            counters.receive_batches += 1;
            counters.receive_frames += received.frames as u64;
        }
        (received, failed)
    }

    /// Receives frames into `bytes` until there are no more, or no more fit.
    fn fill(
        &mut self,
        socket: &OwnedFd,
        pool: &BlockPool,
        bytes: &mut [u8],
        left: &mut Allowance,
        counters: &mut DeviceCounters,
    ) -> End {
        let mut at = 0;
        loop {
            if left.frames == 0 || left.bytes == 0 {
                return End::Bounded;
            }
            let room = bytes.get_mut(at..).unwrap_or_default();
            let wanted = if self.is_wide { 1 } else { self.slots.min(left.frames) };
            let count = wanted.min(room.len() / self.room());
            if count == 0 {
                return End::BlockFull;
            }
            counters.receive_syscalls += 1;
            match self.call(socket, room, count) {
                Ok(()) => {}
                Err(Errno::AGAIN) => return End::Drained,
                Err(Errno::INTR) => continue,
                // What the virtio-net header cannot tell of (super-frames of SCTP, and of UDP before
                // Linux 6.2) the kernel consumes with this error.
                Err(Errno::INVAL) => {
                    counters.receive_dropped += 1;
                    left.frames -= 1;
                    continue;
                }
                Err(errno) => return End::Failed(errno),
            }
            let was_wide = self.is_wide;
            let used = self.take(pool, bytes, at, left, counters);
            at += used;
            left.bytes = left.bytes.saturating_sub(used);
            if !was_wide && self.arrivals.len() < count {
                return End::Drained;
            }
            if was_wide != self.is_wide {
                return End::Widened;
            }
        }
    }

    /// One system call for `count` frames.
    fn call(&mut self, socket: &OwnedFd, room: &mut [u8], count: usize) -> Result<(), Errno> {
        if self.is_wide {
            let mut rooms = [IoSliceMut::new(room)];
            return calls::receive_many(socket, &mut rooms, 1, &mut self.arrivals);
        }
        if self.spill.len() < count * WIDE_ROOM {
            // Fresh memory of zeros costs nothing before it is touched; growing would copy.
            self.spill = vec![0; SLOTS_MAX * WIDE_ROOM];
        }
        let slots = room.chunks_exact_mut(self.slot).zip(self.spill.chunks_exact_mut(WIDE_ROOM));
        let mut rooms = Vec::with_capacity(2 * count);
        for (slot, spill) in slots.take(count) {
            rooms.extend([IoSliceMut::new(slot), IoSliceMut::new(spill)]);
        }
        calls::receive_many(socket, &mut rooms, 2, &mut self.arrivals)
    }

    /// Takes what a call brought to `bytes` from `at` on, and returns how many of them are used.
    fn take(
        &mut self,
        pool: &BlockPool,
        bytes: &[u8],
        at: usize,
        left: &mut Allowance,
        counters: &mut DeviceCounters,
    ) -> usize {
        let was_wide = self.is_wide;
        let mut used = 0;
        for index in 0..self.arrivals.len() {
            let Arrival { len, is_cut } = self.arrivals[index];
            let start = at + used;
            used += if was_wide { len.next_multiple_of(FRAME_ALIGNMENT) } else { self.slot };
            left.frames = left.frames.saturating_sub(1);
            let is_long = len > self.slot;
            self.short_frames = if is_long { 0 } else { self.short_frames + 1 };
            self.is_wide = is_long || (self.is_wide && self.short_frames < NARROW_AFTER);
            let header = bytes.get(start..).and_then(<[u8]>::first_chunk::<VNET_HEADER_LEN>);
            let (Some(header), Some(frame_len), false) =
                (header, len.checked_sub(VNET_HEADER_LEN).filter(|len| *len > 0), is_cut)
            else {
                counters.receive_dropped += 1;
                continue;
            };
            // Headers lie in the slot also where the frame goes on behind it.
            let front = bytes.get(start + VNET_HEADER_LEN..start + len.min(self.slot));
            let meaning =
                VnetHeader::parse(*header).meaning_of_frame(front.unwrap_or_default(), frame_len);
            let Some(meaning) = meaning else {
                counters.receive_dropped += 1;
                continue;
            };
            let before = self.pending.len();
            let taken = if was_wide || !is_long {
                let frame = start + VNET_HEADER_LEN..start + len;
                self.pending.accept(pool, bytes, frame, meaning, counters)
            } else {
                self.accept_spilled(pool, (bytes, start), index, meaning, counters)
            };
            if let Err(reason) = taken {
                self.is_starved |= reason == Uncut::Exhausted;
                counters.receive_dropped += 1;
            }
            // What was cut counts for more than the one that came.
            let more = (self.pending.len() - before).saturating_sub(1);
            left.frames = left.frames.saturating_sub(more);
        }
        used
    }

    /// Takes a long frame of a narrow call, that of arrival `index`, whose slot begins at `start`.
    fn accept_spilled(
        &mut self,
        pool: &BlockPool,
        (bytes, start): (&[u8], usize),
        index: usize,
        meaning: Meaning,
        counters: &mut DeviceCounters,
    ) -> Result<(), Uncut> {
        let (whole, len) = self.put_together(pool, bytes, start, index).ok_or(Uncut::Exhausted)?;
        self.pending.accept_whole(pool, whole, len, meaning, counters)
    }

    /// A long frame of a narrow call in a block of its own, and its length: what the slot at `start` has of
    /// it, and what went on in the spill area.
    fn put_together(
        &self,
        pool: &BlockPool,
        bytes: &[u8],
        start: usize,
        index: usize,
    ) -> Option<(BlockMut, usize)> {
        let in_slot = bytes.get(start + VNET_HEADER_LEN..start + self.slot)?;
        let spilled = self.arrivals.get(index)?.len.checked_sub(self.slot)?;
        let rest = self.spill.get(index * WIDE_ROOM..)?.get(..spilled)?;
        let mut block = pool.allocate_receive(in_slot.len() + rest.len()).ok()?;
        let (front, back) = block.bytes_mut().split_at_mut_checked(in_slot.len())?;
        front.copy_from_slice(in_slot);
        back.get_mut(..rest.len())?.copy_from_slice(rest);
        Some((block, in_slot.len() + rest.len()))
    }

    /// The room that one frame is given, in bytes.
    fn room(&self) -> usize {
        if self.is_wide { WIDE_ROOM } else { self.slot }
    }

    /// A block to be filled: the one left over, where it is large enough.
    fn block(&mut self, pool: &BlockPool) -> Option<BlockMut> {
        let narrow = (self.slots * self.slot).min(NARROW_BLOCK_BYTES_MAX.max(self.slot));
        let len = if self.is_wide { self.wide_block } else { narrow };
        match self.spare.take() {
            Some(block) if block.capacity() >= len => Some(block),
            _ => pool.allocate_receive(len).ok(),
        }
    }

    /// Chooses the room of the next call after one that brought `frames` in `used` bytes.
    fn adapt(&mut self, frames: usize, used: usize) {
        let many_and_short = used > WIDE_BLOCK_BYTES / 4 && used / frames.max(1) < 16_384;
        self.wide_block = if many_and_short { WIDE_BLOCK_BYTES_LARGE } else { WIDE_BLOCK_BYTES };
        // Room for as much again. It shrinks by half a call.
        self.slots = (2 * frames).max(self.slots / 2).clamp(SLOTS_MIN, SLOTS_MAX);
    }
}
