//! Connections to addresses that are not the stack's, for a relay to decide about.

use crate::Stack;
use crate::TcpStream;
use crate::error::socket_error;
use crate::runtime::squeue::Core;
use crate::runtime::turn::resume_unless_panicking;
use crate::socket::Socket;
use crate::socket_set::SocketSet;
use core::fmt;
use core::task::{Context, Poll, Waker};
use ip::{Cidr, IcmpErrorKind};
use stack::{PendingId, SocketError, SocketId};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use time::Instant;

/// Takes the connections to all addresses of a prefix and all ports, before they are answered: what a
/// tunnel's client, a transparent proxy or the network of a virtual machine is made of. The interface
/// they come by accepts the addresses ([`InterfaceConfig::accept_any`](crate::InterfaceConfig::accept_any)).
///
/// ```
/// use multidata::device::{Medium, WireConfig, WireEnd, wire};
/// use multidata::ip::Cidr;
/// use multidata::{InterfaceConfig, Stack, TcpForwarder, TcpStream};
///
/// # fn main() -> std::io::Result<()> {
/// let end = WireEnd::plain(Medium::Ip);
/// let (guest, relay) = wire(WireConfig::new(end, end));
/// let address = |text: &str| InterfaceConfig::new(text.parse().expect("an address and a prefix"));
/// let router = "10.0.2.2".parse().expect("an address");
/// let guest = Stack::builder().interface(guest, address("10.0.2.100/24").gateway(router)).build()?;
/// let any = address("10.0.2.2/24").accept_any(Cidr::ANY_IPV4);
/// let relay = Stack::builder().interface(relay, any).build()?;
///
/// let forwarder = TcpForwarder::bind(&relay, Cidr::ANY_IPV4, 256)?;
/// let deciding = std::thread::spawn(move || -> std::io::Result<()> {
///     let pending = forwarder.next()?;
///     assert_eq!(pending.destination(), "93.184.215.14:80".parse().expect("an address"));
///     // Here a relay opens its own connection to the destination, and answers as that ends.
///     pending.refuse();
///     Ok(())
/// });
/// let refused = TcpStream::connect(&guest, "93.184.215.14:80").expect_err("it said no");
/// assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
/// deciding.join().expect("it ran")
/// # }
/// ```
///
/// It gets what no listener and no other connection of the stack has; of several forwarders the one with the
/// longest prefix does. The stack's own addresses are taken, too, where the prefix has them, but not what
/// the stack sends to itself. In a stack of several squeues the bound holds in each.
///
/// Dropping the last handle forgets what nobody has taken yet; its peers are refused when they ask again.
#[derive(Debug)]
pub struct TcpForwarder {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    sockets: SocketSet,
    prefix: Cidr,
}

impl TcpForwarder {
    /// Takes connections to `prefix`. At most `in_flight_max` (at least one, and no more than 65,536) may wait
    /// for a decision at once, in the stack or in the hands of the application; SYNs beyond are dropped and
    /// counted (`drop_forwarder_full`), and their senders ask again. Each costs some 200 bytes.
    ///
    /// # Errors
    /// `AddrNotAvailable` where no interface has or accepts an address of the prefix; `AddrInUse` where
    /// there is a forwarder with this prefix; `QuotaExceeded` where there are too many of them (64) or
    /// too many sockets.
    pub fn bind(stack: &Stack, prefix: Cidr, in_flight_max: usize) -> io::Result<Self> {
        let sockets =
            SocketSet::open(stack, |_, core, _| core.shard.tcp_forward(prefix, in_flight_max))?;
        Ok(Self { shared: Arc::new(Shared { sockets, prefix: prefix.network() }) })
    }

    /// Waits for the next connection that somebody asks for.
    ///
    /// # Errors
    /// `WouldBlock` where the forwarder does not block and there is none; the device failed.
    pub fn next(&self) -> io::Result<PendingConnection> {
        self.shared.sockets.take(take).map(|(at, id)| PendingConnection::new(at, id))
    }

    /// The next connection that somebody asks for; otherwise the task is woken when there is one.
    ///
    /// # Errors
    /// The device failed.
    pub fn poll_next(&self, context: &mut Context<'_>) -> Poll<io::Result<PendingConnection>> {
        let taken = self.shared.sockets.poll_take(context, take);
        taken.map_ok(|(at, id)| PendingConnection::new(at, id))
    }

    /// What it takes connections to.
    #[must_use]
    pub fn prefix(&self) -> Cidr {
        self.shared.prefix
    }

    /// Another handle of the same forwarder.
    ///
    /// # Errors
    /// None; the signature is that of `std::net`'s sockets.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { shared: Arc::clone(&self.shared) })
    }

    /// Whether [`TcpForwarder::next`] waits (the default) or answers `WouldBlock`.
    ///
    /// # Errors
    /// None; the signature is that of `std::net`'s sockets.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.shared.sockets.set_nonblocking(nonblocking);
        Ok(())
    }

    /// Wakes `waker` once, when somebody asks for a connection. What is there already wakes nobody:
    /// register first, then try.
    pub fn register_waker(&self, waker: &Waker) {
        self.shared.sockets.register_waker(waker);
    }
}

fn take(core: &mut Core, forwarder: SocketId) -> Result<PendingId, SocketError> {
    core.shard.tcp_next_pending(forwarder)
}

/// A connection that a peer asks for and that nobody has answered. Its peer waits, and repeats its
/// question, until it is accepted or refused; where it was silent for 60 s the stack forgets it.
///
/// Dropping it refuses it, so that a relay that fails says so.
pub struct PendingConnection {
    stack: Stack,
    home: usize,
    id: PendingId,
    is_decided: bool,
}

impl fmt::Debug for PendingConnection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "PendingConnection({} to {})", self.peer(), self.destination())
    }
}

impl PendingConnection {
    fn new(at: &Socket, id: PendingId) -> Self {
        Self { stack: at.stack.clone(), home: at.home(), id, is_decided: false }
    }

    /// Where the peer wants to go.
    #[must_use]
    pub fn destination(&self) -> SocketAddr {
        self.id.destination()
    }

    /// Who asks.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.id.peer()
    }

    /// Answers the peer: the connection, whose own end is the destination. It does not wait for the
    /// handshake's end: what is written before is sent behind it, and where the peer does not
    /// complete it, reads and writes say so.
    ///
    /// # Errors
    /// `ConnectionAborted` where the peer took its question back or was silent for too long. What else is in the
    /// way refuses the connection: no route leads to the peer, or there are too many sockets.
    pub fn accept(mut self) -> io::Result<TcpStream> {
        self.is_decided = true;
        let id = self.id;
        let accept = |core: &mut Core, now| core.shard.tcp_accept_pending(now, &id);
        let accepted = self.act(accept).map_err(socket_error)?;
        let socket = Socket::new(self.stack.clone(), self.home, accepted);
        Ok(TcpStream::new(socket, self.destination(), self.peer()))
    }

    /// Answers with a reset: the peer's `connect` says `ConnectionRefused`.
    pub fn refuse(self) {
        drop(self);
    }

    /// Answers with an ICMP error, from where the peer wants to go: that nobody reaches the host
    /// ([`IcmpErrorKind::HostUnreachable`]) or the network, or that it is forbidden. The peer's `connect` says so, on Linux as
    /// on this stack, and it tries its next address at once, where silence would have it wait (RFC 5461, 2.2; some systems
    /// go on asking, as RFC 1122, 4.2.3.9 has it). Where the limit for ICMP errors is reached it is dropped and counted
    /// (`drop_icmp_rate_limited`), and the peer asks again.
    pub fn refuse_with(mut self, why: IcmpErrorKind) {
        self.is_decided = true;
        let id = self.id;
        self.act(|core, now| core.shard.tcp_refuse_pending_with(now, &id, why));
    }

    /// Answers nothing. The peer's next repetition of its question is another [`PendingConnection`].
    pub fn ignore(mut self) {
        self.is_decided = true;
        let id = self.id;
        self.stack.squeue(self.home).look(|core| core.shard.tcp_ignore_pending(&id));
    }

    fn act<T>(&self, act: impl FnOnce(&mut Core, Instant) -> T) -> T {
        self.stack.squeue(self.home).once(act)
    }
}

impl Drop for PendingConnection {
    fn drop(&mut self) {
        if !self.is_decided {
            let (id, mut panic) = (self.id, None);
            let squeue = self.stack.squeue(self.home);
            squeue.once_keeping(&mut panic, |core, now| core.shard.tcp_refuse_pending(now, &id));
            resume_unless_panicking(panic);
        }
    }
}
