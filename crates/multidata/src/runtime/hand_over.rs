//! What squeues hand to each other.
//!
//! With several squeues a frame may arrive at another one than its connection belongs to. Who received
//! it takes its batch apart by home (a [`SoftRingSet`] of `steering`), processes its own part, and
//! puts the others into *soft rings*, bounded queues of which every squeue has one for each interface.
//!
//! ```text
//!  thread in squeue 0                                     whoever is in squeue 1 next
//!   device -> receive -> split -+-> own part -> shard 0
//!                               +-> soft ring --------------> Core::run -> shard 1
//!                                   then, the lock released: tell squeue 1
//! ```
//!
//! Telling makes sure that somebody comes: it wakes the thread that waits there. It must not wait for
//! a lock, so it tries: where somebody is inside, that one looks again after it has left (a [`Door`]).
//! So nothing is left lying, and nobody holds two squeues.
//!
//! What always holds: the frames of a flow that came by one ring reach its shard in order; soft rings
//! are bounded, and what does not fit is dropped, counted, and fairly between flows.

use super::squeue::{Port, Squeue};
use crate::counters::SteeringCounters;
use batch::ReceiveBatch;
use core::net::SocketAddr;
use counters::{DropCounters, DropReason};
use stack::{Homes, Shard, Share, Stray};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use steering::{Door, Policy, SoftRing, SoftRingConfig, SoftRingSet, Spread};
use time::Instant;

/// Frames taken from one soft ring at a time, as from a device queue.
const FRAMES_MAX: usize = 256;

/// Bare packets that wait for a squeue at most.
const STRAYS_MAX: usize = 1_024;

/// What the squeues of a stack share to hand frames to each other.
pub(crate) struct HandOver {
    spread: Spread,
    inboxes: Vec<Inbox>,
    squeues: OnceLock<Vec<Weak<Squeue>>>,
    /// Squeues that may have something left to deliver, after the stack's last handle is gone: a bit for
    /// each.
    undelivered: AtomicU64,
}

/// What waits for one squeue.
struct Inbox {
    /// One for each interface.
    rings: Vec<SoftRing>,
    strays: Mutex<VecDeque<Stray>>,
    strays_len: AtomicUsize,
    strays_dropped: AtomicUsize,
    /// Where it is announced that something was put in.
    door: Door,
}

impl HandOver {
    /// For the squeues of this spread, where there are several, and so many interfaces.
    pub(crate) fn new(spread: Spread, interfaces: usize) -> Option<Arc<Self>> {
        let count = usize::from(spread.homes());
        let inbox = |_| Inbox {
            rings: (0..interfaces).map(|_| SoftRing::new(SoftRingConfig::default())).collect(),
            strays: Mutex::default(),
            strays_len: AtomicUsize::new(0),
            strays_dropped: AtomicUsize::new(0),
            door: Door::default(),
        };
        (count > 1).then(|| {
            Arc::new(Self {
                spread,
                inboxes: (0..count).map(inbox).collect(),
                squeues: OnceLock::new(),
                undelivered: AtomicU64::new(u64::MAX >> (64 - count)),
            })
        })
    }

    /// Says which squeues these are, once.
    pub(crate) fn connect(&self, squeues: &[Arc<Squeue>]) {
        let squeues = squeues.iter().map(Arc::downgrade).collect();
        let connected = self.squeues.set(squeues);
        debug_assert!(connected.is_ok(), "the squeues of a stack are made once");
    }

    /// What shard `index` is among those of the stack.
    pub(crate) fn share(self: &Arc<Self>, index: usize) -> Share {
        Share { index, count: self.inboxes.len(), homes: Arc::clone(self) as _ }
    }

    /// Whether every squeue has local ports for every peer.
    pub(crate) fn is_home_by_port(&self) -> bool {
        self.spread.policy() == Policy::Flow
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
            let (Some(inbox), Some(squeue)) = (self.inboxes.get(index), squeue) else { continue };
            inbox.door.announce();
            if let Some(core) = squeue.try_lock() {
                squeue.release(core);
            }
        }
    }

    /// Whether squeue `index` was told something since [`Desk::take_note`]; asked after unlocking.
    pub(super) fn is_told(&self, index: usize) -> bool {
        self.inboxes.get(index).is_some_and(|inbox| inbox.door.is_owed())
    }
}

impl Homes for HandOver {
    fn of_flow(&self, local: SocketAddr, remote: SocketAddr) -> Option<usize> {
        self.spread.home_of_reply(local, remote).map(steering::Home::index)
    }

    fn of_port(&self, port: u16) -> usize {
        self.spread.home_of_datagrams(port).index()
    }
}

impl Inbox {
    fn strays(&self) -> MutexGuard<'_, VecDeque<Stray>> {
        self.strays.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn depth(&self) -> usize {
        let frames: usize = self.rings.iter().map(SoftRing::depth).sum();
        frames + self.strays_len.load(Ordering::Acquire)
    }

    fn push_stray(&self, stray: Stray) {
        let mut strays = self.strays();
        if strays.len() >= STRAYS_MAX {
            self.strays_dropped.fetch_add(1, Ordering::Relaxed);
        } else {
            strays.push_back(stray);
            self.strays_len.store(strays.len(), Ordering::Release);
        }
    }
}

/// A squeue's part in handing over; it is under the squeue's lock.
pub(crate) struct Desk {
    index: usize,
    hand_over: Arc<HandOver>,
    /// One for each interface.
    sets: Vec<SoftRingSet>,
    /// Squeues that something was handed to and that are to be told when the lock is released, a bit for
    /// each.
    concerned: u64,
    frames_handed_over: u64,
    frames_taken_over: u64,
}

impl Desk {
    pub(crate) fn new(hand_over: &Arc<HandOver>, index: usize) -> Self {
        let interfaces = hand_over.inboxes.first().map_or(0, |inbox| inbox.rings.len());
        // A squeue that receives does so from the ring of its own number.
        let sets = (0..interfaces).map(|_| SoftRingSet::new(hand_over.spread, index as u16));
        Self {
            index,
            hand_over: Arc::clone(hand_over),
            sets: sets.collect(),
            concerned: 0,
            frames_handed_over: 0,
            frames_taken_over: 0,
        }
    }

    /// Frames and packets that wait for this squeue.
    pub(super) fn depth(&self) -> usize {
        self.hand_over.inboxes[self.index].depth()
    }

    /// The squeue's lock is about to be released, with whoever is needed called: what was told up to now
    /// is known.
    pub(super) fn take_note(&self) {
        self.hand_over.inboxes[self.index].door.take();
    }

    /// Who is to be told.
    pub(super) fn take_concerned(&mut self) -> u64 {
        core::mem::take(&mut self.concerned)
    }

    /// Takes a batch that interface `interface` received apart: the shard gets its part at once.
    pub(super) fn spread(
        &mut self,
        shard: &mut Shard,
        now: Instant,
        interface: usize,
        port: &Port,
        batch: &mut ReceiveBatch,
    ) {
        let Some(set) = self.sets.get_mut(interface) else { return };
        set.split(batch, port.medium);
        for lane in set.lanes_mut() {
            let home = lane.home().index();
            if lane.is_empty() {
                continue;
            }
            if home == self.index {
                shard.on_receive(now, port.id, lane.batch_mut());
                continue;
            }
            let ring = self.hand_over.inboxes.get(home).and_then(|it| it.rings.get(interface));
            let Some(ring) = ring else { continue };
            self.frames_handed_over += lane.len() as u64;
            lane.push_to(ring);
            self.concerned |= 1 << home;
        }
    }

    /// Takes in what others received for this squeue; says how many frames, and whether more wait.
    pub(super) fn take_in(
        &mut self,
        shard: &mut Shard,
        now: Instant,
        ports: &[Port],
        batch: &mut ReceiveBatch,
    ) -> (usize, bool) {
        let inbox = &self.hand_over.inboxes[self.index];
        let before = self.frames_taken_over;
        let mut has_more = false;
        for (ring, port) in inbox.rings.iter().zip(ports) {
            if ring.is_empty() {
                continue;
            }
            batch.clear();
            let drained = ring.drain(FRAMES_MAX, batch);
            self.frames_taken_over += drained.frames as u64;
            has_more |= drained.more;
            shard.on_receive(now, port.id, batch);
        }
        if inbox.strays_len.load(Ordering::Acquire) > 0 {
            let strays = {
                let mut strays = inbox.strays();
                inbox.strays_len.store(0, Ordering::Release);
                core::mem::take(&mut *strays)
            };
            self.frames_taken_over += strays.len() as u64;
            strays.iter().for_each(|stray| shard.on_stray(now, stray));
        }
        ((self.frames_taken_over - before) as usize, has_more)
    }

    /// Hands on what turned out to be for others only in the shard.
    pub(super) fn pass_strays(&mut self, shard: &mut Shard) {
        while let Some(stray) = shard.poll_stray() {
            let home = stray.home;
            let Some(inbox) = self.hand_over.inboxes.get(home) else { continue };
            inbox.push_stray(stray);
            self.frames_handed_over += 1;
            self.concerned |= 1 << home;
        }
    }

    /// What this squeue took apart, and what was in its soft rings.
    pub(super) fn counters(&self) -> SteeringCounters {
        let mut sum = SteeringCounters::default();
        for set in &self.sets {
            sum.sets.merge(set.counters());
        }
        for ring in &self.hand_over.inboxes[self.index].rings {
            sum.soft_rings.merge(&ring.counters());
            sum.drained_batches.merge(&ring.batch_sizes());
        }
        sum
    }

    /// What was dropped on its way to this squeue.
    pub(super) fn drops(&self) -> DropCounters {
        let inbox = &self.hand_over.inboxes[self.index];
        let mut drops = DropCounters::default();
        inbox.rings.iter().for_each(|ring| drops.merge(&ring.drops()));
        let strays = inbox.strays_dropped.load(Ordering::Relaxed) as u64;
        drops.add_many(DropReason::StrayQueueFull, strays);
        drops
    }

    pub(super) fn frames_moved(&self) -> (u64, u64) {
        (self.frames_handed_over, self.frames_taken_over)
    }

    pub(super) fn hand_over(&self) -> &Arc<HandOver> {
        &self.hand_over
    }

    pub(super) fn index(&self) -> usize {
        self.index
    }
}
