//! Echo requests and what answers them, for a [`RawSocket`](crate::RawSocket) with an echo identifier.

use crate::ReceivedPacket;
use ip::{IcmpErrorKind, IcmpIncoming, PacketInfo};
use std::net::IpAddr;
use wire::{Icmpv4Repr, Icmpv6Repr, protocol};

/// An echo request for `to`, in the ICMP of its family. The identifier is the socket's and the
/// checksum the stack's: both are zero here.
#[must_use]
pub fn echo_request(to: IpAddr, sequence: u16, data: &[u8]) -> Vec<u8> {
    let mut message = vec![0; Icmpv4Repr::LEN];
    match to {
        IpAddr::V4(_) => Icmpv4Repr::EchoRequest { identifier: 0, sequence }.emit(&mut message),
        IpAddr::V6(_) => Icmpv6Repr::EchoRequest { identifier: 0, sequence }.emit(&mut message),
    }
    message.extend_from_slice(data);
    message
}

/// What became of an echo request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EchoAnswer<'a> {
    /// The peer sent its data back.
    Reply {
        /// The number of the request.
        sequence: u16,
        /// The data.
        data: &'a [u8],
    },
    /// Somebody on the way, or the peer, says that it met with trouble.
    Error {
        /// The number of the request.
        sequence: u16,
        /// What happened to it.
        kind: IcmpErrorKind,
    },
}

impl<'a> EchoAnswer<'a> {
    /// Reads what a socket for echo requests received; `message` is all of it. `None` where it is
    /// something else, or does not have its length.
    #[must_use]
    pub fn parse(packet: &ReceivedPacket, message: &'a [u8]) -> Option<Self> {
        let &ReceivedPacket { source, destination, hop_limit, .. } = packet;
        let protocol = if source.is_ipv4() { protocol::ICMP } else { protocol::ICMPV6 };
        let info = PacketInfo {
            source,
            destination,
            protocol,
            header_len: 0,
            total_len: message.len(),
            hop_limit,
            traffic_class: 0,
            fragment: false,
            has_options: false,
            fragmented: false,
        };
        match ip::parse_icmp(&info, message).ok()? {
            IcmpIncoming::EchoReply(echo) => {
                Some(Self::Reply { sequence: echo.sequence, data: message.get(echo.data)? })
            }
            IcmpIncoming::Error(error) if error.quoted.protocol == protocol => {
                Some(Self::Error { sequence: error.quoted.remote.port(), kind: error.kind })
            }
            _ => None,
        }
    }
}
