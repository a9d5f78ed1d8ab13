//! Fragments, packets that cannot be read, and what their senders hear, over a link in virtual time.

use crate::harness::{self, Net, address, data, station};
use batch::{Block, Chunk};
use bytes::Bytes;
use core::net::SocketAddr;
use counters::DropReason;
use device::{HardwareAddress, TransmitMode};
use stack::{MtuDiscovery, SocketError, SocketId};
use time::Duration;
use wire::{
    EthernetRepr, IcmpView, Icmpv6Repr, Ipv4Repr, Ipv4View, Ipv6FragmentRepr, Ipv6Repr, Ipv6View,
    ether_type, protocol,
};

const PORT: u16 = 4_000;

/// A frame from host 0 to host 1.
fn frame(to: HardwareAddress, ether_type: u16, packet: &[u8]) -> Vec<u8> {
    let header = EthernetRepr { destination: to, source: station(0), ether_type };
    [&header.to_bytes()[..], packet].concat()
}

/// A UDP datagram without a checksum, which IPv4 allows.
fn datagram(payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 8];
    wire::UdpRepr { source_port: 9, destination_port: PORT, payload_len: payload.len() }
        .emit(&mut bytes);
    bytes.extend(payload);
    bytes
}

fn ipv4_fragment(whole: &[u8], range: core::ops::Range<usize>) -> Vec<u8> {
    let mut bytes = vec![0; Ipv4Repr::LEN];
    let repr = Ipv4Repr {
        dscp_ecn: 0,
        identification: 77,
        dont_fragment: false,
        more_fragments: range.end < whole.len(),
        fragment_offset_bytes: range.start,
        hop_limit: 64,
        protocol: protocol::UDP,
        source: [10, 0, 0, 1].into(),
        destination: [10, 0, 0, 2].into(),
        payload_len: range.len(),
    };
    repr.emit(&mut bytes);
    bytes.extend(&whole[range]);
    bytes
}

fn ipv6(next_header: u8, behind: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; Ipv6Repr::LEN];
    let repr = Ipv6Repr {
        dscp_ecn: 0,
        flow_label: 0,
        payload_len: behind.len(),
        next_header,
        hop_limit: 255,
        source: "fd00::1".parse().expect("an address"),
        destination: "fd00::2".parse().expect("an address"),
    };
    repr.emit(&mut bytes);
    bytes.extend(behind);
    bytes
}

fn ipv6_fragment(next_header: u8, offset_bytes: usize, more: bool, data: &[u8]) -> Vec<u8> {
    let mut behind = vec![0; Ipv6FragmentRepr::LEN];
    let repr =
        Ipv6FragmentRepr { next_header, offset_bytes, more_fragments: more, identification: 5 };
    repr.emit(&mut behind);
    behind.extend(data);
    ipv6(protocol::FRAGMENT, &behind)
}

fn net() -> Net {
    Net::new(TransmitMode::Multidata, true)
}

/// The ICMP messages host 1 has sent, as type, code and the four bytes behind the checksum.
fn icmp_of_host_1(net: &Net) -> Vec<(u8, u8, u32)> {
    let message = |packet: &[u8]| match packet[0] >> 4 {
        4 => {
            let view = Ipv4View::parse(packet).expect("sound");
            (view.protocol() == protocol::ICMP).then(|| view.payload().to_vec())
        }
        _ => {
            let view = Ipv6View::parse(packet).expect("sound");
            let is_icmp = view.next_header() == protocol::ICMPV6;
            // Neighbour discovery is another matter.
            let kind = IcmpView::parse(view.payload()).ok().map(|view| Icmpv6Repr::parse(&view));
            let is_error = !matches!(kind, Some(Icmpv6Repr::Other { .. }) | None);
            (is_icmp && is_error).then(|| view.payload().to_vec())
        }
    };
    let ours = net.wire.iter().filter(|(from, frame)| {
        *from == 1 && matches!(u16::from_be_bytes([frame[12], frame[13]]), 0x0800 | 0x86dd)
    });
    ours.filter_map(|(_, frame)| message(&frame[14..]))
        .map(|bytes| {
            (bytes[0], bytes[1], u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]))
        })
        .collect()
}

fn drops(net: &Net, reason: DropReason) -> u64 {
    net.hosts[1].shard.counters().drops.count(reason)
}

// RFC 791, 3.2: what comes in fragments goes up as one datagram, by the way of all datagrams.
#[test]
fn a_datagram_in_fragments_reaches_its_socket() {
    let mut net = net();
    let local = SocketAddr::new(address(1, false), PORT);
    let socket = net.hosts[1].shard.udp_bind(local).expect("a free port");
    let payload = data(3_000);
    let whole = datagram(&payload);
    let fragment = |range| frame(station(1), ether_type::IPV4, &ipv4_fragment(&whole, range));
    net.inject(1, [fragment(2_960..3_008), fragment(0..1_480), fragment(1_480..2_960)]);
    let (chunk, source) = net.hosts[1].shard.udp_receive(socket).expect("whole again");
    assert_eq!(chunk.bytes(), payload);
    assert_eq!(source, SocketAddr::new(address(0, false), 9));
    let counters = net.hosts[1].shard.counters();
    assert_eq!((counters.shard.fragments_received, counters.shard.datagrams_reassembled), (3, 1));
    assert_eq!(counters.drops.total(), 0);
}

// RFC 1122, 3.3.2 and RFC 792: time exceeded, code 1, where fragment zero had come, and only there.
#[test]
fn the_sender_of_a_first_fragment_hears_that_time_ran_out() {
    let mut net = net();
    let whole = datagram(&data(3_000));
    let fragment = |range| frame(station(1), ether_type::IPV4, &ipv4_fragment(&whole, range));
    net.inject(1, [fragment(0..1_480)]);
    net.run(Duration::from_millis(29_999));
    assert_eq!(icmp_of_host_1(&net), []);
    net.run(Duration::from_millis(2));
    assert_eq!(icmp_of_host_1(&net), [(11, 1, 0)]);
    net.inject(1, [fragment(1_480..2_960)]);
    net.run(Duration::from_secs(31));
    assert_eq!(icmp_of_host_1(&net).len(), 1, "nothing is said of later fragments");
    assert_eq!(drops(&net, DropReason::FragmentTimeout), 2);
}

/// The first frame of host 0 with a segment, as a first fragment that nothing follows.
fn first_segment_cut(net: &Net) -> Vec<u8> {
    let is_segment = |frame: &&Vec<u8>| frame[14] >> 4 == 4 && frame[14 + 9] == protocol::TCP;
    let ours = net.wire.iter().filter(|(from, _)| *from == 0).map(|(_, frame)| frame);
    let mut bytes = ours.clone().find(is_segment).expect("it was sent").clone();
    let header = &mut bytes[14..34];
    header[6..8].copy_from_slice(&0x2000_u16.to_be_bytes());
    header[10..12].fill(0);
    let sum = !checksum::sum(header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes
}

// RFC 9293, 3.9.2.2, MUST-56: time exceeded is no reason to give up. Of a SYN with data (RFC 7413) a piece may be lost
// where something cuts it, and the host that says so is there.
#[test]
fn an_open_outlives_the_loss_of_a_piece_of_its_syn() {
    let mut net = net();
    let to = SocketAddr::new(address(1, false), PORT);
    net.hosts[1].shard.tcp_listen(to, 16).expect("a free port");
    net.fate = Box::new(|_, frame| match frame.get(14 + 9) {
        Some(&protocol::TCP) => harness::Fate::Lose,
        _ => harness::Fate::Deliver,
    });
    let client = net.hosts[0].shard.tcp_connect(net.now, None, to).expect("a route");
    net.run(Duration::from_millis(10));
    let cut = first_segment_cut(&net);
    net.inject(1, [cut]);
    net.run(Duration::from_secs(31));
    assert_eq!(icmp_of_host_1(&net), [(11, 1, 0)]);
    let counters = net.hosts[0].shard.counters();
    assert_eq!(counters.drops.count(DropReason::UnrelatedIcmp), 0, "it is of this SYN");
    net.fate = Box::new(|_, _| harness::Fate::Deliver);
    net.run(Duration::from_secs(60));
    let status = net.hosts[0].shard.tcp_status(client).expect("it is not gone");
    assert_eq!((status.state, status.error), (tcp::State::Established, None));
}

#[test]
fn the_sender_of_an_ipv6_first_fragment_hears_it_after_a_minute() {
    let mut net = net();
    let packet = ipv6_fragment(protocol::UDP, 0, true, &datagram(&data(992)));
    net.inject(1, [frame(station(1), ether_type::IPV6, &packet)]);
    net.run(Duration::from_millis(59_999));
    assert_eq!(icmp_of_host_1(&net), []);
    net.run(Duration::from_millis(2_000));
    assert_eq!(icmp_of_host_1(&net), [(3, 1, 0)]);
}

// RFC 8200, 4.5: code 3 for a header chain that the first fragment does not hold; code 0 for a
// length that is no multiple of 8.
#[test]
fn senders_of_broken_ipv6_fragments_are_told() {
    let mut net = net();
    let tiny = ipv6_fragment(protocol::TCP, 0, true, &[0; 16]);
    let odd = ipv6_fragment(protocol::UDP, 8, true, &[0; 17]);
    let frames = [tiny, odd].map(|packet| frame(station(1), ether_type::IPV6, &packet));
    net.inject(1, frames);
    net.run(Duration::from_millis(10));
    assert_eq!(icmp_of_host_1(&net), [(4, 3, 0), (4, 0, 4)]);
    assert_eq!(drops(&net, DropReason::Fragment), 2);
}

// RFC 5095, 3 and RFC 8200, 4.2: a source route and an option that asks for it are answered.
#[test]
fn senders_of_extension_headers_that_are_not_understood_are_told() {
    let mut net = net();
    let mut route = vec![protocol::UDP, 2, 0, 1, 0, 0, 0, 0];
    route.extend([0; 16]);
    route.extend(datagram(&[]));
    let option = [&[protocol::UDP, 0, 0x80, 4, 0, 0, 0, 0][..], &datagram(&[])].concat();
    // RFC 8200, 4: hop-by-hop options that are not the first header are to its reader what nobody knows.
    let padding = |next| [next, 0, 1, 4, 0, 0, 0, 0];
    let late = [padding(protocol::HOP_BY_HOP), padding(protocol::UDP)].concat();
    let late = [late, datagram(&[])].concat();
    let packets = [
        ipv6(protocol::ROUTING, &route),
        ipv6(protocol::HOP_BY_HOP, &option),
        ipv6(protocol::DESTINATION_OPTIONS, &late),
        ipv6(
            protocol::DESTINATION_OPTIONS,
            &[&padding(protocol::DESTINATION_OPTIONS), &late[..]].concat(),
        ),
    ];
    // A switch that has forgotten whose it is sends to all ports what is another's: no answer is made, which would be
    // one less of those that may leave.
    let mut of_another = packets[0].clone();
    of_another[Ipv6Repr::LEN - 1] = 7;
    let all = [of_another].into_iter().chain(packets);
    net.inject(1, all.map(|packet| frame(station(1), ether_type::IPV6, &packet)));
    net.run(Duration::from_millis(10));
    assert_eq!(icmp_of_host_1(&net), [(4, 0, 42), (4, 2, 42), (4, 1, 40), (4, 1, 48)]);
    assert_eq!(drops(&net, DropReason::MalformedIp), 5);
    assert_eq!(drops(&net, DropReason::SourceRemoved), 0);
}

// RFC 8200, 4.2: option types that begin with 10 are answered whatever the destination, those with 11 not where it is
// a group; RFC 4443, 2.2 b: from an address of ours.
#[test]
fn an_option_in_a_packet_to_all_is_answered_from_one_of_us() {
    for (kind, answers) in [(0x80, 1), (0xc0, 0)] {
        let mut net = net();
        let option = [&[protocol::UDP, 0, kind, 4, 0, 0, 0, 0][..], &datagram(&[])].concat();
        let mut packet = ipv6(protocol::HOP_BY_HOP, &option);
        let all = "ff02::1".parse::<core::net::Ipv6Addr>().expect("an address");
        packet[24..40].copy_from_slice(&all.octets());
        let stations = HardwareAddress::of_ip_multicast(all.into()).expect("a group");
        net.inject(1, [frame(stations, ether_type::IPV6, &packet)]);
        net.run(Duration::from_millis(10));
        assert_eq!(icmp_of_host_1(&net), vec![(4, 2, 42); answers]);
        assert_eq!(drops(&net, DropReason::SourceRemoved), 0);
    }
}

// RFC 6980, 5: neighbour discovery with a fragment header, even an atomic one, is ignored.
#[test]
fn neighbour_discovery_in_fragments_is_ignored() {
    for fragmented in [false, true] {
        let mut net = net();
        let mut message = vec![135, 0, 0, 0, 0, 0, 0, 0];
        message.extend("fd00::2".parse::<core::net::Ipv6Addr>().expect("an address").octets());
        message.extend([1, 1, 2, 0, 0, 0, 0, 1]);
        let mut whole = ipv6(protocol::ICMPV6, &message);
        let info = ip::parse(&whole).expect("sound");
        let sum = (0..=u16::MAX).find(|sum| {
            whole[42..44].copy_from_slice(&sum.to_be_bytes());
            ip::transport_checksum_ok(&info, info.transport(&whole))
        });
        message[2..4].copy_from_slice(&sum.expect("one of them is right").to_be_bytes());
        let packet = match fragmented {
            false => ipv6(protocol::ICMPV6, &message),
            true => ipv6_fragment(protocol::ICMPV6, 0, false, &message),
        };
        net.inject(1, [frame(station(1), ether_type::IPV6, &packet)]);
        let ignored = drops(&net, DropReason::MalformedNeighbour);
        assert_eq!(ignored, u64::from(fragmented));
    }
}

// RFC 1122, 3.3.6: "A host SHOULD silently discard a datagram that is received via a link-layer
// broadcast [...] but does not specify an IP multicast or broadcast destination address."
#[test]
fn a_packet_to_one_host_in_a_frame_to_all_is_discarded() {
    let mut net = net();
    let whole = datagram(b"x");
    let packet = ipv4_fragment(&whole, 0..whole.len());
    net.inject(1, [frame(HardwareAddress::BROADCAST, ether_type::IPV4, &packet)]);
    net.run(Duration::from_millis(10));
    assert_eq!(drops(&net, DropReason::LinkBroadcast), 1);
    assert_eq!(icmp_of_host_1(&net), []);
    net.inject(1, [frame(station(1), ether_type::IPV4, &packet)]);
    net.run(Duration::from_millis(10));
    assert_eq!(icmp_of_host_1(&net), [(3, 3, 0)], "the port is unreachable");
}

/// A socket on each host, the second at [`PORT`].
fn sockets(net: &mut Net, ipv6: bool) -> [SocketId; 2] {
    [0, 1].map(|host| {
        let port = if host == 0 { 9 } else { PORT };
        let local = SocketAddr::new(address(host, ipv6), port);
        net.hosts[host].shard.udp_bind(local).expect("a free port")
    })
}

fn send(net: &mut Net, socket: SocketId, ipv6: bool, bytes: &[u8]) -> Result<(), SocketError> {
    let to = SocketAddr::new(address(1, ipv6), PORT);
    let chunk = Chunk::whole(Block::from(Bytes::copy_from_slice(bytes)));
    net.hosts[0].shard.udp_send(socket, Some(to), chunk)
}

/// The IPv4 headers of what host 0 has sent, as DF, MF, offset and identification.
fn ipv4_of_host_0(net: &Net) -> Vec<(bool, bool, usize, u16)> {
    let ours = net.wire.iter().filter(|(from, frame)| *from == 0 && frame[12..14] == [8, 0]);
    ours.map(|(_, frame)| {
        let view = Ipv4View::parse(&frame[14..]).expect("sound");
        let more = view.more_fragments();
        (view.dont_fragment(), more, view.fragment_offset_bytes(), view.identification())
    })
    .collect()
}

// RFC 8200, 5: "a node may fragment"; RFC 1122, 3.3.3. Whatever the batch holds and the device takes.
#[test]
fn long_datagrams_cross_the_link_in_fragments() {
    for (mode, takes) in [
        (TransmitMode::Multidata, usize::MAX),
        (TransmitMode::Multidata, 7),
        (TransmitMode::Multidata, 1),
        (TransmitMode::Single, 1),
    ] {
        for ipv6 in [false, true] {
            let mut net = Net::new(mode, true);
            net.hosts[0].take = Box::new(move |built| built.min(takes));
            let [client, server] = sockets(&mut net, ipv6);
            let lens = [1_473, 65_507, 10, 3_000];
            for len in lens {
                send(&mut net, client, ipv6, &data(len)).expect("it may be fragmented");
            }
            net.run(Duration::from_millis(10));
            for len in lens {
                let (chunk, _) = net.hosts[1].shard.udp_receive(server).expect("it arrived");
                assert!(chunk.bytes() == data(len), "{len} bytes in {mode:?}, {takes} a batch");
            }
            let sent = net.hosts[0].shard.counters();
            assert_eq!((sent.shard.datagrams_fragmented, sent.drops.total()), (3, 0));
            assert_eq!(net.hosts[1].shard.counters().drops.total(), 0);
        }
    }
}

// As Linux's ip(7) describes IP_MTU_DISCOVER.
#[test]
fn a_socket_says_whether_its_datagrams_may_be_fragmented() {
    let mut net = net();
    let [client, _] = sockets(&mut net, false);
    for (discovery, long, dont_fragment) in [
        (MtuDiscovery::Want, Ok(()), true),
        (MtuDiscovery::Dont, Ok(()), false),
        (MtuDiscovery::Do, Err(SocketError::MessageTooLong), true),
        (MtuDiscovery::Probe, Err(SocketError::MessageTooLong), true),
    ] {
        net.hosts[0].shard.udp_set_mtu_discovery(client, discovery).expect("open");
        assert_eq!(send(&mut net, client, false, &data(1_473)), long, "{discovery:?}");
        net.run(Duration::from_millis(1));
        net.wire.clear();
        send(&mut net, client, false, &data(1_472)).expect("it fits");
        send(&mut net, client, false, &data(1_472)).expect("it fits");
        net.run(Duration::from_millis(1));
        let sent = ipv4_of_host_0(&net);
        assert!(
            sent.iter().all(|(df, more, at, _)| (*df, *more, *at) == (dont_fragment, false, 0))
        );
        // RFC 6864, 4.2: what may be fragmented needs an identification of its own.
        assert_ne!(sent[0].3, sent[1].3);
    }
}

// RFC 1122, 3.2.2.6: "Data received in an ICMP Echo Request MUST be entirely included in the
// resulting Echo Reply", however long.
#[test]
fn a_long_echo_comes_back_in_fragments() {
    let mut net = net();
    let mut request = vec![8, 0, 0, 0, 0, 7, 0, 1];
    request.extend(data(5_000));
    let sum = !checksum::sum(&request);
    request[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut frames = Vec::new();
    for start in (0..request.len()).step_by(1_480) {
        let range = start..request.len().min(start + 1_480);
        let mut packet = ipv4_fragment(&request, range);
        packet[9] = protocol::ICMP;
        packet[10..12].fill(0);
        let sum = !checksum::sum(&packet[..20]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        frames.push(frame(station(1), ether_type::IPV4, &packet));
    }
    net.inject(1, frames);
    net.run(Duration::from_millis(10));
    let mut reply = vec![0; 5_008];
    for (_, frame) in net.wire.iter().filter(|(from, frame)| *from == 1 && frame[12] == 8) {
        if let Ok(view) = Ipv4View::parse(&frame[14..]) {
            let at = view.fragment_offset_bytes();
            reply[at..at + view.payload().len()].copy_from_slice(view.payload());
        }
    }
    assert_eq!((reply[0], checksum::sum(&reply)), (0, 0xffff));
    assert_eq!(reply[4..], request[4..]);
}

// RFC 4443, 2.4 e.1: "An ICMPv6 error message MUST NOT be originated as a result of receiving [...] an ICMPv6
// error message", whatever lies before it.
#[test]
fn icmp_errors_behind_extension_headers_are_not_answered() {
    let unreachable = [&[1, 0, 0, 0, 0, 0, 0, 0][..], &data(992)].concat();
    let option = |kind| [protocol::ICMPV6, 0, kind, 4, 0, 0, 0, 0];
    let routing = [protocol::ICMPV6, 0, 1, 4, 0, 0, 0, 0];
    let packets = [
        ipv6_fragment(protocol::ICMPV6, 0, true, &unreachable),
        // A later part, of what nobody can tell, whose length is no multiple of 8.
        ipv6_fragment(protocol::ICMPV6, 8, true, &[0x80; 17]),
        ipv6(protocol::HOP_BY_HOP, &[&option(0x80)[..], &unreachable].concat()),
        ipv6(protocol::DESTINATION_OPTIONS, &[&option(0x80)[..], &unreachable].concat()),
        ipv6(protocol::ROUTING, &[&routing[..], &unreachable].concat()),
        // A header that must not be there does not hide it.
        ipv6(
            protocol::DESTINATION_OPTIONS,
            &[&[protocol::HOP_BY_HOP, 0, 0x80, 4, 0, 0, 0, 0], &option(1)[..], &unreachable]
                .concat(),
        ),
    ];
    let mut net = net();
    net.inject(1, packets.map(|packet| frame(station(1), ether_type::IPV6, &packet)));
    net.run(Duration::from_secs(62));
    assert_eq!(icmp_of_host_1(&net), []);
    assert_eq!(net.hosts[1].shard.counters().drops.count(DropReason::IcmpRateLimited), 0);
    // An echo request is none.
    let echo = [&option(0x80)[..], &[128, 0, 0, 0, 0, 0, 0, 0]].concat();
    let packet = ipv6(protocol::HOP_BY_HOP, &echo);
    net.inject(1, [frame(station(1), ether_type::IPV6, &packet)]);
    net.run(Duration::from_millis(10));
    assert_eq!(icmp_of_host_1(&net), [(4, 2, 42)]);
}

// RFC 8200, 4.7: nothing follows, and what does is ignored.
#[test]
fn a_packet_in_which_nothing_follows_is_dropped_in_silence() {
    let mut net = net();
    for (next_header, answers) in [(protocol::NO_NEXT_HEADER, 0), (253, 1)] {
        net.inject(1, [frame(station(1), ether_type::IPV6, &ipv6(next_header, &[7; 16]))]);
        net.run(Duration::from_millis(10));
        assert_eq!(icmp_of_host_1(&net).len(), answers, "{next_header}");
    }
    assert_eq!(drops(&net, DropReason::UnknownProtocol), 2);
}

/// What is for another host, or comes from nobody, is not kept until the rest of it is here.
#[test]
fn fragments_for_others_are_not_kept() {
    let mut net = net();
    let whole = datagram(&data(3_000));
    for (at, value, reason) in
        [(19, 77, DropReason::NotOurAddress), (12, 127, DropReason::BadSource)]
    {
        let mut packet = ipv4_fragment(&whole, 0..1_480);
        packet[at] = value;
        packet[10..12].fill(0);
        let sum = !checksum::sum(&packet[..20]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        net.inject(1, [frame(station(1), ether_type::IPV4, &packet)]);
        assert_eq!((drops(&net, reason), net.hosts[1].shard.holdings().reassemblies), (1, 0));
    }
}
