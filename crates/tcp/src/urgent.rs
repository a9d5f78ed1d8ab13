//! Urgent data (RFC 9293, 3.8.5; RFC 6093): a mark in the stream, and nothing else.
//!
//! The urgent pointer tells the peer that the bytes before a place in the stream are urgent: it is
//! relative to the segment's sequence number and names the byte *behind* the urgent data (RFC 6093,
//! 4; RFC 9293, MUST-62). Urgent data stays in line, as with SO_OOBINLINE (RFC 6093, 6: applications
//! that use it MUST set that): it is never taken out of the stream, whatever others do with its last
//! byte. What an application gets is the mark, which stands before the last urgent byte, as elsewhere:
//! reads stop there, so that it can tell what lies before.
//!
//! ```text
//!   read ...  | not urgent? | urgent ........ U | what follows
//!                            mark ------------^  ^------ RCV.UP, SND.UP
//! ```
//!
//! RFC 6093, 5: new applications SHOULD NOT use any of this.

use crate::connection::Connection;
use crate::event::{Events, SendError};
use batch::Chunk;
use time::Instant;
use wire::{SeqNumber, TcpFlags, TcpHeader};

/// The urgent pointers of both directions, while they mean something.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Urgent {
    /// RCV.UP: one past the last urgent byte, until that was read.
    received: Option<SeqNumber>,
    /// SND.UP: the same of what we send, until that was acknowledged.
    sent: Option<SeqNumber>,
}

impl Urgent {
    /// The pointer of a segment at `sequence`; 0 where nothing urgent lies ahead of it. RFC 9293,
    /// MUST-31: urgent data may be of any length, so what a pointer cannot reach is pointed towards.
    #[inline]
    pub(crate) fn pointer_at(&self, sequence: SeqNumber) -> u16 {
        let Some(up) = self.sent else { return 0 };
        let ahead = u32::try_from(up.distance(sequence)).unwrap_or(0);
        u16::try_from(ahead).unwrap_or(u16::MAX)
    }

    /// Whether something urgent is not acknowledged.
    #[inline]
    pub(crate) fn is_sending(&self) -> bool {
        self.sent.is_some()
    }

    /// Everything before `una` is acknowledged.
    #[inline]
    pub(crate) fn on_acknowledged(&mut self, una: SeqNumber) {
        self.sent = self.sent.filter(|up| una.is_before(*up));
    }

    /// The mark, in bytes behind `position`, which is read next.
    fn mark(&self, position: SeqNumber) -> Option<usize> {
        self.received.map(|up| (up - 1).offset_from(position) as usize)
    }
}

impl Connection {
    /// Queues data as [`Connection::append`] does, and marks the stream as urgent up to its end. The
    /// mark moves where data is marked again (RFC 9293, 3.8.5: there is one).
    ///
    /// # Errors
    /// As [`Connection::append`].
    pub fn append_urgent(&mut self, now: Instant, chunk: Chunk) -> Result<(), SendError> {
        let is_empty = chunk.is_empty();
        self.append(now, chunk)?;
        if !is_empty {
            self.urgent.sent = Some(self.sender.queue.end_sequence());
        }
        Ok(())
    }

    /// How many bytes can be read before the last urgent one, which may not have arrived yet: 0 where
    /// that is next (RFC 9293, MUST-33); `None` where nothing urgent is ahead.
    #[must_use]
    pub fn urgent_mark(&self) -> Option<usize> {
        self.urgent.mark(self.receiver.queue.position())
    }

    /// How much one read may take: it stops at the mark, unless it begins there.
    #[inline]
    pub(crate) fn read_len_max(&self, wanted: usize) -> usize {
        match self.urgent.received.and_then(|_| self.urgent_mark()) {
            Some(before) if before > 0 => wanted.min(before),
            _ => wanted,
        }
    }

    /// Something was read.
    #[inline]
    pub(crate) fn note_read_urgent(&mut self) {
        if let Some(up) = self.urgent.received
            && self.receiver.queue.position().is_at_or_after(up)
        {
            self.urgent.received = None;
        }
    }

    /// An acceptable segment with URG arrived (RFC 9293, 3.10.7.4, sixth): RCV.UP is the larger of what
    /// it was and what the segment says; the application hears of it when it moves (MUST-32).
    #[inline]
    pub(crate) fn on_urgent(&mut self, header: &TcpHeader) {
        if !header.flags.contains(TcpFlags::URG) || header.urgent == 0 {
            return;
        }
        let syn = u32::from(header.flags.contains(TcpFlags::SYN));
        let up = header.sequence + syn + u32::from(header.urgent);
        let is_news = self.urgent.received.is_none_or(|before| up.is_after(before));
        if is_news && up.is_after(self.receiver.queue.position()) {
            self.urgent.received = Some(up);
            self.counters.urgent_marks_received += 1;
            self.events.insert(Events::URGENT);
        }
    }
}
