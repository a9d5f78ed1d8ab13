//! Receiving: what has come of the stream, cut into frames where it lies.
//!
//! ```text
//!  stream   | length | frame | length | frame | length | fra me | ...
//!  block    | length | frame | length | frame |                    handed up
//!  next                                       | length | fra       and filled on
//! ```
//!
//! A block grows and shrinks with what the last calls brought, so that a lone ACK does not pin 128 KiB. The front of a
//! frame that is not all here yet begins the next block; while no frame is all here, the block is filled on where it is.

use super::{FRAME_LEN_MAX, LENGTH_LEN};
use crate::held::Held;
use batch::{BlockMut, BlockPool, Frame, ReceiveBatch, ReceivedChecksum};
use device::{DeviceCounters, Received};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

const BLOCK_BYTES_MIN: usize = 4_096;
const BLOCK_BYTES_MAX: usize = 131_072;

/// Why nothing more comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The other end has closed.
    Closed,
    /// A length that no frame has.
    Unframed(u32),
    Failed(Errno),
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Receiver {
    /// What the next block should hold, in bytes.
    block_len: usize,
    /// The block that is filled, where one is.
    block: Option<BlockMut>,
    /// How many bytes lie at its front.
    filled: usize,
    /// The front of a frame, to which there is no block yet.
    front: Vec<u8>,
    frames: Vec<Frame>,
    /// Frames that the last caller had no room for.
    held: Held,
    /// Why nothing more comes.
    end: Option<End>,
    /// The pool was exhausted in the last call, so bytes may wait in the kernel.
    pub(super) is_starved: bool,
}

impl Default for Receiver {
    fn default() -> Self {
        Self {
            block_len: BLOCK_BYTES_MIN,
            block: None,
            filled: 0,
            front: Vec::new(),
            frames: Vec::new(),
            held: Held::default(),
            end: None,
            is_starved: false,
        }
    }
}

impl Receiver {
    /// Adds at most `frames_max` frames to `batch`, and says why nothing more comes behind them where that is so.
    pub(super) fn receive(
        &mut self,
        socket: &OwnedFd,
        pool: &BlockPool,
        batch: &mut ReceiveBatch,
        frames_max: usize,
        counters: &mut DeviceCounters,
    ) -> (Received, Option<End>) {
        self.is_starved = false;
        let mut frames = self.held.hand_up(batch, frames_max);
        let mut more = frames == frames_max;
        if !more && self.end.is_none() {
            more = self.fill(socket, pool, counters);
            self.cut(counters);
            frames += self.hand_up(batch, frames_max - frames);
            more |= !self.held.is_empty();
        }
        if frames > 0 {
            counters.receive_batches += 1;
            counters.receive_frames += frames as u64;
        }
        (Received { frames, more, failed: None }, self.end.filter(|_| !more))
    }

    /// Reads until nothing more waits or the block is whole, and says whether more may wait.
    fn fill(&mut self, socket: &OwnedFd, pool: &BlockPool, counters: &mut DeviceCounters) -> bool {
        if self.block.is_none() {
            let wanted = self.block_len.max(front_len(&self.front));
            let Ok(mut block) = pool.allocate_receive(wanted) else {
                // Where there is no room for so much, there may be for less, which is asked for next time.
                self.block_len = (self.block_len / 2).max(BLOCK_BYTES_MIN);
                self.is_starved = true;
                return false;
            };
            self.filled = self.front.len();
            block.bytes_mut()[..self.filled].copy_from_slice(&self.front);
            self.front.clear();
            self.block = Some(block);
        }
        let Some(block) = &mut self.block else { return false };
        loop {
            let room = &mut block.bytes_mut()[self.filled..];
            if room.is_empty() {
                return true;
            }
            counters.receive_syscalls += 1;
            match recv(socket, room, RecvFlags::DONTWAIT) {
                Ok((_, 0)) => {
                    self.end = Some(End::Closed);
                    return false;
                }
                Ok((_, len)) => self.filled += len,
                Err(Errno::AGAIN) => return false,
                Err(Errno::INTR) => {}
                Err(errno) => {
                    self.end = Some(End::Failed(errno));
                    return false;
                }
            }
        }
    }

    /// Finds the frames that are all here, and keeps what is behind them.
    fn cut(&mut self, counters: &mut DeviceCounters) {
        let Some(block) = &self.block else { return };
        let bytes = &block.bytes()[..self.filled];
        let mut at = 0;
        while let Some(len) = length_at(&bytes[at..]) {
            if len == 0 || len as usize > FRAME_LEN_MAX {
                self.end = Some(End::Unframed(len));
                break;
            }
            let next = at + LENGTH_LEN + len as usize;
            if next > bytes.len() {
                break;
            }
            let offset = (at + LENGTH_LEN) as u32;
            let checksum = ReceivedChecksum::Unverified;
            self.frames.push(Frame { block: 0, offset, len, checksum, segmented: None });
            counters.receive_bytes += u64::from(len);
            at = next;
        }
        let is_whole = self.filled == block.bytes().len();
        if at > 0 || is_whole {
            self.front.extend_from_slice(&bytes[at..]);
        }
        if is_whole {
            self.block_len = (self.block_len * 2).min(BLOCK_BYTES_MAX);
        } else if at > 0 && at < self.block_len / 4 {
            self.block_len = (self.block_len / 2).max(BLOCK_BYTES_MIN);
        }
        if at == 0 && is_whole {
            self.block = None;
        }
    }

    /// Moves what was found into `batch`, at most `room` frames, and says how many that were.
    fn hand_up(&mut self, batch: &mut ReceiveBatch, room: usize) -> usize {
        if self.frames.is_empty() {
            return 0;
        }
        let Some(block) = self.block.take() else { return 0 };
        self.held.add(batch, &[block.freeze()], self.frames.drain(..), room)
    }
}

/// The length that stands at the front of `bytes`, where all of it is here.
fn length_at(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|length| u32::from_be_bytes(*length))
}

/// The room that the frame at the front of `bytes` needs, as far as is known.
fn front_len(bytes: &[u8]) -> usize {
    LENGTH_LEN + length_at(bytes).map_or(0, |len| len as usize)
}
