//! Resets of a connection: which of them end it, and what they say of its end.

use super::{ACK_DELAY_MAX, Flow, HALF, NEIGHBOUR_WAIT_MAX};
use crate::packet::Segment;
use time::Instant;

impl Flow {
    /// A reset goes out. Says whether it stands where the next byte would, as one does that ends the
    /// connection. Where the neighbour was asked for at `asked_at`, or the connection began in this moment, it may also
    /// be one that refused a segment of before and comes late.
    pub(crate) fn on_reset_sent(
        &mut self,
        now: Instant,
        reset: &Segment<'_>,
        asked_at: Option<Instant>,
    ) -> bool {
        let ends = self.stands_at_end(reset);
        let may_wait = asked_at.is_some_and(|at| at + NEIGHBOUR_WAIT_MAX > now);
        if !ends && self.spoke_at.is_some_and(|at| may_wait || at == now) {
            return false;
        }
        // What it answers tells who is long gone of a peer that is not.
        let is_answer = self.waits.arrived_at() == Some(now);
        let waits = if is_answer { self.waits_before } else { self.waits };
        self.at_reset.get_or_insert((now, waits));
        // Before the peer has acknowledged our SYN a reset may refuse its segment and leave the
        // connection as it is (RFC 9293, 3.10.7.4, SYN-RECEIVED); or, where it stands elsewhere and nothing was
        // said yet, the answer to a SYN before that came with the one to this.
        self.reset_sent |= self.acked >= 1 && (ends || self.spoke_at.is_some());
        self.has_refused |= self.spoke_at.is_none();
        self.owes_since = None;
        ends
    }

    /// A reset of the peer arrived. One that names the next byte ends the connection (RFC 5961, 3.2), and with it what may
    /// still have been delayed: the ACK of the last that came. What was due by then stays owed.
    pub(super) fn on_reset_arrived(&mut self, now: Instant, reset: &Segment<'_>) {
        let (position, next) = (self.peer_position(reset.sequence), self.arrived.contiguous());
        self.reset_heard |= self.irs.is_none() || (self.ack_sent..=next).contains(&position);
        if self.irs.is_some() && position == next {
            self.owes_since = self.owes_since.filter(|since| now.since(*since) > ACK_DELAY_MAX);
        }
    }

    fn stands_at_end(&self, reset: &Segment<'_>) -> bool {
        let position = self.position(reset.sequence);
        // What went with the SYN may not have been taken, or in part (RFC 7413, 4.2.2).
        // The byte of a window probe is not sent yet, nor by an ACK that nobody looked at.
        let nexts = [self.acked, self.acked_surely].map(|acked| self.data_end.max(acked));
        let is_behind_lost = self.may_skip && (self.end..u64::from(HALF)).contains(&position);
        let is_next = position == self.end || nexts.contains(&position);
        // Where the window has shrunk to less than was sent, the peer takes a reset at its edge, and none behind that.
        let is_edge = position < self.end && self.peer_window.may_end_at(position);
        is_next || is_behind_lost || is_edge || (position == 1 && self.syn_end > 1)
    }

    /// A connection that a cookie opens begins with the first thing it says. Resets before that refused
    /// segments that overtook the one with the cookie (RFC 4987, 3.6).
    pub(super) fn forget_refusals(&mut self) {
        self.reset_sent = false;
        self.at_reset = None;
        self.reset_heard = false;
    }
}
