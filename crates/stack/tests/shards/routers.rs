//! Addresses and routes from router advertisements, between two shards in virtual time; the second
//! host stands for the router, and advertisements are crafted.

use crate::harness::craft::{self, STRANGER};
use crate::harness::{self, Net, station};
use core::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use counters::DropReason;
use device::TransmitMode;
use ip::router::{IdentifierKey, RouterConfig, stable_address};
use stack::{
    AddressEvent, AddressOrigin, AddressState, AddressingConfig, ClaimPolicy, SocketError,
};
use time::Duration;
use wire::ndp::{NameServers, PrefixInformation, RouterAdvertisement, RouterPreference};
use wire::{EthernetRepr, HardwareAddress, Ipv6View, NdpEnvelope, NdpRepr};

pub(crate) const KEY: IdentifierKey = IdentifierKey([9; 16]);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const PREFIX: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 0);
const OTHER_PREFIX: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 0);

/// Of a host that listens to routers.
pub(crate) fn listening() -> AddressingConfig {
    AddressingConfig {
        ipv6: ClaimPolicy::Probe,
        routers: Some(RouterConfig::new(KEY)),
        ..AddressingConfig::default()
    }
}

/// A net whose first host listens to routers.
fn net() -> Net {
    let mut net = Net::new(TransmitMode::Multidata, true);
    let (now, id) = (net.now, net.hosts[0].interface);
    net.hosts[0].shard.start_addressing(now, id, listening());
    net.run(Duration::from_secs(5));
    net
}

fn router(host: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, host)
}

/// An advertisement with a prefix that is on the link and forms addresses.
fn advertisement(valid_s: u32, preferred_s: u32) -> RouterAdvertisement {
    let prefixes = vec![PrefixInformation {
        prefix: PREFIX,
        prefix_len_bits: 64,
        on_link: true,
        autonomous: true,
        valid_s,
        preferred_s,
    }];
    let name_servers = vec![NameServers { lifetime_s: 1_000, addresses: vec![router(0x53)] }];
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

/// The router solicitations among them: the station each went to, its source, and the station it names.
fn solicitations(net: &Net) -> Vec<([u8; 6], Ipv6Addr, Option<HardwareAddress>)> {
    let asked = packets(net).into_iter().filter_map(|(station, packet)| {
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
    });
    asked.collect()
}

/// The station that a SYN to this address goes to, if it leaves at all.
fn way(net: &mut Net, to: &str) -> Option<[u8; 6]> {
    net.wire.clear();
    let (now, to) = (net.now, format!("[{to}]:80").parse().expect("an address"));
    net.hosts[0].shard.tcp_connect(now, None, to).ok()?;
    net.run(Duration::from_millis(500));
    let sent = packets(net);
    sent.iter().find(|(_, packet)| packet[6] == wire::protocol::TCP).map(|(station, _)| *station)
}

fn on_link(prefix: Ipv6Addr, prefix_len_bits: u8, valid_s: u32) -> RouterAdvertisement {
    let (on_link, autonomous, preferred_s) = (true, false, 0);
    let prefixes = vec![PrefixInformation {
        prefix,
        prefix_len_bits,
        on_link,
        autonomous,
        valid_s,
        preferred_s,
    }];
    RouterAdvertisement { prefixes, ..advertisement(0, 0) }
}

/// An advertisement of a neighbour that is no router.
fn no_router(net: &mut Net, link: HardwareAddress, replaces: bool) {
    let (target, target_link) = (router(1), Some(link));
    let message = NdpRepr::NeighbourAdvertisement {
        router: false,
        solicited: false,
        replaces,
        target,
        target_link,
    };
    net.inject(0, [craft::ndp(target, ALL_NODES, 255, &message)]);
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
    let asked = solicitations(&net);
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
    let prefixes = Vec::new();
    hear(&mut net, router(1), RouterAdvertisement { prefixes, ..advertisement(0, 0) });
    let (now, own) = (net.now, SocketAddr::new(formed(PREFIX), 0));
    let socket = net.hosts[0].shard.tcp_connect(now, Some(own), far).expect("still valid");
    net.run(Duration::from_secs(2));
    assert_eq!(state(&net, formed(PREFIX)), None);
    let error = net.hosts[0].shard.tcp_status(socket).expect("not closed").error;
    assert_eq!(error, Some(SocketError::AddressRemoved));
}

/// An advertisement that names another prefix first may find that one over, and then form its address anew.
#[test]
fn connections_stay_with_an_address_that_is_had_again_at_once() {
    let mut net = Net::new(TransmitMode::Multidata, true);
    let (now, id) = (net.now, net.hosts[0].interface);
    let config = AddressingConfig { ipv6: ClaimPolicy::Trust, ..listening() };
    net.hosts[0].shard.start_addressing(now, id, config);
    hear(&mut net, router(1), advertisement(100, 100));
    net.run(Duration::from_secs(99));
    let own = SocketAddr::new(formed(PREFIX), 0);
    let far: SocketAddr = "[2001:db8:99::1]:80".parse().expect("an address");
    let near = SocketAddrV6::new(router(1), 80, 0, id.scope_id()).into();
    let now = net.now;
    let shard = &mut net.hosts[0].shard;
    let sockets = [far, near].map(|to| shard.tcp_connect(now, Some(own), to).expect("a route"));
    while shard.poll_address_event().is_some() {}
    net.now += Duration::from_secs(2);
    let mut message = advertisement(100, 100);
    let other = PrefixInformation { prefix: OTHER_PREFIX, ..message.prefixes[0] };
    message.prefixes.insert(0, other);
    hear(&mut net, router(1), message);
    let shard = &mut net.hosts[0].shard;
    let events = core::iter::from_fn(|| shard.poll_address_event());
    let [mut removed, mut assigned] = [0, 0];
    for event in events {
        match event {
            AddressEvent::Removed(_, cidr) if cidr.address() == own.ip() => removed += 1,
            AddressEvent::Assigned(_, cidr) if cidr.address() == own.ip() => assigned += 1,
            _ => {}
        }
    }
    assert_eq!((removed, assigned), (1, 1));
    let errors = sockets.map(|it| shard.tcp_status(it).expect("not closed").error);
    assert_eq!(errors, [None, None]);
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

#[test]
fn routes_of_the_program_stay_whatever_routers_call_on_link() {
    let mut net = net();
    let (now, id) = (net.now, net.hosts[0].interface);
    let gateway = Some(harness::address(1, true));
    for network in ["::/0", "2001:db8:1::/64"] {
        let network = network.parse().expect("a network");
        net.hosts[0].shard.add_route(now, network, gateway, id).expect("of the interface's family");
    }
    let ours = Some(station(1).0);
    for valid_s in [600, 0] {
        hear(&mut net, router(1), on_link(Ipv6Addr::UNSPECIFIED, 0, valid_s));
        assert_eq!(way(&mut net, "2001:db8:99::1"), ours);
        hear(&mut net, router(1), on_link(PREFIX, 64, valid_s));
        assert_eq!(way(&mut net, "2001:db8:1::99"), ours);
    }
    // What the program says after a router stays as well.
    let other = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 0);
    hear(&mut net, router(1), on_link(other, 64, 600));
    let now = net.now;
    let network = ip::Cidr::new(other.into(), 64).expect("a network");
    net.hosts[0].shard.add_route(now, network, gateway, id).expect("of the interface's family");
    hear(&mut net, router(1), on_link(other, 64, 0));
    assert_eq!(way(&mut net, "2001:db8:2::99"), ours);
    // Nor does a router that goes take the program's default route along.
    hear(&mut net, router(1), RouterAdvertisement { router_lifetime_s: 0, ..advertisement(0, 0) });
    assert_eq!(way(&mut net, "2001:db8:99::1"), ours);
}

/// RFC 4861, 6.3.4, with RFC 5942, 4: what is on the link, the prefix information says, and no formed address.
#[test]
fn a_network_is_on_the_link_for_as_long_as_routers_say_so() {
    let mut net = net();
    hear(&mut net, router(1), advertisement(7_200, 3_600));
    net.run(Duration::from_secs(5));
    assert_eq!(way(&mut net, "2001:db8:1::99"), None, "nobody there answers");
    hear(&mut net, router(1), on_link(PREFIX, 64, 0));
    assert!(state(&net, formed(PREFIX)).is_some());
    assert_eq!(way(&mut net, "2001:db8:1::98"), Some(STRANGER.0), "the router may know");
    // A fixed address on the network says so, too, and neither takes the other's word back.
    let own = "2001:db8:1::5/64".parse().expect("an address");
    let (now, id) = (net.now, net.hosts[0].interface);
    net.hosts[0].shard.add_address(now, id, own).expect("room");
    net.run(Duration::from_secs(5));
    hear(&mut net, router(1), on_link(PREFIX, 64, 600));
    let now = net.now;
    net.hosts[0].shard.remove_address(now, id, own.address()).expect("ours");
    assert_eq!(way(&mut net, "2001:db8:1::97"), None);
    hear(&mut net, router(1), on_link(PREFIX, 64, 0));
    assert_eq!(way(&mut net, "2001:db8:1::96"), Some(STRANGER.0));
}

/// RFC 4861, 7.2.5: an advertisement that names another station and does not replace the known one "MUST NOT
/// update the cache", nor does one of a neighbour there is no entry of.
#[test]
fn a_router_goes_only_where_its_neighbour_entry_is_updated() {
    let other = HardwareAddress([2, 0, 0, 0, 0, 77]);
    let mut net = net();
    let without_link = RouterAdvertisement { source_link: None, ..advertisement(7_200, 3_600) };
    hear(&mut net, router(1), without_link);
    no_router(&mut net, other, true);
    hear(&mut net, router(1), advertisement(7_200, 3_600));
    no_router(&mut net, other, false);
    let far = "2001:db8:99::1";
    assert_eq!(way(&mut net, far), Some(STRANGER.0));
    net.wire.clear();
    net.run(Duration::from_secs(5));
    assert_eq!(solicitations(&net), []);
    no_router(&mut net, other, true);
    assert_eq!(way(&mut net, far), None);
    net.run(Duration::from_secs(3));
    assert_eq!(solicitations(&net).len(), 1, "who has no router asks");
    hear(&mut net, router(1), advertisement(7_200, 3_600));
    assert_eq!(way(&mut net, far), Some(STRANGER.0));
}

/// RFC 4862, 5.4.4: whoever says that a settled address is theirs does not take it away by that.
#[test]
fn a_settled_address_is_kept_and_defended() {
    let mut net = net();
    hear(&mut net, router(1), advertisement(7_200, 3_600));
    net.run(Duration::from_secs(5));
    for address in [formed(PREFIX), formed(router(0))] {
        let before = state(&net, address).expect("settled");
        let IpAddr::V6(target) = address else { panic!("formed from an IPv6 prefix") };
        for _ in 0..5 {
            let message = NdpRepr::NeighbourAdvertisement {
                router: false,
                solicited: false,
                replaces: true,
                target,
                target_link: Some(STRANGER),
            };
            net.inject(0, [craft::ndp(router(9), ALL_NODES, 255, &message)]);
            net.run(Duration::from_secs(1));
        }
        assert_eq!(state(&net, address), Some(before));
    }
    let events = core::iter::from_fn(|| net.hosts[0].shard.poll_address_event());
    let told = events.filter(|event| matches!(event, AddressEvent::Duplicate(..))).count();
    assert_eq!(told, 2, "each is told of once in ten seconds");
}

/// RFC 4861, 6.3.7: a host that is attached to a link again asks for its routers.
#[test]
fn routers_are_asked_for_when_the_device_is_replaced() {
    let mut net = net();
    hear(&mut net, router(1), advertisement(7_200, 3_600));
    net.run(Duration::from_secs(5));
    net.wire.clear();
    let (now, id) = (net.now, net.hosts[0].interface);
    let medium = device::Medium::Ethernet(station(0));
    let capabilities = device::Capabilities::plain(medium, 1_500);
    net.hosts[0].shard.on_device_replaced(now, id, capabilities);
    net.run(Duration::from_secs(2));
    assert_eq!(solicitations(&net).len(), 1);
}

/// What a router says counts again when the program takes its own word back, and a path that was limited stays so
/// when another router takes over.
#[test]
fn a_learned_router_stands_in_for_a_route_that_goes() {
    const FAR: &str = "2001:db8:99::1";
    let mut net = net();
    hear(&mut net, router(1), advertisement(7_200, 3_600));
    net.run(Duration::from_secs(5));
    let (now, id) = (net.now, net.hosts[0].interface);
    let everywhere = ip::Cidr::ANY_IPV6;
    net.hosts[0].shard.set_route_mtu(everywhere, Some(1_290)).expect("it was learned");
    let mtu = |net: &Net| net.hosts[0].shard.path_mtu(FAR.parse().expect("an address"));
    assert_eq!((way(&mut net, FAR), mtu(&net)), (Some(STRANGER.0), Ok(1_290)));
    let gateway = Some(harness::address(1, true));
    net.hosts[0].shard.add_route(now, everywhere, gateway, id).expect("an interface");
    assert_eq!((way(&mut net, FAR), mtu(&net)), (Some(station(1).0), Ok(1_300)));
    // What routers say meanwhile is heard.
    let other = HardwareAddress([2, 0, 0, 0, 0, 77]);
    let preference = RouterPreference::High;
    let better =
        RouterAdvertisement { preference, source_link: Some(other), ..advertisement(7_200, 3_600) };
    hear(&mut net, router(2), better);
    assert_eq!(way(&mut net, FAR), Some(station(1).0));
    let now = net.now;
    net.hosts[0].shard.remove_route(now, everywhere, id).expect("it is there");
    assert_eq!((way(&mut net, FAR), mtu(&net)), (Some(other.0), Ok(1_290)));
}

/// An address that the program fixed is its own, though routers told of its prefix.
#[test]
fn a_fixed_address_outlives_the_prefix_it_could_be_formed_from() {
    let mut net = net();
    let (now, id) = (net.now, net.hosts[0].interface);
    let cidr = ip::Cidr::new(formed(PREFIX), 64).expect("a network");
    net.hosts[0].shard.add_address(now, id, cidr).expect("a new one");
    hear(&mut net, router(1), advertisement(100, 50));
    net.run(Duration::from_secs(60));
    let fixed = Some((AddressOrigin::Fixed, AddressState::Preferred));
    assert_eq!(state(&net, formed(PREFIX)), fixed);
    net.run(Duration::from_secs(60));
    assert_eq!(state(&net, formed(PREFIX)), fixed);
}

// RFC 4861, 7.3.3: that a neighbour answers no probe "signals the need for next-hop determination"; 6.3.6: one that may be
// reachable is preferred.
#[test]
fn a_router_that_answers_no_probe_gives_way_to_the_other() {
    let mut net = net();
    for host in [1, 2] {
        let source_link = Some(HardwareAddress([2, 0, 0, 0, 1, host as u8]));
        hear(
            &mut net,
            router(host),
            RouterAdvertisement { source_link, ..advertisement(7_200, 3_600) },
        );
    }
    net.run(Duration::from_secs(5));
    let began = net.now;
    let second = [2, 0, 0, 0, 1, 2];
    while way(&mut net, "2001:db8:99::1") != Some(second) {
        net.run(Duration::from_millis(100));
        let waited = net.now.since(began);
        // Five seconds in which it counts as reachable still, and three probes.
        assert!(waited < Duration::from_millis(8_500), "{waited:?}");
    }
}

/// RFC 9293, 3.7.1: connections that are open follow an MTU that alone is another in what a router says.
#[test]
fn connections_follow_the_mtu_of_an_advertisement() {
    let mut net = net();
    let before = RouterAdvertisement { mtu_bytes: Some(1_400), ..advertisement(7_200, 3_600) };
    hear(&mut net, router(1), before);
    net.run(Duration::from_secs(5));
    let (socket, _) = net.connect(true);
    hear(&mut net, router(1), advertisement(7_200, 3_600));
    net.write(0, socket, &harness::data(10_000));
    net.wire.clear();
    net.run(Duration::from_millis(10));
    let longest = packets(&net).iter().map(|(_, packet)| packet.len()).max();
    assert_eq!(longest, Some(1_300));
}

/// RFC 4429, 3.2: an optimistic node "MUST NOT" name its hardware address in a router solicitation, as that replaces what
/// routers know of whoever may have the address.
#[test]
fn a_solicitation_from_an_address_that_is_not_settled_names_no_station() {
    let mut net = Net::new(TransmitMode::Multidata, true);
    let (now, id) = (net.now, net.hosts[0].interface);
    let routers = Some(RouterConfig::new(KEY));
    let config = AddressingConfig { routers, ..AddressingConfig::default() };
    net.hosts[0].shard.start_addressing(now, id, config);
    while solicitations(&net).is_empty() {
        net.run(Duration::from_millis(10));
    }
    let optimistic = (AddressOrigin::LinkLocal, AddressState::Optimistic);
    assert_eq!(state(&net, formed(router(0))), Some(optimistic));
    let asked = [([0x33, 0x33, 0, 0, 0, 2], Ipv6Addr::UNSPECIFIED, None)];
    assert_eq!(solicitations(&net), asked);
}

/// RFC 4861, 6.3.4: no more than the link's default, which is what the device takes.
#[test]
fn a_router_cannot_have_packets_longer_than_the_device_takes() {
    let mut net = net();
    let mtu_bytes = Some(9_000);
    hear(&mut net, router(1), RouterAdvertisement { mtu_bytes, ..advertisement(7_200, 3_600) });
    let far = "2001:db8:99::1".parse().expect("an address");
    assert_eq!(net.hosts[0].shard.path_mtu(far), Ok(1_500));
}
