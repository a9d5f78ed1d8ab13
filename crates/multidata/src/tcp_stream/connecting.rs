//! How connections are opened, by threads that wait for it and by tasks.

use super::{LENT_LEN_BYTES_MAX, TcpStream};
use crate::Stack;
use crate::error::socket_error;
use crate::runtime::outside::lend;
use crate::runtime::squeue::Core;
use crate::runtime::turn::{After, Call};
use crate::runtime::waiting::Interest;
use crate::socket::{Socket, check_timeout, each_address, ip_options};
use batch::{Block, Chunk};
use bytes::Bytes;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use stack::{Ipv4Options, PacketMarks, SocketError, SocketId, TcpOption};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use tcp::State;
use time::{Duration, Instant};

/// What can be said of a connection before it is opened, for [`TcpStream::connect_with`]: all of it holds for the
/// SYN already.
///
/// ```
/// use multidata::{ConnectOptions, PacketMarks, tcp};
/// use std::time::Duration;
///
/// let config = tcp::Config { nodelay: true, ..tcp::Config::default() };
/// let options = ConnectOptions {
///     local: Some("10.0.0.2:0".parse().expect("an address and a port")),
///     config: Some(config.into()),
///     timeout: Some(Duration::from_secs(5)),
///     marks: PacketMarks { traffic_class: 0xb8, ..PacketMarks::default() },
///     ..ConnectOptions::default()
/// };
/// ```
#[derive(Clone, Debug, Default)]
pub struct ConnectOptions {
    /// The address and port of the stack that it is opened from; what is unspecified of it is picked.
    pub local: Option<SocketAddr>,
    /// Settings of the connection's own; `None` for those of the stack
    /// ([`StackConfig::tcp`](crate::StackConfig::tcp)).
    pub config: Option<Arc<tcp::Config>>,
    /// How long a thread waits at most, above zero; `None`: until the SYN was repeated as often as
    /// [`tcp::Config::syn_retries`] says. Of several addresses each has as long. Tasks give up by dropping
    /// the future, and for them it is refused.
    pub timeout: Option<Duration>,
    /// The first bytes of the stream, which must fit the send buffer; they are held until the peer has
    /// acknowledged them. They go with the SYN where the peer gave a cookie before (TCP Fast Open,
    /// RFC 7413), and else behind the handshake. A network that duplicates the SYN may make the peer's
    /// application see them on two connections, so let them be a request that may be made twice. Where there are
    /// none nothing is asked of fast open.
    pub first: Bytes,
    /// The first bytes go with the SYN though the peer gave no cookie: for peers that are known to take them so
    /// ([`FastOpenOptions::without_cookie`](crate::FastOpenOptions::without_cookie)). Others acknowledge the SYN alone,
    /// and the bytes go again behind the handshake.
    pub first_without_cookie: bool,
    /// Options in the IPv4 header of every packet, see [`TcpStream::set_ip_options`].
    pub ip_options: Vec<u8>,
    /// Traffic class and hop limit, see [`TcpStream::set_tos`] and [`TcpStream::set_ttl`].
    pub marks: PacketMarks,
}

impl TcpStream {
    /// Connects to `address` over `stack` and waits until the connection stands. An IPv4-mapped IPv6 address
    /// (`::ffff:a.b.c.d`) is the IPv4 address, here and wherever sockets are given one; and the scope of a link-local
    /// one (`fe80::1%2`) is the interface on whose link the peer is, counted from one, so one more than the index that
    /// [`Stack`]'s calls take. Zero is the first that has a route there.
    ///
    /// # Errors
    /// No route, the peer refused or did not answer, the stack has no port left.
    pub fn connect<A: ToSocketAddrs>(stack: &Stack, address: A) -> io::Result<Self> {
        Self::connect_with(stack, address, &ConnectOptions::default())
    }

    /// As [`TcpStream::connect`], from this address and port of the stack (either may be
    /// unspecified).
    ///
    /// # Errors
    /// As [`TcpStream::connect`], and where the local address is not the stack's.
    pub fn connect_from<A: ToSocketAddrs>(
        stack: &Stack,
        local: SocketAddr,
        address: A,
    ) -> io::Result<Self> {
        let options = ConnectOptions { local: Some(local), ..ConnectOptions::default() };
        Self::connect_with(stack, address, &options)
    }

    /// As [`TcpStream::connect`], for at most `timeout`.
    ///
    /// # Errors
    /// As [`TcpStream::connect`]; `TimedOut` where it took longer; `InvalidInput` for zero.
    pub fn connect_timeout(
        stack: &Stack,
        address: &SocketAddr,
        timeout: Duration,
    ) -> io::Result<Self> {
        let options = ConnectOptions { timeout: Some(timeout), ..ConnectOptions::default() };
        Self::connect_with(stack, address, &options)
    }

    /// As [`TcpStream::connect`], with all that can be said of a connection.
    ///
    /// # Errors
    /// As [`TcpStream::connect`]; `AddrNotAvailable` where the local address is not the stack's, `AddrInUse`
    /// where it has such a connection; `TimedOut` where it took longer; `InvalidInput` for a timeout of zero,
    /// for settings that no connection can work with ([`tcp::Config::check`]), for first bytes that do not fit the send
    /// buffer, and for IP options that are malformed, of a kind that is not sent, or for IPv6.
    pub fn connect_with<A: ToSocketAddrs>(
        stack: &Stack,
        address: A,
        options: &ConnectOptions,
    ) -> io::Result<Self> {
        check_timeout(options.timeout)?;
        each_address(address, |remote| {
            let socket = begin(stack, remote, options)?;
            let call = socket.call(Interest::Writable, After::Leave);
            let call = Call { timeout: options.timeout, expired: ErrorKind::TimedOut, ..call };
            let (local, peer) =
                socket.squeue().operate(&call, |core, _| opened(core, socket.id))?;
            Ok(Self::new(socket, local, peer))
        })
    }

    /// Begins to connect to `remote`. The [`Connecting`] is polled, or awaited, for the connection.
    ///
    /// # Errors
    /// No route; the stack has no port or socket left.
    pub fn start_connect(stack: &Stack, remote: SocketAddr) -> io::Result<Connecting> {
        Self::start_connect_with(stack, remote, &ConnectOptions::default())
    }

    /// As [`TcpStream::start_connect`], with all that can be said of a connection but for a timeout.
    ///
    /// # Errors
    /// As [`TcpStream::start_connect`] and, but for `TimedOut`, [`TcpStream::connect_with`]; `InvalidInput` for a
    /// timeout.
    pub fn start_connect_with(
        stack: &Stack,
        remote: SocketAddr,
        options: &ConnectOptions,
    ) -> io::Result<Connecting> {
        if options.timeout.is_some() {
            let message = "a task gives up connecting by dropping the future, not by a timeout";
            return Err(io::Error::new(ErrorKind::InvalidInput, message));
        }
        Ok(Connecting { socket: Some(begin(stack, remote, options)?) })
    }
}

/// Opens the socket; its SYN leaves with all that was asked for.
fn begin(stack: &Stack, remote: SocketAddr, options: &ConnectOptions) -> io::Result<Socket> {
    let ip_options = ip_options(&options.ip_options)?;
    if let Some(Err(wrong)) = options.config.as_deref().map(tcp::Config::check) {
        let message = format!("tcp::Config of the connection: {wrong}");
        return Err(io::Error::new(ErrorKind::InvalidInput, message));
    }
    let home = stack.squeues().for_connection(options.local, remote).map_err(socket_error)?;
    let id = stack.squeue(home).once(|core, now| {
        let id = open(core, now, remote, options)?;
        let set = ask(core, now, id, options, ip_options);
        if set.is_err() {
            core.shard.close(now, id);
        }
        set.map(|()| id)
    });
    id.map(|id| Socket::new(stack.clone(), home, id)).map_err(|error| match error {
        // Nothing else of it would wait.
        SocketError::WouldBlock => {
            let message = "the first bytes do not fit the send buffer of the connection";
            io::Error::new(ErrorKind::InvalidInput, message)
        }
        _ => socket_error(error),
    })
}

fn open(
    core: &mut Core,
    now: Instant,
    remote: SocketAddr,
    options: &ConnectOptions,
) -> Result<SocketId, SocketError> {
    let ConnectOptions { local, config, first, first_without_cookie, .. } = options;
    match (first.len(), config) {
        (0, None) => core.shard.tcp_connect(now, *local, remote),
        (0, Some(config)) => core.shard.tcp_connect_with(now, *local, remote, Arc::clone(config)),
        (..=LENT_LEN_BYTES_MAX, config) => {
            let first = Chunk::whole(Block::from(lend(first.clone())));
            let config = config.clone();
            core.shard.tcp_connect_fast(now, *local, remote, config, first, *first_without_cookie)
        }
        _ => Err(SocketError::WouldBlock),
    }
}

/// What is asked for before anything was sent.
fn ask(
    core: &mut Core,
    now: Instant,
    id: SocketId,
    options: &ConnectOptions,
    ip_options: Ipv4Options,
) -> Result<(), SocketError> {
    if !ip_options.is_empty() {
        core.shard.tcp_set_option(now, id, TcpOption::IpOptions(ip_options))?;
    }
    if options.marks != PacketMarks::default() {
        core.shard.set_marks(id, options.marks)?;
    }
    Ok(())
}

/// A connection that is being opened. As a future it resolves to the connection; dropping it gives
/// the attempt up.
#[derive(Debug)]
pub struct Connecting {
    /// Until the connection stands, or failed.
    socket: Option<Socket>,
}

impl Connecting {
    /// The connection, when it stands; otherwise the task is woken when that may be the case.
    ///
    /// # Errors
    /// As [`TcpStream::connect`]; `InvalidInput` where the outcome was given before.
    pub fn poll_open(&mut self, context: &mut Context<'_>) -> Poll<io::Result<TcpStream>> {
        let Some(socket) = &self.socket else {
            return Poll::Ready(Err(socket_error(SocketError::InvalidSocket)));
        };
        let ends = ready!(socket.poll(Interest::Writable, After::Leave, context, |core, _| {
            opened(core, socket.id)
        }));
        let socket = self.socket.take();
        Poll::Ready(ends.and_then(|(local, peer)| {
            let socket = socket.ok_or_else(|| socket_error(SocketError::InvalidSocket))?;
            Ok(TcpStream::new(socket, local, peer))
        }))
    }
}

impl Future for Connecting {
    type Output = io::Result<TcpStream>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_open(context)
    }
}

/// Our address and the peer's, once the connection stands.
fn opened(core: &mut Core, id: SocketId) -> Result<(SocketAddr, SocketAddr), SocketError> {
    let status = core.shard.tcp_status(id)?;
    match (status.error, status.state) {
        (Some(error), _) => Err(error),
        (None, State::SynSent | State::SynReceived) => Err(SocketError::WouldBlock),
        (None, _) => Ok((status.local, status.remote)),
    }
}
