//! Packets built by hand, each with one thing wrong.

use super::{PacketInfo, parse, parse_quoted, transport_checksum_ok};
use crate::pseudo_header;
use core::net::{Ipv4Addr, Ipv6Addr};
use counters::DropReason;
use proptest::prelude::*;
use wire::{Ipv4Repr, Ipv6FragmentRepr, Ipv6Repr, protocol};

fn ipv4_repr(payload_len: usize) -> Ipv4Repr {
    Ipv4Repr {
        dscp_ecn: 0b1011_1011,
        identification: 7,
        dont_fragment: false,
        more_fragments: false,
        fragment_offset_bytes: 0,
        hop_limit: 61,
        protocol: protocol::UDP,
        source: Ipv4Addr::new(192, 0, 2, 1),
        destination: Ipv4Addr::new(192, 0, 2, 2),
        payload_len,
    }
}

/// A packet with these options, which are padded to words, and this payload.
fn ipv4(repr: Ipv4Repr, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut options = options.to_vec();
    options.resize(options.len().next_multiple_of(4), 0);
    let mut bytes = vec![0; Ipv4Repr::LEN];
    Ipv4Repr { payload_len: options.len() + payload.len(), ..repr }.emit(&mut bytes);
    bytes[0] += (options.len() / 4) as u8;
    bytes.extend(&options);
    bytes[10..12].fill(0);
    let checksum = !checksum::sum(&bytes);
    bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A packet whose fixed header names `next_header` and is followed by these bytes.
fn ipv6(next_header: u8, payload: &[u8]) -> Vec<u8> {
    ipv6_from("2001:db8::1", next_header, payload)
}

fn ipv6_from(source: &str, next_header: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; Ipv6Repr::LEN];
    let repr = Ipv6Repr {
        dscp_ecn: 2,
        flow_label: 3,
        payload_len: payload.len(),
        next_header,
        hop_limit: 60,
        source: source.parse().expect("an address"),
        destination: Ipv6Addr::LOCALHOST,
    };
    repr.emit(&mut bytes);
    bytes.extend(payload);
    bytes
}

/// An options header of 8 bytes (hop-by-hop or destination) with 6 bytes of options.
fn options(next_header: u8, options: [u8; 6]) -> Vec<u8> {
    let mut bytes = vec![next_header, 0];
    bytes.extend(options);
    bytes
}

fn fragment(next_header: u8, offset_bytes: usize, more_fragments: bool) -> Vec<u8> {
    let mut bytes = vec![0; Ipv6FragmentRepr::LEN];
    Ipv6FragmentRepr { next_header, offset_bytes, more_fragments, identification: 9 }
        .emit(&mut bytes);
    bytes
}

const PADDING: [u8; 6] = [1, 4, 0, 0, 0, 0];

#[test]
fn reads_an_ipv4_packet_and_leaves_out_the_padding_of_the_link() {
    let mut packet = ipv4(ipv4_repr(0), &[], b"payload");
    packet.extend([0xee; 19]);
    let info = parse(&packet).expect("a sound packet");
    let expected = PacketInfo {
        source: Ipv4Addr::new(192, 0, 2, 1).into(),
        destination: Ipv4Addr::new(192, 0, 2, 2).into(),
        protocol: protocol::UDP,
        header_len: 20,
        total_len: 27,
        hop_limit: 61,
        traffic_class: 0b1011_1011,
        fragment: false,
        has_options: false,
        fragmented: false,
    };
    assert_eq!(info, expected);
    assert_eq!(info.transport(&packet), b"payload");
}

#[test]
fn neither_an_empty_packet_nor_another_version_is_taken() {
    assert_eq!(parse(&[]), Err(DropReason::Truncated));
    assert_eq!(parse(&[0x45; 19]), Err(DropReason::Truncated));
    assert_eq!(parse(&[0x60; 39]), Err(DropReason::Truncated));
    assert_eq!(parse(&[0x55; 60]), Err(DropReason::BadVersion));
    let packet = ipv4(ipv4_repr(0), &[], b"payload");
    assert_eq!(parse(&packet[..26]), Err(DropReason::Truncated));
    let packet = ipv6(protocol::UDP, b"payload");
    assert_eq!(parse(&packet[..46]), Err(DropReason::Truncated));
}

/// RFC 1122, 3.2.1.2: a host MUST verify the header checksum.
#[test]
fn a_wrong_header_checksum_is_refused() {
    let packet = ipv4(ipv4_repr(0), &[1, 1, 1, 0], b"payload");
    assert!(parse(&packet).is_ok());
    for byte in 1..24 {
        let mut packet = packet.clone();
        packet[byte] ^= 0x10;
        assert!(parse(&packet).is_err(), "byte {byte}");
    }
    let mut packet = packet;
    packet[11] ^= 1;
    assert_eq!(parse(&packet), Err(DropReason::IpChecksum));
    packet[24] ^= 1;
    assert_eq!(parse(&packet), Err(DropReason::IpChecksum), "of the header alone");
}

#[test]
fn options_are_skipped_but_for_source_routes_and_broken_ones() {
    let with = |options: &[u8]| parse(&ipv4(ipv4_repr(0), options, b"payload"));
    for good in
        [&[1, 1, 0][..], &[7, 7, 4, 0, 0, 0, 0, 0], &[148, 4, 0, 0], &[222, 2, 1], &[68, 3, 5]]
    {
        let info = with(good).expect("unknown options are ignored");
        assert!(info.has_options);
        assert_eq!(info.header_len, 20 + good.len().next_multiple_of(4));
        assert_eq!(info.total_len - info.header_len, 7);
    }
    // After the end of options anything may stand.
    assert!(with(&[0, 131, 99, 99]).is_ok());
    for bad in [
        &[131, 3, 4][..],
        &[137, 7, 4, 1, 2, 3, 4],
        &[1, 1, 131, 3],
        &[7, 0],
        &[7, 1, 0, 0],
        &[7, 5, 0, 0],
        &[1, 1, 1, 7],
    ] {
        assert_eq!(with(bad), Err(DropReason::MalformedIp), "{bad:?}");
    }
}

/// RFC 1122, 3.2.1.3: invalid sources MUST be silently discarded.
#[test]
fn sources_that_nobody_may_have_are_refused() {
    for source in ["224.0.0.1", "255.255.255.255", "0.0.0.0"] {
        let source = source.parse().expect("an address");
        let packet = ipv4(Ipv4Repr { source, protocol: protocol::TCP, ..ipv4_repr(0) }, &[], b"");
        assert_eq!(parse(&packet), Err(DropReason::BadSource), "{source}");
    }
    // 3.2.1.3 (a): "as a source address as part of an initialization procedure by which the host
    // learns its own IP address", which goes by UDP.
    let asks = Ipv4Repr { source: Ipv4Addr::UNSPECIFIED, ..ipv4_repr(0) };
    assert!(parse(&ipv4(asks, &[], b"")).is_ok());
    for source in ["ff02::1", "::", "::ffff:10.0.0.1"] {
        let packet = ipv6_from(source, protocol::UDP, b"");
        assert_eq!(parse(&packet), Err(DropReason::BadSource), "{source}");
    }
    let probe = ipv6_from("::", protocol::ICMPV6, b"");
    assert!(parse(&probe).is_ok(), "duplicate address detection has no address yet");
}

// RFC 6890, 2.2.3: an IPv4-mapped address is neither a source nor a destination of packets.
#[test]
fn nothing_comes_to_an_ipv4_mapped_destination() {
    let to = |destination: &str, next_header, payload: &[u8]| {
        let mut packet = ipv6(next_header, payload);
        let destination: Ipv6Addr = destination.parse().expect("an address");
        packet[24..40].copy_from_slice(&destination.octets());
        packet
    };
    for mapped in ["::ffff:127.0.0.1", "::ffff:0.0.0.0", "::ffff:10.0.0.1"] {
        for protocol in [protocol::UDP, protocol::TCP, protocol::ICMPV6] {
            assert_eq!(
                parse(&to(mapped, protocol, b"")),
                Err(DropReason::NotOurAddress),
                "{mapped}"
            );
        }
        let part = [fragment(protocol::UDP, 8, false), vec![0; 8]].concat();
        let refused = crate::parse_fragment(&to(mapped, protocol::FRAGMENT, &part));
        assert_eq!(refused.map_err(|it| it.reason), Err(DropReason::NotOurAddress), "{mapped}");
    }
    // Translators have addresses of their own (RFC 6052, 2.1; RFC 3056), which are like any other.
    for other in ["64:ff9b::10.0.0.1", "2002:a00:1::1", "::ffff:0:10.0.0.1"] {
        assert!(parse(&to(other, protocol::UDP, b"")).is_ok(), "{other}");
    }
}

#[test]
fn fragments_are_refused_but_atomic_ones_pass() {
    let refused = |fragment_offset_bytes, more_fragments| {
        let repr = Ipv4Repr { fragment_offset_bytes, more_fragments, ..ipv4_repr(0) };
        parse(&ipv4(repr, &[], b"12345678"))
    };
    for (offset, more) in [(0, true), (8, false), (8, true)] {
        assert_eq!(refused(offset, more), Err(DropReason::Fragment));
        let packet = ipv6(protocol::FRAGMENT, &fragment(protocol::UDP, offset, more));
        assert_eq!(parse(&packet), Err(DropReason::Fragment));
    }
    // RFC 6946: an atomic fragment is a whole packet.
    let packet = ipv6(protocol::FRAGMENT, &fragment(protocol::UDP, 0, false));
    let info = parse(&packet).expect("an atomic fragment");
    assert_eq!((info.protocol, info.header_len, info.fragment), (protocol::UDP, 48, false));
}

#[test]
fn extension_headers_are_walked_to_the_transport() {
    let mut chain = options(protocol::DESTINATION_OPTIONS, [5, 2, 0, 0, 1, 0]);
    chain.extend(options(protocol::ROUTING, PADDING));
    chain.extend([protocol::FRAGMENT, 1, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    chain.extend(fragment(protocol::DESTINATION_OPTIONS, 0, false));
    chain.extend(options(protocol::TCP, [0; 6]));
    chain.extend(b"segment");
    let packet = ipv6(protocol::HOP_BY_HOP, &chain);
    let info = parse(&packet).expect("a sound chain");
    assert_eq!((info.protocol, info.has_options), (protocol::TCP, true));
    assert_eq!(info.transport(&packet), b"segment");
    assert_eq!(super::protocol_named_at(&packet), 40 + 8 + 8 + 16 + 8);
    assert_eq!(super::protocol_named_at(&ipv6(200, b"")), 6);
    for len in 0..packet.len() {
        assert_eq!(parse(&packet[..len]), Err(DropReason::Truncated), "{len} bytes");
        let _ = parse_quoted(&packet[..len]);
    }
}

#[test]
fn a_chain_that_ends_before_its_headers_do_is_truncated() {
    for next in [protocol::HOP_BY_HOP, protocol::ROUTING, protocol::FRAGMENT] {
        for len in 0..8 {
            let header = &[protocol::UDP, 0, 0, 0, 0, 0, 0, 0][..len];
            assert_eq!(parse(&ipv6(next, header)), Err(DropReason::Truncated), "{next} {len}");
        }
    }
    let long = [protocol::UDP, 1, 1, 4, 0, 0, 0, 0];
    assert_eq!(parse(&ipv6(protocol::HOP_BY_HOP, &long)), Err(DropReason::Truncated));
}

#[test]
fn chains_that_break_the_rules_are_refused() {
    let refused = |next, chain: &[u8]| {
        assert_eq!(parse(&ipv6(next, chain)), Err(DropReason::MalformedIp), "{chain:?}");
    };
    // RFC 8200, 4.3: hop-by-hop options come first or not at all.
    let mut late = options(protocol::HOP_BY_HOP, PADDING);
    late.extend(options(protocol::UDP, PADDING));
    refused(protocol::DESTINATION_OPTIONS, &late);
    // RFC 5095: a routing header with segments left.
    refused(protocol::ROUTING, &[protocol::UDP, 0, 0, 1, 0, 0, 0, 0]);
    // RFC 8200, 4.2: unknown options of the kinds that forbid the packet; jumbo payload is one.
    for kind in [0x40, 0x80, 0xc0, 0xc2] {
        refused(protocol::HOP_BY_HOP, &options(protocol::UDP, [kind, 4, 0, 0, 0, 0]));
    }
    // Options that reach beyond their header, or end within themselves.
    refused(protocol::HOP_BY_HOP, &options(protocol::UDP, [1, 5, 0, 0, 0, 0]));
    refused(protocol::HOP_BY_HOP, &options(protocol::UDP, [1, 3, 0, 0, 0, 1]));
}

#[test]
fn chains_and_options_have_an_end() {
    let chain = |count: usize| {
        let mut bytes = Vec::new();
        for _ in 1..count {
            bytes.extend(options(protocol::DESTINATION_OPTIONS, PADDING));
        }
        bytes.extend(options(protocol::UDP, PADDING));
        parse(&ipv6(protocol::DESTINATION_OPTIONS, &bytes))
    };
    assert_eq!(chain(super::EXTENSION_HEADERS_MAX).map(|info| info.protocol), Ok(protocol::UDP));
    assert_eq!(chain(super::EXTENSION_HEADERS_MAX + 1), Err(DropReason::MalformedIp));

    let many = |count: usize, kind: u8| {
        let mut bytes = vec![protocol::UDP, 7];
        bytes.extend([kind, 0].repeat(count));
        bytes.resize(64, 0);
        parse(&ipv6(protocol::HOP_BY_HOP, &bytes)).map(|info| info.header_len)
    };
    assert_eq!(many(super::OPTIONS_MAX, 5), Ok(104));
    assert_eq!(many(super::OPTIONS_MAX + 1, 5), Err(DropReason::MalformedIp));
    assert_eq!(many(super::OPTIONS_MAX + 1, 1), Ok(104), "padding is not counted");
}

#[test]
fn a_quotation_may_be_cut_altered_and_a_fragment() {
    let mut packet = ipv4(ipv4_repr(0), &[], &[9; 100]);
    packet[8] = 0; // The hop limit ran out on the way, and nobody summed the header again.
    let info = parse_quoted(&packet[..28]).expect("header and 8 bytes");
    assert_eq!((info.header_len, info.total_len, info.fragment), (20, 120, false));
    assert_eq!(info.transport(&packet[..28]), [9; 8]);
    assert!(parse_quoted(&packet[..19]).is_err());

    let first = Ipv4Repr { more_fragments: true, ..ipv4_repr(0) };
    assert!(!parse_quoted(&ipv4(first, &[], b"")).expect("quoted").fragment);
    let later = Ipv4Repr { fragment_offset_bytes: 8, ..ipv4_repr(0) };
    assert!(parse_quoted(&ipv4(later, &[], b"")).expect("quoted").fragment);

    for (offset, more, later) in [(0, true, false), (8, true, true), (8, false, true)] {
        let packet = ipv6(protocol::FRAGMENT, &fragment(protocol::UDP, offset, more));
        let info = parse_quoted(&packet).expect("quoted");
        assert_eq!((info.fragment, info.header_len, info.protocol), (later, 48, protocol::UDP));
    }
}

/// A sound datagram with two bytes of payload, in a packet that is two bytes longer.
fn datagram(v6: bool) -> Vec<u8> {
    let mut datagram = vec![0, 1, 0, 2, 0, 10, 0, 0, 0xab, 0xcd, 0xee, 0xee];
    let packet = |datagram: &[u8]| {
        if v6 { ipv6(protocol::UDP, datagram) } else { ipv4(ipv4_repr(0), &[], datagram) }
    };
    let info = parse(&packet(&datagram)).expect("a sound packet");
    let mut sum = checksum::Accumulator::default();
    sum.add_u16(pseudo_header::sum(info.source, info.destination, info.protocol));
    sum.add_u16(10);
    sum.add(&datagram[..10]);
    datagram[6..8].copy_from_slice(&sum.finish().to_be_bytes());
    packet(&datagram)
}

fn checksum_ok(packet: &[u8]) -> bool {
    let info = parse(packet).expect("a sound packet");
    transport_checksum_ok(&info, info.transport(packet))
}

#[test]
fn the_checksum_of_a_datagram_covers_the_datagram_alone() {
    for (v6, header_len) in [(false, 20), (true, 40)] {
        let packet = datagram(v6);
        assert!(checksum_ok(&packet));
        for byte in header_len..packet.len() {
            let mut packet = packet.clone();
            packet[byte] ^= 1;
            // The length's lowest bit says that another byte is covered, which changes the sum.
            assert_eq!(checksum_ok(&packet), byte >= packet.len() - 2, "byte {byte}");
        }
    }
}

/// RFC 768: zero means that there is no checksum. RFC 8200, 8.1: IPv6 receivers MUST discard such
/// datagrams.
#[test]
fn a_datagram_without_checksum_is_taken_over_ipv4_only() {
    for (v6, header_len) in [(false, 20), (true, 40)] {
        let mut packet = datagram(v6);
        packet[header_len + 6..header_len + 8].fill(0);
        assert_eq!(checksum_ok(&packet), !v6);
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..200),
        first in prop_oneof![Just(0x45), Just(0x4a), Just(0x60), any::<u8>()],
        next in prop_oneof![Just(0), Just(43), Just(44), Just(60), any::<u8>()],
        mend in any::<bool>(),
    ) {
        // Lengths and checksums that agree let the rest of the parser be reached.
        if mend && bytes.len() >= 40 {
            bytes[0] = first;
            if first == 0x60 {
                let len = bytes.len() as u16 - 40;
                bytes[4..6].copy_from_slice(&len.to_be_bytes());
                bytes[6] = next;
            } else {
                let len = bytes.len() as u16;
                bytes[2..4].copy_from_slice(&len.to_be_bytes());
                bytes[6..8].fill(0);
                bytes[10..12].fill(0);
                let header_len = usize::from(first & 0xf) * 4;
                let sum = !checksum::sum(bytes.get(..header_len).unwrap_or(&[]));
                bytes[10..12].copy_from_slice(&sum.to_be_bytes());
            }
        }
        if let Ok(info) = parse(&bytes) {
            prop_assert!(info.header_len <= info.total_len && info.total_len <= bytes.len());
            prop_assert_eq!(info.source.is_ipv4(), info.destination.is_ipv4());
            let quoted = parse_quoted(&bytes);
            prop_assert_eq!(quoted, Ok(info), "what is whole may be quoted");
            let _ = transport_checksum_ok(&info, info.transport(&bytes));
        }
        if let Ok(info) = parse_quoted(&bytes) {
            prop_assert!(info.header_len <= info.total_len);
            let _ = info.transport(&bytes);
            let _ = super::protocol_named_at(&bytes);
        }
    }
}
