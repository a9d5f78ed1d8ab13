//! The life of addresses between two shards in virtual time: probes, announcements, defence,
//! duplicates, removal.

use crate::harness::{self, Net, station};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use counters::DropReason;
use device::{Capabilities, DeviceError, Medium, TransmitMode};
use stack::{
    AddressEvent, AddressOrigin, AddressState, AddressStatus, AddressingConfig, ClaimPolicy,
    InterfaceConfig, ListenOptions, SocketError,
};
use time::Duration;
use wire::{
    ArpOperation, ArpRepr, ArpView, EthernetRepr, EthernetView, HardwareAddress, Ipv6View,
    NdpEnvelope, NdpRepr, ether_type,
};

const NEW: &str = "10.0.0.7/24";
const NEW_6: &str = "fd00::7/64";

fn guarded(ipv4: ClaimPolicy, ipv6: ClaimPolicy) -> AddressingConfig {
    AddressingConfig { ipv4, ipv6, ..AddressingConfig::default() }
}

fn cidr(text: &str) -> ip::Cidr {
    text.parse().expect("a network")
}

fn address(text: &str) -> IpAddr {
    cidr(text).address()
}

/// A net whose first host guards its addresses as `policy` says, everything sent so far forgotten.
pub(crate) fn net(policy: ClaimPolicy) -> Net {
    let mut net = Net::new(TransmitMode::Multidata, true);
    let id = net.hosts[0].interface;
    net.hosts[0].shard.start_addressing(net.now, id, guarded(policy, policy));
    net.run(Duration::from_secs(20));
    while net.hosts[0].shard.poll_address_event().is_some() {}
    net.wire.clear();
    net
}

fn add(net: &mut Net, host: usize, text: &str) {
    let (now, id) = (net.now, net.hosts[host].interface);
    net.hosts[host].shard.add_address(now, id, cidr(text)).expect("a new address");
}

fn events(net: &mut Net, host: usize) -> Vec<AddressEvent> {
    core::iter::from_fn(|| net.hosts[host].shard.poll_address_event()).collect()
}

fn is_duplicate(event: &AddressEvent) -> bool {
    matches!(event, AddressEvent::Duplicate(..))
}

fn state(net: &Net, host: usize, text: &str) -> Option<AddressState> {
    let host = &net.hosts[host];
    let all = host.shard.addresses(host.interface);
    all.iter().find(|status| status.cidr == cidr(text)).map(|status| status.state)
}

/// The ARP messages a host has sent.
fn arps(net: &Net, from: usize) -> Vec<ArpRepr> {
    let frames = net.wire.iter().filter(|(host, _)| *host == from);
    let bodies = frames.filter_map(|(_, frame)| {
        let view = EthernetView::parse(frame).ok()?;
        (view.ether_type() == ether_type::ARP).then(|| frame[EthernetRepr::LEN..].to_vec())
    });
    bodies.map(|body| ArpRepr::parse(&ArpView::parse(&body).expect("sound ARP"))).collect()
}

/// The messages of neighbour discovery a host has sent, with their packets' source and destination.
fn ndps(net: &Net, from: usize) -> Vec<(Ipv6Addr, Ipv6Addr, NdpRepr)> {
    let frames = net.wire.iter().filter(|(host, _)| *host == from);
    let parsed = frames.filter_map(|(_, frame)| {
        let view = Ipv6View::parse(frame.get(EthernetRepr::LEN..)?).ok()?;
        let envelope = NdpEnvelope {
            source: view.source(),
            destination: view.destination(),
            hop_limit: view.hop_limit(),
        };
        let message = NdpRepr::parse(view.payload(), &envelope).ok()?;
        Some((envelope.source, envelope.destination, message))
    });
    parsed.collect()
}

pub(crate) fn arp(operation: ArpOperation, sender: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    let other = HardwareAddress([2, 0, 0, 0, 0, 99]);
    let mut frame = vec![0; EthernetRepr::LEN + ArpRepr::LEN];
    EthernetRepr {
        destination: HardwareAddress::BROADCAST,
        source: other,
        ether_type: ether_type::ARP,
    }
    .emit(&mut frame);
    ArpRepr {
        operation,
        sender_hardware: other,
        sender_protocol: sender,
        target_hardware: HardwareAddress::ZERO,
        target_protocol: target,
    }
    .emit(&mut frame[EthernetRepr::LEN..]);
    frame
}

fn ipv4(text: &str) -> Ipv4Addr {
    match address(text) {
        IpAddr::V4(address) => address,
        IpAddr::V6(_) => panic!("{text} is of the other family"),
    }
}

/// RFC 5227, 1.1: "ARP Probe: [...] an ARP Request packet, broadcast on the local link, with an
/// all-zero 'sender IP address'"; 2.1.1: the sender hardware address MUST be ours, the target
/// hardware address SHOULD be zero; 2.3: announcements have sender and target IP address ours.
#[test]
fn an_ipv4_address_is_probed_before_it_is_used_and_then_announced() {
    let mut net = net(ClaimPolicy::Probe);
    add(&mut net, 0, NEW);
    assert_eq!(state(&net, 0, NEW), Some(AddressState::Tentative));
    let bound = net.hosts[0].shard.udp_bind(SocketAddr::new(address(NEW), 9));
    assert_eq!(bound, Err(SocketError::AddressNotAvailable), "a tentative address is not usable");
    assert_eq!(events(&mut net, 0), []);
    net.run(Duration::from_secs(20));
    let id = net.hosts[0].interface;
    assert_eq!(events(&mut net, 0), [AddressEvent::Assigned(id, cidr(NEW))]);
    let message = |sender| ArpRepr {
        operation: ArpOperation::Request,
        sender_hardware: station(0),
        sender_protocol: sender,
        target_hardware: HardwareAddress::ZERO,
        target_protocol: ipv4(NEW),
    };
    let (probe, announcement) = (message(Ipv4Addr::UNSPECIFIED), message(ipv4(NEW)));
    assert_eq!(arps(&net, 0), [probe, probe, probe, announcement, announcement]);
    assert!(net.wire.iter().all(|(_, frame)| frame[..6] == [0xff; 6]), "all of them broadcast");
    net.hosts[0].shard.udp_bind(SocketAddr::new(address(NEW), 9)).expect("ours now");
}

/// RFC 5227, 2.1.1: "If [...] the host receives any ARP packet (Request *or* Reply) on the
/// interface where the probe is being performed, where the packet's 'sender IP address' is the
/// address being probed for, then the host MUST treat this address as being in use by some other
/// host"; and the same for a probe of another host for the same address.
#[test]
fn an_answer_and_a_foreign_probe_both_say_that_the_address_is_taken() {
    let zero = Ipv4Addr::UNSPECIFIED;
    let (taken, asker) = (ipv4(NEW), Ipv4Addr::new(10, 0, 0, 2));
    for frame in [
        arp(ArpOperation::Reply, taken, zero),
        arp(ArpOperation::Request, taken, asker),
        arp(ArpOperation::Request, zero, taken),
    ] {
        let mut net = net(ClaimPolicy::Probe);
        add(&mut net, 0, NEW);
        net.run(Duration::from_millis(1_500));
        net.inject(0, [frame]);
        let other = HardwareAddress([2, 0, 0, 0, 0, 99]);
        let id = net.hosts[0].interface;
        assert_eq!(events(&mut net, 0), [AddressEvent::Duplicate(id, address(NEW), other)]);
        assert_eq!(state(&net, 0, NEW), None);
    }
    // A request of somebody who wants to speak to whoever has it says nothing.
    let mut net = net(ClaimPolicy::Probe);
    add(&mut net, 0, NEW);
    net.run(Duration::from_millis(1_500));
    net.inject(0, [arp(ArpOperation::Request, asker, taken)]);
    assert_eq!(state(&net, 0, NEW), Some(AddressState::Tentative));
}

/// RFC 5227, 2.4 (c): a host that keeps a fixed address "MUST NOT [defend] more frequently than
/// once every DEFEND_INTERVAL seconds", so that two hosts do not fight for ever.
#[test]
fn a_fixed_address_is_defended_once_in_ten_seconds_whatever_is_claimed() {
    let mut net = net(ClaimPolicy::Announce);
    let ours = Ipv4Addr::new(10, 0, 0, 1);
    for _ in 0..1_000 {
        net.inject(0, [arp(ArpOperation::Request, ours, ours)]);
        net.step();
    }
    assert_eq!(arps(&net, 0).len(), 1, "one defence");
    assert_eq!(arps(&net, 0)[0].sender_protocol, ours);
    net.run(Duration::from_secs(11));
    net.inject(0, [arp(ArpOperation::Reply, ours, ours)]);
    net.step();
    assert_eq!(arps(&net, 0).len(), 2);
    let counters = net.hosts[0].shard.counters();
    assert_eq!(counters.shard.address_disputes, 1_001);
    assert!(events(&mut net, 0).len() <= 64);
}

/// RFC 4862, 5.4.2: "the node sends DupAddrDetectTransmits Neighbor Solicitations [...] The
/// solicitation's Target Address is set to the address being checked, the IP source is set to the
/// unspecified address, and the IP destination is set to the solicited-node multicast address".
#[test]
fn an_ipv6_address_is_asked_about_before_it_is_used() {
    let mut net = net(ClaimPolicy::Probe);
    add(&mut net, 0, NEW_6);
    assert_eq!(state(&net, 0, NEW_6), Some(AddressState::Tentative));
    net.run(Duration::from_secs(5));
    assert_eq!(state(&net, 0, NEW_6), Some(AddressState::Preferred));
    let target: Ipv6Addr = "fd00::7".parse().expect("an address");
    let asked = NdpRepr::NeighbourSolicitation { target, source_link: None };
    let group = wire::ndp::solicited_node(target);
    assert_eq!(ndps(&net, 0)[0], (Ipv6Addr::UNSPECIFIED, group, asked));
    assert!(matches!(
        ndps(&net, 0)[1],
        (source, _, NdpRepr::NeighbourAdvertisement { solicited: false, .. }) if source == target
    ));
    assert_eq!(ndps(&net, 0).len(), 2);
}

/// RFC 4862, 5.4.3 and 5.4.4: the owner answers, and two that ask at once both hear each other;
/// 5.4.5: "the address cannot be assigned".
#[test]
fn an_ipv6_duplicate_is_found_by_its_owner_and_by_one_who_asks_at_the_same_time() {
    let mut net = net(ClaimPolicy::Probe);
    add(&mut net, 1, NEW_6);
    add(&mut net, 0, NEW_6);
    net.run(Duration::from_secs(5));
    let id = net.hosts[0].interface;
    let duplicate = AddressEvent::Duplicate(id, address(NEW_6), station(1));
    assert_eq!(events(&mut net, 0), [duplicate]);
    assert_eq!(
        (state(&net, 0, NEW_6), state(&net, 1, NEW_6)),
        (None, Some(AddressState::Preferred))
    );

    let mut net = self::net(ClaimPolicy::Probe);
    let (now, other) = (net.now, net.hosts[1].interface);
    let config = guarded(ClaimPolicy::Probe, ClaimPolicy::Probe);
    net.hosts[1].shard.start_addressing(now, other, config);
    net.run(Duration::from_secs(20));
    add(&mut net, 1, NEW_6);
    add(&mut net, 0, NEW_6);
    net.run(Duration::from_secs(5));
    // Whoever heard the other one's question while its own was open has given up.
    let held = [0, 1].map(|host| state(&net, host, NEW_6).is_some());
    assert_ne!(held, [true, true]);
    let told = [0, 1].map(|host| events(&mut net, host).iter().any(is_duplicate));
    assert_eq!(told, held.map(|held| !held));
}

/// RFC 4429, 3.3: an optimistic address is used at once; 2.1: it "must not [...] override existing
/// entries in neighbours' caches": no source link-layer option, no override flag.
#[test]
fn an_optimistic_address_works_at_once_and_replaces_nothing() {
    let mut net = net(ClaimPolicy::Optimistic);
    add(&mut net, 0, NEW_6);
    assert_eq!(state(&net, 0, NEW_6), Some(AddressState::Optimistic));
    let local = SocketAddr::new(address(NEW_6), 0);
    let remote = SocketAddr::new(harness::address(1, true), 80);
    let listener = net.hosts[1].shard.tcp_listen(remote, 4).expect("a free port");
    let now = net.now;
    net.hosts[0].shard.tcp_connect(now, Some(local), remote).expect("a route");
    net.run(Duration::from_millis(100));
    net.hosts[1].shard.tcp_accept(listener).expect("open before the second is over");
    assert_eq!(state(&net, 0, NEW_6), Some(AddressState::Optimistic));
    let settled: Ipv6Addr = "fd00::1".parse().expect("an address");
    let sent = ndps(&net, 0);
    assert!(sent.len() >= 3, "a question about itself, one about the peer, an answer: {sent:?}");
    for (source, _, message) in sent {
        match message {
            // The other address is settled and may be told.
            NdpRepr::NeighbourSolicitation { .. } if source == settled => {}
            NdpRepr::NeighbourSolicitation { source_link, .. } => assert_eq!(source_link, None),
            NdpRepr::NeighbourAdvertisement { replaces, .. } => assert!(!replaces),
            other => panic!("{other:?}"),
        }
    }
    net.run(Duration::from_secs(2));
    assert_eq!(state(&net, 0, NEW_6), Some(AddressState::Preferred));
}

/// RFC 4429, 3.3: a collision ends the use of an optimistic address; its connections fail with an
/// error that says why.
#[test]
fn an_optimistic_address_that_collides_is_taken_away() {
    let mut net = net(ClaimPolicy::Optimistic);
    add(&mut net, 1, NEW_6);
    add(&mut net, 0, NEW_6);
    let local = SocketAddr::new(address(NEW_6), 0);
    let remote = SocketAddr::new(harness::address(1, true), 80);
    let now = net.now;
    let socket = net.hosts[0].shard.tcp_connect(now, Some(local), remote).expect("a route");
    net.run(Duration::from_secs(3));
    assert_eq!(state(&net, 0, NEW_6), None);
    let status = net.hosts[0].shard.tcp_status(socket).expect("not closed yet");
    assert_eq!(status.error, Some(SocketError::AddressRemoved));
}

/// RFC 5227, 3 and RFC 4861, 7.2.6: neighbours are told at once, so that old caches are corrected.
#[test]
fn a_fixed_address_is_announced_at_start_and_when_the_station_changes() {
    let mut net = Net::new(TransmitMode::Multidata, true);
    let (now, id) = (net.now, net.hosts[0].interface);
    net.hosts[0].shard.start_addressing(now, id, AddressingConfig::default());
    net.run(Duration::from_secs(5));
    let announced = |net: &Net| {
        let v4 =
            arps(net, 0).iter().filter(|arp| arp.sender_protocol == arp.target_protocol).count();
        let v6 = ndps(net, 0).into_iter().filter_map(|(_, to, message)| match message {
            NdpRepr::NeighbourAdvertisement { replaces, solicited: false, .. }
                if to == Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1) =>
            {
                Some(replaces)
            }
            _ => None,
        });
        (v4, v6.collect::<Vec<_>>())
    };
    assert_eq!(announced(&net), (2, vec![false; 2]), "of IPv6 that of the link, too");
    net.wire.clear();
    // The kernel's side of a device may give it another address.
    let moved = HardwareAddress([2, 0, 0, 0, 9, 9]);
    let capabilities = Capabilities::plain(Medium::Ethernet(moved), 1_500);
    net.hosts[0].shard.set_capabilities(id, capabilities);
    net.run(Duration::from_secs(5));
    assert_eq!(announced(&net), (2, vec![true; 2]));
    assert_eq!(arps(&net, 0)[0].sender_hardware, moved);
}

/// RFC 5227, 2.1: "when a network interface transitions from an inactive to an active state, when a computer awakes
/// from sleep, when a link-state change signals that an Ethernet cable has been connected"; RFC 4862, 5.4. Meanwhile
/// the addresses are used, in the way of RFC 4429.
#[test]
fn addresses_are_asked_about_and_told_of_again_when_the_link_may_be_another() {
    use AddressState::{Optimistic, Preferred};
    let asks = |net: &Net| {
        let arps = arps(net, 0).into_iter().filter(|arp| arp.sender_protocol.is_unspecified());
        let ndps = ndps(net, 0).into_iter().filter(|(source, ..)| source.is_unspecified());
        (arps.count(), ndps.count())
    };
    let tells = |net: &Net| {
        let arps = arps(net, 0).into_iter().filter(|it| it.sender_protocol == it.target_protocol);
        let is_told = |message: &NdpRepr| matches!(message, NdpRepr::NeighbourAdvertisement { .. });
        (arps.count(), ndps(net, 0).into_iter().filter(|(.., it)| is_told(it)).count())
    };
    // Of IPv6 there is a link-local address, too.
    for (policy, states, asked, told) in [
        (ClaimPolicy::Trust, (Preferred, Preferred), (0, 0), (0, 0)),
        (ClaimPolicy::Announce, (Preferred, Preferred), (0, 0), (2, 2)),
        (ClaimPolicy::Optimistic, (Preferred, Optimistic), (0, 2), (2, 2)),
        (ClaimPolicy::Probe, (Optimistic, Optimistic), (3, 2), (2, 2)),
    ] {
        let mut net = net(policy);
        let (now, id) = (net.now, net.hosts[0].interface);
        let shard = &mut net.hosts[0].shard;
        shard.on_device_trouble(
            now,
            id,
            Some(&DeviceError::new(std::io::ErrorKind::NetworkDown, "down")),
        );
        assert_eq!(shard.poll_timeout().filter(|due| *due <= now), None, "nothing to do yet");
        shard.on_device_trouble(now, id, None);
        let of = |net: &Net| ["10.0.0.1/24", "fd00::1/64"].map(|it| state(net, 0, it));
        assert_eq!(of(&net), [states.0, states.1].map(Some), "{policy:?}");
        let remote = SocketAddr::new(harness::address(1, false), 80);
        net.hosts[1].shard.tcp_listen(remote, 4).expect("a free port");
        net.hosts[0].shard.tcp_connect(now, None, remote).expect("it is used meanwhile");
        net.run(Duration::from_secs(20));
        assert_eq!((asks(&net), tells(&net)), (asked, told), "{policy:?}");
        assert_eq!(of(&net), [Some(Preferred); 2]);
        assert_eq!(events(&mut net, 0), []);
        assert_eq!(net.hosts[0].shard.counters().shard.links_changed, 1);
    }
}

#[test]
fn an_address_that_somebody_has_on_the_new_link_is_given_up_with_its_connections() {
    let mut net = net(ClaimPolicy::Probe);
    let (client, _) = net.connect(false);
    let (now, id) = (net.now, net.hosts[0].interface);
    net.hosts[0].shard.on_link_changed(now, id);
    let own = ipv4("10.0.0.1/24");
    net.inject(0, [arp(ArpOperation::Reply, own, Ipv4Addr::UNSPECIFIED)]);
    assert_eq!(state(&net, 0, "10.0.0.1/24"), None);
    assert!(events(&mut net, 0).iter().any(is_duplicate));
    let status = net.hosts[0].shard.tcp_status(client).expect("not closed");
    assert_eq!(status.error, Some(SocketError::AddressRemoved));
}

// RFC 5227, 2.1.1 is about addresses that nobody uses yet: switches probe for who is there when a link comes up.
#[test]
fn a_probe_for_an_address_in_use_is_answered_while_it_is_claimed_again() {
    let mut net = net(ClaimPolicy::Probe);
    let (client, _) = net.connect(false);
    let (now, id) = (net.now, net.hosts[0].interface);
    net.hosts[0].shard.on_link_changed(now, id);
    let before = arps(&net, 0).len();
    net.inject(0, [arp(ArpOperation::Request, Ipv4Addr::UNSPECIFIED, ipv4("10.0.0.1/24"))]);
    net.run(Duration::from_millis(1));
    let answered = arps(&net, 0).into_iter().skip(before);
    assert!(answered.into_iter().any(|it| it.operation == ArpOperation::Reply), "it is told of us");
    net.run(Duration::from_secs(20));
    assert_eq!(state(&net, 0, "10.0.0.1/24"), Some(AddressState::Preferred));
    let status = net.hosts[0].shard.tcp_status(client).expect("open");
    assert_eq!((status.state, status.error), (tcp::State::Established, None));
}

#[test]
fn a_removed_address_takes_its_connections_its_route_and_its_packets_with_it() {
    let mut net = net(ClaimPolicy::Announce);
    add(&mut net, 0, "10.9.0.1/16");
    add(&mut net, 1, "10.9.0.2/16");
    let remote = "10.9.0.2:80".parse().expect("an address");
    let listener = net.hosts[1].shard.tcp_listen(remote, 4).expect("a free port");
    let now = net.now;
    let client = net.hosts[0].shard.tcp_connect(now, None, remote).expect("a route");
    let bound: SocketAddr = "10.9.0.1:5000".parse().expect("an address");
    let datagrams = net.hosts[0].shard.udp_bind(bound).expect("a free port");
    net.run(Duration::from_millis(50));
    let server = net.hosts[1].shard.tcp_accept(listener).expect("an open connection");
    let chunk = || batch::Chunk::whole(batch::Block::from(bytes::Bytes::from_static(b"x")));
    let tell = |net: &mut Net| {
        let now = net.now;
        net.hosts[1].shard.tcp_append(now, server, chunk()).expect("room");
        net.run(Duration::from_millis(50));
        net.hosts[0].shard.drop_count(counters::DropReason::NotOurAddress)
    };
    assert_eq!(tell(&mut net), 0);
    let (now, id) = (net.now, net.hosts[0].interface);
    while net.hosts[0].shard.poll_event().is_some() {}
    net.hosts[0].shard.remove_address(now, id, address("10.9.0.1/16")).expect("ours");
    let event = net.hosts[0].shard.poll_event().expect("the connection failed");
    assert_eq!(event.socket, client);
    let status = net.hosts[0].shard.tcp_status(client).expect("not closed yet");
    assert_eq!(status.error, Some(SocketError::AddressRemoved));
    let again = net.hosts[0].shard.tcp_connect(now, None, remote);
    assert_eq!(again, Err(SocketError::NoRoute(remote.ip())));
    let near = SocketAddr::new(harness::address(1, false), 9);
    let sent = net.hosts[0].shard.udp_send(datagrams, Some(near), chunk());
    assert_eq!(sent, Err(SocketError::AddressNotAvailable));
    let twice = net.hosts[0].shard.remove_address(now, id, address("10.9.0.1/16"));
    assert_eq!(twice, Err(SocketError::AddressNotAvailable));
    // The segment before had the same addresses, and was for us.
    assert!(tell(&mut net) > 0, "it is for nobody here now");
}

/// Who sent IPv4 packets from `source`, of all that is on the wire.
fn senders_from(net: &Net, source: Ipv4Addr) -> usize {
    let is_from = |frame: &[u8]| frame[12..14] == [8, 0] && frame[26..30] == source.octets();
    net.wire.iter().filter(|(from, frame)| *from == 0 && is_from(frame)).count()
}

// RFC 1122, 3.2.1.3: no packet has a source that is not ours; found by simulation (seeds 21 and 82).
#[test]
fn what_waits_to_be_sent_from_a_removed_address_is_not_sent() {
    let mut net = net(ClaimPolicy::Announce);
    add(&mut net, 0, "10.9.0.1/16");
    add(&mut net, 1, "10.9.0.2/16");
    let local: SocketAddr = "10.9.0.1:80".parse().expect("an address");
    net.hosts[0].shard.tcp_listen(local, 4).expect("a free port");
    let datagrams = net.hosts[0].shard.udp_bind("10.9.0.1:5000".parse().expect("one"));
    let datagrams = datagrams.expect("a free port");
    net.run(Duration::from_millis(50));
    // A SYN-ACK that nobody hears is repeated after a second; a datagram waits for the device.
    net.fate = Box::new(|from, frame| match from == 0 && frame[12..14] == [8, 0] {
        true => harness::Fate::Lose,
        false => harness::Fate::Deliver,
    });
    let now = net.now;
    net.hosts[1].shard.tcp_connect(now, None, local).expect("a route");
    net.run(Duration::from_millis(50));
    assert_eq!(net.hosts[0].shard.half_open_count(), 1);
    let chunk = batch::Chunk::whole(batch::Block::from(bytes::Bytes::from_static(b"x")));
    let there = SocketAddr::new(address("10.9.0.2/16"), 9);
    net.hosts[0].shard.udp_send(datagrams, Some(there), chunk).expect("a route");
    net.wire.clear();
    let (now, id) = (net.now, net.hosts[0].interface);
    net.hosts[0].shard.remove_address(now, id, address("10.9.0.1/16")).expect("ours");
    net.run(Duration::from_secs(10));
    assert_eq!(senders_from(&net, ipv4("10.9.0.1/16")), 0);
    assert_eq!(net.hosts[0].shard.half_open_count(), 0, "it is given up");
    let drops = net.hosts[0].shard.counters().drops;
    assert_eq!(drops.count(counters::DropReason::SourceRemoved), 1, "the datagram");
}

// The same of ARP, which would have the neighbours send to us what is another host's; found by simulation (seed
// 300061862).
#[test]
fn a_question_that_waits_to_be_asked_from_a_removed_address_is_not_asked() {
    let mut net = net(ClaimPolicy::Announce);
    add(&mut net, 0, "10.9.0.1/16");
    net.run(Duration::from_millis(50));
    let (now, id) = (net.now, net.hosts[0].interface);
    let shard = &mut net.hosts[0].shard;
    shard.tcp_connect(now, None, "10.9.0.77:80".parse().expect("an address")).expect("a route");
    // The device has no room.
    let mut asks = batch::Multidata::default();
    assert_eq!(shard.poll_transmit(now, id, device::Room::UNBOUNDED, &mut asks), 1);
    let full = device::Transmitted { taken: 0, stopped: Some(device::Stop::Full) };
    shard.on_transmitted(now, id, &full);
    shard.remove_address(now, id, address("10.9.0.1/16")).expect("ours");
    net.wire.clear();
    net.run(Duration::from_secs(10));
    assert!(arps(&net, 0).iter().all(|it| it.sender_protocol != ipv4("10.9.0.1/16")));
    assert_eq!(net.hosts[0].shard.counters().drops.count(counters::DropReason::SourceRemoved), 1);
}

/// Which would be a stack whose first squeue has other addresses than the rest.
#[test]
fn an_interface_with_addresses_that_it_cannot_have_is_refused() {
    let mut net = Net::new(TransmitMode::Multidata, true);
    let shard = &mut net.hosts[0].shard;
    let mut add = |addresses: &[String]| {
        let config = InterfaceConfig {
            capabilities: Capabilities::plain(Medium::Ip, 1_500),
            mode: None,
            addresses: addresses.iter().map(|text| cidr(text)).collect(),
            gateways: Vec::new(),
        };
        shard.add_interface(config).map(|id| shard.addresses(id).len())
    };
    for text in ["10.0.0.255/24", "0.0.0.0/0", "224.0.0.5/4", "::/64"] {
        assert_eq!(add(&[text.to_owned()]), Err(SocketError::NoHostAddress), "{text}");
    }
    let many: Vec<_> = (1..=65).map(|host| format!("10.4.0.{host}/24")).collect();
    assert_eq!(add(&many), Err(SocketError::TooManyAddresses));
    assert_eq!(add(&many[..64]), Ok(64));
    let twice = ["10.5.0.1/24", "10.5.0.1/16"].map(str::to_owned);
    assert_eq!(add(&twice), Err(SocketError::AddressInUse));
}

#[test]
fn addresses_that_no_host_has_and_more_than_there_may_be_are_refused() {
    let mut net = net(ClaimPolicy::Announce);
    let (now, id) = (net.now, net.hosts[0].interface);
    let shard = &mut net.hosts[0].shard;
    for text in ["0.0.0.0/0", "224.0.0.1/4", "10.3.0.255/24", "ff02::1/16", "::/0"] {
        assert_eq!(shard.add_address(now, id, cidr(text)), Err(SocketError::NoHostAddress));
    }
    assert_eq!(shard.add_address(now, id, cidr("10.0.0.1/8")), Err(SocketError::AddressInUse));
    let added = (0..200_u8).filter(|host| {
        shard.add_address(now, id, cidr(&format!("10.4.0.{}/24", host + 1))).is_ok()
    });
    assert_eq!(added.count(), 61, "64 with the three it had");
    let refused = shard.add_address(now, id, cidr("10.5.0.1/24"));
    assert_eq!(refused, Err(SocketError::TooManyAddresses));
}

/// The link-local address of a host, and how it stands.
fn link_local(net: &Net, host: usize) -> Option<(IpAddr, AddressState)> {
    let host = &net.hosts[host];
    let all = host.shard.addresses(host.interface);
    let found = all.iter().find(|status| status.origin == AddressOrigin::LinkLocal);
    found.map(|status| (status.cidr.address(), status.state))
}

/// RFC 4291, 2.1: "All interfaces are required to have at least one Link-Local unicast address"; RFC 4861, 5.1: its
/// prefix is on the link; RFC 3810, 5.2.13: reports of groups come from it.
#[test]
fn who_speaks_ipv6_has_a_link_local_address_and_neighbours_that_have_one() {
    let mut net = net(ClaimPolicy::Optimistic);
    let (ours, state) = link_local(&net, 0).expect("it is formed");
    assert_eq!(state, AddressState::Preferred);
    let (now, id) = (net.now, net.hosts[0].interface);
    let socket = net.hosts[0].shard.udp_bind("[::]:9".parse().expect("any")).expect("free");
    let group = "ff05::7".parse().expect("a group");
    net.hosts[0].shard.udp_join(now, socket, group, Some(id), &[]).expect("a group");
    net.run(Duration::from_secs(3));
    let sources = net.wire.iter().filter(|(from, frame)| *from == 0 && frame[20] == 0);
    let source = |frame: &[u8]| IpAddr::from(<[u8; 16]>::try_from(&frame[22..38]).expect("16"));
    let sources: Vec<IpAddr> = sources.map(|(_, frame)| source(frame)).collect();
    assert!(!sources.is_empty() && sources.iter().all(|it| *it == ours), "{sources:?}");
    net.wire.clear();
    let now = net.now;
    let peer: SocketAddr = "[fe80::77]:80".parse().expect("an address");
    net.hosts[0].shard.tcp_connect(now, None, peer).expect("it is on the link");
    net.run(Duration::from_millis(10));
    let asked = ndps(&net, 0).into_iter().find_map(|(source, _, message)| match message {
        NdpRepr::NeighbourSolicitation { target, .. } => Some((IpAddr::from(source), target)),
        _ => None,
    });
    assert_eq!(asked.map(|(source, target)| (source, target.into())), Some((ours, peer.ip())));
    // Nor is one formed beside that of the program, or where nobody speaks IPv6.
    for (own, is_formed) in [(Some("fe80::5/64"), false), (None, false), (Some("fd00::5/64"), true)]
    {
        let mut shard = harness::shard(0, tcp::Config::default(), &net.hosts[0].pool);
        let medium = Medium::Ethernet(station(0));
        let config = InterfaceConfig {
            capabilities: Capabilities::plain(medium, 1_500),
            mode: None,
            addresses: vec![cidr("10.9.0.1/24")],
            gateways: Vec::new(),
        };
        let id = shard.add_interface(config).expect("a sound configuration");
        shard.start_addressing(now, id, AddressingConfig::default());
        own.into_iter().for_each(|own| shard.add_address(now, id, cidr(own)).expect("a new one"));
        let is_there = |status: &AddressStatus| status.origin == AddressOrigin::LinkLocal;
        assert_eq!(shard.addresses(id).iter().any(is_there), is_formed, "{own:?}");
    }
}

/// Another station says that it has this address.
fn has(target: Ipv6Addr) -> Vec<u8> {
    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    let message = NdpRepr::NeighbourAdvertisement {
        router: false,
        solicited: false,
        replaces: true,
        target,
        target_link: Some(harness::craft::STRANGER),
    };
    harness::craft::ndp(target, all_nodes, 255, &message)
}

/// RFC 7217, 6: another identifier is tried after a duplicate, IDGEN_RETRIES (3) times.
#[test]
fn a_link_local_address_that_somebody_has_is_followed_by_another_three_times() {
    let mut net = Net::new(TransmitMode::Multidata, true);
    let (now, id) = (net.now, net.hosts[0].interface);
    let probe = guarded(ClaimPolicy::Trust, ClaimPolicy::Probe);
    net.hosts[0].shard.start_addressing(now, id, probe);
    let mut tried = Vec::new();
    while let Some((IpAddr::V6(target), state)) = link_local(&net, 0) {
        assert_eq!(state, AddressState::Tentative);
        assert!(!tried.contains(&target) && tried.len() < 10, "{tried:?}");
        tried.push(target);
        net.inject(0, [has(target)]);
    }
    assert_eq!(tried.len(), 4);
    assert!(tried.iter().all(|address| address.is_unicast_link_local()));
    net.run(Duration::from_secs(5));
    assert_eq!(state(&net, 0, "fd00::1/64"), Some(AddressState::Preferred));
    // On another link nobody need have them.
    assert_eq!(link_local(&net, 0), None);
    net.hosts[0].shard.on_link_changed(net.now, id);
    net.run(Duration::from_secs(5));
    assert_eq!(link_local(&net, 0), Some((tried[0].into(), AddressState::Preferred)));
}

/// On the new link the first identifier is tried again, and what was lost there is not.
#[test]
fn a_link_local_address_that_is_lost_on_another_link_is_followed_by_those_not_tried_there() {
    let mut net = Net::new(TransmitMode::Multidata, true);
    let (now, id) = (net.now, net.hosts[0].interface);
    let probe = guarded(ClaimPolicy::Trust, ClaimPolicy::Probe);
    net.hosts[0].shard.start_addressing(now, id, probe);
    let current = |net: &Net| match link_local(net, 0) {
        Some((IpAddr::V6(address), _)) => Some(address),
        _ => None,
    };
    let first = current(&net).expect("it is formed");
    net.inject(0, [has(first)]);
    net.run(Duration::from_secs(5));
    let second = current(&net).expect("another one");
    assert_eq!(link_local(&net, 0), Some((second.into(), AddressState::Preferred)));
    net.hosts[0].shard.on_link_changed(net.now, id);
    let mut tried = Vec::new();
    while let Some(target) = current(&net) {
        assert!(!tried.contains(&target), "{target} after {tried:?}");
        tried.push(target);
        net.inject(0, [has(target)]);
    }
    assert_eq!(tried[..2], [second, first]);
    assert_eq!(tried.len(), 4);
}

// IP_FREEBIND: an address that moves between hosts is listened on by all of them.
#[test]
fn a_listener_waits_for_its_address() {
    let mut net = Net::new(TransmitMode::Multidata, true);
    let local: SocketAddr = "10.0.0.77:80".parse().expect("an address");
    let shard = &mut net.hosts[1].shard;
    let refused = shard.tcp_listen_with(local, ListenOptions::default());
    assert_eq!(refused, Err(SocketError::AddressNotAvailable));
    let options = ListenOptions { free_bind: true, ..ListenOptions::default() };
    let listener = shard.tcp_listen_with(local, options).expect("whoever has the address");
    add(&mut net, 1, "10.0.0.77/24");
    net.run(Duration::from_secs(1));
    net.hosts[0].shard.tcp_connect(net.now, None, local).expect("a route");
    net.run(Duration::from_secs(1));
    assert!(net.hosts[1].shard.tcp_accept(listener).is_ok());
}

/// RFC 4862, 5.4.3: a question from a unicast address for one that is tentative "should be silently ignored". RFC 4861,
/// 7.2.4: who has no address yet is answered through all nodes, by the frame as well (RFC 2464, 7).
#[test]
fn who_asks_for_a_tentative_address_is_not_answered_and_who_has_none_is_answered_through_all() {
    let mut net = net(ClaimPolicy::Probe);
    add(&mut net, 0, NEW_6);
    let IpAddr::V6(target) = address(NEW_6.split('/').next().expect("an address")) else {
        panic!("it is of IPv6")
    };
    let group = wire::ndp::solicited_node(target);
    let asks = |source: Ipv6Addr, source_link| {
        let message = NdpRepr::NeighbourSolicitation { target, source_link };
        harness::craft::ndp(source, group, 255, &message)
    };
    net.run(Duration::from_millis(500));
    assert_eq!(state(&net, 0, NEW_6), Some(AddressState::Tentative));
    net.wire.clear();
    let neighbour = "fd00::2".parse().expect("an address");
    net.inject(0, [asks(neighbour, Some(harness::craft::STRANGER))]);
    net.step();
    assert_eq!(ndps(&net, 0), []);
    net.run(Duration::from_secs(5));
    net.wire.clear();
    net.inject(0, [asks(Ipv6Addr::UNSPECIFIED, None)]);
    net.step();
    let is_answer = |(from, frame): &&(usize, Vec<u8>)| *from == 0 && frame[12..14] == [0x86, 0xdd];
    let answer = net.wire.iter().find(is_answer).expect("an answer");
    assert_eq!(answer.1[..6], [0x33, 0x33, 0, 0, 0, 1]);
}

/// RFC 4429, 2.1, with an address that is settled on the link-local side neither.
#[test]
fn who_has_no_settled_address_asks_for_neighbours_without_naming_its_station() {
    let mut net = Net::new(TransmitMode::Multidata, true);
    let (now, id) = (net.now, net.hosts[0].interface);
    net.hosts[0].shard.start_addressing(now, id, AddressingConfig::default());
    let remote = SocketAddr::new(harness::address(1, true), 80);
    net.hosts[0].shard.tcp_connect(now, None, remote).expect("a route");
    net.run(Duration::from_millis(100));
    assert_eq!(state(&net, 0, "fd00::1/64"), Some(AddressState::Optimistic));
    let asked = ndps(&net, 0).into_iter().filter_map(|(source, _, message)| match message {
        NdpRepr::NeighbourSolicitation { source_link, .. } if !source.is_unspecified() => {
            Some(source_link)
        }
        _ => None,
    });
    assert_eq!(asked.collect::<Vec<_>>(), [None]);
}

/// Switches and radios bring back what was sent to everybody: RFC 4862, 5.4.3, asks for solicitations "from another node",
/// and RFC 5227, 2.1.1, for another hardware address.
#[test]
fn who_hears_itself_on_the_link_finds_no_duplicate() {
    let mut net = net(ClaimPolicy::Probe);
    [NEW, NEW_6].into_iter().for_each(|text| add(&mut net, 0, text));
    let bring_back = |net: &mut Net| {
        for _ in 0..1_000 {
            net.run(Duration::from_millis(10));
            let own: Vec<_> = net.wire.drain(..).filter(|(host, _)| *host == 0).collect();
            net.inject(0, own.into_iter().map(|(_, frame)| frame));
        }
    };
    bring_back(&mut net);
    // And its neighbours are told once more.
    let (now, id) = (net.now, net.hosts[0].interface);
    net.hosts[0].shard.on_link_changed(now, id);
    bring_back(&mut net);
    assert!(!events(&mut net, 0).iter().any(is_duplicate));
    for text in [NEW, NEW_6] {
        assert_eq!(state(&net, 0, text), Some(AddressState::Preferred));
    }
    assert_eq!(net.hosts[0].shard.counters().shard.address_disputes, 0);
}

/// RFC 1122, 3.2.1.3, with an address that was a neighbour's when the last segment came from it.
#[test]
fn what_comes_from_an_address_that_is_ours_now_is_dropped() {
    let mut net = net(ClaimPolicy::Trust);
    let [ours, theirs] = [0, 1].map(|host| harness::address(host, false));
    net.hosts[0].shard.tcp_listen((ours, 80).into(), 4).expect("a free port");
    let now = net.now;
    net.hosts[1].shard.tcp_connect(now, None, (ours, 80).into()).expect("a route");
    net.run(Duration::from_millis(10));
    let is_tcp = |(from, frame): &&(usize, Vec<u8>)| *from == 1 && frame[23] == 6;
    let last = net.wire.iter().rfind(is_tcp).expect("the ACK of a handshake").1.clone();
    net.inject(0, [last.clone()]);
    assert_eq!(net.hosts[0].shard.drop_count(DropReason::BadSource), 0);
    add(&mut net, 0, &format!("{theirs}/24"));
    net.inject(0, [last]);
    assert_eq!(net.hosts[0].shard.drop_count(DropReason::BadSource), 1);
}

/// RFC 4429, 3.1: an optimistic address is treated as a deprecated one, where there is another.
#[test]
fn what_is_new_does_not_leave_from_an_optimistic_address() {
    let mut net = net(ClaimPolicy::Optimistic);
    // It is on the peer's network, as the other is not.
    add(&mut net, 0, "2001:db8::3/64");
    let (now, remote) = (net.now, SocketAddr::new(address("2001:db8::9"), 80));
    let source = |net: &mut Net, now| {
        let shard = &mut net.hosts[0].shard;
        let client = shard.tcp_connect(now, None, remote).expect("a route");
        shard.tcp_status(client).expect("open").local.ip()
    };
    assert_eq!(source(&mut net, now), harness::address(0, true));
    net.run(Duration::from_secs(5));
    let now = net.now;
    assert_eq!(source(&mut net, now), address("2001:db8::3"));
}

#[test]
fn an_event_of_an_address_is_news_once() {
    let mut net = net(ClaimPolicy::Trust);
    net.hosts[0].shard.take_event_news();
    add(&mut net, 0, NEW);
    assert!(net.hosts[0].shard.take_event_news() && !net.hosts[0].shard.take_event_news());
}
