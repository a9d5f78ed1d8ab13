//! Several squeues in one stack: wherever a frame arrives, it reaches the squeue that has the socket,
//! and everything is as with one squeue.

use crate::pair::{self, LEFT, RIGHT, check_pattern, connected, interface, right, send_pattern};
use device::{Queue, TransmitMode};
use multidata::{
    Interest, InterfaceConfig, Policy, Stack, StackBuilder, TcpListener, TcpStream, UdpSocket,
};
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

/// How two stacks are joined.
#[derive(Clone, Copy, Debug)]
struct Shape {
    /// Queues of each stack's device.
    rings: usize,
    left_layout: &'static str,
    right_layout: &'static str,
}

/// One ring that fans out; as many rings as squeues, with all frames hashed; the same, with rings
/// that keep each flow; a peer of one squeue; and soft rings without fan-out.
const SHAPES: [Shape; 6] = [
    Shape { rings: 1, left_layout: "R1S2F1", right_layout: "R1S3F1" },
    Shape { rings: 2, left_layout: "R2S2F1", right_layout: "R2S4F1" },
    Shape { rings: 2, left_layout: "R2S0F0", right_layout: "R2S0F0" },
    Shape { rings: 1, left_layout: "R1S0F0", right_layout: "R1S2F1" },
    Shape { rings: 1, left_layout: "R1S2F1", right_layout: "R1S8F0" },
    Shape { rings: 2, left_layout: "R2S1F0", right_layout: "R2S2F0" },
];

fn builder(layout: &str) -> StackBuilder {
    Stack::builder().layout(layout.parse().expect("a layout"))
}

fn stacks_with(
    shape: Shape,
    configure: impl Fn(InterfaceConfig) -> InterfaceConfig,
) -> (Stack, Stack) {
    let mut left: Vec<Box<dyn Queue>> = Vec::new();
    let mut right: Vec<Box<dyn Queue>> = Vec::new();
    for _ in 0..shape.rings {
        let (one, other) = device::wire(pair::ethernet());
        left.push(Box::new(one));
        right.push(Box::new(other));
    }
    let build = |layout, queues, address| {
        let builder = builder(layout).multiqueue_interface(queues, configure(interface(address)));
        builder.build().expect("a stack")
    };
    (build(shape.left_layout, left, LEFT), build(shape.right_layout, right, RIGHT))
}

fn stacks(shape: Shape) -> (Stack, Stack) {
    stacks_with(shape, |config| config)
}

/// Connections accepted and opened in each squeue.
fn connections(stack: &Stack) -> Vec<u64> {
    let of = |it: multidata::Counters| {
        it.stack.shard.connections_accepted + it.stack.shard.connections_opened
    };
    stack.squeue_counters().into_iter().map(of).collect()
}

/// An IPv4-mapped IPv6 address of `text`.
fn mapped(text: &str, port: u16) -> SocketAddr {
    format!("[::ffff:{text}]:{port}").parse().expect("an address and a port")
}

// With a port that is given the flow decides on the squeue: that of IPv4, which is on the wire.
#[test]
fn a_connection_between_mapped_addresses_is_the_one_between_ipv4_addresses() {
    let shape = Shape { rings: 1, left_layout: "R1S4F1", right_layout: "R1S2F1" };
    let (left, right_stack) = stacks(shape);
    let listener = TcpListener::bind(&right_stack, mapped(RIGHT, 80)).expect("a free port");
    assert_eq!(listener.local_addr().expect("bound"), right(80));
    for port in 5_000..5_020 {
        let local = mapped(LEFT, port);
        let client = TcpStream::connect_from(&left, local, mapped(RIGHT, 80)).expect("it listens");
        assert_eq!(client.peer_addr().expect("connected"), right(80));
        let (server, peer) = listener.accept().expect("the connection");
        assert_eq!(peer, SocketAddr::new(LEFT.parse().expect("an address"), port));
        assert_eq!(client.local_addr().expect("connected"), peer);
        send_pattern(&client, 1, 1_000);
        check_pattern(&server, 1, 1_000);
    }
}

#[test]
fn sixty_four_connections_are_spread_and_their_data_is_equal() {
    for shape in SHAPES {
        let (left, right_stack) = stacks(shape);
        let listener = TcpListener::bind(&right_stack, right(80)).expect("a free port");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..64 {
                    let (stream, _) = listener.accept().expect("a connection");
                    scope.spawn(move || {
                        let mut seed = [0; 8];
                        (&stream).read_exact(&mut seed).expect("the seed comes first");
                        let seed = u64::from_le_bytes(seed);
                        check_pattern(&stream, seed, 300_000);
                        send_pattern(&stream, !seed, 300_000);
                    });
                }
            });
            for seed in 0..64_u64 {
                let left = &left;
                scope.spawn(move || {
                    let stream = TcpStream::connect(left, right(80)).expect("it listens");
                    (&stream).write_all(&seed.to_le_bytes()).expect("connected");
                    send_pattern(&stream, seed, 300_000);
                    check_pattern(&stream, !seed, 300_000);
                });
            }
        });
        for stack in [&left, &right_stack] {
            let counts = connections(stack);
            assert_eq!(counts.iter().sum::<u64>(), 64, "{shape:?}");
            assert!(counts.iter().all(|count| *count > 0), "{shape:?}: {counts:?}");
            let all = stack.counters();
            let runtime = all.runtime;
            assert!(runtime.bytes_copied_out >= 64 * 300_000, "{shape:?}");
            assert!(runtime.squeue_inline_batches > 0 && runtime.squeue_worker_wakeups > 0);
            // A squeue's own soft rings are emptied by who fills them.
            assert_eq!(runtime.squeue_queued_batches > 0, counts.len() > 1, "{shape:?}");
        }
        // Rings that keep each flow leave only what everybody must hear.
        let handed_over = right_stack.counters().runtime.frames_handed_over;
        let fans_out = shape.right_layout.ends_with("F1");
        assert_eq!(handed_over > 200, fans_out, "{shape:?}: {handed_over}");
        let soft_rings = right_stack.counters().steering.soft_rings.soft_ring_frames;
        assert_eq!(soft_rings > 200, !shape.right_layout.contains("S0"), "{shape:?}: {soft_rings}");
        left.shutdown(Duration::from_secs(10)).expect("everything was delivered");
    }
}

#[test]
fn connections_from_a_chosen_port_and_those_that_are_refused_find_home() {
    for shape in SHAPES {
        let (left, right_stack) = stacks(shape);
        let listener = TcpListener::bind(&right_stack, "0.0.0.0:81").expect("a free port");
        let address: SocketAddr = right(81);
        for port in 7_000..7_016_u16 {
            let local = SocketAddr::new(LEFT.parse().expect("an address"), port);
            let local = if port % 2 == 0 { local } else { ([0, 0, 0, 0], port).into() };
            let client = TcpStream::connect_from(&left, local, address).expect("it listens");
            let (mut server, peer) = listener.accept().expect("a connection");
            assert_eq!(peer, client.local_addr().expect("connected"));
            assert_eq!(peer.port(), port);
            (&client).write_all(b"here").expect("connected");
            let mut bytes = [0; 4];
            server.read_exact(&mut bytes).expect("sent");
            let refused = TcpStream::connect(&left, right(82)).expect_err("nobody listens");
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        }
    }
}

#[test]
fn a_listener_that_does_not_block_or_waits_for_a_time_says_so() {
    let (left, right_stack) = stacks(SHAPES[0]);
    let listener = TcpListener::bind(&right_stack, right(83)).expect("a free port");
    listener.set_nonblocking(true).expect("open");
    let nothing = listener.accept().expect_err("nobody is there");
    assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
    let taken = TcpListener::bind(&right_stack, right(83)).expect_err("it is taken");
    assert_eq!(taken.kind(), ErrorKind::AddrInUse);
    let clients: Vec<_> =
        (0..12).map(|_| TcpStream::connect(&left, right(83)).expect("it listens")).collect();
    let started = Instant::now();
    let mut accepted = Vec::new();
    while accepted.len() < clients.len() {
        match listener.accept() {
            Ok((stream, _)) => accepted.push(stream),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        assert!(started.elapsed() < Duration::from_secs(10), "{} came", accepted.len());
    }
    drop(listener);
    let refused = TcpStream::connect(&left, right(83)).expect_err("nobody listens any more");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    TcpListener::bind(&right_stack, right(83)).expect("free again in every squeue");
}

fn patient(socket: &UdpSocket) {
    socket.set_read_timeout(Some(Duration::from_secs(30))).expect("a time");
}

#[test]
fn datagrams_come_to_the_socket_of_their_port_whole_and_in_fragments() {
    for shape in SHAPES {
        let (left, right_stack) = stacks(shape);
        let sockets: Vec<UdpSocket> = (5_000..5_016_u16)
            .map(|port| UdpSocket::bind(&right_stack, right(port)).expect("a free port"))
            .collect();
        let mut buffer = vec![0; 70_000];
        for (index, server) in sockets.iter().enumerate() {
            patient(server);
            let client = UdpSocket::bind(&left, (LEFT, 0)).expect("a free port");
            patient(&client);
            let from = client.local_addr().expect("bound");
            for len in [1, 1_472, 9_000, 40_000] {
                let mut sent = vec![0; len];
                pair::Pattern::new(index as u64).fill(&mut sent);
                let started = Instant::now();
                client.send_to(&sent, server.local_addr().expect("bound")).expect("a route");
                let (count, source) = server.recv_from(&mut buffer).expect("sent");
                assert_eq!((&buffer[..count], source), (&*sent, from), "{shape:?}");
                server.send_to(&sent, from).expect("a route");
                let (count, _) = client.recv_from(&mut buffer).expect("sent");
                assert_eq!(buffer[..count], *sent, "{shape:?}");
                // A thread that nobody wakes finds its datagram when its timeout is over.
                assert!(started.elapsed() < Duration::from_secs(25), "{shape:?}: nobody woke");
            }
        }
        let taken = UdpSocket::bind(&right_stack, right(5_003)).expect_err("it is taken");
        assert_eq!(taken.kind(), ErrorKind::AddrInUse);
    }
}

#[test]
fn errors_about_a_datagram_come_to_the_socket_that_sent_it() {
    for shape in SHAPES {
        let (left, _right_stack) = stacks(shape);
        for _ in 0..12 {
            let client = UdpSocket::bind(&left, (LEFT, 0)).expect("a free port");
            client.connect(right(9)).expect("a route");
            client.set_read_timeout(Some(Duration::from_millis(50))).expect("a time");
            let started = Instant::now();
            // Nobody listens there; the first may wait for the neighbour, and errors are limited.
            let error = loop {
                let outcome = client.send(b"hello").and_then(|_| client.recv(&mut [0; 8]));
                match outcome.expect_err("nobody answers") {
                    error if error.kind() == ErrorKind::WouldBlock => {}
                    error => break error,
                }
                assert!(started.elapsed() < Duration::from_secs(10), "{shape:?}: no error came");
            };
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{shape:?}");
        }
    }
}

#[test]
fn what_a_stack_sends_to_itself_reaches_every_squeue() {
    let (left, _right_stack) = stacks(SHAPES[1]);
    let own = |port: u16| SocketAddr::new(LEFT.parse().expect("an address"), port);
    let mut buffer = [0; 4_000];
    for port in 6_000..6_012 {
        let server = UdpSocket::bind(&left, own(port)).expect("a free port");
        patient(&server);
        let client = UdpSocket::bind(&left, own(0)).expect("a free port");
        client.send_to(&[7; 3_000], own(port)).expect("a route");
        let (count, source) = server.recv_from(&mut buffer).expect("sent");
        assert_eq!((count, source), (3_000, client.local_addr().expect("bound")));
        // Nobody listens there: so says the squeue of that port, to the one of the socket.
        client.connect(own(port + 100)).expect("a route");
        client.send(b"hello").expect("a route");
        client.set_read_timeout(Some(Duration::from_secs(5))).expect("a time");
        let error = client.recv(&mut buffer).expect_err("nobody answers");
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    }
    let listener = TcpListener::bind(&left, own(90)).expect("a free port");
    for seed in 0..6 {
        let client = TcpStream::connect(&left, own(90)).expect("it listens");
        let (server, _) = listener.accept().expect("a connection");
        std::thread::scope(|scope| {
            scope.spawn(|| send_pattern(&client, seed, 200_000));
            check_pattern(&server, seed, 200_000);
        });
    }
}

#[test]
fn what_is_changed_is_changed_in_every_squeue() {
    let (left, right_stack) = stacks(SHAPES[0]);
    let added = "10.1.0.77/24".parse().expect("an address");
    right_stack.add_address(0, added).expect("no other has it");
    assert!(right_stack.add_address(0, added).is_err(), "it has it already");
    let listener = TcpListener::bind(&right_stack, "10.1.0.77:80").expect("its own address");
    for _ in 0..8 {
        TcpStream::connect(&left, "10.1.0.77:80").expect("it listens");
        listener.accept().expect("a connection");
    }
    for mode in TransmitMode::ALL.into_iter().filter(|mode| *mode != TransmitMode::Lso) {
        right_stack.set_transmit_mode(0, mode).expect("the wire has it");
        assert_eq!(right_stack.interfaces()[0].mode, mode);
        let (client, server) = connected(&left, &right_stack);
        pair::exchange(&client, &server, 5, 100_000);
    }
    right_stack.set_mtu(0, 900).expect("the wire takes less");
    for _ in 0..4 {
        let (client, server) = connected(&left, &right_stack);
        pair::exchange(&client, &server, 6, 100_000);
        assert!(server.info().expect("open").path_mss_bytes <= 860);
    }
    right_stack.remove_address(0, "10.1.0.77".parse().expect("an address")).expect("it had it");
    assert!(TcpListener::bind(&right_stack, "10.1.0.77:81").is_err());
}

/// As who asks for each name before he connects.
#[test]
fn who_opens_a_socket_before_each_connection_uses_all_squeues() {
    for count in [2, 3, 4] {
        let (near, _far) = device::wire(pair::ethernet());
        let stack = Stack::builder().squeues(count).interface(near, interface(LEFT)).build();
        let stack = stack.expect("a stack");
        let opened = |_| {
            let socket = UdpSocket::bind(&stack, (LEFT, 0)).expect("a free port");
            (socket, TcpStream::start_connect(&stack, pair::right(80)).expect("a route"))
        };
        let opened: Vec<_> = (0..2 * count).map(opened).collect();
        assert_eq!(connections(&stack), vec![2; count]);
        drop(opened);
    }
}

#[test]
fn any_port_can_be_had_where_one_squeue_has_all_datagrams() {
    let (near, _far) = device::wire(pair::ethernet());
    let stack = Stack::builder().squeues(3).spread_by(Policy::Protocol);
    let stack = stack.interface(near, interface(LEFT));
    let stack = stack.build().expect("a stack");
    let bind = |_| UdpSocket::bind(&stack, (LEFT, 0)).expect("there are free ports");
    drop([(); 6].map(bind));
}

#[test]
fn a_listener_hears_what_is_sent_to_its_group_from_every_squeue() {
    let (near, _far) = device::wire(pair::ethernet());
    let stack = Stack::builder().squeues(3).interface(near, interface(LEFT));
    let stack = stack.build().expect("a stack");
    let listener = UdpSocket::bind(&stack, "0.0.0.0:5353").expect("a free port");
    patient(&listener);
    let group = "239.1.2.3".parse().expect("a group");
    listener.join_multicast(group, None, &[]).expect("room");
    // They are at home in each squeue in turn.
    for _ in 0..6 {
        let sender = UdpSocket::bind(&stack, (LEFT, 0)).expect("a free port");
        sender.send_to(b"everybody", (group, 5_353)).expect("a way");
        let (len, from) = listener.recv_from(&mut [0; 16]).expect("it is looped");
        assert_eq!((len, from), (9, sender.local_addr().expect("bound")));
        // Nothing of these leaves by the device, which need not be asked between two of them.
        sender.set_multicast_ttl(0).expect("always");
        for text in [b"one", b"two"] {
            sender.send_to(text, (group, 5_353)).expect("a way");
        }
        for text in [b"one", b"two"] {
            let mut heard = [0; 3];
            assert_eq!(listener.recv_from(&mut heard).expect("it is looped").0, 3);
            assert_eq!(&heard, text);
        }
    }
}

#[test]
fn a_stack_is_refused_that_cannot_be() {
    let queues = |count: usize| -> Vec<Box<dyn Queue>> {
        (0..count).map(|_| Box::new(device::wire(pair::ethernet()).0) as _).collect()
    };
    let build = |builder: StackBuilder, count, config| {
        let built = builder.multiqueue_interface(queues(count), config).build();
        built.expect_err("it cannot be").to_string()
    };
    let plain = || Stack::builder();
    for (built, said) in [
        (build(plain().squeues(0), 1, interface(LEFT)), "one squeue at least"),
        (build(plain().squeues(65), 1, interface(LEFT)), "not 65"),
        (build(plain().squeues(100_000), 1, interface(LEFT)), "100000"),
        (build(plain().squeues(2), 3, interface(LEFT)), "3 queues"),
        (build(plain(), 0, interface(LEFT)), "0 queues"),
        (build(builder("R2S2F1"), 1, interface(LEFT)), "2 rings"),
    ] {
        assert!(built.contains(said), "{built}");
    }
}

#[test]
fn all_of_a_peer_may_be_given_to_one_squeue() {
    let (one, other) = device::wire(pair::ethernet());
    let right_stack = Stack::builder().squeues(3).spread_by(Policy::Source);
    let right_stack = right_stack.interface(other, interface(RIGHT)).build().expect("a stack");
    let left = Stack::builder().interface(one, interface(LEFT)).build().expect("a stack");
    let pairs: Vec<_> = (0..6).map(|_| connected(&left, &right_stack)).collect();
    let back: Vec<_> = (0..6).map(|_| connected_back(&right_stack, &left)).collect();
    let mut counts = connections(&right_stack);
    counts.sort_unstable();
    assert_eq!(counts, [0, 0, 12], "there is one peer");
    for (client, server) in pairs.iter().chain(&back) {
        pair::exchange(client, server, 8, 50_000);
    }
}

/// A connection that `from` opens to the stack at [`LEFT`].
fn connected_back(from: &Stack, left: &Stack) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(left, (LEFT, 0)).expect("a free port");
    let client = TcpStream::connect(from, listener.local_addr().expect("bound"));
    (client.expect("it listens"), listener.accept().expect("a connection").0)
}

#[test]
fn a_stack_that_ends_under_load_delivers_and_leaks_nothing() {
    for shape in SHAPES {
        let (left, right_stack) = stacks(shape);
        let pools = [left.pool().clone(), right_stack.pool().clone()];
        let listener = TcpListener::bind(&right_stack, right(84)).expect("a free port");
        let clients: Vec<TcpStream> =
            (0..8).map(|_| TcpStream::connect(&left, right(84)).expect("it listens")).collect();
        let servers: Vec<TcpStream> =
            (0..8).map(|_| listener.accept().expect("a connection").0).collect();
        std::thread::scope(|scope| {
            for server in servers {
                scope.spawn(move || {
                    // Of these some are let go of in the middle.
                    let mut buffer = [0; 20_000];
                    for _ in 0..20 {
                        match (&server).read(&mut buffer) {
                            Ok(0) | Err(_) => break,
                            Ok(_) => {}
                        }
                    }
                });
            }
            for client in clients {
                scope.spawn(move || {
                    let bytes = vec![1; 100_000];
                    while (&client).write_all(&bytes).is_ok() {}
                });
            }
        });
        drop((listener, left, right_stack));
        for pool in pools {
            let left_over = pool.counters().outstanding_bytes;
            assert_eq!(left_over, 0, "{shape:?}");
        }
    }
}

#[test]
fn the_last_handle_waits_for_what_is_left_to_deliver_in_any_squeue() {
    for shape in SHAPES {
        let is_soon = pair::is_soon(Duration::from_millis(900), || {
            let (left, right_stack) = stacks(shape);
            let listener = TcpListener::bind(&right_stack, right(85)).expect("a free port");
            let reader = std::thread::spawn(move || {
                let _stack = right_stack;
                (0..8).for_each(|_| {
                    let (stream, _) = listener.accept().expect("a connection");
                    check_pattern(&stream, 4, 400_000);
                });
            });
            for _ in 0..8 {
                let client = TcpStream::connect(&left, right(85)).expect("it listens");
                send_pattern(&client, 4, 400_000);
            }
            let started = Instant::now();
            drop(left);
            let took = started.elapsed();
            reader.join().expect("every byte came");
            took
        });
        assert!(is_soon, "{shape:?}: it was delivered");
    }
}

/// A task that lets go of its connection, the last handle of its stack, in place.
#[derive(Default)]
struct LetsGo(Mutex<Option<TcpStream>>);

impl Wake for LetsGo {
    fn wake(self: Arc<Self>) {
        drop(self.0.lock().expect("no panic").take());
    }
}

#[test]
fn a_thread_of_the_stack_that_drops_the_last_handle_delivers_what_is_left() {
    // The connection is in either squeue.
    for count in [1, 2, 2, 2, 2] {
        let (near, far) = device::wire(pair::ethernet());
        let left = Stack::builder().squeues(count).interface(near, interface(LEFT)).build();
        let right_stack = Stack::builder().interface(far, interface(pair::RIGHT)).build();
        let (left, right_stack) = (left.expect("a stack"), right_stack.expect("a stack"));
        let (mut client, mut server) = connected(&left, &right_stack);
        client.set_nonblocking(true).expect("always");
        let mut sent = 0;
        while let Ok(count) = client.write(&[7; 65_536]) {
            sent += count;
        }
        let task = Arc::<LetsGo>::default();
        drop(left);
        // Whoever wakes it waits until it has the connection.
        let mut last = task.0.lock().expect("no panic");
        last.insert(client).register_waker(Interest::Writable, &Waker::from(Arc::clone(&task)));
        drop(last);
        server.set_read_timeout(Some(pair::PATIENCE)).expect("a time");
        let mut received = Vec::new();
        server.read_to_end(&mut received).expect("it was delivered, and ended");
        assert_eq!(received.len(), sent, "of {count} squeues");
    }
}

#[test]
fn a_thread_that_panics_poisons_nothing() {
    let (left, right_stack) = stacks(SHAPES[0]);
    let (client, server) = connected(&left, &right_stack);
    let panicked = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let (client, _server) = connected(&left, &right_stack);
                    (&client).write_all(&[1; 10_000]).expect("connected");
                    panic!("of the test's own making");
                })
            })
            .collect();
        threads.into_iter().filter_map(|thread| thread.join().err()).count()
    });
    assert_eq!(panicked, 4);
    pair::exchange(&client, &server, 9, 1 << 20);
}

// A flood on one flow must not starve others: a soft ring keeps room for them.
#[test]
fn a_flood_on_one_port_leaves_room_for_a_connection() {
    let (left, right_stack) = stacks(SHAPES[0]);
    let (client, server) = connected(&left, &right_stack);
    let flooded = UdpSocket::bind(&right_stack, right(6_666)).expect("a free port");
    let is_over = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let source = UdpSocket::bind(&left, (LEFT, 0)).expect("a free port");
            source.set_nonblocking(true).expect("open");
            while is_over.load(Ordering::Relaxed) == 0 {
                drop(source.send_to(&[0; 200], right(6_666)));
            }
        });
        let frames = || right_stack.counters().stack.shard.receive_frames;
        let started = (Instant::now(), frames());
        let mut position = 0;
        while frames() < started.1 + 20_000 {
            exchange_more(&client, &server, &mut position);
            assert!(started.0.elapsed() < Duration::from_secs(60), "{} frames", frames());
        }
        is_over.store(1, Ordering::Relaxed);
    });
    drop(flooded);
}

/// A request and its answer, 10,000 bytes each.
fn exchange_more(mut client: &TcpStream, mut server: &TcpStream, position: &mut u8) {
    *position = position.wrapping_add(1);
    let mut bytes = [0; 10_000];
    client.write_all(&[*position; 10_000]).expect("connected");
    server.read_exact(&mut bytes).expect("sent");
    server.write_all(&bytes).expect("connected");
    client.read_exact(&mut bytes).expect("sent");
    assert_eq!(bytes, [*position; 10_000]);
}

#[test]
fn a_backlog_is_polled_and_an_idle_squeue_sleeps() {
    let (left, right_stack) = stacks(SHAPES[0]);
    let _flooded = UdpSocket::bind(&right_stack, right(6_667)).expect("a free port");
    let source = UdpSocket::bind(&left, (LEFT, 0)).expect("a free port");
    source.set_nonblocking(true).expect("open");
    let runtime = || right_stack.counters().runtime;
    let started = Instant::now();
    while runtime().to_polling == 0 {
        for _ in 0..1_000 {
            drop(source.send_to(&[0; 200], right(6_667)));
        }
        assert!(started.elapsed() < Duration::from_secs(60), "{:?}", runtime());
    }
    // Nothing comes any more: the worker goes back to sleep, and polls no more.
    let started = Instant::now();
    loop {
        let before = runtime().poll_turns;
        std::thread::sleep(Duration::from_millis(50));
        if runtime().poll_turns == before {
            break;
        }
        assert!(started.elapsed() < Duration::from_secs(60), "it polls for ever");
    }
    assert!(runtime().squeue_migrations > 0);
}
