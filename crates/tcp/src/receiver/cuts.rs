//! Where the segments of the wire end that a super-frame is made of.
//!
//! A device or a peer beside us hands many segments up as one, all of a length but for the last. What depends
//! on single segments - how many were received, which of them an ACK is for - is reckoned from that length, also
//! of what is left when the front was cut off.
//!
//! ```text
//!   | 1 000 | 1 000 | 1 000 | 400 |     as it came: 4 segments
//!        old <-| 600| 1 000 | 400 |     RCV.NXT within the second: 3 are left
//! ```

use wire::TcpHeader;

/// The lengths of the segments in a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cuts {
    /// Of what is left of the first; more than 0.
    first_len: u32,
    /// Of each of the others, but for the last, which may be shorter; more than 0.
    len: u32,
}

impl Cuts {
    /// Segments of so many bytes each.
    fn every(len: u32) -> Self {
        Self { first_len: len.max(1), len: len.max(1) }
    }

    /// What a device says of a payload that came with this header: [`crate::Segment::segment_len`]. Some know no
    /// more than how long a packet can be; none of the peer's is longer than our MSS, less its options (RFC 6691).
    #[inline]
    pub(crate) fn of(header: &TcpHeader, segment_len: u32, mss_receive: u16) -> Self {
        match segment_len {
            0 => Self::every(u32::MAX),
            _ => {
                let most = u32::from(mss_receive).saturating_sub(header.options.len_bytes() as u32);
                Self::every(segment_len.min(most))
            }
        }
    }

    /// How many segments the first `len` bytes are, or are of; at least 1.
    #[inline]
    pub(crate) fn count(self, len: u32) -> u32 {
        match len.checked_sub(self.first_len) {
            Some(behind) => 1 + behind.div_ceil(self.len),
            None => 1,
        }
    }

    /// How many segments end within the first `len` bytes.
    #[inline]
    pub(crate) fn count_whole(self, len: u32) -> u32 {
        len.checked_sub(self.first_len).map_or(0, |behind| 1 + behind / self.len)
    }

    /// How many of the first `len` bytes the first `count` segments are.
    pub(crate) fn end(self, count: u32, len: u32) -> u32 {
        let Some(others) = count.checked_sub(1) else { return 0 };
        len.min(self.first_len.saturating_add(others.saturating_mul(self.len)))
    }

    /// What is left behind the first `len` bytes.
    pub(crate) fn behind(self, len: u32) -> Self {
        let first_len = match len.checked_sub(self.first_len) {
            Some(behind) => self.len - behind % self.len,
            None => self.first_len - len,
        };
        Self { first_len, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_has_the_ends_of_the_whole() {
        let whole = Cuts::every(1_000);
        assert_eq!([0, 1, 1_000, 1_001, 3_400].map(|len| whole.count(len)), [1, 1, 1, 2, 4]);
        for old in 0..3_400 {
            let rest = whole.behind(old);
            let count = rest.count(3_400 - old);
            let ends: Vec<u32> = (1..=count).map(|it| old + rest.end(it, 3_400 - old)).collect();
            let expected = [1_000, 2_000, 3_000, 3_400].into_iter().filter(|end| *end > old);
            assert_eq!(ends, expected.collect::<Vec<_>>(), "behind {old}");
        }
        assert_eq!(
            [0, 999, 1_000, 1_999, 3_000].map(|len| whole.count_whole(len)),
            [0, 0, 1, 1, 3]
        );
        let one = Cuts::every(u32::MAX);
        assert_eq!(
            (one.count(65_535), one.behind(7).count(65_528), one.end(1, 9), one.end(0, 9)),
            (1, 1, 9, 0)
        );
    }
}
