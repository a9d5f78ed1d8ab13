//! Calls of tasks: whom they wake, when, and whom not.

use crate::pair::{self, PATIENCE, connected, pair, pair_with, right, run};
use multidata::{BindOptions, ConnectOptions, Interest, Stack, TcpListener, TcpStream, UdpSocket};
use std::future::Future;
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::Shutdown;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// Counts how often it is called.
#[derive(Default)]
struct Calls(AtomicUsize);

impl Calls {
    fn new() -> (Arc<Self>, Waker) {
        let calls = Arc::new(Self::default());
        (Arc::clone(&calls), Waker::from(calls))
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    fn wait_for(&self, count: usize) {
        wait("a call of the waker", || self.count() >= count);
    }
}

impl Wake for Calls {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn wait(what: &str, mut is_there: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_there() {
        assert!(started.elapsed() < PATIENCE, "{what} did not come");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn who_does_not_wait_is_not_woken() {
    let (left, right_stack) = pair();
    let (mut client, server) = connected(&left, &right_stack);
    let (other, _other_end) = connected(&left, &right_stack);
    let (calls, waker) = Calls::new();
    let (others, others_waker) = Calls::new();
    let (context, others_context) =
        (&mut Context::from_waker(&waker), &mut Context::from_waker(&others_waker));
    let mut buffer = [0; 16];
    assert!(other.poll_read(others_context, &mut buffer).is_pending());
    assert!(server.poll_read(context, &mut buffer).is_pending());
    for round in 1..=50_u8 {
        client.write_all(&[round]).expect("connected");
        // One event, one call.
        calls.wait_for(round.into());
        let Poll::Ready(Ok(1)) = server.poll_read(context, &mut buffer) else {
            panic!("woken for nothing");
        };
        // What succeeded left no waker behind: the next byte finds nobody, until somebody waits.
        client.write_all(&[round]).expect("connected");
        wait("a byte", || server.status().expect("open").readable_bytes == 1);
        assert_eq!(calls.count(), usize::from(round));
        assert!(matches!(server.poll_read(context, &mut buffer), Poll::Ready(Ok(1))));
        assert!(server.poll_read(context, &mut buffer).is_pending());
    }
    assert_eq!(others.count(), 0, "another connection's business");
    drop(client);
    calls.wait_for(51);
    assert!(matches!(server.poll_read(context, &mut buffer), Poll::Ready(Ok(0))));
}

#[test]
fn no_event_is_missed_however_two_tasks_race() {
    let (left, right_stack) = pair();
    let (client, server) = connected(&left, &right_stack);
    // A byte goes back and forth; a missed event stops both for good.
    let bounce = |stream: &TcpStream, rounds: u32| {
        let mut byte = [0];
        for round in 0..rounds {
            assert_eq!(run(|it| stream.poll_read(it, &mut byte)).expect("sent"), 1);
            assert_eq!(byte[0], round as u8);
            assert_eq!(run(|it| stream.poll_write(it, &byte)).expect("open"), 1);
        }
    };
    let rounds = 5_000;
    std::thread::scope(|scope| {
        scope.spawn(|| bounce(&server, rounds));
        let mut byte = [0];
        for round in 0..rounds {
            let sent = [round as u8];
            assert_eq!(run(|it| client.poll_write(it, &sent)).expect("open"), 1);
            assert_eq!(run(|it| client.poll_read(it, &mut byte)).expect("sent"), 1);
            assert_eq!(byte, sent);
        }
    });
}

#[test]
fn bulk_goes_through_small_buffers_in_tasks() {
    let (left, right_stack) = pair();
    let (client, server) = connected(&left, &right_stack);
    client.set_send_buffer_size(20_000).expect("a size");
    let total = 4 << 20;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut pattern = pair::Pattern::new(9);
            let mut sent = 0;
            while sent < total {
                let mut bytes = vec![0; 30_000.min(total - sent)];
                pattern.fill(&mut bytes);
                let mut done = 0;
                while done < bytes.len() {
                    let (one, other) = bytes[done..].split_at((bytes.len() - done) / 3);
                    let pieces = [IoSlice::new(one), IoSlice::new(&[]), IoSlice::new(other)];
                    let poll = |it: &mut Context<'_>| client.poll_write_vectored(it, &pieces);
                    done += run(poll).expect("the peer reads");
                }
                sent += bytes.len();
            }
            client.shutdown(std::net::Shutdown::Write).expect("connected");
        });
        let mut pattern = pair::Pattern::new(9);
        let mut buffer = vec![0; 100_000];
        let mut received = 0;
        loop {
            let count = run(|it| server.poll_read(it, &mut buffer)).expect("sent");
            if count == 0 {
                break;
            }
            pattern.check(&buffer[..count]);
            received += count;
        }
        assert_eq!(received, total);
    });
}

#[test]
fn pieces_of_a_vectored_write_share_a_segment() {
    let (left, right_stack) = pair();
    let (client, mut server) = connected(&left, &right_stack);
    let before = client.info().expect("open").data_segments_sent;
    let pieces = [IoSlice::new(b"head "), IoSlice::new(b"and body")];
    let context = &mut Context::from_waker(Waker::noop());
    let Poll::Ready(Ok(13)) = client.poll_write_vectored(context, &pieces) else {
        panic!("there is room");
    };
    let mut bytes = [0; 13];
    server.read_exact(&mut bytes).expect("sent");
    assert_eq!(&bytes, b"head and body");
    assert_eq!(client.info().expect("open").data_segments_sent - before, 1);
    let nothing = client.poll_write_vectored(context, &[IoSlice::new(&[])]);
    assert!(matches!(nothing, Poll::Ready(Ok(0))));
}

#[test]
fn what_is_peeked_at_stays_to_be_read() {
    let (left, right_stack) = pair();
    let (mut client, server) = connected(&left, &right_stack);
    client.write_all(b"twice").expect("connected");
    let mut bytes = [0; 5];
    run(|it| server.poll_readable(it)).expect("open");
    for _ in 0..2 {
        assert_eq!(run(|it| server.poll_peek(it, &mut bytes)).expect("sent"), 5);
        assert_eq!(&bytes, b"twice");
        bytes = [0; 5];
    }
    assert_eq!(run(|it| server.poll_read(it, &mut bytes)).expect("sent"), 5);
    assert!(server.poll_peek(&mut Context::from_waker(Waker::noop()), &mut bytes).is_pending());
    assert_eq!(run(|it| server.poll_peek(it, &mut [])).expect("as a read of nothing"), 0);
    client.shutdown(std::net::Shutdown::Write).expect("connected");
    assert_eq!(run(|it| server.poll_peek(it, &mut bytes)).expect("the end"), 0);
}

#[test]
fn a_connection_is_opened_or_refused_or_given_up() {
    let (left, right_stack) = pair();
    let listener = TcpListener::bind(&right_stack, right(0)).expect("a free port");
    let address = listener.local_addr().expect("bound");
    let mut opening = pin!(TcpStream::start_connect(&left, address).expect("a route"));
    let stream = run(|it| opening.as_mut().poll(it)).expect("the listener is there");
    let (server, peer) = run(|it| listener.poll_accept(it)).expect("it came");
    assert_eq!(
        (peer, server.local_addr().expect("open")),
        (stream.local_addr().expect("open"), address)
    );
    let again = opening.poll_open(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(again, Poll::Ready(Err(error)) if error.kind() == ErrorKind::InvalidInput));

    let mut refused = TcpStream::start_connect(&left, right(9)).expect("a route");
    let error = run(|it| refused.poll_open(it)).expect_err("nobody listens");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);

    // Nobody answers: the attempt is given up, and its port is free for another.
    let silent = "10.1.0.99:5".parse().expect("an address");
    let from = "10.1.0.1:4000".parse().expect("an address");
    let options = ConnectOptions { local: Some(from), ..ConnectOptions::default() };
    for _ in 0..2 {
        let mut given_up =
            TcpStream::start_connect_with(&left, silent, &options).expect("the port is free");
        assert!(given_up.poll_open(&mut Context::from_waker(Waker::noop())).is_pending());
    }
}

#[test]
fn an_exhausted_pool_is_waited_for() {
    let (left, right_stack) = pair_with(|builder| {
        let pool = batch::PoolConfig {
            limit_bytes: 1 << 20,
            receive_reserve_bytes: 1 << 18,
            cached_limit_bytes: 0,
            ..batch::PoolConfig::default()
        };
        builder.config(multidata::StackConfig { pool, ..multidata::StackConfig::default() })
    });
    let (client, mut server) = connected(&left, &right_stack);
    let mut held = Vec::new();
    while let Ok(block) = left.pool().allocate(4_096) {
        held.push(block);
    }
    let (calls, waker) = Calls::new();
    let context = &mut Context::from_waker(&waker);
    assert!(client.poll_write(context, b"patience").is_pending());
    // It looks again every millisecond, and finds nothing, until there is something.
    calls.wait_for(1);
    assert!(client.poll_write(context, b"patience").is_pending());
    drop(held);
    assert_eq!(run(|it| client.poll_write(it, b"patience")).expect("there is room again"), 8);
    let mut bytes = [0; 8];
    server.read_exact(&mut bytes).expect("sent");
    assert_eq!((&bytes, left.counters().runtime.pool_waits >= 2), (b"patience", true));
}

#[test]
fn a_write_that_does_not_block_is_told_that_the_pool_is_exhausted_and_when_it_is_not() {
    let (left, right_stack) = pair_with(|builder| {
        let pool = batch::PoolConfig {
            limit_bytes: 1 << 20,
            receive_reserve_bytes: 1 << 18,
            cached_limit_bytes: 0,
            ..batch::PoolConfig::default()
        };
        builder.config(multidata::StackConfig { pool, ..multidata::StackConfig::default() })
    });
    let (mut client, _server) = connected(&left, &right_stack);
    client.set_nonblocking(true).expect("always");
    let mut held = Vec::new();
    while let Ok(block) = left.pool().allocate(4_096) {
        held.push(block);
    }
    let (calls, waker) = Calls::new();
    let context = &mut Context::from_waker(&waker);
    let error = client.write(b"patience").expect_err("there is no memory");
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    assert!(client.poll_writable(context).is_pending(), "it would have the caller spin");
    calls.wait_for(1);
    assert!(client.poll_writable(context).is_pending());
    // Who is told by a waker and tries hears of memory, too: no acknowledgment will come.
    let (calls, waker) = Calls::new();
    client.register_waker(Interest::Writable, &waker);
    assert!(client.write(b"patience").is_err());
    calls.wait_for(1);
    drop(held);
    run(|it| client.poll_writable(it)).expect("there is room again");
    assert_eq!(client.write(b"patience").expect("there is room again"), 8);
}

/// A writer whose peer reads nothing, with as much on the way as will ever be.
fn full(left: &Stack, right_stack: &Stack) -> (TcpStream, TcpStream) {
    let (client, server) = connected(left, right_stack);
    server.set_receive_buffer_size(20_000).expect("a size");
    client.set_send_buffer_size(40_000).expect("a size");
    client.set_nonblocking(true).expect("always");
    let taken = |mut client: &TcpStream| client.write(&[7; 10_000]).is_ok();
    loop {
        while taken(&client) {}
        std::thread::sleep(Duration::from_millis(100));
        if !taken(&client) {
            break (client, server);
        }
    }
}

#[test]
fn a_writer_that_waits_hears_of_the_end_of_writing_and_of_a_larger_buffer() {
    let (left, right_stack) = pair();
    for how in [Some(Shutdown::Write), Some(Shutdown::Both), None] {
        let (client, _server) = full(&left, &right_stack);
        let other = client.try_clone().expect("always");
        let (calls, waker) = Calls::new();
        let context = &mut Context::from_waker(&waker);
        assert!(client.poll_write(context, b"x").is_pending());
        let before = calls.count();
        match how {
            Some(how) => other.shutdown(how).expect("connected"),
            None => other.set_send_buffer_size(100_000).expect("a size"),
        }
        calls.wait_for(before + 1);
        let written = client.poll_write(context, b"x").map_err(|error| error.kind());
        match how {
            Some(_) => assert_eq!(written, Poll::Ready(Err(ErrorKind::BrokenPipe))),
            None => assert_eq!(written, Poll::Ready(Ok(1))),
        }
    }
    // A thread that waits for the room of all its urgent bytes does not look by itself.
    let (client, _server) = full(&left, &right_stack);
    client.set_nonblocking(false).expect("always");
    let (ended, end) = std::sync::mpsc::channel();
    let other = client.try_clone().expect("always");
    let waits = left.counters().runtime.leader_waits;
    std::thread::spawn(move || ended.send(other.write_urgent(&[1; 5_000])));
    wait("the writer", || left.counters().runtime.leader_waits > waits);
    client.shutdown(Shutdown::Write).expect("connected");
    let outcome = end.recv_timeout(PATIENCE).expect("it was told");
    assert_eq!(outcome.expect_err("writing has ended").kind(), ErrorKind::BrokenPipe);
}

#[test]
fn who_may_not_wait_is_not_kept_by_another_writer() {
    assert!((0..10).any(|_| others_are_not_kept()), "room came each time");
}

/// Says false where room came before the others had tried: the peer may still take in what a window probe
/// brings, which a busy machine has time for.
fn others_are_not_kept() -> bool {
    let (left, right_stack) = pair();
    let (client, mut server) = full(&left, &right_stack);
    client.set_nonblocking(false).expect("always");
    let mut other = client.try_clone().expect("always");
    let waits = left.counters().runtime.leader_waits;
    let mut first = client.try_clone().expect("always");
    let first = std::thread::spawn(move || first.write(b"x"));
    wait("the first writer", || left.counters().runtime.leader_waits > waits);

    client.set_write_timeout(Some(Duration::from_millis(30))).expect("a timeout");
    let (ended, end) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        // Nobody listens any more where room came.
        let _ = ended.send(other.write(b"y"));
        other.set_nonblocking(true).expect("always");
        let _ = ended.send(other.write(b"y"));
    });
    for _ in 0..2 {
        let Err(error) = end.recv_timeout(PATIENCE).expect("it came back") else {
            wait("the end of the first writer's turn", || first.is_finished());
            return false;
        };
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
    }
    let (calls, waker) = Calls::new();
    let context = &mut Context::from_waker(&waker);
    if client.poll_write(context, b"y").is_ready() || calls.count() > 0 {
        return false;
    }
    let mut buffer = vec![0; 100_000];
    server.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
    while calls.count() == 0 || !first.is_finished() {
        drop(server.read(&mut buffer));
    }
    assert_eq!(first.join().expect("no panic").expect("there was room"), 1);
    assert_eq!(run(|it| client.poll_write(it, b"y")).expect("there is room"), 1);
    true
}

// Memory that others give back is room for a connection, too, though no acknowledgment comes with it.
#[test]
fn a_writer_whose_peer_keeps_silent_looks_for_memory_by_itself() {
    let (left, right_stack) = pair();
    let (client, server) = connected(&left, &right_stack);
    let all = left.pool().left_to_send_bytes();
    let held = left.pool().allocate(all - (1 << 20)).expect("it is left");
    // The peer reads nothing: its window fills up, and then the little memory that there is.
    let mut silent = 0;
    while silent < 20 {
        match client.poll_write(&mut Context::from_waker(Waker::noop()), &[7; 65_536]) {
            Poll::Ready(written) => silent = usize::from(written.expect("open") == 0),
            Poll::Pending => {
                std::thread::sleep(Duration::from_millis(10));
                silent += 1;
            }
        }
    }
    let (calls, waker) = Calls::new();
    assert!(client.poll_write(&mut Context::from_waker(&waker), &[7; 65_536]).is_pending());
    drop(held);
    calls.wait_for(1);
    let written = client.poll_write(&mut Context::from_waker(&waker), &[7; 65_536]);
    assert!(written.is_ready(), "its send buffer has room, and now there is memory");
    drop(server);
}

/// Writers whose peers read nothing have all of the pool that is shared. Whoever comes behind them is served, and they
/// are not called all the time for what is set aside.
#[test]
fn who_comes_behind_peers_that_read_nothing_is_served() {
    const STALLED: usize = 60;
    let (left, right_stack) = pair_with(|builder| {
        let pool = batch::PoolConfig {
            limit_bytes: 64 << 20,
            receive_reserve_bytes: 16 << 20,
            ..batch::PoolConfig::default()
        };
        builder.config(multidata::StackConfig { pool, ..multidata::StackConfig::default() })
    });
    let stalled: Vec<_> = (0..STALLED).map(|_| connected(&left, &right_stack)).collect();
    let (calls, waker) = Calls::new();
    let bytes = vec![7; 1 << 20];
    // Until their peers' windows are full as well.
    let mut quiet = 0;
    while quiet < 10 {
        quiet += 1;
        for (client, _) in &stalled {
            while client.poll_write(&mut Context::from_waker(&waker), &bytes).is_ready() {
                quiet = 0;
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let (started, before) = (Instant::now(), calls.count());
    for (client, _) in &stalled {
        // A window probe may have brought a little.
        while client.poll_write(&mut Context::from_waker(&waker), &bytes).is_ready() {}
    }
    let (client, server) = connected(&left, &right_stack);
    server.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    std::thread::scope(|scope| {
        scope.spawn(|| pair::check_pattern(&server, 5, 100_000));
        let mut pattern = pair::Pattern::new(5);
        let mut bytes = vec![0; 100_000];
        pattern.fill(&mut bytes);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let count = run(|it| client.poll_write(it, rest)).expect("the peer reads");
            rest = &rest[count..];
        }
        client.shutdown(Shutdown::Write).expect("connected");
    });
    let called = calls.count() - before;
    let took = started.elapsed();
    // One of them about every millisecond, as where there is no memory.
    assert!(called < STALLED / 2 + took.as_millis() as usize, "{called} in {took:?}");
}

#[test]
fn a_crowd_that_waits_for_memory_is_woken_by_turns() {
    const CROWD: usize = 300;
    let (left, right_stack) = pair();
    let listener = TcpListener::bind(&right_stack, right(0)).expect("a free port");
    let address = listener.local_addr().expect("bound");
    let open = |_| {
        let client = TcpStream::connect(&left, address).expect("the listener is there");
        (client, listener.accept().expect("it came"))
    };
    let pairs: Vec<_> = (0..CROWD).map(open).collect();
    let held = left.pool().allocate(left.pool().left_to_send_bytes()).expect("it is left");
    let log = Arc::new(Mutex::new(Vec::new()));
    struct Entry(usize, Arc<Mutex<Vec<usize>>>);
    impl Wake for Entry {
        fn wake(self: Arc<Self>) {
            self.1.lock().expect("no panic").push(self.0);
        }
    }
    for (at, (client, _)) in pairs.iter().enumerate() {
        let waker = Waker::from(Arc::new(Entry(at, Arc::clone(&log))));
        // It stands in the queue once, however often it asks.
        for _ in 0..2 {
            assert!(client.poll_write(&mut Context::from_waker(&waker), b"patience").is_pending());
        }
    }
    let order = || {
        let mut order = log.lock().expect("no panic").clone();
        // Who is the only one yet, and called between its two calls, enters again.
        order.dedup();
        order
    };
    let called = || order().len();
    // One at a time looks whether there is memory again, about every millisecond.
    wait("the first call", || called() > 0);
    assert!(called() < CROWD, "all of them at once");
    drop(held);
    wait("the last call", || called() >= CROWD);
    assert_eq!(order(), (0..CROWD).collect::<Vec<_>>(), "first come, first served");
}

#[test]
fn a_task_that_waits_for_room_finds_enough_for_a_block() {
    let (left, right_stack) = pair();
    let (client, mut server) = connected(&left, &right_stack);
    let total = 8 << 20;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let bytes = vec![7; 1 << 20];
            let (mut sent, mut least) = (0, usize::MAX);
            while sent < total {
                let len = bytes.len().min(total - sent);
                let count = run(|it| client.poll_write(it, &bytes[..len])).expect("open");
                sent += count;
                least = if sent < total { least.min(count) } else { least };
            }
            // The low-water mark, not the crumbs that every acknowledgment makes room for.
            assert!(least >= 65_536, "{least} bytes were worth waking the task");
        });
        // Slowly, so that the writer waits for it.
        let mut buffer = vec![0; 10_000];
        let mut received = 0;
        while received < total {
            received += server.read(&mut buffer).expect("sent");
        }
    });
}

#[test]
fn datagrams_wake_the_socket_that_they_are_for() {
    let (left, right_stack) = pair();
    let bind = |address: &str| {
        UdpSocket::bind_with(&right_stack, address, BindOptions::default()).expect("a free port")
    };
    let (one, other) = (bind("10.1.0.2:5001"), bind("10.1.0.2:5002"));
    let ((calls, waker), (others, others_waker)) = (Calls::new(), Calls::new());
    let mut buffer = [0; 16];
    let context = &mut Context::from_waker(&waker);
    assert!(one.poll_recv_from(context, &mut buffer).is_pending());
    let others_context = &mut Context::from_waker(&others_waker);
    assert!(other.poll_recv_from(others_context, &mut buffer).is_pending());
    let sender = UdpSocket::bind(&left, "10.1.0.1:0").expect("a free port");
    let sent = run(|it| sender.poll_send_to(it, b"datagram", Some(right(5001))));
    assert_eq!(sent.expect("a route"), 8);
    calls.wait_for(1);
    let Poll::Ready(Ok((8, from))) = one.poll_recv_from(context, &mut buffer) else {
        panic!("woken for nothing");
    };
    assert_eq!((from, &buffer[..8]), (sender.local_addr().expect("bound"), &b"datagram"[..]));
    assert_eq!((calls.count(), others.count()), (1, 0));
    let lost = run(|it| sender.poll_send_to(it, b"to whom", None)).expect_err("no peer");
    assert_eq!(lost.kind(), ErrorKind::InvalidInput);
}
