//! The virtio-net header in front of a frame (Virtio 1.2, section 5.1.6), in the ten-byte form and
//! the native byte order that the TUN driver uses unless told otherwise.

use batch::{Checksum, PacketView, ReceivedChecksum, Segmented};
use device::lowering::{NetworkVersion, PartialChecksum, SuperFrame, complete_checksum};
use device::{Capabilities, TransmitMode};

/// Length in bytes: without `num_buffers`, which only merged receive buffers need.
pub(crate) const VNET_HEADER_LEN: usize = 10;

const F_NEEDS_CSUM: u8 = 1;
const F_DATA_VALID: u8 = 2;

const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
/// Datagrams of one flow (VIRTIO_NET_HDR_GSO_UDP_L4), which Linux hands up since 6.2.
const GSO_UDP_L4: u8 = 5;
/// Beside a type: the first segment has CWR set.
const GSO_ECN: u8 = 0x80;

/// Super-frames in one call at least, when packets have the length of the MTU.
const BATCH_SUPER_FRAMES: usize = 4;

/// Packets that super-frames of one call are made of, at least and at most.
const BATCH_PACKETS: (usize, usize) = (64, 256);

/// Packets in one call at most where runs of them leave as super-frames: as many as fill whole ones, so
/// that a batch does not end with a small one. 180 at an MTU of 1,500 bytes, 63 at 9,000.
pub(crate) fn super_frame_packets_max(mtu_bytes: usize) -> usize {
    // 52 is an IP and a TCP header with timestamps.
    let each = 65_483 / mtu_bytes.saturating_sub(52).clamp(1, 65_483);
    let (least, most) = BATCH_PACKETS;
    let count = BATCH_SUPER_FRAMES.max(least / each).min(most / each).max(1);
    (count * each).min(most)
}

/// Takes back what a refused frame has shown not to work: super-frames, of one that was `merged`, and
/// checksums left to the kernel as well, of one that was not. Says whether that was known to work until now.
pub(crate) fn revoke(
    capabilities: &mut Capabilities,
    mode: &mut TransmitMode,
    merged: bool,
) -> bool {
    let Capabilities { segmentation, checksum_transmit, .. } = capabilities;
    let had = (*segmentation, *checksum_transmit);
    // Without checksums below there are no super-frames, each of whose segments needs one.
    (*segmentation, *checksum_transmit) = (None, *checksum_transmit && merged);
    if *mode == TransmitMode::Lso {
        *mode = TransmitMode::Multidata;
    }
    (*segmentation, *checksum_transmit) != had
}

/// `struct virtio_net_hdr`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct VnetHeader {
    flags: u8,
    gso_type: u8,
    header_len: u16,
    gso_size: u16,
    checksum_start: u16,
    checksum_offset: u16,
}

impl VnetHeader {
    /// A frame whose checksum the device completes: the transport header begins at `start`, the
    /// field is `offset` bytes further on.
    pub(crate) fn partial(start: usize, offset: u8) -> Self {
        Self {
            flags: F_NEEDS_CSUM,
            checksum_start: start as u16,
            checksum_offset: u16::from(offset),
            ..Self::default()
        }
    }

    /// Makes it a super-frame of segments of `segment_len` bytes behind `header_len` bytes of
    /// headers. `congestion` says whether the first segment has CWR set.
    pub(crate) fn segmented(
        self,
        version: NetworkVersion,
        header_len: usize,
        segment_len: u16,
        congestion: bool,
    ) -> Self {
        let gso_type = match version {
            NetworkVersion::Ipv4 => GSO_TCPV4,
            NetworkVersion::Ipv6 => GSO_TCPV6,
        };
        Self {
            gso_type: gso_type | if congestion { GSO_ECN } else { 0 },
            header_len: header_len as u16,
            gso_size: segment_len,
            ..self
        }
    }

    /// What the kernel is told of a frame of a contiguous block, whose checksum is completed here where
    /// the kernel would not do it (`is_completed_below`). `None` where it does not lie in the frame.
    pub(crate) fn of_block_frame(
        frame: &mut [u8],
        checksum: Option<PartialChecksum>,
        is_completed_below: bool,
    ) -> Option<Self> {
        let Some(PartialChecksum { transport_offset, field_offset }) = checksum else {
            return Some(Self::default());
        };
        let start = usize::from(transport_offset);
        if is_completed_below {
            return Some(Self::partial(start, field_offset));
        }
        complete_checksum(frame, start, field_offset)?;
        Some(Self::default())
    }

    /// What the kernel is told of a frame that begins with the packet `first` and has this header.
    pub(crate) fn of_frame(first: &PacketView<'_>, header: &[u8], frame: &SuperFrame) -> Self {
        const TCP_FLAGS: usize = 13;
        const CWR: u8 = 0x80;
        let transport = first.transport_offset();
        let Checksum::Partial { offset } = first.attributes().checksum else {
            return Self::default();
        };
        let partial = Self::partial(transport, offset);
        if !frame.is_merged() {
            return partial;
        }
        let congestion = header.get(transport + TCP_FLAGS).is_some_and(|flags| flags & CWR != 0);
        partial.segmented(frame.version, header.len(), frame.segment_len, congestion)
    }

    pub(crate) fn emit(self) -> [u8; VNET_HEADER_LEN] {
        let [header_low, header_high] = self.header_len.to_ne_bytes();
        let [size_low, size_high] = self.gso_size.to_ne_bytes();
        let [start_low, start_high] = self.checksum_start.to_ne_bytes();
        let [offset_low, offset_high] = self.checksum_offset.to_ne_bytes();
        [
            self.flags,
            self.gso_type,
            header_low,
            header_high,
            size_low,
            size_high,
            start_low,
            start_high,
            offset_low,
            offset_high,
        ]
    }

    pub(crate) fn parse(bytes: [u8; VNET_HEADER_LEN]) -> Self {
        let word = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        Self {
            flags: bytes[0],
            gso_type: bytes[1],
            header_len: word(2),
            gso_size: word(4),
            checksum_start: word(6),
            checksum_offset: word(8),
        }
    }

    /// What the header says of a frame of `frame_len` bytes. A header that contradicts itself or
    /// the frame says nothing: the frame is then verified like any other.
    pub(crate) fn meaning(self, frame_len: usize) -> Meaning {
        let partial = self.flags & F_NEEDS_CSUM != 0;
        let field_end = self.checksum_start as usize + self.checksum_offset as usize + 2;
        if partial && (self.checksum_start == 0 || field_end > frame_len) {
            return Meaning::NOTHING;
        }
        let checksum = if partial {
            ReceivedChecksum::Partial
        } else if self.flags & F_DATA_VALID != 0 {
            ReceivedChecksum::Verified
        } else {
            ReceivedChecksum::Unverified
        };
        let has_parts = self.gso_size > 0 && (self.gso_size as usize) < frame_len;
        match self.gso_type & !GSO_ECN {
            GSO_NONE => Meaning::Frame { checksum, segmented: None },
            GSO_TCPV4 | GSO_TCPV6 if has_parts => {
                let segmented = Some(Segmented { segment_len: self.gso_size });
                Meaning::Frame { checksum, segmented }
            }
            // One sum over all of them says nothing of any, so somebody must vouch for them.
            GSO_UDP_L4 if has_parts && checksum != ReceivedChecksum::Unverified => {
                Meaning::Datagrams { payload_len: self.gso_size }
            }
            _ => Meaning::NOTHING,
        }
    }
}

impl VnetHeader {
    /// The same of an Ethernet frame that a packet socket received, of which `front` is as much as holds the
    /// headers. `None` where the parts are those of a packet within a tunnel: the kernel says of such a
    /// frame what the packet within is, and nothing of the tunnel, whose own packets nobody could tell from it.
    pub(crate) fn meaning_of_frame(self, front: &[u8], frame_len: usize) -> Option<Meaning> {
        const TCP: u8 = 6;
        const UDP: u8 = 17;
        let meaning = self.meaning(frame_len);
        let expected = match meaning {
            Meaning::Frame { segmented: None, .. } => return Some(meaning),
            Meaning::Frame { segmented: Some(_), .. } => TCP,
            Meaning::Datagrams { .. } => UDP,
        };
        let (protocol, transport) = outermost_transport(front)?;
        let is_its_own =
            self.flags & F_NEEDS_CSUM == 0 || usize::from(self.checksum_start) == transport;
        (protocol == expected && is_its_own).then_some(meaning)
    }
}

/// The protocol in the outermost IP packet of an Ethernet frame, and where its header begins.
fn outermost_transport(frame: &[u8]) -> Option<(u8, usize)> {
    const LINK_LEN: usize = 14;
    const EXTENSIONS_MAX: usize = 8;
    /// Hop-by-hop options, routing and destination options (RFC 8200, 4.1).
    const EXTENSIONS: [u8; 3] = [0, 43, 60];
    match frame.get(12..LINK_LEN)? {
        [0x08, 0x00] => {
            let header_len = usize::from(frame.get(LINK_LEN)? & 0x0f) * 4;
            Some((*frame.get(LINK_LEN + 9)?, LINK_LEN + header_len))
        }
        [0x86, 0xdd] => {
            let (mut protocol, mut at) = (*frame.get(LINK_LEN + 6)?, LINK_LEN + 40);
            for _ in 0..EXTENSIONS_MAX {
                if !EXTENSIONS.contains(&protocol) {
                    break;
                }
                let [next, eights] = *frame.get(at..)?.first_chunk()?;
                (protocol, at) = (next, at + 8 + 8 * usize::from(eights));
            }
            Some((protocol, at))
        }
        _ => None,
    }
}

/// What a virtio-net header says of its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// It is a packet, or a super-frame of segments.
    Frame { checksum: ReceivedChecksum, segmented: Option<Segmented> },
    /// It is a run of datagrams with so much payload each, but for the last, to be cut
    /// ([`crate::datagrams`]). A TUN file has none that did not ask for them (TUN_F_USO4).
    Datagrams { payload_len: u16 },
}

impl Meaning {
    /// As of a frame that has no such header.
    pub(crate) const NOTHING: Self =
        Self::Frame { checksum: ReceivedChecksum::Unverified, segmented: None };
}

#[cfg(test)]
mod tests {
    use super::*;
    use batch::{Attributes, Multidata};
    use device::{Medium, Segmentation};

    #[test]
    fn what_is_emitted_parses_to_the_same() {
        let header = VnetHeader::partial(34, 16).segmented(NetworkVersion::Ipv6, 66, 1_448, true);
        assert_eq!(VnetHeader::parse(header.emit()), header);
        assert_eq!(header.emit()[..2], [F_NEEDS_CSUM, GSO_TCPV6 | GSO_ECN]);
        assert_eq!(VnetHeader::default().emit(), [0; VNET_HEADER_LEN]);
    }

    /// What is set on the first segment alone (RFC 3168, 6.1.2) the kernel leaves there where it is told so.
    #[test]
    fn a_super_frame_says_that_its_first_segment_has_cwr() {
        let checksum = Checksum::Partial { offset: 16 };
        let attributes = Attributes { checksum, ..Attributes::default() };
        let mut batch = Multidata::default();
        batch.push_packet(20, attributes).expect("room").fill(0);
        let first = batch.packet(0).expect("one");
        let version = NetworkVersion::Ipv6;
        let frame = SuperFrame { packets: 0..2, segment_len: 1_000, payload_len: 2_000, version };
        for (flags, wanted) in [(0x10, GSO_TCPV6), (0x90, GSO_TCPV6 | GSO_ECN)] {
            let mut header = [0; 20];
            header[13] = flags;
            assert_eq!(VnetHeader::of_frame(&first, &header, &frame).gso_type, wanted);
        }
    }

    #[test]
    fn what_is_taken_back_is_taken_back_once() {
        let segmentation =
            Some(Segmentation { tcp_ipv4: true, tcp_ipv6: true, len_bytes_max: 65_535 });
        let plain = Capabilities::plain(Medium::Ip, 1_500);
        let mut able = Capabilities { checksum_transmit: true, segmentation, ..plain.clone() };
        let mut mode = TransmitMode::Lso;
        assert!(revoke(&mut able, &mut mode, true));
        assert_eq!((able.checksum_transmit, able.segmentation), (true, None), "of super-frames");
        assert_eq!(mode, TransmitMode::Multidata);
        assert!(!revoke(&mut able, &mut mode, true), "of the next of the same batch");
        assert!(revoke(&mut able, &mut mode, false), "of checksums");
        assert_eq!(able, plain);
        assert!(!revoke(&mut able, &mut mode, false));
    }

    #[test]
    fn a_batch_of_super_frames_ends_with_a_whole_one() {
        for (mtu_bytes, packets) in [(1_500, 180), (9_000, 63), (576, 248), (65_535, 64), (0, 256)]
        {
            assert_eq!(super_frame_packets_max(mtu_bytes), packets, "MTU {mtu_bytes}");
        }
    }

    #[test]
    fn headers_mean_what_the_standard_says() {
        let means = |checksum, segmented| Meaning::Frame { checksum, segmented };
        let super_frame =
            VnetHeader::partial(34, 16).segmented(NetworkVersion::Ipv4, 66, 1_448, false);
        let segmented = Some(Segmented { segment_len: 1_448 });
        assert_eq!(super_frame.meaning(30_000), means(ReceivedChecksum::Partial, segmented));
        let valid = VnetHeader { flags: F_DATA_VALID, ..VnetHeader::default() };
        assert_eq!(valid.meaning(60), means(ReceivedChecksum::Verified, None));
        assert_eq!(VnetHeader::default().meaning(60), Meaning::NOTHING);
        // Virtio 1.2, section 5.1.6: VIRTIO_NET_HDR_GSO_UDP_L4.
        let run = |header| VnetHeader { gso_type: 5, gso_size: 1_000, ..header };
        let datagrams = Meaning::Datagrams { payload_len: 1_000 };
        assert_eq!(run(VnetHeader::partial(34, 6)).meaning(3_042), datagrams);
        assert_eq!(run(valid).meaning(3_042), datagrams);
        assert_eq!(run(VnetHeader::default()).meaning(3_042), Meaning::NOTHING, "nobody vouches");
    }

    /// What the kernel says of VXLAN around TCP and around datagrams (`virtio_net_hdr_from_skb`, which looks at
    /// the innermost): measured.
    #[test]
    fn the_parts_of_a_packet_within_a_tunnel_are_not_those_of_its_frame() {
        let frame = |ethertype: [u8; 2], network: &[u8]| {
            [&[2; 12][..], &ethertype, network, &[0; 5_000]].concat()
        };
        let ipv4 = |protocol| {
            let mut header = [0; 20];
            (header[0], header[9]) = (0x45, protocol);
            frame([0x08, 0x00], &header)
        };
        let ipv6 = |next, options: &[u8]| {
            let mut header = [0; 40];
            (header[0], header[6]) = (0x60, next);
            frame([0x86, 0xdd], &[&header[..], options].concat())
        };
        let of = |gso_type, start| VnetHeader {
            gso_type,
            gso_size: 1_000,
            ..VnetHeader::partial(start, 16)
        };
        let is_own = |header: VnetHeader, frame: &[u8]| {
            let meaning = header.meaning_of_frame(&frame[..100], frame.len());
            assert!(meaning.is_none_or(|meaning| meaning == header.meaning(frame.len())));
            meaning.is_some()
        };
        assert!(is_own(of(GSO_TCPV4, 34), &ipv4(6)));
        assert!(is_own(of(GSO_TCPV6, 54), &ipv6(6, &[])));
        assert!(is_own(
            of(GSO_TCPV6, 70),
            &ipv6(0, &[[60, 0, 1, 4, 0, 0, 0, 0], [6, 0, 1, 4, 0, 0, 0, 0]].concat())
        ));
        assert!(is_own(of(GSO_UDP_L4, 34), &ipv4(17)));
        // A lone packet in a tunnel comes up as what it is outside.
        assert!(is_own(VnetHeader::partial(84, 16), &ipv4(17)));
        for (gso_type, start, protocol) in
            [(GSO_TCPV4, 84, 17), (GSO_UDP_L4, 84, 17), (GSO_TCPV4, 54, 4), (GSO_TCPV4, 84, 6)]
        {
            assert!(!is_own(of(gso_type, start), &ipv4(protocol)), "{gso_type} in {protocol}");
        }
        assert!(!is_own(of(GSO_TCPV4, 104), &ipv6(17, &[])));
        // Nor is one that merged real frames of a tunnel, whose checksums were right.
        let merged = VnetHeader { flags: F_DATA_VALID, ..of(GSO_TCPV4, 0) };
        assert!(!is_own(merged, &ipv4(17)));
        assert!(!is_own(of(GSO_TCPV4, 38), &frame([0x81, 0x00], &[0; 4])), "a tag within");
        let cut_short = &ipv4(6)[..20];
        assert_eq!(of(GSO_TCPV4, 34).meaning_of_frame(cut_short, 3_000), None);
    }

    #[test]
    fn a_header_that_contradicts_the_frame_says_nothing() {
        let nothing = Meaning::NOTHING;
        assert_eq!(VnetHeader::partial(50, 16).meaning(67), nothing, "the field lies outside");
        let partial = Meaning::Frame { checksum: ReceivedChecksum::Partial, segmented: None };
        assert_eq!(VnetHeader::partial(50, 16).meaning(68), partial);
        assert_eq!(VnetHeader::partial(0, 16).meaning(68), nothing);
        let bogus = |gso_type, gso_size| VnetHeader { gso_type, gso_size, ..VnetHeader::default() };
        assert_eq!(bogus(GSO_TCPV4, 0).meaning(2_000), nothing, "segments of no length");
        assert_eq!(bogus(GSO_TCPV4, 2_000).meaning(2_000), nothing, "longer than the frame");
        assert_eq!(bogus(3, 1_000).meaning(2_000), nothing, "UDP fragments were never offered");
        assert_eq!(bogus(0x7f, 1_000).meaning(2_000), nothing);
    }
}
