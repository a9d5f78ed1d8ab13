//! What a silence of the application does to the congestion window.

use super::harness::*;
use crate::Config;
use crate::sender::congestion::{CongestionConfig, Idle};
use time::Duration;
use wire::TcpOptions;

const SECOND: Duration = Duration::from_secs(1);

/// How many segments go at once after a silence, on a path of this round trip on which forty
/// have gone at once before.
fn burst_after(silence: Duration, round_trip: Duration, idle: Idle) -> usize {
    let congestion = CongestionConfig { idle, ..CongestionConfig::default() };
    let pacing = crate::Pacing::Off;
    let mut harness = Harness::connect(Config { congestion, pacing, ..plain_config() });
    harness.expect_one();
    harness.pass(round_trip);
    harness.options = TcpOptions { mss: Some(MSS as u16), ..TcpOptions::default() };
    harness.receive(SYN | ACK, 0, 1, b"");
    harness.options = TcpOptions::default();
    harness.expect_one();
    let mut at = 0;
    let mut send = |harness: &mut Harness, count: usize| {
        harness.write(&stream(at..at + count * MSS));
        let mut first = 0;
        let end = at + count * MSS;
        while at < end {
            let sent = harness.take().len();
            assert!(sent > 0, "the acknowledgment of all lets something go");
            if first == 0 {
                first = sent;
            }
            at += sent * MSS;
            harness.pass(round_trip);
            harness.receive(ACK, 1, 1 + at as u32, b"");
        }
        first
    };
    for count in [40, 40, 40] {
        send(&mut harness, count);
    }
    assert_eq!(send(&mut harness, 40), 40, "the window has grown");
    harness.pass(silence);
    send(&mut harness, 40)
}

// RFC 5681, 4.1 and RFC 2861: a window proves nothing when nothing was sent for longer than the timeout.
#[test]
fn a_long_silence_takes_the_window_back_to_the_initial_one() {
    assert_eq!(burst_after(SECOND, Duration::from_millis(10), Idle::Decay), 10);
    assert_eq!(burst_after(SECOND, Duration::from_millis(10), Idle::Restart), 10);
}

#[test]
fn on_a_near_path_the_window_outlives_it_unless_the_restart_is_asked_for() {
    assert_eq!(burst_after(SECOND, Duration::from_micros(100), Idle::Decay), 40);
    assert_eq!(burst_after(SECOND, Duration::from_micros(100), Idle::Restart), 10);
}

// RFC 7661, 4.4: no window is taken for valid for more than five minutes.
#[test]
fn on_a_near_path_it_does_not_outlive_five_minutes() {
    let near = Duration::from_micros(100);
    assert_eq!(burst_after(Duration::from_secs(299), near, Idle::Decay), 40);
    assert_eq!(burst_after(Duration::from_secs(301), near, Idle::Decay), 10);
}
