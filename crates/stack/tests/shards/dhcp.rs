//! An address by DHCP, between a shard and a server of a few lines, in virtual time.

use crate::harness::craft::{self, STRANGER};
use crate::harness::{self, Net, station};
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use device::{Capabilities, DeviceError, Medium, TransmitMode};
use stack::{
    AddressEvent, AddressOrigin, AddressState, AddressingConfig, Envelope, InterfaceConfig, Shard,
    ShardConfig, SocketError,
};
use time::Duration;
use wire::{ArpOperation, ArpRepr, EthernetRepr, HardwareAddress, Ipv4View, UdpView, ether_type};

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 254);
const LEASED: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 9);

/// Host 0 has an interface without addresses and asks for one.
fn net() -> Net {
    net_with(false, dhcp::ClientConfig::default())
}

/// The same, on a device whose hardware address somebody else has as well or not.
fn net_with(shares_address: bool, client: dhcp::ClientConfig) -> Net {
    let mut net = Net::new(TransmitMode::Multidata, true);
    let now = net.now;
    // A host without any address.
    net.hosts[0].shard = Shard::new(ShardConfig {
        tcp: tcp::Config::default(),
        pool: net.hosts[0].pool.clone(),
        secret: [4; 32],
        sockets_max: 100,
    });
    let shard = &mut net.hosts[0].shard;
    let id = shard
        .add_interface(InterfaceConfig {
            capabilities: Capabilities {
                shares_address,
                ..Capabilities::plain(Medium::Ethernet(station(0)), 1_500)
            },
            mode: Some(TransmitMode::Multidata),
            addresses: Vec::new(),
            gateways: Vec::new(),
        })
        .expect("a sound configuration");
    let dhcp = Some(client);
    let config = AddressingConfig { dhcp, ..AddressingConfig::default() };
    shard.start_addressing(now, id, config);
    net.hosts[0].interface = id;
    // The second host answers ARP for the server.
    let (other, cidr) = (net.hosts[1].interface, ip::Cidr::new(SERVER.into(), 24));
    net.hosts[1].shard.add_address(now, other, cidr.expect("a network")).expect("new");
    net
}

/// The DHCP messages that host 0 has sent since the last call: payload, source, destination.
fn asked(net: &mut Net) -> Vec<(Vec<u8>, IpAddr, IpAddr)> {
    let frames: Vec<_> = net.wire.drain(..).collect();
    let messages = frames.into_iter().filter_map(|(from, frame)| {
        let packet = frame.get(EthernetRepr::LEN..)?;
        let ip = Ipv4View::parse(packet).ok()?;
        if from != 0 || ip.protocol() != wire::protocol::UDP {
            return None;
        }
        assert!(ip.checksum_ok());
        let view = UdpView::parse(ip.payload()).ok()?;
        let is_dhcp = (view.source_port(), view.destination_port()) == (68, 67);
        let (source, destination) = (ip.source().into(), ip.destination().into());
        is_dhcp.then(|| (view.payload().to_vec(), source, destination))
    });
    messages.collect()
}

/// Answers every message of host 0 as a server does that leases one address.
fn serve(net: &mut Net, lease_s: u32) -> Vec<u8> {
    serve_address(net, lease_s, LEASED)
}

/// What a server that leases this address answers to a message.
fn answer_to(message: &[u8], lease_s: u32, leased: Ipv4Addr) -> Option<Vec<u8>> {
    let answer = match message[242] {
        1 => 2,
        3 => 5,
        _ => return None,
    };
    let mut bytes = vec![0; 236];
    bytes[..3].copy_from_slice(&[2, 1, 6]);
    bytes[4..8].copy_from_slice(&message[4..8]);
    bytes[16..20].copy_from_slice(&leased.octets());
    bytes[28..34].copy_from_slice(&station(0).0);
    bytes.extend([99, 130, 83, 99, 53, 1, answer, 54, 4, 10, 0, 0, 254]);
    bytes.extend([1, 4, 255, 255, 255, 0, 6, 4, 10, 0, 0, 53, 26, 2, 0x05, 0x78]);
    // RFC 3442: 10.9/16 by 10.0.0.2, everything else by the server.
    bytes.extend([121, 12, 16, 10, 9, 10, 0, 0, 2, 0, 10, 0, 0, 254]);
    bytes.extend([51, 4]);
    bytes.extend(lease_s.to_be_bytes());
    Some(bytes)
}

fn serve_address(net: &mut Net, lease_s: u32, leased: Ipv4Addr) -> Vec<u8> {
    let mut kinds = Vec::new();
    for (message, source, _) in asked(net) {
        kinds.push(message[242]);
        let Some(bytes) = answer_to(&message, lease_s, leased) else { continue };
        let unicast = !source.is_unspecified();
        let to = if unicast { source } else { Ipv4Addr::BROADCAST.into() };
        let station = if unicast { station(0) } else { HardwareAddress::BROADCAST };
        let mut datagram = vec![0; 8];
        wire::UdpRepr { source_port: 67, destination_port: 68, payload_len: bytes.len() }
            .emit(&mut datagram);
        datagram.extend(bytes);
        let addresses = (SERVER.into(), to);
        let frame = craft::packet(station, addresses, wire::protocol::UDP, 64, (&datagram, 6));
        net.inject(0, [frame]);
    }
    kinds
}

/// Runs for `ms` with the server answering within a millisecond.
fn run(net: &mut Net, ms: u64, lease_s: u32) -> Vec<u8> {
    let mut kinds = Vec::new();
    let end = net.now + Duration::from_millis(ms);
    while net.now < end {
        let next = net.hosts[0].shard.poll_timeout().unwrap_or(end).max(net.now);
        net.run((next - net.now).clamp(Duration::from_millis(1), Duration::from_secs(1)));
        kinds.extend(serve(net, lease_s));
    }
    kinds
}

/// Another station says that it has the leased address.
fn claim_of_leased() -> Vec<u8> {
    let mut frame = vec![0; EthernetRepr::LEN + ArpRepr::LEN];
    let (source, ether_type) = (STRANGER, ether_type::ARP);
    EthernetRepr { destination: station(0), source, ether_type }.emit(&mut frame);
    ArpRepr {
        operation: ArpOperation::Reply,
        sender_hardware: STRANGER,
        sender_protocol: LEASED,
        target_hardware: station(0),
        target_protocol: Ipv4Addr::UNSPECIFIED,
    }
    .emit(&mut frame[EthernetRepr::LEN..]);
    frame
}

/// A server's message to the leased address.
fn from_server(bytes: &[u8]) -> Vec<u8> {
    from_server_to(LEASED, bytes)
}

fn from_server_to(leased: Ipv4Addr, bytes: &[u8]) -> Vec<u8> {
    let mut datagram = vec![0; 8];
    wire::UdpRepr { source_port: 67, destination_port: 68, payload_len: bytes.len() }
        .emit(&mut datagram);
    datagram.extend(bytes);
    let addresses = (SERVER.into(), leased.into());
    craft::packet(station(0), addresses, wire::protocol::UDP, 64, (&datagram, 6))
}

fn states(net: &Net) -> Vec<(IpAddr, AddressOrigin, AddressState)> {
    let host = &net.hosts[0];
    let all = host.shard.addresses(host.interface);
    all.iter().map(|status| (status.cidr.address(), status.origin, status.state)).collect()
}

/// RFC 2131, 3.1 and 4.4.1: everything from INIT to BOUND, and what the options bring.
#[test]
fn an_interface_without_an_address_gets_one_with_routes_servers_and_an_mtu() {
    let mut net = net();
    net.run(Duration::from_millis(200));
    let first = asked(&mut net);
    assert_eq!(first.len(), 1, "a DISCOVER");
    assert_eq!(first[0].1, IpAddr::from(Ipv4Addr::UNSPECIFIED));
    assert_eq!(first[0].2, IpAddr::from(Ipv4Addr::BROADCAST));
    let kinds = run(&mut net, 9_000, 3_600);
    assert_eq!(kinds, [1, 3], "again, then a REQUEST");
    assert_eq!(states(&net), [(LEASED.into(), AddressOrigin::Dhcp, AddressState::Preferred)]);
    let id = net.hosts[0].interface;
    let events: Vec<_> = core::iter::from_fn(|| net.hosts[0].shard.poll_address_event()).collect();
    let cidr = ip::Cidr::new(LEASED.into(), 24).expect("a network");
    let servers = AddressEvent::NameServers(id, vec![Ipv4Addr::new(10, 0, 0, 53).into()]);
    assert_eq!(events, [AddressEvent::Assigned(id, cidr), servers]);

    let far: SocketAddr = "10.9.1.1:80".parse().expect("an address");
    let now = net.now;
    let socket = net.hosts[0].shard.tcp_connect(now, None, far).expect("a classless route");
    let local = net.hosts[0].shard.tcp_status(socket).expect("open").local;
    assert_eq!(local.ip(), IpAddr::from(LEASED));
    net.wire.clear();
    net.run(Duration::from_millis(100));
    let syn = net.wire.iter().find(|(from, frame)| *from == 0 && frame[23] == 6).expect("a SYN");
    assert_eq!(syn.1[..6], station(1).0, "by way of 10.0.0.2");
    let (header, _) = wire::TcpHeader::parse(&syn.1[34..]).expect("sound");
    assert_eq!(header.options.mss, Some(1_360), "1400 less 40");
    let everywhere = "192.0.2.1:80".parse().expect("an address");
    net.hosts[0].shard.tcp_connect(net.now, None, everywhere).expect("the default route");
}

/// RFC 2131, 4.4.5 and 4.4.4.
#[test]
fn a_lease_is_renewed_and_ends_with_its_connections_where_no_server_is_left() {
    let mut net = net();
    run(&mut net, 2_000, 600);
    let kinds = run(&mut net, 310_000, 600);
    assert_eq!(kinds, [3], "T1 has come once");
    let far: SocketAddr = "10.0.0.2:80".parse().expect("an address");
    net.hosts[1].shard.tcp_listen(far, 4).expect("a free port");
    let now = net.now;
    let socket = net.hosts[0].shard.tcp_connect(now, None, far).expect("on the subnet");
    net.run(Duration::from_secs(700));
    assert_eq!(states(&net), []);
    let status = net.hosts[0].shard.tcp_status(socket).expect("not closed");
    assert_eq!(status.error, Some(SocketError::AddressRemoved));
    let again = net.hosts[0].shard.tcp_connect(net.now, None, far);
    assert_eq!(again, Err(SocketError::NoSourceFor(far.ip())));
    assert!(asked(&mut net).iter().any(|(message, ..)| message[242] == 1), "it asks again");
    run(&mut net, 100_000, 600);
    assert_eq!(states(&net).len(), 1, "the server is back");
}

/// RFC 2131, 3.1, 5: "If the client detects that the address is already in use [...] the client
/// MUST send a DHCPDECLINE message".
#[test]
fn an_address_that_a_station_answers_for_is_declined() {
    let mut net = net();
    run(&mut net, 300, 600);
    assert_eq!(states(&net), [(LEASED.into(), AddressOrigin::Dhcp, AddressState::Tentative)]);
    net.inject(0, [claim_of_leased()]);
    assert_eq!(states(&net), []);
    net.run(Duration::from_secs(1));
    let kinds: Vec<u8> = asked(&mut net).iter().map(|(message, ..)| message[242]).collect();
    assert_eq!(kinds, [4], "a DECLINE, and nothing for ten seconds");
    let drops = net.hosts[0].shard.counters();
    assert_eq!((drops.dhcp.dhcp_declined, drops.shard.address_disputes), (1, 1));
    run(&mut net, 14_000, 600);
    assert_eq!(states(&net).len(), 1);
}

#[test]
fn a_removed_lease_is_given_back() {
    let mut net = net();
    run(&mut net, 2_000, 600);
    let (now, id) = (net.now, net.hosts[0].interface);
    net.hosts[0].shard.remove_address(now, id, LEASED.into()).expect("ours");
    assert_eq!(states(&net), []);
    net.run(Duration::from_secs(100));
    let kinds: Vec<u8> = asked(&mut net).iter().map(|(message, ..)| message[242]).collect();
    // RFC 2131, 4.4.6: by unicast, so once; it goes out though its source is given up.
    assert_eq!(kinds, [7]);
    assert_eq!(net.hosts[0].shard.counters().dhcp.dhcp_sent, 3);
}

#[test]
fn a_lease_that_is_given_back_ends_its_connections_at_once() {
    let mut net = net();
    run(&mut net, 2_000, 600);
    let (now, id) = (net.now, net.hosts[0].interface);
    let far = "10.0.0.2:80".parse().expect("an address");
    let shard = &mut net.hosts[0].shard;
    let socket = shard.tcp_connect(now, None, far).expect("on the subnet");
    shard.release_lease(now, id);
    let status = shard.tcp_status(socket).expect("not closed");
    assert_eq!(status.error, Some(SocketError::AddressRemoved));
}

/// RFC 2131, 3.1, 5: an address that cannot be used is declined, and the client begins anew.
#[test]
fn an_address_that_no_host_can_have_is_declined() {
    let mut net = net();
    let mut kinds = Vec::new();
    for _ in 0..100 {
        net.run(Duration::from_millis(10));
        kinds.extend(serve_address(&mut net, 600, Ipv4Addr::new(10, 0, 0, 255)));
    }
    assert_eq!(kinds, [1, 3, 4], "DISCOVER, REQUEST, DECLINE, and nothing for ten seconds");
    assert_eq!(states(&net), []);
    run(&mut net, 14_000, 600);
    assert_eq!(states(&net).len(), 1, "another offer is taken");
}

/// RFC 2131, 3.7: on another link the lease is verified.
#[test]
fn a_server_is_asked_when_the_device_is_replaced() {
    let mut net = net();
    run(&mut net, 2_000, 600);
    let (now, id) = (net.now, net.hosts[0].interface);
    let capabilities = Capabilities::plain(Medium::Ethernet(station(0)), 1_500);
    net.hosts[0].shard.on_device_replaced(now, id, capabilities);
    assert_eq!(run(&mut net, 2_000, 600), [3]);
    assert_eq!(states(&net).len(), 1);
    let trouble = DeviceError::new(std::io::ErrorKind::NetworkDown, "the cable is out");
    let now = net.now;
    net.hosts[0].shard.on_device_trouble(now, id, Some(&trouble));
    net.hosts[0].shard.on_device_trouble(now, id, None);
    assert_eq!(run(&mut net, 2_000, 600), [3], "and when it is of use again");
    net.hosts[0].shard.on_link_changed(net.now, id);
    assert_eq!(run(&mut net, 2_000, 600), [3], "and when the program says so");
    assert_eq!(states(&net), [(LEASED.into(), AddressOrigin::Dhcp, AddressState::Preferred)]);
}

/// RFC 2131, 3.1, 5, and 3.2, 3: also what a server elsewhere confirmed is looked for on the link.
#[test]
fn a_leased_address_that_somebody_has_on_the_new_link_is_declined() {
    let mut net = net();
    run(&mut net, 2_000, 600);
    let (now, id) = (net.now, net.hosts[0].interface);
    net.hosts[0].shard.on_link_changed(now, id);
    net.inject(0, [claim_of_leased()]);
    assert_eq!(states(&net), []);
    net.run(Duration::from_secs(1));
    let kinds: Vec<u8> = asked(&mut net).iter().map(|(message, ..)| message[242]).collect();
    assert_eq!(kinds, [4]);
}

/// RFC 1122, 3.2.1.3 (a): who asks for an address has none; RFC 2131, 4.1: so everybody is answered. A virtual machine on
/// a TAP is such a client, and its server a socket like others.
#[test]
fn a_server_on_a_socket_leases_addresses() {
    let mut net = net();
    let server = net.hosts[1].shard.udp_bind("0.0.0.0:67".parse().expect("one")).expect("free");
    let (mut kinds, end) = (Vec::new(), net.now + Duration::from_secs(3));
    while net.now < end {
        net.run(Duration::from_millis(50));
        let shard = &mut net.hosts[1].shard;
        while let Ok(datagram) = shard.udp_receive_datagram(server) {
            assert_eq!(datagram.source, "0.0.0.0:68".parse().expect("nobody's"));
            assert_eq!(datagram.destination, "255.255.255.255:67".parse().expect("everybody's"));
            let message = datagram.payload.bytes();
            kinds.push(message[242]);
            let bytes = answer_to(message, 600, LEASED).expect("DISCOVER or REQUEST");
            let answer = batch::Chunk::whole(batch::Block::from(bytes::Bytes::from(bytes)));
            let to = "255.255.255.255:68".parse().expect("everybody's");
            let from = Some(SocketAddr::new(SERVER.into(), 0));
            let envelope = Envelope { from, to: Some(to), ..Envelope::default() };
            shard.udp_send_with(server, envelope, answer).expect("a way");
        }
    }
    assert_eq!(kinds, [1, 3]);
    assert_eq!(states(&net), [(LEASED.into(), AddressOrigin::Dhcp, AddressState::Preferred)]);
}

/// RFC 2131 has servers repeat the parameters; those that do not must not take the way out away.
#[test]
fn a_renewal_that_says_the_time_alone_leaves_routes_servers_and_mtu() {
    let mut net = net();
    run(&mut net, 2_000, 600);
    let id = net.hosts[0].interface;
    while net.hosts[0].shard.poll_address_event().is_some() {}
    net.run(Duration::from_secs(310));
    let renewals = asked(&mut net);
    let [(message, ..)] = &renewals[..] else { panic!("{renewals:?}") };
    let whole = answer_to(message, 600, LEASED).expect("a REQUEST");
    let barely = [&whole[..249], &[51, 4], &600_u32.to_be_bytes()].concat();
    net.inject(0, [from_server(&barely)]);
    assert_eq!(net.hosts[0].shard.counters().dhcp.dhcp_taken, 3, "offer, ACK and this");
    assert_eq!(net.hosts[0].shard.poll_address_event(), None);
    assert_eq!(net.hosts[0].shard.name_servers(id).len(), 1);
    let everywhere: SocketAddr = "192.0.2.1:80".parse().expect("an address");
    net.hosts[0].shard.tcp_connect(net.now, None, everywhere).expect("the default route");
    assert_eq!(net.hosts[0].shard.path_mtu(everywhere.ip()), Ok(1_400));
}

#[test]
fn a_full_socket_on_the_port_of_clients_keeps_no_answer_from_the_client() {
    let mut net = net();
    run(&mut net, 2_000, 600);
    let shard = &mut net.hosts[0].shard;
    let own = shard.udp_bind((LEASED, 68).into()).expect("a free port");
    shard.udp_set_receive_buffer(own, 1).expect("open");
    // By loopback, where no client lives.
    let one = batch::Chunk::whole(batch::Block::from(bytes::Bytes::from_static(b"one")));
    shard.udp_send(own, Some((LEASED, 68).into()), one).expect("a way");
    net.run(Duration::from_secs(310));
    let renewals = asked(&mut net);
    let [(message, ..)] = &renewals[..] else { panic!("{renewals:?}") };
    let answer = answer_to(message, 600, LEASED).expect("a REQUEST");
    net.inject(0, [from_server(&answer)]);
    let shard = &mut net.hosts[0].shard;
    assert_eq!(shard.counters().dhcp.dhcp_taken, 3, "offer, ACK and this");
    assert_eq!(shard.udp_receive(own).expect("it came").0.bytes(), b"one");
}

#[test]
fn a_lease_that_is_too_short_is_told_of() {
    let mut net = net();
    assert_eq!(run(&mut net, 9_000, 5), [1, 1], "no REQUEST follows");
    let id = net.hosts[0].interface;
    let event = net.hosts[0].shard.poll_address_event();
    assert_eq!(event, Some(AddressEvent::LeaseTooShort(id, SERVER, 5)));
    assert_eq!(net.hosts[0].shard.poll_address_event(), None, "once");
    assert_eq!(net.hosts[0].shard.counters().dhcp.dhcp_too_short, 2);
}

/// RFC 2131, 2: "the client identifier [...] MUST be unique" on its subnet; a kernel's client on the same interface says
/// the hardware address.
#[test]
fn who_shares_a_hardware_address_leases_for_itself() {
    let named = |identifier: &[u8]| dhcp::ClientConfig {
        client_identifier: Some(identifier.to_vec()),
        ..Default::default()
    };
    let distinct = dhcp::distinct_identifier(station(0));
    let plain = [&[1][..], &station(0).0].concat();
    for (shares_address, client, expected) in [
        (false, dhcp::ClientConfig::default(), &plain),
        (true, dhcp::ClientConfig::default(), &distinct),
        (true, named(&[0, 7]), &vec![0, 7]),
        // RFC 2132, 9.14: these say nothing.
        (true, named(&[7]), &distinct),
        (false, named(&[]), &plain),
    ] {
        let mut net = net_with(shares_address, client);
        net.run(Duration::from_secs(1));
        let (message, ..) = asked(&mut net).swap_remove(0);
        let option = [&[61, expected.len() as u8], &expected[..]].concat();
        assert!(message.windows(option.len()).any(|window| window == option), "{expected:?}");
    }
}

/// What a server said counts again when the program takes its own word back.
#[test]
fn a_leased_route_stands_in_for_a_route_that_goes() {
    let mut net = net();
    run(&mut net, 2_000, 600);
    let (now, id) = (net.now, net.hosts[0].interface);
    let (everywhere, shard) = (ip::Cidr::ANY_IPV4, &mut net.hosts[0].shard);
    let gateway = Some(Ipv4Addr::new(10, 0, 0, 2).into());
    shard.add_route(now, everywhere, gateway, id).expect("an interface");
    shard.remove_route(now, everywhere, id).expect("it is there");
    let far = "192.0.2.1:80".parse().expect("an address");
    shard.tcp_connect(now, None, far).expect("the server's route");
    shard.remove_route(now, everywhere, id).expect("that one, then");
    assert_eq!(shard.tcp_connect(now, None, far), Err(SocketError::NoRoute(far.ip())));
}

/// A network may be made larger while addresses of it are leased.
#[test]
fn an_extended_lease_may_have_another_mask() {
    let mut net = net();
    run(&mut net, 2_000, 600);
    let now = net.now;
    let near: SocketAddr = "10.0.0.2:80".parse().expect("an address");
    net.hosts[1].shard.tcp_listen(near, 4).expect("a free port");
    let socket = net.hosts[0].shard.tcp_connect(now, None, near).expect("on the subnet");
    net.run(Duration::from_secs(310));
    let renewals = asked(&mut net);
    let [(message, ..)] = &renewals[..] else { panic!("{renewals:?}") };
    let mut answer = answer_to(message, 600, LEASED).expect("a REQUEST");
    let mask = answer.windows(4).position(|it| it == [255, 255, 255, 0]).expect("a mask");
    answer[mask + 2] = 254;
    while net.hosts[0].shard.poll_address_event().is_some() {}
    net.inject(0, [from_server(&answer)]);
    let (now, id) = (net.now, net.hosts[0].interface);
    let wide = ip::Cidr::new(LEASED.into(), 23).expect("a network");
    let shard = &mut net.hosts[0].shard;
    assert_eq!(shard.addresses(id).iter().map(|it| it.cidr).collect::<Vec<_>>(), [wide]);
    assert_eq!(shard.poll_address_event(), None);
    assert_eq!(shard.tcp_status(socket).expect("open").error, None);
    let other: SocketAddr = "10.0.1.5:80".parse().expect("an address");
    shard.tcp_connect(now, None, other).expect("on the subnet");
    net.wire.clear();
    net.run(Duration::from_millis(10));
    let is_asked = |frame: &[u8]| frame[12..14] == [8, 6] && frame[38..42] == [10, 0, 1, 5];
    assert!(net.wire.iter().any(|(from, frame)| *from == 0 && is_asked(frame)), "a neighbour");
    let narrow = ip::Cidr::new(LEASED.into(), 24).expect("a network");
    let gone = net.hosts[0].shard.remove_route(now, narrow, id);
    assert_eq!(gone, Err(SocketError::NoRoute(narrow.address())));
}

/// An answer to the REQUEST that asks for an extension, with other classless routes (RFC 3442).
fn extend(net: &mut Net, routes: &[u8]) {
    net.run(Duration::from_secs(310));
    let renewals = asked(net);
    let [(message, ..)] = &renewals[..] else { panic!("{renewals:?}") };
    let answer = answer_to(message, 600, LEASED).expect("a REQUEST");
    let at = answer.windows(2).position(|it| it == [121, 12]).expect("routes");
    let option = [&[121, routes.len() as u8], routes].concat();
    net.inject(0, [from_server(&[&answer[..at], &option, &answer[at + 14..]].concat())]);
}

/// Of two routers to one network the one that is left is used.
#[test]
fn a_router_that_a_server_takes_back_is_used_no_more() {
    let routers = [[16, 10, 8, 10, 0, 0, 61], [16, 10, 8, 10, 0, 0, 62]];
    for left in routers {
        let mut net = net();
        run(&mut net, 2_000, 600);
        extend(&mut net, routers.as_flattened());
        extend(&mut net, &left);
        let far = "10.8.0.1:80".parse().expect("an address");
        net.hosts[0].shard.tcp_connect(net.now, None, far).expect("a route");
        net.wire.clear();
        net.run(Duration::from_secs(1));
        let is_asked = |frame: &[u8]| frame[12..14] == [8, 6] && frame[38..42] == left[3..];
        assert!(net.wire.iter().any(|(from, frame)| *from == 0 && is_asked(frame)), "{left:?}");
    }
}

/// With its mask the address stands for all hosts of a network: the server hears so, as when it first leased it.
#[test]
fn an_extension_that_leaves_no_hosts_address_is_declined() {
    let leased = Ipv4Addr::new(10, 0, 0, 127);
    let mut net = net();
    for _ in 0..2_000 {
        net.run(Duration::from_millis(1));
        serve_address(&mut net, 600, leased);
    }
    assert_eq!(states(&net).iter().map(|it| it.0).collect::<Vec<_>>(), [leased]);
    net.run(Duration::from_secs(310));
    let renewals = asked(&mut net);
    let [(message, ..)] = &renewals[..] else { panic!("{renewals:?}") };
    let mut answer = answer_to(message, 600, leased).expect("a REQUEST");
    let mask = answer.windows(4).position(|it| it == [255, 255, 255, 0]).expect("a mask");
    answer[mask + 3] = 128;
    while net.hosts[0].shard.poll_address_event().is_some() {}
    net.inject(0, [from_server_to(leased, &answer)]);
    assert_eq!(states(&net), []);
    let shard = &mut net.hosts[0].shard;
    let events: Vec<_> = core::iter::from_fn(|| shard.poll_address_event()).collect();
    assert!(events.iter().any(|it| matches!(it, AddressEvent::Removed(..))), "{events:?}");
    net.run(Duration::from_millis(10));
    let kinds: Vec<u8> = asked(&mut net).iter().map(|(message, ..)| message[242]).collect();
    assert_eq!(kinds, [4], "DECLINE");
}

/// RFC 2131, 4.4.5: with the lease the client "MUST [...] request network initialization parameters as if the client were
/// uninitialized": what a server said of the network is not believed any longer, whatever addresses are left.
#[test]
fn what_a_lease_brought_ends_with_it() {
    let mut net = net();
    let (now, id) = (net.now, net.hosts[0].interface);
    let own = "10.0.0.40/24".parse().expect("a network");
    net.hosts[0].shard.add_address(now, id, own).expect("new");
    run(&mut net, 9_000, 600);
    let far: SocketAddr = "10.9.1.1:80".parse().expect("an address");
    let now = net.now;
    let shard = &mut net.hosts[0].shard;
    assert_eq!((shard.name_servers(id).len(), shard.mtus(id).map(|it| it.0)), (1, Some(1_400)));
    shard.tcp_connect(now, None, far).expect("a classless route");
    while shard.poll_address_event().is_some() {}
    shard.remove_address(now, id, LEASED.into()).expect("ours");
    assert_eq!((shard.name_servers(id).len(), shard.mtus(id).map(|it| it.0)), (0, Some(1_500)));
    assert_eq!(shard.tcp_connect(now, None, far), Err(SocketError::NoRoute(far.ip())));
    let events: Vec<_> = core::iter::from_fn(|| shard.poll_address_event()).collect();
    assert!(events.contains(&AddressEvent::NameServers(id, Vec::new())), "{events:?}");
}

/// RFC 9293, 3.7.1: connections that are open follow an MTU that an extension changes alone.
#[test]
fn connections_follow_the_mtu_of_an_extended_lease() {
    let mut net = net();
    run(&mut net, 2_000, 600);
    let near: SocketAddr = "10.0.0.2:80".parse().expect("an address");
    net.hosts[1].shard.tcp_listen(near, 4).expect("a free port");
    let socket = net.hosts[0].shard.tcp_connect(net.now, None, near).expect("on the subnet");
    net.run(Duration::from_secs(310));
    let renewals = asked(&mut net);
    let [(message, ..)] = &renewals[..] else { panic!("{renewals:?}") };
    let mut answer = answer_to(message, 600, LEASED).expect("a REQUEST");
    let mtu = answer.windows(4).position(|it| it == [26, 2, 0x05, 0x78]).expect("an MTU");
    answer[mtu + 2..mtu + 4].copy_from_slice(&1_200_u16.to_be_bytes());
    net.inject(0, [from_server(&answer)]);
    net.write(0, socket, &harness::data(10_000));
    net.wire.clear();
    net.run(Duration::from_millis(10));
    let longest =
        net.wire.iter().filter(|(from, _)| *from == 0).map(|(_, frame)| frame.len()).max();
    assert_eq!(longest, Some(EthernetRepr::LEN + 1_200));
}

/// Anybody can send to the port of clients; a farewell goes to the station of the server.
#[test]
fn who_answers_nothing_gets_no_farewell() {
    let mut net = net();
    run(&mut net, 2_000, 600);
    let mut nonsense = from_server(&[0; 300]);
    nonsense[6..12].copy_from_slice(&[2, 0, 0, 0, 6, 6]);
    net.inject(0, [nonsense]);
    assert_eq!(net.hosts[0].shard.counters().dhcp.dhcp_ignored, 1);
    let (now, id) = (net.now, net.hosts[0].interface);
    net.hosts[0].shard.remove_address(now, id, LEASED.into()).expect("ours");
    net.wire.clear();
    net.run(Duration::from_secs(1));
    let sent: Vec<_> =
        net.wire.iter().filter(|(from, frame)| *from == 0 && frame[23] == 17).collect();
    let [(_, release)] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!(release[..6], STRANGER.0, "whose frames the server's are");
}

/// What the program fixed is its own, and there is nothing left to ask a server for.
#[test]
fn a_lease_of_an_address_that_the_program_fixed_takes_nothing_away() {
    let mut net = net();
    let (now, id) = (net.now, net.hosts[0].interface);
    let own = ip::Cidr::new(LEASED.into(), 24).expect("a network");
    net.hosts[0].shard.add_address(now, id, own).expect("new");
    run(&mut net, 9_000, 600);
    let fixed = [(LEASED.into(), AddressOrigin::Fixed, AddressState::Preferred)];
    assert_eq!(states(&net), fixed);
    net.hosts[0].shard.on_link_changed(net.now, id);
    assert_eq!(run(&mut net, 20_000, 600), [0; 0]);
    assert_eq!(states(&net), fixed);
}
