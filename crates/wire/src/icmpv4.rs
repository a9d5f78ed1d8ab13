//! The ICMP header for IPv4 (RFC 792, RFC 1191).
//!
//! [`Icmpv4Repr`] is the value of the 8 bytes of header ([`IcmpView`]). The checksum covers header and
//! body without a pseudo-header; [`Icmpv4Repr::emit`] leaves it zero, because the body may lie
//! elsewhere.

use crate::IcmpView;

/// An ICMP header as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Icmpv4Repr {
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
    /// A packet could not be delivered.
    DestinationUnreachable {
        /// Why: one of [`Icmpv4Repr`]'s `CODE_` constants or another.
        code: u8,
        /// With [`Icmpv4Repr::CODE_FRAGMENTATION_NEEDED`] the next hop's MTU in bytes, 0 from
        /// routers older than RFC 1191; unused (0) with all other codes.
        next_hop_mtu: u16,
    },
    /// A packet's hop limit, or the time to put its fragments together, ran out.
    TimeExceeded {
        /// 0: hop limit, 1: reassembly.
        code: u8,
    },
    /// A packet's header was not understood.
    ParameterProblem {
        /// 0: the pointer is valid.
        code: u8,
        /// Where in the packet the fault lies, in bytes.
        pointer: u8,
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

impl Icmpv4Repr {
    /// Length of the header in bytes.
    pub const LEN: usize = 8;

    /// Bytes from the start of the header to the checksum field.
    pub const CHECKSUM_OFFSET: u8 = 2;

    /// Type of an echo reply.
    pub const ECHO_REPLY: u8 = 0;
    /// Type of a destination-unreachable error.
    pub const DESTINATION_UNREACHABLE: u8 = 3;
    /// Type of a source quench: deprecated, ignored (RFC 6633).
    pub const SOURCE_QUENCH: u8 = 4;
    /// Type of a redirect.
    pub const REDIRECT: u8 = 5;
    /// Type of an echo request.
    pub const ECHO_REQUEST: u8 = 8;
    /// Type of a time-exceeded error.
    pub const TIME_EXCEEDED: u8 = 11;
    /// Type of a parameter-problem error.
    pub const PARAMETER_PROBLEM: u8 = 12;

    /// Code of an unreachable network.
    pub const CODE_NET: u8 = 0;
    /// Code of an unreachable host.
    pub const CODE_HOST: u8 = 1;
    /// Code of a protocol that the host does not speak.
    pub const CODE_PROTOCOL: u8 = 2;
    /// Code of a port on which nobody listens.
    pub const CODE_PORT: u8 = 3;
    /// Code of a packet that was too long and must not be fragmented.
    pub const CODE_FRAGMENTATION_NEEDED: u8 = 4;

    /// The value of a header that was checked to be there.
    #[must_use]
    pub fn parse(view: &IcmpView<'_>) -> Self {
        let [kind, code, _, _, a, b, c, d] = *view.fixed;
        let (first, second) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        match (kind, code) {
            (Self::ECHO_REQUEST, 0) => Self::EchoRequest { identifier: first, sequence: second },
            (Self::ECHO_REPLY, 0) => Self::EchoReply { identifier: first, sequence: second },
            (Self::DESTINATION_UNREACHABLE, Self::CODE_FRAGMENTATION_NEEDED) => {
                Self::DestinationUnreachable { code, next_hop_mtu: second }
            }
            (Self::DESTINATION_UNREACHABLE, _) => {
                Self::DestinationUnreachable { code, next_hop_mtu: 0 }
            }
            (Self::TIME_EXCEEDED, _) => Self::TimeExceeded { code },
            (Self::PARAMETER_PROBLEM, _) => Self::ParameterProblem { code, pointer: a },
            _ => Self::Other { kind, code, rest: [a, b, c, d] },
        }
    }

    /// Writes the header to the front of `out`, with a checksum of zero.
    ///
    /// # Panics
    /// Where `out` is shorter than [`Icmpv4Repr::LEN`].
    pub fn emit(&self, out: &mut [u8]) {
        let pair = |first: u16, second: u16| {
            let ([a, b], [c, d]) = (first.to_be_bytes(), second.to_be_bytes());
            [a, b, c, d]
        };
        let (kind, code, rest) = match *self {
            Self::EchoRequest { identifier, sequence } => {
                (Self::ECHO_REQUEST, 0, pair(identifier, sequence))
            }
            Self::EchoReply { identifier, sequence } => {
                (Self::ECHO_REPLY, 0, pair(identifier, sequence))
            }
            Self::DestinationUnreachable { code, next_hop_mtu } => {
                (Self::DESTINATION_UNREACHABLE, code, pair(0, next_hop_mtu))
            }
            Self::TimeExceeded { code } => (Self::TIME_EXCEEDED, code, [0; 4]),
            Self::ParameterProblem { code, pointer } => {
                (Self::PARAMETER_PROBLEM, code, [pointer, 0, 0, 0])
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

    fn any_repr() -> impl Strategy<Value = Icmpv4Repr> {
        prop_oneof![
            any::<(u16, u16)>().prop_map(|(identifier, sequence)| Icmpv4Repr::EchoRequest {
                identifier,
                sequence
            }),
            any::<(u16, u16)>()
                .prop_map(|(identifier, sequence)| Icmpv4Repr::EchoReply { identifier, sequence }),
            any::<(u8, u16)>().prop_map(|(code, mtu)| Icmpv4Repr::DestinationUnreachable {
                code,
                next_hop_mtu: if code == Icmpv4Repr::CODE_FRAGMENTATION_NEEDED { mtu } else { 0 },
            }),
            any::<u8>().prop_map(|code| Icmpv4Repr::TimeExceeded { code }),
            any::<(u8, u8)>()
                .prop_map(|(code, pointer)| Icmpv4Repr::ParameterProblem { code, pointer }),
            (13_u8.., any::<(u8, [u8; 4])>()).prop_map(|(kind, (code, rest))| Icmpv4Repr::Other {
                kind,
                code,
                rest
            }),
        ]
    }

    #[test]
    fn reads_a_known_echo_request() {
        // `ping` with identifier 0x1234, sequence 1 and the data "abcd".
        let message = [8, 0, 0x21, 0x04, 0x12, 0x34, 0, 1, b'a', b'b', b'c', b'd'];
        let view = IcmpView::parse(&message).expect("a header is there");
        assert!(view.checksum_ok());
        assert_eq!(view.body(), b"abcd");
        let expected = Icmpv4Repr::EchoRequest { identifier: 0x1234, sequence: 1 };
        assert_eq!(Icmpv4Repr::parse(&view), expected);
        assert_eq!(IcmpView::parse(&message[..7]).err(), Some(Malformed::Truncated));
    }

    proptest! {
        #[test]
        fn parse_after_emit_is_identity(repr in any_repr()) {
            let mut out = [0xa5; Icmpv4Repr::LEN];
            repr.emit(&mut out);
            let view = IcmpView::parse(&out).expect("a header is there");
            prop_assert_eq!(Icmpv4Repr::parse(&view), repr);
        }

        #[test]
        fn arbitrary_bytes_never_panic(message in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(view) = IcmpView::parse(&message) {
                let _ = (Icmpv4Repr::parse(&view), view.checksum_ok());
            }
        }
    }
}
