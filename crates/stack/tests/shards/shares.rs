//! Several shards that are one host: what one of them makes and another gets back, and what they must not
//! both do.

use crate::harness::{self, address, bytes_of, craft, receive_batch, station};
use batch::StrayWeight;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use device::{Capabilities, Medium, Room, TransmitMode, Transmitted};
use stack::{
    AddressingConfig, ClaimPolicy, Homes, InterfaceConfig, InterfaceId, ListenOptions, Shard,
    ShardConfig, Share, SocketError, SocketId, SynCookieMode, TcpOption,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use time::{Duration, Instant};
use wire::{
    ArpOperation, ArpRepr, EthernetRepr, HardwareAddress, Icmpv4Repr, Ipv4Repr, Ipv4View, NdpRepr,
    ether_type, protocol,
};

/// A connection with an even port is of the second shard if its other port is odd.
struct ByPort;

impl Homes for ByPort {
    fn of_flow(&self, local: SocketAddr, remote: SocketAddr) -> usize {
        usize::from(local.port() ^ remote.port()) % 2
    }

    fn of_port(&self, port: u16) -> usize {
        usize::from(port) % 2
    }
}

/// Few local ports are the first shard's, whatever the peer.
struct FewPorts;

impl Homes for FewPorts {
    fn of_flow(&self, local: SocketAddr, _: SocketAddr) -> usize {
        usize::from(local.port() % 16_384 != 5_000)
    }

    fn of_port(&self, _: u16) -> usize {
        0
    }
}

/// A shard of host `host`; the first, the second, or the only one.
fn shard(host: usize, share: Option<usize>, medium: Medium) -> (Shard, InterfaceId) {
    let share = share.map(|index| Share { index, count: 2, homes: Arc::new(ByPort) });
    shard_of(host, share, medium)
}

fn shard_of(host: usize, share: Option<Share>, medium: Medium) -> (Shard, InterfaceId) {
    let pool = batch::BlockPool::new(batch::PoolConfig::default());
    let secret = [host as u8 + 7; 32];
    let tcp = tcp::Config::default();
    let mut shard = Shard::new(ShardConfig { tcp, pool, secret, sockets_max: 100 });
    if let Some(share) = share {
        shard.set_share(share);
    }
    let addresses = vec![ip::Cidr::new(address(host, false), 24).expect("a network")];
    let capabilities = Capabilities::plain(medium, 1_500);
    let mode = Some(TransmitMode::Multidata);
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

/// Where the client connects from, so that the second shard has the connection with port 80, or the first.
fn client_at(home: u16) -> Option<SocketAddr> {
    Some(SocketAddr::new(address(0, false), 5_000 + home))
}

fn word(text: &'static [u8]) -> batch::Chunk {
    batch::Chunk::whole(batch::Block::from(bytes::Bytes::from_static(text)))
}

/// Gives frames to the first shard, and carries to the second what that is not for it; says how many went on.
fn give_by_the_other_ring(
    now: Instant,
    [first, second]: &mut [(Shard, InterfaceId); 2],
    frames: Vec<Vec<u8>>,
) -> usize {
    give(now, first, frames);
    let carried = carry(now, &mut first.0, &mut second.0);
    assert_eq!(carry(now, &mut second.0, &mut first.0), 0, "it has them");
    assert!(sent(now, first).is_empty(), "it does not speak for others");
    carried
}

/// The device, left to spread the flows, brings all of a connection, or its beginning, by the other shard's ring:
/// a cookie as well as a handshake that is remembered.
#[test]
fn what_comes_by_another_ring_finds_the_shard_of_its_connection() {
    for syn_cookies in [SynCookieMode::Always, SynCookieMode::Never] {
        let mut client = shard(0, None, Medium::Ip);
        let mut server = [0, 1].map(|index| shard(1, Some(index), Medium::Ip));
        let local = SocketAddr::new(address(1, false), 80);
        let options = ListenOptions { syn_cookies, ..ListenOptions::default() };
        let listen = |it: &mut (Shard, InterfaceId)| it.0.tcp_listen_with(local, options.clone());
        let [_, listener] = server.each_mut().map(|it| listen(it).expect("a free port"));
        let socket = client.0.tcp_connect(NOW, client_at(1), local).expect("a route");
        // No time passes in which an ACK would come.
        client.0.tcp_set_option(NOW, socket, TcpOption::NoDelay(true)).expect("open");
        let mut handed_on = 0;
        for _ in 0..2 {
            handed_on += give_by_the_other_ring(NOW, &mut server, sent(NOW, &mut client));
            give(NOW, &mut client, sent(NOW, &mut server[1]));
        }
        let accepted = server[1].0.tcp_accept(listener).expect("the handshake is over");
        client.0.tcp_append(NOW, socket, word(b"first")).expect("there is room");
        handed_on += give_by_the_other_ring(NOW, &mut server, sent(NOW, &mut client));
        assert_eq!(server[1].0.tcp_read(NOW, accepted, &mut [0; 8]), Ok(5));
        assert_eq!(handed_on, 3, "a SYN, an ACK, a segment");
        assert_eq!(server[0].0.counters().shard.segments_handed_on, 3);
        // And by its own ring from now on.
        give(NOW, &mut client, sent(NOW, &mut server[1]));
        client.0.tcp_append(NOW, socket, word(b"second")).expect("there is room");
        give(NOW, &mut server[1], sent(NOW, &mut client));
        assert_eq!(server[1].0.tcp_read(NOW, accepted, &mut [0; 8]), Ok(6));
        assert_eq!(server[1].0.counters().shard.segments_handed_on, 0);
        // What is nobody's is answered by whose it would be.
        server[1].0.tcp_abort(NOW, accepted);
        sent(NOW, &mut server[1]);
        client.0.tcp_append(NOW, socket, word(b"third")).expect("there is room");
        assert_eq!(give_by_the_other_ring(NOW, &mut server, sent(NOW, &mut client)), 1);
        let answers = sent(NOW, &mut server[1]);
        assert_eq!(answers.len(), 1);
        assert_eq!(answers[0][33] & 0x04, 0x04, "a reset");
    }
}

/// A frame that stands for several segments does so where it is handed on to, too.
#[test]
fn a_super_frame_that_is_handed_on_counts_as_its_segments() {
    let mut client = shard(0, None, Medium::Ip);
    let [mut first, mut second] = [0, 1].map(|index| shard(1, Some(index), Medium::Ip));
    let local = SocketAddr::new(address(1, false), 80);
    let listener = second.0.tcp_listen(local, 8).expect("a free port");
    let socket = client.0.tcp_connect(NOW, client_at(1), local).expect("a route");
    for _ in 0..2 {
        give(NOW, &mut second, sent(NOW, &mut client));
        give(NOW, &mut client, sent(NOW, &mut second));
    }
    let accepted = second.0.tcp_accept(listener).expect("the handshake is over");
    client.0.tcp_append(NOW, socket, word(&[7; 1_000])).expect("there is room");
    let mut batch = batch::ReceiveBatch::new();
    for bytes in sent(NOW, &mut client) {
        let len = bytes.len() as u32;
        let block = batch.add_block(batch::Block::from(bytes::Bytes::from(bytes)));
        let checksum = batch::ReceivedChecksum::Verified;
        let segmented = Some(batch::Segmented { segment_len: 100 });
        assert!(batch.push_frame(batch::Frame { block, offset: 0, len, checksum, segmented }));
    }
    first.0.on_receive(NOW, first.1, &mut batch);
    assert_eq!(carry(NOW, &mut first.0, &mut second.0), 1);
    let info = second.0.tcp_info(NOW, accepted).expect("open");
    assert_eq!(info.data_segments_received, 10);
}

/// Segments for an address that is not the host's go nowhere.
#[test]
fn segments_for_others_are_not_handed_on() {
    let mut client = shard(0, None, Medium::Ip);
    let [mut first, _] = [0, 1].map(|index| shard(1, Some(index), Medium::Ip));
    let foreign = "10.0.0.77:80".parse().expect("an address");
    client.0.tcp_connect(NOW, client_at(1), foreign).expect("a route");
    give(NOW, &mut first, sent(NOW, &mut client));
    assert!(first.0.poll_stray().is_none());
}

/// A cookie for fast open that one shard gave is good in the other.
#[test]
fn a_fast_open_cookie_of_one_shard_is_good_in_another() {
    let mut client = shard(0, None, Medium::Ip);
    let mut server = [0, 1].map(|index| shard(1, Some(index), Medium::Ip));
    let local = SocketAddr::new(address(1, false), 80);
    let options = harness::fast_open(8);
    let listen = |it: &mut (Shard, InterfaceId)| it.0.tcp_listen_with(local, options.clone());
    let [_, listener] = server.each_mut().map(|it| listen(it).expect("a free port"));
    let first = client.0.tcp_connect(NOW, client_at(0), local).expect("a route");
    assert_eq!(client.0.tcp_offer_fast_open(NOW, first, false), Ok(0), "there is no cookie yet");
    give(NOW, &mut server[0], sent(NOW, &mut client));
    give(NOW, &mut client, sent(NOW, &mut server[0]));
    let second = client.0.tcp_connect(NOW, client_at(1), local).expect("a route");
    assert_ne!(client.0.tcp_offer_fast_open(NOW, second, false), Ok(0), "it was given one");
    client.0.tcp_append(NOW, second, word(b"early")).expect("there is room");
    give(NOW, &mut server[1], sent(NOW, &mut client));
    let accepted = server[1].0.tcp_accept(listener).expect("before the handshake is over");
    let mut text = [0; 8];
    assert_eq!(server[1].0.tcp_read(NOW, accepted, &mut text), Ok(5));
}

/// The next connection to a server may be another shard's, which shows the cookie that the first one was given.
#[test]
fn a_fast_open_cookie_that_one_shard_was_given_another_shows() {
    let mut client = [0, 1].map(|index| shard(0, Some(index), Medium::Ip));
    let mut server = shard(1, None, Medium::Ip);
    let remote = SocketAddr::new(address(1, false), 80);
    server.0.tcp_listen_with(remote, harness::fast_open(8)).expect("a free port");
    let [one, other] = &mut client;
    let connection = one.0.tcp_connect(NOW, client_at(0), remote).expect("a route");
    one.0.tcp_offer_fast_open(NOW, connection, false).expect("its SYN was not sent");
    give(NOW, &mut server, sent(NOW, one));
    assert!(!other.0.tcp_may_open_fast(NOW, None, remote, false));
    give(NOW, one, sent(NOW, &mut server));
    assert_eq!(carry(NOW, &mut one.0, &mut other.0), 1);
    assert_eq!(carry(NOW, &mut other.0, &mut one.0), 0);
    let connection = other.0.tcp_connect(NOW, client_at(1), remote).expect("a route");
    assert_ne!(other.0.tcp_offer_fast_open(NOW, connection, false), Ok(0), "it has one");
}

/// Any shard may connect, by a port whose connection is its own; so no two open the same.
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
        assert!(matches!(early, Err(SocketError::NoSourceFor(_))), "{early:?}");
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
#[test]
fn an_address_is_given_up_in_no_shard_before_the_first_has_given_it_up() {
    let mut shards = [0, 1].map(|index| shard(1, Some(index), Medium::Ip));
    let [(first, by), (second, _)] = &mut shards;
    let own = address(1, false);
    assert_eq!(second.remove_address(NOW, *by, own), Ok(()));
    assert_eq!(second.addresses(*by).len(), 1);
    first.remove_address(NOW, *by, own).expect("it is there");
    carry(NOW, first, second);
    assert_eq!(second.addresses(*by), []);
}

/// The other shard has yet to hear that the host has the gateway's address no more, or that it has it by now.
#[test]
fn a_route_that_the_first_shard_takes_no_other_refuses() {
    let mut shards = [0, 1].map(|index| shard(1, Some(index), Medium::Ip));
    let [(first, by), (second, _)] = &mut shards;
    let (own, network) = (address(1, false), "10.9.0.0/16".parse().expect("a network"));
    let refused = first.add_route(NOW, network, Some(own), *by).expect_err("it is our own");
    assert!(matches!(refused, SocketError::InvalidArgument(_)), "{refused}");
    first.remove_address(NOW, *by, own).expect("it is there");
    for shard in [first, second] {
        shard.add_route(NOW, network, Some(own), *by).expect("somebody else's by now");
    }
}

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

/// The first shard puts segments together: of a connection that is half open, open, and of none at all, which
/// one reset answers.
#[test]
fn a_segment_in_fragments_finds_the_shard_of_its_connection() {
    let mut client = shard(0, None, Medium::Ip);
    let host = || [0, 1].map(|index| shard(1, Some(index), Medium::Ip));
    let (mut server, mut stranger) = (host(), host());
    let local = SocketAddr::new(address(1, false), 80);
    let [_, listener] = server.each_mut().map(|it| it.0.tcp_listen(local, 8).expect("free"));
    let socket = client.0.tcp_connect(NOW, client_at(1), local).expect("a route");
    client.0.tcp_set_option(NOW, socket, TcpOption::NoDelay(true)).expect("open");
    give(NOW, &mut server[1], sent(NOW, &mut client));
    give(NOW, &mut client, sent(NOW, &mut server[1]));
    let mut accepted = None;
    for text in [b"first", b"again"] {
        client.0.tcp_append(NOW, socket, word(text)).expect("there is room");
        let fragments: Vec<_> =
            sent(NOW, &mut client).iter().flat_map(|it| in_fragments(it)).collect();
        assert_eq!(fragments.len(), 2, "one segment has data");
        for host in [&mut server, &mut stranger] {
            assert_eq!(give_by_the_other_ring(NOW, host, fragments.clone()), 1);
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

/// TIME-WAIT answers what comes again (RFC 9293, 3.10.7.4), by whichever ring: in a table of its own or in a
/// socket that its application still has.
#[test]
fn what_comes_late_finds_the_shard_with_time_wait() {
    for is_kept in [false, true] {
        let mut server = [0, 1].map(|index| shard(1, Some(index), Medium::Ip));
        let local = SocketAddr::new(address(1, false), 80);
        let [_, listener] = server.each_mut().map(|it| it.0.tcp_listen(local, 8).expect("free"));
        let mut client = shard(0, None, Medium::Ip);
        let socket = client.0.tcp_connect(NOW, client_at(1), local).expect("a route");
        give(NOW, &mut server[1], sent(NOW, &mut client));
        give(NOW, &mut client, sent(NOW, &mut server[1]));
        give(NOW, &mut server[1], sent(NOW, &mut client));
        let accepted = server[1].0.tcp_accept(listener).expect("the handshake is over");
        client.0.tcp_append(NOW, socket, word(b"a word")).expect("there is room");
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

        assert_eq!(give_by_the_other_ring(NOW, &mut server, segment), 1);
        let answers = sent(NOW, &mut server[1]);
        assert_eq!(answers.len(), 1, "kept: {is_kept}");
        assert_eq!(answers[0][33], 0x10, "an ACK");
    }
}

/// A SYN that is long, because it brings data, opens its connection where it belongs.
#[test]
fn a_syn_in_fragments_opens_the_connection_in_its_shard() {
    let mut client = shard(0, None, Medium::Ip);
    let mut server = [0, 1].map(|index| shard(1, Some(index), Medium::Ip));
    let local = SocketAddr::new(address(1, false), 80);
    let options = harness::fast_open(8);
    let listen = |it: &mut (Shard, InterfaceId)| it.0.tcp_listen_with(local, options.clone());
    let [_, listener] = server.each_mut().map(|it| listen(it).expect("a free port"));
    let first = client.0.tcp_connect(NOW, client_at(0), local).expect("a route");
    assert_eq!(client.0.tcp_offer_fast_open(NOW, first, false), Ok(0), "there is no cookie yet");
    give(NOW, &mut server[0], sent(NOW, &mut client));
    give(NOW, &mut client, sent(NOW, &mut server[0]));
    sent(NOW, &mut client);
    let second = client.0.tcp_connect(NOW, client_at(1), local).expect("a route");
    assert_ne!(client.0.tcp_offer_fast_open(NOW, second, false), Ok(0), "it was given one");
    client.0.tcp_append(NOW, second, word(b"early")).expect("there is room");
    let fragments = sent(NOW, &mut client).iter().flat_map(|it| in_fragments(it)).collect();
    assert_eq!(give_by_the_other_ring(NOW, &mut server, fragments), 1);
    let accepted = server[1].0.tcp_accept(listener).expect("before the handshake is over");
    assert_eq!(server[1].0.tcp_read(NOW, accepted, &mut [0; 8]), Ok(5));
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
    let held = strays.iter().map(|stray| match stray.weight() {
        StrayWeight::Packet { held_bytes, .. } => held_bytes,
        other => panic!("{other:?}"),
    });
    let held: usize = held.sum();
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

const GROUP: core::net::IpAddr = core::net::IpAddr::V4(core::net::Ipv4Addr::new(239, 1, 2, 3));

/// A socket of shard `home` that listens to the group at the port of this number.
fn group_listener(now: Instant, shard: &mut Shard, port: u16) -> SocketId {
    let id = shard.udp_bind(([0, 0, 0, 0], port).into()).expect("a free port");
    shard.udp_join(now, id, GROUP, None, &[]).expect("room");
    id
}

#[test]
fn what_a_socket_sends_to_a_group_comes_to_listeners_of_every_shard() {
    let [mut first, mut second] = [0, 1].map(|index| shard(1, Some(index), Medium::Ip));
    let here = group_listener(NOW, &mut first.0, 6);
    let there = group_listener(NOW, &mut second.0, 7);
    let sender = first.0.udp_bind(SocketAddr::new(address(1, false), 0)).expect("a free port");
    for port in [6, 7] {
        first.0.udp_send(sender, Some((GROUP, port).into()), word(b"everybody")).expect("room");
    }
    carry(NOW, &mut first.0, &mut second.0);
    for (shard, id) in [(&mut first.0, here), (&mut second.0, there)] {
        let (payload, source) = shard.udp_receive(id).expect("it came");
        assert_eq!((payload.bytes(), source.ip()), (&b"everybody"[..], address(1, false)));
        assert!(shard.udp_receive(id).is_err(), "and once");
    }
    let off = stack::MulticastOptions { is_looped: false, ..stack::MulticastOptions::default() };
    first.0.udp_set_multicast(sender, off).expect("open");
    first.0.udp_send(sender, Some((GROUP, 7).into()), word(b"others")).expect("room");
    carry(NOW, &mut first.0, &mut second.0);
    assert!(second.0.udp_receive(there).is_err(), "it is for others");
    // What waits for a shard that stands still is bounded.
    first.0.udp_set_multicast(sender, stack::MulticastOptions::default()).expect("open");
    for _ in 0..3_000 {
        first.0.udp_send(sender, Some((GROUP, 7).into()), word(b"everybody")).expect("room");
        sent(NOW, &mut first);
    }
    assert!(carry(NOW, &mut first.0, &mut second.0) <= 1_024);
}

/// The kinds of the records that a shard reports until then (RFC 3376, 4.2.12), repetitions left out.
fn record_kinds(mut now: Instant, until: Instant, from: &mut (Shard, InterfaceId)) -> Vec<u8> {
    let mut kinds = Vec::new();
    loop {
        let packets = sent(now, from);
        let reports = packets.iter().filter(|it| it[0] == 0x46 && it[9] == protocol::IGMP);
        kinds.extend(reports.map(|packet| packet[24 + 8]));
        match from.0.poll_timeout().filter(|due| *due <= until) {
            Some(due) => now = due.max(now),
            None => {
                kinds.dedup();
                return kinds;
            }
        }
        from.0.on_timeout(now);
    }
}

/// The same of the first shard in some seconds, of two that hear of each other; the second is silent.
fn reported(now: &mut Instant, [first, second]: &mut [(Shard, InterfaceId); 2]) -> Vec<u8> {
    carry(*now, &mut second.0, &mut first.0);
    let until = *now + Duration::from_secs(5);
    assert_eq!(record_kinds(*now, until, second), Vec::<u8>::new());
    let kinds = record_kinds(*now, until, first);
    *now = until;
    kinds
}

// RFC 3376, 3.2 and 5.1: what is reported is what all sockets of the host want together.
#[test]
fn one_shard_reports_the_groups_of_all() {
    const TO_INCLUDE: u8 = 3;
    const TO_EXCLUDE: u8 = 4;
    const NOTHING: [u8; 0] = [];
    let mut now = NOW;
    let mut host = [0, 1].map(|index| shard(1, Some(index), Medium::Ip));
    let there = group_listener(now, &mut host[1].0, 7);
    assert_eq!(reported(&mut now, &mut host), [TO_EXCLUDE]);
    let here = group_listener(now, &mut host[0].0, 6);
    assert_eq!(reported(&mut now, &mut host), NOTHING, "routers know");
    host[1].0.close(now, there);
    assert_eq!(reported(&mut now, &mut host), NOTHING, "the host still listens");
    let there = group_listener(now, &mut host[1].0, 7);
    assert_eq!(reported(&mut now, &mut host), NOTHING, "routers know");
    host[0].0.udp_leave(now, here, GROUP, None).expect("a member");
    assert_eq!(reported(&mut now, &mut host), NOTHING, "the host still listens");
    host[1].0.udp_leave(now, there, GROUP, None).expect("a member");
    assert_eq!(reported(&mut now, &mut host), [TO_INCLUDE]);
}

// RFC 6191, seen from the other end: where timestamps tell a new connection's segments from the old one's, a pair of
// ports may be used again after a second, and whoever closes first does not run out of ports.
#[test]
fn ports_in_time_wait_are_picked_again_after_a_second() {
    let share = Share { index: 0, count: 2, homes: Arc::new(FewPorts) };
    let mut client = shard_of(0, Some(share), Medium::Ip);
    let mut server = shard(1, None, Medium::Ip);
    let remote = SocketAddr::new(address(1, false), 80);
    let listener = server.0.tcp_listen(remote, 8).expect("a free port");
    let plain = Arc::new(tcp::Config { timestamps: false, ..tcp::Config::default() });
    let mut now = NOW;
    let mut ports = BTreeSet::new();
    for round in 0..12 {
        if round % 4 == 0 {
            let tried = client.0.tcp_connect_with(now, None, remote, Arc::clone(&plain));
            match (round, tried) {
                (0, Ok(unused)) => client.0.close(now, unused),
                (0, refused) => panic!("{refused:?}"),
                // It has no timestamps that would tell its segments apart.
                (_, tried) => assert_eq!(tried, Err(SocketError::NoPortLeft), "{round}"),
            }
        }
        let socket = client.0.tcp_connect(now, None, remote).expect("a port");
        ports.insert(client.0.local_address(socket).expect("open").port());
        exchange(now, &mut client, &mut server);
        let accepted = server.0.tcp_accept(listener).expect("the handshake is over");
        client.0.close(now, socket);
        exchange(now, &mut client, &mut server);
        server.0.close(now, accepted);
        exchange(now, &mut client, &mut server);
        if round % 4 == 3 {
            assert_eq!((client.0.time_wait_count(), ports.len()), (4, 4));
            let early = client.0.tcp_connect(now, None, remote);
            assert_eq!(early, Err(SocketError::NoPortLeft), "{round}");
            now += Duration::from_secs(1);
        }
    }
    assert_eq!(client.0.counters().shard.time_wait_replaced, 8);
}

/// Carries frames between two hosts until nothing is left to say.
fn exchange(now: Instant, one: &mut (Shard, InterfaceId), other: &mut (Shard, InterfaceId)) {
    loop {
        let (there, back) = (sent(now, one), sent(now, other));
        if there.is_empty() && back.is_empty() {
            return;
        }
        give(now, other, there);
        give(now, one, back);
    }
}

/// Lets time go by in steps of 10 ms; says when ARP requests were on the wire, in ms.
fn asked_until(
    now: &mut Instant,
    until: Instant,
    host: &mut [(Shard, InterfaceId); 2],
) -> Vec<u64> {
    let mut asked = Vec::new();
    while *now < until {
        for _ in 0..2 {
            for (index, it) in host.iter_mut().enumerate() {
                if it.0.poll_timeout().is_some_and(|due| due <= *now) {
                    it.0.on_timeout(*now);
                }
                let requests = sent(*now, it).iter().filter(|it| it[12..14] == [8, 6]).count();
                assert!(requests == 0 || index == 0, "the first asks");
                asked.extend((0..requests).map(|_| now.as_millis()));
            }
            let [first, second] = host;
            carry(*now, &mut first.0, &mut second.0);
            carry(*now, &mut second.0, &mut first.0);
        }
        *now += Duration::from_millis(10);
    }
    asked
}

// RFC 4861, 7.2.2: "If no Neighbor Advertisement is received after MAX_MULTICAST_SOLICIT solicitations, address resolution
// has failed": solicitations that were sent, also where another shard had just given the neighbour up.
#[test]
fn a_shard_that_is_not_first_gives_up_behind_requests_that_were_sent() {
    let mut host = [0, 1].map(|index| shard(0, Some(index), Medium::Ethernet(station(0))));
    let mut now = NOW;
    let peer = SocketAddr::new(address(1, false), 80);
    // The first asks in vain at 1, 2 and 3 s, and holds the neighbour for unreachable from 4 to 5 s.
    host[0].0.tcp_connect(now, client_at(1), peer).expect("a route");
    asked_until(&mut now, Instant::from_millis(3_950), &mut host);
    let socket = host[1].0.tcp_connect(now, client_at(0), peer).expect("a route");
    let mut asked = Vec::new();
    while host[1].0.tcp_status(socket).is_ok_and(|it| it.error.is_none()) {
        let until = now + Duration::from_millis(10);
        asked.extend(asked_until(&mut now, until, &mut host));
        assert!(now < Instant::from_millis(20_000));
    }
    // What is asked in the moment of giving up nobody can answer in time.
    asked.retain(|at| at + 100 < now.as_millis());
    assert!(asked.len() >= 2, "it gave up behind {asked:?}");
}

/// Every shard learns from what is broadcast, and the first speaks for the host: two answers, or two defences of one
/// address, would be the storm that RFC 5227, 2.4 warns of.
#[test]
fn one_shard_answers_who_asks_for_an_address_or_claims_it() {
    let mut shards = [0, 1].map(|index| shard(1, Some(index), Medium::Ethernet(station(1))));
    let cidr = ip::Cidr::new(address(1, true), 64).expect("a network");
    for (shard, id) in &mut shards {
        shard.add_address(NOW, *id, cidr).expect("new");
    }
    let [(first, _), (second, _)] = &mut shards;
    carry(NOW, first, second);
    shards.iter_mut().for_each(|it| drop(sent(NOW, it)));
    let (IpAddr::V6(target), IpAddr::V6(source)) = (address(1, true), address(0, true)) else {
        panic!("they are of IPv6")
    };
    let asked = NdpRepr::NeighbourSolicitation { target, source_link: Some(craft::STRANGER) };
    let ours = Ipv4Addr::new(10, 0, 0, 2);
    let frames = [
        craft::ndp(source, wire::ndp::solicited_node(target), 255, &asked),
        arp(ArpOperation::Request, Ipv4Addr::new(10, 0, 0, 1), ours),
        arp(ArpOperation::Reply, ours, Ipv4Addr::new(10, 0, 0, 1)),
    ];
    for frame in frames {
        let told = shards.each_mut().map(|it| {
            give(NOW, it, vec![frame.clone()]);
            sent(NOW, it).len()
        });
        assert_eq!(told, [1, 0], "{frame:?}");
    }
}

/// An ARP message of a stranger's station to everybody.
fn arp(operation: ArpOperation, sender_protocol: Ipv4Addr, target_protocol: Ipv4Addr) -> Vec<u8> {
    let mut frame = vec![0; EthernetRepr::LEN + ArpRepr::LEN];
    let (destination, source) = (HardwareAddress::BROADCAST, craft::STRANGER);
    EthernetRepr { destination, source, ether_type: ether_type::ARP }.emit(&mut frame);
    ArpRepr {
        operation,
        sender_hardware: source,
        sender_protocol,
        target_hardware: HardwareAddress::ZERO,
        target_protocol,
    }
    .emit(&mut frame[EthernetRepr::LEN..]);
    frame
}
