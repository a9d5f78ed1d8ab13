//! What a connection must hand its application: of bytes that came several times, the first that it took.
//!
//! A peer's stream is a function of the port and the sequence number, in [`VARIANTS`] variants that differ in
//! every byte; a segment carries one of them. [`Stream`] notes for each position which variant was taken there
//! first. Whether a segment is taken at all is for the stack to decide (timestamps, window, memory, state), and
//! the connection's own account of itself says what it decided: how far RCV.NXT went, whether something was kept
//! ahead of it, where the window ends. Which bytes those are, and so what is read, follows from that:
//!
//! * what RCV.NXT passed waited already, or is this segment's;
//! * of a segment that was kept ahead of its turn, everything new within the window was;
//! * what is here stays, and a segment that says something else there is counted as long as that is unread.

use crate::segments::content;
use tcp::TcpInfo;

/// Variants of every stream.
pub(crate) const VARIANTS: u8 = 4;

/// Nothing was taken at a position.
const NOTHING: u8 = u8::MAX;

/// Segments taken up to which what is unread certainly lies in as few chunks as the stack compares. A piece
/// begins and ends where a segment does, and a copy may lie in two blocks.
const COMPARED_MAX: usize = 15;

/// What a segment says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    /// The sequence number of its first byte.
    pub(crate) first: u32,
    pub(crate) len: usize,
    pub(crate) variant: u8,
    pub(crate) has_syn: bool,
}

/// What the shard counted while it took a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    pub(crate) duplicates: u64,
    pub(crate) conflicts: u64,
}

/// One connection's stream from the peer.
#[derive(Debug)]
pub(crate) struct Stream {
    port: u16,
    /// The sequence number of the first byte.
    start: u32,
    /// The variant taken first at each position.
    held: Vec<u8>,
    /// How far the application has read.
    read: usize,
    /// What the connection said of itself last: bytes in order, and segments in all and ahead of their turn.
    in_order: usize,
    segments: u64,
    out_of_order: u32,
    /// Segments of which something was taken, or might have been.
    taken: usize,
}

impl Stream {
    /// A stream from `start` on, of which nothing was taken.
    pub(crate) fn new(port: u16, start: u32) -> Self {
        Self {
            port,
            start,
            held: Vec::new(),
            read: 0,
            in_order: 0,
            segments: 0,
            out_of_order: 0,
            taken: 0,
        }
    }

    /// The connection was handed a segment, and says so much of itself before it has sent anything.
    pub(crate) fn on_segment(&mut self, claim: &Claim, info: &TcpInfo, counted: Counted) {
        if info.segments_received == self.segments {
            return;
        }
        self.segments = info.segments_received;
        let edge = self.position(info.receive_next.0.wrapping_add(info.receive_window_bytes));
        let first = self.position(claim.first);
        let (from, to) =
            (first.max(0) as usize, (first + claim.len as i64).min(edge).max(0) as usize);
        let conflicts = |to| {
            let held = (from.max(self.read)..to).filter_map(|at| self.held.get(at));
            held.copied().any(|held| held != NOTHING && held != claim.variant)
        };
        let (old_conflicts, conflicts) = (conflicts(to.min(self.in_order)), conflicts(to));
        let next = info.bytes_received as usize;
        assert!(next >= self.in_order, "RCV.NXT goes back");
        let is_ahead = info.segments_out_of_order > self.out_of_order;
        let is_taken = next > self.in_order || is_ahead;
        for at in self.in_order..next {
            if self.is_free(at) {
                assert!((from..to).contains(&at), "nobody sent the byte at {at}: {claim:?}");
                self.hold(at, claim.variant);
            }
        }
        for at in if is_ahead { from.max(next)..to } else { 0..0 } {
            if self.is_free(at) {
                self.hold(at, claim.variant);
            }
        }
        if self.position(info.receive_next.0) != next as i64 {
            // What lies beyond a FIN is not data.
            self.held.truncate(next);
        }
        assert!(self.is_free(next), "what waits at {next} is next, and still waits");
        (self.in_order, self.out_of_order) = (next, info.segments_out_of_order);
        assert!(counted.conflicts == 0 || conflicts, "a conflict that is none: {claim:?}");
        // What comes with a SYN is of another connection.
        let is_compared = is_taken || (counted.duplicates > 0 && !claim.has_syn);
        let is_counted = counted.conflicts > 0 || self.taken > COMPARED_MAX;
        // Of a segment that begins with what came before that may be all that was looked at: the rest was refused.
        let conflicts = if is_taken || first >= next as i64 { conflicts } else { old_conflicts };
        assert!(!is_compared || !conflicts || is_counted, "a conflict is not counted: {claim:?}");
        self.taken += usize::from(is_compared);
    }

    /// The application has read these bytes: each must be what was taken first at its place.
    pub(crate) fn on_read(&mut self, bytes: &[u8]) {
        for byte in bytes {
            let at = self.read;
            assert!(at < self.in_order, "the byte at {at} is not here yet");
            let expected = content(self.port, self.start.wrapping_add(at as u32)) ^ self.held[at];
            assert_eq!(*byte, expected, "port {}: the byte at {at} is not the first", self.port);
            self.read += 1;
        }
    }

    /// Whether the connection was handed something that this does not know.
    pub(crate) fn is_behind(&self, info: &TcpInfo) -> bool {
        (info.bytes_received as usize, info.segments_out_of_order)
            != (self.in_order, self.out_of_order)
    }

    /// Where a sequence number near the stream's lies in it.
    fn position(&self, sequence: u32) -> i64 {
        let near = self.start.wrapping_add(self.in_order as u32);
        self.in_order as i64 + i64::from(sequence.wrapping_sub(near) as i32)
    }

    fn is_free(&self, at: usize) -> bool {
        self.held.get(at).is_none_or(|held| *held == NOTHING)
    }

    fn hold(&mut self, at: usize, variant: u8) {
        if self.held.len() <= at {
            self.held.resize(at + 1, NOTHING);
        }
        self.held[at] = variant;
    }
}
