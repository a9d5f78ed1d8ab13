//! What the threads of a squeue sleep on: the waiters of its devices.
//!
//! The leader and the worker sleep on the first interface's, which is there as long as the squeue and is reached without a
//! lock. Each further interface that the squeue receives from has a thread, its watcher; its slot lives as
//! long as the interface, and ends the watcher when that is removed, so interfaces may come and go.

use super::locked;
use super::waiter_slot::{Replaced, WaiterSlot};
use device::{Queue, Waiter};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// See the module documentation.
pub(crate) struct Waiters {
    /// Absent where there is no interface.
    first: Option<WaiterSlot>,
    /// Of the interfaces from the second on.
    further: Mutex<Vec<Arc<WaiterSlot>>>,
    /// Panics of waiters whose slots are gone.
    past_panics: AtomicU64,
}

impl Waiters {
    /// In the order of the interfaces.
    pub(super) fn new(waiters: impl Iterator<Item = Arc<dyn Waiter>>) -> Self {
        let mut slots = waiters.map(WaiterSlot::new);
        let first = slots.next();
        let further = Mutex::new(slots.map(Arc::new).collect());
        Self { first, further, past_panics: AtomicU64::new(0) }
    }

    /// That of the first interface.
    #[inline]
    pub(super) fn first(&self) -> Option<&WaiterSlot> {
        self.first.as_ref()
    }

    /// That of interface `index`, which is not the first.
    pub(super) fn further(&self, index: usize) -> Option<Arc<WaiterSlot>> {
        locked(&self.further).get(index.checked_sub(1)?).cloned()
    }

    /// Another waiter takes the place of that of interface `index`, which belongs to `queue`.
    pub(super) fn replace(
        &self,
        index: usize,
        waiter: Arc<dyn Waiter>,
        queue: Box<dyn Queue>,
    ) -> Replaced {
        match (self.further(index), &self.first) {
            (Some(slot), _) => slot.replace(waiter, queue),
            (None, Some(first)) if index == 0 => first.replace(waiter, queue),
            (None, _) => Replaced::nobody(waiter, queue),
        }
    }

    /// As [`Waiters::replace`], for an interface that is removed: nobody watches it any more.
    pub(super) fn remove(
        &self,
        index: usize,
        waiter: Arc<dyn Waiter>,
        queue: Box<dyn Queue>,
    ) -> Replaced {
        if let Some(slot) = self.further(index) {
            slot.close();
        }
        self.replace(index, waiter, queue)
    }

    /// The waiter of a new interface, behind all others or in the place of one that was removed and whose queue
    /// was `queue`.
    pub(super) fn put(
        &self,
        index: usize,
        waiter: Arc<dyn Waiter>,
        queue: Option<Box<dyn Queue>>,
    ) -> Option<Replaced> {
        if let (0, Some(_), Some(queue)) = (index, &self.first, queue) {
            return Some(self.replace(0, waiter, queue));
        }
        let slot = Arc::new(WaiterSlot::new(waiter));
        let mut further = locked(&self.further);
        match further.get_mut(index.saturating_sub(1)) {
            Some(place) => {
                let old = core::mem::replace(place, slot);
                self.past_panics.fetch_add(old.panics(), Ordering::Relaxed);
            }
            None => further.push(slot),
        }
        None
    }

    /// Has somebody who sleeps on the first interface's look again.
    pub(super) fn wake_first(&self) {
        self.first.iter().for_each(Waiter::wake);
    }

    /// Has all who sleep on any of them look again.
    pub(super) fn wake(&self) {
        let further = locked(&self.further).clone();
        self.first.iter().for_each(Waiter::wake);
        further.iter().for_each(|slot| slot.wake());
    }

    /// How often waiters panicked.
    pub(super) fn panics(&self) -> u64 {
        let further: u64 = locked(&self.further).iter().map(|slot| slot.panics()).sum();
        let first = self.first.as_ref().map_or(0, WaiterSlot::panics);
        first + further + self.past_panics.load(Ordering::Relaxed)
    }
}
