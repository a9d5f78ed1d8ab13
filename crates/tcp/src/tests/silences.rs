//! What begins behind a silence of the application or of the peer.

use super::harness::*;
use super::recovery::{RTT, path, sack_config};
use crate::Config;
use crate::sender::congestion::{Algorithm, Congestion as _, CongestionConfig};
use time::Duration;

// RFC 5681, 4.1: "if the TCP has not sent data in an interval exceeding the retransmission timeout".
fn grown() -> (Harness, usize) {
    let mut harness = path(Config { sack: false, ..sack_config() });
    let mut at = 0;
    for _ in 0..4 {
        let end = at + 40 * MSS;
        harness.write(&stream(at..end));
        while at < end {
            at += harness.take().len() * MSS;
            harness.pass(RTT);
            harness.receive(ACK, 1, 1 + at as u32, b"");
        }
    }
    assert!(harness.connection.congestion_window() >= 40_000);
    (harness, at)
}

#[test]
fn a_window_that_was_closed_for_long_leaves_no_burst() {
    let (mut harness, at) = grown();
    harness.window = 0;
    harness.receive(ACK, 1, 1 + at as u32, b"");
    harness.write(&stream(at..at + 40 * MSS));
    harness.expect_nothing();
    // It is probed for an hour.
    for _ in 0..3_600 {
        harness.pass(Duration::from_secs(1));
        harness.take();
        harness.receive(ACK, 1, 1 + at as u32, b"");
    }
    harness.window = 60_000;
    harness.receive(ACK, 1, 1 + at as u32, b"");
    let burst = harness.take().len();
    assert!(burst <= 10, "{burst} segments at once after an hour");
}

#[test]
fn a_crumb_in_the_queue_is_no_reason_to_burst_after_an_hour() {
    let (mut harness, at) = grown();
    harness.connection.set_cork(true);
    harness.write(&stream(at..at + 10));
    harness.expect_nothing();
    harness.pass(Duration::from_secs(3_600));
    harness.connection.set_cork(false);
    harness.write(&stream(at + 10..at + 40 * MSS));
    let burst = harness.take().len();
    assert!(burst <= 10, "{burst} segments at once after an hour");
}

// draft-ietf-ccwg-bbr, 4.1.2.4: CheckIfApplicationLimited, "the application asks ... to send".
#[test]
fn bbr_restarts_from_idle_after_a_flight_that_filled_the_window() {
    for segments in [9, 10] {
        let congestion =
            CongestionConfig { algorithm: Algorithm::Bbr, ..CongestionConfig::default() };
        let mut harness = path(Config { congestion, ..sack_config() });
        let mut at = 0;
        harness.write(&stream(at..segments * MSS));
        while at < segments * MSS {
            at += harness.take().len() * MSS;
            harness.pass(Duration::from_millis(1));
        }
        harness.pass(RTT);
        harness.receive(ACK, 1, 1 + at as u32, b"");
        harness.take();
        harness.pass(Duration::from_secs(20));
        harness.write(&stream(at..at + 5 * MSS));
        let from = at;
        while at < from + 5 * MSS {
            at += harness.take().len() * MSS;
            harness.pass(Duration::from_millis(1));
        }
        harness.pass(RTT);
        harness.receive(ACK, 1, 1 + at as u32, b"");
        let held = harness.connection.sender.congestion.is_holding_back();
        assert!(!held, "ProbeRTT behind an idle restart, {segments} segments in the first flight");
    }
}
