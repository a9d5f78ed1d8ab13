//! The shard: everything one squeue protects.
//!
//! A shard is made of parts that do not know each other (interfaces, routes, sockets, deadlines,
//! events); this module owns them and holds what concerns all: settling a connection after any of
//! its calls, and time. The way out is `egress.rs`, the way in `ingress.rs`, the socket calls
//! `tcp_socket.rs` and `udp_socket.rs`, and what hosts say to each other about the network itself
//! `control.rs`.

use crate::counters::{ShardCounters, StackCounters};
use crate::error::SocketError;
use crate::event::{Events, Readiness, SocketEvent};
use crate::interface::{Interface, InterfaceConfig, InterfaceId};
use crate::outbox::Outgoing;
use crate::schedule::Deadlines;
use crate::sockets::{Flow, Keys, Socket, SocketId, Sockets};
use batch::BlockPool;
use core::net::{IpAddr, SocketAddr};
use counters::{DropCounters, DropReason};
use device::{Capabilities, TransmitMode};
use ip::{Cidr, RateLimiter, Route, RouteTable};
use link::NeighbourCounters;
use tcp::isn::IsnGenerator;
use time::Instant;

/// What a shard is made from.
#[derive(Clone, Debug)]
pub struct ShardConfig {
    /// Settings of connections that do not ask for others.
    pub tcp: tcp::Config,
    /// Where blocks come from.
    pub pool: BlockPool,
    /// Unpredictable bytes: initial sequence numbers, ports and hash keys come from them.
    pub secret: [u8; 32],
    /// Sockets that may be open at once, connections included.
    pub sockets_max: usize,
}

/// ICMP errors per second (as Linux has it), and at once after a pause. Echo replies are bounded
/// by the outbox alone.
const ICMP_PER_SECOND: u32 = 1_000;
const ICMP_BURST: u32 = 200;

/// All protocol state of one squeue. Sans-IO: it is told the time and given batches.
///
/// The order of calls: [`Shard::on_receive`] with what came in, [`Shard::on_timeout`] when
/// [`Shard::poll_timeout`] is due, then [`Shard::poll_transmit`] and [`Shard::on_transmitted`] in
/// turn until nothing is left to send, then [`Shard::poll_event`] until it is empty. Every call but
/// `on_transmitted` may come at any time in between.
pub struct Shard {
    pub(crate) config: tcp::Config,
    pub(crate) pool: BlockPool,
    pub(crate) interfaces: Vec<Interface>,
    pub(crate) routes: RouteTable,
    pub(crate) sockets: Sockets,
    pub(crate) deadlines: Deadlines,
    pub(crate) events: Events,
    pub(crate) sequence_numbers: IsnGenerator,
    pub(crate) icmp_limit: RateLimiter,
    pub(crate) counters: ShardCounters,
    pub(crate) drops: DropCounters,
    /// Counters of connections that are gone.
    past: tcp::TcpCounters,
    /// The flow of the last segment and its connection.
    pub(crate) flow_cache: Option<(Flow, u32)>,
    /// Owners and packet counts of the batch the device is looking at, in its order.
    pub(crate) planned: Vec<(u32, usize)>,
    /// Connections that the receive batch has touched so far.
    pub(crate) touched: Vec<u32>,
}

impl Shard {
    /// A shard without interfaces and sockets.
    #[must_use]
    pub fn new(config: ShardConfig) -> Self {
        let word = |at: usize| {
            let bytes: [u8; 8] = core::array::from_fn(|i| config.secret[at + i]);
            u64::from_le_bytes(bytes)
        };
        let sequence_key = core::array::from_fn(|i| config.secret[i]);
        Self {
            config: config.tcp,
            pool: config.pool,
            interfaces: Vec::new(),
            routes: RouteTable::default(),
            sockets: Sockets::new(Keys(word(16), word(24)), config.sockets_max),
            deadlines: Deadlines::default(),
            events: Events::default(),
            sequence_numbers: IsnGenerator::new(sequence_key),
            icmp_limit: RateLimiter::new(ICMP_PER_SECOND, ICMP_BURST, word(8)),
            counters: ShardCounters::default(),
            drops: DropCounters::default(),
            past: tcp::TcpCounters::default(),
            flow_cache: None,
            planned: Vec::new(),
            touched: Vec::new(),
        }
    }

    /// Adds an interface with its addresses and the routes that follow from them.
    ///
    /// # Errors
    /// [`SocketError::InvalidArgument`] where a gateway is on no network of the interface.
    pub fn add_interface(&mut self, config: InterfaceConfig) -> Result<InterfaceId, SocketError> {
        let id = self.interfaces.len() as u32;
        let everywhere = |gateway: &IpAddr| match gateway {
            IpAddr::V4(_) => Cidr::ANY_IPV4,
            IpAddr::V6(_) => Cidr::ANY_IPV6,
        };
        for gateway in &config.gateways {
            if !config.addresses.iter().any(|cidr| cidr.contains(*gateway)) {
                return Err(SocketError::InvalidArgument);
            }
        }
        let networks = config.addresses.iter().map(|cidr| (*cidr, None));
        let gateways = config.gateways.iter().map(|gateway| (everywhere(gateway), Some(*gateway)));
        for (destination, gateway) in networks.chain(gateways) {
            self.routes.insert(Route { destination, gateway, interface: id, mtu_bytes: None });
        }
        self.interfaces.push(Interface::new(config, id as u16));
        let id = InterfaceId(id);
        let mode = self.interfaces[id.0 as usize].mode;
        self.set_mode(id, mode);
        Ok(id)
    }

    /// Takes note of what the interface's device can do now, found anew after a capability was
    /// taken back. A mode that is no longer possible falls back to `multidata`.
    pub fn set_capabilities(&mut self, id: InterfaceId, capabilities: Capabilities) {
        if let Some(interface) = self.interfaces.get_mut(id.0 as usize) {
            interface.capabilities = capabilities;
            let mode = interface.mode;
            self.set_mode(id, mode);
        }
    }

    /// Selects the transmit mode and returns the one that is now in force: the one asked for, or
    /// `multidata` where the device cannot do it.
    pub fn set_mode(&mut self, id: InterfaceId, mode: TransmitMode) -> TransmitMode {
        let Some(interface) = self.interfaces.get_mut(id.0 as usize) else { return mode };
        let supported = interface.capabilities.supports(mode);
        interface.mode = if supported { mode } else { TransmitMode::Multidata };
        interface.mode
    }

    /// The transmit mode in force.
    #[must_use]
    pub fn mode(&self, id: InterfaceId) -> Option<TransmitMode> {
        self.interfaces.get(id.0 as usize).map(|interface| interface.mode)
    }

    /// When [`Shard::on_timeout`] wants to be called next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let neighbours = self.interfaces.iter().filter_map(|i| i.neighbours.poll_timeout());
        neighbours.chain(self.deadlines.next()).min()
    }

    /// Lets everything that is due happen.
    pub fn on_timeout(&mut self, now: Instant) {
        for interface in &mut self.interfaces {
            interface.neighbours.on_timeout(now);
        }
        while let Some((at, index)) = self.deadlines.pop_due(now) {
            let Some(socket) = self.sockets.tcp(index) else { continue };
            if socket.earliest == Some(at) {
                socket.earliest = None;
            }
            if socket.connection.poll_timeout().is_some_and(|due| due <= now) {
                self.counters.timeouts += 1;
                socket.connection.on_timeout(now);
            }
            self.settle(now, index);
        }
    }

    /// The next socket on which something became possible.
    pub fn poll_event(&mut self) -> Option<SocketEvent> {
        while let Some(socket) = self.events.next() {
            let Ok(index) = self.sockets.index(socket) else { continue };
            let Some(pending) = self.sockets.pending(index) else { continue };
            let readiness = core::mem::take(pending);
            if !readiness.is_empty() {
                return Some(SocketEvent { socket, readiness });
            }
        }
        None
    }

    /// Whether any interface has something to send, as far as is known without building it.
    #[must_use]
    pub fn wants_transmit(&self) -> bool {
        self.interfaces.iter().any(|i| i.ready.len() > 0 || !i.outbox.is_empty())
    }

    /// What was counted so far, over all connections.
    #[must_use]
    pub fn counters(&self) -> StackCounters {
        let mut tcp = self.past;
        for (_, socket) in self.sockets.iter() {
            if let Socket::Tcp(socket) = socket {
                tcp.merge(socket.connection.counters());
            }
        }
        let mut neighbours = NeighbourCounters::default();
        for interface in &self.interfaces {
            neighbours.merge(&interface.neighbours.counters());
        }
        StackCounters { shard: self.counters, tcp, neighbours, drops: self.drops }
    }

    /// How many sockets are open, connections that only finish closing included.
    #[must_use]
    pub fn socket_count(&self) -> usize {
        self.sockets.iter().count()
    }

    /// Called after any call on a connection: passes its events on, notes whether it has something
    /// to send and when it wants to be called, and forgets it when it is over and unowned.
    pub(crate) fn settle(&mut self, now: Instant, index: u32) {
        let Some(socket) = self.sockets.tcp(index) else { return };
        let events = socket.connection.take_events();
        if socket.connection.wants_transmit(now)
            && let Some(interface) = self.interfaces.get_mut(socket.path.interface.0 as usize)
        {
            interface.ready.add(index, &mut socket.queued);
        }
        let wanted = socket.connection.poll_timeout();
        self.deadlines.want(index, wanted, &mut socket.earliest);
        if !events.is_empty() {
            self.on_connection_events(index, events);
        }
        let Some(socket) = self.sockets.tcp(index) else { return };
        if socket.is_over() {
            self.remove_connection(index);
        } else if socket.connection.is_finished() {
            // RFC 9293, 3.10.7.1: what still arrives finds no connection, though the application has
            // not let go of the socket yet.
            let flow = socket.flow;
            self.remove_flow(&flow, index);
        }
    }

    /// Adds an event for the socket in slot `index`.
    pub(crate) fn notify(&mut self, index: u32, readiness: Readiness) {
        let Some(id) = self.sockets.id(index) else { return };
        if let Some(pending) = self.sockets.pending(index) {
            self.events.add(id, pending, readiness);
        }
    }

    /// Forgets a connection; its counters are kept.
    pub(crate) fn remove_connection(&mut self, index: u32) {
        let Some(Socket::Tcp(socket)) = self.sockets.remove(index) else { return };
        self.past.merge(socket.connection.counters());
        self.deadlines.forget(index, socket.earliest);
        self.remove_flow(&socket.flow, index);
    }

    /// No segment finds this connection any more.
    pub(crate) fn remove_flow(&mut self, flow: &Flow, index: u32) {
        self.sockets.remove_flow(flow, index);
        self.flow_cache = self.flow_cache.filter(|(_, cached)| *cached != index);
    }

    /// The route to `destination`: the interface and the next hop on its link.
    pub(crate) fn route(&self, destination: IpAddr) -> Result<(InterfaceId, IpAddr), SocketError> {
        if destination.is_unspecified() {
            return Err(SocketError::InvalidArgument);
        }
        if self.interfaces.iter().any(|interface| interface.is_ours(destination)) {
            // Loopback is not one of this stack's interfaces yet.
            return Err(SocketError::NoRoute);
        }
        let route = self.routes.lookup(destination).ok_or(SocketError::NoRoute)?;
        Ok((InterfaceId(route.interface), route.gateway.unwrap_or(destination)))
    }

    /// The next hop to `destination` by interface `id`, over which it was heard: the host answers
    /// by the way it was asked, whatever way it would take itself (RFC 1122, 3.3.4.2: strong hosts).
    pub(crate) fn next_hop_by(&self, id: InterfaceId, destination: IpAddr) -> IpAddr {
        let leads =
            |route: &&Route| route.interface == id.0 && route.destination.contains(destination);
        let route = self.routes.routes().iter().find(leads);
        route.and_then(|route| route.gateway).unwrap_or(destination)
    }

    /// Whether a socket may be bound to `local`: the unspecified address or one of ours.
    pub(crate) fn check_local(&self, local: SocketAddr) -> Result<(), SocketError> {
        let ours = self.interfaces.iter().any(|interface| interface.is_ours(local.ip()));
        match ours || local.ip().is_unspecified() {
            true => Ok(()),
            false => Err(SocketError::AddressNotAvailable),
        }
    }

    /// Queues a small packet on interface `id`; a full queue drops it, counted.
    pub(crate) fn send_small(&mut self, id: InterfaceId, packet: Outgoing) {
        let Some(interface) = self.interfaces.get_mut(id.0 as usize) else { return };
        if !interface.outbox.push(packet) {
            self.drops.add(DropReason::TransmitQueueFull);
        }
    }

    /// The id of the socket in slot `index`, for callers outside the slab.
    pub(crate) fn socket_id(&self, index: u32) -> Option<SocketId> {
        self.sockets.id(index)
    }
}
