//! Keepalive and the user timeout.

use super::harness::*;
use crate::{Config, ConnectionError, Keepalive, State};
use counters::DropReason;
use time::Duration;

fn keepalive() -> Config {
    let keepalive =
        Keepalive { idle: Duration::from_secs(100), interval: Duration::from_secs(10), count: 3 };
    Config { keepalive: Some(keepalive), ..plain_config() }
}

// RFC 9293, 3.8.4.
#[test]
fn an_idle_connection_is_probed_and_an_answer_keeps_it() {
    let mut harness = Harness::established(keepalive());
    harness.pass(Duration::from_secs(60));
    harness.receive(ACK, 1, 1, b"sign of life");
    harness.take();
    harness.pass(Duration::from_secs(99));
    assert_eq!(harness.connection.counters().keepalive_probes_sent, 0);
    harness.take();
    harness.pass(Duration::from_secs(1));
    let probe = harness.expect_one();
    assert_eq!((probe.sequence(), probe.acknowledgment(), probe.payload.len()), (0, 13, 0));
    harness.receive(ACK, 13, 1, b"");
    harness.pass(Duration::from_secs(99));
    assert_eq!(harness.connection.state(), State::Established);
}

#[test]
fn unanswered_probes_end_the_connection() {
    let mut harness = Harness::established(keepalive());
    harness.pass(Duration::from_secs(129));
    assert_eq!(harness.take().len(), 3);
    harness.pass(Duration::from_secs(1));
    assert_eq!(harness.connection.state(), State::Closed);
    assert_eq!(harness.connection.error(), Some(ConnectionError::TimedOut));
    assert_eq!(harness.expect_one().header.flags, RST | ACK);
}

// RFC 5482, 4.2; it may be shorter than the probes would take, or longer.
#[test]
fn a_user_timeout_says_for_how_long_probes_go_on() {
    for (seconds, probes) in [(105, 1), (200, 10)] {
        let user_timeout = Some(Duration::from_secs(seconds));
        let mut harness = Harness::established(Config { user_timeout, ..keepalive() });
        harness.pass(Duration::from_secs(seconds.next_multiple_of(10)) - Duration::from_millis(1));
        assert_eq!(harness.connection.state(), State::Established);
        assert_eq!(harness.connection.counters().keepalive_probes_sent, probes);
        harness.pass(Duration::from_millis(1));
        assert_eq!(harness.connection.error(), Some(ConnectionError::TimedOut));
    }
}

/// Probed after two seconds, and then every five, up to three times.
fn eager_keepalive() -> Config {
    let [idle, interval] = [2, 5].map(Duration::from_secs);
    Config { keepalive: Some(Keepalive { idle, interval, count: 3 }), ..plain_config() }
}

// RFC 9293, 3.8.4, MUST-26. An answer, a repetition because our ACK was lost, and the peer's own probe.
#[test]
fn whatever_the_peer_sends_has_probes_counted_anew() {
    let signs: [(u32, &[u8]); 3] = [(13, b""), (1, b"sign of life"), (12, b"")];
    for (sequence, payload) in signs {
        let mut harness = Harness::established(eager_keepalive());
        harness.receive(ACK, 1, 1, b"sign of life");
        harness.pass(Duration::from_secs(13));
        assert_eq!(harness.connection.counters().keepalive_probes_sent, 3);
        let _ = harness.try_receive(ACK, sequence, 1, payload);
        harness.pass(Duration::from_secs(18));
        assert_eq!(harness.connection.state(), State::Established, "{sequence}");
        harness.pass(Duration::from_secs(2));
        assert_eq!(harness.connection.error(), Some(ConnectionError::TimedOut), "{sequence}");
        assert_eq!(harness.connection.counters().keepalive_probes_sent, 6, "{sequence}");
    }
}

// RFC 5961, 5: it takes more than a sequence number of the past or one in the window, which are soon guessed.
#[test]
fn what_is_not_of_the_peer_puts_off_no_probe() {
    for sequence in [0, 1, 2, 1_u32.wrapping_sub(1 << 30)] {
        for (flags, ack) in [(ACK, 2), (ACK, 1_u32.wrapping_sub(60_001)), (SYN, 1)] {
            let mut harness = Harness::established(eager_keepalive());
            harness.pass(Duration::from_secs(16));
            let _ = harness.try_receive(flags, sequence, ack, b"");
            harness.pass(Duration::from_secs(1));
            let error = harness.connection.error();
            assert_eq!(error, Some(ConnectionError::TimedOut), "{flags:?} {sequence} {ack}");
        }
    }
}

// RFC 9293, 3.10.7.4: what is not acceptable, as a probe, is answered with <SEQ=SND.NXT><ACK=RCV.NXT><CTL=ACK>. A peer
// that looks at nothing in an old segment would not find an answer in a probe of our own.
#[test]
fn probes_that_cross_are_answered_and_not_sent() {
    let mut harness = Harness::established(eager_keepalive());
    harness.pass(Duration::from_millis(1_999));
    harness.now += Duration::from_millis(1);
    harness.connection.on_timeout(harness.now);
    assert_eq!(harness.try_receive(ACK, 0, 1, b""), Err(DropReason::OutOfWindow));
    let answer = harness.expect_one();
    assert_eq!((answer.sequence(), answer.acknowledgment()), (1, 1));
    assert_eq!(harness.connection.counters().keepalive_probes_sent, 0);
}

// RFC 9293, 3.8.3.
#[test]
fn the_user_timeout_ends_a_connection_whose_data_is_not_acknowledged() {
    let config = Config { user_timeout: Some(Duration::from_secs(5)), ..plain_config() };
    let mut harness = Harness::established(config);
    harness.write(b"data");
    harness.take();
    harness.pass(Duration::from_millis(4_999));
    harness.receive(ACK, 1, 5, b"");
    harness.pass(Duration::from_secs(10));
    assert_eq!(harness.connection.state(), State::Established);
    harness.write(b"more");
    harness.take();
    harness.pass(Duration::from_secs(5));
    assert_eq!(harness.connection.error(), Some(ConnectionError::TimedOut));
}

// RFC 9293, 3.8.3 and 3.10.1: the user timeout bounds an open, too; and keepalive probes that nobody
// answers.
#[test]
fn the_user_timeout_bounds_opens_and_probes() {
    let user_timeout = Some(Duration::from_secs(5));
    let mut harness = Harness::connect(Config { user_timeout, ..plain_config() });
    harness.flush();
    harness.pass(Duration::from_millis(4_900));
    assert_eq!(harness.connection.state(), State::SynSent);
    harness.pass(Duration::from_millis(200));
    assert_eq!(harness.connection.error(), Some(ConnectionError::TimedOut));

    let second = Duration::from_secs(1);
    let keepalive = Some(Keepalive { idle: second, interval: second, count: 100 });
    let mut harness = Harness::established(Config { user_timeout, keepalive, ..plain_config() });
    harness.pass(Duration::from_millis(5_900));
    assert_eq!(harness.connection.error(), Some(ConnectionError::TimedOut));
}

// As Linux has it: fewer retries where nobody waits for the outcome.
#[test]
fn an_orphan_gives_up_earlier() {
    let lifetime = |orphaned: bool| {
        let mut harness = Harness::established(plain_config());
        harness.write(b"never acknowledged");
        harness.flush();
        if orphaned {
            harness.connection.close(harness.now);
        }
        let began = harness.now;
        while harness.connection.state() != State::Closed {
            harness.pass(Duration::from_secs(1));
            harness.take();
        }
        harness.now - began
    };
    let (orphan, owned) = (lifetime(true), lifetime(false));
    // RFC 9293, 3.8.3: R2 of at least 100 s.
    assert!(orphan >= Duration::from_secs(100), "{orphan:?}");
    assert!(owned > 3 * orphan, "{owned:?} {orphan:?}");
}

// RFC 5482, 3: the SYN carries our value, and the longer of both counts.
#[test]
fn the_user_timeout_option_is_exchanged() {
    let config = Config { user_timeout_option: true, ..plain_config() };
    let mut harness = Harness::connect(config);
    let syn = harness.expect_one();
    assert_eq!(syn.header.options.user_timeout.map(|it| it.seconds()), Some(300));
    harness.options.user_timeout = Some(wire::TcpUserTimeout::from_seconds(500));
    harness.receive(SYN | ACK, 0, 1, b"");
    assert_eq!(harness.connection.user_timeout(), Some(Duration::from_secs(500)));
}

// RFC 9293, 3.9.1.1: the timeout is one "for all data submitted to TCP": also for what the peer's closed window
// keeps from being sent, whatever answers its probes get.
#[test]
fn the_user_timeout_bounds_the_wait_for_a_closed_window() {
    let user_timeout = Some(Duration::from_secs(5));
    let mut harness = Harness::established(Config { user_timeout, ..plain_config() });
    let wait = |harness: &mut Harness, seconds: u64| {
        for _ in 0..seconds * 10 {
            harness.pass(Duration::from_millis(100));
            harness.take();
            let _ = harness.try_receive(ACK, 1, 5, b"");
        }
    };
    harness.window = 0;
    harness.write(b"data");
    harness.take();
    harness.receive(ACK, 1, 5, b"");
    wait(&mut harness, 10);
    assert_eq!(harness.connection.state(), State::Established, "nothing waits");
    harness.write(b"more");
    wait(&mut harness, 4);
    assert_eq!(harness.connection.state(), State::Established);
    // It opens and closes: what was sent meanwhile is heard of, and the rest waits anew.
    harness.window = 2;
    harness.receive(ACK, 1, 5, b"");
    harness.take();
    harness.window = 0;
    wait(&mut harness, 4);
    assert_eq!(harness.connection.state(), State::Established);
    wait(&mut harness, 2);
    assert_eq!(harness.connection.error(), Some(ConnectionError::TimedOut));
    // Set while it waits, it counts from then.
    let mut harness = Harness::established(plain_config());
    harness.window = 0;
    harness.receive(ACK, 1, 1, b"");
    harness.write(b"data");
    harness.connection.set_user_timeout(harness.now, user_timeout);
    harness.pass(Duration::from_secs(5));
    assert_eq!(harness.connection.error(), Some(ConnectionError::TimedOut));
}

#[test]
fn a_user_timeout_of_a_dead_connection_sends_nothing() {
    let mut harness = Harness::established(plain_config());
    harness.write(&stream(0..100));
    harness.expect_one();
    harness.receive(RST, 1, 1, b"");
    assert_eq!(harness.connection.state(), State::Closed);
    harness.connection.set_user_timeout(harness.now, Some(Duration::from_secs(1)));
    harness.pass(Duration::from_secs(2));
    harness.expect_nothing();
}

// RFC 9293, 3.10.8: nothing is sent; before the peer's SYN there is nothing to acknowledge either.
#[test]
fn a_user_timeout_before_the_answer_to_our_syn_sends_no_reset() {
    let user_timeout = Some(Duration::from_millis(500));
    let mut harness = Harness::connect(Config { user_timeout, ..plain_config() });
    harness.expect_one();
    harness.pass(Duration::from_millis(600));
    harness.expect_nothing();
    assert_eq!(harness.connection.state(), State::Closed);
    assert_eq!(harness.connection.error(), Some(ConnectionError::TimedOut));
}

// The SYN-ACK of a fast open waits for its acknowledgment as any other does, and what waits keeps the time it has waited.
#[test]
fn a_user_timeout_that_changes_while_a_fast_open_waits_keeps_the_time_it_has_waited() {
    let now = time::Instant::from_millis(10_000);
    let peer = Harness::connect(plain_config());
    let syn = peer.header(SYN, 0, 0);
    let user_timeout = Some(Duration::from_secs(5));
    let parameters = parameters(Config { user_timeout, ..plain_config() });
    let connection = crate::Connection::accept_fast(parameters, now, &syn, None, None, &peer.pool);
    let mut harness = Harness::wrap(connection, now);
    harness.expect_one();
    harness.pass(Duration::from_millis(3_500));
    harness.connection.set_user_timeout(harness.now, Some(Duration::from_secs(6)));
    harness.pass(Duration::from_millis(2_400));
    assert_eq!(harness.connection.state(), State::SynReceived);
    harness.pass(Duration::from_millis(200));
    assert_eq!(harness.connection.state(), State::Closed);
}

// RFC 5482, 3.1, and RFC 9293, 3.8.3 (MUST-21): the user timeout is R2, be it set or agreed on, and longer than retries
// would be: "allows established TCP connections to survive extended periods without end-to-end connectivity".
#[test]
fn a_long_user_timeout_outlives_the_retries() {
    let hour = Duration::from_secs(3_600);
    let set = Config { user_timeout: Some(hour), ..plain_config() };
    let agreed = Config { user_timeout_option: true, ..plain_config() };
    for (config, is_closed) in [(set.clone(), false), (agreed, false), (set, true)] {
        let user_timeout = Some(wire::TcpUserTimeout::from_seconds(3_600));
        let options = wire::TcpOptions { user_timeout, ..wire::TcpOptions::default() };
        let mut harness = Harness::established_with(config, options);
        harness.window = if is_closed { 0 } else { 60_000 };
        harness.receive(ACK, 1, 1, b"");
        harness.write(b"data");
        harness.take();
        harness.pass(hour - Duration::from_secs(1));
        assert_eq!(harness.connection.state(), State::Established);
        harness.pass(Duration::from_secs(1));
        assert_eq!(harness.connection.error(), Some(ConnectionError::TimedOut));
    }
    // Nobody has asked for an hour where the application is gone.
    let config = Config { user_timeout: Some(hour), ..plain_config() };
    let mut harness = Harness::established(config);
    harness.write(b"data");
    harness.connection.close(harness.now);
    harness.take();
    harness.pass(Duration::from_secs(600));
    assert_eq!(harness.connection.state(), State::Closed);
}

// RFC 9293, 3.8.4, MUST-26: "only when no sent data is outstanding".
#[test]
fn no_probe_is_sent_while_data_is_outstanding() {
    let mut harness = Harness::established(eager_keepalive());
    harness.write(b"data");
    harness.flush();
    harness.pass(Duration::from_secs(60));
    assert!(harness.connection.counters().retransmission_timeouts > 2);
    assert_eq!(harness.connection.counters().keepalive_probes_sent, 0);
    assert_eq!(harness.connection.state(), State::Established);
}

// Whoever switches it off and on again has all probes sent anew.
#[test]
fn keepalive_that_is_switched_on_again_begins_anew() {
    let mut harness = Harness::established(eager_keepalive());
    harness.pass(Duration::from_secs(7));
    assert_eq!(harness.connection.counters().keepalive_probes_sent, 2);
    harness.connection.set_keepalive(harness.now, None);
    harness.pass(Duration::from_secs(60));
    harness.connection.set_keepalive(harness.now, eager_keepalive().keepalive);
    harness.pass(Duration::from_secs(16));
    assert_eq!(harness.connection.state(), State::Established);
    harness.pass(Duration::from_secs(1));
    assert_eq!(harness.connection.error(), Some(ConnectionError::TimedOut));
    assert_eq!(harness.connection.counters().keepalive_probes_sent, 5);
}

// RFC 9293, 3.8.3: what waits keeps the time that it has waited, whatever the limit is now.
#[test]
fn a_new_user_timeout_counts_from_when_the_wait_began() {
    for (seconds, left) in [(4, 1), (10, 7), (1, 0)] {
        let user_timeout = Some(Duration::from_secs(5));
        let mut harness = Harness::established(Config { user_timeout, ..plain_config() });
        harness.write(b"data");
        harness.flush();
        harness.pass(Duration::from_secs(3));
        harness.connection.set_user_timeout(harness.now, Some(Duration::from_secs(seconds)));
        if left > 0 {
            harness.pass(Duration::from_secs(left) - Duration::from_millis(1));
            assert_eq!(harness.connection.state(), State::Established, "{seconds} s");
        }
        harness.pass(Duration::from_millis(1));
        assert_eq!(harness.connection.error(), Some(ConnectionError::TimedOut), "{seconds} s");
    }
}

// Nobody waits for an orphan longer than for one that has an owner.
#[test]
fn an_orphan_has_no_more_retries_than_others() {
    let mut harness = Harness::established(Config { retries: 2, ..plain_config() });
    harness.write(b"never acknowledged");
    harness.connection.close(harness.now);
    harness.flush();
    harness.pass(Duration::from_secs(100));
    assert_eq!(harness.connection.counters().retransmission_timeouts, 3);
    assert_eq!(harness.connection.state(), State::Closed);
}
