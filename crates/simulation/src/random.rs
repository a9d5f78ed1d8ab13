//! Randomness that a seed replays: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), split into
//! streams, so that drawing more in one place moves nothing in another.

/// A stream of random numbers. Not for secrets.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

/// Scatters the bits of `word`: the output function of SplitMix64.
#[must_use]
pub fn scatter(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

impl Random {
    /// The stream of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { state: scatter(seed ^ 0x6a09_e667_f3bc_c908) }
    }

    /// A stream of its own for the use that `label` names.
    #[must_use]
    pub fn fork(&mut self, label: u64) -> Self {
        Self { state: scatter(self.word() ^ scatter(label)) }
    }

    /// 64 random bits.
    pub fn word(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        scatter(self.state)
    }

    /// A number from `low` to `high`, both possible. Where `high` is below `low`, `low`.
    pub fn within(&mut self, low: u64, high: u64) -> u64 {
        let count = u128::from(high.saturating_sub(low)) + 1;
        low + ((u128::from(self.word()) * count) >> 64) as u64
    }

    /// A number from `low` to `high` whose order of magnitude is what is random.
    pub fn magnitude(&mut self, low: u64, high: u64) -> u64 {
        let (low, high) = (low.max(1), high.max(1));
        let bits = self.within(u64::from(low.ilog2()), u64::from(high.ilog2()));
        self.within(1 << bits, (2 << bits) - 1).clamp(low, high)
    }

    /// A number from 0 to 1.
    pub fn unit(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// One of `choices`, which must not be empty.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.within(0, choices.len() as u64 - 1) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_replays_and_bounds_hold() {
        let mut first = Random::new(7);
        let mut second = Random::new(7);
        for _ in 0..1_000 {
            assert_eq!(first.within(3, 9), second.within(3, 9));
            assert!((3..=9).contains(&first.within(3, 9)));
            second.word();
            assert!((10..=5_000).contains(&first.magnitude(10, 5_000)));
            second.word();
            second.word();
        }
        assert_eq!(first.within(5, 4), 5);
    }
}
