//! The queue on a socket that needs no network.

use super::*;
use device::Medium;
use device::transform::Null;
use std::os::unix::net::UnixDatagram;

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
