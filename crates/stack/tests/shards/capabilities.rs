//! What interfaces and devices agree on, why a flow does not use Multidata, and devices that misbehave.

use crate::harness::{self, Net, Turn, data};
use core::net::{IpAddr, SocketAddr};
use counters::{DropReason, MultidataRefusal};
use device::{Capabilities, DeviceError, Medium, Segmentation, Stop, TransmitMode};
use ip::Cidr;
use stack::{
    BadArgument, FilterFlow, Handling, InterfaceConfig, InterfaceEvent, InterfaceId,
    MultidataProtocols, PacketFilter, SocketError, SocketId, StackCounters, TcpOption, Verdict,
};
use std::sync::{Arc, Mutex};
use time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);

fn plain() -> Capabilities {
    Capabilities::plain(Medium::Ip, 1_500)
}

fn offloading() -> Capabilities {
    let segmentation = Segmentation { tcp_ipv4: true, tcp_ipv6: true, len_bytes_max: 65_535 };
    Capabilities { checksum_transmit: true, segmentation: Some(segmentation), ..plain() }
}

fn net(mode: TransmitMode) -> Net {
    Net::new(mode, false)
}

fn counters(net: &Net, host: usize) -> StackCounters {
    net.hosts[host].shard.counters()
}

fn refused(net: &Net, refusal: MultidataRefusal) -> u64 {
    counters(net, 0).refusals.count(refusal)
}

/// The largest batch that host 0 offered since the last call.
fn largest(net: &mut Net) -> usize {
    let sizes = net.batches.iter().filter(|(host, ..)| *host == 0).map(|(_, _, count)| *count);
    let largest = sizes.max().unwrap_or(0);
    net.batches.clear();
    largest
}

/// Bytes of TCP payload that host 0 put on the wire.
fn payload_bytes_sent(net: &Net) -> usize {
    let sent = net.wire.iter().filter(|(host, frame)| *host == 0 && frame[9] == 6);
    sent.map(|(_, frame)| frame.len() - 20 - usize::from(frame[32] >> 4) * 4).sum()
}

/// Moves bytes and sees that none was lost, changed, or sent twice.
fn transfer_once(net: &mut Net, client: SocketId, server: SocketId, len: usize) {
    let bytes = data(len);
    let before = payload_bytes_sent(net);
    move_bytes(net, client, server, &bytes);
    assert_eq!(payload_bytes_sent(net) - before, len, "something was sent twice, or not at all");
    let drops = counters(net, 1).drops;
    assert_eq!(drops.count(DropReason::TcpChecksum) + drops.count(DropReason::IpChecksum), 0);
    assert_eq!(drops.count(DropReason::Duplicate), 0);
}

/// Moves bytes from host 0 to host 1 and leaves the connection open.
fn move_bytes(net: &mut Net, client: SocketId, server: SocketId, bytes: &[u8]) {
    let (mut sent, mut received) = (0, Vec::new());
    let end = net.now + 60 * SECOND;
    while received.len() < bytes.len() {
        sent += net.write(0, client, &bytes[sent..]);
        net.run(Duration::from_micros(500));
        assert!(!net.read(1, server, &mut received).expect("no error"), "nobody has closed");
        assert!(net.now < end, "{} of {} bytes", received.len(), bytes.len());
    }
    assert!(received == bytes, "the stream arrived changed");
}

fn status(net: &Net) -> stack::TransmitStatus {
    let host = &net.hosts[0];
    host.shard.transmit_status(host.interface).expect("an interface")
}

fn events(net: &mut Net) -> Vec<InterfaceEvent> {
    core::iter::from_fn(|| net.hosts[0].shard.poll_interface_event()).collect()
}

fn cidr(text: &str) -> Cidr {
    text.parse().expect("a network")
}

// What is negotiated, and negotiated again.

#[test]
fn an_interface_negotiates_when_it_comes_up_and_shows_what_came_out() {
    let mut net = net(TransmitMode::Lso);
    let found = status(&net);
    assert_eq!((found.wanted, found.mode), (Some(TransmitMode::Lso), TransmitMode::Multidata));
    assert_eq!((found.refusal, found.negotiations, found.batch.packets), (None, 1, 64));
    let [InterfaceEvent::Negotiated(id, told)] = &events(&mut net)[..] else { panic!("one event") };
    assert_eq!((*id, &**told), (net.hosts[0].interface, &found));
    let line = found.to_string();
    let told = "transmit multidata (asked for lso, which the device has no form for), contract 1";
    assert!(line.starts_with(told), "{line}");
    assert!(line.contains("64 blocks, any bytes; checksums no, super-frames no,"), "{line}");
    let id = net.hosts[0].interface;
    let mut able = Capabilities { batch_bytes_max: 300_000, ..offloading() };
    able.checksum_kinds.udp_ipv6 = false;
    net.hosts[0].shard.set_capabilities(id, able);
    let line = status(&net).to_string();
    let told = "300000 bytes; checksums tcp4+tcp6+udp4, super-frames tcp4+tcp6 to 65535 bytes,";
    assert!(line.contains(told), "{line}");
}

#[test]
fn a_transform_that_wants_single_packets_gets_them_and_is_named() {
    let mut net = net(TransmitMode::Multidata);
    let (client, server) = net.connect(false);
    let id = net.hosts[0].interface;
    let wants = Capabilities { wants_single_packets: true, ..plain() };
    net.hosts[0].shard.set_capabilities(id, wants);
    assert_eq!(status(&net).refusal, Some(MultidataRefusal::TransformPolicy));
    transfer_once(&mut net, client, server, 50_000);
    assert_eq!(largest(&mut net), 1);
    assert!(refused(&net, MultidataRefusal::TransformPolicy) > 30);
    net.hosts[0].shard.set_capabilities(id, plain());
    transfer_once(&mut net, client, server, 100_000);
    assert!(largest(&mut net) > 8, "it starts again");
}

#[test]
fn a_mode_that_the_device_has_no_form_for_is_a_batch_and_is_told() {
    let mut net = net(TransmitMode::Chain);
    let id = net.hosts[0].interface;
    assert_eq!(status(&net).mode, TransmitMode::Chain, "this one takes every form");
    let forms = device::Forms { payload: true, ..device::Forms::NONE };
    net.hosts[0].shard.set_capabilities(id, Capabilities { forms, ..plain() });
    let found = status(&net);
    assert_eq!((found.wanted, found.mode), (Some(TransmitMode::Chain), TransmitMode::Multidata));
    let line = found.to_string();
    let told = "transmit multidata (asked for chain, which the device has no form for), ";
    assert!(line.starts_with(told), "{line}");
    assert!(line.contains("; modes single replicated multidata"), "{line}");
    let frames = TransmitMode::Contiguous(device::Contiguous::FRAMES);
    assert_eq!(net.hosts[0].shard.set_mode(id, frames), TransmitMode::Multidata);
    let payload = TransmitMode::Contiguous(device::Contiguous::PAYLOAD);
    assert_eq!(net.hosts[0].shard.set_mode(id, payload), payload);
    assert!(!status(&net).to_string().contains("no form"));
}

#[test]
fn a_mode_that_the_device_lost_comes_back_with_its_capability() {
    let mut net = net(TransmitMode::Lso);
    let id = net.hosts[0].interface;
    net.hosts[0].shard.set_capabilities(id, offloading());
    assert_eq!(status(&net).mode, TransmitMode::Lso);
    net.hosts[0].shard.set_capabilities(id, plain());
    assert_eq!(status(&net).mode, TransmitMode::Multidata);
    net.hosts[0].shard.set_capabilities(id, offloading());
    assert_eq!((status(&net).mode, status(&net).negotiations), (TransmitMode::Lso, 4));
}

#[test]
fn an_operator_switches_multidata_off_and_on_while_a_connection_runs() {
    let mut net = net(TransmitMode::Multidata);
    let (client, server) = net.connect(false);
    let id = net.hosts[0].interface;
    transfer_once(&mut net, client, server, 200_000);
    assert!(largest(&mut net) > 8);
    for which in [Some(id), None] {
        net.hosts[0].shard.set_multidata_outbound(which, false);
        assert_eq!(status(&net).refusal, Some(MultidataRefusal::NotEnabled));
        let before = refused(&net, MultidataRefusal::NotEnabled);
        transfer_once(&mut net, client, server, 100_000);
        assert_eq!(largest(&mut net), 1);
        assert!(refused(&net, MultidataRefusal::NotEnabled) >= before + 60);
        net.hosts[0].shard.set_multidata_outbound(which, true);
        transfer_once(&mut net, client, server, 200_000);
        assert!(largest(&mut net) > 8, "it starts again");
    }
    let counted = counters(&net, 0).shard;
    assert_eq!((counted.multidata_flows_stopped, counted.multidata_flows_started), (2, 2));
}

#[test]
fn a_device_of_another_version_gets_single_packets() {
    let mut net = net(TransmitMode::Multidata);
    let id = net.hosts[0].interface;
    net.hosts[0].shard.set_capabilities(id, Capabilities { version: 9, ..plain() });
    let (client, server) = net.connect(false);
    transfer_once(&mut net, client, server, 50_000);
    assert_eq!(largest(&mut net), 1);
    assert!(refused(&net, MultidataRefusal::NotCapable) > 30);
    let counted = |net: &Net| {
        let counted = counters(net, 0).shard;
        (counted.multidata_flows_stopped, counted.multidata_flows_started)
    };
    assert_eq!(counted(&net), (0, 0), "it never could");
    net.hosts[0].shard.set_capabilities(id, plain());
    transfer_once(&mut net, client, server, 50_000);
    assert_eq!(counted(&net), (0, 1));
    net.hosts[0].shard.set_capabilities(id, Capabilities { version: 9, ..plain() });
    transfer_once(&mut net, client, server, 50_000);
    assert_eq!(counted(&net), (1, 1));
}

#[test]
fn a_batch_keeps_within_what_the_device_takes() {
    for mode in [TransmitMode::Multidata, TransmitMode::Lso] {
        let mut net = net(mode);
        let (id, now) = (net.hosts[0].interface, net.now);
        let limits = Capabilities { batch_packets_max: 7, ..offloading() };
        net.hosts[0].shard.set_capabilities(id, limits.clone());
        assert_eq!(status(&net).batch.packets, 7, "{mode}");
        let (client, server) = net.connect(false);
        transfer_once(&mut net, client, server, 100_000);
        assert_eq!(largest(&mut net), 7, "{mode}");
        let limits = Capabilities { batch_bytes_max: 4_500, ..limits };
        net.hosts[0].shard.set_capabilities(id, limits);
        net.write(0, client, &data(100_000));
        let mut batch = batch::Multidata::default();
        let shard = &mut net.hosts[0].shard;
        assert!(shard.poll_transmit(now, id, device::Room::UNBOUNDED, &mut batch) > 1, "{mode}");
        assert!(batch.payload_bytes() <= 4_500, "{mode}");
    }
}

// Why a flow does not use Multidata.

#[test]
fn a_connections_own_policy_and_a_slow_path_option_ask_for_single_packets() {
    type Make = fn(bool) -> TcpOption;
    let cases: [(Make, MultidataRefusal); 2] = [
        (TcpOption::SinglePackets, MultidataRefusal::FlowPolicy),
        (TcpOption::DontRoute, MultidataRefusal::SlowPathOption),
    ];
    for (option, refusal) in cases {
        let mut net = net(TransmitMode::Multidata);
        let (client, server) = net.connect(false);
        let now = net.now;
        net.hosts[0].shard.tcp_set_option(now, client, option(true)).expect("open");
        transfer_once(&mut net, client, server, 50_000);
        assert_eq!(largest(&mut net), 1);
        assert!(refused(&net, refusal) > 30);
        let now = net.now;
        net.hosts[0].shard.tcp_set_option(now, client, option(false)).expect("open");
        transfer_once(&mut net, client, server, 100_000);
        assert!(largest(&mut net) > 8);
    }
}

#[test]
fn a_peer_beyond_a_gateway_is_out_of_reach_for_a_connection_that_must_not_be_routed() {
    let mut net = net(TransmitMode::Multidata);
    let (client, _server) = net.connect(false);
    let (id, now) = (net.hosts[0].interface, net.now);
    net.hosts[0].shard.tcp_set_option(now, client, TcpOption::DontRoute(true)).expect("open");
    let gateway = Some("10.0.0.9".parse().expect("an address"));
    net.hosts[0].shard.add_route(now, cidr("10.0.0.2/32"), gateway, id).expect("a route");
    net.wire.clear();
    net.write(0, client, b"never");
    net.run(SECOND);
    assert!(net.wire.is_empty());
    assert!(counters(&net, 0).drops.count(DropReason::NeighbourUnreachable) > 0);
}

#[test]
fn protocols_that_are_not_chosen_go_alone() {
    let mut net = net(TransmitMode::Multidata);
    let id = net.hosts[0].interface;
    let (client, server) = net.connect(false);
    let protocols = MultidataProtocols { tcp: false, udp: false, icmp: false, raw: false };
    net.hosts[0].shard.set_multidata_protocols(id, protocols);
    transfer_once(&mut net, client, server, 50_000);
    let shard = &mut net.hosts[0].shard;
    let socket = shard.udp_bind("10.0.0.1:5".parse().expect("an address")).expect("a free port");
    for _ in 0..9 {
        let chunk = batch::Chunk::whole(batch::Block::from(bytes::Bytes::from_static(b"datagram")));
        shard
            .udp_send(socket, Some("10.0.0.2:7".parse().expect("an address")), chunk)
            .expect("room");
    }
    net.run(SECOND);
    assert_eq!(largest(&mut net), 1);
    assert!(refused(&net, MultidataRefusal::Protocol) > 9 + 30);
}

#[test]
fn handshakes_small_windows_small_data_and_router_alerts_are_counted_for_what_they_are() {
    let mut net = net(TransmitMode::Multidata);
    let (client, server) = net.connect(false);
    assert_eq!(refused(&net, MultidataRefusal::NotEstablished), 1, "the SYN");
    net.write(0, client, b"less than a segment");
    net.run(SECOND);
    assert_eq!(refused(&net, MultidataRefusal::SmallData), 1);
    // Nobody reads, so the window fills, and its last part is not a whole segment.
    let now = net.now;
    net.hosts[1].shard.tcp_set_option(now, server, TcpOption::ReceiveBuffer(20_000)).expect("open");
    for _ in 0..50 {
        net.write(0, client, &data(50_000));
        net.run(SECOND);
    }
    assert!(refused(&net, MultidataRefusal::SmallWindow) > 0);
    let group = "239.1.2.3".parse().expect("a group");
    let shard = &mut net.hosts[0].shard;
    let (id, now) = (net.hosts[0].interface, net.now);
    let socket = shard.udp_bind("0.0.0.0:9".parse().expect("an address")).expect("a free port");
    shard.udp_join(now, socket, group, Some(id), &[]).expect("a group");
    net.run(SECOND);
    assert!(refused(&net, MultidataRefusal::IpOptions) > 0);
}

// Routes.

/// Gives host 0 a second interface on the same link, with the same address.
fn second_interface(net: &mut Net, capabilities: Capabilities) -> InterfaceId {
    let config = InterfaceConfig {
        capabilities,
        mode: Some(TransmitMode::Multidata),
        addresses: vec![cidr("10.0.0.1/24")],
        gateways: Vec::new(),
    };
    let id = net.hosts[0].shard.add_interface(config).expect("a sound configuration");
    net.hosts[0].more.push(id);
    id
}

#[test]
fn a_route_to_an_interface_without_multidata_expands_what_was_built_and_back_again() {
    let mut net = net(TransmitMode::Multidata);
    let (client, server) = net.connect(false);
    let second = second_interface(&mut net, Capabilities { version: 0, ..plain() });
    transfer_once(&mut net, client, server, 100_000);
    // A batch is built and not sent; then the route moves.
    net.write(0, client, &data(30_000));
    let (now, first) = (net.now, net.hosts[0].interface);
    let mut batch = batch::Multidata::default();
    let shard = &mut net.hosts[0].shard;
    assert!(shard.poll_transmit(now, first, device::Room::UNBOUNDED, &mut batch) > 1);
    let nothing = device::Transmitted { taken: 0, stopped: Some(Stop::Full) };
    shard.on_transmitted(now, first, &nothing);
    shard.add_route(now, cidr("10.0.0.2/32"), None, second).expect("an interface");
    net.batches.clear();
    let sent_before = payload_bytes_sent(&net);
    net.run(SECOND);
    let mut received = Vec::new();
    net.read(1, server, &mut received).expect("no error");
    assert!(received == data(30_000));
    assert_eq!(payload_bytes_sent(&net) - sent_before, 30_000, "sent once");
    assert!(
        net.batches.iter().all(|(host, id, count)| *host == 1 || (*id == second && *count == 1))
    );
    let counted = counters(&net, 0).shard;
    assert_eq!((counted.connections_rerouted, counted.multidata_flows_stopped), (1, 1));
    let now = net.now;
    net.hosts[0].shard.remove_route(now, cidr("10.0.0.2/32"), second).expect("a route");
    net.batches.clear();
    transfer_once(&mut net, client, server, 100_000);
    assert!(largest(&mut net) > 8);
    let counted = counters(&net, 0).shard;
    assert_eq!((counted.connections_rerouted, counted.multidata_flows_started), (2, 1));
}

#[test]
fn a_connection_moves_on_when_its_interface_is_removed_and_another_has_its_address() {
    let mut net = net(TransmitMode::Multidata);
    let (client, server) = net.connect(false);
    second_interface(&mut net, plain());
    net.write(0, client, &data(100_000));
    net.step();
    let (now, first) = (net.now, net.hosts[0].interface);
    net.hosts[0].shard.remove_interface(now, first).expect("an interface");
    net.run(SECOND);
    let mut received = Vec::new();
    // Host 1 answers to the first interface's inbox, which is the second's now.
    net.hosts[0].interface = net.hosts[0].more[0];
    net.run(10 * SECOND);
    net.read(1, server, &mut received).expect("no error");
    assert!(received == data(100_000), "{} bytes", received.len());
    let counted = counters(&net, 0).shard;
    assert_eq!((counted.interfaces_removed, counted.connections_rerouted), (1, 1));
    assert!(events(&mut net).contains(&InterfaceEvent::Removed(first, 0)));
}

#[test]
fn a_connection_whose_address_goes_with_the_interface_is_told() {
    let mut net = net(TransmitMode::Multidata);
    let (client, _server) = net.connect(false);
    let (now, first) = (net.now, net.hosts[0].interface);
    net.write(0, client, &data(100_000));
    net.hosts[0].shard.remove_interface(now, first).expect("an interface");
    assert!(net.hosts[0].shard.remove_interface(now, first).is_err(), "once");
    let told = net.hosts[0].shard.tcp_status(client).expect("open").error;
    assert_eq!(told, Some(SocketError::AddressRemoved));
    let event = events(&mut net).pop().expect("an event");
    assert_eq!(event, InterfaceEvent::Removed(first, 1));
    assert!(event.to_string().ends_with("was removed; 1 connections ended"));
    net.run(SECOND);
}

// Filters.

/// What a filter saw and says.
#[derive(Default)]
struct Seen {
    handling: Handling,
    receives_single: bool,
    /// Packets of each call.
    out: Vec<usize>,
    received: Vec<usize>,
    /// Numbers of the packets on the way out that it drops.
    drops: Vec<usize>,
    marks: Option<u8>,
    packets: usize,
}

#[derive(Clone, Default)]
struct Watching(Arc<Mutex<Seen>>);

impl PacketFilter for Watching {
    fn handling(&self, _: &FilterFlow) -> Handling {
        self.0.lock().expect("no panic").handling
    }

    fn transmit(
        &mut self,
        _: Instant,
        _: InterfaceId,
        batch: &batch::Multidata,
        packets: core::ops::Range<usize>,
        verdicts: &mut [Verdict],
    ) {
        let mut seen = self.0.lock().expect("no panic");
        seen.out.push(packets.len());
        for (index, verdict) in packets.zip(verdicts) {
            assert!(batch.packet(index).expect("a packet").header().len() >= 28);
            seen.packets += 1;
            if seen.drops.contains(&seen.packets) {
                *verdict = Verdict::Drop;
            } else if let Some(mark) = seen.marks {
                *verdict = Verdict::Mark(mark);
            }
        }
    }

    fn receives_batches(&self) -> bool {
        !self.0.lock().expect("no panic").receives_single
    }

    fn receive(
        &mut self,
        _: Instant,
        _: InterfaceId,
        frames: &batch::ReceiveBatch,
        verdicts: &mut [Verdict],
    ) {
        assert_eq!(frames.len(), verdicts.len());
        self.0.lock().expect("no panic").received.push(frames.len());
    }
}

fn filtered(seen: Seen) -> (Net, SocketId, SocketId, Watching) {
    let mut net = net(TransmitMode::Multidata);
    let (client, server) = net.connect(false);
    let filter = Watching(Arc::new(Mutex::new(seen)));
    net.hosts[0].shard.set_filter(Some(Box::new(filter.clone())));
    net.wire.clear();
    (net, client, server, filter)
}

fn sent_packets(net: &Net) -> usize {
    net.wire.iter().filter(|(host, _)| *host == 0).count()
}

#[test]
fn a_filter_that_takes_batches_gets_batches_and_is_never_passed_by() {
    let (mut net, client, server, filter) = filtered(Seen::default());
    transfer_once(&mut net, client, server, 200_000);
    assert!(largest(&mut net) > 8);
    let seen = filter.0.lock().expect("no panic");
    assert!(seen.out.iter().any(|count| *count > 8));
    assert_eq!(seen.packets, sent_packets(&net));
    assert!(!seen.received.is_empty());
}

#[test]
fn a_filter_that_takes_single_packets_makes_the_stack_expand_for_it() {
    let seen = Seen { handling: Handling::SinglePackets, receives_single: true, ..Seen::default() };
    let (mut net, client, server, filter) = filtered(seen);
    net.batches.clear();
    transfer_once(&mut net, client, server, 200_000);
    assert_eq!(largest(&mut net), 1);
    {
        let seen = filter.0.lock().expect("no panic");
        assert!(seen.out.iter().chain(&seen.received).all(|count| *count == 1));
        assert_eq!(seen.packets, sent_packets(&net));
    }
    assert!(refused(&net, MultidataRefusal::FilterPolicy) > 130);
    net.hosts[0].shard.set_filter(None);
    transfer_once(&mut net, client, server, 200_000);
    assert!(largest(&mut net) > 8, "without it batches are as they were");
}

#[test]
fn what_a_filter_drops_is_sent_again_and_arrives() {
    for handling in [Handling::Batches, Handling::SinglePackets] {
        let drops = vec![3, 4, 9, 30, 31, 32, 33, 70];
        let (mut net, client, server, _filter) =
            filtered(Seen { handling, drops, ..Seen::default() });
        move_bytes(&mut net, client, server, &data(300_000));
        // What stood behind a dropped packet in its batch was built, and judged, again.
        let dropped = counters(&net, 0).drops.count(DropReason::Filtered);
        let expected = if handling == Handling::Batches { 4..=8 } else { 8..=8 };
        assert!(expected.contains(&dropped), "{handling:?}: {dropped}");
        let drops = counters(&net, 1).drops;
        assert_eq!(drops.count(DropReason::TcpChecksum) + drops.count(DropReason::IpChecksum), 0);
    }
}

#[test]
fn marking_a_packet_takes_its_flow_out_of_batches() {
    for handling in [Handling::Marking, Handling::Batches] {
        let (mut net, client, server, _filter) =
            filtered(Seen { handling, marks: Some(46), ..Seen::default() });
        net.batches.clear();
        transfer_once(&mut net, client, server, 100_000);
        assert_eq!(largest(&mut net), 1);
        let sent = net.wire.iter().filter(|(host, _)| *host == 0);
        assert!(sent.clone().count() > 60 && sent.clone().all(|(_, frame)| frame[1] >> 2 == 46));
        assert!(refused(&net, MultidataRefusal::QosMarking) > 60, "{handling:?}");
    }
}

// Loopback.

#[test]
fn a_host_talks_to_itself_in_batches_without_a_device() {
    for to in ["127.0.0.1:80", "10.0.0.1:80", "[::1]:80", "[fd00::1]:80"] {
        let mut net = net(TransmitMode::Multidata);
        let to: SocketAddr = to.parse().expect("an address");
        let now = net.now;
        let shard = &mut net.hosts[0].shard;
        let listener = shard.tcp_listen(SocketAddr::new(to.ip(), 80), 4).expect("a free port");
        let client = shard.tcp_connect(now, None, to).expect("loopback");
        net.run(Duration::from_millis(5));
        let server = net.hosts[0].shard.tcp_accept(listener).expect("connected");
        let bytes = data(3_000_000);
        let (mut sent, mut received) = (0, Vec::new());
        while received.len() < bytes.len() {
            sent += net.write(0, client, &bytes[sent..]);
            net.run(Duration::from_micros(50));
            net.read(0, server, &mut received).expect("no error");
            assert!(net.now < Instant::from_millis(60_000), "{} bytes", received.len());
        }
        assert!(received == bytes);
        assert!(net.wire.is_empty(), "nothing of it reached the device");
        let counted = counters(&net, 0);
        assert!(counted.shard.loopback_packets > counted.shard.loopback_batches, "{to}");
        assert_eq!(counted.drops.total(), 0, "{to}");
    }
}

#[test]
fn datagrams_and_refusals_come_back_to_oneself() {
    let mut net = net(TransmitMode::Multidata);
    let now = net.now;
    let shard = &mut net.hosts[0].shard;
    let address = |text: &str| -> SocketAddr { text.parse().expect("an address") };
    let here = shard.udp_bind(address("127.0.0.1:53")).expect("a free port");
    let there = shard.udp_bind(address("0.0.0.0:54")).expect("a free port");
    let mut askers = Vec::new();
    for _ in 0..20 {
        let chunk = batch::Chunk::whole(batch::Block::from(bytes::Bytes::from(data(9_000))));
        shard.udp_send(there, Some(address("127.0.0.1:53")), chunk).expect("room");
    }
    let nobody = shard.tcp_connect(now, None, address("127.0.0.1:99")).expect("loopback");
    for (port, nobody) in [(55, "127.0.0.1:99"), (56, "[::1]:99"), (57, "10.0.0.1:99")] {
        let (any, nobody) = (format!("[::]:{port}"), address(nobody));
        let any = if nobody.is_ipv4() { format!("0.0.0.0:{port}") } else { any };
        let asker = shard.udp_bind(address(&any)).expect("a free port");
        shard.udp_connect(asker, nobody).expect("loopback");
        let chunk = batch::Chunk::whole(batch::Block::from(bytes::Bytes::from_static(b"hello")));
        shard.udp_send(asker, None, chunk).expect("room");
        askers.push(asker);
    }
    net.run(SECOND);
    let shard = &mut net.hosts[0].shard;
    for asker in askers {
        let told = shard.udp_receive(asker).map(drop);
        assert_eq!(told, Err(SocketError::ConnectionRefused), "nobody listens there");
    }
    for _ in 0..20 {
        let (payload, from) = shard.udp_receive(here).expect("a datagram");
        assert!(payload.bytes() == data(9_000));
        assert_eq!(from, address("127.0.0.1:54"));
    }
    let refused = shard.tcp_status(nobody).expect("open").error;
    assert_eq!(refused, Some(SocketError::ConnectionRefused));
    let outside = shard.tcp_connect(now, Some(address("127.0.0.1:0")), address("10.0.0.2:1"));
    let leaves = BadArgument::LoopbackLeaves { remote: address("10.0.0.2:1").ip() };
    assert_eq!(outside, Err(leaves.into()), "no such source leaves the host");
}

#[test]
fn frames_from_a_device_that_claim_to_be_ours_are_still_refused() {
    let mut net = net(TransmitMode::Multidata);
    let ours: [IpAddr; 2] = ["10.0.0.1", "127.0.0.1"].map(|text| text.parse().expect("an address"));
    for source in ours {
        let addresses = (source, harness::address(0, false));
        let frame =
            harness::craft::packet(harness::station(0), addresses, 6, 64, (&[0x50; 20], 16));
        net.inject(0, [frame[14..].to_vec()]);
    }
    assert_eq!(counters(&net, 0).drops.count(DropReason::BadSource), 2);
}

// Devices that misbehave.

#[test]
fn a_device_that_takes_half_a_batch_none_or_fails_in_the_middle_loses_and_repeats_nothing() {
    let mut net = net(TransmitMode::Multidata);
    let (client, server) = net.connect(false);
    let failed = || {
        Stop::Failed(DeviceError::new(
            std::io::ErrorKind::NetworkDown,
            "the cable was cut: splice it",
        ))
    };
    for (take, stop) in
        [(3, Stop::Full), (0, Stop::Full), (5, failed()), (0, failed()), (1, Stop::Revoked)]
    {
        net.hosts[0].script.push_back(Turn { take, stop, then: None });
    }
    transfer_once(&mut net, client, server, 400_000);
    assert!(net.hosts[0].script.is_empty());
    let counted = counters(&net, 0);
    assert_eq!(counted.shard.device_took_part, 3);
    assert_eq!(counted.shard.device_took_nothing, 2);
    assert_eq!((counted.shard.device_full, counted.shard.device_failures), (2, 2));
    assert!(counted.shard.transmit_not_taken > 0);
    assert_eq!(counted.tcp.retransmitted_segments, 0);
    let told: Vec<String> = events(&mut net).iter().map(ToString::to_string).collect();
    let parts =
        told.iter().filter(|line| line.contains("packets of a batch, and the rest")).count();
    assert_eq!(parts, 1, "told once and counted always: {told:?}");
    let sentence = "its device failed after 5 packets of a batch: the cable was cut: splice it";
    assert!(told.iter().any(|line| line.ends_with(sentence)), "{told:?}");
}

#[test]
fn a_packet_that_is_refused_for_good_is_told_of_once() {
    let mut net = net(TransmitMode::Multidata);
    let (client, server) = net.connect(false);
    for take in [1, 2] {
        net.hosts[0].script.push_back(Turn { take, stop: Stop::Refused, then: None });
    }
    let bytes = data(200_000);
    move_bytes(&mut net, client, server, &bytes);
    assert_eq!(counters(&net, 0).shard.device_refused, 2);
    let again = counters(&net, 0).tcp.retransmitted_segments;
    assert!(again >= 2, "{again}: as if the wire had lost them");
    let id = net.hosts[0].interface;
    let refused = InterfaceEvent::PacketRefused(id);
    assert_eq!(events(&mut net).iter().filter(|event| **event == refused).count(), 1);
}

#[test]
fn a_capability_revoked_between_building_and_sending_leaves_no_broken_packet() {
    let mut net = net(TransmitMode::Lso);
    let id = net.hosts[0].interface;
    net.hosts[0].shard.set_capabilities(id, offloading());
    let (client, server) = net.connect(false);
    let revoked = |take, then| Turn { take, stop: Stop::Revoked, then: Some(then) };
    net.hosts[0].script.extend([
        revoked(2, plain()),
        revoked(0, offloading()),
        revoked(4, plain()),
    ]);
    transfer_once(&mut net, client, server, 400_000);
    assert_eq!(counters(&net, 0).shard.device_revoked, 3);
    assert_eq!(status(&net).mode, TransmitMode::Multidata);
    assert!(counters(&net, 0).shard.checksummed_transmit_bytes > 100_000, "in software again");
    let negotiated = |event: &InterfaceEvent| matches!(event, InterfaceEvent::Negotiated(..));
    assert_eq!(events(&mut net).iter().filter(|event| negotiated(event)).count(), 5);
}

#[test]
fn blocks_longer_than_the_device_takes_are_copied_for_it() {
    let mut net = net(TransmitMode::Multidata);
    let id = net.hosts[0].interface;
    net.hosts[0].shard.set_capabilities(id, Capabilities { block_bytes_max: 2_048, ..plain() });
    let (client, server) = net.connect(false);
    transfer_once(&mut net, client, server, 100_000);
    assert!(largest(&mut net) > 8, "in batches all the same");
    assert_eq!(counters(&net, 0).shard.transmit_copied_bytes, 100_000);
    let is_copied = |event: &InterfaceEvent| matches!(event, InterfaceEvent::BlocksCopied(..));
    assert_eq!(events(&mut net).iter().filter(|event| is_copied(event)).count(), 1);
}

#[test]
fn a_packet_fits_whatever_a_device_says_of_blocks() {
    for (batch_blocks_max, block_bytes_max) in [(1, usize::MAX), (1, 1_000), (3, 200), (0, 0)] {
        let mut net = net(TransmitMode::Multidata);
        let id = net.hosts[0].interface;
        let few = Capabilities { batch_blocks_max, block_bytes_max, ..plain() };
        net.hosts[0].shard.set_capabilities(id, few);
        let (client, server) = net.connect(false);
        transfer_once(&mut net, client, server, 60_000);
    }
}

#[test]
fn an_mtu_that_shrinks_under_a_built_batch_leaves_no_packet_too_long() {
    let mut net = net(TransmitMode::Multidata);
    let (client, server) = net.connect(false);
    let narrow = Capabilities { mtu_bytes: 900, ..plain() };
    net.hosts[0].script.push_back(Turn { take: 2, stop: Stop::Revoked, then: Some(narrow) });
    let bytes = data(200_000);
    net.wire.clear();
    move_bytes(&mut net, client, server, &bytes);
    let long = net.wire.iter().filter(|(host, frame)| *host == 0 && frame.len() > 900).count();
    assert_eq!(long, 2, "those that were taken before");
    assert_eq!(counters(&net, 1).drops.count(DropReason::TcpChecksum), 0);
    assert_eq!(counters(&net, 0).shard.device_mtus_shrunk, 1);
    let id = net.hosts[0].interface;
    let told = events(&mut net);
    assert!(told.contains(&InterfaceEvent::MtuShrunk(id, 900)), "{told:?}");
}
