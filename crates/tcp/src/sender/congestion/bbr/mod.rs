//! BBR, version 3 (draft-ietf-ccwg-bbr): sends at the rate that the path was measured to deliver.
//!
//! ```text
//!   Startup ---> Drain ---> ProbeBW: Down -> Cruise -> Refill -> Up -> Down ...
//!      ^                         |
//!      +------- ProbeRTT <-------+   every 5 s: a moment with half a window, to see the least delay
//! ```
//!
//! A model of the path, kept up with every ACK, has two sides: the bandwidth (the greatest delivery
//! rate of the last two probing cycles) and the volume that fits (bandwidth times the least round
//! trip, and what loss has shown to be too much). From the model and the gains of the phase follow a
//! pacing rate and a window. Single losses change nothing: what counts is whether more than 2 per cent
//! of a round trip's data is lost, and only then does what may be in flight shrink.
//!
//! The functions are those of the draft's pseudocode, in its order and with its names in our spelling:
//! [`model`] is its sections 5.5, [`phases`] 5.3 and 5.4, [`control`] 5.6. Where the draft leaves
//! open what a discontiguous range of losses is, ACKs that report losses are counted, as Linux does.
//! It gives no response to marks (section 3.7 only wants them treated as congestion): here a mark
//! counts like a round trip in which too much was lost.
//!
//! One deviation: by the letter of 5.5.10.3 a round trip with any loss takes the measured rate as a
//! bound of the next one. As 1 per cent is left free when pacing, and what was lost is not measured,
//! each such round trip then lowers the rate by as much, and on a path that loses 1 per cent whatever
//! is sent a fifth of it went unused. Here the bound follows round trips in which more than the 2 per
//! cent were lost that the draft tolerates everywhere else.
//!
//! Rates are in bytes per second, volumes in bytes. Only arithmetic that IEEE 754 fixes to the bit is
//! used, and chance comes from the samples themselves, so that a simulation replays alike.

mod control;
mod model;
mod phases;

use super::{Acked, Congestion, CongestionConfig, initial_window_bytes};
use crate::sender::rate::RateSample;
use time::{Duration, Instant};

/// BBR.Beta, as tenths.
const BETA_TENTHS: u64 = 7;

/// `u64::MAX` stands for the draft's infinity.
const INFINITE: u64 = u64::MAX;

/// The draft's BBR.state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Startup,
    Drain,
    Down,
    Cruise,
    Refill,
    Up,
    ProbeRtt,
}

/// BBR.ack_phase: what the ACKs that arrive are feedback to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AckPhase {
    Init,
    Refilling,
    ProbeStarting,
    ProbeFeedback,
    ProbeStopping,
}

/// BBR.full_bw and its companions.
#[derive(Clone, Copy, Debug, Default)]
struct FullBandwidth {
    bandwidth: u64,
    count: u32,
    now: bool,
    reached: bool,
}

/// BBR.undo_state and its companions.
#[derive(Clone, Copy, Debug)]
struct Undo {
    phase: Option<Phase>,
    bandwidth_short: u64,
    inflight_short: u64,
    inflight_long: u64,
}

/// The BBR controller. About 400 bytes, which a connection that uses it keeps in a box.
#[derive(Clone, Debug)]
pub(crate) struct Bbr {
    mss: u32,
    initial_bytes: u64,
    cap_bytes: u32,
    sack: bool,

    cwnd: u64,
    prior_cwnd: u64,
    pacing_rate: u64,
    /// C.delivered and C.inflight at the last ACK.
    delivered: u64,
    in_flight: u64,
    in_recovery: bool,
    phase: Phase,

    // Rounds (5.5.1).
    next_round_delivered: u64,
    round_start: bool,
    round_count: u64,
    rounds_since_probe_up: u64,
    drain_start_round: u64,

    // Bandwidth (5.5.2 to 5.5.6).
    max_bandwidth: [u64; 2],
    bandwidth: u64,
    bandwidth_latest: u64,
    bandwidth_short: u64,

    // Volume.
    inflight_latest: u64,
    inflight_short: u64,
    inflight_long: u64,
    max_inflight: u64,
    extra_acked: [u64; 2],
    extra_acked_rounds: u32,
    extra_acked_delivered: u64,
    extra_acked_start: Instant,

    // Loss (5.5.10).
    loss_in_round: bool,
    marked_in_round: bool,
    loss_round_start: bool,
    loss_round_delivered: u64,
    loss_events: u32,
    undo: Undo,

    // Startup.
    full: FullBandwidth,

    // ProbeBW.
    ack_phase: AckPhase,
    is_probe_sample: bool,
    prev_probe_too_high: bool,
    prev_probe_precautionary: bool,
    cycle_start: Instant,
    probe_wait: Duration,
    probe_up_rounds: u32,
    probe_up_acked: u64,
    probe_up_acked_per_increase: u64,

    // Round trips and ProbeRTT.
    min_rtt: Option<Duration>,
    min_rtt_at: Instant,
    probe_rtt_min: Option<Duration>,
    probe_rtt_min_at: Instant,
    probe_rtt_expired: bool,
    probe_rtt_done_at: Option<Instant>,
    probe_rtt_round_done: bool,
    idle_restart: bool,
}

impl Bbr {
    /// A controller at its initial window.
    pub(crate) fn new(config: &CongestionConfig, mss: u32) -> Self {
        let mss = mss.max(1);
        let initial_bytes = initial_window_bytes(config.initial_window_segments, mss);
        let mut bbr = Self {
            mss,
            initial_bytes: initial_bytes.into(),
            cap_bytes: config.window_cap_bytes,
            sack: true,
            cwnd: initial_bytes.into(),
            prior_cwnd: 0,
            pacing_rate: 0,
            delivered: 0,
            in_flight: 0,
            in_recovery: false,
            phase: Phase::Startup,
            next_round_delivered: 0,
            round_start: false,
            round_count: 0,
            rounds_since_probe_up: 0,
            drain_start_round: 0,
            max_bandwidth: [0; 2],
            bandwidth: 0,
            bandwidth_latest: 0,
            bandwidth_short: INFINITE,
            inflight_latest: 0,
            inflight_short: INFINITE,
            inflight_long: INFINITE,
            max_inflight: 0,
            extra_acked: [0; 2],
            extra_acked_rounds: 0,
            extra_acked_delivered: 0,
            extra_acked_start: Instant::ZERO,
            loss_in_round: false,
            marked_in_round: false,
            loss_round_start: false,
            loss_round_delivered: 0,
            loss_events: 0,
            undo: Undo { phase: None, bandwidth_short: 0, inflight_short: 0, inflight_long: 0 },
            full: FullBandwidth::default(),
            ack_phase: AckPhase::Init,
            is_probe_sample: false,
            prev_probe_too_high: false,
            prev_probe_precautionary: false,
            cycle_start: Instant::ZERO,
            probe_wait: Duration::ZERO,
            probe_up_rounds: 0,
            probe_up_acked: 0,
            probe_up_acked_per_increase: INFINITE,
            min_rtt: None,
            min_rtt_at: Instant::ZERO,
            probe_rtt_min: None,
            probe_rtt_min_at: Instant::ZERO,
            probe_rtt_expired: false,
            probe_rtt_done_at: None,
            probe_rtt_round_done: false,
            idle_restart: false,
        };
        bbr.init_pacing_rate(Duration::from_millis(1));
        bbr
    }

    /// UpdateModelAndState and UpdateControlParameters (5.2.3).
    fn on_sample(&mut self, acked: &Acked, sample: &RateSample) {
        let now = acked.now;
        self.sack = acked.sack;
        self.delivered = sample.total_delivered_bytes;
        self.in_flight = sample.in_flight_bytes.into();
        if self.min_rtt.is_none()
            && let Some(rtt) = acked.rtt
        {
            self.on_first_round_trip(now, rtt);
        }
        if let Some(loss) = sample.worst_loss {
            self.handle_lost(now, &loss);
        }
        self.update_latest_delivery_signals(sample);
        self.update_congestion_signals(sample);
        self.update_ack_aggregation(now, sample);
        self.check_full_bandwidth_reached(sample);
        self.check_startup_done(sample);
        self.check_drain_done(now);
        self.update_cycle(now, sample);
        self.update_min_rtt(now, sample);
        self.check_probe_rtt(now, sample);
        self.advance_latest_delivery_signals(sample);
        self.bound_bandwidth();
        self.set_pacing_rate();
        self.set_cwnd(sample);
    }
}

impl Congestion for Bbr {
    fn window(&self) -> u32 {
        let bytes = u32::try_from(self.cwnd).unwrap_or(u32::MAX);
        bytes.min(self.cap_bytes).max(self.mss)
    }

    /// BBR has none.
    fn slow_start_threshold(&self) -> u32 {
        u32::MAX
    }

    fn on_ack(&mut self, acked: &Acked) {
        self.on_mss_change(acked.mss);
        if let Some(sample) = &acked.rate {
            self.on_sample(acked, sample);
        }
    }

    /// HandleRestartFromIdle (5.4.1). The draft leaves what was delivered before the silence in the sum, so that each
    /// flight would pass for one that came on top of all before it; as in Linux the sum begins anew with the interval.
    fn on_flight_start(&mut self, now: Instant, app_limited: bool) {
        if self.delivered == 0 || !app_limited {
            return;
        }
        self.idle_restart = true;
        self.extra_acked_start = now;
        self.extra_acked_delivered = 0;
        if self.is_probing_bandwidth_cycle() {
            self.set_pacing_rate_with_gain(1.0);
        } else if self.phase == Phase::ProbeRtt {
            self.check_probe_rtt_done(now);
        }
    }

    /// OnEnterFastRecovery (5.6.4.4).
    fn on_loss(&mut self, _now: Instant, _in_flight: u32, mss: u32) {
        self.on_mss_change(mss);
        self.save_cwnd();
        self.save_state_upon_loss();
        self.in_recovery = true;
    }

    fn on_mark(&mut self, now: Instant, in_flight: u32, mss: u32) {
        self.on_mss_change(mss);
        self.note_loss();
        self.marked_in_round = true;
        if self.phase == Phase::Startup {
            self.leave_startup();
        } else if self.is_probe_sample {
            self.handle_inflight_too_high(now, in_flight.into(), false);
        }
    }

    /// OnEnterRTO (5.6.4.4): the timer has declared lost all that was in flight.
    fn on_timeout(&mut self, _now: Instant, _in_flight: u32, mss: u32) {
        self.on_mss_change(mss);
        self.save_cwnd();
        self.save_state_upon_loss();
        self.in_recovery = true;
        self.cwnd = self.mss.into();
    }

    /// What blocks of SACK reported since the timeout before has let the window grow.
    fn on_timeout_again(&mut self) {
        self.cwnd = self.mss.into();
    }

    fn on_recovery_exit(&mut self, _now: Instant) {
        self.in_recovery = false;
        self.restore_cwnd();
    }

    fn on_undo(&mut self) {
        self.in_recovery = false;
        self.handle_spurious_loss();
    }

    fn governs_recovery(&self) -> bool {
        true
    }

    /// Silence is no reason to send less: what is sent is paced (5.4.2).
    fn on_idle(&mut self, _silence: Duration, _rto: Duration, _mss: u32) {}

    fn on_unused(&mut self, _used_bytes: u32) {}

    fn on_handshake_loss(&mut self, mss: u32) {
        self.on_mss_change(mss);
        self.cwnd = self.mss.into();
    }

    /// OnInit (5.2.1) and InitPacingRate (5.6.2) take SRTT where there is one.
    fn on_round_trip(&mut self, now: Instant, rtt: Duration) {
        if self.min_rtt.is_none() && !rtt.is_zero() {
            self.on_first_round_trip(now, rtt);
        }
    }

    fn on_mss_change(&mut self, mss: u32) {
        let mss = mss.max(1);
        if mss != self.mss {
            let segments_min = (self.cwnd / u64::from(self.mss)).clamp(1, 2);
            self.mss = mss;
            self.cwnd = self.cwnd.max(segments_min * u64::from(mss));
        }
    }

    fn pacing_rate(&self) -> Option<u64> {
        Some(self.pacing_rate)
    }

    fn is_holding_back(&self) -> bool {
        self.phase == Phase::ProbeRtt
    }
}

/// `value * numerator / denominator` without overflow.
fn scale(value: u64, numerator: u64, denominator: u64) -> u64 {
    let product = u128::from(value) * u128::from(numerator) / u128::from(denominator.max(1));
    u64::try_from(product).unwrap_or(u64::MAX)
}

/// What a rate delivers in a time.
fn volume(rate: u64, time: Duration) -> u64 {
    let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    scale(rate, ns, 1_000_000_000)
}

#[cfg(test)]
mod tests;
