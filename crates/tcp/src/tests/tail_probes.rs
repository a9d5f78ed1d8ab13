//! What the answer to a tail loss probe says of congestion and of reordering (RFC 8985, 7.4.2 and 6.2).

use super::harness::*;
use super::recovery::{RTT, in_flight, path, probed, sack, sack_config};

// RFC 8985, 7.4.2: "Invoke congestion control to react to the loss event the probe has repaired": in the flight that
// had it, and not in what is written when it shows; be that a batch of many segments or many of one.
#[test]
fn a_loss_that_a_probe_repaired_reduces_by_the_flight_in_which_it_was() {
    for (tail_alone, packets) in [(false, 100), (true, 100), (true, 1)] {
        let mut harness = path(sack_config());
        harness.batch_limit(packets);
        harness.write(&stream(0..10_000));
        assert_eq!(harness.take().len(), 10);
        harness.now += RTT;
        if tail_alone {
            harness.receive(ACK, 1, 9_001, b"");
        }
        while harness.connection.counters().tail_loss_probes == 0 {
            harness.pass_to_deadline();
            harness.flush();
        }
        assert_eq!(harness.take_ranges(), [(9_001, 1_000)]);
        harness.now += RTT;
        harness.receive(ACK, 1, 10_001, b"");
        harness.write(&stream(0..1_000));
        assert_eq!(harness.take().len(), 1);
        harness.now += RTT;
        harness.receive(ACK, 1, 11_001, b"");
        assert_eq!(harness.connection.counters().tail_loss_repairs, 1);
        assert_eq!(harness.connection.congestion_window(), 5_000, "tail alone: {tail_alone}");
    }
}

// RFC 8985, 6.2, step 4: the window widens where what RACK sent again was on its way. A probe is sent for a silence.
#[test]
fn a_needless_probe_does_not_widen_the_reordering_window() {
    let mut harness = probed();
    harness.now += RTT;
    sack(&mut harness, 2_001, &[(1_001, 2_001)]);
    assert_eq!(harness.connection.counters().duplicate_sacks_received, 1);
    let mut harness = in_flight(harness, 3);
    sack(&mut harness, 2_001, &[(3_001, 4_001)]);
    harness.expect_nothing();
    assert_eq!(harness.pass_to_deadline(), RTT / 4);
    assert_eq!(harness.take_ranges(), [(2_001, 1_000)]);
}

// RFC 8985, 7.2: the timer begins anew with each ACK. One that comes while the probe waits for the device says as much.
#[test]
fn an_ack_takes_back_a_probe_that_was_not_sent() {
    let mut harness = path(sack_config());
    harness.write(&stream(0..2_000));
    harness.take();
    harness.pass_to_deadline();
    assert!(harness.connection.wants_transmit(harness.now), "the probe");
    harness.receive(ACK, 1, 1_001, b"");
    harness.expect_nothing();
    harness.pass_to_deadline();
    assert_eq!(harness.take_ranges(), [(1_001, 1_000)]);
    assert_eq!(harness.connection.counters().tail_loss_probes, 1);
}

// RFC 8985, 6.2, step 2: what seems to have taken less than the least round trip "was likely acknowledged" by an
// earlier copy, and says nothing of what was sent before the later one.
#[test]
fn an_answer_that_comes_too_early_is_not_that_of_the_retransmission() {
    let mut harness = in_flight(path(sack_config()), 10);
    sack(&mut harness, 1, &[(1_001, 4_001)]);
    assert_eq!(harness.take_ranges(), [(1, 1_000)]);
    harness.now += RTT / 100;
    harness.receive(ACK, 1, 4_001, b"");
    let again = harness.take_ranges();
    assert!(again.is_empty(), "{again:?}");
}
