//! What arrived and is to be answered, and since when it waits for that.

use super::{ACK_DELAY_MAX, CHALLENGES_COUNTED_FOR, Flow, NEIGHBOUR_WAIT_MAX};
use crate::packet::{Segment, flag};
use time::Instant;

impl Flow {
    /// Whether something came that should have been answered by now. The answer may wait for the neighbour,
    /// or have been given up with it, which was asked for at `asked_at` last.
    pub(crate) fn owes_answer(&self, now: Instant, asked_at: Option<Instant>) -> bool {
        let is_held = |since| asked_at.is_some_and(|at| at + NEIGHBOUR_WAIT_MAX > since);
        // And in TIME-WAIT answers are few.
        let has_heard_all = self.peer_fin.is_some_and(|fin| self.arrived.contiguous() > fin);
        let is_over = has_heard_all && self.fin.is_some_and(|fin| self.acked > fin);
        let is_due = |since| now.since(since) > ACK_DELAY_MAX && !is_held(since);
        !self.is_half_open() && !is_over && self.owes_since.is_some_and(is_due)
    }

    /// Whether what comes may be dropped until the application has accepted the connection.
    pub(super) fn is_half_open(&self) -> bool {
        self.is_passive && self.ack_sent <= 1 && self.end <= 1
    }

    /// What came is answered, or was so by another SYN-ACK than the one that is believed.
    pub(crate) fn forget_debts(&mut self) {
        self.owes_since = None;
    }

    /// A keepalive probe asks for an ACK, but an ACK that was overtaken stands there, too, and only so many a second get
    /// one (RFC 5961, 7 and 10); so do ACKs where the window is closed, as a probe's byte does not count as sent until its
    /// ACK has come. The peer's SYN asks for its SYN-ACK again, but not where its ACK comes with it; later it is
    /// challenged, which is limited.
    pub(super) fn asks_for_answer(&self, now: Instant, segment: &Segment<'_>, start: u64) -> bool {
        let is_syn_again = segment.has(flag::SYN) && self.is_passive;
        let is_open =
            self.edge_sent >= self.ack_sent + (1 << self.shifts().0) && self.probed_to.is_none();
        let is_limited = self.told_at.is_some_and(|at| now.since(at) < CHALLENGES_COUNTED_FOR);
        let is_keepalive = start + 1 == self.ack_sent && is_open && !is_limited;
        let is_keepalive = is_keepalive && !self.may_be_too_old(segment);
        (!segment.is_empty() || is_keepalive) && !is_syn_again
    }
}
