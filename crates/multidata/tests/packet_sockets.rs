//! The stack on a packet socket (AF_PACKET) at one end of a veth pair, the kernel's TCP at the other,
//! in a network of the test's own.

mod kernel;

use batch::{Attributes, Block, BlockPool, Multidata, PoolConfig, ReceiveBatch};
use bytes::Bytes;
use device::{HardwareAddress, Medium, Queue, Stop, TransmitMode};
use linux::{Bridge, Feature, Interface, PacketAddress, PacketConfig, PacketDevice, VethPair};
use multidata::{InterfaceConfig, Stack, TcpListener, TcpStream, UdpSocket};
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const TESTS: &[kernel::Test] = &[
    ("streams_over_packet_sockets_offloaded", || streams(true)),
    ("streams_over_packet_sockets_plain", || streams(false)),
    ("streams_over_packet_sockets_with_the_interfaces_address", interface_address),
    ("an_interface_that_gets_another_address_goes_on_taking_frames_for_ours", other_address),
    ("an_interface_that_is_made_anew_takes_frames_for_the_address_it_had", other_address_anew),
    ("streams_over_packet_sockets_that_bypass_the_queue", bypassed),
    ("an_interface_that_goes_down_in_the_middle_loses_nothing", down_and_up),
    ("an_interface_that_is_made_anew_is_taken_up_again", gone_and_back),
    ("an_mtu_that_shrinks_in_the_middle_loses_nothing", mtu_shrinks),
    ("an_mtu_that_shrinks_reaches_every_squeue_of_a_socket", mtu_shrinks_for_all),
    ("streams_over_packet_sockets_received_in_blocks", in_blocks),
    ("an_interface_below_blocks_that_goes_down_loses_nothing", down_and_up_below_blocks),
    ("several_sockets_get_the_frames_of_their_own_connections", several_sockets),
    ("an_interface_of_several_sockets_that_is_gone_is_told_of", gone_for_several),
    ("frames_that_come_while_several_sockets_open_come_up_once", opened_under_load),
    ("what_the_receive_queue_has_no_room_for_is_counted", overrun),
    ("datagrams_that_the_kernel_leaves_uncut_arrive_one_by_one", || uncut_datagrams(false)),
    ("datagrams_that_the_kernel_leaves_uncut_arrive_in_blocks", || uncut_datagrams(true)),
    ("super_frames_within_a_tunnel_are_lost_and_counted", || tunnelled(false)),
    ("super_frames_within_a_tunnel_are_lost_in_blocks", || tunnelled(true)),
    ("a_frame_that_is_always_dropped_below_does_not_stop_the_others", always_dropped),
    ("frames_of_others_and_of_vlans_do_not_come_up", only_ours),
    ("a_frame_that_is_given_up_is_not_counted_as_sent", given_up),
    ("who_waits_below_an_interface_that_was_down_sleeps_as_before", sleeps_as_before),
    ("an_mtu_that_shrinks_is_noticed_below_super_frames", mtu_shrinks_below_super_frames),
];

/// Longest time any step may take.
const PATIENCE: Duration = Duration::from_secs(30);

const NEAR: &str = "pkt0";
const FAR: &str = "pkt1";

fn address(ipv6: bool, host: u8) -> IpAddr {
    kernel::address(ipv6, 51, host)
}

/// A cable whose far end is the kernel's, at `.1`. Without offload the kernel sends real frames with
/// complete checksums.
fn cable(mtu_bytes: usize, offload: bool) -> VethPair {
    let pair = VethPair::new(NEAR, FAR).expect("root of the namespace");
    pair.set_mtu_bytes(mtu_bytes).expect("root of the namespace");
    if !offload {
        for end in [pair.near(), pair.far()] {
            for feature in
                [Feature::Segmentation, Feature::SoftwareSegmentation, Feature::TransmitChecksum]
            {
                end.set_feature(feature, false).expect("veth has these");
            }
        }
    }
    give_addresses(&pair);
    pair
}

fn give_addresses(pair: &VethPair) {
    pair.set_up().expect("root of the namespace");
    kernel::give(pair.far(), 51, 1);
}

/// A stack at `.2` on the near end.
fn stack(config: &PacketConfig, mode: TransmitMode) -> Stack {
    let mut device = PacketDevice::open(config).expect("root of the namespace");
    assert_eq!(device.refused(), &[] as &[String], "{}", device.negotiated());
    let queue = device.queue(0).expect("it has one");
    Stack::builder().interface(queue, kernel::ours(51).mode(mode)).build().expect("a stack")
}

fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| ((at + seed).wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// A connection that the kernel accepted.
fn connected(stack: &Stack, ipv6: bool) -> (TcpStream, std::net::TcpStream) {
    kernel::connected(stack, address(ipv6, 1), PATIENCE)
}

/// Sends `len` bytes each way, one after the other, and checks every one of them.
fn both_ways(stack: &Stack, ipv6: bool, len: usize) {
    let (mut ours, mut kernel) = connected(stack, ipv6);
    let (sent, back) = (pattern(1, len), pattern(2, len));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut received = Vec::new();
            kernel.read_to_end(&mut received).expect("it arrives");
            assert!(received == pattern(1, len), "other bytes arrived");
            kernel.write_all(&back).expect("it is taken");
            kernel.shutdown(Shutdown::Write).expect("open");
        });
        ours.write_all(&sent).expect("it is taken");
        ours.shutdown(Shutdown::Write).expect("open");
        let mut received = Vec::new();
        ours.read_to_end(&mut received).expect("it arrives");
        assert!(received == pattern(2, len), "other bytes came back");
        reader.join().expect("the kernel's end");
    });
}

fn streams(offload: bool) {
    let modes: &[TransmitMode] = match offload {
        true => &[TransmitMode::Single, TransmitMode::Multidata, TransmitMode::Lso],
        false => &[TransmitMode::Single, TransmitMode::Multidata],
    };
    for mtu_bytes in [1_500, 9_000] {
        let _pair = cable(mtu_bytes, offload);
        for mode in modes {
            let config = PacketConfig { offload, ..PacketConfig::new(NEAR) };
            let stack = stack(&config, *mode);
            assert_eq!(stack.interfaces()[0].mode, *mode);
            for ipv6 in [false, true] {
                both_ways(&stack, ipv6, 2_000_000);
            }
            let counters = stack.counters();
            let (device, what) = (counters.device, format!("{mode}, MTU {mtu_bytes}"));
            let (calls, frames) = (device.transmit_syscalls, device.transmit_frames);
            match *mode {
                TransmitMode::Single => assert!(calls >= frames, "{what}: {calls}, {frames}"),
                TransmitMode::Lso => {
                    assert!(device.transmit_packets > 2 * frames, "{what}: {frames} frames");
                }
                _ => assert!(calls < frames, "{what}: {calls}, {frames}"),
            }
            assert_eq!(device.receive_dropped, 0, "{what}");
            assert_eq!(counters.stack.tcp.retransmission_timeouts, 0, "{what}");
        }
    }
}

fn interface_address() {
    let pair = cable(1_500, true);
    let config = PacketConfig { address: PacketAddress::Interface, ..PacketConfig::new(NEAR) };
    let stack = stack(&config, TransmitMode::Lso);
    let ours = stack.interfaces()[0].capabilities.medium;
    let kernels = pair.near().hardware_address().expect("it has one");
    assert_eq!(ours, device::Medium::Ethernet(kernels));
    both_ways(&stack, false, 1_000_000);
}

/// A bridge, which takes nothing for other addresses than its own unless it is told, and a cable from one of its
/// ports to the kernel.
fn bridge() -> (Bridge, VethPair) {
    let bridge = Bridge::new(NEAR).expect("root of the namespace");
    let pair = VethPair::new("port0", FAR).expect("root of the namespace");
    give_addresses(&pair);
    bridge.add_port(pair.near()).expect("root of the namespace");
    let interface = Interface::named(NEAR).expect("the bridge");
    interface
        .set_hardware_address(HardwareAddress([2, 0, 0, 0, 0, 1]))
        .expect("a bridge takes any");
    (bridge, pair)
}

fn other_address() {
    let _made = bridge();
    let config = PacketConfig { address: PacketAddress::Interface, ..PacketConfig::new(NEAR) };
    let stack = stack(&config, TransmitMode::Multidata);
    both_ways(&stack, false, 100_000);
    let interface = Interface::named(NEAR).expect("the bridge");
    interface
        .set_hardware_address(HardwareAddress([2, 0, 0, 0, 0, 2]))
        .expect("a bridge takes any");
    both_ways(&stack, false, 100_000);
}

fn other_address_anew() {
    let (first, pair) = bridge();
    let config = PacketConfig { address: PacketAddress::Interface, ..PacketConfig::new(NEAR) };
    let stack = stack(&config, TransmitMode::Multidata);
    both_ways(&stack, false, 100_000);
    drop(first);
    wait_for_trouble(&stack, Some("is gone"));
    let second = Bridge::new(NEAR).expect("the name is free again");
    second.add_port(pair.near()).expect("root of the namespace");
    let interface = Interface::named(NEAR).expect("the bridge");
    interface
        .set_hardware_address(HardwareAddress([2, 0, 0, 0, 0, 2]))
        .expect("a bridge takes any");
    wait_for_trouble(&stack, None);
    both_ways(&stack, false, 100_000);
}

fn bypassed() {
    let _pair = cable(1_500, false);
    let config = PacketConfig { bypass_queue: true, promiscuous: true, ..PacketConfig::new(NEAR) };
    both_ways(&stack(&config, TransmitMode::Multidata), false, 1_000_000);
}

/// A packet socket that receives in blocks.
fn blocks_config(offload: bool) -> PacketConfig {
    let receive_blocks = Some(Duration::from_millis(1));
    PacketConfig {
        receive_blocks,
        receive_queue_bytes: 4 << 20,
        offload,
        ..PacketConfig::new(NEAR)
    }
}

fn in_blocks() {
    for offload in [true, false] {
        // A block is handed over after a millisecond, however little is in it, so a machine that stands still for as many
        // as there are blocks loses frames. It does so seldom.
        assert!((0..4).any(|_| is_whole_in_blocks(offload)), "frames are dropped each time");
    }
}

/// Whether no frame was dropped of what was sent both ways.
fn is_whole_in_blocks(offload: bool) -> bool {
    let _pair = cable(1_500, offload);
    let stack = stack(&blocks_config(offload), TransmitMode::Multidata);
    for ipv6 in [false, true] {
        both_ways(&stack, ipv6, 4_000_000);
    }
    let device = stack.counters().device;
    if !offload {
        // Real frames of 1,500 bytes: some 5,500 of them, and a call only where no block is ready. On a
        // machine that is busy with other work a block is handed over with few frames in it.
        let (calls, frames) = (device.receive_syscalls, device.receive_frames);
        assert!(frames > 5_500 && calls < frames, "{calls} calls for {frames} frames");
    }
    device.receive_dropped == 0
}

fn down_and_up_below_blocks() {
    let pair = cable(1_500, true);
    let stack = stack(&blocks_config(true), TransmitMode::Multidata);
    through(&stack, 10_000_000, || {
        pair.near().set_down().expect("root of the namespace");
        wait_for_trouble(&stack, Some("ip link set pkt0 up"));
        std::thread::sleep(Duration::from_millis(50));
        pair.near().set_up().expect("root of the namespace");
        wait_for_trouble(&stack, None);
    });
    let device = stack.counters().device;
    assert_eq!((device.links_lost, device.links_restored), (1, 1));
}

/// Sends and receives at once while `disturb` runs, `len` bytes each way.
fn through(stack: &Stack, len: usize, disturb: impl FnOnce()) {
    let (ours, kernel) = connected(stack, false);
    let (sent, back) = (pattern(3, len), pattern(4, len));
    // The first third goes undisturbed, so that something is in flight.
    let third = len / 3;
    std::thread::scope(|scope| {
        let write = |mut to: &std::net::TcpStream, bytes: &[u8]| {
            to.write_all(bytes).expect("it is taken");
        };
        let kernel = &kernel;
        scope.spawn(move || {
            write(kernel, &back);
            kernel.shutdown(Shutdown::Write).expect("open");
        });
        let kernel_reader = scope.spawn(move || {
            let (mut received, mut from) = (Vec::new(), kernel);
            from.read_to_end(&mut received).expect("it arrives");
            received
        });
        let ours = &ours;
        let reader = scope.spawn(move || {
            let (mut received, mut from) = (Vec::new(), ours);
            from.read_to_end(&mut received).expect("it arrives");
            received
        });
        let mut to = ours;
        to.write_all(&sent[..third]).expect("it is taken");
        let writer = scope.spawn(move || {
            let mut to = ours;
            to.write_all(&sent[third..]).expect("it is taken");
            to.shutdown(Shutdown::Write).expect("open");
        });
        disturb();
        writer.join().expect("it is taken");
        assert!(kernel_reader.join().expect("it arrives") == pattern(3, len), "other bytes");
        assert!(reader.join().expect("it arrives") == pattern(4, len), "other bytes came back");
    });
}

/// Waits until the stack says of its interface what holds `what`, or nothing at all.
fn wait_for_trouble(stack: &Stack, what: Option<&str>) {
    let started = Instant::now();
    loop {
        let trouble = stack.interfaces()[0].trouble.clone().map(|error| error.message);
        match (&trouble, what) {
            (None, None) => return,
            (Some(said), Some(what)) if said.contains(what) => return,
            _ => {}
        }
        assert!(started.elapsed() < PATIENCE, "{trouble:?} is said instead of {what:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn down_and_up() {
    for mode in [TransmitMode::Multidata, TransmitMode::Lso] {
        let pair = cable(1_500, true);
        let stack = stack(&PacketConfig::new(NEAR), mode);
        through(&stack, 30_000_000, || {
            pair.near().set_down().expect("root of the namespace");
            wait_for_trouble(&stack, Some("ip link set pkt0 up"));
            std::thread::sleep(Duration::from_millis(100));
            assert_eq!(stack.interfaces()[0].failed, None);
            pair.near().set_up().expect("root of the namespace");
            wait_for_trouble(&stack, None);
        });
        let device = stack.counters().device;
        assert_eq!((device.links_lost, device.links_restored), (1, 1), "{mode}");
        both_ways(&stack, false, 100_000);
    }
}

fn gone_and_back() {
    let pair = cable(1_500, true);
    let kernels = pair.far().hardware_address().expect("it has one");
    let stack = stack(&PacketConfig::new(NEAR), TransmitMode::Multidata);
    both_ways(&stack, false, 100_000);
    let mut made_anew = None;
    through(&stack, 30_000_000, || {
        drop(pair);
        wait_for_trouble(&stack, Some("the interface pkt0 is gone"));
        let pair = VethPair::new(NEAR, FAR).expect("the names are free again");
        // So that nobody's neighbour becomes another one.
        pair.far().set_hardware_address(kernels).expect("root of the namespace");
        give_addresses(&pair);
        wait_for_trouble(&stack, None);
        made_anew = Some(pair);
    });
    let device = stack.counters().device;
    assert_eq!((device.links_lost, device.links_restored), (1, 1));
}

fn mtu_shrinks() {
    let pair = cable(9_000, false);
    let config = PacketConfig { offload: false, ..PacketConfig::new(NEAR) };
    let stack = stack(&config, TransmitMode::Multidata);
    through(&stack, 20_000_000, || {
        // Of the kernel's end, too: what it sends is too long for the other one otherwise.
        pair.set_mtu_bytes(1_400).expect("root of the namespace");
    });
    let interface = &stack.interfaces()[0];
    assert_eq!(interface.capabilities.mtu_bytes, 1_400);
    assert_eq!(interface.counters.capabilities_revoked, 1);
    // A longer one is taken up again, up to that with which the socket was opened.
    pair.set_mtu_bytes(9_100).expect("root of the namespace");
    let started = Instant::now();
    while stack.interfaces()[0].capabilities.mtu_bytes != 9_000 {
        assert!(started.elapsed() < PATIENCE, "the longer MTU is not noticed");
        both_ways(&stack, false, 10_000);
    }
}

fn mtu_shrinks_for_all() {
    let pair = cable(9_000, false);
    let config = PacketConfig { offload: false, ..PacketConfig::new(NEAR) };
    let mut device = PacketDevice::open(&config).expect("root of the namespace");
    let queue = device.queue(0).expect("it has one");
    let ours = ip::Cidr::new(address(false, 2), 24).expect("a network");
    let builder = Stack::builder().squeues(2).interface(queue, InterfaceConfig::new(ours));
    let stack = builder.build().expect("a stack");
    std::thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| both_ways(&stack, false, 8_000_000));
        }
        while stack.counters().device.transmit_bytes < 1_000_000 {
            std::thread::sleep(Duration::from_millis(1));
        }
        pair.set_mtu_bytes(1_400).expect("root of the namespace");
    });
    for squeue in stack.squeue_counters() {
        let shard = squeue.stack.shard;
        assert_eq!(
            (shard.device_refused, shard.device_mtus_shrunk),
            (0, 1),
            "told, and not refused"
        );
    }
}

/// A stack of two squeues on two sockets that share the near end.
fn stack_of_two(layout: &str) -> Stack {
    let layout: steering::Layout = layout.parse().expect("a layout");
    let spread = steering::Spread::new(layout, steering::Policy::Flow, 2).expect("a spread");
    let config = PacketConfig { spread, ..PacketConfig::new(NEAR) };
    let mut device = PacketDevice::open(&config).expect("root of the namespace");
    let queue = |index| Box::new(device.queue(index).expect("it has two")) as Box<dyn Queue>;
    let queues = (0..2).map(queue).collect();
    assert!(device.queue(0).is_err() && device.queue(2).is_err());
    let ours = |ipv6, len| ip::Cidr::new(address(ipv6, 2), len).expect("a network");
    let interface = InterfaceConfig::new(ours(false, 24)).address(ours(true, 64));
    let builder = Stack::builder().layout(layout).multiqueue_interface(queues, interface);
    builder.build().expect("a stack")
}

fn several_sockets() {
    ["R2S2F1", "R2S0F0"].into_iter().for_each(several_sockets_of);
}

fn several_sockets_of(layout: &str) {
    let _pair = cable(1_500, true);
    let stack = stack_of_two(layout);
    for ipv6 in [false, true] {
        let listener = TcpListener::bind(&stack, (address(ipv6, 2), 80)).expect("a free port");
        for at in 0..40 {
            let kernel = std::net::TcpStream::connect((address(ipv6, 2), 80)).expect("it listens");
            let (mut ours, _) = listener.accept().expect("connected");
            ours.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            let (mut received, sent) = (Vec::new(), pattern(at, 50_000));
            (&kernel).write_all(&sent).expect("it is taken");
            kernel.shutdown(Shutdown::Write).expect("open");
            ours.read_to_end(&mut received).expect("it arrives");
            assert!(received == sent, "other bytes arrived");
        }
        both_ways(&stack, ipv6, 300_000);
    }
    let counters = stack.squeue_counters();
    for squeue in &counters {
        let accepted = squeue.stack.shard.connections_accepted;
        assert!(accepted > 20, "{accepted} of 80 connections");
    }
    // Neighbours are looked for, of which both hear, and this is all that is handed over.
    let counters = stack.counters();
    let (over, all) = (counters.runtime.frames_handed_over, counters.device.receive_frames);
    assert!(all > 400 && over * 20 < all, "{over} of {all} frames were handed over");
    // Without fan-out, too: the kernel divides by the hash that says whose a connection is.
    assert_eq!(counters.stack.shard.segments_handed_on, 0, "{layout}");
}

fn gone_for_several() {
    let pair = cable(1_500, true);
    let stack = stack_of_two("R2S2F1");
    both_ways(&stack, false, 100_000);
    drop(pair);
    let started = Instant::now();
    loop {
        let failed = stack.interfaces()[0].failed.clone();
        if failed.is_some_and(|error| error.message.contains("open it again")) {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "{:?}", stack.interfaces()[0]);
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Every frame is for one of the sockets, also of those that come before all of them share the interface.
fn opened_under_load() {
    const HOMES: u16 = 4;
    let _pair = cable(1_500, true);
    let layout = steering::Layout::new(1, HOMES, true).expect("a layout");
    let spread = steering::Spread::new(layout, steering::Policy::Flow, HOMES).expect("a spread");
    let config = PacketConfig { spread, receive_queue_bytes: 1 << 20, ..PacketConfig::new(NEAR) };
    let socket = std::net::UdpSocket::bind((address(false, 1), 0)).expect("its own address");
    socket.set_broadcast(true).expect("an option of sockets");
    let to = SocketAddr::new("10.51.0.255".parse().expect("an address"), 9);
    let (is_over, next) = (AtomicBool::new(false), AtomicU64::new(0));
    let send = || socket.send_to(&next.fetch_add(1, Ordering::Relaxed).to_be_bytes(), to);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let started = Instant::now();
            while !is_over.load(Ordering::Relaxed) && started.elapsed() < PATIENCE {
                send().expect("a route");
            }
        });
        let pool = batch::BlockPool::new(batch::PoolConfig::default());
        let mut seen = std::collections::HashSet::new();
        let mut twice = 0;
        for _ in 0..20 {
            let mut device = PacketDevice::open(&config).expect("root of the namespace");
            send().expect("a route");
            for index in 0..HOMES {
                let mut queue = device.queue(usize::from(index)).expect("it has them");
                let mut frames = batch::ReceiveBatch::new();
                (0..8).for_each(|_| drop(queue.receive(&pool, &mut frames, 256)));
                // Ethernet, IPv4 and UDP are in front of the number.
                let numbers = (0..frames.len()).filter_map(|at| {
                    let bytes = frames.bytes(at);
                    let is_ours = bytes.get(23) == Some(&17) && bytes.get(36..38) == Some(&[0, 9]);
                    bytes.get(42..50).filter(|_| is_ours).map(<[u8]>::to_vec)
                });
                twice += numbers.filter(|number| !seen.insert(number.clone())).count();
            }
        }
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(twice, 0, "of {} datagrams", seen.len());
        assert!(!seen.is_empty(), "the sockets hear nothing");
    });
}

/// Datagrams that nobody fetches, into a receive queue for a few of them.
fn overrun() {
    let _pair = cable(1_500, true);
    let config = PacketConfig { receive_queue_bytes: 8_192, ..PacketConfig::new(NEAR) };
    let mut device = PacketDevice::open(&config).expect("root of the namespace");
    let queue = device.queue(0).expect("it has one");
    let socket = std::net::UdpSocket::bind((address(false, 1), 0)).expect("its own address");
    socket.set_broadcast(true).expect("an option of sockets");
    let to = SocketAddr::new("10.51.0.255".parse().expect("an address"), 9);
    (0..100).for_each(|_| {
        socket.send_to(&[0; 1_000], to).expect("a route");
    });
    let dropped = device::Queue::counters(&queue).receive_dropped;
    assert!((50..=100).contains(&dropped), "{dropped} of 100 dropped");
    // They are not counted twice, although the kernel forgets them when asked.
    assert_eq!(device::Queue::counters(&queue).receive_dropped, dropped);
}

/// A kernel socket sends many datagrams by one call and leaves the cutting to its interface (UDP_SEGMENT),
/// which hands them to the near end in one frame.
fn uncut_datagrams(is_in_blocks: bool) {
    const SOL_UDP: i32 = 17;
    const UDP_SEGMENT: i32 = 103;
    let _pair = cable(1_500, true);
    let config = if is_in_blocks { blocks_config(true) } else { PacketConfig::new(NEAR) };
    let stack = stack(&config, TransmitMode::Multidata);
    let mut sent_in_all = 0;
    for ipv6 in [false, true] {
        let ours = UdpSocket::bind(&stack, (address(ipv6, 2), 9)).expect("a free port");
        ours.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let kernel = std::net::UdpSocket::bind((address(ipv6, 1), 0)).expect("its own address");
        for (len, count) in [(1_000, 41), (1_400, 3), (30, 60), (1_452, 44), (700, 1)] {
            let segment = i32::try_from(len).expect("short").to_ne_bytes();
            linux::raw_calls::setsockopt(kernel.as_raw_fd(), SOL_UDP, UDP_SEGMENT, &segment)
                .expect("Linux has it since 4.18");
            let sent = pattern(len, len * count - 9);
            let to = SocketAddr::new(address(ipv6, 2), 9);
            assert_eq!(kernel.send_to(&sent, to).expect("a route"), sent.len());
            for part in sent.chunks(len) {
                let mut received = [0; 2_000];
                let (here, from) = ours.recv_from(&mut received).expect("it arrives");
                assert!(received[..here] == *part, "{len}: {here} other bytes");
                assert_eq!(from, kernel.local_addr().expect("bound"));
            }
            sent_in_all += count as u64;
        }
    }
    let device = stack.counters().device;
    assert!(device.receive_coalesced + 20 > sent_in_all, "they came uncut: {device:?}");
    assert_eq!(device.receive_dropped, 0);
}

/// A frame of the VXLAN interface `tt0` with `payload_len` bytes, to be sent as `gso_type` (virtio-net), by a
/// packet socket there.
fn send_within(gso_type: u8, protocol: u8, payload_len: usize) {
    const AF_PACKET: i32 = 17;
    const SOL_PACKET: i32 = 263;
    const PACKET_VNET_HDR: i32 = 15;
    let (header_len, checksum_at) = if protocol == 6 { (20, 16_u16) } else { (8, 6) };
    let vnet = match gso_type {
        0 => vec![0; 10],
        _ => {
            let mut vnet = vec![1, gso_type];
            for word in [34 + header_len, 1_000, 34, checksum_at] {
                vnet.extend(word.to_ne_bytes());
            }
            vnet
        }
    };
    let len = header_len + payload_len as u16;
    let mut ip = vec![0x45, 0];
    ip.extend((20 + len).to_be_bytes());
    ip.extend([0, 1, 0x40, 0, 64, protocol, 0, 0, 10, 1, 0, 2, 10, 1, 0, 1]);
    let sum = !checksum::sum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let mut pseudo = checksum::Accumulator::new();
    pseudo.add(&ip[12..20]);
    pseudo.add_u16(protocol.into());
    pseudo.add_u16(len);
    let mut transport = vec![0; header_len.into()];
    transport[..4].copy_from_slice(&[0, 5, 0, 6]);
    if protocol == 6 {
        transport[12..14].copy_from_slice(&[0x50, 0x10]);
    } else {
        transport[4..6].copy_from_slice(&len.to_be_bytes());
    }
    let at = usize::from(checksum_at);
    transport[at..at + 2].copy_from_slice(&pseudo.sum().to_be_bytes());
    let link = [2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8, 8, 0];
    let frame = [&vnet[..], &link, &ip, &transport, &vec![protocol; payload_len]].concat();

    let index = linux::Interface::named("tt0").expect("it was made").index();
    // struct sockaddr_ll: family, protocol, index, and what does not matter here.
    let mut to = (AF_PACKET as u16).to_ne_bytes().to_vec();
    to.extend([8, 0]);
    to.extend(index.to_ne_bytes());
    to.extend([0, 0, 0, 6, 2, 0, 0, 0, 0, 9, 0, 0]);
    let socket = linux::raw_calls::socket(AF_PACKET, 3, 0).expect("root of the namespace");
    linux::raw_calls::setsockopt(socket, SOL_PACKET, PACKET_VNET_HDR, &1_i32.to_ne_bytes())
        .expect("Linux has it since 2.6");
    let sent = linux::raw_calls::send(socket, &frame, 0, &to).expect("the interface is up");
    assert_eq!(usize::try_from(sent), Ok(frame.len()));
    linux::raw_calls::close(socket).expect("it was open");
}

/// Makes a VXLAN interface `tt0` (RFC 7348) from the far end to us, by rtnetlink(7).
fn make_vxlan(pair: &VethPair) -> Result<(), i32> {
    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = (4 + value.len() as u16).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }
    let data = [
        attribute(1, &1_u32.to_ne_bytes()),
        attribute(2, &[10, 51, 0, 2]),
        attribute(3, &pair.far().index().to_ne_bytes()),
        attribute(15, &4_789_u16.to_be_bytes()),
    ];
    let info = [attribute(1, b"vxlan"), attribute(2, &data.concat())].concat();
    let body = [vec![0; 16], attribute(3, b"tt0\0"), attribute(18, &info)].concat();
    // RTM_NEWLINK with NLM_F_REQUEST, NLM_F_ACK and NLM_F_CREATE.
    let mut message = (16 + body.len() as u32).to_ne_bytes().to_vec();
    message.extend(16_u16.to_ne_bytes());
    message.extend(0x405_u16.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    let socket = linux::raw_calls::socket(16, 3, 0)?;
    linux::raw_calls::send(socket, &message, 0, &[])?;
    let (_, answer, ..) = linux::raw_calls::receive(socket, 1_024, 0)?;
    linux::raw_calls::close(socket)?;
    match i32::from_ne_bytes(answer[16..20].try_into().expect("four bytes")) {
        0 => Ok(()),
        errno => Err(-errno),
    }
}

/// The kernel says of a super-frame in a tunnel what is within, as if the frame were that.
fn tunnelled(is_in_blocks: bool) {
    let pair = cable(1_500, true);
    if let Err(errno) = make_vxlan(&pair) {
        let name = if is_in_blocks { "in_blocks" } else { "and_counted" };
        let name = format!("super_frames_within_a_tunnel_are_lost_{name}");
        return kernel::cannot_run(&name, &format!("no VXLAN in this kernel: error {errno}"));
    }
    let tunnel = linux::Interface::named("tt0").expect("it was made");
    tunnel.set_up().expect("root of the namespace");
    let config = if is_in_blocks { blocks_config(true) } else { PacketConfig::new(NEAR) };
    let stack = stack(&config, TransmitMode::Multidata);
    let ours = UdpSocket::bind(&stack, (address(false, 2), 4_789)).expect("a free port");
    ours.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut received = vec![0; 65_535];
    for (gso_type, protocol) in [(0, 17), (1, 6), (5, 17)] {
        if gso_type != 0 {
            send_within(gso_type, protocol, 5_000);
        }
        // What is behind it arrives, and whatever else the kernel says in the tunnel; of it nothing does.
        send_within(0, protocol, 700);
        loop {
            let (len, _) = ours.recv_from(&mut received).expect("it arrives");
            assert!(len < 1_000, "{len} bytes of {gso_type} came up");
            if received[..len].ends_with(&[protocol; 600]) {
                break;
            }
        }
    }
    let device = stack.counters().device;
    assert_eq!((device.receive_dropped, device.receive_coalesced), (2, 0), "{device:?}");
    tunnel.delete().expect("root of the namespace");
}

/// The far end of a veth pair takes no frame that is longer than its own MTU, and the kernel says ENOBUFS of it, as
/// of a queue that is full.
fn always_dropped() {
    let pair = cable(1_500, true);
    pair.far().set_mtu_bytes(1_400).expect("root of the namespace");
    let stack = stack(&PacketConfig::new(NEAR), TransmitMode::Multidata);
    let ours = UdpSocket::bind(&stack, (address(false, 2), 9)).expect("a free port");
    let kernel = std::net::UdpSocket::bind((address(false, 1), 0)).expect("its own address");
    kernel.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let to = kernel.local_addr().expect("bound");
    let mut received = [0; 2_000];
    // So that nothing waits for the neighbour.
    ours.send_to(b"first", to).expect("it is taken");
    kernel.recv_from(&mut received).expect("it arrives");
    for round in 0..20_u8 {
        // 1,500 bytes with their headers, and a short one behind them.
        ours.send_to(&[round; 1_472], to).expect("it is taken");
        ours.send_to(&[round; 100], to).expect("it is taken");
    }
    for round in 0..20 {
        let (len, _) = kernel.recv_from(&mut received).expect("it is not stopped");
        assert_eq!(received[..len], [round; 100], "{len} bytes");
    }
    let device = stack.counters().device;
    assert_eq!(device.transmit_lost, 20, "{device:?}");
    both_ways(&stack, false, 1_000_000);
}

/// The kernel takes the tag out of a frame, which would then be taken for one of the untagged network.
fn only_ours() {
    let _pair = cable(1_500, true);
    let [(ours, mut near), (_, mut far)] = [NEAR, FAR].map(|name| {
        let mut device =
            PacketDevice::open(&PacketConfig::new(name)).expect("root of the namespace");
        let Medium::Ethernet(address) = device.capabilities().medium else { panic!("no frames") };
        (address.0, device.queue(0).expect("it has one"))
    });
    // A type for experiments (IEEE 802), which nobody takes, by itself and within VLAN 5.
    let (untagged, tagged): (&[u8], &[u8]) = (&[0x88, 0xb5], &[0x81, 0, 0, 5, 0x88, 0xb5]);
    let mut batch = Multidata::default();
    for (number, (to, kind)) in [
        (ours, tagged),
        ([0xff; 6], tagged),
        ([2, 0, 0, 0, 0, 9], untagged),
        ([0xff; 6], untagged),
        (ours, untagged),
    ]
    .into_iter()
    .enumerate()
    {
        let frame = batch.push_packet(60, Attributes::default()).expect("room");
        frame[..6].copy_from_slice(&to);
        frame[12..12 + kind.len()].copy_from_slice(kind);
        frame[40] = number as u8;
    }
    assert_eq!(far.transmit(&batch).taken, 5);
    let (pool, mut received) = (BlockPool::new(PoolConfig::default()), ReceiveBatch::new());
    let (started, mut came) = (Instant::now(), Vec::new());
    while came.last() != Some(&4) {
        assert!(started.elapsed() < PATIENCE, "only {came:?} came");
        received.clear();
        near.receive(&pool, &mut received, 64);
        let frames = (0..received.len()).map(|index| received.bytes(index));
        came.extend(frames.filter(|frame| frame[12..14] == *untagged).map(|frame| frame[40]));
    }
    assert_eq!(came, [3, 4]);
}

/// The far end of the cable drops what is longer than its MTU.
fn given_up() {
    let pair = cable(1_500, true);
    pair.far().set_mtu_bytes(1_400).expect("root of the namespace");
    let mut device = PacketDevice::open(&PacketConfig::new(NEAR)).expect("root of the namespace");
    let mut queue = device.queue(0).expect("it has one");
    let mut batch = Multidata::default();
    let block = Block::from(Bytes::from(vec![0; 1_440]));
    for payload_len in [1_440, 0] {
        let frame = batch.push_packet(60, Attributes::default()).expect("room");
        // A type for experiments (IEEE 802), which nobody takes.
        frame[12..14].copy_from_slice(&[0x88, 0xb5]);
        assert!(batch.append_span(&block, 0, payload_len));
    }
    let started = Instant::now();
    while queue.transmit(&batch).taken == 0 {
        assert!(started.elapsed() < PATIENCE, "it is offered for ever");
        std::thread::sleep(Duration::from_millis(1));
    }
    let counters = queue.counters();
    assert_eq!((counters.transmit_lost, counters.transmit_packets), (1, 1));
    assert_eq!((counters.transmit_frames, counters.transmit_bytes), (1, 60));
}

/// An interface that is away is looked for again, also where it was just looked for; looking for one that is there
/// would be spinning, and frames would wait for it.
fn sleeps_as_before() {
    let pair = cable(1_500, true);
    let mut device = PacketDevice::open(&PacketConfig::new(NEAR)).expect("root of the namespace");
    let mut queue = device.queue(0).expect("it has one");
    pair.near().set_down().expect("root of the namespace");
    kernel::notices(&mut queue, true);
    pair.near().set_up().expect("root of the namespace");
    kernel::notices(&mut queue, false);
    kernel::sleeps(&mut queue);
}

/// Of a super-frame no call says that its segments are too long.
fn mtu_shrinks_below_super_frames() {
    let pair = cable(1_500, true);
    let mut device = PacketDevice::open(&PacketConfig::new(NEAR)).expect("root of the namespace");
    let mut queue = device.queue(0).expect("it has one");
    queue.set_mode(TransmitMode::Lso).expect("it has offload");
    let mut batch = Multidata::default();
    let frame = batch.push_packet(60, Attributes::default()).expect("room");
    // A type for experiments (IEEE 802), which nobody takes.
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    assert_eq!(queue.transmit(&batch).stopped, None);
    pair.near().set_mtu_bytes(1_400).expect("root of the namespace");
    let started = Instant::now();
    while queue.transmit(&batch).stopped != Some(Stop::Revoked) {
        assert!(started.elapsed() < PATIENCE, "the MTU is thought to be as it was");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(queue.capabilities().mtu_bytes, 1_400);
    assert_eq!(queue.counters().capabilities_revoked, 1);
    assert_eq!(queue.transmit(&batch).stopped, None);
}

fn main() -> ExitCode {
    kernel::run(TESTS, enter)
}

/// Enters a network of our own and tries whether it has veth pairs and packet sockets.
fn enter() -> Result<(), String> {
    kernel::enter()?;
    let _pair = VethPair::new(NEAR, FAR).map_err(|error| error.message)?;
    PacketDevice::open(&PacketConfig::new(NEAR)).map(drop).map_err(|error| error.message)
}
