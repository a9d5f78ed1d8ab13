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
