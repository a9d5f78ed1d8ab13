//! A socket's queue of datagrams, bounded in number and in bytes.

use batch::{Admission, Chunk, FlowShares};
use core::net::SocketAddr;
use std::collections::VecDeque;
use time::Instant;

/// What holding a datagram costs besides its payload, in bytes: without it, a flood of empty
/// datagrams would cost an attacker nothing and us the queue.
const DATAGRAM_COST_BYTES: usize = size_of::<Datagram>();

/// Places for datagrams that an empty queue keeps: those of one that was long would be as many bytes as it may hold, in
/// each of very many sockets that have been flooded once.
const PLACES_KEPT: usize = 64;

/// How much a socket may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Datagrams.
    pub datagrams: usize,
    /// Bytes of payload, plus a fixed cost for each datagram. One datagram always fits an empty
    /// queue.
    pub bytes: usize,
}

impl QueueLimits {
    /// So many bytes, and at most as many datagrams as would fill them with their fixed cost alone; at least one.
    #[must_use]
    pub fn of_bytes(bytes: usize) -> Self {
        Self { datagrams: (bytes / DATAGRAM_COST_BYTES).max(1), bytes }
    }
}

impl Default for QueueLimits {
    /// What Linux gives a socket (`net.core.rmem_default`, 208 KiB).
    fn default() -> Self {
        Self::of_bytes(212_992)
    }
}

/// A datagram, where it came from and where it was sent to.
#[derive(Clone, Debug)]
pub struct Datagram {
    /// The sender.
    pub source: SocketAddr,
    /// Where the sender sent it: a socket may be for many addresses.
    pub destination: SocketAddr,
    /// Its payload; may be empty.
    pub payload: Chunk,
    /// The traffic class it came with: the differentiated services code point in the upper six bits, ECN in the lower
    /// two (RFC 3168, 5). Of a fragmented one, what its fragments say together.
    pub traffic_class: u8,
    /// How many routers might still have forwarded it.
    pub hop_limit: u8,
    /// When it came in. Nothing is known of what a socket of the same host sent to a group, which came by no link.
    pub received_at: Option<Instant>,
}

/// What a UDP socket received and nobody has read yet.
///
/// Which datagrams are this socket's (port, peer) is decided above, where the ports are; so are
/// ICMP errors.
#[derive(Debug, Default)]
pub struct Socket {
    limits: QueueLimits,
    queue: VecDeque<Datagram>,
    /// Payload and fixed cost of all datagrams in the queue.
    held_bytes: usize,
    /// Where no flow may fill the queue alone.
    fairness: Option<Fairness>,
}

/// What each flow has in the queue.
#[derive(Debug)]
struct Fairness {
    shares: FlowShares,
    /// The flow of each datagram in the queue.
    flows: VecDeque<u32>,
}

impl Socket {
    /// A socket without datagrams.
    #[must_use]
    pub fn new(limits: QueueLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// The same for a socket that stands for many: none of the flows that [`Socket::push_of`] tells apart may fill
    /// it alone ([`FlowShares`]).
    #[must_use]
    pub fn fair(limits: QueueLimits) -> Self {
        let shares = FlowShares::new(limits.datagrams, limits.bytes);
        Self { fairness: Some(Fairness { shares, flows: VecDeque::new() }), ..Self::new(limits) }
    }

    /// Changes how much the socket may hold; of a fair one that stays. What it holds already, it keeps.
    pub fn set_limits(&mut self, limits: QueueLimits) {
        self.limits = limits;
    }

    /// Queues a datagram. Says whether there was room; where not, it is dropped.
    ///
    /// The payload keeps its block alive: that of a sparse block is copied before it comes here
    /// ([`batch::ReceiveBatch::is_sparse`]), or the limits would not bound the memory held.
    #[must_use]
    pub fn push(&mut self, datagram: Datagram) -> bool {
        self.push_of(0, datagram)
    }

    /// As [`Socket::push`], of a flow, which a fair socket tells from others by this number.
    #[must_use]
    pub fn push_of(&mut self, flow: u32, datagram: Datagram) -> bool {
        if !self.has_room_for(flow, datagram.payload.len()) {
            return false;
        }
        let cost = datagram.payload.len() + DATAGRAM_COST_BYTES;
        self.held_bytes += cost;
        if let Some(fairness) = &mut self.fairness {
            fairness.shares.admit(flow, cost);
            fairness.flows.push_back(flow);
        }
        self.queue.push_back(datagram);
        true
    }

    /// Whether a datagram of this flow and so many bytes of payload would be queued: to be asked before work is done
    /// for it.
    #[must_use]
    pub fn has_room_for(&self, flow: u32, payload_len: usize) -> bool {
        let cost = payload_len + DATAGRAM_COST_BYTES;
        if let Some(fairness) = &self.fairness {
            return fairness.shares.would_admit(flow, cost) == Admission::Admitted;
        }
        let fits = self.held_bytes.saturating_add(cost) <= self.limits.bytes;
        self.queue.len() < self.limits.datagrams && (fits || self.queue.is_empty())
    }

    /// Takes the datagram that came first.
    pub fn pop(&mut self) -> Option<Datagram> {
        let datagram = self.queue.pop_front()?;
        let cost = datagram.payload.len() + DATAGRAM_COST_BYTES;
        self.held_bytes -= cost;
        if let Some(fairness) = &mut self.fairness
            && let Some(flow) = fairness.flows.pop_front()
        {
            fairness.shares.release(flow, cost);
        }
        if self.queue.is_empty() && self.queue.capacity() > PLACES_KEPT {
            self.give_back();
        }
        Some(datagram)
    }

    #[cold]
    fn give_back(&mut self) {
        self.queue.shrink_to(PLACES_KEPT);
        if let Some(fairness) = &mut self.fairness {
            fairness.flows.shrink_to(PLACES_KEPT);
        }
    }

    /// The datagram that came first, left where it is.
    #[must_use]
    pub fn peek(&self) -> Option<&Datagram> {
        self.queue.front()
    }

    /// The payloads of all, to be exchanged for chunks of the same bytes.
    pub fn payloads_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut Chunk> {
        self.queue.iter_mut().map(|datagram| &mut datagram.payload)
    }

    /// How many datagrams wait to be read.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// The bytes that those hold, with what holding them costs.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Whether no datagram waits to be read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use batch::Block;
    use bytes::Bytes;

    fn datagram(source: &str, payload: &'static [u8]) -> Datagram {
        let source = source.parse().expect("an address and a port");
        let destination = SocketAddr::from(([10, 0, 0, 9], 53));
        let payload = Chunk::whole(Block::from(Bytes::from_static(payload)));
        let (traffic_class, hop_limit, received_at) = (0, 64, None);
        Datagram { source, destination, payload, traffic_class, hop_limit, received_at }
    }

    fn anonymous(payload: &'static [u8]) -> Datagram {
        datagram("10.0.0.1:1", payload)
    }

    #[test]
    fn datagrams_leave_in_the_order_they_came_with_their_senders() {
        let mut socket = Socket::new(QueueLimits::default());
        assert!(socket.is_empty() && socket.peek().is_none());
        assert!(socket.push(datagram("10.0.0.1:1", b"first")));
        assert!(socket.push(datagram("[fd00::2]:2", b"")));
        assert_eq!(socket.len(), 2);
        assert_eq!(socket.peek().expect("two wait").payload.bytes(), b"first");
        let first = socket.pop().expect("two wait");
        assert_eq!((first.source.port(), first.payload.bytes()), (1, &b"first"[..]));
        let second = socket.pop().expect("one waits");
        assert_eq!((second.source.port(), second.payload.bytes()), (2, &b""[..]));
        assert!(socket.pop().is_none() && socket.is_empty());
    }

    #[test]
    fn both_limits_hold_and_reading_makes_room() {
        let mut socket = Socket::new(QueueLimits { datagrams: 2, bytes: 1_000 });
        assert!(socket.push(anonymous(b"")));
        assert!(socket.push(anonymous(b"")));
        assert!(!socket.push(anonymous(b"")), "a third datagram");
        socket.pop();
        assert!(!socket.push(anonymous(&[0; 900])), "too many bytes with the costs of both");
        assert!(socket.push(anonymous(&[0; 700])));
        socket.pop();
        socket.pop();
        assert_eq!(socket.held_bytes, 0);
        assert!(socket.push(anonymous(&[0; 5_000])), "one always fits");
        assert!(!socket.push(anonymous(b"")));
        socket.set_limits(QueueLimits { datagrams: 2, bytes: 10_000 });
        assert!(socket.push(anonymous(b"")));
    }

    #[test]
    fn of_a_fair_socket_no_flow_fills_the_queue_alone() {
        let mut socket = Socket::fair(QueueLimits { datagrams: 100, bytes: 1 << 20 });
        let held = |socket: &mut Socket, flow| {
            (0..100).take_while(|_| socket.push_of(flow, anonymous(b"x"))).count()
        };
        assert_eq!((held(&mut socket, 1), held(&mut socket, 2), held(&mut socket, 1)), (50, 25, 0));
        assert_eq!(socket.len(), 75);
        while socket.pop().is_some() {}
        assert_eq!(held(&mut socket, 2), 50, "what was read is free again");
        let mut socket = Socket::fair(QueueLimits { datagrams: 100, bytes: 10_000 });
        assert!(socket.push_of(1, anonymous(&[0; 5_000])));
        assert!(!socket.push_of(1, anonymous(b"")) && socket.push_of(2, anonymous(b"")));
    }

    #[test]
    fn empty_datagrams_are_not_free() {
        let limits = QueueLimits { datagrams: usize::MAX, bytes: 10_000 };
        let mut socket = Socket::new(limits);
        let held = (0..10_000).filter(|_| socket.push(anonymous(b""))).count();
        assert!(held * DATAGRAM_COST_BYTES <= 10_000, "{held} are held");
    }

    #[test]
    fn the_memory_of_a_queue_that_was_long_is_given_back_with_its_last_datagram() {
        for mut socket in
            [Socket::new(QueueLimits::default()), Socket::fair(QueueLimits::default())]
        {
            while socket.push(anonymous(b"")) {}
            assert!(socket.len() > 500);
            while socket.pop().is_some() {}
            let flows = socket.fairness.as_ref().map_or(0, |it| it.flows.capacity());
            assert!(socket.queue.capacity().max(flows) <= PLACES_KEPT);
            for _ in 0..1_000 {
                assert!(socket.push(anonymous(b"")) && socket.pop().is_some());
            }
        }
    }
}
