//! TCP as sockets: connections, and the calls on them. Listeners are in `backlog.rs`.

use crate::error::{BadArgument, SocketError, connection_error};
use crate::event::Readiness;
use crate::network::endpoint::scoped;
use crate::network::interface::Interface;
use crate::network::interfaces::InterfaceId;
use crate::outbox::Network;
use crate::shard::Shard;
use crate::sockets::marks::PacketMarks;
use crate::sockets::ports::{BindOptions, Protocol};
use crate::sockets::taken_ports::{Purpose, Standing};
use crate::sockets::{Flow, Socket, SocketId, Sockets};
use batch::Chunk;
use core::net::{IpAddr, SocketAddr};
use core::num::NonZeroU64;
use counters::MultidataRefusal;
use ip::Trust;
use std::sync::Arc;
use tcp::{Connection, Events, Parameters, SendError, State};
use time::{Duration, Instant};
use wire::{Ipv4Options, SeqNumber};

/// The way from a connection to its peer, found once.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    pub(crate) interface: InterfaceId,
    pub(crate) next_hop: IpAddr,
    pub(crate) network: Network,
    /// Moved on when the connection took note of what the path is and takes (`network/paths.rs`).
    pub(crate) generation: u32,
    /// Why it leaves packet by packet, where the path or its own policy says so.
    pub(crate) refusal: Option<MultidataRefusal>,
    /// It came over this interface, or its own address is this one's and not that of the interface that
    /// the route names: it stays here as long as that leads to the peer.
    pub(crate) keeps_interface: bool,
    /// Each packet leaves by other ways as well (`network/multirouting.rs`).
    pub(crate) is_multi_routed: bool,
    /// [`TcpOption::SinglePackets`].
    pub(crate) single_packets: bool,
    /// [`TcpOption::DontRoute`].
    pub(crate) dont_route: bool,
    /// What the header says to routers, as it was asked for.
    pub(crate) marks: PacketMarks,
}

impl Path {
    /// Whether [`TcpOption::DontRoute`] forbids the way that leads to the peer.
    pub(crate) fn is_barred(&self) -> bool {
        self.dont_route && self.next_hop != self.network.addresses().1
    }
}

/// A connection and what the shard keeps beside it.
#[derive(Debug)]
pub(crate) struct TcpSocket {
    pub(crate) connection: Connection,
    pub(crate) path: Path,
    /// The listener that is to hear of it, until it is accepted.
    pub(crate) parent: Option<SocketId>,
    /// The listener that counts it among those whose handshake is not complete.
    pub(crate) fast_open_listener: Option<SocketId>,
    /// It stands in its interface's ready list, or among those that wait for a neighbour.
    pub(crate) queued: bool,
    /// The receive batch under way has touched it.
    pub(crate) touched: bool,
    /// What it may still send in the turn that the end of a batch cut short.
    pub(crate) allowance_bytes: u32,
    /// What the shard has counted for what was received and nobody has read.
    pub(crate) counted_bytes: u32,
    /// What the peer had acknowledged when its neighbour was last confirmed.
    pub(crate) confirmed: SeqNumber,
    /// The application has let go of it.
    pub(crate) detached: bool,
    pub(crate) pending: Readiness,
    /// The room that a writer sleeps for; without it every acknowledgment is told.
    pub(crate) awaited_room: Option<AwaitedRoom>,
}

/// What a writer sleeps for ([`Shard::tcp_await_room`]).
#[derive(Clone, Copy, Debug)]
pub(crate) struct AwaitedRoom {
    bytes: u32,
    lack: Lack,
}

/// What there was too little of when the writer went to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lack {
    /// Room in the send queue, for memory of the caller's own: of the pool nothing is wanted.
    RoomForLent,
    /// Room in the send queue. Who sleeps for it hears of it also where it is the pool by then that lacks: no
    /// acknowledgment may come behind this one, and of memory there is no event.
    Room,
    /// Memory of the block pool; the send queue has the room, and who waits looks again by himself.
    Memory,
}

/// What every connection may have queued, however little is left of the block pool to be shared. Its memory
/// is what the pool sets aside ([`BlockPool::left_to_share_bytes`](batch::BlockPool::left_to_share_bytes)):
/// peers that read nothing keep what they got while there was plenty, and each that comes behind them takes
/// half of the rest. Without it a couple of hundred of them left nothing to anybody else, for ever.
const SEND_SHARE_MIN_BYTES: usize = 4_096;

/// What a connection with so much in its queue may have copied in and queued: as much as is left to be
/// shared then. So among `n` connections that write as fast as they can each has one part of `n + 1`
/// in the end, and one part is left for who comes next, without a list of those who write. Without it
/// the first to come have it all: of ten thousand connections two hundred had full buffers, and the
/// others nothing.
fn send_share_bytes(left_bytes: usize, queued_bytes: usize) -> usize {
    // What is taken is no longer left.
    (left_bytes.saturating_add(queued_bytes) / 2).max(SEND_SHARE_MIN_BYTES)
}

impl TcpSocket {
    /// Its four-tuple. The connection has the ports and the header the addresses: a third copy would
    /// cost every idle connection 64 bytes.
    pub(crate) fn flow(&self) -> Flow {
        let (local, remote) = self.path.network.addresses();
        let (local_port, remote_port) = self.connection.ports();
        Flow {
            local: SocketAddr::new(local, local_port),
            remote: SocketAddr::new(remote, remote_port),
        }
    }

    /// Its ends as applications are told of them.
    pub(crate) fn ends(&self) -> Flow {
        let Flow { local, remote } = self.flow();
        let id = self.path.interface;
        Flow { local: scoped(local, id), remote: scoped(remote, id) }
    }

    fn set_ip_options(&mut self, options: Ipv4Options) -> Result<(), SocketError> {
        let network = &mut self.path.network;
        if !network.is_ipv4() && !options.is_empty() {
            return Err(BadArgument::Ipv4OptionsOverIpv6.into());
        }
        network.set_options(Some(Arc::new(options)));
        self.connection.set_network_options(network.options().len() as u8);
        Ok(())
    }

    /// What a writer should know of its room: what may be queued, and how much of that is free.
    fn share_and_room(&self, left_bytes: usize) -> (usize, usize) {
        let queued_bytes = self.connection.send_queue_len();
        let room_bytes = self.connection.send_room();
        let share_bytes = send_share_bytes(left_bytes, queued_bytes);
        let share_bytes = share_bytes.min(queued_bytes + room_bytes);
        (share_bytes, share_bytes.saturating_sub(queued_bytes))
    }

    /// Whether a writer should look again: there is the room that it waits for, or as much as there
    /// will be.
    fn has_awaited_room(&self, left_bytes: usize) -> bool {
        let connection = &self.connection;
        let Some(AwaitedRoom { bytes, lack }) = self.awaited_room else { return true };
        if connection.send_queue_len() == 0 || !connection.accepts_data() {
            return true;
        }
        let awaited_bytes = bytes as usize;
        let room_bytes = connection.send_room();
        let queue_bytes = connection.send_queue_len() + room_bytes;
        let has_room = room_bytes >= awaited_bytes.min(queue_bytes / 4);
        let has_share = || {
            let (share_bytes, room_bytes) = self.share_and_room(left_bytes);
            room_bytes >= awaited_bytes.min(share_bytes / 4)
        };
        match lack {
            Lack::RoomForLent => has_room,
            Lack::Room => has_room || has_share(),
            Lack::Memory => has_share(),
        }
    }

    /// One more writer goes to sleep: of several, the one that wants the least counts.
    fn await_room(&mut self, room_bytes: usize, is_lent: bool) {
        let wanted_bytes = u32::try_from(room_bytes).unwrap_or(u32::MAX);
        let before = self.awaited_room.map(|before| before.lack);
        let has_room = self.connection.send_room() >= room_bytes;
        let lack = match before {
            Some(Lack::RoomForLent) => Lack::RoomForLent,
            _ if is_lent => Lack::RoomForLent,
            None | Some(Lack::Memory) if has_room => Lack::Memory,
            _ => Lack::Room,
        };
        let bytes = self.awaited_room.map_or(wanted_bytes, |before| before.bytes.min(wanted_bytes));
        self.awaited_room = Some(AwaitedRoom { bytes, lack });
    }

    /// Whether nobody will ask for it any more.
    pub(crate) fn is_over(&self) -> bool {
        self.detached && self.connection.is_finished()
    }
}

/// What a write should know before it copies its bytes into blocks. All but the room is a guess that
/// nothing depends on but the cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendPlan {
    /// Bytes that may be copied into blocks and queued: what the send queue has room for, as far as
    /// its share of the block pool goes.
    pub room_bytes: usize,
    /// Bytes the send queue has room for, whosever memory they are in.
    pub lent_room_bytes: usize,
    /// Bytes that may be in the send queue now: its size or its share, whichever is less.
    pub share_bytes: usize,
    /// Payload of a full segment, in bytes; at least 1.
    pub segment_len_bytes: usize,
    /// Bytes queued already of the segment that the write begins in.
    pub segment_done_bytes: usize,
    /// The device completes no checksums: this stack will need the sum of each segment.
    pub needs_sums: bool,
}

/// A setting of a connection that can change while it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpOption {
    /// Send small segments at once instead of waiting for ACKs (no Nagle algorithm).
    NoDelay(bool),
    /// Acknowledge at once for a while, or no more (TCP_QUICKACK).
    QuickAcks(bool),
    /// Bytes the send queue holds.
    SendBuffer(usize),
    /// Bytes the receive queue holds.
    ReceiveBuffer(usize),
    /// Which congestion control is used from now on.
    Congestion(tcp::Algorithm),
    /// When an idle peer is probed; `None` never does.
    Keepalive(Option<tcp::Keepalive>),
    /// Hold back segments that are not full.
    Cork(bool),
    /// How long what was sent may wait for its acknowledgment; `None`: as the retries say.
    UserTimeout(Option<Duration>),
    /// How long FIN-WAIT-2 lasts once the socket is closed; zero: not at all, a reset instead (TCP_LINGER2).
    FinWait2(Duration),
    /// The rate that is not exceeded, in bytes per second (SO_MAX_PACING_RATE): see
    /// [`tcp::Config::pacing_rate_max`].
    PacingRateMax(Option<NonZeroU64>),
    /// Send packet by packet whatever the path can do: the connection's own policy.
    SinglePackets(bool),
    /// Reach the peer only as a neighbour, never by a gateway (SO_DONTROUTE). It takes the connection
    /// off the fast path.
    DontRoute(bool),
    /// Options in the header of every packet over IPv4 (IP_OPTIONS), or none. They take the connection
    /// out of batches, and make its segments shorter. Set before the SYN has left, they go with it.
    IpOptions(Ipv4Options),
}

/// A connection as it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
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
    /// Bytes that can be read before the last urgent one (RFC 6093): 0 where that is next, `None`
    /// where nothing urgent is ahead.
    pub urgent_mark: Option<usize>,
    /// Bytes the send queue has room for.
    pub send_room_bytes: usize,
    /// Bytes in the send queue, sent and not acknowledged ones included.
    pub unacknowledged_bytes: usize,
    /// Bytes in the send queue that were never sent.
    pub unsent_bytes: usize,
    /// Bytes the send queue holds at most (`tcp_xmit_hiwat`).
    pub send_buffer_bytes: usize,
    /// Whether small segments are sent at once.
    pub is_nodelay: bool,
    /// Why the connection failed, where it did.
    pub error: Option<SocketError>,
}

impl Shard {
    /// How many bytes the send queue has room for.
    ///
    /// # Errors
    /// Why nothing can be sent (any more).
    pub fn tcp_send_room(&mut self, id: SocketId) -> Result<usize, SocketError> {
        self.tcp_send_plan(id).map(|plan| plan.lent_room_bytes)
    }

    /// Lets [`Readiness::WRITABLE`] wait until the send queue has so much room, or a quarter of what it
    /// may hold, or is empty; of several who wait, the one that wants the least counts. It holds for
    /// one event. Without this every acknowledgment that makes room is one.
    ///
    /// `is_lent` says that the caller's own memory is to be queued, for which the pool need not have any.
    /// Where it has to, and the send queue has the room already, a writer looks again on its own: memory that others
    /// give back is no event here. Where the send queue has not, there is an event when it has, whatever the pool has then.
    pub fn tcp_await_room(&mut self, id: SocketId, room_bytes: usize, is_lent: bool) {
        if let Ok(socket) = self.sockets.tcp_socket(id) {
            socket.await_room(room_bytes, is_lent);
            self.ease_cork(id);
        }
    }

    /// What a write should know before it copies its bytes into blocks.
    ///
    /// # Errors
    /// As [`Shard::tcp_send_room`].
    pub fn tcp_send_plan(&mut self, id: SocketId) -> Result<SendPlan, SocketError> {
        let left_bytes = self.pool.left_to_share_bytes();
        let socket = self.sockets.tcp_socket(id)?;
        let (connection, interface) = (&socket.connection, socket.path.interface);
        let is_ipv4 = socket.path.network.is_ipv4();
        if let Some(error) = connection.error() {
            return Err(connection_error(error));
        }
        if !connection.accepts_data() {
            return Err(SocketError::BrokenPipe);
        }
        let lent_room_bytes = connection.send_room();
        let (share_bytes, room_bytes) = socket.share_and_room(left_bytes);
        let (segment_len_bytes, segment_done_bytes) = connection.segmenting();
        let interface = self.network.interfaces.get(interface);
        let completes =
            |it: &Interface| it.capabilities.completes_checksum(is_ipv4, wire::protocol::TCP);
        let needs_sums = !interface.is_some_and(completes);
        Ok(SendPlan {
            room_bytes,
            lent_room_bytes,
            share_bytes,
            segment_len_bytes,
            segment_done_bytes,
            needs_sums,
        })
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
        let socket = self.sockets.tcp_socket(id)?;
        socket.connection.append(now, chunk).map_err(send_error)?;
        self.settle_id(now, id);
        Ok(())
    }

    /// Appends `chunk` as [`Shard::tcp_append`] does, and marks the stream as urgent up to its end
    /// (RFC 6093).
    ///
    /// # Errors
    /// As [`Shard::tcp_append`].
    pub fn tcp_append_urgent(
        &mut self,
        now: Instant,
        id: SocketId,
        chunk: Chunk,
    ) -> Result<(), SocketError> {
        let socket = self.sockets.tcp_socket(id)?;
        socket.connection.append_urgent(now, chunk).map_err(send_error)?;
        self.settle_id(now, id);
        Ok(())
    }

    /// What was appended last ends a record, as MSG_EOR has it: no segment, nor what leaves as one super-frame, has bytes
    /// from before and behind its end.
    ///
    /// # Errors
    /// [`SocketError::InvalidSocket`]
    pub fn tcp_end_record(&mut self, id: SocketId) -> Result<(), SocketError> {
        self.sockets.tcp_socket(id)?.connection.end_record();
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
        let index = self.sockets.index(id)?;
        let connection = &mut self.sockets.tcp(index).ok_or(SocketError::InvalidSocket)?.connection;
        let count = self.connection_counters.lend(connection, |it| it.read(out));
        let count = count.map_err(connection_error)?;
        if count == 0 && !out.is_empty() && !connection.at_end_of_stream() {
            return Err(SocketError::WouldBlock);
        }
        self.note_rest(index);
        self.settle_id(now, id);
        Ok(count)
    }

    /// Copies received bytes out and leaves them to be read again.
    ///
    /// # Errors
    /// As [`Shard::tcp_read`].
    pub fn tcp_peek(&mut self, id: SocketId, out: &mut [u8]) -> Result<usize, SocketError> {
        let connection = &self.sockets.tcp_socket(id)?.connection;
        let count = connection.peek(out);
        if count == 0 && !out.is_empty() && !connection.at_end_of_stream() {
            return Err(connection.error().map_or(SocketError::WouldBlock, connection_error));
        }
        Ok(count)
    }

    /// Takes received bytes without a copy, at most `len_max`, which is not zero, and at most
    /// `chunks_max` pieces of blocks: hands each to `take` and says how many bytes they were; 0 at the
    /// end of the stream.
    ///
    /// # Errors
    /// As [`Shard::tcp_read`].
    pub fn tcp_read_chunks(
        &mut self,
        now: Instant,
        id: SocketId,
        (len_max, chunks_max): (usize, usize),
        mut take: impl FnMut(Chunk),
    ) -> Result<usize, SocketError> {
        let index = self.sockets.index(id)?;
        let connection = &mut self.sockets.tcp(index).ok_or(SocketError::InvalidSocket)?.connection;
        let len = self.connection_counters.lend(connection, |it| {
            let mut len = 0;
            for _ in 0..chunks_max {
                let Some(chunk) = it.read_chunk(len_max - len) else { break };
                len += chunk.len();
                take(chunk);
                // Nor does a read of several pieces go on behind an urgent mark (RFC 9293, MUST-33).
                if it.urgent_mark() == Some(0) {
                    break;
                }
            }
            len
        });
        if len == 0 && !connection.at_end_of_stream() {
            let error = connection.error();
            return Err(error.map_or(SocketError::WouldBlock, connection_error));
        }
        self.note_rest(index);
        self.settle_id(now, id);
        Ok(len)
    }

    /// Ends the sending side: what is queued is sent, then FIN.
    ///
    /// # Errors
    /// The socket is not connected.
    pub fn tcp_shutdown_write(&mut self, now: Instant, id: SocketId) -> Result<(), SocketError> {
        let socket = self.sockets.tcp_socket(id)?;
        if matches!(socket.connection.state(), State::Closed | State::Listen | State::SynSent) {
            return Err(SocketError::NotConnected);
        }
        socket.connection.shutdown_write();
        // Who waits for room is to hear that there will be none.
        socket.awaited_room = None;
        self.settle_id(now, id);
        self.sockets.notify(self.sockets.index(id)?, Readiness::WRITABLE);
        Ok(())
    }

    /// Says that nobody will read what arrives from now on: once the sending side has ended as well, it makes the
    /// connection a reset.
    ///
    /// # Errors
    /// There is no such connection.
    pub fn tcp_shutdown_read(&mut self, id: SocketId) -> Result<(), SocketError> {
        self.sockets.tcp_socket(id)?.connection.shutdown_read();
        Ok(())
    }

    /// Changes a setting of an open connection.
    ///
    /// # Errors
    /// There is no such connection; [`SocketError::InvalidArgument`] for IPv4 options over IPv6.
    pub fn tcp_set_option(
        &mut self,
        now: Instant,
        id: SocketId,
        option: TcpOption,
    ) -> Result<(), SocketError> {
        let left_bytes = self.pool.left_to_share_bytes();
        let socket = self.sockets.tcp_socket(id)?;
        let connection = &mut socket.connection;
        let room_bytes_before = connection.send_room();
        match option {
            TcpOption::SinglePackets(on) => socket.path.single_packets = on,
            TcpOption::DontRoute(on) => socket.path.dont_route = on,
            TcpOption::IpOptions(options) => socket.set_ip_options(options)?,
            TcpOption::NoDelay(on) => connection.set_nodelay(on),
            TcpOption::QuickAcks(on) => connection.set_quick_acks(on),
            TcpOption::SendBuffer(bytes) => connection.set_send_buffer(bytes),
            TcpOption::ReceiveBuffer(bytes) => connection.set_receive_buffer(bytes),
            TcpOption::Keepalive(keepalive) => connection.set_keepalive(now, keepalive),
            TcpOption::Cork(on) => connection.set_cork(on),
            TcpOption::UserTimeout(timeout) => connection.set_user_timeout(now, timeout),
            TcpOption::FinWait2(span) => connection.set_fin_wait_2(span),
            TcpOption::PacingRateMax(rate) => connection.set_pacing_rate_max(now, rate),
            TcpOption::Congestion(algorithm) => connection.set_congestion(now, algorithm),
        }
        // No acknowledgment will tell of the room that a larger buffer has.
        let has_room = socket.connection.send_room() > room_bytes_before
            && socket.has_awaited_room(left_bytes);
        if has_room {
            socket.awaited_room = None;
            self.sockets.notify(self.sockets.index(id)?, Readiness::WRITABLE);
        }
        if let TcpOption::SinglePackets(_) | TcpOption::DontRoute(_) | TcpOption::IpOptions(_) =
            option
        {
            self.refresh_multidata(self.sockets.index(id)?);
        }
        self.settle_id(now, id);
        Ok(())
    }

    /// A connection as it stands.
    ///
    /// # Errors
    /// There is no such connection.
    pub fn tcp_status(&mut self, id: SocketId) -> Result<TcpStatus, SocketError> {
        let socket = self.sockets.tcp_socket(id)?;
        let connection = &socket.connection;
        Ok(TcpStatus {
            state: connection.state(),
            local: socket.ends().local,
            remote: socket.ends().remote,
            readable_bytes: connection.readable_len(),
            at_end: connection.at_end_of_stream(),
            urgent_mark: connection.urgent_mark(),
            send_room_bytes: connection.send_room(),
            unacknowledged_bytes: connection.send_queue_len(),
            unsent_bytes: connection.unsent_len(),
            send_buffer_bytes: connection.send_buffer(),
            is_nodelay: connection.nodelay(),
            error: connection.error().map(connection_error),
        })
    }

    /// What a router says against reaching the peer of an open connection, which outlives it; told once (SO_ERROR).
    ///
    /// # Errors
    /// There is no such connection.
    pub fn tcp_take_soft_error(
        &mut self,
        id: SocketId,
    ) -> Result<Option<SocketError>, SocketError> {
        Ok(self.sockets.tcp_socket(id)?.connection.take_soft_error().map(connection_error))
    }

    /// How a connection is doing, in detail.
    ///
    /// # Errors
    /// There is no such connection.
    pub fn tcp_info(&mut self, now: Instant, id: SocketId) -> Result<tcp::TcpInfo, SocketError> {
        Ok(self.sockets.tcp_socket(id)?.connection.info(now))
    }

    /// The application lets go of a socket of any kind. A connection goes on to deliver what is
    /// queued and closes in order; where received data was never read it is reset instead
    /// (RFC 2525, 2.17), so that the peer learns that its data was lost.
    pub fn close(&mut self, now: Instant, id: SocketId) {
        let Ok(index) = self.sockets.index(id) else { return };
        if let Some(socket) = self.sockets.tcp(index) {
            if !socket.detached {
                socket.detached = true;
                self.detached.orphans += 1;
            }
            // TIME-WAIT takes no socket, and what is closed or was never opened has nobody to tell.
            let state = socket.connection.state();
            let is_busy = !matches!(state, State::Closed | State::SynSent | State::TimeWait);
            if is_busy && self.detached.orphans > self.detached.orphans_max {
                // Nobody waits for it, and too many of its kind are still busy.
                self.counters.orphans_reset += 1;
                socket.connection.abort();
            }
            socket.connection.close(now);
            return self.settle(now, index);
        }
        // Another socket may have its place next, which waits for no interface.
        for interface in self.network.interfaces.iter_mut() {
            interface.blocked.retain(|blocked| *blocked != index);
        }
        match self.sockets.remove(index) {
            Some(Socket::Listener(listener)) => self.close_listener(now, index, *listener),
            Some(Socket::Forwarder(forwarder)) => self.close_forwarder(index, &forwarder),
            Some(Socket::Udp(socket)) => self.close_udp(now, index, *socket),
            Some(Socket::Raw(socket)) => self.close_raw(index, *socket),
            _ => {}
        }
    }

    /// Ends a connection with a reset.
    pub fn tcp_abort(&mut self, now: Instant, id: SocketId) {
        let Ok(index) = self.sockets.index(id) else { return };
        let Some(socket) = self.sockets.tcp(index) else { return };
        socket.connection.abort();
        self.settle(now, index);
    }

    /// Aborts all connections, those included whose handshake is under way, that nobody has accepted or decided on, and
    /// whose application is gone. Their peers get resets as far as batches are asked for after this call.
    pub fn tcp_abort_all(&mut self, now: Instant) {
        for index in self.sockets.connections() {
            if let Some(socket) = self.sockets.tcp(index) {
                socket.connection.abort();
                self.settle(now, index);
            }
        }
        self.reset_half_open(now);
        self.refuse_all_pending(now);
    }

    /// Our end of a socket; of a raw one, port zero or the echo identifier in its place; of a UDP socket that is
    /// connected and bound to no address, where its datagrams come from.
    ///
    /// # Errors
    /// There is no such socket.
    pub fn local_address(&mut self, id: SocketId) -> Result<SocketAddr, SocketError> {
        let index = self.sockets.index(id)?;
        let tcp = self.sockets.tcp(index).map(|socket| socket.ends().local);
        let listener = |shard: &mut Self| shard.sockets.listener(index).map(|socket| socket.local);
        let udp = |shard: &mut Self| shard.udp_own_end(id).ok();
        let raw = |shard: &mut Self| shard.sockets.raw(index).map(|socket| socket.local());
        let datagrams = |shard: &mut Self| udp(shard).or_else(|| raw(shard));
        tcp.or_else(|| listener(self)).or_else(|| datagrams(self)).ok_or(SocketError::InvalidSocket)
    }

    /// Passes on what a connection reported.
    pub(crate) fn on_connection_events(&mut self, now: Instant, index: u32, events: Events) {
        let over = events.contains(Events::CLOSED);
        if over || events.contains(Events::CONNECTED) {
            self.on_fast_open_settled(now, index);
        }
        if events.contains(Events::CONNECTED) {
            self.on_fast_open_outcome(now, index);
        }
        let Some(socket) = self.sockets.tcp(index) else { return };
        if socket.parent.is_some() {
            // Nobody has it yet. One that fails while it waits stays in the accept queue: accept hands
            // it out with its error, as applications that count connections expect.
            return;
        }
        let mut readiness = Readiness::NONE;
        for (event, bit) in [
            (Events::CONNECTED, Readiness::CONNECTED | Readiness::WRITABLE),
            (Events::READABLE, Readiness::READABLE),
            (Events::PEER_CLOSED, Readiness::READABLE),
            (Events::URGENT, Readiness::URGENT),
        ] {
            if events.contains(event) {
                readiness |= bit;
            }
        }
        if events.contains(Events::WRITABLE)
            && socket.has_awaited_room(self.pool.left_to_share_bytes())
        {
            readiness |= Readiness::WRITABLE;
        }
        if over {
            readiness |= Readiness::CLOSED | Readiness::READABLE | Readiness::WRITABLE;
        }
        if readiness.intersects(Readiness::WRITABLE) {
            socket.awaited_room = None;
        }
        self.sockets.notify(index, readiness);
    }

    pub(crate) fn open(
        &mut self,
        connection: Connection,
        flow: Flow,
        interface: InterfaceId,
        next_hop: IpAddr,
        parent: Option<SocketId>,
    ) -> Result<u32, SocketError> {
        let (local, remote) = (flow.local.ip(), flow.remote.ip());
        let marks =
            parent.map_or(PacketMarks::default(), |parent| self.sockets.listener_marks(parent));
        let sender = &self.network.interfaces[interface];
        let mut network = sender.header(local, remote, wire::protocol::TCP, marks);
        network.set_may_fragment(self.network.path_mtus.needs_fragments(remote, Trust::Verified));
        self.network.flow_labels.label(&mut network, flow.local.port(), flow.remote.port());
        let socket = TcpSocket {
            confirmed: connection.first_unacknowledged(),
            connection,
            path: Path {
                interface,
                next_hop,
                network,
                generation: self.network.path_generation(),
                refusal: None,
                keeps_interface: parent.is_some(),
                is_multi_routed: false,
                single_packets: false,
                dont_route: false,
                marks,
            },
            parent,
            fast_open_listener: None,
            queued: false,
            touched: false,
            allowance_bytes: 0,
            counted_bytes: 0,
            detached: false,
            pending: Readiness::NONE,
            awaited_room: None,
        };
        let id = self.sockets.insert(Socket::Tcp(Box::new(socket)))?;
        let index = id.index() as u32;
        if !self.sockets.add_flow(flow, index) {
            self.sockets.remove(index);
            return Err(SocketError::AddressInUse);
        }
        self.ask_for_multidata(index);
        Ok(index)
    }

    pub(crate) fn parameters(
        &self,
        now: Instant,
        interface: InterfaceId,
        flow: &Flow,
        config: Arc<tcp::Config>,
    ) -> Parameters {
        let remote = flow.remote.ip();
        let (mss_receive, mss_send_max) = (
            self.network.announced_mss(interface, remote),
            self.network.path_mss(interface, remote),
        );
        let asked = config.mss_max.unwrap_or(u16::MAX);
        let interface = &self.network.interfaces[interface];
        Parameters {
            local_port: flow.local.port(),
            remote_port: flow.remote.port(),
            isn: self.sequence_numbers.initial_sequence(now, flow.local, flow.remote),
            timestamp_offset: self.sequence_numbers.timestamp_offset(flow.local, flow.remote),
            mss_receive: mss_receive.min(asked),
            mss_send_max: mss_send_max.min(asked),
            mss_default: match remote {
                IpAddr::V4(_) => tcp::MSS_DEFAULT_IPV4,
                IpAddr::V6(_) => tcp::MSS_DEFAULT_IPV6,
            },
            on_same_subnet: interface.is_local(flow.remote.ip()),
            config,
        }
    }

    /// `local` with a port: its own, or a free one where it has none.
    pub(crate) fn with_port(
        &mut self,
        protocol: Protocol,
        local: SocketAddr,
        options: BindOptions,
    ) -> Result<SocketAddr, SocketError> {
        let at = |port| {
            let mut at = local;
            at.set_port(port);
            at
        };
        if local.port() == 0 {
            let sharing = &self.network.sharing;
            let standing = |s: &Sockets, port: u16| {
                let is_free = (protocol != Protocol::Udp || sharing.is_home_of_port(port))
                    && s.ports.is_free(protocol, at(port), BindOptions::default());
                if is_free { Standing::Free } else { Standing::Taken }
            };
            let purpose = Purpose::Bind(protocol, local.ip());
            return self.sockets.pick_port(purpose, standing).map(at);
        }
        match self.sockets.ports.is_free(protocol, local, options) {
            true => Ok(local),
            false => Err(SocketError::AddressInUse),
        }
    }

    fn settle_id(&mut self, now: Instant, id: SocketId) {
        if let Ok(index) = self.sockets.index(id) {
            self.settle(now, index);
        }
    }
}

fn send_error(error: SendError) -> SocketError {
    match error {
        SendError::Full => SocketError::WouldBlock,
        SendError::Closed => SocketError::BrokenPipe,
    }
}
