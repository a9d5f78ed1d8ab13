//! What a received frame is, as far as steering asks.
//!
//! In: a frame's bytes, whole, and the medium it came over. Out: a [`Class`]. The parsers are the
//! stack's own (`link`, `ip`, `wire`), so a frame is read here as the shard will read it: what they
//! refuse is [`Class::Other`], goes where everything odd goes, and is dropped and counted there. A
//! transport checksum is not verified here, but that of an ICMP message is, because its parser does.
//!
//! What must reach one place:
//!
//! * a TCP segment: its connection;
//! * a datagram: its socket, which is known by the destination port alone;
//! * an ICMP error: the flow of the packet it quotes, with the ends changed back;
//! * a fragment, which may lack ports: the place that puts datagrams together. What comes out is
//!   classified again, as a bare packet ([`Medium::Ip`]).
//!
//! And what every shard keeps a copy of (neighbours, routers, group queries, leases) everyone must
//! hear: [`Class::Everyone`].

use core::net::{IpAddr, SocketAddr};
use counters::DropReason;
use device::Medium;
use ip::{IcmpIncoming, PacketInfo};
use wire::{UdpView, ether_type, protocol, tcp::TCP_HEADER_LEN_MIN};

use crate::toeplitz;

/// The client's port of DHCPv4 (RFC 2131, 4.1) and of DHCPv6 (RFC 8415, 7.2): answers to it are
/// about an interface, which every shard has.
const DHCP_CLIENT_PORTS: [u16; 2] = [68, 546];

/// The two ends of a received packet's flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    /// Who sent the packet: the peer.
    pub remote: SocketAddr,
    /// Whom it is for: an address of ours, if it is for us at all.
    pub local: SocketAddr,
}

impl Flow {
    /// The hash of the frames that come in, see [`toeplitz`].
    #[must_use]
    pub fn hash(&self) -> u32 {
        toeplitz::hash(self.remote, self.local)
    }
}

/// A transport that an ICMP error may be about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A TCP segment, or several in one frame.
    Tcp(Flow),
    /// A UDP datagram.
    Udp(Flow),
    /// An ICMP error about a packet that we sent, or are said to have sent: its flow as of packets
    /// that come in.
    IcmpError(Transport, Flow),
    /// ARP, neighbour and router discovery, IGMP and MLD, DHCP to a client: every home needs it.
    Everyone,
    /// Part of a datagram, between these two.
    Fragment {
        /// The sender.
        source: IpAddr,
        /// The receiver.
        destination: IpAddr,
    },
    /// Everything else: echo, protocols nobody here speaks, frames for others, broken ones.
    Other,
}

/// Reads a frame. No length in it is trusted.
#[must_use]
pub fn classify(frame: &[u8], medium: Medium) -> Class {
    let network = match medium {
        Medium::Ip => frame,
        Medium::Ethernet(ours) => match link::parse_ethernet(frame, ours) {
            Ok(ethernet) if ethernet.ether_type == ether_type::ARP => return Class::Everyone,
            Ok(ethernet) => frame.get(ethernet.payload_offset..).unwrap_or(&[]),
            Err(_) => return Class::Other,
        },
    };
    match &ip::parse(network) {
        Ok(info) => of_packet(info, info.transport(network)),
        Err(DropReason::Fragment) => of_fragment(network),
        Err(_) => Class::Other,
    }
}

fn of_packet(info: &PacketInfo, transport: &[u8]) -> Class {
    let flow = |remote_port: u16, local_port: u16| Flow {
        remote: SocketAddr::new(info.source, remote_port),
        local: SocketAddr::new(info.destination, local_port),
    };
    match info.protocol {
        protocol::TCP => match *transport {
            [a, b, c, d, ..] if transport.len() >= TCP_HEADER_LEN_MIN => {
                Class::Tcp(flow(u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
            }
            _ => Class::Other,
        },
        protocol::UDP => match UdpView::parse(transport) {
            Ok(view) if DHCP_CLIENT_PORTS.contains(&view.destination_port()) => Class::Everyone,
            Ok(view) => Class::Udp(flow(view.source_port(), view.destination_port())),
            Err(_) => Class::Other,
        },
        protocol::IGMP => Class::Everyone,
        protocol::ICMP | protocol::ICMPV6 => match ip::parse_icmp(info, transport) {
            Ok(IcmpIncoming::Ndp | IcmpIncoming::Mld) => Class::Everyone,
            Ok(IcmpIncoming::Error(error)) => {
                let flow = Flow { remote: error.quoted.remote, local: error.quoted.local };
                match error.quoted.protocol {
                    protocol::TCP => Class::IcmpError(Transport::Tcp, flow),
                    protocol::UDP => Class::IcmpError(Transport::Udp, flow),
                    _ => Class::Other,
                }
            }
            _ => Class::Other,
        },
        _ => Class::Other,
    }
}

fn of_fragment(packet: &[u8]) -> Class {
    match ip::parse_fragment(packet) {
        Ok(fragment) => {
            Class::Fragment { source: fragment.info.source, destination: fragment.info.destination }
        }
        Err(_) => Class::Other,
    }
}

#[cfg(test)]
mod tests;
