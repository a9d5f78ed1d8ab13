//! A segment arrives (RFC 9293, 3.10.7), step by step and in the RFC's order.
//!
//! ```text
//!   SYN-SENT: handshake::on_syn_sent
//!   others:   PAWS -> sequence -> RST -> SYN -> ACK (acknowledgment) -> data, FIN (data)
//!   train:    segments that say the same again: their data alone
//! ```
//!
//! Each step either lets the segment pass or ends its processing with the reason for which it is
//! dropped; an ACK or a reset that the RFC wants in return is then owed already.

mod acknowledgment;
mod data;
mod handshake;
mod marks;
mod recovering;
mod train;

pub use train::Follower;

use crate::connection::{Connection, OwedReset};
use crate::event::ConnectionError;
use crate::receiver::cuts::Cuts;
use crate::receiver::window_tuning::Observed;
use crate::state::State;
use crate::timers::Timer;
use batch::{BlockPool, Chunk};
use counters::DropReason;
use time::{Instant, nanos};
use wire::{SeqNumber, TcpFlags, TcpHeader};

/// A segment for a connection.
#[derive(Debug)]
pub struct Segment<'a> {
    /// Its header, already parsed.
    pub header: &'a TcpHeader,
    /// Its payload; `None` or empty where there is none.
    pub payload: Option<Chunk>,
    /// The payload's block holds little else: copy the payload instead of keeping the block.
    pub sparse: bool,
    /// Payload bytes of each of the segments of the wire that it stands for, but for the last, which may be
    /// shorter; 0 where it is one.
    pub segment_len: u32,
    /// The network marked it (RFC 3168).
    pub congestion_experienced: bool,
}

/// A segment on its way through the steps, cut to what is new and within the window.
#[derive(Debug)]
pub(crate) struct Incoming<'a> {
    header: &'a TcpHeader,
    flags: TcpFlags,
    /// SEG.SEQ of what is left.
    sequence: SeqNumber,
    /// The same of its first segment of the wire that reaches RCV.NXT, whatever was cut off.
    began: SeqNumber,
    payload: Option<Chunk>,
    sparse: bool,
    /// Where its segments of the wire end.
    cuts: Cuts,
    /// What of it came before, which was cut off: reported where nothing else is amiss.
    old: Option<(SeqNumber, SeqNumber)>,
    /// Some of it was cut off.
    trimmed: bool,
    /// Some of that lay beyond the window.
    beyond: bool,
    /// The network marked it.
    marked: bool,
}

impl Incoming<'_> {
    fn payload_len(&self) -> u32 {
        self.payload.as_ref().map_or(0, |payload| payload.len() as u32)
    }

    /// How many segments of the wire it is, or was, where nothing is left of them; at least 1.
    fn segments(&self) -> u32 {
        self.cuts.count(self.payload_len())
    }

    /// SEG.SEQ of its segment of the wire in which the first `len` bytes end.
    fn began(&self, len: u32) -> SeqNumber {
        let before = self.cuts.count_whole(len.saturating_sub(1));
        self.sequence + self.cuts.end(before, len)
    }

    /// SEG.LEN.
    fn len(&self) -> u32 {
        self.payload_len()
            + u32::from(self.flags.contains(TcpFlags::SYN))
            + u32::from(self.flags.contains(TcpFlags::FIN))
    }
}

impl Connection {
    /// Takes a segment that belongs to this connection and whose checksum is right.
    ///
    /// # Errors
    /// Why it was dropped, in whole or in part. The connection is as the RFC wants it in either
    /// case; an answer may be owed.
    pub fn on_segment(
        &mut self,
        now: Instant,
        segment: Segment<'_>,
        pool: &BlockPool,
    ) -> Result<(), DropReason> {
        let mut incoming = Incoming {
            header: segment.header,
            flags: segment.header.flags,
            sequence: segment.header.sequence,
            began: segment.header.sequence,
            payload: segment.payload.filter(|payload| !payload.is_empty()),
            sparse: segment.sparse,
            cuts: Cuts::of(segment.header, segment.segment_len, self.negotiated.mss_receive()),
            old: None,
            trimmed: false,
            beyond: false,
            marked: segment.congestion_experienced,
        };
        let segments = incoming.segments();
        self.counters.segments_received += u64::from(segments);
        self.totals.segments_received += u64::from(segments);
        match self.state {
            State::Closed | State::Listen => Err(DropReason::BadState),
            State::SynSent => self.on_syn_sent(now, &mut incoming, pool),
            _ => self.on_synchronized(now, &mut incoming, pool),
        }
    }

    /// All segments of a device batch were handed in: decides whether to acknowledge now.
    pub fn on_batch_end(&mut self, now: Instant) {
        self.tune_receive_buffer(now);
        let rtt_ns = self.receiver.window_tuning.rtt_ns(self.sender.rtt.smoothed_ns());
        let rtt_ns = rtt_ns.unwrap_or_else(|| nanos(self.config.deferred_acks_interval));
        if self.receiver.acks.on_batch_end(now, rtt_ns) && self.state != State::Closed {
            self.timers.set_if_idle(Timer::DelayedAck, now + self.config.deferred_acks_interval);
        }
        self.arm_pacing(now);
    }

    /// Lets the receive buffer follow what the application reads, where a larger one is of use.
    fn tune_receive_buffer(&mut self, now: Instant) {
        let timestamps = self.negotiated.timestamps;
        let echo = self.receiver.window_tuning.take_echo();
        let observed = Observed {
            now,
            next: self.receiver.queue.next(),
            edge: self.receiver.queue.edge(),
            echo: timestamps.zip(echo).and_then(|(ours, echo)| ours.age(now, echo)),
            own_rtt_ns: self.sender.rtt.smoothed_ns(),
            own_rtt_min_ns: self.sender.rtt.min_rtt_ns(),
            mss: self.negotiated.payload_max_receive(),
        };
        let wanted =
            self.receiver.window_tuning.on_batch_end(&observed, self.receiver.queue.capacity());
        if let Some(wanted) = wanted.filter(|_| self.receiver.queue.may_grow()) {
            self.receiver.queue.set_capacity(wanted);
            self.counters.receive_buffer_growths += 1;
            // All may be read, and nothing be owed with which the peer would hear of it.
            self.tell_of_window();
        }
    }

    fn on_synchronized(
        &mut self,
        now: Instant,
        incoming: &mut Incoming<'_>,
        pool: &BlockPool,
    ) -> Result<(), DropReason> {
        self.check_timestamp(now, incoming)?;
        self.check_sequence(now, incoming)?;
        self.check_reset(now, incoming)?;
        if self.state == State::Closed {
            return Ok(());
        }
        self.check_syn(now, incoming)?;
        // RFC 9293, 3.10.7.4, fifth: without ACK a segment is dropped.
        if !incoming.flags.contains(TcpFlags::ACK) {
            return Err(DropReason::BadAck);
        }
        self.on_acknowledgment(now, incoming)?;
        self.take_timestamp(now, incoming);
        if self.state == State::Closed {
            return Ok(());
        }
        let outcome = self.on_data(now, incoming, pool);
        self.arm_persist(now);
        outcome
    }

    /// PAWS (RFC 7323, 5.3 R1).
    #[inline]
    fn check_timestamp(&mut self, now: Instant, incoming: &Incoming<'_>) -> Result<(), DropReason> {
        if incoming.flags.contains(TcpFlags::RST) || self.negotiated.timestamps.is_none() {
            // RFC 7323, 5.2: a reset is never refused for its timestamp.
            return Ok(());
        }
        if self.negotiated.is_missing_timestamp(incoming.header) {
            self.counters.timestamps_missing += u64::from(incoming.segments());
            if !self.config.timestamps_required {
                // As from a peer that has none: it cannot be told from the past, and TS.Recent stays.
                return Ok(());
            }
            if incoming.flags.contains(TcpFlags::SYN) {
                // RFC 5961, 4.2: whatever else is the matter with a SYN, the peer MUST be asked: it may have
                // restarted, and be one without timestamps now.
                self.receiver.challenge(now, &mut self.counters);
            }
            return Err(DropReason::Paws);
        }
        let (Some(ours), Some(theirs)) =
            (&mut self.negotiated.timestamps, incoming.header.options.timestamps)
        else {
            return Ok(());
        };
        if ours.is_old(now, theirs.value) {
            // The old duplicate is answered, so that a peer that lost state can find out.
            if incoming.len() > 0 {
                self.receiver.acks.owe_now();
            } else {
                self.receiver.challenge(now, &mut self.counters);
            }
            return Err(DropReason::Paws);
        }
        Ok(())
    }

    /// First: whether the segment is within the window (RFC 9293, 3.10.7.4); cuts it to that.
    #[inline]
    pub(super) fn check_sequence(
        &mut self,
        now: Instant,
        incoming: &mut Incoming<'_>,
    ) -> Result<(), DropReason> {
        let next = self.receiver.queue.next();
        if self.state == State::SynReceived && incoming.flags.contains(TcpFlags::SYN) {
            self.on_syn_again(now, incoming)?;
        }
        let offset = incoming.sequence.distance(next);
        let len = incoming.len();
        let window = self.receiver.queue.window();
        if offset == 0 && len <= window {
            // In order and within the window: nothing to cut.
            return Ok(());
        }
        if offset < 0 {
            let old = offset.unsigned_abs();
            if len <= old {
                return self.refuse_old(now, incoming, old == len);
            }
            // RFC 5961, 4.2: "irrespective of the sequence number". Without its SYN the rest would be data.
            self.check_syn(now, incoming)?;
            self.cut_front(incoming, old);
        } else if offset.unsigned_abs() > window {
            return self.refuse_beyond(now, incoming);
        }
        // At the right edge itself, which by the letter is outside: there stand the ACKs of a peer that has filled
        // the window, and while a gap keeps RCV.NXT behind they would all be lost. Its data finds no room.
        let start = incoming.sequence.offset_from(next);
        let room = window.saturating_sub(start);
        if incoming.payload_len() > room {
            // What lies beyond the window is not kept, nor is the FIN behind it. With a closed
            // window the ACK and a reset still count (RFC 9293, 3.10.7.4, MUST-66). A FIN right
            // behind the window takes no room and is kept.
            incoming.payload = incoming.payload.take().filter(|_| room > 0);
            if let Some(payload) = &mut incoming.payload {
                payload.truncate(room as usize);
            }
            incoming.flags = incoming.flags.without(TcpFlags::FIN);
            (incoming.trimmed, incoming.beyond) = (true, true);
            if room == 0 {
                self.receiver.acks.owe_now();
            }
        }
        Ok(())
    }

    /// RFC 7323, 4.3 (2). Only of a segment whose ACK is acceptable: a blind guess of the sequence number
    /// alone must not move TS.Recent ahead and have the peer's own segments refused by PAWS.
    #[inline]
    fn take_timestamp(&mut self, now: Instant, incoming: &Incoming<'_>) {
        self.receiver.take_timestamp_of(now, incoming.header, incoming.began, &mut self.negotiated);
    }

    /// Forgets the first `count` sequence numbers, which arrived before.
    fn cut_front(&mut self, incoming: &mut Incoming<'_>, count: u32) {
        let segments = incoming.segments();
        incoming.began = incoming.began(count);
        if let Some(payload) = &mut incoming.payload {
            let old = (count as usize).min(payload.len());
            incoming.old = self.receiver.find_old(
                incoming.sequence,
                &payload.bytes()[..old],
                self.totals.bytes_received,
                &mut self.counters,
            );
            payload.trim_front(count as usize);
            if payload.is_empty() {
                incoming.payload = None;
            }
            // What is new of the last may be its FIN.
            let before_last = segments - 1;
            let again = incoming.cuts.count_whole(count).min(before_last);
            self.receiver.note_again(again, &mut self.counters);
            incoming.cuts = incoming.cuts.behind(count);
        }
        incoming.sequence += count;
        incoming.trimmed = true;
    }

    /// The segment lies before RCV.NXT altogether.
    fn refuse_old(
        &mut self,
        now: Instant,
        incoming: &Incoming<'_>,
        ends_at_next: bool,
    ) -> Result<(), DropReason> {
        if incoming.flags.contains(TcpFlags::RST) {
            return Err(DropReason::OutOfWindow);
        }
        if self.state == State::TimeWait && incoming.flags.contains(TcpFlags::FIN) && ends_at_next {
            // RFC 9293, 3.10.7.4: the FIN came again; acknowledge it and begin anew.
            self.timers.set(Timer::Lifetime, now + self.config.time_wait);
        }
        if ends_at_next {
            // Our ACK was lost: the next one echoes the repetition, or the peer would measure its own
            // timeout as a round trip and raise it with every lost ACK.
            let began = incoming.began(incoming.payload_len());
            self.receiver.take_timestamp_of(now, incoming.header, began, &mut self.negotiated);
        }
        // A duplicate shows, too, that the peer is there, and so does a probe with which it asks for us. Nothing else
        // of what its ACK says is looked at.
        if incoming.flags.contains(TcpFlags::ACK)
            && self.sender.is_acceptable(incoming.header.acknowledgment)
        {
            self.note_life(now);
        }
        if incoming.len() > 0 {
            // Sent again because our ACK was lost, or by mistake: RFC 9293, 3.10.7.4 asks for an ACK.
            self.receiver.note_again(incoming.segments(), &mut self.counters);
            // What comes with a SYN is of another connection (RFC 7413), and no duplicate of this one's.
            if let Some(payload) = &incoming.payload
                && !incoming.flags.contains(TcpFlags::SYN)
            {
                let old = self.receiver.find_old(
                    incoming.sequence,
                    payload.bytes(),
                    self.totals.bytes_received,
                    &mut self.counters,
                );
                self.receiver.note_old(old, self.reports_duplicates(), &mut self.counters);
            }
            return Err(DropReason::Duplicate);
        }
        // A keepalive, a probe, or a stray ACK: answered, within the limit that keeps two ends from
        // answering each other for ever.
        self.receiver.challenge(now, &mut self.counters);
        // RFC 9293, 3.10.7.4, MUST-66: with a closed window ACKs still count. If each end has taken the byte of the
        // other's probe, which that does not count as sent, this is where their ACKs of it stand.
        // (What is less than the window's scale says is a closed one to the peer.) That it has opened since is told by
        // ACKs that stand there, too: if neither counted them, the two would answer each other for ever.
        let is_closed = self.receiver.queue.window() >> self.negotiated.receive_shift == 0;
        let may_count = is_closed || self.receiver.queue.ends_with_probe();
        match may_count && incoming.sequence + 1 == self.receiver.queue.next() {
            true => Ok(()),
            false => Err(DropReason::OutOfWindow),
        }
    }

    fn refuse_beyond(&mut self, now: Instant, incoming: &Incoming<'_>) -> Result<(), DropReason> {
        // RFC 5961, 3.2 drops a reset outside the window in silence.
        if !incoming.flags.contains(TcpFlags::RST) {
            self.receiver.challenge(now, &mut self.counters);
        }
        Err(DropReason::OutOfWindow)
    }

    /// Second: RST (RFC 9293, 3.10.7.4; RFC 5961, 3.2).
    #[inline]
    fn check_reset(&mut self, now: Instant, incoming: &Incoming<'_>) -> Result<(), DropReason> {
        if !incoming.flags.contains(TcpFlags::RST) {
            return Ok(());
        }
        if self.state == State::TimeWait {
            // RFC 1337, 3 (fix F1): a reset does not end TIME-WAIT before its time.
            return Err(DropReason::TimeWaitReset);
        }
        if incoming.sequence != self.receiver.queue.next()
            || incoming.header.sequence != incoming.sequence
        {
            // In the window but not exact: it may be a blind guess, so the peer is asked. At the right edge, too:
            // there stands the reset (its SND.NXT) of a peer that gives up with a window full of data under way,
            // and lost in silence it would leave this end waiting for ever.
            self.receiver.challenge(now, &mut self.counters);
            return Err(DropReason::OutOfWindow);
        }
        self.counters.resets_received += 1;
        let error = match self.state {
            // RFC 9293, 3.10.7.4: "If this connection was initiated with an active OPEN [...] then the connection was
            // refused". Of a passive one the application knows only where it has accepted it before the handshake was
            // complete (a relay's, or one whose data came with its SYN), and refused it was not.
            State::SynReceived if self.owing.active => Some(ConnectionError::Refused),
            // All that was sent is here, but for the goodbye.
            State::Closing | State::LastAck if self.sender.queue.len() == 0 => None,
            // What POSIX programs expect of a pipe that the reader has left.
            State::CloseWait => Some(ConnectionError::BrokenPipe),
            _ => Some(ConnectionError::Reset),
        };
        self.enter_closed(error);
        Ok(())
    }

    /// Fourth: a SYN in the window (RFC 5961, 4.2): a challenge ACK, and nothing else.
    #[inline]
    fn check_syn(&mut self, now: Instant, incoming: &Incoming<'_>) -> Result<(), DropReason> {
        if !incoming.flags.contains(TcpFlags::SYN) {
            return Ok(());
        }
        self.receiver.challenge(now, &mut self.counters);
        Err(DropReason::BadState)
    }

    /// Owes a reset for a segment whose ACK the handshake cannot use, and goes on.
    pub(crate) fn owe_reset_for(&mut self, incoming: &Incoming<'_>) {
        if !incoming.flags.contains(TcpFlags::RST) {
            self.owing.reset =
                Some(OwedReset { sequence: incoming.header.acknowledgment, acknowledgment: None });
        }
    }
}
