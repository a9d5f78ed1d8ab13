//! Receiving in blocks: memory shared with the kernel, which hands over a block of frames when it is full, or
//! when it has waited long enough (TPACKET_V3, `PACKET_RX_RING`).
//!
//! ```text
//!  ring   [ block 0 | block 1 | ... ]        one mapping, taken in order and round
//!  block  [ status, frames, first | frame 0 -> frame 1 -> ... ]
//!  frame  [ next, lengths, mac | .. | virtio-net header | Ethernet frame ]
//! ```
//!
//! A block is the kernel's or ours, as its status says: the kernel writes the status last when it
//! hands a block over, and nothing in the block until it has it back. So what is read of a block of ours
//! stands still. Frames are copied from it into pooled blocks before it goes back: a reader who takes
//! long holds memory of the pool, which is bounded, and never the ring. A run of datagrams is cut by that copy,
//! into a block of its own.

#![allow(unsafe_code)]

use super::calls;
use crate::datagrams::{self, ETHERNET_LEN, Uncut};
use crate::held::Held;
use crate::mapping::Mapping;
use crate::vnet::{Meaning, VNET_HEADER_LEN, VnetHeader};
use batch::{BlockMut, BlockPool, Frame, ReceiveBatch};
use core::sync::atomic::{AtomicU32, Ordering};
use device::{DeviceCounters, Received};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::time::Duration;

/// Length of a block: room for three of the longest super-frames, or a hundred and more full frames.
const BLOCK_LEN: usize = 262_144;

/// Longest a block is held for more frames.
const RETIRE_MAX: Duration = Duration::from_millis(1_000);

/// The status of a block that is ours (TP_STATUS_USER).
const OURS: u32 = 1;
/// And the kernel's (TP_STATUS_KERNEL).
const KERNELS: u32 = 0;

/// Offsets in the head of a block (`struct tpacket_block_desc`).
const STATUS: usize = 8;
const FRAME_COUNT: usize = 12;
const FIRST_FRAME: usize = 16;
const USED_LEN: usize = 20;

/// Offsets in the head of a frame (`struct tpacket3_hdr`).
const NEXT: usize = 0;
const STORED_LEN: usize = 12;
const WIRE_LEN: usize = 16;
const LINK_OFFSET: usize = 24;

/// Frames begin at multiples of this in pooled blocks.
const FRAME_ALIGNMENT: usize = 64;

/// The longest pooled block, but for a frame that needs more.
const POOLED_LEN: usize = 131_072;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct BlockRing {
    mapping: Mapping,
    count: usize,
    /// The block that is looked at next.
    index: usize,
    /// Where the next frame of it begins, and how many are left; none of a block that was not begun.
    begun: Option<(usize, u32)>,
    /// Frames that were copied, each of one of the blocks.
    pending: Vec<Frame>,
    blocks: Vec<BlockMut>,
    /// Datagrams that the last caller had no room for.
    held: Held,
    /// The pool was exhausted in the last call.
    pub(super) is_starved: bool,
}

impl BlockRing {
    /// Has the socket receive in blocks of `len_bytes` together, at least two, each handed over after
    /// `retire` at the latest (a millisecond at least). The socket's virtio-net header must be on.
    ///
    /// # Errors
    /// Where the system refuses.
    pub(super) fn new(socket: &OwnedFd, len_bytes: usize, retire: Duration) -> Result<Self, Errno> {
        let count = (len_bytes / BLOCK_LEN).max(2);
        let retire_ms = retire.min(RETIRE_MAX).as_millis().max(1) as u32;
        // More than anybody has is refused by the kernel.
        let asked = u32::try_from(count).unwrap_or(u32::MAX);
        calls::set_receive_ring(socket, BLOCK_LEN as u32, asked, retire_ms)?;
        let mapping = Mapping::of_file(socket, 0, count * BLOCK_LEN)?;
        let (pending, blocks, held) = (Vec::new(), Vec::new(), Held::default());
        Ok(Self { mapping, count, index: 0, begun: None, pending, blocks, held, is_starved: false })
    }

    /// Adds at most `frames_max` frames to `batch`, which is asked for again where there are more.
    pub(super) fn receive(
        &mut self,
        socket: &OwnedFd,
        pool: &BlockPool,
        batch: &mut ReceiveBatch,
        frames_max: usize,
        counters: &mut DeviceCounters,
    ) -> (Received, Option<Errno>) {
        let frames = self.held.hand_up(batch, frames_max);
        let mut received = Received { frames, ..Received::default() };
        let mut failed = None;
        self.is_starved = false;
        while received.frames < frames_max {
            if !self.is_ours() {
                counters.receive_syscalls += 1;
                // No call brings the frames, so none brings the error of an interface that is lost.
                failed = calls::take_error(socket).err();
                break;
            }
            let left = frames_max - received.frames;
            let Some(added) = self.copy_some(pool, batch, left, counters) else {
                self.is_starved = true;
                break;
            };
            received.frames += added;
        }
        received.more = received.frames >= frames_max || !self.held.is_empty();
        if received.frames > 0 {
            counters.receive_batches += 1;
            counters.receive_frames += received.frames as u64;
        }
        (received, failed)
    }

    /// Copies frames of the block that is ours into one pooled block, runs of datagrams into others, as far
    /// as they fit, and gives the block back behind the last of them. `None` where the pool has no block.
    fn copy_some(
        &mut self,
        pool: &BlockPool,
        batch: &mut ReceiveBatch,
        frames_max: usize,
        counters: &mut DeviceCounters,
    ) -> Option<usize> {
        let mut copies = Copies {
            frames: core::mem::take(&mut self.pending),
            blocks: core::mem::take(&mut self.blocks),
            filled: None,
        };
        let (mut at, mut left) = self.begun.unwrap_or_else(|| {
            let block = self.block();
            (word(block, FIRST_FRAME) as usize, word(block, FRAME_COUNT))
        });
        let mut is_exhausted = false;
        while left > 0 && copies.frames.len() < frames_max {
            let block = self.block();
            if let Some((bytes, meaning)) = frame_at(block, at) {
                // No longer than what is taken of it, if frames are alike: what of a pooled block stays
                // empty would be held for nothing.
                let rest = (word(block, USED_LEN) as usize).saturating_sub(at);
                let wanted = rest.div_ceil(left as usize).saturating_mul(frames_max);
                let len = rest.min(wanted).min(POOLED_LEN);
                match copies.add(bytes, meaning, len, pool, counters) {
                    Added::Yes => {}
                    Added::NotNow => break,
                    Added::Never => counters.receive_dropped += 1,
                    Added::Exhausted => {
                        is_exhausted = true;
                        break;
                    }
                }
            } else {
                counters.receive_dropped += 1;
            }
            at += word(self.block(), at + NEXT) as usize;
            left -= 1;
        }
        // What was looked at is not counted again, whatever comes of the others.
        self.begun = Some((at, left));
        if left == 0 {
            self.give_back();
        }
        let Copies { mut frames, mut blocks, .. } = copies;
        let is_nothing = frames.is_empty();
        let frozen: Vec<_> = blocks.drain(..).map(BlockMut::freeze).collect();
        let added = self.held.add(batch, &frozen, frames.drain(..), frames_max);
        (self.pending, self.blocks) = (frames, blocks);
        (!is_exhausted || !is_nothing).then_some(added)
    }

    /// Whether the next block is ours.
    fn is_ours(&self) -> bool {
        self.status().load(Ordering::Acquire) & OURS != 0
    }

    fn give_back(&mut self) {
        self.status().store(KERNELS, Ordering::Release);
        self.index = (self.index + 1) % self.count;
        self.begun = None;
    }

    fn status(&self) -> &AtomicU32 {
        // SAFETY: block `index` lies in the mapping, its head holds an aligned word there, and both sides
        // only ever load and store it whole.
        unsafe {
            let block = self.mapping.start().as_ptr().add(self.index * BLOCK_LEN);
            AtomicU32::from_ptr(block.add(STATUS).cast())
        }
    }

    /// The block that is looked at; only asked for while it is ours.
    fn block(&self) -> &[u8] {
        // SAFETY: the block lies in the mapping, and while it is ours nobody writes in it but
        // `give_back`, which takes `self` alone.
        unsafe {
            let block = self.mapping.start().as_ptr().add(self.index * BLOCK_LEN);
            core::slice::from_raw_parts(block, BLOCK_LEN)
        }
    }
}

/// Frames on their way from a block of the ring to pooled ones.
struct Copies {
    /// Each of one of the blocks.
    frames: Vec<Frame>,
    blocks: Vec<BlockMut>,
    /// The block that frames are copied into, and how much of it is filled.
    filled: Option<(usize, usize)>,
}

/// What became of a frame.
enum Added {
    Yes,
    /// The block that is filled has no room for it.
    NotNow,
    /// It is not what it says it is.
    Never,
    /// The pool has no block.
    Exhausted,
}

impl Copies {
    /// Copies a frame, to a fresh block of `len` bytes or more if there is none yet.
    fn add(
        &mut self,
        bytes: &[u8],
        meaning: Meaning,
        len: usize,
        pool: &BlockPool,
        counters: &mut DeviceCounters,
    ) -> Added {
        let (checksum, segmented) = match meaning {
            Meaning::Frame { checksum, segmented } => (checksum, segmented),
            Meaning::Datagrams { payload_len } => {
                let (place, frames) = ((ETHERNET_LEN, self.blocks.len()), &mut self.frames);
                match datagrams::cut(bytes, payload_len, pool, place, frames, counters) {
                    Ok(block) => self.blocks.push(block),
                    Err(Uncut::Malformed) => return Added::Never,
                    Err(Uncut::Exhausted) => return Added::Exhausted,
                }
                return Added::Yes;
            }
        };
        if self.filled.is_none() {
            let Ok(fresh) = pool.allocate_receive(len.max(bytes.len())) else {
                return Added::Exhausted;
            };
            self.filled = Some((self.blocks.len(), 0));
            self.blocks.push(fresh);
        }
        let Some((index, used)) = self.filled else { return Added::NotNow };
        let room = self.blocks.get_mut(index).map(BlockMut::bytes_mut).unwrap_or_default();
        let Some(room) = room.get_mut(used..used + bytes.len()) else { return Added::NotNow };
        room.copy_from_slice(bytes);
        let (block, offset, len) = (index as u32, used as u32, bytes.len() as u32);
        self.frames.push(Frame { block, offset, len, checksum, segmented });
        counters.receive_bytes += u64::from(len);
        self.filled = Some((index, used + bytes.len().next_multiple_of(FRAME_ALIGNMENT)));
        Added::Yes
    }
}

/// A word of the kernel's, zero where there is none.
fn word(block: &[u8], at: usize) -> u32 {
    let bytes = block.get(at..).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| u32::from_ne_bytes(*bytes))
}

/// The bytes of the frame whose head is at `at`, and what its virtio-net header says; `None` of one that was
/// cut short, and of a super-frame of packets in a tunnel.
fn frame_at(block: &[u8], at: usize) -> Option<(&[u8], Meaning)> {
    let len = word(block, at + STORED_LEN) as usize;
    let is_whole = len > 0 && word(block, at + WIRE_LEN) as usize == len;
    let offset = block.get(at + LINK_OFFSET..)?.first_chunk().copied().map(u16::from_ne_bytes)?;
    let start = at.checked_add(offset.into())?;
    let bytes = block.get(start..start + len).filter(|_| is_whole)?;
    let header = block.get(start.checked_sub(VNET_HEADER_LEN)?..start)?.first_chunk()?;
    Some((bytes, VnetHeader::parse(*header).meaning_of_frame(bytes, len)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use batch::PoolConfig;
    use std::os::unix::net::UnixDatagram;

    /// The length of what stands in front of the first frame of a block, and of a frame's virtio-net header.
    const FRONT_LEN: usize = 72;

    /// A ring of which the kernel has handed over the first block, with frames of these bytes and lengths. One of
    /// them was cut short.
    fn ring(frames: &[(u8, usize)], cut: Option<usize>) -> BlockRing {
        let mapping = Mapping::anonymous(2 * BLOCK_LEN).expect("memory");
        // SAFETY: the block lies in the mapping, which nobody else has.
        let block = unsafe { core::slice::from_raw_parts_mut(mapping.start().as_ptr(), BLOCK_LEN) };
        let put = |block: &mut [u8], at: usize, word: usize| {
            block[at..at + 4].copy_from_slice(&(word as u32).to_ne_bytes());
        };
        let mut at = FRONT_LEN;
        put(block, FIRST_FRAME, at);
        for (index, (byte, len)) in frames.iter().enumerate() {
            let start = FRONT_LEN + VNET_HEADER_LEN;
            let next = (start + len).next_multiple_of(8);
            put(block, at + NEXT, next);
            put(block, at + STORED_LEN, *len);
            put(block, at + WIRE_LEN, len + usize::from(cut == Some(index)));
            block[at + LINK_OFFSET..][..2].copy_from_slice(&(start as u16).to_ne_bytes());
            block[at + start..][..*len].fill(*byte);
            at += next;
        }
        put(block, USED_LEN, at);
        put(block, FRAME_COUNT, frames.len());
        put(block, STATUS, OURS as usize);
        let (pending, blocks, held) = (Vec::new(), Vec::new(), Held::default());
        let (count, index, begun, is_starved) = (2, 0, None, false);
        BlockRing { mapping, count, index, begun, pending, blocks, held, is_starved }
    }

    /// The frames that come up, so many at a time at most, until the ring says that there are no more.
    fn all(ring: &mut BlockRing, pool: &BlockPool, frames_max: usize) -> Vec<(u8, usize)> {
        let (socket, mut counters) = (socket(), DeviceCounters::default());
        let mut came = Vec::new();
        loop {
            let mut batch = ReceiveBatch::new();
            let (received, failed) =
                ring.receive(&socket, pool, &mut batch, frames_max, &mut counters);
            assert_eq!((received.frames, failed), (batch.len(), None));
            for bytes in (0..batch.len()).map(|index| batch.bytes(index)) {
                assert!(bytes.iter().all(|byte| *byte == bytes[0]), "bytes of another frame");
                came.push((bytes[0], bytes.len()));
            }
            if !received.more {
                return came;
            }
        }
    }

    fn socket() -> OwnedFd {
        UnixDatagram::unbound().expect("a socket").into()
    }

    /// More of them than fit one pooled block.
    #[test]
    fn frames_of_a_block_come_up_once_in_order_however_few_are_wanted() {
        let frames = [(1, 60), (2, 60_000), (3, 60_000), (4, 61), (5, 60_000), (6, 1_514)];
        for frames_max in [1, 2, 5, 6, 100] {
            let mut ring = ring(&frames, None);
            let pool = BlockPool::new(PoolConfig::default());
            assert_eq!(all(&mut ring, &pool, frames_max), frames, "{frames_max} at a time");
            assert_eq!((ring.index, word(ring.block(), STATUS)), (1, KERNELS));
            ring.index = 0;
            assert_eq!(word(ring.block(), STATUS), KERNELS, "the kernel has it back");
        }
    }

    #[test]
    fn what_was_looked_at_before_the_pool_was_exhausted_is_not_counted_again() {
        let mut ring = ring(&[(1, 60), (2, 70)], Some(0));
        let none = BlockPool::new(PoolConfig { limit_bytes: 0, ..PoolConfig::default() });
        let (mut batch, mut counters) = (ReceiveBatch::new(), DeviceCounters::default());
        for _ in 0..3 {
            let (received, _) = ring.receive(&socket(), &none, &mut batch, 9, &mut counters);
            assert_eq!((received.frames, received.more, ring.is_starved), (0, false, true));
            assert_eq!(counters.receive_dropped, 1);
        }
        assert_eq!(all(&mut ring, &BlockPool::new(PoolConfig::default()), 9), [(2, 70)]);
    }

    /// `struct tpacket3_hdr` (linux/if_packet.h): tp_mac is a half word, and so is tp_net behind it.
    #[test]
    fn a_frame_lies_where_its_head_says() {
        let mut block = vec![0; 400];
        let at = 48;
        for offset in [STORED_LEN, WIRE_LEN] {
            block[at + offset..][..4].copy_from_slice(&60_u32.to_ne_bytes());
        }
        block[at + LINK_OFFSET..][..2].copy_from_slice(&82_u16.to_ne_bytes());
        block[at + LINK_OFFSET + 2..][..2].copy_from_slice(&96_u16.to_ne_bytes());
        block[at + 82..][..60].fill(7);
        let (bytes, meaning) = frame_at(&block, at).expect("it is whole");
        assert_eq!((bytes, meaning), (&[7; 60][..], Meaning::NOTHING));
        block[at + WIRE_LEN] = 61;
        assert_eq!(frame_at(&block, at), None, "the kernel cut it short");
        assert_eq!(frame_at(&block, 390), None, "no head");
    }
}
