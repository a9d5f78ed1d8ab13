//! What a connection has to tell its owner.

use core::fmt;
use core::ops::BitOr;

/// A set of things that happened since [`Connection::take_events`](crate::Connection::take_events)
/// was last called. They say "look", not "how much".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events(u8);

impl Events {
    /// Nothing happened.
    pub const NONE: Self = Self(0);
    /// The handshake is complete.
    pub const CONNECTED: Self = Self(1);
    /// Data arrived, or the end of the stream.
    pub const READABLE: Self = Self(1 << 1);
    /// Room was made in the send queue.
    pub const WRITABLE: Self = Self(1 << 2);
    /// The peer sent its FIN, and all data before it has arrived.
    pub const PEER_CLOSED: Self = Self(1 << 3);
    /// The state became CLOSED.
    pub const CLOSED: Self = Self(1 << 4);
    /// The connection failed; see [`Connection::error`](crate::Connection::error).
    pub const FAILED: Self = Self(1 << 5);
    /// Urgent data was announced; see [`Connection::urgent_mark`](crate::Connection::urgent_mark).
    pub const URGENT: Self = Self(1 << 6);

    /// Whether all of `other` happened.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether nothing happened.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn insert(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl BitOr for Events {
    type Output = Self;

    fn bitor(self, rhs: Self) -> Self {
        Self(self.0 | rhs.0)
    }
}

/// Why a connection failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConnectionError {
    /// The peer answered the SYN with a reset.
    Refused,
    /// The peer reset the connection.
    Reset,
    /// The peer reset the connection after it had ended its stream: nothing that it sent is lost, but
    /// it takes no more.
    BrokenPipe,
    /// This side aborted it.
    Aborted,
    /// The local address was taken from its interface.
    AddressRemoved,
    /// The peer did not answer in time.
    TimedOut,
    /// The network said that the peer's host cannot be reached.
    HostUnreachable,
    /// The network said that the peer's network cannot be reached.
    NetworkUnreachable,
    /// The network said that it does not know the peer's host.
    HostUnknown,
    /// The network said that this host is cut off from it.
    SourceIsolated,
    /// The network said that a packet could not go the way that it asks for.
    SourceRouteFailed,
    /// The network or the peer's host said that it does not understand a packet's header.
    ParameterProblem,
    /// The peer's host said that it does not speak TCP.
    ProtocolUnreachable,
    /// The network said that it is forbidden to reach the peer (ICMPv6; that of IPv4 has no word for it that hosts know
    /// from an unreachable host).
    Prohibited,
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Refused => "the peer refused the connection",
            Self::Reset => "the peer reset the connection",
            Self::AddressRemoved => "the local address was taken from its interface",
            Self::BrokenPipe => "the peer takes no more data",
            Self::Aborted => "the connection was aborted on this side",
            Self::TimedOut => "the peer did not answer in time",
            Self::HostUnreachable => "the peer's host cannot be reached",
            Self::HostUnknown => "the network does not know the peer's host",
            Self::SourceIsolated => "this host is cut off from the network",
            Self::SourceRouteFailed => {
                "the peer's host cannot be reached on the way that is asked for"
            }
            Self::ParameterProblem => "a packet's header was not understood on its way",
            Self::ProtocolUnreachable => "the peer's host does not speak the protocol",
            Self::Prohibited => "the way to the peer's host is prohibited",
            Self::NetworkUnreachable => "the peer's network cannot be reached",
        })
    }
}

impl core::error::Error for ConnectionError {}

/// Why data was not queued to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SendError {
    /// The chunk is longer than [`Connection::send_room`](crate::Connection::send_room).
    Full,
    /// This side has closed, or the connection is gone.
    Closed,
}

impl fmt::Display for SendError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Full => "the send buffer has no room for it",
            Self::Closed => "the connection is closed for sending",
        })
    }
}

impl core::error::Error for SendError {}
