//! What a program that embeds a stack meets first, with what this crate exports and nothing else.

use crate::pair;
use multidata::batch::{Attributes, Block, BlockPool, Multidata, PoolConfig, ReceiveBatch};
use multidata::bytes::Bytes;
use multidata::device::{Medium, Queue, WireConfig, WireEnd, packet_pipe, wire};
use multidata::time::Instant;
use multidata::{
    DropReason, FilterFlow, Handling, InterfaceConfig, InterfaceEvent, InterfaceId,
    MultidataRefusal, PacketFilter, ShardCounters, SocketError, Stack, StackBuilder, StackConfig,
    StackCounters, StackEvent, TcpListener, TcpStatus, TcpStream, UdpSocket, Verdict, tcp,
};
use std::io::{ErrorKind, Read, Write};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

fn at(address: &str) -> InterfaceConfig {
    InterfaceConfig::new(address.parse().expect("an address and a prefix"))
}

fn tunnel() -> WireConfig {
    WireConfig::new(WireEnd::plain(Medium::Ip), WireEnd::plain(Medium::Ip))
}

/// A message of `Stack::builder()...build()` for one interface that cannot be.
fn refused(config: InterfaceConfig, mtu_bytes: usize) -> String {
    let (queue, _peer) = wire(WireConfig { mtu_bytes, ..tunnel() });
    let error = Stack::builder().interface(queue, config).build().map(drop).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    error.to_string()
}

#[test]
fn a_link_without_a_network_reaches_everything_by_a_default_route() {
    let (left, right) = wire(tunnel());
    let client = at("10.7.0.2/32").address("fd00::2/128".parse().expect("an address"));
    let server = at("192.0.2.9/32").address("2001:db8::9/128".parse().expect("an address"));
    let client = Stack::builder().interface(left, client.default_route()).build().expect("a stack");
    let server =
        Stack::builder().interface(right, server.default_route()).build().expect("a stack");
    for address in ["192.0.2.9:80", "[2001:db8::9]:80"] {
        let listener = TcpListener::bind(&server, address).expect("a free port");
        let mut stream = TcpStream::connect(&client, address).expect("a route");
        let (mut accepted, _) = listener.accept().expect("a connection");
        stream.write_all(b"there").expect("connected");
        let mut read = [0; 5];
        accepted.read_exact(&mut read).expect("connected");
        assert_eq!(&read, b"there");
    }
}

#[test]
fn routes_of_an_interface_hold_from_the_start() {
    let (left, _right) = wire(tunnel());
    let config = at("10.7.0.2/32").route("192.0.2.0/24".parse().expect("a network"), None);
    let stack = Stack::builder().interface(left, config).build().expect("a stack");
    let socket = UdpSocket::bind(&stack, "0.0.0.0:0").expect("a free port");
    socket.send_to(b"x", "192.0.2.9:7").expect("there is a route");
    let error = socket.send_to(b"x", "198.51.100.9:7").expect_err("there is none");
    assert_eq!(error.kind(), ErrorKind::NetworkUnreachable);
}

/// What is missing is not an own address that somebody named.
#[test]
fn a_destination_of_a_version_that_no_interface_has_is_told_so() {
    let peer = "[2001:db8::9]:80";
    for (config, version) in [
        (at("10.7.0.2/24"), "IPv6"),
        (at("10.7.0.2/24").default_route(), "IPv6"),
        (at("fd00::2/64").default_route(), "IPv4"),
    ] {
        let (left, _right) = wire(tunnel());
        let stack = Stack::builder().interface(left, config).build().expect("a stack");
        let peer = if version == "IPv6" { peer } else { "192.0.2.9:80" };
        let socket = UdpSocket::bind(&stack, "[::]:0").expect("a free port");
        for error in [
            TcpStream::connect(&stack, peer).map(drop).expect_err("no way"),
            socket.send_to(b"x", peer).expect_err("no way"),
        ] {
            assert_eq!(error.kind(), ErrorKind::NetworkUnreachable);
            assert!(error.to_string().contains(&format!("no {version} address")), "{error}");
        }
    }
}

#[test]
fn a_gateway_on_no_network_is_named() {
    let gateway = "10.7.0.1".parse().expect("an address");
    let said = refused(at("10.7.0.2/32").gateway(gateway), 1_500);
    assert!(said.contains("10.7.0.1") && said.contains("default_route"), "{said}");
}

#[test]
fn ways_that_would_be_taken_in_vain_are_named() {
    let ip = |text: &str| text.parse().expect("an address");
    let net = |text: &str| text.parse().expect("a network");
    let one = || at("10.7.0.2/24").gateway(ip("10.7.0.1"));
    let own = "10.7.0.2 of interface 0 is an own address";
    for (config, expected) in [
        (one().gateway(ip("10.7.0.9")), "0.0.0.0/0 by 10.7.0.1 and by 10.7.0.9"),
        (one().default_route(), "0.0.0.0/0 by 10.7.0.1 and directly"),
        (
            one().route(net("9.0.0.1/8"), None).route(net("9.0.0.0/8"), Some(ip("10.7.0.3"))),
            "9.0.0.0/8 directly",
        ),
        (at("10.7.0.2/24").gateway(ip("10.7.0.2")), own),
        (one().route(net("9.0.0.0/8"), Some(ip("10.7.0.2"))), own),
        (one().route(net("9.0.0.0/8"), Some(ip("127.0.0.1"))), "127.0.0.1 of interface 0"),
        (one().mss_clamp(0), "0 bytes: 64 is the least"),
        (one().mss_clamp(63), "63 bytes"),
    ] {
        let said = refused(config, 1_500);
        assert!(said.contains(expected), "{said}");
    }
    // What is said twice is no contradiction, and another interface's gateway stands by, or has the same address.
    let (first, _peer) = wire(tunnel());
    let (second, _other_peer) = wire(tunnel());
    let again = one().gateway(ip("10.7.0.1")).mss_clamp(64);
    let stack = Stack::builder().interface(first, again).interface(second, one()).build();
    let stack = stack.expect("two ways to the same hosts");
    let error = stack.add_route(net("9.0.0.0/8"), Some(ip("10.7.0.2")), 0).expect_err("it is us");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("10.7.0.2 is an own address"), "{error}");
    // Nor by an interface that is of this stack as well.
    let (first, _peer) = wire(tunnel());
    let (second, _other_peer) = wire(tunnel());
    let by_us = at("10.7.0.3/24").gateway(ip("10.7.0.2"));
    let stack = Stack::builder().interface(first, one()).interface(second, by_us).build();
    let error = stack.map(drop).expect_err("it is us").to_string();
    assert!(error.contains("10.7.0.2 of interface 1 is an own address"), "{error}");
}

#[test]
fn a_device_that_cannot_carry_ip_is_refused() {
    assert!(refused(at("10.7.0.2/24"), 575).contains("needs 576"));
    assert!(refused(at("fd00::2/64"), 1_279).contains("needs 1280"));
    let (queue, _peer) = wire(WireConfig { mtu_bytes: 576, ..tunnel() });
    assert!(Stack::builder().interface(queue, at("10.7.0.2/24")).build().is_ok());
}

/// A device that has not thought of what it says.
struct Boastful<Q>(Q);

impl<Q: Queue> Queue for Boastful<Q> {
    multidata::device::forward_queue!(|self| self.0, but capabilities);

    fn capabilities(&self) -> multidata::device::Capabilities {
        multidata::device::Capabilities { mtu_bytes: usize::MAX, ..self.0.capabilities() }
    }
}

#[test]
fn a_device_that_carries_more_than_there_is_is_refused_limited_or_not() {
    for is_limited in [false, true] {
        let (queue, _peer) = wire(tunnel());
        let queue = Boastful(queue);
        let builder = Stack::builder();
        let builder = match is_limited {
            true => {
                let limit = multidata::rate_limit(multidata::device::RateConfig::new(1_000_000));
                let queue = multidata::device::RateQueue::new(queue, limit);
                builder.interface(queue, at("10.7.0.2/24"))
            }
            false => builder.interface(queue, at("10.7.0.2/24")),
        };
        let error = builder.build().map(drop).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("none longer than 65575"), "{error}");
    }
}

#[test]
fn addresses_that_an_interface_cannot_have_are_named() {
    for wrong in ["10.0.0.255/24", "0.0.0.0/0", "224.0.0.5/4", "::/64", "ff02::1/16"] {
        let said = refused(at("10.7.0.2/24").address(wrong.parse().expect("a network")), 1_500);
        assert!(said.contains(wrong), "{said}");
    }
    let twice = at("10.7.0.2/24").address("10.7.0.2/16".parse().expect("a network"));
    assert!(refused(twice, 1_500).contains("10.7.0.2/16 twice"));
    let many = |count: u8| {
        (1..count).fold(at("10.7.0.100/24"), |config, host| {
            config.address(format!("10.7.0.{host}/24").parse().expect("a network"))
        })
    };
    assert!(refused(many(65), 1_500).contains("65 addresses: it can have 64"));
    let prefix = |host: u8| format!("10.8.0.{host}/32").parse().expect("a network");
    let accepting = (0..65).fold(at("10.7.0.2/24"), |config, it| config.accept_any(prefix(it)));
    assert!(refused(accepting, 1_500).contains("65 prefixes: it can accept 64"));

    let (queue, _peer) = wire(tunnel());
    let stack = Stack::builder().squeues(2).interface(queue, many(64)).build().expect("a stack");
    let all = stack.interfaces()[0].addresses.clone();
    assert_eq!((all.len(), all[0]), (64, "10.7.0.100/24".parse().expect("a network")));
    for (address, sentence) in [
        ("10.7.1.1/24", "the interface has 64 addresses"),
        ("10.7.0.255/24", "no host can have this address"),
        ("10.7.0.1/24", "the interface has it already"),
    ] {
        let error = stack.add_address(0, address.parse().expect("a network")).expect_err("refused");
        assert!(error.to_string().contains(sentence), "{error}");
    }
}

#[test]
fn an_mtu_is_not_set_below_what_ipv6_needs_where_there_is_ipv6() {
    let (queue, _peer) = wire(tunnel());
    let stack = Stack::builder().interface(queue, at("fd00::2/64")).build().expect("a stack");
    let error = stack.set_mtu(0, 1_279).expect_err("less than 1,280");
    assert_eq!(error.to_string(), "the interface takes an MTU of 1280 to 1500 bytes");
    stack.set_mtu(0, 1_280).expect("as much as IPv6 needs");
    stack.remove_address(0, "fd00::2".parse().expect("an address")).expect("ours");
    stack.set_mtu(0, 576).expect("as much as IPv4 needs");
}

#[test]
fn an_interface_keeps_to_an_mtu_from_the_start() {
    let (left, right) = wire(tunnel());
    let client = at("10.7.0.2/24").mtu(1_200);
    let client = Stack::builder().interface(left, client).build().expect("a stack");
    let server = Stack::builder().interface(right, at("10.7.0.1/24")).build().expect("a stack");
    let listener = TcpListener::bind(&server, "10.7.0.1:80").expect("a free port");
    let stream = TcpStream::connect(&client, "10.7.0.1:80").expect("a route");
    let (accepted, _) = listener.accept().expect("a connection");
    for stream in [&stream, &accepted] {
        let sends = stream.info().expect("open").send_mss_bytes;
        assert!(sends <= 1_160, "{sends} bytes do not fit");
    }
    for (config, least) in [(at("10.7.0.2/24"), 576), (at("fd00::2/64"), 1_280)] {
        for mtu_bytes in [least - 1, 1_501] {
            let said = refused(config.clone().mtu(mtu_bytes), 1_500);
            assert!(said.contains(&format!("{least} to 1500")), "{said}");
        }
    }
}

#[test]
fn an_interface_keeps_as_many_packets_for_its_device_as_it_is_told() {
    let [usual, few, many] = [None, Some(10), Some(1_000)].map(|packets_max| {
        let (left, _full) = wire(tunnel());
        let config = match packets_max {
            Some(packets_max) => at("10.7.0.2/24").transmit_queue(packets_max),
            None => at("10.7.0.2/24"),
        };
        let stack = Stack::builder().interface(left, config).build().expect("a stack");
        let socket = UdpSocket::bind(&stack, "0.0.0.0:0").expect("a free port");
        socket.set_nonblocking(true).expect("open");
        (0..).take_while(|_| socket.send_to(b"x", "10.7.0.1:7").is_ok()).count()
    });
    // What the wire itself takes is the same for all.
    assert_eq!((usual - few, many - few), (246, 990));
    for packets_max in [0, 65_537] {
        let said = refused(at("10.7.0.2/24").transmit_queue(packets_max), 1_500);
        assert!(said.contains("1 to 65536"), "{said}");
    }
}

#[test]
fn what_a_stack_tells_can_be_named() {
    fn share(of: u64, all: &ShardCounters) -> u64 {
        of * 100 / all.transmit_packets.max(1)
    }
    let (left, right) = wire(tunnel());
    let client = Stack::builder().interface(left, at("10.7.0.2/24")).build().expect("a stack");
    let server = Stack::builder().interface(right, at("10.7.0.1/24")).build().expect("a stack");
    let listener = TcpListener::bind(&server, "10.7.0.1:80").expect("a free port");
    let stream = TcpStream::connect(&client, "10.7.0.1:80").expect("a route");
    let status: TcpStatus = stream.status().expect("open");
    assert_eq!(status.state, tcp::State::Established);
    let info: tcp::TcpInfo = stream.info().expect("open");
    assert_eq!(info.recovery, tcp::RecoveryState::Open);
    let counters: StackCounters = client.counters().stack;
    assert_eq!(counters.drops.count(DropReason::ForwarderFull), 0);
    assert!(share(counters.refusals.count(MultidataRefusal::NotCapable), &counters.shard) <= 100);
    let refusal: Option<MultidataRefusal> = client.interfaces()[0].transmit.refusal;
    assert_eq!(refusal, None);
    drop(listener);
}

/// Counts packets and lets all of them pass.
struct Count(Arc<AtomicUsize>);

impl PacketFilter for Count {
    fn handling(&self, _: &FilterFlow) -> Handling {
        Handling::Batches
    }

    fn transmit(
        &mut self,
        _: Instant,
        _: InterfaceId,
        _: &Multidata,
        packets: Range<usize>,
        _: &mut [Verdict],
    ) {
        self.0.fetch_add(packets.len(), Ordering::Relaxed);
    }

    fn receive(&mut self, _: Instant, _: InterfaceId, _: &ReceiveBatch, _: &mut [Verdict]) {}
}

#[test]
fn a_filter_and_an_error_need_no_other_crate() {
    let (left, _right) = wire(tunnel());
    let stack = Stack::builder().interface(left, at("10.7.0.2/24")).build().expect("a stack");
    let packets = Arc::new(AtomicUsize::new(0));
    stack.set_filter(Some(Box::new(Count(packets.clone()))));
    let socket = UdpSocket::bind(&stack, "0.0.0.0:0").expect("a free port");
    socket.send_to(b"x", "10.7.0.1:7").expect("a route");
    assert_eq!(packets.load(Ordering::Relaxed), 1);
    let error = socket.send_to(b"x", "198.51.100.9:7").expect_err("no route");
    let source = error.get_ref().and_then(|it| it.downcast_ref::<SocketError>());
    assert_eq!(source, Some(&SocketError::NoRoute([198, 51, 100, 9].into())));
    assert!(error.to_string().contains("no route leads to 198.51.100.9"), "{error}");
}

/// The other end of a wire in the hands of the program: its own packets, whole and unparsed, as a device of a
/// VPN client has them.
#[test]
fn a_program_carries_the_packets_itself() {
    let (queue, mut ours) = wire(tunnel());
    let stack = Stack::builder().interface(queue, at("10.7.0.2/24")).build().expect("a stack");
    let socket = UdpSocket::bind(&stack, "10.7.0.2:7").expect("a free port");

    // IPv4, its checksum right, and UDP without one, from 10.7.0.1:9 to 10.7.0.2:7 (RFC 791, RFC 768).
    let packet: [u8; 30] = [
        0x45, 0, 0, 30, 0, 1, 0, 0, 64, 17, 0x66, 0xbe, 10, 7, 0, 1, 10, 7, 0, 2, //
        0, 9, 0, 7, 0, 10, 0, 0, b'h', b'i',
    ];
    let block = Block::from(Bytes::copy_from_slice(&packet));
    let mut batch = Multidata::default();
    assert!(batch.push_packet(0, Attributes::default()).is_some());
    assert!(batch.append_span(&block, 0, packet.len()));
    assert_eq!(ours.transmit(&batch).taken, 1);
    let mut read = [0; 8];
    let (len, peer) = socket.recv_from(&mut read).expect("a datagram");
    assert_eq!((&read[..len], peer.to_string().as_str()), (&b"hi"[..], "10.7.0.1:9"));

    socket.send_to(b"hello", peer).expect("there is room");
    let (pool, mut answers) = (BlockPool::new(PoolConfig::default()), ReceiveBatch::new());
    let waiter = ours.waiter();
    while answers.is_empty() {
        waiter.wait(Some(Duration::from_secs(1)));
        ours.receive(&pool, &mut answers, 64);
    }
    let answer = answers.bytes(0);
    assert_eq!((&answer[12..20], &answer[28..]), (&[10, 7, 0, 2, 10, 7, 0, 1][..], &b"hello"[..]));
}

#[test]
fn settings_with_which_nothing_could_work_are_refused_with_their_name() {
    let refused = |builder: StackBuilder| {
        let builder = builder.interface(wire(tunnel()).0, at("10.7.0.1/24"));
        let error = builder.build().map(drop).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        error.to_string()
    };
    let tcp = tcp::Config { send_buffer_bytes: 0, ..tcp::Config::default() };
    let message = refused(Stack::builder().tcp(tcp));
    assert!(message.contains("send_buffer_bytes is zero"), "{message}");
    let keepalive = Some(tcp::Keepalive { count: 0, ..tcp::Keepalive::default() });
    let tcp = tcp::Config { keepalive, ..tcp::Config::default() };
    let message = refused(Stack::builder().tcp(tcp));
    assert!(message.contains("keepalive.count is zero"), "{message}");
    // The reserve is that of a pool of usual size.
    let pool = PoolConfig { limit_bytes: 1 << 20, ..PoolConfig::default() };
    let message = refused(Stack::builder().pool(BlockPool::new(pool.clone())));
    assert!(message.contains("receive_reserve_bytes"), "{message}");
    let message = refused(Stack::builder().config(StackConfig { pool, ..StackConfig::default() }));
    assert!(message.contains("limit_bytes"), "{message}");
}

/// By threads one way, by tasks the other.
#[test]
fn a_program_carries_packets_one_by_one_until_the_stack_is_gone() {
    const LEN: usize = 3_000_000;
    let (left, mut to_left, mut from_left) = packet_pipe(1_400);
    let (right, mut to_right, mut from_right) = packet_pipe(1_400);
    let carriers = [
        thread::spawn(move || {
            let mut packet = [0; 1_400];
            loop {
                let len = match from_left.recv(&mut packet) {
                    Ok(len) => len,
                    Err(error) => return error.kind(),
                };
                if let Err(error) = to_right.send(&packet[..len]) {
                    return error.kind();
                }
            }
        }),
        thread::spawn(move || {
            let mut packet = [0; 1_400];
            loop {
                let len = match pair::run(|context| from_right.poll_recv(context, &mut packet)) {
                    Ok(len) => len,
                    Err(error) => return error.kind(),
                };
                let packet = &packet[..len];
                let sent = pair::run(|context| to_left.poll_send_many(context, &[packet]));
                if let Err(error) = sent {
                    return error.kind();
                }
            }
        }),
    ];
    let stacks = [(left, "10.7.0.1/24"), (right, "10.7.0.2/24")].map(|(queue, address)| {
        Stack::builder().interface(queue, at(address)).build().expect("a stack")
    });
    let listener = TcpListener::bind(&stacks[1], "10.7.0.2:80").expect("a free port");
    let stream = TcpStream::connect(&stacks[0], "10.7.0.2:80").expect("it listens");
    let (accepted, _) = listener.accept().expect("connected");
    thread::scope(|scope| {
        for (mut from, mut to) in [(&stream, &accepted), (&accepted, &stream)] {
            scope.spawn(move || from.write_all(&vec![7; LEN]).expect("it is read"));
            scope.spawn(move || {
                let mut read = vec![0; LEN];
                to.read_exact(&mut read).expect("it is carried");
                assert!(read.iter().all(|byte| *byte == 7));
            });
        }
    });
    drop((stream, accepted, listener, stacks));
    for carrier in carriers {
        assert_eq!(carrier.join().expect("no panic"), ErrorKind::NetworkDown);
    }
}

#[test]
fn a_listener_bound_before_the_stack_hears_refuses_nobody() {
    for _ in 0..20 {
        let (left, right) = wire(tunnel());
        let client = Stack::builder().interface(left, at("10.7.0.1/24")).build().expect("a stack");
        let connecting = thread::spawn(move || TcpStream::connect(&client, "10.7.0.2:7").map(drop));
        let (server, listener) = Stack::builder()
            .interface(right, at("10.7.0.2/24"))
            .build_with(|stack| TcpListener::bind(stack, "10.7.0.2:7"))
            .expect("a stack that listens");
        listener.accept().expect("a connection");
        connecting.join().expect("no panic").expect("nobody refused it");
        drop(server);
    }
}

#[test]
fn of_several_sockets_bound_before_the_stack_hears_each_gets_what_came_before_it() {
    let (left, right) = wire(tunnel());
    let client = Stack::builder().interface(left, at("10.7.0.1/24")).build().expect("a stack");
    let sender = UdpSocket::bind(&client, "10.7.0.1:7").expect("a free port");
    sender.send_to(b"early", "10.7.0.2:9").expect("a route");
    let builder = Stack::builder().interface(right, at("10.7.0.2/24"));
    let (server, [_other, asked]) = builder
        .build_with(|stack| {
            let [other, asked] = ["10.7.0.2:8", "10.7.0.2:9"].map(|at| UdpSocket::bind(stack, at));
            Ok([other?, asked?])
        })
        .expect("a stack");
    asked.set_read_timeout(Some(Duration::from_secs(20))).expect("not zero");
    let mut read = [0; 8];
    assert_eq!(asked.recv(&mut read).expect("it was there"), 5);
    drop(server);

    // Who waits hears.
    let (left, right) = wire(tunnel());
    client.replace_device(0, left).expect("an interface");
    sender.send_to(b"early", "10.7.0.2:9").expect("a route");
    let builder = Stack::builder().interface(right, at("10.7.0.2/24"));
    let (_server, len) = builder
        .build_with(|stack| {
            let asked = UdpSocket::bind(stack, "10.7.0.2:9")?;
            asked.set_read_timeout(Some(Duration::from_secs(20)))?;
            asked.recv(&mut read)
        })
        .expect("a stack");
    assert_eq!(len, 5);
}

#[test]
fn who_waits_for_an_event_while_the_stack_is_built_hears_of_it() {
    for squeues in [1, 2] {
        let (left, right) = wire(tunnel());
        let builder = Stack::builder().squeues(squeues).interface(left, at("10.7.0.1/24"));
        let built = builder.build_with(|stack| {
            while stack.wait_for_event(Some(Duration::ZERO)).is_ok() {}
            drop(right);
            stack.wait_for_event(Some(Duration::from_secs(5)))
        });
        let (_stack, event) = built.expect("the device fails");
        let is_failure = matches!(event, StackEvent::Interface(InterfaceEvent::DeviceFailed(..)));
        assert!(is_failure, "{event:?}");
    }
}

/// Where all devices failed nothing is left to do, and the threads of several squeues do nothing.
#[test]
fn threads_of_a_stack_that_has_ended_sleep() {
    let (left, _right) = wire(tunnel());
    let builder = Stack::builder().squeues(2).interface(left, at("10.7.0.1/24"));
    let stack = builder.build().expect("a stack");
    stack.abort();
    thread::sleep(Duration::from_millis(50));
    let enters = || stack.counters().runtime.squeue_enters;
    let before = enters();
    thread::sleep(Duration::from_millis(400));
    let count = enters() - before;
    assert!(count < 400, "{count} looks at failed devices in 400 ms");
}
