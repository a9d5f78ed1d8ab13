//! A stack that takes connections to addresses that are not its own, and a guest that believes in them.

use crate::pair::{self, LEFT, PATIENCE, RIGHT, interface, run};
use ip::Cidr;
use multidata::{
    ForwardedDatagram, InterfaceConfig, ReceivedDatagram, Stack, TcpForwarder, TcpListener,
    TcpStream, UdpForwarder, UdpSocket,
};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr};
use std::time::{Duration, Instant};

/// A guest at the left whose router is the relay at the right, which accepts everything.
fn stacks(squeues: usize) -> (Stack, Stack) {
    let (left, right) = device::wire(pair::ethernet());
    let with_ipv6 = |config: InterfaceConfig, address: &str, router: Option<&str>| {
        let config = config.address(address.parse().expect("a network"));
        match router {
            Some(router) => config.gateway(router.parse().expect("an address")),
            None => config.accept_any(Cidr::ANY_IPV4).accept_any(Cidr::ANY_IPV6),
        }
    };
    let guest = interface(LEFT).gateway(RIGHT.parse().expect("an address"));
    let guest = with_ipv6(guest, "fd01::1/64", Some("fd01::2"));
    let relay = with_ipv6(interface(RIGHT), "fd01::2/64", None);
    let guest = Stack::builder().interface(left, guest).build();
    let relay = Stack::builder().squeues(squeues).interface(right, relay).build();
    (guest.expect("a stack"), relay.expect("a stack"))
}

/// Relays what the forwarder gets to a kernel socket, each connection by two threads; port 81 is refused.
fn relay(forwarder: TcpForwarder, outside: SocketAddr) {
    std::thread::spawn(move || {
        while let Ok(pending) = forwarder.next() {
            if pending.destination().port() == 81 {
                pending.refuse();
                continue;
            }
            std::thread::spawn(move || {
                // The outside first: its failure is the guest's.
                let Ok(outer) = std::net::TcpStream::connect(outside) else { return };
                let destination = pending.destination();
                let inner = pending.accept().expect("it waits");
                assert_eq!(inner.local_addr().expect("open"), destination);
                let mut up =
                    (inner.try_clone().expect("a handle"), outer.try_clone().expect("one"));
                let back = std::thread::spawn(move || {
                    let (mut outer, mut inner) = (outer, inner);
                    std::io::copy(&mut outer, &mut inner).expect("the guest reads");
                    inner.shutdown(Shutdown::Write).expect("it is open");
                });
                std::io::copy(&mut up.0, &mut up.1).expect("the outside reads");
                up.1.shutdown(Shutdown::Write).expect("it is open");
                back.join().expect("it ran");
            });
        }
    });
}

/// A kernel socket that sends back what it gets.
fn echo_outside() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            std::thread::spawn(move || {
                let mut reader = stream.try_clone().expect("a handle");
                std::io::copy(&mut reader, &mut stream).expect("the relay reads");
            });
        }
    });
    address
}

fn echoed(guest: &Stack, to: SocketAddr) {
    let mut stream = TcpStream::connect(guest, to).expect("it is relayed");
    let text = format!("hello {to}").repeat(1_000);
    stream.write_all(text.as_bytes()).expect("the relay reads");
    stream.shutdown(Shutdown::Write).expect("it is open");
    let mut echo = String::new();
    stream.read_to_string(&mut echo).expect("the relay writes");
    assert!(echo == text, "{to}: it came back otherwise");
}

fn foreign(number: u32) -> SocketAddr {
    let address = match number % 4 {
        3 => IpAddr::V6(Ipv6Addr::from((0x2606_2800_u128 << 96) + u128::from(number))),
        _ => IpAddr::V4(Ipv4Addr::from(0x0808_0000 + number * 77)),
    };
    SocketAddr::new(address, 80 + (number % 7) as u16 * 1_000)
}

#[test]
fn two_hundred_connections_to_two_hundred_addresses_are_relayed() {
    for squeues in [1, 2] {
        let (guest, stack) = stacks(squeues);
        let outside = echo_outside();
        for any in [Cidr::ANY_IPV4, Cidr::ANY_IPV6] {
            relay(TcpForwarder::bind(&stack, any, 256).expect("it is accepted"), outside);
        }
        std::thread::scope(|scope| {
            for part in 0..4 {
                let guest = &guest;
                scope.spawn(move || {
                    (part * 50..part * 50 + 50).for_each(|n| echoed(guest, foreign(n)))
                });
            }
        });
        let counters = stack.counters().stack.shard;
        assert_eq!((counters.forwards_accepted, counters.connections_accepted), (200, 200));
        if squeues == 2 {
            let of = |it: multidata::Counters| it.stack.shard.forwards_accepted;
            let each: Vec<u64> = stack.squeue_counters().into_iter().map(of).collect();
            assert!(each.iter().all(|count| *count > 0), "one squeue had all: {each:?}");
        }
        let refused = TcpStream::connect(&guest, "8.8.8.8:81").expect_err("the relay said no");
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    }
}

#[test]
fn nobody_is_answered_before_the_decision_and_a_relay_that_fails_refuses() {
    let (guest, stack) = stacks(1);
    let forwarder = TcpForwarder::bind(&stack, Cidr::ANY_IPV4, 8).expect("it is accepted");
    let timeout = Duration::from_millis(300);
    let to: SocketAddr = "93.184.215.14:80".parse().expect("an address");
    let error = TcpStream::connect_timeout(&guest, &to, timeout).expect_err("nobody decides");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let late = forwarder.next().expect("it asked");
    late.ignore();
    assert_eq!(stack.counters().stack.shard.forwards_ignored, 1);
    forwarder.set_nonblocking(true).expect("it can");
    let none = forwarder.next().expect_err("there was one");
    assert_eq!(none.kind(), ErrorKind::WouldBlock);
    forwarder.set_nonblocking(false).expect("it can");
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| TcpStream::connect(&guest, to).map(drop));
        drop(forwarder.next().expect("it asks"));
        let error = connecting.join().expect("it ran").expect_err("it was dropped");
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn as_many_wait_as_may_and_the_others_ask_again() {
    let (guest, stack) = stacks(1);
    let forwarder = TcpForwarder::bind(&stack, Cidr::ANY_IPV4, 2).expect("it is accepted");
    std::thread::scope(|scope| {
        for number in 0..5 {
            let guest = &guest;
            scope.spawn(move || {
                let to = SocketAddr::from(([9, 9, 9, number], 80));
                TcpStream::connect(guest, to).expect("in its turn")
            });
        }
        let until = Instant::now() + PATIENCE;
        let is_dropped =
            || stack.counters().stack.drops.count(counters::DropReason::ForwarderFull) > 0;
        while !is_dropped() {
            assert!(Instant::now() < until, "all five were let in");
            std::thread::sleep(Duration::from_millis(5));
        }
        for _ in 0..5 {
            drop(forwarder.next().expect("it asks").accept().expect("it waits"));
        }
    });
}

#[test]
fn tasks_are_told_and_listeners_come_first() {
    let (guest, stack) = stacks(2);
    let listener = TcpListener::bind(&stack, "0.0.0.0:80").expect("a free port");
    let forwarder = TcpForwarder::bind(&stack, Cidr::ANY_IPV4, 8).expect("it is accepted");
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| TcpStream::connect(&guest, "1.1.1.1:853"));
        let pending = run(|context| forwarder.poll_next(context)).expect("it asks");
        let server = pending.accept().expect("it waits");
        let client = connecting.join().expect("it ran").expect("it was accepted");
        assert_eq!(server.peer_addr().expect("open"), client.local_addr().expect("open"));
        scope.spawn(|| TcpStream::connect(&guest, "1.1.1.1:80").expect("it listens"));
        let (accepted, _) = listener.accept().expect("it came");
        assert_eq!(accepted.local_addr().expect("open"), "1.1.1.1:80".parse().expect("one"));
    });
    let other: Cidr = "fd09::/64".parse().expect("a network");
    let again = TcpForwarder::bind(&stack, Cidr::ANY_IPV4, 8).map(drop).expect_err("there is one");
    assert_eq!(again.kind(), ErrorKind::AddrInUse);
    let _all = TcpForwarder::bind(&stack, other, 8).expect("all of IPv6 is accepted");
}

#[test]
fn datagrams_to_any_port_come_with_where_they_were_sent_and_are_answered_from_there() {
    for squeues in [1, 2] {
        let (guest, stack) = stacks(squeues);
        let taken = UdpSocket::bind(&stack, "0.0.0.0:53").expect("a free port");
        for any in [Cidr::ANY_IPV4, Cidr::ANY_IPV6] {
            let forwarder = UdpForwarder::bind(&stack, any).expect("it is accepted");
            assert_eq!(forwarder.prefix(), any);
            std::thread::spawn(move || {
                let answer = |bytes: &[u8], from, to| {
                    forwarder.send_from_to(bytes, to, from).expect("a route");
                };
                if any == Cidr::ANY_IPV6 {
                    while forwarder
                        .recv_many(9, |it| answer(it.payload, it.source, it.destination))
                        .is_ok()
                    {}
                }
                let mut bytes = [0; 2_000];
                while let Ok((len, from, to)) = forwarder.recv_from_to(&mut bytes) {
                    answer(&bytes[..len], from, to);
                }
            });
        }
        let mut bytes = [0; 100];
        for number in 0..200 {
            let to = foreign(number);
            let client = UdpSocket::bind(&guest, "0.0.0.0:0").expect("a free port");
            // Connected, it hears nobody but who was asked.
            client.connect(to).expect("a route");
            client.set_read_timeout(Some(PATIENCE)).expect("not zero");
            client.send(to.to_string().as_bytes()).expect("connected");
            let len = client.recv(&mut bytes).expect("echoed");
            assert_eq!(&bytes[..len], to.to_string().as_bytes());
        }
        // What a socket has is not for the forwarder.
        let client = UdpSocket::bind(&guest, "0.0.0.0:0").expect("a free port");
        client.send_to(b"x", "8.8.8.8:53").expect("a route");
        taken.set_read_timeout(Some(PATIENCE)).expect("not zero");
        let (_, _, to) = taken.recv_from_to(&mut bytes).expect("it has the port");
        assert_eq!(to, "8.8.8.8:53".parse().expect("an address"));
        let again = UdpForwarder::bind(&stack, Cidr::ANY_IPV4).expect_err("there is one");
        assert_eq!(again.kind(), ErrorKind::AddrInUse);
    }
}

#[test]
fn what_a_relay_answers_together_leaves_in_one_batch() {
    let (guest, stack) = stacks(1);
    let forwarder = UdpForwarder::bind(&stack, Cidr::ANY_IPV4).expect("it is accepted");
    let client = UdpSocket::bind(&guest, "10.1.0.1:4000").expect("a free port");
    client.set_read_timeout(Some(PATIENCE)).expect("not zero");
    let to = client.local_addr().expect("bound");
    let far = |number: u8| SocketAddr::from(([9, 9, 9, number], u16::from(number) + 1));
    let answers: Vec<[u8; 1]> = (0..100).map(|number| [number]).collect();
    let datagram = |payload| ForwardedDatagram { payload, from: far(0), to, traffic_class: None };
    let mut datagrams: Vec<_> = answers.iter().map(|it| datagram(it)).collect();
    for (number, it) in datagrams.iter_mut().enumerate() {
        (it.from, it.traffic_class) = (far(number as u8), Some(0b01));
    }
    // Until the neighbour is known, one at a time.
    assert_eq!(forwarder.send_many(&datagrams[..1]).expect("a route"), 1);
    assert_eq!(client.recv_from(&mut [0; 9]).expect("it was sent"), (1, far(0)));
    let before = stack.counters().device;
    assert_eq!(forwarder.send_many(&datagrams[1..60]).expect("a route"), 59);
    let polled = run(|context| forwarder.poll_send_many(context, &datagrams[60..]));
    assert_eq!(polled.expect("a route"), 40);
    let mut heard = 1;
    while heard < 100 {
        let hear = |it: ReceivedDatagram<'_>| {
            assert_eq!((it.payload, it.source), (&answers[heard][..], far(heard as u8)));
            assert_eq!(it.traffic_class, 0b01);
            heard += 1;
        };
        client.recv_many(100, hear).expect("they were sent");
    }
    let after = stack.counters().device;
    assert_eq!(after.transmit_packets - before.transmit_packets, 99);
    let batches = after.transmit_batches - before.transmit_batches;
    assert!(batches <= 10, "{batches} batches for two calls");
    // What is not the forwarder's, and what no datagram can say, goes from nowhere; those before it go.
    let of_another: SocketAddr = "[fd09::1]:9".parse().expect("an address");
    datagrams[1].from = of_another;
    assert_eq!(forwarder.send_many(&datagrams[..3]).expect("one is right"), 1);
    let refused = forwarder.send_many(&datagrams[1..3]).expect_err("not of the prefix");
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    let polled = run(|context| forwarder.poll_send_many(context, &datagrams[1..3]));
    assert_eq!(polled.expect_err("neither").kind(), ErrorKind::InvalidInput);
    let nothing = run(|context| forwarder.poll_send_many(context, &[]));
    assert_eq!(nothing.expect("nothing to do"), 0);
}
