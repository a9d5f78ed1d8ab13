//! The door of a squeue: work that is left for whoever is inside is never forgotten.
//!
//! A squeue is a lock around a shard. A thread that brings frames for it puts them into a soft ring and
//! then looks whether the squeue is free: if so it goes in, if not it leaves them to whoever is inside. Who
//! goes in may process them, or see to it that somebody comes: the runtime wakes the thread that waits
//! there, because one that brings frames has its own squeue to run (processing them in line cost more CPU
//! time and throughput where it was tried; MEASUREMENTS.md, "Two cores"). The danger is the moment between the
//! last look that the thread inside takes at its rings and its leaving: what is put in then, neither of the two
//! would process.
//!
//! ```text
//!   who brings work                         who is inside
//!     ring.push(lane)                         door.take()            begin of each turn
//!     door.announce()                         ring.drain(..)
//!     try the lock ---- free: go in           ...
//!          |                                  unlock
//!          +---- taken: done                  door.is_owed()?  yes: try the lock again, or wake
//!                                                              the squeue's worker
//! ```
//!
//! What always holds, and loom tries every interleaving of it: after `announce` either the announcing
//! thread finds the lock free, or the thread inside finds after its unlocking that work is owed. The
//! two fences order "I announced, then found it locked" against "I unlocked, then found nothing
//! announced": both cannot be.

use crate::sync::{AtomicBool, Ordering, fence};

/// Whether work was left for whoever is inside a squeue.
#[derive(Debug)]
pub struct Door {
    owed: AtomicBool,
}

impl Default for Door {
    fn default() -> Self {
        Self { owed: AtomicBool::new(false) }
    }
}

impl Door {
    /// Says that work has been put where the squeue finds it. To be called before trying the lock.
    pub fn announce(&self) {
        // A plain store would break the chain from an announcement before it: who then takes the note
        // would see this thread's work and not the other's (loom found it).
        self.owed.swap(true, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// Takes note of all that was announced so far: to be called inside, before the rings are drained.
    /// Says whether something was.
    pub fn take(&self) -> bool {
        // Who takes the note sees all that was put in before it was written.
        self.owed.swap(false, Ordering::AcqRel)
    }

    /// Whether work is owed. To be called after unlocking; if so, somebody must go in again: this
    /// thread, if the lock is still free, or the worker. Who finds the lock taken may go: the thread
    /// inside will ask in its turn.
    #[must_use]
    pub fn is_owed(&self) -> bool {
        fence(Ordering::SeqCst);
        self.owed.load(Ordering::Acquire)
    }
}
