//! The waiter of a device that can fail, and be replaced while threads sleep on it.
//!
//! Who waits takes the waiter out of the slot and is counted in it, both under the slot's lock. Who
//! replaces it puts the new one in first, so that nobody comes to the old one any more, and then wakes the
//! old one until all have left: a single wake-up may be spent on a thread that was just about to sleep.
//!
//! Nobody receives from a device that failed, or whose interface was removed, so the frame that makes its
//! waiter return stays where it is, and who waited there again would never sleep. Such threads sleep on the
//! slot itself ([`WaiterSlot::wait_for_another`]), which every wake-up rings as well.

use super::turn::{Panic, ask_keeping};
use device::{Queue, Waiter};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// See the module documentation.
pub(crate) struct WaiterSlot {
    state: Mutex<State>,
    /// The slot was woken, or has another waiter.
    changed: Condvar,
    panics: AtomicU64,
    /// The interface was removed: nobody is to sleep on it.
    is_closed: AtomicBool,
    /// It has a watcher.
    is_watched: AtomicBool,
}

struct State {
    current: Arc<Entry>,
    /// Threads that sleep on the slot itself: a leader and the worker may both.
    sleepers: usize,
    /// Counts how often it was woken; who sleeps on it, sleeps until that changes.
    woken: u64,
    /// It was woken while nobody slept on it.
    is_pending: bool,
}

struct Entry {
    waiter: Arc<dyn Waiter>,
    /// Threads that sleep on it.
    inside: AtomicUsize,
}

impl Entry {
    fn new(waiter: Arc<dyn Waiter>) -> Arc<Self> {
        Arc::new(Self { waiter, inside: AtomicUsize::new(0) })
    }
}

/// A thread that sleeps on a waiter, counted.
struct Inside(Arc<Entry>);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.inside.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A waiter that was in the slot.
pub(crate) struct Seen(Arc<Entry>);

/// A waiter that nobody comes to any more, and its queue.
#[must_use]
pub(crate) struct Replaced {
    entry: Arc<Entry>,
    queue: Box<dyn Queue>,
}

impl Replaced {
    /// One that nobody ever came to.
    pub(super) fn nobody(waiter: Arc<dyn Waiter>, queue: Box<dyn Queue>) -> Self {
        Self { entry: Entry::new(waiter), queue }
    }

    /// Has everybody leave it, and returns the queue when they have. An event loop that watches it is called, and
    /// not waited for: it may be the calling thread's. Of a waiter that panics nobody is called, and what it panics with
    /// is kept for the caller, who has others to empty.
    pub(crate) fn empty(self, panic: &mut Option<Panic>) -> Box<dyn Queue> {
        let entry = &self.entry;
        ask_keeping(panic, || {
            entry.waiter.wake();
            while entry.inside.load(Ordering::Acquire) > 0 {
                entry.waiter.wake();
                std::thread::sleep(Duration::from_micros(50));
            }
        });
        self.queue
    }
}

impl WaiterSlot {
    pub(crate) fn new(waiter: Arc<dyn Waiter>) -> Self {
        let current = Entry::new(waiter);
        let state = State { current, sleepers: 0, woken: 0, is_pending: false };
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
            panics: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
            is_watched: AtomicBool::new(false),
        }
    }

    /// The interface is removed: who watches it leaves for good. Before its waiter is replaced, which
    /// wakes them.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    /// Whether its interface was removed.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Somebody is to watch it; says whether nobody did.
    pub(super) fn take_watch(&self) -> bool {
        !self.is_watched.swap(true, Ordering::Relaxed)
    }

    /// How often a device's waiter panicked when it was woken.
    pub(crate) fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        super::locked(&self.state)
    }

    /// Puts another waiter in the place of the one there is, which belongs to `queue`.
    pub(crate) fn replace(&self, waiter: Arc<dyn Waiter>, queue: Box<dyn Queue>) -> Replaced {
        let entry = core::mem::replace(&mut self.lock().current, Entry::new(waiter));
        self.changed.notify_all();
        Replaced { entry, queue }
    }

    /// The waiter there is, for an event loop, which is not counted.
    #[cfg(unix)]
    pub(crate) fn current(&self) -> Arc<dyn Waiter> {
        Arc::clone(&self.lock().current.waiter)
    }

    /// The waiter there is, to be told from another one.
    pub(crate) fn seen(&self) -> Seen {
        Seen(Arc::clone(&self.lock().current))
    }

    /// Sleeps until the slot is woken (also before the call) or has another waiter than the one seen, or for
    /// `timeout`, whatever the device does: it has failed.
    pub(crate) fn wait_for_another(&self, seen: &Seen, timeout: Option<Duration>) {
        let mut state = self.lock();
        if core::mem::take(&mut state.is_pending) {
            return;
        }
        let before = state.woken;
        state.sleepers += 1;
        let is_quiet =
            |state: &mut State| state.woken == before && Arc::ptr_eq(&state.current, &seen.0);
        let mut state = super::waited_while(&self.changed, state, timeout, is_quiet);
        state.sleepers -= 1;
    }
}

impl Waiter for WaiterSlot {
    fn wait(&self, timeout: Option<Duration>) {
        let inside = {
            let state = self.lock();
            state.current.inside.fetch_add(1, Ordering::AcqRel);
            Inside(Arc::clone(&state.current))
        };
        inside.0.waiter.wait(timeout);
    }

    fn wake(&self) {
        let (entry, has_sleepers) = {
            let mut state = self.lock();
            state.woken += 1;
            state.is_pending = state.sleepers == 0;
            (Arc::clone(&state.current), state.sleepers > 0)
        };
        // Mostly nobody sleeps here, and to call them is a system call.
        if has_sleepers {
            self.changed.notify_all();
        }
        // A device is the application's code: who panics in it is about to leave a squeue, and must not take
        // with it what it has promised there, to lead for example.
        if catch_unwind(AssertUnwindSafe(|| entry.waiter.wake())).is_err() {
            self.panics.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn is_ready(&self) -> Option<bool> {
        let entry = Arc::clone(&self.lock().current);
        entry.waiter.is_ready()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    /// Wakes one sleeper at a time, and rings for no other.
    #[derive(Default)]
    struct One(Mutex<bool>, Condvar);

    impl Waiter for One {
        fn wait(&self, timeout: Option<Duration>) {
            let guard = self.0.lock().expect("no panic");
            let timeout = timeout.unwrap_or(Duration::from_secs(60));
            let waited = self.1.wait_timeout_while(guard, timeout, |woken| !*woken);
            *waited.expect("no panic").0 = false;
        }

        fn wake(&self) {
            *self.0.lock().expect("no panic") = true;
            self.1.notify_one();
        }
    }

    #[test]
    fn all_who_sleep_on_a_waiter_leave_it_when_it_is_replaced() {
        let slot = WaiterSlot::new(Arc::new(One::default()));
        let started = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| slot.wait(None));
            }
            while slot.lock().current.inside.load(Ordering::Acquire) < 3 {
                std::thread::yield_now();
            }
            let end = device::WireEnd::plain(device::Medium::Ip);
            let (queue, _) = device::wire(device::WireConfig::new(end, end));
            drop(slot.replace(Arc::new(One::default()), Box::new(queue)).empty(&mut None));
        });
        assert!(started.elapsed() < Duration::from_secs(30), "nobody slept on");
        slot.wake();
        slot.wait(None);
        assert!(started.elapsed() < Duration::from_secs(30), "the new one was woken");
    }
    struct Panicking;

    impl Waiter for Panicking {
        fn wait(&self, _: Option<Duration>) {}

        fn wake(&self) {
            panic!("of the test's own making");
        }
    }

    #[test]
    fn who_wakes_a_waiter_that_panics_goes_on() {
        let slot = WaiterSlot::new(Arc::new(Panicking));
        slot.wake();
        assert_eq!(slot.panics(), 1);
        // Whoever sleeps on the slot was woken.
        slot.wait_for_another(&slot.seen(), None);
    }

    #[test]
    fn a_slot_wakes_all_who_sleep_on_it_and_else_the_next() {
        let slot = WaiterSlot::new(Arc::new(One::default()));
        let seen = slot.seen();
        slot.wake();
        slot.wait_for_another(&seen, None);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| slot.wait_for_another(&seen, None));
            }
            while slot.lock().sleepers < 2 {
                std::thread::yield_now();
            }
            slot.wake();
        });
        let (before, pause) = (Instant::now(), Duration::from_millis(5));
        slot.wait_for_another(&seen, Some(pause));
        assert!(before.elapsed() >= pause, "nothing was left over");
        let before = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| slot.wait_for_another(&seen, Some(Duration::from_secs(60))));
            while slot.lock().sleepers < 1 {
                std::thread::yield_now();
            }
            let end = device::WireEnd::plain(device::Medium::Ip);
            let (queue, _) = device::wire(device::WireConfig::new(end, end));
            drop(slot.replace(Arc::new(One::default()), Box::new(queue)).empty(&mut None));
        });
        assert!(before.elapsed() < Duration::from_secs(30), "there is another");
        slot.wait_for_another(&seen, None);
    }
}
