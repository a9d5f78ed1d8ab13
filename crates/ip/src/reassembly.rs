//! Datagrams put together from their fragments (RFC 791, 3.2; RFC 815; RFC 1122, 3.3.2; RFC 8200,
//! 4.5).
//!
//! In comes a packet that is a fragment; out comes, with the last that was missing, a whole packet
//! in one block, which goes up as if it had come so. Data waits as parts of the blocks it was
//! received in and is copied once, when all of it is there.
//!
//! What always holds:
//! * what is held (the blocks pinned and the bookkeeping) stays within [`ReassemblyConfig`], for
//!   all sources together and for each; where room is needed, the datagram that waits longest goes,
//!   of the same source first. Who sends stale fragments so hurts nobody whose fragments come
//!   together;
//! * fragments that overlap end their datagram, and what else comes of it is dropped until its time
//!   is over (RFC 5722, 4; RFC 8200, 4.5; taken for IPv4, too). An exact repetition is dropped alone;
//! * the tables' hash is keyed by the caller, so that nobody outside can choose what collides.

mod datagram;

use crate::Arrival;
use crate::fragment::Fragment;
use batch::{BlockPool, Chunk};
use core::hash::BuildHasher;
use core::net::{IpAddr, Ipv6Addr};
use counters::{DropCounters, DropReason};
use datagram::{Added, Datagram};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use time::{Duration, Instant};

/// What a datagram that waits costs beside its fragments, in bytes: its places in the tables.
const DATAGRAM_COST_BYTES: usize = 512;

/// Bounds of a [`Reassembly`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReassemblyConfig {
    /// Bytes held in all, blocks that are pinned for a part of them counted whole.
    pub bytes_max: usize,
    /// The same for one source: an IPv4 address, or an IPv6 network of 64 bits.
    pub source_bytes_max: usize,
    /// Datagrams of one source that may wait.
    pub source_datagrams_max: usize,
    /// How long IPv4 fragments wait. RFC 1122, 3.3.2 asks for 60 to 120 s; identifications of 16
    /// bits come round sooner than that at today's rates (RFC 4963), so this is Linux's value.
    pub timeout_ipv4: Duration,
    /// How long IPv6 fragments wait (RFC 8200, 4.5: 60 s).
    pub timeout_ipv6: Duration,
}

impl Default for ReassemblyConfig {
    /// 4 MiB as Linux has it, a quarter of that for one source, and 64 datagrams.
    fn default() -> Self {
        Self {
            bytes_max: 4 << 20,
            source_bytes_max: 1 << 20,
            source_datagrams_max: 64,
            timeout_ipv4: Duration::from_secs(30),
            timeout_ipv6: Duration::from_secs(60),
        }
    }
}

/// A fragment as it came in.
#[derive(Clone, Debug)]
pub struct ReceivedFragment {
    /// The packet, from its IP header on.
    pub packet: Chunk,
    /// Its block holds little else: the data is copied instead of pinning it.
    pub sparse: bool,
    /// The interface it came by. Fragments of one datagram come by one.
    pub interface: u32,
    /// How it came.
    pub arrival: Arrival,
}

/// A datagram that was not completed in time.
#[derive(Clone, Debug)]
pub struct ExpiredDatagram {
    /// The interface its fragments came by.
    pub interface: u32,
    /// Its first fragment from the IP header on, where it had come: its sender is told (RFC 1122,
    /// 3.3.2; RFC 8200, 4.5).
    pub first: Option<(Chunk, Arrival)>,
}

/// What makes fragments parts of one datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    source: IpAddr,
    destination: IpAddr,
    interface: u32,
    identification: u32,
    /// Zero in IPv6, where the identification alone counts.
    protocol: u8,
}

/// Its place in the order in which datagrams are given up: when, and which of those of one instant.
type Turn = (Instant, u64);

/// What one source holds.
#[derive(Debug, Default)]
struct SourceUse {
    bytes: usize,
    turns: BTreeSet<Turn>,
}

/// All datagrams that wait for fragments. See the module documentation.
#[derive(Debug)]
pub struct Reassembly<S> {
    config: ReassemblyConfig,
    datagrams: HashMap<Key, Datagram, S>,
    sources: HashMap<IpAddr, SourceUse, S>,
    turns: BTreeMap<Turn, Key>,
    bytes: usize,
    datagrams_seen: u64,
}

impl<S: BuildHasher + Clone> Reassembly<S> {
    /// Nothing waits yet. `hasher` is keyed with what nobody outside knows.
    #[must_use]
    pub fn new(config: ReassemblyConfig, hasher: S) -> Self {
        Self {
            config,
            datagrams: HashMap::with_hasher(hasher.clone()),
            sources: HashMap::with_hasher(hasher),
            turns: BTreeMap::new(),
            bytes: 0,
            datagrams_seen: 0,
        }
    }

    /// Takes what [`parse_fragment`](crate::parse_fragment) made of a packet; returns the datagram
    /// where this was the last fragment that was missing. What is given up for it is counted in
    /// `drops`, the fragment itself by the caller.
    ///
    /// # Errors
    /// Why the fragment is dropped.
    pub fn on_fragment(
        &mut self,
        now: Instant,
        fragment: &Fragment,
        received: ReceivedFragment,
        pool: &BlockPool,
        drops: &mut DropCounters,
    ) -> Result<Option<Chunk>, DropReason> {
        if pool.is_low() {
            return Err(DropReason::NoMemory);
        }
        let key = key_of(fragment, received.interface);
        self.enter(now, key);
        let copies = received.sparse || self.is_pinning(key, &received.packet);
        let Some(datagram) = self.datagrams.get_mut(&key) else {
            return Err(DropReason::FragmentLimit);
        };
        let before = datagram.held_bytes();
        let added = datagram.add(fragment, &received, copies, pool);
        let held = datagram.held_bytes();
        self.account(key, before, held);
        let outcome = match added {
            Ok(Added::Waiting) => Ok(None),
            Ok(Added::Complete(packet)) => {
                self.remove(key);
                Ok(Some(packet))
            }
            Err(refused) => {
                drops.add_many(refused.reason, refused.others_dropped);
                Err(refused.reason)
            }
        };
        self.make_room(key, drops);
        outcome
    }

    /// When [`Reassembly::poll_expired`] has something to say next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.turns.first_key_value().map(|(turn, _)| turn.0)
    }

    /// The next datagram whose time is over. Its fragments are counted as dropped.
    pub fn poll_expired(
        &mut self,
        now: Instant,
        drops: &mut DropCounters,
    ) -> Option<ExpiredDatagram> {
        let (turn, key) = self.turns.first_key_value().map(|(turn, key)| (*turn, *key))?;
        if turn.0 > now {
            return None;
        }
        let datagram = self.remove(key)?;
        drops.add_many(DropReason::FragmentTimeout, datagram.fragment_count());
        Some(ExpiredDatagram { interface: key.interface, first: datagram.into_first() })
    }

    /// Bytes held, blocks that are pinned counted whole.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.bytes
    }

    /// How many datagrams wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.datagrams.len()
    }

    /// Whether no datagram waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.datagrams.is_empty()
    }

    /// Makes a place for a datagram that none of its fragments has come of.
    fn enter(&mut self, now: Instant, key: Key) {
        if self.datagrams.contains_key(&key) {
            return;
        }
        let timeout = match key.source {
            IpAddr::V4(_) => self.config.timeout_ipv4,
            IpAddr::V6(_) => self.config.timeout_ipv6,
        };
        self.datagrams_seen += 1;
        let turn = (now + timeout, self.datagrams_seen);
        self.datagrams.insert(key, Datagram::new(turn));
        self.turns.insert(turn, key);
        self.sources.entry(source_of(key.source)).or_default().turns.insert(turn);
        self.account(key, 0, DATAGRAM_COST_BYTES);
    }

    /// Whether keeping a part of this packet would pin much more than it is worth, and memory is
    /// no longer plenty, for all or for its source: each datagram that has a part in a block is charged with all of it.
    fn is_pinning(&self, key: Key, packet: &Chunk) -> bool {
        let of_source = || self.sources.get(&source_of(key.source)).map_or(0, |it| it.bytes);
        packet.block().len() > 4 * packet.len()
            && (self.bytes > self.config.bytes_max / 2
                || of_source() > self.config.source_bytes_max / 2)
    }

    fn account(&mut self, key: Key, before: usize, now: usize) {
        self.bytes = (self.bytes + now).saturating_sub(before);
        if let Some(source) = self.sources.get_mut(&source_of(key.source)) {
            source.bytes = (source.bytes + now).saturating_sub(before);
        }
    }

    /// Gives up what waits longest until the bounds hold again: first of the source of `newest`,
    /// where that holds more than its share.
    fn make_room(&mut self, newest: Key, drops: &mut DropCounters) {
        // Every turn removes a datagram.
        while let Some(victim) = self.victim(newest) {
            let Some(datagram) = self.remove(victim) else { return };
            drops.add_many(DropReason::FragmentLimit, datagram.fragment_count());
        }
    }

    fn victim(&self, newest: Key) -> Option<Key> {
        let asking = self.sources.get(&source_of(newest.source)).filter(|source| {
            source.bytes > self.config.source_bytes_max
                || source.turns.len() > self.config.source_datagrams_max
        });
        if let Some(source) = asking {
            return source.turns.first().and_then(|turn| self.turns.get(turn)).copied();
        }
        let oldest = self.turns.first_key_value().map(|(_, key)| *key);
        oldest.filter(|_| self.bytes > self.config.bytes_max)
    }

    fn remove(&mut self, key: Key) -> Option<Datagram> {
        let datagram = self.datagrams.remove(&key)?;
        let turn = datagram.turn();
        self.turns.remove(&turn);
        self.account(key, datagram.held_bytes() + DATAGRAM_COST_BYTES, 0);
        let address = source_of(key.source);
        if let Some(source) = self.sources.get_mut(&address) {
            source.turns.remove(&turn);
            if source.turns.is_empty() {
                self.sources.remove(&address);
            }
        }
        Some(datagram)
    }
}

fn key_of(fragment: &Fragment, interface: u32) -> Key {
    let info = &fragment.info;
    Key {
        source: info.source,
        destination: info.destination,
        interface,
        identification: fragment.identification,
        protocol: if info.source.is_ipv4() { info.protocol } else { 0 },
    }
}

/// Whom bytes are charged to: a host has a whole IPv6 network of 64 bits to send from.
fn source_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

#[cfg(test)]
mod tests;
