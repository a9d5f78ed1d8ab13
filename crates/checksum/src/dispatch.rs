//! Picks the kernel that this processor runs best.
//!
//! Short inputs, which headers are, never come here: the scalar loop is inlined where they are
//! summed. What comes here is long enough to pay for the question and the call.

use crate::kernel;

/// Adds up `bytes`, of any length.
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    let pieces = bytes.chunks(kernel::PIECE_LEN_MAX);
    pieces.map(|piece| u64::from(kernel::fold_word(sum_piece(piece)))).sum()
}

/// Copies and adds up, for slices of equal length.
pub(crate) fn copy_and_sum(destination: &mut [u8], source: &[u8]) -> u64 {
    let destinations = destination.chunks_mut(kernel::PIECE_LEN_MAX);
    let pieces = destinations.zip(source.chunks(kernel::PIECE_LEN_MAX));
    pieces.map(|(to, from)| u64::from(kernel::fold_word(copy_piece(to, from)))).sum()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn sum_avx2(bytes: &[u8]) -> u64 {
    kernel::sum(bytes)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn copy_avx2(destination: &mut [u8], source: &[u8]) -> u64 {
    kernel::copy_and_sum::<16>(destination, source)
}

#[inline]
#[allow(unsafe_code)]
fn sum_piece(bytes: &[u8]) -> u64 {
    // The standard library asks the processor once and keeps the answer.
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the function is safe code that differs from `kernel::sum` only in using AVX2,
        // and this processor has AVX2.
        return unsafe { sum_avx2(bytes) };
    }
    kernel::sum(bytes)
}

#[inline]
#[allow(unsafe_code)]
fn copy_piece(destination: &mut [u8], source: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the function is safe code that differs from `kernel::copy_and_sum` only in
        // using AVX2, and this processor has AVX2.
        return unsafe { copy_avx2(destination, source) };
    }
    kernel::copy_and_sum::<8>(destination, source)
}
