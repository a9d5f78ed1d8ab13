//! Loss recovery by time: RACK, tail loss probes, proportional rate reduction, and what takes a
//! mistake back (RFC 8985, 9937, 3522, 3708, 5682, 2018, 2883, 3042).

use super::harness::*;
use crate::Config;
use crate::sender::congestion::Algorithm;
use crate::sender::rate::Gathered;
use time::Duration;
use wire::{SackBlocks, TcpFlags, TcpOptions, TcpTimestamps};

pub(super) const RTT: Duration = Duration::from_millis(100);

/// A connection over a path of 100 ms, which the handshake has measured.
pub(super) fn path(config: Config) -> Harness {
    path_with(config, TcpFlags::NONE)
}

/// The same, with `flags` in the SYN-ACK beside its own.
fn path_with(config: Config, flags: TcpFlags) -> Harness {
    let timestamps = config.timestamps;
    let mut harness = Harness::connect(config);
    let syn = harness.expect_one();
    harness.now += RTT;
    let theirs = syn.header.options.timestamps;
    harness.options = TcpOptions {
        mss: Some(MSS as u16),
        sack_permitted: syn.header.options.sack_permitted,
        timestamps: theirs
            .filter(|_| timestamps)
            .map(|ours| TcpTimestamps { value: 7, echo: ours.value }),
        ..TcpOptions::default()
    };
    harness.receive(SYN | ACK | flags, 0, 1, b"");
    harness.options =
        TcpOptions { timestamps: harness.options.timestamps, ..TcpOptions::default() };
    harness.take();
    harness
}

pub(super) fn sack_config() -> Config {
    let congestion = crate::sender::congestion::CongestionConfig {
        algorithm: crate::sender::congestion::Algorithm::NewReno,
        ..Config::default().congestion
    };
    let pacing = crate::Pacing::Off;
    Config { nodelay: true, sack: true, congestion, pacing, ..plain_config() }
}

/// `segments` of 1,000 bytes are in flight and one more round trip has passed.
pub(super) fn in_flight(mut harness: Harness, segments: usize) -> Harness {
    harness.write(&stream(0..1_000 * segments));
    assert_eq!(harness.take().len(), segments);
    harness.now += RTT;
    harness
}

pub(super) fn sack(harness: &mut Harness, ack: u32, blocks: &[(u32, u32)]) {
    harness.options.sack = SackBlocks::NONE;
    for (start, end) in blocks {
        harness.options.sack.push(ISS + *start, ISS + *end);
    }
    harness.receive(ACK, 1, ack, b"");
    harness.options.sack = SackBlocks::NONE;
}

/// So many segments are in flight, of which these were SACKed, and the timer went off twice since.
pub(super) fn timed_out_twice(segments: usize, sacked: &[(u32, u32)]) -> Harness {
    let mut harness = in_flight(path(sack_config()), segments);
    sack(&mut harness, 1, sacked);
    assert_eq!(harness.take_ranges()[0], (1, 1_000));
    for _ in 0..2 {
        harness.pass_to_deadline();
        harness.take();
    }
    assert_eq!(harness.connection.counters().retransmission_timeouts, 2);
    harness
}

fn echo(harness: &mut Harness, of: &Sent) {
    let ours = of.header.options.timestamps.expect("timestamps");
    harness.options.timestamps = Some(TcpTimestamps { value: 8, echo: ours.value });
}

// RFC 8985, 6.2, step 4: one segment above is no proof; a quarter of the least round trip is waited.
#[test]
fn the_reordering_timer_finds_a_loss_that_three_duplicates_would_not() {
    let mut harness = in_flight(path(sack_config()), 3);
    sack(&mut harness, 1, &[(1_001, 2_001)]);
    harness.expect_nothing();
    assert_eq!(harness.pass_to_deadline(), RTT / 4);
    assert_eq!(harness.take_ranges(), [(1, 1_000)]);
    assert_eq!(harness.connection.counters().reordering_timeouts, 1);
    assert_eq!(harness.connection.counters().fast_recoveries, 1);
    assert_eq!(worst_loss(&harness), Some(1_000));
}

/// What the next ACK will tell the controller of the losses since the one before, in bytes.
fn worst_loss(harness: &Harness) -> Option<u64> {
    let mut rate = harness.connection.sender.recovery.rate.clone();
    rate.sample(&Gathered::default(), 0, None)?.worst_loss.map(|loss| loss.lost_bytes)
}

// draft-ietf-ccwg-bbr, 5.5.10: HandleLostPacket sees every loss, be it found by a timer.
#[test]
fn what_the_retransmission_timer_finds_lost_is_told_with_the_next_ack() {
    let mut harness = in_flight(path(sack_config()), 4);
    while harness.connection.counters().retransmission_timeouts == 0 {
        harness.take();
        harness.pass_to_deadline();
    }
    assert!(worst_loss(&harness) >= Some(3_000));
    harness.receive(ACK, 1, 1_001, b"");
    assert_eq!(worst_loss(&harness), None, "told once");
}

// RFC 1191, 6.4: what was too long for the path was not lost for congestion.
#[test]
fn what_was_too_long_for_the_path_is_no_loss_to_the_controller() {
    let mut harness = in_flight(path(sack_config()), 4);
    let connection = &mut harness.connection;
    connection.sender.recovery.on_path_change(&connection.sender.sequence, 1);
    assert_eq!(harness.connection.sender.recovery.lost_bytes(), 4_000);
    assert_eq!(worst_loss(&harness), None);
}

// RFC 8985, 6.2, step 4: "RACK.segs_sacked >= DupThresh": no wait.
#[test]
fn three_segments_above_begin_recovery_at_once() {
    let mut harness = in_flight(path(sack_config()), 5);
    sack(&mut harness, 1, &[(1_001, 4_001)]);
    assert_eq!(harness.take_ranges(), [(1, 1_000)]);
}

// RFC 8985, 6.2, step 3 and 4: once segments were seen to overtake each other, the threshold of
// three does not begin recovery any more.
#[test]
fn a_path_that_reorders_is_given_time() {
    let mut harness = in_flight(path(sack_config()), 5);
    sack(&mut harness, 1, &[(2_001, 3_001)]);
    harness.expect_nothing();
    harness.now += Duration::from_millis(5);
    harness.receive(ACK, 1, 3_001, b"");
    assert_eq!(harness.connection.counters().reordering_seen, 1);
    harness.receive(ACK, 1, 5_001, b"");
    let mut harness = in_flight(harness, 6);
    sack(&mut harness, 5_001, &[(6_001, 11_001)]);
    harness.expect_nothing();
    assert_eq!(harness.pass_to_deadline(), RTT / 4);
    assert_eq!(harness.take_ranges(), [(5_001, 1_000)]);
}

// RFC 8985, 3.2: lost retransmissions; what was sent later and arrives proves it.
#[test]
fn a_lost_retransmission_is_sent_again_without_a_timeout() {
    let mut harness = in_flight(path(sack_config()), 8);
    harness.write(&stream(0..20_000));
    sack(&mut harness, 1, &[(1_001, 7_001)]);
    let sent = harness.take_ranges();
    assert_eq!(sent[0], (1, 1_000));
    assert!(sent.len() > 1, "new data follows: {sent:?}");
    harness.now += RTT;
    // The new data arrives, the retransmission does not.
    sack(&mut harness, 1, &[(1_001, 9_001)]);
    assert_eq!(harness.take_ranges()[0], (1, 1_000));
    let counters = harness.connection.counters();
    assert_eq!((counters.retransmissions_lost, counters.retransmission_timeouts), (1, 0));
}

// RFC 8985, 3.2: the tail of a flight in recovery is found when the retransmission, which was sent
// later, arrives.
#[test]
fn a_tail_lost_in_recovery_waits_for_no_timeout() {
    let mut harness = in_flight(path(sack_config()), 8);
    sack(&mut harness, 1, &[(1_001, 7_001)]);
    assert_eq!(harness.take_ranges(), [(1, 1_000)]);
    harness.now += RTT;
    harness.receive(ACK, 1, 7_001, b"");
    assert_eq!(harness.take_ranges(), [(7_001, 1_000)]);
}

// RFC 8985, 8: the reordering timer and the probe's are mutually exclusive. What was sent before something that
// arrived has its own time also where a recovery was taken back, whatever is sent meanwhile.
#[test]
fn the_reordering_timer_sends_no_probe() {
    for sends_more in [false, true] {
        let mut harness = in_flight(path(sack_config()), 10);
        harness.write(&stream(0..1_000));
        sack(&mut harness, 1, &[(1_001, 2_001)]);
        assert_eq!(harness.take_ranges(), [(10_001, 1_000)], "limited transmit");
        let gap = Duration::from_millis(5);
        harness.now += gap;
        sack(&mut harness, 1, &[(1_001, 4_001)]);
        assert_eq!(harness.take_ranges(), [(1, 1_000)]);
        harness.now += RTT;
        // The original of that was only late, but of what left just before its copy nothing is heard.
        sack(&mut harness, 10_001, &[(1, 1_001)]);
        assert_eq!(harness.connection.counters().undone_by_duplicates, 1);
        if sends_more {
            harness.write(&stream(1_000..2_000));
            assert_eq!(harness.take_ranges(), [(11_001, 1_000)]);
        }
        // Two quarters of a round trip, since duplicates were reported.
        assert_eq!(harness.pass_to_deadline(), RTT / 2 - gap);
        assert_eq!(harness.take_ranges(), [(10_001, 1_000)]);
        let counters = harness.connection.counters();
        assert_eq!((counters.reordering_timeouts, counters.tail_loss_probes), (1, 0));
    }
}

// RFC 8985, 7.2 and 7.3: two round trips of silence, then the last segment again.
#[test]
fn a_lost_tail_is_probed_and_repaired_before_the_timeout() {
    let mut harness = path(sack_config());
    harness.write(&stream(0..3_000));
    harness.take();
    assert_eq!(harness.pass_to_deadline(), 2 * RTT + Duration::from_millis(2));
    assert_eq!(harness.take_ranges(), [(2_001, 1_000)]);
    harness.now += RTT;
    sack(&mut harness, 1, &[(2_001, 3_001)]);
    // RACK: both were sent before the probe that arrived, and longer ago than a round trip.
    assert_eq!(harness.take_ranges()[0], (1, 1_000));
    harness.now += RTT;
    harness.receive(ACK, 1, 1_001, b"");
    assert_eq!(harness.take_ranges(), [(1_001, 1_000)]);
    let counters = harness.connection.counters();
    assert_eq!((counters.tail_loss_probes, counters.retransmission_timeouts), (1, 0));
}

// RFC 8985, 7.3: "If an unsent segment exists and the receive window allows": new data, beyond the
// congestion window.
#[test]
fn a_probe_is_new_data_where_there_is_some() {
    let mut harness = path(sack_config());
    harness.write(&stream(0..20_000));
    assert_eq!(harness.take().len(), 10);
    harness.pass_to_deadline();
    assert_eq!(harness.take_ranges(), [(10_001, 1_000)]);
    assert_eq!(harness.connection.counters().retransmitted_segments, 0);
}

// RFC 8985, 7.2: with one segment in flight the ACK may be delayed; the timer is never later than
// the retransmission timer would be.
#[test]
fn a_single_segment_is_probed_when_the_retransmission_timer_would_go_off() {
    for len in [700, MSS] {
        let mut harness = path(sack_config());
        let rto = harness.connection.sender.rtt.rto();
        harness.write(&stream(0..len));
        harness.take();
        assert_eq!(harness.pass_to_deadline(), (2 * RTT + Duration::from_millis(200)).min(rto));
        assert_eq!(harness.take_ranges(), [(1, len)]);
        // "The sender MUST re-arm the RTO timer", and there is no second probe.
        assert_eq!(harness.pass_to_deadline(), rto);
        assert_eq!(harness.connection.counters().retransmission_timeouts, 1);
    }
}

/// Two segments are in flight, and a probe has repeated the second.
pub(super) fn probed() -> Harness {
    let mut harness = path(sack_config());
    harness.write(&stream(0..2_000));
    harness.take();
    harness.pass_to_deadline();
    assert_eq!(harness.take_ranges(), [(1_001, 1_000)]);
    harness
}

// RFC 8985, 7.4.2: a probe that repaired the only loss hides it; congestion control must hear of it.
#[test]
fn a_loss_repaired_by_a_probe_reduces_the_window() {
    let mut harness = probed();
    harness.write(&stream(2_000..3_000));
    harness.take();
    harness.now += RTT;
    let before = harness.connection.congestion_window();
    harness.receive(ACK, 1, 3_001, b"");
    assert_eq!(harness.connection.counters().tail_loss_repairs, 1);
    assert!(harness.connection.congestion_window() < before);
}

// RFC 8985, 7.4.2: TLP.end_seq stands until an ACK has told what became of the probe, though all may
// be acknowledged in between.
#[test]
fn a_loss_repaired_by_a_probe_is_not_forgotten_when_all_is_acknowledged() {
    a_repaired_loss_is_found(|_| 1);
}

// Neither data nor a changed window is a duplicate ACK, by which the receiver says that it had both copies.
#[test]
fn an_answer_is_no_sign_that_a_probe_was_needless() {
    a_repaired_loss_is_found(|harness| {
        harness.receive(ACK, 1, 2_001, b"answer");
        7
    });
    a_repaired_loss_is_found(|harness| {
        harness.window += 1_000;
        harness.receive(ACK, 1, 2_001, b"");
        1
    });
}

/// `meanwhile` says where the peer stands then.
fn a_repaired_loss_is_found(meanwhile: impl FnOnce(&mut Harness) -> u32) {
    let mut harness = probed();
    harness.now += RTT;
    harness.receive(ACK, 1, 2_001, b"");
    assert_eq!(harness.connection.counters().tail_loss_repairs, 0, "it may yet have been needless");
    let sequence = meanwhile(&mut harness);
    harness.write(&stream(2_000..3_000));
    harness.take();
    harness.now += RTT;
    harness.receive(ACK, sequence, 3_001, b"");
    assert_eq!(harness.connection.counters().tail_loss_repairs, 1);
}

// RFC 6298, 5.1: while data is outstanding the timer runs, also when a timeout is found out to be
// spurious before the device has taken what it wanted to send again.
#[test]
fn the_timer_runs_behind_a_timeout_that_was_spurious() {
    let mut harness = path(sack_config());
    harness.write(&stream(0..4_000));
    harness.take();
    harness.pass_to_deadline();
    harness.take();
    harness.pass_to_deadline();
    assert_eq!(harness.connection.counters().retransmission_timeouts, 1);
    sack(&mut harness, 1, &[(1_001, 2_001)]);
    assert_eq!(harness.connection.counters().spurious_timeouts, 1);
    assert!(harness.connection.sender.sequence.flight() > 0);
    assert!(harness.connection.timers.is_set(crate::timers::Timer::Retransmission));
}

// RFC 8985, 7.4.2: the receiver had both copies.
#[test]
fn a_needless_probe_changes_nothing() {
    let mut harness = path(sack_config());
    harness.write(&stream(0..2_000));
    harness.take();
    harness.pass_to_deadline();
    harness.take();
    harness.now += RTT;
    sack(&mut harness, 2_001, &[(1_001, 2_001)]);
    harness.write(&stream(2_000..4_000));
    harness.take();
    let before = harness.connection.congestion_window();
    harness.receive(ACK, 1, 4_001, b"");
    assert!(harness.connection.congestion_window() >= before);
    let counters = harness.connection.counters();
    assert_eq!((counters.tail_loss_repairs, counters.duplicate_sacks_received), (0, 1));
}

// RFC 9937, 4: half a window less goes out over the whole round trip, not after half of it.
#[test]
fn recovery_sends_in_proportion_to_what_arrives() {
    let mut harness = in_flight(path(sack_config()), 10);
    harness.write(&stream(0..50_000));
    let mut sent = Vec::new();
    for arrived in 4..11 {
        sack(&mut harness, 1, &[(1_001, 1_000 * arrived + 1)]);
        sent.push(harness.take().len());
    }
    // The threshold is 5 segments: the retransmission, then one for about every second ACK.
    assert_eq!(sent[0], 1);
    assert!(sent.iter().all(|count| *count <= 1), "{sent:?}");
    assert!((4..=5).contains(&sent.iter().sum::<usize>()), "{sent:?}");
}

// RFC 3042 with SACK (RFC 6675, 5): each of the first two duplicates lets a new segment go.
#[test]
fn limited_transmit_sends_new_data_for_the_first_two_reports() {
    let mut harness = path(sack_config());
    harness.write(&stream(0..30_000));
    assert_eq!(harness.take().len(), 10);
    harness.now += RTT;
    sack(&mut harness, 1, &[(1_001, 2_001)]);
    assert_eq!(harness.take_ranges(), [(10_001, 1_000)]);
    sack(&mut harness, 1, &[(1_001, 3_001)]);
    assert_eq!(harness.take_ranges(), [(11_001, 1_000)]);
    sack(&mut harness, 1, &[(1_001, 4_001)]);
    assert_eq!(harness.take_ranges(), [(1, 1_000)]);
}

// RFC 3522, 3.2: the first acceptable ACK echoes a timestamp from before the retransmission.
#[test]
fn a_timestamp_from_before_the_retransmission_undoes_it() {
    let mut harness = path(Config { timestamps: true, ..sack_config() });
    harness.write(&stream(0..9_880));
    let sent = harness.take();
    assert_eq!(sent.len(), 10);
    let before = harness.connection.congestion_window();
    harness.now += RTT;
    sack(&mut harness, 1, &[(989, 3_953)]);
    assert_eq!(harness.take_ranges()[0], (1, 988));
    assert!(harness.connection.congestion_window() < before);
    // The original was only late.
    harness.now += Duration::from_millis(10);
    echo(&mut harness, &sent[0]);
    harness.receive(ACK, 1, 3_953, b"");
    assert!(harness.connection.congestion_window() >= before);
    assert_eq!(harness.connection.counters().undone_by_timestamps, 1);
    // The path is known to reorder now: three segments above are no proof any more.
    assert_eq!(harness.connection.info(harness.now).reordering_segments, 3);
    echo(&mut harness, &sent[9]);
    sack(&mut harness, 3_953, &[(4_941, 9_881)]);
    harness.expect_nothing();
    assert_eq!(harness.pass_to_deadline(), RTT / 4);
    assert_eq!(harness.take_ranges(), [(3_953, 988)]);
}

// RFC 8985, 6.2, step 3: what is delivered behind later data was reordered, by as many segments.
#[test]
fn how_far_a_path_reorders_is_told_in_segments() {
    let mut harness = path(sack_config());
    harness.write(&stream(0..7_000));
    assert_eq!(harness.take().len(), 7);
    let told = |harness: &Harness| {
        let info = harness.connection.info(harness.now);
        (info.reordering_segments, info.reorderings_seen)
    };
    harness.now += RTT;
    sack(&mut harness, 1, &[(6_001, 7_001)]);
    assert_eq!(told(&harness), (3, 0), "a hole is none yet");
    sack(&mut harness, 1, &[(2_001, 3_001), (6_001, 7_001)]);
    assert_eq!(told(&harness), (5, 1));
    harness.receive(ACK, 1, 7_001, b"");
    assert_eq!(told(&harness), (7, 2), "the first came last");
    assert_eq!(harness.take_ranges(), [], "nothing is sent again");
}

// The same path, but the retransmission is what was answered.
#[test]
fn a_timestamp_of_the_retransmission_undoes_nothing() {
    let mut harness = path(Config { timestamps: true, ..sack_config() });
    harness.write(&stream(0..9_880));
    assert_eq!(harness.take().len(), 10);
    harness.now += RTT;
    sack(&mut harness, 1, &[(989, 3_953)]);
    let again = harness.take();
    harness.now += RTT;
    echo(&mut harness, &again[0]);
    harness.receive(ACK, 1, 9_881, b"");
    assert_eq!(harness.connection.counters().undone_by_timestamps, 0);
}

// What was overtaken comes in the same batch as what tells of its loss, or while there is no room to send it again.
#[test]
fn what_arrives_before_it_is_sent_again_was_not_lost() {
    for has_sack in [true, false] {
        let mut harness = in_flight(path(Config { sack: has_sack, ..sack_config() }), 10);
        let before = harness.connection.congestion_window();
        for last in [2_001, 3_001, 4_001] {
            if has_sack {
                sack(&mut harness, 1, &[(1_001, last)]);
            } else {
                harness.receive(ACK, 1, 1, b"");
            }
        }
        assert_eq!(harness.connection.counters().fast_recoveries, 1);
        assert!(harness.connection.congestion_window() < before);
        harness.options.sack = SackBlocks::NONE;
        harness.receive(ACK, 1, 4_001, b"");
        assert!(harness.connection.congestion_window() >= before, "with SACK: {has_sack}");
        assert_eq!(harness.connection.counters().undone_by_originals, 1);
        assert_eq!(harness.take_ranges(), [], "nothing is sent again");
    }
}

// A probe that was on the way has repaired the loss: it is one.
#[test]
fn what_arrives_by_a_probe_from_before_was_lost() {
    let mut harness = in_flight(path(sack_config()), 4);
    harness.pass_to_deadline();
    let probe = harness.take_ranges();
    assert_eq!(probe, [(3_001, 1_000)]);
    sack(&mut harness, 1, &[(1_001, 4_001)]);
    assert_eq!(harness.connection.counters().fast_recoveries, 1);
    harness.options.sack = SackBlocks::NONE;
    harness.receive(ACK, 1, 4_001, b"");
    assert_eq!(harness.connection.counters().undone_by_originals, 0);
}

// RFC 3708, with RFC 2883: all that was sent again arrived twice, though recovery is over.
#[test]
fn reports_of_duplicates_for_all_retransmissions_undo_them() {
    let mut harness = in_flight(path(sack_config()), 10);
    let before = harness.connection.congestion_window();
    sack(&mut harness, 1, &[(1_001, 4_001)]);
    assert_eq!(harness.take_ranges(), [(1, 1_000)]);
    harness.receive(ACK, 1, 10_001, b"");
    assert!(harness.connection.congestion_window() < before);
    harness.write(&stream(0..1_000));
    harness.take();
    sack(&mut harness, 10_001, &[(1, 1_001)]);
    assert!(harness.connection.congestion_window() >= before);
    assert_eq!(harness.connection.counters().undone_by_duplicates, 1);
}

// RFC 3708, 2: a receiver that reports duplicates of what was never sent again gains nothing.
#[test]
fn reports_of_duplicates_are_believed_for_what_was_sent_again_only() {
    let mut harness = in_flight(path(sack_config()), 10);
    harness.write(&stream(0..50_000));
    sack(&mut harness, 1, &[(4_001, 7_001)]);
    let again = harness.take_ranges();
    assert_eq!(again[0], (1, 1_000));
    let reduced = harness.connection.congestion_window();
    for _ in 0..1_000 {
        // Duplicates of what was sent once.
        sack(&mut harness, 1, &[(5_001, 6_001), (4_001, 7_001)]);
    }
    assert!(harness.connection.congestion_window() <= reduced.max(5_000));
    assert_eq!(harness.connection.counters().duplicate_sacks_received, 1_000);
}

// Where every segment takes two ways the peer reports each retransmission as a duplicate, though the
// original was lost on both; and without SACK every copy draws a duplicate ACK.
#[test]
fn on_several_ways_duplicates_prove_nothing() {
    let mut harness = in_flight(path(sack_config()), 10);
    harness.connection.set_path_duplicates(true);
    let before = harness.connection.congestion_window();
    sack(&mut harness, 1, &[(1_001, 4_001)]);
    assert_eq!(harness.take_ranges(), [(1, 1_000)]);
    harness.receive(ACK, 1, 10_001, b"");
    harness.write(&stream(0..1_000));
    harness.take();
    sack(&mut harness, 10_001, &[(1, 1_001)]);
    assert!(harness.connection.congestion_window() < before);
    assert_eq!(harness.connection.counters().undone_by_duplicates, 0);
    let mut harness = in_flight(path(Config { sack: false, ..sack_config() }), 10);
    harness.connection.set_path_duplicates(true);
    for _ in 0..10 {
        harness.receive(ACK, 1, 1, b"");
    }
    harness.expect_nothing();
    assert_eq!(harness.connection.counters().fast_recoveries, 0);
}

// RFC 5682, 3.1: step 2.b sends new data, step 3.b finds that the flight was only late.
#[test]
fn a_spurious_timeout_is_found_out_and_taken_back() {
    let mut harness = path(Config { sack: false, ..sack_config() });
    harness.write(&stream(0..30_000));
    assert_eq!(harness.take().len(), 10);
    let before = harness.connection.congestion_window();
    harness.pass_to_deadline();
    assert_eq!(harness.take_ranges(), [(1, 1_000)]);
    let backed_off = harness.connection.sender.rtt.rto();
    harness.receive(ACK, 1, 1_001, b"");
    assert_eq!(harness.take_ranges(), [(10_001, 1_000), (11_001, 1_000)]);
    harness.receive(ACK, 1, 3_001, b"");
    assert!(harness.connection.congestion_window() >= before);
    assert!(harness.connection.sender.rtt.rto() < backed_off, "the back-off is taken back, too");
    let sent = harness.take_ranges();
    assert!(sent.iter().all(|(sequence, _)| *sequence > 10_000), "nothing more again: {sent:?}");
    let counters = harness.connection.counters();
    assert_eq!((counters.spurious_timeouts, counters.retransmitted_segments), (1, 1));
}

// RFC 3522 with RFC 6298: a timestamp needs one ACK to find a spurious timeout.
#[test]
fn a_timestamp_takes_a_timeout_back_at_once() {
    let mut harness = path(Config { timestamps: true, sack: false, ..sack_config() });
    harness.write(&stream(0..9_880));
    let sent = harness.take();
    let before = harness.connection.congestion_window();
    harness.pass_to_deadline();
    assert_eq!(harness.take_ranges(), [(1, 988)]);
    harness.now += Duration::from_millis(5);
    echo(&mut harness, &sent[0]);
    harness.receive(ACK, 1, 989, b"");
    assert!(harness.connection.congestion_window() >= before);
    harness.expect_nothing();
    assert_eq!(harness.connection.counters().undone_by_timestamps, 1);
}

// RFC 2018, 8: "the data receiver ... MUST NOT ... discard" is a SHOULD NOT for SACKed data; the
// sender finds out when the cumulative ACK stops short.
#[test]
fn a_reneging_receiver_gets_its_data_again() {
    let mut harness = in_flight(path(sack_config()), 6);
    sack(&mut harness, 1, &[(1_001, 3_001)]);
    harness.receive(ACK, 1, 1_001, b"");
    assert_eq!(harness.connection.counters().sack_reneges, 1);
    assert_eq!(harness.take_ranges(), [(1_001, 1_000)]);
    harness.now += RTT;
    harness.receive(ACK, 1, 2_001, b"");
    assert_eq!(harness.take_ranges()[0], (2_001, 1_000));
}

#[test]
fn a_renege_is_counted_behind_a_retransmission_too() {
    let mut harness = in_flight(path(sack_config()), 6);
    sack(&mut harness, 1, &[(1_001, 5_001)]);
    assert_eq!(harness.take_ranges(), [(1, 1_000)]);
    harness.now += RTT;
    harness.receive(ACK, 1, 1_001, b"");
    assert_eq!(harness.connection.counters().sack_reneges, 1);
}

// RFC 2018, 8: "SHOULD turn off all of the SACKed bits" when the timer goes off; the second time in
// a row nothing that was reported is relied on.
#[test]
fn two_timeouts_in_a_row_forget_what_was_reported() {
    let mut harness = timed_out_twice(4, &[(1_001, 4_001)]);
    // It had reneged, and acknowledges what comes, one by one.
    harness.receive(ACK, 1, 1_001, b"");
    let ranges = harness.take_ranges();
    assert_eq!(ranges, [(1_001, 1_000), (2_001, 1_000)]);
}

// RFC 2018, 3: blocks about data that was never sent, or that make no sense, are ignored.
#[test]
fn reports_of_what_was_never_sent_are_counted_and_ignored() {
    let mut harness = in_flight(path(sack_config()), 5);
    sack(&mut harness, 1, &[(5_001, 9_001), (4_001, 2_001), (1, 1_001)]);
    harness.expect_nothing();
    assert_eq!(harness.connection.counters().sack_blocks_invalid, 3);
    assert_eq!(harness.connection.counters().sacked_bytes, 0);
}

// RFC 5681, 13 (Savage et al.): splitting an ACK into many does not open the window faster.
#[test]
fn dividing_acknowledgments_gains_nothing() {
    let window = |pieces: u32| {
        let mut harness = in_flight(path(sack_config()), 10);
        for piece in 1..=pieces {
            harness.receive(ACK, 1, 1 + 10_000 * piece / pieces, b"");
        }
        harness.connection.congestion_window()
    };
    assert!(window(1_000) <= window(10));
}

// RFC 5681, 13: more duplicates than there are segments inflate nothing without SACK.
#[test]
fn a_flood_of_duplicate_acks_opens_no_window() {
    let mut harness = path(Config { sack: false, ..sack_config() });
    harness.write(&stream(0..59_000));
    assert_eq!(harness.take().len(), 10);
    for _ in 0..1_000 {
        harness.receive(ACK, 1, 1, b"");
    }
    let sent = harness.take().len();
    assert!(sent <= 12, "{sent} segments for 1,000 duplicates");
}

// RFC 9293, 3.8.3: a peer that takes every timeout back by what it reports does not keep an orphan for ever.
#[test]
fn an_orphan_is_given_up_whatever_its_peer_reports() {
    let mut harness = in_flight(path(sack_config()), 2);
    harness.connection.close(harness.now);
    harness.take();
    let mut timeouts = 0;
    while harness.connection.state() != crate::State::Closed {
        harness.pass_to_deadline();
        harness.take();
        let mut blocks = SackBlocks::NONE;
        blocks.push(ISS + 1, ISS + 1_001);
        blocks.push(ISS + 1, ISS + 2_001);
        harness.options.sack = blocks;
        let _ = harness.try_receive(ACK, 1, 1, b"");
        timeouts += 1;
        assert!(timeouts < 100);
    }
}

// RFC 3708: what reports of duplicates take back is the reduction of that recovery, and no later one.
#[test]
fn reports_of_duplicates_do_not_undo_a_later_reduction() {
    let config = Config { ecn: crate::EcnMode::Request, ..sack_config() };
    let mut harness = in_flight(path_with(config, TcpFlags::ECE), 10);
    sack(&mut harness, 1, &[(1_001, 4_001)]);
    assert_eq!(harness.take_ranges(), [(1, 1_000)]);
    harness.receive(ACK, 1, 10_001, b"");
    let mut harness = in_flight(harness, 5);
    harness.receive(ACK | TcpFlags::ECE, 1, 11_001, b"");
    assert_eq!(harness.connection.counters().reductions_for_marks, 1);
    let reduced = harness.connection.congestion_window();
    sack(&mut harness, 11_001, &[(1, 1_001)]);
    assert_eq!(harness.connection.congestion_window(), reduced);
    assert_eq!(harness.connection.counters().undone_by_duplicates, 0);
}

/// A connection whose window of ten segments a mark has reduced, with the first of them acknowledged.
fn marked(algorithm: Algorithm) -> Harness {
    let base = sack_config();
    let congestion = crate::sender::congestion::CongestionConfig { algorithm, ..base.congestion };
    let config = Config { ecn: crate::EcnMode::Request, congestion, ..base };
    let mut harness = in_flight(path_with(config, TcpFlags::ECE), 10);
    harness.receive(ACK | TcpFlags::ECE, 1, 1_001, b"");
    assert_eq!(harness.connection.counters().reductions_for_marks, 1);
    harness
}

/// The window grows when it was used.
fn assert_grows(mut harness: Harness) {
    let before = harness.connection.congestion_window();
    harness.write(&stream(0..60_000));
    for _ in 0..60 {
        if let Some(last) = harness.take().last() {
            harness.now += RTT;
            harness.receive(ACK, 1, last.sequence() + last.payload.len() as u32, b"");
        }
    }
    assert!(harness.connection.congestion_window() > before);
}

// RFC 3168, 6.1.2: a loss in the round trip of a mark reduces the window no further; that it was none is no news of
// the mark.
#[test]
fn a_mark_stands_where_a_loss_in_its_round_trip_was_a_mistake() {
    for algorithm in [Algorithm::NewReno, Algorithm::Cubic] {
        let mut harness = marked(algorithm);
        let reduced = harness.connection.congestion_window();
        sack(&mut harness, 1_001, &[(2_001, 5_001)]);
        assert_eq!(harness.take_ranges(), [(1_001, 1_000)]);
        sack(&mut harness, 5_001, &[(1_001, 2_001)]);
        let counters = harness.connection.counters();
        assert_eq!((counters.undone_by_duplicates, counters.reductions_for_loss), (1, 0));
        assert_eq!(harness.connection.congestion_window(), reduced);
        harness.receive(ACK, 1, 10_001, b"");
        harness.write(&stream(0..1_000));
        let flags = harness.expect_one().header.flags;
        assert!(flags.contains(TcpFlags::CWR), "the peer hears of it all the same");
        harness.receive(ACK, 1, 11_001, b"");
        assert_grows(harness);
    }
}

// RFC 3168, 6.1.2: where the packet with CWR is dropped, "the sender will have to reduce its congestion window again".
#[test]
fn the_loss_of_the_packet_with_cwr_is_one_of_the_next_round_trip() {
    for algorithm in [Algorithm::NewReno, Algorithm::Cubic] {
        let mut harness = marked(algorithm);
        harness.receive(ACK, 1, 10_001, b"");
        let reduced = harness.connection.congestion_window();
        harness.write(&stream(0..30_000));
        let sent = harness.take();
        assert!(sent.len() > 4 && sent[0].header.flags.contains(TcpFlags::CWR));
        sack(&mut harness, 10_001, &[(11_001, 15_001)]);
        let again = harness.take();
        assert_eq!(
            (again[0].sequence(), again[0].header.flags.contains(TcpFlags::CWR)),
            (10_001, false)
        );
        assert_eq!(harness.connection.counters().reductions_for_loss, 1);
        assert!(harness.connection.congestion_window() < reduced);
        let last =
            sent.iter().chain(&again[1..]).map(|it| it.sequence() + it.payload.len() as u32).max();
        harness.receive(ACK, 1, last.expect("sent"), b"");
        let new = harness.take();
        let owed = again[1..].iter().chain(&new).map(|it| it.header.flags.contains(TcpFlags::CWR));
        assert_eq!(owed.filter(|it| *it).count(), 1, "on the first new data");
    }
}

#[test]
fn a_mistake_found_behind_the_round_trip_of_the_mark_lets_the_window_grow() {
    let mut harness = marked(Algorithm::NewReno);
    harness.write(&stream(0..2_000));
    harness.receive(ACK, 1, 7_001, b"");
    assert_eq!(harness.take_ranges(), [(10_001, 1_000), (11_001, 1_000)]);
    let reduced = harness.connection.congestion_window();
    sack(&mut harness, 7_001, &[(8_001, 11_001)]);
    assert_eq!(harness.take_ranges(), [(7_001, 1_000)]);
    harness.receive(ACK, 1, 11_001, b"");
    sack(&mut harness, 11_001, &[(7_001, 8_001)]);
    assert_eq!(harness.connection.counters().undone_by_duplicates, 1);
    assert_eq!(harness.connection.congestion_window(), reduced);
    assert_grows(harness);
}

// RFC 3168, 6.1.2: no second reaction within a window of data. One that was taken back was none.
#[test]
fn a_mark_counts_where_the_loss_before_it_was_a_mistake() {
    let mut harness = marked(Algorithm::NewReno);
    harness.receive(ACK, 1, 10_001, b"");
    harness.write(&stream(0..1_000));
    harness.take();
    harness.receive(ACK, 1, 11_001, b"");
    let mut harness = in_flight(harness, 5);
    sack(&mut harness, 11_001, &[(12_001, 15_001)]);
    assert_eq!(harness.take_ranges(), [(11_001, 1_000)]);
    sack(&mut harness, 15_001, &[(11_001, 12_001)]);
    assert_eq!(harness.connection.counters().undone_by_duplicates, 1);
    harness.receive(ACK | TcpFlags::ECE, 1, 16_001, b"");
    assert_eq!(harness.connection.counters().reductions_for_marks, 2);
}
