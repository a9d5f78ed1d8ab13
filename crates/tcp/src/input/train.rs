//! Segments that follow each other (seed 000, 7: "Multidata Receive").
//!
//! A sender that has much to say sends segment after segment with the same header, but for the
//! sequence number and PSH. Of such a train the first segment takes every step of
//! [`on_segment`](Connection::on_segment); the steps before the data have nothing more to learn from
//! those that follow, for they say the same again: the timestamp is in order, nothing is reset, the
//! ACK is one that was processed and, with payload beside it, no duplicate that counts
//! (RFC 5681, 2). What is left of a follower is its payload, at RCV.NXT and within the window; so
//! the outcome is what it would have been one by one, to the last field.

use crate::connection::Connection;
use crate::receiver::cuts::Cuts;
use crate::receiver::queue::Arrival;
use batch::{BlockPool, Chunk};
use counters::DropReason;
use time::Instant;
use wire::{SeqNumber, TcpHeader};

/// A segment that says what the one before it said, and goes on where that ended.
#[derive(Debug)]
pub struct Follower {
    /// Its payload; not empty.
    pub payload: Chunk,
    /// The payload's block holds little else: copy the payload instead of keeping the block.
    pub sparse: bool,
    /// Payload bytes of each of the segments of the wire that it stands for, but for the last; 0 where it is one.
    pub segment_len: u32,
    /// It carries PSH.
    pub pushed: bool,
}

impl Connection {
    /// Takes segments that follow the one that [`on_segment`](Connection::on_segment) took last, at
    /// the same instant, and whose headers equal `leader`, its header, in everything but the sequence
    /// number and PSH. It has ACK and payload; it has no SYN, FIN, RST, URG, ECE or CWR, no option
    /// but timestamps, and no mark of congestion.
    ///
    /// `next` is asked for the follower that begins at a sequence number and has at most so many
    /// bytes, until it has none. What follows but does not fit this, it keeps, for `on_segment`.
    ///
    /// # Errors
    /// Why the last follower handed out was dropped. Those before it were taken.
    pub fn on_followers(
        &mut self,
        now: Instant,
        leader: &TcpHeader,
        pool: &BlockPool,
        mut next: impl FnMut(SeqNumber, u32) -> Option<Follower>,
    ) -> Result<(), DropReason> {
        if !self.state.receives_data() || self.is_unheard() || self.receiver.queue.has_gap() {
            return Ok(());
        }
        let start = self.receiver.queue.next();
        let copied_before = self.receiver.queue.copied_bytes();
        let (mut last, mut count, mut segments, mut pushed) = (None, 0_u32, 0, false);
        let mut outcome = Ok(());
        while let Some(follower) = next(self.receiver.queue.next(), self.receiver.queue.window()) {
            let sequence = self.receiver.queue.next();
            let cuts = Cuts::of(leader, follower.segment_len, self.negotiated.mss_receive());
            let of_wire = cuts.count(follower.payload.len() as u32);
            self.counters.segments_received += u64::from(of_wire);
            self.totals.segments_received += u64::from(of_wire);
            // Its header counts even where its payload is not kept.
            last = Some(sequence);
            count += 1;
            if self.receiver.acks.notes_each() {
                // What is due is as good as sent, so the same timestamp may be the one to echo now.
                self.receiver.take_timestamp_of(now, leader, sequence, &mut self.negotiated);
            }
            let arrival = self.receiver.queue.insert(0, follower.payload, follower.sparse, pool);
            if arrival != Arrival::InOrder {
                outcome = Err(self.receiver.on_refused(arrival, &mut self.counters));
                break;
            }
            pushed = follower.pushed;
            segments += of_wire;
            if self.receiver.acks.notes_each() {
                self.receiver.note_follower(
                    now,
                    leader,
                    (sequence, cuts),
                    &mut self.negotiated,
                    &mut self.counters,
                );
            }
        }
        self.counters.copied_bytes += self.receiver.queue.copied_bytes() - copied_before;
        if self.negotiated.is_missing_timestamp(leader) {
            self.counters.timestamps_missing += u64::from(segments);
        }
        if let Some(sequence) = last {
            // SND.WL1 is that of the newest segment.
            let was_closed = self.sender.sequence.window == 0;
            self.take_window(&TcpHeader { sequence, ..*leader });
            // As before each of them one by one: a closed window is the peer's right (RFC 9293, 3.8.6.1, MUST-37).
            if was_closed || (count > 1 && self.sender.sequence.window == 0) {
                self.forgive_timeouts();
            }
            if segments > 0 {
                self.on_in_order(now, start, segments, pushed);
            }
            self.arm_persist(now);
        }
        outcome
    }
}
