//! Resets and blind attacks (RFC 9293, 3.10.7.4; RFC 5961).

use super::harness::*;
use crate::{ConnectionError, State};
use counters::DropReason;
use time::Duration;

// RFC 5961, 3.2.
#[test]
fn only_an_exact_reset_is_obeyed() {
    let mut harness = Harness::established(plain_config());
    assert_eq!(harness.try_receive(RST, 2, 0, b""), Err(DropReason::OutOfWindow));
    let challenge = harness.expect_one();
    assert_eq!((challenge.header.flags, challenge.acknowledgment()), (ACK, 1));
    assert_eq!(harness.try_receive(RST, 30_000, 0, b""), Err(DropReason::OutOfWindow));
    assert_eq!(harness.try_receive(RST, 0, 0, b""), Err(DropReason::OutOfWindow));
    harness.expect_nothing();
    assert_eq!(harness.connection.state(), State::Established);
    harness.receive(RST, 1, 0, b"");
    assert_eq!(harness.connection.state(), State::Closed);
    assert_eq!(harness.connection.error(), Some(ConnectionError::Reset));
    assert_eq!(harness.connection.poll_timeout(), None);
}

// A peer that gives up with a full window under way resets with its SND.NXT.
#[test]
fn a_reset_at_the_right_edge_of_the_window_is_challenged() {
    let mut harness = Harness::established(plain_config());
    let edge = 1 + 20_000;
    assert_eq!(harness.try_receive(RST, edge + 1, 0, b""), Err(DropReason::OutOfWindow));
    harness.expect_nothing();
    assert_eq!(harness.try_receive(RST, edge, 0, b""), Err(DropReason::OutOfWindow));
    let challenge = harness.expect_one();
    assert_eq!((challenge.header.flags, challenge.acknowledgment()), (ACK, 1));
    // The peer has no connection any more, and answers with a reset that is exact.
    harness.receive(RST, 1, 0, b"");
    assert_eq!(harness.connection.error(), Some(ConnectionError::Reset));
}

// RFC 5961, 4.2.
#[test]
fn a_syn_in_the_window_is_challenged() {
    let mut harness = Harness::established(plain_config());
    assert_eq!(harness.try_receive(SYN, 5, 0, b""), Err(DropReason::BadState));
    assert_eq!(harness.expect_one().header.flags, ACK);
    assert_eq!(harness.connection.state(), State::Established);
}

// RFC 5961, 5.2.
#[test]
fn an_ack_of_the_future_or_the_far_past_is_challenged_and_its_data_dropped() {
    let mut harness = Harness::established(plain_config());
    assert_eq!(harness.try_receive(ACK, 1, 2, b"evil"), Err(DropReason::BadAck));
    assert_eq!(harness.expect_one().acknowledgment(), 1);
    harness.window = 10;
    let old = 1_u32.wrapping_sub(60_001);
    assert_eq!(harness.try_receive(ACK, 1, old, b"evil"), Err(DropReason::BadAck));
    let within = 1_u32.wrapping_sub(60_000);
    harness.receive(ACK, 1, within, b"good");
    assert_eq!(harness.read(10), b"good");
}

// RFC 5961, 7.
#[test]
fn challenges_are_limited() {
    let mut harness = Harness::established(plain_config());
    for _ in 0..50 {
        let _ = harness.try_receive(SYN, 5, 0, b"");
        harness.flush();
    }
    assert_eq!(harness.take().len(), 10);
    assert_eq!(harness.connection.counters().challenge_acks_limited, 40);
    harness.pass(Duration::from_secs(1));
    let _ = harness.try_receive(SYN, 5, 0, b"");
    harness.expect_one();
}

#[test]
fn segments_outside_the_window_are_answered_and_dropped() {
    let mut harness = Harness::established(plain_config());
    assert_eq!(harness.try_receive(ACK, 20_002, 1, b"beyond"), Err(DropReason::OutOfWindow));
    assert_eq!(harness.expect_one().acknowledgment(), 1);
    assert_eq!(harness.try_receive(ACK, 0, 1, b""), Err(DropReason::OutOfWindow));
    assert_eq!(harness.expect_one().acknowledgment(), 1, "a keepalive is answered");
    harness.receive(ACK, 1, 1, b"abc");
    assert_eq!(harness.try_receive(ACK, 1, 1, b"abc"), Err(DropReason::Duplicate));
    assert_eq!(harness.expect_one().acknowledgment(), 4);
    assert_eq!(harness.try_receive(PSH, 4, 0, b"no ack"), Err(DropReason::BadAck));
}

#[test]
fn the_error_comes_after_what_was_received() {
    let mut harness = Harness::established(plain_config());
    harness.receive(ACK, 1, 1, b"before");
    harness.receive(RST, 7, 0, b"");
    assert_eq!(harness.read(20), b"before");
    let mut out = [0; 4];
    assert_eq!(harness.connection.read(&mut out), Err(ConnectionError::Reset));
}

// RFC 5961, 3.2: only a reset at the peer's RCV.NXT is obeyed, and whether that is behind the byte that probed its
// window or before it is not known until it answers.
#[test]
fn an_abort_behind_an_unanswered_probe_is_heard_whether_the_peer_took_its_byte_or_not() {
    for is_answered in [false, true] {
        let mut harness = Harness::established(plain_config());
        harness.write(b"a");
        harness.expect_one();
        harness.window = 0;
        harness.receive(ACK, 1, 2, b"");
        harness.write(b"bc");
        harness.expect_nothing();
        harness.pass_to_deadline();
        assert_eq!(harness.take_ranges(), [(2, 1)], "a probe");
        if is_answered {
            harness.receive(ACK, 1, 2, b"");
        }
        harness.connection.abort();
        let resets = harness.take();
        assert!(resets.iter().all(|reset| reset.header.flags == RST | ACK));
        let sequences: Vec<_> = resets.iter().map(|reset| reset.sequence()).collect();
        assert_eq!(sequences, if is_answered { vec![2] } else { vec![2, 3] });
        assert!(harness.connection.is_finished());
    }
}

// RFC 9293, 3.8.6, MUST-34: a sender must be robust against a window that shrinks: beyond its edge no reset is taken.
#[test]
fn an_abort_is_within_a_window_that_has_shrunk() {
    for window in [0, 500] {
        let mut harness = Harness::established(plain_config());
        harness.write(&stream(0..3_000));
        assert_eq!(harness.take().len(), 3);
        harness.window = window;
        harness.receive(ACK, 1, 1, b"");
        harness.connection.abort();
        assert_eq!(harness.expect_one().sequence(), 1 + u32::from(window));
    }
}
