//! Which squeue has a connection is left to the device only where that says that it keeps each on one queue.

mod pair;

use batch::{BlockPool, Multidata, ReceiveBatch};
use device::{
    Capabilities, DeviceCounters, DeviceError, Queue, Received, Room, TransmitMode, Transmitted,
    Waiter, WireQueue,
};
use multidata::{Stack, StackBuilder};
use pair::{LEFT, interface};
use std::io::ErrorKind;
use std::sync::Arc;

/// A wire that does not say that it keeps flows.
struct Forgetful(WireQueue);

impl Queue for Forgetful {
    fn capabilities(&self) -> Capabilities {
        Capabilities { keeps_flows: false, ..self.0.capabilities() }
    }

    fn set_mode(&mut self, mode: TransmitMode) -> Result<(), DeviceError> {
        self.0.set_mode(mode)
    }

    fn room(&self) -> Room {
        self.0.room()
    }

    fn transmit(&mut self, batch: &Multidata) -> Transmitted {
        self.0.transmit(batch)
    }

    fn receive(&mut self, pool: &BlockPool, batch: &mut ReceiveBatch, max: usize) -> Received {
        self.0.receive(pool, batch, max)
    }

    fn waiter(&self) -> Arc<dyn Waiter> {
        self.0.waiter()
    }

    fn counters(&self) -> DeviceCounters {
        self.0.counters()
    }
}

fn queues(count: usize, are_forgetful: bool) -> Vec<Box<dyn Queue>> {
    let wires = (0..count).map(|_| device::wire(pair::ethernet()).0);
    wires
        .map(|wire| match are_forgetful {
            true => Box::new(Forgetful(wire)) as Box<dyn Queue>,
            false => Box::new(wire),
        })
        .collect()
}

fn builder(layout: &str, queues: Vec<Box<dyn Queue>>) -> StackBuilder {
    let layout = layout.parse().expect("a layout");
    Stack::builder().layout(layout).multiqueue_interface(queues, interface(LEFT))
}

#[test]
fn a_layout_without_fan_out_needs_a_device_that_keeps_flows() {
    for (layout, rings) in [("R2S0F0", 2), ("R2S4F0", 2)] {
        let error = builder(layout, queues(rings, true)).build().expect_err("flows may move");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let text = error.to_string();
        assert!(text.contains(layout) && text.contains("R2S2F1"), "{text}");
        let stack = builder(layout, queues(rings, false)).build().expect("they stay");
        // One that takes its place must keep them as well.
        let error = stack.replace_queues(0, queues(rings, true)).expect_err("flows may move");
        assert!(error.to_string().contains("R2S2F1"), "{error}");
        stack.replace_queues(0, queues(rings, false)).expect("they stay");
    }
    // Where it does not matter by which queue a frame comes, it may be any device.
    for (layout, rings) in [("R2S2F1", 2), ("R1S0F0", 1), ("R1S8F0", 1), ("R1S2F1", 1)] {
        builder(layout, queues(rings, true)).build().expect("any device will do");
    }
}
