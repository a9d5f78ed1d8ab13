//! Addresses and groups with the Linux kernel as the neighbour, the server, the router and the
//! listener, in a network of the test's own.

mod kernel;

use kernel::{address, cidr};
use linux::{Interface, TapConfig};
use multidata::{
    AddressEvent, AddressOrigin, AddressState, BindOptions, ClaimPolicy, InterfaceConfig, Stack,
    TcpStream, UdpSocket,
};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockProtocol, SockType, setsockopt, socket, sockopt,
};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::process::ExitCode;
use std::time::{Duration, Instant};

const TESTS: &[kernel::Test] = &[
    ("an_address_of_the_kernel_is_found_to_be_taken", duplicates),
    ("an_address_is_leased_from_a_server_in_the_kernel", leased),
    ("an_address_is_formed_from_what_the_kernel_advertises", formed),
    ("an_address_is_leased_for_all_squeues", leased_for_all),
    ("an_address_is_formed_for_all_squeues", formed_for_all),
    ("datagrams_to_groups_reach_the_kernel_and_come_back", groups),
];

/// Longest time any step may take.
const PATIENCE: Duration = Duration::from_secs(15);

/// A stack over a TAP with the kernel at `.1`.
fn stack(network: u8, config: InterfaceConfig) -> (Stack, Interface) {
    stack_of(1, network, config)
}

/// As [`stack`], of so many squeues.
fn stack_of(squeues: usize, network: u8, config: InterfaceConfig) -> (Stack, Interface) {
    let (mut device, interface) = kernel::tap(&TapConfig::default(), network);
    let queue = device.queue(0).expect("it has one");
    let builder = Stack::builder().squeues(squeues).interface(queue, config);
    (builder.build().expect("a stack"), interface)
}

/// Asks again and again, until there is an answer.
fn wait<T>(what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = poll() {
            return found;
        }
        assert!(started.elapsed() < PATIENCE, "{what} did not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

// RFC 5227, 2.1.1 and RFC 4862, 5.4: against another implementation, which has the address.
fn duplicates() {
    let config = kernel::ours(51).claims(ClaimPolicy::Probe, ClaimPolicy::Probe);
    let (stack, interface) = stack(51, config);
    let station = interface.hardware_address().expect("it has one");
    for ipv6 in [false, true] {
        let taken = cidr(ipv6, 51, 1);
        stack.add_address(0, taken).expect("not one of ours yet");
        wait("the kernel's objection", || match stack.poll_address_event()? {
            AddressEvent::Duplicate(_, address, by) => {
                assert_eq!((address, by.0), (taken.address(), station.0));
                Some(())
            }
            _ => None,
        });
        let wanted = |address: IpAddr| address.is_ipv4() != ipv6;
        let ours = stack.wait_for_address(0, wanted, PATIENCE).expect("ours is free");
        assert_eq!(ours, cidr(ipv6, 51, 2));
    }
    // One of the link alone every interface with IPv6 has.
    let is_of_link = |address| matches!(address, IpAddr::V6(it) if it.is_unicast_link_local());
    let addresses = stack.interfaces().swap_remove(0).addresses;
    assert_eq!(addresses.iter().filter(|cidr| !is_of_link(cidr.address())).count(), 2);
}

/// A server of a few lines on a kernel socket: leases `.9` to whoever asks, `count` times.
fn serve(server: &std::net::UdpSocket, network: u8, count: usize) {
    let mut buffer = [0; 1_500];
    let mut acknowledged = 0;
    while acknowledged < count {
        let (len, from) = server.recv_from(&mut buffer).expect("the client asks");
        let request = &buffer[..len];
        assert_eq!(from.port(), 68);
        let answer = match request[242] {
            1 => 2,
            3 => 5,
            other => panic!("a message of type {other}"),
        };
        acknowledged += usize::from(answer == 5);
        let mut reply = vec![0; 236];
        reply[..3].copy_from_slice(&[2, 1, 6]);
        reply[4..8].copy_from_slice(&request[4..8]);
        reply[16..20].copy_from_slice(&[10, network, 0, 9]);
        reply[28..34].copy_from_slice(&request[28..34]);
        reply.extend([99, 130, 83, 99, 53, 1, answer, 54, 4, 10, network, 0, 1]);
        reply.extend([1, 4, 255, 255, 255, 0, 3, 4, 10, network, 0, 1, 51, 4, 0, 0, 14, 16]);
        reply.extend([6, 4, 10, network, 0, 53, 255]);
        server.send_to(&reply, (Ipv4Addr::BROADCAST, 68)).expect("the client's port");
    }
}

// RFC 2131, 3.1, over the kernel's UDP.
fn leased() {
    leased_by(1, 52);
}

fn leased_for_all() {
    leased_by(3, 55);
}

fn leased_by(squeues: usize, network: u8) {
    let config = InterfaceConfig::default().dhcp(multidata::dhcp::ClientConfig::default());
    let (stack, interface) = stack_of(squeues, network, config);
    let server = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::empty(), None);
    let server = server.expect("a socket");
    setsockopt(&server, sockopt::BindToDevice, &interface.name().into()).expect("root may");
    setsockopt(&server, sockopt::Broadcast, &true).expect("a setting");
    setsockopt(&server, sockopt::ReuseAddr, &true).expect("a setting");
    let any = nix::sys::socket::SockaddrIn::new(0, 0, 0, 0, 67);
    nix::sys::socket::bind(std::os::fd::AsRawFd::as_raw_fd(&server), &any).expect("a free port");
    let server = std::net::UdpSocket::from(server);
    server.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    std::thread::scope(|scope| {
        scope.spawn(|| serve(&server, network, 1));
        let got = stack.wait_for_address(0, |address| address.is_ipv4(), PATIENCE);
        assert_eq!(got.expect("a lease"), cidr(false, network, 9));
    });
    let status = &stack.interfaces()[0];
    assert_eq!(status.address_status[0].origin, AddressOrigin::Dhcp);
    assert_eq!(status.name_servers, [address(false, network, 53)]);
    talks(&stack, address(false, network, 1), address(false, network, 9));
    stack.remove_address(0, address(false, network, 9)).expect("ours");
    let mut buffer = [0; 1_500];
    let (_, from) = server.recv_from(&mut buffer).expect("it is given back");
    assert_eq!((buffer[242], from.ip()), (7, address(false, network, 9)));
    let refused =
        TcpStream::connect_timeout(&stack, &(address(false, network, 1), 1).into(), PATIENCE);
    assert!(refused.is_err(), "no squeue has the address any more");
}

/// A connection from each squeue of the stack to a kernel socket, which sees `from`.
fn talks(stack: &Stack, kernel: IpAddr, from: IpAddr) {
    let listener = std::net::TcpListener::bind((kernel, 0)).expect("the kernel's address");
    let to = listener.local_addr().expect("bound");
    // They are opened in each in turn.
    for _ in 0..stack.squeue_counters().len() {
        let mut ours = TcpStream::connect_timeout(stack, &to, PATIENCE).expect("a route");
        let (mut theirs, peer) = listener.accept().expect("connected");
        assert_eq!(peer.ip(), from);
        ours.write_all(b"over the new address").expect("open");
        let mut bytes = [0; 20];
        theirs.read_exact(&mut bytes).expect("open");
        assert_eq!(&bytes, b"over the new address");
    }
    let opened = stack.squeue_counters().into_iter().map(|it| it.stack.shard.connections_opened);
    assert!(opened.clone().all(|count| count > 0), "{:?}", opened.collect::<Vec<_>>());
}

// RFC 4861, 6.3.4 and RFC 4862, 5.5.3, from a raw socket of the kernel.
fn formed() {
    formed_by(1, 53);
}

fn formed_for_all() {
    formed_by(3, 56);
}

fn formed_by(squeues: usize, network: u8) {
    let (stack, interface) = stack_of(squeues, network, InterfaceConfig::default().slaac());
    let prefix = format!("2001:db8:{network}::").parse::<Ipv6Addr>().expect("an address");
    let kernel = format!("2001:db8:{network}::1").parse().expect("an address");
    interface.add_address(kernel, 128).expect("root of the namespace");
    let local = wait("the link-local address", || {
        let status = stack.interfaces().remove(0).address_status;
        let settled = status.iter().find(|status| status.state == AddressState::Preferred)?;
        assert_eq!(settled.origin, AddressOrigin::LinkLocal);
        Some(settled.cidr.address())
    });
    let IpAddr::V6(local) = local else { panic!("an IPv6 address") };
    let icmp = socket(AddressFamily::Inet6, SockType::Raw, SockFlag::empty(), SockProtocol::IcmpV6);
    let icmp = icmp.expect("root of its own network may");
    setsockopt(&icmp, sockopt::Ipv6Ttl, &255).expect("a setting");
    let icmp = std::net::UdpSocket::from(icmp);
    // Lifetime 1800 s, and a prefix that is on the link and forms addresses.
    let mut message = vec![134, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0];
    message.extend([3, 4, 64, 0xc0, 0, 0, 14, 16, 0, 0, 7, 8, 0, 0, 0, 0]);
    message.extend(prefix.octets());
    let to = SocketAddrV6::new(local, 0, 0, interface.index());
    let wanted = |address: IpAddr| address.is_ipv6();
    let started = Instant::now();
    let got = loop {
        // The kernel's own link-local address may not be ready yet.
        let _ = icmp.send_to(&message, to);
        match stack.wait_for_address(0, wanted, Duration::from_millis(300)) {
            Ok(got) => break got.address(),
            Err(error) => assert!(started.elapsed() < PATIENCE, "{error}"),
        }
    };
    let IpAddr::V6(got) = got else { panic!("an IPv6 address") };
    assert_eq!(got.octets()[..8], prefix.octets()[..8]);
    // The kernel has no route back to a prefix it does not have on the link.
    let back = format!("2001:db8:{network}::2").parse().expect("an address");
    interface.add_address(back, 64).expect("root of the namespace");
    talks(&stack, kernel, got.into());
}

// RFC 1112, 6 and RFC 2464, 7: the kernel's sockets as listener and as sender.
fn groups() {
    let (stack, interface) = stack(54, kernel::ours(54));
    for ipv6 in [false, true] {
        let group: IpAddr =
            if ipv6 { "ff05::54:1" } else { "239.54.1.2" }.parse().expect("a group");
        let any = SocketAddr::new(if ipv6 { "::" } else { "0.0.0.0" }.parse().expect("any"), 5_400);
        let kernel = std::net::UdpSocket::bind(any).expect("a free port");
        kernel.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        match (group, address(ipv6, 54, 1)) {
            (IpAddr::V4(group), IpAddr::V4(own)) => {
                kernel.join_multicast_v4(&group, &own).expect("the TAP");
            }
            (IpAddr::V6(group), _) => {
                kernel.join_multicast_v6(&group, interface.index()).expect("the TAP");
            }
            _ => unreachable!("of one family"),
        }
        let shared = BindOptions { shared: true, ..BindOptions::default() };
        let listeners = [0, 1].map(|_| {
            let listener = UdpSocket::bind_with(&stack, any, shared).expect("a shared port");
            listener.join_multicast(group, None, &[]).expect("room");
            listener.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            listener
        });
        let to = SocketAddr::new(group, 5_400);
        let sender = UdpSocket::bind(&stack, (address(ipv6, 54, 2), 0)).expect("a port");
        sender.send_to(b"to the kernel", to).expect("the TAP");
        let mut buffer = [0; 100];
        let (len, from) = kernel.recv_from(&mut buffer).expect("the kernel listens");
        assert_eq!((&buffer[..len], from.ip()), (&b"to the kernel"[..], address(ipv6, 54, 2)));
        for listener in &listeners {
            let (len, _) = listener.recv_from(&mut buffer).expect("looped");
            assert_eq!(&buffer[..len], b"to the kernel");
        }
        let sender = std::net::UdpSocket::bind((address(ipv6, 54, 1), 0)).expect("a port");
        if ipv6 {
            setsockopt(&sender, sockopt::Ipv6MulticastHops, &1).expect("a setting");
        }
        let to = match group {
            IpAddr::V6(group) => SocketAddrV6::new(group, 5_400, 0, interface.index()).into(),
            IpAddr::V4(_) => to,
        };
        sender.send_to(b"to the stack", to).expect("the TAP");
        for listener in &listeners {
            let (len, from) = listener.recv_from(&mut buffer).expect("the stack listens");
            assert_eq!((&buffer[..len], from.ip()), (&b"to the stack"[..], address(ipv6, 54, 1)));
        }
        listeners[0].leave_multicast(group, None).expect("joined");
    }
    assert!(stack.counters().stack.shard.group_reports >= 4);
}

fn main() -> ExitCode {
    kernel::run(TESTS, kernel::enter_with_tun)
}
