//! Looking inside: what a shard has, for whoever asks as `ss`, `ip route` and `ip neigh` do.
//!
//! There may be very many sockets, and whoever looks holds up the shard. So they are shown page by page: a call looks
//! at so many places of the tables and says where the next one goes on, with whatever happens in between. A socket
//! keeps its place as long as it lives, as does what is half-open or in TIME-WAIT, so what was there all the time is
//! shown once; what came or went meanwhile may be shown or not. What goes from one table to another does both: a
//! connection that closes may be shown twice, and one whose handshake completes not at all.
//!
//! Nothing is kept for it: each figure is read from where the protocols have it.

use crate::network::NetworkLayer;
use crate::network::endpoint::scoped;
use crate::network::interfaces::InterfaceId;
use crate::shard::Shard;
use crate::sockets::pressure::Queued;
use crate::sockets::{Flow, Socket};
use core::net::{IpAddr, SocketAddr};
use ip::{Cidr, Route};
use link::NeighbourState;
use tcp::State;
use time::Instant;
use wire::HardwareAddress;

/// What a socket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SocketKind {
    /// A connection of TCP. In SYN-RECEIVED it may be no more than its SYN, and in TIME-WAIT no more than what that
    /// needs.
    Tcp(State),
    /// It waits for connections.
    TcpListener {
        /// Handshakes that peers began and have not completed.
        half_open: usize,
        /// Connections that wait to be accepted.
        waiting: usize,
        /// How many may.
        waiting_max: usize,
    },
    /// It is asked about connections to the addresses of a prefix.
    TcpForwarder {
        /// The prefix.
        prefix: Cidr,
        /// Connections that are not decided on.
        pending: usize,
    },
    /// Datagrams.
    Udp,
    /// Datagrams to the addresses of a prefix.
    UdpForwarder(Cidr),
    /// Packets of this IP protocol.
    Raw(u8),
    /// Pings, of the identifier that stands in the place of the port.
    Echo,
    /// Pings to the addresses of a prefix.
    EchoForwarder(Cidr),
}

/// A socket as it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SocketStatus {
    /// What it is.
    pub kind: SocketKind,
    /// Our end.
    pub local: SocketAddr,
    /// The peer's end, where it has one.
    pub remote: Option<SocketAddr>,
    /// The interface that a connection leaves by at present. One in TIME-WAIT keeps none, so that its ends, where they
    /// are link-local, are told without their scope.
    pub interface: Option<InterfaceId>,
    /// Bytes that have arrived and can be read; of datagrams and packets with what it costs to hold them.
    pub received_bytes: usize,
    /// Datagrams or packets that have arrived and can be read.
    pub received_packets: usize,
    /// Bytes that the peer of a connection has not acknowledged, those that were never sent included.
    pub unacknowledged_bytes: usize,
    /// Bytes of them that were never sent.
    pub unsent_bytes: usize,
    /// The application has let go of it: the connection delivers what it holds, or is in TIME-WAIT.
    pub is_orphan: bool,
    /// The shard of its host that has it, counted from zero.
    pub squeue: usize,
}

impl SocketStatus {
    fn new(kind: SocketKind, local: SocketAddr) -> Self {
        Self {
            kind,
            local,
            remote: None,
            interface: None,
            received_bytes: 0,
            received_packets: 0,
            unacknowledged_bytes: 0,
            unsent_bytes: 0,
            is_orphan: false,
            squeue: 0,
        }
    }

    /// Of a prefix, which has no port.
    fn of_prefix(kind: SocketKind, prefix: Cidr) -> Self {
        Self::new(kind, SocketAddr::new(prefix.address(), 0))
    }
}

/// Where a listing goes on. The default is its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListPosition {
    table: Table,
    slot: usize,
}

impl ListPosition {
    /// Whether sockets come next, and not what is kept beside them.
    #[must_use]
    pub fn is_of_sockets(self) -> bool {
        self.table == Table::Sockets
    }
}

/// What is listed, in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Table {
    #[default]
    Sockets,
    HalfOpen,
    TimeWait,
}

/// A route as it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RouteStatus {
    /// The network that it leads to.
    pub destination: Cidr,
    /// The router that packets are handed to; `None` where the network is the interface's own link.
    pub gateway: Option<IpAddr>,
    /// The interface that packets leave by.
    pub interface: InterfaceId,
    /// The longest packet in bytes, where the route allows less than its interface.
    pub mtu_bytes: Option<usize>,
    /// Packets leave by it beside all others to the network that say so, too ([`Shard::set_route_duplicating`]).
    pub duplicates: bool,
}

/// What is known of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NeighbourStatus {
    /// Its address.
    pub address: IpAddr,
    /// Its hardware address, where that is known.
    pub hardware_address: Option<HardwareAddress>,
    /// How good that is.
    pub state: NeighbourState,
    /// The interface on whose link it is.
    pub interface: InterfaceId,
}

impl Shard {
    /// Shows the sockets that lie in the next `places_max` places from `from` on, half-open connections and those in
    /// TIME-WAIT behind all others, and says where the next call goes on; `None` at the end.
    ///
    /// A place costs some hundred instructions and the misses of the cache for its connection.
    pub fn list_sockets(
        &self,
        from: ListPosition,
        places_max: usize,
        show: &mut dyn FnMut(SocketStatus),
    ) -> Option<ListPosition> {
        let squeue = self.network.sharing.index();
        let mut show = |status: SocketStatus| show(SocketStatus { squeue, ..status });
        let ListPosition { table, slot } = from;
        let is_over = match table {
            Table::Sockets => {
                let page = self.sockets.page(slot, places_max);
                page.for_each(|socket| show(self.network.socket_status(socket)));
                slot.saturating_add(places_max) >= self.sockets.slot_count()
            }
            Table::HalfOpen => {
                let page = self.handshakes.half_open.page(slot, places_max);
                page.for_each(|(flow, waiting)| show(half_open(&flow, waiting.interface)));
                slot.saturating_add(places_max) >= self.handshakes.half_open.slot_count()
            }
            Table::TimeWait => {
                let page = self.detached.time_wait.page(slot, places_max);
                page.for_each(|(flow, _)| show(in_time_wait(&flow)));
                slot.saturating_add(places_max) >= self.detached.time_wait.slot_count()
            }
        };
        if !is_over {
            return Some(ListPosition { table, slot: slot.saturating_add(places_max) });
        }
        let table = match table {
            Table::Sockets => Table::HalfOpen,
            Table::HalfOpen => Table::TimeWait,
            Table::TimeWait => return None,
        };
        Some(ListPosition { table, slot: 0 })
    }

    /// The routes, those of the longest prefixes first, in the order in which they are tried: behind one of the program's
    /// stands what an address, a router or a DHCP server says of the same network, for when that goes.
    pub fn list_routes(&self) -> impl Iterator<Item = RouteStatus> {
        self.network.routes.routes().iter().map(|route| {
            let Route { destination, gateway, interface, mtu_bytes, duplicates, .. } = *route;
            let interface = InterfaceId::numbered(interface);
            RouteStatus { destination, gateway, interface, mtu_bytes, duplicates }
        })
    }

    /// The neighbours on the link of an interface, at most 1,024; none where it was removed.
    pub fn list_neighbours(
        &self,
        now: Instant,
        interface: InterfaceId,
    ) -> impl Iterator<Item = NeighbourStatus> {
        let entries = self.network.interfaces.get(interface).map(|it| it.neighbours.entries(now));
        entries.into_iter().flatten().map(move |(address, hardware_address, state)| {
            NeighbourStatus { address, hardware_address, state, interface }
        })
    }

    /// The prefixes whose addresses interface `id` accepts beside its own ([`Shard::set_accepted`]).
    #[must_use]
    pub fn accepted(&self, id: InterfaceId) -> &[Cidr] {
        self.network.interfaces.get(id).map_or(&[], |interface| &interface.accepted)
    }

    /// The longest packet that is sent by interface `id`, of IPv4 and of IPv6: what its device takes, what
    /// [`Shard::set_mtu`] leaves of that, and what routers and DHCP servers say of the link.
    #[must_use]
    pub fn mtus(&self, id: InterfaceId) -> Option<(usize, usize)> {
        let interface = self.network.interfaces.get(id)?;
        Some((interface.mtu_bytes(true), interface.mtu_bytes(false)))
    }

    /// SYNs to forwarders that wait for a decision.
    #[must_use]
    pub fn forwarded_count(&self) -> usize {
        self.forwarding.pending_count()
    }
}

impl NetworkLayer {
    fn socket_status(&self, socket: &Socket) -> SocketStatus {
        match socket {
            Socket::Tcp(socket) => {
                let (connection, ends) = (&socket.connection, socket.ends());
                let interface = socket.path.interface;
                SocketStatus {
                    remote: Some(ends.remote),
                    interface: self.interfaces.get(interface).map(|_| interface),
                    received_bytes: connection.readable_len(),
                    unacknowledged_bytes: connection.send_queue_len(),
                    unsent_bytes: connection.unsent_len(),
                    is_orphan: socket.detached,
                    ..SocketStatus::new(SocketKind::Tcp(connection.state()), ends.local)
                }
            }
            Socket::Listener(listener) => SocketStatus::new(listener.kind(), listener.local),
            Socket::Forwarder(forwarder) => {
                let (prefix, pending) = forwarder.prefix_and_pending();
                SocketStatus::of_prefix(SocketKind::TcpForwarder { prefix, pending }, prefix)
            }
            Socket::Udp(socket) => {
                let status = match socket.prefix {
                    None => SocketStatus::new(SocketKind::Udp, socket.own_end()),
                    Some(prefix) => {
                        SocketStatus::of_prefix(SocketKind::UdpForwarder(prefix), prefix)
                    }
                };
                SocketStatus {
                    remote: socket.peer(),
                    received_bytes: socket.received.held_bytes(),
                    received_packets: socket.received.len(),
                    ..status
                }
            }
            Socket::Raw(socket) => {
                let Queued { packets: received_packets, bytes: received_bytes } = socket.queued();
                let status = SocketStatus::new(socket.kind(), socket.local());
                SocketStatus { received_bytes, received_packets, ..status }
            }
        }
    }
}

fn half_open(flow: &Flow, id: InterfaceId) -> SocketStatus {
    SocketStatus {
        remote: Some(scoped(flow.remote, id)),
        interface: Some(id),
        ..SocketStatus::new(SocketKind::Tcp(State::SynReceived), scoped(flow.local, id))
    }
}

fn in_time_wait(flow: &Flow) -> SocketStatus {
    SocketStatus {
        remote: Some(flow.remote),
        is_orphan: true,
        ..SocketStatus::new(SocketKind::Tcp(State::TimeWait), flow.local)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ShardConfig;
    use crate::network::interface::InterfaceConfig;
    use batch::{BlockPool, PoolConfig};
    use device::{Capabilities, Medium};

    #[test]
    fn a_page_is_no_longer_than_was_asked_for_and_all_pages_are_all_there_is() {
        let (tcp, pool) = (tcp::Config::default(), BlockPool::new(PoolConfig::default()));
        let mut shard = Shard::new(ShardConfig { tcp, pool, secret: [1; 32], sockets_max: 999 });
        let config = InterfaceConfig {
            capabilities: Capabilities::plain(Medium::Ip, 1_500),
            mode: None,
            addresses: vec!["10.0.0.1/24".parse().expect("a network")],
            gateways: Vec::new(),
        };
        shard.add_interface(config).expect("a sound configuration");
        let any = SocketAddr::from(([0; 4], 0));
        let sockets: Vec<_> = (0..100).map(|_| shard.udp_bind(any).expect("a free port")).collect();
        for socket in sockets.iter().step_by(3) {
            shard.close(Instant::ZERO, *socket);
        }
        for places_max in [1, 7, 100, usize::MAX] {
            let (mut from, mut total) = (Some(ListPosition::default()), 0);
            while let Some(position) = from {
                let mut count = 0;
                from = shard.list_sockets(position, places_max, &mut |_| count += 1);
                assert!(count <= places_max);
                total += count;
            }
            assert_eq!(total, 66);
        }
    }
}
