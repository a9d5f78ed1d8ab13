//! Writes planned segments into a batch.

use super::stamp::Stamp;
use super::{Kind, Planned};
use crate::connection::Connection;
use crate::sender::queue::{Cursor, SendQueue};
use batch::{Attributes, Chunk, Chunks, Multidata};
use time::Instant;
use wire::{SeqNumber, TcpFlags};

/// The most pieces of payload in one segment; more small chunks than that make it shorter.
const SPANS_PER_SEGMENT_MAX: usize = 16;

/// Where the sequence number is in a TCP header (RFC 9293, 3.1), in bytes.
const SEQUENCE_OFFSET: u8 = 4;

/// Where the flags are, in bytes.
const FLAGS_OFFSET: usize = 13;

/// Length of the header of a segment with timestamps and no other option.
const STAMP_LEN_USUAL: usize = 32;

/// Writes planned segments into a batch.
pub(super) struct Builder {
    pub(super) attributes: Attributes,
    pub(super) stamp: Stamp,
    /// The header of the ACK that reports a duplicate, where one is to be reported.
    pub(super) report: Option<Stamp>,
    /// How many ACKs that are due were written.
    pub(super) due: usize,
    /// Where the payload of the next new segment lies, while new segments follow each other.
    pub(super) cursor: Option<Cursor>,
    /// Payload length of the open run; 0 where none is open.
    pub(super) run_len: u32,
    /// Flags of every segment that carries the ACK.
    pub(super) flags: TcpFlags,
    /// The ECN codepoint of new data.
    pub(super) new_data_ecn: u8,
    /// The next new data carries CWR; as the first of its run, where an engine leaves it.
    pub(super) owes_cwr: bool,
}

impl Builder {
    /// Writes one segment. Shortens it where its payload lies in too many pieces. Says whether
    /// the batch had room.
    #[inline]
    pub(super) fn push(
        &mut self,
        connection: &Connection,
        now: Instant,
        segment: &mut Planned,
        out: &mut Multidata,
    ) -> bool {
        let is_sent_before = segment.sequence.is_before(connection.sender.sequence.nxt);
        match segment.kind {
            Kind::New => self.push_new(connection, segment, out),
            // New data as any other, with CWR where that is owed.
            Kind::LossProbe if !is_sent_before => self.push_new(connection, segment, out),
            Kind::Reset | Kind::Syn => {
                let stamp = Stamp::of_control(connection, now, segment.kind);
                let flags = TcpFlags(stamp.bytes[FLAGS_OFFSET]);
                push_segment(out, self.attributes, &stamp, segment, flags, 0)
                    && (segment.len == 0 || push_syn_data(connection, segment, out))
            }
            Kind::Due => {
                (self.attributes.run, self.attributes.ecn) = (0, 0);
                let due = Stamp::of_due(connection, now, self.due);
                self.due += 1;
                due.is_some_and(|(stamp, flags)| {
                    push_segment(out, self.attributes, &stamp, segment, flags, 0)
                })
            }
            Kind::Ack if self.report.is_some() => {
                (self.attributes.run, self.attributes.ecn) = (0, 0);
                let stamp = self.report.as_ref().unwrap_or(&self.stamp);
                push_segment(out, self.attributes, stamp, segment, self.flags, 0)
            }
            _ => {
                // What comes here lies anywhere, or is new and stands by itself: a probe of the path's MTU.
                // New data behind it begins where that ends, and a run of its own.
                let mut cursor = connection.sender.queue.cursor(segment.sequence);
                (self.cursor, self.run_len, self.attributes.run) = (None, 0, 0);
                // RFC 3168, 6.1.4 and 6.1.5: neither pure ACKs, probes nor what is sent again.
                self.attributes.ecn = 0;
                self.push_payload(connection, &mut cursor, segment, self.flags, out)
            }
        }
    }

    #[inline]
    fn push_new(
        &mut self,
        connection: &Connection,
        segment: &mut Planned,
        out: &mut Multidata,
    ) -> bool {
        let mut cursor = match self.cursor {
            Some(cursor) => cursor,
            None => connection.sender.queue.cursor(segment.sequence),
        };
        let mut flags = self.flags;
        self.attributes.ecn = self.new_data_ecn;
        if segment.len == 0 {
            self.run_len = 0;
            self.attributes.run = 0;
            self.attributes.ecn = 0;
        } else {
            let with_cwr = core::mem::take(&mut self.owes_cwr);
            if with_cwr {
                flags |= TcpFlags::CWR;
            }
            if connection.urgent.pointer_at(segment.sequence) > 0 {
                // The pointer differs from segment to segment, which no engine would see to.
                self.run_len = 0;
                self.attributes.run = 0;
            } else if with_cwr || segment.len > self.run_len {
                // The first of its run, or longer than those before it.
                self.run_len = segment.len;
                self.attributes.run = out.next_run();
            }
        }
        if !self.push_payload(connection, &mut cursor, segment, flags, out) {
            return false;
        }
        self.cursor = Some(cursor);
        if segment.len < self.run_len
            || connection.sender.queue.ends_at(segment.sequence + segment.len)
        {
            // A shorter segment is the last of its run, and one that ends a record.
            self.run_len = 0;
        }
        true
    }

    /// Appends up to `count` segments that follow `first`, which was written last, and differ from it
    /// in their sequence numbers only, as far as their payload lies in the same chunk; says how many.
    /// Their headers are implied by its own: nobody writes them before somebody looks.
    pub(super) fn push_more(
        &mut self,
        connection: &Connection,
        first: &Planned,
        count: u32,
        out: &mut Multidata,
    ) -> u32 {
        let len = first.len as usize;
        let Some(cursor) = &mut self.cursor else { return 0 };
        let last = out.len().checked_sub(1).and_then(|index| out.packet(index));
        if last.is_none_or(|last| last.written_header().get(FLAGS_OFFSET) != Some(&self.flags.0)) {
            // One with CWR says what the others do not.
            return 0;
        }
        let Some((block, offset, pieces)) = connection.sender.queue.pieces(cursor, len) else {
            return 0;
        };
        let count = pieces.min(count as usize);
        let pushed = out.push_implied(count, SEQUENCE_OFFSET, (block, offset));
        cursor.advance(pushed * len);
        pushed as u32
    }

    #[inline]
    fn push_payload(
        &self,
        connection: &Connection,
        cursor: &mut Cursor,
        segment: &mut Planned,
        always: TcpFlags,
        out: &mut Multidata,
    ) -> bool {
        let queue = &connection.sender.queue;
        let urgent = connection.urgent.pointer_at(segment.sequence);
        let always = if urgent > 0 { always | TcpFlags::URG } else { always };
        let mut flags = always;
        if segment.fin {
            flags |= TcpFlags::FIN;
        }
        if segment.len > 0 && queue.ends_at(segment.sequence + segment.len) {
            flags |= TcpFlags::PSH;
        }
        if !push_segment(out, self.attributes, &self.stamp, segment, flags, urgent) {
            return false;
        }
        if segment.len == 0 {
            return true;
        }
        let visited = queue.visit(
            cursor,
            segment.len as usize,
            SPANS_PER_SEGMENT_MAX,
            |block, offset, len| out.append_span(block, offset, len),
        );
        if visited == Some(segment.len as usize) {
            return true;
        }
        // What is made anew is perhaps shorter, and then the last of nothing.
        out.truncate(out.len() - 1);
        *cursor = queue.cursor(segment.sequence);
        let payload = gather(queue, cursor, segment.len);
        if (payload.len() as u32) < segment.len {
            (segment.len, segment.fin, flags) = (payload.len() as u32, false, always);
            segment.is_cut = true;
        }
        segment.len > 0
            && push_segment(out, self.attributes, &self.stamp, segment, flags, urgent)
            && append_gathered(&payload, out)
    }
}

/// The pieces of the next `len` bytes, as many as one segment may have.
#[cold]
fn gather(queue: &SendQueue, cursor: &mut Cursor, len: u32) -> Chunks {
    let mut pieces = Vec::with_capacity(SPANS_PER_SEGMENT_MAX);
    queue.visit(cursor, len as usize, SPANS_PER_SEGMENT_MAX, |block, offset, len| {
        pieces.push(Chunk::new(block.clone(), offset..offset + len));
        true
    });
    pieces.into_iter().collect()
}

/// Appends all of `payload` to the segment pushed last: copied together where it lies in more blocks than
/// any batch of the device may refer to, or it would never leave. Where only this batch has no room, the
/// segment is taken away.
#[cold]
fn append_gathered(payload: &Chunks, out: &mut Multidata) -> bool {
    let is_appended = out.append_chunks(payload, 0..payload.len());
    if !is_appended {
        out.truncate(out.len() - 1);
    }
    is_appended
}

/// Appends the data of a SYN (RFC 7413), or as much of it as there are pieces for.
#[cold]
fn push_syn_data(connection: &Connection, segment: &mut Planned, out: &mut Multidata) -> bool {
    let mut cursor = connection.sender.queue.cursor(segment.sequence + 1);
    let payload = gather(&connection.sender.queue, &mut cursor, segment.len);
    segment.len = payload.len() as u32;
    append_gathered(&payload, out)
}

/// Writes the header of one segment. The only place where a segment is made.
#[inline]
fn push_segment(
    out: &mut Multidata,
    attributes: Attributes,
    stamp: &Stamp,
    segment: &Planned,
    flags: TcpFlags,
    urgent: u16,
) -> bool {
    let Some(header) = out.push_packet(stamp.len, attributes) else { return false };
    write_header(header, stamp, segment.sequence, flags);
    if urgent > 0 {
        header[18..20].copy_from_slice(&urgent.to_be_bytes());
    }
    true
}

/// Writes a header of the stamp's length.
#[inline]
fn write_header(header: &mut [u8], stamp: &Stamp, sequence: SeqNumber, flags: TcpFlags) {
    match header.first_chunk_mut::<STAMP_LEN_USUAL>() {
        // A copy of known length is a few moves instead of a call; segments of a stream are thus.
        Some(usual) if stamp.len == STAMP_LEN_USUAL => {
            usual.copy_from_slice(&stamp.bytes[..STAMP_LEN_USUAL]);
        }
        _ => header.copy_from_slice(&stamp.bytes[..stamp.len]),
    }
    header[4..8].copy_from_slice(&sequence.0.to_be_bytes());
    header[FLAGS_OFFSET] = flags.0;
}
