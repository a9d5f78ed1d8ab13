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
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// An option that means nothing here; receivers MUST ignore it and go on (4.6). One that contradicts itself is
    /// such a one, too, as long as where it ends is clear: what else the message says holds all the same (RFC 8106,
    /// 5.3.1 calls such an option invalid, and 6.1.2 no message for what is in them).
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
            _ => {
                let known = match kind {
                    PREFIX => PrefixInformation::parse(body).map(NdpOption::Prefix),
                    MTU => parse_mtu(body).map(NdpOption::Mtu),
                    NAME_SERVERS => NameServers::parse(body).map(NdpOption::NameServers),
                    _ => None,
                };
                Ok(known.unwrap_or(NdpOption::Other { kind, body }))
            }
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

fn parse_mtu(body: &[u8]) -> Option<u32> {
    let [_, _, a, b, c, d] = *body else { return None };
    Some(u32::from_be_bytes([a, b, c, d]))
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
    fn parse(body: &[u8]) -> Option<Self> {
        let body: &[u8; PREFIX_LEN - 2] = body.try_into().ok()?;
        let [prefix_len_bits, flags, v0, v1, v2, v3, p0, p1, p2, p3, _, _, _, _, ..] = *body;
        if prefix_len_bits > 128 {
            return None;
        }
        let octets: [u8; 16] = core::array::from_fn(|index| body[14 + index]);
        Some(Self {
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

/// Recursive DNS servers with one lifetime (RFC 8106, 5.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameServers {
    /// How long they may be used, in seconds; 0: no longer, all ones: for ever.
    pub lifetime_s: u32,
    /// Their addresses, at least one and at most 127.
    pub addresses: Vec<Ipv6Addr>,
}

impl NameServers {
    /// Length of the option in bytes.
    pub(super) fn emitted_len(&self) -> usize {
        UNIT_BYTES + 16 * self.addresses.len()
    }

    pub(super) fn emit(&self, out: &mut [u8]) -> usize {
        let units = 1 + 2 * self.addresses.len();
        out[..4].copy_from_slice(&[NAME_SERVERS, units as u8, 0, 0]);
        out[4..8].copy_from_slice(&self.lifetime_s.to_be_bytes());
        for (server, out) in self.addresses.iter().zip(out[8..].chunks_exact_mut(16)) {
            out.copy_from_slice(&server.octets());
        }
        self.emitted_len()
    }

    /// RFC 8106, 5.3.1: an option whose length is not that of whole addresses is invalid.
    fn parse(body: &[u8]) -> Option<Self> {
        let (fixed, rest) = body.split_first_chunk::<6>()?;
        let [_, _, l0, l1, l2, l3] = *fixed;
        let (addresses, rest) = rest.as_chunks::<16>();
        if addresses.is_empty() || !rest.is_empty() {
            return None;
        }
        let addresses = addresses.iter().map(|octets| Ipv6Addr::from(*octets)).collect();
        Some(Self { lifetime_s: u32::from_be_bytes([l0, l1, l2, l3]), addresses })
    }
}
