//! An IPv4 address by DHCP.
//!
//! [`dhcp::Client`] decides when to ask what; here its messages are sent and received, and its
//! leases become addresses, routes and settings of the interface. A gateway that the program fixed
//! stays the default whatever servers say.

use super::news::LinkNews;
use super::{AddressEvent, AddressOrigin};
use crate::error::SocketError;
use crate::ingress::Incoming;
use crate::network::NetworkLayer;
use crate::network::interfaces::InterfaceId;
use crate::outbox::{Message, NextHop, Outgoing};
use crate::sockets::marks::PacketMarks;
use batch::Chunk;
use core::net::{IpAddr, Ipv4Addr};
use counters::DropReason;
use dhcp::{Action, Client, ClientConfig, Lease, Packet};
use ip::{Cidr, Route, RouteOrigin};
use time::Instant;
use wire::HardwareAddress;

/// What DHCP has made of an interface.
#[derive(Debug)]
pub(crate) struct Leasing {
    client: Client,
    /// Where the last answer came from: the server's station, or its relay's.
    station: Option<HardwareAddress>,
}

impl Leasing {
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.client.poll_timeout()
    }

    pub(crate) fn counters(&self) -> dhcp::DhcpCounters {
        self.client.counters()
    }
}

impl NetworkLayer {
    pub(super) fn on_leasing_timeout(&mut self, now: Instant, id: InterfaceId) {
        let addressing = &mut self.interfaces[id].addressing;
        let Some(part) = &mut addressing.leasing else { return };
        if part.client.poll_timeout().is_some_and(|due| due <= now) {
            part.client.on_timeout(now, &mut addressing.jitter);
            self.carry_out_leasing(now, id);
        }
    }

    /// A datagram to the port of DHCP clients; says whether one lives on the interface. Every shard of a host
    /// gets it, and the first is the client.
    pub(crate) fn on_dhcp(
        &mut self,
        now: Instant,
        incoming: &Incoming<'_>,
        payload: &[u8],
    ) -> bool {
        let id = incoming.origin.interface;
        let addressing = &mut self.interfaces[id].addressing;
        let Some(part) = &mut addressing.leasing else {
            return !self.sharing.is_first() && addressing.config.dhcp.is_some();
        };
        // Anybody can send to this port; where a farewell goes, the server decides.
        if part.client.on_message(now, payload, &mut addressing.jitter) {
            part.station = incoming.origin.station;
        }
        self.carry_out_leasing(now, id);
        true
    }

    /// As [`Shard::release_lease`](crate::Shard::release_lease).
    pub(super) fn release_lease(&mut self, now: Instant, id: InterfaceId) {
        let Some(interface) = self.interfaces.get_mut(id) else { return };
        let addressing = &mut interface.addressing;
        if let Some(part) = &mut addressing.leasing {
            part.client.release(now, &mut addressing.jitter);
            self.carry_out_leasing(now, id);
        }
    }

    /// The leased address was found free.
    pub(super) fn on_lease_checked(&mut self, now: Instant, id: InterfaceId) {
        if let Some(part) = &mut self.interfaces[id].addressing.leasing {
            part.client.on_checked();
            self.carry_out_leasing(now, id);
        }
    }

    /// The leased address is somebody else's.
    pub(super) fn on_lease_conflict(&mut self, now: Instant, id: InterfaceId) {
        let addressing = &mut self.interfaces[id].addressing;
        if let Some(part) = &mut addressing.leasing {
            part.client.on_conflict(now, &mut addressing.jitter);
            self.carry_out_leasing(now, id);
        }
    }

    /// The interface may be on another link, where a server may say that the address is wrong.
    pub(super) fn verify_lease(&mut self, now: Instant, id: InterfaceId) {
        let interface = &mut self.interfaces[id];
        let Some(station) = interface.hardware_address() else { return };
        let addressing = &mut interface.addressing;
        if let Some(part) = &mut addressing.leasing {
            part.client.on_new_link(now, station, &mut addressing.jitter);
            self.carry_out_leasing(now, id);
        }
    }

    fn carry_out_leasing(&mut self, now: Instant, id: InterfaceId) {
        while let Some(action) = self.poll_lease_action(id) {
            match action {
                Action::Send(packet) => self.send_dhcp(id, &packet),
                Action::Check(lease) => self.check_lease(now, id, &lease),
                // With the mask of an extension it may be one that no host can have, as with that of the first lease.
                Action::Configure(lease) if !is_hosts(&lease) => self.on_lease_conflict(now, id),
                Action::Configure(lease) => {
                    self.learn(id, LinkNews::Leased(Some(Box::new(lease))));
                }
                Action::TooShort(server, lease_s) => {
                    self.address_events.push(AddressEvent::LeaseTooShort(id, server, lease_s));
                }
                Action::Deconfigure(address) => {
                    self.learn(id, LinkNews::Leased(None));
                    let record = self.interfaces[id].addressing.find(address.into());
                    let leased = record.filter(|record| record.origin == AddressOrigin::Dhcp);
                    if let Some(cidr) = leased.map(|record| record.cidr) {
                        self.drop_address(now, id, cidr);
                    }
                }
            }
        }
    }

    /// RFC 2131, 4.4.1: "the client SHOULD perform a check on the suggested address to ensure that
    /// the address is not already in use".
    fn check_lease(&mut self, now: Instant, id: InterfaceId, lease: &Lease) {
        let Some(cidr) = Cidr::new(lease.address.into(), lease.prefix_len) else { return };
        match self.claim_address(now, id, cidr, AddressOrigin::Dhcp) {
            Ok(()) if self.interfaces[id].is_ours(cidr.address()) => {
                self.on_lease_checked(now, id);
            }
            // The claim will tell.
            Ok(()) => {}
            // No host can have it: the server is told so, and asked anew.
            Err(SocketError::NoHostAddress) => self.on_lease_conflict(now, id),
            // The program has fixed this very address, or as many as there may be.
            Err(_) => self.release_lease(now, id),
        }
    }

    /// Begins to look for a DHCP server. Without stations there is nobody to ask.
    pub(super) fn start_leasing(
        &mut self,
        now: Instant,
        id: InterfaceId,
        mut config: ClientConfig,
    ) {
        let interface = &mut self.interfaces[id];
        let Some(station) = interface.hardware_address() else { return };
        if interface.capabilities.shares_address && config.identifier().is_none() {
            config.client_identifier = Some(dhcp::distinct_identifier(station));
        }
        let client = Client::new(now, config, station, &mut interface.addressing.jitter);
        interface.addressing.leasing = Some(Box::new(Leasing { client, station: None }));
    }

    fn poll_lease_action(&mut self, id: InterfaceId) -> Option<Action> {
        self.interfaces[id].addressing.leasing.as_mut()?.client.poll_action()
    }

    fn send_dhcp(&mut self, id: InterfaceId, packet: &Packet) {
        let len = packet.payload.len();
        let Ok(mut block) = self.pool.allocate_receive(len) else {
            // It will be repeated.
            return self.drops.add(DropReason::NoMemory);
        };
        block.bytes_mut()[..len].copy_from_slice(&packet.payload);
        let payload = Chunk::new(block.freeze(), 0..len);
        let (source, destination) = (packet.source.into(), packet.destination.into());
        let interface = &self.interfaces[id];
        let station = interface.addressing.leasing.as_ref().and_then(|part| part.station);
        let next_hop = match (packet.destination == Ipv4Addr::BROADCAST, station) {
            (true, _) => NextHop::Station(HardwareAddress::BROADCAST),
            (false, Some(station)) if packet.is_farewell => NextHop::Station(station),
            (false, _) => NextHop::Neighbour(self.next_hop_by(id, destination)),
        };
        let (protocol, marks) = (wire::protocol::UDP, PacketMarks::default());
        let packet = Outgoing {
            network: interface.header(source, destination, protocol, marks),
            next_hop,
            message: Message::Datagram {
                source_port: dhcp::CLIENT_PORT,
                destination_port: dhcp::SERVER_PORT,
                may_fragment: false,
                payload: payload.into(),
            },
        };
        self.send_small(id, packet);
    }

    /// What comes with the address, which is claimed for itself.
    pub(super) fn configure(&mut self, id: InterfaceId, lease: Option<&Lease>) {
        let Some(lease) = lease else {
            self.set_leased_routes(id, Vec::new());
            self.set_name_servers(id, 0, Vec::new());
            return self.set_leased_mtu(id, None);
        };
        self.set_leased_mtu(id, lease.mtu_bytes.map(usize::from));
        self.set_leased_mask(id, lease);
        let routes = lease.routes.iter().filter_map(|route| {
            let destination = Cidr::new(route.network.into(), route.prefix_len)?.network();
            let gateway = (!route.gateway.is_unspecified()).then_some(route.gateway.into());
            Some(Route::new(destination, gateway, id.number(), RouteOrigin::Learned))
        });
        self.set_leased_routes(id, routes.collect());
        let servers = lease.name_servers.iter().copied().map(IpAddr::V4).collect();
        self.set_name_servers(id, 0, servers);
    }

    /// Connections take note of another MTU with the next batch they fill.
    fn set_leased_mtu(&mut self, id: InterfaceId, mtu_bytes: Option<usize>) {
        let known = &mut self.interfaces[id].ipv4_mtu_bytes;
        if *known != mtu_bytes {
            *known = mtu_bytes;
            self.path_mtus.invalidate();
        }
    }

    /// Servers may name a network twice. The table keeps one route to it, the last, so what is remembered does as well:
    /// else an extension that takes back one of the two would not change the table.
    fn set_leased_routes(&mut self, id: InterfaceId, named: Vec<Route>) {
        let mut routes: Vec<Route> = Vec::with_capacity(named.len());
        for route in named {
            routes.retain(|other| other.destination != route.destination);
            routes.push(route);
        }
        let known = &mut self.interfaces[id].addressing.leased_routes;
        let old = core::mem::replace(known, routes.clone());
        for gone in
            old.iter().filter(|old| routes.iter().all(|it| it.destination != old.destination))
        {
            self.routes.remove_on(gone.destination, id.number(), Some(RouteOrigin::Learned));
        }
        for route in routes.into_iter().filter(|route| !old.contains(route)) {
            self.routes.insert(route);
        }
    }

    /// An extended lease may have another mask, where its network was made larger or divided. The address stays, and
    /// with it the connections that use it.
    fn set_leased_mask(&mut self, id: InterfaceId, lease: &Lease) {
        let Some(cidr) = Cidr::new(lease.address.into(), lease.prefix_len) else { return };
        let interface = &mut self.interfaces[id];
        let record = interface.addressing.find_mut(cidr.address());
        let Some(record) = record.filter(|it| it.origin == AddressOrigin::Dhcp) else { return };
        let old = core::mem::replace(&mut record.cidr, cidr);
        let Some(used) = interface.addresses.iter_mut().find(|it| **it == old) else { return };
        *used = cidr;
        if old != cidr {
            // Which address stands for all hosts of a network follows from the mask.
            self.checked_addresses = None;
            self.add_network_route(id, cidr);
            self.remove_network_route(id, old);
        }
    }
}

/// Whether a host of the network that the lease tells of can have its address.
fn is_hosts(lease: &Lease) -> bool {
    let cidr = Cidr::new(lease.address.into(), lease.prefix_len);
    cidr.is_some_and(|cidr| cidr.is_hosts())
}
