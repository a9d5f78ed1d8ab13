//! What the shard tells the sockets' owners.

use crate::sockets::SocketId;
use core::ops::{BitOr, BitOrAssign};
use std::collections::VecDeque;

/// What became possible on a socket: a set of bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readiness(u8);

impl Readiness {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Data, the end of the stream, or an error can be read.
    pub const READABLE: Self = Self(1);
    /// The send queue has room, or writing fails at once.
    pub const WRITABLE: Self = Self(2);
    /// A connection can be accepted.
    pub const ACCEPTABLE: Self = Self(4);
    /// An active open has succeeded.
    pub const CONNECTED: Self = Self(8);
    /// The connection is over, in order or by an error.
    pub const CLOSED: Self = Self(16);
    /// Urgent data was announced (RFC 6093).
    pub const URGENT: Self = Self(32);

    /// Whether any bit of `other` is set.
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether no bit is set.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl BitOr for Readiness {
    type Output = Self;

    fn bitor(self, rhs: Self) -> Self {
        Self(self.0 | rhs.0)
    }
}

impl BitOrAssign for Readiness {
    fn bitor_assign(&mut self, rhs: Self) {
        self.0 |= rhs.0;
    }
}

/// Something became possible on a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketEvent {
    /// Which socket.
    pub socket: SocketId,
    /// What became possible.
    pub readiness: Readiness,
}

/// Events not yet taken: at most one entry per socket, so bounded by the number of sockets.
#[derive(Debug, Default)]
pub(crate) struct Events {
    queue: VecDeque<SocketId>,
}

impl Events {
    /// Adds `readiness` to what is pending for `socket`, whose pending bits the caller keeps.
    pub(crate) fn add(&mut self, socket: SocketId, pending: &mut Readiness, readiness: Readiness) {
        if readiness.is_empty() {
            return;
        }
        if pending.is_empty() {
            self.queue.push_back(socket);
        }
        *pending |= readiness;
    }

    /// Gives memory back after a time of many sockets.
    pub(crate) fn shrink(&mut self) {
        self.queue.shrink_to_fit();
    }

    /// The next socket with something pending.
    pub(crate) fn next(&mut self) -> Option<SocketId> {
        self.queue.pop_front()
    }
}

/// Events of addresses or interfaces that wait to be asked for; beyond them the oldest is forgotten.
const KEPT_MAX: usize = 64;

/// Events that nobody has read yet.
#[derive(Debug)]
pub(crate) struct Kept<E> {
    queue: VecDeque<E>,
    /// Those that nobody asked for in time.
    pub(crate) forgotten: u64,
    /// One was added since [`Kept::take_news`].
    has_news: bool,
}

impl<E> Default for Kept<E> {
    fn default() -> Self {
        Self { queue: VecDeque::new(), forgotten: 0, has_news: false }
    }
}

impl<E> Kept<E> {
    pub(crate) fn push(&mut self, event: E) {
        if self.queue.len() >= KEPT_MAX {
            self.queue.pop_front();
            self.forgotten += 1;
        }
        self.queue.push_back(event);
        self.has_news = true;
    }

    /// Whether one was added since this was asked last.
    pub(crate) fn take_news(&mut self) -> bool {
        core::mem::take(&mut self.has_news)
    }

    /// The oldest.
    pub(crate) fn next(&mut self) -> Option<E> {
        self.queue.pop_front()
    }
}
