//! Datagrams to addresses and ports that are nobody's here, for a relay.

use crate::direction::Direction;
use multidata::ip::{Cidr, IcmpErrorKind};
use multidata::{ForwardedDatagram, ReceivedDatagram, Stack};
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll, ready};
use tokio::io::ReadBuf;

/// Takes the datagrams to all addresses of a prefix and all ports that no UDP socket has, and sends from
/// there; see [`multidata::UdpForwarder`]. `examples/forwarder` relays those of a whole network namespace.
///
/// Any number of tasks may send and receive by one forwarder; a datagram goes to one of them.
#[derive(Debug)]
pub struct UdpForwarder {
    socket: multidata::UdpForwarder,
    readable: Direction,
    writable: Direction,
}

impl UdpForwarder {
    /// Takes datagrams to `prefix`, at once.
    ///
    /// # Errors
    /// As [`multidata::UdpForwarder::bind`].
    pub fn bind(stack: &Stack, prefix: Cidr) -> io::Result<Self> {
        multidata::UdpForwarder::bind(stack, prefix).and_then(Self::try_from)
    }

    /// Waits for a datagram and copies it out: its length, its sender and where it was sent to. What does
    /// not fit is lost. Where the future is dropped, no datagram was taken.
    ///
    /// # Errors
    /// The device failed.
    pub async fn recv_from_to(
        &self,
        out: &mut [u8],
    ) -> io::Result<(usize, SocketAddr, SocketAddr)> {
        let taken =
            self.readable.wait(|context| self.socket.poll_recv_from_to(context, out)).await?;
        self.readable.wake();
        Ok(taken)
    }

    /// Waits for a datagram and shows it, and at most `datagrams_max` in all of those that are there; says how many. See
    /// [`multidata::UdpSocket::recv_many`].
    ///
    /// # Errors
    /// The device failed.
    pub async fn recv_many(
        &self,
        datagrams_max: usize,
        mut show: impl FnMut(ReceivedDatagram<'_>),
    ) -> io::Result<usize> {
        let receive =
            |it: &mut Context<'_>| self.socket.poll_recv_many(it, datagrams_max, &mut show);
        let count = self.readable.wait(receive).await?;
        self.readable.wake();
        Ok(count)
    }

    /// Sends one datagram to `to` from the address and port `from`, mostly where the question was sent to, and
    /// returns its length. Where the future is dropped, it was not sent.
    ///
    /// # Errors
    /// As [`multidata::UdpForwarder::send_from_to`]; `OutOfMemory` where the block pool is exhausted.
    pub async fn send_from_to(
        &self,
        bytes: &[u8],
        from: SocketAddr,
        to: SocketAddr,
    ) -> io::Result<usize> {
        let send = |it: &mut Context<'_>| self.socket.poll_send_from_to(it, bytes, from, to);
        self.writable.wait(send).await
    }

    /// Sends datagrams, as many of the first as go together, of 64 KiB and for which there is room, and returns how many;
    /// waits until there is room for the first. See [`multidata::UdpForwarder::poll_send_many`]. Where the future is
    /// dropped, none was sent.
    ///
    /// # Errors
    /// As [`UdpForwarder::send_from_to`], of the first.
    pub async fn send_many(&self, datagrams: &[ForwardedDatagram<'_>]) -> io::Result<usize> {
        self.writable.wait(|context| self.socket.poll_send_many(context, datagrams)).await
    }

    /// As [`UdpForwarder::recv_from_to`], by the task that called last: the sender and where it was sent to.
    ///
    /// # Errors
    /// As [`UdpForwarder::recv_from_to`].
    pub fn poll_recv_from_to(
        &self,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<(SocketAddr, SocketAddr)>> {
        let (len, sender, to) = ready!(self.readable.poll(context, |context| {
            self.socket.poll_recv_from_to(context, out.initialize_unfilled())
        }))?;
        self.readable.wake();
        out.advance(len);
        Poll::Ready(Ok((sender, to)))
    }

    /// As [`UdpForwarder::send_from_to`], by the task that called last.
    ///
    /// # Errors
    /// As [`UdpForwarder::send_from_to`].
    pub fn poll_send_from_to(
        &self,
        context: &mut Context<'_>,
        bytes: &[u8],
        from: SocketAddr,
        to: SocketAddr,
    ) -> Poll<io::Result<usize>> {
        self.writable.poll(context, |it| self.socket.poll_send_from_to(it, bytes, from, to))
    }

    /// Answers a datagram with an ICMP error, at once; see [`multidata::UdpForwarder::refuse`].
    ///
    /// # Errors
    /// As there.
    pub fn refuse(
        &self,
        bytes: &[u8],
        sender: SocketAddr,
        to: SocketAddr,
        why: IcmpErrorKind,
    ) -> io::Result<()> {
        self.socket.refuse(bytes, sender, to, why)
    }

    /// What it takes datagrams to.
    #[must_use]
    pub fn prefix(&self) -> Cidr {
        self.socket.prefix()
    }
}

impl TryFrom<multidata::UdpForwarder> for UdpForwarder {
    type Error = io::Error;

    /// The forwarder in the hands of tasks; its other handles do not wait any more, either.
    fn try_from(socket: multidata::UdpForwarder) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self { socket, readable: Direction::new(), writable: Direction::new() })
    }
}
