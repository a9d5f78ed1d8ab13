//! What a connection says of itself.

use super::harness::*;
use crate::{Config, Pacing, RecoveryState, State};
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

/// The SYN is none of the bytes that were queued, before it was sent and while it is in flight.
#[test]
fn what_waits_for_the_handshake_was_never_sent() {
    let mut harness = Harness::connect(plain_config());
    harness.write(&stream(0..300));
    for syns in [0, 1] {
        let info = harness.connection.info(harness.now);
        assert_eq!((harness.connection.unsent_len(), info.unsent_bytes), (300, 300), "{syns}");
        harness.take();
    }
    harness.receive(SYN | ACK, 0, 1, b"");
    assert_eq!(harness.take_ranges(), [(1, 300)]);
    let info = harness.connection.info(harness.now);
    assert_eq!((harness.connection.unsent_len(), info.unsent_bytes), (0, 0));
    harness.connection.shutdown_write();
    harness.take();
    harness.connection.abort();
    assert_eq!(harness.connection.unsent_len(), 0);
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

// RFC 6298, 2.2: "SRTT <- R, RTTVAR <- R/2"; 2.3: RTTVAR by a quarter towards |SRTT - R'|, then SRTT by an eighth.
#[test]
fn how_round_trips_vary_is_told() {
    let mut harness = Harness::connect(plain_config());
    let info = harness.connection.info(harness.now);
    assert_eq!((info.rtt, info.rtt_variation), (None, None), "nothing is measured");
    harness.expect_one();
    harness.now += Duration::from_millis(100);
    harness.receive(SYN | ACK, 0, 1, b"");
    harness.take();
    let told = |harness: &Harness| {
        let info = harness.connection.info(harness.now);
        [info.rtt, info.rtt_variation, info.rtt_min].map(|time| time.expect("measured").as_micros())
    };
    assert_eq!(told(&harness), [100_000, 50_000, 100_000]);
    for (sent_before, rtt_ms, expected) in
        [(0, 60, [95_000, 47_500, 60_000]), (1, 180, [105_625, 56_875, 60_000])]
    {
        harness.write(&stream(0..500));
        harness.take();
        harness.now += Duration::from_millis(rtt_ms);
        harness.receive(ACK, 1, 500 * (sent_before + 1) + 1, b"");
        assert_eq!(told(&harness), expected);
    }
    assert_eq!(harness.connection.info(harness.now).rto.as_micros(), 105_625 + 4 * 56_875);
}

// As Linux (tcp_rate_gen): what the application bounded says how fast the path is at least.
#[test]
fn a_rate_that_the_application_bounded_is_told_while_it_is_the_highest() {
    let config = Config { nodelay: true, pacing: Pacing::Off, ..plain_config() };
    let mut harness = Harness::established(config);
    let told = |harness: &Harness| harness.connection.info(harness.now).delivery_rate;
    assert_eq!(told(&harness), None);
    let mut acknowledged = 1;
    for (rtt_ms, expected) in [
        // Nothing had run dry when the first was sent.
        (40, (25_000, false)),
        (20, (50_000, true)),
        (80, (50_000, true)),
    ] {
        harness.write(&stream(0..1_000));
        harness.take();
        harness.now += Duration::from_millis(rtt_ms);
        acknowledged += 1_000;
        harness.receive(ACK, 1, acknowledged, b"");
        assert_eq!(told(&harness), Some(expected), "after {rtt_ms} ms");
    }
    // More than the window: the flight that begins still knows that the application paused, the next is the path's.
    harness.write(&stream(0..50_000));
    for (rtt_ms, limited) in [(100, true), (500, false)] {
        let flight_bytes = 1_000 * harness.take().len() as u32;
        harness.now += Duration::from_millis(rtt_ms);
        acknowledged += flight_bytes;
        harness.receive(ACK, 1, acknowledged, b"");
        let rate = u64::from(flight_bytes) * 1_000 / rtt_ms;
        assert_eq!(told(&harness), Some((rate, limited)), "{flight_bytes} bytes in {rtt_ms} ms");
    }
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
