//! A TUN interface whose every TCP connection, datagram and ping goes on over the kernel's sockets, as tun2socks and
//! the networks of virtual machines do it:
//! `cargo run -p multidata-tokio --example forwarder [--host-loopback] [NAME] [LISTEN=TO]..`. Pings do where the system
//! lets this user send some (`sysctl net.ipv4.ping_group_range`), and are not answered where it does not.
//!
//! The interface is opened here and moved to a namespace, which has no other way out:
//!
//! ```sh
//! ip netns add guest
//! mkdir -p /etc/netns/guest && echo nameserver 9.9.9.9 > /etc/netns/guest/resolv.conf
//! cargo run --release -p multidata-tokio --example forwarder tun0 &
//! until ip link set tun0 netns guest 2> /dev/null; do sleep 1; done
//! ip -n guest address add 10.0.2.100/24 dev tun0
//! ip -n guest link set tun0 up && ip -n guest route add default dev tun0
//! ip netns exec guest curl http://example.org
//! ```
//!
//! A name with a slash is a Unix socket at which virtual machines call, without root anywhere:
//!
//! ```sh
//! cargo run --release -p multidata-tokio --example forwarder /tmp/vm.sock &
//! qemu-system-x86_64 -netdev stream,id=net,addr.type=unix,addr.path=/tmp/vm.sock \
//!     -device virtio-net,netdev=net,mac=52:54:00:00:00:01 ..
//! ```
//!
//! A machine that asks by DHCP is told what slirp would tell it: an address from 10.0.2.15 on, the router 10.0.2.2, the DNS
//! server 10.0.2.3, which is the first one of this host (resolv.conf(5)), and the MTU. Each machine is alone with the
//! forwarder in a network of its own, and all lease from the same addresses, one for each hardware address. QEMU gives all
//! machines the same hardware address where it is told none, and they have one lease then, which does no harm, but that a port
//! which leads to it leads to the one that asked last. A machine that is gone and comes back has its address again, unless all
//! others are leased meanwhile.
//!
//! QEMU has had `-netdev stream` since 7.2. With `,reconnect-ms=1000` behind the path (9.2; `,reconnect=1` since 8.0) it calls
//! before there is a forwarder, and again where that was started anew; the machine goes on, its connections do not.
//!
//! At 10.0.2.2 and 10.0.2.3 there is nothing but that. With `--host-loopback` the router's address, also fe80::2, leads to what
//! listens on this host's loopback addresses, as slirp's does; it is not offered unasked, as that is often for nobody else.
//! This host's other addresses lead to it, as to any host.
//!
//! TCP ports of this host lead inside where that is asked for, as slirp's `hostfwd` and pasta's `-t` have it: with
//! `127.0.0.1:2222=10.0.2.15:22` behind the name who connects to the first reaches the second, at the machine that was leased
//! that address, or, where none was, at whichever answers first. It comes from the router's address, by IPv6 from the DNS
//! server's: the router's is one of the link (RFC 4291, 2.5.6).
//!
//! For IPv6 the forwarder speaks as a router (RFC 4861), of which a machine has an address (RFC 4862), the same DNS server
//! (RFC 8106), and the MTU. It has a way out by it only while this host has one (told within some ten seconds), since a
//! useless one would be tried and found useless for each connection. An address of a network like this (RFC 4193) lets
//! machines prefer IPv4 to it where a name has addresses of both (RFC 6724).

pub(crate) mod machines;
pub(crate) mod published;

use linux::{TapConfig, TapDevice, TapKind};
use machines::{
    GATEWAY, GATEWAY_V6, LEASED, Link, Machines, NAME_SERVER, NAME_SERVER_V6, PREFIX_LEN,
    PREFIX_LEN_V6, advertise, lease_addresses, serve_machines,
};
use multidata::device::Queue;
use multidata::dhcp::SERVER_PORT;
use multidata::ip::{Cidr, IcmpErrorKind};
use multidata::{ForwardedDatagram, InterfaceConfig, ReceivedPacket, Stack};
use multidata_tokio::{
    PendingConnection, RawSocket, ReadHalf, TcpForwarder, TcpStream as Inner, UdpForwarder,
    UdpSocket as InnerSocket, WriteHalf,
};
use published::Way;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use std::collections::HashMap;
use std::error::Error;
use std::io::{self, ErrorKind, IoSlice};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::tcp::{ReadHalf as OuterReadHalf, WriteHalf as OuterWriteHalf};
use tokio::net::{TcpStream as Outer, UdpSocket};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How long who accepts rests when that failed, as for want of descriptors, which is not better at once.
const REST: Duration = Duration::from_millis(100);

/// Connections that may wait for the outside to answer, of each IP version, and for a machine, of each port that leads inside.
pub(crate) const IN_FLIGHT_MAX: usize = 1_024;

/// What one direction of a connection carries at once.
const BUFFER_BYTES: usize = 65_536;

/// After so long without a word from one side of a connection it is asked whether it is still there, or a guest that was
/// switched off would be remembered for ever.
const KEEPALIVE: Duration = Duration::from_secs(600);

/// Pings of which the answer is waited for, of each IP version, and how long it is; others are lost.
const PINGS_MAX: usize = 64;
const PING_PATIENCE: Duration = Duration::from_secs(10);

/// What a relay lets those inside do.
#[derive(Clone, Copy)]
pub(crate) struct Policy {
    /// Flows of datagrams at once, of each IP version; those of others are dropped. A flow is a sender and where it
    /// sends to, and has a socket.
    pub(crate) flows_max: usize,
    /// A flow in which nothing moves for so long, or at most for twice as long, is forgotten.
    pub(crate) idle: Duration,
    /// The router's address leads to what listens on this host's loopback addresses.
    pub(crate) host_loopback: bool,
}

impl Default for Policy {
    fn default() -> Self {
        // RFC 4787, 4.3: not less than two minutes.
        Self { flows_max: 1_024, idle: Duration::from_secs(120), host_loopback: false }
    }
}

/// The same as [`Policy::idle`] for questions to DNS servers (RFC 4787, 4.3, REQ-5 a), each of which has a flow of its own:
/// as all flows are a thousand, ten questions a second would soon find none. As slirp has it.
const QUESTION_IDLE: Duration = Duration::from_secs(10);

// One thread for all: what a packet wakes is done where it was received.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let outcome = forward().await;
    if let Err(error) = &outcome {
        eprintln!("forwarder: {error}");
    }
    ExitCode::from(u8::from(outcome.is_err()))
}

async fn forward() -> Result<(), Box<dyn Error>> {
    // Each connection and each flow has one.
    linux::descriptors::raise();
    let (name, policy, ways) = arguments()?;
    let machines = Arc::new(Machines::new(LEASED));
    for way in ways {
        tokio::spawn(published::open(way, Arc::clone(&machines)).await?);
    }
    if name.contains('/') {
        return serve_machines(&name, machines, policy).await;
    }
    let config = TapConfig { name: Some(name), kind: TapKind::Tun, ..TapConfig::default() };
    let mut tun = TapDevice::open(&config)?;
    println!("{}", tun.negotiated());
    relay(tun.queue(0)?, machines, policy).await
}

/// The interface or the path, what is allowed, and the ports that lead inside.
fn arguments() -> Result<(String, Policy, Vec<Way>), String> {
    let (mut name, mut policy, mut ways) = (None, Policy::default(), Vec::new());
    for argument in std::env::args_os().skip(1) {
        let argument =
            argument.into_string().map_err(|it| format!("{}: not UTF-8", it.display()))?;
        match argument.as_str() {
            "--host-loopback" => policy.host_loopback = true,
            other if other.starts_with('-') => {
                return Err(format!("{other}: the only option is --host-loopback"));
            }
            // A path may have one, too.
            way if way.contains('=') && !way.contains('/') => ways.push(way.parse()?),
            other if name.is_some() => return Err(format!("{other}: a second name")),
            _ => name = Some(argument),
        }
    }
    Ok((name.unwrap_or_else(|| "tun0".into()), policy, ways))
}

/// Relays what comes by `queue`, until that fails.
pub(crate) async fn relay(
    queue: impl Queue + 'static,
    machines: Arc<Machines>,
    policy: Policy,
) -> Result<(), Box<dyn Error>> {
    let own = |address: Ipv4Addr| Cidr::new(address.into(), PREFIX_LEN).ok_or("no network");
    let own_v6 = |address: Ipv6Addr| Cidr::new(address.into(), PREFIX_LEN_V6).ok_or("no network");
    let interface = InterfaceConfig::new(own(GATEWAY)?)
        .address(own(NAME_SERVER)?)
        .address(own_v6(GATEWAY_V6)?)
        .address(own_v6(NAME_SERVER_V6)?)
        .accept_any(Cidr::ANY_IPV4)
        .accept_any(Cidr::ANY_IPV6)
        // Whatever address somebody has behind the interface, answers go back over it.
        .default_route();
    let builder = Stack::builder().interface(queue, interface);
    let (stack, (forwarders, asked)) = builder.build_with(|stack| {
        let any = |prefix| {
            let connections = TcpForwarder::bind(stack, prefix, IN_FLIGHT_MAX)?;
            let datagrams = UdpForwarder::bind(stack, prefix)?;
            io::Result::Ok((connections, datagrams, RawSocket::forward_echo(stack, prefix)?))
        };
        let asked = InnerSocket::bind(stack, (Ipv4Addr::UNSPECIFIED, SERVER_PORT))?;
        Ok(([any(Cidr::ANY_IPV4)?, any(Cidr::ANY_IPV6)?], asked))
    })?;
    match multidata_tokio::drive(&stack) {
        // The stack's own threads run it where tokio cannot watch the device.
        Err(error) if error.kind() != ErrorKind::Unsupported => return Err(error.into()),
        _ => {}
    }
    let mut relays = JoinSet::new();
    relays.spawn(lease_addresses(asked, Link::new(machines, stack.clone())));
    relays.spawn(advertise(stack.clone()));
    for (connections, datagrams, pings) in forwarders {
        relays.spawn(relay_connections(connections, policy));
        relays.spawn(relay_pings(Arc::new(pings)));
        relays.spawn(relay_datagrams(Arc::new(datagrams), policy));
    }
    while let Some(ended) = relays.join_next().await {
        ended??;
    }
    Ok(())
}

/// Where DNS servers listen.
const DOMAIN: u16 = 53;

/// Where the outside has what is called `to` inside. What is the forwarder's own inside may be anybody's outside, and a scope
/// (RFC 4007) that of another interface: nobody listens there.
fn outside_of(to: SocketAddr, policy: Policy) -> io::Result<SocketAddr> {
    match to.ip() {
        IpAddr::V4(GATEWAY) if policy.host_loopback => Ok((Ipv4Addr::LOCALHOST, to.port()).into()),
        IpAddr::V6(GATEWAY_V6) if policy.host_loopback => {
            Ok((Ipv6Addr::LOCALHOST, to.port()).into())
        }
        IpAddr::V4(NAME_SERVER) | IpAddr::V6(NAME_SERVER_V6) if to.port() == DOMAIN => {
            Ok((name_server(), DOMAIN).into())
        }
        IpAddr::V4(GATEWAY | NAME_SERVER) | IpAddr::V6(GATEWAY_V6 | NAME_SERVER_V6) => {
            Err(ErrorKind::ConnectionRefused.into())
        }
        _ => Ok(to),
    }
}

/// This host's first DNS server (resolv.conf(5)), which is read each time, as a host that moves has another.
pub(crate) fn name_server() -> IpAddr {
    let text = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let mut named = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        words.next().filter(|first| *first == "nameserver")?;
        words.next()?.parse().ok()
    });
    named.next().unwrap_or(Ipv4Addr::LOCALHOST.into())
}

async fn relay_connections(forwarder: TcpForwarder, policy: Policy) -> io::Result<()> {
    loop {
        let pending = forwarder.next().await?;
        tokio::spawn(async move {
            let about = format!("{} to {}", pending.peer(), pending.destination());
            tell(&about, relay_connection(pending, policy).await);
        });
    }
}

/// What became of a connection.
fn tell(about: &str, carried: io::Result<(u64, u64)>) {
    match carried {
        Ok((up, down)) => println!("{about}: {up} bytes up, {down} down"),
        Err(error) => println!("{about}: {error}"),
    }
}

/// Dials the outside first, so that what it says is what the peer hears; then carries both directions.
async fn relay_connection(pending: PendingConnection, policy: Policy) -> io::Result<(u64, u64)> {
    let outer = match dial(pending.destination(), policy).await {
        Ok(outer) => outer,
        Err(error) => {
            match (error.kind(), icmp_error(&error)) {
                (ErrorKind::ConnectionRefused, _) => pending.refuse(),
                (_, Some(why)) => pending.refuse_with(why),
                // As if the way there had lost the SYN.
                (_, None) => pending.ignore(),
            }
            return Err(error);
        }
    };
    carry(pending.accept()?, outer).await
}

/// Carries what comes from inside out, and what comes from outside in, until both have ended; says how much.
async fn carry(mut inner: Inner, mut outer: Outer) -> io::Result<(u64, u64)> {
    inner.socket().set_keepalive(Some(KEEPALIVE))?;
    SockRef::from(&outer).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE))?;
    let (from_inside, to_inside) = inner.split();
    let (from_outside, to_outside) = outer.split();
    let copied =
        tokio::try_join!(carry_out(from_inside, to_outside), carry_in(from_outside, to_inside));
    if copied.is_err() {
        // What broke off at one side must not look like an end at the other: a reset is passed on as one.
        inner.set_zero_linger()?;
        SockRef::from(&outer).set_linger(Some(Duration::ZERO))?;
    }
    copied
}

async fn dial(to: SocketAddr, policy: Policy) -> io::Result<Outer> {
    Outer::connect(outside_of(to, policy)?).await
}

/// Carries what comes from inside on from the blocks that it was received in. Those are for what the stack receives: it
/// takes no more than the outside has room for, and what that does not take at once after all is copied out of them.
async fn carry_out(mut inside: ReadHalf<'_>, mut outside: OuterWriteHalf<'_>) -> io::Result<u64> {
    let (mut pieces, mut total) = (Vec::new(), 0);
    loop {
        outside.writable().await?;
        let len = inside.read_bytes_vectored(BUFFER_BYTES, &mut pieces).await?;
        if len == 0 {
            break;
        }
        let slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        let written = match outside.try_write_vectored(&slices) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            outcome => outcome?,
        };
        if written < len {
            let left = pieces.drain(..).flatten().skip(written).collect::<Vec<u8>>();
            outside.write_all(&left).await?;
        }
        pieces.clear();
        total += len as u64;
    }
    outside.shutdown().await?;
    Ok(total)
}

/// Carries what comes from outside in. To lend the buffer to the stack would cost as much as the copy: memory that the
/// stack sends from is warm.
async fn carry_in(outside: OuterReadHalf<'_>, mut inside: WriteHalf<'_>) -> io::Result<u64> {
    let mut outside = BufReader::with_capacity(BUFFER_BYTES, outside);
    let total = tokio::io::copy_buf(&mut outside, &mut inside).await?;
    inside.shutdown().await?;
    Ok(total)
}

/// The outer half of a flow. Whoever carries the answers holds it, and so decides how long it lives.
struct Flow {
    outer: UdpSocket,
    has_sent: AtomicBool,
}

async fn open_flow(to: SocketAddr, policy: Policy) -> io::Result<Arc<Flow>> {
    let to = outside_of(to, policy)?;
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let outer = UdpSocket::bind(any).await?;
    outer.connect(to).await?;
    Ok(Arc::new(Flow { outer, has_sent: AtomicBool::new(false) }))
}

async fn relay_datagrams(forwarder: Arc<UdpForwarder>, policy: Policy) -> io::Result<()> {
    let mut flows = HashMap::<(SocketAddr, SocketAddr), Weak<Flow>>::new();
    let mut bytes = vec![0; BUFFER_BYTES];
    loop {
        let (len, sender, to) = forwarder.recv_from_to(&mut bytes).await?;
        let flow = match flows.get(&(sender, to)).and_then(Weak::upgrade) {
            Some(flow) => flow,
            None => {
                if flows.len() >= policy.flows_max {
                    flows.retain(|_, flow| flow.strong_count() > 0);
                }
                if flows.len() >= policy.flows_max {
                    continue;
                }
                let flow = match open_flow(to, policy).await {
                    Ok(flow) => flow,
                    Err(error) => {
                        refuse(&forwarder, &bytes[..len], (sender, to), &error);
                        continue;
                    }
                };
                flows.insert((sender, to), Arc::downgrade(&flow));
                let (forwarder, answers) = (Arc::clone(&forwarder), Arc::clone(&flow));
                tokio::spawn(relay_answers(forwarder, answers, (to, sender), policy.idle));
                flow
            }
        };
        flow.has_sent.store(true, Ordering::Relaxed);
        if let Err(error) = flow.outer.send(&bytes[..len]).await {
            refuse(&forwarder, &bytes[..len], (sender, to), &error);
        }
    }
}

/// Tells the sender of a datagram what the outside said of it. What is no ICMP error is lost, as datagrams are.
fn refuse(
    forwarder: &UdpForwarder,
    bytes: &[u8],
    (sender, to): (SocketAddr, SocketAddr),
    error: &io::Error,
) {
    if let Some(why) = icmp_error(error) {
        // The sender may be gone meanwhile.
        let _ = forwarder.refuse(bytes, sender, to, why);
    }
}

/// The ICMP error that says inside what the outside answered.
fn icmp_error(error: &io::Error) -> Option<IcmpErrorKind> {
    match error.kind() {
        ErrorKind::ConnectionRefused => Some(IcmpErrorKind::PortUnreachable),
        ErrorKind::HostUnreachable => Some(IcmpErrorKind::HostUnreachable),
        ErrorKind::NetworkUnreachable => Some(IcmpErrorKind::NetUnreachable),
        // By a route, a filter or the system's policy.
        ErrorKind::PermissionDenied => Some(IcmpErrorKind::Prohibited),
        _ => None,
    }
}

/// Carries what `from` answers, until nothing moves any more or the outside says that nobody is there.
async fn relay_answers(
    forwarder: Arc<UdpForwarder>,
    flow: Arc<Flow>,
    (from, to): (SocketAddr, SocketAddr),
    idle: Duration,
) {
    let idle = if from.port() == DOMAIN { idle.min(QUESTION_IDLE) } else { idle };
    let mut bytes = vec![0; 2 * BUFFER_BYTES];
    loop {
        let first_len = match timeout(idle, flow.outer.recv(&mut bytes)).await {
            Ok(Ok(len)) => len,
            Err(_) if flow.has_sent.swap(false, Ordering::Relaxed) => continue,
            Err(_) => return,
            // Which datagram it is about is not known any more, but that it was of this flow.
            Ok(Err(error)) => return refuse(&forwarder, &[], (to, from), &error),
        };
        let lens = with_those_behind(&flow.outer, first_len, &mut bytes);
        let mut rest = bytes.as_slice();
        let datagrams: Vec<_> = lens
            .into_iter()
            .map(|len| {
                let (payload, behind) = rest.split_at(len);
                rest = behind;
                ForwardedDatagram { payload, from, to, traffic_class: None }
            })
            .collect();
        let mut left = datagrams.as_slice();
        while !left.is_empty() {
            // One that cannot be sent is lost, as datagrams are.
            left = &left[forwarder.send_many(left).await.unwrap_or(1)..];
        }
    }
}

/// Takes the datagrams that wait behind the first, one behind the other: what came together goes on together. How long
/// each is, the first with them.
fn with_those_behind(outer: &UdpSocket, first_len: usize, bytes: &mut [u8]) -> Vec<usize> {
    let (mut lens, mut end) = (vec![first_len], first_len);
    while bytes.len() - end >= BUFFER_BYTES
        && let Ok(len) = outer.try_recv(&mut bytes[end..])
    {
        lens.push(len);
        end += len;
    }
    lens
}

async fn relay_pings(pings: Arc<RawSocket>) -> io::Result<()> {
    let waiting = Arc::new(Semaphore::new(PINGS_MAX));
    let mut message = vec![0; BUFFER_BYTES];
    loop {
        let asked = pings.recv(&mut message).await?;
        let Ok(place) = Arc::clone(&waiting).try_acquire_owned() else { continue };
        let (pings, request) = (Arc::clone(&pings), message[..asked.len].to_vec());
        tokio::spawn(async move {
            // Nobody is told of a ping that failed.
            let _ = timeout(PING_PATIENCE, relay_ping(&pings, &asked, &request)).await;
            drop(place);
        });
    }
}

/// Asks the outside, by a socket of its own, and tells what it answers.
async fn relay_ping(pings: &RawSocket, asked: &ReceivedPacket, request: &[u8]) -> io::Result<()> {
    /// Where an echo message has its identifier (RFC 792; RFC 4443, 4.1), which is the kernel's outside.
    const IDENTIFIER: std::ops::Range<usize> = 4..6;
    let outer = ping_socket(asked.destination)?;
    outer.send(request).await?;
    let mut reply = vec![0; BUFFER_BYTES];
    let len = outer.recv(&mut reply).await?;
    let reply = &mut reply[..len];
    let (Some(theirs), Some(its)) = (reply.get_mut(IDENTIFIER), request.get(IDENTIFIER)) else {
        return Ok(());
    };
    theirs.copy_from_slice(its);
    pings.send_from_to(reply, asked.destination, asked.source).await.map(drop)
}

/// A socket for echo requests and the replies to them. To tokio it is one for datagrams like any other.
fn ping_socket(to: IpAddr) -> io::Result<UdpSocket> {
    let (domain, protocol) = match to {
        IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4),
        IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6),
    };
    let socket = Socket::new(domain, Type::DGRAM, Some(protocol))?;
    socket.set_nonblocking(true)?;
    socket.connect(&SocketAddr::new(to, 0).into())?;
    UdpSocket::from_std(socket.into())
}
