//! The directions of a connection, apart.

use crate::TcpStream;
use std::error::Error;
use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The reading direction of a borrowed stream; see [`TcpStream::split`].
#[derive(Debug)]
pub struct ReadHalf<'a> {
    stream: &'a TcpStream,
}

/// The writing direction of a borrowed stream; see [`TcpStream::split`].
#[derive(Debug)]
pub struct WriteHalf<'a> {
    stream: &'a TcpStream,
}

/// The reading direction of a stream; see [`TcpStream::into_split`]. Dropping it does not end
/// anything until the other half is dropped, too.
#[derive(Debug)]
pub struct OwnedReadHalf {
    stream: Arc<TcpStream>,
}

/// The writing direction of a stream; see [`TcpStream::into_split`]. Dropping it ends the stream.
#[derive(Debug)]
pub struct OwnedWriteHalf {
    stream: Arc<TcpStream>,
    ends_on_drop: bool,
}

impl<'a> ReadHalf<'a> {
    pub(crate) fn new(stream: &'a TcpStream) -> Self {
        Self { stream }
    }
}

impl<'a> WriteHalf<'a> {
    pub(crate) fn new(stream: &'a TcpStream) -> Self {
        Self { stream }
    }
}

impl OwnedReadHalf {
    pub(crate) fn new(stream: Arc<TcpStream>) -> Self {
        Self { stream }
    }

    /// Puts the halves together again.
    ///
    /// # Errors
    /// They are of two streams; both are in the error.
    pub fn reunite(self, other: OwnedWriteHalf) -> Result<TcpStream, ReuniteError> {
        if !Arc::ptr_eq(&self.stream, &other.stream) {
            return Err(ReuniteError(self, other));
        }
        other.forget();
        // With the other half gone this is the only one.
        Arc::try_unwrap(self.stream).map_or_else(|_| unreachable!("halves are not cloned"), Ok)
    }
}

impl OwnedWriteHalf {
    pub(crate) fn new(stream: Arc<TcpStream>) -> Self {
        Self { stream, ends_on_drop: true }
    }

    /// Drops the half without ending the stream: who reads on knows how it ends.
    pub fn forget(mut self) {
        self.ends_on_drop = false;
    }
}

impl Drop for OwnedWriteHalf {
    fn drop(&mut self) {
        if self.ends_on_drop {
            // A connection that is gone has ended already.
            drop(self.stream.end());
        }
    }
}

/// Two halves that are not of the same stream.
#[derive(Debug)]
pub struct ReuniteError(pub OwnedReadHalf, pub OwnedWriteHalf);

impl fmt::Display for ReuniteError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the halves are not of the same stream")
    }
}

impl Error for ReuniteError {}

impl AsRef<TcpStream> for ReadHalf<'_> {
    fn as_ref(&self) -> &TcpStream {
        self.stream
    }
}

impl AsRef<TcpStream> for WriteHalf<'_> {
    fn as_ref(&self) -> &TcpStream {
        self.stream
    }
}

impl AsRef<TcpStream> for OwnedReadHalf {
    fn as_ref(&self) -> &TcpStream {
        &self.stream
    }
}

impl AsRef<TcpStream> for OwnedWriteHalf {
    fn as_ref(&self) -> &TcpStream {
        &self.stream
    }
}

impl AsyncRead for ReadHalf<'_> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream.poll_read_shared(context, out)
    }
}

impl AsyncRead for OwnedReadHalf {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream.poll_read_shared(context, out)
    }
}

impl AsyncWrite for WriteHalf<'_> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream.poll_write_shared(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream.poll_write_shared(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.stream.end())
    }
}

impl AsyncWrite for OwnedWriteHalf {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream.poll_write_shared(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream.poll_write_shared(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = self.stream.end();
        self.ends_on_drop &= outcome.is_err();
        Poll::Ready(outcome)
    }
}
