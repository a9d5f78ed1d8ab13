//! What a connection says of itself.

use super::harness::*;
use crate::{Config, RecoveryState, State};
use time::Duration;
use wire::{TcpOptions, TcpTimestamps};

#[test]
fn the_sums_are_those_of_what_was_sent_and_received() {
    let config = Config {
        timestamps: true,
        sack: true,
        window_scaling: true,
        nodelay: true,
        ..plain_config()
    };
    let options = TcpOptions {
        mss: Some(MSS as u16),
        sack_permitted: true,
        window_scale: Some(3),
        timestamps: Some(TcpTimestamps { value: 1, echo: 11_000 }),
        ..TcpOptions::default()
    };
    let mut harness = Harness::established_with(config, options);
    harness.write(&stream(0..2_500));
    assert_eq!(harness.take().len(), 3);
    harness.now += Duration::from_millis(30);
    harness.receive(ACK, 1, 989, &stream(0..700));
    harness.receive(ACK, 1_001, 989, &stream(1_000..1_400));
    harness.take();
    let info = harness.connection.info(harness.now + Duration::from_millis(5));
    assert_eq!((info.state, info.recovery), (State::Established, RecoveryState::Open));
    assert!(info.timestamps && info.sack && !info.ecn);
    assert_eq!(info.window_scale, Some((3, 0)));
    assert_eq!((info.send_mss_bytes, info.advertised_mss_bytes), (988, 1_000));
    assert_eq!(
        (info.data_segments_sent, info.bytes_sent, info.bytes_acknowledged),
        (3, 2_500, 988)
    );
    assert_eq!((info.unacknowledged_bytes, info.unsent_bytes), (1_512, 0));
    assert_eq!(info.outstanding.all, 2);
    assert_eq!((info.data_segments_received, info.bytes_received), (2, 700));
    assert_eq!(info.segments_out_of_order, 1);
    // The SYN-ACK, two with data; the SYN, its ACK, three with data, two ACKs.
    assert_eq!((info.segments_received, info.segments_sent), (3, 6));
    assert_eq!(info.since_data_sent, Duration::from_millis(35));
    assert_eq!(info.since_received, Duration::from_millis(5));
    assert_eq!(info.since_data_received, Duration::from_millis(5));
    assert_eq!(info.rtt_min, Some(Duration::from_millis(30)), "the handshake took no time");
    assert_eq!(info.busy, Duration::from_millis(35));
    assert_eq!(info.congestion, "cubic");
    harness.pass(Duration::from_millis(500));
    let info = harness.connection.info(harness.now);
    assert_eq!(info.recovery, RecoveryState::Loss);
    assert!(info.retransmits > 0 && info.backoff > 0 && info.segments_retransmitted > 0);
}

#[test]
fn the_time_that_the_peers_window_cost_is_told() {
    let mut harness = Harness::established(plain_config());
    harness.window = 0;
    harness.receive(ACK, 1, 1, b"");
    harness.write(&stream(0..2_000));
    harness.take();
    harness.now += Duration::from_millis(70);
    harness.window = 4_000;
    harness.receive(ACK, 1, 1, b"");
    assert_eq!(harness.take_ranges(), [(1, 1_000), (1_001, 1_000)]);
    harness.now += Duration::from_millis(30);
    harness.receive(ACK, 1, 2_001, b"");
    harness.now += Duration::from_millis(900);
    let info = harness.connection.info(harness.now);
    assert_eq!(info.window_limited, Duration::from_millis(70));
    assert_eq!(info.busy, Duration::from_millis(100));
}

// RFC 6298, 2.2 and 2.3. The handshake took no time.
#[test]
fn how_round_trips_vary_is_told() {
    let mut harness = Harness::established(plain_config());
    let info = harness.connection.info(harness.now);
    assert_eq!((info.rtt, info.rtt_variation), (Some(Duration::ZERO), Some(Duration::ZERO)));
    harness.write(&stream(0..1_000));
    harness.take();
    harness.now += Duration::from_millis(80);
    harness.receive(ACK, 1, 1_001, b"");
    let info = harness.connection.info(harness.now);
    let expected = (Duration::from_millis(10), Duration::from_millis(20));
    assert_eq!((info.rtt, info.rtt_variation), (Some(expected.0), Some(expected.1)));
}

#[test]
fn what_is_lost_and_sent_again_is_told() {
    let config = Config { sack: true, nodelay: true, ..plain_config() };
    let options =
        TcpOptions { mss: Some(MSS as u16), sack_permitted: true, ..TcpOptions::default() };
    let mut harness = Harness::established_with(config, options);
    harness.write(&stream(0..9_000));
    assert_eq!(harness.take().len(), 9);
    harness.now += Duration::from_millis(40);
    let mut ack = harness.header(ACK, 1, 1);
    ack.options.sack.push(ISS + 3_001, ISS + 9_001);
    harness.receive_header(&ack, b"").expect("acceptable");
    let info = harness.connection.info(harness.now);
    assert_eq!(info.recovery, RecoveryState::Fast);
    assert_eq!((info.sacked_bytes, info.lost_bytes, info.again_bytes), (6_000, 3_000, 0));
    assert_eq!((info.delivered_bytes, info.lost_bytes_total), (6_000, 3_000));
    assert_eq!(info.delivery_rate, Some((150_000, false)), "6,000 bytes in 40 ms");
    harness.take();
    let info = harness.connection.info(harness.now);
    assert!(info.again_bytes > 0 && info.again_bytes + info.lost_bytes == 3_000);
    assert!(info.segments_retransmitted > 0);
}
