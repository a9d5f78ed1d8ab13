//! Sockets that nobody reads, in all squeues of a stack: together they leave memory to connections.

use crate::pair::{PATIENCE, check_pattern, connected, pair_with, right, send_pattern};
use batch::{BlockPool, PoolConfig};
use counters::DropReason;
use multidata::{Gauges, Stack, TcpListener, TcpStream, UdpSocket};
use std::io::{Read as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Whether each squeue holds more than so many bytes of what nobody has read.
fn each_holds(stack: &Stack, of: impl Fn(&Gauges) -> u64, more_than: usize) -> bool {
    stack.squeue_gauges().iter().all(|of_one| of(of_one) > more_than as u64)
}

#[test]
fn datagrams_that_nobody_reads_in_any_squeue_leave_memory_to_send_with() {
    const LIMIT_BYTES: usize = 2 << 20;
    let (left, right_stack) = pair_with(|builder| {
        let config = PoolConfig {
            limit_bytes: 8 << 20,
            receive_reserve_bytes: 2 << 20,
            datagrams_limit_bytes: Some(LIMIT_BYTES),
            ..PoolConfig::default()
        };
        builder.squeues(3).pool(BlockPool::new(config))
    });
    let unread: Vec<_> = (100..160)
        .map(|port| UdpSocket::bind(&right_stack, right(port)).expect("a free port"))
        .collect();
    let sends = UdpSocket::bind(&left, "0.0.0.0:0").expect("a free port");
    let started = Instant::now();
    let refused = || right_stack.counters().stack.drops.count(DropReason::DatagramsFull);
    // One squeue alone may have taken most, on a busy machine.
    let hold = || each_holds(&right_stack, |of_one| of_one.datagrams_bytes, LIMIT_BYTES / 100);
    while refused() < 3_000 || !hold() {
        for port in 100..160 {
            for _ in 0..8 {
                sends.send_to(&[7; 1_400], right(port)).expect("room");
            }
        }
        assert!(
            started.elapsed() < PATIENCE,
            "{} are refused, {:?}",
            refused(),
            right_stack.squeue_gauges()
        );
    }
    let gauges = right_stack.gauges();
    // What was charged ahead is little, and one in each queue comes on top.
    let bounds = LIMIT_BYTES as u64 / 10 * 9..(LIMIT_BYTES + 60 * 2_048) as u64;
    assert!(bounds.contains(&gauges.datagrams_bytes), "{gauges:?}");
    assert_eq!(right_stack.counters().stack.drops.count(DropReason::NoMemory), 0);
    let (client, server) = connected(&left, &right_stack);
    std::thread::scope(|scope| {
        scope.spawn(|| send_pattern(&server, 3, 4 << 20));
        check_pattern(&client, 3, 4 << 20);
    });
    drop(unread);
    assert_eq!(right_stack.gauges().datagrams_bytes, 0);
}

/// Such connections cannot be told that their windows are less than was announced.
#[test]
fn connections_that_nobody_reads_in_any_squeue_leave_memory_to_send_with() {
    const LIMIT_BYTES: usize = 2 << 20;
    let (left, right_stack) = pair_with(|builder| {
        let config = PoolConfig {
            limit_bytes: 8 << 20,
            receive_reserve_bytes: 2 << 20,
            streams_limit_bytes: Some(LIMIT_BYTES),
            ..PoolConfig::default()
        };
        builder.squeues(3).pool(BlockPool::new(config))
    });
    let listener = TcpListener::bind(&right_stack, right(100)).expect("a free port");
    let hoarders: Vec<_> = (0..60)
        .map(|_| {
            let client = TcpStream::connect(&left, right(100)).expect("it listens");
            client.set_nonblocking(true).expect("a socket");
            (client, listener.accept().expect("a connection").0)
        })
        .collect();
    let started = Instant::now();
    let refused = || right_stack.counters().stack.drops.count(DropReason::StreamsFull);
    let is_full = || right_stack.gauges().streams_bytes >= LIMIT_BYTES as u64 / 10 * 8;
    let hold = || each_holds(&right_stack, |of_one| of_one.streams_bytes, LIMIT_BYTES / 100);
    while refused() == 0 || !is_full() || !hold() {
        for (client, _) in &hoarders {
            let mut client = client;
            drop(client.write(&[7; 20_000]));
        }
        assert!(
            started.elapsed() < PATIENCE,
            "{} are refused, {:?}",
            refused(),
            right_stack.squeue_gauges()
        );
    }
    // What each has in any case, and what comes in one batch.
    let gauges = right_stack.gauges();
    assert!(gauges.streams_bytes < 2 * LIMIT_BYTES as u64, "{gauges:?}");
    assert_eq!(right_stack.counters().stack.drops.count(DropReason::NoMemory), 0);
    let (client, server) = connected(&left, &right_stack);
    std::thread::scope(|scope| {
        scope.spawn(|| send_pattern(&server, 3, 4 << 20));
        check_pattern(&client, 3, 4 << 20);
    });
    drop(hoarders);
    assert_eq!(right_stack.gauges().streams_bytes, 0);
}

/// How many segments came for readers that have their turns one after the other, as tasks do, and how many of them were
/// dropped; at least one turn took nothing in.
fn segments_for_busy_readers() -> (u64, u64) {
    const READ_BYTES: u64 = 32 << 20;
    let (left, right_stack) = pair_with(|builder| {
        let config = PoolConfig {
            limit_bytes: 64 << 20,
            receive_reserve_bytes: 16 << 20,
            streams_limit_bytes: Some(2 << 20),
            ..PoolConfig::default()
        };
        builder.pool(BlockPool::new(config))
    });
    let listener = TcpListener::bind(&right_stack, right(100)).expect("a free port");
    let connections: Vec<_> = (0..200)
        .map(|_| {
            let client = TcpStream::connect(&left, right(100)).expect("it listens");
            let server = listener.accept().expect("a connection").0;
            for end in [&client, &server] {
                end.set_nonblocking(true).expect("a socket");
            }
            (client, server)
        })
        .collect();
    let inhibited = || right_stack.counters().runtime.squeue_runs_inhibited;
    let (is_over, started) = (AtomicBool::new(false), Instant::now());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                for (client, _) in &connections {
                    let mut client = client;
                    drop(client.write(&[7; 65_536]));
                }
            }
        });
        let (mut bytes, mut out) = (0, vec![0; 65_536]);
        while (bytes < READ_BYTES || inhibited() == 0) && started.elapsed() < PATIENCE {
            for (_, server) in &connections {
                let mut server = server;
                bytes += server.read(&mut out).unwrap_or(0) as u64;
            }
            // Meanwhile more comes than may be unread.
            std::thread::sleep(Duration::from_millis(1));
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(bytes >= READ_BYTES && inhibited() > 0, "{bytes} bytes, {}", inhibited());
    });
    let counters = right_stack.counters().stack;
    (counters.tcp.segments_received, counters.drops.count(DropReason::StreamsFull))
}

/// What they do not keep up with is left in the device. Without that every fourth is dropped.
#[test]
fn little_is_taken_in_to_be_dropped_while_readers_are_busy() {
    let is_little = |(segments, dropped): (u64, u64)| dropped * 16 < segments;
    // On a busy machine the reader may be away for longer than it is waited for.
    assert!((0..6).any(|_| is_little(segments_for_busy_readers())), "of six rounds");
}
