//! TAP and TUN interfaces by a file that somebody else opened, in the network namespace of the test or in another
//! one, where the kernel's TCP is the peer. Here is another interface of the same name.

mod kernel;
mod pair;

use linux::{Interface, Sandbox, TapConfig, TapDevice, TapKind};
use multidata::{InterfaceConfig, Stack, TcpStream};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::sync::{OnceLock, mpsc};
use std::time::{Duration, Instant};

const TESTS: &[kernel::Test] = &[
    ("a_tap_of_another_namespace_carries_streams", || of_another_namespace(TapKind::Tap)),
    ("a_tun_of_another_namespace_carries_streams", || of_another_namespace(TapKind::Tun)),
    ("a_descriptor_of_ours_is_watched", watched),
    ("a_device_stays_in_the_namespace_where_it_was_opened", opened_elsewhere),
];

/// Longest time any step may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// The number of their network.
const NETWORK: u8 = 63;

const LEN: usize = 5_000_000;

static SANDBOX: OnceLock<Sandbox> = OnceLock::new();

fn main() -> ExitCode {
    kernel::run(TESTS, || {
        let sandbox = Sandbox::enter().map_err(|error| error.message)?;
        let _ = SANDBOX.set(sandbox);
        TapDevice::open(&TapConfig::default()).map(drop).map_err(|error| error.message)
    })
}

fn enter_further() {
    SANDBOX.get().expect("entered first").enter_further().expect("root of the namespace");
}

fn named(name: &str, kind: TapKind, offload: bool) -> TapConfig {
    TapConfig { name: Some(name.into()), kind, offload, ..TapConfig::default() }
}

/// An interface that has nothing to do with the one in question but its name.
fn stranger(name: &str, kind: TapKind) -> TapDevice {
    let config = TapConfig { mtu_bytes: Some(9_000), ..named(name, kind, true) };
    TapDevice::open(&config).expect("a new name")
}

/// The kernel's side at `.1`, up.
fn kernel_side(device: &TapDevice) -> Interface {
    let interface = device.interface().expect("it exists");
    interface.add_address(kernel::address(false, NETWORK, 1), 24).expect("root of the namespace");
    interface.set_up().expect("root of the namespace");
    interface
}

/// A stack at `.2`.
fn stack(device: &mut TapDevice) -> Stack {
    let config = InterfaceConfig::new(kernel::cidr(false, NETWORK, 2));
    let queue = device.queue(0).expect("it has one");
    Stack::builder().interface(queue, config).build().expect("a stack")
}

fn send(mut to: impl Write, seed: u64) {
    let (mut pattern, mut bytes) = (pair::Pattern::new(seed), vec![0; 50_000]);
    for _ in 0..LEN / bytes.len() {
        pattern.fill(&mut bytes);
        to.write_all(&bytes).expect("it is taken");
    }
}

fn check(mut from: impl Read, seed: u64) {
    let (mut pattern, mut bytes) = (pair::Pattern::new(seed), vec![0; 50_000]);
    for _ in 0..LEN / bytes.len() {
        from.read_exact(&mut bytes).expect("it arrives");
        pattern.check(&bytes);
    }
}

/// Opens an interface in a namespace of its own, hands its file out, and is the peer of one connection.
fn host(config: &TapConfig, out: &mpsc::Sender<(OwnedFd, SocketAddr)>) {
    enter_further();
    let device = TapDevice::open(config).expect("a new name");
    kernel_side(&device);
    let listener = TcpListener::bind((kernel::address(false, NETWORK, 1), 0)).expect("its own");
    let file = device.as_fd().try_clone_to_owned().expect("a descriptor");
    drop(device);
    out.send((file, listener.local_addr().expect("bound"))).expect("somebody waits");
    let (stream, _) = listener.accept().expect("somebody comes");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    std::thread::scope(|scope| {
        scope.spawn(|| send(&stream, 2));
        check(&stream, 1);
    });
}

fn of_another_namespace(kind: TapKind) {
    let _stranger = stranger("passed0", kind);
    for (attached, wanted) in [(true, true), (true, false), (false, true)] {
        let (out, passed) = mpsc::channel();
        let config = named("passed0", kind, attached);
        std::thread::scope(|scope| {
            let host = scope.spawn(move || host(&config, &out));
            let (file, to) = passed.recv().expect("it was opened");
            let config =
                TapConfig { offload: wanted, mtu_bytes: Some(1_400), ..TapConfig::default() };
            let mut device = TapDevice::from_fd(file, &config).expect("a descriptor of a TAP");
            let (capabilities, said) = (device.capabilities(), device.negotiated());
            assert!(device.name() == "passed0" && said.contains("MTU 1400"), "{said}");
            assert!(said.contains("it is in another network namespace"), "{said}");
            assert_eq!(said.contains("without IFF_VNET_HDR"), !attached, "{said}");
            let offload = attached && wanted;
            assert_eq!(capabilities.checksum_transmit, offload);
            assert_eq!(capabilities.receive_super_frames, offload);
            let error = device.interface().expect_err("the one here is another").message;
            assert!(error.contains("out of reach"), "{error}");

            let stack = stack(&mut device);
            let stream = TcpStream::connect_timeout(&stack, &to, PATIENCE).expect("it listens");
            stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            std::thread::scope(|scope| {
                scope.spawn(|| send(&stream, 1));
                check(&stream, 2);
            });
            host.join().expect("it ran");
        });
    }
}

/// Where the interface is in our namespace it is asked for its MTU, and followed.
fn watched() {
    let opened = TapDevice::open(&named("passed1", TapKind::Tap, true)).expect("a new name");
    let interface = kernel_side(&opened);
    interface.set_mtu_bytes(1_400).expect("root of the namespace");
    let file = opened.as_fd().try_clone_to_owned().expect("a descriptor");
    drop(opened);
    let mut device = TapDevice::from_fd(file, &TapConfig::default()).expect("a TAP's");
    assert_eq!(device.refused(), [""; 0]);
    assert_eq!(device.capabilities().mtu_bytes, 1_400);
    follows(&mut device, &interface);
}

fn opened_elsewhere() {
    let _stranger = stranger("passed2", TapKind::Tap);
    let mut device = std::thread::scope(|scope| {
        let opening = scope.spawn(|| {
            enter_further();
            let config = named("passed2", TapKind::Tap, true);
            let device = TapDevice::open(&config).expect("a new name");
            kernel_side(&device);
            device
        });
        opening.join().expect("it ran")
    });
    let interface = device.interface().expect("that of the other namespace");
    assert_eq!(interface.mtu_bytes(), Ok(1_500));
    follows(&mut device, &interface);
}

/// A stack on the device is told of a shorter MTU and of an interface that is down, and sends nothing meanwhile.
fn follows(device: &mut TapDevice, interface: &Interface) {
    let stack = stack(device);
    let status = || stack.interfaces().remove(0);
    interface.set_mtu_bytes(1_300).expect("root of the namespace");
    eventually("the MTU is noticed", || status().capabilities.mtu_bytes == 1_300);
    interface.set_down().expect("root of the namespace");
    eventually("that it is down is noticed", || status().trouble.is_some());
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
