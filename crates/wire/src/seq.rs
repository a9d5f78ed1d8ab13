//! TCP sequence numbers: arithmetic modulo 2^32 (RFC 9293, 3.4).
//!
//! "Before" and "after" only mean something for two numbers less than 2^31 apart, and even then
//! they are not transitive around the whole circle, so [`SeqNumber`] deliberately has no `Ord`:
//! nobody can sort it or put it in a tree by accident. Code that needs an order keeps numbers as
//! offsets from a base it knows ([`SeqNumber::offset_from`]), usually `SND.UNA` or `RCV.NXT`.

use core::fmt;
use core::ops::{Add, AddAssign, Sub, SubAssign};

/// A position in a connection's byte stream, modulo 2^32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SeqNumber(pub u32);

impl SeqNumber {
    /// How far this number lies after `earlier`, in bytes; negative where it lies before.
    ///
    /// Of two numbers exactly 2^31 apart each is `i32::MIN` from the other.
    #[must_use]
    pub const fn distance(self, earlier: Self) -> i32 {
        self.0.wrapping_sub(earlier.0).cast_signed()
    }

    /// How many bytes one walks forward from `base` to reach this number: 0 to 2^32 - 1.
    #[must_use]
    pub const fn offset_from(self, base: Self) -> u32 {
        self.0.wrapping_sub(base.0)
    }

    /// `self < other` modulo 2^32.
    #[must_use]
    pub const fn is_before(self, other: Self) -> bool {
        self.distance(other) < 0
    }

    /// `self <= other` modulo 2^32.
    #[must_use]
    pub const fn is_at_or_before(self, other: Self) -> bool {
        self.0 == other.0 || self.is_before(other)
    }

    /// `self > other` modulo 2^32.
    #[must_use]
    pub const fn is_after(self, other: Self) -> bool {
        other.is_before(self)
    }

    /// `self >= other` modulo 2^32.
    #[must_use]
    pub const fn is_at_or_after(self, other: Self) -> bool {
        other.is_at_or_before(self)
    }

    /// Whether this number is one of the `len` numbers from `start` on: RFC 9293's
    /// `start =< self < start + len`. Exact for every `len`; nothing is in a window of 0.
    #[must_use]
    pub const fn in_window(self, start: Self, len: u32) -> bool {
        self.offset_from(start) < len
    }

    /// The later of the two numbers.
    #[must_use]
    pub const fn later_of(self, other: Self) -> Self {
        if self.is_before(other) { other } else { self }
    }

    /// The earlier of the two numbers.
    #[must_use]
    pub const fn earlier_of(self, other: Self) -> Self {
        if other.is_before(self) { other } else { self }
    }
}

/// The number `rhs` bytes further on.
impl Add<u32> for SeqNumber {
    type Output = Self;

    fn add(self, rhs: u32) -> Self {
        Self(self.0.wrapping_add(rhs))
    }
}

impl AddAssign<u32> for SeqNumber {
    fn add_assign(&mut self, rhs: u32) {
        *self = *self + rhs;
    }
}

/// The number `rhs` bytes back.
impl Sub<u32> for SeqNumber {
    type Output = Self;

    fn sub(self, rhs: u32) -> Self {
        Self(self.0.wrapping_sub(rhs))
    }
}

impl SubAssign<u32> for SeqNumber {
    fn sub_assign(&mut self, rhs: u32) {
        *self = *self - rhs;
    }
}

impl fmt::Display for SeqNumber {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BASES: [u32; 6] = [0, 1, 0x7fff_ffff, 0x8000_0000, 0xffff_fffe, u32::MAX];

    #[test]
    fn order_holds_around_every_base() {
        for base in BASES.map(SeqNumber) {
            for ahead in [1, 1460, 0x7fff_ffff] {
                let later = base + ahead;
                assert!(base.is_before(later) && !later.is_before(base));
                assert!(later.is_after(base) && !base.is_after(later));
                assert!(base.is_at_or_before(later) && later.is_at_or_after(base));
                assert!(!later.is_at_or_before(base) && !base.is_at_or_after(later));
                assert_eq!(base.later_of(later), later);
                assert_eq!(later.later_of(base), later);
                assert_eq!(base.earlier_of(later), base);
                assert_eq!(later.earlier_of(base), base);
                assert_eq!(later - ahead, base);
                assert_eq!(i64::from(later.distance(base)), i64::from(ahead));
                assert_eq!(i64::from(base.distance(later)), -i64::from(ahead));
            }
            assert!(!base.is_before(base) && !base.is_after(base));
            assert!(base.is_at_or_before(base) && base.is_at_or_after(base));
        }
    }

    #[test]
    fn a_window_may_wrap_and_excludes_its_end() {
        for base in BASES.map(SeqNumber) {
            assert!(!base.in_window(base, 0));
            assert!(base.in_window(base, 1));
            assert!((base + 99).in_window(base, 100));
            assert!(!(base + 100).in_window(base, 100));
            assert!(!(base - 1).in_window(base, 100));
            // A scaled window may reach 2^30, and the test itself is exact beyond 2^31.
            assert!((base + 0xffff_fff0).in_window(base, u32::MAX));
            assert!(!(base - 1).in_window(base, u32::MAX));
        }
    }

    #[test]
    fn offset_is_a_walk_forward() {
        assert_eq!(SeqNumber(4).offset_from(SeqNumber(u32::MAX)), 5);
        assert_eq!(SeqNumber(u32::MAX).offset_from(SeqNumber(4)), u32::MAX - 4);
        let mut moving = SeqNumber(u32::MAX - 1);
        moving += 3;
        assert_eq!(moving, SeqNumber(1));
        moving -= 3;
        assert_eq!(moving, SeqNumber(u32::MAX - 1));
    }

    const CIRCLE: i64 = 1 << 32;

    /// Numbers anywhere, and distances that matter: at the edges as often as anywhere else.
    fn distances() -> impl Strategy<Value = u32> {
        prop_oneof![
            any::<u32>(),
            0_u32..3,
            0x7fff_fffe_u32..=0x8000_0001,
            0xffff_fffe_u32..=u32::MAX,
        ]
    }

    proptest! {
        // RFC 9293, 3.4: "all arithmetic dealing with sequence numbers must be performed modulo
        // 2^32"; here without that modulus, in integers that hold the whole circle.
        #[test]
        fn all_is_arithmetic_modulo_two_to_the_32(
            base in any::<u32>(),
            ahead in distances(),
            len in distances(),
        ) {
            let number = SeqNumber(base) + ahead;
            let base = SeqNumber(base);
            let sum = (i64::from(base.0) + i64::from(ahead)).rem_euclid(CIRCLE);
            prop_assert_eq!(i64::from(number.0), sum);
            let difference = (i64::from(number.0) - i64::from(ahead)).rem_euclid(CIRCLE);
            prop_assert_eq!(i64::from((number - ahead).0), difference);

            let offset = (i64::from(number.0) - i64::from(base.0)).rem_euclid(CIRCLE);
            prop_assert_eq!(i64::from(number.offset_from(base)), offset);
            let signed = if offset < CIRCLE / 2 { offset } else { offset - CIRCLE };
            prop_assert_eq!(i64::from(number.distance(base)), signed);

            // Exactly half a circle apart each number is before the other.
            prop_assert_eq!(number.is_before(base), signed < 0);
            prop_assert_eq!(number.is_at_or_before(base), signed <= 0);
            prop_assert_eq!(number.is_after(base), signed > 0 || offset == CIRCLE / 2);
            prop_assert_eq!(number.is_at_or_after(base), signed >= 0 || offset == CIRCLE / 2);
            if offset != CIRCLE / 2 {
                let (later, earlier) = if signed < 0 { (base, number) } else { (number, base) };
                prop_assert_eq!(number.later_of(base), later);
                prop_assert_eq!(number.earlier_of(base), earlier);
            }

            // RFC 9293, 3.10.7.4: RCV.NXT =< SEG.SEQ < RCV.NXT + RCV.WND, on a line long enough.
            let start = i64::from(base.0);
            let end = start + i64::from(len);
            let on_line = |at: i64| start <= at && at < end;
            let is_in = on_line(i64::from(number.0)) || on_line(i64::from(number.0) + CIRCLE);
            prop_assert_eq!(number.in_window(base, len), is_in);
        }
    }
}
