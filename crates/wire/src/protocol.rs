//! Numbers of the protocols that follow an IP header (IANA, "Assigned Internet Protocol Numbers").

/// IPv6 hop-by-hop options (RFC 8200, 4.3).
pub const HOP_BY_HOP: u8 = 0;
/// ICMP for IPv4 (RFC 792).
pub const ICMP: u8 = 1;
/// IGMP (RFC 3376).
pub const IGMP: u8 = 2;
/// TCP (RFC 9293).
pub const TCP: u8 = 6;
/// UDP (RFC 768).
pub const UDP: u8 = 17;
/// IPv6 routing header (RFC 8200, 4.4).
pub const ROUTING: u8 = 43;
/// IPv6 fragment header (RFC 8200, 4.5).
pub const FRAGMENT: u8 = 44;
/// ICMP for IPv6 (RFC 4443).
pub const ICMPV6: u8 = 58;
/// Nothing follows (RFC 8200, 4.7).
pub const NO_NEXT_HEADER: u8 = 59;
/// IPv6 destination options (RFC 8200, 4.6).
pub const DESTINATION_OPTIONS: u8 = 60;
