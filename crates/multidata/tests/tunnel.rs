//! Two stacks at the ends of a UDP tunnel over the kernel's loopback, in a network of the test's own.

mod kernel;
mod pair;
mod tunnel_tests {
    pub(crate) mod road;
}

use batch::BlockPool;
use counters::DropReason;
use device::transform::Null;
use device::{DeviceCounters, Queue as _, Stop, Transform, TransmitMode, Transmitted};
use linux::{ChaChaKeys, ChaChaPoly, TunnelConfig, TunnelDevice};
use multidata::{Coalescing, Stack};
use nix::sys::socket::{setsockopt, sockopt};
use pair::{LEFT, RIGHT, check_pattern, connected, exchange, interface, send_pattern};
use std::net::{SocketAddr, UdpSocket};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tunnel_tests::road::{Harm, Road};

const TESTS: &[kernel::Test] = &[
    ("streams_both_ways_arrive_equal", streams_both_ways),
    ("what_is_tampered_replayed_or_truncated_is_dropped_and_counted", harmed_datagrams),
    ("strangers_are_dropped_and_counted", strangers),
    ("a_peer_that_vanishes_returns", vanishing_peer),
    ("a_kernel_that_does_not_cut_messages_is_believed", revoked_segmentation),
    ("a_path_that_shrinks_is_followed", shrinking_path),
    ("a_late_report_of_a_narrow_path_costs_nothing", late_report),
    ("what_no_way_leads_for_is_lost_and_is_not_the_end", no_way),
    ("a_path_below_what_hosts_rely_on_leaves_the_mtu_there", below_the_floor),
    ("a_transform_that_wants_single_packets_gets_them", choosy_transform),
    ("small_batches_are_not_copied_once_more", small_batches),
    ("contradictions_are_named", contradictions),
];

/// Longest time any step may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The transforms of two ends.
fn ends(is_encrypted: bool) -> (Box<dyn Transform>, Box<dyn Transform>) {
    if !is_encrypted {
        return (Box::new(Null), Box::new(Null));
    }
    let keys = ChaChaKeys::generate().expect("random bytes");
    (Box::new(ChaChaPoly::new(&keys)), Box::new(ChaChaPoly::new(&keys.swapped())))
}

fn bound(ip: &str) -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind((ip, 0)).expect("loopback");
    let address = socket.local_addr().expect("bound");
    (socket, address)
}

/// An address that is free, and stays so in this network.
fn free(ip: &str) -> SocketAddr {
    bound(ip).1
}

/// A stack at one end.
fn stack(
    socket: UdpSocket,
    peer: SocketAddr,
    transform: Box<dyn Transform>,
    config: &TunnelConfig,
    (address, mode): (&str, TransmitMode),
) -> Stack {
    let mut device = TunnelDevice::over(socket, peer, transform, config.clone()).expect("a tunnel");
    assert!(device.refused().is_empty(), "{}", device.negotiated());
    let queue = device.queue(0).expect("it has one");
    Stack::builder().interface(queue, interface(address).mode(mode)).build().expect("a stack")
}

/// Two stacks, one at each end.
fn tunnel(
    ip: &str,
    is_encrypted: bool,
    config: &TunnelConfig,
    mode: TransmitMode,
) -> (Stack, Stack) {
    let ((near, left), (far, right)) = (bound(ip), bound(ip));
    let (ours, theirs) = ends(is_encrypted);
    let left_stack = stack(near, right, ours, config, (LEFT, mode));
    (left_stack, stack(far, left, theirs, config, (RIGHT, mode)))
}

fn device_counters(stack: &Stack) -> DeviceCounters {
    stack.counters().device
}

fn small() -> TunnelConfig {
    TunnelConfig { mtu_bytes: Some(1_400), ..TunnelConfig::default() }
}

fn one_a_call() -> TunnelConfig {
    TunnelConfig { segment: false, coalesce: false, messages_per_call: 1, ..small() }
}

fn streams_both_ways() {
    let trusting = TunnelConfig { trust_checksums: true, ..small() };
    for (ip, is_encrypted, config, mode) in [
        ("127.0.0.1", false, small(), TransmitMode::Multidata),
        ("::1", true, small(), TransmitMode::Multidata),
        ("127.0.0.1", true, trusting, TransmitMode::Multidata),
        ("127.0.0.1", true, small(), TransmitMode::Single),
        ("127.0.0.1", false, small(), TransmitMode::Chain),
        ("127.0.0.1", false, one_a_call(), TransmitMode::Multidata),
        ("127.0.0.1", true, TunnelConfig::default(), TransmitMode::Multidata),
    ] {
        let (left, right) = tunnel(ip, is_encrypted, &config, mode);
        let (client, server) = connected(&left, &right);
        exchange(&client, &server, 1, 12 << 20);
        drop((client, server));
        let (left, right) = (settled(&left, &right), settled(&right, &left));
        let about = format!("{ip} {is_encrypted} {config:?} {mode}: {left:?} {right:?}");
        let is_merging = config.segment && mode == TransmitMode::Multidata;
        for (counted, theirs) in [(&left, &right), (&right, &left)] {
            assert_eq!(counted.receive_frames, theirs.transmit_packets, "{about}");
            // Each message but those of one datagram came up as it left.
            let merged_min = theirs.transmit_packets - theirs.transmit_frames;
            assert!(counted.receive_coalesced >= merged_min, "{about}");
            if !config.segment {
                assert_eq!(counted.transmit_frames, counted.transmit_packets, "{about}");
                assert_eq!(counted.transmit_syscalls, counted.transmit_packets, "{about}");
                assert_eq!(counted.receive_coalesced, 0, "{about}");
            }
            let drops = counted.drop_tunnel_forged + counted.drop_tunnel_replayed;
            assert_eq!(drops + counted.drop_tunnel_truncated, 0, "{about}");
        }
        if mode == TransmitMode::Chain {
            // A message for each datagram, and many messages in a call.
            assert_eq!(left.transmit_frames, left.transmit_packets, "{about}");
            assert!(left.transmit_syscalls * 5 < left.transmit_packets * 4, "{about}");
        }
        if is_merging && config.mtu_bytes.is_some() {
            let packets = left.transmit_packets + right.transmit_packets;
            assert!((left.transmit_frames + right.transmit_frames) * 2 < packets, "{about}");
            assert!((left.receive_syscalls + right.receive_syscalls) < packets, "{about}");
        }
    }
}

/// A merged message comes up in several batches where few frames are wanted at a time; its block is as
/// full as it was.
fn small_batches() {
    const LEN: u64 = 8 << 20;
    let (left, right) = tunnel("127.0.0.1", false, &small(), TransmitMode::Multidata);
    right.set_coalescing(0, Coalescing { count: 8, ..Coalescing::OFF }).expect("it has one");
    let (client, server) = connected(&left, &right);
    std::thread::scope(|scope| {
        scope.spawn(|| send_pattern(&client, 1, LEN));
        check_pattern(&server, 1, LEN);
    });
    let counted = right.counters();
    let (copied, device) = (counted.stack.tcp.copied_bytes, counted.device);
    assert!(copied < LEN / 20, "{copied} of {LEN} bytes were copied; {device:?}");
    assert!(device.receive_coalesced * 2 > device.receive_frames, "{device:?}");
}

/// What `stack` counted once all that `peer` sent has been received.
fn settled(stack: &Stack, peer: &Stack) -> DeviceCounters {
    let started = Instant::now();
    loop {
        let sent = device_counters(peer).transmit_packets;
        let received = device_counters(stack).receive_frames;
        std::thread::sleep(Duration::from_millis(20));
        let is_quiet = sent == device_counters(peer).transmit_packets;
        if is_quiet && received == sent || started.elapsed() > PATIENCE {
            return device_counters(stack);
        }
    }
}

/// Two stacks with a road between them that harms datagrams.
fn over_a_road(is_encrypted: bool, harm: Harm) -> (Stack, Stack, impl Fn(Harm) -> Road, Road) {
    let ip = "127.0.0.1";
    let ((near, left), (far, right)) = (bound(ip), bound(ip));
    let (towards_left, towards_right) = (free(ip), free(ip));
    let open = move |harm| Road::open((towards_left, left), (towards_right, right), harm);
    let road = open(harm);
    let (ours, theirs) = ends(is_encrypted);
    let mode = TransmitMode::Multidata;
    let left_stack = stack(near, towards_left, ours, &small(), (LEFT, mode));
    let right_stack = stack(far, towards_right, theirs, &small(), (RIGHT, mode));
    (left_stack, right_stack, open, road)
}

fn harmed_datagrams() {
    let harm = Harm { tamper: 211, replay: 97, truncate: 307 };
    let (left, right, _, road) = over_a_road(true, harm);
    let (client, server) = connected(&left, &right);
    exchange(&client, &server, 2, 4 << 20);
    drop((client, server));
    let done = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let harmed =
        || done(&road.done.tampered) + done(&road.done.truncated) + done(&road.done.replayed);
    let dropped = |counters: &DeviceCounters| {
        counters.drop_tunnel_forged + counters.drop_tunnel_truncated + counters.drop_tunnel_replayed
    };
    // What is still on its way is counted, too.
    let started = Instant::now();
    let counted = || dropped(&device_counters(&left)) + dropped(&device_counters(&right));
    while counted() * 10 < harmed() * 9 && started.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(20));
    }
    let (left, right) = (device_counters(&left), device_counters(&right));
    let (tampered, truncated) = (done(&road.done.tampered), done(&road.done.truncated));
    let replayed = done(&road.done.replayed);
    assert!(tampered > 5 && truncated > 5 && replayed > 20, "the road did harm");
    let forged = left.drop_tunnel_forged + right.drop_tunnel_forged;
    let short = left.drop_tunnel_truncated + right.drop_tunnel_truncated;
    let replays = left.drop_tunnel_replayed + right.drop_tunnel_replayed;
    assert!(short > 0 && forged > 0 && replays > 0, "{left:?} {right:?}");
    // A flipped bit of the counter may make a datagram look old; what is cut by one byte fails to
    // authenticate. Nothing gets through, and nothing that was sound is dropped, unless the road's
    // or the ends' sockets overflowed.
    let all = forged + short + replays;
    let harmed = tampered + truncated + replayed;
    assert!(all <= harmed && all * 10 >= harmed * 9, "{all} of {harmed}");
}

fn strangers() {
    let ip = "127.0.0.1";
    let ((near, left), (far, right), (stranger, _)) = (bound(ip), bound(ip), bound(ip));
    // Before the tunnel knows its peer, anybody can leave something in its socket.
    for _ in 0..5 {
        stranger.send_to(&[0x45; 100], left).expect("loopback");
    }
    let (ours, theirs) = ends(false);
    let mode = TransmitMode::Multidata;
    let left_stack = stack(near, right, ours, &small(), (LEFT, mode));
    let right_stack = stack(far, left, theirs, &small(), (RIGHT, mode));
    let (client, server) = connected(&left_stack, &right_stack);
    // From now on the kernel refuses them, and says so.
    stranger.connect(left).expect("loopback");
    stranger.send(&[0x45; 100]).expect("nobody knows yet");
    let refused = stranger.send(&[0x45; 100]).expect_err("the kernel has answered");
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    exchange(&client, &server, 3, 1 << 20);
    assert_eq!(device_counters(&left_stack).drop_tunnel_foreign, 5);
    assert_eq!(device_counters(&right_stack).drop_tunnel_foreign, 0);
}

fn vanishing_peer() {
    let (left, right, open, road) = over_a_road(true, Harm::default());
    let (client, server) = connected(&left, &right);
    drop(road);
    let before = device_counters(&left).transmit_unreachable;
    let sending = std::thread::spawn(move || {
        exchange(&client, &server, 4, 2 << 20);
    });
    let started = Instant::now();
    while device_counters(&left).transmit_unreachable == before {
        assert!(started.elapsed() < PATIENCE, "nobody noticed that the peer is gone");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!sending.is_finished());
    let _road = open(Harm::default());
    sending.join().expect("the connection survives");
}

fn revoked_segmentation() {
    let ip = "127.0.0.1";
    let ((near, left), (far, right)) = (bound(ip), bound(ip));
    // A socket that leaves checksums out is one of those that the kernel cuts no messages for; it
    // says so only when something is sent.
    linux::raw_calls::setsockopt(raw(&near), 1, 11, &1_i32.to_ne_bytes()).expect("SO_NO_CHECK");
    let (ours, theirs) = ends(true);
    let mode = TransmitMode::Multidata;
    let left_stack = stack(near, right, ours, &small(), (LEFT, mode));
    let right_stack = stack(far, left, theirs, &small(), (RIGHT, mode));
    let (client, server) = connected(&left_stack, &right_stack);
    exchange(&client, &server, 5, 4 << 20);
    let (left, right) = (device_counters(&left_stack), device_counters(&right_stack));
    assert_eq!(left.capabilities_revoked, 1, "once, and everything arrived");
    assert_eq!(left.transmit_frames, left.transmit_packets);
    assert_eq!(right.capabilities_revoked, 0);
    assert!(right.transmit_frames < right.transmit_packets);
    let mut refused = None;
    left_stack.counters().for_each(&mut |name, value| {
        if name.ends_with("drop_device_refused") {
            refused = Some(value);
        }
    });
    assert_eq!(refused, Some(0), "what was refused was built anew, not dropped");
}

/// Transforms nothing, and wants batches only while the flag says so.
struct Choosy(Arc<AtomicBool>);

impl Transform for Choosy {
    fn name(&self) -> &'static str {
        "choosy"
    }

    fn overhead_bytes(&self) -> usize {
        0
    }

    fn wants_single_packets(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn seal(&mut self, packet: &batch::PacketView<'_>, out: &mut [u8]) -> Option<usize> {
        Null.seal(packet, out)
    }

    fn open(&mut self, datagram: &mut [u8]) -> Result<Range<usize>, DropReason> {
        Null.open(datagram)
    }
}

fn choosy_transform() {
    let ((near, left), (far, right)) = (bound("127.0.0.1"), bound("127.0.0.1"));
    let wants = Arc::new(AtomicBool::new(true));
    let (ours, mode) = (Box::new(Choosy(Arc::clone(&wants))), TransmitMode::Multidata);
    let left_stack = stack(near, right, ours, &small(), (LEFT, mode));
    let right_stack = stack(far, left, Box::new(Null), &small(), (RIGHT, mode));
    let refused = || {
        let mut refused = None;
        left_stack.counters().for_each(&mut |name, value| {
            if name.ends_with("multidata_not_by_transform") {
                refused = Some(value);
            }
        });
        refused.expect("it is counted")
    };
    for (index, on) in [true, false, true].into_iter().enumerate() {
        wants.store(on, Ordering::Relaxed);
        let (before, sent) = (refused(), device_counters(&left_stack));
        let (client, server) = connected(&left_stack, &right_stack);
        exchange(&client, &server, index as u64, 1 << 20);
        let now = device_counters(&left_stack);
        let packets = now.transmit_packets - sent.transmit_packets;
        let batches = now.transmit_batches - sent.transmit_batches;
        // A batch more or two that met a transform of another mind.
        assert_eq!(batches + 2 > packets, on, "{packets} packets in {batches} batches");
        assert_eq!(refused() - before > 500, on);
    }
    assert_eq!(device_counters(&left_stack).capabilities_revoked, 1);
}

fn shrinking_path() {
    let ((near, left), (_far, right)) = (bound("127.0.0.1"), bound("127.0.0.1"));
    let loopback = linux::Interface::named("lo").expect("it is there");
    let mut device =
        TunnelDevice::over(near, right, Box::new(Null), TunnelConfig::default()).expect("a tunnel");
    let mut queue = device.queue(0).expect("one");
    assert_eq!(queue.capabilities().mtu_bytes, 65_507);
    loopback.set_mtu_bytes(1_500).expect("root of the namespace");
    let long = packets(&[4_000]);
    let transmitted = queue.transmit(&long);
    let mtu_bytes = queue.capabilities().mtu_bytes;
    let again = queue.transmit(&long);
    let fitting = queue.transmit(&packets(&[1_472, 1_472, 90]));
    loopback.set_mtu_bytes(65_536).expect("root of the namespace");
    assert_eq!((transmitted.taken, transmitted.stopped), (0, Some(Stop::Revoked)));
    assert_eq!(mtu_bytes, 1_472);
    assert_eq!((again.taken, again.stopped), (0, Some(Stop::Refused)));
    assert_eq!((fitting.taken, fitting.stopped), (3, None));
    let counters = queue.counters();
    assert_eq!((counters.capabilities_revoked, counters.transmit_unreachable), (1, 0));
    // The same under a connection: it cuts what it sends anew and goes on.
    drop((queue, device));
    let _ = left;
    let config = TunnelConfig::default();
    let (left, right) = tunnel("127.0.0.1", false, &config, TransmitMode::Multidata);
    let (client, server) = connected(&left, &right);
    loopback.set_mtu_bytes(1_500).expect("root of the namespace");
    let outcome = catch_unwind(AssertUnwindSafe(|| exchange(&client, &server, 6, 4 << 20)));
    let counted = device_counters(&left).capabilities_revoked;
    loopback.set_mtu_bytes(65_536).expect("root of the namespace");
    outcome.expect("everything arrives");
    assert!(counted > 0);
}

/// Tells the kernel, as a router would, that a datagram between these was longer than `mtu_bytes` (RFC 792:
/// type 3, code 4, with the next hop's MTU of RFC 1191, section 4).
fn report_narrow_path(near: SocketAddr, far: SocketAddr, mtu_bytes: u16) {
    let octets = |address: SocketAddr| match address.ip() {
        std::net::IpAddr::V4(ip) => ip.octets(),
        std::net::IpAddr::V6(_) => panic!("the report is IPv4's"),
    };
    let mut report = vec![3, 4, 0, 0, 0, 0];
    report.extend(mtu_bytes.to_be_bytes());
    report.extend([0x45, 0, 5, 0, 0, 1, 0x40, 0, 64, 17, 0, 0]);
    report.extend(octets(near));
    report.extend(octets(far));
    report.extend(near.port().to_be_bytes());
    report.extend(far.port().to_be_bytes());
    report.extend([4, 236, 0, 0]);
    let sum = !checksum::sum(&report);
    report[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut to = vec![0; 16];
    to[..2].copy_from_slice(&2_u16.to_ne_bytes());
    to[4..8].copy_from_slice(&octets(near));
    let (ipv4, raw, icmp) = (2, 3, 1);
    let socket = linux::raw_calls::socket(ipv4, raw, icmp).expect("root of the namespace");
    linux::raw_calls::send(socket, &report, 0, &to).expect("loopback");
    linux::raw_calls::close(socket).expect("it is open");
}

/// The kernel refuses each of several messages for as long as there is no way.
fn no_way() {
    let cable = linux::VethPair::new("way0", "way1").expect("root of the namespace");
    cable.set_up().expect("root of the namespace");
    let ip = |host| std::net::IpAddr::from([10, 66, 0, host]);
    cable.near().add_address(ip(1), 24).expect("root of the namespace");
    let (near, far) = (UdpSocket::bind((ip(1), 0)).expect("its address"), (ip(2), 9).into());
    let mut device = TunnelDevice::over(near, far, Box::new(Null), small()).expect("a tunnel");
    let mut queue = device.queue(0).expect("one");
    cable.near().set_down().expect("root of the namespace");
    let all = |taken| Transmitted { taken, stopped: None };
    assert_eq!(queue.transmit(&packets(&[100, 700, 800, 900])), all(4));
    let lost = queue.counters().transmit_unreachable;
    assert!(lost >= 4, "{:?}", queue.counters());
    cable.near().set_up().expect("root of the namespace");
    assert_eq!(queue.transmit(&packets(&[300])), all(1));
    assert_eq!(queue.counters().transmit_unreachable, lost, "there is a way again");
}

fn late_report() {
    let ((near, left), (_far, right)) = (bound("127.0.0.1"), bound("127.0.0.1"));
    let mut device = TunnelDevice::over(near, right, Box::new(Null), small()).expect("a tunnel");
    let mut queue = device.queue(0).expect("one");
    for (reports, lens) in [(1, &[1_000; 8][..]), (2, &[1_000])] {
        // It takes what is sent; what it reports was longer.
        report_narrow_path(left, right, 60_000);
        let transmitted = queue.transmit(&packets(lens));
        assert_eq!((transmitted.taken, transmitted.stopped), (lens.len(), None));
        assert_eq!(queue.counters().transmit_unreachable, reports, "the kernel told of it");
    }
    assert!(queue.capabilities().fragment_splitting.by_size, "the kernel cuts messages as before");
    assert_eq!(queue.counters().capabilities_revoked, 0);
}

fn below_the_floor() {
    // Addresses of their own: the kernel remembers what it was told of the way to them.
    let ((near, left), (_far, right)) = (bound("127.0.0.2"), bound("127.0.0.3"));
    let mut device = TunnelDevice::over(near, right, Box::new(Null), small()).expect("a tunnel");
    let mut queue = device.queue(0).expect("one");
    // The least that Linux believes by default.
    report_narrow_path(left, right, 552);
    let told = queue.transmit(&packets(&[1_000; 4]));
    assert_eq!((told.taken, told.stopped), (0, Some(Stop::Revoked)));
    assert_eq!(queue.capabilities().mtu_bytes, 576);
    let longer = queue.transmit(&packets(&[500, 576, 500]));
    assert_eq!((longer.taken, longer.stopped), (1, Some(Stop::Refused)));
    let fitting = queue.transmit(&packets(&[524, 524, 100]));
    assert_eq!((fitting.taken, fitting.stopped), (3, None));
    assert!(queue.capabilities().fragment_splitting.by_size, "the kernel cuts messages as before");
    assert_eq!(queue.counters().capabilities_revoked, 1);
}

/// A batch of packets of these lengths, which form a run.
fn packets(lens: &[usize]) -> batch::Multidata {
    let mut batch = batch::Multidata::default();
    let block = batch::Block::from(bytes::Bytes::from(vec![7; 70_000]));
    for len in lens {
        batch.push_packet(20, batch::Attributes::default()).expect("room").fill(0x45);
        assert!(batch.append_span(&block, 0, len - 20));
    }
    batch
}

fn contradictions() {
    let (_peer, address) = bound("127.0.0.1");
    let open = |config: TunnelConfig| {
        let device = TunnelDevice::open(free("127.0.0.1"), address, Box::new(Null), config);
        device.map(drop).map_err(|error| error.message)
    };
    assert_eq!(open(TunnelConfig::default()), Ok(()));
    let trusting = TunnelConfig { trust_checksums: true, ..TunnelConfig::default() };
    assert!(open(trusting).expect_err("nothing authenticates").contains("authenticates nothing"));
    for mtu_bytes in [100, 65_508] {
        let config = TunnelConfig { mtu_bytes: Some(mtu_bytes), ..TunnelConfig::default() };
        assert!(open(config).expect_err("out of range").contains("MTU"), "{mtu_bytes}");
    }
    let taken = TunnelDevice::open(address, address, Box::new(Null), TunnelConfig::default());
    assert!(taken.expect_err("it is bound").message.contains("no tunnel can begin"));
    let mut device =
        TunnelDevice::open(free("127.0.0.1"), address, Box::new(Null), TunnelConfig::default())
            .expect("a tunnel");
    let mut queue = device.queue(0).expect("one");
    assert!(device.queue(0).expect_err("only one").message.contains("is taken"));
    assert!(queue.set_mode(TransmitMode::Lso).is_err());
    assert!(queue.set_mode(TransmitMode::Contiguous(device::Contiguous::FRAMES)).is_err());
    // Frames beyond what the caller has room for wait, and come in order.
    let (peer, _) = (&_peer, ());
    peer.connect(device.local_addr()).expect("loopback");
    setsockopt(peer, sockopt::UdpGsoSegment, &100).expect("the kernel has it");
    let sent: Vec<u8> = (0..10).flat_map(|index| [index; 100]).collect();
    peer.send(&sent).expect("loopback");
    let pool = BlockPool::new(batch::PoolConfig::default());
    let mut seen = Vec::new();
    for _ in 0..10 {
        let mut batch = batch::ReceiveBatch::new();
        let received = queue.receive(&pool, &mut batch, 3);
        assert_eq!(received.frames, batch.len());
        assert!(received.frames <= 3);
        seen.extend((0..batch.len()).flat_map(|index| batch.bytes(index).to_vec()));
    }
    assert_eq!(seen, sent);
}

fn raw(socket: &UdpSocket) -> i32 {
    std::os::fd::AsRawFd::as_raw_fd(socket)
}

fn main() -> ExitCode {
    kernel::run(TESTS, kernel::enter)
}
