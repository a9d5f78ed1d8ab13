//! A TUN interface whose every TCP connection and datagram goes on over the kernel's sockets, as tun2socks and
//! the networks of virtual machines do it: `cargo run -p multidata-tokio --example forwarder [NAME]`.
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

use linux::{TapConfig, TapDevice, TapKind};
use multidata::device::Queue;
use multidata::ip::Cidr;
use multidata::{InterfaceConfig, Stack};
use multidata_tokio::{PendingConnection, TcpForwarder, UdpForwarder};
use std::collections::HashMap;
use std::error::Error;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::io::copy_bidirectional_with_sizes;
use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Connections that may wait for the outside to answer, of each IP version.
const IN_FLIGHT_MAX: usize = 1_024;

/// What one direction of a connection carries at once.
const BUFFER_BYTES: usize = 65_536;

/// Flows of datagrams at once, of each IP version; those of others are dropped. A flow is a sender and where it
/// sends to, and has a socket.
pub(crate) const FLOWS_MAX: usize = 1_024;

/// A flow in which nothing moves for so long, or at most for twice as long, is forgotten (RFC 4787, 4.3: not less
/// than two minutes).
pub(crate) const IDLE: Duration = Duration::from_secs(120);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let name = std::env::args().nth(1).unwrap_or_else(|| String::from("tun0"));
    let config = TapConfig { name: Some(name), kind: TapKind::Tun, ..TapConfig::default() };
    let mut tun = TapDevice::open(&config)?;
    println!("{}", tun.negotiated());
    relay(tun.queue(0)?, FLOWS_MAX, IDLE).await
}

/// Relays what comes by `queue`, until that fails.
pub(crate) async fn relay(
    queue: impl Queue + 'static,
    flows_max: usize,
    idle: Duration,
) -> Result<(), Box<dyn Error>> {
    let interface = InterfaceConfig::new("10.0.2.2/24".parse()?)
        .accept_any(Cidr::ANY_IPV4)
        .accept_any(Cidr::ANY_IPV6)
        // Whatever address somebody has behind the interface, answers go back over it.
        .default_route();
    let builder = Stack::builder().interface(queue, interface);
    let (_stack, forwarders) = builder.build_with(|stack| {
        let any = |prefix| {
            let connections = TcpForwarder::bind(stack, prefix, IN_FLIGHT_MAX)?;
            io::Result::Ok((connections, UdpForwarder::bind(stack, prefix)?))
        };
        Ok([any(Cidr::ANY_IPV4)?, any(Cidr::ANY_IPV6)?])
    })?;
    let mut relays = JoinSet::new();
    for (connections, datagrams) in forwarders {
        relays.spawn(relay_connections(connections));
        relays.spawn(relay_datagrams(Arc::new(datagrams), flows_max, idle));
    }
    while let Some(ended) = relays.join_next().await {
        ended??;
    }
    Ok(())
}

async fn relay_connections(forwarder: TcpForwarder) -> io::Result<()> {
    loop {
        let pending = forwarder.next().await?;
        tokio::spawn(async move {
            let about = format!("{} to {}", pending.peer(), pending.destination());
            match relay_connection(pending).await {
                Ok((up, down)) => println!("{about}: {up} bytes up, {down} down"),
                Err(error) => println!("{about}: {error}"),
            }
        });
    }
}

/// Dials the outside first, so that what it says is what the peer hears; then carries both directions.
async fn relay_connection(pending: PendingConnection) -> io::Result<(u64, u64)> {
    let mut outer = match tokio::net::TcpStream::connect(pending.destination()).await {
        Ok(outer) => outer,
        Err(error) => {
            match error.kind() {
                ErrorKind::ConnectionRefused => pending.refuse(),
                // As if the way there had lost the SYN.
                _ => pending.ignore(),
            }
            return Err(error);
        }
    };
    let mut inner = pending.accept()?;
    copy_bidirectional_with_sizes(&mut inner, &mut outer, BUFFER_BYTES, BUFFER_BYTES).await
}

/// The outer half of a flow. Whoever carries the answers holds it, and so decides how long it lives.
struct Flow {
    outer: UdpSocket,
    has_sent: AtomicBool,
}

async fn open_flow(to: SocketAddr) -> io::Result<Arc<Flow>> {
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let outer = UdpSocket::bind(any).await?;
    outer.connect(to).await?;
    Ok(Arc::new(Flow { outer, has_sent: AtomicBool::new(false) }))
}

async fn relay_datagrams(
    forwarder: Arc<UdpForwarder>,
    flows_max: usize,
    idle: Duration,
) -> io::Result<()> {
    let mut flows = HashMap::<(SocketAddr, SocketAddr), Weak<Flow>>::new();
    let mut bytes = vec![0; BUFFER_BYTES];
    loop {
        let (len, sender, to) = forwarder.recv_from_to(&mut bytes).await?;
        let flow = match flows.get(&(sender, to)).and_then(Weak::upgrade) {
            Some(flow) => flow,
            None => {
                if flows.len() >= flows_max {
                    flows.retain(|_, flow| flow.strong_count() > 0);
                }
                if flows.len() >= flows_max {
                    continue;
                }
                // As if the way there had lost it.
                let Ok(flow) = open_flow(to).await else { continue };
                flows.insert((sender, to), Arc::downgrade(&flow));
                let (forwarder, answers) = (Arc::clone(&forwarder), Arc::clone(&flow));
                tokio::spawn(relay_answers(forwarder, answers, (to, sender), idle));
                flow
            }
        };
        flow.has_sent.store(true, Ordering::Relaxed);
        // Where it fails, as after an ICMP error, it is lost, as datagrams are.
        let _ = flow.outer.send(&bytes[..len]).await;
    }
}

/// Carries what `from` answers, until nothing moves any more or the outside says that nobody is there.
async fn relay_answers(
    forwarder: Arc<UdpForwarder>,
    flow: Arc<Flow>,
    (from, to): (SocketAddr, SocketAddr),
    idle: Duration,
) {
    let mut bytes = vec![0; BUFFER_BYTES];
    loop {
        match timeout(idle, flow.outer.recv(&mut bytes)).await {
            Ok(Ok(len)) => drop(forwarder.send_from_to(&bytes[..len], from, to).await),
            Err(_) if flow.has_sent.swap(false, Ordering::Relaxed) => {}
            _ => return,
        }
    }
}
