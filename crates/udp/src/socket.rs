//! A socket's queue of datagrams, bounded in number and in bytes.

use batch::Chunk;
use core::net::SocketAddr;
use counters::DropReason;
use std::collections::VecDeque;

/// What holding a datagram costs besides its payload, in bytes: without it, a flood of empty
/// datagrams would cost an attacker nothing and us the queue.
const DATAGRAM_COST_BYTES: usize = size_of::<Datagram>();

/// How much a socket may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Datagrams.
    pub datagrams: usize,
    /// Bytes of payload, plus a fixed cost for each datagram. One datagram always fits an empty
    /// queue.
    pub bytes: usize,
}

impl Default for QueueLimits {
    /// What Linux gives a socket (`net.core.rmem_default`, 208 KiB), and at most as many datagrams
    /// as would fill it with 104 bytes each.
    fn default() -> Self {
        Self { datagrams: 2_048, bytes: 212_992 }
    }
}

counters::counters! {
    /// What a [`Socket`] did.
    pub struct UdpCounters {
        /// Datagrams queued.
        datagrams_queued,
        /// Payload bytes of these.
        bytes_queued,
        /// Datagrams handed to the application.
        datagrams_read,
        /// Datagrams dropped because the queue was full.
        datagrams_dropped,
        /// ICMP errors about datagrams of this socket.
        errors_received,
    }
}

/// A datagram and where it came from.
#[derive(Clone, Debug)]
pub struct Datagram {
    /// The sender.
    pub source: SocketAddr,
    /// Its payload; may be empty.
    pub payload: Chunk,
}

/// What an ICMP error told a connected socket. The application hears it once, with its next call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketFailure {
    /// Nobody listens on the peer's port.
    Refused,
    /// The peer, or the way to it, is not there.
    Unreachable,
    /// A datagram was longer than the path takes.
    TooLong {
        /// Longest packet in bytes, IP header included.
        mtu_bytes: usize,
    },
}

/// A UDP socket: a queue of datagrams and, where it is connected, the one peer it talks to.
#[derive(Debug, Default)]
pub struct Socket {
    limits: QueueLimits,
    queue: VecDeque<Datagram>,
    /// Payload and fixed cost of all datagrams in the queue.
    held_bytes: usize,
    peer: Option<SocketAddr>,
    failure: Option<SocketFailure>,
    counters: UdpCounters,
}

impl Socket {
    /// A socket without peer and datagrams.
    #[must_use]
    pub fn new(limits: QueueLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Changes how much the socket may hold. What it holds already, it keeps.
    pub fn set_limits(&mut self, limits: QueueLimits) {
        self.limits = limits;
    }

    /// The peer of a connected socket.
    #[must_use]
    pub fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Sets the one peer to talk to, or none. Datagrams of others that are queued already stay, as
    /// they do on other systems; an error of the old peer is forgotten.
    pub fn connect(&mut self, peer: Option<SocketAddr>) {
        self.peer = peer;
        self.failure = None;
    }

    /// Whether a datagram from this sender is for this socket: from anybody where it is not
    /// connected, from its peer alone where it is.
    #[must_use]
    pub fn accepts(&self, source: SocketAddr) -> bool {
        // The scope of a link-local IPv6 address is no part of a packet, so it is not compared.
        self.peer.is_none_or(|peer| peer.ip() == source.ip() && peer.port() == source.port())
    }

    /// Queues a datagram. Says whether the queue was empty before, which is when a waiting reader
    /// must be told.
    ///
    /// The payload keeps its block alive: that of a sparse block is copied before it comes here
    /// ([`batch::ReceiveBatch::is_sparse`]), or the limits would not bound the memory held.
    ///
    /// # Errors
    /// [`DropReason::PortUnreachable`] where the socket is connected to another peer: for that
    /// sender nobody listens here. [`DropReason::SocketQueueFull`] where a limit is reached.
    pub fn on_datagram(&mut self, source: SocketAddr, payload: Chunk) -> Result<bool, DropReason> {
        if !self.accepts(source) {
            return Err(DropReason::PortUnreachable);
        }
        let cost = payload.len() + DATAGRAM_COST_BYTES;
        let was_empty = self.queue.is_empty();
        let fits = was_empty || self.held_bytes.saturating_add(cost) <= self.limits.bytes;
        if self.queue.len() >= self.limits.datagrams || !fits {
            self.counters.datagrams_dropped += 1;
            return Err(DropReason::SocketQueueFull);
        }
        self.counters.datagrams_queued += 1;
        self.counters.bytes_queued += payload.len() as u64;
        self.held_bytes += cost;
        self.queue.push_back(Datagram { source, payload });
        Ok(was_empty)
    }

    /// An ICMP error about a datagram this socket sent to `destination`. It is kept only where the
    /// socket is connected to that very peer, since otherwise the application could not tell whom
    /// it is about (RFC 1122, 4.1.3.3 leaves the way to pass it on open; this is the usual one).
    /// Says whether it was kept, which is when a waiting reader must be told.
    pub fn on_error(&mut self, destination: SocketAddr, failure: SocketFailure) -> bool {
        let is_peer = self.peer.is_some() && self.accepts(destination);
        if is_peer {
            self.counters.errors_received += 1;
            self.failure = Some(failure);
        }
        is_peer
    }

    /// The error that came last, once.
    pub fn take_failure(&mut self) -> Option<SocketFailure> {
        self.failure.take()
    }

    /// Takes the datagram that came first.
    pub fn receive(&mut self) -> Option<Datagram> {
        let datagram = self.queue.pop_front()?;
        self.held_bytes -= datagram.payload.len() + DATAGRAM_COST_BYTES;
        self.counters.datagrams_read += 1;
        Some(datagram)
    }

    /// The datagram that came first, left where it is.
    #[must_use]
    pub fn peek(&self) -> Option<&Datagram> {
        self.queue.front()
    }

    /// Whether reading yields something at once: a datagram or an error.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        self.failure.is_some() || !self.queue.is_empty()
    }

    /// What the socket did so far.
    #[must_use]
    pub fn counters(&self) -> &UdpCounters {
        &self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use batch::Block;
    use bytes::Bytes;

    fn chunk(bytes: &'static [u8]) -> Chunk {
        Chunk::whole(Block::from(Bytes::from_static(bytes)))
    }

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("an address and a port")
    }

    #[test]
    fn datagrams_leave_in_the_order_they_came_with_their_senders() {
        let mut socket = Socket::new(QueueLimits::default());
        let (one, two) = (address("10.0.0.1:1"), address("[fd00::2]:2"));
        assert!(!socket.is_readable());
        assert_eq!(socket.on_datagram(one, chunk(b"first")), Ok(true));
        assert_eq!(socket.on_datagram(two, chunk(b"")), Ok(false), "the reader knows already");
        assert!(socket.is_readable());
        assert_eq!(socket.peek().expect("two wait").payload.bytes(), b"first");
        let first = socket.receive().expect("two wait");
        assert_eq!((first.source, first.payload.bytes()), (one, &b"first"[..]));
        let second = socket.receive().expect("one waits");
        assert_eq!((second.source, second.payload.bytes()), (two, &b""[..]));
        assert!(socket.receive().is_none() && !socket.is_readable());
        assert_eq!(socket.on_datagram(one, chunk(b"x")), Ok(true), "empty again");
    }

    #[test]
    fn both_limits_hold_and_reading_makes_room() {
        let sender = address("10.0.0.1:1");
        let mut socket = Socket::new(QueueLimits { datagrams: 2, bytes: 1_000 });
        assert_eq!(socket.on_datagram(sender, chunk(b"")), Ok(true));
        assert_eq!(socket.on_datagram(sender, chunk(b"")), Ok(false));
        assert_eq!(socket.on_datagram(sender, chunk(b"")), Err(DropReason::SocketQueueFull));
        socket.receive();
        assert_eq!(socket.on_datagram(sender, chunk(&[0; 900])), Err(DropReason::SocketQueueFull));
        assert_eq!(socket.on_datagram(sender, chunk(&[0; 700])), Ok(false));
        socket.receive();
        socket.receive();
        assert_eq!(socket.held_bytes, 0);
        assert_eq!(socket.on_datagram(sender, chunk(&[0; 5_000])), Ok(true), "one always fits");
        assert_eq!(socket.on_datagram(sender, chunk(b"")), Err(DropReason::SocketQueueFull));
        assert_eq!(socket.counters().datagrams_dropped, 3);
        assert_eq!(socket.counters().datagrams_queued, 4);
        assert_eq!(socket.counters().datagrams_read, 3);
        assert_eq!(socket.counters().bytes_queued, 5_700);
    }

    #[test]
    fn empty_datagrams_are_not_free() {
        let limits = QueueLimits { datagrams: usize::MAX, bytes: 10_000 };
        let mut socket = Socket::new(limits);
        let sender = address("10.0.0.1:1");
        let held = (0..10_000).filter(|_| socket.on_datagram(sender, chunk(b"")).is_ok()).count();
        assert!(held * DATAGRAM_COST_BYTES <= 10_000, "{held} are held");
    }

    #[test]
    fn a_connected_socket_hears_its_peer_alone() {
        let mut socket = Socket::new(QueueLimits::default());
        let (peer, other) = (address("10.0.0.1:1"), address("10.0.0.1:2"));
        assert!(socket.accepts(other) && !socket.on_error(peer, SocketFailure::Refused));
        socket.connect(Some(peer));
        assert_eq!(socket.on_datagram(other, chunk(b"x")), Err(DropReason::PortUnreachable));
        assert_eq!(socket.on_datagram(peer, chunk(b"x")), Ok(true));
        assert!(!socket.on_error(other, SocketFailure::Refused), "not about our peer");
        assert!(socket.on_error(peer, SocketFailure::Refused));
        assert_eq!(socket.take_failure(), Some(SocketFailure::Refused));
        assert_eq!(socket.take_failure(), None, "told once");
        assert!(socket.on_error(peer, SocketFailure::TooLong { mtu_bytes: 1400 }));
        socket.connect(None);
        assert_eq!(socket.take_failure(), None);
        assert_eq!(socket.on_datagram(other, chunk(b"x")), Ok(false));
    }
}
