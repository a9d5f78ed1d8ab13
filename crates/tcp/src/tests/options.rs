//! MSS, window scale, timestamps with PAWS, SACK (RFC 9293, 3.7.1; RFC 7323; RFC 2018).

use super::harness::*;
use crate::{Config, State};
use counters::DropReason;
use time::Duration;
use wire::{TcpOptions, TcpTimestamps};

fn full() -> Config {
    Config {
        timestamps: true,
        sack: true,
        window_scaling: true,
        receive_buffer_bytes: 1 << 20,
        nodelay: true,
        ..plain_config()
    }
}

fn syn_options() -> TcpOptions {
    TcpOptions {
        mss: Some(1_000),
        window_scale: Some(20),
        sack_permitted: true,
        timestamps: Some(TcpTimestamps { value: 500, echo: 0 }),
        ..TcpOptions::default()
    }
}

fn stamp(harness: &mut Harness, value: u32) {
    harness.options.timestamps = Some(TcpTimestamps { value, echo: 11_000 });
}

#[test]
fn the_syn_offers_what_is_configured() {
    let mut harness = Harness::connect(full());
    let options = harness.expect_one().header.options;
    assert_eq!((options.mss, options.window_scale), (Some(1_000), Some(5)));
    assert!(options.sack_permitted);
    let timestamps = options.timestamps.expect("offered");
    assert_eq!((timestamps.value, timestamps.echo), (10_000 + 1_000, 0));
}

#[test]
fn what_the_peer_does_not_offer_is_not_used() {
    let mut harness =
        Harness::established_with(full(), TcpOptions { mss: Some(800), ..TcpOptions::default() });
    harness.write(&stream(0..800));
    harness.receive(ACK, 10, 1, b"out of order");
    // The data, and a duplicate ACK for what came out of order.
    let sent = harness.take().swap_remove(0);
    assert_eq!(sent.header.options, TcpOptions::default());
    assert_eq!(sent.payload.len(), 800);
    assert_eq!(sent.header.window, u16::MAX, "unscaled, so no more can be said");
}

// RFC 7323, 2.3: a shift above 14 counts as 14; RFC 6691: options count against the MSS.
#[test]
fn scaled_windows_and_shorter_segments() {
    let mut harness = Harness::established_with(full(), syn_options());
    assert_eq!(harness.connection.payload_max(), 988);
    harness.window = 1;
    stamp(&mut harness, 501);
    harness.receive(ACK, 1, 1, b"");
    harness.write(&stream(0..30_000));
    let sent = harness.take();
    assert_eq!(sent.iter().map(|one| one.payload.len()).sum::<usize>(), 10 * 988);
    assert_eq!(sent[0].header.window, (128 << 10 >> 5) as u16);
}

#[test]
fn timestamps_echo_the_segment_that_the_ack_answers() {
    let mut harness = Harness::established_with(full(), syn_options());
    stamp(&mut harness, 600);
    harness.receive(ACK, 1, 1, b"abc");
    stamp(&mut harness, 700);
    harness.receive(ACK, 10, 1, b"later");
    let echo = |sent: &Sent| sent.header.options.timestamps.expect("negotiated").echo;
    // RFC 7323, 4.3: the later one is beyond Last.ACK.sent.
    assert_eq!(echo(&harness.expect_one()), 600);
}

// RFC 7323, 5.3.
#[test]
fn paws_drops_the_past_but_obeys_its_resets() {
    let mut harness = Harness::established_with(full(), syn_options());
    stamp(&mut harness, 499);
    assert_eq!(harness.try_receive(ACK, 1, 1, b"old"), Err(DropReason::Paws));
    assert_eq!(harness.expect_one().acknowledgment(), 1);
    // RFC 7323, 5.5: after 24 days the past is forgotten.
    harness.pass(Duration::from_secs(24 * 24 * 3_600));
    stamp(&mut harness, 499);
    harness.receive(ACK, 1, 1, b"new");
    stamp(&mut harness, 3);
    harness.receive(RST, 4, 0, b"");
    assert_eq!(harness.connection.state(), State::Closed);
}

// RFC 7323, 3.2 says SHOULD drop; RFC 9293, 3.8.4: what such a peer never stops sending are keepalives.
#[test]
fn a_segment_without_its_timestamp_is_taken_unless_they_are_required() {
    let mut harness = Harness::established_with(full(), syn_options());
    stamp(&mut harness, 600);
    harness.receive(ACK, 1, 1, b"abc");
    harness.take();
    harness.options.timestamps = None;
    assert_eq!(harness.try_receive(ACK, 3, 1, b""), Err(DropReason::OutOfWindow), "a keepalive");
    let echo = |sent: &Sent| sent.header.options.timestamps.expect("ours go on").echo;
    assert_eq!(echo(&harness.expect_one()), 600);
    harness.receive(ACK, 4, 1, b"bare");
    harness.write(b"answer");
    let answer = harness.expect_one();
    assert_eq!((answer.acknowledgment(), echo(&answer)), (8, 600), "TS.Recent stays");
    // The ACK of what we send counts, too, and those with timestamps are judged as before.
    harness.pass(Duration::from_millis(30));
    harness.receive(ACK, 8, 7, b"");
    assert_eq!(harness.connection.first_unacknowledged(), ISS + 7);
    stamp(&mut harness, 599);
    assert_eq!(harness.try_receive(ACK, 8, 7, b"old"), Err(DropReason::Paws));

    let config = Config { timestamps_required: true, ..full() };
    let mut harness = Harness::established_with(config, syn_options());
    harness.options.timestamps = None;
    assert_eq!(harness.try_receive(ACK, 1, 1, b"bare"), Err(DropReason::Paws));
}

// RFC 2018, 4.
#[test]
fn sack_reports_up_to_three_blocks_with_the_newest_first() {
    let mut harness = Harness::established_with(full(), syn_options());
    stamp(&mut harness, 600);
    for start in [11, 31, 51, 71] {
        harness.receive(ACK, start, 1, &stream(0..10));
        harness.flush();
    }
    let sent = harness.take();
    let blocks = |sent: &Sent| -> Vec<(u32, u32)> {
        let blocks = sent.header.options.sack;
        blocks.as_slice().iter().map(|(a, b)| (a.offset_from(IRS), b.offset_from(IRS))).collect()
    };
    assert_eq!(blocks(&sent[0]), [(11, 21)]);
    assert_eq!(blocks(&sent[3]), [(71, 81), (51, 61), (31, 41)]);
    // Data that carries SACK blocks makes room for them.
    harness.write(&stream(0..5_000));
    assert!(harness.take()[0].payload.len() == 1_000 - 12 - 28);
}

#[test]
fn a_narrower_path_sends_what_was_too_long_again() {
    let mut harness = Harness::established_with(full(), syn_options());
    harness.write(&stream(0..1_976));
    assert_eq!(harness.take_ranges(), [(1, 988), (989, 988)]);
    let window = harness.connection.congestion_window();
    harness.connection.set_path_mss(harness.now, 512);
    assert_eq!(harness.connection.payload_max(), 500);
    let ranges = harness.take_ranges();
    assert_eq!(ranges, [(1, 500), (501, 500), (1_001, 500), (1_501, 476)]);
    assert!(harness.connection.congestion_window() >= window / 2, "no sign of congestion");
}

// RFC 1191, 6.3: when the report is too old, or the interface's MTU was raised, longer segments go.
#[test]
fn a_wider_path_is_used_by_what_is_sent_from_then_on() {
    let mut harness = Harness::established_with(full(), syn_options());
    harness.connection.set_path_mss(harness.now, 512);
    harness.write(&stream(0..700));
    assert_eq!(harness.take_ranges(), [(1, 500), (501, 200)]);
    harness.connection.set_path_mss(harness.now, 900);
    assert_eq!(harness.connection.payload_max(), 888);
    assert_eq!(harness.take_ranges(), [], "nothing was lost");
    harness.receive(ACK, 1, 701, b"");
    harness.write(&stream(700..2_476));
    assert_eq!(harness.take_ranges(), [(701, 888), (1_589, 888)]);
    harness.connection.set_path_mss(harness.now, 60_000);
    assert_eq!(harness.connection.payload_max(), 988, "the peer's MSS is no less a limit");
}

#[test]
fn a_narrower_path_during_recovery_does_not_freeze_the_window() {
    let config = Config { nodelay: true, send_buffer_bytes: 1 << 20, ..full() };
    let mut harness = Harness::established_with(config, syn_options());
    harness.write(&stream(0..40_000));
    let end = harness.take_ranges().last().map(|(at, len)| at + *len as u32).expect("a burst");
    harness.options.sack.push(ISS + 989, ISS + end);
    harness.receive(ACK, 1, 1, b"");
    assert_eq!(harness.connection.counters().fast_recoveries, 1);
    harness.connection.set_path_mss(harness.now, 512);
    harness.take();
    harness.options.sack = wire::SackBlocks::NONE;
    let mut windows = Vec::new();
    for _ in 0..12 {
        harness.now += Duration::from_millis(10);
        let sent = harness.connection.sender.sequence.nxt.offset_from(ISS);
        harness.receive(ACK, 1, sent, b"");
        harness.take();
        let room = harness.connection.send_room();
        harness.write(&stream(0..room));
        windows.push(harness.connection.congestion_window());
    }
    assert!(windows[11] > windows[1], "{windows:?}");
}

// The sender measures by the echo how long its repetition took, not how long it waited before: else
// every lost ACK multiplies its timeout.
#[test]
fn a_repeated_segment_is_answered_with_its_own_timestamp() {
    let mut harness = Harness::established_with(full(), syn_options());
    let mut echo_of = |value, sequence| {
        harness.options.timestamps = Some(TcpTimestamps { value, echo: 0 });
        let _ = harness.try_receive(PSH | ACK, sequence, 1, b"0123456789");
        harness.pass(Duration::from_millis(50));
        harness.take().last().and_then(|ack| ack.header.options.timestamps).map(|sent| sent.echo)
    };
    let start = 1 << 20;
    assert_eq!(echo_of(start, 1), Some(start));
    assert_eq!(echo_of(start + 250, 1), Some(start + 250));
    assert_eq!(echo_of(start + 300, 11), Some(start + 300));
    assert_eq!(echo_of(start + 900, 1), Some(start + 300), "not what was acknowledged long ago");
}

// RFC 9293, 3.7.1, MUST-16: Eff.snd.MSS = min(SendMSS + 20, MMS_S) - TCPhdrsize - IPoptionsize, so the
// network header's options count against what the peer announced as well as against the path.
#[test]
fn options_of_the_network_header_make_segments_shorter() {
    let peer = |mss| TcpOptions { mss: Some(mss), ..syn_options() };
    for (mss, path) in [(1_000, 4_000), (4_000, 1_000)] {
        let mut harness = Harness::established_with(full(), peer(mss));
        let now = harness.now;
        harness.connection.set_path_mss(now, path);
        harness.connection.set_network_options(40);
        assert_eq!(harness.connection.payload_max(), 1_000 - 12 - 40);
        harness.write(&stream(0..4_740));
        let sent: Vec<usize> = harness.take().iter().map(|one| one.payload.len()).collect();
        assert_eq!(sent, [948; 5]);
        harness.connection.set_network_options(0);
        assert_eq!(harness.connection.payload_max(), 988);
    }
}

// What was sent before the options is cut to the shorter segments when it goes again.
#[test]
fn what_is_sent_again_makes_room_for_options_of_the_network_header() {
    let mut harness = Harness::established_with(full(), syn_options());
    harness.write(&stream(0..988));
    assert_eq!(harness.expect_one().payload.len(), 988);
    harness.connection.set_network_options(8);
    harness.pass(Duration::from_secs(5));
    let again = harness.take();
    assert!(again.iter().any(|one| one.sequence() == 1 && one.payload.len() == 980));
    for one in again {
        let at = one.sequence() as usize - 1;
        assert!(one.payload.len() <= 980);
        assert_eq!(one.payload, stream(at..at + one.payload.len()));
    }
}

// RFC 9293, A.3: what SACK blocks leave room for is full, and holds nothing back.
#[test]
fn a_full_segment_with_sack_blocks_is_not_a_small_one() {
    let options = TcpOptions { mss: Some(1_000), sack_permitted: true, ..TcpOptions::default() };
    let mut harness = Harness::established_with(Config { sack: true, ..plain_config() }, options);
    harness.receive(ACK, 101, 1, b"behind a gap");
    harness.take();
    harness.write(&stream(0..2_000));
    let lens: Vec<usize> = harness.take_ranges().into_iter().map(|(_, len)| len).collect();
    assert_eq!(lens, [988, 988, 24], "twelve bytes are the block's, and the tail goes");
    let mut harness = Harness::established_with(Config { sack: true, ..plain_config() }, options);
    harness.receive(ACK, 101, 1, b"behind a gap");
    harness.take();
    harness.write(&stream(0..988));
    harness.write(b"tail");
    assert_eq!(harness.take_ranges(), [(1, 988), (989, 4)]);
}

// RFC 7323, 4.3 (2): SEG.SEQ =< Last.ACK.sent, and what is sent again begins there though its first part is here.
#[test]
fn what_is_partly_here_is_echoed_where_it_begins_at_the_last_acknowledgment() {
    let timestamps = |value| Some(TcpTimestamps { value, echo: 0 });
    let options =
        TcpOptions { mss: Some(MSS as u16), timestamps: timestamps(500), ..TcpOptions::default() };
    let config = Config { timestamps: true, ..plain_config() };
    let mut harness = Harness::established_with(config, options);
    harness.receive(ACK, 1, 1, &stream(0..900));
    harness.expect_nothing();
    harness.options.timestamps = timestamps(700);
    harness.receive(ACK, 1, 1, &stream(0..988));
    let ack = harness.expect_one();
    assert_eq!(ack.acknowledgment(), 989);
    assert_eq!(ack.header.options.timestamps.map(|it| it.echo), Some(700));
}
