//! Sending: as many frames of a batch as there are by one system call.
//!
//! A short frame is laid end to end behind its length, a long one gathered from where its payload lies. Of the frame
//! that the stream took a part of, the rest is kept here and goes before anything else.

use super::LENGTH_LEN;
use batch::{Multidata, PacketView};
use core::ops::Range;
use device::{Capabilities, DeviceCounters};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, send, sendmsg};
use std::io::IoSlice;

/// Frames up to this length are laid end to end: a copy of bytes that the checksum has just brought into the cache is
/// cheaper than the kernel's work on a list.
const LAID_OUT_BYTES_MAX: usize = 2_048;

/// Pieces of one call at most, and those of one frame that are gathered.
const PIECES_MAX: usize = 160;
const FRAME_PIECES_MAX: usize = 32;

/// Neither waits, nor ends the process where nobody reads any more.
const FLAGS: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

/// A frame as it is offered to the stream.
#[derive(Clone, Debug)]
struct Laid {
    /// Its length and its headers, or all of it, in [`Sender::heads`].
    head: Range<usize>,
    /// Its payload is not among those.
    is_gathered: bool,
    /// All of it, its length included.
    len: usize,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Sender {
    heads: Vec<u8>,
    laid: Vec<Laid>,
    rest: Vec<u8>,
}

impl Sender {
    /// Whether a frame has left in part.
    pub(super) fn has_rest(&self) -> bool {
        !self.rest.is_empty()
    }

    /// Sends what is left of a frame.
    ///
    /// # Errors
    /// What the system said; then something is left.
    pub(super) fn send_rest(
        &mut self,
        socket: &OwnedFd,
        counters: &mut DeviceCounters,
    ) -> Result<(), Errno> {
        while self.has_rest() {
            counters.transmit_syscalls += 1;
            match send(socket, &self.rest, FLAGS) {
                Ok(sent) => drop(self.rest.drain(..sent)),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// Lays out frames from packet `first` on, as many as one call takes, and says how many: none where the first can
    /// never be sent.
    pub(super) fn lay_out(
        &mut self,
        batch: &Multidata,
        first: usize,
        capabilities: &Capabilities,
    ) -> usize {
        self.heads.clear();
        self.laid.clear();
        let mut pieces = 0;
        for packet in batch.packets().skip(first) {
            // Nobody behind the stream completes a checksum.
            let checksum = packet.attributes().checksum;
            if !capabilities.admits(&packet) || !capabilities.completes(checksum) {
                break;
            }
            let payload_pieces = packet.payload().count();
            let is_gathered =
                packet.len() > LAID_OUT_BYTES_MAX && payload_pieces <= FRAME_PIECES_MAX;
            pieces += 1 + if is_gathered { payload_pieces } else { 0 };
            if pieces > PIECES_MAX || self.lay(&packet, is_gathered).is_none() {
                break;
            }
        }
        self.laid.len()
    }

    fn lay(&mut self, packet: &PacketView<'_>, is_gathered: bool) -> Option<()> {
        let start = self.heads.len();
        let len = packet.len();
        self.heads.extend((len as u32).to_be_bytes());
        let head_len = if is_gathered { packet.header_len() } else { len };
        self.heads.resize(start + LENGTH_LEN + head_len, 0);
        let room = &mut self.heads[start + LENGTH_LEN..];
        match is_gathered {
            true => packet.copy_header(room).map(|_| ())?,
            false => packet.copy_to(room).map(|_| ())?,
        }
        let head = start..self.heads.len();
        self.laid.push(Laid { head, is_gathered, len: LENGTH_LEN + len });
        Some(())
    }

    /// Sends what was laid out of `batch` from packet `first` on, and says how many packets the stream has, the one
    /// that it took a part of included.
    ///
    /// # Errors
    /// What the system said; then nothing was sent.
    pub(super) fn send(
        &mut self,
        socket: &OwnedFd,
        batch: &Multidata,
        first: usize,
        counters: &mut DeviceCounters,
    ) -> Result<usize, Errno> {
        let mut pieces = [IoSlice::new(&[]); PIECES_MAX];
        let count = self.list(batch, first, &mut pieces);
        counters.transmit_mappings += count as u64;
        let mut left = loop {
            counters.transmit_syscalls += 1;
            let mut control = SendAncillaryBuffer::default();
            match sendmsg(socket, &pieces[..count], &mut control, FLAGS) {
                Ok(sent) => break sent,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        };
        for (index, laid) in self.laid.iter().enumerate() {
            if left < laid.len {
                if left == 0 {
                    return Ok(index);
                }
                let mut rest = Vec::with_capacity(laid.len - left);
                for piece in self.pieces_of(batch, first + index, laid) {
                    let skipped = left.min(piece.len());
                    left -= skipped;
                    rest.extend_from_slice(&piece[skipped..]);
                }
                self.rest = rest;
                return Ok(index + 1);
            }
            left -= laid.len;
        }
        Ok(self.laid.len())
    }

    /// Lists what was laid out and says how many pieces it is: heads that follow each other are one.
    fn list<'a>(
        &'a self,
        batch: &'a Multidata,
        first: usize,
        pieces: &mut [IoSlice<'a>; PIECES_MAX],
    ) -> usize {
        let (mut count, mut start) = (0, 0);
        let mut add = |piece: &'a [u8]| {
            pieces[count] = IoSlice::new(piece);
            count += 1;
        };
        for (index, laid) in self.laid.iter().enumerate().filter(|(_, laid)| laid.is_gathered) {
            add(&self.heads[start..laid.head.end]);
            let packet = first + index;
            batch.payload_of(packet..packet + 1).for_each(&mut add);
            start = laid.head.end;
        }
        let end = self.laid.last().map_or(0, |laid| laid.head.end);
        if start < end {
            add(&self.heads[start..end]);
        }
        count
    }

    /// One frame, piece by piece.
    fn pieces_of<'a>(
        &'a self,
        batch: &'a Multidata,
        packet: usize,
        laid: &Laid,
    ) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let gathered = if laid.is_gathered { packet..packet + 1 } else { packet..packet };
        core::iter::once(&self.heads[laid.head.clone()]).chain(batch.payload_of(gathered))
    }
}
