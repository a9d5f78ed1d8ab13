//! Ethernet II frames (RFC 894, RFC 2464) and the addresses of their stations.
//!
//! ```text
//!  | destination: 6 bytes | source: 6 bytes | EtherType: 2 | payload, padded to 46 bytes ... |
//! ```
//!
//! A frame has no length field: the payload may be followed by padding, and whoever reads the
//! payload knows its length. The IEEE 802.3 form, where a length stands in place of the EtherType,
//! is parsed and its type number, below 1,536, belongs to no protocol spoken here.

use crate::Malformed;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Numbers in the type field of a frame (IANA, "IEEE 802 Numbers").
pub mod ether_type {
    /// IPv4 (RFC 894).
    pub const IPV4: u16 = 0x0800;
    /// ARP (RFC 826).
    pub const ARP: u16 = 0x0806;
    /// IPv6 (RFC 2464, 3).
    pub const IPV6: u16 = 0x86dd;
}

/// An EUI-48 hardware address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HardwareAddress(pub [u8; 6]);

impl HardwareAddress {
    /// The address of every station of the link.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// The address that no station has.
    pub const ZERO: Self = Self([0; 6]);

    /// Whether the address stands for several stations (broadcast included).
    #[must_use]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 == 1
    }

    /// Whether one station can have this address: it is neither a group nor zero.
    #[must_use]
    pub fn is_unicast(self) -> bool {
        !self.is_multicast() && self != Self::ZERO
    }

    /// Whether the address is a group that IPv4 or IPv6 multicast packets go to.
    #[must_use]
    pub const fn is_ip_multicast(self) -> bool {
        matches!(self.0, [0x33, 0x33, ..] | [0x01, 0x00, 0x5e, 0x00..=0x7f, ..])
    }

    /// Where packets to an IP multicast group go: no neighbour is asked. `None` for an address
    /// that is no group.
    #[must_use]
    pub fn of_ip_multicast(group: IpAddr) -> Option<Self> {
        match group {
            IpAddr::V4(group) if group.is_multicast() => Some(Self::of_ipv4_group(group)),
            IpAddr::V6(group) if group.is_multicast() => Some(Self::of_ipv6_group(group)),
            _ => None,
        }
    }

    /// RFC 1112, 6.4: 01:00:5e and the low 23 bits.
    fn of_ipv4_group(group: Ipv4Addr) -> Self {
        let [_, b, c, d] = group.octets();
        Self([0x01, 0x00, 0x5e, b & 0x7f, c, d])
    }

    /// RFC 2464, 7: 33:33 and the low 32 bits.
    fn of_ipv6_group(group: Ipv6Addr) -> Self {
        let [.., a, b, c, d] = group.octets();
        Self([0x33, 0x33, a, b, c, d])
    }
}

impl fmt::Display for HardwareAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, f] = self.0;
        write!(formatter, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}

/// Bytes that hold a link header.
#[derive(Clone, Copy, Debug)]
pub struct EthernetView<'a> {
    header: &'a [u8; EthernetRepr::LEN],
    payload: &'a [u8],
}

impl<'a> EthernetView<'a> {
    /// A frame without its check sequence.
    ///
    /// # Errors
    /// [`Malformed::Truncated`] where there are fewer than 14 bytes.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (header, payload) = bytes.split_first_chunk().ok_or(Malformed::Truncated)?;
        Ok(Self { header, payload })
    }

    /// Whom the frame is for.
    #[inline]
    #[must_use]
    pub fn destination(&self) -> HardwareAddress {
        let [a, b, c, d, e, f, ..] = *self.header;
        HardwareAddress([a, b, c, d, e, f])
    }

    /// Who sent the frame.
    #[inline]
    #[must_use]
    pub fn source(&self) -> HardwareAddress {
        let [_, _, _, _, _, _, a, b, c, d, e, f, ..] = *self.header;
        HardwareAddress([a, b, c, d, e, f])
    }

    /// The protocol of the payload, see [`ether_type`].
    #[inline]
    #[must_use]
    pub fn ether_type(&self) -> u16 {
        let [.., high, low] = *self.header;
        u16::from_be_bytes([high, low])
    }

    /// What follows the header, padding included.
    #[inline]
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// A link header as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EthernetRepr {
    /// Whom the frame is for.
    pub destination: HardwareAddress,
    /// Who sends the frame.
    pub source: HardwareAddress,
    /// The protocol of the payload, see [`ether_type`].
    pub ether_type: u16,
}

impl EthernetRepr {
    /// Length of the header in bytes.
    pub const LEN: usize = 14;

    /// The value of a checked header.
    #[inline]
    #[must_use]
    pub fn parse(view: &EthernetView<'_>) -> Self {
        Self {
            destination: view.destination(),
            source: view.source(),
            ether_type: view.ether_type(),
        }
    }

    /// The header's bytes.
    #[inline]
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..6].copy_from_slice(&self.destination.0);
        bytes[6..12].copy_from_slice(&self.source.0);
        bytes[12..].copy_from_slice(&self.ether_type.to_be_bytes());
        bytes
    }

    /// Writes the header to the front of `out`.
    ///
    /// # Panics
    /// Where `out` is shorter than [`EthernetRepr::LEN`].
    pub fn emit(&self, out: &mut [u8]) {
        out[..Self::LEN].copy_from_slice(&self.to_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn too_few_bytes_are_no_frame() {
        assert_eq!(EthernetView::parse(&[0; 13]).unwrap_err(), Malformed::Truncated);
        assert!(EthernetView::parse(&[0; 14]).expect("a bare header").payload().is_empty());
    }

    #[test]
    fn groups_map_to_hardware_addresses() {
        let of = |group: &str| {
            HardwareAddress::of_ip_multicast(group.parse().expect("an address"))
                .map(|address| address.to_string())
        };
        // RFC 1112, 6.4: the high bit of the second byte is lost.
        assert_eq!(of("224.129.2.3").as_deref(), Some("01:00:5e:01:02:03"));
        assert_eq!(of("ff02::1:ff12:3456").as_deref(), Some("33:33:ff:12:34:56"));
        assert_eq!(of("10.0.0.1"), None);
        assert_eq!(of("fe80::1"), None);
    }

    #[test]
    fn addresses_know_what_they_are() {
        assert!(HardwareAddress::BROADCAST.is_multicast());
        assert!(!HardwareAddress::BROADCAST.is_ip_multicast());
        assert!(HardwareAddress([1, 0, 0x5e, 0x7f, 0, 1]).is_ip_multicast());
        assert!(!HardwareAddress([1, 0, 0x5e, 0x80, 0, 1]).is_ip_multicast());
        assert!(!HardwareAddress::ZERO.is_unicast());
        assert!(HardwareAddress([2, 0, 0, 0, 0, 1]).is_unicast());
    }

    proptest! {
        #[test]
        fn what_was_emitted_parses_to_the_same(destination: [u8; 6], source: [u8; 6], ether_type: u16, payload: Vec<u8>) {
            let repr = EthernetRepr {
                destination: HardwareAddress(destination),
                source: HardwareAddress(source),
                ether_type,
            };
            let mut frame = vec![0; EthernetRepr::LEN];
            repr.emit(&mut frame);
            frame.extend(&payload);
            let view = EthernetView::parse(&frame).expect("long enough");
            prop_assert_eq!(EthernetRepr::parse(&view), repr);
            prop_assert_eq!(view.payload(), payload);
        }
    }
}
