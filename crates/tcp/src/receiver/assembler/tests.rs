//! The assembler against a model that keeps one byte per map entry.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

impl Piece for Vec<u8> {
    fn len(&self) -> usize {
        self.len()
    }

    fn trim_front(&mut self, count: usize) {
        self.drain(..count);
    }

    fn truncate(&mut self, len: usize) {
        self.truncate(len);
    }

    fn split_off(&mut self, at: usize) -> Self {
        self.split_off(at)
    }

    fn differs(&self, at: usize, other: &Self, other_at: usize, len: usize) -> bool {
        self[at..at + len] != other[other_at..other_at + len]
    }
}

fn assembler() -> Assembler<Vec<u8>> {
    Assembler::default()
}

impl<P: Piece> Assembler<P> {
    /// Every contiguous run as (offset from `RCV.NXT`, length), in stream order.
    fn ranges(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.runs.iter().map(|run| (self.offset(run.start), to_u32(run.end - run.start)))
    }
}

fn blocks(assembler: &Assembler<Vec<u8>>, max: usize) -> Vec<(u32, u32)> {
    assembler.sack_blocks(max).collect()
}

#[test]
fn a_filled_gap_releases_what_waited() {
    let mut assembler = assembler();
    assert_eq!(assembler.insert(3, b"def".to_vec()), Insert::Stored { bytes: 3 });
    assert_eq!(assembler.insert(6, b"gh".to_vec()), Insert::Stored { bytes: 2 });
    assert_eq!(assembler.take_ready(), None);
    assembler.advance(3);
    assert_eq!(assembler.take_ready(), Some(b"def".to_vec()));
    assert_eq!(assembler.take_ready(), Some(b"gh".to_vec()));
    assert_eq!(assembler.take_ready(), None);
    assert!(assembler.is_empty() && assembler.len_bytes() == 0);
}

#[test]
fn the_first_bytes_to_arrive_stay() {
    let mut assembler = assembler();
    assembler.insert(2, b"cd".to_vec());
    assembler.insert(6, b"gh".to_vec());
    // Spans both and is cut into three parts around them.
    assert_eq!(assembler.insert(0, b"ABCDEFGHIJ".to_vec()), Insert::Stored { bytes: 6 });
    assert_eq!(assembler.insert(1, b"xxxx".to_vec()), Insert::Duplicate);
    let mut stream = Vec::new();
    while let Some(piece) = assembler.take_ready() {
        stream.extend(piece);
    }
    assert_eq!(stream, b"ABcdEFghIJ");
}

#[test]
fn advance_trims_the_piece_it_ends_in() {
    let mut assembler = assembler();
    assembler.insert(1, b"bcd".to_vec());
    assembler.insert(10, b"k".to_vec());
    assembler.advance(3);
    assert_eq!(assembler.len_bytes(), 2);
    assert_eq!(assembler.ranges().collect::<Vec<_>>(), [(0, 1), (7, 1)]);
    assert_eq!(assembler.take_ready(), Some(b"d".to_vec()));
    assert_eq!(assembler.ranges().collect::<Vec<_>>(), [(6, 1)]);
}

// RFC 2018, 4.
#[test]
fn the_first_sack_block_holds_the_segment_that_triggered_the_ack() {
    let mut assembler = assembler();
    for offset in [10, 30, 50, 70, 90] {
        assembler.insert(offset, vec![0; 5]);
    }
    assert_eq!(blocks(&assembler, 4), [(90, 95), (70, 75), (50, 55), (30, 35)]);
    assert_eq!(blocks(&assembler, 2), [(90, 95), (70, 75)]);
    assert_eq!(blocks(&assembler, 0), []);
    // Grows an old run: the whole run comes first.
    assembler.insert(35, vec![0; 5]);
    assert_eq!(blocks(&assembler, 3), [(30, 40), (90, 95), (70, 75)]);
    // A duplicate triggers an ACK too.
    assembler.insert(10, vec![0; 5]);
    assert_eq!(blocks(&assembler, 3), [(10, 15), (30, 40), (90, 95)]);
    // Joins three runs; each is reported once.
    assembler.insert(15, vec![0; 60]);
    assert_eq!(blocks(&assembler, 4), [(10, 75), (90, 95)]);
}

#[test]
fn runs_that_nobody_mentioned_lately_still_fill_the_option() {
    let mut assembler = assembler();
    assembler.insert(10, vec![0; 5]);
    assembler.insert(30, vec![0; 5]);
    for index in 0..20 {
        assembler.insert(50 + 2 * index, vec![0; 1]);
    }
    for index in 0..20 {
        assembler.insert(51 + 2 * index, vec![0; 1]);
    }
    assert_eq!(blocks(&assembler, 4), [(50, 90), (10, 15), (30, 35)]);
}

#[test]
fn a_run_that_grows_does_not_push_the_others_out_of_order() {
    let mut assembler = assembler();
    for offset in [10, 30, 50] {
        assembler.insert(offset, vec![0; 5]);
    }
    for index in 0..20 {
        assembler.insert(70 + index, vec![0; 1]);
    }
    assert_eq!(blocks(&assembler, 3), [(70, 90), (50, 55), (30, 35)]);
}

#[test]
fn a_received_chunk_is_cut_without_copying() {
    let block = batch::Block::from(bytes::Bytes::from_static(b"abcdef"));
    let mut front = batch::Chunk::whole(block);
    let back = Piece::split_off(&mut front, 4);
    assert_eq!((front.bytes(), back.bytes()), (&b"abcd"[..], &b"ef"[..]));
    assert!(front.block().is_same(back.block()));
}

#[test]
fn pieces_and_bytes_are_bounded() {
    let mut assembler = Assembler::new(AssemblerConfig { pieces_max: 3, bytes_max: 10 });
    assert_eq!(assembler.insert(10, vec![1; 4]), Insert::Stored { bytes: 4 });
    // Only six of eight fit.
    assert_eq!(assembler.insert(20, vec![2; 8]), Insert::Stored { bytes: 6 });
    assert_eq!(assembler.insert(40, vec![3; 1]), Insert::Full);
    assert_eq!(assembler.insert(10, vec![3; 4]), Insert::Duplicate);
    assert_eq!(assembler.ranges().collect::<Vec<_>>(), [(10, 4), (20, 6)]);

    let mut assembler = Assembler::new(AssemblerConfig { pieces_max: 2, bytes_max: 1000 });
    assembler.insert(10, vec![1; 1]);
    assembler.insert(20, vec![1; 1]);
    assert_eq!(assembler.insert(30, vec![1; 1]), Insert::Full);
    // Three parts would be new.
    assert_eq!(assembler.insert(5, vec![1; 40]), Insert::Full);
    // Full does not stop the stream.
    assembler.advance(10);
    assert_eq!(assembler.take_ready(), Some(vec![1; 1]));
    assert_eq!(assembler.insert(30, vec![1; 1]), Insert::Stored { bytes: 1 });
}

#[test]
fn the_farthest_offsets_do_not_overflow() {
    let mut assembler = assembler();
    assembler.insert(u32::MAX, vec![0; 100]);
    assert_eq!(blocks(&assembler, 4), [(u32::MAX, u32::MAX)]);
    assembler.advance(u32::MAX);
    assembler.advance(50);
    assert_eq!(assembler.take_ready().map(|piece| piece.len()), Some(50));
}

#[derive(Clone, Debug)]
enum Event {
    Insert { offset: u32, len: usize },
    Advance(u32),
    Take,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (0_u32..120, 0_usize..40).prop_map(|(offset, len)| Event::Insert { offset, len }),
        1 => (0_u32..30).prop_map(Event::Advance),
        2 => Just(Event::Take),
    ]
}

/// One entry per byte, keyed by stream position.
#[derive(Default)]
struct Model {
    bytes: BTreeMap<u64, u8>,
    base: u64,
}

impl Model {
    fn insert(&mut self, offset: u32, data: &[u8], bytes_max: usize) -> Insert {
        let (mut new, mut stored) = (false, 0);
        for (index, &byte) in data.iter().enumerate() {
            let position = self.base + u64::from(offset) + index as u64;
            if self.bytes.contains_key(&position) {
                continue;
            }
            new = true;
            if self.bytes.len() == bytes_max {
                break;
            }
            self.bytes.insert(position, byte);
            stored += 1;
        }
        match (new, stored) {
            (false, _) => Insert::Duplicate,
            (true, 0) => Insert::Full,
            (true, bytes) => Insert::Stored { bytes },
        }
    }

    fn overlap(&self, offset: u32, data: &[u8]) -> Overlap {
        let mut overlap = Overlap::default();
        for (index, byte) in (0_u32..).zip(data) {
            let Some(held) = self.bytes.get(&(self.base + u64::from(offset + index))) else {
                continue;
            };
            overlap.is_conflicting |= held != byte;
            match &mut overlap.first {
                None => overlap.first = Some((offset + index, offset + index + 1)),
                Some((_, end)) if *end == offset + index => *end += 1,
                Some(_) => {}
            }
        }
        overlap
    }

    fn advance(&mut self, count: u64) {
        self.base += count;
        self.bytes = self.bytes.split_off(&self.base);
    }

    fn ranges(&self) -> Vec<(u32, u32)> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for &position in self.bytes.keys() {
            match ranges.last_mut() {
                Some((start, len)) if *start + *len == position => *len += 1,
                _ => ranges.push((position, 1)),
            }
        }
        ranges.iter().map(|&(start, len)| ((start - self.base) as u32, len as u32)).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None,
        ..ProptestConfig::default() })]

    #[test]
    fn equals_the_byte_map(events in proptest::collection::vec(event(), 0..80)) {
        const BYTES_MAX: usize = 60;
        let mut assembler =
            Assembler::new(AssemblerConfig { pieces_max: 1024, bytes_max: BYTES_MAX });
        let mut model = Model::default();
        // Every segment has its own value, so that a wrong winner of an overlap shows.
        let mut value = 0_u8;
        for event in events {
            match event {
                Event::Insert { offset, len } => {
                    // Now and then a value comes again, so that overlaps may agree.
                    value = if len % 3 == 0 { value } else { value.wrapping_add(1) };
                    let data = vec![value; len];
                    prop_assert_eq!(assembler.overlap(offset, &data), model.overlap(offset, &data));
                    let expected = model.insert(offset, &data, BYTES_MAX);
                    prop_assert_eq!(assembler.insert(offset, data), expected);
                    if matches!(expected, Insert::Stored { .. }) && expected_first_kept(&model, offset) {
                        let (start, end) = blocks(&assembler, 1)[0];
                        prop_assert!(start <= offset && offset < end);
                    }
                }
                Event::Advance(count) => {
                    assembler.advance(count);
                    model.advance(u64::from(count));
                }
                Event::Take => {
                    let expected_ready = model.bytes.contains_key(&model.base);
                    let piece = assembler.take_ready();
                    prop_assert_eq!(piece.is_some(), expected_ready);
                    let piece = piece.unwrap_or_default();
                    prop_assert_eq!(piece.is_empty(), !expected_ready);
                    for (index, byte) in piece.iter().enumerate() {
                        prop_assert_eq!(model.bytes.get(&(model.base + index as u64)), Some(byte));
                    }
                    model.advance(piece.len() as u64);
                }
            }
            let ranges = model.ranges();
            prop_assert_eq!(assembler.ranges().collect::<Vec<_>>(), ranges.clone());
            prop_assert_eq!(assembler.len_bytes(), model.bytes.len());
            let sacked = blocks(&assembler, 4);
            prop_assert_eq!(sacked.len(), ranges.len().min(4));
            for (index, &(start, end)) in sacked.iter().enumerate() {
                prop_assert!(ranges.contains(&(start, end - start)));
                prop_assert!(!sacked[..index].contains(&(start, end)));
            }
        }
    }

    #[test]
    fn bounds_hold_whatever_arrives(
        inserts in proptest::collection::vec((0_u32..200, 1_usize..30), 0..100),
        pieces_max in 0_usize..6,
    ) {
        let mut assembler = Assembler::new(AssemblerConfig { pieces_max, bytes_max: 50 });
        for (offset, len) in inserts {
            assembler.insert(offset, vec![0; len]);
            prop_assert!(assembler.pieces().count() <= pieces_max);
            prop_assert!(assembler.len_bytes() <= 50);
            let total: u32 = assembler.ranges().map(|(_, len)| len).sum();
            prop_assert_eq!(total as usize, assembler.len_bytes());
        }
    }
}

/// Whether the byte at `offset` is held (it may have been refused where room ran out).
fn expected_first_kept(model: &Model, offset: u32) -> bool {
    model.bytes.contains_key(&(model.base + u64::from(offset)))
}
