//! Urgent pointer, payload and FIN (RFC 9293, 3.10.7.4, sixth to eighth).

use super::{Cuts, Incoming};
use crate::acknowledging::Owed;
use crate::connection::{Connection, OwedReset};
use crate::event::{ConnectionError, Events};
use crate::info::count;
use crate::receive_queue::Arrival;
use crate::state::State;
use crate::unstretched::{DUE_MAX, Due};
use batch::{BlockPool, Chunk};
use counters::DropReason;
use time::Instant;
use wire::{SackBlocks, SeqNumber, TcpFlags, TcpHeader};

/// What of a super-frame waited already.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Again {
    /// Segments of which all did.
    segments: u32,
    /// The last segment of which something did, counted from 1, and whether all of it did.
    through: u32,
    is_whole: bool,
}

/// Data of which each segment may ask for an ACK of its own.
pub(super) struct Arrived<'a> {
    pub(super) header: &'a TcpHeader,
    /// RCV.NXT before it.
    pub(super) start: SeqNumber,
    /// Its payload, which may be ahead of its turn.
    pub(super) len: u32,
    /// What of it waited already.
    pub(super) again: Again,
    pub(super) cuts: Cuts,
    /// What went on beyond the window was cut off.
    pub(super) beyond: bool,
    /// The FIN is behind it: the ACK of its last segment is as good behind the batch.
    pub(super) ends_stream: bool,
}

impl Connection {
    /// The application will read no more: once it has closed its own direction, too, new data makes it a reset, as where
    /// it is gone (RFC 1122, 4.2.2.13). Before that the peer goes on as if nothing had happened, as with Linux.
    pub fn shutdown_read(&mut self) {
        self.owing.read_shut = true;
    }

    /// Whether nobody is there for what the peer sends.
    #[inline]
    pub(super) fn is_unheard(&self) -> bool {
        self.owing.orphaned || (self.owing.read_shut && self.owing.fin)
    }

    pub(super) fn on_data(
        &mut self,
        now: Instant,
        incoming: &mut Incoming<'_>,
        pool: &BlockPool,
    ) -> Result<(), DropReason> {
        self.note_old(incoming.old.take());
        if !self.state.receives_data() {
            // Behind the peer's FIN there is nothing. What lies before may have come again for its ACK (RFC 9293,
            // 3.10.7.4).
            if incoming.payload.is_none() {
                return Ok(());
            }
            self.acks.owe_now();
            return Err(DropReason::BadState);
        }
        let fin = incoming.flags.contains(TcpFlags::FIN);
        let payload_len = incoming.payload_len();
        if payload_len > 0 && self.is_unheard() {
            // RFC 9293, 3.6.1: data that nobody will read: the peer SHOULD be told by a reset.
            self.fail_with_reset(Some(ConnectionError::Aborted));
            let sequence = incoming.header.acknowledgment;
            self.owing.reset = Some(OwedReset { sequence, acknowledgment: None });
            return Err(DropReason::BadState);
        }
        self.on_urgent(incoming.header);
        let next = self.receive.next();
        let offset = incoming.sequence.offset_from(next);
        if payload_len > 0 {
            self.on_marked_data(incoming);
        }
        let mut again = Again::default();
        let outcome = match incoming.payload.take() {
            Some(payload) => {
                again = self.note_overlap(offset, &payload, incoming.cuts);
                let copied_before = self.receive.copied_bytes();
                let arrival = self.receive.insert(offset, payload, incoming.sparse, pool);
                self.counters.copied_bytes += self.receive.copied_bytes() - copied_before;
                if let Some(theirs) = incoming.header.options.timestamps {
                    self.window_tuning.on_echo(theirs.echo);
                }
                self.on_arrival(now, arrival, incoming, (payload_len, again))
            }
            None => Ok(()),
        };
        let notes_each = self.acks.notes_each() && payload_len > 0 && outcome.is_ok();
        if notes_each {
            let ends_stream = fin || self.receive.is_fin_next();
            let Incoming { header, cuts, beyond, .. } = *incoming;
            let (start, len) = (next, payload_len);
            let data = Arrived { header, start, len, again, cuts, beyond, ends_stream };
            self.note_each(now, &data);
        } else if incoming.beyond {
            self.acks.owe_now();
        }
        // What is here already says nothing against the FIN behind it.
        if fin && matches!(outcome, Ok(()) | Err(DropReason::Duplicate)) {
            let fin_sequence = incoming.sequence + payload_len;
            if fin_sequence.is_after(self.receive.next()) {
                // RFC 9293, 3.10.7.4, SHLD-31: ahead of its turn it is held as data is.
                self.receive.hold_fin(fin_sequence);
                self.acks.on_disorder();
            } else if fin_sequence == self.receive.next() {
                self.on_fin(now);
            }
        } else if self.receive.is_fin_next() {
            self.on_fin(now);
        }
        outcome
    }

    /// RFC 5681, 4.2: what is out of order, or fills a gap, is acknowledged at once. Of the segments `again` are here
    /// already.
    #[inline]
    fn on_arrival(
        &mut self,
        now: Instant,
        arrival: Arrival,
        incoming: &Incoming<'_>,
        (payload_len, again): (u32, Again),
    ) -> Result<(), DropReason> {
        match arrival {
            Arrival::InOrder | Arrival::FilledGap => {
                let pushed = incoming.flags.contains(TcpFlags::PSH);
                // Where blocks are scarce a part of it may have been all that was kept.
                let received = self.receive.next().offset_from(incoming.sequence);
                let kept = received.min(payload_len);
                let segments = incoming.cuts.count(kept);
                self.on_in_order(
                    now,
                    incoming.sequence,
                    segments - again.segments.min(segments),
                    pushed,
                );
                self.note_again(again.segments);
                if arrival == Arrival::FilledGap {
                    let ends_gap = kept == received && !self.receive.has_gap();
                    let within = if ends_gap { again.through.min(segments) } else { segments };
                    self.acks.on_retransmission(within.saturating_sub(again.segments).max(1));
                } else if self.receive.has_gap() {
                    self.acks.on_disorder();
                }
                if incoming.sequence != incoming.header.sequence {
                    self.acks.owe_now();
                }
                Ok(())
            }
            Arrival::OutOfOrder => {
                let segments =
                    incoming.cuts.count(payload_len).saturating_sub(again.segments).max(1);
                self.note_again(again.segments);
                self.counters.out_of_order_segments += u64::from(segments);
                count(&mut self.totals.segments_out_of_order, segments);
                self.totals.data_segments_received += u64::from(segments);
                self.acks.on_out_of_order(segments, self.negotiated.sack);
                Ok(())
            }
            Arrival::Duplicate => {
                self.note_again(incoming.cuts.count(payload_len));
                Err(DropReason::Duplicate)
            }
            Arrival::Refused | Arrival::NoMemory | Arrival::TooMuchUnread => {
                Err(self.on_refused(arrival))
            }
        }
    }

    /// What arrived moved RCV.NXT on from `start`: so many segments, the newest with PSH or not.
    #[inline]
    pub(super) fn on_in_order(
        &mut self,
        now: Instant,
        start: SeqNumber,
        segments: u32,
        pushed: bool,
    ) {
        let received = self.receive.next().offset_from(start);
        self.counters.bytes_received += u64::from(received);
        self.totals.bytes_received += u64::from(received);
        self.totals.data_segments_received += u64::from(segments);
        self.events.insert(Events::READABLE);
        let rtt = &self.rtt;
        self.acks.on_data(now, segments, pushed, || rtt.rto());
    }

    /// Data arrived that moved RCV.NXT on, or waits: notes the ACKs that its segments ask for.
    #[cold]
    pub(super) fn note_each(&mut self, now: Instant, data: &Arrived<'_>) {
        let Arrived { header, start, len: own_len, again, cuts, beyond, ends_stream } = *data;
        let len = self.receive.next().offset_from(start);
        // The clock does not change what is echoed.
        let said = self.segment_options(Instant::ZERO);
        let (number, echo) = (start, said.timestamps.map_or(0, |it| it.echo));
        let mut due = Due { number, echo, sack: said.sack, ecn: self.ecn.flags() };
        let segments = match len {
            // Ahead of its turn: who has no SACK counts the ACKs of its segments.
            0 if self.negotiated.sack => cuts.count(own_len).min(1 + u32::from(ends_stream)),
            0 => cuts.count(own_len),
            // What waited behind is acknowledged with it.
            _ if len > own_len => 1,
            _ => cuts.count(len),
        };
        // Where it fills a gap, all up to there is acknowledged at once (RFC 5681, 4.2) and as one, for no block tells
        // of what waited any more. A guest's header may call a super-frame tens of thousands.
        let through = if len > 0 { again.through.min(segments) } else { 0 };
        let first = through.max(1 + segments.saturating_sub(DUE_MAX as u32));
        for index in first..=segments {
            if due.number != start {
                // What is due is as good as sent, so the same timestamp may be the one to echo now.
                self.take_timestamp_of(now, header, due.number);
                due.echo = self.negotiated.timestamps.map_or(0, |it| it.option(now).echo);
            }
            due.number = start + if index < segments { cuts.end(index, len) } else { len };
            // A segment that did not fit is acknowledged at once, as is what is behind a gap.
            let is_cut = index == segments && cuts.count_whole(own_len) < cuts.count(own_len);
            if len == 0 || self.receive.has_gap() || (beyond && is_cut) {
                self.acks.owe_now();
            }
            if index < segments || !ends_stream {
                let reports = index == first && self.acks.owed() == Owed::Now;
                self.note(due, reports);
            }
            if index == through && again.is_whole {
                // As is one that came again.
                self.acks.owe_now();
            }
        }
        if beyond && cuts.count_whole(own_len) == cuts.count(own_len) {
            // Whole segments did not fit.
            self.acks.owe_now();
        }
    }

    /// Notes the ACK that a segment asks for; with `reports` one for each duplicate that is to be reported, if any is.
    fn note(&mut self, due: Due, reports: bool) {
        let report = if reports { self.take_report() } else { None };
        self.acks.on_each(Due { sack: report.unwrap_or(due.sack), ..due });
        while report.is_some()
            && let Some(sack) = self.take_report()
        {
            self.acks.owe_now();
            self.acks.on_each(Due { sack, ..due });
        }
        // What is acknowledged decides which timestamp is kept (RFC 7323, 4.3).
        if let Some(due) = self.acks.due_count().checked_sub(1).and_then(|it| self.acks.due(it)) {
            self.last_ack_sent = due.number;
        }
    }

    fn take_report(&mut self) -> Option<SackBlocks> {
        let sack = self.report_sack()?;
        self.on_duplicate_reported();
        Some(sack)
    }

    /// What arrived was not kept: says why.
    pub(super) fn on_refused(&mut self, arrival: Arrival) -> DropReason {
        // As if it had been lost: an ACK now would only ask for it again at once.
        match arrival {
            Arrival::NoMemory => return DropReason::NoMemory,
            Arrival::TooMuchUnread => return DropReason::StreamsFull,
            _ => {}
        }
        if self.receive.has_gap() {
            self.counters.out_of_order_refused += 1;
        }
        self.acks.owe_now();
        DropReason::ReceiveBufferFull
    }

    /// Takes note of what of a payload waits already, and says of how many segments all does.
    #[inline]
    fn note_overlap(&mut self, offset: u32, payload: &Chunk, cuts: Cuts) -> Again {
        match self.receive.has_gap() {
            true => self.note_each_overlap(offset, payload, cuts),
            false => Again::default(),
        }
    }

    #[cold]
    fn note_each_overlap(&mut self, offset: u32, payload: &Chunk, cuts: Cuts) -> Again {
        let mut again = Again::default();
        if self.receive.overlap(offset, payload).first.is_none() {
            return again;
        }
        let len = payload.len() as u32;
        let mut start = 0;
        for index in 1..=cuts.count(len) {
            let end = cuts.end(index, len);
            let mut part = payload.clone();
            part.truncate(end as usize);
            part.trim_front(start as usize);
            let overlap = self.receive.overlap(offset + start, &part);
            if let Some((from, to)) = overlap.first {
                let next = self.receive.next();
                self.note_duplicate(next + from, next + to);
                again.through = index;
                again.is_whole = to - from == end - start;
                again.segments += u32::from(again.is_whole);
            }
            self.counters.overlap_conflicts += u64::from(overlap.is_conflicting);
            start = end;
        }
        again
    }

    /// So many segments have arrived of which all was here already.
    pub(super) fn note_again(&mut self, segments: u32) {
        if segments > 0 {
            self.counters.duplicate_segments += u64::from(segments);
            self.acks.on_retransmission(segments);
        }
    }

    /// What of a payload from `start` on, all before RCV.NXT, arrived before.
    pub(super) fn find_old(
        &mut self,
        start: SeqNumber,
        bytes: &[u8],
    ) -> Option<(SeqNumber, SeqNumber)> {
        if self.receive.differs_from_unread(start, bytes) {
            self.counters.overlap_conflicts += 1;
        }
        // RFC 2883, 4: a block "is only used to report a duplicate contiguous sequence of data received". What lies
        // before all that this connection received is of another one with these ends, or of another SYN-ACK.
        let behind = u64::from(self.receive.next().offset_from(start));
        let received = self.totals.bytes_received + u64::from(self.receive.has_fin());
        let first = start + behind.saturating_sub(received) as u32;
        let end = start + bytes.len() as u32;
        first.is_before(end).then_some((first, end))
    }

    /// Takes note of what arrived again.
    pub(super) fn note_old(&mut self, old: Option<(SeqNumber, SeqNumber)>) {
        if let Some((start, end)) = old {
            self.note_duplicate(start, end);
        }
    }

    fn note_duplicate(&mut self, start: SeqNumber, end: SeqNumber) {
        let reports = self.negotiated.sack && self.config.duplicate_reports;
        if reports && !self.duplicates.add(start, end) {
            self.counters.duplicates_unreported += 1;
        }
    }

    /// The peer's FIN, and all before it is here.
    fn on_fin(&mut self, now: Instant) {
        self.receive.on_fin();
        self.acks.owe_now();
        self.events.insert(Events::READABLE | Events::PEER_CLOSED);
        match self.state {
            State::Established => self.enter(State::CloseWait),
            // Our FIN is not acknowledged, or this segment's ACK would have moved the state on.
            State::FinWait1 => self.enter(State::Closing),
            State::FinWait2 => self.enter_time_wait(now),
            _ => {}
        }
    }
}
