//! The WireGuard client of `examples/wireguard`: its peer is boringtun's device, with the kernel's own sockets behind it,
//! in a network of the test's own.

#[path = "../../multidata/tests/kernel/mod.rs"]
mod kernel;
#[path = "../examples/wireguard/main.rs"]
#[allow(dead_code)]
mod wireguard;

use base64::{Engine, prelude::BASE64_STANDARD};
use boringtun::device::{DeviceConfig, DeviceHandle};
use boringtun::x25519::{PublicKey, StaticSecret};
use kernel::address;
use linux::Interface;
use multidata::Stack;
use socket2::SockRef;
use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::IntoRawFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::Duration;
use wireguard::{Way, link, open};

const TESTS: &[kernel::Test] = &[
    ("connections_go_both_ways_through_the_tunnel", both_ways),
    ("what_breaks_off_at_one_end_breaks_off_at_the_other", resets),
    ("what_the_peer_may_not_send_is_dropped", cryptokey_routing),
    ("what_is_longer_than_our_mtu_is_dropped_and_not_the_end", too_long),
    ("a_port_that_is_taken_is_named", taken_port),
    ("a_file_that_is_wrong_is_refused_with_where_and_why", wrong_files),
];

const PATIENCE: Duration = Duration::from_secs(30);

/// The port of the peer's datagrams.
const PEER_PORT: u16 = 51_820;

/// The port of this host that leads into the tunnel, for each IP version, and that in the tunnel which leads here.
const IN: [u16; 2] = [8_004, 8_006];
const OUT: u16 = 2_222;

/// As both, of connections that are reset.
const RESET: [u16; 2] = [8_005, 2_223];

/// Where the kernel listens, in the tunnel and here.
const ECHO: u16 = 7;
const CLOSED: u16 = 9;

/// The network in the tunnel, in which the kernel is the first and a host that the client's file does not allow, and the
/// client the second.
const NETWORK: u8 = 77;
const FOREIGN: u8 = 3;

fn main() -> ExitCode {
    kernel::run(TESTS, kernel::enter_with_tun)
}

fn secret(of: u8) -> StaticSecret {
    StaticSecret::from([of; 32])
}

fn hex(bytes: &[u8; 32]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("into a string");
        text
    })
}

/// The client's stack. It runs, as its peer does, until the process ends.
fn stack() -> &'static Stack {
    static STACK: OnceLock<Stack> = OnceLock::new();
    STACK.get_or_init(|| {
        echo();
        peer();
        client()
    })
}

/// boringtun's device, with the kernel behind it.
fn peer() {
    let (mut control, theirs) = UnixStream::pair().expect("a pair of sockets");
    let config = DeviceConfig {
        n_threads: 1,
        use_connected_socket: false,
        use_multi_queue: false,
        uapi_fd: theirs.into_raw_fd(),
    };
    let device = DeviceHandle::new("wg0", config).expect("the namespace has the TUN driver");
    let (own, theirs) = (hex(secret(2).as_bytes()), hex(PublicKey::from(&secret(1)).as_bytes()));
    let settings = format!(
        "set=1\nprivate_key={own}\nlisten_port={PEER_PORT}\npublic_key={theirs}\n\
         allowed_ip={}/32\nallowed_ip={}/128\n\n",
        address(false, NETWORK, 2),
        address(true, NETWORK, 2),
    );
    control.write_all(settings.as_bytes()).expect("it listens");
    let mut answer = [0; 64];
    let len = control.read(&mut answer).expect("it answers");
    assert_eq!(&answer[..len], b"errno=0\n\n");
    let interface = Interface::named("wg0").expect("it was made");
    for host in [1, FOREIGN] {
        kernel::give(&interface, NETWORK, host);
    }
    // More than the client's, of which it knows nothing.
    interface.set_mtu_bytes(1_440).expect("root of the namespace");
    interface.set_up().expect("root of the namespace");
    // The device goes with either.
    std::mem::forget((device, control));
}

fn file() -> String {
    let key = |bytes: &[u8; 32]| BASE64_STANDARD.encode(bytes);
    format!(
        "[Interface]\nPrivateKey = {}\nAddress = {}/24, {}/64\nDNS = 9.9.9.9\n\n\
         [Peer] # the only one\nPublicKey = {}\nEndpoint = 127.0.0.1:{PEER_PORT}\n\
         AllowedIPs = 10.{NETWORK}.0.1/32\nallowedips=fd{NETWORK}::/64\nPersistentKeepalive = 25\n",
        key(secret(1).as_bytes()),
        address(false, NETWORK, 2),
        address(true, NETWORK, 2),
        key(PublicKey::from(&secret(2)).as_bytes()),
    )
}

fn localhost(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

fn reset_ways() -> [(SocketAddr, SocketAddr); 2] {
    let inside = |host, port| SocketAddr::new(address(false, NETWORK, host), port);
    [(localhost(RESET[0]), inside(1, RESET[0])), (inside(2, RESET[1]), localhost(RESET[1]))]
}

fn client() -> Stack {
    let (ready, started) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async move {
            let config = file().parse::<wireguard::config::Config>().expect("a good file");
            assert_eq!(config.ignored, ["DNS"]);
            let linked = link(&config).await.expect("a stack and a socket");
            let inside = |ipv6| SocketAddr::new(address(ipv6, NETWORK, 1), ECHO);
            let closed = SocketAddr::new(address(false, NETWORK, 1), CLOSED);
            let ways = [
                (localhost(IN[0]), inside(false)),
                (localhost(IN[1]), inside(true)),
                (localhost(CLOSED), closed),
                reset_ways()[0],
                reset_ways()[1],
                (SocketAddr::new(address(false, NETWORK, 2), OUT), localhost(ECHO)),
                (SocketAddr::new(address(true, NETWORK, 2), OUT), localhost(ECHO)),
            ];
            for (listen, to) in ways {
                let way = open(linked.stack.clone(), &config, Way { listen, to });
                tokio::spawn(way.await.expect("a free port"));
            }
            ready.send(linked.stack.clone()).expect("it waits");
            linked.tunnel.run().await.expect("the stack stays");
        });
    });
    started.recv_timeout(PATIENCE).expect("it came up")
}

/// Echoes whatever comes to any address of the kernel's.
fn echo() {
    let listener = TcpListener::bind("[::]:7").expect("a free port");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            std::thread::spawn(move || {
                let mut reader = stream.try_clone().expect("a handle");
                std::io::copy(&mut reader, &mut stream).expect("the client reads");
            });
        }
    });
}

fn echoed(to: SocketAddr) {
    let mut stream = TcpStream::connect_timeout(&to, PATIENCE).expect("somebody listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
    let sent: Vec<u8> = (0..3_000_000_u32).map(|at| (at >> 5) as u8).collect();
    let (bytes, mut writer) = (sent.clone(), stream.try_clone().expect("a handle"));
    let writing = std::thread::spawn(move || {
        writer.write_all(&bytes).expect("the echo reads");
        writer.shutdown(Shutdown::Write).expect("open");
    });
    let mut back = Vec::new();
    stream.read_to_end(&mut back).expect("the echo writes");
    writing.join().expect("it ran");
    assert!(back == sent, "{to}: it came back otherwise");
}

fn both_ways() {
    stack();
    for port in IN {
        echoed(localhost(port));
    }
    for ipv6 in [false, true] {
        echoed(SocketAddr::new(address(ipv6, NETWORK, 2), OUT));
    }
    // Who connects here is accepted before the way on is known to be closed.
    let mut refused = TcpStream::connect(localhost(CLOSED)).expect("the client listens");
    refused.set_read_timeout(Some(PATIENCE)).expect("not zero");
    let error = refused.read(&mut [0]).expect_err("nobody listens there");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

fn resets() {
    stack();
    for (listen, to) in reset_ways() {
        let listener = TcpListener::bind(to).expect("a free port");
        for by_who_accepted in [true, false] {
            let mut heard = TcpStream::connect_timeout(&listen, PATIENCE).expect("it listens");
            let (mut reset, _) = listener.accept().expect("it is carried");
            if !by_who_accepted {
                std::mem::swap(&mut heard, &mut reset);
            }
            heard.set_read_timeout(Some(PATIENCE)).expect("not zero");
            reset.write_all(b"begun").expect("open");
            heard.read_exact(&mut [0; 5]).expect("it came");
            SockRef::from(&reset).set_linger(Some(Duration::ZERO)).expect("an option of TCP");
            drop(reset);
            let error = heard.read(&mut [0]).expect_err("no end of the stream");
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{to}, {by_who_accepted}");
        }
    }
}

// Datagrams keep their order here, so what comes first of two would have come.
fn cryptokey_routing() {
    let at = |host| SocketAddr::new(address(false, NETWORK, host), 5_000);
    let inner = multidata::UdpSocket::bind(stack(), at(2)).expect("a free port");
    inner.set_read_timeout(Some(PATIENCE)).expect("not zero");
    let outer = [FOREIGN, 1].map(|host| UdpSocket::bind(at(host)).expect("a free port"));
    for socket in &outer {
        socket.send_to(b"in", at(2)).expect("a route");
    }
    let (_, from) = inner.recv_from(&mut [0; 9]).expect("one may");
    assert_eq!(from, at(1), "the peer may not send from there");
    // The stack knows of no other way, and says so at once.
    let error = inner.send_to(b"out", at(FOREIGN)).expect_err("nothing goes there");
    assert_eq!(error.kind(), ErrorKind::NetworkUnreachable);
    inner.send_to(b"out", at(1)).expect("a route");
    let [_, allowed] = outer;
    allowed.set_read_timeout(Some(PATIENCE)).expect("not zero");
    assert_eq!(allowed.recv_from(&mut [0; 9]).expect("one may").1, at(2));
}

fn too_long() {
    let at = |host| SocketAddr::new(address(false, NETWORK, host), 5_001);
    let inner = multidata::UdpSocket::bind(stack(), at(2)).expect("a free port");
    inner.set_read_timeout(Some(PATIENCE)).expect("not zero");
    let outer = UdpSocket::bind(at(1)).expect("a free port");
    for len in [1_440, 1_421, 1_420] {
        outer.send_to(&vec![7; len - 28], at(2)).expect("a route");
    }
    let (len, _) = inner.recv_from(&mut [0; 1_500]).expect("it came");
    assert_eq!(len, 1_420 - 28);
}

fn taken_port() {
    let taken = UdpSocket::bind("0.0.0.0:0").expect("a free port");
    let port = taken.local_addr().expect("bound").port();
    let text = file().replacen("DNS = 9.9.9.9", &format!("ListenPort = {port}"), 1);
    let config = text.parse::<wireguard::config::Config>().expect("a good file");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let linked = runtime.expect("a runtime").block_on(link(&config));
    let error = linked.err().expect("it is taken").to_string();
    assert!(error.starts_with(&format!("ListenPort {port}: ")), "{error}");
}

fn wrong_files() {
    let good = file();
    let with = |from: &str, to: &str| good.replacen(from, to, 1);
    let told = BASE64_STANDARD.encode(secret(1).as_bytes());
    for (text, why) in [
        (with("[Peer]", "[Pear]"), "line 6: no section of the two"),
        (good.clone() + "[Peer]\n", "line 12: a second peer"),
        (with("DNS = 9.9.9.9", "Colour = red"), "line 4: nothing in [interface] is called so"),
        (with("DNS = 9.9.9.9", "what"), "line 4: no section and no 'key = value'"),
        // The end of the key is taken for that of a name.
        (with("PrivateKey = ", "PrivateKey: "), "line 2: nothing in [interface] is called so"),
        (with("PrivateKey = ", "\n"), "line 3: nothing in [interface] is called so"),
        (with("[Interface]", ""), "line 2: nothing in front of the sections is called so"),
        (with("DNS = 9.9.9.9", "MTU = 100"), "an MTU of 100, where it may be 1280 to 65400"),
        (with("DNS = 9.9.9.9", "MTU = many"), "line 4: MTU: invalid digit"),
        (with("DNS = 9.9.9.9", &format!("MTU = {told}")), "line 4: MTU: invalid digit"),
        (with("PrivateKey = ", "PrivateKey = A"), "line 2: PrivateKey: no key, which is 32 bytes"),
        (with("Address = 10.", "Address = 300."), "line 3: Address: "),
        (with("Endpoint", "PresharedKey"), "line 8: PresharedKey: no key"),
        (with("Endpoint", "#"), "no Endpoint in [Peer]"),
        (with("PublicKey", "#"), "no PublicKey in [Peer]"),
        (with("Address", "#"), "no Address in [Interface]"),
    ] {
        let error = text.parse::<wireguard::config::Config>().err().expect("it is wrong");
        assert!(error.starts_with(why), "{error}");
        assert!(!error.contains(told.trim_end_matches('=')), "a secret is told");
    }
}
