//! What a segment says of marks of congestion (RFC 3168): one on itself, or the echo of one on ours.

use super::Incoming;
use crate::congestion::Congestion as _;
use crate::connection::Connection;
use crate::info::count;
use crate::recovery::RecoveryState;
use crate::timers::Timer;
use time::Instant;
use wire::{TcpFlags, TcpHeader};

impl Connection {
    /// Data arrived that is new and within the window: what is not must not be believed, or whoever
    /// guesses addresses and ports could slow the peer down (RFC 3168, 6.1.5).
    #[inline]
    pub(super) fn on_marked_data(&mut self, incoming: &Incoming<'_>) {
        if !self.ecn.is_on() {
            return;
        }
        if incoming.marked {
            // What a device joins is marked throughout, or not at all.
            self.counters.ecn_marks_received += u64::from(incoming.segments());
            count(&mut self.totals.marked_segments_received, incoming.segments());
        }
        if self.ecn.on_data(incoming.header.flags, incoming.marked) {
            // The peer may be about to send very little, or to send too much: it hears at once.
            self.acks.owe_now();
        }
    }

    /// The ECE flag of an acceptable ACK (RFC 3168, 6.1.2).
    #[inline]
    pub(super) fn on_echo(&mut self, now: Instant, header: &TcpHeader, flight_before: u32) {
        if !self.ecn.is_on() {
            return;
        }
        let echoed = header.flags.contains(TcpFlags::ECE) && !header.flags.contains(TcpFlags::SYN);
        self.counters.ecn_echoes_received += u64::from(echoed);
        let echo = self.ecn.on_ack(echoed, self.send.una, flight_before > 0);
        let open = self.recovery.state() == RecoveryState::Open || self.recovery.is_unreduced();
        if echo.over && open {
            self.congestion.on_recovery_exit(now);
        }
        if echo.reduce && open {
            let mss = self.negotiated.payload_max();
            if self.congestion.window() <= mss {
                self.hold_for_timeout(now);
            }
            self.congestion.on_mark(now, flight_before, mss);
            self.ecn.on_mark(self.send.nxt);
            self.recovery.on_mark();
            self.counters.reductions_for_marks += 1;
        }
    }

    /// A mark where the window is one segment already. RFC 3168, 6.1.2: "the sending TCP MUST reset the retransmit timer on
    /// receiving the ECN-Echo packet when the congestion window is one. The sending TCP will then be able to send a new
    /// packet only when the retransmit timer expires." With nothing in flight that timer has nothing to send again, so that
    /// it is new data that is held back, as pacing does. (Linux has two segments at least, and never waits.)
    #[cold]
    fn hold_for_timeout(&mut self, now: Instant) {
        let expires_at = self.rtt.expires_at(now);
        if self.send.flight() > 0 {
            self.timers.set(Timer::Retransmission, expires_at);
        }
        self.pacer.hold_until(expires_at);
    }
}
