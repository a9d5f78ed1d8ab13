//! A device that takes few blocks in a batch, fewer than a segment may lie in.

use super::harness::*;
use batch::Limits;

/// Three writes, each in a block of its own, of which segments do not begin where those begin.
fn written(blocks: usize) -> Harness {
    let mut harness = Harness::established(plain_config());
    harness.out.set_limits(Limits { blocks, ..Limits::default() });
    for at in 0..3 {
        harness.write(&stream(at * 1_100..(at + 1) * 1_100));
    }
    harness
}

#[test]
fn segments_are_whole_where_they_lie_in_more_blocks_than_the_device_takes() {
    for blocks in [1, 2, 64] {
        let sent = written(blocks).take();
        let ranges: Vec<_> = sent.iter().map(|one| (one.sequence(), one.payload.len())).collect();
        assert_eq!(ranges, [(1, 1_000), (1_001, 1_000), (2_001, 1_000), (3_001, 300)]);
        let bytes: Vec<u8> = sent.into_iter().flat_map(|one| one.payload).collect();
        assert_eq!(bytes, stream(0..3_300), "{blocks} blocks");
    }
}

#[test]
fn only_what_no_batch_could_hold_is_copied() {
    let mut harness = written(2);
    harness.connection.poll_transmit(harness.now, &mut harness.out);
    assert_eq!((harness.out.len(), harness.out.copied_bytes()), (2, 0));
}

#[test]
fn what_is_sent_again_is_no_exception() {
    let mut harness = written(1);
    harness.take();
    harness.receive(ACK, 1, 1_001, b"");
    harness.pass_to_deadline();
    assert_eq!(harness.take_ranges(), [(1_001, 1_000)]);
    assert!(harness.connection.poll_timeout().is_some(), "the timer runs");
}

#[test]
fn a_segment_in_more_pieces_than_it_may_have_is_shorter_and_copied() {
    let mut harness = Harness::established(plain_config());
    harness.out.set_limits(Limits { blocks: 3, ..Limits::default() });
    for at in 0..20 {
        harness.write(&stream(at * 50..(at + 1) * 50));
    }
    let brief = |one: Sent| (one.header.flags, one.payload);
    let sent: Vec<_> = harness.take().into_iter().map(brief).collect();
    assert_eq!(sent, [(ACK, stream(0..800)), (ACK | PSH, stream(800..1_000))]);
}
