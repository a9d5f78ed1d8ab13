//! The queue on a socket that needs no network.

use super::*;
use crate::{TunnelConfig, TunnelDevice};
use batch::PoolConfig;
use device::Medium;
use device::transform::Null;
use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

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

/// A socket for both versions of IP calls an IPv4 peer by a mapped address (RFC 4291, 2.5.5.2), and its path to it
/// is one of IPv4.
#[test]
fn a_peer_of_ipv4_is_the_same_to_a_socket_of_ipv6() {
    let peer = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    let at = peer.local_addr().expect("bound");
    let SocketAddr::V4(v4) = at else { panic!("of IPv4") };
    let mapped = SocketAddr::from((v4.ip().to_ipv6_mapped(), v4.port()));
    for (coalesce, named) in [(true, at), (true, mapped), (false, at)] {
        let Ok(socket) = UdpSocket::bind("[::]:0") else { return };
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
