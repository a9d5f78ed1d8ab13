use super::{FRAGMENTED_HEADER_LEN, Fragmenting, Identifications};
use crate::reassembly::{Reassembly, ReassemblyConfig, ReceivedFragment};
use crate::{Arrival, HeaderTemplate, PacketInfo, parse, parse_fragment, transport_checksum_ok};
use batch::{Block, BlockPool, Chunk, HeaderLayout, Limits, Multidata, PoolConfig};
use bytes::Bytes;
use core::net::IpAddr;
use counters::DropCounters;
use proptest::prelude::*;
use std::collections::{HashSet, hash_map::RandomState};
use std::sync::Arc;
use time::Instant;
use wire::{Ipv4Options, Ipv4View, protocol};

fn template(ipv6: bool, transport: u8) -> HeaderTemplate {
    let text = if ipv6 { ["2001:db8::1", "2001:db8::2"] } else { ["192.0.2.1", "192.0.2.2"] };
    let [source, destination] = text.map(|text| text.parse().expect("an address"));
    HeaderTemplate::new(source, destination, transport, 64, 2)
}

fn datagram(template: &HeaderTemplate, payload: &[u8]) -> Fragmenting {
    let mut header = [0; FRAGMENTED_HEADER_LEN];
    let (source_port, destination_port) = (1, 2);
    wire::UdpRepr { source_port, destination_port, payload_len: payload.len() }.emit(&mut header);
    let payload = Chunk::whole(Block::from(Bytes::copy_from_slice(payload)));
    Fragmenting::new(template, header, Some(6), payload, 0x1234_5678)
}

/// The packets of a datagram, sent in batches of at most `room` packets of which `takes` are taken.
fn packets(
    template: &HeaderTemplate,
    mut rest: Fragmenting,
    mtu_bytes: usize,
    room: usize,
    takes: usize,
) -> Vec<Vec<u8>> {
    let limits = Limits { packets: room, ..Limits::default() };
    let mut batch = Multidata::new(HeaderLayout::default(), limits);
    let mut packets = Vec::new();
    loop {
        batch.clear();
        let count = rest.packet_count(template, mtu_bytes);
        let built = rest.push(&mut batch, template, mtu_bytes);
        assert_eq!(built, count.min(room));
        let taken = built.min(takes);
        for packet in batch.packets().take(taken) {
            let mut bytes = vec![0; packet.len()];
            packet.copy_to(&mut bytes).expect("room");
            assert!(bytes.len() <= mtu_bytes);
            packets.push(bytes);
        }
        if rest.on_sent(template, mtu_bytes, taken) {
            return packets;
        }
    }
}

fn together(packets: &[Vec<u8>]) -> (PacketInfo, Vec<u8>) {
    if let [packet] = packets {
        let info = parse(packet).expect("one packet is no fragment");
        return (info, info.transport(packet).to_vec());
    }
    let mut reassembly = Reassembly::new(ReassemblyConfig::default(), RandomState::new());
    let pool = BlockPool::new(PoolConfig::default());
    for packet in packets {
        let fragment = parse_fragment(packet).expect("a sound fragment");
        let packet = Chunk::whole(Block::from(Bytes::copy_from_slice(packet)));
        let arrival = Arrival::default();
        let received = ReceivedFragment { packet, sparse: false, interface: 0, arrival };
        let drops = &mut DropCounters::default();
        let taken = reassembly.on_fragment(Instant::ZERO, &fragment, received, &pool, drops);
        if let Some(whole) = taken.expect("nothing is wrong with it") {
            let info = parse(whole.bytes()).expect("sound");
            return (info, info.transport(whole.bytes()).to_vec());
        }
    }
    panic!("a fragment is missing");
}

proptest! {
    // RFC 791, 3.2 and RFC 8200, 4.5, both ways: what is taken apart is put together.
    #[test]
    fn reassembly_after_fragmentation_is_identity(
        len in 0_usize..9_000,
        mtu_bytes in 1_280_usize..3_000,
        (room, takes) in (1_usize..9, 1_usize..9),
        (ipv6, is_icmp) in any::<(bool, bool)>(),
    ) {
        let transport = match (is_icmp, ipv6) {
            (false, _) => protocol::UDP,
            (true, false) => protocol::ICMP,
            (true, true) => protocol::ICMPV6,
        };
        let template = template(ipv6, transport);
        let payload: Vec<u8> = (0..len).map(|at| (at * 7 % 253) as u8).collect();
        prop_assume!(!ipv6 || len + 48 > mtu_bytes);
        let packets = packets(&template, datagram(&template, &payload), mtu_bytes, room, takes);
        let (info, whole) = together(&packets);
        prop_assert_eq!((info.protocol, info.ecn()), (transport, 2));
        prop_assert_eq!(&whole[FRAGMENTED_HEADER_LEN..], &payload[..]);
        match transport {
            protocol::ICMP => prop_assert_eq!(checksum::sum(&whole), 0xffff),
            _ => prop_assert!(transport_checksum_ok(&info, &whole)),
        }
    }
}

#[test]
fn the_longest_datagram_goes_over_the_narrowest_path() {
    for (ipv6, mtu_bytes, len) in [(false, 68, 65_507), (true, 1_280, 65_527)] {
        let template = template(ipv6, protocol::UDP);
        let payload = vec![0x5a; len];
        let packets = packets(&template, datagram(&template, &payload), mtu_bytes, 64, 64);
        let (info, whole) = together(&packets);
        assert_eq!(whole.len(), 8 + len);
        assert!(transport_checksum_ok(&info, &whole));
    }
}

// RFC 791, 3.1: the first fragment has all options, those behind it what is marked as copied.
#[test]
fn fragments_carry_the_options_that_are_theirs() {
    const RECORD_ROUTE: [u8; 8] = [7, 7, 4, 0, 0, 0, 0, 1];
    const ROUTER_ALERT: [u8; 4] = [148, 4, 0, 0];
    let both = [&RECORD_ROUTE[..], &ROUTER_ALERT].concat();
    for (options, later) in [(&both[..], &ROUTER_ALERT[..]), (&RECORD_ROUTE, &[]), (&[1; 40], &[])]
    {
        let mut template = template(false, protocol::UDP);
        template.set_options(Some(Arc::new(Ipv4Options::parse(options).expect("harmless"))));
        let payload: Vec<u8> = (0..5_000_usize).map(|at| (at * 7 % 253) as u8).collect();
        let packets = packets(&template, datagram(&template, &payload), 576, 4, 3);
        assert!(packets.len() > 9);
        for (index, packet) in packets.iter().enumerate() {
            let view = Ipv4View::parse(packet).expect("sound");
            assert_eq!(view.options(), if index == 0 { options } else { later });
            assert!(view.checksum_ok());
        }
        let (info, whole) = together(&packets);
        assert!(info.has_options && transport_checksum_ok(&info, &whole));
        assert_eq!(whole[FRAGMENTED_HEADER_LEN..], payload);
    }
}

// RFC 7739, 3: who knows the identifications of one destination must not know those of another.
// RFC 6864, 4.2: no two datagrams of one destination have the same.
#[test]
fn identifications_do_not_repeat_and_tell_nothing_of_other_peers() {
    let mut identifications = Identifications::new(RandomState::new());
    let address = |last: u8| IpAddr::from([192, 0, 2, last]);
    let mut next = |last| identifications.next(address(1), address(last), protocol::UDP);
    let of_one: HashSet<u16> = (0..10_000).map(|_| next(2) as u16).collect();
    assert_eq!(of_one.len(), 10_000);
    let first_of_each: HashSet<u32> = (3..=255).map(&mut next).collect();
    assert!(first_of_each.len() > 250);
    let neighbours = (3..255).filter(|last| next(*last).abs_diff(next(last + 1)) < 1 << 16).count();
    assert!(neighbours < 10, "{neighbours} peers were given numbers close to another's");
}

#[test]
fn users_that_share_the_numbers_give_out_different_ones() {
    let keys = RandomState::new();
    let address = |last: u8| IpAddr::from([192, 0, 2, last]);
    let mut seen = HashSet::new();
    for index in 0..3 {
        let mut identifications = Identifications::new(keys.clone());
        identifications.share(index, 3);
        for _ in 0..16_384 {
            let next = identifications.next(address(1), address(2), protocol::UDP) as u16;
            assert!(seen.insert(next), "user {index} gave {next} again");
        }
    }
}
