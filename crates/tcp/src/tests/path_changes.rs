//! What the path takes: probes of it, reports of a narrower one, and congestion behind that (RFC 4821, 8201).

use super::harness::*;
use crate::{Config, Connection, EcnMode, PathProbing};
use time::{Duration, Instant};
use wire::{SackBlocks, TcpFlags, TcpOptions};

const TICK: Duration = Duration::from_millis(10);

/// A connection over a link that takes 1460 and a peer that takes as much.
fn opened(config: Config, sack: bool) -> Harness {
    opened_by(SYN | ACK, config, sack)
}

/// The same, with these flags in the peer's answer.
fn opened_by(answer: TcpFlags, config: Config, sack: bool) -> Harness {
    let mut parameters =
        parameters(Config { sack, nodelay: true, send_buffer_bytes: 4 << 20, ..config });
    (parameters.mss_send_max, parameters.mss_receive) = (1_460, 1_460);
    let now = Instant::from_millis(10_000);
    let mut harness = Harness::wrap(Connection::connect(parameters, now), now);
    harness.expect_one();
    harness.now += TICK;
    harness.options =
        TcpOptions { mss: Some(1_460), sack_permitted: sack, ..TcpOptions::default() };
    harness.receive(answer, 0, 1, b"");
    harness.options = TcpOptions::default();
    harness.expect_one();
    harness
}

fn probing(path_probing: PathProbing) -> Config {
    Config { path_probing, ..plain_config() }
}

fn nxt(harness: &Harness) -> u32 {
    harness.connection.sender.sequence.nxt.offset_from(ISS)
}

fn fill(harness: &mut Harness) {
    let room = harness.connection.send_room().min(200_000);
    harness.write(&stream(0..room));
}

// RFC 8201, 4: "MUST ... reduce the size of the packets". The third probe of one size is in flight when a report lowers the
// Limit below that.
#[test]
fn no_probe_is_longer_than_a_report_allows() {
    let mut harness = opened(probing(PathProbing::Always), true);
    harness.write(&stream(0..500));
    harness.take();
    harness.now += TICK;
    harness.receive(ACK, 1, 501, b"");
    for _ in 0..3 {
        // A burst with the probe in front.
        harness.write(&stream(0..12_000));
        let sent = harness.take();
        let probe = sent.iter().find(|it| it.payload.len() > 1_024).expect("a probe");
        let (start, end) = (probe.sequence(), probe.sequence() + probe.payload.len() as u32);
        assert_eq!(probe.payload.len(), 1_460);
        if harness.connection.counters().mtu_probes_lost == 2 {
            // The router says at last why.
            harness.connection.set_path_mss(harness.now, 1_100);
            harness.take();
        }
        harness.now += TICK;
        let nxt = nxt(&harness);
        harness.options.sack.push(ISS + end, ISS + nxt);
        harness.receive(ACK, 1, start, b"");
        harness.options.sack = SackBlocks::NONE;
        harness.take();
        harness.now += TICK;
        harness.receive(ACK, 1, nxt, b"");
    }
    assert_eq!(harness.connection.counters().mtu_probes_lost, 3);
    for _ in 0..20 {
        harness.write(&stream(0..12_000));
        let sent = harness.take();
        let longest = sent.iter().map(|it| it.payload.len()).max().expect("a burst");
        assert!(longest <= 1_100, "{longest} bytes over a path of 1100");
        harness.now += TICK;
        let nxt = nxt(&harness);
        harness.receive(ACK, 1, nxt, b"");
    }
}

// RFC 4821, 7.3: a sender that always has data, and whose peer acknowledges every second segment, has no pause to probe in.
#[test]
fn a_bulk_transfer_probes() {
    let mut harness = opened(probing(PathProbing::Always), true);
    fill(&mut harness);
    let mut ends: std::collections::VecDeque<u32> = Default::default();
    for _ in 0..5_000 {
        ends.extend(harness.take().iter().map(|it| it.sequence() + it.payload.len() as u32));
        if harness.connection.counters().mtu_probes_sent > 0 {
            return;
        }
        harness.now += Duration::from_millis(1);
        ends.pop_front();
        let ack = ends.pop_front().expect("in flight");
        harness.receive(ACK, 1, ack, b"");
        if harness.connection.send_room() > 100_000 {
            fill(&mut harness);
        }
    }
    panic!("no probe in five seconds");
}

// RFC 1191, 6.4: what was too long is sent again, and nothing else.
#[test]
fn what_was_short_enough_is_not_sent_again() {
    let mut harness = opened(probing(PathProbing::Off), true);
    for _ in 0..20 {
        harness.write(&stream(0..100));
        assert_eq!(harness.take().len(), 1);
        harness.now += Duration::from_millis(1);
    }
    harness.connection.set_path_mss(harness.now, 1_300);
    let again = harness.take_ranges();
    assert!(again.is_empty(), "{again:?}");
}

// RFC 5681, 4.3: the loss of what a narrower path made us send again is a loss.
#[test]
fn congestion_behind_a_narrower_path_counts() {
    for lost in [1_u32, 4] {
        let mut harness = opened(probing(PathProbing::Off), true);
        harness.write(&stream(0..14_600));
        assert_eq!(harness.take().len(), 10);
        harness.now += Duration::from_millis(1);
        harness.connection.set_path_mss(harness.now, 730);
        harness.take();
        harness.now += TICK;
        // Of all those only the first is lost.
        let n = nxt(&harness);
        harness.options.sack.push(ISS + 1 + 730 * lost, ISS + n);
        harness.receive(ACK, 1, 1, b"");
        harness.options.sack = SackBlocks::NONE;
        harness.take();
        harness.pass(Duration::from_millis(20));
        let counters = harness.connection.counters();
        assert!(counters.retransmissions_lost > 0, "it was found");
        assert!(counters.reductions_for_loss + counters.reductions_for_timeout > 0, "no reaction");
    }
}

// RFC 4821, 7.6.4.
#[test]
fn a_probe_lost_with_others_tells_nothing() {
    let mut harness = opened(probing(PathProbing::Always), true);
    let mut probes = Vec::new();
    for _ in 0..400 {
        let room = harness.connection.send_room().min(14_000);
        harness.write(&stream(0..room));
        let sent = harness.take();
        harness.now += TICK;
        let nxt = nxt(&harness);
        if let Some(at) = sent.iter().position(|it| it.payload.len() > 1_024) {
            probes.push(sent[at].payload.len());
            if probes.len() == 4 {
                break;
            }
            // Congestion: the probe is lost, and so are the two segments behind it.
            let first = sent[at].sequence();
            let end = first + probes[probes.len() - 1] as u32 + 2 * 1_024;
            harness.options.sack.push(ISS + end, ISS + nxt);
            harness.receive(ACK, 1, first, b"");
            harness.options.sack = SackBlocks::NONE;
            harness.pass(Duration::from_millis(30));
            harness.take();
        }
        let nxt = self::nxt(&harness);
        harness.receive(ACK, 1, nxt, b"");
    }
    let counters = harness.connection.counters();
    assert_eq!((counters.mtu_probes_lost, counters.fast_recoveries), (3, 3));
    assert_eq!(probes, [1_460; 4]);
}

// RFC 3168, 6.1.2: a mark while a narrower path has all sent again is no less one.
#[test]
fn marks_behind_a_narrower_path_count() {
    let config = Config { ecn: EcnMode::Request, ..probing(PathProbing::Off) };
    let mut harness = opened_by(SYN | ACK | TcpFlags::ECE, config, true);
    harness.write(&stream(0..14_600));
    assert_eq!(harness.take().len(), 10);
    harness.connection.set_path_mss(harness.now, 1_400);
    harness.take();
    harness.now += TICK;
    harness.receive(ACK | TcpFlags::ECE, 1, 1 + 1_400 * 5, b"");
    assert_eq!(harness.connection.counters().reductions_for_marks, 1);
}

// RFC 8899, 5.1.1: PMTU_RAISE_TIMER; RFC 4821, 7.3.
#[test]
fn without_sack_segments_become_long_again_after_a_while() {
    let mut harness = opened(probing(PathProbing::OnBlackHole), false);
    harness.write(&stream(0..20_000));
    harness.take();
    // The path is down for a while.
    for _ in 0..5 {
        harness.pass_to_deadline();
        harness.take();
    }
    assert_eq!(harness.connection.payload_max(), 536);
    let down_at = harness.now;
    while harness.connection.payload_max() == 536 {
        harness.now += Duration::from_secs(4);
        let nxt = nxt(&harness);
        harness.receive(ACK, 1, nxt, b"");
        let room = harness.connection.send_room().min(12_000);
        harness.write(&stream(0..room));
        harness.take();
        assert!(harness.now.since(down_at) < Duration::from_secs(700));
    }
    assert_eq!(harness.connection.payload_max(), 1_460);
    assert!(harness.now.since(down_at) >= Duration::from_secs(590), "not at once");
}

// RFC 4821, 7.6.1: a probe that was reported has arrived, whatever the peer drops of it later (RFC 2018, 8).
#[test]
fn a_probe_that_arrived_is_not_lost_where_the_peer_reneges() {
    let mut harness = opened(probing(PathProbing::Always), true);
    harness.write(&stream(0..500));
    harness.take();
    harness.now += TICK;
    harness.receive(ACK, 1, 501, b"");
    harness.write(&stream(0..500));
    harness.take();
    harness.write(&stream(0..10_000));
    let sent = harness.take();
    let (first, probe, last) = (501, &sent[0], sent.last().expect("a burst").sequence());
    assert_eq!((probe.sequence(), probe.payload.len()), (1_001, 1_460));
    harness.now += TICK;
    // The one before is lost, and so is the last.
    harness.options.sack.push(ISS + 1_001, ISS + last);
    harness.receive(ACK, 1, first, b"");
    harness.options.sack = SackBlocks::NONE;
    assert_eq!(harness.take_ranges()[0], (first, 500));
    harness.now += TICK;
    // Of what it had reported the peer has nothing any more.
    harness.receive(ACK, 1, 1_001, b"");
    let counters = harness.connection.counters();
    assert_eq!((counters.sack_reneges, counters.retransmissions_lost), (1, 0));
    assert_eq!(
        harness.connection.sender.recovery.lost_bytes(),
        last + 1_024 - 1_001,
        "all goes again"
    );
    while harness.connection.send_queue_len() > 0 {
        harness.take();
        harness.now += TICK;
        let nxt = nxt(&harness);
        harness.receive(ACK, 1, nxt, b"");
    }
    assert_eq!(harness.connection.counters().mtu_probes_lost, 0);
    assert_eq!(harness.connection.payload_max(), 1_460);
}

// RFC 4821, 7.7: it is the length of what times out that tells, not how much waits behind it.
#[test]
fn short_segments_that_are_lost_are_no_black_hole() {
    let mut harness = opened(probing(PathProbing::OnBlackHole), true);
    // Chunks of the caller's memory are never merged; a segment holds sixteen of them.
    for _ in 0..200 {
        harness.write(&stream(0..20));
    }
    assert_eq!(harness.take_ranges()[..2], [(1, 320), (321, 320)]);
    for _ in 0..8 {
        harness.pass_to_deadline();
        let again = harness.take_ranges();
        assert!(again.iter().all(|(_, len)| *len <= 320), "{again:?}");
    }
    assert_eq!(harness.connection.counters().black_holes, 0);
    assert_eq!(harness.connection.payload_max(), 1_460);
}

// Short segments that go again as one long one: the path may take each of them by now, and not that (seed 220010202).
#[test]
fn short_segments_that_join_into_one_too_long_are_a_black_hole() {
    let mut harness = opened(probing(PathProbing::OnBlackHole), true);
    harness.connection.set_nodelay(true);
    for at in 0..10 {
        harness.write(&stream(140 * at..140 * (at + 1)));
        harness.take();
        harness.now += Duration::from_millis(1);
    }
    for _ in 0..8 {
        harness.pass_to_deadline();
        harness.take();
    }
    assert!(harness.connection.counters().black_holes > 0);
}

// RFC 4821, 7.7: behind a timeout all that is outstanding is sent again, in segments of the length that is known to
// pass; that what the probe carried is acknowledged says nothing of the probe.
#[test]
fn a_probe_that_timed_out_has_not_arrived() {
    let mut harness = opened(probing(PathProbing::Always), true);
    harness.write(&stream(0..500));
    harness.take();
    harness.now += TICK;
    harness.receive(ACK, 1, 501, b"");
    harness.write(&stream(0..12_000));
    assert!(harness.take().iter().any(|it| it.payload.len() == 1_460), "a probe");
    while harness.connection.counters().retransmission_timeouts == 0 {
        harness.pass_to_deadline();
        harness.take();
    }
    harness.now += TICK;
    let nxt = nxt(&harness);
    harness.receive(ACK, 1, nxt, b"");
    assert_eq!(harness.connection.counters().mtu_probes_sent, 1);
    assert_eq!(harness.connection.counters().mtu_probes_arrived, 0);
}
