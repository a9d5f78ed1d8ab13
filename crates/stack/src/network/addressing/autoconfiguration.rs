//! What routers say becomes addresses, routes and settings of the interface.
//!
//! [`ip::router::RouterDiscovery`] decides; here its decisions are carried out. A gateway that the
//! program fixed stays the default whatever routers say, and so do its routes to networks that they call
//! their own ([`RouteOrigin`]).

use super::advertising::ALL_ROUTERS;
use super::news::LinkNews;
use super::{AddressOrigin, Record};
use crate::ingress::Incoming;
use crate::network::NetworkLayer;
use crate::network::interfaces::InterfaceId;
use core::net::{IpAddr, Ipv6Addr};
use counters::DropReason;
use ip::router::{LinkChange, RouterConfig, RouterDiscovery};
use ip::{Cidr, Route, RouteOrigin};
use time::Instant;
use wire::NdpRepr;
use wire::ndp::RouterAdvertisement;

/// What routers have made of an interface.
#[derive(Debug)]
pub(crate) struct Autoconfiguration {
    discovery: RouterDiscovery,
}

impl Autoconfiguration {
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.discovery.poll_timeout()
    }

    pub(super) fn on_new_link(&mut self, now: Instant) {
        self.discovery.on_new_link(now);
    }

    pub(crate) fn counters(&self) -> ip::router::RouterCounters {
        self.discovery.counters()
    }
}

impl NetworkLayer {
    /// Begins to listen to routers. Without stations there is nobody to ask.
    pub(super) fn start_autoconfiguration(
        &mut self,
        now: Instant,
        id: InterfaceId,
        config: RouterConfig,
    ) {
        let interface = &mut self.interfaces[id];
        let Some(station) = interface.hardware_address() else { return };
        let jitter = &mut interface.addressing.jitter;
        let discovery = RouterDiscovery::new(now, config, station, jitter);
        let part = Autoconfiguration { discovery };
        interface.addressing.autoconfiguration = Some(Box::new(part));
        self.carry_out(now, id);
    }

    pub(super) fn on_autoconfiguration_timeout(&mut self, now: Instant, id: InterfaceId) {
        let Some(discovery) = self.discovery(id) else { return };
        if discovery.poll_timeout().is_none_or(|due| now < due) {
            return;
        }
        discovery.on_timeout(now);
        let addressing = &mut self.interfaces[id].addressing;
        let is_due = addressing
            .autoconfiguration
            .as_mut()
            .is_some_and(|part| part.discovery.poll_solicitation(now, &mut addressing.jitter));
        if is_due {
            self.solicit_routers(id);
        }
        self.carry_out(now, id);
    }

    /// A router tells of itself and the link; what RFC 4861, 6.1.2 demands was checked.
    pub(crate) fn on_router_advertisement(
        &mut self,
        now: Instant,
        incoming: &Incoming<'_>,
        source: Ipv6Addr,
        message: &RouterAdvertisement,
    ) -> Result<(), DropReason> {
        let id = incoming.origin.interface;
        if self.sharing.is_behind() {
            // Routers repeat what they say.
            return Err(DropReason::StrayQueueFull);
        }
        let interface = &mut self.interfaces[id];
        let addressing = &mut interface.addressing;
        let follows = !self.sharing.is_first() && addressing.config.routers.is_some();
        if addressing.autoconfiguration.is_none() && !follows {
            return Err(DropReason::UnrelatedIcmp);
        }
        if let Some(link) = message.source_link {
            interface.neighbours.on_link_address(now, source.into(), link)?;
        }
        // Of several shards the first one draws the conclusions.
        if let Some(part) = addressing.autoconfiguration.as_mut() {
            part.discovery.on_advertisement(now, source, message, &mut addressing.jitter);
            self.carry_out(now, id);
        }
        Ok(())
    }

    /// A next hop of interface `id` did not answer.
    pub(crate) fn on_silent_neighbour(&mut self, now: Instant, id: InterfaceId, address: IpAddr) {
        let IpAddr::V6(address) = address else { return };
        if let Some(discovery) = self.discovery(id) {
            discovery.on_silent(now, address);
            self.carry_out(now, id);
        }
    }

    /// A neighbour advertisement without the router flag came from `address`, and was believed.
    pub(crate) fn on_no_router(&mut self, now: Instant, id: InterfaceId, address: Ipv6Addr) {
        if let Some(discovery) = self.discovery(id) {
            discovery.on_no_router(now, address);
            self.carry_out(now, id);
        }
    }

    /// A formed address is somebody else's: another one is tried.
    pub(super) fn on_formed_duplicate(&mut self, now: Instant, id: InterfaceId, address: IpAddr) {
        let IpAddr::V6(address) = address else { return };
        if let Some(discovery) = self.discovery(id) {
            discovery.on_duplicate(address);
            self.carry_out(now, id);
        }
    }

    fn carry_out(&mut self, now: Instant, id: InterfaceId) {
        while let Some(change) = self.discovery(id).and_then(RouterDiscovery::poll_change) {
            match change {
                LinkChange::Form(address) => {
                    // Where the program fixed this very address, or has as many as there may be,
                    // it is left as it is.
                    if let Some(cidr) = Cidr::new(address.into(), 64) {
                        let _ = self.claim_address(now, id, cidr, AddressOrigin::Router);
                    }
                }
                LinkChange::Expire(address) => {
                    let record = self.interfaces[id].addressing.find(address.into());
                    if let Some(cidr) = record.filter(is_formed).map(|record| record.cidr) {
                        self.drop_address(now, id, cidr);
                    }
                }
                said => self.learn(id, LinkNews::Router(said)),
            }
        }
    }

    fn discovery(&mut self, id: InterfaceId) -> Option<&mut RouterDiscovery> {
        let addressing = &mut self.interfaces.get_mut(id)?.addressing;
        addressing.autoconfiguration.as_mut().map(|part| &mut part.discovery)
    }

    /// RFC 4861, 6.3.7 and 4.1: from the link-local address with our hardware address, or without
    /// an address and then without that option; RFC 4429, 3.2 forbids it to optimistic addresses.
    fn solicit_routers(&mut self, id: InterfaceId) {
        let interface = &self.interfaces[id];
        let settled = interface.addresses.iter().find_map(|cidr| match cidr.address() {
            IpAddr::V6(address)
                if address.is_unicast_link_local()
                    && !interface.addressing.is_unsettled(address.into()) =>
            {
                Some(address)
            }
            _ => None,
        });
        let source_link = settled.and_then(|_| interface.hardware_address());
        let source = settled.unwrap_or(Ipv6Addr::UNSPECIFIED);
        let message = NdpRepr::RouterSolicitation { source_link };
        self.send_ndp(id, source.into(), ALL_ROUTERS.into(), message, None);
    }

    /// What routers say of the link holds from now on.
    pub(super) fn follow_router(&mut self, id: InterfaceId, change: LinkChange) {
        let interface = &mut self.interfaces[id];
        match change {
            LinkChange::DefaultRouter(router) => self.set_learned_router(id, router),
            LinkChange::OnLink { prefix, prefix_len } => {
                if let Some(network) = Cidr::new(prefix.into(), prefix_len) {
                    self.learn_network(id, network);
                }
            }
            LinkChange::OffLink { prefix, prefix_len } => {
                if let Some(network) = Cidr::new(prefix.into(), prefix_len) {
                    self.unlearn_network(id, network);
                }
            }
            LinkChange::Prefer(address, is_preferred) => {
                let record = interface.addressing.find_mut(address.into());
                if let Some(record) = record.filter(|record| is_formed(&&**record)) {
                    record.is_deprecated = !is_preferred;
                }
            }
            LinkChange::HopLimit(hop_limit) => interface.ipv6_hop_limit = hop_limit,
            // Routers repeat it every few minutes, or as often as somebody likes: connections
            // look at their paths again only where it is another.
            LinkChange::Mtu(mtu_bytes) => {
                let before = interface.ipv6_mtu_bytes.replace(mtu_bytes);
                if before != Some(mtu_bytes) {
                    self.path_mtus.invalidate();
                }
            }
            LinkChange::Times { reachable, retransmit } => {
                interface.neighbours.set_times(reachable, retransmit);
            }
            LinkChange::NameServers(servers) => {
                let servers = servers.into_iter().map(IpAddr::V6).collect();
                self.set_name_servers(id, 1, servers);
            }
            // Addresses have a life of their own.
            LinkChange::Form(_) | LinkChange::Expire(_) => {}
        }
    }

    /// Everybody on this network is a neighbour.
    fn learn_network(&mut self, id: InterfaceId, network: Cidr) {
        let network = network.network();
        let learned = &mut self.interfaces[id].addressing.learned_networks;
        if !learned.contains(&network) {
            learned.push(network);
            self.add_network_route(id, network);
        }
    }

    /// Nobody says any more that this network is on the link; what the program said of it stays.
    fn unlearn_network(&mut self, id: InterfaceId, network: Cidr) {
        let network = network.network();
        let learned = &mut self.interfaces[id].addressing.learned_networks;
        let before = learned.len();
        learned.retain(|known| *known != network);
        if learned.len() < before {
            self.remove_network_route(id, network);
        }
    }

    /// Routes everything else by `router`.
    fn set_learned_router(&mut self, id: InterfaceId, router: Option<Ipv6Addr>) {
        let (destination, interface) = (Cidr::ANY_IPV6, id.number());
        let origin = RouteOrigin::Learned;
        match router.map(IpAddr::V6) {
            Some(router) => {
                self.routes.insert(Route::new(destination, Some(router), interface, origin));
            }
            None => drop(self.routes.remove_on(destination, interface, Some(origin))),
        }
    }
}

/// Whether routers have a say in how long an address is used: the program may have fixed one that was formed before.
fn is_formed(record: &&Record) -> bool {
    record.origin == AddressOrigin::Router
}
