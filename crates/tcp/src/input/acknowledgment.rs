//! The ACK field (RFC 9293, 3.10.7.4, fifth; RFC 5961, 5): what it acknowledges, what its SACK
//! blocks report, and the window it opens.

use super::Incoming;
use crate::connection::Connection;
use crate::event::Events;
use crate::sender::chronograph::Waits;
use crate::sender::feedback::AckFacts;
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
        let opens = self.state == State::SynReceived;
        if opens {
            self.complete_passive_open(now, incoming)?;
        }
        let header = incoming.header;
        let ack = header.acknowledgment;
        self.check_ack(now, ack)?;
        self.note_life(now);
        // An answer of any kind: the peer lives, and a closed window is its right (RFC 9293,
        // 3.8.6.1, MUST-37).
        self.unanswered.window_probes = 0;
        self.unreachable = None;
        if self.sender.sequence.window == 0 {
            self.forgive_timeouts();
        }
        let flight_before = self.sender.sequence.flight();
        let advanced = ack.is_after(self.sender.sequence.una);
        let reports =
            !header.options.sack.is_empty() || self.sender.recovery.probe.is_outstanding();
        if flight_before == 0 && !advanced && !reports {
            // The peer sends and we do not: there is nothing that the ACK could be about.
            self.take_window(header);
            if self.sender.queue.len() > 0 {
                self.sender.on_data_after_silence(now, &self.config, self.negotiated.payload_max());
            }
            self.on_echo(now, header, 0);
            return Ok(());
        }
        let is_current = ack.is_at_or_after(self.sender.sequence.una);
        let acked = if advanced { self.sender.sequence.on_ack(ack) } else { 0 };
        let mut facts = AckFacts { advanced, acked, flight_before, ..AckFacts::default() };
        let counts = self.sender.take_deliveries(
            now,
            header,
            &mut facts,
            &self.negotiated,
            &mut self.counters,
        );
        if counts {
            self.count_deliveries(&facts);
        }
        let same_window = self.take_window(header);
        let is_plain = Self::is_plain(incoming, same_window);
        facts.is_bare = is_plain && header.options.sack.is_empty();
        if advanced {
            self.on_new_ack(now, header, &mut facts);
        } else if is_current && flight_before > 0 && !opens {
            // RFC 5681, 2: it equals the greatest acknowledgment received, and that of the SYN-ACK was the first,
            // though an early answer is in flight (RFC 7413, 4.2.2).
            facts.duplicate = self.is_duplicate(&facts, is_plain);
        }
        self.recover(now, header, &mut facts);
        if advanced {
            self.on_fin_acknowledged(now);
        }
        self.on_echo(now, header, flight_before);
        Ok(())
    }

    /// SND.WND (RFC 9293, 3.10.7.4, fifth). Says whether the segment announces the window that was
    /// known already.
    #[inline]
    pub(super) fn take_window(&mut self, header: &TcpHeader) -> bool {
        // RFC 7323, 2.2: the window of a SYN is never scaled (a SYN-ACK in a simultaneous open).
        let is_scaled = !header.flags.contains(TcpFlags::SYN);
        let shift = if is_scaled { self.negotiated.send_shift } else { 0 };
        let window = u32::from(header.window) << shift;
        let same_window = window == self.sender.sequence.window;
        if self.sender.sequence.on_window(header.sequence, header.acknowledgment, window)
            && window > 0
        {
            self.unanswered.persist_backoff = 0;
            if self.sender.sequence.flight() == 0 {
                self.timers.stop(Timer::Persist);
                self.timers.stop(Timer::User);
                self.owing.window_probe = false;
            }
        }
        same_window
    }

    /// What was sent again may have been so in vain, though SND.UNA stays. Where nobody waits for the outcome it
    /// counts all the same, or a peer that goes on answering would keep an orphan for ever.
    pub(super) fn forgive_timeouts(&mut self) {
        if !self.owing.orphaned {
            self.unanswered.timeouts = 0;
        }
    }

    /// What is not acceptable is answered with a challenge ACK (RFC 5961, 5.2).
    #[inline]
    fn check_ack(&mut self, now: Instant, ack: SeqNumber) -> Result<(), DropReason> {
        if !self.sender.is_acceptable(ack) {
            self.receiver.challenge(now, &mut self.counters);
            return Err(DropReason::BadAck);
        }
        Ok(())
    }

    /// RFC 9293, 3.8.4, MUST-26: probes are sent "only when no sent data is outstanding, and no data or acknowledgment
    /// packets have been received for the connection within an interval". What comes puts them off, one that is owed in
    /// this instant too, and they are counted anew. Only where the ACK is acceptable: with guesses of one sequence
    /// number nobody is to keep a connection whose peer is gone.
    #[inline]
    pub(super) fn note_life(&mut self, now: Instant) {
        self.last_received_at = now;
        self.unanswered.keepalive_probes = 0;
        self.owing.keepalive_probe = false;
    }

    /// SND.UNA moved.
    fn on_new_ack(&mut self, now: Instant, header: &TcpHeader, facts: &mut AckFacts) {
        let released = self.sender.queue.acknowledge(self.sender.sequence.una);
        self.urgent.on_acknowledged(self.sender.sequence.una);
        self.counters.bytes_acknowledged += released as u64;
        self.totals.bytes_acknowledged += released as u64;
        if released > 0 {
            if self.sender.queue.len() == 0 {
                self.sender.chronograph.enter(now, Waits::Nothing);
                self.plan.release();
            }
            self.events.insert(Events::WRITABLE);
        }
        self.unanswered.timeouts = 0;
        self.unanswered.persist_backoff = 0;
        self.sender.tune_send_buffer();
        self.sender.check_path_probe(now, &mut self.negotiated, &mut self.counters);
        facts.rtt_sample = self.sender.sample_round_trip(now, header, facts, &self.negotiated);
    }

    /// SND.UNA stayed, with data in flight: whether it is a duplicate ACK (RFC 5681, 2; RFC 6675, 2: with SACK, one
    /// that reports something new).
    fn is_duplicate(&self, facts: &AckFacts, is_plain: bool) -> bool {
        if self.negotiated.sack { facts.delivered.sacked_bytes > 0 } else { is_plain }
    }

    /// Whether a segment is no more than its ACK (RFC 5681, 2): no data, no SYN or FIN, the window unchanged. What was
    /// cut to nothing, as the probe of a closed window is, had data.
    fn is_plain(incoming: &Incoming<'_>, same_window: bool) -> bool {
        incoming.payload.is_none()
            && !incoming.trimmed
            && !incoming.flags.intersects(TcpFlags::SYN | TcpFlags::FIN)
            && same_window
    }

    /// RFC 6298, 5.2 and 5.3.
    pub(super) fn restart_retransmission_timer(&mut self, now: Instant) {
        if self.sender.sequence.flight() == 0 {
            self.timers.stop(Timer::Retransmission);
            self.timers.stop(Timer::Loss);
            self.timers.stop(Timer::User);
            return;
        }
        self.timers.set(Timer::Retransmission, self.sender.rtt.expires_at(now));
        if let Some(user_timeout) = self.user_timeout() {
            self.timers.set(Timer::User, now + user_timeout);
        }
    }

    /// What the ACK of our FIN means for the state.
    fn on_fin_acknowledged(&mut self, now: Instant) {
        let fin_acknowledged =
            self.owing.fin && self.sender.sequence.una.is_after(self.sender.queue.end_sequence());
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
