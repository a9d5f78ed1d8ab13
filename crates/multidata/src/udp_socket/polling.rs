//! Datagrams in the hands of a task: calls that never wait, but have a waker called.
//!
//! As for connections, each call tries and enters the waker under one lock.

use super::{UdpSocket, envelope};
use crate::runtime::squeue::Core;
use crate::runtime::turn::After;
use crate::runtime::waiting::Interest;
use crate::udp_forwarder::{copied_out, peek, receive};
use core::task::{Context, Poll};
use std::io;
use std::net::{IpAddr, SocketAddr};

impl UdpSocket {
    /// Ready when a receive would not wait; otherwise the task is woken when that may have changed.
    ///
    /// # Errors
    /// The device failed.
    pub fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.poll_datagrams(Interest::Readable, context)
    }

    /// Ready unless a send found the queue of an interface full, and it has been since; otherwise the task is woken when
    /// there is room.
    ///
    /// # Errors
    /// The device failed.
    pub fn poll_writable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.poll_datagrams(Interest::Writable, context)
    }

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

    /// As [`UdpSocket::poll_recv_from`]; the datagram stays to be received.
    ///
    /// # Errors
    /// As [`UdpSocket::recv_from`].
    pub fn poll_peek_from(
        &self,
        context: &mut Context<'_>,
        out: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        let id = self.socket.id;
        let attempt = |core: &mut Core, _| peek(core, id);
        let peeked = self.socket.poll(Interest::Readable, After::Leave, context, attempt);
        peeked.map_ok(|datagram| {
            let (len, source, _) = copied_out(&datagram, out);
            (len, source)
        })
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
        self.sender().poll_send(context, bytes, envelope(None, address, None))
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
        self.sender().poll_send(context, bytes, envelope(Some(from), Some(address), None))
    }
}
