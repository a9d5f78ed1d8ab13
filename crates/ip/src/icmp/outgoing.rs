//! Messages to send: a header in the batch, the data a span of the block it lies in.
//!
//! ICMP for IPv4 has no pseudo-header, so its checksum is complete here; that of ICMPv6 is left to
//! [`stamp`](crate::stamp).

use super::incoming::{Echo, IcmpErrorKind};
use crate::parse::protocol_named_at;
use crate::parse_fixed;
use batch::{Attributes, Checksum, Chunk, Multidata};
use checksum::Accumulator;
use core::net::IpAddr;
use wire::{Icmpv4Repr, Icmpv6Repr, Ipv4Repr, Ipv6Repr};

/// An error over IPv4 quotes as much as fits a datagram every host takes (RFC 1812, 4.3.2.3).
const QUOTATION_MAX_IPV4_BYTES: usize = 576 - Ipv4Repr::LEN - Icmpv4Repr::LEN;

/// An error over IPv6 quotes as much as fits the MTU every link has (RFC 4443, 2.4 c).
const QUOTATION_MAX_IPV6_BYTES: usize = 1280 - Ipv6Repr::LEN - Icmpv6Repr::LEN;

/// Adds the answer to an echo request to the batch, in the ICMP of the family of `to`, whom it
/// goes to. `data` is the request's data (RFC 1122, 3.2.2.6: all of it MUST be returned). Says
/// whether there was room; where not, the batch has not changed.
#[must_use]
pub fn push_echo_reply(batch: &mut Multidata, to: IpAddr, request: &Echo, data: &Chunk) -> bool {
    let (identifier, sequence) = (request.identifier, request.sequence);
    match to {
        IpAddr::V4(_) => {
            let header = Icmpv4Repr::EchoReply { identifier, sequence };
            push_ipv4(batch, header, data, data.len())
        }
        IpAddr::V6(_) => {
            let header = Icmpv6Repr::EchoReply { identifier, sequence };
            push_ipv6(batch, header, data, data.len())
        }
    }
}

/// Adds an error about a received packet to the batch; it goes to the packet's source. `offending`
/// holds the packet from its IP header on and is quoted as far as an error may be long. Says
/// whether there was room; where not, or where `offending` is no packet, the batch has not
/// changed.
///
/// Whether an error may be sent at all is asked before:
/// [`may_answer_with_error`](crate::may_answer_with_error).
#[must_use]
pub fn push_error(batch: &mut Multidata, kind: IcmpErrorKind, offending: &Chunk) -> bool {
    let packet = offending.bytes();
    let Ok(info) = parse_fixed(packet) else { return false };
    let len = packet.len().min(info.total_len);
    if info.source.is_ipv4() {
        let len = len.min(QUOTATION_MAX_IPV4_BYTES);
        push_ipv4(batch, error_ipv4(kind), offending, len)
    } else {
        let len = len.min(QUOTATION_MAX_IPV6_BYTES);
        push_ipv6(batch, error_ipv6(kind, packet), offending, len)
    }
}

fn error_ipv4(kind: IcmpErrorKind) -> Icmpv4Repr {
    let unreachable = |code| Icmpv4Repr::DestinationUnreachable { code, next_hop_mtu: 0 };
    match kind {
        IcmpErrorKind::NetUnreachable => unreachable(Icmpv4Repr::CODE_NET),
        IcmpErrorKind::HostUnreachable => unreachable(Icmpv4Repr::CODE_HOST),
        IcmpErrorKind::SourceRouteFailed => unreachable(5),
        IcmpErrorKind::HostUnknown => unreachable(7),
        IcmpErrorKind::SourceIsolated => unreachable(8),
        IcmpErrorKind::ProtocolUnreachable => unreachable(Icmpv4Repr::CODE_PROTOCOL),
        IcmpErrorKind::PortUnreachable => unreachable(Icmpv4Repr::CODE_PORT),
        // RFC 1812, 5.2.7.1: communication administratively prohibited.
        IcmpErrorKind::Prohibited => unreachable(13),
        IcmpErrorKind::PacketTooBig { mtu_bytes } => Icmpv4Repr::DestinationUnreachable {
            code: Icmpv4Repr::CODE_FRAGMENTATION_NEEDED,
            next_hop_mtu: u16::try_from(mtu_bytes).unwrap_or(u16::MAX),
        },
        IcmpErrorKind::TimeExceeded => Icmpv4Repr::TimeExceeded { code: 0 },
        IcmpErrorKind::ReassemblyTimeExceeded => Icmpv4Repr::TimeExceeded { code: 1 },
        IcmpErrorKind::ParameterProblem { pointer }
        | IcmpErrorKind::UnrecognisedOption { pointer } => Icmpv4Repr::ParameterProblem {
            code: 0,
            pointer: u8::try_from(pointer).unwrap_or(u8::MAX),
        },
        IcmpErrorKind::HeaderChainIncomplete => {
            Icmpv4Repr::ParameterProblem { code: 0, pointer: 0 }
        }
    }
}

fn error_ipv6(kind: IcmpErrorKind, packet: &[u8]) -> Icmpv6Repr {
    let unreachable = |code| Icmpv6Repr::DestinationUnreachable { code };
    match kind {
        IcmpErrorKind::NetUnreachable | IcmpErrorKind::SourceIsolated => {
            unreachable(Icmpv6Repr::CODE_NO_ROUTE)
        }
        IcmpErrorKind::HostUnreachable | IcmpErrorKind::HostUnknown => {
            unreachable(Icmpv6Repr::CODE_ADDRESS)
        }
        // RFC 6554, 3.
        IcmpErrorKind::SourceRouteFailed => unreachable(7),
        // RFC 4443, 3.4: an unrecognised next header, with a pointer to the field that names it.
        IcmpErrorKind::ProtocolUnreachable => {
            let pointer = u32::try_from(protocol_named_at(packet)).unwrap_or(u32::MAX);
            Icmpv6Repr::ParameterProblem { code: 1, pointer }
        }
        IcmpErrorKind::PortUnreachable => unreachable(Icmpv6Repr::CODE_PORT),
        IcmpErrorKind::Prohibited => unreachable(Icmpv6Repr::CODE_PROHIBITED),
        IcmpErrorKind::PacketTooBig { mtu_bytes } => {
            Icmpv6Repr::PacketTooBig { mtu: u32::try_from(mtu_bytes).unwrap_or(u32::MAX) }
        }
        IcmpErrorKind::TimeExceeded => Icmpv6Repr::TimeExceeded { code: 0 },
        IcmpErrorKind::ReassemblyTimeExceeded => Icmpv6Repr::TimeExceeded { code: 1 },
        IcmpErrorKind::ParameterProblem { pointer } => {
            Icmpv6Repr::ParameterProblem { code: 0, pointer }
        }
        IcmpErrorKind::UnrecognisedOption { pointer } => {
            Icmpv6Repr::ParameterProblem { code: 2, pointer }
        }
        // RFC 8200, 4.5: with the pointer field set to zero.
        IcmpErrorKind::HeaderChainIncomplete => {
            Icmpv6Repr::ParameterProblem { code: 3, pointer: 0 }
        }
    }
}

fn push_ipv4(batch: &mut Multidata, header: Icmpv4Repr, data: &Chunk, data_len: usize) -> bool {
    let packets = batch.len();
    let Some(out) = batch.push_packet(Icmpv4Repr::LEN, Attributes::default()) else { return false };
    header.emit(out);
    let mut sum = Accumulator::default();
    sum.add(out);
    sum.add(data.bytes().get(..data_len).unwrap_or(&[]));
    let at = usize::from(Icmpv4Repr::CHECKSUM_OFFSET);
    out[at..at + 2].copy_from_slice(&sum.finish().to_be_bytes());
    append_or_take_back(batch, packets, data, data_len)
}

fn push_ipv6(batch: &mut Multidata, header: Icmpv6Repr, data: &Chunk, data_len: usize) -> bool {
    let checksum = Checksum::Missing { offset: Icmpv6Repr::CHECKSUM_OFFSET };
    let packets = batch.len();
    let attributes = Attributes { checksum, ..Attributes::default() };
    let Some(out) = batch.push_packet(Icmpv6Repr::LEN, attributes) else { return false };
    header.emit(out);
    append_or_take_back(batch, packets, data, data_len)
}

/// Gives the packet pushed last its data, or forgets the packet where the batch has no room.
fn append_or_take_back(batch: &mut Multidata, packets: usize, data: &Chunk, len: usize) -> bool {
    let appended = batch.append_span(data.block(), data.offset(), len);
    if !appended {
        batch.truncate(packets);
    }
    appended
}
