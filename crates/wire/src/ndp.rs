//! Neighbour discovery for IPv6 (RFC 4861): its five messages and their options.
//!
//! A message here is a whole ICMPv6 message, from its type on; the checksum, which covers the
//! pseudo-header too, belongs to the network layer, both ways. What RFC 4861 demands of a message
//! before anybody may act on it is checked in one place, [`NdpRepr::parse`], and because some of it
//! concerns the packet around the message, that packet's addresses come along ([`NdpEnvelope`]).
//!
//! ```text
//!  | type | 0 | checksum | 4 or 12 bytes of its own | addresses | options ... |
//!  option: | type | length in units of 8 bytes, never 0 | ... |
//! ```
//!
//! Options are walked at most once per 8 bytes of the message; unknown ones are passed over.

use crate::{HardwareAddress, Malformed};
use core::net::Ipv6Addr;

mod option;

pub use option::{NameServers, NdpOption, NdpOptions, PrefixInformation};
use option::{SOURCE_LINK, TARGET_LINK, emit_link};

/// ICMPv6 type of a router solicitation.
pub const ROUTER_SOLICITATION: u8 = 133;
/// ICMPv6 type of a router advertisement.
pub const ROUTER_ADVERTISEMENT: u8 = 134;
/// ICMPv6 type of a neighbour solicitation.
pub const NEIGHBOUR_SOLICITATION: u8 = 135;
/// ICMPv6 type of a neighbour advertisement.
pub const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
/// ICMPv6 type of a redirect.
pub const REDIRECT: u8 = 137;

/// The hop limit that every message is sent with and must arrive with: no router forwarded it, so
/// it comes from this link.
pub const NDP_HOP_LIMIT: u8 = 255;

/// The group in which a node listens for solicitations of its address (RFC 4291, 2.7.1).
#[must_use]
pub fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    Ipv6Addr::from([0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c])
}

/// The packet around a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NdpEnvelope {
    /// Source of the packet.
    pub source: Ipv6Addr,
    /// Destination of the packet.
    pub destination: Ipv6Addr,
    /// Hop limit the packet arrived with.
    pub hop_limit: u8,
}

/// A message as a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NdpRepr {
    /// A host asks for routers (RFC 4861, 4.1).
    RouterSolicitation {
        /// The sender's hardware address.
        source_link: Option<HardwareAddress>,
    },
    /// A router tells of itself and the link (RFC 4861, 4.2).
    RouterAdvertisement(RouterAdvertisement),
    /// Who has the target (RFC 4861, 4.3).
    NeighbourSolicitation {
        /// The address asked for.
        target: Ipv6Addr,
        /// The sender's hardware address.
        source_link: Option<HardwareAddress>,
    },
    /// The sender has the target (RFC 4861, 4.4).
    NeighbourAdvertisement {
        /// R: the sender is a router.
        router: bool,
        /// S: this answers a solicitation.
        solicited: bool,
        /// O: the address replaces one that is known.
        replaces: bool,
        /// The address told of.
        target: Ipv6Addr,
        /// The target's hardware address; an answer to a unicast solicitation may leave it out.
        target_link: Option<HardwareAddress>,
    },
    /// A router knows a better first hop (RFC 4861, 4.5).
    Redirect {
        /// The better first hop.
        target: Ipv6Addr,
        /// For which destination.
        destination: Ipv6Addr,
        /// The target's hardware address.
        target_link: Option<HardwareAddress>,
    },
}

/// What a router tells of itself and the link (RFC 4861, 4.2); by default nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouterAdvertisement {
    /// Hop limit for outgoing packets; 0: unspecified.
    pub hop_limit: u8,
    /// M: addresses are had by DHCPv6.
    pub managed: bool,
    /// O: other configuration is had by DHCPv6.
    pub other: bool,
    /// How the sender wants to be ranked among default routers (RFC 4191, 2.2).
    pub preference: RouterPreference,
    /// How long the sender is a default router, in seconds; 0: it is none.
    pub router_lifetime_s: u16,
    /// How long a confirmed neighbour is reachable, in milliseconds; 0: unspecified.
    pub reachable_ms: u32,
    /// Time between solicitations, in milliseconds; 0: unspecified.
    pub retransmit_ms: u32,
    /// The sender's hardware address.
    pub source_link: Option<HardwareAddress>,
    /// The link's MTU in bytes.
    pub mtu_bytes: Option<u32>,
    /// The link's prefixes, as many as there are options of them.
    pub prefixes: Vec<PrefixInformation>,
    /// Recursive DNS servers, those of each option (RFC 8106, 5.1).
    pub name_servers: Vec<NameServers>,
}

/// How a router wants to be ranked among default routers (RFC 4191, 2.1), the best last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum RouterPreference {
    /// Only where there is no other.
    Low,
    /// As routers that say nothing.
    #[default]
    Medium,
    /// Before all others.
    High,
}

impl RouterPreference {
    /// RFC 4191, 2.1 and 2.2: 10 is reserved and MUST be treated as if it were 00.
    const fn from_flags(flags: u8) -> Self {
        match flags >> 3 & 3 {
            0b01 => Self::High,
            0b11 => Self::Low,
            _ => Self::Medium,
        }
    }

    const fn to_flags(self) -> u8 {
        let bits: u8 = match self {
            Self::High => 0b01,
            Self::Medium => 0b00,
            Self::Low => 0b11,
        };
        bits << 3
    }
}

impl NdpRepr {
    /// The value of a message, where everything RFC 4861 demands of it holds, but for the
    /// checksum.
    ///
    /// # Errors
    /// [`Malformed::BadVersion`] where the type is none of the five, otherwise what
    /// RFC 4861, 6.1, 7.1 or 8.1 was broken.
    pub fn parse(message: &[u8], envelope: &NdpEnvelope) -> Result<Self, Malformed> {
        let (head, rest) = message.split_first_chunk().ok_or(Malformed::Truncated)?;
        let [kind, code, _, _] = *head;
        // 7.1.1: "The IP Hop Limit field has a value of 255 ... ICMP Code is 0", and so for the
        // other four messages.
        if envelope.hop_limit != NDP_HOP_LIMIT || code != 0 {
            return Err(Malformed::BadField);
        }
        match kind {
            ROUTER_SOLICITATION => Self::parse_router_solicitation(rest, envelope),
            ROUTER_ADVERTISEMENT => Self::parse_router_advertisement(rest, envelope),
            NEIGHBOUR_SOLICITATION => Self::parse_neighbour_solicitation(rest, envelope),
            NEIGHBOUR_ADVERTISEMENT => Self::parse_neighbour_advertisement(rest, envelope),
            REDIRECT => Self::parse_redirect(rest, envelope),
            _ => Err(Malformed::BadVersion),
        }
    }

    /// RFC 4861, 6.1.1.
    fn parse_router_solicitation(rest: &[u8], envelope: &NdpEnvelope) -> Result<Self, Malformed> {
        let (_reserved, options) = rest.split_first_chunk::<4>().ok_or(Malformed::Truncated)?;
        let source_link = Links::parse(options)?.source;
        // "If the IP source address is the unspecified address, there is no source link-layer
        // address option in the message."
        if envelope.source.is_unspecified() && source_link.is_some() {
            return Err(Malformed::BadOption);
        }
        Ok(Self::RouterSolicitation { source_link })
    }

    /// RFC 4861, 6.1.2.
    fn parse_router_advertisement(rest: &[u8], envelope: &NdpEnvelope) -> Result<Self, Malformed> {
        let (fixed, options) = rest.split_first_chunk::<12>().ok_or(Malformed::Truncated)?;
        // "IP Source Address is a link-local address."
        if !envelope.source.is_unicast_link_local() {
            return Err(Malformed::BadField);
        }
        let [hop_limit, flags, l0, l1, r0, r1, r2, r3, t0, t1, t2, t3] = *fixed;
        let mut advertisement = RouterAdvertisement {
            hop_limit,
            managed: flags & 0x80 != 0,
            other: flags & 0x40 != 0,
            preference: RouterPreference::from_flags(flags),
            router_lifetime_s: u16::from_be_bytes([l0, l1]),
            reachable_ms: u32::from_be_bytes([r0, r1, r2, r3]),
            retransmit_ms: u32::from_be_bytes([t0, t1, t2, t3]),
            source_link: None,
            mtu_bytes: None,
            prefixes: Vec::new(),
            name_servers: Vec::new(),
        };
        for option in NdpOptions::new(options) {
            match option? {
                NdpOption::SourceLink(address) => {
                    advertisement.source_link.get_or_insert(address);
                }
                NdpOption::Mtu(mtu_bytes) => {
                    advertisement.mtu_bytes.get_or_insert(mtu_bytes);
                }
                // 6.3.4: "for each" of them. The message's length bounds both.
                NdpOption::Prefix(prefix) => advertisement.prefixes.push(prefix),
                NdpOption::NameServers(servers) => advertisement.name_servers.push(servers),
                NdpOption::TargetLink(_) | NdpOption::Other { .. } => {}
            }
        }
        Ok(Self::RouterAdvertisement(advertisement))
    }

    /// RFC 4861, 7.1.1.
    fn parse_neighbour_solicitation(
        rest: &[u8],
        envelope: &NdpEnvelope,
    ) -> Result<Self, Malformed> {
        let (fixed, options) = rest.split_first_chunk::<20>().ok_or(Malformed::Truncated)?;
        let target = address(fixed, 4);
        // "Target Address is not a multicast address."
        if target.is_multicast() {
            return Err(Malformed::BadField);
        }
        let source_link = Links::parse(options)?.source;
        // "If the IP source address is the unspecified address, the IP destination address is a
        // solicited-node multicast address [and] there is no source link-layer address option."
        if envelope.source.is_unspecified() {
            if envelope.destination != solicited_node(target) {
                return Err(Malformed::BadField);
            }
            if source_link.is_some() {
                return Err(Malformed::BadOption);
            }
        }
        Ok(Self::NeighbourSolicitation { target, source_link })
    }

    /// RFC 4861, 7.1.2.
    fn parse_neighbour_advertisement(
        rest: &[u8],
        envelope: &NdpEnvelope,
    ) -> Result<Self, Malformed> {
        let (fixed, options) = rest.split_first_chunk::<20>().ok_or(Malformed::Truncated)?;
        let [flags, ..] = *fixed;
        let target = address(fixed, 4);
        let solicited = flags & 0x40 != 0;
        // "Target Address is not a multicast address. If the IP Destination Address is a multicast
        // address the Solicited flag is zero."
        if target.is_multicast() || (envelope.destination.is_multicast() && solicited) {
            return Err(Malformed::BadField);
        }
        let target_link = Links::parse(options)?.target;
        Ok(Self::NeighbourAdvertisement {
            router: flags & 0x80 != 0,
            solicited,
            replaces: flags & 0x20 != 0,
            target,
            target_link,
        })
    }

    /// RFC 4861, 8.1, but for the sender's being the current first hop, which the route table
    /// knows.
    fn parse_redirect(rest: &[u8], envelope: &NdpEnvelope) -> Result<Self, Malformed> {
        let (fixed, options) = rest.split_first_chunk::<36>().ok_or(Malformed::Truncated)?;
        let (target, destination) = (address(fixed, 4), address(fixed, 20));
        // "IP Source Address is a link-local address ... The ICMP Destination Address field does
        // not contain a multicast address. The ICMP Target Address is either a link-local address
        // (when redirected to a router) or the same as the ICMP Destination Address."
        if !envelope.source.is_unicast_link_local()
            || destination.is_multicast()
            || !(target.is_unicast_link_local() || target == destination)
        {
            return Err(Malformed::BadField);
        }
        let target_link = Links::parse(options)?.target;
        Ok(Self::Redirect { target, destination, target_link })
    }

    /// Length of the message in bytes.
    #[must_use]
    pub fn emitted_len(&self) -> usize {
        let of_link = |link: &Option<_>| if link.is_some() { option::LINK_LEN } else { 0 };
        match self {
            Self::RouterSolicitation { source_link } => 8 + of_link(source_link),
            Self::RouterAdvertisement(advertisement) => {
                let mtu_len = if advertisement.mtu_bytes.is_some() { option::MTU_LEN } else { 0 };
                let prefixes_len = advertisement.prefixes.len() * option::PREFIX_LEN;
                let servers = advertisement.name_servers.iter();
                let servers_len: usize = servers.map(NameServers::emitted_len).sum();
                16 + of_link(&advertisement.source_link) + mtu_len + prefixes_len + servers_len
            }
            Self::NeighbourSolicitation { source_link, .. } => 24 + of_link(source_link),
            Self::NeighbourAdvertisement { target_link, .. } => 24 + of_link(target_link),
            Self::Redirect { target_link, .. } => 40 + of_link(target_link),
        }
    }

    /// Writes the message to the front of `out`, the checksum left zero.
    ///
    /// # Panics
    /// Where `out` is shorter than [`NdpRepr::emitted_len`].
    pub fn emit(&self, out: &mut [u8]) {
        let out = &mut out[..self.emitted_len()];
        // Fields that are not written below are reserved, and the sender MUST send them as zero.
        out.fill(0);
        match self {
            Self::RouterSolicitation { source_link } => {
                out[0] = ROUTER_SOLICITATION;
                emit_link(&mut out[8..], SOURCE_LINK, *source_link);
            }
            Self::RouterAdvertisement(advertisement) => advertisement.emit(out),
            Self::NeighbourSolicitation { target, source_link } => {
                out[0] = NEIGHBOUR_SOLICITATION;
                out[8..24].copy_from_slice(&target.octets());
                emit_link(&mut out[24..], SOURCE_LINK, *source_link);
            }
            Self::NeighbourAdvertisement { router, solicited, replaces, target, target_link } => {
                out[0] = NEIGHBOUR_ADVERTISEMENT;
                out[4] =
                    u8::from(*router) << 7 | u8::from(*solicited) << 6 | u8::from(*replaces) << 5;
                out[8..24].copy_from_slice(&target.octets());
                emit_link(&mut out[24..], TARGET_LINK, *target_link);
            }
            Self::Redirect { target, destination, target_link } => {
                out[0] = REDIRECT;
                out[8..24].copy_from_slice(&target.octets());
                out[24..40].copy_from_slice(&destination.octets());
                emit_link(&mut out[40..], TARGET_LINK, *target_link);
            }
        }
    }
}

impl RouterAdvertisement {
    fn emit(&self, out: &mut [u8]) {
        out[0] = ROUTER_ADVERTISEMENT;
        out[4] = self.hop_limit;
        out[5] =
            u8::from(self.managed) << 7 | u8::from(self.other) << 6 | self.preference.to_flags();
        out[6..8].copy_from_slice(&self.router_lifetime_s.to_be_bytes());
        out[8..12].copy_from_slice(&self.reachable_ms.to_be_bytes());
        out[12..16].copy_from_slice(&self.retransmit_ms.to_be_bytes());
        let mut at = 16;
        at += emit_link(&mut out[at..], SOURCE_LINK, self.source_link);
        if let Some(mtu_bytes) = self.mtu_bytes {
            at += option::emit_mtu(&mut out[at..], mtu_bytes);
        }
        for prefix in &self.prefixes {
            at += prefix.emit(&mut out[at..]);
        }
        for servers in &self.name_servers {
            at += servers.emit(&mut out[at..]);
        }
    }
}

/// The hardware addresses among a message's options.
#[derive(Clone, Copy, Debug, Default)]
struct Links {
    source: Option<HardwareAddress>,
    target: Option<HardwareAddress>,
}

impl Links {
    /// Walks all options, so that a broken one refuses the message wherever it stands. Where one
    /// is repeated the first holds.
    fn parse(options: &[u8]) -> Result<Self, Malformed> {
        let mut links = Self::default();
        for option in NdpOptions::new(options) {
            match option? {
                NdpOption::SourceLink(address) => {
                    links.source.get_or_insert(address);
                }
                NdpOption::TargetLink(address) => {
                    links.target.get_or_insert(address);
                }
                NdpOption::Prefix(_)
                | NdpOption::Mtu(_)
                | NdpOption::NameServers(_)
                | NdpOption::Other { .. } => {}
            }
        }
        Ok(links)
    }
}

/// The address at `at` of a fixed part that holds it.
fn address<const LEN: usize>(fixed: &[u8; LEN], at: usize) -> Ipv6Addr {
    let octets: [u8; 16] = core::array::from_fn(|index| fixed[at + index]);
    Ipv6Addr::from(octets)
}

#[cfg(test)]
mod tests;
