//! The waiter of a device that can be replaced while threads sleep on it.
//!
//! Who waits takes the waiter out of the slot and is counted in it, both under the slot's lock. Who
//! replaces it puts the new one in first, so that nobody comes to the old one any more, and then wakes the
//! old one until all have left: a single wake-up may be spent on a thread that was just about to sleep.

use device::{Queue, Waiter};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// See the module documentation.
pub(crate) struct WaiterSlot {
    current: Mutex<Arc<Entry>>,
    /// The slot was woken, or has another waiter.
    changed: Condvar,
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
    /// Has everybody leave it, and returns the queue when they have.
    pub(crate) fn empty(self) -> Box<dyn Queue> {
        while self.entry.inside.load(Ordering::Acquire) > 0 {
            self.entry.waiter.wake();
            std::thread::sleep(Duration::from_micros(50));
        }
        self.queue
    }
}

impl WaiterSlot {
    pub(crate) fn new(waiter: Arc<dyn Waiter>) -> Self {
        Self { current: Mutex::new(Entry::new(waiter)), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Arc<Entry>> {
        super::locked(&self.current)
    }

    /// Puts another waiter in the place of the one there is, which belongs to `queue`.
    pub(crate) fn replace(&self, waiter: Arc<dyn Waiter>, queue: Box<dyn Queue>) -> Replaced {
        let entry = core::mem::replace(&mut *self.lock(), Entry::new(waiter));
        self.changed.notify_all();
        Replaced { entry, queue }
    }

    /// The waiter there is, to be told from another one.
    pub(crate) fn seen(&self) -> Seen {
        Seen(Arc::clone(&self.lock()))
    }

    /// Sleeps until the slot is woken or has another waiter than the one seen, or for `timeout`, whatever
    /// the device does: it has failed.
    pub(crate) fn wait_for_another(&self, seen: &Seen, timeout: Duration) {
        let guard = self.lock();
        if !Arc::ptr_eq(&guard, &seen.0) {
            return;
        }
        drop(self.changed.wait_timeout(guard, timeout).unwrap_or_else(PoisonError::into_inner));
    }
}

impl Waiter for WaiterSlot {
    fn wait(&self, timeout: Option<Duration>) {
        let inside = {
            let entry = self.lock();
            entry.inside.fetch_add(1, Ordering::AcqRel);
            Inside(Arc::clone(&entry))
        };
        inside.0.waiter.wait(timeout);
    }

    fn wake(&self) {
        let entry = Arc::clone(&self.lock());
        self.changed.notify_all();
        entry.waiter.wake();
    }

    fn is_ready(&self) -> Option<bool> {
        let entry = Arc::clone(&self.lock());
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
            while slot.lock().inside.load(Ordering::Acquire) < 3 {
                std::thread::yield_now();
            }
            let end = device::WireEnd::plain(device::Medium::Ip);
            let (queue, _) = device::wire(device::WireConfig::new(end, end));
            drop(slot.replace(Arc::new(One::default()), Box::new(queue)).empty());
        });
        assert!(started.elapsed() < Duration::from_secs(30), "nobody slept on");
        slot.wake();
        slot.wait(None);
        assert!(started.elapsed() < Duration::from_secs(30), "the new one was woken");
    }
}
