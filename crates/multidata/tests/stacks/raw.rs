//! Raw sockets of two stacks on one wire behave as UDP sockets do.

use crate::pair::{LEFT, PATIENCE, RIGHT, pair, pair_with};
use multidata::{
    EchoAnswer, MtuDiscovery, RawPacket, RawSocket, Stack, StackBuilder, echo_request,
};
use std::io::ErrorKind;
use std::net::IpAddr;
use std::time::Duration;

/// For experiments (RFC 3692).
const PROTOCOL: u8 = 253;

fn to(address: &str) -> IpAddr {
    address.parse().expect("an address")
}

fn bound(stack: &Stack) -> RawSocket {
    let socket = RawSocket::bind(stack, PROTOCOL).expect("a raw socket");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    socket
}

#[test]
fn packets_come_whole_with_what_their_header_said() {
    let (left, right) = pair();
    let (ours, theirs) = (bound(&left), bound(&right));
    ours.set_ttl(3).expect("open");
    for len in [0, 1, 1_480, 1_481, 65_515] {
        let sent: Vec<u8> = (0..len).map(|i| i as u8).collect();
        assert_eq!(ours.send_to(&sent, to(RIGHT)).expect("a route"), len);
        let mut bytes = vec![0; 70_000];
        let packet = theirs.recv(&mut bytes).expect("sent");
        assert_eq!((&bytes[..packet.len], packet.hop_limit), (&*sent, 3));
        assert_eq!((packet.source, packet.destination), (to(LEFT), to(RIGHT)));
    }
    ours.send_to(b"first packet", to(RIGHT)).expect("a route");
    let mut short = [0; 5];
    assert_eq!(theirs.recv_from(&mut short).expect("sent"), (5, to(LEFT)));
    assert_eq!(&short, b"first");
}

#[test]
fn waiting_ends_in_time_or_does_not_begin() {
    let (left, _right) = pair();
    let socket = RawSocket::bind(&left, PROTOCOL).expect("a raw socket");
    socket.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout");
    assert_eq!(socket.recv(&mut [0]).expect_err("nothing").kind(), ErrorKind::WouldBlock);
    socket.set_nonblocking(true).expect("always");
    assert_eq!(socket.recv(&mut [0]).expect_err("nothing").kind(), ErrorKind::WouldBlock);
    for len in [65_516, 65_536] {
        let error = socket.send_to(&vec![0; len], to(RIGHT)).expect_err("longer than IP can say");
        assert_eq!(error.to_string(), "the datagram is longer than the path takes");
    }
    socket.set_mtu_discovery(MtuDiscovery::Do).expect("open");
    let error = socket.send_to(&[0; 1_481], to(RIGHT)).expect_err("longer than the MTU");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert_eq!(socket.set_ttl(0).expect_err("nobody may").kind(), ErrorKind::InvalidInput);
    let error = RawSocket::bind(&left, 6).expect_err("TCP has its own");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("TCP and UDP have sockets of their own"), "{error}");
    let error = RawSocket::bind_at(&left, PROTOCOL, to(RIGHT)).expect_err("not ours");
    assert_eq!(error.kind(), ErrorKind::AddrNotAvailable);
    let error = socket.send_to(b"x", to("192.0.2.1")).expect_err("no route");
    assert_eq!(error.kind(), ErrorKind::NetworkUnreachable);
}

#[test]
fn a_socket_holds_as_much_as_it_was_told() {
    let (left, right) = pair();
    let (ours, theirs) = (bound(&left), bound(&right));
    let zero = theirs.set_receive_buffer_size(0).expect_err("none");
    assert_eq!(zero.kind(), ErrorKind::InvalidInput);
    let mut bytes = [0; 1_000];
    ours.send_to(b"hello", to(RIGHT)).expect("a route");
    theirs.recv(&mut bytes).expect("the neighbour is known now");
    theirs.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
    let dropped = || right.counters().stack.drops.count(counters::DropReason::SocketQueueFull);
    for (bytes_max, len, are_all_held) in
        [(20_000, 1_000, false), (4 << 20, 1_000, true), (4 << 20, 0, true)]
    {
        theirs.set_receive_buffer_size(bytes_max).expect("a size");
        let before = dropped();
        let packet = RawPacket { payload: &[7; 1_000][..len], to: to(RIGHT) };
        assert_eq!(ours.send_many(&vec![packet; 3_000]).expect("a route"), 3_000);
        let mut count = 0;
        while theirs.recv(&mut bytes).is_ok() {
            count += 1;
        }
        assert_eq!(count + dropped() - before, 3_000);
        assert_eq!(count == 3_000, are_all_held, "{count}");
    }
}

#[test]
fn many_packets_and_echo_requests_leave_in_few_batches() {
    let (left, right) = pair();
    let (ours, theirs) = (bound(&left), bound(&right));
    let mut bytes = [0; 2_000];
    ours.send_to(b"hello", to(RIGHT)).expect("a route");
    theirs.recv(&mut bytes).expect("the neighbour is known now");
    // More than one group, and more than the interface's queue holds.
    let payloads: Vec<Vec<u8>> = (0..600_usize).map(|i| vec![i as u8; i * 7 % 150]).collect();
    let packets: Vec<_> =
        payloads.iter().map(|payload| RawPacket { payload, to: to(RIGHT) }).collect();
    let before = left.counters().device;
    assert_eq!(ours.send_many(&packets).expect("a route"), 600);
    for payload in &payloads {
        let packet = theirs.recv(&mut bytes).expect("sent");
        assert_eq!(&bytes[..packet.len], payload);
    }
    let after = left.counters().device;
    let sent = after.transmit_packets - before.transmit_packets;
    let batches = after.transmit_batches - before.transmit_batches;
    assert!(sent >= 600 && sent / batches >= 30, "{sent} in {batches} batches");

    // Of many, those before a wrong one go.
    let mut wrong = packets[..9].to_vec();
    let long = vec![0; 70_000];
    wrong[5] = RawPacket { payload: &long, to: to(RIGHT) };
    assert_eq!(ours.send_many(&wrong).expect("five are right"), 5);
    assert_eq!(ours.send_many(&wrong[5..]).expect_err("too long").kind(), ErrorKind::InvalidInput);
}

#[test]
fn many_packets_are_shown_in_one_call_with_what_their_header_said() {
    let (left, right) = pair();
    let (ours, theirs) = (bound(&left), bound(&right));
    ours.send_to(b"hello", to(RIGHT)).expect("a route");
    theirs.recv(&mut [0; 9]).expect("the neighbour is known now");
    ours.set_ttl(7).expect("open");
    let sent: Vec<Vec<u8>> = (0..100).map(|number| vec![number; usize::from(number) * 9]).collect();
    let packets: Vec<_> = sent.iter().map(|payload| RawPacket { payload, to: to(RIGHT) }).collect();
    let before = right.counters().device.receive_frames;
    assert_eq!(ours.send_many(&packets).expect("a route"), 100);
    let started = std::time::Instant::now();
    while right.counters().device.receive_frames < before + 100 {
        assert!(started.elapsed() < PATIENCE, "they were sent");
        std::thread::sleep(Duration::from_millis(1));
    }
    let (mut received, mut calls) = (Vec::new(), Vec::new());
    while received.len() < 100 {
        let count = theirs.recv_many(30, |packet, payload| {
            assert_eq!((packet.source, packet.destination), (to(LEFT), to(RIGHT)));
            assert_eq!((packet.len, packet.hop_limit), (payload.len(), 7));
            received.push(payload.to_vec());
        });
        calls.push(count.expect("they were sent"));
    }
    assert!(received == sent, "in order, and each once");
    assert_eq!(calls, [30, 30, 30, 10]);
    theirs.set_nonblocking(true).expect("it can");
    let none = theirs.recv_many(0, |_, _| unreachable!("nothing was sent")).expect_err("nothing");
    assert_eq!(none.kind(), ErrorKind::WouldBlock);
}

/// Wherever a frame arrives, its raw socket hears of it: a squeue of its own decides for nobody.
#[test]
fn stacks_of_several_squeues_have_raw_sockets() {
    let squeues = |builder: StackBuilder| builder.layout("R1S3F1".parse().expect("a layout"));
    let (left, right) = pair_with(squeues);
    let (ours, theirs) = (bound(&left), bound(&right));
    let echo = RawSocket::bind_echo(&left, 0).expect("a free identifier");
    let icmp = RawSocket::bind(&left, 1).expect("a raw socket");
    for socket in [&echo, &icmp] {
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    }
    let mut bytes = [0; 2_000];
    for i in 0..50_u8 {
        ours.send_to(&[i; 40], to(RIGHT)).expect("a route");
        let packet = theirs.recv(&mut bytes).expect("sent");
        assert_eq!(bytes[..packet.len], [i; 40]);
        let request = echo_request(to(RIGHT), i.into(), &[i; 9]);
        echo.send_to(&request, to(RIGHT)).expect("a route");
        let packet = echo.recv(&mut bytes).expect("answered");
        let answer = EchoAnswer::parse(&packet, &bytes[..packet.len]);
        assert_eq!(answer, Some(EchoAnswer::Reply { sequence: i.into(), data: &[i; 9] }));
        let copy = icmp.recv(&mut bytes).expect("a copy");
        assert_eq!((copy.source, bytes[0]), (to(RIGHT), 0));
    }
    // Errors about datagrams of all squeues reach it, each once.
    let udp: Vec<_> = (0..12)
        .map(|_| multidata::UdpSocket::bind(&left, "10.1.0.1:0").expect("a free port"))
        .collect();
    let mut ports: Vec<u16> = udp.iter().map(|it| it.local_addr().expect("bound").port()).collect();
    for socket in &udp {
        socket.send_to(b"anybody?", (to(RIGHT), 9)).expect("a route");
    }
    let mut heard: Vec<u16> = (0..12)
        .map(|_| {
            let packet = icmp.recv(&mut bytes).expect("port unreachable");
            assert_eq!(bytes[..2], [3, 3]);
            assert!(packet.len >= 36, "it quotes the datagram");
            u16::from_be_bytes([bytes[28], bytes[29]])
        })
        .collect();
    ports.sort_unstable();
    heard.sort_unstable();
    assert_eq!(heard, ports);
    icmp.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout");
    assert!(icmp.recv(&mut bytes).is_err(), "no copy comes twice");
}

#[test]
fn a_peer_that_has_no_such_protocol_says_so_and_echo_sockets_hear_of_their_requests_alone() {
    let (left, _right) = pair();
    let ours = bound(&left);
    let icmp = RawSocket::bind_at(&left, 1, to(LEFT)).expect("a raw socket");
    icmp.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let echo = RawSocket::bind_echo(&left, 77).expect("a free identifier");
    assert_eq!(echo.echo_identifier().expect("open"), 77);
    ours.send_to(b"anybody?", to(RIGHT)).expect("a route");
    let mut bytes = [0; 2_000];
    let packet = icmp.recv(&mut bytes).expect("protocol unreachable");
    assert_eq!((packet.source, &bytes[..2]), (to(RIGHT), &[3, 2][..]));
    echo.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout");
    assert!(echo.recv(&mut bytes).is_err());
    let handle = echo.try_clone().expect("always");
    drop(echo);
    assert_eq!(RawSocket::bind_echo(&left, 77).expect_err("open").kind(), ErrorKind::AddrInUse);
    drop(handle);
    RawSocket::bind_echo(&left, 77).expect("free again");
}
