//! Which neighbour packets are handed to, what they have for a source then, and what is said where it does not
//! answer.

use crate::harness::{Fate, Net, address};
use batch::{Block, Chunk, Multidata};
use bytes::Bytes;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use counters::DropReason;
use device::{Room, TransmitMode, Transmitted};
use ip::Cidr;
use stack::{ErrorReport, MtuDiscovery, Readiness, ReportOrigin, Shard, SocketError, SocketId};
use time::Duration;
use wire::{ArpOperation, ArpRepr, ArpView, EthernetRepr};

const SECOND: Duration = Duration::from_secs(1);

fn net() -> Net {
    Net::new(TransmitMode::Multidata, true)
}

fn cidr(text: &str) -> Cidr {
    text.parse().expect("a network")
}

fn at(text: &str) -> SocketAddr {
    text.parse().expect("an address and a port")
}

fn route(net: &mut Net, to: Cidr, gateway: &str) {
    let (now, id) = (net.now, net.hosts[0].interface);
    let gateway = Some(gateway.parse().expect("an address"));
    net.hosts[0].shard.add_route(now, to, gateway, id).expect("an interface");
}

/// Whom host 0 has asked for by ARP.
fn asked(net: &Net) -> Vec<Ipv4Addr> {
    let frames = net.wire.iter().filter(|(from, frame)| *from == 0 && frame[12..14] == [8, 6]);
    let message =
        |frame: &[u8]| ArpRepr::parse(&ArpView::parse(&frame[EthernetRepr::LEN..]).expect("sound"));
    let asked = frames.map(|(_, frame)| message(frame));
    let is_request = |message: &ArpRepr| message.operation == ArpOperation::Request;
    asked.filter(is_request).map(|message| message.target_protocol).collect()
}

/// [`Shard::add_route`](stack::Shard::add_route): "Connections that it concerns follow at once", also those that keep
/// to the interface they came by, and those that were bound to the address of another than the route's.
#[test]
fn who_keeps_an_interface_follows_its_gateway() {
    for is_bound in [false, true] {
        let mut net = net();
        let (now, ids) = (net.now, [0, 1].map(|host| net.hosts[host].interface));
        net.hosts[1].shard.add_address(now, ids[1], cidr("192.0.2.1/32")).expect("a new one");
        route(&mut net, Cidr::ANY_IPV4, "10.0.0.2");
        let (ours, theirs) = (at("10.0.0.1:80"), at("192.0.2.1:80"));
        let socket = if is_bound {
            let config = stack::InterfaceConfig {
                capabilities: device::Capabilities::plain(device::Medium::Ip, 1_500),
                mode: None,
                addresses: vec![cidr("172.16.0.1/24")],
                gateways: Vec::new(),
            };
            let other = net.hosts[0].shard.add_interface(config).expect("a sound configuration");
            let shard = &mut net.hosts[0].shard;
            shard.add_route(now, cidr("192.0.2.0/24"), None, other).expect("an interface");
            net.hosts[1].shard.tcp_listen(theirs, 1).expect("a free port");
            net.hosts[0].shard.tcp_connect(now, Some(at("10.0.0.1:0")), theirs).expect("a way")
        } else {
            let listener = net.hosts[0].shard.tcp_listen(ours, 1).expect("a free port");
            let shard = &mut net.hosts[1].shard;
            shard.tcp_connect(now, Some(at("192.0.2.1:0")), ours).expect("a route");
            net.run(SECOND);
            net.hosts[0].shard.tcp_accept(listener).expect("it is open")
        };
        net.run(SECOND);
        net.wire.clear();
        route(&mut net, Cidr::ANY_IPV4, "10.0.0.3");
        assert_eq!(net.write(0, socket, b"by the new one"), 14);
        net.run(SECOND / 2);
        assert_eq!(asked(&net), [Ipv4Addr::new(10, 0, 0, 3)], "bound: {is_bound}");
    }
}

/// RFC 6724, 5, rule 5.5, and RFC 1122, 3.3.4.3: what goes by a gateway has an address of the gateway's network.
#[test]
fn what_goes_by_a_gateway_has_an_address_that_the_gateway_knows() {
    let mut net = net();
    let (now, id) = (net.now, net.hosts[0].interface);
    net.hosts[0].shard.add_address(now, id, cidr("172.16.0.1/24")).expect("a new one");
    let (far, ours) = (at("192.0.2.1:80"), IpAddr::from([172, 16, 0, 1]));
    for (gateway, expected) in [("172.16.0.9", ours), ("10.0.0.9", address(0, false))] {
        route(&mut net, Cidr::ANY_IPV4, gateway);
        let shard = &mut net.hosts[0].shard;
        assert_eq!(shard.source_for(far), Ok(expected));
        let socket = shard.tcp_connect(now, None, far).expect("a route");
        assert_eq!(shard.tcp_status(socket).expect("open").local.ip(), expected);
        let socket = shard.udp_bind(at("0.0.0.0:0")).expect("a free port");
        net.hosts[0].shard.udp_send(socket, Some(far), chunk()).expect("room");
        net.wire.clear();
        net.run(SECOND / 2);
        let sender = net.wire.iter().find_map(|(_, frame)| {
            let is_arp = frame[12..14] == [8, 6];
            is_arp.then(|| IpAddr::from(<[u8; 4]>::try_from(&frame[28..32]).expect("four")))
        });
        assert_eq!(sender, Some(expected), "who asks for {gateway}");
    }
}

fn chunk() -> Chunk {
    Chunk::whole(Block::from(Bytes::from_static(b"a question")))
}

fn client(net: &mut Net, peer: Option<SocketAddr>, ipv6: bool) -> SocketId {
    let shard = &mut net.hosts[0].shard;
    let socket = shard.udp_bind(SocketAddr::new(address(0, ipv6), 0)).expect("a free port");
    peer.into_iter().for_each(|peer| shard.udp_connect(socket, peer).expect("a route"));
    socket
}

/// RFC 4861, 7.2.2: "the sender MUST return ICMP destination unreachable indications with code 3 (Address Unreachable)
/// for each packet queued awaiting address resolution".
#[test]
fn who_sends_to_a_neighbour_that_does_not_answer_hears_of_it() {
    for nobody in ["10.0.0.77:9", "[fd00::77]:9", "[fe80::77]:9"] {
        let mut net = net();
        let (now, id) = (net.now, net.hosts[0].interface);
        net.hosts[0].shard.add_route(now, cidr("fe80::/64"), None, id).expect("an interface");
        let nobody = at(nobody);
        let connected = client(&mut net, Some(nobody), nobody.is_ipv6());
        let other = client(&mut net, None, nobody.is_ipv6());
        for _ in 0..3 {
            net.hosts[0].shard.udp_send(connected, None, chunk()).expect("room");
        }
        net.hosts[0].shard.udp_send(other, Some(nobody), chunk()).expect("room");
        net.run(2 * SECOND);
        while net.hosts[0].shard.poll_event().is_some() {}
        assert_eq!(net.hosts[0].shard.udp_check(connected), Ok(()), "it is still asked for");
        net.run(3 * SECOND / 2);
        let event = net.hosts[0].shard.poll_event().expect("an error to read");
        assert_eq!(event.socket, connected);
        assert!(event.readiness.intersects(Readiness::READABLE));
        let shard = &mut net.hosts[0].shard;
        assert_eq!(shard.udp_check(connected), Err(SocketError::HostUnreachable));
        assert_eq!(shard.udp_check(connected), Ok(()), "once");
        assert_eq!(
            shard.udp_check(other),
            Ok(()),
            "it has no peer: none is more its own than others"
        );
        let drops = shard.counters().drops.count(DropReason::NeighbourUnreachable);
        assert_eq!(drops, 4);
        // For a second nobody is asked again.
        shard.udp_send(connected, None, chunk()).expect("room");
        while net.step() {}
        let shard = &mut net.hosts[0].shard;
        assert_eq!(shard.udp_check(connected), Err(SocketError::HostUnreachable));
    }
}

/// RFC 792 and RFC 4443, 3.1: who asks for reports has one as of the message that a router would send.
#[test]
fn who_has_no_peer_may_ask_for_reports_of_neighbours_that_do_not_answer() {
    let silent = [("10.0.0.77:9", 3, 1, 0xc0), ("[fd00::77]:9", 1, 3, 0)];
    for (nobody, kind, code, traffic_class) in silent {
        let mut net = net();
        let remote = at(nobody);
        let socket = client(&mut net, None, remote.is_ipv6());
        let shard = &mut net.hosts[0].shard;
        shard.udp_set_reports(socket, remote.is_ipv4(), remote.is_ipv6()).expect("open");
        shard.udp_send(socket, Some(remote), chunk()).expect("room");
        net.run(4 * SECOND);
        let shard = &mut net.hosts[0].shard;
        assert_eq!(shard.udp_check(socket), Err(SocketError::HostUnreachable));
        let offender = address(0, remote.is_ipv6());
        let expected = ErrorReport {
            error: SocketError::HostUnreachable,
            remote,
            origin: ReportOrigin::Icmp {
                offender,
                kind,
                code,
                destination: offender,
                traffic_class,
                hop_limit: 64,
            },
            info: 0,
            payload: b"a question".to_vec(),
            received_at: None,
        };
        assert_eq!(shard.udp_take_report(socket), Ok(Some(expected)));
        assert_eq!(shard.udp_take_report(socket), Ok(None));
    }
}

/// RFC 3168, 6.1.1.1: what is sent again asks for ECN no more, in case somebody drops SYNs that do. Of a SYN that waits
/// for its neighbour nobody has dropped anything: it is not repeated meanwhile, and leaves as it was.
#[test]
fn a_syn_that_waits_for_its_neighbour_is_not_sent_again_for_that() {
    let config = tcp::Config { ecn: tcp::EcnMode::Request, ..tcp::Config::default() };
    let mut net = Net::with_config(TransmitMode::Multidata, true, config);
    let listener = net.hosts[1].shard.tcp_listen(at("10.0.0.2:80"), 16).expect("a free port");
    net.fate = Box::new(|_, _| Fate::Lose);
    let client = net.hosts[0].shard.tcp_connect(net.now, None, at("10.0.0.2:80")).expect("a route");
    net.run(3 * SECOND / 2);
    assert_eq!((asked(&net).len(), net.wire.len()), (2, 2), "it asks, and sends nothing else");
    net.fate = Box::new(|_, _| Fate::Deliver);
    net.run(SECOND);
    net.hosts[1].shard.tcp_accept(listener).expect("an open connection");
    let now = net.now;
    assert!(net.hosts[0].shard.tcp_info(now, client).expect("open").ecn);
}

/// What the reports of a socket cost is bounded, and given back by who reads them or wants them no more.
#[test]
fn reports_that_are_read_or_dropped_make_room_for_others() {
    let mut net = net();
    let socket = client(&mut net, None, false);
    let shard = &mut net.hosts[0].shard;
    shard.udp_set_reports(socket, true, false).expect("open");
    shard.udp_set_mtu_discovery(socket, MtuDiscovery::Do).expect("open");
    let fill = |shard: &mut Shard| {
        for _ in 0..400 {
            let long = Chunk::whole(Block::from(Bytes::from(vec![7; 2_000])));
            let refused = shard.udp_send(socket, Some(at("10.0.0.2:9")), long);
            assert_eq!(refused, Err(SocketError::MessageTooLong));
        }
    };
    let read = |shard: &mut Shard| {
        core::iter::from_fn(|| shard.udp_take_report(socket).expect("open")).count()
    };
    fill(shard);
    let kept = read(shard);
    assert!((100..400).contains(&kept), "{kept}");
    fill(shard);
    assert_eq!(read(shard), kept, "what was read is no cost");
    fill(shard);
    shard.udp_clear_reports(socket).expect("open");
    assert_eq!(read(shard), 0);
    fill(shard);
    assert_eq!(read(shard), kept, "nor is what was dropped");
}

/// Who waited for a neighbour stands in no list any more once that is known.
#[test]
fn connections_do_not_wait_for_a_neighbour_that_has_answered() {
    let mut net = net();
    for _ in 0..3 {
        net.hosts[0].shard.tcp_connect(net.now, None, at("10.0.0.2:9")).expect("a route");
    }
    let (now, id, shard) = (net.now, net.hosts[0].interface, &mut net.hosts[0].shard);
    let taken = shard.poll_transmit(now, id, Room::UNBOUNDED, &mut Multidata::default());
    assert_eq!((taken, shard.holdings().waiting_for_neighbours), (1, 3), "a question");
    // The question is lost, and asked again.
    shard.on_transmitted(now, id, &Transmitted { taken, stopped: None });
    net.run(2 * SECOND);
    assert_eq!(net.hosts[0].shard.holdings().waiting_for_neighbours, 0);
}
