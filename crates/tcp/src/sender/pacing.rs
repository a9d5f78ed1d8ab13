//! Spreads data over the round trip, so that no queue on the way has to hold a window at once.
//!
//! ```text
//!   rate:     that of the controller, or 2 x cwnd / SRTT in slow start and 1.2 x after it
//!   at once:  1 ms at that rate, at least two segments, at most what the batch holds
//!   then:     released again when what was sent has had its time at the rate
//! ```
//!
//! A clock that runs behind what is sent ([`Pacer`]) says when new data is released; a timer wakes
//! the connection then. Who comes late, because timers are, may make up for 2 ms. A flight that
//! begins while nothing is in flight may begin with the initial window, which RFC 6928 holds safe,
//! so that a short answer is not stretched over half a round trip. Retransmissions run the clock on
//! but do not wait for it: what may be sent again at once is bounded by recovery.
//!
//! A rate that the application sets as the highest is another matter than one that follows from the window. Where it is
//! the lower of the two it holds from the first byte on, nothing of a flight is free, and there is a wait for as long as
//! it takes; where not, a flight begins with no more than the highest rate makes up for.
//!
//! Pacing costs a timer per millisecond and buys nothing on paths so short that the ACKs of one
//! batch are back before the next is written. So by default it begins with a least round trip of
//! 1 ms: on shorter ones the batch limit and the device's own back-pressure bound the burst, as they
//! do for every connection on a Linux host without the fq scheduler.

use crate::config::Config;
use crate::sender::Sender;
use crate::sender::congestion::Congestion as _;
use core::num::NonZeroU64;
use time::{Duration, Instant, nanos};

/// Shortest least round trip that [`Pacing::Auto`] paces.
const RTT_PACED_MIN: Duration = Duration::from_millis(1);

/// What may be sent at once, as time at the rate.
const QUANTUM: Duration = Duration::from_millis(1);

/// The lateness that may be made up for.
const CREDIT: Duration = Duration::from_millis(2);

/// The longest wait for a release, whatever the rate was.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// The same under a rate that was set: an hour for a long segment at 20 bytes per second.
const WAIT_MAX_LIMITED: Duration = Duration::from_secs(3_600);

/// Segments that a flight may begin with (RFC 6928).
const FREE_SEGMENTS: u32 = 10;

const NS_PER_S: u64 = 1_000_000_000;

/// When a connection spreads its data. A controller with a rate of its own (BBR) is always paced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Pacing {
    /// Where the least round trip is 1 ms or longer.
    #[default]
    Auto,
    /// Always, once a round trip was measured.
    On,
    /// Never.
    Off,
}

/// When the next data is released. Rates are in bytes per second.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pacer {
    /// When all that was sent will have had its time.
    pub(crate) released_at: Instant,
    /// Bytes that need not wait.
    free_bytes: u32,
    /// Until then nothing goes, whatever the rate is and be there none.
    is_held: bool,
}

impl Pacer {
    /// Nothing is in flight: the next flight may begin with a burst of so many bytes.
    fn on_flight_start(&mut self, free_bytes: u32) {
        self.free_bytes = free_bytes;
    }

    /// No new data is released before this.
    pub(crate) fn hold_until(&mut self, at: Instant) {
        self.released_at = self.released_at.max(at);
        self.is_held = true;
    }

    fn is_held(&self, now: Instant) -> bool {
        self.is_held && now < self.released_at
    }

    /// The highest rate changes, and what is left of the time of what was sent with it: who changes it often has not
    /// more for that.
    pub(crate) fn on_rate_max(
        &mut self,
        now: Instant,
        before: Option<NonZeroU64>,
        rate: Option<NonZeroU64>,
    ) {
        if self.is_held(now) {
            return;
        }
        let left_ns = self.released_at.as_nanos().saturating_sub(now.as_nanos());
        let left_ns = match (before, rate) {
            (Some(before), Some(rate)) => {
                let scaled =
                    u128::from(left_ns) * u128::from(before.get()) / u128::from(rate.get());
                u64::try_from(scaled).unwrap_or(u64::MAX).min(nanos(WAIT_MAX_LIMITED))
            }
            (_, None) => 0,
            (None, Some(_)) => left_ns,
        };
        self.released_at = now + Duration::from_nanos(left_ns);
        self.free_bytes = 0;
    }

    /// Bytes that may be sent now; `idle_bytes`: what a flight may begin with, where nothing is in flight.
    fn budget(&self, now: Instant, rate: u64, mss: u32, idle_bytes: Option<u32>) -> u64 {
        let free = u64::from(idle_bytes.unwrap_or(self.free_bytes));
        if now < self.released_at {
            return free;
        }
        let quantum = bytes_in(rate, QUANTUM).max(2 * u64::from(mss));
        free + quantum + bytes_in(rate, (now - self.released_at).min(CREDIT))
    }

    fn on_sent(&mut self, now: Instant, bytes: u32, rate: u64, wait_max: Duration) {
        if self.is_held(now) {
            // What is sent again, or probes, does not wait, and what waits does so no less for it.
            return;
        }
        self.is_held = false;
        let free = self.free_bytes.min(bytes);
        self.free_bytes -= free;
        let earliest = Instant::from_nanos(now.as_nanos().saturating_sub(nanos(CREDIT)));
        let paced = u64::from(bytes - free);
        let time = Duration::from_nanos(paced.saturating_mul(NS_PER_S) / rate.max(1));
        let latest = now + wait_max;
        self.released_at = (self.released_at.max(earliest) + time).min(latest);
    }
}

fn bytes_in(rate: u64, duration: Duration) -> u64 {
    rate.saturating_mul(nanos(duration) / 1_000) / 1_000_000
}

impl Sender {
    /// The rate at which data is spread now, in bytes per second; `None` where it is not.
    pub(crate) fn pacing_rate(&self, config: &Config) -> Option<u64> {
        let (rate, max) = (self.own_pacing_rate(config), config.pacing_rate_max);
        rate.into_iter().chain(max.map(NonZeroU64::get)).min()
    }

    /// Whether the rate is the one that was set.
    fn is_limited(&self, config: &Config) -> bool {
        let is_lower =
            |max: NonZeroU64| self.own_pacing_rate(config).is_none_or(|own| max.get() <= own);
        config.pacing_rate_max.is_some_and(is_lower)
    }

    /// What a flight may begin with at once.
    fn free_bytes(&self, config: &Config, mss: u32) -> u32 {
        let free = mss.saturating_mul(FREE_SEGMENTS);
        match config.pacing_rate_max {
            None => free,
            Some(_) if self.is_limited(config) => 0,
            Some(max) => u32::try_from(bytes_in(max.get(), CREDIT)).unwrap_or(free).min(free),
        }
    }

    fn own_pacing_rate(&self, config: &Config) -> Option<u64> {
        if let Some(rate) = self.congestion.pacing_rate() {
            return Some(rate);
        }
        match config.pacing {
            Pacing::Off => return None,
            Pacing::Auto if self.rtt.min_rtt_ns()? < nanos(RTT_PACED_MIN) => return None,
            Pacing::Auto | Pacing::On => {}
        }
        let srtt_ns = self.rtt.smoothed_ns()?.max(1);
        let window = self.congestion.window();
        // As Linux: beyond half the threshold the next round trip may pass it.
        let ns_per_s = match window < self.congestion.slow_start_threshold() / 2 {
            true => 2 * NS_PER_S,
            false => NS_PER_S + NS_PER_S / 5,
        };
        Some((u64::from(window.max(self.sequence.flight())) * ns_per_s / srtt_ns).max(1))
    }

    /// Bytes of new data that pacing lets go now.
    pub(crate) fn pacing_budget(&self, now: Instant, config: &Config, mss: u32) -> u64 {
        match self.pacing_rate(config) {
            _ if self.pacer.is_held(now) => 0,
            Some(rate) => {
                let idle_bytes =
                    (self.sequence.flight() == 0).then(|| self.free_bytes(config, mss));
                self.pacer.budget(now, rate, mss, idle_bytes)
            }
            None => u64::MAX,
        }
    }

    /// `bytes` of payload were sent, `flight_before` in flight before them.
    pub(crate) fn on_paced(
        &mut self,
        now: Instant,
        bytes: u32,
        flight_before: u32,
        config: &Config,
        mss: u32,
    ) {
        let Some(rate) = self.pacing_rate(config) else { return };
        if flight_before == 0 {
            self.pacer.on_flight_start(self.free_bytes(config, mss));
        }
        let wait_max = if self.is_limited(config) { WAIT_MAX_LIMITED } else { WAIT_MAX };
        self.pacer.on_sent(now, bytes, rate, wait_max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1_000;

    /// What is sent in `duration` by a sender that is woken every `step` and always has data.
    fn sent_in(rate: u64, duration: Duration, step: Duration) -> u64 {
        let mut pacer = Pacer::default();
        let mut now = Instant::from_millis(10);
        let (end, mut sent) = (now + duration, 0);
        while now < end {
            let mut budget = pacer.budget(now, rate, MSS, None);
            while budget > 0 {
                pacer.on_sent(now, MSS, rate, WAIT_MAX);
                sent += u64::from(MSS);
                budget = budget.saturating_sub(MSS.into());
            }
            now += step;
        }
        sent
    }

    #[test]
    fn the_rate_is_kept_to_whether_timers_are_exact_or_late() {
        for rate in [100_000, 12_500_000, 1_250_000_000] {
            for step_us in [10, 500, 1_900] {
                let second = Duration::from_secs(1);
                let sent = sent_in(rate, second, Duration::from_micros(step_us));
                let error = sent.abs_diff(rate) as f64 / rate as f64;
                assert!(error < 0.02 + 4_000.0 / rate as f64, "{rate} {step_us}: {sent}");
            }
        }
    }

    // The TSO-autosize idea: about 1 ms at the rate, at least two segments.
    #[test]
    fn at_most_a_millisecond_and_the_credit_of_a_late_timer_go_at_once() {
        let now = Instant::from_millis(1_000);
        let mut pacer = Pacer { released_at: now, ..Pacer::default() };
        assert_eq!(pacer.budget(now, 12_500_000, MSS, None), 12_500);
        assert_eq!(pacer.budget(now, 100_000, MSS, None), 2_000);
        let late = now + Duration::from_secs(5);
        assert_eq!(pacer.budget(late, 12_500_000, MSS, None), 12_500 + 25_000);
        pacer.on_sent(now, 12_500, 12_500_000, WAIT_MAX);
        assert_eq!(pacer.budget(now, 12_500_000, MSS, None), 0);
        assert_eq!(pacer.released_at, now + Duration::from_millis(1));
    }

    // RFC 6928: ten segments at once are safe where nothing is in flight.
    #[test]
    fn a_flight_begins_with_the_initial_window() {
        let now = Instant::from_millis(1_000);
        let mut pacer = Pacer { released_at: now + Duration::from_millis(3), ..Pacer::default() };
        assert_eq!(pacer.budget(now, 100_000, MSS, None), 0);
        assert_eq!(pacer.budget(now, 100_000, MSS, Some(10 * MSS)), 10_000);
        pacer.on_flight_start(10 * MSS);
        pacer.on_sent(now, 10_000, 100_000, WAIT_MAX);
        assert_eq!(pacer.budget(now, 100_000, MSS, None), 0);
    }

    #[test]
    fn a_highest_rate_that_is_never_reached_costs_nothing() {
        use crate::tests::harness::*;
        let at_once = |max: Option<u64>| {
            let pacing_rate_max = max.and_then(NonZeroU64::new);
            let config = crate::Config { pacing: Pacing::On, pacing_rate_max, ..plain_config() };
            let mut harness = Harness::connect(config);
            harness.expect_one();
            harness.now += Duration::from_millis(100);
            harness.options.mss = Some(1_000);
            harness.receive(SYN | ACK, 0, 1, b"");
            harness.options.mss = None;
            harness.expect_one();
            harness.write(&stream(0..10_000));
            harness.take().len()
        };
        assert_eq!(at_once(None), 10);
        assert_eq!(at_once(Some(1_250_000_000)), 10);
        assert!(at_once(Some(50_000)) <= 3);
    }

    #[test]
    fn no_rate_makes_a_connection_wait_for_ever() {
        let now = Instant::from_millis(1_000);
        let mut pacer = Pacer::default();
        pacer.on_sent(now, u32::MAX, 1, WAIT_MAX);
        assert!(pacer.released_at <= now + WAIT_MAX);
        pacer.on_sent(now, u32::MAX, 0, WAIT_MAX);
        assert!(pacer.released_at <= now + WAIT_MAX);
    }

    // Who waits at a rate of next to nothing goes on at once where it may.
    #[test]
    fn a_higher_limit_ends_the_wait_of_a_lower_one() {
        use crate::tests::harness::*;
        let slow = NonZeroU64::new(100);
        let config = crate::Config { pacing_rate_max: slow, ..plain_config() };
        let mut harness = Harness::established(config);
        harness.write(&stream(0..10_000));
        let count = harness.take().len();
        assert!(count < 10, "{count}");
        let last = 1 + 1_000 * count as u32;
        harness.receive(ACK, 1, last, b"");
        harness.expect_nothing();
        let wait =
            |harness: &Harness| harness.connection.poll_timeout().map(|at| at.since(harness.now));
        assert!(wait(&harness) > Some(Duration::from_secs(5)));
        harness.connection.set_pacing_rate_max(harness.now, NonZeroU64::new(1_000_000));
        assert!(wait(&harness) < Some(Duration::from_secs(1)));
    }
}
