//! A host that speaks as the router of its link, host 1, before one that listens to routers.

use crate::harness::craft::{self, STRANGER};
use crate::harness::{Net, station};
use crate::routers::{KEY, listening};
use core::net::{IpAddr, Ipv6Addr};
use counters::DropReason;
use device::TransmitMode;
use ip::Cidr;
use ip::router::stable_address;
use stack::{AddressState, AddressingConfig, SocketError};
use time::{Duration, Instant};
use wire::ndp::{NDP_HOP_LIMIT, NameServers, PrefixInformation, RouterAdvertisement};
use wire::{EthernetRepr, HardwareAddress, Ipv6View, NdpEnvelope, NdpRepr};

const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
const PREFIX: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 0);
const NAME_SERVER: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 3);
const FAR: &str = "[2001:db8:ffff::1]:80";

fn advertisement() -> RouterAdvertisement {
    let prefix = PrefixInformation {
        prefix: PREFIX,
        prefix_len_bits: 64,
        on_link: true,
        autonomous: true,
        valid_s: 7_200,
        preferred_s: 3_600,
    };
    RouterAdvertisement {
        router_lifetime_s: 1_800,
        mtu_bytes: Some(1_400),
        prefixes: vec![prefix],
        name_servers: vec![NameServers { lifetime_s: 1_800, addresses: vec![NAME_SERVER] }],
        ..RouterAdvertisement::default()
    }
}

/// A net whose host 1 has a link-local address and accepts all others, and whose host 0 does not listen yet.
fn net() -> Net {
    let mut net = Net::new(TransmitMode::Multidata, true);
    let (now, id) = (net.now, net.hosts[1].interface);
    let router = &mut net.hosts[1].shard;
    router.start_addressing(now, id, AddressingConfig::default());
    router.set_accepted(id, &[Cidr::ANY_IPV6]).expect("an interface");
    net
}

fn advertise(net: &mut Net, message: RouterAdvertisement) -> Result<(), SocketError> {
    let (now, id) = (net.now, net.hosts[1].interface);
    net.hosts[1].shard.advertise_router(now, id, message)
}

fn listen(net: &mut Net) {
    let (now, id) = (net.now, net.hosts[0].interface);
    net.hosts[0].shard.start_addressing(now, id, listening());
}

/// What host 1 said to its neighbours since the wire was cleared: to which station, in what envelope, and what.
fn said(net: &Net) -> Vec<(HardwareAddress, NdpEnvelope, NdpRepr)> {
    let said = net.wire.iter().filter(|(from, _)| *from == 1).filter_map(|(_, frame)| {
        let to = HardwareAddress(core::array::from_fn(|at| frame[at]));
        let view = Ipv6View::parse(&frame[EthernetRepr::LEN..]).ok()?;
        let (source, destination) = (view.source(), view.destination());
        let envelope = NdpEnvelope { source, destination, hop_limit: view.hop_limit() };
        NdpRepr::parse(view.payload(), &envelope).ok().map(|message| (to, envelope, message))
    });
    said.collect()
}

fn advertisements(net: &Net) -> Vec<(HardwareAddress, NdpEnvelope, RouterAdvertisement)> {
    let all = said(net).into_iter().filter_map(|(to, envelope, message)| match message {
        NdpRepr::RouterAdvertisement(message) => Some((to, envelope, message)),
        _ => None,
    });
    all.collect()
}

/// The station to which a SYN to far away leaves host 0, where one does.
fn way(net: &mut Net) -> Option<HardwareAddress> {
    net.wire.clear();
    let now = net.now;
    net.hosts[0].shard.tcp_connect(now, None, FAR.parse().expect("an address")).ok()?;
    net.run(Duration::from_millis(500));
    let is_tcp = |frame: &[u8]| frame[12] == 0x86 && frame[EthernetRepr::LEN + 6] == 6;
    let syn = net.wire.iter().find(|(from, frame)| *from == 0 && is_tcp(frame));
    syn.map(|(_, frame)| HardwareAddress(core::array::from_fn(|at| frame[at])))
}

/// RFC 4861, 4.2 and 6.2.3: hop limit 255, a link-local source, to all nodes; 6.2.6: who asks hears of it.
#[test]
fn a_host_has_its_address_its_router_and_its_name_server() {
    let mut net = net();
    // Its own address is settled when it is asked.
    net.run(Duration::from_secs(5));
    advertise(&mut net, advertisement()).expect("it has an interface");
    net.run(Duration::from_secs(100));
    net.wire.clear();
    listen(&mut net);
    net.run(Duration::from_secs(5));
    let all = advertisements(&net);
    let [(to, envelope, message)] = &all[..] else { panic!("{all:?}") };
    assert_eq!(*to, HardwareAddress([0x33, 0x33, 0, 0, 0, 1]));
    assert!(envelope.source.is_unicast_link_local());
    assert_eq!((envelope.destination, envelope.hop_limit), (ALL_NODES, NDP_HOP_LIMIT));
    let whole = RouterAdvertisement { source_link: Some(station(1)), ..advertisement() };
    assert_eq!(*message, whole);
    let host = &net.hosts[0];
    let own = IpAddr::from(stable_address(PREFIX, station(0), 0, &KEY));
    let addresses = host.shard.addresses(host.interface);
    let formed = addresses.iter().find(|status| status.cidr.address() == own).expect("formed");
    // Whoever accepts all addresses does not say that it has this one.
    assert_eq!(formed.state, AddressState::Preferred);
    assert_eq!(host.shard.name_servers(host.interface), [IpAddr::from(NAME_SERVER)]);
    assert_eq!(host.shard.mtus(host.interface).map(|(_, mtu_bytes)| mtu_bytes), Some(1_400));
    assert_eq!(way(&mut net), Some(station(1)));
    assert_eq!(net.hosts[1].shard.counters().routers.router_advertisements_sent, 5);
}

/// RFC 4861, 7.2.5: an answer without the router flag would have the host forget its router.
#[test]
fn a_router_says_that_it_is_one_when_it_is_asked_whether_it_is_there() {
    let mut net = net();
    advertise(&mut net, advertisement()).expect("it has an interface");
    listen(&mut net);
    net.run(Duration::from_secs(10));
    for _ in 0..4 {
        assert_eq!(way(&mut net), Some(station(1)));
        net.run(Duration::from_secs(60));
        let answers: Vec<bool> = said(&net)
            .into_iter()
            .filter_map(|(_, _, message)| match message {
                NdpRepr::NeighbourAdvertisement { router, .. } => Some(router),
                _ => None,
            })
            .collect();
        assert!(!answers.is_empty() && answers.iter().all(|router| *router), "{answers:?}");
    }
}

/// RFC 4429, 3.2, of solicitations: the address that it speaks from may turn out to be another's.
#[test]
fn an_unsettled_router_does_not_tell_its_hardware_address() {
    let mut net = net();
    advertise(&mut net, advertisement()).expect("it has an interface");
    net.run(Duration::from_millis(600));
    let all = advertisements(&net);
    let [(_, _, first)] = &all[..] else { panic!("{all:?}") };
    assert_eq!(first.source_link, None);
    net.run(Duration::from_secs(30));
    let all = advertisements(&net);
    assert_eq!(all.last().map(|(_, _, last)| last.source_link), Some(Some(station(1))));
}

/// RFC 4861, 6.2.4: what changes is told, a way out that is there no more above all.
#[test]
fn a_host_is_told_that_there_is_no_way_out_any_more() {
    let mut net = net();
    advertise(&mut net, advertisement()).expect("it has an interface");
    listen(&mut net);
    net.run(Duration::from_secs(10));
    assert_eq!(way(&mut net), Some(station(1)));
    for (router_lifetime_s, expected) in [(0, None), (1_800, Some(station(1)))] {
        let message = RouterAdvertisement { router_lifetime_s, ..advertisement() };
        advertise(&mut net, message).expect("it has an interface");
        net.run(Duration::from_secs(4));
        assert_eq!(way(&mut net), expected);
    }
}

/// RFC 4861, 6.1.1.
#[test]
fn what_no_host_of_the_link_could_have_asked_is_not_answered() {
    let mut net = net();
    advertise(&mut net, advertisement()).expect("it has an interface");
    net.run(Duration::from_secs(100));
    let host = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0x77);
    let nobody = Ipv6Addr::UNSPECIFIED;
    let link = Some(STRANGER);
    let sound = [(host, 255, link), (host, 255, None), (nobody, 255, None)];
    let unsound = [(host, 254, link), (nobody, 255, link), (nobody, 64, None)];
    let cases = sound.map(|it| (it, 1)).into_iter().chain(unsound.map(|it| (it, 0)));
    for ((source, hop_limit, source_link), answers) in cases {
        net.wire.clear();
        let message = NdpRepr::RouterSolicitation { source_link };
        net.inject(1, [craft::ndp(source, ALL_ROUTERS, hop_limit, &message)]);
        net.run(Duration::from_secs(4));
        assert_eq!(advertisements(&net).len(), answers, "{source} {hop_limit} {source_link:?}");
    }
    let refused = net.hosts[1].shard.counters().drops.count(DropReason::MalformedNeighbour);
    assert_eq!(refused, unsound.len() as u64);
}

/// RFC 4861, 6.2.6: "no more than one advertisement every MIN_DELAY_BETWEEN_RAS seconds".
#[test]
fn a_flood_of_solicitations_is_answered_every_three_seconds() {
    let mut net = net();
    advertise(&mut net, advertisement()).expect("it has an interface");
    net.run(Duration::from_secs(100));
    net.wire.clear();
    let mut times: Vec<Instant> = Vec::new();
    for number in 0..10_000_u32 {
        // As from another host each.
        let [_, _, high, low] = number.to_be_bytes();
        let source = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 1, number as u16);
        let source_link = Some(HardwareAddress([2, 0, 0, 9, high, low]));
        let message = NdpRepr::RouterSolicitation { source_link };
        net.inject(1, [craft::ndp(source, ALL_ROUTERS, 255, &message)]);
        net.run(Duration::from_millis(1));
        let all = advertisements(&net).len();
        times.resize(all, net.now);
    }
    assert!((3..=4).contains(&times.len()), "{times:?}");
    let is_slow = |pair: &[Instant]| pair[1] - pair[0] >= Duration::from_millis(2_999);
    assert!(times.windows(2).all(is_slow), "{times:?}");
    let (now, id) = (net.now, net.hosts[1].interface);
    let known = net.hosts[1].shard.list_neighbours(now, id).count();
    assert!(known <= 1_024, "{known} neighbours are kept");
}

#[test]
fn who_advertises_nothing_hears_no_solicitation_and_too_much_cannot_be_said() {
    let mut net = net();
    net.run(Duration::from_secs(5));
    let message = NdpRepr::RouterSolicitation { source_link: Some(STRANGER) };
    let host = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0x77);
    net.inject(1, [craft::ndp(host, ALL_ROUTERS, 255, &message)]);
    let drops = net.hosts[1].shard.counters().drops;
    assert_eq!(drops.count(DropReason::NotOurAddress), 1);
    // 1240 bytes: 16, 8 with the hardware address, 8 with the MTU, and an option of 1208 with 75 servers.
    let with = |count| {
        let name_servers =
            vec![NameServers { lifetime_s: 1_800, addresses: vec![NAME_SERVER; count] }];
        RouterAdvertisement { prefixes: Vec::new(), name_servers, ..advertisement() }
    };
    assert_eq!(advertise(&mut net, with(76)), Err(SocketError::MessageTooLong));
    // Eight bytes too many, which are those of the hardware address.
    let mut in_two = with(74);
    let server = NameServers { lifetime_s: 600, addresses: vec![NAME_SERVER] };
    in_two.name_servers.push(server);
    assert_eq!(advertise(&mut net, in_two), Err(SocketError::MessageTooLong));
    net.run(Duration::from_secs(60));
    assert_eq!(advertisements(&net), []);
    advertise(&mut net, with(75)).expect("it fits");
    net.run(Duration::from_secs(1));
    let all = advertisements(&net);
    assert_eq!(
        all.first().map(|(_, _, message)| message.name_servers[0].addresses.len()),
        Some(75)
    );
}

/// RFC 4861, 6.2.6, whatever is said.
#[test]
fn who_has_another_message_again_and_again_is_heard_every_three_seconds() {
    let mut net = net();
    advertise(&mut net, advertisement()).expect("it has an interface");
    net.run(Duration::from_secs(100));
    net.wire.clear();
    let sent = |net: &Net| net.hosts[1].shard.counters().routers.router_advertisements_sent;
    let before = sent(&net);
    for router_lifetime_s in 1_000..1_020 {
        let message = RouterAdvertisement { router_lifetime_s, ..advertisement() };
        advertise(&mut net, message).expect("it has an interface");
        net.run(Duration::from_millis(500));
    }
    let count = advertisements(&net).len();
    assert!((3..=4).contains(&count), "{count} in ten seconds");
    assert_eq!(sent(&net), before + count as u64);
}

/// RFC 4861, 6.2.4: nobody there need have heard anything.
#[test]
fn a_router_speaks_on_a_new_link_as_at_the_beginning() {
    let mut net = net();
    advertise(&mut net, advertisement()).expect("it has an interface");
    net.run(Duration::from_secs(100));
    net.wire.clear();
    net.run(Duration::from_secs(40));
    assert_eq!(advertisements(&net), []);
    let (now, id) = (net.now, net.hosts[1].interface);
    net.hosts[1].shard.on_link_changed(now, id);
    net.run(Duration::from_secs(40));
    let count = advertisements(&net).len();
    assert_eq!(count, 3, "16 s apart");
}
