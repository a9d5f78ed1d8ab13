//! Receiving: what the rx ring holds, copied end to end into blocks of the pool.
//!
//! Chunks go back to the fill ring before the call ends, whoever keeps the frames and for how long:
//! a reader who takes his time costs the pool, which is bounded and watched, and never the driver.
//! The lengths stand in the ring, so a block is as large as its frames need. What finds no block stays
//! in the ring, in order; when the fill ring is empty the driver drops.
//!
//! No header tells of super-frames. One of TCP is as good as one long segment; of one of datagrams nobody
//! knows where each ends, so it is dropped.

use super::ring::CONTINUED;
use super::socket::Rings;
use batch::{BlockPool, Frame, ReceiveBatch, ReceivedChecksum, Segmented};
use device::{Capabilities, DeviceCounters, Received};
use rustix::net::{RecvFlags, recv};

/// Frames begin at multiples of this.
const FRAME_ALIGNMENT: usize = 64;

/// A block is filled up to this; one frame may be longer.
const BLOCK_BYTES_MAX: usize = 65_536;

/// A call ends after this many bytes, so that what it brought is still in the cache when it is
/// looked at.
const CALL_BYTES_MAX: usize = 256 * 1_024;

/// A frame that claims to go on for longer is cut there, which its parser will notice.
const PARTS_MAX: u32 = 32;

/// How frames are taken out of the rings.
#[derive(Debug)]
pub(super) struct Receiver {
    /// What is known of the checksums of all frames.
    checksum: ReceivedChecksum,
    /// Longest frame in bytes that is one packet; longer ones are super-frames.
    frame_len_max: usize,
    /// Payload bytes of the segments of a super-frame, as far as can be known.
    segment_len: u16,
    /// A call that finds nothing has the driver polled.
    polls: bool,
    /// The pool was exhausted in the last call, so frames wait in the ring.
    pub(super) is_starved: bool,
}

/// Frames at the front of the ring that go into one block.
#[derive(Default)]
struct Run {
    entries: u32,
    frames: usize,
    /// Length in the block, gaps included.
    bytes: usize,
}

impl Receiver {
    /// `polls`: the socket is set up for busy polling.
    pub(super) fn new(capabilities: &Capabilities, polls: bool) -> Self {
        let checksum = match capabilities.checksum_receive {
            true => ReceivedChecksum::Verified,
            false => ReceivedChecksum::Unverified,
        };
        let mut receiver =
            Self { checksum, frame_len_max: 0, segment_len: 1, polls, is_starved: false };
        receiver.follow(capabilities.mtu_bytes);
        receiver
    }

    /// Packets may be so long from now on, or as long as they were before, which may be on their way.
    pub(super) fn follow(&mut self, mtu_bytes: usize) {
        // 40 is an IPv4 and a TCP header: the longest segments that can have been.
        let segment_len = mtu_bytes.saturating_sub(40).clamp(1, 65_495) as u16;
        self.segment_len = self.segment_len.max(segment_len);
        self.frame_len_max = self.frame_len_max.max(mtu_bytes.saturating_add(super::LINK_LEN_MAX));
    }

    /// Adds at most `frames_max` frames to `batch`.
    pub(super) fn receive(
        &mut self,
        rings: &mut Rings,
        pool: &BlockPool,
        batch: &mut ReceiveBatch,
        frames_max: usize,
        counters: &mut DeviceCounters,
    ) -> Received {
        let mut received = Received::default();
        self.is_starved = false;
        if rings.receive.look() == 0 && self.polls {
            poll_driver(rings, counters);
            let _ = rings.receive.look();
        }
        let mut bytes_left = CALL_BYTES_MAX;
        let mut has_taken = false;
        loop {
            let run = next_run(rings, frames_max - received.frames);
            if run.frames == 0 || bytes_left == 0 {
                received.more = rings.receive.peek(0).is_some() && !self.is_starved;
                break;
            }
            let Ok(mut block) = pool.allocate_receive(run.bytes) else {
                self.is_starved = true;
                break;
            };
            has_taken = true;
            let mut frames = [EMPTY; FRAMES_PER_BLOCK];
            let count = self.copy(rings, &run, block.bytes_mut(), &mut frames, counters);
            let index = batch.add_block(block.freeze());
            for frame in &frames[..count] {
                counters.receive_bytes += u64::from(frame.len);
                let pushed = batch.push_frame(Frame { block: index, ..*frame });
                received.frames += usize::from(pushed);
            }
            bytes_left = bytes_left.saturating_sub(run.bytes);
        }
        if has_taken {
            rings.receive.release();
            rings.fill.submit();
            if rings.fill.needs_wakeup() {
                poll_driver(rings, counters);
            }
        }
        if received.frames > 0 {
            counters.receive_batches += 1;
            counters.receive_frames += received.frames as u64;
        }
        received
    }

    /// Copies a run into a block, gives its chunks back, and says how many frames it was.
    fn copy(
        &self,
        rings: &mut Rings,
        run: &Run,
        block: &mut [u8],
        frames: &mut [Frame; FRAMES_PER_BLOCK],
        counters: &mut DeviceCounters,
    ) -> usize {
        let (mut count, mut start, mut len, mut parts) = (0, 0, 0, 0);
        for _ in 0..run.entries {
            let Some(part) = rings.receive.pop() else { break };
            if let Some(chunk) = rings.umem.take_back(part.address) {
                let source = rings.umem.part(&chunk, part.address, part.len).unwrap_or(&[]);
                let at = start + len;
                if let Some(room) = block.get_mut(at..at + source.len()) {
                    room.copy_from_slice(source);
                    len += source.len();
                }
                rings.fill.push(rings.umem.give(chunk));
            }
            parts += 1;
            if part.options & CONTINUED != 0 && parts < PARTS_MAX {
                continue;
            }
            let is_super = len > self.frame_len_max;
            if is_super && block.get(start..start + len).is_some_and(is_udp) {
                counters.receive_dropped += 1;
            } else {
                let segmented = is_super.then_some(Segmented { segment_len: self.segment_len });
                let (offset, checksum) = (start as u32, self.checksum);
                frames[count] = Frame { block: 0, offset, len: len as u32, checksum, segmented };
                count += 1;
                start += len.next_multiple_of(FRAME_ALIGNMENT);
            }
            (len, parts) = (0, 0);
        }
        count
    }
}

/// Whether an Ethernet frame holds a datagram, with nothing between its header and the network's.
fn is_udp(frame: &[u8]) -> bool {
    const UDP: u8 = 17;
    let protocol = match frame.get(12..14) {
        Some([0x08, 0x00]) => frame.get(23),
        Some([0x86, 0xdd]) => frame.get(20),
        _ => None,
    };
    protocol == Some(&UDP)
}

/// The frames that go into the next block.
fn next_run(rings: &Rings, frames_max: usize) -> Run {
    let mut run = Run::default();
    let (mut len, mut parts) = (0, 0);
    let mut index = 0;
    // A frame whose end is not there yet waits for it.
    while let Some(part) = rings.receive.peek(index) {
        index += 1;
        len += part.len as usize;
        parts += 1;
        if part.options & CONTINUED != 0 && parts < PARTS_MAX {
            continue;
        }
        let bytes = run.bytes + len.next_multiple_of(FRAME_ALIGNMENT);
        if run.frames == frames_max.min(FRAMES_PER_BLOCK)
            || (run.frames > 0 && bytes > BLOCK_BYTES_MAX)
        {
            break;
        }
        run = Run { entries: index, frames: run.frames + 1, bytes };
        (len, parts) = (0, 0);
    }
    run
}

/// A system call that has the driver take new chunks, or look for frames.
fn poll_driver(rings: &Rings, counters: &mut DeviceCounters) {
    counters.receive_syscalls += 1;
    // It carries no data; whatever it says, the ring tells what came of it.
    let _ = recv(&rings.socket, &mut [0_u8; 0], RecvFlags::DONTWAIT);
}

/// So many frames lie in a block at most: as many of MTU 1500 as fit, and short ones for a batch.
const FRAMES_PER_BLOCK: usize = 64;

const EMPTY: Frame =
    Frame { block: 0, offset: 0, len: 0, checksum: ReceivedChecksum::Unverified, segmented: None };
