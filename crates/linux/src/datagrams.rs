//! Runs of datagrams that come up as one frame, cut into a pooled block of their own, end to end.
//!
//! They are cut here, below everything that looks at packets, and by a copy
//! ([`device::lowering::DatagramRun`] says why).

use batch::{BlockMut, BlockPool, Frame, ReceivedChecksum};
use device::DeviceCounters;
use device::lowering::DatagramRun;

/// Frames begin at multiples of this.
const FRAME_ALIGNMENT: usize = 64;

/// Why a run was not cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Uncut {
    /// It is none.
    Malformed,
    /// The pool has no block for it.
    Exhausted,
}

/// Length of an Ethernet header in bytes.
pub(crate) const ETHERNET_LEN: usize = 14;

/// Cuts a frame with a link header of `link_len` bytes into datagrams of `payload_len` bytes of payload each,
/// but for the last. Adds their frames to `frames`, as those of block `index`, and returns that block.
pub(crate) fn cut(
    frame: &[u8],
    payload_len: u16,
    pool: &BlockPool,
    (link_len, index): (usize, usize),
    frames: &mut Vec<Frame>,
    counters: &mut DeviceCounters,
) -> Result<BlockMut, Uncut> {
    let run = DatagramRun::parse(frame, link_len, payload_len).ok_or(Uncut::Malformed)?;
    let lens = (0..run.count()).map(|at| run.len_of(at).next_multiple_of(FRAME_ALIGNMENT));
    let mut block = pool.allocate_receive(lens.sum()).map_err(|_| Uncut::Exhausted)?;
    let (before, mut start) = (frames.len(), 0);
    for at in 0..run.count() {
        let out = block.bytes_mut().get_mut(start..).unwrap_or_default();
        if run.write(at, out).is_none() {
            frames.truncate(before);
            return Err(Uncut::Malformed);
        }
        let len = run.len_of(at);
        frames.push(Frame {
            block: index as u32,
            offset: start as u32,
            len: len as u32,
            checksum: ReceivedChecksum::Partial,
            segmented: None,
        });
        counters.receive_bytes += len as u64;
        start += len.next_multiple_of(FRAME_ALIGNMENT);
    }
    counters.receive_coalesced += run.count() as u64;
    Ok(block)
}
