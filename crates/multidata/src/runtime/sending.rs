//! What a squeue's shard has to send, on its way to the device queues and to other squeues.

use super::hand_over;
use super::health::Task;
use super::port::Port;
use super::squeue::Core;
use batch::Multidata;
use device::{Queue, Room, Stop, Transmitted};
use stack::{InterfaceId, Shard};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use time::Instant;

/// Batches handed to one device queue in one round.
const BATCHES_MAX: usize = 16;

impl Core {
    /// Timers that are due fire, and what there is to send goes out; says whether there is more.
    pub(super) fn send_round(&mut self, now: Instant) -> bool {
        if self.shard.poll_timeout().is_some_and(|due| due <= now) {
            self.shard.on_timeout(now);
        }
        self.transmit_round(now)
    }

    /// What there is to send goes out by the devices and to the other squeues; says whether there is more.
    pub(super) fn transmit_round(&mut self, now: Instant) -> bool {
        let Self { shard, devices, desk, transmit, pace, .. } = self;
        let mut has_more = false;
        if shard.is_loopback_pending() {
            // No device need be left for it.
            shard.poll_transmit(now, InterfaceId::LOOPBACK, Room::UNBOUNDED, transmit);
        }
        for port in devices.ports_mut().iter_mut().filter(|port| port.failed().is_none()) {
            let sent = catch_unwind(AssertUnwindSafe(|| send(shard, port, transmit, now)));
            match port.health.survived(Task::Send, sent) {
                Sending::Done => {}
                Sending::Full => pace.retry_at(port.retry(now)),
                Sending::Unfinished => has_more = true,
            }
        }
        has_more |= shard.is_loopback_pending() | shard.take_copies_queued();
        if let Some(desk) = desk {
            hand_over::pass_strays(desk, shard);
        }
        has_more
    }
}

/// Why [`send`] ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sending {
    /// Nothing more to send.
    Done,
    /// The device has no room, or what it took does not go on by itself.
    Full,
    /// The budget was used up.
    Unfinished,
}

/// Hands one device whatever the shard has to send: build, offer, commit what was taken.
fn send(shard: &mut Shard, port: &mut Port, batch: &mut Multidata, now: Instant) -> Sending {
    port.queue.reclaim();
    // One that only takes back what it said has no room, as far as can be told.
    let mut sending = Sending::Full;
    for _ in 0..BATCHES_MAX {
        // A full device is offered one packet all the same: only who was told `Full` is woken when
        // there is room again.
        let Room { packets, bytes } = port.queue.room();
        let room = Room { packets: packets.max(1), bytes: bytes.max(port.frame_len_max) };
        if shard.poll_transmit(now, port.id, room, batch) == 0 {
            sending = if port.queue.is_stalled() { Sending::Full } else { Sending::Done };
            break;
        }
        let transmitted = catch_unwind(AssertUnwindSafe(|| port.queue.transmit(batch)));
        let transmitted = transmitted.unwrap_or_else(|panic| {
            // The shard must hear of each batch it made, or forgets those that it is of.
            let none = Transmitted { taken: 0, stopped: Some(Stop::Full) };
            shard.on_transmitted(now, port.id, &none);
            resume_unwind(panic)
        });
        shard.on_transmitted(now, port.id, &transmitted);
        if transmitted.taken > 0 || transmitted.stopped == Some(Stop::Refused) {
            port.health.on_taken();
            sending = Sending::Unfinished;
        }
        match transmitted.stopped {
            None | Some(Stop::Refused) => {}
            Some(Stop::Full) => {
                sending = Sending::Full;
                break;
            }
            Some(Stop::Revoked) => port.on_revoked(shard),
            Some(Stop::Failed(error)) => {
                // The shard has heard of it.
                port.health.fail_untold(error);
            }
        }
        if port.failed().is_some() {
            sending = Sending::Done;
            break;
        }
    }
    batch.clear();
    sending
}
