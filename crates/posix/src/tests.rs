//! Programs on two hosts that face each other: calls, and what they return. What segments come of
//! calls is the business of the scripts in `conformance/`.

use super::abi::*;
use super::*;

/// Two hosts, 10.0.0.1 and 10.0.0.2, on a network without delay.
struct Pair {
    hosts: [Host; 2],
}

fn host(address: &str) -> Host {
    Host::new(HostConfig {
        tcp: tcp::Config::default(),
        keepalive: tcp::Keepalive::default(),
        listen: ListenOptions::default(),
        fast_open: TFO_CLIENT_ENABLE | TFO_SERVER_ENABLE,
        addresses: vec![address.parse().expect("an address and a prefix")],
        gateways: Vec::new(),
        mtu_bytes: 1_500,
        secret: [7; 32],
        first_fd: 3,
        adopts_addresses: false,
    })
}

fn address(text: &str) -> Address {
    Address::Inet(text.parse().expect("an address and a port"))
}

impl Pair {
    fn new() -> Self {
        Self { hosts: [host("10.0.0.1/24"), host("10.0.0.2/24")] }
    }

    /// Carries packets until there are none.
    fn carry(&mut self) {
        let [left, right] = &mut self.hosts;
        while left.has_packet() || right.has_packet() {
            while let Some((_, packet)) = left.take_packet() {
                right.inject(&packet);
            }
            while let Some((_, packet)) = right.take_packet() {
                left.inject(&packet);
            }
        }
    }

    /// A call that returns at once or not at all.
    fn try_call(&mut self, at: usize, call: Call) -> Option<Result<Reply, Errno>> {
        let mut task = self.hosts[at].begin(call);
        let result = self.hosts[at].attempt(&mut task);
        self.carry();
        result.or_else(|| self.hosts[at].attempt(&mut task))
    }

    #[track_caller]
    fn call(&mut self, at: usize, call: Call) -> Reply {
        self.try_call(at, call).expect("it does not block").expect("it succeeds")
    }

    #[track_caller]
    fn refused(&mut self, at: usize, call: Call) -> Errno {
        self.try_call(at, call).expect("it does not block").expect_err("it fails")
    }

    /// The packet that a call sends, which is not carried on.
    #[track_caller]
    fn packet_of(&mut self, at: usize, call: Call) -> Vec<u8> {
        let mut task = self.hosts[at].begin(call);
        let outcome = self.hosts[at].attempt(&mut task).expect("it does not block");
        outcome.expect("it succeeds");
        self.hosts[at].take_packet().expect("a packet").1
    }

    fn socket(&mut self, at: usize, kind: i32) -> Fd {
        let domain = i32::from(AF_INET);
        self.call(at, Call::Socket { domain, kind, protocol: 0 }).value as Fd
    }

    /// A connection: the listener and the accepted end on host 1, the other end on host 0.
    fn connected(&mut self) -> (Fd, Fd, Fd) {
        let listener = self.socket(1, SOCK_STREAM);
        self.call(1, Call::Bind { fd: listener, address: address("10.0.0.2:80") });
        self.call(1, Call::Listen { fd: listener, backlog: 4 });
        let client = self.socket(0, SOCK_STREAM);
        self.call(0, Call::Connect { fd: client, address: address("10.0.0.2:80") });
        let server = self.call(1, Call::Accept { fd: listener }).value as Fd;
        (listener, server, client)
    }
}

fn send(fd: Fd, bytes: &[u8]) -> Call {
    Call::Send { fd, bytes: bytes.to_vec(), flags: 0, to: None }
}

fn receive(fd: Fd, flags: i32) -> Call {
    Call::Receive { fd, len: 100, flags }
}

#[test]
fn what_one_end_writes_the_other_reads() {
    let mut pair = Pair::new();
    let (_, server, client) = pair.connected();
    assert_eq!(pair.call(0, send(client, b"hello")).value, 5);
    let reply = pair.call(1, receive(server, 0));
    assert_eq!(reply.value, 5);
    assert!(matches!(reply.output, Output::Received { bytes, .. } if bytes == b"hello"));
    pair.call(0, Call::Close { fd: client });
    assert_eq!(pair.call(1, receive(server, 0)).value, 0, "the end of the stream");
}

#[test]
fn a_closed_descriptor_is_bad_for_every_call_and_is_given_out_again() {
    let mut pair = Pair::new();
    let (_, server, client) = pair.connected();
    let epoll = pair.call(0, Call::EpollCreate { size: 1 }).value as Fd;
    let pipe = pair.call(0, Call::Pipe);
    let Output::Pipe([from, to]) = pipe.output else { panic!("{pipe:?}") };
    pair.call(0, Call::Close { fd: client });
    let option = (SOL_SOCKET, SO_ERROR);
    let control = |operation| Call::EpollControl {
        epoll,
        operation,
        fd: client,
        event: EpollEvent { events: POLLIN as u32, data: 0 },
    };
    let splice = |from, to| Call::Splice { from, to, offsets: false, len: 1, flags: 0 };
    let calls = [
        Call::Close { fd: client },
        send(client, b"x"),
        receive(client, 0),
        Call::ReadNothing { fd: client },
        Call::Bind { fd: client, address: address("10.0.0.1:1") },
        Call::Accept { fd: client },
        control(EPOLL_CTL_ADD),
        control(EPOLL_CTL_MOD),
        control(EPOLL_CTL_DEL),
        Call::EpollWait { epoll: client, events_max: 1, timeout_ms: 0 },
        splice(client, to),
        splice(from, client),
        Call::Shutdown { fd: client, how: SHUT_WR },
        Call::Fcntl { fd: client, command: F_GETFL, argument: 0 },
        Call::Ioctl { fd: client, request: FIONREAD, argument: 0 },
        Call::Listen { fd: client, backlog: 1 },
        Call::Connect { fd: client, address: address("10.0.0.2:80") },
        Call::GetOption { fd: client, level: option.0, name: option.1, len: 4 },
        Call::SetOption {
            fd: client,
            level: option.0,
            name: SO_KEEPALIVE,
            value: vec![1, 0, 0, 0],
        },
    ];
    for call in calls {
        assert_eq!(pair.refused(0, call.clone()), Errno::EBADF, "{call:?}");
    }
    // poll(2) says so of each descriptor, and passes over negative ones.
    let entry = |fd| PollEntry { fd, events: POLLIN, revents: 0 };
    let entries = vec![entry(client), entry(-1)];
    let polled = pair.call(0, Call::Poll { entries, timeout_ms: -1 });
    assert_eq!(polled.value, 1);
    let Output::Polled(entries) = polled.output else { panic!("{polled:?}") };
    assert_eq!((entries[0].revents, entries[1].revents), (POLLNVAL, 0));
    // Whatever is asked for, and beside what is ready.
    let entries =
        vec![PollEntry { events: 0, ..entry(client) }, PollEntry { events: POLLOUT, ..entry(to) }];
    let polled = pair.call(0, Call::Poll { entries, timeout_ms: -1 });
    let Output::Polled(entries) = &polled.output else { panic!("{polled:?}") };
    assert_eq!((polled.value, entries[0].revents, entries[1].revents), (2, POLLNVAL, POLLOUT));
    assert_eq!(pair.socket(0, SOCK_DGRAM), client, "the lowest that is free");
    // A descriptor of another host is another descriptor.
    assert_eq!(pair.call(1, receive(server, 0)).value, 0);
}

// What Linux 6.18 says to each of these.
#[test]
fn that_a_descriptor_is_bad_is_told_before_what_else_is_wrong() {
    let mut pair = Pair::new();
    let socket = pair.socket(0, SOCK_STREAM);
    let pipe = pair.call(0, Call::Pipe);
    let Output::Pipe([from, to]) = pipe.output else { panic!("{pipe:?}") };
    let epoll = pair.call(0, Call::EpollCreate { size: 1 }).value as Fd;
    let control = |epoll, operation, fd| {
        let event = EpollEvent { events: POLLIN as u32, data: 0 };
        Call::EpollControl { epoll, operation, fd, event }
    };
    let splice = |from, to, offsets| Call::Splice { from, to, offsets, len: 1, flags: 0 };
    for bad in [77, -1] {
        let calls = [
            send(bad, b""),
            receive(bad, MSG_OOB),
            Call::Receive { fd: bad, len: 0, flags: 0 },
            Call::Bind { fd: bad, address: address("192.0.2.1:1") },
            Call::Listen { fd: bad, backlog: -1 },
            Call::Connect { fd: bad, address: Address::Unspecified },
            Call::Shutdown { fd: bad, how: 9 },
            Call::Fcntl { fd: bad, command: 9_999, argument: 0 },
            Call::Ioctl { fd: bad, request: 9_999, argument: 0 },
            Call::GetOption { fd: bad, level: 9, name: 9, len: 4 },
            Call::SetOption { fd: bad, level: 9, name: 9, value: vec![0; 4] },
            control(epoll, 99, bad),
            control(bad, EPOLL_CTL_ADD, bad),
            control(bad, EPOLL_CTL_ADD, socket),
            control(bad, EPOLL_CTL_MOD, socket),
            control(bad, 99, socket),
            control(socket, EPOLL_CTL_ADD, bad),
            splice(bad, to, true),
            splice(from, bad, true),
            splice(epoll, bad, false),
        ];
        for call in calls {
            assert_eq!(pair.refused(0, call.clone()), Errno::EBADF, "{call:?}");
        }
    }
    assert_eq!(pair.refused(0, Call::Shutdown { fd: socket, how: 9 }), Errno::EINVAL);
    assert_eq!(pair.refused(0, control(socket, EPOLL_CTL_ADD, socket)), Errno::EINVAL);
}

// What Linux 6.18 says to each of these.
#[test]
fn a_descriptor_of_another_kind_or_direction_is_told_apart_from_a_bad_one() {
    let mut pair = Pair::new();
    let socket = pair.socket(0, SOCK_STREAM);
    let pipe = pair.call(0, Call::Pipe);
    let Output::Pipe([from, to]) = pipe.output else { panic!("{pipe:?}") };
    let epoll = pair.call(0, Call::EpollCreate { size: 1 }).value as Fd;
    for fd in [from, to, epoll] {
        let calls = [
            Call::Bind { fd, address: address("10.0.0.1:1") },
            Call::Listen { fd, backlog: 1 },
            Call::Accept { fd },
            Call::Connect { fd, address: address("10.0.0.2:80") },
            Call::Shutdown { fd, how: 9 },
            Call::GetOption { fd, level: SOL_SOCKET, name: SO_ERROR, len: 4 },
            Call::SetOption { fd, level: SOL_SOCKET, name: SO_KEEPALIVE, value: vec![0; 4] },
        ];
        for call in calls {
            assert_eq!(pair.refused(0, call.clone()), Errno::ENOTSOCK, "{call:?}");
        }
    }
    let splice = |from, to, offsets, flags| Call::Splice { from, to, offsets, len: 1, flags };
    let calls = [
        (receive(to, 0), Errno::EBADF),
        (Call::ReadNothing { fd: to }, Errno::EBADF),
        (send(from, b"x"), Errno::EBADF),
        (send(from, b""), Errno::EBADF),
        (receive(epoll, 0), Errno::EINVAL),
        (send(epoll, b"x"), Errno::EINVAL),
        (splice(to, socket, false, 0), Errno::EBADF),
        (splice(socket, from, false, 0), Errno::EBADF),
        (splice(to, socket, true, 0), Errno::ESPIPE),
        (splice(from, socket, true, 0), Errno::ESPIPE),
        (splice(epoll, to, false, 0), Errno::EINVAL),
        (splice(socket, socket, false, 0), Errno::EINVAL),
        (splice(77, to, false, 16), Errno::EINVAL),
    ];
    for (call, errno) in calls {
        assert_eq!(pair.refused(0, call.clone()), errno, "{call:?}");
    }
    let nothing = Call::Splice { from: 77, to, offsets: true, len: 0, flags: 16 };
    assert_eq!(pair.call(0, nothing).value, 0);
}

#[test]
fn a_call_that_would_block_waits_or_says_so() {
    let mut pair = Pair::new();
    let (listener, server, _) = pair.connected();
    assert_eq!(pair.try_call(1, receive(server, 0)), None, "it waits");
    assert_eq!(pair.refused(1, receive(server, MSG_DONTWAIT)), Errno::EAGAIN);
    let argument = i64::from(O_NONBLOCK);
    for fd in [server, listener] {
        pair.call(1, Call::Fcntl { fd, command: F_SETFL, argument });
        let flags = pair.call(1, Call::Fcntl { fd, command: F_GETFL, argument: 0 }).value;
        assert_eq!(flags, i64::from(O_RDWR | O_NONBLOCK));
    }
    assert_eq!(pair.refused(1, receive(server, 0)), Errno::EAGAIN);
    assert_eq!(pair.refused(1, Call::Accept { fd: listener }), Errno::EAGAIN);
    let client = pair.socket(0, SOCK_STREAM | SOCK_NONBLOCK);
    let connect = Call::Connect { fd: client, address: address("10.0.0.2:80") };
    assert_eq!(pair.refused(0, connect), Errno::EINPROGRESS);
}

#[test]
fn epoll_reports_levels_always_and_edges_once() {
    let mut pair = Pair::new();
    let (_, server, client) = pair.connected();
    // Time stands still, and so would an ACK that is held back.
    let (level, name, value) = (IPPROTO_TCP, TCP_NODELAY, vec![1, 0, 0, 0]);
    pair.call(0, Call::SetOption { fd: client, level, name, value });
    let readable = POLLIN as u32;
    for (mask, again) in [(readable, 1), (readable | EPOLLET, 0), (readable | EPOLLONESHOT, 0)] {
        let epoll = pair.call(1, Call::EpollCreate { size: 1 }).value as Fd;
        let event = EpollEvent { events: mask, data: 42 };
        let operation = EPOLL_CTL_ADD;
        let add = Call::EpollControl { epoll, operation, fd: server, event };
        pair.call(1, add.clone());
        assert_eq!(pair.refused(1, add), Errno::EEXIST);
        let wait = Call::EpollWait { epoll, events_max: 8, timeout_ms: 0 };
        assert_eq!(pair.call(1, wait.clone()).value, 0, "nothing has arrived");
        pair.call(0, send(client, b"word"));
        let reported = pair.call(1, wait.clone()).output;
        let told = EpollEvent { events: readable, data: 42 };
        assert_eq!(reported, Output::Epoll(vec![told]));
        assert_eq!(pair.call(1, wait.clone()).value, again, "with {mask:#x}");
        pair.call(1, receive(server, 0));
        assert_eq!(pair.call(1, wait.clone()).value, 0, "it was read");
        pair.call(0, send(client, b"word"));
        let news = i64::from(mask & EPOLLONESHOT == 0);
        assert_eq!(pair.call(1, wait).value, news, "with {mask:#x}");
        pair.call(1, receive(server, 0));
        pair.call(1, Call::Close { fd: epoll });
    }
}

#[test]
fn an_epoll_forgets_a_closed_file_and_waits_no_longer_than_told() {
    let mut pair = Pair::new();
    let (_, server, client) = pair.connected();
    let epoll = pair.call(1, Call::EpollCreate { size: 1 }).value as Fd;
    let event = EpollEvent { events: POLLIN as u32, data: 1 };
    let control = |operation| Call::EpollControl { epoll, operation, fd: server, event };
    assert_eq!(pair.refused(1, control(EPOLL_CTL_DEL)), Errno::ENOENT);
    pair.call(1, control(EPOLL_CTL_ADD));
    let host = &mut pair.hosts[1];
    let mut task = host.begin(Call::EpollWait { epoll, events_max: 8, timeout_ms: 30 });
    assert_eq!(host.attempt(&mut task), None);
    let deadline = task.deadline().expect("it gives up");
    while host.now() < deadline {
        host.step(deadline);
    }
    assert_eq!(
        host.attempt(&mut task),
        Some(Ok(Reply { value: 0, output: Output::Epoll(vec![]) }))
    );
    pair.call(0, send(client, b"word"));
    pair.call(1, Call::Close { fd: server });
    let wait = Call::EpollWait { epoll, events_max: 8, timeout_ms: 0 };
    assert_eq!(pair.call(1, wait).value, 0);
    assert_eq!(pair.refused(1, control(EPOLL_CTL_DEL)), Errno::EBADF);
}

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
        (SOL_SOCKET, SO_INCOMING_CPU, 1),
        (IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1),
        (IPPROTO_TCP, TCP_THIN_DUPACK, 1),
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

fn set_int(fd: Fd, level: i32, name: i32, value: i32) -> Call {
    Call::SetOption { fd, level, name, value: value.to_ne_bytes().to_vec() }
}

fn get_int(pair: &mut Pair, at: usize, (fd, level, name): (Fd, i32, i32)) -> i32 {
    let Output::Value(value) = pair.call(at, Call::GetOption { fd, level, name, len: 4 }).output
    else {
        panic!("a number")
    };
    i32::from_ne_bytes(value.try_into().expect("four bytes"))
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

// tcp(7), TCP_INQ: what is left to be read, and 1 at the end of the stream.
#[test]
fn a_read_tells_what_is_left_where_it_was_asked_to() {
    let mut pair = Pair::new();
    let (_, server, client) = pair.connected();
    let told = |reply: Reply| match reply.output {
        Output::Received { unread, .. } => unread,
        other => panic!("{other:?}"),
    };
    let read = |len| Call::Receive { fd: server, len, flags: 0 };
    let set = |value: i32| Call::SetOption {
        fd: server,
        level: IPPROTO_TCP,
        name: TCP_INQ,
        value: value.to_ne_bytes().to_vec(),
    };
    pair.call(0, send(client, b"some words"));
    assert_eq!(told(pair.call(1, read(1))), None, "nobody asked");
    assert_eq!(pair.refused(1, set(2)), Errno::EINVAL);
    pair.call(1, set(1));
    assert_eq!(told(pair.call(1, read(4))), Some(5));
    assert_eq!(told(pair.call(1, read(5))), Some(0));
    pair.call(0, send(client, b"end"));
    pair.call(0, Call::Close { fd: client });
    assert_eq!(told(pair.call(1, read(2))), Some(1));
    assert_eq!(told(pair.call(1, read(1))), Some(1), "the end is left");
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

// As connect(2) answers, of which a send with MSG_FASTOPEN is one.
#[test]
fn a_send_that_opens_is_refused_as_an_open_is() {
    let mut pair = Pair::new();
    let open = |fd, address| Call::Send {
        fd,
        bytes: b"early".to_vec(),
        flags: MSG_FASTOPEN | MSG_DONTWAIT,
        to: Some(address),
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

#[test]
fn what_code_blocks_ask_for_has_the_lengths_of_the_system() {
    let mut pair = Pair::new();
    let (_, _, fd) = pair.connected();
    for (level, name, len) in
        [(IPPROTO_TCP, TCP_INFO, 280), (IPPROTO_TCP, TCP_CC_INFO, 0), (SOL_SOCKET, SO_MEMINFO, 36)]
    {
        let asked = Call::GetOption { fd, level, name, len: 512 };
        let output = pair.call(0, asked).output;
        assert!(matches!(&output, Output::Value(value) if value.len() == len), "{output:?}");
    }
}

// Whoever steps until something has happened must get there, whatever limit a call under way has left behind.
#[test]
fn a_step_to_a_time_that_is_past_lets_time_pass() {
    let mut host = host("10.0.0.1/24");
    let before = host.now();
    let now = host.step(before);
    assert!(now > before && now == host.now());
    assert!(host.step(before) > now);
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
    let fill = Call::Send { fd: client, bytes, flags: 0, to: None };
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
fn sockets_of_one_family_each_share_a_port() {
    let mut pair = Pair::new();
    let [v4, v6] = [AF_INET, AF_INET6].map(|domain| {
        let call = Call::Socket { domain: domain.into(), kind: SOCK_STREAM, protocol: 0 };
        pair.call(0, call).value as Fd
    });
    pair.call(0, Call::Bind { fd: v4, address: address("0.0.0.0:80") });
    let bind = Call::Bind { fd: v6, address: address("[::]:80") };
    assert_eq!(pair.refused(0, bind.clone()), Errno::EADDRINUSE, "it has IPv4, too");
    pair.call(0, set_int(v6, IPPROTO_IPV6, IPV6_V6ONLY, 1));
    pair.call(0, bind);
    for fd in [v4, v6] {
        pair.call(0, Call::Listen { fd, backlog: 1 });
    }
    assert_eq!(pair.refused(0, set_int(v6, IPPROTO_IPV6, IPV6_V6ONLY, 0)), Errno::EINVAL);
}

#[test]
fn a_datagram_socket_that_has_left_its_peer_hears_everybody() {
    let mut pair = Pair::new();
    let [ours, first, second] = [0, 1, 1].map(|at| pair.socket(at, SOCK_DGRAM));
    pair.call(0, Call::Bind { fd: ours, address: address("10.0.0.1:7") });
    pair.call(1, Call::Bind { fd: first, address: address("10.0.0.2:7") });
    pair.call(1, Call::Bind { fd: second, address: address("10.0.0.2:8") });
    let to = Some(address("10.0.0.1:7"));
    let hello = Call::Send { fd: second, bytes: b"hello".to_vec(), flags: 0, to };
    pair.call(0, Call::Connect { fd: ours, address: address("10.0.0.2:7") });
    pair.call(1, hello.clone());
    assert_eq!(pair.refused(0, receive(ours, MSG_DONTWAIT)), Errno::EAGAIN);
    pair.call(0, Call::Connect { fd: ours, address: Address::Unspecified });
    pair.call(1, hello);
    assert_eq!(pair.call(0, receive(ours, MSG_DONTWAIT)).value, 5);
    assert_eq!(pair.refused(0, send(ours, b"x")), Errno::EDESTADDRREQ);
}

#[test]
fn an_epoll_hears_of_another_and_never_of_itself() {
    let mut pair = Pair::new();
    let Output::Pipe([read, write]) = pair.call(0, Call::Pipe).output else { panic!("no pipe") };
    let [inner, outer] = [1, 1].map(|size| pair.call(0, Call::EpollCreate { size }).value as Fd);
    let event = EpollEvent { events: POLLIN as u32 | EPOLLET, data: 0 };
    let add = |epoll, fd| Call::EpollControl { epoll, operation: EPOLL_CTL_ADD, fd, event };
    pair.call(0, add(inner, read));
    pair.call(0, add(outer, inner));
    assert_eq!(pair.refused(0, add(inner, outer)), Errno(40), "ELOOP");
    assert_eq!(pair.refused(0, add(inner, inner)), Errno::EINVAL);
    let wait = |epoll| Call::EpollWait { epoll, events_max: 8, timeout_ms: 0 };
    for _ in 0..2 {
        assert_eq!(pair.call(0, wait(outer)).value, 0, "nothing was written");
        pair.call(0, send(write, b"word"));
        assert_eq!(pair.call(0, wait(outer)).value, 1);
        assert_eq!(pair.call(0, wait(outer)).value, 0, "one edge");
        assert_eq!(pair.call(0, wait(inner)).value, 1);
    }
}

#[test]
fn epolls_nest_no_deeper_than_linux_lets_them() {
    let mut pair = Pair::new();
    let chain = [1; 6].map(|size| pair.call(0, Call::EpollCreate { size }).value as Fd);
    let Output::Pipe([read, write]) = pair.call(0, Call::Pipe).output else { panic!("no pipe") };
    let event = EpollEvent { events: POLLIN as u32, data: 0 };
    let add = |epoll, fd| Call::EpollControl { epoll, operation: EPOLL_CTL_ADD, fd, event };
    for i in [3, 0, 2, 1] {
        pair.call(0, add(chain[i], chain[i + 1]));
    }
    assert_eq!(pair.refused(0, add(chain[4], chain[5])), Errno(40), "ELOOP");
    assert_eq!(pair.refused(0, add(chain[5], chain[0])), Errno(40), "ELOOP");
    pair.call(0, add(chain[4], read));
    pair.call(0, send(write, b"word"));
    let wait = Call::EpollWait { epoll: chain[0], events_max: 8, timeout_ms: 0 };
    assert_eq!(pair.call(0, wait).value, 1);
}

#[test]
fn a_splice_that_waits_has_taken_what_it_sent() {
    let mut pair = Pair::new();
    let (_, server, client) = pair.connected();
    // Time stands still, and so would an ACK that is held back.
    pair.call(0, set_int(client, IPPROTO_TCP, TCP_NODELAY, 1));
    pair.call(0, set_int(client, SOL_SOCKET, SO_SNDBUF, 1));
    let Output::Pipe([from, write]) = pair.call(0, Call::Pipe).output else { panic!("no pipe") };
    let bytes: Vec<u8> = (0..60_000_u32).map(|i| (i % 251) as u8).collect();
    pair.call(0, send(write, &bytes));
    let splice = Call::Splice { from, to: client, offsets: false, len: 60_000, flags: 0 };
    let mut task = pair.hosts[0].begin(splice);
    assert_eq!(pair.hosts[0].attempt(&mut task), None, "it waits for room");
    let read = |fd| Call::Receive { fd, len: 60_000, flags: 0 };
    let Output::Received { bytes: left, .. } = pair.call(0, read(from)).output else {
        panic!("no bytes")
    };
    let Some(Ok(reply)) = pair.hosts[0].attempt(&mut task) else { panic!("nothing is left") };
    let Output::Received { bytes: sent, .. } = pair.call(1, read(server)).output else {
        panic!("no bytes")
    };
    assert_eq!(reply.value, sent.len() as i64);
    assert!(!sent.is_empty());
    assert_eq!([sent, left].concat(), bytes, "each byte once");
}

// Linux's tcp_sendmsg: as long as so much is unsent a write takes no more, and poll(2) sees room at half of it.
#[test]
fn a_bound_for_what_is_unsent_bounds_a_write() {
    let mut pair = Pair::new();
    let (_, _, client) = pair.connected();
    let bound = |bytes: i32| Call::SetOption {
        fd: client,
        level: IPPROTO_TCP,
        name: TCP_NOTSENT_LOWAT,
        value: bytes.to_ne_bytes().to_vec(),
    };
    pair.call(0, bound(4_000));
    let write = Call::Send { fd: client, bytes: vec![0; 200_000], flags: MSG_DONTWAIT, to: None };
    let mut task = pair.hosts[0].begin(write.clone());
    let taken = pair.hosts[0].attempt(&mut task).expect("it does not block").expect("it succeeds");
    // What left at once, ten segments, and one piece that is not shorter than the bound.
    let unsent = |pair: &mut Pair| {
        let call = Call::Ioctl { fd: client, request: SIOCOUTQNSD, argument: 0 };
        match pair.call(0, call).output {
            Output::Integer(unsent) => i64::from(unsent),
            other => panic!("{other:?}"),
        }
    };
    assert!((14_480 + 4_000..100_000).contains(&taken.value), "{taken:?}");
    let mut task = pair.hosts[0].begin(write.clone());
    assert_eq!(pair.hosts[0].attempt(&mut task), Some(Err(Errno::EAGAIN)));
    pair.carry();
    assert_eq!(unsent(&mut pair), 0);
    assert!(pair.call(0, write.clone()).value > 0);
    pair.call(0, bound(0));
    let mut task = pair.hosts[0].begin(write);
    let taken = pair.hosts[0].attempt(&mut task).expect("it does not block").expect("it succeeds");
    assert_eq!(taken.value, 200_000, "without a bound the buffer takes it");
}

#[test]
fn writes_without_a_copy_are_told_of_in_order_and_as_a_range() {
    let mut pair = Pair::new();
    let (_, _, client) = pair.connected();
    let zero_copy = |flags: i32| Call::Send { fd: client, bytes: vec![7; 10], flags, to: None };
    let told = |pair: &mut Pair| pair.try_call(0, receive(client, MSG_ERRQUEUE));
    // Nobody asked for notices.
    pair.call(0, zero_copy(MSG_ZEROCOPY));
    assert_eq!(told(&mut pair), Some(Err(Errno::EAGAIN)));
    let (level, name, value) = (SOL_SOCKET, SO_ZEROCOPY, 1_i32.to_ne_bytes().to_vec());
    pair.call(0, Call::SetOption { fd: client, level, name, value });
    pair.call(0, zero_copy(0));
    pair.call(0, zero_copy(MSG_ZEROCOPY));
    pair.call(0, zero_copy(MSG_ZEROCOPY));
    let poll = |pair: &mut Pair| {
        let entries = vec![PollEntry { fd: client, events: 0, revents: 0 }];
        pair.call(0, Call::Poll { entries, timeout_ms: 0 }).value
    };
    // Their ACK is held back, and comes.
    let limit = pair.hosts[1].now() + time::Duration::from_secs(1);
    while pair.hosts[1].step(limit) < limit {
        pair.carry();
    }
    pair.carry();
    assert_eq!(poll(&mut pair), 1, "POLLERR");
    let reply = told(&mut pair).expect("it does not block").expect("a notice");
    assert_eq!(
        reply,
        Reply { value: 0, output: Output::ZeroCopied { first: 0, last: 1, is_ipv4: true } }
    );
    assert_eq!((told(&mut pair), poll(&mut pair)), (Some(Err(Errno::EAGAIN)), 0));
    // What is under way is not told of.
    let mut task = pair.hosts[0].begin(zero_copy(MSG_ZEROCOPY));
    pair.hosts[0].attempt(&mut task).expect("it does not block").expect("it succeeds");
    let mut task = pair.hosts[0].begin(receive(client, MSG_ERRQUEUE));
    assert_eq!(pair.hosts[0].attempt(&mut task), Some(Err(Errno::EAGAIN)));
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

// A packet may go to any address, a segment script's first to none at all.
#[test]
fn an_address_that_no_host_has_is_not_adopted() {
    for destination in [[0, 0, 0, 0], [255, 255, 255, 255], [224, 0, 0, 1], [10, 0, 255, 255]] {
        let mut host = host("10.0.0.1/24");
        host.config.adopts_addresses = true;
        let mut packet = vec![0x45, 0, 0, 20, 0, 0, 0x40, 0, 64, 6, 0, 0, 192, 0, 2, 1];
        packet.extend(destination);
        host.inject(&packet);
        assert_eq!(host.config.addresses.len(), 1, "{destination:?}");
        assert!(!host.has_packet());
    }
}

#[test]
fn what_is_no_kind_of_socket_is_told_from_what_is_none_here() {
    let mut pair = Pair::new();
    let domain = AF_INET.into();
    let mut open = |kind, protocol| pair.try_call(0, Call::Socket { domain, kind, protocol });
    assert_eq!(open(3, 0), Some(Err(Errno::ESOCKTNOSUPPORT)), "SOCK_RAW");
    assert_eq!(open(11, 0), Some(Err(Errno::EINVAL)), "SOCK_MAX");
    assert_eq!(open(SOCK_STREAM | 0x40, 0), Some(Err(Errno::EINVAL)), "an unknown flag");
    assert_eq!(open(SOCK_STREAM, IPPROTO_UDP), Some(Err(Errno::EPROTONOSUPPORT)));
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

#[test]
fn what_is_sent_with_more_to_follow_is_of_one_datagram() {
    let mut pair = Pair::new();
    let fd = pair.socket(0, SOCK_DGRAM);
    let part = |bytes: &[u8], flags, to: Option<&str>| Call::Send {
        fd,
        bytes: bytes.to_vec(),
        flags,
        to: to.map(address),
    };
    assert_eq!(pair.refused(0, part(b"x", MSG_MORE, None)), Errno::EDESTADDRREQ);
    assert_eq!(pair.refused(0, part(b"x", MSG_OOB, Some("10.0.0.2:53"))), Errno::EOPNOTSUPP);
    assert_eq!(pair.call(0, part(b"one", MSG_MORE, Some("10.0.0.2:53"))).value, 3);
    assert!(!pair.hosts[0].has_packet());
    let long = vec![0; 65_525];
    assert_eq!(pair.refused(0, part(&long, MSG_MORE, None)), Errno::EMSGSIZE);
    // Another address is passed over.
    let packet = pair.packet_of(0, part(b"two", 0, Some("10.0.0.2:99")));
    assert_eq!((&packet[22..24], &packet[28..]), (&[0, 53][..], &b"onetwo"[..]));
    let packet = pair.packet_of(0, part(b"three", 0, Some("10.0.0.2:99")));
    assert_eq!((&packet[22..24], &packet[28..]), (&[0, 99][..], &b"three"[..]));
}
