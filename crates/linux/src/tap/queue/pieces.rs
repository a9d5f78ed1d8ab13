//! What a frame is written from, and what became of the frames of a batch.

use crate::tap::write_ring::Staging;
use batch::{Checksum, PacketView};
use device::Stop;
use device::lowering::complete_checksum;
use rustix::io::Errno;
use std::io::IoSlice;

/// Pieces of the usual frame: virtio-net header, headers, and payload in two or three blocks. Setting up the larger list costs as much as a third of the system call without its work.
pub(super) const PIECES_FEW: usize = 6;

/// Pieces of a frame that are gathered; more are laid end to end first. Two are headers.
pub(super) const PIECES_MAX: usize = 66;

/// A frame as it was offered to the driver.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer {
    /// Index of the packet behind it.
    pub(super) end: usize,
    /// Packets that it is made of.
    pub(super) packets: usize,
    /// Bytes of these packets, headers included.
    pub(super) bytes: usize,
    /// It is a super-frame.
    pub(super) merged: bool,
    /// Its checksum is left to the driver.
    pub(super) partial: bool,
}

/// What became of the frames of one batch.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Packets up to the last one that was written.
    pub(super) taken: usize,
    /// The first frame behind them, which was refused, and why.
    pub(super) failure: Option<(Errno, Offer)>,
    /// What follows from frames that were refused although others behind them were written.
    pub(super) overtaken: Option<Stop>,
}

impl Tally {
    /// Whether nothing more can be offered.
    pub(super) fn has_failed(&self) -> bool {
        self.failure.is_some() || self.overtaken.is_some()
    }
}

/// Of two reasons to stop, the one that the caller must hear.
pub(super) fn weightier(one: Stop, other: Stop) -> Stop {
    let weight = |stop: &Stop| match stop {
        Stop::Refused => 0,
        Stop::Full => 1,
        Stop::Revoked => 2,
        Stop::Failed(_) => 3,
    };
    if weight(&other) > weight(&one) { other } else { one }
}

/// A frame as it lies in memory.
pub(super) struct Pieces<'a, Payload> {
    /// The virtio-net header, or nothing.
    pub(super) prefix: &'a [u8],
    /// The headers of the frame.
    pub(super) header: &'a [u8],
    /// Its payload, piece by piece.
    pub(super) payload: Payload,
    /// It is better laid end to end than gathered.
    pub(super) is_short: bool,
    /// The packet, where its checksum is to be completed here.
    pub(super) completes: Option<&'a PacketView<'a>>,
}

impl<'batch, Payload: Iterator<Item = &'batch [u8]> + Clone> Pieces<'_, Payload> {
    /// Stages the frame; `false` where the ring has no room for such a one.
    pub(super) fn stage(&self, staging: &mut Staging<'_, 'batch>) -> bool {
        let head = [self.prefix, self.header].into_iter();
        if !self.is_short {
            let is_complete = self.completes.is_none();
            let head_len = staging.slot().and_then(|slot| copy_to(slot, head));
            return is_complete
                && head_len.is_some_and(|len| staging.push_gathered(len, self.payload.clone()));
        }
        let Some(slot) = staging.slot() else { return false };
        let Some(head_len) = copy_to(slot, head) else { return false };
        let payload_len = copy_to(&mut slot[head_len..], self.payload.clone());
        let Some(len) = payload_len.map(|len| head_len + len) else { return false };
        if let Some(packet) = self.completes
            && complete(&mut slot[..len], self.prefix.len(), packet).is_none()
        {
            return false;
        }
        staging.push_slot(len);
        true
    }
}

/// Copies pieces end to end, and says how long they are; `None` where there is not room for all.
fn copy_to<'a>(out: &mut [u8], pieces: impl Iterator<Item = &'a [u8]>) -> Option<usize> {
    let mut at = 0;
    for piece in pieces {
        out.get_mut(at..at + piece.len())?.copy_from_slice(piece);
        at += piece.len();
    }
    Some(at)
}

/// Lists the pieces of a frame; `None` where they are too many.
pub(super) fn gather<'a, 'payload: 'a, const COUNT: usize>(
    pieces: &mut [IoSlice<'a>; COUNT],
    prefix: &'a [u8],
    header: &'a [u8],
    payload: impl Iterator<Item = &'payload [u8]>,
) -> Option<usize> {
    let mut count = 0;
    let front = [prefix, header].into_iter().filter(|piece| !piece.is_empty());
    for piece in front.chain(payload.map(|piece| -> &'a [u8] { piece })) {
        *pieces.get_mut(count)? = IoSlice::new(piece);
        count += 1;
    }
    Some(count)
}

/// Lays a frame end to end.
pub(super) fn lay_out<'a>(
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
pub(super) fn complete(frame: &mut [u8], prefix_len: usize, packet: &PacketView<'_>) -> Option<()> {
    match packet.attributes().checksum {
        Checksum::Partial { offset } => {
            complete_checksum(frame, prefix_len + packet.transport_offset(), offset)
        }
        Checksum::Complete | Checksum::Missing { .. } => Some(()),
    }
}
