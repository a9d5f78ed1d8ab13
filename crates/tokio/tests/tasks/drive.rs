//! Stacks that tokio runs: in the place of the stack's threads, for as long as the runtime is there.
//!
//! Their device is a UDP tunnel over loopback, which takes neither root nor a namespace.

use crate::pair::{self, connected, exchange, transact};
use linux::{TunnelConfig, TunnelDevice};
use multidata::device::transform::Null;
use multidata::{InterfaceConfig, RuntimeCounters, Stack};
use multidata_tokio::{TcpStream, drive};
use std::future::Future;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Builder, Runtime};

/// Longest time a step may take.
const PATIENCE: Duration = Duration::from_secs(30);

fn device(socket: UdpSocket, peer: SocketAddr) -> impl multidata::device::Queue {
    let tunnel = TunnelDevice::over(socket, peer, Box::new(Null), TunnelConfig::default());
    tunnel.expect("a tunnel").queue(0).expect("it has one")
}

fn stack(socket: UdpSocket, peer: SocketAddr, address: &str) -> Stack {
    let interface = InterfaceConfig::new(address.parse().expect("an address"));
    Stack::builder().interface(device(socket, peer), interface).build().expect("a stack")
}

/// Two stacks, at 10.1.0.1 and 10.1.0.2, and where the ends of the tunnel are.
fn tunnelled() -> (Stack, Stack, [SocketAddr; 2]) {
    let [near, far] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").expect("loopback"));
    let [left, right] = [&near, &far].map(|socket| socket.local_addr().expect("bound"));
    (stack(near, right, "10.1.0.1/24"), stack(far, left, "10.1.0.2/24"), [left, right])
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

async fn in_time<T>(step: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, step).await.expect("nobody was woken")
}

fn counted(stack: &Stack) -> RuntimeCounters {
    stack.counters().runtime
}

#[test]
fn a_stack_is_run_by_the_tasks_own_thread_and_its_own_stands_aside() {
    let (left, right, _) = tunnelled();
    runtime().block_on(in_time(async {
        drive(&left).expect("a tunnel can be watched");
        drive(&right).expect("a tunnel can be watched");
        let (mut client, server) = connected(&left, &right).await;
        // The threads find out that they are not needed.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let before = [&left, &right].map(counted);
        let _server = transact(&mut client, server, 200).await;
        for (stack, before) in [&left, &right].into_iter().zip(before) {
            let after = counted(stack);
            let turns = after.worker_turns - before.worker_turns;
            assert!(turns < 50, "{turns} turns of the stack's own thread in 200 transactions");
            let waits = after.leader_waits - before.leader_waits;
            assert!(waits >= 100, "the driver waited {waits} times");
        }
    }));
}

#[test]
fn streams_both_ways_arrive_equal() {
    let (left, right, _) = tunnelled();
    runtime().block_on(in_time(async {
        drive(&left).expect("a tunnel can be watched");
        drive(&right).expect("a tunnel can be watched");
        let (client, server) = connected(&left, &right).await;
        exchange(client, server, 3_000_000).await;
    }));
}

/// The acknowledgment of a byte that nothing answers is delayed; nobody but the driver's timer sends it.
#[test]
fn timers_go_off_where_nothing_comes() {
    let (left, right, _) = tunnelled();
    runtime().block_on(in_time(async {
        drive(&left).expect("a tunnel can be watched");
        drive(&right).expect("a tunnel can be watched");
        let (mut client, server) = connected(&left, &right).await;
        // Past the quick acknowledgments of a connection's beginning.
        let _server = transact(&mut client, server, 50).await;
        let before = counted(&right).worker_turns;
        for _ in 0..5 {
            client.write_all(b"?").await.expect("it is open");
            let began = Instant::now();
            while client.socket().info().expect("it is open").unacknowledged_bytes > 0 {
                assert!(began.elapsed() < Duration::from_secs(5), "no acknowledgment came");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        assert!(counted(&right).worker_turns - before < 5, "the stack's own thread sent it");
    }));
}

/// An echo by blocking calls, on a thread of its own.
fn echo(stack: &Stack) -> std::thread::JoinHandle<()> {
    let listener = multidata::TcpListener::bind(stack, pair::right(7)).expect("a free port");
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("it came");
        stream.set_read_timeout(Some(PATIENCE)).expect("it is open");
        let mut byte = [0; 1];
        while stream.read(&mut byte).expect("it is open") > 0 {
            stream.write_all(&byte).expect("it is open");
        }
    })
}

#[test]
fn threads_wait_for_their_sockets_as_ever() {
    let (left, right, _) = tunnelled();
    let blocking = echo(&right);
    runtime().block_on(in_time(async {
        drive(&left).expect("a tunnel can be watched");
        drive(&right).expect("a tunnel can be watched");
        let mut client = TcpStream::connect(&left, pair::right(7)).await.expect("it listens");
        for _ in 0..200 {
            let mut byte = [0; 1];
            client.write_all(b"x").await.expect("it is open");
            client.read_exact(&mut byte).await.expect("it is echoed");
        }
        client.shutdown().await.expect("it is open");
        let ended = tokio::task::spawn_blocking(|| blocking.join());
        ended.await.expect("it was waited for").expect("the echo ended");
    }));
}

/// As a runtime of one thread between two calls of `block_on`.
#[test]
fn a_loop_that_does_not_run_holds_nobody_up_for_long() {
    let (left, right, _) = tunnelled();
    let blocking = echo(&right);
    let idle = runtime();
    idle.block_on(in_time(async {
        drive(&left).expect("a tunnel can be watched");
        drive(&right).expect("a tunnel can be watched");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }));
    let mut client = multidata::TcpStream::connect(&left, pair::right(7)).expect("it listens");
    client.set_read_timeout(Some(PATIENCE)).expect("it is open");
    for _ in 0..10 {
        let mut byte = [0; 1];
        client.write_all(b"x").expect("it is open");
        client.read_exact(&mut byte).expect("it is echoed");
    }
    drop(client);
    blocking.join().expect("the echo ended");
    drop(idle);
}

#[test]
fn the_stacks_own_threads_go_on_where_the_runtime_is_gone() {
    let (left, right, _) = tunnelled();
    let first = runtime();
    let (client, server) = first.block_on(in_time(async {
        drive(&left).expect("a tunnel can be watched");
        drive(&right).expect("a tunnel can be watched");
        let (mut client, mut server) = connected(&left, &right).await;
        server = transact(&mut client, server, 1).await;
        (client, server)
    }));
    drop(first);
    let before = counted(&right).worker_turns;
    let (mut client, server) = (client, server);
    runtime().block_on(in_time(async {
        let _server = transact(&mut client, server, 20).await;
    }));
    assert!(counted(&right).worker_turns > before, "somebody else ran it");
}

#[test]
fn the_driver_ends_with_the_stack_and_does_not_keep_it() {
    let (left, right, _) = tunnelled();
    runtime().block_on(in_time(async {
        drive(&left).expect("a tunnel can be watched");
        drive(&right).expect("a tunnel can be watched");
        let (mut client, mut server) = connected(&left, &right).await;
        server = transact(&mut client, server, 1).await;
        let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
        assert_eq!(tasks(), 2, "a driver each");
        let began = Instant::now();
        drop((client, server));
        let ended = tokio::task::spawn_blocking(move || {
            (left.shutdown(PATIENCE), right.shutdown(PATIENCE))
        });
        let (left, right) = ended.await.expect("neither panicked");
        left.expect("all was delivered");
        right.expect("all was delivered");
        while tasks() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    }));
}

/// By a task of the thread that watches the old one.
#[test]
fn a_device_is_replaced_under_its_driver() {
    let (left, right, [near, far]) = tunnelled();
    runtime().block_on(in_time(async {
        drive(&left).expect("a tunnel can be watched");
        drive(&right).expect("a tunnel can be watched");
        let (mut client, mut server) = connected(&left, &right).await;
        for _ in 0..3 {
            server = transact(&mut client, server, 1).await;
            // The old one has the address until it is gone, so another place is taken first.
            let spare = UdpSocket::bind("127.0.0.1:0").expect("loopback");
            left.replace_device(0, device(spare, far)).expect("it is of the same kind");
            let socket = UdpSocket::bind(near).expect("nobody has it any more");
            left.replace_device(0, device(socket, far)).expect("it is of the same kind");
        }
        let before = counted(&left).worker_turns;
        let _server = transact(&mut client, server, 200).await;
        let turns = counted(&left).worker_turns - before;
        assert!(turns < 50, "{turns} turns of the stack's own thread with the new device");
    }));
}

/// The driver has it to watch, and does not run meanwhile. It finds the next one that has the interface's place.
#[test]
fn a_removed_device_is_closed_and_the_next_one_driven() {
    let (left, right, [near, far]) = tunnelled();
    runtime().block_on(in_time(async {
        drive(&left).expect("a tunnel can be watched");
        drive(&right).expect("a tunnel can be watched");
        tokio::time::sleep(Duration::from_millis(5)).await;
        left.remove_interface(0).expect("it is there");
        let socket = UdpSocket::bind(near).expect("nobody has it any more");
        tokio::time::sleep(Duration::from_millis(50)).await;
        let interface = InterfaceConfig::new("10.1.0.1/24".parse().expect("an address"));
        left.add_interface(device(socket, far), interface).expect("it is as good");
        let (mut client, server) = connected(&left, &right).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        let before = counted(&left);
        let _server = transact(&mut client, server, 200).await;
        let turns = counted(&left).worker_turns - before.worker_turns;
        assert!(turns < 50, "{turns} turns of the stack's own thread with the new device");
    }));
}

/// As before there were drivers: whoever ends a stack may open its device.
#[test]
fn the_device_of_a_stack_is_closed_with_it() {
    let (left, _right, [near, _]) = tunnelled();
    runtime().block_on(in_time(async {
        drive(&left).expect("a tunnel can be watched");
        tokio::time::sleep(Duration::from_millis(5)).await;
        drop(left);
        UdpSocket::bind(near).expect("nobody has it any more");
    }));
}

/// Two would take each other's events.
#[test]
fn a_stack_is_driven_once_at_a_time() {
    let (left, _right, _) = tunnelled();
    let first = runtime();
    first.block_on(in_time(async {
        drive(&left).expect("a tunnel can be watched");
        tokio::time::sleep(Duration::from_millis(5)).await;
        let error = drive(&left).expect_err("it is driven");
        assert_eq!(error.kind(), ErrorKind::ResourceBusy, "{error}");
    }));
    let second = runtime();
    second.block_on(in_time(async {
        assert_eq!(drive(&left).expect_err("it is driven").kind(), ErrorKind::ResourceBusy);
    }));
    drop(first);
    second.block_on(in_time(async { drive(&left).expect("nobody drives it any more") }));
}
