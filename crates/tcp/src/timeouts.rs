//! What happens when a deadline has passed.

use crate::connection::Connection;
use crate::sender::chronograph::Waits;
use crate::sender::congestion::Congestion as _;
use crate::state::State;
use crate::timers::Timer;
use counters::trace;
use time::{Duration, Instant};

impl Connection {
    /// When [`Connection::on_timeout`] wants to be called, if ever.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Handles every deadline that has passed.
    pub fn on_timeout(&mut self, now: Instant) {
        // Every pass stops a timer and the handlers set them later than now, so this ends.
        while let Some(timer) = self.timers.take_expired(now) {
            trace!(
                local_port = self.local_port,
                remote_port = self.remote_port,
                timer = ?timer,
                rto = ?self.sender.rtt.rto(),
                "timer went off"
            );
            match timer {
                Timer::Retransmission => self.on_retransmission_timeout(now),
                Timer::Loss => self.on_loss_timeout(now),
                Timer::Persist => self.on_persist_timeout(),
                Timer::DelayedAck => {
                    self.receiver.acks.on_timeout();
                    self.counters.delayed_acks += 1;
                }
                Timer::Keepalive => self.on_keepalive_timeout(now),
                // Whoever sends asks whether the data is released by now.
                Timer::Pacing => self.arm_pacing(now),
                Timer::Lifetime => self.enter_closed(None),
                // Before the peer's SYN there is nothing that a reset could acknowledge, and RFC 9293,
                // 3.10.8 asks for none.
                Timer::User if self.state == State::SynSent => {
                    self.enter_closed(Some(self.timeout_error()));
                }
                Timer::User => self.fail_with_reset(Some(self.timeout_error())),
            }
        }
    }

    /// RFC 6298, 5.4 to 5.6.
    fn on_retransmission_timeout(&mut self, now: Instant) {
        if matches!(self.state, State::SynSent | State::SynReceived) {
            return self.on_syn_timeout(now);
        }
        if self.sender.sequence.flight() == 0 || !self.state.sends_data() {
            return;
        }
        self.counters.retransmission_timeouts += 1;
        self.unanswered.timeouts += 1;
        if self.unanswered.timeouts > self.retries() {
            // RFC 9293, 3.8.3: R2 is reached.
            return self.fail_with_reset(Some(self.timeout_error()));
        }
        self.sender.check_black_hole(
            now,
            self.unanswered.timeouts,
            &self.config,
            &mut self.negotiated,
            &mut self.counters,
        );
        let is_repeated = self.unanswered.timeouts > 1;
        let mss = self.negotiated.payload_max();
        self.sender.on_timeout(now, is_repeated, mss, &mut self.counters);
        self.timers.stop(Timer::Loss);
    }

    /// What came out of order has had its time (RFC 8985, 6.2, step 5), or the flight has been silent for
    /// so long that its tail may be lost (RFC 8985, 7.3).
    fn on_loss_timeout(&mut self, now: Instant) {
        if self.sender.sequence.flight() == 0 || !self.state.sends_data() {
            return;
        }
        let mss = self.negotiated.payload_max();
        if self.sender.probe_timeout_ns(&self.config, mss).is_some() {
            self.sender.recovery.probe.owed = true;
            return self.timers.set(Timer::Retransmission, self.sender.rtt.expires_at(now));
        }
        let losses = self.sender.detect_losses(now, false, mss, &mut self.counters);
        if losses.bytes > 0 {
            self.counters.reordering_timeouts += 1;
            // RFC 8985, 8: one of the timers at a time; what is lost is sent first, also where both are due by now.
            self.timers.set(Timer::Retransmission, self.sender.rtt.expires_at(now));
        }
        if self.sender.wants_fast_recovery(losses.again_count) {
            let sacked = self.sender.recovery.sacked_bytes();
            self.enter_fast_recovery(now, self.sender.sequence.flight(), sacked);
            self.sender.reduce_proportionally(0, false, mss);
        }
        if let Some(deadline) = losses.next_at {
            self.timers.set(Timer::Loss, deadline);
        }
    }

    /// How often in a row the timer may go off; fewer times where nobody waits for the outcome, and as often as it
    /// likes where who waits has said for how long (RFC 5482, 3).
    fn retries(&self) -> u32 {
        match self.owing.orphaned {
            true => self.config.orphan_retries.min(self.config.retries),
            false if self.user_timeout().is_some() => u32::MAX,
            false => self.config.retries,
        }
    }

    pub(crate) fn on_syn_timeout(&mut self, now: Instant) {
        self.counters.retransmission_timeouts += 1;
        self.unanswered.syns += 1;
        let retries = match self.owing.active {
            true => self.config.syn_retries,
            false => self.config.syn_ack_retries,
        };
        if self.unanswered.syns > retries {
            return self.enter_closed(Some(self.timeout_error()));
        }
        self.sender.rtt.on_syn_timeout();
        self.on_fast_open_timeout();
        self.sender.congestion.on_handshake_loss(self.negotiated.payload_max());
        self.sender.ecn.on_syn_timeout();
        self.sender.syn_sent_at = Instant::ZERO;
        self.owing.syn = true;
        if self.is_opening_fast() && self.sender.sequence.flight() > 0 {
            let again = self.unanswered.syns > 1;
            self.sender.recovery.on_timeout(
                now,
                &self.sender.sequence,
                again,
                self.sender.round_trips(),
            );
        }
    }

    /// RFC 9293, 3.8.6.1: a closed window is probed for as long as the peer answers, MUST-37; but
    /// not for ever where nobody waits for the outcome.
    fn on_persist_timeout(&mut self) {
        let unanswered = self.unanswered.window_probes > self.retries();
        let orphaned = self.owing.orphaned && self.unanswered.persist_backoff > self.retries();
        if unanswered || orphaned {
            return self.fail_with_reset(Some(self.timeout_error()));
        }
        self.owing.window_probe = true;
    }

    /// RFC 9293, 3.8.4.
    fn on_keepalive_timeout(&mut self, now: Instant) {
        let Some(keepalive) = self.config.keepalive else { return };
        let idle = keepalive.idle.max(Duration::from_millis(1));
        if !self.state.is_synchronized() || self.state == State::TimeWait {
            return;
        }
        let silence = now - self.last_received_at;
        if silence < idle || self.sender.sequence.flight() > 0 {
            // MUST-26: only when nothing was received for the interval; what is in flight has a
            // timer of its own.
            self.unanswered.keepalive_probes = 0;
            let from = if silence < idle { self.last_received_at } else { now };
            return self.timers.set(Timer::Keepalive, from + idle);
        }
        // RFC 5482, 4.2: no sooner than the user timeout, where there is one; and one probe is enough then.
        let probes = self.unanswered.keepalive_probes;
        let is_over = match self.user_timeout() {
            Some(user_timeout) => probes > 0 && silence >= user_timeout,
            None => probes >= keepalive.count,
        };
        if is_over {
            return self.fail_with_reset(Some(self.timeout_error()));
        }
        self.unanswered.keepalive_probes += 1;
        self.owing.keepalive_probe = true;
        self.timers.set(Timer::Keepalive, now + keepalive.interval.max(Duration::from_millis(1)));
    }

    /// Runs the persist timer where data waits for the peer's window and nothing is in flight whose
    /// acknowledgment would bring news of it.
    #[inline]
    pub(crate) fn arm_persist(&mut self, now: Instant) {
        if self.sender.sequence.flight() == 0 && self.sender.unsent_len() > 0 {
            self.await_window(now);
        }
    }

    #[inline(never)]
    fn await_window(&mut self, now: Instant) {
        if !self.state.sends_data() || self.owing.window_probe || !self.is_window_closed() {
            return;
        }
        self.sender.chronograph.enter(now, Waits::PeerWindow);
        let factor = 1_u32.checked_shl(self.unanswered.persist_backoff).unwrap_or(u32::MAX);
        let interval = self.sender.rtt.rto().saturating_mul(factor).min(self.config.rtt.rto_max);
        self.timers.set_if_idle(Timer::Persist, now + interval);
        // RFC 9293, 3.9.1.1: the user's timeout is one "for all data submitted to TCP", be it never sent.
        if let Some(user_timeout) = self.user_timeout() {
            self.timers.set_if_idle(Timer::User, now + user_timeout);
        }
    }

    /// Runs the timer where new data waits for its release.
    #[inline]
    pub(crate) fn arm_pacing(&mut self, now: Instant) {
        if now < self.sender.pacer.released_at {
            self.await_release(now);
        }
    }

    #[inline(never)]
    fn await_release(&mut self, now: Instant) {
        let waits = (self.state.sends_data() || self.answers_early())
            && self.sender.unsent_len() > 0
            && self.sender.pacing_budget(now, &self.config, self.negotiated.payload_max()) == 0;
        if waits && !self.timers.is_set(Timer::Pacing) {
            self.timers.set(Timer::Pacing, self.sender.pacer.released_at);
            self.counters.pacing_waits += 1;
        }
    }

    /// Limits how long what was sent may wait for its acknowledgment, and what cannot be sent for a closed
    /// window, from now on. What waits under such a limit already keeps the time it has waited.
    pub fn set_user_timeout(&mut self, now: Instant, timeout: Option<Duration>) {
        if self.config.user_timeout == timeout {
            return;
        }
        let (before, due) = (self.user_timeout(), self.timers.deadline(Timer::User));
        let waited = before
            .zip(due)
            .map_or(Duration::ZERO, |(before, due)| before.saturating_sub(due.since(now)));
        self.config_mut().user_timeout = timeout;
        // A dead one has nothing to wait for, though what it sent was never acknowledged.
        let waits = self.state != State::Closed
            && (self.first_unacknowledged() != self.sender.sequence.nxt
                || self.owing.window_probe
                || self.timers.is_set(Timer::Persist));
        match self.user_timeout().filter(|_| waits) {
            Some(timeout) => self.timers.set(Timer::User, now + timeout.saturating_sub(waited)),
            None => self.timers.stop(Timer::User),
        }
    }

    /// Turns keepalive on or off, or changes it: a new idle time counts from the last segment, a new
    /// interval and a new count hold from the next probe on.
    pub fn set_keepalive(&mut self, now: Instant, keepalive: Option<crate::config::Keepalive>) {
        let before = self.config.keepalive;
        if before == keepalive {
            return;
        }
        self.config_mut().keepalive = keepalive;
        let may_probe = self.state.is_synchronized() && self.state != State::TimeWait;
        let Some(keepalive) = keepalive.filter(|_| may_probe) else {
            return self.timers.stop(Timer::Keepalive);
        };
        match before {
            Some(before) if before.idle == keepalive.idle => {}
            Some(_) => {
                let due = self.last_received_at + keepalive.idle;
                self.timers.set(Timer::Keepalive, due.max(now));
            }
            None => {
                self.unanswered.keepalive_probes = 0;
                self.timers.set(Timer::Keepalive, now + keepalive.idle);
            }
        }
    }

    /// How long FIN-WAIT-2 lasts where the application is gone: see `Config::fin_wait_2`.
    pub fn set_fin_wait_2(&mut self, span: Duration) {
        if self.config.fin_wait_2 != span {
            self.config_mut().fin_wait_2 = span;
        }
    }
}
