//! What applications call the ends of connections and datagrams, and what packets have in their place.

use crate::harness::{Net, address, bytes_of, receive_batch};
use core::net::{IpAddr, SocketAddr, SocketAddrV6};
use device::{Capabilities, Medium, Room, TransmitMode, Transmitted};
use stack::{
    BadArgument, Envelope, InterfaceConfig, InterfaceId, Shard, ShardConfig, SocketError, SocketId,
};
use time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

/// An address of host `host` over IPv4, as IPv6 maps it.
fn mapped(host: usize, port: u16) -> SocketAddr {
    match address(host, false) {
        IpAddr::V4(address) => SocketAddr::new(address.to_ipv6_mapped().into(), port),
        IpAddr::V6(_) => unreachable!("asked for the other family"),
    }
}

fn plain(host: usize, port: u16) -> SocketAddr {
    SocketAddr::new(address(host, false), port)
}

fn shard(net: &mut Net, host: usize) -> &mut Shard {
    &mut net.hosts[host].shard
}

// RFC 4291, 2.5.5.2: such an address stands for a host that speaks IPv4, and is in no packet.
#[test]
fn a_connection_to_a_mapped_address_speaks_ipv4() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    let listener = shard(&mut net, 1).tcp_listen(mapped(1, 80), 8).expect("a free port");
    assert_eq!(shard(&mut net, 1).local_address(listener), Ok(plain(1, 80)));
    for local in [None, Some(mapped(0, 0)), Some(plain(0, 5_000))] {
        let now = net.now;
        let client = shard(&mut net, 0).tcp_connect(now, local, mapped(1, 80)).expect("a route");
        net.run(10 * MS);
        let status = shard(&mut net, 0).tcp_status(client).expect("open");
        assert_eq!((status.state, status.remote), (tcp::State::Established, plain(1, 80)));
        let server = shard(&mut net, 1).tcp_accept(listener).expect("a connection");
        let peer = shard(&mut net, 1).tcp_status(server).expect("open").remote;
        assert_eq!(peer, status.local);
        assert!(peer.is_ipv4());
    }
    assert!(net.wire.iter().all(|(_, frame)| frame[0] >> 4 == 4));
    let now = net.now;
    let outcome = shard(&mut net, 0).tcp_connect(
        now,
        Some(SocketAddr::new(address(0, true), 0)),
        mapped(1, 80),
    );
    let families =
        |ipv6| BadArgument::FamiliesDiffer { local: address(0, ipv6), remote: address(1, !ipv6) };
    assert_eq!(outcome, Err(families(true).into()), "from an address of the other family");
}

#[test]
fn a_datagram_to_a_mapped_address_speaks_ipv4() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    let server = shard(&mut net, 1).udp_bind(mapped(1, 53)).expect("a free port");
    let bytes = || batch::Chunk::whole(batch::Block::from(bytes::Bytes::from_static(b"who")));
    for local in ["[::]:1000", "0.0.0.0:1001", "[::ffff:10.0.0.1]:1002"] {
        let local: SocketAddr = local.parse().expect("an address and a port");
        let client = shard(&mut net, 0).udp_bind(local).expect("a free port");
        shard(&mut net, 0).udp_send(client, Some(mapped(1, 53)), bytes()).expect("room");
        shard(&mut net, 0).udp_connect(client, mapped(1, 53)).expect("a route");
        assert_eq!(shard(&mut net, 0).udp_peer(client), Ok(plain(1, 53)));
        shard(&mut net, 0).udp_send(client, None, bytes()).expect("room");
        net.run(10 * MS);
        for _ in 0..2 {
            let (_, from) = shard(&mut net, 1).udp_receive(server).expect("a datagram");
            assert_eq!(from, plain(0, local.port()));
        }
        let (from, to) = (Some(mapped(1, 0)), Some(mapped(0, local.port())));
        let envelope = Envelope { from, to, ..Envelope::default() };
        let answer = shard(&mut net, 1).udp_send_with(server, envelope, bytes());
        assert_eq!(answer, Ok(()));
        net.run(10 * MS);
        assert_eq!(shard(&mut net, 0).udp_receive(client).map(|it| it.1), Ok(plain(1, 53)));
    }
    // What is bound to an address of IPv6 cannot.
    let local = SocketAddr::new(address(0, true), 1_003);
    let client = shard(&mut net, 0).udp_bind(local).expect("a free port");
    let outcome = shard(&mut net, 0).udp_send(client, Some(mapped(1, 53)), bytes());
    let families =
        BadArgument::FamiliesDiffer { local: address(0, true), remote: address(1, false) };
    assert_eq!(outcome, Err(families.into()));
    let echo = shard(&mut net, 0).raw_bind(200, IpAddr::from([0, 0, 0, 0])).expect("free");
    shard(&mut net, 0).raw_send(echo, mapped(1, 0).ip(), bytes()).expect("room");
    net.run(10 * MS);
    assert!(net.wire.iter().all(|(_, frame)| frame[0] >> 4 == 4));
}

/// A host on two links, and one on each: theirs and its own addresses are the same on both.
struct Links {
    now: Instant,
    middle: Shard,
    ids: [InterfaceId; 2],
    peers: [(Shard, InterfaceId); 2],
    /// Packets that went over each link, from the middle.
    sent: [Vec<Vec<u8>>; 2],
}

const OWN: &str = "fe80::a";
const PEER: &str = "fe80::1";

fn end(address: &str, scope_id: u32, port: u16) -> SocketAddr {
    let address = address.parse().expect("an address");
    SocketAddrV6::new(address, port, 0, scope_id).into()
}

fn host(number: u8) -> Shard {
    let pool = batch::BlockPool::new(batch::PoolConfig::default());
    let tcp = tcp::Config::default();
    Shard::new(ShardConfig { tcp, pool, secret: [number; 32], sockets_max: 100 })
}

fn link(shard: &mut Shard, addresses: &[&str]) -> InterfaceId {
    let cidr = |address: &&str| format!("{address}/64").parse().expect("a network");
    let config = InterfaceConfig {
        capabilities: Capabilities::plain(Medium::Ip, 1_500),
        mode: Some(TransmitMode::Multidata),
        addresses: addresses.iter().map(cidr).collect(),
        gateways: Vec::new(),
    };
    shard.add_interface(config).expect("a sound configuration")
}

fn all_sent(now: Instant, shard: &mut Shard, id: InterfaceId) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    loop {
        let mut batch = batch::Multidata::default();
        let taken = shard.poll_transmit(now, id, Room::UNBOUNDED, &mut batch);
        if taken == 0 {
            return frames;
        }
        frames.extend(batch.packets().map(|packet| bytes_of(&packet)));
        shard.on_transmitted(now, id, &Transmitted { taken, stopped: None });
    }
}

impl Links {
    fn new() -> Self {
        let mut middle = host(1);
        let ids = [link(&mut middle, &[OWN]), link(&mut middle, &[OWN, "fe80::b"])];
        let peers = [2, 3].map(|number| {
            let mut peer = host(number);
            let id = link(&mut peer, &[PEER]);
            (peer, id)
        });
        let mut links = Self {
            now: Instant::from_millis(1_000),
            middle,
            ids,
            peers,
            sent: [Vec::new(), Vec::new()],
        };
        links.exchange();
        links
    }

    fn exchange(&mut self) {
        let mut moved = true;
        while moved {
            moved = false;
            for at in [0, 1] {
                let there = all_sent(self.now, &mut self.middle, self.ids[at]);
                let (peer, id) = &mut self.peers[at];
                let back = all_sent(self.now, peer, *id);
                moved |= !there.is_empty() || !back.is_empty();
                self.sent[at].extend(there.iter().cloned());
                peer.on_receive(self.now, *id, &mut receive_batch(there));
                self.middle.on_receive(self.now, self.ids[at], &mut receive_batch(back));
            }
        }
    }

    /// The ends that the middle and the peer on link `at` know of a connection that was opened to port 80.
    fn ends(&mut self, at: usize, client: SocketId, listener: SocketId) -> [SocketAddr; 4] {
        self.exchange();
        let ours = self.middle.tcp_status(client).expect("open");
        assert_eq!(ours.state, tcp::State::Established);
        let (peer, _) = &mut self.peers[at];
        let server = peer.tcp_accept(listener).expect("a connection on this link");
        let theirs = peer.tcp_status(server).expect("open");
        [ours.local, ours.remote, theirs.local, theirs.remote]
    }
}

fn word() -> batch::Chunk {
    batch::Chunk::whole(batch::Block::from(bytes::Bytes::from_static(b"who")))
}

// RFC 4007, 6 and 9: a link-local address is that of a host on one link, and packets to it stay there.
#[test]
fn a_scope_says_on_which_link_the_peer_is() {
    let mut links = Links::new();
    let listeners = links
        .peers
        .each_mut()
        .map(|(peer, _)| peer.tcp_listen(end(PEER, 0, 80), 8).expect("a free port"));
    for (local, scope_id, at) in [
        (None, 1, 0),
        (None, 2, 1),
        (None, 0, 0),
        (Some(end(OWN, 2, 0)), 0, 1),
        (Some(end(OWN, 2, 0)), 2, 1),
        (Some(end(OWN, 0, 0)), 2, 1),
        (Some(end("fe80::b", 0, 0)), 0, 1),
        (Some(end("::", 0, 0)), 2, 1),
    ] {
        let now = links.now;
        let client =
            links.middle.tcp_connect(now, local, end(PEER, scope_id, 80)).expect("a route");
        let [local, remote, their_local, their_remote] = links.ends(at, client, listeners[at]);
        let (number, port) = (at as u32 + 1, local.port());
        let own = their_remote.ip().to_string();
        assert_eq!((local, remote), (end(&own, number, port), end(PEER, number, 80)), "{scope_id}");
        assert_eq!(links.middle.local_address(client), Ok(local));
        // The peer has one link only.
        assert_eq!((their_local, their_remote), (end(PEER, 1, 80), end(&own, 1, port)));
    }
    let mut refused = |local: Option<SocketAddr>, scope_id| {
        let now = links.now;
        links.middle.tcp_connect(now, local, end(PEER, scope_id, 80)).expect_err("refused")
    };
    assert_eq!(refused(None, 3), SocketError::NoSuchInterface);
    assert_eq!(refused(None, u32::MAX), SocketError::NoSuchInterface);
    assert_eq!(
        refused(Some(end(OWN, 1, 0)), 2),
        BadArgument::ScopesDiffer { one: 2, other: 1 }.into()
    );
    assert_eq!(refused(Some(end("fe80::b", 1, 0)), 0), SocketError::AddressNotAvailable);
    let by_another = refused(Some(end("fe80::b", 0, 0)), 1);
    assert_eq!(by_another, SocketError::NoRoute(end(PEER, 1, 80).ip()));
    // Of an address that is not a link's it says nothing.
    let global = links.middle.udp_bind(end("::", 7, 0)).expect("a free port");
    let SocketAddr::V6(bound) = links.middle.local_address(global).expect("bound") else {
        panic!("of the other family")
    };
    assert_eq!(bound.scope_id(), 0);
}

#[test]
fn a_connection_to_a_link_stays_on_it() {
    let mut links = Links::new();
    let listener = links.peers[0].0.tcp_listen(end(PEER, 0, 80), 8).expect("a free port");
    let now = links.now;
    let client = links.middle.tcp_connect(now, None, end(PEER, 0, 80)).expect("a route");
    links.ends(0, client, listener);
    // The way that another connection would take from now on.
    let only = format!("{PEER}/128").parse().expect("a network");
    links.middle.add_route(now, only, None, links.ids[1]).expect("an interface");
    links.sent[1].clear();
    links.middle.tcp_append(now, client, word()).expect("room");
    links.exchange();
    assert_eq!(links.middle.tcp_status(client).expect("open").unacknowledged_bytes, 3);
    links.now = now + Duration::from_secs(1);
    links.peers[0].0.on_timeout(links.now);
    links.exchange();
    let status = links.middle.tcp_status(client).expect("open");
    assert_eq!((status.unacknowledged_bytes, status.remote), (0, end(PEER, 1, 80)));
    assert!(links.sent[1].is_empty(), "the host there is another one");
}

/// RFC 4007, 6: the other link has another host of that address, and the other connection an address of its own.
#[test]
fn a_connection_ends_with_the_address_of_its_link_and_those_of_other_links_do_not() {
    let mut links = Links::new();
    let listeners = links
        .peers
        .each_mut()
        .map(|(peer, _)| peer.tcp_listen(end(PEER, 0, 80), 8).expect("a free port"));
    let clients = [0, 1].map(|at| {
        let (now, local) = (links.now, Some(end(OWN, 0, 0)));
        let remote = end(PEER, at as u32 + 1, 80);
        let client = links.middle.tcp_connect(now, local, remote).expect("a route");
        links.ends(at, client, listeners[at]);
        client
    });
    let own = OWN.parse().expect("an address");
    links.middle.remove_address(links.now, links.ids[0], own).expect("it has it");
    let errors = clients.map(|client| links.middle.tcp_status(client).expect("not closed").error);
    assert_eq!(errors, [Some(SocketError::AddressRemoved), None]);
    assert_eq!(links.middle.tcp_interface(clients[1]), Some(links.ids[1]));
}

#[test]
fn datagrams_tell_from_which_link_they_came_and_answers_go_back_there() {
    let mut links = Links::new();
    let server = links.middle.udp_bind(end("::", 0, 53)).expect("a free port");
    let clients = links.peers.each_mut().map(|(peer, _)| {
        let client = peer.udp_bind(end(PEER, 0, 5_000)).expect("a free port");
        peer.udp_connect(client, end(OWN, 0, 53)).expect("a route");
        assert_eq!(peer.udp_peer(client), Ok(end(OWN, 1, 53)));
        client
    });
    for at in [1, 0] {
        links.peers[at].0.udp_send(clients[at], None, word()).expect("room");
        links.exchange();
        let number = at as u32 + 1;
        let datagram = links.middle.udp_receive_datagram(server).expect("a datagram");
        assert_eq!(datagram.source, end(PEER, number, 5_000));
        assert_eq!(datagram.destination, end(OWN, number, 53));
        links.middle.udp_send(server, Some(datagram.source), word()).expect("room");
        links.exchange();
        for (index, (peer, _)) in links.peers.iter_mut().enumerate() {
            let received = peer.udp_receive(clients[index]).map(|(_, source)| source);
            let expected =
                if index == at { Ok(end(OWN, 1, 53)) } else { Err(SocketError::WouldBlock) };
            assert_eq!(received, expected, "{index}");
        }
    }
    // Connected to the host on one link, it does not hear that on the other.
    links.middle.udp_connect(server, end(PEER, 2, 5_000)).expect("a route");
    for at in [0, 1] {
        links.peers[at].0.udp_send(clients[at], None, word()).expect("room");
    }
    links.exchange();
    assert_eq!(links.middle.udp_receive(server).map(|it| it.1), Ok(end(PEER, 2, 5_000)));
    assert_eq!(links.middle.udp_receive(server).err(), Some(SocketError::WouldBlock));
    // Nobody has the port on the other link, and it is told so; only who is connected hears of it.
    assert_eq!(links.peers[0].0.udp_check(clients[0]), Err(SocketError::ConnectionRefused));
    assert_eq!(links.peers[1].0.udp_check(clients[1]), Ok(()));
}

#[test]
fn what_is_bound_to_a_scope_takes_from_its_link_alone() {
    let mut links = Links::new();
    let socket = links.middle.udp_bind(end(OWN, 2, 53)).expect("a free port");
    let listener = links.middle.tcp_listen(end(OWN, 2, 80), 8).expect("a free port");
    assert_eq!(links.middle.local_address(listener), Ok(end(OWN, 2, 80)));
    assert_eq!(links.middle.local_address(socket), Ok(end(OWN, 2, 53)));
    assert_eq!(links.middle.udp_bind(end("fe80::b", 1, 0)), Err(SocketError::AddressNotAvailable));
    let now = links.now;
    for at in [0, 1] {
        let (peer, _) = &mut links.peers[at];
        let client = peer.udp_bind(end(PEER, 0, 5_000)).expect("a free port");
        peer.udp_send(client, Some(end(OWN, 0, 53)), word()).expect("room");
        let client = peer.tcp_connect(now, None, end(OWN, 0, 80)).expect("a route");
        links.exchange();
        let has_datagram = links.middle.udp_receive(socket).is_ok();
        let has_connection = links.middle.tcp_accept(listener).is_ok();
        assert_eq!((has_datagram, has_connection), (at == 1, at == 1));
        let error = links.peers[at].0.tcp_status(client).expect("not closed").error;
        assert_eq!(error, (at == 0).then_some(SocketError::ConnectionRefused));
    }
    // What it sends leaves there, to hosts as to groups, whichever has the scope.
    for (local, to, at) in
        [(2, end(PEER, 0, 9), 1), (0, end("ff02::77", 2, 9), 1), (0, end("ff02::77", 1, 9), 0)]
    {
        links.sent = [Vec::new(), Vec::new()];
        let from =
            if local == 2 { socket } else { links.middle.udp_bind(end("::", 0, 0)).expect("free") };
        links.middle.udp_send(from, Some(to), word()).expect("room");
        links.exchange();
        let is_datagram = |frame: &Vec<u8>| frame[6] == wire::protocol::UDP;
        let counts =
            links.sent.each_ref().map(|sent| sent.iter().filter(|it| is_datagram(it)).count());
        assert_eq!(counts, [usize::from(at == 0), usize::from(at == 1)], "{to}");
    }
}

#[test]
fn a_peer_without_a_scope_is_on_the_link_of_the_socket() {
    let mut links = Links::new();
    for (own, number) in [(end(OWN, 2, 0), 2), (end("fe80::b", 0, 0), 2), (end("::", 0, 0), 1)] {
        let bound = links.middle.udp_bind(own).expect("a free port");
        links.middle.udp_connect(bound, end(PEER, 0, 9)).expect("a route");
        assert_eq!(links.middle.udp_peer(bound), Ok(end(PEER, number, 9)));
        links.middle.udp_send(bound, None, word()).expect("room");
        let other = links.middle.udp_connect(bound, end(PEER, 3 - number, 9));
        assert_eq!(other.is_ok(), own.ip().is_unspecified(), "{own}");
    }
}

// A relay is told on which link its guest is.
#[test]
fn a_pending_connection_tells_the_scope_of_its_peer() {
    let mut links = Links::new();
    links.middle.set_accepted(links.ids[1], &[ip::Cidr::ANY_IPV6]).expect("an interface");
    let forwarder = links.middle.tcp_forward(ip::Cidr::ANY_IPV6, 8).expect("it is accepted");
    let (now, (peer, id)) = (links.now, &mut links.peers[1]);
    peer.add_route(now, ip::Cidr::ANY_IPV6, None, *id).expect("an interface");
    let to = end("2001:db8::1", 0, 80);
    let client = peer.tcp_connect(now, None, to).expect("a route");
    links.exchange();
    let pending = links.middle.tcp_next_pending(forwarder).expect("a SYN came");
    let port = links.peers[1].0.local_address(client).expect("open").port();
    assert_eq!((pending.destination(), pending.peer()), (to, end(PEER, 2, port)));
    links.middle.tcp_accept_pending(now, &pending).expect("it waits");
    links.exchange();
    let status = links.peers[1].0.tcp_status(client).expect("open");
    assert_eq!(status.state, tcp::State::Established);
}
