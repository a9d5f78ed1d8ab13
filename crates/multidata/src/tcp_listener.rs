//! A TCP socket that waits for connections.

use crate::Stack;
use crate::TcpStream;
use crate::runtime::squeue::Core;
use crate::socket::{Socket, each_address};
use crate::socket_set::SocketSet;
use core::task::{Context, Poll, Waker};
use stack::{BACKLOG_DEFAULT, FastOpenOptions, ListenOptions, SocketError, SocketId};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

/// A TCP socket that waits for connections; shaped like [`std::net::TcpListener`].
///
/// Dropping the last handle resets connections that were not accepted.
#[derive(Debug)]
pub struct TcpListener {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    sockets: SocketSet,
    local: SocketAddr,
}

impl TcpListener {
    /// Listens on `address` of `stack`. Port zero picks one; an unspecified address (`0.0.0.0`,
    /// `[::]`) stands for all addresses of the stack. [`BACKLOG_DEFAULT`] connections may wait to be accepted.
    ///
    /// # Errors
    /// The address is not one of the stack's, or in use.
    pub fn bind<A: ToSocketAddrs>(stack: &Stack, address: A) -> io::Result<Self> {
        Self::bind_with_backlog(stack, address, BACKLOG_DEFAULT)
    }

    /// As [`TcpListener::bind`], with at most `backlog` connections (at least one) that are open and
    /// not accepted yet, in each squeue of the stack. Beyond that, handshakes are not completed until there is room.
    ///
    /// # Errors
    /// As [`TcpListener::bind`].
    pub fn bind_with_backlog<A: ToSocketAddrs>(
        stack: &Stack,
        address: A,
        backlog: usize,
    ) -> io::Result<Self> {
        Self::bind_with(stack, address, &ListenOptions { backlog, ..ListenOptions::default() })
    }

    /// As [`TcpListener::bind`], with all that can be said of a listener: the lengths of its queues,
    /// SYN cookies, fast open, and whether others may share its port.
    ///
    /// # Errors
    /// As [`TcpListener::bind`].
    pub fn bind_with<A: ToSocketAddrs>(
        stack: &Stack,
        address: A,
        options: &ListenOptions,
    ) -> io::Result<Self> {
        each_address(address, |address| {
            // The first squeue picks the port, and says where it is taken.
            let mut local = address;
            let sockets = SocketSet::open(stack, |_, core, _| {
                let id = core.shard.tcp_listen_with(local, options.clone())?;
                local = core.shard.local_address(id)?;
                Ok(id)
            })?;
            Ok(Self { shared: Arc::new(Shared { sockets, local }) })
        })
    }

    /// Changes how TCP Fast Open is served ([`ListenOptions::fast_open`]) from now on: with other keys, for example.
    ///
    /// # Errors
    /// None but that of a listener that is gone.
    pub fn set_fast_open(&self, options: FastOpenOptions) -> io::Result<()> {
        self.shared.sockets.set(|core, id| core.shard.tcp_set_fast_open(id, options))
    }

    /// Waits for the next connection.
    ///
    /// # Errors
    /// `WouldBlock` where the listener does not block and there is none. `NetworkDown` where all devices have failed, all
    /// interfaces were removed or the stack was ended ([`Stack::abort`]): at once and each time until the stack has a
    /// device again, so who accepts in a loop ends it there, or waits for one.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        self.shared.sockets.take(take).map(|(listener, accepted)| stream(listener, accepted))
    }

    /// The connections as they come. Where [`TcpListener::accept`] says `NetworkDown`, that is the last one: a listener
    /// whose stack has a device again has other connections to hand out, by another call.
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self, is_over: false }
    }

    /// The address listened on; the port is the one picked where zero was asked for.
    ///
    /// # Errors
    /// None; the signature is that of `std::net`.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.shared.local)
    }

    /// Another handle of the same listener.
    ///
    /// # Errors
    /// None; the signature is that of `std::net`.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { shared: Arc::clone(&self.shared) })
    }

    /// Whether [`TcpListener::accept`] waits (the default) or answers `WouldBlock`.
    ///
    /// # Errors
    /// None; the signature is that of `std::net`.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.shared.sockets.set_nonblocking(nonblocking);
        Ok(())
    }

    /// The error that is pending on the listener: always `None`.
    ///
    /// # Errors
    /// None; the signature is that of `std::net`.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(None)
    }

    /// Wakes `waker` once, when a connection can be accepted. What is there already wakes nobody:
    /// register first, then try.
    pub fn register_waker(&self, waker: &Waker) {
        self.shared.sockets.register_waker(waker);
    }

    /// Accepts a connection, or has the task woken when there is one.
    pub fn poll_accept(
        &self,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        let taken = self.shared.sockets.poll_take(context, take);
        taken.map_ok(|(listener, accepted)| stream(listener, accepted))
    }
}

/// An accepted connection: the socket, our end, the peer's.
type Accepted = (SocketId, SocketAddr, SocketAddr);

fn stream(listener: &Socket, (id, local, peer): Accepted) -> (TcpStream, SocketAddr) {
    (TcpStream::new(listener.sibling(id), local, peer), peer)
}

/// Takes the connection that has waited longest.
fn take(core: &mut Core, listener: SocketId) -> Result<Accepted, SocketError> {
    let id = core.shard.tcp_accept(listener)?;
    let status = core.shard.tcp_status(id)?;
    Ok((id, status.local, status.remote))
}

/// The connections of a listener as they come; see [`TcpListener::incoming`].
#[derive(Debug)]
pub struct Incoming<'a> {
    listener: &'a TcpListener,
    is_over: bool,
}

impl Iterator for Incoming<'_> {
    type Item = io::Result<TcpStream>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let accepted = self.listener.accept().map(|(stream, _)| stream);
        self.is_over = accepted.as_ref().is_err_and(|error| error.kind() == ErrorKind::NetworkDown);
        Some(accepted)
    }
}
