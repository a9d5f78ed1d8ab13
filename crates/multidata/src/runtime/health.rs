//! What a device has met since it stands in its place, and what users were told of it.

use super::turn::Panic;
use device::{DeviceError, Queue};
use stack::{InterfaceId, Shard};
use std::io::ErrorKind;
use std::panic::resume_unwind;
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

/// See the module documentation. One that is new has met nothing.
#[derive(Default)]
pub(super) struct Health {
    failed: Option<DeviceError>,
    /// Since when it has taken nothing, where it said `Full`.
    full_since: Option<Instant>,
    /// How often it has panicked in a row, by [`Task`].
    panics: [u32; 2],
    /// Users were told that it failed, or need not be.
    told_failed: bool,
    /// They were told that something is wrong with it that may pass.
    told_trouble: bool,
}

impl Health {
    /// Why it failed, where it did.
    pub(super) fn failed(&self) -> Option<&DeviceError> {
        self.failed.as_ref()
    }

    /// It failed, which users are to be told.
    pub(super) fn fail(&mut self, error: DeviceError) {
        self.failed = Some(error);
    }

    /// It has failed, unless it had before, and users know or brought it about.
    pub(super) fn fail_untold(&mut self, error: DeviceError) {
        self.failed.get_or_insert(error);
        self.told_failed = true;
    }

    /// Tells users what it has met, once.
    pub(super) fn tell(
        &mut self,
        queue: &dyn Queue,
        shard: &mut Shard,
        now: Instant,
        id: InterfaceId,
    ) {
        if let Some(error) = &self.failed {
            if !core::mem::replace(&mut self.told_failed, true) {
                shard.on_device_failed(now, id, error);
            }
            return;
        }
        let trouble = queue.trouble();
        if trouble.is_some() != core::mem::replace(&mut self.told_trouble, trouble.is_some()) {
            shard.on_device_trouble(now, id, trouble.as_ref());
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
    pub(super) fn retry(&mut self, now: Instant, queue: &dyn Queue) -> Instant {
        let since = *self.full_since.get_or_insert(now);
        now + match queue.retry_after() {
            Some(after) => after,
            None if queue.trouble().is_some() => TROUBLE_RETRY,
            None => now.since(since).clamp(FULL_RETRY, TROUBLE_RETRY),
        }
    }
}
