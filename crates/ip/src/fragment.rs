//! What a received fragment says of itself (RFC 791, 3.2; RFC 8200, 4.5).
//!
//! [`parse`](crate::parse) refuses fragments by name; who wants them asks here. A [`Fragment`] is
//! checked as far as one fragment can be: its length, where it ends, and for the first one that
//! the headers are whole, so that no filter on the way was shown less than this host would see.

use crate::PacketInfo;
use crate::icmp::IcmpErrorKind;
use crate::parse::{
    Upper, Walk, check_addresses_ipv6, checked_ipv4, info_ipv4, info_ipv6, reason, version,
    walk_extensions, walk_from,
};
use core::ops::Range;
use counters::DropReason;
use wire::{
    Icmpv4Repr, Ipv6FragmentRepr, Ipv6Repr, Ipv6View, TCP_HEADER_LEN_MIN, UdpRepr, protocol,
};

/// Longest datagram in bytes, IPv4 header included, or for IPv6 what follows the fixed header.
pub(crate) const DATAGRAM_LEN_MAX: usize = 65_535;

/// Where an IPv6 header holds the length of what follows it.
const IPV6_PAYLOAD_LENGTH_AT: u32 = 4;

/// Where an IPv6 fragment header holds the offset.
const FRAGMENT_OFFSET_AT: usize = 2;

/// A fragment as its headers tell it. Offsets and lengths are in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// As of any packet; `fragment` is set where this is not the first one.
    pub info: PacketInfo,
    /// The identification of the datagram, together with its addresses and, in IPv4, its protocol.
    pub identification: u32,
    /// Where its data lies in the datagram's.
    pub offset: usize,
    /// Another fragment follows.
    pub more: bool,
    /// Its data in the packet.
    pub data: Range<usize>,
    /// Length of the headers that every fragment repeats, an IPv6 fragment header left out.
    pub(crate) repeated_len: usize,
    /// IPv6: where in the repeated headers the fragment header is named.
    pub(crate) named_at: usize,
}

impl Fragment {
    /// Where its data ends in the datagram's.
    #[must_use]
    pub fn end(&self) -> usize {
        self.offset + self.data.len()
    }
}

/// A fragment that is refused, and what its sender should hear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedFragment {
    /// Why.
    pub reason: DropReason,
    /// The ICMP error that RFC 8200, 4.5 has the sender told, where it does.
    pub answer: Option<IcmpErrorKind>,
}

impl From<DropReason> for RefusedFragment {
    fn from(reason: DropReason) -> Self {
        Self { reason, answer: None }
    }
}

/// Reads a packet that [`parse`](crate::parse) has called a fragment.
///
/// # Errors
/// What [`parse`](crate::parse) finds wrong with any packet, and [`DropReason::Fragment`] for what
/// no fragment may be.
pub fn parse_fragment(packet: &[u8]) -> Result<Fragment, RefusedFragment> {
    match version(packet)? {
        4 => parse_ipv4(packet),
        6 => parse_ipv6(packet),
        _ => Err(DropReason::BadVersion.into()),
    }
}

fn parse_ipv4(packet: &[u8]) -> Result<Fragment, RefusedFragment> {
    let view = checked_ipv4(packet)?;
    let (offset, more) = (view.fragment_offset_bytes(), view.more_fragments());
    let info = PacketInfo { fragment: offset > 0, fragmented: true, ..info_ipv4(&view) };
    let data = view.header_len()..view.total_len();
    let fits = offset + view.total_len() <= DATAGRAM_LEN_MAX;
    if !fits || data.is_empty() || (more && !data.len().is_multiple_of(8)) {
        return Err(DropReason::Fragment.into());
    }
    // RFC 1858, 3: a first fragment that hides part of the transport header from filters, and one
    // that could overwrite what they saw (TCP flags lie in the second 8 bytes).
    let hides = offset == 0 && !has_whole_header(info.protocol, info.transport(packet));
    if hides || (offset == 8 && info.protocol == protocol::TCP) {
        return Err(DropReason::Fragment.into());
    }
    Ok(Fragment {
        info,
        identification: view.identification().into(),
        offset,
        more,
        data,
        repeated_len: view.header_len(),
        named_at: 0,
    })
}

fn parse_ipv6(packet: &[u8]) -> Result<Fragment, RefusedFragment> {
    let view = Ipv6View::parse(packet).map_err(reason)?;
    check_addresses_ipv6(&view, protocol::FRAGMENT)?;
    let before = walk_extensions(&view, Walk::Fragment)?;
    let header = view.payload().get(before.offset..).unwrap_or(&[]);
    let header = Ipv6FragmentRepr::parse(header).map_err(reason)?;
    if before.protocol != protocol::FRAGMENT || header.is_atomic() {
        return Err(DropReason::MalformedIp.into());
    }
    let behind = before.behind(header.next_header, Ipv6FragmentRepr::LEN);
    let repeated_len = Ipv6Repr::LEN + before.offset;
    let data = repeated_len + Ipv6FragmentRepr::LEN..Ipv6Repr::LEN + view.payload_len();
    let (offset, more) = (header.offset_bytes, header.more_fragments);
    let problem = |pointer| RefusedFragment {
        reason: DropReason::Fragment,
        answer: Some(IcmpErrorKind::ParameterProblem { pointer }),
    };
    // RFC 8200, 4.5: a length that is no multiple of 8 where more follow, pointing to the payload
    // length; a datagram longer than 65,535, pointing to the offset.
    if more && !data.len().is_multiple_of(8) {
        return Err(problem(IPV6_PAYLOAD_LENGTH_AT));
    }
    if before.offset + offset + data.len() > DATAGRAM_LEN_MAX {
        return Err(problem((repeated_len + FRAGMENT_OFFSET_AT) as u32));
    }
    if data.is_empty() {
        return Err(DropReason::Fragment.into());
    }
    if offset == 0 {
        check_header_chain(&view, behind)?;
    }
    let mut info = info_ipv6(&view, behind);
    (info.fragment, info.fragmented) = (offset > 0, true);
    Ok(Fragment {
        info,
        identification: header.identification,
        offset,
        more,
        data,
        repeated_len,
        named_at: before.named_at,
    })
}

/// RFC 8200, 4.5 and RFC 7112, 5: the first fragment holds all headers through the upper-layer one.
fn check_header_chain(view: &Ipv6View<'_>, behind: Upper) -> Result<(), RefusedFragment> {
    let incomplete = RefusedFragment {
        reason: DropReason::Fragment,
        answer: Some(IcmpErrorKind::HeaderChainIncomplete),
    };
    match walk_from(view.payload(), behind, Walk::Whole) {
        Ok(upper) => {
            let transport = view.payload().get(upper.offset..).unwrap_or(&[]);
            if has_whole_header(upper.protocol, transport) { Ok(()) } else { Err(incomplete) }
        }
        Err(DropReason::Truncated) => Err(incomplete),
        // A fragment of a fragment, or headers that no packet may have.
        Err(_) => Err(DropReason::MalformedIp.into()),
    }
}

/// Whether the header of a transport protocol that this host speaks is there in full.
fn has_whole_header(transport_protocol: u8, transport: &[u8]) -> bool {
    let len = match transport_protocol {
        protocol::TCP => {
            let words = transport.get(12).map_or(0, |byte| usize::from(byte >> 4));
            TCP_HEADER_LEN_MIN.max(words * 4)
        }
        protocol::UDP => UdpRepr::LEN,
        protocol::ICMP | protocol::ICMPV6 => Icmpv4Repr::LEN,
        _ => 0,
    };
    transport.len() >= len
}
