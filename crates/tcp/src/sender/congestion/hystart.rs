//! HyStart++ (RFC 9406): leaves slow start when round trips grow, before the queue overflows.
//!
//! ```text
//!   slow start --- the least round trip of a round is up ---> conservative slow start (CSS)
//!       ^                                                          |            |
//!       +---- it falls below what it was: a false alarm -----------+            | 5 rounds
//!                                                                               v
//!                                                                  congestion avoidance
//! ```
//!
//! In CSS the window grows by a quarter of what slow start would add. Rounds are counted in
//! sequence numbers: one ends when what had been sent at its start is acknowledged. RFC 9406, 4.3:
//! it is for the first slow start alone, while `ssthresh` is at its initial value.
//!
//! RFC 9406's L, the segments by which one ACK may grow the window, is RFC 3465's, and the module
//! above says why it is infinite here: where the path is long the sender is paced, for which RFC
//! 9406, 4.3 says that L SHOULD be infinite, and where it is not paced the burst is a batch.

use super::Acked;
use time::Duration;
use wire::SeqNumber;

/// MIN_RTT_THRESH and MAX_RTT_THRESH (RFC 9406, 4.3).
const THRESHOLD_US_MIN: u32 = 4_000;
const THRESHOLD_US_MAX: u32 = 16_000;

/// MIN_RTT_DIVISOR.
const THRESHOLD_DIVISOR: u32 = 8;

/// N_RTT_SAMPLE.
const SAMPLES_MIN: u8 = 8;

/// CSS_GROWTH_DIVISOR.
const CSS_GROWTH_DIVISOR: u32 = 4;

/// CSS_ROUNDS.
const CSS_ROUNDS_MAX: u8 = 5;

/// No round trip was measured.
const UNKNOWN: u32 = u32::MAX;

/// How fast the window may grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Growth {
    /// The window grows by this part of what is acknowledged.
    Divided(u32),
    /// Slow start is over.
    Leave,
}

/// The state of one connection; round trips in microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct HyStart {
    /// Where the round ends: windowEnd; `None` before the first ACK.
    round_end: Option<SeqNumber>,
    last_round_min_us: u32,
    round_min_us: u32,
    /// cssBaselineMinRtt; [`UNKNOWN`] outside CSS.
    css_baseline_us: u32,
    samples: u8,
    css_rounds: u8,
}

impl HyStart {
    pub(super) fn new() -> Self {
        Self {
            round_end: None,
            last_round_min_us: UNKNOWN,
            round_min_us: UNKNOWN,
            css_baseline_us: UNKNOWN,
            samples: 0,
            css_rounds: 0,
        }
    }

    fn in_css(&self) -> bool {
        self.css_baseline_us != UNKNOWN
    }

    /// An ACK in the first slow start (RFC 9406, 4.2).
    pub(super) fn on_ack(&mut self, acked: &Acked) -> Growth {
        // "windowEnd [...] is initialized to SND.NXT", here with the first ACK: the first flight is a round.
        let end = *self.round_end.get_or_insert(acked.nxt);
        // While the window was not used nobody looked, and an end that was passed long ago may lie ahead again: one that is
        // still to come is outstanding.
        let ahead = end.offset_from(acked.una);
        let round_over = ahead == 0 || ahead > acked.nxt.offset_from(acked.una);
        let exact = acked.rate.and_then(|rate| rate.rtt);
        if let Some(rtt) = exact.or(acked.rtt_sample) {
            self.on_sample(rtt);
        }
        if round_over && self.on_round_end(acked.nxt) {
            return Growth::Leave;
        }
        Growth::Divided(if self.in_css() { CSS_GROWTH_DIVISOR } else { 1 })
    }

    fn on_sample(&mut self, rtt: Duration) {
        let rtt_us = u32::try_from(rtt.as_micros()).unwrap_or(UNKNOWN - 1);
        self.round_min_us = self.round_min_us.min(rtt_us);
        self.samples = self.samples.saturating_add(1);
        if self.samples < SAMPLES_MIN {
            return;
        }
        if self.in_css() {
            if self.round_min_us < self.css_baseline_us {
                // The growth was jitter: slow start goes on.
                self.css_baseline_us = UNKNOWN;
            }
        } else if self.last_round_min_us != UNKNOWN {
            let threshold_us = (self.last_round_min_us / THRESHOLD_DIVISOR)
                .clamp(THRESHOLD_US_MIN, THRESHOLD_US_MAX);
            if self.round_min_us >= self.last_round_min_us.saturating_add(threshold_us) {
                self.css_baseline_us = self.round_min_us;
                self.css_rounds = 0;
            }
        }
    }

    /// A round begins. Says whether that was the last of CSS; the partial one at its beginning
    /// counts as well.
    fn on_round_end(&mut self, nxt: SeqNumber) -> bool {
        self.round_end = Some(nxt);
        self.last_round_min_us = self.round_min_us;
        self.round_min_us = UNKNOWN;
        self.samples = 0;
        if self.in_css() {
            self.css_rounds += 1;
        }
        self.css_rounds >= CSS_ROUNDS_MAX && self.in_css()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::Instant;

    const WINDOW: u32 = 16_000;

    struct Rounds {
        hystart: HyStart,
        una: SeqNumber,
    }

    impl Rounds {
        fn new() -> Self {
            let mut hystart = HyStart::new();
            hystart.round_end = Some(SeqNumber(WINDOW));
            Self { hystart, una: SeqNumber(0) }
        }

        /// A round of `samples` ACKs of this round trip. Returns what the last one said.
        fn round(&mut self, samples: u32, rtt_ms: u64) -> Growth {
            let mut growth = Growth::Divided(0);
            for _ in 0..samples {
                self.una += 1_000;
                growth = self.hystart.on_ack(&Acked {
                    now: Instant::ZERO,
                    acked_bytes: 1_000,
                    in_flight_before: WINDOW,
                    app_limited: false,
                    rtt: None,
                    rtt_sample: Some(Duration::from_millis(rtt_ms)),
                    una: self.una,
                    nxt: self.una + WINDOW,
                    rate: None,
                    sack: true,
                    mss: 1_000,
                });
            }
            growth
        }
    }

    // RFC 9406, 4.2 and 4.3: RttThresh = max(4 ms, min(lastRoundMinRTT / 8, 16 ms)).
    #[test]
    fn growth_by_an_eighth_within_4_and_16_ms_begins_css() {
        for (before_ms, just_below_ms, enough_ms) in [(10, 13, 14), (80, 89, 90), (400, 415, 416)] {
            let mut rounds = Rounds::new();
            rounds.round(16, before_ms);
            assert_eq!(rounds.round(16, just_below_ms), Growth::Divided(1), "{before_ms}");
            let mut rounds = Rounds::new();
            rounds.round(16, before_ms);
            assert_eq!(rounds.round(16, enough_ms), Growth::Divided(4), "{before_ms}");
        }
    }

    // RFC 9406, 4.2: "lastRoundMinRTT = infinity" in the first round, which ends where the first flight does.
    #[test]
    fn the_first_flight_is_compared_with_nothing() {
        let mut rounds = Rounds { hystart: HyStart::new(), una: SeqNumber(0) };
        rounds.round(1, 100);
        assert_eq!(rounds.round(15, 113), Growth::Divided(1));
        rounds.round(1, 113);
        assert_eq!(rounds.round(16, 130), Growth::Divided(4));
    }

    // RFC 9406, 4.2: "For CSS rounds where at least N_RTT_SAMPLE RTT samples have been obtained";
    // fewer prove nothing.
    #[test]
    fn fewer_than_eight_samples_prove_nothing() {
        let mut rounds = Rounds::new();
        rounds.round(16, 40);
        assert_eq!(rounds.round(7, 80), Growth::Divided(1));
    }

    // RFC 9406, 4.2: "If currentRoundMinRTT < cssBaselineMinRtt ... resume slow start".
    #[test]
    fn a_false_alarm_resumes_slow_start() {
        let mut rounds = Rounds::new();
        rounds.round(16, 40);
        assert_eq!(rounds.round(16, 60), Growth::Divided(4));
        assert_eq!(rounds.round(16, 40), Growth::Divided(1));
    }

    // RFC 9406, 4.2: "if CSS_ROUNDS rounds are complete": of this one, whatever false alarms there were before.
    #[test]
    fn the_rounds_of_a_false_alarm_are_not_counted() {
        let mut rounds = Rounds::new();
        rounds.round(16, 40);
        for _ in 0..4 {
            assert_eq!(rounds.round(16, 60), Growth::Divided(4));
        }
        assert_eq!(rounds.round(16, 40), Growth::Divided(1));
        for _ in 0..4 {
            assert_eq!(rounds.round(16, 60), Growth::Divided(4));
        }
        assert_eq!(rounds.round(16, 60), Growth::Leave);
    }

    // While the window is not used there is nothing to watch for, however much is sent: the end of the last round may lie
    // half of the sequence space behind, and so ahead again.
    #[test]
    fn rounds_go_on_after_gigabytes_that_the_window_did_not_hold_back() {
        for unwatched in [1 << 30, 5 << 29, 7 << 29, u32::MAX - WINDOW] {
            let mut rounds = Rounds::new();
            rounds.round(16, 40);
            rounds.una += unwatched;
            rounds.round(16, 40);
            assert_eq!(rounds.round(16, 60), Growth::Divided(4), "{unwatched}");
        }
    }

    // RFC 9406, 4.2: "If CSS_ROUNDS rounds are complete, enter congestion avoidance".
    #[test]
    fn css_lasts_five_rounds_the_partial_one_included() {
        let mut rounds = Rounds::new();
        rounds.round(16, 40);
        for _ in 0..4 {
            assert_eq!(rounds.round(16, 60), Growth::Divided(4));
        }
        assert_eq!(rounds.round(16, 60), Growth::Leave);
    }
}
