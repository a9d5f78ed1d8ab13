//! What a frame says, read with parsers that are not this stack's own.
//!
//! The checker and the trace read frames here, so that a misreading in `wire` or `ip` cannot hide a
//! mistake that it makes. [`read`] refuses whatever is not a complete, consistent frame with right
//! checksums and says what is wrong with it; for an emitted frame that is a finding, for one that
//! arrives damaged it means that the stack must not believe it.

use core::fmt;
use core::net::{IpAddr, SocketAddr};
use etherparse::checksum::Sum16BitWords;
use etherparse::{
    IpNumber, LinkSlice, NetSlice, SlicedPacket, TcpOptionElement, TcpSlice, TransportSlice,
};

/// A frame.
#[derive(Clone, Debug)]
pub struct Packet<'a> {
    /// Destination and source station, where the medium has stations.
    pub stations: Option<([u8; 6], [u8; 6])>,
    /// What is in the frame.
    pub body: Body<'a>,
}

/// What is in a frame.
#[derive(Clone, Debug)]
pub enum Body<'a> {
    /// ARP.
    Arp(Arp),
    /// IP.
    Ip(Box<Ip<'a>>),
}

/// An ARP message for IPv4 over Ethernet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arp {
    /// 1 asks, 2 answers.
    pub operation: u16,
    /// Who speaks.
    pub sender: IpAddr,
    /// Who is asked for, or told.
    pub target: IpAddr,
}

/// An IP packet.
#[derive(Clone, Debug)]
pub struct Ip<'a> {
    /// From.
    pub source: IpAddr,
    /// To.
    pub destination: IpAddr,
    /// Header and payload in bytes.
    pub len: usize,
    /// Bytes of the frame behind the packet.
    pub trailer_len: usize,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// The ECN bits.
    pub ecn: u8,
    /// The flow label; `None` in IPv4.
    pub flow_label: Option<u32>,
    /// IPv4's "do not fragment"; always so in IPv6.
    pub dont_fragment: bool,
    /// It is a part of a datagram.
    pub fragment: bool,
    /// What it carries.
    pub transport: Transport<'a>,
}

/// What an IP packet carries.
#[derive(Clone, Debug)]
pub enum Transport<'a> {
    /// A TCP segment.
    Tcp(Segment<'a>),
    /// A UDP datagram.
    Udp {
        /// Source port.
        source: u16,
        /// Destination port.
        destination: u16,
        /// What it carries.
        payload: &'a [u8],
    },
    /// An ICMP or ICMPv6 message.
    Icmp {
        /// Type.
        kind: u8,
        /// Code.
        code: u8,
        /// Behind the first four bytes.
        rest: &'a [u8],
    },
    /// Something else, or a fragment.
    Other(u8),
}

/// A TCP segment.
#[derive(Clone, Debug)]
pub struct Segment<'a> {
    /// Sender.
    pub source: SocketAddr,
    /// Receiver.
    pub destination: SocketAddr,
    /// SEG.SEQ.
    pub sequence: u32,
    /// SEG.ACK.
    pub acknowledgment: u32,
    /// The flags byte.
    pub flags: u8,
    /// SEG.WND, unscaled.
    pub window: u16,
    /// Header in bytes.
    pub header_len: usize,
    /// The urgent pointer.
    pub urgent: u16,
    /// Options.
    pub options: Options,
    /// Payload.
    pub payload: &'a [u8],
}

/// The bits of [`Segment::flags`].
pub mod flag {
    /// No more data from the sender.
    pub const FIN: u8 = 1;
    /// Synchronise sequence numbers.
    pub const SYN: u8 = 2;
    /// Reset.
    pub const RST: u8 = 4;
    /// The acknowledgment field is significant.
    pub const ACK: u8 = 16;
    /// The urgent pointer is significant.
    pub const URG: u8 = 32;
    /// Congestion was experienced; in a SYN: ECN is asked for (RFC 3168).
    pub const ECE: u8 = 64;
    /// The congestion window was reduced.
    pub const CWR: u8 = 128;
}

/// TCP options; unknown ones are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Maximum segment size.
    pub mss: Option<u16>,
    /// Window scale.
    pub window_scale: Option<u8>,
    /// SACK permitted.
    pub sack_permitted: bool,
    /// TSval and TSecr.
    pub timestamps: Option<(u32, u32)>,
    /// SACK blocks.
    pub sack: [Option<(u32, u32)>; 4],
    /// What stands in the option of Fast Open.
    pub fast_open: Option<Cookie>,
    /// Options that the parser does not know (User Timeout, AccECN...).
    pub unknown: u32,
}

/// A cookie of TCP Fast Open; an empty one asks for one (RFC 7413, 4.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cookie {
    bytes: [u8; 16],
    len: u8,
}

impl Cookie {
    /// The cookie in the options of a TCP header, which the parser does not know.
    fn find(options: &[u8]) -> Option<Self> {
        let mut rest = options;
        loop {
            rest = match rest {
                [1, behind @ ..] => behind,
                [34, len @ 2..=18, behind @ ..] => {
                    let body = behind.get(..usize::from(*len) - 2)?;
                    let mut bytes = [0; 16];
                    bytes[..body.len()].copy_from_slice(body);
                    return Some(Self { bytes, len: body.len() as u8 });
                }
                [2..=255, len @ 2..=255, ..] => rest.get(usize::from(*len)..)?,
                _ => return None,
            };
        }
    }

    /// Whether it asks for one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Segment<'_> {
    /// Whether all bits of `flags` are set.
    #[must_use]
    pub fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }

    /// Whether it says that its sender has no room.
    #[must_use]
    pub fn closes_window(&self) -> bool {
        self.window == 0 && self.has(flag::ACK) && self.flags & (flag::SYN | flag::RST) == 0
    }

    /// SEG.LEN: payload, and one each for SYN and FIN.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.payload.len() as u32 + u32::from(self.has(flag::SYN)) + u32::from(self.has(flag::FIN))
    }

    /// Whether the segment takes no sequence numbers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Reads a frame; `ethernet` says whether a link header stands in front.
///
/// # Errors
/// What is wrong with it.
pub fn read(frame: &[u8], ethernet: bool) -> Result<Packet<'_>, String> {
    let sliced =
        if ethernet { SlicedPacket::from_ethernet(frame) } else { SlicedPacket::from_ip(frame) };
    let sliced = sliced.map_err(|error| error.to_string())?;
    let (stations, link_len) = match &sliced.link {
        Some(LinkSlice::Ethernet2(link)) => (Some((link.destination(), link.source())), 14),
        _ => (None, 0),
    };
    let body = match &sliced.net {
        Some(NetSlice::Arp(arp)) => Body::Arp(read_arp(arp.slice())?),
        Some(NetSlice::Ipv4(ip)) => {
            let header = ip.header();
            // Of the bytes as they are: a value read from them lacks the reserved bit.
            if internet_sum(Sum16BitWords::new(), header.slice()) != 0 {
                return Err("the checksum of the IPv4 header is wrong".to_owned());
            }
            let addresses =
                (IpAddr::V4(header.source_addr()), IpAddr::V4(header.destination_addr()));
            Body::Ip(Box::new(Ip {
                source: addresses.0,
                destination: addresses.1,
                len: header.total_len().into(),
                trailer_len: frame.len() - link_len - usize::from(header.total_len()),
                hop_limit: header.ttl(),
                ecn: header.ecn().value(),
                flow_label: None,
                dont_fragment: header.dont_fragment(),
                fragment: ip.is_payload_fragmented(),
                transport: read_transport(&sliced, addresses, ip.payload_ip_number())?,
            }))
        }
        Some(NetSlice::Ipv6(ip)) => {
            let header = ip.header();
            // Of zero the parser makes all that is there, which is so of jumbograms alone (RFC 2675); here a bit fell.
            if header.payload_length() == 0 {
                return Err("an IPv6 packet of no length".to_owned());
            }
            let addresses =
                (IpAddr::V6(header.source_addr()), IpAddr::V6(header.destination_addr()));
            let len = 40 + usize::from(header.payload_length());
            Body::Ip(Box::new(Ip {
                source: addresses.0,
                destination: addresses.1,
                len,
                trailer_len: frame.len() - link_len - len,
                hop_limit: header.hop_limit(),
                ecn: header.ecn().value(),
                flow_label: Some(header.flow_label().value()),
                dont_fragment: true,
                fragment: ip.is_payload_fragmented(),
                transport: read_transport(&sliced, addresses, ip.payload().ip_number)?,
            }))
        }
        None => return Err("neither IP nor ARP".to_owned()),
    };
    Ok(Packet { stations, body })
}

fn read_arp(bytes: &[u8]) -> Result<Arp, String> {
    let is_ethernet_ipv4 = bytes.get(..6) == Some(&[0, 1, 8, 0, 6, 4]);
    let address = |at: usize| {
        let octets = bytes.get(at..at + 4).and_then(|octets| <[u8; 4]>::try_from(octets).ok());
        octets.map(IpAddr::from).ok_or("a short ARP message")
    };
    if !is_ethernet_ipv4 {
        return Err("ARP for something else than IPv4 over Ethernet".to_owned());
    }
    Ok(Arp {
        operation: u16::from_be_bytes([bytes[6], bytes[7]]),
        sender: address(14)?,
        target: address(24)?,
    })
}

fn read_transport<'a>(
    sliced: &SlicedPacket<'a>,
    addresses: (IpAddr, IpAddr),
    number: IpNumber,
) -> Result<Transport<'a>, String> {
    let (bytes, transport) = match &sliced.transport {
        None => return Ok(Transport::Other(number.0)),
        Some(TransportSlice::Tcp(tcp)) => (tcp.slice(), read_tcp(tcp, addresses)?),
        Some(TransportSlice::Udp(udp)) => {
            if udp.checksum() == 0 && addresses.0.is_ipv4() {
                return Ok(read_udp(udp));
            }
            (udp.slice(), read_udp(udp))
        }
        Some(TransportSlice::Icmpv4(icmp)) => {
            let (kind, code) = (icmp.type_u8(), icmp.code_u8());
            let rest = icmp.slice().get(4..).unwrap_or(&[]);
            return match internet_sum(Sum16BitWords::new(), icmp.slice()) {
                0 => Ok(Transport::Icmp { kind, code, rest }),
                _ => Err("the checksum of the ICMP message is wrong".to_owned()),
            };
        }
        Some(TransportSlice::Icmpv6(icmp)) => {
            let rest = icmp.slice().get(4..).unwrap_or(&[]);
            let icmp_view = Transport::Icmp { kind: icmp.type_u8(), code: icmp.code_u8(), rest };
            (icmp.slice(), icmp_view)
        }
    };
    let sum = match addresses {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            Sum16BitWords::new().add_4bytes(source.octets()).add_4bytes(destination.octets())
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            Sum16BitWords::new().add_16bytes(source.octets()).add_16bytes(destination.octets())
        }
        _ => return Err("addresses of two families".to_owned()),
    };
    let sum = sum.add_2bytes([0, number.0]).add_4bytes((bytes.len() as u32).to_be_bytes());
    match internet_sum(sum, bytes) {
        0 => Ok(transport),
        _ => Err("the checksum of the transport is wrong".to_owned()),
    }
}

/// Zero where the checksum in `bytes` is right (RFC 1071).
fn internet_sum(sum: Sum16BitWords, bytes: &[u8]) -> u16 {
    sum.add_slice(bytes).ones_complement()
}

fn read_udp<'a>(udp: &etherparse::UdpSlice<'a>) -> Transport<'a> {
    Transport::Udp {
        source: udp.source_port(),
        destination: udp.destination_port(),
        payload: udp.payload(),
    }
}

fn read_tcp<'a>(tcp: &TcpSlice<'a>, addresses: (IpAddr, IpAddr)) -> Result<Transport<'a>, String> {
    let header = tcp.header_slice();
    let mut options = Options::default();
    for option in tcp.options_iterator() {
        match option {
            Ok(TcpOptionElement::Noop) => {}
            Ok(TcpOptionElement::MaximumSegmentSize(mss)) => options.mss = Some(mss),
            Ok(TcpOptionElement::WindowScale(shift)) => options.window_scale = Some(shift),
            Ok(TcpOptionElement::SelectiveAcknowledgementPermitted) => {
                options.sack_permitted = true;
            }
            Ok(TcpOptionElement::SelectiveAcknowledgement(first, rest)) => {
                options.sack = [Some(first), rest[0], rest[1], rest[2]];
            }
            Ok(TcpOptionElement::Timestamp(value, echo)) => {
                options.timestamps = Some((value, echo));
            }
            Err(_) => {
                options.unknown += 1;
                break;
            }
        }
    }
    options.fast_open = Cookie::find(header.get(20..).unwrap_or(&[]));
    Ok(Transport::Tcp(Segment {
        source: SocketAddr::new(addresses.0, tcp.source_port()),
        destination: SocketAddr::new(addresses.1, tcp.destination_port()),
        sequence: tcp.sequence_number(),
        acknowledgment: tcp.acknowledgment_number(),
        flags: header.get(13).copied().unwrap_or(0),
        window: tcp.window_size(),
        urgent: tcp.urgent_pointer(),
        header_len: header.len(),
        options,
        payload: tcp.payload(),
    }))
}

impl fmt::Display for Packet<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.body {
            Body::Arp(arp) => {
                let verb = if arp.operation == 1 { "who has" } else { "tells" };
                write!(out, "arp {} {verb} {}", arp.sender, arp.target)
            }
            Body::Ip(ip) => match &ip.transport {
                Transport::Tcp(segment) => segment.fmt(out),
                Transport::Udp { source, destination, payload } => write!(
                    out,
                    "{}.{source} > {}.{destination} udp {}",
                    ip.source,
                    ip.destination,
                    payload.len()
                ),
                Transport::Icmp { kind, code, .. } => {
                    write!(out, "{} > {} icmp {kind}/{code}", ip.source, ip.destination)
                }
                Transport::Other(number) => {
                    write!(out, "{} > {} protocol {number}", ip.source, ip.destination)
                }
            },
        }
    }
}

impl fmt::Display for Segment<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names =
            [(1, 'F'), (2, 'S'), (4, 'R'), (8, 'P'), (16, '.'), (32, 'U'), (64, 'E'), (128, 'W')];
        let flags: String =
            names.iter().filter(|(bit, _)| self.flags & bit != 0).map(|(_, name)| *name).collect();
        write!(
            out,
            "{} > {} [{flags}] seq {}:{} ack {} win {}",
            self.source,
            self.destination,
            self.sequence,
            self.sequence.wrapping_add(self.payload.len() as u32),
            self.acknowledgment,
            self.window
        )?;
        if self.has(flag::URG) {
            write!(out, " urg {}", self.urgent)?;
        }
        let options = &self.options;
        if let Some(mss) = options.mss {
            write!(out, " mss {mss}")?;
        }
        if let Some(shift) = options.window_scale {
            write!(out, " wscale {shift}")?;
        }
        if options.sack_permitted {
            write!(out, " sackOK")?;
        }
        if let Some((value, echo)) = options.timestamps {
            write!(out, " ts {value}/{echo}")?;
        }
        if let Some(cookie) = options.fast_open {
            let bytes = &cookie.bytes[..cookie.len.into()];
            write!(out, " tfo {}", bytes.iter().map(|it| format!("{it:02x}")).collect::<String>())?;
        }
        for (start, end) in options.sack.iter().flatten() {
            write!(out, " sack {start}:{end}")?;
        }
        write!(out, " len {}", self.payload.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_of_ipv6_that_lost_its_length_is_none() {
        let builder =
            etherparse::PacketBuilder::ipv6([1; 16], [2; 16], 64).tcp(1_000, 2_000, 1, 400);
        let mut bytes = Vec::new();
        builder.write(&mut bytes, b"abc").expect("a vector takes all");
        assert!(read(&bytes, false).is_ok());
        bytes[4..6].fill(0);
        assert!(read(&bytes, false).is_err());
    }
}
