//! AF_XDP on a virtual cable with the Linux kernel's TCP at its other end, in a network of the
//! test's own.

mod kernel;
mod pair;

use batch::{
    Attributes, Block, BlockPool, Checksum, HeaderLayout, Limits, Multidata, PoolConfig,
    ReceiveBatch,
};
use bytes::Bytes;
use device::{HardwareAddress, Queue, Stop, TransmitMode, Transmitted};
use linux::{
    Bridge, Feature, Interface, VethPair, XdpAttach, XdpConfig, XdpCopy, XdpDevice, XdpQueue,
};
use multidata::{InterfaceConfig, InterfaceEvent, Stack, TcpListener, TcpStream};
use nix::sys::socket::{setsockopt, sockopt};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Duration, Instant};

const TESTS: &[kernel::Test] = &[
    ("xdp_streams_both_ways_in_the_driver", || streams(XdpAttach::Native)),
    ("xdp_streams_both_ways_behind_the_driver", || streams(XdpAttach::Generic)),
    ("xdp_streams_through_few_chunks", few_chunks),
    ("xdp_takes_super_frames_in_fragments", super_frames),
    ("xdp_drops_datagrams_that_the_kernel_leaves_uncut", uncut_datagrams),
    ("xdp_sends_headers_and_payload_apart", scattered),
    ("xdp_takes_a_packet_with_all_of_its_descriptors_or_not_at_all", full_in_the_middle),
    ("xdp_keeps_no_chunk_for_a_packet_that_it_refuses", refused),
    ("xdp_says_that_there_are_more_frames_than_were_wanted", few_wanted),
    ("xdp_counts_frames_that_it_has_no_chunks_for", overrun),
    ("xdp_tells_that_the_mtu_shrank_under_a_built_batch", mtu_shrinks_under_a_batch),
    ("xdp_loses_nothing_when_the_mtu_shrinks_in_the_middle", mtu_shrinks),
    ("xdp_takes_datagrams_of_an_mtu_that_became_longer", mtu_grows),
    ("xdp_has_a_squeue_on_each_of_two_queues", two_queues),
    ("xdp_has_no_queue_by_which_frames_only_come", uneven_queues),
    ("xdp_readers_keep_no_chunks", slow_reader),
    ("xdp_gives_the_interface_back", given_back),
    ("xdp_tells_of_a_deleted_interface", deleted),
    ("xdp_without_an_interface_says_so_and_sleeps", gone_while_full),
    ("xdp_goes_on_when_the_interface_is_up_again", down_and_up),
    ("xdp_takes_nothing_below_and_sleeps_as_before_when_it_is_up_again", sleeps_as_before),
    ("xdp_goes_on_when_the_interface_gets_another_address", other_address),
    ("xdp_has_an_address_that_is_not_the_interfaces", own_address),
    ("xdp_has_the_interface_take_frames_for_groups", groups),
    ("xdp_has_vlan_tags_left_in_frames", vlan_tags),
    ("xdp_errors_say_what_is_wrong", errors),
];

/// Longest time any step may take.
const PATIENCE: Duration = Duration::from_secs(10);

const NEAR: &str = "near7";
const FAR: &str = "far7";

fn address(ipv6: bool, host: u8) -> IpAddr {
    kernel::address(ipv6, 43, host)
}

/// A cable whose far end the kernel has, with addresses.
fn cable(mtu_bytes: usize) -> VethPair {
    cable_of(mtu_bytes, 1)
}

/// The same, with so many queues each way.
fn cable_of(mtu_bytes: usize, queues: u32) -> VethPair {
    let cable = VethPair::with_queues(NEAR, FAR, queues).expect("root of the namespace");
    cable.set_mtu_bytes(mtu_bytes).expect("veth takes it");
    // AF_XDP says nothing of checksums that are left out.
    cable.far().set_feature(Feature::TransmitChecksum, false).expect("veth has it");
    cable.set_up().expect("root of the namespace");
    kernel::give(cable.far(), 43, 1);
    cable
}

/// A stack on the near end.
fn stack(config: &XdpConfig, mode: TransmitMode) -> (Stack, XdpDevice) {
    let (device, queue) = open(config);
    let builder = Stack::builder().boxed_interface(Box::new(queue), interface().mode(mode));
    (builder.build().expect("a stack"), device)
}

/// The near end and its first queue, without a stack.
fn open(config: &XdpConfig) -> (XdpDevice, XdpQueue) {
    let mut device = XdpDevice::open(config).expect("the driver has XDP");
    let queue = device.queue(0).expect("it has one");
    (device, queue)
}

fn interface() -> InterfaceConfig {
    let ours = |ipv6, len| ip::Cidr::new(address(ipv6, 2), len).expect("a network");
    InterfaceConfig::new(ours(false, 24)).address(ours(true, 64))
}

/// Complete datagrams for a socket of the kernel's behind the cable, of these lengths, but for their
/// checksums, which are left to the device. What they hold is a pattern that begins at the first.
fn datagrams(cable: &VethPair, to: &UdpSocket, lens: &[usize]) -> Multidata {
    let mut bytes = vec![0; lens.iter().sum()];
    pair::Pattern::new(5).fill(&mut bytes);
    let block = Block::from(Bytes::from(bytes));
    let mut batch = Multidata::new(HeaderLayout::default(), Limits::default());
    let (port, mut at) = (to.local_addr().expect("bound").port(), 0);
    let hardware = |end: &linux::Interface| end.hardware_address().expect("it has one").0;
    for (index, len) in lens.iter().enumerate() {
        let total = |headers: usize| ((headers + len) as u16).to_be_bytes();
        let mut ip = [0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 43, 0, 2, 10, 43, 0, 1];
        let pseudo = [&ip[12..], &[0, 17], &total(8)].concat();
        ip[2..4].copy_from_slice(&total(28));
        let sum = !checksum::sum(&ip);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        let attributes =
            Attributes { checksum: Checksum::Partial { offset: 6 }, ..Attributes::default() };
        let udp = batch.push_packet(8, attributes).expect("room");
        udp[..2].copy_from_slice(&7_u16.to_be_bytes());
        udp[2..4].copy_from_slice(&port.to_be_bytes());
        udp[4..6].copy_from_slice(&total(8));
        udp[6..].copy_from_slice(&checksum::sum(&pseudo).to_be_bytes());
        assert!(batch.append_span(&block, at, *len));
        at += len;
        batch.prepend_network(index, 20).expect("room").0[..20].copy_from_slice(&ip);
        let ethernet = batch.prepend(index, 14).expect("room");
        ethernet[..6].copy_from_slice(&hardware(cable.far()));
        ethernet[6..12].copy_from_slice(&hardware(cable.near()));
        ethernet[12..].copy_from_slice(&[8, 0]);
    }
    batch
}

/// A socket of the kernel's at the far end.
fn kernels_socket() -> UdpSocket {
    let socket = UdpSocket::bind((address(false, 1), 0)).expect("its address");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    socket
}

/// Datagrams of these lengths have arrived, in order, with the pattern in them.
fn arrive(at: &UdpSocket, pattern: &mut pair::Pattern, lens: &[usize]) {
    let mut buffer = [0; 10_000];
    for len in lens {
        let (received, from) = at.recv_from(&mut buffer).expect("it was sent");
        assert_eq!((received, from), (*len, SocketAddr::new(address(false, 2), 7)));
        pattern.check(&buffer[..received]);
    }
}

/// Connections both ways, and data both ways on each.
fn exchange(stack: &Stack, ipv6: bool, len: u64) {
    let kernel = std::net::TcpListener::bind((address(ipv6, 1), 0)).expect("its address");
    let to = kernel.local_addr().expect("bound");
    let ours = TcpStream::connect(stack, to).expect("the kernel listens");
    let (theirs, _) = kernel.accept().expect("connected");
    both_ways(&ours, &theirs, 1, len);

    let listener = TcpListener::bind(stack, (address(ipv6, 2), 0)).expect("a free port");
    let theirs = std::net::TcpStream::connect(listener.local_addr().expect("bound"));
    let theirs = theirs.expect("the stack listens");
    let (ours, _) = listener.accept().expect("connected");
    both_ways(&ours, &theirs, 2, len);
}

fn both_ways(ours: &TcpStream, mut theirs: &std::net::TcpStream, seed: u64, len: u64) {
    ours.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    ours.set_write_timeout(Some(PATIENCE)).expect("a timeout");
    theirs.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    theirs.set_write_timeout(Some(PATIENCE)).expect("a timeout");
    std::thread::scope(|scope| {
        scope.spawn(|| pair::send_pattern(ours, seed, len));
        scope.spawn(|| {
            let (mut pattern, mut bytes) = (pair::Pattern::new(!seed), vec![0; len as usize]);
            pattern.fill(&mut bytes);
            (&*theirs).write_all(&bytes).expect("the stack reads");
            theirs.shutdown(std::net::Shutdown::Write).expect("connected");
        });
        scope.spawn(|| pair::check_pattern(ours, !seed, len));
        let mut received = Vec::new();
        theirs.read_to_end(&mut received).expect("the stack writes");
        pair::Pattern::new(seed).check(&received);
        assert_eq!(received.len() as u64, len, "the stream ended early or late");
    });
}

fn streams(attach: XdpAttach) {
    for mtu_bytes in [1_500, 9_000] {
        let config = XdpConfig { attach, ..XdpConfig::new(NEAR) };
        for mode in [TransmitMode::Single, TransmitMode::Multidata] {
            // A stack lingers until its connections have ended; the next one has its own cable.
            let _cable = cable(mtu_bytes);
            let (stack, device) = stack(&config, mode);
            assert_eq!(device.refused(), [""; 0], "{}", device.negotiated());
            assert_eq!(device.capabilities().mtu_bytes, mtu_bytes);
            assert!(!device.capabilities().supports(TransmitMode::Chain), "it is a batch here");
            assert!(stack.set_transmit_mode(0, TransmitMode::Chain).is_err());
            for ipv6 in [false, true] {
                exchange(&stack, ipv6, 6_000_000);
            }
            let counters = stack.counters();
            let device = counters.device;
            assert!(device.transmit_packets > 24_000_000 / mtu_bytes as u64, "{device:?}");
            if mtu_bytes == 1_500 {
                assert_eq!(device.transmit_mappings, device.transmit_packets, "one chunk each");
            }
            if mode == TransmitMode::Multidata {
                assert!(device.transmit_syscalls < device.transmit_packets, "{device:?}");
            }
            // Every checksum was looked at and none was wrong.
            counters.stack.drops.for_each(&mut |reason, count| {
                assert!(count == 0 || !reason.contains("checksum"), "{reason}: {count}");
            });
        }
    }
}

/// The smallest rings: there is always something that does not fit, and everything arrives.
fn few_chunks() {
    let _cable = cable(1_500);
    let config = XdpConfig { receive_frames: 64, transmit_frames: 64, ..XdpConfig::new(NEAR) };
    let (stack, _device) = stack(&config, TransmitMode::Multidata);
    exchange(&stack, false, 3_000_000);
}

/// What the kernel does not split arrives in chains of chunks, and checksums it left out are trusted.
fn super_frames() {
    let cable = cable(1_500);
    cable.far().set_feature(Feature::TransmitChecksum, true).expect("veth has it");
    cable.far().set_feature(Feature::Segmentation, true).expect("veth has it");
    let config = XdpConfig {
        attach: XdpAttach::Generic,
        multi_buffer: true,
        trusts_checksums: true,
        ..XdpConfig::new(NEAR)
    };
    let (stack, device) = stack(&config, TransmitMode::Multidata);
    assert!(device.negotiated().contains("several buffers"), "{}", device.negotiated());
    for ipv6 in [false, true] {
        exchange(&stack, ipv6, 8_000_000);
    }
    let counters = stack.counters().device;
    let mean = counters.receive_bytes / counters.receive_frames;
    assert!(mean > 1_514, "{mean} bytes a frame: nothing but single segments came");
}

/// Of datagrams in one frame nothing says where one ends, so they must not come up as one.
fn uncut_datagrams() {
    let cable = cable(1_500);
    cable.far().set_feature(Feature::TransmitChecksum, true).expect("veth has it");
    let config = XdpConfig {
        attach: XdpAttach::Generic,
        multi_buffer: true,
        trusts_checksums: true,
        ..XdpConfig::new(NEAR)
    };
    let (stack, _device) = stack(&config, TransmitMode::Multidata);
    for ipv6 in [false, true] {
        let ours = multidata::UdpSocket::bind(&stack, (address(ipv6, 2), 9)).expect("a free port");
        ours.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let kernel = UdpSocket::bind((address(ipv6, 1), 0)).expect("its address");
        kernel.connect((address(ipv6, 2), 9)).expect("a route");
        let mut buffer = [0; 20_000];
        kernel.send(&[1; 7]).expect("a route");
        assert_eq!(ours.recv_from(&mut buffer).expect("it arrives").0, 7);
        setsockopt(&kernel, sockopt::UdpGsoSegment, &1_000).expect("the kernel has it");
        assert_eq!(kernel.send(&[2; 10_000]).expect("a route"), 10_000);
        kernel.send(&[3; 9]).expect("a route");
        assert_eq!(ours.recv_from(&mut buffer).expect("it arrives").0, 9, "several as one");
    }
    assert_eq!(stack.counters().device.receive_dropped, 2);
}

/// Headers in a chunk of their own and payload in one or several others, each with its descriptor.
fn scattered() {
    const LEN: u64 = 3_000_000;
    for (mtu_bytes, chunk_len) in [(1_500, 2_048), (9_000, 4_096)] {
        for attach in [XdpAttach::Native, XdpAttach::Generic] {
            let _cable = cable(mtu_bytes);
            let config = XdpConfig { scatter_gather: true, attach, ..XdpConfig::new(NEAR) };
            let (stack, device) = stack(&config, TransmitMode::Multidata);
            assert_eq!(device.refused(), [""; 0]);
            let negotiated = device.negotiated();
            assert!(negotiated.contains("in descriptors of their own"), "{negotiated}");
            for ipv6 in [false, true] {
                exchange(&stack, ipv6, LEN);
            }
            let device = stack.counters().device;
            let payloads = device.transmit_mappings - device.transmit_packets;
            assert!(payloads >= 4 * LEN / chunk_len, "{payloads} chunks of payload");
        }
    }
}

/// Room that ends in the middle of a packet's descriptors ends in front of the packet.
fn full_in_the_middle() {
    let cable = cable(1_500);
    let config = XdpConfig { scatter_gather: true, transmit_frames: 64, ..XdpConfig::new(NEAR) };
    let (_device, mut queue) = open(&config);
    assert_eq!(queue.room().packets, 32);
    let (kernel, mut pattern) = (kernels_socket(), pair::Pattern::new(5));
    // Headers alone take one descriptor, the others two: 1 + 31 * 2 of 64, and one is left.
    let lens: Vec<usize> = [0].into_iter().chain([1_472; 40]).collect();
    let batch = datagrams(&cable, &kernel, &lens);
    let transmitted = queue.transmit(&batch);
    assert_eq!(transmitted, Transmitted { taken: 32, stopped: Some(Stop::Full) });
    assert_eq!((queue.counters().transmit_mappings, queue.counters().transmit_packets), (63, 32));
    // Nobody says that there is room again, so who waits for it looks. The kernel may have something else to say first.
    let (pool, began) = (BlockPool::new(PoolConfig::default()), Instant::now());
    for _ in 0..10 {
        while queue.receive(&pool, &mut ReceiveBatch::new(), 64).frames > 0 {}
        queue.waiter().wait(Some(PATIENCE));
    }
    assert!(began.elapsed() < PATIENCE / 2, "{:?}", began.elapsed());
    arrive(&kernel, &mut pattern, &lens[..32]);
    // They have left, so their chunks are free.
    let started = Instant::now();
    while queue.room().packets < 32 {
        assert!(started.elapsed() < PATIENCE, "{:?} is free", queue.room());
        queue.reclaim();
    }
    let mut pattern = pair::Pattern::new(5);
    let rest = datagrams(&cable, &kernel, &lens[32..]);
    assert_eq!(queue.transmit(&rest), Transmitted { taken: 9, stopped: None });
    arrive(&kernel, &mut pattern, &lens[32..]);
    // Who only sends finds them as well.
    for _ in 0..20 {
        let started = Instant::now();
        while queue.transmit(&rest).taken < 9 {
            assert!(started.elapsed() < PATIENCE, "{:?} is free", queue.room());
        }
    }
}

/// A checksum that does not lie in the packet is found when its chunk is filled.
fn refused() {
    let cable = cable(1_500);
    for scatter_gather in [false, true] {
        let config = XdpConfig { scatter_gather, transmit_frames: 64, ..XdpConfig::new(NEAR) };
        let (_device, mut queue) = open(&config);
        let room = queue.room();
        let mut batch = datagrams(&cable, &kernels_socket(), &[100]);
        batch.set_checksum(0, Checksum::Partial { offset: 250 });
        let refused = Transmitted { taken: 0, stopped: Some(Stop::Refused) };
        (0..100).for_each(|_| assert_eq!(queue.transmit(&batch), refused));
        assert_eq!(queue.room(), room);
    }
}

/// Who is told that there are no more may go to sleep.
fn few_wanted() {
    let _cable = cable(1_500);
    let (_device, mut queue) = open(&XdpConfig::new(NEAR));
    let kernel = kernels_socket();
    kernel.set_broadcast(true).expect("an option of sockets");
    let (pool, started) = (BlockPool::new(PoolConfig::default()), Instant::now());
    let mut is_told = false;
    while !is_told {
        assert!(started.elapsed() < PATIENCE, "nobody is told");
        (0..5).for_each(|_| {
            kernel.send_to(&[7; 100], ("10.43.0.255", 9)).expect("a route");
        });
        std::thread::sleep(Duration::from_millis(10));
        let received = queue.receive(&pool, &mut ReceiveBatch::new(), 2);
        is_told = received.frames == 2 && received.more;
    }
    while queue.receive(&pool, &mut ReceiveBatch::new(), 2).more {}
}

/// Nobody receives them.
fn overrun() {
    let _cable = cable(1_500);
    let (_device, queue) = open(&XdpConfig { receive_frames: 64, ..XdpConfig::new(NEAR) });
    let kernel = kernels_socket();
    kernel.set_broadcast(true).expect("an option of sockets");
    for _ in 0..200 {
        kernel.send_to(&[7; 100], ("10.43.0.255", 9)).expect("a route");
    }
    let started = Instant::now();
    while queue.counters().receive_dropped < 100 {
        assert!(started.elapsed() < PATIENCE, "{:?}", queue.counters());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Who sends and never waits for the device is told of a shorter MTU before a batch that was built for
/// the longer one is taken.
fn mtu_shrinks_under_a_batch() {
    let cable = cable(9_000);
    let (_device, mut queue) = open(&XdpConfig::new(NEAR));
    let (kernel, mut pattern) = (kernels_socket(), pair::Pattern::new(5));
    let batch = datagrams(&cable, &kernel, &[8_972, 100, 8_972]);
    assert_eq!(queue.transmit(&batch), Transmitted { taken: 3, stopped: None });
    arrive(&kernel, &mut pattern, &[8_972, 100, 8_972]);

    let batch = datagrams(&cable, &kernel, &[100, 8_972, 1_372]);
    cable.near().set_mtu_bytes(1_400).expect("root of the namespace");
    // So long at most it may go unnoticed.
    std::thread::sleep(Duration::from_millis(1));
    assert_eq!(queue.transmit(&batch), Transmitted { taken: 0, stopped: Some(Stop::Revoked) });
    assert_eq!(queue.capabilities().mtu_bytes, 1_400);
    // Whoever offers it all the same loses the one packet that can never go, and no other.
    let transmitted = queue.transmit(&batch);
    assert_eq!(transmitted, Transmitted { taken: 1, stopped: Some(Stop::Refused) });
    let afresh = datagrams(&cable, &kernel, &[100, 1_372, 1_372]);
    assert_eq!(queue.transmit(&afresh), Transmitted { taken: 3, stopped: None });
    let (mut first, mut second) = (pair::Pattern::new(5), pair::Pattern::new(5));
    arrive(&kernel, &mut first, &[100]);
    arrive(&kernel, &mut second, &[100, 1_372, 1_372]);
    let counters = queue.counters();
    assert_eq!((counters.capabilities_revoked, counters.transmit_packets), (1, 7));
    // One that is longer again is taken up, as far as there was room for it when the queue was opened.
    cable.set_mtu_bytes(9_100).expect("root of the namespace");
    std::thread::sleep(Duration::from_millis(1));
    let batch = datagrams(&cable, &kernel, &[8_972]);
    assert_eq!(queue.transmit(&batch), Transmitted { taken: 0, stopped: Some(Stop::Revoked) });
    assert_eq!(queue.capabilities().mtu_bytes, 9_000);
    assert_eq!(queue.transmit(&batch), Transmitted { taken: 1, stopped: None });
    arrive(&kernel, &mut pair::Pattern::new(5), &[8_972]);
}

/// Under a running transfer both ways: everything arrives, in shorter packets, and the stack says why.
fn mtu_shrinks() {
    for scatter_gather in [false, true] {
        let cable = cable(9_000);
        let config = XdpConfig { scatter_gather, ..XdpConfig::new(NEAR) };
        let (stack, _device) = stack(&config, TransmitMode::Multidata);
        let kernel = std::net::TcpListener::bind((address(false, 1), 0)).expect("its address");
        let to = kernel.local_addr().expect("bound");
        let ours = TcpStream::connect(&stack, to).expect("the kernel listens");
        let (theirs, _) = kernel.accept().expect("connected");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let started = Instant::now();
                while stack.counters().device.transmit_bytes < 1_000_000 {
                    assert!(started.elapsed() < PATIENCE, "nothing moves");
                    std::thread::sleep(Duration::from_millis(1));
                }
                // Of the kernel's end, too: what it sends is too long for the other one otherwise.
                cable.set_mtu_bytes(1_400).expect("root of the namespace");
            });
            both_ways(&ours, &theirs, 3, 40_000_000);
        });
        // On a loaded machine the transfer may be over before.
        let started = Instant::now();
        while stack.interfaces()[0].capabilities.mtu_bytes != 1_400 {
            assert!(started.elapsed() < PATIENCE, "the shorter MTU is not noticed");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(stack.interfaces()[0].counters.capabilities_revoked, 1);
        let shard = stack.counters().stack.shard;
        assert_eq!((shard.device_mtus_shrunk, shard.device_refused), (1, 0));
        let told = std::iter::from_fn(|| stack.poll_interface_event());
        let told: Vec<String> = told
            .filter(|event| matches!(event, InterfaceEvent::MtuShrunk(..)))
            .map(|event| event.to_string())
            .collect();
        assert!(told.len() == 1 && told[0].contains("of 1400 bytes at most now"), "{told:?}");
    }
}

/// What is longer than the MTU was is no run of datagrams for that, once the MTU is longer and as long as it fits a chunk.
fn mtu_grows() {
    let cable = cable(1_500);
    let (stack, _device) = stack(&XdpConfig::new(NEAR), TransmitMode::Multidata);
    let ours = multidata::UdpSocket::bind(&stack, (address(false, 2), 9)).expect("a free port");
    ours.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
    cable.set_mtu_bytes(1_700).expect("veth takes it");
    let kernel = UdpSocket::bind((address(false, 1), 0)).expect("its address");
    let mut buffer = [0; 2_000];
    let came = (0..10).find_map(|_| {
        kernel.send_to(&[5; 1_650], (address(false, 2), 9)).expect("a route");
        ours.recv_from(&mut buffer).ok()
    });
    assert_eq!(came.expect("nothing came in ten tries").0, 1_650);
}

/// The driver brings a flow by whichever queue the kernel has sent it; it is processed by its home, and
/// leaves by that one's own queue.
fn two_queues() {
    let _cable = cable_of(1_500, 2);
    let mut device = XdpDevice::open(&XdpConfig::new(NEAR)).expect("the driver has XDP");
    assert_eq!(device.capabilities().queues, 2);
    let queues = (0..2).map(|index| device.queue(index).expect("it has two"));
    let queues = queues.map(|queue| Box::new(queue) as Box<dyn Queue>).collect();
    assert!(device.queue(0).is_err() && device.queue(2).is_err());
    let builder = Stack::builder().squeues(2).multiqueue_interface(queues, interface());
    let stack = builder.build().expect("a stack");
    for _ in 0..10 {
        for ipv6 in [false, true] {
            exchange(&stack, ipv6, 100_000);
        }
    }
    let counters = stack.squeue_counters();
    for squeue in &counters {
        let (shard, device) = (squeue.stack.shard, squeue.device);
        let connections = shard.connections_accepted + shard.connections_opened;
        assert!(connections >= 5, "{connections} of 40 connections");
        assert!(device.transmit_packets > 100, "{device:?}");
        assert!(device.receive_frames > 100, "{device:?}");
    }
    let (all, over) = counters.iter().fold((0, 0), |(all, over), squeue| {
        (all + squeue.device.receive_frames, over + squeue.runtime.frames_handed_over)
    });
    assert!(over > 0 && over < all, "{over} of {all} frames were handed over");

    let kernel = std::net::TcpListener::bind((address(false, 1), 0)).expect("its address");
    let to = kernel.local_addr().expect("bound");
    let ours = TcpStream::connect(&stack, to).expect("the kernel listens");
    let (theirs, _) = kernel.accept().expect("connected");
    let sent = || {
        let of = |squeue: multidata::Counters| squeue.device.transmit_packets;
        stack.squeue_counters().into_iter().map(of).collect::<Vec<u64>>()
    };
    let before = sent();
    both_ways(&ours, &theirs, 6, 1_000_000);
    let by: Vec<u64> = sent().iter().zip(&before).map(|(now, before)| now - before).collect();
    let home = ours.squeue();
    assert!(by[home] > 1_000_000 / 1_500 && by[1 - home] < 50, "{by:?} from squeue {home}");
}

/// The kernel would take what is sent by a queue that is there for receiving only, and send none of it.
fn uneven_queues() {
    let cable = VethPair::with_uneven_queues(NEAR, FAR, 1, 2).expect("root of the namespace");
    cable.set_up().expect("root of the namespace");
    let mut device = XdpDevice::open(&XdpConfig::new(NEAR)).expect("the driver has XDP");
    assert_eq!(device.capabilities().queues, 1);
    assert!(device.refused()[0].contains("queues from 1 on of the 2"), "{}", device.negotiated());
    device.queue(0).expect("it goes both ways");
    let error = device.queue(1).expect_err("it goes one way").message;
    assert!(error.contains("it has 1 for both directions"), "{error}");
    // More than are taken.
    let _many = VethPair::with_queues("near8", "far8", 65).expect("root of the namespace");
    let device = XdpDevice::open(&XdpConfig::new("near8")).expect("the driver has XDP");
    assert_eq!(device.capabilities().queues, 64);
    let refused = device.refused();
    assert!(refused.iter().any(|it| it.contains("queues from 64 on of the 65")), "{refused:?}");
}

/// One connection that nobody reads, with more in its buffers than there are chunks, and another
/// one goes on all the same.
fn slow_reader() {
    let _cable = cable(1_500);
    let config = XdpConfig { receive_frames: 64, ..XdpConfig::new(NEAR) };
    let (stack, _device) = stack(&config, TransmitMode::Multidata);
    let listener = TcpListener::bind(&stack, (address(false, 2), 0)).expect("a free port");
    let mut theirs = std::net::TcpStream::connect(listener.local_addr().expect("bound"))
        .expect("the stack listens");
    let (unread, _) = listener.accept().expect("connected");
    theirs.set_nonblocking(true).expect("a socket");
    let mut waiting = 0;
    let started = Instant::now();
    while waiting < 64 * 2_048 && started.elapsed() < PATIENCE {
        waiting += theirs.write(&[7; 8_192]).unwrap_or(0);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(waiting >= 64 * 2_048, "the stack took {waiting} bytes only");
    exchange(&stack, false, 1_000_000);
    drop(unread);
}

/// With the device the program is gone, and the kernel has the frames again.
fn given_back() {
    let _cable = cable(1_500);
    let (first, device) = stack(&XdpConfig::new(NEAR), TransmitMode::Multidata);
    exchange(&first, false, 10_000);
    let taken = XdpDevice::open(&XdpConfig::new(NEAR)).expect_err("a program is attached");
    assert!(taken.message.contains("another XDP program"), "{taken}");
    drop(device);
    exchange(&first, false, 10_000);
    drop(first);
    // The stack's threads let go of the queue a moment later.
    let started = Instant::now();
    let (second, _device) = loop {
        match XdpDevice::open(&XdpConfig::new(NEAR)) {
            Ok(probe) => {
                drop(probe);
                // The queue of a closed socket is free a moment later, which opening waits for.
                break stack(&XdpConfig::new(NEAR), TransmitMode::Multidata);
            }
            Err(error) => assert!(started.elapsed() < PATIENCE, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    exchange(&second, false, 10_000);
    // A panic takes the program along, too.
    let probed = catch_unwind(AssertUnwindSafe(|| {
        let _cable = VethPair::new("near8", "far8").expect("root of the namespace");
        let _device = XdpDevice::open(&XdpConfig::new("near8")).expect("another interface");
        std::panic::resume_unwind(Box::new(()));
    }));
    assert!(probed.is_err());
    let cable = VethPair::new("near8", "far8").expect("the first one is gone");
    XdpDevice::open(&XdpConfig::new("near8")).expect("nothing is attached");
    drop(cable);
}

/// Somebody who waits for data is told that the interface is gone, without sending anything.
fn deleted() {
    let cable = cable(1_500);
    let (stack, _device) = stack(&XdpConfig::new(NEAR), TransmitMode::Multidata);
    let kernel = std::net::TcpListener::bind((address(false, 1), 0)).expect("its address");
    let to = kernel.local_addr().expect("bound");
    let mut ours = TcpStream::connect(&stack, to).expect("the kernel listens");
    let _theirs = kernel.accept().expect("connected");
    ours.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            drop(cable);
        });
        let error = ours.read(&mut [0; 10]).expect_err("nothing was sent");
        assert!(error.to_string().contains("is gone"), "{error}");
    });
    let error = ours.write(&[1]).expect_err("the interface is gone");
    assert!(error.to_string().contains("is gone"), "{error}");
}

/// One that has no room has to be looked at again, until it is gone; who goes on asking is told so each time.
fn gone_while_full() {
    let cable = cable(1_500);
    let config = XdpConfig { scatter_gather: true, transmit_frames: 64, ..XdpConfig::new(NEAR) };
    let (_device, mut queue) = open(&config);
    let batch = datagrams(&cable, &kernels_socket(), &[1_472; 40]);
    assert_eq!(queue.transmit(&batch).stopped, Some(Stop::Full));
    drop(cable);
    let (pool, started) = (BlockPool::new(PoolConfig::default()), Instant::now());
    let waiter = queue.waiter();
    let mut receive = || queue.receive(&pool, &mut ReceiveBatch::new(), 64).failed;
    while receive().is_none() {
        assert!(started.elapsed() < PATIENCE, "nobody is told");
        waiter.wait(Some(Duration::from_millis(50)));
    }
    for _ in 0..3 {
        assert!(receive().is_some_and(|error| error.message.contains("is gone")));
    }
    assert!(!queue.is_stalled());
    let started = Instant::now();
    (0..3).for_each(|_| waiter.wait(Some(Duration::from_millis(50))));
    assert!(started.elapsed() >= Duration::from_millis(140), "{:?}", started.elapsed());
    assert!(matches!(queue.transmit(&batch).stopped, Some(Stop::Failed(_))));
}

/// An interface that is down for a moment loses nothing, and the stack says what is wrong.
fn down_and_up() {
    let cable = cable(1_500);
    let (stack, _device) = stack(&XdpConfig::new(NEAR), TransmitMode::Multidata);
    let kernel = std::net::TcpListener::bind((address(false, 1), 0)).expect("its address");
    let to = kernel.local_addr().expect("bound");
    let ours = TcpStream::connect(&stack, to).expect("the kernel listens");
    let (theirs, _) = kernel.accept().expect("connected");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(5));
            cable.near().set_down().expect("root of the namespace");
            let started = Instant::now();
            while stack.counters().device.links_lost == 0 {
                assert!(started.elapsed() < PATIENCE, "nobody noticed");
                std::thread::sleep(Duration::from_millis(1));
            }
            let trouble = stack.interfaces().first().and_then(|state| state.trouble.clone());
            let trouble = trouble.expect("it is down").message;
            assert!(trouble.contains("is down: bring it up"), "{trouble}");
            std::thread::sleep(Duration::from_millis(50));
            cable.near().set_up().expect("root of the namespace");
        });
        both_ways(&ours, &theirs, 3, 100_000_000);
    });
    let device = stack.counters().device;
    assert_eq!((device.links_lost, device.links_restored), (1, 1));
}

/// An interface that is away takes nothing and is looked for again. Looking for one that is there would be spinning,
/// and frames would wait for it.
fn sleeps_as_before() {
    let cable = cable(1_500);
    let (_device, mut queue) = open(&XdpConfig::new(NEAR));
    let batch = datagrams(&cable, &kernels_socket(), &[100]);
    cable.near().set_down().expect("root of the namespace");
    kernel::notices(&mut queue, true);
    let full = Transmitted { taken: 0, stopped: Some(Stop::Full) };
    assert_eq!(queue.transmit(&batch), full);
    cable.near().set_up().expect("root of the namespace");
    kernel::notices(&mut queue, false);
    kernel::sleeps(&mut queue);
    assert_eq!(queue.transmit(&batch), Transmitted { taken: 1, stopped: None });
}

/// A bridge, which takes nothing for other addresses than its own unless it is told, and a cable from one of its
/// ports to the kernel.
fn bridge() -> (Bridge, Interface, VethPair) {
    let bridge = Bridge::new(NEAR).expect("root of the namespace");
    let pair = VethPair::new("port7", FAR).expect("root of the namespace");
    pair.far().set_feature(Feature::TransmitChecksum, false).expect("veth has it");
    pair.set_up().expect("root of the namespace");
    kernel::give(pair.far(), 43, 1);
    bridge.add_port(pair.near()).expect("root of the namespace");
    let interface = Interface::named(NEAR).expect("the bridge");
    interface
        .set_hardware_address(HardwareAddress([2, 0, 0, 0, 0, 1]))
        .expect("a bridge takes any");
    (bridge, interface, pair)
}

fn other_address() {
    let (_bridge, interface, _pair) = bridge();
    let config = XdpConfig { attach: XdpAttach::Generic, ..XdpConfig::new(NEAR) };
    let (stack, _device) = stack(&config, TransmitMode::Multidata);
    exchange(&stack, false, 100_000);
    interface
        .set_hardware_address(HardwareAddress([2, 0, 0, 0, 0, 2]))
        .expect("a bridge takes any");
    exchange(&stack, false, 100_000);
}

fn own_address() {
    let (_bridge, _interface, _pair) = bridge();
    let config = XdpConfig {
        attach: XdpAttach::Generic,
        hardware_address: Some(HardwareAddress([2, 0, 0, 0, 0, 3])),
        ..XdpConfig::new(NEAR)
    };
    let (stack, device) = stack(&config, TransmitMode::Multidata);
    assert_eq!(device.refused(), [""; 0], "{}", device.negotiated());
    exchange(&stack, false, 100_000);
}

/// Neighbours ask for IPv6 addresses by groups of which the kernel is no member.
fn groups() {
    const IFF_ALLMULTI: u32 = 0x200;
    let _cable = cable(1_500);
    let takes_groups = || {
        let path = format!("/sys/class/net/{NEAR}/flags");
        let flags = std::fs::read_to_string(path).expect("the system tells");
        let digits = flags.trim().trim_start_matches("0x");
        u32::from_str_radix(digits, 16).expect("a number") & IFF_ALLMULTI != 0
    };
    assert!(!takes_groups());
    let (device, queue) = open(&XdpConfig::new(NEAR));
    assert!(takes_groups());
    drop((device, queue));
    assert!(!takes_groups());
}

/// A frame whose tag was taken out would be taken for one of the untagged network.
fn vlan_tags() {
    let cable = cable(1_500);
    let has = |end: &linux::Interface| end.has_feature(Feature::ReceiveVlanOffload);
    cable.near().set_feature(Feature::ReceiveVlanOffload, true).expect("veth has it");
    assert_eq!((has(cable.near()), has(cable.far())), (Ok(true), Ok(true)));
    let device = XdpDevice::open(&XdpConfig::new(NEAR)).expect("the driver has XDP");
    assert_eq!((has(cable.near()), has(cable.far())), (Ok(false), Ok(true)));
    assert!(!device.negotiated().contains("VLAN"), "{}", device.negotiated());
    for (feature, on) in [(Feature::TransmitVlanOffload, false), (Feature::Coalescing, true)] {
        cable.far().set_feature(feature, on).expect("veth has it");
        assert_eq!(cable.far().has_feature(feature), Ok(on));
    }
    assert_eq!(has(cable.far()), Ok(true), "flags beside it stay");
}

fn errors() {
    let says = |config: XdpConfig, what: &str| {
        let error = XdpDevice::open(&config).and_then(|mut device| device.queue(0).map(drop));
        let error = error.expect_err(what);
        assert!(error.message.contains(what), "{what:?} is not in: {error}");
    };
    says(XdpConfig::new("no-such-if0"), "no-such-if0");
    let _cable = cable(1_500);
    let group = Some(HardwareAddress([1, 0, 0, 0, 0, 1]));
    says(XdpConfig { hardware_address: group, ..XdpConfig::new(NEAR) }, "multicast");
    // veth copies.
    says(XdpConfig { copy: XdpCopy::ZeroCopy, ..XdpConfig::new(NEAR) }, "zero-copy");
    let mut device = XdpDevice::open(&XdpConfig::new(NEAR)).expect("the driver has XDP");
    assert!(device.queue(1_000).expect_err("too many").message.contains("does not exist"));
    let queue = device.queue(0).expect("it has one");
    assert!(device.queue(0).expect_err("taken").message.contains("is taken"));
    let negotiated = device.negotiated();
    assert!(negotiated.contains("native XDP, copies by the kernel"), "{negotiated}");
    drop(queue);
}

fn main() -> ExitCode {
    kernel::run(TESTS, enter)
}

/// Enters a network of our own and tries whether an interface can be taken over there.
fn enter() -> Result<(), String> {
    kernel::enter()?;
    let cable = VethPair::new(NEAR, FAR).map_err(|error| error.message)?;
    cable.set_up().map_err(|error| error.message)?;
    let probe = XdpDevice::open(&XdpConfig::new(NEAR)).and_then(|mut device| device.queue(0));
    probe.map(drop).map_err(|error| error.message)
}
