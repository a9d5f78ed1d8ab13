//! The loops over memory, written once and compiled for several vector units.
//!
//! All of them add words in the machine's own byte order and return a 64-bit total that has not
//! been folded yet: RFC 1071, 2 (B) shows that the bytes may be put in order after the addition.
//! A total therefore means nothing before [`fold`].
//!
//! Words of 32 bits are added into 64, so no carry is lost; callers bound the length to
//! [`PIECE_LEN_MAX`], with which no total can overflow.
//!
//! There are no intrinsics here. Measured on a Zen 4 over 1,460 bytes that lie in the first-level
//! cache, [`sum`] compiled for AVX2 takes 19 ns (77 GB/s), hand-written AVX2 16 ns and AVX-512
//! with a masked tail 14.5 ns: not worth memory access by pointer. Explicit lanes of 32 bits were
//! four times slower, because the compiler spills.

/// Longest input of one kernel call, in bytes.
pub(crate) const PIECE_LEN_MAX: usize = 1 << 30;

/// Adds up `bytes`.
#[inline(always)]
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut total = 0;
    for word in words {
        let word = u64::from_ne_bytes(*word);
        total += (word & 0xffff_ffff) + (word >> 32);
    }
    total + sum_tail(rest)
}

/// Adds up fewer than eight bytes; an odd last byte is the first of a word whose second is zero.
#[inline(always)]
fn sum_tail(mut bytes: &[u8]) -> u64 {
    let mut total = 0;
    if let Some((word, rest)) = bytes.split_first_chunk::<4>() {
        total += u64::from(u32::from_ne_bytes(*word));
        bytes = rest;
    }
    if let Some((word, rest)) = bytes.split_first_chunk::<2>() {
        total += u64::from(u16::from_ne_bytes(*word));
        bytes = rest;
    }
    if let Some(last) = bytes.first() {
        total += u64::from(u16::from_ne_bytes([*last, 0]));
    }
    total
}

/// Folds a total to 16 bits with end-around carry and puts the bytes in network order.
///
/// A total that is not zero never folds to zero, as the one's-complement sum demands.
#[inline(always)]
pub(crate) fn fold(total: u64) -> u16 {
    u16::from_be(fold_word(total))
}

/// Folds a total to 16 bits with end-around carry, in the byte order it has.
#[inline(always)]
pub(crate) fn fold_word(total: u64) -> u16 {
    let total = (total & 0xffff_ffff) + (total >> 32);
    let total = (total & 0xffff_ffff) + (total >> 32);
    let total = (total & 0xffff) + (total >> 16);
    let total = (total & 0xffff) + (total >> 16);
    total as u16
}
