//! The whole way out.
//!
//! ```text
//!  poll_transmit                                   on_transmitted
//!    neighbour requests -> outbox                    the device took n packets:
//!    outbox packets       \                            outbox: the first of them are gone,
//!    ready connections,    > push -> stamp IP ->                the rest goes back
//!    each as many segments/         stamp link ->      connections: commit what was taken,
//!    as there is room               filter                      forget and rebuild the rest
//! ```
//!
//! Who drives the shard says how much room a device has, offers it the batch, and says what it took (`send` in
//! `runtime/squeue.rs` of `multidata`).
//!
//! A flow that must go packet by packet (a filter, a policy, an option asks for it: `network/negotiation.rs`)
//! has a batch of one to itself, built by the same calls. What was built as many and not taken is
//! built afresh, so a flow that may no longer use Multidata is expanded by the next batch.
//!
//! There is no other way out. A retransmission, a pure ACK, a reset, an ARP request and a burst of
//! sixty-four segments all pass through [`Shard::poll_transmit`]; the transmit mode only says how
//! large the batch may grow. Nothing is committed before the device has taken it, but for what no device
//! will be offered: what is for a neighbour that does not answer ([`Shard::lose`]), what a filter has dropped
//! all of ([`Shard::admit`]), and what is passed on to other ways (`duplicate`) has left, as far as its
//! connection knows, and messages of the outbox are gone.

use crate::network::NetworkLayer;
use crate::network::interface::{Destination, Interface};
use crate::network::interfaces::InterfaceId;
use crate::network::multirouting::Copies;
use crate::network::offered::Fit;
use crate::network::unscreened::{Built, Unscreened};
use crate::outbox::{Message, Network, NextHop, Outgoing};
use crate::shard::Shard;
use crate::sockets::SocketId;
use batch::{Limits, Multidata};
use core::ops::Range;
use counters::{DropReason, MultidataRefusal};
use device::{Room, Stop, Transmitted};
use ip::HeaderTemplate;
use tcp::ConnectionError;
use time::Instant;
use wire::ether_type;

/// The owner of packets that came from the outbox; connections are owners by their socket index.
const OUTBOX_OWNER: u32 = u32::MAX;

/// Small packets offered in one batch at most while connections wait, so that these get their share
/// of it.
const OUTBOX_SHARE_MAX: usize = 32;

/// What a connection may send in its turn while others wait for theirs (deficit round robin): one
/// super-frame. What the end of a batch cut short goes on at the front of the next.
const TURN_BYTES: u32 = 65_536;

/// What is left of a turn below this is forgotten.
const TURN_BYTES_MIN: u32 = 2_048;

/// A part of the batch that the device is looking at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planned {
    owner: u32,
    /// Packets.
    built: usize,
    /// Packets behind them that a filter dropped, and that are not in the batch.
    dropped: usize,
    payload_bytes: usize,
}

/// The batch that the device is looking at.
#[derive(Debug, Default)]
pub(crate) struct Sending {
    /// Whose its packets are, in its order.
    pub(crate) planned: Vec<Planned>,
    /// Of them, what leaves by other ways as well.
    pub(crate) copies: Copies,
    /// Connections whose segments were lost before they were in it, for want of a neighbour or by a filter.
    lost_here: usize,
}

impl Shard {
    /// Fills `out` (emptied first) with what interface `id` should send now, as far as `room` goes,
    /// and says how many packets that is; none means that there is nothing to send. Nothing that
    /// is in the batch is committed: [`Shard::on_transmitted`] must follow before any other call.
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        id: InterfaceId,
        room: Room,
        out: &mut Multidata,
    ) -> usize {
        self.run_loopback(now);
        match id == InterfaceId::LOOPBACK {
            // It carries its packets itself.
            true => out.clear(),
            false => self.fill(now, id, room, out),
        }
        out.len()
    }

    /// As [`Shard::poll_transmit`], for every interface.
    pub(crate) fn fill(&mut self, now: Instant, id: InterfaceId, room: Room, out: &mut Multidata) {
        out.clear();
        self.sending.planned.clear();
        self.sending.copies.clear();
        let Some(interface) = self.network.interfaces.get_mut(id) else { return };
        if interface.is_removed {
            return;
        }
        if interface.is_idle() {
            // So it is whenever everything was sent: who drives the shard asks until nothing is left.
            return self.wake_blocked(id);
        }
        out.set_limits(interface.limits(room));
        out.set_block_bytes_max(interface.capabilities.block_bytes_max);
        let may_ask = self.network.may_ask(id);
        self.poll_neighbours(now, id, may_ask);
        self.emit_outbox(now, id, out);
        let mut turns = self.network.interfaces[id].ready.len();
        while turns > 0 && out.room_packets() > 0 && out.room_bytes() > 0 {
            let Some(index) = self.network.interfaces[id].ready.next() else { break };
            self.emit_connection(now, id, index, out);
            // Whoever lost what it had may have more, as a second reset, and no timer. Nothing in the batch
            // would say that there is nothing to send.
            turns = turns - 1 + core::mem::take(&mut self.sending.lost_here);
        }
        // What was just looked up and not found is asked for at once.
        self.poll_neighbours(now, id, may_ask);
        self.emit_outbox(now, id, out);
        self.counters.checksummed_transmit_bytes += out.summed_bytes();
        if out.is_empty() {
            // What waited for a neighbour has left the outbox, too.
            self.wake_blocked(id);
        } else {
            if let Some(refusal) = self.network.interfaces[id].agreement.refusal {
                self.refusals.add(refusal);
            }
            self.counters.transmit_batches += 1;
            self.counters.transmit_packets += out.len() as u64;
            self.network.note_copied(id, out.copied_bytes());
        }
    }

    /// What became of the batch that [`Shard::poll_transmit`] filled: the first `taken` packets are
    /// sent, all others never were and are built afresh when their turn comes.
    pub fn on_transmitted(&mut self, now: Instant, id: InterfaceId, transmitted: &Transmitted) {
        let of = self.sending.planned.iter().map(|planned| planned.built).sum();
        self.network.note_transmitted(id, of, transmitted);
        let mut taken = transmitted.taken;
        if transmitted.stopped == Some(Stop::Refused) {
            // The device will never take this one: as if it had been lost on the wire.
            self.drops.add(DropReason::DeviceRefused);
            taken += 1;
        }
        self.send_copies(taken);
        let mut planned = core::mem::take(&mut self.sending.planned);
        for Planned { owner, built, dropped, payload_bytes } in planned.drain(..) {
            let count = taken.min(built);
            taken -= count;
            self.counters.transmit_not_taken += (built - count) as u64;
            if owner == OUTBOX_OWNER {
                self.network.interfaces[id].offered.on_taken(count);
                continue;
            }
            if let Some(socket) = self.sockets.tcp(owner) {
                let connection = &mut socket.connection;
                // What a filter dropped behind the last packet taken is sent, as far as TCP knows.
                let dropped = if count == built { dropped } else { 0 };
                self.drops.add_many(DropReason::Filtered, dropped as u64);
                self.connection_counters
                    .lend(connection, |it| it.on_transmitted(now, count + dropped));
                let sent_bytes = (payload_bytes / built.max(1) * count) as u32;
                socket.allowance_bytes = match socket.allowance_bytes.saturating_sub(sent_bytes) {
                    // Not worth another segment: the turn is over.
                    0..TURN_BYTES_MIN => 0,
                    left => left,
                };
            }
            self.settle(now, owner);
        }
        self.sending.planned = planned;
        let interface = &mut self.network.interfaces[id];
        if interface.offered.len() > 0 {
            interface.outbox.put_back(interface.offered.drain());
        }
        self.note_standstill(now, id, transmitted);
        self.wake_blocked(id);
    }

    #[inline]
    fn emit_outbox(&mut self, now: Instant, id: InterfaceId, out: &mut Multidata) {
        if !self.network.interfaces[id].outbox.is_empty() {
            self.emit_waiting(now, id, out);
        }
    }

    // Not inlined: in most turns of a connection nothing waits.
    #[inline(never)]
    fn emit_waiting(&mut self, now: Instant, id: InterfaceId, out: &mut Multidata) {
        let first = out.len();
        let share_max = match self.network.interfaces[id].ready.len() {
            0 => usize::MAX,
            _ => OUTBOX_SHARE_MAX,
        };
        let mut unscreened = Unscreened::default();
        loop {
            self.build_waiting(now, id, out, share_max, &mut unscreened);
            // Where the filter dropped something there is room again, and what lay behind it comes afresh.
            if unscreened.is_empty() || !self.network.screen_waiting(now, id, out, &mut unscreened)
            {
                break;
            }
        }
        if out.len() > first {
            let built = out.len() - first;
            self.sending.planned.push(Planned {
                owner: OUTBOX_OWNER,
                built,
                dropped: 0,
                payload_bytes: 0,
            });
        }
    }

    /// Builds messages of the outbox as far as there is room, and has the filter look at all but the last of
    /// them, which may have company yet.
    fn build_waiting(
        &mut self,
        now: Instant,
        id: InterfaceId,
        out: &mut Multidata,
        share_max: usize,
        unscreened: &mut Unscreened,
    ) {
        // Of messages to one neighbour the first looks it up.
        let mut found = None;
        while self.network.interfaces[id].offered.len() + unscreened.len() < share_max
            && out.room_packets() > 0
        {
            let interface = &mut self.network.interfaces[id];
            let Some(packet) = interface.outbox.pop() else { break };
            // RFC 1122, 3.2.1.3: what waited, here or for its neighbour, while its address was taken away.
            if !may_leave(interface, &packet) {
                self.drops.add(DropReason::SourceRemoved);
                continue;
            }
            let refusal = self.network.small_refusal(id, &packet);
            let interface = &mut self.network.interfaces[id];
            if refusal.is_some() && !out.is_empty() {
                interface.outbox.put_back(core::iter::once(packet));
                // Nothing may be left of the batch, and then this is its first.
                if unscreened.is_empty() || !self.network.screen_waiting(now, id, out, unscreened) {
                    close(out);
                    break;
                }
                continue;
            }
            let destination = match found {
                Some((next_hop, destination)) if next_hop == packet.next_hop => destination,
                _ => interface.resolve(now, packet.next_hop),
            };
            found = Some((packet.next_hop, destination));
            match destination {
                Destination::Pending => {
                    let NextHop::Neighbour(address) = packet.next_hop else { continue };
                    let dropped = interface.neighbours.enqueue(address, packet);
                    self.drops.add_many(DropReason::NeighbourQueueFull, dropped.len() as u64);
                }
                Destination::Unreachable => self.on_unreachable(id, &packet),
                destination => {
                    if !self.network.build_small(now, (id, destination), packet, out, unscreened) {
                        break;
                    }
                    let Some(refusal) = refusal else { continue };
                    self.network.screen_waiting(now, id, out, unscreened);
                    if !out.is_empty() {
                        self.refusals.add(refusal);
                        close(out);
                    }
                }
            }
        }
    }

    /// A writer waits for room. As on Linux a cork does not keep what makes some, or both would wait for ever.
    pub(crate) fn ease_cork(&mut self, id: SocketId) {
        let Ok(index) = self.sockets.index(id) else { return };
        if let Some(socket) = self.sockets.tcp(index)
            && socket.connection.ease_cork()
            && let Some(interface) = self.network.interfaces.get_mut(socket.path.interface)
        {
            // Whether anything goes is found out in its turn.
            interface.ready.add(index, &mut socket.queued);
        }
    }

    fn emit_connection(&mut self, now: Instant, id: InterfaceId, index: u32, out: &mut Multidata) {
        let Some(socket) = self.sockets.tcp(index) else { return };
        // An entry may be left of a connection that had the slot before and is gone: who is there now would
        // be in one batch twice, with the same segments.
        if !core::mem::replace(&mut socket.queued, false) {
            return;
        }
        self.refresh_path(now, index);
        let interface = &mut self.network.interfaces[id];
        let Some(socket) = self.sockets.tcp(index) else { return };
        if socket.path.interface != id {
            // Its route leads elsewhere now.
            return self.settle(now, index);
        }
        // What is refused to the whole interface is so by its limits.
        let refusal = socket.path.refusal.filter(|_| interface.agreement.refusal.is_none());
        if refusal.is_some() && !out.is_empty() {
            interface.ready.add_first(index, &mut socket.queued);
            return close(out);
        }
        let mut destination = interface.resolve(now, NextHop::Neighbour(socket.path.next_hop));
        let is_passed_on = Self::is_passed_on(socket.path.is_multi_routed, destination);
        if destination == Destination::Pending && !is_passed_on {
            // It counts as queued, in another list, so that it cannot wait there twice.
            socket.queued = true;
            interface.waiting.push((socket.path.next_hop, index));
            return;
        }
        if socket.path.is_barred() {
            destination = Destination::Unreachable;
        }
        let (first, payload_before) = (out.len(), out.payload_bytes());
        let limits = out.limits();
        let allowance = (interface.ready.len() > 0).then_some(&mut socket.allowance_bytes);
        out.set_limits(turn(limits, payload_before, allowance, refusal.is_some()));
        let built = socket.connection.poll_transmit(now, out);
        out.set_limits(limits);
        if built == 0 {
            // It has nothing to send, or what it has did not fit: then it has its turn again.
            socket.allowance_bytes = 0;
            return self.settle(now, index);
        }
        if destination == Destination::Unreachable && !is_passed_on {
            return self.lose(now, index, first, built, out);
        }
        let payload_bytes = out.payload_bytes() - payload_before;
        let network = &socket.path.network;
        let is_alone = refusal.is_none() && built == 1 && limits.packets > 1;
        let held_back = if is_alone { socket.connection.multidata_refusal() } else { refusal };
        held_back.into_iter().for_each(|refusal| self.refusals.add(refusal));
        stamp(interface, out, first..first + built, network, destination);
        self.counters.transmit_runs += 1;
        let mut planned = Planned { owner: index, built, dropped: 0, payload_bytes };
        if self.network.filter.is_some() && !self.admit(now, id, out, first, &mut planned) {
            return;
        }
        if refusal.is_some() {
            close(out);
        }
        if self.sockets.tcp(index).is_some_and(|socket| socket.path.is_multi_routed) {
            return self.duplicate(now, id, out, first, planned, is_passed_on);
        }
        self.sending.planned.push(planned);
    }

    /// A connection's packets, the last of the batch from `first` on, leave by other ways as well; or by
    /// those alone for now, where the first way does not find its neighbour.
    #[cold]
    fn duplicate(
        &mut self,
        now: Instant,
        id: InterfaceId,
        out: &mut Multidata,
        first: usize,
        planned: Planned,
        is_passed_on: bool,
    ) {
        let index = planned.owner;
        let Some(socket) = self.sockets.tcp(index) else { return };
        let (network, next_hop) = (socket.path.network.clone(), socket.path.next_hop);
        if !is_passed_on {
            self.plan_copies(id, out, first..out.len(), &network);
            return self.sending.planned.push(planned);
        }
        self.pass_on((id, next_hop), out, first..out.len(), &network);
        out.truncate(first);
        if let Some(socket) = self.sockets.tcp(index) {
            let (connection, count) = (&mut socket.connection, planned.built + planned.dropped);
            self.connection_counters.lend(connection, |it| it.on_transmitted(now, count));
        }
        self.settle(now, index);
    }

    /// Takes the packets from `first` on out of the batch as if they had been lost for want of a
    /// neighbour: TCP's own timers decide when that is final.
    #[cold]
    fn lose(&mut self, now: Instant, index: u32, first: usize, built: usize, out: &mut Multidata) {
        out.truncate(first);
        self.drops.add_many(DropReason::NeighbourUnreachable, built as u64);
        let Some(socket) = self.sockets.tcp(index) else { return };
        socket.connection.on_transmitted(now, built);
        let sequence = socket.connection.first_unacknowledged();
        socket.connection.on_unreachable(ConnectionError::HostUnreachable, sequence);
        self.sending.lost_here += 1;
        self.settle(now, index);
    }

    /// Has the filter look at a connection's packets, which are the last of the batch from `first`
    /// on. Says whether any of them are left in it; where not, the connection has been seen to.
    #[inline(never)]
    fn admit(
        &mut self,
        now: Instant,
        id: InterfaceId,
        out: &mut Multidata,
        first: usize,
        planned: &mut Planned,
    ) -> bool {
        let index = planned.owner;
        let payload_before = out.payload_bytes() - planned.payload_bytes;
        let screened = self.network.screen(now, id, out, first..first + planned.built);
        let reason = self.network.filtered_for(0);
        let Some(socket) = self.sockets.tcp(index) else { return false };
        if screened.wants_single {
            // Until the path is asked about again.
            socket.path.refusal = Some(MultidataRefusal::QosMarking);
            self.counters.multidata_flows_stopped += 1;
            let interface = &mut self.network.interfaces[id];
            interface.ready.add_first(index, &mut socket.queued);
            return false;
        }
        (planned.built, planned.dropped) = (screened.passed, screened.dropped);
        planned.payload_bytes = out.payload_bytes() - payload_before;
        if screened.passed == 0 {
            // As if they had been lost on the wire.
            self.drops.add_many(reason, screened.dropped as u64);
            let connection = &mut socket.connection;
            let dropped = screened.dropped;
            self.connection_counters.lend(connection, |it| it.on_transmitted(now, dropped));
            socket.allowance_bytes = 0;
            self.sending.lost_here += 1;
            self.settle(now, index);
        }
        screened.passed > 0
    }
}

impl NetworkLayer {
    /// Builds a message of the outbox, or puts it back: where there is no room, which it says, or where the
    /// filter must look first at what was built before.
    fn build_small(
        &mut self,
        now: Instant,
        (id, destination): (InterfaceId, Destination),
        mut packet: Outgoing,
        out: &mut Multidata,
        unscreened: &mut Unscreened,
    ) -> bool {
        let interface = &self.interfaces[id];
        let mtu_bytes = packet.mtu_bytes(interface, &self.routes, &self.path_mtus);
        let link_mtu_bytes = interface.mtu_bytes(packet.network.is_ipv4());
        match packet.fit(link_mtu_bytes, mtu_bytes, &mut self.identifications) {
            Fit::Whole => {}
            Fit::Split => self.counters.datagrams_fragmented += 1,
            Fit::TooLong => {
                self.drops.add(DropReason::TooLong);
                return true;
            }
        }
        let flow = self.screened_with(id, &packet);
        let interface = &mut self.interfaces[id];
        if !unscreened.takes(flow.as_ref()) {
            // What comes afresh, if anything does, comes before it.
            interface.outbox.put_back(core::iter::once(packet));
            self.screen_waiting(now, id, out, unscreened);
            return true;
        }
        let count = packet.push(out, mtu_bytes);
        if count == 0 {
            interface.outbox.put_back(core::iter::once(packet));
            return false;
        }
        let range = out.len() - count..out.len();
        match packet.is_stamped() {
            true => stamp_link(interface, out, range, &packet.network, destination),
            false => stamp(interface, out, range, &packet.network, destination),
        }
        self.counters.transmit_runs += 1;
        if packet.is_cut_short(mtu_bytes, count) {
            // There was no room for its blocks. What waits behind it is not to overtake its end.
            close(out);
        }
        match self.filter {
            None => interface.offered.push(packet, count, mtu_bytes),
            Some(_) => unscreened.push(Built { packet, count, mtu_bytes }, flow),
        }
        true
    }

    /// Has the filter look at a message of the outbox, the last `built` packets of the batch. Says
    /// whether it stays; where one of its packets is dropped, all are.
    pub(crate) fn admit_small(
        &mut self,
        now: Instant,
        id: InterfaceId,
        out: &mut Multidata,
        built: usize,
    ) -> bool {
        let first = out.len() - built;
        for at in 0..if self.filter.is_some() { built } else { 0 } {
            // Each by itself: fragments have no run, and may be marked.
            let screened = self.screen(now, id, out, first + at..first + at + 1);
            if screened.dropped > 0 {
                out.truncate(first);
                self.drops.add(self.filtered_for(0));
                return false;
            }
        }
        true
    }

    /// Why a packet of the outbox must leave by itself, where others leave in batches.
    fn small_refusal(&self, id: InterfaceId, packet: &Outgoing) -> Option<MultidataRefusal> {
        if self.interfaces[id].agreement.refusal.is_some() {
            return None;
        }
        let Network::Ip(template) = &packet.network else { return None };
        // The router alert of MLD is no option of a header, but a header (RFC 2711).
        if template.protocol() == wire::protocol::HOP_BY_HOP {
            return Some(MultidataRefusal::IpOptions);
        }
        let (protocol, is_multi_routed) = (template.protocol(), self.is_on_several_ways(packet));
        let flow = || self.filter_flow(id, packet);
        self.flow_refusal(id, protocol, &packet.network, is_multi_routed, flow)
    }
}

/// Whether the packet's source is still ours, as is who asks by ARP (RFC 826); but a lease is given back from its own
/// address (RFC 2131, 4.4.6).
fn may_leave(interface: &Interface, packet: &Outgoing) -> bool {
    let source = match &packet.message {
        Message::Arp(message) => message.sender_protocol.into(),
        _ => packet.network.addresses().0,
    };
    interface.may_send_from(source) || packet.message.is_to_dhcp_server()
}

/// How far a batch may grow by a connection's turn, which has an allowance where others wait.
fn turn(
    limits: Limits,
    payload_bytes_before: usize,
    allowance_bytes: Option<&mut u32>,
    is_alone: bool,
) -> Limits {
    let mut turn = limits;
    if let Some(allowance_bytes) = allowance_bytes {
        if *allowance_bytes == 0 {
            *allowance_bytes = TURN_BYTES;
        }
        let payload_bytes = payload_bytes_before + *allowance_bytes as usize;
        turn.payload_bytes = payload_bytes.min(limits.payload_bytes);
    }
    if is_alone {
        turn.packets = limits.packets.min(1);
    }
    turn
}

/// Ends a batch where it stands.
fn close(out: &mut Multidata) {
    let limits = Limits { packets: out.len(), ..out.limits() };
    out.set_limits(limits);
}

/// Puts the network and the link header on the packets `range`, which share both.
fn stamp(
    interface: &mut Interface,
    out: &mut Multidata,
    range: Range<usize>,
    network: &Network,
    destination: Destination,
) {
    if let Network::Ip(template) = network {
        let is_ipv4 = template.source().is_ipv4();
        let offload = interface.capabilities.completes_checksum(is_ipv4, template.protocol());
        let stamped =
            ip::stamp(out, range.clone(), template, &mut interface.identification, offload);
        debug_assert_eq!(stamped, range.len(), "what TCP and UDP cut fits its length field");
    }
    stamp_link(interface, out, range, network, destination);
}

/// Puts the link header on the packets `range`, where the medium has one.
fn stamp_link(
    interface: &Interface,
    out: &mut Multidata,
    range: Range<usize>,
    network: &Network,
    destination: Destination,
) {
    let ether_type = match network {
        Network::Ip(template) => ether_type_of(template),
        Network::Arp => ether_type::ARP,
    };
    if let (Destination::Station(station), Some(ours)) = (destination, interface.hardware_address())
    {
        link::stamp_ethernet(out, range, ours, station, ether_type);
    }
}

fn ether_type_of(template: &HeaderTemplate) -> u16 {
    if template.source().is_ipv4() { ether_type::IPV4 } else { ether_type::IPV6 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{InterfaceConfig, ShardConfig, TcpOption};
    use batch::{BlockPool, PoolConfig};
    use device::{Capabilities, HardwareAddress, Medium, TransmitMode};

    #[test]
    fn a_connection_waits_for_a_neighbour_once_whatever_is_done_to_it() {
        let mut shard = Shard::new(ShardConfig {
            tcp: tcp::Config::default(),
            pool: BlockPool::new(PoolConfig::default()),
            secret: [1; 32],
            sockets_max: 4,
        });
        let medium = Medium::Ethernet(HardwareAddress([2, 0, 0, 0, 0, 1]));
        let id = shard
            .add_interface(InterfaceConfig {
                capabilities: Capabilities::plain(medium, 1_500),
                mode: Some(TransmitMode::Multidata),
                addresses: vec!["10.0.0.1/24".parse().expect("a network")],
                gateways: Vec::new(),
            })
            .expect("a sound configuration");
        let now = Instant::from_millis(1);
        let remote = "10.0.0.2:80".parse().expect("an address");
        let socket = shard.tcp_connect(now, None, remote).expect("a route");
        let mut batch = Multidata::default();
        for round in 0..50 {
            let taken = shard.poll_transmit(now, id, Room::UNBOUNDED, &mut batch);
            assert_eq!(taken, usize::from(round == 0), "one ARP request");
            shard.on_transmitted(now, id, &Transmitted { taken, stopped: None });
            let option = TcpOption::NoDelay(round % 2 == 0);
            shard.tcp_set_option(now, socket, option).expect("open");
        }
        assert_eq!(shard.network.interfaces[id].waiting.len(), 1);
    }
}
