//! Stacks at both ends of a stream of frames: a virtual machine and its network in user space.

use crate::pair;
use device::HardwareAddress;
use linux::{StreamConfig, StreamDevice, StreamQueue};
use multidata::{Stack, UdpSocket};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

fn queue(socket: impl Into<OwnedFd>, mtu_bytes: usize) -> StreamQueue {
    let config = StreamConfig { mtu_bytes, ..StreamConfig::default() };
    StreamDevice::over(socket, &config).expect("a stream").queue(0).expect("it has one")
}

fn unix() -> (UnixStream, UnixStream) {
    UnixStream::pair().expect("a pair of sockets")
}

fn joined(left: impl Into<OwnedFd>, right: impl Into<OwnedFd>, mtu_bytes: usize) -> (Stack, Stack) {
    let stack =
        |queue, address| Stack::builder().interface(queue, pair::interface(address)).build();
    let left = stack(queue(left, mtu_bytes), pair::LEFT).expect("a stack");
    (left, stack(queue(right, mtu_bytes), pair::RIGHT).expect("a stack"))
}

#[test]
fn streams_go_both_ways_with_frames_of_any_length() {
    for mtu_bytes in [576, 1_500, 65_535] {
        let (near, far) = unix();
        let (left, right) = joined(near, far, mtu_bytes);
        let (client, server) = pair::connected(&left, &right);
        pair::exchange(&client, &server, 1, 4 << 20);
        let device = left.counters().device;
        let is_batched = device.transmit_syscalls * 2 < device.transmit_packets;
        assert!(is_batched || mtu_bytes > 1_500, "{device:?}");
    }
}

#[test]
fn a_socket_of_tcp_will_do() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let near = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
    let (far, _) = listener.accept().expect("it is there");
    let (left, right) = joined(near, far, 1_500);
    let (client, server) = pair::connected(&left, &right);
    pair::exchange(&client, &server, 2, 4 << 20);
}

/// As when a virtual machine starts again, or whoever is its network.
#[test]
fn connections_outlive_the_stream_that_they_began_on() {
    let (near, far) = unix();
    let (left, right) = joined(near, far, 1_500);
    let (mut client, mut server) = pair::connected(&left, &right);
    client.write_all(b"before").expect("it is taken");
    server.read_exact(&mut [0; 6]).expect("it arrives");
    let (near, far) = unix();
    left.replace_device(0, queue(near, 1_500)).expect("an interface");
    let started = Instant::now();
    let failed = loop {
        if let Some(failed) = &right.interfaces()[0].failed {
            break failed.to_string();
        }
        assert!(started.elapsed() < pair::PATIENCE, "nobody noticed");
        std::thread::sleep(Duration::from_millis(1));
    };
    assert!(failed.contains("has closed it"), "{failed}");
    right.replace_device(0, queue(far, 1_500)).expect("an interface");
    pair::exchange(&client, &server, 4, 1 << 20);
}

const OURS: [u8; 6] = [2, 0, 0, 0, 0, 1];
const THEIRS: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// Who has our address (RFC 826), which is answered.
fn asking() -> Vec<u8> {
    let ethernet = [&[0xff; 6][..], &THEIRS, &[0x08, 0x06]].concat();
    let arp = [0, 1, 8, 0, 6, 4, 0, 1];
    [&ethernet[..], &arp, &THEIRS, &[10, 1, 0, 2], &[0; 6], &[10, 1, 0, 1]].concat()
}

/// A byte for port 9, without a checksum.
fn datagram() -> Vec<u8> {
    let mut ip = [0x45, 0, 0, 29, 0, 0, 0, 0, 64, 17, 0, 0, 10, 1, 0, 2, 10, 1, 0, 1];
    let checksum = !checksum::sum(&ip);
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    let ethernet = [&OURS[..], &THEIRS, &[0x08, 0x00]].concat();
    [&ethernet[..], &ip, &[0, 7, 0, 9, 0, 9, 0, 0], b"x"].concat()
}

/// It lies in the socket, of which a batch is read, and the answer to that is in vain.
#[test]
fn what_an_end_has_sent_before_it_closed_is_received() {
    let (near, mut far) = unix();
    let hardware_address = Some(HardwareAddress(OURS));
    let config = StreamConfig { hardware_address, ..StreamConfig::default() };
    let mut device = StreamDevice::over(near, &config).expect("a stream");
    let queue = device.queue(0).expect("it has one");
    let datagrams = 100;
    for frame in std::iter::once(asking()).chain((0..datagrams).map(|_| datagram())) {
        let framed = [&(frame.len() as u32).to_be_bytes()[..], &frame].concat();
        far.write_all(&framed).expect("room");
    }
    drop(far);
    let stack = Stack::builder().interface(queue, pair::interface(pair::LEFT));
    let (_stack, socket) =
        stack.build_with(|stack| UdpSocket::bind(stack, "10.1.0.1:9")).expect("a stack");
    socket.set_read_timeout(Some(pair::PATIENCE)).expect("open");
    let came = std::iter::from_fn(|| socket.recv_from(&mut [0; 8]).ok()).count();
    assert_eq!(came, datagrams);
}

/// Its machine stands still, and then goes on.
#[test]
fn a_stream_that_nobody_reads_is_left_alone_until_somebody_does() {
    let (near, mut far) = unix();
    let hardware_address = Some(HardwareAddress(OURS));
    let config = StreamConfig { hardware_address, ..StreamConfig::default() };
    let queue = StreamDevice::over(near, &config).expect("a stream").queue(0).expect("one");
    let stack = Stack::builder().interface(queue, pair::interface(pair::LEFT));
    let stack = stack.build().expect("a stack");
    let frame = asking();
    far.write_all(&[&(frame.len() as u32).to_be_bytes()[..], &frame].concat()).expect("room");
    far.read_exact(&mut [0; 46]).expect("an answer");
    let socket = UdpSocket::bind(&stack, "10.1.0.1:9").expect("a free port");
    socket.set_nonblocking(true).expect("open");
    let full = || stack.counters().device.transmit_full;
    let mut sent = 0;
    while let Ok(len) = socket.send_to(&[0; 1_400], "10.1.0.2:9") {
        sent += len;
    }
    std::thread::sleep(Duration::from_millis(100));
    let (before, started) = (full(), Instant::now());
    std::thread::sleep(Duration::from_millis(500));
    let (asked, ms) = (full() - before, started.elapsed().as_millis());
    assert!(u128::from(asked) <= ms / 5, "{asked} times in {ms} ms");
    let (mut buffer, mut came) = (vec![0; 1 << 20], 0);
    while came < sent {
        came += far.read(&mut buffer).expect("what waits goes on");
    }
}
