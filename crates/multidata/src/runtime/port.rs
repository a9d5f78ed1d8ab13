//! A device queue of a squeue and the interface that stands on it.
//!
//! It is under the squeue's lock. The device is the application's code: it is handed out where it goes, to be let
//! go of where no lock is held.

use super::health::Health;
use super::intake::Intake;
use super::removed_queue::RemovedQueue;
use super::shared_queue::Place;
use device::{Capabilities, DeviceError, Medium, Queue, TransmitMode};
use stack::{InterfaceId, Shard};
use std::io::ErrorKind;
use steering::Coalescing;
use time::Instant;

/// One device queue and the interface that stands on it.
pub(crate) struct Port {
    pub(crate) id: InterfaceId,
    pub(crate) queue: Box<dyn Queue>,
    /// What its frames pass before they come to the shard.
    pub(crate) intake: Intake,
    /// Whether frames come by this queue, and not by another squeue's alone.
    pub(crate) receives: bool,
    /// What lies around its packets.
    pub(crate) medium: Medium,
    pub(crate) mode: TransmitMode,
    /// The longest frame, link header included.
    pub(crate) frame_len_max: usize,
    pub(super) health: Health,
}

/// Room for any link header.
pub(crate) const LINK_HEADER_LEN_MAX: usize = 32;

/// A device may say anything of its packets.
fn frame_len_max(mtu_bytes: usize) -> usize {
    mtu_bytes.saturating_add(LINK_HEADER_LEN_MAX)
}

impl Port {
    pub(crate) fn new(id: InterfaceId, place: Place, coalescing: Coalescing) -> Self {
        let Place { queue, receives } = place;
        let Capabilities { medium, mtu_bytes, .. } = queue.capabilities();
        Self {
            id,
            queue,
            intake: Intake::new(coalescing),
            receives,
            medium,
            mode: TransmitMode::default(),
            frame_len_max: frame_len_max(mtu_bytes),
            health: Health::default(),
        }
    }

    /// Puts another device in the place of this one, whose failure is forgotten, and hands the old one out:
    /// it is the application's code, which is let go of under no lock. It was brought
    /// to the mode that it has where this one is wanted.
    pub(super) fn replace(
        &mut self,
        shard: &mut Shard,
        now: Instant,
        place: Place,
        wanted: Option<TransmitMode>,
    ) -> Box<dyn Queue> {
        let capabilities = place.queue.capabilities();
        let mode = capabilities.mode_for(wanted);
        let old = core::mem::replace(&mut self.queue, place.queue);
        (self.medium, self.mode) = (capabilities.medium, mode);
        self.health = Health::default();
        self.intake.restart();
        shard.on_device_replaced(now, self.id, capabilities);
        self.follow_mode(shard);
        old
    }

    /// Nothing is sent or received by it any more, by the user's own wish. Hands its device out, as
    /// [`Port::replace`] does.
    pub(super) fn remove(&mut self, left: RemovedQueue) -> Box<dyn Queue> {
        let message = "the interface was removed";
        self.health.fail_untold(DeviceError::new(ErrorKind::NetworkDown, message));
        self.intake.restart();
        core::mem::replace(&mut self.queue, Box::new(left))
    }

    /// Why its device failed, where it did.
    pub(crate) fn failed(&self) -> Option<&DeviceError> {
        self.health.failed()
    }

    /// Tells users what the device has met, once.
    pub(super) fn tell(&mut self, shard: &mut Shard, now: Instant) {
        self.health.tell(&*self.queue, shard, now, self.id);
    }

    /// When a device that said `Full` is asked again at the latest.
    pub(super) fn retry(&mut self, now: Instant) -> Instant {
        self.health.retry(now, &*self.queue)
    }

    /// The device took a capability back: what is left decides how batches are built from now on.
    pub(super) fn on_revoked(&mut self, shard: &mut Shard) {
        shard.set_capabilities(self.id, self.queue.capabilities());
        self.follow_mode(shard);
    }

    /// Brings the device queue to the mode that the shard has negotiated, and the shard what the
    /// queue can do in it.
    pub(crate) fn follow_mode(&mut self, shard: &mut Shard) {
        let mode = shard.mode(self.id).unwrap_or(self.mode);
        if mode != self.mode {
            self.mode = mode;
            if let Err(error) = self.queue.set_mode(mode) {
                self.health.fail(error);
            }
        }
        let capabilities = self.queue.capabilities();
        self.frame_len_max = frame_len_max(capabilities.mtu_bytes);
        shard.set_capabilities(self.id, capabilities);
    }
}
