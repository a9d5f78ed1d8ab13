//! An event loop that runs a squeue in the place of its threads ([`Stack::drivers`](crate::Stack::drivers)).
//!
//! While it waits for the device it leads, as a thread would, and who has to wait relies on it. While it is *yielding*
//! it is awake, and comes back behind the tasks that it has woken, which leave the shard to it.
//!
//! What always holds: from when it leads or yields until it is back, or is not relied on any more, it is the leader of the
//! squeue's [`Watch`](steering::Watch), asleep or awake.

use super::squeue::{Core, own_token};
use super::worker::ASIDE_MAX;
use steering::ThreadToken;
use time::Instant;

/// See the module documentation.
#[derive(Default)]
pub(crate) struct EventLoop {
    /// There is one.
    is_attached: bool,
    /// Since when it leads or yields, where it does.
    leads_since: Option<Instant>,
    /// Its thread, where it is yielding.
    yielding: Option<ThreadToken>,
}

impl EventLoop {
    /// Says whether it is the only one. Another one is not attached.
    pub(crate) fn attach(&mut self) -> bool {
        !core::mem::replace(&mut self.is_attached, true)
    }

    pub(crate) fn detach(&mut self) {
        self.is_attached = false;
    }

    /// Whether the calling thread is its own, and it is yielding.
    fn yields_here(&self) -> bool {
        self.yielding.is_some_and(|thread| thread == own_token())
    }

    /// Whether it leads and may be one that does not run just now: one that yields was to come back at once.
    fn is_late(&self, now: Instant) -> bool {
        self.leads_since.is_some_and(|since| now.since(since) >= ASIDE_MAX)
    }
}

impl Core {
    /// The loop waits for the device from now on, and says so; it is to come back at the returned time at the latest.
    pub(crate) fn begin_loop_lead(&mut self, now: Instant) -> Option<Instant> {
        let until = self.deadline();
        self.watch.lead(None, until);
        self.event_loop.leads_since = Some(now);
        self.counters.leader_waits += 1;
        until
    }

    /// The loop is back that led.
    pub(crate) fn end_loop_lead(&mut self) {
        self.watch.on_leader_back();
        self.event_loop.leads_since = None;
    }

    /// The loop, whose thread this is, comes back behind the tasks that it has woken.
    pub(crate) fn begin_yielding(&mut self, now: Instant) {
        self.watch.lead_awake(None, now);
        self.event_loop.leads_since = Some(now);
        self.event_loop.yielding = Some(own_token());
    }

    /// The loop is back that was awake, or is not relied on any more: then somebody else may lead by the time it comes.
    pub(crate) fn end_yielding(&mut self) {
        if self.event_loop.yielding.take().is_some() {
            self.watch.on_awake_leader_back();
            self.event_loop.leads_since = None;
        }
    }

    /// Whether the calling thread is that of an event loop which has woken tasks and runs this shard behind them. What
    /// they send then leaves in one batch, and the devices are asked once instead of by each task: with 64 connections
    /// that ask for a byte each it takes a quarter less CPU. Only as long as it is little; more is not to wait.
    pub(crate) fn is_left_to_loop(&self) -> bool {
        self.event_loop.yields_here() && self.pace.has_little_unpolled()
    }

    /// Whether a loop leads that may be one that does not run just now.
    pub(super) fn is_loop_late(&self, now: Instant) -> bool {
        self.event_loop.is_late(now)
    }

    /// A loop that was to come back at once and has not is not relied on any more; one that sleeps may have nothing to
    /// come for.
    pub(super) fn give_up_late_loop(&mut self, now: Instant) {
        if self.is_loop_late(now) {
            self.end_yielding();
        }
    }
}
