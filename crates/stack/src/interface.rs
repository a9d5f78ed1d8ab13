//! One interface: a device queue's capabilities, its addresses, its neighbours.

use crate::error::SocketError;
use crate::outbox::{NextHop, Outbox, Outgoing};
use crate::schedule::Ready;
use batch::Limits;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use device::{Capabilities, HardwareAddress, Medium, Room, TransmitMode};
use ip::Cidr;
use link::{Lookup, NeighbourCache, NeighbourConfig};
use std::collections::VecDeque;
use time::Instant;

/// Names an interface of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InterfaceId(pub(crate) u32);

/// What an interface is made from.
#[derive(Clone, Debug)]
pub struct InterfaceConfig {
    /// What its device queue can do.
    pub capabilities: Capabilities,
    /// How batches reach the device.
    pub mode: TransmitMode,
    /// Our addresses with the length of their networks.
    pub addresses: Vec<Cidr>,
    /// Routers to everywhere else, at most one of each family.
    pub gateways: Vec<IpAddr>,
}

/// Packets of one batch in `lso` mode: four super-frames of 64 KiB at an MSS of 1448.
const LSO_PACKETS_MAX: usize = 180;

/// Small packets (datagrams, ICMP, resets) that wait for the device.
const OUTBOX_PACKETS_MAX: usize = 256;

#[derive(Debug)]
pub(crate) struct Interface {
    pub(crate) capabilities: Capabilities,
    pub(crate) mode: TransmitMode,
    pub(crate) addresses: Vec<Cidr>,
    pub(crate) neighbours: NeighbourCache<Outgoing>,
    pub(crate) outbox: Outbox,
    /// Small packets that are in the batch the device is looking at.
    pub(crate) offered: VecDeque<Outgoing>,
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

impl Interface {
    pub(crate) fn new(config: InterfaceConfig, identification: u16) -> Self {
        Self {
            capabilities: config.capabilities,
            mode: config.mode,
            addresses: config.addresses,
            neighbours: NeighbourCache::new(NeighbourConfig::default()),
            outbox: Outbox::new(OUTBOX_PACKETS_MAX),
            offered: VecDeque::new(),
            ready: Ready::default(),
            waiting: Vec::new(),
            blocked: Vec::new(),
            identification,
        }
    }

    /// How large a batch may grow: what the mode says, the device takes, and has room for.
    pub(crate) fn limits(&self, room: Room) -> Limits {
        let packets = match self.mode {
            TransmitMode::Single => 1,
            TransmitMode::Multidata => self.capabilities.batch_packets_max,
            TransmitMode::Lso => LSO_PACKETS_MAX,
        };
        let packets = packets.min(room.packets);
        Limits { packets, payload_bytes: room.bytes, ..Limits::default() }
    }

    pub(crate) fn hardware_address(&self) -> Option<HardwareAddress> {
        match self.capabilities.medium {
            Medium::Ethernet(address) => Some(address),
            Medium::Ip => None,
        }
    }

    pub(crate) fn is_ours(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|cidr| cidr.address() == address)
    }

    /// Whether `address` is on a network of ours.
    pub(crate) fn is_local(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|cidr| cidr.contains(address))
    }

    /// Whether `address` stands for every host of one of our networks.
    pub(crate) fn is_broadcast(&self, address: IpAddr) -> bool {
        let IpAddr::V4(address) = address else { return false };
        address == Ipv4Addr::BROADCAST
            || self.addresses.iter().any(|cidr| cidr.broadcast() == Some(address))
    }

    /// Whether a packet to `address` is for us: our own, broadcast, or a group every host is in.
    pub(crate) fn accepts(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(group) if group.is_multicast() => group == Ipv4Addr::new(224, 0, 0, 1),
            IpAddr::V6(group) if group.is_multicast() => {
                group == Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1)
                    || self.addresses.iter().any(|cidr| match cidr.address() {
                        IpAddr::V6(ours) => wire::ndp::solicited_node(ours) == group,
                        IpAddr::V4(_) => false,
                    })
            }
            _ => self.is_ours(address) || self.is_broadcast(address),
        }
    }

    /// The address to send from to `destination`: of its family, on its network where there is one,
    /// and else one that is good beyond the link (RFC 6724, 5, rules 2 and 8).
    pub(crate) fn source_for(&self, destination: IpAddr) -> Result<IpAddr, SocketError> {
        let family = || {
            let same = |cidr: &&Cidr| cidr.address().is_ipv4() == destination.is_ipv4();
            self.addresses.iter().filter(same)
        };
        let near = family().find(|cidr| cidr.contains(destination));
        let goes_far = |cidr: &&Cidr| match cidr.address() {
            IpAddr::V4(address) => !address.is_link_local(),
            IpAddr::V6(address) => !address.is_unicast_link_local(),
        };
        near.or_else(|| family().find(goes_far))
            .or_else(|| family().next())
            .map(|cidr| cidr.address())
            .ok_or(SocketError::AddressNotAvailable)
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
