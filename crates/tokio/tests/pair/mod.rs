//! Two stacks joined by a wire, and a connection between them.

// Every test binary uses its own part of this.
#![allow(dead_code)]

use multidata::device::{HardwareAddress, Medium, WireConfig, WireEnd, wire};
use multidata::{InterfaceConfig, Stack, StackConfig};
use multidata_tokio::{TcpListener, TcpStream};
use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Longest time a test may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Two stacks, at 10.1.0.1 and 10.1.0.2.
pub(crate) fn pair() -> (Stack, Stack) {
    pair_with_squeues(1)
}

/// The same, the right one with as many squeues.
pub(crate) fn pair_with_squeues(count: usize) -> (Stack, Stack) {
    pair_with(&StackConfig::default(), count)
}

/// The same, with these settings of both.
pub(crate) fn pair_with(config: &StackConfig, count: usize) -> (Stack, Stack) {
    let end = |last| WireEnd::plain(Medium::Ethernet(HardwareAddress([2, 0, 0, 0, 0, last])));
    let (left, right) = wire(WireConfig::new(end(1), end(2)));
    let build = |queue, address: &str, squeues| {
        let interface = InterfaceConfig::new(address.parse().expect("an address"));
        let builder = Stack::builder().config(config.clone()).squeues(squeues);
        builder.interface(queue, interface).build().expect("a stack")
    };
    (build(left, "10.1.0.1/24", 1), build(right, "10.1.0.2/24", count))
}

/// An address of the right stack.
pub(crate) fn right(port: u16) -> SocketAddr {
    SocketAddr::from(([10, 1, 0, 2], port))
}

/// A connection from the left stack to the right one.
pub(crate) async fn connected(left: &Stack, right_stack: &Stack) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(right_stack, right(0)).expect("a free port");
    let address = listener.local_addr().expect("bound");
    let (client, accepted) = tokio::join!(TcpStream::connect(left, address), listener.accept());
    let (server, peer) = accepted.expect("the connection is there");
    let client = client.expect("the listener is there");
    assert_eq!(peer, client.local_addr().expect("connected"));
    (client, server)
}

/// A byte there and one back, so often. Each end is a task of its own that sleeps until its byte is there.
pub(crate) async fn transact(client: &mut TcpStream, server: TcpStream, count: usize) -> TcpStream {
    let mut server = server;
    let answering = tokio::spawn(async move {
        let mut byte = [0; 1];
        for _ in 0..count {
            server.read_exact(&mut byte).await.expect("it was sent");
            tokio::time::sleep(Duration::from_millis(1)).await;
            server.write_all(b"!").await.expect("it is open");
        }
        server
    });
    for _ in 0..count {
        tokio::task::yield_now().await;
        let mut byte = [0; 1];
        client.write_all(b"?").await.expect("it is open");
        client.read_exact(&mut byte).await.expect("it was sent");
        assert_eq!(&byte, b"!");
    }
    answering.await.expect("it answered")
}

/// Both ends write and read so many bytes at the same time.
pub(crate) async fn exchange(client: TcpStream, server: TcpStream, len: usize) {
    let ends = [client, server].map(|stream| {
        tokio::spawn(async move {
            let sent = bytes(7, len);
            let (mut reader, mut writer) = stream.into_split();
            let expected = sent.clone();
            let writing = tokio::spawn(async move {
                writer.write_all(&sent).await.expect("the other end reads");
            });
            let mut arrived = vec![0; len];
            reader.read_exact(&mut arrived).await.expect("the other end writes");
            assert!(arrived == expected, "the stream came otherwise");
            writing.await.expect("it wrote");
        })
    });
    for end in ends {
        end.await.expect("no end failed");
    }
}

/// Runs tasks on two threads. A task that is not woken fails the test instead of hanging it.
pub(crate) fn run(test: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_time().build().expect("a runtime");
    runtime.block_on(async {
        tokio::time::timeout(PATIENCE, test).await.expect("a task was not woken");
    });
}

/// The byte at `position` of stream `seed`.
pub(crate) fn byte(seed: usize, position: usize) -> u8 {
    let word = (position as u64 / 8 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed as u64;
    (word.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> (position % 8 * 8)) as u8
}

/// A stream's first bytes.
pub(crate) fn bytes(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|position| byte(seed, position)).collect()
}
