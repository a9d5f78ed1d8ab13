//! A packet of a batch, to be looked at.

use super::{Attributes, Multidata, Packet, Span};
use crate::block::Block;
use crate::headers::derive;
use checksum::Accumulator;

/// One packet of a batch, as the device sees it.
#[derive(Clone, Copy, Debug)]
pub struct PacketView<'a> {
    pub(super) batch: &'a Multidata,
    pub(super) index: usize,
    pub(super) packet: &'a Packet,
    /// What says where the header is, which is the packet itself unless it is an implied one.
    pub(super) model: &'a Packet,
}

impl<'a> PacketView<'a> {
    /// All headers, lowest first. Where they are implied, those of the whole batch are made; who
    /// needs a few takes [`PacketView::header_in`].
    #[inline]
    #[must_use]
    pub fn header(&self) -> &'a [u8] {
        if self.packet.distance == 0 {
            return self.written_header();
        }
        let stride = usize::from(self.batch.layout.stride_bytes);
        let slot = &self.batch.made_headers()[self.index * stride..][..stride];
        &slot[usize::from(self.model.header_start)..usize::from(self.model.header_end)]
    }

    /// All headers, lowest first, made in `scratch` where they are implied. `None` where that is
    /// needed and too short.
    #[inline]
    #[must_use]
    pub fn header_in<'b>(&self, scratch: &'b mut [u8]) -> Option<&'b [u8]>
    where
        'a: 'b,
    {
        match self.packet.distance {
            0 => Some(self.written_header()),
            _ => self.copy_header(scratch).map(|header| &*header),
        }
    }

    /// Copies all headers, lowest first, to the front of `out`, and returns them there; `None` where
    /// it is too short.
    #[inline]
    #[must_use]
    pub fn copy_header<'b>(&self, out: &'b mut [u8]) -> Option<&'b mut [u8]> {
        let out = out.get_mut(..self.header_len())?;
        match self.packet.distance {
            0 => out.copy_from_slice(self.written_header()),
            distance => derive(&self.model.header(self.written_header()), distance, out),
        }
        Some(out)
    }

    /// The headers that are written: the packet's own, or those that imply them, from which they
    /// differ in numbers that count on (a sequence number, an identification and its checksum).
    #[inline]
    #[must_use]
    pub fn written_header(&self) -> &'a [u8] {
        self.batch.written_header(self.index, self.packet, self.model)
    }

    /// Length of all headers in bytes.
    #[inline]
    #[must_use]
    pub fn header_len(&self) -> usize {
        usize::from(self.model.header_end - self.model.header_start)
    }

    /// Length of what lies in front of the network header (the link header), in bytes.
    #[must_use]
    pub fn link_header_len(&self) -> usize {
        (self.model.network_start - self.model.header_start) as usize
    }

    /// Bytes from the first header byte to the transport header.
    #[must_use]
    pub fn transport_offset(&self) -> usize {
        (self.model.transport_start - self.model.header_start) as usize
    }

    /// The payload, piece by piece.
    #[must_use]
    pub fn payload(&self) -> Payload<'a> {
        payload(&self.batch.spans, &self.batch.blocks, self.packet)
    }

    /// Payload length in bytes.
    #[must_use]
    pub fn payload_len(&self) -> usize {
        self.packet.payload_len as usize
    }

    /// Length of the whole packet in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.header_len() + self.payload_len()
    }

    /// Whether the packet has neither header nor payload.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What the layers said of the packet.
    #[must_use]
    pub fn attributes(&self) -> Attributes {
        self.model.attributes
    }

    /// Copies the whole packet to the front of `out` and says how long it is; `None` where `out`
    /// is too short.
    #[inline]
    pub fn copy_to(&self, out: &mut [u8]) -> Option<usize> {
        let (mut at, len) = (self.header_len(), self.len());
        let out = out.get_mut(..len)?;
        self.copy_header(out)?;
        for piece in self.payload() {
            out[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
        Some(len)
    }
}

/// The payload of a packet, piece by piece.
#[derive(Clone, Debug)]
pub struct Payload<'a> {
    spans: core::slice::Iter<'a, Span>,
    blocks: &'a [Block],
}

impl Payload<'_> {
    /// Adds all pieces to `sum` and says how many bytes had to be read for it: those whose sums are
    /// not known from the copy that brought them ([`Block::sum`]).
    #[inline]
    pub fn add_to(self, sum: &mut Accumulator) -> usize {
        let mut read = 0;
        for span in self.spans {
            let Some(block) = self.blocks.get(span.block as usize) else { continue };
            let start = span.offset as usize;
            let (of_span, of_span_read) = block.sum(start..start + span.len as usize);
            sum.add_sum(of_span, span.len as usize);
            read += of_span_read;
        }
        read
    }
}

impl<'a> Iterator for Payload<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let span = self.spans.next()?;
        let start = span.offset as usize;
        self.blocks.get(span.block as usize)?.bytes().get(start..start + span.len as usize)
    }
}

pub(super) fn payload<'a>(spans: &'a [Span], blocks: &'a [Block], packet: &Packet) -> Payload<'a> {
    let first = packet.span_first as usize;
    Payload { spans: spans[first..first + packet.span_count as usize].iter(), blocks }
}
