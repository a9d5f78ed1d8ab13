//! A TCP socket that waits for connections.

use crate::TcpStream;
use crate::direction::Direction;
use multidata::{FastOpenOptions, ListenOptions, Stack};
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

/// A TCP socket that waits for connections; shaped like `tokio::net::TcpListener`.
///
/// Dropping it resets connections that were not accepted.
///
/// A stack of several squeues takes a listener's waker back from all of them once one had a
/// connection, so every accept has the other tasks that wait try again.
#[derive(Debug)]
pub struct TcpListener {
    socket: multidata::TcpListener,
    acceptable: Direction,
}

impl TcpListener {
    /// Listens on `address` of `stack`, without waiting for anything. Port zero picks one; an
    /// unspecified address stands for all addresses of the stack.
    ///
    /// # Errors
    /// The address is not one of the stack's, or in use.
    pub fn bind(stack: &Stack, address: impl Into<SocketAddr>) -> io::Result<Self> {
        Self::bind_with(stack, address, &ListenOptions::default())
    }

    /// As [`TcpListener::bind`], with all that can be said of a listener.
    ///
    /// # Errors
    /// As [`TcpListener::bind`].
    pub fn bind_with(
        stack: &Stack,
        address: impl Into<SocketAddr>,
        options: &ListenOptions,
    ) -> io::Result<Self> {
        multidata::TcpListener::bind_with(stack, address.into(), options).and_then(Self::try_from)
    }

    /// Changes how TCP Fast Open is served ([`ListenOptions::fast_open`]) from now on: with other keys, for example.
    ///
    /// # Errors
    /// None but that of a listener that is gone.
    pub fn set_fast_open(&self, options: FastOpenOptions) -> io::Result<()> {
        self.socket.set_fast_open(options)
    }

    /// Waits for the next connection. No connection is lost where the future is dropped.
    ///
    /// # Errors
    /// `NetworkDown` where all devices have failed, all interfaces were removed or the stack was ended: at once and each
    /// time until the stack has a device again, so who accepts in a loop ends it there, or waits for one
    /// ([`Stack::next_event`]).
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (stream, peer) =
            self.acceptable.wait(|context| self.socket.poll_accept(context)).await?;
        self.acceptable.wake();
        Ok((TcpStream::try_from(stream)?, peer))
    }

    /// As [`TcpListener::accept`], by the task that called last.
    ///
    /// # Errors
    /// As [`TcpListener::accept`].
    pub fn poll_accept(
        &self,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        let accepted = self.acceptable.poll(context, |context| self.socket.poll_accept(context));
        accepted.map(|outcome| {
            let (stream, peer) = outcome?;
            self.acceptable.wake();
            Ok((TcpStream::try_from(stream)?, peer))
        })
    }

    /// The address listened on; the port is the one picked where zero was asked for.
    ///
    /// # Errors
    /// None; the signature is that of `tokio::net`.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }
}

impl TryFrom<multidata::TcpListener> for TcpListener {
    type Error = io::Error;

    /// The listener in the hands of tasks; its other handles do not wait any more, either.
    fn try_from(socket: multidata::TcpListener) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self { socket, acceptable: Direction::new() })
    }
}
