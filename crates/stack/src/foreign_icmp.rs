//! ICMP in the name of addresses that are accepted and not ours: what a relay says of datagrams that it does not
//! pass on, and the echo requests that it answers.
//!
//! The stack itself says nothing there: that a port is closed and that a host answers is known to the relay
//! alone. It names a datagram that it took, and the error is made of what is known of it, its addresses and
//! ports and as much of its payload as there still is, because nothing else of a datagram is kept. The rules and the
//! rate limit of all ICMP errors hold. Echo requests come whole, with their headers, to a raw socket that
//! has a prefix in the place of a protocol.

use crate::endpoint::of_one_family;
use crate::error::{BadArgument, SocketError};
use crate::forwarding::longest;
use crate::ingress::{Incoming, Origin};
use crate::multicast::MulticastOptions;
use crate::shard::Shard;
use crate::sockets::SocketId;
use crate::udp_socket::Way;
use batch::Chunk;
use core::net::{IpAddr, SocketAddr};
use counters::DropReason;
use ip::{Cidr, IcmpErrorKind};
use time::Instant;
use wire::{Ipv4Repr, Ipv6Repr, UdpRepr, protocol};

/// As much of a datagram's payload as any ICMP error about it quotes (RFC 4443, 2.4 c).
const QUOTED_PAYLOAD_MAX_BYTES: usize = 1_280;

/// The hop limit in a quoted header, of which nothing is known.
const QUOTED_HOP_LIMIT: u8 = 64;

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
        let prefix = self.udp_prefix(id)?;
        let ((sender, by), (to, _)) = (self.take_scope(sender)?, self.take_scope(to)?);
        must_be_of(prefix, to.ip())?;
        of_one_family(to.ip(), sender.ip())?;
        let Way { interface_id: interface, .. } =
            self.way(to.ip(), sender.ip(), by, MulticastOptions::default())?;
        let packet = self.rebuilt(sender, to, payload)?;
        let info = ip::parse_fixed(packet.bytes()).map_err(|_| SocketError::MessageTooLong)?;
        let origin = Origin { interface, station: None, link_multicast: false, is_home: true };
        self.send_error_about(now, &origin, &info, packet, kind);
        Ok(())
    }

    /// A datagram with its headers, as it may have come.
    fn rebuilt(
        &self,
        sender: SocketAddr,
        to: SocketAddr,
        payload: &[u8],
    ) -> Result<Chunk, SocketError> {
        let quoted = &payload[..payload.len().min(QUOTED_PAYLOAD_MAX_BYTES)];
        let ip_len = if to.is_ipv4() { Ipv4Repr::LEN } else { Ipv6Repr::LEN };
        let len = ip_len + UdpRepr::LEN + quoted.len();
        let mut block = self.pool.allocate_receive(len).map_err(|_| SocketError::NoMemory)?;
        let out = &mut block.bytes_mut()[..len];
        emit_network(sender.ip(), to.ip(), UdpRepr::LEN + payload.len(), out);
        let udp = UdpRepr {
            source_port: sender.port(),
            destination_port: to.port(),
            payload_len: payload.len(),
        };
        udp.emit(&mut out[ip_len..]);
        out[ip_len + UdpRepr::LEN..].copy_from_slice(quoted);
        Ok(Chunk::new(block.freeze(), 0..len))
    }

    /// A raw socket for the echo requests to any accepted address of `prefix` that is not ours, which it answers by
    /// [`Shard::raw_send_forwarded`] or does not; several of them stand to each other as
    /// [`Shard::tcp_forward`] says.
    ///
    /// # Errors
    /// As [`Shard::tcp_forward`]; of several shards this is not the first ([`BadArgument::NotFirstShard`]).
    pub fn echo_forward(&mut self, prefix: Cidr) -> Result<SocketId, SocketError> {
        if !self.sharing.is_first() {
            return Err(BadArgument::NotFirstShard.into());
        }
        let prefix = prefix.network();
        self.check_prefix(prefix, &self.forwarding.echo_forwarders)?;
        let id = self.insert_echo_forwarder(prefix)?;
        self.forwarding.echo_forwarders.push((prefix, id.index() as u32));
        Ok(id)
    }

    /// Gives an echo request to an address that is only accepted to who answers for it.
    pub(crate) fn forward_echo(&mut self, incoming: &Incoming<'_>) -> Result<(), DropReason> {
        let destination = incoming.info.destination;
        let index = longest(&self.forwarding.echo_forwarders, destination)
            .ok_or(DropReason::NotOurAddress)?;
        if !ip::may_answer_echo(incoming.info, self.arrival(&incoming.origin, incoming.info)) {
            return Err(DropReason::BadSource);
        }
        self.push_raw(index, incoming, None)
    }

    /// The application has let go of an echo forwarder.
    pub(crate) fn close_echo_forwarder(&mut self, index: u32) {
        self.forwarding.echo_forwarders.retain(|(_, its)| *its != index);
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

/// Writes an IP header for UDP, of whose fields all but addresses and length are unknown.
fn emit_network(source: IpAddr, destination: IpAddr, payload_len: usize, out: &mut [u8]) {
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => Ipv4Repr {
            dscp_ecn: 0,
            identification: 0,
            dont_fragment: false,
            more_fragments: false,
            fragment_offset_bytes: 0,
            hop_limit: QUOTED_HOP_LIMIT,
            protocol: protocol::UDP,
            source,
            destination,
            payload_len,
        }
        .emit(out),
        (IpAddr::V6(source), IpAddr::V6(destination)) => Ipv6Repr {
            dscp_ecn: 0,
            flow_label: 0,
            payload_len,
            next_header: protocol::UDP,
            hop_limit: QUOTED_HOP_LIMIT,
            source,
            destination,
        }
        .emit(out),
        // Two of different families are refused before; without a version this is no packet.
        _ => {}
    }
}
