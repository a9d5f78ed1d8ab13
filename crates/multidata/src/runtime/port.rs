//! A device queue of a squeue and the interface that stands on it.
//!
//! It is under the squeue's lock. The device is the application's code: it is handed out where it goes, to be let
//! go of where no lock is held.

use super::intake::Intake;
use super::removed_queue::RemovedQueue;
use super::shared_queue::Place;
use super::turn::Panic;
use device::{Capabilities, DeviceError, Medium, Queue, TransmitMode};
use stack::{InterfaceId, Shard};
use std::io::ErrorKind;
use std::panic::resume_unwind;
use steering::Coalescing;
use time::{Duration, Instant};

/// How long after a device said `Full` it is asked again, where it does not say when
/// ([`Queue::retry_after`]): for devices whose waiters report frames to receive only; at 10 Gbit/s a queue
/// of 1,000 full frames drains in about this time.
const FULL_RETRY: Duration = Duration::from_millis(1);

/// The same where it also said what is wrong, as an interface that is down, or has taken nothing for that long, as the
/// stream of a machine that stands still: asked each millisecond, that took a twentieth of a CPU.
const TROUBLE_RETRY: Duration = Duration::from_millis(10);

/// A device that panics so often in a row where it is to do the same has failed. Each panic ends a turn, before the other
/// devices have had theirs and before anybody is told what has come.
const PANICS_MAX: u32 = 4;

/// What a device is to do in a turn.
#[derive(Clone, Copy, Debug)]
pub(super) enum Task {
    Send,
    Receive,
}

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
    pub(crate) failed: Option<DeviceError>,
    /// Since when it has taken nothing, where it said `Full`.
    full_since: Option<Instant>,
    /// How often it has panicked in a row, by [`Task`].
    panics: [u32; 2],
    /// What was told of the device.
    pub(super) told: Told,
}

/// What users were told of a device.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told {
    /// It failed.
    pub(super) failed: bool,
    /// Something is wrong with it that may pass.
    trouble: bool,
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
            failed: None,
            full_since: None,
            panics: [0; 2],
            told: Told::default(),
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
        (self.failed, self.full_since, self.told) = (None, None, Told::default());
        self.panics = [0; 2];
        self.intake.restart();
        shard.on_device_replaced(now, self.id, capabilities);
        self.follow_mode(shard);
        old
    }

    /// Nothing is sent or received by it any more, by the user's own wish. Hands its device out, as
    /// [`Port::replace`] does.
    pub(super) fn remove(&mut self, left: RemovedQueue) -> Box<dyn Queue> {
        let message = "the interface was removed";
        self.failed.get_or_insert_with(|| DeviceError::new(ErrorKind::NetworkDown, message));
        self.told.failed = true;
        self.intake.restart();
        core::mem::replace(&mut self.queue, Box::new(left))
    }

    /// Tells users what the device has met, once.
    pub(super) fn tell(&mut self, shard: &mut Shard, now: Instant) {
        if let Some(error) = &self.failed {
            if !core::mem::replace(&mut self.told.failed, true) {
                shard.on_device_failed(now, self.id, error);
            }
            return;
        }
        let trouble = self.queue.trouble();
        if trouble.is_some() != core::mem::replace(&mut self.told.trouble, trouble.is_some()) {
            shard.on_device_trouble(now, self.id, trouble.as_ref());
        }
    }

    /// What came of having it do this. A panic goes on, and is counted.
    pub(super) fn survived<T>(&mut self, task: Task, outcome: Result<T, Panic>) -> T {
        let in_a_row = &mut self.panics[task as usize];
        let panic = match outcome {
            Ok(outcome) => {
                *in_a_row = 0;
                return outcome;
            }
            Err(panic) => panic,
        };
        *in_a_row += 1;
        if *in_a_row >= PANICS_MAX {
            let what = match task {
                Task::Send => "send",
                Task::Receive => "receive",
            };
            let message =
                format!("the device panicked {in_a_row} times in a row when it was to {what}");
            self.failed.get_or_insert_with(|| DeviceError::new(ErrorKind::NetworkDown, message));
        }
        resume_unwind(panic)
    }

    /// It takes packets.
    pub(super) fn on_taken(&mut self) {
        self.full_since = None;
    }

    /// When a device that said `Full` is asked again at the latest. Many wake their waiter when there is room, and
    /// others leave all they have to this; so it is soon at first, and then after as long as it was full already.
    pub(super) fn retry(&mut self, now: Instant) -> Instant {
        let since = *self.full_since.get_or_insert(now);
        now + match self.queue.retry_after() {
            Some(after) => after,
            None if self.queue.trouble().is_some() => TROUBLE_RETRY,
            None => now.since(since).clamp(FULL_RETRY, TROUBLE_RETRY),
        }
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
                self.failed = Some(error);
            }
        }
        let capabilities = self.queue.capabilities();
        self.frame_len_max = frame_len_max(capabilities.mtu_bytes);
        shard.set_capabilities(self.id, capabilities);
    }
}
