//! Messages through both halves: what one side pushes and stamps, the other parses.

use crate::*;
use batch::{Attributes, Block, Checksum, Chunk, HeaderLayout, Limits, Multidata};
use bytes::Bytes;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use counters::DropReason;
use proptest::prelude::*;
use wire::{IcmpView, Icmpv4Repr, Icmpv6Repr, SeqNumber, protocol};

const OURS_IPV4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const THEIRS_IPV4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

fn addresses(v6: bool) -> (IpAddr, IpAddr) {
    if v6 {
        ("fd00::1".parse().expect("an address"), "fd00::2".parse().expect("an address"))
    } else {
        (OURS_IPV4, THEIRS_IPV4)
    }
}

fn chunk(bytes: &[u8]) -> Chunk {
    Chunk::whole(Block::from(Bytes::copy_from_slice(bytes)))
}

/// Stamps the one packet of the batch and returns it whole.
fn sent(batch: &mut Multidata, source: IpAddr, destination: IpAddr, protocol: u8) -> Vec<u8> {
    let template = HeaderTemplate::new(source, destination, protocol, 64, 0);
    let (count, mut identification) = (batch.len(), 0);
    assert_eq!(stamp(batch, 0..count, &template, &mut identification, true), count);
    let packet = batch.packet(count - 1).expect("a packet");
    assert_eq!(packet.attributes().checksum, Checksum::Complete);
    let mut bytes = vec![0; packet.len()];
    packet.copy_to(&mut bytes);
    bytes
}

fn icmp_protocol(address: IpAddr) -> u8 {
    if address.is_ipv4() { protocol::ICMP } else { protocol::ICMPV6 }
}

fn received(packet: &[u8]) -> Result<IcmpIncoming, DropReason> {
    let info = parse(packet).expect("a sound packet");
    parse_icmp(&info, info.transport(packet))
}

/// A packet of ours with this transport header and payload, stamped with sums missing.
fn packet_of_ours(v6: bool, protocol: u8, transport: &[u8]) -> Vec<u8> {
    let (ours, theirs) = addresses(v6);
    let mut batch = Multidata::default();
    batch.push_packet(8, Attributes::default()).expect("room").copy_from_slice(&transport[..8]);
    let rest = chunk(&transport[8..]);
    assert!(batch.append_span(rest.block(), 0, rest.len()));
    sent(&mut batch, ours, theirs, protocol)
}

/// An echo request of `theirs`.
fn echo_request(v6: bool, identifier: u16, sequence: u16, data: &[u8]) -> Vec<u8> {
    let (ours, theirs) = addresses(v6);
    let mut header = [0; 8];
    let checksum = match v6 {
        true => {
            Icmpv6Repr::EchoRequest { identifier, sequence }.emit(&mut header);
            Checksum::Missing { offset: Icmpv6Repr::CHECKSUM_OFFSET }
        }
        false => {
            Icmpv4Repr::EchoRequest { identifier, sequence }.emit(&mut header);
            let mut sum = checksum::Accumulator::default();
            sum.add(&header);
            sum.add(data);
            header[2..4].copy_from_slice(&sum.finish().to_be_bytes());
            Checksum::Complete
        }
    };
    let mut batch = Multidata::default();
    let attributes = Attributes { checksum, ..Attributes::default() };
    batch.push_packet(8, attributes).expect("room").copy_from_slice(&header);
    assert!(batch.append_span(chunk(data).block(), 0, data.len()));
    sent(&mut batch, theirs, ours, icmp_protocol(ours))
}

/// The packet of an error about `offending`, sent by `theirs`.
fn error_about(offending: &[u8], kind: IcmpErrorKind) -> Vec<u8> {
    let (ours, theirs) = addresses(offending[0] >> 4 == 6);
    let mut batch = Multidata::default();
    assert!(push_error(&mut batch, kind, &chunk(offending)));
    sent(&mut batch, theirs, ours, icmp_protocol(ours))
}

const SEGMENT: [u8; 20] =
    [0x12, 0x34, 0, 80, 0xde, 0xad, 0xbe, 0xef, 0, 0, 0, 0, 0x50, 2, 0, 0, 0, 0, 0, 0];

fn any_kind() -> impl Strategy<Value = IcmpErrorKind> {
    use IcmpErrorKind as Kind;
    prop_oneof![
        Just(Kind::NetUnreachable),
        Just(Kind::HostUnreachable),
        Just(Kind::ProtocolUnreachable),
        Just(Kind::PortUnreachable),
        Just(Kind::Prohibited),
        Just(Kind::TimeExceeded),
        Just(Kind::ReassemblyTimeExceeded),
        (1280_usize..=65_535).prop_map(|mtu_bytes| Kind::PacketTooBig { mtu_bytes }),
        (0_u32..256).prop_map(|pointer| Kind::ParameterProblem { pointer }),
    ]
}

proptest! {
    #[test]
    fn an_echo_comes_back_with_all_its_data(
        v6 in any::<bool>(),
        (identifier, sequence) in any::<(u16, u16)>(),
        data in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let (ours, theirs) = addresses(v6);
        let protocol = icmp_protocol(ours);
        let packet = echo_request(v6, identifier, sequence, &data);
        let Ok(IcmpIncoming::EchoRequest(echo)) = received(&packet) else {
            return Err(TestCaseError::fail("no echo request"));
        };
        prop_assert_eq!((echo.identifier, echo.sequence), (identifier, sequence));
        let at = packet.len() - echo.data.len();
        let returned = Chunk::new(chunk(&packet).block().clone(), at..packet.len());

        let mut batch = Multidata::default();
        prop_assert!(push_echo_reply(&mut batch, theirs, &echo, &returned));
        let reply = sent(&mut batch, ours, theirs, protocol);
        let Ok(IcmpIncoming::EchoReply(echo)) = received(&reply) else {
            return Err(TestCaseError::fail("no echo reply"));
        };
        prop_assert_eq!((echo.identifier, echo.sequence), (identifier, sequence));
        prop_assert_eq!(&reply[reply.len() - echo.data.len()..], &data[..]);
    }

    #[test]
    fn an_error_names_the_socket_and_the_segment(
        v6 in any::<bool>(),
        tcp in any::<bool>(),
        kind in any_kind(),
        payload in 0_usize..3000,
    ) {
        let (ours, theirs) = addresses(v6);
        let protocol = if tcp { protocol::TCP } else { protocol::UDP };
        let mut transport = SEGMENT.to_vec();
        transport.resize(20 + payload, 7);
        let offending = packet_of_ours(v6, protocol, &transport);
        let packet = error_about(&offending, kind);
        // RFC 1812, 4.3.2.3 and RFC 4443, 2.4 c.
        let longest = if v6 { 1280 } else { 576 };
        let overhead = if v6 { 48 } else { 28 };
        prop_assert_eq!(packet.len(), (overhead + offending.len()).min(longest));
        let quoted = Quoted {
            protocol,
            local: SocketAddr::new(ours, 0x1234),
            remote: SocketAddr::new(theirs, 80),
            sequence: tcp.then_some(SeqNumber(0xdead_beef)),
            is_echo_reply: false,
        };
        prop_assert_eq!(received(&packet), Ok(IcmpIncoming::Error(IcmpError { kind, quoted })));
    }

    #[test]
    fn every_flipped_bit_spoils_a_message(v6 in any::<bool>(), bit in 0_usize..800) {
        let offending = packet_of_ours(v6, protocol::TCP, &SEGMENT);
        let mut packet = error_about(&offending, IcmpErrorKind::PortUnreachable);
        let header_len = if v6 { 40 } else { 20 };
        let bit = bit % ((packet.len() - header_len) * 8);
        packet[header_len + bit / 8] ^= 1 << (bit % 8);
        prop_assert_eq!(received(&packet), Err(DropReason::IcmpChecksum));
    }

    #[test]
    fn arbitrary_messages_never_panic(
        v6 in any::<bool>(),
        mut message in proptest::collection::vec(any::<u8>(), 4..160),
        kind in 0_u8..20,
        quoted in prop_oneof![Just(0x45_u8), Just(0x60), any::<u8>()],
    ) {
        let (ours, theirs) = addresses(v6);
        message[0] = if kind < 15 { kind } else { message[0] };
        message[2..4].fill(0);
        if let Some(first) = message.get_mut(8) {
            *first = quoted;
        }
        let info = PacketInfo {
            source: theirs,
            destination: ours,
            protocol: icmp_protocol(ours),
            header_len: 0,
            total_len: message.len(),
            hop_limit: 255,
            traffic_class: 0,
            fragment: false,
            has_options: false,
            fragmented: false,
        };
        let mut sum = checksum::Accumulator::default();
        if v6 {
            sum.add_u16(crate::pseudo_header::sum(theirs, ours, protocol::ICMPV6));
            sum.add_u16(message.len() as u16);
        }
        sum.add(&message);
        message[2..4].copy_from_slice(&sum.finish().to_be_bytes());
        prop_assert_ne!(parse_icmp(&info, &message), Err(DropReason::IcmpChecksum));
        let mut batch = Multidata::default();
        let body = chunk(message.get(8..).unwrap_or(&[]));
        for kind in [IcmpErrorKind::ProtocolUnreachable, IcmpErrorKind::PortUnreachable] {
            let pushed = push_error(&mut batch, kind, &body);
            prop_assert_eq!(pushed, crate::parse_fixed(body.bytes()).is_ok());
        }
    }
}

/// Changes a message of ICMP for IPv4 within its packet and sums it again.
fn altered(
    mut packet: Vec<u8>,
    alter: impl FnOnce(&mut Vec<u8>),
) -> Result<IcmpIncoming, DropReason> {
    let info = parse(&packet).expect("a sound packet");
    let mut message = packet.split_off(20);
    alter(&mut message);
    message[2..4].fill(0);
    let sum = !checksum::sum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    parse_icmp(&info, &message)
}

#[test]
fn the_reported_mtu_is_guessed_where_it_is_missing_and_has_a_floor() {
    let mtu_for = |len: usize, reported: u16| {
        let mut transport = SEGMENT.to_vec();
        transport.resize(len - 20, 0);
        let offending = packet_of_ours(false, protocol::TCP, &transport);
        let error = error_about(&offending, IcmpErrorKind::PacketTooBig { mtu_bytes: 1 });
        let incoming = altered(error, |message| {
            message[6..8].copy_from_slice(&reported.to_be_bytes());
        });
        match incoming {
            Ok(IcmpIncoming::Error(IcmpError {
                kind: IcmpErrorKind::PacketTooBig { mtu_bytes },
                ..
            })) => mtu_bytes,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(mtu_for(1500, 1400), 1400);
    assert_eq!(mtu_for(1500, 296), 296, "whether it is believed is another matter");
    assert_eq!(mtu_for(1500, 67), 68, "RFC 791, 3.2: less there is not");
    // RFC 1191, 5: the next lower plateau.
    assert_eq!(mtu_for(1500, 0), 1492);
    assert_eq!(mtu_for(1492, 0), 1006);
    assert_eq!(mtu_for(9000, 0), 8166);
    assert_eq!(mtu_for(552, 0), 68);
}

/// RFC 8201, 4: "If a node receives a Packet Too Big message reporting a next-hop MTU that is less
/// than the IPv6 minimum link MTU, it must discard it."
#[test]
fn no_report_lowers_an_ipv6_path_below_what_every_link_takes() {
    let offending = packet_of_ours(true, protocol::TCP, &SEGMENT);
    for reported in [0, 1279, 1280, 1281] {
        let kind = IcmpErrorKind::PacketTooBig { mtu_bytes: reported };
        match received(&error_about(&offending, kind)) {
            Ok(IcmpIncoming::Error(error)) if reported >= 1280 => assert_eq!(error.kind, kind),
            Err(DropReason::UnrelatedIcmp) if reported < 1280 => {}
            other => panic!("{other:?}"),
        }
    }
}

/// RFC 4443, 3.4: the pointer says where the unrecognised next header is named.
#[test]
fn an_unknown_protocol_is_pointed_at_where_it_is_named() {
    let plain = packet_of_ours(true, 200, &SEGMENT);
    let mut behind_options = packet_of_ours(true, protocol::DESTINATION_OPTIONS, &SEGMENT);
    behind_options[40..48].copy_from_slice(&[200, 0, 1, 4, 0, 0, 0, 0]);
    for (offending, expected) in [(plain, 6), (behind_options, 40)] {
        let packet = error_about(&offending, IcmpErrorKind::ProtocolUnreachable);
        let info = parse(&packet).expect("a sound packet");
        let message = IcmpView::parse(info.transport(&packet)).expect("a header is there");
        let expected = Icmpv6Repr::ParameterProblem { code: 1, pointer: expected };
        assert_eq!(Icmpv6Repr::parse(&message), expected);
    }
}

#[test]
fn codes_of_ipv4_mean_what_the_rfcs_say() {
    use IcmpErrorKind as Kind;
    let offending = packet_of_ours(false, protocol::TCP, &SEGMENT);
    for (code, expected, hard) in [
        (0, Kind::NetUnreachable, false),
        (1, Kind::HostUnreachable, false),
        (2, Kind::ProtocolUnreachable, true),
        (3, Kind::PortUnreachable, true),
        (5, Kind::SourceRouteFailed, false),
        (6, Kind::NetUnreachable, false),
        (7, Kind::HostUnknown, false),
        (8, Kind::SourceIsolated, false),
        (9, Kind::NetUnreachable, false),
        (10, Kind::Prohibited, true),
        (11, Kind::NetUnreachable, false),
        (12, Kind::HostUnreachable, false),
        (13, Kind::Prohibited, true),
    ] {
        let error = error_about(&offending, Kind::HostUnreachable);
        match altered(error, |message| message[1] = code) {
            Ok(IcmpIncoming::Error(error)) => {
                assert_eq!((error.kind, error.kind.is_hard()), (expected, hard), "code {code}");
            }
            other => panic!("code {code}: {other:?}"),
        }
    }
}

#[test]
fn what_is_of_no_use_is_named_so() {
    let offending = packet_of_ours(false, protocol::TCP, &SEGMENT);
    let error = || error_about(&offending, IcmpErrorKind::HostUnreachable);
    for kind in [Icmpv4Repr::SOURCE_QUENCH, Icmpv4Repr::REDIRECT, 13, 200] {
        assert_eq!(
            altered(error(), |message| message[0] = kind),
            Ok(IcmpIncoming::Other { kind, code: 1 })
        );
    }
    assert_eq!(altered(error(), |message| message.truncate(7)), Err(DropReason::MalformedIcmp));
    assert_eq!(altered(error(), |message| message.truncate(8)), Err(DropReason::MalformedIcmp));
    let short = altered(error(), |message| message.truncate(8 + 20 + 7));
    assert_eq!(short, Err(DropReason::MalformedIcmp), "ports and sequence number are cut off");
    let least = altered(error(), |message| message.truncate(8 + 20 + 8));
    assert!(matches!(least, Ok(IcmpIncoming::Error(_))), "RFC 792 promises no more than this");
    let later = altered(error(), |message| message[8 + 7] = 1);
    assert_eq!(later, Err(DropReason::UnrelatedIcmp), "a later fragment names no socket");
    let other = altered(error(), |message| message[8 + 9] = 132);
    let Ok(IcmpIncoming::Error(error)) = other else { panic!("{other:?}") };
    assert_eq!((error.quoted.local.port(), error.quoted.sequence), (0, None));
}

#[test]
fn an_error_quotes_the_packet_without_the_padding_of_the_link() {
    for v6 in [false, true] {
        let offending = packet_of_ours(v6, protocol::UDP, &SEGMENT);
        let mut padded = offending.clone();
        padded.extend([0xee; 30]);
        let kind = IcmpErrorKind::PortUnreachable;
        assert_eq!(error_about(&padded, kind), error_about(&offending, kind));
    }
}

#[test]
fn each_family_has_its_own_icmp() {
    let request = packet_of_ours(true, protocol::ICMP, &[8, 0, 0xf7, 0xfd, 0, 1, 0, 1]);
    assert_eq!(received(&request), Err(DropReason::UnknownProtocol));
}

#[test]
fn neighbour_and_listener_discovery_are_passed_on_unread() {
    let (ours, theirs) = addresses(true);
    for kind in 130..=144 {
        let mut batch = Multidata::default();
        let checksum = Checksum::Missing { offset: 2 };
        let attributes = Attributes { checksum, ..Attributes::default() };
        let header = [kind, 0, 0, 0, 0, 0, 0, 0];
        batch.push_packet(8, attributes).expect("room").copy_from_slice(&header);
        let packet = sent(&mut batch, theirs, ours, protocol::ICMPV6);
        let expected = match kind {
            130..=132 | 143 => IcmpIncoming::Mld,
            133..=137 => IcmpIncoming::Ndp,
            _ => IcmpIncoming::Other { kind, code: 0 },
        };
        assert_eq!(received(&packet), Ok(expected), "type {kind}");
    }
}

#[test]
fn a_message_without_room_leaves_the_batch_as_it_was() {
    let limits = Limits { packets: 2, blocks: 8, payload_bytes: 50 };
    let mut batch = Multidata::new(HeaderLayout::default(), limits);
    let request = Echo { identifier: 1, sequence: 1, data: 8..59 };
    for to in [addresses(false).0, addresses(true).0] {
        assert!(!push_echo_reply(&mut batch, to, &request, &chunk(&[0; 51])));
        assert!(batch.is_empty());
    }
    let offending = packet_of_ours(false, protocol::TCP, &SEGMENT);
    let kind = IcmpErrorKind::PortUnreachable;
    assert!(push_error(&mut batch, kind, &chunk(&offending)));
    assert!(!push_error(&mut batch, kind, &chunk(&offending)));
    assert!(!push_error(&mut batch, kind, &chunk(b"no packet")));
    assert_eq!((batch.len(), batch.payload_bytes()), (1, 40));
}

fn info(source: &str, destination: &str, protocol: u8) -> PacketInfo {
    PacketInfo {
        source: source.parse().expect("an address"),
        destination: destination.parse().expect("an address"),
        protocol,
        header_len: 20,
        total_len: 100,
        hop_limit: 1,
        traffic_class: 0,
        fragment: false,
        has_options: false,
        fragmented: false,
    }
}

/// RFC 1122, 3.2.2 and RFC 4443, 2.4 e: what MUST NOT be answered with an error.
#[test]
fn errors_are_withheld_where_they_could_do_harm() {
    let kind = IcmpErrorKind::PortUnreachable;
    let plain = Arrival::default();
    let may = |info: PacketInfo, transport: &[u8], arrival| {
        may_answer_with_error(&info, transport, kind, arrival)
    };
    let udp = info("10.0.0.2", "10.0.0.1", protocol::UDP);
    let udp6 = info("fd00::2", "fd00::1", protocol::UDP);
    assert!(may(udp, &[], plain) && may(udp6, &[], plain));
    for arrival in
        [Arrival { link_multicast: true, ..plain }, Arrival { directed_broadcast: true, ..plain }]
    {
        assert!(!may(udp, &[], arrival) && !may(udp6, &[], arrival));
        assert!(!may_answer_echo(&udp, arrival) && may_answer_echo(&udp, plain));
    }
    for destination in ["224.0.0.251", "255.255.255.255"] {
        assert!(!may(info("10.0.0.2", destination, protocol::UDP), &[], plain));
        assert!(!may_answer_echo(&info("10.0.0.2", destination, protocol::ICMP), plain));
    }
    // RFC 4443, 4.2: groups of the link, to which nobody beyond it can send.
    let of_group = Arrival { link_multicast: true, ..plain };
    for (destination, expected) in [("ff02::1", true), ("ff05::1", false), ("fd00::1", false)] {
        let info = info("fe80::2", destination, protocol::ICMPV6);
        assert_eq!(may_answer_echo(&info, of_group), expected, "{destination}");
    }
    for source in ["0.0.0.0", "0.1.2.3", "127.0.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255"] {
        assert!(!may(info(source, "10.0.0.1", protocol::UDP), &[], plain), "{source}");
    }
    for source in ["::", "::1", "ff02::1"] {
        assert!(!may(info(source, "fd00::1", protocol::UDP), &[], plain), "{source}");
    }
    // What has not left this host.
    let own = Arrival { from_own_host: true, ..plain };
    for (source, expected) in
        [("127.0.0.1", true), ("::1", true), ("0.0.0.0", false), ("::", false)]
    {
        let info =
            info(source, if source.contains(':') { "::1" } else { "127.0.0.1" }, protocol::UDP);
        assert_eq!(
            (may(info, &[], own), may_answer_echo(&info, own)),
            (expected, expected),
            "{source}"
        );
    }
    assert!(!may(PacketInfo { fragment: true, ..udp }, &[], plain));

    let icmp = info("10.0.0.2", "10.0.0.1", protocol::ICMP);
    for (kind, expected) in [(0, true), (3, false), (5, false), (8, true), (11, false), (99, false)]
    {
        assert_eq!(may(icmp, &[kind], plain), expected, "type {kind}");
    }
    let icmp6 = info("fd00::2", "fd00::1", protocol::ICMPV6);
    for (kind, expected) in [(1, false), (127, false), (128, true), (137, false), (200, true)] {
        assert_eq!(may(icmp6, &[kind], plain), expected, "type {kind}");
    }
    assert!(!may(icmp, &[], plain) && !may(icmp6, &[], plain), "too short to tell");

    // RFC 4443, 2.4 e 3: the one exception that matters for path MTU discovery.
    let too_big = IcmpErrorKind::PacketTooBig { mtu_bytes: 1280 };
    let multicast = info("fd00::2", "ff0e::1", protocol::UDP);
    assert!(may_answer_with_error(&multicast, &[], too_big, plain));
    assert!(!may_answer_with_error(&multicast, &[], kind, plain));
    let multicast = info("10.0.0.2", "224.1.1.1", protocol::UDP);
    assert!(!may_answer_with_error(&multicast, &[], too_big, plain), "IPv4 has no exception");
}
