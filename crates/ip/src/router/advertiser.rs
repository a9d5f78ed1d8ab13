//! When a router says what it has to say: RFC 4861, 6.2.
//!
//! ```text
//!  router solicitations -> on_solicitation     poll_advertisement -> to all nodes
//!  another message      -> on_change
//! ```
//!
//! Every advertisement goes to all nodes; to who asked alone is a MAY (6.2.6). So one answers all who asked meanwhile,
//! and whoever asks how often they like makes it speak every three seconds at most.

use super::RouterCounters;
use time::{Duration, Instant, Jitter};
use wire::ndp::RouterAdvertisement;

/// MinRtrAdvInterval and MaxRtrAdvInterval, which the lifetimes of what is advertised must outlast (RFC 4861, 6.2.1).
const INTERVAL_MIN: Duration = Duration::from_secs(200);
const INTERVAL_MAX: Duration = Duration::from_secs(600);

/// RFC 4861, 10: MAX_INITIAL_RTR_ADVERT_INTERVAL, MAX_INITIAL_RTR_ADVERTISEMENTS, MIN_DELAY_BETWEEN_RAS and
/// MAX_RA_DELAY_TIME.
const INITIAL_INTERVAL_MAX: Duration = Duration::from_secs(16);
const INITIAL_ADVERTISEMENTS: u32 = 3;
const DELAY_BETWEEN_MIN: Duration = Duration::from_secs(3);
const ANSWER_DELAY_MAX: Duration = Duration::from_millis(500);

/// What one interface advertises. See the module documentation.
#[derive(Debug)]
pub struct RouterAdvertiser {
    message: RouterAdvertisement,
    due: Instant,
    last: Option<Instant>,
    initial_left: u32,
    counters: RouterCounters,
}

impl RouterAdvertiser {
    /// Begins to advertise.
    #[must_use]
    pub fn new(now: Instant, message: RouterAdvertisement, jitter: &mut Jitter) -> Self {
        Self {
            message,
            due: now + jitter.between(Duration::ZERO, ANSWER_DELAY_MAX),
            last: None,
            initial_left: INITIAL_ADVERTISEMENTS,
            counters: RouterCounters::default(),
        }
    }

    /// From now on this is to be said, and told as at the beginning (RFC 4861, 6.2.4).
    pub fn on_change(&mut self, now: Instant, message: RouterAdvertisement, jitter: &mut Jitter) {
        self.message = message;
        self.on_new_link(now, jitter);
    }

    /// Nobody who is on the link now need have heard anything.
    pub fn on_new_link(&mut self, now: Instant, jitter: &mut Jitter) {
        self.initial_left = INITIAL_ADVERTISEMENTS;
        self.hasten(now, jitter);
    }

    /// A host asks; RFC 4861, 6.1.1 was checked.
    pub fn on_solicitation(&mut self, now: Instant, jitter: &mut Jitter) {
        self.hasten(now, jitter);
    }

    /// RFC 4861, 6.2.6: answers "MUST be delayed by a random time between 0 and MAX_RA_DELAY_TIME seconds", what goes to
    /// all nodes "MUST be rate limited to no more than one advertisement every MIN_DELAY_BETWEEN_RAS seconds", and what
    /// is due sooner stays due.
    fn hasten(&mut self, now: Instant, jitter: &mut Jitter) {
        let earliest = self.last.map_or(now, |last| now.max(last + DELAY_BETWEEN_MIN));
        let drawn = earliest + jitter.between(Duration::ZERO, ANSWER_DELAY_MAX);
        self.due = self.due.min(drawn);
    }

    /// When [`RouterAdvertiser::poll_advertisement`] is to be called.
    #[must_use]
    pub const fn poll_timeout(&self) -> Instant {
        self.due
    }

    /// What is to be sent now to all nodes; the time to the next one begins.
    pub fn poll_advertisement(
        &mut self,
        now: Instant,
        jitter: &mut Jitter,
    ) -> Option<RouterAdvertisement> {
        if now < self.due {
            return None;
        }
        let mut interval = jitter.between(INTERVAL_MIN, INTERVAL_MAX);
        if self.initial_left > 0 {
            // 6.2.4: "if the randomly chosen interval is greater than MAX_INITIAL_RTR_ADVERT_INTERVAL, the timer
            // SHOULD be set to MAX_INITIAL_RTR_ADVERT_INTERVAL instead".
            self.initial_left -= 1;
            interval = interval.min(INITIAL_INTERVAL_MAX);
        }
        (self.last, self.due) = (Some(now), now + interval);
        self.counters.router_advertisements_sent += 1;
        Some(self.message.clone())
    }

    /// What it has said so far.
    #[must_use]
    pub const fn counters(&self) -> RouterCounters {
        self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun() -> (RouterAdvertiser, Jitter) {
        let mut jitter = Jitter::new(7);
        let message = RouterAdvertisement::default();
        let advertiser = RouterAdvertiser::new(Instant::from_millis(1_000), message, &mut jitter);
        (advertiser, jitter)
    }

    /// Says the next one when it is due, and when that was.
    fn next(advertiser: &mut RouterAdvertiser, jitter: &mut Jitter) -> Instant {
        let due = advertiser.poll_timeout();
        let early = Instant::from_nanos(due.as_nanos() - 1);
        assert_eq!(advertiser.poll_advertisement(early, jitter), None);
        assert!(advertiser.poll_advertisement(due, jitter).is_some());
        assert_eq!(advertiser.poll_advertisement(due, jitter), None, "one at a time");
        due
    }

    /// RFC 4861, 6.2.4.
    #[test]
    fn the_first_ones_follow_soon_and_the_others_now_and_then() {
        let (mut advertiser, mut jitter) = begun();
        let mut last = next(&mut advertiser, &mut jitter);
        assert!(last - Instant::from_millis(1_000) <= ANSWER_DELAY_MAX);
        for number in 1..20 {
            let at = next(&mut advertiser, &mut jitter);
            match number <= INITIAL_ADVERTISEMENTS {
                true => assert_eq!(at - last, INITIAL_INTERVAL_MAX),
                false => assert!((INTERVAL_MIN..=INTERVAL_MAX).contains(&(at - last))),
            }
            last = at;
        }
        assert_eq!(advertiser.counters().router_advertisements_sent, 20);
    }

    /// RFC 4861, 6.2.6.
    #[test]
    fn who_asks_is_answered_in_half_a_second_but_not_twice_in_three() {
        let (mut advertiser, mut jitter) = begun();
        for _ in 0..10 {
            next(&mut advertiser, &mut jitter);
        }
        let asked = advertiser.last.expect("it spoke") + Duration::from_secs(100);
        advertiser.on_solicitation(asked, &mut jitter);
        let answered = next(&mut advertiser, &mut jitter);
        assert!(answered >= asked && answered - asked <= ANSWER_DELAY_MAX);
        assert!(advertiser.poll_timeout() - answered >= INTERVAL_MIN, "one answer is enough");
        // A flood for a minute.
        let (mut last, mut count) = (answered, 0);
        for ms in 1..60_000 {
            let now = answered + Duration::from_millis(ms);
            advertiser.on_solicitation(now, &mut jitter);
            if advertiser.poll_advertisement(now, &mut jitter).is_some() {
                assert!(now - last >= DELAY_BETWEEN_MIN, "{:?}", now - last);
                (last, count) = (now, count + 1);
            }
        }
        assert!((15..20).contains(&count), "{count} answers");
    }

    /// RFC 4861, 6.2.4: what changes is told as at the beginning.
    #[test]
    fn a_change_is_told_soon_and_again() {
        let (mut advertiser, mut jitter) = begun();
        for _ in 0..10 {
            next(&mut advertiser, &mut jitter);
        }
        let now = advertiser.last.expect("it spoke") + Duration::from_secs(1);
        let message = RouterAdvertisement { router_lifetime_s: 1_800, ..Default::default() };
        advertiser.on_change(now, message.clone(), &mut jitter);
        let due = advertiser.poll_timeout();
        assert!(due - now >= Duration::from_secs(2) && due - now <= Duration::from_millis(2_500));
        assert_eq!(advertiser.poll_advertisement(due, &mut jitter), Some(message));
        assert_eq!(next(&mut advertiser, &mut jitter) - due, INITIAL_INTERVAL_MAX);
    }
}
