//! What is believed of the path (draft-ietf-ccwg-bbr, 5.5).

use super::{BETA_TENTHS, Bbr, INFINITE, Phase, Undo, scale, volume};
use crate::sender::rate::{Loss, RateSample};
use time::{Duration, Instant};

/// BBR.LossThresh: 2 per cent.
const LOSS_PERCENT_MAX: u64 = 2;

/// BBR.ExtraAckedFilterLen in rounds; the filter has two halves.
const EXTRA_ACKED_ROUNDS: u32 = 10;

/// BBR.MinRTTFilterLen.
const MIN_RTT_LIFETIME: Duration = Duration::from_secs(10);

/// BBR.ProbeRTTInterval.
const PROBE_RTT_INTERVAL: Duration = Duration::from_secs(5);

impl Bbr {
    /// A round trip is known at last: until now the initial window was thought to take 1 ms.
    pub(super) fn on_first_round_trip(&mut self, now: Instant, rtt: Duration) {
        self.min_rtt = Some(rtt);
        self.min_rtt_at = now;
        self.probe_rtt_min = Some(rtt);
        self.probe_rtt_min_at = now;
        self.extra_acked_start = now;
        self.init_pacing_rate(rtt);
    }

    /// UpdateRound (5.5.1).
    fn update_round(&mut self, sample: &RateSample) {
        self.round_start = sample.interval.is_some()
            && sample.prior_delivered_bytes >= self.next_round_delivered
            && sample.newly_delivered_bytes > 0;
        if self.round_start {
            self.start_round();
            self.round_count += 1;
            self.rounds_since_probe_up += 1;
        }
    }

    pub(super) fn start_round(&mut self) {
        self.next_round_delivered = self.delivered;
    }

    /// BBR.max_bw.
    pub(super) fn max_bandwidth(&self) -> u64 {
        self.max_bandwidth[0].max(self.max_bandwidth[1])
    }

    /// UpdateMaxBw (5.5.5).
    fn update_max_bandwidth(&mut self, sample: &RateSample) {
        self.update_round(sample);
        let Some(rate) = sample.rate() else { return };
        if rate > 0 && (rate >= self.max_bandwidth() || !sample.is_app_limited) {
            self.max_bandwidth[1] = self.max_bandwidth[1].max(rate);
        }
    }

    /// AdvanceMaxBwFilter (5.5.6): the filter's time is the cycle of probing; it remembers two.
    pub(super) fn advance_max_bandwidth(&mut self) {
        if self.max_bandwidth[1] > 0 {
            self.max_bandwidth = [self.max_bandwidth[1], 0];
        }
    }

    /// BoundBWForModel.
    pub(super) fn bound_bandwidth(&mut self) {
        self.bandwidth = self.max_bandwidth().min(self.bandwidth_short);
    }

    /// UpdateLatestDeliverySignals.
    pub(super) fn update_latest_delivery_signals(&mut self, sample: &RateSample) {
        self.loss_round_start = false;
        if sample.newly_delivered_bytes == 0 {
            return;
        }
        self.bandwidth_latest = self.bandwidth_latest.max(sample.rate().unwrap_or(0));
        self.inflight_latest = self.inflight_latest.max(sample.delivered_bytes);
        if sample.prior_delivered_bytes >= self.loss_round_delivered {
            self.loss_round_delivered = self.delivered;
            self.loss_round_start = true;
        }
    }

    /// AdvanceLatestDeliverySignals.
    pub(super) fn advance_latest_delivery_signals(&mut self, sample: &RateSample) {
        if self.loss_round_start {
            self.bandwidth_latest = sample.rate().unwrap_or(0);
            self.inflight_latest = sample.delivered_bytes;
        }
    }

    /// ResetCongestionSignals.
    pub(super) fn reset_congestion_signals(&mut self) {
        self.loss_in_round = false;
        self.marked_in_round = false;
        self.bandwidth_latest = 0;
        self.inflight_latest = 0;
    }

    /// UpdateCongestionSignals.
    pub(super) fn update_congestion_signals(&mut self, sample: &RateSample) {
        self.update_max_bandwidth(sample);
        if !self.loss_round_start {
            return;
        }
        let tx_in_flight = u64::from(sample.tx_in_flight_bytes);
        if self.marked_in_round || self.is_inflight_too_high(sample.lost_bytes, tx_in_flight) {
            self.adapt_lower_bounds();
        }
        self.marked_in_round = false;
        self.loss_in_round = false;
    }

    /// AdaptLowerBoundsFromCongestion, InitLowerBounds and LossLowerBounds: once per round trip.
    fn adapt_lower_bounds(&mut self) {
        if matches!(self.phase, Phase::Startup | Phase::Refill | Phase::Up) || !self.loss_in_round {
            return;
        }
        if self.bandwidth_short == INFINITE {
            self.bandwidth_short = self.max_bandwidth();
        }
        if self.inflight_short == INFINITE {
            self.inflight_short = self.cwnd;
        }
        let beta = |value| scale(value, BETA_TENTHS, 10);
        self.bandwidth_short = self.bandwidth_latest.max(beta(self.bandwidth_short));
        self.inflight_short = self.inflight_latest.max(beta(self.inflight_short));
    }

    /// ResetShortTermModel.
    pub(super) fn reset_short_term_model(&mut self) {
        self.bandwidth_short = INFINITE;
        self.inflight_short = INFINITE;
    }

    /// BBR.extra_acked.
    pub(super) fn extra_acked(&self) -> u64 {
        self.extra_acked[0].max(self.extra_acked[1])
    }

    /// UpdateACKAggregation (5.5.9): how much more than expected ACKs bring at once.
    pub(super) fn update_ack_aggregation(&mut self, now: Instant, sample: &RateSample) {
        if self.round_start {
            self.extra_acked_rounds += 1;
            let rounds_max = if self.full.reached { EXTRA_ACKED_ROUNDS / 2 } else { 1 };
            if self.extra_acked_rounds >= rounds_max {
                self.extra_acked_rounds = 0;
                self.extra_acked = [self.extra_acked[1], 0];
            }
        }
        let mut expected = volume(self.bandwidth, now - self.extra_acked_start);
        if self.extra_acked_delivered <= expected {
            self.extra_acked_delivered = 0;
            self.extra_acked_start = now;
            expected = 0;
        }
        self.extra_acked_delivered += u64::from(sample.newly_delivered_bytes);
        let extra = self.extra_acked_delivered.saturating_sub(expected).min(self.cwnd);
        self.extra_acked[1] = self.extra_acked[1].max(extra);
    }

    /// UpdateMinRTT (5.3.4.3).
    pub(super) fn update_min_rtt(&mut self, now: Instant, sample: &RateSample) {
        self.probe_rtt_expired = now > self.probe_rtt_min_at + PROBE_RTT_INTERVAL;
        if let Some(rtt) = sample.rtt
            && (self.probe_rtt_expired || self.probe_rtt_min.is_none_or(|least| rtt < least))
        {
            self.probe_rtt_min = Some(rtt);
            self.probe_rtt_min_at = now;
        }
        let expired = now > self.min_rtt_at + MIN_RTT_LIFETIME;
        let Some(probed) = self.probe_rtt_min else { return };
        if expired || self.min_rtt.is_none_or(|least| probed < least) {
            self.min_rtt = Some(probed);
            self.min_rtt_at = self.probe_rtt_min_at;
        }
    }

    /// IsInflightTooHigh (5.5.10.2).
    pub(super) fn is_inflight_too_high(&self, lost: u64, tx_in_flight: u64) -> bool {
        lost > scale(tx_in_flight, LOSS_PERCENT_MAX, 100) || (lost > 0 && !self.sack)
    }

    /// NoteLoss.
    pub(super) fn note_loss(&mut self) {
        if !self.loss_in_round {
            self.loss_round_delivered = self.delivered;
            self.save_state_upon_loss();
            self.save_cwnd();
        }
        self.loss_in_round = true;
    }

    /// HandleLostPacket, for the record around which the most was lost: the reaction is one per probe.
    pub(super) fn handle_lost(&mut self, now: Instant, loss: &Loss) {
        self.note_loss();
        let tx_in_flight = u64::from(loss.tx_in_flight_bytes);
        if !self.is_probe_sample || !self.is_inflight_too_high(loss.lost_bytes, tx_in_flight) {
            return;
        }
        let at_loss = inflight_at_loss(loss);
        self.handle_inflight_too_high(now, at_loss, loss.is_app_limited);
    }

    /// HandleInflightTooHigh.
    pub(super) fn handle_inflight_too_high(
        &mut self,
        now: Instant,
        tx_in_flight: u64,
        is_app_limited: bool,
    ) {
        self.prev_probe_too_high = true;
        self.is_probe_sample = false;
        if !is_app_limited {
            self.inflight_long = tx_in_flight.max(scale(self.target_inflight(), BETA_TENTHS, 10));
        }
        if self.phase == Phase::Up {
            self.undo.phase = Some(Phase::Up);
            self.start_down(now);
        }
    }

    /// SaveStateUponLoss (5.5.11.1).
    pub(super) fn save_state_upon_loss(&mut self) {
        self.undo = Undo {
            phase: None,
            bandwidth_short: self.bandwidth_short,
            inflight_short: self.inflight_short,
            inflight_long: self.inflight_long,
        };
    }

    /// HandleSpuriousLossDetection (5.5.11.2).
    pub(super) fn handle_spurious_loss(&mut self) {
        self.restore_cwnd();
        self.loss_in_round = false;
        self.reset_full_bandwidth(0);
        self.bandwidth_short = self.bandwidth_short.max(self.undo.bandwidth_short);
        self.inflight_short = self.inflight_short.max(self.undo.inflight_short);
        self.inflight_long = self.inflight_long.max(self.undo.inflight_long);
        match self.undo.phase.take() {
            Some(Phase::Startup) if self.phase != Phase::Startup => {
                self.full.reached = false;
                if self.phase != Phase::ProbeRtt {
                    self.phase = Phase::Startup;
                }
            }
            Some(Phase::Up) if !matches!(self.phase, Phase::Up | Phase::ProbeRtt) => {
                self.start_refill();
            }
            _ => {}
        }
    }
}

/// InflightAtLoss (5.5.10.2): at which prefix of the record the losses exceeded what is tolerated.
fn inflight_at_loss(loss: &Loss) -> u64 {
    let size = u64::from(loss.len_bytes);
    let inflight_prev = u64::from(loss.tx_in_flight_bytes).saturating_sub(size);
    let lost_prev = loss.lost_bytes.saturating_sub(size);
    let tolerated = scale(inflight_prev, LOSS_PERCENT_MAX, 100);
    let lost_prefix = scale(tolerated.saturating_sub(lost_prev), 100, 100 - LOSS_PERCENT_MAX);
    inflight_prev + lost_prefix
}
