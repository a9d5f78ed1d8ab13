//! Received messages: checked, and put in the words both families share.

use crate::{PacketInfo, parse_quoted, transport_checksum_ok};
use core::net::{IpAddr, SocketAddr};
use core::ops::Range;
use counters::DropReason;
use wire::{IcmpView, Icmpv4Repr, Icmpv6Repr, SeqNumber, ndp, protocol};

/// Every IPv4 link takes this much (RFC 791, 3.2).
const PATH_MTU_MIN_IPV4_BYTES: usize = 68;

/// Every IPv6 link takes this much (RFC 8200, 5).
const PATH_MTU_MIN_IPV6_BYTES: usize = 1280;

/// MTUs that links have had (RFC 1191, 7.1), for routers too old to say theirs.
const MTU_PLATEAUS_BYTES: [usize; 8] = [32_000, 17_914, 8_166, 4_352, 2_002, 1_492, 1_006, 552];

/// How much of the transport header an error quotes at least (RFC 792).
const QUOTED_TRANSPORT_LEN_MIN: usize = 8;

/// What a received message is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IcmpIncoming {
    /// Somebody wants the data back.
    EchoRequest(Echo),
    /// The data of one of our requests came back.
    EchoReply(Echo),
    /// A packet of ours met with trouble.
    Error(IcmpError),
    /// Neighbour discovery (RFC 4861): the whole message is the link layer's to read and to judge,
    /// its hop limit included.
    Ndp,
    /// Multicast listener discovery (RFC 3810), see [`crate::membership::GroupMessage`].
    Mld,
    /// A message that this stack has no use for. RFC 1122, 3.2.2: one of unknown type MUST be
    /// silently discarded; RFC 4443, 2.4 (b) says the same of informational ones.
    Other {
        /// Its type.
        kind: u8,
        /// Its code.
        code: u8,
    },
}

/// An echo request or reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Echo {
    /// Tells the asking program from others.
    pub identifier: u16,
    /// Tells its requests from each other.
    pub sequence: u16,
    /// Where the data lies in the message, in bytes.
    pub data: Range<usize>,
}

/// What became of a packet of ours, as somebody on the way says. It may be forged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpError {
    /// What happened.
    pub kind: IcmpErrorKind,
    /// To which packet.
    pub quoted: Quoted,
}

/// What happened to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IcmpErrorKind {
    /// No route to the network.
    NetUnreachable,
    /// The host does not answer, or is not there.
    HostUnreachable,
    /// The network does not know such a host.
    HostUnknown,
    /// The source of the packet is cut off from the network.
    SourceIsolated,
    /// The packet could not go the way that it asks for.
    SourceRouteFailed,
    /// The host does not speak the transport protocol.
    ProtocolUnreachable,
    /// Nobody listens on the port.
    PortUnreachable,
    /// A filter forbids it.
    Prohibited,
    /// The packet was longer than the next hop takes.
    PacketTooBig {
        /// Longest packet in bytes, IP header included; never below what a path must take.
        mtu_bytes: usize,
    },
    /// The hop limit ran out.
    TimeExceeded,
    /// Fragments were missing when the time to put them together ran out.
    ReassemblyTimeExceeded,
    /// A header field was not understood.
    ParameterProblem {
        /// Where in the packet, in bytes; at most 255 in IPv4.
        pointer: u32,
    },
    /// An IPv6 option was not understood that asks for an answer where it is not (RFC 8200, 4.2).
    UnrecognisedOption {
        /// Where in the packet, in bytes.
        pointer: u32,
    },
    /// The first fragment of an IPv6 packet did not hold all headers (RFC 7112, 5).
    HeaderChainIncomplete,
}

impl IcmpErrorKind {
    /// Whether trying again is pointless as long as the far end does not change: RFC 9293, 3.9.2.2
    /// calls these hard errors. They end an attempt to connect; in a synchronised state they are
    /// soft, since anybody can forge them (RFC 5927, 5.2).
    #[must_use]
    pub const fn is_hard(self) -> bool {
        matches!(self, Self::ProtocolUnreachable | Self::PortUnreachable | Self::Prohibited)
    }
}

/// The head of the packet an error is about, as far as a transport needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quoted {
    /// The transport protocol of the packet.
    pub protocol: u8,
    /// Whence it was sent: an address of ours, if we sent it at all. Port 0 where the protocol has
    /// none; the identifier of an echo request stands for one.
    pub local: SocketAddr,
    /// Where it was to go. Port 0 where the protocol has none; the sequence number of an echo request
    /// stands for one.
    pub remote: SocketAddr,
    /// The segment's sequence number, for TCP only.
    pub sequence: Option<SeqNumber>,
    /// It is an echo reply.
    pub is_echo_reply: bool,
}

/// Reads an ICMP message: `info` is that of its packet, `message` what lies behind the headers.
///
/// # Errors
/// * [`DropReason::UnknownProtocol`]: the packet is not the ICMP of its family.
/// * [`DropReason::IcmpChecksum`]: the checksum is wrong.
/// * [`DropReason::MalformedIcmp`]: too short, or an error that quotes no readable packet.
/// * [`DropReason::UnrelatedIcmp`]: an error that quotes a later fragment, which names no socket, or
///   an IPv6 path that is said to take less than every link takes.
pub fn parse_icmp(info: &PacketInfo, message: &[u8]) -> Result<IcmpIncoming, DropReason> {
    match (info.protocol, info.source) {
        (protocol::ICMP, IpAddr::V4(_)) => parse_ipv4(message),
        (protocol::ICMPV6, IpAddr::V6(_)) => parse_ipv6(info, message),
        _ => Err(DropReason::UnknownProtocol),
    }
}

fn parse_ipv4(message: &[u8]) -> Result<IcmpIncoming, DropReason> {
    use IcmpErrorKind as Kind;
    let view = IcmpView::parse(message).map_err(|_| DropReason::MalformedIcmp)?;
    if !view.checksum_ok() {
        return Err(DropReason::IcmpChecksum);
    }
    let data = Icmpv4Repr::LEN..message.len();
    let kind = match Icmpv4Repr::parse(&view) {
        Icmpv4Repr::EchoRequest { identifier, sequence } => {
            return Ok(IcmpIncoming::EchoRequest(Echo { identifier, sequence, data }));
        }
        Icmpv4Repr::EchoReply { identifier, sequence } => {
            return Ok(IcmpIncoming::EchoReply(Echo { identifier, sequence, data }));
        }
        Icmpv4Repr::Other { kind, code, .. } => return Ok(IcmpIncoming::Other { kind, code }),
        Icmpv4Repr::DestinationUnreachable { code, next_hop_mtu } => match code {
            Icmpv4Repr::CODE_PROTOCOL => Kind::ProtocolUnreachable,
            Icmpv4Repr::CODE_PORT => Kind::PortUnreachable,
            Icmpv4Repr::CODE_FRAGMENTATION_NEEDED => {
                Kind::PacketTooBig { mtu_bytes: path_mtu_ipv4(next_hop_mtu, view.body()) }
            }
            5 => Kind::SourceRouteFailed,
            7 => Kind::HostUnknown,
            8 => Kind::SourceIsolated,
            // RFC 1122, 3.2.2.1: 6 network unknown, 11 type of service. 9 is prohibited, but the whole network (as
            // hosts have it, Linux among them).
            Icmpv4Repr::CODE_NET | 6 | 9 | 11 => Kind::NetUnreachable,
            // RFC 1812, 5.2.7.1: 10 and 13 prohibited, 14 and 15 precedence.
            10 | 13..=15 => Kind::Prohibited,
            _ => Kind::HostUnreachable,
        },
        Icmpv4Repr::TimeExceeded { code: 1 } => Kind::ReassemblyTimeExceeded,
        Icmpv4Repr::TimeExceeded { .. } => Kind::TimeExceeded,
        Icmpv4Repr::ParameterProblem { pointer, .. } => {
            Kind::ParameterProblem { pointer: pointer.into() }
        }
    };
    quoted(view.body()).map(|quoted| IcmpIncoming::Error(IcmpError { kind, quoted }))
}

/// The MTU that a router reports, or where it is too old to do so (0) the next lower one that links
/// have had (RFC 1191, 5).
fn path_mtu_ipv4(next_hop_mtu: u16, body: &[u8]) -> usize {
    let mtu_bytes = match next_hop_mtu {
        0 => {
            let len = parse_quoted(body).map_or(0, |info| info.total_len);
            let lower = MTU_PLATEAUS_BYTES.into_iter().find(|plateau| *plateau < len);
            lower.unwrap_or(PATH_MTU_MIN_IPV4_BYTES)
        }
        mtu => usize::from(mtu),
    };
    mtu_bytes.max(PATH_MTU_MIN_IPV4_BYTES)
}

fn parse_ipv6(info: &PacketInfo, message: &[u8]) -> Result<IcmpIncoming, DropReason> {
    use IcmpErrorKind as Kind;
    if !transport_checksum_ok(info, message) {
        return Err(DropReason::IcmpChecksum);
    }
    let view = IcmpView::parse(message).map_err(|_| DropReason::MalformedIcmp)?;
    let data = Icmpv6Repr::LEN..message.len();
    let kind = match Icmpv6Repr::parse(&view) {
        Icmpv6Repr::EchoRequest { identifier, sequence } => {
            return Ok(IcmpIncoming::EchoRequest(Echo { identifier, sequence, data }));
        }
        Icmpv6Repr::EchoReply { identifier, sequence } => {
            return Ok(IcmpIncoming::EchoReply(Echo { identifier, sequence, data }));
        }
        Icmpv6Repr::Other { kind: ndp::ROUTER_SOLICITATION..=ndp::REDIRECT, .. } => {
            return Ok(IcmpIncoming::Ndp);
        }
        Icmpv6Repr::Other { kind: 130..=132 | 143, .. } => return Ok(IcmpIncoming::Mld),
        Icmpv6Repr::Other { kind, code, .. } => return Ok(IcmpIncoming::Other { kind, code }),
        Icmpv6Repr::DestinationUnreachable { code } => match code {
            Icmpv6Repr::CODE_NO_ROUTE => Kind::NetUnreachable,
            Icmpv6Repr::CODE_PORT => Kind::PortUnreachable,
            // 5: source address failed a policy, 6: reject route.
            Icmpv6Repr::CODE_PROHIBITED | 5 | 6 => Kind::Prohibited,
            // RFC 6554, 3: a routing header that cannot be followed; RFC 8883, 3: headers that are too long.
            7 | 8 => Kind::ParameterProblem { pointer: 0 },
            _ => Kind::HostUnreachable,
        },
        Icmpv6Repr::PacketTooBig { mtu } => {
            let mtu_bytes = usize::try_from(mtu).unwrap_or(usize::MAX);
            // RFC 8201, 4: it must discard a report of less than every link takes.
            if mtu_bytes < PATH_MTU_MIN_IPV6_BYTES {
                return Err(DropReason::UnrelatedIcmp);
            }
            Kind::PacketTooBig { mtu_bytes }
        }
        Icmpv6Repr::TimeExceeded { code: 1 } => Kind::ReassemblyTimeExceeded,
        Icmpv6Repr::TimeExceeded { .. } => Kind::TimeExceeded,
        Icmpv6Repr::ParameterProblem { code: 1, .. } => Kind::ProtocolUnreachable,
        Icmpv6Repr::ParameterProblem { code: 2, pointer } => Kind::UnrecognisedOption { pointer },
        Icmpv6Repr::ParameterProblem { code: 3, .. } => Kind::HeaderChainIncomplete,
        Icmpv6Repr::ParameterProblem { pointer, .. } => Kind::ParameterProblem { pointer },
    };
    quoted(view.body()).map(|quoted| IcmpIncoming::Error(IcmpError { kind, quoted }))
}

/// What an error's body says of the packet it is about.
fn quoted(body: &[u8]) -> Result<Quoted, DropReason> {
    let info = parse_quoted(body).map_err(|_| DropReason::MalformedIcmp)?;
    if info.fragment {
        return Err(DropReason::UnrelatedIcmp);
    }
    let (mut ports, mut sequence) = ((0, 0), None);
    if matches!(info.protocol, protocol::TCP | protocol::UDP) {
        // RFC 792: the header and the first 64 bits of the data.
        let head: &[u8; QUOTED_TRANSPORT_LEN_MIN] =
            info.transport(body).first_chunk().ok_or(DropReason::MalformedIcmp)?;
        let [a, b, c, d, rest @ ..] = *head;
        ports = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        if info.protocol == protocol::TCP {
            sequence = Some(SeqNumber(u32::from_be_bytes(rest)));
        }
    }
    // An error about an error is none; what else of ours is answered by errors are echo requests.
    if let [Icmpv4Repr::ECHO_REQUEST | Icmpv6Repr::ECHO_REQUEST, 0, _, _, a, b, c, d, ..] =
        *info.transport(body)
        && matches!(info.protocol, protocol::ICMP | protocol::ICMPV6)
    {
        ports = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    }
    let is_echo_reply = match info.protocol {
        protocol::ICMP => info.transport(body).first() == Some(&Icmpv4Repr::ECHO_REPLY),
        protocol::ICMPV6 => info.transport(body).first() == Some(&Icmpv6Repr::ECHO_REPLY),
        _ => false,
    };
    Ok(Quoted {
        protocol: info.protocol,
        local: SocketAddr::new(info.source, ports.0),
        remote: SocketAddr::new(info.destination, ports.1),
        sequence,
        is_echo_reply,
    })
}
