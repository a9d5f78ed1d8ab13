//! The peer's side of a link: what frames around its packets look like, made by hand.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use device::{HardwareAddress, Medium};
use simulation::packet::{Body, Packet, Transport};

/// The shard under test and the peer are hosts of these numbers.
const SHARD: u8 = 1;
const PEER: u8 = 9;

const ICMPV6: u8 = 58;
const NEIGHBOR_SOLICITATION: u8 = 135;
const NEIGHBOR_ADVERTISEMENT: u8 = 136;

const ETHERTYPE_ARP: u16 = 0x0806;

/// What lies between the two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) is_ethernet: bool,
    pub(crate) is_ipv6: bool,
}

pub(crate) fn station(number: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, number]
}

impl Link {
    pub(crate) fn medium(self, number: u8) -> Medium {
        match self.is_ethernet {
            true => Medium::Ethernet(HardwareAddress(station(number))),
            false => Medium::Ip,
        }
    }

    /// The address of a host.
    pub(crate) fn address(self, number: u8) -> IpAddr {
        match self.is_ipv6 {
            true => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, number.into()).into(),
            false => Ipv4Addr::new(10, 0, 0, number).into(),
        }
    }

    fn octets(self, number: u8) -> Vec<u8> {
        match self.address(number) {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        }
    }

    /// The checksum of a message of the peer to the shard.
    pub(crate) fn checksum(self, protocol: u8, body: &[u8]) -> u16 {
        let mut bytes = self.octets(PEER);
        bytes.extend(self.octets(SHARD));
        bytes.extend((body.len() as u32).to_be_bytes());
        bytes.extend([0, 0, 0, protocol]);
        bytes.extend(body);
        !sum_of(&bytes)
    }

    /// A frame of the peer with a packet around `body`. `fragment` is the field of IPv4's header, flags and
    /// offset, `class` the traffic class.
    pub(crate) fn frame(self, protocol: u8, fragment: u16, class: u8, body: &[u8]) -> Vec<u8> {
        let packet = match self.is_ipv6 {
            true => self.ipv6_packet(protocol, fragment, class, body),
            false => self.ipv4_packet(protocol, fragment, class, body),
        };
        let ethertype = if self.is_ipv6 { 0x86dd } else { 0x0800 };
        self.link_frame(ethertype, station(SHARD), packet)
    }

    fn link_frame(self, ethertype: u16, to: [u8; 6], packet: Vec<u8>) -> Vec<u8> {
        if !self.is_ethernet {
            return packet;
        }
        let mut frame = to.to_vec();
        frame.extend(station(PEER));
        frame.extend(ethertype.to_be_bytes());
        frame.extend(packet);
        frame
    }

    fn ipv4_packet(self, protocol: u8, fragment: u16, class: u8, body: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x45, class, 0, 0, 0, 7, 0, 0, 64, protocol, 0, 0];
        packet.extend(self.octets(PEER));
        packet.extend(self.octets(SHARD));
        let total = (packet.len() + body.len()) as u16;
        packet[2..4].copy_from_slice(&total.to_be_bytes());
        packet[6..8].copy_from_slice(&fragment.to_be_bytes());
        let sum = !sum_of(&packet);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet.extend(body);
        packet
    }

    fn ipv6_packet(self, protocol: u8, fragment: u16, class: u8, body: &[u8]) -> Vec<u8> {
        // DF, and what is whole, has no header of a fragment.
        let header = match fragment & 0x3fff {
            0 => Vec::new(),
            field => {
                let field = (field & 0x1fff) << 3 | u16::from(field & 0x2000 != 0);
                [&[protocol, 0][..], &field.to_be_bytes(), &[0, 0, 0, 7]].concat()
            }
        };
        let next = if header.is_empty() { protocol } else { 44 };
        let mut packet = (6 << 28 | u32::from(class) << 20).to_be_bytes().to_vec();
        packet.extend(((header.len() + body.len()) as u16).to_be_bytes());
        // ICMPv6 between neighbours has come through no router.
        packet.extend([next, if protocol == ICMPV6 { 255 } else { 64 }]);
        packet.extend(self.octets(PEER));
        packet.extend(self.octets(SHARD));
        packet.extend(header);
        packet.extend(body);
        packet
    }

    /// A message of ICMPv6 with its checksum.
    pub(crate) fn icmpv6(self, mut message: Vec<u8>) -> Vec<u8> {
        message[2..4].fill(0);
        let sum = self.checksum(ICMPV6, &message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        self.frame(ICMPV6, 0, 0, &message)
    }

    /// A message of ARP.
    pub(crate) fn arp(self, operation: u8, sender: ([u8; 6], u8), target: u8) -> Vec<u8> {
        let mut message = vec![0, 1, 8, 0, 6, 4, 0, operation];
        message.extend(sender.0);
        message.extend([10, 0, 0, sender.1]);
        message.extend(station(SHARD));
        message.extend([10, 0, 0, target]);
        let to = if operation == 1 { [0xff; 6] } else { station(SHARD) };
        self.link_frame(ETHERTYPE_ARP, to, message)
    }

    /// What a peer that behaves answers to a question for its station.
    pub(crate) fn answer(self, packet: &Packet<'_>) -> Option<Vec<u8>> {
        match &packet.body {
            Body::Arp(arp) if arp.operation == 1 && arp.target == self.address(PEER) => {
                Some(self.arp(2, (station(PEER), PEER), SHARD))
            }
            Body::Ip(ip) => match &ip.transport {
                Transport::Icmp { kind: NEIGHBOR_SOLICITATION, rest, .. }
                    if rest.get(4..20) == Some(&self.octets(PEER)[..]) =>
                {
                    let mut message = vec![NEIGHBOR_ADVERTISEMENT, 0, 0, 0, 0x60, 0, 0, 0];
                    message.extend(self.octets(PEER));
                    message.extend([2, 1]);
                    message.extend(station(PEER));
                    Some(self.icmpv6(message))
                }
                _ => None,
            },
            Body::Arp(_) => None,
        }
    }
}

/// RFC 1071.
pub(crate) fn sum_of(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| [pair[0], *pair.get(1).unwrap_or(&0)]);
    let mut sum: u32 = words.map(|word| u32::from(u16::from_be_bytes(word))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
