//! Sockets of datagrams that nobody reads, in all squeues of a stack: together they leave memory to connections.

mod pair;

use batch::{BlockPool, PoolConfig};
use counters::DropReason;
use multidata::UdpSocket;
use pair::{PATIENCE, check_pattern, connected, pair_with, right, send_pattern};
use std::time::Instant;

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
    while refused() < 3_000 {
        for port in 100..160 {
            for _ in 0..8 {
                sends.send_to(&[7; 1_400], right(port)).expect("room");
            }
        }
        assert!(started.elapsed() < PATIENCE, "{} are refused", refused());
    }
    let each = right_stack.squeue_gauges();
    assert!(
        each.iter().all(|of_one| of_one.datagrams_bytes > LIMIT_BYTES as u64 / 100),
        "{each:?}"
    );
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
