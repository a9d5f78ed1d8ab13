//! Stacks that take nothing in for a while, because readers do not keep up with what came: nobody asks again and again
//! meanwhile.

use crate::pair::{self, PATIENCE, connected, right};
use batch::{BlockPool, PoolConfig};
use multidata::{InterfaceConfig, Stack, TcpListener, TcpStream};
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::time::{Duration, Instant};

/// Two stacks, and in the right one little room for what is unread, of which most is taken.
struct Hoarding {
    left: Stack,
    right: Stack,
    /// Nobody reads what came for these.
    _hoarders: Vec<(TcpStream, TcpStream)>,
}

impl Hoarding {
    /// What comes to the right stack comes by its second interface, or by its only one.
    fn new(by_second: bool) -> Self {
        const LIMIT_BYTES: usize = 2 << 20;
        let (near, far) = device::wire(pair::ethernet());
        let left = Stack::builder().interface(near, pair::interface(pair::LEFT));
        let config = PoolConfig {
            limit_bytes: 64 << 20,
            receive_reserve_bytes: 16 << 20,
            streams_limit_bytes: Some(LIMIT_BYTES),
            ..PoolConfig::default()
        };
        let mut right_stack = Stack::builder().pool(BlockPool::new(config));
        if by_second {
            let apart = InterfaceConfig::new("10.9.0.1/24".parse().expect("an address"));
            right_stack = right_stack.interface(device::wire(pair::ethernet()).0, apart);
        }
        let right_stack = right_stack.interface(far, pair::interface(pair::RIGHT));
        let (left, right_stack) =
            (left.build().expect("a stack"), right_stack.build().expect("a stack"));
        let listener = TcpListener::bind(&right_stack, right(100)).expect("a free port");
        let hoarders: Vec<_> = (0..40)
            .map(|_| {
                let client = TcpStream::connect(&left, right(100)).expect("it listens");
                client.set_nonblocking(true).expect("a socket");
                (client, listener.accept().expect("a connection").0)
            })
            .collect();
        let started = Instant::now();
        while right_stack.gauges().streams_bytes <= LIMIT_BYTES as u64 / 8 * 7 {
            for (client, _) in &hoarders {
                let mut client = client;
                drop(client.write(&[7; 16_384]));
            }
            assert!(started.elapsed() < PATIENCE, "{}", right_stack.gauges().streams_bytes);
        }
        std::thread::sleep(Duration::from_millis(50));
        Self { left, right: right_stack, _hoarders: hoarders }
    }

    fn connected(&self) -> (TcpStream, TcpStream) {
        connected(&self.left, &self.right)
    }

    /// Sends a little now and then, of which a third is read, or readers would not be waited for for long; says how many
    /// turns the right stack has had meanwhile, and how many of them took nothing in.
    fn turns(&self) -> (u64, u64) {
        let (client, server) = self.connected();
        client.set_nodelay(true).expect("a socket");
        let counts = || {
            let counters = self.right.counters().runtime;
            (counters.squeue_runs, counters.squeue_runs_inhibited)
        };
        let (before, started) = (counts(), Instant::now());
        while started.elapsed() < Duration::from_millis(400) {
            let (mut client, mut server) = (&client, &server);
            client.write_all(&[7; 30]).expect("room");
            server.read_exact(&mut [0; 10]).expect("it came");
            std::thread::sleep(Duration::from_millis(1));
        }
        let after = counts();
        (after.0 - before.0, after.1 - before.1)
    }
}

/// For each frame, and each half of a millisecond, there may be a few.
fn check((turns, inhibited): (u64, u64)) {
    assert!(inhibited > 0, "of {turns}");
    assert!(turns < 5_000, "{turns}, of which {inhibited} took nothing in");
}

#[test]
fn who_watches_a_further_interface_does_not_spin() {
    let turns = Hoarding::new(true).turns();
    check(turns);
}

#[test]
fn threads_that_wait_for_other_connections_do_not_take_turns_at_it() {
    let pair = Hoarding::new(false);
    let idle: Vec<_> = (0..50).map(|_| pair.connected()).collect();
    let turns = std::thread::scope(|scope| {
        for (_, server) in &idle {
            scope.spawn(move || {
                let mut server = server;
                assert_eq!(server.read(&mut [0; 10]).expect("the end"), 0);
            });
        }
        std::thread::sleep(Duration::from_millis(50));
        let turns = pair.turns();
        for (client, _) in &idle {
            client.shutdown(Shutdown::Write).expect("open");
        }
        turns
    });
    check(turns);
}

#[test]
#[cfg(target_os = "linux")]
fn an_event_loop_is_told_to_wait() {
    use multidata::Turn;
    use std::sync::atomic::{AtomicBool, Ordering};
    let pair = Hoarding::new(false);
    let mut driver = pair.right.drivers().expect("it is watched").remove(0);
    let is_over = AtomicBool::new(false);
    let turns = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                match driver.turn() {
                    Turn::Again => std::thread::yield_now(),
                    Turn::Wait => std::thread::sleep(Duration::from_micros(500)),
                    Turn::Ended => return,
                }
            }
        });
        let turns = pair.turns();
        is_over.store(true, Ordering::Relaxed);
        turns
    });
    check(turns);
}
