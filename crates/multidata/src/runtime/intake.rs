//! What a device queue's frames pass before the shard sees them: coalescing (seed 003, 5.2).
//!
//! [`steering::Coalescer`] decides how many frames are fetched by one call, and whether they are handed
//! up at once or held until more have come. Held frames lie here, in the blocks they arrived in; the
//! hold-off is one of the squeue's deadlines ([`Core::deadline`](super::squeue::Core::deadline)), so
//! whoever sleeps on the device comes back in time. They were received, whatever becomes of the device: where it
//! panics, fails or is replaced, where its interface is removed or the stack is ended, they go up at once.
//!
//! A sleeper is woken by each frame during a hold-off, as the kernel tells of every one: what a hold-off
//! saves is the work behind the device, not the wake-up.

use super::hand_over;
use super::health::Task;
use super::squeue::Core;
use super::turn::Panic;
use batch::{BlockPool, ReceiveBatch};
use device::{Queue, Received};
use std::panic::{AssertUnwindSafe, catch_unwind};
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

    /// Starts afresh with the same setting, for another device in the place of the one there was.
    pub(crate) fn restart(&mut self) {
        self.set_coalescing(self.coalescing());
    }

    /// Fetches frames into `batch`, which must be empty. It stays so where they are held.
    ///
    /// # Errors
    /// What the device panicked with. What was held before is handed up then, for nobody knows whether a later call will
    /// come back; what the call itself has brought is not, because it never said so.
    pub(crate) fn fetch(
        &mut self,
        now: Instant,
        queue: &mut dyn Queue,
        pool: &BlockPool,
        batch: &mut ReceiveBatch,
    ) -> Result<Received, Panic> {
        let frames_max = self.coalescer.frames_max();
        let fetched = catch_unwind(AssertUnwindSafe(|| queue.receive(pool, batch, frames_max)));
        let holds = match &fetched {
            Ok(received) => {
                let verdict = self.coalescer.on_received(now, batch.len(), received.more);
                matches!(verdict, Verdict::Hold { .. }) && received.failed.is_none()
            }
            Err(_) => {
                batch.clear();
                false
            }
        };
        self.held.append(batch);
        if !holds {
            self.take(batch);
        }
        fetched
    }

    /// Takes what is held out, into `batch`, which must be empty.
    fn take(&mut self, batch: &mut ReceiveBatch) {
        core::mem::swap(batch, &mut self.held);
        self.coalescer.on_handed_up();
        self.sizes.add(batch.len());
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

impl Core {
    /// What came by soft rings and devices goes in, a batch from each; says whether there is more.
    pub(super) fn fetch_round(&mut self, now: Instant) -> bool {
        let Self { shard, devices, desk, receive, discipline, .. } = self;
        // Before the devices are asked, which may have no blocks to receive into.
        let mut has_more = shard.relieve_pool();
        // Before the devices are asked, so that frames of a flow that came by another squeue's
        // ring stay before those that come by its own now.
        if let Some(desk) = desk {
            let taken = hand_over::take_in(desk, shard, now, devices.ports(), receive);
            discipline.on_drained(taken.frames);
            has_more |= taken.more;
        }
        for index in 0..self.devices.ports().len() {
            let Self { devices, pool, receive, .. } = self;
            let Some(port) = devices.heard(index) else { continue };
            receive.clear();
            let fetched = port.intake.fetch(now, &mut *port.queue, pool, receive);
            self.hand_up(now, index);
            let port = &mut self.devices.ports_mut()[index];
            let Received { more, failed, .. } = port.health.survived(Task::Receive, fetched);
            has_more |= more;
            if let Some(error) = failed {
                port.health.fail(error);
            }
        }
        has_more
    }

    /// What is held of the frames of interface `index` goes in, where its device is not asked for others any more.
    pub(super) fn hand_up_held(&mut self, now: Instant, index: usize) {
        let Self { devices, receive, .. } = self;
        let port = devices.port_mut(index);
        let Some(port) = port.filter(|port| !port.intake.held.is_empty()) else {
            return;
        };
        receive.clear();
        port.intake.take(receive);
        self.hand_up(now, index);
        // What the shard has to say to them is owed.
        self.pace.owe();
    }

    /// The frames in the batch go in, as come by the device of interface `index`.
    fn hand_up(&mut self, now: Instant, index: usize) {
        let Self { shard, devices, desk, receive, discipline, .. } = self;
        let port = &devices.ports()[index];
        discipline.on_arrived(receive.len());
        match desk {
            _ if receive.is_empty() => {}
            None => {
                discipline.on_inline(receive.len());
                shard.on_receive(now, port.id, receive);
            }
            Some(desk) => desk.spread(index, port.medium, receive, |own| {
                discipline.on_inline(own.len());
                shard.on_receive(now, port.id, own);
            }),
        }
        receive.clear();
    }
}

#[cfg(test)]
mod tests;
