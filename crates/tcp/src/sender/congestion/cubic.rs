//! CUBIC (RFC 9438): after a reduction the window follows a cubic curve in time that is flat
//! around the window at which the loss came.
//!
//! ```text
//!  window                                   .
//!                                          .   convex: looks for more
//!   W_max  - - - - - - - . . . . . . . . .
//!                   .       plateau at t = K
//!             .   concave: fast, then careful
//!   beta * W_max
//!          t = 0 (epoch)       t = K                  time
//! ```
//!
//! On short paths, where Reno would be faster, the window follows an estimate of Reno's instead
//! (the Reno-friendly region, RFC 9438, 4.3).
//!
//! Time in which the window was not used does not count (RFC 9438, 4.2: t MUST NOT include periods
//! in which cwnd was not updated because the application had nothing to send): the epoch moves on
//! by as much. Windows are in bytes as everywhere; the constant C is in segments per cubed second.
//! Only additions, multiplications, divisions and comparisons of `f64` are used, which IEEE 754
//! fixes to the bit, so that a simulation replays alike on every machine.
//!
//! Slow start ends as HyStart++ says ([`super::hystart`]), which RFC 9438, 4.10 recommends.

use super::{Acked, Congestion, CongestionConfig, Window};
use time::{Duration, Instant};

/// Multiplicative decrease (RFC 9438, 4.6).
const BETA: f64 = 0.7;

/// How steep the curve is, in segments per cubed second (RFC 9438, 5.1).
const C: f64 = 0.4;

/// Reno-friendly increase per round trip, in segments, for the same average window as Reno in spite
/// of the smaller decrease (RFC 9438, 4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// The CUBIC controller.
#[derive(Clone, Debug)]
pub(crate) struct Cubic {
    window: Window,
    curve: Curve,
    /// When the last ACK came or the last flight began: up to here time has been accounted for.
    accounted_until: Instant,
    /// Window, threshold and curve before the last reduction (RFC 9438, 4.9).
    /// Boxed: most connections never lose anything.
    before: Option<Box<(u32, u32, Curve)>>,
}

/// The state of the cubic curve; windows in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Curve {
    /// Where the plateau lies: W_max. None: at the window of the next epoch's beginning, as after
    /// a timeout (RFC 9438, 4.8).
    plateau: Option<f64>,
    /// The window before the last reduction: cwnd_prior.
    window_prior: f64,
    /// None until congestion avoidance begins.
    epoch: Option<Epoch>,
    /// Growth of less than a byte, not yet in the window.
    fraction: f64,
}

/// A stage of congestion avoidance.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    start: Instant,
    /// W_max of this stage.
    plateau: f64,
    /// When the plateau is reached, seconds from the start: K.
    time_to_plateau_s: f64,
    /// What Reno's window would be: W_est.
    reno_window: f64,
}

impl Cubic {
    /// A controller at its initial window.
    pub(crate) fn new(config: &CongestionConfig, mss: u32) -> Self {
        Self {
            window: Window::new(config, mss),
            curve: Curve::default(),
            accounted_until: Instant::ZERO,
            before: None,
        }
    }

    /// RFC 9438, 4.6: what a reduction leaves.
    fn threshold_after_loss(in_flight: u32) -> u32 {
        // In tenths, which are exact.
        in_flight / 10 * 7 + in_flight % 10 * 7 / 10
    }

    fn remember(&mut self) {
        let before = (self.window.bytes, self.window.slow_start_threshold, self.curve);
        self.before = Some(Box::new(before));
        self.curve.window_prior = f64::from(self.window.bytes);
        self.curve.epoch = None;
        self.curve.fraction = 0.0;
    }

    /// RFC 9438, 4.7, fast convergence: a flow that loses below its last plateau is sharing with a
    /// newcomer, and leaves it room.
    fn move_plateau(&mut self) {
        let window = f64::from(self.window.bytes);
        self.curve.plateau = match self.curve.plateau {
            Some(plateau) if window < plateau => Some(window * (1.0 + BETA) / 2.0),
            _ => Some(window),
        };
    }

    fn begin_epoch(&mut self, now: Instant) -> Epoch {
        let window = f64::from(self.window.bytes);
        let plateau = self.curve.plateau.unwrap_or(window).max(window);
        // RFC 9438, 4.2, figure 2.
        let rise_segments = (plateau - window) / f64::from(self.window.mss);
        if self.curve.window_prior == 0.0 {
            // Slow start ended without a loss: the cap or a restart (RFC 9438, 4.10).
            self.curve.window_prior = window;
        }
        Epoch {
            start: now,
            plateau,
            time_to_plateau_s: cube_root(rise_segments / C),
            reno_window: window,
        }
    }

    fn avoid_congestion(&mut self, acked: &Acked, acked_bytes: u32) {
        let mut epoch = match self.curve.epoch {
            Some(epoch) => epoch,
            None => self.begin_epoch(acked.now),
        };
        let window = f64::from(self.window.bytes);
        let mss = f64::from(self.window.mss);
        // No ACK is worth more than the window that it acknowledges.
        let share = (f64::from(acked_bytes) / window).min(1.0);

        // RFC 9438, 4.3, figure 4; alpha SHOULD be 1 once W_est has reached cwnd_prior.
        let alpha = if epoch.reno_window >= self.curve.window_prior { 1.0 } else { ALPHA };
        epoch.reno_window =
            (epoch.reno_window + alpha * mss * share).min(f64::from(self.window.cap_bytes()));

        let elapsed = acked.now.since(epoch.start);
        let growth = if epoch.window_at(elapsed, mss) < epoch.reno_window {
            (epoch.reno_window - window).max(0.0)
        } else {
            // RFC 9438, 4.2 to 4.5: one round trip ahead, and at most half a window more.
            let ahead = epoch.window_at(elapsed + acked.rtt.unwrap_or(Duration::ZERO), mss);
            (ahead.clamp(window, 1.5 * window) - window) * share
        };
        self.curve.epoch = Some(epoch);

        let grown = window + self.curve.fraction + growth;
        self.window.set(grown as u32);
        self.curve.fraction = (grown - f64::from(self.window.bytes)).clamp(0.0, 1.0);
    }

    /// The time since it was last accounted for is not to count.
    fn leave_out_time_until(&mut self, now: Instant) {
        if let Some(epoch) = &mut self.curve.epoch {
            epoch.start += now.since(self.accounted_until.max(epoch.start));
        }
    }
}

impl Epoch {
    /// W_cubic(t) (RFC 9438, 4.2, figure 1).
    fn window_at(&self, elapsed: Duration, mss: f64) -> f64 {
        let from_plateau_s = elapsed.as_secs_f64() - self.time_to_plateau_s;
        C * from_plateau_s * from_plateau_s * from_plateau_s * mss + self.plateau
    }
}

impl Congestion for Cubic {
    fn window(&self) -> u32 {
        self.window.bytes
    }

    fn slow_start_threshold(&self) -> u32 {
        self.window.slow_start_threshold
    }

    fn on_ack(&mut self, acked: &Acked) {
        if acked.acked_bytes == 0 {
            return;
        }
        if self.window.may_grow(acked) {
            let acked_bytes = self.window.slow_start(acked);
            if acked_bytes > 0 {
                self.avoid_congestion(acked, acked_bytes);
            }
        } else {
            self.leave_out_time_until(acked.now);
        }
        self.accounted_until = acked.now;
    }

    fn on_flight_start(&mut self, now: Instant, _app_limited: bool) {
        self.leave_out_time_until(now);
        self.accounted_until = now;
    }

    fn on_loss(&mut self, _now: Instant, in_flight: u32, mss: u32) {
        if self.window.recovering {
            // Reduced for a mark, which was none for this loss: if that was a mistake, the mark was not.
            self.before = None;
            return;
        }
        self.on_mss_change(mss);
        self.remember();
        self.move_plateau();
        self.window.reduce(Self::threshold_after_loss(self.window.allowed(in_flight)));
    }

    fn on_mark(&mut self, _now: Instant, in_flight: u32, mss: u32) {
        if self.window.recovering {
            return;
        }
        self.on_mss_change(mss);
        self.remember();
        self.move_plateau();
        let threshold = Self::threshold_after_loss(self.window.allowed(in_flight));
        self.window.reduce_for_mark(threshold);
    }

    fn on_timeout(&mut self, _now: Instant, in_flight: u32, mss: u32) {
        self.on_mss_change(mss);
        self.remember();
        self.curve.plateau = None;
        let threshold = Self::threshold_after_loss(self.window.allowed(in_flight));
        self.window.collapse(threshold, in_flight);
    }

    fn on_timeout_again(&mut self) {
        self.window.set(self.window.mss);
    }

    fn on_recovery_exit(&mut self, now: Instant) {
        self.window.recovering = false;
        self.accounted_until = now;
    }

    fn on_undo(&mut self) {
        if let Some((bytes, threshold, curve)) = self.before.take().map(|before| *before) {
            self.window.restore(bytes, threshold);
            self.curve = curve;
        }
    }

    fn on_idle(&mut self, silence: Duration, rto: Duration, mss: u32) {
        self.on_mss_change(mss);
        let before = self.window.bytes;
        self.window.on_idle(silence, rto);
        if self.window.bytes != before {
            self.curve.epoch = None;
        }
    }

    fn on_unused(&mut self, used_bytes: u32) {
        let before = self.window.bytes;
        self.window.on_unused(used_bytes);
        if self.window.bytes != before {
            self.curve.epoch = None;
        }
    }

    fn on_handshake_loss(&mut self, mss: u32) {
        self.on_mss_change(mss);
        self.window.set(mss);
    }

    fn on_mss_change(&mut self, mss: u32) {
        if mss == self.window.mss {
            return;
        }
        let ratio = self.window.change_mss(mss);
        self.curve.plateau = self.curve.plateau.map(|plateau| plateau * ratio);
        self.curve.window_prior *= ratio;
        // The curve is steeper or flatter in bytes now: a new one from here.
        self.curve.epoch = None;
    }
}

/// The cube root by Newton's method: `f64::cbrt` may differ in the last bit between machines.
///
/// Starting above the root it falls by a third per step until it is near, then doubles its digits:
/// 64 steps are ample for windows of 2^32 segments.
fn cube_root(value: f64) -> f64 {
    if value <= 0.0 {
        return 0.0;
    }
    let mut root = value.max(1.0);
    for _ in 0..64 {
        root -= (root - value / (root * root)) / 3.0;
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cube_root_is_accurate_over_the_whole_range() {
        for value in [1e-9, 0.001, 0.5, 1.0, 8.0, 75.0, 1e6, 4_294_967_296.0 / C] {
            let root = cube_root(value);
            assert!((root * root * root / value - 1.0).abs() < 1e-12, "{value} {root}");
        }
        assert_eq!(cube_root(0.0), 0.0);
        assert_eq!(cube_root(-1.0), 0.0);
    }
}
