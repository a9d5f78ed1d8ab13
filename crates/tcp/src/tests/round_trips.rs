//! Round trips where more is in flight than has a record of its own, for gigabytes.

use super::harness::*;
use super::recovery::{RTT, sack_config};
use crate::sender::congestion::{Algorithm, CongestionConfig};
use crate::{Config, Connection, Parameters};
use batch::{Block, Chunk};
use bytes::Bytes;
use time::{Duration, Instant};
use wire::TcpOptions;

// RFC 6298, 3 with RFC 7323: samples go on after 2 GiB of joined records.
#[test]
fn round_trips_are_measured_after_gigabytes_of_joined_records() {
    const SEGMENT: usize = 60_000;
    let congestion = CongestionConfig {
        algorithm: Algorithm::NewReno,
        initial_window_segments: 300_000,
        hystart: false,
        ..CongestionConfig::default()
    };
    let config = Config { congestion, window_scaling: true, ..sack_config() };
    let parameters = Parameters { mss_send_max: SEGMENT as u16, ..parameters(config) };
    let now = Instant::from_millis(10_000);
    let mut harness = Harness::wrap(Connection::connect(parameters, now), now);
    harness.expect_one();
    harness.now += RTT;
    harness.options = TcpOptions {
        mss: Some(SEGMENT as u16),
        sack_permitted: true,
        window_scale: Some(14),
        ..TcpOptions::default()
    };
    harness.receive(SYN | ACK, 0, 1, b"");
    harness.options = TcpOptions::default();
    harness.take();
    harness.window = u16::MAX;
    harness.receive(ACK, 1, 1, b"");
    harness.connection.set_send_buffer(1 << 30);
    let bytes = Bytes::from(vec![7; SEGMENT]);
    let mut sent: u64 = 1;
    let mut acked: u64 = 1;
    let send = |harness: &mut Harness, sent: &mut u64, count: usize| {
        for _ in 0..count {
            let chunk = Chunk::whole(Block::from(bytes.clone()));
            harness.connection.append(harness.now, chunk).expect("room");
        }
        harness.out.clear();
        let taken = harness.connection.poll_transmit(harness.now, &mut harness.out);
        assert_eq!(taken, count);
        harness.connection.on_transmitted(harness.now, taken);
        *sent += (count * SEGMENT) as u64;
    };
    let ack = |harness: &mut Harness, acked: u64| harness.receive(ACK, 1, acked as u32, b"");
    for _ in 0..2_100 {
        harness.now += Duration::from_micros(10);
        send(&mut harness, &mut sent, 2);
    }
    harness.now += RTT;
    while acked < 2_900_000_000 {
        harness.now += Duration::from_micros(25);
        acked += SEGMENT as u64;
        ack(&mut harness, acked);
        send(&mut harness, &mut sent, 1);
    }
    harness.now += RTT;
    acked = sent;
    ack(&mut harness, acked);
    for _ in 0..200 {
        send(&mut harness, &mut sent, 1);
        harness.now += Duration::from_millis(300);
        harness.connection.on_timeout(harness.now);
        acked = sent;
        ack(&mut harness, acked);
    }
    let smoothed = harness.connection.sender.rtt.smoothed().unwrap();
    assert!(smoothed > Duration::from_millis(250), "{smoothed:?}");
}
