//! Raw IP and echo requests with the Linux kernel as the peer, over a TAP in a network of the test's own.

mod kernel;

use kernel::address;
use linux::{Interface, TapConfig};
use multidata::{EchoAnswer, RawPacket, RawSocket, Stack, echo_request};
use socket2::{Domain, Protocol, Socket, Type};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::ExitCode;
use std::time::Duration;

const TESTS: &[kernel::Test] = &[
    ("the_kernel_answers_many_echo_requests_of_one_batch", echo_requests),
    ("packets_of_a_protocol_reach_the_kernel_and_come_back", packets_of_a_protocol),
    ("the_kernel_says_that_it_has_no_such_protocol", unknown_protocol),
];

/// Longest time any step may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// For experiments (RFC 3692).
const PROTOCOL: u8 = 253;

/// A stack at `.2` of a network, over a TAP with the kernel at `.1` and `.3`.
fn stack(network: u8, offload: bool) -> (Stack, Interface) {
    let config = TapConfig { offload, ..TapConfig::default() };
    let (mut device, interface) = kernel::tap(&config, network);
    kernel::give(&interface, network, 3);
    let queue = device.queue(0).expect("it has one");
    let builder = Stack::builder().interface(queue, kernel::ours(network));
    (builder.build().expect("a stack"), interface)
}

/// A raw socket of the kernel's at one of its addresses. The standard library's socket knows how to
/// send and receive, whatever it carries.
fn kernel_socket(protocol: u8, at: IpAddr) -> UdpSocket {
    let at = SocketAddr::new(at, 0);
    let protocol = Protocol::from(i32::from(protocol));
    let socket = Socket::new(Domain::for_address(at), Type::RAW, Some(protocol));
    let socket = socket.expect("root of its own network may");
    socket.bind(&at.into()).expect("the kernel's address");
    socket.set_recv_buffer_size(1 << 20).expect("an option of all sockets");
    let socket = UdpSocket::from(socket);
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    socket
}

/// What a socket of the kernel's receives: over IPv4 it has the header in front.
fn receive(socket: &UdpSocket, ipv6: bool, buffer: &mut [u8]) -> Vec<u8> {
    let len = socket.recv(buffer).expect("sent");
    buffer[if ipv6 { 0 } else { 20 }..len].to_vec()
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect()
}

fn echo_requests() {
    for (network, offload) in [(51, false), (52, true)] {
        let (stack, _interface) = stack(network, offload);
        for ipv6 in [false, true] {
            let socket = RawSocket::bind_echo(&stack, 0).expect("a free identifier");
            socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            let mut buffer = vec![0; 10_000];
            let mut answers = |count: usize| -> Vec<(IpAddr, u16, Vec<u8>)> {
                let answer = |_| {
                    let packet = socket.recv(&mut buffer).expect("the kernel answers");
                    let message = &buffer[..packet.len];
                    let Some(EchoAnswer::Reply { sequence, data }) =
                        EchoAnswer::parse(&packet, message)
                    else {
                        panic!("{message:?} is no reply");
                    };
                    (packet.source, sequence, data.to_vec())
                };
                (0..count).map(answer).collect()
            };
            let peers = [1, 3].map(|host| address(ipv6, network, host));
            // The neighbours are found first; the data is longer than a frame, too.
            for (peer, len) in [(peers[0], 0), (peers[1], 5_000)] {
                socket.send_to(&echo_request(peer, 999, &bytes(len)), peer).expect("a route");
                assert_eq!(answers(1), [(peer, 999, bytes(len))]);
            }
            let messages: Vec<_> = (0..60_u16)
                .map(|i| (peers[usize::from(i) % 2], i))
                .map(|(to, i)| (to, echo_request(to, i, &bytes(usize::from(i) * 7))))
                .collect();
            let packets: Vec<_> =
                messages.iter().map(|(to, payload)| RawPacket { payload, to: *to }).collect();
            let before = stack.counters().device;
            assert_eq!(socket.send_many(&packets).expect("a route"), 60);
            let after = stack.counters().device;
            let sent = after.transmit_packets - before.transmit_packets;
            let batches = after.transmit_batches - before.transmit_batches;
            assert!(sent >= 60 && sent / batches >= 20, "{sent} in {batches} batches");
            let mut all = answers(60);
            all.sort_by_key(|(_, sequence, _)| *sequence);
            for ((from, sequence, data), i) in all.into_iter().zip(0..) {
                assert_eq!((from, sequence), (peers[usize::from(i) % 2], i));
                assert_eq!(data, bytes(usize::from(i) * 7));
            }
        }
    }
}

fn packets_of_a_protocol() {
    for (network, offload) in [(53, false), (54, true)] {
        let (stack, _interface) = stack(network, offload);
        for ipv6 in [false, true] {
            let peers = [1, 3].map(|host| address(ipv6, network, host));
            let own = address(ipv6, network, 2);
            let theirs = peers.map(|peer| kernel_socket(PROTOCOL, peer));
            let ours = RawSocket::bind(&stack, PROTOCOL).expect("nobody's");
            ours.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            let mut buffer = vec![0; 70_000];
            let longest = if ipv6 { 65_535 } else { 65_515 };
            // What an IPv6 socket of Linux sends is 65,535 bytes with the header at most.
            let longest_back = 65_495;
            for len in [0, 1, 8, 1_460, 1_480, 1_481, 20_000, longest] {
                let sent = bytes(len);
                assert_eq!(ours.send_to(&sent, peers[0]).expect("a route"), len);
                let received = receive(&theirs[0], ipv6, &mut buffer);
                assert!(received == sent, "{len} bytes, IPv6 {ipv6}, offload {offload}");
                let back = &sent[..len.min(longest_back)];
                theirs[0].send_to(back, (own, 0)).expect("a route");
                let (count, from) = ours.recv_from(&mut buffer).expect("sent");
                assert!(&buffer[..count] == back && from == peers[0], "{len} bytes back");
            }
            ours.send_to(b"hello", peers[1]).expect("a route");
            receive(&theirs[1], ipv6, &mut buffer);
            let payloads: Vec<Vec<u8>> = (0..200).map(|i| bytes(i * 5)).collect();
            let packets: Vec<_> = (payloads.iter().zip(peers.iter().cycle()))
                .map(|(payload, to)| RawPacket { payload, to: *to })
                .collect();
            let before = stack.counters().device;
            assert_eq!(ours.send_many(&packets).expect("a route"), 200);
            let after = stack.counters().device;
            let sent = after.transmit_packets - before.transmit_packets;
            let batches = after.transmit_batches - before.transmit_batches;
            assert!(sent >= 200 && sent / batches >= 20, "{sent} in {batches} batches");
            for (payload, socket) in payloads.iter().zip(theirs.iter().cycle()) {
                assert!(receive(socket, ipv6, &mut buffer) == *payload, "{} bytes", payload.len());
            }
        }
    }
}

fn unknown_protocol() {
    let (stack, _interface) = stack(55, false);
    for (ipv6, icmp, unreachable) in [(false, 1, [3, 2]), (true, 58, [4, 1])] {
        let listener = RawSocket::bind(&stack, icmp).expect("a raw socket");
        listener.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let sender = RawSocket::bind(&stack, 252).expect("a raw socket");
        sender.send_to(b"anybody?", address(ipv6, 55, 1)).expect("a route");
        let mut buffer = [0; 2_000];
        while listener.recv(&mut buffer).expect("the kernel says so").len < 2
            || buffer[..2] != unreachable
        {}
    }
}

fn main() -> ExitCode {
    kernel::run(TESTS, kernel::enter_with_tun)
}
