//! The link header on the way out and on the way in.

use batch::Multidata;
use core::ops::Range;
use counters::DropReason;
use wire::{EthernetRepr, EthernetView, HardwareAddress, ether_type};

/// Puts a link header in front of every packet of `packets`, which go to one neighbour: the
/// header is made once and copied.
///
/// The batch's layout must have 14 bytes of headroom left, as the default layout has. A packet
/// without them is left as it is, and with debug assertions on that is a panic.
pub fn stamp_ethernet(
    batch: &mut Multidata,
    packets: Range<usize>,
    source: HardwareAddress,
    destination: HardwareAddress,
    ether_type: u16,
) {
    let header = EthernetRepr { destination, source, ether_type }.to_bytes();
    let mut index = packets.start;
    while index < packets.end {
        let room = batch.prepend(index, EthernetRepr::LEN);
        debug_assert!(room.is_some(), "packet {index} has no room for a link header");
        if let Some(room) = room {
            room.copy_from_slice(&header);
        }
        // Those whose header it implies have it, too.
        index += 1 + batch.implied_behind(index);
    }
}

/// The link header of a frame that is for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EthernetFrame {
    /// Who sent it.
    pub source: HardwareAddress,
    /// Whom it is for: us, everybody, or a group.
    pub destination: HardwareAddress,
    /// IPv4, IPv6 or ARP.
    pub ether_type: u16,
    /// Where the payload begins in the frame, in bytes. It may be followed by padding.
    pub payload_offset: usize,
}

/// Reads the link header of a received frame.
///
/// # Errors
/// [`DropReason::Truncated`]; [`DropReason::NotOurFrame`] for another station's frames and for
/// groups that no IP packet goes to; [`DropReason::BadSource`] where a group claims to have sent
/// it; [`DropReason::UnknownEtherType`].
#[inline]
pub fn parse_ethernet(frame: &[u8], ours: HardwareAddress) -> Result<EthernetFrame, DropReason> {
    let view = EthernetView::parse(frame).map_err(|_| DropReason::Truncated)?;
    let EthernetRepr { destination, source, ether_type } = EthernetRepr::parse(&view);
    let for_us = destination == ours
        || (destination.is_multicast()
            && (destination == HardwareAddress::BROADCAST || destination.is_ip_multicast()));
    if !for_us {
        return Err(DropReason::NotOurFrame);
    }
    if source.is_multicast() {
        return Err(DropReason::BadSource);
    }
    if !matches!(ether_type, ether_type::IPV4 | ether_type::IPV6 | ether_type::ARP) {
        return Err(DropReason::UnknownEtherType);
    }
    Ok(EthernetFrame { source, destination, ether_type, payload_offset: EthernetRepr::LEN })
}

#[cfg(test)]
mod tests {
    use super::*;
    use batch::Attributes;

    const OURS: HardwareAddress = HardwareAddress([2, 0, 0, 0, 0, 1]);
    const THEIRS: HardwareAddress = HardwareAddress([2, 0, 0, 0, 0, 2]);

    fn frame(destination: HardwareAddress, source: HardwareAddress, ether_type: u16) -> [u8; 60] {
        let mut bytes = [0; 60];
        EthernetRepr { destination, source, ether_type }.emit(&mut bytes);
        bytes
    }

    #[test]
    fn a_run_is_stamped_and_its_neighbours_are_not() {
        let mut batch = Multidata::default();
        for payload in 0..4 {
            batch.push_packet(1, Attributes::default()).expect("room")[0] = payload;
        }
        stamp_ethernet(&mut batch, 1..3, OURS, THEIRS, ether_type::IPV6);
        for (index, packet) in batch.packets().enumerate() {
            let stamped = (1..3).contains(&index);
            assert_eq!(packet.link_header_len(), if stamped { 14 } else { 0 });
            assert_eq!(packet.header().last().copied(), Some(index as u8));
            if stamped {
                let frame = parse_ethernet(packet.header(), THEIRS).expect("for them");
                assert_eq!((frame.source, frame.destination), (OURS, THEIRS));
                assert_eq!((frame.ether_type, frame.payload_offset), (ether_type::IPV6, 14));
            }
        }
    }

    #[test]
    fn frames_for_us_for_all_and_for_ip_groups_are_accepted() {
        let groups = [[0x33, 0x33, 0, 0, 0, 1], [1, 0, 0x5e, 0, 0, 1]].map(HardwareAddress);
        for destination in [OURS, HardwareAddress::BROADCAST, groups[0], groups[1]] {
            let bytes = frame(destination, THEIRS, ether_type::ARP);
            assert!(parse_ethernet(&bytes, OURS).is_ok(), "{destination}");
        }
    }

    #[test]
    fn everything_else_is_refused_by_name() {
        let refusal = |bytes: &[u8]| parse_ethernet(bytes, OURS).expect_err("not for us");
        let spanning_tree = HardwareAddress([1, 0x80, 0xc2, 0, 0, 0]);
        assert_eq!(refusal(&frame(THEIRS, THEIRS, ether_type::IPV4)), DropReason::NotOurFrame);
        let bytes = frame(spanning_tree, THEIRS, ether_type::IPV4);
        assert_eq!(refusal(&bytes), DropReason::NotOurFrame);
        assert_eq!(refusal(&frame(OURS, THEIRS, 0x8100)), DropReason::UnknownEtherType);
        assert_eq!(refusal(&frame(OURS, THEIRS, 46)), DropReason::UnknownEtherType);
        let bytes = frame(OURS, HardwareAddress::BROADCAST, ether_type::IPV4);
        assert_eq!(refusal(&bytes), DropReason::BadSource);
        let bytes = frame(OURS, THEIRS, ether_type::IPV4);
        assert_eq!(refusal(&bytes[..13]), DropReason::Truncated);
    }
}
