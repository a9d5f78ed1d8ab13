//! The whole way in.
//!
//! ```text
//!  on_receive: the filter looks at the batch, where there is one (`network/filter.rs`)
//!  then for each frame
//!    link  -> ARP -> neighbours
//!    IP    -> fragment? -> reassembly -> whole again
//!          -> ours?  -> TCP -> flow (the last one, or looked up) -> connection
//!                    -> UDP -> socket        else another shard's, else listener, else forwarder, else reset
//!                    -> ICMP -> echo, errors, neighbour discovery; copies to raw sockets
//!                    -> other protocols -> raw sockets
//!    the frames behind it that follow it as a train -> the same connection, as one unit
//!  then, once per batch: every connection that was touched decides what to acknowledge
//! ```
//!
//! A frame that no layer has a use for is dropped with a [`DropReason`] and counted. Nothing here
//! trusts a length before it was checked, and nothing loops beyond the frames of the batch.

use crate::connections::time_wait::Judged;
use crate::network::interface::Interface;
use crate::network::interfaces::InterfaceId;
use crate::shard::Shard;
use crate::sockets::Flow;
use crate::sockets::ports::Protocol;
use batch::{Chunk, Frame, ReceiveBatch, ReceivedChecksum, Segmented};
use core::net::{IpAddr, SocketAddr};
use counters::DropReason;
use ip::PacketInfo;
use tcp::State;
use time::Instant;
use wire::{HardwareAddress, SeqNumber, TcpFlags, TcpHeader, ether_type, protocol};

/// Where a frame came from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) interface: InterfaceId,
    /// The station it came from, where the medium has stations.
    pub(crate) station: Option<HardwareAddress>,
    /// The frame went to several stations.
    pub(crate) link_multicast: bool,
    /// Of several shards, this one has what the packet is for, if any has: nobody needs to ask.
    pub(crate) is_home: bool,
}

/// A packet on its way up, with the frame it came in.
pub(crate) struct Incoming<'a> {
    pub(crate) origin: Origin,
    pub(crate) info: &'a PacketInfo,
    pub(crate) batch: &'a ReceiveBatch,
    /// The frame's index in the batch.
    pub(crate) index: usize,
    frame: Frame,
    bytes: &'a [u8],
    /// Where the transport header begins in the frame, and where the packet ends.
    pub(crate) transport: usize,
    pub(crate) end: usize,
}

impl<'a> Incoming<'a> {
    /// The packet that begins `network` bytes into frame `index`.
    pub(crate) fn new(
        origin: Origin,
        info: &'a PacketInfo,
        batch: &'a ReceiveBatch,
        index: usize,
        network: usize,
    ) -> Result<Self, DropReason> {
        let frame = batch.frame(index).ok_or(DropReason::Truncated)?;
        let (transport, end) = (network + info.header_len, network + info.total_len);
        let bytes = batch.bytes(index).get(transport..end).unwrap_or(&[]);
        Ok(Self { origin, info, batch, index, frame, bytes, transport, end })
    }

    /// The transport header and what follows it.
    #[inline]
    pub(crate) fn transport_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The packet from its network header on.
    pub(crate) fn packet_chunk(&self) -> Option<Chunk> {
        self.batch.chunk(self.index, self.transport - self.info.header_len..self.end)
    }

    /// What follows `header_len` bytes of transport header, without a copy.
    pub(crate) fn payload(&self, header_len: usize) -> Option<Chunk> {
        self.batch.chunk(self.index, self.transport + header_len..self.end)
    }

    /// The segments that the frame stands for, where it stands for several.
    pub(crate) fn segmented(&self) -> Option<Segmented> {
        self.frame.segmented
    }

    /// Verifies the transport checksum unless the device has, or nobody needs to.
    pub(crate) fn verify(
        &self,
        wrong: DropReason,
        summed_bytes: &mut u64,
    ) -> Result<(), DropReason> {
        if self.frame.checksum != ReceivedChecksum::Unverified {
            return Ok(());
        }
        let bytes = self.transport_bytes();
        *summed_bytes += bytes.len() as u64;
        if ip::transport_checksum_ok(self.info, bytes) { Ok(()) } else { Err(wrong) }
    }
}

impl Shard {
    /// Takes in the frames that interface `id` received in one call. The batch's blocks are kept
    /// only as far as payload in them waits to be read.
    pub fn on_receive(&mut self, now: Instant, id: InterfaceId, batch: &mut ReceiveBatch) {
        if batch.is_empty() || self.network.interfaces.get(id).is_none_or(|it| it.is_removed) {
            self.drops.add_many(DropReason::InterfaceRemoved, batch.len() as u64);
            return batch.clear();
        }
        // Whoever reads has had time to: what is here is what nobody fetches.
        self.relieve_pool();
        self.counters.receive_batches += 1;
        self.counters.receive_frames += batch.len() as u64;
        self.network.screen_received(now, id, batch);
        let mut index = 0;
        while index < batch.len() {
            if self.network.is_admitted(index)
                && let Err(reason) = self.on_frame(now, id, batch, index)
            {
                self.drops.add(reason);
            }
            index = self.on_train(now, batch, index + 1);
        }
        self.end_batch(now);
        batch.clear();
    }

    /// Once per batch: every connection that was touched decides what to acknowledge.
    pub(crate) fn end_batch(&mut self, now: Instant) {
        self.leave_addresses(now);
        let mut touched = core::mem::take(&mut self.touched);
        for index in touched.drain(..) {
            if let Some(socket) = self.sockets.tcp(index) {
                socket.touched = false;
                let connection = &mut socket.connection;
                self.connection_counters.lend(connection, |it| it.on_batch_end(now));
                // RFC 4861, 7.3.1: an acknowledgment of new data proves that the way to the next
                // hop works; so a busy neighbour is not probed.
                let acknowledged = socket.connection.first_unacknowledged();
                if acknowledged != socket.confirmed {
                    socket.confirmed = acknowledged;
                    let interface = &mut self.network.interfaces[socket.path.interface];
                    interface.neighbours.on_confirmed(socket.path.next_hop, now);
                }
                if socket.connection.holds_much_more_than_unread() {
                    self.note_holding(index);
                }
            }
            self.settle(now, index);
        }
        self.touched = touched;
    }

    fn on_frame(
        &mut self,
        now: Instant,
        id: InterfaceId,
        batch: &ReceiveBatch,
        index: usize,
    ) -> Result<(), DropReason> {
        let interface = &self.network.interfaces[id];
        let bytes = batch.bytes(index);
        let (station, link_multicast, network) = match interface.hardware_address() {
            None => (None, false, 0),
            Some(ours) => {
                let ethernet = link::parse_ethernet(bytes, ours)?;
                if ethernet.ether_type == ether_type::ARP {
                    let body = bytes.get(ethernet.payload_offset..).unwrap_or(&[]);
                    return self.network.on_arp(now, id, body);
                }
                let multicast = ethernet.destination.is_multicast();
                (Some(ethernet.source), multicast, ethernet.payload_offset)
            }
        };
        // Both ends of a connection over loopback are here.
        let is_home = self.network.interfaces[id].is_loopback;
        let origin = Origin { interface: id, station, link_multicast, is_home };
        // What was read is passed by reference all the way up: moving a structure right after it was
        // written makes the processor wait for its parts.
        match &ip::parse(bytes.get(network..).unwrap_or(&[])) {
            Ok(info) => self.on_packet(now, origin, batch, index, network, info),
            Err(DropReason::Fragment) => self.on_fragment(now, origin, batch, index, network),
            Err(reason) => {
                self.network.on_unreadable(now, origin, batch, index, network);
                Err(*reason)
            }
        }
    }

    /// A whole packet, `network` bytes into frame `index`.
    #[inline]
    pub(crate) fn on_packet(
        &mut self,
        now: Instant,
        origin: Origin,
        batch: &ReceiveBatch,
        index: usize,
        network: usize,
        info: &PacketInfo,
    ) -> Result<(), DropReason> {
        if !self.network.has_checked(&origin, info) {
            let packet = batch.bytes(index).get(network..).unwrap_or(&[]);
            self.network.check_addresses(&origin, info, info.transport(packet))?;
            self.network.note_checked(&origin, info);
        }
        let incoming = Incoming::new(origin, info, batch, index, network)?;
        match incoming.info.protocol {
            protocol::TCP => self.on_tcp(now, &incoming),
            protocol::UDP => self.on_udp(now, &incoming),
            protocol::ICMP if info.source.is_ipv4() => self.on_icmp(now, &incoming),
            protocol::ICMPV6 if info.source.is_ipv6() => self.on_icmp(now, &incoming),
            protocol::IGMP if info.source.is_ipv4() => {
                self.deliver_raw(&incoming);
                self.network.on_group_message(now, &incoming)
            }
            _ if self.deliver_raw(&incoming) => Ok(()),
            _ => self.network.on_unknown_protocol(now, &incoming),
        }
    }

    fn on_tcp(&mut self, now: Instant, incoming: &Incoming<'_>) -> Result<(), DropReason> {
        incoming.verify(DropReason::TcpChecksum, &mut self.counters.checksummed_receive_bytes)?;
        let bytes = incoming.transport_bytes();
        let parsed = TcpHeader::parse_counted(bytes, &mut self.tcp_options);
        let Ok((header, header_len)) = &parsed else { return Err(DropReason::MalformedTcp) };
        let index = match self.connection_for(now, incoming, header) {
            Ok(index) => index,
            Err(isn_min) => {
                let flow = flow_of(incoming.info, header);
                let segment = Unclaimed { flow, header: *header, header_len: *header_len, isn_min };
                return self.on_segment_without_connection(now, incoming, segment);
            }
        };
        let segment = as_tcp_segment(incoming, header, *header_len);
        self.touch(index);
        let Some(socket) = self.sockets.tcp(index) else { return Err(DropReason::NoConnection) };
        let (connection, pool) = (&mut socket.connection, &self.pool);
        self.connection_counters.lend(connection, |it| it.on_segment(now, segment, pool))?;
        self.trains.lead(incoming, header, index);
        Ok(())
    }

    /// Notes that the receive batch under way has touched a connection.
    #[inline]
    pub(crate) fn touch(&mut self, index: u32) {
        if let Some(socket) = self.sockets.tcp(index)
            && !socket.touched
        {
            socket.touched = true;
            self.touched.push(index);
        }
    }

    /// The connection of this flow: that of the segment before, or the one in the table. A SYN
    /// that may follow a connection in TIME-WAIT finds none, and where the successor's sequence
    /// numbers must begin (RFC 9293, 3.10.7.4).
    fn connection_for(
        &mut self,
        now: Instant,
        incoming: &Incoming<'_>,
        header: &TcpHeader,
    ) -> Result<u32, Option<SeqNumber>> {
        let info = incoming.info;
        if let Some((cached, index)) = &self.sockets.flow_cache
            && is_of(cached, info, header)
            && !is_syn_only(header)
        {
            self.counters.flow_cache_hits += 1;
            return Ok(*index);
        }
        self.counters.flow_lookups += 1;
        let flow = flow_of(info, header);
        let index = self.sockets.by_flow(&flow).ok_or(None)?;
        if is_syn_only(header) {
            let is_awaited = self.awaits(&incoming.origin, &flow);
            let connection = &self.sockets.tcp(index).ok_or(None)?.connection;
            let is_closed = connection.state() == State::Closed;
            if (is_awaited || is_closed) && connection.may_be_replaced_by(now, header) {
                return Err(Some(connection.next_isn_min()));
            }
        }
        self.sockets.flow_cache = Some((flow, index));
        Ok(index)
    }

    fn on_segment_without_connection(
        &mut self,
        now: Instant,
        incoming: &Incoming<'_>,
        mut segment: Unclaimed,
    ) -> Result<(), DropReason> {
        let id = incoming.origin.interface;
        let interface = &self.network.interfaces[id];
        if !interface.is_loopback && !interface.accepts(segment.flow.local.ip()) {
            // RFC 1122, 4.2.3.10: a segment to a broadcast or multicast address is discarded.
            return Err(DropReason::NoConnection);
        }
        if self.network.hands_on(incoming, &segment.flow) {
            return Ok(());
        }
        if let Some(waiting) = self.half_open_of(&segment.flow) {
            return self.on_half_open(now, incoming, &segment, waiting);
        }
        match self.on_time_wait(now, incoming, &segment) {
            Some(Judged::Done(outcome)) => return outcome,
            Some(Judged::Begins(isn_min)) => segment.isn_min = Some(isn_min),
            None => {}
        }
        let Unclaimed { flow, header, .. } = &segment;
        if !header.flags.contains(TcpFlags::RST)
            && let Some(listener) = self.sockets.ports.find(Protocol::Tcp, flow.local, flow.remote)
            && self.sockets.listens_at(listener, id)
        {
            if is_syn_only(header) {
                return self.on_syn(now, incoming, listener, segment);
            }
            // RFC 9293, 3.10.7.2: in LISTEN, what has none of RST, ACK and SYN is dropped.
            if !header.flags.intersects(TcpFlags::SYN | TcpFlags::ACK) {
                return Err(DropReason::BadState);
            }
            if !header.flags.contains(TcpFlags::SYN)
                && let Some(outcome) = self.on_cookie(now, incoming, listener, &segment)
            {
                return outcome;
            }
        }
        if let Some(outcome) = self.on_forwarded(now, incoming, &segment) {
            return outcome;
        }
        self.send_reset(now, incoming, header, segment.payload_len(incoming));
        Err(DropReason::NoConnection)
    }
}

/// A segment for which there is no connection.
pub(crate) struct Unclaimed {
    pub(crate) flow: Flow,
    pub(crate) header: TcpHeader,
    header_len: usize,
    /// Where the ISS of a connection that it begins must lie, if anywhere.
    pub(crate) isn_min: Option<SeqNumber>,
}

impl Unclaimed {
    pub(crate) fn payload_len(&self, incoming: &Incoming<'_>) -> u32 {
        (incoming.transport_bytes().len() - self.header_len) as u32
    }

    /// As a connection takes it.
    pub(crate) fn as_tcp_segment<'a>(&'a self, incoming: &Incoming<'_>) -> tcp::Segment<'a> {
        as_tcp_segment(incoming, &self.header, self.header_len)
    }
}

/// The flow of a segment, as the table of flows knows it.
pub(crate) fn flow_of(info: &PacketInfo, header: &TcpHeader) -> Flow {
    Flow {
        local: SocketAddr::new(info.destination, header.destination_port),
        remote: SocketAddr::new(info.source, header.source_port),
    }
}

/// Whether a segment is of this flow.
#[inline]
fn is_of(flow: &Flow, info: &PacketInfo, header: &TcpHeader) -> bool {
    flow.remote.port() == header.source_port
        && flow.local.port() == header.destination_port
        && flow.remote.ip() == info.source
        && flow.local.ip() == info.destination
}

#[inline]
fn as_tcp_segment<'a>(
    incoming: &Incoming<'_>,
    header: &'a TcpHeader,
    header_len: usize,
) -> tcp::Segment<'a> {
    let payload_len = incoming.transport_bytes().len() - header_len;
    tcp::Segment {
        header,
        payload: if payload_len > 0 { incoming.payload(header_len) } else { None },
        sparse: incoming.batch.is_sparse(incoming.index),
        segment_len: segment_len_of(&incoming.frame),
        congestion_experienced: incoming.info.ecn() == crate::ECN_CE,
    }
}

/// Payload bytes of each segment of the wire that a frame stands for; 0 where it is one.
#[inline]
pub(crate) fn segment_len_of(frame: &Frame) -> u32 {
    frame.segmented.map_or(0, |run| run.segment_len.into())
}

/// Whether a segment asks for a new connection.
pub(crate) fn is_syn_only(header: &TcpHeader) -> bool {
    let relevant = TcpFlags::SYN | TcpFlags::ACK | TcpFlags::RST;
    header.flags.without(TcpFlags(!relevant.0)) == TcpFlags::SYN
}

/// Refuses packets that are not for this interface, or that claim to come from where no packet comes from;
/// `transport` is what there is of a packet behind its network header.
#[inline]
pub(crate) fn check_addresses(
    interface: &Interface,
    origin: &Origin,
    info: &PacketInfo,
    transport: &[u8],
) -> Result<(), DropReason> {
    if interface.is_loopback {
        // Nobody but this shard sends here, and it asked its routes.
        return Ok(());
    }
    let is_ours = interface.is_ours(info.destination);
    let is_taken = is_ours || interface.accepts_packet(info);
    if !is_taken && !interface.accepts_for_all(info.destination) {
        return Err(DropReason::NotOurAddress);
    }
    // RFC 1122, 3.3.6: what came in a link-layer broadcast and is for one host alone is discarded.
    // RFC 8200 has no such sentence; for TCP, which nobody broadcasts, it holds all the same.
    if origin.link_multicast
        && is_taken
        && (info.destination.is_ipv4() || info.protocol == protocol::TCP)
    {
        return Err(DropReason::LinkBroadcast);
    }
    let bad = match info.source {
        // RFC 1122, 3.2.1.3: neither broadcast, multicast nor loopback; and nobody else is us. A switch that asks for
        // members of groups in the place of a router has no address (RFC 4541, 2.1.1), nor has who asks everybody on
        // the link for one (3.2.1.3 (a), RFC 2131): a socket here may be the server.
        IpAddr::V4(source) => {
            source.is_multicast()
                || source.is_loopback()
                || source.is_broadcast()
                || (source.octets()[0] == 0 && !may_be_nobodys(interface, info))
                || interface.is_broadcast(info.source)
        }
        // An unspecified source is legal in neighbour discovery alone (RFC 4861, 4.3).
        IpAddr::V6(source) => {
            source.is_multicast()
                || source.is_loopback()
                || (source.is_unspecified() && info.protocol != protocol::ICMPV6)
        }
    };
    // RFC 4862, 5.4.4: who has an address of ours as well says so from that very address. Nothing else that comes
    // from there is listened to.
    let is_claim = info.protocol == protocol::ICMPV6
        && transport.first() == Some(&wire::ndp::NEIGHBOUR_ADVERTISEMENT);
    if bad || (interface.is_ours(info.source) && !is_claim) {
        Err(DropReason::BadSource)
    } else {
        Ok(())
    }
}

/// Whether a packet may come from the unspecified address of IPv4, which it has as source or another that is no
/// host's.
fn may_be_nobodys(interface: &Interface, info: &PacketInfo) -> bool {
    info.source.is_unspecified()
        && match info.protocol {
            protocol::IGMP => true,
            protocol::UDP => interface.is_broadcast(info.destination),
            _ => false,
        }
}
