//! The life of an interface's addresses.
//!
//! ```text
//!  fixed, by the program  \                 probes            nobody objects
//!  leased, by DHCP         > claim_address ---------> tentative -------------> assigned
//!  formed, from a prefix  /        |                     | somebody has it         | removed, lost,
//!                                  +-- at once, told ----|--------------> assigned | expired
//!                                                        v                         v
//!                                                     AddressEvent::Duplicate    AddressEvent::Removed
//! ```
//!
//! An *assigned* address stands in [`Interface::addresses`] and so is usable: packets to it are
//! received, sockets can be bound to it, its network has a route. A *tentative* one stands in the
//! records here alone. `claims.rs` speaks for addresses on the link (probes, announcements,
//! defence); `autoconfiguration.rs` turns what routers say into addresses and routes, `lease.rs` what a DHCP
//! server says; `link_local.rs` forms the address that every interface has; `advertising.rs` speaks as the router of the
//! link. Of several shards that are one host the first does all that, and `news.rs` is how the others come by what it
//! learns.
//!
//! What always holds: an interface has at most [`ADDRESSES_MAX`] addresses; every assigned address
//! has exactly one record; a connection whose local address is gone has failed with an error that
//! says so.

mod advertising;
mod autoconfiguration;
mod claims;
mod lease;
mod link_local;
mod news;
mod record;

use crate::error::SocketError;
use crate::network::NetworkLayer;
use crate::network::interface::Interface;
use crate::network::interfaces::InterfaceId;
use crate::network::multicast::Listener;
use crate::shard::Shard;
pub(crate) use autoconfiguration::Autoconfiguration;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr};
use ip::membership::Filter;
use ip::router::{RouterAdvertiser, RouterConfig};
use ip::{Cidr, Route, RouteOrigin};
pub(crate) use lease::Leasing;
use link_local::LinkLocal;
pub(crate) use news::LinkNews;
pub(crate) use record::Record;
pub use record::{AddressOrigin, AddressState, AddressStatus};
use time::{Instant, Jitter};
use wire::HardwareAddress;

/// Addresses of one interface, tentative ones included.
pub const ADDRESSES_MAX: usize = 64;

/// What is done on the link for an address before and after it is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClaimPolicy {
    /// Nothing: whoever configured the address knows that it is free, and neighbours will ask.
    #[default]
    Trust,
    /// The address is used at once and told to everybody (gratuitous ARP, an unsolicited neighbour
    /// advertisement), so that caches which still hold an earlier owner are corrected.
    Announce,
    /// The address is used at once and, meanwhile, asked about. For IPv6 this is RFC 4429; RFC 5227
    /// knows nothing like it, so IPv4 announces.
    Optimistic,
    /// The address is asked about first and not used before (RFC 5227; RFC 4862, 5.4): five to
    /// eight seconds for IPv4, one to two for IPv6.
    Probe,
}

/// How an interface comes by its addresses and guards them.
#[derive(Clone, Debug)]
pub struct AddressingConfig {
    /// What is done for IPv4 addresses that the program fixed.
    pub ipv4: ClaimPolicy,
    /// What is done for IPv6 addresses.
    pub ipv6: ClaimPolicy,
    /// Solicitations that ask whether an IPv6 address is taken (DupAddrDetectTransmits).
    pub duplicate_solicitations: u32,
    /// Whether routers are asked for and believed (RFC 4861, 6.3; RFC 4862): `None` does neither.
    pub routers: Option<RouterConfig>,
    /// Whether an IPv4 address is leased from a DHCP server; `None` asks for none.
    pub dhcp: Option<dhcp::ClientConfig>,
}

impl Default for AddressingConfig {
    /// A program that starts with a fixed address wants to be reachable now, not in five to eight
    /// seconds: its IPv4 address is announced without being probed, as Linux does at most, and its
    /// IPv6 address is optimistic. A duplicate is still found, by what the other one sends, and
    /// reported.
    fn default() -> Self {
        Self {
            ipv4: ClaimPolicy::Announce,
            ipv6: ClaimPolicy::Optimistic,
            duplicate_solicitations: 1,
            routers: None,
            dhcp: None,
        }
    }
}

/// Something happened to an interface's addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddressEvent {
    /// The address can be used.
    Assigned(InterfaceId, Cidr),
    /// The address cannot be used any more.
    Removed(InterfaceId, Cidr),
    /// Another station uses the address. Where it was tentative, optimistic or leased it is given
    /// up; a fixed one is kept and defended.
    Duplicate(InterfaceId, IpAddr, HardwareAddress),
    /// The recursive DNS servers that may be used ([`Shard::name_servers`]) are others now.
    NameServers(InterfaceId, Vec<IpAddr>),
    /// This DHCP server leases addresses for so many seconds, which is less than [`dhcp::LEASE_MIN_S`], so none is
    /// taken of it.
    LeaseTooShort(InterfaceId, Ipv4Addr, u32),
}

impl fmt::Display for AddressEvent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Assigned(id, cidr) => write!(formatter, "{id}: it has the address {cidr} now"),
            Self::Removed(id, cidr) => write!(formatter, "{id}: it has the address {cidr} no more"),
            Self::Duplicate(id, address, station) => {
                write!(formatter, "{id}: the host at {station} uses the address {address}")
            }
            Self::NameServers(id, servers) if servers.is_empty() => {
                write!(formatter, "{id}: it knows of no name server any more")
            }
            Self::NameServers(id, servers) => {
                write!(formatter, "{id}: its name servers are")?;
                servers.iter().try_for_each(|server| write!(formatter, " {server}"))
            }
            Self::LeaseTooShort(id, server, seconds) => write!(
                formatter,
                "{id}: the DHCP server {server} leases addresses for {seconds} s only, which is not \
                 taken"
            ),
        }
    }
}

/// The records of one interface.
#[derive(Debug)]
pub(crate) struct Addressing {
    pub(crate) config: AddressingConfig,
    pub(crate) records: Vec<Record>,
    pub(crate) jitter: Jitter,
    pub(crate) autoconfiguration: Option<Box<Autoconfiguration>>,
    pub(crate) leasing: Option<Box<Leasing>>,
    /// Where this host speaks as a router.
    pub(crate) advertiser: Option<Box<RouterAdvertiser>>,
    /// From [`Shard::start_addressing`] on.
    link_local: Option<LinkLocal>,
    /// The routes that came with a lease.
    leased_routes: Vec<Route>,
    /// The networks that routers said are on the link.
    learned_networks: Vec<Cidr>,
    /// DNS servers that a DHCP server, and those that routers told of.
    pub(crate) name_servers: [Vec<IpAddr>; 2],
}

impl Addressing {
    /// `addresses` are fixed and trusted until [`Shard::start_addressing`] says otherwise.
    pub(crate) fn new(addresses: &[Cidr], seed: u64) -> Self {
        let trusted =
            |cidr: &Cidr| Record::new(*cidr, AddressOrigin::Fixed, link::Claim::held(), false);
        Self {
            config: AddressingConfig {
                ipv4: ClaimPolicy::Trust,
                ipv6: ClaimPolicy::Trust,
                ..AddressingConfig::default()
            },
            records: addresses.iter().map(trusted).collect(),
            jitter: Jitter::new(seed),
            autoconfiguration: None,
            leasing: None,
            advertiser: None,
            link_local: None,
            leased_routes: Vec::new(),
            learned_networks: Vec::new(),
            name_servers: [Vec::new(), Vec::new()],
        }
    }

    pub(crate) fn find(&self, address: IpAddr) -> Option<&Record> {
        self.records.iter().find(|record| record.cidr.address() == address)
    }

    pub(crate) fn find_mut(&mut self, address: IpAddr) -> Option<&mut Record> {
        self.records.iter_mut().find(|record| record.cidr.address() == address)
    }

    /// Whether the address is still being asked about, used meanwhile or not.
    pub(crate) fn is_unsettled(&self, address: IpAddr) -> bool {
        self.find(address).is_some_and(|record| record.claim.is_probing())
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let routers = self.autoconfiguration.as_ref().and_then(|part| part.poll_timeout());
        let lease = self.leasing.as_ref().and_then(|part| part.poll_timeout());
        let advertiser = self.advertiser.as_ref().map(|part| part.poll_timeout());
        let others = Instant::earliest(lease, advertiser);
        let claims = self.records.iter().map(|record| record.claim.poll_timeout());
        claims.fold(Instant::earliest(routers, others), Instant::earliest)
    }
}

impl Shard {
    /// Begins to guard the addresses of interface `id`, the ones it has included, as `config` says, and to
    /// have a link-local one where it speaks IPv6 on a link with stations. Until then they are fixed and trusted. What is due happens in [`Shard::on_timeout`]. Of several
    /// shards that are one host the first one does all this, and tells the others.
    pub fn start_addressing(&mut self, now: Instant, id: InterfaceId, config: AddressingConfig) {
        let network = &mut self.network;
        if !network.sharing.is_first() {
            return network.follow_addressing(id, config);
        }
        let Some(interface) = network.interfaces.get_mut(id) else { return };
        let (routers, dhcp) = (config.routers.clone(), config.dhcp.clone());
        let addressing = &mut interface.addressing;
        let key = routers.as_ref().map(|routers| routers.key);
        addressing.link_local = Some(LinkLocal::new(key, &mut addressing.jitter));
        addressing.config = config;
        for record in addressing.records.clone() {
            let cidr = record.cidr;
            network.withdraw(id, cidr);
            let records = &mut network.interfaces[id].addressing.records;
            records.retain(|other| other.cidr != cidr);
            // It was had before, so a host can have it and there is room ([`Shard::add_interface`]).
            let _ = network.claim_address(now, id, cidr, record.origin);
        }
        network.form_link_local(now, id);
        if let Some(routers) = routers {
            network.start_autoconfiguration(now, id, routers);
        }
        if let Some(dhcp) = dhcp {
            network.start_leasing(now, id, dhcp);
        }
        self.leave_addresses(now);
    }

    /// Adds an address to interface `id`, with a route to its network. It can be used when
    /// [`AddressEvent::Assigned`] says so, which may be at once. Of several shards that are one host it
    /// is the first one's that counts; the others hear of it ([`Shard::poll_stray`]).
    ///
    /// # Errors
    /// [`SocketError::AddressInUse`] where the interface has it already,
    /// [`SocketError::NoHostAddress`] where no host can have it, [`SocketError::TooManyAddresses`] where the
    /// interface has [`ADDRESSES_MAX`], [`SocketError::NoSuchInterface`].
    pub fn add_address(
        &mut self,
        now: Instant,
        id: InterfaceId,
        cidr: Cidr,
    ) -> Result<(), SocketError> {
        self.network.claim_address(now, id, cidr, AddressOrigin::Fixed)?;
        self.network.form_link_local(now, id);
        Ok(())
    }

    /// Takes an address from interface `id`; a leased one is given back to its server. Connections from it fail with
    /// [`SocketError::AddressRemoved`], unless another interface that leads to their peer has it as well, by which they
    /// go on; sockets bound to it stay and receive nothing. As with
    /// [`Shard::add_address`], only the first shard of a host does it, and the others hear of it.
    ///
    /// # Errors
    /// [`SocketError::AddressNotAvailable`] where the interface does not have it,
    /// [`SocketError::NoSuchInterface`].
    pub fn remove_address(
        &mut self,
        now: Instant,
        id: InterfaceId,
        address: IpAddr,
    ) -> Result<(), SocketError> {
        let interface = self.network.interfaces.with_device(id)?;
        if !self.network.sharing.is_first() {
            return Ok(());
        }
        let record = interface.addressing.find(address).ok_or(SocketError::AddressNotAvailable)?;
        let (cidr, origin) = (record.cidr, record.origin);
        if origin == AddressOrigin::Dhcp {
            self.network.release_lease(now, id);
        }
        self.network.drop_address(now, id, cidr);
        self.leave_addresses(now);
        Ok(())
    }

    /// Gives the leased address of interface `id` back and asks for no other; without a lease this
    /// ends the search for one.
    pub fn release_lease(&mut self, now: Instant, id: InterfaceId) {
        self.network.release_lease(now, id);
        self.leave_addresses(now);
    }

    /// The addresses of interface `id`, tentative ones included.
    #[must_use]
    pub fn addresses(&self, id: InterfaceId) -> Vec<AddressStatus> {
        let interface = self.network.interfaces.get(id);
        let records = interface.map_or(&[][..], |interface| &interface.addressing.records);
        records.iter().map(Record::status).collect()
    }

    /// Recursive DNS servers that DHCP and routers told of on interface `id`, DHCP's first.
    #[must_use]
    pub fn name_servers(&self, id: InterfaceId) -> Vec<IpAddr> {
        self.network.name_servers(id)
    }

    /// The next thing that happened to an address. Events that nobody reads are bounded: the
    /// oldest is forgotten.
    pub fn poll_address_event(&mut self) -> Option<AddressEvent> {
        self.network.address_events.next()
    }
}

impl NetworkLayer {
    /// Lets what is due happen to the addresses of all interfaces.
    pub(crate) fn on_addressing_timeout(&mut self, now: Instant) {
        for id in self.interfaces.ids() {
            self.on_autoconfiguration_timeout(now, id);
            self.on_leasing_timeout(now, id);
            self.on_advertiser_timeout(now, id);
            self.on_claims_timeout(now, id);
            self.on_groups_timeout(now, id);
        }
    }

    /// The interface may be on another link, where routers and DHCP servers are asked.
    pub(crate) fn on_new_link(&mut self, now: Instant, id: InterfaceId) {
        let addressing = &mut self.interfaces[id].addressing;
        if let Some(part) = &mut addressing.autoconfiguration {
            part.on_new_link(now);
        }
        if let Some(part) = &mut addressing.advertiser {
            part.on_new_link(now, &mut addressing.jitter);
        }
        self.verify_lease(now, id);
        self.form_link_local_anew(now, id);
    }

    /// The address goes for good: its record and its use. [`Shard::leave_addresses`] sees to the connections that used it.
    pub(crate) fn drop_address(&mut self, now: Instant, id: InterfaceId, cidr: Cidr) {
        let address = cidr.address();
        let was_used = self.withdraw(id, cidr);
        let addressing = &mut self.interfaces[id].addressing;
        addressing.records.retain(|record| record.cidr.address() != address);
        if let IpAddr::V6(own) = address {
            let group = wire::ndp::solicited_node(own).into();
            self.leave_group(now, id, group, Listener::Address(address));
        }
        if !was_used {
            return;
        }
        self.address_events.push(AddressEvent::Removed(id, cidr));
        self.tell_of_address(id, cidr, AddressOrigin::Fixed, false);
        self.left_addresses.push((id, address));
    }

    /// As [`Shard::name_servers`].
    fn name_servers(&self, id: InterfaceId) -> Vec<IpAddr> {
        let interface = self.interfaces.get(id);
        interface.map_or(Vec::new(), |interface| interface.addressing.name_servers.concat())
    }

    /// Takes over the DNS servers of one source: 0 for DHCP, 1 for routers.
    fn set_name_servers(&mut self, id: InterfaceId, source: usize, servers: Vec<IpAddr>) {
        let known = &mut self.interfaces[id].addressing.name_servers[source];
        if *known != servers {
            *known = servers;
            let all = self.name_servers(id);
            self.address_events.push(AddressEvent::NameServers(id, all));
        }
    }

    /// Makes a record for an address and, where it may be used at once, assigns it.
    pub(crate) fn claim_address(
        &mut self,
        now: Instant,
        id: InterfaceId,
        cidr: Cidr,
        origin: AddressOrigin,
    ) -> Result<(), SocketError> {
        let address = cidr.address();
        let interface = self.interfaces.with_device(id)?;
        if !cidr.is_hosts() {
            return Err(SocketError::NoHostAddress);
        }
        if !self.sharing.is_first() {
            return Ok(());
        }
        if interface.addressing.find(address).is_some() {
            return Err(SocketError::AddressInUse);
        }
        if interface.addressing.records.len() >= ADDRESSES_MAX {
            return Err(SocketError::TooManyAddresses);
        }
        let record = claims::begin(interface, now, cidr, origin);
        let is_usable = !record.claim.is_probing() || record.is_optimistic;
        let is_trusted = interface.addressing.config.ipv6 == ClaimPolicy::Trust;
        let has_link = interface.hardware_address().is_some();
        interface.addressing.records.push(record);
        if let IpAddr::V6(own) = address
            && has_link
            && !is_trusted
        {
            // RFC 4862, 5.4.2: before the first solicitation; RFC 3810: so that switches know.
            let group = wire::ndp::solicited_node(own).into();
            let _ = self.join_group(now, id, group, Listener::Address(address), Filter::AnySource);
        }
        if is_usable {
            self.assign(id, cidr);
        }
        Ok(())
    }

    /// From now on the address is used.
    fn assign(&mut self, id: InterfaceId, cidr: Cidr) {
        let interface = &mut self.interfaces[id];
        if interface.is_ours(cidr.address()) {
            return;
        }
        let is_ipv4 = cidr.address().is_ipv4();
        if !interface.addresses.iter().any(|other| other.address().is_ipv4() == is_ipv4) {
            interface.neighbours.on_source_address(is_ipv4);
        }
        interface.addresses.push(cidr);
        self.checked_addresses = None;
        // RFC 5942, 4: a formed address says nothing of who is on the link; its router does.
        let origin = interface.addressing.find(cidr.address()).map(|record| record.origin);
        if origin != Some(AddressOrigin::Router) {
            self.add_network_route(id, cidr);
        }
        self.address_events.push(AddressEvent::Assigned(id, cidr));
        self.tell_of_address(id, cidr, origin.unwrap_or(AddressOrigin::Fixed), true);
    }

    /// As [`Shard::start_addressing`], in a shard that follows the first: addresses that may not be used
    /// before neighbours were asked are had when the first one has them.
    fn follow_addressing(&mut self, id: InterfaceId, config: AddressingConfig) {
        let Some(interface) = self.interfaces.get_mut(id) else { return };
        let has_link = interface.hardware_address().is_some();
        let is_asked_about = |cidr: &Cidr| {
            let policy = if cidr.address().is_ipv4() { config.ipv4 } else { config.ipv6 };
            has_link && policy == ClaimPolicy::Probe
        };
        let all = interface.addressing.records.iter().map(|record| record.cidr);
        let waiting: Vec<Cidr> = all.filter(is_asked_about).collect();
        interface.addressing.config = config;
        for cidr in waiting {
            self.withdraw(id, cidr);
            let records = &mut self.interfaces[id].addressing.records;
            records.retain(|record| record.cidr != cidr);
        }
    }

    /// The first shard has this address.
    pub(crate) fn follow_assigned(
        &mut self,
        id: InterfaceId,
        cidr: Cidr,
        origin: AddressOrigin,
        is_deprecated: bool,
    ) {
        let addressing = &mut self.interfaces[id].addressing;
        if addressing.find(cidr.address()).is_none() {
            let mut record = Record::new(cidr, origin, link::Claim::held(), false);
            record.is_deprecated = is_deprecated;
            addressing.records.push(record);
        }
        self.assign(id, cidr);
    }

    /// From now on the address is not used; says whether it was. Its network's route goes with
    /// the last address on it.
    fn withdraw(&mut self, id: InterfaceId, cidr: Cidr) -> bool {
        let interface = &mut self.interfaces[id];
        let before = interface.addresses.len();
        interface.addresses.retain(|other| other.address() != cidr.address());
        if interface.addresses.len() == before {
            return false;
        }
        self.checked_addresses = None;
        self.remove_network_route(id, cidr);
        true
    }

    /// Everybody on this network is a neighbour.
    fn add_network_route(&mut self, id: InterfaceId, network: Cidr) {
        self.routes.insert(Route::new(network, None, id.number(), RouteOrigin::Link));
    }

    /// One reason is gone to take everybody on this network for a neighbour; an address on it is
    /// another, and what a router said.
    fn remove_network_route(&mut self, id: InterfaceId, network: Cidr) {
        let network = network.network();
        let interface = &self.interfaces[id];
        let has_reason = has_address_on(interface, network)
            || interface.addressing.learned_networks.contains(&network);
        if !has_reason {
            self.routes.remove_on(network, id.number(), Some(RouteOrigin::Link));
        }
    }
}

/// Looks at the addresses that an interface is to have from the start: each is one that
/// [`Shard::add_address`] would take.
pub(crate) fn check_fixed(addresses: &[Cidr]) -> Result<(), SocketError> {
    if addresses.iter().any(|cidr| !cidr.is_hosts()) {
        return Err(SocketError::NoHostAddress);
    }
    if addresses.len() > ADDRESSES_MAX {
        return Err(SocketError::TooManyAddresses);
    }
    let has_twin = |(at, cidr): (usize, &Cidr)| {
        addresses[..at].iter().any(|other| other.address() == cidr.address())
    };
    match addresses.iter().enumerate().any(has_twin) {
        true => Err(SocketError::AddressInUse),
        false => Ok(()),
    }
}

/// Whether an address says that everybody on this network is a neighbour.
fn has_address_on(interface: &Interface, network: Cidr) -> bool {
    let says_so = |cidr: &Cidr| {
        let origin = interface.addressing.find(cidr.address()).map(|record| record.origin);
        origin != Some(AddressOrigin::Router)
    };
    interface.addresses.iter().any(|cidr| cidr.network() == network && says_so(cidr))
}

impl Interface {
    /// Whether this is the solicited-node group of an address of ours, a tentative one included:
    /// what others ask about it is how a duplicate is found.
    pub(crate) fn is_solicited_node(&self, group: core::net::Ipv6Addr) -> bool {
        self.addressing.records.iter().any(|record| match record.cidr.address() {
            IpAddr::V6(address) => wire::ndp::solicited_node(address) == group,
            IpAddr::V4(_) => false,
        })
    }
}
