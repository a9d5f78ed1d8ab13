//! Long datagrams, narrow paths and header options with the Linux kernel as the peer, and as the router
//! between two stacks, in a network of the test's own.

mod kernel;
mod pair;

use device::Queue as _;
use kernel::address;
use linux::{Interface, TapConfig};
use multidata::{ConnectOptions, MtuDiscovery, Stack, TcpListener, TcpStream, UdpSocket};
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const TESTS: &[kernel::Test] = &[
    ("long_datagrams_reach_the_kernel_and_come_back", long_datagrams),
    ("long_pings_are_answered", long_pings),
    ("connections_find_the_narrow_link_behind_a_router", narrow_link_for_connections),
    ("datagrams_find_the_narrow_link_behind_a_router", narrow_link_for_datagrams),
    ("connections_with_header_options_reach_the_kernel", header_options_of_connections),
    ("datagrams_with_header_options_reach_the_kernel", header_options_of_datagrams),
];

/// Longest time any step may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// A stack at `.2` of a network, over a TAP with the kernel at `.1`, which is its gateway.
fn stack(network: u8, offload: bool) -> (Stack, Interface) {
    let config = TapConfig { offload, ..TapConfig::default() };
    let (mut device, interface) = kernel::tap(&config, network);
    let config = kernel::ours(network)
        .gateway(address(false, network, 1))
        .gateway(address(true, network, 1));
    let queue = device.queue(0).expect("it has one");
    assert_eq!(queue.capabilities().mtu_bytes, 1_500);
    let builder = Stack::builder().interface(queue, config);
    (builder.build().expect("a stack"), interface)
}

/// Two stacks on networks of their own; the kernel forwards between them by its link to the second,
/// which is to become a narrow one.
fn routed() -> (Stack, Stack, Interface) {
    for path in ["/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding"] {
        std::fs::write(path, "1").expect("root of the namespace");
    }
    let (near, _) = stack(41, false);
    let (far, link) = stack(42, false);
    (near, far, link)
}

/// The link takes 1,300 bytes only from now on.
fn narrow(link: &Interface) {
    link.set_mtu_bytes(1_300).expect("root of the namespace");
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect()
}

// RFC 791, 3.2 and RFC 8200, 4.5, against another implementation, both ways.
fn long_datagrams() {
    for offload in [false, true] {
        let (stack, _interface) = stack(if offload { 32 } else { 31 }, offload);
        for ipv6 in [false, true] {
            let network = if offload { 32 } else { 31 };
            let kernel = std::net::UdpSocket::bind((address(ipv6, network, 1), 0));
            let kernel = kernel.expect("the kernel's address");
            kernel.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            let to = kernel.local_addr().expect("bound");
            let ours = UdpSocket::bind(&stack, (address(ipv6, network, 2), 4_000));
            let ours = ours.expect("a free port");
            ours.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            let from = ours.local_addr().expect("bound");
            let mut buffer = vec![0; 70_000];
            let longest = if ipv6 { 65_527 } else { 65_507 };
            for len in [1, 1_452, 1_472, 1_473, 5_000, 20_000, longest] {
                let sent = bytes(len);
                assert_eq!(ours.send_to(&sent, to).expect("a route"), len);
                let received = kernel.recv_from(&mut buffer);
                let (count, source) = received.unwrap_or_else(|error| {
                    panic!("{len} bytes, IPv6 {ipv6}, offload {offload}: {error}")
                });
                assert_eq!((&buffer[..count], source), (&*sent, from));
                kernel.send_to(&sent, from).expect("a route");
                let received = ours.recv_from(&mut buffer);
                let (count, source) = received.unwrap_or_else(|error| {
                    panic!("{len} bytes back, IPv6 {ipv6}, offload {offload}: {error}")
                });
                assert_eq!((&buffer[..count], source), (&*sent, to));
            }
        }
        let counters = stack.counters().stack;
        assert!(counters.shard.datagrams_fragmented >= 8);
        assert!(counters.shard.datagrams_reassembled >= 8);
    }
}

/// As `ping -s 5000`: what comes back is what was sent.
fn long_pings() {
    let (_stack, _interface) = stack(33, false);
    for ipv6 in [false, true] {
        let (family, protocol, kind) = match ipv6 {
            false => (AddressFamily::Inet, SockProtocol::Icmp, 8),
            true => (AddressFamily::Inet6, SockProtocol::IcmpV6, 128),
        };
        let icmp = socket(family, SockType::Raw, SockFlag::empty(), protocol);
        // The standard library's socket knows how to send and receive, whatever it carries.
        let icmp = std::net::UdpSocket::from(icmp.expect("root of its own network may"));
        icmp.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
        let mut request = vec![kind, 0, 0, 0, 0x12, 0x34, 0, 1];
        request.extend(bytes(5_000));
        if !ipv6 {
            // That of ICMPv6 the kernel fills in.
            let sum = !checksum::sum(&request);
            request[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        let started = Instant::now();
        let mut buffer = vec![0; 10_000];
        let answered = 'answered: loop {
            icmp.send_to(&request, (address(ipv6, 33, 2), 0)).expect("a route");
            while let Ok(len) = icmp.recv(&mut buffer) {
                let message = &buffer[if ipv6 { 0 } else { 20 }..len];
                let reply = if ipv6 { 129 } else { 0 };
                if message.len() == request.len() && message[0] == reply {
                    break 'answered message[4..] == request[4..];
                }
            }
            assert!(started.elapsed() < PATIENCE, "no answer, IPv6 {ipv6}");
        };
        assert!(answered, "other data came back, IPv6 {ipv6}");
    }
}

// RFC 1191 and RFC 8201: the kernel as router tells of the narrow link, and the stream gets through.
fn narrow_link_for_connections() {
    let (near, far, link) = routed();
    // The second stack sees its link become narrow, too, and would say so in a handshake.
    let connections = [false, true].map(|ipv6| {
        let listener = TcpListener::bind(&far, (address(ipv6, 42, 2), 0)).expect("a free port");
        let to = listener.local_addr().expect("bound");
        let client = TcpStream::connect(&near, to).expect("the kernel forwards");
        let (server, _) = listener.accept().expect("connected");
        (ipv6, client, server)
    });
    narrow(&link);
    for (ipv6, client, server) in connections {
        let len = 3_000_000;
        std::thread::scope(|scope| {
            scope.spawn(|| pair::send_pattern(&client, 7, len));
            pair::check_pattern(&server, 7, len);
        });
        // The way back takes no other MTU, but its sender is told by its own link.
        std::thread::scope(|scope| {
            scope.spawn(|| pair::send_pattern(&server, 8, 100_000));
            pair::check_pattern(&client, 8, 100_000);
        });
        let counters = near.counters().stack;
        assert_eq!(counters.shard.path_mtus_lowered, 1 + u64::from(ipv6));
        assert_eq!(counters.tcp.retransmission_timeouts, 0, "reports are acted on at once");
    }
}

fn narrow_link_for_datagrams() {
    let (near, far, link) = routed();
    narrow(&link);
    for ipv6 in [false, true] {
        let to = SocketAddr::new(address(ipv6, 42, 2), 4_000);
        let server = UdpSocket::bind(&far, to).expect("a free port");
        server.set_read_timeout(Some(Duration::from_millis(300))).expect("a timeout");
        let client = UdpSocket::bind(&near, (address(ipv6, 41, 2), 4_000)).expect("a free port");
        client.connect(to).expect("a route");
        client.set_mtu_discovery(MtuDiscovery::Do).expect("open");
        let sent = bytes(1_400);
        let started = Instant::now();
        // The first is lost on the way, and the router says so; then the socket refuses it.
        loop {
            match client.send(&sent) {
                Ok(_) => std::thread::sleep(Duration::from_millis(5)),
                Err(error) => break assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}"),
            }
            assert!(started.elapsed() < PATIENCE, "nobody reported the narrow link");
        }
        let error = client.send(&sent).expect_err("longer than the path takes");
        assert_eq!(error.to_string(), "the datagram is longer than the path takes");
        client.set_mtu_discovery(MtuDiscovery::Want).expect("open");
        let mut buffer = vec![0; 70_000];
        for len in [1_400, 30_000] {
            let sent = bytes(len);
            client.send(&sent).expect("it may be fragmented");
            let received = server.recv(&mut buffer);
            let count =
                received.unwrap_or_else(|error| panic!("{len} bytes, IPv6 {ipv6}: {error}"));
            assert_eq!(buffer[..count], sent);
        }
    }
}

/// Three places for routers, and the end of options as padding.
const RECORD_ROUTE: [u8; 16] = [7, 15, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const ROUTER_ALERT: [u8; 4] = [148, 4, 0, 0];

/// A socket of the kernel that sees what comes in of a protocol, with the network header.
fn raw(protocol: SockProtocol) -> std::net::UdpSocket {
    let raw = socket(AddressFamily::Inet, SockType::Raw, SockFlag::empty(), protocol);
    let raw = std::net::UdpSocket::from(raw.expect("root of its own network may"));
    raw.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    raw
}

// RFC 791, 3.1 against another implementation. To a record route the kernel answers with one of its
// own, so that its segments have options as well.
fn header_options_of_connections() {
    for offload in [false, true] {
        let network = if offload { 35 } else { 34 };
        let (stack, _interface) = stack(network, offload);
        let kernel = std::net::TcpListener::bind((address(false, network, 1), 0));
        let kernel = kernel.expect("the kernel's address");
        let to = kernel.local_addr().expect("bound");
        let with = |options: &[u8]| ConnectOptions {
            ip_options: options.to_vec(),
            ..ConnectOptions::default()
        };
        let source_route = with(&[131, 7, 4, 10, 0, 0, 1]);
        let refused = TcpStream::connect_with(&stack, to, &source_route);
        let refused = refused.expect_err("a source route");
        assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{refused}");
        for (options, seed) in [(&RECORD_ROUTE[..], 11), (&ROUTER_ALERT, 12), (&[1; 40], 13)] {
            let raw = raw(SockProtocol::Tcp);
            let client = TcpStream::connect_with(&stack, to, &with(options));
            let client = client.expect("the kernel listens");
            let (mut server, _) = kernel.accept().expect("connected");
            let (mut packet, mut syns) = ([0; 2_000], 0);
            // The SYN and the ACK of the SYN-ACK; what other connections left is not looked at.
            let port = client.local_addr().expect("connected").port().to_be_bytes();
            for _ in 0..2 {
                let len = raw.recv(&mut packet).expect("it came in");
                let (header, segment) = packet[..len].split_at(20 + options.len());
                assert_eq!((&header[20..21], &segment[..2]), (&options[..1], &port[..]));
                syns += usize::from(segment[13] & 2 != 0);
            }
            assert_eq!(syns, 1);
            drop(raw);
            std::thread::scope(|scope| {
                scope.spawn(|| pair::send_pattern(&client, seed, 400_000));
                let (mut pattern, mut received) = (pair::Pattern::new(seed), Vec::new());
                server.read_to_end(&mut received).expect("it sends");
                pattern.check(&received);
                assert_eq!(received.len(), 400_000);
                server.write_all(&received).expect("it reads");
                drop(server);
                pair::check_pattern(&client, seed, 400_000);
            });
        }
        let counters = stack.counters().stack;
        let alone = counters.refusals.count(counters::MultidataRefusal::IpOptions);
        assert!(alone > 3 * 400_000 / 1_448, "{alone}");
        assert_eq!(counters.tcp.retransmission_timeouts, 0);
    }
}

fn header_options_of_datagrams() {
    let (stack, _interface) = stack(36, false);
    let raw = raw(SockProtocol::Udp);
    let kernel =
        std::net::UdpSocket::bind((address(false, 36, 1), 0)).expect("the kernel's address");
    kernel.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let to = kernel.local_addr().expect("bound");
    let ours = UdpSocket::bind(&stack, (address(false, 36, 2), 4_000)).expect("a free port");
    let refused = ours.set_ip_options(&[148, 4]).expect_err("cut short");
    assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{refused}");
    let mut buffer = vec![0; 70_000];
    for options in [&ROUTER_ALERT[..], &[1; 40], &RECORD_ROUTE, &[]] {
        ours.set_ip_options(options).expect("harmless");
        for len in [1, 1_432, 20_000] {
            let sent = bytes(len);
            assert_eq!(ours.send_to(&sent, to).expect("a route"), len);
            let count = kernel.recv(&mut buffer).expect("it arrives");
            assert_eq!(buffer[..count], sent);
            let count = raw.recv(&mut buffer).expect("it arrives here, too");
            let header_len = usize::from(buffer[0] & 0xf) * 4;
            // The kernel may write where a route is to be recorded.
            let seen = &buffer[20..header_len];
            assert_eq!((seen.len(), seen.first()), (options.len(), options.first()));
            assert_eq!(buffer[header_len + 8..count], sent);
        }
    }
}

fn main() -> ExitCode {
    kernel::run(TESTS, kernel::enter_with_tun)
}
