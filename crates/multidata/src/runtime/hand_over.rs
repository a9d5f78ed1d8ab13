//! What squeues hand to each other, and how they are told.
//!
//! What lies between the devices and the shards of several squeues is `steering`'s
//! ([`Exchange`](steering::Exchange), [`Desk`]), and virtual time runs the same. Here is what takes threads.
//!
//! Telling makes sure that somebody comes: it wakes the thread that waits there. It must not wait for
//! a lock, so it tries: where somebody is inside, that one looks again after it has left (a
//! [`Door`](steering::Door)). So nothing is left lying, and nobody holds two squeues.

use super::memory_watch::MemoryWatch;
use super::port::Port;
use super::squeue::Squeue;
use core::net::SocketAddr;
use stack::{Homes, Shard, Share, Stray};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use steering::{Arrived, Home, SoftRingConfig, Spread, TakenIn};
use time::Instant;

/// What the squeues of a stack share beside their exchange.
pub(crate) struct HandOver {
    exchange: Arc<steering::Exchange<Stray>>,
    squeues: OnceLock<Vec<Weak<Squeue>>>,
    /// Squeues that may have something left to deliver, after the stack's last handle is gone: a bit for
    /// each.
    undelivered: AtomicU64,
    memory: MemoryWatch,
}

/// A squeue's part in handing over; it is under the squeue's lock.
pub(crate) type Desk = steering::Desk<Stray>;

impl HandOver {
    /// For the squeues of this spread and so many interfaces, where there are several squeues, or an only one
    /// has soft rings. A squeue without either has nothing between its device and its shard.
    /// What is told apart by `secret` are flows in soft rings.
    pub(crate) fn new(spread: Spread, interfaces: usize, secret: [u64; 2]) -> Option<Arc<Self>> {
        let count = usize::from(spread.homes());
        let layout = spread.layout();
        let has_own_rings = layout.soft_rings() > 0 && !layout.fan_out();
        (count > 1 || has_own_rings).then(|| {
            let rings = SoftRingConfig::default();
            Arc::new(Self {
                exchange: Arc::new(
                    steering::Exchange::new(spread, interfaces, rings).with_secret(secret),
                ),
                squeues: OnceLock::new(),
                undelivered: AtomicU64::new(u64::MAX >> (64 - count)),
                memory: MemoryWatch::new(count),
            })
        })
    }

    /// Whether there are several squeues, which have something to hand over.
    pub(crate) fn has_several(&self) -> bool {
        self.exchange.spread().homes() > 1
    }

    /// The desk of squeue `index`.
    pub(crate) fn desk(&self, index: usize) -> Desk {
        Desk::new(&self.exchange, Home(index as u16))
    }

    /// Says which squeues these are, once.
    pub(crate) fn connect(&self, squeues: &[Arc<Squeue>]) {
        let squeues = squeues.iter().map(Arc::downgrade).collect();
        let connected = self.squeues.set(squeues);
        debug_assert!(connected.is_ok(), "the squeues of a stack are made once");
    }

    /// What shard `index` is among those of the stack.
    pub(crate) fn share(self: &Arc<Self>, index: usize) -> Share {
        let count = self.exchange.spread().homes().into();
        Share { index, count, homes: Arc::clone(self) as _ }
    }

    /// Which squeue has what.
    pub(crate) fn spread(&self) -> &Spread {
        self.exchange.spread()
    }

    /// Notes that squeue `index` has delivered everything, and wakes all where it was the last.
    pub(super) fn on_delivered(&self, index: usize) {
        let own = 1 << index;
        if self.undelivered.fetch_and(!own, Ordering::AcqRel) == own {
            let squeues = self.squeues.get().into_iter().flatten();
            squeues.filter_map(Weak::upgrade).for_each(|squeue| squeue.wake_threads());
        }
    }

    /// Whether all squeues have.
    pub(super) fn is_delivered(&self) -> bool {
        self.undelivered.load(Ordering::Acquire) == 0
    }

    /// Sees to it that somebody runs these squeues, a bit for each.
    pub(super) fn tell(&self, mut squeues: u64) {
        while squeues != 0 {
            let index = squeues.trailing_zeros() as usize;
            squeues &= squeues - 1;
            let all = self.squeues.get();
            let squeue = all.and_then(|all| all.get(index)).and_then(Weak::upgrade);
            let Some(squeue) = squeue else { continue };
            self.exchange.announce(index);
            if let Some(core) = squeue.try_lock() {
                squeue.release(core);
            }
        }
    }

    /// Has the threads of all squeues but this one look again: a device has failed, and one that they share
    /// tells only who asks it; or the pool runs low, and they may hold what is copied out.
    pub(super) fn wake_others(&self, index: usize) {
        let squeues = self.squeues.get().into_iter().flatten().enumerate();
        let others = squeues.filter(|(other, _)| *other != index);
        others.filter_map(|(_, squeue)| squeue.upgrade()).for_each(|it| it.wake_threads());
    }

    /// Which squeues have tasks that wait for memory.
    pub(super) fn memory(&self) -> &MemoryWatch {
        &self.memory
    }

    /// Has whoever sleeps on the first device of these squeues, a bit for each, look for memory: a leader or the worker.
    pub(super) fn tell_of_memory(&self, squeues: u64) {
        let all = self.squeues.get().into_iter().flatten().enumerate();
        let told = all.filter(|(index, _)| squeues >> index & 1 > 0);
        let squeues = told.filter_map(|(_, squeue)| squeue.upgrade());
        squeues.for_each(|squeue| squeue.waiters.wake_first());
    }

    /// Whether squeue `index` was told something since [`steering::Desk::take_note`]; asked after unlocking.
    pub(super) fn is_told(&self, index: usize) -> bool {
        self.exchange.is_owed(index)
    }
}

impl Homes for HandOver {
    fn of_flow(&self, local: SocketAddr, remote: SocketAddr) -> usize {
        self.exchange.spread().home_of_reply(local, remote).index()
    }

    fn of_port(&self, port: u16) -> usize {
        self.exchange.spread().home_of_datagrams(port).index()
    }
}

/// Whether the other squeues are to look again when the lock is released ([`HandOver::wake_others`]).
#[derive(Default)]
pub(super) struct Concern {
    is_due: bool,
    /// How often the pool had run low when they were told last.
    pressures: u64,
}

impl Concern {
    /// A device failed, or another came.
    pub(super) fn on_failure(&mut self) {
        self.is_due = true;
    }

    /// The pool that all have together has run low so often.
    pub(super) fn on_pressures(&mut self, pressures: u64) {
        self.is_due |= pressures != self.pressures;
        self.pressures = pressures;
    }

    /// They are told now where this says so.
    pub(super) fn take(&mut self) -> bool {
        core::mem::take(&mut self.is_due)
    }
}

/// Takes in what others received for the shard of this desk.
pub(super) fn take_in(
    desk: &mut Desk,
    shard: &mut Shard,
    now: Instant,
    ports: &[Port],
    batch: &mut batch::ReceiveBatch,
) -> TakenIn {
    desk.take_in(batch, |arrived| match arrived {
        Arrived::Frames(interface, frames) => {
            if let Some(port) = ports.get(interface) {
                shard.on_receive(now, port.id, frames);
            }
        }
        Arrived::Stray(stray) => shard.on_stray(now, &stray),
    })
}

/// Hands on what turned out to be for others only in the shard.
pub(super) fn pass_strays(desk: &mut Desk, shard: &mut Shard) {
    while let Some(stray) = shard.poll_stray() {
        let (home, weight) = (stray.home, stray.weight());
        desk.hand_on(home, stray, weight);
    }
}
