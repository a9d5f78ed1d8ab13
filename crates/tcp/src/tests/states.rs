//! Every state against every kind of segment (RFC 9293, 3.10.7; RFC 5961; RFC 1337): what state it
//! leads to, and what is answered. A blind attacker sends just these.

use super::harness::{ACK, FIN, Harness, PSH, RST, SYN, Sent, parameters, plain_config};
use crate::{Connection, ConnectionError, State};
use counters::DropReason;
use time::Duration;
use wire::TcpFlags;

const STATES: [State; 9] = [
    State::SynSent,
    State::SynReceived,
    State::Established,
    State::FinWait1,
    State::FinWait2,
    State::CloseWait,
    State::Closing,
    State::LastAck,
    State::TimeWait,
];

/// A connection in a state, with RCV.NXT and SND.NXT counted from the initial numbers.
fn in_state(state: State) -> (Harness, u32, u32) {
    let config = plain_config();
    if state == State::SynSent {
        let mut harness = Harness::connect(config);
        harness.expect_one();
        return (harness, 0, 1);
    }
    if state == State::SynReceived {
        let harness = Harness::connect(config.clone());
        let syn = harness.header(SYN, 0, 0);
        let connection = Connection::accept(parameters(config), harness.now, &syn);
        let mut harness = Harness::wrap(connection, harness.now);
        harness.expect_one();
        return (harness, 1, 1);
    }
    let mut harness = Harness::established(config);
    let (mut receive_next, mut send_next) = (1, 1);
    if matches!(state, State::CloseWait | State::LastAck) {
        harness.receive(FIN | ACK, 1, 1, b"");
        receive_next = 2;
    }
    if !matches!(state, State::Established | State::CloseWait) {
        harness.connection.shutdown_write();
        harness.flush();
        send_next = 2;
    }
    if matches!(state, State::FinWait2 | State::TimeWait) {
        harness.receive(ACK, 1, 2, b"");
    }
    if matches!(state, State::Closing | State::TimeWait) {
        let acked = if state == State::TimeWait { 2 } else { 1 };
        harness.receive(FIN | ACK, 1, acked, b"");
        receive_next = 2;
    }
    harness.take();
    assert_eq!(harness.connection.state(), state);
    (harness, receive_next, send_next)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Nothing,
    /// An ACK that tells where the connection stands.
    Ack,
    SynAck,
    /// A reset with the sequence number of the segment's ACK.
    Reset,
}

fn answer_of(sent: &[Sent]) -> Answer {
    match sent.iter().map(|sent| sent.header.flags).collect::<Vec<_>>()[..] {
        [] => Answer::Nothing,
        [flags] if flags == ACK => Answer::Ack,
        [flags] if flags == SYN | ACK => Answer::SynAck,
        [flags] if flags == RST => Answer::Reset,
        ref other => panic!("unexpected answer {other:?}"),
    }
}

#[derive(Clone, Copy, Debug)]
struct Case {
    what: &'static str,
    flags: TcpFlags,
    /// Relative to RCV.NXT.
    sequence: i64,
    /// Relative to SND.NXT.
    ack: i64,
    data: &'static [u8],
}

const fn case(
    what: &'static str,
    flags: TcpFlags,
    sequence: i64,
    ack: i64,
    data: &'static [u8],
) -> Case {
    Case { what, flags, sequence, ack, data }
}

const RST_ACK: TcpFlags = TcpFlags(RST.0 | ACK.0);
const SYN_ACK: TcpFlags = TcpFlags(SYN.0 | ACK.0);
const DATA: TcpFlags = TcpFlags(PSH.0 | ACK.0);
const XMAS: TcpFlags = TcpFlags(SYN.0 | FIN.0 | RST.0 | PSH.0 | ACK.0 | TcpFlags::URG.0);

/// Beyond the receive window, which is 20,000.
const BEYOND: i64 = 30_000;
/// Beyond MAX.SND.WND, which is 60,000.
const LONG_AGO: i64 = -70_000;

/// What a state makes of a case: the next state, and the answer.
fn expected(state: State, case: &Case) -> (State, Answer) {
    use State::{Closed, SynReceived, SynSent, TimeWait};
    let stays = |answer| (state, answer);
    if state == SynSent {
        return match case.what {
            // 3.10.7.3: an unacceptable ACK is answered with a reset, but not a reset.
            "ACK of the future" | "ACK of long ago" | "data with ACK of the future" => {
                stays(Answer::Reset)
            }
            "RST without ACK" | "RST within the window" | "RST beyond the window" => {
                stays(Answer::Nothing)
            }
            "RST exact" | "every flag" => (Closed, Answer::Nothing),
            "SYN exact" | "SYN within the window" | "SYN beyond the window" => {
                (SynReceived, Answer::SynAck)
            }
            "SYN-ACK" => (State::Established, Answer::Ack),
            // Without RST and SYN: dropped.
            _ => stays(Answer::Nothing),
        };
    }
    match case.what {
        // RFC 1337; RFC 5961, 3.2: exact is obeyed, within the window challenged, else dropped.
        "RST exact" | "RST without ACK" | "every flag" if state == TimeWait => {
            stays(Answer::Nothing)
        }
        "RST exact" | "RST without ACK" | "every flag" => (Closed, Answer::Nothing),
        "RST within the window" if state == TimeWait => stays(Answer::Nothing),
        "RST within the window" => stays(Answer::Ack),
        "RST beyond the window" => stays(Answer::Nothing),
        // RFC 5961, 4.2: a SYN is challenged whatever its sequence number.
        "SYN exact" | "SYN within the window" | "SYN beyond the window" | "SYN-ACK" => {
            stays(Answer::Ack)
        }
        // RFC 5961, 5.2; 3.10.7.4: in SYN-RECEIVED an unacceptable ACK is answered with a reset.
        "ACK of the future" | "ACK of long ago" | "data with ACK of the future"
            if state == SynReceived =>
        {
            stays(Answer::Reset)
        }
        "ACK of the future" | "ACK of long ago" | "data with ACK of the future" => {
            stays(Answer::Ack)
        }
        // 3.10.7.4, fifth: without ACK a segment is dropped.
        "data without ACK" => stays(Answer::Nothing),
        // 3.10.7.4, first: what is outside the window is answered with an ACK.
        "data beyond the window" | "data of long ago" | "ACK beyond the window" => {
            stays(Answer::Ack)
        }
        other => unreachable!("{other}"),
    }
}

#[test]
fn every_state_meets_every_segment_as_the_rfcs_say() {
    let cases = [
        case("RST exact", RST_ACK, 0, 0, b""),
        case("RST without ACK", RST, 0, 0, b""),
        case("RST within the window", RST_ACK, 100, -50_000, b""),
        case("RST beyond the window", RST_ACK, BEYOND, -50_000, b""),
        case("SYN exact", SYN, 0, 0, b""),
        case("SYN within the window", SYN, 10, 0, b""),
        case("SYN beyond the window", SYN, BEYOND, 0, b""),
        case("SYN-ACK", SYN_ACK, 10, 0, b""),
        case("every flag", XMAS, 0, 0, b""),
        case("ACK of the future", ACK, 0, 1_000, b""),
        case("ACK of long ago", ACK, 0, LONG_AGO, b""),
        case("ACK beyond the window", ACK, BEYOND, 0, b""),
        case("data without ACK", PSH, 0, 0, b"blind"),
        case("data with ACK of the future", DATA, 0, 1_000, b"blind"),
        case("data beyond the window", DATA, BEYOND, 0, b"blind"),
        case("data of long ago", DATA, -30_000, 0, b"blind"),
    ];
    for state in STATES {
        for case in &cases {
            let (mut harness, receive_next, send_next) = in_state(state);
            let at = |base: u32, offset: i64| base.wrapping_add(offset as u32);
            let (sequence, ack) = (at(receive_next, case.sequence), at(send_next, case.ack));
            let outcome = harness.try_receive(case.flags, sequence, ack, case.data);
            let sent = harness.take();
            let got = (harness.connection.state(), answer_of(&sent));
            assert_eq!(got, expected(state, case), "{} in {state:?} ({outcome:?})", case.what);
            assert_eq!(harness.connection.readable_len(), 0, "{} in {state:?}", case.what);
            if got.1 == Answer::Reset {
                assert_eq!(sent[0].sequence(), ack);
            }
            if got.1 == Answer::Ack && state != State::SynSent {
                let numbers = (sent[0].sequence(), sent[0].acknowledgment());
                assert_eq!(numbers, (send_next, receive_next), "{} in {state:?}", case.what);
            }
        }
    }
}

// RFC 9293, 3.10.7.4, eighth: what a FIN does in each state.
#[test]
fn a_fin_moves_each_state_where_it_must() {
    for (state, acks_fin, next) in [
        (State::SynReceived, false, State::CloseWait),
        (State::Established, false, State::CloseWait),
        (State::FinWait1, false, State::Closing),
        (State::FinWait1, true, State::TimeWait),
        (State::FinWait2, true, State::TimeWait),
        (State::CloseWait, false, State::CloseWait),
        (State::Closing, true, State::TimeWait),
        (State::LastAck, true, State::Closed),
        (State::TimeWait, true, State::TimeWait),
    ] {
        let (mut harness, receive_next, send_next) = in_state(state);
        let fin_came = matches!(
            harness.connection.state(),
            State::CloseWait | State::Closing | State::LastAck | State::TimeWait
        );
        let sequence = if fin_came { receive_next - 1 } else { receive_next };
        let ack = if acks_fin || send_next == 1 { send_next } else { send_next - 1 };
        let _ = harness.try_receive(FIN | ACK, sequence, ack, b"");
        if fin_came && matches!(state, State::Closing | State::LastAck) {
            // The FIN is old and only asks for an ACK again; the ACK of ours comes by itself.
            let _ = harness.try_receive(ACK, receive_next, ack, b"");
        }
        assert_eq!(harness.connection.state(), next, "{state:?} {acks_fin}");
    }
}

// The errors an application sees are those of POSIX: a reset while actively opening is a refusal, one that
// only cuts the goodbye short is none.
#[test]
fn a_reset_is_an_error_where_something_is_lost() {
    for state in STATES {
        let (mut harness, receive_next, send_next) = in_state(state);
        let _ = harness.try_receive(RST | ACK, receive_next, send_next, b"");
        let error = match state {
            State::SynSent => Some(ConnectionError::Refused),
            State::Closing | State::LastAck | State::TimeWait => None,
            State::CloseWait => Some(ConnectionError::BrokenPipe),
            _ => Some(ConnectionError::Reset),
        };
        assert_eq!(harness.connection.error(), error, "{state:?}");
    }
    // RFC 9293, 3.10.7.4: in SYN-RECEIVED it is a refusal to who opened actively, and met the peer's SYN.
    let (mut harness, ..) = in_state(State::SynSent);
    let _ = harness.try_receive(SYN, 0, 0, b"");
    assert_eq!(harness.connection.state(), State::SynReceived);
    let _ = harness.try_receive(RST | ACK, 1, 1, b"");
    assert_eq!(harness.connection.error(), Some(ConnectionError::Refused));
}

// What was sent and not acknowledged is lost, whatever the application did since.
#[test]
fn a_reset_is_an_error_behind_the_end_of_both_streams_where_data_is_lost() {
    for (closing, acked, error) in [
        (State::LastAck, 1, Some(ConnectionError::Reset)),
        (State::Closing, 1, Some(ConnectionError::Reset)),
        (State::LastAck, 101, None),
        (State::Closing, 101, None),
    ] {
        let (mut harness, ..) = in_state(State::Established);
        harness.write(&[7; 100]);
        harness.connection.shutdown_write();
        harness.take();
        harness.receive(FIN | ACK, 1, acked, b"");
        if closing == State::LastAck {
            let (mut other, ..) = in_state(State::CloseWait);
            other.write(&[7; 100]);
            other.connection.shutdown_write();
            other.take();
            other.receive(ACK, 2, acked, b"");
            harness = other;
        }
        assert_eq!(harness.connection.state(), closing);
        harness.receive(RST | ACK, 2, acked, b"");
        assert_eq!(harness.connection.error(), error, "{closing:?} {acked}");
        assert_eq!(harness.read(10), b"", "the peer's stream has ended in order");
    }
}

// The peer's stream ended before the reset: who reads gets all of it, and its end.
#[test]
fn a_reset_behind_the_end_of_the_stream_is_no_error_to_who_reads() {
    let (mut harness, ..) = in_state(State::Established);
    harness.receive(FIN | ACK, 1, 1, b"all");
    harness.receive(RST | ACK, 5, 1, b"");
    assert_eq!(harness.connection.error(), Some(ConnectionError::BrokenPipe));
    assert_eq!((harness.read(10), harness.read(10)), (b"all".to_vec(), Vec::new()));
    assert!(harness.connection.at_end_of_stream());
}

// RFC 5961, 4.2: a SYN that reaches from before the window into it.
#[test]
fn a_syn_in_front_of_new_data_is_challenged_and_nothing_of_it_taken() {
    for state in STATES.into_iter().skip(2) {
        let (mut harness, receive_next, send_next) = in_state(state);
        let outcome = harness.try_receive(SYN | ACK, receive_next - 1, send_next, b"data");
        assert_eq!(outcome, Err(DropReason::BadState), "{state:?}");
        assert_eq!(harness.connection.readable_len(), 0);
        assert_eq!(harness.expect_one().header.flags, ACK);
    }
}

// RFC 5961, 7: an attacker who knows the four-tuple gets ten answers a second, not more.
#[test]
fn challenges_are_limited_in_every_state() {
    for state in STATES.into_iter().skip(2) {
        let (mut harness, receive_next, send_next) = in_state(state);
        let mut answers = 0;
        for _ in 0..100 {
            let _ = harness.try_receive(SYN, receive_next + 5, send_next, b"");
            answers += harness.take().len();
        }
        assert_eq!(answers, 10, "{state:?}");
        harness.pass(Duration::from_millis(1_100));
        let _ = harness.try_receive(SYN, receive_next + 5, send_next, b"");
        let answered = harness.take().iter().any(|sent| sent.header.flags == ACK);
        assert!(answered, "{state:?}");
    }
}

// RFC 9293, 3.5, figure 8, and 3.10.7.3 for a host that meets itself: SYN meets SYN.
#[test]
fn a_simultaneous_open_and_a_self_connection_succeed() {
    let (mut harness, ..) = in_state(State::SynSent);
    let _ = harness.try_receive(SYN, 0, 0, b"");
    assert_eq!(harness.connection.state(), State::SynReceived);
    let syn_ack = harness.expect_one();
    assert_eq!((syn_ack.header.flags, syn_ack.sequence()), (SYN | ACK, 0));
    let _ = harness.try_receive(SYN | ACK, 0, 1, b"");
    assert_eq!(harness.connection.state(), State::Established);

    // The same ports at both ends: every segment it sends comes back to it.
    let (mut harness, ..) = in_state(State::SynSent);
    let mut own = crate::config::Parameters { ..parameters(plain_config()) };
    own.remote_port = own.local_port;
    harness.connection = Connection::connect(own, harness.now);
    for _ in 0..6 {
        for sent in harness.take() {
            let _ = harness.receive_header(&sent.header, &sent.payload);
        }
    }
    assert_eq!(harness.connection.state(), State::Established);
}

// RFC 9293, 3.5.1: the peer crashed and opens again; our side, which knows nothing, finds out.
#[test]
fn a_half_open_connection_is_found_out() {
    let (mut harness, ..) = in_state(State::Established);
    // Figure 9, line 3 and 4: a SYN out of nowhere is answered with where we stand.
    let _ = harness.try_receive(SYN, 400_000, 0, b"");
    let ack = harness.expect_one();
    assert_eq!((ack.header.flags, ack.acknowledgment()), (ACK, 1));
    // Line 5: the peer, in SYN-SENT, resets by that ACK; exact, as it came from our RCV.NXT.
    let _ = harness.try_receive(RST, ack.acknowledgment(), 0, b"");
    assert_eq!(harness.connection.error(), Some(ConnectionError::Reset));
}
