//! What is changed of a connection that stands: by the application its congestion control, its pace, when its segments
//! wait and the sizes of its buffers, and by its owner what path and interface take.

use crate::buffers::BUFFER_BYTES_MAX;
use crate::config::Config;
use crate::connection::Connection;
use crate::sender::congestion::{Algorithm, Controller};
use crate::sender::cork::Cork;
use crate::state::State;
use crate::timers::Timer;
use core::num::NonZeroU64;
use std::sync::Arc;
use time::Instant;

impl Connection {
    /// Small segments are sent at once from now on, or no more.
    pub fn set_nodelay(&mut self, nodelay: bool) {
        self.sender.nodelay = nodelay;
    }

    /// Uses another congestion control from now on. It begins like that of a new connection, with
    /// the initial window: what one believed of the path is no measure for another. In a recovery it is reduced as for
    /// the loss that began that.
    pub fn set_congestion(&mut self, now: Instant, algorithm: Algorithm) {
        if self.config.congestion.algorithm != algorithm {
            self.config_mut().congestion.algorithm = algorithm;
            let mss = self.negotiated.payload_max();
            self.sender.congestion = Controller::new(&self.config.congestion, mss);
            self.sender.tell_round_trip(now);
            self.sender.tell_loss(now, mss);
        }
    }

    /// Limits the rate from now on: see [`Config::pacing_rate_max`](crate::Config::pacing_rate_max).
    pub fn set_pacing_rate_max(&mut self, now: Instant, rate: Option<NonZeroU64>) {
        let before = self.config.pacing_rate_max;
        if before == rate {
            return;
        }
        self.config_mut().pacing_rate_max = rate;
        self.sender.pacer.on_rate_max(now, before, rate);
        self.timers.stop(Timer::Pacing);
        self.arm_pacing(now);
    }

    /// Acknowledges the next segments at once, and what waits for its acknowledgment (TCP_QUICKACK), or does
    /// so no more: until the policy of the connection says otherwise.
    pub fn set_quick_acks(&mut self, on: bool) {
        self.receiver.acks.set_quick(on);
    }

    /// Whether small segments are sent at once.
    #[must_use]
    pub fn nodelay(&self) -> bool {
        self.sender.nodelay
    }

    /// Whether each segment takes several ways, so that the peer gets all of them twice: then neither
    /// duplicate ACKs (of peers without SACK) nor reports of duplicates are believed. What is lost by every way
    /// is found by SACK, or else by the timers.
    pub fn set_path_duplicates(&mut self, on: bool) {
        self.sender.recovery.path_duplicates = on;
    }

    /// Holds back segments that are not full, until it is called with `false` or the stream ends
    /// (TCP_CORK, and MSG_MORE of one call): the application will add to them soon.
    pub fn set_cork(&mut self, corked: bool) {
        self.sender.cork = if corked { Cork::In } else { Cork::Out };
    }

    /// The application would add to what a cork holds back, and waits for room: until it has added, nothing is held
    /// back that no acknowledgment on its way will make room behind. Says whether there is a cork that was not eased.
    pub fn ease_cork(&mut self) -> bool {
        let is_in = self.sender.cork == Cork::In;
        if is_in {
            self.sender.cork = Cork::Eased;
        }
        is_in
    }

    /// Fixes the size of the send buffer: it no longer follows what may be in flight. What is queued
    /// stays.
    pub fn set_send_buffer(&mut self, bytes: usize) {
        self.sender.buffer_limit_bytes = 0;
        self.sender.queue.set_capacity(bytes.clamp(1, BUFFER_BYTES_MAX));
    }

    /// Size of the send buffer in bytes.
    #[must_use]
    pub fn send_buffer(&self) -> usize {
        self.sender.queue.capacity()
    }

    /// Fixes the size of the receive buffer: it no longer follows what is read. What the handshake's window
    /// scale cannot announce is not used: neither more than 65,535 of its units nor less than two. A window that
    /// was announced is not taken back.
    pub fn set_receive_buffer(&mut self, bytes: usize) {
        self.receiver.window_tuning.turn_off();
        let (least, largest) =
            (self.negotiated.receive_buffer_least(), self.negotiated.receive_buffer_largest());
        self.receiver.queue.set_capacity(bytes.clamp(least, largest));
        self.tell_of_window();
    }

    /// Size of the receive buffer in bytes.
    #[must_use]
    pub fn receive_buffer(&self) -> usize {
        self.receiver.queue.capacity()
    }

    /// What the path to the peer takes is this now, as interface, route and reports say. Where it is
    /// less than before, what is outstanding and was too long is sent again (RFC 1191, 6.4; RFC 8201,
    /// 5.4), which is no sign of congestion.
    /// The program's own limit ([`Config::mss_max`](crate::Config::mss_max)) holds whatever the path takes.
    pub fn set_path_mss(&mut self, now: Instant, mss_send_max: u16) {
        let limit = mss_send_max.min(self.config.mss_max.unwrap_or(u16::MAX));
        let is_opening = self.is_opening_fast();
        let may_send = self.state.sends_data() || is_opening;
        let goes_again = self.sender.set_path_mss(now, limit, may_send, &mut self.negotiated);
        // While it opens the timer is the SYN-ACK's, and what is lost waits for the handshake.
        if goes_again && !is_opening {
            self.timers.stop(Timer::Retransmission);
            self.timers.set(Timer::Retransmission, self.sender.rtt.expires_at(now));
        }
        // What the window had room for may be a small segment of the new size, and wait for more of it.
        self.arm_persist(now);
    }

    /// What our interface takes is this now. The SYN of a handshake that is not over says no more, however long it
    /// waited (RFC 9293, 3.7.1, MUST-67).
    pub fn set_announced_mss(&mut self, mss: u16) {
        if matches!(self.state, State::SynSent | State::SynReceived) {
            self.negotiated.lower_mss_announced(mss);
        }
    }

    /// The network header of every packet has so many bytes of options from now on: segments are
    /// shorter by them (RFC 9293, 3.7.1: Eff.snd.MSS), those that are sent again included.
    pub fn set_network_options(&mut self, len_bytes: u8) {
        self.sender.change_mss(
            |negotiated| negotiated.set_network_options(len_bytes),
            &mut self.negotiated,
        );
    }

    /// Settings to be changed: from now on this connection has a copy of its own, which costs as
    /// many bytes as they are long.
    pub(crate) fn config_mut(&mut self) -> &mut Config {
        Arc::make_mut(&mut self.config)
    }
}
