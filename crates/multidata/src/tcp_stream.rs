//! A TCP connection.
//!
//! A write takes three steps: ask for room under the lock; allocate all blocks and copy outside it;
//! append and run under the lock again. Writers of one stream take turns, so the room asked for is
//! still there, and the lock is held for a few hundred nanoseconds whatever the write's length.

mod connecting;
mod ip_options;
mod path_options;
mod polling;
mod write_turn;

pub use self::connecting::{ConnectOptions, Connecting};
use self::write_turn::{WriteTurn, WriteTurns};
use crate::RuntimeCounters;
use crate::copy_in::Copied;
use crate::error::socket_error;
use crate::runtime::outside::lend;
use crate::runtime::squeue::{Core, Squeue};
use crate::runtime::turn::{After, Call};
use crate::runtime::waiting::Interest;
use crate::socket::{Socket, check_buffer, check_timeout};
use batch::{Block, BlockMut, Chunk};
use bytes::Bytes;
use core::cell::Cell;
use core::iter;
use core::num::NonZeroU64;
use core::task::Waker;
use stack::{SendPlan, SocketError, SocketId, TcpOption};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use time::{Duration, Instant};

/// How long a write waits for an exhausted block pool that brings no writer on.
const POOL_WAIT: Duration = Duration::from_secs(1);

/// How often a thread looks by itself that waits for room which its send queue has and the pool has not: what others
/// give back to the pool is room for this connection, too, and no event of its own. Who waits for the send queue does not
/// look: an acknowledgment is an event. When all did, a hundred writers whose peers read nothing cost 10,000 turns a
/// second, and a sixth of a CPU.
const ROOM_LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Longest piece of the caller's memory that is queued as one: offsets in a block are 32 bits.
const LENT_LEN_BYTES_MAX: usize = 1 << 30;

/// A TCP connection; shaped like [`std::net::TcpStream`].
///
/// Handles made with [`TcpStream::try_clone`] share the connection, its timeouts and its modes.
/// Dropping the last one closes the connection: what was written is still delivered, by the stack,
/// in the background, unless more connections than [`StackConfig::orphans_max`](field@crate::StackConfig::orphans_max)
/// are left so at once, of which those beyond are reset. Where received data was never read, the peer gets a reset instead of a FIN
/// (RFC 2525, 2.17), so that it learns that its data was lost.
#[derive(Debug)]
pub struct TcpStream {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    socket: Socket,
    local: SocketAddr,
    peer: SocketAddr,
    writing: WriteTurns,
    is_read_shut: AtomicBool,
}

impl TcpStream {
    pub(crate) fn new(socket: Socket, local: SocketAddr, peer: SocketAddr) -> Self {
        let shared = Shared {
            socket,
            local,
            peer,
            writing: WriteTurns::default(),
            is_read_shut: AtomicBool::new(false),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Our end of the connection.
    ///
    /// # Errors
    /// None; the signature is that of `std::net`.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.shared.local)
    }

    /// The peer's end of the connection.
    ///
    /// # Errors
    /// None; the signature is that of `std::net`.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.shared.peer)
    }

    /// Another handle of the same connection.
    ///
    /// # Errors
    /// None; the signature is that of `std::net`.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { shared: Arc::clone(&self.shared) })
    }

    /// Ends one or both directions. After `Write` the peer reads the end of the stream behind what
    /// was written; after `Read` reads return what has arrived and then zero. Where both have ended, a peer that
    /// sends on is answered with a reset, and reads say `ConnectionAborted` in place of zero: something was lost.
    ///
    /// # Errors
    /// The connection does not stand (any more).
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        if how != Shutdown::Write {
            self.shared.is_read_shut.store(true, Ordering::Release);
            self.squeue_once(|core, _, id| {
                core.wake_socket(id);
                core.shard.tcp_shutdown_read(id)
            })
            .map_err(socket_error)?;
        }
        if how != Shutdown::Read {
            self.squeue_once(|core, now, id| core.shard.tcp_shutdown_write(now, id))
                .map_err(socket_error)?;
        }
        Ok(())
    }

    /// How long a read waits; `None`, the default, is without end. An expired timeout is an error
    /// of kind `WouldBlock`.
    ///
    /// # Errors
    /// `InvalidInput` for zero.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.shared.socket.set_timeout(Interest::Readable, timeout)
    }

    /// How long a write waits; as for reads. Where another handle writes, it may wait as long for its turn.
    ///
    /// # Errors
    /// `InvalidInput` for zero.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.shared.socket.set_timeout(Interest::Writable, timeout)
    }

    /// How long a read waits.
    ///
    /// # Errors
    /// None; the signature is that of `std::net`.
    pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.shared.socket.timeout(Interest::Readable))
    }

    /// How long a write waits.
    ///
    /// # Errors
    /// None; the signature is that of `std::net`.
    pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.shared.socket.timeout(Interest::Writable))
    }

    /// Whether calls wait (the default) or answer `WouldBlock`.
    ///
    /// # Errors
    /// None; the signature is that of `std::net`.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.shared.socket.set_nonblocking(nonblocking);
        Ok(())
    }

    /// Whether small segments are sent at once (`true`) or wait while data is unacknowledged
    /// (Nagle's algorithm).
    ///
    /// # Errors
    /// None; the signature is that of `std::net`.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.set_option(TcpOption::NoDelay(nodelay))
    }

    /// Whether small segments are sent at once.
    ///
    /// # Errors
    /// None while a handle exists.
    pub fn nodelay(&self) -> io::Result<bool> {
        Ok(self.status()?.is_nodelay)
    }

    /// Whether segments that are not full wait until they are, or until this is taken back (`true`, TCP_CORK, which
    /// `std::net` does not have): for who writes a message in several pieces. Unlike Linux's it waits without
    /// end, but where nothing is under way for a write that waits for room.
    ///
    /// # Errors
    /// None; the signature is that of `std::net`.
    pub fn set_cork(&self, cork: bool) -> io::Result<()> {
        self.set_option(TcpOption::Cork(cork))
    }

    /// How many bytes may be written and not yet acknowledged (`tcp_xmit_hiwat`).
    ///
    /// # Errors
    /// `InvalidInput` for zero.
    pub fn set_send_buffer_size(&self, bytes: usize) -> io::Result<()> {
        check_buffer(bytes)?;
        self.set_option(TcpOption::SendBuffer(bytes))
    }

    /// How many bytes may be received and not yet read, and so the largest window offered
    /// (`tcp_recv_hiwat`). The window scale is agreed on when the connection opens: larger sizes
    /// than it can express have no effect; set them in [`tcp::Config`] instead.
    ///
    /// # Errors
    /// `InvalidInput` for zero.
    pub fn set_receive_buffer_size(&self, bytes: usize) -> io::Result<()> {
        check_buffer(bytes)?;
        self.set_option(TcpOption::ReceiveBuffer(bytes))
    }

    /// Probes a silent peer after `idle`; `None` never does. The time between probes and their
    /// number are those of [`tcp::Keepalive::default`]; [`TcpStream::set_keepalive_with`] sets them.
    ///
    /// # Errors
    /// `InvalidInput` for zero.
    pub fn set_keepalive(&self, idle: Option<Duration>) -> io::Result<()> {
        let keepalive = idle.map(|idle| tcp::Keepalive { idle, ..tcp::Keepalive::default() });
        self.set_keepalive_with(keepalive)
    }

    /// Probes a silent peer as `keepalive` says (TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT); `None`
    /// never does.
    ///
    /// # Errors
    /// `InvalidInput` where a time or the number of probes is zero.
    pub fn set_keepalive_with(&self, keepalive: Option<tcp::Keepalive>) -> io::Result<()> {
        if let Some(Err(wrong)) = keepalive.as_ref().map(tcp::Keepalive::check) {
            return Err(io::Error::new(ErrorKind::InvalidInput, wrong));
        }
        self.set_option(TcpOption::Keepalive(keepalive))
    }

    /// Uses this congestion control from now on (TCP_CONGESTION). What is sent then begins with the
    /// initial window, as on a new connection.
    ///
    /// # Errors
    /// None while the connection stands.
    pub fn set_congestion(&self, algorithm: tcp::Algorithm) -> io::Result<()> {
        self.set_option(TcpOption::Congestion(algorithm))
    }

    /// How long what was sent may wait for its acknowledgment before the connection has failed
    /// (RFC 9293, 3.8.3; TCP_USER_TIMEOUT), and data for the peer's closed window to open; for so long a silent peer is
    /// probed, too, whatever [`tcp::Keepalive::count`] says. `None`: as agreed on with the peer, or else about a quarter
    /// of an hour, as the retries of [`tcp::Config`] say.
    ///
    /// # Errors
    /// `InvalidInput` for zero.
    pub fn set_user_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        check_timeout(timeout)?;
        self.set_option(TcpOption::UserTimeout(timeout))
    }

    /// How long the connection waits for the peer's end once its last handle was dropped and our own end is
    /// acknowledged (FIN-WAIT-2; TCP_LINGER2), in the place of [`tcp::Config::fin_wait_2`]; with zero it is
    /// reset in the place of that.
    ///
    /// # Errors
    /// None; the signature is that of `std::net`.
    pub fn set_fin_wait_2(&self, timeout: Duration) -> io::Result<()> {
        self.set_option(TcpOption::FinWait2(timeout))
    }

    /// Sends no faster than this, in bytes per second, evenly spread; `None`, the default, as fast as the path takes it.
    /// It does not depend on [`tcp::Config::pacing`].
    ///
    /// # Errors
    /// None; the signature is that of `std::net`.
    pub fn set_pacing_rate_max(&self, rate: Option<NonZeroU64>) -> io::Result<()> {
        self.set_option(TcpOption::PacingRateMax(rate))
    }

    /// What dropping the last handle does: with `None`, the default, the stack delivers in the
    /// background what was written; with zero the connection is reset and what was not delivered is
    /// lost; with a time the drop waits until the peer has acknowledged everything, but no longer.
    ///
    /// # Errors
    /// None; the signature is that of `std::net`.
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        self.shared.socket.set_linger(linger);
        Ok(())
    }

    /// What dropping the last handle does.
    ///
    /// # Errors
    /// None; the signature is that of `std::net`.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        Ok(self.shared.socket.linger())
    }

    /// Why the connection failed, if it did. Unlike the system's, this error stays.
    ///
    /// # Errors
    /// None; the signature is that of `std::net`.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        let error = self.squeue_look(|shard, id| shard.tcp_status(id).map(|status| status.error));
        Ok(error.map_err(socket_error)?.map(socket_error))
    }

    /// Which of the stack's squeues the connection belongs to, for life: the one to keep a thread near
    /// that works on it ([`StackBuilder::pin`](crate::StackBuilder::pin)).
    #[must_use]
    pub fn squeue(&self) -> usize {
        self.shared.socket.home()
    }

    /// The CPU that the threads of that squeue are kept on, where they are
    /// ([`StackBuilder::pin`](crate::StackBuilder::pin)): a thread that works on the connection finds its
    /// data in that core's caches.
    #[must_use]
    pub fn cpu(&self) -> Option<usize> {
        let socket = &self.shared.socket;
        socket.stack.squeue_cpu(socket.home())
    }

    /// The connection as it stands: RFC 9293 state, bytes readable, room to send.
    ///
    /// # Errors
    /// None while a handle exists.
    pub fn status(&self) -> io::Result<stack::TcpStatus> {
        self.squeue_look(stack::Shard::tcp_status).map_err(socket_error)
    }

    /// How the connection is doing: round-trip times, windows, what was lost and sent again, and what
    /// the sender had to wait for; much as Linux's `TCP_INFO`.
    ///
    /// # Errors
    /// None while a handle exists.
    pub fn info(&self) -> io::Result<tcp::TcpInfo> {
        let squeue = self.shared.socket.squeue();
        self.squeue_look(|shard, id| shard.tcp_info(squeue.now(), id)).map_err(socket_error)
    }

    /// Ends the connection with a reset: what was not delivered is lost on both sides.
    pub fn abort(&self) {
        self.squeue_once(|core, now, id| core.shard.tcp_abort(now, id));
    }

    /// Queues the caller's own memory, without a copy, and returns when all of it is queued. It is
    /// held until the peer has acknowledged it, and its owner ([`Bytes::from_owner`]) may use the stack when it
    /// is dropped then. A socket that does not block queues all of it or nothing.
    ///
    /// # Errors
    /// As for writes; what was queued before the error is sent. `InvalidInput` where the socket does not block
    /// and the send buffer is smaller ([`stack::TcpStatus::send_buffer_bytes`]).
    pub fn write_bytes(&self, bytes: Bytes) -> io::Result<()> {
        let mut bytes = lend(bytes);
        let mut copied = self.take_write_turn()?;
        let socket = &self.shared.socket;
        if !socket.call(Interest::Writable, After::Leave).blocks {
            self.must_fit(bytes.len(), "the socket does not block, so all of it has to fit")?;
        }
        while !bytes.is_empty() {
            let len = bytes.len();
            let plan = self.wait_for_room(true, true, |plan, is_blocking| match is_blocking {
                true => len.min(self.low_water_bytes(plan)),
                false => len,
            })?;
            let piece =
                bytes.split_to(plan.lent_room_bytes.min(bytes.len()).min(LENT_LEN_BYTES_MAX));
            copied.chunks.push_back(Chunk::whole(Block::from(piece)));
            // For all of it there was room. Where the send buffer was made smaller meanwhile, a socket that
            // does not block waits, too, rather than to queue a part.
            let call = Call { blocks: true, ..socket.call(Interest::Writable, After::Send) };
            while !copied.chunks.is_empty() {
                self.append(&call, &mut copied.chunks, |counters, len| {
                    counters.bytes_lent += len as u64
                })?;
            }
        }
        Ok(())
    }

    /// Queues all of `bytes` and marks the stream as urgent up to their end (RFC 6093, which advises
    /// against it in new applications). They stay in line; the peer is told where they end. Where
    /// urgent data from the peer ends, [`TcpStream::status`] says: reads stop before its last byte.
    ///
    /// # Errors
    /// As for writes; `InvalidInput` where the send buffer is smaller.
    pub fn write_urgent(&self, bytes: &[u8]) -> io::Result<()> {
        let _turn = self.take_write_turn()?;
        let socket = &self.shared.socket;
        self.must_fit(bytes.len(), "urgent data is queued in one piece")?;
        let chunk = Chunk::whole(Block::from(Bytes::copy_from_slice(bytes)));
        let call = socket.call(Interest::Writable, After::Send);
        socket.squeue().operate(&call, |core, now| {
            match core.shard.tcp_send_room(socket.id)? < bytes.len() {
                true => {
                    core.shard.tcp_await_room(socket.id, bytes.len(), true);
                    Err(SocketError::WouldBlock)
                }
                false => core.shard.tcp_append_urgent(now, socket.id, chunk.clone()),
            }
        })
    }

    /// # Errors
    /// So much will never fit into the send buffer at once, and `why` it would have to.
    fn must_fit(&self, len_bytes: usize, why: &str) -> io::Result<()> {
        let buffer_bytes = self.status()?.send_buffer_bytes;
        if len_bytes <= buffer_bytes {
            return Ok(());
        }
        let message = format!(
            "{len_bytes} bytes do not fit the send buffer of {buffer_bytes}, and {why}: write less at a time, or enlarge \
             the buffer (TcpStream::set_send_buffer_size)"
        );
        Err(io::Error::new(ErrorKind::InvalidInput, message))
    }

    /// Waits for data and copies it out, leaving it to be read again; zero at the end of the stream, or where
    /// `out` is empty.
    ///
    /// # Errors
    /// As for reads.
    pub fn peek(&self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        let id = self.shared.socket.id;
        Ok(self.fetch(After::Leave, 0, |core, _| core.shard.tcp_peek(id, out))?.unwrap_or(0))
    }

    /// Takes received bytes, at most `len_max` and at least one, in the blocks they were received
    /// in; empty at the end of the stream. The blocks go back to the pool when the bytes are
    /// dropped, so do not keep them for long: they count against the pool's limit.
    ///
    /// # Errors
    /// As for reads.
    pub fn read_bytes(&self, len_max: usize) -> io::Result<Bytes> {
        if len_max == 0 {
            return Ok(Bytes::new());
        }
        let id = self.shared.socket.id;
        let mut bytes = Bytes::new();
        self.fetch(After::Send, len_max, |core, now| {
            let take = |chunk| bytes = Received::piece(chunk, &mut Bytes::new());
            core.shard.tcp_read_chunks(now, id, (len_max, 1), take)
        })?;
        Ok(bytes)
    }

    /// As [`TcpStream::read_bytes`], for as much as waits: appends the pieces of blocks to `pieces`
    /// and says how many bytes they are. One call takes what many segments brought, so it costs little
    /// more than a `read`, and nothing is copied.
    ///
    /// # Errors
    /// As for reads.
    pub fn read_bytes_vectored(
        &self,
        len_max: usize,
        pieces: &mut Vec<Bytes>,
    ) -> io::Result<usize> {
        if len_max == 0 {
            return Ok(0);
        }
        let id = self.shared.socket.id;
        let take = |core: &mut Core, now| take_pieces(core, now, id, len_max, pieces);
        Ok(self.fetch(After::Send, len_max, take)?.unwrap_or(0))
    }

    /// Wakes `waker` once, at the next event `interest` is in. What is possible already wakes
    /// nobody: register first, then try. A waker may use the stack and must not wait for it: the thread that
    /// calls it may be the one that would bring what it waits for.
    pub fn register_waker(&self, interest: Interest, waker: &Waker) {
        self.shared.socket.register_waker(interest, waker);
    }

    fn read_into(&self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        let id = self.shared.socket.id;
        let count = self.fetch(After::Send, out.len(), |core, now| {
            let count = core.shard.tcp_read(now, id, out)?;
            core.counters.bytes_copied_out += count as u64;
            Ok(count)
        })?;
        Ok(count.unwrap_or(0))
    }

    /// Waits for something to read, of which it takes so much at most; `None` where the reading side was shut and
    /// nothing is left.
    fn fetch<T>(
        &self,
        after: After,
        takes_bytes: usize,
        mut read: impl FnMut(&mut Core, Instant) -> Result<T, SocketError>,
    ) -> io::Result<Option<T>> {
        let Shared { socket, is_read_shut, .. } = &*self.shared;
        let call = Call { takes_bytes, ..socket.call(Interest::Readable, after) };
        socket.squeue().operate(&call, |core, now| match read(core, now) {
            Err(SocketError::WouldBlock) if is_read_shut.load(Ordering::Acquire) => Ok(None),
            outcome => outcome.map(Some),
        })
    }

    /// Copies in and hands over message by message (`tcp_maxpsz_multiplier`), by default all at
    /// once. It waits for the first only; an error behind it shows in the next call.
    fn copy_and_write(&self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let mut copied = self.take_write_turn()?;
        let mut written = 0;
        while written < bytes.len() {
            match self.copy_message(&mut copied, &bytes[written..], written == 0) {
                Ok(count) => written += count,
                Err(error) if written == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(written)
    }

    /// Copies the next message from the front of `bytes` and queues it; says how long it is.
    fn copy_message(&self, copied: &mut Copied, bytes: &[u8], waits: bool) -> io::Result<usize> {
        let stack = &self.shared.socket.stack;
        let copy_in = stack.tunables();
        let message_len =
            |plan: &SendPlan| bytes.len().min(copy_in.hand_over_bytes(plan.segment_len_bytes));
        let plan = self.wait_for_room(waits, false, |plan, is_blocking| match is_blocking {
            true => message_len(plan).min(self.low_water_bytes(plan)),
            false => 1,
        })?;
        let hand_over = message_len(&plan);
        let bytes = &bytes[..plan.room_bytes.min(hand_over)];
        let layout = copy_in.of_stream(&plan);
        let filled = match stack.fill(copied, &layout, iter::once(bytes), None) {
            Ok(filled) => filled,
            Err(_) if !waits => return Err(ErrorKind::WouldBlock.into()),
            Err(_) => {
                let first = self.wait_for_block(layout.first_block_len(bytes.len()))?;
                let outcome = stack.fill(copied, &layout, iter::once(bytes), Some(first));
                outcome.map_err(|_| socket_error(SocketError::NoMemory))?
            }
        };
        debug_assert_eq!(filled, copied.chunks.iter().map(Chunk::len).sum());
        // Where the send buffer was made smaller meanwhile the rest is not written.
        let call = self.shared.socket.call(Interest::Writable, After::Send);
        let queued =
            self.append(&call, &mut copied.chunks, |counters, len| layout.count(counters, len));
        // The next message is copied behind what is here.
        copied.chunks.clear();
        queued
    }

    /// The turn among the writers of this stream.
    fn take_write_turn(&self) -> io::Result<WriteTurn<'_>> {
        self.shared.writing.take(&self.shared.socket)
    }

    /// How much room a write that waits is to find, at most.
    fn low_water_bytes(&self, plan: &SendPlan) -> usize {
        self.shared.socket.stack.tunables().low_water_bytes.min(plan.share_bytes / 4)
    }

    /// Waits for as much `room` as is `wanted` (a byte at least), which may depend on how data will be
    /// cut and on whether the socket blocks. Without `waits` it asks only once.
    fn wait_for_room(
        &self,
        waits: bool,
        is_lent: bool,
        wanted: impl Fn(&SendPlan, bool) -> usize,
    ) -> io::Result<SendPlan> {
        let socket = &self.shared.socket;
        let call = socket.call(Interest::Writable, After::Leave);
        let lacks_memory = Cell::new(false);
        let ask = |core: &mut Core| {
            let plan = core.shard.tcp_send_plan(socket.id)?;
            let wanted = wanted(&plan, call.blocks).max(1);
            let room_bytes = if is_lent { plan.lent_room_bytes } else { plan.room_bytes };
            if room_bytes < wanted {
                core.shard.tcp_await_room(socket.id, wanted, is_lent);
                lacks_memory.set(!is_lent && plan.lent_room_bytes >= wanted);
                return Err(SocketError::WouldBlock);
            }
            Ok(plan)
        };
        // Usually there is room, and neither clock nor device has to be asked.
        match socket.squeue().look(ask) {
            Ok(plan) => Ok(plan),
            Err(error) if !waits => Err(socket_error(error)),
            Err(_) => sleep_for_room(socket.squeue(), &call, &lacks_memory, ask),
        }
    }

    /// Waits until the exhausted pool has a block again, where the socket blocks, and takes it before another
    /// writer does: acknowledgments bring them back. Where other writers get on it is a matter of turns; where
    /// nobody does for [`POOL_WAIT`], waiting longer would not help.
    fn wait_for_block(&self, len: usize) -> io::Result<BlockMut> {
        let Shared { socket, .. } = &*self.shared;
        let squeue = socket.squeue();
        let call = socket.call(Interest::Writable, After::Leave);
        let progress = || socket.stack.squeues().copied_in_bytes();
        let (mut before, mut left) = (progress(), call.timeout.unwrap_or(Duration::MAX));
        loop {
            let call = Call { socket: None, timeout: Some(left.min(POOL_WAIT)), ..call };
            let outcome = squeue.operate(&call, |core, _| {
                core.counters.pool_waits += 1;
                socket.stack.pool().allocate(len).map_err(|_| SocketError::WouldBlock)
            });
            match outcome {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                outcome => return outcome,
            }
            let after = progress();
            left = left.saturating_sub(POOL_WAIT);
            if !call.blocks {
                squeue.miss_memory(socket.id);
                return Err(socket_error(SocketError::WouldBlock));
            }
            if left.is_zero() || after == before {
                return Err(socket_error(SocketError::NoMemory));
            }
            before = after;
        }
    }

    /// Queues as much of `chunks` as there is room for, at least a byte, and runs the shard; says how much.
    /// What an error leaves of them is not written.
    fn append(
        &self,
        call: &Call,
        chunks: &mut VecDeque<Chunk>,
        count: impl Fn(&mut RuntimeCounters, usize),
    ) -> io::Result<usize> {
        let Shared { socket, .. } = &*self.shared;
        let outcome = socket.squeue().operate(call, |core, now| {
            let queued = polling::append_fitting(core, now, socket.id, chunks)?;
            count(&mut core.counters, queued);
            Ok(queued)
        });
        if outcome.is_err() {
            chunks.clear();
        }
        outcome
    }

    fn set_option(&self, option: TcpOption) -> io::Result<()> {
        let socket = &self.shared.socket;
        let set = |core: &mut Core, now| core.shard.tcp_set_option(now, socket.id, option);
        socket.squeue().once_sending(set).map_err(socket_error)
    }

    fn squeue_once<T>(&self, act: impl FnOnce(&mut Core, Instant, SocketId) -> T) -> T {
        let socket = &self.shared.socket;
        socket.squeue().once(|core, now| act(core, now, socket.id))
    }

    fn squeue_look<T>(&self, look: impl FnOnce(&mut stack::Shard, SocketId) -> T) -> T {
        let socket = &self.shared.socket;
        socket.squeue().look(|core| look(&mut core.shard, socket.id))
    }
}

/// Has `ask` for room until there is some, or the call's time is up. It sleeps until there is an event, and looks by
/// itself for as long as `ask` says that it is memory which lacks.
fn sleep_for_room(
    squeue: &Squeue,
    call: &Call,
    lacks_memory: &Cell<bool>,
    ask: impl Fn(&mut Core) -> Result<SendPlan, SocketError>,
) -> io::Result<SendPlan> {
    let deadline = call.timeout.map(|timeout| squeue.now() + timeout);
    loop {
        let looks = lacks_memory.get();
        let left = deadline.map(|deadline| deadline.since(squeue.now()));
        let timeout = match looks {
            true => Some(left.map_or(ROOM_LOOK_INTERVAL, |left| left.min(ROOM_LOOK_INTERVAL))),
            false => left,
        };
        let outcome = squeue.operate(&Call { timeout, ..*call }, |core, _| match ask(core) {
            // The pool became short while this slept for an acknowledgment: no event ends the wait that is left.
            Err(SocketError::WouldBlock) if lacks_memory.get() && !looks => Ok(None),
            outcome => outcome.map(Some),
        });
        let is_over = !call.blocks || deadline.is_some_and(|deadline| deadline <= squeue.now());
        match outcome {
            Ok(Some(plan)) => return Ok(plan),
            Ok(None) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock && looks && !is_over => {}
            Err(error) => return Err(error),
        }
    }
}

/// Appends what has arrived to `pieces`, in the blocks it was received in, and says how many bytes it is: `len_max` at
/// most.
fn take_pieces(
    core: &mut Core,
    now: Instant,
    id: SocketId,
    len_max: usize,
    pieces: &mut Vec<Bytes>,
) -> Result<usize, SocketError> {
    let mut block = Bytes::new();
    let take = |chunk| pieces.push(Received::piece(chunk, &mut block));
    core.shard.tcp_read_chunks(now, id, (len_max, usize::MAX), take)
}

/// A block of received bytes in the hands of the application.
struct Received(Chunk);

impl AsRef<[u8]> for Received {
    fn as_ref(&self) -> &[u8] {
        self.0.block().bytes()
    }
}

impl Received {
    /// The bytes of `chunk`, as a part of their block. Neighbours mostly lie in one, so `block` is the last
    /// one's: an owner for each would be an allocation for each.
    fn piece(chunk: Chunk, block: &mut Bytes) -> Bytes {
        let range = chunk.offset()..chunk.offset() + chunk.len();
        if !core::ptr::eq(&**block, chunk.block().bytes()) {
            *block = Bytes::from_owner(Self(chunk));
        }
        block.slice(range)
    }
}

impl Read for &TcpStream {
    /// Copies out what has arrived, or waits for it; zero at the end of the stream.
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.read_into(out)
    }
}

impl Read for TcpStream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.read_into(out)
    }
}

impl Write for &TcpStream {
    /// Queues the front of `bytes`, as much as there is room for, waiting for some where there is
    /// none. What is queued is sent as the peer and the path allow; nothing needs flushing.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.copy_and_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for TcpStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.copy_and_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
