//! What the paths to peers take: interface, route and reports of narrow places together.
//!
//! Connections keep the MSS they found and look again when something has changed
//! ([`ip::PathMtus::generation`]), each with the next batch it fills: so a report costs one
//! connection's work, however many there are to its destination.

use crate::error::SocketError;
use crate::network::NetworkLayer;
use crate::network::interface::Interface;
use crate::network::interfaces::InterfaceId;
use crate::shard::Shard;
use crate::sockets::{Keys, Socket};
use core::net::IpAddr;
use ip::{Cidr, PathMtus, RouteTable, Trust};
use time::Instant;
use wire::{Ipv4Repr, Ipv6Repr, TCP_HEADER_LEN_MIN};

/// The longest TCP segment that IPv4's total length can say, and a little less than IPv6's.
const MSS_MAX: usize = 65_495;

impl Shard {
    /// The longest packet in bytes that is believed to reach `destination`, IP header included.
    ///
    /// # Errors
    /// No route leads there.
    pub fn path_mtu(&self, destination: IpAddr) -> Result<usize, SocketError> {
        let (id, _) = self.network.route(destination)?;
        let interface = &self.network.interfaces[id];
        Ok(mtu_to(
            interface,
            &self.network.routes,
            &self.network.path_mtus,
            destination,
            Trust::Unverified,
        ))
    }

    /// Limits packets by the route to this network; `None` is what the interface takes.
    ///
    /// # Errors
    /// There is no such route.
    pub fn set_route_mtu(
        &mut self,
        destination: Cidr,
        mtu_bytes: Option<usize>,
    ) -> Result<(), SocketError> {
        if !self.network.routes.set_mtu(destination, mtu_bytes) {
            return Err(SocketError::NoRoute(destination.address()));
        }
        self.network.path_mtus.invalidate();
        Ok(())
    }

    /// Limits the MSS of connections by interface `id`, both what is announced and what is sent:
    /// for networks that lose long packets and the reports of it as well. Peers get no segments shorter than
    /// [`tcp::MSS_MIN`] all the same.
    pub fn set_mss_clamp(&mut self, id: InterfaceId, mss_max: Option<u16>) {
        if let Some(interface) = self.network.interfaces.get_mut(id) {
            interface.mss_max = mss_max;
            self.network.path_mtus.invalidate();
        }
    }

    /// How many datagrams, raw packets and messages of its own may wait for the device of interface `id`, of
    /// all sockets together; at least one. What waits already, stays.
    pub fn set_transmit_queue(&mut self, id: InterfaceId, packets_max: usize) {
        if let Some(interface) = self.network.interfaces.get_mut(id) {
            interface.outbox.set_packets_max(packets_max.max(1));
        }
    }

    /// Sends no packets longer than this by interface `id` from now on, nor longer than its device
    /// takes. Connections by it change their segments at once; what is outstanding and too long is
    /// sent again.
    pub fn set_mtu(&mut self, now: Instant, id: InterfaceId, mtu_bytes: usize) {
        let Some(interface) = self.network.interfaces.get_mut(id) else { return };
        interface.mtu_max = Some(mtu_bytes);
        self.network.path_mtus.invalidate();
        let by_it = |socket: &Socket| match socket {
            Socket::Tcp(socket) => socket.path.interface == id,
            _ => false,
        };
        let sockets = self.sockets.iter().filter(|(_, socket)| by_it(socket));
        let indices: Vec<u32> = sockets.map(|(index, _)| index).collect();
        for index in indices {
            self.refresh_path(now, index);
            self.settle(now, index);
        }
    }

    /// Lets a connection look again at what its path is and takes, where that may have changed.
    #[inline]
    pub(crate) fn refresh_path(&mut self, now: Instant, index: u32) {
        let generation = self.network.path_generation();
        let Some(socket) = self.sockets.tcp(index) else { return };
        if socket.path.generation != generation {
            socket.path.generation = generation;
            self.renew_path(now, index);
        }
    }

    #[inline(never)]
    fn renew_path(&mut self, now: Instant, index: u32) {
        self.reroute(index);
        self.refresh_multidata(index);
        let Some(socket) = self.sockets.tcp(index) else { return };
        let (id, remote) = (socket.path.interface, socket.flow().remote.ip());
        let network = &self.network;
        let (announced, mss) = (network.announced_mss(id, remote), network.path_mss(id, remote));
        let needs_fragments = network.path_mtus.needs_fragments(remote, Trust::Verified);
        if let Some(socket) = self.sockets.tcp(index) {
            socket.path.network.set_may_fragment(needs_fragments);
            let connection = &mut socket.connection;
            connection.set_announced_mss(announced);
            self.connection_counters.lend(connection, |it| it.set_path_mss(now, mss));
        }
    }

    /// A packet of a connection was too big for its path; the report quoted what is in flight.
    pub(crate) fn on_tcp_too_big(&mut self, now: Instant, index: u32, mtu_bytes: usize) {
        let Some(socket) = self.sockets.tcp(index) else { return };
        let remote = socket.flow().remote.ip();
        if self.network.path_mtus.on_report(now, remote, mtu_bytes, Trust::Verified) {
            self.counters.path_mtus_lowered += 1;
        }
        self.refresh_path(now, index);
    }
}

impl NetworkLayer {
    /// A number that changes whenever a route, an interface, a switch, a filter or what is known of
    /// a path does: both of its parts only ever grow.
    #[inline]
    pub(crate) fn path_generation(&self) -> u32 {
        self.path_mtus.generation().wrapping_add(self.routes.generation() as u32)
    }

    /// The longest segment that the path to `remote` by interface `id` takes, without headers.
    pub(crate) fn path_mss(&self, id: InterfaceId, remote: IpAddr) -> u16 {
        let interface = &self.interfaces[id];
        let mtu = mtu_to(interface, &self.routes, &self.path_mtus, remote, Trust::Verified);
        // What leaves by several ways is as long as the narrowest takes.
        let ways = self.routes.duplicating(remote).filter_map(|route| {
            let interface = self.interfaces.get(InterfaceId::numbered(route.interface))?;
            let link = interface.mtu_bytes(remote.is_ipv4());
            Some(route.mtu_bytes.map_or(link, |route| route.min(link)))
        });
        mss_of(interface, remote, ways.fold(mtu, usize::min))
    }

    /// The MSS announced to `remote`: what the interface takes (RFC 6691), not what the path does.
    pub(crate) fn announced_mss(&self, id: InterfaceId, remote: IpAddr) -> u16 {
        let interface = &self.interfaces[id];
        mss_of(interface, remote, interface.mtu_bytes(remote.is_ipv4()))
    }

    /// A datagram of one of our sockets was too big for its path, or somebody says so.
    pub(crate) fn on_udp_too_big(&mut self, now: Instant, remote: IpAddr, mtu_bytes: usize) {
        if self.path_mtus.on_report(now, remote, mtu_bytes, Trust::Unverified) {
            self.counters.path_mtus_lowered += 1;
        }
    }
}

/// The longest packet to `destination` by `interface`, as far as reports of this trust say.
pub(crate) fn mtu_to(
    interface: &Interface,
    routes: &RouteTable,
    path_mtus: &PathMtus<Keys>,
    destination: IpAddr,
    trust: Trust,
) -> usize {
    let mut mtu_bytes = interface.mtu_bytes(destination.is_ipv4());
    if let Some(route) = routes.lookup(destination).and_then(|route| route.mtu_bytes) {
        mtu_bytes = mtu_bytes.min(route);
    }
    path_mtus.lookup(destination, trust).map_or(mtu_bytes, |path| mtu_bytes.min(path))
}

/// RFC 6691, 2: the MTU less the fixed headers; options are taken from each segment as it is made.
fn mss_of(interface: &Interface, remote: IpAddr, mtu_bytes: usize) -> u16 {
    let network = if remote.is_ipv4() { Ipv4Repr::LEN } else { Ipv6Repr::LEN };
    let mss = mtu_bytes.saturating_sub(network + TCP_HEADER_LEN_MIN).min(MSS_MAX) as u16;
    interface.mss_max.map_or(mss, |clamp| mss.min(clamp))
}
