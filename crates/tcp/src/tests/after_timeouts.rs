//! What follows a retransmission timeout, and what proves it needless.

use super::harness::*;
use super::recovery::{RTT, in_flight, path, sack, sack_config, timed_out_twice};
use crate::sender::congestion::{Algorithm, Congestion as _};
use crate::{Config, State};
use time::Duration;
use wire::SackBlocks;

fn sack_with(harness: &mut Harness, seq: u32, ack: u32, blocks: &[(u32, u32)], data: &[u8]) {
    harness.options.sack = SackBlocks::NONE;
    for (start, end) in blocks {
        harness.options.sack.push(ISS + *start, ISS + *end);
    }
    harness.receive(ACK, seq, ack, data);
    harness.options.sack = SackBlocks::NONE;
}

fn timeouts(harness: &Harness) -> u64 {
    harness.connection.counters().retransmission_timeouts
}

// RFC 5681, 4.3: the loss of a retransmission: "cwnd (and ssthresh) MUST be lowered twice".
#[test]
fn a_timeout_in_fast_recovery_does_not_raise_the_threshold() {
    for algorithm in [Algorithm::NewReno, Algorithm::Cubic] {
        let mut config = sack_config();
        config.congestion.algorithm = algorithm;
        let mut harness = in_flight(path(config), 10);
        harness.write(&stream(10_000..59_000));
        let mut end = 10_001;
        for _ in 0..12 {
            sack(&mut harness, 1, &[(1_001, end)]);
            for (start, len) in harness.take_ranges() {
                end = end.max(start + len as u32);
            }
            harness.now += RTT;
        }
        assert_eq!((timeouts(&harness), harness.connection.counters().fast_recoveries), (0, 1));
        let threshold = harness.connection.sender.congestion.slow_start_threshold();
        while timeouts(&harness) == 0 {
            harness.take();
            harness.pass_to_deadline();
        }
        let after = harness.connection.sender.congestion.slow_start_threshold();
        assert!(after <= threshold, "{algorithm:?}: {threshold} became {after}");
    }
}

// RFC 5682, 3.1, 3.b: what was SACKed before is no news.
#[test]
fn what_was_sacked_before_and_forgotten_proves_no_timeout_spurious() {
    let mut harness = timed_out_twice(4, &[(1_001, 4_001)]);
    // The peer sends data of its own, with the blocks that it has had all along.
    sack_with(&mut harness, 1, 1, &[(1_001, 4_001)], b"x");
    assert_eq!(harness.connection.counters().spurious_timeouts, 0);
    assert_eq!(harness.connection.congestion_window(), 1_000);
}

// RFC 6298, 5.5: the timer backs off while nothing of ours arrives, though the peer goes on sending.
#[test]
fn the_timer_backs_off_while_the_peer_sends_data() {
    let config = Config { retries: 5, ..sack_config() };
    let mut harness = in_flight(path(config), 4);
    sack(&mut harness, 1, &[(1_001, 4_001)]);
    harness.take();
    for seq in 1..=1_200 {
        harness.pass(Duration::from_millis(100));
        if harness.connection.state() == State::Closed {
            break;
        }
        sack_with(&mut harness, seq, 1, &[(1_001, 4_001)], b"x");
        harness.take();
        harness.read(10);
    }
    assert_eq!(harness.connection.counters().spurious_timeouts, 0);
    assert_eq!(harness.connection.state(), State::Closed, "R2 is reached");
}

// Nor is it reordering.
#[test]
fn what_was_sacked_before_and_forgotten_is_no_reordering() {
    let mut harness = timed_out_twice(5, &[(3_001, 5_001), (1_001, 2_001)]);
    harness.now += RTT;
    sack(&mut harness, 2_001, &[(3_001, 5_001)]);
    assert_eq!(harness.connection.counters().reordering_seen, 0);
}

// RFC 5682, 3.1, step 2: duplicate ACKs before that of the retransmission: "Stay in step 2".
#[test]
fn what_was_sent_just_before_the_timeout_proves_nothing() {
    let mut harness = path(sack_config());
    harness.write(&stream(0..1_000));
    assert_eq!(harness.take_ranges(), [(1, 1_000)]);
    // Lost; so is the probe.
    harness.pass_to_deadline();
    assert_eq!(harness.take_ranges(), [(1, 1_000)]);
    assert_eq!(harness.connection.counters().tail_loss_probes, 1);
    let deadline = harness.connection.poll_timeout().unwrap();
    harness.now += deadline.since(harness.now) - Duration::from_millis(10);
    harness.write(&stream(1_000..2_000));
    assert_eq!(harness.take_ranges(), [(1_001, 1_000)]);
    while timeouts(&harness) == 0 {
        harness.pass_to_deadline();
    }
    assert_eq!(harness.take_ranges(), [(1, 1_000)]);
    harness.now += Duration::from_millis(90);
    sack(&mut harness, 1, &[(1_001, 2_001)]);
    assert_eq!(harness.connection.counters().spurious_timeouts, 0);
    assert_eq!(harness.connection.congestion_window(), 1_000);
}

// RFC 5682, 3.1, step 3.b: spurious: "continue ... new data"; nothing of it was lost.
#[test]
fn a_timeout_that_is_taken_back_is_no_fast_recovery_in_the_same_breath() {
    let mut harness = path(sack_config());
    harness.write(&stream(0..10_000));
    assert_eq!(harness.take().len(), 10);
    harness.write(&stream(10_000..20_000));
    let before = harness.connection.congestion_window();
    while timeouts(&harness) == 0 {
        harness.pass_to_deadline();
        harness.take();
    }
    // The path stood still for a while: what comes now are the ACKs of the originals.
    harness.now += Duration::from_millis(150);
    for ack in 1..=10 {
        harness.now += Duration::from_millis(1);
        harness.receive(ACK, 1, 1 + ack * 1_000, b"");
        harness.take();
    }
    let counters = harness.connection.counters();
    assert_eq!((counters.spurious_timeouts, counters.fast_recoveries), (1, 0));
    assert!(harness.connection.congestion_window() >= before);
}

// RFC 8985, 8: the timers are mutually exclusive.
#[test]
fn one_late_call_is_not_two_reductions() {
    let mut harness = in_flight(path(sack_config()), 3);
    sack(&mut harness, 1, &[(1_001, 2_001)]);
    harness.expect_nothing();
    harness.now += Duration::from_millis(350);
    harness.connection.on_timeout(harness.now);
    assert_eq!((harness.connection.counters().fast_recoveries, timeouts(&harness)), (1, 0));
}

// RFC 5681, 3.1: the loss window is that of the connection, whoever looks after it.
#[test]
fn another_controller_begins_with_the_window_that_a_loss_has_left() {
    let mut harness = path(sack_config());
    harness.write(&stream(0..10_000));
    assert_eq!(harness.take().len(), 10);
    while timeouts(&harness) == 0 {
        harness.pass_to_deadline();
    }
    harness.connection.set_congestion(harness.now, Algorithm::Cubic);
    assert_eq!(harness.connection.congestion_window(), 1_000);
    assert_eq!(harness.take().len(), 1);

    let mut harness = in_flight(path(sack_config()), 10);
    sack(&mut harness, 1, &[(1_001, 4_001)]);
    harness.take();
    harness.connection.set_congestion(harness.now, Algorithm::Cubic);
    let reduced = harness.connection.congestion_window();
    assert_eq!(reduced, 7_000);
    harness.receive(ACK, 1, 9_001, b"");
    assert_eq!(harness.connection.congestion_window(), reduced, "no growth in recovery");
    harness.receive(ACK, 1, 10_001, b"");
    harness.write(&stream(0..60_000));
    for _ in 0..20 {
        if let Some(last) = harness.take().last() {
            harness.now += RTT;
            harness.receive(ACK, 1, last.sequence() + last.payload.len() as u32, b"");
        }
    }
    assert!(harness.connection.congestion_window() > reduced, "but behind it");
}

// RFC 4015, 3: the timer is restarted where a timeout was spurious, with the timeout that it had before.
#[test]
fn a_timeout_that_is_taken_back_leaves_no_backed_off_timer() {
    let mut harness = path(sack_config());
    harness.write(&stream(0..4_000));
    harness.take();
    while timeouts(&harness) == 0 {
        harness.pass_to_deadline();
        harness.take();
    }
    harness.now += Duration::from_millis(10);
    sack(&mut harness, 1, &[(1_001, 2_001)]);
    assert_eq!(harness.connection.counters().spurious_timeouts, 1);
    harness.take();
    let deadline = harness.connection.timers.deadline(crate::timers::Timer::Retransmission);
    assert_eq!(deadline, Some(harness.now + harness.connection.sender.rtt.rto()));
}

// RFC 5681, 3.1: the threshold is held constant where a segment times out that the timer has sent again before, though
// the peer, whose window is closed, answers each time.
#[test]
fn a_second_timeout_at_a_closed_window_leaves_the_threshold() {
    let mut harness = in_flight(path(sack_config()), 10);
    harness.window = 0;
    let mut thresholds = Vec::new();
    for count in 1..20 {
        while timeouts(&harness) < count {
            harness.pass_to_deadline();
            harness.take();
        }
        thresholds.push(harness.connection.sender.congestion.slow_start_threshold());
        harness.now += Duration::from_millis(10);
        harness.receive(ACK, 1, 1, b"");
    }
    assert_eq!(thresholds, [5_000; 19]);
    assert_eq!(
        harness.connection.state(),
        State::Established,
        "it lives for as long as it answers"
    );
}

// draft-ietf-ccwg-bbr, 4.1.1: what was delivered counts once: not again where it was SACKed, forgotten and acknowledged.
#[test]
fn what_was_sacked_before_and_forgotten_is_no_delivery_rate() {
    let mut harness = timed_out_twice(10, &[(1_001, 10_001)]);
    let before = harness.connection.sender.recovery.rate.last();
    assert_eq!(before, Some((90_000, false)));
    harness.now += RTT;
    harness.receive(ACK, 1, 10_001, b"");
    assert_eq!(harness.connection.sender.recovery.rate.last(), before);
    let mut harness = in_flight(harness, 1);
    harness.receive(ACK, 1, 11_001, b"");
    assert!(harness.connection.sender.recovery.rate.last().expect("measured").0 <= 90_000);
}
