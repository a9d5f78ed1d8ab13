//! Packets that leave by several ways at once.
//!
//! Where two or more routes to one network are marked ([`Shard::set_route_duplicating`]), each packet of
//! a connection, and each datagram, leaves by every one of them: what one way loses the other brings, and
//! what comes twice the receiver drops (Solaris knew such routes as RTF_MULTIRT, for its CGTP; seed
//! 000, 4.4.2, 2 e). Of the ways one is the *first*, over which a connection builds its segments as
//! ever, one at a time:
//!
//! ```text
//!   segment -> batch of one -> first device takes it -> copy -> outbox of each other interface
//!   datagram -> outbox of each interface, which fragments it for itself
//! ```
//!
//! What waits for a neighbour on the first way, or finds that it is gone, does not hold the others back;
//! nor does a device that failed or has taken nothing for [`STANDSTILL`], because another way is the first
//! then. An answer to a packet leaves by the way that the packet came: its copy gets its own.
//!
//! A way whose interface does not have the packet's source address is none (RFC 1122, 3.3.4.2, the
//! strong model), so both interfaces need it.

use crate::error::SocketError;
use crate::network::NetworkLayer;
use crate::network::interface::Destination;
use crate::network::interfaces::InterfaceId;
use crate::outbox::{Message, Network, NextHop, Outgoing};
use crate::shard::Shard;
use batch::{Chunk, Multidata, PacketView};
use core::net::IpAddr;
use core::ops::Range;
use counters::DropReason;
use device::{Stop, Transmitted, lowering};
use ip::Cidr;
use time::{Duration, Instant};

/// A device that takes nothing for so long is no first way.
const STANDSTILL: Duration = Duration::from_millis(100);

/// A copy of a packet that the device is looking at.
#[derive(Debug)]
struct PlannedCopy {
    /// Which packet of the batch.
    at: usize,
    interface: InterfaceId,
    packet: Outgoing,
}

/// Copies that wait for their packets to be taken.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    planned: Vec<PlannedCopy>,
    /// Some were queued since somebody asked.
    has_queued: bool,
}

impl Copies {
    pub(crate) fn clear(&mut self) {
        self.planned.clear();
    }
}

impl Shard {
    /// Has packets to the network `destination` leave by the route over interface `id` beside all others
    /// to it that are marked so. Each of them goes out alone, not in a batch, and once by every such
    /// way; an interface without the packet's source address is left out.
    ///
    /// # Errors
    /// [`SocketError::NoRoute`] where there is no such route.
    pub fn set_route_duplicating(
        &mut self,
        now: Instant,
        destination: Cidr,
        id: InterfaceId,
        on: bool,
    ) -> Result<(), SocketError> {
        if !self.network.routes.set_duplicating(destination, id.number(), on) {
            return Err(SocketError::NoRoute(destination.address()));
        }
        if !self.network.routes.has_duplicating() {
            // Nobody takes note of devices that stand still any more.
            for interface in self.network.interfaces.iter_mut() {
                (interface.is_out, interface.full_since) = (false, None);
            }
        }
        self.reroute_all(now);
        Ok(())
    }

    /// Whether copies were queued for other interfaces since this was last asked: their turn may be over.
    pub fn take_copies_queued(&mut self) -> bool {
        core::mem::take(&mut self.sending.copies.has_queued)
    }

    /// Copies the packets `packets` of the batch, which are those of one connection by interface `id`, for
    /// all other ways: they leave when the device has taken what they are copies of.
    pub(crate) fn plan_copies(
        &mut self,
        id: InterfaceId,
        out: &Multidata,
        packets: Range<usize>,
        network: &Network,
    ) {
        let (source, destination) = network.addresses();
        for (interface, next_hop) in self.network.other_ways(id, source, destination) {
            for at in packets.clone() {
                if let Some(packet) = self.network.copy(out, at, network, next_hop) {
                    self.sending.copies.planned.push(PlannedCopy { at, interface, packet });
                }
            }
        }
    }

    /// As [`Shard::plan_copies`], where the first way cannot take the packets now: they go to all outboxes
    /// at once, that of the first among them, where they wait for their neighbour as datagrams do.
    pub(crate) fn pass_on(
        &mut self,
        (id, next_hop): (InterfaceId, IpAddr),
        out: &Multidata,
        packets: Range<usize>,
        network: &Network,
    ) {
        let (source, destination) = network.addresses();
        let mut ways = self.network.other_ways(id, source, destination);
        ways.push((id, next_hop));
        for (interface, next_hop) in ways {
            for at in packets.clone() {
                if let Some(packet) = self.network.copy(out, at, network, next_hop) {
                    self.queue_copy(interface, packet);
                }
            }
        }
    }

    /// The device took the first `taken` packets of the batch.
    #[inline]
    pub(crate) fn send_copies(&mut self, taken: usize) {
        if !self.sending.copies.planned.is_empty() {
            self.send_planned_copies(taken);
        }
    }

    #[inline(never)]
    fn send_planned_copies(&mut self, taken: usize) {
        let mut planned = core::mem::take(&mut self.sending.copies.planned);
        for copy in planned.drain(..).filter(|copy| copy.at < taken) {
            self.queue_copy(copy.interface, copy.packet);
        }
        self.sending.copies.planned = planned;
    }

    fn queue_copy(&mut self, interface: InterfaceId, packet: Outgoing) {
        self.counters.packets_duplicated += 1;
        self.sending.copies.has_queued = true;
        self.network.send_small(interface, packet);
    }

    /// Queues a datagram for each of its ways and says whether any of them had room.
    #[must_use]
    pub(crate) fn queue_on_ways(&mut self, id: InterfaceId, packet: Outgoing) -> bool {
        if !self.network.routes.has_duplicating() {
            return self.network.interfaces[id].outbox.push(packet);
        }
        let (source, destination) = packet.network.addresses();
        let ways = self.network.other_ways(id, source, destination);
        let copies = ways.into_iter().map(|(other, next_hop)| {
            (other, Outgoing { next_hop: NextHop::Neighbour(next_hop), ..packet.clone() })
        });
        let copies: Vec<_> = copies.collect();
        let mut full = u64::from(!self.network.interfaces[id].outbox.push(packet));
        let count = copies.len() as u64 + 1;
        for (other, copy) in copies {
            full += u64::from(!self.network.interfaces[other].outbox.push(copy));
            self.sending.copies.has_queued = true;
        }
        if full == count {
            return false;
        }
        self.counters.packets_duplicated += count - 1;
        self.drops.add_many(DropReason::TransmitQueueFull, full);
        true
    }

    /// Takes note of a device that takes nothing, or takes packets again: connections of several ways go
    /// first by one that does.
    pub(crate) fn note_standstill(&mut self, now: Instant, id: InterfaceId, outcome: &Transmitted) {
        if !self.network.routes.has_duplicating() {
            return;
        }
        let interface = &mut self.network.interfaces[id];
        let was_out = interface.is_out;
        match &outcome.stopped {
            Some(Stop::Failed(_)) => interface.is_out = true,
            Some(Stop::Full) if outcome.taken == 0 => {
                let since = *interface.full_since.get_or_insert(now);
                interface.is_out |= now.since(since) >= STANDSTILL;
            }
            _ => (interface.is_out, interface.full_since) = (false, None),
        }
        if interface.is_out != was_out {
            self.network.path_mtus.invalidate();
            self.reroute_all(now);
        }
    }

    /// Whether a connection's neighbour on the first way is not there, and others may be.
    pub(crate) fn is_passed_on(is_multi_routed: bool, destination: Destination) -> bool {
        is_multi_routed && matches!(destination, Destination::Pending | Destination::Unreachable)
    }
}

impl NetworkLayer {
    /// The ways beside interface `id` that a packet takes, each with its next hop.
    pub(crate) fn other_ways(
        &self,
        id: InterfaceId,
        source: IpAddr,
        destination: IpAddr,
    ) -> Vec<(InterfaceId, IpAddr)> {
        let may_take = |interface: u32| {
            let interface = self.interfaces.get(InterfaceId::numbered(interface));
            interface.is_some_and(|it| !it.is_removed && it.may_send_from(source))
        };
        let ways = self.routes.duplicating(destination);
        ways.filter(|route| route.interface != id.number() && may_take(route.interface))
            .map(|route| (InterfaceId::numbered(route.interface), route.next_hop(destination)))
            .collect()
    }

    fn copy(
        &mut self,
        out: &Multidata,
        at: usize,
        network: &Network,
        next_hop: IpAddr,
    ) -> Option<Outgoing> {
        let view = out.packet(at)?;
        let Some((segment, header_len)) = self.copy_segment(&view) else {
            self.drops.add(DropReason::NoMemory);
            return None;
        };
        let message = Message::Copy { segment, header_len, ecn: view.attributes().ecn };
        let next_hop = NextHop::Neighbour(next_hop);
        Some(Outgoing { network: network.clone(), next_hop, message })
    }

    /// Transport header and payload in a block of their own, the checksum complete: the other device may
    /// not be one that completes it.
    fn copy_segment(&self, view: &PacketView<'_>) -> Option<(Chunk, usize)> {
        let mut block = self.pool.allocate(view.len()).ok()?;
        let len = lowering::copy_complete(view, block.bytes_mut())?;
        let start = view.transport_offset();
        Some((Chunk::new(block.freeze(), start..len), view.header().len() - start))
    }

    /// Whether a packet of the outbox is one of several that say the same.
    pub(crate) fn is_on_several_ways(&self, packet: &Outgoing) -> bool {
        let may_be = match packet.message {
            Message::Copy { .. } => return true,
            Message::Datagram { .. } | Message::Raw { .. } | Message::Fragments(_) => {
                self.routes.has_duplicating()
            }
            _ => false,
        };
        may_be && self.routes.duplicating(packet.network.addresses().1).nth(1).is_some()
    }
}
