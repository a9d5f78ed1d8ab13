//! What stands in the place of a device whose interface was removed.
//!
//! It has counted what that counted, and can what that could, for whoever asks for the interface's status; it takes
//! nothing and brings nothing. So the device itself can be let go of while the stack goes on: its
//! file is closed, and who has the other end hears of it.

use super::waiting::Parker;
use batch::{BlockPool, Multidata, ReceiveBatch};
use core::time::Duration;
use device::{
    Capabilities, DeviceCounters, DeviceError, Queue, Received, Room, Stop, TransmitMode,
    Transmitted, Waiter,
};
use std::sync::Arc;

/// See the module documentation.
pub(super) struct RemovedQueue {
    capabilities: Capabilities,
    counters: DeviceCounters,
    waiter: Arc<Nothing>,
}

impl RemovedQueue {
    /// In the place of one that could this, as far as the shard knows, and has counted that.
    pub(super) fn new(capabilities: Capabilities, counters: DeviceCounters) -> Self {
        Self { capabilities, counters, waiter: Arc::default() }
    }
}

impl Queue for RemovedQueue {
    fn capabilities(&self) -> Capabilities {
        self.capabilities.clone()
    }

    fn set_mode(&mut self, _mode: TransmitMode) -> Result<(), DeviceError> {
        Ok(())
    }

    fn room(&self) -> Room {
        Room { packets: 0, bytes: 0 }
    }

    fn transmit(&mut self, _batch: &Multidata) -> Transmitted {
        Transmitted { taken: 0, stopped: Some(Stop::Full) }
    }

    fn receive(&mut self, _: &BlockPool, _: &mut ReceiveBatch, _frames_max: usize) -> Received {
        Received::default()
    }

    fn waiter(&self) -> Arc<dyn Waiter> {
        Arc::clone(&self.waiter) as Arc<dyn Waiter>
    }

    fn counters(&self) -> DeviceCounters {
        self.counters
    }
}

/// Waiting for nothing but being woken.
#[derive(Default)]
struct Nothing(Parker);

impl Waiter for Nothing {
    fn wait(&self, timeout: Option<Duration>) {
        self.0.park(timeout);
    }

    fn wake(&self) {
        self.0.notify();
    }
}
