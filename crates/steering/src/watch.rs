//! Who waits for a squeue's device, who waits for whom, and who is to be called.
//!
//! A pure state machine, kept under the squeue's lock; it reads no clock, parks nobody and wakes nobody.
//!
//! * The first thread that has to wait *leads*: it sleeps on the device until a frame comes or a deadline.
//! * Who has to wait while somebody leads *follows*: it parks until its socket has an event, or the lead is
//!   handed over to it.
//! * The squeue's *worker* does the leader's part where no application thread does, and stands aside, looking
//!   again after a while, where one does.
//! * A *lone* thread, which alone has had something to do of late and has come back to wait again and again in no time,
//!   finds the lead kept for it while it is away: nobody is called for that, but a worker that would look late; that
//!   looks whether it stays away, and a leader that wakes it follows. With whoever accepts connections and merely waits meanwhile, each
//!   answer of the lone thread would else cost two wake-ups between threads.
//!
//! ```text
//!   who has to wait                                  who leaves the squeue, for whatever reason
//!     on_wait(who, ..)
//!     role(..) -- Leads:   lead(..)                    settle(..) -> whom to call, after unlocking
//!         |                  leave, sleep, lock          the leader, if it sleeps past what has come up
//!         |                on_leader_back()              else nobody, if the lead is kept
//!         +------ Follows: follow(who, own)              else the follower that has waited longest
//!         |                  leave, park, lock           else the worker
//!         |                on_follower_back(own)
//!     on_back(who, ..)
//! ```
//!
//! What always holds, if every thread settles before it unlocks, and loom tries every interleaving of it with at most
//! three preemptions: what comes up while the lock is free, frames on the device or work that a turn left, finds somebody
//! who sleeps on the device, or is called, or is on its way in, or a worker that is about to look by itself. Two may sleep
//! on one device, a leader and the worker, and a call ends one of these sleeps, perhaps not that of whom it was meant for:
//! who comes back from the device has the other called again where it was called and has not come
//! ([`Watch::on_leader_back`], [`Watch::on_worker_back`]).

use crate::discipline::ThreadToken;
use crate::lone::Lone;
use std::collections::VecDeque;
use time::{Duration, Instant};

/// The lead is kept for a lone thread for so long at most, unless it comes back in between.
const KEPT_MAX: Duration = Duration::from_millis(1);

/// The thread that sleeps on the device.
#[derive(Debug)]
struct Leader<S> {
    socket: Option<S>,
    until: Option<Instant>,
    /// Its socket had an event in a turn of another thread.
    has_event: bool,
    /// It was called and has not taken the lock yet.
    is_called: bool,
}

/// What the squeue's worker is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worker {
    /// It runs or is about to.
    Awake,
    /// It was called from its sleep on the device and has not taken the lock yet.
    Called,
    /// It leaves the work to application threads and looks again in a few milliseconds.
    Aside {
        /// What comes up may not be able to wait for that.
        is_overdue: bool,
        /// It looks later than who waits beside a lone thread can, should that stay away.
        is_late: bool,
        /// It looks again so late that a leader calls it who may be busy with something else before that
        /// ([`Watch::ends_rest`]).
        rests: bool,
    },
    /// It sleeps on the device until then.
    Waiting {
        /// The deadline it sleeps for.
        until: Option<Instant>,
    },
}

/// What a thread does that has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It sleeps on the device.
    Leads,
    /// It parks.
    Follows,
}

/// What is left to do when a thread leaves the squeue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Somebody must come at once.
    pub is_pressing: bool,
    /// A worker that stands aside must, too.
    pub calls_worker: bool,
    /// When somebody must come at the latest. Asked for only where [`Watch::is_slept_for`].
    pub deadline: Option<Instant>,
}

/// Whom to call after unlocking.
#[derive(Debug, PartialEq, Eq)]
pub struct Calls<F> {
    /// Who sleeps on the device.
    pub device: bool,
    /// A thread that is parked.
    pub parked: Option<Parked<F>>,
}

/// A thread that is parked.
#[derive(Debug, PartialEq, Eq)]
pub enum Parked<F> {
    /// A follower, which leads from now on.
    Follower(F),
    /// The worker.
    Worker,
}

/// See the module documentation. `S` names sockets, `F` is what followers are woken by.
#[derive(Debug)]
pub struct Watch<S, F> {
    leader: Option<Leader<S>>,
    /// Threads that wait for the leader, longest first.
    followers: VecDeque<(ThreadToken, F)>,
    /// A follower was woken to lead and has not taken the lock yet.
    is_handed_over: bool,
    lone: Lone,
    /// The lone thread is away, and until when the lead is kept for it.
    kept_until: Option<Instant>,
    worker: Worker,
    /// Whoever sleeps on the device is to be called once more.
    calls_again: bool,
}

impl<S, F> Default for Watch<S, F> {
    fn default() -> Self {
        Self {
            leader: None,
            followers: VecDeque::new(),
            is_handed_over: false,
            lone: Lone::default(),
            kept_until: None,
            worker: Worker::Awake,
            calls_again: false,
        }
    }
}

impl<S: Copy + PartialEq, F> Watch<S, F> {
    /// Whether an application thread does the worker's part, or is about to.
    #[must_use]
    pub fn is_led(&self) -> bool {
        self.leader.is_some() || self.is_handed_over
    }

    /// What a thread does that has to wait now.
    #[must_use]
    pub fn role(&self, now: Instant) -> Role {
        let is_kept = self.kept_until.is_some_and(|until| now < until);
        if self.is_led() || is_kept { Role::Follows } else { Role::Leads }
    }

    /// An application thread has to wait, for the first time in a call of its own or once more.
    pub fn on_wait(&mut self, who: ThreadToken, is_first: bool, now: Instant) {
        let was_lone = self.lone.who();
        if is_first {
            self.lone.on_wait(who, now);
        }
        if was_lone == Some(who) || was_lone != self.lone.who() {
            self.kept_until = None;
        }
    }

    /// An application thread is back from a wait, whichever.
    pub fn on_back(&mut self, who: ThreadToken, now: Instant) {
        let was_lone = self.lone.who();
        if self.lone.on_back(who, now) {
            self.keep(now);
        } else if was_lone == Some(who) {
            self.kept_until = None;
        }
    }

    /// The lone thread among the followers.
    #[must_use]
    pub fn lone_follower(&self) -> Option<&F> {
        let lone = self.lone.who()?;
        self.followers.iter().find(|(who, _)| *who == lone).map(|(_, own)| own)
    }

    /// The lead is kept for the lone thread, which is woken.
    pub fn keep(&mut self, now: Instant) {
        self.kept_until = Some(now + KEPT_MAX);
    }

    /// As if this thread had been alone for long.
    #[cfg(test)]
    pub(crate) fn assume_lone(&mut self, who: ThreadToken, now: Instant) {
        self.lone = Lone::assume(who, now);
    }

    /// Whether the worker is to look whether a lone thread stays away for whom others wait.
    #[must_use]
    pub fn may_be_kept(&self) -> bool {
        self.lone.who().is_some() && !self.followers.is_empty()
    }

    /// The lead is kept no longer if the lone thread has stayed away.
    pub fn give_up_absent(&mut self, now: Instant) {
        self.kept_until = self.kept_until.filter(|until| now < *until);
    }

    /// The calling thread sleeps on the device from now on, for an event of `socket`, until then at the
    /// latest.
    pub fn lead(&mut self, socket: Option<S>, until: Option<Instant>) {
        self.leader = Some(Leader { socket, until, has_event: false, is_called: false });
    }

    /// The same for a thread that comes back at once, to ask the device again: nobody needs to call it.
    pub fn lead_awake(&mut self, socket: Option<S>, now: Instant) {
        self.leader = Some(Leader { socket, until: Some(now), has_event: false, is_called: true });
    }

    /// The leader is back from its sleep on the device. The call for the worker may have been what ended
    /// it, before the worker slept.
    pub fn on_leader_back(&mut self) {
        self.leader = None;
        self.calls_again = self.worker == Worker::Called;
    }

    /// The leader is back that slept on nothing.
    pub fn on_awake_leader_back(&mut self) {
        self.leader = None;
    }

    /// A thread parks until it is woken by `own`.
    pub fn follow(&mut self, who: ThreadToken, own: F) {
        self.followers.push_back((who, own));
    }

    /// That thread is back, which `is_own` knows it by.
    pub fn on_follower_back(&mut self, is_own: impl Fn(&F) -> bool) {
        match self.followers.iter().position(|(_, own)| is_own(own)) {
            Some(position) => drop(self.followers.remove(position)),
            // Only a hand-over takes a follower off the list.
            None => self.is_handed_over = false,
        }
    }

    /// Those who are parked until the leader hands over, longest first.
    pub fn followers(&self) -> impl ExactSizeIterator<Item = &F> {
        self.followers.iter().map(|(_, own)| own)
    }

    /// Whether a thread leads.
    #[must_use]
    pub fn has_leader(&self) -> bool {
        self.leader.is_some()
    }

    /// Something about `socket` changed in a turn of a thread that does not lead.
    pub fn on_event(&mut self, socket: S) {
        if let Some(leader) = &mut self.leader {
            leader.has_event |= leader.socket == Some(socket);
        }
    }

    /// Something failed that the leader may wait for.
    pub fn on_failure(&mut self) {
        if let Some(leader) = &mut self.leader {
            leader.has_event = true;
        }
    }

    /// What the worker does from now on.
    pub fn set_worker(&mut self, worker: Worker) {
        self.worker = worker;
    }

    /// A leader is back that does not say when it will leave again. Says whether the worker rests and is to be called from
    /// there. One that sleeps on the device is called by whoever settles next: it need not hear of what the leader
    /// fetches, and would sleep past what that leaves behind.
    pub fn ends_rest(&mut self) -> bool {
        match self.worker {
            Worker::Aside { rests: true, .. } => {
                self.worker = Worker::Awake;
                true
            }
            Worker::Waiting { .. } => {
                (self.worker, self.calls_again) = (Worker::Called, true);
                false
            }
            _ => false,
        }
    }

    /// The worker is back from its sleep on the device. The call for the leader may have been what ended
    /// it, before the leader slept: so the leader is called again if it is still wanted.
    pub fn on_worker_back(&mut self) {
        if let Some(leader) = &mut self.leader {
            leader.is_called = false;
        }
    }

    /// Whether somebody sleeps on the device for a deadline.
    #[must_use]
    pub fn is_slept_for(&self) -> bool {
        self.leader.as_ref().is_some_and(|leader| !leader.is_called)
            || matches!(self.worker, Worker::Waiting { .. })
    }

    /// Makes sure, before the lock is released, that somebody goes on: the leader if it sleeps past
    /// what has come up, else a follower, unless the lead is kept, else the worker. Says whom to call.
    pub fn settle(&mut self, left: &Left) -> Calls<F> {
        let calls_again = core::mem::take(&mut self.calls_again);
        let is_before = |until| is_earlier(left.deadline, until);
        if let Some(leader) = &mut self.leader {
            let is_wanted = leader.has_event || left.is_pressing || is_before(leader.until);
            let device = is_wanted && !core::mem::replace(&mut leader.is_called, is_wanted);
            return Calls { device: device | calls_again, parked: None };
        }
        if self.is_handed_over {
            return Calls { device: calls_again, parked: None };
        }
        let is_kept = self.kept_until.is_some() && !left.is_pressing && !left.calls_worker;
        if !is_kept && let Some((_, follower)) = self.followers.pop_front() {
            self.is_handed_over = true;
            self.kept_until = None;
            return Calls { device: calls_again, parked: Some(Parked::Follower(follower)) };
        }
        match self.worker {
            Worker::Waiting { until } if left.is_pressing || is_before(until) => {
                self.worker = Worker::Called;
                Calls { device: true, parked: None }
            }
            // Followers are there still where the lead is kept.
            Worker::Aside { is_overdue, is_late, .. }
                if is_overdue || left.calls_worker || is_late && !self.followers.is_empty() =>
            {
                self.worker = Worker::Awake;
                Calls { device: calls_again, parked: Some(Parked::Worker) }
            }
            _ => Calls { device: calls_again, parked: None },
        }
    }
}

/// Whether `one` comes before `other`, where `None` is never.
fn is_earlier(one: Option<Instant>, other: Option<Instant>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one < other,
        (one, None) => one.is_some(),
        (None, Some(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Option<Instant> {
        Some(Instant::from_micros(us))
    }

    const NOW: Instant = Instant::ZERO;
    const NOTHING: Left = Left { is_pressing: false, calls_worker: false, deadline: None };

    fn quiet<F>() -> Calls<F> {
        Calls { device: false, parked: None }
    }

    #[test]
    fn the_leader_is_called_once_for_what_concerns_it_and_for_nothing_else() {
        let mut watch = Watch::<u8, u8>::default();
        assert_eq!(watch.role(NOW), Role::Leads);
        watch.lead(Some(1), at(100));
        assert_eq!(watch.settle(&NOTHING), quiet());
        watch.on_event(2);
        assert_eq!(watch.settle(&NOTHING), quiet());
        assert_eq!(watch.settle(&Left { deadline: at(100), ..NOTHING }), quiet());
        assert!(watch.settle(&Left { deadline: at(99), ..NOTHING }).device);
        watch.on_event(1);
        assert_eq!(watch.settle(&NOTHING), quiet(), "it is on its way");
        // The call was what ended the worker's sleep.
        watch.on_worker_back();
        assert!(watch.settle(&NOTHING).device);
        watch.on_leader_back();
        assert_eq!(watch.settle(&NOTHING), quiet());
    }

    #[test]
    fn the_lead_goes_to_who_has_waited_longest_and_then_to_the_worker() {
        let mut watch = Watch::<u8, u8>::default();
        watch.lead(None, None);
        (0..3).for_each(|own| watch.follow(ThreadToken(own.into()), own));
        watch.on_follower_back(|own| *own == 1);
        watch.on_leader_back();
        let to = |follower| Calls { device: false, parked: Some(Parked::Follower(follower)) };
        assert_eq!(watch.settle(&NOTHING), to(0));
        assert_eq!((watch.role(NOW), watch.settle(&NOTHING)), (Role::Follows, quiet()));
        watch.on_follower_back(|own| *own == 0);
        assert_eq!(watch.settle(&NOTHING), to(2));
        watch.on_follower_back(|own| *own == 2);
        watch.set_worker(Worker::Aside { is_overdue: false, is_late: false, rests: false });
        assert_eq!(watch.settle(&NOTHING), quiet());
        let calls_worker = Left { calls_worker: true, ..NOTHING };
        assert_eq!(watch.settle(&calls_worker).parked, Some(Parked::Worker));
        assert_eq!(watch.settle(&calls_worker), quiet(), "it is awake");
    }

    /// A lone thread, 9, that is away, and two that follow.
    fn kept() -> Watch<u8, u8> {
        let mut watch = Watch::<u8, u8>::default();
        watch.assume_lone(ThreadToken(9), NOW);
        watch.lead(Some(9), None);
        (0..2).for_each(|own| watch.follow(ThreadToken(own.into()), own));
        watch.on_leader_back();
        watch.on_back(ThreadToken(9), NOW);
        watch
    }

    #[test]
    fn the_lead_is_kept_for_a_lone_thread_while_nothing_presses() {
        let mut watch = kept();
        assert_eq!((watch.settle(&NOTHING), watch.role(NOW)), (quiet(), Role::Follows));
        watch.on_wait(ThreadToken(9), true, NOW);
        assert_eq!(watch.role(NOW), Role::Leads);
        let to_first = Calls { device: false, parked: Some(Parked::Follower(0)) };
        // It has waited for longer than one that is busy.
        let mut watch = kept();
        watch.on_back(ThreadToken(9), NOW + Duration::from_secs(1));
        assert_eq!(watch.settle(&NOTHING), to_first);
        for left in [Left { is_pressing: true, ..NOTHING }, Left { calls_worker: true, ..NOTHING }]
        {
            let mut watch = kept();
            assert_eq!(watch.settle(&left), to_first);
            watch.on_follower_back(|own| *own == 0);
            assert_eq!(watch.role(NOW), Role::Leads, "it is kept no longer");
        }
    }

    #[test]
    fn the_lead_is_kept_until_the_lone_thread_stays_away_or_another_has_been_busy() {
        let to_first = Calls { device: false, parked: Some(Parked::Follower(0)) };
        let mut watch = kept();
        let late = NOW + KEPT_MAX;
        watch.give_up_absent(NOW);
        assert_eq!(watch.settle(&NOTHING), quiet());
        assert_eq!(watch.role(late), Role::Leads, "whoever has to wait looks, too");
        watch.give_up_absent(late);
        assert_eq!(watch.settle(&NOTHING), to_first);
        let mut watch = kept();
        watch.on_wait(ThreadToken(1), false, NOW);
        assert_eq!(watch.settle(&NOTHING), quiet(), "it has waited before");
        watch.on_wait(ThreadToken(1), true, NOW);
        assert_eq!(watch.settle(&NOTHING), to_first);
    }

    #[test]
    fn a_worker_that_looks_late_is_called_where_the_lead_is_kept() {
        let mut watch = kept();
        watch.set_worker(Worker::Aside { is_overdue: false, is_late: false, rests: false });
        assert_eq!(watch.settle(&NOTHING), quiet());
        watch.set_worker(Worker::Aside { is_overdue: false, is_late: true, rests: false });
        assert_eq!(watch.settle(&NOTHING).parked, Some(Parked::Worker));
        assert_eq!(watch.settle(&NOTHING), quiet(), "it is awake");
        assert!(watch.may_be_kept());
        (0..2).for_each(|own| watch.on_follower_back(|other| *other == own));
        assert!(!watch.may_be_kept(), "nobody else waits");
    }

    #[test]
    fn a_lone_thread_that_follows_is_known() {
        let mut watch = kept();
        assert_eq!(watch.lone_follower(), None);
        watch.follow(ThreadToken(9), 9);
        assert_eq!(watch.lone_follower(), Some(&9));
    }

    #[test]
    fn a_worker_at_rest_is_called_once() {
        let mut watch = Watch::<u8, u8>::default();
        watch.set_worker(Worker::Aside { is_overdue: true, is_late: true, rests: false });
        assert!(!watch.ends_rest());
        watch.set_worker(Worker::Aside { is_overdue: true, is_late: true, rests: true });
        assert!(watch.ends_rest() && !watch.ends_rest());
        assert_eq!(watch.settle(&NOTHING), quiet(), "it is awake");
    }

    #[test]
    fn a_worker_that_sleeps_on_the_device_is_called_for_who_may_stay_away() {
        let mut watch = Watch::<u8, u8>::default();
        watch.set_worker(Worker::Waiting { until: None });
        assert!(!watch.ends_rest());
        watch.lead_awake(None, NOW);
        assert!(watch.settle(&NOTHING).device);
        assert_eq!(watch.settle(&NOTHING), quiet(), "it is on its way");
    }

    #[test]
    fn a_call_that_another_sleeper_took_is_made_again() {
        let mut watch = Watch::<u8, u8>::default();
        watch.set_worker(Worker::Waiting { until: None });
        let pressing = Left { is_pressing: true, ..NOTHING };
        assert!(watch.settle(&pressing).device);
        assert_eq!(watch.settle(&pressing), quiet(), "it is on its way");
        watch.lead(Some(1), None);
        watch.on_leader_back();
        assert!(watch.settle(&NOTHING).device, "the leader came back by the worker's call");
    }
}
