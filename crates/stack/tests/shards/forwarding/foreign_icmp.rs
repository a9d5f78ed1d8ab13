//! What a relay says by ICMP in the name of addresses that are only accepted, and what it hears of it.

use super::{MS, at, chunk, connect, dropped, forwarder, net, next};
use crate::harness::Net;
use crate::harness::{address, data};
use core::net::{IpAddr, SocketAddr};
use counters::DropReason;
use ip::{Cidr, IcmpErrorKind};
use stack::{BadArgument, Holdings, SocketError, SocketId};

/// RFC 5461, 2.2 and 3.1: what is said of the SYN ends the attempt, so that a peer tries its next address.
#[test]
fn a_relay_refuses_a_connection_and_its_peer_hears_why() {
    for (ethernet, to, prefix) in [
        (false, "93.184.215.14:443", Cidr::ANY_IPV4),
        (true, "93.184.215.14:443", Cidr::ANY_IPV4),
        (true, "[2606:2800:21f::1]:80", Cidr::ANY_IPV6),
    ] {
        let prohibited = match prefix == Cidr::ANY_IPV4 {
            true => SocketError::HostUnreachable,
            false => SocketError::Prohibited,
        };
        let mut net = net(ethernet);
        let forwarder = forwarder(&mut net, prefix, 1);
        for (kind, error) in [
            (IcmpErrorKind::PortUnreachable, SocketError::ConnectionRefused),
            (IcmpErrorKind::Prohibited, prohibited),
            (IcmpErrorKind::HostUnreachable, SocketError::HostUnreachable),
            (IcmpErrorKind::NetUnreachable, SocketError::NetworkUnreachable),
        ] {
            let client = connect(&mut net, at(to));
            let (pending, now) = (next(&mut net, forwarder), net.now);
            net.hosts[1].shard.tcp_refuse_pending_with(now, &pending, kind);
            net.run(10 * MS);
            let status = net.hosts[0].shard.tcp_status(client).expect("not closed");
            assert_eq!(status.error, Some(error), "{kind:?}");
            // Decided is decided.
            net.hosts[1].shard.tcp_refuse_pending_with(now, &pending, kind);
            let again = net.hosts[1].shard.tcp_accept_pending(now, &pending);
            assert_eq!(again, Err(SocketError::ConnectionAborted));
        }
        assert_eq!(net.hosts[1].shard.counters().shard.forwards_refused, 4);
        net.hosts[1].shard.close(net.now, forwarder);
        assert_eq!(net.hosts[1].shard.holdings(), Holdings::default());
    }
}

// As all ICMP errors.
#[test]
fn refused_connections_are_not_a_flood_of_errors() {
    let mut net = net(false);
    let forwarder = forwarder(&mut net, Cidr::ANY_IPV4, 8);
    connect(&mut net, at("8.8.8.8:80"));
    let own = net.wire[0].1.clone();
    for _ in 0..10_000 {
        net.inject(1, [own.clone()]);
        let (pending, now) = (next(&mut net, forwarder), net.now);
        net.hosts[1].shard.tcp_refuse_pending_with(now, &pending, IcmpErrorKind::HostUnreachable);
    }
    assert!(dropped(&net, DropReason::IcmpRateLimited) > 5_000);
}

/// A socket of the first host's that has sent so many bytes to `to`, and hears no other.
fn sent(net: &mut Net, to: SocketAddr, len: usize) -> SocketId {
    let own = SocketAddr::new(address(0, to.is_ipv6()), 0);
    let socket = net.hosts[0].shard.udp_bind(own).expect("a free port");
    net.hosts[0].shard.udp_connect(socket, to).expect("a route");
    net.hosts[0].shard.udp_send(socket, None, chunk(&data(len))).expect("room");
    net.run(10 * MS);
    socket
}

/// RFC 1122, 4.1.3.3: the error reaches the socket that sent, because it quotes what that sent.
#[test]
fn a_relay_refuses_datagrams_and_their_senders_hear_it() {
    for (to, prefix) in [("8.8.8.8:53", Cidr::ANY_IPV4), ("[2606:2800:21f::1]:443", Cidr::ANY_IPV6)]
    {
        let mut net = net(true);
        let forwarder = net.hosts[1].shard.udp_forward(prefix).expect("it is accepted");
        let too_big = IcmpErrorKind::PacketTooBig { mtu_bytes: 1_280 };
        let prohibited = match prefix == Cidr::ANY_IPV4 {
            true => SocketError::HostUnreachable,
            false => SocketError::Prohibited,
        };
        for (kind, len, kept, error) in [
            (IcmpErrorKind::PortUnreachable, 3, 3, SocketError::ConnectionRefused),
            (IcmpErrorKind::PortUnreachable, 3, 0, SocketError::ConnectionRefused),
            (IcmpErrorKind::Prohibited, 1_400, 1_400, prohibited),
            (too_big, 3_000, 3_000, SocketError::MessageTooLong),
        ] {
            let client = sent(&mut net, at(to), len);
            let (now, shard) = (net.now, &mut net.hosts[1].shard);
            let datagram = shard.udp_receive_datagram(forwarder).expect("it came");
            let (ends, payload) = ((datagram.source, at(to)), &datagram.payload.bytes()[..kept]);
            shard.udp_refuse(now, forwarder, ends, payload, kind).expect("it was taken");
            net.run(10 * MS);
            assert_eq!(net.hosts[0].shard.udp_check(client), Err(error), "{kind:?}, {kept}");
        }

        let refuse = |net: &mut Net, ends| {
            let (now, kind) = (net.now, IcmpErrorKind::PortUnreachable);
            net.hosts[1].shard.udp_refuse(now, forwarder, ends, &[], kind)
        };
        let sender = SocketAddr::new(address(0, prefix == Cidr::ANY_IPV6), 9);
        let other = SocketAddr::new(address(0, prefix == Cidr::ANY_IPV4), 9);
        let nobody = SocketAddr::new(prefix.address(), 9);
        let families = BadArgument::FamiliesDiffer { local: at(to).ip(), remote: other.ip() };
        let outside = |address| BadArgument::OutsidePrefix { address, prefix };
        for (ends, wrong) in [
            ((other, at(to)), families),
            ((sender, other), outside(other.ip())),
            ((sender, nobody), outside(nobody.ip())),
        ] {
            assert_eq!(refuse(&mut net, ends), Err(wrong.into()), "{ends:?}");
        }
        // As all ICMP errors.
        for _ in 0..10_000 {
            refuse(&mut net, (sender, at(to))).expect("it is counted");
        }
        assert!(dropped(&net, DropReason::IcmpRateLimited) > 5_000);
    }
}

#[test]
fn a_relay_answers_pings_to_others_and_to_nobody_else() {
    for (to, prefix) in [("8.8.8.8", Cidr::ANY_IPV4), ("2606:2800:21f::1", Cidr::ANY_IPV6)] {
        let ipv6 = prefix == Cidr::ANY_IPV6;
        let mut net = net(true);
        let (to, ours) = (to.parse::<IpAddr>().expect("an address"), address(1, ipv6));
        let client = net.hosts[0].shard.raw_bind_echo(address(0, ipv6), 0).expect("free");
        let ping = |net: &mut Net, to, len| {
            let kind = if ipv6 { 128 } else { 8 };
            let message = [&[kind, 0, 0, 0, 0, 0, 0, 5], &*data(len)].concat();
            net.hosts[0].shard.raw_send(client, to, chunk(&message)).expect("a route");
            net.run(10 * MS);
        };
        ping(&mut net, to, 8);
        assert_eq!(dropped(&net, DropReason::NotOurAddress), 1, "nobody answers for others");
        let forwarder = net.hosts[1].shard.echo_forward(prefix).expect("it is accepted");
        let again = net.hosts[1].shard.echo_forward(prefix);
        assert_eq!(again, Err(SocketError::AddressInUse));
        // The last ones in fragments.
        for len in [0, 56, 3_000, 20_000] {
            ping(&mut net, to, len);
            let shard = &mut net.hosts[1].shard;
            let asked = shard.raw_receive(forwarder).expect("it came");
            let peer = address(0, ipv6);
            assert_eq!((asked.source, asked.destination, asked.hop_limit), (peer, to, 64));
            let refused = shard.raw_send(forwarder, peer, asked.payload.clone());
            assert_eq!(refused, Err(BadArgument::NoSource.into()), "from no address");
            let from_nobody =
                shard.raw_send_forwarded(forwarder, prefix.address(), peer, asked.payload.clone());
            let outside = BadArgument::OutsidePrefix { address: prefix.address(), prefix };
            assert_eq!(from_nobody, Err(outside.into()));
            let not_echo = shard.raw_send_forwarded(forwarder, to, peer, chunk(&[3; 8]));
            assert_eq!(not_echo, Err(BadArgument::NoEcho.into()));
            shard.raw_send_forwarded(forwarder, to, peer, asked.payload).expect("a way back");
            net.run(10 * MS);
            let reply = net.hosts[0].shard.raw_receive(client).expect("it is answered");
            assert_eq!((reply.source, &reply.payload.bytes()[8..]), (to, &*data(len)));
        }
        // What is to us is answered as ever.
        ping(&mut net, ours, 8);
        assert_eq!(net.hosts[0].shard.raw_receive(client).expect("answered").source, ours);
        let nothing = net.hosts[1].shard.raw_receive(forwarder).map(drop);
        assert_eq!(nothing, Err(SocketError::WouldBlock));
        net.hosts[1].shard.close(net.now, forwarder);
        ping(&mut net, to, 8);
        assert_eq!(dropped(&net, DropReason::NotOurAddress), 2);
    }
}

#[test]
fn bulk_that_a_relay_reads_too_slowly_does_not_cost_others_their_datagrams() {
    let mut net = net(false);
    let forwarder = net.hosts[1].shard.udp_forward(Cidr::ANY_IPV4).expect("it is accepted");
    let bulk = sent(&mut net, at("93.184.215.14:443"), 1_400);
    for _ in 0..100 {
        for _ in 0..40 {
            net.hosts[0].shard.udp_send(bulk, None, chunk(&data(1_400))).expect("room");
        }
        net.run(MS);
    }
    assert!(dropped(&net, DropReason::SocketQueueFull) > 0, "4 MiB and more were sent");
    sent(&mut net, at("8.8.8.8:53"), 1_400);
    let next = || net.hosts[1].shard.udp_receive_datagram(forwarder).ok();
    let last = core::iter::from_fn(next).last().expect("many came");
    assert_eq!(last.destination, at("8.8.8.8:53"));
}
