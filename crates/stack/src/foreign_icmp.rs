//! ICMP in the name of addresses that are accepted and not ours: what a relay says of connections and datagrams that it
//! does not pass on, and the echo requests that it answers.
//!
//! The stack itself says nothing there: that a port is closed and that a host answers is known to the relay
//! alone. It names a datagram or a pending connection that it took, and the error is made of what is known of it: its
//! addresses and ports and as much of its payload as there still is, or what is kept of its SYN. The rules and the
//! rate limit of all ICMP errors hold. Echo requests come whole, with their headers, to a raw socket that
//! has a prefix in the place of a protocol.

use crate::error::{BadArgument, SocketError};
use crate::forwarding::{Forwarding, PendingId, longest};
use crate::ingress::{Incoming, Origin};
use crate::network::NetworkLayer;
use crate::network::endpoint::of_one_family;
use crate::network::multicast::MulticastOptions;
use crate::network::way::Way;
use crate::shard::Shard;
use crate::sockets::SocketId;
use batch::Chunk;
use core::net::{IpAddr, SocketAddr};
use counters::DropReason;
use ip::{Cidr, IcmpErrorKind};
use time::Instant;
use wire::{Ipv4Repr, Ipv6Repr, TCP_HEADER_LEN_MAX, UdpRepr, protocol};

/// As much of a datagram's payload as any ICMP error about it quotes (RFC 4443, 2.4 c).
const QUOTED_PAYLOAD_MAX_BYTES: usize = 1_280;

/// The hop limit in a quoted header, of which nothing is known.
const QUOTED_HOP_LIMIT: u8 = 64;

/// A packet that is not passed on, as far as it is still known.
struct Lost<'a> {
    /// Source and destination.
    ends: (IpAddr, IpAddr),
    protocol: u8,
    header: &'a [u8],
    payload: &'a [u8],
}

impl Shard {
    /// Answers a datagram from `sender` to `to` that a forwarder took ([`Shard::udp_forward`]) with an ICMP error,
    /// from where it was sent to, as a host does that does not want it or a router that cannot pass it on.
    /// `payload` is its payload, or what is left of it, for the error to quote. Where the rate limit of
    /// ICMP errors forbids another one, it is dropped and counted.
    ///
    /// # Errors
    /// [`SocketError::InvalidArgument`] where the socket is no forwarder, or could not have taken such a
    /// datagram; no route; no memory.
    pub fn udp_refuse(
        &mut self,
        now: Instant,
        id: SocketId,
        (sender, to): (SocketAddr, SocketAddr),
        payload: &[u8],
        kind: IcmpErrorKind,
    ) -> Result<(), SocketError> {
        let prefix = self.sockets.udp_prefix(id)?;
        let network = &self.network;
        let ((sender, by), (to, _)) = (network.take_scope(sender)?, network.take_scope(to)?);
        must_be_of(prefix, to.ip())?;
        of_one_family(to.ip(), sender.ip())?;
        let Way { interface_id: interface, .. } =
            self.network.way(to.ip(), sender.ip(), by, MulticastOptions::default())?;
        let (source_port, destination_port) = (sender.port(), to.port());
        let udp = UdpRepr { source_port, destination_port, payload_len: payload.len() };
        let mut header = [0; UdpRepr::LEN];
        udp.emit(&mut header);
        let origin = Origin { interface, station: None, link_multicast: false, is_home: true };
        let lost = Lost {
            ends: (sender.ip(), to.ip()),
            protocol: protocol::UDP,
            header: &header,
            payload,
        };
        self.network.send_error_about_lost(now, &origin, &lost, kind)
    }

    /// As [`Shard::tcp_refuse_pending`], but with an ICMP error about the SYN, from where that was sent to. Where the
    /// rate limit of ICMP errors forbids another one, it is dropped and counted, and the peer asks again.
    pub fn tcp_refuse_pending_with(&mut self, now: Instant, id: &PendingId, kind: IcmpErrorKind) {
        let Some((syn, origin)) = self.take_refused(id) else { return };
        let mut header = [0; TCP_HEADER_LEN_MAX];
        let Some(header_len) = syn.emit(&mut header) else { return };
        let header = &header[..header_len];
        let ends = (id.peer().ip(), id.destination().ip());
        let lost = Lost { ends, protocol: protocol::TCP, header, payload: &[] };
        if self.network.send_error_about_lost(now, &origin, &lost, kind).is_err() {
            self.drops.add(DropReason::NoMemory);
        }
    }

    /// A raw socket for the echo requests to any accepted address of `prefix` that is not ours, which it answers by
    /// [`Shard::raw_send_forwarded`] or does not; several of them stand to each other as
    /// [`Shard::tcp_forward`] says.
    ///
    /// # Errors
    /// As [`Shard::tcp_forward`]; of several shards this is not the first ([`BadArgument::NotFirstShard`]).
    pub fn echo_forward(&mut self, prefix: Cidr) -> Result<SocketId, SocketError> {
        if !self.network.sharing.is_first() {
            return Err(BadArgument::NotFirstShard.into());
        }
        let prefix = prefix.network();
        self.network.check_prefix(prefix, &self.forwarding.echo_forwarders)?;
        let id = self.sockets.insert_echo_forwarder(prefix)?;
        self.forwarding.echo_forwarders.push((prefix, id.index() as u32));
        Ok(id)
    }

    /// Gives an echo request to an address that is only accepted to who answers for it.
    pub(crate) fn forward_echo(&mut self, incoming: &Incoming<'_>) -> Result<(), DropReason> {
        let destination = incoming.info.destination;
        let index = longest(&self.forwarding.echo_forwarders, destination)
            .ok_or(DropReason::NotOurAddress)?;
        if !ip::may_answer_echo(
            incoming.info,
            self.network.arrival(&incoming.origin, incoming.info),
        ) {
            return Err(DropReason::BadSource);
        }
        self.push_raw(index, incoming, None)
    }
}

impl Forwarding {
    /// The application has let go of an echo forwarder.
    pub(crate) fn close_echo_forwarder(&mut self, index: u32) {
        self.echo_forwarders.retain(|(_, its)| *its != index);
    }
}

impl NetworkLayer {
    fn send_error_about_lost(
        &mut self,
        now: Instant,
        origin: &Origin,
        lost: &Lost<'_>,
        kind: IcmpErrorKind,
    ) -> Result<(), SocketError> {
        let packet = self.rebuilt(lost)?;
        let info = ip::parse_fixed(packet.bytes()).map_err(|_| SocketError::MessageTooLong)?;
        self.send_error_about(now, origin, &info, packet, kind);
        Ok(())
    }

    /// A packet with its headers, as it may have come.
    fn rebuilt(&self, lost: &Lost<'_>) -> Result<Chunk, SocketError> {
        let Lost { header, payload, .. } = *lost;
        let quoted = &payload[..payload.len().min(QUOTED_PAYLOAD_MAX_BYTES)];
        let ip_len = if lost.ends.1.is_ipv4() { Ipv4Repr::LEN } else { Ipv6Repr::LEN };
        let len = ip_len + header.len() + quoted.len();
        let mut block = self.pool.allocate_receive(len).map_err(|_| SocketError::NoMemory)?;
        let out = &mut block.bytes_mut()[..len];
        emit_network(lost.ends, lost.protocol, header.len() + payload.len(), out);
        let (header_out, payload_out) = out[ip_len..].split_at_mut(header.len());
        header_out.copy_from_slice(header);
        payload_out.copy_from_slice(quoted);
        Ok(Chunk::new(block.freeze(), 0..len))
    }
}

/// A packet of `prefix` to one host must be able to have been sent to `address`.
///
/// # Errors
/// [`BadArgument::OutsidePrefix`].
pub(crate) fn must_be_of(prefix: Cidr, address: IpAddr) -> Result<(), BadArgument> {
    match prefix.contains(address) && !address.is_unspecified() && !address.is_multicast() {
        true => Ok(()),
        false => Err(BadArgument::OutsidePrefix { address, prefix }),
    }
}

/// Writes an IP header of whose other fields nothing is known.
fn emit_network(ends: (IpAddr, IpAddr), protocol: u8, payload_len: usize, out: &mut [u8]) {
    match ends {
        (IpAddr::V4(source), IpAddr::V4(destination)) => Ipv4Repr {
            dscp_ecn: 0,
            identification: 0,
            dont_fragment: false,
            more_fragments: false,
            fragment_offset_bytes: 0,
            hop_limit: QUOTED_HOP_LIMIT,
            protocol,
            source,
            destination,
            payload_len,
        }
        .emit(out),
        (IpAddr::V6(source), IpAddr::V6(destination)) => Ipv6Repr {
            dscp_ecn: 0,
            flow_label: 0,
            payload_len,
            next_header: protocol,
            hop_limit: QUOTED_HOP_LIMIT,
            source,
            destination,
        }
        .emit(out),
        // Two of different families are refused before; without a version this is no packet.
        _ => {}
    }
}
