//! The loop of `examples/own_loop.rs` against the kernel: connections, pings, a device that refuses, takes
//! capabilities back, is full, goes down and is deleted.

mod network;
#[path = "../examples/own_loop.rs"]
mod own_loop;

use device::{Capabilities, DeviceError, Queue, Stop, Transmitted};
use linux::{TapConfig, TapDevice, TapKind, TapQueue};
use own_loop::Host;
use rustix::fd::{AsFd, BorrowedFd};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::process::ExitCode;
use std::thread::Scope;
use std::time::{Duration, Instant};

const TESTS: &[(&str, fn())] = &[
    ("kernel_sockets_hear_their_echo_over_a_tap", || echoes(TapKind::Tap)),
    ("kernel_sockets_hear_their_echo_over_a_tun", || echoes(TapKind::Tun)),
    ("a_loop_goes_on_with_a_moody_device", moody),
    ("a_loop_waits_for_an_interface_that_is_down_and_ends_with_one_that_is_gone", down_and_gone),
];

const PATIENCE: Duration = Duration::from_secs(30);
const LEN: usize = 3 << 20;

fn main() -> ExitCode {
    network::run(TESTS, network::enter_with_tun)
}

/// A device on which the kernel has 10.70.0.1, and where its peer is to be.
fn tap(kind: TapKind) -> (TapDevice, linux::Interface, SocketAddr) {
    let config = TapConfig { kind, ..TapConfig::default() };
    let device = TapDevice::open(&config).expect("the namespace has the TUN driver");
    let interface = device.interface().expect("it exists");
    interface.add_address([10, 70, 0, 1].into(), 24).expect("root of the namespace");
    interface.set_up().expect("root of the namespace");
    (device, interface, ([10, 70, 0, 2], 7).into())
}

fn host<Q: Queue + AsFd>(queue: Q) -> Host<Q> {
    Host::new(queue, "10.70.0.2/24".parse().expect("a network")).expect("a host")
}

/// Drives the loop until the thread has ended.
fn drive<'scope, Q: Queue + AsFd>(
    scope: &'scope Scope<'scope, '_>,
    host: &mut Host<Q>,
    peer: impl FnOnce() + Send + 'scope,
) {
    let peer = scope.spawn(peer);
    let started = Instant::now();
    while !peer.is_finished() {
        host.turn().expect("the device works");
        host.wait(Some(Duration::from_millis(5))).expect("poll(2)");
        assert!(started.elapsed() < PATIENCE, "the peer waits in vain");
    }
    peer.join().expect("its own assertions hold");
}

/// Sends so much on a connection and hears it again, to the end of the stream.
fn echo(to: SocketAddr, len: usize) {
    let mut stream = TcpStream::connect_timeout(&to, PATIENCE).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let bytes: Vec<u8> = (0..len).map(|at| (at * at / 7) as u8).collect();
    let mut reader = stream.try_clone().expect("a descriptor");
    std::thread::scope(|scope| {
        let heard = scope.spawn(move || {
            let mut heard = Vec::new();
            reader.read_to_end(&mut heard).map(|_| heard)
        });
        stream.write_all(&bytes).expect("it is read");
        stream.shutdown(Shutdown::Write).expect("connected");
        let heard = heard.join().expect("no panic").expect("the end of the stream");
        assert!(heard == bytes, "{} of {len} bytes", heard.len());
    });
}

fn ping(to: SocketAddr) {
    let socket = Socket::new(Domain::IPV4, Type::from(libc::SOCK_RAW), Some(Protocol::ICMPV4))
        .expect("root");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    // An echo request with its checksum (RFC 792): identifier 0x1234, number 1.
    let request = [8, 0, 0xe5, 0xca, 0x12, 0x34, 0, 1];
    socket.send_to(&request, &SocketAddr::new(to.ip(), 0).into()).expect("a route");
    loop {
        let mut bytes = [0; 64];
        let count = (&socket).read(&mut bytes).expect("an answer");
        let IpAddr::V4(peer) = to.ip() else { panic!("of IPv4") };
        // An echo reply, behind the header of IPv4.
        let is_of_peer = bytes[12..16] == peer.octets();
        if is_of_peer && bytes[20] == 0 && bytes[24..count.max(24)] == request[4..] {
            return;
        }
    }
}

fn echoes(kind: TapKind) {
    let (mut device, _interface, to) = tap(kind);
    let mut host = host(device.queue(0).expect("it has one"));
    std::thread::scope(|scope| {
        drive(scope, &mut host, move || {
            ping(to);
            std::thread::scope(|scope| {
                for part in 1..=3 {
                    scope.spawn(move || echo(to, LEN / part));
                }
            });
        });
    });
}

/// A TAP that says now and then what devices may say.
struct Moody {
    inner: TapQueue,
    calls: usize,
    revoked: bool,
}

impl AsFd for Moody {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

impl Queue for Moody {
    device::forward_queue!(|self| self.inner, but transmit, capabilities, retry_after);

    fn capabilities(&self) -> Capabilities {
        let capabilities = self.inner.capabilities();
        match self.revoked {
            true => Capabilities { segmentation: None, mtu_bytes: 1_000, ..capabilities },
            false => capabilities,
        }
    }

    fn transmit(&mut self, batch: &batch::Multidata) -> Transmitted {
        self.calls += 1;
        let stopped = match self.calls % 16 {
            3 => Stop::Full,
            7 => Stop::Refused,
            11 if !self.revoked => Stop::Revoked,
            _ => {
                let too_long = |it: batch::PacketView<'_>| self.revoked && it.len() > 1_014;
                assert!(!batch.packets().any(too_long), "it was told of the MTU");
                return self.inner.transmit(batch);
            }
        };
        self.revoked |= stopped == Stop::Revoked;
        Transmitted { taken: 0, stopped: Some(stopped) }
    }

    fn retry_after(&self) -> Option<Duration> {
        Some(Duration::from_micros(200))
    }
}

fn moody() {
    let (mut device, _interface, to) = tap(TapKind::Tap);
    let inner = device.queue(0).expect("it has one");
    let mut host = host(Moody { inner, calls: 0, revoked: false });
    std::thread::scope(|scope| drive(scope, &mut host, move || echo(to, LEN / 8)));
}

fn down_and_gone() {
    let (mut device, interface, to) = tap(TapKind::Tap);
    let mut host = host(device.queue(0).expect("it has one"));
    std::thread::scope(|scope| drive(scope, &mut host, move || echo(to, 1_000)));
    let kernels = &interface;
    std::thread::scope(|scope| {
        drive(scope, &mut host, move || {
            kernels.set_down().expect("root of the namespace");
            std::thread::sleep(Duration::from_millis(50));
            kernels.set_up().expect("root of the namespace");
            echo(to, 1_000);
        });
    });
    interface.delete().expect("root of the namespace");
    let started = Instant::now();
    let failed: DeviceError = loop {
        if let Err(error) = host.turn() {
            break error;
        }
        host.wait(Some(Duration::from_millis(5))).expect("poll(2)");
        assert!(started.elapsed() < PATIENCE, "nobody noticed");
    };
    assert_eq!(failed.kind, std::io::ErrorKind::NetworkDown, "{failed}");
}
