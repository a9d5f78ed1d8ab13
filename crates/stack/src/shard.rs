//! The shard: everything one squeue protects.
//!
//! A shard is made of parts that do not know each other (the network layer, sockets, handshakes, deadlines, ...); this
//! module owns them and holds what concerns all: settling a connection after any of its calls, and time. What needs
//! several parts at once is a method of [`Shard`] in the file of its matter, and the rest are methods of the parts. The
//! way out is `egress.rs`, the way in `ingress.rs`, the socket calls `connections/tcp_socket.rs`,
//! `datagrams/udp_socket.rs` and `datagrams/raw_socket.rs`.

use crate::connections::fast_open::FastOpen;
use crate::connections::handshakes::Handshakes;
use crate::connections::time_wait::Detached;
use crate::connections::train::Trains;
use crate::counters::{ConnectionCounters, InterfaceCounters, ShardCounters, StackCounters};
use crate::egress::Sending;
use crate::error::SocketError;
use crate::event::SocketEvent;
use crate::forwarding::Forwarding;
use crate::network::NetworkLayer;
use crate::network::addressing::check_fixed;
use crate::network::interface::{Interface, InterfaceConfig};
use crate::network::interfaces::InterfaceId;
use crate::schedule::Deadlines;
use crate::sockets::pressure::Pressure;
use crate::sockets::{Keys, Socket, Sockets};
use batch::{BlockPool, Unread};
use core::net::IpAddr;
use counters::{DropCounters, DropReason, RefusalCounters};
use ip::{Cidr, RateLimiter, Route, RouteOrigin};
use std::sync::Arc;
use tcp::IsnGenerator;
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

/// Resets per second for segments without a connection, at once after a pause; an answer costs one to
/// three of them.
const RESETS_PER_SECOND: u32 = 4_000;
const RESETS_BURST: u32 = 1_000;

/// All protocol state of one squeue. Sans-IO: it is told the time and given batches.
///
/// # Driving it
///
/// The crate `multidata` does all this, with threads that wait. On a loop of one's own, without a thread or a lock, it is
/// some 150 lines, those of `crates/linux/examples/own_loop.rs`. A turn, at one time `now`:
///
/// 1. [`Shard::relieve_pool`]; then each device queue's [`receive`](device::Queue::receive), and what it
///    brought to [`Shard::on_receive`]. Where it failed, [`Shard::on_device_failed`], once.
/// 2. [`Shard::on_timeout`] where [`Shard::poll_timeout`] is due.
/// 3. For each device queue [`reclaim`](device::Queue::reclaim), then [`Shard::poll_transmit`] with what it has room
///    for (a full one is offered one packet all the same), [`transmit`](device::Queue::transmit) and, before any other
///    call, [`Shard::on_transmitted`], until nothing is left to send or the device says why it stopped:
///    * `Full`: it is asked again when its waiter, or its file, says that it has room, or after
///      [`retry_after`](device::Queue::retry_after), or a millisecond;
///    * `Refused`: the packet is dropped and counted by `on_transmitted`; go on;
///    * `Revoked`: what it can do now is told by [`Shard::set_capabilities`], the mode that this leaves
///      ([`Shard::mode`]) is its [`set_mode`](device::Queue::set_mode), and what it can do in that is told again;
///    * `Failed`: `on_transmitted` has told the shard. Another device may take its place
///      ([`Shard::on_device_replaced`]); until then its connections stand still.
///
///    A queue that [is stalled](device::Queue::is_stalled) when nothing is left to send is called again soon.
/// 4. What is [wrong](device::Queue::trouble) with a device and may pass is told by [`Shard::on_device_trouble`] when it
///    begins and when it ends.
/// 5. [`Shard::poll_event`] until it is empty, and what the application does about it.
///
/// Another turn follows at once where a queue said that it may have more frames, `relieve_pool` that it has more to
/// copy, where [`Shard::is_loopback_pending`] or [`Shard::take_copies_queued`], where a turn stopped with something left to
/// send, and where the application did something. Otherwise sleep until a device has frames, or room
/// that it lacked, or until [`Shard::poll_timeout`]. A device that has frames and no memory to receive them into is
/// asked again after a millisecond, not at once. Every call but `on_transmitted` may come at any time in between.
pub struct Shard {
    pub(crate) network: NetworkLayer,
    pub(crate) config: Arc<tcp::Config>,
    pub(crate) pool: BlockPool,
    pub(crate) sockets: Sockets,
    pub(crate) handshakes: Handshakes,
    pub(crate) detached: Detached,
    pub(crate) fast_open: FastOpen,
    pub(crate) forwarding: Forwarding,
    pub(crate) deadlines: Deadlines,
    pub(crate) sequence_numbers: IsnGenerator,
    /// Of resets for segments without a connection.
    pub(crate) reset_limit: RateLimiter,
    /// What the network layer has not counted itself.
    pub(crate) counters: ShardCounters,
    pub(crate) drops: DropCounters,
    pub(crate) refusals: RefusalCounters,
    pub(crate) connection_counters: ConnectionCounters,
    pub(crate) tcp_options: wire::TcpOptionCounters,
    pub(crate) trains: Trains,
    pub(crate) sending: Sending,
    /// Connections that the receive batch has touched so far.
    pub(crate) touched: Vec<u32>,
    /// Who holds the devices' blocks, for when they run low.
    pub(crate) pressure: Pressure,
    /// What UDP and raw sockets hold, of what all shards may.
    pub(crate) unread: Unread,
    /// What connections hold of what they have received, of what those of all shards may.
    pub(crate) unread_streams: Unread,
}

impl Shard {
    /// A shard without sockets, and with no interface but [`InterfaceId::LOOPBACK`].
    #[must_use]
    pub fn new(config: ShardConfig) -> Self {
        let word = |at| word(&config.secret, at);
        let keys = Keys(word(16), word(24));
        let sequence_key = core::array::from_fn(|i| config.secret[i]);
        Self {
            network: NetworkLayer::new(&config.pool, &config.secret, keys),
            config: Arc::new(config.tcp),
            unread: Unread::datagrams(&config.pool),
            unread_streams: Unread::streams(&config.pool),
            pool: config.pool,
            sockets: Sockets::new(keys, config.sockets_max),
            handshakes: Handshakes::new(keys),
            detached: Detached::new(keys),
            fast_open: FastOpen::new(keys),
            forwarding: Forwarding::new(keys),
            deadlines: Deadlines::default(),
            sequence_numbers: IsnGenerator::new(sequence_key),
            reset_limit: RateLimiter::new(RESETS_PER_SECOND, RESETS_BURST, word(8).rotate_left(32)),
            counters: ShardCounters::default(),
            drops: DropCounters::default(),
            refusals: RefusalCounters::default(),
            connection_counters: ConnectionCounters::default(),
            tcp_options: wire::TcpOptionCounters::default(),
            trains: Trains::default(),
            sending: Sending::default(),
            touched: Vec::new(),
            pressure: Pressure::default(),
        }
    }

    /// Adds an interface with its addresses and the routes that follow from them, in the place of one that was
    /// removed, if any was. While there are connections, [`Shard::reroute_all`] has them look whether they leave by it.
    ///
    /// # Errors
    /// [`SocketError::InvalidArgument`] where a gateway is on no network of the interface, an own address, or the second of
    /// its family, or there are [`INTERFACES_MAX`](crate::INTERFACES_MAX) interfaces, and for an address as [`Shard::add_address`].
    pub fn add_interface(&mut self, config: InterfaceConfig) -> Result<InterfaceId, SocketError> {
        check_fixed(&config.addresses)?;
        let network = &mut self.network;
        let id = network.interfaces.next_id()?;
        let everywhere = |gateway: &IpAddr| match gateway {
            IpAddr::V4(_) => Cidr::ANY_IPV4,
            IpAddr::V6(_) => Cidr::ANY_IPV6,
        };
        network.check_gateways(&config)?;
        let number = id.number();
        for cidr in &config.addresses {
            network.routes.insert(Route::new(*cidr, None, number, RouteOrigin::Link));
        }
        for gateway in &config.gateways {
            let (everywhere, origin) = (everywhere(gateway), RouteOrigin::Program);
            network.routes.insert(Route::new(everywhere, Some(*gateway), number, origin));
        }
        let seed = network.seed.wrapping_add(u64::from(id.number()));
        network.interfaces.put(Interface::new(config, id, seed));
        network.checked_addresses = None;
        network.negotiate(id);
        Ok(id)
    }

    /// When [`Shard::on_timeout`] wants to be called next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let mut first = Instant::earliest(self.deadlines.next(), self.handshakes.half_open.next());
        first = Instant::earliest(first, self.detached.time_wait.next());
        first = Instant::earliest(first, self.forwarding.next());
        first = Instant::earliest(first, self.handshakes.spent_cookies.poll_timeout());
        first = Instant::earliest(first, self.network.reassembly.poll_timeout());
        first = Instant::earliest(first, self.network.path_mtus.poll_timeout());
        for interface in self.network.interfaces.iter() {
            first = Instant::earliest(first, interface.neighbours.poll_timeout());
            first = Instant::earliest(first, interface.addressing.poll_timeout());
            first = Instant::earliest(first, interface.groups.poll_timeout());
        }
        first
    }

    /// Lets everything that is due happen.
    pub fn on_timeout(&mut self, now: Instant) {
        for interface in self.network.interfaces.iter_mut() {
            interface.neighbours.on_timeout(now);
        }
        self.network.expire_fragments(now);
        self.network.on_addressing_timeout(now);
        self.leave_addresses(now);
        self.network.path_mtus.on_timeout(now);
        self.on_backlog_timeout(now);
        self.on_time_wait_timeout(now);
        self.on_forwarding_timeout(now);
        self.handshakes.spent_cookies.on_timeout(now);
        while let Some(index) = self.deadlines.pop_due(now) {
            let Some(socket) = self.sockets.tcp(index) else { continue };
            if socket.connection.poll_timeout().is_some_and(|due| due <= now) {
                self.counters.timeouts += 1;
                let connection = &mut socket.connection;
                self.connection_counters.lend(connection, |it| it.on_timeout(now));
            }
            self.settle(now, index);
        }
    }

    /// The next socket on which something became possible.
    pub fn poll_event(&mut self) -> Option<SocketEvent> {
        debug_assert!(self.network.left_addresses.is_empty(), "seen to in the call that left them");
        self.sockets.next_event()
    }

    /// Whether any interface has something to send, as far as is known without building it. What waits for a
    /// device that failed, until another takes its place, is not counted, here and in the next.
    #[must_use]
    pub fn wants_transmit(&self) -> bool {
        let mut open = self.network.interfaces.iter().filter(|i| !i.has_failed);
        open.any(|it| !it.is_idle())
    }

    /// Whether packets wait for a neighbour to answer, which it does or is given up in a few seconds.
    #[must_use]
    pub fn awaits_neighbours(&self) -> bool {
        self.network.interfaces.iter().any(|i| !i.has_failed && i.neighbours.has_waiting())
    }

    /// Whether datagrams or messages of the host's own wait for interface `id`, whose device may have failed: for
    /// that or for a neighbour.
    #[must_use]
    pub fn has_messages(&self, id: InterfaceId) -> bool {
        let waits = |it: &Interface| !it.outbox.is_empty() || it.neighbours.has_waiting();
        self.network.interfaces.get(id).is_some_and(waits)
    }

    /// How many packets were dropped for one reason.
    #[must_use]
    pub fn drop_count(&self, reason: DropReason) -> u64 {
        self.drops.count(reason) + self.network.drops.count(reason)
    }

    /// What was counted so far, over all connections.
    #[must_use]
    pub fn counters(&self) -> StackCounters {
        let tcp = self.connection_counters.sums();
        let InterfaceCounters { routers, dhcp, neighbours } = self.network.interface_counters();
        let tcp_options = self.tcp_options;
        let mut shard = self.network.counters();
        shard.merge(&self.counters);
        let (refusals, mut drops) = (self.refusals, self.network.drops);
        drops.merge(&self.drops);
        StackCounters { shard, tcp, tcp_options, routers, dhcp, neighbours, refusals, drops }
    }

    /// How many sockets are open, connections that only finish closing included.
    #[must_use]
    pub fn socket_count(&self) -> usize {
        self.sockets.len()
    }

    /// No socket has an index ([`SocketId::index`](crate::SocketId::index)) from this on. It shrinks when most of very many were closed.
    #[must_use]
    pub fn slot_count(&self) -> usize {
        self.sockets.slot_count()
    }

    /// Called after any call on a connection: collects what it counted, passes its events on, notes
    /// whether it has something to send and when it wants to be called, and forgets it when it is
    /// over and unowned.
    pub(crate) fn settle(&mut self, now: Instant, index: u32) {
        let Some(socket) = self.sockets.tcp(index) else { return };
        self.connection_counters.collect(&mut socket.connection);
        socket.recount_unread(&mut self.unread_streams);
        let events = socket.connection.take_events();
        if !socket.connection.wants_transmit(now) {
            socket.allowance_bytes = 0;
        } else if let Some(interface) = self.network.interfaces.get_mut(socket.path.interface) {
            if socket.allowance_bytes > 0 {
                interface.ready.add_first(index, &mut socket.queued);
            } else {
                interface.ready.add(index, &mut socket.queued);
            }
        }
        let wanted = socket.connection.poll_timeout();
        self.deadlines.want(index, wanted);
        if !events.is_empty() {
            self.on_connection_events(now, index, events);
        } else if !socket.detached && !socket.connection.is_finished() {
            return;
        }
        let Some(socket) = self.sockets.tcp(index) else { return };
        if socket.is_over() {
            self.remove_connection(index);
        } else if socket.detached
            && let Some(kept) = socket.connection.time_wait(now)
        {
            self.enter_time_wait(now, index, kept);
        } else if socket.connection.is_finished() {
            // RFC 9293, 3.10.7.1: what still arrives finds no connection, though the application has
            // not let go of the socket yet.
            let flow = socket.flow();
            self.sockets.remove_flow(&flow, index);
        }
    }

    /// Forgets a connection; its counters are kept.
    pub(crate) fn remove_connection(&mut self, index: u32) {
        let Some(Socket::Tcp(socket)) = self.sockets.remove(index) else { return };
        self.unread_streams.recount(socket.counted_bytes as usize, 0);
        self.detached.orphans -= usize::from(socket.detached);
        self.deadlines.forget(index);
        self.sockets.remove_flow(&socket.flow(), index);
        if socket.queued {
            self.on_queued_gone(socket.path.interface);
        }
        self.shrink();
    }

    /// Gives back what only very many sockets needed, once most of them are gone.
    pub(crate) fn shrink(&mut self) {
        if let Some(slots) = self.sockets.shrink() {
            self.deadlines.shrink(slots);
            self.pressure.shrink(slots);
            for interface in self.network.interfaces.iter_mut() {
                interface.ready.shrink();
                interface.waiting.shrink_to_fit();
            }
        }
    }

    /// Sets how many connections in TIME-WAIT are kept whose application is gone.
    pub fn set_time_wait_max(&mut self, count: usize) {
        self.detached.time_wait_max = count;
    }

    /// How many connections are in TIME-WAIT, their application gone.
    #[must_use]
    pub fn time_wait_count(&self) -> usize {
        self.detached.time_wait.len()
    }

    /// Sets how many connections may finish their business without an application. Those beyond it are
    /// reset, and counted.
    pub fn set_orphans_max(&mut self, count: usize) {
        self.detached.orphans_max = count;
    }

    /// How many connections have something to finish, their application gone.
    #[must_use]
    pub fn orphan_count(&self) -> usize {
        self.detached.orphans
    }

    /// How many handshakes that peers began are under way.
    #[must_use]
    pub fn half_open_count(&self) -> usize {
        self.handshakes.half_open.len()
    }
}

/// The eight bytes of a secret from `at` on.
pub(crate) fn word(secret: &[u8; 32], at: usize) -> u64 {
    u64::from_le_bytes(core::array::from_fn(|i| secret[at + i]))
}
