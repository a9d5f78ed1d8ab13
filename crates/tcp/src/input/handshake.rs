//! Opening: SYN-SENT (RFC 9293, 3.10.7.3) and the ACK that ends SYN-RECEIVED (3.10.7.4, fifth).

use super::Incoming;
use crate::connection::Connection;
use crate::event::ConnectionError;
use crate::options::TIMESTAMP_TICK;
use crate::state::State;
use crate::timers::Timer;
use batch::BlockPool;
use counters::DropReason;
use time::Instant;
use wire::{TcpFlags, TcpHeader};

impl Connection {
    /// A segment arrives in SYN-SENT.
    pub(super) fn on_syn_sent(
        &mut self,
        now: Instant,
        incoming: &mut Incoming<'_>,
        pool: &BlockPool,
    ) -> Result<(), DropReason> {
        let header = incoming.header;
        let has_ack = incoming.flags.contains(TcpFlags::ACK);
        // First: ISS < SEG.ACK =< SND.NXT, where only the SYN was sent, and perhaps data with it.
        let ack = header.acknowledgment;
        if has_ack
            && !(ack.is_after(self.sender.sequence.iss)
                && ack.is_at_or_before(self.sender.sequence.max))
        {
            self.owe_reset_for(incoming);
            return Err(DropReason::BadAck);
        }
        // Second: RST; without an acceptable ACK it is dropped.
        if incoming.flags.contains(TcpFlags::RST) {
            if !has_ack {
                return Err(DropReason::BadState);
            }
            self.counters.resets_received += 1;
            self.enter_closed(Some(ConnectionError::Refused));
            return Ok(());
        }
        // Fourth: SYN.
        if !incoming.flags.contains(TcpFlags::SYN) {
            return Err(DropReason::BadState);
        }
        self.take_syn(now, header);
        if has_ack {
            self.acknowledge_syn(now, incoming);
            self.on_fast_open_reply(header);
            self.enter_established(now);
            self.receiver.acks.owe_now();
            return self.take_text_of_syn_ack(now, incoming, pool);
        }
        // Simultaneous open (RFC 9293, 3.5, figure 8): our SYN goes out again, with ACK. Data in such a SYN
        // is left to be sent again.
        self.enter(State::SynReceived);
        self.owing.syn = true;
        Ok(())
    }

    /// What else a SYN-ACK carries goes on as from the sixth step of an open connection (RFC 9293,
    /// 3.10.7.3).
    fn take_text_of_syn_ack(
        &mut self,
        now: Instant,
        incoming: &mut Incoming<'_>,
        pool: &BlockPool,
    ) -> Result<(), DropReason> {
        incoming.flags = incoming.flags.without(TcpFlags::SYN);
        incoming.sequence += 1;
        if incoming.len() == 0 {
            return Ok(());
        }
        self.check_sequence(now, incoming)?;
        self.on_data(now, incoming, pool)
    }

    /// Our SYN is acknowledged.
    pub(super) fn acknowledge_syn(&mut self, now: Instant, incoming: &Incoming<'_>) {
        self.sender.sequence.on_ack(self.sender.sequence.iss + 1);
        self.sender.measured_until = self.sender.sequence.una;
        if self.sender.syn_sent_at == Instant::ZERO {
            // A client whose ACK was lost may have been silent until it had data: that measures no path. Of a SYN-ACK of
            // which only a cookie tells it is not known whether it was sent again.
            let is_silence = !self.owing.active && incoming.len() > 0;
            let may_be_earlier = self.owing.active || self.unanswered.syns > 0;
            let is_late = may_be_earlier && !self.is_answer_to_last_syn(now, incoming.header);
            if !is_silence && !is_late {
                let _ = self.sender.sample_timestamp(now, incoming.header, &self.negotiated);
            }
        } else {
            self.sender.rtt.on_sample(now - self.sender.syn_sent_at);
        }
        self.sender.recovery.probe.on_round_trip();
    }

    /// Whether the answer echoes the timestamp of the SYN, or SYN-ACK, that was sent last. That of an earlier one, which
    /// some servers echo for as long as they wait, and a client whose ACKs are lost (RFC 7323, 4.3: what is outside of its
    /// window is not echoed), says for how long it was not answered, and nothing of the path. (Linux takes it for a sample
    /// all the same: some seconds of that make the first retransmission timeout a minute.)
    fn is_answer_to_last_syn(&self, now: Instant, header: &TcpHeader) -> bool {
        let left = self.timers.deadline(Timer::Retransmission).map(|at| at.since(now));
        let age = self
            .negotiated
            .timestamps
            .zip(header.options.timestamps)
            .and_then(|(ours, theirs)| ours.round_trip(now, theirs.echo));
        age.zip(left).is_some_and(|(age, left)| {
            age <= self.sender.rtt.rto().saturating_sub(left) + TIMESTAMP_TICK
        })
    }

    /// The peer's SYN again in SYN-RECEIVED.
    pub(super) fn on_syn_again(
        &mut self,
        now: Instant,
        incoming: &mut Incoming<'_>,
    ) -> Result<(), DropReason> {
        if incoming.sequence + 1 != self.after_peer_syn() || incoming.flags.contains(TcpFlags::RST)
        {
            return Ok(());
        }
        if !incoming.flags.contains(TcpFlags::ACK) {
            // Our SYN-ACK was lost.
            self.owing.syn = true;
            self.sender.ecn.on_syn_again(incoming.flags);
            self.receiver.take_timestamp_of(
                now,
                incoming.header,
                incoming.sequence,
                &mut self.negotiated,
            );
            return Err(DropReason::Duplicate);
        }
        // Simultaneous open: the peer's SYN-ACK acknowledges our SYN; its SYN was here before.
        incoming.flags = incoming.flags.without(TcpFlags::SYN);
        incoming.sequence += 1;
        self.receiver.acks.owe_now();
        Ok(())
    }

    /// An ACK arrives in SYN-RECEIVED: SND.UNA < SEG.ACK =< SND.NXT opens the connection, anything
    /// else is answered with a reset. SND.UNA is ISS, as the RFC has it, also where data follows the SYN-ACK, and all
    /// that was sent counts, also data that went with a SYN which another crossed.
    pub(super) fn complete_passive_open(
        &mut self,
        now: Instant,
        incoming: &Incoming<'_>,
    ) -> Result<(), DropReason> {
        let ack = incoming.header.acknowledgment;
        if !(ack.is_after(self.sender.sequence.iss)
            && ack.is_at_or_before(self.sender.sequence.max))
        {
            self.owe_reset_for(incoming);
            return Err(DropReason::BadAck);
        }
        self.acknowledge_syn(now, incoming);
        self.enter_established(now);
        self.restart_retransmission_timer(now);
        Ok(())
    }
}
