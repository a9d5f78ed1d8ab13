//! A UDP socket.

use crate::direction::Direction;
use multidata::{BindOptions, Datagram, ReceivedDatagram, Stack};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::task::{Context, Poll, ready};
use tokio::io::ReadBuf;

/// A UDP socket; shaped like `tokio::net::UdpSocket`.
///
/// Any number of tasks may send and receive by one socket; a datagram goes to one of them.
#[derive(Debug)]
pub struct UdpSocket {
    socket: multidata::UdpSocket,
    readable: Direction,
    writable: Direction,
}

impl UdpSocket {
    /// A socket for datagrams to `address` of `stack`, at once. Port zero picks one; an unspecified
    /// address stands for all addresses of the stack.
    ///
    /// # Errors
    /// The address is not one of the stack's, or in use.
    pub fn bind(stack: &Stack, address: impl Into<SocketAddr>) -> io::Result<Self> {
        Self::bind_with(stack, address, BindOptions::default())
    }

    /// As [`UdpSocket::bind`], for a socket that may share its port or keeps to one family.
    ///
    /// # Errors
    /// As [`UdpSocket::bind`].
    pub fn bind_with(
        stack: &Stack,
        address: impl Into<SocketAddr>,
        options: BindOptions,
    ) -> io::Result<Self> {
        multidata::UdpSocket::bind_with(stack, address.into(), options).and_then(Self::try_from)
    }

    /// Names the only peer: [`UdpSocket::send`] sends to it and only its datagrams are received.
    ///
    /// # Errors
    /// No route leads there.
    pub fn connect(&self, address: impl Into<SocketAddr>) -> io::Result<()> {
        self.socket.connect(address.into())
    }

    /// Sends one datagram to `address` and returns its length. Where the future is dropped, it was
    /// not sent.
    ///
    /// # Errors
    /// No route; too long; `OutOfMemory` where the block pool is exhausted; the device failed.
    pub async fn send_to(&self, bytes: &[u8], address: impl Into<SocketAddr>) -> io::Result<usize> {
        let address = Some(address.into());
        self.writable.wait(|context| self.socket.poll_send_to(context, bytes, address)).await
    }

    /// Sends one datagram to the peer and returns its length.
    ///
    /// # Errors
    /// As [`UdpSocket::send_to`], and where the socket has no peer. It also reports that the peer's
    /// host or port was found unreachable.
    pub async fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.writable.wait(|context| self.socket.poll_send_to(context, bytes, None)).await
    }

    /// As [`UdpSocket::send_to`], from the address `from` and the socket's port; see
    /// [`multidata::UdpSocket::send_from_to`].
    ///
    /// # Errors
    /// As [`UdpSocket::send_to`]; `AddrNotAvailable` where the stack does not have the address, `InvalidInput`
    /// where the families differ.
    pub async fn send_from_to(
        &self,
        bytes: &[u8],
        from: IpAddr,
        address: impl Into<SocketAddr>,
    ) -> io::Result<usize> {
        let to = address.into();
        let send = |it: &mut Context<'_>| self.socket.poll_send_from_to(it, bytes, from, to);
        self.writable.wait(send).await
    }

    /// Sends datagrams, also to different peers: as many of the first as go together, of 64 KiB and for which there is
    /// room, and returns how many; waits until there is room for the first. See [`multidata::UdpSocket::send_many`].
    /// Where the future is dropped, none was sent.
    ///
    /// # Errors
    /// As [`UdpSocket::send_from_to`], of the first.
    pub async fn send_many(&self, datagrams: &[Datagram<'_>]) -> io::Result<usize> {
        self.writable.wait(|context| self.socket.poll_send_many(context, datagrams)).await
    }

    /// Waits for a datagram and copies it out, with its sender; what does not fit is lost. Where the
    /// future is dropped, no datagram was taken.
    ///
    /// # Errors
    /// As [`multidata::UdpSocket::recv_from`].
    pub async fn recv_from(&self, out: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.readable.wait(|context| self.socket.poll_recv_from(context, out)).await
    }

    /// Waits for a datagram and shows it, and at most `datagrams_max` in all of those that are there; says how many. See
    /// [`multidata::UdpSocket::recv_many`]. Where the future is dropped, no datagram was taken.
    ///
    /// # Errors
    /// As [`UdpSocket::recv_from`].
    pub async fn recv_many(
        &self,
        datagrams_max: usize,
        mut show: impl FnMut(ReceivedDatagram<'_>),
    ) -> io::Result<usize> {
        let receive =
            |it: &mut Context<'_>| self.socket.poll_recv_many(it, datagrams_max, &mut show);
        self.readable.wait(receive).await
    }

    /// As [`UdpSocket::recv_from`], with where the datagram was sent to as well; see
    /// [`multidata::UdpSocket::recv_from_to`].
    ///
    /// # Errors
    /// As [`UdpSocket::recv_from`].
    pub async fn recv_from_to(
        &self,
        out: &mut [u8],
    ) -> io::Result<(usize, SocketAddr, SocketAddr)> {
        self.readable.wait(|context| self.socket.poll_recv_from_to(context, out)).await
    }

    /// As [`UdpSocket::recv_from`], for a connected socket.
    ///
    /// # Errors
    /// As [`UdpSocket::recv_from`].
    pub async fn recv(&self, out: &mut [u8]) -> io::Result<usize> {
        self.recv_from(out).await.map(|(len, _)| len)
    }

    /// As [`UdpSocket::recv_from`]; the datagram stays to be received.
    ///
    /// # Errors
    /// As [`UdpSocket::recv_from`].
    pub async fn peek_from(&self, out: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.readable.wait(|context| self.socket.poll_peek_from(context, out)).await
    }

    /// As [`UdpSocket::peek_from`], for a connected socket.
    ///
    /// # Errors
    /// As [`UdpSocket::recv_from`].
    pub async fn peek(&self, out: &mut [u8]) -> io::Result<usize> {
        self.peek_from(out).await.map(|(len, _)| len)
    }

    /// Waits until a receive would not wait. Another task may have the datagram before this one tries.
    ///
    /// # Errors
    /// The device failed.
    pub async fn readable(&self) -> io::Result<()> {
        self.readable.wait(|context| self.socket.poll_readable(context)).await
    }

    /// Waits until a send would not wait: not at all, unless one found the queue of an interface full, and it has been
    /// since. Each connection of a protocol over this socket may wait for itself (`UdpPoller` in quinn), where
    /// [`UdpSocket::poll_send_ready`] is one task's.
    ///
    /// # Errors
    /// The device failed.
    pub async fn writable(&self) -> io::Result<()> {
        self.writable.wait(|context| self.socket.poll_writable(context)).await
    }

    /// As [`UdpSocket::readable`], by the task that called last.
    ///
    /// # Errors
    /// As [`UdpSocket::readable`].
    pub fn poll_recv_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.readable.poll(context, |context| self.socket.poll_readable(context))
    }

    /// As [`UdpSocket::writable`], by the task that called last.
    ///
    /// # Errors
    /// As [`UdpSocket::writable`].
    pub fn poll_send_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writable.poll(context, |context| self.socket.poll_writable(context))
    }

    /// As [`UdpSocket::send_to`], without waiting. Many datagrams, or one from another address, are sent so by
    /// [`UdpSocket::socket`].
    ///
    /// # Errors
    /// `WouldBlock` where the queue of the interface is full; as [`UdpSocket::send_to`].
    pub fn try_send_to(&self, bytes: &[u8], address: impl Into<SocketAddr>) -> io::Result<usize> {
        self.socket.send_to(bytes, address.into())
    }

    /// As [`UdpSocket::send`], without waiting.
    ///
    /// # Errors
    /// `WouldBlock` where the queue of the interface is full; as [`UdpSocket::send`].
    pub fn try_send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.send(bytes)
    }

    /// As [`UdpSocket::recv_from`], without waiting.
    ///
    /// # Errors
    /// `WouldBlock` where there is no datagram; as [`UdpSocket::recv_from`].
    pub fn try_recv_from(&self, out: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.socket.recv_from(out)
    }

    /// As [`UdpSocket::recv`], without waiting.
    ///
    /// # Errors
    /// As [`UdpSocket::try_recv_from`].
    pub fn try_recv(&self, out: &mut [u8]) -> io::Result<usize> {
        self.socket.recv(out)
    }

    /// As [`UdpSocket::send_to`], by the task that called last.
    ///
    /// # Errors
    /// As [`UdpSocket::send_to`].
    pub fn poll_send_to(
        &self,
        context: &mut Context<'_>,
        bytes: &[u8],
        address: SocketAddr,
    ) -> Poll<io::Result<usize>> {
        let address = Some(address);
        self.writable.poll(context, |it| self.socket.poll_send_to(it, bytes, address))
    }

    /// As [`UdpSocket::send`], by the task that called last.
    ///
    /// # Errors
    /// As [`UdpSocket::send`].
    pub fn poll_send(&self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.writable.poll(context, |it| self.socket.poll_send_to(it, bytes, None))
    }

    /// As [`UdpSocket::recv_from`], by the task that called last.
    ///
    /// # Errors
    /// As [`UdpSocket::recv_from`].
    pub fn poll_recv_from(
        &self,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<SocketAddr>> {
        let (len, sender) = ready!(self.readable.poll(context, |context| {
            self.socket.poll_recv_from(context, out.initialize_unfilled())
        }))?;
        out.advance(len);
        Poll::Ready(Ok(sender))
    }

    /// As [`UdpSocket::recv`], by the task that called last.
    ///
    /// # Errors
    /// As [`UdpSocket::recv_from`].
    pub fn poll_recv(
        &self,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_recv_from(context, out).map_ok(drop)
    }

    /// The address datagrams are received at.
    ///
    /// # Errors
    /// None; the signature is that of `tokio::net`.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Takes the error that waits to be reported.
    ///
    /// # Errors
    /// None; the signature is that of `tokio::net`.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.socket.take_error()
    }

    /// The only peer.
    ///
    /// # Errors
    /// `NotConnected` where the socket has none.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.socket.peer_addr()
    }

    /// How many routers may forward datagrams to single peers from now on, 1 to 255.
    ///
    /// # Errors
    /// `InvalidInput` for other numbers.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.socket.set_ttl(ttl)
    }

    /// How many routers may forward a datagram.
    ///
    /// # Errors
    /// None; the signature is that of `tokio::net`.
    pub fn ttl(&self) -> io::Result<u32> {
        self.socket.ttl()
    }

    /// The socket itself, for settings: groups, path MTU discovery. It does not block, and should not
    /// be made to.
    #[must_use]
    pub fn socket(&self) -> &multidata::UdpSocket {
        &self.socket
    }
}

impl TryFrom<multidata::UdpSocket> for UdpSocket {
    type Error = io::Error;

    /// The socket in the hands of tasks; its other handles do not wait any more, either.
    fn try_from(socket: multidata::UdpSocket) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self { socket, readable: Direction::new(), writable: Direction::new() })
    }
}
