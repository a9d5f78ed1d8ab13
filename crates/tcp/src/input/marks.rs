//! What a segment says of marks of congestion (RFC 3168): one on itself, or the echo of one on ours.

use super::Incoming;
use crate::connection::Connection;
use crate::info::count;
use crate::timers::Timer;
use time::Instant;
use wire::{TcpFlags, TcpHeader};

impl Connection {
    /// Data arrived that is new and within the window: what is not must not be believed, or whoever
    /// guesses addresses and ports could slow the peer down (RFC 3168, 6.1.5).
    #[inline]
    pub(super) fn on_marked_data(&mut self, incoming: &Incoming<'_>) {
        if !self.sender.ecn.is_on() {
            return;
        }
        if incoming.marked {
            // What a device joins is marked throughout, or not at all.
            self.counters.ecn_marks_received += u64::from(incoming.segments());
            count(&mut self.totals.marked_segments_received, incoming.segments());
        }
        if self.receiver.mark_echo.on_data(incoming.header.flags, incoming.marked) {
            // The peer may be about to send very little, or to send too much: it hears at once.
            self.receiver.acks.owe_now();
        }
    }

    /// The ECE flag of an acceptable ACK (RFC 3168, 6.1.2).
    #[inline]
    pub(super) fn on_echo(&mut self, now: Instant, header: &TcpHeader, flight_before: u32) {
        if !self.sender.ecn.is_on() {
            return;
        }
        let echoed = header.flags.contains(TcpFlags::ECE) && !header.flags.contains(TcpFlags::SYN);
        self.counters.ecn_echoes_received += u64::from(echoed);
        let mss = self.negotiated.payload_max();
        let is_held = self.sender.on_echo(now, echoed, flight_before, mss, &mut self.counters);
        if is_held && self.sender.sequence.flight() > 0 {
            self.timers.set(Timer::Retransmission, self.sender.rtt.expires_at(now));
        }
    }
}
