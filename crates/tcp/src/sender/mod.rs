//! What one side of a connection sends with: what is queued and what is in flight of it, how much may be, how fast it
//! goes, and what was lost of it.
//!
//! It knows neither the state of the connection nor its peer's stream ([`crate::receiver`]); what both halves need,
//! the settings and what the handshake agreed on, it is told by whoever calls.
//!
//! What always holds: SND.UNA =< SND.NXT =< SND.MAX, and between two segments the queue begins at SND.UNA, unless that is
//! the SYN's number or lies behind the FIN's, which take no place in it.

pub(crate) mod chronograph;
pub(crate) mod congestion;
pub(crate) mod cork;
pub(crate) mod feedback;
mod loss;
pub(crate) mod pacing;
pub(crate) mod path_mtu;
pub(crate) mod queue;
pub(crate) mod rate;
pub(crate) mod recovery;
pub(crate) mod rtt;
pub(crate) mod sent;
pub(crate) mod sequence;

use crate::buffers::{BUFFER_BYTES_MAX, growth_max, is_near};
use crate::config::Config;
use crate::ecn::Ecn;
use crate::sender::chronograph::{Chronograph, Waits};
use crate::sender::congestion::{
    Congestion as _, Controller, Idle, NON_VALIDATED_PERIOD, WindowUse,
};
use crate::sender::cork::Cork;
use crate::sender::pacing::Pacer;
use crate::sender::path_mtu::PathMtu;
use crate::sender::queue::SendQueue;
use crate::sender::recovery::Recovery;
use crate::sender::rtt::RttEstimator;
use crate::sender::sequence::SendSequence;
use time::Instant;
use wire::SeqNumber;

/// The sending half of a connection.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) sequence: SendSequence,
    pub(crate) queue: SendQueue,
    /// How far the buffer may grow; 0 where the user fixed its size.
    pub(crate) buffer_limit_bytes: u32,
    pub(crate) recovery: Recovery,
    pub(crate) congestion: Controller,
    /// The setting that many connections change: not worth a copy of all of them.
    pub(crate) nodelay: bool,
    /// See [`Connection::set_cork`](crate::Connection::set_cork).
    pub(crate) cork: Cork,
    /// See [`Connection::set_super_frame_len`](crate::Connection::set_super_frame_len).
    pub(crate) super_frame_len: u16,
    pub(crate) window_use: WindowUse,
    pub(crate) ecn: Ecn,
    pub(crate) pacer: Pacer,
    pub(crate) path_mtu: PathMtu,
    pub(crate) rtt: RttEstimator,
    /// When the SYN was sent, if it was sent once (Karn's algorithm, RFC 6298, 3); otherwise zero.
    pub(crate) syn_sent_at: Instant,
    /// The next round trip is measured when this is acknowledged: one in a window.
    pub(crate) measured_until: SeqNumber,
    pub(crate) last_data_sent_at: Instant,
    pub(crate) chronograph: Chronograph,
}

impl Sender {
    /// Nothing was sent, and nothing but the path's `path_mtu` is known.
    pub(crate) fn new(
        config: &Config,
        iss: SeqNumber,
        mss: u32,
        path_mtu: PathMtu,
        now: Instant,
    ) -> Self {
        let limit_bytes = config.send_buffer_bytes.clamp(1, BUFFER_BYTES_MAX);
        let first_bytes = limit_bytes.min(config.send_buffer_bytes_initial).max(1);
        Self {
            sequence: SendSequence::new(iss),
            queue: SendQueue::new(iss + 1, first_bytes),
            buffer_limit_bytes: limit_bytes as u32,
            recovery: Recovery::new(iss),
            congestion: Controller::new(&config.congestion, mss),
            nodelay: config.nodelay,
            cork: Cork::default(),
            super_frame_len: 0,
            window_use: WindowUse::default(),
            ecn: Ecn::new(config.ecn),
            pacer: Pacer::default(),
            path_mtu,
            rtt: RttEstimator::new(config.rtt),
            syn_sent_at: Instant::ZERO,
            measured_until: iss,
            last_data_sent_at: now,
            chronograph: Chronograph::default(),
        }
    }

    /// Numbers behind SND.NXT: bytes that were never sent, and a SYN that was not
    /// ([`Connection::unsent_len`](crate::Connection::unsent_len) leaves that out).
    #[inline]
    pub(crate) fn unsent_len(&self) -> u32 {
        self.queue.len_from(self.sequence.nxt)
    }

    /// The application has something to send after a time in which it had nothing, or the peer's window opens to it.
    pub(crate) fn on_data_after_silence(&mut self, now: Instant, config: &Config, mss: u32) {
        if self.sequence.flight() > 0 || self.window_use.is_decayed {
            return;
        }
        if now <= self.rtt.expires_at(self.last_data_sent_at) {
            return;
        }
        let silence = now - self.last_data_sent_at;
        let keeps = config.congestion.idle == Idle::Decay
            && is_near(self.rtt.min_rtt_ns())
            && silence <= NON_VALIDATED_PERIOD;
        if !keeps {
            // RFC 5681, 4.1: the old window proves nothing.
            self.window_use.is_decayed = true;
            self.congestion.on_idle(silence, self.rtt.rto(), mss);
        }
    }

    /// Takes note of what the sender waits for from now on. `window_closed`: the peer's window holds
    /// data back.
    pub(crate) fn note_wait(&mut self, now: Instant, window_closed: bool) {
        let waits = if self.queue.len() == 0 {
            Waits::Nothing
        } else if window_closed {
            Waits::PeerWindow
        } else if self.queue.room() == 0 && self.unsent_len() == 0 {
            Waits::SendBuffer
        } else {
            Waits::Path
        };
        self.chronograph.enter(now, waits);
    }

    /// What may be in flight grew: while that is sent, as much should be queued behind it.
    pub(crate) fn tune_send_buffer(&mut self) {
        let flight_max = self.congestion.window().min(self.sequence.window);
        let limit_bytes =
            growth_max(self.buffer_limit_bytes as usize, is_near(self.rtt.min_rtt_ns()));
        let wanted = (flight_max.saturating_mul(2) as usize).min(limit_bytes);
        if wanted > self.queue.capacity() {
            self.queue.set_capacity(wanted);
        }
    }

    /// A controller that begins is told the round trip, where the handshake or data has measured one.
    pub(crate) fn tell_round_trip(&mut self, now: Instant) {
        if let Some(rtt) = self.rtt.smoothed() {
            self.congestion.on_round_trip(now, rtt);
        }
    }

    /// RFC 5961, 5.2: acceptable is SND.UNA - MAX.SND.WND =< SEG.ACK =< SND.NXT.
    #[inline]
    pub(crate) fn is_acceptable(&self, ack: SeqNumber) -> bool {
        let behind = self.sequence.una.distance(ack);
        let too_old = behind > 0 && behind.unsigned_abs() > self.sequence.window_max;
        !too_old && !ack.is_after(self.sequence.max)
    }
}
