//! How often ICMP answers may be sent.
//!
//! RFC 4443, 2.4 (f) demands a limit and suggests a token bucket; RFC 1812, 4.3.2.8 asks the same
//! of IPv4. A limit that all peers share and that behaves exactly tells an attacker which of the
//! ports he probes made us answer somebody else, and so which ports are open (CVE-2020-25705): an
//! answer therefore costs between one and three tokens, chosen from an injected seed.

use time::{Duration, Instant};

/// A token bucket: so many answers a second, and so many at once after a pause.
///
/// Kept as the instant at which the bucket will be full again, so that nothing needs a timer.
#[derive(Clone, Debug)]
pub struct RateLimiter {
    /// What a token is worth; `None` where no answer is allowed at all.
    token: Option<Duration>,
    /// What a full bucket is worth.
    bucket: Duration,
    full_at: Instant,
    random: u64,
}

impl RateLimiter {
    /// A full bucket of `burst` tokens, of which `per_second` flow in. `seed` decides what answers
    /// cost: unpredictable in production, fixed in a simulation.
    #[must_use]
    pub fn new(per_second: u32, burst: u32, seed: u64) -> Self {
        let token = Duration::from_secs(1).checked_div(per_second);
        let bucket = token.map_or(Duration::ZERO, |token| token.saturating_mul(burst));
        Self { token, bucket, full_at: Instant::ZERO, random: seed }
    }

    /// Whether an answer may be sent now; if so, it is counted.
    #[must_use]
    pub fn allow(&mut self, now: Instant) -> bool {
        let Some(token) = self.token else { return false };
        let full_at = self.full_at.max(now);
        if full_at.since(now) + token > self.bucket {
            return false;
        }
        let cost = token.saturating_mul(1 + self.next_random() % 3);
        // The price is never more than what is in the bucket.
        self.full_at = (full_at + cost).min(now + self.bucket);
        true
    }

    /// SplitMix64: not for secrets, but with an unknown seed nobody guesses the next price.
    fn next_random(&mut self) -> u32 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed_of(limiter: &mut RateLimiter, now: Instant, asked: u32) -> u32 {
        (0..asked).map(|_| u32::from(limiter.allow(now))).sum()
    }

    #[test]
    fn a_burst_is_bounded_and_flows_back() {
        for seed in 0..50 {
            let mut limiter = RateLimiter::new(1_000, 60, seed);
            let start = Instant::from_millis(5);
            let burst = allowed_of(&mut limiter, start, 1_000);
            assert!((20..=60).contains(&burst), "one to three tokens of 60 each: {burst}");
            assert_eq!(allowed_of(&mut limiter, start, 10), 0);
            assert!(limiter.allow(start + Duration::from_millis(1)), "one token flowed in");
            let later = start + Duration::from_secs(10);
            assert!(allowed_of(&mut limiter, later, 1_000) <= 60, "the bucket does not overflow");
        }
    }

    #[test]
    fn the_long_run_keeps_to_the_rate() {
        let mut limiter = RateLimiter::new(100, 10, 7);
        let answers: u32 =
            (0..10_000).map(|ms| allowed_of(&mut limiter, Instant::from_millis(ms), 3)).sum();
        assert!((400..=1_010).contains(&answers), "100 a second for 10 seconds: {answers}");
    }

    #[test]
    fn nothing_is_allowed_where_nothing_may_flow() {
        assert!(!RateLimiter::new(0, 10, 1).allow(Instant::from_millis(1)));
        assert!(!RateLimiter::new(10, 0, 1).allow(Instant::from_millis(1)));
    }

    #[test]
    fn the_price_of_an_answer_is_not_predictable_without_the_seed() {
        let bursts: std::collections::HashSet<u32> = (0..100)
            .map(|seed| allowed_of(&mut RateLimiter::new(1, 60, seed), Instant::ZERO, 100))
            .collect();
        assert!(bursts.len() > 5, "{bursts:?}");
    }
}
