//! Several squeues with the Linux kernel as the peer, over a TAP with as many queues and over one with
//! a single queue that they share, in a network of the test's own.

mod kernel;
mod pair;

use device::Queue;
use linux::{Interface, TapConfig};
use multidata::{InterfaceConfig, Layout, Stack, TcpListener, TcpStream, UdpSocket};
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::time::{Duration, Instant};

const TESTS: &[kernel::Test] = &[
    ("connections_from_the_kernel_are_spread", connections_in),
    ("connections_to_the_kernel_are_spread", connections_out),
    ("datagrams_of_any_length_find_their_socket", datagrams),
    ("pings_are_answered_once", pings),
    ("readers_who_do_not_come_leave_blocks_to_who_does", slow_readers),
];

/// Longest time any step may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Bytes of each connection, each way.
const LEN: u64 = 400_000;

fn address(network: u8, host: u8) -> IpAddr {
    kernel::address(false, network, host)
}

/// The layouts of connections' tests: one queue, one for each squeue, and one for each that is trusted.
const LAYOUTS: [&str; 3] = ["R1S2F1", "R2S2F1", "R2S0F0"];

/// A stack of two squeues at `.2`, the kernel at `.1`, over a TAP of so many queues.
fn stack(network: u8, queues: usize) -> (Stack, Interface) {
    stack_of(network, LAYOUTS[queues - 1])
}

fn stack_of(network: u8, layout: &str) -> (Stack, Interface) {
    let layout: Layout = layout.parse().expect("a layout");
    let queues = layout.rings().into();
    let config = TapConfig { queues, ..TapConfig::default() };
    let (mut device, interface) = kernel::tap(&config, network);
    let taken = (0..queues).map(|index| device.queue(index).expect("it has so many"));
    let taken = taken.map(|queue| Box::new(queue) as Box<dyn Queue>).collect();
    assert!(device.queue(0).is_err() && device.queue(queues).is_err());
    let config = InterfaceConfig::new(kernel::cidr(false, network, 2));
    let builder = Stack::builder().layout(layout).multiqueue_interface(taken, config);
    (builder.build().expect("a stack"), interface)
}

/// 64 connections that nobody reads, from the kernel, over a pool of 4 MiB that they may have; and another one.
fn slow_readers() {
    let (mut device, _interface) = kernel::tap(&TapConfig::default(), 59);
    let config = InterfaceConfig::new(kernel::cidr(false, 59, 2));
    let pool = batch::BlockPool::new(batch::PoolConfig {
        limit_bytes: 4 << 20,
        receive_reserve_bytes: 2 << 20,
        streams_limit_bytes: Some(usize::MAX),
        ..batch::PoolConfig::default()
    });
    let queue = device.queue(0).expect("it has one");
    let builder = Stack::builder().squeues(2).pool(pool.clone()).interface(queue, config);
    let stack = builder.build().expect("a stack");
    let to = SocketAddr::new(address(59, 2), 80);
    let listener = TcpListener::bind(&stack, to).expect("a free port");
    let connect = || {
        let theirs = std::net::TcpStream::connect(to).expect("it listens");
        (theirs, listener.accept().expect("a connection").0)
    };
    let unread: Vec<_> = (0..64).map(|_| connect()).collect();
    unread.iter().for_each(|(theirs, _)| theirs.set_nonblocking(true).expect("a socket"));
    let started = Instant::now();
    // Until what is kept for others is all that is left, but for blocks to receive into.
    while pool.counters().outstanding_bytes < (4 << 20) - (768 << 10) {
        for (theirs, _) in &unread {
            let mut theirs = theirs;
            drop(theirs.write(&[7; 65_536]));
        }
        std::thread::sleep(Duration::from_millis(1));
        let held = pool.counters().outstanding_bytes;
        assert!(started.elapsed() < PATIENCE, "{held} bytes are held");
    }
    let (theirs, ours) = connect();
    ours.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    std::thread::scope(|scope| {
        scope.spawn(|| (&theirs).write_all(&[9; 50_000]).expect("the stack takes it"));
        let mut received = vec![0; 50_000];
        (&ours).read_exact(&mut received).expect("others read nothing");
        assert!(received.iter().all(|byte| *byte == 9));
    });
    assert!(stack.counters().stack.shard.pool_pressures > 0);
}

fn is_spread(stack: &Stack, count: u64) {
    let of = |it: multidata::Counters| {
        it.stack.shard.connections_accepted + it.stack.shard.connections_opened
    };
    let counts: Vec<u64> = stack.squeue_counters().into_iter().map(of).collect();
    assert_eq!(counts.iter().sum::<u64>(), count, "{counts:?}");
    assert!(counts.iter().all(|of_one| *of_one > count / 8), "{counts:?}");
}

/// A TAP brings a flow by the queue that was written to last, and by one of its own choice before, and after three
/// seconds of silence.
fn follows(stack: &Stack, layout: &str) {
    let counters = stack.counters();
    let (frames, handed_on) =
        (counters.steering.sets.srs_tcp, counters.stack.shard.segments_handed_on);
    assert!(handed_on * 4 < frames, "{layout}: {handed_on} of {frames} went on");
    assert!(layout == "R2S0F0" || handed_on == 0, "{layout}: {handed_on} went on");
}

/// Sends the bytes of a seed and ends the stream; checks that the peer does the same.
fn exchange_with(mut stream: impl Read + Write, seed: u64, ends: impl Fn()) {
    let mut bytes = vec![0; LEN as usize];
    pair::Pattern::new(seed).fill(&mut bytes);
    stream.write_all(&bytes).expect("the peer reads");
    ends();
    let mut received = Vec::new();
    stream.read_to_end(&mut received).expect("the peer writes");
    assert_eq!(received.len() as u64, LEN);
    pair::Pattern::new(!seed).check(&received);
}

fn connections_in() {
    for (network, layout) in [51, 52, 60].into_iter().zip(LAYOUTS) {
        let (stack, _interface) = stack_of(network, layout);
        let to = SocketAddr::new(address(network, 2), 80);
        let listener = TcpListener::bind(&stack, to).expect("a free port");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..64 {
                    let (stream, _) = listener.accept().expect("a connection");
                    scope.spawn(move || {
                        pair::check_pattern(&stream, 1, LEN);
                        pair::send_pattern(&stream, !1, LEN);
                    });
                }
            });
            for _ in 0..64 {
                scope.spawn(move || {
                    let stream = std::net::TcpStream::connect(to).expect("it listens");
                    let ends = || stream.shutdown(std::net::Shutdown::Write).expect("connected");
                    exchange_with(&stream, 1, ends);
                });
            }
        });
        is_spread(&stack, 64);
        follows(&stack, layout);
    }
}

fn connections_out() {
    for (network, layout) in [53, 54, 61].into_iter().zip(LAYOUTS) {
        let (stack, _interface) = stack_of(network, layout);
        let listener = std::net::TcpListener::bind((address(network, 1), 0)).expect("the kernel");
        let to = listener.local_addr().expect("bound");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..32 {
                    let (stream, _) = listener.accept().expect("a connection");
                    scope.spawn(move || {
                        let ends = || stream.shutdown(std::net::Shutdown::Write).expect("open");
                        exchange_with(&stream, 2, ends);
                    });
                }
            });
            for _ in 0..32 {
                let stack = &stack;
                scope.spawn(move || {
                    let stream = TcpStream::connect(stack, to).expect("the kernel listens");
                    pair::check_pattern(&stream, 2, LEN);
                    pair::send_pattern(&stream, !2, LEN);
                });
            }
        });
        is_spread(&stack, 32);
        follows(&stack, layout);
    }
}

fn datagrams() {
    for (network, queues) in [(55, 1), (56, 2)] {
        let (stack, _interface) = stack(network, queues);
        let kernel = std::net::UdpSocket::bind((address(network, 1), 0)).expect("the kernel");
        kernel.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let to = kernel.local_addr().expect("bound");
        let mut buffer = vec![0; 70_000];
        for port in 4_000..4_012 {
            let ours = UdpSocket::bind(&stack, (address(network, 2), port)).expect("a free port");
            ours.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            for len in [1, 1_472, 20_000] {
                let mut sent = vec![0; len];
                pair::Pattern::new(u64::from(port)).fill(&mut sent);
                ours.send_to(&sent, to).expect("a route");
                // The write ring's completions may interrupt a call of the standard library.
                let (count, from) = loop {
                    match kernel.recv_from(&mut buffer) {
                        Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                        outcome => break outcome.expect("it was sent"),
                    }
                };
                assert_eq!((&buffer[..count], from.port()), (&*sent, port));
                kernel.send_to(&sent, from).expect("a route");
                let (count, source) = ours.recv_from(&mut buffer).expect("it was sent");
                assert_eq!((&buffer[..count], source), (&*sent, to));
            }
        }
    }
}

fn pings() {
    for (network, queues) in [(57, 1), (58, 2)] {
        let (stack, _interface) = stack(network, queues);
        let icmp =
            socket(AddressFamily::Inet, SockType::Raw, SockFlag::empty(), SockProtocol::Icmp);
        // The standard library's socket knows how to send and receive, whatever it carries.
        let icmp = std::net::UdpSocket::from(icmp.expect("root of its own network may"));
        icmp.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
        let mut buffer = [0; 2_000];
        for sequence in 0..20_u8 {
            let mut request = vec![8, 0, 0, 0, 0x12, 0x34, 0, sequence];
            request.extend([sequence; 56]);
            let sum = !checksum::sum(&request);
            request[2..4].copy_from_slice(&sum.to_be_bytes());
            let started = Instant::now();
            icmp.send_to(&request, (address(network, 2), 0)).expect("a route");
            loop {
                if let Ok(len) = icmp.recv(&mut buffer)
                    && buffer[20] == 0
                    && buffer[24..len] == request[4..]
                {
                    break;
                }
                assert!(started.elapsed() < PATIENCE, "no answer");
            }
        }
        assert_eq!(stack.counters().stack.shard.echo_replies, 20);
    }
}

fn main() -> ExitCode {
    kernel::run(TESTS, kernel::enter_with_tun)
}
