//! What homes hand to each other: all that lies between a ring of the device and the shards.
//!
//! With several homes a frame may arrive at another one than its connection belongs to. Who received
//! it takes its batch apart by home (a [`SoftRingSet`]), processes its own part, and puts the others
//! into *soft rings*, of which every home has one for each interface.
//!
//! ```text
//!  whoever runs home 0                                    whoever runs home 1 next
//!   device -> receive -> Desk::spread -+-> own part -> shard 0
//!                                      +-> soft ring ------------> Desk::take_in -> shard 1
//!                                          then: take_concerned, and tell home 1
//! ```
//!
//! Where the layout has soft rings without fan-out they are a home's own, one behind the other: what its ring
//! brings, and is its own, goes into them by flow and comes out of each in turn, in the same call.
//!
//! An [`Exchange`] is what the homes share, a [`Desk`] what is one home's and lies under its lock. Threads
//! and virtual time drive both alike; who is told how, and who comes when, is theirs to decide.
//!
//! A *stray* (`S`) is what shards have for each other: what turned out to be for another home only behind
//! the desk, such as a datagram that was put together from fragments, and what one says to another.
//!
//! What always holds: the frames of a flow that came by one ring reach its shard in order, if each turn
//! takes in before it receives; soft rings and strays are bounded, and what does not fit is dropped and
//! counted, frames fairly between flows.

use crate::counting::{SoftRingCounters, SoftRingSetCounters};
use crate::door::Door;
use crate::soft_ring::{SoftRing, SoftRingConfig};
use crate::soft_ring_set::SoftRingSet;
use crate::spread::{Home, Spread};
use crate::sync::{Arc, AtomicUsize, Mutex, Ordering};
use batch::{ReceiveBatch, StrayShares, StrayWeight};
use counters::{BatchSizes, DropCounters};
use device::Medium;
use std::collections::VecDeque;

/// Frames taken from one soft ring at a time, as from a device queue.
const FRAMES_MAX: usize = 256;

/// What homes share to hand frames to each other.
#[derive(Debug)]
pub struct Exchange<S> {
    spread: Spread,
    rings: SoftRingConfig,
    secret: Option<[u64; 2]>,
    /// Of the interfaces that there are from the start.
    interfaces: Vec<Arc<SoftRings>>,
    inboxes: Vec<Inbox<S>>,
}

/// The soft rings of an interface, one for each home: every desk has them, and so finds those of the others
/// without asking for what they share.
#[derive(Debug)]
pub struct SoftRings(Vec<SoftRing>);

impl SoftRings {
    fn new(homes: u16, rings: SoftRingConfig) -> Arc<Self> {
        Arc::new(Self((0..homes).map(|_| SoftRing::new(rings)).collect()))
    }
}

/// What waits for one home.
#[derive(Debug)]
struct Inbox<S> {
    strays: Mutex<Strays<S>>,
    strays_len: AtomicUsize,
    /// Where it is announced that something was put in.
    door: Door,
}

/// Strays that wait for one home.
#[derive(Debug)]
struct Strays<S> {
    queue: VecDeque<S>,
    shares: StrayShares,
    drops: DropCounters,
}

impl<S> Exchange<S> {
    /// For the homes of this spread and so many interfaces, with soft rings of this size.
    #[must_use]
    pub fn new(spread: Spread, interfaces: usize, rings: SoftRingConfig) -> Self {
        let inbox = |_| Inbox {
            strays: Mutex::new(Strays {
                queue: VecDeque::new(),
                shares: StrayShares::new(),
                drops: DropCounters::default(),
            }),
            strays_len: AtomicUsize::new(0),
            door: Door::default(),
        };
        let interfaces = (0..interfaces).map(|_| SoftRings::new(spread.homes(), rings)).collect();
        let inboxes = (0..spread.homes()).map(inbox).collect();
        Self { spread, rings, secret: None, interfaces, inboxes }
    }

    /// Soft rings for one more interface, to be given to every desk ([`Desk::add_interface`]) before frames of it
    /// come.
    #[must_use]
    pub fn more_soft_rings(&self) -> Arc<SoftRings> {
        SoftRings::new(self.spread.homes(), self.rings)
    }

    /// Soft rings tell flows apart by a keyed hash ([`SoftRingSet::with_secret`]).
    #[must_use]
    pub fn with_secret(mut self, secret: [u64; 2]) -> Self {
        self.secret = Some(secret);
        self
    }

    /// Which home has what.
    #[must_use]
    pub fn spread(&self) -> &Spread {
        &self.spread
    }

    /// Says that something was put in for home `home`. To be called before its lock is tried.
    pub fn announce(&self, home: usize) {
        if let Some(inbox) = self.inboxes.get(home) {
            inbox.door.announce();
        }
    }

    /// Whether something was announced to home `home` since [`Desk::take_note`]. To be called after its lock
    /// was released.
    #[must_use]
    pub fn is_owed(&self, home: usize) -> bool {
        self.inboxes.get(home).is_some_and(|inbox| inbox.door.is_owed())
    }

    fn inbox(&self, home: Home) -> Option<&Inbox<S>> {
        self.inboxes.get(home.index())
    }
}

impl<S> Inbox<S> {
    fn push_stray(&self, stray: S, weight: StrayWeight) {
        let mut strays = self.strays();
        if let Err(reason) = strays.shares.admit(weight) {
            return strays.drops.add(reason);
        }
        strays.queue.push_back(stray);
        self.strays_len.store(strays.queue.len(), Ordering::Release);
    }

    /// Nothing under the lock panics.
    fn strays(&self) -> impl core::ops::DerefMut<Target = Strays<S>> + '_ {
        self.strays.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn take_strays(&self) -> VecDeque<S> {
        if self.strays_len.load(Ordering::Acquire) == 0 {
            return VecDeque::new();
        }
        let mut strays = self.strays();
        self.strays_len.store(0, Ordering::Release);
        strays.shares.clear();
        core::mem::take(&mut strays.queue)
    }
}

/// What came to a home from another one.
#[derive(Debug)]
pub enum Arrived<'a, S> {
    /// Frames of the interface of this number. They may be left in the batch.
    Frames(usize, &'a mut ReceiveBatch),
    /// A stray.
    Stray(S),
}

/// What [`Desk::take_in`] found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TakenIn {
    /// Frames and strays.
    pub frames: usize,
    /// Whether more wait.
    pub more: bool,
}

/// One home's part in the exchange. Whoever runs the home has it to himself.
#[derive(Debug)]
pub struct Desk<S> {
    home: Home,
    exchange: Arc<Exchange<S>>,
    /// Of each interface.
    rings: Vec<Arc<SoftRings>>,
    /// One for each interface.
    sets: Vec<SoftRingSet>,
    /// For each interface the home's own soft rings, where there is no fan-out.
    own_rings: Vec<Vec<SoftRing>>,
    /// Homes that something was handed to and that are to be told, a bit for each.
    concerned: u64,
    handed_over: u64,
    taken_over: u64,
}

impl<S> Desk<S> {
    /// The desk of a home of the exchange, which receives, if it does, from ring `ring`.
    ///
    /// # Panics
    /// The exchange has no such home.
    #[must_use]
    pub fn new(exchange: &Arc<Exchange<S>>, home: Home) -> Self {
        let inbox = exchange.inbox(home);
        assert!(inbox.is_some(), "the exchange has {} homes", exchange.inboxes.len());
        let mut desk = Self {
            home,
            exchange: Arc::clone(exchange),
            rings: Vec::new(),
            sets: Vec::new(),
            own_rings: Vec::new(),
            concerned: 0,
            handed_over: 0,
            taken_over: 0,
        };
        exchange.interfaces.iter().for_each(|rings| desk.add_interface(rings));
        desk
    }

    /// There is one more interface, with these soft rings, which every desk must have been given before the first of
    /// them is told frames of it.
    pub fn add_interface(&mut self, rings: &Arc<SoftRings>) {
        let exchange = &self.exchange;
        // A home that receives does so from the ring of its own number.
        let set = SoftRingSet::new(exchange.spread, self.home.0);
        self.sets.push(match exchange.secret {
            Some(secret) => set.with_secret(secret),
            None => set,
        });
        let layout = exchange.spread.layout();
        let own = if layout.fan_out() { 0 } else { layout.soft_rings() };
        self.own_rings.push((0..own).map(|_| SoftRing::new(exchange.rings)).collect());
        self.rings.push(Arc::clone(rings));
    }

    /// How many interfaces it knows.
    #[must_use]
    pub fn interfaces(&self) -> usize {
        self.rings.len()
    }

    /// As [`Desk::take_in`], of all frames of one interface: of which no more come, because it was removed.
    pub fn take_frames(
        &mut self,
        interface: usize,
        batch: &mut ReceiveBatch,
        mut process: impl FnMut(&mut ReceiveBatch),
    ) {
        let Some(ring) = self.rings.get(interface).and_then(|it| it.0.get(self.home.index()))
        else {
            return;
        };
        batch.clear();
        while ring.drain(FRAMES_MAX, batch).frames > 0 {
            self.taken_over += batch.len() as u64;
            process(batch);
            batch.clear();
        }
    }

    /// Whose desk it is.
    #[must_use]
    pub fn home(&self) -> Home {
        self.home
    }

    /// What it shares with others.
    #[must_use]
    pub fn exchange(&self) -> &Arc<Exchange<S>> {
        &self.exchange
    }

    /// Whether there are other homes.
    #[must_use]
    pub fn has_others(&self) -> bool {
        self.exchange.inboxes.len() > 1
    }

    /// Frames and strays that wait for this home.
    #[must_use]
    pub fn depth(&self) -> usize {
        let frames: usize = self.inbox_rings().map(SoftRing::depth).sum();
        frames + self.inbox().strays_len.load(Ordering::Acquire)
    }

    /// The home's lock is about to be released, with whoever is needed called: what was announced up to
    /// now is known.
    pub fn take_note(&self) {
        self.inbox().door.take();
    }

    /// Homes that were handed something since this was asked last, a bit for each: they are to be told.
    pub fn take_concerned(&mut self) -> u64 {
        core::mem::take(&mut self.concerned)
    }

    /// Takes a batch that interface `interface` received apart; `process` gets this home's part at once.
    pub fn spread(
        &mut self,
        interface: usize,
        medium: Medium,
        batch: &mut ReceiveBatch,
        mut process: impl FnMut(&mut ReceiveBatch),
    ) {
        let Some(set) = self.sets.get_mut(interface) else { return };
        set.split(batch, medium);
        let own_rings = self.own_rings.get(interface).map_or(&[][..], Vec::as_slice);
        let mut own = own_rings.iter();
        for lane in set.lanes_mut() {
            let home = lane.home();
            let own_ring = if home == self.home { own.next() } else { None };
            if lane.is_empty() {
                continue;
            }
            if let Some(ring) = own_ring {
                lane.push_to(ring);
                continue;
            }
            if home == self.home {
                process(lane.batch_mut());
                continue;
            }
            let ring = self.rings.get(interface).and_then(|it| it.0.get(home.index()));
            let Some(ring) = ring else { continue };
            self.handed_over += lane.len() as u64;
            lane.push_to(ring);
            self.concerned |= 1 << home.0;
        }
        for ring in own_rings {
            while ring.drain(FRAMES_MAX, batch).frames > 0 {
                process(batch);
                batch.clear();
            }
        }
    }

    /// Gives `process` what others handed over, using `batch` for it. To be called before this home
    /// receives from its ring, so that what came earlier stays before what comes now.
    pub fn take_in(
        &mut self,
        batch: &mut ReceiveBatch,
        mut process: impl FnMut(Arrived<'_, S>),
    ) -> TakenIn {
        let exchange = Arc::clone(&self.exchange);
        let Some(inbox) = exchange.inbox(self.home) else { return TakenIn::default() };
        let mut taken = TakenIn::default();
        for (interface, ring) in self.inbox_rings().enumerate() {
            if ring.is_empty() {
                continue;
            }
            batch.clear();
            let drained = ring.drain(FRAMES_MAX, batch);
            taken.frames += drained.frames;
            taken.more |= drained.more;
            process(Arrived::Frames(interface, batch));
        }
        batch.clear();
        let strays = inbox.take_strays();
        taken.frames += strays.len();
        strays.into_iter().for_each(|stray| process(Arrived::Stray(stray)));
        self.taken_over += taken.frames as u64;
        taken
    }

    /// Hands a stray to another home, or drops it where so many wait there, or such heavy ones, that there is no
    /// room for it.
    pub fn hand_on(&mut self, home: usize, stray: S, weight: StrayWeight) {
        let Some(inbox) = self.exchange.inboxes.get(home) else { return };
        inbox.push_stray(stray, weight);
        self.handed_over += 1;
        self.concerned |= 1 << home;
    }

    /// How the frames received here were classified.
    #[must_use]
    pub fn set_counters(&self) -> SoftRingSetCounters {
        let mut sum = SoftRingSetCounters::default();
        self.sets.iter().for_each(|set| sum.merge(set.counters()));
        sum
    }

    /// What was put into this home's soft rings and taken out.
    #[must_use]
    pub fn soft_ring_counters(&self) -> SoftRingCounters {
        let mut sum = SoftRingCounters::default();
        self.rings().for_each(|ring| sum.merge(&ring.counters()));
        sum
    }

    /// Sizes of the batches taken out of this home's soft rings.
    #[must_use]
    pub fn drained_batches(&self) -> BatchSizes {
        let mut sum = BatchSizes::default();
        self.rings().for_each(|ring| sum.merge(&ring.batch_sizes()));
        sum
    }

    /// What was dropped on its way to this home.
    #[must_use]
    pub fn drops(&self) -> DropCounters {
        let inbox = self.inbox();
        let mut drops = DropCounters::default();
        self.rings().for_each(|ring| drops.merge(&ring.drops()));
        drops.merge(&inbox.strays().drops);
        drops
    }

    /// Frames and strays handed to other homes, and those taken over from them.
    #[must_use]
    pub fn moved(&self) -> (u64, u64) {
        (self.handed_over, self.taken_over)
    }

    fn inbox(&self) -> &Inbox<S> {
        &self.exchange.inboxes[self.home.index()]
    }

    /// The soft rings that others hand over by, one for each interface.
    fn inbox_rings(&self) -> impl Iterator<Item = &SoftRing> {
        let home = self.home.index();
        self.rings.iter().filter_map(move |rings| rings.0.get(home))
    }

    /// The soft rings that frames come to this home by.
    fn rings(&self) -> impl Iterator<Item = &SoftRing> {
        self.inbox_rings().chain(self.own_rings.iter().flatten())
    }
}

#[cfg(all(test, not(feature = "interleavings")))]
mod tests;
