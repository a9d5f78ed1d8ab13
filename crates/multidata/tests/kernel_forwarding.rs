//! The kernel's own sockets as the clients of a forwarder, over real TUN and TAP interfaces that all of a
//! namespace's traffic goes to, and as the outside that it relays to.

mod kernel;

use device::TransmitMode;
use ip::{Cidr, IcmpErrorKind};
use linux::{TapConfig, TapDevice, TapKind};
use multidata::{Stack, TcpForwarder};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;

const TESTS: &[kernel::Test] = &[
    ("a_kernel_client_behind_a_tun_reaches_any_address", by_tun),
    ("a_kernel_client_behind_a_tap_reaches_any_address", by_tap),
];

/// To a relay a port that nobody reaches; port 80 is outside, and the others are closed.
const UNREACHABLE: u16 = 113;

fn main() -> ExitCode {
    kernel::run(TESTS, kernel::enter_with_tun)
}

/// A stack at `.2` of a network that the namespace sends everything to, the kernel being `.1`.
fn stack(kind: TapKind, network: u8) -> (Stack, TapDevice) {
    let config = TapConfig { kind, ..TapConfig::default() };
    let (mut device, interface) = kernel::tap(&config, network);
    let everywhere = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    for (any, ipv6) in everywhere.into_iter().zip([false, true]) {
        let gateway = (kind == TapKind::Tap).then(|| kernel::address(ipv6, network, 2));
        interface.add_route(any, 0, gateway).expect("the only one");
    }
    let config = kernel::ours(network)
        .mode(TransmitMode::Lso)
        .accept_any(Cidr::ANY_IPV4)
        .accept_any(Cidr::ANY_IPV6);
    let queue = device.queue(0).expect("it has one");
    (Stack::builder().interface(queue, config).build().expect("a stack"), device)
}

/// A kernel socket on another side, which turns its stream round.
fn outside() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            std::thread::spawn(move || {
                let mut reader = stream.try_clone().expect("a handle");
                std::io::copy(&mut reader, &mut stream).expect("the relay reads");
            });
        }
    });
    address
}

/// Relays port 80 of everything to `outside`, and refuses the rest.
fn relay(stack: &Stack, prefix: Cidr, outside: SocketAddr) {
    let forwarder = TcpForwarder::bind(stack, prefix, 64).expect("it is accepted");
    std::thread::spawn(move || {
        while let Ok(pending) = forwarder.next() {
            match pending.destination().port() {
                80 => {}
                UNREACHABLE => {
                    pending.refuse_with(IcmpErrorKind::HostUnreachable);
                    continue;
                }
                _ => {
                    pending.refuse();
                    continue;
                }
            }
            let outer = TcpStream::connect(outside).expect("it listens");
            let inner = pending.accept().expect("the kernel waits");
            let (mut from, mut to) =
                (inner.try_clone().expect("a handle"), outer.try_clone().expect("a handle"));
            std::thread::spawn(move || {
                std::io::copy(&mut from, &mut to).expect("the outside reads");
                to.shutdown(Shutdown::Write).expect("it is open");
            });
            std::thread::spawn(move || {
                let (mut from, mut to) = (outer, inner);
                std::io::copy(&mut from, &mut to).expect("the kernel reads");
                to.shutdown(Shutdown::Write).expect("it is open");
            });
        }
    });
}

fn relayed(kind: TapKind, network: u8) {
    let (stack, _device) = stack(kind, network);
    let outside = outside();
    for (prefix, to, closed) in [
        (Cidr::ANY_IPV4, "93.184.215.14:80", "93.184.215.14:81"),
        (Cidr::ANY_IPV6, "[2606:2800:21f::1]:80", "[2606:2800:21f::1]:81"),
    ] {
        relay(&stack, prefix, outside);
        let mut client = TcpStream::connect(to).expect("it is relayed");
        assert_eq!(client.peer_addr().expect("open"), to.parse().expect("an address"));
        let sent: Vec<u8> = (0..3_000_000_u32).map(|at| (at >> 5) as u8).collect();
        let mut writer = client.try_clone().expect("a handle");
        let (bytes, mut echo) = (sent.clone(), Vec::new());
        let writing = std::thread::spawn(move || {
            writer.write_all(&bytes).expect("the relay reads");
            writer.shutdown(Shutdown::Write).expect("it is open");
        });
        client.read_to_end(&mut echo).expect("the relay writes");
        writing.join().expect("it ran");
        assert!(echo == sent, "the stream came back otherwise");
        let refused = TcpStream::connect(closed).expect_err("the relay said no");
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{closed}");
        let mut unreachable: SocketAddr = closed.parse().expect("an address");
        unreachable.set_port(UNREACHABLE);
        let refused = TcpStream::connect(unreachable).expect_err("the relay said why");
        assert_eq!(refused.kind(), ErrorKind::HostUnreachable, "{unreachable}");
    }
    let counters = stack.counters().stack.shard;
    assert_eq!(counters.forwards_accepted, 2);
    // Linux asks once more where the error is there before its `connect` has let go of the socket.
    assert!((4..=6).contains(&counters.forwards_refused), "{}", counters.forwards_refused);
}

fn by_tun() {
    relayed(TapKind::Tun, 71);
}

fn by_tap() {
    relayed(TapKind::Tap, 72);
}
