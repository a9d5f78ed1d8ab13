//! What applications call the ends of connections and datagrams, and what packets have in their place.

mod harness;

use core::net::{IpAddr, SocketAddr};
use device::TransmitMode;
use harness::{Net, address};
use stack::{Shard, SocketError};
use time::Duration;

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
    assert_eq!(outcome, Err(SocketError::InvalidArgument), "from an address of the other family");
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
        let from = mapped(1, 0).ip();
        let answer =
            shard(&mut net, 1).udp_send_from(server, from, Some(mapped(0, local.port())), bytes());
        assert_eq!(answer, Ok(()));
        net.run(10 * MS);
        assert_eq!(shard(&mut net, 0).udp_receive(client).map(|it| it.1), Ok(plain(1, 53)));
    }
    // What is bound to an address of IPv6 cannot.
    let local = SocketAddr::new(address(0, true), 1_003);
    let client = shard(&mut net, 0).udp_bind(local).expect("a free port");
    let outcome = shard(&mut net, 0).udp_send(client, Some(mapped(1, 53)), bytes());
    assert_eq!(outcome, Err(SocketError::InvalidArgument));
    let echo = shard(&mut net, 0).raw_bind(200, IpAddr::from([0, 0, 0, 0])).expect("free");
    shard(&mut net, 0).raw_send(echo, mapped(1, 0).ip(), bytes()).expect("room");
    net.run(10 * MS);
    assert!(net.wire.iter().all(|(_, frame)| frame[0] >> 4 == 4));
}
