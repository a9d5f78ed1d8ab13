//! UDP sockets of two stacks on one wire behave as `std::net` says.

use crate::pair::{self, LEFT, PATIENCE, RIGHT, interface, pair, right};
use bytes::Bytes;
use multidata::{
    BindOptions, Datagram, LentDatagram, MtuDiscovery, ReceivedDatagram, Stack, UdpSocket,
};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

#[test]
fn datagrams_come_whole_with_their_sender() {
    let (left, right_stack) = pair();
    let server = UdpSocket::bind(&right_stack, right(53)).expect("a free port");
    let client = UdpSocket::bind(&left, "10.1.0.1:0").expect("a free port");
    assert_ne!(client.local_addr().expect("bound").port(), 0);
    // The last ones go in fragments; 65,507 is the longest that IPv4 can say.
    for len in [0, 1, 1_000, 1_472, 1_473, 20_000, 65_507] {
        let sent: Vec<u8> = (0..len).map(|i| i as u8).collect();
        assert_eq!(client.send_to(&sent, right(53)).expect("a route"), len);
        let mut bytes = vec![0; 70_000];
        let (count, source) = server.recv_from(&mut bytes).expect("sent");
        assert_eq!((&bytes[..count], source), (&*sent, client.local_addr().expect("bound")));
        assert_eq!(server.send_to(&bytes[..count], source).expect("a route"), len);
        assert_eq!(client.recv_from(&mut bytes).expect("echoed"), (len, right(53)));
    }
}

#[test]
fn a_mapped_address_is_the_ipv4_one() {
    let (left, right_stack) = pair();
    let server = UdpSocket::bind(&right_stack, right(53)).expect("a free port");
    let client = UdpSocket::bind(&left, "[::]:0").expect("a free port");
    let mapped = "[::ffff:10.1.0.2]:53";
    client.send_to(b"once", mapped).expect("a route");
    client.connect(mapped).expect("a route");
    assert_eq!(client.peer_addr().expect("connected"), right(53));
    client.send(b"twice").expect("a route");
    let mut bytes = [0; 8];
    for len in [4, 5] {
        let (count, source) = server.recv_from(&mut bytes).expect("sent");
        assert_eq!((count, source.ip()), (len, pair::LEFT.parse().expect("an address")));
    }
}

// The neighbour is not known yet: what was taken waits for its answer.
#[test]
fn a_datagram_leaves_though_its_stack_ends() {
    for ends_by_itself in [true, false] {
        let (left, right_stack) = pair();
        let server = UdpSocket::bind(&right_stack, right(53)).expect("a free port");
        server.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let client = UdpSocket::bind(&left, "10.1.0.1:0").expect("a free port");
        client.send_to(b"farewell", right(53)).expect("a route");
        drop(client);
        match ends_by_itself {
            true => drop(left),
            false => left.shutdown(PATIENCE).expect("the neighbour answers"),
        }
        assert_eq!(server.recv(&mut [0; 10]).expect("sent"), 8);
    }
    // Nobody is at the other end.
    let (near, _far) = device::wire(pair::ethernet());
    let alone = Stack::builder().interface(near, pair::interface(pair::LEFT));
    let alone = alone.build().expect("a stack");
    let client = UdpSocket::bind(&alone, "10.1.0.1:0").expect("a free port");
    client.send_to(b"farewell", right(53)).expect("a route");
    let error = alone.clone().shutdown(Duration::from_millis(50)).expect_err("it waits");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    alone.shutdown(PATIENCE).expect("what has no neighbour is given up");
}

#[test]
fn a_short_buffer_loses_the_rest_of_a_datagram() {
    let (left, right_stack) = pair();
    let server = UdpSocket::bind(&right_stack, "0.0.0.0:54").expect("a free port");
    let client = UdpSocket::bind(&left, "10.1.0.1:0").expect("a free port");
    client.send_to(b"first datagram", right(54)).expect("a route");
    client.send_to(b"second", right(54)).expect("a route");
    let mut bytes = [0; 6];
    assert_eq!(server.recv(&mut bytes).expect("sent"), 6);
    assert_eq!(&bytes, b"first ");
    assert_eq!(server.recv(&mut bytes).expect("sent"), 6);
    assert_eq!(&bytes, b"second");
}

#[test]
fn a_connected_socket_hears_its_peer_only() {
    let (left, right_stack) = pair();
    let server = UdpSocket::bind(&right_stack, right(55)).expect("a free port");
    let other = UdpSocket::bind(&right_stack, right(56)).expect("a free port");
    let client = UdpSocket::bind(&left, "10.1.0.1:4000").expect("a free port");
    assert_eq!(client.peer_addr().expect_err("no peer").kind(), ErrorKind::NotConnected);
    assert_eq!(client.send(b"x").expect_err("no peer").kind(), ErrorKind::InvalidInput);
    client.connect(right(55)).expect("a route");
    assert_eq!(client.peer_addr().expect("connected"), right(55));
    client.send(b"question").expect("connected");
    let mut bytes = [0; 20];
    let (_, source) = server.recv_from(&mut bytes).expect("sent");
    other.send_to(b"stranger", source).expect("a route");
    server.send_to(b"answer", source).expect("a route");
    let count = client.recv(&mut bytes).expect("answered");
    assert_eq!(&bytes[..count], b"answer");
}

// As std::net's: connect(2) chooses the address.
#[test]
fn a_socket_on_all_addresses_has_one_when_it_is_connected() {
    let (left, right_stack) = pair();
    let server = UdpSocket::bind(&right_stack, right(55)).expect("a free port");
    for bound in ["0.0.0.0:4000", "[::]:4001"] {
        let bound: SocketAddr = bound.parse().expect("an address");
        let client = UdpSocket::bind(&left, bound).expect("a free port");
        assert_eq!(client.local_addr().expect("bound"), bound);
        client.connect(right(55)).expect("a route");
        let own = SocketAddr::new(pair::LEFT.parse().expect("an address"), bound.port());
        assert_eq!(client.local_addr().expect("connected"), own);
        client.send(b"question").expect("connected");
        assert_eq!(server.recv_from(&mut [0; 20]).expect("sent"), (8, own));
    }
}

#[test]
fn waiting_ends_in_time_or_does_not_begin() {
    let (left, _right) = pair();
    let socket = UdpSocket::bind(&left, "10.1.0.1:4001").expect("a free port");
    let error = UdpSocket::bind(&left, "10.1.0.1:4001").expect_err("taken");
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    socket.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout");
    assert_eq!(socket.recv(&mut [0]).expect_err("nothing").kind(), ErrorKind::WouldBlock);
    socket.set_nonblocking(true).expect("always");
    assert_eq!(socket.recv(&mut [0]).expect_err("nothing").kind(), ErrorKind::WouldBlock);
    let error = socket.send_to(&[0; 65_508], right(9)).expect_err("longer than IPv4 can say");
    assert_eq!(error.to_string(), "the datagram is longer than the path takes");
    socket.set_mtu_discovery(MtuDiscovery::Do).expect("open");
    let error = socket.send_to(&[0; 1_473], right(9)).expect_err("longer than the MTU takes");
    assert_eq!(error.to_string(), "the datagram is longer than the path takes");
}

#[test]
fn an_unreachable_port_is_reported_to_a_connected_socket() {
    let (left, _right) = pair();
    let socket = UdpSocket::bind(&left, "10.1.0.1:4002").expect("a free port");
    socket.connect(right(9)).expect("a route");
    socket.send(b"anybody?").expect("a route");
    socket.set_read_timeout(Some(Duration::from_secs(3))).expect("a timeout");
    let error = socket.recv(&mut [0]).expect_err("nobody is there");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn many_datagrams_go_in_one_call_to_several_peers() {
    let (left, right_stack) = pair();
    let servers = [61, 62].map(|port| UdpSocket::bind(&right_stack, right(port)).expect("free"));
    let client = UdpSocket::bind(&left, "10.1.0.1:0").expect("a free port");
    client.send_to(b"hello", right(61)).expect("a route");
    let mut bytes = [0; 2_000];
    servers[0].recv(&mut bytes).expect("the neighbour is known now");

    // Of different lengths, more than one group, and more than the interface's queue holds.
    let payloads: Vec<Vec<u8>> = (0..600_usize).map(|i| vec![i as u8; i * 7 % 150]).collect();
    let datagrams: Vec<Datagram<'_>> = (payloads.iter().enumerate())
        .map(|(i, payload)| Datagram {
            payload,
            to: Some(right(61 + i as u16 % 2)),
            ..Datagram::default()
        })
        .collect();
    let before = left.counters().device;
    assert_eq!(client.send_many(&datagrams).expect("a route"), 600);
    for (i, payload) in payloads.iter().enumerate() {
        let count = servers[i % 2].recv(&mut bytes).expect("sent");
        assert_eq!(&bytes[..count], payload, "datagram {i}");
    }
    let after = left.counters().device;
    let packets = after.transmit_packets - before.transmit_packets;
    let batches = after.transmit_batches - before.transmit_batches;
    assert!(packets >= 600 && packets / batches >= 30, "{packets} in {batches} batches");
}

#[test]
fn many_datagrams_are_received_by_one_call() {
    let (left, right_stack) = pair();
    let server = UdpSocket::bind(&right_stack, right(53)).expect("a free port");
    server.set_read_timeout(Some(PATIENCE)).expect("not zero");
    let client = UdpSocket::bind(&left, "10.1.0.1:0").expect("a free port");
    let source = client.local_addr().expect("bound");
    client.set_tos(0b10).expect("open");
    client.set_ttl(7).expect("open");
    let sent: Vec<Vec<u8>> = (0..100).map(|number| vec![number; usize::from(number) * 9]).collect();
    let datagrams: Vec<_> = sent
        .iter()
        .map(|payload| Datagram { payload, to: Some(right(53)), ..Datagram::default() })
        .collect();
    // What waits for the neighbour's answer may be less than that.
    client.send_to(b"first", right(53)).expect("a route");
    assert_eq!(server.recv(&mut [0; 9]).expect("it was sent"), 5);
    let frames = || right_stack.counters().device.receive_frames;
    let before = frames();
    assert_eq!(client.send_many(&datagrams).expect("a route"), 100);
    let started = std::time::Instant::now();
    while frames() < before + 100 {
        assert!(started.elapsed() < PATIENCE, "they were sent");
        std::thread::sleep(Duration::from_millis(1));
    }
    let (mut received, mut calls) = (Vec::new(), Vec::new());
    while received.len() < 100 {
        let count = server.recv_many(30, |datagram| {
            assert_eq!((datagram.source, datagram.destination), (source, right(53)));
            assert_eq!((datagram.traffic_class, datagram.hop_limit), (0b10, 7));
            received.push(datagram.payload.to_vec());
        });
        calls.push(count.expect("they were sent"));
    }
    assert!(received == sent, "in order, and each once");
    assert_eq!(calls, [30, 30, 30, 10]);
    server.set_nonblocking(true).expect("it can");
    let none = server.recv_many(30, |_| unreachable!("nothing was sent")).expect_err("nothing");
    assert_eq!(none.kind(), ErrorKind::WouldBlock);
}

#[test]
fn each_of_many_datagrams_may_come_from_another_address_and_be_marked() {
    let (left, far) = device::wire(pair::ethernet());
    let other: ip::Cidr = "10.1.0.7/24".parse().expect("a network");
    let of_left = interface(LEFT).address(other);
    let left = Stack::builder().interface(left, of_left).build().expect("a stack");
    let right_stack = Stack::builder().interface(far, interface(RIGHT)).build().expect("one");
    let server = UdpSocket::bind(&right_stack, right(53)).expect("a free port");
    server.set_read_timeout(Some(PATIENCE)).expect("not zero");
    let client = UdpSocket::bind(&left, "0.0.0.0:4000").expect("a free port");
    client.set_tos(0x48).expect("open");
    let to = Some(right(53));
    let plain = Datagram { payload: b"plain", to, ..Datagram::default() };
    let marked = Datagram { traffic_class: Some(0b10), ..plain };
    let from = Some(other.address());
    let lent =
        LentDatagram { payload: Bytes::from_static(b"lent"), to, from, traffic_class: Some(0b11) };
    assert_eq!(client.send_many(&[plain, Datagram { from, ..marked }]).expect("a route"), 2);
    let polled = pair::run(|context| client.poll_send_many(context, &[marked, plain]));
    assert_eq!(polled.expect("a route"), 2);
    assert_eq!(client.send_many_bytes(&[lent]).expect("a route"), 1);
    let mut heard = Vec::new();
    while heard.len() < 5 {
        let hear = |it: ReceivedDatagram<'_>| {
            assert_eq!(it.source.port(), 4_000);
            heard.push((it.source.ip().to_string(), it.traffic_class));
        };
        server.recv_many(5, hear).expect("they were sent");
    }
    let wanted = [
        ("10.1.0.1", 0x48),
        ("10.1.0.7", 0b10),
        ("10.1.0.1", 0b10),
        ("10.1.0.1", 0x48),
        ("10.1.0.7", 0b11),
    ];
    assert_eq!(heard, wanted.map(|(from, class)| (from.to_owned(), class)));
    let nobodys = Some("10.1.0.9".parse().expect("an address"));
    let refused = client.send_many(&[Datagram { from: nobodys, ..plain }]).expect_err("nobody's");
    assert_eq!(refused.kind(), ErrorKind::AddrNotAvailable);
}

#[test]
fn of_many_datagrams_those_before_a_wrong_one_go() {
    let (left, right_stack) = pair();
    let server = UdpSocket::bind(&right_stack, right(63)).expect("a free port");
    let client = UdpSocket::bind(&left, "10.1.0.1:0").expect("a free port");
    let to = Some(right(63));
    let long = vec![0; 65_536];
    let datagram = |payload| Datagram { payload, to, ..Datagram::default() };
    let all = [datagram(b"one"), datagram(b"two"), datagram(&long), datagram(b"three")];
    assert_eq!(client.send_many(&[]).expect("nothing to do"), 0);
    assert_eq!(client.send_many(&all).expect("two can be sent"), 2);
    let error = client.send_many(&all[2..]).expect_err("the first is too long");
    assert_eq!(error.to_string(), "the datagram is longer than the path takes");
    let lost = [datagram(b"four"), Datagram { payload: b"nowhere", ..Datagram::default() }];
    assert_eq!(client.send_many(&lost).expect("one has a destination"), 1);
    assert_eq!(client.send_many(&lost[1..]).expect_err("no peer").kind(), ErrorKind::InvalidInput);
    client.connect(right(63)).expect("a route");
    assert_eq!(client.send_many(&lost[1..]).expect("the peer"), 1);
    let mut bytes = [0; 20];
    for wanted in ["one", "two", "four", "nowhere"] {
        let count = server.recv(&mut bytes).expect("sent");
        assert_eq!(&bytes[..count], wanted.as_bytes());
    }
}

// As Linux chooses: a socket that is connected to the sender comes before any that is not, whatever the
// hash over those that share the port says.
#[test]
fn of_sockets_that_share_a_port_the_one_connected_to_the_sender_gets_it() {
    let (left, right_stack) = pair();
    let shared = BindOptions { shared: true, ..BindOptions::default() };
    let client = |_| UdpSocket::bind(&left, "10.1.0.1:0").expect("a free port");
    let clients: Vec<UdpSocket> = (0..9).map(client).collect();
    let servers: Vec<UdpSocket> = clients[..8]
        .iter()
        .map(|client| {
            let server = UdpSocket::bind_with(&right_stack, right(57), shared).expect("shared");
            server.connect(client.local_addr().expect("bound")).expect("a route");
            server.set_read_timeout(Some(PATIENCE)).expect("not zero");
            server
        })
        .collect();
    let mut bytes = [0; 20];
    for (number, client) in clients[..8].iter().enumerate() {
        client.send_to(&[number as u8], right(57)).expect("a route");
    }
    for (number, server) in servers.iter().enumerate() {
        assert_eq!(server.recv(&mut bytes).expect("its own"), 1, "{number}");
        assert_eq!(usize::from(bytes[0]), number);
    }
    // Who is nobody's peer is told so, or is for one that has none.
    clients[8].connect(right(57)).expect("a route");
    clients[8].set_read_timeout(Some(PATIENCE)).expect("not zero");
    clients[8].send(b"anybody?").expect("connected");
    let error = clients[8].recv(&mut bytes).expect_err("nobody is there");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    let open = UdpSocket::bind_with(&right_stack, right(57), shared).expect("shared");
    open.set_read_timeout(Some(PATIENCE)).expect("not zero");
    clients[8].send(b"anybody?").expect("connected");
    assert_eq!(open.recv(&mut bytes).expect("it takes from all"), 8);
    clients[3].send_to(b"still mine", right(57)).expect("a route");
    assert_eq!(servers[3].recv(&mut bytes).expect("its own"), 10);
    drop(servers);
    clients[3].send_to(b"free", right(57)).expect("a route");
    assert_eq!(open.recv(&mut bytes).expect("nobody else has it"), 4);
}

#[test]
fn an_answer_leaves_from_where_it_was_asked() {
    let (left, right_queue) = device::wire(pair::ethernet());
    let cidr = |text: &str| text.parse().expect("a network");
    let guest = pair::interface(pair::LEFT).gateway(pair::RIGHT.parse().expect("an address"));
    let relay =
        pair::interface(pair::RIGHT).address(cidr("10.1.0.3/24")).accept_any(ip::Cidr::ANY_IPV4);
    let guest = Stack::builder().interface(left, guest).build().expect("a stack");
    let relay = Stack::builder().interface(right_queue, relay).build().expect("a stack");
    let server = UdpSocket::bind(&relay, "0.0.0.0:53").expect("a free port");
    server.set_read_timeout(Some(PATIENCE)).expect("not zero");
    let mut bytes = [0; 20];
    for asked in ["10.1.0.2:53", "10.1.0.3:53", "8.8.8.8:53", "93.184.215.14:53"] {
        let asked: SocketAddr = asked.parse().expect("an address");
        let client = UdpSocket::bind(&guest, "10.1.0.1:0").expect("a free port");
        // Connected, it hears nobody else.
        client.connect(asked).expect("a route");
        client.set_read_timeout(Some(PATIENCE)).expect("not zero");
        client.send(b"who?").expect("connected");
        let (len, from, to) = server.recv_from_to(&mut bytes).expect("sent");
        assert_eq!((len, from, to), (4, client.local_addr().expect("bound"), asked));
        server.send_from_to(b"me", to.ip(), from).expect("its own or accepted");
        assert_eq!(client.recv(&mut bytes).expect("from where it asked"), 2, "{asked}");
    }
    let to = "10.1.0.1:9";
    let error = server.send_from_to(b"x", "fd00::1".parse().expect("one"), to);
    assert_eq!(error.expect_err("families differ").kind(), ErrorKind::InvalidInput);
    let client = UdpSocket::bind(&guest, "0.0.0.0:0").expect("a free port");
    let error = client.send_from_to(b"x", "8.8.8.8".parse().expect("one"), "10.1.0.2:53");
    assert_eq!(error.expect_err("not the guest's").kind(), ErrorKind::AddrNotAvailable);
}

#[test]
fn a_socket_holds_as_many_datagrams_as_it_was_told() {
    let (left, right_stack) = pair();
    let server = UdpSocket::bind(&right_stack, right(57)).expect("a free port");
    let client = UdpSocket::bind(&left, "10.1.0.1:0").expect("a free port");
    assert_eq!(
        server.set_receive_buffer_size(0).expect_err("none").kind(),
        ErrorKind::InvalidInput
    );
    // So that the neighbour is known: few wait for its answer.
    client.send_to(b"first", right(57)).expect("a route");
    server.recv(&mut [0; 10]).expect("sent");
    let dropped =
        || right_stack.counters().stack.drops.count(counters::DropReason::SocketQueueFull);
    for (bytes, are_all_held) in [(20_000, false), (1_000_000, true)] {
        server.set_receive_buffer_size(bytes).expect("a size");
        let before = dropped();
        for _ in 0..100 {
            client.send_to(&[7; 1_000], right(57)).expect("a route");
        }
        server.set_read_timeout(Some(Duration::from_millis(100))).expect("an option");
        let mut count = 0;
        while server.recv(&mut [0; 1_000]).is_ok() {
            count += 1;
        }
        assert_eq!(count + dropped() - before, 100);
        assert_eq!(count == 100, are_all_held, "{count}");
    }
}

/// There is nothing to be asked for first, and nothing else to be bound to.
#[test]
fn what_is_for_everybody_is_sent_and_heard_without_an_option() {
    let (left, right_stack) = pair();
    let ours = UdpSocket::bind(&left, (LEFT, 0)).expect("a free port");
    let theirs = UdpSocket::bind(&right_stack, "0.0.0.0:67").expect("a free port");
    theirs.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    for everybody in ["255.255.255.255:67", "10.1.0.255:67"] {
        ours.send_to(b"who is there?", everybody).expect("a way");
        let (len, from, to) = theirs.recv_from_to(&mut [0; 20]).expect("it is for it, too");
        assert_eq!((len, from), (13, ours.local_addr().expect("bound")));
        assert_eq!(to, everybody.parse().expect("an address"));
    }
}
