//! TCP as sockets: listeners, connections, and the calls on them.

use crate::error::SocketError;
use crate::event::Readiness;
use crate::interface::InterfaceId;
use crate::outbox::Network;
use crate::shard::Shard;
use crate::sockets::{Flow, Protocol, Socket, SocketId};
use batch::Chunk;
use core::net::{IpAddr, SocketAddr};
use counters::DropReason;
use ip::HeaderTemplate;
use std::collections::VecDeque;
use tcp::{Connection, ConnectionError, Events, Parameters, SendError, State};
use time::Instant;
use wire::{SeqNumber, TcpHeader};

/// The way from a connection to its peer, found once.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    pub(crate) interface: InterfaceId,
    pub(crate) next_hop: IpAddr,
    pub(crate) network: Network,
}

/// A connection and what the shard keeps beside it.
#[derive(Debug)]
pub(crate) struct TcpSocket {
    pub(crate) connection: Connection,
    pub(crate) flow: Flow,
    pub(crate) path: Path,
    /// The listener that is to hear of it, until it is accepted.
    pub(crate) parent: Option<SocketId>,
    /// It stands in its interface's ready list, or among those that wait for a neighbour.
    pub(crate) queued: bool,
    /// The receive batch under way has touched it.
    pub(crate) touched: bool,
    /// Bytes the peer had acknowledged when its neighbour was last confirmed.
    pub(crate) confirmed_bytes: u64,
    /// The application has let go of it.
    pub(crate) detached: bool,
    /// The deadline it has in the queue, at or before the one it wants.
    pub(crate) earliest: Option<Instant>,
    pub(crate) pending: Readiness,
}

impl TcpSocket {
    /// Whether nobody will ask for it any more.
    pub(crate) fn is_over(&self) -> bool {
        self.detached && self.connection.is_finished()
    }
}

/// A listener: connections that are being opened, and those that wait to be accepted.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) local: SocketAddr,
    /// Connections opened and not accepted, whether their handshake is complete or not.
    backlog: usize,
    half_open: usize,
    accept_queue: VecDeque<SocketId>,
    pub(crate) pending: Readiness,
}

/// A setting of a connection that can change while it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpOption {
    /// Send small segments at once instead of waiting for ACKs (no Nagle algorithm).
    NoDelay(bool),
    /// Bytes the send queue holds.
    SendBuffer(usize),
    /// Bytes the receive queue holds.
    ReceiveBuffer(usize),
    /// When an idle peer is probed; `None` never does.
    Keepalive(Option<tcp::Keepalive>),
}

/// A connection as it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpStatus {
    /// RFC 9293 state.
    pub state: State,
    /// Our end.
    pub local: SocketAddr,
    /// The peer's end.
    pub remote: SocketAddr,
    /// Bytes that can be read now.
    pub readable_bytes: usize,
    /// The peer has sent everything and all of it was read.
    pub at_end: bool,
    /// Bytes the send queue has room for.
    pub send_room_bytes: usize,
    /// Bytes in the send queue, sent and not acknowledged ones included.
    pub unacknowledged_bytes: usize,
    /// Why the connection failed, where it did.
    pub error: Option<SocketError>,
}

impl Shard {
    /// Opens a connection to `remote`. `local` asks for an own address and port; where it is
    /// `None`, or the port is zero, they are picked.
    ///
    /// # Errors
    /// No route, no free port, the four-tuple in use, or too many sockets.
    pub fn tcp_connect(
        &mut self,
        now: Instant,
        local: Option<SocketAddr>,
        remote: SocketAddr,
    ) -> Result<SocketId, SocketError> {
        // RFC 9293, 3.9.2.3, MUST-46: neither broadcast nor multicast is a peer.
        let is_broadcast = self.interfaces.iter().any(|i| i.is_broadcast(remote.ip()));
        if remote.port() == 0 || remote.ip().is_multicast() || is_broadcast {
            return Err(SocketError::InvalidArgument);
        }
        let (interface, next_hop) = self.route(remote.ip())?;
        let address = match local.map(|local| local.ip()) {
            Some(address) if !address.is_unspecified() => address,
            _ => self.interfaces[interface.0 as usize].source_for(remote.ip())?,
        };
        if address.is_ipv4() != remote.is_ipv4() {
            return Err(SocketError::InvalidArgument);
        }
        self.check_local(SocketAddr::new(address, 0))?;
        let flow = |port| Flow { local: SocketAddr::new(address, port), remote };
        let port = match local.map(|local| local.port()) {
            Some(port) if port != 0 => port,
            _ => self.sockets.pick_port(|sockets, port| {
                sockets.by_flow(&flow(port)).is_none()
                    && sockets.is_port_free(Protocol::Tcp, SocketAddr::new(address, port))
            })?,
        };
        let flow = flow(port);
        if self.sockets.by_flow(&flow).is_some() {
            return Err(SocketError::AddressInUse);
        }
        let connection = Connection::connect(self.parameters(now, interface, &flow), now);
        let index = self.open(connection, flow, interface, next_hop, None)?;
        self.counters.connections_opened += 1;
        self.settle(now, index);
        self.socket_id(index).ok_or(SocketError::InvalidSocket)
    }

    /// Listens on `local`; port zero picks one, an unspecified address stands for all. At most
    /// `backlog` connections (at least one) are kept that were not accepted.
    ///
    /// # Errors
    /// The address is not ours or in use, or there are too many sockets.
    pub fn tcp_listen(
        &mut self,
        local: SocketAddr,
        backlog: usize,
    ) -> Result<SocketId, SocketError> {
        self.check_local(local)?;
        let local = self.with_port(Protocol::Tcp, local)?;
        let listener = Listener {
            local,
            backlog: backlog.max(1),
            half_open: 0,
            accept_queue: VecDeque::new(),
            pending: Readiness::NONE,
        };
        let id = self.sockets.insert(Socket::Listener(Box::new(listener)))?;
        self.sockets.add_port(Protocol::Tcp, local, id.index() as u32).map(|()| id)
    }

    /// Takes a connection from a listener's queue.
    ///
    /// # Errors
    /// [`SocketError::WouldBlock`] where there is none yet.
    pub fn tcp_accept(&mut self, listener: SocketId) -> Result<SocketId, SocketError> {
        let index = self.sockets.index(listener)?;
        let listener = self.sockets.listener(index).ok_or(SocketError::InvalidSocket)?;
        let id = listener.accept_queue.pop_front().ok_or(SocketError::WouldBlock)?;
        let more = !listener.accept_queue.is_empty();
        if let Ok(child) = self.sockets.index(id)
            && let Some(socket) = self.sockets.tcp(child)
        {
            socket.parent = None;
            socket.detached = false;
        }
        if more {
            self.notify(index, Readiness::ACCEPTABLE);
        }
        Ok(id)
    }

    /// How many bytes the send queue has room for.
    ///
    /// # Errors
    /// Why nothing can be sent (any more).
    pub fn tcp_send_room(&mut self, id: SocketId) -> Result<usize, SocketError> {
        let connection = &self.tcp_socket(id)?.connection;
        if let Some(error) = connection.error() {
            return Err(connection_error(error));
        }
        if !connection.state().accepts_data() {
            return Err(SocketError::BrokenPipe);
        }
        Ok(connection.send_room())
    }

    /// Appends `chunk` to the send queue: it is the connection's until the peer acknowledged it.
    ///
    /// # Errors
    /// [`SocketError::WouldBlock`] where the queue has no room for all of it, or why nothing can be
    /// sent; the chunk is dropped.
    pub fn tcp_append(
        &mut self,
        now: Instant,
        id: SocketId,
        chunk: Chunk,
    ) -> Result<(), SocketError> {
        let socket = self.tcp_socket(id)?;
        socket.connection.append(now, chunk).map_err(|error| match error {
            SendError::Full => SocketError::WouldBlock,
            SendError::Closed => SocketError::BrokenPipe,
        })?;
        self.settle_id(now, id);
        Ok(())
    }

    /// Copies received bytes out; zero only at the end of the stream or for an empty `out`.
    ///
    /// # Errors
    /// [`SocketError::WouldBlock`] where nothing has arrived, or why nothing more will.
    pub fn tcp_read(
        &mut self,
        now: Instant,
        id: SocketId,
        out: &mut [u8],
    ) -> Result<usize, SocketError> {
        let socket = self.tcp_socket(id)?;
        let count = socket.connection.read(now, out).map_err(connection_error)?;
        if count == 0 && !out.is_empty() && !socket.connection.at_end_of_stream() {
            return Err(SocketError::WouldBlock);
        }
        self.settle_id(now, id);
        Ok(count)
    }

    /// Takes received bytes without a copy, at most `len_max`; `None` at the end of the stream.
    ///
    /// # Errors
    /// As [`Shard::tcp_read`].
    pub fn tcp_read_chunk(
        &mut self,
        now: Instant,
        id: SocketId,
        len_max: usize,
    ) -> Result<Option<Chunk>, SocketError> {
        let socket = self.tcp_socket(id)?;
        let chunk = socket.connection.read_chunk(len_max);
        if chunk.is_none() && !socket.connection.at_end_of_stream() {
            let error = socket.connection.error();
            return Err(error.map_or(SocketError::WouldBlock, connection_error));
        }
        self.settle_id(now, id);
        Ok(chunk)
    }

    /// Ends the sending side: what is queued is sent, then FIN.
    ///
    /// # Errors
    /// The socket is not connected.
    pub fn tcp_shutdown_write(&mut self, now: Instant, id: SocketId) -> Result<(), SocketError> {
        let socket = self.tcp_socket(id)?;
        if matches!(socket.connection.state(), State::Closed | State::Listen | State::SynSent) {
            return Err(SocketError::NotConnected);
        }
        socket.connection.shutdown_write(now);
        self.settle_id(now, id);
        Ok(())
    }

    /// Changes a setting of an open connection.
    ///
    /// # Errors
    /// There is no such connection.
    pub fn tcp_set_option(
        &mut self,
        now: Instant,
        id: SocketId,
        option: TcpOption,
    ) -> Result<(), SocketError> {
        let connection = &mut self.tcp_socket(id)?.connection;
        match option {
            TcpOption::NoDelay(on) => connection.set_nodelay(on),
            TcpOption::SendBuffer(bytes) => connection.set_send_buffer(bytes),
            TcpOption::ReceiveBuffer(bytes) => connection.set_receive_buffer(bytes),
            TcpOption::Keepalive(keepalive) => connection.set_keepalive(now, keepalive),
        }
        self.settle_id(now, id);
        Ok(())
    }

    /// A connection as it stands.
    ///
    /// # Errors
    /// There is no such connection.
    pub fn tcp_status(&mut self, id: SocketId) -> Result<TcpStatus, SocketError> {
        let socket = self.tcp_socket(id)?;
        let connection = &socket.connection;
        Ok(TcpStatus {
            state: connection.state(),
            local: socket.flow.local,
            remote: socket.flow.remote,
            readable_bytes: connection.readable_len(),
            at_end: connection.at_end_of_stream(),
            send_room_bytes: connection.send_room(),
            unacknowledged_bytes: connection.send_queue_len(),
            error: connection.error().map(connection_error),
        })
    }

    /// The application lets go of a socket of any kind. A connection goes on to deliver what is
    /// queued and closes in order; where received data was never read it is reset instead
    /// (RFC 2525, 2.17), so that the peer learns that its data was lost.
    pub fn close(&mut self, now: Instant, id: SocketId) {
        let Ok(index) = self.sockets.index(id) else { return };
        if let Some(socket) = self.sockets.tcp(index) {
            socket.detached = true;
            socket.connection.close(now);
            return self.settle(now, index);
        }
        match self.sockets.remove(index) {
            Some(Socket::Listener(listener)) => {
                self.sockets.remove_port(Protocol::Tcp, listener.local);
                self.abort_children(now, id);
            }
            Some(Socket::Udp(socket)) => self.sockets.remove_port(Protocol::Udp, socket.local),
            _ => {}
        }
    }

    /// Ends a connection with a reset.
    pub fn tcp_abort(&mut self, now: Instant, id: SocketId) {
        let Ok(index) = self.sockets.index(id) else { return };
        let Some(socket) = self.sockets.tcp(index) else { return };
        socket.connection.abort(now);
        self.settle(now, index);
    }

    /// Our end of a socket.
    ///
    /// # Errors
    /// There is no such socket.
    pub fn local_address(&mut self, id: SocketId) -> Result<SocketAddr, SocketError> {
        let index = self.sockets.index(id)?;
        let tcp = self.sockets.tcp(index).map(|socket| socket.flow.local);
        let listener = |shard: &mut Self| shard.sockets.listener(index).map(|socket| socket.local);
        let udp = |shard: &mut Self| shard.sockets.udp(index).map(|socket| socket.local);
        tcp.or_else(|| listener(self)).or_else(|| udp(self)).ok_or(SocketError::InvalidSocket)
    }

    /// A SYN for a listener: a new connection in SYN-RECEIVED, where the backlog has room. `isn_min`
    /// is set where it follows a connection in TIME-WAIT.
    pub(crate) fn open_passive(
        &mut self,
        now: Instant,
        interface: InterfaceId,
        listener: u32,
        flow: &Flow,
        syn: &TcpHeader,
        isn_min: Option<SeqNumber>,
    ) -> Result<(), DropReason> {
        let parent = self.sockets.id(listener).ok_or(DropReason::NoConnection)?;
        let has_room = self.sockets.has_room();
        let listening = self.sockets.listener(listener).ok_or(DropReason::NoConnection)?;
        if listening.half_open + listening.accept_queue.len() >= listening.backlog || !has_room {
            return Err(DropReason::BacklogFull);
        }
        let (out, next_hop) = self.route(flow.remote.ip()).map_err(|_| DropReason::NoRoute)?;
        let next_hop = match out == interface {
            true => next_hop,
            false => self.next_hop_by(interface, flow.remote.ip()),
        };
        let mut parameters = self.parameters(now, interface, flow);
        if let Some(isn_min) = isn_min {
            parameters.isn = parameters.isn.later_of(isn_min);
        }
        let connection = Connection::accept(parameters, now, syn);
        let index = self
            .open(connection, *flow, interface, next_hop, Some(parent))
            .map_err(|_| DropReason::BacklogFull)?;
        if let Some(listening) = self.sockets.listener(listener) {
            listening.half_open += 1;
        }
        self.counters.connections_accepted += 1;
        self.settle(now, index);
        Ok(())
    }

    /// Passes on what a connection reported.
    pub(crate) fn on_connection_events(&mut self, index: u32, events: Events) {
        let over = events.contains(Events::CLOSED);
        let Some(socket) = self.sockets.tcp(index) else { return };
        if let Some(parent) = socket.parent {
            let established = events.contains(Events::CONNECTED);
            return self.on_child_events(index, parent, established, over);
        }
        let mut readiness = Readiness::NONE;
        for (event, bit) in [
            (Events::CONNECTED, Readiness::CONNECTED | Readiness::WRITABLE),
            (Events::READABLE, Readiness::READABLE),
            (Events::PEER_CLOSED, Readiness::READABLE),
            (Events::WRITABLE, Readiness::WRITABLE),
        ] {
            if events.contains(event) {
                readiness |= bit;
            }
        }
        if over {
            readiness |= Readiness::CLOSED | Readiness::READABLE | Readiness::WRITABLE;
        }
        self.notify(index, readiness);
    }

    /// A connection that was not accepted yet: it enters the accept queue, or leaves the backlog.
    fn on_child_events(&mut self, index: u32, parent: SocketId, established: bool, over: bool) {
        let Some(id) = self.sockets.id(index) else { return };
        let Ok(parent_index) = self.sockets.index(parent) else { return };
        let Some(listener) = self.sockets.listener(parent_index) else { return };
        let waits = listener.accept_queue.contains(&id);
        if established && !waits {
            listener.half_open = listener.half_open.saturating_sub(1);
            listener.accept_queue.push_back(id);
            self.notify(parent_index, Readiness::ACCEPTABLE);
        } else if over && !waits {
            listener.half_open = listener.half_open.saturating_sub(1);
        }
        // A connection that failed in the queue stays there: accept hands it out with its error,
        // as the application that counts connections expects.
        if let Some(socket) = self.sockets.tcp(index)
            && over
            && !established
            && !waits
        {
            socket.detached = true;
        }
    }

    fn abort_children(&mut self, now: Instant, parent: SocketId) {
        let is_child = |socket: &Socket| match socket {
            Socket::Tcp(socket) => socket.parent == Some(parent),
            _ => false,
        };
        let children: Vec<u32> =
            self.sockets.iter().filter(|(_, s)| is_child(s)).map(|(index, _)| index).collect();
        for index in children {
            if let Some(socket) = self.sockets.tcp(index) {
                socket.parent = None;
                socket.detached = true;
                socket.connection.abort(now);
            }
            self.settle(now, index);
        }
    }

    fn open(
        &mut self,
        connection: Connection,
        flow: Flow,
        interface: InterfaceId,
        next_hop: IpAddr,
        parent: Option<SocketId>,
    ) -> Result<u32, SocketError> {
        let template = HeaderTemplate::new(
            flow.local.ip(),
            flow.remote.ip(),
            wire::protocol::TCP,
            crate::HOP_LIMIT_DEFAULT,
            0,
        );
        let socket = TcpSocket {
            connection,
            flow,
            path: Path { interface, next_hop, network: Network::Ip(template) },
            parent,
            queued: false,
            touched: false,
            confirmed_bytes: 0,
            detached: false,
            earliest: None,
            pending: Readiness::NONE,
        };
        let id = self.sockets.insert(Socket::Tcp(Box::new(socket)))?;
        let index = id.index() as u32;
        if !self.sockets.add_flow(flow, index) {
            self.sockets.remove(index);
            return Err(SocketError::AddressInUse);
        }
        Ok(index)
    }

    fn parameters(&self, now: Instant, interface: InterfaceId, flow: &Flow) -> Parameters {
        let interface = &self.interfaces[interface.0 as usize];
        let headers = if flow.local.is_ipv4() { 40 } else { 60 };
        let mss = interface.capabilities.mtu_bytes.saturating_sub(headers).min(65_495) as u16;
        Parameters {
            local_port: flow.local.port(),
            remote_port: flow.remote.port(),
            isn: self.sequence_numbers.initial_sequence(now, flow.local, flow.remote),
            timestamp_offset: self.sequence_numbers.timestamp_offset(flow.local, flow.remote),
            mss_receive: mss,
            mss_send_max: mss,
            on_same_subnet: interface.is_local(flow.remote.ip()),
            config: self.config.clone(),
        }
    }

    /// `local` with a port: its own, or a free one where it has none.
    pub(crate) fn with_port(
        &mut self,
        protocol: Protocol,
        local: SocketAddr,
    ) -> Result<SocketAddr, SocketError> {
        let at = |port| SocketAddr::new(local.ip(), port);
        if local.port() == 0 {
            let port = self.sockets.pick_port(|s, port| s.is_port_free(protocol, at(port)))?;
            return Ok(at(port));
        }
        match self.sockets.is_port_free(protocol, local) {
            true => Ok(local),
            false => Err(SocketError::AddressInUse),
        }
    }

    fn tcp_socket(&mut self, id: SocketId) -> Result<&mut TcpSocket, SocketError> {
        let index = self.sockets.index(id)?;
        self.sockets.tcp(index).ok_or(SocketError::InvalidSocket)
    }

    fn settle_id(&mut self, now: Instant, id: SocketId) {
        if let Ok(index) = self.sockets.index(id) {
            self.settle(now, index);
        }
    }
}

fn connection_error(error: ConnectionError) -> SocketError {
    match error {
        ConnectionError::Refused => SocketError::ConnectionRefused,
        ConnectionError::Reset => SocketError::ConnectionReset,
        ConnectionError::TimedOut => SocketError::TimedOut,
        ConnectionError::HostUnreachable => SocketError::HostUnreachable,
        ConnectionError::NetworkUnreachable => SocketError::NoRoute,
        ConnectionError::Aborted => SocketError::ConnectionAborted,
    }
}
