//! How many rings, soft rings and homes there are, as seed 004 names it: `R1S8F1`.
//!
//! ```text
//!              ring 0                ring 1                     R: rings of the device
//!           soft ring set         soft ring set
//!         +----+-----+----+     +----+-----+----+
//!         | s0 | ... | s7 |     | s0 | ... | s7 |               S: soft rings in each set
//!         +----+-----+----+     +----+-----+----+
//!  F1       |     |     |         |     |     |
//!         home 0 ...  home 7    home 0 ...  home 7              each soft ring has a home of its own
//!
//!  F0        all home 0            all home 1                   the ring's home has all of its soft rings
//! ```
//!
//! With `F0` and several rings the device has spread the flows: what arrives on ring `r` goes to home
//! `r`, and TCP is not hashed (the bypass of seed 004, section III A). Which home has a connection the hash
//! says all the same: a home that does not have it hands the segment on. So it is right with any device, and
//! fast where the device keeps to it most of the time; where it does not, `F1` hashes every frame first.

use core::fmt;
use core::num::NonZeroU16;
use core::str::FromStr;

/// Rings, soft rings for each, and whether these go to different homes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    rings: NonZeroU16,
    soft_rings: u16,
    fan_out: bool,
}

/// What is wrong with a layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadLayout {
    /// Not of the form `R1S8F1`.
    Form(String),
    /// No ring, or more than [`Layout::RINGS_MAX`].
    Rings(u64),
    /// More soft rings than [`Layout::SOFT_RINGS_MAX`].
    SoftRings(u64),
    /// Fan-out of no soft rings.
    NothingToFanOut,
}

impl fmt::Display for BadLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form(text) => write!(
                f,
                "a layout is written R1S8F1 (rings, soft rings for each, fan-out 0 or 1), not {text:?}"
            ),
            Self::Rings(rings) => {
                write!(f, "a device has 1 to {} rings, not {rings}", Layout::RINGS_MAX)
            }
            Self::SoftRings(rings) => {
                write!(f, "a ring has 0 to {} soft rings, not {rings}", Layout::SOFT_RINGS_MAX)
            }
            Self::NothingToFanOut => {
                write!(f, "fan-out (F1) needs soft rings to fan out over: S1 or more")
            }
        }
    }
}

impl core::error::Error for BadLayout {}

impl Layout {
    /// How many rings a device may have.
    pub const RINGS_MAX: u16 = 64;

    /// How many soft rings a ring may have.
    pub const SOFT_RINGS_MAX: u16 = 64;

    /// One ring, no soft rings: all frames are for one squeue.
    pub const SINGLE: Self = Self { rings: NonZeroU16::MIN, soft_rings: 0, fan_out: false };

    /// A layout of `rings` with `soft_rings` each, each soft ring for a home of its own (`fan_out`) or
    /// all of a ring for the ring's.
    ///
    /// # Errors
    /// [`BadLayout`] says what is out of bounds.
    pub fn new(rings: u16, soft_rings: u16, fan_out: bool) -> Result<Self, BadLayout> {
        Self::checked(rings.into(), soft_rings.into(), fan_out)
    }

    fn checked(rings: u64, soft_rings: u64, fan_out: bool) -> Result<Self, BadLayout> {
        let within = |value: u64, max: u16| u16::try_from(value).ok().filter(|it| *it <= max);
        let counted = within(rings, Self::RINGS_MAX).and_then(NonZeroU16::new);
        let counted = counted.ok_or(BadLayout::Rings(rings))?;
        let soft_rings =
            within(soft_rings, Self::SOFT_RINGS_MAX).ok_or(BadLayout::SoftRings(soft_rings))?;
        if fan_out && soft_rings == 0 {
            return Err(BadLayout::NothingToFanOut);
        }
        Ok(Self { rings: counted, soft_rings, fan_out })
    }

    /// Rings of the device, at least 1.
    #[must_use]
    pub fn rings(self) -> u16 {
        self.rings.get()
    }

    /// Soft rings of each ring; 0 where frames go straight to the ring's home.
    #[must_use]
    pub fn soft_rings(self) -> u16 {
        self.soft_rings
    }

    /// Whether the soft rings of one ring go to different homes.
    #[must_use]
    pub fn fan_out(self) -> bool {
        self.fan_out
    }

    /// How many homes this layout can feed.
    #[must_use]
    pub fn homes_max(self) -> u16 {
        if self.fan_out { self.soft_rings } else { self.rings() }
    }

    /// Whether the device decides to which home a TCP segment goes, by the ring it puts it on.
    #[must_use]
    pub fn is_spread_by_device(self) -> bool {
        !self.fan_out && self.rings() > 1
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "R{}S{}F{}", self.rings, self.soft_rings, u8::from(self.fan_out))
    }
}

impl FromStr for Layout {
    type Err = BadLayout;

    fn from_str(text: &str) -> Result<Self, BadLayout> {
        let bad_form = || BadLayout::Form(text.chars().take(40).collect());
        let (rings, rest) = field(text, 'R').ok_or_else(bad_form)?;
        let (soft_rings, rest) = field(rest, 'S').ok_or_else(bad_form)?;
        match field(rest, 'F') {
            Some((fan_out @ 0..=1, "")) => Self::checked(rings, soft_rings, fan_out == 1),
            _ => Err(bad_form()),
        }
    }
}

/// A letter in either case and the number behind it.
fn field(text: &str, letter: char) -> Option<(u64, &str)> {
    let mut characters = text.chars();
    if !characters.next()?.eq_ignore_ascii_case(&letter) {
        return None;
    }
    let rest = characters.as_str();
    let end = rest.find(|it: char| !it.is_ascii_digit()).unwrap_or(rest.len());
    let (digits, rest) = rest.split_at(end);
    Some((digits.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for text in ["R8S0F0", "R1S8F1", "R1S8F0", "R1S1F0", "R1S0F0", "R64S64F1"] {
            assert_eq!(text.parse::<Layout>().expect(text).to_string(), text);
        }
        assert_eq!("r1s8f1".parse(), Layout::new(1, 8, true));
        assert_eq!("R1S0F0".parse(), Ok(Layout::SINGLE));
    }

    #[test]
    fn homes_follow_rings_or_soft_rings() {
        for (text, homes, by_device) in [
            ("R8S0F0", 8, true),
            ("R1S8F1", 8, false),
            ("R1S8F0", 1, false),
            ("R1S1F0", 1, false),
            ("R2S2F1", 2, false),
        ] {
            let layout: Layout = text.parse().expect(text);
            assert_eq!((layout.homes_max(), layout.is_spread_by_device()), (homes, by_device));
        }
    }

    #[test]
    fn what_is_wrong_is_said_in_a_sentence() {
        for (text, wrong) in [
            ("", "a layout is written R1S8F1"),
            ("R1S8", "a layout is written R1S8F1"),
            ("R1S8F2", "a layout is written R1S8F1"),
            ("R1S8F1 ", "a layout is written R1S8F1"),
            ("R-1S8F1", "a layout is written R1S8F1"),
            ("RS8F1", "a layout is written R1S8F1"),
            ("é1S8F1", "a layout is written R1S8F1"),
            ("R99999999999999999999S1F1", "a layout is written R1S8F1"),
            ("R0S8F1", "a device has 1 to 64 rings, not 0"),
            ("R65S8F1", "a device has 1 to 64 rings, not 65"),
            ("R70000S8F1", "a device has 1 to 64 rings, not 70000"),
            ("R1S65F1", "a ring has 0 to 64 soft rings, not 65"),
            ("R1S0F1", "fan-out (F1) needs soft rings"),
        ] {
            let error = text.parse::<Layout>().expect_err(text).to_string();
            assert!(error.starts_with(wrong), "{text}: {error}");
        }
    }
}
