//! What hosts say to each other about the network itself: ICMP and resets.
//!
//! Nothing here keeps state of its own. Errors go to the socket they are about, messages of
//! neighbour discovery to `network/neighbours.rs`, and whatever there is to answer goes to the outbox.

use crate::datagrams::reports::ErrorReport;
use crate::error::{SocketError, connection_error};
use crate::ingress::{Incoming, Origin};
use crate::network::NetworkLayer;
use crate::network::endpoint::scoped;
use crate::network::interfaces::InterfaceId;
use crate::outbox::{Message, NextHop, Outgoing};
use crate::shard::Shard;
use crate::sockets::Flow;
use crate::sockets::marks::PacketMarks;
use batch::Chunk;
use core::net::IpAddr;
use counters::DropReason;
use ip::{Arrival, IcmpError, IcmpErrorKind, IcmpIncoming, PacketInfo};
use tcp::ConnectionError;
use time::Instant;
use wire::TcpHeader;

/// As much of a packet as any ICMP error about it quotes.
const QUOTATION_MAX_BYTES: usize = 1_280;

impl Shard {
    pub(crate) fn on_icmp(
        &mut self,
        now: Instant,
        incoming: &Incoming<'_>,
    ) -> Result<(), DropReason> {
        let bytes = incoming.transport_bytes();
        self.counters.checksummed_receive_bytes += bytes.len() as u64;
        let message = ip::parse_icmp(incoming.info, bytes)?;
        // To an address that is only accepted: errors about what left from there, and what a relay answers. An
        // echo reply of the stack's own would say that a host is there which nobody has asked.
        if self.network.is_foreign(incoming) {
            match message {
                IcmpIncoming::Error(_) => {}
                IcmpIncoming::EchoRequest(_) => return self.forward_echo(incoming),
                _ => return Err(DropReason::NotOurAddress),
            }
        }
        let outcome = self.on_icmp_message(now, incoming, &message);
        match self.deliver_icmp(incoming, &message) {
            true if outcome == Err(DropReason::UnrelatedIcmp) => Ok(()),
            _ => outcome,
        }
    }

    fn on_icmp_message(
        &mut self,
        now: Instant,
        incoming: &Incoming<'_>,
        message: &IcmpIncoming,
    ) -> Result<(), DropReason> {
        match message {
            IcmpIncoming::EchoRequest(request) => {
                let info = incoming.info;
                if !ip::may_answer_echo(info, self.network.arrival(&incoming.origin, incoming.info))
                {
                    return Err(DropReason::BadSource);
                }
                let data = incoming.payload(request.data.start).ok_or(DropReason::MalformedIcmp)?;
                let (data, request) = (self.network.compact(&data)?, request.clone());
                self.counters.echo_replies += 1;
                self.network.answer(
                    &incoming.origin,
                    incoming.info,
                    Message::EchoReply { to: info.source, request, data },
                );
                Ok(())
            }
            IcmpIncoming::Error(error) => self.on_icmp_error(now, incoming, error),
            // RFC 6980, 5: neighbour discovery never comes with a fragment header.
            IcmpIncoming::Ndp if incoming.info.fragmented => Err(DropReason::MalformedNeighbour),
            IcmpIncoming::Ndp => self.network.on_ndp(now, incoming),
            IcmpIncoming::Mld => self.network.on_group_message(now, incoming),
            // Only raw sockets ask for echoes, and unknown messages are discarded (RFC 1122, 3.2.2).
            IcmpIncoming::EchoReply(_) | IcmpIncoming::Other { .. } => {
                Err(DropReason::UnrelatedIcmp)
            }
        }
    }

    /// An error about a packet of ours. It may be forged, so it must name a socket of ours and, for
    /// TCP, a sequence number that is in flight (RFC 4953, 4; RFC 5927, 4.1); and a connection that is open
    /// survives it (RFC 5927, 5.2).
    fn on_icmp_error(
        &mut self,
        now: Instant,
        incoming: &Incoming<'_>,
        error: &IcmpError,
    ) -> Result<(), DropReason> {
        let quoted = &error.quoted;
        let is_known = match quoted.protocol {
            wire::protocol::TCP => {
                let flow = Flow { local: quoted.local, remote: quoted.remote };
                let index = self.sockets.by_flow(&flow);
                index.is_some_and(|index| self.on_tcp_error(now, index, error))
            }
            wire::protocol::UDP => {
                let reported = match error.kind {
                    IcmpErrorKind::PacketTooBig { .. } => SocketError::MessageTooLong,
                    kind => connection_error(reported(kind, quoted.remote.is_ipv4())),
                };
                // Where an error about a host on a link comes by, that host is.
                let remote = scoped(quoted.remote, incoming.origin.interface);
                let report = || ErrorReport::of_icmp(now, incoming, reported, remote);
                let is_known = self.on_udp_error(quoted.local, remote, reported, report);
                if let IcmpErrorKind::PacketTooBig { mtu_bytes } = error.kind
                    && is_known
                {
                    self.network.on_udp_too_big(now, quoted.remote.ip(), mtu_bytes);
                }
                is_known
            }
            _ => self.on_raw_error(now, error),
        };
        if is_known { Ok(()) } else { Err(DropReason::UnrelatedIcmp) }
    }

    fn on_tcp_error(&mut self, now: Instant, index: u32, error: &IcmpError) -> bool {
        let Some(socket) = self.sockets.tcp(index) else { return false };
        let Some(sequence) = error.quoted.sequence else { return false };
        let connection = &mut socket.connection;
        let is_plausible = match error.kind {
            IcmpErrorKind::PacketTooBig { mtu_bytes } if connection.is_outstanding(sequence) => {
                self.on_tcp_too_big(now, index, mtu_bytes);
                true
            }
            IcmpErrorKind::PacketTooBig { .. } => false,
            // A piece of one segment is missing at the peer's host, which is there; the next may come whole.
            IcmpErrorKind::ReassemblyTimeExceeded => connection.is_outstanding(sequence),
            kind => {
                let error = reported(kind, error.quoted.remote.is_ipv4());
                connection.on_unreachable(error, sequence)
            }
        };
        self.settle(now, index);
        is_plausible
    }

    /// Answers a segment for which there is no connection (RFC 9293, 3.10.7.1), within the limit that
    /// keeps a flood from being doubled.
    pub(crate) fn send_reset(
        &mut self,
        now: Instant,
        incoming: &Incoming<'_>,
        header: &TcpHeader,
        payload_len: u32,
    ) {
        let Some(reply) = tcp::reset_reply(header, payload_len) else { return };
        if !self.reset_limit.allow(now) {
            return self.drops.add(DropReason::ResetRateLimited);
        }
        self.counters.resets_without_connection += 1;
        let reset = reply.header(header.destination_port, header.source_port);
        self.network.answer_segment(incoming, reset);
    }
}

impl NetworkLayer {
    /// A packet of a protocol nobody here speaks (RFC 1122, 3.2.2.1; RFC 4443, 3.4).
    pub(crate) fn on_unknown_protocol(
        &mut self,
        now: Instant,
        incoming: &Incoming<'_>,
    ) -> Result<(), DropReason> {
        // RFC 8200, 4.7: what lies behind that nothing follows is ignored, and nobody's protocol. Of what is for others
        // a relay takes what it can carry, and nobody asked it for the rest.
        let is_nothing = incoming.info.protocol == wire::protocol::NO_NEXT_HEADER;
        if !is_nothing && !self.is_foreign(incoming) {
            self.send_error(now, incoming, IcmpErrorKind::ProtocolUnreachable);
        }
        Err(DropReason::UnknownProtocol)
    }

    /// Answers a packet with an ICMP error, where the rules and the rate limit allow one.
    pub(crate) fn send_error(
        &mut self,
        now: Instant,
        incoming: &Incoming<'_>,
        kind: IcmpErrorKind,
    ) {
        let Some(packet) = incoming.packet_chunk() else { return };
        self.send_error_about(now, &incoming.origin, incoming.info, packet, kind);
    }

    /// As [`NetworkLayer::send_error`], about a packet of which `info` is known and little else.
    pub(crate) fn send_error_about(
        &mut self,
        now: Instant,
        origin: &Origin,
        info: &PacketInfo,
        mut packet: Chunk,
        kind: IcmpErrorKind,
    ) {
        let arrival = self.arrival(origin, info);
        if !ip::may_answer_with_error(info, info.transport(packet.bytes()), kind, arrival) {
            return;
        }
        if !self.icmp_limit.allow(now) {
            return self.drops.add(DropReason::IcmpRateLimited);
        }
        packet.truncate(QUOTATION_MAX_BYTES);
        match self.compact(&packet) {
            Ok(offending) => self.answer(origin, info, Message::IcmpError { kind, offending }),
            Err(reason) => self.drops.add(reason),
        }
    }

    /// Sends a bare TCP header back to where a segment came from.
    pub(crate) fn answer_segment(&mut self, incoming: &Incoming<'_>, header: TcpHeader) {
        let message = Message::Segment(header);
        let packet = self.answer_to(&incoming.origin, incoming.info, message);
        self.send_answer(incoming.origin.interface, packet);
    }

    /// Queues a segment of no connection; a full queue drops it, counted.
    pub(crate) fn send_answer(&mut self, id: InterfaceId, mut packet: Outgoing) {
        if let Message::Segment(header) = &packet.message {
            let (source_port, destination_port) = (header.source_port, header.destination_port);
            self.flow_labels.label(&mut packet.network, source_port, destination_port);
        }
        let interface = &mut self.interfaces[id];
        if interface.is_removed {
            self.drops.add(DropReason::InterfaceRemoved);
        } else if !interface.outbox.push_answer(packet) {
            self.drops.add(DropReason::TransmitQueueFull);
        }
    }

    /// Sends a message back to where a packet came from, by the way it came.
    fn answer(&mut self, origin: &Origin, info: &PacketInfo, message: Message) {
        let packet = self.answer_to(origin, info, message);
        self.send_small(origin.interface, packet);
    }

    fn answer_to(&self, origin: &Origin, info: &PacketInfo, message: Message) -> Outgoing {
        let PacketInfo { source, destination, protocol, .. } = *info;
        let protocol = match (&message, source) {
            (Message::Segment(_), _) => protocol,
            (_, IpAddr::V4(_)) => wire::protocol::ICMP,
            (_, IpAddr::V6(_)) => wire::protocol::ICMPV6,
        };
        let interface = &self.interfaces[origin.interface];
        let way_back = || self.next_hop_by(origin.interface, source);
        // RFC 4443, 2.2 b: what answers a packet to a group comes from an address of the node.
        let ours = match destination.is_multicast() {
            true => interface.source_for(source, way_back()),
            false => Ok(destination),
        };
        let ours = ours.unwrap_or(destination);
        let network = interface.header(ours, source, protocol, PacketMarks::default());
        let next_hop =
            origin.station.map_or_else(|| NextHop::Neighbour(way_back()), NextHop::Station);
        Outgoing { network, next_hop, message }
    }

    pub(crate) fn arrival(&self, origin: &Origin, info: &PacketInfo) -> Arrival {
        let interface = &self.interfaces[origin.interface];
        Arrival {
            link_multicast: origin.link_multicast,
            directed_broadcast: interface.is_broadcast(info.destination),
            from_own_host: interface.is_loopback,
        }
    }
}

/// What an ICMP error other than one about the length says of the peer. A filter on the way is not the peer, which has
/// refused nothing; of IPv4 hosts know it as an unreachable host.
fn reported(kind: IcmpErrorKind, is_ipv4: bool) -> ConnectionError {
    use ConnectionError as Error;
    use IcmpErrorKind as Kind;
    match kind {
        Kind::NetUnreachable => Error::NetworkUnreachable,
        Kind::ProtocolUnreachable => Error::ProtocolUnreachable,
        Kind::PortUnreachable => Error::Refused,
        Kind::Prohibited if !is_ipv4 => Error::Prohibited,
        Kind::HostUnknown => Error::HostUnknown,
        Kind::SourceIsolated => Error::SourceIsolated,
        Kind::SourceRouteFailed => Error::SourceRouteFailed,
        Kind::ParameterProblem { .. }
        | Kind::UnrecognisedOption { .. }
        | Kind::HeaderChainIncomplete => Error::ParameterProblem,
        _ => Error::HostUnreachable,
    }
}
