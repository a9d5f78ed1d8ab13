//! How this stack comes by its address: as the command line names it, or from the network.

use std::fmt;
use std::str::FromStr;

/// What `--address` may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddressArgument {
    /// This one.
    Fixed(ip::Cidr),
    /// An IPv4 address from a DHCP server.
    Dhcp,
    /// An IPv6 address formed from what a router says.
    Slaac,
}

impl AddressArgument {
    /// Whether the address is, or will be, one of IPv4.
    pub(crate) fn is_ipv4(self) -> bool {
        match self {
            Self::Fixed(cidr) => cidr.address().is_ipv4(),
            Self::Dhcp => true,
            Self::Slaac => false,
        }
    }

    /// The address, where the command line names it.
    pub(crate) fn fixed(self) -> Option<ip::Cidr> {
        match self {
            Self::Fixed(cidr) => Some(cidr),
            Self::Dhcp | Self::Slaac => None,
        }
    }
}

impl FromStr for AddressArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "dhcp" => Ok(Self::Dhcp),
            "slaac" => Ok(Self::Slaac),
            _ => match text.parse::<std::net::IpAddr>() {
                // It would be a network of this host alone, with nobody on it to talk to.
                Ok(address) => Err(format!(
                    "the length of the network's prefix is missing: write {address}/{}, or whatever the network \
                     has",
                    if address.is_ipv4() { 24 } else { 64 }
                )),
                Err(_) => text.parse().map(Self::Fixed).map_err(|error: ip::NotACidr| {
                    format!("{error}; or dhcp or slaac, to get one from the network")
                }),
            },
        }
    }
}

impl fmt::Display for AddressArgument {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(cidr) => cidr.fmt(formatter),
            Self::Dhcp => formatter.write_str("dhcp"),
            Self::Slaac => formatter.write_str("slaac"),
        }
    }
}
