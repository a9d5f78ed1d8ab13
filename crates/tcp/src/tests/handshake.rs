//! Opening: active, passive, simultaneous; what is lost and what is wrong (RFC 9293, 3.5, 3.10.7).

use super::harness::*;
use crate::{Config, Connection, ConnectionError, Events, State};
use counters::DropReason;
use time::{Duration, Instant};
use wire::{SeqNumber, TcpHeader, TcpOptions, TcpTimestamps};

fn passive() -> Harness {
    let mut template = Harness::connect(plain_config());
    template.options = TcpOptions { mss: Some(700), ..TcpOptions::default() };
    let syn = template.header(SYN, 0, 0);
    let now = template.now;
    let connection = Connection::accept(parameters(plain_config()), now, &syn);
    let mut harness = Harness::wrap(connection, now);
    harness.options = TcpOptions::default();
    harness
}

#[test]
fn active_open() {
    let mut harness = Harness::connect(plain_config());
    let syn = harness.expect_one();
    assert_eq!((syn.header.flags, syn.sequence(), syn.header.window), (SYN, 0, 20_000));
    assert_eq!(syn.header.options.mss, Some(MSS as u16));
    harness.receive(SYN | ACK, 0, 1, b"");
    assert_eq!(harness.connection.state(), State::Established);
    assert!(harness.connection.take_events().contains(Events::CONNECTED | Events::WRITABLE));
    let ack = harness.expect_one();
    assert_eq!((ack.header.flags, ack.sequence(), ack.acknowledgment()), (ACK, 1, 1));
    // RFC 9293, 3.7.1, MUST-15: a peer that announces no MSS gets 536.
    assert_eq!(harness.connection.payload_max(), 536);
    assert_eq!(harness.connection.poll_timeout(), None);
}

#[test]
fn passive_open_and_data_with_the_last_ack() {
    let mut harness = passive();
    let reply = harness.expect_one();
    assert_eq!((reply.header.flags, reply.sequence(), reply.acknowledgment()), (SYN | ACK, 0, 1));
    assert_eq!(harness.connection.state(), State::SynReceived);
    harness.receive(ACK, 1, 1, b"hello");
    assert_eq!(harness.connection.state(), State::Established);
    assert_eq!(harness.connection.payload_max(), 700);
    assert_eq!(harness.read(10), b"hello");
}

// RFC 1191, 6.4: what was too long is sent again as soon as may be, and that is no sign of congestion.
#[test]
fn an_early_answer_that_was_too_long_goes_again_when_the_handshake_is_complete() {
    let mut harness = passive();
    let syn = harness.header(SYN, 0, 0);
    let now = harness.now;
    harness.connection =
        Connection::accept_fast(parameters(plain_config()), now, &syn, None, None, &harness.pool);
    assert_eq!(harness.expect_one().header.flags, SYN | ACK);
    harness.write(&stream(0..1_500));
    let early = harness.take_ranges();
    assert_eq!(early, [(1, 536), (537, 536), (1_073, 428)]);
    let window = harness.connection.info(now).congestion_window_bytes;
    harness.connection.set_path_mss(now, 400);
    harness.expect_nothing();
    assert_eq!(harness.connection.poll_timeout(), Some(now + Duration::from_secs(1)));
    harness.receive(ACK, 1, 1, b"");
    let again = harness.take_ranges();
    assert_eq!(again, [(1, 400), (401, 400), (801, 400), (1_201, 300)]);
    assert!(harness.connection.info(now).congestion_window_bytes >= window / 536 * 400);
    harness.receive(ACK, 1, 1_501, b"");
    assert_eq!(harness.connection.poll_timeout(), None);
}

// RFC 5681, 2: a duplicate equals "the greatest acknowledgment received on the given connection".
#[test]
fn the_ack_of_the_syn_ack_duplicates_none_though_an_answer_is_in_flight() {
    let mut harness = passive();
    let syn = harness.header(SYN, 0, 0);
    let now = harness.now;
    harness.connection =
        Connection::accept_fast(parameters(plain_config()), now, &syn, None, None, &harness.pool);
    assert_eq!(harness.expect_one().header.flags, SYN | ACK);
    harness.write(&stream(0..1_072));
    assert_eq!(harness.take().len(), 2);
    harness.receive(ACK, 1, 1, b"");
    assert_eq!(harness.connection.state(), State::Established);
    assert_eq!(harness.connection.counters().duplicate_acks_received, 0);
    harness.receive(ACK, 1, 1, b"");
    assert_eq!(harness.connection.counters().duplicate_acks_received, 1);
}

#[test]
fn a_lost_syn_ack_is_sent_again_for_the_timer_and_for_the_syn() {
    let mut harness = passive();
    harness.expect_one();
    assert_eq!(harness.try_receive(SYN, 0, 0, b""), Err(DropReason::Duplicate));
    assert_eq!(harness.expect_one().header.flags, SYN | ACK);
    assert_eq!(harness.pass_to_deadline(), Duration::from_secs(1));
    assert_eq!(harness.expect_one().header.flags, SYN | ACK);
    harness.receive(ACK, 1, 1, b"");
    assert_eq!(harness.connection.state(), State::Established);
}

// RFC 7323, 4.3: the SYN that comes again is the last segment that the SYN-ACK answers, and has its timestamp echoed.
#[test]
fn a_syn_again_has_its_own_timestamp_echoed() {
    let mut peer = Harness::connect(plain_config());
    let with = |value| TcpOptions {
        mss: Some(700),
        timestamps: Some(TcpTimestamps { value, echo: 0 }),
        ..TcpOptions::default()
    };
    peer.options = with(500);
    let parameters = parameters(Config { timestamps: true, ..plain_config() });
    let syn = peer.header(SYN, 0, 0);
    let mut harness = Harness::wrap(Connection::accept(parameters, peer.now, &syn), peer.now);
    let echo =
        |harness: &mut Harness| harness.expect_one().header.options.timestamps.map(|it| it.echo);
    assert_eq!(echo(&mut harness), Some(500));
    harness.options = with(1_500);
    assert_eq!(harness.try_receive(SYN, 0, 0, b""), Err(DropReason::Duplicate));
    assert_eq!(echo(&mut harness), Some(1_500));
}

// RFC 9293, 3.7.1, MUST-67: an MSS is no more than what can be received, in a SYN-ACK that is sent again as well.
#[test]
fn a_syn_ack_again_announces_what_the_interface_takes_by_then() {
    let mut harness = passive();
    assert_eq!(harness.expect_one().header.options.mss, Some(MSS as u16));
    harness.connection.set_announced_mss(500);
    harness.pass_to_deadline();
    assert_eq!(harness.expect_one().header.options.mss, Some(500));
}

// RFC 9293, 3.8.3, MUST-23: for at least three minutes.
#[test]
fn a_syn_is_sent_again_with_doubling_time_until_the_open_fails() {
    let mut harness = Harness::connect(plain_config());
    harness.expect_one();
    let mut waits = Vec::new();
    while harness.connection.state() == State::SynSent {
        waits.push(harness.pass_to_deadline().as_secs());
        harness.take();
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 120]);
    assert_eq!(harness.connection.error(), Some(ConnectionError::TimedOut));
    assert!(harness.connection.take_events().contains(Events::CLOSED | Events::FAILED));
}

// RFC 9293, 3.5, figure 8.
#[test]
fn simultaneous_open() {
    let mut harness = Harness::connect(plain_config());
    harness.expect_one();
    harness.receive(SYN, 0, 0, b"");
    assert_eq!(harness.connection.state(), State::SynReceived);
    let reply = harness.expect_one();
    assert_eq!((reply.header.flags, reply.sequence(), reply.acknowledgment()), (SYN | ACK, 0, 1));
    harness.receive(SYN | ACK, 0, 1, b"");
    assert_eq!(harness.connection.state(), State::Established);
    assert_eq!(harness.expect_one().header.flags, ACK);
}

// RFC 9293, 3.10.7.3: "If there are other controls or text in the segment, then queue them for processing after the
// ESTABLISHED state has been reached". RFC 7413: a SYN has text here.
#[test]
fn text_of_a_syn_that_another_crosses_may_be_acknowledged() {
    let mut harness = Harness::connect(plain_config());
    harness.connection.offer_fast_open(None, MSS as u16);
    harness.write(&stream(0..100));
    assert_eq!(harness.expect_one().payload.len(), 100);
    harness.receive(SYN, 0, 0, b"");
    assert_eq!(harness.expect_one().header.flags, SYN | ACK);
    harness.receive(ACK, 1, 101, b"");
    assert_eq!(harness.connection.state(), State::Established);
    harness.expect_nothing();
}

#[test]
fn two_connections_that_open_at_each_other_both_become_established() {
    let mut ends = [Harness::connect(plain_config()), Harness::connect(plain_config())];
    let mut flying: Vec<(usize, TcpHeader)> = Vec::new();
    for round in 0..10 {
        for (index, end) in ends.iter_mut().enumerate() {
            for sent in end.take() {
                flying.push((1 - index, sent.header));
            }
        }
        assert!(round < 9, "they answer each other for ever");
        if flying.is_empty() {
            break;
        }
        for (index, header) in core::mem::take(&mut flying) {
            let _ = ends[index].receive_header(&header, b"");
        }
    }
    assert!(ends.iter().all(|end| end.connection.state() == State::Established));
}

#[test]
fn a_refused_open_fails_and_a_reset_without_ack_does_not() {
    let mut harness = Harness::connect(plain_config());
    harness.expect_one();
    assert_eq!(harness.try_receive(RST, 0, 0, b""), Err(DropReason::BadState));
    assert_eq!(harness.try_receive(RST | ACK, 0, 2, b""), Err(DropReason::BadAck));
    harness.expect_nothing();
    harness.receive(RST | ACK, 0, 1, b"");
    assert_eq!(harness.connection.state(), State::Closed);
    assert_eq!(harness.connection.error(), Some(ConnectionError::Refused));
    assert!(harness.connection.is_finished());
}

// RFC 9293, 3.10.7.3, first: <SEQ=SEG.ACK><CTL=RST>.
#[test]
fn an_old_syn_ack_is_answered_with_a_reset_and_the_open_goes_on() {
    let mut harness = Harness::connect(plain_config());
    harness.expect_one();
    assert_eq!(harness.try_receive(SYN | ACK, 0, 77, b""), Err(DropReason::BadAck));
    let reset = harness.expect_one();
    assert_eq!((reset.header.flags, reset.sequence()), (RST, 77));
    harness.receive(SYN | ACK, 0, 1, b"");
    assert_eq!(harness.connection.state(), State::Established);
}

#[test]
fn a_bad_ack_in_syn_received_is_answered_with_a_reset() {
    let mut harness = passive();
    harness.expect_one();
    assert_eq!(harness.try_receive(ACK, 1, 9, b""), Err(DropReason::BadAck));
    let reset = harness.expect_one();
    assert_eq!((reset.header.flags, reset.sequence()), (RST, 9));
    assert_eq!(harness.connection.state(), State::SynReceived);
}

#[test]
fn an_unreachable_host_ends_an_open_but_only_for_our_own_syn() {
    let mut harness = Harness::connect(plain_config());
    harness.expect_one();
    let error = ConnectionError::HostUnreachable;
    assert!(!harness.connection.on_unreachable(error, ISS + 500));
    assert_eq!(harness.connection.state(), State::SynSent);
    assert!(harness.connection.on_unreachable(error, ISS));
    assert_eq!(harness.connection.error(), Some(error));
}

// RFC 9293, 3.9.2.2, MUST-56: TCP MUST NOT abort the connection for what may pass.
#[test]
fn an_unreachable_host_does_not_end_a_fast_open_that_the_application_has() {
    let error = ConnectionError::HostUnreachable;
    let mut harness = passive();
    harness.expect_one();
    assert!(harness.connection.on_unreachable(error, ISS));
    assert_eq!(harness.connection.state(), State::Closed, "nobody has it yet");
    let mut harness = passive();
    let syn = harness.header(SYN, 0, 0);
    let now = harness.now;
    harness.connection =
        Connection::accept_fast(parameters(plain_config()), now, &syn, None, None, &harness.pool);
    assert_eq!(harness.expect_one().header.flags, SYN | ACK);
    assert!(harness.connection.on_unreachable(error, ISS));
    assert_eq!(harness.connection.error(), None);
    harness.write(&stream(0..500));
    harness.expect_nothing();
    assert_eq!(harness.pass_to_deadline(), Duration::from_secs(1));
    assert_eq!(harness.expect_one().header.flags, SYN | ACK);
    harness.receive(ACK, 1, 1, b"");
    assert_eq!(harness.connection.state(), State::Established);
    assert_eq!(harness.take_ranges(), [(1, 500)]);
    harness.connection =
        Connection::accept_fast(parameters(plain_config()), now, &syn, None, None, &harness.pool);
    assert_eq!(harness.expect_one().header.flags, SYN | ACK);
    assert!(harness.connection.on_unreachable(error, ISS));
    harness.pass(Duration::from_secs(1_000));
    assert_eq!(harness.connection.error(), Some(error), "as Linux has it, not that it timed out");
}

// RFC 5461, 2.2: "if the connection is eventually timed out, the last received error is passed to the application";
// RFC 9293, 3.9.2.2: the information SHOULD be made available to it.
#[test]
fn an_open_connection_that_times_out_tells_why_the_peer_could_not_be_reached() {
    let (error, silence) = (ConnectionError::HostUnreachable, Duration::from_secs(10_000));
    let after = |answered: bool, sequence: u32| {
        let mut harness = Harness::established(plain_config());
        harness.write(&stream(0..500));
        assert_eq!(harness.take_ranges(), [(1, 500)]);
        let is_believed = harness.connection.on_unreachable(error, ISS + sequence);
        assert_eq!(harness.connection.state(), State::Established);
        if answered {
            harness.receive(ACK, 1, 1, b"");
        }
        harness.pass(silence);
        assert_eq!(
            harness.connection.take_soft_error(),
            None,
            "none beside the error that it ended with"
        );
        (is_believed, harness.connection.error())
    };
    assert_eq!(after(false, 1), (true, Some(error)));
    assert_eq!(after(true, 1), (true, Some(ConnectionError::TimedOut)), "it was heard since");
    assert_eq!(after(false, 501), (false, Some(ConnectionError::TimedOut)), "nothing of ours");
}

// RFC 6191; RFC 9293, 3.10.7.4.
#[test]
fn time_wait_may_be_replaced_by_a_later_syn_only() {
    let mut harness = Harness::established(plain_config());
    harness.connection.shutdown_write();
    harness.take();
    harness.receive(FIN | ACK, 1, 2, b"");
    assert_eq!(harness.connection.state(), State::TimeWait);
    let syn = |sequence: SeqNumber| TcpHeader { sequence, flags: SYN, ..TcpHeader::default() };
    assert!(harness.connection.may_be_replaced_by(harness.now, &syn(IRS + 3)));
    assert!(!harness.connection.may_be_replaced_by(harness.now, &syn(IRS + 2)));
    assert!(harness.connection.next_isn_min().is_after(ISS + 2));
}

// RFC 7323, 2.2: the window of a SYN is never scaled, nor is that of a SYN-ACK.
#[test]
fn the_window_of_a_simultaneous_open_is_not_scaled() {
    let config = Config { window_scaling: true, ..plain_config() };
    let mut harness = Harness::connect(config);
    harness.expect_one();
    harness.options.window_scale = Some(7);
    harness.receive(SYN, 0, 0, b"");
    harness.take();
    harness.window = 1_000;
    harness.receive(SYN | ACK, 0, 1, b"");
    assert_eq!(harness.connection.state(), State::Established);
    assert!(
        harness.connection.sender.sequence.window <= 60_000,
        "{}",
        harness.connection.sender.sequence.window
    );
}

#[test]
fn a_half_open_connection_times_out_however_often_its_syn_comes_again() {
    let mut harness = Harness::connect(plain_config());
    let syn = harness.header(SYN, 0, 0);
    let connection = Connection::accept(parameters(plain_config()), harness.now, &syn);
    harness = Harness::wrap(connection, harness.now);
    harness.expect_one();
    for _ in 0..400 {
        harness.pass(Duration::from_millis(500));
        let _ = harness.try_receive(SYN, 0, 0, b"");
        harness.flush();
    }
    assert_eq!(harness.connection.state(), State::Closed);
}

// RFC 7323, 4.3 lets a server follow with TS.Recent, and some do not: their SYN-ACK echoes the first SYN they had.
#[test]
fn the_echo_of_an_earlier_syn_measures_no_round_trip() {
    let measured = |of_last: bool| {
        let mut harness = Harness::connect(Config { timestamps: true, ..plain_config() });
        let mut syns = vec![harness.expect_one()];
        while syns.len() < 4 {
            harness.pass_to_deadline();
            syns.push(harness.expect_one());
        }
        harness.now += Duration::from_millis(50);
        let echoed = if of_last { syns.last() } else { syns.first() };
        let stamps = |sent: &Sent| sent.header.options.timestamps.expect("it has one");
        let echo = stamps(echoed.expect("sent")).value;
        harness.options.timestamps = Some(TcpTimestamps { value: 9, echo });
        harness.receive(SYN | ACK, 0, 1, b"");
        assert_eq!(harness.connection.state(), State::Established);
        harness.connection.smoothed_rtt()
    };
    assert_eq!(measured(true), Some(Duration::from_millis(50)));
    assert_eq!(measured(false), None);
}

// RFC 7323, 4.1 and 4.3: a peer that has had the first SYN-ACK echoes that one for as long as its ACKs are lost.
#[test]
fn the_echo_of_an_earlier_syn_ack_measures_no_round_trip() {
    let measured = |of_last: bool| {
        let timestamps = Some(TcpTimestamps { value: 8, echo: 0 });
        let config = Config { timestamps: true, ..plain_config() };
        let now = Instant::from_millis(10_000);
        let mut peer = Harness::connect(config.clone());
        peer.options = TcpOptions { timestamps, ..TcpOptions::default() };
        let syn = peer.header(SYN, 0, 0);
        let connection = Connection::accept(parameters(config), now, &syn);
        let mut harness = Harness::wrap(connection, now);
        let mut syn_acks = vec![harness.expect_one()];
        while syn_acks.len() < 4 {
            harness.pass_to_deadline();
            syn_acks.push(harness.expect_one());
        }
        harness.now += Duration::from_millis(50);
        let echoed = if of_last { syn_acks.last() } else { syn_acks.first() };
        let echo = echoed.and_then(|sent| sent.header.options.timestamps).expect("it has one");
        harness.options.timestamps = Some(TcpTimestamps { value: 9, echo: echo.value });
        harness.receive(ACK, 1, 1, b"");
        assert_eq!(harness.connection.state(), State::Established);
        harness.connection.smoothed_rtt()
    };
    assert_eq!(measured(true), Some(Duration::from_millis(50)));
    assert_eq!(measured(false), None);
}
