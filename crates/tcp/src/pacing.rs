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
//! Pacing costs a timer per millisecond and buys nothing on paths so short that the ACKs of one
//! batch are back before the next is written. So by default it begins with a least round trip of
//! 1 ms: on shorter ones the batch limit and the device's own back-pressure bound the burst, as they
//! do for every connection on a Linux host without the fq scheduler.

use crate::congestion::Congestion as _;
use crate::connection::Connection;
use crate::timers::Timer;
use time::{Duration, Instant};

/// Shortest least round trip that [`Pacing::Auto`] paces.
const RTT_PACED_MIN: Duration = Duration::from_millis(1);

/// What may be sent at once, as time at the rate.
const QUANTUM: Duration = Duration::from_millis(1);

/// The lateness that may be made up for.
const CREDIT: Duration = Duration::from_millis(2);

/// The longest wait for a release, whatever the rate was.
const WAIT_MAX: Duration = Duration::from_secs(1);

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
    released_at: Instant,
    /// Bytes that need not wait.
    free_bytes: u32,
}

impl Pacer {
    /// Nothing is in flight: the next flight may begin with a burst.
    fn on_flight_start(&mut self, mss: u32) {
        self.free_bytes = mss.saturating_mul(FREE_SEGMENTS);
    }

    /// Bytes that may be sent now; `idle`: nothing is in flight.
    fn budget(&self, now: Instant, rate: u64, mss: u32, idle: bool) -> u64 {
        let free =
            u64::from(if idle { mss.saturating_mul(FREE_SEGMENTS) } else { self.free_bytes });
        if now < self.released_at {
            return free;
        }
        let quantum = bytes_in(rate, QUANTUM).max(2 * u64::from(mss));
        free + quantum + bytes_in(rate, (now - self.released_at).min(CREDIT))
    }

    fn on_sent(&mut self, now: Instant, bytes: u32, rate: u64) {
        let free = self.free_bytes.min(bytes);
        self.free_bytes -= free;
        let earliest = Instant::from_nanos(now.as_nanos().saturating_sub(nanos(CREDIT)));
        let paced = u64::from(bytes - free);
        let time = Duration::from_nanos(paced.saturating_mul(NS_PER_S) / rate.max(1));
        let latest = now + WAIT_MAX;
        self.released_at = (self.released_at.max(earliest) + time).min(latest);
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn bytes_in(rate: u64, duration: Duration) -> u64 {
    rate.saturating_mul(nanos(duration) / 1_000) / 1_000_000
}

impl Connection {
    /// The rate at which data is spread now, in bytes per second; `None` where it is not.
    #[must_use]
    pub fn pacing_rate(&self) -> Option<u64> {
        if let Some(rate) = self.congestion.pacing_rate() {
            return Some(rate);
        }
        match self.config.pacing {
            Pacing::Off => return None,
            Pacing::Auto if self.rtt.min_rtt()? < RTT_PACED_MIN => return None,
            Pacing::Auto | Pacing::On => {}
        }
        let srtt_ns = nanos(self.rtt.smoothed()?).max(1);
        let window = self.congestion.window();
        // As Linux: beyond half the threshold the next round trip may pass it.
        let ns_per_s = match window < self.congestion.slow_start_threshold() / 2 {
            true => 2 * NS_PER_S,
            false => NS_PER_S + NS_PER_S / 5,
        };
        Some((u64::from(window.max(self.send.flight())) * ns_per_s / srtt_ns).max(1))
    }

    /// Bytes of new data that pacing lets go now.
    pub(crate) fn pacing_budget(&self, now: Instant) -> u64 {
        match self.pacing_rate() {
            Some(rate) => {
                let idle = self.send.flight() == 0;
                self.pacer.budget(now, rate, self.negotiated.payload_max(), idle)
            }
            None => u64::MAX,
        }
    }

    /// `bytes` of payload were sent, `flight_before` in flight before them.
    pub(crate) fn on_paced(&mut self, now: Instant, bytes: u32, flight_before: u32) {
        let Some(rate) = self.pacing_rate() else { return };
        if flight_before == 0 {
            self.pacer.on_flight_start(self.negotiated.payload_max());
        }
        self.pacer.on_sent(now, bytes, rate);
    }

    /// Runs the timer where new data waits for its release.
    pub(crate) fn arm_pacing(&mut self, now: Instant) {
        let waits = now < self.pacer.released_at
            && self.state.sends_data()
            && self.send_queue.len_from(self.send.nxt) > 0
            && self.pacing_budget(now) == 0;
        if waits && !self.timers.is_set(Timer::Pacing) {
            self.timers.set(Timer::Pacing, self.pacer.released_at);
            self.counters.pacing_waits += 1;
        }
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
            let mut budget = pacer.budget(now, rate, MSS, false);
            while budget > 0 {
                pacer.on_sent(now, MSS, rate);
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
        let mut pacer = Pacer { released_at: now, free_bytes: 0 };
        assert_eq!(pacer.budget(now, 12_500_000, MSS, false), 12_500);
        assert_eq!(pacer.budget(now, 100_000, MSS, false), 2_000);
        let late = now + Duration::from_secs(5);
        assert_eq!(pacer.budget(late, 12_500_000, MSS, false), 12_500 + 25_000);
        pacer.on_sent(now, 12_500, 12_500_000);
        assert_eq!(pacer.budget(now, 12_500_000, MSS, false), 0);
        assert_eq!(pacer.released_at, now + Duration::from_millis(1));
    }

    // RFC 6928: ten segments at once are safe where nothing is in flight.
    #[test]
    fn a_flight_begins_with_the_initial_window() {
        let now = Instant::from_millis(1_000);
        let mut pacer = Pacer { released_at: now + Duration::from_millis(3), free_bytes: 0 };
        assert_eq!(pacer.budget(now, 100_000, MSS, false), 0);
        assert_eq!(pacer.budget(now, 100_000, MSS, true), 10_000);
        pacer.on_flight_start(MSS);
        pacer.on_sent(now, 10_000, 100_000);
        assert_eq!(pacer.budget(now, 100_000, MSS, false), 0);
    }

    #[test]
    fn no_rate_makes_a_connection_wait_for_ever() {
        let now = Instant::from_millis(1_000);
        let mut pacer = Pacer::default();
        pacer.on_sent(now, u32::MAX, 1);
        assert!(pacer.released_at <= now + WAIT_MAX);
        pacer.on_sent(now, u32::MAX, 0);
        assert!(pacer.released_at <= now + WAIT_MAX);
    }
}
