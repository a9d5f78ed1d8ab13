//! What arrives twice: reports to the peer (RFC 2883), and which bytes stay.

use super::harness::*;
use crate::Config;
use counters::DropReason;
use wire::{TcpOptions, TcpTimestamps};

fn established(timestamps: bool) -> Harness {
    let config = Config { sack: true, timestamps, nodelay: true, ..plain_config() };
    let options = TcpOptions {
        mss: Some(MSS as u16),
        sack_permitted: true,
        timestamps: timestamps.then_some(TcpTimestamps { value: 1, echo: 1 }),
        ..TcpOptions::default()
    };
    Harness::established_with(config, options)
}

/// The peer's stream, which begins with sequence number 1.
fn send(harness: &mut Harness, range: core::ops::Range<u32>) -> Result<(), DropReason> {
    let bytes = stream(range.start as usize..range.end as usize);
    harness.try_receive(ACK, 1 + range.start, 1, &bytes)
}

/// Acknowledgment and blocks of an ACK, counted from the first byte of the stream.
fn report(sent: &Sent) -> (u32, Vec<(u32, u32)>) {
    let first = IRS + 1;
    let blocks = sent.header.options.sack.as_slice().iter();
    let blocks = blocks.map(|(start, end)| (start.offset_from(first), end.offset_from(first)));
    (sent.acknowledgment() - 1, blocks.collect())
}

fn acks(harness: &mut Harness) -> Vec<(u32, Vec<(u32, u32)>)> {
    harness.take().iter().map(report).collect()
}

// RFC 2883, 4.1, example 1: a full duplicate below the acknowledgment.
#[test]
fn a_segment_that_came_before_is_reported_once() {
    let mut harness = established(false);
    for at in (3_000..4_000).step_by(500) {
        send(&mut harness, at - 3_000..at - 2_500).expect("new");
    }
    harness.take();
    assert_eq!(send(&mut harness, 500..1_000), Err(DropReason::Duplicate));
    assert_eq!(acks(&mut harness), [(1_000, vec![(500, 1_000)])]);
    send(&mut harness, 1_500..2_000).expect("ahead of its turn");
    assert_eq!(acks(&mut harness), [(1_000, vec![(1_500, 2_000)])], "each is reported once");
    assert_eq!(harness.connection.counters().duplicates_reported, 1);
}

// RFC 2883, 4: "only used to report a duplicate contiguous sequence of data received": what is of another connection
// with these ends, or behind another of a server's SYN-ACKs, lies before anything that came on this one.
#[test]
fn what_lies_before_the_stream_was_never_received() {
    let mut harness = established(false);
    let before = |harness: &mut Harness, distance: u32, len: u32| {
        let sequence = 1_u32.wrapping_sub(distance);
        let _ = harness.try_receive(ACK, sequence, 1, &stream(0..len as usize));
    };
    for distance in [63, 1_500_000_000] {
        before(&mut harness, distance, 63);
        assert_eq!(acks(&mut harness), [(0, vec![])]);
    }
    send(&mut harness, 0..500).expect("new");
    harness.take();
    before(&mut harness, 100, 300);
    assert_eq!(acks(&mut harness), [(500, vec![(0, 200)])], "the part that came");
    harness.receive(ACK | FIN, 501, 1, b"");
    harness.take();
    before(&mut harness, 0, 500);
    assert_eq!(acks(&mut harness), [(501, vec![(0, 500)])], "the FIN is no byte of it");
    before(&mut harness, 63, 63);
    assert_eq!(acks(&mut harness), [(501, vec![])]);
}

// RFC 9293, 3.10.7.4: a segment whose acknowledgment is not acceptable is dropped with all that it carries.
#[test]
fn of_a_segment_that_is_refused_nothing_is_reported() {
    let mut harness = established(false);
    send(&mut harness, 0..500).expect("new");
    harness.take();
    let refused = harness.try_receive(ACK, 1 + 300, 1_000, &stream(300..800));
    assert_eq!(refused, Err(DropReason::BadAck));
    assert_eq!(acks(&mut harness), [(500, vec![])], "it is challenged");
    send(&mut harness, 300..800).expect("some of it is new");
    assert_eq!(acks(&mut harness), [(800, vec![(300, 500)])]);
}

// RFC 2883, 4.1, example 2: with data waiting, its blocks follow.
#[test]
fn the_blocks_of_what_waits_follow_the_report() {
    let mut harness = established(false);
    send(&mut harness, 0..500).expect("new");
    send(&mut harness, 1_000..1_500).expect("ahead");
    harness.take();
    let _ = send(&mut harness, 0..500);
    assert_eq!(acks(&mut harness), [(500, vec![(0, 500), (1_000, 1_500)])]);
}

// RFC 2883, 4.1, example 3: a duplicate of data that waits; the second block is the one that holds
// it, though another arrived later.
#[test]
fn a_duplicate_of_what_waits_is_followed_by_the_block_that_holds_it() {
    let mut harness = established(false);
    send(&mut harness, 0..500).expect("new");
    for start in [1_000, 1_500, 2_000, 4_000] {
        send(&mut harness, start..start + 500).expect("ahead");
    }
    harness.take();
    assert_eq!(send(&mut harness, 1_500..2_000), Err(DropReason::Duplicate));
    let blocks = vec![(1_500, 2_000), (1_000, 2_500), (4_000, 4_500)];
    assert_eq!(acks(&mut harness), [(500, blocks)]);
}

// RFC 2883, 4: then "the second SACK block in that option should specify that (possibly larger) block of data".
#[test]
fn the_block_that_holds_a_duplicate_follows_it_whatever_came_behind_it_in_the_batch() {
    let mut harness = established(false);
    for at in [1_000, 3_000, 5_000, 7_000] {
        send(&mut harness, at..at + 500).expect("ahead of its turn");
    }
    harness.take();
    for at in [1_000, 9_000] {
        let header = harness.header(ACK, 1 + at, 1);
        let _ = harness.receive_header(&header, &stream(at as usize..at as usize + 500));
    }
    harness.connection.on_batch_end(harness.now);
    let newest = [(1_000, 1_500), (1_000, 1_500), (9_000, 9_500), (7_000, 7_500)];
    assert_eq!(acks(&mut harness), [(0, newest.to_vec())]);
}

// RFC 2883, 4.2, examples 4 and 5: of a segment that came in part, the part.
#[test]
fn of_a_segment_that_came_in_part_the_first_contiguous_part_is_reported() {
    let mut harness = established(false);
    send(&mut harness, 0..500).expect("new");
    send(&mut harness, 1_000..1_500).expect("ahead");
    send(&mut harness, 2_000..2_500).expect("ahead");
    harness.take();
    send(&mut harness, 800..2_200).expect("some of it is new");
    // Two parts of it came before: the first of them.
    assert_eq!(acks(&mut harness), [(500, vec![(1_000, 1_500), (800, 2_500)])]);
    send(&mut harness, 300..800).expect("fills the gap");
    assert_eq!(acks(&mut harness), [(2_500, vec![(300, 500)])]);
    assert_eq!(harness.read(3_000), stream(0..2_500));
}

// RFC 2018, 3: at most four blocks, and at most three beside timestamps.
#[test]
fn as_many_blocks_as_fit_are_sent_the_newest_first() {
    for (timestamps, count) in [(false, 4), (true, 3)] {
        let mut harness = established(timestamps);
        for start in [1_000, 2_000, 3_000, 4_000, 5_000] {
            send(&mut harness, start..start + 500).expect("ahead");
        }
        let newest = [(5_000, 5_500), (4_000, 4_500), (3_000, 3_500), (2_000, 2_500)];
        let last = acks(&mut harness).pop().expect("an ACK");
        assert_eq!(last, (0, newest[..count].to_vec()));
        let _ = send(&mut harness, 2_000..2_500);
        let last = acks(&mut harness).pop().expect("an ACK");
        let reported = [(2_000, 2_500), (2_000, 2_500), (5_000, 5_500), (4_000, 4_500)];
        assert_eq!(last, (0, reported[..count].to_vec()));
    }
}

#[test]
fn several_duplicates_of_a_batch_are_all_reported_and_data_repeats_none_of_it() {
    let mut harness = established(false);
    send(&mut harness, 0..4_000).expect("new");
    harness.take();
    for range in [0..500, 500..700, 2_000..2_500] {
        let header = harness.header(ACK, 1 + range.start, 1);
        let bytes = stream(range.start as usize..range.end as usize);
        let _ = harness.receive_header(&header, &bytes);
    }
    harness.connection.on_batch_end(harness.now);
    harness.write(&stream(0..3_000));
    let sent = harness.take();
    let (data, pure): (Vec<_>, Vec<_>) = sent.iter().partition(|one| !one.payload.is_empty());
    assert!(data.len() == 3 && data.iter().all(|one| one.header.options.sack.is_empty()));
    let reports: Vec<_> = pure.into_iter().map(report).collect();
    assert_eq!(reports, [(4_000, vec![(0, 700)]), (4_000, vec![(2_000, 2_500)])]);
}

#[test]
fn a_report_the_device_did_not_take_is_made_again() {
    let mut harness = established(false);
    send(&mut harness, 0..500).expect("new");
    harness.take();
    let _ = send(&mut harness, 0..500);
    harness.out.clear();
    assert_eq!(harness.connection.poll_transmit(harness.now, &mut harness.out), 1);
    harness.connection.on_transmitted(harness.now, 0);
    assert_eq!(acks(&mut harness), [(500, vec![(0, 500)])]);
}

#[test]
fn a_peer_without_sack_is_told_nothing() {
    let mut harness = Harness::established(plain_config());
    send(&mut harness, 0..500).expect("new");
    harness.take();
    let _ = send(&mut harness, 0..500);
    assert_eq!(acks(&mut harness), [(500, vec![])]);
}

#[test]
fn what_came_first_stays_and_other_content_is_counted() {
    let mut harness = established(false);
    send(&mut harness, 0..500).expect("new");
    send(&mut harness, 1_000..1_500).expect("ahead");
    let counted = |harness: &Harness| harness.connection.counters().overlap_conflicts;
    let _ = send(&mut harness, 200..500);
    let _ = send(&mut harness, 1_100..1_200);
    assert_eq!(counted(&harness), 0, "the same bytes");
    let _ = harness.try_receive(ACK, 1 + 200, 1, &[0xee; 300]);
    assert_eq!(counted(&harness), 1, "not read yet");
    let _ = harness.try_receive(ACK, 1 + 1_100, 1, &[0xee; 100]);
    assert_eq!(counted(&harness), 2, "waiting");
    let mut forged = stream(500..1_600);
    forged[500..1_000].fill(0xee);
    harness.receive(ACK, 1 + 500, 1, &forged);
    assert_eq!(counted(&harness), 3, "next, and reaching over what waits");
    assert_eq!(harness.read(2_000), stream(0..1_600));
}

// As if its segments had come one by one, of which each tells what of it came before.
#[test]
fn of_a_super_frame_each_segment_that_waits_already_is_reported_and_counted() {
    let mut harness = established(false);
    for at in [2_000, 4_000, 5_000] {
        send(&mut harness, at..at + 1_000).expect("ahead of its turn");
    }
    harness.take();
    let header = harness.header(ACK, 1_001, 1);
    let segment = crate::Segment {
        header: &header,
        payload: Some(chunk(&stream(1_000..7_000))),
        sparse: false,
        segment_len: MSS as u32,
        congestion_experienced: false,
    };
    harness.connection.on_segment(harness.now, segment, &harness.pool).expect("some of it is new");
    harness.connection.on_batch_end(harness.now);
    let reports: Vec<_> = acks(&mut harness).into_iter().map(|(_, blocks)| blocks).collect();
    let whole = (1_000, 7_000);
    assert_eq!(reports, [vec![(2_000, 3_000), whole], vec![(4_000, 6_000), whole]]);
    assert_eq!(harness.connection.counters().duplicate_segments, 3);
    assert_eq!(harness.connection.counters().out_of_order_segments, 6, "three and three");
}
