//! What a device queue's frames pass before the shard sees them: coalescing (seed 003, 5.2).
//!
//! [`steering::Coalescer`] decides how many frames are fetched by one call, and whether they are handed
//! up at once or held until more have come. Held frames lie here, in the blocks they arrived in; the
//! hold-off is one of the squeue's deadlines ([`Core::deadline`](super::squeue::Core::deadline)), so
//! whoever sleeps on the device comes back in time.
//!
//! A sleeper is woken by each frame during a hold-off, as the kernel tells of every one: what a hold-off
//! saves is the work behind the device, not the wake-up.

use batch::{BlockPool, ReceiveBatch};
use device::{Queue, Received};
use steering::{BatchSizes, Coalescer, Coalescing, Verdict};
use time::Instant;

/// See the module documentation.
pub(crate) struct Intake {
    coalescer: Coalescer,
    held: ReceiveBatch,
    sizes: BatchSizes,
}

impl Intake {
    pub(crate) fn new(coalescing: Coalescing) -> Self {
        Self {
            coalescer: Coalescer::new(coalescing),
            held: ReceiveBatch::new(),
            sizes: BatchSizes::default(),
        }
    }

    /// The setting.
    pub(crate) fn coalescing(&self) -> Coalescing {
        self.coalescer.config()
    }

    /// Changes the setting. What is held goes up with the next fetch.
    pub(crate) fn set_coalescing(&mut self, coalescing: Coalescing) {
        self.coalescer = Coalescer::new(coalescing);
    }

    /// Starts afresh with the same setting, for another device in the place of the one there was: what
    /// is held came by that one.
    pub(crate) fn restart(&mut self) {
        self.set_coalescing(self.coalescing());
        self.held = ReceiveBatch::new();
    }

    /// Fetches frames into `batch`, which must be empty. It stays so where they are held; otherwise
    /// `frames` of the result counts all that are in it.
    pub(crate) fn fetch(
        &mut self,
        now: Instant,
        queue: &mut dyn Queue,
        pool: &BlockPool,
        batch: &mut ReceiveBatch,
    ) -> Received {
        core::mem::swap(batch, &mut self.held);
        let mut received = queue.receive(pool, batch, self.coalescer.frames_max());
        let verdict = self.coalescer.on_received(now, received.frames, received.more);
        let is_held = matches!(verdict, Verdict::Hold { .. }) && received.failed.is_none();
        if is_held {
            core::mem::swap(batch, &mut self.held);
            received.frames = 0;
            return received;
        }
        self.coalescer.on_handed_up();
        received.frames = batch.len();
        self.sizes.add(received.frames);
        received
    }

    /// When held frames are to be fetched for at the latest.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.coalescer.deadline()
    }

    /// How many batches of which size were handed up.
    pub(crate) fn sizes(&self) -> BatchSizes {
        self.sizes
    }
}

#[cfg(test)]
mod tests;
