//! Fragments as they are on the wire (RFC 791, 3.1; RFC 8200, 4.5): parts of a packet on the way in, and
//! what one that was sent says of itself.
//!
//! A script names a part as tcpdump does, `frag 7:1480@0+`: identification, bytes, where they begin, and
//! whether others follow. What it is a part of stands behind, whole: `[frag 7:1480@0+] udp (2000)`.

use crate::live::{be16, be32, fold, sum};
use crate::script::Fragment;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const IPV4_HEADER_LEN: usize = 20;
const IPV6_HEADER_LEN: usize = 40;

/// What an IPv6 header, or one behind it, calls a fragment header.
const FRAGMENT_HEADER: u8 = 44;

const FRAGMENT_HEADER_LEN: usize = 8;

const IPV4_MORE: u16 = 0x2000;
const IPV6_MORE: u16 = 1;

/// A fragment that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LiveFragment {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) class: u8,
    pub(crate) ttl: u8,
    pub(crate) flow_label: u32,
    pub(crate) protocol: u8,
    pub(crate) is_whole: bool,
    pub(crate) identification: u32,
    pub(crate) offset: usize,
    pub(crate) more: bool,
    pub(crate) data: Vec<u8>,
}

/// What follows the IP header of a packet that [`encode`](crate::live::encode) made.
pub(crate) fn payload(whole: &[u8]) -> &[u8] {
    let header_len = if whole[0] >> 4 == 4 { IPV4_HEADER_LEN } else { IPV6_HEADER_LEN };
    &whole[header_len..]
}

/// A part of a packet that [`encode`](crate::live::encode) made. What lies beyond its end is zeros.
pub(crate) fn cut(whole: &[u8], fragment: &Fragment) -> Vec<u8> {
    let payload = payload(whole);
    let first = usize::from(fragment.offset);
    let data = (first..first + usize::from(fragment.len))
        .map(|at| payload.get(at).copied().unwrap_or(0))
        .collect::<Vec<u8>>();
    let mut bytes = whole[..whole.len() - payload.len()].to_vec();
    if bytes.len() == IPV4_HEADER_LEN {
        let more = if fragment.more { IPV4_MORE } else { 0 };
        let total_len = data.len() + IPV4_HEADER_LEN;
        bytes[2..4].copy_from_slice(&(total_len as u16).to_be_bytes());
        bytes[4..6].copy_from_slice(&(fragment.id as u16).to_be_bytes());
        bytes[6..8].copy_from_slice(&((fragment.offset / 8) | more).to_be_bytes());
        bytes[10..12].fill(0);
        let checksum = fold(sum(&bytes));
        bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
    } else {
        let payload_len = data.len() + FRAGMENT_HEADER_LEN;
        bytes[4..6].copy_from_slice(&(payload_len as u16).to_be_bytes());
        let next_header = core::mem::replace(&mut bytes[6], FRAGMENT_HEADER);
        let more = if fragment.more { IPV6_MORE } else { 0 };
        bytes.extend([next_header, 0]);
        bytes.extend((fragment.offset | more).to_be_bytes());
        bytes.extend(fragment.id.to_be_bytes());
    }
    bytes.extend(data);
    bytes
}

/// Reads a packet; `None` where it is no fragment.
pub(crate) fn decode(bytes: &[u8]) -> Result<Option<LiveFragment>, String> {
    let short = || format!("a packet of {} bytes is too short for its header", bytes.len());
    match bytes.first().ok_or_else(short)? >> 4 {
        4 if bytes.len() >= IPV4_HEADER_LEN => {
            let (header_len, total_len) = (usize::from(bytes[0] & 15) * 4, be16(bytes, 2).into());
            let data = bytes.get(header_len..total_len).ok_or_else(short)?;
            let field = be16(bytes, 6);
            if field & 0x3fff == 0 {
                return Ok(None);
            }
            if header_len < IPV4_HEADER_LEN || fold(sum(&bytes[..header_len])) != 0 {
                return Err("the IPv4 header, or its checksum, is wrong".to_owned());
            }
            let address = |at: usize| IpAddr::V4(Ipv4Addr::from(be32(bytes, at)));
            Ok(Some(LiveFragment {
                source: address(12),
                destination: address(16),
                class: bytes[1],
                ttl: bytes[8],
                flow_label: 0,
                protocol: bytes[9],
                is_whole: field & 0x4000 != 0,
                identification: be16(bytes, 4).into(),
                offset: usize::from(field & 0x1fff) * 8,
                more: field & IPV4_MORE != 0,
                data: data.to_vec(),
            }))
        }
        6 if bytes.len() >= IPV6_HEADER_LEN && bytes[6] != FRAGMENT_HEADER => Ok(None),
        6 if bytes.len() >= IPV6_HEADER_LEN + FRAGMENT_HEADER_LEN => {
            let end = IPV6_HEADER_LEN + usize::from(be16(bytes, 4));
            let data = bytes.get(IPV6_HEADER_LEN + FRAGMENT_HEADER_LEN..end).ok_or_else(short)?;
            let address = |at: usize| {
                let octets: [u8; 16] = core::array::from_fn(|i| bytes[at + i]);
                IpAddr::V6(Ipv6Addr::from(octets))
            };
            let field = be16(bytes, IPV6_HEADER_LEN + 2);
            Ok(Some(LiveFragment {
                source: address(8),
                destination: address(24),
                class: (be16(bytes, 0) >> 4) as u8,
                ttl: bytes[7],
                flow_label: be32(bytes, 0) & 0xf_ffff,
                protocol: bytes[IPV6_HEADER_LEN],
                is_whole: false,
                identification: be32(bytes, IPV6_HEADER_LEN + 4),
                offset: usize::from(field & !7),
                more: field & IPV6_MORE != 0,
                data: data.to_vec(),
            }))
        }
        _ => Err(short()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::{Body, LivePacket, encode};

    #[test]
    fn a_part_is_read_as_it_was_cut() {
        for [source, destination] in [["192.0.2.1", "192.168.0.1"], ["2001:db8::1", "fd3d::1"]] {
            let address = |text: &str| text.parse::<IpAddr>().expect("an address");
            let body = Body::Udp { source_port: 1, destination_port: 2, payload: vec![7; 100] };
            let whole = encode(&LivePacket {
                source: address(source),
                destination: address(destination),
                class: 2,
                ttl: 64,
                flow_label: 0,
                is_whole: true,
                body,
            });
            assert_eq!(decode(&whole), Ok(None));
            for (offset, len, more) in [(0, 40, true), (40, 68, false), (104, 16, false)] {
                let part = cut(&whole, &Fragment { id: 9, len, offset, more });
                let found = decode(&part).expect("sound").expect("a fragment");
                let mut wanted = payload(&whole).to_vec();
                wanted.resize(120, 0);
                let (from, len) = (usize::from(offset), usize::from(len));
                assert_eq!(found.data, wanted[from..from + len]);
                assert_eq!((found.offset, found.more, found.identification), (from, more, 9));
                assert_eq!(
                    (found.source, found.protocol, found.is_whole),
                    (address(source), 17, false)
                );
            }
        }
    }
}
