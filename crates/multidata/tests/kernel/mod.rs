//! The kernel as the other end of a stack, in a network of the test's own.

// Every test binary uses its own part of this.
#![allow(dead_code, unused_imports)]

#[path = "../../../linux/tests/network/mod.rs"]
mod network;

use linux::{Interface, TapConfig, TapDevice};
use multidata::batch::{BlockPool, PoolConfig, ReceiveBatch};
use multidata::device::Queue;
use multidata::ip::Cidr;
use multidata::{InterfaceConfig, Stack, TcpStream};
pub(crate) use network::{cannot_run, enter, enter_with_tun, run};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Longest time until a device knows of its interface.
const NOTICED_WITHIN: Duration = Duration::from_secs(10);

/// A test and its name.
pub(crate) type Test = (&'static str, fn());

/// An address of network `network`, 10.`network`.0.0/24 or fd`network`::/64: that of the kernel is the
/// first, ours the second.
pub(crate) fn address(ipv6: bool, network: u8, host: u8) -> IpAddr {
    let text = match ipv6 {
        false => format!("10.{network}.0.{host}"),
        true => format!("fd{network:02}::{host}"),
    };
    text.parse().expect("an address")
}

/// The same with the length of the network's prefix.
pub(crate) fn cidr(ipv6: bool, network: u8, host: u8) -> Cidr {
    let prefix_len = if ipv6 { 64 } else { 24 };
    Cidr::new(address(ipv6, network, host), prefix_len).expect("a network")
}

/// An interface of ours with its two addresses of a network.
pub(crate) fn ours(network: u8) -> InterfaceConfig {
    InterfaceConfig::new(cidr(false, network, 2)).address(cidr(true, network, 2))
}

/// A new interface that is up and on which the kernel has its two addresses of a network.
pub(crate) fn tap(config: &TapConfig, network: u8) -> (TapDevice, Interface) {
    let device = TapDevice::open(config).expect("the namespace has the TUN driver");
    let interface = device.interface().expect("it exists");
    give(&interface, network, 1);
    interface.set_up().expect("root of the namespace");
    (device, interface)
}

/// Gives the kernel two addresses of a network, one of each family.
pub(crate) fn give(interface: &Interface, network: u8, host: u8) {
    for cidr in [cidr(false, network, host), cidr(true, network, host)] {
        let (address, prefix_len) = (cidr.address(), cidr.prefix_len());
        interface.add_address(address, prefix_len).expect("root of the namespace");
    }
}

/// A connection that the kernel accepted at this address of its own. Neither end waits longer than
/// `patience`.
pub(crate) fn connected(
    stack: &Stack,
    at: IpAddr,
    patience: Duration,
) -> (TcpStream, std::net::TcpStream) {
    let listener = std::net::TcpListener::bind((at, 0)).expect("its own address");
    let to = listener.local_addr().expect("bound");
    let ours = TcpStream::connect_timeout(stack, &to, patience).expect("the kernel answers");
    let (kernel, _) = listener.accept().expect("connected");
    kernel.set_read_timeout(Some(patience)).expect("a timeout");
    kernel.set_write_timeout(Some(patience)).expect("a timeout");
    ours.set_read_timeout(Some(patience)).expect("a timeout");
    ours.set_write_timeout(Some(patience)).expect("a timeout");
    (ours, kernel)
}

/// Receives until `queue` says that its interface is lost, or that it is there again.
pub(crate) fn notices(queue: &mut impl Queue, is_lost: bool) {
    let (pool, started) = (BlockPool::new(PoolConfig::default()), Instant::now());
    while queue.trouble().is_some() != is_lost {
        assert!(started.elapsed() < NOTICED_WITHIN, "it is not noticed");
        queue.receive(&pool, &mut ReceiveBatch::new(), 64);
        queue.waiter().wait(Some(NOTICED_WITHIN));
    }
}

/// Receives until nothing has come for a while, in which a wait must not end early.
pub(crate) fn sleeps(queue: &mut impl Queue) {
    let (pool, started) = (BlockPool::new(PoolConfig::default()), Instant::now());
    let (waiter, long) = (queue.waiter(), Duration::from_millis(100));
    loop {
        // Frames of the kernel's own may still come.
        while queue.receive(&pool, &mut ReceiveBatch::new(), 64).frames > 0 {}
        let began = Instant::now();
        waiter.wait(Some(long));
        if began.elapsed() >= long {
            return;
        }
        assert!(started.elapsed() < NOTICED_WITHIN, "every wait ends early");
    }
}
