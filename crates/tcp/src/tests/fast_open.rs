//! What a connection makes of data in its SYN and of the answer to it (RFC 7413).

use super::harness::*;
use crate::{Connection, FastOpenOutcome};
use wire::{TcpFastOpen, TcpOptions};

fn cookie(byte: u8) -> TcpFastOpen {
    TcpFastOpen::new(&[byte; 8]).expect("a cookie's length")
}

/// About to send a SYN with data, and with this option.
fn opening(option: Option<TcpFastOpen>) -> Harness {
    let mut harness = Harness::connect(plain_config());
    harness.connection.offer_fast_open(option, MSS as u16);
    harness.write(b"question");
    harness
}

/// What was learned of a SYN-ACK that acknowledges so much and brings this.
fn learned(mut harness: Harness, ack: u32, brings: Option<TcpFastOpen>) -> FastOpenOutcome {
    harness.options = TcpOptions { fast_open: brings, ..TcpOptions::default() };
    harness.receive(SYN | ACK, 0, ack, b"");
    harness.connection.take_fast_open_outcome().expect("it is open")
}

// RFC 7413, 4.1.3: what is remembered of a path is that it drops SYNs with data. One of which the data was taken, or whose
// request was heard, came through, however late the answer is.
#[test]
fn a_late_answer_to_the_first_syn_speaks_for_the_path() {
    for (ack, brings, failed) in [(9, None, false), (1, Some(cookie(2)), false), (1, None, true)] {
        let mut harness = opening(Some(cookie(1)));
        assert_eq!(harness.expect_one().payload, b"question");
        harness.pass_to_deadline();
        assert_eq!(harness.expect_one().payload, b"");
        let outcome = learned(harness, ack, brings);
        assert_eq!((outcome.failed, outcome.cookie), (failed, brings), "{ack}");
    }
}

// RFC 7413, 4.1.2: a cookie is the answer to a request, or takes the place of the one that was shown.
#[test]
fn a_cookie_that_nobody_asked_for_is_not_learned() {
    for (option, is_learned) in [(None, false), (Some(cookie(1)), true)] {
        let mut harness = opening(option);
        assert_eq!(harness.expect_one().header.options.fast_open, option);
        let outcome = learned(harness, 1, Some(cookie(2)));
        assert_eq!(outcome.cookie.is_some(), is_learned, "{option:?}");
    }
}

// RFC 7413, 4.2.2: the SYN-ACK acknowledges what of the data is taken; RFC 9293, 3.10.7.4: no more than the window.
#[test]
fn data_of_a_syn_beyond_the_window_is_not_taken() {
    let peer = Harness::connect(plain_config());
    let window = plain_config().receive_buffer_bytes;
    let (parameters, data) = (parameters(plain_config()), chunk(&stream(0..window + 1_000)));
    let syn = peer.header(SYN, 0, 0);
    let connection =
        Connection::accept_fast(parameters, peer.now, &syn, Some(data), None, &peer.pool);
    let mut harness = Harness::wrap(connection, peer.now);
    let reply = harness.expect_one();
    assert_eq!((reply.header.flags, reply.acknowledgment()), (SYN | ACK, 1 + window as u32));
    assert_eq!(harness.read(window + 1_000), stream(0..window));
}
