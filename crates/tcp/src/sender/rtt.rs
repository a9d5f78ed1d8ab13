//! Round-trip time and retransmission timeout (RFC 6298).
//!
//! In go round-trip times of segments that were sent once (Karn's algorithm, RFC 6298, 3: a
//! sample of a retransmitted segment MUST NOT be used, unless a timestamp removes the ambiguity)
//! and the fact that the timer went off; out comes the time to wait before retransmitting.
//!
//! Three decisions beyond the letter:
//!
//! - RFC 6298, 2.4 says an RTO below 1 s SHOULD be rounded up to 1 s. The floor here is
//!   [`RttConfig::rto_min`], 200 ms unless set otherwise, as in every large deployment.
//! - The floor is put under the variance term, `RTO = SRTT + max(rto_min, 4 * RTTVAR)`, which is
//!   never less than the RFC's rounding. A peer may hold its ACK back for as long as the floor; on
//!   a steady path of 190 ms a floor under the sum would leave it 10 ms.
//! - With timestamps every ACK gives a sample, and the gains of one-sample-per-round-trip would
//!   forget the path within a fraction of a round trip. RFC 7323, appendix G divides both gains by
//!   the number of samples expected per round trip: [`RttEstimator::on_sample_of`].
//!
//! What always holds: the RTO is between `rto_min` and `rto_max`, whatever the samples.

use time::{Duration, Instant, nanos};

/// Fixed-point fraction bits of the averages, so that a gain of 1/8000 still moves them.
const FRACTION_BITS: u32 = 8;

/// A sample beyond this is taken for this; it keeps the arithmetic far from overflow.
const SAMPLE_MAX: Duration = Duration::from_secs(3600);

/// Above this many samples per round trip the gain stays put; the averages have to move.
const EXPECTED_SAMPLES_MAX: u32 = 1024;

/// What the least round trip counts as that no clock has seen.
const MIN_RTT_LEAST_NS: u64 = 1_000;

/// The RTO when a SYN timed out and the handshake measured nothing (RFC 6298, 5.7).
const RTO_AFTER_SYN_TIMEOUT: Duration = Duration::from_secs(3);

/// The bounds of the retransmission timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RttConfig {
    /// RTO before the first sample: 1 s (RFC 6298, 2.1).
    pub rto_initial: Duration,
    /// Least RTO: 200 ms (RFC 6298, 2.4 says 1 s; see the module).
    pub rto_min: Duration,
    /// Greatest RTO, also when backed off: 120 s (RFC 6298, 2.5: MUST be at least 60 s).
    pub rto_max: Duration,
}

impl Default for RttConfig {
    fn default() -> Self {
        Self {
            rto_initial: Duration::from_secs(1),
            rto_min: Duration::from_millis(200),
            rto_max: Duration::from_secs(120),
        }
    }
}

impl RttConfig {
    /// The RTO before the first sample, within the bounds. A maximum below the minimum counts as the minimum.
    #[must_use]
    pub fn rto_first(&self) -> Duration {
        self.rto_initial.clamp(self.rto_min, self.rto_most())
    }

    /// The greatest RTO.
    #[must_use]
    pub fn rto_most(&self) -> Duration {
        self.rto_max.max(self.rto_min)
    }
}

/// The state RFC 6298 keeps per connection.
#[derive(Clone, Debug)]
pub(crate) struct RttEstimator {
    /// Bounds of the RTO. What a connection keeps is kept small: numbers, not [`Duration`]s.
    rto_min_us: u32,
    rto_max_us: u32,
    /// SRTT and RTTVAR once there was a sample.
    averages: Option<Averages>,
    /// RTO without the back-off.
    rto_base_ns: u64,
    /// The least sample that was not zero; `u64::MAX` before the first.
    min_rtt_ns: u64,
    /// How often the timer went off in a row.
    backoff_count: u32,
    syn_timed_out: bool,
}

/// SRTT and RTTVAR in 2^-[`FRACTION_BITS`] nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Averages {
    smoothed: i64,
    variation: i64,
}

impl RttEstimator {
    /// An estimator that has seen nothing; its RTO is [`RttConfig::rto_first`].
    pub(crate) fn new(config: RttConfig) -> Self {
        Self {
            rto_min_us: to_us(config.rto_min),
            rto_max_us: to_us(config.rto_most()),
            averages: None,
            rto_base_ns: nanos(config.rto_first()),
            backoff_count: 0,
            min_rtt_ns: u64::MAX,
            syn_timed_out: false,
        }
    }

    /// Takes the only sample of its round trip.
    pub(crate) fn on_sample(&mut self, rtt: Duration) {
        self.on_sample_of(rtt, 1);
    }

    /// Takes one of about `expected_samples` samples per round trip, which by RFC 7323, appendix G
    /// is FlightSize / (2 * SMSS), rounded up. Ends the back-off.
    pub(crate) fn on_sample_of(&mut self, rtt: Duration, expected_samples: u32) {
        let rtt = rtt.min(SAMPLE_MAX);
        if !rtt.is_zero() {
            self.min_rtt_ns = self.min_rtt_ns.min(nanos(rtt));
        }
        let sample = to_fixed(rtt);
        let averages = match self.averages {
            // RFC 6298, 2.2.
            None => Averages { smoothed: sample, variation: sample / 2 },
            // RFC 6298, 2.3; RTTVAR MUST be computed before SRTT changes.
            Some(old) => {
                let expected = i64::from(expected_samples.clamp(1, EXPECTED_SAMPLES_MAX));
                let error = sample - old.smoothed;
                Averages {
                    variation: old.variation + (error.abs() - old.variation) / (4 * expected),
                    smoothed: old.smoothed + error / (8 * expected),
                }
            }
        };
        self.averages = Some(averages);
        let variance_term_ns = from_fixed(averages.variation.saturating_mul(4));
        let rto_ns = from_fixed(averages.smoothed) + variance_term_ns.max(self.rto_min_ns());
        self.set_rto_base(rto_ns);
        self.backoff_count = 0;
    }

    /// The timer went off: the RTO MUST double (RFC 6298, 5.5), up to the maximum.
    pub(crate) fn on_backoff(&mut self) {
        self.backoff_count = self.backoff_count.saturating_add(1);
    }

    /// The timer went off while the SYN waited for its ACK: backs off, and remembers it for
    /// [`RttEstimator::on_established`].
    pub(crate) fn on_syn_timeout(&mut self) {
        self.syn_timed_out = true;
        self.on_backoff();
    }

    /// The handshake is complete and data may flow.
    ///
    /// If the SYN had timed out, the RTO is set to 3 s (RFC 6298, 5.7: MUST), for the path may be
    /// longer than the initial RTO. If a timestamp measured the handshake all the same, that doubt
    /// is gone and the measured RTO stands.
    pub(crate) fn on_established(&mut self) {
        if self.syn_timed_out && self.averages.is_none() {
            self.set_rto_base(nanos(RTO_AFTER_SYN_TIMEOUT));
        }
        self.syn_timed_out = false;
        self.backoff_count = 0;
    }

    /// Ends the back-off without a sample: a timeout proved spurious, or a zero-window probe was
    /// answered, which tells nothing of congestion.
    pub(crate) fn reset_backoff(&mut self) {
        self.backoff_count = 0;
    }

    /// The retransmission timeout, back-off included.
    pub(crate) fn rto(&self) -> Duration {
        Duration::from_nanos(self.rto_ns())
    }

    /// The same in nanoseconds.
    #[inline]
    pub(crate) fn rto_ns(&self) -> u64 {
        let factor = 1_u32.checked_shl(self.backoff_count).unwrap_or(u32::MAX);
        self.rto_base_ns.saturating_mul(factor.into()).min(self.rto_max_ns())
    }

    /// When what is sent now is to be sent again.
    #[inline]
    pub(crate) fn expires_at(&self, now: Instant) -> Instant {
        now.after_nanos(self.rto_ns())
    }

    /// How often the RTO has doubled since the last sample.
    pub(crate) fn backoff_count(&self) -> u32 {
        self.backoff_count
    }

    /// SRTT, once there was a sample.
    pub(crate) fn smoothed(&self) -> Option<Duration> {
        self.smoothed_ns().map(Duration::from_nanos)
    }

    /// The same in nanoseconds.
    #[inline]
    pub(crate) fn smoothed_ns(&self) -> Option<u64> {
        self.averages.map(|averages| from_fixed(averages.smoothed))
    }

    /// RTTVAR, once there was a sample.
    pub(crate) fn variation(&self) -> Option<Duration> {
        self.averages.map(|averages| Duration::from_nanos(from_fixed(averages.variation)))
    }

    /// The least sample ever seen that was not zero: where one instant stands for several rounds of a turn, zero
    /// says that the clock stood still, not how short the path is. A microsecond where all were zero.
    pub(crate) fn min_rtt(&self) -> Option<Duration> {
        self.min_rtt_ns().map(Duration::from_nanos)
    }

    /// The same in nanoseconds.
    #[inline]
    pub(crate) fn min_rtt_ns(&self) -> Option<u64> {
        match self.min_rtt_ns {
            u64::MAX => self.averages.map(|_| MIN_RTT_LEAST_NS),
            least_ns => Some(least_ns),
        }
    }

    fn set_rto_base(&mut self, rto_ns: u64) {
        self.rto_base_ns = rto_ns.clamp(self.rto_min_ns(), self.rto_max_ns());
    }

    #[inline]
    fn rto_min_ns(&self) -> u64 {
        u64::from(self.rto_min_us) * 1_000
    }

    #[inline]
    fn rto_max_ns(&self) -> u64 {
        u64::from(self.rto_max_us) * 1_000
    }
}

impl Default for RttEstimator {
    fn default() -> Self {
        Self::new(RttConfig::default())
    }
}

fn to_us(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros()).unwrap_or(u32::MAX)
}

/// Of a sample, which [`SAMPLE_MAX`] bounds: an hour is 2^50 of these.
fn to_fixed(duration: Duration) -> i64 {
    (nanos(duration.min(SAMPLE_MAX)) << FRACTION_BITS) as i64
}

fn from_fixed(fixed: i64) -> u64 {
    fixed.max(0).unsigned_abs() >> FRACTION_BITS
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn begins_at_one_second_and_doubles_to_the_maximum() {
        let mut estimator = RttEstimator::default();
        assert_eq!(estimator.rto(), ms(1_000));
        for expected_s in [2, 4, 8, 16, 32, 64, 120, 120] {
            estimator.on_backoff();
            assert_eq!(estimator.rto(), Duration::from_secs(expected_s));
        }
        for _ in 0..100 {
            estimator.on_backoff();
        }
        assert_eq!(estimator.rto(), Duration::from_secs(120));
        estimator.reset_backoff();
        assert_eq!(estimator.rto(), ms(1_000));
    }

    #[test]
    fn computes_the_first_two_samples_as_the_rfc_says() {
        let mut estimator = RttEstimator::default();
        estimator.on_sample(ms(400));
        assert_eq!((estimator.smoothed(), estimator.variation()), (Some(ms(400)), Some(ms(200))));
        assert_eq!(estimator.rto(), ms(400 + 4 * 200));
        // RTTVAR = 3/4 * 200 + 1/4 * |400 - 800|, SRTT = 7/8 * 400 + 1/8 * 800.
        estimator.on_sample(ms(800));
        assert_eq!((estimator.smoothed(), estimator.variation()), (Some(ms(450)), Some(ms(250))));
        assert_eq!(estimator.rto(), ms(450 + 4 * 250));
        assert_eq!(estimator.min_rtt(), Some(ms(400)));
    }

    #[test]
    fn the_floor_leaves_a_steady_path_room_for_a_delayed_ack() {
        let mut estimator = RttEstimator::default();
        for _ in 0..200 {
            estimator.on_sample(ms(190));
        }
        assert!(estimator.rto() >= ms(390) && estimator.rto() < ms(391), "{:?}", estimator.rto());
    }

    #[test]
    fn a_sample_ends_the_back_off() {
        let mut estimator = RttEstimator::default();
        estimator.on_backoff();
        estimator.on_backoff();
        estimator.on_sample(ms(100));
        assert_eq!(estimator.backoff_count(), 0);
        assert_eq!(estimator.rto(), ms(100 + 200));
    }

    // RFC 6298, 5.7.
    #[test]
    fn a_timed_out_syn_makes_the_first_rto_three_seconds() {
        let mut estimator = RttEstimator::default();
        estimator.on_syn_timeout();
        assert_eq!(estimator.rto(), ms(2_000));
        estimator.on_established();
        assert_eq!(estimator.rto(), ms(3_000));

        let mut undisturbed = RttEstimator::default();
        undisturbed.on_established();
        assert_eq!(undisturbed.rto(), ms(1_000));

        let mut measured = RttEstimator::default();
        measured.on_syn_timeout();
        measured.on_sample(ms(100));
        measured.on_established();
        assert_eq!(measured.rto(), ms(300));
    }

    #[test]
    fn a_clock_that_stood_still_says_nothing_of_the_least() {
        let mut estimator = RttEstimator::default();
        estimator.on_sample(ms(0));
        assert_eq!(estimator.min_rtt(), Some(Duration::from_nanos(MIN_RTT_LEAST_NS)));
        estimator.on_sample(ms(300));
        estimator.on_sample(ms(0));
        assert_eq!(estimator.min_rtt(), Some(ms(300)));
    }

    // RFC 7323, appendix G: the history must span round trips, not samples.
    #[test]
    fn many_samples_per_round_trip_weigh_as_much_as_one() {
        let mut once = RttEstimator::default();
        let mut often = RttEstimator::default();
        once.on_sample(ms(100));
        often.on_sample(ms(100));
        for _ in 0..5 {
            once.on_sample(ms(300));
            for _ in 0..500 {
                often.on_sample_of(ms(300), 500);
            }
        }
        let (once, often) = (once.smoothed().unwrap(), often.smoothed().unwrap());
        assert!(once.abs_diff(often) < ms(10), "{once:?} {often:?}");
        assert!(often < ms(250), "five round trips must not forget the path: {often:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None,
            ..ProptestConfig::default() })]

        #[test]
        fn the_rto_stays_within_its_bounds(
            events in proptest::collection::vec((0_u8..4, any::<u64>(), any::<u32>()), 0..200)
        ) {
            let mut estimator = RttEstimator::default();
            for (kind, ns, expected) in events {
                let ns = ns.max(1);
                match kind {
                    0 => estimator.on_sample(Duration::from_nanos(ns)),
                    1 => {
                        let rtt = Duration::from_nanos(1 + ns % 1_000_000_000);
                        estimator.on_sample_of(rtt, expected);
                    }
                    2 => estimator.on_backoff(),
                    _ => estimator.on_syn_timeout(),
                }
                prop_assert!(estimator.rto() >= RttConfig::default().rto_min);
                prop_assert!(estimator.rto() <= RttConfig::default().rto_max);
                if let (Some(least), Some(smoothed)) = (estimator.min_rtt(), estimator.smoothed()) {
                    prop_assert!(least <= smoothed + Duration::from_nanos(1));
                }
            }
        }
    }
}
