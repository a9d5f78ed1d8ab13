//! Addresses as programs write them.

use crate::Errno;
use core::net::{Ipv6Addr, SocketAddr};

/// What stands in a `sockaddr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address {
    /// An IPv4 or IPv6 address with a port.
    Inet(SocketAddr),
    /// `AF_UNSPEC`: dissolves an association.
    Unspecified,
    /// Another family, or too short to be what it says.
    Other(u16),
}

impl Address {
    /// The address as the stack knows it, for a socket of `domain`: IPv4-mapped IPv6 addresses
    /// become IPv4, to which no way leads from one with IPV6_V6ONLY.
    pub(crate) fn for_domain(self, domain: Domain, ipv6_only: bool) -> Result<SocketAddr, Errno> {
        match (self, domain) {
            (Self::Inet(address @ SocketAddr::V4(_)), Domain::Inet) => Ok(address),
            (Self::Inet(address @ SocketAddr::V6(_)), Domain::Inet6) => {
                let address = stack::canonical(address);
                if address.is_ipv4() && ipv6_only { Err(Errno::ENETUNREACH) } else { Ok(address) }
            }
            (Self::Inet(SocketAddr::V4(_)), Domain::Inet6) => Err(Errno::EINVAL),
            _ => Err(Errno::EAFNOSUPPORT),
        }
    }

    /// The stack's address as a program with a socket of `domain` sees it.
    pub(crate) fn seen_from(domain: Domain, address: SocketAddr) -> Self {
        Self::Inet(match (domain, address) {
            (Domain::Inet6, SocketAddr::V4(address)) => {
                let ip: Ipv6Addr = address.ip().to_ipv6_mapped();
                SocketAddr::new(ip.into(), address.port())
            }
            _ => address,
        })
    }
}

/// The family a socket was made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Domain {
    Inet,
    Inet6,
}
