//! Frames that nobody's stack made.

use core::net::{IpAddr, Ipv6Addr};
use ip::{HeaderTemplate, stamp};
use wire::{HardwareAddress, NdpRepr, TcpHeader, ether_type};

/// The station that crafted frames come from.
pub(crate) const STRANGER: HardwareAddress = HardwareAddress([2, 0, 0, 0, 0, 99]);

/// An IP packet in a frame to `to`: header, complete checksum and all.
pub(crate) fn packet(
    to: HardwareAddress,
    addresses: (IpAddr, IpAddr),
    protocol: u8,
    hop_limit: u8,
    (transport, checksum_at): (&[u8], u8),
) -> Vec<u8> {
    let mut batch = batch::Multidata::default();
    let checksum = batch::Checksum::Missing { offset: checksum_at };
    let attributes = batch::Attributes { checksum, ..batch::Attributes::default() };
    // The checksum's field is in the part that the batch calls a header.
    let head = transport.len().min(usize::from(checksum_at) + 2);
    let slot = batch.push_packet(head, attributes).expect("room");
    slot.copy_from_slice(&transport[..head]);
    let rest = batch::Block::from(bytes::Bytes::copy_from_slice(&transport[head..]));
    assert!(batch.append_span(&rest, 0, rest.len()));
    let template = HeaderTemplate::new(addresses.0, addresses.1, protocol, hop_limit, 0);
    assert_eq!(stamp(&mut batch, 0..1, &template, &mut 1, false), 1);
    let ether_type = if addresses.0.is_ipv4() { ether_type::IPV4 } else { ether_type::IPV6 };
    link::stamp_ethernet(&mut batch, 0..1, STRANGER, to, ether_type);
    let packet = batch.packet(0).expect("pushed");
    let mut frame = vec![0; packet.len()];
    packet.copy_to(&mut frame).expect("room");
    frame
}

/// As [`packet`], with a checksum that is there already.
pub(crate) fn packet_as_it_is(
    to: HardwareAddress,
    addresses: (IpAddr, IpAddr),
    protocol: u8,
    hop_limit: u8,
    transport: &[u8],
) -> Vec<u8> {
    let checksum = [transport[2], transport[3]];
    let mut frame = packet(to, addresses, protocol, hop_limit, (transport, 2));
    let at = frame.len() - transport.len() + 2;
    frame[at..at + 2].copy_from_slice(&checksum);
    frame
}

/// A message of neighbour discovery.
pub(crate) fn ndp(source: Ipv6Addr, to: Ipv6Addr, hop_limit: u8, message: &NdpRepr) -> Vec<u8> {
    let mut bytes = vec![0; message.emitted_len()];
    message.emit(&mut bytes);
    let station = HardwareAddress::of_ip_multicast(to.into()).unwrap_or(super::station(0));
    let addresses = (source.into(), to.into());
    packet(station, addresses, wire::protocol::ICMPV6, hop_limit, (&bytes, 2))
}

/// A TCP segment without data in an IPv4 packet to 10.0.0.2, without link header. Its sums are this file's own.
pub(crate) fn segment(source: [u8; 4], header: &TcpHeader) -> Vec<u8> {
    let mut segment = vec![0; header.header_len()];
    header.emit(&mut segment).expect("room");
    let mut pseudo: Vec<u8> = [&source[..], &[10, 0, 0, 2, 0, 6]].concat();
    pseudo.extend((segment.len() as u16).to_be_bytes());
    pseudo.extend(&segment);
    segment[16..18].copy_from_slice(&internet_checksum(&pseudo).to_be_bytes());
    let mut ip = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6, 0, 0];
    ip.extend(source);
    ip.extend([10, 0, 0, 2]);
    ip[2..4].copy_from_slice(&((20 + segment.len()) as u16).to_be_bytes());
    let sum = internet_checksum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    ip.extend(segment);
    ip
}

pub(crate) fn internet_checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = bytes
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)])))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
