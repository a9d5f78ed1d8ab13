//! The directions of a connection, apart.

use crate::TcpStream;
use multidata::bytes::Bytes;
use std::error::Error;
use std::fmt;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
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

/// What a half has of its stream, whichever it is.
macro_rules! half_of_a_stream {
    ($half:ty) => {
        impl $half {
            /// Our end of the connection.
            ///
            /// # Errors
            /// None; the signature is that of `tokio::net`.
            pub fn local_addr(&self) -> io::Result<SocketAddr> {
                self.stream.local_addr()
            }

            /// The peer's end of the connection.
            ///
            /// # Errors
            /// None; the signature is that of `tokio::net`.
            pub fn peer_addr(&self) -> io::Result<SocketAddr> {
                self.stream.peer_addr()
            }
        }

        impl AsRef<TcpStream> for $half {
            fn as_ref(&self) -> &TcpStream {
                &self.stream
            }
        }
    };
}

/// What the halves that read have beside [`AsyncRead`].
macro_rules! reading_half {
    ($half:ty) => {
        half_of_a_stream!($half);

        impl $half {
            /// As [`TcpStream::readable`].
            ///
            /// # Errors
            /// As there.
            pub async fn readable(&self) -> io::Result<()> {
                self.stream.readable().await
            }

            /// As [`TcpStream::try_read`].
            ///
            /// # Errors
            /// As there.
            pub fn try_read(&self, out: &mut [u8]) -> io::Result<usize> {
                self.stream.try_read(out)
            }

            /// As [`TcpStream::read_bytes_vectored`].
            ///
            /// # Errors
            /// As there.
            pub async fn read_bytes_vectored(
                &mut self,
                len_max: usize,
                pieces: &mut Vec<Bytes>,
            ) -> io::Result<usize> {
                self.stream.read_bytes_vectored(len_max, pieces).await
            }

            /// As [`TcpStream::peek`].
            ///
            /// # Errors
            /// As there.
            pub async fn peek(&mut self, out: &mut [u8]) -> io::Result<usize> {
                self.stream.peek(out).await
            }

            /// As [`TcpStream::poll_peek`].
            ///
            /// # Errors
            /// As there.
            pub fn poll_peek(
                &mut self,
                context: &mut Context<'_>,
                out: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<usize>> {
                self.stream.poll_peek(context, out)
            }
        }
    };
}

/// What the halves that write have beside [`AsyncWrite`].
macro_rules! writing_half {
    ($half:ty) => {
        half_of_a_stream!($half);

        impl $half {
            /// As [`TcpStream::writable`].
            ///
            /// # Errors
            /// As there.
            pub async fn writable(&self) -> io::Result<()> {
                self.stream.writable().await
            }

            /// As [`TcpStream::try_write`].
            ///
            /// # Errors
            /// As there.
            pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
                self.stream.try_write(bytes)
            }

            /// As [`TcpStream::write_bytes`].
            ///
            /// # Errors
            /// As there.
            pub async fn write_bytes(&mut self, bytes: &mut Bytes) -> io::Result<()> {
                self.stream.write_bytes(bytes).await
            }
        }
    };
}

reading_half!(ReadHalf<'_>);
reading_half!(OwnedReadHalf);
writing_half!(WriteHalf<'_>);
writing_half!(OwnedWriteHalf);

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
        if !self.ends_on_drop {
            return;
        }
        // A connection that is gone has ended already. A device may panic in the turn that follows, and where
        // this thread panics already, a second one would end the process.
        let ended = catch_unwind(AssertUnwindSafe(|| drop(self.stream.end())));
        if let Err(panic) = ended
            && !std::thread::panicking()
        {
            resume_unwind(panic);
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
