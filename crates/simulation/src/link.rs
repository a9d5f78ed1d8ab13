//! A link, one way: what becomes of a frame, and when it is at the other end.
//!
//! ```text
//!   frame -> too long? dark? -> queue, bounded in bytes, drained at the link's rate
//!         -> lost (at random, in bursts) -> delay, jitter -> held back -> doubled -> a bit flipped
//! ```
//!
//! Every frame draws the same number of random words whatever happens to it, so a scenario changes
//! little when one fault is taken out of it. Corruption flips one bit: the Internet checksum finds
//! every such frame, so a stack that reads one has a bug. Faults are counted.

use crate::random::Random;
use time::{Duration, Instant};

/// The longest frame: 9,000 bytes and the Ethernet header.
const FRAME_MAX_BYTES: u64 = 9_014;

/// What a link does to frames. Probabilities are per frame, from 0 to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkPlan {
    /// Bytes per second.
    pub rate: u64,
    /// Bytes that may wait for their turn.
    pub queue_bytes: u64,
    /// From one end to the other.
    pub delay: Duration,
    /// Added to the delay, from nothing to this.
    pub jitter: Duration,
    /// Whether jitter lets frames overtake each other.
    pub overtaking: bool,
    /// Lost singly.
    pub loss: f64,
    /// Gilbert's model: a good link turns bad.
    pub turns_bad: f64,
    /// A bad link turns good.
    pub turns_good: f64,
    /// Lost while the link is bad.
    pub loss_bad: f64,
    /// Held back while others pass.
    pub reorder: f64,
    /// For how long a frame is held back at most.
    pub hold: Duration,
    /// Arrives twice.
    pub duplicate: f64,
    /// Arrives with one bit flipped.
    pub corrupt: f64,
    /// Marked "congestion experienced" instead of nothing where the sender speaks ECN and the queue
    /// is half full.
    pub marks: bool,
}

impl LinkPlan {
    /// A gigabit without faults.
    #[must_use]
    pub fn clean() -> Self {
        Self {
            rate: 125_000_000,
            queue_bytes: 1 << 20,
            delay: Duration::from_micros(50),
            jitter: Duration::ZERO,
            overtaking: false,
            loss: 0.0,
            turns_bad: 0.0,
            turns_good: 0.1,
            loss_bad: 0.0,
            reorder: 0.0,
            hold: Duration::ZERO,
            duplicate: 0.0,
            corrupt: 0.0,
            marks: false,
        }
    }

    /// The same link without its faults; its rate and delay stay, and its queue where that takes a few of
    /// the longest frames: a sender without SACK that loses all but one of them each time waits for its timer
    /// at every frame, which is no progress within any bound.
    #[must_use]
    pub fn calmed(&self) -> Self {
        let Self { rate, delay, marks, .. } = *self;
        let queue_bytes = self.queue_bytes.max(4 * FRAME_MAX_BYTES);
        Self { rate, queue_bytes, delay, marks, ..Self::clean() }
    }

    /// The share of frames that do not arrive intact in the long run.
    #[must_use]
    pub fn damage(&self) -> f64 {
        let bad = self.turns_bad / (self.turns_bad + self.turns_good).max(f64::MIN_POSITIVE);
        self.loss + self.corrupt + bad * self.loss_bad
    }
}

counters::counters! {
    /// What links did to their frames.
    pub struct LinkCounters {
        /// Frames that came out at the other end, doubled ones twice.
        link_delivered,
        /// Frames lost singly or in a burst.
        link_lost,
        /// Frames that found the queue full.
        link_overflowed,
        /// Frames that came while the link was dark.
        link_dark,
        /// Frames longer than the link takes.
        link_too_long,
        /// Frames held back.
        link_held,
        /// Frames that arrived twice.
        link_doubled,
        /// Frames that arrived with a flipped bit.
        link_corrupted,
        /// Frames marked "congestion experienced".
        link_marked,
    }
}

/// A link, one way.
#[derive(Debug)]
pub struct Link {
    plan: LinkPlan,
    random: Random,
    bad: bool,
    /// When the last frame accepted will have been sent.
    free_at: Instant,
    /// When the last frame in order arrives.
    last_arrival: Instant,
    dark_until: Instant,
    /// Longest frame, link header included.
    frame_len_max: usize,
    counters: LinkCounters,
}

/// When frames arrive, with what is wrong with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When.
    pub at: Instant,
    /// This bit of the frame arrives flipped.
    pub flipped_bit: Option<usize>,
    /// The link was congested and would mark the frame (RFC 3168, 5).
    pub marked: bool,
}

impl Link {
    /// A link that behaves as `plan` says.
    #[must_use]
    pub fn new(plan: LinkPlan, frame_len_max: usize, random: Random) -> Self {
        Self {
            plan,
            random,
            bad: false,
            free_at: Instant::ZERO,
            last_arrival: Instant::ZERO,
            dark_until: Instant::ZERO,
            frame_len_max,
            counters: LinkCounters::default(),
        }
    }

    /// From now on the link has no faults.
    pub fn calm(&mut self) {
        self.plan = self.plan.calmed();
        self.dark_until = Instant::ZERO;
    }

    /// Nothing passes until `until`.
    pub fn darken(&mut self, until: Instant) {
        self.dark_until = self.dark_until.max(until);
    }

    /// The longest frame changes, link header included.
    pub fn set_frame_len_max(&mut self, len: usize) {
        self.frame_len_max = len;
    }

    /// What the link did so far.
    #[must_use]
    pub fn counters(&self) -> LinkCounters {
        self.counters
    }

    /// A frame of `len` bytes enters at `now`; none, one or two arrivals.
    pub fn carry(&mut self, now: Instant, len: usize) -> [Option<Arrival>; 2] {
        let plan = &self.plan;
        let random = &mut self.random;
        let turns = random.chance(if self.bad { plan.turns_good } else { plan.turns_bad });
        self.bad ^= turns;
        let lost = random.chance(plan.loss) | (random.unit() < plan.loss_bad && self.bad);
        let jitter = plan.jitter.mul_f64(random.unit());
        let held = random.chance(plan.reorder).then(|| plan.hold.mul_f64(random.unit()));
        let doubled = random.chance(plan.duplicate);
        let corrupted = random.chance(plan.corrupt);
        let bit = random.within(0, (len * 8).max(1) as u64 - 1) as usize;
        let second = plan.hold.mul_f64(random.unit());

        let waiting = self.free_at.since(now);
        let queued = (waiting.as_nanos() * u128::from(plan.rate) / 1_000_000_000) as u64;
        let counter = if len > self.frame_len_max {
            Some(&mut self.counters.link_too_long)
        } else if now < self.dark_until {
            Some(&mut self.counters.link_dark)
        } else if queued + len as u64 > plan.queue_bytes.max(len as u64) {
            Some(&mut self.counters.link_overflowed)
        } else if lost {
            Some(&mut self.counters.link_lost)
        } else {
            None
        };
        if let Some(counter) = counter {
            *counter += 1;
            return [None, None];
        }
        let sending = Duration::from_nanos(len as u64 * 1_000_000_000 / plan.rate.max(1));
        self.free_at = self.free_at.max(now) + sending;
        let mut at = self.free_at + plan.delay + jitter;
        if !plan.overtaking {
            at = at.max(self.last_arrival);
        }
        match held {
            Some(held) => {
                at += held;
                self.counters.link_held += 1;
            }
            None => self.last_arrival = self.last_arrival.max(at),
        }
        let marked = plan.marks && queued > plan.queue_bytes / 2;
        self.counters.link_delivered += 1 + u64::from(doubled);
        self.counters.link_doubled += u64::from(doubled);
        self.counters.link_corrupted += u64::from(corrupted);
        self.counters.link_marked += u64::from(marked);
        let arrival = Arrival { at, flipped_bit: corrupted.then_some(bit), marked };
        let repeated = Arrival { at: at + second, flipped_bit: None, marked };
        [Some(arrival), doubled.then_some(repeated)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Instant = Instant::from_millis(1_000);

    fn link(plan: LinkPlan) -> Link {
        Link::new(plan, 1_514, Random::new(3))
    }

    fn arrivals(link: &mut Link, count: usize) -> usize {
        (0..count).flat_map(|_| link.carry(START, 100)).flatten().count()
    }

    #[test]
    fn a_clean_link_keeps_its_rate_and_order() {
        let plan = LinkPlan { rate: 1_000_000, ..LinkPlan::clean() };
        let mut link = link(plan);
        let first = link.carry(START, 1_000)[0].expect("arrives");
        let second = link.carry(START, 1_000)[0].expect("arrives");
        assert_eq!(first.at, START + Duration::from_micros(1_050));
        assert_eq!(second.at, START + Duration::from_micros(2_050));
        assert!(link.carry(START, 1_515)[0].is_none(), "too long");
    }

    #[test]
    fn a_full_queue_and_a_dark_link_take_nothing() {
        let mut link = link(LinkPlan { rate: 1_000, queue_bytes: 1_000, ..LinkPlan::clean() });
        assert_eq!(arrivals(&mut link, 50), 10);
        assert_eq!(link.counters().link_overflowed, 40);
        let later = START + Duration::from_secs(60);
        link.darken(later);
        assert_eq!(link.carry(START + Duration::from_secs(59), 100), [None, None]);
        assert!(link.carry(later, 100)[0].is_some());
    }

    #[test]
    fn faults_come_as_often_as_planned() {
        let room = LinkPlan { queue_bytes: 1 << 40, ..LinkPlan::clean() };
        let lossy = LinkPlan { loss: 0.2, duplicate: 0.1, ..room.clone() };
        let arrived = arrivals(&mut link(lossy), 10_000);
        assert!((8_500..9_100).contains(&arrived), "{arrived}");
        let bursts = LinkPlan { turns_bad: 0.01, turns_good: 0.09, loss_bad: 1.0, ..room };
        assert!((bursts.damage() - 0.1).abs() < 1e-9);
        let arrived = arrivals(&mut link(bursts), 20_000);
        assert!((17_000..19_000).contains(&arrived), "{arrived}");
    }
}
