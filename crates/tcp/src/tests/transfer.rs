//! Data both ways without loss: segmentation, runs, Nagle, ACK policy, the copybreak.

use super::harness::*;
use crate::{Config, SendError};
use time::Duration;

fn nodelay() -> Config {
    Config { nodelay: true, ..plain_config() }
}

#[test]
fn a_write_is_cut_into_full_segments_of_one_run() {
    let mut harness = Harness::established(nodelay());
    let bytes = stream(0..4_500);
    harness.write(&bytes);
    let sent = harness.take();
    let lens: Vec<_> = sent.iter().map(|segment| segment.payload.len()).collect();
    assert_eq!(lens, [1_000, 1_000, 1_000, 1_000, 500]);
    assert_eq!(sent.iter().flat_map(|segment| segment.payload.clone()).collect::<Vec<_>>(), bytes);
    assert!(sent[0].run != 0 && sent.iter().all(|segment| segment.run == sent[0].run));
    assert!(sent[..4].iter().all(|segment| segment.header.flags == ACK));
    assert_eq!(sent[4].header.flags, ACK | PSH);
    assert_eq!(
        sent.iter().map(Sent::sequence).collect::<Vec<_>>(),
        [1, 1_001, 2_001, 3_001, 4_001]
    );
}

#[test]
fn the_fin_rides_on_the_last_segment() {
    let mut harness = Harness::established(nodelay());
    harness.write(&stream(0..1_500));
    harness.connection.shutdown_write();
    let sent = harness.take();
    assert_eq!(sent.len(), 2);
    assert_eq!(sent[0].header.flags, ACK);
    assert_eq!(sent[1].header.flags, ACK | PSH | FIN);
    assert_eq!(sent[0].run, sent[1].run);
    assert_eq!(harness.connection.append(harness.now, chunk(b"x")), Err(SendError::Closed));
}

// RFC 9293, 3.7.4.
#[test]
fn nagle_holds_the_short_segment_back_until_all_is_acknowledged() {
    let mut harness = Harness::established(Config { minshall: false, ..plain_config() });
    harness.write(b"first");
    assert_eq!(harness.take_ranges(), [(1, 5)]);
    harness.write(b"second");
    harness.expect_nothing();
    harness.write(&stream(0..1_000));
    assert_eq!(harness.take_ranges(), [(6, 1_000)]);
    harness.receive(ACK, 1, 6, b"");
    harness.expect_nothing();
    harness.receive(ACK, 1, 1_006, b"");
    assert_eq!(harness.take_ranges(), [(1_006, 6)]);
    harness.connection.set_nodelay(true);
    harness.write(b"at once");
    assert_eq!(harness.take_ranges(), [(1_012, 7)]);
}

// RFC 9293, A.3: as it is where nobody asks for anything else.
#[test]
fn with_minshalls_modification_only_a_small_segment_holds_the_next_one_back() {
    let mut harness = Harness::established(plain_config());
    harness.write(&stream(0..2_500));
    assert_eq!(harness.take_ranges(), [(1, 1_000), (1_001, 1_000), (2_001, 500)]);
    harness.write(b"held");
    harness.expect_nothing();
    harness.receive(ACK, 1, 2_001, b"");
    harness.expect_nothing();
    harness.receive(ACK, 1, 2_501, b"");
    assert_eq!(harness.take_ranges(), [(2_501, 4)]);
    harness.write(&stream(0..996));
    harness.expect_nothing();
    harness.write(&stream(0..4));
    assert_eq!(harness.take_ranges(), [(2_505, 1_000)], "a full one is never held");
}

#[test]
fn many_small_chunks_make_full_segments_of_bounded_pieces() {
    let mut harness = Harness::established(nodelay());
    for at in 0..40 {
        harness.write(&stream(at * 10..at * 10 + 10));
    }
    let sent = harness.take();
    assert_eq!(sent.iter().map(|one| one.payload.len()).collect::<Vec<_>>(), [160, 160, 80]);
    let bytes: Vec<u8> = sent.iter().flat_map(|segment| segment.payload.clone()).collect();
    assert_eq!(bytes, stream(0..400));
    assert!(sent[0].run != sent[1].run, "unequal by accident: not a run");
}

#[test]
fn what_was_not_taken_is_built_again() {
    let mut harness = Harness::established(nodelay());
    harness.write(&stream(0..3_000));
    harness.out.clear();
    assert_eq!(harness.connection.poll_transmit(harness.now, &mut harness.out), 3);
    harness.connection.on_transmitted(harness.now, 1);
    assert_eq!(harness.connection.counters().segments_forgotten, 2);
    assert_eq!(harness.take_ranges(), [(1_001, 1_000), (2_001, 1_000)]);
    harness.out.clear();
    assert_eq!(harness.connection.poll_transmit(harness.now, &mut harness.out), 0);
}

#[test]
fn a_batch_of_one_sends_the_same() {
    let mut harness = Harness::established(nodelay());
    harness.batch_limit(1);
    harness.write(&stream(0..2_500));
    assert_eq!(harness.take_ranges(), [(1, 1_000), (1_001, 1_000), (2_001, 500)]);
}

#[test]
fn acks_are_deferred_to_the_second_segment_or_the_timer() {
    let mut harness = Harness::established(plain_config());
    harness.receive(ACK, 1, 1, &stream(0..1_000));
    harness.expect_nothing();
    harness.receive(ACK, 1_001, 1, &stream(1_000..2_000));
    assert_eq!(harness.expect_one().acknowledgment(), 2_001);
    harness.receive(ACK, 2_001, 1, b"x");
    harness.expect_nothing();
    assert_eq!(harness.pass_to_deadline(), Duration::from_millis(40));
    assert_eq!(harness.expect_one().acknowledgment(), 2_002);
    assert_eq!(harness.connection.counters().delayed_acks, 1);
    assert_eq!(harness.connection.poll_timeout(), None);
}

#[test]
fn one_ack_answers_a_batch_up_to_the_deferral() {
    let config = Config { deferred_acks_max_local: 8, quick_acks: 0, ..plain_config() };
    let mut harness = Harness::established(config);
    for at in 0..12_u32 {
        let header = harness.header(ACK, 1 + at * 1_000, 1);
        harness.receive_header(&header, &stream(0..1_000)).expect("in order");
    }
    harness.connection.on_batch_end(harness.now);
    assert_eq!(harness.expect_one().acknowledgment(), 12_001);
    for at in 12..19_u32 {
        harness.receive(ACK, 1 + at * 1_000, 1, &stream(0..1_000));
        harness.expect_nothing();
    }
    harness.receive(ACK, 19_001, 1, &stream(0..1_000));
    assert_eq!(harness.expect_one().acknowledgment(), 20_001);
}

#[test]
fn data_carries_the_ack() {
    let mut harness = Harness::established(nodelay());
    harness.receive(ACK, 1, 1, b"question");
    harness.write(b"answer");
    let sent = harness.expect_one();
    assert_eq!((sent.acknowledgment(), sent.payload.as_slice()), (9, &b"answer"[..]));
    assert_eq!(harness.connection.counters().pure_acks_sent, 1, "that of the handshake");
    harness.receive(ACK, 9, 7, b"");
    assert_eq!(harness.connection.poll_timeout(), None, "nothing is owed or in flight");
}

#[test]
fn overlapping_data_is_cut_and_out_of_order_data_waits() {
    let mut harness = Harness::established(plain_config());
    harness.receive(ACK, 1, 1, b"abcd");
    harness.receive(ACK, 3, 1, b"cdef");
    assert_eq!(harness.expect_one().acknowledgment(), 7);
    harness.receive(ACK, 10, 1, b"jk");
    assert_eq!(harness.expect_one().acknowledgment(), 7, "RFC 5681, 4.2: at once");
    harness.receive(ACK, 7, 1, b"ghi");
    assert_eq!(harness.expect_one().acknowledgment(), 12, "at once");
    assert_eq!(harness.read(20), b"abcdefghijk");
}

#[test]
fn sparse_and_tiny_payload_is_copied_and_large_payload_is_not() {
    let mut harness = Harness::established(plain_config());
    harness.receive(ACK, 1, 1, b"tiny");
    assert_eq!(harness.connection.counters().copied_bytes, 4);
    harness.receive(ACK, 5, 1, &stream(0..900));
    assert_eq!(harness.connection.counters().copied_bytes, 4);
    assert_eq!(harness.connection.read_chunk(100).expect("the copy").bytes(), b"tiny");
    assert_eq!(harness.connection.read_chunk(100).expect("a part").len(), 100);
    assert_eq!(harness.connection.readable_len(), 800);
}

// RFC 3042, RFC 5681: the initial window bounds the first flight.
#[test]
fn the_first_flight_is_ten_segments() {
    let mut harness = Harness::established(plain_config());
    harness.write(&stream(0..30_000));
    assert_eq!(harness.take().len(), 10);
    harness.receive(ACK, 1, 2_001, b"");
    assert_eq!(harness.take().len(), 4, "slow start: two acknowledged, two more grown");
}

// RFC 5681, 4.2: a peer without SACK counts duplicates, also those of one batch.
#[test]
fn each_segment_out_of_order_in_a_batch_has_its_duplicate_ack() {
    let mut harness = Harness::established(nodelay());
    for at in 1..5_u32 {
        let header = harness.header(ACK, 1 + at * 1_000, 1);
        harness.receive_header(&header, &stream(0..1_000)).expect("within the window");
    }
    harness.connection.on_batch_end(harness.now);
    harness.write(b"data of ours is no duplicate ACK");
    let sent = harness.take();
    let pure = sent.iter().filter(|segment| segment.payload.is_empty());
    assert_eq!(pure.map(Sent::acknowledgment).collect::<Vec<_>>(), [1, 1, 1, 1]);
    harness.expect_nothing();
}

#[test]
fn a_super_frame_counts_as_its_segments() {
    let mut harness = Harness::established(plain_config());
    let header = harness.header(ACK, 1, 1);
    let segment = crate::Segment {
        header: &header,
        payload: Some(chunk(&stream(0..3_000))),
        sparse: true,
        segment_len: MSS as u32,
        congestion_experienced: false,
    };
    harness.connection.on_segment(harness.now, segment, &harness.pool).expect("in order");
    harness.connection.on_batch_end(harness.now);
    assert_eq!(harness.expect_one().acknowledgment(), 3_001, "three are more than two");
    assert_eq!(harness.connection.counters().copied_bytes, 3_000);
    assert_eq!(harness.connection.counters().segments_received, 4);
}

#[test]
fn a_reset_behind_data_leaves_no_timer_running() {
    let mut harness = Harness::established(plain_config());
    let data = harness.header(ACK, 1, 1);
    harness.receive_header(&data, b"x").expect("in order");
    let reset = harness.header(RST, 2, 0);
    harness.receive_header(&reset, b"").expect("exact");
    harness.connection.on_batch_end(harness.now);
    assert_eq!(harness.connection.poll_timeout(), None);
}

/// Who adds to what a cork holds back and finds no room waits for acknowledgments, and for none where nothing was sent.
#[test]
fn an_eased_cork_holds_nothing_back_once_nothing_is_in_flight() {
    let mut harness = Harness::established(plain_config());
    harness.connection.set_cork(true);
    harness.write(&stream(0..1_500));
    assert_eq!(harness.take_ranges(), [(1, 1_000)]);
    assert!(harness.connection.ease_cork() && !harness.connection.ease_cork());
    harness.expect_nothing();
    harness.receive(ACK, 1, 1_001, b"");
    assert_eq!(harness.take_ranges(), [(1_001, 500)]);
    harness.receive(ACK, 1, 1_501, b"");
    // What is added is held back as before.
    harness.write(&stream(1_500..1_700));
    harness.expect_nothing();
}
