//! Opening, shutting and leaving a connection.

use super::*;

// As connect(2) answers, of which a send with MSG_FASTOPEN is one.
#[test]
fn a_send_that_opens_is_refused_as_an_open_is() {
    let mut pair = Pair::new();
    let open = |fd, address| Call::Send {
        fd,
        bytes: b"early".to_vec(),
        flags: MSG_FASTOPEN | MSG_DONTWAIT,
        to: Some(address),
        control: Vec::new(),
    };
    let fresh = pair.socket(0, SOCK_STREAM);
    assert_eq!(pair.refused(0, open(fresh, Address::Unspecified)), Errno::EOPNOTSUPP);
    let away = || address("10.0.0.9:80");
    assert_eq!(pair.refused(0, open(fresh, away())), Errno::EINPROGRESS);
    assert_eq!(pair.refused(0, open(fresh, away())), Errno::EALREADY);
    let (_, _, connected) = pair.connected();
    assert_eq!(pair.refused(0, open(connected, away())), Errno::EISCONN);
}

// RFC 7413, and Linux's tcp_sendmsg_fastopen(): what went with the SYN is what was written, unless the
// call may wait for the handshake and write the rest.
#[test]
fn a_send_that_opens_tells_what_went_with_the_syn() {
    let mut pair = Pair::new();
    let listener = pair.socket(1, SOCK_STREAM);
    let value = vec![5, 0, 0, 0];
    pair.call(1, Call::SetOption { fd: listener, level: IPPROTO_TCP, name: TCP_FASTOPEN, value });
    pair.call(1, Call::Bind { fd: listener, address: address("10.0.0.2:80") });
    pair.call(1, Call::Listen { fd: listener, backlog: 4 });
    let open = |fd, len, flags| Call::Send {
        fd,
        bytes: vec![7; len],
        flags: MSG_FASTOPEN | flags,
        to: Some(address("10.0.0.2:80")),
        control: Vec::new(),
    };
    let read = |fd| Call::Receive { fd, len: 10_000, flags: 0 };
    let asking = pair.socket(0, SOCK_STREAM);
    assert_eq!(pair.refused(0, open(asking, 4_000, MSG_DONTWAIT)), Errno::EINPROGRESS);
    let empty = pair.call(1, Call::Accept { fd: listener }).value as Fd;
    assert_eq!(pair.try_call(1, read(empty)), None, "nothing was taken");

    // An MSS of 1,460 less the longest options of a header.
    let hasty = pair.socket(0, SOCK_STREAM);
    assert_eq!(pair.call(0, open(hasty, 4_000, MSG_DONTWAIT)).value, 1_420);
    let served = pair.call(1, Call::Accept { fd: listener }).value as Fd;
    assert_eq!(pair.call(1, read(served)).value, 1_420);
    let options = |pair: &mut Pair, host: usize, fd| {
        let asked = Call::GetOption { fd, level: IPPROTO_TCP, name: TCP_INFO, len: 280 };
        match pair.call(host, asked).output {
            Output::Value(value) => value[5],
            other => panic!("{other:?}"),
        }
    };
    // TCPI_OPT_SYN_DATA.
    assert_eq!(options(&mut pair, 0, hasty) & 0x20, 0x20);
    assert_eq!(options(&mut pair, 1, served) & 0x20, 0x20);
    assert_eq!(options(&mut pair, 0, asking) & 0x20, 0);
    // Nobody has been told yet that the connection is open, so that this call is told.
    assert_eq!(pair.call(0, open(hasty, 2_000, MSG_DONTWAIT)).value, 2_000);
    assert_eq!(pair.refused(0, open(hasty, 2_000, MSG_DONTWAIT)), Errno::EISCONN);
    assert_eq!(pair.call(1, read(served)).value, 2_000);

    let patient = pair.socket(0, SOCK_STREAM);
    let mut task = pair.hosts[0].begin(open(patient, 4_000, 0));
    assert_eq!(pair.hosts[0].attempt(&mut task), None, "it waits for the handshake");
    pair.carry();
    assert_eq!(pair.hosts[0].attempt(&mut task), Some(Ok(Reply::value(4_000))));
    pair.carry();
    let served = pair.call(1, Call::Accept { fd: listener }).value as Fd;
    assert_eq!(pair.call(1, read(served)).value, 4_000);

    pair.call(1, Call::Close { fd: listener });
    let refused = pair.socket(0, SOCK_STREAM);
    assert_eq!(pair.refused(0, open(refused, 4_000, 0)), Errno::ECONNREFUSED);
    assert_eq!(pair.refused(0, send(refused, b"x")), Errno::EPIPE, "told once");
}

fn bits(pair: &mut Pair, at: usize, fd: Fd) -> i16 {
    let events = POLLIN | POLLOUT | POLLRDHUP;
    let entries = vec![PollEntry { fd, events, revents: 0 }];
    let Output::Polled(entries) = pair.call(at, Call::Poll { entries, timeout_ms: 0 }).output
    else {
        panic!("poll tells of entries")
    };
    entries[0].revents
}

fn disconnect(fd: Fd) -> Call {
    Call::Connect { fd, address: Address::Unspecified }
}

/// As Linux (`inet_shutdown`): the call fails, the directions are shut all the same, and stay so for a connection.
#[test]
fn a_shutdown_before_a_connection_is_refused_and_holds() {
    let mut pair = Pair::new();
    let (_, _, _) = pair.connected();
    let fd = pair.socket(0, SOCK_STREAM);
    assert_eq!(bits(&mut pair, 0, fd), POLLOUT | POLLHUP);
    assert_eq!(pair.refused(0, receive(fd, 0)), Errno::ENOTCONN);
    assert_eq!(pair.refused(0, Call::Shutdown { fd, how: SHUT_RDWR }), Errno::ENOTCONN);
    assert_eq!(bits(&mut pair, 0, fd), POLLIN | POLLRDHUP | POLLOUT | POLLHUP);
    assert_eq!(pair.call(0, receive(fd, 0)).value, 0);
    pair.call(0, Call::Connect { fd, address: address("10.0.0.2:80") });
    assert_eq!(pair.refused(0, send(fd, b"x")), Errno::EPIPE);
    assert_eq!(pair.call(0, receive(fd, 0)).value, 0);
    pair.call(0, disconnect(fd));
    assert_eq!(pair.refused(0, receive(fd, 0)), Errno::ECONNRESET);
    assert_eq!(bits(&mut pair, 0, fd), POLLOUT | POLLHUP);
    pair.call(0, Call::Connect { fd, address: address("10.0.0.2:80") });
    assert_eq!(pair.call(0, send(fd, b"x")).value, 1, "nothing is shut any more");
}

/// As Linux (`tcp_disconnect`): what was not told is told by the socket that left, and whoever looks at it hears.
#[test]
fn a_socket_that_leaves_a_connection_which_was_reset_tells_of_that() {
    let mut pair = Pair::new();
    let (_, server, client) = pair.connected();
    let epoll = pair.call(0, Call::EpollCreate { size: 1 }).value as Fd;
    let event = EpollEvent { events: EPOLLET, data: 7 };
    let add = Call::EpollControl { epoll, operation: EPOLL_CTL_ADD, fd: client, event };
    pair.call(0, add);
    let wait = || Call::EpollWait { epoll, events_max: 8, timeout_ms: 0 };
    set_linger_zero(&mut pair, server);
    pair.call(1, Call::Close { fd: server });
    assert_eq!(pair.call(0, wait()).value, 1, "the reset");
    pair.call(0, disconnect(client));
    assert_ne!(bits(&mut pair, 0, client) & POLLERR, 0);
    assert_eq!(pair.call(0, wait()).value, 1);
    assert_eq!(get_int(&mut pair, 0, (client, SOL_SOCKET, SO_ERROR)), Errno::ECONNRESET.0);
    pair.call(0, disconnect(client));
    assert_eq!(pair.call(0, wait()).value, 1, "also of one that had left");
}

fn set_linger_zero(pair: &mut Pair, fd: Fd) {
    let mut value = 1_i32.to_ne_bytes().to_vec();
    value.extend(0_i32.to_ne_bytes());
    pair.call(1, Call::SetOption { fd, level: SOL_SOCKET, name: SO_LINGER, value });
}

#[test]
fn a_port_that_was_picked_goes_with_what_it_was_picked_for() {
    let mut pair = Pair::new();
    let bind = |fd| Call::Bind { fd, address: address("10.0.0.1:90") };
    let fd = pair.socket(0, SOCK_STREAM);
    pair.call(0, Call::Listen { fd, backlog: 1 });
    assert_eq!(pair.refused(0, bind(fd)), Errno::EINVAL);
    pair.call(0, Call::Shutdown { fd, how: SHUT_RD });
    pair.call(0, bind(fd));
    pair.call(0, Call::Listen { fd, backlog: 1 });
    pair.call(0, Call::Shutdown { fd, how: SHUT_RD });
    assert_eq!(pair.refused(0, bind(fd)), Errno::EINVAL, "it is the program's own");
    let (_, server, client) = pair.connected();
    set_linger_zero(&mut pair, server);
    assert_eq!(pair.refused(0, bind(client)), Errno::EINVAL);
    pair.call(1, Call::Close { fd: server });
    pair.call(0, Call::Close { fd });
    pair.call(0, bind(client));
}

/// As Linux (`__inet_hash_connect`): no other port is left to try.
#[test]
fn a_second_connection_between_the_same_ends_is_no_address_that_can_be_had() {
    let mut pair = Pair::new();
    let listener = pair.socket(1, SOCK_STREAM);
    pair.call(1, Call::Bind { fd: listener, address: address("10.0.0.2:80") });
    pair.call(1, Call::Listen { fd: listener, backlog: 4 });
    let [first, second] = [0, 1].map(|_| {
        let fd = pair.socket(0, SOCK_STREAM);
        pair.call(0, set_int(fd, SOL_SOCKET, SO_REUSEADDR, 1));
        pair.call(0, Call::Bind { fd, address: address("10.0.0.1:90") });
        fd
    });
    let connect = |fd| Call::Connect { fd, address: address("10.0.0.2:80") };
    pair.call(0, connect(first));
    assert_eq!(pair.refused(0, connect(second)), Errno::EADDRNOTAVAIL);
}

/// As Linux (`tcp_rcv_state_process`).
#[test]
fn data_for_a_program_that_shut_both_directions_resets_the_connection() {
    let mut pair = Pair::new();
    for shut in [&[SHUT_RDWR][..], &[SHUT_RD, SHUT_WR], &[SHUT_WR, SHUT_RD]] {
        let (listener, server, client) = pair.connected();
        shut.iter().for_each(|how| drop(pair.call(0, Call::Shutdown { fd: client, how: *how })));
        assert_eq!(pair.call(1, send(server, b"x")).value, 1);
        assert_eq!(pair.refused(0, receive(client, 0)), Errno::ECONNRESET);
        assert_eq!(pair.refused(1, send(server, b"x")), Errno::EPIPE);
        assert_eq!(pair.refused(1, Call::Shutdown { fd: server, how: SHUT_WR }), Errno::ENOTCONN);
        for fd in [server, listener] {
            pair.call(1, Call::Close { fd });
        }
    }
}

/// As Linux, where the direction is the socket's and no connection's.
#[test]
fn a_direction_that_was_shut_before_the_connection_is_that_of_the_connection() {
    let mut pair = Pair::new();
    let (listener, _, _) = pair.connected();
    let fd = pair.socket(0, SOCK_STREAM);
    assert_eq!(pair.refused(0, Call::Shutdown { fd, how: SHUT_RD }), Errno::ENOTCONN);
    pair.call(0, Call::Connect { fd, address: address("10.0.0.2:80") });
    let server = pair.call(1, Call::Accept { fd: listener }).value as Fd;
    pair.call(0, Call::Shutdown { fd, how: SHUT_WR });
    assert_eq!(pair.call(1, send(server, b"x")).value, 1);
    assert_eq!(pair.refused(1, send(server, b"x")), Errno::EPIPE, "nobody reads it");
    assert_eq!(pair.refused(0, receive(fd, 0)), Errno::ECONNRESET);
}

/// As Linux, to which a socket whose open failed is closed, whether that was told or not.
#[test]
fn options_of_a_closed_socket_can_be_set_when_an_open_has_failed() {
    let mut pair = Pair::new();
    let domain = i32::from(AF_INET6);
    let fd = pair.call(0, Call::Socket { domain, kind: SOCK_STREAM | SOCK_NONBLOCK, protocol: 0 });
    let fd = fd.value as Fd;
    let options = [
        (IPPROTO_IPV6, IPV6_V6ONLY, 0),
        (IPPROTO_TCP, TCP_FASTOPEN, 5),
        (IPPROTO_TCP, TCP_FASTOPEN_CONNECT, 0),
        (IPPROTO_TCP, TCP_FASTOPEN_NO_COOKIE, 0),
        (IPPROTO_TCP, TCP_WINDOW_CLAMP, 0),
    ]
    .map(|(level, name, value)| set_int(fd, level, name, value));
    let mut task =
        pair.hosts[0].begin(Call::Connect { fd, address: address("[::ffff:10.0.0.2]:81") });
    assert_eq!(pair.hosts[0].attempt(&mut task), Some(Err(Errno::EINPROGRESS)));
    for option in &options {
        let mut task = pair.hosts[0].begin(option.clone());
        let outcome = pair.hosts[0].attempt(&mut task);
        assert_eq!(outcome, Some(Err(Errno::EINVAL)), "{option:?}");
    }
    // Nobody listens.
    pair.carry();
    for option in options {
        pair.call(0, option);
    }
    assert_eq!(pair.refused(0, Call::Listen { fd, backlog: 1 }), Errno::EINVAL);
    assert_eq!(get_int(&mut pair, 0, (fd, SOL_SOCKET, SO_ERROR)), Errno::ECONNREFUSED.0);
}

#[test]
fn what_is_corked_waits_as_long_on_another_connection() {
    let mut pair = Pair::new();
    let (_, _, client) = pair.connected();
    pair.call(0, set_int(client, IPPROTO_TCP, TCP_CORK, 1));
    assert_eq!(pair.call(0, send(client, b"a")).value, 1);
    let step = |pair: &mut Pair, ms| {
        let until = pair.hosts[0].now() + time::Duration::from_millis(ms);
        while pair.hosts[0].step(until) < until {}
        pair.hosts[0].has_packet()
    };
    assert!(!step(&mut pair, 150));
    pair.call(0, disconnect(client));
    pair.call(0, Call::Connect { fd: client, address: address("10.0.0.2:80") });
    assert_eq!(pair.call(0, send(client, b"b")).value, 1);
    assert!(!step(&mut pair, 150), "200 ms of the last connection");
    assert!(step(&mut pair, 60));
}

/// As Linux says of an open that no peer could answer.
#[test]
fn an_open_to_many_or_from_the_other_family_is_told_why() {
    let mut pair = Pair::new();
    let of_ipv6 = "fd00::1/64".parse().expect("an address and a prefix");
    pair.hosts[0].config_mut().addresses.push(of_ipv6);
    let connect = |fd, to| Call::Connect { fd, address: address(to) };
    for to in ["224.0.0.1:80", "255.255.255.255:80", "10.0.0.255:80"] {
        let fd = pair.socket(0, SOCK_STREAM);
        assert_eq!(pair.refused(0, connect(fd, to)), Errno::ENETUNREACH, "{to}");
        // It may go elsewhere, and is told of nothing any more.
        assert_eq!(get_int(&mut pair, 0, (fd, SOL_SOCKET, SO_ERROR)), 0);
        assert_eq!(pair.refused(0, connect(fd, "10.0.0.2:80")), Errno::ECONNREFUSED);
    }
    let domain = i32::from(AF_INET6);
    for kind in [SOCK_STREAM, SOCK_DGRAM] {
        for (from, to, errno) in [
            ("[::ffff:10.0.0.1]:0", "[fd00::2]:80", Errno::EAFNOSUPPORT),
            ("[fd00::1]:0", "[::ffff:10.0.0.2]:80", Errno::ENETUNREACH),
        ] {
            let fd = pair.call(0, Call::Socket { domain, kind, protocol: 0 }).value as Fd;
            pair.call(0, Call::Bind { fd, address: address(from) });
            assert_eq!(pair.refused(0, connect(fd, to)), errno, "{kind} {from}");
        }
    }
}

#[test]
fn a_linger_of_less_than_nothing_is_no_reset() {
    let mut pair = Pair::new();
    let (_, server, client) = pair.connected();
    let value = [1_i32, -1].iter().flat_map(|it| it.to_ne_bytes()).collect();
    pair.call(0, Call::SetOption { fd: client, level: SOL_SOCKET, name: SO_LINGER, value });
    pair.call(0, send(client, b"last words"));
    let mut task = pair.hosts[0].begin(Call::Close { fd: client });
    assert_eq!(pair.hosts[0].attempt(&mut task), None, "it waits for the ACK of the FIN");
    pair.carry();
    assert_eq!(pair.call(1, receive(server, 0)).value, 10);
    assert_eq!(pair.call(1, receive(server, 0)).value, 0);
}

// Linux's tcp_poll(): a handshake under way is no room to write.
#[test]
fn an_open_that_crosses_another_is_not_told_as_done() {
    let mut pair = Pair::new();
    let host = &mut pair.hosts[0];
    let mut call = |call: Call| {
        let mut task = host.begin(call);
        let outcome = host.attempt(&mut task).expect("it does not block");
        (outcome, host.take_packet())
    };
    let (domain, kind) = (i32::from(AF_INET), SOCK_STREAM | SOCK_NONBLOCK);
    let socket = call(Call::Socket { domain, kind, protocol: 0 }).0;
    let fd = socket.expect("it succeeds").value as Fd;
    call(Call::Bind { fd, address: address("10.0.0.1:7") }).0.expect("it succeeds");
    let (_, syn) = call(Call::Connect { fd, address: address("10.0.0.2:7") });
    host.inject(&crossing(&syn.expect("a SYN").1));
    let mut call = |call: Call| {
        let mut task = host.begin(call);
        host.attempt(&mut task).expect("it does not block").expect("it succeeds").output
    };
    let state = call(Call::GetOption { fd, level: IPPROTO_TCP, name: TCP_INFO, len: 1 });
    assert_eq!(state, Output::Value(vec![3]), "SYN-RECEIVED");
    let entries = vec![PollEntry { fd, events: POLLIN | POLLOUT, revents: 0 }];
    let Output::Polled(entries) = call(Call::Poll { entries, timeout_ms: 0 }) else {
        panic!("poll tells of entries")
    };
    assert_eq!(entries[0].revents, 0);
}

/// The peer's own SYN, which crosses this one.
fn crossing(syn: &[u8]) -> Vec<u8> {
    let mut crossing = syn[..40].to_vec();
    crossing[3] = 40;
    crossing[12..20].copy_from_slice(&[10, 0, 0, 2, 10, 0, 0, 1]);
    crossing[32] = 0x50;
    // The segment's sum has the addresses before it, protocol and length.
    for (start, end, at, more) in [(0, 20, 10, 0_u32), (12, 40, 36, 6 + 20)] {
        crossing[at..at + 2].fill(0);
        let words = crossing[start..end].chunks(2);
        let sum = words.map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum::<u32>();
        let sum = sum + more;
        let sum = !(((sum & 0xffff) + (sum >> 16)) as u16);
        crossing[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
    crossing
}

// Linux's inet_shutdown() and __inet_stream_connect().
#[test]
fn a_failed_open_that_was_shut_down_must_be_left_before_another() {
    let mut pair = Pair::new();
    let listener = pair.socket(1, SOCK_STREAM);
    pair.call(1, Call::Bind { fd: listener, address: address("10.0.0.2:80") });
    pair.call(1, Call::Listen { fd: listener, backlog: 1 });
    for how in [SHUT_RD, SHUT_WR] {
        let fd = pair.socket(0, SOCK_STREAM | SOCK_NONBLOCK);
        let connect = |to| Call::Connect { fd, address: address(to) };
        assert_eq!(pair.refused(0, connect("10.0.0.2:81")), Errno::EINPROGRESS);
        assert_eq!(pair.refused(0, Call::Shutdown { fd, how }), Errno::ENOTCONN);
        assert_eq!(pair.refused(0, connect("10.0.0.2:80")), Errno::EINVAL);
        let error = get_int(&mut pair, 0, (fd, SOL_SOCKET, SO_ERROR));
        assert_eq!(error, Errno::ECONNREFUSED.0);
        assert_eq!(pair.refused(0, connect("10.0.0.2:80")), Errno::EINVAL);
        pair.call(0, disconnect(fd));
        assert_eq!(pair.refused(0, connect("10.0.0.2:80")), Errno::EINPROGRESS);
        pair.call(0, connect("10.0.0.2:80"));
        pair.call(0, send(fd, b"x"));
    }
}
