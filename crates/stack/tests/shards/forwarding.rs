//! Addresses that are accepted and not ours, and the connections to them that wait for a relay's decision.

mod foreign_icmp;

use crate::harness::{Net, address, craft, data, receive_batch, station};
use batch::{Block, Chunk};
use bytes::Bytes;
use core::net::{IpAddr, SocketAddr};
use counters::DropReason;
use device::{Capabilities, Medium, TransmitMode};
use ip::Cidr;
use stack::{
    BadArgument, Holdings, InterfaceConfig, InterfaceId, PendingId, SocketError, SocketId,
};
use tcp::State;
use time::Duration;
use wire::{Ipv4View, SeqNumber, TcpFlags, TcpHeader, TcpOptions, protocol};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// Two hosts; the second is the first one's way to everywhere and accepts what it is sent.
fn net(ethernet: bool) -> Net {
    net_with(ethernet, tcp::Config::default())
}

fn net_with(ethernet: bool, config: tcp::Config) -> Net {
    let mut net = Net::with_config(TransmitMode::Multidata, ethernet, config);
    for (any, ipv6) in [(Cidr::ANY_IPV4, false), (Cidr::ANY_IPV6, true)] {
        let (now, id) = (net.now, net.hosts[0].interface);
        let gateway = Some(address(1, ipv6));
        net.hosts[0].shard.add_route(now, any, gateway, id).expect("an interface");
    }
    accept(&mut net, &[Cidr::ANY_IPV4, Cidr::ANY_IPV6]);
    net
}

fn accept(net: &mut Net, prefixes: &[Cidr]) {
    let id = net.hosts[1].interface;
    net.hosts[1].shard.set_accepted(id, prefixes).expect("an interface");
}

fn forwarder(net: &mut Net, prefix: Cidr, in_flight_max: usize) -> SocketId {
    net.hosts[1].shard.tcp_forward(prefix, in_flight_max).expect("it is accepted")
}

fn at(text: &str) -> SocketAddr {
    text.parse().expect("an address and a port")
}

fn connect(net: &mut Net, to: SocketAddr) -> SocketId {
    let client = net.hosts[0].shard.tcp_connect(net.now, None, to).expect("a route");
    net.run(10 * MS);
    client
}

fn next(net: &mut Net, forwarder: SocketId) -> PendingId {
    net.hosts[1].shard.tcp_next_pending(forwarder).expect("a SYN came")
}

fn state(net: &mut Net, host: usize, id: SocketId) -> State {
    net.hosts[host].shard.tcp_status(id).expect("open").state
}

fn dropped(net: &Net, reason: DropReason) -> u64 {
    net.hosts[1].shard.counters().drops.count(reason)
}

/// Segments that host 1 sent.
fn answers(net: &Net) -> usize {
    let is_tcp = |frame: &[u8]| frame[0] == 0x45 && frame[9] == protocol::TCP;
    net.wire.iter().filter(|(from, frame)| *from == 1 && is_tcp(frame)).count()
}

#[test]
fn a_connection_to_a_foreign_address_waits_for_the_decision_and_is_like_any_other() {
    for (ethernet, to, prefix) in [
        (false, "93.184.215.14:443", Cidr::ANY_IPV4),
        (true, "93.184.215.14:443", Cidr::ANY_IPV4),
        (true, "[2606:2800:21f::1]:80", Cidr::ANY_IPV6),
    ] {
        let mut net = net(ethernet);
        let forwarder = forwarder(&mut net, prefix, 8);
        let client = connect(&mut net, at(to));
        assert_eq!(state(&mut net, 0, client), State::SynSent, "nobody has decided");
        let pending = next(&mut net, forwarder);
        assert_eq!(pending.destination(), at(to));
        let peer = net.hosts[0].shard.local_address(client).expect("open");
        assert_eq!(pending.peer(), peer);
        let now = net.now;
        let server = net.hosts[1].shard.tcp_accept_pending(now, &pending).expect("it waits");
        net.run(10 * MS);
        assert_eq!(state(&mut net, 0, client), State::Established);
        let status = net.hosts[1].shard.tcp_status(server).expect("open");
        assert_eq!((status.state, status.local, status.remote), (State::Established, at(to), peer));
        let info = net.hosts[1].shard.tcp_info(now, server).expect("open");
        assert!(
            info.sack && info.timestamps && info.window_scale.is_some(),
            "what the SYN offered"
        );
        let bytes = data(1_000_000);
        net.transfer((1, server), (0, client), &bytes, 5 * SECOND);
        net.transfer((0, client), (1, server), &bytes, 5 * SECOND);
        net.hosts[0].shard.close(net.now, client);
        net.hosts[1].shard.close(net.now, server);
        net.hosts[1].shard.close(net.now, forwarder);
        net.run(300 * SECOND);
        assert_eq!(net.hosts[1].shard.holdings(), Holdings::default());
    }
}

// RFC 9293, 3.10.7.4, TIME-WAIT: a forwarder takes a successor as a listener does; where it has no room for one,
// TIME-WAIT goes on.
#[test]
fn a_connection_in_time_wait_is_followed_by_one_that_is_forwarded() {
    let mut net = net(false);
    let forwarder = forwarder(&mut net, Cidr::ANY_IPV4, 1);
    let (to, own) = (at("93.184.215.14:443"), SocketAddr::new(address(0, false), 5_000));
    for round in 0..3 {
        let client = net.hosts[0].shard.tcp_connect(net.now, Some(own), to).expect("free");
        net.run(10 * MS);
        if round == 2 {
            // The place is taken by another's SYN.
            assert_eq!(net.hosts[1].shard.time_wait_count(), 1);
            assert_eq!(dropped(&net, DropReason::ForwarderFull), 1);
            break;
        }
        let pending = next(&mut net, forwarder);
        let server = net.hosts[1].shard.tcp_accept_pending(net.now, &pending).expect("it waits");
        net.run(10 * MS);
        assert_eq!(state(&mut net, 0, client), State::Established);
        net.hosts[1].shard.close(net.now, server);
        net.run(10 * MS);
        net.hosts[0].shard.close(net.now, client);
        net.run(10 * MS);
        assert_eq!(net.hosts[1].shard.time_wait_count(), 1);
        if round == 1 {
            connect(&mut net, at("93.184.215.14:80"));
        }
    }
    assert_eq!(net.hosts[1].shard.counters().shard.time_wait_replaced, 1);
}

#[test]
fn who_ends_its_stream_before_the_handshake_is_over_writes_no_more() {
    let mut net = net(false);
    let forwarder = forwarder(&mut net, Cidr::ANY_IPV4, 8);
    let client = connect(&mut net, at("93.184.215.14:80"));
    let (pending, now) = (next(&mut net, forwarder), net.now);
    let shard = &mut net.hosts[1].shard;
    let server = shard.tcp_accept_pending(now, &pending).expect("it waits");
    shard.tcp_append(now, server, chunk(b"all")).expect("room");
    shard.tcp_shutdown_write(now, server).expect("open");
    assert_eq!(shard.tcp_status(server).expect("open").state, State::SynReceived);
    // Room there will never be: who waited for it would wait as long as the peer likes.
    assert_eq!(shard.tcp_send_plan(server), Err(SocketError::BrokenPipe));
    net.run(10 * MS);
    let shard = &mut net.hosts[0].shard;
    let mut bytes = [0; 8];
    assert_eq!(shard.tcp_read(net.now, client, &mut bytes), Ok(3));
    assert_eq!(shard.tcp_read(net.now, client, &mut bytes), Ok(0));
}

#[test]
fn refused_is_a_reset_and_ignored_is_silence() {
    let mut net = net(false);
    let forwarder = forwarder(&mut net, Cidr::ANY_IPV4, 8);
    let client = connect(&mut net, at("8.8.8.8:81"));
    let (pending, now) = (next(&mut net, forwarder), net.now);
    net.hosts[1].shard.tcp_refuse_pending(now, &pending);
    net.run(10 * MS);
    let status = net.hosts[0].shard.tcp_status(client).expect("not closed");
    assert_eq!(status.error, Some(SocketError::ConnectionRefused));
    let again = net.hosts[1].shard.tcp_accept_pending(now, &pending);
    assert_eq!(again, Err(SocketError::ConnectionAborted), "it is decided");

    net.wire.clear();
    let client = connect(&mut net, at("8.8.8.8:82"));
    let mut ignored = 0;
    for _ in 0..300 {
        while let Ok(pending) = net.hosts[1].shard.tcp_next_pending(forwarder) {
            net.hosts[1].shard.tcp_ignore_pending(&pending);
            ignored += 1;
        }
        net.run(SECOND);
    }
    let status = net.hosts[0].shard.tcp_status(client).expect("not closed");
    assert_eq!(status.error, Some(SocketError::TimedOut));
    assert!(ignored > 1, "each SYN was asked about");
    assert_eq!((answers(&net), net.hosts[1].shard.holdings().forwarded), (0, 0));
}

// RFC 3168, 6.1.1 and 6.1.1.1: a client that repeats its SYN asks no more, and will not echo marks.
#[test]
fn who_asks_for_ecn_no_more_before_the_decision_gets_none() {
    for (patience, agreed) in [(MS, true), (10 * SECOND, false)] {
        let config = tcp::Config { ecn: tcp::EcnMode::Request, ..tcp::Config::default() };
        let mut net = net_with(false, config);
        let forwarder = forwarder(&mut net, Cidr::ANY_IPV4, 8);
        connect(&mut net, at("93.184.215.14:80"));
        let pending = next(&mut net, forwarder);
        net.run(patience);
        let now = net.now;
        let server = net.hosts[1].shard.tcp_accept_pending(now, &pending).expect("it waits");
        net.run(10 * MS);
        assert_eq!(state(&mut net, 1, server), State::Established);
        assert_eq!(net.hosts[1].shard.tcp_info(now, server).expect("open").ecn, agreed);
    }
}

#[test]
fn a_syn_that_comes_again_is_the_same_connection() {
    let mut net = net(false);
    let forwarder = forwarder(&mut net, Cidr::ANY_IPV4, 8);
    let client = connect(&mut net, at("93.184.215.14:80"));
    let pending = next(&mut net, forwarder);
    // The relay takes its time; the peer asks and asks, and is heard.
    net.run(100 * SECOND);
    let counters = net.hosts[1].shard.counters().shard;
    assert!(counters.forwards_repeated >= 4, "{}", counters.forwards_repeated);
    assert_eq!((counters.forwards_pending, counters.forwards_expired), (1, 0));
    assert_eq!(net.hosts[1].shard.tcp_next_pending(forwarder), Err(SocketError::WouldBlock));
    assert_eq!(answers(&net), 0);
    let now = net.now;
    let server = net.hosts[1].shard.tcp_accept_pending(now, &pending).expect("it waits");
    net.run(10 * MS);
    assert_eq!(state(&mut net, 0, client), State::Established);
    assert_eq!(state(&mut net, 1, server), State::Established);
}

/// A SYN of 192.0.x.y to 93.184.215.14.
fn syn(number: u32, sequence: u32, flags: TcpFlags) -> Vec<u8> {
    syn_to(at("93.184.215.14:80"), number, sequence, flags)
}

fn syn_to(to: SocketAddr, number: u32, sequence: u32, flags: TcpFlags) -> Vec<u8> {
    let header = TcpHeader {
        source_port: 5_000,
        destination_port: to.port(),
        sequence: SeqNumber(sequence),
        flags,
        window: 65_535,
        options: TcpOptions { mss: Some(1_460), ..TcpOptions::default() },
        ..TcpHeader::default()
    };
    let mut segment = vec![0; header.header_len()];
    header.emit(&mut segment).expect("room");
    let source = IpAddr::from([192, 0, (number >> 8) as u8, number as u8]);
    let addresses = (source, to.ip());
    let frame = craft::packet(station(1), addresses, protocol::TCP, 64, (&segment, 16));
    frame[14..].to_vec()
}

// An IPv4 host that hides in an IPv6 destination would be the relay's own: its sockets of both families take
// [::ffff:127.0.0.1] for 127.0.0.1.
#[test]
fn a_relay_is_handed_no_ipv6_address_that_stands_for_an_ipv4_one() {
    let mut net = net(false);
    let forwarder = forwarder(&mut net, Cidr::ANY_IPV6, 8);
    let any = net.hosts[1].shard.udp_forward(Cidr::ANY_IPV6).expect("it is accepted");
    let of = |to: SocketAddr| {
        let addresses = (address(0, true), to.ip());
        let port = to.port().to_be_bytes();
        let segment = TcpHeader {
            source_port: 5_000,
            destination_port: to.port(),
            sequence: SeqNumber(7),
            flags: TcpFlags::SYN,
            window: 65_535,
            ..TcpHeader::default()
        };
        let mut bytes = vec![0; segment.header_len()];
        segment.emit(&mut bytes).expect("room");
        let datagram = [0x13, 0x88, port[0], port[1], 0, 9, 0, 0, 7];
        [(protocol::TCP, &bytes[..], 16), (protocol::UDP, &datagram, 6)].map(
            |(protocol, bytes, at)| {
                craft::packet(station(1), addresses, protocol, 64, (bytes, at))[14..].to_vec()
            },
        )
    };
    let refused = [
        "[::ffff:127.0.0.1]:22",
        "[::ffff:0.0.0.0]:22",
        "[::ffff:8.8.8.8]:22",
        "[::127.0.0.1]:22",
        "[::10.0.0.2]:22",
        "[::]:22",
        "[::1]:22",
    ];
    for to in refused {
        let before = dropped(&net, DropReason::NotOurAddress);
        net.inject(1, of(at(to)));
        assert_eq!(dropped(&net, DropReason::NotOurAddress), before + 2, "{to}");
        let shard = &mut net.hosts[1].shard;
        assert_eq!(shard.tcp_next_pending(forwarder), Err(SocketError::WouldBlock), "{to}");
        assert_eq!(shard.udp_receive(any).err(), Some(SocketError::WouldBlock), "{to}");
    }
    net.run(10 * MS);
    // Neither by a segment nor by an ICMP error.
    let is_answer = |frame: &[u8]| {
        frame[0] >> 4 == 6
            && (frame[6] == protocol::TCP || (frame[6] == protocol::ICMPV6 && frame[40] < 128))
    };
    assert!(!net.wire.iter().any(|(_, frame)| is_answer(frame)), "nobody was answered");
    let compatible = net.hosts[1].shard.tcp_listen(at("[::10.0.0.2]:22"), 1);
    assert_eq!(compatible, Err(SocketError::AddressNotAvailable));
    net.inject(1, of(at("[64:ff9b::8.8.8.8]:22")));
    assert_eq!(next(&mut net, forwarder).destination(), at("[64:ff9b::8.8.8.8]:22"));
    net.hosts[1].shard.udp_receive(any).expect("the datagram");
}

#[test]
fn a_flood_of_forged_syns_is_bounded_counted_and_forgotten() {
    let mut net = net(false);
    let forwarder = forwarder(&mut net, Cidr::ANY_IPV4, 32);
    for number in 0..1_000 {
        net.inject(1, [syn(number, 7, TcpFlags::SYN)]);
    }
    assert_eq!(net.hosts[1].shard.holdings().forwarded, 32);
    assert_eq!(dropped(&net, DropReason::ForwarderFull), 1_000 - 32);
    // Who takes his back makes room, and may so as often as he likes.
    for round in 0..10_000 {
        net.inject(1, [syn(0, 7, TcpFlags::SYN)]);
        assert_eq!(net.hosts[1].shard.holdings().forwarded, 32);
        net.inject(1, [syn(0, 9, TcpFlags::RST)]);
        assert_eq!(net.hosts[1].shard.holdings().forwarded, 32, "{round}: nobody's number");
        net.inject(1, [syn(0, 8, TcpFlags::RST)]);
        assert_eq!(net.hosts[1].shard.holdings().forwarded, 31, "{round}");
    }
    net.run(61 * SECOND);
    assert_eq!(net.hosts[1].shard.holdings().forwarded, 0);
    assert_eq!(net.hosts[1].shard.counters().shard.forwards_expired, 31);
    assert_eq!(net.hosts[1].shard.tcp_next_pending(forwarder), Err(SocketError::WouldBlock));
    assert_eq!(answers(&net), 0, "nobody was answered");
    connect(&mut net, at("93.184.215.14:80"));
    next(&mut net, forwarder);
}

#[test]
fn what_became_of_pending_connections_adds_up() {
    let mut net = net(false);
    let id = forwarder(&mut net, Cidr::ANY_IPV4, 32);
    let ask = |net: &mut Net, number| net.inject(1, [syn(number, 7, TcpFlags::SYN)]);
    (0..8).for_each(|number| ask(&mut net, number));
    let pending: Vec<PendingId> = (0..6).map(|_| next(&mut net, id)).collect();
    net.inject(1, [syn(0, 8, TcpFlags::RST)]);
    let (now, by) = (net.now, net.hosts[1].interface);
    let shard = &mut net.hosts[1].shard;
    let peers = "192.0.0.0/16".parse().expect("a network");
    shard.add_route(now, peers, None, by).expect("a sound route");
    shard.tcp_accept_pending(now, &pending[0]).expect_err("its peer took it back");
    shard.tcp_accept_pending(now, &pending[1]).expect("it waits");
    shard.tcp_refuse_pending(now, &pending[2]);
    // Said twice, it counts once.
    shard.tcp_ignore_pending(&pending[3]);
    shard.tcp_ignore_pending(&pending[3]);
    shard.tcp_listen(at("93.184.215.14:80"), 8).expect("an accepted address");
    ask(&mut net, 4);
    let shard = &mut net.hosts[1].shard;
    shard.tcp_accept_pending(now, &pending[4]).expect_err("the listener has it");
    shard.close(now, id);
    assert_eq!(shard.holdings().forwarded, 1, "it was taken");
    net.run(61 * SECOND);
    let it = net.hosts[1].shard.counters().shard;
    assert_eq!((it.forwards_pending, it.forwards_accepted, it.forwards_refused), (8, 1, 1));
    let without_an_answer = (it.forwards_ignored, it.forwards_taken_back, it.forwards_expired);
    assert_eq!(without_an_answer, (3, 2, 1));
}

#[test]
fn of_two_attempts_from_one_port_the_last_counts() {
    let mut net = net(false);
    let forwarder = forwarder(&mut net, Cidr::ANY_IPV4, 1);
    net.inject(1, [syn(1, 7, TcpFlags::SYN)]);
    let (pending, now) = (next(&mut net, forwarder), net.now);
    net.inject(1, [syn(1, 100_000, TcpFlags::SYN)]);
    let (id, any) = (net.hosts[1].interface, Cidr::ANY_IPV4);
    net.hosts[1].shard.add_route(now, any, None, id).expect("an interface");
    net.hosts[1].shard.tcp_accept_pending(now, &pending).expect("it waits");
    net.run(10 * MS);
    let (_, frame) = net.wire.last().expect("a SYN-ACK");
    let (header, _) = TcpHeader::parse(&frame[20..]).expect("a segment");
    assert_eq!(header.acknowledgment, SeqNumber(100_001));
}

/// Gives host 1 a second interface that has 10.1.0.1 and accepts all IPv4 addresses.
fn second_interface(net: &mut Net) -> InterfaceId {
    let config = InterfaceConfig {
        capabilities: Capabilities::plain(Medium::Ip, 1_500),
        mode: Some(TransmitMode::Multidata),
        addresses: vec!["10.1.0.1/24".parse().expect("an address")],
        gateways: Vec::new(),
    };
    let (now, host) = (net.now, &mut net.hosts[1]);
    let id = host.shard.add_interface(config).expect("a sound configuration");
    host.shard.set_accepted(id, &[Cidr::ANY_IPV4]).expect("an interface");
    host.shard.add_route(now, Cidr::ANY_IPV4, None, id).expect("an interface");
    host.more.push(id);
    id
}

/// Hands packets to one interface of host 1, as one batch.
fn inject_by(net: &mut Net, id: InterfaceId, frames: impl IntoIterator<Item = Vec<u8>>) {
    let mut batch = receive_batch(frames);
    net.hosts[1].shard.on_receive(net.now, id, &mut batch);
}

/// A SYN that follows the first by another interface, whose own may be gone by then, is answered there.
fn is_answered_by_the_second(sequence: u32, is_first_gone: bool) {
    for is_accepted in [true, false] {
        let mut net = net(false);
        let second = second_interface(&mut net);
        let forwarder = forwarder(&mut net, Cidr::ANY_IPV4, 1);
        net.inject(1, [syn(1, 7, TcpFlags::SYN)]);
        let (pending, now) = (next(&mut net, forwarder), net.now);
        if is_first_gone {
            let first = net.hosts[1].interface;
            net.hosts[1].shard.remove_interface(now, first).expect("an interface");
        }
        inject_by(&mut net, second, [syn(1, sequence, TcpFlags::SYN)]);
        if is_accepted {
            net.hosts[1].shard.tcp_accept_pending(now, &pending).expect("it waits");
        } else {
            net.hosts[1].shard.tcp_refuse_pending(now, &pending);
        }
        net.batches.clear();
        net.run(10 * MS);
        assert_eq!(net.batches, [(1, second, 1)], "{is_accepted}");
    }
}

#[test]
fn a_new_attempt_by_another_interface_is_answered_there() {
    is_answered_by_the_second(100_000, false);
}

#[test]
fn a_new_attempt_of_another_station_is_refused_to_that_one() {
    let mut net = net(true);
    let forwarder = forwarder(&mut net, Cidr::ANY_IPV4, 1);
    let other = station(40);
    for (source, sequence) in [(craft::STRANGER, 7), (other, 100_000)] {
        let mut frame = [&station(1).0[..], &source.0, &[8, 0]].concat();
        frame.extend(syn(1, sequence, TcpFlags::SYN));
        net.inject(1, [frame]);
    }
    let (pending, now) = (next(&mut net, forwarder), net.now);
    net.hosts[1].shard.tcp_refuse_pending(now, &pending);
    net.run(10 * MS);
    let (_, reset) = net.wire.iter().find(|(_, frame)| frame[12..14] == [8, 0]).expect("a reset");
    assert_eq!(reset[..6], other.0);
}

// Also where it is the same attempt, whose first way is gone before anybody decided.
#[test]
fn a_syn_that_comes_again_by_another_interface_is_answered_there() {
    is_answered_by_the_second(7, true);
}

// RFC 1122, 3.3.4.2, the strong model: what is accepted of others is not what another interface has.
#[test]
fn who_accepts_everything_does_not_accept_for_another_interface() {
    let mut net = net(false);
    let second = second_interface(&mut net);
    let forwarder = forwarder(&mut net, Cidr::ANY_IPV4, 8);
    let (own, others) = (at("10.1.0.1:22"), at("10.0.0.2:22"));
    let shard = &mut net.hosts[1].shard;
    let listener = shard.tcp_listen(others, 8).expect("a free port");
    let socket = shard.udp_bind(others).expect("a free port");
    let any = shard.udp_forward(Cidr::ANY_IPV4).expect("it is accepted");
    let datagram = |to: SocketAddr| {
        // Port 5000 to the port, 9 bytes.
        let port = to.port().to_be_bytes();
        let bytes = [0x13, 0x88, port[0], port[1], 0, 9, 0, 0, 7];
        let addresses = (IpAddr::from([192, 0, 0, 1]), to.ip());
        craft::packet(station(1), addresses, protocol::UDP, 64, (&bytes, 6))[14..].to_vec()
    };
    // The second SYN of a batch is what was found to be right before.
    let of = |to| [syn_to(to, 1, 7, TcpFlags::SYN), syn_to(to, 1, 7, TcpFlags::SYN), datagram(to)];
    inject_by(&mut net, second, of(others));
    net.run(10 * MS);
    assert_eq!(dropped(&net, DropReason::NotOurAddress), 3);
    assert_eq!(answers(&net), 0);
    let shard = &mut net.hosts[1].shard;
    for id in [socket, any] {
        assert_eq!(shard.udp_receive(id).err(), Some(SocketError::WouldBlock));
    }
    assert_eq!(shard.tcp_next_pending(forwarder), Err(SocketError::WouldBlock));

    // Its own address and those of nobody here it takes.
    for to in [own, at("8.8.8.8:22")] {
        inject_by(&mut net, second, of(to));
        assert_eq!(next(&mut net, forwarder).destination(), to);
        net.hosts[1].shard.udp_receive(any).expect("the datagram");
    }
    assert_eq!(dropped(&net, DropReason::NotOurAddress), 3);
    // Who has the address is reached at it.
    connect(&mut net, others);
    net.inject(1, [datagram(others)]);
    let shard = &mut net.hosts[1].shard;
    shard.tcp_accept(listener).expect("a connection");
    shard.udp_receive(socket).expect("the datagram");
}

// RFC 9293, 3.10.7.4: whether the application has let go of the old connection or not.
#[test]
fn what_a_host_sends_to_itself_ends_time_wait_for_no_forwarder() {
    for is_held in [false, true] {
        let mut net = net(false);
        forwarder(&mut net, Cidr::ANY_IPV4, 8);
        let (to, own) = (at("10.0.0.2:80"), at("10.0.0.2:5000"));
        let (now, shard) = (net.now, &mut net.hosts[1].shard);
        let listener = shard.tcp_listen(to, 8).expect("a free port");
        let client = shard.tcp_connect(now, Some(own), to).expect("free");
        net.run(10 * MS);
        let server = net.hosts[1].shard.tcp_accept(listener).expect("open");
        net.hosts[1].shard.tcp_shutdown_write(net.now, server).expect("open");
        if !is_held {
            net.hosts[1].shard.close(net.now, server);
        }
        net.run(10 * MS);
        for id in [client, listener] {
            net.hosts[1].shard.close(net.now, id);
            net.run(10 * MS);
        }
        assert_eq!(net.hosts[1].shard.time_wait_count(), usize::from(!is_held));
        let (now, shard) = (net.now, &mut net.hosts[1].shard);
        let client = shard.tcp_connect(now, Some(own), to).expect("free");
        net.run(10 * MS);
        // An acknowledgment answered, as without a forwarder, and no reset.
        assert_eq!(state(&mut net, 1, client), State::SynSent, "{is_held}");
        assert_eq!(dropped(&net, DropReason::NoConnection), 0, "{is_held}");
    }
}

#[test]
fn a_forwarder_has_what_nobody_else_has_and_the_longest_prefix_first() {
    let mut net = net(false);
    let narrow: Cidr = "93.184.0.0/16".parse().expect("a network");
    let all = forwarder(&mut net, Cidr::ANY_IPV4, 8);
    let some = forwarder(&mut net, narrow, 8);
    let shard = &mut net.hosts[1].shard;
    assert_eq!(shard.tcp_forward(narrow, 8), Err(SocketError::AddressInUse));
    let one = shard.tcp_listen(at("93.184.215.14:80"), 8).expect("an accepted address");
    let every = shard.tcp_listen(at("0.0.0.0:81"), 8).expect("a free port");
    for (to, taker) in [
        ("93.184.215.14:80", one),
        ("8.8.8.8:81", every),
        ("93.184.215.14:82", some),
        ("8.8.8.8:80", all),
        // An address of its own that nobody listens at.
        ("10.0.0.2:80", all),
    ] {
        connect(&mut net, at(to));
        let shard = &mut net.hosts[1].shard;
        for other in [one, every] {
            assert_eq!(shard.tcp_accept(other).is_ok(), other == taker, "{to}");
        }
        for other in [some, all] {
            assert_eq!(shard.tcp_next_pending(other).is_ok(), other == taker, "{to}");
        }
    }
    // Once they are gone, it is a host again that has no such socket.
    for id in [some, all] {
        net.hosts[1].shard.close(net.now, id);
    }
    let client = connect(&mut net, at("8.8.8.8:83"));
    let status = net.hosts[0].shard.tcp_status(client).expect("not closed");
    assert_eq!(status.error, Some(SocketError::ConnectionRefused));
}

#[test]
fn what_is_not_accepted_is_dropped_and_nobody_forwards_without_it() {
    let mut net = net(false);
    accept(&mut net, &["93.184.0.0/16".parse().expect("a network")]);
    let all = forwarder(&mut net, Cidr::ANY_IPV4, 8);
    connect(&mut net, at("8.8.8.8:80"));
    assert_eq!(net.hosts[1].shard.tcp_next_pending(all), Err(SocketError::WouldBlock));
    assert_eq!(dropped(&net, DropReason::NotOurAddress), 1);
    let shard = &mut net.hosts[1].shard;
    let other: Cidr = "11.0.0.0/8".parse().expect("a network");
    assert_eq!(shard.tcp_forward(other, 8), Err(SocketError::AddressNotAvailable));
    let many = vec![other; stack::ACCEPTED_PREFIXES_MAX + 1];
    let id = net.hosts[1].interface;
    let shard = &mut net.hosts[1].shard;
    let refused = shard.set_accepted(id, &many);
    assert_eq!(refused, Err(BadArgument::TooManyPrefixes(many.len()).into()));
}

#[test]
fn accepted_is_not_ours() {
    let mut net = net(false);
    let forwarder = forwarder(&mut net, Cidr::ANY_IPV4, 8);
    let (now, id) = (net.now, net.hosts[1].interface);
    // What the host itself sends there leaves it.
    net.hosts[1].shard.add_route(now, Cidr::ANY_IPV4, None, id).expect("an interface");
    let own = net.hosts[1].shard.tcp_connect(now, None, at("8.8.8.8:80")).expect("a route");
    net.run(10 * MS);
    assert_eq!(state(&mut net, 1, own), State::SynSent);
    assert!(net.wire.iter().any(|(from, frame)| *from == 1 && frame[16..20] == [8, 8, 8, 8]));
    // Whoever has such an address may send from it.
    net.inject(1, [syn(1, 7, TcpFlags::SYN)]);
    next(&mut net, forwarder);
    // Nobody is said to be there.
    net.wire.clear();
    // An echo request, number 2 of 1, with its checksum.
    let echo = [8, 0, 0xf7, 0xfc, 0, 1, 0, 2];
    for (to, answered) in [([8, 8, 8, 8], 0), ([10, 0, 0, 2], 1)] {
        let addresses = (address(0, false), IpAddr::from(to));
        let frame = craft::packet_as_it_is(station(1), addresses, protocol::ICMP, 64, &echo);
        net.inject(1, [frame[14..].to_vec()]);
        net.run(10 * MS);
        let replies = net.wire.iter().filter(|(from, frame)| {
            *from == 1 && Ipv4View::parse(frame).is_ok_and(|view| view.protocol() == 1)
        });
        assert_eq!(replies.count(), answered, "{to:?}");
    }
    // Not for one host alone: as before.
    let broadcast = craft::packet(
        station(1),
        (address(0, false), IpAddr::from([10, 0, 0, 255])),
        protocol::TCP,
        64,
        (&syn(1, 7, TcpFlags::SYN)[20..], 16),
    );
    net.inject(1, [broadcast[14..].to_vec()]);
    assert_eq!(net.hosts[1].shard.tcp_next_pending(forwarder), Err(SocketError::WouldBlock));
}

#[test]
fn a_connection_can_be_opened_from_an_accepted_address() {
    let mut net = net(false);
    let from = at("203.0.113.9:4000");
    let to = SocketAddr::new(address(0, false), 80);
    let listener = net.hosts[0].shard.tcp_listen(to, 8).expect("a free port");
    let (now, shard) = (net.now, &mut net.hosts[1].shard);
    let client = shard.tcp_connect(now, Some(from), to).expect("an accepted address");
    net.run(10 * MS);
    let server = net.hosts[0].shard.tcp_accept(listener).expect("an open connection");
    let status = net.hosts[0].shard.tcp_status(server).expect("open");
    assert_eq!(status.remote, from);
    net.transfer((1, client), (0, server), &data(100_000), 5 * SECOND);
    accept(&mut net, &[]);
    let (now, shard) = (net.now, &mut net.hosts[1].shard);
    let refused = shard.tcp_connect(now, Some(from), to);
    assert_eq!(refused, Err(SocketError::AddressNotAvailable));
}

fn chunk(bytes: &[u8]) -> Chunk {
    Chunk::whole(Block::from(Bytes::copy_from_slice(bytes)))
}

#[test]
fn an_abort_of_all_refuses_what_nobody_has_decided_on() {
    let mut net = net(false);
    forwarder(&mut net, Cidr::ANY_IPV4, 16);
    let client = connect(&mut net, at("93.184.215.14:443"));
    assert_eq!(state(&mut net, 0, client), State::SynSent);
    net.hosts[1].shard.tcp_abort_all(net.now);
    net.run(10 * MS);
    assert_eq!(state(&mut net, 0, client), State::Closed);
}
