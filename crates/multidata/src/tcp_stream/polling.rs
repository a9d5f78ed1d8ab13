//! A connection in the hands of a task: calls that never wait, but have a waker called.
//!
//! Each call tries and, where it would have to wait, enters the task's waker, both under one lock.
//! So what becomes possible in between is not missed, and a call that succeeds leaves no waker
//! behind. A waker is called once; who still has to wait calls again.

use super::{LENT_LEN_BYTES_MAX, TcpStream, take_pieces};
use crate::copy_in::{Copied, Layout};
use crate::runtime::memory_turns::Lack;
use crate::runtime::outside::lend;
use crate::runtime::squeue::Core;
use crate::runtime::turn::After;
use crate::runtime::waiting::Interest;
use crate::socket::Socket;
use batch::{Block, Chunk};
use bytes::Bytes;
use core::task::{Context, Poll, ready};
use stack::{SendPlan, SocketError, SocketId};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::atomic::Ordering;
use time::Instant;

impl TcpStream {
    /// Ready when a read would not wait; otherwise the task is woken when that may have changed.
    pub fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let id = self.shared.socket.id;
        self.poll_fetch(context, After::Leave, |core, _| {
            let status = core.shard.tcp_status(id)?;
            match status.readable_bytes > 0 || status.at_end || status.error.is_some() {
                true => Ok(()),
                false => Err(SocketError::WouldBlock),
            }
        })
        .map_ok(drop)
    }

    /// Ready when a write would not wait; otherwise the task is woken when that may have changed.
    pub fn poll_writable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.shared.writing.poll_free(context));
        // A device that failed is what the write will say.
        let Ok(plan) = ready!(self.poll_room(context, 1)) else { return Poll::Ready(Ok(())) };
        let Socket { stack, id, .. } = &self.shared.socket;
        let block_len = stack.tunables().of_stream(&plan).first_block_len(plan.room_bytes);
        if stack.pool().has_room_for(block_len) {
            return Poll::Ready(Ok(()));
        }
        self.shared.socket.squeue().wait_for_memory(*id, Lack::Blocks, context.waker());
        Poll::Pending
    }

    /// Copies out what has arrived and says how much; zero at the end of the stream, or where `out` is
    /// empty.
    ///
    /// # Errors
    /// As for reads.
    pub fn poll_read(&self, context: &mut Context<'_>, out: &mut [u8]) -> Poll<io::Result<usize>> {
        if out.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let id = self.shared.socket.id;
        let count = ready!(self.poll_fetch(context, After::Send, |core, now| {
            let count = core.shard.tcp_read(now, id, out)?;
            core.counters.bytes_copied_out += count as u64;
            Ok(count)
        }))?;
        Poll::Ready(Ok(count.unwrap_or(0)))
    }

    /// As [`TcpStream::poll_read`]; what was copied stays to be read.
    ///
    /// # Errors
    /// As for reads.
    pub fn poll_peek(&self, context: &mut Context<'_>, out: &mut [u8]) -> Poll<io::Result<usize>> {
        let id = self.shared.socket.id;
        let count =
            ready!(self.poll_fetch(context, After::Leave, |core, _| core.shard.tcp_peek(id, out)))?;
        Poll::Ready(Ok(count.unwrap_or(0)))
    }

    /// As [`TcpStream::poll_read`], without a copy: what [`TcpStream::read_bytes_vectored`] does.
    ///
    /// # Errors
    /// As for reads.
    pub fn poll_read_bytes_vectored(
        &self,
        context: &mut Context<'_>,
        len_max: usize,
        pieces: &mut Vec<Bytes>,
    ) -> Poll<io::Result<usize>> {
        if len_max == 0 {
            return Poll::Ready(Ok(0));
        }
        let id = self.shared.socket.id;
        let take = |core: &mut Core, now| take_pieces(core, now, id, len_max, pieces);
        let len = ready!(self.poll_fetch(context, After::Send, take))?;
        Poll::Ready(Ok(len.unwrap_or(0)))
    }

    fn poll_fetch<T>(
        &self,
        context: &Context<'_>,
        after: After,
        mut read: impl FnMut(&mut Core, Instant) -> Result<T, SocketError>,
    ) -> Poll<io::Result<Option<T>>> {
        let is_read_shut = &self.shared.is_read_shut;
        self.shared.socket.poll(Interest::Readable, after, context, |core, now| {
            match read(core, now) {
                Err(SocketError::WouldBlock) if is_read_shut.load(Ordering::Acquire) => Ok(None),
                outcome => outcome.map(Some),
            }
        })
    }

    /// Queues the front of `bytes`, as much as there is room for, and says how much.
    ///
    /// An exhausted block pool is waited for, however long it takes.
    ///
    /// # Errors
    /// As for writes.
    pub fn poll_write(&self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    /// As [`TcpStream::poll_write`], for several pieces, which are queued together and so fill
    /// segments together.
    ///
    /// # Errors
    /// As for writes.
    pub fn poll_write_vectored(
        &self,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if pieces.iter().all(|piece| piece.is_empty()) {
            return Poll::Ready(Ok(0));
        }
        let socket = &self.shared.socket;
        let mut copied = ready!(self.shared.writing.poll_take(socket, context));
        let layout = ready!(self.poll_copy(context, &mut copied, pieces))?;
        let chunks = &mut copied.chunks;
        // Where the send buffer was made smaller meanwhile the rest is not written.
        socket.poll(Interest::Writable, After::Send, context, |core, now| {
            let count = append_fitting(core, now, socket.id, chunks)?;
            layout.count(&mut core.counters, count);
            Ok(count)
        })
    }

    /// Queues the front of the caller's own memory, without a copy, as much as there is room for, and says how much;
    /// the rest stays in `bytes`. It is held as [`TcpStream::write_bytes`] says.
    ///
    /// # Errors
    /// As for writes.
    pub fn poll_write_bytes(
        &self,
        context: &mut Context<'_>,
        bytes: &mut Bytes,
    ) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let socket = &self.shared.socket;
        let _turn = ready!(self.shared.writing.poll_take(socket, context));
        socket.poll(Interest::Writable, After::Send, context, |core, now| {
            let plan = core.shard.tcp_send_plan(socket.id)?;
            let low_water_bytes = self.low_water_bytes(&plan).max(1);
            if plan.lent_room_bytes < low_water_bytes.min(bytes.len()) {
                core.shard.tcp_await_room(socket.id, low_water_bytes, true);
                return Err(SocketError::WouldBlock);
            }
            let len = plan.lent_room_bytes.min(bytes.len()).min(LENT_LEN_BYTES_MAX);
            let piece = lend(bytes.split_to(len));
            core.shard.tcp_append(now, socket.id, Chunk::whole(Block::from(piece)))?;
            core.pace.on_written(len);
            core.counters.bytes_lent += len as u64;
            Ok(len)
        })
    }

    /// Asks for room for `len_bytes`, or for the low-water mark, whichever is less. A task that found
    /// none is woken when there is so much, and not for each acknowledgment; where it is memory that lacks
    /// and not the peer, also when its turn for memory has come.
    fn poll_room(&self, context: &Context<'_>, len_bytes: usize) -> Poll<io::Result<SendPlan>> {
        let socket = &self.shared.socket;
        let mut lacks_memory = false;
        let polled = socket.poll(Interest::Writable, After::Leave, context, |core, _| {
            let plan = core.shard.tcp_send_plan(socket.id)?;
            let low_water_bytes = self.low_water_bytes(&plan).max(1);
            let wanted_bytes = low_water_bytes.min(len_bytes);
            lacks_memory = plan.room_bytes < wanted_bytes && plan.lent_room_bytes >= wanted_bytes;
            if plan.room_bytes < wanted_bytes {
                core.shard.tcp_await_room(socket.id, low_water_bytes, false);
                return Err(SocketError::WouldBlock);
            }
            Ok(plan)
        });
        if lacks_memory {
            socket.squeue().wait_for_memory(socket.id, Lack::Share, context.waker());
        }
        polled
    }

    /// Copies as much of `pieces` as there is room and memory for, at least a byte.
    fn poll_copy(
        &self,
        context: &Context<'_>,
        copied: &mut Copied,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<Layout>> {
        let socket = &self.shared.socket;
        let len_bytes = pieces.iter().map(|piece| piece.len()).sum();
        let plan = ready!(self.poll_room(context, len_bytes))?;
        let layout = socket.stack.tunables().of_stream(&plan);
        let fitting = pieces.iter().scan(plan.room_bytes, |room_bytes, piece| {
            let len = piece.len().min(*room_bytes);
            *room_bytes -= len;
            Some(&piece[..len])
        });
        match socket.stack.fill(copied, &layout, fitting, None) {
            Ok(_) => Poll::Ready(Ok(layout)),
            Err(_) => {
                socket.squeue().wait_for_memory(socket.id, Lack::Blocks, context.waker());
                Poll::Pending
            }
        }
    }
}

/// Queues as much of `chunks` as there is room for, at least a byte, and says how much.
pub(super) fn append_fitting(
    core: &mut Core,
    now: Instant,
    id: SocketId,
    chunks: &mut VecDeque<Chunk>,
) -> Result<usize, SocketError> {
    let mut count = 0;
    while let Some(front) = chunks.front_mut() {
        let room = match core.shard.tcp_send_room(id) {
            Ok(0) => break,
            Err(_) if count > 0 => break,
            outcome => outcome?,
        };
        let mut piece = front.clone();
        piece.truncate(room);
        let len = piece.len();
        front.trim_front(room);
        if front.is_empty() {
            chunks.pop_front();
        }
        core.shard.tcp_append(now, id, piece)?;
        count += len;
        core.pace.on_written(len);
    }
    if count == 0 { Err(SocketError::WouldBlock) } else { Ok(count) }
}
