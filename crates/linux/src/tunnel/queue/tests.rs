//! The queue on a socket that needs no network.

use super::*;
use crate::{TunnelConfig, TunnelDevice, raw_calls, withheld};
use batch::{Attributes, Checksum, PoolConfig};
use device::Medium;
use device::transform::Null;
use rustix::fd::AsRawFd;
use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

fn queue() -> (TunnelQueue, UnixDatagram) {
    let (ours, theirs) = UnixDatagram::pair().expect("a pair of sockets");
    let socket = Arc::new(OwnedFd::from(ours));
    let waiter = Arc::new(FileWaiter::new(Arc::clone(&socket)).expect("an eventfd"));
    let peer: SocketAddr = "10.0.0.2:7".parse().expect("an address");
    let capabilities = Capabilities::plain(Medium::Ip, 1_400);
    let receiver = Receiver::new(peer, false, 1_400, 8, batch::ReceivedChecksum::Unverified);
    let lowered = Lowered::new(8, false);
    let transform = Box::new(Null);
    (TunnelQueue::new((socket, waiter), peer, transform, capabilities, lowered, receiver), theirs)
}

/// Where poll(2) says that there is room all the while, waiting for room would be spinning.
#[test]
fn room_is_waited_for_only_where_the_socket_has_none() {
    let message = Message { bytes: 0..100, segment_len: 100, count: 1 };
    for (errno, waits) in [(Errno::AGAIN, true), (Errno::NOBUFS, false), (Errno::NOMEM, false)] {
        let (mut queue, _peer) = queue();
        assert_eq!(queue.on_send_error(errno, &message), Stop::Full);
        assert_eq!(queue.waiter.wants_room(), waits, "{errno}");
        assert_eq!(queue.counters.transmit_full, 1);
    }
}

/// A tunnel is no device that completes checksums, and nobody behind the seal could.
#[test]
fn a_packet_whose_checksum_nobody_would_complete_is_refused() {
    let (mut queue, peer) = queue();
    peer.set_nonblocking(true).expect("an option of sockets");
    let mut batch = Multidata::default();
    for checksum in [Checksum::Complete, Checksum::Partial { offset: 16 }, Checksum::Complete] {
        let attributes = Attributes { checksum, ..Attributes::default() };
        batch.push_packet(40, attributes).expect("room").fill(0x45);
    }
    let refused = Transmitted { taken: 1, stopped: Some(Stop::Refused) };
    assert_eq!(queue.transmit(&batch), refused);
    assert_eq!(peer.recv(&mut [0; 99]).expect("the first"), 40);
    assert!(peer.recv(&mut [0; 99]).is_err(), "another one left");
}

#[test]
fn a_datagram_that_was_cut_short_is_dropped_and_counted() {
    let (mut queue, peer) = queue();
    for len in [5_000, 100] {
        peer.send(&vec![0x45; len]).expect("room");
    }
    assert_eq!(lens_received(&mut queue), [100]);
    assert_eq!(queue.counters().drop_tunnel_truncated, 1);
}

/// A socket for both versions of IP calls an IPv4 peer by a mapped address (RFC 4291, 2.5.5.2), and its path to it
/// is one of IPv4.
#[test]
fn a_peer_of_ipv4_is_the_same_to_a_socket_of_ipv6() {
    let peer = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    let at = peer.local_addr().expect("bound");
    let SocketAddr::V4(v4) = at else { panic!("of IPv4") };
    let mapped = SocketAddr::from((v4.ip().to_ipv6_mapped(), v4.port()));
    for (coalesce, named) in [(true, at), (true, mapped), (false, at)] {
        let socket = match UdpSocket::bind("[::]:0") {
            Ok(socket) => socket,
            Err(error) => {
                let name = "a_peer_of_ipv4_is_the_same_to_a_socket_of_ipv6";
                return withheld::cannot_run(name, &error.to_string());
            }
        };
        let port = socket.local_addr().expect("bound").port();
        let config = TunnelConfig { coalesce, ..TunnelConfig::default() };
        let mut device = TunnelDevice::over(socket, named, Box::new(Null), config).expect("a way");
        // What the path of IPv4 takes, less 20 bytes for IPv4 and 8 for UDP.
        let mut queue = device.queue(0).expect("it has one");
        assert_eq!(queue.capabilities().mtu_bytes, 65_535 - 28, "to {named}");
        peer.send_to(b"a packet", ("127.0.0.1", port)).expect("loopback");
        queue.waiter().wait(Some(Duration::from_secs(5)));
        let mut batch = ReceiveBatch::new();
        let received = queue.receive(&BlockPool::new(PoolConfig::default()), &mut batch, 9);
        assert_eq!(queue.counters().drop_tunnel_foreign, 0, "from {named}");
        assert_eq!((received.frames, received.failed), (1, None));
        assert_eq!(batch.bytes(0), b"a packet");
    }
}

/// An end over a socket that was told this before, and the other end's socket.
fn over_told(options: &[(i32, i32, i32)], config: TunnelConfig) -> (TunnelQueue, UdpSocket) {
    let bound = || UdpSocket::bind("127.0.0.1:0").expect("loopback");
    let (socket, peer) = (bound(), bound());
    peer.connect(socket.local_addr().expect("bound")).expect("loopback");
    for (level, name, value) in options {
        // What this kernel does not know is off.
        let told = raw_calls::setsockopt(socket.as_raw_fd(), *level, *name, &value.to_ne_bytes());
        assert!(matches!(told, Ok(_) | Err(libc::ENOPROTOOPT)), "{told:?}");
    }
    let at = peer.local_addr().expect("bound");
    let mut device = TunnelDevice::over(socket, at, Box::new(Null), config).expect("a way");
    (device.queue(0).expect("it has one"), peer)
}

const UDP_SEGMENT: (i32, i32) = (libc::IPPROTO_UDP, 103);
const SO_RCVMARK: i32 = 75;
const SO_RCVPRIORITY: i32 = 82;
const UDP_GRO: (i32, i32) = (libc::IPPROTO_UDP, 104);

/// What comes within a moment, as lengths of frames.
fn lens_received(queue: &mut TunnelQueue) -> Vec<usize> {
    queue.waiter().wait(Some(Duration::from_secs(5)));
    let mut batch = ReceiveBatch::new();
    queue.receive(&BlockPool::new(PoolConfig::default()), &mut batch, 99);
    (0..batch.len()).map(|index| batch.bytes(index).len()).collect()
}

#[test]
fn what_a_socket_was_told_before_does_not_come_between_datagrams() {
    let [timestamps, marks, priorities] =
        [libc::SO_TIMESTAMP, SO_RCVMARK, SO_RCVPRIORITY].map(|name| [(libc::SOL_SOCKET, name, 1)]);
    let merging = [(UDP_GRO.0, UDP_GRO.1, 1)];
    let single = TunnelConfig { coalesce: false, ..TunnelConfig::default() };
    let merged = [timestamps, marks, priorities].map(|told| (told, TunnelConfig::default()));
    for (options, config) in merged.into_iter().chain([(merging, single)]) {
        let (mut queue, peer) = over_told(&options, config);
        let segment_len = 1_000_i32.to_ne_bytes();
        raw_calls::setsockopt(peer.as_raw_fd(), UDP_SEGMENT.0, UDP_SEGMENT.1, &segment_len)
            .expect("a kernel that cuts");
        peer.send(&[7; 2_500]).expect("loopback");
        assert_eq!(lens_received(&mut queue), [1_000, 1_000, 500], "{options:?}");
    }
}

/// The kernel tells of an error that waits in a queue of its own for as long as it does.
#[test]
fn an_error_that_a_socket_keeps_does_not_end_every_wait() {
    let (mut queue, peer) =
        over_told(&[(libc::IPPROTO_IP, libc::IP_RECVERR, 1)], TunnelConfig::default());
    drop(peer);
    let message = Message { bytes: 0..100, segment_len: 100, count: 1 };
    assert_eq!(calls::send(&queue.socket, &[7; 100], &[message]), Ok(1));
    assert_eq!(lens_received(&mut queue), [0; 0]);
    assert_eq!(queue.counters.transmit_unreachable, 1, "nobody listens");
    let started = Instant::now();
    (0..3).for_each(|_| queue.waiter.wait(Some(Duration::from_millis(20))));
    assert!(started.elapsed() >= Duration::from_millis(60), "{:?}", started.elapsed());
}

/// To connect to no address in particular is to connect to this host (RFC 1122, 3.2.1.3), and the other end's socket
/// says of itself that it is bound there.
#[test]
fn a_peer_at_no_address_in_particular_is_this_host() {
    for unspecified in ["0.0.0.0:0", "[::]:0"] {
        let bound = || UdpSocket::bind(unspecified);
        let (Ok(socket), Ok(peer)) = (bound(), bound()) else {
            let name = "a_peer_at_no_address_in_particular_is_this_host";
            withheld::cannot_run(name, unspecified);
            continue;
        };
        let [ours, theirs] = [&socket, &peer].map(|it| it.local_addr().expect("bound"));
        let config = TunnelConfig::default();
        let mut device = TunnelDevice::over(socket, theirs, Box::new(Null), config).expect("a way");
        let mut queue = device.queue(0).expect("it has one");
        peer.connect(ours).expect("this host");
        peer.send(&[7; 30]).expect("this host");
        assert_eq!(lens_received(&mut queue), [30], "from {unspecified}");
    }
}

/// Linux before 5.10 says of a message from an address that this host has no more what it says of one that it
/// cannot cut, and forgets the way.
#[test]
fn a_message_that_no_way_leads_for_is_lost_and_takes_nothing_back() {
    let (queue, _peer) = over_told(&[], TunnelConfig::default());
    assert!(!queue.is_on_the_way(Errno::INVAL), "there is a way");
    assert!(queue.is_on_the_way(Errno::NETUNREACH));
    rustix::net::connect_unspec(&queue.socket).expect("a way is forgotten");
    assert!(queue.is_on_the_way(Errno::INVAL));
    assert!(!queue.is_on_the_way(Errno::MSGSIZE));
}

#[test]
fn a_socket_that_was_told_to_hold_messages_back_sends_them() {
    const UDP_CORK: i32 = 1;
    let corked = [(libc::IPPROTO_UDP, UDP_CORK, 1)];
    let (queue, peer) = over_told(&corked, TunnelConfig::default());
    let message = Message { bytes: 0..100, segment_len: 100, count: 1 };
    assert_eq!(calls::send(&queue.socket, &[7; 100], &[message]), Ok(1));
    peer.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
    assert_eq!(peer.recv(&mut [0; 200]).expect("it was sent"), 100);
}
