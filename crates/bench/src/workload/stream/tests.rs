use super::*;
use crate::verify::Flow;
use std::net::{TcpListener, TcpStream};

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

fn pattern(flow: Flow) -> Pattern {
    Pattern::new(5, 1, flow)
}

fn sending(amount: Amount, verified_len_bytes: u64) -> Sending {
    Sending {
        pattern: pattern(Flow::FromConnector),
        amount,
        write_len_bytes: 10_000,
        zero_copy: false,
        verified_len_bytes,
    }
}

fn receiving(verified_len_bytes: u64) -> Receiving {
    let pattern = pattern(Flow::FromConnector);
    Receiving { time: None, pattern, zero_copy: true, verified_len_bytes }
}

fn transfer(
    sending: Sending,
    receiving: Receiving,
) -> (Result<Outcome, Failure>, Result<Outcome, Failure>) {
    let (near, far) = pair();
    std::thread::scope(|scope| {
        let receiver = scope
            .spawn(move || run(&far, &Task { cpu: None, send: None, receive: Some(receiving) }));
        let sent = run(&near, &Task { cpu: None, send: Some(sending), receive: None });
        (sent, receiver.join().unwrap())
    })
}

#[test]
fn every_byte_of_a_bounded_stream_arrives() {
    for zero_copy in [false, true] {
        let sending = Sending { zero_copy, ..sending(Amount::Bytes(1_234_567), u64::MAX) };
        let (sent, received) = transfer(sending, receiving(u64::MAX));
        assert_eq!(sent.unwrap().sent_bytes, 1_234_567);
        assert_eq!(received.unwrap().received_bytes, 1_234_567);
    }
}

#[test]
fn what_one_read_brought_took_nobody_knows_how_long() {
    for (bytes, has_time) in [(100, false), (1_234_567, true)] {
        let (_, received) = transfer(sending(Amount::Bytes(bytes), u64::MAX), receiving(u64::MAX));
        let totals = Totals::of(&[received.unwrap()]);
        assert_eq!((totals.received_bytes, totals.receiving_s > 0.0), (bytes, has_time));
    }
}

#[test]
fn a_timed_stream_is_checked_up_to_its_verified_length() {
    let timed = sending(Amount::Time(Duration::from_millis(50)), 25_000);
    // The sender's pattern goes on to the end of its block, the receiver checks no further.
    let (sent, received) = transfer(timed.clone(), receiving(25_000));
    assert!(sent.unwrap().sent_bytes > 30_000);
    assert!(received.unwrap().received_between.is_some());
    let (_, received) = transfer(timed, receiving(u64::MAX));
    let sentence = received.unwrap_err().to_string();
    assert!(sentence.contains("byte 30000 of the stream"), "{sentence}");
}

#[test]
fn contents_of_another_stream_are_refused() {
    let other =
        Sending { pattern: pattern(Flow::ToConnector), ..sending(Amount::Bytes(100), u64::MAX) };
    let (_, received) = transfer(other, receiving(u64::MAX));
    assert!(received.unwrap_err().to_string().contains("byte 0 of the stream"));
}

#[test]
fn both_ways_at_once_over_several_connections() {
    let pairs: Vec<_> = (0..3).map(|_| pair()).collect();
    let (near, far): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    let plan = |connected| Plan {
        seed: 9,
        connected,
        sends: true,
        receives: true,
        amount: Amount::Bytes(900_001),
        write_len_bytes: 10_000,
        zero_copy: false,
        verified_len_bytes: u64::MAX,
    };
    let near_tasks = plan(true).tasks(&near).unwrap();
    let far_tasks = plan(false).tasks(&far).unwrap();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| run_all(&far, &far_tasks));
        for totals in [run_all(&near, &near_tasks).unwrap(), other.join().unwrap().unwrap()] {
            assert_eq!((totals.sent_bytes, totals.received_bytes), (900_001, 900_001));
            assert!(totals.receiving_s > 0.0);
        }
    });
}

#[test]
fn a_connection_that_breaks_is_a_failure() {
    let (near, far) = pair();
    drop(far);
    let task =
        Task { cpu: None, send: Some(sending(Amount::Bytes(50 << 20), u64::MAX)), receive: None };
    assert!(run(&near, &task).unwrap_err().to_string().contains("sending failed after"));
}
