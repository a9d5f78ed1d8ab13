//! Capturing what passes a device queue, in the form of pcapng.
//!
//! [`CaptureQueue`] is a queue around a queue. What the inner queue took of a batch, and what it
//! received, is written as pcapng blocks into a bounded buffer; whoever made the capture empties the
//! buffer into a file ([`Capture::take`]). So the stack never waits for a disk: where the buffer is
//! full, packets are left out of the capture and counted, and nothing else changes.
//!
//! Packets in a batch are real in every transmit mode, so a capture shows what a peer would get,
//! segment by segment. Checksums that the device was to complete are completed in the copy. Frames
//! that the device received are shown as it gave them, super-frames as one.
//!
//! ```text
//!  section header | interface (link type, snap length, nanoseconds) | packet | packet | ...
//!  packet: 6, length, interface 0, time high, time low, captured, original,
//!          bytes padded to four, option 2 (flags: 1 inbound, 2 outbound), end, length
//! ```
//!
//! The format is draft-ietf-opsawg-pcapng. It is written here, because three kinds of blocks of
//! fixed shape are less than the dependencies of a crate for it; the tests read it with one.

use crate::{Medium, Queue, Received, Transmitted, lowering};
use batch::{BlockPool, Multidata, ReceiveBatch};
use core::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// LINKTYPE_ETHERNET and LINKTYPE_RAW.
const LINK_TYPE_ETHERNET: u16 = 1;
const LINK_TYPE_IP: u16 = 101;

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const OPTION_FLAGS: u16 = 2;
const OPTION_TIME_RESOLUTION: u16 = 9;

/// Bytes of a packet block beside the packet: head, flags, end of options, length.
const PACKET_OVERHEAD: usize = 28 + 8 + 4 + 4;

/// What a capture is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaptureConfig {
    /// Bytes of a packet that are kept at most.
    pub snap_len_bytes: u32,
    /// Bytes that wait to be taken at most.
    pub buffer_bytes: usize,
}

impl Default for CaptureConfig {
    /// Whole packets, super-frames included, and 16 MiB: more than a hundredth of a second at
    /// 10 Gbit/s.
    fn default() -> Self {
        Self { snap_len_bytes: 262_144, buffer_bytes: 16 << 20 }
    }
}

counters::counters! {
    /// What a [`Capture`] did.
    pub struct CaptureCounters {
        /// Packets written into the buffer.
        capture_packets,
        /// Packets left out because the buffer was full.
        capture_lost,
        /// Packets of which only the first bytes were kept.
        capture_cut,
    }
}

/// Says what time it is, in nanoseconds since 1970.
pub type Clock = Box<dyn Fn() -> u64 + Send>;

/// A capture under way: the end that a file is filled from. Where it is dropped the queue goes on without.
#[derive(Clone)]
pub struct Capture {
    shared: Arc<Mutex<Buffer>>,
}

impl fmt::Debug for Capture {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Capture").field("counters", &self.counters()).finish()
    }
}

#[derive(Debug)]
struct Buffer {
    config: CaptureConfig,
    bytes: Vec<u8>,
    counters: CaptureCounters,
}

impl Capture {
    /// Moves what was captured since the last call to the end of `out`.
    pub fn take(&self, out: &mut Vec<u8>) {
        let mut buffer = self.lock();
        if out.is_empty() {
            core::mem::swap(out, &mut buffer.bytes);
        } else {
            out.append(&mut buffer.bytes);
        }
    }

    /// How many bytes wait to be taken.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.lock().bytes.len()
    }

    /// What was counted.
    #[must_use]
    pub fn counters(&self) -> CaptureCounters {
        self.lock().counters
    }

    /// A thread that panicked while it held the lock left whole blocks behind.
    fn lock(&self) -> MutexGuard<'_, Buffer> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A queue whose packets are captured.
pub struct CaptureQueue {
    inner: Box<dyn Queue>,
    /// Where it goes, while somebody can take it.
    capture: Weak<Mutex<Buffer>>,
    clock: Clock,
    /// The packet at hand, complete.
    scratch: Vec<u8>,
}

impl CaptureQueue {
    /// Begins to capture what passes `inner`. `clock` is asked once for each batch.
    #[must_use]
    pub fn new(inner: Box<dyn Queue>, config: CaptureConfig, clock: Clock) -> (Self, Capture) {
        let link_type = match inner.capabilities().medium {
            Medium::Ethernet(_) => LINK_TYPE_ETHERNET,
            Medium::Ip => LINK_TYPE_IP,
        };
        let mut bytes = Vec::new();
        push_head(&mut bytes, link_type, config.snap_len_bytes);
        let buffer = Buffer { config, bytes, counters: CaptureCounters::default() };
        let capture = Capture { shared: Arc::new(Mutex::new(buffer)) };
        let shared = Arc::downgrade(&capture.shared);
        let queue = Self { inner, capture: shared, clock, scratch: Vec::new() };
        (queue, capture)
    }

    /// The capture, where somebody can take what it holds.
    fn capture(&self) -> Option<Capture> {
        Some(Capture { shared: self.capture.upgrade()? })
    }
}

#[derive(Clone, Copy)]
enum Direction {
    Inbound = 1,
    Outbound = 2,
}

impl Queue for CaptureQueue {
    crate::forward_queue!(|self| self.inner, but transmit, receive);

    fn transmit(&mut self, batch: &Multidata) -> Transmitted {
        let transmitted = self.inner.transmit(batch);
        if transmitted.taken > 0
            && let Some(capture) = self.capture()
        {
            let time_ns = (self.clock)();
            let mut buffer = capture.lock();
            for packet in batch.packets().take(transmitted.taken) {
                self.scratch.resize(packet.len(), 0);
                // What no checksum lies in is shown as it is.
                let _ = lowering::copy_complete(&packet, &mut self.scratch);
                buffer.push_packet(time_ns, Direction::Outbound, &self.scratch);
            }
        }
        transmitted
    }

    fn receive(
        &mut self,
        pool: &BlockPool,
        batch: &mut ReceiveBatch,
        frames_max: usize,
    ) -> Received {
        let before = batch.len();
        let received = self.inner.receive(pool, batch, frames_max);
        if batch.len() > before
            && let Some(capture) = self.capture()
        {
            let time_ns = (self.clock)();
            let mut buffer = capture.lock();
            for index in before..batch.len() {
                buffer.push_packet(time_ns, Direction::Inbound, batch.bytes(index));
            }
        }
        received
    }
}

impl Buffer {
    fn push_packet(&mut self, time_ns: u64, direction: Direction, packet: &[u8]) {
        let kept = packet.len().min(self.config.snap_len_bytes as usize);
        let len = PACKET_OVERHEAD + kept.next_multiple_of(4);
        if self.bytes.len() + len > self.config.buffer_bytes {
            self.counters.capture_lost += 1;
            return;
        }
        self.counters.capture_packets += 1;
        self.counters.capture_cut += u64::from(kept < packet.len());
        let out = &mut self.bytes;
        push_words(
            out,
            &[
                ENHANCED_PACKET,
                len as u32,
                0,
                (time_ns >> 32) as u32,
                time_ns as u32,
                kept as u32,
                packet.len() as u32,
            ],
        );
        out.extend_from_slice(&packet[..kept]);
        out.resize(out.len() + kept.next_multiple_of(4) - kept, 0);
        push_option_head(out, OPTION_FLAGS, 4);
        push_words(out, &[direction as u32]);
        push_option_head(out, 0, 0);
        push_words(out, &[len as u32]);
    }
}

/// A section header of unknown length and one interface.
fn push_head(out: &mut Vec<u8>, link_type: u16, snap_len_bytes: u32) {
    // Version 1.0; both halves are written in the order of this machine, as all fields are.
    push_words(out, &[SECTION_HEADER, 28, BYTE_ORDER_MAGIC]);
    push_option_head(out, 1, 0);
    push_words(out, &[u32::MAX, u32::MAX, 28]);
    push_words(out, &[INTERFACE_DESCRIPTION, 32]);
    push_option_head(out, link_type, 0);
    push_words(out, &[snap_len_bytes]);
    push_option_head(out, OPTION_TIME_RESOLUTION, 1);
    out.extend_from_slice(&[9, 0, 0, 0]);
    push_option_head(out, 0, 0);
    push_words(out, &[32]);
}

fn push_words(out: &mut Vec<u8>, words: &[u32]) {
    words.iter().for_each(|word| out.extend_from_slice(&word.to_ne_bytes()));
}

/// Two numbers of 16 bits: code and length of an option, and the pairs that look like one.
fn push_option_head(out: &mut Vec<u8>, code: u16, len: u16) {
    out.extend_from_slice(&code.to_ne_bytes());
    out.extend_from_slice(&len.to_ne_bytes());
}

#[cfg(test)]
mod tests;
