//! What a received packet says of itself.
//!
//! [`parse`] checks everything that needs no knowledge of this host: lengths, the header checksum,
//! options and extension headers, and source addresses that nobody may have. Whether the
//! destination is ours, and whether a loopback address or our own may come in as a source, depends
//! on the interface and is asked above.
//!
//! What always holds of a [`PacketInfo`]: `header_len <= total_len`, and both addresses are of one
//! family. From [`parse`], `total_len` does not exceed the packet, and there is a whole datagram
//! behind the header.

use crate::pseudo_header;
use checksum::Accumulator;
use core::net::IpAddr;
use counters::DropReason;
use wire::{Ipv4View, Ipv6FragmentRepr, Ipv6Repr, Ipv6View, Malformed, UdpView, protocol};

/// How many extension headers are walked. Real packets have none or two; RFC 8200, 4.1 orders
/// seven at most.
pub(crate) const EXTENSION_HEADERS_MAX: usize = 8;

/// How many options other than padding a header may hold: the limit that RFC 8504, 5.3 suggests.
const OPTIONS_MAX: usize = 8;

/// Where the fixed IPv6 header names what follows it.
const IPV6_NEXT_HEADER_AT: usize = 6;

/// What is known of a received packet after its network header was read. Offsets and lengths are in
/// bytes and count from the start of the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketInfo {
    /// The sender.
    pub source: IpAddr,
    /// The receiver.
    pub destination: IpAddr,
    /// The transport protocol, see [`wire::protocol`].
    pub protocol: u8,
    /// Where the transport header begins: behind options and extension headers.
    pub header_len: usize,
    /// Where the packet ends. Bytes behind are padding of the link.
    pub total_len: usize,
    /// How many routers might still have forwarded the packet.
    pub hop_limit: u8,
    /// The traffic class, which IPv4 calls type of service: the differentiated services code point in the upper six
    /// bits (RFC 2474, 3), ECN in the lower two.
    pub traffic_class: u8,
    /// This is a later part of a datagram: there is no transport header in it. Only
    /// [`parse_quoted`] and [`parse_fixed`] yield it.
    pub fragment: bool,
    /// There were IPv4 options or IPv6 extension headers.
    pub has_options: bool,
    /// The packet has an IPv6 fragment header, or was put together from fragments of either family.
    pub fragmented: bool,
}

impl PacketInfo {
    /// The two ECN bits (RFC 3168, 5): 3 is "congestion experienced".
    #[must_use]
    #[inline]
    pub const fn ecn(&self) -> u8 {
        self.traffic_class & 3
    }

    /// Transport header and payload of the packet this was read from.
    #[must_use]
    pub fn transport<'a>(&self, packet: &'a [u8]) -> &'a [u8] {
        packet.get(self.header_len..self.total_len.min(packet.len())).unwrap_or(&[])
    }
}

/// Reads the network header of a received packet, IPv4 or IPv6 as its first byte says.
///
/// # Errors
/// * [`DropReason::Truncated`]: fewer bytes than the header says.
/// * [`DropReason::BadVersion`]: neither IPv4 nor IPv6.
/// * [`DropReason::MalformedIp`]: lengths that contradict each other, broken or unknown options
///   that forbid processing, source routes.
/// * [`DropReason::IpChecksum`]: the IPv4 header checksum is wrong.
/// * [`DropReason::BadSource`]: a multicast, broadcast or unspecified source; the last may ask who listens to
///   groups, and in a datagram for an address (RFC 1122, 3.2.1.3 (a)).
/// * [`DropReason::NotOurAddress`]: an IPv4-mapped IPv6 destination, which is nobody's.
/// * [`DropReason::Fragment`]: part of a datagram only, which is for
///   [`parse_fragment`](crate::parse_fragment) to read.
#[inline]
pub fn parse(packet: &[u8]) -> Result<PacketInfo, DropReason> {
    match version(packet)? {
        4 => parse_ipv4(packet),
        6 => parse_ipv6(packet),
        _ => Err(DropReason::BadVersion),
    }
}

/// Reads the network header of a packet that an ICMP error quotes: only its head is there, and
/// routers may have changed it, so neither its length nor its checksum is held against it.
/// Addresses are not judged either.
///
/// # Errors
/// As [`parse`], for what is left to check.
pub fn parse_quoted(packet: &[u8]) -> Result<PacketInfo, DropReason> {
    match version(packet)? {
        4 => {
            let view = Ipv4View::parse_quoted(packet).map_err(reason)?;
            Ok(PacketInfo { fragment: view.fragment_offset_bytes() > 0, ..info_ipv4(&view) })
        }
        6 => {
            let view = Ipv6View::parse_quoted(packet).map_err(reason)?;
            let upper = walk_extensions(&view, Walk::Quoted)?;
            // A quotation may end within the extension headers; the lengths still agree.
            Ok(info_ipv6(&view, upper))
        }
        _ => Err(DropReason::BadVersion),
    }
}

/// What the fixed header of a packet says: for packets whose options or extension headers cannot be
/// read, or are not to be judged. The `protocol` of an IPv6 packet is what lies behind its extension
/// headers whatever is wrong within them, so that nobody answers an ICMP error by mistake; it is that of
/// the first where they have no end.
///
/// # Errors
/// [`DropReason::Truncated`], [`DropReason::BadVersion`], [`DropReason::MalformedIp`].
pub fn parse_fixed(packet: &[u8]) -> Result<PacketInfo, DropReason> {
    match version(packet)? {
        4 => Ipv4View::parse_quoted(packet).map_err(reason).map(|view| info_ipv4(&view)),
        6 => {
            let view = Ipv6View::parse_quoted(packet).map_err(reason)?;
            let upper = walk_extensions(&view, Walk::Blind);
            Ok(info_ipv6(&view, upper.unwrap_or_else(|_| Upper::first(&view))))
        }
        _ => Err(DropReason::BadVersion),
    }
}

/// Whether the checksum of a TCP segment, UDP datagram or ICMPv6 message is right. `payload` is
/// what lies at `header_len..total_len` of the packet.
///
/// UDP's length may leave out the end of the packet; the checksum then does too. A UDP checksum of
/// zero means that there is none: over IPv4 that is right (RFC 768), over IPv6 the datagram must be
/// discarded (RFC 8200, 8.1).
#[must_use]
pub fn transport_checksum_ok(info: &PacketInfo, payload: &[u8]) -> bool {
    let mut covered = payload;
    if info.protocol == protocol::UDP
        && let Ok(view) = UdpView::parse(payload)
    {
        if view.checksum() == 0 {
            return info.source.is_ipv4();
        }
        covered = payload.get(..view.len()).unwrap_or(payload);
    }
    let mut sum = Accumulator::default();
    sum.add_u16(pseudo_header::sum(info.source, info.destination, info.protocol));
    sum.add_u32(u32::try_from(covered.len()).unwrap_or(u32::MAX));
    sum.add(covered);
    sum.sum() == 0xffff
}

pub(crate) fn version(packet: &[u8]) -> Result<u8, DropReason> {
    packet.first().map(|first| first >> 4).ok_or(DropReason::Truncated)
}

pub(crate) fn reason(malformed: Malformed) -> DropReason {
    match malformed {
        Malformed::Truncated => DropReason::Truncated,
        Malformed::BadVersion => DropReason::BadVersion,
        _ => DropReason::MalformedIp,
    }
}

fn parse_ipv4(packet: &[u8]) -> Result<PacketInfo, DropReason> {
    let view = checked_ipv4(packet)?;
    if view.is_fragment() {
        return Err(DropReason::Fragment);
    }
    Ok(info_ipv4(&view))
}

/// A header that may be believed, be it of a fragment or of a whole datagram. Each packet pays for
/// it, so it is part of both callers.
#[inline(always)]
pub(crate) fn checked_ipv4(packet: &[u8]) -> Result<Ipv4View<'_>, DropReason> {
    let view = Ipv4View::parse(packet).map_err(reason)?;
    // RFC 1122, 3.2.1.2: a host MUST verify the checksum of every datagram and silently discard
    // one that is wrong.
    if !view.checksum_ok() {
        return Err(DropReason::IpChecksum);
    }
    // RFC 1122, 3.2.1.3: a host MUST silently discard a datagram with an invalid source.
    let source = view.source();
    if source.is_multicast()
        || source.is_broadcast()
        || (source.is_unspecified() && !matches!(view.protocol(), protocol::IGMP | protocol::UDP))
    {
        return Err(DropReason::BadSource);
    }
    if !view.options().is_empty() {
        check_options_ipv4(view.options())?;
    }
    Ok(view)
}

#[inline]
pub(crate) fn info_ipv4(view: &Ipv4View<'_>) -> PacketInfo {
    PacketInfo {
        source: view.source().into(),
        destination: view.destination().into(),
        protocol: view.protocol(),
        header_len: view.header_len(),
        total_len: view.total_len(),
        hop_limit: view.hop_limit(),
        traffic_class: view.dscp_ecn(),
        fragment: false,
        has_options: !view.options().is_empty(),
        fragmented: false,
    }
}

/// Walks the options of an IPv4 header. They are ignored (RFC 1122, 3.2.1.8: a host MUST NOT drop
/// a datagram for an option it does not know), but for source routes, which let a sender steer
/// answers past a filter (RFC 7126, 4.3 and 4.4: drop by default).
fn check_options_ipv4(options: &[u8]) -> Result<(), DropReason> {
    const LOOSE_SOURCE_ROUTE: u8 = 131;
    const STRICT_SOURCE_ROUTE: u8 = 137;
    for option in wire::ipv4_options(options) {
        let (LOOSE_SOURCE_ROUTE | STRICT_SOURCE_ROUTE, _) = option.map_err(reason)? else {
            continue;
        };
        return Err(DropReason::MalformedIp);
    }
    Ok(())
}

fn parse_ipv6(packet: &[u8]) -> Result<PacketInfo, DropReason> {
    let view = Ipv6View::parse(packet).map_err(reason)?;
    let upper = walk_extensions(&view, Walk::Whole)?;
    check_addresses_ipv6(&view, upper.protocol)?;
    Ok(info_ipv6(&view, upper))
}

pub(crate) fn info_ipv6(view: &Ipv6View<'_>, upper: Upper) -> PacketInfo {
    let header_len = Ipv6Repr::LEN + upper.offset;
    PacketInfo {
        source: view.source().into(),
        destination: view.destination().into(),
        protocol: upper.protocol,
        header_len,
        total_len: header_len.max(Ipv6Repr::LEN + view.payload_len()),
        hop_limit: view.hop_limit(),
        traffic_class: view.dscp_ecn(),
        fragment: upper.fragment,
        has_options: upper.offset > 0,
        fragmented: upper.has_fragment_header,
    }
}

/// RFC 4291, 2.5.2 and 2.7: a multicast address must not be a source, and the unspecified one only
/// of hosts that do not have an address yet: duplicate address detection, which is ICMPv6.
///
/// IPv4-mapped addresses are never on the wire (RFC 6890, 2.2.3). As a source they would pass for an IPv4 peer; as a
/// destination, for an IPv4 host, this one's own loopback included, with whoever hands them to a socket of both
/// families.
pub(crate) fn check_addresses_ipv6(view: &Ipv6View<'_>, protocol: u8) -> Result<(), DropReason> {
    let source = view.source();
    let may_be_source = !source.is_multicast()
        && source.to_ipv4_mapped().is_none()
        && (!source.is_unspecified() || protocol == protocol::ICMPV6);
    if !may_be_source {
        return Err(DropReason::BadSource);
    }
    match view.destination().to_ipv4_mapped() {
        Some(_) => Err(DropReason::NotOurAddress),
        None => Ok(()),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Walk {
    Whole,
    Quoted,
    /// Past whatever options and routing headers say, and wherever they stand.
    Blind,
    /// To the fragment header: it is the `protocol` found.
    Fragment,
}

/// What lies behind the extension headers.
#[derive(Clone, Copy)]
pub(crate) struct Upper {
    pub(crate) protocol: u8,
    /// Bytes from the end of the fixed header.
    pub(crate) offset: usize,
    /// Where the field lies that names `protocol`, in bytes from the start of the packet.
    pub(crate) named_at: usize,
    fragment: bool,
    has_fragment_header: bool,
}

impl Upper {
    fn first(view: &Ipv6View<'_>) -> Self {
        Self {
            protocol: view.next_header(),
            offset: 0,
            named_at: IPV6_NEXT_HEADER_AT,
            fragment: false,
            has_fragment_header: false,
        }
    }

    /// What is known behind an extension header of `len` bytes that names `protocol` next.
    pub(crate) fn behind(self, protocol: u8, len: usize) -> Self {
        let named_at = Ipv6Repr::LEN + self.offset;
        Self { protocol, offset: self.offset + len, named_at, ..self }
    }
}

/// Where in an IPv6 packet the upper-layer protocol is named, in bytes; the place in the fixed
/// header where the extension headers are broken.
pub(crate) fn protocol_named_at(packet: &[u8]) -> usize {
    let view = Ipv6View::parse_quoted(packet).map_err(reason);
    view.and_then(|view| walk_extensions(&view, Walk::Quoted))
        .map_or(IPV6_NEXT_HEADER_AT, |upper| upper.named_at)
}

/// Walks the extension headers of an IPv6 packet (RFC 8200, 4) to the upper-layer header.
pub(crate) fn walk_extensions(view: &Ipv6View<'_>, walk: Walk) -> Result<Upper, DropReason> {
    walk_from(view.payload(), Upper::first(view), walk)
}

/// As [`walk_extensions`], from a header on that is known already.
pub(crate) fn walk_from(payload: &[u8], mut upper: Upper, walk: Walk) -> Result<Upper, DropReason> {
    for _ in 0..=EXTENSION_HEADERS_MAX {
        let rest = payload.get(upper.offset..).unwrap_or(&[]);
        match upper.protocol {
            // RFC 8200, 4.3: only directly behind the fixed header. Elsewhere it is to be treated as what nobody knows
            // (4), and whoever looks for where that is named finds it.
            protocol::HOP_BY_HOP if upper.offset > 0 && walk == Walk::Quoted => return Ok(upper),
            protocol::HOP_BY_HOP if upper.offset > 0 && walk != Walk::Blind => {
                return Err(DropReason::MalformedIp);
            }
            protocol::HOP_BY_HOP | protocol::DESTINATION_OPTIONS => {
                let header = extension(rest)?;
                if walk != Walk::Blind {
                    check_options_ipv6(header)?;
                }
                upper = upper.behind(header[0], header.len());
            }
            protocol::ROUTING => {
                let header = extension(rest)?;
                // RFC 8200, 4.4: with segments left a host that does not know the type must
                // discard; RFC 5095 deprecates the one type hosts knew. With none left any type
                // is ignored.
                if header[3] != 0 && walk != Walk::Blind {
                    return Err(DropReason::MalformedIp);
                }
                upper = upper.behind(header[0], header.len());
            }
            protocol::FRAGMENT => {
                let header = Ipv6FragmentRepr::parse(rest).map_err(reason)?;
                // RFC 6946, 4: an atomic fragment is processed apart from all fragments.
                match walk {
                    Walk::Whole if !header.is_atomic() => return Err(DropReason::Fragment),
                    Walk::Fragment if !header.is_atomic() => return Ok(upper),
                    _ => {}
                }
                upper = upper.behind(header.next_header, Ipv6FragmentRepr::LEN);
                upper.has_fragment_header = true;
                if header.offset_bytes > 0 {
                    return Ok(Upper { fragment: true, ..upper });
                }
            }
            _ => return Ok(upper),
        }
    }
    Err(DropReason::MalformedIp)
}

/// The extension header at the front of `bytes`: at least 8 bytes, in units of 8.
pub(crate) fn extension(bytes: &[u8]) -> Result<&[u8], DropReason> {
    let units = *bytes.get(1).ok_or(DropReason::Truncated)?;
    bytes.get(..8 + 8 * usize::from(units)).ok_or(DropReason::Truncated)
}

/// Walks the options of a hop-by-hop or destination options header (RFC 8200, 4.2). None is known
/// here but padding: unknown ones are skipped where their two high bits allow it (router alert is
/// of this kind) and forbid the packet otherwise (jumbo payload is).
fn check_options_ipv6(header: &[u8]) -> Result<(), DropReason> {
    const PAD_1: u8 = 0;
    const PAD_N: u8 = 1;
    let mut options = header.get(2..).unwrap_or(&[]);
    let mut count = 0;
    // Every turn takes at least one byte of the header.
    loop {
        let (kind, len) = match *options {
            [] => return Ok(()),
            [PAD_1, ref rest @ ..] => {
                options = rest;
                continue;
            }
            [kind, len, ..] => (kind, usize::from(len)),
            [_] => return Err(DropReason::MalformedIp),
        };
        options = options.get(2 + len..).ok_or(DropReason::MalformedIp)?;
        count += usize::from(kind != PAD_N);
        if kind >> 6 != 0 || count > OPTIONS_MAX {
            return Err(DropReason::MalformedIp);
        }
    }
}

#[cfg(test)]
mod tests;
