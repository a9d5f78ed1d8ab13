//! TCP sockets of two stacks on one wire behave as `std::net` says.

use crate::pair::{self, PATIENCE, Pattern, connected, exchange, pair, pair_with, right};
use bytes::Bytes;
use multidata::{Interest, Stack, TcpListener, TcpStream};
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

#[test]
fn what_is_written_comes_back() {
    let (left, right_stack) = pair();
    let (mut client, mut server) = connected(&left, &right_stack);
    client.write_all(b"a batch of packets").expect("connected");
    let mut bytes = [0; 18];
    server.read_exact(&mut bytes).expect("sent");
    server.write_all(&bytes).expect("connected");
    let mut echo = [0; 18];
    client.read_exact(&mut echo).expect("echoed");
    assert_eq!(&echo, b"a batch of packets");
}

#[test]
fn sixty_four_mebibytes_go_both_ways_unharmed() {
    let (left, right_stack) = pair();
    let (client, server) = connected(&left, &right_stack);
    exchange(&client, &server, 1, 64 << 20);
    let copied = left.counters().runtime.bytes_copied_in;
    assert_eq!(copied, 64 << 20, "every byte was copied in once");
    let info = client.info().expect("an open connection");
    assert_eq!((info.bytes_sent, info.bytes_received), (64 << 20, 64 << 20));
    assert!(info.rtt.is_some() && info.segments_sent > info.data_segments_sent);
}

// RFC 6093, 6: urgent data in line, with a mark.
#[test]
fn urgent_data_is_marked_and_stays_in_line() {
    let (left, right_stack) = pair();
    let (mut client, mut server) = connected(&left, &right_stack);
    client.write_all(b"calm").expect("connected");
    client.write_urgent(b"now!").expect("connected");
    client.write_all(b"after").expect("connected");
    client.shutdown(std::net::Shutdown::Write).expect("connected");
    let mut bytes = Vec::new();
    let mut buffer = [0; 64];
    // Until the mark is known, reads may end anywhere before it.
    while bytes.len() < 7 {
        let count = server.read(&mut buffer).expect("sent");
        bytes.extend_from_slice(&buffer[..count]);
    }
    assert_eq!(
        (&bytes[..], server.status().expect("open").urgent_mark),
        (&b"calmnow"[..], Some(0))
    );
    server.read_to_end(&mut bytes).expect("closed in order");
    assert_eq!(bytes, b"calmnow!after");
    assert_eq!(server.status().expect("open").urgent_mark, None);
}

#[test]
fn every_transmit_mode_carries_the_same_bytes() {
    for mode in device::TransmitMode::ALL {
        let (left, right) = device::wire(pair::offloading_ethernet());
        let build = |queue, address| {
            let interface = pair::interface(address).mode(mode);
            Stack::builder().interface(queue, interface).build().expect("a stack")
        };
        let (left, right_stack) = (build(left, pair::LEFT), build(right, pair::RIGHT));
        assert_eq!(left.interfaces()[0].mode, mode);
        let (client, server) = connected(&left, &right_stack);
        exchange(&client, &server, 3, 8 << 20);
        let device = left.counters().device;
        let is_merged = device.transmit_frames < device.transmit_packets / 2;
        assert_eq!(is_merged, mode == device::TransmitMode::Lso, "{mode}: {device:?}");
    }
}

#[test]
fn a_stack_speaks_both_ip_versions_at_once() {
    let (left, right) = device::wire(pair::ethernet());
    let build = |queue, ipv4, ipv6: &str| {
        let interface = pair::interface(ipv4).address(ipv6.parse().expect("an address"));
        Stack::builder().interface(queue, interface).build().expect("a stack")
    };
    let left = build(left, pair::LEFT, "fd00::1/64");
    let right_stack = build(right, pair::RIGHT, "fd00::2/64");
    let (client, server) = connected(&left, &right_stack);
    let listener = TcpListener::bind(&right_stack, "[fd00::2]:80").expect("a free port");
    let client6 = TcpStream::connect(&left, "[fd00::2]:80").expect("a listener");
    let (server6, peer) = listener.accept().expect("a connection");
    assert!(peer.is_ipv6());
    std::thread::scope(|scope| {
        scope.spawn(|| exchange(&client, &server, 4, 2 << 20));
        exchange(&client6, &server6, 6, 2 << 20);
    });
}

#[test]
fn many_threads_share_a_stack() {
    let (left, right_stack) = pair();
    let listener = TcpListener::bind(&right_stack, right(7_000)).expect("a free port");
    std::thread::scope(|scope| {
        for seed in 0..8 {
            let left = &left;
            scope.spawn(move || {
                let client = TcpStream::connect(left, right(7_000)).expect("a listener");
                (&client).write_all(&[seed]).expect("connected");
                pair::send_pattern(&client, u64::from(seed), 2 << 20);
                pair::check_pattern(&client, !u64::from(seed), 2 << 20);
            });
        }
        for stream in listener.incoming().take(8) {
            let mut stream = stream.expect("a connection");
            scope.spawn(move || {
                let mut seed = [0];
                stream.read_exact(&mut seed).expect("the client says its seed");
                pair::check_pattern(&stream, u64::from(seed[0]), 2 << 20);
                pair::send_pattern(&stream, !u64::from(seed[0]), 2 << 20);
            });
        }
    });
}

#[test]
fn threads_that_wait_for_small_answers_all_get_them() {
    let (left, right_stack) = pair();
    let listener = TcpListener::bind(&right_stack, right(7_001)).expect("a free port");
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let mut client = TcpStream::connect(&left, right(7_001)).expect("a listener");
                client.set_nodelay(true).expect("connected");
                let mut answer = [0; 4];
                for round in 0..300_u32 {
                    client.write_all(&round.to_be_bytes()).expect("connected");
                    client.read_exact(&mut answer).expect("answered");
                    assert_eq!(u32::from_be_bytes(answer), round + 1);
                }
            });
        }
        for stream in listener.incoming().take(6) {
            let mut stream = stream.expect("a connection");
            scope.spawn(move || {
                stream.set_nodelay(true).expect("connected");
                let mut question = [0; 4];
                while stream.read_exact(&mut question).is_ok() {
                    let answer = u32::from_be_bytes(question) + 1;
                    stream.write_all(&answer.to_be_bytes()).expect("connected");
                }
            });
        }
    });
}

#[test]
fn lone_threads_wake_nobody() {
    let (left, right_stack) = pair();
    let (mut client, mut server) = connected(&left, &right_stack);
    client.set_nodelay(true).expect("connected");
    server.set_nodelay(true).expect("connected");
    let before = [left.counters().runtime, right_stack.counters().runtime];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut bytes = [0; 64];
            for _ in 0..1_000 {
                server.read_exact(&mut bytes).expect("asked");
                server.write_all(&bytes).expect("connected");
            }
        });
        let mut bytes = [7; 64];
        for _ in 0..1_000 {
            client.write_all(&bytes).expect("connected");
            client.read_exact(&mut bytes).expect("answered");
        }
    });
    let after = [left.counters().runtime, right_stack.counters().runtime];
    for (before, after) in before.iter().zip(after) {
        assert_eq!(after.follower_parks, before.follower_parks, "a lone thread always leads");
        let wakeups = after.wakeups_sent - before.wakeups_sent;
        // The worker is told of deadlines only when it was left to wait for the device.
        assert!(wakeups < 50, "{wakeups} wake-ups in 1,000 exchanges");
    }
}

#[test]
fn one_direction_ends_before_the_other() {
    let (left, right_stack) = pair();
    let (mut client, mut server) = connected(&left, &right_stack);
    client.write_all(b"question").expect("connected");
    client.shutdown(Shutdown::Write).expect("connected");
    let mut question = String::new();
    server.read_to_string(&mut question).expect("a stream with an end");
    assert_eq!(question, "question");
    server.write_all(b"answer").expect("the other direction is open");
    drop(server);
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("a stream with an end");
    assert_eq!(answer, "answer");
    let error = client.write_all(b"more").expect_err("the sending side is shut");
    assert_eq!(error.kind(), ErrorKind::BrokenPipe);
}

#[test]
fn shutting_the_reading_side_ends_a_read_that_waits() {
    let (left, right_stack) = pair();
    let (mut client, server) = connected(&left, &right_stack);
    let other = client.try_clone().expect("a handle");
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || client.read(&mut [0; 10]));
        std::thread::sleep(Duration::from_millis(50));
        other.shutdown(Shutdown::Read).expect("connected");
        assert_eq!(reader.join().expect("no panic").expect("the end"), 0);
    });
    drop(server);
}

/// RFC 1122, 4.2.2.13; Linux does so as well. What nobody will read must not keep a peer waiting for as long as some
/// handle is left.
#[test]
fn a_peer_that_sends_on_is_told_when_both_sides_are_shut() {
    use Shutdown::{Both, Read, Write};
    let (left, right_stack) = pair();
    for shut in [&[Both][..], &[Read, Write], &[Write, Read]] {
        let (mut client, mut server) = connected(&left, &right_stack);
        client.set_write_timeout(Some(PATIENCE)).expect("not zero");
        client.write_all(b"before").expect("room");
        server.peek(&mut [0]).expect("it arrives");
        shut.iter().for_each(|how| server.shutdown(*how).expect("connected"));
        let error = (0..10_000).find_map(|_| client.write(&[7; 10_000]).err()).expect("a reset");
        assert_eq!(error.kind(), ErrorKind::BrokenPipe, "{shut:?}");
        let mut read = [0; 10];
        assert_eq!(server.read(&mut read).expect("what had arrived"), 6);
        let error = server.read(&mut read).expect_err("what came then is lost");
        assert_eq!(error.kind(), ErrorKind::ConnectionAborted);
    }
}

#[test]
fn to_write_nothing_waits_for_nobody() {
    let (left, right_stack) = pair();
    let (client, server) = connected(&left, &right_stack);
    client.set_write_timeout(Some(Duration::from_secs(2))).expect("not zero");
    let other = client.try_clone().expect("a handle");
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| (&client).write_all(&vec![7; 64 << 20]));
        std::thread::sleep(Duration::from_millis(200));
        let start = Instant::now();
        assert_eq!((&other).write(&[]).expect("nothing to wait for"), 0);
        assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
        writer.join().expect("no panic").expect_err("nobody reads");
    });
    drop(server);
}

#[test]
fn reads_and_connects_end_in_time() {
    let (left, right_stack) = pair();
    let (mut client, _server) = connected(&left, &right_stack);
    let zero = client.set_read_timeout(Some(Duration::ZERO)).expect_err("zero is no timeout");
    assert_eq!(zero.kind(), ErrorKind::InvalidInput);
    client.set_read_timeout(Some(Duration::from_millis(80))).expect("a timeout");
    assert_eq!(client.read_timeout().expect("set"), Some(Duration::from_millis(80)));
    let start = Instant::now();
    let error = client.read(&mut [0; 10]).expect_err("nobody writes");
    let waited = start.elapsed();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    assert!(waited >= Duration::from_millis(80) && waited < Duration::from_secs(2), "{waited:?}");
    let nobody = "10.1.0.77:80".parse().expect("an address");
    let start = Instant::now();
    let error = TcpStream::connect_timeout(&left, &nobody, Duration::from_millis(80));
    assert_eq!(error.expect_err("nobody is there").kind(), ErrorKind::TimedOut);
    assert!(start.elapsed() < Duration::from_secs(2));
}

#[test]
fn a_full_send_buffer_ends_a_write_in_time() {
    let (left, right_stack) = pair();
    let (mut client, _server) = connected(&left, &right_stack);
    client.set_write_timeout(Some(Duration::from_millis(80))).expect("a timeout");
    let error = loop {
        if let Err(error) = client.write(&[0; 65_536]) {
            break error;
        }
    };
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
}

#[test]
fn a_socket_that_does_not_block_says_so() {
    let (left, right_stack) = pair();
    let listener = TcpListener::bind(&right_stack, right(7_002)).expect("a free port");
    listener.set_nonblocking(true).expect("always");
    assert_eq!(listener.accept().expect_err("nobody came").kind(), ErrorKind::WouldBlock);
    let mut client = TcpStream::connect(&left, right(7_002)).expect("a listener");
    let (mut server, _) = loop {
        match listener.accept() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
            outcome => break outcome.expect("a connection"),
        }
    };
    client.set_nonblocking(true).expect("always");
    assert_eq!(client.read(&mut [0; 10]).expect_err("nobody writes").kind(), ErrorKind::WouldBlock);
    let mut pattern = Pattern::new(5);
    let mut bytes = vec![0; 50_000];
    let mut written = 0;
    loop {
        pattern.fill(&mut bytes);
        match client.write(&bytes) {
            Ok(count) if count == bytes.len() => written += count,
            Ok(count) => {
                written += count;
                break;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                break;
            }
        }
    }
    assert!(written >= 1 << 20, "the send buffer holds a mebibyte, {written} fitted");
    let mut check = Pattern::new(5);
    let mut read = 0;
    while read < written {
        let count = server.read(&mut bytes).expect("written");
        check.check(&bytes[..count]);
        read += count;
    }
}

#[test]
fn a_port_where_nobody_listens_refuses() {
    let (left, _right) = pair();
    let error = TcpStream::connect(&left, right(9)).expect_err("nobody listens");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    assert_eq!(error.to_string(), "the peer refused the connection");
}

#[test]
fn addresses_are_taken_once_and_must_be_ours() {
    let (left, right_stack) = pair();
    let listener = TcpListener::bind(&right_stack, right(7_003)).expect("a free port");
    let error = TcpListener::bind(&right_stack, right(7_003)).expect_err("taken");
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    let error = TcpListener::bind(&right_stack, "0.0.0.0:7003").expect_err("taken");
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    let error = TcpListener::bind(&left, right(7_003)).expect_err("the other stack's");
    assert_eq!(error.kind(), ErrorKind::AddrNotAvailable);
    drop(listener);
    TcpListener::bind(&right_stack, right(7_003)).expect("free again");
    let error = TcpStream::connect(&left, "192.0.2.1:80").expect_err("no gateway");
    assert_eq!(error.kind(), ErrorKind::NetworkUnreachable);
}

#[test]
fn a_connection_keeps_the_local_address_it_was_given() {
    let (left, right_stack) = pair();
    let listener = TcpListener::bind(&right_stack, "0.0.0.0:7004").expect("a free port");
    let local = "10.1.0.1:5555".parse().expect("an address");
    let client = TcpStream::connect_from(&left, local, right(7_004)).expect("a listener");
    assert_eq!(client.local_addr().expect("connected"), local);
    let (server, peer) = listener.accept().expect("a connection");
    assert_eq!((server.local_addr().expect("connected"), peer), (right(7_004), local));
}

#[test]
fn data_that_was_never_read_resets_the_connection() {
    let (left, right_stack) = pair();
    let (mut client, server) = connected(&left, &right_stack);
    client.write_all(b"never read").expect("connected");
    while server.status().expect("open").readable_bytes == 0 {
        std::thread::yield_now();
    }
    drop(server);
    let error = client.read(&mut [0; 10]).expect_err("reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert!(client.write_all(b"more").is_err());
    let pending = client.take_error().expect("open").expect("an error");
    assert_eq!(pending.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn an_abort_resets_the_connection() {
    let (left, right_stack) = pair();
    let (mut client, server) = connected(&left, &right_stack);
    server.abort();
    let error = client.read(&mut [0; 10]).expect_err("reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn a_full_backlog_makes_others_wait() {
    let (left, right_stack) = pair();
    let listener =
        TcpListener::bind_with_backlog(&right_stack, right(7_005), 2).expect("a free port");
    let first = TcpStream::connect(&left, right(7_005)).expect("room in the backlog");
    let _second = TcpStream::connect(&left, right(7_005)).expect("room in the backlog");
    let third = TcpStream::connect_timeout(&left, &right(7_005), Duration::from_millis(300));
    assert_eq!(third.expect_err("the backlog is full").kind(), ErrorKind::TimedOut);
    let (_, peer) = listener.accept().expect("the first");
    assert_eq!(peer, first.local_addr().expect("connected"));
    TcpStream::connect(&left, right(7_005)).expect("room again");
}

#[test]
fn connections_open_while_no_application_thread_is_in_a_call() {
    let (left, right_stack) = pair();
    let listener = TcpListener::bind(&right_stack, right(7_006)).expect("a free port");
    // The right stack's own thread answers the SYN, and later the data.
    let mut client = TcpStream::connect(&left, right(7_006)).expect("a listener");
    client.write_all(&[3; 100_000]).expect("connected");
    client.shutdown(Shutdown::Write).expect("connected");
    let start = Instant::now();
    while client.status().expect("open").unacknowledged_bytes > 0 {
        assert!(start.elapsed() < PATIENCE, "nobody acknowledges");
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut bytes = Vec::new();
    listener.accept().expect("there").0.read_to_end(&mut bytes).expect("there");
    assert_eq!(bytes, [3; 100_000]);
}

#[test]
fn what_was_written_before_a_drop_arrives() {
    let (left, right_stack) = pair();
    let (mut client, mut server) = connected(&left, &right_stack);
    let mut sent = vec![0; 700_000];
    Pattern::new(8).fill(&mut sent);
    client.write_all(&sent).expect("connected");
    drop(client);
    // The last handle of the left stack: its connections linger until they have delivered.
    let ending = std::thread::spawn(move || drop(left));
    let mut received = Vec::new();
    server.read_to_end(&mut received).expect("a stream with an end");
    assert!(received == sent, "{} of {} bytes", received.len(), sent.len());
    ending.join().expect("no panic");
}

#[test]
fn shutting_a_stack_down_waits_for_what_is_left_to_deliver() {
    let (left, right_stack) = pair();
    let (mut client, mut server) = connected(&left, &right_stack);
    server.set_receive_buffer_size(50_000).expect("connected");
    client.write_all(&vec![9; 900_000]).expect("the send buffer holds it");
    drop(client);
    let other = left.clone();
    let error = other.shutdown(Duration::from_millis(100)).expect_err("nobody reads");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let reader = std::thread::spawn(move || {
        let mut received = Vec::new();
        server.read_to_end(&mut received).expect("a stream with an end");
        received.len()
    });
    left.shutdown(Duration::from_secs(10)).expect("the server reads");
    assert_eq!(reader.join().expect("no panic"), 900_000);
}

#[test]
fn shutting_down_without_a_limit_is_possible() {
    let (left, _right_stack) = pair();
    left.shutdown(Duration::MAX).expect("there is nothing to deliver");
}

#[test]
fn lent_memory_that_never_fits_is_refused_where_the_socket_does_not_block() {
    let (left, right_stack) = pair();
    let (client, _server) = connected(&left, &right_stack);
    client.set_send_buffer_size(10_000).expect("a size");
    client.set_nonblocking(true).expect("always");
    for error in [
        client.write_bytes(Bytes::from(vec![1; 10_001])).expect_err("it never fits"),
        client.write_urgent(&[1; 10_001]).expect_err("it never fits"),
    ] {
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let error = error.to_string();
        assert!(error.contains("10001 bytes do not fit the send buffer of 10000"), "{error}");
    }
    client.write_bytes(Bytes::from(vec![1; 10_000])).expect("it fits");
}

#[test]
fn a_stack_without_handles_ends_its_threads_and_lets_its_device_go() {
    let is_soon = pair::is_soon(Duration::from_millis(500), || {
        let (left, right_stack) = pair();
        drop(right_stack);
        let start = Instant::now();
        drop(left);
        start.elapsed()
    });
    assert!(is_soon, "nothing was left to deliver");
}

#[test]
fn writers_of_one_stream_take_turns() {
    let (left, right_stack) = pair();
    let (client, mut server) = connected(&left, &right_stack);
    std::thread::scope(|scope| {
        for writer in 0..4_u8 {
            let mut client = client.try_clone().expect("a handle");
            scope.spawn(move || {
                for _ in 0..200 {
                    assert_eq!(client.write(&[writer; 5_000]).expect("connected"), 5_000);
                }
            });
        }
        let mut record = [0; 5_000];
        for _ in 0..800 {
            server.read_exact(&mut record).expect("written");
            assert!(record.iter().all(|byte| *byte == record[0]), "two records are mixed");
        }
    });
}

#[test]
fn lent_memory_is_sent_and_received_blocks_are_handed_out() {
    let (left, right_stack) = pair();
    let (client, server) = connected(&left, &right_stack);
    let mut sent = vec![0; 3 << 20];
    Pattern::new(21).fill(&mut sent);
    let lent = Bytes::from(sent);
    let copy = lent.clone();
    let writer = std::thread::spawn(move || {
        client.write_bytes(copy).expect("connected");
        client
    });
    let mut pattern = Pattern::new(21);
    let mut received = 0;
    while received < lent.len() {
        let bytes = server.read_bytes(100_000).expect("sent");
        assert!(!bytes.is_empty() && bytes.len() <= 100_000);
        pattern.check(&bytes);
        received += bytes.len();
    }
    drop(writer.join().expect("no panic"));
    assert!(server.read_bytes(10).expect("the end").is_empty());
    assert_eq!(left.counters().runtime.bytes_copied_in, 0);
    assert_eq!(left.counters().runtime.bytes_lent, 3 << 20);
}

#[test]
fn many_pieces_are_taken_by_one_call_without_a_copy() {
    let (left, right_stack) = pair();
    let (client, server) = connected(&left, &right_stack);
    let mut sent = vec![0; 3 << 20];
    Pattern::new(22).fill(&mut sent);
    let writer = std::thread::spawn(move || (&client).write_all(&sent).expect("connected"));
    let (mut pattern, mut pieces) = (Pattern::new(22), Vec::new());
    let (mut received, mut calls) = (0, 0);
    loop {
        pieces.clear();
        let len = server.read_bytes_vectored(100_000, &mut pieces).expect("sent");
        assert_eq!(len, pieces.iter().map(Bytes::len).sum::<usize>());
        assert!(len <= 100_000);
        if len == 0 {
            break;
        }
        pieces.iter().for_each(|piece| pattern.check(piece));
        (received, calls) = (received + len, calls + 1);
    }
    writer.join().expect("no panic");
    assert_eq!(received, 3 << 20);
    assert!(calls < 1_000, "{calls} calls for more than 2,000 segments");
    assert_eq!(right_stack.counters().runtime.bytes_copied_out, 0);
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(5), "{what} did not come");
        std::thread::yield_now();
    }
}

#[test]
fn wakers_are_woken_once_for_each_registration() {
    let (left, right_stack) = pair();
    let (mut client, mut server) = connected(&left, &right_stack);
    let count = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&count));
    let mut context = std::task::Context::from_waker(&waker);
    assert!(server.poll_readable(&mut context).is_pending());
    server.register_waker(Interest::Readable, &waker);
    client.write_all(b"1").expect("connected");
    wait_for("the wake-up", || count.0.load(Ordering::SeqCst) == 1);
    assert!(server.poll_readable(&mut context).is_ready());
    server.read_exact(&mut [0]).expect("written");
    assert!(server.poll_readable(&mut context).is_pending());
    drop(client);
    wait_for("the end of the stream", || count.0.load(Ordering::SeqCst) == 2);
    assert_eq!(server.read(&mut [0]).expect("the end"), 0);
    assert!(server.poll_writable(&mut context).is_ready());
}

#[test]
fn a_listener_wakes_its_task() {
    let (left, right_stack) = pair();
    let listener = TcpListener::bind(&right_stack, right(7_007)).expect("a free port");
    let count = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&count));
    let mut context = std::task::Context::from_waker(&waker);
    assert!(listener.poll_accept(&mut context).is_pending());
    let client = TcpStream::connect(&left, right(7_007)).expect("a listener");
    wait_for("the wake-up", || count.0.load(Ordering::SeqCst) >= 1);
    let std::task::Poll::Ready(Ok((_, peer))) = listener.poll_accept(&mut context) else {
        panic!("the connection is there");
    };
    assert_eq!(peer, client.local_addr().expect("connected"));
}

#[test]
fn a_small_pool_slows_writers_down_and_breaks_nothing() {
    let (left, right_stack) = pair_with(|builder| {
        builder.pool(batch::BlockPool::new(batch::PoolConfig {
            limit_bytes: 6 << 20,
            receive_reserve_bytes: 5 << 20,
            ..batch::PoolConfig::default()
        }))
    });
    let (client, server) = connected(&left, &right_stack);
    exchange(&client, &server, 77, 8 << 20);
}

#[test]
fn writers_that_compete_for_a_small_pool_all_get_their_turn() {
    let (left, right_stack) = pair_with(|builder| {
        builder.pool(batch::BlockPool::new(batch::PoolConfig {
            limit_bytes: 6 << 20,
            receive_reserve_bytes: 11 << 19,
            ..batch::PoolConfig::default()
        }))
    });
    let connections: Vec<_> = (0..32).map(|_| connected(&left, &right_stack)).collect();
    std::thread::scope(|scope| {
        for (mut client, mut server) in connections {
            // Each thread drops its end, so that a failed write does not leave the reader waiting.
            scope.spawn(move || client.write_all(&vec![7; 1 << 20]).expect("memory, in time"));
            scope.spawn(move || {
                let mut bytes = Vec::new();
                server.read_to_end(&mut bytes).expect("the stream ends well");
                assert_eq!(bytes.len(), 1 << 20);
            });
        }
    });
    assert!(left.counters().runtime.pool_waits > 0, "the pool was large enough");
}

/// Who waits for room in the send queue waits for an event, and is woken by the acknowledgment that makes it.
#[test]
fn writers_whose_peers_read_nothing_sleep_until_they_do() {
    const LEN: usize = 4 << 20;
    const SECOND: Duration = Duration::from_secs(1);
    let (left, right_stack) = pair();
    let connections: Vec<_> = (0..10).map(|_| connected(&left, &right_stack)).collect();
    std::thread::scope(|scope| {
        let (clients, mut servers): (Vec<_>, Vec<_>) = connections.into_iter().unzip();
        for mut client in clients {
            client.set_send_buffer_size(64 << 10).expect("open");
            client.set_write_timeout(Some(pair::PATIENCE)).expect("a sound timeout");
            scope.spawn(move || client.write_all(&vec![7; LEN]).expect("it is read, in time"));
        }
        let runtime = || left.counters().runtime;
        let stands_still = || {
            let before = runtime().bytes_copied_in;
            std::thread::sleep(SECOND / 5);
            before > 0 && runtime().bytes_copied_in == before
        };
        while !stands_still() {}
        let before = runtime().squeue_runs;
        std::thread::sleep(SECOND);
        let runs = runtime().squeue_runs - before;
        // The peers' windows are probed; to look every 20 ms would be 500 turns and more.
        assert!(runs < 150, "{runs} turns");
        for server in &mut servers {
            server.read_exact(&mut vec![0; LEN]).expect("it is written");
        }
    });
}

/// Memory that others give back is no event: who lacks it looks by himself, also where his peer acknowledges nothing.
#[test]
fn a_writer_that_lacks_memory_goes_on_when_others_give_it_back() {
    const LEFT_BYTES: usize = 64 << 10;
    let pool = batch::BlockPool::new(batch::PoolConfig {
        limit_bytes: 6 << 20,
        receive_reserve_bytes: 5 << 20,
        ..batch::PoolConfig::default()
    });
    let (left, right_stack) = pair_with(|builder| builder.pool(pool.clone()));
    let (mut client, _server) = connected(&left, &right_stack);
    let held = pool.allocate(pool.left_to_send_bytes() - LEFT_BYTES).expect("it is left");
    client.set_write_timeout(Some(pair::PATIENCE)).expect("a sound timeout");
    let writer = std::thread::spawn(move || client.write_all(&[7; 300 << 10]).map(|()| client));
    std::thread::sleep(Duration::from_millis(500));
    assert!(!writer.is_finished(), "there was memory enough");
    drop(held);
    writer.join().expect("no panic").expect("there is memory, and room");
}

#[test]
fn every_counter_has_its_own_name() {
    let (left, right_stack) = pair();
    let _connection = connected(&left, &right_stack);
    let mut names = std::collections::HashSet::new();
    let mut enters = 0;
    left.counters().for_each(&mut |name, value| {
        assert!(names.insert(name.to_owned()), "{name} stands for two counters");
        if name == "runtime.squeue_enters" {
            enters = value;
        }
    });
    assert!(enters > 0);
    assert!(names.contains("pool.allocations") && names.contains("device.transmit_packets"));
}
