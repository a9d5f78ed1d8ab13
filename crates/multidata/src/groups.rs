//! Many packets of one call, copied in group by group.
//!
//! A group is what fits 64 KiB and lies in one block, so a call of any length holds no more memory than
//! that outside the stack.

use batch::{BlockPool, Chunk};
use stack::SocketError;

/// Payload of one group in bytes: the longest that a length of 16 bits can say, so that a packet that is
/// too long stands alone.
const GROUP_BYTES_MAX: usize = u16::MAX as usize;

/// Packets of one group.
const GROUP_PACKETS_MAX: usize = 256;

/// How many packets of these lengths go as one group: at least one.
pub(crate) fn group_len(payload_lens: impl Iterator<Item = usize>) -> usize {
    let mut bytes = 0_usize;
    let fitting = payload_lens.take(GROUP_PACKETS_MAX).take_while(|len| {
        bytes = bytes.saturating_add(*len);
        bytes <= GROUP_BYTES_MAX
    });
    fitting.count().max(1)
}

/// Copies a group into one block.
///
/// # Errors
/// [`SocketError::MessageTooLong`] for a packet that is longer than any may be, and no memory.
pub(crate) fn copy_group<'a>(
    pool: &BlockPool,
    payloads: impl Iterator<Item = &'a [u8]> + Clone,
) -> Result<Vec<Chunk>, SocketError> {
    let len = payloads.clone().map(<[u8]>::len).sum();
    if len > GROUP_BYTES_MAX {
        return Err(SocketError::MessageTooLong);
    }
    let mut block = pool.allocate(len).map_err(|_| SocketError::NoMemory)?;
    let mut rest = block.bytes_mut();
    for payload in payloads.clone() {
        let (here, behind) = rest.split_at_mut(payload.len());
        here.copy_from_slice(payload);
        rest = behind;
    }
    let block = block.freeze();
    let mut end = 0;
    let chunks = payloads.map(|payload| {
        let start = end;
        end += payload.len();
        Chunk::new(block.clone(), start..end)
    });
    Ok(chunks.collect())
}
