//! What arrived twice and is to be told to the peer (RFC 2883).
//!
//! A peer that learns which of its segments came twice can tell a spurious retransmission from a
//! needed one. RFC 2883, 4: the first block of the next ACK's SACK option names the first contiguous
//! range of the duplicate, and each duplicate is reported in one ACK only. A batch of the device may
//! bring several: those that touch are one range, others wait for an ACK of their own, up to
//! [`RANGES_MAX`]; beyond that they are left out, which costs the peer a hint.

use wire::SeqNumber;

/// Ranges that wait to be reported.
const RANGES_MAX: usize = 4;

/// Duplicate ranges not yet reported: start, and one past the end.
#[derive(Debug, Default)]
pub(crate) struct Duplicates {
    /// Boxed, for most connections never need it.
    waiting: Option<Box<Waiting>>,
}

#[derive(Debug)]
struct Waiting {
    ranges: [(SeqNumber, SeqNumber); RANGES_MAX],
    /// At least one.
    count: usize,
}

impl Duplicates {
    /// `start` to `end` was here already. Says whether it will be reported.
    pub(crate) fn add(&mut self, start: SeqNumber, end: SeqNumber) -> bool {
        let Some(waiting) = &mut self.waiting else {
            let ranges = [(start, end); RANGES_MAX];
            self.waiting = Some(Box::new(Waiting { ranges, count: 1 }));
            return true;
        };
        let last = &mut waiting.ranges[waiting.count - 1];
        if start.is_at_or_before(last.1) && end.is_at_or_after(last.0) {
            *last = (last.0.earlier_of(start), last.1.later_of(end));
            return true;
        }
        let Some(free) = waiting.ranges.get_mut(waiting.count) else { return false };
        *free = (start, end);
        waiting.count += 1;
        true
    }

    /// The range to report in the next ACK.
    #[inline]
    pub(crate) fn next(&self) -> Option<(SeqNumber, SeqNumber)> {
        self.waiting.as_ref().map(|waiting| waiting.ranges[0])
    }

    /// An ACK with that range was taken by a device.
    pub(crate) fn on_reported(&mut self) {
        match &mut self.waiting {
            Some(waiting) if waiting.count > 1 => {
                waiting.ranges.rotate_left(1);
                waiting.count -= 1;
            }
            _ => self.waiting = None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_are_one_and_others_are_reported_one_by_one() {
        let mut duplicates = Duplicates::default();
        let at = |offset: u32| SeqNumber(u32::MAX - 5) + offset;
        assert!(duplicates.add(at(0), at(10)));
        assert!(duplicates.add(at(10), at(20)));
        assert!(duplicates.add(at(5), at(12)), "within");
        for offset in [100, 200, 300] {
            assert!(duplicates.add(at(offset), at(offset + 1)));
        }
        assert!(!duplicates.add(at(400), at(401)), "no more are kept");
        assert_eq!(duplicates.next(), Some((at(0), at(20))));
        for offset in [100, 200, 300] {
            duplicates.on_reported();
            assert_eq!(duplicates.next(), Some((at(offset), at(offset + 1))));
        }
        duplicates.on_reported();
        assert!(duplicates.next().is_none() && duplicates.waiting.is_none());
    }
}
