//! Closing: every way from ESTABLISHED to CLOSED (RFC 9293, 3.6, 3.10.4, 3.10.7.4).

use super::harness::*;
use crate::{ConnectionError, Events, Keepalive, State};
use counters::DropReason;
use time::Duration;

fn state(harness: &Harness) -> State {
    harness.connection.state()
}

#[test]
fn closing_first_goes_through_fin_wait_to_time_wait() {
    let mut harness = Harness::established(plain_config());
    harness.connection.shutdown_write();
    assert_eq!(state(&harness), State::FinWait1);
    let fin = harness.expect_one();
    assert_eq!((fin.header.flags, fin.sequence()), (FIN | ACK, 1));
    harness.receive(ACK, 1, 2, b"");
    assert_eq!(state(&harness), State::FinWait2);
    harness.receive(ACK, 1, 2, b"still here");
    assert_eq!(harness.read(20), b"still here", "half-close");
    harness.receive(FIN | ACK, 11, 2, b"");
    assert_eq!(state(&harness), State::TimeWait);
    assert!(harness.connection.at_end_of_stream());
    assert_eq!(harness.expect_one().acknowledgment(), 12);
    // The FIN again: acknowledged again, and 2 MSL begin anew.
    harness.pass(Duration::from_secs(50));
    assert_eq!(harness.try_receive(FIN | ACK, 11, 2, b""), Err(DropReason::Duplicate));
    assert_eq!(harness.expect_one().acknowledgment(), 12);
    harness.pass(Duration::from_secs(59));
    assert_eq!(state(&harness), State::TimeWait);
    harness.pass(Duration::from_secs(1));
    assert_eq!(state(&harness), State::Closed);
    assert!(harness.connection.is_finished() && harness.connection.error().is_none());
}

#[test]
fn closing_second_goes_through_close_wait_and_last_ack() {
    let mut harness = Harness::established(plain_config());
    harness.receive(FIN | ACK, 1, 1, b"bye");
    assert_eq!(state(&harness), State::CloseWait);
    assert!(harness.connection.take_events().contains(Events::PEER_CLOSED | Events::READABLE));
    assert_eq!(harness.expect_one().acknowledgment(), 5);
    assert!(!harness.connection.at_end_of_stream());
    assert_eq!(harness.read(10), b"bye");
    assert!(harness.connection.at_end_of_stream());
    harness.write(b"last words");
    harness.connection.close(harness.now);
    assert_eq!(state(&harness), State::LastAck);
    let last = harness.expect_one();
    assert_eq!((last.header.flags, last.payload.as_slice()), (FIN | PSH | ACK, &b"last words"[..]));
    harness.receive(ACK, 5, 12, b"");
    assert_eq!(state(&harness), State::Closed);
    assert!(harness.connection.is_finished() && harness.connection.error().is_none());
}

// RFC 9293, 3.10.7.4: what comes again is acknowledged, though it goes on where nothing can be any more.
#[test]
fn old_data_that_goes_on_behind_the_fin_is_acknowledged() {
    let mut harness = Harness::established(plain_config());
    harness.receive(FIN | ACK, 1, 1, b"bye");
    assert_eq!(harness.expect_one().acknowledgment(), 5);
    for (at, bytes) in [(1, &b"bye, or not"[..]), (5, b"or not")] {
        assert_eq!(harness.try_receive(ACK, at, 1, bytes), Err(DropReason::BadState));
        assert_eq!(harness.expect_one().acknowledgment(), 5);
    }
    assert_eq!((state(&harness), harness.read(20)), (State::CloseWait, b"bye".to_vec()));
}

#[test]
fn closing_at_the_same_time_goes_through_closing() {
    let mut harness = Harness::established(plain_config());
    harness.connection.shutdown_write();
    harness.take();
    harness.receive(FIN | ACK, 1, 1, b"");
    assert_eq!(state(&harness), State::Closing);
    assert_eq!(harness.expect_one().acknowledgment(), 2);
    harness.receive(ACK, 2, 2, b"");
    assert_eq!(state(&harness), State::TimeWait);
}

#[test]
fn a_fin_that_acknowledges_ours_goes_straight_to_time_wait() {
    let mut harness = Harness::established(plain_config());
    harness.connection.shutdown_write();
    harness.take();
    harness.receive(FIN | ACK, 1, 2, b"");
    assert_eq!(state(&harness), State::TimeWait);
}

// RFC 9293, 3.3.2, MUST-13: 2 MSL, whatever timers other settings ask for.
#[test]
fn keepalive_does_not_shorten_time_wait() {
    let mut harness = Harness::established(plain_config());
    harness.connection.shutdown_write();
    harness.take();
    harness.receive(FIN | ACK, 1, 2, b"");
    harness.take();
    let due = harness.connection.poll_timeout();
    let keepalive = Keepalive { idle: Duration::from_secs(5), ..Keepalive::default() };
    harness.connection.set_keepalive(harness.now, Some(keepalive));
    assert_eq!(harness.connection.poll_timeout(), due);
}

#[test]
fn a_lost_fin_is_sent_again() {
    let mut harness = Harness::established(plain_config());
    harness.write(b"data");
    harness.connection.shutdown_write();
    harness.take();
    harness.pass_to_deadline();
    let again = harness.expect_one();
    assert_eq!(
        (again.header.flags, again.sequence(), again.payload.len()),
        (FIN | PSH | ACK, 1, 4)
    );
    harness.receive(ACK, 1, 5, b"");
    harness.expect_nothing();
    harness.pass_to_deadline();
    let again = harness.expect_one();
    assert_eq!((again.header.flags, again.sequence(), again.payload.len()), (FIN | ACK, 5, 0));
}

#[test]
fn a_fin_ahead_of_its_data_waits_for_it() {
    let mut harness = Harness::established(plain_config());
    harness.receive(FIN | ACK, 4, 1, b"def");
    assert_eq!(state(&harness), State::Established);
    assert_eq!(harness.expect_one().acknowledgment(), 1);
    harness.receive(ACK, 1, 1, b"abc");
    assert_eq!(state(&harness), State::CloseWait);
    assert_eq!(harness.expect_one().acknowledgment(), 8);
    assert_eq!(harness.read(10), b"abcdef");
}

// RFC 9293, 3.10.7.4, SHLD-31: whatever came of it before, and in whatever order.
#[test]
fn a_fin_behind_what_waits_already_is_held() {
    let mut harness = Harness::established(plain_config());
    harness.receive(ACK, 4, 1, b"def");
    // The same again with the FIN, and a byte before it.
    assert_eq!(harness.try_receive(FIN | ACK, 4, 1, b"def"), Err(DropReason::Duplicate));
    harness.receive(ACK, 1, 1, b"a");
    assert_eq!(state(&harness), State::Established);
    harness.receive(ACK, 2, 1, b"bc");
    assert_eq!(state(&harness), State::CloseWait);
    assert_eq!(harness.read(10), b"abcdef");
    assert!(harness.connection.at_end_of_stream() && !harness.connection.receiver.queue.has_gap());
    // One that lies before what came is none, and does not leave a gap open.
    let mut harness = Harness::established(plain_config());
    harness.receive(FIN | ACK, 4, 1, b"");
    harness.receive(ACK, 4, 1, b"defg");
    harness.receive(ACK, 1, 1, b"abc");
    assert_eq!((state(&harness), harness.read(10)), (State::Established, b"abcdefg".to_vec()));
    assert!(!harness.connection.receiver.queue.has_gap());
}

// RFC 9293, 3.6.1; RFC 2525, 2.17.
#[test]
fn closing_with_unread_data_resets() {
    let mut harness = Harness::established(plain_config());
    harness.receive(ACK, 1, 1, b"nobody reads this");
    harness.connection.close(harness.now);
    let reset = harness.expect_one();
    assert_eq!((reset.header.flags, reset.sequence()), (RST | ACK, 1));
    assert!(harness.connection.is_finished());
}

#[test]
fn data_after_close_resets() {
    let mut harness = Harness::established(plain_config());
    harness.connection.close(harness.now);
    harness.take();
    harness.receive(ACK, 1, 2, b"");
    assert_eq!(state(&harness), State::FinWait2);
    assert_eq!(harness.try_receive(ACK, 1, 2, b"late"), Err(DropReason::BadState));
    assert_eq!(harness.expect_one().header.flags, RST);
    assert_eq!(state(&harness), State::Closed);
}

/// RFC 1122, 4.2.2.13: what was there before can be read, what comes is nobody's.
#[test]
fn data_resets_when_both_directions_are_shut_and_not_before() {
    let mut harness = Harness::established(plain_config());
    harness.connection.shutdown_read();
    harness.receive(ACK, 1, 1, b"heard");
    harness.take();
    harness.connection.shutdown_write();
    harness.take();
    harness.receive(ACK, 6, 2, b"");
    assert_eq!(state(&harness), State::FinWait2);
    assert_eq!(harness.try_receive(ACK, 6, 2, b"late"), Err(DropReason::BadState));
    assert_eq!(harness.expect_one().header.flags, RST);
    assert_eq!(harness.connection.error(), Some(ConnectionError::Aborted));
    assert_eq!(harness.read(10), b"heard");
}

#[test]
fn an_orphan_does_not_stay_in_fin_wait_2() {
    let mut harness = Harness::established(plain_config());
    harness.connection.close(harness.now);
    harness.take();
    harness.receive(ACK, 1, 2, b"");
    harness.pass(Duration::from_secs(60));
    assert_eq!(state(&harness), State::Closed);
}

#[test]
fn an_abort_resets_and_says_so() {
    let mut harness = Harness::established(plain_config());
    harness.write(b"unsent");
    harness.connection.abort();
    let reset = harness.expect_one();
    assert_eq!((reset.header.flags, reset.sequence(), reset.payload.len()), (RST | ACK, 1, 0));
    assert_eq!(harness.connection.error(), Some(ConnectionError::Aborted));
}

#[test]
fn a_close_before_the_handshake_is_over_sends_the_fin_after_it() {
    let mut harness = Harness::connect(plain_config());
    harness.write(b"early");
    harness.connection.shutdown_write();
    assert_eq!(harness.expect_one().header.flags, SYN);
    harness.receive(SYN | ACK, 0, 1, b"");
    assert_eq!(state(&harness), State::FinWait1);
    let sent = harness.expect_one();
    assert_eq!((sent.header.flags, sent.payload.as_slice()), (FIN | PSH | ACK, &b"early"[..]));
}

// RFC 5681, 4.2: what is out of order is acknowledged at once, so that the sender hears of the gap. A FIN by itself, too.
#[test]
fn a_fin_ahead_of_its_turn_is_answered_at_once() {
    let mut harness = Harness::established(plain_config());
    harness.receive(FIN | ACK, 101, 1, b"");
    assert_eq!(harness.expect_one().acknowledgment(), 1);
}
