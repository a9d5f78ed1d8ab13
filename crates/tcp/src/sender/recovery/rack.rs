//! RACK: what was sent before something that has been delivered, and is not heard of within a
//! reordering window, is lost (RFC 8985, 6).
//!
//! Time of sending takes the place of sequence numbers, so that a lost retransmission and a lost
//! tail behind a repaired hole are found like any other loss, within a round trip. The reordering
//! window is zero while the path has not been seen to reorder and three segments above were
//! reported, which is the duplicate threshold of RFC 5681 and RFC 6675; otherwise a quarter of the
//! least round trip, and more with each round in which the receiver reported duplicates (RFC 2883).

use crate::sender::recovery::DUPLICATE_THRESHOLD;
use crate::sender::sent::{Record, sent_after};
use time::{Duration, Instant};
use wire::SeqNumber;

/// Recoveries without a report of duplicates after which the window is small again (RFC 8985, 6.2).
const PERSIST: u8 = 16;

/// Of all that was delivered, what was sent last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Newest {
    /// RACK.xmit_ts and RACK.end_seq.
    pub(crate) sent: (Instant, SeqNumber),
    /// RACK.rtt: the round trip of that.
    pub(crate) rtt: Duration,
}

#[derive(Debug)]
pub(crate) struct Rack {
    /// RACK.fack: one past the highest number known to be delivered.
    fack: SeqNumber,
    /// How far the path was seen to reorder, in segments; 0: RACK.reordering_seen is false.
    reordering: u32,
    /// RACK.reo_wnd_mult.
    multiplier: u8,
    /// RACK.reo_wnd_persist.
    persist: u8,
    /// RACK.dsack_round: until SND.UNA is here, further reports belong to the same round.
    dsack_round: Option<SeqNumber>,
}

impl Rack {
    pub(crate) fn new(iss: SeqNumber) -> Self {
        Self { fack: iss, reordering: 0, multiplier: 1, persist: 0, dsack_round: None }
    }

    /// Steps 2 and 3: a part was delivered. `earlier_copy`: the echoed timestamp says that this was
    /// a copy sent before the last. Says whether it came out of order.
    #[inline]
    pub(crate) fn on_delivered(
        &mut self,
        now: Instant,
        part: &Record,
        newest: &mut Newest,
        earlier_copy: bool,
        min_rtt: Option<Duration>,
        mss: u32,
    ) -> bool {
        let mut reordered = false;
        if part.end.is_after(self.fack) {
            self.fack = part.end;
        } else if part.end.is_before(self.fack) && !part.is_again() {
            let distance = self.fack.offset_from(part.start).div_ceil(mss.max(1));
            self.reordering = self.reordering.max(distance);
            reordered = true;
        }
        let rtt = now - part.sent_at;
        if part.is_again() && (earlier_copy || min_rtt.is_some_and(|least| rtt < least)) {
            // It was delivered before the last copy can have been.
            return reordered;
        }
        if sent_after((part.sent_at, part.end), newest.sent) {
            // Of what was joined only a bound is known: no shorter than what was measured.
            let rtt = if part.is_joined { rtt.max(newest.rtt) } else { rtt };
            *newest = Newest { sent: (part.sent_at, part.end), rtt };
        }
        reordered
    }

    /// The order of arrival was found to differ from that of sending in another way: what was taken
    /// for lost came after all.
    pub(crate) fn on_reordering(&mut self) {
        self.reordering = self.reordering.max(DUPLICATE_THRESHOLD);
    }

    /// How far the path was seen to reorder, in segments.
    pub(crate) fn reordering(&self) -> u32 {
        self.reordering
    }

    /// SND.UNA moved on: nothing kept may lie ahead of it once the numbers have wrapped.
    pub(crate) fn on_una(&mut self, una: SeqNumber) {
        self.fack = self.fack.later_of(una);
        if self.dsack_round.is_some_and(|round| una.is_at_or_after(round)) {
            self.dsack_round = None;
        }
    }

    /// Step 4, first half: the receiver reported a duplicate, so RACK had something sent again too early.
    pub(crate) fn on_duplicate(&mut self, nxt: SeqNumber) {
        if self.dsack_round.is_none() {
            self.dsack_round = Some(nxt);
            self.multiplier = self.multiplier.saturating_add(1);
            self.persist = PERSIST;
        }
    }

    /// Fast or timeout recovery is over.
    pub(crate) fn on_recovery_exit(&mut self) {
        self.persist = self.persist.saturating_sub(1);
        if self.persist == 0 {
            self.multiplier = 1;
        }
    }

    /// RACK.reo_wnd. `settled`: in recovery, or the receiver holds as many segments as would have
    /// begun it by counting.
    pub(crate) fn reordering_window(
        &self,
        settled: bool,
        min_rtt: Option<Duration>,
        smoothed_rtt: Option<Duration>,
    ) -> Duration {
        if self.reordering == 0 && settled {
            return Duration::ZERO;
        }
        let quarter = min_rtt.unwrap_or(Duration::ZERO) / 4;
        let window = quarter.saturating_mul(u32::from(self.multiplier));
        smoothed_rtt.map_or(window, |smoothed| window.min(smoothed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sender::recovery::Recovery;

    const MIN: Option<Duration> = Some(Duration::from_millis(40));
    const SMOOTHED: Option<Duration> = Some(Duration::from_millis(100));

    // RFC 8985, 6.2, step 4: "RACK.reo_wnd_mult * RACK.min_RTT / 4, SRTT", whichever is less; once
    // per round; back to one after sixteen recoveries.
    #[test]
    fn reports_of_duplicates_widen_the_window_once_per_round_and_for_sixteen_recoveries() {
        let mut rack = Rack::new(SeqNumber(0));
        let window = |rack: &Rack| rack.reordering_window(false, MIN, SMOOTHED).as_millis();
        assert_eq!(window(&rack), 10);
        for _ in 0..100 {
            rack.on_duplicate(SeqNumber(1_000));
        }
        assert_eq!(window(&rack), 20, "a flood within a round trip counts once");
        rack.on_una(SeqNumber(1_000));
        rack.on_duplicate(SeqNumber(1_000));
        assert_eq!(window(&rack), 30, "the round ends where SND.NXT was");
        for round in 2..400 {
            rack.on_una(SeqNumber(1_000 * (round - 1)));
            rack.on_duplicate(SeqNumber(1_000 * round));
        }
        assert_eq!(window(&rack), 100, "never more than a round trip");
        let mut recovery = Recovery::new(SeqNumber(0));
        recovery.rack = rack;
        for _ in 0..15 {
            recovery.leave();
        }
        assert_eq!(window(&recovery.rack), 100);
        recovery.leave();
        assert_eq!(window(&recovery.rack), 10);
    }

    // RFC 8985, 6.2, step 4: without reordering, in recovery or at the threshold, "return 0".
    #[test]
    fn the_window_is_closed_until_reordering_was_seen() {
        let mut rack = Rack::new(SeqNumber(0));
        assert_eq!(rack.reordering_window(true, MIN, SMOOTHED), Duration::ZERO);
        rack.on_reordering();
        assert_eq!(rack.reordering_window(true, MIN, SMOOTHED), Duration::from_millis(10));
    }
}
