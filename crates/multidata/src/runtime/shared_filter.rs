//! A packet filter for several shards.
//!
//! A filter may keep state that is about all traffic, so there is one, and the shards that share it
//! take turns, behind a lock taken once for each batch. A shard that has it to itself has no lock.

use batch::{Multidata, ReceiveBatch};
use core::ops::Range;
use stack::{FilterFlow, Handling, InterfaceId, PacketFilter, Verdict};
use std::sync::{Arc, Mutex, MutexGuard};
use time::Instant;

/// The filter for each of `count` shards.
pub(crate) fn for_each(
    filter: Option<Box<dyn PacketFilter>>,
    count: usize,
) -> Vec<Option<Box<dyn PacketFilter>>> {
    let Some(filter) = filter else { return (0..count).map(|_| None).collect() };
    if count == 1 {
        return vec![Some(filter)];
    }
    let shared = SharedFilter(Arc::new(Mutex::new(filter)));
    (0..count).map(|_| Some(Box::new(shared.clone()) as _)).collect()
}

#[derive(Clone)]
struct SharedFilter(Arc<Mutex<Box<dyn PacketFilter>>>);

impl SharedFilter {
    /// A filter that panicked goes on as it is, as with one shard.
    fn filter(&self) -> MutexGuard<'_, Box<dyn PacketFilter>> {
        super::locked(&self.0)
    }
}

impl PacketFilter for SharedFilter {
    fn handling(&self, flow: &FilterFlow) -> Handling {
        self.filter().handling(flow)
    }

    fn transmit(
        &mut self,
        now: Instant,
        interface: InterfaceId,
        batch: &Multidata,
        packets: Range<usize>,
        verdicts: &mut [Verdict],
    ) {
        self.filter().transmit(now, interface, batch, packets, verdicts);
    }

    fn receives_batches(&self) -> bool {
        self.filter().receives_batches()
    }

    fn receive(
        &mut self,
        now: Instant,
        interface: InterfaceId,
        frames: &ReceiveBatch,
        verdicts: &mut [Verdict],
    ) {
        self.filter().receive(now, interface, frames, verdicts);
    }
}
