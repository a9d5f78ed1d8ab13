//! Looking inside a stack: what it has, and what happens to it.

use crate::pair::{self, PATIENCE, connected, pair_with, right};
use multidata::batch::{Multidata, ReceiveBatch};
use multidata::device::HardwareAddress;
use multidata::ip::Cidr;
use multidata::tcp::State;
use multidata::time::Instant;
use multidata::{
    AddressEvent, FilterFlow, Handling, InterfaceEvent, InterfaceId, NeighbourState, PacketFilter,
    RawSocket, SocketKind, SocketStatus, Stack, StackEvent, TcpForwarder, TcpListener, TcpStream,
    UdpForwarder, UdpSocket, Verdict,
};
use std::collections::HashMap;
use std::future::Future;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// Waits until something is so, which other threads bring about.
fn until(is_so: impl FnMut() -> bool) {
    let started = std::time::Instant::now();
    let mut is_so = is_so;
    while !is_so() {
        assert!(started.elapsed() < PATIENCE, "it never was");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Hears nothing.
struct Deaf;

impl PacketFilter for Deaf {
    fn handling(&self, _: &FilterFlow) -> Handling {
        Handling::Batches
    }

    fn transmit(
        &mut self,
        _: Instant,
        _: InterfaceId,
        _: &Multidata,
        _: Range<usize>,
        _: &mut [Verdict],
    ) {
    }

    fn receive(&mut self, _: Instant, _: InterfaceId, _: &ReceiveBatch, verdicts: &mut [Verdict]) {
        verdicts.fill(Verdict::Drop);
    }
}

fn find(stack: &Stack, is_it: impl Fn(&SocketStatus) -> bool) -> SocketStatus {
    stack.sockets().find(is_it).expect("it is listed")
}

#[test]
fn connections_and_listeners_are_listed_with_what_they_hold() {
    for squeues in [1, 3] {
        let (left, right_stack) = pair_with(|builder| builder.squeues(squeues));
        let (client, mut server) = connected(&left, &right_stack);
        (&client).write_all(b"unread").expect("connected");
        let at = server.local_addr().expect("connected");
        until(|| find(&right_stack, |it| it.local == at).received_bytes == 6);
        let status = find(&right_stack, |it| it.local == at);
        assert_eq!(status.kind, SocketKind::Tcp(State::Established));
        assert_eq!(status.remote, client.local_addr().ok());
        assert_eq!(status.interface, Some(right_stack.interfaces()[0].id));
        assert!(status.squeue < squeues && !status.is_orphan);
        assert_eq!((status.unacknowledged_bytes, status.received_packets), (0, 0));
        server.read_exact(&mut [0; 6]).expect("they are there");
        // Until the window and the send buffer are full.
        client.set_nonblocking(true).expect("open");
        until(|| (&client).write_all(&[7; 65_536]).is_err());
        let status = find(&left, |it| it.remote == Some(at));
        assert!(status.unacknowledged_bytes >= status.unsent_bytes && status.unsent_bytes > 0);
        let gauges = (left.gauges(), right_stack.gauges());
        assert!(gauges.0.unacknowledged_bytes >= status.unsent_bytes as u64);
        assert!(gauges.0.pool_used_bytes >= gauges.0.unacknowledged_bytes);
        assert!(gauges.1.received_bytes > 0 && gauges.1.tcp_established == 1);

        let listener = TcpListener::bind(&right_stack, right(80)).expect("a free port");
        assert_eq!(right_stack.gauges().tcp_listeners, squeues as u64);
        let waiting = TcpStream::connect(&left, right(80)).expect("it listens");
        let accept_queue = |it: &SocketStatus| match it.kind {
            SocketKind::TcpListener { waiting, .. } => waiting,
            _ => 0,
        };
        until(|| right_stack.sockets().map(|it| accept_queue(&it)).sum::<usize>() == 1);
        assert_eq!(right_stack.gauges().tcp_accept_queue, 1);
        // It hears no answer to its SYN, which is half-open at the other end.
        left.set_filter(Some(Box::new(Deaf)));
        let deaf = TcpStream::connect_timeout(&left, &right(80), Duration::from_millis(1));
        assert_eq!(deaf.expect_err("no answer").kind(), ErrorKind::TimedOut);
        until(|| right_stack.gauges().tcp_half_open == 1);
        let half_open = SocketKind::Tcp(State::SynReceived);
        assert_eq!(find(&right_stack, |it| it.kind == half_open).local, right(80));
        left.set_filter(None);
        drop((waiting, listener));
    }
}

#[test]
fn who_is_closed_is_an_orphan_and_then_in_time_wait() {
    let (left, right_stack) = pair::pair();
    let (client, server) = connected(&left, &right_stack);
    let at = client.local_addr().expect("connected");
    drop(client);
    until(|| find(&left, |it| it.local == at).kind == SocketKind::Tcp(State::FinWait2));
    let gauges = left.gauges();
    assert_eq!((gauges.tcp_orphans, gauges.tcp_connections, gauges.tcp_established), (1, 1, 0));
    drop(server);
    until(|| left.gauges().tcp_time_wait == 1);
    let gauges = left.gauges();
    assert_eq!((gauges.tcp_orphans, gauges.tcp_connections), (0, 0));
    let status = find(&left, |it| it.local == at);
    assert!(status.is_orphan && status.kind == SocketKind::Tcp(State::TimeWait));
    until(|| right_stack.sockets().next().is_none());
}

#[test]
fn sockets_of_datagrams_and_forwarders_are_listed() {
    let (left, right_stack) = pair::pair();
    let udp = UdpSocket::bind(&right_stack, right(53)).expect("a free port");
    let sender = UdpSocket::bind(&left, "10.1.0.1:0").expect("a free port");
    sender.connect(right(53)).expect("a route");
    for _ in 0..3 {
        sender.send(&[1; 100]).expect("a route");
    }
    until(|| find(&right_stack, |it| it.local == right(53)).received_packets == 3);
    let status = find(&right_stack, |it| it.local == right(53));
    assert!(status.kind == SocketKind::Udp && status.received_bytes >= 300);
    assert_eq!(status.remote, None);
    assert_eq!(find(&left, |it| it.kind == SocketKind::Udp).remote, Some(right(53)));

    let prefix: Cidr = "198.51.100.0/24".parse().expect("a network");
    right_stack.set_accepted(0, &[prefix]).expect("there");
    let _others = (
        TcpForwarder::bind(&right_stack, prefix, 9).expect("it is free"),
        UdpForwarder::bind(&right_stack, prefix).expect("it is free"),
        RawSocket::bind(&right_stack, 89).expect("it is free"),
        RawSocket::bind_echo(&right_stack, 77).expect("it is free"),
        RawSocket::forward_echo(&right_stack, prefix).expect("it is free"),
    );
    let kinds: Vec<_> = right_stack.sockets().map(|it| it.kind).collect();
    for kind in [
        SocketKind::TcpForwarder { prefix, pending: 0 },
        SocketKind::UdpForwarder(prefix),
        SocketKind::Raw(89),
        SocketKind::Echo,
        SocketKind::EchoForwarder(prefix),
    ] {
        assert!(kinds.contains(&kind), "{kind:?} of {kinds:?}");
    }
    assert_eq!(find(&right_stack, |it| it.kind == SocketKind::Echo).local.port(), 77);
    let gauges = right_stack.gauges();
    assert_eq!((gauges.tcp_forwarders, gauges.udp_sockets, gauges.raw_sockets), (1, 2, 3));
    drop(udp);
    assert_eq!(right_stack.gauges().udp_sockets, 1);
}

#[test]
fn what_is_there_all_the_time_is_listed_once() {
    const COUNT: usize = 1_500;
    let (stack, _peer) = pair::pair();
    let bind = || UdpSocket::bind(&stack, "10.1.0.1:0").expect("a free port");
    let at = |socket: &UdpSocket| socket.local_addr().expect("bound");
    let mut sockets: Vec<_> = (0..COUNT).map(|_| bind()).collect();
    let mut listing = stack.sockets();
    let mut seen: HashMap<SocketAddr, usize> = HashMap::new();
    let mut see = |status: SocketStatus| *seen.entry(status.local).or_default() += 1;
    (&mut listing).take(COUNT / 2).for_each(&mut see);
    // Every second one goes, and others come in their places.
    let mut index = 0;
    sockets.retain(|_| {
        index += 1;
        index % 2 == 0
    });
    let _others: Vec<_> = (0..COUNT / 2).map(|_| bind()).collect();
    listing.for_each(&mut see);
    assert!(sockets.iter().all(|socket| seen.get(&at(socket)) == Some(&1)));
}

#[test]
fn routes_neighbours_and_interfaces_are_told_as_they_are() {
    let (left, right_stack) = pair::pair();
    drop(connected(&left, &right_stack));
    let network: Cidr = "198.51.100.0/24".parse().expect("a network");
    left.add_route(network, Some(right(0).ip()), 0).expect("there");
    left.set_route_mtu(network, Some(1_200)).expect("there");
    left.set_accepted(0, &[network]).expect("there");
    left.set_mtu(0, 1_400).expect("the device takes more");
    let status = &left.interfaces()[0];
    assert_eq!((status.ipv4_mtu_bytes, status.ipv6_mtu_bytes), (1_400, 1_400));
    assert_eq!(status.accepted, [network]);
    let routes = left.routes();
    assert_eq!(routes.len(), 2, "{routes:?}");
    let route = routes.iter().find(|it| it.destination == network).expect("it was added");
    assert_eq!(
        (route.gateway, route.mtu_bytes, route.interface),
        (Some(right(0).ip()), Some(1_200), status.id)
    );
    let neighbours = left.neighbours();
    let neighbour = neighbours.first().expect("it was talked to");
    assert_eq!((neighbour.address, neighbour.interface), (right(0).ip(), status.id));
    assert_eq!(neighbour.hardware_address, Some(HardwareAddress([2, 0, 0, 0, 0, 2])));
    assert_ne!(neighbour.state, NeighbourState::Unreachable);
}

/// Until the device's failure is told.
fn is_failure(event: &StackEvent) -> bool {
    matches!(event, StackEvent::Interface(InterfaceEvent::DeviceFailed(..)))
}

#[test]
fn what_happened_can_be_said_to_people_as_it_is_told() {
    let id = InterfaceId::LOOPBACK;
    let servers = ["192.0.2.53", "2001:db8::53"].map(|it| it.parse().expect("an address"));
    let cidr: Cidr = "192.0.2.7/24".parse().expect("an address");
    let station = HardwareAddress([2, 0, 0, 0, 0, 9]);
    let addresses = [
        (AddressEvent::Assigned(id, cidr), "it has the address 192.0.2.7/24 now"),
        (AddressEvent::Removed(id, cidr), "it has the address 192.0.2.7/24 no more"),
        (
            AddressEvent::Duplicate(id, cidr.address(), station),
            "the host at 02:00:00:00:00:09 uses the address 192.0.2.7",
        ),
        (AddressEvent::NameServers(id, Vec::new()), "it knows of no name server any more"),
        (
            AddressEvent::NameServers(id, servers.to_vec()),
            "its name servers are 192.0.2.53 2001:db8::53",
        ),
        (
            AddressEvent::LeaseTooShort(id, "192.0.2.1".parse().expect("an address"), 3),
            "the DHCP server 192.0.2.1 leases addresses for 3 s only, which is not taken",
        ),
    ];
    for (event, sentence) in addresses {
        let told = StackEvent::Address(event).to_string();
        assert_eq!(told, format!("the loopback interface: {sentence}"));
    }
    let event = InterfaceEvent::LinkRestored(id);
    assert_eq!(StackEvent::Interface(event.clone()).to_string(), event.to_string());
}

#[test]
fn a_thread_that_waits_hears_that_the_device_failed() {
    for squeues in [1, 2] {
        let (near, far) = multidata::device::wire(pair::ethernet());
        let builder = Stack::builder().squeues(squeues);
        let stack = builder.interface(near, pair::interface(pair::LEFT)).build().expect("a stack");
        // What happened at the start comes first.
        while let Ok(event) = stack.wait_for_event(Some(Duration::from_millis(20))) {
            assert!(!is_failure(&event), "{event:?}");
        }
        let waits = stack.clone();
        let waiter = std::thread::spawn(move || {
            std::iter::repeat_with(|| waits.wait_for_event(Some(PATIENCE)).expect("in time"))
                .find(is_failure)
        });
        std::thread::sleep(Duration::from_millis(20));
        let started = std::time::Instant::now();
        drop(far);
        assert!(waiter.join().expect("no panic").is_some());
        assert!(started.elapsed() < PATIENCE / 2, "it was woken, and did not just look at the end");
    }
}

#[test]
fn a_task_that_waits_hears_of_addresses_and_failures() {
    let (near, far) = multidata::device::wire(pair::ethernet());
    let stack = Stack::builder().interface(near, pair::interface(pair::LEFT));
    let stack = stack.build().expect("a stack");
    while stack.wait_for_event(Some(Duration::ZERO)).is_ok() {}
    let address: Cidr = "10.1.0.9/24".parse().expect("an address");
    let mut far = Some(far);
    let mut heard = Vec::new();
    let task = async {
        // One that is given up takes nothing.
        drop(Box::pin(stack.next_event()));
        while !heard.last().is_some_and(is_failure) {
            heard.push(stack.next_event().await.expect("nobody has ended it"));
        }
    };
    let mut task = Box::pin(task);
    let mut asleep = 0;
    pair::run(|context| {
        let polled = task.as_mut().poll(context);
        asleep += 1;
        match asleep {
            // It sleeps, and is woken by what another thread does.
            1 => stack.add_address(0, address).expect("it is free"),
            _ => drop(far.take()),
        }
        polled
    });
    drop(task);
    let is_address = |event: &StackEvent| match event {
        StackEvent::Address(multidata::AddressEvent::Assigned(_, cidr)) => *cidr == address,
        _ => false,
    };
    assert!(heard.iter().any(is_address), "{heard:?}");
}

/// Tells whether it was called.
#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn who_waits_for_events_hears_that_the_stack_was_ended() {
    for squeues in [1, 2] {
        let (near, _far) = multidata::device::wire(pair::ethernet());
        let builder = Stack::builder().squeues(squeues);
        let stack = builder.interface(near, pair::interface(pair::LEFT)).build().expect("a stack");
        let thread = std::thread::spawn({
            let stack = stack.clone();
            move || std::iter::repeat_with(|| stack.wait_for_event(None)).find_map(Result::err)
        });
        let flag = Arc::<Flag>::default();
        let waker = Waker::from(Arc::clone(&flag));
        let mut context = Context::from_waker(&waker);
        let mut poll = |task: Pin<&mut dyn Future<Output = _>>| task.poll(&mut context);
        let mut task = Box::pin(stack.next_event());
        while poll(task.as_mut()).is_ready() {
            task = Box::pin(stack.next_event());
        }
        stack.abort();
        until(|| flag.0.load(Ordering::SeqCst));
        let error = loop {
            match poll(task.as_mut()) {
                Poll::Ready(Err(error)) => break error,
                Poll::Ready(Ok(_)) => task = Box::pin(stack.next_event()),
                Poll::Pending => panic!("it was woken in vain"),
            }
        };
        assert_eq!(error.kind(), ErrorKind::NetworkDown, "{error}");
        let error = thread.join().expect("no panic").expect("it waits for an error");
        assert_eq!(error.kind(), ErrorKind::NetworkDown, "{error}");
        // And again, until there is another device.
        let rest = || {
            std::iter::repeat_with(|| stack.wait_for_event(Some(Duration::ZERO)))
                .find_map(Result::err)
                .map(|error| error.kind())
        };
        assert_eq!(rest(), Some(ErrorKind::NetworkDown));
        let (other, _other_far) = multidata::device::wire(pair::ethernet());
        if squeues == 1 {
            stack.replace_device(0, other).expect("of the same kind");
        } else {
            stack.add_interface(other, pair::interface("10.2.0.1")).expect("it is sound");
        }
        assert_eq!(rest(), Some(ErrorKind::TimedOut));
    }
}
