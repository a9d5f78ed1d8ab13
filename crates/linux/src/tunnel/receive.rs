//! Receiving: merged datagrams into pool blocks, and frames out of them without a copy.
//!
//! Where the kernel merges (UDP_GRO), a message may have any length up to that of an IP packet, so
//! each slot of a call is a block of its own. Where it does not, a datagram has a length that is
//! known, and each gets a block that it fills:
//!
//! ```text
//!  merged   | block: | opened | opened | opened | ... |   one message, many frames
//!  single   | block: | opened |                           one message, one frame
//! ```
//!
//! Datagrams are opened where they lie, before the block is shared. What the caller has no room for
//! stays here and comes up with the next call.

use super::calls::{self, Arrival, MESSAGES_MAX};
use crate::held::Held;
use batch::{BlockMut, BlockPool, Frame, ReceiveBatch, ReceivedChecksum};
use counters::DropReason;
use device::{DeviceCounters, Received, Transform};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::io::IoSliceMut;
use std::net::SocketAddr;

/// A block for one merged message: the longest datagram over IPv4 fits it.
const MERGED_BLOCK_BYTES: usize = 65_536;

/// Merged messages of one call at most: what they bring should still be in the cache when it is
/// looked at.
const MERGED_MESSAGES_MAX: usize = 4;

/// The least room for a datagram that comes alone: the peer's MTU may be longer than ours.
const SINGLE_BLOCK_BYTES_MIN: usize = 2_048;

/// Tries of a call that only reported what an earlier one had caused (ICMP errors).
const TRIES_MAX: usize = 4;

/// Receives from the socket of a tunnel.
#[derive(Debug)]
pub(super) struct Receiver {
    peer: SocketAddr,
    slot_bytes: usize,
    slots_max: usize,
    /// What is said of the checksums of frames.
    checksum: ReceivedChecksum,
    /// Blocks that the last call had no message for.
    spares: Vec<BlockMut>,
    arrivals: Vec<Arrival>,
    /// Frames that the last caller had no room for.
    held: Held,
    opened: Vec<Frame>,
    /// The pool was exhausted in the last call, so datagrams may wait in the kernel.
    pub(super) is_starved: bool,
}

impl Receiver {
    /// A receiver of merged messages (`coalesces`), or of datagrams of about `datagram_len_max`
    /// bytes, `messages_max` of them a call.
    pub(super) fn new(
        peer: SocketAddr,
        coalesces: bool,
        datagram_len_max: usize,
        messages_max: usize,
        checksum: ReceivedChecksum,
    ) -> Self {
        let (slot_bytes, slots_max) = match coalesces {
            true => (MERGED_BLOCK_BYTES, messages_max.min(MERGED_MESSAGES_MAX)),
            false => (datagram_len_max.max(SINGLE_BLOCK_BYTES_MIN), messages_max.min(MESSAGES_MAX)),
        };
        Self {
            peer,
            slot_bytes,
            slots_max: slots_max.max(1),
            checksum,
            spares: Vec::new(),
            arrivals: Vec::new(),
            held: Held::default(),
            opened: Vec::new(),
            is_starved: false,
        }
    }

    /// Adds at most `frames_max` frames to `batch`. The error number says that the socket failed;
    /// the result is valid all the same.
    pub(super) fn receive(
        &mut self,
        socket: &OwnedFd,
        pool: &BlockPool,
        batch: &mut ReceiveBatch,
        frames_max: usize,
        transform: &mut dyn Transform,
        counters: &mut DeviceCounters,
    ) -> (Received, Option<Errno>) {
        let mut failed = None;
        let mut may_more = false;
        self.is_starved = false;
        let mut frames = self.held.hand_up(batch, frames_max);
        if frames < frames_max {
            let slots = self.slots_max.min(frames_max - frames);
            match self.call(socket, pool, slots, counters) {
                Ok(may) => may_more = may,
                Err(errno) => failed = Some(errno),
            }
            frames += self.take_arrivals(batch, frames_max - frames, transform, counters);
        }
        if frames > 0 {
            counters.receive_batches += 1;
            counters.receive_frames += frames as u64;
        }
        let more = may_more || !self.held.is_empty() || frames == frames_max;
        (Received { frames, more, failed: None }, failed)
    }

    /// One recvmmsg(2) into as many blocks as wanted and to be had. Says whether more may wait.
    fn call(
        &mut self,
        socket: &OwnedFd,
        pool: &BlockPool,
        wanted: usize,
        counters: &mut DeviceCounters,
    ) -> Result<bool, Errno> {
        while self.spares.len() < wanted {
            // Where the pool is exhausted the datagrams wait in the kernel.
            let Ok(block) = pool.allocate_receive(self.slot_bytes) else { break };
            self.spares.push(block);
        }
        let slots = wanted.min(self.spares.len());
        if slots == 0 {
            self.is_starved = true;
            return Ok(false);
        }
        self.arrivals.clear();
        for _ in 0..TRIES_MAX {
            let mut vectors: [IoSliceMut<'_>; MESSAGES_MAX] =
                core::array::from_fn(|_| IoSliceMut::new(&mut []));
            for (vector, block) in vectors.iter_mut().zip(&mut self.spares) {
                *vector = IoSliceMut::new(block.bytes_mut());
            }
            counters.receive_syscalls += 1;
            match calls::receive(socket, &mut vectors[..slots], &mut self.arrivals) {
                Ok(()) => return Ok(self.arrivals.len() == slots),
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                // What became of a message sent before.
                Err(errno) if is_about_the_path(errno) => counters.transmit_unreachable += 1,
                Err(errno) => return Err(errno),
            }
        }
        // Nobody has said that nothing waits, and a loop that watches for the edge would sleep over it.
        Ok(true)
    }

    /// Opens what arrived and hands it up, as far as there is room.
    fn take_arrivals(
        &mut self,
        batch: &mut ReceiveBatch,
        room: usize,
        transform: &mut dyn Transform,
        counters: &mut DeviceCounters,
    ) -> usize {
        let mut frames = 0;
        let arrived = self.arrivals.len();
        let mut blocks = core::mem::take(&mut self.spares);
        for (arrival, mut block) in self.arrivals.drain(..).zip(blocks.drain(..arrived)) {
            self.opened.clear();
            if arrival.source.is_some_and(|source| !is_same_end(source, self.peer)) {
                reject(DropReason::TunnelForeign, counters);
            } else if arrival.is_truncated {
                reject(DropReason::Truncated, counters);
            } else {
                open(&arrival, &mut block, self.checksum, transform, &mut self.opened, counters);
            }
            if self.opened.is_empty() {
                self.spares.push(block);
                continue;
            }
            let opened = self.opened.drain(..);
            frames += self.held.add(batch, &[block.freeze()], opened, room - frames);
        }
        self.spares.append(&mut blocks);
        frames
    }
}

/// Whether an error tells of the way to the peer, or of the peer, and not of the socket: nobody
/// listens there, no way leads there now, or somebody on this host forbids it.
pub(super) fn is_about_the_path(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::CONNREFUSED
            | Errno::CONNRESET
            | Errno::HOSTUNREACH
            | Errno::HOSTDOWN
            | Errno::NETUNREACH
            | Errno::NETDOWN
            | Errno::NONET
            | Errno::PROTO
            | Errno::NOPROTOOPT
            | Errno::ACCESS
            | Errno::PERM
            | Errno::MSGSIZE
    )
}

/// Whether both are the same address and port; flow labels and scopes do not count.
fn is_same_end(one: SocketAddr, other: SocketAddr) -> bool {
    (one.ip(), one.port()) == (other.ip(), other.port())
}

/// Opens the datagrams of a message where they lie.
fn open(
    arrival: &Arrival,
    block: &mut BlockMut,
    checksum: ReceivedChecksum,
    transform: &mut dyn Transform,
    opened: &mut Vec<Frame>,
    counters: &mut DeviceCounters,
) {
    let Some(message) = block.bytes_mut().get_mut(..arrival.len) else { return };
    if message.is_empty() {
        return reject(DropReason::Truncated, counters);
    }
    let is_merged = arrival.segment_len < arrival.len;
    let step = arrival.segment_len.max(1);
    for (index, datagram) in message.chunks_mut(step).enumerate() {
        let start = index * step;
        match transform.open(datagram) {
            Ok(packet) => {
                counters.receive_bytes += packet.len() as u64;
                counters.receive_coalesced += u64::from(is_merged);
                opened.push(Frame {
                    block: 0,
                    offset: (start + packet.start) as u32,
                    len: packet.len() as u32,
                    checksum,
                    segmented: None,
                });
            }
            Err(reason) => reject(reason, counters),
        }
    }
}

/// Counts a datagram that is dropped.
fn reject(reason: DropReason, counters: &mut DeviceCounters) {
    match reason {
        DropReason::TunnelForeign => counters.drop_tunnel_foreign += 1,
        DropReason::TunnelReplayed => counters.drop_tunnel_replayed += 1,
        DropReason::Truncated => counters.drop_tunnel_truncated += 1,
        _ => counters.drop_tunnel_forged += 1,
    }
}

/// The packets of one message, for fuzzers: see [`crate::fuzzed`].
#[cfg(feature = "fuzzed")]
pub(crate) fn opened(
    message: &[u8],
    segment_len: usize,
    transform: &mut dyn Transform,
) -> Vec<Vec<u8>> {
    let pool = BlockPool::new(batch::PoolConfig::default());
    let mut block = pool.allocate_receive(message.len()).expect("an empty pool has room");
    block.bytes_mut()[..message.len()].copy_from_slice(message);
    let arrival = Arrival { len: message.len(), segment_len, is_truncated: false, source: None };
    let (mut frames, mut counters) = (Vec::new(), DeviceCounters::default());
    let checksum = ReceivedChecksum::Unverified;
    open(&arrival, &mut block, checksum, transform, &mut frames, &mut counters);
    let bytes = block.bytes();
    let packet = |frame: &Frame| bytes[frame.offset as usize..][..frame.len as usize].to_vec();
    frames.iter().map(packet).collect()
}
