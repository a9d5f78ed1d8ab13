//! Several squeues that share one device queue: a capability that the device takes back from one is
//! taken back from all.

use crate::pair::{self, LEFT, RIGHT, check_pattern, interface, right, send_pattern};
use batch::Multidata;
use device::{Capabilities, Queue, Stop, Transmitted, WireQueue};
use multidata::{Stack, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// An end of a wire whose MTU shrinks while it is used. It says so once, to who sends the first packet
/// that is too long, and refuses those that come later.
struct Narrowing {
    inner: WireQueue,
    mtu_bytes: Arc<AtomicUsize>,
    told_bytes: usize,
}

impl Queue for Narrowing {
    device::forward_queue!(|self| self.inner, but capabilities, transmit);

    fn capabilities(&self) -> Capabilities {
        Capabilities { mtu_bytes: self.told_bytes, ..self.inner.capabilities() }
    }

    fn transmit(&mut self, batch: &Multidata) -> Transmitted {
        let mtu_bytes = self.mtu_bytes.load(Ordering::Relaxed);
        let is_long = |packet: &batch::PacketView<'_>| packet.len() > mtu_bytes + 14;
        if !batch.packets().any(|packet| is_long(&packet)) {
            return self.inner.transmit(batch);
        }
        let is_known = core::mem::replace(&mut self.told_bytes, mtu_bytes) == mtu_bytes;
        let stop = if is_known { Stop::Refused } else { Stop::Revoked };
        Transmitted { taken: 0, stopped: Some(stop) }
    }
}

/// Two stacks over a wire with an MTU of 9,000 bytes, of which the left has two squeues and one queue,
/// and what that queue's MTU is.
fn stacks() -> (Stack, Stack, Arc<AtomicUsize>) {
    let config = device::WireConfig { mtu_bytes: 9_000, ..pair::ethernet() };
    let (left, right) = device::wire(config);
    let mtu_bytes = Arc::new(AtomicUsize::new(9_000));
    let left = Narrowing { inner: left, mtu_bytes: Arc::clone(&mtu_bytes), told_bytes: 9_000 };
    let left = Stack::builder().squeues(2).interface(left, interface(LEFT)).build();
    let right = Stack::builder().interface(right, interface(RIGHT)).build();
    (left.expect("a stack"), right.expect("a stack"), mtu_bytes)
}

/// How often each of the left squeues was told of a shorter MTU; none had a packet refused.
fn shrunk(left: &Stack) -> Vec<u64> {
    let shards = left.squeue_counters().into_iter().map(|it| it.stack.shard);
    let refused: Vec<u64> = shards.clone().map(|shard| shard.device_refused).collect();
    assert_eq!(refused, [0, 0], "what was built for the old MTU is built anew, not lost");
    shards.map(|shard| shard.device_mtus_shrunk).collect()
}

#[test]
fn connections_of_every_squeue_go_on_with_a_shorter_mtu() {
    let (left, right_stack, mtu_bytes) = stacks();
    let listener = TcpListener::bind(&right_stack, right(80)).expect("a free port");
    std::thread::scope(|scope| {
        for seed in 0..8 {
            let client = TcpStream::connect(&left, right(80)).expect("it listens");
            let (server, _) = listener.accept().expect("a connection");
            scope.spawn(move || send_pattern(&client, seed, 4 << 20));
            scope.spawn(move || check_pattern(&server, seed, 4 << 20));
        }
        mtu_bytes.store(1_500, Ordering::Relaxed);
    });
    assert_eq!(shrunk(&left), [1, 1]);
}

#[test]
fn datagrams_of_every_squeue_are_cut_for_a_shorter_mtu() {
    let (left, right_stack, mtu_bytes) = stacks();
    let server = UdpSocket::bind(&right_stack, right(5_000)).expect("a free port");
    server.set_read_timeout(Some(Duration::from_secs(10))).expect("a time");
    let exchange = || {
        for port in 6_000..6_008 {
            let client = UdpSocket::bind(&left, (LEFT, port)).expect("a free port");
            client.send_to(&[port as u8; 8_000], right(5_000)).expect("a route");
            let mut buffer = [0; 9_000];
            let (count, _) = server.recv_from(&mut buffer).expect("it was sent");
            assert_eq!(buffer[..count], [port as u8; 8_000]);
        }
    };
    exchange();
    assert_eq!(shrunk(&left), [0, 0]);
    mtu_bytes.store(1_500, Ordering::Relaxed);
    exchange();
    assert_eq!(shrunk(&left), [1, 1]);
}
