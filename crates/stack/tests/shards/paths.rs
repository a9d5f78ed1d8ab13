//! What paths take: reports of narrow places, MTUs that change, MSS, over a link in virtual time.

use crate::harness::{self, Net, address, data, station};
use batch::{Block, Chunk};
use bytes::Bytes;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use counters::DropReason;
use device::TransmitMode;
use stack::{Envelope, MtuDiscovery, ReportOrigin, SocketError, SocketId};
use tcp::PathProbing;
use time::Duration;
use wire::{
    EthernetRepr, Icmpv4Repr, Icmpv6Repr, Ipv4Repr, Ipv6Repr, TcpFlags, TcpHeader, ether_type,
    protocol,
};

fn net() -> Net {
    Net::new(TransmitMode::Multidata, true)
}

/// The frame of an ICMP error from a router, to host 0 as the sender of the packet, that this was longer than `mtu`.
fn too_big(offending: &[u8], mtu: u32) -> Vec<u8> {
    let quoted = &offending[..offending.len().min(500)];
    let is_ipv4 = offending[0] >> 4 == 4;
    let mut message = vec![0; 8];
    let mut packet = vec![0; if is_ipv4 { Ipv4Repr::LEN } else { Ipv6Repr::LEN }];
    if is_ipv4 {
        let code = Icmpv4Repr::CODE_FRAGMENTATION_NEEDED;
        let next_hop_mtu = mtu as u16;
        Icmpv4Repr::DestinationUnreachable { code, next_hop_mtu }.emit(&mut message);
        message.extend(quoted);
        let sum = !checksum::sum(&message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        let repr = Ipv4Repr {
            dscp_ecn: 0,
            identification: 1,
            dont_fragment: false,
            more_fragments: false,
            fragment_offset_bytes: 0,
            hop_limit: 64,
            protocol: protocol::ICMP,
            source: [10, 0, 0, 254].into(),
            destination: <[u8; 4]>::try_from(&quoted[12..16]).expect("four").into(),
            payload_len: message.len(),
        };
        repr.emit(&mut packet);
    } else {
        Icmpv6Repr::PacketTooBig { mtu }.emit(&mut message);
        message.extend(quoted);
        let repr = Ipv6Repr {
            dscp_ecn: 0,
            flow_label: 0,
            payload_len: message.len(),
            next_header: protocol::ICMPV6,
            hop_limit: 64,
            source: "fd00::fe".parse().expect("an address"),
            destination: <[u8; 16]>::try_from(&quoted[8..24]).expect("sixteen").into(),
        };
        repr.emit(&mut packet);
        let mut sum = checksum::Accumulator::default();
        sum.add(&packet[8..40]);
        sum.add_u16(protocol::ICMPV6.into());
        sum.add_u16(message.len() as u16);
        sum.add(&message);
        message[2..4].copy_from_slice(&sum.finish().to_be_bytes());
    }
    packet.extend(message);
    let ether_type = if is_ipv4 { ether_type::IPV4 } else { ether_type::IPV6 };
    let header = EthernetRepr { destination: station(0), source: station(1), ether_type };
    [&header.to_bytes()[..], &packet].concat()
}

/// Lengths of the IP packets of a protocol that host 0 has sent since the last call, with the packets.
fn sent(net: &mut Net, transport: u8) -> Vec<Vec<u8>> {
    let wire = core::mem::take(&mut net.wire);
    let is_it = |packet: &[u8]| match packet[0] >> 4 {
        4 => packet[9] == transport,
        6 => packet[6] == transport || (packet[6] == protocol::FRAGMENT && packet[40] == transport),
        _ => false,
    };
    let ours =
        wire.into_iter().filter(|(from, _)| *from == 0).map(|(_, frame)| frame[14..].to_vec());
    ours.filter(|packet| is_it(packet)).collect()
}

fn longest(packets: &[Vec<u8>]) -> usize {
    packets.iter().map(Vec::len).max().unwrap_or(0)
}

fn unrelated(net: &Net) -> u64 {
    net.hosts[0].shard.counters().drops.count(DropReason::UnrelatedIcmp)
}

/// Writes and lets the segments go out into nowhere: the link is cut.
fn write_into_nowhere(net: &mut Net, client: SocketId, len: usize) -> Vec<Vec<u8>> {
    net.fate = Box::new(|_, _| harness::Fate::Lose);
    net.wire.clear();
    net.write(0, client, &data(len));
    while net.step() {}
    sent(net, protocol::TCP)
}

// RFC 1191, 6.4 and RFC 8201, 5.4: what was too long is sent again at once, and fits.
#[test]
fn a_report_that_quotes_what_is_in_flight_makes_segments_shorter() {
    for ipv6 in [false, true] {
        let mut net = net();
        let (client, server) = net.connect(ipv6);
        let lost = write_into_nowhere(&mut net, client, 10_000);
        assert_eq!(longest(&lost), 1_500);
        net.fate = Box::new(|_, _| harness::Fate::Deliver);
        net.inject(0, [too_big(&lost[0], 1_300)]);
        let before = net.now;
        while net.step() {}
        let again = sent(&mut net, protocol::TCP);
        assert_eq!((longest(&again), net.now), (1_300, before), "at once");
        let mut received = Vec::new();
        net.run(Duration::from_secs(1));
        net.read(1, server, &mut received).expect("open");
        assert_eq!(received, data(10_000));
        assert_eq!(unrelated(&net), 0);
    }
}

// RFC 5927, 4.1: "the TCP sequence number contained in the payload of the ICMP error message should
// be within the range SND.UNA =< SEG.SEQ < SND.NXT".
#[test]
fn a_report_of_what_is_not_in_flight_is_dropped() {
    let mut net = net();
    let (client, _) = net.connect(false);
    let lost = write_into_nowhere(&mut net, client, 3_000);
    let mut old = lost[0].clone();
    old[24..28].copy_from_slice(&[0; 4]);
    let mut stranger = lost[0].clone();
    stranger[22] ^= 1;
    let reports = [too_big(&old, 1_300), too_big(&stranger, 1_300)];
    net.inject(0, reports);
    net.run(Duration::from_secs(3));
    assert_eq!(longest(&sent(&mut net, protocol::TCP)), 1_500);
    assert_eq!(unrelated(&net), 2);
}

// RFC 8201, 4: less than 1280 is discarded; RFC 791: an IPv4 path is not believed to be that narrow.
#[test]
fn nobody_is_talked_into_tiny_segments() {
    for (ipv6, expected) in [(false, 552), (true, 1_500)] {
        let mut net = net();
        let (client, _) = net.connect(ipv6);
        let lost = write_into_nowhere(&mut net, client, 3_000);
        net.inject(0, [too_big(&lost[0], 68)]);
        net.run(Duration::from_secs(3));
        assert_eq!(longest(&sent(&mut net, protocol::TCP)), expected);
    }
}

// RFC 1191, 2: a host "may elect to end the discovery process by ceasing to set the DF bit". What is sent is never
// shorter than that; so where a router says that its link takes less, it is let to fragment.
#[test]
fn routers_may_fragment_what_is_as_short_as_segments_get() {
    let is_refused = |frame: &[u8]| frame[14 + 6] & 0x40 != 0 && frame.len() > 14 + 296;
    let mut net = net();
    let (client, server) = net.connect(false);
    let lost = write_into_nowhere(&mut net, client, 3_000);
    net.fate = Box::new(move |_, frame| match is_refused(frame) {
        true => harness::Fate::Lose,
        false => harness::Fate::Deliver,
    });
    net.inject(0, [too_big(&lost[0], 296)]);
    net.run(Duration::from_secs(1));
    let mut received = Vec::new();
    net.read(1, server, &mut received).expect("open");
    assert!(received == data(3_000));

    // So it is for who comes later, for datagrams too, and until the report is forgotten.
    let (later, _) = net.connect_to(false, 81);
    let to = SocketAddr::new(address(1, false), 81);
    let socket = net.hosts[0].shard.udp_bind(SocketAddr::new(address(0, false), 0)).expect("free");
    let send = |net: &mut Net| {
        net.wire.clear();
        net.write(0, later, &data(3_000));
        let chunk = Chunk::whole(Block::from(Bytes::from(data(500))));
        net.hosts[0].shard.udp_send(socket, Some(to), chunk).expect("room");
        net.run(Duration::from_millis(100));
        [protocol::TCP, protocol::UDP].map(|transport| {
            let wire = net.wire.clone();
            let packets = sent(net, transport);
            net.wire = wire;
            packets.iter().any(|packet| packet[6] & 0x40 != 0)
        })
    };
    assert_eq!(send(&mut net), [false, false]);
    net.fate = Box::new(|_, _| harness::Fate::Deliver);
    net.run(Duration::from_secs(601));
    assert_eq!(send(&mut net), [true, true]);
}

// RFC 8201, 5.2: what was learned is kept for the destination; 5.3: for ten minutes.
#[test]
fn all_connections_to_a_destination_learn_and_forget_together() {
    let mut net = net();
    let (first, _) = net.connect(false);
    let local = SocketAddr::new(address(1, false), 81);
    net.hosts[1].shard.tcp_listen(local, 16).expect("a free port");
    let connect = |net: &mut Net| {
        let id = net.hosts[0].shard.tcp_connect(net.now, None, local).expect("a route");
        net.run(Duration::from_millis(10));
        id
    };
    let second = connect(&mut net);
    let lost = write_into_nowhere(&mut net, first, 3_000);
    net.inject(0, [too_big(&lost[0], 1_200)]);
    net.fate = Box::new(|_, _| harness::Fate::Deliver);
    net.run(Duration::from_secs(2));
    let third = connect(&mut net);
    for (id, name) in [(second, "one that was open"), (third, "one opened afterwards")] {
        sent(&mut net, protocol::TCP);
        net.write(0, id, &data(5_000));
        net.run(Duration::from_millis(100));
        assert_eq!(longest(&sent(&mut net, protocol::TCP)), 1_200, "{name}");
    }
    let path_mtu = |net: &Net| net.hosts[0].shard.path_mtu(address(1, false)).expect("a route");
    assert_eq!(path_mtu(&net), 1_200);
    net.run(Duration::from_secs(600));
    assert_eq!(path_mtu(&net), 1_500);
    sent(&mut net, protocol::TCP);
    net.write(0, second, &data(5_000));
    net.run(Duration::from_millis(100));
    assert_eq!(longest(&sent(&mut net, protocol::TCP)), 1_500, "the wider path is tried again");
}

fn send(net: &mut Net, socket: SocketId, ipv6: bool, len: usize) -> Result<(), SocketError> {
    let to = SocketAddr::new(address(1, ipv6), 4_000);
    let chunk = Chunk::whole(Block::from(Bytes::from(data(len))));
    let outcome = net.hosts[0].shard.udp_send(socket, Some(to), chunk);
    net.run(Duration::from_millis(1));
    outcome
}

// RFC 1122, 3.3.3 and 4.1.3.3; RFC 8201, 5.2. What UDP was told, which nobody can check, is not for
// TCP (RFC 5927, 7).
#[test]
fn datagrams_heed_reports_that_tcp_does_not() {
    for ipv6 in [false, true] {
        let mut net = net();
        let server = SocketAddr::new(address(1, ipv6), 4_000);
        net.hosts[1].shard.udp_bind(server).expect("a free port");
        let local = SocketAddr::new(address(0, ipv6), 9);
        let socket = net.hosts[0].shard.udp_bind(local).expect("a free port");
        net.hosts[0].shard.udp_connect(socket, server).expect("a route");
        send(&mut net, socket, ipv6, 1_400).expect("it fits");
        let whole = sent(&mut net, protocol::UDP);
        net.inject(0, [too_big(&whole[0], 1_300)]);
        let error = send(&mut net, socket, ipv6, 1_400);
        assert_eq!(error, Err(SocketError::MessageTooLong), "reported once");
        send(&mut net, socket, ipv6, 1_400).expect("it goes in fragments");
        let fragments = sent(&mut net, protocol::UDP);
        assert!(fragments.len() == 2 && longest(&fragments) <= 1_300);
        let set = |net: &mut Net, discovery| {
            net.hosts[0].shard.udp_set_mtu_discovery(socket, discovery).expect("open");
        };
        set(&mut net, MtuDiscovery::Do);
        assert_eq!(send(&mut net, socket, ipv6, 1_400), Err(SocketError::MessageTooLong));
        set(&mut net, MtuDiscovery::Probe);
        send(&mut net, socket, ipv6, 1_400).expect("the interface takes it");
        assert_eq!(sent(&mut net, protocol::UDP).len(), 1);
        let (client, _) = net.connect(ipv6);
        net.write(0, client, &data(5_000));
        net.run(Duration::from_millis(100));
        assert_eq!(longest(&sent(&mut net, protocol::TCP)), 1_500);
    }
}

// RFC 1191, 4; RFC 4443, 3.2: the MTU, who reports it, and what is quoted of the datagram.
#[test]
fn what_a_report_says_is_kept_for_who_asks_for_it() {
    for (ipv6, kind, code) in [(false, 3, 4), (true, 2, 0)] {
        let mut net = net();
        let local = SocketAddr::new(address(0, ipv6), 9);
        let socket = net.hosts[0].shard.udp_bind(local).expect("a free port");
        // Whose host says nothing of it.
        let receiver = SocketAddr::new(address(1, ipv6), 4_000);
        net.hosts[1].shard.udp_bind(receiver).expect("a free port");
        let mut report = |asks: bool, discovery| {
            let shard = &mut net.hosts[0].shard;
            shard.udp_set_reports(socket, asks && !ipv6, asks && ipv6).expect("open");
            shard.udp_set_mtu_discovery(socket, discovery).expect("open");
            send(&mut net, socket, ipv6, 1_400).expect("it fits");
            let whole = sent(&mut net, protocol::UDP);
            net.inject(0, [too_big(&whole[0], 1_300)]);
            let shard = &mut net.hosts[0].shard;
            (shard.udp_check(socket), shard.udp_take_report(socket).expect("open"))
        };
        assert_eq!(report(false, MtuDiscovery::Probe), (Ok(()), None));
        assert_eq!(report(true, MtuDiscovery::Dont), (Ok(()), None), "it has no use for one");
        let (error, told) = report(true, MtuDiscovery::Probe);
        let told = told.expect("a report");
        assert_eq!(error, Err(SocketError::MessageTooLong));
        assert_eq!((told.error, told.info), (SocketError::MessageTooLong, 1_300));
        assert_eq!(told.remote, SocketAddr::new(address(1, ipv6), 4_000));
        assert!(told.received_at.is_some());
        let ReportOrigin::Icmp { kind: its, code: its_code, .. } = told.origin else {
            panic!("of a router")
        };
        assert_eq!((its, its_code), (kind, code));
        assert!(told.payload.len() >= 8 && data(1_400).starts_with(&told.payload));
    }
}

#[test]
fn a_report_for_a_port_nobody_has_is_dropped() {
    let mut net = net();
    let local = SocketAddr::new(address(0, false), 9);
    let socket = net.hosts[0].shard.udp_bind(local).expect("a free port");
    send(&mut net, socket, false, 1_400).expect("it fits");
    let whole = sent(&mut net, protocol::UDP);
    net.hosts[0].shard.close(net.now, socket);
    let before = unrelated(&net);
    net.inject(0, [too_big(&whole[0], 1_300)]);
    assert_eq!(unrelated(&net), before + 1);
    assert_eq!(net.hosts[0].shard.path_mtu(address(1, false)), Ok(1_500));
}

/// The MSS options of the SYNs on the wire.
fn announced(net: &Net) -> Vec<u16> {
    let segments = net.wire.iter().filter(|(_, frame)| frame[12..14] != [8, 6]);
    segments
        .filter_map(|(_, frame)| {
            let at = if frame[12] == 8 { 34 } else { 54 };
            let (header, _) = TcpHeader::parse(&frame[at..]).ok()?;
            header.options.mss.filter(|_| header.flags.contains(TcpFlags::SYN))
        })
        .collect()
}

// RFC 6691, 2: the interface's MTU less the fixed headers, whatever options are used; RFC 9293, 3.7.1.
#[test]
fn the_mss_is_what_the_interface_takes_and_the_clamp_allows() {
    for (ipv6, expected) in [(false, 1_460), (true, 1_440)] {
        let mut net = net();
        net.connect(ipv6);
        assert_eq!(announced(&net), [expected, expected]);
        let mut net = self::net();
        let interface = net.hosts[0].interface;
        net.hosts[0].shard.set_mss_clamp(interface, Some(1_000));
        let (client, _) = net.connect(ipv6);
        assert_eq!(announced(&net), [1_000, expected]);
        sent(&mut net, protocol::TCP);
        net.write(0, client, &data(5_000));
        net.run(Duration::from_millis(100));
        let headers = if ipv6 { 60 } else { 40 };
        assert_eq!(longest(&sent(&mut net, protocol::TCP)), 1_000 + headers);
        // Those that are open follow.
        net.hosts[0].shard.set_mss_clamp(interface, Some(900));
        net.write(0, client, &data(5_000));
        net.run(Duration::from_millis(100));
        assert_eq!(longest(&sent(&mut net, protocol::TCP)), 900 + headers);
    }
}

// RFC 6691, 2 and RFC 1191, 3.1: a narrow route limits what is sent, not what is announced.
#[test]
fn a_route_may_take_less_than_its_interface() {
    let mut net = net();
    let network = "10.0.0.0/24".parse().expect("a network");
    net.hosts[0].shard.set_route_mtu(network, Some(1_400)).expect("there is a route");
    let (client, _) = net.connect(false);
    assert_eq!(announced(&net), [1_460, 1_460]);
    sent(&mut net, protocol::TCP);
    net.write(0, client, &data(5_000));
    net.run(Duration::from_millis(100));
    assert_eq!(longest(&sent(&mut net, protocol::TCP)), 1_400);
    net.hosts[0].shard.set_route_mtu(network, None).expect("there is a route");
    net.write(0, client, &data(5_000));
    net.run(Duration::from_millis(100));
    assert_eq!(longest(&sent(&mut net, protocol::TCP)), 1_500);
}

// What is outstanding when the interface's MTU is lowered is cut anew; raising it lengthens what is
// sent from then on.
#[test]
fn connections_follow_the_mtu_of_their_interface() {
    for ipv6 in [false, true] {
        let mut net = net();
        let (client, server) = net.connect(ipv6);
        let lost = write_into_nowhere(&mut net, client, 10_000);
        assert_eq!(longest(&lost), 1_500);
        net.fate = Box::new(|_, _| harness::Fate::Deliver);
        let interface = net.hosts[0].interface;
        net.hosts[0].shard.set_mtu(net.now, interface, 1_280);
        let before = net.now;
        while net.step() {}
        assert_eq!((longest(&sent(&mut net, protocol::TCP)), net.now), (1_280, before));
        net.run(Duration::from_secs(1));
        let mut received = Vec::new();
        net.read(1, server, &mut received).expect("open");
        assert_eq!(received, data(10_000));
        sent(&mut net, protocol::TCP);
        net.hosts[0].shard.set_mtu(net.now, interface, 1_500);
        net.write(0, client, &data(5_000));
        net.run(Duration::from_millis(100));
        assert_eq!(longest(&sent(&mut net, protocol::TCP)), 1_500);
    }
}

// RFC 9293, 3.7.1, MUST-67: what a SYN announces is what the interface takes when it leaves, not when its connection began.
#[test]
fn a_syn_that_is_sent_again_announces_the_mtu_of_now() {
    for ipv6 in [false, true] {
        let mut net = net();
        net.fate = Box::new(move |_, frame| match frame[14 + if ipv6 { 6 } else { 9 }] {
            protocol::TCP => harness::Fate::Lose,
            _ => harness::Fate::Deliver,
        });
        let (now, interface) = (net.now, net.hosts[0].interface);
        let remote = SocketAddr::new(address(1, ipv6), 80);
        net.hosts[0].shard.tcp_connect(now, None, remote).expect("a route");
        let mut announced = |mtu: usize, seconds| {
            net.hosts[0].shard.set_mtu(net.now, interface, mtu);
            net.run(Duration::from_secs(seconds));
            let headers = if ipv6 { 40 } else { 20 };
            let syns = sent(&mut net, protocol::TCP);
            let last = TcpHeader::parse(&syns.last().expect("it is sent again")[headers..]);
            usize::from(last.expect("a header").0.options.mss.expect("an MSS")) + headers + 20
        };
        assert_eq!([announced(1_500, 2), announced(1_280, 8)], [1_500, 1_280]);
        // What was said may have been heard, so never more.
        assert_eq!(announced(1_500, 30), 1_280);
    }
}

/// Two hosts on a path that loses packets longer than `path` bytes without a word.
fn black_hole(probing: PathProbing, path: usize) -> Net {
    let config = tcp::Config { path_probing: probing, ..tcp::Config::default() };
    let mut net = Net::with_config(TransmitMode::Multidata, true, config);
    net.fate = Box::new(move |_, frame| match frame.len() > 14 + path {
        true => harness::Fate::Lose,
        false => harness::Fate::Deliver,
    });
    net
}

fn tcp_counters(net: &Net) -> tcp::TcpCounters {
    net.hosts[0].shard.counters().tcp
}

// RFC 4821, 7.7 and 7.3: three timeouts tell, 1024 bytes get through, and from there the search goes
// up to what the path takes.
#[test]
fn a_stream_gets_through_a_path_that_loses_long_segments_in_silence() {
    for ipv6 in [false, true] {
        let mut net = black_hole(PathProbing::OnBlackHole, 1_400);
        let (client, server) = net.connect(ipv6);
        let bytes = data(2_000_000);
        net.transfer((0, client), (1, server), &bytes, Duration::from_secs(10));
        let counters = tcp_counters(&net);
        assert_eq!(counters.black_holes, 1);
        let sent = sent(&mut net, protocol::TCP);
        let longest = sent.iter().map(Vec::len).filter(|len| *len <= 1_400).max();
        assert!(longest > Some(1_400 - 8), "{longest:?}");
        assert!(
            sent[sent.len() / 2..].iter().all(|packet| packet.len() <= 1_400),
            "it has settled"
        );
    }
}

// As Linux's tcp_mtu_probing = 0.
#[test]
fn without_probing_such_a_path_carries_nothing() {
    let mut net = black_hole(PathProbing::Off, 1_400);
    let (client, server) = net.connect(false);
    net.write(0, client, &data(100_000));
    net.run(Duration::from_secs(60));
    let mut received = Vec::new();
    net.read(1, server, &mut received).expect("open");
    assert!(received.is_empty());
    assert_eq!(tcp_counters(&net).black_holes, 0);
}

// RFC 4821, 7.6: "loss of a probe MUST NOT be treated as an indication of congestion".
#[test]
fn lost_probes_slow_nothing_down() {
    let mut net = black_hole(PathProbing::Always, 1_400);
    // What is sent again leaves behind what is reported.
    net.delay = Duration::from_micros(10);
    let (client, server) = net.connect(false);
    let bytes = data(2_000_000);
    net.transfer((0, client), (1, server), &bytes, Duration::from_secs(10));
    let counters = tcp_counters(&net);
    assert!(counters.mtu_probes_lost >= 3, "{} probes were lost", counters.mtu_probes_lost);
    assert!(counters.mtu_probes_arrived >= 1);
    let reactions = counters.fast_recoveries + counters.retransmission_timeouts;
    assert_eq!((reactions, counters.reductions_for_loss), (0, 0));
}

// RFC 4821, 7.2: segments begin short, and one probe shows that the path takes all.
#[test]
fn probing_from_the_start_ends_at_what_the_interface_takes() {
    let mut net = black_hole(PathProbing::Always, 1_500);
    let (client, server) = net.connect(false);
    net.wire.clear();
    net.write(0, client, &data(2_000));
    net.run(Duration::from_millis(500));
    assert_eq!(longest(&sent(&mut net, protocol::TCP)), 1_064);
    let mut received = Vec::new();
    net.read(1, server, &mut received).expect("open");
    net.transfer((0, client), (1, server), &data(1_000_000), Duration::from_secs(10));
    assert_eq!(longest(&sent(&mut net, protocol::TCP)), 1_500);
    let counters = tcp_counters(&net);
    assert_eq!((counters.mtu_probes_sent, counters.mtu_probes_lost), (1, 0));
}

// A path that was down altogether is no narrower when it is back.
#[test]
fn long_segments_are_sent_again_once_a_dead_path_is_back() {
    let mut net = black_hole(PathProbing::OnBlackHole, 1_500);
    let (client, server) = net.connect(false);
    write_into_nowhere(&mut net, client, 100_000);
    net.run(Duration::from_secs(20));
    assert_eq!(tcp_counters(&net).black_holes, 2, "1024 bytes did not help either");
    net.fate = Box::new(|_, _| harness::Fate::Deliver);
    net.run(Duration::from_secs(60));
    let mut received = Vec::new();
    net.read(1, server, &mut received).expect("open");
    assert_eq!(received, data(100_000));
    net.transfer((0, client), (1, server), &data(1_000_000), Duration::from_secs(10));
    net.wire.drain(..net.wire.len() / 2);
    assert_eq!(longest(&sent(&mut net, protocol::TCP)), 1_500);
}

// What leaves by the interface that has the socket's address must fit that one, whatever the route says.
#[test]
fn a_datagram_is_measured_by_the_interface_it_leaves_by() {
    for (mtu, expected) in [(900, Err(SocketError::MessageTooLong)), (2_000, Ok(()))] {
        let mut net = net();
        let local: SocketAddr = "10.0.0.9:9".parse().expect("an address");
        let config = stack::InterfaceConfig {
            capabilities: device::Capabilities::plain(device::Medium::Ip, mtu),
            mode: Some(TransmitMode::Multidata),
            addresses: vec!["10.0.0.9/24".parse().expect("an address")],
            gateways: Vec::new(),
        };
        let shard = &mut net.hosts[0].shard;
        shard.add_interface(config).expect("a sound configuration");
        let socket = shard.udp_bind(local).expect("a free port");
        shard.udp_set_mtu_discovery(socket, MtuDiscovery::Do).expect("open");
        // Between the two MTUs.
        let len = if mtu < 1_500 { 1_000 } else { 1_600 };
        let chunk = Chunk::whole(Block::from(Bytes::from(data(len))));
        let to = SocketAddr::new(address(1, false), 4_000);
        assert_eq!(shard.udp_send(socket, Some(to), chunk), expected);
    }
}

/// RFC 1191, 3 and RFC 8201, 4: who sent the datagram, a forwarder in the name of another, MUST send shorter ones.
#[test]
fn a_relay_learns_the_path_of_what_it_sends_for_others() {
    for (foreign, prefix) in
        [("8.8.8.8:53", ip::Cidr::ANY_IPV4), ("[2606:2800:21f::1]:53", ip::Cidr::ANY_IPV6)]
    {
        let mut net = net();
        let (foreign, id) = (foreign.parse().expect("an address"), net.hosts[0].interface);
        let guest = SocketAddr::new(address(1, prefix == ip::Cidr::ANY_IPV6), 9);
        let shard = &mut net.hosts[0].shard;
        shard.set_accepted(id, &[prefix]).expect("an interface");
        let forwarder = shard.udp_forward(prefix).expect("it is accepted");
        let send = |net: &mut Net| {
            let bytes = Chunk::whole(Block::from(Bytes::from(data(1_400))));
            let shard = &mut net.hosts[0].shard;
            let envelope = Envelope { from: Some(foreign), ..guest.into() };
            shard.udp_send_with(forwarder, envelope, bytes).expect("room");
            net.run(Duration::from_millis(10));
            sent(net, protocol::UDP)
        };
        let whole = send(&mut net);
        assert_eq!(whole.len(), 1);
        let report = too_big(&whole[0], 1_300);
        net.inject(0, [report.clone()]);
        assert_eq!(unrelated(&net), 0);
        let shorter = send(&mut net);
        assert_eq!((shorter.len(), longest(&shorter) <= 1_300), (2, true));
        // Nobody forwards for this one any more.
        net.hosts[0].shard.close(net.now, forwarder);
        net.inject(0, [report]);
        assert_eq!(unrelated(&net), 1);
    }
}

/// RFC 8201, 4: a node MUST reduce its estimate, also of the path of what answers; nobody else fragments it.
#[test]
fn echo_replies_follow_the_mtu_of_their_path() {
    let mut net = net();
    let (ours, theirs) = (address(0, true), address(1, true));
    let client = net.hosts[1].shard.raw_bind_echo(theirs, 0).expect("free");
    let ping = |net: &mut Net| {
        let message = [&[Icmpv6Repr::ECHO_REQUEST, 0, 0, 0, 0, 0, 0, 5], &*data(1_452)].concat();
        let bytes = Chunk::whole(Block::from(Bytes::from(message)));
        net.hosts[1].shard.raw_send(client, ours, bytes).expect("a route");
        net.run(Duration::from_millis(10));
        let of_echo = |packet: &Vec<u8>| packet[40] == 129 || packet[6] == protocol::FRAGMENT;
        let sent = sent(net, protocol::ICMPV6);
        sent.into_iter().filter(of_echo).collect::<Vec<_>>()
    };
    let whole = ping(&mut net);
    assert_eq!((whole.len(), longest(&whole)), (1, 1_500));
    let mut foreign = whole[0].clone();
    foreign[8..24].copy_from_slice(&[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
    let mut report = too_big(&foreign, 1_280);
    // It comes to us, and what it is about did not come from here.
    let IpAddr::V6(to) = ours else { panic!("of IPv6") };
    readdress(&mut report, to);
    net.inject(0, [report]);
    assert_eq!(unrelated(&net), 1);
    // Nor does anything else that the stack itself says in ICMP become that long.
    let mut advertisement = whole[0].clone();
    advertisement[40] = 136;
    net.inject(0, [too_big(&advertisement, 1_280)]);
    assert_eq!(unrelated(&net), 2);
    net.inject(0, [too_big(&whole[0], 1_280)]);
    assert_eq!(unrelated(&net), 2);
    let shorter = ping(&mut net);
    assert_eq!((shorter.len(), longest(&shorter) <= 1_280), (2, true));
    assert!(net.hosts[1].shard.raw_receive(client).is_ok(), "the first");
    let reply = net.hosts[1].shard.raw_receive(client).expect("put together");
    assert_eq!(reply.payload.bytes()[8..], data(1_452));
}

/// Changes where an ICMPv6 message in a frame goes, and its checksum with it.
fn readdress(frame: &mut [u8], to: Ipv6Addr) {
    let packet = &mut frame[EthernetRepr::LEN..];
    packet[24..40].copy_from_slice(&to.octets());
    packet[42..44].fill(0);
    let mut sum = checksum::Accumulator::default();
    sum.add(&packet[8..40]);
    sum.add_u16(protocol::ICMPV6.into());
    sum.add_u16((packet.len() - 40) as u16);
    sum.add(&packet[40..]);
    let sum = sum.finish().to_be_bytes();
    packet[42..44].copy_from_slice(&sum);
}

#[test]
fn a_transmit_queue_has_room_for_one_datagram_at_least() {
    let mut net = net();
    let interface = net.hosts[0].interface;
    net.hosts[0].shard.set_transmit_queue(interface, 0);
    let socket = net.hosts[0].shard.udp_bind(SocketAddr::new(address(0, false), 9));
    let socket = socket.expect("a free port");
    assert_eq!(send(&mut net, socket, false, 10), Ok(()));
}
