//! Options of sockets: what is set is read back, holds, and goes where it is to go.

use super::*;

// Linux: a size is unsigned and bounded before it is doubled, and a clamp is no less than what a buffer is.
#[test]
fn sizes_out_of_bounds_are_told_as_they_hold() {
    let mut pair = Pair::new();
    let fd = pair.socket(0, SOCK_STREAM);
    let (_, _, connected) = pair.connected();
    let set = |level, name, value: i32| Call::SetOption {
        fd,
        level,
        name,
        value: value.to_ne_bytes().to_vec(),
    };
    for (level, name, value, told) in [
        (SOL_SOCKET, SO_RCVBUF, -1, 8 << 20),
        (SOL_SOCKET, SO_SNDBUF, i32::MAX, 8 << 20),
        (SOL_SOCKET, SO_RCVBUFFORCE, i32::MAX, i32::MAX - 1),
        (SOL_SOCKET, SO_RCVBUF, 1_000, 2_304),
        (SOL_SOCKET, SO_RCVLOWAT, -1, 1_152),
        (IPPROTO_TCP, TCP_WINDOW_CLAMP, 100, 1_152),
        (IPPROTO_TCP, TCP_WINDOW_CLAMP, 0, 0),
        (IPPROTO_TCP, TCP_WINDOW_CLAMP, -1, 1_152),
        (IPPROTO_TCP, TCP_WINDOW_CLAMP, 0, 0),
        (IPPROTO_TCP, TCP_THIN_DUPACK, 1, 0),
        (IPPROTO_TCP, TCP_FASTOPEN, 70_000, 4_096),
        (IPPROTO_TCP, TCP_DEFER_ACCEPT, i32::MAX, 29_887),
        (IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 5, 1),
    ] {
        pair.call(0, set(level, name, value));
        let name = if name == SO_RCVBUFFORCE { SO_RCVBUF } else { name };
        let after = pair.call(0, Call::GetOption { fd, level, name, len: 4 }).output;
        assert_eq!(after, Output::Value(told.to_ne_bytes().to_vec()), "{level} {name} {value}");
    }
    assert_eq!(pair.refused(0, set(IPPROTO_TCP, TCP_THIN_DUPACK, 2)), Errno::EINVAL);
    let clamp = Call::SetOption {
        fd: connected,
        level: IPPROTO_TCP,
        name: TCP_WINDOW_CLAMP,
        value: vec![0; 4],
    };
    assert_eq!(pair.refused(0, clamp), Errno::EINVAL);
}

#[test]
fn options_are_read_back_as_they_were_set() {
    let mut pair = Pair::new();
    let fresh = pair.socket(0, SOCK_STREAM);
    let (_, _, connected) = pair.connected();
    let options = [
        (SOL_SOCKET, SO_KEEPALIVE, 1),
        (SOL_SOCKET, SO_REUSEADDR, 1),
        (SOL_SOCKET, SO_REUSEPORT, 1),
        (SOL_SOCKET, SO_PRIORITY, 5),
        (SOL_SOCKET, SO_BUSY_POLL, 50),
        (SOL_SOCKET, SO_DEBUG, 1),
        (SOL_SOCKET, SO_NO_CHECK, 1),
        (SOL_SOCKET, SO_INCOMING_CPU, 1),
        (IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1),
        (SOL_SOCKET, SO_RCVLOWAT, 300),
        (IPPROTO_TCP, TCP_NODELAY, 1),
        (IPPROTO_TCP, TCP_KEEPIDLE, 60),
        (IPPROTO_TCP, TCP_KEEPINTVL, 7),
        (IPPROTO_TCP, TCP_KEEPCNT, 3),
        (IPPROTO_TCP, TCP_SYNCNT, 4),
        (IPPROTO_TCP, TCP_USER_TIMEOUT, 9_000),
        (IPPROTO_TCP, TCP_NOTSENT_LOWAT, 4_096),
        (IPPROTO_TCP, TCP_NOTSENT_LOWAT, -1),
    ];
    for fd in [fresh, connected] {
        for (level, name, value) in options {
            let before = pair.call(0, Call::GetOption { fd, level, name, len: 4 }).output;
            let set = Output::Value(i32::to_ne_bytes(value).to_vec());
            assert_ne!(before, set, "{level} {name}: the test sets something else");
            let value = i32::to_ne_bytes(value).to_vec();
            pair.call(0, Call::SetOption { fd, level, name, value });
            let after = pair.call(0, Call::GetOption { fd, level, name, len: 4 }).output;
            assert_eq!(after, set, "{level} {name}");
        }
        // socket(7): the kernel doubles what is asked for.
        for name in [SO_SNDBUF, SO_RCVBUF] {
            let value = i32::to_ne_bytes(50_000).to_vec();
            pair.call(0, Call::SetOption { fd, level: SOL_SOCKET, name, value });
            let get = Call::GetOption { fd, level: SOL_SOCKET, name, len: 4 };
            let doubled = Output::Value(i32::to_ne_bytes(100_000).to_vec());
            assert_eq!(pair.call(0, get).output, doubled);
        }
        let name = TCP_CONGESTION;
        let set = |value: &[u8]| {
            let value = value.to_vec();
            Call::SetOption { fd, level: IPPROTO_TCP, name, value }
        };
        pair.call(0, set(b"bbr"));
        assert_eq!(pair.refused(0, set(b"unheard")), Errno::ENOENT);
        let get = Call::GetOption { fd, level: IPPROTO_TCP, name, len: 16 };
        let told = pair.call(0, get).output;
        assert!(matches!(told, Output::Value(name) if name.starts_with(b"bbr\0")));
    }
    let value = vec![1, 0, 0, 0];
    let unknown = Call::SetOption { fd: fresh, level: IPPROTO_TCP, name: 9_999, value };
    assert_eq!(pair.refused(0, unknown), Errno::ENOPROTOOPT);
    pair.call(0, set_int(fresh, SOL_SOCKET, SO_DEBUG, 7));
    assert_eq!(get_int(&mut pair, 0, (fresh, SOL_SOCKET, SO_DEBUG)), 1, "it is on or off");
    let datagrams = pair.socket(0, SOCK_DGRAM);
    pair.call(0, set_int(datagrams, SOL_SOCKET, SO_DEBUG, 1));
    let without = set_int(datagrams, SOL_SOCKET, SO_NO_CHECK, 1);
    assert_eq!(pair.refused(0, without), Errno::ENOPROTOOPT, "they have checksums all the same");
}

const ROUTER_ALERT: [u8; 4] = [148, 4, 0, 0];

fn set_header_options(fd: Fd, value: &[u8]) -> Call {
    Call::SetOption { fd, level: IPPROTO_IP, name: IP_OPTIONS, value: value.to_vec() }
}

// What Linux does: neither the SYN-ACK nor the accepted connection has the listener's.
#[test]
fn header_options_of_a_listener_are_its_own() {
    let mut pair = Pair::new();
    let listener = pair.socket(1, SOCK_STREAM);
    pair.call(1, set_header_options(listener, &ROUTER_ALERT));
    pair.call(1, Call::Bind { fd: listener, address: address("10.0.0.2:80") });
    pair.call(1, Call::Listen { fd: listener, backlog: 4 });
    pair.call(1, set_header_options(listener, &ROUTER_ALERT));
    let client = pair.socket(0, SOCK_STREAM);
    let mut connect =
        pair.hosts[0].begin(Call::Connect { fd: client, address: address("10.0.0.2:80") });
    assert_eq!(pair.hosts[0].attempt(&mut connect), None, "it waits for an answer");
    let (_, syn) = pair.hosts[0].take_packet().expect("a SYN");
    pair.hosts[1].inject(&syn);
    let (_, syn_ack) = pair.hosts[1].take_packet().expect("a SYN-ACK");
    assert_eq!((syn_ack[0], syn_ack[33]), (0x45, 0x12), "no options in its IPv4 header");
    pair.hosts[0].inject(&syn_ack);
    pair.carry();
    assert!(matches!(pair.hosts[0].attempt(&mut connect), Some(Ok(_))));
    let server = pair.call(1, Call::Accept { fd: listener }).value as Fd;
    for (fd, wanted) in [(listener, &ROUTER_ALERT[..]), (server, &[])] {
        let asked = Call::GetOption { fd, level: IPPROTO_IP, name: IP_OPTIONS, len: 40 };
        let output = pair.call(1, asked).output;
        assert!(matches!(output, Output::Value(value) if value == wanted));
    }
    let value = vec![1, 0, 0, 0];
    pair.call(1, Call::SetOption { fd: server, level: IPPROTO_TCP, name: TCP_NODELAY, value });
    for header in [0x45, 0x46] {
        let host = &mut pair.hosts[1];
        let mut task = host.begin(send(server, b"answer"));
        let _ = host.attempt(&mut task);
        let (_, packet) = host.take_packet().expect("data");
        assert_eq!(packet[0], header);
        // It can have some of its own.
        pair.call(1, set_header_options(server, &ROUTER_ALERT));
    }
}

// ip(7). Unlike options, what a listener says to routers goes with its SYN-ACKs and to its connections.
#[test]
fn marks_of_a_listener_are_its_connections_too() {
    let mut pair = Pair::new();
    let listener = pair.socket(1, SOCK_STREAM);
    pair.call(1, set_int(listener, IPPROTO_IP, IP_TOS, 0x2b));
    pair.call(1, Call::Bind { fd: listener, address: address("10.0.0.2:80") });
    pair.call(1, Call::Listen { fd: listener, backlog: 4 });
    pair.call(1, set_int(listener, IPPROTO_IP, IP_TTL, 7));
    let client = pair.socket(0, SOCK_STREAM);
    pair.call(0, set_int(client, IPPROTO_IP, IP_TTL, 9));
    let mut connect =
        pair.hosts[0].begin(Call::Connect { fd: client, address: address("10.0.0.2:80") });
    assert_eq!(pair.hosts[0].attempt(&mut connect), None, "it waits for an answer");
    let (_, syn) = pair.hosts[0].take_packet().expect("a SYN");
    assert_eq!((syn[1], syn[8]), (0, 9));
    pair.hosts[1].inject(&syn);
    let (_, syn_ack) = pair.hosts[1].take_packet().expect("a SYN-ACK");
    assert_eq!((syn_ack[1], syn_ack[8]), (0x28, 7), "ECN is TCP's own");
    pair.hosts[0].inject(&syn_ack);
    pair.carry();
    assert!(matches!(pair.hosts[0].attempt(&mut connect), Some(Ok(_))));
    let server = pair.call(1, Call::Accept { fd: listener }).value as Fd;
    assert_eq!(get_int(&mut pair, 1, (server, IPPROTO_IP, IP_TOS)), 0x28);
    pair.call(1, set_int(server, IPPROTO_TCP, TCP_NODELAY, 1));
    for hop_limit in [7, 64] {
        assert_eq!(get_int(&mut pair, 1, (server, IPPROTO_IP, IP_TTL)), hop_limit);
        let packet = pair.packet_of(1, send(server, b"answer"));
        assert_eq!((packet[1], packet[8]), (0x28, hop_limit as u8));
        // What is usual again.
        pair.call(1, set_int(server, IPPROTO_IP, IP_TTL, -1));
    }
}

#[test]
fn a_datagrams_marks_are_of_its_family_and_within_their_range() {
    let mut pair = Pair::new();
    let fd = pair.socket(0, SOCK_DGRAM);
    // A byte will do, and ECN is the program's.
    pair.call(0, Call::SetOption { fd, level: IPPROTO_IP, name: IP_TOS, value: vec![0x2b] });
    for refused in [0, 256, -2] {
        assert_eq!(pair.refused(0, set_int(fd, IPPROTO_IP, IP_TTL, refused)), Errno::EINVAL);
    }
    for name in [IPV6_TCLASS, IPV6_UNICAST_HOPS] {
        let other = set_int(fd, IPPROTO_IPV6, name, 9);
        assert_eq!(pair.refused(0, other), Errno::ENOPROTOOPT, "not of this family");
    }
    pair.call(0, Call::Connect { fd, address: address("10.0.0.2:80") });
    let mut marks = Vec::new();
    for hop_limit in [64, 5] {
        pair.call(0, set_int(fd, IPPROTO_IP, IP_TTL, hop_limit));
        let packet = pair.packet_of(0, send(fd, b"marked"));
        marks.push((packet[1], packet[8]));
    }
    assert_eq!(marks, [(0x2b, 64), (0x2b, 5)]);
}

// tcp(7): the acknowledgment that waits goes at once.
#[test]
fn quick_acks_are_sent_when_they_are_asked_for() {
    let mut pair = Pair::new();
    let (_, server, client) = pair.connected();
    // The first few are quick in any case.
    pair.call(1, set_int(server, IPPROTO_TCP, TCP_QUICKACK, 0));
    assert_eq!(get_int(&mut pair, 1, (server, IPPROTO_TCP, TCP_QUICKACK)), 0);
    for quick in [false, true] {
        let request = pair.packet_of(0, send(client, b"request"));
        pair.hosts[1].inject(&request);
        if quick {
            assert_eq!(pair.hosts[1].take_packet(), None, "it is held back");
            let ack = pair.packet_of(1, set_int(server, IPPROTO_TCP, TCP_QUICKACK, 1));
            assert_eq!((ack.len(), ack[33]), (52, 0x10), "nothing but timestamps");
        } else {
            pair.call(1, send(server, b"answer"));
            pair.carry();
        }
    }
}

#[test]
fn what_must_not_be_routed_is_told_so() {
    let mut pair = Pair::new();
    for kind in [SOCK_STREAM, SOCK_DGRAM] {
        let fd = pair.socket(0, kind);
        assert_eq!(get_int(&mut pair, 0, (fd, SOL_SOCKET, SO_DONTROUTE)), 0);
        pair.call(0, set_int(fd, SOL_SOCKET, SO_DONTROUTE, 1));
        assert_eq!(get_int(&mut pair, 0, (fd, SOL_SOCKET, SO_DONTROUTE)), 1);
        let connect = Call::Connect { fd, address: address("10.0.0.2:80") };
        let mut task = pair.hosts[0].begin(connect);
        let _ = pair.hosts[0].attempt(&mut task);
    }
}

#[test]
fn header_options_set_before_connect_go_with_the_syn() {
    let option = set_header_options;
    for kind in [SOCK_STREAM, SOCK_DGRAM] {
        let mut pair = Pair::new();
        let fd = pair.socket(0, kind);
        assert_eq!(pair.refused(0, option(fd, &[131, 7, 4, 10, 0, 0, 1])), Errno::EINVAL);
        pair.call(0, option(fd, &ROUTER_ALERT));
        let asked = Call::GetOption { fd, level: IPPROTO_IP, name: IP_OPTIONS, len: 40 };
        let reply = pair.call(0, asked);
        assert!(matches!(reply.output, Output::Value(value) if value == ROUTER_ALERT));
        let host = &mut pair.hosts[0];
        let mut task = host.begin(Call::Connect { fd, address: address("10.0.0.2:80") });
        let _ = host.attempt(&mut task);
        if kind == SOCK_DGRAM {
            let mut task = host.begin(send(fd, b"datagram"));
            let _ = host.attempt(&mut task);
        }
        let (_, packet) = host.take_packet().expect("a SYN or a datagram");
        assert_eq!((packet[0], &packet[20..24]), (0x46, &ROUTER_ALERT[..]));
    }
}

// socket(7) and sock_setsockopt(): a rate in 32 bits or in 64; who sets sizes of buffers by force has them, too.
#[test]
fn rates_and_sizes_are_told_as_they_were_set() {
    let mut pair = Pair::new();
    let fd = pair.socket(0, SOCK_STREAM);
    let mut set = |name, value: Vec<u8>, len| {
        pair.call(0, Call::SetOption { fd, level: SOL_SOCKET, name, value });
        let told = pair.call(0, Call::GetOption { fd, level: SOL_SOCKET, name, len });
        match told.output {
            Output::Value(value) => value,
            other => panic!("{other:?}"),
        }
    };
    let none = vec![0xff; 4];
    assert_eq!(set(SO_MAX_PACING_RATE, vec![0xff; 4], 4), none);
    assert_eq!(set(SO_MAX_PACING_RATE, 5_u32.to_ne_bytes().to_vec(), 4), 5_u32.to_ne_bytes());
    assert_eq!(set(SO_MAX_PACING_RATE, 5_u32.to_ne_bytes().to_vec(), 8), 5_u64.to_ne_bytes());
    let long = 1_u64 << 40;
    assert_eq!(set(SO_MAX_PACING_RATE, long.to_ne_bytes().to_vec(), 8), long.to_ne_bytes());
    assert_eq!(set(SO_MAX_PACING_RATE, long.to_ne_bytes().to_vec(), 4), none);
    let size = 100_000_u32.to_ne_bytes().to_vec();
    for (name, told) in [(SO_SNDBUFFORCE, SO_SNDBUF), (SO_RCVBUFFORCE, SO_RCVBUF)] {
        pair.call(0, Call::SetOption { fd, level: SOL_SOCKET, name, value: size.clone() });
        let told = pair.call(0, Call::GetOption { fd, level: SOL_SOCKET, name: told, len: 4 });
        assert_eq!(told.output, Output::Value(200_000_u32.to_ne_bytes().to_vec()));
    }
}

fn get_bytes(pair: &mut Pair, at: usize, (fd, level, name): (Fd, i32, i32)) -> Vec<u8> {
    match pair.call(at, Call::GetOption { fd, level, name, len: 512 }).output {
        Output::Value(value) => value,
        other => panic!("{other:?}"),
    }
}

#[test]
fn of_a_listener_tcp_info_tells_how_many_wait_and_how_many_may() {
    let mut pair = Pair::new();
    let (listener, _, _) = pair.connected();
    let client = pair.socket(0, SOCK_STREAM);
    pair.call(0, Call::Connect { fd: client, address: address("10.0.0.2:80") });
    let info = get_bytes(&mut pair, 1, (listener, IPPROTO_TCP, TCP_INFO));
    assert_eq!((info[0], info[24], info[28]), (10, 1, 4));
}

#[test]
fn buffers_that_nobody_set_are_told_as_they_are() {
    let mut pair = Pair::new();
    let fresh = pair.socket(0, SOCK_STREAM);
    let (_, _, client) = pair.connected();
    let config = tcp::Config::default();
    let sizes = (config.send_buffer_bytes_initial, config.receive_buffer_bytes_initial * 2);
    for fd in [fresh, client] {
        let sending = get_int(&mut pair, 0, (fd, SOL_SOCKET, SO_SNDBUF));
        let receiving = get_int(&mut pair, 0, (fd, SOL_SOCKET, SO_RCVBUF));
        assert_eq!((sending as usize, receiving as usize), sizes);
    }
    // poll(2) tells of room when a third of what the queue really holds is free.
    pair.call(0, Call::Fcntl { fd: client, command: F_SETFL, argument: O_NONBLOCK.into() });
    let bytes = vec![0; config.send_buffer_bytes + 1];
    let fill = Call::Send { fd: client, bytes, flags: 0, to: None, control: Vec::new() };
    let mut task = pair.hosts[0].begin(fill);
    let queued = pair.hosts[0].attempt(&mut task).expect("it does not block").expect("room").value;
    assert!((sizes.0..=config.send_buffer_bytes).contains(&(queued as usize)), "{queued}");
    let entries = vec![PollEntry { fd: client, events: POLLOUT, revents: 0 }];
    let poll = |pair: &mut Pair| {
        let mut task = pair.hosts[0].begin(Call::Poll { entries: entries.clone(), timeout_ms: 0 });
        pair.hosts[0].attempt(&mut task).expect("no wait").expect("it succeeds").value
    };
    assert_eq!(poll(&mut pair), 0);
    pair.carry();
    let held = Call::Ioctl { fd: client, request: SIOCOUTQ, argument: 0 };
    let Output::Integer(left) = pair.call(0, held).output else { panic!("no number") };
    let size = get_int(&mut pair, 0, (client, SOL_SOCKET, SO_SNDBUF));
    assert_eq!(poll(&mut pair) == 1, size - left >= size / 3, "{left} of {size} queued");
}

#[test]
fn a_listeners_mark_is_handed_on_and_its_priority_is_not() {
    let mut pair = Pair::new();
    let (listener, _, _) = pair.connected();
    for name in [SO_PRIORITY, SO_MARK] {
        let value = vec![3, 0, 0, 0];
        pair.call(1, Call::SetOption { fd: listener, level: SOL_SOCKET, name, value });
    }
    let client = pair.socket(0, SOCK_STREAM);
    pair.call(0, Call::Connect { fd: client, address: address("10.0.0.2:80") });
    let fd = pair.call(1, Call::Accept { fd: listener }).value as Fd;
    let value_of = |name| Call::GetOption { fd, level: SOL_SOCKET, name, len: 4 };
    assert_eq!(pair.call(1, value_of(SO_PRIORITY)).output, Output::Value(vec![0; 4]));
    assert_eq!(pair.call(1, value_of(SO_MARK)).output, Output::Value(vec![3, 0, 0, 0]));
}

#[test]
fn a_datagram_socket_of_ipv6_has_marks_of_its_own_for_ipv4() {
    let mut pair = Pair::new();
    let call = Call::Socket { domain: AF_INET6.into(), kind: SOCK_DGRAM, protocol: 0 };
    let fd = pair.call(0, call).value as Fd;
    pair.call(0, Call::Connect { fd, address: address("[::ffff:10.0.0.2]:53") });
    for (level, name, value) in
        [(IPPROTO_IP, IP_TOS, 0x48), (IPPROTO_IP, IP_TTL, 9), (IPPROTO_IPV6, IPV6_TCLASS, 0x20)]
    {
        pair.call(0, Call::SetOption { fd, level, name, value: vec![value, 0, 0, 0] });
        let reply = pair.call(0, Call::GetOption { fd, level, name, len: 4 });
        assert_eq!(reply.output, Output::Value(vec![value, 0, 0, 0]));
    }
    let packet = pair.packet_of(0, send(fd, b"hello"));
    assert_eq!((packet[0] >> 4, packet[1], packet[8]), (4, 0x48, 9));
}

/// Whether it was set before the socket was bound, or after that.
#[test]
fn a_datagram_socket_holds_no_more_than_it_was_told_to() {
    let mut pair = Pair::new();
    let sending = pair.socket(0, SOCK_DGRAM);
    let held = |pair: &mut Pair, port: u16, sizes: [Option<i32>; 2]| {
        let fd = pair.socket(1, SOCK_DGRAM);
        let set = |pair: &mut Pair, size: Option<i32>| {
            size.map(|size| pair.call(1, set_int(fd, SOL_SOCKET, SO_RCVBUF, size)));
        };
        set(pair, sizes[0]);
        let local = address(&format!("10.0.0.2:{port}"));
        pair.call(1, Call::Bind { fd, address: local });
        set(pair, sizes[1]);
        pair.call(0, Call::Connect { fd: sending, address: local });
        (0..60).for_each(|_| drop(pair.call(0, send(sending, &[7; 1_000]))));
        let receive = || receive(fd, MSG_DONTWAIT);
        (0..60).take_while(|_| pair.try_call(1, receive()).is_some_and(|it| it.is_ok())).count()
    };
    assert_eq!(held(&mut pair, 90, [None, None]), 60);
    // Twice as much, as Linux has it, and each costs more than what it holds.
    for (port, sizes) in [(91, [Some(10_000), None]), (92, [None, Some(10_000)])] {
        let count = held(&mut pair, port, sizes);
        assert!((5..20).contains(&count), "{count}");
    }
}

/// As Linux (`ip_setsockopt`, `ip_getsockopt`).
#[test]
fn options_of_ipv6_are_none_of_sockets_of_ipv4() {
    let mut pair = Pair::new();
    let names =
        [IPV6_UNICAST_HOPS, IPV6_MTU_DISCOVER, IPV6_MTU, IPV6_V6ONLY, IPV6_TCLASS, IPV6_FREEBIND];
    for kind in [SOCK_STREAM, SOCK_DGRAM] {
        let fd = pair.socket(0, kind);
        for name in names {
            let level = IPPROTO_IPV6;
            let get = Call::GetOption { fd, level, name, len: 4 };
            assert_eq!(pair.refused(0, get), Errno::EOPNOTSUPP, "{name}");
            assert_eq!(pair.refused(0, set_int(fd, level, name, 1)), Errno::ENOPROTOOPT, "{name}");
        }
    }
}

// ip(7): as Linux, which tells a byte where there is no room for more.
#[test]
fn an_option_of_ipv4_is_told_in_a_byte_where_it_fits() {
    let mut pair = Pair::new();
    let fd = pair.socket(0, SOCK_STREAM);
    pair.call(0, set_int(fd, IPPROTO_IP, IP_TTL, 200));
    for (len, expected) in
        [(0, &[][..]), (1, &[200]), (2, &[200]), (3, &[200]), (4, &[200, 0, 0, 0])]
    {
        let call = Call::GetOption { fd, level: IPPROTO_IP, name: IP_TTL, len };
        assert_eq!(pair.call(0, call).output, Output::Value(expected.to_vec()), "room for {len}");
    }
}

// As Linux, which was asked: an option of IPv4 takes a byte or nothing, one of IPv6 has four.
#[test]
fn short_values_are_taken_where_linux_takes_them() {
    let mut pair = Pair::new();
    let domain = i32::from(AF_INET6);
    let fd = pair.call(0, Call::Socket { domain, kind: SOCK_STREAM, protocol: 0 }).value as Fd;
    let mut set = |level, name, len| {
        let value = vec![1; len];
        pair.try_call(0, Call::SetOption { fd, level, name, value }).expect("it does not block")
    };
    for name in [IP_TOS, IP_MTU_DISCOVER, IP_BIND_ADDRESS_NO_PORT] {
        assert!(set(IPPROTO_IP, name, 1).is_ok(), "{name}: a byte");
        assert!(set(IPPROTO_IP, name, 0).is_ok() || name == IP_MTU_DISCOVER, "{name}: nothing");
    }
    for name in [IP_TTL, IP_FREEBIND] {
        assert_eq!(set(IPPROTO_IP, name, 0).map(|_| ()), Err(Errno::EINVAL), "{name}");
    }
    for name in [IPV6_MTU_DISCOVER, IPV6_FREEBIND] {
        assert_eq!(set(IPPROTO_IPV6, name, 1).map(|_| ()), Err(Errno::EINVAL), "{name}");
    }
    assert_eq!(set(IPPROTO_TCP, TCP_CONGESTION, 0).map(|_| ()), Err(Errno::EINVAL));
}

/// ipv6(7), IPV6_V6ONLY: as Linux tells it of who is bound to an address of IPv6.
#[test]
fn who_is_bound_to_an_address_of_ipv6_is_for_it_alone() {
    let mut pair = Pair { hosts: [host("fd00::1/64"), host("fd00::2/64")] };
    let domain = i32::from(AF_INET6);
    for kind in [SOCK_STREAM, SOCK_DGRAM] {
        for (at, expected) in [("[::]:80", 0), ("[fd00::1]:81", 1)] {
            let fd = pair.call(0, Call::Socket { domain, kind, protocol: 0 }).value as Fd;
            pair.call(0, Call::Bind { fd, address: address(at) });
            assert_eq!(get_int(&mut pair, 0, (fd, IPPROTO_IPV6, IPV6_V6ONLY)), expected, "{at}");
        }
    }
}
