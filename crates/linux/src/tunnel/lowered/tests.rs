use super::*;
use batch::{Attributes, Multidata};
use device::transform::Null;
use proptest::prelude::*;

/// A batch of packets of these lengths, each with bytes of its own.
fn batch(lens: &[usize]) -> Multidata {
    let count = lens.len();
    let limits = batch::Limits { packets: count, blocks: count, payload_bytes: 1 << 30 };
    let mut batch = Multidata::new(batch::HeaderLayout::default(), limits);
    for (index, len) in lens.iter().enumerate() {
        let header_len = (*len).min(20);
        batch.push_packet(header_len, Attributes::default()).expect("room").fill(index as u8);
        let block = batch::Block::from(bytes::Bytes::from(vec![index as u8; len - header_len]));
        assert!(batch.append_span(&block, 0, len - header_len));
    }
    batch
}

/// Lowers all packets, call by call, and gives the messages of each call as lengths of datagrams.
fn calls(lens: &[usize], messages_max: usize, segments: bool) -> Vec<Vec<Vec<usize>>> {
    let batch = batch(lens);
    let mut lowered = Lowered::new(messages_max, segments);
    let (mut calls, mut next) = (Vec::new(), 0);
    while next < batch.len() {
        lowered.clear();
        while let Some(packet) = batch.packet(next) {
            match lowered.push(&packet, &mut Null) {
                Pushed::Taken => next += 1,
                Pushed::Full => break,
                Pushed::Unsealed => panic!("packet {next} is too long"),
            }
        }
        assert!(!lowered.messages().is_empty(), "a call without a message");
        calls.push(lowered.messages().iter().map(datagrams).collect());
    }
    calls
}

/// The datagrams that the kernel makes of a message.
fn datagrams(message: &Message) -> Vec<usize> {
    let mut left = message.bytes.len();
    let mut lens = Vec::new();
    while left > 0 {
        lens.push(left.min(message.segment_len));
        left -= left.min(message.segment_len);
    }
    assert_eq!(lens.len(), message.count);
    lens
}

#[test]
fn equal_datagrams_go_together_and_a_shorter_one_ends_a_message() {
    let lens = [1_472, 1_472, 900, 76, 1_472, 1_472];
    assert_eq!(calls(&lens, 32, true), [[vec![1_472, 1_472, 900], vec![76], vec![1_472, 1_472]]]);
    assert_eq!(calls(&lens, 32, false), [lens.map(|len| vec![len])]);
    let single = calls(&lens, 1, false);
    assert_eq!(single.len(), lens.len(), "one datagram a call");
}

#[test]
fn a_message_has_bounds() {
    let short = calls(&[100; 130], 32, true);
    assert_eq!(short, [[vec![100; 64], vec![100; 64], vec![100; 2]]]);
    let full = calls(&[1_472; 90], 32, true);
    assert_eq!(full, [[vec![1_472; 44], vec![1_472; 44], vec![1_472; 2]]]);
    let tight = calls(&[1_424; 46], 32, true);
    assert_eq!(tight, [[vec![1_424; 45], vec![1_424; 1]]], "headers need room, too");
    let longest = calls(&[DATAGRAM_LEN_MAX; 6], 32, true);
    assert_eq!(longest.len(), 2, "the block holds four of them");
}

proptest! {
    /// What leaves is the packets, in order, byte for byte, whatever the bounds.
    #[test]
    fn messages_hold_the_packets_in_order(
        lens in prop::collection::vec(prop_oneof![20_usize..1_500, Just(1_472), Just(9_000)], 1..150),
        messages_max in 1_usize..40,
        segments in any::<bool>(),
    ) {
        let calls = calls(&lens, messages_max, segments);
        prop_assert!(calls.iter().all(|call| call.len() <= messages_max));
        let messages: Vec<&Vec<usize>> = calls.iter().flatten().collect();
        for message in &messages {
            prop_assert!(message.len() == 1 || segments);
            prop_assert!(message.len() <= SEGMENTS_MAX);
            prop_assert!(message.len() == 1 || message.iter().sum::<usize>() <= MERGED_LEN_MAX);
        }
        let flat: Vec<usize> = messages.into_iter().flatten().copied().collect();
        prop_assert_eq!(flat, lens);
    }
}

#[test]
fn the_block_holds_the_bytes_of_the_packets() {
    let batch = batch(&[50, 50, 30, 70]);
    let mut lowered = Lowered::new(32, true);
    for packet in batch.packets() {
        assert_eq!(lowered.push(&packet, &mut Null), Pushed::Taken);
    }
    let expected = [vec![0; 50], vec![1; 50], vec![2; 30], vec![3; 70]].concat();
    assert_eq!(&lowered.block()[..200], expected);
}
