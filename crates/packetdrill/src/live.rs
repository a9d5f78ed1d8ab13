//! Packets as they are on the wire: bytes to values and back.
//!
//! The runner has an encoder and decoder of its own instead of those of the stack it tests, so that
//! a mistake cannot hide by being made twice.

use crate::script::TcpOption;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// IP protocol numbers.
pub(crate) const ICMP: u8 = 1;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMPV6: u8 = 58;

/// The flag DF, in the field that it shares with the offset of a fragment.
const DO_NOT_FRAGMENT: u16 = 0x4000;

/// A packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LivePacket {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) class: u8,
    pub(crate) ttl: u8,
    pub(crate) flow_label: u32,
    /// Routers may not cut it, as none of IPv6 may.
    pub(crate) is_whole: bool,
    pub(crate) body: Body,
}

/// What follows the IP header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    Tcp(LiveTcp),
    Udp {
        source_port: u16,
        destination_port: u16,
        payload: Vec<u8>,
    },
    /// The message behind its checksum: four bytes of header, then what it quotes or echoes.
    Icmp {
        kind: u8,
        code: u8,
        rest: [u8; 4],
        quoted: Vec<u8>,
    },
    Other {
        protocol: u8,
        len: usize,
    },
}

/// A TCP segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LiveTcp {
    pub(crate) source_port: u16,
    pub(crate) destination_port: u16,
    pub(crate) sequence: u32,
    pub(crate) acknowledgment: u32,
    pub(crate) flags: u16,
    pub(crate) window: u16,
    pub(crate) urgent: u16,
    pub(crate) options: Vec<TcpOption>,
    pub(crate) payload: Vec<u8>,
}

pub(crate) fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

pub(crate) fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The Internet checksum's sum, not complemented (RFC 1071).
pub(crate) fn sum(bytes: &[u8]) -> u32 {
    let pairs = bytes.chunks(2).map(|pair| match pair {
        [high, low] => u32::from(u16::from_be_bytes([*high, *low])),
        [high] => u32::from(*high) << 8,
        _ => 0,
    });
    let mut sum: u64 = pairs.map(u64::from).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u32
}

pub(crate) fn fold(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    !(((sum & 0xffff) + (sum >> 16)) as u16)
}

fn pseudo_header(source: IpAddr, destination: IpAddr, protocol: u8, len: usize) -> u32 {
    let address = |address: IpAddr| match address {
        IpAddr::V4(address) => sum(&address.octets()),
        IpAddr::V6(address) => sum(&address.octets()),
    };
    address(source) + address(destination) + u32::from(protocol) + sum(&(len as u32).to_be_bytes())
}

/// Reads a packet and verifies its checksums.
pub(crate) fn decode(bytes: &[u8]) -> Result<LivePacket, String> {
    let short = || format!("a packet of {} bytes is too short for its header", bytes.len());
    let version = bytes.first().ok_or_else(short)? >> 4;
    let (mut packet, protocol, transport) = match version {
        4 if bytes.len() >= 20 => {
            let header_len = usize::from(bytes[0] & 15) * 4;
            let total_len = usize::from(be16(bytes, 2));
            if header_len < 20 || total_len < header_len || total_len > bytes.len() {
                return Err(format!("IPv4 lengths do not agree: {total_len} of {}", bytes.len()));
            }
            if fold(sum(&bytes[..header_len])) != 0 {
                return Err("the IPv4 header checksum is wrong".to_owned());
            }
            if be16(bytes, 6) & 0x3fff != 0 {
                return Err("a fragment".to_owned());
            }
            let address = |at: usize| IpAddr::V4(Ipv4Addr::from(be32(bytes, at)));
            let mut packet = header(address(12), address(16), bytes[1], bytes[8], 0);
            packet.is_whole = be16(bytes, 6) & DO_NOT_FRAGMENT != 0;
            (packet, bytes[9], &bytes[header_len..total_len])
        }
        6 if bytes.len() >= 40 => {
            let len = usize::from(be16(bytes, 4));
            let transport = bytes.get(40..40 + len).ok_or_else(short)?;
            let address = |at: usize| {
                let octets: [u8; 16] = core::array::from_fn(|i| bytes[at + i]);
                IpAddr::V6(Ipv6Addr::from(octets))
            };
            let class = (be16(bytes, 0) >> 4) as u8;
            let label = be32(bytes, 0) & 0xf_ffff;
            let packet = header(address(8), address(24), class, bytes[7], label);
            (packet, bytes[6], transport)
        }
        _ => return Err(short()),
    };
    let pseudo = match protocol {
        ICMP => 0,
        _ => pseudo_header(packet.source, packet.destination, protocol, transport.len()),
    };
    let has_checksum = match protocol {
        UDP => transport.len() >= 8 && be16(transport, 6) != 0,
        TCP | ICMP | ICMPV6 => true,
        _ => false,
    };
    if has_checksum && fold(pseudo + sum(transport)) != 0 {
        return Err(format!("the checksum is wrong (protocol {protocol})"));
    }
    packet.body = body(protocol, transport)?;
    Ok(packet)
}

fn header(source: IpAddr, destination: IpAddr, class: u8, ttl: u8, flow_label: u32) -> LivePacket {
    let body = Body::Other { protocol: 0, len: 0 };
    LivePacket { source, destination, class, ttl, flow_label, is_whole: true, body }
}

fn body(protocol: u8, bytes: &[u8]) -> Result<Body, String> {
    let short = || format!("{} bytes are too short for protocol {protocol}", bytes.len());
    Ok(match protocol {
        TCP => {
            let header_len = usize::from(bytes.get(12).ok_or_else(short)? >> 4) * 4;
            if header_len < 20 || bytes.len() < header_len {
                return Err(short());
            }
            Body::Tcp(LiveTcp {
                source_port: be16(bytes, 0),
                destination_port: be16(bytes, 2),
                sequence: be32(bytes, 4),
                acknowledgment: be32(bytes, 8),
                flags: u16::from(bytes[13]) | (u16::from(bytes[12]) & 0x0f) << 8,
                window: be16(bytes, 14),
                urgent: be16(bytes, 18),
                options: decode_options(&bytes[20..header_len])?,
                payload: bytes[header_len..].to_vec(),
            })
        }
        UDP if bytes.len() >= 8 => Body::Udp {
            source_port: be16(bytes, 0),
            destination_port: be16(bytes, 2),
            payload: bytes[8..].to_vec(),
        },
        ICMP | ICMPV6 if bytes.len() >= 8 => Body::Icmp {
            kind: bytes[0],
            code: bytes[1],
            rest: core::array::from_fn(|i| bytes[4 + i]),
            quoted: bytes[8..].to_vec(),
        },
        UDP | ICMP | ICMPV6 => return Err(short()),
        protocol => Body::Other { protocol, len: bytes.len() },
    })
}

fn decode_options(mut bytes: &[u8]) -> Result<Vec<TcpOption>, String> {
    let mut options = Vec::new();
    while let Some(kind) = bytes.first() {
        match kind {
            0 => {
                options.push(TcpOption::Eol);
                bytes = &bytes[1..];
            }
            1 => {
                options.push(TcpOption::Nop);
                bytes = &bytes[1..];
            }
            kind => {
                let len = usize::from(*bytes.get(1).ok_or("a TCP option without length")?);
                let data = bytes.get(2..len).ok_or("a TCP option longer than the header")?;
                options.push(decode_option(*kind, data));
                bytes = &bytes[len..];
            }
        }
    }
    Ok(options)
}

fn decode_option(kind: u8, data: &[u8]) -> TcpOption {
    match (kind, data.len()) {
        (2, 2) => TcpOption::Mss(be16(data, 0)),
        (3, 1) => TcpOption::WindowScale(data[0]),
        (4, 0) => TcpOption::SackPermitted,
        (5, 8 | 16 | 24 | 32) => {
            let block = |at: usize| (be32(data, at), be32(data, at + 4));
            TcpOption::Sack((0..data.len()).step_by(8).map(block).collect())
        }
        (8, 8) => TcpOption::Timestamps { value: be32(data, 0), echo: be32(data, 4) },
        (19, _) => TcpOption::Md5(data.to_vec()),
        (34, _) => TcpOption::FastOpen(data.to_vec()),
        (254, 2..) if data.starts_with(&[0xf9, 0x89]) => {
            TcpOption::FastOpenExperimental(data[2..].to_vec())
        }
        (172 | 174, 0 | 3 | 6 | 9) => {
            let counter = |at: usize| be32(&[0, data[at], data[at + 1], data[at + 2]], 0);
            let counters = (0..data.len()).step_by(3).map(counter).collect();
            TcpOption::AccEcn { kind, counters }
        }
        _ => TcpOption::Other { kind, data: data.to_vec() },
    }
}

/// The bytes of TCP options, as given: padding is the script's affair.
pub(crate) fn encode_options(options: &[TcpOption]) -> Vec<u8> {
    let mut out = Vec::new();
    for option in options {
        match option {
            TcpOption::Eol => out.push(0),
            TcpOption::Nop => out.push(1),
            other => {
                let (kind, data) = option_data(other);
                out.extend([kind, data.len() as u8 + 2]);
                out.extend(data);
            }
        }
    }
    out
}

fn option_data(option: &TcpOption) -> (u8, Vec<u8>) {
    match option {
        TcpOption::Eol => (0, Vec::new()),
        TcpOption::Nop => (1, Vec::new()),
        TcpOption::Mss(mss) => (2, mss.to_be_bytes().to_vec()),
        TcpOption::WindowScale(shift) => (3, vec![*shift]),
        TcpOption::SackPermitted => (4, Vec::new()),
        TcpOption::Sack(blocks) => {
            let edges = blocks.iter().flat_map(|(left, right)| [*left, *right]);
            (5, edges.flat_map(u32::to_be_bytes).collect())
        }
        TcpOption::Timestamps { value, echo } => {
            (8, [value.to_be_bytes(), echo.to_be_bytes()].concat())
        }
        TcpOption::Md5(digest) => (19, digest.clone()),
        TcpOption::FastOpen(cookie) => (34, cookie.clone()),
        TcpOption::FastOpenExperimental(cookie) => {
            (254, [&[0xf9, 0x89][..], cookie.as_slice()].concat())
        }
        TcpOption::AccEcn { kind, counters } => {
            let bytes = |counter: &u32| counter.to_be_bytes()[1..].to_vec();
            (*kind, counters.iter().flat_map(bytes).collect())
        }
        TcpOption::Other { kind, data } => (*kind, data.clone()),
    }
}

/// The bytes of a packet, checksums filled in.
pub(crate) fn encode(packet: &LivePacket) -> Vec<u8> {
    let is_ipv4 = packet.source.is_ipv4();
    let (protocol, checksum_at, mut transport) = match &packet.body {
        Body::Tcp(tcp) => (TCP, 16, encode_tcp(tcp)),
        Body::Udp { source_port, destination_port, payload } => {
            let mut bytes = source_port.to_be_bytes().to_vec();
            bytes.extend(destination_port.to_be_bytes());
            bytes.extend((payload.len() as u16 + 8).to_be_bytes());
            bytes.extend([0, 0]);
            bytes.extend_from_slice(payload);
            (UDP, 6, bytes)
        }
        Body::Icmp { kind, code, rest, quoted } => {
            let mut bytes = vec![*kind, *code, 0, 0];
            bytes.extend_from_slice(rest);
            bytes.extend_from_slice(quoted);
            (if is_ipv4 { ICMP } else { ICMPV6 }, 2, bytes)
        }
        Body::Other { protocol, len } => (*protocol, 0, vec![0; *len]),
    };
    if checksum_at > 0 {
        let pseudo = match protocol {
            ICMP => 0,
            _ => pseudo_header(packet.source, packet.destination, protocol, transport.len()),
        };
        let mut checksum = fold(pseudo + sum(&transport));
        if checksum == 0 && protocol == UDP {
            checksum = 0xffff;
        }
        transport[checksum_at..checksum_at + 2].copy_from_slice(&checksum.to_be_bytes());
    }
    let mut bytes = encode_ip(packet, protocol, transport.len());
    bytes.extend(transport);
    bytes
}

fn encode_tcp(tcp: &LiveTcp) -> Vec<u8> {
    let options = encode_options(&tcp.options);
    let words = 5 + options.len().div_ceil(4);
    let mut bytes = tcp.source_port.to_be_bytes().to_vec();
    bytes.extend(tcp.destination_port.to_be_bytes());
    bytes.extend(tcp.sequence.to_be_bytes());
    bytes.extend(tcp.acknowledgment.to_be_bytes());
    bytes.push((words as u8) << 4 | (tcp.flags >> 8) as u8 & 0x0f);
    bytes.push(tcp.flags as u8);
    bytes.extend(tcp.window.to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(tcp.urgent.to_be_bytes());
    bytes.extend(options);
    bytes.resize(words * 4, 0);
    bytes.extend_from_slice(&tcp.payload);
    bytes
}

/// An IP header for a transport of `len` bytes.
pub(crate) fn encode_ip(packet: &LivePacket, protocol: u8, len: usize) -> Vec<u8> {
    match (packet.source, packet.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut bytes = vec![0x45, packet.class];
            bytes.extend((len as u16 + 20).to_be_bytes());
            let flags = if packet.is_whole { DO_NOT_FRAGMENT } else { 0 };
            // No identification.
            bytes.extend([0, 0]);
            bytes.extend(flags.to_be_bytes());
            bytes.extend([packet.ttl, protocol, 0, 0]);
            bytes.extend(source.octets());
            bytes.extend(destination.octets());
            let checksum = fold(sum(&bytes));
            bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
            bytes
        }
        (source, destination) => {
            let octets = |address: IpAddr| match address {
                IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                IpAddr::V6(address) => address.octets(),
            };
            let first = 6 << 28 | u32::from(packet.class) << 20 | packet.flow_label & 0xf_ffff;
            let mut bytes = first.to_be_bytes().to_vec();
            bytes.extend((len as u16).to_be_bytes());
            bytes.extend([protocol, packet.ttl]);
            bytes.extend(octets(source));
            bytes.extend(octets(destination));
            bytes
        }
    }
}

impl LiveTcp {
    pub(crate) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}
