//! Who waits for which socket.
//!
//! A table beside the shard, indexed by [`SocketId::index`]: an event reaches the threads and tasks
//! that wait for its socket without a search. An entry is taken out when it is woken; who is woken
//! and still finds nothing registers again, under the same lock under which it looked.

use stack::{Readiness, SocketEvent, SocketId};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Wake, Waker};
use time::{Duration, Instant};

/// What a thread or task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Data, a connection to accept, the end of the stream or an error.
    Readable,
    /// Room to send, the end of a connection attempt, or an error.
    Writable,
}

impl Interest {
    /// Whether an event of these bits is waited for.
    fn matches(self, readiness: Readiness) -> bool {
        let wanted = match self {
            Self::Readable => Readiness::READABLE | Readiness::ACCEPTABLE,
            Self::Writable => Readiness::WRITABLE | Readiness::CONNECTED,
        };
        readiness.intersects(wanted | Readiness::CLOSED)
    }
}

/// Where one thread sleeps until another one wakes it.
///
/// Not `std::thread::park`: its token belongs to the application, which may park the same thread
/// for reasons of its own.
#[derive(Debug, Default)]
pub(crate) struct Parker {
    notified: Mutex<bool>,
    changed: Condvar,
}

thread_local! {
    static OWN: Arc<Parker> = Arc::default();
}

impl Parker {
    /// The calling thread's parker, without notification.
    pub(crate) fn own() -> Arc<Self> {
        let parker = OWN.try_with(Arc::clone).unwrap_or_default();
        *parker.notified.lock().unwrap_or_else(PoisonError::into_inner) = false;
        parker
    }

    /// Sleeps until notified (also before the call) or for `timeout`; says whether it was notified.
    pub(crate) fn park(&self, timeout: Option<Duration>) -> bool {
        let guard = self.notified.lock().unwrap_or_else(PoisonError::into_inner);
        let mut guard = match timeout {
            Some(timeout) => {
                let waited = self.changed.wait_timeout_while(guard, timeout, |told| !*told);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => {
                let waited = self.changed.wait_while(guard, |told| !*told);
                waited.unwrap_or_else(PoisonError::into_inner)
            }
        };
        core::mem::take(&mut *guard)
    }

    /// Ends the current or the next [`Parker::park`].
    pub(crate) fn notify(&self) {
        let mut guard = self.notified.lock().unwrap_or_else(PoisonError::into_inner);
        if !core::mem::replace(&mut *guard, true) {
            drop(guard);
            self.changed.notify_one();
        }
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.notify();
    }
}

/// A thread or a task that waits.
#[derive(Clone, Debug)]
pub(crate) enum Sleeper {
    Thread(Arc<Parker>),
    Task(Waker),
}

impl Sleeper {
    pub(crate) fn wake(self) {
        match self {
            Self::Thread(parker) => parker.notify(),
            Self::Task(waker) => waker.wake(),
        }
    }
}

/// The table of those who wait.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    slots: Vec<Vec<(Interest, Sleeper)>>,
    tasks: usize,
    /// Tasks that wait for time to pass, and for how much of it.
    timed: Vec<Waker>,
    timed_until: Option<Instant>,
}

impl Waiting {
    fn slot(&mut self, socket: SocketId) -> &mut Vec<(Interest, Sleeper)> {
        let index = socket.index();
        if self.slots.len() <= index {
            self.slots.resize_with(index + 1, Vec::new);
        }
        &mut self.slots[index]
    }

    /// Whether any task (not thread) waits.
    pub(crate) fn has_tasks(&self) -> bool {
        self.tasks > 0 || !self.timed.is_empty()
    }

    /// When the first of the tasks is due that wait for no socket.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.timed_until
    }

    /// Enters a task that waits for no socket, to be woken at `until` or before.
    pub(crate) fn add_task_until(&mut self, until: Instant, waker: &Waker) {
        if !self.timed.iter().any(|known| known.will_wake(waker)) {
            self.timed.push(waker.clone());
        }
        self.timed_until = Some(self.timed_until.map_or(until, |earlier| earlier.min(until)));
    }

    /// Moves the tasks that wait for no socket to `woken`, once the first of them is due.
    pub(crate) fn on_time(&mut self, now: Instant, woken: &mut Vec<Sleeper>) {
        if self.timed_until.is_some_and(|until| until <= now) {
            woken.extend(self.timed.drain(..).map(Sleeper::Task));
            self.timed_until = None;
        }
    }

    /// Enters a thread.
    pub(crate) fn add_thread(&mut self, socket: SocketId, interest: Interest, who: &Arc<Parker>) {
        self.slot(socket).push((interest, Sleeper::Thread(Arc::clone(who))));
    }

    /// Takes a thread out again; it may have been woken and taken out before.
    pub(crate) fn remove_thread(&mut self, socket: SocketId, who: &Arc<Parker>) {
        let is_other = |entry: &(Interest, Sleeper)| match &entry.1 {
            Sleeper::Thread(parker) => !Arc::ptr_eq(parker, who),
            Sleeper::Task(_) => true,
        };
        self.slot(socket).retain(is_other);
    }

    /// Enters a task's waker, once for each interest.
    pub(crate) fn add_task(&mut self, socket: SocketId, interest: Interest, waker: &Waker) {
        let slot = self.slot(socket);
        let is_same = |entry: &(Interest, Sleeper)| match &entry.1 {
            Sleeper::Task(known) => entry.0 == interest && known.will_wake(waker),
            Sleeper::Thread(_) => false,
        };
        if !slot.iter().any(is_same) {
            slot.push((interest, Sleeper::Task(waker.clone())));
            self.tasks += 1;
        }
    }

    /// Takes a task out again; it may have been woken and taken out before.
    pub(crate) fn remove_task(&mut self, socket: SocketId, waker: &Waker) {
        let Some(slot) = self.slots.get_mut(socket.index()) else { return };
        let before = slot.len();
        slot.retain(|entry| match &entry.1 {
            Sleeper::Task(known) => !known.will_wake(waker),
            Sleeper::Thread(_) => true,
        });
        self.tasks -= before - slot.len();
    }

    /// Moves those whom an event concerns to `woken`.
    pub(crate) fn on_event(&mut self, event: SocketEvent, woken: &mut Vec<Sleeper>) {
        let Some(slot) = self.slots.get_mut(event.socket.index()) else { return };
        let before = woken.len();
        woken.extend(
            slot.extract_if(.., |entry| entry.0.matches(event.readiness)).map(|entry| entry.1),
        );
        self.tasks -= count_tasks(&woken[before..]);
    }

    /// Moves everybody to `woken`: the devices are gone.
    pub(crate) fn wake_all(&mut self, woken: &mut Vec<Sleeper>) {
        woken.extend(self.slots.iter_mut().flat_map(|slot| slot.drain(..)).map(|entry| entry.1));
        woken.extend(self.timed.drain(..).map(Sleeper::Task));
        (self.tasks, self.timed_until) = (0, None);
    }

    /// Forgets who waited for a socket that is being closed.
    pub(crate) fn forget(&mut self, socket: SocketId, woken: &mut Vec<Sleeper>) {
        let Some(slot) = self.slots.get_mut(socket.index()) else { return };
        let before = woken.len();
        woken.extend(slot.drain(..).map(|entry| entry.1));
        self.tasks -= count_tasks(&woken[before..]);
    }
}

fn count_tasks(sleepers: &[Sleeper]) -> usize {
    sleepers.iter().filter(|sleeper| matches!(sleeper, Sleeper::Task(_))).count()
}
