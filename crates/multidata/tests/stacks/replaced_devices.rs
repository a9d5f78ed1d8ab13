//! Another device below an interface while connections run over it.

use crate::pair;
use device::{DeviceError, HardwareAddress, Medium, Queue, TransmitMode, WireConfig, WireEnd};
use multidata::{InterfaceConfig, InterfaceEvent, Stack, UdpSocket};
use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Does `call` until it is not told that the device has failed.
fn insist<T>(mut call: impl FnMut() -> std::io::Result<T>) -> std::io::Result<T> {
    let started = Instant::now();
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::NetworkDown => {
                assert!(started.elapsed() < pair::PATIENCE, "{error}");
                std::thread::sleep(Duration::from_millis(1));
            }
            outcome => return outcome,
        }
    }
}

/// A wire whose ends have these last octets in their addresses, and everything it can spare.
fn wire(left: u8, right: u8) -> WireConfig {
    let station = |last| Medium::Ethernet(HardwareAddress([2, 0, 0, 0, 7, last]));
    WireConfig::new(WireEnd::offloading(station(left)), WireEnd::offloading(station(right)))
}

fn told(stack: &Stack) -> Vec<String> {
    std::iter::from_fn(|| stack.poll_interface_event()).map(|event| event.to_string()).collect()
}

#[test]
fn connections_outlive_their_wire_and_lose_nothing() {
    const LEN: usize = 30_000_000;
    let (left, right) = pair::pair();
    let (client, server) = pair::connected(&left, &right);
    left.set_transmit_mode(0, TransmitMode::Lso).expect_err("a plain wire");
    let new = || device::wire(wire(1, 2));
    std::thread::scope(|scope| {
        for (mut to, seed) in [(&client, 1), (&server, 2)] {
            scope.spawn(move || {
                let (mut pattern, mut bytes) = (pair::Pattern::new(seed), vec![0; 50_000]);
                for _ in 0..LEN / bytes.len() {
                    pattern.fill(&mut bytes);
                    let mut written = 0;
                    while written < bytes.len() {
                        written += insist(|| to.write(&bytes[written..])).expect("it is taken");
                    }
                }
            });
        }
        for (mut from, seed) in [(&server, 1), (&client, 2)] {
            scope.spawn(move || {
                let (mut pattern, mut bytes) = (pair::Pattern::new(seed), vec![0; 50_000]);
                let mut left = LEN;
                while left > 0 {
                    let count = insist(|| from.read(&mut bytes)).expect("it arrives");
                    assert!(count > 0, "the stream ended early");
                    pattern.check(&bytes[..count]);
                    left -= count;
                }
            });
        }
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(10));
            let (near, far) = new();
            left.replace_device(0, near).expect("an interface");
            // The old wire is gone for the right one now, and the new one waits for it.
            let started = Instant::now();
            while right.interfaces()[0].failed.is_none() {
                assert!(started.elapsed() < pair::PATIENCE, "nobody noticed");
                std::thread::sleep(Duration::from_millis(1));
            }
            right.replace_device(0, far).expect("an interface");
        }
    });
    assert_eq!(left.interfaces()[0].failed, None);
    assert_eq!(left.counters().stack.shard.devices_replaced, 3);
    assert_eq!(right.counters().stack.shard.device_failures, 3);
    // What the new device can do was negotiated.
    left.set_transmit_mode(0, TransmitMode::Lso).expect("this one can");
    assert!(left.interfaces()[0].capabilities.segmentation.is_some());
    let told = told(&right);
    for what in
        ["it stands on another device now, transmit", "super-frames tcp4", "its device failed"]
    {
        assert!(told.iter().any(|line| line.contains(what)), "{what}: {told:?}");
    }
    pair::exchange(&client, &server, 3, 1 << 20);
}

/// A wire whose plug can be drawn.
struct Plugged<Q> {
    inner: Q,
    is_out: Arc<AtomicBool>,
}

impl<Q: Queue> Queue for Plugged<Q> {
    device::forward_queue!(|self| self.inner, but trouble);

    fn trouble(&self) -> Option<DeviceError> {
        let message = "the plug is out".to_owned();
        self.is_out
            .load(Ordering::SeqCst)
            .then(|| DeviceError::new(ErrorKind::NetworkDown, message))
    }
}

/// RFC 4861, 6.3.7 and RFC 2131, 3.7: what a link is like is found out again when it comes back, and when the program
/// says that it is another.
#[test]
fn a_link_that_comes_back_is_taken_for_another() {
    let (near, far) = device::wire(wire(1, 2));
    let is_out = Arc::new(AtomicBool::new(false));
    let near = Plugged { inner: near, is_out: is_out.clone() };
    let left = Stack::builder().interface(near, pair::interface(pair::LEFT)).build();
    let right = Stack::builder().interface(far, pair::interface(pair::RIGHT)).build();
    let (left, right) = (left.expect("a stack"), right.expect("a stack"));
    let (mut client, mut server) = pair::connected(&left, &right);
    while left.poll_interface_event().is_some() {}
    let changed = || left.counters().stack.shard.links_changed;
    for is_drawn in [true, false] {
        is_out.store(is_drawn, Ordering::SeqCst);
        let started = Instant::now();
        let event = loop {
            // A call has the squeue look at its device.
            client.write_all(b"x").expect("connected");
            match left.poll_interface_event() {
                Some(event) => break event,
                None => assert!(started.elapsed() < pair::PATIENCE),
            }
        };
        assert_eq!(matches!(event, InterfaceEvent::LinkLost(..)), is_drawn, "{event}");
        assert_eq!(matches!(event, InterfaceEvent::LinkRestored(_)), !is_drawn, "{event}");
        assert_eq!(changed(), u64::from(!is_drawn));
    }
    left.link_changed(0).expect("an interface");
    assert_eq!(changed(), 2);
    let error = left.link_changed(1).expect_err("there is one");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    client.write_all(b"the end").expect("connected");
    drop(client);
    let mut read = Vec::new();
    server.read_to_end(&mut read).expect("the stream outlives it");
    assert!(read.ends_with(b"the end"));
}

#[test]
fn a_mode_that_was_asked_for_comes_back_with_a_device_that_can_do_it() {
    let (near, _far) = device::wire(wire(1, 2));
    let stack =
        Stack::builder().interface(near, pair::interface(pair::LEFT).mode(TransmitMode::Lso));
    let stack = stack.build().expect("a stack");
    assert_eq!(stack.interfaces()[0].mode, TransmitMode::Lso);
    let (near, _plain) = device::wire(pair::ethernet());
    stack.replace_device(0, near).expect("an interface");
    assert_eq!(stack.interfaces()[0].mode, TransmitMode::Multidata);
    assert_eq!(stack.interfaces()[0].capabilities.segmentation, None);
    let (near, _can) = device::wire(wire(3, 2));
    stack.replace_device(0, near).expect("an interface");
    let interface = stack.interfaces().remove(0);
    assert_eq!(interface.mode, TransmitMode::Lso);
    let address = HardwareAddress([2, 0, 0, 0, 7, 3]);
    assert_eq!(interface.capabilities.medium, Medium::Ethernet(address));
}

#[test]
fn a_mode_that_nobody_asked_for_follows_the_device() {
    let (near, _far) = device::wire(wire(1, 2));
    let stack = Stack::builder().interface(near, pair::interface(pair::LEFT));
    let stack = stack.build().expect("a stack");
    let mode = || stack.interfaces()[0].mode;
    assert_eq!(mode(), TransmitMode::Lso);
    let line = stack.interfaces()[0].transmit.to_string();
    assert!(line.starts_with("transmit lso (the device's choice), "), "{line}");
    let (near, _plain) = device::wire(pair::ethernet());
    stack.replace_device(0, near).expect("an interface");
    assert_eq!(mode(), TransmitMode::Multidata);
    let (near, _can) = device::wire(wire(3, 2));
    stack.replace_device(0, near).expect("an interface");
    assert_eq!(mode(), TransmitMode::Lso);
    // What somebody asked for stays, until nobody does.
    stack.set_transmit_mode(0, TransmitMode::Chain).expect("a wire takes every form");
    let (near, _can) = device::wire(wire(4, 2));
    stack.replace_device(0, near).expect("an interface");
    assert_eq!(mode(), TransmitMode::Chain);
    stack.set_transmit_mode(0, None).expect("always possible");
    assert_eq!(mode(), TransmitMode::Lso);
}

// Sleepers of both kinds: a leader on the first interface, a watcher on the second.
#[test]
fn who_sleeps_on_a_device_is_served_by_the_one_in_its_place() {
    for first in [true, false] {
        let limit = Duration::from_millis(800);
        assert!(pair::is_soon(limit, || time_to_be_served(first)), "it was not slept through");
    }
}

/// How long after its device was replaced a sleeper takes to hear what comes.
fn time_to_be_served(first: bool) -> Duration {
    let (near, far) = device::wire(pair::ethernet());
    let (other, _idle) = device::wire(pair::ethernet());
    let apart = InterfaceConfig::new("10.9.0.1/24".parse().expect("an address"));
    let ours = pair::interface(pair::LEFT);
    let (index, left) = match first {
        true => (0, Stack::builder().interface(near, ours).interface(other, apart)),
        false => (1, Stack::builder().interface(other, apart).interface(near, ours)),
    };
    let left = left.build().expect("a stack");
    let right = Stack::builder().interface(far, pair::interface(pair::RIGHT));
    let right = right.build().expect("a stack");
    let sockets = [(&left, pair::LEFT), (&right, pair::RIGHT)].map(|(stack, address)| {
        let socket = UdpSocket::bind(stack, format!("{address}:53")).expect("a free port");
        socket.set_read_timeout(Some(pair::PATIENCE)).expect("a timeout");
        socket
    });
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| sockets[0].recv(&mut [0; 9]));
        std::thread::sleep(Duration::from_millis(30));
        let (near, far) = device::wire(pair::ethernet());
        left.replace_device(index, near).expect("an interface");
        right.replace_device(0, far).expect("an interface");
        std::thread::sleep(Duration::from_millis(30));
        let started = Instant::now();
        let to = format!("{}:53", pair::LEFT);
        assert_eq!(sockets[1].send_to(b"hello", to).expect("a route"), 5);
        assert_eq!(reader.join().expect("no panic").expect("it arrives"), 5);
        started.elapsed()
    })
}

#[test]
fn several_squeues_get_a_queue_each() {
    let wires = || [0, 1].map(|_| device::wire(pair::ethernet()));
    let boxed = |queues: [device::WireQueue; 2]| -> Vec<Box<dyn Queue>> {
        queues.into_iter().map(|queue| Box::new(queue) as _).collect()
    };
    let [(a, b), (c, d)] = wires();
    let stack = |queues, address| {
        let builder = Stack::builder().squeues(2);
        let builder = builder.multiqueue_interface(boxed(queues), pair::interface(address));
        builder.build().expect("a stack")
    };
    let (left, right) = (stack([a, c], pair::LEFT), stack([b, d], pair::RIGHT));
    let [(a, b), (c, d)] = wires();
    let error = left.replace_device(0, a).expect_err("it has two queues");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    drop((b, c, d));
    let (client, server) = pair::connected(&left, &right);
    let [(a, b), (c, d)] = wires();
    left.replace_queues(0, boxed([a, c])).expect("as many");
    right.replace_queues(0, boxed([b, d])).expect("as many");
    pair::exchange(&client, &server, 1, 4 << 20);
}

#[test]
fn what_cannot_take_its_place_is_refused() {
    let (left, _right) = pair::pair();
    let invalid = |outcome: std::io::Result<()>| {
        assert_eq!(outcome.expect_err("refused").kind(), ErrorKind::InvalidInput);
    };
    let end = WireEnd::plain(Medium::Ip);
    invalid(left.replace_device(0, device::wire(WireConfig::new(end, end)).0));
    invalid(left.replace_device(1, device::wire(pair::ethernet()).0));
    // As at build.
    let narrow = WireConfig { mtu_bytes: 100, ..pair::ethernet() };
    invalid(left.replace_device(0, device::wire(narrow).0));
    assert_eq!(left.interfaces()[0].capabilities.mtu_bytes, 1_500, "it stands on its own still");
    left.remove_interface(0).expect("an interface");
    invalid(left.replace_device(0, device::wire(pair::ethernet()).0));
}
