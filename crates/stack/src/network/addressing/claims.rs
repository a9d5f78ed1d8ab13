//! What is said on the link for our addresses, and what is heard against them.

use super::{AddressEvent, AddressOrigin, ClaimPolicy, Record};
use crate::network::NetworkLayer;
use crate::network::interface::Interface;
use crate::network::interfaces::InterfaceId;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use ip::Cidr;
use link::{Claim, ClaimConfig, ClaimStep, Dispute};
use time::{Duration, Instant};
use wire::{ArpOperation, ArpRepr, HardwareAddress, NdpRepr};

/// The group of all nodes of a link (RFC 4291, 2.7.1).
pub(super) const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// A leased address is checked (RFC 2131, 4.4.1 says SHOULD, and not how) in less than a second: its
/// server keeps it from others already, so this finds machines that were given it by hand.
const LEASE_CHECK: ClaimConfig = ClaimConfig {
    first_delay_max: Duration::ZERO,
    probes: 2,
    probe_interval_min: Duration::from_millis(200),
    probe_interval_max: Duration::from_millis(300),
    settle: Duration::from_millis(500),
    ..ClaimConfig::IPV4
};

/// The record of an address whose claim begins now, by the interface's policy.
pub(super) fn begin(
    interface: &mut Interface,
    now: Instant,
    cidr: Cidr,
    origin: AddressOrigin,
) -> Record {
    let has_link = interface.hardware_address().is_some();
    let addressing = &mut interface.addressing;
    let is_ipv4 = cidr.address().is_ipv4();
    let policy = if is_ipv4 { addressing.config.ipv4 } else { addressing.config.ipv6 };
    let numbers = match is_ipv4 {
        true => ClaimConfig::IPV4,
        false => {
            ClaimConfig { probes: addressing.config.duplicate_solicitations, ..ClaimConfig::IPV6 }
        }
    };
    let (numbers, is_optimistic) = match policy {
        _ if origin == AddressOrigin::Dhcp && has_link => (LEASE_CHECK, false),
        // RFC 5227, 1.3 and RFC 4862, 5.4: a link without stations has no duplicates.
        _ if !has_link => return Record::new(cidr, origin, Claim::held(), false),
        ClaimPolicy::Trust => return Record::new(cidr, origin, Claim::held(), false),
        ClaimPolicy::Probe => (numbers, false),
        // RFC 4429, 3.3: the address is configured at once, and asked about without a delay.
        ClaimPolicy::Optimistic if !is_ipv4 => {
            (ClaimConfig { first_delay_max: Duration::ZERO, ..numbers }, true)
        }
        ClaimPolicy::Optimistic | ClaimPolicy::Announce => {
            (ClaimConfig { probes: 0, ..numbers }, false)
        }
    };
    let claim = Claim::new(now, numbers, &mut addressing.jitter);
    Record::new(cidr, origin, claim, is_optimistic)
}

impl NetworkLayer {
    /// Sends the probes and announcements that are due, and takes the addresses that nobody
    /// objected to.
    pub(crate) fn on_claims_timeout(&mut self, now: Instant, id: InterfaceId) {
        // Every step moves its claim on, and a claim has a bounded number of them.
        while let Some((cidr, replaces, step)) = self.next_step(now, id) {
            match (step, cidr.address()) {
                (ClaimStep::Won, _) => self.on_won(now, id, cidr),
                (ClaimStep::Probe, IpAddr::V4(address)) => {
                    self.send_arp_about(id, Ipv4Addr::UNSPECIFIED, address);
                }
                (ClaimStep::Announce, IpAddr::V4(address)) => {
                    self.send_arp_about(id, address, address);
                }
                (ClaimStep::Probe, IpAddr::V6(target)) => {
                    // RFC 4862, 5.4.2: from the unspecified address to the solicited-node group;
                    // RFC 4861, 4.3: then without the sender's hardware address.
                    let message = NdpRepr::NeighbourSolicitation { target, source_link: None };
                    let group = wire::ndp::solicited_node(target);
                    self.send_ndp(id, Ipv6Addr::UNSPECIFIED.into(), group.into(), message, None);
                }
                (ClaimStep::Announce, IpAddr::V6(target)) => {
                    self.advertise(id, target, replaces);
                }
            }
        }
    }

    fn on_won(&mut self, now: Instant, id: InterfaceId, cidr: Cidr) {
        self.assign(id, cidr);
        if let IpAddr::V6(own) = cidr.address()
            && own.is_unicast_link_local()
        {
            // RFC 3590, 4: what was reported from no address may have been heard by nobody.
            let interface = &mut self.interfaces[id];
            interface.groups.on_link_local(now, &mut interface.addressing.jitter);
        }
        let record = self.interfaces[id].addressing.find(cidr.address());
        if record.is_some_and(|record| record.origin == AddressOrigin::Dhcp) {
            self.on_lease_checked(now, id);
        }
    }

    /// Another station was heard to use, or to ask for, an address of ours.
    pub(crate) fn on_dispute(
        &mut self,
        now: Instant,
        id: InterfaceId,
        address: IpAddr,
        station: HardwareAddress,
    ) {
        if !self.sharing.is_first() {
            return;
        }
        let addressing = &mut self.interfaces[id].addressing;
        let Some(record) = addressing.find_mut(address) else { return };
        // To give a settled address up is RFC 5227's way, for IPv4. RFC 4862, 5.4.4 leaves it open, and who
        // forges two advertisements should not have it.
        let keeps = record.origin == AddressOrigin::Fixed || address.is_ipv6();
        let (cidr, origin, replaces) = (record.cidr, record.origin, record.replaces);
        let dispute = record.claim.on_dispute(now, keeps);
        self.counters.address_disputes += 1;
        match dispute {
            Dispute::Silence => return,
            Dispute::Lost => {
                // RFC 4862, 5.4.5: the address cannot be assigned. The report comes first, so that
                // who reads of the removal knows why.
                self.address_events.push(AddressEvent::Duplicate(id, address, station));
                self.drop_address(now, id, cidr);
                return match origin {
                    AddressOrigin::Dhcp => self.on_lease_conflict(now, id),
                    AddressOrigin::LinkLocal => self.on_link_local_duplicate(now, id, address),
                    _ => self.on_formed_duplicate(now, id, address),
                };
            }
            Dispute::Defend => match address {
                IpAddr::V4(address) => self.send_arp_about(id, address, address),
                IpAddr::V6(address) => self.advertise(id, address, replaces),
            },
        }
        self.address_events.push(AddressEvent::Duplicate(id, address, station));
    }

    fn next_step(&mut self, now: Instant, id: InterfaceId) -> Option<(Cidr, bool, ClaimStep)> {
        let addressing = &mut self.interfaces[id].addressing;
        let jitter = &mut addressing.jitter;
        addressing.records.iter_mut().find_map(|record| {
            let step = record.claim.poll_step(now, jitter)?;
            Some((record.cidr, record.replaces, step))
        })
    }

    /// An ARP probe (RFC 5227, 1.1: the sender's address is zero) or an announcement.
    fn send_arp_about(&mut self, id: InterfaceId, sender: Ipv4Addr, target: Ipv4Addr) {
        let Some(ours) = self.interfaces[id].hardware_address() else { return };
        let message = ArpRepr {
            operation: ArpOperation::Request,
            sender_hardware: ours,
            sender_protocol: sender,
            target_hardware: HardwareAddress::ZERO,
            target_protocol: target,
        };
        self.counters.address_messages += 1;
        self.send_arp(id, message, HardwareAddress::BROADCAST);
    }

    /// Tells all nodes of an address (RFC 4861, 7.2.6).
    fn advertise(&mut self, id: InterfaceId, target: Ipv6Addr, replaces: bool) {
        let Some(ours) = self.interfaces[id].hardware_address() else { return };
        let message = NdpRepr::NeighbourAdvertisement {
            router: self.interfaces[id].addressing.advertiser.is_some(),
            solicited: false,
            replaces,
            target,
            target_link: Some(ours),
        };
        self.counters.address_messages += 1;
        self.send_ndp(id, target.into(), ALL_NODES.into(), message, None);
    }

    /// RFC 5227, 2.1.1 and 2.4: whether an ARP message is another station's claim to an address of
    /// ours, and which. A reply to us, or a request for what is ours, is none.
    pub(crate) fn disputed_by_arp(&self, id: InterfaceId, message: &ArpRepr) -> Option<Ipv4Addr> {
        let interface = &self.interfaces[id];
        if Some(message.sender_hardware) == interface.hardware_address() {
            return None;
        }
        let addressing = &interface.addressing;
        if addressing.find(message.sender_protocol.into()).is_some() {
            return Some(message.sender_protocol);
        }
        // "ARP Probe where the packet's 'target IP address' is the address being probed for, and
        // the packet's 'sender hardware address' is not the hardware address of any of the host's
        // interfaces".
        let is_probe =
            message.operation == ArpOperation::Request && message.sender_protocol.is_unspecified();
        // Of who asks for what we use the answer is enough, also while we look whether it is ours on a new link.
        let target = message.target_protocol;
        let is_wanted = addressing.is_unsettled(target.into()) && !interface.is_ours(target.into());
        (is_probe && is_wanted).then_some(target)
    }

    /// The interface may be on another link: every claim begins anew there, also one under way, whose probes nobody there
    /// has heard. Addresses that are used stay so meanwhile, as connections hold on to them.
    pub(crate) fn claim_again(&mut self, now: Instant, id: InterfaceId) {
        if !self.sharing.is_first() {
            return;
        }
        let interface = &mut self.interfaces[id];
        let mut records = core::mem::take(&mut interface.addressing.records);
        for record in &mut records {
            let Record { claim, is_optimistic, .. } =
                begin(interface, now, record.cidr, record.origin);
            record.is_optimistic = is_optimistic || interface.is_ours(record.cidr.address());
            (record.claim, record.replaces) = (claim, true);
        }
        interface.addressing.records = records;
    }

    /// The interface's hardware address is another one now: neighbours are told.
    pub(crate) fn on_hardware_address_changed(&mut self, id: InterfaceId) {
        if !self.sharing.is_first() {
            return;
        }
        let addressing = &mut self.interfaces[id].addressing;
        for record in &mut addressing.records {
            record.replaces = true;
            // Due at once, whatever time it is.
            record.claim.announce_again(Instant::ZERO);
        }
    }
}
