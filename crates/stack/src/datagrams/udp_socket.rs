//! UDP as sockets.

use crate::datagrams::envelope::Envelope;
use crate::datagrams::reports::{ErrorReport, Reports};
use crate::error::{BadArgument, SocketError};
use crate::event::Readiness;
use crate::ingress::Incoming;
use crate::network::endpoint::{agreed, canonical, has_port, is_in_scope, of_one_family, scoped};
use crate::network::interfaces::InterfaceId;
use crate::network::multicast::MulticastOptions;
use crate::network::way::{MtuDiscovery, Way};
use crate::outbox::{Message, Network, NextHop, Outgoing};
use crate::shard::Shard;
use crate::sockets::marks::PacketMarks;
use crate::sockets::ports::{BindOptions, Protocol};
use crate::sockets::pressure::Queued;
use crate::sockets::{Socket, SocketId, Sockets};
use batch::{Chunk, Chunks};
use core::net::{IpAddr, SocketAddr};
use counters::DropReason;
use ip::{Cidr, HeaderTemplate, IcmpErrorKind};
use std::sync::Arc;
use time::Instant;
use wire::{Ipv4Options, Ipv4Repr, Ipv6Repr, UdpRepr, UdpView};

/// What is known of datagrams before anybody has queued them: as [`SendPlan`](crate::SendPlan) of a stream,
/// and as that it may be wrong a moment later, which costs time and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramPlan {
    /// How much of a datagram goes into one packet, by the interface with the least MTU.
    pub packet_len_bytes: usize,
    /// Checksums are made by this stack, not by its devices.
    pub needs_sums: bool,
}

/// A UDP socket and what the shard keeps beside it.
#[derive(Debug)]
pub(crate) struct UdpSocket {
    pub(crate) local: SocketAddr,
    /// The only peer, where the socket is connected to one.
    pub(crate) peer: Option<SocketAddr>,
    /// Where what it sends to its peer comes from, if it is bound to no address (`udp_connecting.rs`).
    pub(crate) source: Option<SocketAddr>,
    /// It gets what is for this prefix and for no other socket, at any port (`forwarding.rs`).
    pub(crate) prefix: Option<Cidr>,
    pub(crate) received: udp::Socket,
    pub(crate) multicast: MulticastOptions,
    pub(crate) mtu_discovery: MtuDiscovery,
    /// Options in the header of every datagram over IPv4.
    ip_options: Option<Arc<Ipv4Options>>,
    pub(crate) marks: PacketMarks,
    /// Only neighbours are in reach.
    dont_route: bool,
    /// An ICMP error about what was sent, for the next call on a connected socket to report.
    pub(crate) error: Option<SocketError>,
    /// What is told of errors besides, where that is asked for (`reports.rs`).
    pub(crate) reports: Option<Box<Reports>>,
    pub(crate) pending: Readiness,
}

impl UdpSocket {
    pub(crate) fn new(local: SocketAddr, received: udp::Socket) -> Self {
        Self {
            local,
            peer: None,
            source: None,
            prefix: None,
            mtu_discovery: MtuDiscovery::default(),
            ip_options: None,
            marks: PacketMarks::default(),
            dont_route: false,
            received,
            multicast: MulticastOptions::default(),
            error: None,
            reports: None,
            pending: Readiness::NONE,
        }
    }

    /// The only peer, where there is one.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// What waits to be read.
    pub(crate) fn queued(&self) -> Queued {
        Queued { packets: self.received.len(), bytes: self.received.held_bytes() }
    }

    /// Whether datagrams of `source` are for the socket.
    pub(crate) fn hears(&self, source: SocketAddr) -> bool {
        self.peer.is_none_or(|peer| peer == source)
    }

    /// Whether the socket has an address of the peer's family. One for all addresses has both.
    pub(crate) fn may_speak_to(&self, peer: SocketAddr) -> Result<(), BadArgument> {
        let local = self.local.ip();
        if local.is_unspecified() { Ok(()) } else { of_one_family(local, peer.ip()) }
    }
}

impl Sockets {
    /// Whether socket `index` is bound to `local`, where a datagram of `source` went that came in by interface `by`, and
    /// hears its sender.
    pub(crate) fn hears(
        &mut self,
        index: u32,
        by: InterfaceId,
        local: SocketAddr,
        source: SocketAddr,
    ) -> bool {
        let Some(socket) = self.udp(index) else { return false };
        let is_bound = socket.local.ip().is_unspecified() || socket.local.ip() == local.ip();
        is_bound
            && is_in_scope(socket.local, by)
            && socket.local.port() == local.port()
            && socket.hears(source)
    }

    /// The prefix of a forwarder.
    pub(crate) fn udp_prefix(&mut self, id: SocketId) -> Result<Cidr, SocketError> {
        self.udp_socket(id)?.prefix.ok_or(BadArgument::NoForwarder.into())
    }
}

impl Shard {
    /// A socket for datagrams to `local`; port zero picks one, an unspecified address stands for
    /// all.
    ///
    /// # Errors
    /// The address is not ours or in use, or there are too many sockets.
    pub fn udp_bind(&mut self, local: SocketAddr) -> Result<SocketId, SocketError> {
        self.udp_bind_with(local, BindOptions::default())
    }

    /// As [`Shard::udp_bind`], for a socket that may share its port.
    ///
    /// # Errors
    /// As [`Shard::udp_bind`].
    pub fn udp_bind_with(
        &mut self,
        local: SocketAddr,
        options: BindOptions,
    ) -> Result<SocketId, SocketError> {
        let local = canonical(local);
        // A socket bound to a group hears what is sent to it, and sends from another address.
        match local.ip().is_multicast() {
            true => drop(self.network.take_scope(local)?),
            false => self.network.check_local(local)?,
        }
        let local = self.with_port(Protocol::Udp, local, options)?;
        let socket = UdpSocket::new(local, udp::Socket::default());
        let id = self.sockets.insert(Socket::Udp(Box::new(socket)))?;
        let index = id.index() as u32;
        self.sockets.ports.add(Protocol::Udp, local, options, index).map(|()| id)
    }

    /// The application let go of a UDP socket.
    pub(crate) fn close_udp(&mut self, now: Instant, index: u32, mut socket: UdpSocket) {
        socket.received.payloads_mut().for_each(|payload| self.unread.remove(payload.len()));
        self.network.leave_all_groups(now, index);
        self.forwarding.close_datagram_forwarder(index);
        self.sockets.ports.remove(Protocol::Udp, socket.local.port(), index);
    }

    /// Queues one datagram to `to`, or to the peer the socket is connected to.
    ///
    /// # Errors
    /// [`SocketError::WouldBlock`] where the interface's queue is full,
    /// [`SocketError::MessageTooLong`] where it is longer than UDP can say (65,507 bytes of payload
    /// over IPv4 without options, 65,527 over IPv6) or does not fit the path and the socket's [`MtuDiscovery`]
    /// forbids fragments, no route, no destination.
    pub fn udp_send(
        &mut self,
        id: SocketId,
        to: Option<SocketAddr>,
        payload: impl Into<Chunks>,
    ) -> Result<(), SocketError> {
        self.udp_send_with(id, Envelope { to, ..Envelope::default() }, payload)
    }

    /// As [`Shard::udp_send`], as the envelope says.
    ///
    /// # Errors
    /// As [`Shard::udp_send`], and [`SocketError::AddressNotAvailable`] where no interface has or accepts the address
    /// it is to come from, [`SocketError::InvalidArgument`] where that is of the other family or, of a forwarder, not of
    /// its prefix.
    pub fn udp_send_with(
        &mut self,
        id: SocketId,
        envelope: Envelope,
        payload: impl Into<Chunks>,
    ) -> Result<(), SocketError> {
        self.udp_check(id)?;
        self.queue_datagram(id, envelope, payload.into())
    }

    /// Queues datagrams, each as its envelope says, in order, and says how many:
    /// all of them, or those before the first that cannot be queued. What is queued together leaves
    /// in the same batches. An ICMP error that waits to be reported is left to
    /// [`Shard::udp_check`].
    ///
    /// # Errors
    /// That of the first datagram, as [`Shard::udp_send_with`] has them.
    pub fn udp_send_many(
        &mut self,
        id: SocketId,
        datagrams: &[(Envelope, impl Into<Chunks> + Clone)],
    ) -> Result<usize, SocketError> {
        for (count, (envelope, payload)) in datagrams.iter().enumerate() {
            match self.queue_datagram(id, *envelope, payload.clone().into()) {
                Ok(()) => {}
                Err(error) if count == 0 => return Err(error),
                Err(_) => return Ok(count),
            }
        }
        Ok(datagrams.len())
    }

    /// Reports an ICMP error about what a connected socket sent, once.
    ///
    /// # Errors
    /// That error; or there is no such socket.
    pub fn udp_check(&mut self, id: SocketId) -> Result<(), SocketError> {
        self.sockets.udp_socket(id)?.error.take().map_or(Ok(()), Err)
    }

    /// What calls on a socket for datagrams, UDP or raw, would not have to wait for: something to read, an error to
    /// report, and room to send. Which way the next one goes nobody knows, so there is room unless one that was sent
    /// before found the queue of an interface full, and it has been since.
    ///
    /// # Errors
    /// There is no such socket.
    pub fn datagram_readiness(&mut self, id: SocketId) -> Result<Readiness, SocketError> {
        let index = self.sockets.index(id)?;
        let (has_received, has_error) = match self.sockets.udp(index) {
            Some(socket) => (socket.received.peek().is_some(), socket.error.is_some()),
            None => {
                let raw = self.sockets.raw(index).ok_or(SocketError::InvalidSocket)?;
                (raw.has_received(), false)
            }
        };
        let is_blocked = self.network.interfaces.iter().any(|it| it.blocked.contains(&index));
        let mut readiness = Readiness::NONE;
        if has_received || has_error {
            readiness |= Readiness::READABLE;
        }
        if has_error || !is_blocked {
            readiness |= Readiness::WRITABLE;
        }
        Ok(readiness)
    }

    fn queue_datagram(
        &mut self,
        id: SocketId,
        Envelope { from, to, traffic_class }: Envelope,
        payload: Chunks,
    ) -> Result<(), SocketError> {
        let index = self.sockets.index(id)?;
        let socket = self.sockets.udp(index).ok_or(SocketError::InvalidSocket)?;
        let from = socket.origin(from)?;
        let local = from.unwrap_or(socket.local);
        let (discovery, multicast, marks) = (socket.mtu_discovery, socket.multicast, socket.marks);
        let (ip_options, dont_route) = (socket.ip_options.clone(), socket.dont_route);
        let remote = to.or(socket.peer).ok_or(SocketError::DestinationRequired)?;
        let is_forwarder = socket.prefix.is_some();
        let keeps_source = from.is_none() && socket.keeps_source_to(remote);
        let host = &self.network;
        let ((local, of), (remote, by)) = (host.take_scope(local)?, host.take_scope(remote)?);
        // A relay has nothing to say to this host in the place of who gave no address.
        let remote = if is_forwarder { remote } else { host.or_this_host(remote, local.ip()) };
        let asked = agreed(by, of)?;
        has_port(remote)?;
        self.sockets.udp_socket(id)?.may_speak_to(remote)?;
        from.map_or(Ok(()), |from| may_send_from(from.ip(), remote.ip()))?;
        let to_group = remote.ip().is_multicast();
        let way = match keeps_source {
            true => self.way_to_peer(id, remote.ip(), asked)?,
            false => self.network.way(local.ip(), remote.ip(), asked, multicast)?,
        };
        let way = way.asked(remote, marks, dont_route)?;
        let Way { interface_id, next_hop, source, hop_limit } = way;
        let (protocol, class) = (wire::protocol::UDP, traffic_class.unwrap_or(marks.traffic_class));
        let mut template = HeaderTemplate::new(source, remote.ip(), protocol, hop_limit, class);
        if ip_options.is_some() {
            template.set_options(ip_options);
        }
        let len = UdpRepr::LEN + payload.len();
        if let Err(error) = self.network.fit_datagram(&mut template, interface_id, len, discovery) {
            let mtu_bytes = self.network.datagram_mtu(&template, interface_id, discovery);
            let report = || ErrorReport::of_length(mtu_bytes, remote);
            self.sockets.udp_socket(id)?.on_report(report, remote);
            return Err(error);
        }
        let mut network = Network::Ip(template);
        self.network.flow_labels.label(&mut network, local.port(), remote.port());
        let looped = (to_group && multicast.is_looped).then(|| payload.clone());
        let packet = Outgoing {
            network,
            next_hop: NextHop::Neighbour(next_hop),
            message: Message::Datagram {
                source_port: local.port(),
                destination_port: remote.port(),
                payload,
                may_fragment: discovery.allows_fragments(),
            },
        };
        // RFC 1112, 6.1: a time to live of zero keeps it in this host. So does the loopback interface, which would
        // bring it a second time.
        if hop_limit > 0 && !(to_group && self.network.interfaces[interface_id].is_loopback) {
            self.queue_or_block(index, interface_id, packet)?;
        }
        if let Some(payload) = looped {
            let ends = (SocketAddr::new(source, local.port()), remote);
            self.loop_datagram(interface_id, ends, &payload, (class, hop_limit));
        }
        Ok(())
    }

    /// Gives what leaves for a group to the listeners here.
    fn loop_datagram(
        &mut self,
        id: InterfaceId,
        (source, destination): (SocketAddr, SocketAddr),
        payload: &Chunks,
        (traffic_class, hop_limit): (u8, u8),
    ) {
        // A listener that is full loses it, as one on another host would.
        let delivered = self.network.in_one_block(payload).and_then(|payload| {
            let received_at = None;
            let looped = udp::Datagram {
                source,
                destination,
                payload,
                traffic_class,
                hop_limit,
                received_at,
            };
            self.loop_to_group(id, looped)
        });
        if let Err(reason) = delivered {
            self.drops.add(reason);
        }
    }

    /// Queues a packet of the socket in slot `index`, which is told of room where there is none.
    ///
    /// # Errors
    /// [`SocketError::WouldBlock`], or the interface's device has failed.
    pub(crate) fn queue_or_block(
        &mut self,
        index: u32,
        id: InterfaceId,
        packet: Outgoing,
    ) -> Result<(), SocketError> {
        // Of several ways one is enough.
        if self.network.interfaces[id].has_failed && !self.network.routes.has_duplicating() {
            return Err(SocketError::DeviceFailed);
        }
        if self.queue_on_ways(id, packet) {
            return Ok(());
        }
        let interface = &mut self.network.interfaces[id];
        if !interface.blocked.contains(&index) {
            interface.blocked.push(index);
        }
        Err(SocketError::WouldBlock)
    }

    /// What is known of the next datagrams of a socket, UDP or raw, for whoever copies them in.
    ///
    /// # Errors
    /// There is no such socket.
    pub fn datagram_plan(&mut self, id: SocketId) -> Result<DatagramPlan, SocketError> {
        let network = &self.network;
        let index = self.sockets.index(id)?;
        let (is_ipv4, header_len, needs_sums) = match self.sockets.udp(index) {
            Some(socket) => {
                (socket.own_end().is_ipv4(), UdpRepr::LEN, network.datagrams_need_sums())
            }
            None => self.sockets.raw(index).ok_or(SocketError::InvalidSocket)?.plan(),
        };
        let header_len = header_len + if is_ipv4 { Ipv4Repr::LEN } else { Ipv6Repr::LEN };
        let present = network.interfaces.iter().filter(|it| !it.is_removed);
        let mtu_bytes = present.map(|it| it.mtu_bytes(is_ipv4)).min().unwrap_or(0);
        let packet_len_bytes = mtu_bytes.saturating_sub(header_len);
        Ok(DatagramPlan { packet_len_bytes, needs_sums })
    }

    /// Changes how the socket's datagrams treat the MTU of their path.
    ///
    /// # Errors
    /// There is no such socket.
    pub fn udp_set_mtu_discovery(
        &mut self,
        id: SocketId,
        discovery: MtuDiscovery,
    ) -> Result<(), SocketError> {
        self.sockets.udp_socket(id)?.mtu_discovery = discovery;
        Ok(())
    }

    /// Gives the header of every datagram over IPv4 options, or none (IP_OPTIONS). Such datagrams leave
    /// one by one; those over IPv6 have none.
    ///
    /// # Errors
    /// There is no such socket.
    pub fn udp_set_ip_options(
        &mut self,
        id: SocketId,
        options: Ipv4Options,
    ) -> Result<(), SocketError> {
        self.sockets.udp_socket(id)?.ip_options = (!options.is_empty()).then(|| Arc::new(options));
        Ok(())
    }

    /// Reaches peers only as neighbours, never by a gateway (SO_DONTROUTE): a datagram to another is refused
    /// with [`SocketError::NoRoute`].
    ///
    /// # Errors
    /// There is no such socket.
    pub fn udp_set_dont_route(
        &mut self,
        id: SocketId,
        dont_route: bool,
    ) -> Result<(), SocketError> {
        self.sockets.udp_socket(id)?.dont_route = dont_route;
        Ok(())
    }

    /// Bounds what a socket holds unread (SO_RCVBUF): payload, and a fixed cost for each datagram. What it
    /// holds already, it keeps.
    ///
    /// # Errors
    /// There is no such socket.
    pub fn udp_set_receive_buffer(
        &mut self,
        id: SocketId,
        bytes: usize,
    ) -> Result<(), SocketError> {
        self.sockets.udp_socket(id)?.received.set_limits(udp::QueueLimits::of_bytes(bytes));
        Ok(())
    }

    /// The next received datagram and where it came from.
    ///
    /// # Errors
    /// [`SocketError::WouldBlock`] where there is none, or an ICMP error about what was sent.
    pub fn udp_receive(&mut self, id: SocketId) -> Result<(Chunk, SocketAddr), SocketError> {
        self.udp_receive_datagram(id).map(|datagram| (datagram.payload, datagram.source))
    }

    /// As [`Shard::udp_receive`], with where it was sent to.
    ///
    /// # Errors
    /// As [`Shard::udp_receive`].
    pub fn udp_receive_datagram(&mut self, id: SocketId) -> Result<udp::Datagram, SocketError> {
        let socket = self.sockets.udp_socket(id)?;
        if let Some(error) = socket.error.take() {
            return Err(error);
        }
        let datagram = socket.received.pop().ok_or(SocketError::WouldBlock)?;
        self.unread.remove(datagram.payload.len());
        Ok(datagram)
    }

    /// As [`Shard::udp_receive_datagram`]; the datagram stays to be received.
    ///
    /// # Errors
    /// As [`Shard::udp_receive`].
    pub fn udp_peek_datagram(&mut self, id: SocketId) -> Result<udp::Datagram, SocketError> {
        let socket = self.sockets.udp_socket(id)?;
        if let Some(error) = socket.error.take() {
            return Err(error);
        }
        socket.received.peek().cloned().ok_or(SocketError::WouldBlock)
    }

    /// A datagram came in. What would find its socket full costs as little as can be: it is not even summed.
    pub(crate) fn on_udp(
        &mut self,
        now: Instant,
        incoming: &Incoming<'_>,
    ) -> Result<(), DropReason> {
        let view =
            UdpView::parse(incoming.transport_bytes()).map_err(|_| DropReason::MalformedUdp)?;
        let (payload_len, source_port) = (view.payload().len(), view.source_port());
        let by = incoming.origin.interface;
        let local = scoped(SocketAddr::new(incoming.info.destination, view.destination_port()), by);
        let source = scoped(SocketAddr::new(incoming.info.source, source_port), by);
        let is_to_many =
            local.ip().is_multicast() || self.network.interfaces[by].is_broadcast(local.ip());
        let found = match is_to_many {
            true => None,
            false => self.sockets.ports.find(Protocol::Udp, local, source),
        };
        let forwarder = match found {
            Some(_) => None,
            None => self.datagram_forwarder_of(incoming),
        };
        let flow = forwarder.map_or(0, |_| self.sockets.flow_number(local, source));
        let found = found.or(forwarder);
        let may_be_lease =
            view.destination_port() == dhcp::CLIENT_PORT && incoming.info.destination.is_ipv4();
        if !may_be_lease && let Some(index) = found {
            self.has_room(index, flow, payload_len)?;
        }
        incoming.verify(DropReason::UdpChecksum, &mut self.counters.checksummed_receive_bytes)?;
        if may_be_lease && self.network.on_dhcp(now, incoming, view.payload()) {
            return Ok(());
        }
        if is_to_many {
            return self.on_udp_to_many(now, incoming, (local, source), payload_len);
        }
        let Some(index) = found else {
            self.network.send_error(now, incoming, IcmpErrorKind::PortUnreachable);
            return Err(DropReason::PortUnreachable);
        };
        let mut payload = incoming.payload(UdpRepr::LEN).ok_or(DropReason::MalformedUdp)?;
        payload.truncate(payload_len);
        let socket = self.sockets.udp(index).ok_or(DropReason::PortUnreachable)?;
        if !socket.hears(source) || !is_in_scope(socket.local, by) {
            return Err(DropReason::PortUnreachable);
        }
        let queued = socket.queued();
        let payload =
            self.keep(index, queued, payload, incoming.batch.is_sparse(incoming.index))?;
        self.push_datagram(index, flow, received(now, incoming, (local, source), payload))
    }

    /// Whether socket `index` has room for a datagram, to be asked before work is done for it; who is none has.
    pub(crate) fn has_room(
        &mut self,
        index: u32,
        flow: u32,
        payload_len: usize,
    ) -> Result<(), DropReason> {
        let Some(socket) = self.sockets.udp(index) else { return Ok(()) };
        if !socket.received.has_room_for(flow, payload_len) {
            return Err(DropReason::SocketQueueFull);
        }
        let queued = socket.queued();
        self.may_keep(queued).map(drop)
    }

    /// Has socket `index` keep a datagram until it is read.
    pub(crate) fn push_datagram(
        &mut self,
        index: u32,
        flow: u32,
        datagram: udp::Datagram,
    ) -> Result<(), DropReason> {
        let socket = self.sockets.udp(index).ok_or(DropReason::PortUnreachable)?;
        let len = datagram.payload.len();
        if !socket.received.push_of(flow, datagram) {
            return Err(DropReason::SocketQueueFull);
        }
        self.unread.add(len);
        self.sockets.notify(index, Readiness::READABLE);
        Ok(())
    }

    /// A datagram to a group or to everybody on the link: to every socket that listens.
    fn on_udp_to_many(
        &mut self,
        now: Instant,
        incoming: &Incoming<'_>,
        (local, source): (SocketAddr, SocketAddr),
        payload_len: usize,
    ) -> Result<(), DropReason> {
        let by = incoming.origin.interface;
        let groups = &self.network.interfaces[by].groups;
        let sockets = match local.ip().is_multicast() {
            true => groups.sockets(local.ip(), source.ip()),
            false => self.sockets.ports.all_of(Protocol::Udp, local),
        };
        let sockets = self.hearing(by, sockets, (local, source), payload_len)?;
        if sockets.is_empty() {
            // RFC 1122, 3.2.2: never an ICMP error about a datagram to several hosts.
            return Err(DropReason::PortUnreachable);
        }
        let mut payload = incoming.payload(UdpRepr::LEN).ok_or(DropReason::MalformedUdp)?;
        payload.truncate(payload_len);
        // One copy for all: the slowest of several readers must not pin the block it came in.
        let payload = self.network.compact(&payload)?;
        let datagram = received(now, incoming, (local, source), payload);
        self.deliver_to_all(&sockets, &datagram)
    }

    /// Tells the sockets that found the outbox of interface `id` full when there is room again,
    /// whoever made it.
    #[inline]
    pub(crate) fn wake_blocked(&mut self, id: InterfaceId) {
        if !self.network.interfaces[id].blocked.is_empty() {
            self.wake_all_blocked(id);
        }
    }

    #[inline(never)]
    fn wake_all_blocked(&mut self, id: InterfaceId) {
        let interface = &self.network.interfaces[id];
        // Who waits for a device that failed is told so.
        if !interface.outbox.has_room() && !interface.has_failed {
            return;
        }
        while let Some(index) = self.network.interfaces[id].blocked.pop() {
            self.sockets.notify(index, Readiness::WRITABLE);
        }
    }
}

/// Whether a datagram to `remote` may ask to come from `from`, as far as the two say.
fn may_send_from(from: IpAddr, remote: IpAddr) -> Result<(), BadArgument> {
    of_one_family(from, remote)?;
    if from.is_multicast() { Err(BadArgument::SourceIsGroup(from)) } else { Ok(()) }
}

/// A datagram as it came in, between these ends.
fn received(
    now: Instant,
    incoming: &Incoming<'_>,
    (destination, source): (SocketAddr, SocketAddr),
    payload: Chunk,
) -> udp::Datagram {
    let (traffic_class, hop_limit) = (incoming.info.traffic_class, incoming.info.hop_limit);
    let received_at = Some(now);
    udp::Datagram { source, destination, payload, traffic_class, hop_limit, received_at }
}
