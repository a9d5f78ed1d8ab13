//! When the answer must be silence.

use super::incoming::IcmpErrorKind;
use crate::PacketInfo;
use core::net::{IpAddr, Ipv4Addr};
use wire::{Icmpv4Repr, ndp, protocol};

/// How a packet came, as only the interface knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// The frame was a link-layer broadcast or multicast.
    pub link_multicast: bool,
    /// The destination is the broadcast address of a network of the interface
    /// ([`Cidr::broadcast`](crate::Cidr::broadcast)).
    pub directed_broadcast: bool,
    /// It has not left this host, of which a loopback address is one then.
    pub from_own_host: bool,
}

/// Whether a packet may be answered with an ICMP error of this kind (RFC 1122, 3.2.2; RFC 4443,
/// 2.4 e). `transport` is what lies behind its headers, as far as it is there.
#[must_use]
pub fn may_answer_with_error(
    info: &PacketInfo,
    transport: &[u8],
    kind: IcmpErrorKind,
    arrival: Arrival,
) -> bool {
    // RFC 1122: no error MUST be sent about a fragment other than the first. RFC 8200, 4.5 has the
    // source told of any fragment whose own headers are wrong.
    let about_header = matches!(
        kind,
        IcmpErrorKind::ParameterProblem { .. } | IcmpErrorKind::UnrecognisedOption { .. }
    );
    let about_fragment = info.source.is_ipv6() && about_header;
    if (info.fragment && !about_fragment)
        || !is_one_host(info.source, arrival)
        || is_icmp_error(info, transport)
    {
        return false;
    }
    let to_many = is_for_many(info.destination, arrival);
    // RFC 4443, 2.4 e 3: path MTU discovery works for multicast, too, and an option may ask for an
    // answer whatever its packet's destination (code 2).
    let exempt = info.source.is_ipv6()
        && matches!(
            kind,
            IcmpErrorKind::PacketTooBig { .. } | IcmpErrorKind::UnrecognisedOption { .. }
        );
    !to_many || exempt
}

/// Whether an echo request may be answered: not one to many hosts, which would make all of them
/// answer one forged source (RFC 1122, 3.2.2.6 allows the silence). RFC 4443, 4.2 says that those to an IPv6
/// group SHOULD be answered, and so hosts of a link are found (`ff02::1`): those of the link are, to which nobody
/// beyond it can send.
#[must_use]
pub fn may_answer_echo(info: &PacketInfo, arrival: Arrival) -> bool {
    let is_of_link = matches!(info.destination, IpAddr::V6(it) if it.octets()[..2] == [0xff, 2]);
    is_one_host(info.source, arrival) && (is_of_link || !is_for_many(info.destination, arrival))
}

fn is_for_many(destination: IpAddr, arrival: Arrival) -> bool {
    arrival.link_multicast
        || arrival.directed_broadcast
        || destination.is_multicast()
        || destination == IpAddr::V4(Ipv4Addr::BROADCAST)
}

/// RFC 1122, 3.2.2: no error about a datagram whose source does not define a single host: zero,
/// loopback, broadcast, multicast, class E. RFC 4443, 2.4 e 6 says the same for IPv6. Loopback is this host where the
/// packet is, too: only on a network it is whichever host hears it.
fn is_one_host(source: IpAddr, arrival: Arrival) -> bool {
    if source.is_loopback() {
        return arrival.from_own_host;
    }
    match source {
        IpAddr::V4(source) => {
            let [first, ..] = source.octets();
            first != 0 && first < 224
        }
        IpAddr::V6(source) => !source.is_unspecified() && !source.is_multicast(),
    }
}

/// Whether the packet is itself an ICMP error or redirect, or one that might be: too short to tell, a
/// later part of a message, or of a type this stack does not know to be harmless.
fn is_icmp_error(info: &PacketInfo, transport: &[u8]) -> bool {
    let kind = transport.first().copied();
    match info.protocol {
        protocol::ICMP => !matches!(
            kind,
            // Echo, router discovery, timestamp, information and address mask: all queries.
            Some(Icmpv4Repr::ECHO_REPLY | Icmpv4Repr::ECHO_REQUEST | 9 | 10 | 13..=18)
        ),
        protocol::ICMPV6 => {
            info.fragment || kind.is_none_or(|kind| kind < 128 || kind == ndp::REDIRECT)
        }
        _ => false,
    }
}
