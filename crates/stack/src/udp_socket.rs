//! UDP as sockets.

use crate::error::SocketError;
use crate::event::Readiness;
use crate::ingress::Incoming;
use crate::interface::InterfaceId;
use crate::outbox::{Message, Network, NextHop, Outgoing};
use crate::shard::Shard;
use crate::sockets::{Protocol, Socket, SocketId};
use batch::Chunk;
use core::net::SocketAddr;
use counters::DropReason;
use ip::{HeaderTemplate, IcmpErrorKind};
use time::Instant;
use wire::{UdpRepr, UdpView};

/// Datagrams in a socket's queue that keep the block they came in, which may hold little else of
/// this socket's. Those of a socket that is read more slowly are copied.
const KEPT_DATAGRAMS_MAX: usize = 64;

/// A UDP socket and what the shard keeps beside it.
#[derive(Debug)]
pub(crate) struct UdpSocket {
    pub(crate) local: SocketAddr,
    /// The only peer, where the socket is connected to one.
    peer: Option<SocketAddr>,
    received: udp::Socket,
    /// An ICMP error about what was sent, for the next call on a connected socket to report.
    error: Option<SocketError>,
    pub(crate) pending: Readiness,
}

impl UdpSocket {
    /// Whether the socket has an address of the peer's family. One for all addresses has both.
    fn speaks_to(&self, peer: SocketAddr) -> bool {
        self.local.ip().is_unspecified() || self.local.is_ipv4() == peer.is_ipv4()
    }
}

impl Shard {
    /// A socket for datagrams to `local`; port zero picks one, an unspecified address stands for
    /// all.
    ///
    /// # Errors
    /// The address is not ours or in use, or there are too many sockets.
    pub fn udp_bind(&mut self, local: SocketAddr) -> Result<SocketId, SocketError> {
        self.check_local(local)?;
        let local = self.with_port(Protocol::Udp, local)?;
        let socket = UdpSocket {
            local,
            peer: None,
            received: udp::Socket::default(),
            error: None,
            pending: Readiness::NONE,
        };
        let id = self.sockets.insert(Socket::Udp(Box::new(socket)))?;
        self.sockets.add_port(Protocol::Udp, local, id.index() as u32).map(|()| id)
    }

    /// Names the only peer: datagrams of others are dropped, and sends need no address.
    ///
    /// # Errors
    /// No route leads there, or the families differ.
    pub fn udp_connect(&mut self, id: SocketId, peer: SocketAddr) -> Result<(), SocketError> {
        self.route(peer.ip())?;
        let socket = self.udp_socket(id)?;
        if !socket.speaks_to(peer) || peer.port() == 0 {
            return Err(SocketError::InvalidArgument);
        }
        socket.peer = Some(peer);
        Ok(())
    }

    /// The peer of a connected socket.
    ///
    /// # Errors
    /// There is no such socket, or it has no peer.
    pub fn udp_peer(&mut self, id: SocketId) -> Result<SocketAddr, SocketError> {
        self.udp_socket(id)?.peer.ok_or(SocketError::NotConnected)
    }

    /// Queues one datagram to `to`, or to the peer the socket is connected to.
    ///
    /// # Errors
    /// [`SocketError::WouldBlock`] where the interface's queue is full,
    /// [`SocketError::MessageTooLong`] where it does not fit the interface's MTU (datagrams are not
    /// fragmented yet), no route, no destination.
    pub fn udp_send(
        &mut self,
        id: SocketId,
        to: Option<SocketAddr>,
        payload: Chunk,
    ) -> Result<(), SocketError> {
        let index = self.sockets.index(id)?;
        let socket = self.udp_socket(id)?;
        if let Some(error) = socket.error.take() {
            return Err(error);
        }
        let local = socket.local;
        let remote = to.or(socket.peer).ok_or(SocketError::DestinationRequired)?;
        if remote.port() == 0 || !socket.speaks_to(remote) {
            return Err(SocketError::InvalidArgument);
        }
        let (interface_id, next_hop) = self.route(remote.ip())?;
        let interface = &mut self.interfaces[interface_id.0 as usize];
        let source = match local.ip().is_unspecified() {
            true => interface.source_for(remote.ip())?,
            false => local.ip(),
        };
        let headers = UdpRepr::LEN + if remote.is_ipv4() { 20 } else { 40 };
        if payload.len() + headers > interface.capabilities.mtu_bytes {
            return Err(SocketError::MessageTooLong);
        }
        let hop_limit = crate::HOP_LIMIT_DEFAULT;
        let protocol = wire::protocol::UDP;
        let mut template = HeaderTemplate::new(source, remote.ip(), protocol, hop_limit, 0);
        // What is longer than the MTU was refused above, and an atomic datagram may have any
        // identification (RFC 6864, 4.1).
        template.set_dont_fragment(true);
        let packet = Outgoing {
            network: Network::Ip(template),
            next_hop: NextHop::Neighbour(next_hop),
            message: Message::Datagram {
                source_port: local.port(),
                destination_port: remote.port(),
                payload,
            },
        };
        if !interface.outbox.push(packet) {
            if !interface.blocked.contains(&index) {
                interface.blocked.push(index);
            }
            return Err(SocketError::WouldBlock);
        }
        Ok(())
    }

    /// The next received datagram and where it came from.
    ///
    /// # Errors
    /// [`SocketError::WouldBlock`] where there is none, or an ICMP error about what was sent.
    pub fn udp_receive(&mut self, id: SocketId) -> Result<(Chunk, SocketAddr), SocketError> {
        let socket = self.udp_socket(id)?;
        if let Some(error) = socket.error.take() {
            return Err(error);
        }
        let datagram = socket.received.pop().ok_or(SocketError::WouldBlock)?;
        Ok((datagram.payload, datagram.source))
    }

    /// A datagram came in; its checksum is right.
    pub(crate) fn on_udp(
        &mut self,
        now: Instant,
        incoming: &Incoming<'_>,
    ) -> Result<(), DropReason> {
        let view =
            UdpView::parse(incoming.transport_bytes()).map_err(|_| DropReason::MalformedUdp)?;
        let (payload_len, source_port) = (view.payload().len(), view.source_port());
        let local = SocketAddr::new(incoming.info.destination, view.destination_port());
        let source = SocketAddr::new(incoming.info.source, source_port);
        let Some(index) = self.sockets.by_port(Protocol::Udp, local) else {
            self.send_error(now, incoming, IcmpErrorKind::PortUnreachable);
            return Err(DropReason::PortUnreachable);
        };
        if self.pool.is_low() {
            return Err(DropReason::NoMemory);
        }
        let mut payload = incoming.payload(UdpRepr::LEN).ok_or(DropReason::MalformedUdp)?;
        payload.truncate(payload_len);
        let socket = self.sockets.udp(index).ok_or(DropReason::PortUnreachable)?;
        if socket.peer.is_some_and(|peer| peer != source) {
            return Err(DropReason::PortUnreachable);
        }
        let is_behind = socket.received.len() >= KEPT_DATAGRAMS_MAX;
        if is_behind || incoming.batch.is_sparse(incoming.index) {
            payload = self.compact(&payload)?;
        }
        let socket = self.sockets.udp(index).ok_or(DropReason::PortUnreachable)?;
        if !socket.received.push(udp::Datagram { source, payload }) {
            return Err(DropReason::SocketQueueFull);
        }
        self.notify(index, Readiness::READABLE);
        Ok(())
    }

    /// An ICMP error about a datagram from `local` to `remote`.
    pub(crate) fn on_udp_error(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
        error: SocketError,
    ) -> bool {
        let Some(index) = self.sockets.by_port(Protocol::Udp, local) else { return false };
        let Some(socket) = self.sockets.udp(index) else { return false };
        // RFC 1122, 4.1.3.3: errors are passed up; only a connected socket can tell whose they are.
        if socket.peer == Some(remote) {
            socket.error = Some(error);
            self.notify(index, Readiness::READABLE | Readiness::WRITABLE);
        }
        true
    }

    /// Tells the sockets that found the outbox of interface `id` full when there is room again,
    /// whoever made it.
    pub(crate) fn wake_blocked(&mut self, id: InterfaceId) {
        let interface = &mut self.interfaces[id.0 as usize];
        if !interface.outbox.has_room() {
            return;
        }
        while let Some(index) = self.interfaces[id.0 as usize].blocked.pop() {
            self.notify(index, Readiness::WRITABLE);
        }
    }

    /// A copy of `payload` in a block of its own size, so that a sparse block can go.
    pub(crate) fn compact(&self, payload: &Chunk) -> Result<Chunk, DropReason> {
        let mut block =
            self.pool.allocate_receive(payload.len()).map_err(|_| DropReason::NoMemory)?;
        block.bytes_mut()[..payload.len()].copy_from_slice(payload.bytes());
        Ok(Chunk::new(block.freeze(), 0..payload.len()))
    }

    fn udp_socket(&mut self, id: SocketId) -> Result<&mut UdpSocket, SocketError> {
        let index = self.sockets.index(id)?;
        self.sockets.udp(index).ok_or(SocketError::InvalidSocket)
    }
}
