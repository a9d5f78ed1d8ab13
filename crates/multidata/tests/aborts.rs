//! A stack of several squeues that is ended in the middle of everything: every call that waits comes back, and
//! nothing is left of the stack when its sockets are gone.

mod pair;

use batch::{BlockPool, PoolConfig};
use device::Queue;
use multidata::{Stack, TcpListener, TcpStream, UdpSocket};
use pair::{LEFT, RIGHT, interface, right};
use std::io::{ErrorKind, Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A wait for what must come.
const PATIENCE: Duration = Duration::from_secs(60);

/// Connections of each kind.
const EACH: usize = 6;

/// Two stacks of these layouts, over as many wires as these have rings, and their pools.
fn stacks(layouts: [&str; 2]) -> [(Stack, BlockPool); 2] {
    let layouts = layouts.map(|text| text.parse::<multidata::Layout>().expect("a layout"));
    let mut left: Vec<Box<dyn Queue>> = Vec::new();
    let mut right: Vec<Box<dyn Queue>> = Vec::new();
    for _ in 0..layouts[0].rings() {
        let (one, other) = device::wire(pair::ethernet());
        left.push(Box::new(one));
        right.push(Box::new(other));
    }
    let build = |layout, queues, address| {
        let pool = BlockPool::new(PoolConfig::default());
        let builder = Stack::builder().layout(layout).pool(pool.clone());
        let builder = builder.multiqueue_interface(queues, interface(address));
        (builder.build().expect("a stack"), pool)
    };
    [build(layouts[0], left, LEFT), build(layouts[1], right, RIGHT)]
}

/// Threads of this process that belong to a stack.
fn threads_of_stacks() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux");
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
    };
    tasks.filter_map(name).filter(|name| name.starts_with("squeue-")).count()
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn is_of_the_end(error: &std::io::Error) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, NetworkDown};
    [BrokenPipe, ConnectionAborted, ConnectionReset, NetworkDown].contains(&error.kind())
}

/// Writes until it cannot any more.
fn write_on(mut stream: &TcpStream, written: &AtomicUsize) {
    let bytes = vec![7; 65_536];
    let error = loop {
        match stream.write(&bytes) {
            Ok(count) => written.fetch_add(count, Ordering::Relaxed),
            Err(error) => break error,
        };
    };
    assert!(is_of_the_end(&error), "{error:?}");
}

/// Reads until it cannot any more.
fn read_on(mut stream: &TcpStream) {
    let mut bytes = vec![0; 65_536];
    let error = loop {
        match stream.read(&mut bytes) {
            Ok(0) => panic!("nobody has ended it"),
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(is_of_the_end(&error), "{error:?}");
}

fn abort_under_load(layouts: [&str; 2]) {
    let [(left, left_pool), (right_stack, right_pool)] = stacks(layouts);
    let listener = TcpListener::bind(&right_stack, right(80)).expect("a free port");
    let pairs: Vec<_> = (0..3 * EACH)
        .map(|_| {
            let client = TcpStream::connect(&left, right(80)).expect("it listens");
            (client, listener.accept().expect("a connection").0)
        })
        .collect();
    let (unread, written) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let udp = UdpSocket::bind(&right_stack, right(53)).expect("a free port");
    std::thread::scope(|scope| {
        let (written, unread) = (&written, &unread);
        // Both ways, with nobody who reads, and with nobody who writes.
        for (kind, (client, server)) in pairs.into_iter().enumerate().map(|(at, it)| (at % 3, it)) {
            let read = std::sync::Arc::new(server);
            let reader = std::sync::Arc::clone(&read);
            match kind {
                0 => {
                    scope.spawn(move || read_on(&reader));
                    scope.spawn(move || write_on(&client, written));
                }
                1 => {
                    scope.spawn(move || {
                        write_on(&client, unread);
                        drop(read);
                    });
                }
                _ => {
                    scope.spawn(move || read_on(&reader));
                    scope.spawn(move || read_on(&client));
                }
            }
        }
        scope.spawn(move || {
            let error = udp.recv_from(&mut [0; 10]).expect_err("nobody sends");
            assert!(is_of_the_end(&error), "{error:?}");
        });
        scope.spawn(move || {
            let error = listener.accept().expect_err("nobody connects");
            assert!(is_of_the_end(&error), "{error:?}");
        });
        scope.spawn(|| {
            let error = TcpStream::connect(&left, ("10.1.0.77", 80)).expect_err("nobody is there");
            assert!(is_of_the_end(&error) || error.kind() == ErrorKind::HostUnreachable);
        });
        until("bytes go over", || written.load(Ordering::Relaxed) > 8 << 20);
        until("nobody reads", || unread.load(Ordering::Relaxed) > EACH << 16);
        left.abort();
        // Nothing can be begun any more, and to end it again does nothing.
        let error = TcpStream::connect(&left, right(80)).expect_err("it has ended");
        assert!(is_of_the_end(&error), "{error:?}");
        left.abort();
        right_stack.abort();
    });
    for (stack, pool) in [(left, left_pool), (right_stack, right_pool)] {
        let started = Instant::now();
        drop(stack);
        assert!(started.elapsed() < PATIENCE);
        assert_eq!(pool.counters().outstanding_bytes, 0, "{layouts:?}");
    }
    until("all threads of the stacks end", || threads_of_stacks() == 0);
}

#[test]
fn every_call_comes_back_and_nothing_is_left_when_a_stack_is_ended_under_load() {
    for layouts in [["R1S2F1", "R1S3F1"], ["R2S0F0", "R2S0F0"], ["R2S2F1", "R2S4F1"]] {
        abort_under_load(layouts);
    }
}

/// What the table of errors says (`multidata`, "Errors").
#[test]
fn after_the_end_calls_say_that_the_network_is_down_and_a_bind_needs_no_network() {
    let [(left, _), (right, _)] = stacks(["R1S0F0"; 2]);
    let listener = TcpListener::bind(&left, "0.0.0.0:80").expect("a listener");
    let peer = pair::right(0);
    let socket = UdpSocket::bind(&left, "0.0.0.0:53").expect("a socket");
    let far = TcpListener::bind(&right, peer).expect("a listener");
    let peer = far.local_addr().expect("bound");
    let mut stream = TcpStream::connect(&left, peer).expect("it listens");
    left.abort();
    let kind = |outcome: std::io::Result<()>| outcome.map_err(|error| error.kind());
    let down = Err(ErrorKind::NetworkDown);
    assert_eq!(kind(listener.accept().map(drop)), down);
    assert_eq!(kind(TcpStream::connect(&left, peer).map(drop)), down);
    assert_eq!(kind(socket.recv_from(&mut [0; 9]).map(drop)), down);
    assert_eq!(kind(socket.send_to(&[0], peer).map(drop)), down);
    assert_eq!(kind(stream.write(&[0; 9]).map(drop)), down);
    assert_eq!(kind(stream.read(&mut [0; 9]).map(drop)), Err(ErrorKind::ConnectionAborted));
    let ended = stream.shutdown(std::net::Shutdown::Write);
    assert_eq!(kind(ended), Err(ErrorKind::NotConnected));
    assert_eq!(kind(TcpListener::bind(&left, "0.0.0.0:81").map(drop)), Ok(()));
    assert_eq!(kind(UdpSocket::bind(&left, "0.0.0.0:81").map(drop)), Ok(()));
}
