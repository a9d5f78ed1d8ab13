//! A network header, ready but for what differs from packet to packet.
//!
//! A connection builds its template once; [`crate::stamp`] copies it and fills in length,
//! identification and checksums. All that can be summed beforehand is: the header of IPv4 and the
//! pseudo-header of either family, so that a packet costs a copy and a few additions.

use crate::pseudo_header;
use core::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use wire::{Ipv4Options, Ipv4Repr, Ipv6Repr, protocol};

/// Stands for an address that no header lacks.
const UNSPECIFIED: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// Where an IPv6 header keeps the fields that a template may change.
const IPV6_HOP_LIMIT: usize = 7;

/// The network header of one connection or one datagram. See the module documentation.
#[derive(Clone, Debug)]
pub struct HeaderTemplate {
    pub(crate) header: Header,
    /// Sum of the pseudo-header without the length.
    pub(crate) pseudo_sum: u16,
    pub(crate) protocol: u8,
}

/// The header's bytes; fields that differ from packet to packet are zero.
#[derive(Clone, Debug)]
pub(crate) enum Header {
    Ipv4 {
        bytes: [u8; Ipv4Repr::LEN],
        /// Sum of `bytes` and the options, each folded to 16 bits: in 32 there is room to add the
        /// fields that differ.
        sum: u32,
        /// What follows `bytes`; never empty.
        options: Option<Arc<Ipv4Options>>,
    },
    Ipv6 {
        bytes: [u8; Ipv6Repr::LEN],
    },
}

impl HeaderTemplate {
    /// A header without options, with a flow label of zero
    /// ([`HeaderTemplate::set_flow_label`]). IPv4 sets DF for TCP, which finds the
    /// path's MTU (RFC 1191), and lets routers fragment everything else
    /// ([`HeaderTemplate::set_dont_fragment`]).
    ///
    /// Both addresses are of one family. Where a caller breaks that, debug builds stop, and others
    /// write the IPv4 address as an IPv4-mapped one.
    #[must_use]
    pub fn new(
        source: IpAddr,
        destination: IpAddr,
        protocol: u8,
        hop_limit: u8,
        dscp_ecn: u8,
    ) -> Self {
        debug_assert_eq!(source.is_ipv4(), destination.is_ipv4(), "addresses of one family");
        let header = match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                ipv4(source, destination, protocol, hop_limit, dscp_ecn)
            }
            _ => ipv6(source, destination, protocol, hop_limit, dscp_ecn),
        };
        let pseudo_sum = pseudo_header::sum(source, destination, protocol);
        Self { header, pseudo_sum, protocol }
    }

    /// The sender.
    #[must_use]
    pub fn source(&self) -> IpAddr {
        self.address(0)
    }

    /// The receiver.
    #[must_use]
    pub fn destination(&self) -> IpAddr {
        self.address(1)
    }

    /// The first address of the header or the second.
    fn address(&self, index: usize) -> IpAddr {
        match &self.header {
            Header::Ipv4 { bytes, .. } => {
                let [.., a, b] = bytes.as_chunks::<4>().0 else { return UNSPECIFIED };
                IpAddr::from(if index == 0 { *a } else { *b })
            }
            Header::Ipv6 { bytes } => {
                let [a, b] = bytes[8..].as_chunks::<16>().0 else { return UNSPECIFIED };
                IpAddr::from(if index == 0 { *a } else { *b })
            }
        }
    }

    /// The protocol of the payload.
    #[must_use]
    pub fn protocol(&self) -> u8 {
        self.protocol
    }

    /// Length of the header in bytes: 20 to 60, or 40.
    #[must_use]
    pub fn header_len(&self) -> usize {
        match &self.header {
            Header::Ipv4 { options, .. } => Ipv4Repr::LEN + bytes_of(options).len(),
            Header::Ipv6 { .. } => Ipv6Repr::LEN,
        }
    }

    /// The options that follow an IPv4 header, as they lie.
    #[must_use]
    pub fn options(&self) -> &[u8] {
        match &self.header {
            Header::Ipv4 { options, .. } => bytes_of(options),
            Header::Ipv6 { .. } => &[],
        }
    }

    /// Gives an IPv4 header options, or none; that of IPv6 has no such thing.
    pub fn set_options(&mut self, new: Option<Arc<Ipv4Options>>) {
        if let Header::Ipv4 { bytes, sum, options } = &mut self.header {
            *options = new.filter(|options| !options.is_empty());
            bytes[0] = 0x40 | ((Ipv4Repr::LEN + bytes_of(options).len()) / 4) as u8;
            *sum = sum_of(bytes, options);
        }
    }

    /// How many routers may forward the packets.
    pub fn set_hop_limit(&mut self, hop_limit: u8) {
        match &mut self.header {
            Header::Ipv4 { bytes, sum, options } => {
                bytes[8] = hop_limit;
                *sum = sum_of(bytes, options);
            }
            Header::Ipv6 { bytes } => bytes[IPV6_HOP_LIMIT] = hop_limit,
        }
    }

    /// The differentiated services code point and, in the low two bits, ECN.
    pub fn set_dscp_ecn(&mut self, dscp_ecn: u8) {
        match &mut self.header {
            Header::Ipv4 { bytes, sum, options } => {
                bytes[1] = dscp_ecn;
                *sum = sum_of(bytes, options);
            }
            Header::Ipv6 { bytes } => {
                bytes[0] = 0x60 | dscp_ecn >> 4;
                bytes[1] = dscp_ecn << 4 | bytes[1] & 0xf;
            }
        }
    }

    /// Gives an IPv6 header the flow label of its flow (RFC 6437): the low 20 bits of this. That of IPv4 has none.
    pub fn set_flow_label(&mut self, flow_label: u32) {
        if let Header::Ipv6 { bytes } = &mut self.header {
            let [_, high, middle, low] = flow_label.to_be_bytes();
            bytes[1] = bytes[1] & 0xf0 | high & 0xf;
            (bytes[2], bytes[3]) = (middle, low);
        }
    }

    /// Whether an IPv4 header forbids routers to fragment; that of IPv6 always does.
    #[must_use]
    pub fn dont_fragment(&self) -> bool {
        match &self.header {
            Header::Ipv4 { bytes, .. } => bytes[6] & 0x40 != 0,
            Header::Ipv6 { .. } => true,
        }
    }

    /// Whether routers must refuse instead of fragment what is too long for them; in IPv6 they
    /// always do.
    pub fn set_dont_fragment(&mut self, dont_fragment: bool) {
        if let Header::Ipv4 { bytes, sum, .. } = &mut self.header {
            let before = u16::from_be_bytes([bytes[6], bytes[7]]);
            bytes[6] = if dont_fragment { 0x40 } else { 0 };
            let after = u16::from_be_bytes([bytes[6], bytes[7]]);
            *sum = replaced(*sum, before, after);
        }
    }
}

fn ipv4(
    source: Ipv4Addr,
    destination: Ipv4Addr,
    protocol: u8,
    hop_limit: u8,
    dscp_ecn: u8,
) -> Header {
    let mut bytes = [0; Ipv4Repr::LEN];
    let repr = Ipv4Repr {
        dscp_ecn,
        identification: 0,
        dont_fragment: protocol == protocol::TCP,
        more_fragments: false,
        fragment_offset_bytes: 0,
        hop_limit,
        protocol,
        source,
        destination,
        payload_len: 0,
    };
    repr.emit_unsummed(&mut bytes);
    bytes[2..4].fill(0);
    Header::Ipv4 { bytes, sum: sum_of(&bytes, &None), options: None }
}

fn ipv6(source: IpAddr, destination: IpAddr, protocol: u8, hop_limit: u8, dscp_ecn: u8) -> Header {
    let mapped = |address| match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    let mut bytes = [0; Ipv6Repr::LEN];
    let repr = Ipv6Repr {
        dscp_ecn,
        flow_label: 0,
        payload_len: 0,
        next_header: protocol,
        hop_limit,
        source: mapped(source),
        destination: mapped(destination),
    };
    repr.emit(&mut bytes);
    Header::Ipv6 { bytes }
}

fn sum_of(bytes: &[u8; Ipv4Repr::LEN], options: &Option<Arc<Ipv4Options>>) -> u32 {
    u32::from(checksum::sum(bytes)) + u32::from(checksum::sum(bytes_of(options)))
}

/// The sum with one word in the place of another (RFC 1624, 3), which every datagram asks for.
fn replaced(sum: u32, before: u16, after: u16) -> u32 {
    let sum = sum + u32::from(!before) + u32::from(after);
    let folded = (sum & 0xffff) + (sum >> 16);
    (folded & 0xffff) + (folded >> 16)
}

fn bytes_of(options: &Option<Arc<Ipv4Options>>) -> &[u8] {
    options.as_ref().map_or(&[], |options| options.bytes())
}
