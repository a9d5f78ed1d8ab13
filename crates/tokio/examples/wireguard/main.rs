//! A WireGuard client in userspace: ports of this host that lead to hosts behind a WireGuard peer, and ports in the
//! tunnel that lead to hosts here, without root and without a device, as onetun and wireproxy do it.
//!
//! ```sh
//! cargo run --release -p multidata-tokio --example wireguard -- wg0.conf \
//!     127.0.0.1:8080=10.0.0.1:80 10.0.0.2:2222=127.0.0.1:22
//! ```
//!
//! The file is what wg-quick(8) reads, with one peer. Who connects to what stands in front of a `=` reaches what stands
//! behind it. Where that is an address that the file gives to us, the port is one in the tunnel, else one of this host.
//!
//! The protocol is boringtun's. What is here is the way of a batch: what the stack sends at once is sealed into one buffer
//! and leaves by one system call (`UDP_SEGMENT`), and what one call brings (`UDP_GRO`) reaches the stack as one batch.

pub(crate) mod config;
mod tunnel;

use config::Config;
use multidata::device::packet_pipe;
use multidata::ip::Cidr;
use multidata::{InterfaceConfig, Stack};
use multidata_tokio::TcpStream as Inner;
use socket2::{SockRef, TcpKeepalive};
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use tokio::io::copy_bidirectional_with_sizes;
use tokio::net::TcpStream as Outer;
use tokio::task::JoinSet;
use tunnel::Tunnel;

/// What one direction of a connection carries at once.
const BUFFER_BYTES: usize = 65_536;

/// After so long without a word from one side of a connection it is asked whether it is still there, or one that was
/// switched off would be remembered for ever.
const KEEPALIVE: Duration = Duration::from_secs(600);

/// How long who accepts rests when that failed, as for want of descriptors, which is not better at once.
const REST: Duration = Duration::from_millis(100);

// One thread for all: what a datagram wakes is done where it was received.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let outcome = run().await;
    if let Err(error) = &outcome {
        eprintln!("wireguard: {error}");
    }
    ExitCode::from(u8::from(outcome.is_err()))
}

async fn run() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let file = arguments.next().ok_or("usage: wireguard FILE LISTEN:PORT=TO:PORT ...")?;
    let file = Path::new(&file);
    let named = file.display();
    let text = std::fs::read_to_string(file).map_err(|error| format!("{named}: {error}"))?;
    let config: Config = text.parse().map_err(|error| format!("{named}: {error}"))?;
    for ignored in &config.ignored {
        eprintln!("wireguard: {named}: {ignored} is not for this program");
    }
    let ways =
        arguments.map(|way| way.to_string_lossy().parse()).collect::<Result<Vec<Way>, _>>()?;
    let linked = link(&config).await?;
    let mut tasks = JoinSet::new();
    tasks.spawn(linked.tunnel.run());
    for way in ways {
        tasks.spawn(open(linked.stack.clone(), &config, way).await?);
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}

/// A stack and the tunnel that carries its packets.
pub(crate) struct Linked {
    pub(crate) stack: Stack,
    pub(crate) tunnel: Tunnel,
}

/// The stack has the file's addresses and reaches what the file allows, and nothing else: not the networks that the
/// addresses are of, from which nobody would answer.
pub(crate) async fn link(config: &Config) -> Result<Linked, Box<dyn Error>> {
    let (queue, to_stack, from_stack) = packet_pipe(config.mtu_bytes);
    let own: Vec<Cidr> = config.addresses.iter().map(|own| Cidr::host(own.address())).collect();
    let [first, others @ ..] = &own[..] else { return Err("no address".into()) };
    let interface = others.iter().fold(InterfaceConfig::new(*first), |it, own| it.address(*own));
    let interface = config.allowed.iter().fold(interface, |it, network| it.route(*network, None));
    let stack = Stack::builder().interface(queue, interface).build()?;
    multidata_tokio::drive(&stack)?;
    let tunnel = Tunnel::open(config, to_stack, from_stack).await?;
    Ok(Linked { stack, tunnel })
}

/// `LISTEN:PORT=TO:PORT`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    pub(crate) listen: SocketAddr,
    pub(crate) to: SocketAddr,
}

impl std::str::FromStr for Way {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text}: not of the form 127.0.0.1:8080=10.0.0.1:80");
        let (listen, to) = text.split_once('=').ok_or_else(wrong)?;
        let at = |text: &str| text.parse().map_err(|_| wrong());
        Ok(Self { listen: at(listen)?, to: at(to)? })
    }
}

/// Listens, and gives the task that carries what comes.
pub(crate) async fn open(
    stack: Stack,
    config: &Config,
    Way { listen, to }: Way,
) -> io::Result<impl Future<Output = io::Result<()>> + use<>> {
    let wrong = |error: io::Error| io::Error::new(error.kind(), format!("{listen}: {error}"));
    let is_inside = config.addresses.iter().any(|own| own.address() == listen.ip());
    let (inside, outside) = match is_inside {
        true => (Some(multidata_tokio::TcpListener::bind(&stack, listen).map_err(wrong)?), None),
        false => (None, Some(tokio::net::TcpListener::bind(listen).await.map_err(wrong)?)),
    };
    Ok(async move {
        loop {
            let accepted = match (&inside, &outside) {
                (Some(listener), _) => listener.accept().await.map(|(inner, from)| {
                    tokio::spawn(async move {
                        told(from, to, carry_out(inner, to).await);
                    });
                }),
                (_, Some(listener)) => listener.accept().await.map(|(outer, from)| {
                    let stack = stack.clone();
                    tokio::spawn(async move {
                        told(from, to, carry_in(&stack, outer, to).await);
                    });
                }),
                (None, None) => return Ok(()),
            };
            if let Err(error) = accepted {
                eprintln!("wireguard: {listen}: {error}");
                tokio::time::sleep(REST).await;
            }
        }
    })
}

fn told(from: SocketAddr, to: SocketAddr, carried: io::Result<(u64, u64)>) {
    match carried {
        Ok((there, back)) => println!("{from} to {to}: {there} bytes there, {back} back"),
        Err(error) => println!("{from} to {to}: {error}"),
    }
}

async fn carry_out(inner: Inner, to: SocketAddr) -> io::Result<(u64, u64)> {
    match Outer::connect(to).await {
        Ok(outer) => carry(inner, outer).await,
        Err(error) => {
            inner.set_zero_linger()?;
            Err(error)
        }
    }
}

async fn carry_in(stack: &Stack, outer: Outer, to: SocketAddr) -> io::Result<(u64, u64)> {
    match Inner::connect(stack, to).await {
        Ok(inner) => carry(inner, outer).await.map(|(back, there)| (there, back)),
        Err(error) => {
            SockRef::from(&outer).set_linger(Some(Duration::ZERO))?;
            Err(error)
        }
    }
}

/// Carries both directions, out and in, until each has ended.
async fn carry(mut inner: Inner, mut outer: Outer) -> io::Result<(u64, u64)> {
    inner.socket().set_keepalive(Some(KEEPALIVE))?;
    SockRef::from(&outer).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE))?;
    let carried =
        copy_bidirectional_with_sizes(&mut inner, &mut outer, BUFFER_BYTES, BUFFER_BYTES).await;
    if carried.is_err() {
        // What broke off at one side must not look like an end at the other.
        inner.set_zero_linger()?;
        SockRef::from(&outer).set_linger(Some(Duration::ZERO))?;
    }
    carried
}
