//! What is written arrives whatever the policy of the copy, and the counters tell what it cost.

use crate::pair::{
    LEFT, Pattern, RIGHT, check_pattern, connected, exchange, interface, offloading_ethernet, pair,
    pair_with, right,
};
use bytes::Bytes;
use multidata::{
    BlockSize, CopyIn, CopyObserver, CopyOrder, Counters, Datagram, InterfaceConfig, LentDatagram,
    RawPacket, RawSocket, Stack, TcpStream, UdpSocket,
};
use std::io::{ErrorKind, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const LEN: usize = 8 << 20;

fn policies() -> Vec<CopyIn> {
    let folding = CopyIn { fold_checksum: true, ..CopyIn::default() };
    let mut policies = vec![folding, CopyIn::default(), CopyIn::legacy()];
    for order in [CopyOrder::AllocateFirst, CopyOrder::Interleaved] {
        for block in [BlockSize::Whole, BlockSize::Page, BlockSize::Segment] {
            for hand_over_segments in [None, Some(1), Some(10)] {
                let header_room_bytes = 80 * usize::from(order == CopyOrder::Interleaved);
                policies.push(CopyIn {
                    order,
                    block,
                    hand_over_segments,
                    header_room_bytes,
                    fold_checksum: block != BlockSize::Page,
                    ..CopyIn::default()
                });
            }
        }
    }
    policies
}

/// Sends `LEN` bytes of a pattern in writes of `write_len_bytes` and lets the other end check them.
fn send(client: &TcpStream, server: &TcpStream, write_len_bytes: usize) {
    let mut bytes = vec![0; LEN];
    Pattern::new(5).fill(&mut bytes);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for piece in bytes.chunks(write_len_bytes) {
                (&*client).write_all(piece).expect("connected");
            }
            client.shutdown(std::net::Shutdown::Write).expect("connected");
        });
        check_pattern(server, 5, LEN as u64);
    });
}

#[test]
fn streams_arrive_unharmed_whatever_the_policy() {
    for copy_in in policies() {
        let (left, right_stack) = pair_with(|builder| builder.copy_in(copy_in));
        let (client, server) = connected(&left, &right_stack);
        exchange(&client, &server, 3, 2 << 20);
        for stack in [&left, &right_stack] {
            let Counters { runtime, stack, .. } = stack.counters();
            assert_eq!(runtime.bytes_copied_in, 2 << 20, "{copy_in:?}");
            let summed = if copy_in.fold_checksum { 2 << 20 } else { 0 };
            assert_eq!(runtime.bytes_summed_in_copy, summed, "{copy_in:?}");
            let wrong = stack.drops.count(counters::DropReason::TcpChecksum);
            assert_eq!(wrong, 0, "{copy_in:?}");
        }
    }
}

#[test]
fn segments_of_large_writes_are_not_read_a_second_time() {
    let read_again = |fold_checksum| {
        let copy_in = CopyIn { fold_checksum, ..CopyIn::default() };
        let (left, right_stack) = pair_with(|builder| builder.copy_in(copy_in));
        let (client, server) = connected(&left, &right_stack);
        send(&client, &server, 64 << 10);
        left.counters().stack.shard.checksummed_transmit_bytes
    };
    assert!(read_again(false) >= LEN as u64, "everything is read once more without the fold");
    // Writes of 64 KiB end within a segment: that one is put together from two sums. What ends a
    // window early may be cut otherwise.
    let read = read_again(true);
    assert!(read < LEN as u64 / 20, "{read} of {LEN} bytes were read once more");
}

/// Two stacks whose devices make checksums and take super-frames.
fn offloading_pair() -> (Stack, Stack) {
    let (left, right_end) = device::wire(offloading_ethernet());
    let mode = device::TransmitMode::Lso;
    let build = |queue, config: InterfaceConfig| {
        let folding = CopyIn { fold_checksum: true, ..CopyIn::default() };
        let builder = Stack::builder().copy_in(folding);
        builder.interface(queue, config.mode(mode)).build().expect("a stack")
    };
    (build(left, interface(LEFT)), build(right_end, interface(RIGHT)))
}

#[test]
fn lent_memory_leaves_without_a_byte_of_it_touched_where_the_device_makes_checksums() {
    let (left, right_stack) = offloading_pair();
    let (client, server) = connected(&left, &right_stack);
    let mut bytes = vec![0; LEN];
    Pattern::new(6).fill(&mut bytes);
    let lent = Bytes::from(bytes);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for at in (0..LEN).step_by(256 << 10) {
                client.write_bytes(lent.slice(at..at + (256 << 10))).expect("connected");
            }
            client.shutdown(std::net::Shutdown::Write).expect("connected");
        });
        check_pattern(&server, 6, LEN as u64);
    });
    let Counters { runtime, stack, .. } = left.counters();
    assert_eq!(runtime.bytes_lent, LEN as u64);
    assert_eq!(runtime.bytes_copied_in, 0);
    assert_eq!(runtime.bytes_summed_in_copy, 0);
    assert_eq!(stack.shard.checksummed_transmit_bytes, 0);
}

#[test]
fn nothing_is_summed_in_a_copy_for_a_device_that_makes_checksums() {
    let (left, right_stack) = offloading_pair();
    let (client, server) = connected(&left, &right_stack);
    send(&client, &server, 64 << 10);
    let Counters { runtime, stack, .. } = left.counters();
    assert_eq!(runtime.bytes_copied_in, LEN as u64);
    assert_eq!(runtime.bytes_summed_in_copy, 0);
    assert_eq!(stack.shard.checksummed_transmit_bytes, 0);
}

#[test]
fn lent_memory_is_read_once_where_the_device_makes_no_checksums() {
    let (left, right_stack) = pair();
    let (client, server) = connected(&left, &right_stack);
    let lent = Bytes::from(vec![9; 100_000]);
    client.write_bytes(lent.clone()).expect("connected");
    client.shutdown(std::net::Shutdown::Write).expect("connected");
    let mut received = Vec::new();
    std::io::Read::read_to_end(&mut &server, &mut received).expect("sent");
    assert_eq!(received, lent);
    let Counters { runtime, stack, .. } = left.counters();
    assert_eq!(runtime.bytes_summed_in_copy, 0);
    assert!(stack.shard.checksummed_transmit_bytes >= 100_000);
}

#[test]
fn a_write_that_does_not_block_hands_over_what_fits_and_no_more() {
    for copy_in in policies() {
        let (left, right_stack) = pair_with(|builder| builder.copy_in(copy_in));
        let (client, server) = connected(&left, &right_stack);
        client.set_nonblocking(true).expect("open");
        let mut bytes = vec![0; LEN];
        Pattern::new(7).fill(&mut bytes);
        let mut written = 0;
        loop {
            match (&client).write(&bytes[written..]) {
                Ok(count) => written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
            if written == LEN {
                break;
            }
        }
        assert!(written > 0, "{copy_in:?}");
        client.shutdown(std::net::Shutdown::Write).expect("connected");
        check_pattern(&server, 7, written as u64);
    }
}

#[test]
fn datagrams_are_summed_in_their_copy_or_not_copied_at_all() {
    for copy_in in policies() {
        let (left, right_stack) = pair_with(|builder| builder.copy_in(copy_in));
        let server = UdpSocket::bind(&right_stack, right(99)).expect("a free port");
        let client = UdpSocket::bind(&left, "10.1.0.1:0").expect("a free port");
        client.connect(right(99)).expect("a route");
        let mut bytes = vec![0; 70_000];
        // The last ones go in fragments.
        let mut copied = 0;
        for len in [0, 1, 7, 1_000, 1_471, 1_472, 1_473, 30_001, 65_507] {
            let mut sent = vec![0; len];
            Pattern::new(len as u64).fill(&mut sent);
            assert_eq!(client.send(&sent).expect("a route"), len);
            assert_eq!(server.recv(&mut bytes).expect("sent"), len);
            assert_eq!(bytes[..len], sent);
            copied += len as u64;
            assert_eq!(client.send_bytes_to(Bytes::from(sent.clone()), right(99)).unwrap(), len);
            assert_eq!(server.recv(&mut bytes).expect("sent"), len);
            assert_eq!(bytes[..len], sent);
        }
        let Counters { runtime, stack, .. } = left.counters();
        assert_eq!((runtime.bytes_copied_in, runtime.bytes_lent), (copied, copied));
        let folded = if copy_in.fold_checksum { copied } else { 0 };
        assert_eq!(runtime.bytes_summed_in_copy, folded);
        // Of the whole ones, what was lent is read; and what was copied without its sum.
        let whole: u64 = [0, 1, 7, 1_000, 1_471, 1_472].iter().sum();
        let read = if copy_in.fold_checksum { whole } else { 2 * whole };
        assert_eq!(stack.shard.checksummed_transmit_bytes, read);
        let error = client.send_bytes(Bytes::from(vec![0; 70_000])).expect_err("too long");
        assert!(error.to_string().contains("long"), "{error}");
    }
}

/// Lengths of datagrams of one call: some share blocks, some lie in several, one goes in fragments.
const LENS: [usize; 12] = [1_000, 0, 1, 1_472, 9_000, 1_471, 7, 1_472, 1_472, 4_096, 333, 1_448];

#[test]
fn datagrams_of_one_call_are_copied_by_every_policy_and_stay_apart() {
    for copy_in in policies() {
        let (left, right_stack) = pair_with(|builder| builder.copy_in(copy_in));
        let server = UdpSocket::bind(&right_stack, right(99)).expect("a free port");
        server.set_read_timeout(Some(std::time::Duration::from_secs(20))).expect("open");
        let client = UdpSocket::bind(&left, "10.1.0.1:0").expect("a free port");
        let sent: Vec<Vec<u8>> = (0..).zip(LENS).map(|(seed, len)| of_pattern(seed, len)).collect();
        let to = Some(right(99));
        let datagrams: Vec<_> =
            sent.iter().map(|payload| Datagram { payload, to, ..Datagram::default() }).collect();
        let lent = |payload: &Vec<u8>| LentDatagram {
            payload: Bytes::from(payload.clone()),
            to,
            ..LentDatagram::default()
        };
        let lent: Vec<_> = sent.iter().map(lent).collect();
        // A neighbour that is not found yet has not so many waiting for it.
        client.send_to(&[], right(99)).expect("a route");
        assert_eq!(server.recv(&mut [0]).expect("sent"), 0);
        assert_eq!(client.send_many(&datagrams).expect("a route"), LENS.len());
        assert_eq!(client.send_many_bytes(&lent).expect("a route"), LENS.len());
        let mut bytes = vec![0; 70_000];
        for expected in sent.iter().chain(&sent) {
            let len = server.recv(&mut bytes).expect("sent");
            assert!(bytes[..len] == expected[..], "{copy_in:?}: {len} of {}", expected.len());
        }
        let Counters { runtime, stack, .. } = left.counters();
        let all: u64 = LENS.iter().map(|len| *len as u64).sum();
        assert_eq!((runtime.bytes_copied_in, runtime.bytes_lent), (all, all));
        let summed = if copy_in.fold_checksum { all } else { 0 };
        assert_eq!(runtime.bytes_summed_in_copy, summed);
        // Of the whole ones, what was lent is read; and what was copied without its sum.
        let whole: u64 = LENS.iter().filter(|len| **len <= 1_472).map(|len| *len as u64).sum();
        let read = if copy_in.fold_checksum { whole } else { 2 * whole };
        assert_eq!(stack.shard.checksummed_transmit_bytes, read, "{copy_in:?}");
    }
}

fn of_pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Pattern::new(seed).fill(&mut bytes);
    bytes
}

/// Calls of an observer: begun, ended.
#[derive(Default)]
struct Calls([AtomicUsize; 2]);

impl Calls {
    fn counts(&self) -> [usize; 2] {
        self.0.each_ref().map(|count| count.load(Ordering::Relaxed))
    }
}

impl CopyObserver for Calls {
    fn on_begin(&self) {
        self.0[0].fetch_add(1, Ordering::Relaxed);
    }

    fn on_end(&self) {
        self.0[1].fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn an_observer_sees_each_copy_and_nothing_else() {
    let calls = Arc::new(Calls::default());
    let (left, right_stack) = pair_with(|builder| builder.copy_observer(calls.clone()));
    let (client, server) = connected(&left, &right_stack);
    let socket = UdpSocket::bind(&left, "10.1.0.1:0").expect("a free port");
    assert_eq!(calls.counts(), [0, 0]);
    (&client).write_all(b"copied").expect("connected");
    assert_eq!(calls.counts(), [1, 1]);
    client.write_bytes(Bytes::from_static(b"lent")).expect("connected");
    socket.send_bytes_to(Bytes::from_static(b"lent"), right(99)).expect("a route");
    assert_eq!(calls.counts(), [1, 1]);
    socket.send_to(b"copied", right(99)).expect("a route");
    let many =
        [Datagram { payload: b"copied together", to: Some(right(99)), ..Datagram::default() }; 5];
    assert_eq!(socket.send_many(&many).expect("a route"), 5);
    assert_eq!(calls.counts(), [3, 3]);
    drop(server);
}

#[test]
fn raw_packets_are_copied_by_every_policy() {
    for copy_in in policies() {
        let (left, right_stack) = pair_with(|builder| builder.copy_in(copy_in));
        let server = RawSocket::bind(&right_stack, 253).expect("room");
        server.set_read_timeout(Some(std::time::Duration::from_secs(20))).expect("open");
        let asker = RawSocket::bind_echo(&left, 7).expect("free");
        asker.set_read_timeout(Some(std::time::Duration::from_secs(20))).expect("open");
        let client = RawSocket::bind(&left, 253).expect("room");
        let sent: Vec<Vec<u8>> = (0..).zip(LENS).map(|(seed, len)| of_pattern(seed, len)).collect();
        let to = right(0).ip();
        let packets: Vec<_> = sent.iter().map(|payload| RawPacket { payload, to }).collect();
        assert_eq!(client.send_many(&packets).expect("a route"), LENS.len());
        let mut bytes = vec![0; 70_000];
        for expected in &sent {
            let (len, _) = server.recv_from(&mut bytes).expect("sent");
            assert!(bytes[..len] == expected[..], "{copy_in:?}: {len} of {}", expected.len());
        }
        // Its checksum is made over all blocks; a wrong one has no answer.
        let request = multidata::echo_request(to, 1, &sent[4]);
        asker.send_to(&request, to).expect("a route");
        let (len, _) = asker.recv_from(&mut bytes).expect("an answer");
        assert_eq!(bytes[8..len], sent[4]);
        let runtime = left.counters().runtime;
        let all: u64 = LENS.iter().map(|len| *len as u64).sum();
        assert_eq!(runtime.bytes_copied_in, all + request.len() as u64);
        let summed = if copy_in.fold_checksum { request.len() as u64 } else { 0 };
        assert_eq!(runtime.bytes_summed_in_copy, summed, "only ICMP has checksums of the stack's");
    }
}
