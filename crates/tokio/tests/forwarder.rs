//! The relay of `examples/forwarder` between a guest on a wire and the kernel's own sockets, in a network of
//! the test's own.

#[path = "../examples/forwarder/main.rs"]
#[allow(dead_code)]
mod forwarder;
#[path = "../../multidata/tests/kernel/mod.rs"]
mod kernel;

use forwarder::machines::{
    ABROAD, GATEWAY, GATEWAY_V6, LEASED, Machines, NAME_SERVER, NAME_SERVER_V6, PREFIX_V6,
    serve_machines,
};
use forwarder::{IN_FLIGHT_MAX, Policy, name_server, published, relay};
use linux::{Interface, StreamConfig, StreamDevice};
use multidata::device::{HardwareAddress, Medium, WireConfig, WireEnd, wire};
use multidata::dhcp::{CLIENT_PORT, ClientConfig, SERVER_PORT};
use multidata::ip::Cidr;
use multidata::{
    EchoAnswer, InterfaceConfig, RawSocket, Stack, TcpStream, UdpSocket, echo_request,
};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener};
use std::ops::RangeInclusive;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

const TESTS: &[kernel::Test] = &[
    ("connections_reach_the_outside_and_are_refused_as_it_refuses", connections),
    ("nothing_listens_at_the_relay_s_own_addresses", own_addresses),
    ("the_router_s_address_is_this_host_s_loopback_where_that_is_allowed", host_loopback),
    ("a_reset_is_a_reset_at_the_other_side", resets),
    (PINGS, pings),
    ("datagrams_that_the_outside_refuses_are_refused_inside", refused),
    ("datagrams_reach_the_outside_and_its_answers_come_back", datagrams),
    ("no_more_flows_of_datagrams_than_may_be", bounded),
    ("a_flow_of_datagrams_that_is_idle_is_forgotten", forgotten),
    ("a_question_for_a_name_is_forgotten_earlier", forgotten_question),
    ("virtual_machines_are_leased_addresses_and_reach_the_outside", machines),
    ("ports_of_this_host_lead_to_virtual_machines", ports),
    ("a_port_leads_to_whom_the_address_was_leased_to", leased_port),
    ("no_more_connections_to_a_port_wait_for_a_machine_than_may_be", waiting_ports),
    ("a_virtual_machine_that_comes_back_finds_the_same_router", same_router),
    ("virtual_machines_ask_the_name_server_of_the_outside", names),
    ("a_virtual_machine_beyond_the_addresses_waits_for_one", too_many),
    ("a_virtual_machine_that_floods_the_server_keeps_nobody_from_a_lease", flooded),
    ("virtual_machines_have_ipv6_and_a_way_out_where_this_host_has_one", machines_v6),
];

const PINGS: &str = "pings_reach_the_outside_and_its_answers_come_back";

/// Longest time any step may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Addresses of the outside (RFC 5737, RFC 3849).
const OUTSIDE: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
];

/// Where the outside has no way to.
const NOWHERE: [&str; 2] = ["203.0.113.1:80", "[2001:db8:1::1]:80"];

fn main() -> ExitCode {
    kernel::run(TESTS, || {
        kernel::enter()?;
        let inside = Interface::named("lo").map_err(|error| error.message)?;
        let mut addresses = OUTSIDE.into_iter().zip([32, 128]);
        let added = addresses.try_for_each(|(address, len)| inside.add_address(address, len));
        added.map_err(|error| error.message)
    })
}

/// A guest whose every way leads through a relay, which goes when the guest does.
fn guest(policy: Policy) -> Stack {
    let end = WireEnd::plain(Medium::Ip);
    let (queue, relayed) = wire(WireConfig::new(end, end));
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let relay = relay(relayed, Arc::new(Machines::new(LEASED)), policy);
        runtime.block_on(relay).expect_err("until the wire is gone");
    });
    let interface = InterfaceConfig::new("10.0.2.100/24".parse().expect("a network"))
        .address("fd00::100/64".parse().expect("a network"))
        .default_route();
    Stack::builder().interface(queue, interface).build().expect("a stack")
}

/// A datagram socket of the outside.
fn outside(address: IpAddr) -> (std::net::UdpSocket, SocketAddr) {
    let socket = std::net::UdpSocket::bind((address, 0)).expect("a free port");
    socket.set_read_timeout(Some(PATIENCE)).expect("not zero");
    let at = socket.local_addr().expect("bound");
    (socket, at)
}

fn inside(guest: &Stack, to: SocketAddr) -> UdpSocket {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind(guest, (any, 0)).expect("a free port");
    // Connected, it hears nobody but who was asked.
    socket.connect(to).expect("a route");
    socket.set_read_timeout(Some(PATIENCE)).expect("not zero");
    socket
}

fn connections() {
    let guest = guest(Policy::default());
    for address in OUTSIDE {
        let listener = TcpListener::bind((address, 0)).expect("a free port");
        let at = listener.local_addr().expect("bound");
        let echoing = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("it is relayed");
            let mut reader = stream.try_clone().expect("a handle");
            std::io::copy(&mut reader, &mut stream).expect("the relay reads");
        });
        let stream = TcpStream::connect(&guest, at).expect("it listens");
        let sent: Vec<u8> = (0..1_000_000_u32).map(|at| (at >> 4) as u8).collect();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (&stream).write_all(&sent).expect("the relay reads");
                stream.shutdown(Shutdown::Write).expect("open");
            });
            let mut echo = Vec::new();
            (&stream).read_to_end(&mut echo).expect("the relay writes");
            assert!(echo == sent, "{at}: it came back otherwise");
        });
        echoing.join().expect("it ran");
        let refused = TcpStream::connect(&guest, at).expect_err("nobody listens any more");
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    }
    for to in NOWHERE {
        let refused = TcpStream::connect(&guest, to).expect_err("no way leads there");
        assert_eq!(refused.kind(), ErrorKind::NetworkUnreachable, "{to}");
    }
}

fn own_addresses() {
    let guest = guest(Policy::default());
    // The outside has hosts of these addresses as well, which are not meant.
    let system = Interface::named("lo").expect("it is there");
    for address in [GATEWAY, NAME_SERVER] {
        system.add_address(address.into(), 32).expect("root of the namespace");
    }
    system.add_address(NAME_SERVER_V6.into(), 128).expect("root of the namespace");
    let own: [IpAddr; 3] = [GATEWAY.into(), NAME_SERVER.into(), NAME_SERVER_V6.into()];
    for address in own {
        let listener = TcpListener::bind((address, 0)).expect("a free port");
        let at = listener.local_addr().expect("bound");
        let refused = TcpStream::connect(&guest, at).expect_err("it is not relayed");
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{at}");
        let datagrams = std::net::UdpSocket::bind(at).expect("a free port");
        let client = inside(&guest, at);
        client.send(b"anybody?").expect("a route");
        let error = client.recv(&mut [0; 9]).expect_err("it is not relayed");
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{at}");
        datagrams.set_nonblocking(true).expect("a socket");
        let none = datagrams.recv(&mut [0; 9]).expect_err("nothing was relayed");
        assert_eq!(none.kind(), ErrorKind::WouldBlock, "{at}");
    }
}

fn host_loopback() {
    let guest = guest(Policy { host_loopback: true, ..Policy::default() });
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let port = listener.local_addr().expect("bound").port();
    let (_held, _) =
        (TcpStream::connect(&guest, (GATEWAY, port)).expect("it listens"), listener.accept());
    let refused =
        TcpStream::connect(&guest, (NAME_SERVER, port)).expect_err("that is not the router");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    let (datagrams, at) = outside(Ipv4Addr::LOCALHOST.into());
    inside(&guest, (GATEWAY, at.port()).into()).send(b"hello").expect("a route");
    assert_eq!(datagrams.recv(&mut [0; 9]).expect("it is relayed"), 5);
    let listener = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).expect("a free port");
    let port = listener.local_addr().expect("bound").port();
    TcpStream::connect(&guest, (GATEWAY_V6, port)).expect("it listens");
}

fn resets() {
    let guest = guest(Policy::default());
    let listener = TcpListener::bind((OUTSIDE[0], 0)).expect("a free port");
    let at = listener.local_addr().expect("bound");
    for is_outside in [true, false] {
        let inner = TcpStream::connect(&guest, at).expect("it listens");
        inner.set_read_timeout(Some(PATIENCE)).expect("not zero");
        let (outer, _) = listener.accept().expect("it is relayed");
        outer.set_read_timeout(Some(PATIENCE)).expect("not zero");
        let none = Some(Duration::ZERO);
        let mut bytes = [0; 5];
        let end = match is_outside {
            true => {
                (&outer).write_all(b"begun").expect("open");
                (&inner).read_exact(&mut bytes).expect("it came");
                socket2::SockRef::from(&outer).set_linger(none).expect("an option of TCP");
                drop(outer);
                (&inner).read(&mut bytes)
            }
            false => {
                (&inner).write_all(b"begun").expect("open");
                (&outer).read_exact(&mut bytes).expect("it came");
                inner.set_linger(none).expect("an option of TCP");
                drop(inner);
                (&outer).read(&mut bytes)
            }
        };
        let error = end.expect_err("no end of the stream");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "by the outside: {is_outside}");
    }
}

fn pings() {
    // Who may ping, of the groups of this namespace: its only one.
    if let Err(why) = std::fs::write("/proc/sys/net/ipv4/ping_group_range", "0 0") {
        return kernel::cannot_run(PINGS, &format!("ping_group_range: {why}"));
    }
    let guest = guest(Policy::default());
    let socket = RawSocket::bind_echo(&guest, 0).expect("free");
    socket.set_read_timeout(Some(PATIENCE)).expect("not zero");
    for (to, sequence) in OUTSIDE.into_iter().zip(7..) {
        let data = vec![3; 500];
        socket.send_to(&echo_request(to, sequence, &data), to).expect("a route");
        let mut message = [0; 2_000];
        let packet = socket.recv(&mut message).expect("the outside answers");
        assert_eq!(packet.source, to);
        let answer = EchoAnswer::parse(&packet, &message[..packet.len]);
        assert_eq!(answer, Some(EchoAnswer::Reply { sequence, data: &data }));
    }
}

fn refused() {
    let guest = guest(Policy::default());
    for address in OUTSIDE {
        // Nobody has the port any more.
        let (_, at) = outside(address);
        let client = inside(&guest, at);
        client.send(b"anybody?").expect("a route");
        let error = client.recv(&mut [0; 9]).expect_err("nobody is there");
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{at}");
    }
    // The system lets nobody send to a whole network who has not said that he means to (SO_BROADCAST).
    let system = Interface::named("lo").expect("it is there");
    system.add_address(Ipv4Addr::new(192, 0, 2, 1).into(), 24).expect("root of the namespace");
    let client = inside(&guest, "192.0.2.255:9".parse().expect("an address"));
    client.send(b"everybody?").expect("a route");
    let error = client.recv(&mut [0; 9]).expect_err("it is forbidden");
    assert_eq!(error.kind(), ErrorKind::HostUnreachable);
}

fn datagrams() {
    let guest = guest(Policy::default());
    for address in OUTSIDE {
        let (outside, at) = outside(address);
        std::thread::spawn(move || {
            let mut bytes = [0; 4_000];
            while let Ok((len, from)) = outside.recv_from(&mut bytes) {
                outside.send_to(&bytes[..len], from).expect("a route");
            }
        });
        let clients: Vec<_> = (0..20).map(|_| inside(&guest, at)).collect();
        // The last ones in fragments.
        for len in [1, 0, 500, 1_472, 3_000] {
            for (number, client) in clients.iter().enumerate() {
                let sent = vec![number as u8; len];
                client.send(&sent).expect("a route");
                let mut bytes = [0; 4_000];
                let len = client.recv(&mut bytes).expect("it came back");
                assert!(bytes[..len] == sent, "{at}: it came back otherwise");
            }
        }
    }
}

fn bounded() {
    let guest = guest(Policy { flows_max: 2, ..Policy::default() });
    let (outside, at) = outside(OUTSIDE[0]);
    let clients: Vec<_> = (0..3).map(|_| inside(&guest, at)).collect();
    let mut senders = Vec::new();
    for (number, client) in clients.iter().enumerate() {
        client.send(&[number as u8]).expect("a route");
    }
    // The relay goes by order: what came before the last one was let through, or never will be.
    clients[0].send(&[9]).expect("a route");
    let mut byte = [0];
    loop {
        let (_, from) = outside.recv_from(&mut byte).expect("it is relayed");
        if byte == [9] {
            assert_eq!(Some(&from), senders.first(), "a flow keeps its port");
            break;
        }
        senders.push(from);
    }
    assert_eq!(senders.len(), 2);
}

fn forgotten() {
    let guest =
        guest(Policy { flows_max: 1, idle: Duration::from_millis(20), ..Policy::default() });
    let (outside, at) = outside(OUTSIDE[0]);
    let (first, second) = (inside(&guest, at), inside(&guest, at));
    first.send(b"first").expect("a route");
    let mut bytes = [0; 9];
    let (len, _) = outside.recv_from(&mut bytes).expect("it is relayed");
    assert_eq!(&bytes[..len], b"first");
    // There is room for another one when nothing has moved for a while.
    outside.set_read_timeout(Some(Duration::from_millis(10))).expect("not zero");
    let began = Instant::now();
    loop {
        second.send(b"second").expect("a route");
        if let Ok((len, _)) = outside.recv_from(&mut bytes) {
            assert_eq!(&bytes[..len], b"second");
            return;
        }
        assert!(began.elapsed() < PATIENCE, "the first is not forgotten");
    }
}

/// RFC 4787, 4.3 (REQ-5 a): a well-known port's flows may have a time of their own.
fn forgotten_question() {
    let guest = guest(Policy { flows_max: 1, ..Policy::default() });
    let outside = std::net::UdpSocket::bind((OUTSIDE[0], 53)).expect("nobody has it here");
    let at = outside.local_addr().expect("bound");
    outside.set_read_timeout(Some(Duration::from_millis(100))).expect("not zero");
    let (first, second) = (inside(&guest, at), inside(&guest, at));
    first.send(b"first").expect("a route");
    let (mut bytes, began) = ([0; 9], Instant::now());
    while !matches!(outside.recv(&mut bytes), Ok(6)) {
        second.send(b"second").expect("a route");
        assert!(began.elapsed() < PATIENCE, "the first is not forgotten");
    }
}

/// A relay for machines that call at a Unix socket of this name, and the name.
fn network_with(name: &str, leased: RangeInclusive<Ipv4Addr>, ways: Vec<String>) -> PathBuf {
    let path = std::env::temp_dir().join(format!("{name}-{}.sock", std::process::id()));
    // One that an earlier run left.
    drop(UnixListener::bind(&path).expect("nobody has it"));
    let at = path.to_str().expect("UTF-8").to_owned();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let served = runtime.expect("a runtime").block_on(async {
            let machines = Arc::new(Machines::new(leased));
            for way in ways {
                let way = published::open(way.parse().expect("a way"), Arc::clone(&machines));
                tokio::spawn(way.await.expect("a free port"));
            }
            serve_machines(&at, machines, Policy::default()).await
        });
        served.expect("it serves for ever");
    });
    path
}

/// The same where no port of this host leads inside.
fn network(name: &str, leased: RangeInclusive<Ipv4Addr>) -> PathBuf {
    network_with(name, leased, Vec::new())
}

/// The socket at which a machine calls.
fn call(path: &PathBuf) -> UnixStream {
    let started = Instant::now();
    loop {
        match UnixStream::connect(path) {
            Err(error) => assert!(started.elapsed() < PATIENCE, "nobody listens: {error}"),
            Ok(socket) => return socket,
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A machine is a stack with Ethernet below it here, whose frames go over a socket.
fn machine(path: &PathBuf, number: u8, interface: InterfaceConfig) -> Stack {
    let socket = call(path);
    let hardware_address = Some(HardwareAddress([2, 0, 0, 0, 0, number]));
    let config = StreamConfig { hardware_address, ..StreamConfig::default() };
    let mut device = StreamDevice::over(socket, &config).expect("a stream");
    let queue = device.queue(0).expect("it has one");
    Stack::builder().interface(queue, interface).build().expect("a stack")
}

/// Both directions of a relayed connection carry.
fn assert_carried(inner: &mut TcpStream, outer: &mut std::net::TcpStream) {
    inner.write_all(b"question").expect("open");
    outer.read_exact(&mut [0; 8]).expect("it comes");
    outer.write_all(b"answer").expect("open");
    inner.set_read_timeout(Some(PATIENCE)).expect("not zero");
    inner.read_exact(&mut [0; 6]).expect("it comes back");
}

/// One that asks for its address.
fn asking(path: &PathBuf, number: u8) -> Stack {
    machine(path, number, InterfaceConfig::default().dhcp(ClientConfig::default()))
}

/// What a machine has been leased, in the end.
fn leased(machine: &Stack, patience: Duration) -> Option<Ipv4Addr> {
    match machine.wait_for_address(0, |address| address.is_ipv4(), patience).ok()?.address() {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    }
}

fn machines() {
    let path = network("machines", LEASED);
    let listener = TcpListener::bind((OUTSIDE[0], 0)).expect("a free port");
    let at = listener.local_addr().expect("bound");
    let first = asking(&path, 1);
    assert_eq!(leased(&first, PATIENCE), Some(Ipv4Addr::new(10, 0, 2, 15)));
    // A second one at the same time, which goes and comes back, and a third one meanwhile.
    for (number, last) in [(2, 16), (3, 17), (2, 16)] {
        let second = asking(&path, number);
        assert_eq!(leased(&second, PATIENCE), Some(Ipv4Addr::new(10, 0, 2, last)));
        for machine in [&first, &second] {
            let status = &machine.interfaces()[0];
            assert_eq!(status.name_servers, [IpAddr::V4(NAME_SERVER)]);
            assert_eq!(status.ipv4_mtu_bytes, StreamConfig::default().mtu_bytes);
            let mut inner = TcpStream::connect(machine, at).expect("it listens");
            let (mut outer, _) = listener.accept().expect("it is relayed");
            assert_carried(&mut inner, &mut outer);
            let nowhere = SocketAddr::new(OUTSIDE[0], 1);
            let refused = TcpStream::connect(machine, nowhere).expect_err("nobody listens there");
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        }
    }
    std::fs::remove_file(&path).expect("it is there");
}

/// Ports of this host that nobody has, each another one: they are let go of together.
fn free_ports<const COUNT: usize>() -> [SocketAddr; COUNT] {
    let listeners =
        [(); COUNT].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port"));
    listeners.each_ref().map(|listener| listener.local_addr().expect("bound"))
}

fn ports() {
    let ([at, nowhere, by_ipv6], inside) = (free_ports(), "10.0.2.16:22");
    let second_v6 = Ipv6Addr::from(PREFIX_V6.to_bits() | 0x16);
    let ways = vec![
        format!("{at}={inside}"),
        format!("{nowhere}=10.0.2.99:22"),
        format!("{by_ipv6}=[{second_v6}]:22"),
    ];
    let path = network_with("ports", LEASED, ways);
    let first = asking(&path, 1);
    assert_eq!(leased(&first, PATIENCE), Some(Ipv4Addr::new(10, 0, 2, 15)));
    let interface = InterfaceConfig::default().dhcp(ClientConfig::default());
    let second = machine(&path, 2, interface.address(Cidr::new(second_v6.into(), 64).expect("64")));
    assert_eq!(leased(&second, PATIENCE), Some(Ipv4Addr::new(10, 0, 2, 16)));
    let any: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    for (at, any) in [at, by_ipv6].into_iter().zip(any) {
        let listener = multidata::TcpListener::bind(&second, (any, 22)).expect("a free port");
        let mut outer = std::net::TcpStream::connect(at).expect("it is published");
        let (mut inner, from) = listener.accept().expect("it leads here");
        let whose = if any.is_ipv4() { GATEWAY.into() } else { IpAddr::V6(NAME_SERVER_V6) };
        assert_eq!(from.ip(), whose);
        assert_carried(&mut inner, &mut outer);
        // An end is an end at the other side.
        outer.shutdown(Shutdown::Write).expect("open");
        assert_eq!(inner.read(&mut [0]).expect("in order"), 0);
    }
    // Nobody listens any more; nobody has the address.
    for at in [at, nowhere] {
        let mut outer = std::net::TcpStream::connect(at).expect("it is published");
        outer.set_read_timeout(Some(PATIENCE)).expect("not zero");
        let ended = outer.read(&mut [0]).expect_err("no end in order");
        assert_eq!(ended.kind(), ErrorKind::ConnectionReset, "{at}");
    }
    for wrong in ["22=10.0.2.15:22", "127.0.0.1:22", "127.0.0.1:22=here:22"] {
        let error = wrong.parse::<published::Way>().expect_err("no way");
        assert!(error.starts_with(wrong), "{error}");
    }
    std::fs::remove_file(&path).expect("it is there");
}

/// Another machine may say that it has the address, and is alone in its network.
fn leased_port() {
    let [at] = free_ports();
    let path = network_with("leased-port", LEASED, vec![format!("{at}=10.0.2.15:22")]);
    let first = asking(&path, 1);
    assert_eq!(leased(&first, PATIENCE), Some(Ipv4Addr::new(10, 0, 2, 15)));
    let taken = Cidr::new(Ipv4Addr::new(10, 0, 2, 15).into(), 24).expect("24");
    let second = machine(&path, 2, InterfaceConfig::new(taken));
    let refused = TcpStream::connect(&second, (GATEWAY, 1)).expect_err("nobody listens there");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "the relay has it");
    let listener = multidata::TcpListener::bind(&first, (Ipv4Addr::UNSPECIFIED, 22));
    let listener = listener.expect("a free port");
    std::thread::spawn(move || {
        while let Ok((mut inner, _)) = listener.accept() {
            inner.write_all(b"first").expect("open");
        }
    });
    for _ in 0..20 {
        let mut outer = std::net::TcpStream::connect(at).expect("it is published");
        outer.set_read_timeout(Some(PATIENCE)).expect("not zero");
        let mut said = String::new();
        outer.read_to_string(&mut said).expect("it was not the other that refused");
        assert_eq!(said, "first");
    }
    std::fs::remove_file(&path).expect("it is there");
}

/// Who made them may be gone.
fn waiting_ports() {
    linux::descriptors::raise();
    let [at] = free_ports();
    let path = network_with("waiting-ports", LEASED, vec![format!("{at}=10.0.2.99:22")]);
    let machine = asking(&path, 1);
    assert!(leased(&machine, PATIENCE).is_some());
    let descriptors = || std::fs::read_dir("/proc/self/fd").expect("this is Linux").count();
    let before = descriptors();
    for _ in 0..IN_FLIGHT_MAX + 500 {
        drop(std::net::TcpStream::connect(at).expect("it is published"));
    }
    // It takes three seconds to find that nobody has the address.
    let looks = (0..10).map(|_| {
        std::thread::sleep(Duration::from_millis(100));
        descriptors().saturating_sub(before)
    });
    let waiting = looks.max().unwrap_or_default();
    assert!(waiting <= IN_FLIGHT_MAX + 10, "{waiting} descriptors for nobody");
    // Whoever comes behind them is served.
    let mut outer = std::net::TcpStream::connect(at).expect("it is published");
    outer.set_read_timeout(Some(PATIENCE)).expect("not zero");
    let ended = outer.read(&mut [0]).expect_err("nobody has the address");
    assert_eq!(ended.kind(), ErrorKind::ConnectionReset);
    std::fs::remove_file(&path).expect("it is there");
}

/// Whom the first frame comes from that a machine receives.
fn router(path: &PathBuf) -> [u8; 6] {
    let mut socket = call(path);
    socket.set_read_timeout(Some(PATIENCE)).expect("not zero");
    // Four bytes of the frame's length, and whom it is for.
    let mut bytes = [0; 16];
    socket.read_exact(&mut bytes).expect("it tells of itself");
    bytes[10..].try_into().expect("an address")
}

/// What a machine remembers of its router holds when it calls again, and the forwarder may be another run of it.
fn same_router() {
    let paths = ["router", "router-anew"].map(|name| network(name, LEASED));
    assert_eq!(router(&paths[0]), router(&paths[1]));
    for path in paths {
        std::fs::remove_file(path).expect("it is there");
    }
}

fn names() {
    let path = network("names", LEASED);
    let outside = name_server();
    if !outside.is_loopback() {
        let inside = Interface::named("lo").expect("it is there");
        let prefix_len = if outside.is_ipv4() { 32 } else { 128 };
        inside.add_address(outside, prefix_len).expect("root of the namespace");
    }
    let at = SocketAddr::new(outside, 53);
    let datagrams = std::net::UdpSocket::bind(at).expect("nobody has it here");
    let listener = TcpListener::bind(at).expect("nobody has it here");
    let machine = machine(&path, 1, InterfaceConfig::automatic());
    leased(&machine, PATIENCE).expect("there are many");
    machine.wait_for_address(0, |address| address.is_ipv6(), PATIENCE).expect("there is one");
    datagrams.set_read_timeout(Some(PATIENCE)).expect("not zero");
    for server in [IpAddr::from(NAME_SERVER), NAME_SERVER_V6.into()] {
        let asked = SocketAddr::new(server, 53);
        let socket = inside(&machine, asked);
        socket.send(b"name?").expect("a route");
        let mut bytes = [0; 16];
        let (len, from) = datagrams.recv_from(&mut bytes).expect("it comes");
        datagrams.send_to(&bytes[..len], from).expect("it goes");
        assert_eq!(socket.recv(&mut bytes).expect("it comes back"), 5);
        // An answer that is too long for a datagram is asked for over TCP.
        TcpStream::connect(&machine, asked).expect("it listens");
        listener.accept().expect("it is relayed");
    }
    std::fs::remove_file(&path).expect("it is there");
}

fn too_many() {
    let only = Ipv4Addr::new(10, 0, 2, 15);
    let path = network("many", only..=only);
    let first = asking(&path, 1);
    assert_eq!(leased(&first, PATIENCE), Some(only));
    let second = asking(&path, 2);
    assert_eq!(leased(&second, Duration::from_secs(1)), None);
    // It goes without a word.
    first.abort();
    drop(first);
    assert_eq!(leased(&second, PATIENCE), Some(only));
    std::fs::remove_file(&path).expect("it is there");
}

fn flooded() {
    let only = Ipv4Addr::new(10, 0, 2, 15);
    let path = network("flooded", only..=only);
    let flooding =
        machine(&path, 1, InterfaceConfig::new("10.0.2.99/24".parse().expect("a network")));
    let socket =
        UdpSocket::bind(&flooding, (Ipv4Addr::UNSPECIFIED, CLIENT_PORT)).expect("a free port");
    let to = (Ipv4Addr::BROADCAST, SERVER_PORT);
    for number in 0..5_000_u32 {
        // RFC 2131, 2: a DISCOVER of another station each.
        let mut message = vec![0; 300];
        message[..3].copy_from_slice(&[1, 1, 6]);
        message[28..30].copy_from_slice(&[2, 1]);
        message[30..34].copy_from_slice(&number.to_be_bytes());
        message[236..244].copy_from_slice(&[99, 130, 83, 99, 53, 1, 1, 255]);
        // And what is none, of any length.
        message.truncate(300 - number as usize % 2 * (number as usize % 300));
        socket.send_to(&message, to).expect("room");
    }
    socket.set_read_timeout(Some(PATIENCE)).expect("not zero");
    let (_, from) = socket.recv_from(&mut [0; 600]).expect("some were answered");
    assert_eq!(from.port(), SERVER_PORT);
    assert_eq!(leased(&asking(&path, 2), PATIENCE), Some(only));
    std::fs::remove_file(&path).expect("it is there");
}

/// Whether a router has told the machine of a way out by IPv6.
fn has_way_out(machine: &Stack) -> bool {
    machine.routes().iter().any(|route| route.destination == Cidr::ANY_IPV6)
}

fn machines_v6() {
    let path = network("machines-v6", LEASED);
    let first = machine(&path, 1, InterfaceConfig::automatic());
    let network = Cidr::new(PREFIX_V6.into(), 64).expect("a network");
    let at = |machine: &Stack| {
        let address = machine.wait_for_address(0, |address| address.is_ipv6(), PATIENCE);
        assert!(network.contains(address.expect("a router tells of it").address()));
    };
    at(&first);
    leased(&first, PATIENCE).expect("there are many");
    let servers = &first.interfaces()[0].name_servers;
    assert_eq!(*servers, [IpAddr::from(NAME_SERVER), NAME_SERVER_V6.into()]);
    assert_eq!(first.interfaces()[0].ipv6_mtu_bytes, StreamConfig::default().mtu_bytes);
    let listener = TcpListener::bind((OUTSIDE[1], 0)).expect("a free port");
    let to = listener.local_addr().expect("bound");
    // No way leads abroad from here, so none is told of.
    assert!(!has_way_out(&first));
    let refused = TcpStream::connect(&first, to).expect_err("no way leads there");
    assert_eq!(refused.kind(), ErrorKind::NetworkUnreachable);
    let inside = Interface::named("lo").expect("it is there");
    inside.add_address(ABROAD.into(), 128).expect("root of the namespace");
    let second = machine(&path, 2, InterfaceConfig::default().slaac());
    for machine in [&first, &second] {
        at(machine);
        let started = Instant::now();
        while !has_way_out(machine) {
            assert!(started.elapsed() < PATIENCE, "no router tells of a way out");
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut inner = TcpStream::connect(machine, to).expect("it listens");
        assert!(inner.local_addr().is_ok_and(|address| network.contains(address.ip())));
        let (mut outer, _) = listener.accept().expect("it is relayed");
        assert_carried(&mut inner, &mut outer);
    }
    std::fs::remove_file(&path).expect("it is there");
}
