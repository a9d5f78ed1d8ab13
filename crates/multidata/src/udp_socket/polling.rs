//! Datagrams in the hands of a task: calls that never wait, but have a waker called.
//!
//! As for connections, each call tries and enters the waker under one lock.

use super::{UdpSocket, send};
use crate::error::socket_error;
use crate::runtime::squeue::Core;
use crate::runtime::turn::After;
use crate::runtime::waiting::Interest;
use crate::udp_forwarder::{copied_out, receive};
use batch::Chunk;
use core::task::{Context, Poll};
use stack::SocketError;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;

impl UdpSocket {
    /// Copies a datagram out, with its sender; what does not fit is lost. Otherwise the task is woken
    /// when there may be one.
    ///
    /// # Errors
    /// As [`UdpSocket::recv_from`].
    pub fn poll_recv_from(
        &self,
        context: &mut Context<'_>,
        out: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        let received = self.poll_recv_from_to(context, out);
        received.map_ok(|(len, source, _)| (len, source))
    }

    /// As [`UdpSocket::poll_recv_from`], with where the datagram was sent to as well.
    ///
    /// # Errors
    /// As [`UdpSocket::recv_from`].
    pub fn poll_recv_from_to(
        &self,
        context: &mut Context<'_>,
        out: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr, SocketAddr)>> {
        let id = self.socket.id;
        let attempt = |core: &mut Core, _| receive(core, id, out.len());
        let received = self.socket.poll(Interest::Readable, After::Send, context, attempt);
        received.map_ok(|datagram| copied_out(&datagram, out))
    }

    /// Sends one datagram to `address`, or to the peer where that is `None`, and returns its length.
    /// Where the interface's queue is full the task is woken when there is room.
    ///
    /// # Errors
    /// As [`UdpSocket::send_to`] and [`UdpSocket::send`]; `OutOfMemory` where the block pool is exhausted.
    pub fn poll_send_to(
        &self,
        context: &mut Context<'_>,
        bytes: &[u8],
        address: Option<SocketAddr>,
    ) -> Poll<io::Result<usize>> {
        self.poll_send_copied(context, bytes, None, address)
    }

    /// As [`UdpSocket::poll_send_to`], from the address `from` and the socket's port, as
    /// [`UdpSocket::send_from_to`].
    ///
    /// # Errors
    /// As [`UdpSocket::send_from_to`] and [`UdpSocket::poll_send_to`].
    pub fn poll_send_from_to(
        &self,
        context: &mut Context<'_>,
        bytes: &[u8],
        from: IpAddr,
        address: SocketAddr,
    ) -> Poll<io::Result<usize>> {
        self.poll_send_copied(context, bytes, Some(from), Some(address))
    }

    fn poll_send_copied(
        &self,
        context: &mut Context<'_>,
        bytes: &[u8],
        from: Option<IpAddr>,
        to: Option<SocketAddr>,
    ) -> Poll<io::Result<usize>> {
        let (chunk, is_summed) = self.copy(bytes)?;
        let id = self.socket.id;
        self.socket.poll(Interest::Writable, After::Run, context, |core, _| {
            send(core, id, from, to, &chunk)?;
            // For the next one: asking before would take the lock twice.
            self.needs_sums.store(core.shard.datagrams_need_sums(), Ordering::Relaxed);
            core.counters.bytes_copied_in += chunk.len() as u64;
            core.counters.bytes_summed_in_copy += if is_summed { chunk.len() as u64 } else { 0 };
            Ok(chunk.len())
        })
    }

    /// Copies a datagram into a block; says whether it was summed meanwhile.
    pub(super) fn copy(&self, bytes: &[u8]) -> io::Result<(Chunk, bool)> {
        let stack = &self.socket.stack;
        if bytes.len() > usize::from(u16::MAX) {
            return Err(socket_error(SocketError::MessageTooLong));
        }
        let needs_sums = self.needs_sums.load(Ordering::Relaxed);
        let layout = stack.tunables().of_datagram(bytes.len(), needs_sums);
        let chunk = layout.one_block(stack.pool(), bytes);
        let chunk = chunk.map_err(|_| socket_error(SocketError::NoMemory))?;
        Ok((chunk, layout.makes_sums()))
    }
}
