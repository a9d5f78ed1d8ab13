//! Which file a descriptor names, and what is said of one that names none or another kind.

use super::*;

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
fn what_is_no_kind_of_socket_is_told_from_what_is_none_here() {
    let mut pair = Pair::new();
    let domain = AF_INET.into();
    let mut open = |kind, protocol| pair.try_call(0, Call::Socket { domain, kind, protocol });
    assert_eq!(open(3, 0), Some(Err(Errno::ESOCKTNOSUPPORT)), "SOCK_RAW");
    assert_eq!(open(11, 0), Some(Err(Errno::EINVAL)), "SOCK_MAX");
    assert_eq!(open(SOCK_STREAM | 0x40, 0), Some(Err(Errno::EINVAL)), "an unknown flag");
    assert_eq!(open(SOCK_STREAM, IPPROTO_UDP), Some(Err(Errno::EPROTONOSUPPORT)));
}

/// As Linux, which looks for descriptors first.
#[test]
fn what_finds_no_descriptor_takes_nothing() {
    let mut pair = Pair::new();
    let (listener, _, _) = pair.connected();
    let waiting = pair.socket(0, SOCK_STREAM);
    pair.call(0, Call::Connect { fd: waiting, address: address("10.0.0.2:80") });
    let (domain, kind) = (i32::from(AF_INET), SOCK_STREAM);
    let open = || Call::Socket { domain, kind, protocol: 0 };
    let last = loop {
        let fd = pair.call(1, open()).value as Fd;
        // 1,024 files, from descriptor 3 on.
        if fd == 1_026 {
            break fd;
        }
    };
    assert_eq!(pair.refused(1, open()), Errno::EMFILE);
    assert_eq!(pair.refused(1, Call::Accept { fd: listener }), Errno::EMFILE);
    pair.call(1, Call::Close { fd: last });
    assert_eq!(pair.refused(1, Call::Pipe), Errno::EMFILE);
    let accepted = pair.call(1, Call::Accept { fd: listener }).value as Fd;
    assert_eq!(accepted, last);
    assert_eq!(pair.call(1, send(accepted, b"x")).value, 1);
    assert_eq!(pair.call(0, receive(waiting, 0)).value, 1);
}

#[test]
fn a_write_tells_what_went_before_the_reader_did() {
    let mut pair = Pair::new();
    let Output::Pipe([read, write]) = pair.call(0, Call::Pipe).output else { panic!("two ends") };
    // 65,536 bytes are what it holds.
    let mut task = pair.hosts[0].begin(send(write, &[7; 70_000]));
    assert_eq!(pair.hosts[0].attempt(&mut task), None);
    pair.call(0, Call::Close { fd: read });
    assert_eq!(pair.hosts[0].attempt(&mut task), Some(Ok(Reply::value(65_536))));
    assert_eq!(pair.refused(0, send(write, b"x")), Errno::EPIPE);
    assert_eq!(pair.call(0, send(write, b"")).value, 0);
}
