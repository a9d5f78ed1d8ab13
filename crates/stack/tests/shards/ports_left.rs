//! Who looks for a free local port where all are taken is refused without a walk past all of them each time, and
//! finds the one that is given up.

use crate::harness;
use batch::{BlockPool, Multidata, PoolConfig};
use core::net::SocketAddr;
use device::{Capabilities, Medium, Room, TransmitMode, Transmitted};
use stack::{InterfaceConfig, InterfaceId, Shard, ShardConfig, SocketError, SocketId};
use std::time::Instant as Clock;
use time::{Duration, Instant};

/// From 1,024 on.
const PORTS: usize = 64_512;

fn shard() -> Shard {
    shard_at("10.0.0.1/24").0
}

/// Without timestamps, so that no TIME-WAIT ends for a new connection.
fn shard_at(network: &str) -> (Shard, InterfaceId) {
    let mut shard = Shard::new(ShardConfig {
        tcp: tcp::Config { timestamps: false, ..tcp::Config::default() },
        pool: BlockPool::new(PoolConfig::default()),
        secret: [3; 32],
        sockets_max: PORTS + 10,
    });
    let config = InterfaceConfig {
        capabilities: Capabilities::plain(Medium::Ip, 1_500),
        mode: Some(TransmitMode::Multidata),
        addresses: vec![network.parse().expect("a network")],
        gateways: vec![],
    };
    let id = shard.add_interface(config).expect("a sound configuration");
    (shard, id)
}

fn now() -> Instant {
    Instant::from_millis(1_000)
}

/// Takes all ports, is refused, and then finds what is given up, a port at a time. `open` takes the port that it is
/// told, or picks one.
fn look_for_the_last(
    shard: &mut Shard,
    open: impl Fn(&mut Shard, u16) -> Result<SocketId, SocketError>,
    port_of: impl Fn(&mut Shard, SocketId) -> u16,
) {
    let opened: Vec<_> = (0..PORTS).map(|_| open(shard, 0).expect("a free port")).collect();
    assert_eq!(open(shard, 0), Err(SocketError::NoPortLeft));
    let started = Clock::now();
    for port in 1_024..=u16::MAX {
        assert_eq!(open(shard, port), Err(SocketError::AddressInUse));
    }
    let looking_at_each = started.elapsed();
    for _ in 0..40 {
        assert_eq!(open(shard, 0), Err(SocketError::NoPortLeft));
    }
    let picking = started.elapsed() - looking_at_each;
    assert!(picking < 4 * looking_at_each, "40 times {picking:?}, each once {looking_at_each:?}");
    for id in [opened[7], opened[PORTS - 1], opened[30_000]] {
        let port = port_of(shard, id);
        shard.close(now(), id);
        let found = open(shard, 0).expect("the one that was given up");
        assert_eq!(port_of(shard, found), port);
        assert_eq!(open(shard, 0), Err(SocketError::NoPortLeft));
    }
}

#[test]
fn the_port_that_a_socket_gives_up_is_found_among_all_that_are_taken() {
    let bind = |shard: &mut Shard, port| shard.udp_bind(([10, 0, 0, 1], port).into());
    let port_of = |shard: &mut Shard, id| shard.local_address(id).expect("open").port();
    look_for_the_last(&mut shard(), bind, port_of);
}

#[test]
fn the_port_that_a_connection_gives_up_is_found_among_all_that_are_taken() {
    let connect = |shard: &mut Shard, port| {
        let local = SocketAddr::from(([10, 0, 0, 1], port));
        shard.tcp_connect(now(), Some(local), ([10, 0, 0, 2], 80).into())
    };
    let port_of = |shard: &mut Shard, id| shard.tcp_status(id).expect("open").local.port();
    look_for_the_last(&mut shard(), connect, port_of);
}

/// Hands each what the other has to say, until both are silent.
fn exchange([mut from, mut to]: [&mut Shard; 2], id: InterfaceId, now: Instant) {
    let mut silent = 0;
    while silent < 2 {
        let mut batch = Multidata::default();
        let taken = from.poll_transmit(now, id, Room::UNBOUNDED, &mut batch);
        from.on_transmitted(now, id, &Transmitted { taken, stopped: None });
        let frames = batch.packets().map(|packet| harness::bytes_of(&packet));
        to.on_receive(now, id, &mut harness::receive_batch(frames));
        silent = if taken == 0 { silent + 1 } else { 0 };
        core::mem::swap(&mut from, &mut to);
    }
}

/// What stands in the way of a connection beside others: a listener, and one that was closed and cannot be followed
/// before its time.
#[test]
fn the_ports_of_a_listener_and_of_a_time_wait_are_found_when_their_time_is_over() {
    // The first interface of both has the same number.
    let ((mut shard, id), (mut peer, _)) = (shard_at("10.0.0.1/24"), shard_at("10.0.0.2/24"));
    let remote = SocketAddr::from(([10, 0, 0, 2], 80));
    let accepts = peer.tcp_listen(remote, 1).expect("a free port");
    let closed = shard.tcp_connect(now(), None, remote).expect("a free port");
    exchange([&mut shard, &mut peer], id, now());
    let at_peer = peer.tcp_accept(accepts).expect("it came");
    let mut ports = vec![shard.tcp_status(closed).expect("open").local.port()];
    shard.close(now(), closed);
    exchange([&mut shard, &mut peer], id, now());
    peer.close(now(), at_peer);
    exchange([&mut shard, &mut peer], id, now());
    assert_eq!(shard.time_wait_count(), 1);
    ports.push(if ports[0] == 5_000 { 5_001 } else { 5_000 });
    let listener = shard.tcp_listen(([0; 4], ports[1]).into(), 1).expect("a free port");
    for _ in 0..PORTS - 2 {
        shard.tcp_connect(now(), None, remote).expect("a free port");
    }
    assert_eq!(shard.tcp_connect(now(), None, remote), Err(SocketError::NoPortLeft));
    shard.close(now(), listener);
    let found = shard.tcp_connect(now(), None, remote).expect("that of the listener");
    assert_eq!(shard.tcp_status(found).expect("open").local.port(), ports[1]);
    assert_eq!(shard.tcp_connect(now(), None, remote), Err(SocketError::NoPortLeft));
    let later = now() + Duration::from_secs(90);
    shard.on_timeout(later);
    assert_eq!(shard.time_wait_count(), 0);
    let found = shard.tcp_connect(later, None, remote).expect("that of the one that was closed");
    assert_eq!(shard.tcp_status(found).expect("open").local.port(), ports[0]);
    assert_eq!(shard.tcp_connect(later, None, remote), Err(SocketError::NoPortLeft));
}

/// A table of TIME-WAIT that is full gives its oldest up, and so the port of that.
#[test]
fn the_port_of_a_time_wait_that_makes_room_is_found() {
    let ((mut shard, id), (mut peer, _)) = (shard_at("10.0.0.1/24"), shard_at("10.0.0.2/24"));
    shard.set_time_wait_max(1);
    let remote = SocketAddr::from(([10, 0, 0, 2], 80));
    let accepts = peer.tcp_listen(remote, 2).expect("a free port");
    let opened = [0, 1].map(|_| {
        let ours = shard.tcp_connect(now(), None, remote).expect("a free port");
        exchange([&mut shard, &mut peer], id, now());
        (ours, peer.tcp_accept(accepts).expect("it came"))
    });
    let port = shard.tcp_status(opened[0].0).expect("open").local.port();
    let mut close = |shard: &mut Shard, (ours, theirs)| {
        shard.close(now(), ours);
        exchange([&mut *shard, &mut peer], id, now());
        peer.close(now(), theirs);
        exchange([shard, &mut peer], id, now());
    };
    close(&mut shard, opened[0]);
    for _ in 0..PORTS - 2 {
        shard.tcp_connect(now(), None, remote).expect("a free port");
    }
    // The second search writes down what the first began with.
    for _ in 0..2 {
        assert_eq!(shard.tcp_connect(now(), None, remote), Err(SocketError::NoPortLeft));
    }
    close(&mut shard, opened[1]);
    assert_eq!(shard.counters().shard.time_wait_recycled, 1);
    let found = shard.tcp_connect(now(), None, remote).expect("that of the oldest");
    assert_eq!(shard.tcp_status(found).expect("open").local.port(), port);
}
