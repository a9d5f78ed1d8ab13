//! Connections told segment by segment: what the checker excuses, and only with its evidence.

use super::super::{Broken, Checker, Line, Patience};
use crate::packet::{Ip, Options, Segment, Transport, flag};
use crate::scenario::START;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};
use time::{Duration, Instant};

pub(super) const CLIENT: usize = 0;
pub(super) const SERVER: usize = 1;

/// Initial sequence numbers.
const ISS: [u32; 2] = [100, 500];

/// The connection as the client has it.
pub(super) const LINE: Line =
    Line { hosts: [CLIENT, SERVER], ends: (end_of(CLIENT), end_of(SERVER)), iss: ISS[CLIENT] };

const MSS: u16 = 300;

pub(super) const SECOND: Duration = Duration::from_secs(1);

/// A segment that left its host and is still on the way is just not given to [`Wire::gets`].
pub(super) struct Wire {
    pub(super) checker: Checker,
    pub(super) now: Instant,
}

pub(super) const fn end_of(host: usize) -> SocketAddr {
    let address = Ipv4Addr::new(10, 0, 0, host as u8 + 1);
    SocketAddr::V4(SocketAddrV4::new(address, 1_000 + host as u16))
}

#[track_caller]
pub(super) fn assert_rule(judged: Result<(), Broken>, start: &str) {
    assert!(judged.as_ref().is_err_and(|(rule, _)| rule.starts_with(start)), "{judged:?}");
}

/// A segment at these positions of both streams.
pub(super) fn segment(
    host: usize,
    flags: u8,
    (position, ack): (u32, u32),
    payload: &'static [u8],
) -> Segment<'static> {
    let mss = Some(MSS).filter(|_| flags & flag::SYN != 0);
    Segment {
        source: end_of(host),
        destination: end_of(1 - host),
        sequence: ISS[host] + position,
        acknowledgment: ISS[1 - host] + ack,
        flags,
        window: 1_000,
        header_len: 20,
        urgent: 0,
        options: Options { mss, ..Options::default() },
        payload,
    }
}

impl Wire {
    /// Two hosts that may answer with cookies.
    pub(super) fn new() -> Self {
        let mut checker = Checker::default();
        for host in [CLIENT, SERVER] {
            checker.add_host(vec![end_of(host).ip()], true, 1_500, super::facts());
        }
        Self { checker, now: START }
    }

    /// With a connection.
    pub(super) fn connected() -> Self {
        let mut wire = Self::new();
        wire.passes(&segment(CLIENT, flag::SYN, (0, 0), b""));
        wire.passes(&segment(SERVER, flag::SYN | flag::ACK, (0, 1), b""));
        wire.passes(&segment(CLIENT, flag::ACK, (1, 1), b""));
        wire
    }

    pub(super) fn sends(&mut self, segment: &Segment<'_>) -> Result<(), Broken> {
        self.sends_marked(segment, 0)
    }

    pub(super) fn sends_marked(&mut self, segment: &Segment<'_>, ecn: u8) -> Result<(), Broken> {
        let host = usize::from(segment.source == end_of(SERVER));
        self.checker.hosts[host].judge_segment(self.now, segment, ecn)
    }

    pub(super) fn gets(&mut self, segment: &Segment<'_>) {
        self.gets_marked(segment, 0);
    }

    pub(super) fn gets_marked(&mut self, segment: &Segment<'_>, ecn: u8) {
        let host = usize::from(segment.destination == end_of(SERVER));
        self.checker.hosts[host].take_segment(self.now, segment, ecn);
    }

    #[track_caller]
    pub(super) fn passes(&mut self, segment: &Segment<'_>) {
        assert_eq!(self.sends(segment), Ok(()));
        self.gets(segment);
    }

    /// The host asks for its neighbour so often, a second apart.
    pub(super) fn asks(&mut self, host: usize, times: u32) {
        for _ in 0..times {
            self.now += SECOND;
            let asked = self.checker.hosts[host].judge_request(self.now, end_of(1 - host).ip());
            assert_eq!(asked, Ok(()));
        }
    }

    fn has_probed_in_vain(&self) -> bool {
        let patience = Patience { user_timeout: None, keepalive: Some((23 * SECOND, 9)) };
        self.checker.has_waited_in_vain(self.now, LINE, patience)
    }
}

#[test]
fn probes_are_in_vain_where_all_were_sent_and_their_answers_lost() {
    let probe = segment(CLIENT, flag::ACK, (1, 1), b"");
    let answer = segment(SERVER, flag::ACK, (1, 2), b"");
    let mut wire = Wire::connected();
    wire.passes(&segment(CLIENT, flag::ACK, (1, 1), b"a"));
    wire.passes(&answer);
    wire.now += 3 * SECOND;
    for _ in 0..9 {
        assert!(!wire.has_probed_in_vain(), "probes are still to be sent");
        wire.now += 2 * SECOND;
        wire.passes(&probe);
        assert_eq!(wire.sends(&answer), Ok(()));
    }
    assert!(!wire.has_probed_in_vain(), "the last may be answered");
    wire.now += 2 * SECOND;
    assert!(wire.has_probed_in_vain());
    // A peer that keeps silent is a mistake of the stack's.
    wire.gets(&probe);
    assert!(wire.has_probed_in_vain(), "it may still answer");
    wire.now += SECOND;
    assert!(!wire.has_probed_in_vain());
    assert_rule(wire.sends(&answer), "RFC 9293, 3.8.6.3");
    assert!(wire.has_probed_in_vain());
    // And so is not to notice an answer.
    wire.gets(&answer);
    wire.now += 23 * SECOND;
    assert!(!wire.has_probed_in_vain());
}

#[test]
fn a_segment_of_the_past_does_not_undo_a_silence_that_was_long_enough() {
    let mut wire = Wire::connected();
    let old = segment(SERVER, flag::ACK, (1, 1), b"a");
    wire.passes(&old);
    wire.passes(&segment(CLIENT, flag::ACK, (1, 2), b""));
    wire.asks(CLIENT, 3);
    wire.now += 20 * SECOND;
    assert!(wire.has_probed_in_vain());
    wire.gets(&old);
    assert!(wire.has_probed_in_vain());
    wire.gets(&segment(SERVER, flag::ACK, (2, 1), b"b"));
    assert!(!wire.has_probed_in_vain());
}

// RFC 5961, 3.2: a reset that does not stand at RCV.NXT ends nothing, and one out of the window is dropped in silence.
#[test]
fn a_reset_of_the_past_is_no_sign_of_life() {
    let mut wire = Wire::connected();
    wire.asks(CLIENT, 3);
    wire.now += 20 * SECOND;
    wire.gets(&segment(SERVER, flag::RST, (0, 0), b""));
    assert!(wire.has_probed_in_vain());
}

#[test]
fn a_reset_stands_behind_what_was_lost_with_the_neighbour() {
    let reset = segment(CLIENT, flag::RST | flag::ACK, (2, 1), b"");
    let resets = |asked| {
        let mut wire = Wire::connected();
        wire.asks(CLIENT, asked);
        wire.checker.hosts[CLIENT].on_heard_of(end_of(SERVER).ip(), true);
        wire.sends(&reset)
    };
    assert_rule(resets(0), "RFC 9293, 3.10.7.1: a reset");
    assert_eq!(resets(3), Ok(()));
}

// Whatever was heard of it before the connection began.
#[test]
fn what_is_sent_to_a_neighbour_that_was_just_given_up_may_be_lost() {
    let goes_on_after = |wait| {
        let mut wire = Wire::new();
        wire.asks(SERVER, 3);
        wire.checker.hosts[SERVER].on_heard_of(end_of(CLIENT).ip(), false);
        wire.passes(&segment(CLIENT, flag::SYN, (0, 0), b""));
        wire.passes(&segment(SERVER, flag::SYN | flag::ACK, (0, 1), b""));
        wire.passes(&segment(CLIENT, flag::ACK, (1, 1), b""));
        wire.now += wait;
        wire.sends(&segment(SERVER, flag::ACK, (9, 1), b""))
    };
    assert_eq!(goes_on_after(2 * SECOND), Ok(()));
    assert_rule(goes_on_after(5 * SECOND), "RFC 9293, 3.4: sequence numbers");
}

#[test]
fn a_window_is_lost_with_the_neighbour_until_that_is_heard() {
    let mut wire = Wire::connected();
    let (next, later) = (ISS[SERVER] + 1, 200 * SECOND);
    wire.asks(CLIENT, 2);
    wire.now += later;
    assert_eq!(wire.checker.window_left(wire.now, LINE, next), Some(1_000));
    wire.asks(CLIENT, 1);
    wire.now += later;
    assert_eq!(wire.checker.window_left(wire.now, LINE, next), None);
    wire.passes(&segment(SERVER, flag::ACK, (1, 1), b""));
    assert_eq!(wire.checker.window_left(wire.now, LINE, next), Some(1_000));
}

#[test]
fn a_gap_in_which_a_neighbour_was_asked_for_is_not_the_timers() {
    let syn = segment(CLIENT, flag::SYN, (0, 0), b"");
    let last_of = |asked: u32| {
        let mut wire = Wire::new();
        assert_eq!(wire.sends(&syn), Ok(()));
        wire.asks(CLIENT, asked);
        wire.now = START + Duration::from_millis(3_146);
        assert_eq!(wire.sends(&syn), Ok(()));
        wire.now += 2 * SECOND;
        assert_eq!(wire.sends(&syn), Ok(()));
        wire.now += 4 * SECOND;
        wire.sends(&syn)
    };
    assert_eq!(last_of(3), Ok(()));
    assert!(last_of(0).is_err_and(|(rule, _)| rule.starts_with("RFC 6298, 5.5")));
}

// RFC 4861, 7.2.2.
#[test]
fn what_waited_for_one_neighbour_leaves_together_or_when_its_timer_says() {
    let syn = segment(CLIENT, flag::SYN, (0, 0), b"");
    let second_after = |asked: u32, pause: Duration| {
        let mut wire = Wire::new();
        assert_eq!(wire.sends(&syn), Ok(()));
        wire.now += SECOND;
        assert_eq!(wire.sends(&syn), Ok(()));
        wire.asks(CLIENT, asked);
        wire.now = START + 8 * SECOND;
        assert_eq!(wire.sends(&syn), Ok(()));
        wire.now += pause;
        wire.sends(&syn)
    };
    for pause in [Duration::ZERO, Duration::from_millis(820)] {
        assert_eq!(second_after(3, pause), Ok(()));
        assert_rule(second_after(0, pause), "RFC 6298, 5.5");
    }
}

#[test]
fn who_asks_for_a_neighbour_may_refuse_before_its_syn_ack_is_seen() {
    let refuses = |asked: u32, payload: &'static [u8]| {
        let mut wire = Wire::new();
        wire.gets(&segment(CLIENT, flag::SYN, (0, 0), b""));
        wire.asks(SERVER, asked);
        wire.sends(&segment(SERVER, flag::ACK, (1, 1), payload))
    };
    let is_broken = |rule: &str| rule.starts_with("RFC 9293, 3.10.7.1");
    assert_eq!(refuses(1, b""), Ok(()));
    assert!(refuses(1, b"data").is_err_and(|(rule, _)| is_broken(rule)));
    assert!(refuses(0, b"").is_err_and(|(rule, _)| is_broken(rule)));
}

#[test]
fn a_reset_that_waits_for_a_neighbour_may_be_sent_behind_the_next_syn_ack() {
    let resets = |asked: u32, position, later: Duration| {
        let mut wire = Wire::connected();
        wire.checker.hosts[SERVER].facts.cookies = false;
        wire.asks(SERVER, asked);
        let mut syn = segment(CLIENT, flag::SYN, (0, 0), b"");
        syn.sequence += 1_000;
        wire.gets(&syn);
        let mut answer = segment(SERVER, flag::SYN | flag::ACK, (0, 1_001), b"");
        answer.sequence += 1_000;
        assert_eq!(wire.sends(&answer), Ok(()));
        wire.now += later;
        wire.sends(&segment(SERVER, flag::RST | flag::ACK, (position, 1), b""))
    };
    assert_eq!(resets(1, 1, SECOND), Ok(()));
    assert_rule(resets(1, 9, SECOND), "RFC 9293, 3.10.7.1: a reset");
    assert_rule(resets(0, 1, SECOND), "RFC 9293, 3.10.7.1: a reset");
    assert_eq!(resets(0, 1, Duration::ZERO), Ok(()), "both leave in one batch");
}

// RFC 9293, 3.10.7.3: SYN-ACKs of two SYNs of the same ends come in one batch, and the first of them is refused.
#[test]
fn the_refusal_of_a_syn_ack_before_does_not_end_the_connection_that_the_next_opens() {
    let mut wire = Wire::new();
    let [again, answers_again] = [5_000, 9_000];
    let mut syn = segment(CLIENT, flag::SYN, (0, 0), b"");
    assert_eq!(wire.sends(&syn), Ok(()));
    syn.sequence += again;
    assert_eq!(wire.sends(&syn), Ok(()));
    let answer = segment(SERVER, flag::SYN | flag::ACK, (0, 1), b"");
    wire.gets(&answer);
    wire.gets(&Segment {
        sequence: answer.sequence + answers_again,
        acknowledgment: answer.acknowledgment + again,
        ..answer
    });
    assert_eq!(wire.sends(&segment(CLIENT, flag::RST, (1, 0), b"")), Ok(()));
    let first = segment(CLIENT, flag::ACK, (1, 1), b"");
    let first = Segment {
        sequence: first.sequence + again,
        acknowledgment: first.acknowledgment + answers_again,
        ..first
    };
    assert_eq!(wire.sends(&first), Ok(()));
}

// RFC 4987, 3.6: what overtakes the segment with the cookie is refused, and the connection opens after
// that; but no cookie opens a connection where one has been.
#[test]
fn a_cookie_opens_a_connection_once() {
    let reset = segment(SERVER, flag::RST, (1, 0), b"");
    let speaks = segment(SERVER, flag::ACK, (1, 1), b"new");
    let speaks_again_after = |pause| {
        let mut wire = Wire::new();
        wire.passes(&segment(CLIENT, flag::SYN, (0, 0), b""));
        wire.passes(&segment(SERVER, flag::SYN | flag::ACK, (0, 1), b""));
        let first = segment(CLIENT, flag::ACK, (1, 1), b"th");
        assert_eq!(wire.sends(&first), Ok(()));
        wire.passes(&segment(CLIENT, flag::ACK, (3, 1), b"overtakes"));
        assert_eq!(wire.sends(&reset), Ok(()));
        wire.gets(&first);
        wire.passes(&speaks);
        wire.now += pause;
        assert_eq!(wire.sends(&reset), Ok(()));
        wire.gets(&first);
        wire.sends(&speaks)
    };
    let again = speaks_again_after(SECOND);
    assert!(
        again.is_err_and(|(rule, _)| rule.ends_with("after a reset, or before the peer's SYN"))
    );
    // What overtook it may be refused by another squeue, whose resets go out behind.
    assert_eq!(speaks_again_after(Duration::ZERO), Ok(()));
}

#[test]
fn who_gave_up_in_vain_refuses_what_comes_late() {
    let patience = Patience { user_timeout: None, keepalive: Some((20 * SECOND, 2)) };
    let gave_up = |probes| {
        let mut wire = Wire::connected();
        wire.now += 20 * SECOND;
        for _ in 0..probes {
            let probe = segment(CLIENT, flag::ACK, (0, 1), b"");
            assert_eq!(wire.sends(&probe), Ok(()));
        }
        wire.now += 20 * SECOND;
        wire.passes(&segment(SERVER, flag::ACK, (0, 1), b""));
        assert_eq!(wire.sends(&segment(CLIENT, flag::RST, (1, 0), b"")), Ok(()));
        wire.checker.has_waited_in_vain(wire.now, LINE, patience)
    };
    assert!(gave_up(2));
    assert!(!gave_up(1));
}

#[test]
fn a_syn_may_be_as_old_as_the_search_for_its_neighbour() {
    let syn_after = |pause: Duration| {
        let mut wire = Wire::new();
        // Twice, and the second time to what it was: the SYN is of before both.
        wire.checker.set_mtu(wire.now, CLIENT, 1_280);
        wire.now += SECOND;
        wire.checker.set_mtu(wire.now, CLIENT, 1_280);
        wire.now += pause;
        let mut syn = segment(CLIENT, flag::SYN, (0, 0), b"");
        syn.options.mss = Some(1_400);
        wire.sends(&syn)
    };
    assert_eq!(syn_after(SECOND), Ok(()));
    let late = syn_after(5 * SECOND);
    assert!(late.is_err_and(|(rule, _)| rule.starts_with("RFC 9293, 3.7.1, MUST-14")));
}

// A server of fast open sends data behind its SYN-ACK at once. What overtakes it in pieces may be whole only behind it.
#[test]
fn data_that_overtook_the_syn_ack_may_be_acknowledged() {
    let data = segment(SERVER, flag::ACK, (1, 1), b"early");
    let mut wire = Wire::new();
    wire.passes(&segment(CLIENT, flag::SYN, (0, 0), b""));
    wire.gets(&data);
    wire.gets(&segment(SERVER, flag::SYN | flag::ACK, (0, 1), b""));
    wire.passes(&segment(CLIENT, flag::ACK, (1, 6), b""));
    // And no more than came.
    assert_rule(wire.sends(&segment(CLIENT, flag::ACK, (1, 7), b"")), "RFC 9293, 3.4: only what");
}

#[test]
fn the_window_of_data_that_overtook_the_syn_ack_may_be_used() {
    let with_window = |mut it: Segment<'static>, window| {
        it.window = window;
        it
    };
    let mut wire = Wire::new();
    wire.passes(&segment(CLIENT, flag::SYN, (0, 0), b""));
    wire.gets(&with_window(segment(SERVER, flag::ACK, (1, 1), b"early"), 4));
    wire.gets(&with_window(segment(SERVER, flag::SYN | flag::ACK, (0, 1), b""), 2));
    let beyond = wire.sends(&segment(CLIENT, flag::ACK, (1, 6), b"12345"));
    assert_rule(beyond, "RFC 9293, 3.8.6: nothing beyond");
    wire.passes(&segment(CLIENT, flag::ACK, (1, 6), b"1234"));
}

// RFC 9293, 3.8.6.1: who sent a probe of a closed window does not count its byte as sent, and its ACKs stand before it
// though it was taken. RFC 5961, 10: of such only so many a second are answered.
#[test]
fn an_ack_before_the_byte_of_a_probe_is_no_keepalive_probe() {
    let answered_after_a_second = |window, goes_on: bool| {
        let mut wire = Wire::connected();
        wire.passes(&segment(SERVER, flag::ACK, (1, 1), &[7; 300]));
        let mut taken = segment(CLIENT, flag::ACK, (1, 301), b"");
        taken.window = 700;
        wire.passes(&taken);
        wire.passes(&segment(SERVER, flag::ACK, (301, 1), &[7; 300]));
        wire.passes(&segment(SERVER, flag::ACK, (601, 1), &[7; 300]));
        wire.passes(&segment(SERVER, flag::ACK, (901, 1), &[7; 100]));
        (taken.acknowledgment, taken.window) = (ISS[SERVER] + 1_001, 0);
        wire.passes(&taken);
        wire.passes(&segment(SERVER, flag::ACK, (1_001, 1), b"p"));
        (taken.acknowledgment, taken.window) = (ISS[SERVER] + 1_002, window);
        wire.passes(&taken);
        if goes_on {
            wire.gets(&segment(SERVER, flag::ACK, (1_002, 1), b""));
        }
        wire.now += SECOND;
        wire.gets(&segment(SERVER, flag::ACK, (1_001, 1), b""));
        wire.now += SECOND;
        wire.sends(&taken)
    };
    assert_eq!(answered_after_a_second(0, true), Ok(()));
    assert_eq!(answered_after_a_second(1, false), Ok(()), "it may not have heard of the window");
    assert_rule(answered_after_a_second(1, true), "RFC 9293, 3.8.6.3: an ACK is delayed");
}

// RFC 5961, 10: ACKs that the peer's FIN overtook stand where its keepalive probes do, and are answered so many a second.
#[test]
fn an_ack_that_a_fin_overtook_may_get_no_answer_of_its_own() {
    let late_by = |after| {
        let mut wire = Wire::connected();
        wire.passes(&segment(SERVER, flag::ACK | flag::FIN, (1, 1), b""));
        let answer = segment(CLIENT, flag::ACK, (1, 2), b"");
        wire.passes(&answer);
        wire.now += after;
        wire.gets(&segment(SERVER, flag::ACK, (1, 1), b""));
        wire.now += SECOND;
        wire.sends(&answer)
    };
    assert_eq!(late_by(SECOND / 2), Ok(()));
    assert_rule(late_by(SECOND), "RFC 9293, 3.8.6.3: an ACK is delayed");
}

// RFC 7413, 4.2.2: a server has taken the data of a SYN, which comes again with the ACK of its SYN-ACK.
#[test]
fn a_syn_that_comes_again_with_the_ack_needs_no_answer() {
    let mut wire = Wire::new();
    let syn = segment(CLIENT, flag::SYN, (0, 0), b"");
    wire.passes(&syn);
    wire.passes(&segment(SERVER, flag::SYN | flag::ACK, (0, 1), b""));
    wire.passes(&segment(CLIENT, flag::ACK, (1, 1), b"data"));
    wire.passes(&segment(SERVER, flag::ACK, (1, 5), b""));
    wire.gets(&syn);
    wire.now += SECOND;
    assert_eq!(wire.sends(&segment(SERVER, flag::ACK, (1, 5), b"later")), Ok(()));
    wire.gets(&segment(CLIENT, flag::ACK, (5, 6), b"more"));
    wire.now += SECOND;
    let late = wire.sends(&segment(SERVER, flag::ACK, (6, 9), b""));
    assert_rule(late, "RFC 9293, 3.8.6.3: an ACK is delayed");
}

// A server whose backlog was full answers a SYN with a cookie, and the same SYN again by a connection that fast open
// gives data at once (RFC 7413, 4.2.2). A peer that believes the cookie is refused, and that connection goes on.
#[test]
fn what_goes_on_behind_a_syn_ack_is_of_that_whichever_the_peer_believes() {
    let behind = |mut it: Segment<'static>| {
        it.sequence += 500_000;
        it
    };
    let mut wire = Wire::new();
    wire.passes(&segment(CLIENT, flag::SYN, (0, 0), b""));
    wire.passes(&segment(SERVER, flag::SYN | flag::ACK, (0, 1), b""));
    for it in [(flag::SYN | flag::ACK, (0, 1), &b""[..]), (flag::ACK, (1, 1), b"early")] {
        assert_eq!(wire.sends(&behind(segment(SERVER, it.0, it.1, it.2))), Ok(()));
    }
    wire.passes(&segment(CLIENT, flag::ACK, (1, 1), b"data"));
    assert_eq!(wire.sends(&segment(SERVER, flag::RST, (1, 0), b"")), Ok(()));
    assert_rule(
        wire.sends(&behind(segment(SERVER, flag::ACK, (7, 1), b""))),
        "RFC 9293, 3.4: sequence numbers",
    );
    assert_eq!(wire.sends(&behind(segment(SERVER, flag::ACK, (6, 1), b""))), Ok(()));
}

// A stream may be faster than the clock of initial sequence numbers, so the next connection may begin within it.
#[test]
fn a_probe_before_the_first_byte_is_no_segment_of_the_connection_before() {
    let again = |host: usize, flags: u8, (position, ack): (u32, u32)| {
        let mut it = segment(host, flags, (position, ack), b"");
        let from_before = [900, 3];
        it.sequence += from_before[host];
        it.acknowledgment += from_before[1 - host];
        it
    };
    let sends_at = |position: u32| {
        let mut wire = Wire::connected();
        wire.passes(&segment(SERVER, flag::ACK, (1, 1), b"before"));
        wire.passes(&segment(SERVER, flag::RST, (7, 0), b""));
        wire.passes(&again(CLIENT, flag::SYN, (0, 0)));
        wire.passes(&again(SERVER, flag::SYN | flag::ACK, (0, 1)));
        wire.passes(&again(CLIENT, flag::ACK, (1, 1)));
        let first = again(SERVER, flag::ACK, (1, 1));
        wire.sends(&Segment { sequence: (first.sequence - 1).wrapping_add(position), ..first })
    };
    assert_eq!(sends_at(0), Ok(()));
    assert_eq!(sends_at(1), Ok(()));
    assert_rule(sends_at(1_u32.wrapping_neg()), "RFC 9293, 3.10.7.1: nothing but resets");
    assert_rule(sends_at(2), "RFC 9293, 3.10.7.1: nothing but resets");
}

// The same with a fast open that was accepted at once: the cookie's ACK is refused, and so is the next SYN-ACK by the
// client that is gone.
#[test]
fn what_was_refused_behind_one_syn_ack_was_refused_though_the_other_comes_again() {
    let mut wire = Wire::new();
    wire.passes(&segment(CLIENT, flag::SYN, (0, 0), b""));
    wire.passes(&segment(SERVER, flag::SYN | flag::ACK, (0, 1), b""));
    let mut other = segment(SERVER, flag::SYN | flag::ACK, (0, 1), b"");
    other.sequence += 500_000;
    wire.gets(&segment(CLIENT, flag::SYN, (0, 0), b""));
    assert_eq!(wire.sends(&other), Ok(()));
    wire.passes(&segment(CLIENT, flag::ACK, (1, 1), b""));
    assert!(!wire.checker.has_refused(LINE.turned()));
    wire.passes(&segment(SERVER, flag::RST, (1, 0), b""));
    wire.now += SECOND;
    wire.passes(&other);
    assert!(wire.checker.has_refused(LINE.turned()));
}

// RFC 9293, 3.10.7.4: first the sequence number is checked, and what lies before RCV.NXT is dropped, ACK and all.
#[test]
fn what_a_keepalive_probe_acknowledges_ends_no_wait() {
    let patience = Patience { user_timeout: Some(20 * SECOND), keepalive: None };
    let waited = |position| {
        let mut wire = Wire::connected();
        assert_eq!(wire.sends(&segment(CLIENT, flag::ACK, (1, 1), b"data")), Ok(()));
        wire.gets(&segment(CLIENT, flag::ACK, (1, 1), b"data"));
        wire.now += 30 * SECOND;
        wire.passes(&segment(SERVER, flag::ACK, (position, 5), b""));
        wire.now += SECOND;
        wire.checker.has_waited_in_vain(wire.now, LINE, patience)
    };
    assert!(waited(0), "a probe");
    assert!(!waited(1));
}

#[test]
fn who_has_no_memory_for_the_ack_of_its_answer_may_wait_for_it_in_vain() {
    let patience = Patience::default();
    let given_up = |drops: bool, again: bool| {
        let mut wire = Wire::new();
        wire.checker.hosts[SERVER].facts.drops = drops;
        let answer = segment(SERVER, flag::SYN | flag::ACK, (0, 1), b"");
        wire.passes(&segment(CLIENT, flag::SYN, (0, 0), b""));
        wire.passes(&answer);
        wire.passes(&segment(CLIENT, flag::ACK, (1, 1), b""));
        if again {
            wire.now += SECOND;
            assert_eq!(wire.sends(&answer), Ok(()));
        }
        wire.now += 62 * SECOND;
        wire.checker.has_waited_in_vain(wire.now, LINE.turned(), patience)
    };
    assert!(given_up(true, true));
    assert!(!given_up(true, false), "it was taken");
    assert!(!given_up(false, true), "it has memory");
}

// RFC 7413, 2.1: data in a SYN that the network doubled may be taken twice, by two connections.
#[test]
fn a_reset_may_be_of_the_connection_that_a_syn_opened_before() {
    let syn = segment(CLIENT, flag::SYN, (0, 0), b"");
    let heard = |reset: bool| {
        let mut wire = Wire::new();
        wire.passes(&syn);
        wire.passes(&segment(SERVER, flag::SYN | flag::ACK, (0, 1), b""));
        if reset {
            wire.gets(&segment(CLIENT, flag::RST, (1, 0), b""));
        }
        wire.gets(&syn);
        let mut second = segment(SERVER, flag::SYN | flag::ACK, (0, 1), b"");
        second.sequence += 5_000;
        assert_eq!(wire.sends(&second), Ok(()));
        wire.checker.has_heard_reset(LINE.turned())
    };
    assert!(heard(true));
    assert!(!heard(false));
}

// What a neighbour does not answer for is given up before the wire sees it, and may be so from the last that was seen.
#[test]
fn what_was_lost_unseen_with_a_neighbour_may_have_waited_long() {
    let patience = Patience { user_timeout: Some(20 * SECOND), keepalive: None };
    let waited = |skipped: u32| {
        let mut wire = Wire::connected();
        wire.asks(CLIENT, 3);
        wire.now += 17 * SECOND;
        wire.gets(&segment(SERVER, flag::ACK, (0, 1), b""));
        assert_eq!(wire.sends(&segment(CLIENT, flag::ACK, (1 + skipped, 1), b"")), Ok(()));
        wire.now += SECOND;
        wire.checker.has_waited_in_vain(wire.now, LINE, patience)
    };
    assert!(waited(4));
    assert!(!waited(0), "nothing of it waits");
}

// RFC 7413, 4.2.2: the ACK of a SYN-ACK that took nothing of what came with the SYN stands before that.
#[test]
fn data_of_a_syn_that_was_not_taken_did_not_arrive() {
    let patience = Patience { user_timeout: None, keepalive: Some((20 * SECOND, 1)) };
    let mut wire = Wire::new();
    wire.gets(&segment(CLIENT, flag::SYN, (0, 0), b"early"));
    assert_eq!(wire.sends(&segment(SERVER, flag::SYN | flag::ACK, (0, 1), b"")), Ok(()));
    wire.gets(&segment(CLIENT, flag::SYN, (0, 0), b"early"));
    let in_vain = |wire: &mut Wire| {
        wire.now += 20 * SECOND;
        assert_eq!(wire.sends(&segment(SERVER, flag::ACK, (0, 6), b"")), Ok(()), "a probe");
        wire.checker.has_waited_in_vain(wire.now, LINE.turned(), patience)
    };
    wire.gets(&segment(CLIENT, flag::ACK, (1, 1), b"early"));
    assert!(in_vain(&mut wire), "it is open");
    let mut wire = Wire::new();
    wire.gets(&segment(CLIENT, flag::SYN, (0, 0), b"early"));
    assert_eq!(wire.sends(&segment(SERVER, flag::SYN | flag::ACK, (0, 1), b"")), Ok(()));
    assert_rule(wire.sends(&segment(SERVER, flag::ACK, (1, 6), b"")), "RFC 9293, 3.4: only what");
}

// RFC 9293, 3.9.2.2, MUST-56, and RFC 7413, 4.2.2: who was accepted with the SYN waits, and the neighbour of its SYN-ACKs
// may answer late or never.
#[test]
fn a_syn_ack_that_nobody_saw_may_have_waited_since_its_syn() {
    let in_vain = |asks: bool, seconds: u32, seen: bool| {
        let mut wire = Wire::new();
        wire.gets(&segment(CLIENT, flag::SYN, (0, 0), b""));
        if asks {
            wire.asks(SERVER, 1);
        }
        wire.now += (seconds - u32::from(asks)) * SECOND;
        if seen {
            wire.passes(&segment(SERVER, flag::SYN | flag::ACK, (0, 1), b""));
        }
        wire.gets(&segment(CLIENT, flag::SYN, (0, 0), b""));
        wire.checker.has_waited_in_vain(wire.now, LINE.turned(), Patience::default())
    };
    assert!(in_vain(true, 60, false));
    assert!(in_vain(true, 60, true));
    assert!(!in_vain(true, 59, false), "not long enough");
    assert!(!in_vain(false, 60, false), "no neighbour was looked for");
}

fn stamped(mut it: Segment<'static>, value: u32, echo: u32) -> Segment<'static> {
    it.options.timestamps = Some((value, echo));
    it
}

// RFC 7323, 5.3: what is older than TS.Recent is dropped, and an answer to it is limited.
#[test]
fn what_may_be_too_old_is_no_sign_of_life_and_asks_for_nothing() {
    let patience = Patience { user_timeout: None, keepalive: Some((20 * SECOND, 1)) };
    let after = |value: u32| {
        let mut wire = Wire::new();
        wire.passes(&stamped(segment(CLIENT, flag::SYN, (0, 0), b""), 10, 0));
        wire.passes(&stamped(segment(SERVER, flag::SYN | flag::ACK, (0, 1), b""), 20, 10));
        wire.passes(&stamped(segment(CLIENT, flag::ACK, (1, 1), b""), 11, 20));
        wire.passes(&stamped(segment(SERVER, flag::ACK, (1, 1), b""), 25, 11));
        wire.now += SECOND;
        wire.gets(&stamped(segment(SERVER, flag::ACK, (0, 1), b""), value, 11));
        wire.now += 19 * SECOND;
        let answer = wire.sends(&stamped(segment(CLIENT, flag::ACK, (0, 1), b""), 30, 25));
        (wire.checker.has_waited_in_vain(wire.now, LINE, patience), answer)
    };
    assert_eq!(after(24), (true, Ok(())));
    let (in_vain, late) = after(26);
    assert!(!in_vain);
    assert_rule(late, "RFC 9293, 3.8.6.3: an ACK is delayed");
}

// RFC 5961, 5.2: what has another ACK is dropped, and may be anybody's.
#[test]
fn what_has_no_acceptable_ack_is_no_sign_of_life() {
    let patience = Patience { user_timeout: None, keepalive: Some((20 * SECOND, 1)) };
    let after = |flags: u8, ack: u32| {
        let mut wire = Wire::connected();
        wire.passes(&segment(CLIENT, flag::ACK, (0, 1), b""));
        wire.now += SECOND;
        wire.gets(&segment(SERVER, flags, (1, ack), b""));
        wire.passes(&segment(CLIENT, flag::ACK, (0, 1), b""));
        wire.now += 19 * SECOND;
        wire.checker.has_waited_in_vain(wire.now, LINE, patience)
    };
    assert!(!after(flag::ACK, 1));
    assert!(after(flag::ACK, 2), "nobody has sent that");
    assert!(after(flag::SYN, 0));
}

#[test]
fn an_advertisement_to_an_address_that_is_gone_is_no_answer() {
    let [ours, theirs] = [1, 2].map(|last| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last));
    let asked_in_vain = |is_gone| {
        let mut checker = Checker::default();
        checker.add_host(vec![ours.into()], true, 1_500, super::facts());
        let watched = &mut checker.hosts[CLIENT];
        let ask = |watched: &mut super::super::Watched, second: u64| {
            let now = START + Duration::from_secs(second);
            assert_eq!(watched.judge_request(now, theirs.into()), Ok(()));
        };
        ask(watched, 1);
        if is_gone {
            watched.addresses.clear();
        }
        let ip = Ip {
            source: theirs.into(),
            destination: ours.into(),
            len: 64,
            trailer_len: 0,
            hop_limit: 255,
            ecn: 0,
            flow_label: None,
            dont_fragment: true,
            fragment: false,
            transport: Transport::Other(58),
        };
        watched.take_solicitation(START + SECOND, &ip, 136, theirs.into());
        ask(watched, 2);
        ask(watched, 3);
        watched.neighbours.has_asked_in_vain(START + 4 * SECOND, theirs.into())
    };
    assert!(asked_in_vain(true));
    assert!(!asked_in_vain(false));
}

#[test]
fn a_solicitation_whose_hop_limit_is_damaged_is_none() {
    let mut rest = [0; 20];
    rest[4] = 0xfd;
    let asked = |hop_limit| {
        let ip = Ip {
            source: IpAddr::V6(Ipv6Addr::LOCALHOST),
            destination: IpAddr::V6(Ipv6Addr::LOCALHOST),
            len: 64,
            trailer_len: 0,
            hop_limit,
            ecn: 0,
            flow_label: None,
            dont_fragment: true,
            fragment: false,
            transport: Transport::Other(58),
        };
        super::super::solicited(&ip, 135, &rest).is_some()
    };
    assert!(asked(255));
    assert!(!asked(223));
}
