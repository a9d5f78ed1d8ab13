//! Readiness: epoll over sockets and over other epolls.

use super::*;

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
