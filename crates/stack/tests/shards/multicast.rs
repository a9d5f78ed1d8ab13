//! Multicast UDP and what routers are told of it, between two shards in virtual time.

use crate::harness::{self, Net, address, bytes_of, craft};
use batch::{Block, Chunk, Multidata};
use bytes::Bytes;
use core::net::{IpAddr, SocketAddr};
use counters::DropReason;
use device::{Capabilities, Medium, Room, TransmitMode, Transmitted};
use stack::{
    AddressingConfig, BadArgument, BindOptions, ClaimPolicy, InterfaceConfig, InterfaceId,
    MulticastOptions, Readiness, Shard, ShardConfig, SocketError, SocketId,
};
use time::Duration;
use wire::{EthernetRepr, HardwareAddress};

const GROUPS: [&str; 2] = ["239.1.2.3", "ff05::1:3"];

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn net() -> Net {
    Net::new(TransmitMode::Multidata, true)
}

fn chunk(bytes: &'static [u8]) -> Chunk {
    Chunk::whole(Block::from(Bytes::from_static(bytes)))
}

fn any(group: IpAddr) -> IpAddr {
    if group.is_ipv4() { ip("0.0.0.0") } else { ip("::") }
}

/// A socket of `host` on this port for a group.
fn listener(net: &mut Net, host: usize, group: IpAddr, port: u16, sources: &[IpAddr]) -> SocketId {
    let now = net.now;
    let shard = &mut net.hosts[host].shard;
    let shared = BindOptions { shared: true, ..BindOptions::default() };
    let id = shard.udp_bind_with(SocketAddr::new(any(group), port), shared).expect("shared");
    shard.udp_join(now, id, group, None, sources).expect("room");
    id
}

fn sender(net: &mut Net, host: usize, group: IpAddr) -> SocketId {
    let local = SocketAddr::new(address(host, !group.is_ipv4()), 0);
    net.hosts[host].shard.udp_bind(local).expect("a port")
}

fn send(net: &mut Net, host: usize, id: SocketId, to: (IpAddr, u16), bytes: &'static [u8]) {
    let to = Some(SocketAddr::new(to.0, to.1));
    net.hosts[host].shard.udp_send(id, to, chunk(bytes)).expect("room");
    net.run(Duration::from_millis(10));
}

fn received(net: &mut Net, host: usize, id: SocketId) -> Vec<Vec<u8>> {
    let shard = &mut net.hosts[host].shard;
    let all = core::iter::from_fn(|| shard.udp_receive(id).ok());
    all.map(|(payload, _)| payload.bytes().to_vec()).collect()
}

/// IP packets that a host sent with this protocol number (58 where it stands behind a hop-by-hop
/// header), with the station they went to.
fn reports(net: &Net, from: usize) -> Vec<([u8; 6], Vec<u8>)> {
    let frames = net.wire.iter().filter(|(host, _)| *host == from);
    let reports = frames.filter_map(|(_, frame)| {
        let packet = frame.get(EthernetRepr::LEN..)?;
        let is_igmp = packet[0] == 0x46 && packet[9] == 2;
        let is_mld = packet[0] >> 4 == 6 && packet[6] == 0;
        let at = if is_igmp { 24 } else { 48 };
        let station = core::array::from_fn(|index| frame[index]);
        (is_igmp || is_mld).then(|| (station, packet[at..].to_vec()))
    });
    reports.collect()
}

/// RFC 1112, 6.4 and RFC 2464, 7: the group's station; 6.1: a time to live of 1.
#[test]
fn a_datagram_reaches_every_socket_that_joined_the_group_and_no_other() {
    for group in GROUPS.map(ip) {
        let mut net = net();
        let first = listener(&mut net, 1, group, 5_000, &[]);
        let second = listener(&mut net, 1, group, 5_000, &[]);
        let elsewhere = listener(&mut net, 1, group, 5_001, &[]);
        let shared = BindOptions { shared: true, ..BindOptions::default() };
        let local = SocketAddr::new(any(group), 5_000);
        let stranger = net.hosts[1].shard.udp_bind_with(local, shared).expect("shared");
        let from = sender(&mut net, 0, group);
        net.run(Duration::from_secs(5));
        net.wire.clear();
        while net.hosts[1].shard.poll_event().is_some() {}
        send(&mut net, 0, from, (group, 5_000), b"to all of you");
        let frame = &net.wire.iter().find(|(from, _)| *from == 0).expect("sent").1;
        let expected = HardwareAddress::of_ip_multicast(group).expect("a group");
        assert_eq!(frame[..6], expected.0);
        assert_eq!(frame[if group.is_ipv4() { 22 } else { 21 }], 1, "the hop limit");
        let event = net.hosts[1].shard.poll_event().expect("it came");
        assert!(event.readiness.intersects(Readiness::READABLE));
        for id in [first, second] {
            assert_eq!(received(&mut net, 1, id), [b"to all of you".to_vec()]);
        }
        for id in [elsewhere, stranger] {
            assert_eq!(received(&mut net, 1, id), Vec::<Vec<u8>>::new());
        }
        assert!(net.wire.iter().all(|(from, _)| *from == 0), "no ICMP error about a group");
    }
}

/// RFC 3376, 3.2: the interface takes what any socket wants, and each socket what it wants itself.
/// What finds no room costs no memory, whoever sends how much of it.
#[test]
fn a_datagram_to_a_group_is_not_copied_where_no_listener_has_room() {
    let group = ip("239.1.2.3");
    let mut net = net();
    let listeners = [7, 8].map(|port| listener(&mut net, 1, group, port, &[]));
    for listener in listeners {
        net.hosts[1].shard.udp_set_receive_buffer(listener, 1).expect("open");
    }
    let from = sender(&mut net, 0, group);
    let copies = |net: &mut Net, port: u16| {
        let before = net.hosts[1].pool.counters().allocations;
        send(net, 0, from, (group, port), b"all");
        net.hosts[1].pool.counters().allocations - before
    };
    // Nobody listens to the third.
    assert_eq!([7, 7, 7, 8, 8, 9].map(|port| copies(&mut net, port)), [1, 0, 0, 1, 0, 0]);
    let drops = net.hosts[1].shard.counters().drops;
    assert_eq!(drops.count(DropReason::SocketQueueFull), 3);
    assert_eq!(drops.count(DropReason::PortUnreachable), 1);
    for listener in listeners {
        assert_eq!(received(&mut net, 1, listener), [b"all"], "one always fits");
    }
}

#[test]
fn a_socket_hears_the_sources_it_asked_for() {
    for (index, group) in GROUPS.map(ip).into_iter().enumerate() {
        let mut net = net();
        let wanted = listener(&mut net, 1, group, 5_000, &[address(0, index == 1)]);
        let other = if group.is_ipv4() { ip("10.0.0.77") } else { ip("fd00::77") };
        let unwanted = listener(&mut net, 1, group, 5_000, &[other]);
        let from = sender(&mut net, 0, group);
        send(&mut net, 0, from, (group, 5_000), b"x");
        assert_eq!(received(&mut net, 1, wanted).len(), 1);
        assert_eq!(received(&mut net, 1, unwanted).len(), 0);
        let now = net.now;
        net.hosts[1].shard.udp_leave(now, wanted, group, None).expect("joined");
        send(&mut net, 0, from, (group, 5_000), b"x");
        assert_eq!(received(&mut net, 1, wanted).len(), 0);
        let again = net.hosts[1].shard.udp_leave(now, wanted, group, None);
        assert_eq!(again, Err(SocketError::AddressNotAvailable));
    }
}

#[test]
fn datagrams_are_looped_to_listeners_here_unless_that_is_off() {
    for group in GROUPS.map(ip) {
        let mut net = net();
        let here = listener(&mut net, 0, group, 5_000, &[]);
        let there = listener(&mut net, 1, group, 5_000, &[]);
        let from = sender(&mut net, 0, group);
        send(&mut net, 0, from, (group, 5_000), b"both");
        assert_eq!((received(&mut net, 0, here).len(), received(&mut net, 1, there).len()), (1, 1));
        let options = MulticastOptions { is_looped: false, hop_limit: 9, interface: None };
        net.hosts[0].shard.udp_set_multicast(from, options).expect("open");
        net.wire.clear();
        send(&mut net, 0, from, (group, 5_000), b"there");
        assert_eq!((received(&mut net, 0, here).len(), received(&mut net, 1, there).len()), (0, 1));
        assert_eq!(net.wire[0].1[if group.is_ipv4() { 22 } else { 21 }], 9);
        let options = MulticastOptions { is_looped: true, hop_limit: 0, interface: None };
        net.hosts[0].shard.udp_set_multicast(from, options).expect("open");
        send(&mut net, 0, from, (group, 5_000), b"here");
        assert_eq!((received(&mut net, 0, here).len(), received(&mut net, 1, there).len()), (1, 0));
    }
}

/// RFC 4541, 2.1.1: switches that listen in on IGMP ask from 0.0.0.0 where there is no router.
#[test]
fn a_query_of_a_switch_without_an_address_is_answered() {
    let mut net = net();
    let group = ip(GROUPS[0]);
    listener(&mut net, 1, group, 5_000, &[]);
    net.run(Duration::from_secs(5));
    net.wire.clear();
    let mut query = [0x11, 10, 0, 0, 0, 0, 0, 0, 2, 125, 0, 0];
    let sum = !checksum::sum(&query);
    query[2..4].copy_from_slice(&sum.to_be_bytes());
    let all = ip("224.0.0.1");
    let station = HardwareAddress::of_ip_multicast(all).expect("a group");
    let frame = craft::packet_as_it_is(station, (ip("0.0.0.0"), all), 2, 1, &query);
    net.inject(1, [frame]);
    net.run(Duration::from_secs(2));
    assert_eq!(reports(&net, 1).len(), 1);
}

/// RFC 3376, 4.2.14 and 5.1; RFC 3810, 5.2.14 and 6.1: state changes are reported to all routers
/// that listen, and reported again; a closed socket leaves.
#[test]
fn routers_hear_of_the_first_to_join_and_of_the_last_to_leave() {
    for (group, router, kinds) in [
        (ip(GROUPS[0]), [1, 0, 0x5e, 0, 0, 22], (0x22, 4, 3)),
        (ip(GROUPS[1]), [0x33, 0x33, 0, 0, 0, 0x16], (143, 4, 3)),
    ] {
        let mut net = net();
        let first = listener(&mut net, 0, group, 5_000, &[]);
        let second = listener(&mut net, 0, group, 5_000, &[]);
        net.run(Duration::from_secs(5));
        let told = reports(&net, 0);
        assert_eq!(told.len(), 2, "once, and once more");
        for (station, report) in &told {
            assert_eq!((*station, report[0], report[8]), (router, kinds.0, kinds.1));
        }
        net.wire.clear();
        let now = net.now;
        net.hosts[0].shard.close(now, first);
        net.run(Duration::from_secs(5));
        assert_eq!(reports(&net, 0).len(), 0, "one is left");
        let now = net.now;
        net.hosts[0].shard.close(now, second);
        net.run(Duration::from_secs(5));
        let told = reports(&net, 0);
        assert_eq!(told.len(), 2);
        assert!(told.iter().all(|(_, report)| report[8] == kinds.2));
        assert_eq!(net.hosts[0].shard.counters().shard.group_reports, 4);
    }
}

/// RFC 3376, 5.2: a query is answered within its time, however often it is asked.
#[test]
fn queries_are_answered_once_in_the_time_they_allow() {
    let mut net = net();
    listener(&mut net, 0, ip(GROUPS[0]), 5_000, &[]);
    net.run(Duration::from_secs(5));
    net.wire.clear();
    let mut query = vec![0x11, 100, 0, 0, 0, 0, 0, 0, 2, 125, 0, 0];
    let sum = !checksum::sum(&query);
    query[2..4].copy_from_slice(&sum.to_be_bytes());
    let to = HardwareAddress([1, 0, 0x5e, 0, 0, 1]);
    let addresses = (address(1, false), ip("224.0.0.1"));
    let frame = craft::packet_as_it_is(to, addresses, wire::protocol::IGMP, 1, &query);
    for _ in 0..500 {
        net.inject(0, [frame.clone()]);
    }
    net.run(Duration::from_secs(11));
    let told = reports(&net, 0);
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].1[8], 2, "MODE_IS_EXCLUDE");
    let forged = craft::packet_as_it_is(to, addresses, wire::protocol::IGMP, 7, &query);
    net.inject(0, [forged]);
    let drops = net.hosts[0].shard.counters().drops;
    assert_eq!(drops.count(DropReason::MalformedIcmp), 1, "not from this link");
}

/// RFC 4862, 5.4.2: the solicited-node group is joined before the address is asked about, and RFC
/// 3810 tells switches that look at it.
#[test]
fn the_solicited_node_group_of_an_address_is_joined_before_it_is_asked_about() {
    let mut net = net();
    let (now, id) = (net.now, net.hosts[0].interface);
    let ipv6 = ClaimPolicy::Probe;
    let config = AddressingConfig { ipv6, ..AddressingConfig::default() };
    net.hosts[0].shard.start_addressing(now, id, config);
    net.run(Duration::from_secs(3));
    let is_report = |frame: &[u8]| frame[20] == 0;
    let is_solicitation = |frame: &[u8]| frame[20] == 58 && frame[54] == 135;
    let frames = net.wire.iter().filter(|(from, frame)| *from == 0 && frame[12] == 0x86);
    let order: Vec<_> =
        frames.map(|(_, frame)| (is_report(frame), is_solicitation(frame))).collect();
    assert_eq!(order[0], (true, false), "{order:?}");
    assert!(order.contains(&(false, true)));
    let (_, report) = &reports(&net, 0)[0];
    let [.., a, b, c] = [0, 0, 1];
    assert_eq!(report[12..28], [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c]);
    let now = net.now;
    net.hosts[0].shard.remove_address(now, id, address(0, true)).expect("ours");
    net.wire.clear();
    net.run(Duration::from_secs(3));
    let told = reports(&net, 0);
    assert!(!told.is_empty(), "it is left");
    assert!(told.iter().all(|(_, report)| report[8] == 3), "TO_IN of nobody");
}

// RFC 1122, 3.3.4.2 (B): an address leaves by its own interface; a datagram that may not leave is refused.
#[test]
fn a_datagram_to_a_group_leaves_by_the_interface_that_has_its_source() {
    let mut net = net();
    let (now, first) = (net.now, net.hosts[0].interface);
    let shard = &mut net.hosts[0].shard;
    let addresses =
        vec!["10.7.0.1/24".parse().expect("a network"), "fd07::1/64".parse().expect("one")];
    let second = InterfaceConfig {
        capabilities: Capabilities::plain(Medium::Ip, 1_500),
        mode: Some(TransmitMode::Multidata),
        addresses,
        gateways: Vec::new(),
    };
    let second = shard.add_interface(second).expect("a sound configuration");
    for (group, source) in GROUPS.map(ip).into_iter().zip(["10.7.0.1", "fd07::1"].map(ip)) {
        let to = Some(SocketAddr::new(group, 5_000));
        let id = shard.udp_bind(SocketAddr::new(source, 0)).expect("a port");
        let raw = shard.raw_bind(200, source).expect("ours");
        shard.udp_send(id, to, chunk(b"from the second")).expect("a way");
        shard.raw_send(raw, group, chunk(b"from the second")).expect("a way");
        let mut batch = Multidata::default();
        // Of several packets the first may be a report, or a question of the interface's own.
        let mut sent = 0;
        while shard.poll_transmit(now, second, Room::UNBOUNDED, &mut batch) > 0 {
            let all: Vec<_> = batch.packets().map(|packet| bytes_of(&packet)).collect();
            sent += all.iter().filter(|packet| packet.ends_with(b"from the second")).count();
            shard.on_transmitted(now, second, &Transmitted { taken: batch.len(), stopped: None });
            batch.clear();
        }
        assert_eq!(sent, 2, "{group}");
        assert_eq!(shard.counters().drops.count(DropReason::SourceRemoved), 0);
        let by = |interface| MulticastOptions { interface, ..MulticastOptions::default() };
        shard.udp_set_multicast(id, by(Some(first))).expect("an interface");
        let refused = shard.udp_send(id, to, chunk(b"by the first"));
        assert!(matches!(refused, Err(SocketError::NoRoute(_))), "it has another address");
    }
    // What was asked for may go.
    let by_second = MulticastOptions { interface: Some(second), ..MulticastOptions::default() };
    let id = shard.udp_bind("0.0.0.0:0".parse().expect("an address")).expect("a port");
    shard.udp_set_multicast(id, by_second).expect("an interface");
    let own = shard.udp_bind(SocketAddr::new(address(0, false), 0)).expect("a port");
    shard.udp_set_multicast(own, by_second).expect("an interface");
    shard.remove_interface(now, second).expect("an interface");
    let (group, refused) = (ip(GROUPS[0]), Err(SocketError::NoSuchInterface));
    for id in [id, own] {
        let to = Some(SocketAddr::new(group, 5_000));
        assert_eq!(shard.udp_send(id, to, chunk(b"nowhere")), refused);
        assert_eq!(shard.udp_join(now, id, group, Some(second), &[]), refused);
        assert_eq!(shard.udp_set_multicast(id, by_second), refused);
    }
    net.run(Duration::from_secs(10));
    assert!(!net.hosts[0].shard.wants_transmit());
}

#[test]
fn what_is_no_group_cannot_be_joined() {
    let mut net = net();
    let now = net.now;
    let shard = &mut net.hosts[0].shard;
    let id = shard.udp_bind("0.0.0.0:5000".parse().expect("an address")).expect("a port");
    let one = ip("10.0.0.9");
    let refused = shard.udp_join(now, id, one, None, &[]);
    assert_eq!(refused, Err(BadArgument::NoGroup(one).into()));
    let (local, remote) = (ip("fd00::1"), ip(GROUPS[0]));
    let refused = shard.udp_join(now, id, remote, None, &[local]);
    assert_eq!(refused, Err(BadArgument::FamiliesDiffer { local, remote }.into()));
    for index in 0..100_u8 {
        let outcome = shard.udp_join(now, id, IpAddr::from([239, 7, 7, index]), None, &[]);
        let expected = if index < 64 { Ok(()) } else { Err(SocketError::NoMemory) };
        assert_eq!(outcome, expected, "{index}");
    }
}

/// What the first interface has no address for goes by the next that has one, and not by the shard's own.
#[test]
fn a_group_is_reached_by_the_first_device_that_has_its_family() {
    let mut net = net();
    let (now, first) = (net.now, net.hosts[0].interface);
    let shard = &mut net.hosts[0].shard;
    shard.remove_address(now, first, address(0, true)).expect("ours");
    let medium = Medium::Ethernet(harness::station(2));
    let second = shard
        .add_interface(InterfaceConfig {
            capabilities: Capabilities::plain(medium, 1_500),
            mode: Some(TransmitMode::Multidata),
            addresses: vec!["fd00:9::1/64".parse().expect("a network")],
            gateways: Vec::new(),
        })
        .expect("a sound configuration");
    let id = shard.udp_bind(SocketAddr::new(ip("::"), 5_000)).expect("a port");
    shard.udp_join(now, id, ip(GROUPS[1]), None, &[]).expect("room");
    let mut batch = Multidata::default();
    assert_eq!(shard.poll_transmit(now, first, Room::UNBOUNDED, &mut batch), 0);
    assert_eq!(shard.poll_transmit(now, second, Room::UNBOUNDED, &mut batch), 1, "a report");
    shard.on_transmitted(now, second, &Transmitted { taken: 1, stopped: None });
    assert_eq!(second.index(), Some(1), "ids count as they were added");
    shard.remove_interface(now, second).expect("it is there");
    let gone = shard.udp_join(now, id, ip(GROUPS[1]), Some(second), &[]);
    assert_eq!(gone, Err(SocketError::NoSuchInterface));
}

/// RFC 2113 and RFC 2711: routers look at a packet with a router alert, so it is no part of a batch.
#[test]
fn a_report_leaves_by_itself() {
    for group in GROUPS.map(ip) {
        let mut net = net();
        let from = sender(&mut net, 0, group);
        // The neighbour is known, so that nothing waits for it.
        let there = SocketAddr::new(address(1, !group.is_ipv4()), 9);
        net.hosts[0].shard.udp_send(from, Some(there), chunk(b"who?")).expect("room");
        net.run(Duration::from_secs(5));
        net.wire.clear();
        net.batches.clear();
        let shard = &mut net.hosts[0].shard;
        for text in [&b"one"[..], b"two"] {
            shard.udp_send(from, Some(there), chunk(text)).expect("room");
        }
        listener(&mut net, 0, group, 5_000, &[]);
        net.step();
        net.step();
        assert_eq!(reports(&net, 0).len(), 1);
        let sizes: Vec<_> = net.batches.iter().filter(|it| it.0 == 0).map(|it| it.2).collect();
        assert_eq!(sizes, [2, 1], "the datagrams together, and the report");
    }
}

/// RFC 3590, 4: reports without a source may be ignored, so once there is a link-local address all groups are
/// reported from it.
#[test]
fn groups_are_reported_again_from_the_first_link_local_address() {
    let mut net = net();
    let group = ip(GROUPS[1]);
    listener(&mut net, 0, group, 5_000, &[]);
    net.run(Duration::from_secs(5));
    net.wire.clear();
    let (now, id) = (net.now, net.hosts[0].interface);
    let routers = Some(ip::router::RouterConfig::new(ip::router::IdentifierKey([9; 16])));
    let config =
        AddressingConfig { ipv6: ClaimPolicy::Probe, routers, ..AddressingConfig::default() };
    net.hosts[0].shard.start_addressing(now, id, config);
    net.run(Duration::from_secs(5));
    let is_group = |bytes: &[u8]| group == IpAddr::from(<[u8; 16]>::try_from(bytes).expect("16"));
    let from_link_local = net.wire.iter().filter(|(from, frame)| {
        let packet = &frame[EthernetRepr::LEN..];
        let is_mld = packet[0] >> 4 == 6 && packet[6] == 0;
        *from == 0 && is_mld && packet[8..10] == [0xfe, 0x80]
    });
    let names_it = |frame: &[u8]| frame[EthernetRepr::LEN..].windows(16).any(is_group);
    assert!(from_link_local.into_iter().any(|(_, frame)| names_it(frame)));
}

/// What is sent to a group by the loopback interface is for listeners here alone, once, whatever its source.
#[test]
fn a_datagram_to_a_group_by_the_loopback_interface_is_heard_once() {
    for group in GROUPS.map(ip) {
        for (source, is_looped) in [
            (any(group), true),
            (address(0, group.is_ipv6()), true),
            (address(0, group.is_ipv6()), false),
        ] {
            let mut net = net();
            let now = net.now;
            let shard = &mut net.hosts[0].shard;
            let listens = shard.udp_bind(SocketAddr::new(any(group), 5_000)).expect("a free port");
            let interface = Some(InterfaceId::LOOPBACK);
            shard.udp_join(now, listens, group, interface, &[]).expect("room");
            let sends = shard.udp_bind(SocketAddr::new(source, 0)).expect("a port");
            let options = MulticastOptions { interface, is_looped, ..MulticastOptions::default() };
            shard.udp_set_multicast(sends, options).expect("it is there");
            send(&mut net, 0, sends, (group, 5_000), b"here");
            let count = received(&mut net, 0, listens).len();
            assert_eq!(count, usize::from(is_looped), "{source} to {group}");
        }
    }
}

/// Who joined without naming an interface leaves without naming one, whatever the routes say by then.
#[test]
fn a_group_that_was_joined_by_the_usual_interface_is_left_though_another_is_usual_now() {
    let mut net = net();
    let (now, group) = (net.now, ip(GROUPS[0]));
    let joined = listener(&mut net, 0, group, 5_000, &[]);
    let shard = &mut net.hosts[0].shard;
    let config = InterfaceConfig {
        capabilities: Capabilities::plain(Medium::Ip, 1_500),
        mode: Some(TransmitMode::Multidata),
        addresses: vec!["192.0.2.1/24".parse().expect("a network")],
        gateways: vec![],
    };
    let other = shard.add_interface(config).expect("a sound configuration");
    shard.add_route(now, "224.0.0.0/4".parse().expect("a network"), None, other).expect("a way");
    shard.udp_leave(now, joined, group, None).expect("it is in the group");
    assert_eq!(
        shard.udp_leave(now, joined, group, None),
        Err(SocketError::AddressNotAvailable),
        "no more"
    );
    // In two of them it leaves the usual one first.
    let first = net.hosts[0].interface;
    let shard = &mut net.hosts[0].shard;
    for by in [first, other] {
        shard.udp_join(now, joined, group, Some(by), &[]).expect("room");
    }
    shard.udp_leave(now, joined, group, None).expect("it is in the group");
    assert_eq!(
        shard.udp_leave(now, joined, group, Some(other)),
        Err(SocketError::AddressNotAvailable)
    );
    shard.udp_leave(now, joined, group, Some(first)).expect("it still is");
}

/// RFC 3376, 3.1: "IPMulticastListen [...] replaces" what the socket wanted of the group before. And who left is no
/// listener: nothing of the group is for this host then.
#[test]
fn who_joins_again_wants_the_new_sources_alone_and_who_left_nothing() {
    for group in GROUPS.map(ip) {
        let mut net = net();
        let (own, other) = (address(0, group.is_ipv6()), address(1, group.is_ipv6()));
        let id = listener(&mut net, 1, group, 5_000, &[own]);
        let from = sender(&mut net, 0, group);
        let now = net.now;
        for (sources, count) in [(&[own, other][..], 1), (&[other], 0), (&[], 1)] {
            net.hosts[1].shard.udp_join(now, id, group, None, sources).expect("room");
            send(&mut net, 0, from, (group, 5_000), b"word");
            assert_eq!(received(&mut net, 1, id).len(), count, "{sources:?}");
        }
        let dropped =
            |net: &Net| net.hosts[1].shard.counters().drops.count(DropReason::NotOurAddress);
        let before = dropped(&net);
        let now = net.now;
        net.hosts[1].shard.udp_leave(now, id, group, None).expect("it is in it");
        send(&mut net, 0, from, (group, 5_000), b"word");
        assert_eq!((received(&mut net, 1, id).len(), dropped(&net) - before), (0, 1), "{group}");
    }
}

/// A datagram that one of two listeners takes is not dropped, though the other has no room for it.
#[test]
fn what_one_listener_has_room_for_is_not_dropped() {
    let (mut net, group) = (net(), ip(GROUPS[0]));
    let ids = [0, 1].map(|_| listener(&mut net, 1, group, 5_000, &[]));
    let from = sender(&mut net, 0, group);
    for slow in ids {
        let quick = ids[usize::from(slow == ids[0])];
        net.hosts[1].shard.udp_set_receive_buffer(slow, 1).expect("open");
        for _ in 0..3 {
            send(&mut net, 0, from, (group, 5_000), b"word");
            assert_eq!(received(&mut net, 1, quick).len(), 1);
        }
        assert_eq!(net.hosts[1].shard.counters().drops.total(), 0);
        received(&mut net, 1, slow);
        net.hosts[1].shard.udp_set_receive_buffer(slow, 1 << 20).expect("open");
    }
}

/// More sockets than a group of an interface has listeners are refused, and those that are in hear of it as before.
#[test]
fn a_group_has_a_thousand_listeners_at_most() {
    let net = net();
    let (group, now) = (ip(GROUPS[0]), net.now);
    let pool = net.hosts[1].pool.clone();
    let (tcp, secret) = (tcp::Config::default(), [1; 32]);
    let mut shard = Shard::new(ShardConfig { tcp, pool, secret, sockets_max: 2_000 });
    let interface = InterfaceConfig {
        capabilities: Capabilities::plain(Medium::Ip, 1_500),
        mode: None,
        addresses: vec!["10.0.0.2/24".parse().expect("a network")],
        gateways: Vec::new(),
    };
    shard.add_interface(interface).expect("a sound configuration");
    let mut join = || {
        let id = shard.udp_bind(SocketAddr::new(any(group), 0)).expect("a free port");
        shard.udp_join(now, id, group, None, &[])
    };
    assert!((0..1_024).all(|_| join() == Ok(())));
    assert_eq!(join(), Err(SocketError::NoMemory));
}

/// RFC 3810, 5.2.13, with RFC 4429: what is not settled yet may be another's.
#[test]
fn reports_from_a_link_local_address_wait_until_it_is_settled() {
    let mut net = net();
    let (now, id) = (net.now, net.hosts[0].interface);
    net.hosts[0].shard.start_addressing(now, id, AddressingConfig::default());
    let sources = |net: &Net| -> Vec<Vec<u8>> {
        let packets = net.wire.iter().map(|(from, frame)| (from, &frame[EthernetRepr::LEN..]));
        let reports = packets.filter(|(from, it)| **from == 0 && it[0] >> 4 == 6 && it[6] == 0);
        reports.map(|(_, packet)| packet[8..24].to_vec()).collect()
    };
    net.run(Duration::from_millis(500));
    assert!(!sources(&net).is_empty());
    assert!(sources(&net).iter().all(|source| *source == [0; 16]), "{:?}", sources(&net));
    net.wire.clear();
    net.run(Duration::from_secs(5));
    assert!(sources(&net).iter().any(|source| source[..2] == [0xfe, 0x80]));
}

/// RFC 3376, 5.1, and RFC 3810, 6.1, leave it open; a router there knows of nobody.
#[test]
fn groups_of_both_families_are_reported_on_another_link() {
    let mut net = net();
    for group in GROUPS {
        listener(&mut net, 0, ip(group), 5_000, &[]);
    }
    net.run(Duration::from_secs(20));
    net.wire.clear();
    let (now, id) = (net.now, net.hosts[0].interface);
    net.hosts[0].shard.on_link_changed(now, id);
    net.run(Duration::from_secs(5));
    let told = |group: &str| {
        let octets = match ip(group) {
            IpAddr::V4(it) => it.octets().to_vec(),
            IpAddr::V6(it) => it.octets().to_vec(),
        };
        let reports = reports(&net, 0).into_iter();
        reports.filter(|(_, it)| it.windows(octets.len()).any(|part| part == octets)).count()
    };
    assert!(GROUPS.iter().all(|group| told(group) > 0), "{:?}", GROUPS.map(told));
}
