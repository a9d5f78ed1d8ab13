//! What the sender does about losses and marks of congestion (RFC 3168): it finds losses, reduces its window for either,
//! and takes that back where it was a mistake.

use crate::config::Config;
use crate::counters::Counting;
use crate::sender::Sender;
use crate::sender::congestion::Congestion as _;
use crate::sender::feedback::AckFacts;
use crate::sender::recovery::{Losses, ProbeVerdict, RecoveryState, RoundTrips, in_record};
use crate::sender::rtt::RttEstimator;
use time::Instant;
use wire::TcpHeader;

impl Sender {
    /// Finds what is lost now (RFC 8985, 6.2, step 5).
    pub(crate) fn detect_losses(
        &mut self,
        now: Instant,
        advanced: bool,
        mss: u32,
        counters: &mut Counting,
    ) -> Losses {
        let Self { recovery, sequence, queue, rtt, .. } = self;
        let part = |it| in_record(queue, it);
        let losses = recovery.detect(now, sequence, advanced, || round_trips(rtt), mss, part);
        if losses.bytes > 0 {
            counters.lost_bytes += u64::from(losses.bytes);
            counters.retransmissions_lost += u64::from(losses.again_count);
            self.check_probe_lost(counters);
        }
        losses
    }

    /// How long until a tail loss probe, if one may be sent.
    pub(crate) fn probe_timeout_ns(&self, config: &Config, mss: u32) -> Option<u64> {
        let smoothed_rtt_ns = self.rtt.smoothed_ns().filter(|_| config.tail_loss_probes)?;
        self.recovery.probe_timeout_ns(&self.sequence, smoothed_rtt_ns, mss)
    }

    /// Whether the ACK says that a tail loss probe repaired a loss by itself.
    pub(crate) fn check_probe(
        &mut self,
        now: Instant,
        header: &TcpHeader,
        facts: &AckFacts,
        mss: u32,
        counters: &mut Counting,
    ) {
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
            counters.tail_loss_repairs += 1;
            self.reduce_for_loss(now, facts.flight_before.max(flight_bytes), mss, counters);
            // The recovery of a mark goes on, for controllers that have one.
            if !self.ecn.is_reducing(self.sequence.una) || self.congestion.governs_recovery() {
                self.congestion.on_recovery_exit(now);
            }
        }
    }

    /// Something is lost and no recovery is under way.
    pub(crate) fn enter_fast_recovery(
        &mut self,
        now: Instant,
        flight_before: u32,
        sacked_before: u32,
        mss: u32,
        counters: &mut Counting,
    ) {
        counters.fast_recoveries += 1;
        self.reduce_for_loss(now, flight_before, mss, counters);
        self.recovery.enter_fast(&self.sequence, flight_before, sacked_before);
    }

    /// All that was in flight when the recovery began is acknowledged.
    pub(crate) fn leave_recovery(&mut self, now: Instant) {
        self.recovery.leave();
        self.ecn.on_recovery_exit();
        self.congestion.on_recovery_exit(now);
    }

    fn reduce_for_loss(
        &mut self,
        now: Instant,
        flight_before: u32,
        mss: u32,
        counters: &mut Counting,
    ) {
        let is_reducing = self.ecn.is_reducing(self.sequence.una);
        if !is_reducing && self.ecn.on_recovery_exit() {
            // All that was in flight at the mark has arrived: this is of the next round trip.
            self.congestion.on_recovery_exit(now);
        }
        self.congestion.on_loss(now, flight_before, mss);
        if !is_reducing {
            self.ecn.on_reduced(self.sequence.nxt);
            counters.reductions_for_loss += 1;
        }
    }

    /// RFC 9937, 6.2.
    pub(crate) fn reduce_proportionally(&mut self, delivered_bytes: u32, safe: bool, mss: u32) {
        let threshold = self.congestion.window();
        self.recovery.reduce(&self.sequence, delivered_bytes, threshold, safe, mss);
    }

    /// An acceptable ACK came while ECN is agreed on, `echoed` with a mark (RFC 3168, 6.1.2). Says whether nothing may
    /// go before the retransmission timer expires, which is to begin anew.
    ///
    /// So it is where the window is one segment already: "the sending TCP MUST reset the retransmit timer on receiving
    /// the ECN-Echo packet when the congestion window is one. The sending TCP will then be able to send a new packet
    /// only when the retransmit timer expires." With nothing in flight that timer has nothing to send again, so that it
    /// is new data that is held back, as pacing does. (Linux has two segments at least, and never waits.)
    #[inline(never)]
    pub(crate) fn on_echo(
        &mut self,
        now: Instant,
        echoed: bool,
        flight_before: u32,
        mss: u32,
        counters: &mut Counting,
    ) -> bool {
        let echo = self.ecn.on_ack(echoed, self.sequence.una, flight_before > 0);
        let open = self.recovery.state() == RecoveryState::Open || self.recovery.is_unreduced();
        if echo.over && open {
            self.congestion.on_recovery_exit(now);
        }
        if !echo.reduce || !open {
            return false;
        }
        let is_held = self.congestion.window() <= mss;
        if is_held {
            self.pacer.hold_until(self.rtt.expires_at(now));
        }
        self.congestion.on_mark(now, flight_before, mss);
        self.ecn.on_mark(self.sequence.nxt);
        self.recovery.on_mark();
        counters.reductions_for_marks += 1;
        is_held
    }

    /// What was taken for lost was not.
    pub(crate) fn undo_recovery(&mut self, now: Instant) {
        self.recovery.undo();
        self.congestion.on_undo();
        if self.ecn.on_undo() {
            self.congestion.on_recovery_exit(now);
        }
    }

    /// The retransmission timer went off (RFC 6298, 5.4 to 5.6), not for the first time in a row where `is_repeated`.
    pub(crate) fn on_timeout(
        &mut self,
        now: Instant,
        is_repeated: bool,
        mss: u32,
        counters: &mut Counting,
    ) {
        // A peer whose window is closed has the count begin anew with each answer, and the same segment goes again.
        let again = is_repeated || self.recovery.is_timed_out(self.sequence.una);
        if again && self.recovery.state() == RecoveryState::Loss {
            self.congestion.on_timeout_again();
        } else {
            // In fast recovery, too: RFC 5681, 4.3 takes the loss of a retransmission for a second
            // indication, for which ssthresh MUST be lowered again. (Linux lowers it once.)
            self.congestion.on_timeout(now, self.sequence.flight(), mss);
            counters.reductions_for_timeout += 1;
        }
        // Again, too: new data may have left since, and with it the CWR of the first.
        self.ecn.on_reduced(self.sequence.nxt);
        self.rtt.on_backoff();
        self.recovery.on_timeout(now, &self.sequence, again, self.round_trips());
    }

    /// A controller that begins while a loss is repaired is told of it: the loss window (RFC 5681, 3.1) is that of the
    /// connection, and nothing grows before recovery is over.
    pub(crate) fn tell_loss(&mut self, now: Instant, mss: u32) {
        let flight = self.sequence.flight();
        match self.recovery.state() {
            RecoveryState::Fast => self.congestion.on_loss(now, flight, mss),
            RecoveryState::Loss if !self.recovery.is_unreduced() => {
                self.congestion.on_timeout(now, flight, mss);
            }
            RecoveryState::Open | RecoveryState::Loss => {}
        }
    }

    /// What is known of the path's round trips.
    pub(crate) fn round_trips(&self) -> RoundTrips {
        round_trips(&self.rtt)
    }
}

fn round_trips(rtt: &RttEstimator) -> RoundTrips {
    RoundTrips { min: rtt.min_rtt(), smoothed: rtt.smoothed() }
}
