//! What an ACK means for loss recovery and congestion control.
//!
//! ```text
//!   delivered -> mistakes undone -> losses found -> controller told -> recovery left or entered
//!                                                                   -> proportional rate reduction
//! ```
//!
//! An ACK that moves SND.UNA while nothing is lost, SACKed or in doubt passes straight to the
//! controller.

use crate::connection::Connection;
use crate::info::count;
use crate::sender::feedback::AckFacts;
use crate::sender::recovery::{Delivered, RecoveryState, Witness};
use crate::timers::Timer;
use counters::trace;
use time::Instant;
use wire::TcpHeader;

impl Connection {
    /// Counts what an ACK has brought that had SACK blocks, or showed that segments overtook each other.
    pub(super) fn count_deliveries(&mut self, facts: &AckFacts) {
        let Delivered { sacked_bytes, refused_count, reordered, reneged, .. } = facts.delivered;
        self.counters.sacked_bytes += u64::from(sacked_bytes);
        self.counters.sack_blocks_invalid += u64::from(facts.report.invalid_count);
        self.counters.sack_edges_refused += u64::from(refused_count);
        self.counters.reordering_seen += u64::from(reordered);
        self.counters.sack_reneges += u64::from(reneged);
        let is_duplicate = facts.report.duplicate.is_some();
        self.counters.duplicate_sacks_received += u64::from(is_duplicate);
        count(&mut self.totals.duplicates_reported_by_peer, u32::from(is_duplicate));
        count(&mut self.totals.reorderings_seen, u32::from(reordered));
    }

    /// Loss recovery and congestion control, for every ACK.
    #[inline]
    pub(super) fn recover(&mut self, now: Instant, header: &TcpHeader, facts: &mut AckFacts) {
        let mss = self.negotiated.payload_max();
        let mut delivered_bytes = facts.delivered.bytes;
        if facts.advanced {
            let reported_before =
                self.sender.recovery.on_new_ack(&self.sender.sequence, facts.acked);
            if !self.negotiated.sack {
                delivered_bytes = reported_before;
            }
        }
        if facts.duplicate {
            self.counters.duplicate_acks_received += 1;
            delivered_bytes += self.sender.recovery.on_duplicate_ack(&self.sender.sequence, mss);
        }
        let has_news = facts.duplicate || facts.delivered.bytes > 0;
        if !facts.advanced && !has_news && facts.report.duplicate.is_none() {
            // Nothing new; it may still be the answer to a probe.
            return self.sender.check_probe(now, header, facts, mss, &mut self.counters);
        }
        self.check_mistakes(now, header, facts);
        let losses = self.sender.detect_losses(now, facts.advanced, mss, &mut self.counters);
        self.sender.tell_controller(now, facts, &self.negotiated, &mut self.counters);
        if self.sender.recovery.is_over(&self.sender.sequence) {
            self.leave_recovery(now);
        }
        if self.sender.wants_fast_recovery(losses.again_count) {
            self.enter_fast_recovery(now, facts.flight_before, facts.delivered.sacked_before);
        }
        let safe = facts.advanced && losses.bytes == 0;
        self.sender.reduce_proportionally(delivered_bytes, safe, mss);
        if facts.advanced {
            self.restart_retransmission_timer(now);
        }
        self.arm_loss_timer(now, losses.next_at);
    }

    /// Takes back what turns out to have been a mistake.
    fn check_mistakes(&mut self, now: Instant, header: &TcpHeader, facts: &AckFacts) {
        if let Some(block) = facts.report.duplicate {
            self.sender.recovery.on_duplicate_report(&self.sender.sequence, block);
        }
        let mss = self.negotiated.payload_max();
        self.sender.check_probe(now, header, facts, mss, &mut self.counters);
        if self.sender.recovery.state() == RecoveryState::Loss {
            let news = facts.duplicate || facts.delivered.sacked_bytes > 0;
            let can_send_new = self.has_new_data();
            let spurious = self.sender.recovery.on_frto(
                &self.sender.sequence,
                &facts.delivered,
                facts.advanced,
                news,
                can_send_new,
            );
            if spurious {
                return self.undo_recovery(now, Witness::Frto);
            }
        }
        let echo = header.options.timestamps.map(|timestamps| timestamps.echo);
        if let Some(witness) = self.sender.recovery.witness(facts.delivered.is_first_late, echo) {
            self.undo_recovery(now, witness);
        }
    }

    fn undo_recovery(&mut self, now: Instant, witness: Witness) {
        trace!(
            local_port = self.local_port,
            remote_port = self.remote_port,
            witness = ?witness,
            "recovery was a mistake"
        );
        match witness {
            Witness::Originals => self.counters.undone_by_originals += 1,
            Witness::Timestamps => self.counters.undone_by_timestamps += 1,
            Witness::Duplicates => self.counters.undone_by_duplicates += 1,
            Witness::Frto => self.counters.spurious_timeouts += 1,
        }
        self.sender.undo_recovery(now);
        // What was backed off was no loss (RFC 4015, 3), and the timer does not wait on as if it had been one.
        if self.sender.rtt.backoff_count() > 0 {
            self.timers.stop(Timer::Retransmission);
        }
        self.sender.rtt.reset_backoff();
        self.forgive_timeouts();
        if self.sender.sequence.flight() > 0 {
            // What would have set it again, the retransmission, may not be wanted any more.
            self.timers.set_if_idle(Timer::Retransmission, self.sender.rtt.expires_at(now));
        }
    }

    fn leave_recovery(&mut self, now: Instant) {
        trace!(
            local_port = self.local_port,
            remote_port = self.remote_port,
            una = self.sender.sequence.una.0,
            "recovery is over"
        );
        self.sender.leave_recovery(now);
    }

    /// Something is lost and no recovery is under way.
    pub(crate) fn enter_fast_recovery(
        &mut self,
        now: Instant,
        flight_before: u32,
        sacked_before: u32,
    ) {
        trace!(
            local_port = self.local_port,
            remote_port = self.remote_port,
            una = self.sender.sequence.una.0,
            nxt = self.sender.sequence.nxt.0,
            lost_bytes = self.sender.recovery.lost_bytes(),
            "fast recovery begins"
        );
        let mss = self.negotiated.payload_max();
        self.sender.enter_fast_recovery(now, flight_before, sacked_before, mss, &mut self.counters);
    }

    /// One timer for what may be lost: where something is out of order it waits for that
    /// (RFC 8985, 6.2, step 5), otherwise for a silence (RFC 8985, 7.2).
    fn arm_loss_timer(&mut self, now: Instant, reordering: Option<Instant>) {
        if let Some(deadline) = reordering {
            return self.timers.set(Timer::Loss, deadline);
        }
        if !self.arm_probe_timer(now) {
            self.timers.stop(Timer::Loss);
        }
    }

    /// Says whether a tail loss probe is to be sent if nothing is heard.
    pub(crate) fn arm_probe_timer(&mut self, now: Instant) -> bool {
        let mss = self.negotiated.payload_max();
        let Some(timeout_ns) = self.sender.probe_timeout_ns(&self.config, mss) else {
            return false;
        };
        // RFC 8985, 7.2: never later than the retransmission timer would.
        let rto_at = self.timers.deadline(Timer::Retransmission);
        let rto_at = rto_at.unwrap_or_else(|| self.sender.rtt.expires_at(now));
        self.timers.set(Timer::Loss, now.after_nanos(timeout_ns).min(rto_at));
        true
    }
}
