//! Reasons to drop that hardly anything else provokes: each is counted once a packet, and nothing else is.

use crate::harness::{Fate, Net, address, craft, data, station};
use batch::{Block, Chunk};
use bytes::Bytes;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use counters::DropReason;
use device::{Capabilities, Medium, TransmitMode};
use stack::{
    AddressingConfig, ClaimPolicy, Homes, InterfaceConfig, InterfaceId, ListenOptions,
    MtuDiscovery, Share, SocketError, SocketId,
};
use std::sync::Arc;
use time::Duration;
use wire::{
    ArpOperation, ArpRepr, EthernetRepr, HardwareAddress, Ipv4Repr, Ipv6Repr, NdpRepr, SeqNumber,
    TcpFlags, TcpHeader, UdpRepr, ether_type, protocol,
};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn net() -> Net {
    Net::new(TransmitMode::Multidata, true)
}

/// The reasons for which a host drops something in the course of `act`, with how often.
fn dropped(net: &mut Net, host: usize, act: impl FnOnce(&mut Net)) -> Vec<(DropReason, u64)> {
    let before = net.hosts[host].shard.counters().drops;
    act(net);
    let after = net.hosts[host].shard.counters().drops;
    let grown = DropReason::ALL.iter().map(|it| (*it, after.count(*it) - before.count(*it)));
    grown.filter(|(_, count)| *count > 0).collect()
}

/// Why host 1 drops these frames, which it receives one by one.
fn refused<'a>(
    net: &mut Net,
    frames: impl IntoIterator<Item = &'a Vec<u8>>,
) -> Vec<(DropReason, u64)> {
    dropped(net, 1, |net| frames.into_iter().for_each(|frame| net.inject(1, [frame.clone()])))
}

fn chunk(len: usize) -> Chunk {
    Chunk::whole(Block::from(Bytes::from(data(len))))
}

/// A packet from host 0 to host 1.
fn packet(ipv6: bool, protocol: u8, transport: &[u8], checksum_at: u8) -> Vec<u8> {
    let addresses = (address(0, ipv6), address(1, ipv6));
    craft::packet(station(1), addresses, protocol, 64, (transport, checksum_at))
}

/// A datagram to port 53 of host 1, whose header says that it is `stated_len` bytes long.
fn datagram(ipv6: bool, stated_len: u16) -> Vec<u8> {
    let mut bytes = vec![0; UdpRepr::LEN];
    UdpRepr { source_port: 1_053, destination_port: 53, payload_len: 4 }.emit(&mut bytes);
    bytes[4..6].copy_from_slice(&stated_len.to_be_bytes());
    bytes.extend(b"who?");
    packet(ipv6, protocol::UDP, &bytes, UdpRepr::CHECKSUM_OFFSET)
}

/// The transport header in a frame from [`packet`].
fn transport_of(ipv6: bool, frame: &mut [u8]) -> &mut [u8] {
    let network_len = if ipv6 { Ipv6Repr::LEN } else { Ipv4Repr::LEN };
    &mut frame[EthernetRepr::LEN + network_len..]
}

fn segment(source_port: u16, destination_port: u16, flags: TcpFlags) -> Vec<u8> {
    let header = TcpHeader {
        source_port,
        destination_port,
        sequence: SeqNumber(500),
        flags,
        window: 65_535,
        ..TcpHeader::default()
    };
    let mut bytes = vec![0; header.header_len()];
    header.emit(&mut bytes).expect("room");
    bytes
}

/// The TCP segments that host 0 has sent since `mark`, as frames.
fn segments(net: &Net, mark: usize) -> Vec<Vec<u8>> {
    let is_tcp = |frame: &[u8]| {
        frame[12..14] == ether_type::IPV4.to_be_bytes() && frame[23] == protocol::TCP
    };
    let ours = net.wire[mark..].iter().filter(|(from, frame)| *from == 0 && is_tcp(frame));
    ours.map(|(_, frame)| frame.clone()).collect()
}

/// Opens sockets on host 1 until no more may be.
fn fill_sockets(net: &mut Net) -> Vec<SocketId> {
    let local = SocketAddr::new(address(1, false), 0);
    let mut all = Vec::new();
    loop {
        match net.hosts[1].shard.udp_bind(local) {
            Ok(id) => all.push(id),
            Err(error) => {
                assert_eq!(error, SocketError::TooManySockets);
                return all;
            }
        }
    }
}

/// An ARP message to all stations.
fn arp(operation: ArpOperation, sender_protocol: Ipv4Addr, target_protocol: Ipv4Addr) -> Vec<u8> {
    let (destination, source) = (HardwareAddress::BROADCAST, craft::STRANGER);
    let mut frame = vec![0; EthernetRepr::LEN + ArpRepr::LEN];
    EthernetRepr { destination, source, ether_type: ether_type::ARP }.emit(&mut frame);
    let message = ArpRepr {
        operation,
        sender_hardware: source,
        sender_protocol,
        target_hardware: HardwareAddress::ZERO,
        target_protocol,
    };
    message.emit(&mut frame[EthernetRepr::LEN..]);
    frame
}

/// RFC 5227, 2.4: an ARP message with our address as its sender's; RFC 4862, 5.4.4: an advertisement of our
/// address; 5.4.3: a solicitation by which somebody else makes sure of an address that we make sure of.
#[test]
fn a_claim_to_an_address_of_ours_is_a_dispute() {
    let mut net = net();
    let (now, id) = (net.now, net.hosts[1].interface);
    let (IpAddr::V4(ours), IpAddr::V6(ours_6)) = (address(1, false), address(1, true)) else {
        panic!("one of each family");
    };
    let claims = [ArpOperation::Request, ArpOperation::Reply].map(|it| arp(it, ours, ours));
    assert_eq!(refused(&mut net, &claims), [(DropReason::AddressDisputed, 2)]);
    let advertisement = NdpRepr::NeighbourAdvertisement {
        router: false,
        solicited: false,
        replaces: true,
        target: ours_6,
        target_link: Some(craft::STRANGER),
    };
    let theirs = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0x99);
    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    // Of who has it, by another address or by that one.
    for source in [theirs, ours_6] {
        let claim = craft::ndp(source, all_nodes, 255, &advertisement);
        assert_eq!(refused(&mut net, [&claim]), [(DropReason::AddressDisputed, 1)], "{source}");
    }
    let question = NdpRepr::NeighbourSolicitation { target: theirs, source_link: None };
    let question = craft::ndp(ours_6, all_nodes, 255, &question);
    assert_eq!(refused(&mut net, [&question]), [(DropReason::BadSource, 1)]);

    let policy = ClaimPolicy::Probe;
    let config = AddressingConfig { ipv4: policy, ipv6: policy, ..AddressingConfig::default() };
    let shard = &mut net.hosts[1].shard;
    shard.start_addressing(now, id, config);
    shard.add_address(now, id, "fd00::7/64".parse().expect("a network")).expect("a new address");
    let target = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 7);
    let question = NdpRepr::NeighbourSolicitation { target, source_link: None };
    let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 7);
    let claim = craft::ndp(Ipv6Addr::UNSPECIFIED, group, 255, &question);
    assert_eq!(refused(&mut net, [&claim]), [(DropReason::AddressDisputed, 1)]);
}

/// RFC 9293, 3.1: the data offset says where the data begin, which is behind the fixed header and within the segment.
#[test]
fn a_tcp_header_is_of_five_words_at_least_and_no_longer_than_its_segment() {
    for ipv6 in [false, true] {
        let mut net = net();
        net.connect(ipv6);
        let with_offset = |words: u8| {
            let mut bytes = segment(1_080, 80, TcpFlags::SYN);
            bytes.truncate(20);
            bytes[12] = words << 4;
            bytes
        };
        let malformed = [with_offset(4), with_offset(6), with_offset(5)[..19].to_vec()]
            .map(|bytes| packet(ipv6, protocol::TCP, &bytes, 16));
        assert_eq!(refused(&mut net, &malformed), [(DropReason::MalformedTcp, 3)], "{ipv6}");
        let sound = packet(ipv6, protocol::TCP, &with_offset(5), 16);
        assert_eq!(refused(&mut net, [&sound]), [], "{ipv6}");
    }
}

/// RFC 768: "Length is the length in octets of this user datagram including this header and the data. (This means the
/// minimum value of the length is eight.)"
#[test]
fn a_udp_header_states_eight_bytes_at_least_and_no_more_than_there_are() {
    for ipv6 in [false, true] {
        let mut net = net();
        let local = SocketAddr::new(address(1, ipv6), 53);
        net.hosts[1].shard.udp_bind(local).expect("a free port");
        let addresses = (address(0, ipv6), address(1, ipv6));
        let cut = craft::packet_as_it_is(station(1), addresses, protocol::UDP, 64, &[0; 7]);
        let malformed = [cut, datagram(ipv6, 0), datagram(ipv6, 7), datagram(ipv6, 13)];
        assert_eq!(refused(&mut net, &malformed), [(DropReason::MalformedUdp, 4)], "{ipv6}");
        assert_eq!(refused(&mut net, [&datagram(ipv6, 12)]), [], "{ipv6}");
    }
}

/// RFC 1122, 4.1.3.4: a datagram with a wrong checksum MUST be discarded; RFC 8200, 8.1: over IPv6 "receivers must
/// discard UDP packets containing a zero checksum", which over IPv4 says that there is none.
#[test]
fn a_datagram_with_a_wrong_checksum_reaches_nobody() {
    for ipv6 in [false, true] {
        let mut net = net();
        let local = SocketAddr::new(address(1, ipv6), 53);
        let socket = net.hosts[1].shard.udp_bind(local).expect("a free port");
        let mut changed = datagram(ipv6, 12);
        transport_of(ipv6, &mut changed)[8] ^= 1;
        assert_eq!(refused(&mut net, [&changed]), [(DropReason::UdpChecksum, 1)], "{ipv6}");
        let mut without = datagram(ipv6, 12);
        transport_of(ipv6, &mut without)[6..8].fill(0);
        let expected: &[_] = if ipv6 { &[(DropReason::UdpChecksum, 1)] } else { &[] };
        assert_eq!(refused(&mut net, [&without]), expected, "{ipv6}");
        let received = net.hosts[1].shard.udp_receive(socket);
        assert_eq!(received.is_ok(), !ipv6);
        assert!(net.hosts[1].shard.udp_receive(socket).is_err());
    }
}

#[test]
fn a_syn_and_the_last_ack_of_a_handshake_are_dropped_where_no_socket_is_left() {
    let mut net = net();
    let local = SocketAddr::new(address(1, false), 80);
    let listener = net.hosts[1].shard.tcp_listen(local, 16).expect("a free port");
    // The ACK of the SYN-ACK is lost: the first segment of host 0 is its SYN.
    net.fate = Box::new(|from, frame| match from == 0 && frame.len() > 47 && frame[47] == 0x10 {
        true => Fate::Lose,
        false => Fate::Deliver,
    });
    net.hosts[0].shard.tcp_connect(net.now, None, local).expect("a route");
    net.run(MS);
    let [_, ack] = &segments(&net, 0)[..] else { panic!("a SYN and an ACK") };
    let others = fill_sockets(&mut net);
    assert_eq!(refused(&mut net, [ack]), [(DropReason::SocketsFull, 1)]);
    let syn = packet(false, protocol::TCP, &segment(1_080, 80, TcpFlags::SYN), 16);
    assert_eq!(refused(&mut net, [&syn]), [(DropReason::SocketsFull, 1)]);
    assert_eq!(net.hosts[1].shard.tcp_accept(listener), Err(SocketError::WouldBlock));
    // The handshake is not forgotten for it.
    net.hosts[1].shard.close(net.now, others[0]);
    assert_eq!(refused(&mut net, [ack]), []);
    net.hosts[1].shard.tcp_accept(listener).expect("an open connection");
}

#[test]
fn a_segment_ahead_of_its_turn_is_dropped_where_as_many_wait_as_may() {
    let assembler = tcp::AssemblerConfig { pieces_max: 1, ..tcp::AssemblerConfig::default() };
    let config = tcp::Config { assembler, ..tcp::Config::default() };
    let mut net = Net::with_config(TransmitMode::Multidata, true, config);
    let (client, server) = net.connect(false);
    net.fate = Box::new(|_, _| Fate::Lose);
    let (mark, bytes) = (net.wire.len(), data(3 * 1_448));
    net.write(0, client, &bytes);
    net.step();
    let [_, second, third] = &segments(&net, mark)[..] else { panic!("three segments") };
    assert_eq!(refused(&mut net, [second]), []);
    assert_eq!(refused(&mut net, [third]), [(DropReason::ReceiveBufferFull, 1)]);
    net.fate = Box::new(|_, _| Fate::Deliver);
    net.run(5 * SECOND);
    let mut received = Vec::new();
    net.read(1, server, &mut received).expect("open");
    assert!(received == bytes, "what was dropped came again");
}

/// RFC 4861, 7.2.2: of those that wait for one neighbour "the new arrival SHOULD replace the oldest entry". 256 are
/// enough for one, as far as they are no longer than Linux lets wait. For all neighbours together 1,024 may wait, half of
/// them for those for whom more than a few do.
#[test]
fn of_those_that_wait_for_a_neighbour_the_oldest_goes_and_of_too_many_the_newest() {
    let mut net = net();
    let local = SocketAddr::new(address(0, false), 9);
    let socket = net.hosts[0].shard.udp_bind(local).expect("a free port");
    let send = |net: &mut Net, neighbour: u8, count: usize| {
        let to = SocketAddr::from(([10, 0, 0, neighbour], 9));
        for _ in 0..count {
            net.hosts[0].shard.udp_send(socket, Some(to), chunk(10)).expect("room");
        }
        while net.step() {}
    };
    assert_eq!(dropped(&mut net, 0, |net| send(net, 100, 256)), []);
    let full = |count| [(DropReason::NeighbourQueueFull, count)];
    assert_eq!(dropped(&mut net, 0, |net| send(net, 100, 3)), full(3));
    assert_eq!(dropped(&mut net, 0, |net| send(net, 101, 256)), []);
    assert_eq!(dropped(&mut net, 0, |net| send(net, 102, 17)), full(1));
    let others = dropped(&mut net, 0, |net| (103..134).for_each(|it| send(net, it, 16)));
    assert_eq!(others, []);
    assert_eq!(dropped(&mut net, 0, |net| send(net, 134, 2)), full(2));
}

/// As on Linux, where 212,992 bytes may wait for one neighbour (`unres_qlen_bytes`).
#[test]
fn a_burst_to_a_neighbour_that_was_not_asked_for_yet_arrives() {
    for (count, len) in [(200, 10), (100, 1_400), (3, 60_000)] {
        let mut net = net();
        let bound = SocketAddr::new(address(1, false), 9);
        let receiver = net.hosts[1].shard.udp_bind(bound).expect("a free port");
        let local = SocketAddr::new(address(0, false), 9);
        let sender = net.hosts[0].shard.udp_bind(local).expect("a free port");
        for _ in 0..count {
            net.hosts[0].shard.udp_send(sender, Some(bound), chunk(len)).expect("room");
        }
        net.run(SECOND);
        let heard = (0..count).take_while(|_| net.hosts[1].shard.udp_receive(receiver).is_ok());
        assert_eq!(heard.count(), count, "of {len} bytes");
    }
}

/// An echo request to host 1.
fn ping() -> Vec<u8> {
    let mut echo = [8, 0, 0, 0, 0, 7, 0, 1];
    let checksum = !checksum::sum(&echo);
    echo[2..4].copy_from_slice(&checksum.to_be_bytes());
    let addresses = (address(0, false), address(1, false));
    craft::packet_as_it_is(station(1), addresses, protocol::ICMP, 64, &echo)
}

#[test]
fn answers_for_which_the_transmit_queue_has_no_room_are_dropped() {
    let mut net = net();
    let id = net.hosts[1].interface;
    net.hosts[1].shard.set_transmit_queue(id, 2);
    let pings = [ping(), ping(), ping(), ping(), ping()];
    assert_eq!(refused(&mut net, &pings), [(DropReason::TransmitQueueFull, 3)]);
    net.run(MS);
    assert_eq!(refused(&mut net, &pings[..2]), [], "there is room again");
}

#[test]
fn a_syn_and_a_reset_whose_answer_would_find_no_room_are_dropped() {
    let mut net = net();
    let local = SocketAddr::new(address(1, false), 80);
    let options = ListenOptions { half_open_max: 2_000, ..ListenOptions::default() };
    net.hosts[1].shard.tcp_listen_with(local, options).expect("a free port");
    let syn = |port: u16| packet(false, protocol::TCP, &segment(port, 80, TcpFlags::SYN), 16);
    let syns: Vec<_> = (2_000..3_024).map(syn).collect();
    assert_eq!(refused(&mut net, &syns), [], "1,024 answers may wait");
    assert_eq!(refused(&mut net, [&syn(3_024)]), [(DropReason::TransmitQueueFull, 1)]);
    assert_eq!(net.hosts[1].shard.half_open_count(), 1_024, "the last is not among them");
    // Its reset is the second packet that is dropped.
    let to_nobody = packet(false, protocol::TCP, &segment(2_000, 99, TcpFlags::SYN), 16);
    let both = [(DropReason::NoConnection, 1), (DropReason::TransmitQueueFull, 1)];
    assert_eq!(refused(&mut net, [&to_nobody]), both);
}

/// A second interface of host 0 with the same address, on the same link.
fn second_interface(net: &mut Net) -> InterfaceId {
    let config = InterfaceConfig {
        capabilities: Capabilities::plain(Medium::Ip, 1_500),
        mode: Some(TransmitMode::Multidata),
        addresses: vec!["10.0.0.1/24".parse().expect("an address")],
        gateways: Vec::new(),
    };
    let host = &mut net.hosts[0];
    let id = host.shard.add_interface(config).expect("a sound configuration");
    host.more.push(id);
    id
}

/// Where one of the two has room its sender is not told, so that the loss is counted.
#[test]
fn a_datagram_by_two_ways_is_dropped_on_the_one_whose_queue_is_full() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    let (now, to) = (net.now, SocketAddr::new(address(1, false), 9));
    let there = net.hosts[1].shard.udp_bind(to).expect("a free port");
    let second = second_interface(&mut net);
    let first = net.hosts[0].interface;
    let shard = &mut net.hosts[0].shard;
    for id in [first, second] {
        let network = "10.0.0.0/24".parse().expect("a network");
        shard.set_route_duplicating(now, network, id, true).expect("its network");
    }
    shard.set_transmit_queue(second, 1);
    let local = SocketAddr::new(address(0, false), 9);
    let socket = shard.udp_bind(local).expect("a free port");
    let full = dropped(&mut net, 0, |net| {
        for _ in 0..3 {
            net.hosts[0].shard.udp_send(socket, Some(to), chunk(10)).expect("a way has room");
        }
    });
    assert_eq!(full, [(DropReason::TransmitQueueFull, 2)]);
    net.run(MS);
    let received = core::iter::from_fn(|| net.hosts[1].shard.udp_receive(there).ok()).count();
    assert_eq!(received, 4, "three by one way and one by the other");
}

/// What was measured against the device of before, and may not be fragmented, fits no more.
#[test]
fn a_datagram_that_waits_while_its_device_shrinks_is_too_long() {
    for ipv6 in [false, true] {
        let mut net = net();
        let to = SocketAddr::new(address(1, ipv6), 9);
        let there = net.hosts[1].shard.udp_bind(to).expect("a free port");
        let id = net.hosts[0].interface;
        let shard = &mut net.hosts[0].shard;
        let local = SocketAddr::new(address(0, ipv6), 9);
        let socket = shard.udp_bind(local).expect("a free port");
        shard.udp_set_mtu_discovery(socket, MtuDiscovery::Do).expect("open");
        for len in [1_400, 1_200, 1_300] {
            shard.udp_send(socket, Some(to), chunk(len)).expect("it fits");
        }
        shard.set_capabilities(id, Capabilities::plain(Medium::Ethernet(station(0)), 1_280));
        let too_long = dropped(&mut net, 0, |net| net.run(MS));
        assert_eq!(too_long, [(DropReason::TooLong, 2)], "{ipv6}");
        let (received, _) = net.hosts[1].shard.udp_receive(there).expect("one fits");
        assert_eq!(received.len(), 1_200);
    }
}

#[test]
fn what_waits_for_an_interface_that_is_removed_and_what_comes_by_it_later_is_dropped() {
    let mut net = net();
    let local = SocketAddr::new(address(1, false), 9);
    let listening = SocketAddr::new(address(1, false), 80);
    let (now, id) = (net.now, net.hosts[1].interface);
    let shard = &mut net.hosts[1].shard;
    shard.tcp_listen(listening, 16).expect("a free port");
    let socket = shard.udp_bind(local).expect("a free port");
    for _ in 0..3 {
        let to = SocketAddr::new(address(0, false), 9);
        shard.udp_send(socket, Some(to), chunk(10)).expect("room");
    }
    // One answer waits as well.
    let syn = packet(false, protocol::TCP, &segment(1_080, 80, TcpFlags::SYN), 16);
    assert_eq!(refused(&mut net, [&syn]), []);
    let removed = |count| [(DropReason::InterfaceRemoved, count)];
    let waited = dropped(&mut net, 1, |net| {
        net.hosts[1].shard.remove_interface(now, id).expect("an interface");
    });
    assert_eq!(waited, removed(4));
    let late = dropped(&mut net, 1, |net| net.inject(1, [ping(), ping()]));
    assert_eq!(late, removed(2), "a whole batch");
    assert_eq!(dropped(&mut net, 1, |net| net.run(120 * SECOND)), []);
}

#[test]
fn what_waits_for_a_neighbour_of_an_interface_that_is_removed_is_dropped() {
    let mut net = net();
    let (now, id) = (net.now, net.hosts[0].interface);
    let socket = net.hosts[0].shard.udp_bind(SocketAddr::new(address(0, false), 9));
    let socket = socket.expect("a free port");
    let waiting = dropped(&mut net, 0, |net| {
        for neighbour in [100, 100, 101] {
            let to = SocketAddr::from(([10, 0, 0, neighbour], 9));
            net.hosts[0].shard.udp_send(socket, Some(to), chunk(10)).expect("room");
        }
        while net.step() {}
    });
    assert_eq!(waiting, []);
    let removed = dropped(&mut net, 0, |net| {
        net.hosts[0].shard.remove_interface(now, id).expect("an interface");
    });
    assert_eq!(removed, [(DropReason::InterfaceRemoved, 3)]);
}

/// Everything is the second shard's.
struct Second;

impl Homes for Second {
    fn of_flow(&self, _: SocketAddr, _: SocketAddr) -> usize {
        1
    }

    fn of_port(&self, _: u16) -> usize {
        1
    }
}

#[test]
fn what_another_shard_passes_on_for_an_interface_that_is_removed_is_dropped() {
    // Host 1 of either net is a shard of one host.
    let [mut first, mut second] = [0, 1].map(|index| {
        let mut net = net();
        let share = Share { index, count: 2, homes: Arc::new(Second) };
        net.hosts[1].shard.set_share(share);
        net
    });
    let (now, id) = (second.now, second.hosts[1].interface);
    let syn = packet(false, protocol::TCP, &segment(1_080, 80, TcpFlags::SYN), 16);
    assert_eq!(refused(&mut first, [&syn]), []);
    let stray = first.hosts[1].shard.poll_stray().expect("it is not the first's");
    second.hosts[1].shard.remove_interface(now, id).expect("an interface");
    let late = dropped(&mut second, 1, |net| net.hosts[1].shard.on_stray(now, &stray));
    assert_eq!(late, [(DropReason::InterfaceRemoved, 1)]);
}
