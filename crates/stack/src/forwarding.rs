//! Addresses that are not ours and are answered for all the same, and the forwarders that take
//! connections to them.
//!
//! That an address is *ours* says who we are: what is sent to it stays here, nobody else may send from it,
//! and we tell the link that we have it. That it is *accepted* says what we take and what we may say: an
//! interface accepts its own addresses and those of the prefixes it was given ([`Shard::set_accepted`]).
//! Whoever routes such prefixes to us, as a tunnel's client does with everything, meets sockets here. Nothing
//! is passed on from one interface to another: every packet ends in this host.
//!
//! ```text
//!   SYN --> pending (its SYN) --next--> the relay dials --accept--> connection, whose SYN-ACK leaves
//!     \          \                              \
//!      \          --silence: forgotten, counted  --refuse--> reset or ICMP error
//!       --in_flight_max: dropped, counted
//! ```
//!
//! A forwarder has what no connection and no listener has: it stands where a reset would be sent. A pending
//! connection is its SYN and nothing else, because anybody can send one from any address. Nothing was
//! answered, so the peer repeats its SYN, which is absorbed; whoever starts anew from the same port takes
//! the place of its last attempt. There are neither SYN cookies nor fast open: both would answer before the
//! relay knows what to say.
//!
//! Datagrams need no decision: a socket on an unspecified address gets those to its port, and one that has a
//! prefix in the place of a port ([`Shard::udp_forward`]) all others. It stands for many sockets, so no flow may
//! fill it alone ([`batch::FlowShares`]): a bulk transfer that is read too slowly loses datagrams, and the questions to a
//! name server do not. What ICMP has to do with it is in `foreign_icmp.rs`.

use crate::connections::flow_table::FlowTable;
use crate::datagrams::udp_socket::UdpSocket;
use crate::error::{BadArgument, SocketError};
use crate::event::Readiness;
use crate::ingress::{Incoming, Origin, Unclaimed, check_addresses, is_syn_only};
use crate::network::NetworkLayer;
use crate::network::endpoint::scoped;
use crate::network::interface::Interface;
use crate::network::interfaces::InterfaceId;
use crate::outbox::{Message, NextHop, Outgoing};
use crate::shard::Shard;
use crate::sockets::marks::PacketMarks;
use crate::sockets::{Flow, Keys, Socket, SocketId, Sockets};
use core::net::{IpAddr, SocketAddr};
use counters::DropReason;
use ip::{Cidr, PacketInfo};
use std::collections::VecDeque;
use std::sync::Arc;
use tcp::HalfOpen;
use time::{Duration, Instant};
use wire::{HardwareAddress, TcpFlags, TcpHeader, protocol};

/// Prefixes that one interface accepts, and forwarders that a shard has: each packet without a
/// connection may look at all of them.
pub const ACCEPTED_PREFIXES_MAX: usize = 64;

/// Pending connections that one forwarder may have at most, whatever it asks for.
const IN_FLIGHT_MAX: usize = 65_536;

/// What a forwarder of datagrams holds: it stands for many sockets.
const FORWARDED_DATAGRAMS: udp::QueueLimits =
    udp::QueueLimits { datagrams: 16_384, bytes: 4 << 20 };

/// How long a pending connection is kept after its peer was heard of last. Linux pauses for up to 32 s
/// between its SYNs before it gives up.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Names a pending connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingId {
    flow: Flow,
    number: u64,
    /// Where its first SYN came in.
    interface: InterfaceId,
}

impl PendingId {
    /// Where its peer wants to go.
    #[must_use]
    pub fn destination(&self) -> SocketAddr {
        scoped(self.flow.local, self.interface)
    }

    /// Who asks.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        scoped(self.flow.remote, self.interface)
    }
}

/// A SYN that waits for a decision.
#[derive(Debug)]
struct Pending {
    number: u64,
    forwarder: SocketId,
    interface: InterfaceId,
    station: Option<HardwareAddress>,
    kept: HalfOpen,
}

/// A forwarder.
#[derive(Debug)]
pub(crate) struct Forwarder {
    prefix: Cidr,
    in_flight_max: usize,
    in_flight: usize,
    /// Those that nobody has taken yet, in order. Some may be forgotten already.
    arrived: VecDeque<PendingId>,
    pub(crate) pending: Readiness,
}

impl Forwarder {
    /// What it is asked about, and how many connections are not decided on.
    pub(crate) fn prefix_and_pending(&self) -> (Cidr, usize) {
        (self.prefix, self.in_flight)
    }
}

/// The forwarders of a shard and what waits for them.
#[derive(Debug)]
pub(crate) struct Forwarding {
    pending: FlowTable<Pending>,
    forwarders: Vec<(Cidr, u32)>,
    /// UDP sockets that have a prefix instead of a port.
    datagram_forwarders: Vec<(Cidr, u32)>,
    /// Raw sockets that have a prefix instead of a protocol (`foreign_icmp.rs`).
    pub(crate) echo_forwarders: Vec<(Cidr, u32)>,
    /// The number of the last pending connection.
    number: u64,
}

impl Forwarding {
    pub(crate) fn new(keys: Keys) -> Self {
        Self {
            pending: FlowTable::new(keys),
            forwarders: Vec::new(),
            datagram_forwarders: Vec::new(),
            echo_forwarders: Vec::new(),
            number: 0,
        }
    }

    pub(crate) fn pending_count(&self) -> usize {
        self.pending.len()
    }

    /// When the first of the pending connections may be forgotten.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.pending.next()
    }

    fn is_pending(&mut self, id: &PendingId) -> bool {
        self.pending.get_mut(&id.flow).is_some_and(|pending| pending.number == id.number)
    }
}

/// The one with the longest prefix that `address` is of.
pub(crate) fn longest(forwarders: &[(Cidr, u32)], address: IpAddr) -> Option<u32> {
    let fitting = forwarders.iter().filter(|(prefix, _)| prefix.contains(address));
    fitting.max_by_key(|(prefix, _)| prefix.prefix_len()).map(|(_, index)| *index)
}

impl Interface {
    /// Whether packets to `address` are taken and packets from it may be sent: it is ours, or of an
    /// accepted prefix and one that a host can have beyond its link.
    #[inline]
    pub(crate) fn accepts(&self, address: IpAddr) -> bool {
        self.is_ours(address) || (!self.accepted.is_empty() && self.accepts_foreign(address))
    }

    /// As [`Interface::accepts`] for an address that is not ours, of a packet that came in. Of other
    /// protocols nobody here speaks for others.
    #[inline]
    pub(crate) fn accepts_packet(&self, info: &PacketInfo) -> bool {
        !self.accepted.is_empty()
            && matches!(
                info.protocol,
                protocol::TCP | protocol::UDP | protocol::ICMP | protocol::ICMPV6
            )
            && self.accepts_foreign(info.destination)
    }

    /// Whether `address` is neither ours nor one that stands for many hosts, where we accept others'.
    #[inline]
    pub(crate) fn is_foreign(&self, address: IpAddr) -> bool {
        !self.accepted.is_empty() && !self.is_ours(address) && !self.accepts_for_all(address)
    }

    fn accepts_foreign(&self, address: IpAddr) -> bool {
        let is_hosts = match address {
            IpAddr::V4(address) => {
                !(address.is_multicast()
                    || address.is_loopback()
                    || address.is_broadcast()
                    || address.octets()[0] == 0)
            }
            IpAddr::V6(address) => {
                // `to_ipv4` has those that are an IPv4 address to some, mapped (::ffff:a.b.c.d, RFC 4291, 2.5.5.2) and
                // compatible (::a.b.c.d, 2.5.5.1), the unspecified address and that of loopback among them: a relay
                // that dials one of these may end in its own host.
                !(address.is_multicast()
                    || address.to_ipv4().is_some()
                    || address.is_unicast_link_local())
            }
        };
        is_hosts
            && self.accepted.iter().any(|prefix| prefix.contains(address))
            && !self.is_broadcast(address)
    }
}

impl Shard {
    /// Has interface `id` accept all addresses of these prefixes beside its own, in place of what it
    /// accepted before: TCP, UDP and ICMP errors to them are taken, and echo requests where somebody forwards them
    /// ([`Shard::echo_forward`]), and sockets may be bound to them and answer from them. They do not become addresses of the shard: the link is not told of them,
    /// and packets of its own to them leave. Broadcast, multicast, loopback and IPv6 link-local
    /// addresses are never accepted, nor IPv6 addresses that stand for IPv4 ones (`::ffff:127.0.0.1`), nor
    /// packets to the own addresses of other interfaces.
    ///
    /// # Errors
    /// [`SocketError::NoSuchInterface`]; [`SocketError::InvalidArgument`] where there are more than
    /// [`ACCEPTED_PREFIXES_MAX`] prefixes.
    pub fn set_accepted(&mut self, id: InterfaceId, prefixes: &[Cidr]) -> Result<(), SocketError> {
        let interface = self.network.interfaces.with_device(id)?;
        if prefixes.len() > ACCEPTED_PREFIXES_MAX {
            return Err(BadArgument::TooManyPrefixes(prefixes.len()).into());
        }
        interface.accepted = prefixes.to_vec();
        self.network.checked_addresses = None;
        Ok(())
    }

    /// A forwarder: it gets the connections to any address of `prefix` and any port that no listener and
    /// no other connection has, at most `in_flight_max` (at least one) of them waiting at once for a
    /// decision. Of several forwarders the one with the longest prefix gets a connection.
    ///
    /// # Errors
    /// [`SocketError::AddressNotAvailable`] where no interface has or accepts an address of the prefix,
    /// [`SocketError::AddressInUse`] where another forwarder has the same prefix,
    /// [`SocketError::TooManySockets`] where there are [`ACCEPTED_PREFIXES_MAX`] forwarders, or too
    /// many sockets.
    pub fn tcp_forward(
        &mut self,
        prefix: Cidr,
        in_flight_max: usize,
    ) -> Result<SocketId, SocketError> {
        let prefix = prefix.network();
        self.network.check_prefix(prefix, &self.forwarding.forwarders)?;
        let forwarder = Forwarder {
            prefix,
            in_flight_max: in_flight_max.clamp(1, IN_FLIGHT_MAX),
            in_flight: 0,
            arrived: VecDeque::new(),
            pending: Readiness::NONE,
        };
        let id = self.sockets.insert(Socket::Forwarder(Box::new(forwarder)))?;
        self.forwarding.forwarders.push((prefix, id.index() as u32));
        Ok(id)
    }

    /// A socket for datagrams to any address of `prefix` and any port that no other socket has
    /// ([`Shard::udp_send_with`] answers from there); several of them stand to each other as
    /// [`Shard::tcp_forward`] says. It holds up to 4 MiB and 16,384 datagrams, of each flow as much as it has
    /// still room for.
    ///
    /// # Errors
    /// As [`Shard::tcp_forward`].
    pub fn udp_forward(&mut self, prefix: Cidr) -> Result<SocketId, SocketError> {
        let prefix = prefix.network();
        self.network.check_prefix(prefix, &self.forwarding.datagram_forwarders)?;
        // Port zero is nobody's: nothing is found by it.
        let received = udp::Socket::fair(FORWARDED_DATAGRAMS);
        let mut socket = UdpSocket::new(SocketAddr::new(prefix.address(), 0), received);
        socket.prefix = Some(prefix);
        let id = self.sockets.insert(Socket::Udp(Box::new(socket)))?;
        self.forwarding.datagram_forwarders.push((prefix, id.index() as u32));
        Ok(id)
    }

    /// The socket that has what is to this address and to no port of another socket.
    pub(crate) fn datagram_forwarder_of(&self, incoming: &Incoming<'_>) -> Option<u32> {
        let forwarders = &self.forwarding.datagram_forwarders;
        let interface = &self.network.interfaces[incoming.origin.interface];
        let destination = incoming.info.destination;
        if forwarders.is_empty() || interface.is_loopback || !interface.accepts(destination) {
            // To one host alone, and not from this one.
            return None;
        }
        longest(forwarders, destination)
    }

    /// The socket that a datagram from this address and no socket's port was sent by.
    pub(crate) fn datagram_forwarder_at(&self, source: IpAddr) -> Option<u32> {
        longest(&self.forwarding.datagram_forwarders, source)
            .filter(|_| self.network.accepts(source))
    }

    /// Takes the pending connection that has waited longest.
    ///
    /// # Errors
    /// [`SocketError::WouldBlock`] where there is none; there is no such forwarder.
    pub fn tcp_next_pending(&mut self, forwarder: SocketId) -> Result<PendingId, SocketError> {
        let index = self.sockets.index(forwarder)?;
        let socket = self.sockets.forwarder(index).ok_or(SocketError::InvalidSocket)?;
        let forwarding = &mut self.forwarding;
        let next = core::iter::from_fn(|| socket.arrived.pop_front())
            .find(|id| forwarding.is_pending(id))
            .ok_or(SocketError::WouldBlock)?;
        if !socket.arrived.is_empty() {
            self.sockets.notify(index, Readiness::ACCEPTABLE);
        }
        Ok(next)
    }

    /// Makes a pending connection one: its SYN-ACK leaves, with what the SYN offered. The connection is in
    /// SYN-RECEIVED; what is written waits for the end of the handshake, and where that fails,
    /// reading and writing say so.
    ///
    /// # Errors
    /// [`SocketError::ConnectionAborted`] where its peer took it back or was silent for too long, or another
    /// socket has the connection meanwhile. What else stands in its way (too many sockets, no route)
    /// refuses it.
    pub fn tcp_accept_pending(
        &mut self,
        now: Instant,
        id: &PendingId,
    ) -> Result<SocketId, SocketError> {
        let pending = self.take_pending(id).ok_or(SocketError::ConnectionAborted)?;
        let is_taken = self.handshakes.half_open.contains(&id.flow)
            || self.detached.time_wait.contains(&id.flow);
        if is_taken || self.sockets.by_flow(&id.flow).is_some() {
            self.counters.forwards_taken_back += 1;
            return Err(SocketError::ConnectionAborted);
        }
        let outcome = self.open_pending(now, &id.flow, &pending);
        if outcome.is_err() {
            self.answer_refusal(now, &id.flow, &pending);
        }
        outcome
    }

    /// Answers a pending connection with a reset, as if nobody listened. One that is gone is not
    /// answered any more.
    pub fn tcp_refuse_pending(&mut self, now: Instant, id: &PendingId) {
        if let Some(pending) = self.take_pending(id) {
            self.answer_refusal(now, &id.flow, &pending);
        }
    }

    /// [`Shard::tcp_refuse_pending`] for all that nobody has decided on.
    pub(crate) fn refuse_all_pending(&mut self, now: Instant) {
        while let Some((flow, pending)) = self.forwarding.pending.remove_first() {
            self.sockets.leave_forwarder(&pending);
            self.answer_refusal(now, &flow, &pending);
        }
    }

    /// Takes a pending connection that is to be refused: its SYN, and where that came from.
    pub(crate) fn take_refused(&mut self, id: &PendingId) -> Option<(TcpHeader, Origin)> {
        let Pending { interface, station, kept, .. } = self.take_pending(id)?;
        self.counters.forwards_refused += 1;
        let (source_port, destination_port) = (id.flow.remote.port(), id.flow.local.port());
        let syn = TcpHeader { source_port, destination_port, ..kept.syn() };
        Some((syn, Origin { interface, station, link_multicast: false, is_home: true }))
    }

    /// Forgets a pending connection without an answer. Its next SYN is another one's first.
    pub fn tcp_ignore_pending(&mut self, id: &PendingId) {
        self.counters.forwards_ignored += u64::from(self.take_pending(id).is_some());
    }

    /// A segment of no connection, no listener's and no handshake's: for a forwarder? `None` where not.
    pub(crate) fn on_forwarded(
        &mut self,
        now: Instant,
        incoming: &Incoming<'_>,
        segment: &Unclaimed,
    ) -> Option<Result<(), DropReason>> {
        let Forwarding { forwarders, pending, .. } = &mut self.forwarding;
        let origin = &incoming.origin;
        if (forwarders.is_empty() && pending.len() == 0)
            || self.network.interfaces[origin.interface].is_loopback
        {
            // What this host sends to itself asks for nobody else.
            return None;
        }
        let Unclaimed { flow, header, .. } = segment;
        if let Some(known) = pending.get_mut(flow) {
            if header.flags.contains(TcpFlags::RST) {
                // Only who sent the SYN knows where it would go on (RFC 9293, 3.10.7.4).
                if header.sequence != known.kept.irs() + 1 {
                    return Some(Err(DropReason::OutOfWindow));
                }
                let (number, interface) = (known.number, known.interface);
                let id = PendingId { flow: *flow, number, interface };
                let was_pending = self.take_pending(&id).is_some();
                self.counters.forwards_taken_back += u64::from(was_pending);
                return Some(Err(DropReason::BadState));
            }
            if !is_syn_only(header) {
                return None;
            }
            let is_repeated = header.sequence == known.kept.irs();
            // The answer goes where this one came from: the way of the last one may be no more.
            (known.interface, known.station) = (origin.interface, origin.station);
            if is_repeated {
                self.counters.forwards_repeated += 1;
                known.kept.on_syn_again(header);
            } else {
                // Nothing was answered, so nothing is half done: the peer's last attempt counts.
                let kept = self.keep_syn(now, origin.interface, segment);
                if let Some(known) = self.forwarding.pending.get_mut(flow) {
                    known.kept = kept;
                }
            }
            self.forwarding.pending.set_deadline(flow, now + SILENCE_MAX);
            return Some(if is_repeated { Err(DropReason::Duplicate) } else { Ok(()) });
        }
        if !is_syn_only(header) {
            return None;
        }
        let forwarder = self.forwarding.forwarder_of(flow.local.ip())?;
        Some(self.await_decision(now, incoming, segment, forwarder))
    }

    /// A SYN becomes a pending connection of a forwarder, where that may have another one.
    fn await_decision(
        &mut self,
        now: Instant,
        incoming: &Incoming<'_>,
        segment: &Unclaimed,
        index: u32,
    ) -> Result<(), DropReason> {
        let id = self.sockets.id(index).ok_or(DropReason::NoConnection)?;
        let (flow, origin) = (segment.flow, &incoming.origin);
        let forwarder = self.sockets.forwarder(index).ok_or(DropReason::NoConnection)?;
        if forwarder.in_flight >= forwarder.in_flight_max {
            return Err(DropReason::ForwarderFull);
        }
        if segment.isn_min.is_some() {
            self.on_successor(&flow);
        }
        let kept = self.keep_syn(now, origin.interface, segment);
        let forwarding = &mut self.forwarding;
        let forwarder = self.sockets.forwarder(index).ok_or(DropReason::NoConnection)?;
        if forwarder.arrived.len() >= 2 * forwarder.in_flight_max {
            // Half of them at least were taken back before anybody came for them.
            forwarder.arrived.retain(|it| forwarding.is_pending(it));
        }
        forwarding.number += 1;
        let number = forwarding.number;
        forwarder.in_flight += 1;
        let (interface, station) = (origin.interface, origin.station);
        forwarder.arrived.push_back(PendingId { flow, number, interface });
        let pending = Pending { number, forwarder: id, interface, station, kept };
        forwarding.pending.insert(flow, pending, now + SILENCE_MAX);
        self.counters.forwards_pending += 1;
        self.sockets.notify(index, Readiness::ACCEPTABLE);
        Ok(())
    }

    /// What is kept of a SYN. The ISS is chosen now: that of a successor of a connection in TIME-WAIT
    /// depends on what this segment replaced.
    fn keep_syn(&self, now: Instant, interface: InterfaceId, segment: &Unclaimed) -> HalfOpen {
        let Unclaimed { flow, header, isn_min, .. } = segment;
        let parameters = self.parameters(now, interface, flow, Arc::clone(&self.config));
        let isn = isn_min.map_or(parameters.isn, |isn_min| parameters.isn.later_of(isn_min));
        HalfOpen::new(now, header, isn)
    }

    /// Forgets the pending connections whose peers have fallen silent.
    pub(crate) fn on_forwarding_timeout(&mut self, now: Instant) {
        while let Some((_, pending)) = self.forwarding.pending.pop_due(now) {
            self.counters.forwards_expired += 1;
            self.sockets.leave_forwarder(&pending);
        }
    }

    /// A forwarder is gone, and with it what nobody has taken from it: that is not answered, and answered
    /// with a reset when it comes again. What was taken can still be decided.
    pub(crate) fn close_forwarder(&mut self, index: u32, forwarder: &Forwarder) {
        self.forwarding.forwarders.retain(|(_, its)| *its != index);
        debug_assert!(!self.forwarding.forwarders.iter().any(|(it, _)| *it == forwarder.prefix));
        for id in &forwarder.arrived {
            self.tcp_ignore_pending(id);
        }
    }

    fn take_pending(&mut self, id: &PendingId) -> Option<Pending> {
        if !self.forwarding.is_pending(id) {
            return None;
        }
        let pending = self.forwarding.pending.remove(&id.flow)?;
        self.sockets.leave_forwarder(&pending);
        Some(pending)
    }

    fn open_pending(
        &mut self,
        now: Instant,
        flow: &Flow,
        pending: &Pending,
    ) -> Result<SocketId, SocketError> {
        let interface = &self.network.interfaces[pending.interface];
        if interface.is_removed || !interface.accepts(flow.local.ip()) {
            return Err(SocketError::AddressRemoved);
        }
        let remote = flow.remote.ip();
        let way_back = self.network.way_back(pending.interface, remote);
        let next_hop = way_back.map_err(|_| SocketError::NoRoute(remote))?;
        let config = Arc::clone(&self.config);
        let parameters = self.parameters(now, pending.interface, flow, config);
        let connection = pending.kept.accept(now, parameters);
        let index = self.open(connection, *flow, pending.interface, next_hop, None)?;
        if let Some(socket) = self.sockets.tcp(index) {
            // As for every connection that a peer opened.
            socket.path.keeps_interface = true;
        }
        self.counters.forwards_accepted += 1;
        self.counters.connections_accepted += 1;
        self.settle(now, index);
        self.sockets.id(index).ok_or(SocketError::InvalidSocket)
    }

    fn answer_refusal(&mut self, now: Instant, flow: &Flow, pending: &Pending) {
        self.counters.forwards_refused += 1;
        if !self.reset_limit.allow(now) {
            return self.drops.add(DropReason::ResetRateLimited);
        }
        let (local, remote) = (flow.local, flow.remote);
        let next_hop = match pending.station {
            Some(station) => NextHop::Station(station),
            None => NextHop::Neighbour(self.network.next_hop_by(pending.interface, remote.ip())),
        };
        let interface = &self.network.interfaces[pending.interface];
        let marks = PacketMarks::default();
        let network = interface.header(local.ip(), remote.ip(), protocol::TCP, marks);
        let message = Message::Segment(pending.kept.refusal(local.port(), remote.port()));
        self.network.send_answer(pending.interface, Outgoing { network, next_hop, message });
    }
}

impl Forwarding {
    /// The application has let go of a datagram forwarder.
    pub(crate) fn close_datagram_forwarder(&mut self, index: u32) {
        self.datagram_forwarders.retain(|(_, its)| *its != index);
    }

    /// The forwarder for connections to `address`.
    pub(crate) fn forwarder_of(&self, address: IpAddr) -> Option<u32> {
        longest(&self.forwarders, address)
    }
}

impl Sockets {
    fn leave_forwarder(&mut self, pending: &Pending) {
        if let Ok(index) = self.index(pending.forwarder)
            && let Some(forwarder) = self.forwarder(index)
        {
            forwarder.in_flight = forwarder.in_flight.saturating_sub(1);
        }
    }
}

impl NetworkLayer {
    /// Whether a socket may have `address`: it is ours, or an interface accepts it.
    pub(crate) fn accepts(&self, address: IpAddr) -> bool {
        self.is_own_address(address) || self.interfaces.iter().any(|it| it.accepts(address))
    }

    /// Whether a packet came to an address that is accepted and not ours.
    pub(crate) fn is_foreign(&self, incoming: &Incoming<'_>) -> bool {
        let interface = &self.interfaces[incoming.origin.interface];
        interface.is_foreign(incoming.info.destination)
    }

    /// Whether the addresses of a packet are those that were checked last. Of a train of segments the first is looked at;
    /// nothing but TCP is that uniform.
    #[inline]
    pub(crate) fn has_checked(&self, origin: &Origin, info: &PacketInfo) -> bool {
        let is_same = |(interface, source, destination): &(InterfaceId, IpAddr, IpAddr)| {
            *interface == origin.interface
                && *source == info.source
                && *destination == info.destination
        };
        info.protocol == wire::protocol::TCP
            && !origin.link_multicast
            && self.checked_addresses.as_ref().is_some_and(is_same)
    }

    /// Notes that the addresses of a packet were found right.
    pub(crate) fn note_checked(&mut self, origin: &Origin, info: &PacketInfo) {
        // Groups come and go, and no connection is with one.
        let may_last = info.protocol == wire::protocol::TCP && !info.destination.is_multicast();
        self.checked_addresses =
            may_last.then_some((origin.interface, info.source, info.destination));
    }

    /// [`check_addresses`] for the interface that a packet came in by. That it accepts the addresses of others
    /// does not open those of our other interfaces to its network (the strong model of RFC 1122, 3.3.4.2).
    #[inline]
    pub(crate) fn check_addresses(
        &self,
        origin: &Origin,
        info: &PacketInfo,
        transport: &[u8],
    ) -> Result<(), DropReason> {
        let interface = &self.interfaces[origin.interface];
        check_addresses(interface, origin, info, transport)?;
        if interface.is_foreign(info.destination) && self.is_own_address(info.destination) {
            return Err(DropReason::NotOurAddress);
        }
        Ok(())
    }

    /// Whether another forwarder may have `prefix` beside `others`.
    pub(crate) fn check_prefix(
        &self,
        prefix: Cidr,
        others: &[(Cidr, u32)],
    ) -> Result<(), SocketError> {
        let meets = |other: &Cidr| {
            other.contains(prefix.address()) || prefix.contains(other.network().address())
        };
        let has = |interface: &Interface| {
            !interface.is_loopback
                && (interface.accepted.iter().any(meets)
                    || interface.addresses.iter().any(|own| prefix.contains(own.address())))
        };
        if !self.interfaces.iter().any(has) {
            return Err(SocketError::AddressNotAvailable);
        }
        if others.iter().any(|(other, _)| *other == prefix) {
            return Err(SocketError::AddressInUse);
        }
        if others.len() >= ACCEPTED_PREFIXES_MAX {
            return Err(SocketError::TooManySockets);
        }
        Ok(())
    }
}
