//! Urgent data (RFC 9293, 3.8.5; RFC 6093).

use super::harness::*;
use crate::Events;
use wire::TcpFlags;

/// Flags, pointer and length of what was sent.
fn sent(harness: &mut Harness) -> Vec<(bool, u16, usize)> {
    let brief = |one: &Sent| {
        (one.header.flags.contains(TcpFlags::URG), one.header.urgent, one.payload.len())
    };
    harness.take().iter().map(brief).collect()
}

fn receive_urgent(harness: &mut Harness, sequence: u32, pointer: u16, payload: &[u8]) {
    let mut header = harness.header(ACK | TcpFlags::URG, sequence, 1);
    header.urgent = pointer;
    harness.receive_header(&header, payload).expect("not dropped");
    harness.connection.on_batch_end(harness.now);
}

// RFC 9293, 3.8.5, MUST-62: the pointer names the byte behind the urgent data; every segment before
// it carries it, and none behind it.
#[test]
fn every_segment_up_to_the_urgent_byte_points_behind_it() {
    let mut harness = Harness::established(plain_config());
    harness.write(&stream(0..1_500));
    harness.connection.append_urgent(harness.now, chunk(b"!")).expect("room");
    harness.write(&stream(0..1_200));
    let all = sent(&mut harness);
    assert_eq!(all, [(true, 1_501, 1_000), (true, 501, 1_000), (false, 0, 701)]);
    harness.receive(ACK, 1, 1_001, b"");
    harness.take();
    harness.pass_to_deadline();
    assert_eq!(sent(&mut harness)[0], (true, 501, 1_000), "what is sent again, too");
    harness.receive(ACK, 1, 2_702, b"");
    harness.write(b"calm");
    assert_eq!(sent(&mut harness), [(false, 0, 4)]);
}

// RFC 9293, MUST-31: urgent data of any length.
#[test]
fn what_a_pointer_cannot_reach_is_pointed_towards() {
    let mut config = plain_config();
    config.send_buffer_bytes_initial = 200_000;
    let mut harness = Harness::established(config);
    harness.write(&stream(0..99_999));
    harness.connection.append_urgent(harness.now, chunk(b"!")).expect("room");
    assert!(sent(&mut harness).iter().all(|one| (one.0, one.1) == (true, u16::MAX)));
}

// RFC 6093, 4 and 6; RFC 9293, MUST-32 and MUST-33.
#[test]
fn urgent_data_stays_in_line_and_reads_stop_at_its_mark() {
    let mut harness = Harness::established(plain_config());
    receive_urgent(&mut harness, 1, 5, b"ab!!U");
    assert!(harness.connection.take_events().contains(Events::URGENT | Events::READABLE));
    harness.receive(ACK, 6, 1, b"after");
    assert_eq!(harness.connection.urgent_mark(), Some(4));
    assert_eq!(harness.connection.peek(&mut [0; 100]), 4, "as much as is read");
    assert_eq!(harness.read(100), b"ab!!", "up to the last urgent byte");
    assert_eq!(harness.connection.urgent_mark(), Some(0));
    assert_eq!(harness.read(100), b"Uafter");
    assert_eq!(harness.connection.urgent_mark(), None);
}

#[test]
fn the_mark_is_known_before_its_data_and_moves_forward_only() {
    let mut harness = Harness::established(plain_config());
    receive_urgent(&mut harness, 1, 1_000, b"abc");
    assert!(harness.connection.take_events().contains(Events::URGENT));
    assert_eq!(harness.connection.urgent_mark(), Some(999));
    // The same place again, and one before it: nothing new.
    receive_urgent(&mut harness, 4, 997, b"def");
    receive_urgent(&mut harness, 7, 10, b"ghi");
    assert!(!harness.connection.take_events().contains(Events::URGENT));
    receive_urgent(&mut harness, 10, 1_991, b"jkl");
    assert!(harness.connection.take_events().contains(Events::URGENT));
    assert_eq!(harness.connection.urgent_mark(), Some(1_999));
    let read = harness.connection.read_chunk(5).map(|chunk| chunk.bytes().to_vec());
    assert_eq!(read.as_deref(), Some(&b"abcde"[..]));
    assert_eq!(harness.connection.urgent_mark(), Some(1_994));
}

#[test]
fn a_pointer_into_what_was_read_or_to_nothing_is_no_mark() {
    let mut harness = Harness::established(plain_config());
    harness.receive(ACK, 1, 1, &stream(0..100));
    harness.read(100);
    receive_urgent(&mut harness, 101, 0, b"");
    let mut old = harness.header(ACK | TcpFlags::URG, 51, 1);
    old.urgent = 10;
    let _ = harness.receive_header(&old, &stream(50..100));
    assert_eq!(harness.connection.urgent_mark(), None);
    assert!(!harness.connection.take_events().contains(Events::URGENT));
}

#[test]
fn nagle_does_not_hold_urgent_data_back() {
    let mut harness = Harness::established(plain_config());
    harness.write(b"first");
    assert_eq!(sent(&mut harness), [(false, 0, 5)]);
    harness.write(b"second");
    harness.expect_nothing();
    harness.connection.append_urgent(harness.now, chunk(b"!")).expect("room");
    assert_eq!(sent(&mut harness), [(true, 7, 7)]);
}

// RFC 9293, 3.8.5: "as long as the urgent pointer is in advance of the data consumed": no longer.
#[test]
fn the_mark_is_gone_with_the_last_urgent_byte() {
    let mut harness = Harness::established(plain_config());
    receive_urgent(&mut harness, 1, 3, b"abU");
    assert_eq!(harness.read(100), b"ab");
    assert_eq!(harness.read(100), b"U");
    assert_eq!(harness.connection.urgent_mark(), None);
}

// RFC 9293, 3.7.4: what was urgent is acknowledged, and what comes behind it waits as it would without.
#[test]
fn nagle_holds_back_what_is_written_behind_urgent_data() {
    let mut harness = Harness::established(plain_config());
    harness.connection.append_urgent(harness.now, chunk(b"!")).expect("room");
    assert_eq!(sent(&mut harness), [(true, 1, 1)]);
    harness.receive(ACK, 1, 2, b"");
    harness.write(b"first");
    assert_eq!(sent(&mut harness), [(false, 0, 5)]);
    harness.write(b"second");
    harness.expect_nothing();
}
