//! Messages of neighbour resolution as packets of a batch.

use batch::{Attributes, Checksum, Multidata};
use wire::{ArpRepr, NdpRepr};

/// Where the checksum lies in an ICMPv6 message, in bytes.
const ICMPV6_CHECKSUM_OFFSET: u8 = 2;

/// Appends an ARP message; the link header is still to be stamped. Says whether there was
/// room for it.
#[must_use]
pub fn push_arp(batch: &mut Multidata, message: &ArpRepr) -> bool {
    let Some(out) = batch.push_packet(ArpRepr::LEN, Attributes::default()) else { return false };
    message.emit(out);
    true
}

/// Appends a message of neighbour discovery; the network layer stamps the IPv6 header, whose hop
/// limit MUST be 255 (RFC 4861, 4.1 to 4.5), and completes the checksum. Says whether there was
/// room for it.
#[must_use]
pub fn push_ndp(batch: &mut Multidata, message: &NdpRepr) -> bool {
    let checksum = Checksum::Missing { offset: ICMPV6_CHECKSUM_OFFSET };
    let attributes = Attributes { checksum, ..Attributes::default() };
    let Some(out) = batch.push_packet(message.emitted_len(), attributes) else { return false };
    message.emit(out);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use batch::{HeaderLayout, Limits};
    use core::net::{Ipv4Addr, Ipv6Addr};
    use wire::{ArpOperation, ArpView, HardwareAddress, NdpEnvelope};

    #[test]
    fn messages_become_packets_until_the_batch_is_full() {
        let arp = ArpRepr {
            operation: ArpOperation::Request,
            sender_hardware: HardwareAddress([2, 0, 0, 0, 0, 1]),
            sender_protocol: Ipv4Addr::new(10, 0, 0, 1),
            target_hardware: HardwareAddress::ZERO,
            target_protocol: Ipv4Addr::new(10, 0, 0, 2),
        };
        let target: Ipv6Addr = "fe80::2".parse().expect("an address");
        let ndp = NdpRepr::NeighbourSolicitation {
            target,
            source_link: Some(HardwareAddress([2, 0, 0, 0, 0, 1])),
        };
        let limits = Limits { packets: 2, ..Limits::default() };
        let mut batch = Multidata::new(HeaderLayout::default(), limits);
        assert!(push_arp(&mut batch, &arp));
        assert!(push_ndp(&mut batch, &ndp));
        assert!(!push_arp(&mut batch, &arp) && !push_ndp(&mut batch, &ndp));

        let packet = batch.packet(0).expect("pushed");
        assert_eq!(ArpView::parse(packet.header()).map(|view| ArpRepr::parse(&view)), Ok(arp));
        assert_eq!(packet.attributes().checksum, Checksum::Complete);
        let packet = batch.packet(1).expect("pushed");
        let envelope = NdpEnvelope { source: target, destination: target, hop_limit: 255 };
        assert_eq!(NdpRepr::parse(packet.header(), &envelope), Ok(ndp));
        assert_eq!(packet.attributes().checksum, Checksum::Missing { offset: 2 });
    }
}
