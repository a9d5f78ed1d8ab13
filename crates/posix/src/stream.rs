//! TCP sockets as programs see them: what they are, binding, listening, accepting, ending.
//! Opening is in `connecting.rs`, reading and writing in `transfer.rs`.

use crate::abi::{
    AF_INET, AF_INET6, IPPROTO_TCP, IPPROTO_UDP, SHUT_RD, SHUT_RDWR, SHUT_WR, SOCK_CLOEXEC,
    SOCK_DGRAM, SOCK_NONBLOCK, SOCK_STREAM,
};
use crate::addresses::Domain;
use crate::call::{Fd, Output, Reply};
use crate::datagram::Datagram;
use crate::descriptors::File;
use crate::epoll::News;
use crate::host::{Attempt, Host, Stop, Task};
use crate::options::Options;
use crate::zero_copy::ZeroCopy;
use crate::{Address, Errno};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use stack::{BindOptions, Ipv4Options, ListenOptions, SocketError, SocketId, TcpStatus};
use tcp::State;
use time::{Duration, Instant};

/// The most connections that may wait to be accepted (Linux: somaxconn).
pub(crate) const BACKLOG_MAX: usize = 4_096;

/// A TCP socket.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) domain: Domain,
    pub(crate) options: Options,
    pub(crate) bound: Option<SocketAddr>,
    /// What it is bound to came with what it listens for or is connected to, and goes with that.
    picked: bool,
    pub(crate) phase: Phase,
    /// What listen(2) asked for last.
    pub(crate) backlog: usize,
    pub(crate) nonblocking: bool,
    /// Where a connection that waits for its first write (TCP_FASTOPEN_CONNECT) will go.
    pub(crate) deferred: Option<Address>,
    /// shutdown(SHUT_RD) was called, be it in vain.
    pub(crate) read_shut: bool,
    /// shutdown(SHUT_WR) was called, be it in vain.
    pub(crate) write_shut: bool,
    /// shutdown(2) met an open that had failed: before another, the program must leave it.
    pub(crate) must_leave: bool,
    /// The error was told to the program; from then on the stream has merely ended.
    pub(crate) error_told: bool,
    /// The error of a connection that this socket has left, where it was not told.
    pub(crate) error_left: Option<Errno>,
    /// A write found no room, or too little.
    pub(crate) lacks_space: bool,
    /// Bytes written to the connection.
    pub(crate) written: u64,
    pub(crate) zero_copy: ZeroCopy,
    /// Room was made since.
    pub(crate) space_made: bool,
    /// A write with MSG_MORE was the last.
    pub(crate) more_follows: bool,
    /// When what is held back for more is sent all the same.
    pub(crate) cork_ends: Option<Instant>,
    /// Epoll has heard that the peer will send no more.
    pub(crate) end_seen: bool,
}

/// Where in its life a TCP socket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Neither listens nor is connected.
    Idle,
    Listening(SocketId),
    /// connect(2) was called and has not told of success or failure.
    Connecting(SocketId),
    Connected(SocketId),
}

impl Stream {
    pub(crate) fn new(domain: Domain, nonblocking: bool) -> Self {
        Self {
            domain,
            options: Options::default(),
            bound: None,
            picked: false,
            phase: Phase::Idle,
            backlog: 0,
            nonblocking,
            deferred: None,
            read_shut: false,
            write_shut: false,
            must_leave: false,
            error_told: false,
            error_left: None,
            lacks_space: false,
            written: 0,
            zero_copy: ZeroCopy::default(),
            space_made: false,
            more_follows: false,
            cork_ends: None,
            end_seen: false,
        }
    }

    pub(crate) fn id(&self) -> Option<SocketId> {
        match self.phase {
            Phase::Idle => None,
            Phase::Listening(id) | Phase::Connecting(id) | Phase::Connected(id) => Some(id),
        }
    }

    /// It neither listens nor is connected any more: nothing of it is shut, and the port is free that was picked for it.
    pub(crate) fn become_idle(&mut self) {
        self.phase = Phase::Idle;
        (self.read_shut, self.write_shut, self.must_leave) = (false, false, false);
        // What was held back went with the connection.
        (self.more_follows, self.cork_ends) = (false, None);
        self.bound = self.bound.filter(|_| !self.picked);
        self.picked = false;
    }

    /// The connection, whether open yet or not.
    pub(crate) fn connection(&self) -> Option<SocketId> {
        match self.phase {
            Phase::Connecting(id) | Phase::Connected(id) => Some(id),
            Phase::Idle | Phase::Listening(_) => None,
        }
    }

    /// Whether a call with these flags must not wait.
    pub(crate) fn waits_not(&self, flags: i32) -> bool {
        self.nonblocking || flags & crate::abi::MSG_DONTWAIT != 0
    }
}

/// Whether two sockets are bound to the same port of an address that both have. One for all IPv6 addresses has all of
/// IPv4, too, unless it is for one family only.
fn meet(first: (SocketAddr, bool), second: (SocketAddr, bool)) -> bool {
    let families = |(bound, one_family): (SocketAddr, bool)| {
        let any = bound.ip().is_unspecified();
        (bound.is_ipv4() || (any && !one_family), bound.is_ipv6())
    };
    let (of_first, of_second) = (families(first), families(second));
    let share = (of_first.0 && of_second.0) || (of_first.1 && of_second.1);
    let (first, second) = (first.0, second.0);
    let any = first.ip().is_unspecified() || second.ip().is_unspecified();
    first.port() == second.port() && share && (any || first.ip() == second.ip())
}

/// What TCP_DEFER_ACCEPT becomes: Linux counts in timeouts of the SYN-ACK, each twice as long as the one before, two minutes
/// at most, and no more than 255 of them.
pub(crate) fn deferral_s(asked_s: i32) -> i32 {
    let (mut sum_s, mut timeout_s) = (0, 1);
    for _ in 0..255 {
        if sum_s >= asked_s {
            break;
        }
        sum_s += timeout_s;
        timeout_s = (timeout_s * 2).min(120);
    }
    sum_s
}

/// Whether the handshake is over.
pub(crate) fn is_open(state: State) -> bool {
    !matches!(state, State::Closed | State::Listen | State::SynSent | State::SynReceived)
}

impl Host {
    pub(crate) fn socket(&mut self, domain: i32, kind: i32, protocol: i32) -> Attempt {
        let family = match u16::try_from(domain) {
            Ok(AF_INET) => Domain::Inet,
            Ok(AF_INET6) => Domain::Inet6,
            _ => return Err(Errno::EAFNOSUPPORT.into()),
        };
        let nonblocking = kind & SOCK_NONBLOCK != 0;
        let file = match (kind & !(SOCK_NONBLOCK | SOCK_CLOEXEC), protocol) {
            (SOCK_STREAM, 0 | IPPROTO_TCP) => {
                let mut stream = Stream::new(family, nonblocking);
                let tcp::Keepalive { idle, interval, count } = self.config.keepalive;
                stream.options.keepalive_idle_s = idle.as_secs() as i32;
                stream.options.keepalive_interval_s = interval.as_secs() as i32;
                stream.options.keepalive_count = count as i32;
                File::Stream(Box::new(stream))
            }
            (SOCK_DGRAM, 0 | IPPROTO_UDP) => {
                File::Datagram(Box::new(Datagram::new(family, nonblocking)))
            }
            (SOCK_STREAM | SOCK_DGRAM, _) => return Err(Errno::EPROTONOSUPPORT.into()),
            // No kind at all, and SOCK_RAW to SOCK_PACKET, the last there is.
            (0 | 3..=10, _) => return Err(Errno::ESOCKTNOSUPPORT.into()),
            _ => return Err(Errno::EINVAL.into()),
        };
        let fd = self.files.insert(file)?;
        self.files.set_close_on_exec(fd, kind & SOCK_CLOEXEC != 0);
        Ok(Reply::value(fd.into()))
    }

    pub(crate) fn bind_stream(&mut self, fd: Fd, local: SocketAddr) -> Attempt {
        if self.is_bound(fd)? {
            return Err(Errno::EINVAL.into());
        }
        let ours = self.files.stream(fd)?;
        let (reuses, shares) = (ours.options.reuse_address, ours.options.reuse_port);
        let one_family = ours.options.ipv6_only;
        let in_the_way = self.files.streams().any(|(other_fd, other)| {
            let listens = matches!(other.phase, Phase::Listening(_));
            let both_reuse = reuses && other.options.reuse_address && !listens;
            let both_share = shares && other.options.reuse_port;
            let meets = other
                .bound
                .is_some_and(|bound| meet((bound, other.options.ipv6_only), (local, one_family)));
            other_fd != fd && meets && !both_reuse && !both_share
        });
        if local.port() != 0 && in_the_way {
            return Err(Errno::EADDRINUSE.into());
        }
        let ours = self.files.stream(fd)?;
        (ours.bound, ours.picked) = (Some(local), false);
        ours.options.settle_family(local);
        Ok(Reply::value(0))
    }

    pub(crate) fn listen(&mut self, fd: Fd, backlog: i32) -> Attempt {
        let stream = self.files.stream(fd)?;
        // A negative number means as many as the system allows.
        let asked = usize::try_from(backlog).unwrap_or(BACKLOG_MAX).min(BACKLOG_MAX);
        // Linux keeps one more than asked for.
        let backlog = asked + 1;
        stream.backlog = asked;
        match stream.phase {
            Phase::Idle => {}
            Phase::Listening(id) => {
                self.shard().tcp_set_backlog(id, backlog)?;
                return Ok(Reply::value(0));
            }
            Phase::Connecting(_) | Phase::Connected(_) => return Err(Errno::EINVAL.into()),
        }
        let any = match stream.domain {
            Domain::Inet => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            Domain::Inet6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let local = stream.bound.unwrap_or(SocketAddr::new(any, 0));
        let domain = stream.domain;
        let pending_default = self.fast_open_default(asked);
        let stream = self.files.stream(fd)?;
        if stream.options.fast_open.pending_max == 0 {
            stream.options.fast_open.pending_max = pending_default;
        }
        let options = stream.options.clone();
        let config = Some(options.config(&self.config.tcp));
        let one_family = local.is_ipv4() || options.ipv6_only;
        let bind = BindOptions { shared: options.reuse_port, yielding: false, one_family };
        let marks = options.marks_over(local.is_ipv4(), domain);
        let (fast_open, defer_accept) = (self.served(&options), options.defer_accept());
        let defaults = self.config.listen.clone();
        let options = ListenOptions {
            config,
            backlog,
            bind,
            fast_open,
            defer_accept,
            free_bind: options.free_bind,
            marks,
            ..defaults
        };
        let id = self.shard().tcp_listen_with(local, options)?;
        let local = self.shard().local_address(id)?;
        let stream = self.files.stream(fd)?;
        stream.picked = stream.bound.is_none();
        stream.bound = Some(local);
        stream.phase = Phase::Listening(id);
        Ok(Reply::value(0))
    }

    pub(crate) fn accept(&mut self, task: &Task, fd: Fd) -> Attempt {
        let has_room = self.files.have_room_for(1);
        let stream = self.files.stream(fd)?;
        // As Linux, first: a connection that was taken would be nobody's, and waits now.
        if !has_room {
            return Err(Errno::EMFILE.into());
        }
        let Phase::Listening(listener) = stream.phase else { return Err(Errno::EINVAL.into()) };
        let (domain, mut options) = (stream.domain, stream.options.clone());
        let waits_not = stream.waits_not(0);
        let id = match self.shard().tcp_accept(listener) {
            Ok(id) => id,
            Err(SocketError::WouldBlock) => {
                return Err(self.wait(task, waits_not, options.receive_timeout));
            }
            Err(error) => return Err(error.into()),
        };
        let status = self.shard().tcp_status(id)?;
        // As Linux: of all options the listener's priority and those in the IPv4 header are not handed on. There an accepted
        // connection has what its SYN's make when they are turned round, which this stack does not do.
        options.ip_options = Ipv4Options::NONE;
        options.priority = 0;
        let mut accepted = Stream::new(domain, false);
        accepted.options = options;
        (accepted.bound, accepted.picked) = (Some(status.local), true);
        accepted.phase = Phase::Connected(id);
        let fd = self.files.insert(File::Stream(Box::new(accepted)))?;
        self.apply_options(fd)?;
        let output = Output::Address(Address::seen_from(domain, status.remote));
        Ok(Reply { value: fd.into(), output })
    }

    pub(crate) fn shutdown(&mut self, fd: Fd, how: i32) -> Attempt {
        // Whether there is such a socket comes first.
        self.options(fd)?;
        if !(SHUT_RD..=SHUT_RDWR).contains(&how) {
            return Err(Errno::EINVAL.into());
        }
        let now = self.now;
        if let File::Datagram(_) = self.files.get(fd)? {
            return self.shutdown_datagram(fd, how);
        }
        let phase = self.files.stream(fd)?.phase;
        match phase {
            Phase::Idle => {
                // As Linux: it fails, but holds, also for a connection that the socket opens later.
                self.shut(fd, how)?;
                return Err(Errno::ENOTCONN.into());
            }
            Phase::Listening(id) => {
                if how != SHUT_WR {
                    self.disconnect(fd, id)?;
                }
                self.wake(fd, News::STATE);
                return Ok(Reply::value(0));
            }
            Phase::Connecting(_) | Phase::Connected(_) => {}
        }
        let Some((id, status)) = self.status(fd)? else { return Err(Errno::ENOTCONN.into()) };
        match status.state {
            State::Closed | State::Listen => {
                let stream = self.files.stream(fd)?;
                stream.must_leave = matches!(stream.phase, Phase::Connecting(_));
                self.shut(fd, how)?;
                return Err(Errno::ENOTCONN.into());
            }
            State::SynSent => {
                // As Linux: an open that is under way is given up, and the socket may begin another.
                self.disconnect(fd, id)?;
                return Ok(Reply::value(0));
            }
            // What connect(2) would still have told is told by this.
            state if is_open(state) => self.files.stream(fd)?.phase = Phase::Connected(id),
            _ => {}
        }
        if how != SHUT_WR {
            self.shard().tcp_shutdown_read(id)?;
        }
        if how != SHUT_RD {
            self.shard().tcp_shutdown_write(now, id)?;
        }
        self.shut(fd, how)?;
        Ok(Reply::value(0))
    }

    /// Notes which directions the program has ended.
    fn shut(&mut self, fd: Fd, how: i32) -> Result<(), Errno> {
        let stream = self.files.stream(fd)?;
        stream.read_shut |= how != SHUT_WR;
        stream.write_shut |= how != SHUT_RD;
        self.wake(fd, News::STATE);
        Ok(())
    }

    pub(crate) fn close_stream(&mut self, task: &mut Task, stream: &Stream) -> Attempt {
        let now = self.now;
        let Some(id) = stream.id() else { return Ok(Reply::value(0)) };
        let linger = stream.options.linger;
        if linger == Some(Duration::ZERO) && stream.connection().is_some() {
            self.shard().tcp_abort(now, id);
        }
        self.shard().close(now, id);
        match linger {
            Some(span) if span > Duration::ZERO && stream.connection().is_some() => {
                task.lingering = Some(id);
                task.started = now + span;
                self.linger(task, id)
            }
            _ => Ok(Reply::value(0)),
        }
    }

    /// close(2) with SO_LINGER: waits until everything was acknowledged, or for the time set.
    pub(crate) fn linger(&mut self, task: &Task, id: SocketId) -> Attempt {
        let until: Instant = task.started;
        let is_done = self.shard().tcp_status(id).map_or(true, |status| {
            matches!(status.state, State::FinWait2 | State::TimeWait | State::Closed)
        });
        match is_done || self.now >= until {
            true => Ok(Reply::value(0)),
            false => Err(Stop::Wait(Some(until))),
        }
    }

    /// The connection behind a stream and how it stands; `None` where there is none (any more). TIME-WAIT is the
    /// system's business: to the socket, which has all that it will ever get, the connection is closed.
    pub(crate) fn status(&mut self, fd: Fd) -> Result<Option<(SocketId, TcpStatus)>, Errno> {
        let Some(id) = self.files.stream(fd)?.connection() else { return Ok(None) };
        let Ok(mut status) = self.shard().tcp_status(id) else { return Ok(None) };
        if status.state == State::TimeWait {
            status.state = State::Closed;
        }
        Ok(Some((id, status)))
    }

    /// Whether a stream neither listens nor has a connection, or one that failed or is over.
    pub(crate) fn is_idle(&mut self, fd: Fd) -> Result<bool, Errno> {
        let is_over = self.status(fd)?.is_some_and(|(_, status)| status.state == State::Closed);
        Ok(is_over || self.files.stream(fd)?.phase == Phase::Idle)
    }

    /// As Linux: the port that was picked for a connection is free when that is over.
    pub(crate) fn is_bound(&mut self, fd: Fd) -> Result<bool, Errno> {
        let is_idle = self.is_idle(fd)?;
        let stream = self.files.stream(fd)?;
        Ok(!is_idle || (stream.bound.is_some() && !stream.picked))
    }

    /// The error of a connection, told once.
    pub(crate) fn take_error(&mut self, fd: Fd) -> Result<Option<Errno>, Errno> {
        let told = |status: TcpStatus| {
            status.error.map(|error| Errno::told(error, status.remote.is_ipv4()))
        };
        let error = self.status(fd)?.and_then(|(_, status)| told(status));
        let stream = self.files.stream(fd)?;
        if let Some(error) = stream.error_left.take() {
            return Ok(Some(error));
        }
        if stream.error_told || error.is_none() {
            return Ok(None);
        }
        stream.error_told = true;
        Ok(error)
    }

    /// The same for who asks by SO_ERROR, and is told of what has not ended the connection, too.
    pub(crate) fn take_any_error(&mut self, fd: Fd) -> Result<Option<Errno>, Errno> {
        if let Some(error) = self.take_error(fd)? {
            return Ok(Some(error));
        }
        let Some((id, status)) = self.status(fd)? else { return Ok(None) };
        let error = self.shard().tcp_take_soft_error(id)?;
        Ok(error.map(|error| Errno::told(error, status.remote.is_ipv4())))
    }
}
