//! The receive buffer follows what the application reads in a round trip.

use super::harness::*;
use crate::Config;
use batch::{BlockPool, PoolConfig};
use time::Duration;
use wire::{TcpOptions, TcpTimestamps};

const RTT: Duration = Duration::from_millis(20);

fn established() -> Harness {
    let config = Config {
        timestamps: true,
        window_scaling: true,
        receive_buffer_bytes: 4 << 20,
        receive_buffer_bytes_initial: 128 << 10,
        ..plain_config()
    };
    let options = TcpOptions {
        mss: Some(MSS as u16),
        window_scale: Some(7),
        timestamps: Some(TcpTimestamps { value: 1, echo: 1 }),
        ..TcpOptions::default()
    };
    let mut harness = Harness::connect(config);
    harness.expect_one();
    harness.now += RTT;
    harness.options = options;
    harness.receive(SYN | ACK, 0, 1, b"");
    harness.expect_one();
    harness
}

/// The peer sends `bytes` in one round trip, echoing the clock as it was one ago; the application
/// reads them, if it does. Returns the window that is offered then.
fn round(harness: &mut Harness, next: &mut u32, bytes: usize, reads: bool) -> usize {
    let sent_at = harness.now;
    harness.pass(RTT);
    // Our clock in milliseconds, with the harness's offset.
    let echo = (sent_at.as_millis() + 1_000) as u32;
    let value = harness.now.as_millis() as u32;
    harness.options.timestamps = Some(TcpTimestamps { value, echo });
    for _ in 0..bytes / 900 {
        let header = harness.header(ACK, *next, 1);
        harness.receive_header(&header, &stream(0..900)).expect("within the window");
        *next += 900;
    }
    harness.connection.on_batch_end(harness.now);
    if reads {
        harness.read(bytes);
    }
    let window = harness.take().last().map_or(0, |ack| ack.header.window);
    usize::from(window) << 7
}

#[test]
fn the_window_grows_with_what_is_read_up_to_the_limit() {
    let mut harness = established();
    let (mut next, mut offered) = (1, 128 << 10);
    for _ in 0..12 {
        // A peer in slow start, or one that uses all it is offered.
        let bytes = offered / 2;
        offered = round(&mut harness, &mut next, bytes, true).max(offered);
    }
    assert!(offered > 3 << 20, "{offered} bytes");
    assert!(harness.connection.receive_buffer() <= 4 << 20);
    assert!(harness.connection.counters().receive_buffer_growths >= 2);
}

#[test]
fn a_window_that_is_not_read_does_not_grow() {
    let mut harness = established();
    let mut next = 1;
    for _ in 0..10 {
        round(&mut harness, &mut next, 10_000, false);
    }
    assert_eq!(harness.connection.receive_buffer(), 128 << 10);
}

#[test]
fn a_size_that_the_user_fixed_stays() {
    let mut harness = established();
    harness.connection.set_receive_buffer(200_000);
    let mut next = 1;
    for _ in 0..10 {
        round(&mut harness, &mut next, 90_000, true);
    }
    assert_eq!(harness.connection.receive_buffer(), 200_000);
}

/// A connection with little room, and the window that the next segment announces.
fn narrow(initial_bytes: usize) -> Harness {
    let config = Config {
        receive_buffer_bytes: 20_000,
        receive_buffer_bytes_initial: initial_bytes,
        ..plain_config()
    };
    let mut harness = Harness::connect(config);
    harness.expect_one();
    harness.now += RTT;
    harness.receive(SYN | ACK, 0, 1, b"");
    harness.expect_one();
    harness
}

// RFC 9293, 3.8.6.2.2: nothing is owed, and no read follows, when the round trip is over in which much was
// read.
#[test]
fn a_buffer_that_grows_when_all_is_read_and_acknowledged_is_told_of() {
    let mut harness = narrow(2_000);
    let mut next = 1;
    for _ in 0..15 {
        harness.receive(ACK, next, 1, &stream(0..900));
        next += 900;
        harness.read(900);
        harness.flush();
    }
    harness.pass(Duration::from_secs(1));
    harness.take();
    assert_eq!(harness.connection.receive_buffer(), 2_000);
    harness.receive(ACK, next, 1, b"");
    assert_eq!(harness.connection.receive_buffer(), 20_000);
    let told = harness.expect_one();
    assert_eq!((told.acknowledgment(), told.header.window), (next, 20_000));
}

#[test]
fn a_buffer_that_the_user_enlarges_is_told_of() {
    let mut harness = narrow(20_000);
    harness.connection.set_receive_buffer(2_000);
    harness.receive(ACK, 1, 1, &stream(0..1_000));
    harness.receive(ACK, 1_001, 1, &stream(0..900));
    harness.read(1_900);
    harness.pass(Duration::from_secs(1));
    harness.take();
    harness.connection.set_receive_buffer(60_000);
    let told = harness.expect_one();
    assert_eq!((told.acknowledgment(), told.header.window), (1_901, 60_000));
    harness.connection.set_receive_buffer(65_000);
    harness.expect_nothing();
}

// RFC 9293, 3.8.6.2.1: what was announced is not taken back, but no more is offered.
#[test]
fn where_blocks_are_scarce_the_window_stops_growing_and_keeps_its_edge() {
    let mut harness = established();
    harness.pool = BlockPool::new(PoolConfig {
        limit_bytes: 100_000,
        receive_reserve_bytes: 90_000,
        streams_limit_bytes: Some(usize::MAX),
        ..PoolConfig::default()
    });
    let held = harness.pool.allocate_receive(16_000).expect("room");
    let mut next = 1;
    let mut edge = 0;
    for _ in 0..10 {
        let window = round(&mut harness, &mut next, 20_000, true);
        assert!(next as usize + window + 127 >= edge, "the edge moved back");
        edge = edge.max(next as usize + window);
    }
    assert_eq!(harness.connection.receive_buffer(), 128 << 10);
    assert!(edge <= next as usize + (64 << 10), "{} bytes offered", edge - next as usize);
    drop(held);
    let mut offered = 0;
    for _ in 0..10 {
        offered = round(&mut harness, &mut next, 40_000, true);
    }
    assert!(offered > 128 << 10, "{offered} bytes");
}
