//! A soft ring set: takes what one ring of a device received apart, by home.
//!
//! ```text
//!   ReceiveBatch           classify, hash once for each run of a flow
//!  [ f0 f1 f2 f3 f4 ] --+--> lane 0 [ f0 f1 ]      home 0   this thread's own: processed in place
//!                       +--> lane 1 [ f3 f4 ]      home 1   pushed into its soft ring
//!                       +--> both   [ f2: ARP ]
//! ```
//!
//! A *lane* is the part of a batch for one soft ring. No byte is copied: lanes share the blocks. The
//! order of the frames in a lane is that of the batch, so the order within a flow is kept, and all
//! frames of a flow are in one lane.
//!
//! Under fan-out the lanes are the soft rings. Without it the soft rings of a ring have one home, its
//! own, and behind them come lanes to the other homes, one each, for what the device cannot know:
//! datagrams by their port, errors, and what everyone must hear.
//!
//! Where all go to one home without soft rings, nothing is read: the batch goes on whole.
//!
//! Measured (`examples/steering_cost.rs`, an Intel Xeon): 23 ns a segment in a run of one flow, 14 of which
//! `ip::parse` takes, 29 where each is of another flow than the one before, 23 where the device has spread them,
//! 1 where nothing is read.

use crate::classify::{Class, Flow, classify};
use crate::counting::SoftRingSetCounters;
use crate::soft_ring::{Pushed, SoftRing};
use crate::spread::{Home, Spread, Target, scaled};
use crate::toeplitz;
use batch::ReceiveBatch;
use core::hash::{Hash, Hasher};
use device::Medium;
use siphasher::sip::SipHasher13;

/// An odd number without a pattern.
const MIX: u32 = 0x85eb_ca6b;

/// The part of a batch that goes to one soft ring.
#[derive(Debug)]
pub struct Lane {
    home: Home,
    pub(crate) batch: ReceiveBatch,
    /// The flow of each frame, as far as a soft ring tells flows apart.
    pub(crate) keys: Vec<u32>,
}

impl Lane {
    /// An empty lane to a home. Soft ring sets make their own; this is for who hands on single frames,
    /// such as a datagram that was put together from fragments.
    #[must_use]
    pub fn new(home: Home) -> Self {
        Self { home, batch: ReceiveBatch::new(), keys: Vec::new() }
    }

    /// Where it goes.
    #[must_use]
    pub fn home(&self) -> Home {
        self.home
    }

    /// How many frames it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.batch.len()
    }

    /// Whether it holds no frame.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// The frames, for who processes them in place and clears them.
    pub fn batch_mut(&mut self) -> &mut ReceiveBatch {
        self.keys.clear();
        &mut self.batch
    }

    /// Adds frame `index` of a batch, of the flow that `key` stands for (any value, but the same for
    /// all frames of a flow; [`Flow::hash`] is one).
    pub fn share_frame(&mut self, batch: &ReceiveBatch, index: usize, key: u32) {
        if self.batch.share_frame(batch, index) {
            self.keys.push(key);
        }
    }

    /// Puts the frames into a soft ring, see [`SoftRing::push`].
    pub fn push_to(&mut self, ring: &SoftRing) -> Pushed {
        ring.push(self)
    }

    fn clear(&mut self) {
        self.batch.clear();
        self.keys.clear();
    }
}

/// What a flow is known by.
#[derive(Clone, Copy, Debug, Default)]
struct Keyed {
    /// By what it is spread.
    hash: u32,
    /// By what soft rings tell it from others.
    key: u32,
}

/// The soft rings of one ring of a device, seen from the ring.
#[derive(Debug)]
pub struct SoftRingSet {
    spread: Spread,
    home: Home,
    lanes: Vec<Lane>,
    /// Lanes that are soft rings of this ring's own home, where there is no fan-out.
    own_lanes: u16,
    /// Of the flow before: its hash, which says where it goes, and its key, which tells it from others.
    last: Option<(Flow, Keyed)>,
    /// What keys are made with; without it they are the hashes.
    secret: Option<[u64; 2]>,
    counters: SoftRingSetCounters,
}

impl SoftRingSet {
    /// The soft ring set of ring `ring` of the device.
    #[must_use]
    pub fn new(spread: Spread, ring: u16) -> Self {
        let home = spread.home_of_ring(ring);
        let layout = spread.layout();
        let own_lanes = if layout.fan_out() { 0 } else { layout.soft_rings().max(1) };
        let lanes: Vec<Home> = if layout.fan_out() {
            (0..layout.soft_rings()).map(|slot| spread.home_of_slot(slot)).collect()
        } else {
            let own = core::iter::repeat_n(home, own_lanes.into());
            own.chain((0..spread.homes()).map(Home).filter(|it| *it != home)).collect()
        };
        Self {
            spread,
            home,
            lanes: lanes.into_iter().map(Lane::new).collect(),
            own_lanes,
            last: None,
            secret: None,
            counters: SoftRingSetCounters::default(),
        }
    }

    /// Tells flows apart by a keyed hash, in soft rings and nowhere else: who does not know the secret cannot choose
    /// flows that meet another one there and have its share. Where a flow goes is by a hash that everybody
    /// may know, as devices compute it, too.
    #[must_use]
    pub fn with_secret(mut self, secret: [u64; 2]) -> Self {
        self.secret = Some(secret);
        self
    }

    /// The home that polls this ring.
    #[must_use]
    pub fn home(&self) -> Home {
        self.home
    }

    /// The lanes as the last split left them. Who has dealt with a lane leaves it empty.
    pub fn lanes_mut(&mut self) -> &mut [Lane] {
        &mut self.lanes
    }

    /// What the set saw.
    #[must_use]
    pub fn counters(&self) -> &SoftRingSetCounters {
        &self.counters
    }

    /// Takes a batch apart. It is empty afterwards, and every frame is in its lane, or in one lane of
    /// each home if everyone needs it. What an earlier split left in the lanes is forgotten.
    pub fn split(&mut self, batch: &mut ReceiveBatch, medium: Medium) {
        self.lanes.iter_mut().for_each(Lane::clear);
        self.counters.srs_batches += 1;
        self.counters.srs_frames += batch.len() as u64;
        if let [lane] = &mut *self.lanes
            && self.spread.layout().soft_rings() == 0
        {
            self.counters.srs_batches_bypassed += 1;
            return lane.batch.append(batch);
        }
        for index in 0..batch.len() {
            let class = classify(batch.bytes(index), medium);
            self.count(&class);
            match self.target(&class) {
                (Target::Slot(slot), keyed) => {
                    let lane = self.lane_of_slot(slot, keyed.key);
                    self.lanes[lane].share_frame(batch, index, keyed.key);
                }
                (Target::Ring, keyed) => {
                    let lane = self.own_lane(keyed.key);
                    self.lanes[lane].share_frame(batch, index, keyed.key);
                }
                (Target::All, keyed) => {
                    for lane in self.one_lane_for_each_home() {
                        self.lanes[lane].share_frame(batch, index, keyed.key);
                    }
                }
            }
        }
        batch.clear();
    }

    /// Whom a frame concerns, and the key of its flow.
    #[inline]
    fn target(&mut self, class: &Class) -> (Target, Keyed) {
        match class {
            // Straight to the ring's home: no soft ring will ask what flow it is of.
            Class::Tcp(_)
                if self.spread.layout().is_spread_by_device()
                    && self.spread.layout().soft_rings() == 0 =>
            {
                (Target::Ring, Keyed::default())
            }
            Class::Tcp(flow) | Class::Udp(flow) | Class::IcmpError(_, flow) => {
                let keyed = self.hash(flow);
                (self.spread.target(class, || keyed.hash), keyed)
            }
            Class::Fragment { source, destination } => {
                let hash = toeplitz::hash_addresses(*source, *destination);
                let keyed = Keyed { hash, key: self.key(&(source, destination), hash) };
                (self.spread.target(class, || hash), keyed)
            }
            Class::Everyone | Class::Other => (self.spread.target(class, || 0), Keyed::default()),
        }
    }

    /// The hash of a flow: frames of one flow that follow each other are hashed once.
    #[inline]
    fn hash(&mut self, flow: &Flow) -> Keyed {
        match &self.last {
            Some((last, keyed)) if last == flow => {
                self.counters.srs_flow_cache_hits += 1;
                *keyed
            }
            _ => {
                let hash = flow.hash();
                let keyed = Keyed { hash, key: self.key(&(flow.remote, flow.local), hash) };
                self.last = Some((*flow, keyed));
                keyed
            }
        }
    }

    /// The key of what has this hash.
    fn key(&self, of: &impl Hash, hash: u32) -> u32 {
        self.secret.map_or(hash, |[first, second]| {
            let mut hasher = SipHasher13::new_with_keys(first, second);
            of.hash(&mut hasher);
            hasher.finish() as u32
        })
    }

    /// The soft ring of a flow among those of the ring's own home. All flows here may have one home for their hash,
    /// and the key may be the hash, so it is mixed once more.
    fn own_lane(&self, key: u32) -> usize {
        scaled(key.wrapping_mul(MIX), self.own_lanes.max(1)).into()
    }

    /// The lane of a slot: itself under fan-out, else one of the soft rings of the ring's own home, or
    /// the lane to the slot's home.
    fn lane_of_slot(&self, slot: u16, key: u32) -> usize {
        if self.own_lanes == 0 {
            return slot.into();
        }
        match self.spread.home_of_slot(slot) {
            home if home == self.home => self.own_lane(key),
            Home(home) => usize::from(self.own_lanes + home - u16::from(home > self.home.0)),
        }
    }

    fn one_lane_for_each_home(&self) -> impl Iterator<Item = usize> + use<> {
        match self.own_lanes {
            // Slots 0 to homes - 1 are of those homes.
            0 => 0..usize::from(self.spread.homes()),
            own => usize::from(own) - 1..self.lanes.len(),
        }
    }

    fn count(&mut self, class: &Class) {
        let counters = &mut self.counters;
        let counter = match class {
            Class::Tcp(_) => {
                let by_device = self.spread.layout().is_spread_by_device();
                counters.srs_tcp_spread_by_device += u64::from(by_device);
                &mut counters.srs_tcp
            }
            Class::Udp(_) => &mut counters.srs_udp,
            Class::IcmpError(..) => &mut counters.srs_icmp_errors,
            Class::Everyone => &mut counters.srs_everyone,
            Class::Fragment { .. } => &mut counters.srs_fragments,
            Class::Other => &mut counters.srs_other,
        };
        *counter += 1;
    }
}

#[cfg(test)]
mod tests;
