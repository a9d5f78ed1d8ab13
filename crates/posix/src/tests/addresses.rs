//! Addresses of both families, and this host's own.

use super::*;

fn socket_of(pair: &mut Pair, domain: u16, kind: i32) -> Fd {
    pair.call(0, Call::Socket { domain: domain.into(), kind, protocol: 0 }).value as Fd
}

fn send_to(fd: Fd, to: &str) -> Call {
    Call::Send { fd, bytes: b"x".to_vec(), flags: 0, to: Some(address(to)), control: Vec::new() }
}

// Linux's tcp_v6_connect(), inet6_bind() and udpv6_sendmsg().
#[test]
fn a_socket_of_one_family_alone_speaks_no_ipv4() {
    let mut pair = Pair::new();
    for kind in [SOCK_STREAM, SOCK_DGRAM] {
        let fd = socket_of(&mut pair, AF_INET6, kind);
        pair.call(0, set_int(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1));
        let bind = Call::Bind { fd, address: address("[::ffff:10.0.0.1]:7") };
        assert_eq!(pair.refused(0, bind), Errno::EINVAL);
        let connect = |to| Call::Connect { fd, address: address(to) };
        assert_eq!(pair.refused(0, connect("[::ffff:10.0.0.2]:80")), Errno::ENETUNREACH);
    }
    let fd = socket_of(&mut pair, AF_INET6, SOCK_DGRAM);
    pair.call(0, set_int(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1));
    for to in ["10.0.0.2:80", "[::ffff:10.0.0.2]:80"] {
        assert_eq!(pair.refused(0, send_to(fd, to)), Errno::ENETUNREACH);
    }
    assert!(!pair.hosts[0].has_packet());
}

#[test]
fn a_datagram_socket_of_ipv6_takes_ipv4_addresses_as_they_are() {
    let mut pair = Pair::new();
    let fd = socket_of(&mut pair, AF_INET6, SOCK_DGRAM);
    let packet = pair.packet_of(0, send_to(fd, "10.0.0.2:80"));
    assert_eq!(packet[16..20], [10, 0, 0, 2]);
    pair.call(0, Call::Connect { fd, address: address("10.0.0.2:81") });
    let packet = pair.packet_of(0, send(fd, b"x"));
    assert_eq!((&packet[16..20], &packet[22..24]), (&[10, 0, 0, 2][..], &[0, 81][..]));
}

#[test]
fn the_loopback_addresses_are_this_hosts() {
    let mut pair = Pair::new();
    for (domain, local) in [(AF_INET, "127.0.0.1:7"), (AF_INET6, "[::1]:7")] {
        let listener = socket_of(&mut pair, domain, SOCK_STREAM);
        pair.call(0, Call::Bind { fd: listener, address: address(local) });
        pair.call(0, Call::Listen { fd: listener, backlog: 1 });
        let client = socket_of(&mut pair, domain, SOCK_STREAM);
        pair.call(0, Call::Connect { fd: client, address: address(local) });
        pair.call(0, Call::Accept { fd: listener });
        let receiver = socket_of(&mut pair, domain, SOCK_DGRAM);
        pair.call(0, Call::Bind { fd: receiver, address: address(local) });
        let sender = socket_of(&mut pair, domain, SOCK_DGRAM);
        pair.call(0, send_to(sender, local));
        assert_eq!(pair.call(0, receive(receiver, MSG_DONTWAIT)).value, 1);
    }
}

/// The local address and the peer's of the last datagram or connection are those of a kernel's sockets.
#[test]
fn who_names_nobody_means_this_host() {
    let mut pair = Pair::new();
    for (domain, bound, to, from, told) in [
        (AF_INET, None, "0.0.0.0:7", "127.0.0.1", "127.0.0.1:7"),
        (AF_INET, Some("10.0.0.1:0"), "0.0.0.0:7", "10.0.0.1", "10.0.0.1:7"),
        (AF_INET6, None, "[::]:7", "::1", "[::1]:7"),
        (AF_INET6, None, "[::ffff:0.0.0.0]:7", "::ffff:127.0.0.1", "[::ffff:127.0.0.1]:7"),
        (
            AF_INET6,
            Some("[::ffff:10.0.0.1]:0"),
            "[::]:7",
            "::ffff:10.0.0.1",
            "[::ffff:127.0.0.1]:7",
        ),
    ] {
        let any = if domain == AF_INET6 { "[::]:7" } else { "0.0.0.0:7" };
        let listener = socket_of(&mut pair, domain, SOCK_STREAM);
        pair.call(0, Call::Bind { fd: listener, address: address(any) });
        pair.call(0, Call::Listen { fd: listener, backlog: 1 });
        let receiver = socket_of(&mut pair, domain, SOCK_DGRAM);
        pair.call(0, Call::Bind { fd: receiver, address: address(any) });
        let [client, sender, connected] = [SOCK_STREAM, SOCK_DGRAM, SOCK_DGRAM].map(|kind| {
            let fd = socket_of(&mut pair, domain, kind);
            if let Some(bound) = bound {
                pair.call(0, Call::Bind { fd, address: address(bound) });
            }
            fd
        });
        pair.call(0, Call::Connect { fd: client, address: address(to) });
        pair.call(0, send_to(sender, to));
        pair.call(0, Call::Connect { fd: connected, address: address(to) });
        pair.call(0, send(connected, b"x"));
        let accepted = pair.call(0, Call::Accept { fd: listener });
        let Output::Address(Address::Inet(peer)) = accepted.output else { panic!("an address") };
        assert_eq!(peer.ip().to_string(), from, "{to}");
        for _ in 0..2 {
            let output = pair.call(0, receive(receiver, MSG_DONTWAIT)).output;
            let Output::Received { from: Some(Address::Inet(sender)), .. } = output else {
                panic!("{output:?}")
            };
            assert_eq!(sender.ip().to_string(), from, "{to}");
        }
        let connected_to = pair.hosts[0].files.datagram(connected).expect("it is open");
        let peer = connected_to.peer.expect("it has one");
        assert_eq!(Address::seen_from(connected_to.domain, peer), address(told), "{to}");
        for fd in [listener, receiver, client, sender, connected, accepted.value as Fd] {
            pair.call(0, Call::Close { fd });
        }
    }
    assert!(pair.hosts.iter().all(|host| !host.has_packet()), "all stays here");
}
