//! When to acknowledge (RFC 9293, 3.8.6.3; RFC 5681, 4.2).
//!
//! A segment makes an ACK owed, at once or within the deferral; the decision is made when the
//! device's batch is through, so that sixty-four segments in a batch are answered by as many ACKs
//! as the policy wants and not by as many as there are segments. Whatever segment goes out carries
//! the ACK and settles the debt. Where that is switched off, each ACK is noted with the segment that
//! asks for it ([`crate::receiver::unstretched`]).
//!
//! RFC 9293, SHLD-19 asks for an ACK for at least every second full-sized segment. Deferring up to
//! eight on the same subnet is a stated deviation; the deferral is two while the peer must be taken
//! to be in slow start, and it sinks by one for each segment that was sent again, down to two.
//!
//! A peer with fewer segments in its window than are deferred would stop and wait for the timer, once
//! every round trip. So no more are deferred than half of what arrived in a round trip, for a window
//! arrives in each; and where the timer goes off all the same with several segments owed, the
//! estimate was wrong, and half of those is the most from then on.

use crate::receiver::unstretched::{Due, Unstretched};
use time::{Duration, Instant};

/// The most duplicate ACKs owed at a time.
const REPEATS_MAX: u32 = 16;

/// Segments that are acknowledged one by one where the application asks for it (Linux: TCP_MAX_QUICKACKS).
const QUICK_ASKED: u32 = 16;

/// How soon after what it answers an answer is taken for one (Linux: TCP_ATO_MIN).
const ANSWER_MAX: Duration = Duration::from_millis(40);

/// How the segments are acknowledged that are acknowledged quickly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quick {
    /// Two by two.
    Pairs,
    /// One by one, for the application asked for it ([`Acknowledging::set_quick`]); then two by two again.
    Asked,
    /// One by one.
    Each,
    /// The same, if it were not that the application answers what arrives: the ACK goes with the answer. Until it has not
    /// answered in time, or loss shows. (Linux calls this interactive, or ping-pong.)
    Answered,
}

/// Whether an ACK is owed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owed {
    #[default]
    Nothing,
    /// Within the deferral.
    Later,
    /// Now.
    Now,
}

/// The ACK policy of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Acknowledging {
    owed: Owed,
    /// Duplicate ACKs owed to a peer without SACK, which counts them.
    repeats: u32,
    /// In-order segments since the last ACK.
    segments: u32,
    /// The newest data segment carried PSH.
    pushed: bool,
    /// Segments still to be acknowledged two by two.
    quick: u32,
    quick_initial: u32,
    quick_mode: Quick,
    /// Segments per ACK, at most.
    deferral: u32,
    last_segment_at: Instant,
    /// In-order segments of this round trip and of the last.
    arrived: u32,
    arrived_before: u32,
    round_started_at: Instant,
    /// The most that the peer's window was found to bear.
    bearable: u32,
    /// Challenge ACKs (RFC 5961, 7) of the current second.
    challenges: u32,
    challenges_per_second: u32,
    challenge_second: u32,
    /// Where no ACK stands for more segments than RFC 1122 has it, whatever comes in one batch.
    unstretched: Option<Box<Unstretched>>,
}

impl Acknowledging {
    pub(crate) fn new(deferral: u8, quick: u32, challenges_per_second: u32) -> Self {
        Self {
            owed: Owed::Nothing,
            repeats: 0,
            segments: 0,
            pushed: false,
            quick,
            quick_initial: quick,
            quick_mode: Quick::Pairs,
            deferral: u32::from(deferral.max(1)),
            last_segment_at: Instant::ZERO,
            arrived: 0,
            arrived_before: 0,
            round_started_at: Instant::ZERO,
            bearable: u32::MAX,
            challenges: 0,
            challenges_per_second,
            challenge_second: u32::MAX,
            unstretched: None,
        }
    }

    /// Whether each of the segments that are acknowledged quickly gets an ACK of its own.
    pub(crate) fn with_each_quick(self, quick_each: bool) -> Self {
        Self { quick_mode: if quick_each { Quick::Each } else { Quick::Pairs }, ..self }
    }

    /// The application asks for ACKs at once (TCP_QUICKACK), for the segments that come next and those that
    /// wait for theirs; or no more. As on Linux it is no lasting setting.
    pub(crate) fn set_quick(&mut self, on: bool) {
        (self.quick, self.quick_mode) = match (self.quick_mode, on) {
            (Quick::Pairs | Quick::Asked, true) => (self.quick.max(QUICK_ASKED), Quick::Asked),
            (Quick::Pairs | Quick::Asked, false) => (0, Quick::Pairs),
            (Quick::Each | Quick::Answered, true) => (self.quick.max(QUICK_ASKED), Quick::Each),
            (Quick::Each | Quick::Answered, false) => (self.quick, Quick::Answered),
        };
        if on && self.owed == Owed::Later {
            self.owed = Owed::Now;
        }
    }

    /// Whether an ACK may stand for all of a batch.
    pub(crate) fn with_stretch(self, stretch: bool) -> Self {
        Self { unstretched: (!stretch).then(Box::default), ..self }
    }

    /// Whether each segment is to be noted by [`Acknowledging::on_each`].
    #[inline]
    pub(crate) fn notes_each(&self) -> bool {
        self.unstretched.is_some()
    }

    /// A segment came, and what it asks for was said; `due` is the ACK it would have if it had come
    /// alone.
    pub(crate) fn on_each(&mut self, due: Due) {
        let every = self.segments_eager();
        let Some(unstretched) = &mut self.unstretched else { return };
        let settled = match self.owed {
            Owed::Now => Some(unstretched.owe(due)),
            _ => unstretched.on_segment(due, every),
        };
        if let Some(segments) = settled {
            self.owed = Owed::Nothing;
            self.spend_quick(segments);
        } else if self.owed == Owed::Nothing {
            // Others of its super-frame were settled before it.
            self.owed = Owed::Later;
        }
    }

    /// How many ACKs of single segments are due, and go out first.
    #[inline]
    pub(crate) fn due_count(&self) -> usize {
        self.unstretched.as_ref().map_or(0, |it| it.len())
    }

    /// One of them, the oldest first.
    pub(crate) fn due(&self, index: usize) -> Option<Due> {
        self.unstretched.as_ref().and_then(|it| it.due(index))
    }

    /// The oldest was taken.
    pub(crate) fn on_due_sent(&mut self) -> Option<Due> {
        self.unstretched.as_mut().and_then(|it| it.on_sent())
    }

    /// Segments per ACK at most while the peer counts ACKs or waits for one.
    fn segments_eager(&self) -> u32 {
        let is_each = self.quick > 0 && matches!(self.quick_mode, Quick::Each | Quick::Asked);
        if is_each { 1 } else { self.deferral.min(2) }
    }

    pub(crate) fn owed(&self) -> Owed {
        self.owed
    }

    /// In-order data arrived, `pushed` by the peer. After a silence of `pause` the peer starts slowly
    /// again; that is asked for once in a batch, and is dear enough for that.
    #[inline]
    pub(crate) fn on_data(
        &mut self,
        now: Instant,
        segments: u32,
        pushed: bool,
        pause: impl FnOnce() -> Duration,
    ) {
        if now != self.last_segment_at {
            // Before the first there was none, and the application may have asked already.
            let is_first = self.last_data_at().is_none();
            if !is_first && now > self.last_segment_at + pause() {
                self.quick = self.quick_initial;
                self.bearable = u32::MAX;
            }
            self.last_segment_at = now;
        }
        self.arrived = self.arrived.saturating_add(segments);
        // RCV.NXT moves: the next ACK is no duplicate.
        self.repeats = 0;
        self.segments = self.segments.saturating_add(segments);
        // Before `pushed`, its neighbour: a load that spans a byte just written has to wait for it.
        if self.owed == Owed::Nothing {
            self.owed = Owed::Later;
        }
        self.pushed = pushed;
    }

    /// Loss showed: a gap opened or filled, or something arrived twice. RFC 5681, 4.2: an ACK
    /// SHOULD be sent at once.
    pub(crate) fn on_disorder(&mut self) {
        self.owed = Owed::Now;
        self.quick = self.quick_initial;
        self.end_answers();
    }

    /// The application has not answered what arrived.
    fn end_answers(&mut self) {
        if self.quick_mode == Quick::Answered {
            self.quick_mode = Quick::Each;
        }
    }

    /// Data goes out, perhaps in answer to what arrived.
    #[inline]
    pub(crate) fn on_answer(&mut self, now: Instant) {
        if self.quick_mode == Quick::Each
            && self.last_data_at().is_some_and(|at| now - at < ANSWER_MAX)
        {
            self.quick_mode = Quick::Answered;
        }
    }

    /// Segments were acknowledged, as quickly as they were to be.
    fn spend_quick(&mut self, segments: u32) {
        self.quick = self.quick.saturating_sub(segments);
        if self.quick == 0 && self.quick_mode == Quick::Asked {
            self.quick_mode = Quick::Pairs;
        }
    }

    /// Segments arrived that were sent again (seed 001: "this process will be triggered for every
    /// retransmitted segment").
    pub(crate) fn on_retransmission(&mut self, segments: u32) {
        self.on_disorder();
        // A receiver asked to acknowledge every segment keeps doing so.
        self.deferral = self.deferral.min(2).max(self.deferral.saturating_sub(segments));
    }

    /// Something arrived ahead of its turn. A peer without SACK learns of loss by counting duplicate
    /// ACKs, so each such segment of a batch is owed one of its own (RFC 5681, 4.2).
    pub(crate) fn on_out_of_order(&mut self, segments: u32, sack: bool) {
        self.on_disorder();
        if !sack && self.unstretched.is_none() {
            self.repeats = self.repeats.saturating_add(segments).min(REPEATS_MAX);
        }
    }

    /// Duplicate ACKs owed, whatever else carries the acknowledgment: a segment with data is none.
    pub(crate) fn repeats(&self) -> u32 {
        self.repeats
    }

    /// A pure ACK was taken.
    pub(crate) fn on_repeat_sent(&mut self) {
        self.repeats = self.repeats.saturating_sub(1);
    }

    pub(crate) fn owe_now(&mut self) {
        self.owed = Owed::Now;
    }

    /// When data arrived in order last.
    pub(crate) fn last_data_at(&self) -> Option<Instant> {
        Some(self.last_segment_at).filter(|at| *at != Instant::ZERO)
    }

    /// A challenge ACK is asked for; says whether the rate limit lets it be owed.
    pub(crate) fn owe_challenge(&mut self, now: Instant) -> bool {
        let second = (now.as_millis() / 1_000) as u32;
        if second != self.challenge_second {
            self.challenge_second = second;
            self.challenges = 0;
        }
        if self.challenges >= self.challenges_per_second {
            return false;
        }
        self.challenges += 1;
        self.owed = Owed::Now;
        true
    }

    /// The batch is through: an ACK held back for long enough becomes owed now. Says whether the
    /// timer is to run. `rtt_ns` is the receiver's estimate of a round trip.
    pub(crate) fn on_batch_end(&mut self, now: Instant, rtt_ns: u64) -> bool {
        if now >= self.round_started_at.after_nanos(rtt_ns) {
            self.round_started_at = now;
            self.arrived_before = core::mem::take(&mut self.arrived);
        }
        // PSH at the end of a batch: the peer has nothing more to send for now, perhaps because its
        // buffer waits for this ACK. A single pushed segment is a small exchange; its ACK may ride
        // on the answer.
        let eager = self.quick > 0 || self.pushed;
        let most = match eager {
            true => self.segments_eager(),
            false => self.deferral.min(self.deferral_borne().max(2)),
        };
        if let Some(unstretched) = &self.unstretched {
            self.segments = unstretched.segments();
            if self.segments == 0 && self.owed == Owed::Later {
                // Each of them is settled by what is due.
                self.owed = Owed::Nothing;
            }
        }
        if self.owed == Owed::Later && self.segments >= most {
            self.owed = Owed::Now;
        }
        self.owed == Owed::Later
    }

    /// Segments that may be deferred without the peer's window running out.
    fn deferral_borne(&self) -> u32 {
        (self.arrived_before.max(self.arrived) / 2).min(self.bearable)
    }

    /// The delayed-ACK timer went off.
    pub(crate) fn on_timeout(&mut self) {
        if self.owed == Owed::Later {
            self.owed = Owed::Now;
            self.end_answers();
            if self.segments > 1 {
                // More than one segment, and no push behind them: the peer stopped and waited.
                self.bearable = self.segments / 2;
            }
        }
    }

    /// A segment with the current ACK was taken.
    pub(crate) fn on_sent(&mut self) {
        self.owed = Owed::Nothing;
        self.spend_quick(self.segments);
        self.segments = 0;
        if let Some(unstretched) = &mut self.unstretched {
            unstretched.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::nanos;

    const PAUSE: Duration = Duration::from_millis(200);

    #[test]
    fn who_asks_for_quick_acks_has_one_a_segment_for_a_while() {
        let now = Instant::from_millis(1_000);
        let mut policy = Acknowledging::new(8, 0, 0);
        assert_eq!(acks_for(&mut policy, 1, now), 0);
        policy.set_quick(true);
        assert_eq!(policy.owed(), Owed::Now, "the one that waits");
        policy.on_sent();
        assert_eq!(acks_for(&mut policy, 15, now), 15);
        assert!(acks_for(&mut policy, 16, now) < 16, "it does not last");
        policy.set_quick(true);
        policy.set_quick(false);
        assert_eq!(acks_for(&mut policy, 1, now), 0);
    }

    #[test]
    fn what_the_application_asks_for_before_anything_has_arrived_holds() {
        let now = Instant::from_millis(1_000);
        let mut policy = Acknowledging::new(8, 8, 0);
        policy.set_quick(true);
        assert_eq!(acks_for(&mut policy, 16, now), 16);
        let mut policy = Acknowledging::new(8, 8, 0);
        policy.set_quick(false);
        assert!(acks_for(&mut policy, 8, now) < 4, "not two by two");
    }

    #[test]
    fn an_ack_goes_with_the_answer_of_who_answers() {
        let now = Instant::from_millis(1_000);
        let mut policy = Acknowledging::new(2, 16, 0).with_each_quick(true);
        assert_eq!(acks_for(&mut policy, 1, now), 1, "nothing has been answered yet");
        policy.on_answer(now + ANSWER_MAX);
        assert_eq!(acks_for(&mut policy, 1, now), 1, "that was no answer");
        policy.on_answer(now);
        assert_eq!(acks_for(&mut policy, 1, now), 0, "it waits for the next one");
        policy.on_timeout();
        policy.on_sent();
        assert_eq!(acks_for(&mut policy, 1, now), 1, "which did not come");
        policy.on_answer(now);
        policy.on_disorder();
        policy.on_sent();
        assert_eq!(acks_for(&mut policy, 1, now), 1, "loss showed");
    }

    fn acks_for(policy: &mut Acknowledging, segments: u32, now: Instant) -> u32 {
        let mut acks = 0;
        for _ in 0..segments {
            policy.on_data(now, 1, false, || PAUSE);
            policy.on_batch_end(now, nanos(PAUSE));
            if policy.owed() == Owed::Now {
                policy.on_sent();
                acks += 1;
            }
        }
        acks
    }

    #[test]
    fn the_first_eight_segments_are_acknowledged_two_by_two_then_eight_by_eight() {
        let mut policy = Acknowledging::new(8, 8, 10);
        let now = Instant::from_millis(1_000);
        assert_eq!(acks_for(&mut policy, 8, now), 4);
        assert_eq!(acks_for(&mut policy, 32, now), 4);
        assert_eq!(acks_for(&mut policy, 8, now + Duration::from_secs(1)), 4, "after a pause");
        assert_eq!(acks_for(&mut Acknowledging::new(1, 8, 10), 8, now), 8);
    }

    #[test]
    fn a_push_at_the_end_of_a_batch_settles_two_segments_but_not_one() {
        let mut policy = Acknowledging::new(8, 0, 10);
        policy.on_data(Instant::ZERO, 1, true, || PAUSE);
        assert!(policy.on_batch_end(Instant::ZERO, nanos(PAUSE)));
        policy.on_data(Instant::ZERO, 1, true, || PAUSE);
        assert!(!policy.on_batch_end(Instant::ZERO, nanos(PAUSE)));
        assert_eq!(policy.owed(), Owed::Now);
    }

    #[test]
    fn each_retransmission_lowers_the_deferral_down_to_two() {
        let mut policy = Acknowledging::new(4, 0, 10);
        for expected in [4, 3, 2, 2] {
            assert_eq!(policy.deferral, expected);
            policy.on_retransmission(1);
            assert_eq!(policy.owed(), Owed::Now);
        }
        let mut every = Acknowledging::new(1, 0, 10);
        every.on_retransmission(1);
        assert_eq!(every.deferral, 1);
    }

    #[test]
    fn a_peer_with_a_window_of_fewer_segments_than_are_deferred_never_waits_for_the_timer() {
        for window in 2..20 {
            let mut policy = Acknowledging::new(8, 0, 10);
            let rtt = Duration::from_millis(1);
            let mut now = Instant::from_millis(1_000);
            for _ in 0..50 {
                let mut acks = 0;
                for _ in 0..window {
                    policy.on_data(now, 1, false, || PAUSE);
                    policy.on_batch_end(now, nanos(rtt));
                    if policy.owed() == Owed::Now {
                        policy.on_sent();
                        acks += 1;
                    }
                }
                assert!(acks > 0, "a window of {window} segments went unacknowledged");
                now += rtt;
            }
        }
    }

    #[test]
    fn a_peer_that_stopped_short_of_the_deferral_is_waited_for_once() {
        let mut policy = Acknowledging::new(8, 0, 10);
        // The estimate of the round trip is far too long, so half of what came in one says nothing.
        let rtt = Duration::from_secs(1);
        let now = Instant::from_millis(1_000);
        assert_eq!(acks_for(&mut policy, 64, now), 10, "a few more at first");
        policy.on_sent();
        let arrive = |policy: &mut Acknowledging| {
            policy.on_data(now, 1, false, || PAUSE);
            policy.on_batch_end(now, nanos(rtt))
        };
        for _ in 0..5 {
            assert!(arrive(&mut policy), "held back");
        }
        policy.on_timeout();
        policy.on_sent();
        assert!(arrive(&mut policy));
        assert!(!arrive(&mut policy), "half of what the peer had sent is acknowledged");
    }

    // RFC 5961, 7.
    #[test]
    fn challenges_are_limited_per_second() {
        let mut policy = Acknowledging::new(2, 0, 3);
        let granted =
            |policy: &mut Acknowledging, now| (0..5).filter(|_| policy.owe_challenge(now)).count();
        assert_eq!(granted(&mut policy, Instant::from_millis(10)), 3);
        assert_eq!(granted(&mut policy, Instant::from_millis(999)), 0);
        assert_eq!(granted(&mut policy, Instant::from_millis(1000)), 3);
    }
}
