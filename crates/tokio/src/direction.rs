//! Who waits for one direction of a socket.
//!
//! The stack keeps wakers until an event calls them. Were the tasks' own wakers entered there, a
//! socket that many short-lived tasks tried in vain would collect the wakers of all of them. So a
//! direction enters *one* waker, its own, and keeps the tasks': one for the `poll_*` calls, of which
//! the last caller counts, and one for each future that exists, which takes it out again when it is
//! dropped.
//!
//! ```text
//!   stack: socket, interest -> waker of the direction -> poll_*: the last task's waker
//!                                                     -> future 7: its task's waker
//!                                                     -> future 9: its task's waker
//! ```
//!
//! What always holds: a task's waker is in before the call is tried, and the direction's waker is
//! entered under the lock under which the call failed. An event before the attempt is seen by the
//! attempt; one after it calls the direction, and so the task. No waker is called or let go of under the
//! direction's lock: it may be the last holder of its task, and the task of a future that waits here.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker, ready};
use tokio::task::coop;

/// One direction of a socket: reading (and accepting), or writing (and connecting).
#[derive(Debug)]
pub(crate) struct Direction {
    tasks: Arc<Tasks>,
    /// Calls `tasks`. Made once, so that the stack knows it again.
    waker: Waker,
}

#[derive(Debug, Default)]
struct Tasks {
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    /// The task that last called a `poll_*` function in vain.
    polling: Option<Waker>,
    /// Calls of `poll_*` functions so far: the last one's number.
    polls: u64,
    /// A place for each future that had to wait; empty where it was woken, or is gone.
    futures: Vec<Option<Waker>>,
    /// Places of futures that are gone.
    free: Vec<usize>,
}

impl Direction {
    pub(crate) fn new() -> Self {
        let tasks = Arc::<Tasks>::default();
        Self { waker: Waker::from(Arc::clone(&tasks)), tasks }
    }

    /// Tries for the task that polls; of several, the last one counts.
    pub(crate) fn poll<T>(
        &self,
        context: &mut Context<'_>,
        attempt: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let budget = ready!(coop::poll_proceed(context));
        let (call, before) = self.tasks.lock().enter_polling(context.waker());
        drop(before);
        let outcome = attempt(&mut Context::from_waker(&self.waker));
        if outcome.is_ready() {
            budget.made_progress();
            let task = self.tasks.lock().leave_polling(call);
            drop(task);
        }
        outcome
    }

    /// Has all tasks that wait try again: the call that succeeded took the direction's waker back, theirs
    /// included.
    pub(crate) fn wake(&self) {
        self.waker.wake_by_ref();
    }

    /// A future that tries until the call no longer has to wait.
    pub(crate) fn wait<T, F>(&self, attempt: F) -> Wait<'_, F>
    where
        F: FnMut(&mut Context<'_>) -> Poll<T> + Unpin,
    {
        Wait { direction: self, place: None, attempt }
    }
}

/// See [`Direction::wait`].
#[must_use = "futures do nothing unless polled"]
pub(crate) struct Wait<'a, F> {
    direction: &'a Direction,
    /// Where the task's waker is kept, while the future is not done.
    place: Option<usize>,
    attempt: F,
}

impl<T, F: FnMut(&mut Context<'_>) -> Poll<T> + Unpin> Future for Wait<'_, F> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let budget = ready!(coop::poll_proceed(context));
        let Self { direction, place, attempt } = &mut *self;
        let (entered, before) = direction.tasks.lock().enter(*place, context.waker());
        *place = Some(entered);
        drop(before);
        let outcome = attempt(&mut Context::from_waker(&direction.waker));
        if outcome.is_ready() {
            budget.made_progress();
            let task = direction.tasks.lock().leave(place);
            drop(task);
        }
        outcome
    }
}

impl<F> Drop for Wait<'_, F> {
    fn drop(&mut self) {
        if self.place.is_some() {
            let task = self.direction.tasks.lock().leave(&mut self.place);
            drop(task);
        }
    }
}

impl Tasks {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The wakers that come out of it are for the caller to let go of, behind the lock.
impl Waiting {
    /// Notes the task that polls now, and says which call that is.
    fn enter_polling(&mut self, waker: &Waker) -> (u64, Option<Waker>) {
        self.polls += 1;
        (self.polls, renew(&mut self.polling, waker))
    }

    /// Forgets the task of a call that need not wait, and none that has called since.
    fn leave_polling(&mut self, call: u64) -> Option<Waker> {
        self.polling.take_if(|_| self.polls == call)
    }

    fn enter(&mut self, place: Option<usize>, waker: &Waker) -> (usize, Option<Waker>) {
        let place = place.or_else(|| self.free.pop()).unwrap_or_else(|| {
            self.futures.push(None);
            self.futures.len() - 1
        });
        (place, renew(&mut self.futures[place], waker))
    }

    fn leave(&mut self, place: &mut Option<usize>) -> Option<Waker> {
        let mut task = None;
        if let Some(place) = place.take() {
            task = self.futures[place].take();
            self.free.push(place);
        }
        // A wake-up looks at all places: a crowd that is gone must not slow it down.
        if self.free.len() == self.futures.len() {
            self.futures.clear();
            self.free.clear();
        }
        task
    }
}

/// Puts a task's waker in the place of another one's, which comes out.
fn renew(slot: &mut Option<Waker>, waker: &Waker) -> Option<Waker> {
    match slot {
        Some(known) if known.will_wake(waker) => None,
        slot => slot.replace(waker.clone()),
    }
}

impl Wake for Tasks {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut waiting = self.lock();
        let polling = waiting.polling.take();
        let futures: Vec<Waker> = waiting.futures.iter_mut().filter_map(Option::take).collect();
        drop(waiting);
        let mut panics = None;
        for waker in polling.into_iter().chain(futures) {
            // It must not keep the others from being woken.
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
                panics.get_or_insert(panic);
            }
        }
        // The stack counts it.
        if let Some(panic) = panics {
            resume_unwind(panic);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[derive(Default)]
    struct Calls(AtomicUsize);

    impl Wake for Calls {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn task() -> (Arc<Calls>, Waker) {
        let calls = Arc::<Calls>::default();
        (Arc::clone(&calls), Waker::from(calls))
    }

    fn counts(tasks: &[&(Arc<Calls>, Waker)]) -> Vec<usize> {
        tasks.iter().map(|(calls, _)| calls.0.load(Ordering::SeqCst)).collect()
    }

    #[test]
    fn a_future_that_is_dropped_is_forgotten_and_the_others_are_not() {
        let direction = Direction::new();
        let (one, other, polling) = (task(), task(), task());
        let wait = || direction.wait(|_: &mut Context<'_>| Poll::<()>::Pending);
        let mut kept = pin!(wait());
        {
            let mut dropped = pin!(wait());
            assert!(dropped.as_mut().poll(&mut Context::from_waker(&one.1)).is_pending());
            // The same task waits twice, as `join!` has it.
            assert!(kept.as_mut().poll(&mut Context::from_waker(&one.1)).is_pending());
        }
        let waiting = |direction: &Direction| {
            let waiting = direction.tasks.lock();
            (waiting.futures.iter().flatten().count(), waiting.futures.len())
        };
        assert_eq!(waiting(&direction), (1, 2));
        let context = &mut Context::from_waker(&polling.1);
        assert!(direction.poll(context, |_| Poll::<()>::Pending).is_pending());
        direction.waker.wake_by_ref();
        assert_eq!(counts(&[&one, &other, &polling]), [1, 0, 1]);
        // Once each: who still waits says so again, here from another task.
        direction.waker.wake_by_ref();
        assert_eq!(counts(&[&one, &other, &polling]), [1, 0, 1]);
        assert!(kept.as_mut().poll(&mut Context::from_waker(&other.1)).is_pending());
        direction.waker.wake_by_ref();
        assert_eq!(counts(&[&one, &other, &polling]), [1, 1, 1]);
        // A new one takes the place of the one that is gone.
        let mut new = Box::pin(wait());
        assert!(new.as_mut().poll(&mut Context::from_waker(&one.1)).is_pending());
        assert_eq!(waiting(&direction), (1, 2));
        drop(new);
        assert_eq!(waiting(&direction), (0, 2));
    }

    #[test]
    fn who_got_something_is_not_woken_later() {
        let direction = Direction::new();
        let (one, other) = (task(), task());
        let context = &mut Context::from_waker(&one.1);
        assert!(direction.poll(context, |_| Poll::<()>::Pending).is_pending());
        assert!(direction.poll(context, |_| Poll::Ready(())).is_ready());
        let mut is_there = false;
        let mut wait = pin!(direction.wait(|_: &mut Context<'_>| match is_there {
            true => Poll::Ready(()),
            false => {
                is_there = true;
                Poll::Pending
            }
        }));
        let context = &mut Context::from_waker(&other.1);
        assert!(wait.as_mut().poll(context).is_pending());
        assert!(wait.as_mut().poll(context).is_ready());
        direction.waker.wake_by_ref();
        assert_eq!(counts(&[&one, &other]), [0, 0]);
    }

    /// Two threads poll one direction: what the one gets must not make the other sleep for ever.
    #[test]
    fn who_got_something_forgets_nobody_who_came_meanwhile() {
        let direction = Direction::new();
        let (one, other) = (task(), task());
        let outcome = direction.poll(&mut Context::from_waker(&one.1), |_| {
            let context = &mut Context::from_waker(&other.1);
            assert!(direction.poll(context, |_| Poll::<()>::Pending).is_pending());
            Poll::Ready(())
        });
        assert!(outcome.is_ready());
        direction.waker.wake_by_ref();
        assert_eq!(counts(&[&one, &other]), [0, 1]);
    }

    #[test]
    fn an_event_within_the_attempt_is_not_lost() {
        let direction = Direction::new();
        let one = task();
        let context = &mut Context::from_waker(&one.1);
        let outcome = direction.poll(context, |within| {
            within.waker().wake_by_ref();
            Poll::<()>::Pending
        });
        assert!(outcome.is_pending());
        assert_eq!(counts(&[&one]), [1]);
    }

    /// The last holder of a task, which has a future that waits for the same direction.
    struct Holder(Arc<Direction>, Arc<AtomicUsize>);

    impl Wake for Holder {
        fn wake(self: Arc<Self>) {}
    }

    impl Drop for Holder {
        fn drop(&mut self) {
            assert!(self.0.tasks.waiting.try_lock().is_ok(), "a future would wait here for ever");
            self.1.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_waker_is_let_go_of_under_no_lock() {
        let (direction, gone) = (Arc::new(Direction::new()), Arc::<AtomicUsize>::default());
        let holder = || Waker::from(Arc::new(Holder(Arc::clone(&direction), Arc::clone(&gone))));
        let is_gone = |count| assert_eq!(gone.load(Ordering::SeqCst), count);
        let poll = |waker: Waker, outcome: Poll<()>| {
            direction.poll(&mut Context::from_waker(&waker), |_| outcome)
        };
        assert!(poll(holder(), Poll::Pending).is_pending());
        assert!(poll(holder(), Poll::Pending).is_pending());
        is_gone(1);
        assert!(poll(holder(), Poll::Ready(())).is_ready());
        is_gone(3);
        let outcome = AtomicUsize::new(0);
        let wait = || {
            direction.wait(|_: &mut Context<'_>| match outcome.load(Ordering::SeqCst) {
                0 => Poll::Pending,
                _ => Poll::Ready(()),
            })
        };
        let (mut kept, mut dropped) = (pin!(wait()), Box::pin(wait()));
        for _ in 0..2 {
            assert!(kept.as_mut().poll(&mut Context::from_waker(&holder())).is_pending());
            assert!(dropped.as_mut().poll(&mut Context::from_waker(&holder())).is_pending());
        }
        is_gone(5);
        drop(dropped);
        is_gone(6);
        outcome.store(1, Ordering::SeqCst);
        assert!(kept.as_mut().poll(&mut Context::from_waker(&holder())).is_ready());
        is_gone(8);
    }

    struct Panicking;

    impl Wake for Panicking {
        fn wake(self: Arc<Self>) {
            panic!("of the test's own making");
        }
    }

    #[test]
    fn a_waker_that_panics_keeps_nobody_else_asleep() {
        let direction = Direction::new();
        let (one, other) = (task(), task());
        let panicking = Waker::from(Arc::new(Panicking));
        let context = &mut Context::from_waker(&panicking);
        assert!(direction.poll(context, |_| Poll::<()>::Pending).is_pending());
        let wait = || direction.wait(|_: &mut Context<'_>| Poll::<()>::Pending);
        let (mut first, mut second, mut third) = (pin!(wait()), pin!(wait()), pin!(wait()));
        assert!(first.as_mut().poll(&mut Context::from_waker(&one.1)).is_pending());
        assert!(second.as_mut().poll(&mut Context::from_waker(&panicking)).is_pending());
        assert!(third.as_mut().poll(&mut Context::from_waker(&other.1)).is_pending());
        let woken = catch_unwind(AssertUnwindSafe(|| direction.wake()));
        assert!(woken.is_err(), "the stack counts it");
        assert_eq!(counts(&[&one, &other]), [1, 1]);
    }
}
