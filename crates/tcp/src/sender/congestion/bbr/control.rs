//! What follows from the model: pacing rate and window (draft-ietf-ccwg-bbr, 5.6).

use super::{Bbr, INFINITE, Phase, scale, volume};
use crate::sender::rate::RateSample;
use time::Duration;

/// BBR.StartupPacingGain: 4 ln 2.
const STARTUP_PACING_GAIN: f64 = 2.773;

/// BBR.PacingMarginPercent: the rate stays a little below what was measured, so that queues empty.
const PACING_PERCENT: f64 = 0.99;

/// BBR.MinPipeCwnd in segments.
const SEGMENTS_MIN: u64 = 4;

/// The largest send quantum.
const QUANTUM_BYTES_MAX: u64 = 64 << 10;

impl Bbr {
    /// The table of 5.6.1.
    fn pacing_gain(&self) -> f64 {
        match self.phase {
            Phase::Startup => STARTUP_PACING_GAIN,
            Phase::Drain => 0.5,
            Phase::Down => 0.9,
            Phase::Up => 1.25,
            Phase::Cruise | Phase::Refill | Phase::ProbeRtt => 1.0,
        }
    }

    fn cwnd_gain(&self) -> f64 {
        match self.phase {
            Phase::Up => 2.25,
            Phase::ProbeRtt => 0.5,
            _ => 2.0,
        }
    }

    /// InitPacingRate (5.6.2).
    pub(super) fn init_pacing_rate(&mut self, rtt: Duration) {
        let rtt_ns = u64::try_from(rtt.as_nanos()).unwrap_or(u64::MAX);
        let nominal = scale(self.initial_bytes, 1_000_000_000, rtt_ns);
        self.pacing_rate = ((nominal as f64 * STARTUP_PACING_GAIN) as u64).max(1);
    }

    /// SetPacingRateWithGain.
    pub(super) fn set_pacing_rate_with_gain(&mut self, gain: f64) {
        let rate = (gain * self.bandwidth as f64 * PACING_PERCENT) as u64;
        if rate > 0 && (self.full.reached || rate > self.pacing_rate) {
            self.pacing_rate = rate;
        }
    }

    pub(super) fn set_pacing_rate(&mut self) {
        self.set_pacing_rate_with_gain(self.pacing_gain());
    }

    /// BBR.MinPipeCwnd.
    fn cwnd_min(&self) -> u64 {
        SEGMENTS_MIN * u64::from(self.mss)
    }

    /// BBR.bdp.
    pub(super) fn bdp(&self) -> u64 {
        match self.min_rtt {
            Some(rtt) if self.bandwidth > 0 => volume(self.bandwidth, rtt),
            _ => self.initial_bytes,
        }
    }

    /// BDPMultiple (5.6.4.2).
    fn bdp_multiple(&self, gain: f64) -> u64 {
        (gain * self.bdp() as f64) as u64
    }

    /// SetSendQuantum (5.6.3).
    fn send_quantum(&self) -> u64 {
        (self.pacing_rate / 1_000).min(QUANTUM_BYTES_MAX).max(2 * u64::from(self.mss))
    }

    /// QuantizationBudget, with TCP's offload budget (5.5.8.1).
    fn quantized(&self, inflight: u64) -> u64 {
        let budget = inflight.max(3 * self.send_quantum()).max(self.cwnd_min());
        budget + if self.phase == Phase::Up { 2 * u64::from(self.mss) } else { 0 }
    }

    /// Inflight.
    pub(super) fn inflight(&self, gain: f64) -> u64 {
        self.quantized(self.bdp_multiple(gain))
    }

    /// TargetInflight (5.3.3.5.3).
    pub(super) fn target_inflight(&self) -> u64 {
        self.bdp().min(self.cwnd)
    }

    /// InflightWithHeadroom (5.3.3.6): 15 per cent are left to others.
    pub(super) fn inflight_with_headroom(&self) -> u64 {
        if self.inflight_long == INFINITE {
            return INFINITE;
        }
        let headroom = scale(self.inflight_long, 15, 100).max(self.mss.into());
        self.inflight_long.saturating_sub(headroom).max(self.cwnd_min())
    }

    /// ProbeRTTCwnd (5.6.4.5).
    pub(super) fn probe_rtt_cwnd(&self) -> u64 {
        self.bdp_multiple(0.5).max(self.cwnd_min())
    }

    /// SaveCwnd (5.6.4.4).
    pub(super) fn save_cwnd(&mut self) {
        self.prior_cwnd = match !self.in_recovery && self.phase != Phase::ProbeRtt {
            true => self.cwnd,
            false => self.prior_cwnd.max(self.cwnd),
        };
    }

    /// RestoreCwnd.
    pub(super) fn restore_cwnd(&mut self) {
        self.cwnd = self.cwnd.max(self.prior_cwnd);
    }

    /// SetCwnd (5.6.4.6).
    pub(super) fn set_cwnd(&mut self, sample: &RateSample) {
        let newly_acked = u64::from(sample.newly_delivered_bytes);
        self.max_inflight =
            self.quantized(self.bdp_multiple(self.cwnd_gain()) + self.extra_acked());
        if self.full.reached {
            self.cwnd = (self.cwnd + newly_acked).min(self.max_inflight);
        } else if self.cwnd < self.max_inflight || self.delivered < self.initial_bytes {
            self.cwnd += newly_acked;
        }
        self.cwnd = self.cwnd.max(self.cwnd_min());
        if self.phase == Phase::ProbeRtt {
            self.cwnd = self.cwnd.min(self.probe_rtt_cwnd());
        }
        self.bound_cwnd_for_model();
    }

    /// BoundCwndForModel (5.6.4.7).
    fn bound_cwnd_for_model(&mut self) {
        let cap = match self.phase {
            Phase::Down | Phase::Refill | Phase::Up => self.inflight_long,
            Phase::Cruise | Phase::ProbeRtt => self.inflight_with_headroom(),
            Phase::Startup | Phase::Drain => INFINITE,
        };
        let cap = cap.min(self.inflight_short).max(self.cwnd_min());
        self.cwnd = self.cwnd.min(cap).min(u64::from(self.cap_bytes).max(self.mss.into()));
    }
}
