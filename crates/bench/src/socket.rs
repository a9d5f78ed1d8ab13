//! A connected byte stream, whoever implements it.
//!
//! The workloads run over this stack's sockets and over the kernel's alike, so that both ends of a
//! measurement do the same work.

use bytes::Bytes;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use tokio::io::{AsyncRead, AsyncWrite};

/// A connected byte stream. Reading and writing may happen in two threads at once.
pub trait Socket: Sync + Sized {
    /// The same stream in the hands of a task.
    type ForTasks: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Hands the stream to a task of the runtime that the caller is in.
    ///
    /// # Errors
    /// What the socket says.
    fn for_tasks(self) -> io::Result<Self::ForTasks>;

    /// Reads at least one byte; 0 is the end of the stream.
    ///
    /// # Errors
    /// What the socket says.
    fn receive(&self, bytes: &mut [u8]) -> io::Result<usize>;

    /// Whether [`Socket::receive_shared`] can hand out the memory that was received into.
    const LENDS: bool = false;

    /// Appends at least one byte and at most `len_max` to `pieces`, without copying them, and says how
    /// many; 0 is the end of the stream.
    ///
    /// # Errors
    /// What the socket says; `Unsupported` where it does not lend.
    fn receive_shared(&self, len_max: usize, pieces: &mut Vec<Bytes>) -> io::Result<usize> {
        let _ = (len_max, pieces);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Writes all of `bytes`.
    ///
    /// # Errors
    /// What the socket says.
    fn send(&self, bytes: &[u8]) -> io::Result<()>;

    /// Writes all of `bytes`, without copying them where the socket can do that.
    ///
    /// # Errors
    /// What the socket says.
    fn send_shared(&self, bytes: Bytes) -> io::Result<()>;

    /// Ends the stream to the other end.
    ///
    /// # Errors
    /// What the socket says.
    fn finish(&self) -> io::Result<()>;

    /// This end's address.
    ///
    /// # Errors
    /// What the socket says.
    fn local(&self) -> io::Result<SocketAddr>;

    /// The other end's address.
    ///
    /// # Errors
    /// What the socket says.
    fn remote(&self) -> io::Result<SocketAddr>;
}

impl Socket for std::net::TcpStream {
    type ForTasks = tokio::net::TcpStream;

    fn for_tasks(self) -> io::Result<Self::ForTasks> {
        self.set_nonblocking(true)?;
        tokio::net::TcpStream::from_std(self)
    }

    fn receive(&self, bytes: &mut [u8]) -> io::Result<usize> {
        retry_interrupted(|| (&*self).read(bytes))
    }

    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        (&*self).write_all(bytes)
    }

    fn send_shared(&self, bytes: Bytes) -> io::Result<()> {
        (&*self).write_all(&bytes)
    }

    fn finish(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }

    fn local(&self) -> io::Result<SocketAddr> {
        self.local_addr()
    }

    fn remote(&self) -> io::Result<SocketAddr> {
        self.peer_addr()
    }
}

/// Repeats a call that a signal interrupted.
pub(crate) fn retry_interrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}
