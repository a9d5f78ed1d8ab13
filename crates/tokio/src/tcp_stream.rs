//! A TCP connection.

use crate::direction::Direction;
use crate::tcp_split::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, WriteHalf};
use multidata::bytes::Bytes;
use multidata::{ConnectOptions, Stack};
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How much of a caller's memory is made ready for one read where nobody wrote to it before: what is
/// there usually fits, and more would be cleared for nothing.
const CLEARED_LEN_BYTES_MAX: usize = 65_536;

/// A TCP connection; shaped like `tokio::net::TcpStream`.
///
/// Dropping it closes the connection: what was written is still delivered, by the stack, in the
/// background, unless more than [`multidata::StackConfig::orphans_max`] are left so at once.
#[derive(Debug)]
pub struct TcpStream {
    socket: multidata::TcpStream,
    readable: Direction,
    writable: Direction,
}

impl TcpStream {
    /// Connects to `address` over `stack`. Dropping the future gives the attempt up.
    ///
    /// # Errors
    /// No route, the peer refused or did not answer, the stack has no port left.
    pub async fn connect(stack: &Stack, address: impl Into<SocketAddr>) -> io::Result<Self> {
        Self::connect_with(stack, address, &ConnectOptions::default()).await
    }

    /// As [`TcpStream::connect`], from this address and port of the stack (either may be unspecified).
    ///
    /// # Errors
    /// As [`TcpStream::connect`], and where the local address is not the stack's.
    pub async fn connect_from(
        stack: &Stack,
        local: impl Into<SocketAddr>,
        address: impl Into<SocketAddr>,
    ) -> io::Result<Self> {
        let options = ConnectOptions { local: Some(local.into()), ..ConnectOptions::default() };
        Self::connect_with(stack, address, &options).await
    }

    /// As [`TcpStream::connect`], with all that can be said of a connection but for a timeout: dropping the
    /// future is one, as `tokio::time::timeout` does it.
    ///
    /// # Errors
    /// As [`multidata::TcpStream::start_connect_with`] and [`TcpStream::connect`].
    pub async fn connect_with(
        stack: &Stack,
        address: impl Into<SocketAddr>,
        options: &ConnectOptions,
    ) -> io::Result<Self> {
        let address = address.into();
        let connecting = multidata::TcpStream::start_connect_with(stack, address, options)?;
        Self::try_from(connecting.await?)
    }

    /// Our end of the connection.
    ///
    /// # Errors
    /// None; the signature is that of `tokio::net`.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// The peer's end of the connection.
    ///
    /// # Errors
    /// None; the signature is that of `tokio::net`.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.socket.peer_addr()
    }

    /// Whether small segments are sent at once (`true`) or wait while data is unacknowledged.
    ///
    /// # Errors
    /// None; the signature is that of `tokio::net`.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.socket.set_nodelay(nodelay)
    }

    /// Whether small segments are sent at once.
    ///
    /// # Errors
    /// None; the signature is that of `tokio::net`.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.socket.nodelay()
    }

    /// How many routers may forward the packets from now on, 1 to 255.
    ///
    /// # Errors
    /// `InvalidInput` for other numbers.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.socket.set_ttl(ttl)
    }

    /// How many routers may forward the packets.
    ///
    /// # Errors
    /// None; the signature is that of `tokio::net`.
    pub fn ttl(&self) -> io::Result<u32> {
        self.socket.ttl()
    }

    /// Sends packet by packet whatever the device can do: see
    /// [`multidata::TcpStream::set_single_packets`].
    ///
    /// # Errors
    /// As there.
    pub fn set_single_packets(&self, single_packets: bool) -> io::Result<()> {
        self.socket.set_single_packets(single_packets)
    }

    /// Reaches the peer only as a neighbour (SO_DONTROUTE): see
    /// [`multidata::TcpStream::set_dont_route`].
    ///
    /// # Errors
    /// As there.
    pub fn set_dont_route(&self, dont_route: bool) -> io::Result<()> {
        self.socket.set_dont_route(dont_route)
    }

    /// Lets dropping the stream reset the connection: what was not delivered is lost.
    ///
    /// # Errors
    /// None; the signature is that of `tokio::net`.
    pub fn set_zero_linger(&self) -> io::Result<()> {
        self.socket.set_linger(Some(Duration::ZERO))
    }

    /// Why the connection failed, if it did.
    ///
    /// # Errors
    /// None while the connection is open.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.socket.take_error()
    }

    /// The socket itself, for settings and figures: buffers, keepalive, `info`. It does not block, and
    /// should not be made to.
    #[must_use]
    pub fn socket(&self) -> &multidata::TcpStream {
        &self.socket
    }

    /// Waits until a read would not wait.
    ///
    /// # Errors
    /// The device failed.
    pub async fn readable(&self) -> io::Result<()> {
        self.readable.wait(|context| self.socket.poll_readable(context)).await
    }

    /// Waits until a write would not wait.
    ///
    /// # Errors
    /// None; the signature is that of `tokio::net`.
    pub async fn writable(&self) -> io::Result<()> {
        self.writable.wait(|context| self.socket.poll_writable(context)).await
    }

    /// Reads what has arrived; zero at the end of the stream.
    ///
    /// # Errors
    /// `WouldBlock` where nothing has; as for reads.
    pub fn try_read(&self, out: &mut [u8]) -> io::Result<usize> {
        (&self.socket).read(out)
    }

    /// Queues the front of `bytes`, as much as there is room for.
    ///
    /// # Errors
    /// `WouldBlock` where there is none; as for writes.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        (&self.socket).write(bytes)
    }

    /// Waits for data and takes what is there, `len_max` bytes at most, without a copy: appends the blocks it was received
    /// in to `pieces` and says how many bytes they are; zero at the end of the stream. Do not keep them for long: they count
    /// against the pool's limit ([`multidata::TcpStream::read_bytes_vectored`]).
    ///
    /// Nothing is lost where the future is dropped.
    ///
    /// # Errors
    /// As for reads.
    pub async fn read_bytes_vectored(
        &self,
        len_max: usize,
        pieces: &mut Vec<Bytes>,
    ) -> io::Result<usize> {
        let poll = |context: &mut Context<'_>| {
            self.socket.poll_read_bytes_vectored(context, len_max, pieces)
        };
        self.readable.wait(poll).await
    }

    /// Queues all of `bytes`, without a copy. The stack holds them until the peer has acknowledged them
    /// ([`multidata::TcpStream::write_bytes`]).
    ///
    /// Where the future is dropped, or fails, what was not queued is still in `bytes`.
    ///
    /// # Errors
    /// As for writes.
    pub async fn write_bytes(&self, bytes: &mut Bytes) -> io::Result<()> {
        while !bytes.is_empty() {
            self.writable.wait(|context| self.socket.poll_write_bytes(context, bytes)).await?;
        }
        Ok(())
    }

    /// Waits for data and copies it out, leaving it to be read again; zero at the end of the stream.
    ///
    /// # Errors
    /// As for reads.
    pub async fn peek(&self, out: &mut [u8]) -> io::Result<usize> {
        self.readable.wait(|context| self.socket.poll_peek(context, out)).await
    }

    /// As [`TcpStream::peek`], by the task that reads.
    ///
    /// # Errors
    /// As for reads.
    pub fn poll_peek(
        &self,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<usize>> {
        let count = ready!(
            self.readable.poll(context, |context| self.socket.poll_peek(context, cleared(out)))
        )?;
        out.advance(count);
        Poll::Ready(Ok(count))
    }

    /// The two directions, for as long as the stream is borrowed. Costs nothing.
    pub fn split(&mut self) -> (ReadHalf<'_>, WriteHalf<'_>) {
        (ReadHalf::new(self), WriteHalf::new(self))
    }

    /// The two directions, each of which can go to a task of its own. Dropping the writing half ends
    /// the stream.
    #[must_use]
    pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        let shared = Arc::new(self);
        (OwnedReadHalf::new(Arc::clone(&shared)), OwnedWriteHalf::new(shared))
    }

    /// The connection in the hands of threads again: its calls wait.
    ///
    /// # Errors
    /// None; the signature is that of `tokio::net`.
    pub fn into_blocking(self) -> io::Result<multidata::TcpStream> {
        self.socket.set_nonblocking(false)?;
        Ok(self.socket)
    }

    pub(crate) fn poll_read_shared(
        &self,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let count = ready!(
            self.readable.poll(context, |context| self.socket.poll_read(context, cleared(out)))
        )?;
        out.advance(count);
        Poll::Ready(Ok(()))
    }

    pub(crate) fn poll_write_shared(
        &self,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.writable.poll(context, |context| self.socket.poll_write_vectored(context, pieces))
    }

    /// Ends the stream behind what was written. One that the peer has reset has ended: `tokio::net` says so,
    /// too, and who shuts down after an error must not meet another.
    pub(crate) fn end(&self) -> io::Result<()> {
        match self.socket.shutdown(Shutdown::Write) {
            Err(error) if error.kind() == ErrorKind::NotConnected => Ok(()),
            outcome => outcome,
        }
    }
}

/// What of `out` can be written to: all that was before, and a part of what was not.
fn cleared<'a>(out: &'a mut ReadBuf<'_>) -> &'a mut [u8] {
    let ready = out.initialized().len() - out.filled().len();
    out.initialize_unfilled_to(out.remaining().min(ready.max(CLEARED_LEN_BYTES_MAX)))
}

impl TryFrom<multidata::TcpStream> for TcpStream {
    type Error = io::Error;

    /// The connection in the hands of tasks. Its other handles do not wait any more, either.
    fn try_from(socket: multidata::TcpStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self { socket, readable: Direction::new(), writable: Direction::new() })
    }
}

impl AsyncRead for TcpStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_read_shared(context, out)
    }
}

impl AsyncWrite for TcpStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_shared(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_shared(context, pieces)
    }

    /// Several pieces fill segments together, so it pays.
    fn is_write_vectored(&self) -> bool {
        true
    }

    /// What is queued is sent as the peer and the path allow; nothing needs flushing.
    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Ends the stream behind what was written.
    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.end())
    }
}
