//! The end of their own that connected UDP sockets have which are bound to no address.

use crate::harness::{Net, address, craft, station};
use batch::{Block, Chunk};
use bytes::Bytes;
use core::net::{IpAddr, SocketAddr};
use device::TransmitMode;
use stack::{Shard, SocketError, SocketId};
use time::Duration;
use wire::protocol;

const SECOND: Duration = Duration::from_secs(1);

/// Another address of the first host.
const OTHER: &str = "10.0.0.5";

/// Two hosts on a link, the first of which has two addresses, and a socket of it on every address.
fn net(bound: &str) -> (Net, SocketId) {
    let mut net = Net::new(TransmitMode::Multidata, true);
    let (now, id) = (net.now, net.hosts[0].interface);
    let other = ip::Cidr::new(ip(OTHER), 24).expect("a network");
    net.hosts[0].shard.add_address(now, id, other).expect("another one");
    let socket = net.hosts[0].shard.udp_bind(at(bound)).expect("a free port");
    (net, socket)
}

fn at(text: &str) -> SocketAddr {
    text.parse().expect("an address and a port")
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn shard(net: &mut Net) -> &mut Shard {
    &mut net.hosts[0].shard
}

/// Whether the socket hears a datagram that the second host sends to `local`.
fn hears(net: &mut Net, socket: SocketId, local: &str) -> bool {
    let local = ip(local);
    let mut bytes = vec![0; 8];
    wire::UdpRepr { source_port: 9, destination_port: 7, payload_len: 1 }.emit(&mut bytes);
    bytes.push(b'x');
    let addresses = (address(1, local.is_ipv6()), local);
    net.inject(0, [craft::packet(station(0), addresses, protocol::UDP, 64, (&bytes, 6))]);
    shard(net).udp_receive(socket).is_ok()
}

/// Where a datagram of the socket to its peer comes from, as the peer's socket sees it.
fn source(net: &mut Net, socket: SocketId, server: SocketId) -> SocketAddr {
    let word = Chunk::whole(Block::from(Bytes::from_static(b"who")));
    shard(net).udp_send(socket, None, word).expect("room");
    net.run(SECOND / 10);
    net.hosts[1].shard.udp_receive(server).expect("sent").1
}

// connect(2) on Linux: what is bound to INADDR_ANY has the address of its route from then on.
#[test]
fn a_socket_on_all_addresses_has_the_one_that_leads_to_its_peer() {
    for (bound, peer, own) in [
        ("0.0.0.0:7", "10.0.0.2:9", "10.0.0.1:7"),
        ("[::]:7", "10.0.0.2:9", "10.0.0.1:7"),
        ("[::]:7", "[fd00::2]:9", "[fd00::1]:7"),
    ] {
        let (mut net, socket) = net(bound);
        assert_eq!(shard(&mut net).local_address(socket), Ok(at(bound)));
        assert!(hears(&mut net, socket, OTHER) && hears(&mut net, socket, "10.0.0.1"));
        shard(&mut net).udp_connect(socket, at(peer)).expect("a route");
        assert_eq!(shard(&mut net).local_address(socket), Ok(at(own)));
        assert!(hears(&mut net, socket, &at(own).ip().to_string()));
        assert!(!hears(&mut net, socket, OTHER), "{bound}: its peer does not send there");
        let server = net.hosts[1].shard.udp_bind(at(peer)).expect("a free port");
        assert_eq!(source(&mut net, socket, server), at(own));
        // What is for the other address is for who is bound there.
        shard(&mut net).udp_disconnect(socket).expect("open");
        assert_eq!(shard(&mut net).local_address(socket), Ok(at(bound)));
        assert!(hears(&mut net, socket, OTHER) && hears(&mut net, socket, "10.0.0.1"));
    }
}

#[test]
fn a_socket_that_is_connected_anew_has_the_address_that_leads_there() {
    let (mut net, socket) = net("0.0.0.0:7");
    for (peer, own) in [
        ("127.0.0.1:9", "127.0.0.1:7"),
        ("10.0.0.2:9", "10.0.0.1:7"),
        ("10.0.0.5:9", "10.0.0.5:7"),
        ("10.0.0.2:9", "10.0.0.1:7"),
    ] {
        shard(&mut net).udp_connect(socket, at(peer)).expect("a route");
        assert_eq!(shard(&mut net).local_address(socket), Ok(at(own)), "{peer}");
    }
    assert!(hears(&mut net, socket, "10.0.0.1"));
}

#[test]
fn a_connected_socket_whose_address_is_taken_away_has_another() {
    let (mut net, socket) = net("0.0.0.0:7");
    let id = net.hosts[0].interface;
    let server = net.hosts[1].shard.udp_bind(at("10.0.0.2:9")).expect("a free port");
    shard(&mut net).udp_connect(socket, at("10.0.0.2:9")).expect("a route");
    assert_eq!(source(&mut net, socket, server), at("10.0.0.1:7"));
    let now = net.now;
    shard(&mut net).remove_address(now, id, ip("10.0.0.1")).expect("it has it");
    assert_eq!(source(&mut net, socket, server), at("10.0.0.5:7"));
    assert_eq!(shard(&mut net).local_address(socket), Ok(at("10.0.0.5:7")));
    assert!(hears(&mut net, socket, OTHER));
    // The first one is there again, and would be chosen, but the peer knows the second.
    let now = net.now;
    let first = ip::Cidr::new(ip("10.0.0.1"), 24).expect("a network");
    shard(&mut net).add_address(now, id, first).expect("room");
    net.run(10 * SECOND);
    assert_eq!(source(&mut net, socket, server), at("10.0.0.5:7"));
    assert!(!hears(&mut net, socket, "10.0.0.1"));
    // Without any, what waits for one is the next datagram.
    for own in ["10.0.0.1", OTHER] {
        let now = net.now;
        shard(&mut net).remove_address(now, id, ip(own)).expect("it has it");
    }
    assert_eq!(shard(&mut net).local_address(socket), Ok(at("0.0.0.0:7")));
    let now = net.now;
    shard(&mut net).add_address(now, id, first).expect("room");
    net.run(10 * SECOND);
    assert_eq!(source(&mut net, socket, server), at("10.0.0.1:7"));
}

/// Which socket hears of an error is found by the source of what was sent.
#[test]
fn a_port_that_nobody_has_is_reported_to_a_socket_on_all_addresses() {
    let (mut net, socket) = net("0.0.0.0:7");
    shard(&mut net).udp_connect(socket, at("10.0.0.2:9")).expect("a route");
    let word = Chunk::whole(Block::from(Bytes::from_static(b"who")));
    shard(&mut net).udp_send(socket, None, word).expect("room");
    net.run(SECOND / 10);
    assert_eq!(shard(&mut net).udp_check(socket), Err(SocketError::ConnectionRefused));
}
