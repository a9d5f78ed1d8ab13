//! Routes: which interface and which neighbour a destination is reached by.
//!
//! A host has a handful of routes, so the table is a list in the order of its prefixes' lengths,
//! the longest first, and a lookup is a walk that ends at the first match. Connections keep the
//! route they found and look again when [`RouteTable::generation`] has moved.
//!
//! The program, the interface's own addresses, routers and DHCP servers may each say how one network is reached by one
//! interface ([`RouteOrigin`]). All of it is kept, the program's word first: so who takes a route back gets
//! what others say, and none needs to know of the others.

use crate::Cidr;
use core::net::{IpAddr, Ipv4Addr};

/// Who says that a network is reached so; of several, by one interface, the first counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RouteOrigin {
    /// The program.
    Program,
    /// The link: an address on the network, or a router that says that it is on the link.
    Link,
    /// A router that offers itself, or a DHCP server.
    Learned,
}

/// A way to a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The network reached; its host bits are ignored.
    pub destination: Cidr,
    /// The router to hand packets to; `None` where the network is the interface's own link.
    pub gateway: Option<IpAddr>,
    /// The interface packets leave by.
    pub interface: u32,
    /// Longest packet in bytes, where the route allows less than its interface.
    pub mtu_bytes: Option<usize>,
    /// Packets leave by this route and by every other to the same network that says so, too.
    pub duplicates: bool,
    /// Who says so.
    pub origin: RouteOrigin,
}

impl Route {
    /// A route that allows what its interface does.
    #[must_use]
    pub const fn new(
        destination: Cidr,
        gateway: Option<IpAddr>,
        interface: u32,
        origin: RouteOrigin,
    ) -> Self {
        Self { destination, gateway, interface, mtu_bytes: None, duplicates: false, origin }
    }

    /// The neighbour a packet to `destination` is handed to: the gateway, or the host itself. What is for everybody
    /// on the link is no gateway's, which does not forward it (RFC 919, 7).
    #[must_use]
    pub fn next_hop(&self, destination: IpAddr) -> IpAddr {
        let gateway = self.gateway.filter(|_| destination != IpAddr::V4(Ipv4Addr::BROADCAST));
        gateway.unwrap_or(destination)
    }
}

/// All routes of a stack.
#[derive(Clone, Debug, Default)]
pub struct RouteTable {
    /// Longest prefix first; among equal lengths in the order of insertion.
    routes: Vec<Route>,
    has_duplicating: bool,
    generation: u64,
}

impl RouteTable {
    /// A table without routes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a route. One of the same origin to the same network by the same interface is replaced and returned, and
    /// where that is not the program's, what was set of it holds on. One to the same network by another interface stays,
    /// and the older of the two is used.
    pub fn insert(&mut self, route: Route) -> Option<Route> {
        self.generation += 1;
        let mut route = Route { destination: route.destination.network(), ..route };
        let is_twin = |other: &Route| {
            other.destination == route.destination && other.interface == route.interface
        };
        let is_older = |other: &&mut Route| is_twin(other) && other.origin == route.origin;
        if let Some(older) = self.routes.iter_mut().find(is_older) {
            if route.origin != RouteOrigin::Program {
                (route.mtu_bytes, route.duplicates) = (older.mtu_bytes, older.duplicates);
            }
            return Some(core::mem::replace(older, route));
        }
        let prefix_len = route.destination.prefix_len();
        let outranked = |other: &Route| is_twin(other) && other.origin > route.origin;
        let at = match self.routes.iter().rposition(is_twin) {
            Some(last) => self.routes.iter().position(outranked).unwrap_or(last + 1),
            None => self.routes.partition_point(|it| it.destination.prefix_len() >= prefix_len),
        };
        self.routes.insert(at, route);
        None
    }

    /// Removes the route to this network that is used now and returns it.
    pub fn remove(&mut self, destination: Cidr) -> Option<Route> {
        let network = destination.network();
        let at = self.routes.iter().position(|route| route.destination == network)?;
        self.generation += 1;
        Some(self.routes.remove(at))
    }

    /// Removes the route to this network by this interface that counts, or that of an origin, and returns it.
    pub fn remove_on(
        &mut self,
        destination: Cidr,
        interface: u32,
        origin: Option<RouteOrigin>,
    ) -> Option<Route> {
        let network = destination.network();
        let is_its = |route: &Route| origin.is_none_or(|origin| route.origin == origin);
        let is_it = |route: &Route| route.destination == network && route.interface == interface;
        let at = self.routes.iter().position(|route| is_it(route) && is_its(route))?;
        self.generation += 1;
        Some(self.routes.remove(at))
    }

    /// Changes the longest packet that the route to this network allows; `None` is what the
    /// interface takes. Says whether there is such a route.
    pub fn set_mtu(&mut self, destination: Cidr, mtu_bytes: Option<usize>) -> bool {
        let network = destination.network();
        let Some(route) = self.routes.iter_mut().find(|route| route.destination == network) else {
            return false;
        };
        route.mtu_bytes = mtu_bytes;
        self.generation += 1;
        true
    }

    /// Removes every route by an interface and says how many there were.
    pub fn remove_interface(&mut self, interface: u32) -> usize {
        let before = self.routes.len();
        self.routes.retain(|route| route.interface != interface);
        let removed = before - self.routes.len();
        self.generation += u64::from(removed > 0);
        removed
    }

    /// The route to an address: of those whose network holds it the one with the longest prefix
    /// (RFC 1122, 3.3.1.1).
    #[must_use]
    pub fn lookup(&self, destination: IpAddr) -> Option<Route> {
        self.routes.iter().find(|route| route.destination.contains(destination)).copied()
    }

    /// Marks the route to this network by this interface as one of several that each packet takes, or
    /// not, whoever says that there is one and will be heard next. Says whether there is such a route.
    pub fn set_duplicating(&mut self, destination: Cidr, interface: u32, on: bool) -> bool {
        let network = destination.network();
        let is_it = |route: &Route| route.destination == network && route.interface == interface;
        let mut is_there = false;
        for route in self.routes.iter_mut().filter(|route| is_it(route)) {
            (route.duplicates, is_there) = (on, true);
        }
        if !is_there {
            return false;
        }
        self.generation += 1;
        self.has_duplicating = self.routes.iter().any(|route| route.duplicates);
        true
    }

    /// Whether any route is marked as one of several.
    #[must_use]
    pub fn has_duplicating(&self) -> bool {
        self.has_duplicating
    }

    /// The routes that a packet to this address takes all of, by each interface one, which counts there: none where the
    /// one that [`RouteTable::lookup`] finds is not marked so.
    pub fn duplicating(&self, destination: IpAddr) -> impl Iterator<Item = &Route> {
        // As a rule there are none, and every datagram asks.
        let routes = if self.has_duplicating { &self.routes[..] } else { &[] };
        let found = routes.iter().find(|route| route.destination.contains(destination));
        let network = found.filter(|route| route.duplicates).map(|route| route.destination);
        // Those to one network by one interface stand side by side.
        let mut before = None;
        let is_one = move |route: &&Route| {
            let way = Some((route.destination, route.interface));
            let counts = core::mem::replace(&mut before, way) != way;
            counts && route.duplicates && Some(route.destination) == network
        };
        routes.iter().filter(is_one)
    }

    /// A number that changes whenever the table does: who kept a route looks again when it moved.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// All routes, longest prefix first.
    #[must_use]
    pub fn routes(&self) -> &[Route] {
        &self.routes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(destination: &str, gateway: Option<&str>, interface: u32) -> Route {
        let destination = destination.parse().expect("a network");
        let gateway = gateway.map(|text| text.parse().expect("an address"));
        Route::new(destination, gateway, interface, RouteOrigin::Program)
    }

    fn interface_to(table: &RouteTable, destination: &str) -> Option<u32> {
        table.lookup(destination.parse().expect("an address")).map(|route| route.interface)
    }

    #[test]
    fn the_longest_prefix_wins_whatever_the_order_of_insertion() {
        let routes = [
            route("0.0.0.0/0", Some("10.0.0.1"), 1),
            route("10.0.0.0/8", None, 2),
            route("10.1.0.0/16", None, 3),
            route("10.1.2.3/32", None, 4),
            route("::/0", Some("fe80::1"), 5),
        ];
        for rotation in 0..routes.len() {
            let mut table = RouteTable::new();
            for at in 0..routes.len() {
                assert_eq!(table.insert(routes[(at + rotation) % routes.len()]), None);
            }
            assert_eq!(interface_to(&table, "192.0.2.1"), Some(1));
            assert_eq!(interface_to(&table, "10.9.9.9"), Some(2));
            assert_eq!(interface_to(&table, "10.1.9.9"), Some(3));
            assert_eq!(interface_to(&table, "10.1.2.3"), Some(4));
            assert_eq!(interface_to(&table, "2001:db8::1"), Some(5));
        }
    }

    #[test]
    fn the_next_hop_is_the_gateway_or_the_host_itself() {
        let host = "10.0.0.7".parse().expect("an address");
        assert_eq!(route("10.0.0.0/8", None, 1).next_hop(host), host);
        let gateway: IpAddr = "10.0.0.1".parse().expect("an address");
        let default = route("0.0.0.0/0", Some("10.0.0.1"), 1);
        assert_eq!(default.next_hop(host), gateway);
        let everybody = Ipv4Addr::BROADCAST.into();
        assert_eq!(default.next_hop(everybody), everybody);
    }

    #[test]
    fn changes_move_the_generation_and_only_they_do() {
        let mut table = RouteTable::new();
        assert_eq!(interface_to(&table, "10.0.0.1"), None);
        table.insert(route("10.0.0.5/8", None, 1));
        let first = table.generation();
        let older = table.insert(route("10.0.0.0/8", Some("10.0.0.1"), 1));
        assert_eq!(older.map(|route| route.gateway), Some(None), "the same network is replaced");
        assert_eq!(table.routes().len(), 1);
        table.insert(route("10.0.0.0/8", None, 2));
        assert_eq!(interface_to(&table, "10.0.0.9"), Some(1), "the older one is used");
        let second = table.generation();
        assert!(second > first);
        assert_eq!(table.remove("11.0.0.0/8".parse().expect("a network")), None);
        assert_eq!(table.remove_interface(9), 0);
        assert_eq!(table.generation(), second);
        assert_eq!(table.remove_interface(1), 1);
        assert_eq!(interface_to(&table, "10.0.0.9"), Some(2));
        assert!(table.remove("10.0.0.0/8".parse().expect("a network")).is_some());
        assert_eq!(interface_to(&table, "10.0.0.9"), None);
        assert!(table.generation() > second);
    }

    #[test]
    fn packets_take_all_routes_that_are_marked_of_the_network_that_is_used() {
        let mut table = RouteTable::new();
        let network = "10.0.0.0/8".parse().expect("a network");
        for (destination, interface) in
            [("10.0.0.0/8", 1), ("10.0.0.0/8", 2), ("10.0.0.0/8", 3), ("10.1.0.0/16", 1)]
        {
            table.insert(route(destination, None, interface));
        }
        let taken = |table: &RouteTable, text: &str| -> Vec<u32> {
            let ways = table.duplicating(text.parse().expect("an address"));
            ways.map(|route| route.interface).collect()
        };
        assert!(!table.has_duplicating() && taken(&table, "10.9.9.9").is_empty());
        let before = table.generation();
        assert!(table.set_duplicating(network, 2, true) && table.generation() > before);
        assert!(taken(&table, "10.9.9.9").is_empty(), "the one that is used is not marked");
        assert!(table.set_duplicating(network, 1, true));
        assert_eq!(taken(&table, "10.9.9.9"), [1, 2]);
        assert!(taken(&table, "10.1.9.9").is_empty(), "a longer prefix is used");
        assert!(!table.set_duplicating(network, 9, true));
        assert!(
            table.set_duplicating(network, 1, false) && table.set_duplicating(network, 2, false)
        );
        assert!(!table.has_duplicating() && taken(&table, "10.9.9.9").is_empty());
    }

    #[test]
    fn a_network_that_several_tell_of_is_one_way_by_each_interface() {
        use RouteOrigin::{Link, Program};
        let network = "10.0.0.0/8".parse().expect("a network");
        let by = |origin, interface| Route { origin, ..route("10.0.0.0/8", None, interface) };
        let ways = |table: &RouteTable| -> Vec<u32> {
            let ways = table.duplicating([10, 9, 9, 9].into());
            ways.map(|route| route.interface).collect()
        };
        let mut table = RouteTable::new();
        for interface in [1, 2] {
            table.insert(by(Link, interface));
            assert!(table.set_duplicating(network, interface, true));
        }
        table.insert(by(Program, 2));
        assert_eq!(ways(&table), [1], "another word of the program's");
        assert!(table.set_duplicating(network, 2, true));
        assert_eq!(ways(&table), [1, 2]);
        assert!(table.set_duplicating(network, 2, false));
        assert!(table.remove_on(network, 2, None).is_some());
        assert_eq!(ways(&table), [1], "nor is it one behind the program's word");
        table.insert(by(Program, 2));
        assert!(table.set_duplicating(network, 2, true));
        assert!(table.remove_on(network, 2, None).is_some());
        assert_eq!(ways(&table), [1, 2]);
    }

    #[test]
    fn what_others_say_is_kept_behind_the_programs_word() {
        use RouteOrigin::{Learned, Link, Program};
        let mut table = RouteTable::new();
        let everything = Cidr::ANY_IPV4;
        let by = |origin, gateway| Route { origin, ..route("0.0.0.0/0", Some(gateway), 1) };
        let used = |table: &RouteTable| {
            let route = table.lookup([192, 0, 2, 1].into()).expect("a default route");
            (route.origin, route.mtu_bytes)
        };
        table.insert(route("0.0.0.0/0", Some("10.2.0.1"), 2));
        assert!(table.remove_on(everything, 2, None).is_some());
        for order in [[Program, Link, Learned], [Learned, Link, Program], [Link, Program, Learned]]
        {
            for origin in order {
                assert_eq!(table.insert(by(origin, "10.0.0.1")), None);
            }
            table.insert(route("0.0.0.0/0", Some("10.2.0.1"), 2));
            for (expected, interface) in [(Program, 1), (Link, 1), (Learned, 1), (Program, 2)] {
                assert_eq!(used(&table).0, expected, "{order:?}");
                assert!(table.remove_on(everything, interface, None).is_some());
            }
            assert_eq!(table.routes(), []);
        }
        table.insert(by(Learned, "10.0.0.1"));
        assert!(table.set_mtu(everything, Some(1_400)));
        let older = table.insert(by(Learned, "10.0.0.2"));
        assert_eq!(older.and_then(|route| route.mtu_bytes), Some(1_400));
        assert_eq!(used(&table), (Learned, Some(1_400)), "a work-around outlives a router");
        table.insert(by(Program, "10.0.0.3"));
        assert!(table.set_mtu(everything, Some(1_300)));
        table.insert(by(Program, "10.0.0.4"));
        assert_eq!(used(&table), (Program, None), "another word of the program's");
        assert!(table.remove_on(everything, 1, Some(Link)).is_none());
        assert!(table.remove_on(everything, 1, Some(Learned)).is_some());
        assert_eq!(used(&table), (Program, None));
    }
}
