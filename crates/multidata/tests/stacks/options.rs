//! Options of sockets: how they end, how long they wait, and who shares a port.

use crate::pair::{
    self, LEFT, RIGHT, connected, ethernet, exchange, interface, pair, pair_with, right,
};
use bytes::Bytes;
use multidata::{
    BindOptions, ConnectOptions, FastOpenKeys, FastOpenOptions, ListenOptions, PacketMarks, Stack,
    TcpListener, TcpStream, UdpSocket, tcp,
};
use std::io::{ErrorKind, Read, Write};
use std::num::NonZeroU8;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);

// SO_LINGER with zero: the peer is told by a reset, and what was not delivered is lost.
#[test]
fn linger_zero_resets() {
    let (left, right) = pair();
    let (client, mut server) = connected(&left, &right);
    client.set_linger(Some(Duration::ZERO)).expect("open");
    assert_eq!(client.linger().expect("open"), Some(Duration::ZERO));
    drop(client);
    let error = server.read(&mut [0; 10]).expect_err("no end of stream");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

// SO_LINGER with a time: the drop returns when all is acknowledged, and at the latest when it is over.
#[test]
fn linger_waits_for_delivery_but_not_for_ever() {
    let (left, right) = pair();
    let (mut client, mut server) = connected(&left, &right);
    client.set_linger(Some(20 * SECOND)).expect("open");
    client.write_all(&[7; 100_000]).expect("open");
    let reader = std::thread::spawn(move || {
        let mut received = Vec::new();
        server.read_to_end(&mut received).map(|_| received.len())
    });
    let began = Instant::now();
    drop(client);
    assert!(began.elapsed() < 10 * SECOND);
    assert_eq!(reader.join().expect("no panic").expect("in order"), 100_000);

    // Nobody reads: the window closes and the data stays here.
    let (mut client, server) = connected(&left, &right);
    client.set_nonblocking(true).expect("open");
    while client.write(&[7; 100_000]).is_ok() {}
    client.set_linger(Some(SECOND / 5)).expect("open");
    let began = Instant::now();
    drop(client);
    let waited = began.elapsed();
    assert!((SECOND / 5..5 * SECOND).contains(&waited), "{waited:?}");
    drop(server);
}

// RFC 9293, 3.8.3: the user timeout is for data that nobody acknowledges, not for an idle connection.
#[test]
fn what_is_acknowledged_is_not_subject_to_the_user_timeout() {
    // On a machine with much to do the ACK itself may be late: at one of five tries it is not.
    let is_left_alone = (0..5).any(|_| {
        let (left, right) = pair();
        let (mut client, _server) = connected(&left, &right);
        let zero = client.set_user_timeout(Some(Duration::ZERO)).expect_err("no time to answer");
        assert_eq!(zero.kind(), ErrorKind::InvalidInput);
        client.set_user_timeout(Some(SECOND / 2)).expect("open");
        client.write_all(b"acknowledged all the same").expect("open");
        std::thread::sleep(SECOND);
        client.take_error().expect("open").is_none()
    });
    assert!(is_left_alone, "it waits for nothing");
}

// RFC 7413: the second connection begins with data.
#[test]
fn the_first_bytes_go_with_the_handshake() {
    let (left, right_stack) = pair();
    let fast_open = FastOpenOptions { pending_max: 8, ..FastOpenOptions::default() };
    let options = ListenOptions { fast_open, ..ListenOptions::default() };
    let listener = TcpListener::bind_with(&right_stack, right(0), &options).expect("free");
    let address = listener.local_addr().expect("bound");
    for round in 0..4 {
        // Other keys, and then a peer that wants no cookie.
        let keys = (round == 2).then_some(FastOpenKeys { primary: [7; 16], backup: None });
        let without_cookie = round == 3;
        listener
            .set_fast_open(FastOpenOptions { keys, without_cookie, ..fast_open })
            .expect("open");
        let first = Bytes::from_static(b"request");
        let options = ConnectOptions {
            first,
            first_without_cookie: without_cookie,
            ..ConnectOptions::default()
        };
        let client = TcpStream::connect_with(&left, address, &options).expect("listening");
        let (mut server, _) = listener.accept().expect("open");
        let mut request = [0; 7];
        server.read_exact(&mut request).expect("arrived");
        assert_eq!(&request, b"request");
        let accepted = right_stack.counters().stack.shard.fast_opens_accepted;
        assert_eq!(accepted, [0, 1, 1, 2][round]);
        drop(client);
    }
}

#[test]
fn sockets_share_a_port_where_all_want_to() {
    let (_, right_stack) = pair_with(|builder| builder);
    let bind = BindOptions { shared: true, ..BindOptions::default() };
    let options = ListenOptions { bind, ..ListenOptions::default() };
    for _ in 0..2 {
        std::mem::forget(
            TcpListener::bind_with(&right_stack, right(80), &options).expect("shared"),
        );
        std::mem::forget(UdpSocket::bind_with(&right_stack, right(80), bind).expect("shared"));
    }
    let alone = TcpListener::bind(&right_stack, right(80)).expect_err("taken");
    assert_eq!(alone.kind(), ErrorKind::AddrInUse);
}

// RFC 9293, 3.8.4: idle time, interval and number are the application's to choose.
#[test]
fn keepalive_fails_a_silent_peer_after_the_probes_asked_for() {
    let (left, right) = pair();
    let (client, _server) = connected(&left, &right);
    let keepalive = tcp::Keepalive { idle: SECOND / 5, interval: SECOND / 10, count: 2 };
    for zero in [
        tcp::Keepalive { idle: Duration::ZERO, ..keepalive },
        tcp::Keepalive { interval: Duration::ZERO, ..keepalive },
        tcp::Keepalive { count: 0, ..keepalive },
    ] {
        let refused = client.set_keepalive_with(Some(zero)).expect_err("zero");
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    }
    // On a machine with much to do the answers may be late: at one of five tries they are not.
    let kept = (0..5).find_map(|_| {
        let (client, server) = connected(&left, &right);
        client.set_keepalive_with(Some(keepalive)).expect("open");
        std::thread::sleep(SECOND);
        let is_alive = client.take_error().expect("open").is_none();
        is_alive.then_some((client, server))
    });
    let (mut client, server) = kept.expect("the peer answers");
    // The peer goes away and takes its address along: nobody answers any more.
    right.remove_address(0, RIGHT.parse().expect("an address")).expect("its own");
    client.set_read_timeout(Some(20 * SECOND)).expect("open");
    let error = client.read(&mut [0; 10]).expect_err("nobody answers");
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    drop(server);
}

// RFC 6691: the clamp limits what is announced and what is sent, the peer's segments therefore too.
#[test]
fn an_interface_clamps_the_mss_of_both_directions() {
    let (left, right_device) = device::wire(ethernet());
    let left = Stack::builder().interface(left, interface(LEFT).mss_clamp(900)).build();
    let right_stack = Stack::builder().interface(right_device, interface(RIGHT)).build();
    let (left, right_stack) = (left.expect("a stack"), right_stack.expect("a stack"));
    let (client, server) = connected(&left, &right_stack);
    exchange(&client, &server, 1, 50_000);
    let (client, server) = (client.info().expect("open"), server.info().expect("open"));
    assert_eq!(client.advertised_mss_bytes, 900);
    for info in [client, server] {
        assert!((800..=900).contains(&info.send_mss_bytes), "{}", info.send_mss_bytes);
    }
}

#[test]
fn a_route_limits_the_packets_that_take_it() {
    let (left, right_stack) = pair();
    let peer = RIGHT.parse().expect("an address");
    let network = "10.1.0.0/24".parse().expect("a network");
    assert_eq!(left.path_mtu(peer).expect("on the link"), 1_500);
    left.set_route_mtu(network, Some(1_200)).expect("the interface's network");
    assert_eq!(left.path_mtu(peer).expect("on the link"), 1_200);
    let (client, server) = connected(&left, &right_stack);
    exchange(&client, &server, 2, 50_000);
    assert!(client.info().expect("open").send_mss_bytes <= 1_160);
    left.set_route_mtu(network, None).expect("the interface's network");
    assert_eq!(left.path_mtu(peer).expect("on the link"), 1_500);
    let short = left.set_route_mtu(network, Some(500)).expect_err("less than hosts rely on");
    assert_eq!(short.kind(), ErrorKind::InvalidInput);
    let elsewhere = "192.0.2.0/24".parse().expect("a network");
    let unknown = left.set_route_mtu(elsewhere, Some(1_200)).expect_err("no such route");
    assert_eq!(unknown.kind(), ErrorKind::NetworkUnreachable);
    let unknown = left.path_mtu("192.0.2.1".parse().expect("an address")).expect_err("no route");
    assert_eq!(unknown.kind(), ErrorKind::NetworkUnreachable);
}

#[test]
fn a_client_gives_one_connection_its_own_settings() {
    let (left, right_stack) = pair();
    let listener = TcpListener::bind(&right_stack, right(0)).expect("free");
    let address = listener.local_addr().expect("bound");
    let nodelay = !tcp::Config::default().nodelay;
    let config = tcp::Config { timestamps: false, nodelay, ..tcp::Config::default() };
    let options = ConnectOptions { config: Some(Arc::new(config)), ..ConnectOptions::default() };
    let own = TcpStream::connect_with(&left, address, &options).expect("listening");
    let usual = TcpStream::connect(&left, address).expect("listening");
    assert_eq!((own.nodelay().expect("open"), usual.nodelay().expect("open")), (nodelay, !nodelay));
    let timestamps = |stream: &TcpStream| stream.info().expect("open").timestamps;
    assert_eq!((timestamps(&own), timestamps(&usual)), (false, true));
}

/// Traffic class and hop limit of the IPv4 packets that `use_it` has the left stack send.
fn marks_sent(use_it: impl FnOnce(&Stack, &Stack)) -> Vec<(u8, u8)> {
    use pcap_file::pcapng::{Block, PcapNgReader};
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("packets.pcapng");
    let capture = multidata::CaptureFile::create(&path).expect("the file opens");
    let (left, right_queue) = device::wire(ethernet());
    let left = capture.wrap(Box::new(left)).expect("a thread");
    let left = Stack::builder().boxed_interface(left, interface(LEFT)).build().expect("a stack");
    let right_stack = Stack::builder().interface(right_queue, interface(RIGHT)).build();
    // It outlives the other, which would be told that its device is gone.
    let right_stack = right_stack.expect("a stack");
    use_it(&left, &right_stack);
    left.shutdown(10 * SECOND).expect("all delivered");
    capture.finish().expect("written");
    let file = std::fs::File::open(&path).expect("it was made");
    let mut reader = PcapNgReader::new(file).expect("a section header");
    let mut marks = Vec::new();
    while let Some(block) = reader.next_block() {
        let Block::EnhancedPacket(packet) = block.expect("a sound block") else { continue };
        let frame = &packet.data;
        if frame[12..14] == [8, 0] && frame[26..30] == [10, 1, 0, 1] {
            marks.push((frame[15], frame[22]));
        }
    }
    marks.dedup();
    marks
}

#[test]
fn a_connection_chooses_its_traffic_class_and_hop_limit() {
    let marks = marks_sent(|left, right_stack| {
        let (client, server) = connected(left, right_stack);
        assert_eq!((client.ttl().expect("open"), client.tos().expect("open")), (64, 0));
        client.set_ttl(7).expect("in range");
        client.set_tos(0xb8).expect("in range");
        assert_eq!((client.ttl().expect("open"), client.tos().expect("open")), (7, 0xb8));
        for refused in [client.set_ttl(0), client.set_ttl(256), client.set_tos(256)] {
            assert_eq!(refused.expect_err("out of range").kind(), ErrorKind::InvalidInput);
        }
        exchange(&client, &server, 3, 50_000);
    });
    assert_eq!(marks, [(0, 64), (0xb8, 7)]);
}

#[test]
fn what_is_asked_of_a_connection_holds_from_its_syn_on_and_goes_together() {
    let marks = marks_sent(|left, right_stack| {
        let listener = TcpListener::bind(right_stack, right(0)).expect("free");
        let address = listener.local_addr().expect("bound");
        let options = ConnectOptions {
            local: Some(format!("{LEFT}:4321").parse().expect("an address")),
            config: Some(Arc::new(tcp::Config { timestamps: false, ..tcp::Config::default() })),
            timeout: Some(20 * SECOND),
            first: Bytes::from_static(b"request"),
            first_without_cookie: false,
            // No operation, four times.
            ip_options: vec![1; 4],
            marks: PacketMarks { traffic_class: 0xb8, hop_limit: NonZeroU8::new(7) },
        };
        let client = TcpStream::connect_with(left, address, &options).expect("listening");
        assert_eq!(client.local_addr().expect("open"), options.local.expect("it was given"));
        assert!(!client.info().expect("open").timestamps);
        let (mut server, _) = listener.accept().expect("open");
        let mut request = [0; 7];
        server.read_exact(&mut request).expect("arrived");
        assert_eq!(&request, b"request");
        let again = TcpStream::connect_with(left, address, &options).expect_err("it is there");
        assert_eq!(again.kind(), ErrorKind::AddrInUse);
    });
    assert_eq!(marks, [(0xb8, 7)]);
}

#[test]
fn a_connection_that_cannot_be_as_it_is_asked_for_is_refused() {
    let (left, right_stack) = pair();
    let listener = TcpListener::bind(&right_stack, right(0)).expect("free");
    let address = listener.local_addr().expect("bound");
    let usual = ConnectOptions::default;
    let small = tcp::Config { send_buffer_bytes: 100, ..tcp::Config::default() };
    let lost = tcp::Config { user_timeout: Some(Duration::ZERO), ..tcp::Config::default() };
    let (config, first) = (Some(Arc::new(small)), Bytes::from_static(&[7; 101]));
    for options in [
        ConnectOptions { config, first, ..usual() },
        ConnectOptions { timeout: Some(Duration::ZERO), ..usual() },
        ConnectOptions { config: Some(Arc::new(lost)), ..usual() },
        // A source route.
        ConnectOptions { ip_options: vec![131, 7, 4, 10, 0, 0, 1], ..usual() },
    ] {
        let error = TcpStream::connect_with(&left, address, &options).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
    let options = ConnectOptions { timeout: Some(SECOND / 10), ..usual() };
    let silent = "10.1.0.99:5".parse().expect("an address");
    let error = TcpStream::connect_with(&left, silent, &options).expect_err("nobody is there");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let error = TcpStream::start_connect_with(&left, silent, &options).expect_err("no thread");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let elsewhere = Some("10.1.0.77:0".parse().expect("an address"));
    let options = ConnectOptions { local: elsewhere, ..usual() };
    let error = TcpStream::connect_with(&left, address, &options).expect_err("not ours");
    assert_eq!(error.kind(), ErrorKind::AddrNotAvailable);
}

#[test]
fn what_was_peeked_at_is_still_there_to_be_read() {
    let (left, right_stack) = pair();
    let (mut client, mut server) = connected(&left, &right_stack);
    client.write_all(b"hello").expect("open");
    let mut bytes = [0; 10];
    while server.peek(&mut bytes).expect("open") < 5 {}
    assert_eq!((server.peek(&mut bytes[..2]).expect("open"), &bytes[..5]), (2, &b"hello"[..]));
    assert_eq!(server.peek(&mut []).expect("open"), 0);
    assert_eq!((server.read(&mut bytes).expect("open"), &bytes[..5]), (5, &b"hello"[..]));
    server.set_nonblocking(true).expect("open");
    let none = server.peek(&mut bytes).expect_err("all was read");
    assert_eq!(none.kind(), ErrorKind::WouldBlock);
    client.shutdown(std::net::Shutdown::Write).expect("open");
    server.set_nonblocking(false).expect("open");
    assert_eq!(server.peek(&mut bytes).expect("the end"), 0);

    let server = UdpSocket::bind(&right_stack, right(9)).expect("a free port");
    let client = UdpSocket::bind(&left, (LEFT, 7)).expect("a free port");
    for text in [&b"one"[..], b"two"] {
        client.send_to(text, right(9)).expect("a neighbour");
    }
    let from = client.local_addr().expect("bound");
    for text in [&b"one"[..], b"two"] {
        assert_eq!(server.peek_from(&mut bytes).expect("sent"), (3, from));
        assert_eq!(server.peek(&mut bytes[..2]).expect("sent"), 2);
        assert_eq!(&bytes[..3], text);
        bytes.fill(0);
        assert_eq!(server.recv_from(&mut bytes).expect("sent"), (3, from));
        assert_eq!(&bytes[..3], text);
    }
}

#[test]
fn a_corked_connection_sends_full_segments_only() {
    let (left, right_stack) = pair();
    let (mut client, mut server) = connected(&left, &right_stack);
    let (mut other, mut other_server) = connected(&left, &right_stack);
    client.set_nodelay(true).expect("open");
    client.set_cork(true).expect("open");
    client.write_all(b"head").expect("open");
    // The wire keeps the order: what went before this one has arrived with it.
    other.write_all(b"x").expect("open");
    other_server.read_exact(&mut [0]).expect("open");
    assert_eq!(server.status().expect("open").readable_bytes, 0);
    client.write_all(b"tail").expect("open");
    client.set_cork(false).expect("open");
    let mut both = [0; 8];
    server.read_exact(&mut both).expect("open");
    assert_eq!(&both, b"headtail");
}

/// As on Linux: who waits for room cannot add to a segment what would fill it.
#[test]
fn a_corked_connection_without_room_for_more_sends_what_it_has() {
    let (left, right_stack) = pair();
    for lends in [false, true] {
        let (mut client, mut server) = connected(&left, &right_stack);
        client.set_write_timeout(Some(20 * SECOND)).expect("a time");
        client.set_cork(true).expect("open");
        match lends {
            // Less than a segment.
            false => {
                client.set_send_buffer_size(1_000).expect("a size");
                client.write_all(&[b'x'; 3_000]).expect("the peer acknowledges");
            }
            // More pieces than a queue holds.
            true => (0..3_000).for_each(|_| {
                client.write_bytes(Bytes::from_static(b"x")).expect("the peer acknowledges");
            }),
        }
        client.set_cork(false).expect("open");
        server.read_exact(&mut [0; 3_000]).expect("it was sent");
    }
}

// TCP_LINGER2: the peer need not close for the connection to be forgotten.
#[test]
fn a_connection_need_not_wait_for_the_peers_end() {
    let (left, right_stack) = pair();
    let (client, server) = connected(&left, &right_stack);
    client.set_fin_wait_2(Duration::ZERO).expect("open");
    drop(client);
    let began = Instant::now();
    while server.take_error().expect("open").is_none() {
        assert!(began.elapsed() < 20 * SECOND, "it waits in FIN-WAIT-2");
        std::thread::sleep(SECOND / 100);
    }
}

#[test]
fn the_error_of_a_udp_socket_is_taken_once() {
    let (left, _right_stack) = pair();
    let client = UdpSocket::bind(&left, (LEFT, 0)).expect("a free port");
    client.connect(right(9)).expect("a neighbour");
    client.send(b"nobody is there").expect("a neighbour");
    let began = Instant::now();
    let error = loop {
        match client.take_error().expect("open") {
            Some(error) => break error,
            None => assert!(began.elapsed() < 20 * SECOND, "nobody refused it"),
        }
        std::thread::sleep(SECOND / 100);
    };
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    assert!(client.take_error().expect("open").is_none());
    client.set_nonblocking(true).expect("open");
    let none = client.recv(&mut [0; 9]).expect_err("it was told");
    assert_eq!(none.kind(), ErrorKind::WouldBlock);
}

#[test]
fn a_socket_chooses_the_traffic_class_and_hop_limit_of_its_datagrams() {
    let marks = marks_sent(|left, right_stack| {
        let server = UdpSocket::bind(right_stack, right(9)).expect("a free port");
        let client = UdpSocket::bind(left, (LEFT, 0)).expect("a free port");
        for (ttl, tos) in [(64, 0), (3, 0x29)] {
            client.set_ttl(ttl).expect("in range");
            client.set_tos(tos).expect("in range");
            assert_eq!((client.ttl().expect("open"), client.tos().expect("open")), (ttl, tos));
            client.set_dont_route(tos > 0).expect("open");
            client.send_to(b"marked", right(9)).expect("a neighbour");
            server.recv(&mut [0; 9]).expect("sent");
        }
        assert!(client.set_ttl(0).is_err() && client.set_tos(256).is_err());
    });
    assert_eq!(marks, [(0, 64), (0x29, 3)]);
}

// Seed 000, 4.4.3, 1 b and 4.4.2, 2 b: by its own policy, and by an option that leaves the fast path.
#[test]
fn a_connection_takes_itself_out_of_batches() {
    type Set = fn(&TcpStream, bool) -> std::io::Result<()>;
    let cases: [(&str, Set); 2] = [
        ("multidata_not_by_flow_policy", TcpStream::set_single_packets),
        ("multidata_not_by_option", TcpStream::set_dont_route),
    ];
    for (reason, set) in cases {
        let (left, right_stack) = pair();
        let (client, server) = connected(&left, &right_stack);
        let count = || {
            let mut found = None;
            left.counters().for_each(&mut |name, value| {
                found = if name.ends_with(reason) { Some(value) } else { found };
            });
            found.expect("it is counted")
        };
        exchange(&client, &server, 4, 50_000);
        // A stream ends with `exchange`, so that each part has its own.
        assert_eq!(count(), 0, "{reason}");
        let (client, server) = connected(&left, &right_stack);
        set(&client, true).expect("open");
        exchange(&client, &server, 5, 50_000);
        assert!(count() > 30, "{reason}: {}", count());
    }
}

#[test]
fn who_asks_or_sets_something_does_not_poll_the_devices_each_time() {
    const CALLS: u64 = 2_000;
    let (left, right_stack) = pair::pair();
    let (client, _server) = pair::connected(&left, &right_stack);
    let runs = |call: &dyn Fn()| {
        let before = left.counters().runtime.squeue_runs;
        (0..CALLS).for_each(|_| call());
        left.counters().runtime.squeue_runs - before
    };
    // What is looked at is the worker's now and then, and a setter's turn is due every half a millisecond.
    let info = runs(&|| assert!(client.info().is_ok()));
    assert!(info < CALLS / 2, "{info} turns");
    let set = runs(&|| client.set_nodelay(true).expect("open"));
    assert!(set < CALLS / 2, "{set} turns");
}
