//! Data whose every byte is known from its place in the stream.
//!
//! A stream has a key; its 8-byte word number `n` is the SplitMix64 mix of key and `n`
//! (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014), little-endian.
//! Whoever knows the key can make or check any part of the stream without the rest: a byte that
//! was lost, doubled, swapped or taken from another connection does not fit its place.
//!
//! Both ends of a connection derive the key from what both know: the seed of the run, the port
//! of the end that connected, and the direction. So no order of connections has to be agreed on.

use core::fmt;
use serde::{Deserialize, Serialize};

/// How much of a timed run is checked byte by byte, all connections together and each from its
/// beginning; the rest is checked by its length.
pub const TIMED_VERIFIED_LEN_BYTES: u64 = 4 << 20;

const WORD_LEN: usize = 8;

/// The contents of one direction of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pattern {
    key: u64,
}

/// Which way bytes flow over a connection, as seen from the end that connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// From the end that connected.
    FromConnector,
    /// To the end that connected.
    ToConnector,
}

/// A byte that is not the one its place demands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Where in the stream, counted from zero.
    pub offset: u64,
    /// What should stand there.
    pub expected: u8,
    /// What stands there.
    pub found: u8,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "byte {} of the stream is {:#04x} where {:#04x} was sent",
            self.offset, self.found, self.expected
        )
    }
}

impl std::error::Error for Mismatch {}

impl Pattern {
    /// The contents that travel this way over the connection whose connecting end uses
    /// `connector_port`.
    #[must_use]
    pub fn new(seed: u64, connector_port: u16, flow: Flow) -> Self {
        let flow = match flow {
            Flow::FromConnector => 1,
            Flow::ToConnector => 2,
        };
        Self { key: mix(seed ^ mix(u64::from(connector_port) << 2 | flow)) }
    }

    /// Writes the bytes that stand from `offset` on.
    pub fn fill(self, offset: u64, out: &mut [u8]) {
        let (mut index, head) = self.head(offset, out.len());
        let (first, rest) = out.split_at_mut(head.len);
        first.copy_from_slice(&head.bytes[head.start..head.start + head.len]);
        let mut words = rest.chunks_exact_mut(WORD_LEN);
        for word in &mut words {
            word.copy_from_slice(&self.word(index));
            index = index.wrapping_add(1);
        }
        let tail = words.into_remainder();
        tail.copy_from_slice(&self.word(index)[..tail.len()]);
    }

    /// Checks that `bytes` are those that stand from `offset` on.
    ///
    /// # Errors
    /// The first byte that is not.
    pub fn check(self, offset: u64, bytes: &[u8]) -> Result<(), Mismatch> {
        let (mut index, head) = self.head(offset, bytes.len());
        let (first, rest) = bytes.split_at(head.len);
        compare(offset, first, &head.bytes[head.start..head.start + head.len])?;
        let mut at = offset + head.len as u64;
        let words = rest.chunks_exact(WORD_LEN);
        let tail = words.remainder();
        for word in words {
            let expected = self.word(index);
            if word != expected {
                compare(at, word, &expected)?;
            }
            index = index.wrapping_add(1);
            at += WORD_LEN as u64;
        }
        compare(at, tail, &self.word(index)[..tail.len()])
    }

    /// The part of a word that stands before the first whole word at or after `offset`, and the
    /// index of that word.
    fn head(self, offset: u64, len: usize) -> (u64, Head) {
        let index = offset / WORD_LEN as u64;
        let start = (offset % WORD_LEN as u64) as usize;
        if start == 0 {
            return (index, Head { bytes: [0; WORD_LEN], start: 0, len: 0 });
        }
        let head = Head { bytes: self.word(index), start, len: len.min(WORD_LEN - start) };
        (index + 1, head)
    }

    fn word(self, index: u64) -> [u8; WORD_LEN] {
        mix(self.key.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15))).to_le_bytes()
    }
}

struct Head {
    bytes: [u8; WORD_LEN],
    start: usize,
    len: usize,
}

fn compare(offset: u64, found: &[u8], expected: &[u8]) -> Result<(), Mismatch> {
    match found.iter().zip(expected).position(|(found, expected)| found != expected) {
        None => Ok(()),
        Some(index) => Err(Mismatch {
            offset: offset + index as u64,
            expected: expected[index],
            found: found[index],
        }),
    }
}

/// The finalizer of SplitMix64.
fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATTERN: Pattern = Pattern { key: 7 };

    fn stream(len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        PATTERN.fill(0, &mut bytes);
        bytes
    }

    #[test]
    fn any_part_is_the_same_as_the_part_of_the_whole() {
        let whole = stream(100);
        for offset in 0..40 {
            for len in 0..40 {
                let mut part = vec![0; len];
                PATTERN.fill(offset as u64, &mut part);
                assert_eq!(part, whole[offset..offset + len], "{len} bytes at {offset}");
                assert_eq!(PATTERN.check(offset as u64, &part), Ok(()));
            }
        }
    }

    #[test]
    fn a_flipped_byte_is_found_at_its_position() {
        let len = 3 * WORD_LEN + 5;
        for offset in 0..WORD_LEN as u64 {
            for index in 0..len {
                let mut bytes = vec![0; len];
                PATTERN.fill(offset, &mut bytes);
                bytes[index] ^= 0x10;
                let mismatch = PATTERN.check(offset, &bytes).unwrap_err();
                assert_eq!(mismatch.offset, offset + index as u64);
                assert_eq!(mismatch.found, bytes[index]);
                assert_eq!(mismatch.expected, bytes[index] ^ 0x10);
            }
        }
    }

    #[test]
    fn a_lost_or_doubled_piece_is_found() {
        let whole = stream(4_096);
        let mut lost = whole.clone();
        lost.drain(1_000..1_008);
        assert_eq!(PATTERN.check(0, &lost).unwrap_err().offset, 1_000);
        let mut doubled = whole[..2_000].to_vec();
        doubled.extend_from_slice(&whole[1_992..]);
        assert!(PATTERN.check(0, &doubled).unwrap_err().offset >= 2_000);
    }

    #[test]
    fn streams_of_other_connections_and_directions_differ() {
        let patterns = [
            Pattern::new(1, 4_000, Flow::FromConnector),
            Pattern::new(1, 4_000, Flow::ToConnector),
            Pattern::new(1, 4_001, Flow::FromConnector),
            Pattern::new(2, 4_000, Flow::FromConnector),
        ];
        let mut bytes = [0; 64];
        for (index, pattern) in patterns.iter().enumerate() {
            pattern.fill(0, &mut bytes);
            for (other, checker) in patterns.iter().enumerate() {
                assert_eq!(checker.check(0, &bytes).is_ok(), index == other);
            }
        }
    }
}
