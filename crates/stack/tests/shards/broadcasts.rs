//! Datagrams to everybody on a link: by which interface they leave, for whom they are, and from whom they may come.

use crate::harness::{Net, address, bytes_of, craft, station};
use batch::{Block, Chunk, Multidata};
use bytes::Bytes;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use counters::DropReason;
use device::{Capabilities, Medium, Room, TransmitMode, Transmitted};
use stack::{
    BadArgument, BindOptions, InterfaceConfig, InterfaceId, MulticastOptions, Shard, SocketError,
};
use time::{Duration, Instant};
use wire::{EthernetRepr, HardwareAddress, Ipv4View, protocol};

fn net() -> Net {
    Net::new(TransmitMode::Multidata, true)
}

fn at(text: &str) -> SocketAddr {
    text.parse().expect("an address and a port")
}

fn word() -> Chunk {
    Chunk::whole(Block::from(Bytes::from_static(b"to everybody")))
}

/// Where the IPv4 packets that an interface sends now go: station and next header.
fn sent(now: Instant, shard: &mut Shard, id: InterfaceId) -> Vec<([u8; 6], u8)> {
    let mut batch = Multidata::default();
    let mut all = Vec::new();
    while shard.poll_transmit(now, id, Room::UNBOUNDED, &mut batch) > 0 {
        all.extend(batch.packets().map(|packet| bytes_of(&packet)));
        shard.on_transmitted(now, id, &Transmitted { taken: batch.len(), stopped: None });
        batch.clear();
    }
    let packets = all.iter().filter_map(|frame| {
        let view = Ipv4View::parse(&frame[EthernetRepr::LEN..]).ok()?;
        Some((*frame.first_chunk()?, view.protocol()))
    });
    packets.collect()
}

/// RFC 919, 7: to 255.255.255.255 it "is received by all hosts on the local net", and no gateway forwards it; RFC 922
/// for the address of all hosts of the net.
#[test]
fn what_is_for_everybody_goes_to_every_station_and_to_no_gateway() {
    for has_gateway in [false, true] {
        let mut net = net();
        let (now, id) = (net.now, net.hosts[0].interface);
        let shard = &mut net.hosts[0].shard;
        if has_gateway {
            let gateway = Some("10.0.0.254".parse().expect("an address"));
            shard.add_route(now, ip::Cidr::ANY_IPV4, gateway, id).expect("an interface");
        }
        let everybody = (HardwareAddress::BROADCAST.0, protocol::UDP);
        for local in ["0.0.0.0:0", "10.0.0.1:0", "[::]:0"] {
            let socket = shard.udp_bind(at(local)).expect("a free port");
            for remote in ["255.255.255.255:9", "10.0.0.255:9"] {
                shard.udp_send(socket, Some(at(remote)), word()).expect("a way");
                assert_eq!(sent(now, shard, id), [everybody], "{local} to {remote}");
            }
            shard.udp_set_dont_route(socket, true).expect("a socket");
            shard.udp_connect(socket, at("255.255.255.255:9")).expect("no route is needed");
            shard.udp_send(socket, None, word()).expect("no gateway is on the way");
            assert_eq!(sent(now, shard, id), [everybody]);
        }
        let raw = shard.raw_bind(200, address(0, false)).expect("ours");
        shard.raw_send(raw, Ipv4Addr::BROADCAST.into(), word()).expect("a way");
        assert_eq!(sent(now, shard, id), [(HardwareAddress::BROADCAST.0, 200)]);
        let refused = shard.tcp_connect(now, None, at("255.255.255.255:9"));
        assert_eq!(refused, Err(BadArgument::PeerIsMany(Ipv4Addr::BROADCAST.into()).into()));
    }
}

/// RFC 1122, 3.3.6 leaves it open which; Linux goes by the source and the default route, and has nothing where that is
/// missing.
#[test]
fn of_several_links_the_one_of_the_source_is_meant_or_of_the_route_or_the_first() {
    let mut net = net();
    let (now, first) = (net.now, net.hosts[0].interface);
    let shard = &mut net.hosts[0].shard;
    let second = InterfaceConfig {
        capabilities: Capabilities::plain(Medium::Ethernet(station(5)), 1_500),
        mode: None,
        addresses: vec!["10.7.0.1/24".parse().expect("a network")],
        gateways: Vec::new(),
    };
    let second = shard.add_interface(second).expect("a sound configuration");
    let everybody = Some(at("255.255.255.255:9"));
    let bound = shard.udp_bind(at("10.7.0.1:0")).expect("a free port");
    let free = shard.udp_bind(at("0.0.0.0:0")).expect("a free port");
    let by = |shard: &mut Shard, id| {
        shard.udp_send(id, everybody, word()).expect("a way");
        let counts = [first, second].map(|it| sent(now, shard, it).len());
        counts.iter().position(|count| *count == 1).filter(|_| counts.iter().sum::<usize>() == 1)
    };
    assert_eq!((by(shard, bound), by(shard, free)), (Some(1), Some(0)));
    shard.add_route(now, ip::Cidr::ANY_IPV4, None, second).expect("an interface");
    assert_eq!(by(shard, free), Some(1), "the default route");
    let options = MulticastOptions { interface: Some(first), ..MulticastOptions::default() };
    shard.udp_set_multicast(free, options).expect("an interface");
    assert_eq!(by(shard, free), Some(0), "as the socket asks");
    shard.udp_set_multicast(bound, options).expect("an interface");
    let refused = shard.udp_send(bound, everybody, word());
    assert!(matches!(refused, Err(SocketError::NoRoute(_))), "which has not its address");
}

/// A datagram from `source` to `destination`, in a frame to all stations.
fn datagram(source: &str, destination: &str, to: HardwareAddress) -> Vec<u8> {
    let (source, destination) = (at(source), at(destination));
    let mut bytes = vec![0; 8];
    let (source_port, destination_port) = (source.port(), destination.port());
    wire::UdpRepr { source_port, destination_port, payload_len: 1 }.emit(&mut bytes);
    bytes.push(b'x');
    craft::packet(to, (source.ip(), destination.ip()), protocol::UDP, 64, (&bytes, 6))
}

/// RFC 1122, 3.2.1.3 (a): the unspecified address is a source while a host learns its own, and no other time.
#[test]
fn who_has_no_address_may_ask_everybody_and_nobody_else() {
    let mut net = net();
    let socket = net.hosts[0].shard.udp_bind(at("0.0.0.0:67")).expect("a free port");
    for destination in ["255.255.255.255:67", "10.0.0.255:67"] {
        net.inject(0, [datagram("0.0.0.0:68", destination, HardwareAddress::BROADCAST)]);
        let got = net.hosts[0].shard.udp_receive_datagram(socket).expect("it came");
        assert_eq!((got.source, got.destination), (at("0.0.0.0:68"), at(destination)));
    }
    // Nobody listens: nobody is told, for nobody could be.
    net.inject(0, [datagram("0.0.0.0:68", "255.255.255.255:99", HardwareAddress::BROADCAST)]);
    net.run(Duration::from_secs(5));
    assert!(net.wire.is_empty(), "{:?}", net.wire);

    let nobody = IpAddr::from(Ipv4Addr::UNSPECIFIED);
    let everybody = IpAddr::from(Ipv4Addr::BROADCAST);
    let echo = [8, 0, 0, 0, 0, 1, 0, 1];
    let refused = [
        datagram("0.0.0.0:68", "10.0.0.1:67", station(0)),
        datagram("0.0.0.0:68", "224.0.0.1:67", HardwareAddress([1, 0, 0x5e, 0, 0, 1])),
        datagram("0.0.0.9:68", "255.255.255.255:67", HardwareAddress::BROADCAST),
        craft::packet(
            station(0),
            (nobody, address(0, false)),
            protocol::TCP,
            64,
            (&[0x50; 20], 16),
        ),
        craft::packet(
            HardwareAddress::BROADCAST,
            (nobody, everybody),
            protocol::ICMP,
            64,
            (&echo, 2),
        ),
    ];
    let count = refused.len() as u64;
    net.inject(0, refused);
    let shard = &mut net.hosts[0].shard;
    assert_eq!(shard.counters().drops.count(DropReason::BadSource), count);
    assert_eq!(shard.udp_receive(socket).map(drop), Err(SocketError::WouldBlock));
    // Everybody is answered, or a station: as on Linux nobody's address stands for this host.
    let own = shard.udp_bind(at("127.0.0.1:68")).expect("a free port");
    shard.udp_send(socket, Some(at("0.0.0.0:68")), word()).expect("room");
    net.run(Duration::from_secs(1));
    assert!(net.wire.is_empty(), "{:?}", net.wire);
    let got = net.hosts[0].shard.udp_receive_datagram(own).expect("it came");
    assert_eq!((got.source, got.destination), (at("127.0.0.1:67"), at("127.0.0.1:68")));
}

/// As on Linux, and as it is with groups.
#[test]
fn sockets_that_share_a_port_all_get_what_is_for_everybody() {
    let mut net = net();
    let shared = BindOptions { shared: true, ..BindOptions::default() };
    let shard = &mut net.hosts[0].shard;
    let mut bind = |local: &str| shard.udp_bind_with(at(local), shared).expect("shared");
    let takers = [bind("0.0.0.0:67"), bind("0.0.0.0:67"), bind("[::]:67")];
    let (alone, hears, other) = (bind("10.0.0.1:67"), bind("0.0.0.0:67"), bind("0.0.0.0:67"));
    shard.udp_connect(hears, at("10.0.0.2:68")).expect("a route");
    shard.udp_connect(other, at("10.0.0.2:69")).expect("a route");
    for destination in ["255.255.255.255:67", "10.0.0.255:67"] {
        net.inject(0, [datagram("10.0.0.2:68", destination, HardwareAddress::BROADCAST)]);
        let shard = &mut net.hosts[0].shard;
        for id in takers.into_iter().chain([hears]) {
            let got = shard.udp_receive_datagram(id).expect("it came");
            assert_eq!((got.source, got.payload.bytes()), (at("10.0.0.2:68"), &b"x"[..]));
            assert_eq!(shard.udp_receive(id).map(drop), Err(SocketError::WouldBlock), "once");
        }
        for id in [alone, other] {
            assert_eq!(shard.udp_receive(id).map(drop), Err(SocketError::WouldBlock));
        }
    }
}
