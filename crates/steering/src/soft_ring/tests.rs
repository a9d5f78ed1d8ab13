use super::*;
use crate::spread::Home;
use batch::{Block, Frame, ReceivedChecksum};
use bytes::Bytes;
use proptest::prelude::*;

/// A lane of frames: each its flow, its number in the flow, and a length.
fn lane(frames: &[(u32, u32, usize)]) -> Lane {
    let mut batch = ReceiveBatch::new();
    for (flow, number, len) in frames {
        let mut bytes = vec![0; *len];
        bytes[..4].copy_from_slice(&flow.to_be_bytes());
        bytes[4..8].copy_from_slice(&number.to_be_bytes());
        let block = batch.add_block(Block::from(Bytes::from(bytes)));
        let (len, checksum) = (*len as u32, ReceivedChecksum::Verified);
        assert!(batch.push_frame(Frame { block, offset: 0, len, checksum, segmented: None }));
    }
    let mut lane = Lane::new(Home::FIRST);
    for (index, (flow, ..)) in frames.iter().enumerate() {
        lane.share_frame(&batch, index, *flow);
    }
    lane
}

fn marks(batch: &ReceiveBatch) -> Vec<(u32, u32)> {
    let word = |bytes: &[u8], at: usize| {
        u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
    };
    (0..batch.len()).map(|index| batch.bytes(index)).map(|it| (word(it, 0), word(it, 4))).collect()
}

fn ring(frames_max: usize, bytes_max: usize) -> SoftRing {
    SoftRing::new(SoftRingConfig { frames_max, bytes_max })
}

fn drained(ring: &SoftRing) -> Vec<(u32, u32)> {
    let mut batch = ReceiveBatch::new();
    ring.drain(usize::MAX, &mut batch);
    marks(&batch)
}

#[test]
fn short_batches_come_out_as_one_and_long_ones_in_parts() {
    let ring = ring(64, 1 << 20);
    for start in [0, 3, 6] {
        let frames: Vec<_> = (start..start + 3).map(|number| (1, number, 60)).collect();
        assert_eq!(
            ring.push(&mut lane(&frames)),
            Pushed { queued: start as usize + 3, dropped: 0 }
        );
    }
    let mut batch = ReceiveBatch::new();
    assert_eq!(ring.drain(4, &mut batch), Drained { frames: 4, more: true });
    assert_eq!(marks(&batch), [(1, 0), (1, 1), (1, 2), (1, 3)]);
    assert_eq!(ring.drain(4, &mut batch), Drained { frames: 0, more: true });
    batch.clear();
    assert_eq!(ring.drain(1, &mut batch), Drained { frames: 1, more: true });
    assert_eq!(ring.drain(9, &mut batch), Drained { frames: 4, more: false });
    assert_eq!(marks(&batch), [(1, 4), (1, 5), (1, 6), (1, 7), (1, 8)]);
    assert!(ring.is_empty());
    let counters = ring.counters();
    assert_eq!((counters.soft_ring_frames, counters.soft_ring_drained_frames), (9, 9));
    assert_eq!((ring.batch_sizes().batches_of_3_to_4, ring.batch_sizes().batches_of_1), (2, 1));
}

#[test]
fn one_flow_gets_half_and_others_still_come_in() {
    let ring = ring(100, 1 << 20);
    let flood: Vec<_> = (0..500).map(|number| (7, number, 60)).collect();
    assert_eq!(ring.push(&mut lane(&flood)), Pushed { queued: 50, dropped: 450 });
    // The flood goes on; ten others send two frames each.
    for other in 10..20 {
        assert_eq!(ring.push(&mut lane(&[(7, 1_000, 60)])).dropped, 1);
        assert_eq!(ring.push(&mut lane(&[(other, 0, 60), (other, 1, 60)])).dropped, 0);
    }
    let marks = drained(&ring);
    assert_eq!(marks.len(), 70);
    for other in 10..20 {
        assert_eq!(marks.iter().filter(|(flow, _)| *flow == other).count(), 2);
    }
    assert_eq!(ring.drops().count(DropReason::SoftRingShare), 460);
    assert_eq!(ring.counters().soft_ring_dropped_share, 460);
    // What the flood held is free again.
    assert_eq!(ring.push(&mut lane(&flood)).dropped, 450);
}

#[test]
fn bytes_are_bounded_as_frames_are() {
    let ring = ring(1_000, 100_000);
    let large: Vec<_> = (0..20).map(|number| (1, number, 10_000)).collect();
    assert_eq!(ring.push(&mut lane(&large)).queued, 5);
    assert_eq!(ring.push(&mut lane(&[(2, 0, 60_000)])).dropped, 1);
    assert_eq!(ring.drops().count(DropReason::SoftRingFull), 1);
    assert_eq!(ring.push(&mut lane(&[(2, 1, 40_000)])).dropped, 0);
    assert_eq!(drained(&ring).last(), Some(&(2, 1)));
}

#[test]
fn draining_lets_go_of_every_block() {
    let bytes = Bytes::from(vec![0; 600]);
    let mut batch = ReceiveBatch::new();
    let block = batch.add_block(Block::from(bytes.clone()));
    for offset in [0, 60, 120] {
        let checksum = ReceivedChecksum::Verified;
        assert!(batch.push_frame(Frame { block, offset, len: 60, checksum, segmented: None }));
    }
    let ring = ring(4, 1 << 20);
    let mut lane = Lane::new(Home::FIRST);
    (0..3).for_each(|index| lane.share_frame(&batch, index, 1));
    batch.clear();
    assert!(!bytes.is_unique());
    // Two of three come in; all hold the block.
    assert_eq!(lane.push_to(&ring), Pushed { queued: 2, dropped: 1 });
    let mut out = ReceiveBatch::new();
    ring.drain(1, &mut out);
    out.clear();
    assert!(!bytes.is_unique());
    ring.drain(9, &mut out);
    out.clear();
    assert!(ring.is_empty() && bytes.is_unique());
    assert_eq!(ring.drain(9, &mut out), Drained::default());
    // A batch of which nothing comes in leaves nothing behind.
    let full = SoftRing::new(SoftRingConfig { frames_max: 0, bytes_max: 0 });
    let mut lane = self::lane(&[(1, 1, 60)]);
    assert_eq!(lane.push_to(&full), Pushed { queued: 0, dropped: 1 });
    assert!(lane.is_empty() && full.is_empty());
}

proptest! {
    /// Any order of pushing and draining: what comes out is what came in, in order, within bounds, and
    /// the counts agree.
    #[test]
    fn nothing_is_lost_uncounted_or_reordered(
        steps in prop::collection::vec((0_usize..3, 0_usize..12, 0_u32..4), 1..80),
        frames_max in 2_usize..40,
        bytes_max in 200_usize..4_000,
    ) {
        let ring = ring(frames_max, bytes_max);
        let mut numbers = [0; 4];
        let (mut pushed, mut dropped, mut out) = (0, 0, Vec::new());
        for (action, count, flow) in steps {
            if action > 0 {
                let frames: Vec<_> = (0..count as u32).map(|step| {
                    let flow = (flow + step % 2) % 4;
                    numbers[flow as usize] += 1;
                    (flow, numbers[flow as usize], 60 + 10 * step as usize)
                }).collect();
                pushed += count;
                dropped += ring.push(&mut lane(&frames)).dropped;
            } else {
                let mut batch = ReceiveBatch::new();
                let drained = ring.drain(count, &mut batch);
                prop_assert_eq!(drained.frames, batch.len());
                prop_assert!(batch.len() <= count);
                prop_assert_eq!(drained.more, !ring.is_empty());
                out.extend(marks(&batch));
            }
            prop_assert!(ring.depth() <= frames_max);
            prop_assert!(ring.lock().shares.bytes() <= bytes_max);
        }
        out.extend(drained(&ring));
        prop_assert_eq!(out.len() + dropped, pushed);
        for flow in 0..4 {
            let numbers: Vec<_> = out.iter().filter(|mark| mark.0 == flow).collect();
            prop_assert!(numbers.is_sorted());
        }
        let queue = ring.lock();
        prop_assert!(queue.shares.is_empty());
        prop_assert_eq!(queue.drops.total(), dropped as u64);
    }
}
