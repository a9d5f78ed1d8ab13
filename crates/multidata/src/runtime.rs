//! What turns the sans-IO shard into something that runs: a lock, a clock, threads that wait.
//!
//! * [`squeues`]: the squeues of a stack, one or several;
//! * [`squeue`]: the lock around a shard and its device queues, and the one loop between them;
//! * [`closing`]: what is left to deliver of closed connections;
//! * [`pace`]: when the next turn is due;
//! * [`inhibition`]: what is not taken in while readers do not keep up;
//! * [`intake`]: how many frames come up by one call, and what holds them;
//! * [`sending`]: what goes out, by the device queues and to other squeues;
//! * [`hand_over`]: what one squeue received for another;
//! * [`shared_queue`], [`shared_filter`]: what several squeues have one of;
//! * [`turn`]: who waits for the device and who waits for whom (leader and followers);
//! * [`devices`]: the device queues of a squeue, which come and go; [`port`]: a device queue and the interface that stands on it; [`health`]: what its device has met;
//! * [`waiters`]: what the threads of a squeue sleep on; [`waiter_slot`]: the waiter of a device that can be replaced; [`removed_queue`]: what takes its place for good;
//! * [`outside`]: what of the application's runs only where no lock is held;
//! * [`waiting`]: parked threads and wakers, found by socket;
//! * [`memory_turns`]: whose turn it is of the tasks that wait for memory;
//! * [`memory_watch`]: which squeues have tasks that wait for memory;
//! * [`event_watch`]: who waits for something to happen to an interface or an address;
//! * [`worker`]: the threads that keep a stack alive while no application thread is in a call; [`event_loop`]: an event loop in their place;
//! * [`counting`]: what all of them counted.

pub(crate) mod closing;
mod counting;
pub(crate) mod devices;
pub(crate) mod event_loop;
pub(crate) mod event_watch;
pub(crate) mod hand_over;
mod health;
mod inhibition;
pub(crate) mod intake;
pub(crate) mod memory_turns;
mod memory_watch;
pub(crate) mod outside;
pub(crate) mod pace;
pub(crate) mod port;
mod removed_queue;
mod sending;
pub(crate) mod shared_filter;
pub(crate) mod shared_queue;
pub(crate) mod squeue;
pub(crate) mod squeues;
#[cfg(test)]
mod tests;
pub(crate) mod turn;
pub(crate) mod waiter_slot;
mod waiters;
pub(crate) mod waiting;
pub(crate) mod worker;

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use time::Instant;

/// The monotonic clock, as nanoseconds since the stack was built. On Linux it is CLOCK_MONOTONIC, which stands still
/// while the machine sleeps, and so do the waits that end at its deadlines. CLOCK_BOOTTIME would go on: then TCP, which
/// measures how long a peer is silent, would end every connection on waking up that had something outstanding.
/// What lasts by the calendar, a lease, is verified instead ([`Stack::link_changed`](crate::Stack::link_changed)).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: std::time::Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { start: std::time::Instant::now() }
    }

    pub(crate) fn now(&self) -> Instant {
        Instant::ZERO + self.start.elapsed()
    }
}

/// Waits while `condition` holds, for `timeout` at most where there is one; a panic elsewhere does not matter.
pub(crate) fn waited_while<'a, T>(
    changed: &Condvar,
    guard: MutexGuard<'a, T>,
    timeout: Option<std::time::Duration>,
    condition: impl FnMut(&mut T) -> bool,
) -> MutexGuard<'a, T> {
    match timeout {
        Some(timeout) => {
            let waited = changed.wait_timeout_while(guard, timeout, condition);
            waited.unwrap_or_else(PoisonError::into_inner).0
        }
        None => changed.wait_while(guard, condition).unwrap_or_else(PoisonError::into_inner),
    }
}

/// Takes a lock, also where a thread panicked under it, which is not held against those who come after. Devices,
/// filters and wakers that are cloned are the application's code and run under locks; what they protect is
/// consistent whenever it does.
pub(crate) fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| {
        mutex.clear_poison();
        poisoned.into_inner()
    })
}

counters::counters! {
    /// What the runtime did: locks, waits and wake-ups, and the bytes it copied.
    pub struct RuntimeCounters {
        /// Times the squeue's lock was taken.
        squeue_enters,
        /// Of these, times another thread held it.
        squeue_enters_contended,
        /// Times another thread came in than the one before.
        squeue_migrations,
        /// Batches that came by the squeue's own devices, processed by the thread that fetched them.
        squeue_inline_batches,
        /// Batches that came by soft rings, processed by another thread than the one that put them there.
        squeue_queued_batches,
        /// Times a thread that had left was told of work that had come meanwhile, and went in again.
        squeue_owed_on_leaving,
        /// Times the worker or an application thread that waits was woken to run the squeue.
        squeue_worker_wakeups,
        /// Turns of the loop between the devices and the shard.
        squeue_runs,
        /// Frames received here and handed to another squeue.
        frames_handed_over,
        /// Frames that another squeue received and this one took over.
        frames_taken_over,
        /// Turns that used up their budget and left the rest to the next one.
        squeue_runs_unfinished,
        /// Turns that took nothing in, because readers did not keep up with what had come.
        squeue_runs_inhibited,
        /// Waits for the device by an application thread.
        leader_waits,
        /// Waits for another thread by an application thread.
        follower_parks,
        /// Times one thread woke another, wakers of tasks included.
        wakeups_sent,
        /// Wakers of tasks, and of devices' waiters, that panicked, and owners of lent memory that did when they
        /// were dropped; the others were woken and dropped all the same.
        wakers_panicked,
        /// Threads that panicked inside the squeue, in a device or in a waker that is cloned.
        panics_inside,
        /// Threads of the squeue that panicked and went on.
        workers_restarted,
        /// Entries of those who wait that were looked at for an event, for memory, or to take one out: whom the
        /// event concerns, and no others.
        sleepers_visited,
        /// Waits for the device by the squeue's worker.
        worker_turns,
        /// Turns behind which the worker slept until the device wakes it, or, where
        /// [`StackBuilder::polling`](crate::StackBuilder::polling) is set, an application thread.
        interrupt_turns,
        /// Turns behind which it asked the devices again without sleeping.
        poll_turns,
        /// Times it began to.
        to_polling,
        /// Bytes copied from the application's buffers into blocks.
        bytes_copied_in,
        /// Of these, bytes whose checksums were made in the copy.
        bytes_summed_in_copy,
        /// Bytes queued in the application's own memory.
        bytes_lent,
        /// Bytes copied from blocks into the application's buffers.
        bytes_copied_out,
        /// Writes that found the block pool exhausted and waited.
        pool_waits,
    }
}
