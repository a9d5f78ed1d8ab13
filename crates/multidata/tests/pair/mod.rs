//! Two stacks joined by a wire, and data that can be checked without being kept.

// Every test binary uses its own part of this.
#![allow(dead_code)]

use device::{HardwareAddress, Medium, WireConfig, WireEnd};
use multidata::{InterfaceConfig, Stack, StackBuilder, TcpListener, TcpStream};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// Who waits longer than this waits in vain.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) const LEFT: &str = "10.1.0.1";
pub(crate) const RIGHT: &str = "10.1.0.2";

/// Whether something takes less than `limit` at one of five tries. A machine with much to do holds some of them
/// up; what waits for something that it should not wait for takes longer each time.
pub(crate) fn is_soon(limit: Duration, try_it: impl FnMut() -> Duration) -> bool {
    std::iter::repeat_with(try_it).take(5).any(|took| took < limit)
}

/// The settings of an interface at `address` on the wire's network.
pub(crate) fn interface(address: &str) -> InterfaceConfig {
    InterfaceConfig::new(format!("{address}/24").parse().expect("an address"))
}

/// A wire between two Ethernet interfaces without any offload.
pub(crate) fn ethernet() -> WireConfig {
    let end = |last| WireEnd::plain(Medium::Ethernet(HardwareAddress([2, 0, 0, 0, 0, last])));
    WireConfig::new(end(1), end(2))
}

/// The same with everything a wire in memory can spare.
pub(crate) fn offloading_ethernet() -> WireConfig {
    let end = |last| WireEnd::offloading(Medium::Ethernet(HardwareAddress([2, 0, 0, 0, 0, last])));
    WireConfig::new(end(1), end(2))
}

/// Two stacks with the settings that `configure` makes.
pub(crate) fn pair_with(configure: impl Fn(StackBuilder) -> StackBuilder) -> (Stack, Stack) {
    let (left, right) = device::wire(ethernet());
    let left = configure(Stack::builder()).interface(left, interface(LEFT)).build();
    let right = configure(Stack::builder()).interface(right, interface(RIGHT)).build();
    (left.expect("a stack"), right.expect("a stack"))
}

/// Two stacks.
pub(crate) fn pair() -> (Stack, Stack) {
    pair_with(|builder| builder)
}

/// An address of the right stack.
pub(crate) fn right(port: u16) -> SocketAddr {
    SocketAddr::new(RIGHT.parse().expect("an address"), port)
}

/// A connection from the left stack to the right one.
pub(crate) fn connected(left: &Stack, right_stack: &Stack) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(right_stack, right(0)).expect("a free port");
    let address = listener.local_addr().expect("bound");
    let client = TcpStream::connect(left, address).expect("the listener is there");
    let (server, peer) = listener.accept().expect("the connection is there");
    assert_eq!(peer, client.local_addr().expect("connected"));
    assert_eq!(client.peer_addr().expect("connected"), server.local_addr().expect("connected"));
    (client, server)
}

/// The bytes of a stream, made from a seed: the same position always holds the same byte.
pub(crate) struct Pattern {
    seed: u64,
    position: u64,
}

impl Pattern {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, position: 0 }
    }

    /// SplitMix64, so that no two words of a stream are likely to be equal.
    fn word(&self, index: u64) -> [u8; 8] {
        let mut word = self.seed ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)).to_le_bytes()
    }

    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        let mut word = self.word(self.position / 8);
        for byte in bytes {
            if self.position.is_multiple_of(8) {
                word = self.word(self.position / 8);
            }
            *byte = word[(self.position % 8) as usize];
            self.position += 1;
        }
    }

    /// Checks that `bytes` come next.
    pub(crate) fn check(&mut self, bytes: &[u8]) {
        let start = self.position;
        let mut expected = vec![0; bytes.len()];
        self.fill(&mut expected);
        if let Some(offset) = bytes.iter().zip(&expected).position(|(a, b)| a != b) {
            panic!("byte {} of the stream is wrong", start + offset as u64);
        }
    }
}

/// Writes `len` bytes of a pattern, in pieces of uneven sizes, and ends the stream.
pub(crate) fn send_pattern(mut stream: &TcpStream, seed: u64, len: u64) {
    let mut pattern = Pattern::new(seed);
    let mut buffer = vec![0; 150_000];
    let mut left = len;
    let mut size = 1;
    while left > 0 {
        size = (size * 7 + 13) % buffer.len() + 1;
        let piece = &mut buffer[..size.min(left.min(1 << 40) as usize)];
        pattern.fill(piece);
        stream.write_all(piece).expect("the peer reads");
        left -= piece.len() as u64;
    }
    stream.shutdown(std::net::Shutdown::Write).expect("connected");
}

/// Reads to the end of the stream and checks every byte and the length.
pub(crate) fn check_pattern(mut stream: &TcpStream, seed: u64, len: u64) {
    let mut pattern = Pattern::new(seed);
    let mut buffer = vec![0; 100_000];
    let mut total = 0;
    loop {
        let count = stream.read(&mut buffer).expect("the peer writes");
        if count == 0 {
            break;
        }
        pattern.check(&buffer[..count]);
        total += count as u64;
    }
    assert_eq!(total, len, "the stream ended early or late");
}

/// Moves `len` bytes each way over one connection at the same time, checked.
pub(crate) fn exchange(client: &TcpStream, server: &TcpStream, seed: u64, len: u64) {
    std::thread::scope(|scope| {
        scope.spawn(|| send_pattern(client, seed, len));
        scope.spawn(|| check_pattern(server, seed, len));
        scope.spawn(|| send_pattern(server, !seed, len));
        check_pattern(client, !seed, len);
    });
}

/// Runs one task on the calling thread. A task that is not woken for [`PATIENCE`] was forgotten.
pub(crate) fn run<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
    struct Unpark(Thread, AtomicUsize);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.1.store(1, Ordering::SeqCst);
            self.0.unpark();
        }
    }
    let unpark = Arc::new(Unpark(std::thread::current(), AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&unpark));
    loop {
        if let Poll::Ready(outcome) = poll(&mut Context::from_waker(&waker)) {
            return outcome;
        }
        let started = Instant::now();
        while unpark.1.swap(0, Ordering::SeqCst) == 0 {
            std::thread::park_timeout(PATIENCE);
            assert!(started.elapsed() < PATIENCE, "the task was not woken");
        }
    }
}
