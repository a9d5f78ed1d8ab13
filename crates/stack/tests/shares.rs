//! Several shards that are one host: what one of them makes and another gets back, and what they must not
//! both do.

mod harness;

use core::net::SocketAddr;
use device::{Capabilities, Medium, Room, TransmitMode, Transmitted};
use harness::{address, bytes_of, receive_batch, station};
use stack::{
    AddressingConfig, ClaimPolicy, Homes, InterfaceConfig, InterfaceId, ListenOptions, Shard,
    ShardConfig, Share, SocketError, SocketId, SynCookieMode, TcpOption,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use time::{Duration, Instant};
use wire::{Icmpv4Repr, Ipv4Repr, Ipv4View, protocol};

/// A device that decides where flows go, as one with a queue for each shard.
struct ByDevice;

impl Homes for ByDevice {
    fn of_flow(&self, _local: SocketAddr, _remote: SocketAddr) -> Option<usize> {
        None
    }

    fn of_port(&self, port: u16) -> usize {
        usize::from(port) % 2
    }
}

/// A shard of host `host`; the first, the second, or the only one.
fn shard(host: usize, share: Option<usize>, medium: Medium) -> (Shard, InterfaceId) {
    shard_of(host, share.map(|index| (index, 2)), medium)
}

/// A shard of host `host`: which one of how many, or the only one.
fn shard_of(host: usize, share: Option<(usize, usize)>, medium: Medium) -> (Shard, InterfaceId) {
    let pool = batch::BlockPool::new(batch::PoolConfig::default());
    let secret = [host as u8 + 7; 32];
    let tcp = tcp::Config::default();
    let mut shard = Shard::new(ShardConfig { tcp, pool, secret, sockets_max: 100 });
    if let Some((index, count)) = share {
        shard.set_share(Share { index, count, homes: Arc::new(ByDevice) });
    }
    let addresses = vec![ip::Cidr::new(address(host, false), 24).expect("a network")];
    let (capabilities, mode) = (Capabilities::plain(medium, 1_500), TransmitMode::Multidata);
    let config = InterfaceConfig { capabilities, mode, addresses, gateways: Vec::new() };
    let id = shard.add_interface(config).expect("a sound configuration");
    (shard, id)
}

/// All frames that a shard sends now.
fn sent(now: Instant, (shard, id): &mut (Shard, InterfaceId)) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    loop {
        let mut batch = batch::Multidata::default();
        let taken = shard.poll_transmit(now, *id, Room::UNBOUNDED, &mut batch);
        if taken == 0 {
            return frames;
        }
        frames.extend(batch.packets().map(|packet| bytes_of(&packet)));
        shard.on_transmitted(now, *id, &Transmitted { taken, stopped: None });
    }
}

fn give(now: Instant, (shard, id): &mut (Shard, InterfaceId), frames: Vec<Vec<u8>>) {
    shard.on_receive(now, *id, &mut receive_batch(frames));
}

/// Carries what a shard has for the other one.
fn carry(now: Instant, from: &mut Shard, to: &mut Shard) -> usize {
    core::iter::from_fn(|| from.poll_stray()).inspect(|stray| to.on_stray(now, stray)).count()
}

const NOW: Instant = Instant::from_millis(1_000);

/// The SYN comes to one shard, which remembers nothing, and the ACK with its cookie to another, because the
/// device has come to another mind. Cookies are believed where some were sent lately, so the other one has
/// sent one, too.
#[test]
fn a_cookie_of_one_shard_opens_a_connection_in_another() {
    let mut client = shard(0, None, Medium::Ip);
    let mut server = [0, 1].map(|index| shard(1, Some(index), Medium::Ip));
    let local = SocketAddr::new(address(1, false), 80);
    let options = ListenOptions { syn_cookies: SynCookieMode::Always, ..ListenOptions::default() };
    let listen = |it: &mut (Shard, InterfaceId)| it.0.tcp_listen_with(local, options.clone());
    let [_, listener] = server.each_mut().map(|it| listen(it).expect("a free port"));
    client.0.tcp_connect(NOW, None, local).expect("a route");
    give(NOW, &mut server[1], sent(NOW, &mut client));
    sent(NOW, &mut server[1]);
    let socket = client.0.tcp_connect(NOW, None, local).expect("a route");
    give(NOW, &mut server[0], sent(NOW, &mut client));
    assert_eq!(server[0].0.half_open_count(), 0, "the cookie is all");
    give(NOW, &mut client, sent(NOW, &mut server[0]));
    give(NOW, &mut server[1], sent(NOW, &mut client));
    let accepted = server[1].0.tcp_accept(listener).expect("by the cookie");
    let ends = server[1].0.tcp_status(accepted).expect("open");
    assert_eq!(ends.remote, client.0.local_address(socket).expect("open"));
}

/// A cookie for fast open that one shard gave is good in the other.
#[test]
fn a_fast_open_cookie_of_one_shard_is_good_in_another() {
    let mut client = shard(0, None, Medium::Ip);
    let mut server = [0, 1].map(|index| shard(1, Some(index), Medium::Ip));
    let local = SocketAddr::new(address(1, false), 80);
    let options = ListenOptions { fast_open_max: 8, ..ListenOptions::default() };
    let listen = |it: &mut (Shard, InterfaceId)| it.0.tcp_listen_with(local, options.clone());
    let [_, listener] = server.each_mut().map(|it| listen(it).expect("a free port"));
    let first = client.0.tcp_connect(NOW, None, local).expect("a route");
    assert_eq!(client.0.tcp_offer_fast_open(NOW, first), Ok(0), "there is no cookie yet");
    give(NOW, &mut server[0], sent(NOW, &mut client));
    give(NOW, &mut client, sent(NOW, &mut server[0]));
    let second = client.0.tcp_connect(NOW, None, local).expect("a route");
    assert_ne!(client.0.tcp_offer_fast_open(NOW, second), Ok(0), "it was given one");
    let word = batch::Chunk::whole(batch::Block::from(bytes::Bytes::from_static(b"early")));
    client.0.tcp_append(NOW, second, word).expect("there is room");
    give(NOW, &mut server[1], sent(NOW, &mut client));
    let accepted = server[1].0.tcp_accept(listener).expect("before the handshake is over");
    let mut text = [0; 8];
    assert_eq!(server[1].0.tcp_read(NOW, accepted, &mut text), Ok(5));
}

/// Where the device decides, any shard may connect; what no two may do is to open the same connection.
#[test]
fn no_two_shards_choose_the_same_port_to_the_same_peer() {
    let mut shards = [0, 1].map(|index| shard(1, Some(index), Medium::Ip).0);
    let peer = SocketAddr::new(address(0, false), 80);
    let mut ports = BTreeSet::new();
    for shard in &mut shards {
        for _ in 0..40 {
            let socket = shard.tcp_connect(NOW, None, peer).expect("a free port");
            ports.insert(shard.local_address(socket).expect("open").port());
        }
    }
    assert_eq!(ports.len(), 80);
}

/// RFC 5227, 2.1.1: nobody uses an address before it was asked about, whichever shard asks; and when it is
/// known to be free all may.
#[test]
fn an_address_is_used_in_no_shard_before_the_first_has_asked_about_it() {
    let ethernet = Medium::Ethernet(station(1));
    let mut shards = [0, 1].map(|index| shard(1, Some(index), ethernet));
    let config = || AddressingConfig {
        ipv4: ClaimPolicy::Probe,
        ipv6: ClaimPolicy::Probe,
        ..AddressingConfig::default()
    };
    for (shard, id) in &mut shards {
        shard.start_addressing(NOW, *id, config());
    }
    let peer = SocketAddr::new(address(0, false), 80);
    let mut now = NOW;
    let [first, second] = &mut shards;
    while first.0.addresses(first.1)[0].state == stack::AddressState::Tentative {
        let early = second.0.tcp_connect(now, None, peer);
        assert!(matches!(early, Err(SocketError::NoRoute)), "{early:?}");
        now = first.0.poll_timeout().expect("it probes");
        first.0.on_timeout(now);
        assert!(now < NOW + Duration::from_secs(20));
        sent(now, first);
        assert!(sent(now, second).is_empty(), "one asks for all");
    }
    assert_eq!(carry(now, &mut first.0, &mut second.0), 1);
    second.0.tcp_connect(now, None, peer).expect("it is had by all");

    // Both want to know who the peer is: the first asks, once.
    first.0.tcp_connect(now, None, peer).expect("a free port");
    let arp = |frames: Vec<Vec<u8>>| {
        frames.iter().filter(|it| it[12..14] == [8, 6] && it[28] != 0).count()
    };
    assert_eq!(arp(sent(now, second)), 0);
    assert_eq!(carry(now, &mut second.0, &mut first.0), 1);
    let asked = sent(now, first);
    let is_about_peer = |it: &&Vec<u8>| it[12..14] == [8, 6] && it[38..42] == [10, 0, 0, 1];
    assert_eq!(asked.iter().filter(is_about_peer).count(), 1);

    // When it is taken away it is gone in all.
    first.0.remove_address(now, first.1, address(1, false)).expect("it is there");
    carry(now, &mut first.0, &mut second.0);
    assert!(second.0.addresses(second.1).is_empty());
}

/// An IPv4 packet with a segment in two fragments, of which the second has no ports; nothing where there is
/// no data behind the header, which has to be whole in the first (RFC 1858, 3).
fn in_fragments(packet: &[u8]) -> Vec<Vec<u8>> {
    let header_len = usize::from(packet[Ipv4Repr::LEN + 12] >> 4) * 4;
    cut_behind(packet, header_len.next_multiple_of(8))
}

/// An IPv4 packet in two fragments, where there is more in it than the first takes.
fn cut_behind(packet: &[u8], first_len: usize) -> Vec<Vec<u8>> {
    let view = Ipv4View::parse(packet).expect("sound");
    let (first, rest) = match view.payload().split_at_checked(first_len) {
        Some((first, rest)) if !rest.is_empty() => (first, rest),
        _ => return Vec::new(),
    };
    let fragment = |offset_bytes, piece: &[u8]| {
        let mut bytes = vec![0; Ipv4Repr::LEN];
        let repr = Ipv4Repr {
            identification: 7,
            dont_fragment: false,
            more_fragments: offset_bytes == 0,
            fragment_offset_bytes: offset_bytes,
            payload_len: piece.len(),
            ..Ipv4Repr::parse(&view)
        };
        repr.emit(&mut bytes);
        bytes.extend(piece);
        bytes
    };
    vec![fragment(0, first), fragment(first.len(), rest)]
}

/// The first shard puts segments together, and where the device decides nobody can compute who has their
/// connections: half open, open, and none at all, which one reset answers.
#[test]
fn a_segment_in_fragments_finds_the_shard_of_its_connection() {
    let mut client = shard(0, None, Medium::Ip);
    let host = || [0, 1].map(|index| shard(1, Some(index), Medium::Ip));
    let (mut server, mut stranger) = (host(), host());
    let local = SocketAddr::new(address(1, false), 80);
    let [_, listener] = server.each_mut().map(|it| it.0.tcp_listen(local, 8).expect("free"));
    let socket = client.0.tcp_connect(NOW, None, local).expect("a route");
    client.0.tcp_set_option(NOW, socket, TcpOption::NoDelay(true)).expect("open");
    give(NOW, &mut server[1], sent(NOW, &mut client));
    give(NOW, &mut client, sent(NOW, &mut server[1]));
    let word = |text| batch::Chunk::whole(batch::Block::from(bytes::Bytes::from_static(text)));
    let mut accepted = None;
    for text in [b"first", b"again"] {
        client.0.tcp_append(NOW, socket, word(text)).expect("there is room");
        let fragments: Vec<_> =
            sent(NOW, &mut client).iter().flat_map(|it| in_fragments(it)).collect();
        assert_eq!(fragments.len(), 2, "one segment has data");
        for [first, second] in [&mut server, &mut stranger] {
            give(NOW, first, fragments.clone());
            assert_eq!(carry(NOW, &mut first.0, &mut second.0), 1);
            assert_eq!(carry(NOW, &mut second.0, &mut first.0), 0, "all were asked");
            assert!(sent(NOW, first).is_empty(), "it does not speak for others");
        }
        let answers = sent(NOW, &mut stranger[1]);
        assert_eq!(answers.len(), 1);
        assert_eq!(answers[0][33] & 0x04, 0x04, "a reset");
        let accepted = *accepted.get_or_insert_with(|| server[1].0.tcp_accept(listener));
        let mut bytes = [0; 8];
        assert_eq!(server[1].0.tcp_read(NOW, accepted.expect("open"), &mut bytes), Ok(5));
        assert_eq!(&bytes[..5], text);
        give(NOW, &mut client, sent(NOW, &mut server[1]));
    }
}

/// The device has come to another mind while a handshake was under way, or after a connection was over: what is
/// left of it in the first shard takes nothing of the connection that the second one has.
#[test]
fn a_connection_wins_over_what_is_left_of_another_in_an_earlier_shard() {
    for is_over in [false, true] {
        let mut server = [0, 1].map(|index| shard(1, Some(index), Medium::Ip));
        let local = SocketAddr::new(address(1, false), 80);
        let listeners = server.each_mut().map(|it| it.0.tcp_listen(local, 8).expect("free"));
        let remote = SocketAddr::new(address(0, false), 5_000);
        if is_over {
            let mut before = shard(0, None, Medium::Ip);
            let socket = before.0.tcp_connect(NOW, Some(remote), local).expect("a route");
            leave_in_time_wait(&mut server[0], listeners[0], &mut before, socket);
        }
        let later = NOW + Duration::from_secs(1);
        let mut client = shard(0, None, Medium::Ip);
        let socket = client.0.tcp_connect(later, Some(remote), local).expect("a route");
        client.0.tcp_set_option(later, socket, TcpOption::NoDelay(true)).expect("open");
        let syn = sent(later, &mut client);
        if !is_over {
            give(later, &mut server[0], syn.clone());
            sent(later, &mut server[0]);
            assert_eq!(server[0].0.half_open_count(), 1, "its SYN-ACK is lost");
        }
        give(later, &mut server[1], syn);
        give(later, &mut client, sent(later, &mut server[1]));
        give(later, &mut server[1], sent(later, &mut client));
        let accepted = server[1].0.tcp_accept(listeners[1]).expect("the handshake is over");

        let word = batch::Chunk::whole(batch::Block::from(bytes::Bytes::from_static(b"first")));
        client.0.tcp_append(later, socket, word).expect("there is room");
        let fragments = sent(later, &mut client).iter().flat_map(|it| in_fragments(it)).collect();
        let [first, second] = &mut server;
        give(later, first, fragments);
        assert_eq!(carry(later, &mut first.0, &mut second.0), 1, "is over: {is_over}");
        assert_eq!(carry(later, &mut second.0, &mut first.0), 0, "the connection has it");
        assert!(sent(later, first).is_empty(), "it does not speak for others");
        assert_eq!(second.0.tcp_read(later, accepted, &mut [0; 8]), Ok(5), "is over: {is_over}");
    }
}

/// TIME-WAIT answers what comes again (RFC 9293, 3.10.7.4), also where it has to be looked for: in the second of
/// three shards, in a table of its own or in a socket that its application still has.
#[test]
fn what_no_connection_takes_comes_to_the_shard_with_time_wait() {
    for is_kept in [false, true] {
        let mut server = [0, 1, 2].map(|index| shard_of(1, Some((index, 3)), Medium::Ip));
        let local = SocketAddr::new(address(1, false), 80);
        let listeners = server.each_mut().map(|it| it.0.tcp_listen(local, 8).expect("free"));
        let mut client = shard(0, None, Medium::Ip);
        let socket = client.0.tcp_connect(NOW, None, local).expect("a route");
        give(NOW, &mut server[1], sent(NOW, &mut client));
        give(NOW, &mut client, sent(NOW, &mut server[1]));
        give(NOW, &mut server[1], sent(NOW, &mut client));
        let accepted = server[1].0.tcp_accept(listeners[1]).expect("the handshake is over");
        let word = batch::Chunk::whole(batch::Block::from(bytes::Bytes::from_static(b"a word")));
        client.0.tcp_append(NOW, socket, word).expect("there is room");
        let segment = sent(NOW, &mut client);
        give(NOW, &mut server[1], segment.clone());
        assert_eq!(server[1].0.tcp_read(NOW, accepted, &mut [0; 8]), Ok(6));
        server[1].0.tcp_shutdown_write(NOW, accepted).expect("open");
        if !is_kept {
            server[1].0.close(NOW, accepted);
        }
        give(NOW, &mut client, sent(NOW, &mut server[1]));
        client.0.tcp_shutdown_write(NOW, socket).expect("open");
        give(NOW, &mut server[1], sent(NOW, &mut client));
        sent(NOW, &mut server[1]);
        assert_eq!(server[1].0.time_wait_count(), usize::from(!is_kept));

        let [first, second, third] = &mut server;
        give(NOW, first, segment.iter().flat_map(|it| in_fragments(it)).collect());
        assert_eq!(carry(NOW, &mut first.0, &mut second.0), 1);
        assert_eq!(carry(NOW, &mut second.0, &mut third.0), 1, "it may be of a connection there");
        let stray = third.0.poll_stray().expect("nobody has more of it");
        assert_eq!(stray.home, 1);
        second.0.on_stray(NOW, &stray);
        assert!(second.0.poll_stray().is_none(), "all were asked");
        assert!(sent(NOW, first).is_empty() && sent(NOW, third).is_empty());
        let answers = sent(NOW, second);
        assert_eq!(answers.len(), 1, "kept: {is_kept}");
        assert_eq!(answers[0][33], 0x10, "an ACK");
    }
}

/// Opens the connection that a client asks for, and closes it from the server's side.
fn leave_in_time_wait(
    server: &mut (Shard, InterfaceId),
    listener: SocketId,
    client: &mut (Shard, InterfaceId),
    socket: SocketId,
) {
    for _ in 0..2 {
        give(NOW, server, sent(NOW, client));
        give(NOW, client, sent(NOW, server));
    }
    let accepted = server.0.tcp_accept(listener).expect("the handshake is over");
    server.0.close(NOW, accepted);
    give(NOW, client, sent(NOW, server));
    client.0.close(NOW, socket);
    give(NOW, server, sent(NOW, client));
    sent(NOW, server);
    assert_eq!(server.0.time_wait_count(), 1);
}

/// A SYN that is long, because it brings data. Whichever shard opened a connection for it, the device
/// would bring the rest to another: it comes again without its data, and not in fragments.
#[test]
fn a_syn_in_fragments_waits_for_the_one_that_comes_by_itself() {
    let mut client = shard(0, None, Medium::Ip);
    let mut server = [0, 1, 2].map(|index| shard_of(1, Some((index, 3)), Medium::Ip));
    let local = SocketAddr::new(address(1, false), 80);
    let options = ListenOptions { fast_open_max: 8, ..ListenOptions::default() };
    let listen = |it: &mut (Shard, InterfaceId)| it.0.tcp_listen_with(local, options.clone());
    let listeners = server.each_mut().map(|it| listen(it).expect("a free port"));
    let first = client.0.tcp_connect(NOW, None, local).expect("a route");
    assert_eq!(client.0.tcp_offer_fast_open(NOW, first), Ok(0), "there is no cookie yet");
    give(NOW, &mut server[0], sent(NOW, &mut client));
    give(NOW, &mut client, sent(NOW, &mut server[0]));
    sent(NOW, &mut client);
    let second = client.0.tcp_connect(NOW, None, local).expect("a route");
    assert_ne!(client.0.tcp_offer_fast_open(NOW, second), Ok(0), "it was given one");
    let word = batch::Chunk::whole(batch::Block::from(bytes::Bytes::from_static(b"early")));
    client.0.tcp_append(NOW, second, word).expect("there is room");
    let fragments = sent(NOW, &mut client).iter().flat_map(|it| in_fragments(it)).collect();
    give(NOW, &mut server[0], fragments);
    let [one, other, last] = &mut server;
    assert_eq!(carry(NOW, &mut one.0, &mut other.0), 1);
    assert_eq!(carry(NOW, &mut other.0, &mut last.0), 1);
    assert_eq!(last.0.counters().drops.count(counters::DropReason::HomeUnknown), 1);
    for (it, listener) in server.iter_mut().zip(listeners) {
        assert!(it.0.tcp_accept(listener).is_err());
        assert!(sent(NOW, it).is_empty(), "neither a SYN-ACK nor a reset");
    }

    let later = NOW + Duration::from_secs(1);
    client.0.on_timeout(later);
    // The device brings all of this flow to the second shard.
    give(later, &mut server[1], sent(later, &mut client));
    give(later, &mut client, sent(later, &mut server[1]));
    give(later, &mut server[1], sent(later, &mut client));
    let accepted = server[1].0.tcp_accept(listeners[1]).expect("the handshake is over");
    assert_eq!(server[1].0.tcp_read(later, accepted, &mut [0; 8]), Ok(5));
}

/// A datagram of 60,000 bytes for a socket of the second shard, in fragments.
fn long_datagram(identification: u16) -> Vec<Vec<u8>> {
    let mut datagram = vec![0; 60_000];
    wire::UdpRepr { source_port: 9, destination_port: 7, payload_len: datagram.len() - 8 }
        .emit(&mut datagram);
    let pieces = datagram.chunks(1_480).enumerate();
    let fragments = pieces.map(|(index, piece)| {
        let repr = Ipv4Repr {
            dscp_ecn: 0,
            identification,
            dont_fragment: false,
            more_fragments: (index + 1) * 1_480 < datagram.len(),
            fragment_offset_bytes: index * 1_480,
            hop_limit: 64,
            protocol: protocol::UDP,
            source: [10, 0, 0, 1].into(),
            destination: [10, 0, 0, 2].into(),
            payload_len: piece.len(),
        };
        let mut bytes = vec![0; Ipv4Repr::LEN];
        repr.emit(&mut bytes);
        bytes.extend(piece);
        bytes
    });
    fragments.collect()
}

/// Who sends what is long, and is put together here for a shard that stands still, fills some megabytes.
#[test]
fn what_waits_for_another_shard_is_bounded_by_what_it_holds() {
    let [mut first, _] = [0, 1].map(|index| shard(1, Some(index), Medium::Ip));
    let full = |it: &Shard| it.counters().drops.count(counters::DropReason::StrayQueueShare);
    (0..200).for_each(|number| give(NOW, &mut first, long_datagram(number)));
    let strays: Vec<_> = core::iter::from_fn(|| first.0.poll_stray()).collect();
    let held: usize = strays.iter().map(stack::Stray::held_bytes).sum();
    // They are all of one flow, which gets half.
    assert!((60_000 * strays.len()..=(4 << 20) + 65_536).contains(&held), "{held}");
    assert!(strays.len() > 50, "{}", strays.len());
    assert_eq!(full(&first.0), 200 - strays.len() as u64);
    give(NOW, &mut first, long_datagram(200));
    assert!(first.0.poll_stray().is_some(), "they are fetched, so there is room");
}

/// What a router says of a packet of more than 700 bytes.
fn report_about(long: &[u8]) -> Vec<u8> {
    let mut message = [&[0; Icmpv4Repr::LEN], &long[..500]].concat();
    let code = Icmpv4Repr::CODE_FRAGMENTATION_NEEDED;
    Icmpv4Repr::DestinationUnreachable { code, next_hop_mtu: 700 }.emit(&mut message);
    let sum = !checksum::sum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let of_segment = Ipv4Repr::parse(&Ipv4View::parse(long).expect("sound"));
    let mut report = vec![0; Ipv4Repr::LEN];
    let (source, destination) = ([10, 0, 0, 99].into(), of_segment.source);
    let (protocol, payload_len) = (protocol::ICMP, message.len());
    Ipv4Repr { source, destination, protocol, payload_len, ..of_segment }.emit(&mut report);
    report.extend(message);
    report
}

/// A connection of the second shard with a peer, and a long segment that it has just sent.
fn long_segment(second: &mut (Shard, InterfaceId)) -> (SocketId, Vec<u8>) {
    let mut client = shard(0, None, Medium::Ip);
    let remote = SocketAddr::new(address(0, false), 80);
    client.0.tcp_listen(remote, 8).expect("a free port");
    let socket = second.0.tcp_connect(NOW, None, remote).expect("a route");
    give(NOW, &mut client, sent(NOW, second));
    give(NOW, second, sent(NOW, &mut client));
    let text = batch::Chunk::whole(batch::Block::from(bytes::Bytes::from_static(&[7; 1_400])));
    second.0.tcp_append(NOW, socket, text).expect("there is room");
    (socket, sent(NOW, second).pop().expect("a segment"))
}

/// Errors come by any ring. Which of them are nobody's is known when the last shard was asked, and counted
/// once.
#[test]
fn an_error_about_a_segment_is_unrelated_only_where_no_shard_knows_the_connection() {
    let [mut first, mut second, mut last] =
        [0, 1, 2].map(|index| shard_of(1, Some((index, 3)), Medium::Ip));
    let (socket, long) = long_segment(&mut second);
    let unrelated = |shards: [&(Shard, InterfaceId); 3]| {
        let count = |it: &Shard| it.counters().drops.count(counters::DropReason::UnrelatedIcmp);
        shards.map(|(shard, _)| count(shard))
    };
    for (ring, expected) in [(1, 0), (2, 1)] {
        // By the ring of its own shard, and by another one.
        let at = if ring == 1 { &mut second } else { &mut last };
        give(NOW, at, vec![report_about(&long)]);
        assert_eq!(carry(NOW, &mut last.0, &mut first.0), expected);
        assert_eq!(carry(NOW, &mut first.0, &mut second.0), expected);
        assert_eq!(carry(NOW, &mut second.0, &mut last.0), 0, "it has the connection");
        // The second time the path is known to be that narrow.
        assert_eq!(second.0.counters().shard.path_mtus_lowered, 1);
        assert_eq!(unrelated([&first, &second, &last]), [0; 3]);
    }
    second.0.tcp_abort(NOW, socket);
    sent(NOW, &mut second);
    give(NOW, &mut second, vec![report_about(&long)]);
    assert_eq!(carry(NOW, &mut second.0, &mut last.0), 1);
    assert_eq!(carry(NOW, &mut last.0, &mut first.0), 1);
    assert_eq!(carry(NOW, &mut first.0, &mut second.0), 0, "all were asked");
    assert_eq!(unrelated([&first, &second, &last]), [1, 0, 0]);
    // Nobody is asked about a connection of an address that nobody has here.
    let mut foreign = report_about(&long);
    let message = &mut foreign[Ipv4Repr::LEN..];
    message[Icmpv4Repr::LEN + 15] ^= 0x40;
    message[2..4].fill(0);
    let sum = !checksum::sum(message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    give(NOW, &mut second, vec![foreign]);
    assert_eq!(carry(NOW, &mut second.0, &mut last.0), 0);
    assert_eq!(unrelated([&first, &second, &last]), [1, 1, 0]);
}

/// A peer that missed the reset goes on with full segments, which come in fragments: it is told again,
/// though somebody listens, as it would be of whole ones.
#[test]
fn a_segment_in_fragments_of_a_connection_that_is_gone_is_answered_where_somebody_listens() {
    let mut client = shard(0, None, Medium::Ip);
    let [mut first, mut second] = [0, 1].map(|index| shard(1, Some(index), Medium::Ip));
    let local = SocketAddr::new(address(1, false), 80);
    let options = ListenOptions { syn_cookies: SynCookieMode::Always, ..ListenOptions::default() };
    let listen = |it: &mut (Shard, InterfaceId)| it.0.tcp_listen_with(local, options.clone());
    let [_, listener] = [&mut first, &mut second].map(|it| listen(it).expect("free"));
    let socket = client.0.tcp_connect(NOW, None, local).expect("a route");
    give(NOW, &mut second, sent(NOW, &mut client));
    give(NOW, &mut client, sent(NOW, &mut second));
    give(NOW, &mut second, sent(NOW, &mut client));
    let accepted = second.0.tcp_accept(listener).expect("by its cookie");
    second.0.tcp_abort(NOW, accepted);
    sent(NOW, &mut second);
    let unknown = |shard: &Shard| shard.counters().drops.count(counters::DropReason::HomeUnknown);
    let mut now = NOW;
    let word = batch::Chunk::whole(batch::Block::from(bytes::Bytes::from_static(b"still there?")));
    client.0.tcp_append(now, socket, word).expect("there is room");
    // It might be the rest of a handshake as long as cookies are believed.
    for (later, dropped, answers) in [(0, 1, 0), (600, 1, 1)] {
        now += Duration::from_secs(later);
        client.0.on_timeout(now);
        let frames = sent(now, &mut client);
        let fragments: Vec<_> = frames.iter().flat_map(|it| in_fragments(it)).collect();
        assert!(!fragments.is_empty(), "{frames:?}");
        give(now, &mut first, fragments);
        carry(now, &mut first.0, &mut second.0);
        assert_eq!(unknown(&second.0), dropped);
        let answered = sent(now, &mut second);
        assert_eq!(answered.len(), answers);
        assert!(answered.iter().all(|it| it[33] & 0x04 == 0x04), "a reset");
    }
}

/// A router's report may come in fragments as well: what counts is the segment that it quotes.
#[test]
fn a_report_in_fragments_finds_the_connection_that_it_is_about() {
    let [mut first, mut second] = [0, 1].map(|index| shard(1, Some(index), Medium::Ip));
    let (_, long) = long_segment(&mut second);
    give(NOW, &mut first, cut_behind(&report_about(&long), 80));
    assert_eq!(carry(NOW, &mut first.0, &mut second.0), 1);
    assert_eq!(second.0.counters().shard.path_mtus_lowered, 1);
    let lens = sent(NOW, &mut second).iter().map(Vec::len).max();
    assert!(lens.is_some_and(|len| len <= 700), "sent again, and shorter: {lens:?}");
}
