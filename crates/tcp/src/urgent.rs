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

/// The urgent pointers of both directions, while they mean something. (Every idle connection has these, and as `Option`s
/// they are longer.)
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Urgent {
    /// RCV.UP: one past the last urgent byte, until that was read; where `has_received`.
    received: SeqNumber,
    /// SND.UP: the same of what we send, until that was acknowledged; where `has_sent`.
    sent: SeqNumber,
    has_received: bool,
    has_sent: bool,
}

impl Urgent {
    /// The pointer of a segment at `sequence`; 0 where nothing urgent lies ahead of it. RFC 9293,
    /// MUST-31: urgent data may be of any length, so what a pointer cannot reach is pointed towards.
    #[inline]
    pub(crate) fn pointer_at(&self, sequence: SeqNumber) -> u16 {
        if !self.has_sent {
            return 0;
        }
        let ahead = u32::try_from(self.sent.distance(sequence)).unwrap_or(0);
        u16::try_from(ahead).unwrap_or(u16::MAX)
    }

    /// Whether something urgent is not acknowledged.
    #[inline]
    pub(crate) fn is_sending(&self) -> bool {
        self.has_sent
    }

    /// What is queued is urgent up to `end`.
    fn on_append(&mut self, end: SeqNumber) {
        (self.sent, self.has_sent) = (end, true);
    }

    /// Everything before `una` is acknowledged.
    #[inline]
    pub(crate) fn on_acknowledged(&mut self, una: SeqNumber) {
        self.has_sent = self.has_sent && una.is_before(self.sent);
    }

    /// The peer's data is urgent up to `up`. Says whether it was not known to be.
    fn on_received(&mut self, up: SeqNumber) -> bool {
        let is_news = !self.has_received || up.is_after(self.received);
        if is_news {
            (self.received, self.has_received) = (up, true);
        }
        is_news
    }

    /// Everything before `position` was read.
    #[inline]
    fn on_read(&mut self, position: SeqNumber) {
        self.has_received = self.has_received && position.is_before(self.received);
    }

    /// The mark, in bytes behind `position`, which is read next.
    #[inline]
    fn mark(&self, position: SeqNumber) -> Option<usize> {
        self.has_received.then(|| (self.received - 1).offset_from(position) as usize)
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
            self.urgent.on_append(self.sender.queue.end_sequence());
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
        match self.urgent_mark() {
            Some(before) if before > 0 => wanted.min(before),
            _ => wanted,
        }
    }

    /// Something was read.
    #[inline]
    pub(crate) fn note_read_urgent(&mut self) {
        self.urgent.on_read(self.receiver.queue.position());
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
        if up.is_after(self.receiver.queue.position()) && self.urgent.on_received(up) {
            self.counters.urgent_marks_received += 1;
            self.events.insert(Events::URGENT);
        }
    }
}
