//! Ends of records: nothing is put behind one, whichever way a segment leaves.

use super::harness::*;
use super::recovery::{RTT, path, sack, sack_config};
use crate::{Config, Connection, PathProbing};
use time::{Duration, Instant};
use wire::TcpOptions;

fn write_record(harness: &mut Harness, bytes: &[u8]) {
    harness.write(bytes);
    harness.connection.end_record();
}

/// Two records of 400 bytes, 300 bytes that belong to none, and a third behind them.
fn three_records(harness: &mut Harness) {
    write_record(harness, &stream(0..400));
    write_record(harness, &stream(400..800));
    harness.write(&stream(800..1_100));
    write_record(harness, &stream(1_100..1_500));
}

#[test]
fn each_record_is_pushed_in_segments_of_its_own() {
    let mut harness = Harness::established(Config { nodelay: true, ..plain_config() });
    harness.write(&stream(0..300));
    write_record(&mut harness, &stream(300..2_500));
    write_record(&mut harness, &stream(2_500..3_500));
    harness.write(&stream(3_500..5_000));
    let sent = harness.take();
    let brief = |one: &Sent| (one.sequence(), one.payload.len(), one.header.flags.contains(PSH));
    assert_eq!(
        sent.iter().map(brief).collect::<Vec<_>>(),
        [
            (1, 1_000, false),
            (1_001, 1_000, false),
            (2_001, 500, true),
            (2_501, 1_000, true),
            (3_501, 1_000, false),
            (4_501, 500, true),
        ]
    );
    assert_eq!(sent[0].run, sent[2].run);
    assert!(sent[3].run != sent[2].run && sent[4].run != sent[3].run, "runs end with records");
    // Of what is acknowledged nothing is left that could cut what comes.
    harness.receive(ACK, 1, 5_001, b"");
    harness.connection.end_record();
    harness.write(&stream(5_000..7_000));
    assert_eq!(harness.take_ranges(), [(5_001, 1_000), (6_001, 1_000)]);
}

// RFC 9293, 3.7.4: it is the short end of what is queued that Nagle's algorithm, and a cork, hold back.
#[test]
fn only_the_last_record_waits_to_become_longer() {
    let mut harness = Harness::established(Config { minshall: false, ..plain_config() });
    harness.write(&stream(0..1_000));
    harness.take();
    three_records(&mut harness);
    assert_eq!(harness.take_ranges(), [(1_001, 400), (1_401, 400)]);
    harness.receive(ACK, 1, 1_801, b"");
    assert_eq!(harness.take_ranges(), [(1_801, 700)]);
}

#[test]
fn a_record_that_fits_the_window_goes_though_more_waits() {
    let mut harness = Harness::established(Config { nodelay: true, ..plain_config() });
    harness.window = 400;
    harness.receive(ACK, 1, 1, b"");
    three_records(&mut harness);
    assert_eq!(harness.take_ranges(), [(1, 400)]);
    harness.receive(ACK, 1, 401, b"");
    assert_eq!(harness.take_ranges(), [(401, 400)]);
}

#[test]
fn what_is_sent_again_has_the_same_ends() {
    let mut harness = path(sack_config());
    three_records(&mut harness);
    let first = [(1, 400), (401, 400), (801, 700)];
    assert_eq!(harness.take_ranges(), first);
    while harness.connection.counters().retransmission_timeouts == 0 {
        harness.pass_to_deadline();
        // RFC 8985, 7.3: a probe of the tail has the end of the last of them.
        for (sequence, len) in harness.take_ranges() {
            let is_probe = sequence >= 801 && sequence + len as u32 == 1_501;
            let is_first = first[..2].contains(&(sequence, len));
            assert!(is_probe || is_first, "{len} bytes at {sequence}");
        }
    }
    harness.now += RTT;
    harness.receive(ACK, 1, 801, b"");
    assert_eq!(harness.take_ranges(), [(801, 700)]);
}

#[test]
fn a_hole_of_several_records_is_filled_by_as_many_segments() {
    let mut harness = path(sack_config());
    for at in 0..4 {
        write_record(&mut harness, &stream(200 * at..200 * (at + 1)));
    }
    harness.write(&stream(800..4_800));
    assert_eq!(harness.take().len(), 8);
    harness.now += RTT;
    sack(&mut harness, 1, &[(801, 4_801)]);
    assert_eq!(harness.take_ranges(), [(1, 200), (201, 200), (401, 200), (601, 200)]);
}

// RFC 8985, 7.3: nothing of the segment before the last.
#[test]
fn a_probe_of_the_tail_is_the_last_record() {
    let mut harness = path(sack_config());
    write_record(&mut harness, &stream(0..300));
    write_record(&mut harness, &stream(300..700));
    assert_eq!(harness.take_ranges(), [(1, 300), (301, 400)]);
    harness.pass_to_deadline();
    assert_eq!(harness.take_ranges(), [(301, 400)]);
    assert_eq!(harness.connection.counters().tail_loss_probes, 1);
    // With the end of the stream.
    let mut harness = path(sack_config());
    write_record(&mut harness, &stream(0..300));
    write_record(&mut harness, &stream(300..700));
    harness.connection.shutdown_write();
    harness.take();
    harness.pass_to_deadline();
    let probe = harness.expect_one();
    assert_eq!((probe.sequence(), probe.payload.len()), (301, 400));
    assert!(probe.header.flags.contains(FIN));
}

// RFC 8985, 7.3: all of the last segment, though with what left before it it is longer than one.
#[test]
fn a_probe_of_the_tail_has_all_of_the_last_record() {
    let mut harness = path(sack_config());
    write_record(&mut harness, &stream(0..700));
    write_record(&mut harness, &stream(700..1_400));
    assert_eq!(harness.take_ranges(), [(1, 700), (701, 700)]);
    harness.pass_to_deadline();
    assert_eq!(harness.take_ranges(), [(701, 700)]);
}

// RFC 4821, 7.4: a probe is longer than other segments, and no reason to join records.
#[test]
fn no_probe_of_the_path_joins_records() {
    let probed = |record: usize| {
        let config = Config { path_probing: PathProbing::Always, ..sack_config() };
        let mut parameters = parameters(config);
        (parameters.mss_send_max, parameters.mss_receive) = (1_460, 1_460);
        let now = Instant::from_millis(10_000);
        let mut harness = Harness::wrap(Connection::connect(parameters, now), now);
        harness.expect_one();
        harness.now += Duration::from_millis(10);
        harness.options =
            TcpOptions { mss: Some(1_460), sack_permitted: true, ..TcpOptions::default() };
        harness.receive(SYN | ACK, 0, 1, b"");
        harness.options = TcpOptions::default();
        harness.expect_one();
        // One is due once something was acknowledged.
        harness.write(&stream(0..500));
        harness.take();
        harness.now += Duration::from_millis(10);
        harness.receive(ACK, 1, 501, b"");
        for at in 0..20_000 / record {
            write_record(&mut harness, &stream(record * at..record * (at + 1)));
        }
        harness.take().iter().any(|segment| segment.payload.len() > 1_024)
    };
    assert!(probed(20_000));
    assert!(!probed(1_000));
}

#[test]
fn the_end_of_a_record_waits_for_no_whole_super_frame() {
    let mut harness = Harness::established(plain_config());
    harness.connection.set_super_frame_len(20 + 4 * MSS as u16 + 900);
    write_record(&mut harness, &stream(0..5_000));
    assert_eq!(harness.take().len(), 5);
    // What is short waits as elsewhere, where it is the last.
    write_record(&mut harness, &stream(5_000..5_300));
    harness.expect_nothing();
    write_record(&mut harness, &stream(5_300..5_400));
    assert_eq!(harness.take_ranges(), [(5_001, 300)]);
}

// RFC 5681, 3.2: what three duplicate ACKs have sent again is the first segment, which has no more than a record.
#[test]
fn three_duplicate_acks_have_one_record_sent_again() {
    let mut harness = Harness::established(Config { nodelay: true, ..plain_config() });
    for at in 0..8 {
        write_record(&mut harness, &stream(100 * at..100 * (at + 1)));
    }
    assert_eq!(harness.take().len(), 8);
    for _ in 0..3 {
        harness.receive(ACK, 1, 1, b"");
    }
    assert_eq!(harness.take_ranges(), [(1, 100)]);
    // RFC 6582, 3.2, step 3: a partial ACK has the next.
    harness.receive(ACK, 1, 301, b"");
    assert_eq!(harness.take_ranges(), [(301, 100)]);
}

// RFC 4821, 7.7: it is long segments that a black hole keeps, and short records are none however many left together.
#[test]
fn short_records_that_are_lost_are_no_black_hole() {
    let config = Config { nodelay: true, ..sack_config() };
    let mut harness = path(config);
    for at in 0..8 {
        write_record(&mut harness, &stream(300 * at..300 * (at + 1)));
    }
    assert_eq!(harness.take().len(), 8);
    for _ in 0..8 {
        harness.pass_to_deadline();
        harness.take();
    }
    assert!(harness.connection.counters().retransmission_timeouts > 3);
    assert_eq!(harness.connection.counters().black_holes, 0);
}
