//! A middlebox before a host that sends segments on in fragments, whatever they forbid.
//!
//! Some tunnels and translators do, so a stack has to bear with it: a fragment behind the first has no
//! ports, and a device cannot tell whose it is. Who watches the wire is told of the whole segment when its
//! last missing piece has arrived.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Segments in pieces that are remembered: more than the queues of a path hold.
const SEGMENTS_MAX: usize = 16_384;

/// What the middlebox cut.
#[derive(Default)]
pub(super) struct Cutter {
    identification: u16,
    cut: BTreeMap<u16, Cut>,
    /// In the order in which they were cut.
    order: VecDeque<u16>,
}

/// A segment, and where the pieces begin that have not arrived.
struct Cut {
    whole: Vec<u8>,
    missing: BTreeSet<usize>,
}

/// A TCP segment in a packet of its own, as far as cutting it needs to know.
struct Parts {
    /// Where the packet begins in the frame, and where the segment does.
    packet: usize,
    segment: usize,
    end: usize,
    is_ipv6: bool,
}

const FRAGMENT_HEADER_LEN: usize = 8;
const TCP: u8 = 6;
const IPV6_FRAGMENT: u8 = 44;

impl Cutter {
    /// The fragments of a frame with a segment that is longer than `mtu`; `None` for other frames.
    pub(super) fn cut(&mut self, frame: &[u8], bare_ip: bool, mtu: usize) -> Option<Vec<Vec<u8>>> {
        let parts = parts_of(frame, bare_ip)?;
        if parts.end - parts.packet <= mtu {
            return None;
        }
        self.identification = self.identification.wrapping_add(1);
        let extra = if parts.is_ipv6 { FRAGMENT_HEADER_LEN } else { 0 };
        let step = (mtu - (parts.segment - parts.packet) - extra) / 8 * 8;
        let pieces = frame[parts.segment..parts.end].chunks(step).enumerate();
        let fragments: Vec<_> = pieces
            .map(|(index, piece)| {
                let (at, end) = (index * step, index * step + piece.len());
                let more = parts.segment + end < parts.end;
                fragment(frame, &parts, self.identification, (at, more), piece)
            })
            .collect();
        let missing = (0..fragments.len()).map(|index| index * step).collect();
        if self.order.len() == SEGMENTS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.cut.remove(&oldest);
        }
        self.order.push_back(self.identification);
        self.cut.insert(self.identification, Cut { whole: frame.to_vec(), missing });
        Some(fragments)
    }

    /// A frame was handed up: the segment of which it was the last missing piece.
    pub(super) fn on_arrived(&mut self, frame: &[u8], bare_ip: bool) -> Option<Vec<u8>> {
        let packet = frame.get(if bare_ip { 0 } else { 14 }..)?;
        let word = |at: usize| packet.get(at..at + 2).map(|it| u16::from_be_bytes([it[0], it[1]]));
        let (identification, at) = match packet.first()? >> 4 {
            4 if packet.get(9) == Some(&TCP) => (word(4)?, usize::from(word(6)? & 0x1fff) * 8),
            6 if packet.get(6) == Some(&IPV6_FRAGMENT) && packet.get(40) == Some(&TCP) => {
                (word(46)?, usize::from(word(42)? & 0xfff8))
            }
            _ => return None,
        };
        let cut = self.cut.get_mut(&identification)?;
        cut.missing.remove(&at);
        if !cut.missing.is_empty() {
            return None;
        }
        // Pieces may come twice, and make a second whole.
        self.cut.remove(&identification).map(|cut| cut.whole)
    }
}

fn parts_of(frame: &[u8], bare_ip: bool) -> Option<Parts> {
    let packet = if bare_ip { 0 } else { 14 };
    let bytes = frame.get(packet..)?;
    let is_ipv6 = bytes.first()? >> 4 == 6;
    let (segment, len, protocol) = match is_ipv6 {
        false => {
            let is_whole = *bytes.get(6)? & 0x3f == 0 && *bytes.get(7)? == 0;
            let header_len = usize::from(bytes[0] & 15) * 4;
            let len = usize::from(u16::from_be_bytes([bytes[2], bytes[3]]));
            // RFC 1812, 5.2.2: what was damaged is not given a new checksum.
            let header = bytes.get(..header_len)?;
            let sum = etherparse::checksum::Sum16BitWords::new().add_slice(header);
            let is_sound = is_whole && sum.ones_complement() == 0;
            (header_len, len, (*bytes.get(9)?, is_sound))
        }
        true => {
            let len = 40 + usize::from(u16::from_be_bytes([*bytes.get(4)?, *bytes.get(5)?]));
            (40, len, (*bytes.get(6)?, true))
        }
    };
    let is_sound = protocol == (TCP, true) && len <= bytes.len() && segment < len;
    is_sound.then_some(Parts { packet, segment: packet + segment, end: packet + len, is_ipv6 })
}

/// One fragment: `at` which byte of the segment, and whether more follow.
fn fragment(
    frame: &[u8],
    parts: &Parts,
    identification: u16,
    (at, more): (usize, bool),
    piece: &[u8],
) -> Vec<u8> {
    let mut bytes = frame[..parts.segment].to_vec();
    let header = &mut bytes[parts.packet..];
    if parts.is_ipv6 {
        // RFC 8200, 4.5.
        let len = (FRAGMENT_HEADER_LEN + piece.len()) as u16;
        header[4..6].copy_from_slice(&len.to_be_bytes());
        header[6] = IPV6_FRAGMENT;
        bytes.extend([TCP, 0]);
        bytes.extend((at as u16 | u16::from(more)).to_be_bytes());
        bytes.extend([0xc0, 0xde]);
        bytes.extend(identification.to_be_bytes());
    } else {
        // RFC 791, 3.2; what forbids it is cleared.
        let len = (header.len() + piece.len()) as u16;
        header[2..4].copy_from_slice(&len.to_be_bytes());
        header[4..6].copy_from_slice(&identification.to_be_bytes());
        let offset = (at / 8) as u16 | u16::from(more) << 13;
        header[6..8].copy_from_slice(&offset.to_be_bytes());
        header[10..12].fill(0);
        let sum = etherparse::checksum::Sum16BitWords::new().add_slice(header).ones_complement();
        header[10..12].copy_from_slice(&sum.to_ne_bytes());
    }
    bytes.extend(piece);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::PacketBuilder;

    /// The stack's own parser puts together what the middlebox cut.
    #[test]
    fn fragments_are_those_of_the_segment_and_the_last_one_brings_it() {
        for is_ipv6 in [false, true] {
            let payload = vec![7; 1_400];
            let builder = match is_ipv6 {
                false => PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64),
                true => PacketBuilder::ipv6([1; 16], [2; 16], 64),
            };
            let mut frame = Vec::new();
            builder.tcp(80, 50_000, 1, 1).write(&mut frame, &payload).expect("a packet");
            let mut cutter = Cutter::default();
            let fragments = cutter.cut(&frame, true, 600).expect("it is too long");
            assert_eq!(fragments.len(), 3);
            let header_len = if is_ipv6 { 40 } else { 20 };
            let mut segment: Vec<u8> = Vec::new();
            for bytes in &fragments {
                assert!(bytes.len() <= 600);
                assert!(cutter.cut(bytes, true, 500).is_none(), "fragments stay as they are");
                let fragment = ip::parse_fragment(bytes).expect("a fragment");
                segment.extend(&bytes[fragment.data]);
            }
            assert_eq!(segment, frame[header_len..]);
            let whole =
                |cutter: &mut Cutter, index: usize| cutter.on_arrived(&fragments[index], true);
            assert_eq!(whole(&mut cutter, 2), None);
            assert_eq!(whole(&mut cutter, 0), None);
            assert_eq!(whole(&mut cutter, 0), None);
            assert_eq!(whole(&mut cutter, 1).as_deref(), Some(&frame[..]));
            assert!(cutter.cut(&frame, true, 1_500).is_none(), "it fits");
        }
    }
}
