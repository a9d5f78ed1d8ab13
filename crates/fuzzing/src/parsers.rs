//! Parsers: they refuse or they read, and what was read can be written and read again.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use device::lowering::{DATAGRAMS_MAX, DatagramRun};
use ip::membership::GroupMessage;
use wire::{
    ArpRepr, ArpView, EthernetRepr, EthernetView, IcmpView, Icmpv4Repr, Icmpv6Repr, Ipv4Repr,
    Ipv4View, Ipv6FragmentRepr, Ipv6Repr, Ipv6View, NdpEnvelope, NdpRepr, TcpHeader, UdpRepr,
    UdpView,
};

/// Ethernet and ARP.
pub fn link(bytes: &[u8]) {
    if let Ok(view) = EthernetView::parse(bytes) {
        let repr = EthernetRepr::parse(&view);
        let mut out = [0; EthernetRepr::LEN];
        repr.emit(&mut out);
        let again = EthernetView::parse(&out).map(|view| EthernetRepr::parse(&view));
        assert_eq!(again, Ok(repr));
        arp(view.payload());
    }
    arp(bytes);
}

fn arp(bytes: &[u8]) {
    let Ok(view) = ArpView::parse(bytes) else { return };
    let repr = ArpRepr::parse(&view);
    let mut out = [0; ArpRepr::LEN];
    repr.emit(&mut out);
    assert_eq!(ArpView::parse(&out).map(|view| ArpRepr::parse(&view)), Ok(repr));
}

/// IPv4 and IPv6 headers with options and extension headers, whole and quoted; runs of datagrams.
pub fn network(bytes: &[u8]) {
    if let Ok(info) = ip::parse(bytes) {
        assert!(info.header_len <= info.total_len && info.total_len <= bytes.len());
        assert_eq!(info.source.is_ipv4(), info.destination.is_ipv4());
        let _ = ip::transport_checksum_ok(&info, info.transport(bytes));
    }
    for info in [ip::parse_fixed(bytes), ip::parse_quoted(bytes)].into_iter().flatten() {
        assert!(info.header_len <= info.total_len);
        let _ = info.transport(bytes);
    }
    datagram_run(bytes);
    if let Ok(fragment) = ip::parse_fragment(bytes) {
        assert!(fragment.data.end <= bytes.len() && fragment.end() <= 65_535 + 40);
    }
    if let Ok(view) = Ipv4View::parse(bytes) {
        let repr = Ipv4Repr::parse(&view);
        let mut out = [0; Ipv4Repr::LEN];
        repr.emit(&mut out);
    }
    if let Ok(view) = Ipv6View::parse(bytes) {
        let repr = Ipv6Repr::parse(&view);
        let mut out = [0; Ipv6Repr::LEN];
        repr.emit(&mut out);
    }
    if let Ok(repr) = Ipv6FragmentRepr::parse(bytes) {
        let mut out = [0; Ipv6FragmentRepr::LEN];
        repr.emit(&mut out);
        assert_eq!(Ipv6FragmentRepr::parse(&out), Ok(repr));
    }
}

/// A run of datagrams that a device hands up, whose length of each the last two bytes say: what is cut from it is
/// as sound as it was.
fn datagram_run(bytes: &[u8]) {
    let Some((packet, len)) = bytes.split_last_chunk() else { return };
    let Some(run) = DatagramRun::parse(packet, 0, u16::from_be_bytes(*len)) else { return };
    assert!((1..=DATAGRAMS_MAX).contains(&run.count()));
    for index in [0, run.count() - 1] {
        let mut out = vec![0; run.len_of(index)];
        run.write(index, &mut out).expect("so much room is asked for");
        if ip::parse(packet).is_ok() {
            assert_eq!(ip::parse(&out).map(|info| info.total_len), Ok(out.len()));
        }
    }
}

/// ICMP, ICMPv6, neighbour discovery, IGMP and MLD.
pub fn control(bytes: &[u8]) {
    if let Ok(view) = IcmpView::parse(bytes) {
        let mut out = [0; 8];
        Icmpv4Repr::parse(&view).emit(&mut out);
        Icmpv6Repr::parse(&view).emit(&mut out);
    }
    let neighbour = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9);
    let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    let envelope = NdpEnvelope { source: neighbour, destination: group, hop_limit: 255 };
    if let Ok(repr) = NdpRepr::parse(bytes, &envelope) {
        let mut out = vec![0; repr.emitted_len()];
        repr.emit(&mut out);
    }
    for (source, destination, protocol, hop_limit) in [
        (IpAddr::V6(neighbour), IpAddr::V6(group), wire::protocol::ICMPV6, 1),
        (IpAddr::V6(neighbour), IpAddr::V6(group), wire::protocol::ICMPV6, 255),
        (Ipv4Addr::new(10, 0, 0, 9).into(), Ipv4Addr::new(224, 0, 0, 1).into(), 2, 1),
        (Ipv4Addr::new(10, 0, 0, 9).into(), Ipv4Addr::new(10, 0, 0, 1).into(), 1, 64),
    ] {
        let info = ip::PacketInfo {
            source,
            destination,
            protocol,
            header_len: 0,
            total_len: bytes.len(),
            hop_limit,
            has_options: true,
            ..quiet_info()
        };
        if ip::parse_icmp(&info, bytes).is_ok() || GroupMessage::parse(&info, bytes).is_ok() {
            assert!(bytes.len() >= 4);
        }
    }
}

/// What a packet says that says nothing of itself.
fn quiet_info() -> ip::PacketInfo {
    let mut packet = [0; 28];
    packet[0] = 0x45;
    packet[3] = 28;
    packet[8] = 64;
    packet[9] = 17;
    packet[12..16].copy_from_slice(&[10, 0, 0, 9]);
    packet[16..20].copy_from_slice(&[10, 0, 0, 1]);
    packet[25] = 8;
    ip::parse_quoted(&packet).expect("a sound header")
}

/// TCP with its options, and UDP.
pub fn transport(bytes: &[u8]) {
    if let Ok((header, len)) = TcpHeader::parse(bytes) {
        assert!((20..=60).contains(&len) && len <= bytes.len());
        let mut out = [0; 60];
        let emitted = header.emit(&mut out).expect("no header is longer than 60 bytes");
        let (again, read) = TcpHeader::parse(&out[..emitted]).expect("what was written is sound");
        assert_eq!(read, emitted);
        let (mut first, mut second) = (header, again);
        // A header that holds more than fits leaves SACK blocks out.
        first.options.sack = wire::SackBlocks::NONE;
        second.options.sack = wire::SackBlocks::NONE;
        assert_eq!(first, second);
    }
    if let Ok(view) = UdpView::parse(bytes) {
        assert!(view.payload().len() + UdpRepr::LEN <= bytes.len());
        let mut out = [0; UdpRepr::LEN];
        UdpRepr::parse(&view).emit(&mut out);
    }
}

/// DHCP messages: what servers answer, and what is asked of one.
pub fn leases(bytes: &[u8]) {
    if let Ok(message) = dhcp::ServerMessage::parse(bytes) {
        assert!(bytes.len() >= 240, "{message:?}");
    }
    let host = |last| core::net::Ipv4Addr::new(10, 0, 0, last);
    let mut server = dhcp::Server::new(dhcp::ServerConfig {
        address: host(1),
        prefix_len: 24,
        leased: host(9)..=host(10),
        leased_per_link_max: 1,
        lease_s: 3_600,
        routers: vec![host(1)],
        name_servers: vec![host(1)],
        mtu_bytes: Some(1_500),
    });
    if let Some(answer) = server.on_message(time::Instant::ZERO, 0, bytes) {
        assert!(answer.payload.len() <= 548, "{answer:?}");
        dhcp::ServerMessage::parse(&answer.payload).expect("what was written is sound");
    }
}
