//! TAP and TUN interfaces that go down for a moment, are deleted and made anew, with the kernel's TCP as the peer, in a network of
//! the test's own.

mod kernel;
mod pair;

use device::TransmitMode;
use linux::{Bridge, Interface, IoUring, TapConfig, TapDevice, TapKind};
use multidata::{InterfaceConfig, InterfaceEvent, Stack, TcpStream, UdpSocket};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const TESTS: &[kernel::Test] = &[
    ("a_tap_that_is_down_for_a_moment_loses_nothing", || down_and_up(TapKind::Tap, IoUring::Off)),
    ("a_tap_by_io_uring_that_is_down_for_a_moment_loses_nothing", || {
        down_and_up(TapKind::Tap, IoUring::Auto);
    }),
    ("a_tun_that_is_down_for_a_moment_loses_nothing", || down_and_up(TapKind::Tun, IoUring::Off)),
    ("a_tap_whose_mtu_shrinks_tells_and_loses_nothing", || mtu_shrinks(TapKind::Tap)),
    ("a_tun_whose_mtu_shrinks_tells_and_loses_nothing", || mtu_shrinks(TapKind::Tun)),
    (NARROW_BRIDGE, narrow_bridge),
    ("a_tap_that_is_deleted_has_failed", deleted),
    ("a_tap_that_is_made_anew_takes_the_place_of_the_deleted_one", made_anew),
];

const NARROW_BRIDGE: &str = "datagrams_pass_a_bridge_that_becomes_narrow";

/// Longest time any step may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// The number of their network.
const NETWORK: u8 = 61;

/// A stack at `.2` over a new interface, and the kernel at `.1`.
fn stack(config: &TapConfig, mode: TransmitMode) -> (Stack, TapDevice, Interface) {
    let (mut device, interface) = kernel::tap(config, NETWORK);
    let queue = device.queue(0).expect("it has one");
    let config = InterfaceConfig::new(kernel::cidr(false, NETWORK, 2)).mode(mode);
    let stack = Stack::builder().interface(queue, config).build().expect("a stack");
    (stack, device, interface)
}

/// A connection that the kernel accepted.
fn connected(stack: &Stack) -> (TcpStream, std::net::TcpStream) {
    kernel::connected(stack, kernel::address(false, NETWORK, 1), PATIENCE)
}

/// Sends `len` bytes of a seed.
fn send(mut to: impl Write, seed: u64, len: usize) {
    let (mut pattern, mut bytes) = (pair::Pattern::new(seed), vec![0; 50_000]);
    for _ in 0..len / bytes.len() {
        pattern.fill(&mut bytes);
        to.write_all(&bytes).expect("it is taken");
    }
}

/// Receives them.
fn check(mut from: impl Read, seed: u64, len: usize) {
    let (mut pattern, mut bytes) = (pair::Pattern::new(seed), vec![0; 50_000]);
    for _ in 0..len / bytes.len() {
        from.read_exact(&mut bytes).expect("it arrives");
        pattern.check(&bytes);
    }
}

/// Waits until `holds`.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The administrator lowers the MTU below streams both ways. The interface takes longer frames all the
/// same, and a bridge behind it would drop them.
fn mtu_shrinks(kind: TapKind) {
    const LEN: usize = 20_000_000;
    for (offload, mode) in [(false, TransmitMode::Multidata), (true, TransmitMode::Lso)] {
        let config = TapConfig { kind, offload, ..TapConfig::default() };
        let (stack, _device, interface) = stack(&config, mode);
        let (ours, kernel) = connected(&stack);
        std::thread::scope(|scope| {
            scope.spawn(|| send(&ours, 1, LEN));
            scope.spawn(|| check(&ours, 2, LEN));
            scope.spawn(|| send(&kernel, 2, LEN));
            scope.spawn(|| check(&kernel, 1, LEN));
            eventually("bytes move", || stack.counters().device.receive_bytes > 1_000_000);
            interface.set_mtu_bytes(1_300).expect("root of the namespace");
        });
        eventually("it is noticed", || {
            // On a loaded machine the streams may be over before, and who sends is told.
            (&ours).write_all(b"more").expect("it is taken");
            stack.interfaces()[0].capabilities.mtu_bytes == 1_300
        });
        let shard = stack.counters().stack.shard;
        assert_eq!((shard.device_mtus_shrunk, shard.device_refused), (1, 0));
        let told: Vec<_> = std::iter::from_fn(|| stack.poll_interface_event()).collect();
        let is_told = |event: &InterfaceEvent| matches!(event, InterfaceEvent::MtuShrunk(_, 1_300));
        assert!(told.iter().any(is_told), "{told:?}");
    }
}

/// Between two stacks on a bridge: what is too long for a port is dropped there without a word, so who sends
/// must know that its own has become narrow, too.
fn narrow_bridge() {
    const NETWORK: u8 = 62;
    let bridge = match Bridge::new("narrow0") {
        Ok(bridge) => bridge,
        Err(why) => return kernel::cannot_run(NARROW_BRIDGE, &why.message),
    };
    let [(left, left_port), (right, right_port)] = [2, 3].map(|host| {
        let mut device = TapDevice::open(&TapConfig::default()).expect("the TUN driver");
        let port = device.interface().expect("it exists");
        port.set_up().expect("root of the namespace");
        bridge.add_port(&port).expect("root of the namespace");
        let config = InterfaceConfig::new(kernel::cidr(false, NETWORK, host));
        let queue = device.queue(0).expect("it has one");
        (Stack::builder().interface(queue, config).build().expect("a stack"), port)
    });
    let to = SocketAddr::new(kernel::address(false, NETWORK, 3), 9);
    let receiver = UdpSocket::bind(&right, to).expect("a free port");
    receiver.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
    let sender = UdpSocket::bind(&left, (kernel::address(false, NETWORK, 2), 0));
    let sender = sender.expect("a free port");
    let mut number = 0_u8;
    let mut passes = || {
        number += 1;
        sender.send_to(&[number; 1_400], to).expect("a route");
        let mut received = [0; 2_000];
        // One that was late before may come first.
        let mut receive = || receiver.recv(&mut received).map(|len| (len, received[0])).ok();
        std::iter::from_fn(&mut receive).any(|it| it == (1_400, number))
    };
    eventually("the bridge carries datagrams", &mut passes);
    for port in [&left_port, &right_port] {
        port.set_mtu_bytes(1_000).expect("root of the namespace");
    }
    eventually("it carries them by fragments", &mut passes);
    assert!((0..20).all(|_| passes()), "each of them");
    assert_eq!(left.counters().stack.shard.device_mtus_shrunk, 1);
}

/// Streams both ways through an interface that is twice down for a moment.
fn down_and_up(kind: TapKind, io_uring: IoUring) {
    const LEN: usize = 60_000_000;
    for (offload, mode) in [(false, TransmitMode::Multidata), (true, TransmitMode::Lso)] {
        let config = TapConfig { kind, offload, io_uring, ..TapConfig::default() };
        let (stack, _device, interface) = stack(&config, mode);
        let (ours, kernel) = connected(&stack);
        let device = || stack.counters().device;
        std::thread::scope(|scope| {
            scope.spawn(|| send(&ours, 1, LEN));
            scope.spawn(|| check(&ours, 2, LEN));
            scope.spawn(|| send(&kernel, 2, LEN));
            scope.spawn(|| check(&kernel, 1, LEN));
            for round in 1..3 {
                let before = device().receive_bytes;
                eventually("bytes move", || device().receive_bytes > before + 1_000_000);
                interface.set_down().expect("root of the namespace");
                eventually("it is noticed", || device().links_lost == round);
                let status = stack.interfaces().remove(0);
                let trouble = status.trouble.expect("it is down").message;
                assert!(trouble.contains("is down: bring it up"), "{trouble}");
                assert_eq!(status.failed, None);
                // It is asked again every few milliseconds and not all the time, once the applications
                // have read and written what they could.
                let turns = (0..4).map(|_| {
                    let before = stack.counters().runtime.squeue_runs;
                    std::thread::sleep(Duration::from_millis(30));
                    stack.counters().runtime.squeue_runs - before
                });
                let turns = turns.min().unwrap_or(0);
                assert!(turns < 30, "{turns} turns in 30 ms for nothing");
                interface.set_up().expect("root of the namespace");
            }
        });
        let device = device();
        assert_eq!((device.links_lost, device.links_restored), (2, 2), "{mode}");
        assert_eq!(device.capabilities_revoked, 0, "that was not the offload's fault");
        let status = stack.interfaces().remove(0);
        assert_eq!((status.trouble, status.failed, status.mode), (None, None, mode));
        let told: Vec<String> = std::iter::from_fn(|| stack.poll_interface_event())
            .map(|event| event.to_string())
            .collect();
        let count = |what: &str| told.iter().filter(|line| line.contains(what)).count();
        assert_eq!(count("for now: the interface"), 2, "{told:?}");
        assert_eq!(count("can be used again"), 2, "{told:?}");
    }
}

fn deleted() {
    let (stack, _device, interface) = stack(&TapConfig::default(), TransmitMode::Multidata);
    let (ours, _kernel) = connected(&stack);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            // Down first, as it was: then gone is another thing.
            interface.set_down().expect("root of the namespace");
            eventually("it is noticed", || stack.interfaces()[0].trouble.is_some());
            interface.delete().expect("root of the namespace");
        });
        let error = (&ours).read(&mut [0; 9]).expect_err("nothing was sent");
        assert_eq!(error.kind(), std::io::ErrorKind::NetworkDown);
        assert!(error.to_string().contains("is gone"), "{error}");
    });
    assert!(stack.interfaces()[0].failed.is_some());
}

/// Both ends of a connection hold unacknowledged data while the interface is deleted and another is made.
fn made_anew() {
    const LEN: usize = 1_000_000;
    for offload in [false, true] {
        let config = TapConfig { offload, ..TapConfig::default() };
        let (stack, device, interface) = stack(&config, TransmitMode::Lso);
        let (ours, kernel) = connected(&stack);
        std::thread::scope(|scope| {
            scope.spawn(|| send(&ours, 3, LEN));
            check(&kernel, 3, LEN);
        });
        interface.set_down().expect("root of the namespace");
        // As much as finds room: the buffers start with 64 KiB at least.
        let held = 50_000;
        send(&ours, 1, held);
        send(&kernel, 2, held);
        interface.delete().expect("root of the namespace");
        eventually("it is noticed", || stack.interfaces()[0].failed.is_some());
        let error = (&ours).write(&[0]).expect_err("it is gone");
        assert_eq!(error.kind(), std::io::ErrorKind::NetworkDown);
        drop(device);

        let (mut device, _interface) = kernel::tap(&config, NETWORK);
        stack.replace_device(0, device.queue(0).expect("it has one")).expect("an interface");
        assert_eq!(stack.interfaces()[0].failed, None);
        std::thread::scope(|scope| {
            scope.spawn(|| check(&ours, 2, held));
            check(&kernel, 1, held);
        });
        std::thread::scope(|scope| {
            scope.spawn(|| send(&ours, 4, LEN));
            check(&kernel, 4, LEN);
        });
        assert_eq!(stack.interfaces()[0].mode == TransmitMode::Lso, offload);
        assert_eq!(stack.counters().stack.shard.devices_replaced, 1);
    }
}

fn main() -> ExitCode {
    kernel::run(TESTS, kernel::enter_with_tun)
}
