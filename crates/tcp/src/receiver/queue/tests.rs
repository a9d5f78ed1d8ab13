//! What is kept, what is copied and what is announced.

use super::*;
use batch::{Block, PoolConfig};

fn queue(capacity_bytes: usize) -> (ReceiveQueue, BlockPool) {
    let mut queue = ReceiveQueue::new(capacity_bytes, AssemblerConfig::default());
    queue.on_syn(SeqNumber(u32::MAX - 10));
    (queue, BlockPool::new(PoolConfig::default()))
}

fn chunk(bytes: &'static [u8]) -> Chunk {
    let mut block = BlockPool::new(PoolConfig::default()).allocate(bytes.len()).expect("room");
    block.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
    Chunk::new(Block::clone(&block.freeze()), 0..bytes.len())
}

#[test]
fn tiny_payload_is_gathered_and_large_payload_kept() {
    let (mut queue, pool) = queue(100_000);
    for _ in 0..100 {
        assert_eq!(queue.insert(0, chunk(&[7; 50]), false, &pool), Arrival::InOrder);
    }
    assert_eq!(pool.counters().outstanding_bytes, 2 * 4_096);
    assert_eq!(queue.insert(0, chunk(&[8; 1_000]), false, &pool), Arrival::InOrder);
    assert_eq!(pool.counters().outstanding_bytes, 2 * 4_096);
    assert_eq!(queue.insert(0, chunk(&[9; 1_000]), true, &pool), Arrival::InOrder);
    assert_eq!(pool.counters().outstanding_bytes, 2 * 4_096 + 16_384);
    let mut out = [0; 8_000];
    assert_eq!(queue.read(&mut out), 7_000);
    let expected = [vec![7; 5_000], vec![8; 1_000], vec![9; 1_000]].concat();
    assert_eq!(&out[..7_000], &expected[..]);
    assert_eq!(pool.counters().outstanding_bytes, 0);
}

#[test]
fn blocks_shared_with_others_are_pinned_within_bounds() {
    for ahead in [0, 10] {
        let (mut queue, pool) = queue(300_000);
        let mut offset = ahead;
        for _ in 0..900 {
            // Other connections' frames fill the rest of the block, so it is not sparse.
            let block = pool.allocate(65_536).expect("within the pool's limit").freeze();
            let arrival = queue.insert(offset, Chunk::new(block, 0..300), false, &pool);
            assert_ne!(arrival, Arrival::Refused);
            offset += if ahead > 0 { 300 } else { 0 };
        }
        let outstanding = pool.counters().outstanding_bytes;
        assert!(outstanding < 4 * 300_000 + 900 * 1_024, "{outstanding} bytes");
        queue.insert(0, chunk(&[1; 10]), false, &pool);
        let mut out = vec![0; 300_000];
        assert_eq!(queue.read(&mut out), 900 * 300 + 10);
        assert_eq!((pool.counters().outstanding_bytes, queue.pinned_bytes), (0, 0));
    }
}

#[test]
fn what_is_let_go_of_pins_nothing() {
    let (mut queue, pool) = queue(300_000);
    let block = || pool.allocate(65_536).expect("within the pool's limit").freeze();
    queue.insert(10, Chunk::new(block(), 0..300), false, &pool);
    for _ in 0..100 {
        let arrival = queue.insert(10, Chunk::new(block(), 0..300), false, &pool);
        assert_eq!(arrival, Arrival::Duplicate);
    }
    assert_eq!(queue.ahead.as_ref().map(|ahead| ahead.pinned_bytes), Some(65_536));
    assert_eq!(queue.copied_bytes(), 0);
}

#[test]
fn a_low_pool_keeps_only_what_comes_next_and_is_read() {
    let (mut queue, _) = queue(300_000);
    let pool = BlockPool::new(PoolConfig {
        size_classes_bytes: vec![1_000],
        limit_bytes: 200_000,
        receive_reserve_bytes: 160_000,
        streams_limit_bytes: Some(usize::MAX),
        ..PoolConfig::default()
    });
    let elsewhere: Vec<_> = (0..41).map(|_| pool.allocate_receive(1_000)).collect();
    assert!(pool.is_low() && !pool.is_nearly_exhausted());
    let next = || {
        let block = pool.allocate_receive(1_000).expect("within the reserve").freeze();
        Chunk::new(block, 0..1_000)
    };
    assert_eq!(queue.insert(1_000, next(), false, &pool), Arrival::NoMemory, "it would wait");
    for _ in 0..66 {
        assert_eq!(queue.insert(0, next(), false, &pool), Arrival::InOrder);
    }
    assert_eq!(queue.insert(0, next(), false, &pool), Arrival::NoMemory, "nobody reads");
    assert_eq!(queue.read(&mut vec![0; 10_000]), 10_000);
    assert_eq!(queue.insert(0, next(), false, &pool), Arrival::InOrder);
    drop(elsewhere);
    assert_eq!(queue.insert(1_000, next(), false, &pool), Arrival::NoMemory, "still low");
    assert_eq!(queue.read(&mut vec![0; 60_000]), 57_000);
    assert_eq!(queue.insert(1_000, next(), false, &pool), Arrival::OutOfOrder);
}

/// What others hold is counted by who has them.
#[test]
fn where_much_is_unread_elsewhere_less_is_offered_and_some_segments_are_kept() {
    let (mut queue, pool) = queue(300_000);
    let limit_bytes = pool.streams_bound().limit_bytes;
    let mut elsewhere = batch::Unread::streams(&pool);
    let mut arrives = |queue: &mut ReceiveQueue, offset, left_bytes| {
        // Of which a step is charged ahead, as for what was nothing before.
        let bytes = limit_bytes - left_bytes - 65_536;
        elsewhere.recount(elsewhere.bytes(), 0);
        elsewhere.recount(0, bytes);
        let block = pool.allocate_receive(1_000).expect("room").freeze();
        queue.insert(offset, Chunk::new(block, 0..1_000), false, &pool)
    };
    assert_eq!(arrives(&mut queue, 0, limit_bytes / 2), Arrival::InOrder);
    assert!(queue.may_grow());
    assert_eq!(arrives(&mut queue, 0, limit_bytes / 2 - 1), Arrival::InOrder);
    assert!(!queue.may_grow());
    assert_eq!(queue.read(&mut [0; 1_000]), 1_000);
    assert_eq!(arrives(&mut queue, 0, 600_000), Arrival::InOrder);
    assert_eq!(queue.offered_bytes(0), 300_000);
    assert_eq!(queue.read(&mut [0; 1_000]), 1_000);
    let edge = queue.edge();
    assert_eq!(arrives(&mut queue, 0, 100_000), Arrival::InOrder);
    assert_eq!((queue.offered_bytes(0), queue.edge()), (50_000, edge));
    // It holds two blocks of 2,048, of which copies would hold 4,000 at most.
    assert_eq!(arrives(&mut queue, 1_000, 4_000), Arrival::TooMuchUnread);
    assert_eq!(arrives(&mut queue, 1_000, 4_001), Arrival::OutOfOrder);
    assert_eq!(arrives(&mut queue, 0, 0), Arrival::FilledGap);
    // The last of them is cut.
    for _ in 0..5 {
        assert_eq!(arrives(&mut queue, 0, 0), Arrival::InOrder);
    }
    assert_eq!(queue.len(), UNREAD_LEAST_BYTES);
    assert_eq!(arrives(&mut queue, 0, 0), Arrival::TooMuchUnread);
    assert_eq!([0, 7, 14].map(|shift| queue.offered_bytes(shift)), [8_192, 8_192, 32_768]);
    assert_eq!(queue.read(&mut [0; 10]), 10);
    assert_eq!(arrives(&mut queue, 0, 0), Arrival::InOrder);
    assert_eq!(queue.len(), UNREAD_LEAST_BYTES);
    assert_eq!(arrives(&mut queue, 0, limit_bytes / 2), Arrival::InOrder);
    assert!(queue.may_grow());
}

#[test]
fn what_is_held_is_counted_as_blocks_or_as_what_copies_of_it_hold() {
    let (mut queue, pool) = queue(300_000);
    let block = pool.allocate(65_536).expect("room").freeze();
    let part = |range| Chunk::new(block.clone(), range);
    queue.insert(0, part(0..1_000), false, &pool);
    assert_eq!(queue.held_bytes(), 2_000);
    queue.insert(0, part(1_000..50_000), false, &pool);
    assert_eq!(queue.held_bytes(), 65_536);
    queue.insert(10, part(50_010..51_010), false, &pool);
    assert_eq!(queue.held_bytes(), 102_000);
    queue.insert(0, part(50_000..50_010), false, &pool);
    assert_eq!(queue.held_bytes(), 102_020);
    assert_eq!(queue.read(&mut [0; 51_000]), 51_000);
    assert_eq!(queue.held_bytes(), 20);
    queue.clear();
    assert_eq!(queue.held_bytes(), 0);
}

#[test]
fn what_there_is_no_block_to_copy_to_is_refused_for_want_of_memory() {
    let (mut queue, _) = queue(1_000);
    // Nothing is kept back, so the pool is not low before it is exhausted.
    let pool = BlockPool::new(PoolConfig {
        limit_bytes: 0,
        receive_reserve_bytes: 0,
        streams_limit_bytes: Some(usize::MAX),
        ..PoolConfig::default()
    });
    assert!(!pool.is_low());
    assert_eq!(queue.insert(0, chunk(b"ab"), false, &pool), Arrival::NoMemory);
    assert_eq!(queue.insert(2, chunk(b"cd"), true, &pool), Arrival::NoMemory);
    assert_eq!(queue.insert(2, chunk(b"cd"), false, &pool), Arrival::OutOfOrder);
    assert_eq!(queue.insert(0, chunk(b"ab"), false, &pool), Arrival::NoMemory);
}

#[test]
fn a_filled_gap_hands_out_what_waited() {
    let (mut queue, pool) = queue(1_000);
    assert_eq!(queue.insert(4, chunk(b"efgh"), false, &pool), Arrival::OutOfOrder);
    assert_eq!(queue.insert(4, chunk(b"efgh"), false, &pool), Arrival::Duplicate);
    assert_eq!(queue.sack_blocks(3).as_slice(), [(queue.next() + 4, queue.next() + 8)]);
    assert_eq!(queue.insert(0, chunk(b"abcdef"), false, &pool), Arrival::FilledGap);
    let mut out = [0; 10];
    assert_eq!(queue.read(&mut out), 8);
    assert_eq!(&out[..8], b"abcdefgh");
    assert!(!queue.has_gap());
}

#[test]
fn what_waited_stays_where_the_next_bytes_overlap_it() {
    let (mut queue, pool) = queue(1_000);
    queue.insert(2, chunk(b"cd"), false, &pool);
    queue.insert(6, chunk(b"gh"), false, &pool);
    let overlap = queue.overlap(0, &chunk(b"abCDefg"));
    assert_eq!(overlap, Overlap { first: Some((2, 4)), is_conflicting: true });
    assert_eq!(queue.insert(0, chunk(b"abCDefGHij"), false, &pool), Arrival::FilledGap);
    let mut out = [0; 20];
    assert_eq!((queue.read(&mut out), &out[..10]), (10, &b"abcdefghij"[..]));
    assert!(!queue.has_gap());
}

#[test]
fn bytes_that_come_again_are_compared_with_what_was_not_read_yet() {
    let (mut queue, pool) = queue(1_000);
    let start = queue.next();
    for bytes in [&b"abc"[..], b"def", b"ghi"] {
        queue.insert(0, Chunk::whole(Block::from(bytes::Bytes::from_static(bytes))), false, &pool);
    }
    assert!(!queue.differs_from_unread(start, b"abcdefghi"));
    assert!(!queue.differs_from_unread(start + 2, b"cdefg"));
    assert!(queue.differs_from_unread(start + 2, b"cdeXg"));
    assert!(queue.differs_from_unread(start, b"X"));
    queue.read(&mut [0; 2]);
    assert!(!queue.differs_from_unread(start, b"XXc"), "read already");
    queue.on_fin();
    assert!(!queue.differs_from_unread(start + 6, b"ghi"));
    assert!(queue.differs_from_unread(start + 6, b"gXi"));
}

// RFC 9293, 3.8.6.2.1 and 3.8.6.2.2.
#[test]
fn the_window_never_moves_back_and_opens_in_steps() {
    let (mut queue, pool) = queue(4_000);
    assert_eq!(queue.window(), 4_000);
    queue.insert(0, chunk(&[1; 3_900]), false, &pool);
    assert_eq!(queue.window_to_announce(1_000, 0), 100);
    let mut out = [0; 999];
    queue.read(&mut out);
    assert_eq!(queue.window_to_announce(1_000, 0), 100, "less than a segment more");
    assert!(!queue.wants_update(1_000, 0));
    queue.read(&mut out[..1]);
    assert_eq!(queue.window_to_announce(1_000, 0), 1_100);
    assert!(!queue.wants_update(1_000, 0), "one segment is not worth an ACK of its own");
    queue.read(&mut out);
    queue.read(&mut out[..1]);
    assert!(queue.wants_update(1_000, 0));
    queue.on_announced(2_100, 0);
    assert_eq!(queue.window(), 2_100);
    queue.set_capacity(10);
    assert_eq!(queue.window_to_announce(1_000, 0), 2_100);
}

/// A sender that leaves out a byte, sends those behind it one by one, and then the one left out; and does
/// so again, until the window is full.
#[test]
fn single_bytes_ahead_of_their_turn_do_not_hold_a_block_each() {
    const CAPACITY: usize = 65_535;
    let (mut queue, pool) = queue(CAPACITY);
    let mut read = vec![0; CAPACITY];
    while queue.window() > 0 {
        for step in [1, 2] {
            for offset in (1..queue.window()).step_by(step) {
                queue.insert(offset, chunk(&[7]), true, &pool);
            }
            let held_bytes = pool.counters().outstanding_bytes as usize;
            assert!(held_bytes <= (PINNED_FACTOR_MAX + 2) * CAPACITY, "{held_bytes} bytes");
        }
        queue.insert(0, chunk(&[7]), true, &pool);
    }
    let held_bytes = pool.counters().outstanding_bytes as usize;
    assert!(held_bytes <= 2 * CAPACITY, "{held_bytes} bytes for {CAPACITY}");
    assert_eq!(queue.read(&mut read), CAPACITY);
    assert!(read.iter().all(|byte| *byte == 7));
    assert_eq!(pool.counters().outstanding_bytes, 0);
}
