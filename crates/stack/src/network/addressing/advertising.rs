//! An interface that speaks as the router of its link.
//!
//! [`ip::router::RouterAdvertiser`] decides when; here its message leaves, with our hardware address. Nothing is
//! forwarded for that: who is told of a router here is told of a relay, which accepts all addresses
//! (`forwarding.rs`). Of several shards that are one host the first one speaks.

use super::claims::ALL_NODES;
use crate::error::SocketError;
use crate::network::NetworkLayer;
use crate::network::interface::Interface;
use crate::network::interfaces::InterfaceId;
use crate::network::multicast::Listener;
use crate::shard::Shard;
use checksum::Accumulator;
use core::net::{IpAddr, Ipv6Addr};
use counters::DropReason;
use ip::HeaderTemplate;
use ip::membership::Filter;
use ip::router::RouterAdvertiser;
use time::Instant;
use wire::ndp::{NDP_HOP_LIMIT, RouterAdvertisement};
use wire::{HardwareAddress, Icmpv6Repr, Ipv6Repr, NdpRepr, protocol};

/// The longest message: RFC 6980, 5 forbids fragments, and every link takes a packet of 1280 bytes (RFC 8200, 5).
const MESSAGE_BYTES_MAX: usize = 1_280 - Ipv6Repr::LEN;

/// The group of all routers of a link (RFC 4291, 2.7.1).
pub(super) const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

impl Shard {
    /// Advertises a router on the link of interface `id`, this host itself (RFC 4861, 6.2), from now on, or another
    /// message than so far: to all nodes, when one asks and every few minutes, from the link-local address and with
    /// the hardware address of the interface. Where nobody has a hardware address nothing is said. As with
    /// [`Shard::add_address`], only the first shard of a host does it.
    ///
    /// # Errors
    /// [`SocketError::MessageTooLong`] where it does not fit 1280 bytes with its header;
    /// [`SocketError::NoMemory`] where the interface is a member of 64 groups; [`SocketError::NoSuchInterface`].
    pub fn advertise_router(
        &mut self,
        now: Instant,
        id: InterfaceId,
        message: RouterAdvertisement,
    ) -> Result<(), SocketError> {
        let interface = self.network.interfaces.with_device(id)?;
        let Some(ours) = interface.hardware_address() else { return Ok(()) };
        let message = RouterAdvertisement { source_link: Some(ours), ..message };
        if NdpRepr::RouterAdvertisement(message.clone()).emitted_len() > MESSAGE_BYTES_MAX {
            return Err(SocketError::MessageTooLong);
        }
        // RFC 4861, 6.2.2: "a router MUST join the all-routers multicast address on an advertising interface".
        if !self.network.join_group(
            now,
            id,
            ALL_ROUTERS.into(),
            Listener::Router,
            Filter::AnySource,
        ) {
            return Err(SocketError::NoMemory);
        }
        if !self.network.sharing.is_first() {
            return Ok(());
        }
        let addressing = &mut self.network.interfaces[id].addressing;
        let jitter = &mut addressing.jitter;
        match &mut addressing.advertiser {
            Some(advertiser) => advertiser.on_change(now, message, jitter),
            None => {
                let advertiser = RouterAdvertiser::new(now, message, jitter);
                addressing.advertiser = Some(Box::new(advertiser));
            }
        }
        Ok(())
    }
}

impl NetworkLayer {
    /// A host asks for routers; what RFC 4861, 6.1.1 demands was checked.
    pub(crate) fn on_router_solicitation(
        &mut self,
        now: Instant,
        id: InterfaceId,
        source: Ipv6Addr,
        source_link: Option<HardwareAddress>,
    ) -> Result<(), DropReason> {
        let interface = &mut self.interfaces[id];
        let addressing = &mut interface.addressing;
        if addressing.advertiser.is_none() && self.sharing.is_first() {
            return Err(DropReason::UnrelatedIcmp);
        }
        if let Some(link) = source_link {
            interface.neighbours.on_link_address(now, source.into(), link)?;
        }
        // Every shard of the host has learned; one answers.
        if let Some(advertiser) = &mut addressing.advertiser {
            advertiser.on_solicitation(now, &mut addressing.jitter);
        }
        Ok(())
    }

    pub(super) fn on_advertiser_timeout(&mut self, now: Instant, id: InterfaceId) {
        let interface = &mut self.interfaces[id];
        let addressing = &mut interface.addressing;
        let Some(advertiser) = &mut addressing.advertiser else { return };
        let Some(message) = advertiser.poll_advertisement(now, &mut addressing.jitter) else {
            return;
        };
        // RFC 4861, 4.2: the source "MUST be the link-local address". Where there is none yet, hosts ask again.
        let Some(source) = interface.link_local_address() else { return };
        // As in solicitations (RFC 4429, 3.2): it may turn out to be another's.
        let is_unsettled = interface.addressing.is_unsettled(source.into());
        let source_link = interface.hardware_address().filter(|_| !is_unsettled);
        let message = RouterAdvertisement { source_link, ..message };
        let bytes = complete(source, NdpRepr::RouterAdvertisement(message));
        let (source, to) = (source.into(), ALL_NODES.into());
        let template = HeaderTemplate::new(source, to, protocol::ICMPV6, NDP_HOP_LIMIT, 0);
        self.send_complete(id, template, &bytes);
    }
}

/// A message to all nodes, with its checksum. It may be longer than a header in a batch.
fn complete(source: Ipv6Addr, message: NdpRepr) -> Vec<u8> {
    let mut bytes = vec![0; message.emitted_len()];
    message.emit(&mut bytes);
    let mut sum = Accumulator::default();
    sum.add_u16(ip::pseudo_header_sum(source.into(), ALL_NODES.into(), protocol::ICMPV6));
    sum.add_u16(bytes.len() as u16);
    sum.add(&bytes);
    let at = usize::from(Icmpv6Repr::CHECKSUM_OFFSET);
    bytes[at..at + 2].copy_from_slice(&sum.finish().to_be_bytes());
    bytes
}

impl Interface {
    /// Its link-local address, where that is used, settled or not.
    pub(super) fn link_local_address(&self) -> Option<Ipv6Addr> {
        self.addresses.iter().find_map(|cidr| match cidr.address() {
            IpAddr::V6(address) => address.is_unicast_link_local().then_some(address),
            IpAddr::V4(_) => None,
        })
    }
}
