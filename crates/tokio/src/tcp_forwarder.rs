//! Connections to addresses that are not the stack's, for a relay to decide about.

use crate::TcpStream;
use crate::direction::Direction;
use multidata::Stack;
use multidata::ip::{Cidr, IcmpErrorKind};
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

/// Takes the connections to all addresses of a prefix and all ports, before they are answered; see
/// [`multidata::TcpForwarder`]. `examples/forwarder` relays those of a whole network namespace.
#[derive(Debug)]
pub struct TcpForwarder {
    socket: multidata::TcpForwarder,
    arrived: Direction,
}

impl TcpForwarder {
    /// Takes connections to `prefix`, of which at most `in_flight_max` wait for a decision at once.
    ///
    /// # Errors
    /// As [`multidata::TcpForwarder::bind`].
    pub fn bind(stack: &Stack, prefix: Cidr, in_flight_max: usize) -> io::Result<Self> {
        multidata::TcpForwarder::bind(stack, prefix, in_flight_max).and_then(Self::try_from)
    }

    /// Waits for the next connection that somebody asks for. None is lost where the future is dropped.
    ///
    /// # Errors
    /// The device failed.
    pub async fn next(&self) -> io::Result<PendingConnection> {
        let pending = self.arrived.wait(|context| self.socket.poll_next(context)).await?;
        self.arrived.wake();
        Ok(PendingConnection { pending })
    }

    /// As [`TcpForwarder::next`], by the task that called last.
    ///
    /// # Errors
    /// As [`TcpForwarder::next`].
    pub fn poll_next(&self, context: &mut Context<'_>) -> Poll<io::Result<PendingConnection>> {
        let taken = self.arrived.poll(context, |context| self.socket.poll_next(context));
        taken.map_ok(|pending| {
            self.arrived.wake();
            PendingConnection { pending }
        })
    }

    /// What it takes connections to.
    #[must_use]
    pub fn prefix(&self) -> Cidr {
        self.socket.prefix()
    }
}

impl TryFrom<multidata::TcpForwarder> for TcpForwarder {
    type Error = io::Error;

    /// The forwarder in the hands of tasks; its other handles do not wait any more, either.
    fn try_from(socket: multidata::TcpForwarder) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self { socket, arrived: Direction::new() })
    }
}

/// A connection that a peer asks for and that nobody has answered; see
/// [`multidata::PendingConnection`]. Dropping it, as by a task that fails, refuses it.
#[derive(Debug)]
pub struct PendingConnection {
    pending: multidata::PendingConnection,
}

impl PendingConnection {
    /// Where the peer wants to go.
    #[must_use]
    pub fn destination(&self) -> SocketAddr {
        self.pending.destination()
    }

    /// Who asks.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.pending.peer()
    }

    /// Answers the peer; waits for nothing, not for the end of the handshake either.
    ///
    /// # Errors
    /// As [`multidata::PendingConnection::accept`].
    pub fn accept(self) -> io::Result<TcpStream> {
        self.pending.accept().and_then(TcpStream::try_from)
    }

    /// Answers with a reset: the peer's `connect` says `ConnectionRefused`.
    pub fn refuse(self) {
        self.pending.refuse();
    }

    /// Answers with an ICMP error; as [`multidata::PendingConnection::refuse_with`].
    pub fn refuse_with(self, why: IcmpErrorKind) {
        self.pending.refuse_with(why);
    }

    /// Answers nothing. The peer's next repetition of its question is another [`PendingConnection`].
    pub fn ignore(self) {
        self.pending.ignore();
    }
}
