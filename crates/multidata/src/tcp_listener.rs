//! A TCP socket that waits for connections.
//!
//! In a stack of several squeues it is a socket in each of them, and connections wait where they are
//! at home. Who accepts begins at another squeue each time, so that none of them waits behind the
//! others, and sleeps as tasks do: the threads of the squeues wake it.

use crate::Stack;
use crate::TcpStream;
use crate::error::socket_error;
use crate::runtime::squeue::Core;
use crate::runtime::turn::{After, Call};
use crate::runtime::waiting::{Interest, Parker};
use crate::socket::{Socket, each_address};
use core::task::{Context, Poll, Waker};
use stack::{ListenOptions, SocketError, SocketId};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Connections that may wait to be accepted, where the caller names no other number.
pub const BACKLOG_DEFAULT: usize = 128;

/// A TCP socket that waits for connections; shaped like [`std::net::TcpListener`].
///
/// Dropping the last handle resets connections that were not accepted.
#[derive(Debug)]
pub struct TcpListener {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// One in each squeue, by number; the first one's settings are the listener's.
    sockets: Box<[Socket]>,
    /// Where the next call begins to look.
    next: AtomicUsize,
    local: SocketAddr,
}

impl TcpListener {
    /// Listens on `address` of `stack`. Port zero picks one; an unspecified address (`0.0.0.0`,
    /// `[::]`) stands for all addresses of the stack.
    ///
    /// # Errors
    /// The address is not one of the stack's, or in use.
    pub fn bind<A: ToSocketAddrs>(stack: &Stack, address: A) -> io::Result<Self> {
        Self::bind_with_backlog(stack, address, BACKLOG_DEFAULT)
    }

    /// As [`TcpListener::bind`], with at most `backlog` connections (at least one) that are open and
    /// not accepted yet. Beyond that, handshakes are not completed until there is room.
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
            let listen = |home: usize, address| {
                let made = stack.squeue(home).once(|core, _| {
                    let id = core.shard.tcp_listen_with(address, options.clone())?;
                    Ok((id, core.shard.local_address(id)?))
                });
                let (id, local) = made.map_err(socket_error)?;
                Ok::<_, io::Error>((Socket::new(stack.clone(), home, id), local))
            };
            // The first squeue picks the port, and says where it is taken.
            let (first, local) = listen(0, address)?;
            let mut sockets = vec![first];
            for home in 1..stack.squeues().len() {
                sockets.push(listen(home, local)?.0);
            }
            let sockets = sockets.into_boxed_slice();
            let shared = Shared { sockets, next: AtomicUsize::new(0), local };
            Ok(Self { shared: Arc::new(shared) })
        })
    }

    /// Waits for the next connection.
    ///
    /// # Errors
    /// `WouldBlock` where the listener does not block and there is none; the device failed.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        match &*self.shared.sockets {
            [only] => Self::accept_from(only, &only.call(Interest::Readable, After::Send)),
            _ => self.accept_from_any(),
        }
    }

    fn accept_from(listener: &Socket, call: &Call) -> io::Result<(TcpStream, SocketAddr)> {
        let accepted = listener.squeue().operate(call, |core, _| take(core, listener.id))?;
        Ok(stream(listener, accepted))
    }

    /// The sockets, from another one on each time.
    fn in_turn(&self) -> impl Iterator<Item = &Socket> {
        let Shared { sockets, next, .. } = &*self.shared;
        let start = next.fetch_add(1, Ordering::Relaxed) % sockets.len();
        sockets[start..].iter().chain(&sockets[..start])
    }

    /// Waits for all squeues at once: their own threads wake this one.
    fn accept_from_any(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let call = self.shared.sockets[0].call(Interest::Readable, After::Send);
        let until = call.timeout.map(|timeout| std::time::Instant::now() + timeout);
        if !call.blocks {
            let mut outcome = Err(io::ErrorKind::WouldBlock.into());
            for listener in self.in_turn() {
                outcome = Self::accept_from(listener, &listener.call_once());
                if !matches!(&outcome, Err(error) if error.kind() == io::ErrorKind::WouldBlock) {
                    break;
                }
            }
            return outcome;
        }
        let parker = Arc::new(Parker::default());
        let waker = Waker::from(Arc::clone(&parker));
        loop {
            if let Poll::Ready(outcome) = self.poll_accept(&mut Context::from_waker(&waker)) {
                return outcome;
            }
            let left =
                until.map(|until| until.saturating_duration_since(std::time::Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                self.forget_waker(&waker);
                return Err(io::ErrorKind::WouldBlock.into());
            }
            parker.park(left);
        }
    }

    /// No squeue is to call this waker any more.
    fn forget_waker(&self, waker: &Waker) {
        self.shared.sockets.iter().for_each(|socket| socket.forget_waker(waker));
    }

    /// The connections as they come, without an end.
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self }
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
        self.shared.sockets[0].set_nonblocking(nonblocking);
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
        for socket in &self.shared.sockets {
            socket.register_waker(Interest::Readable, waker);
        }
    }

    /// Accepts a connection, or has the task woken when there is one.
    pub fn poll_accept(
        &self,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        for listener in self.in_turn() {
            let accepted = listener
                .poll(Interest::Readable, After::Send, context, |core, _| take(core, listener.id));
            if let Poll::Ready(accepted) = accepted {
                if self.shared.sockets.len() > 1 {
                    self.forget_waker(context.waker());
                }
                return Poll::Ready(accepted.map(|accepted| stream(listener, accepted)));
            }
        }
        Poll::Pending
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
}

impl Iterator for Incoming<'_> {
    type Item = io::Result<TcpStream>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.listener.accept().map(|(stream, _)| stream))
    }
}
