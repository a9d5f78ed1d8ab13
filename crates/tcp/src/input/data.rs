//! Urgent pointer, payload and FIN (RFC 9293, 3.10.7.4, sixth to eighth).

use super::Incoming;
use crate::connection::{Connection, OwedReset};
use crate::event::{ConnectionError, Events};
use crate::info::count;
use crate::receiver::duplicates::Again;
use crate::receiver::queue::Arrival;
use crate::receiver::unstretched::Arrived;
use crate::state::State;
use batch::BlockPool;
use counters::DropReason;
use time::Instant;
use wire::{SeqNumber, TcpFlags};

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
        let reports = self.reports_duplicates();
        self.receiver.note_old(incoming.old.take(), reports, &mut self.counters);
        if !self.state.receives_data() {
            // Behind the peer's FIN there is nothing. What lies before may have come again for its ACK (RFC 9293,
            // 3.10.7.4).
            if incoming.payload.is_none() {
                return Ok(());
            }
            self.receiver.acks.owe_now();
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
        let next = self.receiver.queue.next();
        let offset = incoming.sequence.offset_from(next);
        if payload_len > 0 {
            self.on_marked_data(incoming);
        }
        let mut again = Again::default();
        let outcome = match incoming.payload.take() {
            Some(payload) => {
                again = self.receiver.note_overlap(
                    offset,
                    &payload,
                    incoming.cuts,
                    reports,
                    &mut self.counters,
                );
                let copied_before = self.receiver.queue.copied_bytes();
                let arrival = self.receiver.queue.insert(offset, payload, incoming.sparse, pool);
                self.counters.copied_bytes += self.receiver.queue.copied_bytes() - copied_before;
                if let Some(theirs) = incoming.header.options.timestamps {
                    self.receiver.window_tuning.on_echo(theirs.echo);
                }
                self.on_arrival(now, arrival, incoming, (payload_len, again))
            }
            None => Ok(()),
        };
        let notes_each = self.receiver.acks.notes_each() && payload_len > 0 && outcome.is_ok();
        if notes_each {
            let ends_stream = fin || self.receiver.queue.is_fin_next();
            let Incoming { header, cuts, beyond, .. } = *incoming;
            let (start, len) = (next, payload_len);
            let data = Arrived { header, start, len, again, cuts, beyond, ends_stream };
            self.receiver.note_each(now, &data, &mut self.negotiated, &mut self.counters);
        } else if incoming.beyond {
            self.receiver.acks.owe_now();
        }
        // What is here already says nothing against the FIN behind it.
        let takes_fin = fin && matches!(outcome, Ok(()) | Err(DropReason::Duplicate));
        self.check_fin(now, takes_fin.then_some(incoming.sequence + payload_len));
        outcome
    }

    /// Eighth: a FIN at this number, or one that waited for what is here now.
    #[inline]
    fn check_fin(&mut self, now: Instant, sequence: Option<SeqNumber>) {
        let queue = &mut self.receiver.queue;
        match sequence {
            Some(sequence) if sequence.is_after(queue.next()) => {
                // RFC 9293, 3.10.7.4, SHLD-31: ahead of its turn it is held as data is.
                queue.hold_fin(sequence);
                self.receiver.acks.on_disorder();
            }
            Some(sequence) if sequence == queue.next() => self.on_fin(now),
            None if queue.is_fin_next() => self.on_fin(now),
            Some(_) | None => {}
        }
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
                let received = self.receiver.queue.next().offset_from(incoming.sequence);
                let kept = received.min(payload_len);
                let segments = incoming.cuts.count(kept);
                self.on_in_order(
                    now,
                    incoming.sequence,
                    segments - again.segments.min(segments),
                    pushed,
                );
                self.receiver.note_again(again.segments, &mut self.counters);
                if arrival == Arrival::FilledGap {
                    let ends_gap = kept == received && !self.receiver.queue.has_gap();
                    let within = if ends_gap { again.through.min(segments) } else { segments };
                    self.receiver
                        .acks
                        .on_retransmission(within.saturating_sub(again.segments).max(1));
                } else if self.receiver.queue.has_gap() {
                    self.receiver.acks.on_disorder();
                }
                if incoming.sequence != incoming.header.sequence {
                    self.receiver.acks.owe_now();
                }
                Ok(())
            }
            Arrival::OutOfOrder => {
                let segments =
                    incoming.cuts.count(payload_len).saturating_sub(again.segments).max(1);
                self.receiver.note_again(again.segments, &mut self.counters);
                self.counters.out_of_order_segments += u64::from(segments);
                count(&mut self.totals.segments_out_of_order, segments);
                self.totals.data_segments_received += u64::from(segments);
                self.receiver.acks.on_out_of_order(segments, self.negotiated.sack);
                Ok(())
            }
            Arrival::Duplicate => {
                self.receiver.note_again(incoming.cuts.count(payload_len), &mut self.counters);
                Err(DropReason::Duplicate)
            }
            Arrival::Refused | Arrival::NoMemory | Arrival::TooMuchUnread => {
                Err(self.receiver.on_refused(arrival, &mut self.counters))
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
        let received = self.receiver.queue.next().offset_from(start);
        self.counters.bytes_received += u64::from(received);
        self.totals.bytes_received += u64::from(received);
        self.totals.data_segments_received += u64::from(segments);
        self.events.insert(Events::READABLE);
        let rtt = &self.sender.rtt;
        self.receiver.acks.on_data(now, segments, pushed, || rtt.rto());
    }

    /// The peer's FIN, and all before it is here.
    fn on_fin(&mut self, now: Instant) {
        self.receiver.queue.on_fin();
        self.receiver.acks.owe_now();
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
