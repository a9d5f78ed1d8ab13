//! What all sockets share: the handle that closes on drop, blocking mode and timeouts.

use crate::Stack;
use crate::runtime::closing;
use crate::runtime::squeue::{Core, Squeue};
use crate::runtime::turn::{After, Call, resume_unless_panicking};
use crate::runtime::waiting::Interest;
use core::num::NonZeroU8;
use core::task::{Context, Poll, Waker};
use stack::{Ipv4Options, Readiness, SocketError, SocketId};
use std::io::{self, Error, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use time::{Duration, Instant};

/// An open socket of a stack. Clones of the public types share one; the last closes it.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) stack: Stack,
    /// The squeue that it belongs to for life, as an index into those of the stack.
    home: u32,
    pub(crate) id: SocketId,
    is_nonblocking: AtomicBool,
    read_timeout: Timeout,
    write_timeout: Timeout,
    /// SO_LINGER in nanoseconds; `u64::MAX` stands for off.
    linger_ns: AtomicU64,
}

const NO_LINGER: u64 = u64::MAX;

impl Socket {
    pub(crate) fn new(stack: Stack, home: usize, id: SocketId) -> Self {
        Self {
            stack,
            home: home as u32,
            id,
            is_nonblocking: AtomicBool::new(false),
            read_timeout: Timeout::default(),
            write_timeout: Timeout::default(),
            linger_ns: AtomicU64::new(NO_LINGER),
        }
    }

    /// The handle of another socket of the same squeue.
    pub(crate) fn sibling(&self, id: SocketId) -> Self {
        Self::new(self.stack.clone(), self.home as usize, id)
    }

    /// The number of the squeue that it belongs to.
    pub(crate) fn home(&self) -> usize {
        self.home as usize
    }

    /// The squeue that it belongs to.
    pub(crate) fn squeue(&self) -> &Squeue {
        self.stack.squeue(self.home as usize)
    }

    /// How a call on this socket waits. An expired timeout is `WouldBlock`, as `std::net` has it
    /// on Unix; `TimedOut` would look like a peer that no longer answers.
    pub(crate) fn call(&self, interest: Interest, after: After) -> Call {
        let timeout = match interest {
            Interest::Readable => &self.read_timeout,
            Interest::Writable => &self.write_timeout,
        };
        Call {
            socket: Some(self.id),
            interest,
            after,
            takes_bytes: 0,
            blocks: !self.is_nonblocking.load(Ordering::Relaxed),
            timeout: timeout.load(),
            expired: ErrorKind::WouldBlock,
        }
    }

    /// A call that reads what is there and never waits.
    pub(crate) fn call_once(&self) -> Call {
        Call { blocks: false, ..self.call(Interest::Readable, After::Send) }
    }

    pub(crate) fn set_nonblocking(&self, nonblocking: bool) {
        self.is_nonblocking.store(nonblocking, Ordering::Relaxed);
    }

    pub(crate) fn set_linger(&self, linger: Option<Duration>) {
        let ns = linger.map_or(NO_LINGER, |linger| {
            linger.as_nanos().try_into().unwrap_or(NO_LINGER).min(NO_LINGER - 1)
        });
        self.linger_ns.store(ns, Ordering::Relaxed);
    }

    pub(crate) fn linger(&self) -> Option<Duration> {
        match self.linger_ns.load(Ordering::Relaxed) {
            NO_LINGER => None,
            ns => Some(Duration::from_nanos(ns)),
        }
    }

    /// Waits until a connection that was closed has delivered what it held, its FIN included.
    fn wait_until_delivered(&self, linger: Duration) {
        // Nothing tells of a socket that is gone, so this one looks again by itself.
        let call = Call {
            socket: None,
            timeout: Some(linger),
            blocks: true,
            ..self.call(Interest::Writable, After::Leave)
        };
        let outcome = self.squeue().operate(&call, |core, now| {
            core.run(now);
            let is_delivered = closing::is_delivered(&mut core.shard, self.id);
            match is_delivered || core.failure_of(Some(self.id)).is_some() {
                true => Ok(()),
                false => Err(SocketError::WouldBlock),
            }
        });
        // Out of time, or the device failed: the rest is the stack's, as without linger.
        drop(outcome);
    }

    pub(crate) fn timeout(&self, interest: Interest) -> Option<Duration> {
        match interest {
            Interest::Readable => self.read_timeout.load(),
            Interest::Writable => self.write_timeout.load(),
        }
    }

    pub(crate) fn set_timeout(
        &self,
        interest: Interest,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        match interest {
            Interest::Readable => self.read_timeout.store(timeout),
            Interest::Writable => self.write_timeout.store(timeout),
        }
    }

    /// Does `attempt` for a task, which is woken by an event of `interest` where it would have to wait.
    pub(crate) fn poll<T>(
        &self,
        interest: Interest,
        after: After,
        context: &Context<'_>,
        attempt: impl FnMut(&mut Core, Instant) -> Result<T, SocketError>,
    ) -> Poll<io::Result<T>> {
        self.squeue().poll(&self.call(interest, after), context, attempt)
    }

    /// Ready when a call of this interest on a socket for datagrams, UDP or raw, would not wait; otherwise the task is
    /// woken when that may have changed.
    pub(crate) fn poll_datagrams(
        &self,
        interest: Interest,
        context: &Context<'_>,
    ) -> Poll<io::Result<()>> {
        let wanted = match interest {
            Interest::Readable => Readiness::READABLE,
            Interest::Writable => Readiness::WRITABLE,
        };
        self.poll(interest, After::Leave, context, |core, _| {
            match core.shard.datagram_readiness(self.id)?.intersects(wanted) {
                true => Ok(()),
                false => Err(SocketError::WouldBlock),
            }
        })
    }

    pub(crate) fn register_waker(&self, interest: Interest, waker: &Waker) {
        self.squeue().register_waker(self.id, interest, waker);
    }

    /// Takes a waker out again that was not called.
    pub(crate) fn forget_waker(&self, waker: &Waker) {
        self.squeue().look(|core| core.waiting.remove_task(self.id, waker));
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let (linger, mut panic) = (self.linger(), None);
        self.squeue().once_keeping(&mut panic, |core, now| {
            if linger == Some(Duration::ZERO) {
                core.shard.tcp_abort(now, self.id);
            }
            core.close(now, self.id);
        });
        if let Some(linger) = linger.filter(|linger| *linger > Duration::ZERO) {
            let waited = catch_unwind(AssertUnwindSafe(|| self.wait_until_delivered(linger)));
            panic = panic.or(waited.err());
        }
        resume_unless_panicking(panic);
    }
}

/// An optional time limit; zero stands for none, because no limit may be zero.
#[derive(Debug, Default)]
struct Timeout {
    ns: AtomicU64,
}

impl Timeout {
    fn load(&self) -> Option<Duration> {
        match self.ns.load(Ordering::Relaxed) {
            0 => None,
            ns => Some(Duration::from_nanos(ns)),
        }
    }

    fn store(&self, timeout: Option<Duration>) -> io::Result<()> {
        check_timeout(timeout)?;
        let ns = timeout.map_or(0, |timeout| timeout.as_nanos().try_into().unwrap_or(u64::MAX));
        self.ns.store(ns, Ordering::Relaxed);
        Ok(())
    }
}

/// The hop limit of sockets that ask for none (RFC 1700's recommendation).
pub(crate) const TTL_DEFAULT: u32 = 64;

/// A hop limit as a caller gives it, checked.
pub(crate) fn hop_limit(ttl: u32) -> io::Result<NonZeroU8> {
    let ttl = u8::try_from(ttl).ok().and_then(NonZeroU8::new);
    ttl.ok_or_else(|| Error::new(ErrorKind::InvalidInput, "a hop limit is a number from 1 to 255"))
}

/// A traffic class as a caller gives it, checked.
pub(crate) fn traffic_class(tos: u32) -> io::Result<u8> {
    let refused = |_| Error::new(ErrorKind::InvalidInput, "a traffic class is a number up to 255");
    u8::try_from(tos).map_err(refused)
}

/// IPv4 options as a caller gives them, checked.
pub(crate) fn ip_options(options: &[u8]) -> io::Result<Ipv4Options> {
    Ipv4Options::parse(options).map_err(|refused| Error::new(ErrorKind::InvalidInput, refused))
}

/// As in `std::net`: a timeout of zero is an error, not a way to say "do not wait".
pub(crate) fn check_timeout(timeout: Option<Duration>) -> io::Result<()> {
    match timeout {
        Some(Duration::ZERO) => {
            Err(Error::new(ErrorKind::InvalidInput, "cannot set a timeout of zero duration"))
        }
        _ => Ok(()),
    }
}

/// Tries the addresses one after the other, as `std::net` does; the last error counts.
pub(crate) fn each_address<A: ToSocketAddrs, T>(
    addresses: A,
    mut attempt: impl FnMut(SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let mut outcome =
        Err(Error::new(ErrorKind::InvalidInput, "could not resolve to any addresses"));
    for address in addresses.to_socket_addrs()? {
        outcome = attempt(address);
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

/// Refuses a buffer that would hold nothing.
pub(crate) fn check_buffer(bytes: usize) -> io::Result<()> {
    match bytes {
        0 => Err(io::Error::new(ErrorKind::InvalidInput, "a buffer must hold at least one byte")),
        _ => Ok(()),
    }
}
