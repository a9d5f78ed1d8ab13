//! An address with the length of its network's prefix (RFC 4632).

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

/// An address and how many of its leading bits name the network.
///
/// As an interface's address the host bits matter ([`Cidr::address`]); as a route's destination
/// they are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cidr {
    address: IpAddr,
    prefix_len: u8,
}

impl Cidr {
    /// Every IPv4 address: the destination of a default route.
    pub const ANY_IPV4: Self = Self { address: IpAddr::V4(Ipv4Addr::UNSPECIFIED), prefix_len: 0 };

    /// Every IPv6 address: the destination of a default route.
    pub const ANY_IPV6: Self = Self { address: IpAddr::V6(Ipv6Addr::UNSPECIFIED), prefix_len: 0 };

    /// `None` where the prefix is longer than the address: 32 or 128 bits.
    #[must_use]
    pub const fn new(address: IpAddr, prefix_len: u8) -> Option<Self> {
        if prefix_len > bits_of(address) { None } else { Some(Self { address, prefix_len }) }
    }

    /// The network that holds this one address and no other.
    #[must_use]
    pub const fn host(address: IpAddr) -> Self {
        Self { address, prefix_len: bits_of(address) }
    }

    /// The address, host bits included.
    #[must_use]
    pub const fn address(&self) -> IpAddr {
        self.address
    }

    /// Length of the prefix in bits: at most 32 or 128.
    #[must_use]
    pub const fn prefix_len(&self) -> u8 {
        self.prefix_len
    }

    /// Whether the address belongs to this network. One of the other family never does.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                (u32::from(network) ^ u32::from(address)) & self.mask_ipv4() == 0
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                (u128::from(network) ^ u128::from(address)) & self.mask_ipv6() == 0
            }
            _ => false,
        }
    }

    /// The same network with its host bits zero.
    #[must_use]
    pub fn network(&self) -> Self {
        let address = match self.address {
            IpAddr::V4(address) => Ipv4Addr::from(u32::from(address) & self.mask_ipv4()).into(),
            IpAddr::V6(address) => Ipv6Addr::from(u128::from(address) & self.mask_ipv6()).into(),
        };
        Self { address, ..*self }
    }

    /// The address of all hosts of the network (RFC 919). `None` for IPv6, which has none, and for
    /// prefixes of 31 and 32 bits, whose every address is a host's (RFC 3021).
    #[must_use]
    pub fn broadcast(&self) -> Option<Ipv4Addr> {
        match self.address {
            IpAddr::V4(address) if self.prefix_len < 31 => {
                Some(Ipv4Addr::from(u32::from(address) | !self.mask_ipv4()))
            }
            _ => None,
        }
    }

    /// Whether a host can have the address: it is specified, no group, and does not stand for all hosts (RFC 1122,
    /// 3.2.1.3).
    #[must_use]
    pub fn is_hosts(&self) -> bool {
        let everybody = match self.address {
            IpAddr::V4(address) => address.is_broadcast() || self.broadcast() == Some(address),
            // Nothing is sent to such on the wire (RFC 4291, 2.5.5.2).
            IpAddr::V6(address) if address.to_ipv4_mapped().is_some() => return false,
            IpAddr::V6(_) => false,
        };
        !everybody && !self.address.is_unspecified() && !self.address.is_multicast()
    }

    fn mask_ipv4(&self) -> u32 {
        u32::MAX.checked_shl(32 - u32::from(self.prefix_len)).unwrap_or(0)
    }

    fn mask_ipv6(&self) -> u128 {
        u128::MAX.checked_shl(128 - u32::from(self.prefix_len)).unwrap_or(0)
    }
}

const fn bits_of(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.address, self.prefix_len)
    }
}

/// A text is not an address with a prefix length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotACidr;

impl fmt::Display for NotACidr {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(
            "not an address with a prefix length: write it like 10.0.0.1/24 or fd00::1/64",
        )
    }
}

impl std::error::Error for NotACidr {}

impl FromStr for Cidr {
    type Err = NotACidr;

    /// Reads `address/prefix_len`; an address alone is a network of its own.
    fn from_str(text: &str) -> Result<Self, NotACidr> {
        let Some((address, prefix_len)) = text.split_once('/') else {
            return text.parse().map(Self::host).map_err(|_| NotACidr);
        };
        // `u8::from_str` takes a plus sign, which is no part of the notation.
        if !prefix_len.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(NotACidr);
        }
        let address = address.parse().map_err(|_| NotACidr)?;
        Self::new(address, prefix_len.parse().map_err(|_| NotACidr)?).ok_or(NotACidr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cidr(text: &str) -> Cidr {
        text.parse().expect("a network")
    }

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn contains_what_shares_the_prefix() {
        assert!(cidr("10.1.2.3/24").contains(address("10.1.2.255")));
        assert!(!cidr("10.1.2.3/24").contains(address("10.1.3.3")));
        assert!(cidr("10.1.2.3/32").contains(address("10.1.2.3")));
        assert!(!cidr("10.1.2.3/32").contains(address("10.1.2.2")));
        assert!(cidr("0.0.0.0/0").contains(address("255.0.0.1")));
        assert!(!cidr("0.0.0.0/0").contains(address("::")));
        assert!(cidr("fd00::1/64").contains(address("fd00::ffff:ffff:ffff:ffff")));
        assert!(!cidr("fd00::1/64").contains(address("fd00:0:0:1::1")));
        assert!(cidr("::/0").contains(address("2001:db8::1")));
        assert!(!cidr("::/0").contains(address("1.2.3.4")));
    }

    #[test]
    fn knows_its_network_and_broadcast_address() {
        assert_eq!(cidr("10.1.2.3/20").network().to_string(), "10.1.0.0/20");
        assert_eq!(cidr("fd00::1:2/112").network().to_string(), "fd00::1:0/112");
        assert_eq!(cidr("10.1.2.3/20").broadcast(), Some(Ipv4Addr::new(10, 1, 15, 255)));
        assert_eq!(cidr("10.1.2.3/0").broadcast(), Some(Ipv4Addr::BROADCAST));
        assert_eq!(cidr("10.1.2.2/31").broadcast(), None);
        assert_eq!(cidr("fd00::1/64").broadcast(), None);
    }

    #[test]
    fn refuses_what_is_no_network() {
        for text in ["", "/", "10.0.0.1/33", "fd00::1/129", "10.0.0.1/", "10.0.0/8", "1.2.3.4/+8"] {
            assert_eq!(text.parse::<Cidr>(), Err(NotACidr), "{text:?}");
        }
        assert_eq!(cidr("10.0.0.1").prefix_len(), 32);
        assert_eq!(cidr("::1").prefix_len(), 128);
    }

    proptest! {
        #[test]
        fn text_and_network_agree(v6 in any::<bool>(), bits in any::<u128>(), len in 0_u8..=128) {
            let address: IpAddr = if v6 {
                Ipv6Addr::from(bits).into()
            } else {
                Ipv4Addr::from(bits as u32).into()
            };
            let Some(cidr) = Cidr::new(address, len) else {
                prop_assert!(!v6 && len > 32);
                return Ok(());
            };
            prop_assert_eq!(cidr.to_string().parse(), Ok(cidr));
            prop_assert!(cidr.contains(address) && cidr.network().contains(address));
            prop_assert!(cidr.contains(cidr.network().address()));
        }
    }
}
