//! The whole way out.
//!
//! ```text
//!  poll_transmit                                   on_transmitted
//!    neighbour requests -> outbox                    the device took n packets:
//!    outbox packets       \                            outbox: the first of them are gone,
//!    ready connections,    > push -> stamp IP ->                the rest goes back
//!    each as many segments/         stamp link         connections: commit what was taken,
//!    as there is room                                           forget and rebuild the rest
//! ```
//!
//! There is no other way out. A retransmission, a pure ACK, a reset, an ARP request and a burst of
//! sixty-four segments all pass through [`Shard::poll_transmit`]; the transmit mode only says how
//! large the batch may grow. Nothing is committed before the device has taken it.

use crate::interface::{Destination, Interface, InterfaceId};
use crate::offered::Fit;
use crate::outbox::{Network, NextHop};
use crate::shard::Shard;
use batch::{Attributes, Limits, Multidata};
use core::ops::Range;
use counters::DropReason;
use device::{Room, Stop, Transmitted};
use ip::HeaderTemplate;
use tcp::ConnectionError;
use time::Instant;
use wire::ether_type;

/// The owner of packets that came from the outbox; connections are owners by their socket index.
const OUTBOX_OWNER: u32 = u32::MAX;

/// Small packets offered in one batch at most, so that connections get their share of it.
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
    payload_bytes: usize,
}

impl Shard {
    /// Fills `out` (emptied first) with what interface `id` should send now, as far as `room` goes,
    /// and says how many packets that is; none means that there is nothing to send. Commits
    /// nothing: [`Shard::on_transmitted`] must follow before any other call.
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        id: InterfaceId,
        room: Room,
        out: &mut Multidata,
    ) -> usize {
        out.clear();
        self.planned.clear();
        let Some(interface) = self.interfaces.get_mut(id.0 as usize) else { return 0 };
        out.set_limits(interface.limits(room));
        out.set_block_bytes_max(interface.capabilities.block_bytes_max);
        self.poll_neighbours(now, id);
        self.emit_outbox(now, id, out);
        for _ in 0..self.interfaces[id.0 as usize].ready.len() {
            if out.room_packets() == 0 || out.room_bytes() == 0 {
                break;
            }
            let Some(index) = self.interfaces[id.0 as usize].ready.next() else { break };
            self.emit_connection(now, id, index, out);
        }
        // What was just looked up and not found is asked for at once.
        self.poll_neighbours(now, id);
        self.emit_outbox(now, id, out);
        if out.is_empty() {
            // What waited for a neighbour has left the outbox, too.
            self.wake_blocked(id);
        } else {
            self.counters.transmit_batches += 1;
            self.counters.transmit_packets += out.len() as u64;
            self.counters.transmit_copied_bytes += out.copied_bytes() as u64;
        }
        out.len()
    }

    /// What became of the batch that [`Shard::poll_transmit`] filled: the first `taken` packets are
    /// sent, all others never were and are built afresh when their turn comes.
    pub fn on_transmitted(&mut self, now: Instant, id: InterfaceId, transmitted: &Transmitted) {
        let mut taken = transmitted.taken;
        if transmitted.stopped == Some(Stop::Refused) {
            // The device will never take this one: as if it had been lost on the wire.
            self.drops.add(DropReason::DeviceRefused);
            taken += 1;
        }
        let mut planned = core::mem::take(&mut self.planned);
        for Planned { owner, built, payload_bytes } in planned.drain(..) {
            let count = taken.min(built);
            taken -= count;
            self.counters.transmit_not_taken += (built - count) as u64;
            if owner == OUTBOX_OWNER {
                self.interfaces[id.0 as usize].offered.on_taken(count);
                continue;
            }
            if let Some(socket) = self.sockets.tcp(owner) {
                let connection = &mut socket.connection;
                self.connection_counters.lend(connection, |it| it.on_transmitted(now, count));
                let sent_bytes = (payload_bytes / built.max(1) * count) as u32;
                socket.allowance_bytes = match socket.allowance_bytes.saturating_sub(sent_bytes) {
                    // Not worth another segment: the turn is over.
                    0..TURN_BYTES_MIN => 0,
                    left => left,
                };
            }
            self.settle(now, owner);
        }
        self.planned = planned;
        let interface = &mut self.interfaces[id.0 as usize];
        if interface.offered.len() > 0 {
            interface.outbox.put_back(interface.offered.drain());
        }
        self.wake_blocked(id);
    }

    #[inline]
    fn emit_outbox(&mut self, now: Instant, id: InterfaceId, out: &mut Multidata) {
        if !self.interfaces[id.0 as usize].outbox.is_empty() {
            self.emit_waiting(now, id, out);
        }
    }

    // Not inlined: in most turns of a connection nothing waits.
    #[inline(never)]
    fn emit_waiting(&mut self, now: Instant, id: InterfaceId, out: &mut Multidata) {
        let interface = &mut self.interfaces[id.0 as usize];
        let first = out.len();
        while interface.offered.len() < OUTBOX_SHARE_MAX && out.room_packets() > 0 {
            let Some(mut packet) = interface.outbox.pop() else { break };
            // RFC 1122, 3.2.1.3: what waited, here or for its neighbour, while its address was taken away.
            if !interface.may_send_from(packet.network.addresses().0) {
                self.drops.add(DropReason::SourceRemoved);
                continue;
            }
            match interface.resolve(now, packet.next_hop) {
                Destination::Pending => {
                    let NextHop::Neighbour(address) = packet.next_hop else { continue };
                    if interface.neighbours.enqueue(address, packet).is_err() {
                        self.drops.add(DropReason::NeighbourQueueFull);
                    }
                }
                Destination::Unreachable => self.drops.add(DropReason::NeighbourUnreachable),
                destination => {
                    let mtu_bytes = packet.mtu_bytes(interface, &self.routes, &self.path_mtus);
                    let link_mtu_bytes = interface.mtu_bytes(packet.network.is_ipv4());
                    match packet.fit(link_mtu_bytes, mtu_bytes, &mut self.identifications) {
                        Fit::Whole => {}
                        Fit::Split => self.counters.datagrams_fragmented += 1,
                        Fit::TooLong => {
                            self.drops.add(DropReason::TooLong);
                            continue;
                        }
                    }
                    let attributes = Attributes { owner: OUTBOX_OWNER, ..Attributes::default() };
                    let built = packet.push(out, mtu_bytes, attributes);
                    if built == 0 {
                        interface.outbox.put_back(core::iter::once(packet));
                        break;
                    }
                    let range = out.len() - built..out.len();
                    match packet.is_stamped() {
                        true => stamp_link(interface, out, range, &packet.network, destination),
                        false => stamp(interface, out, range, &packet.network, destination),
                    }
                    self.counters.transmit_runs += 1;
                    interface.offered.push(packet, built, mtu_bytes);
                }
            }
        }
        if out.len() > first {
            let built = out.len() - first;
            self.planned.push(Planned { owner: OUTBOX_OWNER, built, payload_bytes: 0 });
        }
    }

    fn emit_connection(&mut self, now: Instant, id: InterfaceId, index: u32, out: &mut Multidata) {
        let interface = &mut self.interfaces[id.0 as usize];
        let Some(socket) = self.sockets.tcp(index) else { return };
        let destination = interface.resolve(now, NextHop::Neighbour(socket.path.next_hop));
        if destination == Destination::Pending {
            // It stays queued, in another list, so that it cannot wait there twice.
            interface.waiting.push((socket.path.next_hop, index));
            return;
        }
        socket.queued = false;
        self.refresh_path(now, index);
        let interface = &mut self.interfaces[id.0 as usize];
        let Some(socket) = self.sockets.tcp(index) else { return };
        let (first, payload_before) = (out.len(), out.payload_bytes());
        let limits = out.limits();
        if interface.ready.len() > 0 {
            if socket.allowance_bytes == 0 {
                socket.allowance_bytes = TURN_BYTES;
            }
            let payload_bytes = payload_before + socket.allowance_bytes as usize;
            let payload_bytes = payload_bytes.min(limits.payload_bytes);
            out.set_limits(Limits { payload_bytes, ..limits });
        }
        let built = socket.connection.poll_transmit(now, index, id.0, out);
        out.set_limits(limits);
        if destination == Destination::Unreachable {
            // Lost for want of a neighbour: TCP's own timers decide when that is final.
            out.truncate(first);
            self.drops.add(DropReason::NeighbourUnreachable);
            socket.connection.on_transmitted(now, built);
            let sequence = socket.connection.first_unacknowledged();
            socket.connection.on_unreachable(ConnectionError::HostUnreachable, sequence);
            return self.settle(now, index);
        }
        if built == 0 {
            // It has nothing to send, or what it has did not fit: then it has its turn again.
            socket.allowance_bytes = 0;
            return self.settle(now, index);
        }
        let payload_bytes = out.payload_bytes() - payload_before;
        let is_ipv4 = socket.path.network.is_ipv4();
        if !interface.capabilities.completes_checksum(is_ipv4, wire::protocol::TCP) {
            self.counters.checksummed_transmit_bytes += payload_bytes as u64;
        }
        stamp(interface, out, first..first + built, &socket.path.network, destination);
        self.counters.transmit_runs += 1;
        self.planned.push(Planned { owner: index, built, payload_bytes });
    }
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
        ip::stamp(out, range.clone(), template, &mut interface.identification, offload);
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
                mode: TransmitMode::Multidata,
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
        assert_eq!(shard.interfaces[0].waiting.len(), 1);
    }
}
