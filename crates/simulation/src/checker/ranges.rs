//! Which positions of a stream have arrived.

/// Half-open ranges, ascending, apart from each other; the first begins at zero once it is there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranges {
    ranges: Vec<(u64, u64)>,
}

impl Ranges {
    /// Adds `start..end`.
    pub(crate) fn add(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let first = self.ranges.partition_point(|range| range.1 < start);
        let last = self.ranges.partition_point(|range| range.0 <= end);
        let mut merged = (start, end);
        if let Some(touched) = self.ranges.get(first..last)
            && let (Some(low), Some(high)) = (touched.first(), touched.last())
        {
            merged = (merged.0.min(low.0), merged.1.max(high.1));
        }
        self.ranges.splice(first..last, [merged]);
    }

    /// One past the last position up to which everything from zero on is there.
    pub(crate) fn contiguous(&self) -> u64 {
        self.ranges.first().map_or(0, |range| if range.0 == 0 { range.1 } else { 0 })
    }

    /// Whether all of `start..end` is there.
    pub(crate) fn contains(&self, start: u64, end: u64) -> bool {
        let index = self.ranges.partition_point(|range| range.1 < end);
        self.ranges.get(index).is_some_and(|range| range.0 <= start && end <= range.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn ranges_are_what_a_bitmap_says() {
        let mut random = Random::new(1);
        for _ in 0..200 {
            let (mut ranges, mut bits) = (Ranges::default(), [false; 64]);
            for _ in 0..10 {
                let start = random.within(0, 60);
                let end = random.within(start, 63);
                ranges.add(start, end);
                bits[start as usize..end as usize].fill(true);
                let contiguous = bits.iter().position(|bit| !bit).unwrap_or(64) as u64;
                assert_eq!(ranges.contiguous(), contiguous);
                let (a, b) = (random.within(0, 30), random.within(31, 63));
                let all = bits[a as usize..b as usize].iter().all(|bit| *bit);
                assert_eq!(ranges.contains(a, b), all);
            }
        }
    }
}
