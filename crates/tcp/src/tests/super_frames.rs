//! A device that takes runs as super-frames: what waits so that these are whole, and what ends that.

use super::harness::*;
use crate::{Config, Pacing};
use time::Duration;
use wire::TcpOptions;

/// The device takes four full segments as one.
fn of_four_segments() -> Harness {
    let mut harness = Harness::established(plain_config());
    harness.connection.set_super_frame_len(20 + 4 * MSS as u16 + 900);
    harness
}

fn full(first: u32, count: u32) -> Vec<(u32, usize)> {
    (0..count).map(|index| (first + index * MSS as u32, MSS)).collect()
}

#[test]
fn what_is_little_behind_a_whole_super_frame_waits_for_what_is_written_next() {
    let mut harness = of_four_segments();
    harness.write(&stream(0..5_300));
    assert_eq!(harness.take_ranges(), full(1, 4));
    assert!(!harness.connection.wants_transmit(harness.now));
    // With it a whole one again, and little behind it.
    harness.write(&stream(5_300..9_100));
    assert_eq!(harness.take_ranges(), full(4_001, 4));
    harness.expect_nothing();
}

#[test]
fn it_waits_no_longer_than_a_whole_super_frame_is_unacknowledged() {
    let mut harness = of_four_segments();
    harness.write(&stream(0..5_300));
    harness.take();
    harness.receive(ACK, 1, 1_001, b"");
    assert_eq!(harness.take_ranges(), full(4_001, 1));
    // The part of a segment is Nagle's affair, and waits until nothing is.
    harness.receive(ACK, 1, 4_001, b"");
    harness.expect_nothing();
    harness.receive(ACK, 1, 5_001, b"");
    assert_eq!(harness.take_ranges(), [(5_001, 300)]);
}

#[test]
fn more_than_little_goes_as_one_of_its_own() {
    let mut harness = of_four_segments();
    harness.write(&stream(0..6_300));
    assert_eq!(harness.take_ranges(), full(1, 6));
}

#[test]
fn the_end_of_the_stream_and_nodelay_wait_for_nothing() {
    let mut harness = of_four_segments();
    harness.write(&stream(0..5_300));
    harness.connection.shutdown_write();
    assert_eq!(harness.take_ranges(), [full(1, 5), vec![(5_001, 300)]].concat());
    let mut harness = of_four_segments();
    harness.write(&stream(0..5_300));
    assert_eq!(harness.take_ranges(), full(1, 4));
    harness.connection.set_nodelay(true);
    assert_eq!(harness.take_ranges(), [(4_001, MSS), (5_001, 300)]);
    // Nor does the tail of a write where segments go one by one.
    let mut harness = Harness::established(plain_config());
    harness.write(&stream(0..5_300));
    assert_eq!(harness.take_ranges(), [full(1, 5), vec![(5_001, 300)]].concat());
}

#[test]
fn it_is_the_same_where_the_batch_holds_one_super_frame() {
    let mut harness = of_four_segments();
    harness.batch_limit(4);
    harness.write(&stream(0..9_200));
    assert_eq!(harness.take_ranges(), full(1, 8));
    assert!(!harness.connection.wants_transmit(harness.now));
}

// There it would wait for as long as a round trip takes.
#[test]
fn on_a_far_path_the_tail_of_a_write_goes_with_it() {
    let mut harness = Harness::connect(Config { pacing: Pacing::Off, ..plain_config() });
    harness.expect_one();
    harness.pass(Duration::from_millis(10));
    harness.options = TcpOptions { mss: Some(MSS as u16), ..TcpOptions::default() };
    harness.receive(SYN | ACK, 0, 1, b"");
    harness.options = TcpOptions::default();
    harness.expect_one();
    harness.connection.set_super_frame_len(20 + 4 * MSS as u16 + 900);
    harness.write(&stream(0..5_300));
    assert_eq!(harness.take_ranges(), [full(1, 5), vec![(5_001, 300)]].concat());
}

// RFC 5682, 3.1, step 2.b: where new data cannot go after all, what is lost goes again; by waiting for it the
// connection would stand still until the next timeout.
#[test]
fn what_waits_for_more_does_not_keep_back_what_is_lost() {
    for corked in [false, true] {
        let mut harness = of_four_segments();
        harness.connection.set_cork(corked);
        harness.connection.set_nodelay(corked);
        harness.write(&stream(0..5_300));
        assert_eq!(harness.take_ranges(), full(1, if corked { 5 } else { 4 }));
        while harness.connection.counters().retransmission_timeouts == 0 {
            harness.pass_to_deadline();
        }
        harness.connection.set_super_frame_len(if corked { 0 } else { 20 + 3 * MSS as u16 + 900 });
        assert_eq!(harness.take_ranges(), full(1, 1));
        harness.receive(ACK, 1, 1_001, b"");
        assert_eq!(harness.take_ranges().first(), Some(&(1_001, MSS)));
    }
}
