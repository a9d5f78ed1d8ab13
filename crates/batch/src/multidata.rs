//! The transmit batch (seed 000, section 4).
//!
//! A Multidata is filled from the transport down: [`Multidata::push_packet`] opens a packet with
//! its transport header, [`Multidata::append_span`] gives it payload, and each lower layer grows
//! the header to the front with [`Multidata::prepend`]. At the device every packet is
//! `header bytes ++ payload spans`, complete and real.
//!
//! What always holds:
//! * a packet's header lies in its own slot of the header block, slot `i` for packet `i`, or is
//!   *implied*: the packet was pushed by [`Multidata::push_implied`], and its header is that of a
//!   packet before it, its *model*, but for what counts on. Whoever looks at it sees the same bytes as
//!   if it had been written, and what a layer says of the model it says of those it implies;
//! * a span lies within its block; spans of a packet are contiguous in the span list;
//! * packets of one run (equal [`Attributes::run`], neighbours in the batch) are consecutive
//!   segments of one flow, all of the payload length of the first but the last, which may be
//!   shorter, with headers that differ only as a segmentation engine would make them differ.
//!   Whoever assigns a run number vouches for it;
//! * after [`Multidata::clear`] no block is held and no memory is given back, so a batch is reused
//!   without allocation.

mod view;

pub use view::{PacketView, Payload};

use crate::block::Block;
use crate::chunks::Chunks;
use crate::headers::{Counting, Headers, Model, derive};
use bytes::Bytes;
use core::num::NonZeroU8;
use core::ops::Range;
use view::payload;

/// How a header slot is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderLayout {
    /// Bytes from one packet's slot to the next.
    pub stride_bytes: u16,
    /// Where the transport header begins in its slot: the room for lower headers in front of it.
    pub headroom_bytes: u16,
}

impl Default for HeaderLayout {
    /// 80 bytes in front (Ethernet with two tags and IPv6 take 62), 60 of the largest TCP header
    /// behind, in three cache lines, so that a usual header touches two.
    fn default() -> Self {
        Self { stride_bytes: 192, headroom_bytes: 80 }
    }
}

/// How large a batch may grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Packets.
    pub packets: usize,
    /// Payload blocks referenced.
    pub blocks: usize,
    /// Payload bytes, over all packets.
    pub payload_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { packets: 64, blocks: 64, payload_bytes: 1 << 20 }
    }
}

/// What is known of a packet's transport checksum. Offsets count from the transport header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// The packet is complete as it is.
    #[default]
    Complete,
    /// The field at `offset` is zero: the network layer, which knows the pseudo-header, fills it.
    Missing {
        /// Bytes from the start of the transport header to the checksum field.
        offset: u8,
    },
    /// The field at `offset` holds the pseudo-header's sum and the device completes it.
    Partial {
        /// Bytes from the start of the transport header to the checksum field.
        offset: u8,
    },
}

/// What the layers tell each other of a packet: small, fixed, protocol-independent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Neighbouring packets with an equal number form a run; see the module's invariants.
    pub run: u32,
    /// State of the transport checksum.
    pub checksum: Checksum,
    /// The two ECN bits of the network header (RFC 3168, 5), beside those of its template; equal
    /// within a run.
    pub ecn: u8,
}

/// Part of a payload block, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    /// Index into the batch's blocks.
    block: u32,
    /// Where the part begins in the block.
    offset: u32,
    /// Its length.
    len: u32,
}

/// A packet's descriptor. What it says of an implied packet's header has no meaning: its model's does.
#[derive(Clone, Copy, Debug)]
struct Packet {
    header_start: u16,
    header_end: u16,
    network_start: u16,
    transport_start: u16,
    span_first: u32,
    span_count: u32,
    payload_len: u32,
    attributes: Attributes,
    /// How far in front of an implied packet its model is; zero for one whose header is written.
    distance: u16,
    /// How many packets behind this one it is the model of.
    implies: u16,
    counting: Counting,
}

/// The transmit batch. See the module documentation.
#[derive(Debug)]
pub struct Multidata {
    layout: HeaderLayout,
    limits: Limits,
    headers: Headers,
    packets: Vec<Packet>,
    spans: Vec<Span>,
    blocks: Vec<Block>,
    payload_bytes: usize,
    summed_bytes: u64,
    run_next: u32,
    /// The longest block that may be referred to.
    block_bytes_max: usize,
    /// Bytes copied since the batch was emptied, because their block was longer than that.
    copied_bytes: usize,
}

impl Default for Multidata {
    fn default() -> Self {
        Self::new(HeaderLayout::default(), Limits::default())
    }
}

impl Multidata {
    /// An empty batch with memory for `limits.packets` headers.
    #[must_use]
    pub fn new(layout: HeaderLayout, limits: Limits) -> Self {
        Self {
            layout,
            limits,
            headers: Headers::new(layout.stride_bytes as usize * limits.packets),
            packets: Vec::with_capacity(limits.packets),
            spans: Vec::with_capacity(2 * limits.packets),
            blocks: Vec::with_capacity(limits.blocks),
            payload_bytes: 0,
            summed_bytes: 0,
            run_next: 0,
            block_bytes_max: usize::MAX,
            copied_bytes: 0,
        }
    }

    /// Sets the longest block in bytes, at least one, that packets pushed from now on may refer to:
    /// what lies in longer ones is copied into blocks of their own, so that a device that cannot be
    /// shown a long block sends what is in it all the same.
    pub fn set_block_bytes_max(&mut self, block_bytes_max: usize) {
        self.block_bytes_max = block_bytes_max.max(1);
    }

    /// Payload bytes copied since the batch was emptied, because their blocks were too long or too many.
    #[must_use]
    pub fn copied_bytes(&self) -> usize {
        self.copied_bytes
    }

    /// How large the batch may grow.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Changes how large the batch may grow; it holds for packets pushed from now on.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
        self.headers.grow(self.layout.stride_bytes as usize * limits.packets);
    }

    /// Empties the batch and lets go of all blocks; keeps its memory.
    pub fn clear(&mut self) {
        self.packets.clear();
        self.spans.clear();
        self.blocks.clear();
        self.payload_bytes = 0;
        self.summed_bytes = 0;
        self.run_next = 0;
        self.copied_bytes = 0;
    }

    /// How many packets the batch holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Whether the batch holds no packet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// How many packets may still be pushed; blocks and bytes may set an earlier end.
    #[must_use]
    pub fn room_packets(&self) -> usize {
        self.limits.packets.saturating_sub(self.packets.len())
    }

    /// How many payload bytes may still be appended.
    #[must_use]
    pub fn room_bytes(&self) -> usize {
        self.limits.payload_bytes.saturating_sub(self.payload_bytes)
    }

    /// Payload bytes of all packets.
    #[must_use]
    pub fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }

    /// Payload bytes that were read to make checksums since the batch was emptied, also for packets
    /// that were forgotten.
    #[must_use]
    pub fn summed_bytes(&self) -> u64 {
        self.summed_bytes
    }

    /// Counts `bytes` of payload that were read to make a checksum.
    pub fn count_summed(&mut self, bytes: usize) {
        self.summed_bytes += bytes as u64;
    }

    /// A run number that no packet of this batch has yet.
    pub fn next_run(&mut self) -> u32 {
        self.run_next += 1;
        self.run_next
    }

    /// Opens a packet with a transport header of `len` bytes and returns that header to be
    /// written; its bytes are those of an earlier packet. `None` where the batch is full or the
    /// header does not fit behind the headroom.
    #[inline]
    pub fn push_packet(&mut self, len: usize, attributes: Attributes) -> Option<&mut [u8]> {
        let start = self.layout.headroom_bytes;
        let end = start as usize + len;
        if self.packets.len() >= self.limits.packets || end > self.layout.stride_bytes as usize {
            return None;
        }
        let slot = self.packets.len() * self.layout.stride_bytes as usize;
        self.packets.push(Packet {
            header_start: start,
            header_end: end as u16,
            network_start: start,
            transport_start: start,
            span_first: self.spans.len() as u32,
            span_count: 0,
            payload_len: 0,
            attributes,
            distance: 0,
            implies: 0,
            counting: Counting::default(),
        });
        self.headers.written_mut().get_mut(slot + start as usize..slot + end)
    }

    /// Appends `len` bytes of `block` from `offset` to the payload of the packet pushed last, which
    /// is not an implied one. Says whether there was room for them in the batch; where not, nothing
    /// has changed.
    #[must_use]
    pub fn append_span(&mut self, block: &Block, offset: usize, len: usize) -> bool {
        if block.len() > self.block_bytes_max {
            return self.append_copy(block, offset, len);
        }
        let (Some(packet), Some(end)) = (self.packets.last_mut(), offset.checked_add(len)) else {
            return false;
        };
        if len == 0 {
            return true;
        }
        if packet.distance > 0 {
            return false;
        }
        if end > block.len() || len > self.limits.payload_bytes.saturating_sub(self.payload_bytes) {
            return false;
        }
        if !self.blocks.last().is_some_and(|last| last.is_same(block)) {
            if self.blocks.len() >= self.limits.blocks {
                return false;
            }
            self.blocks.push(block.clone());
        }
        let index = self.blocks.len() as u32 - 1;
        self.spans.push(Span { block: index, offset: offset as u32, len: len as u32 });
        packet.span_count += 1;
        packet.payload_len += len as u32;
        self.payload_bytes += len;
        true
    }

    /// Appends the bytes `range` of `payload` to the packet pushed last, as [`Multidata::append_span`] does
    /// with each of its parts. What lies in more blocks than a batch may refer to, which no batch could
    /// ever hold, is copied together. Where there was no room, a part may have been appended, so that the
    /// packet must be taken away ([`Multidata::truncate`]).
    #[must_use]
    pub fn append_chunks(&mut self, payload: &Chunks, range: Range<usize>) -> bool {
        if self.blocks_needed(payload, range.clone()) > self.limits.blocks {
            return self.append_together(payload, range);
        }
        let mut parts = payload.range(range);
        parts.all(|(block, part)| self.append_span(block, part.start, part.len()))
    }

    /// Into how many blocks the bytes `range` of `payload` come, those copied because theirs is too long.
    fn blocks_needed(&self, payload: &Chunks, range: Range<usize>) -> usize {
        let of_part = |(block, part): (&Block, Range<usize>)| match block.len() {
            len if len > self.block_bytes_max => part.len().div_ceil(self.block_bytes_max),
            _ => 1,
        };
        payload.range(range).map(of_part).sum()
    }

    #[cold]
    fn append_together(&mut self, payload: &Chunks, range: Range<usize>) -> bool {
        let parts = payload.range(range).map(|(block, part)| &block.bytes()[part]);
        if parts.clone().map(<[u8]>::len).sum::<usize>() > self.room_bytes() {
            return false;
        }
        let bytes: Vec<u8> = parts.flatten().copied().collect();
        let len = bytes.len();
        let is_appended = self.append_span(&Block::from(Bytes::from(bytes)), 0, len);
        self.copied_bytes += if is_appended { len } else { 0 };
        is_appended
    }

    /// Opens up to `count` packets behind the one pushed last, whose headers it implies: they differ
    /// from its own in the 32 bits `sequence` bytes into the transport header, which grow by the
    /// payload of each, and in what [`Multidata::count_identification`] names. Their payloads lie side
    /// by side in `block` from `offset` on and are as long as that of the packet in front. Says for
    /// how many there was room: as pushing them one by one would, and 0 where the block is too
    /// long to be referred to.
    ///
    /// Whoever calls this vouches for the packets being one run.
    pub fn push_implied(
        &mut self,
        count: usize,
        sequence: u8,
        (block, offset): (&Block, usize),
    ) -> usize {
        let Some(last) = self.packets.last().copied() else { return 0 };
        let len = last.payload_len as usize;
        if len == 0 || block.len() > self.block_bytes_max {
            return 0;
        }
        let in_block = block.len().saturating_sub(offset) / len;
        let in_batch = self.room_packets().min(self.room_bytes() / len);
        let count = count.min(in_block).min(in_batch).min(usize::from(u16::MAX - last.distance));
        let is_last = self.blocks.last().is_some_and(|last| last.is_same(block));
        if count == 0 || (!is_last && self.blocks.len() >= self.limits.blocks) {
            return 0;
        }
        if !is_last {
            self.blocks.push(block.clone());
        }
        let index = self.packets.len() - 1 - usize::from(last.distance);
        self.headers.forget_made();
        let model = &mut self.packets[index];
        model.counting.sequence = sequence;
        model.implies += count as u16;
        let (block, span) = (self.blocks.len() as u32 - 1, self.spans.len() as u32);
        self.packets.extend((0..count as u16).map(|number| Packet {
            span_first: span + u32::from(number),
            span_count: 1,
            distance: last.distance + 1 + number,
            implies: 0,
            ..last
        }));
        let spans = (0..count).map(|number| (offset + number * len) as u32);
        self.spans.extend(spans.map(|offset| Span { block, offset, len: len as u32 }));
        self.payload_bytes += count * len;
        count
    }

    /// How many packets directly behind packet `index` are implied by the same header as it.
    #[inline]
    #[must_use]
    pub fn implied_behind(&self, index: usize) -> usize {
        let Some(packet) = self.packets.get(index) else { return 0 };
        match packet.distance {
            0 => usize::from(packet.implies),
            distance => usize::from(self.model(index, packet).implies - distance),
        }
    }

    /// Says of packet `index` and those it implies that the 16 bits `identification` bytes into the
    /// network header grow by one from packet to packet, and that the checksum `checksum` bytes into
    /// it covers them. No header begins with an identification: with zero nothing counts on.
    pub fn count_identification(&mut self, index: usize, identification: u8, checksum: u8) {
        self.headers.forget_made();
        if let Some(packet) = self.packets.get_mut(index) {
            packet.counting.identification =
                NonZeroU8::new(identification).map(|identification| (identification, checksum));
        }
    }

    /// Writes the headers of those of the packets `range` that are implied, and of all behind each
    /// that have its model: from here on they have their own.
    pub fn write_headers(&mut self, range: Range<usize>) {
        let mut index = range.start;
        while index < range.end {
            index = match self.packets.get(index) {
                None => break,
                Some(Packet { distance: 0, implies: 0, .. }) => index + 1,
                Some(Packet { distance: 0, .. }) if index + 1 == range.end => break,
                Some(Packet { distance: 0, .. }) => self.write_implied(index + 1),
                Some(_) => self.write_implied(index),
            }
        }
    }

    /// Writes the header of packet `first`, which is an implied one, and of all behind it that have its
    /// model; returns where these end.
    fn write_implied(&mut self, first: usize) -> usize {
        let stride = usize::from(self.layout.stride_bytes);
        let model_at = first - usize::from(self.packets[first].distance);
        let model = self.packets[model_at];
        let (before, slots) = self.headers.written_mut().split_at_mut(first * stride);
        let range = usize::from(model.header_start)..usize::from(model.header_end);
        let header = model.header(&before[model_at * stride + range.start..][..range.len()]);
        let end = model_at + 1 + usize::from(model.implies);
        let slots = slots.chunks_exact_mut(stride);
        for (packet, slot) in self.packets[first..end].iter_mut().zip(slots) {
            derive(&header, packet.distance, &mut slot[range.clone()]);
            let Packet { span_first, span_count, .. } = *packet;
            *packet = Packet { span_first, span_count, implies: 0, ..model };
        }
        self.packets[model_at].implies = (first - model_at - 1) as u16;
        end
    }

    /// The descriptor that says of `packet`, which is `index`, what its header is.
    #[inline]
    fn model(&self, index: usize, packet: &Packet) -> &Packet {
        &self.packets[index - usize::from(packet.distance)]
    }

    /// Whether somebody looked at headers that were implied, since the batch changed last.
    #[must_use]
    pub fn has_made_headers(&self) -> bool {
        self.headers.has_made()
    }

    /// As [`Multidata::append_span`], of a block that is too long to be referred to.
    #[cold]
    fn append_copy(&mut self, block: &Block, offset: usize, len: usize) -> bool {
        let range = offset..offset.saturating_add(len);
        let Some(bytes) = block.bytes().get(range) else { return false };
        let blocks = len.div_ceil(self.block_bytes_max);
        let has_room = len <= self.room_bytes()
            && blocks <= self.limits.blocks.saturating_sub(self.blocks.len())
            && !self.packets.is_empty();
        self.copied_bytes += if has_room { len } else { 0 };
        has_room
            && bytes.chunks(self.block_bytes_max).all(|piece| {
                self.append_span(&Block::from(Bytes::copy_from_slice(piece)), 0, piece.len())
            })
    }

    /// Forgets all packets from index `len` on: what was built and not taken is built afresh.
    pub fn truncate(&mut self, len: usize) {
        let Some(first) = self.packets.get(len) else { return };
        let forgotten = &self.packets[len..];
        self.payload_bytes -=
            forgotten.iter().map(|packet| packet.payload_len as usize).sum::<usize>();
        let distance = first.distance;
        self.spans.truncate(first.span_first as usize);
        self.packets.truncate(len);
        if distance > 0 {
            self.packets[len - usize::from(distance)].implies = distance - 1;
        }
        let blocks = self.spans.last().map_or(0, |span| span.block as usize + 1);
        self.blocks.truncate(blocks);
    }

    /// Becomes the first `count` packets of `whole`, or all where it has no more: for a device that takes
    /// part of a batch from one that is shown to it in parts. Headers are copied and blocks are shared.
    pub fn set_front(&mut self, whole: &Self, count: usize) {
        self.clear();
        let count = count.min(whole.len());
        (self.layout, self.limits) = (whole.layout, whole.limits);
        self.block_bytes_max = whole.block_bytes_max;
        self.run_next = whole.run_next;
        self.headers.copy_front(&whole.headers, count * usize::from(whole.layout.stride_bytes));
        self.packets.extend_from_slice(&whole.packets[..count]);
        let spans = self.packets.last().map_or(0, |last| last.span_first + last.span_count);
        self.spans.extend_from_slice(&whole.spans[..spans as usize]);
        let blocks = self.spans.last().map_or(0, |span| span.block as usize + 1);
        self.blocks.extend_from_slice(&whole.blocks[..blocks]);
        self.payload_bytes = self.packets.iter().map(|packet| packet.payload_len as usize).sum();
        if let Some(Packet { distance: distance @ 1.., .. }) = whole.packets.get(count) {
            self.packets[count - usize::from(*distance)].implies = distance - 1;
        }
    }

    /// Grows the header of packet `index`, and of those it implies, by `len` bytes to the front and
    /// returns them to be written. `None` where there is no such packet or no room, or where it is
    /// an implied one, which has grown with its model.
    pub fn prepend(&mut self, index: usize, len: usize) -> Option<&mut [u8]> {
        let packet = self.packets.get_mut(index).filter(|packet| packet.distance == 0)?;
        let end = packet.header_start as usize;
        packet.header_start = end.checked_sub(len)? as u16;
        let slot = index * self.layout.stride_bytes as usize;
        self.headers.written_mut().get_mut(slot + end - len..slot + end)
    }

    /// The header of the last packet, to be changed.
    pub fn last_header_mut(&mut self) -> Option<&mut [u8]> {
        self.header_mut(self.packets.len().checked_sub(1)?)
    }

    /// All headers of packet `index`, to be changed; none that it implied changes with it. Who changes more than a run's packets may differ
    /// in must see to it that the packet is in none.
    pub fn header_mut(&mut self, index: usize) -> Option<&mut [u8]> {
        self.write_headers(index..index.checked_add(2)?);
        let packet = self.packets.get(index)?;
        let slot = index * self.layout.stride_bytes as usize;
        let range = slot + packet.header_start as usize..slot + packet.header_end as usize;
        self.headers.written_mut().get_mut(range)
    }

    /// Like [`Multidata::prepend`], for the network header: its start is remembered, and the
    /// result covers it and the transport header behind it, with the payload beside them.
    #[inline]
    pub fn prepend_network(
        &mut self,
        index: usize,
        len: usize,
    ) -> Option<(&mut [u8], Payload<'_>)> {
        let packet = self.packets.get_mut(index).filter(|packet| packet.distance == 0)?;
        packet.header_start = packet.header_start.checked_sub(u16::try_from(len).ok()?)?;
        packet.network_start = packet.header_start;
        let slot = index * self.layout.stride_bytes as usize;
        let range = slot + packet.header_start as usize..slot + packet.header_end as usize;
        let payload = payload(&self.spans, &self.blocks, packet);
        Some((self.headers.written_mut().get_mut(range)?, payload))
    }

    /// The transport header of packet `index` and its payload, with its length in bytes, so that a
    /// checksum over both can be filled in; what is changed is so in those it implies as well. `None`
    /// where there is no such packet, or it is an implied one.
    #[inline]
    pub fn transport_mut(&mut self, index: usize) -> Option<(&mut [u8], Payload<'_>, usize)> {
        let packet = self.packets.get(index).filter(|packet| packet.distance == 0)?;
        let slot = index * usize::from(self.layout.stride_bytes);
        let range =
            slot + usize::from(packet.transport_start)..slot + usize::from(packet.header_end);
        let payload = payload(&self.spans, &self.blocks, packet);
        let header = self.headers.written_mut().get_mut(range)?;
        Some((header, payload, packet.payload_len as usize))
    }

    /// Sets what is known of the transport checksum of packet `index`, and of those it implies.
    pub fn set_checksum(&mut self, index: usize, checksum: Checksum) {
        if self.packets.get(index).is_some_and(|packet| packet.distance > 0) {
            self.write_implied(index);
        }
        if let Some(packet) = self.packets.get_mut(index) {
            packet.attributes.checksum = checksum;
        }
    }

    /// The attributes of packet `index`.
    #[must_use]
    pub fn attributes(&self, index: usize) -> Option<Attributes> {
        self.packets.get(index).map(|packet| self.model(index, packet).attributes)
    }

    /// Packet `index`, complete.
    #[must_use]
    pub fn packet(&self, index: usize) -> Option<PacketView<'_>> {
        let packet = self.packets.get(index)?;
        Some(PacketView { batch: self, index, packet, model: self.model(index, packet) })
    }

    /// The header of packet `index` that is written: its own or its model's.
    #[inline]
    fn written_header(&self, index: usize, packet: &Packet, model: &Packet) -> &[u8] {
        let slot = (index - usize::from(packet.distance)) * usize::from(self.layout.stride_bytes);
        let slot = &self.headers.written()[slot..slot + usize::from(self.layout.stride_bytes)];
        &slot[usize::from(model.header_start)..usize::from(model.header_end)]
    }

    /// The slots of all implied headers, made at the first look at one of them.
    #[inline]
    fn made_headers(&self) -> &[u8] {
        self.headers.made(|slots| {
            let stride = usize::from(self.layout.stride_bytes);
            for (index, packet) in self.packets.iter().enumerate() {
                if packet.distance > 0 {
                    let model = self.model(index, packet);
                    let range = usize::from(model.header_start)..usize::from(model.header_end);
                    let header = model.header(self.written_header(index, packet, model));
                    derive(&header, packet.distance, &mut slots[index * stride..][range]);
                }
            }
        })
    }

    /// All packets in order.
    pub fn packets(&self) -> impl Iterator<Item = PacketView<'_>> {
        (0..self.len()).filter_map(|index| self.packet(index))
    }

    /// The payload of the packets `range` in one go, as for a super-frame: spans that lie side by
    /// side in one block come as one piece. Indices beyond the batch count for nothing.
    pub fn payload_of(&self, range: Range<usize>) -> impl Iterator<Item = &[u8]> + Clone + '_ {
        let packets = self.packets.get(range.start..range.end.min(self.len())).unwrap_or(&[]);
        let first = packets.first().map_or(0, |packet| packet.span_first as usize);
        let end = packets.last().map_or(0, |packet| packet.span_first + packet.span_count) as usize;
        let mut spans = self.spans.get(first..end).unwrap_or(&[]).iter().peekable();
        core::iter::from_fn(move || {
            let head = spans.next()?;
            let start = head.offset as usize;
            let mut end = start + head.len as usize;
            let follows =
                |span: &&Span, end: usize| span.block == head.block && span.offset as usize == end;
            while let Some(span) = spans.next_if(|span| follows(span, end)) {
                end += span.len as usize;
            }
            self.blocks.get(head.block as usize)?.bytes().get(start..end)
        })
    }

    /// The index ranges of the runs from packet `first` on; a packet that belongs to none is a run
    /// of one.
    pub fn runs(&self, first: usize) -> impl Iterator<Item = Range<usize>> + '_ {
        let mut start = first;
        core::iter::from_fn(move || {
            let head = self.packets.get(start)?.attributes;
            let same = |packet: &Packet| packet.attributes.run == head.run;
            let mut end = start + 1;
            if head.run != 0 {
                end += self.implied_behind(start);
                while self.packets.get(end).is_some_and(same) {
                    end += 1 + self.implied_behind(end);
                }
            }
            let range = start..end;
            start = end;
            Some(range)
        })
    }
}

impl Packet {
    /// Its header, `bytes`, as one that others are derived from.
    #[inline]
    fn header<'a>(&self, bytes: &'a [u8]) -> Model<'a> {
        Model {
            bytes,
            network: usize::from(self.network_start - self.header_start),
            transport: usize::from(self.transport_start - self.header_start),
            payload_len: self.payload_len,
            counting: self.counting,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_in_a_block_that_is_too_long_is_copied_and_stays_the_same() {
        let bytes: Vec<u8> = (0..=255).collect();
        let block = Block::from(Bytes::from(bytes.clone()));
        let limits = Limits { packets: 4, blocks: 3, payload_bytes: 1_000 };
        let mut batch = Multidata::new(HeaderLayout::default(), limits);
        batch.set_block_bytes_max(100);
        batch.push_packet(20, Attributes::default()).expect("room");
        assert!(batch.append_span(&block, 10, 150));
        let payload = batch.packet(0).expect("a packet").payload().collect::<Vec<_>>();
        assert!(payload.iter().all(|piece| piece.len() <= 100), "no longer than may be shown");
        assert_eq!(payload.concat(), &bytes[10..160]);
        assert_eq!((batch.copied_bytes(), batch.payload_bytes()), (150, 150));
        assert!(!batch.append_span(&block, 0, 101), "two more blocks are too many");
        assert_eq!((batch.copied_bytes(), batch.payload_bytes()), (150, 150), "nothing changed");
        assert!(!batch.append_span(&block, 200, 57), "beyond the block");
        batch.clear();
        assert_eq!(batch.copied_bytes(), 0);
    }
}
