//! Whether one thread alone works while all others merely wait.
//!
//! A pure state machine of the [`Watch`](crate::watch::Watch), which gives it the times.

use crate::discipline::ThreadToken;
use time::{Duration, Instant};

/// After so many turns in a row a thread is taken to go on as it does.
const TURNS_MIN: u32 = 8;

/// From one wait to the next. Whoever waits for longer can bear a wake-up between threads.
const TURN_MAX: Duration = Duration::from_millis(1);

/// From the end of a wait to the next one. Nobody waits for frames meanwhile, and to wake somebody who then does takes
/// a third of that.
const ABSENCE_MAX: Duration = Duration::from_micros(100);

/// The thread that began to wait last, and since when it alone has.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lone {
    who: Option<ThreadToken>,
    /// When it began its last wait, and came back from it.
    waited: Instant,
    back: Instant,
    /// Its turns in a row, each short.
    turns: u32,
}

impl Lone {
    /// This thread if it has come back to wait often enough and soon enough, and no other has had anything to do.
    pub(crate) fn who(&self) -> Option<ThreadToken> {
        self.who.filter(|_| self.turns >= TURNS_MIN)
    }

    /// A thread begins to wait.
    pub(crate) fn on_wait(&mut self, who: ThreadToken, now: Instant) {
        let is_again = self.who == Some(who) && now.since(self.back) <= ABSENCE_MAX;
        let turns = if is_again { self.turns.saturating_add(1) } else { 0 };
        *self = Self { who: Some(who), waited: now, back: now, turns };
    }

    /// A thread is back from a wait; says whether it is the lone one and will wait again at once.
    pub(crate) fn on_back(&mut self, who: ThreadToken, now: Instant) -> bool {
        if self.who != Some(who) {
            return false;
        }
        self.back = now;
        if now.since(self.waited) > TURN_MAX {
            self.turns = 0;
        }
        self.turns >= TURNS_MIN
    }

    /// As if it had been so for long.
    #[cfg(test)]
    pub(crate) fn assume(who: ThreadToken, now: Instant) -> Self {
        Self { who: Some(who), waited: now, back: now, turns: TURNS_MIN }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ThreadToken = ThreadToken(1);

    /// So many turns of a thread, which waits and is away for so long in each.
    fn turns(lone: &mut Lone, count: u32, waits_us: u64, absent_us: u64, now: &mut Instant) {
        for _ in 0..count {
            lone.on_wait(ONE, *now);
            *now += Duration::from_micros(waits_us);
            lone.on_back(ONE, *now);
            *now += Duration::from_micros(absent_us);
        }
    }

    #[test]
    fn who_comes_back_often_and_soon_is_alone_until_another_comes() {
        let (mut lone, mut now) = (Lone::default(), Instant::from_millis(5));
        turns(&mut lone, TURNS_MIN, 1_000, 100, &mut now);
        assert_eq!(lone.who(), None, "it has come back once less than that");
        turns(&mut lone, 1, 1_000, 100, &mut now);
        assert_eq!(lone.who(), Some(ONE));
        lone.on_wait(ThreadToken(2), now);
        assert_eq!(lone.who(), None);
    }

    #[test]
    fn who_stays_away_or_waits_for_long_is_not_waited_for() {
        for (waits_us, absent_us) in [(10, 101), (1_001, 10)] {
            let (mut lone, mut now) = (Lone::default(), Instant::from_millis(5));
            turns(&mut lone, 100, waits_us, absent_us, &mut now);
            assert_eq!(lone.who(), None, "{waits_us} and {absent_us} us");
            turns(&mut lone, TURNS_MIN + 1, 10, 10, &mut now);
            assert_eq!(lone.who(), Some(ONE));
            turns(&mut lone, 1, waits_us, absent_us, &mut now);
            lone.on_wait(ONE, now);
            assert_eq!(lone.who(), None, "{waits_us} and {absent_us} us");
        }
    }
}
