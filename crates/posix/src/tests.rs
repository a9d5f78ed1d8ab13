//! Programs on two hosts that face each other: calls, and what they return. What segments come of
//! calls is the business of the scripts in `conformance/`.

use super::abi::*;
use super::*;

mod addresses;
mod datagrams;
mod descriptors;
mod epolls;
mod error_queue;
mod errors;
mod opening;
mod options;
mod pipes;

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
    Call::Send { fd, bytes: bytes.to_vec(), flags: 0, to: None, control: Vec::new() }
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

// tcp(7), TCP_INQ: what is left to be read, and 1 at the end of the stream.
#[test]
fn a_read_tells_what_is_left_where_it_was_asked_to() {
    let mut pair = Pair::new();
    let (_, server, client) = pair.connected();
    let told = |reply: Reply| match reply.output {
        Output::Received { control, .. } => control.first().map(|it| (it.kind, it.data[0])),
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
    assert_eq!(told(pair.call(1, read(4))), Some((TCP_INQ, 5)));
    assert_eq!(told(pair.call(1, read(5))), Some((TCP_INQ, 0)));
    pair.call(0, send(client, b"end"));
    pair.call(0, Call::Close { fd: client });
    assert_eq!(told(pair.call(1, read(2))), Some((TCP_INQ, 1)));
    assert_eq!(told(pair.call(1, read(1))), Some((TCP_INQ, 1)), "the end is left");
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
    let hello =
        Call::Send { fd: second, bytes: b"hello".to_vec(), flags: 0, to, control: Vec::new() };
    pair.call(0, Call::Connect { fd: ours, address: address("10.0.0.2:7") });
    pair.call(1, hello.clone());
    assert_eq!(pair.refused(0, receive(ours, MSG_DONTWAIT)), Errno::EAGAIN);
    pair.call(0, Call::Connect { fd: ours, address: Address::Unspecified });
    pair.call(1, hello);
    assert_eq!(pair.call(0, receive(ours, MSG_DONTWAIT)).value, 5);
    assert_eq!(pair.refused(0, send(ours, b"x")), Errno::EDESTADDRREQ);
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
    let write = Call::Send {
        fd: client,
        bytes: vec![0; 200_000],
        flags: MSG_DONTWAIT,
        to: None,
        control: Vec::new(),
    };
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
    let zero_copy = |flags: i32| Call::Send {
        fd: client,
        bytes: vec![7; 10],
        flags,
        to: None,
        control: Vec::new(),
    };
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
    // struct sock_extended_err: no error, SO_EE_ORIGIN_ZEROCOPY, SO_EE_CODE_ZEROCOPY_COPIED, the first and the last; and
    // no address.
    let mut data = vec![0, 0, 0, 0, 5, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0];
    data.resize(32, 0);
    let control = vec![ControlMessage { level: IPPROTO_IP, kind: IP_RECVERR, data }];
    let (bytes, flags) = (Vec::new(), MSG_ERRQUEUE);
    let output = Output::Received { bytes, from: None, flags, control };
    assert_eq!(reply, Reply { value: 0, output });
    assert_eq!((told(&mut pair), poll(&mut pair)), (Some(Err(Errno::EAGAIN)), 0));
    // What is under way is not told of.
    let mut task = pair.hosts[0].begin(zero_copy(MSG_ZEROCOPY));
    pair.hosts[0].attempt(&mut task).expect("it does not block").expect("it succeeds");
    let mut task = pair.hosts[0].begin(receive(client, MSG_ERRQUEUE));
    assert_eq!(pair.hosts[0].attempt(&mut task), Some(Err(Errno::EAGAIN)));
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
fn what_is_sent_with_more_to_follow_is_of_one_datagram() {
    let mut pair = Pair::new();
    let fd = pair.socket(0, SOCK_DGRAM);
    let part = |bytes: &[u8], flags, to: Option<&str>| Call::Send {
        fd,
        bytes: bytes.to_vec(),
        flags,
        to: to.map(address),
        control: Vec::new(),
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
