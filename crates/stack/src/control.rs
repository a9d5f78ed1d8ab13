//! What hosts say to each other about the network itself: ARP, neighbour discovery, ICMP, resets.
//!
//! Nothing here keeps state of its own. Neighbours' answers go to the interface's cache, errors to
//! the socket they are about, and whatever there is to answer goes to the outbox.

use crate::error::SocketError;
use crate::ingress::Incoming;
use crate::interface::InterfaceId;
use crate::outbox::{Message, Network, NextHop, Outgoing};
use crate::shard::Shard;
use crate::sockets::Flow;
use core::net::IpAddr;
use counters::DropReason;
use ip::{Arrival, HeaderTemplate, IcmpError, IcmpErrorKind, IcmpIncoming, PacketInfo};
use link::Request;
use tcp::ConnectionError;
use time::Instant;
use wire::{ArpOperation, ArpRepr, ArpView, HardwareAddress, NdpEnvelope, NdpRepr, TcpHeader};

impl Shard {
    /// Turns what the neighbour cache wants to ask into packets, and passes on what it learned.
    pub(crate) fn poll_neighbours(&mut self, now: Instant, id: InterfaceId) {
        let Some(interface) = self.interfaces.get_mut(id.0 as usize) else { return };
        while let Some(resolved) = interface.neighbours.poll_resolved() {
            match resolved.outcome {
                Ok(_) => interface.outbox.put_back(resolved.waiting.into_iter()),
                Err(_) => {
                    for _ in resolved.waiting {
                        self.drops.add(DropReason::NeighbourUnreachable);
                    }
                }
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
        while let Some(request) = self.interfaces[id.0 as usize].neighbours.poll_request(now) {
            self.ask_neighbour(id, request);
        }
    }

    /// Queues an ARP request or a neighbour solicitation.
    fn ask_neighbour(&mut self, id: InterfaceId, request: Request) {
        let interface = &self.interfaces[id.0 as usize];
        let Some(ours) = interface.hardware_address() else { return };
        let Ok(source) = interface.source_for(request.target) else { return };
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
            (IpAddr::V6(target), IpAddr::V6(_)) => {
                let destination = match request.unicast_to {
                    Some(_) => target,
                    None => wire::ndp::solicited_node(target),
                };
                let message = NdpRepr::NeighbourSolicitation { target, source_link: Some(ours) };
                self.send_ndp(id, source, destination.into(), message, request.unicast_to);
            }
            _ => {}
        }
    }

    pub(crate) fn on_arp(
        &mut self,
        now: Instant,
        id: InterfaceId,
        body: &[u8],
    ) -> Result<(), DropReason> {
        let view = ArpView::parse(body).map_err(|_| DropReason::MalformedNeighbour)?;
        let message = ArpRepr::parse(&view);
        let interface = &mut self.interfaces[id.0 as usize];
        let ours = interface.hardware_address().ok_or(DropReason::MalformedNeighbour)?;
        if interface.is_ours(message.sender_protocol.into()) {
            // RFC 5227, 2.4: somebody else claims an address of ours; we keep it and say nothing.
            return Err(DropReason::BadSource);
        }
        let for_us = interface.is_ours(message.target_protocol.into());
        if let Some(reply) = interface.neighbours.on_arp(now, &message, ours, for_us)? {
            self.send_arp(id, reply, reply.target_hardware);
        }
        Ok(())
    }

    pub(crate) fn on_icmp(
        &mut self,
        now: Instant,
        incoming: &Incoming<'_>,
    ) -> Result<(), DropReason> {
        let bytes = incoming.transport_bytes();
        self.counters.checksummed_receive_bytes += bytes.len() as u64;
        match ip::parse_icmp(&incoming.info, bytes)? {
            IcmpIncoming::EchoRequest(request) => {
                let info = &incoming.info;
                if !ip::may_answer_echo(info, self.arrival(incoming)) {
                    return Err(DropReason::BadSource);
                }
                let data = incoming.payload(request.data.start).ok_or(DropReason::MalformedIcmp)?;
                let data = self.compact(&data)?;
                self.counters.echo_replies += 1;
                self.answer(incoming, Message::EchoReply { to: info.source, request, data });
                Ok(())
            }
            IcmpIncoming::Error(error) => self.on_icmp_error(now, &error),
            IcmpIncoming::Ndp => self.on_ndp(now, incoming),
            // Nobody here asks for echoes, and unknown messages are discarded (RFC 1122, 3.2.2).
            IcmpIncoming::EchoReply(_) | IcmpIncoming::Other { .. } => {
                Err(DropReason::UnrelatedIcmp)
            }
        }
    }

    /// An error about a packet of ours. It may be forged, so it must name a socket of ours and, for
    /// TCP, a sequence number that is in flight (RFC 5927, 4.1); and a connection that is open
    /// survives it (5.2).
    fn on_icmp_error(&mut self, now: Instant, error: &IcmpError) -> Result<(), DropReason> {
        let quoted = &error.quoted;
        let is_known = match quoted.protocol {
            wire::protocol::TCP => {
                let flow = Flow { local: quoted.local, remote: quoted.remote };
                let index = self.sockets.by_flow(&flow).ok_or(DropReason::UnrelatedIcmp)?;
                self.on_tcp_error(now, index, error)
            }
            wire::protocol::UDP => {
                let reported = match error.kind {
                    IcmpErrorKind::PortUnreachable => SocketError::ConnectionRefused,
                    IcmpErrorKind::PacketTooBig { .. } => SocketError::MessageTooLong,
                    IcmpErrorKind::NetUnreachable => SocketError::NoRoute,
                    _ => SocketError::HostUnreachable,
                };
                self.on_udp_error(quoted.local, quoted.remote, reported)
            }
            _ => false,
        };
        if is_known { Ok(()) } else { Err(DropReason::UnrelatedIcmp) }
    }

    fn on_tcp_error(&mut self, now: Instant, index: u32, error: &IcmpError) -> bool {
        let Some(socket) = self.sockets.tcp(index) else { return false };
        let Some(sequence) = error.quoted.sequence else { return false };
        let connection = &mut socket.connection;
        let is_plausible = match error.kind {
            IcmpErrorKind::PacketTooBig { mtu_bytes } if connection.is_outstanding(sequence) => {
                let headers = if socket.flow.local.is_ipv4() { 40 } else { 60 };
                let mss = mtu_bytes.saturating_sub(headers).min(usize::from(u16::MAX)) as u16;
                connection.on_path_mtu(now, mss);
                true
            }
            IcmpErrorKind::PacketTooBig { .. } => false,
            kind if kind.is_hard() => connection.on_unreachable(ConnectionError::Refused, sequence),
            IcmpErrorKind::NetUnreachable => {
                connection.on_unreachable(ConnectionError::NetworkUnreachable, sequence)
            }
            _ => connection.on_unreachable(ConnectionError::HostUnreachable, sequence),
        };
        self.settle(now, index);
        is_plausible
    }

    fn on_ndp(&mut self, now: Instant, incoming: &Incoming<'_>) -> Result<(), DropReason> {
        let malformed = |_| DropReason::MalformedNeighbour;
        let info = &incoming.info;
        let (IpAddr::V6(source), IpAddr::V6(destination)) = (info.source, info.destination) else {
            return Err(DropReason::MalformedNeighbour);
        };
        let envelope = NdpEnvelope { source, destination, hop_limit: info.hop_limit };
        let message = NdpRepr::parse(incoming.transport_bytes(), &envelope).map_err(malformed)?;
        let interface = &mut self.interfaces[incoming.interface.0 as usize];
        let Some(ours) = interface.hardware_address() else { return Ok(()) };
        match message {
            NdpRepr::NeighbourSolicitation { target, source_link } => {
                if !interface.is_ours(target.into()) {
                    return Err(DropReason::NotOurAddress);
                }
                let neighbours = &mut interface.neighbours;
                let answer = neighbours.on_neighbour_solicitation(
                    now,
                    &envelope,
                    target,
                    source_link,
                    ours,
                )?;
                let (to, station) = (answer.destination.into(), source_link.or(incoming.station));
                let station = station.filter(|_| !answer.destination.is_multicast());
                self.send_ndp(incoming.interface, target.into(), to, answer.message, station);
                Ok(())
            }
            NdpRepr::NeighbourAdvertisement {
                target, target_link, solicited, replaces, ..
            } => {
                if interface.is_ours(target.into()) {
                    return Err(DropReason::BadSource);
                }
                let neighbours = &mut interface.neighbours;
                neighbours.on_neighbour_advertisement(now, target, target_link, solicited, replaces)
            }
            // Addresses and routes are configured, not learned: routers' messages say nothing here.
            _ => Err(DropReason::UnrelatedIcmp),
        }
    }

    /// A packet of a protocol nobody here speaks (RFC 1122, 3.2.2.1; RFC 4443, 3.4).
    pub(crate) fn on_unknown_protocol(
        &mut self,
        now: Instant,
        incoming: &Incoming<'_>,
    ) -> Result<(), DropReason> {
        self.send_error(now, incoming, IcmpErrorKind::ProtocolUnreachable);
        Err(DropReason::UnknownProtocol)
    }

    /// Answers a packet with an ICMP error, where the rules and the rate limit allow one.
    pub(crate) fn send_error(
        &mut self,
        now: Instant,
        incoming: &Incoming<'_>,
        kind: IcmpErrorKind,
    ) {
        let transport = incoming.transport_bytes();
        if !ip::may_answer_with_error(&incoming.info, transport, kind, self.arrival(incoming)) {
            return;
        }
        if !self.icmp_limit.allow(now) {
            return self.drops.add(DropReason::IcmpRateLimited);
        }
        let Some(packet) = incoming.packet_chunk() else { return };
        match self.compact(&packet) {
            Ok(offending) => self.answer(incoming, Message::IcmpError { kind, offending }),
            Err(reason) => self.drops.add(reason),
        }
    }

    /// Answers a segment for which there is no connection (RFC 9293, 3.10.7.1).
    pub(crate) fn send_reset(
        &mut self,
        incoming: &Incoming<'_>,
        header: &TcpHeader,
        segment_len: u32,
    ) {
        let Some(reply) = tcp::reset_reply(header, segment_len) else { return };
        self.counters.resets_without_connection += 1;
        let (local_port, remote_port) = (header.destination_port, header.source_port);
        self.answer(incoming, Message::Reset { local_port, remote_port, reply });
    }

    /// Sends a message back to where a packet came from, by the way it came.
    fn answer(&mut self, incoming: &Incoming<'_>, message: Message) {
        let PacketInfo { source, destination, protocol, .. } = incoming.info;
        let protocol = match (&message, source) {
            (Message::Reset { .. }, _) => protocol,
            (_, IpAddr::V4(_)) => wire::protocol::ICMP,
            (_, IpAddr::V6(_)) => wire::protocol::ICMPV6,
        };
        let network = template(destination, source, protocol, crate::HOP_LIMIT_DEFAULT);
        let next_hop = match incoming.station {
            Some(station) => NextHop::Station(station),
            None => NextHop::Neighbour(source),
        };
        let packet = Outgoing { network, next_hop, message };
        self.send_small(incoming.interface, packet);
    }

    fn send_arp(&mut self, id: InterfaceId, message: ArpRepr, station: HardwareAddress) {
        let packet = Outgoing {
            network: Network::Arp,
            next_hop: NextHop::Station(station),
            message: Message::Arp(message),
        };
        self.send_small(id, packet);
    }

    fn send_ndp(
        &mut self,
        id: InterfaceId,
        source: IpAddr,
        destination: IpAddr,
        message: NdpRepr,
        station: Option<HardwareAddress>,
    ) {
        let network =
            template(source, destination, wire::protocol::ICMPV6, wire::ndp::NDP_HOP_LIMIT);
        let next_hop = station.map_or(NextHop::Neighbour(destination), NextHop::Station);
        let packet = Outgoing { network, next_hop, message: Message::Ndp(message) };
        self.send_small(id, packet);
    }

    fn arrival(&self, incoming: &Incoming<'_>) -> Arrival {
        let interface = &self.interfaces[incoming.interface.0 as usize];
        Arrival {
            link_multicast: incoming.link_multicast,
            directed_broadcast: interface.is_broadcast(incoming.info.destination),
        }
    }
}

fn template(source: IpAddr, destination: IpAddr, protocol: u8, hop_limit: u8) -> Network {
    Network::Ip(HeaderTemplate::new(source, destination, protocol, hop_limit, 0))
}
