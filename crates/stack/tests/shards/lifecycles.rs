//! What sockets leave behind, whom they wait for, and what a host with several addresses or
//! interfaces answers with.

use crate::harness::{self, Fate, Net, address, bytes_of, receive_batch, station};
use batch::{Block, Chunk, Multidata, ReceiveBatch};
use bytes::Bytes;
use core::net::{IpAddr, SocketAddr};
use core::ops::Range;
use device::{Capabilities, HardwareAddress, Medium, Room, TransmitMode, Transmitted};
use ip::Cidr;
use stack::{
    AddressEvent, BadArgument, FilterFlow, Handling, InterfaceConfig, InterfaceId, PacketFilter,
    Readiness, Shard, ShardConfig, SocketError, Verdict,
};
use std::cell::Cell;
use std::rc::Rc;
use time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);

fn chunk(bytes: &[u8]) -> Chunk {
    Chunk::whole(Block::from(Bytes::copy_from_slice(bytes)))
}

fn parse<T: core::str::FromStr>(text: &str) -> T {
    text.parse().ok().expect("well formed")
}

/// A shard with interfaces of these addresses and gateways.
fn shard(interfaces: &[(Medium, &[&str], &[&str])]) -> (Shard, Vec<InterfaceId>) {
    let mut shard = Shard::new(ShardConfig {
        tcp: tcp::Config::default(),
        pool: batch::BlockPool::new(batch::PoolConfig::default()),
        secret: [3; 32],
        sockets_max: 100,
    });
    let ids = interfaces
        .iter()
        .map(|(medium, addresses, gateways)| {
            let config = InterfaceConfig {
                capabilities: Capabilities::plain(*medium, 1_500),
                mode: Some(TransmitMode::Multidata),
                addresses: addresses.iter().map(|text| parse(text)).collect(),
                gateways: gateways.iter().map(|text| parse(text)).collect(),
            };
            shard.add_interface(config).expect("a sound configuration")
        })
        .collect();
    (shard, ids)
}

/// Everything that one interface sends now.
fn sent(shard: &mut Shard, now: Instant, id: InterfaceId) -> Vec<Vec<u8>> {
    let mut batch = Multidata::default();
    let mut frames = Vec::new();
    loop {
        let built = shard.poll_transmit(now, id, Room::UNBOUNDED, &mut batch);
        if built == 0 {
            return frames;
        }
        frames.extend(batch.packets().map(|packet| bytes_of(&packet)));
        shard.on_transmitted(now, id, &Transmitted { taken: built, stopped: None });
    }
}

/// What loses all that is sent.
struct Swallows;

impl PacketFilter for Swallows {
    fn handling(&self, _: &FilterFlow) -> Handling {
        Handling::Batches
    }

    fn transmit(
        &mut self,
        _: Instant,
        _: InterfaceId,
        _: &Multidata,
        _: Range<usize>,
        verdicts: &mut [Verdict],
    ) {
        verdicts.fill(Verdict::Drop);
    }

    fn receive(&mut self, _: Instant, _: InterfaceId, _: &ReceiveBatch, _: &mut [Verdict]) {}
}

/// Behind a window probe that nobody has answered there are two resets. Where the first one is lost in the
/// stack, nothing is in the batch, and nobody would come back for the second.
#[test]
fn both_resets_behind_a_window_probe_leave_also_where_they_are_lost_at_once() {
    let full = 2 * 1_448;
    let config = tcp::Config {
        receive_buffer_bytes_initial: full,
        receive_buffer_bytes: full,
        ..tcp::Config::default()
    };
    let mut net = Net::with_config(TransmitMode::Multidata, true, config);
    let (client, _server) = net.connect(false);
    net.write(0, client, &[7; 9_000]);
    net.run(SECOND / 10);
    net.fate = Box::new(|_, _| Fate::Lose);
    net.run(SECOND * 3);
    drop(net.hosts[0].shard.set_filter(Some(Box::new(Swallows))));
    let before = net.hosts[0].shard.counters().tcp.resets_sent;
    net.hosts[0].shard.tcp_abort(net.now, client);
    net.hosts[0].shard.close(net.now, client);
    while net.step() {}
    assert_eq!(net.hosts[0].shard.counters().tcp.resets_sent - before, 2);
    assert_eq!(net.hosts[0].shard.holdings().sockets, 0);
}

/// RFC 9293, 3.10.7.1: a segment for a connection that is over is answered with a reset, also while
/// the application still holds the socket.
#[test]
fn a_peer_that_missed_the_reset_gets_another() {
    let mut net = Net::new(TransmitMode::Multidata, true);
    let (client, server) = net.connect(false);
    let loses = Rc::new(Cell::new(true));
    let decide = Rc::clone(&loses);
    net.fate = Box::new(move |_, _| if decide.get() { Fate::Lose } else { Fate::Deliver });
    net.hosts[1].shard.tcp_abort(net.now, server);
    net.run(SECOND);
    loses.set(false);
    net.write(0, client, b"is anybody there?");
    net.run(SECOND);
    let status = net.hosts[0].shard.tcp_status(client).expect("still owned");
    assert_eq!(status.error, Some(SocketError::ConnectionReset));
    let status = net.hosts[1].shard.tcp_status(server).expect("still owned");
    assert_eq!(status.error, Some(SocketError::ConnectionAborted));
}

#[test]
fn a_socket_that_waits_for_room_behind_others_is_told_of_it() {
    for reachable in [true, false] {
        let mut net = Net::new(TransmitMode::Multidata, true);
        let any = SocketAddr::new(address(0, false), 0);
        let busy = net.hosts[0].shard.udp_bind(any).expect("a free port");
        let waiting = net.hosts[0].shard.udp_bind(any).expect("a free port");
        let host = if reachable { "10.0.0.2:9" } else { "10.0.0.99:9" };
        let to: SocketAddr = parse(host);
        while net.hosts[0].shard.udp_send(busy, Some(to), chunk(b"x")).is_ok() {}
        let refused = net.hosts[0].shard.udp_send(waiting, Some(to), chunk(b"x"));
        assert_eq!(refused, Err(SocketError::WouldBlock));
        net.run(5 * SECOND);
        let events: Vec<_> = core::iter::from_fn(|| net.hosts[0].shard.poll_event()).collect();
        assert!(
            events
                .iter()
                .any(|event| event.socket == waiting
                    && event.readiness.intersects(Readiness::WRITABLE)),
            "{events:?}"
        );
    }
}

#[test]
fn a_socket_waits_for_no_room_that_another_one_in_its_place_found_missing() {
    let mut net = Net::new(TransmitMode::Multidata, true);
    let any = SocketAddr::new(address(0, false), 0);
    let to: SocketAddr = parse("10.0.0.2:9");
    let shard = &mut net.hosts[0].shard;
    let gone = shard.udp_bind(any).expect("a free port");
    while shard.udp_send(gone, Some(to), chunk(b"x")).is_ok() {}
    let readiness = shard.datagram_readiness(gone).expect("open");
    assert!(!readiness.intersects(Readiness::WRITABLE));
    shard.close(net.now, gone);
    let next = shard.udp_bind(any).expect("a free port");
    let readiness = shard.datagram_readiness(next).expect("open");
    assert!(readiness.intersects(Readiness::WRITABLE), "it has sent nothing");
}

#[test]
fn a_socket_for_all_addresses_answers_in_both_families() {
    let mut net = Net::new(TransmitMode::Multidata, true);
    let server = net.hosts[1].shard.udp_bind(parse("0.0.0.0:53")).expect("a free port");
    for ipv6 in [false, true] {
        let local = SocketAddr::new(address(0, ipv6), 0);
        let client = net.hosts[0].shard.udp_bind(local).expect("a free port");
        let to = SocketAddr::new(address(1, ipv6), 53);
        net.hosts[0].shard.udp_send(client, Some(to), chunk(b"question")).expect("a route");
        net.run(SECOND);
        let (_, source) = net.hosts[1].shard.udp_receive(server).expect("arrived");
        net.hosts[1].shard.udp_send(server, Some(source), chunk(b"answer")).expect("a route");
        net.run(SECOND);
        let (answer, _) = net.hosts[0].shard.udp_receive(client).expect("answered");
        assert_eq!(answer.bytes(), b"answer");
    }
}

/// RFC 9293, 3.9.2.3, MUST-46; RFC 1122, 4.2.3.10.
#[test]
fn a_connection_to_everybody_is_refused() {
    let mut net = Net::new(TransmitMode::Multidata, true);
    for remote in ["10.0.0.255:80", "255.255.255.255:80", "224.0.0.1:80"] {
        let remote: SocketAddr = parse(remote);
        let opened = net.hosts[0].shard.tcp_connect(net.now, None, remote);
        assert_eq!(opened.err(), Some(BadArgument::PeerIsMany(remote.ip()).into()), "{remote}");
    }
    let nobody: SocketAddr = parse("10.0.0.2:0");
    let opened = net.hosts[0].shard.tcp_connect(net.now, None, nobody);
    assert_eq!(opened.err(), Some(BadArgument::NoPort(nobody.ip()).into()));
}

/// RFC 6724, rule 2: an address of the link is no use beyond it.
#[test]
fn an_address_of_the_link_is_not_used_beyond_it() {
    let addresses: &[&str] = &["fe80::1/64", "2001:db8::1/64"];
    let (mut shard, _) = shard(&[(Medium::Ethernet(station(0)), addresses, &["fe80::ff"])]);
    for (remote, expected) in [
        ("[2001:db8:1::7]:80", "2001:db8::1"),
        ("[2001:db8::7]:80", "2001:db8::1"),
        ("[fe80::7]:80", "fe80::1"),
    ] {
        let id = shard.tcp_connect(Instant::from_millis(5), None, parse(remote)).expect("a route");
        let local = shard.local_address(id).expect("open").ip();
        assert_eq!(local, parse::<IpAddr>(expected), "to {remote}");
    }
}

/// A host with two routers answers over the interface it was asked on, by the router that is there.
#[test]
fn an_answer_takes_the_router_of_the_interface_it_was_asked_on() {
    let media = [Medium::Ethernet(station(0)), Medium::Ethernet(station(1))];
    let (mut host, ids) = shard(&[
        (media[0], &["10.0.1.1/24"], &["10.0.1.254"]),
        (media[1], &["10.0.2.1/24"], &["10.0.2.254"]),
    ]);
    let (mut far, far_ids) = shard(&[(Medium::Ip, &["198.51.100.7/24"], &["198.51.100.1"])]);
    let now = Instant::from_millis(5);
    host.tcp_listen(parse("10.0.2.1:80"), 4).expect("a free port");
    far.tcp_connect(now, None, parse("10.0.2.1:80")).expect("a route");
    let syn = sent(&mut far, now, far_ids[0]).remove(0);
    let router = HardwareAddress([2, 0, 0, 0, 0, 99]);
    let frame = [&station(1).0[..], &router.0[..], &[8, 0], &syn].concat();
    host.on_receive(now, ids[1], &mut receive_batch([frame]));
    assert!(sent(&mut host, now, ids[0]).is_empty());
    let asked = sent(&mut host, now, ids[1]);
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0][12..14], [8, 6], "an ARP request");
    assert_eq!(asked[0][38..42], [10, 0, 2, 254], "for the router");
}

#[test]
fn a_connection_that_a_small_room_kept_back_has_its_turn_later() {
    let mut net = Net::new(TransmitMode::Multidata, true);
    let (client, server) = net.connect(false);
    net.write(0, client, &[7; 1_000]);
    let host = &mut net.hosts[0];
    let mut batch = Multidata::default();
    let room = Room { packets: 64, bytes: 100 };
    assert_eq!(host.shard.poll_transmit(net.now, host.interface, room, &mut batch), 0);
    net.run(Duration::from_millis(1));
    let mut received = Vec::new();
    net.read(1, server, &mut received).expect("open");
    assert_eq!(received.len(), 1_000);
}

#[test]
fn a_socket_that_nobody_reads_does_not_pin_the_pool() {
    let mut net = Net::new(TransmitMode::Multidata, true);
    let any = SocketAddr::new(address(0, false), 0);
    let client = net.hosts[0].shard.udp_bind(any).expect("a free port");
    let to = SocketAddr::new(address(1, false), 9);
    net.hosts[1].shard.udp_bind(to).expect("a free port");
    let host = &mut net.hosts[0];
    host.shard.udp_send(client, Some(to), chunk(&[7; 40])).expect("a route");
    net.run(SECOND);
    let frame = net.wire.last().expect("sent").1.clone();
    for _ in 0..500 {
        // The rest of the block is others' frames.
        let host = &mut net.hosts[1];
        let mut block = host.pool.allocate(65_536).expect("within the pool's limit");
        block.bytes_mut()[..frame.len()].copy_from_slice(&frame);
        let mut batch = batch::ReceiveBatch::new();
        let block = batch.add_block(block.freeze());
        for (offset, len) in [(0, frame.len() as u32), (20_000, 20_000)] {
            let checksum = batch::ReceivedChecksum::Unverified;
            assert!(batch.push_frame(batch::Frame {
                block,
                offset,
                len,
                checksum,
                segmented: None
            }));
        }
        host.shard.on_receive(net.now, host.interface, &mut batch);
    }
    let outstanding = net.hosts[1].pool.counters().outstanding_bytes;
    assert!(outstanding < 8 << 20, "{outstanding} bytes");
}

/// A reader that reads nothing, of whose stream each block of the device has one segment, the rest being
/// others' frames: it holds a few blocks, and from then on copies, which is counted.
#[test]
fn a_slow_reader_does_not_hold_the_blocks_of_the_device() {
    let mut net = Net::new(TransmitMode::Multidata, true);
    let (client, server) = net.connect(false);
    let caught = std::rc::Rc::<std::cell::RefCell<Vec<Vec<u8>>>>::default();
    let catching = caught.clone();
    net.mangle = Box::new(move |to, frames| {
        if to == 1 {
            catching.borrow_mut().append(frames);
        }
    });
    let bytes = harness::data(400_000);
    let (mut written, mut segments) = (0, 0);
    loop {
        written += net.write(0, client, &bytes[written..]);
        let moved = net.step();
        let frames = std::mem::take(&mut *caught.borrow_mut());
        if frames.is_empty() && !moved {
            break;
        }
        for frame in frames {
            let host = &mut net.hosts[1];
            let mut block = host.pool.allocate_receive(65_536).expect("within the pool's limit");
            block.bytes_mut()[..frame.len()].copy_from_slice(&frame);
            let mut batch = batch::ReceiveBatch::new();
            let block = batch.add_block(block.freeze());
            for (offset, len) in [(0, frame.len() as u32), (20_000, 20_000)] {
                let checksum = batch::ReceivedChecksum::Unverified;
                let frame = batch::Frame { block, offset, len, checksum, segmented: None };
                assert!(batch.push_frame(frame));
            }
            host.shard.on_receive(net.now, host.interface, &mut batch);
            segments += 1;
        }
    }
    let host = &mut net.hosts[1];
    let waiting = host.shard.tcp_status(server).expect("open").readable_bytes;
    assert!(segments > 60 && waiting > 100_000, "{segments} segments, {waiting} bytes wait");
    let outstanding = host.pool.counters().outstanding_bytes;
    assert!(outstanding < 8 * waiting as u64, "{outstanding} bytes are held for {waiting}");
    assert!(outstanding < segments * 65_536 / 4, "{outstanding} bytes of {segments} blocks");
    assert!(host.shard.counters().tcp.copied_bytes > waiting as u64 / 4, "copied and counted");
    let mut received = Vec::new();
    net.read(1, server, &mut received).expect("open");
    assert!(received == bytes[..waiting], "copied as it came");
    // What is still parsed of others' frames is held by nobody.
    let outstanding = net.hosts[1].pool.counters().outstanding_bytes;
    assert!(outstanding < 200_000, "{outstanding} bytes are held for nothing");
}

/// Where everything waits for a neighbour that was asked already nothing is in the batch, and there is room all the same;
/// and who waits for a device that failed is told so.
#[test]
fn a_socket_that_waits_for_room_is_told_though_nothing_can_leave() {
    for fails in [false, true] {
        let mut net = Net::new(TransmitMode::Multidata, true);
        let any = SocketAddr::new(address(0, false), 0);
        let [busy, waiting] = [0, 1].map(|_| net.hosts[0].shard.udp_bind(any).expect("a port"));
        let to: SocketAddr = parse("10.0.0.99:9");
        net.hosts[0].shard.udp_send(busy, Some(to), chunk(b"x")).expect("room");
        while net.step() {}
        while net.hosts[0].shard.udp_send(busy, Some(to), chunk(b"x")).is_ok() {}
        let refused = net.hosts[0].shard.udp_send(waiting, Some(to), chunk(b"x"));
        assert_eq!(refused, Err(SocketError::WouldBlock));
        let (now, id, shard) = (net.now, net.hosts[0].interface, &mut net.hosts[0].shard);
        while shard.poll_event().is_some() {}
        match fails {
            true => {
                let error = device::DeviceError::new(std::io::ErrorKind::BrokenPipe, "gone");
                shard.on_device_failed(now, id, &error);
            }
            false => assert!(!net.step(), "it was asked a moment ago"),
        }
        let events = core::iter::from_fn(|| net.hosts[0].shard.poll_event());
        let of_waiting: Vec<_> = events.filter(|event| event.socket == waiting).collect();
        assert!(
            of_waiting.iter().any(|it| it.readiness.intersects(Readiness::WRITABLE)),
            "{fails}"
        );
    }
}

/// A slot that is used again while its last connection still stands in a list has one turn, with each segment once.
#[test]
fn a_connection_in_the_place_of_one_that_was_to_send_sends_once() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    let (now, id, shard) = (net.now, net.hosts[0].interface, &mut net.hosts[0].shard);
    let to: SocketAddr = parse("10.0.0.2:9");
    let gone = shard.tcp_connect(now, None, to).expect("a route");
    shard.tcp_abort(now, gone);
    shard.close(now, gone);
    let next = shard.tcp_connect(now, None, to).expect("a route");
    assert_eq!(gone.index(), next.index());
    let mut batch = Multidata::default();
    assert_eq!(shard.poll_transmit(now, id, Room::UNBOUNDED, &mut batch), 1);
}

/// However many datagrams wait, connections have their part of a batch.
#[test]
fn a_crowd_of_datagrams_leaves_connections_room_in_a_batch() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    let (client, _) = net.connect(false);
    let any = SocketAddr::new(address(0, false), 0);
    let (now, id) = (net.now, net.hosts[0].interface);
    let busy = net.hosts[0].shard.udp_bind(any).expect("a free port");
    net.write(0, client, b"a word");
    let shard = &mut net.hosts[0].shard;
    while shard.udp_send(busy, Some(parse("10.0.0.2:9")), chunk(b"x")).is_ok() {}
    let mut batch = Multidata::default();
    let room = Room { packets: 40, ..Room::UNBOUNDED };
    assert_eq!(shard.poll_transmit(now, id, room, &mut batch), 40);
    let is_segment = |packet: batch::PacketView<'_>| bytes_of(&packet)[9] == 6;
    assert_eq!(batch.packets().filter(|packet| is_segment(*packet)).count(), 1);
}

/// Another interface leads to its peer, who would answer an address that nobody has any more.
#[test]
fn a_connection_ends_with_the_interface_that_has_its_address() {
    let (mut shard, ids) = shard(&[
        (Medium::Ip, &["10.0.0.1/24"], &[]),
        (Medium::Ip, &["10.7.0.1/24"], &["10.7.0.254"]),
    ]);
    let now = Instant::from_millis(1);
    let lost = shard.tcp_connect(now, None, parse("10.0.0.2:80")).expect("a route");
    let kept = shard.tcp_connect(now, None, parse("192.0.2.1:80")).expect("a route");
    shard.remove_interface(now, ids[0]).expect("an interface");
    let errors = [lost, kept].map(|id| shard.tcp_status(id).expect("not closed").error);
    assert_eq!(errors, [Some(SocketError::AddressRemoved), None]);
    let removed = AddressEvent::Removed(ids[0], parse("10.0.0.1/24"));
    let event = core::iter::from_fn(|| shard.poll_address_event()).last();
    assert_eq!(event, Some(removed), "it is told, too");
}

/// To accept an address is not to have it.
#[test]
fn a_connection_ends_with_its_address_also_where_all_addresses_are_accepted() {
    let (mut shard, ids) = shard(&[
        (Medium::Ip, &["10.0.0.1/24", "10.0.0.9/24"], &[]),
        (Medium::Ip, &["10.7.0.1/24"], &["10.7.0.254"]),
    ]);
    let now = Instant::from_millis(1);
    for id in &ids {
        shard.set_accepted(*id, &[Cidr::ANY_IPV4]).expect("an interface");
    }
    let local = Some(parse("10.0.0.1:5000"));
    let client = shard.tcp_connect(now, local, parse("10.0.0.2:80")).expect("a route");
    shard.remove_address(now, ids[0], parse("10.0.0.1")).expect("it has it");
    let error = shard.tcp_status(client).expect("not closed").error;
    assert_eq!(error, Some(SocketError::AddressRemoved));
}

#[test]
fn an_id_that_outlived_its_socket_names_nothing() {
    let (mut shard, _) = shard(&[(Medium::Ip, &["10.0.0.1/24"], &[])]);
    let now = Instant::from_millis(1);
    let past = shard.udp_bind(parse("10.0.0.1:5000")).expect("a free port");
    shard.close(now, past);
    let next = shard.udp_bind(parse("10.0.0.1:5001")).expect("a free port");
    assert_eq!(past.index(), next.index(), "it has the place of the other");
    assert_eq!(shard.local_address(past), Err(SocketError::InvalidSocket));
    shard.close(now, past);
    assert_eq!(shard.local_address(next), Ok(parse("10.0.0.1:5001")));
}

/// What was counted by an interface is in the sums, also when it is gone.
#[test]
fn counters_outlive_their_interface() {
    let station = HardwareAddress([2, 0, 0, 0, 0, 1]);
    let (mut shard, ids) = shard(&[(Medium::Ethernet(station), &["10.0.0.1/24"], &[])]);
    let now = Instant::from_millis(1);
    shard.tcp_connect(now, None, parse("10.0.0.2:80")).expect("a route");
    assert_eq!(sent(&mut shard, now, ids[0]).len(), 1, "a question");
    assert_eq!(shard.counters().neighbours.neighbour_requests, 1);
    shard.remove_interface(now, ids[0]).expect("an interface");
    assert_eq!(shard.counters().neighbours.neighbour_requests, 1);
}

#[test]
fn gateways_that_cannot_be_one_are_refused_with_their_interface() {
    let (mut shard, _) = shard(&[(Medium::Ip, &["10.0.0.1/24"], &[])]);
    let mut add = |gateways: &[&str]| {
        let config = InterfaceConfig {
            capabilities: Capabilities::plain(Medium::Ip, 1_500),
            mode: None,
            addresses: vec![parse("10.0.0.2/24")],
            gateways: gateways.iter().map(|text| parse(text)).collect(),
        };
        shard.add_interface(config)
    };
    let [own, far, one, other] =
        ["10.0.0.1", "10.7.0.1", "10.0.0.8", "10.0.0.9"].map(parse::<IpAddr>);
    assert_eq!(add(&["10.0.0.1"]), Err(BadArgument::OwnGateway(own).into()), "of the other one");
    assert_eq!(add(&["10.7.0.1"]), Err(BadArgument::FarGateway(far).into()));
    let two = add(&["10.0.0.8", "10.0.0.9"]);
    assert_eq!(two, Err(BadArgument::TwoGateways(one, other).into()));
    add(&["10.0.0.8", "10.0.0.8"]).expect("one that is named twice");
}
