//! A TUN interface whose every TCP connection goes on over the kernel's sockets, as tun2socks and the
//! networks of virtual machines do it: `cargo run -p multidata-tokio --example forwarder [NAME]`.
//!
//! The interface is opened here and moved to a namespace, which has no other way out:
//!
//! ```sh
//! ip netns add guest
//! cargo run --release -p multidata-tokio --example forwarder tun0 &
//! ip link set tun0 netns guest
//! ip -n guest address add 10.0.2.100/24 dev tun0
//! ip -n guest link set tun0 up
//! ip -n guest route add default dev tun0
//! ip netns exec guest curl http://example.org --resolve example.org:80:93.184.215.14
//! ```

use linux::{TapConfig, TapDevice, TapKind};
use multidata::device::TransmitMode;
use multidata::ip::Cidr;
use multidata::{InterfaceConfig, Stack};
use multidata_tokio::{PendingConnection, TcpForwarder};
use std::io::{self, ErrorKind};
use tokio::io::copy_bidirectional_with_sizes;

/// Connections that may wait for the outside to answer.
const IN_FLIGHT_MAX: usize = 1_024;

/// What one direction of a connection carries at once.
const BUFFER_BYTES: usize = 65_536;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = std::env::args().nth(1).unwrap_or_else(|| String::from("tun0"));
    let config = TapConfig { name: Some(name), kind: TapKind::Tun, ..TapConfig::default() };
    let mut tun = TapDevice::open(&config)?;
    println!("{}", tun.negotiated());
    let interface = InterfaceConfig::new("10.0.2.2/24".parse()?)
        .mode(TransmitMode::Lso)
        .accept_any(Cidr::ANY_IPV4)
        .accept_any(Cidr::ANY_IPV6);
    let stack = Stack::builder().interface(tun.queue(0)?, interface).build()?;
    for any in [Cidr::ANY_IPV4, Cidr::ANY_IPV6] {
        // Whatever address somebody has behind the interface, answers go back over it.
        stack.add_route(any, None, 0)?;
    }
    let ipv4 = TcpForwarder::bind(&stack, Cidr::ANY_IPV4, IN_FLIGHT_MAX)?;
    let ipv6 = TcpForwarder::bind(&stack, Cidr::ANY_IPV6, IN_FLIGHT_MAX)?;
    loop {
        let pending = tokio::select! { next = ipv4.next() => next?, next = ipv6.next() => next? };
        tokio::spawn(async move {
            let about = format!("{} to {}", pending.peer(), pending.destination());
            match relay(pending).await {
                Ok((up, down)) => println!("{about}: {up} bytes up, {down} down"),
                Err(error) => println!("{about}: {error}"),
            }
        });
    }
}

/// Dials the outside first, so that what it says is what the peer hears; then carries both directions.
async fn relay(pending: PendingConnection) -> io::Result<(u64, u64)> {
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
