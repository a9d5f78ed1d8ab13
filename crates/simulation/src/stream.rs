//! What connections carry: bytes that say whose they are.
//!
//! Each direction of each connection has a number, and byte `offset` of its stream is a function of
//! both, so a receiver needs no copy of what was sent to know that what it got is right. The first
//! eight bytes are the number itself: a receiver learns from them who speaks, and bytes of another
//! connection, of an earlier one between the same ports or of the other direction show.

use crate::random::scatter;

/// Bytes at the front of a stream that name it. A stream is empty or at least this long.
pub const NAME_LEN: u64 = 8;

/// Writes the bytes from `offset` on into `out`.
pub fn fill(name: u64, offset: u64, out: &mut [u8]) {
    let mut at = 0;
    while at < out.len() {
        let position = offset + at as u64;
        let word = word(name, position / 8).to_le_bytes();
        let skip = (position % 8) as usize;
        let count = (8 - skip).min(out.len() - at);
        out[at..at + count].copy_from_slice(&word[skip..skip + count]);
        at += count;
    }
}

/// Where `bytes`, which arrived as those from `offset` on, first differ from what was sent.
#[must_use]
pub fn first_difference(name: u64, offset: u64, bytes: &[u8]) -> Option<u64> {
    let mut at = 0;
    while at < bytes.len() {
        let position = offset + at as u64;
        let word = word(name, position / 8).to_le_bytes();
        let skip = (position % 8) as usize;
        let count = (8 - skip).min(bytes.len() - at);
        if bytes[at..at + count] != word[skip..skip + count] {
            let differs = (0..count).find(|i| bytes[at + i] != word[skip + i]).unwrap_or(0);
            return Some(position + differs as u64);
        }
        at += count;
    }
    None
}

fn word(name: u64, index: u64) -> u64 {
    if index == 0 { name } else { scatter(name.wrapping_add(index)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_stream_are_those_of_the_whole_and_a_wrong_byte_shows() {
        let mut whole = vec![0; 1_000];
        fill(42, 0, &mut whole);
        let mut part = vec![0; 333];
        fill(42, 77, &mut part);
        assert_eq!(part, whole[77..410]);
        assert_eq!(first_difference(42, 77, &part), None);
        part[100] ^= 1;
        assert_eq!(first_difference(42, 77, &part), Some(177));
        assert_eq!(first_difference(43, 0, &whole), Some(0));
    }
}
