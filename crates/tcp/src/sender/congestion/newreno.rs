//! NewReno: additive increase, multiplicative decrease (RFC 5681, RFC 6582), counting bytes
//! (RFC 3465).

use super::{Acked, Congestion, CongestionConfig, Window};
use time::{Duration, Instant};

/// The Reno controller. What makes it *New* Reno, one reduction per window of data and partial
/// ACKs, is in when the caller says `on_loss` and `on_recovery_exit`.
#[derive(Clone, Debug)]
pub(crate) struct NewReno {
    window: Window,
    /// Bytes acknowledged since the window last grew (RFC 3465, 2.1).
    bytes_acked: u32,
    /// Window and threshold before the last reduction.
    before: Option<(u32, u32)>,
}

impl NewReno {
    /// A controller at its initial window.
    pub(crate) fn new(config: &CongestionConfig, mss: u32) -> Self {
        Self { window: Window::new(config, mss), bytes_acked: 0, before: None }
    }

    fn remember(&mut self) {
        self.before = Some((self.window.bytes, self.window.slow_start_threshold));
        self.bytes_acked = 0;
    }
}

impl Congestion for NewReno {
    fn window(&self) -> u32 {
        self.window.bytes
    }

    fn slow_start_threshold(&self) -> u32 {
        self.window.slow_start_threshold
    }

    fn on_ack(&mut self, acked: &Acked) {
        if !self.window.may_grow(acked) {
            return;
        }
        let acked_bytes = self.window.slow_start(acked);
        // One segment per window of acknowledged bytes; a single ACK is worth one segment at most.
        self.bytes_acked = self.bytes_acked.saturating_add(acked_bytes);
        if self.bytes_acked >= self.window.bytes {
            self.bytes_acked = (self.bytes_acked - self.window.bytes).min(self.window.bytes);
            self.window.set(self.window.bytes.saturating_add(self.window.mss));
        }
    }

    fn on_flight_start(&mut self, _now: Instant, _app_limited: bool) {}

    fn on_loss(&mut self, _now: Instant, in_flight: u32, mss: u32) {
        if self.window.recovering {
            // Reduced for a mark, which was none for this loss: if that was a mistake, the mark was not.
            self.before = None;
            return;
        }
        self.on_mss_change(mss);
        self.remember();
        // RFC 5681, 3.1, equation 4: half of FlightSize, not of cwnd, which may not be in use.
        self.window.reduce(self.window.allowed(in_flight) / 2);
    }

    fn on_mark(&mut self, _now: Instant, in_flight: u32, mss: u32) {
        if self.window.recovering {
            return;
        }
        self.on_mss_change(mss);
        self.remember();
        self.window.reduce_for_mark(self.window.allowed(in_flight) / 2);
    }

    fn on_timeout(&mut self, _now: Instant, in_flight: u32, mss: u32) {
        self.on_mss_change(mss);
        self.remember();
        self.window.collapse(self.window.allowed(in_flight) / 2, in_flight);
    }

    fn on_timeout_again(&mut self) {
        self.window.set(self.window.mss);
    }

    fn on_recovery_exit(&mut self, _now: Instant) {
        self.window.recovering = false;
    }

    fn on_undo(&mut self) {
        if let Some((bytes, threshold)) = self.before.take() {
            self.window.restore(bytes, threshold);
        }
    }

    fn on_idle(&mut self, silence: Duration, rto: Duration, mss: u32) {
        self.on_mss_change(mss);
        self.window.on_idle(silence, rto);
        self.bytes_acked = 0;
    }

    fn on_unused(&mut self, used_bytes: u32) {
        self.window.on_unused(used_bytes);
    }

    fn on_handshake_loss(&mut self, mss: u32) {
        self.on_mss_change(mss);
        self.window.set(mss);
    }

    fn on_mss_change(&mut self, mss: u32) {
        if mss != self.window.mss {
            self.window.change_mss(mss);
        }
    }
}
