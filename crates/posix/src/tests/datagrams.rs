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
    let word = |to: &str| {
        let (bytes, to) = (b"x".to_vec(), Some(address(to)));
        Call::Send { fd: sender, bytes, flags: 0, to }
    };
    pair.call(0, word("10.0.0.2:7"));
    assert_eq!([first, second, last].map(|fd| heard(&mut pair, fd)), [false, false, true]);
    pair.call(0, word("10.0.0.255:7"));
    assert_eq!([first, second, last].map(|fd| heard(&mut pair, fd)), [true; 3]);
    pair.call(1, Call::Close { fd: last });
    pair.call(0, word("10.0.0.2:7"));
    assert_eq!([first, second].map(|fd| heard(&mut pair, fd)), [false, true]);
}

/// socket(7), SO_TIMESTAMP: when it came, not when it is read; asked for in one of two units.
#[test]
fn a_datagram_tells_when_it_came_where_it_is_asked() {
    let mut pair = Pair::new();
    let fd = pair.socket(1, SOCK_DGRAM);
    pair.call(1, Call::Bind { fd, address: address("10.0.0.2:7") });
    let sender = pair.socket(0, SOCK_DGRAM);
    let (bytes, to) = (b"x".to_vec(), Some(address("10.0.0.2:7")));
    let word = Call::Send { fd: sender, bytes, flags: 0, to };
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
        let Output::Received { stamp, .. } = pair.call(1, receive(fd, 0)).output else {
            panic!("bytes")
        };
        (set, stamp.map(|stamp| (stamp.at == at, stamp.option)))
    };
    assert_eq!(told(None), ([0, 0], None));
    assert_eq!(told(Some((SO_TIMESTAMP, 1))), ([1, 0], Some((true, SO_TIMESTAMP))));
    assert_eq!(told(Some((SO_TIMESTAMPNS, 1))), ([0, 1], Some((true, SO_TIMESTAMPNS))));
    assert_eq!(told(Some((SO_TIMESTAMP, 0))), ([0, 0], None));
    let stream = pair.socket(1, SOCK_STREAM);
    let asked = set_int(stream, SOL_SOCKET, SO_TIMESTAMP, 1);
    assert_eq!(pair.refused(1, asked), Errno::ENOPROTOOPT);
}
