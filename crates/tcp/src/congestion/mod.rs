//! Congestion control: how many bytes may be in the network at once.
//!
//! A controller owns the congestion window and the slow start threshold and nothing else. It is
//! told what happened ([`Congestion`]'s `on_*`) and asked for [`Congestion::window`]; when to
//! retransmit, what is lost and how much is in flight ([`crate::scoreboard`]) is decided elsewhere.
//! During recovery the window is the target that `pipe` is held against (RFC 6675, 5): it is not
//! inflated by duplicate ACKs, and ACKs do not grow it.
//!
//! ```text
//!            on_ack                on_loss                      on_recovery_exit
//!  slow start ----> avoidance ------------------> recovery --------------------> avoidance
//!      ^                |            on_timeout       |
//!      +----------------+-----------------------------+
//! ```
//!
//! What always holds: the window is at least one segment, at least two except after a timeout or a
//! lost SYN, and never above the cap; a reduction is made once per recovery.
//!
//! # Growth and stretch ACKs
//!
//! Batching makes ACKs that cover many segments the rule, so growth counts bytes, not ACKs
//! (RFC 3465). In congestion avoidance that is exact. In slow start RFC 3465 bounds the growth per
//! ACK by L = 2 segments, to bound the burst it releases; under ACKs of eight segments that turns
//! doubling per round trip into a quarter more, and the burst is what the batch is for. So by
//! default slow start grows by the bytes acknowledged, as if each segment had had its ACK (RFC 5681,
//! 3.1), and [`CongestionConfig::slow_start_limit_segments`] sets L for those who want the letter.
//! RFC 3465, 2.3 also demands L = 1 after a timeout, because one ACK may then cover data that left
//! the network long ago. That is true of the data in flight at the timeout, and for as many bytes
//! L is 1; from there on the usual limit holds.

use core::fmt::Debug;

use time::{Duration, Instant};

mod cubic;
mod newreno;

pub use cubic::Cubic;
pub use newreno::NewReno;

/// An ACK that moved `SND.UNA`.
#[derive(Clone, Copy, Debug)]
pub struct Acked {
    /// When it arrived.
    pub now: Instant,
    /// By how many bytes it moved `SND.UNA`.
    pub acked_bytes: u32,
    /// Bytes in flight before it arrived.
    pub in_flight_before: u32,
    /// Whether the sender left the window unused for want of data or of receive window. A window
    /// that was not used was not tested, and must not grow (RFC 7661; RFC 9438, 5.8).
    pub app_limited: bool,
    /// The smoothed round-trip time, if there is one.
    pub rtt: Option<Duration>,
    /// The sender's segment size (SMSS).
    pub mss: u32,
}

/// A congestion controller. Windows and thresholds are in bytes.
pub trait Congestion: Send + Debug {
    /// The congestion window.
    fn window(&self) -> u32;

    /// `ssthresh`; `u32::MAX` until the first reduction.
    fn slow_start_threshold(&self) -> u32;

    /// New data was acknowledged. Does nothing between `on_loss` and `on_recovery_exit`.
    fn on_ack(&mut self, acked: &Acked);

    /// Data begins to flow while nothing was in flight. The idle time is not held for growth.
    fn on_flight_start(&mut self, now: Instant);

    /// Fast retransmit begins (RFC 5681, 3.2; RFC 6675, 5): reduces the threshold and the window.
    /// `in_flight` is FlightSize, everything sent and not acknowledged.
    fn on_loss(&mut self, now: Instant, in_flight: u32, mss: u32);

    /// The retransmission timer went off for a segment that had not been retransmitted by the timer
    /// before (RFC 5681, 3.1: the threshold MUST NOT change for its second timeout): the window
    /// becomes the loss window of one segment.
    fn on_timeout(&mut self, now: Instant, in_flight: u32, mss: u32);

    /// Everything sent before the loss was noticed is acknowledged.
    fn on_recovery_exit(&mut self, now: Instant);

    /// The last reduction was a mistake (Eifel, F-RTO, DSACK): what was before it comes back,
    /// unless the window is larger by now. A second call does nothing.
    fn on_undo(&mut self);

    /// Sending starts again after more than one RTO of silence: the window is at most the restart
    /// window (RFC 5681, 4.1).
    fn on_idle_restart(&mut self, mss: u32);

    /// The SYN or its ACK was lost: the initial window MUST be one segment (RFC 5681, 3.1).
    fn on_handshake_loss(&mut self, mss: u32);

    /// The segment size changed, as path MTU discovery does. A smaller one leaves the number of
    /// segments in the window as it was (RFC 3390, 2), a larger one the number of bytes.
    fn on_mss_change(&mut self, mss: u32);

    /// Bounds the window from now on; less than one segment counts as one.
    fn set_window_cap(&mut self, cap_bytes: u32);

    /// The algorithm's name in statistics.
    fn name(&self) -> &'static str;
}

/// Which algorithm a connection uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// RFC 5681 and RFC 6582.
    NewReno,
    /// RFC 9438.
    #[default]
    Cubic,
}

/// How a controller begins and how far it may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CongestionConfig {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The initial window: `min(n * MSS, max(2 * MSS, n * 1460))` (RFC 6928, 2, with n = 10).
    pub initial_window_segments: u32,
    /// The largest window. 1 GiB by default, as no receive window is larger (RFC 7323, 2.3).
    pub window_cap_bytes: u32,
    /// RFC 3465's L; none by default, see the module.
    pub slow_start_limit_segments: Option<u32>,
}

impl Default for CongestionConfig {
    fn default() -> Self {
        Self {
            algorithm: Algorithm::default(),
            initial_window_segments: 10,
            window_cap_bytes: 1 << 30,
            slow_start_limit_segments: None,
        }
    }
}

/// The controller of a connection: one of the algorithms, without a box.
#[derive(Clone, Debug)]
pub enum Controller {
    /// See [`NewReno`].
    NewReno(NewReno),
    /// See [`Cubic`].
    Cubic(Cubic),
}

impl Controller {
    /// A controller as `config` says, for segments of `mss` bytes.
    #[must_use]
    pub fn new(config: &CongestionConfig, mss: u32) -> Self {
        match config.algorithm {
            Algorithm::NewReno => Self::NewReno(NewReno::new(config, mss)),
            Algorithm::Cubic => Self::Cubic(Cubic::new(config, mss)),
        }
    }
}

macro_rules! dispatch {
    ($controller:expr, $inner:ident => $call:expr) => {
        match $controller {
            Controller::NewReno($inner) => $call,
            Controller::Cubic($inner) => $call,
        }
    };
}

impl Congestion for Controller {
    fn window(&self) -> u32 {
        dispatch!(self, inner => inner.window())
    }

    fn slow_start_threshold(&self) -> u32 {
        dispatch!(self, inner => inner.slow_start_threshold())
    }

    fn on_ack(&mut self, acked: &Acked) {
        dispatch!(self, inner => inner.on_ack(acked));
    }

    fn on_flight_start(&mut self, now: Instant) {
        dispatch!(self, inner => inner.on_flight_start(now));
    }

    fn on_loss(&mut self, now: Instant, in_flight: u32, mss: u32) {
        dispatch!(self, inner => inner.on_loss(now, in_flight, mss));
    }

    fn on_timeout(&mut self, now: Instant, in_flight: u32, mss: u32) {
        dispatch!(self, inner => inner.on_timeout(now, in_flight, mss));
    }

    fn on_recovery_exit(&mut self, now: Instant) {
        dispatch!(self, inner => inner.on_recovery_exit(now));
    }

    fn on_undo(&mut self) {
        dispatch!(self, inner => inner.on_undo());
    }

    fn on_idle_restart(&mut self, mss: u32) {
        dispatch!(self, inner => inner.on_idle_restart(mss));
    }

    fn on_handshake_loss(&mut self, mss: u32) {
        dispatch!(self, inner => inner.on_handshake_loss(mss));
    }

    fn on_mss_change(&mut self, mss: u32) {
        dispatch!(self, inner => inner.on_mss_change(mss));
    }

    fn set_window_cap(&mut self, cap_bytes: u32) {
        dispatch!(self, inner => inner.set_window_cap(cap_bytes));
    }

    fn name(&self) -> &'static str {
        dispatch!(self, inner => inner.name())
    }
}

/// What every loss-based controller has: the window, the threshold, slow start and the bounds.
#[derive(Clone, Debug)]
struct Window {
    bytes: u32,
    slow_start_threshold: u32,
    cap_bytes: u32,
    mss: u32,
    initial_segments: u32,
    slow_start_limit_segments: Option<u32>,
    /// In recovery: ACKs do not grow the window.
    recovering: bool,
    /// Bytes still to be acknowledged of those in flight at a timeout (RFC 3465, 2.3).
    stale_bytes: u32,
}

impl Window {
    fn new(config: &CongestionConfig, mss: u32) -> Self {
        let mss = mss.max(1);
        let mut window = Self {
            bytes: 0,
            slow_start_threshold: u32::MAX,
            cap_bytes: config.window_cap_bytes,
            mss,
            initial_segments: config.initial_window_segments.max(1),
            slow_start_limit_segments: config.slow_start_limit_segments,
            recovering: false,
            stale_bytes: 0,
        };
        window.set(window.initial_bytes());
        window
    }

    /// RFC 6928, 2.
    fn initial_bytes(&self) -> u32 {
        let by_segments = self.mss.saturating_mul(self.initial_segments);
        let by_bytes = self.initial_segments.saturating_mul(1460);
        by_segments.min(by_bytes.max(self.two_segments()))
    }

    fn two_segments(&self) -> u32 {
        self.mss.saturating_mul(2)
    }

    fn in_slow_start(&self) -> bool {
        self.bytes < self.slow_start_threshold
    }

    /// Sets the window within one segment and the cap.
    fn set(&mut self, bytes: u32) {
        self.bytes = bytes.max(self.mss).min(self.cap_bytes.max(self.mss));
    }

    /// Whether this ACK may grow the window.
    ///
    /// In slow start half a window in flight is enough: the window is about to double, and a sender
    /// that works in batches leaves the end of it unused.
    fn may_grow(&self, acked: &Acked) -> bool {
        let used =
            !acked.app_limited || (self.in_slow_start() && self.bytes / 2 < acked.in_flight_before);
        used && !self.recovering && acked.acked_bytes > 0
    }

    /// Slow start up to the threshold. Returns the acknowledged bytes that are left for congestion
    /// avoidance.
    fn slow_start(&mut self, acked_bytes: u32) -> u32 {
        let stale_bytes = self.stale_bytes.min(acked_bytes);
        self.stale_bytes -= stale_bytes;
        if !self.in_slow_start() {
            return acked_bytes;
        }
        let limit_bytes = match self.slow_start_limit_segments {
            Some(segments) => self.mss.saturating_mul(segments),
            None => u32::MAX,
        };
        let fresh_bytes = (acked_bytes - stale_bytes).min(limit_bytes);
        let growth = stale_bytes.min(self.mss).saturating_add(fresh_bytes);
        let room = self.slow_start_threshold - self.bytes;
        self.set(self.bytes.saturating_add(growth.min(room)));
        growth.saturating_sub(room)
    }

    /// Enters recovery with this threshold, which is also the window, unless the window is smaller.
    fn reduce(&mut self, threshold: u32) {
        self.slow_start_threshold = threshold.max(self.two_segments());
        self.set(self.slow_start_threshold.min(self.bytes.max(self.two_segments())));
        self.recovering = true;
    }

    /// Begins slow start from one segment, up to this threshold (RFC 5681, 3.1).
    fn collapse(&mut self, threshold: u32, in_flight: u32) {
        self.slow_start_threshold = threshold.max(self.two_segments());
        self.set(self.mss);
        self.recovering = false;
        self.stale_bytes = in_flight;
    }

    /// Takes back a reduction.
    fn restore(&mut self, bytes: u32, threshold: u32) {
        self.slow_start_threshold = self.slow_start_threshold.max(threshold);
        self.set(self.bytes.max(bytes));
        self.recovering = false;
        self.stale_bytes = 0;
    }

    /// RFC 5681, 4.1: `RW = min(IW, cwnd)`.
    fn restart(&mut self) {
        self.set(self.bytes.min(self.initial_bytes()));
    }

    /// Returns the ratio by which the window shrank, 1 if the segments did not.
    fn change_mss(&mut self, mss: u32) -> f64 {
        let (old, new) = (self.mss, mss.max(1));
        let had_two_segments = self.bytes >= self.two_segments().min(self.cap_bytes);
        self.mss = new;
        let least = if had_two_segments { self.two_segments() } else { new };
        let ratio = if new < old { f64::from(new) / f64::from(old) } else { 1.0 };
        self.set(((f64::from(self.bytes) * ratio) as u32).max(least));
        self.slow_start_threshold = self.slow_start_threshold.max(self.two_segments());
        ratio
    }

    fn set_cap(&mut self, cap_bytes: u32) {
        self.cap_bytes = cap_bytes;
        self.set(self.bytes);
    }
}

#[cfg(test)]
mod tests;
