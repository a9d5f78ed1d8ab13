//! Raw IP and echo sockets: what they send and receive, and what they refuse.

use crate::harness::{Net, address, bytes_of, craft, data, receive_batch, station};
use batch::{Block, Chunk, Multidata};
use bytes::Bytes;
use core::net::{IpAddr, SocketAddr};
use counters::{DropReason, MultidataRefusal};
use device::{Capabilities, Medium, Room, TransmitMode, Transmitted};
use proptest::prelude::*;
use stack::{
    BadArgument, Homes, InterfaceConfig, InterfaceId, MtuDiscovery, MultidataProtocols, RawPacket,
    Readiness, Shard, ShardConfig, Share, SocketError, SocketId,
};
use std::sync::Arc;
use time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);

/// For experiments (RFC 3692).
const PROTOCOL: u8 = 253;

fn anywhere() -> IpAddr {
    IpAddr::from([0, 0, 0, 0])
}

fn chunk(bytes: &[u8]) -> Chunk {
    Chunk::whole(Block::from(Bytes::copy_from_slice(bytes)))
}

fn net() -> Net {
    Net::new(TransmitMode::Multidata, true)
}

/// All that a socket of a host has.
fn received(net: &mut Net, host: usize, socket: SocketId) -> Vec<RawPacket> {
    core::iter::from_fn(|| net.hosts[host].shard.raw_receive(socket).ok()).collect()
}

fn drops(net: &Net, host: usize, reason: DropReason) -> u64 {
    net.hosts[host].shard.counters().drops.count(reason)
}

/// An echo request without its checksum and with an identifier of nobody's.
fn echo_request(ipv6: bool, sequence: u8, data: &[u8]) -> Vec<u8> {
    let kind = if ipv6 { 128 } else { 8 };
    [&[kind, 0, 0xbb, 0xbb, 0xaa, 0xaa, 0, sequence], data].concat()
}

#[test]
fn packets_of_a_protocol_arrive_byte_for_byte_with_their_addresses() {
    for ipv6 in [false, true] {
        let mut net = net();
        let (ours, theirs) = (address(0, ipv6), address(1, ipv6));
        let sender = net.hosts[0].shard.raw_bind(PROTOCOL, anywhere()).expect("free");
        let bound = net.hosts[1].shard.raw_bind(PROTOCOL, theirs).expect("our address");
        let other = net.hosts[1].shard.raw_bind(PROTOCOL, address(1, !ipv6)).expect("ours");
        let every = net.hosts[1].shard.raw_bind(PROTOCOL, anywhere()).expect("our address");
        let of_another =
            net.hosts[1].shard.raw_bind(PROTOCOL + 1, anywhere()).expect("our address");
        // Those beyond the MTU go in fragments; the last is the longest that IP can say.
        let longest = if ipv6 { 65_535 } else { 65_515 };
        let lens = [0, 1, 7, 8, 9, 1_460, 1_480, 1_481, 20_000, longest];
        for len in lens {
            net.hosts[0].shard.raw_send(sender, theirs, chunk(&data(len))).expect("room");
        }
        net.hosts[0].shard.raw_set_hop_limit(sender, Some(9)).expect("open");
        net.hosts[0].shard.raw_send(sender, theirs, chunk(b"near")).expect("room");
        net.run(SECOND);
        for socket in [bound, every] {
            let packets = received(&mut net, 1, socket);
            assert_eq!(packets.len(), lens.len() + 1);
            for (packet, len) in packets.iter().zip(lens) {
                assert_eq!(packet.payload.bytes(), data(len), "{len} bytes");
                assert_eq!((packet.source, packet.destination), (ours, theirs));
                assert_eq!(packet.hop_limit, 64);
            }
            assert_eq!(packets[lens.len()].hop_limit, 9);
        }
        assert!(received(&mut net, 1, other).is_empty());
        assert!(received(&mut net, 1, of_another).is_empty());
        assert!(received(&mut net, 0, sender).is_empty(), "nothing comes back");
    }
}

#[test]
fn packets_to_several_peers_leave_in_one_batch_with_datagrams_and_echo_requests() {
    for ipv6 in [false, true] {
        let mut net = net();
        let theirs = address(1, ipv6);
        // A second peer on the same link.
        let second: IpAddr = if ipv6 { "fd00::3" } else { "10.0.0.3" }.parse().expect("an address");
        let (id, now) = (net.hosts[1].interface, net.now);
        let cidr = ip::Cidr::new(second, if ipv6 { 64 } else { 24 }).expect("a network");
        net.hosts[1].shard.add_address(now, id, cidr).expect("another address");
        let shard = &mut net.hosts[0].shard;
        let raw = shard.raw_bind(PROTOCOL, anywhere()).expect("free");
        let echo = shard.raw_bind_echo(anywhere(), 7).expect("free");
        let udp = shard.udp_bind(SocketAddr::new(address(0, ipv6), 0)).expect("free");
        let receiver = net.hosts[1].shard.raw_bind(PROTOCOL, anywhere()).expect("free");
        // The neighbours are found first.
        for to in [theirs, second] {
            net.hosts[0].shard.raw_send(raw, to, chunk(b"hello")).expect("room");
        }
        net.run(SECOND);
        received(&mut net, 1, receiver);
        net.batches.clear();

        let shard = &mut net.hosts[0].shard;
        let packets: Vec<_> = (0..20_u8)
            .map(|i| (if i % 2 == 0 { theirs } else { second }, chunk(&[i; 30])))
            .collect();
        assert_eq!(shard.raw_send_many(raw, &packets), Ok(20));
        let asked: Vec<_> =
            (0..5).map(|i| (theirs, chunk(&echo_request(ipv6, i, b"data")))).collect();
        assert_eq!(shard.raw_send_many(echo, &asked), Ok(5));
        shard.udp_send(udp, Some(SocketAddr::new(theirs, 9)), chunk(b"datagram")).expect("room");
        net.run(SECOND);
        assert_eq!(net.batches[0], (0, net.hosts[0].interface, 26), "one batch has all of it");
        let packets = received(&mut net, 1, receiver);
        let to: Vec<IpAddr> = packets.iter().map(|packet| packet.destination).collect();
        assert_eq!(to, [theirs, second].repeat(10));
        assert!(packets.iter().zip(0..).all(|(it, i)| it.payload.bytes() == [i; 30]));
        assert_eq!(received(&mut net, 0, echo).len(), 5);
    }
}

#[test]
fn an_echo_socket_has_its_answers_and_nobody_elses() {
    for ipv6 in [false, true] {
        let mut net = net();
        let theirs = address(1, ipv6);
        let shard = &mut net.hosts[0].shard;
        let ours = shard.raw_bind_echo(address(0, ipv6), 0x1234).expect("free");
        let other = shard.raw_bind_echo(anywhere(), 0).expect("free");
        assert_ne!(shard.local_address(other).expect("open").port(), 0, "one was picked");
        assert_eq!(shard.raw_bind_echo(anywhere(), 0x1234), Err(SocketError::AddressInUse));
        for len in [0, 1, 100, 5_000] {
            let request = echo_request(ipv6, len as u8, &data(len));
            net.hosts[0].shard.raw_send(ours, theirs, chunk(&request)).expect("room");
        }
        net.run(SECOND);
        let replies = received(&mut net, 0, ours);
        assert_eq!(replies.len(), 4);
        for (reply, len) in replies.iter().zip([0, 1, 100, 5_000]) {
            let bytes = reply.payload.bytes();
            assert_eq!(bytes[0], if ipv6 { 129 } else { 0 });
            assert_eq!(bytes[4..8], [0x12, 0x34, 0, len as u8], "the socket's identifier");
            assert_eq!((&bytes[8..], reply.source), (&*data(len), theirs));
        }
        assert!(received(&mut net, 0, other).is_empty());
        let count = net.hosts[1].shard.counters().shard.echo_replies;
        assert_eq!(count, 4, "each checksum was right");

        // What is no request to an echo, or none of this family, does not leave.
        let shard = &mut net.hosts[0].shard;
        let (mut reply, short) = (echo_request(ipv6, 0, b""), [if ipv6 { 128 } else { 8 }; 7]);
        reply[0] = if ipv6 { 129 } else { 0 };
        for wrong in [&reply[..], &short, &echo_request(!ipv6, 0, b""), &[]] {
            let sent = shard.raw_send(ours, theirs, chunk(wrong));
            assert_eq!(sent, Err(BadArgument::NoEcho.into()));
        }
        let to_other_family = chunk(&echo_request(!ipv6, 0, b""));
        let sent = shard.raw_send(ours, address(1, !ipv6), to_other_family);
        let families =
            BadArgument::FamiliesDiffer { local: address(0, ipv6), remote: address(1, !ipv6) };
        assert_eq!(sent, Err(families.into()), "it is bound to one address");
    }
}

/// The answer to a request that did not arrive is an error, which quotes it.
#[test]
fn an_echo_socket_hears_of_errors_about_its_requests_only() {
    for ipv6 in [false, true] {
        let mut net = net();
        let (ours, theirs) = (address(0, ipv6), address(1, ipv6));
        let shard = &mut net.hosts[0].shard;
        let asker = shard.raw_bind_echo(anywhere(), 77).expect("free");
        let other = shard.raw_bind_echo(anywhere(), 78).expect("free");
        shard.raw_send(asker, theirs, chunk(&echo_request(ipv6, 1, b""))).expect("room");
        net.run(SECOND);
        received(&mut net, 0, asker);
        let is_request = |(from, frame): &&(usize, Vec<u8>)| {
            *from == 0 && frame.len() > 40 && frame.ends_with(&[0, 77, 0, 1])
        };
        let request = net.wire.iter().find(is_request).expect("it left").1[14..].to_vec();
        let (kind, protocol) =
            if ipv6 { (1, wire::protocol::ICMPV6) } else { (3, wire::protocol::ICMP) };
        let mut error = [&[kind, 1, 0, 0, 0, 0, 0, 0], &*request].concat();
        let frame = match ipv6 {
            true => craft::packet(station(0), (theirs, ours), protocol, 64, (&error, 2)),
            false => {
                let checksum = !checksum::sum(&error);
                error[2..4].copy_from_slice(&checksum.to_be_bytes());
                craft::packet_as_it_is(station(0), (theirs, ours), protocol, 64, &error)
            }
        };
        let before = drops(&net, 0, DropReason::UnrelatedIcmp);
        net.inject(0, [frame.clone()]);
        let heard = received(&mut net, 0, asker);
        assert_eq!(heard.len(), 1);
        assert_eq!(heard[0].payload.bytes()[..2], [kind, 1]);
        assert!(received(&mut net, 0, other).is_empty());
        assert_eq!(drops(&net, 0, DropReason::UnrelatedIcmp), before);
        let now = net.now;
        net.hosts[0].shard.close(now, asker);
        net.inject(0, [frame]);
        assert_eq!(drops(&net, 0, DropReason::UnrelatedIcmp), before + 1, "nobody's");
        assert_eq!(net.hosts[0].shard.holdings().ports, 1);
    }
}

/// RFC 1122, 3.2.2.1; RFC 4443, 3.4.
#[test]
fn protocol_unreachable_is_said_where_no_socket_takes_the_packet() {
    for ipv6 in [false, true] {
        let mut net = net();
        let theirs = address(1, ipv6);
        let sender = net.hosts[0].shard.raw_bind(PROTOCOL, anywhere()).expect("free");
        let icmp = if ipv6 { wire::protocol::ICMPV6 } else { wire::protocol::ICMP };
        let listener = net.hosts[0].shard.raw_bind(icmp, anywhere()).expect("free");
        let unreachable = if ipv6 { [4, 1] } else { [3, 2] };
        let asked = |net: &mut Net| {
            net.hosts[0].shard.raw_send(sender, theirs, chunk(b"anybody?")).expect("room");
            net.run(SECOND);
            let messages = received(net, 0, listener);
            messages.iter().filter(|it| it.payload.bytes()[..2] == unreachable).count()
        };
        assert_eq!(asked(&mut net), 1, "nobody has it");
        let elsewhere = net.hosts[1].shard.raw_bind(PROTOCOL, address(1, !ipv6)).expect("ours");
        assert_eq!(asked(&mut net), 1, "not this address");
        assert_eq!(drops(&net, 1, DropReason::UnknownProtocol), 2);
        let taker = net.hosts[1].shard.raw_bind(PROTOCOL, theirs).expect("ours");
        assert_eq!(asked(&mut net), 0);
        assert_eq!(received(&mut net, 1, taker).len(), 1);
        let now = net.now;
        net.hosts[1].shard.close(now, taker);
        net.hosts[1].shard.close(now, elsewhere);
        assert_eq!(asked(&mut net), 1, "nobody has it any more");
        assert_eq!(net.hosts[1].shard.socket_count(), 0);
    }
}

/// What a socket hears the stack does for its own ends all the same.
#[test]
fn a_socket_for_icmp_hears_requests_that_the_stack_answers() {
    let mut net = net();
    let listener = net.hosts[1].shard.raw_bind(wire::protocol::ICMP, anywhere()).expect("free");
    let asker = net.hosts[0].shard.raw_bind_echo(anywhere(), 5).expect("free");
    let theirs = address(1, false);
    net.hosts[0].shard.raw_send(asker, theirs, chunk(&echo_request(false, 1, b"x"))).expect("room");
    net.run(SECOND);
    assert_eq!(received(&mut net, 0, asker).len(), 1);
    assert_eq!(received(&mut net, 1, listener).len(), 1);
}

#[test]
fn who_asks_itself_for_echoes_has_them_by_whichever_of_its_addresses() {
    let mut net = net();
    let asker = net.hosts[0].shard.raw_bind_echo(anywhere(), 5).expect("free");
    for own in ["10.0.0.1", "fd00::1", "127.0.0.1", "127.1.2.3", "::1"] {
        let own: IpAddr = own.parse().expect("an address");
        let request = chunk(&echo_request(own.is_ipv6(), 2, b"x"));
        net.hosts[0].shard.raw_send(asker, own, request).expect("room");
        net.run(SECOND);
        let replies = received(&mut net, 0, asker);
        assert_eq!(replies.iter().map(|it| it.source).collect::<Vec<_>>(), [own]);
    }
}

#[test]
fn what_the_stack_keeps_to_itself_is_refused_and_so_is_one_socket_too_many() {
    let mut net = net();
    let shard = &mut net.hosts[0].shard;
    for protocol in [0, 6, 17, 43, 44, 60, 255] {
        assert_eq!(shard.raw_bind(protocol, anywhere()), Err(SocketError::ProtocolNotRaw));
    }
    let foreign = address(1, false);
    assert_eq!(shard.raw_bind(PROTOCOL, foreign), Err(SocketError::AddressNotAvailable));
    assert_eq!(shard.raw_bind_echo(foreign, 1), Err(SocketError::AddressNotAvailable));
    let sockets: Vec<_> =
        core::iter::from_fn(|| shard.raw_bind(PROTOCOL, anywhere()).ok()).collect();
    assert_eq!(sockets.len(), 64);
    assert_eq!(shard.raw_bind(PROTOCOL, anywhere()), Err(SocketError::TooManySockets));
    assert_eq!(shard.raw_set_hop_limit(sockets[0], Some(0)), Err(BadArgument::NoHops.into()));
    assert_eq!(shard.raw_receive(sockets[0]).err(), Some(SocketError::WouldBlock));
    let nowhere = "192.0.2.1".parse().expect("an address");
    let refused = shard.raw_send(sockets[0], nowhere, chunk(b"x"));
    assert_eq!(refused, Err(SocketError::NoRoute(nowhere)));
    let icmp = shard.raw_bind_echo(anywhere(), 0).expect("identifiers are another table");
    assert_eq!(shard.udp_receive(icmp).err(), Some(SocketError::InvalidSocket));
}

#[test]
fn what_is_too_long_is_refused_and_what_finds_no_room_may_come_again() {
    for ipv6 in [false, true] {
        let mut net = net();
        let (theirs, now) = (address(1, ipv6), net.now);
        let shard = &mut net.hosts[0].shard;
        let socket = shard.raw_bind(PROTOCOL, anywhere()).expect("free");
        let (header, longest) = if ipv6 { (40, 65_535) } else { (20, 65_515) };
        let mut send = |len| shard.raw_send(socket, theirs, chunk(&vec![1; len]));
        assert_eq!(send(longest + 1), Err(SocketError::MessageTooLong));
        shard.raw_set_mtu_discovery(socket, MtuDiscovery::Do).expect("open");
        let mut send = |len| shard.raw_send(socket, theirs, chunk(&vec![1; len]));
        assert_eq!(send(1_501 - header), Err(SocketError::MessageTooLong));
        assert_eq!(send(1_500 - header), Ok(()));

        let many: Vec<_> = (0..100_000).map(|_| (theirs, chunk(b"packet"))).collect();
        let queued = shard.raw_send_many(socket, &many).expect("some");
        assert!(queued > 0 && queued < many.len());
        let sent = shard.raw_send_many(socket, &many);
        assert_eq!(sent, Err(SocketError::WouldBlock));
        while shard.poll_event().is_some() {}
        net.run(SECOND);
        let event = net.hosts[0].shard.poll_event().expect("there is room again");
        assert_eq!(event.socket, socket);
        assert!(event.readiness.intersects(Readiness::WRITABLE));
        net.hosts[0].shard.close(now, socket);
        let sent = net.hosts[0].shard.raw_send(socket, theirs, chunk(b"late"));
        assert_eq!(sent, Err(SocketError::InvalidSocket));
    }
}

/// A report of a narrow path is believed where a socket may have sent what it is about.
#[test]
fn packets_follow_the_mtu_of_their_path() {
    let mut net = net();
    let (ours, theirs) = (address(0, false), address(1, false));
    let socket = net.hosts[0].shard.raw_bind(PROTOCOL, anywhere()).expect("free");
    net.hosts[0].shard.raw_send(socket, theirs, chunk(&data(1_400))).expect("room");
    net.run(SECOND);
    let is_ours =
        |(from, frame): &&(usize, Vec<u8>)| *from == 0 && frame.get(23) == Some(&PROTOCOL);
    let quoted = net.wire.iter().find(is_ours).expect("it left").1[14..62].to_vec();
    assert_eq!(quoted[6] & 0x40, 0x40, "don't fragment");
    let mut report = [&[3, 4, 0, 0, 0, 0, 0x02, 0xbc], &*quoted].concat();
    let checksum = !checksum::sum(&report);
    report[2..4].copy_from_slice(&checksum.to_be_bytes());
    let protocol = wire::protocol::ICMP;
    let frame = craft::packet_as_it_is(station(0), (theirs, ours), protocol, 64, &report);
    net.inject(0, [frame.clone()]);
    net.wire.clear();
    net.hosts[0].shard.raw_send(socket, theirs, chunk(&data(1_400))).expect("room");
    net.run(SECOND);
    let lens: Vec<usize> = net.wire.iter().filter(|it| it.0 == 0).map(|it| it.1.len()).collect();
    assert_eq!(lens.len(), 3, "{lens:?}");
    assert!(lens.iter().all(|len| *len <= 14 + 700), "{lens:?}");
    // The same about a protocol that nobody here sends.
    let mut net = self::net();
    net.inject(0, [frame]);
    assert_eq!(drops(&net, 0, DropReason::UnrelatedIcmp), 1);
    assert_eq!(net.hosts[0].shard.counters().shard.path_mtus_lowered, 0);
}

#[test]
fn a_socket_that_nobody_reads_drops_what_is_too_much() {
    let mut net = net();
    let receiver = net.hosts[1].shard.raw_bind(PROTOCOL, anywhere()).expect("free");
    let addresses = (address(0, false), address(1, false));
    let frame = |len| craft::packet_as_it_is(station(1), addresses, PROTOCOL, 64, &data(len));
    for _ in 0..30 {
        net.inject(1, (0..100).map(|_| frame(1_000)));
    }
    let held = received(&mut net, 1, receiver).len();
    assert!((100..300).contains(&held), "{held}");
    assert_eq!(drops(&net, 1, DropReason::SocketQueueFull) as usize, 3_000 - held);
    assert_eq!(drops(&net, 1, DropReason::UnknownProtocol), 0, "a socket has it");
    let now = net.now;
    net.hosts[1].shard.close(now, receiver);
    assert_eq!(net.hosts[1].pool.counters().outstanding_bytes, 0);
}

#[test]
fn packets_of_a_protocol_that_is_not_chosen_go_alone() {
    let mut net = net();
    let id = net.hosts[0].interface;
    let protocols = MultidataProtocols { raw: false, ..MultidataProtocols::default() };
    net.hosts[0].shard.set_multidata_protocols(id, protocols);
    let socket = net.hosts[0].shard.raw_bind(PROTOCOL, anywhere()).expect("free");
    let receiver = net.hosts[1].shard.raw_bind(PROTOCOL, anywhere()).expect("free");
    let packets: Vec<_> = (0..9).map(|i| (address(1, false), chunk(&[i; 9]))).collect();
    assert_eq!(net.hosts[0].shard.raw_send_many(socket, &packets), Ok(9));
    net.run(SECOND);
    assert!(net.batches.iter().all(|(from, _, built)| *from == 1 || *built == 1));
    let refusals = net.hosts[0].shard.counters().refusals;
    assert_eq!(refusals.count(MultidataRefusal::Protocol), 9);
    assert_eq!(received(&mut net, 1, receiver).len(), 9);
}

proptest! {
    /// Whatever is sent by whatever protocol arrives, and nothing that arrives does harm.
    #[test]
    fn any_packets_of_any_protocol(
        protocol: u8,
        ipv6: bool,
        discovery in prop_oneof![Just(MtuDiscovery::Want), Just(MtuDiscovery::Dont)],
        payloads in proptest::collection::vec(
            prop_oneof![0_usize..20, 1_400_usize..1_600, 0_usize..6_000]
                .prop_flat_map(|len| proptest::collection::vec(any::<u8>(), len)),
            1..12,
        ),
    ) {
        let mut net = net();
        let theirs = address(1, ipv6);
        let sender = net.hosts[0].shard.raw_bind(protocol, anywhere());
        prop_assume!(sender.is_ok());
        let sender = sender.expect("asked");
        let receiver = net.hosts[1].shard.raw_bind(protocol, anywhere()).expect("as the other");
        net.hosts[0].shard.raw_set_mtu_discovery(sender, discovery).expect("open");
        let mut sent = Vec::new();
        for payload in &payloads {
            if net.hosts[0].shard.raw_send(sender, theirs, chunk(payload)).is_ok() {
                sent.push(payload.clone());
            }
        }
        net.run(SECOND);
        let got: Vec<Vec<u8>> = received(&mut net, 1, receiver)
            .iter()
            .map(|packet| packet.payload.bytes().to_vec())
            .collect();
        // The checksums of ICMP are the stack's, and what it cannot read it does not hand on; nothing
        // can stand behind "no next header".
        if !matches!(protocol, 1 | 58 | 59) {
            prop_assert_eq!(got, sent);
        }
    }
}

/// Errors about segments and datagrams, by the port.
struct ByPort;

impl Homes for ByPort {
    fn of_flow(&self, local: SocketAddr, _remote: SocketAddr) -> usize {
        usize::from(local.port()) % 2
    }

    fn of_port(&self, port: u16) -> usize {
        usize::from(port) % 2
    }
}

fn shard_of_two(index: usize) -> (Shard, InterfaceId) {
    let pool = batch::BlockPool::new(batch::PoolConfig::default());
    let (tcp, secret) = (tcp::Config::default(), [9; 32]);
    let mut shard = Shard::new(ShardConfig { tcp, pool, secret, sockets_max: 100 });
    shard.set_share(Share { index, count: 2, homes: Arc::new(ByPort) });
    let addresses = vec![ip::Cidr::new(address(1, false), 24).expect("a network")];
    let capabilities = Capabilities::plain(Medium::Ip, 1_500);
    let mode = Some(TransmitMode::Multidata);
    let config = InterfaceConfig { capabilities, mode, addresses, gateways: Vec::new() };
    let id = shard.add_interface(config).expect("a sound configuration");
    (shard, id)
}

/// A raw socket is in the first shard, and hears of errors that concern another one's sockets, once.
#[test]
fn the_first_of_several_shards_has_the_raw_sockets_and_hears_all() {
    let now = Instant::from_millis(1_000);
    let (mut first, first_id) = shard_of_two(0);
    let (mut second, second_id) = shard_of_two(1);
    let carry = |from: &mut Shard, to: &mut Shard| {
        core::iter::from_fn(|| from.poll_stray()).map(|it| to.on_stray(now, &it)).count()
    };
    assert_eq!(second.raw_bind(1, anywhere()), Err(BadArgument::NotFirstShard.into()));
    assert_eq!(second.raw_bind_echo(anywhere(), 1), Err(BadArgument::NotFirstShard.into()));
    let raw = first.raw_bind(wire::protocol::ICMP, anywhere()).expect("free");
    assert_eq!(carry(&mut first, &mut second), 1, "it is told");

    // A datagram of the second shard's and the error about it.
    let (ours, theirs) = (address(1, false), address(0, false));
    let udp = second.udp_bind(SocketAddr::new(ours, 5_001)).expect("its own");
    second.udp_connect(udp, SocketAddr::new(theirs, 9)).expect("a route");
    second.udp_send(udp, None, chunk(b"anybody?")).expect("room");
    let mut batch = Multidata::default();
    let taken = second.poll_transmit(now, second_id, Room::UNBOUNDED, &mut batch);
    assert_eq!(taken, 1);
    let datagram = bytes_of(&batch.packet(0).expect("one"));
    second.on_transmitted(now, second_id, &Transmitted { taken, stopped: None });
    let mut error = [&[3, 3, 0, 0, 0, 0, 0, 0], &*datagram].concat();
    let checksum = !checksum::sum(&error);
    error[2..4].copy_from_slice(&checksum.to_be_bytes());
    let icmp = wire::protocol::ICMP;
    let frame = craft::packet_as_it_is(station(1), (theirs, ours), icmp, 64, &error)[14..].to_vec();
    second.on_receive(now, second_id, &mut receive_batch([frame.clone()]));
    assert_eq!(second.udp_receive(udp).err(), Some(SocketError::ConnectionRefused));
    assert_eq!(carry(&mut second, &mut first), 1, "the copy");
    let heard = first.raw_receive(raw).expect("a copy");
    assert_eq!((heard.payload.bytes(), heard.source), (&*error, theirs));
    assert!(first.raw_receive(raw).is_err(), "one copy");
    assert!(first.counters().drops.total() == 0 && second.counters().drops.total() == 0);

    // What comes to the first itself stays there, and when the socket is gone nobody is told any more.
    let ping = [8, 0, 0xf7, 0xfb, 0, 1, 0, 3];
    let ping = craft::packet_as_it_is(station(1), (theirs, ours), icmp, 64, &ping)[14..].to_vec();
    first.on_receive(now, first_id, &mut receive_batch([ping]));
    assert_eq!(first.raw_receive(raw).expect("its own").payload.bytes()[0], 8);
    first.close(now, raw);
    assert_eq!(carry(&mut first, &mut second), 1, "it is told");
    second.on_receive(now, second_id, &mut receive_batch([frame]));
    assert_eq!(carry(&mut second, &mut first), 0);
}

/// RFC 4443, 4.2: "An Echo Reply SHOULD be sent in response to an Echo Request message sent to an IPv6 multicast [...]
/// address", from a unicast one.
#[test]
fn hosts_of_a_link_are_found_by_an_echo_request_to_all_of_them() {
    let mut net = net();
    let (ours, theirs) = (address(0, true), address(1, true));
    let socket = net.hosts[0].shard.raw_bind_echo(ours, 0).expect("free");
    let message = [128, 0, 0, 0, 0, 0, 0, 5, 1, 2, 3];
    let all = "ff02::1".parse().expect("a group");
    net.hosts[0].shard.raw_send(socket, all, chunk(&message)).expect("room");
    net.run(SECOND);
    let reply = net.hosts[0].shard.raw_receive(socket).expect("answered");
    assert_eq!((reply.source, &reply.payload.bytes()[8..]), (theirs, &message[8..]));
    let nothing = net.hosts[0].shard.raw_receive(socket).map(drop);
    assert_eq!(nothing, Err(SocketError::WouldBlock));
}
