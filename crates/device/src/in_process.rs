//! The in-process wire: two queues joined by two bounded lanes.
//!
//! For two stacks in one process: tests, benches, and programs that talk to themselves. It loses
//! nothing, reorders nothing and has no delay; [`FaultQueue`](crate::FaultQueue) adds what real
//! wires do. It is a device like the others, with the same contract, so whatever runs over it runs
//! over a TAP device.
//!
//! ```text
//!   WireQueue a                                             WireQueue b
//!   transmit --copy--> [ block | block ] -- lane, bounded --> receive
//!   receive  <-------- lane, bounded <-------------- copy --- transmit
//! ```
//!
//! Each frame is copied once: on transmit, out of the sender's headers and payload blocks into
//! blocks of the wire, end to end at multiples of 64 bytes. The receiver gets these blocks and
//! keeps payload in them without another copy, as it does with the buffers of a network card.
//!
//! What crosses is the lowered form of the transmit mode, and what that form leaves to do is done
//! on the far side, so that the modes cost here what they are:
//! * `single`, `multidata`: blocks with many frames and a descriptor for each, hung in together;
//! * `chain`: for each frame a block of its own, hung in by itself, and one wake-up for all;
//! * `contiguous`: one block and how to cut it; the receiver cuts it. Of the payload form only the
//!   payload is copied, to where it will lie, and the receiver writes the headers before it;
//! * `lso`: super-frames, which the receiver takes as they are.
//!
//! What always holds:
//! * a lane never holds more than [`WireConfig::capacity_packets`] packets or
//!   [`WireConfig::capacity_bytes`] bytes, and what was taken arrives, once and in order;
//! * transmit takes every packet that fits and says [`Stop::Full`] at the first that does not;
//!   [`Queue::room`] says beforehand how many will be taken (at least: super-frames have fewer
//!   header bytes);
//! * nobody makes a system call to wake an end that does not sleep, and an end that was told
//!   [`Stop::Full`] is woken when there is room;
//! * memory beyond the lanes is what receivers keep; that is theirs to bound.

mod lane;
mod pipe;
#[cfg(test)]
mod tests;

pub use pipe::{PacketReceiver, PacketSender, packet_pipe};

use crate::lowering::{self, FrameBlock, HEADER_LEN_MAX, SuperFrame};
use crate::{
    Capabilities, DeviceCounters, DeviceError, FragmentSplitting, Medium, Queue, Received, Room,
    Segmentation, Stop, TransmitMode, Transmitted, Waiter,
};
use batch::{
    BlockMut, BlockPool, Checksum, Frame, Multidata, PacketView, PoolConfig, ReceiveBatch,
    ReceivedChecksum, Segmented,
};
use core::ops::Range;
use core::time::Duration;
use lane::{Doorbell, Lane, Opened, QueuedFrame, Staged, Totals};
use std::io::ErrorKind;
use std::sync::Arc;

/// Frames begin at multiples of this, a cache line.
const FRAME_ALIGN_BYTES: usize = 64;

/// Blocks of the wire are not longer than this, so that a receiver which keeps a little of one
/// pins little; it holds the longest frame there is.
const BLOCK_LEN_MAX: usize = 131_072;

/// Link and extension headers around the longest IP packet stay below this.
const LINK_LEN_MAX: usize = 128;

/// One end of a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireEnd {
    /// What lies around its packets; both ends of a wire should agree but for the address.
    pub medium: Medium,
    /// Packets with partial checksums may be sent from here; they arrive as
    /// [`ReceivedChecksum::Partial`], because memory needs no checksum.
    pub checksum_transmit: bool,
    /// Super-frames may be sent from here; they arrive as they are.
    pub segmentation: Option<Segmentation>,
    /// Packets one transmit call takes at most, in every mode but `Single`.
    pub batch_packets_max: usize,
    /// Frames one receive call hands up at most (seed 003's coalescing count); one for the
    /// standard path, frame by frame.
    pub receive_frames_max: usize,
}

impl WireEnd {
    /// An end without any offload.
    #[must_use]
    pub fn plain(medium: Medium) -> Self {
        Self {
            medium,
            checksum_transmit: false,
            segmentation: None,
            batch_packets_max: 64,
            receive_frames_max: usize::MAX,
        }
    }

    /// An end with everything a wire in memory can spare: checksums and splitting.
    #[must_use]
    pub fn offloading(medium: Medium) -> Self {
        let segmentation = Segmentation { tcp_ipv4: true, tcp_ipv6: true, len_bytes_max: 65_535 };
        Self { checksum_transmit: true, segmentation: Some(segmentation), ..Self::plain(medium) }
    }
}

/// A wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireConfig {
    /// Packets on their way in one direction, at least one.
    pub capacity_packets: usize,
    /// Bytes on their way in one direction, link headers included.
    pub capacity_bytes: usize,
    /// Longest IP packet in bytes.
    pub mtu_bytes: usize,
    /// The first end.
    pub a: WireEnd,
    /// The second end.
    pub b: WireEnd,
}

impl WireConfig {
    /// A wire between these ends with an MTU of 1,500 bytes, that holds 1,024 packets and 2 MiB.
    #[must_use]
    pub fn new(a: WireEnd, b: WireEnd) -> Self {
        Self { capacity_packets: 1_024, capacity_bytes: 2 << 20, mtu_bytes: 1_500, a, b }
    }
}

/// Makes a wire and returns its ends, `a` first.
#[must_use]
pub fn wire(config: WireConfig) -> (WireQueue, WireQueue) {
    let bells = [Arc::new(Doorbell::default()), Arc::new(Doorbell::default())];
    let lane = |sender: usize, receiver: usize| {
        Arc::new(Lane::new(bells[sender].clone(), bells[receiver].clone()))
    };
    let (there, back) = (lane(0, 1), lane(1, 0));
    let a = WireQueue::new(&config, config.a, config.b, [&there, &back], bells[0].clone());
    let b = WireQueue::new(&config, config.b, config.a, [&back, &there], bells[1].clone());
    (a, b)
}

/// A frame that the transmit call under way takes.
#[derive(Debug)]
struct PlannedFrame {
    frame: SuperFrame,
    /// Its bytes, header included.
    len: usize,
}

/// One end of an in-process wire.
#[derive(Debug)]
pub struct WireQueue {
    capabilities: Capabilities,
    capacity: Room,
    receive_frames_max: usize,
    mode: TransmitMode,
    outgoing: Arc<Lane>,
    incoming: Arc<Lane>,
    doorbell: Arc<Doorbell>,
    /// Where the blocks of outgoing frames come from and go back to.
    pool: BlockPool,
    /// What this transmit call takes.
    plan: Vec<PlannedFrame>,
    staged: Staged,
    /// The block whose frames are being handed up.
    opened: Opened,
    counters: DeviceCounters,
}

impl WireQueue {
    fn new(
        config: &WireConfig,
        end: WireEnd,
        peer: WireEnd,
        [outgoing, incoming]: [&Arc<Lane>; 2],
        doorbell: Arc<Doorbell>,
    ) -> Self {
        Self {
            capabilities: Capabilities {
                batch_packets_max: end.batch_packets_max.max(1),
                checksum_transmit: end.checksum_transmit,
                checksum_receive: peer.checksum_transmit,
                segmentation: end.segmentation,
                receive_super_frames: peer.segmentation.is_some(),
                batch_bytes_max: config.capacity_bytes,
                fragment_splitting: FragmentSplitting { by_size: true, by_length: true },
                coalesced_frames_max: end.receive_frames_max.max(1),
                ..Capabilities::plain(end.medium, config.mtu_bytes)
            },
            capacity: Room {
                packets: config.capacity_packets.max(1),
                bytes: config.capacity_bytes,
            },
            receive_frames_max: end.receive_frames_max.max(1),
            mode: TransmitMode::default(),
            outgoing: outgoing.clone(),
            incoming: incoming.clone(),
            doorbell,
            pool: lane_pool(config),
            plan: Vec::new(),
            staged: Staged::default(),
            opened: Opened::default(),
            counters: DeviceCounters::default(),
        }
    }

    /// What one call takes at most, whatever room there is.
    fn call_packets_max(&self) -> usize {
        self.mode.batch_packets_max(self.capabilities.batch_packets_max)
    }

    /// Decides what is taken, packet by packet or super-frame by super-frame, and why not more.
    fn make_plan(&mut self, batch: &Multidata, mut room: Room) -> Option<Stop> {
        let mut plan = core::mem::take(&mut self.plan);
        plan.clear();
        let segmentation =
            self.capabilities.segmentation.filter(|_| self.mode == TransmitMode::Lso);
        let stop = lowering::frames(batch, 0, segmentation)
            .try_for_each(|frame| self.plan_frame(batch, frame, &mut room, &mut plan));
        self.plan = plan;
        stop.err()
    }

    /// Takes a frame into the plan, where it fits. The packets of a super-frame are real ones, so
    /// where it does not fit as a whole as many of them are taken as do.
    fn plan_frame(
        &self,
        batch: &Multidata,
        frame: SuperFrame,
        room: &mut Room,
        plan: &mut Vec<PlannedFrame>,
    ) -> Result<(), Stop> {
        let head = batch.packet(frame.packets.start).ok_or(Stop::Refused)?;
        let len = head.header_len() + frame.payload_len;
        let count = frame.packets.len();
        if frame.is_merged() && (len > room.bytes || count > room.packets) {
            return frame
                .packets
                .filter_map(|index| SuperFrame::single(batch, index))
                .try_for_each(|frame| self.plan_frame(batch, frame, room, plan));
        }
        if !self.can_carry(&head, len, frame.is_merged()) {
            return Err(Stop::Refused);
        }
        if len > room.bytes || count > room.packets {
            return Err(Stop::Full);
        }
        room.bytes -= len;
        room.packets -= count;
        plan.push(PlannedFrame { frame, len });
        Ok(())
    }

    /// Whether the wire could ever carry a frame of `len` bytes that begins with `head`.
    fn can_carry(&self, head: &PacketView<'_>, len: usize, merged: bool) -> bool {
        let checksum_ok = self.capabilities.completes(head.attributes().checksum);
        let network_len = len - head.link_header_len();
        let fits = merged || network_len <= self.capabilities.mtu_bytes;
        checksum_ok && fits && network_len > 0 && len <= self.capacity.bytes.min(FRAME_LEN_MAX)
    }

    /// Sends what is planned, in the form of the mode, as far as there is memory, and says how many
    /// packets went.
    fn carry(&mut self, batch: &Multidata) -> usize {
        let packets = self.plan.last().map_or(0, |planned| planned.frame.packets.end);
        let before = self.counters.transmit_packets;
        match self.mode {
            TransmitMode::Chain => {
                for index in 0..self.plan.len() {
                    if self.stage(batch, index..index + 1) == 0 {
                        break;
                    }
                    self.push();
                }
            }
            TransmitMode::Contiguous(contiguous) => {
                for block in lowering::blocks(batch, 0..packets, contiguous, 0) {
                    if self.stage_block(batch, block).is_none() {
                        break;
                    }
                }
                self.push();
            }
            TransmitMode::Single | TransmitMode::Multidata | TransmitMode::Lso => {
                self.stage(batch, 0..self.plan.len());
                self.push();
            }
        }
        self.outgoing.signal();
        (self.counters.transmit_packets - before) as usize
    }

    /// Copies the frames `range` of the plan end to end into blocks, as many as there is memory
    /// for, and says how many.
    fn stage(&mut self, batch: &Multidata, range: Range<usize>) -> usize {
        let plan = self.plan.get(range).unwrap_or(&[]);
        let mut left_bytes: usize = plan.iter().map(|planned| aligned(planned.len)).sum();
        let mut open: Option<(BlockMut, usize, usize)> = None;
        for (index, PlannedFrame { frame, len }) in plan.iter().enumerate() {
            let len = *len;
            let fits = |(block, at, _): &(BlockMut, usize, usize)| at + len <= block.capacity();
            if !open.as_ref().is_some_and(fits) {
                close_block(&mut self.staged, open.take());
                let wanted = aligned(len).max(BLOCK_LEN_MAX.min(left_bytes));
                let Ok(block) = self.pool.allocate(wanted) else { return index };
                open = Some((block, 0, 0));
            }
            let Some((block, at, count)) = &mut open else { return index };
            let out = block.bytes_mut().get_mut(*at..*at + len).unwrap_or_default();
            if copy_frame(batch, frame, out).is_none() {
                close_block(&mut self.staged, open.take());
                return index;
            }
            self.staged.push_frame(queued_frame(batch, frame, *at, len));
            *at += aligned(len);
            *count += 1;
            left_bytes -= aligned(len);
        }
        close_block(&mut self.staged, open);
        plan.len()
    }

    /// Lays out a block that the receiver cuts; `None` where there is no memory.
    fn stage_block(&mut self, batch: &Multidata, layout: FrameBlock) -> Option<()> {
        let mut block = self.pool.allocate(layout.len_bytes).ok()?;
        layout.lay_out(batch, block.bytes_mut())?;
        self.staged.push_uncut(block, layout);
        Some(())
    }

    /// Hangs what is staged into the lane and counts it.
    fn push(&mut self) {
        let Totals { packets, frames, bytes } = self.staged.totals;
        self.counters.transmit_packets += packets as u64;
        self.counters.transmit_frames += frames as u64;
        self.counters.transmit_bytes += bytes as u64;
        self.counters.transmit_mappings += self.staged.blocks() as u64;
        self.outgoing.push(&mut self.staged);
    }
}

/// Where the blocks of a lane come from. The lane bounds what is in it; a second bound here could only break the
/// promise of room.
fn lane_pool(config: &WireConfig) -> BlockPool {
    BlockPool::new(PoolConfig {
        limit_bytes: usize::MAX,
        receive_reserve_bytes: 0,
        cached_limit_bytes: config.capacity_bytes.saturating_mul(2).clamp(1 << 20, 32 << 20),
        ..PoolConfig::default()
    })
}

/// The longest frame, link header included.
const FRAME_LEN_MAX: usize = 65_535 + LINK_LEN_MAX;

fn aligned(len: usize) -> usize {
    len.next_multiple_of(FRAME_ALIGN_BYTES)
}

/// Copies header and payload to `out`, which has the frame's length.
fn copy_frame(batch: &Multidata, frame: &SuperFrame, out: &mut [u8]) -> Option<()> {
    if !frame.is_merged() {
        return batch.packet(frame.packets.start)?.copy_to(out).map(|_| ());
    }
    let mut scratch = [0; HEADER_LEN_MAX];
    let header = frame.header(batch, &mut scratch)?;
    let (head, mut rest) = out.split_at_mut_checked(header.len())?;
    head.copy_from_slice(header);
    for piece in batch.payload_of(frame.packets.clone()) {
        let (here, behind) = rest.split_at_mut_checked(piece.len())?;
        here.copy_from_slice(piece);
        rest = behind;
    }
    rest.is_empty().then_some(())
}

fn queued_frame(batch: &Multidata, frame: &SuperFrame, at: usize, len: usize) -> QueuedFrame {
    let attributes = batch.attributes(frame.packets.start).unwrap_or_default();
    let checksum = match attributes.checksum {
        Checksum::Partial { .. } => ReceivedChecksum::Partial,
        Checksum::Complete | Checksum::Missing { .. } => ReceivedChecksum::Unverified,
    };
    let segmented = frame.is_merged().then_some(Segmented { segment_len: frame.segment_len });
    QueuedFrame {
        frame: Frame { block: 0, offset: at as u32, len: len as u32, checksum, segmented },
        packets: frame.packets.len(),
    }
}

fn close_block(staged: &mut Staged, open: Option<(BlockMut, usize, usize)>) {
    if let Some((block, _, count)) = open.filter(|(_, _, count)| *count > 0) {
        staged.push_block(block.freeze(), count);
    }
}

fn peer_gone() -> DeviceError {
    let message = "the other end of the in-process wire was dropped; make a new wire";
    DeviceError::new(ErrorKind::NetworkDown, message)
}

impl Queue for WireQueue {
    fn capabilities(&self) -> Capabilities {
        self.capabilities.clone()
    }

    fn set_mode(&mut self, mode: TransmitMode) -> Result<(), DeviceError> {
        if !self.capabilities.supports(mode) {
            let message = format!("this end of the in-process wire was made without {mode}");
            return Err(DeviceError::new(ErrorKind::Unsupported, message));
        }
        self.mode = mode;
        Ok(())
    }

    fn room(&self) -> Room {
        let packets = self.capacity.packets.saturating_sub(self.outgoing.packets());
        Room {
            packets: packets.min(self.call_packets_max()),
            bytes: self.capacity.bytes.saturating_sub(self.outgoing.bytes()),
        }
    }

    fn transmit(&mut self, batch: &Multidata) -> Transmitted {
        if batch.is_empty() {
            return Transmitted { taken: 0, stopped: None };
        }
        self.counters.transmit_batches += 1;
        if self.outgoing.is_closed() {
            return Transmitted { taken: 0, stopped: Some(Stop::Failed(peer_gone())) };
        }
        // Read before the room is: whatever leaves the lane from here on is noticed below.
        let packets_before = self.outgoing.packets();
        let room = self.room();
        let mut stopped = self.make_plan(batch, room);
        let planned = self.plan.last().map_or(0, |planned| planned.frame.packets.end);
        let taken = self.carry(batch);
        if taken < planned {
            stopped = Some(Stop::Full);
        }
        if stopped == Some(Stop::Full) {
            self.counters.transmit_full += 1;
            if taken >= self.call_packets_max() {
                // Not for want of room but of another call.
                self.doorbell.ring();
            } else {
                self.outgoing.block_sender(packets_before + taken);
            }
        }
        Transmitted { taken, stopped }
    }

    fn receive(
        &mut self,
        _pool: &BlockPool,
        batch: &mut ReceiveBatch,
        frames_max: usize,
    ) -> Received {
        // Asked for first: what the other end sent before it went is still in the lane.
        let closed = self.incoming.is_closed();
        let frames_max = frames_max.min(self.receive_frames_max);
        let (frames, bytes, more) = self.incoming.pop(&mut self.opened, batch, frames_max);
        if frames > 0 {
            self.counters.receive_batches += 1;
            self.counters.receive_frames += frames as u64;
            self.counters.receive_bytes += bytes as u64;
        }
        let failed = (closed && !more).then(peer_gone);
        if failed.is_some() {
            // Who waits for what is sent here would wait for ever.
            self.outgoing.close();
        }
        Received { frames, more, failed }
    }

    fn waiter(&self) -> Arc<dyn Waiter> {
        let (doorbell, incoming) = (self.doorbell.clone(), self.incoming.clone());
        Arc::new(WireWaiter { doorbell, incoming })
    }

    fn counters(&self) -> DeviceCounters {
        DeviceCounters { wait_syscalls: self.doorbell.sleeps(), ..self.counters }
    }
}

impl Drop for WireQueue {
    fn drop(&mut self) {
        self.outgoing.close();
        self.incoming.close();
    }
}

/// Waits for one end of a wire.
#[derive(Debug)]
struct WireWaiter {
    doorbell: Arc<Doorbell>,
    incoming: Arc<Lane>,
}

impl Waiter for WireWaiter {
    fn wait(&self, timeout: Option<Duration>) {
        self.doorbell.wait(timeout, || self.incoming.packets() > 0);
    }

    fn is_ready(&self) -> Option<bool> {
        Some(self.incoming.packets() > 0)
    }

    fn wake(&self) {
        self.doorbell.ring();
    }

    #[cfg(unix)]
    fn event_source(&self, make: crate::MakeSource<'_>) -> Option<Arc<dyn crate::EventSource>> {
        Some(self.doorbell.called_source(make)?)
    }
}
