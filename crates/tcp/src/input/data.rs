//! Payload and FIN (RFC 9293, 3.10.7.4, seventh and eighth). The urgent pointer is ignored: urgent
//! data stays in line, as the RFC lets the application choose (SHLD-13: new applications SHOULD NOT
//! use it).

use super::Incoming;
use crate::connection::Connection;
use crate::event::{ConnectionError, Events};
use crate::receive_queue::Arrival;
use crate::state::State;
use batch::BlockPool;
use counters::DropReason;
use time::Instant;
use wire::TcpFlags;

impl Connection {
    pub(super) fn on_data(
        &mut self,
        now: Instant,
        incoming: &mut Incoming<'_>,
        pool: &BlockPool,
    ) -> Result<(), DropReason> {
        if !self.state.receives_data() {
            // Behind the peer's FIN there is nothing.
            return match incoming.payload {
                Some(_) => Err(DropReason::BadState),
                None => Ok(()),
            };
        }
        let fin = incoming.flags.contains(TcpFlags::FIN);
        let payload_len = incoming.payload_len();
        if payload_len > 0 && self.owing.orphaned {
            // RFC 9293, 3.6.1: data that nobody will read: the peer SHOULD be told by a reset.
            self.fail_with_reset(Some(ConnectionError::Aborted));
            return Err(DropReason::BadState);
        }
        let offset = incoming.sequence.offset_from(self.receive.next());
        let outcome = match incoming.payload.take() {
            Some(payload) => {
                let arrival = self.receive.insert(offset, payload, incoming.sparse, pool);
                self.counters.copied_bytes = self.receive.copied_bytes();
                self.on_arrival(now, arrival, incoming)
            }
            None => Ok(()),
        };
        outcome?;
        if fin {
            let fin_sequence = incoming.sequence + payload_len;
            if fin_sequence == self.receive.next() {
                self.on_fin(now);
            } else {
                // Ahead of its turn: the peer will send it again.
                self.acks.on_disorder();
            }
        }
        Ok(())
    }

    /// RFC 5681, 4.2: what is out of order, or fills a gap, is acknowledged at once.
    #[inline]
    fn on_arrival(
        &mut self,
        now: Instant,
        arrival: Arrival,
        incoming: &Incoming<'_>,
    ) -> Result<(), DropReason> {
        match arrival {
            Arrival::InOrder | Arrival::FilledGap => {
                let received = self.receive.next().offset_from(incoming.sequence);
                self.counters.bytes_received += u64::from(received);
                self.events.insert(Events::READABLE);
                let pushed = incoming.flags.contains(TcpFlags::PSH);
                self.acks.on_data(now, incoming.segments, pushed, self.rtt.rto());
                if arrival == Arrival::FilledGap || self.receive.has_gap() {
                    self.acks.on_disorder();
                }
                if incoming.trimmed {
                    self.acks.owe_now();
                }
                Ok(())
            }
            Arrival::OutOfOrder => {
                self.counters.out_of_order_segments += 1;
                self.acks.on_out_of_order(incoming.segments, self.negotiated.sack);
                Ok(())
            }
            Arrival::Duplicate => {
                self.counters.duplicate_segments += 1;
                self.acks.on_disorder();
                Err(DropReason::Duplicate)
            }
            Arrival::Refused => {
                self.acks.owe_now();
                Err(DropReason::ReceiveBufferFull)
            }
            // As if it had been lost: an ACK now would only ask for it again at once.
            Arrival::NoMemory => Err(DropReason::NoMemory),
        }
    }

    /// The peer's FIN, and all before it is here.
    fn on_fin(&mut self, now: Instant) {
        self.receive.on_fin();
        self.acks.owe_now();
        self.events.insert(Events::READABLE | Events::PEER_CLOSED);
        match self.state {
            State::Established => self.state = State::CloseWait,
            // Our FIN is not acknowledged, or this segment's ACK would have moved the state on.
            State::FinWait1 => self.state = State::Closing,
            State::FinWait2 => self.enter_time_wait(now),
            _ => {}
        }
    }
}
