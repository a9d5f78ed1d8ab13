//! A middlebox before a host that sends segments on in fragments, whatever they forbid.
//!
//! Some tunnels and translators do, so a stack has to bear with it: a fragment behind the first has no
//! ports, and a device cannot tell whose it is. Who watches the wire is told of the whole segment when its
//! last missing piece has arrived. A piece whose header was damaged has not. One whose data was damaged takes its place
//! all the same: the checksum of the whole shows it, and a sound copy that comes meanwhile contradicts it (RFC 5722).

use etherparse::checksum::Sum16BitWords;
use std::collections::{BTreeMap, VecDeque};

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

/// A segment, the frames of its pieces by where they begin, and which have arrived: sound or not.
struct Cut {
    whole: Vec<u8>,
    pieces: BTreeMap<usize, Vec<u8>>,
    arrived: BTreeMap<usize, bool>,
    /// Two that arrived contradict each other: all that comes of it is dropped.
    is_broken: bool,
}

/// A TCP segment in a packet of its own, as far as cutting it needs to know.
struct Parts {
    /// Where the packet begins in the frame, and where the segment does.
    packet: usize,
    segment: usize,
    end: usize,
    is_ipv6: bool,
}

const IPV6_HEADER_LEN: usize = 40;
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
        let pieces = fragments.iter().enumerate().map(|(index, it)| (index * step, it.clone()));
        let (pieces, arrived) = (pieces.collect(), BTreeMap::new());
        if self.order.len() == SEGMENTS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.cut.remove(&oldest);
        }
        self.order.push_back(self.identification);
        let cut = Cut { whole: frame.to_vec(), pieces, arrived, is_broken: false };
        self.cut.insert(self.identification, cut);
        Some(fragments)
    }

    /// A frame was handed up: the segment of which it was the last missing piece.
    pub(super) fn on_arrived(&mut self, frame: &[u8], bare_ip: bool) -> Option<Vec<u8>> {
        let link_len = if bare_ip { 0 } else { 14 };
        let packet = frame.get(link_len..)?;
        let word = |at: usize| packet.get(at..at + 2).map(|it| u16::from_be_bytes([it[0], it[1]]));
        let (identification, at) = match packet.first()? >> 4 {
            4 if packet.get(9) == Some(&TCP) => (word(4)?, usize::from(word(6)? & 0x1fff) * 8),
            6 if packet.get(6) == Some(&IPV6_FRAGMENT) => {
                (word(46)?, usize::from(word(42)? & 0xfff8))
            }
            _ => return None,
        };
        let cut = self.cut.get_mut(&identification)?;
        let is_sound = is_data_sound(frame, cut.pieces.get(&at)?, link_len)?;
        match cut.arrived.get(&at) {
            // A copy is dropped alone.
            Some(true) if is_sound => return None,
            Some(_) => cut.is_broken = true,
            None => drop(cut.arrived.insert(at, is_sound)),
        }
        if cut.is_broken || cut.arrived.len() < cut.pieces.len() {
            return None;
        }
        // Pieces may come twice, and make a second whole.
        let are_sound = core::mem::take(&mut cut.arrived).into_values().all(|is_sound| is_sound);
        are_sound.then(|| cut.whole.clone())
    }
}

/// Whether the data of a fragment is as it was sent; `None` where of its headers more is changed than what its host does
/// not look at, or a mark of congestion.
fn is_data_sound(frame: &[u8], sent: &[u8], link_len: usize) -> Option<bool> {
    let got = frame.get(..sent.len())?;
    let is_ipv6 = sent[link_len] >> 4 == 6;
    let (got_packet, packet) = (&got[link_len..], &sent[link_len..]);
    // From whatever station it is.
    let is_same_link = link_len == 0 || (got[..6] == sent[..6] && got[12..14] == sent[12..14]);
    if !is_ipv6 {
        let header_len = usize::from(packet[0] & 15) * 4;
        let sum = Sum16BitWords::new().add_slice(&got_packet[..header_len]).ones_complement();
        // Another host's fragments may have the same identification.
        let is_its_own = got_packet[4..8] == packet[4..8] && got_packet[12..20] == packet[12..20];
        let is_same = got_packet[header_len..] == packet[header_len..];
        return (is_same_link && is_its_own && sum == 0).then_some(is_same);
    }
    let fragment_header = &packet[IPV6_HEADER_LEN..][..FRAGMENT_HEADER_LEN];
    let is_first = u16::from_be_bytes([fragment_header[2], fragment_header[3]]) & 0xfff8 == 0;
    // RFC 8200, 4.5: what follows is said by the first fragment alone, and reserved bits are ignored. Version, traffic
    // class, flow label and hop limit stand in the first bytes and the eighth.
    let mut relevant = got_packet.to_vec();
    let ignored = [0..4, 7..8, 40..if is_first { 40 } else { 41 }, 41..42];
    ignored.into_iter().for_each(|range| relevant[range.clone()].copy_from_slice(&packet[range]));
    relevant[43] = relevant[43] & 0xf9 | packet[43] & 6;
    let data = IPV6_HEADER_LEN + FRAGMENT_HEADER_LEN;
    (is_same_link && relevant[..data] == packet[..data]).then(|| relevant[data..] == packet[data..])
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
            let sum = Sum16BitWords::new().add_slice(header);
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
        let sum = Sum16BitWords::new().add_slice(header).ones_complement();
        header[10..12].copy_from_slice(&sum.to_ne_bytes());
    }
    bytes.extend(piece);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::PacketBuilder;

    fn frame(is_ipv6: bool) -> Vec<u8> {
        let builder = match is_ipv6 {
            false => PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64),
            true => PacketBuilder::ipv6([1; 16], [2; 16], 64),
        };
        let mut frame = Vec::new();
        builder.tcp(80, 50_000, 1, 1).write(&mut frame, &[7; 1_400]).expect("a packet");
        frame
    }

    /// What a bit that fell does to a piece: it is missing, unless nobody looks at the bit.
    #[test]
    fn a_piece_that_was_damaged_is_missing() {
        // Version and length, hop limit, what follows, reserved, and data.
        let cases: [(bool, &[usize], &[usize]); 2] = [
            (false, &[], &[1, 3, 8, 9, 12, 30]),
            (true, &[1, 2, 7, 40, 41], &[5, 6, 8, 42, 47, 48, 300]),
        ];
        for (is_ipv6, ignored, relevant) in cases {
            let whole = frame(is_ipv6);
            let arrives_with = |byte: usize| {
                let mut cutter = Cutter::default();
                let mut fragments = cutter.cut(&whole, true, 600).expect("it is too long");
                fragments[1][byte] ^= 2;
                let arrived = fragments.iter().map(|it| cutter.on_arrived(it, true));
                arrived.flatten().next().is_some()
            };
            for byte in ignored {
                assert!(arrives_with(*byte), "byte {byte} of IPv6 {is_ipv6}");
            }
            for byte in relevant {
                assert!(!arrives_with(*byte), "byte {byte} of IPv6 {is_ipv6}");
            }
        }
    }

    /// The first of two copies takes the place, and a second that differs breaks the whole.
    #[test]
    fn a_sound_copy_does_not_replace_a_damaged_piece() {
        let whole = frame(true);
        let mut cutter = Cutter::default();
        let fragments = cutter.cut(&whole, true, 600).expect("it is too long");
        let mut damaged = fragments[0].clone();
        *damaged.last_mut().expect("data") ^= 2;
        let mut arrives = |frame: &[u8]| cutter.on_arrived(frame, true).is_some();
        let [first, second, third] = [0, 1, 2].map(|index| &fragments[index]);
        assert!(![&damaged, second, third].map(|frame| arrives(frame)).contains(&true));
        assert_eq!(
            [first, second, third].map(|frame| arrives(frame)),
            [false, false, true],
            "anew"
        );
        assert!(
            ![&damaged, first, second, third, first].map(|frame| arrives(frame)).contains(&true)
        );
    }

    /// The stack's own parser puts together what the middlebox cut.
    #[test]
    fn fragments_are_those_of_the_segment_and_the_last_one_brings_it() {
        for is_ipv6 in [false, true] {
            let frame = frame(is_ipv6);
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
            assert!(whole(&mut cutter, 1).or(whole(&mut cutter, 2)).is_none());
            assert_eq!(whole(&mut cutter, 0).as_deref(), Some(&frame[..]), "all came twice");
            assert!(cutter.cut(&frame, true, 1_500).is_none(), "it fits");
        }
    }
}
