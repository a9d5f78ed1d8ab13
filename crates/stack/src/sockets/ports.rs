//! Local ports: who has which, who shares one, and which is taken where the caller does not mind.
//!
//! A port belongs to listeners and UDP sockets. Connections do not own theirs: what must be unique is
//! the four-tuple (RFC 9293, 3.3.1), so connections to different peers may have one local port, and a
//! listener may be bound though connections in TIME-WAIT have its port (what SO_REUSEADDR asks for is
//! always so).

use crate::error::SocketError;
use crate::sockets::Keys;
use crate::sockets::taken_ports::TakenPorts;
use core::hash::BuildHasher;
use core::net::{IpAddr, SocketAddr};
use std::collections::HashMap;

/// Which protocol a port belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Protocol {
    Tcp,
    Udp,
    /// ICMP, whose echo identifiers stand for ports.
    Echo,
}

/// How a listener or UDP socket stands to others on its address and port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BindOptions {
    /// Others that are shared may have the same address and port (SO_REUSEPORT). Each peer always
    /// meets the same one of them while their number stays; a keyed hash decides which. Datagrams to a group or to
    /// everybody on a link come to all of them. The same link-local address on two links is one address here: who is
    /// bound to it on each listens on two ports.
    pub shared: bool,
    /// UDP sockets that all yield may have the same address and port, too (SO_REUSEADDR). The one that was bound last gets
    /// what is for one of them, and those before it have that again when it is closed; datagrams to a group or to
    /// everybody on a link come to all of them. Of listeners it says nothing.
    pub yielding: bool,
    /// An unspecified address stands for the addresses of its own family (IPV6_V6ONLY) instead of
    /// all addresses.
    pub one_family: bool,
}

/// What a socket is bound to beside its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Bound {
    Address(IpAddr),
    Family { ipv4: bool },
    Everything,
}

impl Bound {
    fn new(address: IpAddr, options: BindOptions) -> Self {
        match (address.is_unspecified(), options.one_family) {
            (false, _) => Self::Address(address),
            (true, true) => Self::Family { ipv4: address.is_ipv4() },
            (true, false) => Self::Everything,
        }
    }

    fn overlaps(self, other: Self) -> bool {
        match (self, other) {
            (Self::Everything, _) | (_, Self::Everything) => true,
            (Self::Address(one), Self::Address(other)) => one == other,
            (Self::Family { ipv4 }, Self::Address(address))
            | (Self::Address(address), Self::Family { ipv4 }) => address.is_ipv4() == ipv4,
            (Self::Family { ipv4 }, Self::Family { ipv4: other }) => ipv4 == other,
        }
    }
}

/// A socket on a port.
#[derive(Clone, Copy, Debug)]
struct Entry {
    bound: Bound,
    is_shared: bool,
    is_yielding: bool,
    index: u32,
}

impl Entry {
    fn new(protocol: Protocol, address: IpAddr, options: BindOptions, index: u32) -> Self {
        Self {
            bound: Bound::new(address, options),
            is_shared: options.shared,
            is_yielding: options.yielding && protocol == Protocol::Udp,
            index,
        }
    }

    /// Whether one stands in the way of the other.
    fn excludes(&self, other: &Self) -> bool {
        let agree = (self.is_shared && other.is_shared) || (self.is_yielding && other.is_yielding);
        self.bound.overlaps(other.bound) && !agree
    }
}

/// The sockets of one port of one protocol.
#[derive(Debug, Default)]
struct Port {
    /// Those that take from anybody, in the order in which they were bound.
    open: Vec<Entry>,
    /// UDP sockets with one peer each, which are found by that. Any number may share a port (a server with a
    /// socket for each client), so they are not among those that are looked through for a datagram.
    connected: Vec<(Entry, SocketAddr)>,
}

impl Port {
    fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.open.iter().chain(self.connected.iter().map(|(entry, _)| entry))
    }

    fn is_empty(&self) -> bool {
        self.open.is_empty() && self.connected.is_empty()
    }
}

/// RFC 6056, 3.2: all that are not well-known. A listener that comes later is not in the way, for
/// only four-tuples are taken.
const EPHEMERAL_PORTS: core::ops::RangeInclusive<u16> = 1_024..=65_535;

/// Counters of the double-hash algorithm (RFC 6056, 3.3.4).
const INCREMENTS: usize = 256;

/// The ports of a shard's listeners and UDP sockets.
#[derive(Debug)]
pub(crate) struct Ports {
    ports: HashMap<(Protocol, u16), Port, Keys>,
    /// Connected UDP sockets by local port and peer.
    by_peer: HashMap<(u16, SocketAddr), Vec<Entry>, Keys>,
    /// What was found taken where a free port was looked for.
    pub(crate) taken: TakenPorts,
    keys: Keys,
    picked: u64,
    increments: Box<[u32; INCREMENTS]>,
}

impl Ports {
    pub(crate) fn new(keys: Keys) -> Self {
        Self {
            ports: HashMap::with_hasher(keys),
            by_peer: HashMap::with_hasher(keys),
            taken: TakenPorts::default(),
            keys,
            picked: 0,
            increments: Box::new([0; INCREMENTS]),
        }
    }

    /// How many ports are bound.
    pub(crate) fn len(&self) -> usize {
        self.ports.len()
    }

    /// The socket that is connected to this peer, or else bound to this address, or else to its family,
    /// or else to all; of several that share it, the one for this peer.
    pub(crate) fn find(
        &self,
        protocol: Protocol,
        local: SocketAddr,
        peer: SocketAddr,
    ) -> Option<u32> {
        let bounds = [
            Bound::Address(local.ip()),
            Bound::Family { ipv4: local.is_ipv4() },
            Bound::Everything,
        ];
        let among = |entries: &[Entry]| {
            bounds.into_iter().find_map(|bound| self.choose(entries, bound, peer))
        };
        let connected = match protocol {
            Protocol::Udp if !self.by_peer.is_empty() => self.by_peer.get(&(local.port(), peer)),
            _ => None,
        };
        connected
            .and_then(|entries| among(entries))
            .or_else(|| among(&self.ports.get(&(protocol, local.port()))?.open))
    }

    /// All sockets that take what comes to this address and port, for what is for all of them.
    pub(crate) fn all_of(&self, protocol: Protocol, local: SocketAddr) -> Vec<u32> {
        let takes = |its: &&Entry| its.bound.overlaps(Bound::Address(local.ip()));
        let entries = self.ports.get(&(protocol, local.port())).into_iter().flat_map(Port::entries);
        entries.filter(takes).map(|its| its.index).collect()
    }

    fn choose(&self, entries: &[Entry], bound: Bound, peer: SocketAddr) -> Option<u32> {
        let at = entries.iter().filter(|its| its.bound == bound);
        let newest = at.clone().next_back()?;
        if !newest.is_shared {
            return Some(newest.index);
        }
        let mut candidates = at.filter(|its| its.is_shared);
        let count = candidates.clone().count();
        let chosen = match count {
            0 | 1 => 0,
            _ => (self.keys.hash_one(("shared", peer)) % count as u64) as usize,
        };
        candidates.nth(chosen).map(|its| its.index)
    }

    /// A UDP socket takes from `peer` alone from now on; of several that share a port it gets what comes
    /// from there. One bound to no address gets what was sent to `source`, where there is one, and keeps what
    /// it is bound to from others as before.
    pub(crate) fn connect(
        &mut self,
        port: u16,
        index: u32,
        peer: SocketAddr,
        source: Option<IpAddr>,
    ) {
        let Some(known) = self.ports.get_mut(&(Protocol::Udp, port)) else { return };
        let entry = match known.connected.iter().position(|(its, _)| its.index == index) {
            Some(at) => {
                let (entry, old) = known.connected.remove(at);
                self.forget_peer(port, index, old);
                entry
            }
            None => {
                let Some(at) = known.open.iter().position(|its| its.index == index) else { return };
                known.open.remove(at)
            }
        };
        if let Some(known) = self.ports.get_mut(&(Protocol::Udp, port)) {
            known.connected.push((entry, peer));
        }
        let bound = source.map_or(entry.bound, Bound::Address);
        self.by_peer.entry((port, peer)).or_default().push(Entry { bound, ..entry });
    }

    /// A UDP socket takes from everybody again.
    pub(crate) fn disconnect(&mut self, port: u16, index: u32) {
        let Some(known) = self.ports.get_mut(&(Protocol::Udp, port)) else { return };
        let Some(at) = known.connected.iter().position(|(its, _)| its.index == index) else {
            return;
        };
        let (entry, peer) = known.connected.remove(at);
        known.open.push(entry);
        self.forget_peer(port, index, peer);
    }

    /// Whether a UDP socket yields to those that are bound from now on.
    pub(crate) fn set_yielding(&mut self, port: u16, index: u32, yields: bool) {
        let Some(known) = self.ports.get_mut(&(Protocol::Udp, port)) else { return };
        let connected = known.connected.iter_mut().map(|(entry, _)| entry);
        let mut all = known.open.iter_mut().chain(connected);
        if let Some(entry) = all.find(|its| its.index == index) {
            entry.is_yielding = yields;
        }
    }

    fn forget_peer(&mut self, port: u16, index: u32, peer: SocketAddr) {
        if let Some(entries) = self.by_peer.get_mut(&(port, peer)) {
            entries.retain(|its| its.index != index);
            if entries.is_empty() {
                self.by_peer.remove(&(port, peer));
            }
        }
    }

    /// Whether a socket may be bound to this address and port.
    pub(crate) fn is_free(
        &self,
        protocol: Protocol,
        local: SocketAddr,
        options: BindOptions,
    ) -> bool {
        let Some(port) = self.ports.get(&(protocol, local.port())) else { return true };
        let entry = Entry::new(protocol, local.ip(), options, 0);
        !port.entries().any(|its| its.excludes(&entry))
    }

    /// Binds a socket.
    ///
    /// # Errors
    /// [`SocketError::AddressInUse`].
    pub(crate) fn add(
        &mut self,
        protocol: Protocol,
        local: SocketAddr,
        options: BindOptions,
        index: u32,
    ) -> Result<(), SocketError> {
        if !self.is_free(protocol, local, options) {
            return Err(SocketError::AddressInUse);
        }
        let port = self.ports.entry((protocol, local.port())).or_default();
        port.open.push(Entry::new(protocol, local.ip(), options, index));
        Ok(())
    }

    pub(crate) fn remove(&mut self, protocol: Protocol, port: u16, index: u32) {
        let key = (protocol, port);
        let Some(known) = self.ports.get_mut(&key) else { return };
        self.taken.release(port);
        known.open.retain(|its| its.index != index);
        let at = known.connected.iter().position(|(its, _)| its.index == index);
        let peer = at.map(|at| known.connected.remove(at).1);
        if known.is_empty() {
            self.ports.remove(&key);
        }
        if let Some(peer) = peer {
            self.forget_peer(port, index, peer);
        }
    }

    /// Where to begin to look for a free port, and how to go on.
    ///
    /// For a connection, RFC 6056, 3.3.4 (double hash): a secret offset for each destination, and a
    /// counter that destinations with the same second hash share. So ports to one destination do not
    /// come again soon, and say nothing about those to another. Without a destination, 3.3.1.
    pub(crate) fn candidates(
        &mut self,
        destination: Option<(IpAddr, SocketAddr)>,
    ) -> impl Iterator<Item = u16> + use<> {
        let count = u32::from(EPHEMERAL_PORTS.end() - EPHEMERAL_PORTS.start()) + 1;
        self.picked += 1;
        let start = match destination {
            Some(destination) => {
                let slot = self.keys.hash_one(("counter", destination)) as usize % INCREMENTS;
                let counter = self.increments[slot];
                self.increments[slot] = counter.wrapping_add(1);
                (self.keys.hash_one(("offset", destination)) as u32).wrapping_add(counter)
            }
            None => self.keys.hash_one(("port", self.picked)) as u32,
        };
        (0..count).map(move |step| {
            EPHEMERAL_PORTS.start()
                + ((u64::from(start) + u64::from(step)) % u64::from(count)) as u16
        })
    }

    /// The search to `destination` took this many more steps: the next begins behind them.
    pub(crate) fn on_skipped(&mut self, destination: Option<(IpAddr, SocketAddr)>, steps: u32) {
        if let Some(destination) = destination {
            let slot = self.keys.hash_one(("counter", destination)) as usize % INCREMENTS;
            self.increments[slot] = self.increments[slot].wrapping_add(steps);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn at(text: &str) -> SocketAddr {
        text.parse().expect("an address and a port")
    }

    const ALONE: BindOptions = BindOptions { shared: false, yielding: false, one_family: false };
    const SHARED: BindOptions = BindOptions { shared: true, ..ALONE };
    const YIELDING: BindOptions = BindOptions { yielding: true, ..ALONE };
    const ONE_FAMILY: BindOptions = BindOptions { one_family: true, ..ALONE };

    #[test]
    fn addresses_that_overlap_stand_in_each_others_way() {
        let mut ports = Ports::new(Keys(1, 2));
        ports.add(Protocol::Tcp, at("[::]:80"), ONE_FAMILY, 1).expect("free");
        ports.add(Protocol::Tcp, at("0.0.0.0:80"), ONE_FAMILY, 2).expect("the other family");
        ports.add(Protocol::Udp, at("0.0.0.0:80"), ALONE, 3).expect("another protocol");
        for taken in ["0.0.0.0:80", "10.0.0.1:80", "[::]:80", "[fd00::1]:80"] {
            let added = ports.add(Protocol::Tcp, at(taken), ALONE, 9);
            assert_eq!(added, Err(SocketError::AddressInUse), "{taken}");
        }
        let peer = at("10.0.0.7:7");
        assert_eq!(ports.find(Protocol::Tcp, at("10.0.0.1:80"), peer), Some(2));
        assert_eq!(ports.find(Protocol::Tcp, at("[fd00::1]:80"), peer), Some(1));
        assert_eq!(ports.find(Protocol::Udp, at("[fd00::1]:80"), peer), Some(3));
        ports.remove(Protocol::Tcp, 80, 2);
        assert_eq!(ports.find(Protocol::Tcp, at("10.0.0.1:80"), peer), None);
        ports.add(Protocol::Tcp, at("10.0.0.1:80"), ALONE, 4).expect("free again");
    }

    #[test]
    fn sockets_that_share_a_port_share_the_peers_evenly_and_steadily() {
        let mut ports = Ports::new(Keys(1, 2));
        for index in 0..4 {
            ports.add(Protocol::Tcp, at("0.0.0.0:80"), SHARED, index).expect("shared");
        }
        assert!(!ports.is_free(Protocol::Tcp, at("0.0.0.0:80"), ALONE));
        let find = |port| {
            let peer = SocketAddr::new([10, 0, 0, 9].into(), port);
            ports.find(Protocol::Tcp, at("10.0.0.1:80"), peer).expect("one of them")
        };
        let mut counts = [0; 4];
        for port in 1_000..5_000 {
            counts[find(port) as usize] += 1;
            assert_eq!(find(port), find(port));
        }
        assert!(counts.iter().all(|count| (850..1_150).contains(count)), "{counts:?}");
    }

    // As a kernel's sockets answer.
    #[test]
    fn of_sockets_that_yield_the_last_one_has_the_port() {
        let mut ports = Ports::new(Keys(1, 2));
        let peer = at("10.0.0.7:7");
        let find = |ports: &Ports| ports.find(Protocol::Udp, at("10.0.0.1:80"), peer);
        for index in 1..4 {
            ports.add(Protocol::Udp, at("10.0.0.1:80"), YIELDING, index).expect("all yield");
            assert_eq!(find(&ports), Some(index));
        }
        let alone = ports.add(Protocol::Udp, at("10.0.0.1:80"), ALONE, 9);
        assert_eq!(alone, Err(SocketError::AddressInUse));
        ports.add(Protocol::Udp, at("0.0.0.0:80"), YIELDING, 4).expect("all yield");
        assert_eq!(find(&ports), Some(3), "who is bound to the address comes first");
        ports.connect(80, 1, peer, None);
        assert_eq!(find(&ports), Some(1), "and before that who is connected");
        ports.connect(80, 1, at("10.0.0.8:8"), None);
        ports.remove(Protocol::Udp, 80, 3);
        assert_eq!(find(&ports), Some(2));
        assert_eq!(ports.all_of(Protocol::Udp, at("10.0.0.1:80")).len(), 3);
        // Who shares and yields has others of each kind beside it, but these not each other.
        let mut ports = Ports::new(Keys(1, 2));
        let both = BindOptions { shared: true, ..YIELDING };
        ports.add(Protocol::Udp, at("10.0.0.1:80"), both, 1).expect("free");
        ports.add(Protocol::Udp, at("10.0.0.1:80"), SHARED, 2).expect("both share");
        let other = ports.add(Protocol::Udp, at("10.0.0.1:80"), YIELDING, 3);
        assert_eq!(other, Err(SocketError::AddressInUse));
        for index in 1..3 {
            let listener = ports.add(Protocol::Tcp, at("10.0.0.1:80"), YIELDING, index);
            assert_eq!(listener.is_ok(), index == 1, "two listeners would not know which is meant");
        }
    }

    #[test]
    fn a_datagram_is_for_the_socket_that_is_connected_to_its_sender() {
        let mut ports = Ports::new(Keys(1, 2));
        let peer = |last| SocketAddr::new([10, 0, 0, last].into(), 9);
        for index in 0..8 {
            ports.add(Protocol::Udp, at("0.0.0.0:80"), SHARED, index).expect("shared");
            ports.connect(80, index, peer(index as u8), None);
        }
        let find = |ports: &Ports, last| ports.find(Protocol::Udp, at("10.0.0.1:80"), peer(last));
        for index in 0..8 {
            assert_eq!(find(&ports, index as u8), Some(index));
        }
        assert_eq!(find(&ports, 9), None, "each has another peer");
        assert!(!ports.is_free(Protocol::Udp, at("10.0.0.1:80"), ALONE));
        ports.add(Protocol::Udp, at("10.0.0.1:80"), SHARED, 8).expect("shared");
        assert_eq!((find(&ports, 9), find(&ports, 3)), (Some(8), Some(3)));
        ports.connect(80, 3, peer(10), None);
        assert_eq!((find(&ports, 3), find(&ports, 10)), (Some(8), Some(3)));
        for index in 0..9 {
            ports.remove(Protocol::Udp, 80, index);
        }
        assert!(ports.ports.is_empty() && ports.by_peer.is_empty());
    }

    // RFC 6056, 3.3.4: distinct for one destination, unrelated between destinations.
    #[test]
    fn ports_to_one_destination_do_not_come_again_and_start_anywhere() {
        let mut ports = Ports::new(Keys(1, 2));
        let local: IpAddr = [10, 0, 0, 1].into();
        let mut starts = HashSet::new();
        for last in 1..100 {
            let destination = Some((local, SocketAddr::new([10, 0, 1, last].into(), 80)));
            let drawn: Vec<u16> =
                (0..50).filter_map(|_| ports.candidates(destination).next()).collect();
            let distinct: HashSet<_> = drawn.iter().collect();
            assert_eq!(distinct.len(), 50);
            assert!(drawn.iter().all(|port| *port >= 1_024));
            starts.insert(drawn[0] / 1_024);
        }
        assert!(starts.len() > 35, "{}", starts.len());
        assert_eq!(ports.candidates(None).collect::<HashSet<_>>().len(), 64_512);
    }
}
