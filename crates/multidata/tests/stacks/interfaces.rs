//! One stack on several wires.

use crate::pair::{self, exchange};
use device::TransmitMode;
use multidata::{
    ClaimPolicy, Coalescing, InterfaceConfig, InterfaceEvent, InterfaceId, SocketError, Stack,
    TcpListener, TcpStream, UdpSocket,
};
use std::io::{Read, Write};
use std::net::SocketAddr;

fn interface(address: &str) -> InterfaceConfig {
    InterfaceConfig::new(address.parse().expect("an address"))
}

#[test]
fn a_stack_talks_over_all_its_interfaces_at_once() {
    let wires: Vec<_> = (0..3).map(|_| device::wire(pair::ethernet())).collect();
    let mut hub = Stack::builder();
    let mut peers = Vec::new();
    for (index, (near, far)) in wires.into_iter().enumerate() {
        hub = hub.interface(near, interface(&format!("10.2.{index}.1/24")));
        let peer = Stack::builder().interface(far, interface(&format!("10.2.{index}.2/24")));
        peers.push(peer.build().expect("a stack"));
    }
    let hub = hub.build().expect("a stack");
    assert_eq!(hub.interfaces().len(), 3);
    let listener = TcpListener::bind(&hub, "0.0.0.0:80").expect("a free port");
    std::thread::scope(|scope| {
        for (index, peer) in peers.iter().enumerate() {
            let client = TcpStream::connect(peer, format!("10.2.{index}.1:80")).expect("there");
            let (server, _) = listener.accept().expect("there");
            scope.spawn(move || exchange(&client, &server, index as u64, 4 << 20));
        }
    });
}

// RFC 4007: the same address on each link, and the scope says which is meant.
#[test]
fn scopes_of_link_local_addresses_are_interfaces_counted_from_one() {
    let wires = [0, 1].map(|_| device::wire(pair::ethernet()));
    let mut hub = Stack::builder();
    let mut peers = Vec::new();
    for (near, far) in wires {
        hub = hub.interface(near, interface("fe80::a/64"));
        let peer = Stack::builder().interface(far, interface("fe80::1/64"));
        peers.push(peer.build().expect("a stack"));
    }
    let hub = hub.build().expect("a stack");
    let server = UdpSocket::bind(&hub, "[::]:53").expect("a free port");
    for (peer, scope_id) in peers.iter().zip(1..) {
        let listener = TcpListener::bind(peer, "[::]:80").expect("a free port");
        let to: SocketAddr = format!("[fe80::1%{scope_id}]:80").parse().expect("an address");
        let client = TcpStream::connect(&hub, to).expect("it listens");
        assert_eq!(client.peer_addr().expect("connected"), to);
        let (_, hub_at) = listener.accept().expect("on this link");
        let SocketAddr::V6(hub_at) = hub_at else { panic!("of the other family") };
        assert_eq!(hub_at.scope_id(), 1, "the only link of the peer");
        let datagrams = UdpSocket::bind(peer, "[::]:54").expect("a free port");
        datagrams.send_to(b"who", "[fe80::a]:53").expect("a route");
        let mut bytes = [0; 8];
        let (count, source) = server.recv_from(&mut bytes).expect("sent");
        assert_eq!(source, format!("[fe80::1%{scope_id}]:54").parse().expect("an address"));
        server.send_to(&bytes[..count], source).expect("a route");
        assert_eq!(datagrams.recv(&mut bytes).expect("answered"), 3);
    }
    let nowhere = TcpStream::connect(&hub, "[fe80::1%3]:80").expect_err("there is no such link");
    assert_eq!(nowhere.kind(), std::io::ErrorKind::InvalidInput);
}

#[test]
fn streams_go_on_when_the_mtu_changes() {
    let (left, right_stack) = pair::pair();
    let (client, server) = pair::connected(&left, &right_stack);
    std::thread::scope(|scope| {
        scope.spawn(|| pair::exchange(&client, &server, 3, 16 << 20));
        for mtu_bytes in [600, 1_500, 576, 1_000, 1_500] {
            std::thread::sleep(std::time::Duration::from_millis(10));
            left.set_mtu(0, mtu_bytes).expect("the device takes more");
            right_stack.set_mtu(0, mtu_bytes).expect("the device takes more");
        }
    });
    for mtu_bytes in [575, 1_501] {
        let error = left.set_mtu(0, mtu_bytes).expect_err("out of range");
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        assert_eq!(error.to_string(), "the interface takes an MTU of 576 to 1500 bytes");
    }
}

#[test]
fn events_name_interfaces_by_the_index_that_calls_take() {
    let wires = [0, 1].map(|_| device::wire(pair::ethernet()));
    let mut hub = Stack::builder();
    let mut ends = Vec::new();
    for (index, (near, far)) in wires.into_iter().enumerate() {
        hub = hub.interface(near, interface(&format!("10.2.{index}.1/24")));
        ends.push(far);
    }
    let hub = hub.build().expect("a stack");
    let events: Vec<_> = core::iter::from_fn(|| hub.poll_interface_event()).collect();
    let negotiated = events.iter().filter_map(|event| match event {
        InterfaceEvent::Negotiated(id, _) => id.index(),
        _ => None,
    });
    assert_eq!(negotiated.collect::<Vec<_>>(), [0, 1], "{events:?}");
    assert!(events[1].to_string().starts_with("interface 1: "), "{}", events[1]);
    hub.remove_interface(1).expect("it is there");
    let removed = hub.poll_interface_event();
    assert!(matches!(removed, Some(InterfaceEvent::Removed(id, 0)) if id.index() == Some(1)));
    assert_eq!(InterfaceId::LOOPBACK.index(), None);
}

#[test]
fn who_names_an_interface_that_is_not_there_is_told_so() {
    let (stack, _peer) = pair::pair();
    let network = "10.9.0.1/24".parse().expect("a network");
    let address = "10.9.0.1".parse().expect("an address");
    for outcome in [
        stack.set_mtu(1, 1_000),
        stack.add_address(1, network),
        stack.remove_address(1, address),
        stack.add_route(network, None, 1),
        stack.remove_interface(1),
        stack.set_accepted(1, &[network]),
        stack.set_transmit_mode(1, TransmitMode::Single),
        stack.set_multidata_outbound(Some(1), true),
        stack.set_coalescing(1, Coalescing::default()),
        stack.wait_for_address(1, |_| true, std::time::Duration::ZERO).map(drop),
    ] {
        let error = outcome.expect_err("there is one interface");
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        let source = error.get_ref().and_then(|source| source.downcast_ref());
        assert_eq!(source, Some(&SocketError::NoSuchInterface));
    }
    // The stack's own, which has no index, is not removed, and what was removed is not there.
    stack.remove_interface(0).expect("it is there");
    assert!(stack.remove_interface(0).is_err());
    for outcome in [stack.add_route(network, None, 0), stack.add_address(0, network)] {
        let error = outcome.expect_err("it was removed");
        assert_eq!(error.to_string(), SocketError::NoSuchInterface.to_string());
    }
}

/// A device that asks the stack something when it is let go of.
struct Asking {
    inner: device::WireQueue,
    stack: std::sync::Arc<std::sync::OnceLock<Stack>>,
    asked: std::sync::mpsc::Sender<u64>,
}

impl Drop for Asking {
    fn drop(&mut self) {
        let stack = self.stack.get().expect("it was built");
        let _ = self.asked.send(stack.counters().device.transmit_packets);
    }
}

impl device::Queue for Asking {
    device::forward_queue!(|self| self.inner);
}

/// Under no lock: it may call the stack.
#[test]
fn the_device_of_an_interface_that_is_removed_is_let_go_of_at_once() {
    for squeues in [1, 2] {
        let (near, far) = device::wire(pair::ethernet());
        let (asked, answer) = std::sync::mpsc::channel();
        let own = std::sync::Arc::default();
        let device = Asking { inner: near, stack: std::sync::Arc::clone(&own), asked };
        let left = Stack::builder().squeues(squeues).interface(device, pair::interface(pair::LEFT));
        let left = left.build().expect("a stack");
        let _ = own.set(left.clone());
        let right = Stack::builder().interface(far, pair::interface(pair::RIGHT));
        let right = right.build().expect("a stack");
        let (_client, server) = pair::connected(&left, &right);
        let sent = left.counters().device.transmit_packets;
        left.remove_interface(0).expect("it is there");
        assert!(
            answer.recv_timeout(pair::PATIENCE).expect("it was let go of") >= sent,
            "what it counted is kept"
        );
        // The other end hears of it.
        let error = (&server).read(&mut [0]).expect_err("no end of the stream");
        assert_eq!(error.kind(), std::io::ErrorKind::NetworkDown);
        let status = left.interfaces().remove(0);
        assert!(status.failed.expect("it is of no use").message.contains("was removed"));
        assert!(status.counters.transmit_packets >= sent && sent > 0);
    }
}

#[test]
fn what_is_accepted_can_be_changed_while_the_stack_runs() {
    let (left, right) = pair::pair();
    let any: ip::Cidr = "198.51.100.0/24".parse().expect("a network");
    left.add_route(any, Some(pair::right(0).ip()), 0).expect("a neighbour");
    let _listener = multidata::TcpListener::bind(&right, "0.0.0.0:80").expect("a free port");
    let connect = || {
        let to = "198.51.100.7:80".parse().expect("an address");
        let patience = std::time::Duration::from_millis(200);
        multidata::TcpStream::connect_timeout(&left, &to, patience)
    };
    connect().expect_err("nobody has the address");
    right.set_accepted(0, &[any]).expect("an interface");
    let stream = connect().expect("it is accepted");
    right.set_accepted(0, &[]).expect("an interface");
    connect().expect_err("not any more");
    let many = vec![any; 65];
    assert_eq!(
        right.set_accepted(0, &many).expect_err("too many").kind(),
        std::io::ErrorKind::InvalidInput
    );
    drop(stream);
}

// RFC 1122, 3.3.4.2 (B): what has an interface's address leaves by that interface.
#[test]
fn a_socket_with_the_address_of_another_interface_uses_that_interface() {
    let wires = [0, 1].map(|_| device::wire(pair::ethernet()));
    let mut hub = Stack::builder();
    let mut peers = Vec::new();
    // Both peers have the same far network behind them, so that two routes of the hub lead there.
    for (index, (near, far)) in wires.into_iter().enumerate() {
        hub = hub.interface(near, interface(&format!("10.2.{index}.1/24")));
        let config = interface(&format!("10.2.{index}.2/24"));
        let config = config.address("10.9.0.9/24".parse().expect("an address"));
        peers.push(Stack::builder().interface(far, config).build().expect("a stack"));
    }
    let hub = hub.build().expect("a stack");
    let far = "10.9.0.0/24".parse().expect("a network");
    for index in 0..2 {
        let gateway = format!("10.2.{index}.2").parse().expect("an address");
        hub.add_route(far, Some(gateway), index).expect("an interface");
    }
    let patience = Some(std::time::Duration::from_secs(10));
    let mut buffer = [0; 10];
    for (index, peer) in peers.iter().enumerate() {
        // Of two equal routes the older is used, but where it would have another's address.
        let here = format!("10.2.{index}.1:5000");
        let socket = UdpSocket::bind(&hub, here.as_str()).expect("ours");
        let there = UdpSocket::bind(peer, "10.9.0.9:5000").expect("its own");
        for socket in [&socket, &there] {
            socket.set_read_timeout(patience).expect("a timeout");
        }
        assert_eq!(socket.send_to(b"question", "10.9.0.9:5000").expect("a route"), 8);
        let (len, from) = there.recv_from(&mut buffer).expect("it arrives");
        assert_eq!((&buffer[..len], from.to_string()), (&b"question"[..], here.clone()));
        assert_eq!(there.send_to(b"answer", from).expect("a neighbour"), 6);
        let (len, from) = socket.recv_from(&mut buffer).expect("it arrives");
        assert_eq!((&buffer[..len], from.to_string().as_str()), (&b"answer"[..], "10.9.0.9:5000"));

        let listener = TcpListener::bind(peer, "10.9.0.9:80").expect("its own");
        let local = format!("10.2.{index}.1:0").parse().expect("an address");
        let client = TcpStream::connect_from(&hub, local, "10.9.0.9:80").expect("a route");
        let (server, from) = listener.accept().expect("it came");
        assert_eq!(from, client.local_addr().expect("open"));
        // A change of routes leaves it where its address is.
        let other = "10.10.0.0/24".parse().expect("a network");
        hub.add_route(other, None, index).expect("an interface");
        exchange(&client, &server, index as u64 + 2, 1 << 20);
    }
    // No route of the second interface leads to the first one's network: that is said, not lost.
    let socket = UdpSocket::bind(&hub, "10.2.1.1:5001").expect("ours");
    let error = socket.send_to(b"nowhere", "10.2.0.2:5000").expect_err("answers would be refused");
    assert_eq!(error.kind(), std::io::ErrorKind::NetworkUnreachable);
    let local = "10.2.1.1:0".parse().expect("an address");
    let error = TcpStream::connect_from(&hub, local, "10.2.0.2:80").expect_err("the same");
    assert_eq!(error.kind(), std::io::ErrorKind::NetworkUnreachable);
    assert_eq!(hub.counters().stack.drops.count(counters::DropReason::SourceRemoved), 0);
    // To itself every address leads.
    let own = UdpSocket::bind(&hub, "10.2.0.1:5001").expect("ours");
    own.set_read_timeout(patience).expect("a timeout");
    assert_eq!(socket.send_to(b"inside", "10.2.0.1:5001").expect("by loopback"), 6);
    assert_eq!(own.recv_from(&mut buffer).expect("it arrives").0, 6);
}

// Two hosts with two wires between them, and packets that take both ways, in both directions.
#[test]
fn a_stream_takes_two_wires_at_once_and_outlives_one_of_them() {
    let wires = [0, 1].map(|_| device::wire(pair::ethernet()));
    let (mut left, mut right) = (Stack::builder(), Stack::builder());
    for (near, far) in wires {
        left = left.interface(near, interface("10.3.0.1/24"));
        right = right.interface(far, interface("10.3.0.2/24"));
    }
    let stacks = [left, right].map(|builder| builder.build().expect("a stack"));
    let network = "10.3.0.0/24".parse().expect("a network");
    for stack in &stacks {
        for index in 0..2 {
            stack.set_route_duplicating(network, index, true).expect("its network");
        }
        assert!(stack.set_route_duplicating(network, 2, true).is_err(), "there are two");
    }
    let [left, right] = &stacks;
    let listener = TcpListener::bind(right, "10.3.0.2:80").expect("a free port");
    let client = TcpStream::connect(left, "10.3.0.2:80").expect("there");
    let (server, _) = listener.accept().expect("there");
    std::thread::scope(|scope| {
        scope.spawn(|| exchange(&client, &server, 5, 8 << 20));
        std::thread::sleep(std::time::Duration::from_millis(20));
        left.remove_interface(0).expect("an interface");
    });
    for stack in &stacks {
        let counters = stack.counters().stack;
        let alone = counters.refusals.count(counters::MultidataRefusal::MultiRouted);
        assert!(counters.shard.packets_duplicated > 0 && alone > 0, "{alone}");
    }
}

/// One that somebody else may turn out to have is none yet, and one of the link alone leads nowhere else.
#[test]
fn who_waits_for_an_address_gets_none_that_is_tentative_or_of_the_link() {
    let (near, _far) = device::wire(pair::ethernet());
    let config = interface("10.3.0.1/24").claims(ClaimPolicy::Probe, ClaimPolicy::Optimistic);
    let stack = Stack::builder().interface(near, config.slaac()).build().expect("a stack");
    for is_ipv4 in [true, false] {
        let timeout = std::time::Duration::from_millis(100);
        let got = stack.wait_for_address(0, |address| address.is_ipv4() == is_ipv4, timeout);
        assert_eq!(got.expect_err("there is none").kind(), std::io::ErrorKind::TimedOut);
    }
}

/// The threads that fetched from it end with the stack's last handle, and what is left to deliver needs ACKs.
#[test]
fn a_stack_that_is_dropped_delivers_by_all_its_interfaces() {
    let (mut hub, mut peers) = (Stack::builder(), Vec::new());
    for index in 0..2 {
        let (near, far) = device::wire(pair::ethernet());
        hub = hub.interface(near, interface(&format!("10.2.{index}.1/24")));
        let peer = interface(&format!("10.2.{index}.2/24"));
        peers.push(Stack::builder().interface(far, peer).build().expect("a stack"));
    }
    let hub = hub.build().expect("a stack");
    let listener = TcpListener::bind(&peers[1], "10.2.1.2:80").expect("a free port");
    let mut client = TcpStream::connect(&hub, "10.2.1.2:80").expect("it listens");
    let (mut server, _) = listener.accept().expect("it is there");
    // Some twenty round trips.
    server.set_receive_buffer_size(32_768).expect("open");
    client.set_send_buffer_size(500_000).expect("open");
    client.set_nonblocking(true).expect("open");
    let mut written = 0;
    while let Ok(count) = client.write(&[7; 100_000]) {
        written += count;
    }
    let reader = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        server.read_to_end(&mut Vec::new())
    });
    drop((client, hub));
    assert_eq!(reader.join().expect("no panic").expect("all of it"), written);
}
