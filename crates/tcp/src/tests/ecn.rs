//! Explicit congestion notification, against RFC 3168.

use super::harness::*;
use crate::sender::congestion::Algorithm;
use crate::{Config, Connection, EcnMode, Pacing};
use time::{Duration, Instant};
use wire::{TcpFlags, TcpOptions};

const ECE: TcpFlags = TcpFlags::ECE;
const CWR: TcpFlags = TcpFlags::CWR;

fn config(ecn: EcnMode) -> Config {
    Config { ecn, ..plain_config() }
}

fn with_mss() -> TcpOptions {
    TcpOptions { mss: Some(MSS as u16), ..TcpOptions::default() }
}

/// Actively opened; the SYN-ACK has `flags` besides its own.
fn opened(ecn: EcnMode, flags: TcpFlags) -> Harness {
    opened_with(config(ecn), flags)
}

fn opened_with(config: Config, flags: TcpFlags) -> Harness {
    let mut harness = Harness::connect(config);
    harness.expect_one();
    harness.options = with_mss();
    harness.receive(SYN | ACK | flags, 0, 1, b"");
    harness.options = TcpOptions::default();
    let ack = harness.expect_one();
    assert_eq!((ack.header.flags, ack.ecn), (ACK, 0));
    harness
}

/// Passively opened by a SYN with `flags`.
fn accepted(ecn: EcnMode, flags: TcpFlags) -> Harness {
    let now = Instant::from_millis(10_000);
    let mut peer = Harness::connect(config(ecn));
    peer.options = with_mss();
    let syn = peer.header(SYN | flags, 0, 0);
    Harness::wrap(Connection::accept(parameters(config(ecn)), now, &syn), now)
}

fn data_is_capable(harness: &mut Harness) -> bool {
    harness.write(&stream(0..100));
    let sent = harness.expect_one();
    assert!(sent.ecn == 0 || sent.ecn == 0b10, "ECT(0) or nothing");
    sent.ecn != 0
}

// RFC 3168, 6.1.1: an ECN-setup SYN has ECE and CWR set, an ECN-setup SYN-ACK ECE and not CWR; and
// "a host MUST NOT set ECT on SYN or SYN-ACK packets".
#[test]
fn the_handshake_agrees_with_both_flags_and_then_one() {
    let mut harness = Harness::connect(config(EcnMode::Request));
    let syn = harness.expect_one();
    assert_eq!((syn.header.flags, syn.ecn), (SYN | ECE | CWR, 0));
    for (answer, agreed) in [(ECE, true), (TcpFlags::NONE, false), (ECE | CWR, false), (CWR, false)]
    {
        let mut harness = opened(EcnMode::Request, answer);
        assert_eq!(data_is_capable(&mut harness), agreed, "{answer:?}");
        assert_eq!(harness.connection.counters().ecn_connections, u64::from(agreed));
    }
    for mode in [EcnMode::Off, EcnMode::Accept] {
        let mut harness = Harness::connect(config(mode));
        assert_eq!(harness.expect_one().header.flags, SYN);
        assert!(!data_is_capable(&mut opened(mode, ECE)), "it was not asked for");
    }
}

#[test]
fn a_listener_answers_an_ecn_setup_syn_unless_switched_off() {
    for (mode, flags, agreed) in [
        (EcnMode::Accept, ECE | CWR, true),
        (EcnMode::Request, ECE | CWR, true),
        (EcnMode::Off, ECE | CWR, false),
        (EcnMode::Accept, ECE, false),
        (EcnMode::Accept, TcpFlags::NONE, false),
    ] {
        let mut harness = accepted(mode, flags);
        let reply = harness.expect_one();
        let expected = if agreed { SYN | ACK | ECE } else { SYN | ACK };
        assert_eq!((reply.header.flags, reply.ecn), (expected, 0), "{mode:?} {flags:?}");
        harness.receive(ACK, 1, 1, b"");
        assert_eq!(data_is_capable(&mut harness), agreed);
    }
}

// RFC 3168, 6.1.1.1: a SYN that is sent again MAY be without ECE and CWR; 6.1.1: a host that has
// sent such a SYN MUST NOT set ECT.
#[test]
fn a_syn_that_is_sent_again_does_not_ask() {
    let mut harness = Harness::connect(config(EcnMode::Request));
    assert_eq!(harness.expect_one().header.flags, SYN | ECE | CWR);
    harness.pass_to_deadline();
    assert_eq!(harness.expect_one().header.flags, SYN);
    harness.options = with_mss();
    harness.receive(SYN | ACK | ECE, 0, 1, b"");
    harness.expect_one();
    assert!(!data_is_capable(&mut harness));
}

// RFC 3168, 6.1.1.1: the peer's SYN again, without ECE and CWR, is of a host that has given up ECN: its SYN-ACK does not
// agree to it, and no packet is ECN-capable.
#[test]
fn a_syn_again_without_ecn_ends_the_agreement() {
    for (flags, agreed) in [(TcpFlags::NONE, false), (ECE | CWR, true)] {
        let mut harness = accepted(EcnMode::Accept, ECE | CWR);
        assert_eq!(harness.expect_one().header.flags, SYN | ACK | ECE);
        assert!(harness.try_receive(SYN | flags, 0, 0, b"").is_err(), "it was here before");
        let expected = if agreed { SYN | ACK | ECE } else { SYN | ACK };
        assert_eq!(harness.expect_one().header.flags, expected);
        harness.options = TcpOptions::default();
        harness.receive(ACK, 1, 1, b"");
        assert_eq!(data_is_capable(&mut harness), agreed);
    }
}

// RFC 3168, 6.1.3: the receiver sets ECE in every ACK from the first mark on until CWR arrives.
#[test]
fn a_mark_is_echoed_until_the_peer_says_that_it_heard() {
    let mut harness = opened(EcnMode::Request, ECE);
    harness.receive(ACK, 1, 1, b"one");
    assert!(harness.take().is_empty(), "delayed");
    harness.marked = true;
    harness.receive(ACK, 4, 1, b"two");
    harness.marked = false;
    let ack = harness.expect_one();
    assert_eq!((ack.header.flags, ack.ecn), (ACK | ECE, 0), "at once");
    harness.receive(ACK, 7, 1, b"three");
    harness.write(b"data");
    let data = harness.expect_one();
    assert_eq!((data.header.flags, data.ecn), (ACK | PSH | ECE, 0b10), "on data as well");
    harness.receive(ACK | CWR, 12, 5, b"four");
    assert_eq!(harness.expect_one().header.flags, ACK, "heard");
    // "The value of CE in the CWR packet": a mark on that very packet begins another echo.
    harness.marked = true;
    harness.receive(ACK | CWR, 16, 5, b"five");
    assert_eq!(harness.expect_one().header.flags, ACK | ECE);
    assert_eq!(harness.connection.counters().ecn_marks_received, 2);
}

// RFC 3168, 6.1.5: "the receiver ... ignore the CE codepoint on out-of-window packets".
#[test]
fn marks_on_what_is_not_new_and_without_agreement_are_ignored() {
    let mut harness = opened(EcnMode::Request, ECE);
    harness.receive(ACK, 1, 1, b"one");
    harness.marked = true;
    let _ = harness.try_receive(ACK, 1, 1, b"one");
    assert_eq!(harness.expect_one().header.flags, ACK);
    let _ = harness.try_receive(ACK, 100_000, 1, b"far");
    assert_eq!(harness.expect_one().header.flags, ACK);
    harness.receive(ACK, 4, 1, b"");
    harness.expect_nothing();

    let mut plain = opened(EcnMode::Accept, TcpFlags::NONE);
    plain.marked = true;
    plain.receive(ACK, 1, 1, b"one");
    plain.receive(ACK, 4, 1, b"two");
    assert_eq!(plain.expect_one().header.flags, ACK);
}

// RFC 3168, 6.1.2: the sender reacts once per window of data, as to a loss, and sets CWR in the
// first new data after that; nothing is sent again.
#[test]
fn an_echo_reduces_the_window_once_and_is_answered_with_cwr() {
    let mut harness = opened(EcnMode::Request, ECE);
    harness.write(&stream(0..60_000));
    let first = harness.take();
    assert_eq!(first.len(), 10);
    assert!(first.iter().all(|sent| sent.ecn == 0b10 && !sent.header.flags.intersects(CWR)));
    let before = harness.connection.congestion_window();
    harness.receive(ACK | ECE, 1, 1 + 2 * MSS as u32, b"");
    let reduced = harness.connection.congestion_window();
    assert!(reduced < before, "{reduced} {before}");
    assert_eq!(reduced, 7_000, "0.7 of what was in flight");
    for acked in 3..=10 {
        harness.receive(ACK | ECE, 1, 1 + acked * MSS as u32, b"");
    }
    assert_eq!(harness.connection.congestion_window(), reduced, "once, and no growth");
    let sent = harness.take();
    assert!(sent[0].header.flags.contains(CWR), "{sent:?}");
    assert!(sent[1..].iter().all(|sent| !sent.header.flags.intersects(CWR)));
    assert_eq!(sent[0].run, sent[1].run, "an engine leaves CWR on the first of a run");
    assert_eq!(harness.connection.counters().retransmitted_segments, 0);
    // The next window of data: another echo is another reduction, and without one it grows.
    harness.receive(ACK, 1, 1 + 12 * MSS as u32, b"");
    assert!(harness.connection.congestion_window() >= reduced);
    harness.receive(ACK | ECE, 1, 1 + 14 * MSS as u32, b"");
    assert!(harness.connection.congestion_window() < reduced);
    let counters = harness.connection.counters();
    assert_eq!((counters.reductions_for_marks, counters.reductions_for_loss), (2, 0));
}

// RFC 3168, 6.1.2: "the first new data packet", be it urgent.
#[test]
fn urgent_data_carries_cwr_like_any_other() {
    let mut harness = opened(EcnMode::Request, ECE);
    harness.write(&stream(0..10_000));
    harness.take();
    harness.receive(ACK | ECE, 1, 1 + 10 * MSS as u32, b"");
    harness.write(&stream(0..2_000));
    harness.connection.append_urgent(harness.now, chunk(b"!")).expect("room");
    let sent = harness.take();
    let flags =
        |sent: &Sent| (sent.header.flags.contains(TcpFlags::URG), sent.header.flags.contains(CWR));
    let flags: Vec<_> = sent.iter().map(flags).collect();
    assert_eq!(flags, [(true, true), (true, false), (true, false)]);
}

// RFC 3168, 6.1.2: CWR follows a reduction "for any reason"; 6.1.5: "TCP MUST NOT set ECT on
// retransmitted data".
#[test]
fn what_is_sent_again_is_not_capable_and_a_loss_is_answered_with_cwr_on_new_data() {
    let mut harness = opened(EcnMode::Request, ECE);
    harness.write(&stream(0..60_000));
    harness.take();
    harness.pass_to_deadline();
    let again = harness.expect_one();
    assert_eq!((again.sequence(), again.ecn), (1, 0));
    assert!(!again.header.flags.intersects(CWR));
    harness.receive(ACK | ECE, 1, 1 + 10 * MSS as u32, b"");
    let counters = harness.connection.counters();
    assert_eq!((counters.reductions_for_marks, counters.reductions_for_timeout), (0, 1));
    let sent = harness.take();
    assert!(sent[0].header.flags.contains(CWR) && sent[0].ecn == 0b10);
    assert!(sent[1..].iter().all(|sent| !sent.header.flags.intersects(CWR)));
}

// RFC 3168, 6.1.2: CWR follows each reduction, be it for the same segment: what was sent since the last is new data.
#[test]
fn a_second_timeout_of_a_segment_is_answered_with_cwr_on_new_data_too() {
    let mut config = config(EcnMode::Request);
    // The others send nothing new here before the first segment has arrived.
    config.congestion.algorithm = Algorithm::Bbr;
    let mut harness = opened_with(config, ECE);
    harness.write(&stream(0..60_000));
    harness.take();
    let mut end = 10_001;
    for timeouts in 1..=2 {
        harness.pass_to_deadline();
        assert_eq!(harness.expect_one().sequence(), 1);
        // It is lost again. What follows it is sent again for duplicate ACKs, and then new data.
        let new = (0..20).find_map(|_| {
            harness.receive(ACK | ECE, 1, 1, b"");
            harness.take().into_iter().find(|sent| sent.sequence() == end)
        });
        let new = new.expect("new data");
        assert!(new.header.flags.contains(CWR) && new.ecn == 0b10, "{timeouts}: {:?}", new.header);
        end += 1_000;
        let counters = harness.connection.counters();
        let reductions = (counters.reductions_for_timeout, counters.reductions_for_marks);
        assert_eq!((counters.retransmission_timeouts, reductions), (timeouts, (1, 0)));
    }
    // The echo for what had left before the last is of the window that this one has reduced.
    harness.receive(ACK | ECE, 1, end - 1_000, b"");
    assert_eq!(harness.connection.counters().reductions_for_marks, 0);
    // That for what left behind it is another.
    harness.receive(ACK | ECE, 1, end, b"");
    assert_eq!(harness.connection.counters().reductions_for_marks, 1);
}

// RFC 3168, 6.1.6: "the window probe data packet MUST NOT be ECN-capable".
#[test]
fn a_window_probe_is_not_capable() {
    let mut harness = opened(EcnMode::Request, ECE);
    harness.window = 0;
    harness.receive(ACK, 1, 1, b"");
    harness.write(&stream(0..100));
    harness.expect_nothing();
    harness.pass_to_deadline();
    let probe = harness.expect_one();
    assert_eq!((probe.payload.len(), probe.ecn), (1, 0));
    harness.pass(Duration::from_secs(1));
}

// RFC 3168, 6.1.2: "the sending TCP MUST reset the retransmit timer on receiving the ECN-Echo packet when the congestion
// window is one. The sending TCP will then be able to send a new packet only when the retransmit timer expires."
#[test]
fn a_mark_at_a_window_of_one_segment_stops_the_sender_for_a_timeout() {
    for pacing in [Pacing::Off, Pacing::Auto] {
        let config = Config { pacing, nodelay: true, ..config(EcnMode::Request) };
        let mut harness = Harness::connect(config);
        harness.expect_one();
        harness.now += Duration::from_millis(20);
        harness.options = with_mss();
        harness.receive(SYN | ACK | ECE, 0, 1, b"");
        harness.options = TcpOptions::default();
        harness.take();
        harness.write(&stream(0..40_000));
        let mut end = 1;
        let mut round = |harness: &mut Harness| {
            let sent = harness.take();
            if let Some(last) = sent.last() {
                end = last.sequence() + last.payload.len() as u32;
            }
            harness.now += Duration::from_millis(20);
            harness.receive(ACK | ECE, 1, end, b"");
            sent.len()
        };
        while harness.connection.congestion_window() > 1_000 {
            assert!(round(&mut harness) > 0);
        }
        for _ in 0..4 {
            assert_eq!(round(&mut harness), 1);
            let rto = harness.connection.sender.rtt.rto();
            harness.expect_nothing();
            assert_eq!(harness.pass_to_deadline(), rto, "{pacing:?}");
        }
        // Without a mark it goes on, as soon as the timeout is over.
        let sent = harness.take().len() as u32;
        assert_eq!(sent, 1);
        harness.now += Duration::from_millis(20);
        let nxt = harness.connection.sender.sequence.nxt.offset_from(ISS);
        harness.receive(ACK, 1, nxt, b"");
        assert!(!harness.take().is_empty());
        assert_eq!(harness.connection.counters().retransmitted_segments, 0);
    }
}

/// The timestamps of an ACK that comes now, for what was sent at `sent_at`.
fn clock(sent_at: Instant, value: u32) -> Option<wire::TcpTimestamps> {
    Some(wire::TcpTimestamps { value, echo: sent_at.as_millis() as u32 + 1_000 })
}

/// Ten segments of so many bytes are in flight for 50 ms, and ten more wait for the window.
fn in_flight_with_timestamps() -> (Harness, u32) {
    let config = Config { timestamps: true, ..config(EcnMode::Request) };
    let mut harness = Harness::connect(config);
    harness.expect_one();
    harness.options = TcpOptions { timestamps: clock(harness.now, 1), ..with_mss() };
    harness.receive(SYN | ACK | ECE, 0, 1, b"");
    harness.options = TcpOptions { timestamps: clock(harness.now, 2), ..TcpOptions::default() };
    harness.take();
    let mss = harness.connection.payload_max();
    harness.write(&stream(0..20 * mss));
    assert_eq!(harness.take().len(), 10);
    harness.now += Duration::from_millis(50);
    (harness, mss as u32)
}

/// A timeout for segments that were only late: the first of them is acknowledged then, up to `una`.
fn time_out_by_mistake(harness: &mut Harness, una: u32) {
    while harness.connection.counters().retransmission_timeouts == 0 {
        harness.pass_to_deadline();
    }
    harness.take();
    harness.now += Duration::from_millis(1);
    harness.receive(ACK | ECE, 1, una, b"");
    assert_eq!(harness.connection.counters().undone_by_timestamps, 1);
}

// RFC 3168, 6.1.2: "TCP should not react to congestion indications more than once every window of data". Until CWR has
// left the peer goes on with its echo of the same mark, whatever turns out to have been no loss meanwhile.
#[test]
fn a_mark_that_was_not_answered_yet_outlives_a_timeout_that_was_a_mistake() {
    let (mut harness, mss) = in_flight_with_timestamps();
    harness.receive(ACK | ECE, 1, 1 + mss, b"");
    harness.expect_nothing();
    time_out_by_mistake(&mut harness, 1 + 2 * mss);
    harness.receive(ACK | ECE, 1, 1 + 5 * mss, b"");
    assert_eq!(harness.connection.counters().reductions_for_marks, 1);
    assert!(harness.take()[0].header.flags.contains(CWR));
}

// Nor where CWR has left and is not acknowledged yet.
#[test]
fn a_mark_that_was_answered_outlives_a_timeout_that_was_a_mistake() {
    let (mut harness, mss) = in_flight_with_timestamps();
    harness.receive(ACK | ECE, 1, 1 + 4 * mss, b"");
    let sent = harness.take();
    assert_eq!(sent[0].sequence(), 1 + 10 * mss);
    assert!(sent[0].header.flags.contains(CWR));
    time_out_by_mistake(&mut harness, 1 + 5 * mss);
    harness.receive(ACK | ECE, 1, 1 + 10 * mss, b"");
    assert_eq!(harness.connection.counters().reductions_for_marks, 1);
    // Who echoes what it has of the packet with CWR has met another mark.
    harness.receive(ACK | ECE, 1, 1 + 11 * mss, b"");
    assert_eq!(harness.connection.counters().reductions_for_marks, 2);
}
