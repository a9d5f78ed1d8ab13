//! All counter tables of a running stack.

use crate::runtime::RuntimeCounters;
use batch::PoolCounters;
use device::DeviceCounters;
use stack::StackCounters;
use steering::BatchSizes;

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
}

impl Counters {
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
    }
}
