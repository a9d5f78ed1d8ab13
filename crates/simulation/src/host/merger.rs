//! A device that hands up segments of a flow as one super-frame, as cards with large receive offload do, and
//! virtual devices.
//!
//! Segments are merged that follow each other and differ in nothing but their numbers: each as long as the
//! first but for the last, which alone may push or end the stream. The super-frame is a segment by itself,
//! with lengths and checksums that are right.

use crate::packet::{self, Body, Transport, flag};
use etherparse::checksum::Sum16BitWords;

/// The longest IP packet.
const LEN_MAX: usize = 65_535;

/// A frame, and of how many bytes of payload its segments are, where it is several.
pub(super) struct Merged {
    pub(super) bytes: Vec<u8>,
    pub(super) segment_len: Option<u16>,
    /// How many frames it was made of.
    pub(super) frames: usize,
}

/// A segment as far as merging it needs to know.
struct Parts {
    /// Where the packet begins in the frame, the segment and its payload.
    packet: usize,
    segment: usize,
    payload: usize,
    sequence: u32,
}

/// Merges what can be merged of these frames, in order.
pub(super) fn merged(frames: &[Vec<u8>], bare_ip: bool) -> Vec<Merged> {
    let mut out: Vec<Merged> = Vec::new();
    let mut open: Option<Parts> = None;
    for frame in frames {
        let parts = parts_of(frame, bare_ip);
        if let (Some(last), Some(first), Some(next)) = (out.last_mut(), &open, &parts)
            && extend(last, first, frame, next)
        {
            if is_last(frame, next) || frame.len() - next.payload < segment_len(last, first) {
                open = None;
            }
            continue;
        }
        open = parts.filter(|parts| !is_last(frame, parts));
        out.push(Merged { bytes: frame.clone(), segment_len: None, frames: 1 });
    }
    for (merged, parts) in out.iter_mut().filter_map(|it| {
        let parts = it.segment_len.and_then(|_| header_of(&it.bytes, bare_ip))?;
        Some((it, parts))
    }) {
        complete(&mut merged.bytes, &parts);
    }
    out
}

fn segment_len(merged: &Merged, first: &Parts) -> usize {
    merged.segment_len.map_or(merged.bytes.len() - first.payload, usize::from)
}

/// Whether nothing may be merged behind the segment.
fn is_last(frame: &[u8], parts: &Parts) -> bool {
    frame[parts.segment + 13] != flag::ACK
}

/// Adds a frame to what was merged so far, where it is what follows.
fn extend(merged: &mut Merged, first: &Parts, frame: &[u8], next: &Parts) -> bool {
    let so_far = merged.bytes.len() - first.payload;
    let len = frame.len() - next.payload;
    let each = segment_len(merged, first);
    let is_next = next.sequence == first.sequence.wrapping_add(so_far as u32);
    let fits = merged.bytes.len() + len - first.packet <= LEN_MAX;
    let flags = frame[next.segment + 13];
    let may_end = flags & !(flag::FIN | 8) == flag::ACK;
    // Whatever is no length, number, flag, or checksum.
    let same = |range: core::ops::Range<usize>| merged.bytes.get(range.clone()) == frame.get(range);
    let network = match merged.bytes[first.packet] >> 4 {
        4 => {
            same(0..first.packet + 2)
                && same(first.packet + 6..first.packet + 10)
                && same(first.packet + 12..first.segment)
        }
        _ => same(0..first.packet + 4) && same(first.packet + 6..first.segment),
    };
    let transport = first.segment == next.segment
        && first.payload == next.payload
        && same(first.segment..first.segment + 4)
        && same(first.segment + 8..first.segment + 13)
        && same(first.segment + 14..first.segment + 16)
        && same(first.segment + 18..first.payload);
    if !(is_next && fits && may_end && network && transport && len > 0 && len <= each) {
        return false;
    }
    merged.segment_len = Some(each as u16);
    merged.bytes.extend_from_slice(&frame[next.payload..]);
    merged.bytes[first.segment + 13] |= flags;
    merged.frames += 1;
    true
}

/// A segment with data in a packet of its own that is sound and says nothing urgent.
fn parts_of(frame: &[u8], bare_ip: bool) -> Option<Parts> {
    let read = packet::read(frame, !bare_ip).ok()?;
    let Body::Ip(ip) = &read.body else { return None };
    let Transport::Tcp(segment) = &ip.transport else { return None };
    let plain = segment.flags & !(flag::FIN | 8) == flag::ACK && !segment.payload.is_empty();
    header_of(frame, bare_ip).filter(|_| plain && ip.trailer_len == 0)
}

/// Where the headers are in a frame with a segment.
fn header_of(frame: &[u8], bare_ip: bool) -> Option<Parts> {
    let packet = if bare_ip { 0 } else { 14 };
    let network_len = match *frame.get(packet)? {
        first @ 0x40..0x50 => usize::from(first & 15) * 4,
        0x60..0x70 if frame.get(packet + 6) == Some(&6) => 40,
        _ => return None,
    };
    let segment = packet + network_len;
    let payload = segment + usize::from(frame.get(segment + 12)? >> 4) * 4;
    let sequence = frame.get(segment + 4..segment + 8)?.try_into().ok().map(u32::from_be_bytes)?;
    Some(Parts { packet, segment, payload, sequence })
}

/// Lengths and checksums of a frame that has grown.
fn complete(bytes: &mut [u8], parts: &Parts) {
    let len = bytes.len() - parts.segment;
    let (addresses, checksum) = match bytes[parts.packet] >> 4 {
        4 => {
            let total = (bytes.len() - parts.packet) as u16;
            let header = &mut bytes[parts.packet..parts.segment];
            header[2..4].copy_from_slice(&total.to_be_bytes());
            header[10..12].fill(0);
            let sum = Sum16BitWords::new().add_slice(header).ones_complement();
            header[10..12].copy_from_slice(&sum.to_ne_bytes());
            (parts.packet + 12..parts.packet + 20, parts.segment + 16)
        }
        _ => {
            bytes[parts.packet + 4..parts.packet + 6].copy_from_slice(&(len as u16).to_be_bytes());
            (parts.packet + 8..parts.packet + 40, parts.segment + 16)
        }
    };
    bytes[checksum..checksum + 2].fill(0);
    let sum = Sum16BitWords::new()
        .add_slice(&bytes[addresses])
        .add_2bytes([0, 6])
        .add_4bytes((len as u32).to_be_bytes())
        .add_slice(&bytes[parts.segment..])
        .ones_complement();
    bytes[checksum..checksum + 2].copy_from_slice(&sum.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::PacketBuilder;

    fn frame(is_ipv6: bool, sequence: u32, payload: &[u8], last: bool) -> Vec<u8> {
        let builder = match is_ipv6 {
            false => PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64),
            true => PacketBuilder::ipv6([1; 16], [2; 16], 64),
        };
        let builder = builder.tcp(80, 50_000, sequence, 900).ack(77);
        let builder = if last { builder.psh().fin() } else { builder };
        let mut frame = Vec::new();
        builder.write(&mut frame, payload).expect("a packet");
        frame
    }

    #[test]
    fn segments_that_follow_each_other_are_one_and_sound() {
        for is_ipv6 in [false, true] {
            let frames = [
                frame(is_ipv6, 1, &[1; 500], false),
                frame(is_ipv6, 501, &[2; 500], false),
                frame(is_ipv6, 1_001, &[3; 20], true),
                frame(is_ipv6, 1_021, &[4; 20], false),
                frame(is_ipv6, 2_000, &[5; 20], false),
            ];
            let merged = merged(&frames, true);
            let made: Vec<_> = merged.iter().map(|it| (it.frames, it.segment_len)).collect();
            assert_eq!(made, [(3, Some(500)), (1, None), (1, None)]);
            let read = packet::read(&merged[0].bytes, false).expect("sound");
            let Body::Ip(ip) = &read.body else { panic!("IP") };
            let Transport::Tcp(segment) = &ip.transport else { panic!("TCP") };
            assert_eq!(segment.payload.len(), 1_020);
            assert!(segment.has(flag::FIN | flag::ACK) && segment.sequence == 1);
            let network = if is_ipv6 { 40 } else { 20 };
            assert_eq!(merged[0].bytes.len(), network + 20 + 1_020);
        }
    }
}
