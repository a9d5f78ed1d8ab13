//! What is copied out of the devices' blocks when the pool runs low.
//!
//! Unread payload lies where the device wrote it. A connection that nobody reads may so hold a block for
//! each of its segments, with the frames of others around them, and a few hundred of those hold all there
//! is: what is there to send with, and what the device needs for the next frames. So as soon as nothing of the former
//! is left to be shared, those who hold much more than waits in it have that copied to blocks of its size, who began
//! to hold first goes first, until as much is left to be shared as is set aside.
//!
//! To wait until only the receive reserve is left was not enough: nobody can send with the last block before it, and
//! what holds it so exactly, a byte each in 3,000 sockets, did so for as long as nothing else came.
//!
//! Sockets are listed when a batch leaves them holding so, and stay until somebody looks at them under
//! pressure, so nobody looks for them: what a batch or a datagram costs is one comparison, and what is copied
//! is copied once. A slot of the table of sockets is listed once, whatever sockets it had since: the list is
//! no longer than that. A turn copies 256 KiB at most and says that there is more.
//!
//! Where it does not help, because what is unread fills its blocks well, what is kept is bounded:
//! by [`BlockPool::is_low`](batch::BlockPool::is_low), `is_scarce` and `is_nearly_exhausted`, in
//! TCP's receive queue and for what UDP and raw sockets receive below. That begins when all there is to send with
//! is gone; so that what nobody reads does not bring it there, it has a bound for all sockets together besides
//! ([`Unread`](batch::Unread)), one for these and one for connections. What these hold is counted when they are settled:
//! the bound may be exceeded by what comes in one batch.

use crate::connections::tcp_socket::TcpSocket;
use crate::shard::Shard;
use crate::sockets::Socket;
use batch::{Chunk, Unread, holds_much_more};
use counters::DropReason;
use std::collections::VecDeque;

/// Bytes that one call copies, but for the last socket's last block.
const COPIED_BYTES_MAX: usize = 262_144;

/// Sockets that one call looks at.
const LOOKED_AT_MAX: usize = 256;

/// Packets in a socket's queue that keep the block they came in, which may hold little else of
/// this socket's. Those of a socket that is read more slowly are copied.
const KEPT_PACKETS_MAX: usize = 64;

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Pressure {
    /// Slots of sockets that held much more than waited in them, longest first.
    holders: VecDeque<u32>,
    is_on: bool,
}

/// Packets that wait in a socket's queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queued {
    pub(crate) packets: usize,
    /// Their payload, and what holding them costs.
    pub(crate) bytes: usize,
}

impl Pressure {
    /// The slots from this one on are no more.
    pub(crate) fn shrink(&mut self, slots: usize) {
        self.holders.retain(|index| (*index as usize) < slots);
        self.holders.shrink_to_fit();
    }
}

impl TcpSocket {
    /// Has what it holds unread counted as it is now.
    #[inline]
    pub(crate) fn recount_unread(&mut self, unread: &mut Unread) {
        let held_bytes = u32::try_from(self.connection.unread_held_bytes()).unwrap_or(u32::MAX);
        if held_bytes != self.counted_bytes {
            unread.recount(self.counted_bytes as usize, held_bytes as usize);
            self.counted_bytes = held_bytes;
        }
    }
}

impl Shard {
    /// Copies unread payload out of the devices' blocks where the pool is used up, a part at a time; says
    /// whether there is more to copy. To be called before a device is asked for frames, which it may have
    /// no blocks for; otherwise it costs a look at the pool. [`Shard::on_receive`] does it as well.
    pub fn relieve_pool(&mut self) -> bool {
        if !self.pressure.is_on {
            if !self.pool.is_used_up() {
                return false;
            }
            self.pressure.is_on = true;
            self.counters.pool_pressures += 1;
        }
        self.copy_out_unread()
    }

    /// How often the pool was used up, as far as this shard has seen it.
    #[must_use]
    pub fn pool_pressures(&self) -> u64 {
        self.counters.pool_pressures
    }

    #[cold]
    fn copy_out_unread(&mut self) -> bool {
        let mut left_bytes = COPIED_BYTES_MAX;
        for _ in 0..LOOKED_AT_MAX {
            if self.pool.is_relieved() {
                self.pressure.is_on = false;
                return false;
            }
            let Some(index) = self.pressure.holders.pop_front() else { return false };
            let copied = self.copy_out_of(index, left_bytes);
            self.counters.pressure_copied_bytes += copied as u64;
            left_bytes = left_bytes.saturating_sub(copied);
            if left_bytes == 0 {
                // It may hold more.
                self.pressure.holders.push_front(index);
                return true;
            }
            self.sockets.set_holding(index, false);
        }
        !self.pressure.holders.is_empty()
    }

    fn copy_out_of(&mut self, index: u32, bytes_max: usize) -> usize {
        let pool = &self.pool;
        match self.sockets.socket_mut(index) {
            Some(Socket::Tcp(socket)) => {
                let copied = socket.connection.copy_out(pool, bytes_max);
                socket.recount_unread(&mut self.unread_streams);
                copied
            }
            Some(Socket::Udp(socket)) => pool.copy_out(socket.received.payloads_mut(), bytes_max),
            Some(Socket::Raw(socket)) => pool.copy_out(socket.payloads_mut(), bytes_max),
            Some(Socket::Listener(_) | Socket::Forwarder(_)) | None => 0,
        }
    }

    /// The socket in slot `index` holds much more than waits in it.
    #[inline]
    pub(crate) fn note_holding(&mut self, index: u32) {
        if !self.sockets.set_holding(index, true) {
            self.pressure.holders.push_back(index);
        }
    }

    /// Something was read of connection `index`: what is left may hold much more than it is.
    #[inline]
    pub(crate) fn note_rest(&mut self, index: u32) {
        let connection = self.sockets.tcp(index).map(|socket| &socket.connection);
        if connection.is_some_and(tcp::Connection::holds_much_more_than_unread) {
            self.note_holding(index);
        }
    }

    /// What socket `index`, in whose queue so much waits, keeps of a packet that no sender sends again: the
    /// block it came in, or where that holds little else or is not the pool's, memory is short or the socket is read
    /// slowly, a copy.
    pub(crate) fn keep(
        &mut self,
        index: u32,
        queued: Queued,
        payload: Chunk,
        is_sparse: bool,
    ) -> Result<Chunk, DropReason> {
        if self.may_keep(queued)?
            || is_sparse
            || queued.packets >= KEPT_PACKETS_MAX
            || (queued.packets > 0 && self.holds_more_of_others(index, &payload))
        {
            return self.network.compact(&payload);
        }
        self.note_holding(index);
        Ok(payload)
    }

    /// Whether another block would be held for a part that is much shorter, and it is none of the pool's: nobody counts
    /// it, and no pressure has it back, so a socket holds one of them. Those of a wire are such.
    fn holds_more_of_others(&mut self, index: u32, payload: &Chunk) -> bool {
        let block = payload.block();
        if self.pool.owns(block) || !holds_much_more(payload.len(), block.len()) {
            return false;
        }
        let last = match self.sockets.socket_mut(index) {
            Some(Socket::Udp(socket)) => socket.received.payloads_mut().next_back(),
            Some(Socket::Raw(socket)) => socket.payloads_mut().next_back(),
            _ => None,
        };
        last.is_none_or(|last| !last.block().is_same(block))
    }

    /// Whether a packet that no sender sends again may be kept in a queue where so much waits, and must be
    /// copied for it.
    pub(crate) fn may_keep(&self, queued: Queued) -> Result<bool, DropReason> {
        let is_low = self.pool.is_low();
        if is_low && (queued.packets > 0 || self.pool.is_nearly_exhausted()) {
            return Err(DropReason::NoMemory);
        }
        if !self.unread.may_grow(queued.bytes) {
            return Err(DropReason::DatagramsFull);
        }
        Ok(is_low)
    }
}
