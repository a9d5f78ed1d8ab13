use super::*;
use crate::packets::{OURS, address, arp, ethernet, packet, tcp, udp};
use device::Medium;
use proptest::prelude::*;
use wire::{Icmpv4Repr, Icmpv6Repr};

const ENDS: [(&str, &str); 2] =
    [("10.0.0.9:4000", "10.0.0.1:80"), ("[fd00::9]:4000", "[fd00::1]:80")];

fn ends(pair: (&str, &str)) -> (SocketAddr, SocketAddr) {
    (address(pair.0), address(pair.1))
}

/// As a bare packet, and in an Ethernet frame: both must say the same.
fn class(packet: &[u8]) -> Class {
    let bare = classify(packet, Medium::Ip);
    let ether_type = if packet[0] >> 4 == 4 { ether_type::IPV4 } else { ether_type::IPV6 };
    assert_eq!(classify(&ethernet(ether_type, packet), Medium::Ethernet(OURS)), bare);
    bare
}

/// An ICMP error about `quoted`, sent by a router to `to`.
fn icmp_error(router: IpAddr, to: IpAddr, quoted: &[u8]) -> Vec<u8> {
    let mut message = vec![0; 8];
    let protocol = match router {
        IpAddr::V4(_) => {
            Icmpv4Repr::DestinationUnreachable { code: 1, next_hop_mtu: 0 }.emit(&mut message);
            protocol::ICMP
        }
        IpAddr::V6(_) => {
            Icmpv6Repr::DestinationUnreachable { code: 3 }.emit(&mut message);
            protocol::ICMPV6
        }
    };
    message.extend_from_slice(&quoted[..quoted.len().min(64)]);
    let sum = match (router, to) {
        (IpAddr::V6(router), IpAddr::V6(to)) => {
            let mut pseudo = [&router.octets()[..], &to.octets()].concat();
            pseudo.extend_from_slice(&(message.len() as u32).to_be_bytes());
            pseudo.extend_from_slice(&[0, 0, 0, protocol]);
            pseudo.extend_from_slice(&message);
            sum(&pseudo)
        }
        _ => sum(&message),
    };
    message[2..4].copy_from_slice(&(!sum).to_be_bytes());
    packet(router, to, protocol, &message)
}

/// The Internet checksum, written once more.
fn sum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = 0;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[test]
fn segments_and_datagrams_are_known_by_their_ends() {
    for (remote, local) in ENDS.map(ends) {
        let flow = Flow { remote, local };
        assert_eq!(class(&tcp(remote, local, 1)), Class::Tcp(flow));
        assert_eq!(class(&udp(remote, local, b"data")), Class::Udp(flow));
    }
}

#[test]
fn an_error_is_of_the_flow_it_quotes() {
    for (remote, local) in ENDS.map(ends) {
        let flow = Flow { remote, local };
        let router = match local.ip() {
            IpAddr::V4(_) => "10.0.0.254".parse().expect("an address"),
            IpAddr::V6(_) => "fd00::fe".parse().expect("an address"),
        };
        // We sent it, so its source is ours.
        let about_tcp = icmp_error(router, local.ip(), &tcp(local, remote, 1));
        assert_eq!(class(&about_tcp), Class::IcmpError(Transport::Tcp, flow));
        let about_udp = icmp_error(router, local.ip(), &udp(local, remote, &[0; 30]));
        assert_eq!(class(&about_udp), Class::IcmpError(Transport::Udp, flow));
        let other = packet(local.ip(), remote.ip(), 99, &[0; 20]);
        assert_eq!(class(&icmp_error(router, local.ip(), &other)), Class::Other);
    }
}

#[test]
fn what_every_shard_keeps_goes_to_everyone() {
    let (remote, local) = ends(ENDS[0]);
    assert_eq!(classify(&arp(), Medium::Ethernet(OURS)), Class::Everyone);
    let lease = udp(SocketAddr::new(remote.ip(), 67), SocketAddr::new(local.ip(), 68), &[0; 240]);
    assert_eq!(class(&lease), Class::Everyone);
    assert_eq!(class(&packet(remote.ip(), local.ip(), protocol::IGMP, &[0; 8])), Class::Everyone);
    for kind in [134_u8, 135, 136, 130, 143] {
        let (remote, local) = ends(ENDS[1]);
        let mut message = vec![kind, 0, 0, 0, 0, 0, 0, 0];
        let mut pseudo: Vec<u8> = Vec::new();
        for end in [remote, local] {
            let IpAddr::V6(address) = end.ip() else { unreachable!("both are IPv6") };
            pseudo.extend_from_slice(&address.octets());
        }
        pseudo.extend_from_slice(&[0, 0, 0, 8, 0, 0, 0, protocol::ICMPV6]);
        pseudo.extend_from_slice(&message);
        message[2..4].copy_from_slice(&(!sum(&pseudo)).to_be_bytes());
        let packet = packet(remote.ip(), local.ip(), protocol::ICMPV6, &message);
        assert_eq!(class(&packet), Class::Everyone, "type {kind}");
    }
}

#[test]
fn fragments_have_a_place_of_their_own_whatever_they_carry() {
    let (remote, local) = ends(ENDS[0]);
    for flags in [0x2000_u16, 0x2001, 0x0001] {
        let mut packet = udp(remote, local, &[0; 16]);
        packet[6..8].copy_from_slice(&flags.to_be_bytes());
        packet[10..12].fill(0);
        let checksum = !sum(&packet[..20]);
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        let expected = Class::Fragment { source: remote.ip(), destination: local.ip() };
        assert_eq!(class(&packet), expected, "flags {flags:x}");
    }
}

#[test]
fn what_nobody_can_read_is_other() {
    let (remote, local) = ends(ENDS[0]);
    let good = tcp(remote, local, 1);
    for len in 0..good.len() {
        assert_eq!(classify(&good[..len], Medium::Ip), Class::Other, "{len} bytes");
    }
    assert_eq!(class(&packet(remote.ip(), local.ip(), protocol::TCP, &[0; 19])), Class::Other);
    assert_eq!(class(&packet(remote.ip(), local.ip(), 132, &[0; 40])), Class::Other);
    // For another station.
    let mut frame = ethernet(ether_type::IPV4, &good);
    frame[0..6].copy_from_slice(&[2, 0, 0, 0, 0, 99]);
    assert_eq!(classify(&frame, Medium::Ethernet(OURS)), Class::Other);
}

/// Bytes that are mostly headers.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let (four, six) = (ends(ENDS[0]), ends(ENDS[1]));
    let seeds = vec![
        tcp(four.0, four.1, 1),
        tcp(six.0, six.1, 1),
        udp(four.0, four.1, &[1; 40]),
        udp(six.0, six.1, &[1; 40]),
        icmp_error(four.0.ip(), four.1.ip(), &tcp(four.1, four.0, 1)),
        icmp_error(six.0.ip(), six.1.ip(), &udp(six.1, six.0, &[2; 40])),
        vec![],
    ];
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6);
    let tail = prop::collection::vec(any::<u8>(), 0..40);
    (prop::sample::select(seeds), changes, tail, any::<prop::sample::Index>()).prop_map(
        |(mut bytes, changes, tail, cut)| {
            bytes.extend(tail);
            for (at, value) in changes {
                if !bytes.is_empty() {
                    let at = at.index(bytes.len());
                    bytes[at] = value;
                }
            }
            if !bytes.is_empty() {
                bytes.truncate(cut.index(bytes.len()) + 1);
            }
            // Without a sound sum nearly all would end at the first question.
            if bytes.len() >= 20 && bytes[0] >> 4 == 4 {
                let len = (usize::from(bytes[0] & 15) * 4).clamp(20, bytes.len());
                bytes[10..12].fill(0);
                let checksum = !sum(&bytes[..len]);
                bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
            }
            bytes
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// The class is what the stack's own parsers find, for any bytes.
    #[test]
    fn classes_agree_with_the_parsers(bytes in hostile()) {
        let class = classify(&bytes, Medium::Ip);
        let _ = classify(&bytes, Medium::Ethernet(OURS));
        let info = ip::parse(&bytes);
        match class {
            Class::Tcp(flow) | Class::Udp(flow) => {
                let info = info.expect("readable");
                prop_assert_eq!((flow.remote.ip(), flow.local.ip()), (info.source, info.destination));
                let transport = info.transport(&bytes);
                let ports = if matches!(class, Class::Tcp(_)) {
                    prop_assert_eq!(info.protocol, protocol::TCP);
                    // Its options may be broken; its ports stand where they stand.
                    (u16::from_be_bytes([transport[0], transport[1]]),
                     u16::from_be_bytes([transport[2], transport[3]]))
                } else {
                    prop_assert_eq!(info.protocol, protocol::UDP);
                    let view = UdpView::parse(transport).expect("readable");
                    (view.source_port(), view.destination_port())
                };
                prop_assert_eq!((flow.remote.port(), flow.local.port()), ports);
            }
            Class::IcmpError(..) => {
                let info = info.expect("readable");
                let message = ip::parse_icmp(&info, info.transport(&bytes));
                prop_assert!(matches!(message, Ok(IcmpIncoming::Error(_))));
            }
            Class::Everyone => prop_assert!(info.is_ok()),
            Class::Fragment { .. } => {
                prop_assert_eq!(info, Err(DropReason::Fragment));
                prop_assert!(ip::parse_fragment(&bytes).is_ok());
            }
            Class::Other => {
                // Nothing that a connection or a socket would take is lost to it.
                if let Ok(info) = info {
                    let transport = info.transport(&bytes);
                    prop_assert!(
                        info.protocol != protocol::TCP || wire::TcpHeader::parse(transport).is_err()
                    );
                    prop_assert!(info.protocol != protocol::UDP || UdpView::parse(transport).is_err());
                }
            }
        }
    }
}
