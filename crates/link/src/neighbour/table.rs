//! The entries of a neighbour cache, found by address, by slot and by deadline.
//!
//! An entry keeps its slot while it lives. Most hosts send most packets to one next hop, so the
//! slot found last is tried first. Only states that wait for something have a deadline; that a
//! neighbour ceases to be reachable shows when it is used next.

use core::net::IpAddr;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use time::Instant;
use wire::HardwareAddress;

/// The states of RFC 4861, 7.3.2, and one for neighbours that did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Asked for; the hardware address is not known.
    Incomplete { attempts: u32 },
    /// Confirmed a while ago.
    Reachable { until: Instant },
    /// Not confirmed lately, and not used since.
    Stale,
    /// Used though not confirmed lately; a confirmation may come on its own.
    Delay,
    /// Asked whether it is still there.
    Probe { attempts: u32 },
    /// Did not answer; not to be asked again too soon.
    Unreachable { until: Instant },
}

#[derive(Debug)]
pub(super) struct Entry<W> {
    pub(super) address: IpAddr,
    /// Means something only in states that have one, see [`Entry::known_link`].
    pub(super) link: HardwareAddress,
    pub(super) state: State,
    /// Last lookup, or when the entry was made.
    pub(super) used_at: Instant,
    /// When a request was last sent.
    pub(super) asked_at: Option<Instant>,
    /// Whether the cache's queue of requests holds this slot.
    pub(super) request_queued: bool,
    /// Empty but in `Incomplete`.
    pub(super) waiting: VecDeque<W>,
    /// What those hold.
    pub(super) waiting_bytes: usize,
    pub(super) deadline: Option<Instant>,
}

impl<W> Entry<W> {
    pub(super) fn known_link(&self) -> Option<HardwareAddress> {
        match self.state {
            State::Incomplete { .. } | State::Unreachable { .. } => None,
            _ => Some(self.link),
        }
    }

    pub(super) fn take_waiting(&mut self) -> VecDeque<W> {
        self.waiting_bytes = 0;
        core::mem::take(&mut self.waiting)
    }
}

#[derive(Debug)]
pub(super) struct Table<W> {
    entries: Vec<Option<Entry<W>>>,
    free: Vec<u32>,
    by_address: BTreeMap<IpAddr, u32>,
    deadlines: BTreeSet<(Instant, u32)>,
    found_last: u32,
    /// How many entries are `Incomplete`.
    incomplete: usize,
}

impl<W> Default for Table<W> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            by_address: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            found_last: 0,
            incomplete: 0,
        }
    }
}

impl<W> Table<W> {
    pub(super) fn len(&self) -> usize {
        self.by_address.len()
    }

    pub(super) fn find(&mut self, address: IpAddr) -> Option<(u32, &mut Entry<W>)> {
        let last = self.entries.get(self.found_last as usize).and_then(Option::as_ref);
        if last.is_none_or(|entry| entry.address != address) {
            self.found_last = *self.by_address.get(&address)?;
        }
        let slot = self.found_last;
        self.entry(slot).map(|entry| (slot, entry))
    }

    pub(super) fn entry(&mut self, slot: u32) -> Option<&mut Entry<W>> {
        self.entries.get_mut(slot as usize)?.as_mut()
    }

    /// Every entry.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry<W>> {
        self.entries.iter().flatten()
    }

    /// Slots of the entries of one family.
    pub(super) fn slots(&self, is_ipv4: bool) -> Vec<u32> {
        let of_family = self.by_address.iter().filter(|(address, _)| address.is_ipv4() == is_ipv4);
        of_family.map(|(_, slot)| *slot).collect()
    }

    /// Makes an entry for an address that has none; `state` is one without a deadline.
    pub(super) fn insert(&mut self, now: Instant, address: IpAddr, state: State) -> u32 {
        let entry = Entry {
            address,
            link: HardwareAddress::ZERO,
            state,
            used_at: now,
            asked_at: None,
            request_queued: false,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            deadline: None,
        };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() as u32 - 1
        });
        self.entries[slot as usize] = Some(entry);
        self.by_address.insert(address, slot);
        slot
    }

    pub(super) fn remove(&mut self, slot: u32) -> Option<Entry<W>> {
        let entry = self.entries.get_mut(slot as usize)?.take()?;
        self.by_address.remove(&entry.address);
        if let Some(deadline) = entry.deadline {
            self.deadlines.remove(&(deadline, slot));
        }
        self.incomplete -= usize::from(matches!(entry.state, State::Incomplete { .. }));
        self.free.push(slot);
        Some(entry)
    }

    pub(super) fn set_state(&mut self, slot: u32, state: State, deadline: Option<Instant>) {
        let Some(entry) = self.entries.get_mut(slot as usize).and_then(Option::as_mut) else {
            return;
        };
        if entry.deadline != deadline {
            if let Some(old) = entry.deadline {
                self.deadlines.remove(&(old, slot));
            }
            if let Some(new) = deadline {
                self.deadlines.insert((new, slot));
            }
            entry.deadline = deadline;
        }
        self.incomplete += usize::from(matches!(state, State::Incomplete { .. }));
        self.incomplete -= usize::from(matches!(entry.state, State::Incomplete { .. }));
        entry.state = state;
    }

    pub(super) fn first_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Takes away the first deadline that has passed and says whose it was.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<u32> {
        let (deadline, slot) = *self.deadlines.first()?;
        if now < deadline {
            return None;
        }
        self.deadlines.pop_first();
        if let Some(entry) = self.entry(slot) {
            entry.deadline = None;
        }
        Some(slot)
    }

    /// Who has to go when a place is needed: of the least valuable kind the one unused for longest.
    /// Unresolved entries are worth more than stale ones only up to `incomplete_max` of them, so
    /// that neither a scan nor a full cache keeps resolutions from ending.
    pub(super) fn victim(&self, incomplete_max: usize) -> Option<u32> {
        let crowded = self.incomplete > incomplete_max;
        let rank = |state: State| match state {
            State::Unreachable { .. } => 0,
            State::Incomplete { .. } if crowded => 1,
            State::Stale => 2,
            State::Incomplete { .. } => 3,
            State::Reachable { .. } | State::Delay | State::Probe { .. } => 4,
        };
        let entries = (0_u32..).zip(&self.entries);
        entries
            .filter_map(|(slot, entry)| entry.as_ref().map(|entry| (slot, entry)))
            .min_by_key(|(_, entry)| (rank(entry.state), entry.used_at))
            .map(|(slot, _)| slot)
    }
}
