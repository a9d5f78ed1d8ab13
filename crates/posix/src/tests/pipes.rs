//! Pipes.

use super::*;

fn pipe(pair: &mut Pair) -> (Fd, Fd) {
    let Output::Pipe([read, write]) = pair.call(0, Call::Pipe).output else { panic!("no pipe") };
    (read, write)
}

// pipe(7), PIPE_BUF.
#[test]
fn a_write_of_a_page_at_most_goes_whole_or_waits() {
    let mut pair = Pair::new();
    let (read, write) = pipe(&mut pair);
    let put = |len: usize| send(write, &vec![7; len]);
    let take = |len| Call::Receive { fd: read, len, flags: 0 };
    let ready = |pair: &mut Pair| {
        let entries = vec![PollEntry { fd: write, events: POLLOUT, revents: 0 }];
        pair.call(0, Call::Poll { entries, timeout_ms: 0 }).value
    };
    pair.call(0, put(62_000));
    assert_eq!(ready(&mut pair), 0, "not everything of a page would go");
    let mut task = pair.hosts[0].begin(put(4_096));
    assert_eq!(pair.hosts[0].attempt(&mut task), None);
    let argument = i64::from(O_NONBLOCK);
    pair.call(0, Call::Fcntl { fd: write, command: F_SETFL, argument });
    assert_eq!(pair.refused(0, put(4_096)), Errno::EAGAIN);
    assert_eq!(pair.call(0, put(3_000)).value, 3_000);
    assert_eq!(pair.call(0, put(4_097)).value, 536, "what is longer goes in parts");
    pair.call(0, take(4_095));
    assert_eq!((pair.refused(0, put(4_096)), ready(&mut pair)), (Errno::EAGAIN, 0));
    pair.call(0, take(1));
    assert_eq!(ready(&mut pair), 1);
    assert_eq!(pair.hosts[0].attempt(&mut task), Some(Ok(Reply::value(4_096))));
}
