//! One interface: a device queue's capabilities, its addresses, its neighbours.

use crate::error::SocketError;
use crate::network::addressing::{AddressState, Addressing};
use crate::network::interfaces::InterfaceId;
use crate::network::multicast::Groups;
use crate::network::negotiation::Agreement;
use crate::network::offered::Offered;
use crate::outbox::{Network, NextHop, Outbox, Outgoing};
use crate::schedule::Ready;
use crate::sockets::marks::PacketMarks;
use batch::Limits;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use device::{Capabilities, HardwareAddress, Medium, Room, TransmitMode};
use ip::{Cidr, HeaderTemplate, SourceCandidate};
use link::{Lookup, NeighbourCache, NeighbourConfig};
use time::{Instant, Jitter};
use wire::{Ipv4Repr, Ipv6Repr};

/// What an interface is made from.
#[derive(Clone, Debug)]
pub struct InterfaceConfig {
    /// What its device queue can do.
    pub capabilities: Capabilities,
    /// How batches reach the device; `None` follows the device ([`Capabilities::mode_for`]).
    pub mode: Option<TransmitMode>,
    /// Our addresses with the length of their networks.
    pub addresses: Vec<Cidr>,
    /// Routers to everywhere else, at most one of each family.
    pub gateways: Vec<IpAddr>,
}

/// Small packets (datagrams, ICMP, raw packets) that wait for the device, where nobody says otherwise.
const OUTBOX_PACKETS_MAX: usize = 256;

#[derive(Debug)]
pub(crate) struct Interface {
    pub(crate) id: InterfaceId,
    pub(crate) capabilities: Capabilities,
    /// How batches leave, and why not otherwise.
    pub(crate) agreement: Agreement,
    /// It carries packets to our own addresses and has no device.
    pub(crate) is_loopback: bool,
    /// It was removed; its place is kept so that the ids of others stay.
    pub(crate) is_removed: bool,
    /// Its device failed and was not replaced since: nothing more can be sent by it.
    pub(crate) has_failed: bool,
    /// Its device failed, or takes nothing, and there may be other ways (`multirouting.rs`).
    pub(crate) is_out: bool,
    /// Since when its device takes nothing.
    pub(crate) full_since: Option<Instant>,
    /// The longest packet sent, where less than the device takes.
    pub(crate) mtu_max: Option<usize>,
    /// The longest segment of connections by it, where less than its MTU allows.
    pub(crate) mss_max: Option<u16>,
    /// Addresses that are used; `addressing` knows their life, and those that are not used yet.
    pub(crate) addresses: Vec<Cidr>,
    pub(crate) addressing: Addressing,
    /// Prefixes of which every address is taken as a destination, ours or not (`forwarding.rs`).
    pub(crate) accepted: Vec<Cidr>,
    /// What routers and DHCP servers say of the link, see [`Interface::hop_limit`] and [`Interface::mtu_bytes`].
    pub(crate) ipv6_hop_limit: u8,
    pub(crate) ipv4_mtu_bytes: Option<usize>,
    pub(crate) ipv6_mtu_bytes: Option<usize>,
    pub(crate) neighbours: NeighbourCache<Outgoing>,
    /// Multicast groups that are listened to.
    pub(crate) groups: Groups,
    pub(crate) outbox: Outbox,
    /// Small packets that are in the batch the device is looking at.
    pub(crate) offered: Offered,
    /// Connections with something to send.
    pub(crate) ready: Ready,
    /// Connections that wait for a neighbour's hardware address.
    pub(crate) waiting: Vec<(IpAddr, u32)>,
    /// UDP sockets that found the outbox full, each once.
    pub(crate) blocked: Vec<u32>,
    /// The next IPv4 identification (RFC 6864: any value will do for datagrams that are atomic).
    pub(crate) identification: u16,
}

/// Where the frames of one run go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    /// To this station.
    Station(HardwareAddress),
    /// The medium has no stations.
    NoLink,
    /// The neighbour is being asked.
    Pending,
    /// The neighbour does not answer.
    Unreachable,
}

/// RFC 4861, 6.3.2: the time for which a neighbour is reachable is random, between half and one and
/// a half times its base, so that hosts do not fall into step.
fn neighbour_config(seed: u64) -> NeighbourConfig {
    let base = NeighbourConfig::default();
    let reachable = Jitter::new(!seed).between(base.reachable / 2, base.reachable * 3 / 2);
    NeighbourConfig { reachable, ..base }
}

impl Interface {
    pub(crate) fn new(config: InterfaceConfig, id: InterfaceId, seed: u64) -> Self {
        Self {
            id,
            addressing: Addressing::new(&config.addresses, seed),
            capabilities: config.capabilities,
            agreement: Agreement::new(config.mode),
            is_loopback: false,
            is_removed: false,
            has_failed: false,
            is_out: false,
            full_since: None,
            mtu_max: None,
            mss_max: None,
            addresses: config.addresses,
            accepted: Vec::new(),
            ipv6_hop_limit: crate::HOP_LIMIT_DEFAULT,
            ipv4_mtu_bytes: None,
            ipv6_mtu_bytes: None,
            neighbours: NeighbourCache::new(neighbour_config(seed)),
            groups: Groups::default(),
            outbox: Outbox::new(OUTBOX_PACKETS_MAX),
            offered: Offered::default(),
            ready: Ready::default(),
            waiting: Vec::new(),
            blocked: Vec::new(),
            identification: id.number() as u16,
        }
    }

    /// Whether it has nothing to send, nothing to ask and nothing to pass on.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.ready.len() == 0 && self.outbox.is_empty() && self.neighbours.is_quiet()
    }

    /// How large a batch may grow: what the mode says, the device takes, and has room for.
    pub(crate) fn limits(&self, room: Room) -> Limits {
        let Capabilities {
            batch_packets_max,
            batch_blocks_max,
            batch_bytes_max,
            block_bytes_max,
            mtu_bytes,
            ..
        } = self.capabilities;
        let packets_max = self.agreement.mode.batch_packets_max(batch_packets_max);
        Limits {
            packets: packets_max.min(room.packets),
            // A packet fits whatever a device says of its batches and blocks.
            blocks: (Limits::default().blocks.min(batch_blocks_max))
                .max(mtu_bytes.div_ceil(block_bytes_max.max(1))),
            payload_bytes: room.bytes.min(batch_bytes_max.max(mtu_bytes)),
        }
    }

    /// The longest TCP header and payload of what the device takes as one super-frame in the mode in
    /// force; zero where it takes none.
    pub(crate) fn super_frame_len(&self, is_ipv4: bool) -> u16 {
        let limits = self.capabilities.segmentation;
        let Some(limits) = limits.filter(|_| self.agreement.mode == TransmitMode::Lso) else {
            return 0;
        };
        let (splits, header_len) = match is_ipv4 {
            true => (limits.tcp_ipv4, Ipv4Repr::LEN),
            false => (limits.tcp_ipv6, Ipv6Repr::LEN),
        };
        let len = limits.len_bytes_max.min(usize::from(u16::MAX)).saturating_sub(header_len);
        if splits { len as u16 } else { 0 }
    }

    pub(crate) fn hardware_address(&self) -> Option<HardwareAddress> {
        match self.capabilities.medium {
            Medium::Ethernet(address) => Some(address),
            Medium::Ip => None,
        }
    }

    pub(crate) fn is_ours(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|cidr| cidr.address() == address)
            || (self.is_loopback && address.is_loopback())
    }

    /// Whether a packet may have this source: one of ours or accepted, or none, as while we ask for one.
    pub(crate) fn may_send_from(&self, source: IpAddr) -> bool {
        source.is_unspecified() || self.is_loopback || self.accepts(source)
    }

    /// Whether `address` is on a network of ours.
    pub(crate) fn is_local(&self, address: IpAddr) -> bool {
        self.is_loopback || self.addresses.iter().any(|cidr| cidr.contains(address))
    }

    /// Whether `address` stands for every host of one of our networks.
    pub(crate) fn is_broadcast(&self, address: IpAddr) -> bool {
        let IpAddr::V4(address) = address else { return false };
        address == Ipv4Addr::BROADCAST
            || self.addresses.iter().any(|cidr| cidr.broadcast() == Some(address))
    }

    /// Whether a packet to `address` is for us and for others: broadcast, a group every host is in,
    /// or one that somebody here joined.
    pub(crate) fn accepts_for_all(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(group) if group.is_multicast() => {
                group == Ipv4Addr::new(224, 0, 0, 1) || self.groups.is_joined(address)
            }
            IpAddr::V6(group) if stays_in_host(group) => false,
            IpAddr::V6(group) if group.is_multicast() => {
                group == Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1)
                    || self.is_solicited_node(group)
                    || self.groups.is_joined(address)
            }
            _ => self.is_broadcast(address),
        }
    }

    /// The address to send from to `destination` by way of `next_hop` (RFC 6724, 5). An optimistic one is
    /// treated as deprecated (RFC 4429, 3.1).
    pub(crate) fn source_for(
        &self,
        destination: IpAddr,
        next_hop: IpAddr,
    ) -> Result<IpAddr, SocketError> {
        if self.is_loopback && !destination.is_loopback() {
            // To ourselves from ourselves.
            return Ok(destination);
        }
        let candidates = self.addresses.iter().map(|cidr| {
            let record = self.addressing.find(cidr.address());
            let is_preferred =
                record.is_none_or(|record| record.state() == AddressState::Preferred);
            SourceCandidate { cidr: *cidr, is_deprecated: !is_preferred }
        });
        let source = ip::select_source(candidates, destination, next_hop);
        source.ok_or(SocketError::NoSourceFor(destination))
    }

    /// Longest packet of a family in bytes: what the device takes, or what routers and
    /// DHCP servers say the link does (RFC 4861, 6.3.4: no more than the device's).
    pub(crate) fn mtu_bytes(&self, is_ipv4: bool) -> usize {
        let device = self
            .mtu_max
            .map_or(self.capabilities.mtu_bytes, |max| max.min(self.capabilities.mtu_bytes));
        let link = if is_ipv4 { self.ipv4_mtu_bytes } else { self.ipv6_mtu_bytes };
        link.map_or(device, |link| link.min(device))
    }

    /// Hop limit of what is sent unless somebody asks for another.
    pub(crate) fn hop_limit(&self, is_ipv4: bool) -> u8 {
        if is_ipv4 { crate::HOP_LIMIT_DEFAULT } else { self.ipv6_hop_limit }
    }

    /// The header of segments and messages that leave by it, with the marks of who sends them.
    pub(crate) fn header(
        &self,
        source: IpAddr,
        destination: IpAddr,
        protocol: u8,
        marks: PacketMarks,
    ) -> Network {
        let usual = self.hop_limit(destination.is_ipv4());
        let mut template = HeaderTemplate::new(source, destination, protocol, usual, 0);
        marks.write(&mut template, usual);
        Network::Ip(template)
    }

    /// The station for a next hop: one look-up per run.
    pub(crate) fn resolve(&mut self, now: Instant, next_hop: NextHop) -> Destination {
        if self.hardware_address().is_none() {
            return Destination::NoLink;
        }
        let address = match next_hop {
            NextHop::Station(station) => return Destination::Station(station),
            NextHop::Neighbour(address) => address,
        };
        if self.is_broadcast(address) {
            return Destination::Station(HardwareAddress::BROADCAST);
        }
        if let Some(group) = HardwareAddress::of_ip_multicast(address) {
            return Destination::Station(group);
        }
        match self.neighbours.lookup(now, address) {
            Lookup::Resolved(station) => Destination::Station(station),
            Lookup::Pending => Destination::Pending,
            Lookup::Unreachable => Destination::Unreachable,
        }
    }
}

/// Whether nothing to this group crosses a link: its scope is the interface, or the reserved one below that (RFC 4291,
/// 2.7, and its erratum 3480).
pub(crate) fn stays_in_host(group: Ipv6Addr) -> bool {
    group.is_multicast() && group.octets()[1] & 0xf < 2
}
