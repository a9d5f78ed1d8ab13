//! What routers do to frames on their way.

use etherparse::icmpv4::DestUnreachableHeader;
use etherparse::{Icmpv4Type, Icmpv6Type, PacketBuilder};

/// Marks a frame "congestion experienced", where its sender speaks ECN (RFC 3168, 5); others stay
/// as they are.
pub fn mark_congestion(frame: &mut [u8], bare_ip: bool) {
    let network = if bare_ip { 0 } else { 14 };
    let Some(packet) = frame.get_mut(network..) else { return };
    match packet.first().map(|byte| byte >> 4) {
        Some(4) if packet.len() >= 20 && !matches!(packet[1] & 3, 0 | 3) => {
            let old = u16::from_be_bytes([packet[0], packet[1]]);
            packet[1] |= 3;
            let new = u16::from_be_bytes([packet[0], packet[1]]);
            // RFC 1624, equation 3.
            let checksum = u16::from_be_bytes([packet[10], packet[11]]);
            let mut sum = u32::from(!checksum) + u32::from(!old) + u32::from(new);
            sum = (sum & 0xffff) + (sum >> 16);
            sum = (sum & 0xffff) + (sum >> 16);
            packet[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
        }
        Some(6) if packet.len() >= 40 && !matches!((packet[1] >> 4) & 3, 0 | 3) => {
            packet[1] |= 0x30;
        }
        _ => {}
    }
}

/// The router's hardware address, and its addresses.
const ROUTER: [u8; 6] = [2, 0, 0, 0, 0xfe, 1];
const ROUTER_IPV4: [u8; 4] = [10, 0, 0, 254];
const ROUTER_IPV6: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xfe];

/// The report of a router on whose way on a packet of more than `mtu` bytes does not fit: "fragmentation
/// needed" (RFC 1191, 4) or "packet too big" (RFC 4443, 3.2). `None` where the packet fits.
#[must_use]
pub fn too_long(frame: &[u8], bare_ip: bool, mtu: usize) -> Option<Vec<u8>> {
    let link_len = if bare_ip { 0 } else { 14 };
    let packet = frame.get(link_len..)?;
    if packet.len() <= mtu {
        return None;
    }
    let mut report = Vec::new();
    if !bare_ip {
        report.extend_from_slice(frame.get(6..12)?);
        report.extend_from_slice(&ROUTER);
        report.extend_from_slice(frame.get(12..14)?);
    }
    match packet.first()? >> 4 {
        4 => {
            let quoted = packet.get(..28)?;
            let icmp =
                Icmpv4Type::DestinationUnreachable(DestUnreachableHeader::FragmentationNeeded {
                    next_hop_mtu: u16::try_from(mtu).ok()?,
                });
            PacketBuilder::ipv4(ROUTER_IPV4, packet.get(12..16)?.try_into().ok()?, 64)
                .icmpv4(icmp)
                .write(&mut report, quoted)
                .ok()?;
        }
        6 => {
            let quoted = packet.get(..packet.len().min(1_232))?;
            let icmp = Icmpv6Type::PacketTooBig { mtu: u32::try_from(mtu).ok()? };
            PacketBuilder::ipv6(ROUTER_IPV6, packet.get(8..24)?.try_into().ok()?, 64)
                .icmpv6(icmp)
                .write(&mut report, quoted)
                .ok()?;
        }
        _ => return None,
    }
    Some(report)
}

/// Whether nothing in the frame shows its damage: an ARP message, or a later fragment of a datagram,
/// whose checksum covers others as well.
#[must_use]
pub fn has_no_checksum_of_its_own(frame: &[u8], bare_ip: bool) -> bool {
    if !bare_ip && frame.get(12..14) == Some(&[8, 6]) {
        return true;
    }
    let packet = frame.get(if bare_ip { 0 } else { 14 }..).unwrap_or(&[]);
    match packet.first().map(|byte| byte >> 4) {
        Some(4) if packet.len() >= 20 => (packet[6] & 0x1f, packet[7]) != (0, 0),
        Some(6) if packet.len() >= 48 && packet[6] == 44 => {
            (packet[42], packet[43] & 0xf8) != (0, 0)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet;

    #[test]
    fn a_mark_keeps_the_header_sound_and_is_for_those_who_understand_it() {
        for (before, after) in [(0, 0), (1, 3), (2, 3), (3, 3)] {
            let mut header =
                etherparse::Ipv4Header::new(4, 64, 59.into(), [10, 0, 0, 1], [10, 0, 0, 2])
                    .expect("a short payload");
            header.ecn = etherparse::IpEcn::try_new(before).expect("two bits");
            header.header_checksum = header.calc_header_checksum();
            let mut bytes = header.to_bytes().to_vec();
            bytes.extend([1, 2, 3, 4]);
            mark_congestion(&mut bytes, true);
            let packet = packet::read(&bytes, false).expect("sound");
            let packet::Body::Ip(ip) = packet.body else { panic!("IP") };
            assert_eq!(ip.ecn, after);
        }
    }
}
