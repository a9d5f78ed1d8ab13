//! What belongs to one family of addresses, or to this host alone, is not taken by way of another.

use crate::harness::craft;
use crate::harness::{Net, address, station};
use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use device::TransmitMode;
use time::Duration;

fn v6(text: &str) -> Ipv6Addr {
    text.parse().expect("an address")
}

/// Whether such a packet to the first host is answered with the ICMP error of this type and code.
fn is_answered(from: IpAddr, protocol: u8, body: &[u8], error: [u8; 2]) -> bool {
    let mut net = Net::new(TransmitMode::Multidata, true);
    let addresses = (from, address(0, from.is_ipv6()));
    net.inject(0, [craft::packet(station(0), addresses, protocol, 64, (body, 2))]);
    net.step();
    // Where the header says its protocol, and where what lies behind it begins.
    let (protocol_at, icmp, begin) = if from.is_ipv6() { (20, 58, 54) } else { (23, 1, 34) };
    let is_it = |it: &[u8]| it[protocol_at] == icmp && it[begin..begin + 2] == error;
    net.wire.iter().any(|(host, frame)| *host == 0 && frame.len() > 60 && is_it(frame))
}

// RFC 8200, 4 (an unrecognized next header: parameter problem, code 1); RFC 1122, 3.2.2.1 (protocol unreachable).
#[test]
fn protocols_of_one_family_are_unknown_over_the_other() {
    let echo = [8, 0, 0, 0, 0, 1, 0, 1, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9];
    let stranger = [IpAddr::V6(v6("fd00::77")), IpAddr::from([10, 0, 0, 7])];
    assert!(is_answered(stranger[0], 1, &echo, [4, 1]), "ICMP over IPv6");
    assert!(is_answered(stranger[0], 2, &echo, [4, 1]), "IGMP over IPv6");
    assert!(is_answered(stranger[1], 58, &[128, 0, 0, 0, 0, 1, 0, 1], [3, 2]), "ICMPv6 over IPv4");
}

// RFC 4291, 2.7: of the reserved scope nothing is sent or taken, and what is of the interface stays there.
#[test]
fn groups_of_no_scope_and_of_the_interface_do_not_cross_a_link() {
    for group in ["ff00::5", "ff01::5"] {
        let mut net = Net::new(TransmitMode::Multidata, true);
        let (now, id) = (net.now, net.hosts[0].interface);
        let group = v6(group);
        let shard = &mut net.hosts[0].shard;
        let socket = shard.udp_bind("[::]:7".parse().expect("an address")).expect("a port");
        shard.udp_join(now, socket, group.into(), Some(id), &[]).expect("a group");
        net.run(Duration::from_millis(10));
        let datagram = [0, 9, 0, 7, 0, 12, 0, 0, 1, 2, 3, 4];
        let to = wire::HardwareAddress::of_ip_multicast(group.into()).expect("a group");
        let addresses = (IpAddr::V6(v6("fd00::77")), IpAddr::V6(group));
        net.inject(0, [craft::packet(to, addresses, 17, 1, (&datagram, 6))]);
        assert!(net.hosts[0].shard.udp_receive(socket).is_err(), "{group} from another host");
        let local = SocketAddr::new(address(0, true), 0);
        let sender = net.hosts[0].shard.udp_bind(local).expect("a port");
        let word = batch::Chunk::whole(batch::Block::from(bytes::Bytes::from_static(b"x")));
        let remote = SocketAddr::new(group.into(), 7);
        net.hosts[0].shard.udp_send(sender, Some(remote), word).expect("it is for ourselves");
        net.wire.clear();
        net.step();
        assert!(!net.wire.iter().any(|(from, it)| *from == 0 && it[20] == 17), "{group}");
        assert!(net.hosts[0].shard.udp_receive(socket).is_ok(), "who listens here gets it");
    }
}
