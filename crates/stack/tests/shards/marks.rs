//! What the packets of a socket say to routers.

use crate::harness::{Net, address, data};
use batch::{Block, Chunk};
use bytes::Bytes;
use core::net::SocketAddr;
use core::num::NonZeroU8;
use device::TransmitMode;
use stack::{ListenOptions, PacketMarks, SocketError};
use std::collections::BTreeSet;
use time::Duration;
use wire::{Ipv6View, protocol};

const MARKS: PacketMarks = PacketMarks { traffic_class: 0xba, hop_limit: NonZeroU8::new(5) };

/// Traffic class and hop limit of what `host` sent since the last call, each pair once.
fn seen(net: &mut Net, host: usize) -> Vec<(u8, u8)> {
    let frames = net.wire.drain(..).filter(|(sender, _)| *sender == host);
    let mut seen: Vec<(u8, u8)> = frames
        .map(|(_, frame)| match frame[0] >> 4 {
            4 => (frame[1], frame[8]),
            _ => (frame[0] << 4 | frame[1] >> 4, frame[7]),
        })
        .collect();
    seen.dedup();
    seen
}

#[test]
fn a_connection_is_marked_in_batches_from_its_syn_on_and_keeps_ecn_to_itself() {
    for ipv6 in [false, true] {
        let mut net = Net::new(TransmitMode::Multidata, false);
        let local = SocketAddr::new(address(1, ipv6), 80);
        let listener = net.hosts[1].shard.tcp_listen(local, 4).expect("a free port");
        let shard = &mut net.hosts[0].shard;
        let client = shard.tcp_connect(net.now, None, local).expect("a route");
        shard.set_marks(client, MARKS).expect("open");
        net.run(Duration::from_millis(10));
        assert_eq!(seen(&mut net, 0), [(0xb8, 5)]);
        let server = net.hosts[1].shard.tcp_accept(listener).expect("connected");
        net.batches.clear();
        net.transfer((0, client), (1, server), &data(200_000), Duration::from_secs(10));
        assert!(net.batches.iter().any(|(host, _, count)| *host == 0 && *count > 8));
        assert_eq!(seen(&mut net, 0), [(0xb8, 5)]);
    }
}

#[test]
fn what_a_listener_has_goes_with_its_syn_acks_and_to_its_connections() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    let local = SocketAddr::new(address(1, false), 80);
    let options = ListenOptions { marks: MARKS, ..ListenOptions::default() };
    let listener = net.hosts[1].shard.tcp_listen_with(local, options).expect("a free port");
    assert_eq!(net.hosts[1].shard.marks(listener), Ok(MARKS));
    let client = net.hosts[0].shard.tcp_connect(net.now, None, local).expect("a route");
    net.run(Duration::from_millis(10));
    let server = net.hosts[1].shard.tcp_accept(listener).expect("connected");
    net.write(1, server, b"answer");
    net.run(Duration::from_millis(10));
    assert_eq!(seen(&mut net, 1), [(0xb8, 5)]);
    assert_eq!(net.hosts[1].shard.marks(server), Ok(MARKS));
    assert_eq!(net.hosts[0].shard.marks(client), Ok(PacketMarks::default()));
}

#[test]
fn datagrams_are_marked_and_those_that_must_not_be_routed_are_refused() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    let (now, id) = (net.now, net.hosts[0].interface);
    let shard = &mut net.hosts[0].shard;
    let socket = shard.udp_bind("0.0.0.0:9".parse().expect("an address")).expect("a free port");
    shard.set_marks(socket, MARKS).expect("open");
    shard.udp_set_dont_route(socket, true).expect("open");
    let gateway = Some(address(1, false));
    let network = "192.0.2.0/24".parse().expect("a network");
    shard.add_route(now, network, gateway, id).expect("a route");
    let mut send = |to: &str| {
        let chunk = Chunk::whole(Block::from(Bytes::from_static(b"datagram")));
        shard.udp_send(socket, Some(to.parse().expect("an address")), chunk)
    };
    assert_eq!(send("10.0.0.2:7"), Ok(()));
    assert_eq!(send("192.0.2.1:7"), Err(SocketError::NoRoute([192, 0, 2, 1].into())));
    net.run(Duration::from_millis(10));
    assert_eq!(seen(&mut net, 0), [(0xba, 5)], "ECN of a datagram is the application's");
    let shard = &mut net.hosts[0].shard;
    shard.udp_set_dont_route(socket, false).expect("open");
    let chunk = Chunk::whole(Block::from(Bytes::from_static(b"datagram")));
    let to = Some("192.0.2.1:7".parse().expect("an address"));
    assert_eq!(shard.udp_send(socket, to, chunk), Ok(()));
}

#[test]
fn who_receives_a_datagram_learns_how_it_was_marked() {
    for (ipv6, to) in [(false, "10.0.0.2:7"), (true, "[fd00::2]:7"), (false, "224.1.2.3:7")] {
        let mut net = Net::new(TransmitMode::Multidata, false);
        let to: SocketAddr = to.parse().expect("an address");
        let any: &str = if ipv6 { "[::]:7" } else { "0.0.0.0:7" };
        let (now, interface) = (net.now, net.hosts[1].interface);
        let receivers = [0, 1].map(|host| {
            let shard = &mut net.hosts[host].shard;
            let socket = shard.udp_bind(any.parse().expect("an address")).expect("a free port");
            if to.ip().is_multicast() {
                shard.udp_join(now, socket, to.ip(), Some(interface), &[]).expect("room");
            }
            socket
        });
        net.run(Duration::from_millis(10));
        let shard = &mut net.hosts[0].shard;
        shard.set_marks(receivers[0], MARKS).expect("open");
        let chunk = Chunk::whole(Block::from(Bytes::from_static(b"datagram")));
        shard.udp_send(receivers[0], Some(to), chunk).expect("room");
        net.run(Duration::from_millis(10));
        // The hop limit of groups is another one; our own sockets of the group hear it, too.
        let (hosts, hop_limit) = if to.ip().is_multicast() { (0..2, 1) } else { (1..2, 5) };
        for host in hosts {
            let heard = net.hosts[host].shard.udp_receive_datagram(receivers[host]);
            let heard = heard.expect("it came");
            assert_eq!((heard.traffic_class, heard.hop_limit), (0xba, hop_limit), "{to}");
        }
    }
}

/// The flow labels of what `host` sent with this protocol since the last call, each once.
fn labels(net: &mut Net, host: usize, transport: u8) -> BTreeSet<u32> {
    let frames = net.wire.drain(..).filter(|(sender, _)| *sender == host);
    let sent = frames.filter(|(_, packet)| packet[0] >> 4 == 6 && packet[6] == transport);
    sent.map(|(_, packet)| Ipv6View::parse(&packet).expect("a packet").flow_label()).collect()
}

// RFC 6437, 3: "assign each unrelated transport connection and application data stream to a new flow". What the host says
// of itself is of none.
#[test]
fn every_flow_has_a_label_of_its_own() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    let server = SocketAddr::new(address(1, true), 80);
    let listener = net.hosts[1].shard.tcp_listen(server, 4).expect("a free port");
    let mut seen = BTreeSet::new();
    let mut one = |labels: BTreeSet<u32>| {
        let only = labels.first().filter(|label| labels.len() == 1 && **label != 0);
        assert!(only.is_some_and(|only| seen.insert(*only)), "{labels:?} after {seen:?}");
    };
    for _ in 0..2 {
        // From the SYN to the ACK in TIME-WAIT.
        let client = net.hosts[0].shard.tcp_connect(net.now, None, server).expect("a route");
        net.run(Duration::from_millis(10));
        let other = net.hosts[1].shard.tcp_accept(listener).expect("connected");
        net.transfer((0, client), (1, other), &data(100_000), Duration::from_secs(10));
        net.hosts[0].shard.close(net.now, client);
        net.run(Duration::from_millis(10));
        net.hosts[1].shard.close(net.now, other);
        net.run(Duration::from_millis(10));
        let wire = net.wire.clone();
        one(labels(&mut net, 0, protocol::TCP));
        net.wire = wire;
        one(labels(&mut net, 1, protocol::TCP));
    }
    // A refusal, whose flow is that of the SYN, the other way.
    let refused = SocketAddr::new(address(1, true), 81);
    net.hosts[0].shard.tcp_connect(net.now, None, refused).expect("a route");
    net.run(Duration::from_millis(10));
    one(labels(&mut net, 1, protocol::TCP));
    let socket = net.hosts[0].shard.udp_bind(SocketAddr::new(address(0, true), 9)).expect("free");
    for port in [5_000, 5_001] {
        let remote = SocketAddr::new(address(1, true), port);
        for _ in 0..3 {
            let payload = Chunk::whole(Block::from(Bytes::from_static(b"datagram")));
            net.hosts[0].shard.udp_send(socket, Some(remote), payload).expect("room");
        }
        net.run(Duration::from_millis(10));
        let wire = net.wire.clone();
        one(labels(&mut net, 0, protocol::UDP));
        net.wire = wire;
        assert_eq!(labels(&mut net, 1, protocol::ICMPV6), BTreeSet::from([0]), "no such port");
    }
}
