//! Lowering for a UDP socket: sealed packets end to end in one block, cut into messages.
//!
//! A message is what the kernel cuts into datagrams of a fixed size (seed 003, 5.1: fragmentation by
//! fixed size), so it holds datagrams of one length, of which the last may be shorter, up to
//! [`SEGMENTS_MAX`] of them and [`MERGED_LEN_MAX`] bytes:
//!
//! ```text
//!  block    | 1,472 | 1,472 | 1,472 | 900 || 76 || 1,472 | 1,472 |
//!  messages | 3 segments and a rest       || one || 2 segments   |
//! ```
//!
//! Each packet is sealed straight into its place; where it turns out to be longer than the message
//! allows, the next message begins with it, and nothing has moved.

use super::calls::{MESSAGES_MAX, Message};
use batch::PacketView;
use device::Transform;

/// Datagrams of one message at most (UDP_MAX_SEGMENTS of the kernels that have the fewest).
pub(super) const SEGMENTS_MAX: usize = 64;

/// The payload of the longest UDP datagram over IPv4.
pub(super) const DATAGRAM_LEN_MAX: usize = 65_507;

/// Bytes of several datagrams in a message at most. The kernel would take as many as in one datagram,
/// but a device takes what is shorter than 65,536 bytes with all headers (`gso_max_size`), and what
/// is not the kernel cuts before it reaches the device: over loopback it then arrives in pieces. 40
/// bytes are for IPv6, 8 for UDP, 18 for Ethernet with a tag.
pub(super) const MERGED_LEN_MAX: usize = 65_535 - 40 - 8 - 18;

/// Bytes that are sealed before they are sent: what fits the second level of a cache.
const BLOCK_LEN_BYTES: usize = 256 * 1_024;

/// The block and the messages in it.
#[derive(Debug)]
pub(super) struct Lowered {
    block: Vec<u8>,
    end: usize,
    messages: Vec<Message>,
    /// Messages of one call at most.
    pub(super) messages_max: usize,
    /// Whether a message may hold several datagrams.
    pub(super) segments: bool,
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pushed {
    /// It lies in the block.
    Taken,
    /// The block or the last message of a call is full: send first.
    Full,
    /// The transform does not seal it.
    Unsealed,
}

impl Lowered {
    pub(super) fn new(messages_max: usize, segments: bool) -> Self {
        Self {
            block: vec![0; BLOCK_LEN_BYTES],
            end: 0,
            messages: Vec::with_capacity(MESSAGES_MAX),
            messages_max: messages_max.clamp(1, MESSAGES_MAX),
            segments,
        }
    }

    pub(super) fn clear(&mut self) {
        self.end = 0;
        self.messages.clear();
    }

    pub(super) fn block(&self) -> &[u8] {
        &self.block
    }

    pub(super) fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Seals a packet into its place.
    pub(super) fn push(
        &mut self,
        packet: &PacketView<'_>,
        transform: &mut dyn Transform,
    ) -> Pushed {
        let is_last = self.messages.len() == self.messages_max;
        if is_last && !self.messages.last().is_some_and(|last| self.is_open(last)) {
            return Pushed::Full;
        }
        let len_max = packet.len() + transform.overhead_bytes();
        let Some(out) = self.block.get_mut(self.end..self.end + len_max) else {
            return if self.messages.is_empty() { Pushed::Unsealed } else { Pushed::Full };
        };
        let Some(len) = transform.seal(packet, out).filter(|len| *len > 0) else {
            return Pushed::Unsealed;
        };
        let joins =
            self.messages.last().is_some_and(|last| self.is_open(last) && len <= last.segment_len);
        match self.messages.last_mut() {
            Some(last) if joins => {
                last.bytes.end += len;
                last.count += 1;
            }
            // What was sealed in vain is forgotten, and sealed anew for the next call.
            _ if is_last => return Pushed::Full,
            _ => {
                let bytes = self.end..self.end + len;
                self.messages.push(Message { bytes, segment_len: len, count: 1 });
            }
        }
        self.end += len;
        Pushed::Taken
    }

    /// Whether another datagram of the same length may stand at the end of a message.
    fn is_open(&self, message: &Message) -> bool {
        let filled = message.bytes.len();
        self.segments
            && message.count < SEGMENTS_MAX
            && filled == message.count * message.segment_len
            && filled + message.segment_len <= MERGED_LEN_MAX
    }
}

#[cfg(test)]
mod tests;
