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
//!
//! An interface that is down takes nothing and says so ([`Queue::trouble`]); the queue is full until it
//! is up again. One that was deleted has failed. One whose MTU is lowered takes longer frames all the same,
//! and so nothing tells of it; but what lies behind it, as another port of a bridge, may drop them. So the
//! interface is looked at when the kernel says that one has changed, and a shorter MTU is a capability that is
//! taken back.

mod late;
mod pieces;

use super::link::{Link, State};
use super::receive::Receiver;
use super::write_ring::{STAGED_MAX, Staging, WriteRing};
use crate::system_error;
use crate::vnet::{self, VNET_HEADER_LEN, VnetHeader, super_frame_packets_max};
use crate::waiter::FileWaiter;
use batch::{BlockPool, Checksum, Multidata, PacketView, ReceiveBatch};
use core::ops::Range;
use device::lowering::{
    FRAMES_MAX, FrameBlock, HEADER_LEN_MAX, PartialChecksum, SuperFrame, blocks, frames,
};
use device::{
    Capabilities, Contiguous, DeviceCounters, DeviceError, Queue, Received, Room, Segmentation,
    Stop, TransmitMode, Transmitted, Waiter,
};
use late::Kept;
use pieces::{Offer, PIECES_FEW, PIECES_MAX, Pieces, Tally, complete, gather, lay_out, weightier};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, write, writev};
use std::io::{ErrorKind, IoSlice};
use std::sync::Arc;

/// Frames up to this length are laid end to end and written with write(2): a copy of bytes that
/// the checksum has just brought into the cache is cheaper than the kernel's work on a list.
const LAID_OUT_BYTES_MAX: usize = 2_048;

/// Packets in one call at most, where each goes out by itself: their headers fit the L1 cache.
const BATCH_PACKETS: usize = 64;

/// Transmit calls until who sends, and never waits, asks whether the interface has changed.
const UNASKED_MAX: u32 = 256;

/// The transmit and receive pair of a [`TapDevice`](crate::TapDevice).
#[derive(Debug)]
pub struct TapQueue {
    file: Arc<OwnedFd>,
    waiter: Arc<FileWaiter>,
    link: Link,
    /// Whether a virtio-net header stands in front of every frame.
    vnet: bool,
    capabilities: Capabilities,
    /// The MTU that the interface was opened with, for which there is room to receive.
    mtu_bytes_max: usize,
    /// The MTU is another one, which was not told yet.
    is_revoked: bool,
    /// Transmit calls since the kernel was last asked for changes, apart from waiting.
    unasked: u32,
    mode: TransmitMode,
    receiver: Receiver,
    /// Where frames are laid end to end that are not gathered. Empty until the first of them.
    contiguous: Vec<u8>,
    /// Where frames are written many by one call; else each by its own.
    ring: Option<Box<WriteRing>>,
    /// The frames that are staged in the ring.
    offers: Vec<Offer>,
    /// Frames that others have overtaken and that found no room since.
    kept: Kept,
    /// What writing them met; the next call tells.
    failed: Option<DeviceError>,
    counters: DeviceCounters,
}

impl TapQueue {
    pub(super) fn new(
        file: Arc<OwnedFd>,
        waiter: Arc<FileWaiter>,
        link: Link,
        vnet: bool,
        capabilities: Capabilities,
        ring: Option<Box<WriteRing>>,
    ) -> Self {
        let receiver = Receiver::new(vnet, &capabilities);
        Self {
            file,
            waiter,
            link,
            vnet,
            mtu_bytes_max: capabilities.mtu_bytes,
            capabilities,
            is_revoked: false,
            unasked: 0,
            mode: TransmitMode::Multidata,
            receiver,
            contiguous: Vec::new(),
            ring,
            offers: Vec::new(),
            kept: Kept::default(),
            failed: None,
            counters: DeviceCounters::default(),
        }
    }

    /// Counts that a ring was wanted and not to be had.
    pub(super) fn count_ring_refused(&mut self) {
        self.counters.rings_lost += 1;
    }

    /// Sends the batch frame by frame.
    fn transmit_frames(
        &mut self,
        batch: &Multidata,
        segmentation: Option<Segmentation>,
    ) -> Transmitted {
        let mut ring = self.ring.take();
        let mut staging = ring.as_deref_mut().map(WriteRing::stage);
        let mut tally = Tally::default();
        for frame in frames(batch, 0, segmentation) {
            let is_offered = self.offer(batch, &frame, staging.as_mut(), &mut tally).is_some();
            if !is_offered || tally.has_failed() {
                break;
            }
        }
        if let Some(staging) = &mut staging {
            self.submit(batch, staging, &mut tally);
        }
        self.ring = ring;
        self.finish(batch, tally)
    }

    /// Writes a frame, or stages it where there is a ring. `None` for a frame that cannot be sent.
    fn offer<'batch>(
        &mut self,
        batch: &'batch Multidata,
        frame: &SuperFrame,
        staging: Option<&mut Staging<'_, 'batch>>,
        tally: &mut Tally,
    ) -> Option<()> {
        let first = batch.packet(frame.packets.start)?;
        let checksum = first.attributes().checksum;
        if !self.capabilities.admits(&first) {
            return None;
        }
        let mut scratch = [0; HEADER_LEN_MAX];
        let header = frame.header(batch, &mut scratch)?;
        let completed_below = self.capabilities.completes(checksum);
        let vnet = match completed_below {
            true => VnetHeader::of_frame(&first, header, frame).emit(),
            false => [0; VNET_HEADER_LEN],
        };
        let packets = frame.packets.len();
        let offer = Offer {
            end: frame.packets.end,
            packets,
            bytes: packets * header.len() + frame.payload_len,
            merged: frame.is_merged(),
            partial: checksum != Checksum::Complete && completed_below,
        };
        let pieces = Pieces {
            prefix: if self.vnet { &vnet } else { &[] },
            header,
            payload: batch.payload_of(frame.packets.clone()),
            is_short: header.len() + frame.payload_len <= LAID_OUT_BYTES_MAX
                && self.mode != TransmitMode::Chain,
            completes: (!completed_below).then_some(&first),
        };
        if let Some(staging) = staging {
            if !staging.has_room() {
                self.submit(batch, staging, tally);
            }
            if !tally.has_failed() && pieces.stage(staging) {
                self.offers.push(offer);
                return Some(());
            }
            // What the ring cannot take goes alone, behind what is staged.
            self.submit(batch, staging, tally);
            if tally.has_failed() {
                return Some(());
            }
        }
        let written = self.write(pieces)?;
        self.settle(offer, written, tally);
        Some(())
    }

    /// Writes a frame by a call of its own. `None` where its checksum cannot be completed.
    fn write<'a>(
        &mut self,
        pieces: Pieces<'_, impl Iterator<Item = &'a [u8]> + Clone>,
    ) -> Option<Result<(), Errno>> {
        let Pieces { prefix, header, payload, is_short, completes } = pieces;
        if is_short || completes.is_some() {
            lay_out(&mut self.contiguous, prefix, header, payload);
            if let Some(packet) = completes {
                complete(&mut self.contiguous, prefix.len(), packet)?;
            }
            let whole = [IoSlice::new(&self.contiguous)];
            return Some(write_frame(&self.file, &whole, &mut self.counters));
        }
        let mut few = [IoSlice::new(&[]); PIECES_FEW];
        Some(match gather(&mut few, prefix, header, payload.clone()) {
            Some(count) => write_frame(&self.file, &few[..count], &mut self.counters),
            None => self.send_many_pieces(prefix, header, payload),
        })
    }

    /// Writes what is staged.
    fn submit(&mut self, batch: &Multidata, staging: &mut Staging<'_, '_>, tally: &mut Tally) {
        let mut offers = core::mem::take(&mut self.offers);
        if !offers.is_empty() {
            self.counters.transmit_mappings += staging.pieces() as u64;
            let outcomes = staging.submit(&mut self.counters.transmit_syscalls);
            self.settle_all(batch, &offers, outcomes, tally);
        }
        offers.clear();
        self.offers = offers;
    }

    /// Notes what became of frames that were offered together.
    fn settle_all(
        &mut self,
        batch: &Multidata,
        offers: &[Offer],
        outcomes: &[Result<(), Errno>],
        tally: &mut Tally,
    ) {
        let overtaking = outcomes.iter().rposition(Result::is_ok).unwrap_or(0);
        for (index, (offer, written)) in offers.iter().zip(outcomes).enumerate() {
            match written {
                Err(errno) if index < overtaking => {
                    self.on_overtaken(batch, *offer, *errno, tally);
                }
                written => self.settle(*offer, *written, tally),
            }
        }
    }

    /// Notes what became of a frame that none behind it has overtaken.
    fn settle(&mut self, offer: Offer, written: Result<(), Errno>, tally: &mut Tally) {
        match written {
            Ok(()) => {
                tally.taken = offer.end;
                self.counters.transmit_packets += offer.packets as u64;
                self.counters.transmit_bytes += offer.bytes as u64;
                self.counters.transmit_frames += 1;
            }
            Err(errno) => {
                tally.failure.get_or_insert((errno, offer));
            }
        }
    }

    /// What became of the batch, of which a frame that cannot be sent is the first not taken where
    /// nothing failed.
    fn finish(&mut self, batch: &Multidata, tally: Tally) -> Transmitted {
        if self.ring.as_deref().is_some_and(WriteRing::is_broken) {
            self.ring = None;
            self.counters.rings_lost += 1;
        }
        let taken = tally.taken;
        if taken > 0 {
            self.link.on_written();
        }
        let refused = tally
            .failure
            .map(|(errno, offer)| self.on_write_error(errno, offer.merged, offer.partial));
        let stopped = match (refused, tally.overtaken) {
            (Some(one), Some(other)) => Some(weightier(one, other)),
            (one, other) => {
                one.or(other).or_else(|| (taken < batch.len()).then_some(Stop::Refused))
            }
        };
        self.counters.transmit_full += u64::from(stopped == Some(Stop::Full));
        Transmitted { taken, stopped }
    }

    /// Sends the batch in contiguous blocks, and each of their frames by itself.
    fn transmit_blocks(&mut self, batch: &Multidata, contiguous: Contiguous) -> Transmitted {
        let is_sendable = |packet: &PacketView<'_>| self.capabilities.admits(packet);
        let sendable = batch.packets().take_while(is_sendable).count();
        let prefix_len = self.prefix_len();
        let mut ring = self.ring.take();
        let mut bytes = core::mem::take(&mut self.contiguous);
        let mut tally = Tally::default();
        for block in blocks(batch, 0..sendable, contiguous, prefix_len) {
            if bytes.len() < block.len_bytes {
                bytes.resize(block.len_bytes, 0);
            }
            let laid_out = self.lay_out_block(batch, &block, &mut bytes);
            let staging = ring.as_deref_mut().map(WriteRing::stage);
            if laid_out.is_none()
                || self.write_block(batch, &bytes, &block, staging, &mut tally).is_none()
            {
                break;
            }
        }
        (self.ring, self.contiguous) = (ring, bytes);
        self.finish(batch, tally)
    }

    /// Lays the frames of a block out, complete with what stands in front of each. `None` where the
    /// block is not one of this batch; then nothing of it must be sent.
    fn lay_out_block(&self, batch: &Multidata, block: &FrameBlock, bytes: &mut [u8]) -> Option<()> {
        block.lay_out(batch, bytes)?;
        block.insert_headers(bytes)?;
        for frame in block.frames() {
            self.finish_frame(bytes, frame.range, frame.checksum)?;
        }
        Some(())
    }
    /// Puts in front of the frame at `range` what the driver wants there, and completes its checksum
    /// where nobody below would.
    fn finish_frame(
        &self,
        block: &mut [u8],
        range: Range<usize>,
        checksum: Option<PartialChecksum>,
    ) -> Option<()> {
        let whole = block.get_mut(range.start.checked_sub(self.prefix_len())?..range.end)?;
        let (prefix, frame) = whole.split_at_mut(self.prefix_len());
        let is_completed_below = self.capabilities.checksum_transmit;
        let vnet = VnetHeader::of_block_frame(frame, checksum, is_completed_below)?;
        prefix.copy_from_slice(&vnet.emit()[..prefix.len()]);
        Some(())
    }

    /// Writes the frames of a block. `None` where one was refused.
    fn write_block<'block>(
        &mut self,
        batch: &Multidata,
        bytes: &'block [u8],
        block: &FrameBlock,
        mut staging: Option<Staging<'_, 'block>>,
        tally: &mut Tally,
    ) -> Option<()> {
        for (index, frame) in block.frames().enumerate() {
            let len = frame.range.len();
            let whole = &bytes[frame.range.start - self.prefix_len()..frame.range.end];
            let partial = frame.checksum.is_some() && self.capabilities.checksum_transmit;
            let end = block.packets.start + index + 1;
            let offer = Offer { end, packets: 1, bytes: len, merged: false, partial };
            if let Some(staging) = &mut staging {
                const { assert!(FRAMES_MAX <= STAGED_MAX, "a call takes all frames of a block") };
                staging.push_whole(whole);
                self.offers.push(offer);
                continue;
            }
            let written = write_frame(&self.file, &[IoSlice::new(whole)], &mut self.counters);
            self.settle(offer, written, tally);
            if tally.has_failed() {
                return None;
            }
        }
        if let Some(mut staging) = staging {
            self.submit(batch, &mut staging, tally);
        }
        (!tally.has_failed()).then_some(())
    }

    fn prefix_len(&self) -> usize {
        if self.vnet { VNET_HEADER_LEN } else { 0 }
    }

    /// Sends a frame that lies in many pieces.
    fn send_many_pieces<'a>(
        &mut self,
        prefix: &[u8],
        header: &[u8],
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
        // EIO also says that the interface is down, whatever the frame.
        if errno == Errno::IO {
            let state = self.link.look(&mut self.counters);
            if self.link.is_passing(state) {
                // The kernel says that there is room when the interface comes up, too.
                self.waiter.want_room();
                return Stop::Full;
            }
            if state == State::Gone {
                return Stop::Failed(self.failure(Errno::BADFD));
            }
        }
        match errno {
            Errno::AGAIN => {
                self.waiter.want_room();
                Stop::Full
            }
            // Memory is short, and not the room in the file, which poll(2) would call writable.
            Errno::NOBUFS | Errno::NOMEM => Stop::Full,
            Errno::INVAL | Errno::IO | Errno::OPNOTSUPP | Errno::MSGSIZE if revocable => {
                // Of frames that were offered together each may say so.
                let has_changed = vnet::revoke(&mut self.capabilities, &mut self.mode, merged);
                self.counters.capabilities_revoked += u64::from(has_changed);
                Stop::Revoked
            }
            Errno::INVAL | Errno::MSGSIZE => Stop::Refused,
            _ => Stop::Failed(self.failure(errno)),
        }
    }

    /// Looks at the interface again, where something about interfaces has changed.
    fn note_changes(&mut self) {
        let has_changed = self.waiter.take_changed();
        // Reading says nothing of an interface that is down.
        if has_changed || self.link.is_lost() {
            self.link.look(&mut self.counters);
        }
        if !has_changed {
            return;
        }
        let was_bytes = self.capabilities.mtu_bytes;
        let now_bytes = self.link.mtu_bytes().unwrap_or(was_bytes);
        // What we send is no longer than it ever was; the kernel's packets are.
        self.receiver.make_room(now_bytes);
        let mtu_bytes = now_bytes.min(self.mtu_bytes_max);
        self.capabilities.mtu_bytes = mtu_bytes;
        self.is_revoked |= mtu_bytes != was_bytes;
        self.counters.capabilities_revoked += u64::from(mtu_bytes < was_bytes);
    }

    /// Has the changes read that a thread which waits would have been told of.
    fn ask_for_changes(&mut self) {
        self.unasked += 1;
        if self.unasked >= UNASKED_MAX {
            self.unasked = 0;
            self.waiter.read_changes();
            self.note_changes();
        }
    }

    /// Why a batch need not be looked at: the interface is still down, or is gone, or what was taken
    /// before still finds no room; or it is to be built afresh.
    fn standstill(&mut self) -> Option<Stop> {
        self.ask_for_changes();
        if self.link.is_lost() && self.link.look(&mut self.counters) == State::Gone {
            return Some(Stop::Failed(self.failure(Errno::BADFD)));
        }
        let is_written = !self.link.is_lost() && self.write_kept();
        if let Some(error) = self.failed.take() {
            return Some(Stop::Failed(error));
        }
        if is_written {
            return core::mem::take(&mut self.is_revoked).then_some(Stop::Revoked);
        }
        if self.link.is_lost() {
            self.waiter.want_room();
        }
        self.counters.transmit_full += 1;
        Some(Stop::Full)
    }

    /// A sentence about a device that is of no use any more.
    fn failure(&self, errno: Errno) -> DeviceError {
        self.waiter.on_failure();
        match errno {
            Errno::BADFD | Errno::NODEV | Errno::NXIO | Errno::FAULT => {
                system_error::interface_gone(self.link.name(), errno)
            }
            _ => system_error::interface_failed(self.link.name(), errno),
        }
    }
}

impl Queue for TapQueue {
    fn capabilities(&self) -> Capabilities {
        let batch_packets_max = match self.mode {
            mode @ (TransmitMode::Single
            | TransmitMode::Chain
            | TransmitMode::Contiguous(_)
            | TransmitMode::Multidata) => mode.batch_packets_max(BATCH_PACKETS),
            TransmitMode::Lso => super_frame_packets_max(self.capabilities.mtu_bytes),
        };
        Capabilities { batch_packets_max, ..self.capabilities.clone() }
    }

    fn set_mode(&mut self, mode: TransmitMode) -> Result<(), DeviceError> {
        if !self.capabilities.supports(mode) {
            let name = self.link.name();
            let message = format!(
                "the interface {name} takes no super-frames, so it cannot work in mode {mode}: open \
                 it with offload, or use mode {}",
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
        if let Some(stop) = self.standstill() {
            return Transmitted { taken: 0, stopped: Some(stop) };
        }
        let segmentation = match self.mode {
            TransmitMode::Contiguous(contiguous) => return self.transmit_blocks(batch, contiguous),
            TransmitMode::Lso => self.capabilities.segmentation,
            TransmitMode::Single | TransmitMode::Chain | TransmitMode::Multidata => None,
        };
        self.transmit_frames(batch, segmentation)
    }

    fn receive(
        &mut self,
        pool: &BlockPool,
        batch: &mut ReceiveBatch,
        frames_max: usize,
    ) -> Received {
        // First, for a longer MTU takes room for its frames.
        self.note_changes();
        let (mut received, failed) =
            self.receiver.receive(&self.file, pool, batch, frames_max, &mut self.counters);
        let failed = failed.map(|errno| self.failure(errno));
        received.failed = self.failed.take().or(failed);
        self.waiter.on_receive(self.receiver.is_starved, received.failed.is_some());
        received
    }

    fn trouble(&self) -> Option<DeviceError> {
        self.link.trouble().cloned()
    }

    fn reclaim(&mut self) {
        self.write_kept();
    }

    fn is_stalled(&self) -> bool {
        !self.kept.is_empty() || self.failed.is_some()
    }

    fn waiter(&self) -> Arc<dyn Waiter> {
        Arc::clone(&self.waiter) as Arc<dyn Waiter>
    }

    fn counters(&self) -> DeviceCounters {
        DeviceCounters { wait_syscalls: self.waiter.syscalls(), ..self.counters }
    }
}

/// The queue's file, for who waits for frames among other things. Frames are the queue's to read and write.
impl AsFd for TapQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// One writev(2). The driver takes a frame whole or not at all.
fn write_frame(
    file: &OwnedFd,
    pieces: &[IoSlice<'_>],
    counters: &mut DeviceCounters,
) -> Result<(), Errno> {
    counters.transmit_mappings += pieces.len() as u64;
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
