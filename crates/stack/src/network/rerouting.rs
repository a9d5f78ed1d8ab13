//! What becomes of connections when routes change or an interface goes.
//!
//! A connection keeps the path it found when it was bound or connected and looks again when anything
//! about paths has changed (`paths.rs`). Where its route now leads over another interface it moves
//! there, with everything it has outstanding: what was built for the old one and not taken is
//! forgotten, and what was taken and lost there is sent again by the new one. Whether it may use
//! Multidata is asked for the new interface, so it stops and starts with the routes.
//!
//! A connection that a peer opened answers by the interface it came over, as long as a route of that
//! interface leads to the peer (RFC 1122, 3.3.4.2).

use crate::error::{BadArgument, SocketError};
use crate::event::Readiness;
use crate::network::addressing::AddressEvent;
use crate::network::endpoint::is_of_a_link;
use crate::network::interface::{Interface, InterfaceConfig};
use crate::network::interfaces::InterfaceId;
use crate::network::negotiation::InterfaceEvent;
use crate::shard::Shard;
use crate::sockets::{Socket, Sockets};
use core::net::IpAddr;
use counters::DropReason;
use ip::{Cidr, Route, RouteOrigin};
use time::Instant;

impl Shard {
    /// Adds a route to the network `destination` by interface `id`, by way of `gateway` or directly.
    /// One to the same network by the same interface is replaced, and what an address, a router or a DHCP server says
    /// of that does not count while this one is there; of two by different interfaces the
    /// older is used. Connections that it concerns follow at once. Of several shards that are one host the first says
    /// whether the gateway can be one.
    ///
    /// # Errors
    /// [`SocketError::NoSuchInterface`]; [`SocketError::InvalidArgument`] where the families differ, or the gateway is an
    /// own address, to which packets would come back.
    pub fn add_route(
        &mut self,
        now: Instant,
        destination: Cidr,
        gateway: Option<IpAddr>,
        id: InterfaceId,
    ) -> Result<(), SocketError> {
        self.insert_route(destination, gateway, id)?;
        self.reroute_all(now);
        Ok(())
    }

    /// As [`Shard::add_route`], but connections stay where they are: one of several routes, behind the last of which
    /// [`Shard::reroute_all`] is called once, as it looks at every connection.
    ///
    /// # Errors
    /// As [`Shard::add_route`].
    pub fn insert_route(
        &mut self,
        destination: Cidr,
        gateway: Option<IpAddr>,
        id: InterfaceId,
    ) -> Result<(), SocketError> {
        self.network.interfaces.with_device(id)?;
        if let Some(gateway) = gateway.filter(|it| it.is_ipv4() != destination.address().is_ipv4())
        {
            return Err(BadArgument::GatewayOfOtherFamily { gateway, destination }.into());
        }
        // Which addresses the host has the first shard knows: another one hears of them later, and must not refuse
        // what that one took, nor the other way round.
        let is_first = self.network.sharing.is_first();
        if let Some(gateway) = gateway.filter(|it| is_first && self.network.is_own_address(*it)) {
            return Err(BadArgument::OwnGateway(gateway).into());
        }
        self.network.routes.insert(Route::new(
            destination,
            gateway,
            id.number(),
            RouteOrigin::Program,
        ));
        Ok(())
    }

    /// Removes the route to the network `destination` by interface `id`: one of [`Shard::add_route`], where there is one, and
    /// then what routers or DHCP servers say of that network counts again. Connections that it concerns
    /// follow at once; those for which no route is left stay where they were.
    ///
    /// # Errors
    /// [`SocketError::NoRoute`] where there is no such route.
    pub fn remove_route(
        &mut self,
        now: Instant,
        destination: Cidr,
        id: InterfaceId,
    ) -> Result<(), SocketError> {
        let removed = self.network.routes.remove_on(destination, id.number(), None);
        removed.ok_or(SocketError::NoRoute(destination.address()))?;
        self.reroute_all(now);
        Ok(())
    }

    /// Removes interface `id` with its addresses and routes; its id names nothing from now on, also when another one
    /// has its place.
    /// Connections by it move to another interface where a route leads there and their own address is
    /// that one's, too; all others fail with [`SocketError::AddressRemoved`]. Datagrams and answers
    /// that waited for it are dropped, and counted.
    ///
    /// # Errors
    /// [`SocketError::NoSuchInterface`].
    pub fn remove_interface(&mut self, now: Instant, id: InterfaceId) -> Result<(), SocketError> {
        let interface = self.network.interfaces.with_device(id)?;
        self.network.past_interfaces.add(interface);
        let waiting = core::iter::from_fn(|| interface.outbox.pop()).count()
            + interface.neighbours.waiting_count();
        let blocked = core::mem::take(&mut interface.blocked);
        let addresses = core::mem::take(&mut interface.addresses);
        let config = InterfaceConfig {
            capabilities: interface.capabilities.clone(),
            mode: Some(interface.agreement.mode),
            addresses: Vec::new(),
            gateways: Vec::new(),
        };
        let gone = Interface::new(config, id, 0);
        // Those who wait are told below, with all others.
        *interface = Interface { is_removed: true, blocked, ..gone };
        self.network.checked_addresses = None;
        self.drops.add_many(DropReason::InterfaceRemoved, waiting as u64);
        self.counters.interfaces_removed += 1;
        self.network.routes.remove_interface(id.number());
        for cidr in addresses {
            self.network.address_events.push(AddressEvent::Removed(id, cidr));
        }
        self.reroute_all(now);
        let mut ended = 0;
        for index in self.sockets.connections() {
            let Some(socket) = self.sockets.tcp_ref(index) else { continue };
            let is_homeless = !self.network.accepts(socket.flow().local.ip());
            if (socket.path.interface == id || is_homeless)
                && let Some(socket) = self.sockets.tcp(index)
            {
                ended += 1;
                socket.connection.on_address_removed();
                self.settle(now, index);
            }
        }
        self.network.interface_events.push(InterfaceEvent::Removed(id, ended));
        Ok(())
    }

    /// Has every connection look at its path again, at once: the interface that one waits for may
    /// never have a turn again. Sockets for datagrams that wait for room try again for the same reason. To be called when
    /// an interface was added that they may leave by.
    pub fn reroute_all(&mut self, now: Instant) {
        let mut blocked = Vec::new();
        // The lists are made anew: to look there for each that moves would cost as many steps again.
        for interface in self.network.interfaces.iter_mut() {
            interface.ready.clear();
            interface.waiting.clear();
            blocked.append(&mut interface.blocked);
        }
        for index in blocked {
            self.sockets.notify(index, Readiness::WRITABLE);
        }
        for index in self.sockets.connections() {
            if let Some(socket) = self.sockets.tcp(index) {
                socket.queued = false;
            }
            self.refresh_path(now, index);
            self.settle(now, index);
        }
    }

    /// A connection is gone that stood in a list of interface `id`. Its entry is passed over when its turn
    /// comes. Where none comes, because the device failed or takes nothing, and a program opens connections
    /// again and again, such entries are taken out when they are the most.
    pub(crate) fn on_queued_gone(&mut self, id: InterfaceId) {
        let entries_max = 2 * self.sockets.slot_count();
        let Some(interface) = self.network.interfaces.get_mut(id) else { return };
        if interface.ready.len() <= entries_max {
            return;
        }
        interface.ready.clear();
        interface.waiting.clear();
        for index in self.sockets.connections() {
            if let Some(socket) = self.sockets.tcp(index)
                && socket.path.interface == id
                && core::mem::take(&mut socket.queued)
            {
                self.network.interfaces[id].ready.add(index, &mut socket.queued);
            }
        }
    }

    /// Sees to the connections of addresses that are gone. One that is had again by the end of the call is not.
    #[inline]
    pub(crate) fn leave_addresses(&mut self, now: Instant) {
        while let Some((id, address)) = self.network.left_addresses.pop() {
            if !self.network.interfaces[id].is_ours(address) {
                self.leave_address(now, id, address);
            }
        }
    }

    /// Interface `id` has this address no more. What leaves from it goes on where another interface that leads to the
    /// peer has the address as well, as both ways of one that is multi-routed have, and fails elsewhere.
    fn leave_address(&mut self, now: Instant, id: InterfaceId, address: IpAddr) {
        for index in self.sockets.connections() {
            let Some(socket) = self.sockets.tcp_ref(index) else { continue };
            let (flow, by) = (socket.flow(), socket.path.interface);
            let remote = flow.remote.ip();
            if flow.local.ip() != address {
                continue;
            }
            let network = &self.network;
            let stays = by != id && network.is_own_address(address);
            // On another link this would be another host.
            let may_move = network.is_own_address(address) && !is_of_a_link(remote);
            let found = network.route_from(address, remote, None).ok().filter(|_| may_move);
            let usual = network.route(remote).ok().map(|(id, _)| id);
            let Some(socket) = self.sockets.tcp(index) else { continue };
            match found {
                _ if stays => {}
                Some((other, next_hop)) => {
                    socket.path.keeps_interface = usual != Some(other);
                    self.lead(index, other, next_hop);
                    self.network.path_mtus.invalidate();
                }
                None => socket.connection.on_address_removed(),
            }
            self.settle(now, index);
        }
    }

    /// Lets a connection take the way that leads to its peer now. [`Shard::settle`] must follow, so
    /// that it stands in the right list.
    pub(crate) fn reroute(&mut self, index: u32) {
        let Some(socket) = self.sockets.tcp_ref(index) else { return };
        let (old, remote) = (socket.path.interface, socket.flow().remote.ip());
        let keeps = socket.path.keeps_interface && !self.network.interfaces[old].is_out;
        let kept = if keeps { self.network.route_of(old, remote) } else { None };
        let found = match kept {
            Some(route) => Ok((old, route.next_hop(remote))),
            None => {
                // On another link this would be another host.
                let stays = is_of_a_link(remote) && old != InterfaceId::LOOPBACK;
                self.network.route_by(remote, stays.then_some(old))
            }
        };
        let Ok((id, next_hop)) = found else { return };
        self.lead(index, id, next_hop);
    }

    /// Lets a connection leave by interface `id`. [`Shard::settle`] must follow.
    fn lead(&mut self, index: u32, id: InterfaceId, next_hop: IpAddr) {
        let Some(socket) = self.sockets.tcp(index) else { return };
        let old = socket.path.interface;
        if old == id && socket.path.next_hop == next_hop {
            return;
        }
        (socket.path.interface, socket.path.next_hop) = (id, next_hop);
        if socket.queued {
            socket.queued = false;
            let interface = &mut self.network.interfaces[old];
            interface.ready.remove(index);
            interface.waiting.retain(|(_, waiting)| *waiting != index);
        }
        if id != old {
            self.counters.connections_rerouted += 1;
        }
    }
}

impl Sockets {
    pub(crate) fn connections(&self) -> Vec<u32> {
        let is_tcp = |socket: &Socket| matches!(socket, Socket::Tcp(_));
        self.iter().filter(|(_, socket)| is_tcp(socket)).map(|(index, _)| index).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ShardConfig;
    use batch::{BlockPool, Multidata, PoolConfig};
    use device::{Capabilities, DeviceError, Medium, Room, Transmitted};

    fn shard() -> (Shard, InterfaceId) {
        let (tcp, pool) = (tcp::Config::default(), BlockPool::new(PoolConfig::default()));
        let mut shard = Shard::new(ShardConfig { tcp, pool, secret: [1; 32], sockets_max: 64 });
        let config = InterfaceConfig {
            capabilities: Capabilities::plain(Medium::Ip, 1_500),
            mode: None,
            addresses: vec!["10.0.0.1/24".parse().expect("a network")],
            gateways: Vec::new(),
        };
        let id = shard.add_interface(config).expect("a sound configuration");
        (shard, id)
    }

    fn add_second(shard: &mut Shard) -> InterfaceId {
        let config = InterfaceConfig {
            capabilities: Capabilities::plain(Medium::Ip, 1_500),
            mode: None,
            addresses: vec!["10.9.0.1/24".parse().expect("a network")],
            gateways: Vec::new(),
        };
        shard.add_interface(config).expect("a sound configuration")
    }

    #[test]
    fn who_connects_again_and_again_by_a_device_that_failed_leaves_nothing_behind() {
        let (mut shard, id) = shard();
        let now = Instant::from_millis(1);
        let remote = "10.0.0.2:80".parse().expect("an address");
        let gone = DeviceError::new(std::io::ErrorKind::NetworkDown, "it is gone");
        shard.on_device_failed(now, id, &gone);
        let kept = shard.tcp_connect(now, None, remote).expect("a route");
        for _ in 0..1_000 {
            let socket = shard.tcp_connect(now, None, remote).expect("a route");
            shard.close(now, socket);
        }
        assert_eq!(shard.socket_count(), 1);
        assert!(
            shard.network.interfaces[id].ready.len() < 8,
            "{}",
            shard.network.interfaces[id].ready.len()
        );
        assert!(!shard.wants_transmit(), "nobody is to wait for it");
        let capabilities = Capabilities::plain(Medium::Ip, 1_500);
        shard.on_device_replaced(now, id, capabilities);
        assert!(shard.wants_transmit(), "it is asked again");
        let mut batch = Multidata::default();
        let taken = shard.poll_transmit(now, id, Room::UNBOUNDED, &mut batch);
        assert_eq!(taken, 1, "the SYN of the one that is left");
        shard.on_transmitted(now, id, &Transmitted { taken, stopped: None });
        assert!(!shard.wants_transmit());
        assert!(shard.tcp_status(kept).is_ok());
    }

    /// The device that it waits for may take nothing for ever.
    #[test]
    fn who_waits_for_room_is_told_when_another_way_leads_there() {
        let (mut shard, first) = shard();
        let second = add_second(&mut shard);
        let now = Instant::from_millis(1);
        let remote: core::net::SocketAddr = "10.0.0.2:80".parse().expect("an address");
        let any: core::net::SocketAddr = "0.0.0.0:0".parse().expect("an address");
        let socket = shard.udp_bind(any).expect("a free port");
        let nothing = || batch::Chunk::whole(batch::Block::from(bytes::Bytes::new()));
        while shard.udp_send(socket, Some(remote), nothing()).is_ok() {}
        let mut batch = Multidata::default();
        let built = shard.poll_transmit(now, first, Room::UNBOUNDED, &mut batch);
        assert!(built > 0);
        let full = Transmitted { taken: 0, stopped: Some(device::Stop::Full) };
        shard.on_transmitted(now, first, &full);
        assert_eq!(shard.poll_event(), None);
        let network = "10.0.0.0/25".parse().expect("a network");
        shard.add_route(now, network, None, second).expect("there");
        let event = shard.poll_event().expect("it may leave by the second");
        assert_eq!((event.socket, event.readiness), (socket, Readiness::WRITABLE));
        assert!(shard.udp_send(socket, Some(remote), nothing()).is_ok());
        // Where it finds no room there, either, it waits again.
        while shard.udp_send(socket, Some(remote), nothing()).is_ok() {}
        let readiness = shard.datagram_readiness(socket).expect("open");
        assert!(!readiness.intersects(Readiness::WRITABLE));
    }

    #[test]
    fn a_connection_that_moves_waits_for_no_neighbour_where_it_was() {
        let (mut shard, _) = shard();
        let station = device::HardwareAddress([2, 0, 0, 0, 0, 1]);
        let ids = [(); 2].map(|()| {
            let config = InterfaceConfig {
                capabilities: Capabilities::plain(Medium::Ethernet(station), 1_500),
                mode: None,
                addresses: vec!["10.9.0.1/24".parse().expect("a network")],
                gateways: Vec::new(),
            };
            shard.add_interface(config).expect("a sound configuration")
        });
        let now = Instant::from_millis(1);
        let remote = "10.9.0.2:80".parse().expect("an address");
        shard.tcp_connect(now, None, remote).expect("a route");
        let mut batch = Multidata::default();
        let taken = shard.poll_transmit(now, ids[0], Room::UNBOUNDED, &mut batch);
        shard.on_transmitted(now, ids[0], &Transmitted { taken, stopped: None });
        let waiting = |shard: &Shard| ids.map(|id| shard.network.interfaces[id].waiting.len());
        assert_eq!(waiting(&shard), [1, 0]);
        let own = "10.9.0.1".parse().expect("an address");
        shard.remove_address(now, ids[0], own).expect("it has it");
        assert_eq!(waiting(&shard), [0, 0]);
        let ready = ids.map(|id| shard.network.interfaces[id].ready.len());
        assert_eq!(ready, [0, 1]);
    }

    #[test]
    fn connections_that_move_stand_in_one_list_each() {
        let (mut shard, first) = shard();
        let second = add_second(&mut shard);
        let now = Instant::from_millis(1);
        for last in 2..50 {
            let remote = core::net::SocketAddr::new(IpAddr::from([10, 0, 0, last]), 80);
            shard.tcp_connect(now, None, remote).expect("a route");
        }
        let lens =
            |shard: &Shard| [first, second].map(|id| shard.network.interfaces[id].ready.len());
        assert_eq!(lens(&shard), [48, 0]);
        let network = "10.0.0.0/25".parse().expect("a network");
        for _ in 0..3 {
            shard.add_route(now, network, None, second).expect("there");
            assert_eq!(lens(&shard), [0, 48]);
            shard.remove_route(now, network, second).expect("there");
            assert_eq!(lens(&shard), [48, 0]);
        }
        shard.insert_route(network, None, second).expect("there");
        assert_eq!(lens(&shard), [48, 0], "there may be more to come");
        shard.reroute_all(now);
        assert_eq!(lens(&shard), [0, 48]);
        // By which they leave when their address is another interface's alone.
        shard.remove_route(now, network, second).expect("there");
        let own: Cidr = "10.0.0.1/24".parse().expect("an address");
        shard.add_address(now, second, own).expect("there is room");
        shard.remove_address(now, first, own.address()).expect("it has it");
        assert_eq!(lens(&shard), [0, 48]);
    }
}
