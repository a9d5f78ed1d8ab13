//! Lowering: what of a Multidata crosses to the device, in each transmit mode.
//!
//! A Multidata holds real packets, and every mode sends these packets. What differs is how many
//! of them lie in a batch and the form in which the device is handed them:
//!
//! | mode | lowered form | here |
//! |---|---|---|
//! | `single`, `chain`, `multidata` | each packet by itself, header and payload pieces | [`frames`] |
//! | `contiguous` | 1 to 43 frames in one block, cut below | [`blocks`] |
//! | `lso` | one header and one long payload, split below | [`frames`] with a [`Segmentation`] |
//!
//! A device says which forms it can be handed ([`Forms`](crate::Forms)); one in which it would get what
//! `multidata` is there, it does not have, and the stack then falls back to that.
//!
//! Of the first three, `single` has one packet in a call. A `chain` has many in a call, but every
//! one stands for itself: its own buffers are mapped or listed, its own descriptor is filled in and
//! posted, as where packets are linked by `b_next` (seed 000, 3.1). A `multidata` is one thing to
//! the device: what can be done once for all of its packets (memory, locks, descriptors) is.
//!
//! A device that takes super-frames (a virtio-net header in front
//! of a TAP frame, a NIC with TSO) costs far less per byte when it gets one header and one long
//! payload instead. [`frames`] says which neighbouring packets can go as one;
//! [`SuperFrame::header`] makes their common header and [`Multidata::payload_of`] gives their
//! payload. [`expand`] is the way back, as a segmentation engine goes it. Frames of several datagrams
//! only come up, and are cut at once ([`DatagramRun`]).
//!
//! What always holds: whatever is lowered in whatever mode expands to the packets of the batch,
//! byte for byte. A super-frame, split by a correct engine, yields exactly the packets it was
//! made of, byte for byte, checksums included (with IPv4 identifications that count up by one). So
//! a super-frame ends behind a packet with PSH or FIN and behind one that is shorter than the
//! first, and a packet with CWR begins a new one, because an engine leaves CWR on the first
//! segment and PSH and FIN on the last. What cannot be merged goes singly; nothing is ever lost.
//!
//! The rest is vouched for by the run (see [`batch::Multidata`]): sequence numbers follow each
//! other and all other header fields agree. Debug builds check that too.

mod contiguous;
mod datagrams;

pub use contiguous::{
    BLOCK_LEN_MAX, BlockForm, BlockFrame, Contiguous, FRAME_ALIGN_BYTES, FRAMES_MAX, FrameBlock,
    FrameBlocks, FrameDescriptor, PartialChecksum, Split, blocks,
};
pub use datagrams::{DATAGRAMS_MAX, DatagramRun};

use crate::Segmentation;
use batch::{Checksum, Multidata, PacketView, Payload};
use core::ops::Range;

/// The longest header of a super-frame in bytes: a slot of the default header layout.
pub const HEADER_LEN_MAX: usize = 192;

/// The longest IP packet in bytes, which its length field can say.
const IP_LEN_MAX: usize = 65_535;

const IPV4_HEADER_LEN_MIN: usize = 20;
const IPV6_HEADER_LEN: usize = 40;
const TCP_HEADER_LEN_MIN: usize = 20;
const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;

/// Offset of the checksum field in a TCP header (RFC 9293, 3.1).
const TCP_CHECKSUM: u8 = 16;
/// Offset of the checksum field in a UDP header (RFC 768).
const UDP_CHECKSUM: u8 = 6;
const TCP_FLAGS: usize = 13;
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const PSH: u8 = 0x08;
const URG: u8 = 0x20;
const CWR: u8 = 0x80;

/// Which IP a super-frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkVersion {
    /// IPv4: the length field counts the header, and the header has a checksum.
    Ipv4,
    /// IPv6: the length field does not count the header.
    Ipv6,
}

/// Packets of a batch that go to the device as one frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuperFrame {
    /// Their indices in the batch; never empty.
    pub packets: Range<usize>,
    /// Payload bytes of each packet but the last. Zero where the frame is a packet as it stands:
    /// its header and its checksum state are those of the packet.
    pub segment_len: u16,
    /// Payload bytes of all of them.
    pub payload_len: usize,
    /// Which IP the merged packets are; without meaning where `segment_len` is zero.
    pub version: NetworkVersion,
}

impl SuperFrame {
    /// Packet `index` of `batch` as a frame of its own; `None` where there is no such packet.
    #[must_use]
    pub fn single(batch: &Multidata, index: usize) -> Option<Self> {
        Some(Self {
            packets: index..index + 1,
            segment_len: 0,
            payload_len: batch.packet(index)?.payload_len(),
            version: NetworkVersion::Ipv4,
        })
    }

    /// Whether several packets were merged, so that the device must split the frame.
    #[must_use]
    pub fn is_merged(&self) -> bool {
        self.segment_len != 0
    }

    /// The frame's header: that of the packet as it stands, or, where several were merged, a copy
    /// of the first one's in `scratch` with the length of the whole, the flags of the last packet
    /// and the sum of the pseudo-header in the checksum field, which the device completes for each
    /// segment. `None` where `batch` is not the one the frame was made of.
    pub fn header<'a>(
        &self,
        batch: &'a Multidata,
        scratch: &'a mut [u8; HEADER_LEN_MAX],
    ) -> Option<&'a [u8]> {
        let first = batch.packet(self.packets.start)?;
        if !self.is_merged() {
            return first.header_in(scratch);
        }
        let last = batch.packet(self.packets.end.checked_sub(1)?)?;
        let header = first.copy_header(scratch)?;
        let (network, transport) = (first.link_header_len(), first.transport_offset());
        let added = self.payload_len.checked_sub(first.payload_len())?;
        match self.version {
            NetworkVersion::Ipv4 => {
                let length = word(header, network + 2)?;
                let total = u16::try_from(length as usize + added).ok()?;
                let checksum = checksum::update(word(header, network + 10)?, length, total);
                put(header, network + 2, total)?;
                put(header, network + 10, checksum)?;
            }
            NetworkVersion::Ipv6 => {
                let length = word(header, network + 4)?;
                put(header, network + 4, u16::try_from(length as usize + added).ok()?)?;
            }
        }
        *header.get_mut(transport + TCP_FLAGS)? |=
            last.written_header().get(transport + TCP_FLAGS)? & (PSH | FIN);
        let field = transport + TCP_CHECKSUM as usize;
        let segment = first.header_len() - transport + first.payload_len();
        let sum = replace_in_sum(word(header, field)?, segment, segment + added)?;
        put(header, field, sum)?;
        Some(header)
    }
}

/// The frames in which the packets of `batch` from index `first` on go to a device: each by itself,
/// or where `segmentation` says what the device splits, runs of them as super-frames. Together
/// they cover every packet once, in order.
pub fn frames(
    batch: &Multidata,
    first: usize,
    segmentation: Option<Segmentation>,
) -> SuperFrames<'_> {
    SuperFrames { batch, segmentation, next: first, run_end: first }
}

/// As [`frames`], for a device that splits what `limits` says.
pub fn super_frames(batch: &Multidata, first: usize, limits: Segmentation) -> SuperFrames<'_> {
    frames(batch, first, Some(limits))
}

/// Iterator of [`frames`].
#[derive(Clone, Debug)]
pub struct SuperFrames<'a> {
    batch: &'a Multidata,
    segmentation: Option<Segmentation>,
    next: usize,
    run_end: usize,
}

impl Iterator for SuperFrames<'_> {
    type Item = SuperFrame;

    fn next(&mut self) -> Option<SuperFrame> {
        let start = self.next;
        let merged = self.segmentation.and_then(|limits| self.merged(start, limits));
        let frame = merged.or_else(|| SuperFrame::single(self.batch, start))?;
        self.next = frame.packets.end;
        Some(frame)
    }
}

impl SuperFrames<'_> {
    /// As many packets from `start` on as go together; `None` where that is only one.
    fn merged(&mut self, start: usize, limits: Segmentation) -> Option<SuperFrame> {
        if start >= self.run_end {
            self.run_end = self.batch.runs(start).next()?.end;
        }
        if self.run_end - start < 2 {
            return None;
        }
        let head = &self.batch.packet(start)?;
        let version = mergeable_head(head, limits)?;
        let segment_len = head.payload_len();
        let len_max = limits.len_bytes_max.min(IP_LEN_MAX);
        let network_len = head.len() - head.link_header_len();
        let room = len_max.saturating_sub(network_len);
        let (mut end, mut payload_len) = (start + 1, segment_len);
        while end < self.run_end {
            let Some(packet) = self.batch.packet(end) else { break };
            let Some(flags) = follows(head, &packet) else { break };
            let len = packet.payload_len();
            // What is implied behind it says the same and is as long: nothing more to ask.
            let alike = 1 + self.batch.implied_behind(end);
            let fit = alike.min((room + segment_len - payload_len) / len);
            payload_len += fit * len;
            end += fit;
            if fit < alike || len < segment_len || flags & (PSH | FIN) != 0 {
                break;
            }
        }
        debug_assert!(agree(self.batch, start..end), "a run that is none");
        let segment_len = u16::try_from(segment_len).ok()?;
        (end > start + 1).then_some(SuperFrame {
            packets: start..end,
            segment_len,
            payload_len,
            version,
        })
    }
}

/// Which IP a packet is that may stand at the front of a super-frame.
fn mergeable_head(packet: &PacketView<'_>, limits: Segmentation) -> Option<NetworkVersion> {
    let header = packet.written_header();
    let (network, transport) = (packet.link_header_len(), packet.transport_offset());
    let version = network_version(header.get(network..transport)?, PROTOCOL_TCP)?;
    let allowed = match version {
        NetworkVersion::Ipv4 => limits.tcp_ipv4,
        NetworkVersion::Ipv6 => limits.tcp_ipv6,
    };
    let flags = header.get(transport + TCP_FLAGS)?;
    let header_len = tcp_header_len(header.get(transport..)?)?;
    let fits = header.len() <= HEADER_LEN_MAX
        && transport + header_len == header.len()
        && packet.attributes().checksum == Checksum::Partial { offset: TCP_CHECKSUM }
        && packet.payload_len() > 0
        && flags & (SYN | RST | URG | PSH | FIN) == 0;
    (allowed && fits).then_some(version)
}

/// The flags of a packet that may stand behind `head` in a super-frame.
fn follows(head: &PacketView<'_>, packet: &PacketView<'_>) -> Option<u8> {
    let flags = *packet.written_header().get(head.transport_offset() + TCP_FLAGS)?;
    let alike = packet.header_len() == head.header_len()
        && packet.transport_offset() == head.transport_offset()
        && packet.link_header_len() == head.link_header_len()
        && packet.attributes().checksum == head.attributes().checksum
        && (1..=head.payload_len()).contains(&packet.payload_len())
        && flags & (SYN | RST | URG | CWR) == 0;
    alike.then_some(flags)
}

/// What a run vouches for: the packets `range` are what an engine would make of the first of them.
fn agree(batch: &Multidata, range: Range<usize>) -> bool {
    let (first, mut offset) = (range.start, 0);
    range.map_while(|index| batch.packet(index)).enumerate().all(|(index, packet)| {
        let is_like = batch.packet(first).is_some_and(|head| agrees(&head, &packet, offset, index));
        offset += packet.payload_len();
        is_like
    })
}

/// Whether `packet`, the `index`th behind `head`, is what an engine would make of `head` `offset`
/// payload bytes further on.
fn agrees(head: &PacketView<'_>, packet: &PacketView<'_>, offset: usize, index: usize) -> bool {
    let (mut wanted, mut header) = ([0; HEADER_LEN_MAX], [0; HEADER_LEN_MAX]);
    let (network, transport) = (head.link_header_len(), head.transport_offset());
    let Some(wanted) = head.copy_header(&mut wanted) else { return false };
    let Some(header) = packet.copy_header(&mut header) else { return false };
    if header.len() != wanted.len() {
        return false;
    }
    // Lengths, checksums and the flags of the end differ by right.
    let mut by_right = vec![transport + TCP_FLAGS, transport + 16, transport + 17];
    if header[network] >> 4 == 4 {
        by_right.extend([network + 2, network + 3, network + 10, network + 11]);
        let identification = word(wanted, network + 4).map(|id| id.wrapping_add(index as u16));
        identification.and_then(|id| put(wanted, network + 4, id));
    } else {
        by_right.extend([network + 4, network + 5]);
    }
    advance_sequence(wanted, transport, offset);
    (0..header.len()).all(|at| by_right.contains(&at) || header[at] == wanted[at])
}

/// Splits a frame as a segmentation engine does: `frame` is an IP packet of TCP behind
/// `network_offset` bytes of link header, its checksum field the pseudo-header's sum. The packets
/// come out complete. With a `segment_len` of zero the frame is one packet and only completed.
///
/// `None` where the frame is not what it should be. This is what a device or a driver does that has
/// no hardware for it, and what shows that lowering loses nothing; it allocates.
#[must_use]
pub fn expand(frame: &[u8], network_offset: usize, segment_len: u16) -> Option<Vec<Vec<u8>>> {
    let network = frame.get(network_offset..)?;
    let version = network_version(network, PROTOCOL_TCP)?;
    let network_len = match version {
        NetworkVersion::Ipv4 => (network.first()? & 0x0f) as usize * 4,
        NetworkVersion::Ipv6 => IPV6_HEADER_LEN,
    };
    let transport = network_offset + network_len;
    let header_len = tcp_header_len(frame.get(transport..)?)?;
    let header = frame.get(..transport + header_len)?;
    let payload = frame.get(transport + header_len..)?;
    let segment_len = if segment_len == 0 { payload.len() } else { segment_len as usize };
    let count = payload.len().div_ceil(segment_len.max(1)).max(1);
    (0..count)
        .map(|index| {
            let offset = index * segment_len;
            let part = &payload[offset..payload.len().min(offset + segment_len)];
            let mut packet = [header, part].concat();
            stamp_network(&mut packet, network_offset, network_len, version, index)?;
            advance_sequence(&mut packet, transport, offset);
            if index > 0 {
                packet[transport + TCP_FLAGS] &= !CWR;
            }
            if index + 1 < count {
                packet[transport + TCP_FLAGS] &= !(PSH | FIN);
            }
            let field = transport + TCP_CHECKSUM as usize;
            let was = header_len + payload.len();
            let sum = replace_in_sum(word(&packet, field)?, was, header_len + part.len())?;
            put(&mut packet, field, sum)?;
            complete_checksum(&mut packet, transport, TCP_CHECKSUM)?;
            Some(packet)
        })
        .collect()
}

/// Copies a packet end to end to the beginning of `out`, as it leaves a device: its checksum complete,
/// unless it is missing. Says how long it is. `None` where there is no room for it, or where its checksum
/// does not lie in it.
pub fn copy_complete(packet: &PacketView<'_>, out: &mut [u8]) -> Option<usize> {
    let len = packet.copy_to(out)?;
    if let Checksum::Partial { offset } = packet.attributes().checksum {
        complete_checksum(out.get_mut(..len)?, packet.transport_offset(), offset)?;
    }
    Some(len)
}

/// Fills in the checksum of a packet whose field, `offset` bytes into the transport header, holds
/// the sum of the pseudo-header ([`Checksum::Partial`]). `None` where the field lies outside.
pub fn complete_checksum(packet: &mut [u8], transport_offset: usize, offset: u8) -> Option<()> {
    let field = transport_offset + offset as usize;
    packet.get(field..field + 2)?;
    let sum = checksum::sum(packet.get(transport_offset..)?);
    put(packet, field, of_sum(sum, offset))
}

/// The same where the packet lies in two places: all of its headers in `header`, which is changed, and
/// its payload elsewhere.
pub fn complete_checksum_apart(
    header: &mut [u8],
    payload: Payload<'_>,
    transport_offset: usize,
    offset: u8,
) -> Option<()> {
    let field = transport_offset + offset as usize;
    header.get(field..field + 2)?;
    let mut sum = checksum::Accumulator::new();
    sum.add(header.get(transport_offset..)?);
    payload.add_to(&mut sum);
    put(header, field, of_sum(sum.sum(), offset))
}

/// The checksum of what sums up to `sum`, for a field at `offset` in the transport header.
fn of_sum(sum: u16, offset: u8) -> u16 {
    match !sum {
        // RFC 768: a computed zero is sent as all ones, because zero means none.
        0 if offset == UDP_CHECKSUM => 0xffff,
        checksum => checksum,
    }
}

/// Sets what the IP header of segment `index` has of its own.
fn stamp_network(
    packet: &mut [u8],
    network: usize,
    network_len: usize,
    version: NetworkVersion,
    index: usize,
) -> Option<()> {
    let total = packet.len() - network;
    match version {
        NetworkVersion::Ipv4 => {
            put(packet, network + 2, u16::try_from(total).ok()?)?;
            let identification = word(packet, network + 4)?;
            put(packet, network + 4, identification.wrapping_add(index as u16))?;
            put(packet, network + 10, 0)?;
            let checksum = !checksum::sum(packet.get(network..network + network_len)?);
            put(packet, network + 10, checksum)
        }
        NetworkVersion::Ipv6 => put(packet, network + 4, u16::try_from(total - network_len).ok()?),
    }
}

/// Which IP the header is, where it carries a whole packet of `protocol` and nothing stands between.
fn network_version(network: &[u8], protocol: u8) -> Option<NetworkVersion> {
    match network.first()? >> 4 {
        4 => {
            // Not a fragment: RFC 791, 3.1, "more fragments" clear and an offset of zero.
            let whole = network.len() >= IPV4_HEADER_LEN_MIN && word(network, 6)? & 0x3fff == 0;
            (whole && *network.get(9)? == protocol).then_some(NetworkVersion::Ipv4)
        }
        6 => (*network.get(6)? == protocol && network.len() >= IPV6_HEADER_LEN)
            .then_some(NetworkVersion::Ipv6),
        _ => None,
    }
}

/// Length of a TCP header in bytes, where it is one (RFC 9293, 3.1, data offset).
fn tcp_header_len(transport: &[u8]) -> Option<usize> {
    let len = (transport.get(12)? >> 4) as usize * 4;
    (len >= TCP_HEADER_LEN_MIN && len <= transport.len()).then_some(len)
}

fn advance_sequence(packet: &mut [u8], transport: usize, offset: usize) {
    if let Some(field) = packet.get_mut(transport + 4..transport + 8)
        && let Ok(bytes) = <[u8; 4]>::try_from(&*field)
    {
        let sequence = u32::from_be_bytes(bytes).wrapping_add(offset as u32);
        field.copy_from_slice(&sequence.to_be_bytes());
    }
}

/// A sum in which the summand `old` has become `new`; `None` where a length exceeds its field.
fn replace_in_sum(sum: u16, old: usize, new: usize) -> Option<u16> {
    Some(!checksum::update(!sum, u16::try_from(old).ok()?, u16::try_from(new).ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

fn put(bytes: &mut [u8], at: usize, value: u16) -> Option<()> {
    bytes.get_mut(at..at + 2)?.copy_from_slice(&value.to_be_bytes());
    Some(())
}

#[cfg(test)]
mod tests;
