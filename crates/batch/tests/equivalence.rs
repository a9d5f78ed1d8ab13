//! Any Multidata iterates to the same packets as building them one by one.

use batch::{Attributes, Block, HeaderLayout, Limits, Multidata};
use bytes::Bytes;
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct Plan {
    transport: Vec<u8>,
    network: Vec<u8>,
    link: Vec<u8>,
    /// (block, offset, len)
    spans: Vec<(usize, usize, usize)>,
    run: u32,
}

const BLOCK_LEN: usize = 5_000;

fn plans() -> impl Strategy<Value = Vec<Plan>> {
    let bytes = |range| prop::collection::vec(any::<u8>(), range);
    let span = (0..4_usize, 0..BLOCK_LEN)
        .prop_flat_map(|(block, offset)| (Just(block), Just(offset), 0..=BLOCK_LEN - offset));
    let plan =
        (bytes(8..60), bytes(20..41), bytes(0..15), prop::collection::vec(span, 0..5), 0..3_u32)
            .prop_map(|(transport, network, link, spans, run)| Plan {
                transport,
                network,
                link,
                spans,
                run,
            });
    prop::collection::vec(plan, 0..80)
}

fn blocks() -> Vec<Block> {
    (0..4_u8)
        .map(|seed| (0..BLOCK_LEN).map(|i| (i as u8).wrapping_mul(31) ^ seed).collect::<Vec<_>>())
        .map(|bytes| Block::from(Bytes::from(bytes)))
        .collect()
}

fn build(out: &mut Multidata, blocks: &[Block], plan: &Plan) -> bool {
    let attributes = Attributes { run: plan.run, ..Attributes::default() };
    let Some(header) = out.push_packet(plan.transport.len(), attributes) else { return false };
    header.copy_from_slice(&plan.transport);
    for (block, offset, len) in &plan.spans {
        if !out.append_span(&blocks[*block], *offset, *len) {
            out.truncate(out.len() - 1);
            return false;
        }
    }
    let index = out.len() - 1;
    let (network, _) = out.prepend_network(index, plan.network.len()).expect("headroom");
    network[..plan.network.len()].copy_from_slice(&plan.network);
    out.prepend(index, plan.link.len()).expect("headroom").copy_from_slice(&plan.link);
    true
}

fn expected(blocks: &[Block], plan: &Plan) -> Vec<u8> {
    let mut packet = [&plan.link[..], &plan.network, &plan.transport].concat();
    for (block, offset, len) in &plan.spans {
        packet.extend_from_slice(&blocks[*block].bytes()[*offset..offset + len]);
    }
    packet
}

fn packets(batch: &Multidata) -> Vec<Vec<u8>> {
    batch
        .packets()
        .map(|view| {
            let mut out = vec![0; view.len()];
            assert_eq!(view.copy_to(&mut out), Some(view.len()));
            out
        })
        .collect()
}

proptest! {
    #[test]
    fn a_batch_equals_its_packets_one_by_one(plans in plans(), keep in 0..80_usize) {
        let blocks = blocks();
        let mut many = Multidata::default();
        let mut one = Multidata::new(
            HeaderLayout::default(),
            Limits { packets: 1, ..Limits::default() },
        );
        let mut singly = Vec::new();
        for plan in &plans {
            if build(&mut many, &blocks, plan) {
                one.clear();
                prop_assert!(build(&mut one, &blocks, plan));
                prop_assert!(one.push_packet(20, Attributes::default()).is_none(), "full at one");
                singly.extend(packets(&one));
                prop_assert_eq!(singly.last().expect("just built"), &expected(&blocks, plan));
            }
        }
        prop_assert_eq!(&packets(&many), &singly);
        // Every packet lies in exactly one run, in order.
        let covered: Vec<usize> = many.runs(0).flatten().collect();
        prop_assert_eq!(covered, (0..many.len()).collect::<Vec<_>>());
        // What is forgotten leaves the rest as it was, and can be built again.
        let kept = keep.min(singly.len());
        many.truncate(kept);
        prop_assert_eq!(packets(&many), singly[..kept].to_vec());
        many.clear();
        prop_assert!(many.is_empty() && many.payload_bytes() == 0);
    }
}

#[test]
fn limits_hold_and_a_refused_span_changes_nothing() {
    let blocks = blocks();
    let limits = Limits { packets: 4, blocks: 2, payload_bytes: 6_000 };
    let mut batch = Multidata::new(HeaderLayout::default(), limits);
    assert!(batch.push_packet(20, Attributes::default()).is_some());
    assert!(batch.append_span(&blocks[0], 0, 5_000));
    assert!(!batch.append_span(&blocks[0], 0, 1_001), "over the bytes");
    assert!(!batch.append_span(&blocks[0], 4_999, 2), "over the block");
    assert!(batch.append_span(&blocks[1], 0, 10));
    assert!(!batch.append_span(&blocks[2], 0, 10), "over the blocks");
    assert_eq!(batch.packet(0).expect("one").payload_len(), 5_010);
    assert_eq!(batch.payload_bytes(), 5_010);
    assert!(batch.push_packet(113, Attributes::default()).is_none(), "header over its slot");
    assert!(batch.prepend(0, 81).is_none(), "header over the headroom");
    assert_eq!(batch.packet(0).expect("one").header().len(), 20);
}
