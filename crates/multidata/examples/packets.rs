//! A stack over packets that the program carries itself, as userspace VPN clients do it: no device, no
//! privilege, and it builds wherever Rust has threads.
//!
//! The stack stands on one end of a pipe, the program holds the other: what the stack sends comes out there packet by
//! packet, what the program puts in there reaches the stack. Here each packet goes as one datagram of a kernel UDP
//! socket; a VPN would seal it first and open it afterwards, where the comments say. The same works in tasks
//! (`poll_recv`, `poll_send_many`), and whoever wants whole batches holds the other end of a wire (`device::wire`).
//!
//! ```sh
//! cargo run -p multidata --example packets -- 127.0.0.1:7001 127.0.0.1:7002 10.0.0.1/24 &
//! cargo run -p multidata --example packets -- 127.0.0.1:7002 127.0.0.1:7001 10.0.0.2/24 10.0.0.1:7
//! ```
//!
//! The first echoes until it is ended, the second sends it 64 MiB and reads them back. Between two stacks of this library
//! the tunnel device does the same with one system call a batch, and with a cipher.

use multidata::device::{PacketReceiver, PacketSender, packet_pipe};
use multidata::{InterfaceConfig, Stack, TcpListener, TcpStream};
use std::io::{self, Write};
use std::net::UdpSocket;
use std::process::ExitCode;
use std::time::Duration;

/// Room for what goes around a packet on its way, so that datagrams are not fragmented.
const MTU_BYTES: usize = 1_420;

/// How often who waits for the network looks whether the stack is still there.
const LOOK_EVERY: Duration = Duration::from_secs(1);

const TOTAL_BYTES: usize = 64 << 20;

fn main() -> ExitCode {
    let outcome = run();
    if let Err(error) = &outcome {
        eprintln!("packets: {error}");
    }
    ExitCode::from(u8::from(outcome.is_err()))
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [local, remote, address, to @ ..] = &arguments[..] else {
        return Err("usage: packets LOCAL:PORT REMOTE:PORT ADDRESS/PREFIX [CONNECT:PORT]".into());
    };
    let (queue, sender, receiver) = packet_pipe(MTU_BYTES);
    let interface = InterfaceConfig::new(address.parse()?).default_route();
    let stack = Stack::builder().interface(queue, interface).build()?;

    let socket = UdpSocket::bind(local)?;
    socket.connect(remote)?;
    socket.set_read_timeout(Some(LOOK_EVERY))?;
    let outwards = socket.try_clone()?;
    std::thread::spawn(move || carry_out(receiver, &outwards));
    std::thread::spawn(move || carry_in(sender, &socket));

    match to.first() {
        None => echo(&stack, address.split('/').next().unwrap_or(address)),
        Some(peer) => measure(&stack, peer),
    }?;
    Ok(())
}

/// What the stack sends, to the socket, until the stack is gone.
fn carry_out(mut receiver: PacketReceiver, socket: &UdpSocket) {
    let mut packet = [0; MTU_BYTES];
    while let Ok(len) = receiver.recv(&mut packet) {
        // A VPN seals the packet here. One that the socket has no room for is lost, as on any path.
        let _ = socket.send(&packet[..len]);
    }
}

/// What the socket brings, to the stack, until that is gone.
fn carry_in(mut sender: PacketSender, socket: &UdpSocket) {
    let mut datagram = [0; MTU_BYTES];
    while !sender.is_closed() {
        // That nobody listens at the other end yet is said here and may pass, as silence may.
        let Ok(len) = socket.recv(&mut datagram) else { continue };
        // A VPN opens the packet here. The stack takes nothing of it on trust. What it has no room for is lost,
        // as it would be on any path.
        let _ = sender.try_send_many(&[&datagram[..len]]);
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
