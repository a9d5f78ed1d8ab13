//! Packets that leave by two routes at once.

use crate::harness::{self, Fate, Net, address, data};
use batch::{Block, Chunk};
use bytes::Bytes;
use core::net::SocketAddr;
use counters::{DropReason, MultidataRefusal};
use device::{
    Capabilities, DeviceError, Medium, Room, Segmentation, Stop, TransmitMode, Transmitted,
};
use ip::Cidr;
use stack::{InterfaceConfig, InterfaceId, SocketError, SocketId};
use time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn network() -> Cidr {
    "10.0.0.0/24".parse().expect("a network")
}

fn plain() -> Capabilities {
    Capabilities::plain(Medium::Ip, 1_500)
}

/// Gives host 0 a second interface with the same address, over which its packets leave as well.
fn multi_routed(net: &mut Net, capabilities: Capabilities) -> InterfaceId {
    let config = InterfaceConfig {
        capabilities,
        mode: Some(TransmitMode::Lso),
        addresses: vec!["10.0.0.1/24".parse().expect("an address")],
        gateways: Vec::new(),
    };
    let (now, host) = (net.now, &mut net.hosts[0]);
    let second = host.shard.add_interface(config).expect("a sound configuration");
    host.more.push(second);
    for id in [host.interface, second] {
        host.shard.set_route_duplicating(now, network(), id, true).expect("its network");
    }
    second
}

fn refused(net: &Net) -> u64 {
    net.hosts[0].shard.counters().refusals.count(MultidataRefusal::MultiRouted)
}

fn duplicated(net: &Net) -> u64 {
    net.hosts[0].shard.counters().shard.packets_duplicated
}

/// Moves bytes from host 0 to host 1 and leaves the connection open.
fn move_bytes(net: &mut Net, client: SocketId, server: SocketId, len: usize) {
    let bytes = data(len);
    let (mut sent, mut received) = (0, Vec::new());
    let end = net.now + 60 * SECOND;
    while received.len() < len {
        sent += net.write(0, client, &bytes[sent..]);
        net.run(Duration::from_micros(500));
        assert!(!net.read(1, server, &mut received).expect("no error"), "nobody has closed");
        assert!(net.now < end, "{} of {len} bytes", received.len());
    }
    assert!(received == bytes, "the stream arrived changed");
}

/// How many packets host 0 sent by this interface since the last call, and the largest batch.
fn sent_by(net: &mut Net, id: InterfaceId) -> (usize, usize) {
    let counts = net.batches.iter().filter(|(host, by, _)| *host == 0 && *by == id);
    let counts: Vec<usize> = counts.map(|(_, _, count)| *count).collect();
    net.batches.retain(|(host, by, _)| *host != 0 || *by != id);
    (counts.iter().sum(), counts.into_iter().max().unwrap_or(0))
}

/// What is left of a packet without the fields that differ from interface to interface.
fn same_parts(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame[4..6].fill(0);
    frame[10..12].fill(0);
    frame
}

#[test]
fn every_packet_goes_out_by_both_routes_alone_and_the_receiver_takes_one_of_each() {
    let offloading = Capabilities {
        checksum_transmit: true,
        segmentation: Some(Segmentation { tcp_ipv4: true, tcp_ipv6: true, len_bytes_max: 65_535 }),
        ..plain()
    };
    // Each of the two makes checksums, or neither, or one does.
    for (first_offloads, second_offloads) in
        [(false, false), (true, false), (false, true), (true, true)]
    {
        let mut net = Net::new(TransmitMode::Lso, false);
        let first = net.hosts[0].interface;
        let capabilities = |offloads| if offloads { offloading.clone() } else { plain() };
        net.hosts[0].shard.set_capabilities(first, capabilities(first_offloads));
        let second = multi_routed(&mut net, capabilities(second_offloads));
        let (client, server) = net.connect(false);
        move_bytes(&mut net, client, server, 200_000);
        net.run(SECOND);
        let (by_first, largest) = sent_by(&mut net, first);
        assert_eq!((by_first, largest), sent_by(&mut net, second).max((0, largest)));
        assert_eq!(largest, 1);
        assert_eq!(duplicated(&net), by_first as u64);
        assert_eq!(refused(&net), 2 * by_first as u64, "each of the two is counted");
        let mut frames: Vec<Vec<u8>> = net
            .wire
            .iter()
            .filter(|(host, _)| *host == 0)
            .map(|(_, frame)| same_parts(frame))
            .collect();
        frames.sort();
        let (pairs, rest) = frames.as_chunks::<2>();
        assert!(rest.is_empty() && pairs.iter().all(|[a, b]| a == b), "both are the same packet");
        let drops = net.hosts[1].shard.counters().drops;
        assert_eq!(drops.count(DropReason::TcpChecksum) + drops.count(DropReason::IpChecksum), 0);
        assert!(drops.count(DropReason::Duplicate) > 100, "they came twice");
        let tcp = net.hosts[0].shard.counters().tcp;
        assert_eq!((tcp.retransmission_timeouts, tcp.retransmitted_segments), (0, 0));
    }
}

#[test]
fn what_one_way_loses_the_other_brings() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    multi_routed(&mut net, plain());
    let (client, server) = net.connect(false);
    // Every second packet that leaves is lost: of each pair one.
    let mut count = 0;
    net.fate = Box::new(move |host, _| {
        count += usize::from(host == 0);
        if host == 0 && count % 2 == 0 { Fate::Lose } else { Fate::Deliver }
    });
    move_bytes(&mut net, client, server, 200_000);
    assert_eq!(net.hosts[0].shard.counters().tcp.retransmitted_segments, 0);
}

#[test]
fn a_flow_is_back_in_batches_when_only_one_route_is_left_so() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    let first = net.hosts[0].interface;
    let second = multi_routed(&mut net, plain());
    let (client, server) = net.connect(false);
    move_bytes(&mut net, client, server, 50_000);
    let now = net.now;
    net.hosts[0].shard.set_route_duplicating(now, network(), second, false).expect("a route");
    sent_by(&mut net, first);
    sent_by(&mut net, second);
    move_bytes(&mut net, client, server, 200_000);
    assert!(sent_by(&mut net, first).1 > 8);
    assert_eq!(sent_by(&mut net, second).0, 0);
    let elsewhere: ip::Cidr = "192.0.2.0/24".parse().expect("a network");
    let unknown = net.hosts[0].shard.set_route_duplicating(net.now, elsewhere, first, true);
    assert_eq!(unknown, Err(SocketError::NoRoute(elsewhere.address())));
}

#[test]
fn an_interface_without_the_source_address_is_no_way() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    let first = net.hosts[0].interface;
    let config = InterfaceConfig {
        capabilities: plain(),
        mode: Some(TransmitMode::Multidata),
        addresses: vec!["10.0.0.9/24".parse().expect("an address")],
        gateways: Vec::new(),
    };
    let now = net.now;
    let second = net.hosts[0].shard.add_interface(config).expect("a sound configuration");
    for id in [first, second] {
        net.hosts[0].shard.set_route_duplicating(now, network(), id, true).expect("its network");
    }
    let (client, server) = net.connect(false);
    move_bytes(&mut net, client, server, 100_000);
    assert_eq!((duplicated(&net), refused(&net)), (0, 0));
}

#[test]
fn datagrams_arrive_by_each_way_in_fragments_of_its_own() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    let first = net.hosts[0].interface;
    let second = multi_routed(&mut net, Capabilities::plain(Medium::Ip, 900));
    let to = SocketAddr::new(address(1, false), 7);
    let receiver = net.hosts[1].shard.udp_bind(to).expect("a free port");
    let shard = &mut net.hosts[0].shard;
    let sender = shard.udp_bind(SocketAddr::new(address(0, false), 5)).expect("a free port");
    let chunk = |len| Chunk::whole(Block::from(Bytes::from(data(len))));
    for len in [10, 5_000] {
        shard.udp_send(sender, Some(to), chunk(len)).expect("room");
    }
    net.run(SECOND);
    let mut lens = Vec::new();
    while let Ok((received, _)) = net.hosts[1].shard.udp_receive(receiver) {
        assert!(received.bytes() == data(received.len()));
        lens.push(received.len());
    }
    lens.sort_unstable();
    assert_eq!(lens, [10, 10, 5_000, 5_000]);
    assert_eq!((sent_by(&mut net, first).0, sent_by(&mut net, second).0), (1 + 4, 1 + 6));
    assert_eq!((duplicated(&net), refused(&net)), (2, 4));
}

#[test]
fn segments_are_as_long_as_the_narrowest_way_takes() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    multi_routed(&mut net, Capabilities::plain(Medium::Ip, 900));
    let (client, server) = net.connect(false);
    move_bytes(&mut net, client, server, 50_000);
    let longest =
        net.wire.iter().filter(|(host, _)| *host == 0).map(|(_, frame)| frame.len()).max();
    assert_eq!(longest, Some(900));
}

/// A device that fails, or takes nothing any more, does not hold back what another takes.
#[test]
fn a_device_that_is_out_leaves_the_first_place_to_another() {
    let failed = Stop::Failed(DeviceError::new(std::io::ErrorKind::NetworkDown, "it is gone"));
    for stop in [Stop::Full, failed] {
        let mut net = Net::new(TransmitMode::Multidata, false);
        let first = net.hosts[0].interface;
        let second = multi_routed(&mut net, plain());
        let (client, server) = net.connect(false);
        net.run(SECOND);
        net.write(0, client, &data(50_000));
        // The first device is asked every millisecond, and takes nothing.
        let mut batch = batch::Multidata::default();
        for _ in 0..150 {
            let shard = &mut net.hosts[0].shard;
            if shard.poll_transmit(net.now, first, Room::UNBOUNDED, &mut batch) > 0 {
                let nothing = Transmitted { taken: 0, stopped: Some(stop.clone()) };
                shard.on_transmitted(net.now, first, &nothing);
            }
            net.now += Duration::from_millis(1);
        }
        net.hosts[0].interface = second;
        net.hosts[0].more.clear();
        net.run(SECOND);
        let mut received = Vec::new();
        net.read(1, server, &mut received).expect("no error");
        assert!(received == data(50_000), "{} bytes by the second", received.len());
        // The first is back: it takes what waited there, and then copies.
        net.hosts[0].more.push(first);
        net.run(SECOND);
        sent_by(&mut net, first);
        move_bytes(&mut net, client, server, 50_000);
        assert!(sent_by(&mut net, first).0 > 30);
        assert!(sent_by(&mut net, second).0 > 30);
    }
}

/// Who found no room on any way goes on when one of them has some, whichever was the first.
#[test]
fn a_device_that_is_out_holds_back_nobody_who_sends_datagrams() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    let first = net.hosts[0].interface;
    let second = multi_routed(&mut net, plain());
    let to = SocketAddr::new(address(1, false), 7);
    let shard = &mut net.hosts[0].shard;
    let sender = shard.udp_bind(SocketAddr::new(address(0, false), 5)).expect("a free port");
    let datagram = || Chunk::whole(Block::from(Bytes::from(data(10))));
    while shard.udp_send(sender, Some(to), datagram()).is_ok() {}
    // The first device is asked every millisecond, and takes nothing; the second takes all.
    net.hosts[0].interface = second;
    net.hosts[0].more.clear();
    let mut batch = batch::Multidata::default();
    for _ in 0..150 {
        let shard = &mut net.hosts[0].shard;
        if shard.poll_transmit(net.now, first, Room::UNBOUNDED, &mut batch) > 0 {
            let nothing = Transmitted { taken: 0, stopped: Some(Stop::Full) };
            shard.on_transmitted(net.now, first, &nothing);
        }
        net.run(Duration::from_millis(1));
    }
    let shard = &mut net.hosts[0].shard;
    let event = shard.poll_event().expect("the second has had room for long");
    assert_eq!((event.socket, event.readiness), (sender, stack::Readiness::WRITABLE));
    assert!(shard.udp_send(sender, Some(to), datagram()).is_ok());
}

#[test]
fn a_neighbour_that_is_gone_holds_nobody_back() {
    let mut net = Net::new(TransmitMode::Multidata, true);
    let first = net.hosts[0].interface;
    let second =
        multi_routed(&mut net, Capabilities::plain(Medium::Ethernet(harness::station(0)), 1_500));
    // What leaves by the first interface never arrives, not even questions for the neighbour.
    net.hosts[0].interface = second;
    net.hosts[0].more.clear();
    let remote = SocketAddr::new(address(1, false), 80);
    let listener = net.hosts[1].shard.tcp_listen(remote, 16).expect("a free port");
    let client = net.hosts[0].shard.tcp_connect(net.now, None, remote).expect("a route");
    let mut batch = batch::Multidata::default();
    let bytes = data(50_000);
    let (mut server, mut sent, mut received) = (None, 0, Vec::new());
    for _ in 0..5_000 {
        sent += net.write(0, client, &bytes[sent..]);
        let shard = &mut net.hosts[0].shard;
        let taken = shard.poll_transmit(net.now, first, Room::UNBOUNDED, &mut batch);
        shard.on_transmitted(net.now, first, &Transmitted { taken, stopped: None });
        net.run(Duration::from_millis(1));
        server = server.or_else(|| net.hosts[1].shard.tcp_accept(listener).ok());
        if let Some(server) = server {
            net.read(1, server, &mut received).expect("no error");
        }
    }
    assert!(received == bytes, "{} bytes", received.len());
    let drops = net.hosts[0].shard.counters().drops;
    assert!(
        drops.count(DropReason::NeighbourUnreachable) > 0,
        "the first way was found to be gone"
    );
}

/// A datagram may have arrived by the other way; where there is none any more its sender is told.
#[test]
fn a_datagram_is_undeliverable_only_where_no_way_is_left() {
    let mut net = Net::new(TransmitMode::Multidata, true);
    let first = net.hosts[0].interface;
    let second =
        multi_routed(&mut net, Capabilities::plain(Medium::Ethernet(harness::station(0)), 1_500));
    // What leaves by the first interface never arrives, not even questions for the neighbour.
    net.hosts[0].interface = second;
    net.hosts[0].more.clear();
    let to = SocketAddr::new(address(1, false), 7);
    let receiver = net.hosts[1].shard.udp_bind(to).expect("a free port");
    let sender = SocketAddr::new(address(0, false), 5);
    let sender = net.hosts[0].shard.udp_bind(sender).expect("a free port");
    net.hosts[0].shard.udp_connect(sender, to).expect("a route");
    let mut batch = batch::Multidata::default();
    let mut send = |net: &mut Net| {
        let datagram = Chunk::whole(Block::from(Bytes::from(data(10))));
        net.hosts[0].shard.udp_send(sender, None, datagram).expect("room");
        for _ in 0..50 {
            let shard = &mut net.hosts[0].shard;
            let taken = shard.poll_transmit(net.now, first, Room::UNBOUNDED, &mut batch);
            shard.on_transmitted(net.now, first, &Transmitted { taken, stopped: None });
            net.run(SECOND / 10);
        }
        net.hosts[0].shard.udp_check(sender)
    };
    assert_eq!(send(&mut net), Ok(()));
    let silent = net.hosts[0].shard.counters().drops.count(DropReason::NeighbourUnreachable);
    assert_eq!(silent, 1, "the first way was found to be gone");
    assert!(net.hosts[1].shard.udp_receive(receiver).is_ok(), "by the second");
    let now = net.now;
    net.hosts[0].shard.set_route_duplicating(now, network(), second, false).expect("a route");
    assert_eq!(send(&mut net), Err(SocketError::HostUnreachable));
}

#[test]
fn an_address_that_one_of_two_interfaces_loses_ends_no_connection() {
    for loses_first in [true, false] {
        let mut net = Net::new(TransmitMode::Lso, false);
        let first = net.hosts[0].interface;
        let second = multi_routed(&mut net, plain());
        let (client, server) = net.connect(false);
        move_bytes(&mut net, client, server, 50_000);
        let (lost, left) = if loses_first { (first, second) } else { (second, first) };
        let now = net.now;
        net.hosts[0].shard.remove_address(now, lost, address(0, false)).expect("it has it");
        net.hosts[0].interface = left;
        net.hosts[0].more.retain(|id| *id != left);
        net.hosts[0].more.push(lost);
        net.batches.clear();
        move_bytes(&mut net, client, server, 50_000);
        assert_eq!(sent_by(&mut net, lost).0, 0);
        let now = net.now;
        net.hosts[0].shard.remove_address(now, left, address(0, false)).expect("it has it");
        let error = net.hosts[0].shard.tcp_status(client).expect("not closed").error;
        assert_eq!(error, Some(SocketError::AddressRemoved));
    }
}

/// Host 0's first device, asked every millisecond for so long, does this with the datagrams it is offered.
fn ask_first(
    net: &mut Net,
    first: InterfaceId,
    ms: u64,
    outcome: impl Fn(u64) -> (usize, Option<Stop>),
) {
    let to = SocketAddr::new(address(1, false), 7);
    let sender = net.hosts[0].shard.udp_bind((address(0, false), 0).into()).expect("a port");
    let mut batch = batch::Multidata::default();
    for at in 0..ms {
        let shard = &mut net.hosts[0].shard;
        // There may be no room on any way.
        let _ = shard.udp_send(sender, Some(to), Chunk::whole(Block::from(Bytes::from(data(10)))));
        let built = shard.poll_transmit(net.now, first, Room::UNBOUNDED, &mut batch);
        let (taken, stopped) = outcome(at);
        let outcome = Transmitted { taken: taken.min(built), stopped };
        shard.on_transmitted(net.now, first, &outcome);
        net.now += Duration::from_millis(1);
    }
}

#[test]
fn a_device_that_is_full_now_and_then_stays_the_first() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    let first = net.hosts[0].interface;
    let second = multi_routed(&mut net, plain());
    let (client, _) = net.connect(false);
    // And one that a peer opened, which answers by the interface it came over.
    let at = SocketAddr::new(address(0, false), 80);
    let listener = net.hosts[0].shard.tcp_listen(at, 4).expect("a free port");
    let now = net.now;
    net.hosts[1].shard.tcp_connect(now, None, at).expect("a route");
    net.run(SECOND);
    let accepted = net.hosts[0].shard.tcp_accept(listener).expect("a connection");
    let ids = [client, accepted];
    let by = |net: &Net| ids.map(|id| net.hosts[0].shard.tcp_interface(id).expect("one"));
    // Every second time nothing, and then always as much as it has room for.
    ask_first(&mut net, first, 151, |at| match at % 2 {
        0 => (0, Some(Stop::Full)),
        _ => (usize::MAX, None),
    });
    assert_eq!(by(&net), [first; 2]);
    ask_first(&mut net, first, 150, |_| (1, Some(Stop::Full)));
    assert_eq!(by(&net), [first; 2]);
    ask_first(&mut net, first, 150, |_| (0, Some(Stop::Full)));
    assert_eq!(by(&net), [second; 2], "it takes nothing");
}

/// Nothing is sent before the device took it: it is offered again and again, and would be copied each time.
#[test]
fn what_the_first_device_does_not_take_is_not_copied() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    let first = net.hosts[0].interface;
    multi_routed(&mut net, plain());
    let (client, _) = net.connect(false);
    net.run(SECOND);
    net.write(0, client, &data(10));
    let before = duplicated(&net);
    let shard = &mut net.hosts[0].shard;
    shard.take_copies_queued();
    let mut batch = batch::Multidata::default();
    let mut offer = |shard: &mut stack::Shard, taken, stopped| {
        assert_eq!(shard.poll_transmit(net.now, first, Room::UNBOUNDED, &mut batch), 1);
        shard.on_transmitted(net.now, first, &Transmitted { taken, stopped });
    };
    for _ in 0..10 {
        offer(shard, 0, Some(Stop::Full));
    }
    assert!(!shard.take_copies_queued());
    offer(shard, 1, None);
    assert!(shard.take_copies_queued());
    assert_eq!(duplicated(&net), before + 1);
}

/// Whoever drives the interfaces one after the other may be past the one that the copy is for.
#[test]
fn who_drives_the_interfaces_hears_of_the_copy_of_a_datagram() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    multi_routed(&mut net, plain());
    let shard = &mut net.hosts[0].shard;
    let sender = shard.udp_bind((address(0, false), 0).into()).expect("a port");
    let to = Some(SocketAddr::new(address(1, false), 7));
    shard.udp_send(sender, to, Chunk::whole(Block::from(Bytes::from(data(10))))).expect("room");
    assert!(shard.take_copies_queued() && !shard.take_copies_queued());
}

/// The strong model (RFC 1122, 3.3.4.2): it would leave by an interface that does not have its source.
#[test]
fn a_connection_that_went_where_its_address_is_stays_there_when_routes_change() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    let first = net.hosts[0].interface;
    let config = InterfaceConfig {
        capabilities: plain(),
        mode: None,
        addresses: vec!["10.0.0.1/24".parse().expect("an address")],
        gateways: Vec::new(),
    };
    let (now, host) = (net.now, &mut net.hosts[0]);
    let second = host.shard.add_interface(config).expect("a sound configuration");
    host.more.push(second);
    // By which the peer is reached from other addresses still.
    host.shard.add_route(now, network(), None, first).expect("an interface");
    let (client, _) = net.connect(false);
    let now = net.now;
    let shard = &mut net.hosts[0].shard;
    assert_eq!(shard.tcp_interface(client), Some(first));
    shard.remove_address(now, first, address(0, false)).expect("it has it");
    assert_eq!(shard.tcp_interface(client), Some(second));
    let other = "10.99.0.0/16".parse().expect("a network");
    shard.add_route(now, other, None, first).expect("an interface");
    assert_eq!(shard.tcp_interface(client), Some(second));
}

/// No route changes with the address, for another one of its network is left.
#[test]
fn a_connection_that_went_where_its_address_is_sends_what_fits_there() {
    let mut net = Net::new(TransmitMode::Lso, false);
    let first = net.hosts[0].interface;
    let now = net.now;
    let other = "10.0.0.9/24".parse().expect("an address");
    net.hosts[0].shard.add_address(now, first, other).expect("there is room");
    let config = InterfaceConfig {
        capabilities: Capabilities::plain(Medium::Ip, 1_300),
        mode: None,
        addresses: vec!["10.0.0.1/24".parse().expect("an address")],
        gateways: Vec::new(),
    };
    let second = net.hosts[0].shard.add_interface(config).expect("a sound configuration");
    net.hosts[0].more.push(second);
    let (client, server) = net.connect(false);
    move_bytes(&mut net, client, server, 50_000);
    assert_eq!(net.hosts[0].shard.tcp_interface(client), Some(first));
    let now = net.now;
    net.hosts[0].shard.remove_address(now, first, address(0, false)).expect("it has it");
    assert_eq!(net.hosts[0].shard.tcp_interface(client), Some(second));
    net.wire.clear();
    move_bytes(&mut net, client, server, 50_000);
    let longest = net.wire.iter().filter(|(host, _)| *host == 0).map(|(_, frame)| frame.len());
    assert_eq!(longest.max(), Some(1_300));
}

#[test]
fn a_device_that_failed_in_receiving_is_the_first_again_when_another_takes_its_place() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    let first = net.hosts[0].interface;
    let second = multi_routed(&mut net, plain());
    let (client, _) = net.connect(false);
    let (now, shard) = (net.now, &mut net.hosts[0].shard);
    let gone = DeviceError::new(std::io::ErrorKind::NetworkDown, "it is gone");
    shard.on_device_failed(now, first, &gone);
    assert_eq!(shard.tcp_interface(client), Some(second));
    shard.on_device_replaced(now, first, plain());
    assert_eq!(shard.tcp_interface(client), Some(first));
}
