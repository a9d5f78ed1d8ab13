//! The link-local address of an interface.
//!
//! RFC 4291, 2.1: "All interfaces are required to have at least one Link-Local unicast address." Routers take reports
//! of groups from no other (RFC 3810, 5.2.13), and its network, on which every neighbour is, leads to peers that
//! speak from theirs. It is formed (RFC 4862, 5.3; RFC 7217) where an interface with stations has an IPv6 address of the
//! program's or listens to routers, which may give it one. Where the program fixed one there is no need.

use super::AddressOrigin;
use crate::network::NetworkLayer;
use crate::network::interfaces::InterfaceId;
use core::net::{IpAddr, Ipv6Addr};
use ip::Cidr;
use ip::router::{IdentifierKey, LINK_LOCAL_PREFIX, stable_address};
use time::{Instant, Jitter};
use wire::HardwareAddress;

/// Length of its prefix, as of all that have an interface identifier of 64 bits (RFC 4291, 2.5.6).
const PREFIX_LEN: u8 = 64;

/// Identifiers that are tried, all but the first after a duplicate (RFC 7217, 6: IDGEN_RETRIES is 3).
const TRIES_MAX: usize = 1 + 3;

/// What it is formed from.
#[derive(Debug)]
pub(super) struct LinkLocal {
    key: IdentifierKey,
    /// Which of its identifiers, by number, others on this link have. They need not be the first: an address that was
    /// won on another link is held on to until somebody here turns out to have it.
    is_taken: [bool; TRIES_MAX],
}

impl LinkLocal {
    /// With a key that gives the same identifiers at each start, or one that is drawn now.
    pub(super) fn new(key: Option<IdentifierKey>, jitter: &mut Jitter) -> Self {
        let halves = [jitter.next_u64(), jitter.next_u64()];
        let drawn = core::array::from_fn(|at| halves[at / 8].to_le_bytes()[at % 8]);
        let key = key.unwrap_or(IdentifierKey(drawn));
        Self { key, is_taken: [false; TRIES_MAX] }
    }

    /// The addresses of a station that has these identifiers, in the order in which they are tried.
    fn addresses(&self, station: HardwareAddress) -> [Ipv6Addr; TRIES_MAX] {
        let formed = |at| stable_address(LINK_LOCAL_PREFIX, station, at as u8, &self.key);
        core::array::from_fn(formed)
    }

    /// The first of them that nobody else on the link is known to have.
    fn free_address(&self, station: HardwareAddress) -> Option<Ipv6Addr> {
        let at = self.is_taken.iter().position(|is_taken| !is_taken)?;
        Some(self.addresses(station)[at])
    }
}

impl NetworkLayer {
    /// Claims a link-local address for interface `id`, where it needs one and has none.
    pub(super) fn form_link_local(&mut self, now: Instant, id: InterfaceId) {
        let interface = &self.interfaces[id];
        let addressing = &interface.addressing;
        let is_of_link = |address| matches!(address, IpAddr::V6(it) if it.is_unicast_link_local());
        let mut own = addressing.records.iter().map(|record| record.cidr.address());
        let speaks_ipv6 = addressing.config.routers.is_some() || own.clone().any(|it| it.is_ipv6());
        if !speaks_ipv6 || own.any(is_of_link) {
            return;
        }
        let (station, parts) = (interface.hardware_address(), &addressing.link_local);
        let (Some(station), Some(parts)) = (station, parts) else { return };
        let Some(address) = parts.free_address(station) else { return };
        if let Some(cidr) = Cidr::new(address.into(), PREFIX_LEN) {
            // There may be as many addresses as there can be.
            let _ = self.claim_address(now, id, cidr, AddressOrigin::LinkLocal);
        }
    }

    /// The interface may be on another link, where nobody need have what was found taken so far.
    pub(super) fn form_link_local_anew(&mut self, now: Instant, id: InterfaceId) {
        if let Some(parts) = &mut self.interfaces[id].addressing.link_local {
            parts.is_taken = [false; TRIES_MAX];
        }
        self.form_link_local(now, id);
    }

    /// It is somebody else's: another one is tried, a few times (RFC 7217, 6).
    pub(super) fn on_link_local_duplicate(&mut self, now: Instant, id: InterfaceId, lost: IpAddr) {
        let interface = &mut self.interfaces[id];
        let (station, parts) = (interface.hardware_address(), &mut interface.addressing.link_local);
        let (Some(station), Some(parts)) = (station, parts) else { return };
        // One of another hardware address, which the interface had before, is none of these.
        if let Some(at) = parts.addresses(station).iter().position(|it| IpAddr::V6(*it) == lost) {
            parts.is_taken[at] = true;
        }
        self.form_link_local(now, id);
    }
}
