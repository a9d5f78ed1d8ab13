//! Receiving: as many frames as there are, end to end in few blocks.
//!
//! One read(2) brings one frame, so each must be given room for the longest. What a frame does not
//! use the next one gets: frames begin at multiples of 64 bytes, one behind the other, until the
//! block has no room for a longest frame. Without super-frames the block grows and shrinks with
//! what the last calls brought, so that a lone ACK does not pin 64 KiB; with super-frames a block
//! holds one of the longest, or twice that where frames come many and short.
//!
//! A super-frame of segments goes up as it is. One of datagrams is cut, into a block of its own, and the next
//! frame is read to where it was; what the caller then has no room for waits for the next call.

use crate::datagrams::{ETHERNET_LEN, Uncut};
use crate::pending::Pending;
use crate::vnet::{Meaning, VNET_HEADER_LEN, VnetHeader};
use batch::{BlockMut, BlockPool, ReceiveBatch};
use device::{Capabilities, DeviceCounters, Medium, Received};
use rustix::fd::OwnedFd;
use rustix::io::{Errno, read};

/// Frames begin at multiples of this.
const FRAME_ALIGNMENT: usize = 64;

/// A call ends after this many bytes, so that what it brought is still in the cache when it is
/// looked at.
const CALL_BYTES_MAX: usize = 256 * 1_024;

const BLOCK_BYTES_MIN: usize = 2_048;
const BLOCK_BYTES_MAX: usize = 65_536;
/// A block for one super-frame, and one for many shorter ones.
const SUPER_BLOCK_BYTES: usize = 69_632;
const SUPER_BLOCK_BYTES_LARGE: usize = 131_072;

/// Ethernet header and one VLAN tag in bytes.
const LINK_LEN_MAX: usize = 18;
const IP_LEN_MAX: usize = 65_535;

/// Reads frames from a TUN file and chooses the blocks for them.
#[derive(Debug)]
pub(super) struct Receiver {
    /// Whether a virtio-net header stands in front of every frame.
    vnet: bool,
    super_frames: bool,
    /// The room that every read is given at least, in bytes.
    frame_room: usize,
    /// What the first block of the next call should hold, in bytes.
    block_len: usize,
    /// A block that the last call allocated and had no frame for.
    spare: Option<BlockMut>,
    /// What the calls brought, until it is handed up.
    pending: Pending,
    /// The pool was exhausted in the last call, so frames may wait in the kernel.
    pub(super) is_starved: bool,
}

/// Why a block is not filled any further.
enum End {
    /// The device has no frame, or the pool no block for one.
    Drained,
    /// No room for another longest frame.
    BlockFull,
    /// The caller's bound or that of the call is reached.
    Bounded,
    Failed(Errno),
}

/// What a call may still take.
struct Allowance {
    frames: usize,
    bytes: usize,
}

impl Receiver {
    pub(super) fn new(vnet: bool, capabilities: &Capabilities) -> Self {
        let super_frames = capabilities.receive_super_frames;
        let packet_len = if super_frames { IP_LEN_MAX } else { capabilities.mtu_bytes };
        let link_len = match capabilities.medium {
            Medium::Ethernet(_) => ETHERNET_LEN,
            Medium::Ip => 0,
        };
        let mut receiver = Self {
            vnet,
            super_frames,
            frame_room: 0,
            block_len: 0,
            spare: None,
            pending: Pending::new(link_len),
            is_starved: false,
        };
        receiver.make_room(packet_len);
        receiver
    }

    /// Frames with packets of this length come in from now on. read(2) cuts off what it has no room for, and
    /// does not say so.
    pub(super) fn make_room(&mut self, packet_len: usize) {
        let room = (VNET_HEADER_LEN + LINK_LEN_MAX + packet_len).next_multiple_of(64);
        if room > self.frame_room {
            self.frame_room = room;
            self.adapt(0, 0);
        }
    }

    /// Adds at most `frames_max` frames to `batch`. The error number says that the device failed;
    /// the result is valid all the same.
    pub(super) fn receive(
        &mut self,
        file: &OwnedFd,
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
            let end = self.fill(file, pool, block.bytes_mut(), &mut left, counters);
            let (added, spare) = self.pending.hand_up(block, batch, frames_max - received.frames);
            received.frames += added;
            self.spare = spare;
            match end {
                End::Drained => break,
                End::BlockFull => {
                    // Nothing fits a fresh block only where the pool's classes are smaller than
                    // what was asked for; that must not become an endless loop.
                    if self.spare.is_some() {
                        break;
                    }
                    self.block_len = self.larger_block_len();
                }
                End::Bounded => received.more = true,
                End::Failed(errno) => {
                    failed = Some(errno);
                    break;
                }
            }
        }
        received.more |= self.pending.has_held();
        let used = CALL_BYTES_MAX - left.bytes;
        self.adapt(received.frames, used);
        if received.frames > 0 {
            counters.receive_batches += 1;
            counters.receive_frames += received.frames as u64;
        }
        (received, failed)
    }

    /// Reads frames into `bytes` until there are no more, or no more fit.
    fn fill(
        &mut self,
        file: &OwnedFd,
        pool: &BlockPool,
        bytes: &mut [u8],
        left: &mut Allowance,
        counters: &mut DeviceCounters,
    ) -> End {
        let prefix = if self.vnet { VNET_HEADER_LEN } else { 0 };
        let mut at = 0;
        loop {
            if left.frames == 0 || left.bytes == 0 {
                return End::Bounded;
            }
            let Some(room) = bytes.get_mut(at..).filter(|room| room.len() >= self.frame_room)
            else {
                return End::BlockFull;
            };
            counters.receive_syscalls += 1;
            let len = match read(file, &mut *room) {
                Ok(0) | Err(Errno::AGAIN) => return End::Drained,
                Ok(len) => len,
                Err(Errno::INTR) => continue,
                // What the virtio-net header cannot tell of, as the super-frame of a tunnel that was queued
                // before that was switched off, the kernel consumes with this error.
                Err(Errno::INVAL) => {
                    counters.receive_dropped += 1;
                    left.frames -= 1;
                    continue;
                }
                Err(errno) => return End::Failed(errno),
            };
            let Some(frame_len) = len.checked_sub(prefix).filter(|len| *len > 0) else { continue };
            let meaning = match room.first_chunk::<VNET_HEADER_LEN>() {
                Some(header) if self.vnet => VnetHeader::parse(*header).meaning(frame_len),
                _ => Meaning::NOTHING,
            };
            let (before, frame) = (self.pending.len(), at + prefix..at + len);
            if let Err(reason) = self.pending.accept(pool, bytes, frame, meaning, counters) {
                counters.receive_dropped += 1;
                if reason == Uncut::Exhausted {
                    self.is_starved = true;
                    return End::Drained;
                }
            }
            let step = len.next_multiple_of(FRAME_ALIGNMENT);
            if matches!(meaning, Meaning::Frame { .. }) {
                at += step;
            }
            // What was cut counts for more than the one that came, and what was dropped for one.
            let frames = (self.pending.len() - before).max(1);
            left.frames = left.frames.saturating_sub(frames);
            left.bytes = left.bytes.saturating_sub(step);
        }
    }

    /// A block to be filled: the one left over, where it is large enough.
    fn block(&mut self, pool: &BlockPool) -> Option<BlockMut> {
        match self.spare.take() {
            Some(block) if block.capacity() >= self.block_len => Some(block),
            _ => pool.allocate_receive(self.block_len).ok(),
        }
    }

    fn larger_block_len(&self) -> usize {
        if self.super_frames {
            self.block_len
        } else {
            (self.block_len * 2).min(BLOCK_BYTES_MAX.max(self.frame_room))
        }
    }

    /// Chooses the block for the next call after one that brought `frames` in `used` bytes.
    fn adapt(&mut self, frames: usize, used: usize) {
        if self.super_frames {
            let many_and_short = used > SUPER_BLOCK_BYTES / 4 && used / frames.max(1) < 16_384;
            self.block_len =
                if many_and_short { SUPER_BLOCK_BYTES_LARGE } else { SUPER_BLOCK_BYTES };
            return;
        }
        // Room for as much again, and for the read that finds nothing. It shrinks by half a call.
        let wanted = (used + self.frame_room)
            .next_power_of_two()
            .clamp(BLOCK_BYTES_MIN, BLOCK_BYTES_MAX)
            .max(self.block_len / 2);
        self.block_len = wanted.max(self.frame_room);
    }
}
