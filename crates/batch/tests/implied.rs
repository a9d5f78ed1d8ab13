//! Packets whose headers nobody wrote are the same, however one looks at them, as if they had been
//! written one by one; whatever else is done to the batch in between.

use batch::{Attributes, Block, Checksum, HeaderLayout, Limits, Multidata};
use bytes::Bytes;
use proptest::prelude::*;

const TRANSPORT_LEN: usize = 24;
const NETWORK_LEN: usize = 20;
const LINK_LEN: usize = 14;
const SEQUENCE: usize = 4;
const IDENTIFICATION: usize = 4;
const HEADER_CHECKSUM: usize = 10;
const BLOCK_LEN: usize = 9_000;

/// What is done to two batches: to one whose headers are all written, and to one where a run has one.
#[derive(Clone, Debug)]
enum Step {
    /// A run of so many packets of so many bytes, in so many calls behind the first.
    Run { packets: usize, len: usize, calls: usize, sequence: u32, identification: u16 },
    /// A byte of a packet's headers is changed, in that packet only.
    Change { packet: usize, byte: usize },
    /// All packets from there on are forgotten.
    Truncate { packet: usize },
    /// Headers are written that were not.
    Write { packet: usize, count: usize },
    /// Somebody looks at a packet.
    Look { packet: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let run = (1..40_usize, 1..300_usize, 1..4_usize, any::<u32>(), any::<u16>()).prop_map(
        |(packets, len, calls, sequence, identification)| Step::Run {
            packets,
            len,
            calls,
            sequence,
            identification,
        },
    );
    let step = prop_oneof![
        3 => run,
        2 => (0..80_usize, 0..58_usize).prop_map(|(packet, byte)| Step::Change { packet, byte }),
        1 => (0..80_usize).prop_map(|packet| Step::Truncate { packet }),
        1 => (0..80_usize, 0..9_usize).prop_map(|(packet, count)| Step::Write { packet, count }),
        3 => (0..80_usize).prop_map(|packet| Step::Look { packet }),
    ];
    prop::collection::vec(step, 1..12)
}

fn block() -> Block {
    Block::from(Bytes::from((0..BLOCK_LEN).map(|at| (at * 7) as u8).collect::<Vec<_>>()))
}

fn empty() -> Multidata {
    let limits = Limits { packets: 500, blocks: 64, payload_bytes: 1 << 20 };
    Multidata::new(HeaderLayout::default(), limits)
}

fn push(batch: &mut Multidata, block: &Block, offset: usize, len: usize, sequence: u32) {
    let checksum = Checksum::Partial { offset: 16 };
    let attributes = Attributes { run: 1, checksum, ..Attributes::default() };
    let header = batch.push_packet(TRANSPORT_LEN, attributes).expect("room");
    header.fill(0x5a);
    header[SEQUENCE..SEQUENCE + 4].copy_from_slice(&sequence.to_be_bytes());
    assert!(batch.append_span(block, offset, len));
}

fn stamp(batch: &mut Multidata, index: usize, identification: u16) {
    let (headers, _) = batch.prepend_network(index, NETWORK_LEN).expect("headroom");
    let network = &mut headers[..NETWORK_LEN];
    network.fill(0x33);
    network[IDENTIFICATION..IDENTIFICATION + 2].copy_from_slice(&identification.to_be_bytes());
    network[HEADER_CHECKSUM..HEADER_CHECKSUM + 2].fill(0);
    let checksum = !checksum::sum(network);
    network[HEADER_CHECKSUM..HEADER_CHECKSUM + 2].copy_from_slice(&checksum.to_be_bytes());
    batch.prepend(index, LINK_LEN).expect("headroom").fill(0xee);
}

fn push_run(written: &mut Multidata, implied: &mut Multidata, block: &Block, step: &Step) {
    let Step::Run { packets, len, calls, sequence, identification } = *step else { return };
    let (first, packets) = (written.len(), packets.min(BLOCK_LEN / len));
    for number in 0..packets {
        let sequence = sequence.wrapping_add((number * len) as u32);
        push(written, block, number * len, len, sequence);
        stamp(written, first + number, identification.wrapping_add(number as u16));
    }
    push(implied, block, 0, len, sequence);
    let mut pushed = 1;
    for call in 0..calls {
        let count = (packets - pushed).div_ceil(calls - call);
        let got = implied.push_implied(count, SEQUENCE as u8, (block, pushed * len));
        assert_eq!(got, count, "there is room");
        pushed += got;
    }
    stamp(implied, first, identification);
    implied.count_identification(first, IDENTIFICATION as u8, HEADER_CHECKSUM as u8);
    assert_eq!(implied.implied_behind(first), packets - 1);
}

fn assert_same(written: &Multidata, implied: &Multidata, index: usize) {
    let (wanted, packet) = (written.packet(index), implied.packet(index));
    let (Some(wanted), Some(packet)) = (wanted, packet) else {
        return assert!(wanted.is_none() && packet.is_none());
    };
    let (mut in_scratch, mut whole) = ([0; 64], vec![0; wanted.len()]);
    assert_eq!(packet.header_in(&mut in_scratch), Some(wanted.header()));
    assert_eq!(packet.copy_to(&mut whole), Some(wanted.len()));
    assert_eq!(whole, [wanted.header(), &wanted.payload().collect::<Vec<_>>().concat()].concat());
    assert_eq!(packet.header(), wanted.header());
    assert_eq!(packet.attributes(), wanted.attributes());
    assert_eq!(packet.link_header_len(), wanted.link_header_len());
    assert_eq!(packet.transport_offset(), wanted.transport_offset());
    assert_eq!(packet.payload_len(), wanted.payload_len());
}

proptest! {
    #[test]
    fn a_header_that_nobody_wrote_is_the_one_that_would_have_been_written(steps in steps()) {
        let block = block();
        let (mut written, mut implied) = (empty(), empty());
        for step in &steps {
            match *step {
                Step::Run { .. } => push_run(&mut written, &mut implied, &block, step),
                Step::Change { packet, byte } => {
                    for batch in [&mut written, &mut implied] {
                        if let Some(header) = batch.header_mut(packet) {
                            header[byte] ^= 0x10;
                        }
                    }
                }
                Step::Truncate { packet } => {
                    written.truncate(packet);
                    implied.truncate(packet);
                }
                Step::Write { packet, count } => implied.write_headers(packet..packet + count),
                Step::Look { packet } => assert_same(&written, &implied, packet),
            }
            prop_assert_eq!(written.len(), implied.len());
            prop_assert_eq!(written.payload_bytes(), implied.payload_bytes());
        }
        (0..=written.len()).for_each(|index| assert_same(&written, &implied, index));
        let runs = |batch: &Multidata| batch.runs(0).collect::<Vec<_>>();
        prop_assert_eq!(runs(&written), runs(&implied));
        // A front is the batch, truncated.
        let mut front = Multidata::default();
        for count in (0..=implied.len() + 1).rev() {
            front.set_front(&implied, count);
            written.truncate(count);
            prop_assert_eq!(front.len(), written.len());
            prop_assert_eq!(front.payload_bytes(), written.payload_bytes());
            (0..=front.len()).for_each(|index| assert_same(&written, &front, index));
            prop_assert_eq!(runs(&front), runs(&written));
            let last = front.len().saturating_sub(1);
            prop_assert!(front.implied_behind(last) == 0, "nothing is implied behind the end");
        }
    }
}

#[test]
fn headers_are_made_when_somebody_looks_and_not_before() {
    let (block, mut batch) = (block(), empty());
    push(&mut batch, &block, 0, 100, 1);
    assert_eq!(batch.push_implied(200, SEQUENCE as u8, (&block, 100)), 89, "to the block's end");
    stamp(&mut batch, 0, 1);
    let mut whole = [0; 200];
    batch.packets().for_each(|packet| assert_eq!(packet.copy_to(&mut whole), Some(158)));
    assert_eq!(batch.packet(40).map(|packet| packet.written_header().len()), Some(58));
    assert!(!batch.has_made_headers(), "a copy of one needs no others");
    let sequence = batch.packet(40).expect("a packet").header()[34 + SEQUENCE..][..4].to_vec();
    assert_eq!(sequence, 4_001_u32.to_be_bytes());
    assert!(batch.has_made_headers());
}

#[test]
fn what_is_implied_grows_with_its_model_and_by_no_other_way() {
    let (block, mut batch) = (block(), empty());
    assert_eq!(batch.push_implied(3, SEQUENCE as u8, (&block, 0)), 0, "nothing to imply it");
    push(&mut batch, &block, 0, 100, 1);
    assert_eq!(batch.push_implied(3, SEQUENCE as u8, (&block, 100)), 3);
    assert!(batch.prepend(1, 4).is_none() && batch.prepend_network(1, 4).is_none());
    assert!(!batch.append_span(&block, 400, 10), "its length is its model's");
    batch.prepend(0, 4).expect("headroom").fill(9);
    assert!(batch.packets().all(|packet| packet.header()[..4] == [9; 4]));
}
