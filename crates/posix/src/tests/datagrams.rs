//! Sockets for datagrams.

use super::*;

fn heard(pair: &mut Pair, fd: Fd) -> bool {
    match pair.try_call(1, receive(fd, MSG_DONTWAIT)).expect("it does not block") {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error, Errno::EAGAIN);
            false
        }
    }
}

/// SO_REUSEADDR, as a kernel's sockets answer: the last has the port, and all hear what is for everybody.
#[test]
fn sockets_that_reuse_an_address_yield_it_to_the_last() {
    let mut pair = Pair::new();
    let mut bound = |reuses: i32| {
        let fd = pair.socket(1, SOCK_DGRAM);
        pair.call(1, set_int(fd, SOL_SOCKET, SO_REUSEADDR, reuses));
        let bind = Call::Bind { fd, address: address("0.0.0.0:7") };
        pair.try_call(1, bind).expect("it does not block").map(|_| fd)
    };
    let [first, second, last] = [1, 1, 1].map(|reuses| bound(reuses).expect("they all reuse it"));
    assert_eq!(bound(0), Err(Errno::EADDRINUSE));
    let sender = pair.socket(0, SOCK_DGRAM);
    pair.call(0, set_int(sender, SOL_SOCKET, SO_BROADCAST, 1));
    let word = |to: &str| {
        let (bytes, to) = (b"x".to_vec(), Some(address(to)));
        Call::Send { fd: sender, bytes, flags: 0, to, control: Vec::new() }
    };
    pair.call(0, word("10.0.0.2:7"));
    assert_eq!([first, second, last].map(|fd| heard(&mut pair, fd)), [false, false, true]);
    pair.call(0, word("10.0.0.255:7"));
    assert_eq!([first, second, last].map(|fd| heard(&mut pair, fd)), [true; 3]);
    pair.call(1, Call::Close { fd: last });
    pair.call(0, word("10.0.0.2:7"));
    assert_eq!([first, second].map(|fd| heard(&mut pair, fd)), [false, true]);
}

/// SO_REUSEADDR that is set, or taken back, when a socket is bound: as on Linux, what it says now counts.
#[test]
fn what_a_bound_socket_says_of_its_address_counts_from_then_on() {
    let mut pair = Pair::new();
    for (port, (before, after)) in [(0, 1), (1, 0)].into_iter().enumerate() {
        let at = address(&format!("10.0.0.1:{}", port + 7));
        let [first, second] = [0, 1].map(|_| pair.socket(0, SOCK_DGRAM));
        pair.call(0, set_int(first, SOL_SOCKET, SO_REUSEADDR, before));
        pair.call(0, Call::Bind { fd: first, address: at });
        pair.call(0, set_int(first, SOL_SOCKET, SO_REUSEADDR, after));
        pair.call(0, set_int(second, SOL_SOCKET, SO_REUSEADDR, 1));
        let bound = pair.try_call(0, Call::Bind { fd: second, address: at });
        assert_eq!(bound.expect("it does not block").is_ok(), after == 1);
    }
}

/// socket(7), SO_TIMESTAMP: when it came, not when it is read; asked for in one of two units.
#[test]
fn a_datagram_tells_when_it_came_where_it_is_asked() {
    let mut pair = Pair::new();
    let fd = pair.socket(1, SOCK_DGRAM);
    pair.call(1, Call::Bind { fd, address: address("10.0.0.2:7") });
    let sender = pair.socket(0, SOCK_DGRAM);
    let (bytes, to) = (b"x".to_vec(), Some(address("10.0.0.2:7")));
    let word = Call::Send { fd: sender, bytes, flags: 0, to, control: Vec::new() };
    let mut told = |asked: Option<(i32, i32)>| {
        if let Some((name, value)) = asked {
            pair.call(1, set_int(fd, SOL_SOCKET, name, value));
        }
        let limit = pair.hosts[1].now() + time::Duration::from_millis(3);
        while pair.hosts[1].step(limit) < limit {}
        pair.call(0, word.clone());
        let at = pair.hosts[1].now();
        while pair.hosts[1].step(at + time::Duration::from_millis(3)) < limit {}
        let names = [SO_TIMESTAMP, SO_TIMESTAMPNS];
        let set = names.map(|name| get_int(&mut pair, 1, (fd, SOL_SOCKET, name)));
        let Output::Received { control, .. } = pair.call(1, receive(fd, 0)).output else {
            panic!("bytes")
        };
        let at = |name| crate::told::stamp(name, at);
        (set, control.first().map(|told| (*told == at(told.kind), told.kind)))
    };
    assert_eq!(told(None), ([0, 0], None));
    assert_eq!(told(Some((SO_TIMESTAMP, 1))), ([1, 0], Some((true, SO_TIMESTAMP))));
    assert_eq!(told(Some((SO_TIMESTAMPNS, 1))), ([0, 1], Some((true, SO_TIMESTAMPNS))));
    assert_eq!(told(Some((SO_TIMESTAMP, 0))), ([0, 0], None));
    let stream = pair.socket(1, SOCK_STREAM);
    let asked = set_int(stream, SOL_SOCKET, SO_TIMESTAMP, 1);
    assert_eq!(pair.refused(1, asked), Errno::ENOPROTOOPT);
}

// As on Linux, which was asked: sendmsg(2) with control messages.
#[test]
fn one_datagram_is_marked_by_what_is_sent_with_it() {
    use crate::ControlMessage;
    use crate::abi::{
        IP_PKTINFO, IP_TOS, IP_TTL, IPPROTO_IP, IPPROTO_IPV6, IPV6_TCLASS, SOL_SOCKET,
    };
    let mut pair = Pair::new();
    let fd = pair.socket(0, SOCK_DGRAM);
    let message = |level, kind, data: &[u8]| ControlMessage { level, kind, data: data.to_vec() };
    let mut sent = |control: Vec<ControlMessage>| {
        let to = Some(address("10.0.0.2:9"));
        let call = Call::Send { fd, bytes: b"x".to_vec(), flags: 0, to, control };
        let mut task = pair.hosts[0].begin(call);
        pair.hosts[0].attempt(&mut task).expect("it does not block")?;
        let packet = pair.hosts[0].take_packet().expect("a packet").1;
        Ok((packet[1], packet[8]))
    };
    assert_eq!(sent(vec![message(IPPROTO_IP, IP_TOS, &[8])]), Ok((8, 64)));
    let both = vec![
        message(IPPROTO_IP, IP_TOS, &16_i32.to_ne_bytes()),
        message(IPPROTO_IP, IP_TTL, &7_i32.to_ne_bytes()),
    ];
    assert_eq!(sent(both), Ok((16, 7)));
    assert_eq!(sent(Vec::new()), Ok((0, 64)), "the next has what the socket has");
    let passed_over = message(IPPROTO_IPV6, IPV6_TCLASS, &[1]);
    assert_eq!(sent(vec![passed_over]), Ok((0, 64)), "of another family");
    for wrong in [
        message(IPPROTO_IP, IP_TOS, &[8, 0]),
        message(IPPROTO_IP, IP_TTL, &[7]),
        message(IPPROTO_IP, IP_TTL, &0_i32.to_ne_bytes()),
        message(IPPROTO_IP, IP_PKTINFO, &[0; 8]),
        message(IPPROTO_IP, 99, &[0; 4]),
        message(SOL_SOCKET, 99, &[0; 4]),
    ] {
        assert_eq!(sent(vec![wrong.clone()]), Err(Errno::EINVAL), "{wrong:?}");
    }
    let mut source = [0; 12];
    source[4..8].copy_from_slice(&[1, 2, 3, 4]);
    let of_nobody = sent(vec![message(IPPROTO_IP, IP_PKTINFO, &source)]);
    assert_eq!(of_nobody, Err(Errno::ENETUNREACH), "no address of ours");
}

/// socket(7), SO_BROADCAST.
#[test]
fn who_does_not_ask_for_it_sends_to_no_broadcast_address() {
    let mut pair = Pair::new();
    for to in ["10.0.0.255:7", "255.255.255.255:7"] {
        let fd = pair.socket(0, SOCK_DGRAM);
        let connect = Call::Connect { fd, address: address(to) };
        let (bytes, to) = (b"x".to_vec(), Some(address(to)));
        let send = Call::Send { fd, bytes, flags: 0, to, control: Vec::new() };
        assert_eq!(pair.refused(0, connect.clone()), Errno::EACCES);
        assert_eq!(pair.refused(0, send.clone()), Errno::EACCES);
        pair.call(0, set_int(fd, SOL_SOCKET, SO_BROADCAST, 1));
        pair.call(0, send);
        pair.call(0, connect);
    }
}
