//! Loss: fast retransmit and recovery with and without SACK, limited transmit, timeouts
//! (RFC 5681, 6582, 6675, 3042, 6298).

use super::harness::*;
use crate::{Algorithm, Config, CongestionConfig, State};
use time::Duration;
use wire::{SackBlocks, TcpOptions, TcpTimestamps};

fn plain() -> Harness {
    let config = Config { nodelay: true, ..plain_config() };
    let mut harness = Harness::established(config);
    harness.write(&stream(0..30_000));
    assert_eq!(harness.take().len(), 10);
    harness
}

fn with_sack() -> Harness {
    let config = Config { nodelay: true, sack: true, ..plain_config() };
    let options = TcpOptions { mss: Some(1_000), sack_permitted: true, ..TcpOptions::default() };
    let mut harness = Harness::established_with(config, options);
    harness.write(&stream(0..30_000));
    assert_eq!(harness.take().len(), 10);
    harness
}

fn sack(harness: &mut Harness, ack: u32, blocks: &[(u32, u32)]) {
    // What is reported now was not sent now.
    harness.now += Duration::from_millis(1);
    harness.options.sack = SackBlocks::NONE;
    for (start, end) in blocks {
        harness.options.sack.push(ISS + *start, ISS + *end);
    }
    harness.receive(ACK, 1, ack, b"");
    harness.options.sack = SackBlocks::NONE;
}

#[test]
fn limited_transmit_then_fast_retransmit_then_new_reno() {
    let mut harness = plain();
    harness.receive(ACK, 1, 1, b"");
    assert_eq!(harness.take_ranges(), [(10_001, 1_000)], "RFC 3042");
    harness.receive(ACK, 1, 1, b"");
    assert_eq!(harness.take_ranges(), [(11_001, 1_000)]);
    harness.receive(ACK, 1, 1, b"");
    assert_eq!(harness.take_ranges(), [(1, 1_000)], "RFC 5681, 3.2: the third");
    assert_eq!(harness.connection.counters().fast_recoveries, 1);
    for _ in 0..4 {
        harness.receive(ACK, 1, 1, b"");
    }
    let inflated = harness.take_ranges();
    assert!(inflated.iter().all(|(sequence, _)| *sequence >= 12_001), "{inflated:?}");
    // RFC 6582: a partial ACK sends the next hole at once.
    harness.receive(ACK, 1, 3_001, b"");
    assert_eq!(harness.take_ranges()[0], (3_001, 1_000));
    harness.receive(ACK, 1, 20_000.min(12_001 + 1_000 * inflated.len() as u32), b"");
    assert_eq!(harness.connection.counters().retransmitted_segments, 2);
    assert!(harness.take_ranges().iter().all(|(sequence, _)| *sequence > 12_001));
}

#[test]
fn sack_sends_exactly_the_holes_again() {
    let mut harness = with_sack();
    // Lost: 1..1001 and 3001..4001.
    sack(&mut harness, 1, &[(1_001, 2_001)]);
    sack(&mut harness, 1, &[(1_001, 3_001)]);
    sack(&mut harness, 1, &[(4_001, 5_001), (1_001, 3_001)]);
    harness.flush();
    sack(&mut harness, 1, &[(4_001, 6_001), (1_001, 3_001)]);
    sack(&mut harness, 1, &[(4_001, 7_001), (1_001, 3_001)]);
    sack(&mut harness, 1, &[(4_001, 10_001), (1_001, 3_001)]);
    let sent = harness.take_ranges();
    let again: Vec<_> = sent.iter().filter(|(sequence, _)| *sequence < 10_001).collect();
    assert_eq!(again, [&(1, 1_000), &(3_001, 1_000)]);
    assert_eq!(harness.connection.counters().fast_recoveries, 1);
    assert_eq!(harness.connection.counters().retransmission_timeouts, 0);
}

#[test]
fn duplicate_acks_with_data_or_another_window_are_none() {
    let mut harness = plain();
    for at in 0..3 {
        harness.receive(ACK, 1 + at, 1, b"x");
    }
    for _ in 0..3 {
        harness.window -= 1;
        harness.receive(ACK, 4, 1, b"");
    }
    assert_eq!(harness.connection.counters().duplicate_acks_received, 0);
}

#[test]
fn a_timeout_sends_the_first_segment_then_follows_the_acks() {
    let mut harness = plain();
    harness.pass_to_deadline();
    assert_eq!(harness.take_ranges(), [(1, 1_000)]);
    assert_eq!(harness.connection.congestion_window(), 1_000);
    harness.receive(ACK, 1, 1_001, b"");
    assert_eq!(harness.take_ranges(), [(10_001, 1_000), (11_001, 1_000)], "RFC 5682, step 2.b");
    // A duplicate ACK: the loss was real (step 3.a).
    harness.receive(ACK, 1, 1_001, b"");
    assert_eq!(harness.take_ranges(), [(1_001, 1_000)]);
    // The peer had the rest.
    harness.receive(ACK, 1, 12_001, b"");
    assert!(harness.take_ranges().iter().all(|(sequence, _)| *sequence >= 12_001));
    assert_eq!(harness.connection.counters().retransmitted_segments, 2);
}

// RFC 4821, 7.7, and RFC 9293, 3.7.1: an MSS counts options. What the peer's window cut to just under the length that every
// path takes is longer with them.
#[test]
fn a_segment_that_is_too_long_by_its_options_tells_of_a_black_hole() {
    let timestamps = Some(TcpTimestamps { value: 8, echo: 0 });
    let again = |window: u16| {
        let config = Config { nodelay: true, timestamps: true, ..plain_config() };
        let mut harness = Harness::connect(config);
        harness.expect_one();
        harness.window = window;
        harness.options = TcpOptions { mss: Some(1_460), timestamps, ..TcpOptions::default() };
        harness.receive(SYN | ACK, 0, 1, b"");
        harness.expect_one();
        harness.write(&stream(0..5_000));
        assert_eq!(harness.take_ranges(), [(1, window.into())]);
        let mut len = 0;
        for _ in 0..6 {
            harness.pass_to_deadline();
            len = harness.take_ranges()[0].1;
        }
        (len, harness.connection.counters().black_holes)
    };
    assert_eq!(again(530), (524, 1));
    assert_eq!(again(524), (524, 0));
}

#[test]
fn a_peer_that_takes_a_byte_at_a_time_is_sent_the_least_and_no_black_hole_is_found() {
    let config = Config { nodelay: true, ..plain_config() };
    let options = TcpOptions { mss: Some(1), ..TcpOptions::default() };
    let mut harness = Harness::established_with(config, options);
    harness.write(&stream(0..300));
    let len = harness.take_ranges()[0].1;
    for _ in 0..6 {
        harness.pass_to_deadline();
        assert_eq!(harness.take_ranges()[0], (1, len));
    }
    assert_eq!(harness.connection.counters().black_holes, 0);
}

// RFC 5682, 3.1, step 3.a: all goes again that is not acknowledged, what step 2.b sent with it. Without SACK nobody else
// would tell of it but the timer, which is backed off.
#[test]
fn what_was_sent_behind_a_timeout_goes_again_where_it_does_not_come() {
    let mut harness = plain();
    harness.pass_to_deadline();
    assert_eq!(harness.take_ranges(), [(1, 1_000)]);
    harness.receive(ACK, 1, 1_001, b"");
    assert_eq!(harness.take_ranges(), [(10_001, 1_000), (11_001, 1_000)]);
    harness.receive(ACK, 1, 1_001, b"");
    assert_eq!(harness.take_ranges(), [(1_001, 1_000)]);
    // The peer had the rest of the flight, and no room for more.
    harness.receive(ACK, 1, 10_001, b"");
    assert_eq!(harness.take_ranges()[0], (10_001, 1_000));
    harness.receive(ACK, 1, 11_001, b"");
    assert_eq!(harness.take_ranges()[0], (11_001, 1_000));
    harness.receive(ACK, 1, 12_001, b"");
    assert!(harness.take_ranges().iter().all(|(sequence, _)| *sequence >= 12_001));
    assert_eq!(harness.connection.counters().retransmission_timeouts, 1);
    assert_eq!(harness.connection.counters().fast_recoveries, 0);
}

// RFC 6582, 4.1: where the ACK before the duplicates jumped, those answer what was sent again in vain; where it did not,
// the next segment is lost.
#[test]
fn duplicates_of_where_recovery_ended_begin_another_behind_a_small_step() {
    let begun = |last_step: u32| {
        let mut harness = plain();
        for sequence in [10_001, 11_001, 1] {
            harness.receive(ACK, 1, 1, b"");
            assert_eq!(harness.take_ranges(), [(sequence, 1_000)]);
        }
        if last_step < 12_000 {
            harness.receive(ACK, 1, 12_001 - last_step, b"");
            assert_eq!(harness.take_ranges()[0], (12_001 - last_step, 1_000));
        }
        harness.receive(ACK, 1, 12_001, b"");
        assert!(harness.take_ranges().len() > 3);
        let mut sent = Vec::new();
        for _ in 0..3 {
            harness.receive(ACK, 1, 12_001, b"");
            sent.extend(harness.take_ranges());
        }
        sent.contains(&(12_001, 1_000))
    };
    assert!(begun(4_000));
    assert!(!begun(5_000));
    assert!(!begun(12_000));
}

// RFC 6298, 5.5; RFC 9293, 3.8.3.
#[test]
fn the_timer_backs_off_and_gives_up() {
    let config = Config { retries: 4, nodelay: true, ..plain_config() };
    let mut harness = Harness::established(config);
    harness.write(b"lost for ever");
    harness.take();
    let mut waits = Vec::new();
    while harness.connection.state() == State::Established {
        waits.push(harness.pass_to_deadline());
        harness.take();
    }
    assert_eq!(waits.len(), 5);
    assert!(waits.windows(2).all(|pair| pair[1] >= pair[0].mul_f32(1.99)), "{waits:?}");
    assert_eq!(harness.connection.error(), Some(crate::ConnectionError::TimedOut));
}

// Karn's algorithm, RFC 6298, 3.
#[test]
fn what_was_sent_again_is_not_measured() {
    let mut harness = plain();
    let measured = harness.connection.smoothed_rtt();
    harness.pass_to_deadline();
    harness.take();
    harness.now += Duration::from_secs(5);
    harness.receive(ACK, 1, 1_001, b"");
    assert_eq!(harness.connection.smoothed_rtt(), measured);
}

#[test]
fn a_hole_of_many_small_pieces_is_sent_again_and_nothing_else() {
    let options =
        TcpOptions { mss: Some(MSS as u16), sack_permitted: true, ..TcpOptions::default() };
    let mut harness =
        Harness::established_with(Config { sack: true, nodelay: true, ..plain_config() }, options);
    // Chunks of the caller's memory are never merged; a segment holds sixteen of them.
    for _ in 0..400 {
        harness.write(&stream(0..20));
    }
    let ranges = harness.take_ranges();
    assert_eq!(ranges[..3], [(1, 320), (321, 320), (641, 320)]);
    harness.options.sack.push(ISS + 641, ISS + 8_001);
    harness.receive(ACK, 1, 1, b"");
    let ranges = harness.take_ranges();
    assert_eq!(ranges[..2], [(1, 320), (321, 320)]);
    assert!(ranges.iter().all(|(sequence, _)| *sequence < 641), "{ranges:?}");
}

// RFC 5681, 2: "(b) the incoming acknowledgment carries no data": the probe of a closed window has some, though
// there is no room for it.
#[test]
fn probes_of_our_closed_window_are_no_duplicate_acks() {
    let mut harness = plain();
    let window = harness.connection.receiver.queue.window();
    harness.receive(ACK, 1, 1, &stream(0..window as usize));
    harness.take();
    for _ in 0..4 {
        harness.receive(ACK, 1 + window, 1, b"p");
    }
    assert_eq!(harness.connection.counters().duplicate_acks_received, 0);
}

// The same of one that is chosen between two timeouts, whose window is the initial one.
#[test]
fn another_controller_sends_one_segment_after_the_next_timeout() {
    let mut harness = plain();
    harness.pass_to_deadline();
    harness.take();
    for algorithm in [Algorithm::NewReno, Algorithm::Cubic] {
        harness.connection.set_congestion(harness.now, algorithm);
        harness.pass_to_deadline();
        assert_eq!(harness.take_ranges().len(), 1, "{algorithm:?}");
        assert!(harness.connection.congestion_window() <= 1_000);
    }
}

// RFC 5681, 3.1: after a timeout "cwnd MUST be set to no more than the loss window [...], which equals 1 full-sized
// segment". What is reported between two of them is a delivery to BBR, which lets its window grow.
#[test]
fn bbr_sends_one_segment_after_a_second_timeout() {
    let mut harness = {
        let congestion =
            CongestionConfig { algorithm: Algorithm::Bbr, ..CongestionConfig::default() };
        let config = Config { nodelay: true, sack: true, congestion, ..plain_config() };
        let options =
            TcpOptions { mss: Some(1_000), sack_permitted: true, ..TcpOptions::default() };
        Harness::established_with(config, options)
    };
    harness.write(&stream(0..10_000));
    harness.pass(Duration::from_millis(50));
    assert_eq!(harness.take().len(), 10);
    let timeouts = |harness: &Harness| harness.connection.counters().retransmission_timeouts;
    while timeouts(&harness) < 1 {
        harness.pass_to_deadline();
    }
    assert_eq!(harness.connection.congestion_window(), 1_000);
    sack(&mut harness, 1, &[(1_001, 6_001)]);
    assert!(harness.connection.congestion_window() > 1_000);
    while timeouts(&harness) < 2 {
        harness.pass_to_deadline();
    }
    assert_eq!(harness.connection.congestion_window(), 1_000);
}
