//! What the answer to a tail loss probe says of congestion (RFC 8985, 7.4.2).

use super::harness::*;
use super::recovery::{RTT, path, sack_config};

// RFC 8985, 7.4.2: "Invoke congestion control to react to the loss event the probe has repaired": in the flight that
// had it, and not in what is written when it shows.
#[test]
fn a_loss_that_a_probe_repaired_reduces_by_the_flight_in_which_it_was() {
    for tail_alone in [false, true] {
        let mut harness = path(sack_config());
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
