//! A stack over packets that the program carries itself, as userspace VPN clients do it: no device, no
//! privilege, and it builds wherever Rust has threads.
//!
//! The stack stands on one end of an in-process wire, the program holds the other: what the stack sends
//! comes out there in batches, what the program puts in there reaches the stack. Here each packet goes as
//! one datagram of a kernel UDP socket; a VPN would seal it first and open it afterwards, where the comments say.
//!
//! ```sh
//! cargo run -p multidata --example packets -- 127.0.0.1:7001 127.0.0.1:7002 10.0.0.1/24 &
//! cargo run -p multidata --example packets -- 127.0.0.1:7002 127.0.0.1:7001 10.0.0.2/24 10.0.0.1:7
//! ```
//!
//! The first echoes until it is ended, the second sends it 64 MiB and reads them back. Between two stacks of this library
//! the tunnel device does the same with one system call a batch, and with a cipher.

use bytes::Bytes;
use multidata::batch::{Attributes, Block, BlockPool, Multidata, PoolConfig, ReceiveBatch};
use multidata::device::{Medium, Queue, Waiter, WireConfig, WireEnd, WireQueue, wire};
use multidata::{InterfaceConfig, Stack, TcpListener, TcpStream};
use std::io::{self, Write};
use std::net::UdpSocket;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Room for what goes around a packet on its way, so that datagrams are not fragmented.
const MTU_BYTES: usize = 1_420;

const TOTAL_BYTES: usize = 64 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [local, remote, address, to @ ..] = &arguments[..] else {
        return Err("usage: packets LOCAL:PORT REMOTE:PORT ADDRESS/PREFIX [CONNECT:PORT]".into());
    };
    let end = WireEnd::plain(Medium::Ip);
    let (queue, ours) = wire(WireConfig { mtu_bytes: MTU_BYTES, ..WireConfig::new(end, end) });
    let interface = InterfaceConfig::new(address.parse()?).default_route();
    let stack = Stack::builder().interface(queue, interface).build()?;

    let socket = UdpSocket::bind(local)?;
    socket.connect(remote)?;
    let outwards = socket.try_clone()?;
    let waiter = ours.waiter();
    let ours = Arc::new(Mutex::new(ours));
    let inwards = Arc::clone(&ours);
    std::thread::spawn(move || carry_out(&ours, &*waiter, &outwards));
    std::thread::spawn(move || carry_in(&inwards, &socket));

    match to.first() {
        None => echo(&stack, address.split('/').next().unwrap_or(address)),
        Some(peer) => measure(&stack, peer),
    }?;
    Ok(())
}

/// What the stack sends, batch by batch, to the socket.
fn carry_out(ours: &Mutex<WireQueue>, waiter: &dyn Waiter, socket: &UdpSocket) {
    let pool = BlockPool::new(PoolConfig::default());
    let mut batch = ReceiveBatch::new();
    loop {
        batch.clear();
        let mut queue = ours.lock().unwrap_or_else(PoisonError::into_inner);
        queue.receive(&pool, &mut batch, 64);
        drop(queue);
        for index in 0..batch.len() {
            // A VPN seals the packet here. One that the socket has no room for is lost, as on any path.
            let _ = socket.send(batch.bytes(index));
        }
        if batch.is_empty() {
            waiter.wait(Some(Duration::from_secs(1)));
        }
    }
}

/// What the socket brings, to the stack.
fn carry_in(ours: &Mutex<WireQueue>, socket: &UdpSocket) {
    let mut datagram = vec![0; 65_536];
    let mut batch = Multidata::default();
    loop {
        // That nobody listens at the other end yet is said here and may pass.
        let Ok(len) = socket.recv(&mut datagram) else { continue };
        // A VPN opens the packet here. The stack takes nothing of it on trust.
        let packet = Block::from(Bytes::copy_from_slice(&datagram[..len]));
        batch.clear();
        let is_there = batch.push_packet(0, Attributes::default()).is_some()
            && batch.append_span(&packet, 0, len);
        if is_there {
            // What finds no room on the wire is lost, as it would be on any path.
            ours.lock().unwrap_or_else(PoisonError::into_inner).transmit(&batch);
        }
    }
}

fn echo(stack: &Stack, address: &str) -> io::Result<()> {
    let listener = TcpListener::bind(stack, &format!("{address}:7")[..])?;
    println!("echoing at {address}:7");
    loop {
        let (mut stream, peer) = listener.accept()?;
        println!("{peer}");
        std::thread::spawn(move || io::copy(&mut stream.try_clone()?, &mut stream));
    }
}

fn measure(stack: &Stack, peer: &str) -> io::Result<()> {
    let mut stream = TcpStream::connect(stack, peer)?;
    let mut back = stream.try_clone()?;
    let started = std::time::Instant::now();
    let reader = std::thread::spawn(move || io::copy(&mut back, &mut io::sink()));
    let chunk = vec![7; 65_536];
    for _ in 0..TOTAL_BYTES / chunk.len() {
        stream.write_all(&chunk)?;
    }
    stream.shutdown(std::net::Shutdown::Write)?;
    let read = reader.join().map_err(|_| io::Error::other("the reader panicked"))??;
    println!("{read} bytes there and back in {:.2} s", started.elapsed().as_secs_f64());
    Ok(())
}
