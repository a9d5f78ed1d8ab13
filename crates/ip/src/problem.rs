//! What is wrong with an IPv6 packet that [`parse`](crate::parse) refuses as malformed, where its
//! sender is to be told (RFC 8200, 4, 4.2 and 4.4).
//!
//! The way in does not pay for this: it is asked only of packets that are dropped anyway.

use crate::icmp::IcmpErrorKind;
use crate::parse::{EXTENSION_HEADERS_MAX, extension};
use core::net::Ipv6Addr;
use wire::{Ipv6FragmentRepr, Ipv6Repr, Ipv6View, protocol};

/// The ICMP error with which to answer a packet whose extension headers are not understood; `None`
/// where it is to be dropped in silence.
#[must_use]
pub fn parameter_problem(packet: &[u8]) -> Option<IcmpErrorKind> {
    let view = Ipv6View::parse(packet).ok()?;
    let (mut next, mut at) = (view.next_header(), 0);
    for position in 0..=EXTENSION_HEADERS_MAX {
        let rest = view.payload().get(at..)?;
        let header = match next {
            // RFC 8200, 4: "The same action should be taken if a node encounters a Next Header value of zero in any
            // header other than an IPv6 header" as for one that it does not know.
            protocol::HOP_BY_HOP if position > 0 => {
                return Some(IcmpErrorKind::ProtocolUnreachable);
            }
            protocol::HOP_BY_HOP | protocol::DESTINATION_OPTIONS => {
                let header = extension(rest).ok()?;
                if let Some((option_at, action)) = first_unknown_option(header) {
                    let pointer = (Ipv6Repr::LEN + at + option_at) as u32;
                    return is_answered(action, view.destination())
                        .then_some(IcmpErrorKind::UnrecognisedOption { pointer });
                }
                header
            }
            protocol::ROUTING => {
                let header = extension(rest).ok()?;
                if header[3] != 0 {
                    // RFC 8200, 4.4 and RFC 5095, 3: code 0, pointing to the routing type.
                    let pointer = (Ipv6Repr::LEN + at + 2) as u32;
                    return Some(IcmpErrorKind::ParameterProblem { pointer });
                }
                header
            }
            protocol::FRAGMENT => rest.get(..Ipv6FragmentRepr::LEN)?,
            _ => return None,
        };
        (next, at) = (header[0], at + header.len());
    }
    None
}

/// Where the first option lies that forbids its packet, and the two bits that say what to do.
fn first_unknown_option(header: &[u8]) -> Option<(usize, u8)> {
    let mut at = 2;
    // Every turn takes at least one byte of the header.
    while let Some(kind) = header.get(at) {
        if kind >> 6 != 0 {
            return Some((at, kind >> 6));
        }
        at += match kind {
            0 => 1,
            _ => 2 + usize::from(*header.get(at + 1)?),
        };
    }
    None
}

/// RFC 8200, 4.2: 01 discards in silence, 10 is answered, 11 is answered unless it was sent to many.
fn is_answered(action: u8, destination: Ipv6Addr) -> bool {
    action == 0b10 || (action == 0b11 && !destination.is_multicast())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(next_header: u8, destination: &str, behind: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; Ipv6Repr::LEN];
        let repr = Ipv6Repr {
            dscp_ecn: 0,
            flow_label: 0,
            payload_len: behind.len(),
            next_header,
            hop_limit: 64,
            source: "2001:db8::1".parse().expect("an address"),
            destination: destination.parse().expect("an address"),
        };
        repr.emit(&mut bytes);
        bytes.extend(behind);
        bytes
    }

    // RFC 8200, 4.2: the two highest bits of an option's type say what becomes of its packet.
    #[test]
    fn an_unknown_option_is_answered_as_its_type_asks() {
        let unknown = |kind| [protocol::UDP, 0, 0, kind, 1, 0, 1, 0];
        let answer =
            |kind, to| parameter_problem(&packet(protocol::HOP_BY_HOP, to, &unknown(kind)));
        let pointing = Some(IcmpErrorKind::UnrecognisedOption { pointer: 43 });
        assert_eq!(answer(0x3e, "2001:db8::2"), None, "skipped");
        assert_eq!(answer(0x7e, "2001:db8::2"), None, "discarded in silence");
        assert_eq!(answer(0xbe, "2001:db8::2"), pointing);
        assert_eq!(answer(0xbe, "ff02::1"), pointing);
        assert_eq!(answer(0xfe, "2001:db8::2"), pointing);
        assert_eq!(answer(0xfe, "ff02::1"), None);
    }

    // RFC 5095, 3: type 0 with segments left is treated as a type that is not known.
    #[test]
    fn a_source_route_is_answered_with_a_pointer_to_its_type() {
        let mut behind = vec![protocol::ROUTING, 0, 1, 4, 0, 0, 0, 0];
        behind.extend([protocol::UDP, 2, 0, 1, 0, 0, 0, 0]);
        behind.extend([0; 16]);
        let whole = packet(protocol::DESTINATION_OPTIONS, "2001:db8::2", &behind);
        let expected = Some(IcmpErrorKind::ParameterProblem { pointer: 40 + 8 + 2 });
        assert_eq!(parameter_problem(&whole), expected);
        behind[11] = 0;
        let whole = packet(protocol::DESTINATION_OPTIONS, "2001:db8::2", &behind);
        assert_eq!(parameter_problem(&whole), None, "no segments are left");
    }
}
