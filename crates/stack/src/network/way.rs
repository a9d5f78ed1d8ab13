//! How packets that are no connection's leave: by which interface, from which address, in which length.

use crate::error::{BadArgument, SocketError};
use crate::network::NetworkLayer;
use crate::network::interface::{Interface, stays_in_host};
use crate::network::interfaces::InterfaceId;
use crate::network::multicast::MulticastOptions;
use crate::network::paths::mtu_to;
use crate::sockets::marks::PacketMarks;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::num::NonZeroU8;
use ip::{HeaderTemplate, Trust};

/// How a socket's datagrams treat the MTU of their path (Linux's `IP_MTU_DISCOVER`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MtuDiscovery {
    /// What fits goes unfragmented and routers must not fragment it, unless one reports that its link takes less than
    /// is believed of any path; what is longer than the path takes is sent in fragments.
    #[default]
    Want,
    /// What is longer than the interface takes is sent in fragments, and routers may fragment
    /// everything: reports of a narrow path change nothing.
    Dont,
    /// Nothing is fragmented; what is longer than the path takes is refused.
    Do,
    /// As `Do`, but against the interface's MTU alone: for those who find out themselves what a
    /// path takes (RFC 8899).
    Probe,
}

impl MtuDiscovery {
    pub(crate) fn allows_fragments(self) -> bool {
        matches!(self, Self::Want | Self::Dont)
    }
}

/// Whether a datagram to `remote` is for several hosts of a link that no network names, so that no route needs to
/// lead there.
pub(crate) fn is_for_many(remote: IpAddr) -> bool {
    remote.is_multicast() || remote == IpAddr::V4(Ipv4Addr::BROADCAST)
}

/// How a datagram leaves.
pub(crate) struct Way {
    pub(crate) interface_id: InterfaceId,
    pub(crate) next_hop: IpAddr,
    pub(crate) source: IpAddr,
    pub(crate) hop_limit: u8,
}

impl Way {
    /// As a socket asks for it: only to neighbours, or with a hop limit of its own to a single peer.
    pub(crate) fn asked(
        self,
        to: SocketAddr,
        marks: PacketMarks,
        dont_route: bool,
    ) -> Result<Self, SocketError> {
        if dont_route && self.next_hop != to.ip() {
            return Err(SocketError::NoRoute(to.ip()));
        }
        let asked = marks.hop_limit.filter(|_| !to.ip().is_multicast());
        Ok(Self { hop_limit: asked.map_or(self.hop_limit, NonZeroU8::get), ..self })
    }
}

impl NetworkLayer {
    /// The longest packet that takes a datagram by interface `id`.
    pub(crate) fn datagram_mtu(
        &self,
        template: &HeaderTemplate,
        id: InterfaceId,
        discovery: MtuDiscovery,
    ) -> usize {
        let remote = template.destination();
        match discovery {
            MtuDiscovery::Want | MtuDiscovery::Do if !remote.is_multicast() => {
                let interface = &self.interfaces[id];
                mtu_to(interface, &self.routes, &self.path_mtus, remote, Trust::Unverified)
            }
            _ => self.interfaces[id].mtu_bytes(remote.is_ipv4()),
        }
    }

    /// Whether `len` bytes behind the network header may leave by interface `id`, and whether routers
    /// may fragment them, which the header says.
    ///
    /// # Errors
    /// [`SocketError::MessageTooLong`].
    pub(crate) fn fit_datagram(
        &self,
        template: &mut HeaderTemplate,
        id: InterfaceId,
        len: usize,
        discovery: MtuDiscovery,
    ) -> Result<(), SocketError> {
        let remote = template.destination();
        let counted = if remote.is_ipv4() { template.header_len() + len } else { len };
        let mtu_bytes = self.datagram_mtu(template, id, discovery);
        let fits = template.header_len() + len <= mtu_bytes;
        if counted > usize::from(u16::MAX) || (!fits && !discovery.allows_fragments()) {
            return Err(SocketError::MessageTooLong);
        }
        let may_fragment = match discovery {
            MtuDiscovery::Want => {
                !fits || self.path_mtus.needs_fragments(remote, Trust::Unverified)
            }
            MtuDiscovery::Dont => true,
            MtuDiscovery::Do | MtuDiscovery::Probe => false,
        };
        template.set_dont_fragment(!may_fragment);
        Ok(())
    }

    /// There is an interface whose device completes no checksums.
    pub(crate) fn datagrams_need_sums(&self) -> bool {
        let completes = |interface: &Interface, is_ipv4| {
            interface.capabilities.completes_checksum(is_ipv4, wire::protocol::UDP)
        };
        self.interfaces.iter().any(|it| !completes(it, true) || !completes(it, false))
    }

    /// How a datagram from a socket bound to `local` leaves for `remote`, by the interface that a scope asks for. To
    /// everybody on a link (255.255.255.255) it leaves as to a group, by one interface.
    pub(crate) fn way(
        &self,
        local: IpAddr,
        remote: IpAddr,
        asked: Option<InterfaceId>,
        multicast: MulticastOptions,
    ) -> Result<Way, SocketError> {
        let to_many = is_for_many(remote);
        let has_source = !local.is_unspecified() && !local.is_multicast();
        // It may have been removed since the socket was bound to it.
        if has_source && !self.accepts(local) {
            return Err(SocketError::AddressNotAvailable);
        }
        let (interface_id, next_hop) = match (to_many, has_source) {
            (true, true) => {
                let asked = asked.or(multicast.interface);
                (self.group_interface_from(local, remote, asked)?, remote)
            }
            (true, false) => {
                (self.multicast_interface(remote, asked.or(multicast.interface))?, remote)
            }
            (false, true) => self.route_from(local, remote, asked)?,
            (false, false) => self.route_by(remote, asked)?,
        };
        let interface = &self.interfaces[interface_id];
        let source = if has_source { local } else { interface.source_for(remote, next_hop)? };
        if source.is_loopback() && !interface.is_loopback {
            return Err(BadArgument::LoopbackLeaves { remote }.into());
        }
        let hop_limit = match remote {
            IpAddr::V6(group) if stays_in_host(group) => 0,
            _ if remote.is_multicast() => multicast.hop_limit,
            _ => interface.hop_limit(remote.is_ipv4()),
        };
        Ok(Way { interface_id, next_hop, source, hop_limit })
    }
}
