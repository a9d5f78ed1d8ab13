//! What a host is without its sockets: interfaces, routes, own addresses, and what paths take.
//!
//! The larger half of a host's duties is of no socket: which way leads where, what may be a source, what is said to
//! neighbours and routers, what interfaces negotiate with their devices, which fragments belong together, what a filter
//! lets pass. They are methods of [`NetworkLayer`], in the files of these duties, and reach no socket: the few that judge
//! one are shown it. What concerns sockets as well is [`Shard`](crate::Shard)'s, in the same files.
//!
//! * `interfaces.rs` is how interfaces are named; `interface.rs` is one of them.
//! * `addressing/` is the life of their own addresses, `endpoint.rs` what the ends of flows are called.
//! * `neighbours.rs` is what hosts say to find each other on a link (ARP, NDP).
//! * `multicast.rs` knows who listens to which group, and tells routers; `shared_groups.rs` does so for several shards.
//! * `paths.rs` knows what the paths to peers take, `way.rs` by which way a datagram leaves, `rerouting.rs` what becomes of
//!   connections when that changes, `multirouting.rs` what leaves by several.
//! * `negotiation.rs` is what interfaces and devices agree on.
//! * `filter.rs` is where a filter looks at packets, `unscreened.rs` what of the outbox it looks at together.
//! * `fragments.rs` is the way of fragments until they are whole, `offered.rs` how what is too long becomes fragments.
//! * `flow_labels.rs` draws the labels of IPv6 flows.

pub(crate) mod addressing;
pub(crate) mod endpoint;
pub(crate) mod filter;
pub(crate) mod flow_labels;
pub(crate) mod fragments;
pub(crate) mod interface;
pub(crate) mod interfaces;
pub(crate) mod multicast;
pub(crate) mod multirouting;
pub(crate) mod negotiation;
pub(crate) mod neighbours;
pub(crate) mod offered;
pub(crate) mod paths;
pub(crate) mod rerouting;
pub(crate) mod shared_groups;
pub(crate) mod unscreened;
pub(crate) mod way;

use crate::counters::{InterfaceCounters, ShardCounters};
use crate::error::{BadArgument, SocketError};
use crate::event::Kept;
use crate::loopback;
use crate::network::addressing::AddressEvent;
use crate::network::filter::GuardedFilter;
use crate::network::flow_labels::FlowLabels;
use crate::network::interface::{Interface, InterfaceConfig};
use crate::network::interfaces::{InterfaceId, Interfaces};
use crate::network::negotiation::InterfaceEvent;
use crate::outbox::Outgoing;
use crate::shard::word;
use crate::share::Sharing;
use crate::sockets::Keys;
use batch::{BlockPool, Chunk, Chunks};
use core::hash::BuildHasher;
use core::net::{IpAddr, SocketAddr};
use counters::{DropCounters, DropReason};
use ip::{
    Identifications, PathMtuConfig, PathMtus, RateLimiter, Reassembly, ReassemblyConfig, Route,
    RouteTable,
};

/// ICMP errors per second (as Linux has it), and at once after a pause. Echo replies are bounded
/// by the outbox alone.
const ICMP_PER_SECOND: u32 = 1_000;
const ICMP_BURST: u32 = 200;

/// The network of a shard.
pub(crate) struct NetworkLayer {
    pub(crate) pool: BlockPool,
    pub(crate) interfaces: Interfaces,
    pub(crate) routes: RouteTable,
    pub(crate) reassembly: Reassembly<Keys>,
    pub(crate) identifications: Identifications<Keys>,
    pub(crate) path_mtus: PathMtus<Keys>,
    pub(crate) flow_labels: FlowLabels,
    pub(crate) icmp_limit: RateLimiter,
    /// Source and destination of the last TCP segment that was for us, and the interface that it came by: the next one
    /// mostly has them, too. Whoever changes what an interface accepts forgets them.
    pub(crate) checked_addresses: Option<(InterfaceId, IpAddr, IpAddr)>,
    /// `ip_multidata_outbound` of all interfaces together.
    pub(crate) multidata_outbound: bool,
    pub(crate) filter: Option<GuardedFilter>,
    /// What interfaces draw their random delays from.
    pub(crate) seed: u64,
    pub(crate) address_events: Kept<AddressEvent>,
    /// Addresses that interfaces have no more, of which connections do not know yet.
    pub(crate) left_addresses: Vec<(InterfaceId, IpAddr)>,
    pub(crate) interface_events: Kept<InterfaceEvent>,
    /// What interfaces that were removed have counted.
    pub(crate) past_interfaces: InterfaceCounters,
    /// Of the loopback interface.
    pub(crate) loopback: loopback::Batches,
    pub(crate) sharing: Sharing,
    /// What it has counted and dropped by itself; [`Shard::counters`](crate::Shard::counters) adds the rest.
    pub(crate) counters: ShardCounters,
    pub(crate) drops: DropCounters,
}

impl NetworkLayer {
    pub(crate) fn new(pool: &BlockPool, secret: &[u8; 32], keys: Keys) -> Self {
        let word = |at| word(secret, at);
        let mut network = Self {
            pool: pool.clone(),
            interfaces: Interfaces::new(loopback::interface()),
            routes: RouteTable::default(),
            reassembly: Reassembly::new(ReassemblyConfig::default(), keys),
            identifications: Identifications::new(Keys(word(8), word(16))),
            path_mtus: PathMtus::new(PathMtuConfig::default(), keys),
            flow_labels: FlowLabels::new(keys),
            icmp_limit: RateLimiter::new(ICMP_PER_SECOND, ICMP_BURST, word(8)),
            checked_addresses: None,
            multidata_outbound: true,
            filter: None,
            seed: keys.hash_one("addressing"),
            address_events: Kept::default(),
            left_addresses: Vec::new(),
            interface_events: Kept::default(),
            past_interfaces: InterfaceCounters::default(),
            loopback: None,
            sharing: Sharing::new([word(8), word(16)]),
            counters: ShardCounters::default(),
            drops: DropCounters::default(),
        };
        network.negotiate(InterfaceId::LOOPBACK);
        network
    }

    /// What it has counted by itself.
    pub(crate) fn counters(&self) -> ShardCounters {
        ShardCounters {
            path_mtus_evicted: self.path_mtus.evicted(),
            address_events_forgotten: self.address_events.forgotten,
            interface_events_forgotten: self.interface_events.forgotten,
            filter_panics: self.filter_panics(),
            ..self.counters
        }
    }

    /// What its interfaces have counted, removed ones included.
    pub(crate) fn interface_counters(&self) -> InterfaceCounters {
        let mut sum = self.past_interfaces;
        self.interfaces.iter().for_each(|interface| sum.add(interface));
        sum
    }

    pub(crate) fn check_gateways(&self, config: &InterfaceConfig) -> Result<(), SocketError> {
        for (at, gateway) in config.gateways.iter().enumerate() {
            if !config.addresses.iter().any(|cidr| cidr.contains(*gateway)) {
                return Err(BadArgument::FarGateway(*gateway).into());
            }
            let is_own = config.addresses.iter().any(|cidr| cidr.address() == *gateway);
            if is_own || self.is_own_address(*gateway) {
                return Err(BadArgument::OwnGateway(*gateway).into());
            }
            let mut before = config.gateways[..at].iter();
            let is_other = |it: &&IpAddr| it.is_ipv4() == gateway.is_ipv4() && *it != gateway;
            if let Some(other) = before.find(is_other) {
                return Err(BadArgument::TwoGateways(*other, *gateway).into());
            }
        }
        Ok(())
    }

    /// The route to `destination`: the interface and the next hop on its link.
    pub(crate) fn route(&self, destination: IpAddr) -> Result<(InterfaceId, IpAddr), SocketError> {
        if destination.is_unspecified() {
            return Err(BadArgument::NoDestination(destination).into());
        }
        if self.is_own_address(destination) {
            return Ok((InterfaceId::LOOPBACK, destination));
        }
        let route = self.routes.lookup(destination).ok_or_else(|| self.no_way(destination))?;
        let is_up = |route: &&Route| {
            self.interfaces.get(InterfaceId::numbered(route.interface)).is_some_and(|it| !it.is_out)
        };
        let route = self.routes.duplicating(destination).find(is_up).copied().unwrap_or(route);
        Ok((InterfaceId::numbered(route.interface), route.next_hop(destination)))
    }

    /// Why nothing leads to `destination`: what is missing first is an address of its IP version.
    #[cold]
    fn no_way(&self, destination: IpAddr) -> SocketError {
        let is_of_it = |cidr: &ip::Cidr| cidr.address().is_ipv4() == destination.is_ipv4();
        let has = |it: &Interface| !it.is_loopback && it.addresses.iter().any(is_of_it);
        match self.interfaces.iter().any(has) {
            true => SocketError::NoRoute(destination),
            false => SocketError::NoSourceFor(destination),
        }
    }

    /// As [`NetworkLayer::route`], by the interface that was asked for, if any: to the host that has the address on
    /// its link.
    ///
    /// # Errors
    /// [`SocketError::NoRoute`] where no route of that interface leads to `destination`.
    pub(crate) fn route_by(
        &self,
        destination: IpAddr,
        asked: Option<InterfaceId>,
    ) -> Result<(InterfaceId, IpAddr), SocketError> {
        let Some(id) = asked else { return self.route(destination) };
        if self.interfaces[id].is_ours(destination) {
            return Ok((InterfaceId::LOOPBACK, destination));
        }
        let route = self.route_of(id, destination).ok_or(SocketError::NoRoute(destination))?;
        Ok((id, route.next_hop(destination)))
    }

    /// The route to `destination` by interface `id`.
    pub(crate) fn route_of(&self, id: InterfaceId, destination: IpAddr) -> Option<&Route> {
        let leads = |route: &&Route| {
            route.interface == id.number() && route.destination.contains(destination)
        };
        self.routes.routes().iter().find(leads)
    }

    /// As [`NetworkLayer::route_by`], for what has the source `source`, or none yet (unspecified). Answers to an
    /// address are taken by its own interface only, so what has it leaves by that one, whatever route
    /// would be used otherwise (RFC 1122, 3.3.4.2 (B), the strong model).
    ///
    /// # Errors
    /// [`SocketError::NoRoute`] where no route of that interface leads to `destination`, or another was asked for.
    pub(crate) fn route_from(
        &self,
        source: IpAddr,
        destination: IpAddr,
        asked: Option<InterfaceId>,
    ) -> Result<(InterfaceId, IpAddr), SocketError> {
        let found = self.route_by(destination, asked)?;
        let has = |interface: &Interface| interface.may_send_from(source);
        if self.interfaces.get(found.0).is_some_and(has) || source.is_loopback() {
            return Ok(found);
        }
        if asked.is_some() {
            return Err(SocketError::NoRoute(destination));
        }
        let leads = |route: &&Route| {
            route.destination.contains(destination)
                && self.interfaces.get(InterfaceId::numbered(route.interface)).is_some_and(has)
        };
        let route =
            self.routes.routes().iter().find(leads).ok_or(SocketError::NoRoute(destination))?;
        Ok((InterfaceId::numbered(route.interface), route.next_hop(destination)))
    }

    /// The next hop to `destination` by interface `id`, over which it was heard: the host answers
    /// by the way it was asked, whatever way it would take itself (RFC 1122, 3.3.4.2: strong hosts).
    pub(crate) fn next_hop_by(&self, id: InterfaceId, destination: IpAddr) -> IpAddr {
        let route = self.route_of(id, destination);
        route.and_then(|route| route.gateway).unwrap_or(destination)
    }

    /// The next hop for what answers a packet from `remote` that came over interface `id`.
    pub(crate) fn way_back(&self, id: InterfaceId, remote: IpAddr) -> Result<IpAddr, DropReason> {
        let (out, next_hop) = self.route(remote).map_err(|_| DropReason::NoRoute)?;
        Ok(if out == id { next_hop } else { self.next_hop_by(id, remote) })
    }

    /// Whether a socket may be bound to `local`: the unspecified address, or one that is ours or accepted, by the
    /// interface of its scope where it has one.
    pub(crate) fn check_local(&self, local: SocketAddr) -> Result<(), SocketError> {
        let (local, asked) = self.take_scope(local)?;
        let accepts = match asked {
            Some(id) => self.interfaces[id].accepts(local.ip()),
            None => self.accepts(local.ip()) || local.ip().is_unspecified(),
        };
        if accepts { Ok(()) } else { Err(SocketError::AddressNotAvailable) }
    }

    /// Queues a small packet on interface `id`; a full queue drops it, counted.
    pub(crate) fn send_small(&mut self, id: InterfaceId, packet: Outgoing) {
        let Some(interface) = self.interfaces.get_mut(id) else { return };
        if interface.is_removed {
            return self.drops.add(DropReason::InterfaceRemoved);
        }
        if !interface.outbox.push(packet) {
            self.drops.add(DropReason::TransmitQueueFull);
        }
    }

    /// A copy of `payload` in a block of its own size, so that a sparse block can go.
    pub(crate) fn compact(&self, payload: &Chunk) -> Result<Chunk, DropReason> {
        let mut block =
            self.pool.allocate_receive(payload.len()).map_err(|_| DropReason::NoMemory)?;
        block.bytes_mut()[..payload.len()].copy_from_slice(payload.bytes());
        Ok(Chunk::new(block.freeze(), 0..payload.len()))
    }

    /// What one of our own receives of a datagram that leaves: a receiver holds it in one block.
    pub(crate) fn in_one_block(&self, payload: &Chunks) -> Result<Chunk, DropReason> {
        if let Some(chunk) = payload.as_one() {
            return Ok(chunk.clone());
        }
        let len = payload.len();
        let mut block = self.pool.allocate_receive(len).map_err(|_| DropReason::NoMemory)?;
        payload.copy_to(&mut block.bytes_mut()[..len]);
        Ok(Chunk::new(block.freeze(), 0..len))
    }
}
