//! Raw packets in the hands of a task: calls that never wait, but have a waker called.

use super::{RawSocket, ReceivedPacket, copy_out};
use crate::runtime::turn::After;
use crate::runtime::waiting::Interest;
use core::task::{Context, Poll, ready};
use std::io;
use std::net::IpAddr;

impl RawSocket {
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

    /// Copies a packet out; what does not fit is lost. Otherwise the task is woken when there may be one.
    ///
    /// # Errors
    /// As [`RawSocket::recv`].
    pub fn poll_recv(
        &self,
        context: &mut Context<'_>,
        out: &mut [u8],
    ) -> Poll<io::Result<ReceivedPacket>> {
        let (interest, after, len) = (Interest::Readable, After::Send, out.len());
        let taken = self.socket.poll(interest, after, context, |core, _| self.take(core, len));
        Poll::Ready(Ok(copy_out(&ready!(taken)?, out)))
    }

    /// Sends one packet to `address` and returns its length. Where the interface's queue is full the task
    /// is woken when there is room.
    ///
    /// # Errors
    /// As [`RawSocket::send_to`]; `OutOfMemory` where the block pool is exhausted.
    pub fn poll_send_to(
        &self,
        context: &mut Context<'_>,
        bytes: &[u8],
        address: IpAddr,
    ) -> Poll<io::Result<usize>> {
        self.poll_send(context, bytes, None, address)
    }

    /// As [`RawSocket::send_from_to`], as [`RawSocket::poll_send_to`] does it.
    ///
    /// # Errors
    /// As [`RawSocket::send_from_to`]; `OutOfMemory` where the block pool is exhausted.
    pub fn poll_send_from_to(
        &self,
        context: &mut Context<'_>,
        message: &[u8],
        from: IpAddr,
        to: IpAddr,
    ) -> Poll<io::Result<usize>> {
        self.poll_send(context, message, Some(from), to)
    }

    fn poll_send(
        &self,
        context: &mut Context<'_>,
        bytes: &[u8],
        from: Option<IpAddr>,
        to: IpAddr,
    ) -> Poll<io::Result<usize>> {
        let layout = self.last_plan.layout(&self.socket.stack);
        let copied = self.copy(&layout, bytes)?;
        self.socket.poll(Interest::Writable, After::Send, context, |core, _| {
            self.send_copied(core, (from, to), &copied, &layout)
        })
    }
}
