//! A thread that alone is busy, beside one that merely waits for connections.

use crate::pair::{connected, is_soon, pair, right};
use multidata::{Stack, TcpListener, TcpStream, UdpSocket};
use std::io::{self, Read, Write};
use std::sync::Barrier;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Asks so often, a byte each time.
fn ask(client: &mut TcpStream, count: usize) {
    for _ in 0..count {
        client.write_all(&[7]).expect("connected");
        client.read_exact(&mut [0]).expect("answered");
    }
}

/// Answers so often.
fn answer(server: &mut TcpStream, count: usize) -> io::Result<()> {
    (0..count).try_for_each(|_| {
        let mut byte = [0];
        server.read_exact(&mut byte)?;
        server.write_all(&byte)
    })
}

fn wakeups(stack: &Stack) -> u64 {
    stack.counters().runtime.wakeups_sent
}

/// With the lead handed to whoever waits there are two wake-ups between threads for each answer. Datagrams, so that nothing
/// comes but questions: an acknowledgement can find the busy thread away, and the lead kept for it already.
#[test]
fn a_busy_thread_wakes_nobody_who_waits_for_connections() {
    const COUNT: usize = 2_000;
    let (left, right_stack) = pair();
    let listener = TcpListener::bind(&right_stack, right(80)).expect("a free port");
    let server = UdpSocket::bind(&right_stack, right(53)).expect("a free port");
    let client = UdpSocket::bind(&left, "0.0.0.0:0").expect("a free port");
    client.connect(right(53)).expect("a route");
    let answer = || {
        let mut byte = [0];
        let (_, from) = server.recv_from(&mut byte).expect("asked");
        server.send_to(&byte, from).expect("a route");
    };
    std::thread::scope(|scope| {
        let accepting = scope.spawn(|| listener.accept().expect("at last"));
        while right_stack.counters().runtime.leader_waits == 0 {
            sleep(Duration::from_millis(1));
        }
        // A machine with much to do keeps the busy thread away now and then.
        let is_quiet = (0..5).any(|_| {
            let before = wakeups(&right_stack);
            std::thread::scope(|scope| {
                scope.spawn(|| (0..COUNT).for_each(|_| answer()));
                (0..COUNT).for_each(|_| {
                    client.send(&[7]).expect("a route");
                    client.recv(&mut [0]).expect("answered");
                });
            });
            wakeups(&right_stack) - before < COUNT as u64 / 2
        });
        let other = TcpStream::connect(&left, right(80)).expect("somebody listens");
        accepting.join().expect("no panic");
        assert!(is_quiet);
        drop(other);
    });
}

/// The lead is kept for it, and nobody receives for as long.
#[test]
fn who_waits_beside_a_busy_thread_that_stays_away_gets_what_comes() {
    let (left, right_stack) = pair();
    let listener = TcpListener::bind(&right_stack, right(80)).expect("a free port");
    let (mut client, mut server) = connected(&left, &right_stack);
    client.set_nodelay(true).expect("connected");
    server.set_nodelay(true).expect("connected");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // What it was asked for a hundred times takes it long then.
            while answer(&mut server, 100).is_ok() {
                sleep(Duration::from_millis(400));
            }
        });
        let is_soon = is_soon(Duration::from_millis(100), || {
            std::thread::scope(|scope| {
                let accepting = scope.spawn(|| listener.accept().expect("a connection"));
                ask(&mut client, 100);
                let began = Instant::now();
                drop(TcpStream::connect(&left, right(80)).expect("somebody listens"));
                accepting.join().expect("no panic");
                began.elapsed()
            })
        });
        assert!(is_soon);
        drop(client);
    });
}

/// How long a datagram takes to who waits beside a thread that was asked a dozen times and goes away with the last. It has
/// begun to wait so long after that one.
fn beside_who_goes_away(joins: Duration) -> Duration {
    let (left, right_stack) = pair();
    let busy = UdpSocket::bind(&right_stack, right(53)).expect("a free port");
    let waiting = UdpSocket::bind(&right_stack, right(54)).expect("a free port");
    let client = UdpSocket::bind(&left, "0.0.0.0:0").expect("a free port");
    let ask = |question| {
        client.send_to(&[question], right(53)).expect("a route");
        client.recv(&mut [0]).expect("answered");
    };
    let end = Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut byte = [0];
            while byte == [0] {
                let (_, from) = busy.recv_from(&mut byte).expect("asked");
                busy.send_to(&byte, from).expect("a route");
            }
            end.wait();
        });
        sleep(joins);
        let received = scope.spawn(|| {
            waiting.recv_from(&mut [0]).expect("sent");
            Instant::now()
        });
        while right_stack.counters().runtime.follower_parks == 0 {
            sleep(Duration::from_micros(100));
        }
        (0..12).for_each(|_| ask(0));
        ask(1);
        let sent = Instant::now();
        client.send_to(&[7], right(54)).expect("a route");
        let took = received.join().expect("no panic").duration_since(sent);
        end.wait();
        took
    })
}

/// The worker has seen one thread then, which waits and is not disturbed: so it looks again late.
#[test]
fn who_comes_to_wait_beside_a_thread_that_then_is_busy_and_stays_away_gets_what_comes() {
    let joins = Duration::from_millis(27);
    assert!(is_soon(Duration::from_millis(5), || beside_who_goes_away(joins)));
}
