//! A point in time that is always an argument, never read from a clock.
//!
//! The core of the stack (everything up to `stack`) is sans-IO: whoever drives it says what time
//! it is. In production that is the monotonic clock, in the simulation a counter. [`Instant`]
//! is therefore a number of nanoseconds since an origin that only its maker knows.

mod jitter;

use core::ops::{Add, AddAssign, Sub};
pub use core::time::Duration;
pub use jitter::Jitter;

/// Nanoseconds since an arbitrary origin; wraps after 584 years, so it does not wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The origin.
    pub const ZERO: Self = Self(0);

    /// The instant `ns` nanoseconds after the origin.
    #[must_use]
    pub const fn from_nanos(ns: u64) -> Self {
        Self(ns)
    }

    /// The instant `us` microseconds after the origin.
    #[must_use]
    pub const fn from_micros(us: u64) -> Self {
        Self(us * 1_000)
    }

    /// The instant `ms` milliseconds after the origin.
    #[must_use]
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms * 1_000_000)
    }

    /// Nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whole milliseconds since the origin.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// The earlier of two deadlines, where `None` is never.
    #[inline]
    #[must_use]
    pub fn earliest(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    /// The instant `ns` nanoseconds later, or the end of time.
    #[inline]
    #[must_use]
    pub const fn after_nanos(self, ns: u64) -> Self {
        Self(self.0.saturating_add(ns))
    }

    /// The time since `earlier`, or zero where `earlier` is in fact later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// A duration in nanoseconds, or the longest that can be said. What is kept, or asked for with every packet, is such a
/// number: a [`Duration`] has whole seconds apart, and to make one of nanoseconds is a division.
#[inline]
#[must_use]
pub const fn nanos(duration: Duration) -> u64 {
    let ns = duration.as_secs().saturating_mul(1_000_000_000);
    ns.saturating_add(duration.subsec_nanos() as u64)
}

/// Saturates at the end of time instead of overflowing.
impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, rhs: Duration) -> Self {
        self.after_nanos(nanos(rhs))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, rhs: Duration) {
        *self = *self + rhs;
    }
}

/// The time between two instants, zero where the right one is later.
impl Sub for Instant {
    type Output = Duration;

    fn sub(self, rhs: Self) -> Duration {
        self.since(rhs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_and_subtracts_with_saturation() {
        let start = Instant::from_millis(5);
        let later = start + Duration::from_micros(250);
        assert_eq!(later - start, Duration::from_micros(250));
        assert_eq!(start - later, Duration::ZERO);
        assert_eq!(Instant::from_nanos(u64::MAX) + Duration::MAX, Instant::from_nanos(u64::MAX));
        assert_eq!(nanos(Duration::from_millis(3_007)), 3_007_000_000);
        assert_eq!((nanos(Duration::ZERO), nanos(Duration::MAX)), (0, u64::MAX));
    }
}
