//! Why a socket call failed.

use core::fmt;

/// Why a socket call failed. Every variant reads as a sentence that says what was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketError {
    /// The call cannot be answered now; an event will say when to try again.
    WouldBlock,
    /// Another socket has this local address and port, or the interface has the address already.
    AddressInUse,
    /// No interface of this stack has this local address.
    AddressNotAvailable,
    /// Every local port that could be picked is taken.
    NoPortLeft,
    /// No route leads to the destination.
    NoRoute,
    /// The device of the interface on the way has failed.
    DeviceFailed,
    /// The neighbour on the way did not answer, or a router said that the host is unreachable.
    HostUnreachable,
    /// The peer answered the SYN with a reset.
    ConnectionRefused,
    /// The peer reset the connection.
    ConnectionReset,
    /// This side aborted the connection.
    ConnectionAborted,
    /// The connection's local address was taken from its interface.
    AddressRemoved,
    /// The peer did not answer in time.
    TimedOut,
    /// The socket is not connected, or not yet.
    NotConnected,
    /// The sending side was shut down.
    BrokenPipe,
    /// The datagram is longer than the path takes.
    MessageTooLong,
    /// A destination is needed: the socket is not connected to one.
    DestinationRequired,
    /// No memory is left in the block pool, or the socket's queue is full for good.
    NoMemory,
    /// The number names no open socket, or a socket of another kind.
    InvalidSocket,
    /// The stack holds as many sockets as it may, or as many raw sockets or forwarders.
    TooManySockets,
    /// Packets of this IP protocol are not a raw socket's: the stack reads and writes them itself.
    ProtocolNotRaw,
    /// The stack has no such interface, or not any more.
    NoSuchInterface,
    /// The interface has as many addresses as it may.
    TooManyAddresses,
    /// No host can have this address.
    NoHostAddress,
    /// An argument contradicts another (address families differ, port zero as destination).
    InvalidArgument,
}

impl fmt::Display for SocketError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::WouldBlock => "the call would have to wait",
            Self::AddressInUse => {
                "the local address is in use: another socket has it with this port, or the interface has it \
                 already"
            }
            Self::AddressNotAvailable => "no interface of this stack has this local address",
            Self::NoPortLeft => "every local port that could be picked is taken",
            Self::NoRoute => {
                "no route leads to the destination: give the interface a gateway or a route"
            }
            Self::DeviceFailed => "the device of the interface on the way has failed",
            Self::HostUnreachable => "the host is unreachable: its neighbour does not answer, or a router says so",
            Self::ConnectionRefused => "the peer refused the connection",
            Self::ConnectionReset => "the peer reset the connection",
            Self::ConnectionAborted => "the connection was aborted on this side",
            Self::AddressRemoved => "the local address was taken from its interface",
            Self::TimedOut => "the peer did not answer in time",
            Self::NotConnected => "the socket is not connected",
            Self::BrokenPipe => "the sending side of the socket was shut down",
            Self::MessageTooLong => "the datagram is longer than the path takes",
            Self::DestinationRequired => "the socket is not connected: name a destination",
            Self::NoMemory => "no memory is left for packets: raise the pool's limit",
            Self::InvalidSocket => "the number names no open socket of this kind",
            Self::TooManySockets => {
                "the stack holds as many sockets as it may: close some, or raise `sockets_max` (raw \
                 sockets and forwarders are 64 of a kind at most)"
            }
            Self::ProtocolNotRaw => {
                "the stack keeps this IP protocol to itself: TCP and UDP have sockets of their own"
            }
            Self::NoSuchInterface => {
                "there is no such interface: they count from 0, in the order in which they were added"
            }
            Self::TooManyAddresses => {
                "the interface has 64 addresses, as many as it may: whole networks are for \
                 `InterfaceConfig::accept_any`"
            }
            Self::NoHostAddress => {
                "no host can have this address: it is unspecified, a group's, or stands for all hosts of its \
                 network"
            }
            Self::InvalidArgument => "the arguments contradict each other",
        })
    }
}

impl std::error::Error for SocketError {}
