//! Rules of what goes over a connection, each broken once.

use super::segments::{CLIENT, LINE, SECOND, SERVER, Wire, assert_rule, end_of, segment};
use crate::checker::Patience;
use crate::packet::{Segment, flag};
use time::Duration;

const BYTES: &[u8] = &[7; 300];
const MILLISECOND: Duration = Duration::from_millis(1);

const PATIENCE: Patience = Patience { user_timeout: None, keepalive: None };

// RFC 9293, 3.10.7.1.
#[test]
fn a_reset_ends_a_connection_or_refuses_what_is_no_reset() {
    let rule = "RFC 9293, 3.10.7.1: a reset";
    let reset = |position| segment(SERVER, flag::RST, (position, 0), b"");
    assert_eq!(Wire::connected().sends(&reset(1)), Ok(()), "it ends it");
    let mut wire = Wire::connected();
    assert_rule(wire.sends(&reset(9)), rule);
    wire.gets(&segment(CLIENT, flag::ACK, (7, 9), b"x"));
    assert_eq!(wire.sends(&reset(9)), Ok(()));
    assert_rule(wire.sends(&reset(9)), rule);
    wire.gets(&segment(CLIENT, flag::RST | flag::ACK, (7, 30), b""));
    assert_rule(wire.sends(&reset(30)), rule);
    // Without an acknowledgment: what came is acknowledged instead.
    let refusal = segment(SERVER, flag::RST | flag::ACK, (0, 3), b"");
    let mut wire = Wire::new();
    wire.gets(&segment(CLIENT, flag::SYN, (0, 0), b"ab"));
    let mut zero = refusal.clone();
    zero.sequence = 0;
    assert_rule(wire.sends(&refusal), rule);
    assert_eq!(wire.sends(&zero), Ok(()));
}

// RFC 7323, 4.3.
#[test]
fn an_echo_is_of_a_timestamp_that_arrived_and_not_of_one_before() {
    let stamped = |host, flags, positions, payload, stamps| {
        let mut segment = segment(host, flags, positions, payload);
        segment.options.timestamps = Some(stamps);
        segment
    };
    let data = |position, value| stamped(CLIENT, flag::ACK, (position, 1), b"ab", (value, 900));
    let echoes = |acknowledged, echo| {
        let mut wire = Wire::new();
        wire.passes(&stamped(CLIENT, flag::SYN, (0, 0), b"", (u32::MAX - 5, 0)));
        wire.passes(&stamped(SERVER, flag::SYN | flag::ACK, (0, 1), b"", (900, u32::MAX - 5)));
        wire.passes(&stamped(CLIENT, flag::ACK, (1, 1), b"", (u32::MAX - 3, 900)));
        wire.passes(&data(1, u32::MAX - 2));
        let ack = |ack, echo| stamped(SERVER, flag::ACK, (1, ack), b"", (901, echo));
        assert_eq!(wire.sends(&ack(3, u32::MAX - 3)), Ok(()), "a half-open one need not take it");
        wire.gets(&data(3, 4));
        // Not in order, and so perhaps not taken.
        wire.gets(&data(7, 6));
        wire.sends(&ack(acknowledged, echo))
    };
    assert_eq!(echoes(5, 4), Ok(()));
    assert_eq!(echoes(5, 6), Ok(()));
    assert_eq!(echoes(3, u32::MAX - 2), Ok(()), "it has seen nothing of the rest yet");
    assert_rule(echoes(5, 5), "RFC 7323, 3.2: an echo");
    assert_rule(echoes(3, u32::MAX - 5), "RFC 7323, 3.2: an echo");
    assert_rule(echoes(5, u32::MAX - 2), "RFC 7323, 4.3: what is acknowledged");
}

/// A connection with ECN.
fn connected_with_ecn() -> Wire {
    let mut wire = Wire::new();
    wire.passes(&segment(CLIENT, flag::SYN | flag::ECE | flag::CWR, (0, 0), b""));
    wire.passes(&segment(SERVER, flag::SYN | flag::ACK | flag::ECE, (0, 1), b""));
    wire.passes(&segment(CLIENT, flag::ACK, (1, 1), b""));
    wire
}

// RFC 3168, 6.1.
#[test]
fn marks_are_agreed_on_echoed_and_answered() {
    let data = |flags, position| segment(CLIENT, flag::ACK | flags, (position, 1), b"ab");
    let ack = |flags, ack| segment(SERVER, flag::ACK | flags, (1, ack), b"");
    assert_rule(Wire::connected().sends_marked(&data(0, 1), 2), "RFC 3168, 6.1.1: nothing");
    assert_rule(Wire::connected().sends(&data(flag::CWR, 1)), "RFC 3168, 6.1.1: nothing");
    assert_rule(connected_with_ecn().sends_marked(&data(0, 1), 3), "RFC 3168, 5");
    assert_rule(connected_with_ecn().sends(&ack(flag::CWR, 1)), "RFC 3168, 6.1.2: CWR");
    assert_rule(connected_with_ecn().sends(&ack(flag::ECE, 1)), "RFC 3168, 6.1.3: an echo");
    let mut wire = connected_with_ecn();
    // What comes to a half-open connection may be dropped, mark and all.
    assert_eq!(wire.sends_marked(&data(0, 1), 2), Ok(()));
    wire.gets_marked(&data(0, 1), 2);
    assert_eq!(wire.sends(&ack(0, 3)), Ok(()));
    assert_eq!(wire.sends_marked(&data(0, 3), 2), Ok(()));
    wire.gets_marked(&data(0, 3), 3);
    assert_rule(wire.sends(&ack(0, 5)), "RFC 3168, 6.1.3: a mark");
    assert_eq!(wire.sends(&ack(flag::ECE, 5)), Ok(()));
    wire.gets(&data(flag::CWR, 5));
    assert_rule(wire.sends(&ack(flag::ECE, 7)), "RFC 3168, 6.1.3: an echo");
    assert_eq!(wire.sends(&ack(0, 7)), Ok(()));
    // Who has sent a FIN says nothing more, and no CWR: what is marked before it was sent before.
    let mut wire = connected_with_ecn();
    wire.passes(&data(0, 1));
    assert_eq!(wire.sends(&ack(0, 3)), Ok(()));
    wire.gets(&segment(CLIENT, flag::ACK | flag::FIN, (5, 1), b"ab"));
    wire.gets_marked(&data(0, 3), 3);
    assert_eq!(wire.sends(&ack(0, 8)), Ok(()));
    // What others overtook that are younger may be dropped for its timestamp (RFC 7323, 5.3).
    let mut wire = connected_with_ecn();
    wire.passes(&data(0, 1));
    assert_eq!(wire.sends(&ack(0, 3)), Ok(()));
    let stamped = |flags, position, value| {
        let mut data = data(flags, position);
        data.options.timestamps = Some((value, 0));
        data
    };
    wire.gets_marked(&stamped(0, 3, 20), 3);
    assert_eq!(wire.sends(&ack(flag::ECE, 5)), Ok(()));
    wire.gets(&stamped(flag::CWR, 5, 19));
    assert_eq!(wire.sends(&ack(flag::ECE, 7)), Ok(()));
    // The sender has a window's time to answer.
    let answer = |flags| {
        let mut wire = connected_with_ecn();
        for (position, acknowledged) in [(1, 1), (3, 1), (5, 4)] {
            assert_eq!(wire.sends(&data(0, position)), Ok(()));
            wire.gets(&ack(flag::ECE, acknowledged));
        }
        wire.sends(&data(flags, 7))
    };
    assert_rule(answer(0), "RFC 3168, 6.1.2: who heard");
    assert_eq!(answer(flag::CWR), Ok(()));
}

// RFC 3168, 6.1.1.1: a SYN that is sent again may ask no more, and perhaps nobody sees it.
#[test]
fn a_syn_that_waits_for_its_neighbour_may_have_given_marks_up() {
    let answer = |asked| {
        let mut wire = Wire::new();
        wire.passes(&segment(CLIENT, flag::SYN | flag::ECE | flag::CWR, (0, 0), b""));
        wire.asks(CLIENT, asked);
        wire.passes(&segment(SERVER, flag::SYN | flag::ACK | flag::ECE, (0, 1), b""));
        wire.passes(&segment(CLIENT, flag::ACK, (1, 1), b""));
        wire.gets_marked(&segment(SERVER, flag::ACK, (1, 1), b"ab"), 3);
        wire.sends(&segment(CLIENT, flag::ACK, (1, 3), b""))
    };
    assert_eq!(answer(1), Ok(()));
    assert_rule(answer(0), "RFC 3168, 6.1.3: a mark");
}

// RFC 3168, 6.1.6: neither ECT nor CWR is set on window probes.
#[test]
fn a_window_probe_does_not_say_that_the_window_was_reduced() {
    let echo = |acknowledged, window| Segment {
        window,
        ..segment(SERVER, flag::ACK | flag::ECE, (1, acknowledged), b"")
    };
    let probe = |flags| segment(CLIENT, flag::ACK | flags, (1_002, 1), b"a");
    let says = |flags| {
        let mut wire = connected_with_ecn();
        for position in [1, 301, 601] {
            wire.passes(&segment(CLIENT, flag::ACK, (position, 1), BYTES));
        }
        wire.gets(&echo(901, 100));
        wire.passes(&segment(CLIENT, flag::ACK | flag::CWR, (901, 1), &BYTES[..100]));
        wire.gets(&echo(1_001, 0));
        // One probe's byte is taken, the next is not.
        assert_eq!(wire.sends(&segment(CLIENT, flag::ACK, (1_001, 1), b"a")), Ok(()));
        wire.gets(&echo(1_002, 0));
        assert_eq!(wire.sends(&probe(0)), Ok(()));
        wire.gets(&echo(1_002, 0));
        wire.now += SECOND;
        wire.sends(&probe(flags))
    };
    assert_eq!(says(0), Ok(()));
    assert_rule(says(flag::CWR), "RFC 3168, 6.1.2: CWR");
}

// RFC 7323, 2.4, and RFC 3168, 6.1.6: a window may close behind an edge that the peer had told of.
#[test]
fn a_probe_behind_an_edge_that_went_back_is_a_probe() {
    let answer = |window, acknowledged| {
        let mut wire = connected_with_ecn();
        let echo = |acknowledged| segment(SERVER, flag::ACK | flag::ECE, (1, acknowledged), b"");
        for (position, acknowledged) in [(1, 1), (3, 1), (5, 4)] {
            assert_eq!(wire.sends(&segment(CLIENT, flag::ACK, (position, 1), b"ab")), Ok(()));
            wire.gets(&echo(acknowledged));
        }
        wire.gets(&Segment { window, ..echo(acknowledged) });
        wire.sends(&segment(CLIENT, flag::ACK, (7, 1), b"a"))
    };
    assert_eq!(answer(0, 7), Ok(()));
    assert_rule(answer(100, 7), "RFC 3168, 6.1.2: who heard");
    assert_rule(answer(0, 5), "RFC 3168, 6.1.2: who heard");
}

#[test]
fn a_fallback_of_the_client_is_one_of_the_server() {
    let mut wire = Wire::new();
    wire.checker.hosts[SERVER].facts.cookies = false;
    for asks in [flag::ECE | flag::CWR, 0] {
        wire.gets(&segment(CLIENT, flag::SYN | asks, (0, 0), b""));
        let syn_ack = segment(SERVER, flag::SYN | flag::ACK | flag::ECE, (0, 1), b"");
        assert_eq!(wire.sends(&syn_ack), Ok(()));
    }
    wire.gets(&segment(CLIENT, flag::ACK, (1, 1), b""));
    let data = segment(SERVER, flag::ACK, (1, 1), b"ab");
    assert_rule(wire.sends_marked(&data, 2), "RFC 3168, 6.1.1: nothing");
}

// RFC 9293, 3.8.6: the window of these segments is 1,000 bytes.
#[test]
fn one_byte_alone_may_stand_beyond_the_window() {
    let behind = |payload| {
        let mut wire = Wire::connected();
        for position in [1, 301, 601] {
            assert_eq!(wire.sends(&segment(CLIENT, flag::ACK, (position, 1), BYTES)), Ok(()));
        }
        let rest = segment(CLIENT, flag::ACK, (901, 1), &BYTES[..100]);
        assert_eq!(wire.sends(&rest), Ok(()));
        wire.sends(&segment(CLIENT, flag::ACK, (1_001, 1), payload))
    };
    assert_eq!(behind(b"a"), Ok(()));
    assert_rule(behind(b"ab"), "RFC 9293, 3.8.6: nothing beyond");
}

// RFC 6298, 2.4; RFC 5681, 3.1.
#[test]
fn a_timer_takes_its_time_and_sends_one_segment() {
    let first = segment(CLIENT, flag::ACK, (1, 1), &BYTES[..200]);
    let third_after = |pause: Duration| {
        let mut wire = Wire::connected();
        assert_eq!(wire.sends(&first), Ok(()));
        wire.now += 80 * MILLISECOND;
        assert_eq!(wire.sends(&first), Ok(()), "a probe");
        wire.now += pause;
        let judged = wire.sends(&first);
        (wire, judged)
    };
    assert_rule(third_after(199 * MILLISECOND).1, "RFC 6298, 2.4");
    let (mut wire, judged) = third_after(200 * MILLISECOND);
    assert_eq!(judged, Ok(()));
    assert_eq!(wire.sends(&segment(CLIENT, flag::ACK, (201, 1), &BYTES[..100])), Ok(()));
    assert_rule(wire.sends(&segment(CLIENT, flag::ACK, (301, 1), b"a")), "RFC 5681, 3.1");
}

// RFC 6928, 2.
#[test]
fn a_first_flight_is_as_long_as_the_initial_window() {
    let third = |heard: bool| {
        let mut wire = Wire::connected();
        wire.checker.hosts[CLIENT].facts.initial_window_segments = 1;
        for position in [1, 301] {
            assert_eq!(wire.sends(&segment(CLIENT, flag::ACK, (position, 1), BYTES)), Ok(()));
        }
        if heard {
            wire.gets(&segment(SERVER, flag::ACK, (1, 301), b""));
        }
        wire.sends(&segment(CLIENT, flag::ACK, (601, 1), b"a"))
    };
    assert_rule(third(false), "RFC 6928, 2");
    assert_eq!(third(true), Ok(()));
}

// RFC 9293, 3.7.4.
#[test]
fn a_small_segment_waits_for_another() {
    let second = |flags, heard: bool, len: usize| {
        let mut wire = Wire::connected();
        wire.checker.hosts[CLIENT].facts.nagle = true;
        assert_eq!(wire.sends(&segment(CLIENT, flag::ACK, (1, 1), b"ab")), Ok(()));
        if heard {
            wire.gets(&segment(SERVER, flag::ACK, (1, 3), b""));
        }
        wire.sends(&segment(CLIENT, flag::ACK | flags, (3, 1), &BYTES[..len]))
    };
    assert_rule(second(0, false, 2), "RFC 9293, 3.7.4");
    assert_eq!(second(0, false, 300), Ok(()));
    assert_eq!(second(0, true, 2), Ok(()));
    assert_eq!(second(flag::FIN, false, 2), Ok(()), "nothing will be added to it");
    let mut wire = Wire::connected();
    wire.checker.hosts[CLIENT].facts.nagle = true;
    for payload in [&b"a"[..], b"abc"] {
        let sent = wire.sends(&segment(CLIENT, flag::ACK, (1, 1), payload));
        assert_eq!(sent, Ok(()), "the first may be the probe of a closed window");
    }
}

// RFC 9293, 3.10.7.4: of what lies before RCV.NXT nothing is looked at, so what it acknowledges may be urgent still.
#[test]
fn urgent_data_that_an_old_segment_acknowledges_waits_for_nothing() {
    let behind = |position| {
        let mut wire = Wire::connected();
        wire.checker.hosts[CLIENT].facts.nagle = true;
        wire.passes(&segment(SERVER, flag::ACK, (1, 1), b"ab"));
        let mut urgent = segment(CLIENT, flag::ACK | flag::URG, (1, 3), b"ab");
        urgent.urgent = 2;
        assert_eq!(wire.sends(&urgent), Ok(()));
        assert_eq!(wire.sends(&segment(CLIENT, flag::ACK, (3, 3), b"ab")), Ok(()));
        wire.gets(&segment(SERVER, flag::ACK, (position, 3), b"ab"));
        wire.sends(&segment(CLIENT, flag::ACK, (5, 3), b"ab"))
    };
    assert_eq!(behind(1), Ok(()));
    assert_rule(behind(3), "RFC 9293, 3.7.4");
}

// RFC 9293, 3.8.6.2.1, MUST-38.
#[test]
fn half_of_the_largest_window_is_not_small() {
    let second = |len: usize, cookies: bool| {
        let mut wire = Wire::new();
        wire.checker.hosts[SERVER].facts.cookies = cookies;
        let mut syn = segment(CLIENT, flag::SYN, (0, 0), b"");
        syn.window = 200;
        wire.passes(&syn);
        wire.passes(&segment(SERVER, flag::SYN | flag::ACK, (0, 1), b""));
        let mut ack = segment(CLIENT, flag::ACK, (1, 1), b"");
        ack.window = 150;
        wire.passes(&ack);
        wire.checker.hosts[SERVER].facts.nagle = true;
        assert_eq!(wire.sends(&segment(SERVER, flag::ACK, (1, 1), b"ab")), Ok(()));
        wire.sends(&segment(SERVER, flag::ACK, (3, 1), &BYTES[..len]))
    };
    assert_eq!(second(100, false), Ok(()));
    assert_rule(second(99, false), "RFC 9293, 3.7.4");
    assert_eq!(second(75, true), Ok(()), "it remembers no window of the SYN");
    assert_rule(second(74, true), "RFC 9293, 3.7.4");
}

// RFC 9293, 3.8.3.
#[test]
fn who_gives_up_has_waited_and_the_peer_has_answered() {
    let data = segment(CLIENT, flag::ACK, (1, 1), b"ab");
    let after = |pause: u32, arrives: bool, patience: Patience| {
        let mut wire = Wire::connected();
        assert_eq!(wire.sends(&data), Ok(()));
        wire.now += SECOND * pause;
        if arrives {
            wire.gets(&data);
            wire.now += SECOND;
        }
        wire.checker.has_waited_in_vain(wire.now, LINE, patience)
    };
    assert!(!after(99, false, PATIENCE));
    assert!(after(100, false, PATIENCE));
    let short = Patience { user_timeout: Some(5 * SECOND), ..PATIENCE };
    // Half of it, because it may run from before the first probe of a closed window.
    assert!(!after(2, false, short) && after(3, false, short));
    assert!(after(100, true, PATIENCE), "what comes before it is accepted may wait");
    let mut wire = Wire::connected();
    wire.passes(&data);
    assert_eq!(wire.sends(&segment(SERVER, flag::ACK, (1, 3), b"")), Ok(()), "lost");
    wire.now += 100 * SECOND;
    assert!(wire.checker.has_waited_in_vain(wire.now, LINE, PATIENCE));
    wire.gets(&data);
    wire.now += SECOND;
    assert!(!wire.checker.has_waited_in_vain(wire.now, LINE, PATIENCE), "a peer that is mute");
}

// RFC 9293, 3.8.6.3: an ACK may be delayed, and the connection be over before it is due.
#[test]
fn who_is_reset_before_its_answer_was_due_owes_none() {
    let probe = segment(CLIENT, flag::ACK, (3, 1), b"c");
    let answered = |pause: Duration, reset_at: u32| {
        let mut wire = Wire::connected();
        wire.passes(&segment(CLIENT, flag::ACK, (1, 1), b"ab"));
        wire.passes(&segment(SERVER, flag::ACK, (1, 3), b""));
        assert_eq!(wire.sends(&probe), Ok(()));
        wire.now += 100 * SECOND;
        wire.gets(&probe);
        wire.now += pause;
        let reset = segment(CLIENT, flag::RST | flag::ACK, (reset_at, 1), b"");
        wire.passes(&reset);
        wire.now += SECOND;
        wire.checker.has_waited_in_vain(wire.now, LINE, PATIENCE)
    };
    assert!(answered(60 * MILLISECOND, 4));
    assert!(!answered(60 * MILLISECOND, 3), "it expects the byte behind the probe's");
    assert!(!answered(SECOND, 4), "it was mute");
}

// RFC 9293, 3.10.5: a reset names SND.NXT; RFC 5961, 3.2: who expects another number does not obey.
#[test]
fn a_reset_behind_a_probe_that_was_taken_unheard_is_not_heard() {
    let probe = segment(CLIENT, flag::ACK, (1, 1), b"a");
    let given_up = |pause: u32, reset_at: u32, arrives: bool| {
        let mut wire = Wire::connected();
        assert_eq!(wire.sends(&probe), Ok(()));
        wire.now += SECOND * pause;
        wire.gets(&probe);
        assert_eq!(wire.sends(&segment(SERVER, flag::ACK, (1, 2), b"")), Ok(()), "lost");
        let reset = segment(CLIENT, flag::RST | flag::ACK, (reset_at, 1), b"");
        assert_eq!(wire.sends(&reset), Ok(()));
        if arrives {
            wire.gets(&reset);
        }
        wire.now += 300 * SECOND;
        wire.checker.has_given_up_unheard(LINE, PATIENCE)
    };
    assert!(given_up(100, 1, true), "it expects the byte behind the probe's");
    assert!(!given_up(100, 2, true), "it knows");
    assert!(given_up(100, 2, false), "it was lost");
    assert!(!given_up(99, 1, true), "there was no reason for it");
    let mut wire = Wire::connected();
    assert_eq!(wire.sends(&probe), Ok(()));
    wire.now += 100 * SECOND;
    assert!(!wire.checker.has_given_up_unheard(LINE, PATIENCE), "it says nothing");
}

// RFC 9293, 3.10.7.4: of the ACK in a keepalive probe nothing is looked at.
#[test]
fn a_reset_stands_before_a_probe_whose_byte_only_a_keepalive_probe_acknowledged() {
    let reset_at = |sequence: u32, keepalive: bool| {
        let mut wire = Wire::connected();
        wire.passes(&segment(CLIENT, flag::ACK, (1, 1), b"a"));
        assert_eq!(wire.sends(&segment(SERVER, flag::ACK, (1, 2), b"")), Ok(()), "lost");
        if keepalive {
            wire.passes(&segment(SERVER, flag::ACK, (0, 2), b""));
        }
        wire.sends(&segment(CLIENT, flag::RST | flag::ACK, (sequence, 1), b""))
    };
    assert_eq!([1, 2].map(|sequence| reset_at(sequence, true)), [Ok(()), Ok(())]);
    assert_eq!(reset_at(1, false), Ok(()));
}

// RFC 9293, 3.10.7.4: of two windows behind the same acknowledgment the later that comes counts; one may have overtaken
// the other. What stands behind the window the peer does not look at.
#[test]
fn a_reset_stands_at_the_edge_of_a_window_that_went_back() {
    let rule = "RFC 9293, 3.10.7.1: a reset";
    let reset_at = |sequence: u32, window: u16| {
        let mut wire = Wire::connected();
        wire.passes(&segment(CLIENT, flag::ACK, (1, 1), BYTES));
        let mut overtaken = segment(SERVER, flag::ACK, (1, 1), b"");
        overtaken.window = window;
        wire.gets(&overtaken);
        wire.sends(&segment(CLIENT, flag::RST | flag::ACK, (sequence, 1), b""))
    };
    assert_eq!(reset_at(101, 100), Ok(()));
    assert_eq!(reset_at(301, 100), Ok(()));
    assert_rule(reset_at(101, 99), rule);
    assert_rule(reset_at(401, 400), rule);
}

// RFC 4861, 7.2.2.
#[test]
fn a_neighbour_is_given_up_that_was_asked_for_three_times_in_vain() {
    let mut wire = Wire::new();
    let begun_at = wire.now;
    wire.asks(CLIENT, 2);
    assert!(!wire.checker.has_asked_in_vain(wire.now, LINE, wire.now));
    wire.asks(CLIENT, 1);
    assert!(wire.checker.has_asked_in_vain(wire.now, LINE, wire.now));
    let ends = [CLIENT, SERVER].map(|host| end_of(host).ip());
    wire.checker.hosts[SERVER].neighbours.on_asked(wire.now, ends[CLIENT], ends[SERVER]);
    wire.now += SECOND;
    assert!(!wire.checker.has_asked_in_vain(wire.now, LINE, wire.now), "it heard and said nothing");
    wire.checker.hosts[SERVER].neighbours.on_answered(wire.now, ends[CLIENT]);
    assert!(wire.checker.has_asked_in_vain(wire.now, LINE, wire.now));
    wire.checker.hosts[CLIENT].neighbours.on_heard_of(ends[SERVER], true);
    assert!(!wire.checker.has_asked_in_vain(wire.now, LINE, wire.now));
    assert!(
        wire.checker.has_asked_in_vain(wire.now, LINE, begun_at),
        "who looks late is told late"
    );
}
