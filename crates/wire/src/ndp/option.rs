//! Options of neighbour discovery (RFC 4861, 4.6).

use crate::{HardwareAddress, Malformed};
use core::net::Ipv6Addr;

pub(super) const SOURCE_LINK: u8 = 1;
pub(super) const TARGET_LINK: u8 = 2;
const PREFIX: u8 = 3;
const MTU: u8 = 5;
const NAME_SERVERS: u8 = 25;

/// Options are measured in units of this many bytes.
const UNIT_BYTES: usize = 8;

/// Length of a hardware address option of Ethernet (RFC 2464, 6).
pub(super) const LINK_LEN: usize = 8;
/// Length of an MTU option.
pub(super) const MTU_LEN: usize = 8;
/// Length of a prefix information option.
pub(super) const PREFIX_LEN: usize = 32;

/// One option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NdpOption<'a> {
    /// The hardware address of the message's sender (4.6.1).
    SourceLink(HardwareAddress),
    /// The hardware address of the message's target (4.6.1).
    TargetLink(HardwareAddress),
    /// A prefix of the link (4.6.2).
    Prefix(PrefixInformation),
    /// The link's MTU in bytes (4.6.4).
    Mtu(u32),
    /// Recursive DNS servers (RFC 8106, 5.1).
    NameServers(NameServers),
    /// An option that means nothing here; receivers MUST ignore it and go on (4.6).
    Other {
        /// Its type.
        kind: u8,
        /// What follows type and length.
        body: &'a [u8],
    },
}

/// Walks the options of a message; ends at the first one that breaks the rules.
#[derive(Clone, Debug)]
pub struct NdpOptions<'a> {
    rest: &'a [u8],
}

impl<'a> NdpOptions<'a> {
    /// The options that lie in `bytes`, which end with the last of them.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    fn parse_next(&mut self) -> Result<NdpOption<'a>, Malformed> {
        let [kind, units, ..] = *self.rest else { return Err(Malformed::Truncated) };
        // 4.6: "Nodes MUST silently discard an ND packet that contains an option with length zero."
        if units == 0 {
            return Err(Malformed::BadOption);
        }
        let len = usize::from(units) * UNIT_BYTES;
        let (option, rest) = self.rest.split_at_checked(len).ok_or(Malformed::Truncated)?;
        self.rest = rest;
        let body = option.get(2..).unwrap_or_default();
        match kind {
            SOURCE_LINK => parse_link(body).map(NdpOption::SourceLink),
            TARGET_LINK => parse_link(body).map(NdpOption::TargetLink),
            PREFIX => PrefixInformation::parse(body).map(NdpOption::Prefix),
            MTU => parse_mtu(body).map(NdpOption::Mtu),
            NAME_SERVERS => NameServers::parse(body).map(NdpOption::NameServers),
            _ => Ok(NdpOption::Other { kind, body }),
        }
    }
}

impl<'a> Iterator for NdpOptions<'a> {
    type Item = Result<NdpOption<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let option = self.parse_next();
        if option.is_err() {
            self.rest = &[];
        }
        Some(option)
    }
}

fn parse_link(body: &[u8]) -> Result<HardwareAddress, Malformed> {
    <[u8; 6]>::try_from(body).map(HardwareAddress).map_err(|_| Malformed::BadOption)
}

fn parse_mtu(body: &[u8]) -> Result<u32, Malformed> {
    let [_, _, a, b, c, d] = *body else { return Err(Malformed::BadOption) };
    Ok(u32::from_be_bytes([a, b, c, d]))
}

/// Writes a hardware address option where there is an address, and returns its length.
pub(super) fn emit_link(out: &mut [u8], kind: u8, address: Option<HardwareAddress>) -> usize {
    let Some(address) = address else { return 0 };
    out[..2].copy_from_slice(&[kind, 1]);
    out[2..LINK_LEN].copy_from_slice(&address.0);
    LINK_LEN
}

/// Writes an MTU option and returns its length.
pub(super) fn emit_mtu(out: &mut [u8], mtu_bytes: u32) -> usize {
    out[..4].copy_from_slice(&[MTU, 1, 0, 0]);
    out[4..MTU_LEN].copy_from_slice(&mtu_bytes.to_be_bytes());
    MTU_LEN
}

/// A prefix of the link (RFC 4861, 4.6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixInformation {
    /// The prefix; bits beyond its length mean nothing.
    pub prefix: Ipv6Addr,
    /// Its length in bits, 0 to 128.
    pub prefix_len_bits: u8,
    /// L: addresses with this prefix are on the link.
    pub on_link: bool,
    /// A: hosts may make addresses of it (RFC 4862).
    pub autonomous: bool,
    /// How long the prefix is on the link, in seconds; all ones: for ever.
    pub valid_s: u32,
    /// How long addresses made of it are preferred, in seconds; all ones: for ever.
    pub preferred_s: u32,
}

impl PrefixInformation {
    const ZERO: Self = Self {
        prefix: Ipv6Addr::UNSPECIFIED,
        prefix_len_bits: 0,
        on_link: false,
        autonomous: false,
        valid_s: 0,
        preferred_s: 0,
    };

    fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let body: &[u8; PREFIX_LEN - 2] = body.try_into().map_err(|_| Malformed::BadOption)?;
        let [prefix_len_bits, flags, v0, v1, v2, v3, p0, p1, p2, p3, _, _, _, _, ..] = *body;
        if prefix_len_bits > 128 {
            return Err(Malformed::BadOption);
        }
        let octets: [u8; 16] = core::array::from_fn(|index| body[14 + index]);
        Ok(Self {
            prefix: octets.into(),
            prefix_len_bits,
            on_link: flags & 0x80 != 0,
            autonomous: flags & 0x40 != 0,
            valid_s: u32::from_be_bytes([v0, v1, v2, v3]),
            preferred_s: u32::from_be_bytes([p0, p1, p2, p3]),
        })
    }

    pub(super) fn emit(&self, out: &mut [u8]) -> usize {
        let flags = u8::from(self.on_link) << 7 | u8::from(self.autonomous) << 6;
        out[..4].copy_from_slice(&[PREFIX, 4, self.prefix_len_bits, flags]);
        out[4..8].copy_from_slice(&self.valid_s.to_be_bytes());
        out[8..12].copy_from_slice(&self.preferred_s.to_be_bytes());
        out[12..16].fill(0);
        out[16..PREFIX_LEN].copy_from_slice(&self.prefix.octets());
        PREFIX_LEN
    }
}

/// A few prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefixes {
    prefixes: [PrefixInformation; Self::COUNT_MAX],
    count: u8,
}

impl Prefixes {
    /// How many prefixes are kept.
    pub const COUNT_MAX: usize = 4;

    /// Adds a prefix and says whether there was room for it.
    #[must_use]
    pub fn push(&mut self, prefix: PrefixInformation) -> bool {
        let Some(slot) = self.prefixes.get_mut(usize::from(self.count)) else { return false };
        *slot = prefix;
        self.count += 1;
        true
    }

    /// The prefixes, in order.
    pub fn iter(&self) -> impl Iterator<Item = &PrefixInformation> {
        self.prefixes.iter().take(usize::from(self.count))
    }
}

impl Default for Prefixes {
    fn default() -> Self {
        Self { prefixes: [PrefixInformation::ZERO; Self::COUNT_MAX], count: 0 }
    }
}

/// A few recursive DNS servers with one lifetime (RFC 8106, 5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameServers {
    /// How long they may be used, in seconds; 0: no longer, all ones: for ever.
    pub lifetime_s: u32,
    addresses: [Ipv6Addr; Self::COUNT_MAX],
    count: u8,
}

impl NameServers {
    /// How many there is room for; RFC 8106, 5.3.1 recommends to keep three.
    pub const COUNT_MAX: usize = 3;

    /// Adds one and says whether there was room for it.
    #[must_use]
    pub fn push(&mut self, address: Ipv6Addr) -> bool {
        let Some(slot) = self.addresses.get_mut(usize::from(self.count)) else { return false };
        *slot = address;
        self.count += 1;
        true
    }

    /// Those that were added, in order.
    pub fn iter(&self) -> impl Iterator<Item = Ipv6Addr> + '_ {
        self.addresses.iter().copied().take(usize::from(self.count))
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Length of the option in bytes; none is emitted where there is no server.
    pub(super) fn emitted_len(&self) -> usize {
        if self.is_empty() { 0 } else { UNIT_BYTES + 16 * usize::from(self.count) }
    }

    pub(super) fn emit(&self, out: &mut [u8]) {
        if self.is_empty() {
            return;
        }
        let units = 1 + 2 * self.count;
        out[..4].copy_from_slice(&[NAME_SERVERS, units, 0, 0]);
        out[4..8].copy_from_slice(&self.lifetime_s.to_be_bytes());
        for (server, out) in self.iter().zip(out[8..].chunks_exact_mut(16)) {
            out.copy_from_slice(&server.octets());
        }
    }

    /// RFC 8106, 5.3.1: an option whose length is not that of whole addresses is invalid; servers
    /// beyond the bound are left out.
    fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let (fixed, rest) = body.split_first_chunk::<6>().ok_or(Malformed::BadOption)?;
        let [_, _, l0, l1, l2, l3] = *fixed;
        if rest.is_empty() || rest.len() % 16 != 0 {
            return Err(Malformed::BadOption);
        }
        let lifetime_s = u32::from_be_bytes([l0, l1, l2, l3]);
        let mut servers = Self { lifetime_s, ..Self::default() };
        for octets in rest.chunks_exact(16).take(Self::COUNT_MAX) {
            let octets: [u8; 16] = core::array::from_fn(|index| octets[index]);
            let _ = servers.push(octets.into());
        }
        Ok(servers)
    }
}

impl Default for NameServers {
    fn default() -> Self {
        Self { lifetime_s: 0, addresses: [Ipv6Addr::UNSPECIFIED; Self::COUNT_MAX], count: 0 }
    }
}
