//! The neighbour cache: which hardware address a next hop has.
//!
//! RFC 4861, 7.3 defines five states for an IPv6 neighbour; they serve IPv4 as well, where ARP
//! (RFC 826) does not say how an entry ages (RFC 1122, 2.3.2.1 only demands that it does).
//!
//! ```text
//!            lookup             answer                       30 s
//!  (nothing) ------> INCOMPLETE ------> REACHABLE ----------------------> STALE
//!       ^                |  ^            ^  ^  upper layer confirms         | lookup: used, and
//!       |  no answer     |  |            |  +-----------------+             v watched
//!       |  to 3 requests v  | lookup     | answer             +----------- DELAY
//!       |       (unreachable, 1 s)       |                                  | 5 s
//!       +--------------------------------+--------------------------------- PROBE
//!                   no answer to 3 unicast requests
//! ```
//!
//! In: lookups by the network layer, received messages, confirmations by TCP, time. Out: an answer
//! to each lookup; requests to send ([`NeighbourCache::poll_request`]); resolutions that ended,
//! with the packets that waited for them ([`NeighbourCache::poll_resolved`]).
//!
//! What always holds:
//! * entries, waiting packets, what these hold and unread resolutions are bounded ([`NeighbourConfig`]); under
//!   pressure unreachable and unresolved entries go before stale ones and these before those in
//!   use, so that a scan of the subnet does not push out working neighbours (RFC 6583);
//! * no request is made twice within [`NeighbourConfig::retransmit`] for one neighbour (RFC 1122,
//!   2.3.2.1 demands a limit and recommends one per second);
//! * an unsolicited answer updates an entry and never makes one;
//! * every waiting packet is handed back: sent on, or with an outcome that says why not.

mod table;
#[cfg(test)]
mod tests;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use counters::DropReason;
use std::collections::VecDeque;
use table::{Entry, State, Table};
use time::{Duration, Instant};
use wire::{ArpOperation, ArpRepr, HardwareAddress, NdpEnvelope, NdpRepr};

/// The group of all nodes of a link (RFC 4291, 2.7.1).
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Packets that may wait for one neighbour whatever waits for others, as long as there is any room.
const SHARE_PACKETS: usize = 16;

/// What may wait for a neighbour.
pub trait Waiting {
    /// What holding it costs, in bytes; it stays the same.
    fn held_bytes(&self) -> usize;
}

/// Bounds and times of a [`NeighbourCache`]. The times are those of RFC 4861, 10.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighbourConfig {
    /// Entries, at least one.
    pub entries_max: usize,
    /// Packets that may wait for one neighbour. RFC 4861, 7.2.2: MUST be at least one.
    pub waiting_packets_max: usize,
    /// What those hold, in bytes; one packet always may wait.
    pub waiting_bytes_max: usize,
    /// Packets that may wait for all neighbours together. Where more than a few (16) wait for one,
    /// more come only up to half of this and of the next, so that two who do not answer take no other's place.
    pub waiting_packets_total_max: usize,
    /// What those hold, in bytes.
    pub waiting_bytes_total_max: usize,
    /// From one request to the next (RETRANS_TIMER).
    pub retransmit: Duration,
    /// Requests before a neighbour is given up (MAX_MULTICAST_SOLICIT, MAX_UNICAST_SOLICIT).
    pub attempts: u32,
    /// How long a confirmation holds (REACHABLE_TIME). RFC 4861, 6.3.2 wants it random around
    /// 30 s, so that hosts do not fall into step: whoever makes the configuration draws it.
    pub reachable: Duration,
    /// How long a stale entry is used before it is probed (DELAY_FIRST_PROBE_TIME).
    pub stale_delay: Duration,
    /// How long a neighbour that did not answer is not asked again.
    pub unreachable: Duration,
}

impl Default for NeighbourConfig {
    fn default() -> Self {
        Self {
            entries_max: 1_024,
            waiting_packets_max: 256,
            // As Linux (`unres_qlen_bytes`), so that a burst does not lose what it would not there.
            waiting_bytes_max: 212_992,
            waiting_packets_total_max: 1_024,
            waiting_bytes_total_max: 1 << 20,
            retransmit: Duration::from_secs(1),
            attempts: 3,
            reachable: Duration::from_secs(30),
            stale_delay: Duration::from_secs(5),
            unreachable: Duration::from_secs(1),
        }
    }
}

counters::counters! {
    /// What a [`NeighbourCache`] did.
    pub struct NeighbourCounters {
        /// Requests handed out to be sent, probes included.
        neighbour_requests,
        /// Resolutions that brought an address.
        neighbour_resolved,
        /// Resolutions that brought none.
        neighbour_unreachable,
        /// Hardware addresses of known neighbours that changed.
        neighbour_address_changes,
        /// Entries pushed out by others.
        neighbour_evictions,
    }
}

/// What is known of a next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// Its hardware address.
    Resolved(HardwareAddress),
    /// It is being asked; [`NeighbourCache::poll_resolved`] will tell.
    Pending,
    /// It did not answer a moment ago.
    Unreachable,
}

/// What one cache knows of a neighbour, for another cache of the same host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Its hardware address.
    pub link: HardwareAddress,
    /// It was confirmed lately.
    pub is_reachable: bool,
}

/// A request to send: an ARP request or a neighbour solicitation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Whose hardware address is asked for.
    pub target: IpAddr,
    /// Send it to this station only; `None`: to all (ARP) or to the solicited-node group (NDP).
    pub unicast_to: Option<HardwareAddress>,
}

/// How good what is known of a neighbour is: the states of RFC 4861, 7.3.2, and one for neighbours that did not
/// answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NeighbourState {
    /// It is being asked for.
    Incomplete,
    /// It was confirmed lately.
    Reachable,
    /// It was not, and was not used since.
    Stale,
    /// It is used though it was not confirmed lately; a confirmation may come on its own.
    Delay,
    /// It is asked whether it is still there.
    Probe,
    /// It did not answer, and is not asked again for a while.
    Unreachable,
}

/// The neighbour did not answer, or its entry had to give way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreachable;

/// A resolution that ended.
#[derive(Debug)]
pub struct Resolved<W> {
    /// Whose.
    pub next_hop: IpAddr,
    /// The hardware address, or that there is none.
    pub outcome: Result<HardwareAddress, Unreachable>,
    /// The packets that waited for it, oldest first.
    pub waiting: VecDeque<W>,
}

/// A neighbour advertisement to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advertisement {
    /// Where to: the asking node or all nodes.
    pub destination: Ipv6Addr,
    /// The message.
    pub message: NdpRepr,
}

/// How a message told a hardware address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// In passing, by a node that wanted something of us.
    Unconfirmed,
    /// In an answer.
    Answer { solicited: bool, replaces: bool },
}

/// The neighbour cache of one interface; packets of type `W` can wait in it.
#[derive(Debug)]
pub struct NeighbourCache<W> {
    config: NeighbourConfig,
    table: Table<W>,
    /// Entries that owe a request, each at most once.
    requests: VecDeque<u32>,
    resolved: VecDeque<Resolved<W>>,
    waiting_packets: usize,
    waiting_bytes: usize,
    counters: NeighbourCounters,
}

impl<W: Waiting> NeighbourCache<W> {
    /// An empty cache.
    #[must_use]
    pub fn new(config: NeighbourConfig) -> Self {
        Self {
            config,
            table: Table::default(),
            requests: VecDeque::new(),
            resolved: VecDeque::new(),
            waiting_packets: 0,
            waiting_bytes: 0,
            counters: NeighbourCounters::default(),
        }
    }

    /// What is known of `next_hop`. Where nothing is, resolution starts; where what is known is
    /// old, it is used and checked (RFC 4861, 7.3.3).
    pub fn lookup(&mut self, now: Instant, next_hop: IpAddr) -> Lookup {
        if let Some((slot, entry)) = self.table.find(next_hop) {
            entry.used_at = now;
            return match entry.state {
                State::Incomplete { .. } => Lookup::Pending,
                State::Reachable { until } if now < until => Lookup::Resolved(entry.link),
                State::Delay | State::Probe { .. } => Lookup::Resolved(entry.link),
                State::Reachable { .. } | State::Stale => {
                    let link = entry.link;
                    self.table.set_state(slot, State::Delay, Some(now + self.config.stale_delay));
                    Lookup::Resolved(link)
                }
                State::Unreachable { until } if now < until => Lookup::Unreachable,
                State::Unreachable { .. } => self.start_resolution(slot),
            };
        }
        // No neighbour has the address of a group or of everybody.
        if let Some(group) = HardwareAddress::of_ip_multicast(next_hop) {
            return Lookup::Resolved(group);
        }
        if next_hop == IpAddr::V4(Ipv4Addr::BROADCAST) {
            return Lookup::Resolved(HardwareAddress::BROADCAST);
        }
        // Nobody reads what became of earlier resolutions: start no more of them.
        if self.resolved.len() >= self.config.entries_max || next_hop.is_unspecified() {
            return Lookup::Unreachable;
        }
        let slot = self.insert(now, next_hop, State::Stale);
        self.start_resolution(slot)
    }

    /// All entries: the address, the hardware address where it is known, and how good that is.
    pub fn entries(
        &self,
        now: Instant,
    ) -> impl Iterator<Item = (IpAddr, Option<HardwareAddress>, NeighbourState)> {
        self.table.iter().map(move |entry| {
            let state = match entry.state {
                State::Incomplete { .. } => NeighbourState::Incomplete,
                State::Reachable { until } if now < until => NeighbourState::Reachable,
                State::Reachable { .. } | State::Stale => NeighbourState::Stale,
                State::Delay => NeighbourState::Delay,
                State::Probe { .. } => NeighbourState::Probe,
                State::Unreachable { .. } => NeighbourState::Unreachable,
            };
            (entry.address, entry.known_link(), state)
        })
    }

    fn start_resolution(&mut self, slot: u32) -> Lookup {
        self.table.set_state(slot, State::Incomplete { attempts: 0 }, None);
        self.request(slot);
        Lookup::Pending
    }

    /// Notes that an entry owes a request.
    fn request(&mut self, slot: u32) {
        if let Some(entry) = self.table.entry(slot)
            && !entry.request_queued
        {
            entry.request_queued = true;
            self.requests.push_back(slot);
        }
    }

    /// Makes an entry, at the cost of another where there are too many.
    fn insert(&mut self, now: Instant, address: IpAddr, state: State) -> u32 {
        while self.table.len() >= self.config.entries_max.max(1) {
            let Some(victim) = self.table.victim(self.config.entries_max / 4) else { break };
            self.counters.neighbour_evictions += 1;
            self.forget(victim);
        }
        self.table.insert(now, address, state)
    }

    /// Removes an entry; who waited for it hears that it is unreachable.
    fn forget(&mut self, slot: u32) {
        let Some(entry) = self.table.remove(slot) else { return };
        if entry.request_queued {
            self.requests.retain(|queued| *queued != slot);
        }
        if matches!(entry.state, State::Incomplete { .. }) {
            self.end_resolution(entry.address, Err(Unreachable), entry.waiting);
        }
    }

    fn end_resolution(
        &mut self,
        next_hop: IpAddr,
        outcome: Result<HardwareAddress, Unreachable>,
        waiting: VecDeque<W>,
    ) {
        match outcome {
            Ok(_) => self.counters.neighbour_resolved += 1,
            Err(Unreachable) => self.counters.neighbour_unreachable += 1,
        }
        self.waiting_packets -= waiting.len();
        self.waiting_bytes -= waiting.iter().map(W::held_bytes).sum::<usize>();
        self.resolved.push_back(Resolved { next_hop, outcome, waiting });
    }

    /// Lets a packet wait for a neighbour that is [`Lookup::Pending`]. Returns what cannot wait: `packet` itself where the
    /// neighbour is not pending or too much waits for others; the oldest ones where too much waits for this neighbour, in
    /// whose place `packet` now waits (RFC 4861, 7.2.2: "the new arrival SHOULD replace the oldest entry").
    #[must_use]
    pub fn enqueue(&mut self, next_hop: IpAddr, packet: W) -> Vec<W> {
        let config = self.config;
        let Some((_, entry)) = self.table.find(next_hop) else { return vec![packet] };
        if !matches!(entry.state, State::Incomplete { .. }) {
            return vec![packet];
        }
        let held_bytes = packet.held_bytes();
        let part = if entry.waiting.len() < SHARE_PACKETS { 1 } else { 2 };
        let owed_packets =
            usize::from(self.waiting_packets >= config.waiting_packets_total_max / part);
        let over_bytes =
            (self.waiting_bytes + held_bytes).saturating_sub(config.waiting_bytes_total_max / part);
        let owed_bytes = over_bytes.min(held_bytes);
        if entry.waiting.len() < owed_packets || entry.waiting_bytes < owed_bytes {
            return vec![packet];
        }
        let (mut dropped, mut freed_bytes) = (Vec::new(), 0);
        while dropped.len() < owed_packets
            || freed_bytes < owed_bytes
            || entry.waiting.len() >= config.waiting_packets_max.max(1)
            || entry.waiting_bytes + held_bytes > config.waiting_bytes_max
        {
            let Some(oldest) = entry.waiting.pop_front() else { break };
            freed_bytes += oldest.held_bytes();
            entry.waiting_bytes -= oldest.held_bytes();
            dropped.push(oldest);
        }
        entry.waiting.push_back(packet);
        entry.waiting_bytes += held_bytes;
        self.waiting_packets = self.waiting_packets + 1 - dropped.len();
        self.waiting_bytes = self.waiting_bytes + held_bytes - freed_bytes;
        dropped
    }

    /// TCP made progress with the help of this neighbour: it is reachable (RFC 4861, 7.3.1).
    pub fn on_confirmed(&mut self, next_hop: IpAddr, now: Instant) {
        let until = now + self.config.reachable;
        let Some((slot, entry)) = self.table.find(next_hop) else { return };
        match &mut entry.state {
            State::Reachable { until: old } => *old = until,
            State::Stale | State::Delay | State::Probe { .. } => {
                self.table.set_state(slot, State::Reachable { until }, None);
            }
            State::Incomplete { .. } | State::Unreachable { .. } => {}
        }
    }

    /// Another cache of this host, which leaves asking to this one, wants to know who has `target`, or,
    /// where it knew (`is_known`), whether that is still so. Returns what is known here and is good enough;
    /// otherwise the neighbour is being asked, or was a moment ago, and the other cache hears its answer.
    pub fn on_asked_for(&mut self, now: Instant, target: IpAddr, is_known: bool) -> Option<Known> {
        let entry = self.table.find(target);
        if let Some((slot, Entry { state: State::Unreachable { .. }, .. })) = &entry {
            // The other cache counts on a request for each of its questions, and the last of this one was an interval ago.
            let slot = *slot;
            self.start_resolution(slot);
            return None;
        }
        let Some((slot, entry)) = entry.filter(|(_, entry)| entry.known_link().is_some()) else {
            self.lookup(now, target);
            return None;
        };
        let is_reachable = matches!(entry.state, State::Reachable { until } if now < until);
        let known = Known { link: entry.link, is_reachable };
        if matches!(entry.state, State::Probe { .. }) {
            return (!is_known).then_some(known);
        }
        let was_asked = entry.asked_at.is_some_and(|at| now < at + self.config.retransmit);
        if !is_known || was_asked {
            return Some(known);
        }
        self.table.set_state(slot, State::Probe { attempts: 0 }, None);
        self.request(slot);
        None
    }

    /// What the cache that asks for this one says of a neighbour ([`NeighbourCache::on_asked_for`]).
    pub fn on_told(&mut self, now: Instant, target: IpAddr, known: &Known) {
        let told = match known.is_reachable {
            true => Told::Answer { solicited: true, replaces: true },
            false => Told::Unconfirmed,
        };
        self.learn(now, target, known.link, told, false);
    }

    /// A received ARP message; `target_is_ours` says whether its target protocol address is one of
    /// ours. Returns the reply to send, to the hardware address that is its target.
    ///
    /// RFC 826, "Packet Reception": what is known of the sender is updated whatever the operation,
    /// and made only where the message is for us; here only by a request, because an answer that
    /// nobody asked for is how caches are poisoned.
    ///
    /// # Errors
    /// [`DropReason::MalformedNeighbour`] where the sender claims an address that no station has.
    pub fn on_arp(
        &mut self,
        now: Instant,
        message: &ArpRepr,
        ours: HardwareAddress,
        target_is_ours: bool,
    ) -> Result<Option<ArpRepr>, DropReason> {
        let sender = message.sender_protocol;
        // RFC 1812, 3.3.2: MUST NOT believe that a host has a broadcast or multicast address.
        if !message.sender_hardware.is_unicast()
            || sender.is_multicast()
            || sender.is_broadcast()
            || sender.is_loopback()
        {
            return Err(DropReason::MalformedNeighbour);
        }
        let is_request = message.operation == ArpOperation::Request;
        // RFC 5227, 1.1: a probe for an address has no sender address and tells nothing.
        if !sender.is_unspecified() {
            let told = match (is_request, target_is_ours) {
                (true, _) => Told::Unconfirmed,
                (false, solicited) => Told::Answer { solicited, replaces: true },
            };
            let create = is_request && target_is_ours;
            self.learn(now, sender.into(), message.sender_hardware, told, create);
        }
        let reply = ArpRepr {
            operation: ArpOperation::Reply,
            sender_hardware: ours,
            sender_protocol: message.target_protocol,
            target_hardware: message.sender_hardware,
            target_protocol: sender,
        };
        Ok((is_request && target_is_ours).then_some(reply))
    }

    /// A received neighbour solicitation for `target`, which is one of our addresses. Returns the
    /// answer (RFC 4861, 7.2.3 and 7.2.4).
    ///
    /// # Errors
    /// [`DropReason::MalformedNeighbour`] where the sender claims an address that no station has.
    pub fn on_neighbour_solicitation(
        &mut self,
        now: Instant,
        envelope: &NdpEnvelope,
        target: Ipv6Addr,
        source_link: Option<HardwareAddress>,
        ours: HardwareAddress,
    ) -> Result<Advertisement, DropReason> {
        if let Some(link) = source_link {
            self.on_link_address(now, envelope.source.into(), link)?;
        }
        // 7.2.4: to a sender without an address the answer goes to all nodes, and is not called
        // solicited.
        let solicited = !envelope.source.is_unspecified();
        let destination = if solicited { envelope.source } else { ALL_NODES };
        let message = NdpRepr::NeighbourAdvertisement {
            router: false,
            solicited,
            replaces: true,
            target,
            target_link: Some(ours),
        };
        Ok(Advertisement { destination, message })
    }

    /// A node told its hardware address in passing: in the source link-layer option of a
    /// solicitation or a router advertisement, or in the target's of a redirect (RFC 4861, 6.3.4,
    /// 7.2.3, 8.3). It is kept and not believed to be reachable.
    ///
    /// # Errors
    /// [`DropReason::MalformedNeighbour`] where no station has such an address.
    pub fn on_link_address(
        &mut self,
        now: Instant,
        address: IpAddr,
        link: HardwareAddress,
    ) -> Result<(), DropReason> {
        if !link.is_unicast() || address.is_multicast() || address.is_unspecified() {
            return Err(DropReason::MalformedNeighbour);
        }
        self.learn(now, address, link, Told::Unconfirmed, true);
        Ok(())
    }

    /// A received neighbour advertisement (RFC 4861, 7.2.5); `replaces` is its override flag. Says whether
    /// it is believed, so that what its router flag says holds, too: not where nobody asked for the
    /// neighbour, or where it names another station than the one known and does not replace it.
    ///
    /// # Errors
    /// [`DropReason::MalformedNeighbour`] where it tells of an address that no station has.
    pub fn on_neighbour_advertisement(
        &mut self,
        now: Instant,
        target: Ipv6Addr,
        target_link: Option<HardwareAddress>,
        solicited: bool,
        replaces: bool,
    ) -> Result<bool, DropReason> {
        if target_link.is_some_and(|link| !link.is_unicast()) {
            return Err(DropReason::MalformedNeighbour);
        }
        // "If no entry exists, the advertisement SHOULD be silently discarded."
        let Some((_, entry)) = self.table.find(target.into()) else { return Ok(false) };
        let known = entry.known_link();
        // "If the neighbor's entry is INCOMPLETE ... and no Target Link-Layer Address option is
        // included, the receiving node SHOULD silently discard the received advertisement."
        let Some(link) = target_link.or(known) else { return Ok(false) };
        self.learn(now, target.into(), link, Told::Answer { solicited, replaces }, false);
        Ok(replaces || known.is_none_or(|known| known == link))
    }

    /// Merges what a message told of a neighbour into its entry; where there is none, `create`
    /// makes a stale one.
    fn learn(
        &mut self,
        now: Instant,
        address: IpAddr,
        link: HardwareAddress,
        told: Told,
        create: bool,
    ) {
        let Some((slot, entry)) = self.table.find(address) else {
            if create {
                let slot = self.insert(now, address, State::Stale);
                if let Some(entry) = self.table.entry(slot) {
                    entry.link = link;
                }
            }
            return;
        };
        let confirmed = State::Reachable { until: now + self.config.reachable };
        let next = next_state(entry, link, told, confirmed);
        let Some((state, takes_link)) = next else { return };
        if takes_link {
            if entry.known_link().is_some_and(|known| known != link) {
                self.counters.neighbour_address_changes += 1;
            }
            entry.link = link;
        }
        let ended = matches!(entry.state, State::Incomplete { .. });
        let waiting = entry.take_waiting();
        self.table.set_state(slot, state, None);
        if ended {
            self.end_resolution(address, Ok(link), waiting);
        }
    }

    /// The next request to send; call until there is none. The time to its repetition begins now.
    pub fn poll_request(&mut self, now: Instant) -> Option<Request> {
        while let Some(slot) = self.requests.pop_front() {
            let Some(entry) = self.table.entry(slot) else { continue };
            entry.request_queued = false;
            let target = entry.address;
            let (state, unicast_to) = match entry.state {
                State::Incomplete { attempts } => {
                    (State::Incomplete { attempts: attempts + 1 }, None)
                }
                State::Probe { attempts } => {
                    (State::Probe { attempts: attempts + 1 }, Some(entry.link))
                }
                // Answered before the request went out.
                _ => continue,
            };
            entry.asked_at = Some(now);
            self.table.set_state(slot, state, Some(now + self.config.retransmit));
            self.counters.neighbour_requests += 1;
            return Some(Request { target, unicast_to });
        }
        None
    }

    /// The interface has a source address of this family again. What was asked without one was asked of
    /// nobody, so it counts for no attempt, and who was given up for it may be asked at once.
    pub fn on_source_address(&mut self, is_ipv4: bool) {
        for slot in self.table.slots(is_ipv4) {
            let Some(entry) = self.table.entry(slot) else { continue };
            let deadline = entry.deadline;
            let state = match entry.state {
                State::Incomplete { .. } => State::Incomplete { attempts: 0 },
                State::Probe { .. } => State::Probe { attempts: 0 },
                State::Unreachable { .. } => State::Unreachable { until: Instant::ZERO },
                State::Reachable { .. } | State::Stale | State::Delay => continue,
            };
            self.table.set_state(slot, state, deadline);
        }
    }

    /// Other stations may be on the link from now on: who is needed is asked for again.
    pub fn forget_links(&mut self) {
        for slot in [self.table.slots(true), self.table.slots(false)].concat() {
            if self.table.entry(slot).is_some_and(|entry| entry.known_link().is_some()) {
                let state = State::Unreachable { until: Instant::ZERO };
                self.table.set_state(slot, state, None);
            }
        }
        // Who was asked in vain was asked elsewhere.
        self.on_source_address(true);
        self.on_source_address(false);
    }

    /// What a router said of this link (RFC 4861, 6.3.4): how long a confirmation holds, drawn at
    /// random by the caller, and the time from one request to the next. What runs already keeps
    /// its times.
    pub fn set_times(&mut self, reachable: Duration, retransmit: Duration) {
        self.config.reachable = reachable;
        self.config.retransmit = retransmit;
    }

    /// Whether there is neither a request to send nor a resolution to read: mostly so.
    #[inline]
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.requests.is_empty() && self.resolved.is_empty()
    }

    /// Whether packets wait for a neighbour, or to be handed back.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        self.waiting_count() > 0
    }

    /// How many do.
    #[must_use]
    pub fn waiting_count(&self) -> usize {
        self.waiting_packets + self.resolved.iter().map(|it| it.waiting.len()).sum::<usize>()
    }

    /// The next resolution that ended; call until there is none.
    pub fn poll_resolved(&mut self) -> Option<Resolved<W>> {
        self.resolved.pop_front()
    }

    /// When [`NeighbourCache::on_timeout`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.table.first_deadline()
    }

    /// Does what is due by `now`; requests and resolutions may follow from it.
    pub fn on_timeout(&mut self, now: Instant) {
        // Every turn takes a deadline away and none sets one, so this ends.
        while let Some(slot) = self.table.pop_due(now) {
            let Some(entry) = self.table.entry(slot) else { continue };
            match entry.state {
                State::Delay => {
                    self.table.set_state(slot, State::Probe { attempts: 0 }, None);
                    self.request(slot);
                }
                State::Incomplete { attempts } | State::Probe { attempts }
                    if attempts < self.config.attempts =>
                {
                    self.request(slot);
                }
                State::Incomplete { .. } => {
                    let (address, waiting) = (entry.address, entry.take_waiting());
                    let until = now + self.config.unreachable;
                    self.table.set_state(slot, State::Unreachable { until }, None);
                    self.end_resolution(address, Err(Unreachable), waiting);
                }
                // 7.3.3: the entry SHOULD be deleted, which signals the need for next-hop determination: another
                // router may be better. The next packet starts afresh and asks all.
                State::Probe { .. } => {
                    let address = entry.address;
                    self.forget(slot);
                    self.end_resolution(address, Err(Unreachable), VecDeque::new());
                }
                State::Reachable { .. } | State::Stale | State::Unreachable { .. } => {}
            }
        }
    }

    /// How many neighbours there are entries for.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What the cache did so far.
    #[must_use]
    pub fn counters(&self) -> NeighbourCounters {
        self.counters
    }
}

/// The state that follows when `link` was told of `entry`, and whether the link is taken over;
/// `None` where nothing changes (RFC 4861, 7.2.3 and 7.2.5).
fn next_state<W>(
    entry: &Entry<W>,
    link: HardwareAddress,
    told: Told,
    confirmed: State,
) -> Option<(State, bool)> {
    let Some(known) = entry.known_link() else {
        let solicited = matches!(told, Told::Answer { solicited: true, .. });
        let asked = matches!(entry.state, State::Incomplete { .. });
        return Some((if solicited && asked { confirmed } else { State::Stale }, true));
    };
    let differs = known != link;
    match told {
        Told::Unconfirmed => differs.then_some((State::Stale, true)),
        // I: another address that does not claim to replace the known one.
        Told::Answer { replaces: false, .. } if differs => {
            let reachable = matches!(entry.state, State::Reachable { .. });
            reachable.then_some((State::Stale, false))
        }
        // II: the same address, or one that replaces it.
        Told::Answer { solicited: true, .. } => Some((confirmed, true)),
        Told::Answer { solicited: false, .. } => differs.then_some((State::Stale, true)),
    }
}
