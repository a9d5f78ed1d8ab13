//! Stacks at both ends of a stream of frames: a virtual machine and its network in user space.

use crate::pair;
use linux::{StreamConfig, StreamDevice, StreamQueue};
use multidata::Stack;
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
