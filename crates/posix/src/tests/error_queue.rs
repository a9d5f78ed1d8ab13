//! IP_RECVERR and its like: what is told on the error queue, and with datagrams. The figures are a kernel's, which was
//! asked the same.

use super::*;

/// A socket on host 0 that asks for these options.
fn asking(pair: &mut Pair, domain: u16, options: &[(i32, i32)]) -> Fd {
    let call = Call::Socket { domain: domain.into(), kind: SOCK_DGRAM, protocol: 0 };
    let fd = pair.call(0, call).value as Fd;
    for (level, name) in options {
        assert_eq!(get_int(pair, 0, (fd, *level, *name)), 0);
        pair.call(0, set_int(fd, *level, *name, 5));
        assert_eq!(get_int(pair, 0, (fd, *level, *name)), 1);
    }
    fd
}

fn send_to(fd: Fd, bytes: &[u8], to: &str) -> Call {
    let to = Some(address(to));
    Call::Send { fd, bytes: bytes.to_vec(), flags: 0, to, control: Vec::new() }
}

fn message(level: i32, kind: i32, data: &[u8]) -> ControlMessage {
    ControlMessage { level, kind, data: data.to_vec() }
}

/// struct sock_extended_err and the offender's address.
fn error(head: [u8; 8], info: u32, address: &[u8], len: usize) -> Vec<u8> {
    let mut data = head.to_vec();
    data.extend(info.to_ne_bytes());
    data.extend([0; 4]);
    data.extend(address);
    data.resize(16 + len, 0);
    data
}

/// Two hosts as of [`Pair`], with addresses of IPv6 besides.
fn pair_of_both() -> Pair {
    let mut pair = Pair::new();
    for (host, own) in pair.hosts.iter_mut().zip(["fd00::1/64", "fd00::2/64"]) {
        host.config.addresses.push(own.parse().expect("an address and a prefix"));
    }
    pair
}

#[test]
fn a_report_has_the_message_its_sender_and_the_datagram() {
    let mut pair = pair_of_both();
    let read = |pair: &mut Pair, fd| pair.call(0, receive(fd, MSG_ERRQUEUE)).output;
    let (ipv4, ipv6) = ((IPPROTO_IP, IP_RECVERR), (IPPROTO_IPV6, IPV6_RECVERR));
    let told = |bytes: &[u8], from, control| Output::Received {
        bytes: bytes.to_vec(),
        from: Some(address(from)),
        flags: MSG_ERRQUEUE,
        control: vec![control],
    };
    // ECONNREFUSED, SO_EE_ORIGIN_ICMP, and type and code of the message.
    let refused = [111, 0, 0, 0, 2, 3, 3, 0];
    let fd = asking(&mut pair, AF_INET, &[ipv4]);
    pair.call(0, send_to(fd, b"hello", "10.0.0.2:9"));
    let data = error(refused, 0, &[2, 0, 0, 0, 10, 0, 0, 2], 16);
    assert_eq!(read(&mut pair, fd), told(b"hello", "10.0.0.2:9", message(0, IP_RECVERR, &data)));
    assert_eq!(pair.refused(0, receive(fd, MSG_DONTWAIT)), Errno::EAGAIN, "it was heard of");
    let fd = asking(&mut pair, AF_INET6, &[ipv6]);
    pair.call(0, send_to(fd, b"hello", "[fd00::2]:9"));
    let mut offender = vec![10, 0, 0, 0, 0, 0, 0, 0, 0xfd];
    offender.resize(23, 0);
    offender.push(2);
    let data = error([111, 0, 0, 0, 3, 1, 4, 0], 0, &offender, 28);
    assert_eq!(
        read(&mut pair, fd),
        told(b"hello", "[fd00::2]:9", message(41, IPV6_RECVERR, &data))
    );
    // Of IPv4 a socket of the other family hears where it asks for that, too.
    pair.call(0, send_to(fd, b"mapped", "[::ffff:10.0.0.2]:9"));
    assert_eq!(pair.refused(0, receive(fd, MSG_ERRQUEUE)), Errno::EAGAIN);
    pair.call(0, set_int(fd, IPPROTO_IP, IP_RECVERR, 1));
    pair.call(0, send_to(fd, b"mapped", "[::ffff:10.0.0.2]:9"));
    let mut offender = vec![10, 0, 0, 0, 0, 0, 0, 0];
    offender.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2]);
    let data = error(refused, 0, &offender, 28);
    let whole = told(b"mapped", "[::ffff:10.0.0.2]:9", message(41, IPV6_RECVERR, &data));
    assert_eq!(read(&mut pair, fd), whole);
}

#[test]
fn a_report_tells_of_the_packet_of_its_message_what_is_asked() {
    let mut pair = pair_of_both();
    let of_ipv4 = [IP_RECVERR, IP_PKTINFO, IP_RECVTTL, IP_RECVTOS].map(|name| (IPPROTO_IP, name));
    let of_ipv6 = [IPV6_RECVERR, IPV6_RECVPKTINFO, IPV6_RECVHOPLIMIT, IPV6_RECVTCLASS]
        .map(|name| (IPPROTO_IPV6, name));
    let told = |pair: &mut Pair, fd, to: &str| {
        pair.call(0, send_to(fd, b"hello", to));
        let output = pair.call(0, receive(fd, MSG_ERRQUEUE)).output;
        let Output::Received { mut control, .. } = output else { panic!("a report") };
        assert_eq!(control.pop().expect("the error").data[..4], [111, 0, 0, 0], "the last");
        control
    };
    // No address of ours is told.
    let info = [1, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 1];
    let told_ipv4 = |class| {
        [
            message(IPPROTO_IP, IP_PKTINFO, &info),
            message(IPPROTO_IP, IP_TTL, &[64, 0, 0, 0]),
            message(IPPROTO_IP, IP_TOS, &[class]),
        ]
    };
    let fd = asking(&mut pair, AF_INET, &of_ipv4);
    let got = told(&mut pair, fd, "10.0.0.2:9");
    let class = got.last().expect("several").data[0];
    assert_eq!(got, told_ipv4(class));
    pair.call(0, set_int(fd, SOL_SOCKET, SO_TIMESTAMP, 1));
    assert_eq!(told(&mut pair, fd, "10.0.0.2:9")[0].kind, SO_TIMESTAMP, "before all others");
    let fd = asking(&mut pair, AF_INET6, &[&of_ipv4[..], &of_ipv6].concat());
    let mut to = vec![0xfd];
    to.resize(15, 0);
    to.extend([1, 1, 0, 0, 0]);
    let whole = [
        message(IPPROTO_IPV6, IPV6_PKTINFO, &to),
        message(IPPROTO_IPV6, IPV6_HOPLIMIT, &[64, 0, 0, 0]),
        message(IPPROTO_IPV6, IPV6_TCLASS, &[0, 0, 0, 0]),
    ];
    assert_eq!(told(&mut pair, fd, "[fd00::2]:9"), whole);
    let mapped = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1, 1, 0, 0, 0];
    let mapped = message(IPPROTO_IPV6, IPV6_PKTINFO, &mapped);
    let all = [&[mapped][..], &told_ipv4(class)].concat();
    assert_eq!(told(&mut pair, fd, "[::ffff:10.0.0.2]:9"), all);
}

#[test]
fn who_reads_one_of_several_reports_is_woken_for_the_next() {
    let mut pair = Pair::new();
    let fd = asking(&mut pair, AF_INET, &[(IPPROTO_IP, IP_RECVERR)]);
    let epoll = pair.call(0, Call::EpollCreate { size: 1 }).value as Fd;
    let event = EpollEvent { events: POLLIN as u32 | EPOLLET, data: 42 };
    pair.call(0, Call::EpollControl { epoll, operation: EPOLL_CTL_ADD, fd, event });
    pair.call(0, send_to(fd, b"a", "10.0.0.2:9"));
    assert_eq!(pair.refused(0, send_to(fd, b"b", "10.0.0.2:9")), Errno::ECONNREFUSED);
    pair.call(0, send_to(fd, b"b", "10.0.0.2:9"));
    let events = |pair: &mut Pair| {
        pair.call(0, Call::EpollWait { epoll, events_max: 8, timeout_ms: 0 }).output
    };
    let told = Output::Epoll(vec![EpollEvent { events: POLLERR as u32, data: 42 }]);
    assert_eq!(events(&mut pair), told);
    assert_eq!(events(&mut pair), Output::Epoll(Vec::new()), "it is an edge");
    pair.call(0, receive(fd, MSG_ERRQUEUE));
    assert_eq!(events(&mut pair), told);
    pair.call(0, receive(fd, MSG_ERRQUEUE));
    assert_eq!(events(&mut pair), Output::Epoll(Vec::new()), "nothing is left");
}

#[test]
fn what_is_too_long_to_leave_is_reported_with_what_is_not() {
    let mut pair = pair_of_both();
    let fd = asking(&mut pair, AF_INET, &[(IPPROTO_IP, IP_RECVERR)]);
    // IP_PMTUDISC_DO
    pair.call(0, set_int(fd, IPPROTO_IP, IP_MTU_DISCOVER, 2));
    let told = |pair: &mut Pair, fd| {
        let Output::Received { bytes, from, control, .. } =
            pair.call(0, receive(fd, MSG_ERRQUEUE)).output
        else {
            panic!("a report")
        };
        assert_eq!((bytes.len(), control.len()), (0, 1));
        (from, control[0].data.clone())
    };
    // EMSGSIZE, SO_EE_ORIGIN_LOCAL, and nobody's address; of IPv4 the port is the peer's.
    let head = [90, 0, 0, 0, 1, 0, 0, 0];
    for port in [0, 9] {
        assert_eq!(pair.refused(0, send_to(fd, &[0; 1_473], "10.0.0.2:9")), Errno::EMSGSIZE);
        assert_eq!(get_int(&mut pair, 0, (fd, SOL_SOCKET, SO_ERROR)), 0, "it was told already");
        let from = address(&format!("10.0.0.2:{port}"));
        assert_eq!(told(&mut pair, fd), (Some(from), error(head, 1_500, &[], 16)));
        pair.call(0, Call::Connect { fd, address: address("10.0.0.2:9") });
    }
    let fd = asking(&mut pair, AF_INET6, &[(IPPROTO_IPV6, IPV6_RECVERR)]);
    pair.call(0, set_int(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, 2));
    assert_eq!(pair.refused(0, send_to(fd, &[0; 1_453], "[fd00::2]:9")), Errno::EMSGSIZE);
    let expected = (Some(address("[fd00::2]:9")), error(head, 1_500, &[], 28));
    assert_eq!(told(&mut pair, fd), expected);
}

#[test]
fn reports_that_nobody_reads_are_bounded() {
    let mut pair = Pair::new();
    let fd = asking(&mut pair, AF_INET, &[(IPPROTO_IP, IP_RECVERR)]);
    for _ in 0..1_000 {
        // An error that is told is not one of this call's.
        if pair.try_call(0, send_to(fd, b"z", "10.0.0.2:9")).expect("it does not block").is_err() {
            pair.call(0, send_to(fd, b"z", "10.0.0.2:9"));
        }
        // What answers with errors does so at a rate.
        let limit = pair.hosts[1].now() + time::Duration::from_millis(200);
        while pair.hosts[1].step(limit) < limit {}
    }
    let mut count = 0;
    while pair.try_call(0, receive(fd, MSG_ERRQUEUE)).expect("it does not block").is_ok() {
        count += 1;
    }
    assert_eq!(count, 255);
}

#[test]
fn a_datagram_tells_of_its_packet_what_is_asked() {
    let mut pair = pair_of_both();
    let of_ipv4 = [IP_PKTINFO, IP_RECVTTL, IP_RECVTOS].map(|name| (IPPROTO_IP, name));
    let of_ipv6 =
        [IPV6_RECVPKTINFO, IPV6_RECVHOPLIMIT, IPV6_RECVTCLASS].map(|name| (IPPROTO_IPV6, name));
    let hear = |pair: &mut Pair, fd: Fd, to: &str| {
        let (domain, level, name) = match to.starts_with('[') && !to.contains("ffff") {
            true => (AF_INET6, IPPROTO_IPV6, IPV6_TCLASS),
            false => (AF_INET, IPPROTO_IP, IP_TOS),
        };
        let call = Call::Socket { domain: domain.into(), kind: SOCK_DGRAM, protocol: 0 };
        let sender = pair.call(1, call).value as Fd;
        pair.call(1, set_int(sender, level, name, 0x28));
        pair.call(1, set_int(sender, SOL_SOCKET, SO_BROADCAST, 1));
        pair.call(1, send_to(sender, b"x", &to.replace("[::ffff:10.0.0.1]", "10.0.0.1")));
        let output = pair.call(0, receive(fd, MSG_DONTWAIT)).output;
        let Output::Received { control, .. } = output else { panic!("a datagram") };
        control
    };
    let info = |ours: [u8; 4], to: [u8; 4]| [&[1, 0, 0, 0][..], &ours, &to].concat();
    let told_ipv4 = |info: &[u8]| {
        [
            message(IPPROTO_IP, IP_PKTINFO, info),
            message(IPPROTO_IP, IP_TTL, &[64, 0, 0, 0]),
            message(IPPROTO_IP, IP_TOS, &[0x28]),
        ]
    };
    let fd = asking(&mut pair, AF_INET, &of_ipv4);
    pair.call(0, Call::Bind { fd, address: address("0.0.0.0:7") });
    let ours = [10, 0, 0, 1];
    assert_eq!(hear(&mut pair, fd, "10.0.0.1:7"), told_ipv4(&info(ours, ours)));
    let to_all = [10, 0, 0, 255];
    assert_eq!(hear(&mut pair, fd, "10.0.0.255:7"), told_ipv4(&info(ours, to_all)));
    pair.call(0, set_int(fd, SOL_SOCKET, SO_TIMESTAMP, 1));
    assert_eq!(hear(&mut pair, fd, "10.0.0.1:7")[0].kind, SO_TIMESTAMP, "before all others");
    let fd = asking(&mut pair, AF_INET6, &of_ipv6);
    pair.call(0, Call::Bind { fd, address: address("[::]:8") });
    let mut to = vec![0xfd];
    to.resize(15, 0);
    to.extend([1, 1, 0, 0, 0]);
    let told = [
        message(IPPROTO_IPV6, IPV6_PKTINFO, &to),
        message(IPPROTO_IPV6, IPV6_HOPLIMIT, &[64, 0, 0, 0]),
        message(IPPROTO_IPV6, IPV6_TCLASS, &[0x28, 0, 0, 0]),
    ];
    assert_eq!(hear(&mut pair, fd, "[fd00::1]:8"), told);
    let mapped = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1, 1, 0, 0, 0];
    let mapped = message(IPPROTO_IPV6, IPV6_PKTINFO, &mapped);
    assert_eq!(hear(&mut pair, fd, "[::ffff:10.0.0.1]:8"), std::slice::from_ref(&mapped));
    for (level, name) in of_ipv4 {
        pair.call(0, set_int(fd, level, name, 1));
    }
    let all = [&[mapped][..], &told_ipv4(&info(ours, ours))].concat();
    assert_eq!(hear(&mut pair, fd, "[::ffff:10.0.0.1]:8"), all);
    assert_eq!(hear(&mut pair, fd, "[fd00::1]:8"), told);
}

#[test]
fn what_asks_for_messages_is_taken_as_linux_takes_it() {
    let mut pair = Pair::new();
    let fd = pair.socket(0, SOCK_DGRAM);
    let set =
        |fd, level, name, value: &[u8]| Call::SetOption { fd, level, name, value: value.to_vec() };
    pair.call(0, set(fd, IPPROTO_IP, IP_RECVERR, &[1]));
    assert_eq!(get_int(&mut pair, 0, (fd, IPPROTO_IP, IP_RECVERR)), 1);
    pair.call(0, set(fd, IPPROTO_IP, IP_RECVERR, &[]));
    assert_eq!(get_int(&mut pair, 0, (fd, IPPROTO_IP, IP_RECVERR)), 0);
    let of_ipv6 = (IPPROTO_IPV6, IPV6_RECVERR);
    assert_eq!(pair.refused(0, set_int(fd, of_ipv6.0, of_ipv6.1, 1)), Errno::ENOPROTOOPT);
    let get = Call::GetOption { fd, level: of_ipv6.0, name: of_ipv6.1, len: 4 };
    assert_eq!(pair.refused(0, get), Errno::EOPNOTSUPP);
    let fd = asking(&mut pair, AF_INET6, &[]);
    assert_eq!(pair.refused(0, set(fd, of_ipv6.0, of_ipv6.1, &[1])), Errno::EINVAL);
    let stream = pair.socket(0, SOCK_STREAM);
    for name in [IP_RECVERR, IP_PKTINFO, IP_RECVTTL, IP_RECVTOS] {
        assert_eq!(pair.refused(0, set_int(stream, IPPROTO_IP, name, 1)), Errno::ENOPROTOOPT);
    }
}
