//! Options of the IPv4 header: in every packet of the socket that asked for them, out of batches, and
//! with room made for them.

use crate::harness::{self, Net, address, data};
use batch::{Block, Chunk};
use bytes::Bytes;
use core::net::SocketAddr;
use counters::MultidataRefusal;
use device::TransmitMode;
use stack::{BadArgument, Ipv4Options, SocketError, SocketId, TcpOption};
use time::Duration;
use wire::Ipv4View;

const RECORD_ROUTE: [u8; 16] = [7, 15, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const ROUTER_ALERT: [u8; 4] = [148, 4, 0, 0];
const SECOND: Duration = Duration::from_secs(1);

fn options(bytes: &[u8]) -> Ipv4Options {
    Ipv4Options::parse(bytes).expect("harmless")
}

fn set(net: &mut Net, id: SocketId, bytes: &[u8]) {
    let option = TcpOption::IpOptions(options(bytes));
    net.hosts[0].shard.tcp_set_option(net.now, id, option).expect("open");
}

fn refused(net: &Net) -> u64 {
    net.hosts[0].shard.counters().refusals.count(MultidataRefusal::IpOptions)
}

/// Moves bytes from host 0 to host 1 and back, and leaves the connection open.
fn exchange(net: &mut Net, client: SocketId, server: SocketId, len: usize) {
    for (from, to) in [((0, client), (1, server)), ((1, server), (0, client))] {
        let bytes = data(len);
        let (mut sent, mut received) = (0, Vec::new());
        let end = net.now + 60 * SECOND;
        while received.len() < len {
            sent += net.write(from.0, from.1, &bytes[sent..]);
            net.run(Duration::from_micros(500));
            assert!(!net.read(to.0, to.1, &mut received).expect("no error"), "nobody has closed");
            assert!(net.now < end, "{} of {len} bytes", received.len());
        }
        assert!(received == bytes, "the stream arrived changed");
    }
}

/// The largest batch that host 0 offered since the last call.
fn largest(net: &mut Net) -> usize {
    let largest = net.batches.iter().filter(|(host, ..)| *host == 0).map(|(_, _, count)| *count);
    let largest = largest.max().unwrap_or(0);
    net.batches.clear();
    largest
}

#[test]
fn every_packet_of_a_connection_has_them_and_leaves_alone() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    let (client, server) = net.connect(false);
    exchange(&mut net, client, server, 100_000);
    assert!(largest(&mut net) > 8);
    set(&mut net, client, &RECORD_ROUTE);
    net.wire.clear();
    let before = refused(&net);
    exchange(&mut net, client, server, 100_000);
    assert_eq!(largest(&mut net), 1);
    let mut longest = 0;
    for (host, frame) in &net.wire {
        let view = Ipv4View::parse(frame).expect("sound");
        assert!(view.checksum_ok());
        match host {
            0 => assert_eq!(view.options(), RECORD_ROUTE),
            _ => assert!(view.options().is_empty(), "they are the client's own"),
        }
        longest = longest.max(if *host == 0 { frame.len() } else { 0 });
    }
    assert_eq!(longest, 1_500, "segments are as long as fits beside them, and no longer");
    let packets = net.wire.iter().filter(|(host, _)| *host == 0).count() as u64;
    assert_eq!(refused(&net) - before, packets, "each is counted");

    set(&mut net, client, &[]);
    net.wire.clear();
    exchange(&mut net, client, server, 100_000);
    assert!(largest(&mut net) > 8, "it is back in batches");
    assert!(net.wire.iter().all(|(_, frame)| frame[0] == 0x45));
}

#[test]
fn they_go_with_the_handshake_where_they_are_set_before_it_and_with_what_is_sent_again() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    let remote = SocketAddr::new(address(1, false), 80);
    let listener = net.hosts[1].shard.tcp_listen(remote, 16).expect("a free port");
    let client = net.hosts[0].shard.tcp_connect(net.now, None, remote).expect("a route");
    set(&mut net, client, &ROUTER_ALERT);
    net.run(SECOND);
    let server = net.hosts[1].shard.tcp_accept(listener).expect("an open connection");
    // Some are lost on the way.
    let mut count = 0;
    net.fate = Box::new(move |host, _| {
        count += usize::from(host == 0);
        if host == 0 && count % 9 == 0 { harness::Fate::Lose } else { harness::Fate::Deliver }
    });
    net.transfer((0, client), (1, server), &data(200_000), 60 * SECOND);
    let ours = net.wire.iter().filter(|(host, _)| *host == 0);
    for (_, frame) in ours {
        assert_eq!(Ipv4View::parse(frame).expect("sound").options(), ROUTER_ALERT);
    }
    assert!(net.hosts[0].shard.counters().tcp.retransmitted_segments > 0);
}

#[test]
fn ipv6_has_no_such_options() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    let (client, server) = net.connect(true);
    let option = TcpOption::IpOptions(options(&ROUTER_ALERT));
    let set = net.hosts[0].shard.tcp_set_option(net.now, client, option);
    assert_eq!(set, Err(BadArgument::Ipv4OptionsOverIpv6.into()));
    exchange(&mut net, client, server, 100_000);
    assert!(largest(&mut net) > 8, "nothing has changed");
}

#[test]
fn datagrams_have_them_whole_and_in_fragments() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    let to = SocketAddr::new(address(1, false), 7);
    let receiver = net.hosts[1].shard.udp_bind(to).expect("a free port");
    let shard = &mut net.hosts[0].shard;
    let sender = shard.udp_bind(SocketAddr::new(address(0, false), 5)).expect("a free port");
    let both = [&RECORD_ROUTE[..], &ROUTER_ALERT].concat();
    shard.udp_set_ip_options(sender, options(&both)).expect("open");
    let lens = [10, 1_452, 1_453, 5_000, 65_507 - both.len()];
    for len in lens {
        let chunk = Chunk::whole(Block::from(Bytes::from(data(len))));
        shard.udp_send(sender, Some(to), chunk).expect("room");
    }
    let longer = Chunk::whole(Block::from(Bytes::from(data(65_508 - both.len()))));
    let refusal = shard.udp_send(sender, Some(to), longer);
    assert_eq!(refusal, Err(SocketError::MessageTooLong));
    net.run(SECOND);
    for len in lens {
        let (received, _) = net.hosts[1].shard.udp_receive(receiver).expect("arrived");
        assert!(received.bytes() == data(len), "{len} bytes arrived changed");
    }
    for (_, frame) in net.wire.iter().filter(|(host, _)| *host == 0) {
        let view = Ipv4View::parse(frame).expect("sound");
        let is_first = view.fragment_offset_bytes() == 0;
        assert_eq!(view.options(), if is_first { &both[..] } else { &ROUTER_ALERT });
        assert!(frame.len() <= 1_500);
    }
    assert_eq!(refused(&net), lens.len() as u64, "each datagram had a batch of its own");
    let counters = net.hosts[0].shard.counters().shard;
    assert_eq!(counters.datagrams_fragmented, 3);
}
