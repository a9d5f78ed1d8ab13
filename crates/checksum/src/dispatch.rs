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

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn sum_avx2(bytes: &[u8]) -> u64 {
    kernel::sum(bytes)
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
