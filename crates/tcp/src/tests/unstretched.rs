//! RFC 1122's letter: however many segments come in at one instant, every second one, or every one, has
//! an ACK of its own.

use super::harness::{ACK, FIN, Harness, MSS, Sent, chunk, plain_config, stream};
use crate::{Config, Follower, Segment};
use time::Duration;
use wire::{TcpOptions, TcpTimestamps};

fn letter(deferral: u8) -> Config {
    let deferred_acks_max_local = deferral;
    Config { stretch_acks: false, deferred_acks_max_local, ..plain_config() }
}

/// Hands in `count` full segments as one train, and ends the batch.
fn receive_train(harness: &mut Harness, start: u32, count: u32) {
    let bytes = stream(0..MSS);
    let leader = harness.header(ACK, start, 1);
    harness.receive_header(&leader, &bytes).expect("in order");
    let mut left = count - 1;
    let connection = &mut harness.connection;
    let outcome = connection.on_followers(harness.now, &leader, &harness.pool, |_, _| {
        left = left.checked_sub(1)?;
        let payload = chunk(&bytes);
        Some(Follower { payload, sparse: false, segment_len: 0, pushed: false })
    });
    outcome.expect("in order");
    connection.on_batch_end(harness.now);
}

/// Numbers of segments that were acknowledged, and how far the windows reach.
fn acknowledged(sent: &[Sent]) -> Vec<u32> {
    let edges: Vec<u32> =
        sent.iter().map(|it| it.acknowledgment() + u32::from(it.header.window)).collect();
    assert!(edges.iter().all(|edge| *edge == edges[0]), "each has the window of its segment");
    sent.iter().map(|it| (it.acknowledgment() - 1) / MSS as u32).collect()
}

// RFC 9293, 3.8.6.3, SHLD-19: at least every second full-sized segment.
#[test]
fn every_second_segment_of_a_train_has_an_ack_with_its_own_number() {
    for deferral in [2, 8] {
        let mut harness = Harness::established(letter(deferral));
        receive_train(&mut harness, 1, 12);
        assert_eq!(acknowledged(&harness.take()), [2, 4, 6, 8, 10, 12]);
        assert_eq!(harness.connection.poll_timeout(), None, "nothing is owed");
        assert_eq!(harness.connection.counters().pure_acks_sent, 7, "with that of the handshake");
    }
}

#[test]
fn every_segment_of_a_train_has_an_ack_with_its_own_number() {
    let mut harness = Harness::established(letter(1));
    receive_train(&mut harness, 1, 12);
    assert_eq!(acknowledged(&harness.take()), (1..=12).collect::<Vec<_>>());
    // Linux's way at the start of a connection.
    let config = Config { quick_acks: 3, quick_acks_each: true, ..letter(2) };
    let mut harness = Harness::established(config);
    receive_train(&mut harness, 1, 7);
    assert_eq!(acknowledged(&harness.take()), [1, 2, 3, 5, 7]);
}

#[test]
fn what_is_left_of_a_train_is_acknowledged_with_the_next_segment_or_by_the_timer() {
    let mut harness = Harness::established(letter(2));
    receive_train(&mut harness, 1, 5);
    assert_eq!(acknowledged(&harness.take()), [2, 4]);
    receive_train(&mut harness, 5 * MSS as u32 + 1, 2);
    assert_eq!(acknowledged(&harness.take()), [6]);
    assert_eq!(harness.pass_to_deadline(), Duration::from_millis(40), "of the last, not the fifth");
    assert_eq!(harness.expect_one().acknowledgment(), 7 * MSS as u32 + 1);
}

#[test]
fn a_super_frame_has_the_acks_of_its_segments() {
    let mut harness = Harness::established(letter(2));
    let mut receive = |start, len, each| super_frame(&mut harness, start, len, each);
    assert_eq!(receive(1, 5_000, 1_000), [2_001, 4_001]);
    assert_eq!(receive(5_001, 2_003, 1_000), [6_001, 7_004], "the last one is shorter");
    assert_eq!(receive(7_004, 1_800, 600), [8_204], "segments shorter than they could be");
    // As many as there would be of the longest, and yet shorter.
    assert_eq!(receive(8_804, 2_700, 900), [9_704, 11_504], "of a peer with a smaller MSS");
}

fn super_frame(harness: &mut Harness, start: u32, len: usize, segment_len: u32) -> Vec<u32> {
    let header = harness.header(ACK, start, 1);
    let payload = Some(chunk(&stream(0..len)));
    let (sparse, congestion_experienced) = (false, false);
    let segment = Segment { header: &header, payload, sparse, segment_len, congestion_experienced };
    harness.connection.on_segment(harness.now, segment, &harness.pool).expect("in order");
    harness.connection.on_batch_end(harness.now);
    harness.take().iter().map(Sent::acknowledgment).collect()
}

// RFC 5681, 4.2: who has no SACK counts duplicate ACKs, three of which tell of a loss.
#[test]
fn a_super_frame_behind_a_gap_has_the_duplicate_acks_of_its_segments() {
    for stretch_acks in [false, true] {
        let mut harness = Harness::established(Config { stretch_acks, ..letter(2) });
        assert_eq!(super_frame(&mut harness, 1_001, 4_000, 1_000), [1; 4]);
    }
}

// A super-frame counts as the segments it stands for.
#[test]
fn the_segments_of_super_frames_are_counted_each() {
    let mut harness = Harness::established(plain_config());
    super_frame(&mut harness, 1_001, 4_000, 1_000);
    assert_eq!(harness.connection.counters().out_of_order_segments, 4);
    super_frame(&mut harness, 1, 1_000, 1_000);
    let header = harness.header(ACK, 2_001, 1);
    let payload = Some(chunk(&stream(0..3_000)));
    let (sparse, segment_len, congestion_experienced) = (false, MSS as u32, false);
    let segment = Segment { header: &header, payload, sparse, segment_len, congestion_experienced };
    let _ = harness.connection.on_segment(harness.now, segment, &harness.pool);
    assert_eq!(harness.connection.counters().duplicate_segments, 3);
    super_frame(&mut harness, 3_501, 4_000, 1_000);
    assert_eq!(harness.connection.counters().duplicate_segments, 4, "and the first of these");
    assert_eq!(harness.connection.totals.data_segments_received, 5 + 3);
}

// Of what came again nothing is new but the last segment, whose ACK is as good as late already.
#[test]
fn a_super_frame_of_which_the_most_was_here_has_the_acks_of_the_rest() {
    let mut harness = Harness::established(letter(2));
    assert_eq!(super_frame(&mut harness, 1, 2_000, 1_000), [2_001]);
    assert_eq!(super_frame(&mut harness, 1, 3_000, 1_000), [3_001]);
    assert_eq!(harness.connection.poll_timeout(), None, "nothing is owed");
}

// SHLD-19 again: not only where there is nothing else to say.
#[test]
fn a_super_frame_with_old_data_the_end_of_the_window_or_a_fin_has_the_acks_of_its_segments() {
    let config = Config { sack: true, ..letter(2) };
    let options =
        TcpOptions { mss: Some(MSS as u16), sack_permitted: true, ..TcpOptions::default() };
    let mut harness = Harness::established_with(config, options);
    assert_eq!(super_frame(&mut harness, 1, 2_000, 1_000), [2_001]);
    let again = "the report of what came again goes with the first";
    assert_eq!(super_frame(&mut harness, 1_001, 6_000, 1_000), [3_001, 5_001, 7_001], "{again}");
    let header = harness.header(ACK | FIN, 7_001, 1);
    let payload = Some(chunk(&stream(0..5_000)));
    let (sparse, segment_len, congestion_experienced) = (false, MSS as u32, false);
    let segment = Segment { header: &header, payload, sparse, segment_len, congestion_experienced };
    harness.connection.on_segment(harness.now, segment, &harness.pool).expect("in order");
    harness.connection.on_batch_end(harness.now);
    let sent: Vec<u32> = harness.take().iter().map(Sent::acknowledgment).collect();
    assert_eq!(sent, [9_001, 11_001, 12_002]);
    let mut harness = Harness::established(letter(2));
    let numbers: Vec<u32> = (1..=10).map(|it| 2_000 * it + 1).collect();
    assert_eq!(super_frame(&mut harness, 1, 20_000, 1_000), numbers);
    let mut harness = Harness::established(letter(2));
    assert_eq!(super_frame(&mut harness, 1, 19_500, 1_000).last(), Some(&19_501));
    assert_eq!(super_frame(&mut harness, 19_501, 3_000, 1_000), [20_001], "cut by the window");
}

// RFC 9293, 3.8.6.3, SHLD-18 and MUST-40: an ACK is delayed, and not for ever.
#[test]
fn the_last_of_a_super_frame_is_acknowledged_by_the_timer() {
    let mut harness = Harness::established(letter(2));
    assert_eq!(super_frame(&mut harness, 1, 5_000, 1_000), [2_001, 4_001]);
    harness.pass_to_deadline();
    assert_eq!(harness.expect_one().acknowledgment(), 5_001);
}

// RFC 5681, 4.2: at once, and all that waited, of which SACK blocks have told.
#[test]
fn a_super_frame_that_fills_a_gap_has_one_ack_of_all() {
    let config = Config { sack: true, ..letter(2) };
    let options =
        TcpOptions { mss: Some(MSS as u16), sack_permitted: true, ..TcpOptions::default() };
    let mut harness = Harness::established_with(config, options);
    for start in (2_001..12_000).step_by(1_000) {
        harness.receive(ACK, start, 1, &stream(0..1_000));
        harness.take();
    }
    assert_eq!(super_frame(&mut harness, 1, 2_000, 1_000), [12_001]);
}

// RFC 2883, 4: a report of a duplicate is below the acknowledgment, or within what waits.
#[test]
fn a_super_frame_over_what_is_there_already_tells_of_that_behind_it() {
    let config = Config { sack: true, ..letter(2) };
    let options =
        TcpOptions { mss: Some(MSS as u16), sack_permitted: true, ..TcpOptions::default() };
    let mut harness = Harness::established_with(config, options);
    harness.receive(ACK, 1_001, 1, &stream(0..540));
    assert_eq!(harness.expect_one().acknowledgment(), 1);
    let header = harness.header(ACK, 1, 1);
    let payload = Some(chunk(&stream(0..2_758)));
    let (sparse, segment_len, congestion_experienced) = (false, MSS as u32, false);
    let segment = Segment { header: &header, payload, sparse, segment_len, congestion_experienced };
    harness.connection.on_segment(harness.now, segment, &harness.pool).expect("in order");
    harness.connection.on_batch_end(harness.now);
    let sent = harness.take();
    assert!(!sent.is_empty());
    for ack in sent {
        let reported = ack.header.options.sack.as_slice();
        let is_below =
            |(_, end): &(_, wire::SeqNumber)| end.is_at_or_before(ack.header.acknowledgment);
        assert!(reported.iter().all(is_below), "{ack:?}");
    }
}

#[test]
fn data_of_ours_goes_behind_them_and_what_the_device_refuses_goes_later() {
    let mut harness = Harness::established(letter(2));
    receive_train(&mut harness, 1, 6);
    harness.write(b"an answer");
    let mut numbers = Vec::new();
    while harness.connection.wants_transmit(harness.now) {
        harness.out.clear();
        let count = harness.connection.poll_transmit(harness.now, &mut harness.out);
        assert_eq!(count, 4 - numbers.len(), "built anew, but for what was taken");
        harness.connection.on_transmitted(harness.now, 1);
        let sent = super::harness::parse_all(&harness.out).remove(0);
        numbers.push(((sent.acknowledgment() - 1) / MSS as u32, sent.payload.len()));
    }
    assert_eq!(numbers, [(2, 0), (4, 0), (6, 0), (6, 9)]);
}

// RFC 7323, 4.3: an ACK echoes the timestamp of the earliest segment that it is the first to acknowledge.
#[test]
fn each_echoes_the_timestamp_that_it_would_have_echoed_alone() {
    let times = |value| TcpOptions {
        mss: Some(MSS as u16),
        timestamps: Some(TcpTimestamps { value, echo: 0 }),
        ..TcpOptions::default()
    };
    let config = Config { timestamps: true, ..letter(2) };
    let mut together = Harness::established_with(config.clone(), times(100));
    let mut alone = Harness::established_with(config, times(100));
    let mut sent = Vec::new();
    for at in 0..6 {
        for harness in [&mut together, &mut alone] {
            harness.options = TcpOptions { mss: None, ..times(101 + at) };
            let header = harness.header(ACK, 1 + at * 900, 1);
            harness.receive_header(&header, &stream(0..900)).expect("in order");
        }
        alone.connection.on_batch_end(alone.now);
        sent.append(&mut alone.take());
    }
    together.connection.on_batch_end(together.now);
    let said = |sent: Vec<Sent>| -> Vec<_> {
        let echo = |it: &Sent| it.header.options.timestamps.map(|it| it.echo);
        sent.iter().map(|it| (it.acknowledgment(), it.header.window, echo(it))).collect()
    };
    let expected = said(sent);
    assert_eq!(expected.len(), 3);
    assert_eq!(said(together.take()), expected);
}

// RFC 7323, 4.3: "the timestamp from the latest segment (which filled the hole) must be echoed".
#[test]
fn the_segment_that_fills_a_gap_is_echoed() {
    let times = |value| TcpOptions {
        timestamps: Some(TcpTimestamps { value, echo: 0 }),
        ..TcpOptions::default()
    };
    let options = TcpOptions { mss: Some(MSS as u16), sack_permitted: true, ..times(100) };
    let config = Config { timestamps: true, sack: true, ..letter(2) };
    let mut harness = Harness::established_with(config, options);
    let mut receive = |start, value| {
        harness.options = times(value);
        harness.receive(ACK, start, 1, &stream(0..900));
        let echo = |it: Sent| it.header.options.timestamps.map(|it| it.echo);
        harness.take().into_iter().map(|it| (it.acknowledgment(), echo(it))).collect::<Vec<_>>()
    };
    assert_eq!(receive(1, 101), [], "the next one is waited for");
    assert_eq!(receive(1_801, 102), [(901, Some(101))]);
    assert_eq!(receive(901, 103), [(2_701, Some(103))]);
}

/// What the peer is told where segments come alone, and where they come in one batch.
fn told(config: &Config, options: TcpOptions, segments: &[u32]) -> [Vec<String>; 2] {
    [true, false].map(|alone| {
        let mut harness = Harness::established_with(config.clone(), options);
        let mut sent = Vec::new();
        for at in segments {
            let header = harness.header(ACK, 1 + at * 1_000, 1);
            harness.receive_header(&header, &stream(0..1_000)).expect("within the window");
            if alone {
                harness.connection.on_batch_end(harness.now);
                sent.append(&mut harness.take());
            }
        }
        harness.connection.on_batch_end(harness.now);
        sent.append(&mut harness.take());
        sent.iter().map(|it| format!("{} {:?}", it.acknowledgment(), it.header)).collect()
    })
}

// RFC 5681, 4.2: each segment ahead of its turn has its duplicate ACK, and a gap that is filled its own.
#[test]
fn disorder_within_a_batch_is_told_as_it_is_of_segments_that_come_alone() {
    let segments = [0, 1, 2, 4, 6, 5, 3, 7, 8, 9];
    for sack_permitted in [false, true] {
        let mss = Some(MSS as u16);
        let options = TcpOptions { mss, sack_permitted, ..TcpOptions::default() };
        let config = Config { sack: true, ..letter(2) };
        let [alone, together] = told(&config, options, &segments);
        assert_eq!(alone.len(), 6, "2, thrice 3, 7, and 9: {alone:?}");
        assert_eq!(together, alone);
    }
}

// RFC 9293, 3.8.6: the right edge does not shrink, but for what a scaled window cannot say (RFC 7323, 2.4).
#[test]
fn the_window_of_an_earlier_number_is_rounded_once() {
    let config = Config { window_scaling: true, receive_buffer_bytes: 1 << 20, ..letter(1) };
    let config = Config { receive_buffer_bytes_initial: 100_001, ..config };
    let options =
        TcpOptions { mss: Some(MSS as u16), window_scale: Some(7), ..TcpOptions::default() };
    let mut harness = Harness::established_with(config, options);
    let shift = harness.connection.negotiated.receive_shift;
    assert!(shift > 0);
    let unit = 1 << shift;
    let (mut sequence, mut highest) = (1, 0);
    for len in [901, 813, 999, 1_000, 777] {
        for _ in 0..6 {
            let header = harness.header(ACK, sequence, 1);
            harness.receive_header(&header, &stream(0..len)).expect("in order");
            sequence += len as u32;
        }
        harness.connection.on_batch_end(harness.now);
        for sent in harness.take() {
            let edge = sent.acknowledgment() + (u32::from(sent.header.window) << shift);
            assert!(edge + unit > highest, "{edge} after {highest}");
            highest = highest.max(edge);
        }
    }
}
