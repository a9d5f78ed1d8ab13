//! The ICMP header for IPv6 (RFC 4443), errors and echo.
//!
//! [`Icmpv6Repr`] is the value of the 8 bytes of header ([`IcmpView`]). Types below 128 are errors, all
//! others informational (2.1). The checksum covers a pseudo-header that only the network layer knows,
//! so [`Icmpv6Repr::emit`] leaves it zero. The messages of neighbour discovery (RFC 4861) share the
//! first four bytes and have a module of their own.

use crate::IcmpView;

/// An ICMP header as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Icmpv6Repr {
    /// A packet could not be delivered.
    DestinationUnreachable {
        /// Why: one of [`Icmpv6Repr`]'s `CODE_` constants or another.
        code: u8,
    },
    /// A packet was longer than the next hop takes.
    PacketTooBig {
        /// The next hop's MTU in bytes.
        mtu: u32,
    },
    /// A packet's hop limit, or the time to put its fragments together, ran out.
    TimeExceeded {
        /// 0: hop limit, 1: reassembly.
        code: u8,
    },
    /// A packet's header was not understood.
    ParameterProblem {
        /// 0: erroneous field, 1: unrecognised next header, 2: unrecognised option.
        code: u8,
        /// Where in the packet the fault lies, in bytes.
        pointer: u32,
    },
    /// Asks the receiver to send the data back.
    EchoRequest {
        /// Tells the asking program from others.
        identifier: u16,
        /// Tells its requests from each other.
        sequence: u16,
    },
    /// The data, sent back.
    EchoReply {
        /// That of the request.
        identifier: u16,
        /// That of the request.
        sequence: u16,
    },
    /// Any other message.
    Other {
        /// Its type.
        kind: u8,
        /// Its code.
        code: u8,
        /// The other four bytes of its header.
        rest: [u8; 4],
    },
}

impl Icmpv6Repr {
    /// Length of the header in bytes.
    pub const LEN: usize = 8;

    /// Bytes from the start of the header to the checksum field.
    pub const CHECKSUM_OFFSET: u8 = 2;

    /// Type of a destination-unreachable error.
    pub const DESTINATION_UNREACHABLE: u8 = 1;
    /// Type of a packet-too-big error.
    pub const PACKET_TOO_BIG: u8 = 2;
    /// Type of a time-exceeded error.
    pub const TIME_EXCEEDED: u8 = 3;
    /// Type of a parameter-problem error.
    pub const PARAMETER_PROBLEM: u8 = 4;
    /// Type of an echo request.
    pub const ECHO_REQUEST: u8 = 128;
    /// Type of an echo reply.
    pub const ECHO_REPLY: u8 = 129;

    /// Code of a destination to which there is no route.
    pub const CODE_NO_ROUTE: u8 = 0;
    /// Code of a destination that is forbidden.
    pub const CODE_PROHIBITED: u8 = 1;
    /// Code of a destination beyond the scope of the source address.
    pub const CODE_BEYOND_SCOPE: u8 = 2;
    /// Code of an unreachable address.
    pub const CODE_ADDRESS: u8 = 3;
    /// Code of a port on which nobody listens.
    pub const CODE_PORT: u8 = 4;

    /// The value of a header that was checked to be there.
    #[must_use]
    pub fn parse(view: &IcmpView<'_>) -> Self {
        let [kind, code, _, _, a, b, c, d] = *view.fixed;
        let (first, second) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        let word = u32::from_be_bytes([a, b, c, d]);
        match (kind, code) {
            (Self::DESTINATION_UNREACHABLE, _) => Self::DestinationUnreachable { code },
            // RFC 4443, 3.2: the code is set to 0 by the sender and ignored by the receiver.
            (Self::PACKET_TOO_BIG, _) => Self::PacketTooBig { mtu: word },
            (Self::TIME_EXCEEDED, _) => Self::TimeExceeded { code },
            (Self::PARAMETER_PROBLEM, _) => Self::ParameterProblem { code, pointer: word },
            (Self::ECHO_REQUEST, 0) => Self::EchoRequest { identifier: first, sequence: second },
            (Self::ECHO_REPLY, 0) => Self::EchoReply { identifier: first, sequence: second },
            _ => Self::Other { kind, code, rest: [a, b, c, d] },
        }
    }

    /// Writes the header to the front of `out`, with a checksum of zero.
    ///
    /// # Panics
    /// Where `out` is shorter than [`Icmpv6Repr::LEN`].
    pub fn emit(&self, out: &mut [u8]) {
        let pair = |first: u16, second: u16| {
            let ([a, b], [c, d]) = (first.to_be_bytes(), second.to_be_bytes());
            [a, b, c, d]
        };
        let (kind, code, rest) = match *self {
            Self::DestinationUnreachable { code } => (Self::DESTINATION_UNREACHABLE, code, [0; 4]),
            Self::PacketTooBig { mtu } => (Self::PACKET_TOO_BIG, 0, mtu.to_be_bytes()),
            Self::TimeExceeded { code } => (Self::TIME_EXCEEDED, code, [0; 4]),
            Self::ParameterProblem { code, pointer } => {
                (Self::PARAMETER_PROBLEM, code, pointer.to_be_bytes())
            }
            Self::EchoRequest { identifier, sequence } => {
                (Self::ECHO_REQUEST, 0, pair(identifier, sequence))
            }
            Self::EchoReply { identifier, sequence } => {
                (Self::ECHO_REPLY, 0, pair(identifier, sequence))
            }
            Self::Other { kind, code, rest } => (kind, code, rest),
        };
        let [a, b, c, d] = rest;
        out[..Self::LEN].copy_from_slice(&[kind, code, 0, 0, a, b, c, d]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Malformed;
    use proptest::prelude::*;

    fn any_repr() -> impl Strategy<Value = Icmpv6Repr> {
        prop_oneof![
            any::<u8>().prop_map(|code| Icmpv6Repr::DestinationUnreachable { code }),
            any::<u32>().prop_map(|mtu| Icmpv6Repr::PacketTooBig { mtu }),
            any::<u8>().prop_map(|code| Icmpv6Repr::TimeExceeded { code }),
            any::<(u8, u32)>()
                .prop_map(|(code, pointer)| Icmpv6Repr::ParameterProblem { code, pointer }),
            any::<(u16, u16)>().prop_map(|(identifier, sequence)| Icmpv6Repr::EchoRequest {
                identifier,
                sequence
            }),
            any::<(u16, u16)>()
                .prop_map(|(identifier, sequence)| Icmpv6Repr::EchoReply { identifier, sequence }),
            (130_u8.., any::<(u8, [u8; 4])>()).prop_map(|(kind, (code, rest))| Icmpv6Repr::Other {
                kind,
                code,
                rest
            }),
        ]
    }

    #[test]
    fn reads_known_messages() {
        let message = [2, 0, 0xab, 0xcd, 0, 0, 0x05, 0x00, 0x60];
        let view = IcmpView::parse(&message).expect("a header is there");
        assert_eq!(Icmpv6Repr::parse(&view), Icmpv6Repr::PacketTooBig { mtu: 1280 });
        assert_eq!(view.body(), [0x60]);
        assert_eq!(IcmpView::parse(&message[..7]).err(), Some(Malformed::Truncated));
    }

    proptest! {
        #[test]
        fn parse_after_emit_is_identity(repr in any_repr()) {
            let mut out = [0xa5; Icmpv6Repr::LEN];
            repr.emit(&mut out);
            let view = IcmpView::parse(&out).expect("a header is there");
            prop_assert_eq!(Icmpv6Repr::parse(&view), repr);
        }

        #[test]
        fn arbitrary_bytes_never_panic(message in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(view) = IcmpView::parse(&message) {
                let _ = Icmpv6Repr::parse(&view);
            }
        }
    }
}
