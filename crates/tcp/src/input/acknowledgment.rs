//! The ACK field (RFC 9293, 3.10.7.4, fifth; RFC 5961, 5): what it acknowledges, what its SACK
//! blocks report, and the window it opens.

use super::Incoming;
use crate::congestion::{Acked, Congestion as _};
use crate::connection::Connection;
use crate::event::Events;
use crate::recovery::{Phase, Verdict};
use crate::scoreboard::SackOutcome;
use crate::state::State;
use crate::timers::Timer;
use counters::DropReason;
use time::Instant;
use wire::{SeqNumber, TcpFlags, TcpHeader};

impl Connection {
    pub(super) fn on_acknowledgment(
        &mut self,
        now: Instant,
        incoming: &Incoming<'_>,
    ) -> Result<(), DropReason> {
        if self.state == State::SynReceived {
            self.complete_passive_open(now, incoming)?;
        }
        let header = incoming.header;
        let ack = header.acknowledgment;
        self.check_ack(now, ack)?;
        // An answer of any kind: the peer lives, and a closed window is its right (RFC 9293,
        // 3.8.6.1, MUST-37).
        self.unanswered.window_probes = 0;
        if self.send.window == 0 {
            self.unanswered.timeouts = 0;
        }
        let flight_before = self.send.flight();
        let advanced = ack.is_after(self.send.una);
        let acked = if advanced { self.send.on_ack(ack) } else { 0 };
        let sack = self.take_sack(header, advanced);
        // RFC 7323, 2.2: the window of a SYN is never scaled (a SYN-ACK in a simultaneous open).
        let is_scaled = !header.flags.contains(TcpFlags::SYN);
        let shift = if is_scaled { self.negotiated.send_shift } else { 0 };
        let window = u32::from(header.window) << shift;
        let same_window = window == self.send.window;
        if self.send.on_window(header.sequence, ack, window) && window > 0 {
            self.unanswered.persist_backoff = 0;
            if self.send.flight() == 0 {
                self.timers.stop(Timer::Persist);
                self.owing.window_probe = false;
            }
        }
        if advanced {
            self.on_new_ack(now, incoming.header, acked, flight_before);
        } else if ack == self.send.una && self.send.flight() > 0 {
            self.on_same_ack(now, incoming, sack, same_window);
        }
        Ok(())
    }

    /// RFC 5961, 5.2: acceptable is SND.UNA - MAX.SND.WND =< SEG.ACK =< SND.NXT; everything else
    /// is answered with a challenge ACK.
    #[inline]
    fn check_ack(&mut self, now: Instant, ack: SeqNumber) -> Result<(), DropReason> {
        let behind = self.send.una.distance(ack);
        let too_old = behind > 0 && behind.unsigned_abs() > self.send.window_max;
        if too_old || ack.is_after(self.send.max) {
            self.challenge(now);
            return Err(DropReason::BadAck);
        }
        Ok(())
    }

    fn take_sack(&mut self, header: &TcpHeader, advanced: bool) -> SackOutcome {
        if advanced {
            self.recovery.scoreboard.on_ack(self.send.una);
        }
        if !self.negotiated.sack || header.options.sack.is_empty() {
            return SackOutcome::default();
        }
        let outcome = self.recovery.scoreboard.on_sack(
            header.options.sack.as_slice().iter().copied(),
            header.acknowledgment,
            self.send.nxt,
        );
        self.counters.sacked_bytes += u64::from(outcome.newly_sacked_bytes);
        outcome
    }

    /// SND.UNA moved.
    fn on_new_ack(&mut self, now: Instant, header: &TcpHeader, acked: u32, flight_before: u32) {
        let mss = self.negotiated.payload_max();
        let released = self.send_queue.acknowledge(self.send.una);
        self.counters.bytes_acknowledged += released as u64;
        if released > 0 {
            self.events.insert(Events::WRITABLE);
        }
        self.unanswered.timeouts = 0;
        self.unanswered.persist_backoff = 0;
        self.sample_round_trip(now, header);
        self.congestion.on_ack(&Acked {
            now,
            acked_bytes: acked,
            in_flight_before: flight_before,
            app_limited: !self.cwnd_limited,
            rtt: self.rtt.smoothed(),
            mss,
        });
        let verdict = self.recovery.on_new_ack(&self.send, acked, mss);
        self.apply(now, verdict);
        self.restart_retransmission_timer(now);
        self.on_fin_acknowledged(now);
    }

    /// SND.UNA stayed, with data in flight: is it a duplicate ACK?
    fn on_same_ack(
        &mut self,
        now: Instant,
        incoming: &Incoming<'_>,
        sack: SackOutcome,
        same_window: bool,
    ) {
        // RFC 5681, 2: no data, no SYN or FIN, the window unchanged; RFC 6675, 2: with SACK, one
        // that reports something new.
        let duplicate = if self.negotiated.sack {
            sack.newly_sacked_bytes > 0
        } else {
            incoming.payload.is_none()
                && !incoming.flags.intersects(TcpFlags::SYN | TcpFlags::FIN)
                && same_window
        };
        if !duplicate {
            return;
        }
        self.counters.duplicate_acks_received += 1;
        let mss = self.negotiated.payload_max();
        let verdict = self.recovery.on_duplicate_ack(&self.send, mss);
        self.apply(now, verdict);
    }

    fn apply(&mut self, now: Instant, verdict: Verdict) {
        match verdict {
            Verdict::Nothing | Verdict::Exit(Phase::Open | Phase::Loss) => {}
            Verdict::EnterFast => {
                self.counters.fast_recoveries += 1;
                let mss = self.negotiated.payload_max();
                self.congestion.on_loss(now, self.send.flight(), mss);
                self.timed = None;
            }
            Verdict::Exit(Phase::Fast) => self.congestion.on_recovery_exit(now),
        }
    }

    /// RFC 6298, 5.2 and 5.3.
    fn restart_retransmission_timer(&mut self, now: Instant) {
        if self.send.flight() == 0 {
            self.timers.stop(Timer::Retransmission);
            self.timers.stop(Timer::User);
            return;
        }
        self.timers.set(Timer::Retransmission, now + self.rtt.rto());
        if let Some(user_timeout) = self.config.user_timeout {
            self.timers.set(Timer::User, now + user_timeout);
        }
    }

    /// Measures the round trip: by the timed segment, which is exact, or else, as Karn's rule
    /// forbids to measure what was sent again, by the echo of our timestamp (RFC 7323, 4.1).
    pub(super) fn sample_round_trip(&mut self, now: Instant, header: &TcpHeader) {
        match self.timed {
            Some(timed) if self.send.una.is_at_or_after(timed.end) => {
                self.timed = None;
                self.rtt.on_sample(now - timed.sent_at);
            }
            Some(_) => {}
            None => {
                let echo = header.options.timestamps.map(|timestamps| timestamps.echo);
                let ours = self.negotiated.timestamps;
                if let Some(rtt) =
                    ours.zip(echo).and_then(|(ours, echo)| ours.round_trip(now, echo))
                {
                    let flight = self.send.flight();
                    let expected = flight.div_ceil(2 * self.negotiated.payload_max()).max(1);
                    self.rtt.on_sample_of(rtt, expected);
                }
            }
        }
    }

    /// What the ACK of our FIN means for the state.
    fn on_fin_acknowledged(&mut self, now: Instant) {
        let fin_acknowledged =
            self.owing.fin && self.send.una.is_after(self.send_queue.end_sequence());
        if !fin_acknowledged {
            return;
        }
        match self.state {
            State::FinWait1 => self.enter_fin_wait_2(now),
            State::Closing => self.enter_time_wait(now),
            State::LastAck => self.enter_closed(None),
            _ => {}
        }
    }
}
