//! What a squeue counted: its shard, its devices, its threads and what frames passed on their way to it.

use super::squeue::Squeue;
use crate::counters::{Counters, SteeringCounters};
use std::sync::atomic::Ordering;

impl Squeue {
    /// Everything that was counted here; of the pool nothing.
    pub(crate) fn counters(&self) -> Counters {
        self.look(|core| {
            let (device, receive) = core.devices.counted();
            let mut sum = Counters {
                stack: core.shard.counters(),
                runtime: core.counters,
                squeue: *core.discipline.batch_sizes(),
                trains: core.shard.train_sizes(),
                device,
                receive,
                ..Counters::default()
            };
            let waiters_panicked = self.waiters.panics();
            let wakers_panicked = self.wakers_panicked.load(Ordering::Relaxed);
            sum.runtime.wakers_panicked = wakers_panicked + waiters_panicked;
            sum.runtime.workers_restarted = self.workers_restarted.load(Ordering::Relaxed);
            let entries = core.discipline.counters();
            sum.runtime.squeue_enters = entries.squeue_enters;
            sum.runtime.squeue_enters_contended = entries.squeue_enters_contended;
            sum.runtime.squeue_inline_batches = entries.squeue_inline_batches;
            sum.runtime.squeue_queued_batches = entries.squeue_queued_batches;
            sum.runtime.squeue_owed_on_leaving = entries.squeue_owed_on_leaving;
            sum.runtime.squeue_worker_wakeups = entries.squeue_worker_wakeups;
            sum.runtime.squeue_migrations = entries.squeue_migrations;
            sum.runtime.interrupt_turns = entries.interrupt_turns;
            sum.runtime.poll_turns = entries.poll_turns;
            sum.runtime.to_polling = entries.to_polling;
            if let Some(desk) = &core.desk {
                sum.steering = SteeringCounters {
                    sets: desk.set_counters(),
                    soft_rings: desk.soft_ring_counters(),
                    drained_batches: desk.drained_batches(),
                };
                sum.stack.drops.merge(&desk.drops());
                let (over, taken) = desk.moved();
                sum.runtime.frames_handed_over = over;
                sum.runtime.frames_taken_over = taken;
            }
            sum
        })
    }
}
