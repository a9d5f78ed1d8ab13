//! Addresses and routes from router advertisements, between two shards in virtual time; the second
//! host stands for the router, and advertisements are crafted.

mod harness;

use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use counters::DropReason;
use device::TransmitMode;
use harness::craft::{self, STRANGER};
use harness::{Net, station};
use ip::router::{IdentifierKey, RouterConfig, stable_address};
use stack::{
    AddressEvent, AddressOrigin, AddressState, AddressingConfig, ClaimPolicy, SocketError,
};
use time::Duration;
use wire::ndp::{NameServers, PrefixInformation, Prefixes, RouterAdvertisement, RouterPreference};
use wire::{EthernetRepr, Ipv6View, NdpEnvelope, NdpRepr};

const KEY: IdentifierKey = IdentifierKey([9; 16]);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const PREFIX: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 0);

/// A net whose first host listens to routers.
fn net() -> Net {
    let mut net = Net::new(TransmitMode::Multidata, true);
    let (now, id) = (net.now, net.hosts[0].interface);
    let config = AddressingConfig {
        ipv6: ClaimPolicy::Probe,
        routers: Some(RouterConfig::new(KEY)),
        ..AddressingConfig::default()
    };
    net.hosts[0].shard.start_addressing(now, id, config);
    net.run(Duration::from_secs(5));
    net
}

fn router(host: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, host)
}

/// An advertisement with a prefix that is on the link and forms addresses.
fn advertisement(valid_s: u32, preferred_s: u32) -> RouterAdvertisement {
    let mut prefixes = Prefixes::default();
    assert!(prefixes.push(PrefixInformation {
        prefix: PREFIX,
        prefix_len_bits: 64,
        on_link: true,
        autonomous: true,
        valid_s,
        preferred_s,
    }));
    let mut name_servers = NameServers::default();
    name_servers.lifetime_s = 1_000;
    assert!(name_servers.push(router(0x53)));
    RouterAdvertisement {
        hop_limit: 33,
        managed: false,
        other: false,
        preference: RouterPreference::Medium,
        router_lifetime_s: 600,
        reachable_ms: 0,
        retransmit_ms: 0,
        source_link: Some(STRANGER),
        mtu_bytes: Some(1_300),
        prefixes,
        name_servers,
    }
}

fn hear(net: &mut Net, from: Ipv6Addr, message: RouterAdvertisement) {
    let message = NdpRepr::RouterAdvertisement(message);
    net.inject(0, [craft::ndp(from, ALL_NODES, 255, &message)]);
}

fn formed(prefix: Ipv6Addr) -> IpAddr {
    stable_address(prefix, station(0), 0, &KEY).into()
}

fn state(net: &Net, address: IpAddr) -> Option<(AddressOrigin, AddressState)> {
    let host = &net.hosts[0];
    let all = host.shard.addresses(host.interface);
    let found = all.iter().find(|status| status.cidr.address() == address);
    found.map(|status| (status.origin, status.state))
}

/// The IPv6 packets host 0 sent, with the station they went to.
fn packets(net: &Net) -> Vec<([u8; 6], Vec<u8>)> {
    let frames = net.wire.iter().filter(|(from, frame)| *from == 0 && frame[12] == 0x86);
    let split = |frame: &[u8]| {
        let station: [u8; 6] = core::array::from_fn(|index| frame[index]);
        (station, frame[EthernetRepr::LEN..].to_vec())
    };
    frames.map(|(_, frame)| split(frame)).collect()
}

/// RFC 4862, 5.3: a link-local address without any router; RFC 4861, 6.3.7: up to three and more
/// solicitations, the first within a second.
#[test]
fn a_host_without_a_router_has_a_link_local_address_and_asks() {
    let mut net = net();
    let link_local = formed(router(0));
    let expected = (AddressOrigin::LinkLocal, AddressState::Preferred);
    assert_eq!(state(&net, link_local), Some(expected));
    net.run(Duration::from_secs(30));
    let asked: Vec<_> = packets(&net)
        .into_iter()
        .filter_map(|(station, packet)| {
            let view = Ipv6View::parse(&packet).ok()?;
            let envelope = NdpEnvelope {
                source: view.source(),
                destination: view.destination(),
                hop_limit: view.hop_limit(),
            };
            match NdpRepr::parse(view.payload(), &envelope).ok()? {
                NdpRepr::RouterSolicitation { source_link } => {
                    Some((station, envelope.source, source_link))
                }
                _ => None,
            }
        })
        .collect();
    assert!((3..=5).contains(&asked.len()), "after about 1, 5, 13, 29 seconds: {asked:?}");
    let last = asked.last().expect("one at least");
    assert_eq!((last.0, IpAddr::from(last.1)), ([0x33, 0x33, 0, 0, 0, 2], link_local));
    assert_eq!(last.2, Some(station(0)));
    // RFC 4861, 4.1: "MUST NOT be included if the Source Address is the unspecified address".
    for (_, source, link) in asked {
        assert_eq!(source.is_unspecified(), link.is_none());
    }
}

/// RFC 4862, 5.5.3 and RFC 4861, 6.3.4: everything an advertisement brings.
#[test]
fn an_advertisement_brings_an_address_a_route_a_hop_limit_and_an_mtu() {
    let mut net = net();
    while net.hosts[0].shard.poll_address_event().is_some() {}
    net.wire.clear();
    hear(&mut net, router(1), advertisement(7_200, 3_600));
    let address = formed(PREFIX);
    assert_eq!(state(&net, address), Some((AddressOrigin::Router, AddressState::Tentative)));
    net.run(Duration::from_secs(5));
    assert_eq!(state(&net, address), Some((AddressOrigin::Router, AddressState::Preferred)));
    let id = net.hosts[0].interface;
    let events: Vec<_> = core::iter::from_fn(|| net.hosts[0].shard.poll_address_event()).collect();
    let cidr = ip::Cidr::new(address, 64).expect("a network");
    let servers = AddressEvent::NameServers(id, vec![router(0x53).into()]);
    assert_eq!(events, [servers, AddressEvent::Assigned(id, cidr)]);

    net.wire.clear();
    let now = net.now;
    let far: SocketAddr = "[2001:db8:99::1]:80".parse().expect("an address");
    net.hosts[0].shard.tcp_connect(now, None, far).expect("the default route");
    net.step();
    let (to, packet) = packets(&net).pop().expect("a SYN");
    let view = Ipv6View::parse(&packet).expect("sound");
    assert_eq!(to, STRANGER.0, "the router, whose station its advertisement told");
    assert_eq!((IpAddr::from(view.source()), view.hop_limit()), (address, 33));
    let (header, _) = wire::TcpHeader::parse(view.payload()).expect("sound");
    assert_eq!(header.options.mss, Some(1_240), "1300 less 60");
}

/// RFC 4861, 6.1.2: "IP Source Address is a link-local address [...] The IP Hop Limit field has a
/// value of 255".
#[test]
fn advertisements_from_beyond_the_link_are_refused() {
    let mut net = net();
    let message = NdpRepr::RouterAdvertisement(advertisement(7_200, 3_600));
    net.inject(0, [craft::ndp(router(1), ALL_NODES, 254, &message)]);
    let global = "2001:db8::66".parse().expect("an address");
    net.inject(0, [craft::ndp(global, ALL_NODES, 255, &message)]);
    assert_eq!(state(&net, formed(PREFIX)), None);
    let drops = net.hosts[0].shard.counters().drops;
    assert_eq!(drops.count(DropReason::MalformedNeighbour), 2);
    // And a host that was not told to listen does not.
    hear(&mut net, router(1), advertisement(7_200, 3_600));
    assert!(state(&net, formed(PREFIX)).is_some());
    net.inject(1, [craft::ndp(router(1), ALL_NODES, 255, &message)]);
    let drops = net.hosts[1].shard.counters().drops;
    assert_eq!(drops.count(DropReason::UnrelatedIcmp), 1);
}

/// RFC 4862, 5.5.4: deprecated addresses are not taken for what is new, and connections end with
/// an address that is not valid any more.
#[test]
fn a_formed_address_is_deprecated_then_goes_with_its_connections() {
    let mut net = net();
    hear(&mut net, router(1), advertisement(100, 50));
    net.run(Duration::from_secs(5));
    let far: SocketAddr = "[2001:db8:99::1]:80".parse().expect("an address");
    net.run(Duration::from_secs(50));
    let deprecated = (AddressOrigin::Router, AddressState::Deprecated);
    assert_eq!(state(&net, formed(PREFIX)), Some(deprecated));
    let now = net.now;
    let other = net.hosts[0].shard.tcp_connect(now, None, far).expect("the default route");
    let local = net.hosts[0].shard.tcp_status(other).expect("open").local;
    assert_eq!(local.ip(), harness::address(0, true), "the fixed address, though of another label");
    net.run(Duration::from_secs(43));
    // Its station is told anew, so that the router is not found silent first.
    let prefixes = Prefixes::default();
    hear(&mut net, router(1), RouterAdvertisement { prefixes, ..advertisement(0, 0) });
    let (now, own) = (net.now, SocketAddr::new(formed(PREFIX), 0));
    let socket = net.hosts[0].shard.tcp_connect(now, Some(own), far).expect("still valid");
    net.run(Duration::from_secs(2));
    assert_eq!(state(&net, formed(PREFIX)), None);
    let error = net.hosts[0].shard.tcp_status(socket).expect("not closed").error;
    assert_eq!(error, Some(SocketError::AddressRemoved));
}

/// RFC 4861, 6.3.5: "whenever the Lifetime of an entry in the Default Router List expires [...] the
/// host MUST update the Destination Cache in such a way that all entries using the router perform
/// next-hop determination again".
#[test]
fn connections_move_to_another_router_when_theirs_goes() {
    let mut net = net();
    hear(&mut net, router(1), advertisement(7_200, 3_600));
    net.run(Duration::from_secs(5));
    let far: SocketAddr = "[2001:db8:99::1]:80".parse().expect("an address");
    let now = net.now;
    net.hosts[0].shard.tcp_connect(now, None, far).expect("the default route");
    net.step();
    let other = wire::HardwareAddress([2, 0, 0, 0, 0, 77]);
    let second = RouterAdvertisement { source_link: Some(other), ..advertisement(7_200, 3_600) };
    hear(&mut net, router(2), second);
    let gone = RouterAdvertisement { router_lifetime_s: 0, ..advertisement(7_200, 3_600) };
    hear(&mut net, router(1), gone);
    net.wire.clear();
    net.run(Duration::from_secs(2));
    let to: Vec<_> = packets(&net)
        .into_iter()
        .filter(|(_, packet)| packet[6] == wire::protocol::TCP)
        .map(|(station, _)| station)
        .collect();
    assert!(!to.is_empty() && to.iter().all(|station| *station == other.0), "{to:?}");
}

#[test]
fn redirects_are_refused_by_name() {
    let mut net = net();
    hear(&mut net, router(1), advertisement(7_200, 3_600));
    net.run(Duration::from_secs(5));
    let message = NdpRepr::Redirect {
        target: router(9),
        destination: "2001:db8:99::1".parse().expect("an address"),
        target_link: None,
    };
    let IpAddr::V6(ours) = formed(PREFIX) else { panic!("formed from an IPv6 prefix") };
    net.inject(0, [craft::ndp(router(1), ours, 255, &message)]);
    assert_eq!(net.hosts[0].shard.counters().drops.count(DropReason::RedirectRefused), 1);
}

#[test]
fn a_fixed_gateway_stays_whatever_routers_say() {
    let mut net = Net::new(TransmitMode::Multidata, true);
    let (now, mtu) = (net.now, 1_500);
    let gateway = harness::address(1, true);
    let shard = &mut net.hosts[0].shard;
    let id = shard
        .add_interface(stack::InterfaceConfig {
            capabilities: device::Capabilities::plain(device::Medium::Ethernet(station(5)), mtu),
            mode: Some(TransmitMode::Multidata),
            addresses: vec!["fd00::1/64".parse().expect("a network")],
            gateways: vec![gateway],
        })
        .expect("a sound configuration");
    net.hosts[0].interface = id;
    let config =
        AddressingConfig { routers: Some(RouterConfig::new(KEY)), ..AddressingConfig::default() };
    net.hosts[0].shard.start_addressing(now, id, config);
    net.run(Duration::from_secs(5));
    hear(&mut net, router(1), advertisement(7_200, 3_600));
    net.run(Duration::from_secs(5));
    net.wire.clear();
    let far: SocketAddr = "[2001:db8:99::1]:80".parse().expect("an address");
    let now = net.now;
    net.hosts[0].shard.tcp_connect(now, None, far).expect("the default route");
    net.run(Duration::from_millis(500));
    let syn = packets(&net).into_iter().find(|(_, packet)| packet[6] == wire::protocol::TCP);
    assert_eq!(syn.expect("a SYN").0, station(1).0, "the second host, not the router");
}

/// RFC 4861, 6.3.2: CurHopLimit is "the default hop limit to be used when sending IP packets", also those that
/// answer and are no socket's.
#[test]
fn an_advertised_hop_limit_is_that_of_answers_too() {
    let mut net = net();
    hear(&mut net, router(1), advertisement(7_200, 3_600));
    net.run(Duration::from_secs(5));
    let (now, ids) = (net.now, net.hosts.each_ref().map(|host| host.interface));
    let (ours, far) = (harness::address(0, true), "2606:2800:21f::1".parse().expect("an address"));
    let prefix = ip::Cidr::new(far, 64).expect("a network");
    let [first, second] = &mut net.hosts;
    first.shard.set_accepted(ids[0], &[prefix]).expect("an interface");
    let forwarder = first.shard.tcp_forward(prefix, 8).expect("it is accepted");
    first.shard.tcp_listen((ours, 80).into(), 8).expect("a free port");
    second.shard.add_route(now, prefix, Some(ours), ids[1]).expect("an interface");
    for to in [(ours, 80), (ours, 81), (far, 80)] {
        second.shard.tcp_connect(now, None, to.into()).expect("a route");
    }
    let socket = second.shard.udp_bind((harness::address(1, true), 0).into()).expect("a port");
    let bytes = batch::Chunk::whole(batch::Block::from(bytes::Bytes::from_static(b"to nobody")));
    second.shard.udp_send(socket, Some((ours, 81).into()), bytes).expect("room");
    net.wire.clear();
    net.run(Duration::from_millis(100));
    let pending = net.hosts[0].shard.tcp_next_pending(forwarder).expect("a SYN came");
    net.hosts[0].shard.tcp_refuse_pending(now, &pending);
    net.run(Duration::from_millis(100));
    // Those of neighbour discovery have 255, always.
    let mut answers: Vec<_> = packets(&net)
        .iter()
        .map(|(_, packet)| (packet[6], packet[7], packet[53]))
        .filter(|(_, hop_limit, _)| *hop_limit != 255)
        .map(|(protocol, hop_limit, flags)| match protocol {
            wire::protocol::TCP => ("segment", hop_limit, wire::TcpFlags(flags)),
            _ => ("error", hop_limit, wire::TcpFlags(0)),
        })
        .collect();
    answers.sort_by_key(|(kind, _, flags)| (*kind, flags.0));
    let reset = wire::TcpFlags::RST | wire::TcpFlags::ACK;
    let syn_ack = wire::TcpFlags::SYN | wire::TcpFlags::ACK;
    let segments = [syn_ack, reset, reset].map(|flags| ("segment", 33, flags));
    assert_eq!(answers, [&[("error", 33, wire::TcpFlags(0))], &segments[..]].concat());
}
