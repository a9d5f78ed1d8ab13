//! What every loss-based controller has: the window, the threshold, slow start and the bounds.

use super::hystart::{Growth, HyStart};
use super::{Acked, CongestionConfig, Idle, initial_window_bytes};
use time::Duration;

/// Windows in bytes.
#[derive(Clone, Debug)]
pub(super) struct Window {
    pub(super) bytes: u32,
    pub(super) slow_start_threshold: u32,
    pub(super) mss: u32,
    /// In recovery: ACKs do not grow the window.
    pub(super) recovering: bool,
    cap_bytes: u32,
    /// Bytes still to be acknowledged of those in flight at a timeout (RFC 3465, 2.3).
    stale_bytes: u32,
    initial_segments: u32,
    slow_start_limit_segments: u32,
    idle: Idle,
    /// `None` where it is switched off.
    hystart: Option<HyStart>,
}

impl Window {
    pub(super) fn new(config: &CongestionConfig, mss: u32) -> Self {
        let mss = mss.max(1);
        let mut window = Self {
            bytes: 0,
            slow_start_threshold: u32::MAX,
            cap_bytes: config.window_cap_bytes,
            mss,
            initial_segments: config.initial_window_segments,
            slow_start_limit_segments: config.slow_start_limit_segments.unwrap_or(u32::MAX),
            recovering: false,
            stale_bytes: 0,
            idle: config.idle,
            hystart: config.hystart.then(HyStart::new),
        };
        window.set(window.initial_bytes());
        window
    }

    fn initial_bytes(&self) -> u32 {
        initial_window_bytes(self.initial_segments, self.mss)
    }

    fn two_segments(&self) -> u32 {
        self.mss.saturating_mul(2)
    }

    pub(super) fn in_slow_start(&self) -> bool {
        self.bytes < self.slow_start_threshold
    }

    pub(super) fn cap_bytes(&self) -> u32 {
        self.cap_bytes
    }

    /// Sets the window within one segment and the cap.
    pub(super) fn set(&mut self, bytes: u32) {
        self.bytes = bytes.max(self.mss).min(self.cap_bytes.max(self.mss));
    }

    /// Whether this ACK may grow the window.
    ///
    /// In slow start half a window in flight is enough: the window is about to double, and a sender
    /// that works in batches leaves the end of it unused.
    pub(super) fn may_grow(&self, acked: &Acked) -> bool {
        let used =
            !acked.app_limited || (self.in_slow_start() && self.bytes / 2 < acked.in_flight_before);
        used && !self.recovering && acked.acked_bytes > 0
    }

    /// Slow start up to the threshold. Returns the acknowledged bytes that are left for congestion
    /// avoidance.
    pub(super) fn slow_start(&mut self, acked: &Acked) -> u32 {
        let acked_bytes = acked.acked_bytes;
        let stale_bytes = self.stale_bytes.min(acked_bytes);
        self.stale_bytes -= stale_bytes;
        if !self.in_slow_start() {
            return acked_bytes;
        }
        let Growth::Divided(divisor) = self.watch_round_trips(acked) else {
            // RFC 9406, 4.2: congestion avoidance is entered by setting ssthresh to cwnd.
            self.slow_start_threshold = self.bytes.max(self.two_segments());
            return acked_bytes;
        };
        let limit_bytes = self.mss.saturating_mul(self.slow_start_limit_segments);
        let fresh_bytes = (acked_bytes - stale_bytes).min(limit_bytes) / divisor;
        let growth = stale_bytes.min(self.mss).saturating_add(fresh_bytes);
        let room = self.slow_start_threshold - self.bytes;
        self.set(self.bytes.saturating_add(growth.min(room)));
        growth.saturating_sub(room)
    }

    /// HyStart++, in the first slow start alone (RFC 9406, 4.3).
    fn watch_round_trips(&mut self, acked: &Acked) -> Growth {
        match &mut self.hystart {
            Some(hystart) if self.slow_start_threshold == u32::MAX => hystart.on_ack(acked),
            _ => Growth::Divided(1),
        }
    }

    /// Of FlightSize what the window allowed. What limited transmit sent beyond it, for segments that are known to have
    /// left, "MUST NOT be included" where ssthresh is computed (RFC 5681, 3.2, step 2).
    pub(super) fn allowed(&self, in_flight: u32) -> u32 {
        in_flight.min(self.bytes)
    }

    /// Enters recovery with this threshold, which is also the window, unless the window is smaller.
    pub(super) fn reduce(&mut self, threshold: u32) {
        self.slow_start_threshold = threshold.max(self.two_segments());
        self.set(self.slow_start_threshold.min(self.bytes.max(self.two_segments())));
        self.recovering = true;
    }

    /// As `reduce`, for a mark: the window may sink to one segment (RFC 9438, 4.6, figure 5).
    pub(super) fn reduce_for_mark(&mut self, threshold: u32) {
        self.slow_start_threshold = threshold.max(self.two_segments());
        self.set(threshold.min(self.bytes));
        self.recovering = true;
    }

    /// Begins slow start from one segment, up to this threshold (RFC 5681, 3.1).
    pub(super) fn collapse(&mut self, threshold: u32, in_flight: u32) {
        self.slow_start_threshold = threshold.max(self.two_segments());
        self.set(self.mss);
        self.recovering = false;
        self.stale_bytes = in_flight;
    }

    /// Takes back a reduction.
    pub(super) fn restore(&mut self, bytes: u32, threshold: u32) {
        self.slow_start_threshold = self.slow_start_threshold.max(threshold);
        self.set(self.bytes.max(bytes));
        self.recovering = false;
        self.stale_bytes = 0;
    }

    /// Nothing was sent for `silence`, which is longer than the RTO. See [`Idle`].
    pub(super) fn on_idle(&mut self, silence: Duration, rto: Duration) {
        match self.idle {
            Idle::Keep => {}
            // RFC 5681, 4.1: `RW = min(IW, cwnd)`.
            Idle::Restart => self.set(self.bytes.min(self.initial_bytes())),
            Idle::Decay => {
                let restart_bytes = self.bytes.min(self.initial_bytes());
                self.keep_threshold();
                let rto_ns = rto.as_nanos().max(1);
                let halvings = u32::try_from(silence.as_nanos() / rto_ns).unwrap_or(u32::MAX);
                let halved = self.bytes.checked_shr(halvings).unwrap_or(0);
                self.set(halved.max(restart_bytes));
            }
        }
    }

    /// For a whole RTO no more than `used_bytes` of the window were in flight (RFC 2861, 3.2).
    pub(super) fn on_unused(&mut self, used_bytes: u32) {
        let needed_bytes = used_bytes.max(self.initial_bytes());
        if self.idle == Idle::Decay && needed_bytes < self.bytes && !self.recovering {
            self.keep_threshold();
            self.set(self.bytes / 2 + needed_bytes / 2);
        }
    }

    /// RFC 2861, 3.1: what the path took once is remembered in the threshold.
    fn keep_threshold(&mut self) {
        let remembered = self.bytes / 4 * 3;
        self.slow_start_threshold = self.slow_start_threshold.max(remembered);
    }

    /// Returns the ratio by which the window shrank, 1 if the segments did not.
    pub(super) fn change_mss(&mut self, mss: u32) -> f64 {
        let (old, new) = (self.mss, mss.max(1));
        let had_two_segments = self.bytes >= self.two_segments().min(self.cap_bytes);
        self.mss = new;
        let least = if had_two_segments { self.two_segments() } else { new };
        let ratio = if new < old { f64::from(new) / f64::from(old) } else { 1.0 };
        self.set(((f64::from(self.bytes) * ratio) as u32).max(least));
        self.slow_start_threshold = self.slow_start_threshold.max(self.two_segments());
        ratio
    }
}
