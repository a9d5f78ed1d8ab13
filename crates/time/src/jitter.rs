//! Random delays, from an injected seed.
//!
//! Protocols ask for randomness so that hosts that were switched on together do not go on in step
//! (RFC 4861, 10; RFC 5227, 2.1.1; RFC 2131, 4.1). It need not be secret, but with an unknown seed
//! nobody can tell when a host will speak next.

use crate::Duration;

/// A stream of random numbers (SplitMix64). Equal seeds give equal streams.
#[derive(Clone, Debug)]
pub struct Jitter {
    state: u64,
}

impl Jitter {
    /// The stream of this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next number.
    #[must_use]
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A duration from `min` to `max`, uniformly; `min` where `max` is not above it.
    #[must_use]
    pub fn between(&mut self, min: Duration, max: Duration) -> Duration {
        let span_ns = max.saturating_sub(min).as_nanos();
        let drawn_ns = (span_ns * u128::from(self.next_u64())) >> 64;
        min + Duration::from_nanos(u64::try_from(drawn_ns).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_lies_in_the_range_and_spreads_over_it() {
        let (min, max) = (Duration::from_secs(1), Duration::from_secs(2));
        let mut jitter = Jitter::new(5);
        let drawn: Vec<_> = (0..1_000).map(|_| jitter.between(min, max)).collect();
        assert!(drawn.iter().all(|delay| (min..max).contains(delay)));
        let early = drawn.iter().filter(|delay| **delay < Duration::from_millis(1_500)).count();
        assert!((400..600).contains(&early), "{early} of 1000 in the first half");
        assert_eq!(jitter.between(max, min), max);
        assert_eq!(jitter.between(Duration::ZERO, Duration::ZERO), Duration::ZERO);
    }
}
