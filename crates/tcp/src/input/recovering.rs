//! What an ACK means for loss recovery and congestion control.
//!
//! ```text
//!   delivered -> mistakes undone -> losses found -> controller told -> recovery left or entered
//!                                                                   -> proportional rate reduction
//! ```
//!
//! An ACK that moves SND.UNA while nothing is lost, SACKed or in doubt passes straight to the
//! controller.

use crate::congestion::{Acked, Congestion as _};
use crate::connection::Connection;
use crate::info::count;
use crate::recovery::sack::Report;
use crate::recovery::{
    Delivered, Losses, ProbeVerdict, RecoveryState, RoundTrips, Witness, in_record,
};
use crate::rtt::RttEstimator;
use crate::timers::Timer;
use counters::trace;
use time::{Duration, Instant};
use wire::TcpHeader;

/// What is known of an ACK.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AckFacts {
    /// SND.UNA moved, and by how much.
    pub(super) advanced: bool,
    pub(super) acked: u32,
    /// FlightSize before it.
    pub(super) flight_before: u32,
    /// It is a duplicate ACK (RFC 5681, 2; RFC 6675, 2).
    pub(super) duplicate: bool,
    /// It says nothing but this: no data, no SYN or FIN, the window unchanged (RFC 5681, 2), and no SACK blocks.
    pub(super) is_bare: bool,
    pub(super) report: Report,
    pub(super) delivered: Delivered,
    /// The round trip it measured.
    pub(super) rtt_sample: Option<Duration>,
}

impl Connection {
    /// Enters what the ACK delivered into the records.
    #[inline]
    pub(super) fn take_deliveries(
        &mut self,
        now: Instant,
        header: &TcpHeader,
        facts: &mut AckFacts,
    ) {
        let blocks = header.options.sack.as_slice();
        let has_blocks = self.negotiated.sack && !blocks.is_empty();
        if has_blocks {
            let (una, nxt) = (self.send.una, self.send.nxt);
            facts.report = Report::new(blocks, header.acknowledgment, una, nxt);
        } else if !facts.advanced {
            return;
        }
        let timestamps = self.negotiated.timestamps.zip(header.options.timestamps);
        self.recovery.on_delivered(
            now,
            (self.send.una, &facts.report),
            self.rtt.min_rtt(),
            self.negotiated.payload_max(),
            |sent_at| {
                timestamps.is_some_and(|(ours, theirs)| ours.is_echo_before(theirs.echo, sent_at))
            },
            &mut facts.delivered,
        );
        self.recovery.give_up_flight(self.counters.spare_flight());
        if has_blocks || facts.delivered.reordered || facts.delivered.reneged {
            self.count_deliveries(facts);
        }
    }

    fn count_deliveries(&mut self, facts: &AckFacts) {
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
        let mut delivered_bytes = facts.delivered.bytes;
        if facts.advanced {
            let reported_before = self.recovery.on_new_ack(&self.send, facts.acked);
            if !self.negotiated.sack {
                delivered_bytes = reported_before;
            }
        }
        if facts.duplicate {
            self.counters.duplicate_acks_received += 1;
            let mss = self.negotiated.payload_max();
            delivered_bytes += self.recovery.on_duplicate_ack(&self.send, mss);
        }
        let has_news = facts.duplicate || facts.delivered.bytes > 0;
        if !facts.advanced && !has_news && facts.report.duplicate.is_none() {
            // Nothing new; it may still be the answer to a probe.
            return self.check_probe(now, header, facts);
        }
        self.check_mistakes(now, header, facts);
        let losses = self.detect_losses(now, facts.advanced);
        self.tell_controller(now, facts);
        let leaves = self.recovery.is_over(&self.send);
        if leaves {
            self.leave_recovery(now);
        }
        if self.wants_fast_recovery(losses.again_count) {
            self.enter_fast_recovery(now, facts.flight_before, facts.delivered.sacked_before);
        }
        let safe = facts.advanced && losses.bytes == 0;
        self.reduce_proportionally(delivered_bytes, safe);
        if facts.advanced {
            self.restart_retransmission_timer(now);
        }
        self.arm_loss_timer(now, losses.next_at);
    }

    /// Takes back what turns out to have been a mistake.
    fn check_mistakes(&mut self, now: Instant, header: &TcpHeader, facts: &AckFacts) {
        if let Some(block) = facts.report.duplicate {
            self.recovery.on_duplicate_report(&self.send, block);
        }
        self.check_probe(now, header, facts);
        if self.recovery.state() == RecoveryState::Loss {
            let news = facts.duplicate || facts.delivered.sacked_bytes > 0;
            let can_send_new = self.has_new_data();
            let spurious = self.recovery.on_frto(
                &self.send,
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
        if let Some(witness) = self.recovery.witness(facts.delivered.is_first_late, echo) {
            self.undo_recovery(now, witness);
        }
    }

    fn check_probe(&mut self, now: Instant, header: &TcpHeader, facts: &AckFacts) {
        let verdict = self.recovery.probe.on_ack(
            header.acknowledgment,
            facts.advanced,
            facts.is_bare,
            facts.report.duplicate,
        );
        if let ProbeVerdict::Repaired { flight_bytes } = verdict {
            // RFC 8985, 7.4.2: "Invoke congestion control to react to the loss event the probe has
            // repaired." FlightSize (RFC 5681, 3.1, equation 4) is to say what the path bore when it lost something.
            // Any other loss shows in what is left of that flight; this one does only behind whatever is written next,
            // be it hours later and a single segment, which would leave a window of two. So what counts is what was in
            // flight when the lost segment left. By the letter it is what is in flight now: that where it is more.
            // (Linux reduces by cwnd, be it used or not.)
            self.counters.tail_loss_repairs += 1;
            self.reduce_for_loss(now, facts.flight_before.max(flight_bytes));
            // The recovery of a mark goes on, for controllers that have one.
            if !self.ecn.is_reducing(self.send.una) || self.congestion.governs_recovery() {
                self.congestion.on_recovery_exit(now);
            }
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
        self.recovery.undo();
        self.congestion.on_undo();
        if self.ecn.on_undo() {
            self.congestion.on_recovery_exit(now);
        }
        // What was backed off was no loss (RFC 4015, 3), and the timer does not wait on as if it had been one.
        if self.rtt.backoff_count() > 0 {
            self.timers.stop(Timer::Retransmission);
        }
        self.rtt.reset_backoff();
        self.forgive_timeouts();
        if self.send.flight() > 0 {
            // What would have set it again, the retransmission, may not be wanted any more.
            self.timers.set_if_idle(Timer::Retransmission, self.rtt.expires_at(now));
        }
    }

    /// Finds what is lost now (RFC 8985, 6.2, step 5).
    pub(crate) fn detect_losses(&mut self, now: Instant, advanced: bool) -> Losses {
        let mss = self.negotiated.payload_max();
        let Self { recovery, send, send_queue, rtt, .. } = self;
        let part = |it| in_record(send_queue, it);
        let losses = recovery.detect(now, send, advanced, || round_trips(rtt), mss, part);
        if losses.bytes > 0 {
            self.counters.lost_bytes += u64::from(losses.bytes);
            self.counters.retransmissions_lost += u64::from(losses.again_count);
            self.check_probe_lost();
        }
        losses
    }

    pub(crate) fn round_trips(&self) -> RoundTrips {
        round_trips(&self.rtt)
    }

    fn tell_controller(&mut self, now: Instant, facts: &AckFacts) {
        let pipe = self.recovery.pipe(&self.send);
        let rate = self.recovery.rate.sample(&facts.delivered.gathered, pipe, self.rtt.min_rtt());
        if facts.advanced {
            let (limited, rto_ns) = (self.cwnd_limited, self.rtt.rto_ns());
            let unused = self.window_use.on_ack(now, facts.flight_before, limited, rto_ns);
            if let Some(used_bytes) = unused {
                self.congestion.on_unused(used_bytes);
            }
        } else if rate.is_none() {
            return;
        }
        let in_first_slow_start = self.congestion.slow_start_threshold() == u32::MAX;
        self.congestion.on_ack(&Acked {
            now,
            acked_bytes: facts.acked,
            in_flight_before: facts.flight_before,
            app_limited: !self.cwnd_limited,
            rtt: self.rtt.smoothed(),
            rtt_sample: facts.rtt_sample,
            una: self.send.una,
            nxt: self.send.nxt,
            rate,
            sack: self.negotiated.sack,
            mss: self.negotiated.payload_max(),
        });
        if self.congestion.is_holding_back() {
            self.recovery.rate.on_app_limited(pipe);
        }
        if in_first_slow_start && self.congestion.slow_start_threshold() != u32::MAX {
            self.counters.slow_start_exits += 1;
        }
    }

    fn leave_recovery(&mut self, now: Instant) {
        trace!(
            local_port = self.local_port,
            remote_port = self.remote_port,
            una = self.send.una.0,
            "recovery is over"
        );
        self.recovery.leave();
        self.ecn.on_recovery_exit();
        self.congestion.on_recovery_exit(now);
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
            una = self.send.una.0,
            nxt = self.send.nxt.0,
            lost_bytes = self.recovery.lost_bytes(),
            "fast recovery begins"
        );
        self.counters.fast_recoveries += 1;
        self.reduce_for_loss(now, flight_before);
        self.recovery.enter_fast(&self.send, flight_before, sacked_before);
    }

    fn reduce_for_loss(&mut self, now: Instant, flight_before: u32) {
        let is_reducing = self.ecn.is_reducing(self.send.una);
        if !is_reducing && self.ecn.on_recovery_exit() {
            // All that was in flight at the mark has arrived: this is of the next round trip.
            self.congestion.on_recovery_exit(now);
        }
        self.congestion.on_loss(now, flight_before, self.negotiated.payload_max());
        if !is_reducing {
            self.ecn.on_reduced(self.send.nxt);
            self.counters.reductions_for_loss += 1;
        }
    }

    /// A controller that begins while a loss is repaired is told of it: the loss window (RFC 5681, 3.1) is that of the
    /// connection, and nothing grows before recovery is over.
    pub(crate) fn tell_loss(&mut self, now: Instant) {
        let (flight, mss) = (self.send.flight(), self.negotiated.payload_max());
        match self.recovery.state() {
            RecoveryState::Fast => self.congestion.on_loss(now, flight, mss),
            RecoveryState::Loss if !self.recovery.is_unreduced() => {
                self.congestion.on_timeout(now, flight, mss);
            }
            RecoveryState::Open | RecoveryState::Loss => {}
        }
    }

    /// RFC 9937, 6.2.
    pub(crate) fn reduce_proportionally(&mut self, delivered_bytes: u32, safe: bool) {
        let mss = self.negotiated.payload_max();
        let threshold = self.congestion.window();
        self.recovery.reduce(&self.send, delivered_bytes, threshold, safe, mss);
    }

    /// One timer for what may be lost: where something is out of order it waits for that
    /// (RFC 8985, 6.2, step 5), otherwise for a silence (RFC 8985, 7.2).
    pub(crate) fn arm_loss_timer(&mut self, now: Instant, reordering: Option<Instant>) {
        if let Some(deadline) = reordering {
            return self.timers.set(Timer::Loss, deadline);
        }
        if !self.arm_probe_timer(now) {
            self.timers.stop(Timer::Loss);
        }
    }

    /// Says whether a tail loss probe is to be sent if nothing is heard.
    pub(crate) fn arm_probe_timer(&mut self, now: Instant) -> bool {
        let Some(timeout_ns) = self.probe_timeout_ns() else { return false };
        // RFC 8985, 7.2: never later than the retransmission timer would.
        let rto_at = self.timers.deadline(Timer::Retransmission);
        let rto_at = rto_at.unwrap_or_else(|| self.rtt.expires_at(now));
        self.timers.set(Timer::Loss, now.after_nanos(timeout_ns).min(rto_at));
        true
    }

    /// How long until a tail loss probe, if one may be sent.
    pub(crate) fn probe_timeout_ns(&self) -> Option<u64> {
        let smoothed_rtt_ns = self.rtt.smoothed_ns().filter(|_| self.config.tail_loss_probes)?;
        let mss = self.negotiated.payload_max();
        self.recovery.probe_timeout_ns(&self.send, smoothed_rtt_ns, mss)
    }
}

fn round_trips(rtt: &RttEstimator) -> RoundTrips {
    RoundTrips { min: rtt.min_rtt(), smoothed: rtt.smoothed() }
}
