//! ARP and neighbour discovery: what is asked, what is answered, what is learned.
//!
//! Nothing here keeps state of its own: neighbours' answers go to the interface's cache, claims to
//! our addresses to `addressing/`, and whatever there is to send goes to the outbox.

use crate::datagrams::reports::ErrorReport;
use crate::error::SocketError;
use crate::ingress::Incoming;
use crate::network::NetworkLayer;
use crate::network::addressing::{AddressState, Record};
use crate::network::endpoint::scoped;
use crate::network::interfaces::InterfaceId;
use crate::outbox::{Message, Network, NextHop, Outgoing};
use crate::shard::Shard;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use counters::DropReason;
use ip::HeaderTemplate;
use link::Request;
use time::Instant;
use wire::{ArpOperation, ArpRepr, ArpView, HardwareAddress, NdpEnvelope, NdpRepr};

impl Shard {
    /// Turns what the neighbour cache wants to ask into packets, and passes on what it learned.
    #[inline]
    pub(crate) fn poll_neighbours(&mut self, now: Instant, id: InterfaceId, may_ask: bool) {
        if !self.network.interfaces[id].neighbours.is_quiet() {
            self.serve_neighbours(now, id, may_ask);
        }
    }

    // Seldom called: inlined, its registers would be saved in every turn.
    #[inline(never)]
    fn serve_neighbours(&mut self, now: Instant, id: InterfaceId, may_ask: bool) {
        let interface = &mut self.network.interfaces[id];
        let mut silent = Vec::new();
        while let Some(resolved) = interface.neighbours.poll_resolved() {
            match resolved.outcome {
                Ok(_) => interface.outbox.put_back(resolved.waiting.into_iter()),
                Err(_) => silent.push((resolved.next_hop, resolved.waiting)),
            }
            let sockets = &mut self.sockets;
            let ready = &mut interface.ready;
            interface.waiting.retain(|(next_hop, index)| {
                let is_over = *next_hop == resolved.next_hop;
                if is_over && let Some(socket) = sockets.tcp(*index) {
                    socket.queued = false;
                    ready.add(*index, &mut socket.queued);
                }
                !is_over
            });
        }
        for (address, waiting) in silent {
            waiting.iter().for_each(|packet| self.on_unreachable(id, packet));
            self.network.on_silent_neighbour(now, id, address);
        }
        self.leave_addresses(now);
        while may_ask
            && let Some(request) = self.network.interfaces[id].neighbours.poll_request(now)
        {
            self.network.ask_neighbour(id, request);
        }
    }

    /// The neighbour that a message was for does not answer. RFC 4861, 7.2.2: "the sender MUST return ICMP
    /// destination unreachable indications with code 3 (Address Unreachable) for each packet queued awaiting address
    /// resolution". The socket of a datagram is told as by an ICMP error (IPv4's as well, as Linux does it), without
    /// one being made: what answers strangers, who may pretend to be any neighbour, is dropped and no more. Nor is it
    /// told of one way of several, by another of which the datagram may have arrived.
    pub(crate) fn on_unreachable(&mut self, id: InterfaceId, packet: &Outgoing) {
        self.drops.add(DropReason::NeighbourUnreachable);
        let Message::Datagram { source_port, destination_port, .. } = packet.message else {
            return;
        };
        let (source, destination) = packet.network.addresses();
        if !self.network.other_ways(id, source, destination).is_empty() {
            return;
        }
        let local = SocketAddr::new(source, source_port);
        let remote = scoped(SocketAddr::new(destination, destination_port), id);
        let report = || ErrorReport::of_silence(packet, remote);
        self.on_udp_error(local, remote, SocketError::HostUnreachable, report);
    }
}

impl NetworkLayer {
    pub(crate) fn on_arp(
        &mut self,
        now: Instant,
        id: InterfaceId,
        body: &[u8],
    ) -> Result<(), DropReason> {
        let view = ArpView::parse(body).map_err(|_| DropReason::MalformedNeighbour)?;
        let message = ArpRepr::parse(&view);
        if let Some(address) = self.disputed_by_arp(id, &message) {
            self.on_dispute(now, id, address.into(), message.sender_hardware);
            return Err(DropReason::AddressDisputed);
        }
        let interface = &mut self.interfaces[id];
        let ours = interface.hardware_address().ok_or(DropReason::MalformedNeighbour)?;
        if message.sender_hardware == ours {
            // Our own broadcast came back.
            return Err(DropReason::BadSource);
        }
        let for_us = interface.is_ours(message.target_protocol.into());
        let reply = interface.neighbours.on_arp(now, &message, ours, for_us)?;
        // Every shard of the host has learned; one answers.
        if let Some(reply) = reply.filter(|_| self.sharing.is_first()) {
            self.send_arp(id, reply, reply.target_hardware);
        }
        Ok(())
    }

    pub(crate) fn on_ndp(
        &mut self,
        now: Instant,
        incoming: &Incoming<'_>,
    ) -> Result<(), DropReason> {
        let malformed = |_| DropReason::MalformedNeighbour;
        let info = incoming.info;
        let (IpAddr::V6(source), IpAddr::V6(destination)) = (info.source, info.destination) else {
            return Err(DropReason::MalformedNeighbour);
        };
        let envelope = NdpEnvelope { source, destination, hop_limit: info.hop_limit };
        let message = NdpRepr::parse(incoming.transport_bytes(), &envelope).map_err(malformed)?;
        let interface = &mut self.interfaces[incoming.origin.interface];
        let Some(ours) = interface.hardware_address() else { return Ok(()) };
        match message {
            NdpRepr::NeighbourSolicitation { target, source_link } => {
                self.on_solicitation(now, incoming, &envelope, target, source_link)
            }
            NdpRepr::NeighbourAdvertisement {
                router,
                target,
                target_link,
                solicited,
                replaces,
            } => {
                if interface.addressing.find(target.into()).is_some() {
                    // RFC 4862, 5.4.4: somebody has the address, tentative or not.
                    let station =
                        target_link.or(incoming.origin.station).filter(|link| *link != ours);
                    let station = station.ok_or(DropReason::BadSource)?;
                    self.on_dispute(now, incoming.origin.interface, target.into(), station);
                    return Err(DropReason::AddressDisputed);
                }
                let neighbours = &mut interface.neighbours;
                let is_believed = neighbours.on_neighbour_advertisement(
                    now,
                    target,
                    target_link,
                    solicited,
                    replaces,
                )?;
                if is_believed && !router {
                    self.on_no_router(now, incoming.origin.interface, target);
                }
                Ok(())
            }
            NdpRepr::RouterAdvertisement(message) => {
                self.on_router_advertisement(now, incoming, source, &message)
            }
            // RFC 4861, 8.3 says SHOULD: anybody on the link can forge a redirect and so take over
            // a single destination unseen.
            NdpRepr::Redirect { .. } => Err(DropReason::RedirectRefused),
            NdpRepr::RouterSolicitation { source_link } => {
                self.on_router_solicitation(now, incoming.origin.interface, source, source_link)
            }
        }
    }

    /// Somebody asks for an address: RFC 4861, 7.2.3 and 7.2.4, and for one that we are asking
    /// about ourselves RFC 4862, 5.4.3.
    fn on_solicitation(
        &mut self,
        now: Instant,
        incoming: &Incoming<'_>,
        envelope: &NdpEnvelope,
        target: Ipv6Addr,
        source_link: Option<HardwareAddress>,
    ) -> Result<(), DropReason> {
        let id = incoming.origin.interface;
        let interface = &mut self.interfaces[id];
        let ours = interface.hardware_address().ok_or(DropReason::MalformedNeighbour)?;
        let state = interface.addressing.find(target.into()).map(Record::state);
        let state = state.ok_or(DropReason::NotOurAddress)?;
        let is_unsettled = matches!(state, AddressState::Tentative | AddressState::Optimistic);
        if is_unsettled && envelope.source.is_unspecified() {
            // "If the source address is the unspecified address, the solicitation is from a node
            // performing Duplicate Address Detection. If the solicitation is from another node, the
            // tentative address is a duplicate."
            let station = incoming.origin.station.filter(|station| *station != ours);
            let station = station.ok_or(DropReason::BadSource)?;
            self.on_dispute(now, id, target.into(), station);
            return Err(DropReason::AddressDisputed);
        }
        if state == AddressState::Tentative {
            // "If the source address is a unicast address, the sender is performing address
            // resolution on the target; the solicitation should be silently ignored."
            return Err(DropReason::NotOurAddress);
        }
        let neighbours = &mut interface.neighbours;
        let mut answer =
            neighbours.on_neighbour_solicitation(now, envelope, target, source_link, ours)?;
        if !self.sharing.is_first() {
            return Ok(());
        }
        if let NdpRepr::NeighbourAdvertisement { router, replaces, .. } = &mut answer.message {
            // RFC 4429, 3.3: "Override flag cleared".
            *replaces = !is_unsettled;
            // RFC 4861, 7.2.5: hosts have no router any more that does not say in its answers that it is one.
            *router = self.interfaces[id].addressing.advertiser.is_some();
        }
        let (to, station) = (answer.destination.into(), source_link.or(incoming.origin.station));
        let station = station.filter(|_| !answer.destination.is_multicast());
        self.send_ndp(id, target.into(), to, answer.message, station);
        Ok(())
    }

    /// RFC 1122, 2.3.2.1: what a device that stands still has not taken is not asked again, nor counted as asked.
    #[inline]
    pub(crate) fn may_ask(&self, id: InterfaceId) -> bool {
        let interface = &self.interfaces[id];
        interface.neighbours.is_quiet() || !interface.outbox.has_question()
    }

    /// Queues an ARP request or a neighbour solicitation, or has the first shard of the host ask.
    fn ask_neighbour(&mut self, id: InterfaceId, request: Request) {
        if self.leaves_asking(id, &request) {
            return;
        }
        let interface = &self.interfaces[id];
        let Some(ours) = interface.hardware_address() else { return };
        let Ok(source) = interface.source_for(request.target, request.target) else { return };
        match (request.target, source) {
            (IpAddr::V4(target), IpAddr::V4(source)) => {
                let message = ArpRepr {
                    operation: ArpOperation::Request,
                    sender_hardware: ours,
                    sender_protocol: source,
                    target_hardware: HardwareAddress::ZERO,
                    target_protocol: target,
                };
                let station = request.unicast_to.unwrap_or(HardwareAddress::BROADCAST);
                self.send_arp(id, message, station);
            }
            (IpAddr::V6(target), IpAddr::V6(source)) => {
                let destination = match request.unicast_to {
                    Some(_) => target,
                    None => wire::ndp::solicited_node(target),
                };
                // RFC 4429, 2.1 and 3.2: nobody's cache may be made to replace what it holds by an
                // address that may turn out to be another's.
                let is_unsettled = interface.addressing.is_unsettled(source.into());
                let source_link = (!is_unsettled).then_some(ours);
                let message = NdpRepr::NeighbourSolicitation { target, source_link };
                self.send_ndp(id, source.into(), destination.into(), message, request.unicast_to);
            }
            _ => {}
        }
    }

    pub(crate) fn send_arp(&mut self, id: InterfaceId, message: ArpRepr, station: HardwareAddress) {
        let packet = Outgoing {
            network: Network::Arp,
            next_hop: NextHop::Station(station),
            message: Message::Arp(message),
        };
        self.send_small(id, packet);
    }

    pub(crate) fn send_ndp(
        &mut self,
        id: InterfaceId,
        source: IpAddr,
        destination: IpAddr,
        message: NdpRepr,
        station: Option<HardwareAddress>,
    ) {
        let (protocol, hop_limit) = (wire::protocol::ICMPV6, wire::ndp::NDP_HOP_LIMIT);
        let template = HeaderTemplate::new(source, destination, protocol, hop_limit, 0);
        let next_hop = station.map_or(NextHop::Neighbour(destination), NextHop::Station);
        let network = Network::Ip(template);
        let packet = Outgoing { network, next_hop, message: Message::Ndp(message) };
        self.send_small(id, packet);
    }
}
