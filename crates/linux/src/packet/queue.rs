//! The queue of a packet socket: a batch a system call.
//!
//! A batch is staged first: for each frame the virtio-net header and the packet's headers end to end
//! in one area, in [`TransmitMode::Lso`] those of super-frames. Then one sendmmsg(2) sends all of
//! them, each gathered by the kernel from its front and from where its payload lies. A frame of
//! more than [`PIECES_MAX`] pieces, or one whose checksum nobody below would complete, is laid end
//! to end in the area as a whole. In [`TransmitMode::Contiguous`] the area holds the blocks that
//! [`device::lowering::blocks`] makes, each frame with its virtio-net header directly before it, and each
//! frame is one piece. A chain would be what a batch is here anyway, a message for each packet and one
//! call for all, so there is no mode for it ([`device::Forms`]).
//!
//! The call says how many frames were taken; what comes after them was not sent. An interface that
//! is down or gone takes nothing and says so ([`Queue::trouble`]); the queue is full until it is
//! back. A frame for which there is no room is not sent either, and is offered again, but not for ever
//! ([`super::patience`]).

use super::block_ring::BlockRing;
use super::calls;
use super::link::Link;
use super::patience::Patience;
use super::receive::Receiver;
use crate::system_error;
use crate::vnet::{self, VNET_HEADER_LEN, VnetHeader, super_frame_packets_max};
use crate::waiter::FileWaiter;
use batch::{BlockPool, Checksum, Multidata, ReceiveBatch};
use core::cell::Cell;
use core::ops::Range;
use device::lowering::{
    FRAME_ALIGN_BYTES, FrameBlock, HEADER_LEN_MAX, SuperFrame, blocks, complete_checksum, frames,
};
use device::{
    Capabilities, Contiguous, DeviceCounters, DeviceError, Queue, Received, Room, Stop,
    TransmitMode, Transmitted, Waiter,
};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::io::{ErrorKind, IoSlice};
use std::sync::Arc;
use std::time::Instant;

/// Payload pieces of a frame that are gathered.
const PIECES_MAX: usize = 64;

/// Packets in one call at most, where each goes out by itself: their headers fit the L1 cache.
const BATCH_PACKETS: usize = 64;

/// The transmit and receive pair of a [`PacketDevice`](crate::PacketDevice).
#[derive(Debug)]
pub struct PacketQueue {
    socket: Arc<OwnedFd>,
    waiter: Arc<FileWaiter>,
    link: Link,
    capabilities: Capabilities,
    /// The MTU when it was opened, and the longest one that is followed.
    mtu_bytes_max: usize,
    mode: TransmitMode,
    receiver: Receiver,
    /// Where frames come in instead, where blocks of them were asked for.
    blocks: Option<BlockRing>,
    /// Frames that are about to be sent.
    staged: Vec<Staged>,
    /// Their fronts: virtio-net header and headers, or all of the frame.
    fronts: Vec<u8>,
    /// The interface has another MTU, which was not told yet: the next batch must be built afresh.
    is_revoked: bool,
    /// When the kernel was last asked for changes, apart from waiting.
    asked: Option<Instant>,
    patience: Patience,
    counters: DeviceCounters,
    /// Frames that the kernel had no room for. It forgets the number when it is asked.
    dropped: Cell<u64>,
}

/// A frame that is about to be sent.
#[derive(Clone, Debug)]
struct Staged {
    /// Which packets of the batch it is.
    packets: Range<usize>,
    /// Where its front lies in [`PacketQueue::fronts`].
    front: Range<usize>,
    /// The payload is gathered from the batch; otherwise the front is all of it.
    is_gathered: bool,
    /// The kernel is to split it.
    is_merged: bool,
    /// The kernel is to complete its checksum.
    is_partial: bool,
    /// The bytes of its packets.
    len_bytes: usize,
}

impl PacketQueue {
    pub(super) fn new(
        socket: Arc<OwnedFd>,
        waiter: Arc<FileWaiter>,
        link: Link,
        capabilities: Capabilities,
        blocks: Option<BlockRing>,
    ) -> Self {
        let receiver = Receiver::new(capabilities.mtu_bytes);
        Self {
            socket,
            waiter,
            link,
            mtu_bytes_max: capabilities.mtu_bytes,
            capabilities,
            mode: TransmitMode::Multidata,
            receiver,
            blocks,
            staged: Vec::new(),
            fronts: Vec::new(),
            is_revoked: false,
            asked: None,
            patience: Patience::default(),
            counters: DeviceCounters::default(),
            dropped: Cell::new(0),
        }
    }

    /// Stages the frames of `batch` in order; what cannot be sent ends it.
    fn stage(&mut self, batch: &Multidata) -> Option<Stop> {
        self.staged.clear();
        self.fronts.clear();
        if let TransmitMode::Contiguous(contiguous) = self.mode {
            return self.stage_blocks(batch, contiguous);
        }
        let segmentation =
            self.capabilities.segmentation.filter(|_| self.mode == TransmitMode::Lso);
        let refused =
            frames(batch, 0, segmentation).find(|frame| self.stage_frame(batch, frame).is_none());
        refused.map(|_| Stop::Refused)
    }

    /// Stages the frames of `batch` in contiguous blocks; what cannot be sent ends them.
    fn stage_blocks(&mut self, batch: &Multidata, contiguous: Contiguous) -> Option<Stop> {
        let count = batch.packets().take_while(|packet| self.capabilities.admits(packet)).count();
        let refused = blocks(batch, 0..count, contiguous, VNET_HEADER_LEN)
            .find(|block| self.stage_block(batch, block).is_none());
        (refused.is_some() || count < batch.len()).then_some(Stop::Refused)
    }

    /// Lays out one block and stages its frames; `None` where it is not one of this batch.
    fn stage_block(&mut self, batch: &Multidata, block: &FrameBlock) -> Option<()> {
        let is_completed_below = self.capabilities.checksum_transmit;
        let start = self.fronts.len().next_multiple_of(FRAME_ALIGN_BYTES);
        self.fronts.resize(start + block.len_bytes, 0);
        let area = self.fronts.get_mut(start..)?;
        block.lay_out(batch, area)?;
        block.insert_headers(area)?;
        for (index, frame) in block.packets.clone().zip(block.frames()) {
            let front = frame.range.start.checked_sub(VNET_HEADER_LEN)?..frame.range.end;
            let len_bytes = frame.range.len();
            let (prefix, bytes) =
                area.get_mut(front.clone())?.split_at_mut_checked(VNET_HEADER_LEN)?;
            let vnet = VnetHeader::of_block_frame(bytes, frame.checksum, is_completed_below)?;
            prefix.copy_from_slice(&vnet.emit());
            self.staged.push(Staged {
                packets: index..index + 1,
                front: start + front.start..start + front.end,
                is_gathered: false,
                is_merged: false,
                is_partial: frame.checksum.is_some() && is_completed_below,
                len_bytes,
            });
        }
        Some(())
    }

    /// Stages one frame; `None` where it can never be sent.
    fn stage_frame(&mut self, batch: &Multidata, frame: &SuperFrame) -> Option<()> {
        let first = batch.packet(frame.packets.start)?;
        if !self.capabilities.admits(&first) {
            return None;
        }
        let checksum = first.attributes().checksum;
        let mut scratch = [0; HEADER_LEN_MAX];
        let header = frame.header(batch, &mut scratch)?;
        let payload = batch.payload_of(frame.packets.clone());
        let is_partial = matches!(checksum, Checksum::Partial { .. });
        let is_completed_below = self.capabilities.checksum_transmit;
        let vnet = match is_partial && is_completed_below {
            true => VnetHeader::of_frame(&first, header, frame),
            false => VnetHeader::default(),
        };
        let start = self.fronts.len();
        self.fronts.extend_from_slice(&vnet.emit());
        self.fronts.extend_from_slice(header);
        let completes_here = is_partial && !is_completed_below;
        let is_gathered = !completes_here && payload.clone().count() <= PIECES_MAX;
        if !is_gathered {
            payload.for_each(|piece| self.fronts.extend_from_slice(piece));
        }
        if let (true, Checksum::Partial { offset }) = (completes_here, checksum) {
            let packet = self.fronts.get_mut(start + VNET_HEADER_LEN..)?;
            complete_checksum(packet, first.transport_offset(), offset)?;
        }
        self.staged.push(Staged {
            packets: frame.packets.clone(),
            front: start..self.fronts.len(),
            is_gathered,
            is_merged: frame.is_merged(),
            is_partial: is_partial && is_completed_below,
            len_bytes: frame.packets.len() * header.len() + frame.payload_len,
        });
        Some(())
    }

    /// Sends what is staged.
    fn send(&mut self, batch: &Multidata) -> Sent {
        let mut pieces = Vec::with_capacity(self.staged.len() * 3);
        let mut ends = Vec::with_capacity(self.staged.len());
        for frame in &self.staged {
            pieces.push(IoSlice::new(self.fronts.get(frame.front.clone()).unwrap_or_default()));
            if frame.is_gathered {
                pieces.extend(batch.payload_of(frame.packets.clone()).map(IoSlice::new));
            }
            ends.push(pieces.len());
        }
        self.counters.transmit_mappings += pieces.len() as u64;
        let (socket, counters, patience) = (&self.socket, &mut self.counters, &mut self.patience);
        let send = |first| calls::send_many(socket, &pieces, &ends, first);
        send_all(ends.len(), counters, patience, send)
    }

    /// What it means that frame `index` was refused.
    fn on_send_error(&mut self, errno: Errno, index: usize) -> Stop {
        let (is_merged, is_partial) = self
            .staged
            .get(index)
            .map_or((false, false), |frame| (frame.is_merged, frame.is_partial));
        if self.note_loss(errno) {
            self.counters.transmit_full += 1;
            return Stop::Full;
        }
        match errno {
            Errno::AGAIN => {
                self.waiter.want_room();
                self.counters.transmit_full += 1;
                Stop::Full
            }
            // The interface's queue is full, not the socket: poll(2) would call it writable.
            Errno::NOBUFS | Errno::NOMEM => {
                self.counters.transmit_full += 1;
                Stop::Full
            }
            Errno::MSGSIZE if self.has_other_mtu() => Stop::Revoked,
            Errno::INVAL | Errno::IO | Errno::OPNOTSUPP | Errno::MSGSIZE
                if is_merged || is_partial =>
            {
                let has_changed = vnet::revoke(&mut self.capabilities, &mut self.mode, is_merged);
                self.counters.capabilities_revoked += u64::from(has_changed);
                Stop::Revoked
            }
            Errno::INVAL | Errno::MSGSIZE => Stop::Refused,
            _ => Stop::Failed(self.failure(errno)),
        }
    }

    /// Looks at an interface that may have changed.
    fn on_change(&mut self) {
        self.link.keep_address();
        self.is_revoked |= self.has_other_mtu();
    }

    /// Whether the interface's MTU is another now, as far as that is followed; then capabilities say so.
    fn has_other_mtu(&mut self) -> bool {
        let was_bytes = self.capabilities.mtu_bytes;
        let mtu_bytes = self.link.mtu_bytes().map_or(was_bytes, |it| it.min(self.mtu_bytes_max));
        self.capabilities.mtu_bytes = mtu_bytes;
        self.counters.capabilities_revoked += u64::from(mtu_bytes < was_bytes);
        mtu_bytes != was_bytes
    }

    /// Takes an error that may mean that the interface is lost, and says whether it does.
    fn note_loss(&mut self, errno: Errno) -> bool {
        let was_lost = self.link.is_lost();
        let is_lost = self.link.on_error(errno);
        self.counters.links_lost += u64::from(is_lost && !was_lost);
        if is_lost {
            self.waiter.set_lost(true);
        }
        is_lost
    }

    /// Whether the interface can be used, which it can again once it is back.
    fn is_usable(&mut self) -> bool {
        if !self.link.is_lost() {
            return true;
        }
        if !self.link.is_restored() {
            return false;
        }
        self.waiter.set_lost(false);
        self.counters.links_restored += 1;
        self.on_change();
        true
    }

    /// A sentence about a device that is of no use any more.
    fn failure(&self, errno: Errno) -> DeviceError {
        self.waiter.on_failure();
        system_error::interface_failed(self.link.name(), errno)
    }
}

impl Queue for PacketQueue {
    fn capabilities(&self) -> Capabilities {
        let packets_max = match self.mode {
            TransmitMode::Lso => super_frame_packets_max(self.capabilities.mtu_bytes),
            _ => BATCH_PACKETS,
        };
        let batch_packets_max = self.mode.batch_packets_max(packets_max);
        Capabilities { batch_packets_max, ..self.capabilities.clone() }
    }

    fn set_mode(&mut self, mode: TransmitMode) -> Result<(), DeviceError> {
        if !self.capabilities.supports(mode) {
            let message = format!(
                "{} on the interface {}, so it cannot work in mode {mode}: use mode {}",
                match mode {
                    TransmitMode::Lso => "without offload there are no super-frames",
                    _ => "a packet socket sends a chain as it sends a batch",
                },
                self.link.name(),
                TransmitMode::Multidata
            );
            return Err(DeviceError::new(ErrorKind::Unsupported, message));
        }
        self.mode = mode;
        Ok(())
    }

    fn room(&self) -> Room {
        Room::UNBOUNDED
    }

    fn transmit(&mut self, batch: &Multidata) -> Transmitted {
        if batch.is_empty() {
            return Transmitted { taken: 0, stopped: None };
        }
        self.counters.transmit_batches += 1;
        if !self.is_usable() {
            if let Some(error) = self.link.end() {
                return Transmitted { taken: 0, stopped: Some(Stop::Failed(error.clone())) };
            }
            self.counters.transmit_full += 1;
            return Transmitted { taken: 0, stopped: Some(Stop::Full) };
        }
        // Of a frame that is too long a call tells, of a super-frame whose segments are none does.
        if self.waiter.has_changed(&mut self.asked) {
            self.on_change();
        }
        if core::mem::take(&mut self.is_revoked) {
            return Transmitted { taken: 0, stopped: Some(Stop::Revoked) };
        }
        let mut stopped = self.stage(batch);
        let Sent { frames, lost, refused } = self.send(batch);
        if let Some(errno) = refused {
            stopped = Some(self.on_send_error(errno, frames));
        }
        let (mut taken, mut lost) = (0, lost.into_iter().peekable());
        for (index, frame) in self.staged.get(..frames).unwrap_or_default().iter().enumerate() {
            taken = frame.packets.end;
            if lost.next_if_eq(&index).is_some() {
                self.counters.transmit_lost += frame.packets.len() as u64;
                continue;
            }
            self.counters.transmit_packets += frame.packets.len() as u64;
            self.counters.transmit_bytes += frame.len_bytes as u64;
            self.counters.transmit_frames += 1;
        }
        Transmitted { taken, stopped }
    }

    fn receive(
        &mut self,
        pool: &BlockPool,
        batch: &mut ReceiveBatch,
        frames_max: usize,
    ) -> Received {
        // A lost interface may have left frames behind, so it is asked all the same.
        let _ = self.is_usable();
        if self.waiter.take_changed() {
            self.on_change();
        }
        let (socket, counters) = (&self.socket, &mut self.counters);
        let (mut received, failed) = match &mut self.blocks {
            Some(blocks) => blocks.receive(socket, pool, batch, frames_max, counters),
            None => self.receiver.receive(socket, pool, batch, frames_max, counters),
        };
        let is_starved =
            self.blocks.as_ref().map_or(self.receiver.is_starved, |blocks| blocks.is_starved);
        if let Some(errno) = failed
            && !self.note_loss(errno)
        {
            received.failed = Some(self.failure(errno));
        }
        received.failed = received.failed.or_else(|| self.link.end().cloned());
        self.waiter.on_receive(is_starved, received.failed.is_some());
        received
    }

    fn waiter(&self) -> Arc<dyn Waiter> {
        Arc::clone(&self.waiter) as Arc<dyn Waiter>
    }

    fn counters(&self) -> DeviceCounters {
        self.dropped.set(self.dropped.get() + calls::take_drops(&self.socket).unwrap_or(0));
        DeviceCounters {
            wait_syscalls: self.waiter.syscalls(),
            receive_dropped: self.counters.receive_dropped + self.dropped.get(),
            ..self.counters
        }
    }

    fn trouble(&self) -> Option<DeviceError> {
        self.link.trouble().cloned()
    }
}

/// What became of frames.
#[derive(Debug, PartialEq, Eq)]
struct Sent {
    /// How many were taken, from the front.
    frames: usize,
    /// Those of them that the interface had no room for, which were given up.
    lost: Vec<usize>,
    /// What the first of the others was refused with.
    refused: Option<Errno>,
}

/// Has `send` called with the first of `count` frames that was not taken, which says how many were, until
/// all are, or one is refused that is not given up.
fn send_all(
    count: usize,
    counters: &mut DeviceCounters,
    patience: &mut Patience,
    mut send: impl FnMut(usize) -> Result<usize, Errno>,
) -> Sent {
    let (mut taken, mut doubted, mut lost) = (0, None, Vec::new());
    while taken < count {
        counters.transmit_syscalls += 1;
        // Part of the frames taken: the reason comes with the next call.
        match send(taken) {
            Ok(more) => {
                // It was about a frame that was received, and is lost.
                counters.receive_dropped += u64::from(doubted.take().is_some());
                taken += more;
                patience.on_taken();
            }
            Err(Errno::INTR) => {}
            // A recvmmsg(2) that ended at a frame it cannot tell of leaves the error for whatever call
            // comes next. So it is believed when it is said twice of a frame.
            Err(Errno::INVAL) if doubted != Some(taken) => doubted = Some(taken),
            Err(Errno::NOBUFS | Errno::NOMEM) if patience.gives_up(Instant::now()) => {
                lost.push(taken);
                taken += 1;
            }
            Err(errno) => return Sent { frames: taken, lost, refused: Some(errno) },
        }
    }
    Sent { frames: taken, lost, refused: None }
}

#[cfg(test)]
mod tests;
