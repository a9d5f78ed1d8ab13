//! The queue of a TAP or TUN interface: one system call a frame.
//!
//! A frame goes out as `virtio-net header, headers, payload pieces`. A long one is gathered by the
//! kernel from where its pieces lie; a short one ([`LAID_OUT_BYTES_MAX`]), one of more pieces than
//! [`PIECES_MAX`], or one whose checksum nobody below would complete is laid end to end here. In
//! [`TransmitMode::Lso`] runs are lowered to super-frames first.
//!
//! The driver splits nothing but super-frames, so the other modes bring no fewer system calls here,
//! one a frame: [`TransmitMode::Chain`] gathers every frame, also a short one, with a writev(2) of
//! its own, and [`TransmitMode::Contiguous`] copies frames into one block and then writes each of
//! them from there, its headers replicated before that in the payload form.
//!
//! Offloads can fail when they are used, although the driver accepted them: the first refused
//! frame takes the capability back, and the caller builds the rest without it.

use super::receive::Receiver;
use crate::interface::Interface;
use crate::system_error::said;
use crate::vnet::{VNET_HEADER_LEN, VnetHeader};
use crate::waiter::FileWaiter;
use batch::{BlockPool, Checksum, Multidata, PacketView, ReceiveBatch};
use core::ops::Range;
use device::lowering::{
    FrameBlock, HEADER_LEN_MAX, PartialChecksum, SuperFrame, blocks, complete_checksum, frames,
};
use device::{
    Capabilities, Contiguous, DeviceCounters, DeviceError, Queue, Received, Room, Stop,
    TransmitMode, Transmitted, Waiter,
};
use rustix::fd::OwnedFd;
use rustix::io::{Errno, write, writev};
use std::io::IoSlice;
use std::sync::Arc;

/// Pieces of the usual frame: virtio-net header, headers, and payload in two or three blocks. Setting up the larger list costs as much as a third of the system call without its work.
const PIECES_FEW: usize = 6;

/// Frames up to this length are laid end to end and written with write(2): a copy of bytes that
/// the checksum has just brought into the cache is cheaper than the kernel's work on a list.
const LAID_OUT_BYTES_MAX: usize = 2_048;

/// Pieces of a frame that are gathered; more are laid end to end first. Two are headers.
const PIECES_MAX: usize = 66;

/// Packets in one call at most, where each goes out by itself: their headers fit the L1 cache.
const BATCH_PACKETS: usize = 64;

/// Super-frames in one call, when packets have the length of the MTU.
const BATCH_SUPER_FRAMES: usize = 4;

/// The transmit and receive pair of a [`TapDevice`](crate::TapDevice).
#[derive(Debug)]
pub struct TapQueue {
    file: Arc<OwnedFd>,
    waiter: Arc<FileWaiter>,
    /// To ask whether the interface is up; absent only in tests.
    interface: Option<Interface>,
    /// Whether a virtio-net header stands in front of every frame.
    vnet: bool,
    capabilities: Capabilities,
    mode: TransmitMode,
    receiver: Receiver,
    /// Where frames are laid end to end that are not gathered. Empty until the first of them.
    contiguous: Vec<u8>,
    counters: DeviceCounters,
}

impl TapQueue {
    pub(super) fn new(
        file: Arc<OwnedFd>,
        waiter: Arc<FileWaiter>,
        interface: Option<Interface>,
        vnet: bool,
        capabilities: Capabilities,
    ) -> Self {
        let super_frames = capabilities.receive_super_frames;
        let receiver = Receiver::new(vnet, super_frames, capabilities.mtu_bytes);
        Self {
            file,
            waiter,
            interface,
            vnet,
            capabilities,
            mode: TransmitMode::Multidata,
            receiver,
            contiguous: Vec::new(),
            counters: DeviceCounters::default(),
        }
    }

    /// Sends one frame.
    fn send(&mut self, batch: &Multidata, frame: &SuperFrame) -> Result<(), Stop> {
        let first = batch.packet(frame.packets.start).ok_or(Stop::Refused)?;
        let checksum = first.attributes().checksum;
        if !self.can_send(&first) {
            return Err(Stop::Refused);
        }
        let mut scratch = [0; HEADER_LEN_MAX];
        let header = frame.header(batch, &mut scratch).ok_or(Stop::Refused)?;
        let vnet = VnetHeader::of_frame(&first, header, frame).emit();
        let payload = batch.payload_of(frame.packets.clone());

        let completed_below = checksum == Checksum::Complete || self.capabilities.checksum_transmit;
        let is_short = header.len() + frame.payload_len <= LAID_OUT_BYTES_MAX
            && self.mode != TransmitMode::Chain;
        let written = if completed_below && !is_short {
            let prefix: &[u8] = if self.vnet { &vnet } else { &[] };
            let mut few = [IoSlice::new(&[]); PIECES_FEW];
            if let Some(count) = gather(&mut few, prefix, header, payload.clone()) {
                write_frame(&self.file, &few[..count], &mut self.counters)
            } else {
                self.send_many_pieces(prefix, header, payload)
            }
        } else {
            let vnet = if completed_below { vnet } else { [0; VNET_HEADER_LEN] };
            let prefix: &[u8] = if self.vnet { &vnet } else { &[] };
            lay_out(&mut self.contiguous, prefix, header, payload);
            if !completed_below {
                complete(&mut self.contiguous, prefix.len(), &first).ok_or(Stop::Refused)?;
            }
            let whole = [IoSlice::new(&self.contiguous)];
            write_frame(&self.file, &whole, &mut self.counters)
        };
        match written {
            Ok(()) => {
                let packets = frame.packets.len();
                self.count_frame(packets, packets * header.len() + frame.payload_len);
                Ok(())
            }
            Err(errno) => {
                let partial = checksum != Checksum::Complete && completed_below;
                Err(self.on_write_error(errno, frame.is_merged(), partial))
            }
        }
    }

    /// Whether a frame that begins with this packet could ever be sent.
    fn can_send(&self, first: &PacketView<'_>) -> bool {
        first.len() - first.link_header_len() <= self.capabilities.mtu_bytes
            && !matches!(first.attributes().checksum, Checksum::Missing { .. })
    }

    fn count_frame(&mut self, packets: usize, bytes: usize) {
        self.counters.transmit_packets += packets as u64;
        self.counters.transmit_bytes += bytes as u64;
        self.counters.transmit_frames += 1;
    }

    /// Sends the batch in contiguous blocks, and each of their frames by itself.
    fn transmit_blocks(&mut self, batch: &Multidata, contiguous: Contiguous) -> Transmitted {
        let sendable = batch.packets().take_while(|packet| self.can_send(packet)).count();
        let prefix_len = if self.vnet { VNET_HEADER_LEN } else { 0 };
        let mut taken = 0;
        for block in blocks(batch, 0..sendable, contiguous, prefix_len) {
            if let Err(stop) = self.send_block(batch, &block, &mut taken) {
                return Transmitted { taken, stopped: Some(stop) };
            }
        }
        Transmitted { taken, stopped: (taken < batch.len()).then_some(Stop::Refused) }
    }

    /// Lays a block out and sends its frames; `taken` counts them.
    fn send_block(
        &mut self,
        batch: &Multidata,
        block: &FrameBlock,
        taken: &mut usize,
    ) -> Result<(), Stop> {
        let mut bytes = core::mem::take(&mut self.contiguous);
        if bytes.len() < block.len_bytes {
            bytes.resize(block.len_bytes, 0);
        }
        let laid_out =
            block.lay_out(batch, &mut bytes).and_then(|()| block.insert_headers(&mut bytes));
        let mut outcome = laid_out.ok_or(Stop::Refused);
        for frame in block.frames() {
            if outcome.is_err() {
                break;
            }
            outcome = self.send_from_block(&mut bytes, frame.range, frame.checksum);
            *taken += usize::from(outcome.is_ok());
        }
        self.contiguous = bytes;
        outcome
    }

    /// Sends the frame that lies at `range` of a block.
    fn send_from_block(
        &mut self,
        block: &mut [u8],
        range: Range<usize>,
        checksum: Option<PartialChecksum>,
    ) -> Result<(), Stop> {
        let len = range.len();
        let prefix_len = if self.vnet { VNET_HEADER_LEN } else { 0 };
        let completed_below = checksum.is_none() || self.capabilities.checksum_transmit;
        let whole = range.start.checked_sub(prefix_len).and_then(|at| block.get_mut(at..range.end));
        let whole = whole.ok_or(Stop::Refused)?;
        let (prefix, frame) = whole.split_at_mut(prefix_len);
        let mut vnet = VnetHeader::default();
        if let Some(PartialChecksum { transport_offset, field_offset }) = checksum {
            let start = usize::from(transport_offset);
            if completed_below {
                vnet = VnetHeader::partial(start, field_offset);
            } else {
                complete_checksum(frame, start, field_offset).ok_or(Stop::Refused)?;
            }
        }
        prefix.copy_from_slice(&vnet.emit()[..prefix_len]);
        match write_frame(&self.file, &[IoSlice::new(whole)], &mut self.counters) {
            Ok(()) => {
                self.count_frame(1, len);
                Ok(())
            }
            Err(errno) => {
                Err(self.on_write_error(errno, false, checksum.is_some() && completed_below))
            }
        }
    }

    /// Sends a frame that lies in many pieces.
    fn send_many_pieces<'a>(
        &mut self,
        prefix: &'a [u8],
        header: &'a [u8],
        payload: impl Iterator<Item = &'a [u8]> + Clone,
    ) -> Result<(), Errno> {
        let mut pieces = [IoSlice::new(&[]); PIECES_MAX];
        if let Some(count) = gather(&mut pieces, prefix, header, payload.clone()) {
            return write_frame(&self.file, &pieces[..count], &mut self.counters);
        }
        lay_out(&mut self.contiguous, prefix, header, payload);
        write_frame(&self.file, &[IoSlice::new(&self.contiguous)], &mut self.counters)
    }

    /// What it means that a frame was refused.
    fn on_write_error(&mut self, errno: Errno, merged: bool, partial: bool) -> Stop {
        let revocable = merged || partial;
        match errno {
            Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM => {
                self.waiter.want_room();
                self.counters.transmit_full += 1;
                Stop::Full
            }
            // EIO also says that the interface is down, whatever the frame.
            Errno::IO if self.is_down() => Stop::Failed(self.failure(errno)),
            Errno::INVAL | Errno::IO | Errno::OPNOTSUPP | Errno::MSGSIZE if revocable => {
                self.capabilities.segmentation = None;
                if !merged {
                    self.capabilities.checksum_transmit = false;
                }
                if self.mode == TransmitMode::Lso {
                    self.mode = TransmitMode::Multidata;
                }
                self.counters.capabilities_revoked += 1;
                Stop::Revoked
            }
            Errno::INVAL | Errno::MSGSIZE => Stop::Refused,
            _ => Stop::Failed(self.failure(errno)),
        }
    }

    fn is_down(&self) -> bool {
        self.interface.as_ref().is_some_and(|interface| !interface.is_up().unwrap_or(true))
    }

    /// A sentence about a device that is of no use any more.
    fn failure(&self, errno: Errno) -> DeviceError {
        self.waiter.on_failure();
        let name = self.interface.as_ref().map_or("TAP", Interface::name);
        let message = match errno {
            Errno::IO if self.is_down() => {
                format!("the interface {name} is down: bring it up (`ip link set {name} up`)")
            }
            Errno::BADFD | Errno::NODEV | Errno::NXIO | Errno::FAULT => format!(
                "the interface {name} is gone ({}): it was deleted, open it again",
                said(errno)
            ),
            _ => format!("the interface {name} failed: {}", said(errno)),
        };
        DeviceError { message }
    }
}

impl Queue for TapQueue {
    fn capabilities(&self) -> Capabilities {
        let batch_packets_max = match self.mode {
            mode @ (TransmitMode::Single
            | TransmitMode::Chain
            | TransmitMode::Contiguous(_)
            | TransmitMode::Multidata) => mode.batch_packets_max(BATCH_PACKETS),
            TransmitMode::Lso => {
                // 52 is an IP and a TCP header with timestamps: 45 packets of MTU 1,500 fit.
                let segment_len = self.capabilities.mtu_bytes.saturating_sub(52).max(1);
                (BATCH_SUPER_FRAMES * (65_483 / segment_len)).clamp(BATCH_PACKETS, 256)
            }
        };
        Capabilities { batch_packets_max, ..self.capabilities.clone() }
    }

    fn set_mode(&mut self, mode: TransmitMode) -> Result<(), DeviceError> {
        if !self.capabilities.supports(mode) {
            let name = self.interface.as_ref().map_or("TAP", Interface::name);
            return Err(DeviceError {
                message: format!(
                    "the interface {name} takes no super-frames, so it cannot work in mode {mode}: \
                     open it with offload, or use mode {}",
                    TransmitMode::Multidata
                ),
            });
        }
        self.mode = mode;
        Ok(())
    }

    fn room(&self) -> Room {
        Room::UNBOUNDED
    }

    fn transmit(&mut self, batch: &Multidata) -> Transmitted {
        let mut taken = 0;
        if batch.is_empty() {
            return Transmitted { taken, stopped: None };
        }
        self.counters.transmit_batches += 1;
        let segmentation = match self.mode {
            TransmitMode::Contiguous(contiguous) => return self.transmit_blocks(batch, contiguous),
            TransmitMode::Lso => self.capabilities.segmentation,
            TransmitMode::Single | TransmitMode::Chain | TransmitMode::Multidata => None,
        };
        for frame in frames(batch, 0, segmentation) {
            if let Err(stop) = self.send(batch, &frame) {
                return Transmitted { taken, stopped: Some(stop) };
            }
            taken = frame.packets.end;
        }
        Transmitted { taken, stopped: None }
    }

    fn receive(
        &mut self,
        pool: &BlockPool,
        batch: &mut ReceiveBatch,
        frames_max: usize,
    ) -> Received {
        let (mut received, failed) =
            self.receiver.receive(&self.file, pool, batch, frames_max, &mut self.counters);
        received.failed = failed.map(|errno| self.failure(errno));
        self.waiter.on_receive(self.receiver.is_starved, received.failed.is_some());
        received
    }

    fn waiter(&self) -> Arc<dyn Waiter> {
        Arc::clone(&self.waiter) as Arc<dyn Waiter>
    }

    fn counters(&self) -> DeviceCounters {
        DeviceCounters { wait_syscalls: self.waiter.syscalls(), ..self.counters }
    }
}

/// Lists the pieces of a frame; `None` where they are too many.
fn gather<'a, const COUNT: usize>(
    pieces: &mut [IoSlice<'a>; COUNT],
    prefix: &'a [u8],
    header: &'a [u8],
    payload: impl Iterator<Item = &'a [u8]>,
) -> Option<usize> {
    let mut count = 0;
    let front = [prefix, header].into_iter().filter(|piece| !piece.is_empty());
    for piece in front.chain(payload) {
        *pieces.get_mut(count)? = IoSlice::new(piece);
        count += 1;
    }
    Some(count)
}

/// Lays a frame end to end.
fn lay_out<'a>(
    out: &mut Vec<u8>,
    prefix: &[u8],
    header: &[u8],
    payload: impl Iterator<Item = &'a [u8]>,
) {
    out.clear();
    out.extend_from_slice(prefix);
    out.extend_from_slice(header);
    payload.for_each(|piece| out.extend_from_slice(piece));
}

/// Completes the checksum of a frame that lies behind `prefix_len` bytes.
fn complete(frame: &mut [u8], prefix_len: usize, packet: &PacketView<'_>) -> Option<()> {
    match packet.attributes().checksum {
        Checksum::Partial { offset } => {
            complete_checksum(frame, prefix_len + packet.transport_offset(), offset)
        }
        Checksum::Complete | Checksum::Missing { .. } => Some(()),
    }
}

/// One writev(2). The driver takes a frame whole or not at all.
fn write_frame(
    file: &OwnedFd,
    pieces: &[IoSlice<'_>],
    counters: &mut DeviceCounters,
) -> Result<(), Errno> {
    loop {
        counters.transmit_syscalls += 1;
        let written = match pieces {
            [whole] => write(file, whole),
            _ => writev(file, pieces),
        };
        match written {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

#[cfg(test)]
mod tests;
