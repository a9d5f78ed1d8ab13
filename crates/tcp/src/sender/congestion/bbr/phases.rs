//! The state machine (draft-ietf-ccwg-bbr, 5.3).

use super::{AckPhase, Bbr, INFINITE, Phase};
use crate::sender::rate::RateSample;
use time::{Duration, Instant};

/// BBRStartupFullLossCnt.
const STARTUP_LOSS_EVENTS: u32 = 6;

/// Rounds that Drain may last.
const DRAIN_ROUNDS_MAX: u64 = 3;

/// The longest wait in rounds for coexistence with Reno (5.3.3.5.1).
const RENO_ROUNDS_MAX: u64 = 63;

/// BBR.ProbeRTTDuration.
const PROBE_RTT_DURATION: Duration = Duration::from_millis(200);

impl Bbr {
    /// IsInAProbeBWState.
    pub(super) fn is_probing_bandwidth_cycle(&self) -> bool {
        matches!(self.phase, Phase::Down | Phase::Cruise | Phase::Refill | Phase::Up)
    }

    /// ResetFullBW, with a baseline.
    pub(super) fn reset_full_bandwidth(&mut self, baseline: u64) {
        self.full.bandwidth = baseline;
        self.full.count = 0;
        self.full.now = false;
    }

    /// CheckFullBWReached (5.3.1.2).
    pub(super) fn check_full_bandwidth_reached(&mut self, sample: &RateSample) {
        if self.full.now || !self.round_start || sample.is_app_limited {
            return;
        }
        let rate = sample.rate().unwrap_or(0);
        if rate >= self.full.bandwidth / 4 * 5 {
            return self.reset_full_bandwidth(rate);
        }
        self.full.count += 1;
        self.full.now = self.full.count >= 3;
        self.full.reached |= self.full.now;
    }

    /// CheckStartupDone.
    pub(super) fn check_startup_done(&mut self, sample: &RateSample) {
        self.check_startup_high_loss(sample);
        if self.phase == Phase::Startup && self.full.reached {
            self.phase = Phase::Drain;
            self.drain_start_round = self.round_count;
        }
    }

    /// CheckStartupHighLoss (5.3.1.3).
    fn check_startup_high_loss(&mut self, sample: &RateSample) {
        if self.phase != Phase::Startup || self.full.reached {
            return;
        }
        self.loss_events += u32::from(sample.newly_lost_bytes > 0);
        let enough = self.loss_events >= STARTUP_LOSS_EVENTS || !self.sack;
        let tx_in_flight = u64::from(sample.tx_in_flight_bytes);
        if self.loss_round_start
            && self.in_recovery
            && enough
            && self.is_inflight_too_high(sample.lost_bytes, tx_in_flight)
        {
            self.leave_startup();
        }
        if self.loss_round_start {
            self.loss_events = 0;
        }
    }

    /// Startup ends for congestion.
    pub(super) fn leave_startup(&mut self) {
        self.undo.phase = Some(Phase::Startup);
        self.full.reached = true;
        self.inflight_long = self.bdp().max(self.inflight_latest);
    }

    /// CheckDrainDone (5.3.2).
    pub(super) fn check_drain_done(&mut self, now: Instant) {
        let drained = self.in_flight <= self.inflight(1.0)
            || self.round_count > self.drain_start_round + DRAIN_ROUNDS_MAX;
        if self.phase == Phase::Drain && drained {
            self.start_down(now);
        }
    }

    /// UpdateProbeBWCyclePhase (5.3.3.6).
    pub(super) fn update_cycle(&mut self, now: Instant, sample: &RateSample) {
        if !self.full.reached || self.adapt_long_term_model(sample) {
            return;
        }
        match self.phase {
            Phase::Down if self.is_time_to_probe(now) => self.start_refill(),
            Phase::Down if self.is_time_to_cruise() => self.phase = Phase::Cruise,
            Phase::Cruise if self.is_time_to_probe(now) => self.start_refill(),
            Phase::Refill if self.round_start => {
                self.is_probe_sample = true;
                self.start_up(sample);
            }
            Phase::Up => self.check_up_done(now, sample),
            _ => {}
        }
    }

    /// StartProbeBW_DOWN.
    pub(super) fn start_down(&mut self, now: Instant) {
        self.reset_congestion_signals();
        self.probe_up_acked_per_increase = INFINITE;
        self.pick_probe_wait(now);
        self.cycle_start = now;
        self.ack_phase = AckPhase::ProbeStopping;
        self.start_round();
        self.phase = Phase::Down;
    }

    /// StartProbeBW_REFILL.
    pub(super) fn start_refill(&mut self) {
        self.reset_short_term_model();
        self.probe_up_rounds = 0;
        self.probe_up_acked = 0;
        self.prev_probe_precautionary = false;
        self.ack_phase = AckPhase::Refilling;
        self.start_round();
        self.phase = Phase::Refill;
    }

    /// StartProbeBW_UP.
    fn start_up(&mut self, sample: &RateSample) {
        self.ack_phase = AckPhase::ProbeStarting;
        self.start_round();
        self.reset_full_bandwidth(sample.rate().unwrap_or(0));
        self.phase = Phase::Up;
        self.raise_inflight_slope();
    }

    /// PickProbeWait: 0 or 1 rounds, and 2 to 3 seconds. Flows must not do it in step; nobody gains
    /// from guessing it, so the low bits of the clock and of the sum delivered will do.
    fn pick_probe_wait(&mut self, now: Instant) {
        let mut mixed = now.as_nanos() ^ self.delivered.rotate_left(32) ^ self.bandwidth;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        self.rounds_since_probe_up = mixed & 1;
        self.probe_wait = Duration::from_millis(2_000 + (mixed >> 1) % 1_000);
    }

    /// IsTimeToProbeBW.
    fn is_time_to_probe(&self, now: Instant) -> bool {
        let reno_rounds = self.target_inflight() / u64::from(self.mss);
        now > self.cycle_start + self.probe_wait
            || self.rounds_since_probe_up >= reno_rounds.min(RENO_ROUNDS_MAX)
    }

    /// IsTimeToCruise.
    fn is_time_to_cruise(&self) -> bool {
        self.in_flight <= self.inflight_with_headroom() && self.in_flight <= self.inflight(1.0)
    }

    fn check_up_done(&mut self, now: Instant, sample: &RateSample) {
        if self.is_time_to_go_down(sample) {
            self.prev_probe_too_high = false;
            self.start_down(now);
        }
    }

    /// IsTimeToGoDown.
    fn is_time_to_go_down(&mut self, sample: &RateSample) -> bool {
        if self.prev_probe_too_high && self.in_flight >= self.inflight_long {
            self.prev_probe_precautionary = true;
            return true;
        }
        if self.is_cwnd_limited(sample) && self.cwnd >= self.inflight_long {
            // What limits the rate is what was believed to fit, and that may rise.
            self.reset_full_bandwidth(sample.rate().unwrap_or(0));
            return false;
        }
        self.full.now
    }

    /// C.is_cwnd_limited: as the pipe was before this ACK.
    fn is_cwnd_limited(&self, sample: &RateSample) -> bool {
        let before = self.in_flight + u64::from(sample.newly_delivered_bytes);
        before + u64::from(self.mss) > self.cwnd
    }

    /// RaiseInflightLongtermSlope.
    fn raise_inflight_slope(&mut self) {
        let growth_this_round = 1_u64 << self.probe_up_rounds;
        self.probe_up_rounds = (self.probe_up_rounds + 1).min(30);
        self.probe_up_acked_per_increase = (self.cwnd / growth_this_round).max(u64::from(self.mss));
    }

    /// ProbeInflightLongtermUpward.
    fn probe_inflight_upward(&mut self, sample: &RateSample) {
        if !self.is_cwnd_limited(sample) || self.cwnd < self.inflight_long {
            return;
        }
        self.probe_up_acked += u64::from(sample.newly_delivered_bytes);
        if self.probe_up_acked >= self.probe_up_acked_per_increase {
            let delta = self.probe_up_acked / self.probe_up_acked_per_increase;
            self.probe_up_acked -= delta * self.probe_up_acked_per_increase;
            self.inflight_long = self.inflight_long.saturating_add(delta * u64::from(self.mss));
        }
        if self.round_start {
            self.raise_inflight_slope();
        }
    }

    /// AdaptLongTermModel. Says whether it changed the phase.
    fn adapt_long_term_model(&mut self, sample: &RateSample) -> bool {
        if self.ack_phase == AckPhase::ProbeStarting && self.round_start {
            self.ack_phase = AckPhase::ProbeFeedback;
        }
        if self.ack_phase == AckPhase::ProbeStopping && self.round_start {
            self.is_probe_sample = false;
            self.ack_phase = AckPhase::Init;
            if self.is_probing_bandwidth_cycle() && !sample.is_app_limited {
                self.advance_max_bandwidth();
            }
            let was_safe = self.prev_probe_precautionary && !self.prev_probe_too_high;
            if self.is_probing_bandwidth_cycle() && was_safe {
                self.start_refill();
                return true;
            }
        }
        let tx_in_flight = u64::from(sample.tx_in_flight_bytes);
        if !self.is_inflight_too_high(sample.lost_bytes, tx_in_flight)
            && self.inflight_long != INFINITE
        {
            self.inflight_long = self.inflight_long.max(tx_in_flight);
            if self.phase == Phase::Up {
                self.probe_inflight_upward(sample);
            }
        }
        false
    }

    /// CheckProbeRTT (5.3.4.3).
    pub(super) fn check_probe_rtt(&mut self, now: Instant, sample: &RateSample) {
        if self.phase != Phase::ProbeRtt && self.probe_rtt_expired && !self.idle_restart {
            self.save_cwnd();
            self.phase = Phase::ProbeRtt;
            self.probe_rtt_done_at = None;
            self.ack_phase = AckPhase::ProbeStopping;
            self.start_round();
        }
        if self.phase == Phase::ProbeRtt {
            self.handle_probe_rtt(now);
        }
        if sample.delivered_bytes > 0 {
            self.idle_restart = false;
        }
    }

    /// HandleProbeRTT.
    fn handle_probe_rtt(&mut self, now: Instant) {
        if self.probe_rtt_done_at.is_some() {
            self.probe_rtt_round_done |= self.round_start;
            if self.probe_rtt_round_done {
                self.check_probe_rtt_done(now);
            }
        } else if self.in_flight <= self.probe_rtt_cwnd() {
            self.probe_rtt_done_at = Some(now + PROBE_RTT_DURATION);
            self.probe_rtt_round_done = false;
            self.start_round();
        }
    }

    /// CheckProbeRTTDone and ExitProbeRTT (5.3.4.4).
    pub(super) fn check_probe_rtt_done(&mut self, now: Instant) {
        if self.probe_rtt_done_at.is_none_or(|at| now <= at) {
            return;
        }
        self.probe_rtt_min_at = now;
        self.restore_cwnd();
        self.reset_short_term_model();
        if self.full.reached {
            self.start_down(now);
            self.phase = Phase::Cruise;
        } else {
            self.phase = Phase::Startup;
        }
    }
}
