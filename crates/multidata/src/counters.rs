//! All counter tables of a running stack.

use crate::runtime::RuntimeCounters;
use batch::PoolCounters;
use device::DeviceCounters;
use stack::StackCounters;
use steering::{BatchSizes, SoftRingCounters, SoftRingSetCounters};

/// Everything a stack counted, from the sockets down to the devices.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// The shard, all its connections, and every drop by its reason.
    pub stack: StackCounters,
    /// All device queues together; [`Stack::interfaces`](crate::Stack::interfaces) has them apart.
    pub device: DeviceCounters,
    /// How many batches of which size came up from the devices.
    pub receive: BatchSizes,
    /// The block pool.
    pub pool: PoolCounters,
    /// Locks, waits, wake-ups and copies.
    pub runtime: RuntimeCounters,
    /// How frames were spread over squeues; zeros where there is one squeue.
    pub steering: SteeringCounters,
    /// Sizes of the batches that squeues processed, whichever way they came: by a device, or from
    /// another squeue.
    pub squeue: BatchSizes,
    /// How many segments TCP took as one unit.
    pub trains: BatchSizes,
}

/// What happens between devices and several squeues.
#[derive(Clone, Copy, Debug, Default)]
pub struct SteeringCounters {
    /// How received frames were classified.
    pub sets: SoftRingSetCounters,
    /// What was put into soft rings and taken out.
    pub soft_rings: SoftRingCounters,
    /// Sizes of the batches taken out of them.
    pub drained_batches: BatchSizes,
}

impl SteeringCounters {
    fn merge(&mut self, other: &Self) {
        self.sets.merge(&other.sets);
        self.soft_rings.merge(&other.soft_rings);
        self.drained_batches.merge(&other.drained_batches);
    }
}

impl Counters {
    /// Adds the figures of another table.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.stack.merge(&other.stack);
        self.device.merge(&other.device);
        self.receive.merge(&other.receive);
        self.pool.merge(&other.pool);
        self.runtime.merge(&other.runtime);
        self.steering.merge(&other.steering);
        self.squeue.merge(&other.squeue);
        self.trains.merge(&other.trains);
    }

    /// Visits every counter as `table.name` and value.
    pub fn for_each(&self, visit: &mut dyn FnMut(&str, u64)) {
        let mut name = String::new();
        let mut named = |table: &str, counter: &str, value| {
            name.clear();
            name.push_str(table);
            name.push('.');
            name.push_str(counter);
            visit(&name, value);
        };
        self.stack.for_each(&mut |counter, value| named("stack", counter, value));
        self.device.for_each(&mut |counter, value| named("device", counter, value));
        self.receive.for_each(&mut |counter, value| named("receive", counter, value));
        self.pool.for_each(&mut |counter, value| named("pool", counter, value));
        self.runtime.for_each(&mut |counter, value| named("runtime", counter, value));
        let SteeringCounters { sets, soft_rings, drained_batches } = self.steering;
        sets.for_each(&mut |counter, value| named("steering", counter, value));
        soft_rings.for_each(&mut |counter, value| named("steering", counter, value));
        drained_batches.for_each(&mut |counter, value| named("soft_rings", counter, value));
        self.squeue.for_each(&mut |counter, value| named("squeue", counter, value));
        self.trains.for_each(&mut |counter, value| named("trains", counter, value));
    }
}
