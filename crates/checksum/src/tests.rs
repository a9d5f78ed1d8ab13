use super::*;
use proptest::prelude::*;

/// RFC 1071, word by word.
fn naive(bytes: &[u8]) -> u16 {
    let mut sum = 0_u32;
    for word in bytes.chunks(2) {
        sum += u32::from(u16::from_be_bytes([word[0], word.get(1).copied().unwrap_or(0)]));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Bytes of all kinds, many of them all ones, so that carries run far.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![Just(0xff_u8), Just(0), any::<u8>()];
    prop_oneof![prop::collection::vec(byte.clone(), 0..200), prop::collection::vec(byte, 0..5_000)]
}

#[test]
fn the_example_of_rfc_1071_section_3() {
    assert_eq!(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
}

#[test]
fn zero_and_all_ones_are_told_apart() {
    for len in [0, 1, 2, 127, 128, 129, 1_460] {
        assert_eq!(sum(&vec![0; len]), 0, "{len} zeros");
    }
    for len in [2, 128, 130, 1_460] {
        assert_eq!(sum(&vec![0xff; len]), 0xffff, "{len} bytes of ones");
    }
}

#[test]
fn a_long_input_of_ones_loses_no_carry() {
    let bytes = vec![0xff; (1 << 20) + 1];
    assert_eq!(sum(&bytes), naive(&bytes));
}

#[test]
fn every_length_and_alignment_up_to_three_vectors() {
    let bytes: Vec<u8> = (0..700_u32).map(|index| ((index * 7_919) >> 3) as u8).collect();
    for start in 0..40 {
        for end in start..bytes.len() {
            let piece = &bytes[start..end];
            assert_eq!(sum(piece), naive(piece), "{start}..{end}");
        }
    }
}

#[test]
#[should_panic(expected = "length of its source")]
fn a_copy_of_another_length_is_a_programming_error() {
    copy_and_sum(&mut [0; 3], &[0; 4]);
}

proptest! {
    #[test]
    fn sums_are_the_naive_ones(bytes in bytes()) {
        prop_assert_eq!(sum(&bytes), naive(&bytes));
        prop_assert_eq!(kernel::fold(kernel::sum(&bytes)), naive(&bytes), "portable");
    }

    #[test]
    fn a_copy_is_a_copy_and_sums_what_it_copied(bytes in bytes()) {
        let mut copied = vec![0x55; bytes.len()];
        prop_assert_eq!(copy_and_sum(&mut copied, &bytes), naive(&bytes));
        prop_assert_eq!(copied, bytes);
    }

    #[test]
    fn pieces_of_any_length_sum_up_to_the_whole(bytes in bytes(), cuts in prop::collection::vec(0..400_usize, 0..9)) {
        let mut accumulator = Accumulator::default();
        let mut by_sums = Accumulator::new();
        let mut rest = &bytes[..];
        for cut in cuts {
            let (piece, behind) = rest.split_at(cut.min(rest.len()));
            accumulator.add(piece);
            by_sums.add_sum(naive(piece), piece.len());
            rest = behind;
        }
        accumulator.add(rest);
        by_sums.add_sum(naive(rest), rest.len());
        prop_assert_eq!(accumulator.sum(), naive(&bytes));
        prop_assert_eq!(by_sums, accumulator);
        prop_assert_eq!(accumulator.finish(), !naive(&bytes));
    }

    #[test]
    fn numbers_are_words_wherever_they_are_added(bytes in bytes(), word: u16, words: u32) {
        let mut accumulator = Accumulator::default();
        accumulator.add_u16(word);
        accumulator.add(&bytes);
        accumulator.add_u32(words);
        let mut whole = word.to_be_bytes().to_vec();
        whole.extend(words.to_be_bytes());
        whole.extend(&bytes);
        prop_assert_eq!(accumulator.sum(), naive(&whole));
    }

    #[test]
    fn an_update_is_what_a_fresh_computation_yields(mut bytes in prop::collection::vec(any::<u8>(), 2..64), at: prop::sample::Index, new: u16) {
        let at = at.index(bytes.len() / 2) * 2;
        let before = !naive(&bytes);
        let old = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        bytes[at..at + 2].copy_from_slice(&new.to_be_bytes());
        // All zero is the one content whose two zeros an update cannot tell apart (RFC 1624, 3).
        prop_assume!(bytes.iter().any(|byte| *byte != 0));
        prop_assert_eq!(update(before, old, new), !naive(&bytes));
    }

    #[test]
    fn a_packet_with_its_checksum_in_it_sums_up_to_ones(mut bytes in prop::collection::vec(any::<u8>(), 4..99)) {
        bytes[2..4].fill(0);
        let mut accumulator = Accumulator::default();
        accumulator.add(&bytes);
        bytes[2..4].copy_from_slice(&accumulator.finish().to_be_bytes());
        prop_assert_eq!(sum(&bytes), 0xffff);
    }
}
