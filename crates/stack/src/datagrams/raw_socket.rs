//! Raw IP and ICMP as sockets.
//!
//! A raw socket is bound to an IP protocol, or to an *echo identifier*: then it sends echo requests, by
//! the ICMP of the family of each destination, and hears what answers them. Or to a prefix of others' addresses: then
//! it hears the echo requests to them and answers (`foreign_icmp.rs`). What it sends is
//! everything behind the IP header, which is the stack's; what it receives is the same, with what
//! the header said beside it. Packets wait in the outbox of their interface like datagrams, and leave in one
//! batch with them.
//!
//! ```text
//!   out: first 8 bytes -> header of the packet in the batch     in: a packet of the protocol
//!        the rest      -> a span of the caller's block                  -> each socket bound to it: a copy
//!                                                               in: an echo reply, or an error about an
//!                                                                   echo request -> the one of its identifier
//! ```
//!
//! What the stack does with a packet for its own ends it does all the same: it answers echo requests,
//! learns neighbours, reports errors. A copy is made of what is whole (fragments were put together), to us, and,
//! for ICMP, right in its checksum; what is to an address that is only accepted (`forwarding.rs`) is not to us. No
//! "protocol unreachable" is said of what a socket takes (RFC 1122, 3.2.2.1).
//!
//! The checksum of ICMP, of both families, is the stack's (RFC 3542, 3.1 asks that for ICMPv6); those of
//! other protocols are the application's, who knows where they have one. TCP and UDP are refused, as are the
//! extension headers of IPv6, which the stack reads and writes itself (RFC 3542, 3 hands them to
//! nobody either), and 255, for which there is no packet.
//!
//! Where several shards are one host all raw sockets are in the first: what is neither TCP nor UDP comes
//! there. The others give it copies of the ICMP errors that are about their sockets, while
//! somebody wants them (`share.rs`).

use crate::error::{BadArgument, SocketError};
use crate::event::Readiness;
use crate::foreign_icmp::must_be_of;
use crate::ingress::Incoming;
use crate::inspection::SocketKind;
use crate::network::NetworkLayer;
use crate::network::endpoint::of_one_family;
use crate::network::multicast::MulticastOptions;
use crate::network::way::{MtuDiscovery, Way};
use crate::outbox::{Message, Network, NextHop, Outgoing};
use crate::shard::Shard;
use crate::sockets::ports::{BindOptions, Protocol};
use crate::sockets::pressure::Queued;
use crate::sockets::{Socket, SocketId, Sockets};
use batch::{Chunk, Chunks};
use checksum::Accumulator;
use core::net::{IpAddr, SocketAddr};
use counters::DropReason;
use ip::{Cidr, FRAGMENTED_HEADER_LEN, HeaderTemplate, IcmpError, IcmpErrorKind, IcmpIncoming};
use std::collections::VecDeque;
use time::Instant;
use wire::{Icmpv4Repr, Icmpv6Repr, protocol};

/// Sockets of whole protocols at most: a packet passes by all of them.
const RAW_SOCKETS_MAX: usize = 64;

/// What a socket holds at most where its program says nothing: as a UDP socket.
const QUEUE_BYTES_DEFAULT: usize = 212_992;

/// Places that an empty queue keeps, as of a UDP socket: there may be very many sockets for echoes.
const PLACES_KEPT: usize = 64;

/// What holding a packet costs besides its payload.
const PACKET_COST_BYTES: usize = size_of::<RawPacket>();

/// IANA reserves 255, and what sockets of POSIX mean by it (a header of the caller's own) is not done.
const RESERVED: u8 = 255;

/// Type, code and checksum.
pub(crate) const ICMP_LEN_MIN: usize = 4;

/// Where the identifier of an echo message lies (RFC 792; RFC 4443, 4.1).
const IDENTIFIER: core::ops::Range<usize> = 4..6;

/// A packet that a raw socket received.
#[derive(Clone, Debug)]
pub struct RawPacket {
    /// Who sent it.
    pub source: IpAddr,
    /// The address of ours, or the group, that it came to.
    pub destination: IpAddr,
    /// Its time to live or hop limit on arrival.
    pub hop_limit: u8,
    /// What lies behind the IP header, its options and its extension headers; may be empty.
    pub payload: Chunk,
}

/// What a raw socket is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    Protocol(u8),
    Echo(u16),
    Forwarded(Cidr),
}

/// A raw socket.
#[derive(Debug)]
pub(crate) struct RawSocket {
    bound: Bound,
    /// Unspecified, of either family, where it has all addresses.
    local: IpAddr,
    hop_limit: Option<u8>,
    mtu_discovery: MtuDiscovery,
    queue: VecDeque<RawPacket>,
    /// Payload and what holding it costs, and the bound of that.
    held_bytes: usize,
    held_bytes_max: usize,
    pub(crate) pending: Readiness,
}

impl RawSocket {
    fn new(bound: Bound, local: IpAddr) -> Self {
        Self {
            bound,
            local,
            hop_limit: None,
            mtu_discovery: MtuDiscovery::default(),
            queue: VecDeque::new(),
            held_bytes: 0,
            held_bytes_max: QUEUE_BYTES_DEFAULT,
            pending: Readiness::NONE,
        }
    }

    /// Our end: the echo identifier in the place of the port.
    pub(crate) fn local(&self) -> SocketAddr {
        let port = if let Bound::Echo(identifier) = self.bound { identifier } else { 0 };
        SocketAddr::new(self.local, port)
    }

    /// What it is, for whoever looks.
    pub(crate) fn kind(&self) -> SocketKind {
        match self.bound {
            Bound::Protocol(protocol) => SocketKind::Raw(protocol),
            Bound::Echo(_) => SocketKind::Echo,
            Bound::Forwarded(prefix) => SocketKind::EchoForwarder(prefix),
        }
    }

    /// What waits to be read.
    pub(crate) fn queued(&self) -> Queued {
        Queued { packets: self.queue.len(), bytes: self.held_bytes }
    }

    /// For [`Shard::datagram_plan`]: whether it speaks IPv4, how long its headers behind that of IP are, and
    /// whether the stack makes checksums over what it sends.
    pub(crate) fn plan(&self) -> (bool, usize, bool) {
        let is_icmp = match self.bound {
            Bound::Protocol(protocol) => matches!(protocol, protocol::ICMP | protocol::ICMPV6),
            Bound::Echo(_) | Bound::Forwarded(_) => true,
        };
        (self.local.is_ipv4(), 0, is_icmp)
    }

    /// Queues a packet and says whether there was room. One always fits an empty queue.
    fn push(&mut self, packet: RawPacket) -> bool {
        let has_room = self.has_room_for(packet.payload.len());
        if has_room {
            self.held_bytes += packet.payload.len() + PACKET_COST_BYTES;
            self.queue.push_back(packet);
        }
        has_room
    }

    fn has_room_for(&self, len: usize) -> bool {
        let fits = self.held_bytes + len + PACKET_COST_BYTES <= self.held_bytes_max;
        fits || self.queue.is_empty()
    }

    /// What waits, to be exchanged for chunks of the same bytes.
    pub(crate) fn payloads_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut Chunk> {
        self.queue.iter_mut().map(|packet| &mut packet.payload)
    }

    /// Whether a packet waits.
    pub(crate) fn has_received(&self) -> bool {
        !self.queue.is_empty()
    }

    fn pop(&mut self) -> Option<RawPacket> {
        let packet = self.queue.pop_front()?;
        self.held_bytes -= packet.payload.len() + PACKET_COST_BYTES;
        if self.queue.is_empty() && self.queue.capacity() > PLACES_KEPT {
            self.queue.shrink_to(PLACES_KEPT);
        }
        Some(packet)
    }

    /// The protocol of a packet to `to`.
    fn protocol_to(&self, to: IpAddr) -> Result<u8, SocketError> {
        if !self.local.is_unspecified() {
            of_one_family(self.local, to)?;
        }
        match (self.bound, to) {
            (Bound::Protocol(protocol::ICMP), IpAddr::V6(_))
            | (Bound::Protocol(protocol::ICMPV6), IpAddr::V4(_)) => {
                Err(BadArgument::IcmpOfOtherFamily(to).into())
            }
            (Bound::Protocol(protocol), _) => Ok(protocol),
            (Bound::Echo(_) | Bound::Forwarded(_), IpAddr::V4(_)) => Ok(protocol::ICMP),
            (Bound::Echo(_) | Bound::Forwarded(_), IpAddr::V6(_)) => Ok(protocol::ICMPV6),
        }
    }
}

/// The raw sockets that have a protocol to themselves.
#[derive(Debug, Default)]
pub(crate) struct RawTable {
    bound: Vec<(u8, IpAddr, u32)>,
}

impl RawTable {
    /// The socket at place `at`, where a packet is one for it.
    fn taker(&self, at: usize, protocol: u8, destination: IpAddr) -> Option<u32> {
        let (its, local, index) = *self.bound.get(at)?;
        let is_for_it = its == protocol && (local.is_unspecified() || local == destination);
        is_for_it.then_some(index)
    }

    fn takers(&self, protocol: u8, destination: IpAddr) -> impl Iterator<Item = u32> {
        (0..self.bound.len()).filter_map(move |at| self.taker(at, protocol, destination))
    }

    /// Whether somebody has the ICMP of either family.
    pub(crate) fn wants_icmp(&self) -> bool {
        let is_icmp = |protocol| matches!(protocol, protocol::ICMP | protocol::ICMPV6);
        self.bound.iter().any(|(protocol, ..)| is_icmp(*protocol))
    }
}

impl Shard {
    /// A socket for packets of an IP protocol to `local`, of which every such socket gets a copy; the
    /// unspecified address of either family stands for all addresses of both.
    ///
    /// # Errors
    /// [`SocketError::ProtocolNotRaw`] for TCP, UDP, the extension headers of IPv6 and 255; the address is
    /// not ours; there are 64 such sockets, or too many of all kinds; of several shards this is not
    /// the first ([`BadArgument::NotFirstShard`]).
    pub fn raw_bind(&mut self, protocol: u8, local: IpAddr) -> Result<SocketId, SocketError> {
        let local = local.to_canonical();
        if matches!(
            protocol,
            protocol::TCP
                | protocol::UDP
                | protocol::HOP_BY_HOP
                | protocol::ROUTING
                | protocol::FRAGMENT
                | protocol::DESTINATION_OPTIONS
                | RESERVED
        ) {
            return Err(SocketError::ProtocolNotRaw);
        }
        self.network.check_raw_local(local)?;
        if self.sockets.raws.bound.len() >= RAW_SOCKETS_MAX {
            return Err(SocketError::TooManySockets);
        }
        let socket = RawSocket::new(Bound::Protocol(protocol), local);
        let id = self.sockets.insert(Socket::Raw(Box::new(socket)))?;
        self.sockets.raws.bound.push((protocol, local, id.index() as u32));
        self.tell_of_raw_icmp();
        Ok(id)
    }

    /// A socket for echo requests of one identifier and what answers them, from `local`, which may be
    /// unspecified as in [`Shard::raw_bind`]. Identifier zero picks one.
    ///
    /// # Errors
    /// The address is not ours, the identifier in use, or there are too many sockets; of several shards
    /// this is not the first ([`BadArgument::NotFirstShard`]).
    pub fn raw_bind_echo(
        &mut self,
        local: IpAddr,
        identifier: u16,
    ) -> Result<SocketId, SocketError> {
        let local = local.to_canonical();
        self.network.check_raw_local(local)?;
        let options = BindOptions::default();
        let local = self.with_port(Protocol::Echo, SocketAddr::new(local, identifier), options)?;
        let socket = RawSocket::new(Bound::Echo(local.port()), local.ip());
        let id = self.sockets.insert(Socket::Raw(Box::new(socket)))?;
        let index = id.index() as u32;
        self.sockets.ports.add(Protocol::Echo, local, options, index).map(|()| id)
    }

    /// The application let go of a raw socket.
    pub(crate) fn close_raw(&mut self, index: u32, mut socket: RawSocket) {
        socket.payloads_mut().for_each(|payload| self.unread.remove(payload.len()));
        match socket.bound {
            Bound::Echo(identifier) => self.sockets.ports.remove(Protocol::Echo, identifier, index),
            Bound::Protocol(_) => {
                self.sockets.raws.bound.retain(|(.., its)| *its != index);
                self.tell_of_raw_icmp();
            }
            Bound::Forwarded(_) => self.forwarding.close_echo_forwarder(index),
        }
    }

    /// Queues one packet to `to`, without its IP header. In an ICMP message the checksum is filled in,
    /// and where the socket is bound to an echo identifier that, too. What goes to a group is not
    /// looped back.
    ///
    /// # Errors
    /// [`SocketError::WouldBlock`] where the interface's queue is full;
    /// [`SocketError::MessageTooLong`] where it is longer than IP can say (65,515 bytes over IPv4, 65,535
    /// over IPv6), or does not fit the path and the socket's [`MtuDiscovery`] forbids fragments;
    /// [`SocketError::InvalidArgument`] for an ICMP message that is shorter than its header or goes to an
    /// address of the other family, and for any but an echo request by a socket for these; no route.
    pub fn raw_send(
        &mut self,
        id: SocketId,
        to: IpAddr,
        payload: impl Into<Chunks>,
    ) -> Result<(), SocketError> {
        let socket = self.sockets.raw_socket(id)?;
        match socket.bound {
            // It has no address of its own to send from.
            Bound::Forwarded(_) => Err(BadArgument::NoSource.into()),
            _ => {
                let local = socket.local;
                self.queue_raw(id, local, to, payload.into())
            }
        }
    }

    /// Queues an echo reply to `to` from an address of the prefix of a forwarder ([`Shard::echo_forward`]): an
    /// ICMP message, mostly the request as it came, which leaves as the reply to itself.
    ///
    /// # Errors
    /// As [`Shard::raw_send`]; [`SocketError::InvalidArgument`] where the socket is no such forwarder, the address
    /// is not of its prefix, or the message is neither echo request nor reply.
    pub fn raw_send_forwarded(
        &mut self,
        id: SocketId,
        from: IpAddr,
        to: IpAddr,
        payload: impl Into<Chunks>,
    ) -> Result<(), SocketError> {
        let (from, to) = (from.to_canonical(), to.to_canonical());
        let bound = self.sockets.raw_socket(id)?.bound;
        let Bound::Forwarded(prefix) = bound else {
            return Err(BadArgument::NoForwarder.into());
        };
        must_be_of(prefix, from)?;
        of_one_family(from, to)?;
        self.queue_raw(id, from, to, payload.into())
    }

    fn queue_raw(
        &mut self,
        id: SocketId,
        local: IpAddr,
        to: IpAddr,
        mut payload: Chunks,
    ) -> Result<(), SocketError> {
        let to = to.to_canonical();
        let index = self.sockets.index(id)?;
        let socket = self.sockets.raw_socket(id)?;
        let (bound, protocol) = (socket.bound, socket.protocol_to(to)?);
        let (own_hop_limit, discovery) = (socket.hop_limit, socket.mtu_discovery);
        let Way { interface_id, next_hop, source, hop_limit } =
            self.network.way(local, to, None, MulticastOptions::default())?;
        if hop_limit == 0 {
            // Nothing to this group crosses a link, and what a raw socket sends does not come back to this host.
            return Err(BadArgument::GroupOfThisHost(to).into());
        }
        let hop_limit = own_hop_limit.unwrap_or(hop_limit);
        let mut template = HeaderTemplate::new(source, to, protocol, hop_limit, 0);
        let len = payload.len();
        self.network.fit_datagram(&mut template, interface_id, len, discovery)?;
        let header = head_of(bound, &template, &payload)?;
        let header_len = len.min(header.len());
        payload.trim_front(header_len);
        let message = Message::Raw {
            header,
            header_len: header_len as u8,
            payload,
            may_fragment: discovery.allows_fragments(),
        };
        let network = Network::Ip(template);
        let packet = Outgoing { network, next_hop: NextHop::Neighbour(next_hop), message };
        self.queue_or_block(index, interface_id, packet)
    }

    /// Queues packets, each with where it goes, in order, and says how many: all of them, or those before
    /// the first that cannot be queued. What is queued together leaves in the same batches.
    ///
    /// # Errors
    /// That of the first packet, as [`Shard::raw_send`] has them.
    pub fn raw_send_many(
        &mut self,
        id: SocketId,
        packets: &[(IpAddr, impl Into<Chunks> + Clone)],
    ) -> Result<usize, SocketError> {
        for (count, (to, payload)) in packets.iter().enumerate() {
            match self.raw_send(id, *to, payload.clone()) {
                Ok(()) => {}
                Err(error) if count == 0 => return Err(error),
                Err(_) => return Ok(count),
            }
        }
        Ok(packets.len())
    }

    /// The next received packet.
    ///
    /// # Errors
    /// [`SocketError::WouldBlock`] where there is none.
    pub fn raw_receive(&mut self, id: SocketId) -> Result<RawPacket, SocketError> {
        let packet = self.sockets.raw_socket(id)?.pop().ok_or(SocketError::WouldBlock)?;
        self.unread.remove(packet.payload.len());
        Ok(packet)
    }

    /// Sets the time to live or hop limit of what is sent; `None` is the interface's, and 1 to groups.
    ///
    /// # Errors
    /// There is no such socket, or the limit is zero, which nobody may send (RFC 1122, 3.2.1.7).
    pub fn raw_set_hop_limit(
        &mut self,
        id: SocketId,
        hop_limit: Option<u8>,
    ) -> Result<(), SocketError> {
        if hop_limit == Some(0) {
            return Err(BadArgument::NoHops.into());
        }
        self.sockets.raw_socket(id)?.hop_limit = hop_limit;
        Ok(())
    }

    /// Changes how the socket's packets treat the MTU of their path.
    ///
    /// # Errors
    /// There is no such socket.
    pub fn raw_set_mtu_discovery(
        &mut self,
        id: SocketId,
        discovery: MtuDiscovery,
    ) -> Result<(), SocketError> {
        self.sockets.raw_socket(id)?.mtu_discovery = discovery;
        Ok(())
    }

    /// Bounds what a socket holds unread (SO_RCVBUF), as [`Shard::udp_set_receive_buffer`] does.
    ///
    /// # Errors
    /// There is no such socket.
    pub fn raw_set_receive_buffer(
        &mut self,
        id: SocketId,
        bytes: usize,
    ) -> Result<(), SocketError> {
        self.sockets.raw_socket(id)?.held_bytes_max = bytes;
        Ok(())
    }

    /// Gives every socket that has this packet's protocol a copy, and says whether there are any.
    pub(crate) fn deliver_raw(&mut self, incoming: &Incoming<'_>) -> bool {
        let (protocol, destination) = (incoming.info.protocol, incoming.info.destination);
        let count = self.sockets.raws.takers(protocol, destination).count();
        if count == 0 || self.network.is_foreign(incoming) {
            return false;
        }
        let mut copy = None;
        for at in 0..self.sockets.raws.bound.len() {
            let taker = self.sockets.raws.taker(at, protocol, destination);
            let shared = (count > 1).then_some(&mut copy);
            if let Some(index) = taker
                && let Err(reason) = self.push_raw(index, incoming, shared)
            {
                self.drops.add(reason);
            }
        }
        true
    }

    /// Gives a sound ICMP message to the sockets that it is for, and says whether there are any.
    pub(crate) fn deliver_icmp(&mut self, incoming: &Incoming<'_>, message: &IcmpIncoming) -> bool {
        if self.network.is_foreign(incoming) {
            return false;
        }
        if !self.network.sharing.is_first() {
            // All shards get what is said to find hosts.
            if !matches!(message, IcmpIncoming::Ndp | IcmpIncoming::Mld) {
                self.network.copy_to_first(incoming);
            }
            return false;
        }
        let is_taken = self.deliver_raw(incoming);
        let found = match message {
            IcmpIncoming::EchoReply(echo) => {
                let local = SocketAddr::new(incoming.info.destination, echo.identifier);
                let remote = SocketAddr::new(incoming.info.source, 0);
                self.sockets.ports.find(Protocol::Echo, local, remote)
            }
            IcmpIncoming::Error(error) => self.sockets.echo_asker(error),
            _ => None,
        };
        let Some(index) = found else { return is_taken };
        let mut copy = None;
        if let Err(reason) = self.push_raw(index, incoming, is_taken.then_some(&mut copy)) {
            self.drops.add(reason);
        }
        true
    }

    /// An ICMP error about a packet that is neither a segment nor a datagram. Says whether a socket may
    /// have sent that.
    pub(crate) fn on_raw_error(&mut self, now: Instant, error: &IcmpError) -> bool {
        let (its_protocol, local) = (error.quoted.protocol, error.quoted.local.ip());
        let has_taker = self.sockets.raws.takers(its_protocol, local).next().is_some();
        let is_known = self.network.is_own_address(local)
            && (has_taker || self.sockets.echo_asker(error).is_some());
        let IcmpErrorKind::PacketTooBig { mtu_bytes } = error.kind else { return is_known };
        // Nobody fragments our echo replies on the way (RFC 8201, 4: a node MUST reduce its estimate); those of IPv4
        // may be fragmented there.
        let answers = error.quoted.is_echo_reply && its_protocol == protocol::ICMPV6;
        let is_known = is_known || (answers && self.network.accepts(local));
        if is_known {
            self.network.on_udp_too_big(now, error.quoted.remote.ip(), mtu_bytes);
        }
        is_known
    }

    /// Has socket `index` keep a received packet, if it has room. Where several may, they have one copy between them, made
    /// for the first that has: the slowest of them must not pin the block that the packet came in.
    pub(crate) fn push_raw(
        &mut self,
        index: u32,
        incoming: &Incoming<'_>,
        shared: Option<&mut Option<Chunk>>,
    ) -> Result<(), DropReason> {
        let payload = incoming.payload(0).ok_or(DropReason::Truncated)?;
        let Some(socket) = self.sockets.raw(index) else { return Ok(()) };
        if !socket.has_room_for(payload.len()) {
            return Err(DropReason::SocketQueueFull);
        }
        let queued = socket.queued();
        let payload = match shared {
            Some(copy) => {
                self.may_keep(queued)?;
                match copy {
                    Some(copy) => copy.clone(),
                    None => copy.insert(self.network.compact(&payload)?).clone(),
                }
            }
            None => self.keep(index, queued, payload, incoming.batch.is_sparse(incoming.index))?,
        };
        let (len, info) = (payload.len(), incoming.info);
        let (source, destination, hop_limit) = (info.source, info.destination, info.hop_limit);
        let Some(socket) = self.sockets.raw(index) else { return Ok(()) };
        if !socket.push(RawPacket { source, destination, hop_limit, payload }) {
            return Err(DropReason::SocketQueueFull);
        }
        self.unread.add(len);
        self.sockets.notify(index, Readiness::READABLE);
        Ok(())
    }
}

impl Sockets {
    /// A socket for echo requests to others, which nobody finds yet.
    pub(crate) fn insert_echo_forwarder(&mut self, prefix: Cidr) -> Result<SocketId, SocketError> {
        let socket = RawSocket::new(Bound::Forwarded(prefix), prefix.address());
        self.insert(Socket::Raw(Box::new(socket)))
    }

    /// The socket whose echo request an error is about.
    fn echo_asker(&self, error: &IcmpError) -> Option<u32> {
        let quoted = &error.quoted;
        let is_icmp = matches!(quoted.protocol, protocol::ICMP | protocol::ICMPV6);
        let is_asked = is_icmp && quoted.local.port() > 0;
        is_asked.then(|| self.ports.find(Protocol::Echo, quoted.local, quoted.remote))?
    }
}

impl NetworkLayer {
    fn check_raw_local(&self, local: IpAddr) -> Result<(), SocketError> {
        if !self.sharing.is_first() {
            return Err(BadArgument::NotFirstShard.into());
        }
        self.check_local(SocketAddr::new(local, 0))
    }
}

/// The first bytes of a packet as they leave, as many as there are: those of an ICMP message with its
/// checksum, and with the identifier of the socket that asks for an echo.
fn head_of(
    bound: Bound,
    template: &HeaderTemplate,
    payload: &Chunks,
) -> Result<[u8; FRAGMENTED_HEADER_LEN], SocketError> {
    let mut header = [0; FRAGMENTED_HEADER_LEN];
    let len = payload.copy_to(&mut header);
    let checksum_at = match template.protocol() {
        protocol::ICMP => Icmpv4Repr::CHECKSUM_OFFSET,
        protocol::ICMPV6 => Icmpv6Repr::CHECKSUM_OFFSET,
        _ => return Ok(header),
    };
    let (asks, answers) = match template.protocol() {
        protocol::ICMP => (Icmpv4Repr::ECHO_REQUEST, Icmpv4Repr::ECHO_REPLY),
        _ => (Icmpv6Repr::ECHO_REQUEST, Icmpv6Repr::ECHO_REPLY),
    };
    let is_echo = len == header.len() && [asks, answers].contains(&header[0]);
    match bound {
        Bound::Protocol(_) => {}
        Bound::Echo(identifier) if is_echo && header[0] == asks => {
            header[IDENTIFIER].copy_from_slice(&identifier.to_be_bytes());
        }
        Bound::Forwarded(_) if is_echo => header[0] = answers,
        _ => return Err(BadArgument::NoEcho.into()),
    }
    if len < ICMP_LEN_MIN {
        return Err(BadArgument::IcmpTooShort { len }.into());
    }
    let field = usize::from(checksum_at)..usize::from(checksum_at) + 2;
    header[field.clone()].fill(0);
    let mut sum = Accumulator::default();
    if template.protocol() == protocol::ICMPV6 {
        let (source, destination) = (template.source(), template.destination());
        sum.add_u16(ip::pseudo_header_sum(source, destination, protocol::ICMPV6));
        sum.add_u16(payload.len() as u16);
    }
    sum.add(&header[..len]);
    let mut rest = payload.clone();
    rest.trim_front(len);
    sum.add_sum(rest.sum().0, rest.len());
    header[field].copy_from_slice(&sum.finish().to_be_bytes());
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;
    use batch::Block;
    use bytes::Bytes;

    fn packet(len: usize) -> RawPacket {
        let payload = Chunk::whole(Block::from(Bytes::from(vec![7; len])));
        let address = IpAddr::from([10, 0, 0, 1]);
        RawPacket { source: address, destination: address, hop_limit: 64, payload }
    }

    #[test]
    fn a_socket_holds_so_many_packets_and_so_many_bytes_and_no_more() {
        let mut socket = RawSocket::new(Bound::Protocol(253), IpAddr::from([0, 0, 0, 0]));
        let held = (0..10_000).filter(|_| socket.push(packet(0))).count();
        assert!(held * PACKET_COST_BYTES <= QUEUE_BYTES_DEFAULT && held > 1_000, "{held}");
        assert!(socket.queue.capacity() > PLACES_KEPT);
        while socket.pop().is_some() {}
        assert_eq!(socket.held_bytes, 0);
        assert!(socket.queue.capacity() <= PLACES_KEPT, "those of a flood are given back");
        assert!(socket.push(packet(300_000)), "one always fits");
        assert!(!socket.push(packet(0)));
        assert_eq!(socket.pop().expect("one waits").payload.len(), 300_000);
        let held = (0..10_000).filter(|_| socket.push(packet(1_400))).count();
        assert!(held * 1_400 <= QUEUE_BYTES_DEFAULT && held > 100, "{held}");
    }

    #[test]
    fn a_table_finds_the_sockets_of_a_protocol_and_an_address() {
        let [one, other] = [1, 2].map(|last| IpAddr::from([10, 0, 0, last]));
        let all = IpAddr::from([0; 16]);
        let table = RawTable { bound: vec![(253, one, 4), (253, all, 5), (1, all, 6)] };
        let takers = |protocol, to| table.takers(protocol, to).collect::<Vec<_>>();
        assert_eq!(takers(253, one), [4, 5]);
        assert_eq!(takers(253, other), [5]);
        assert_eq!((takers(1, other), takers(254, one)), (vec![6], vec![]));
        assert!(table.wants_icmp() && !RawTable::default().wants_icmp());
    }
}
