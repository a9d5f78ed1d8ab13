//! Error numbers.

use core::fmt;
use core::net::IpAddr;
use stack::{BadArgument, SocketError};

/// An error number of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

#[allow(missing_docs, reason = "the names are the system's")]
impl Errno {
    pub const EPERM: Self = Self(1);
    pub const ENOENT: Self = Self(2);
    pub const EINTR: Self = Self(4);
    pub const EIO: Self = Self(5);
    pub const EBADF: Self = Self(9);
    pub const EAGAIN: Self = Self(11);
    pub const ENOMEM: Self = Self(12);
    pub const EACCES: Self = Self(13);
    pub const EFAULT: Self = Self(14);
    pub const EEXIST: Self = Self(17);
    pub const ENODEV: Self = Self(19);
    pub const EINVAL: Self = Self(22);
    pub const EMFILE: Self = Self(24);
    pub const ENOTTY: Self = Self(25);
    pub const ESPIPE: Self = Self(29);
    pub const EPIPE: Self = Self(32);
    pub const ENONET: Self = Self(64);
    pub const EPROTO: Self = Self(71);
    pub const ENOSYS: Self = Self(38);
    pub const ENOTSOCK: Self = Self(88);
    pub const EDESTADDRREQ: Self = Self(89);
    pub const EMSGSIZE: Self = Self(90);
    pub const EPROTOTYPE: Self = Self(91);
    pub const ENOPROTOOPT: Self = Self(92);
    pub const EPROTONOSUPPORT: Self = Self(93);
    pub const ESOCKTNOSUPPORT: Self = Self(94);
    pub const EOPNOTSUPP: Self = Self(95);
    pub const EAFNOSUPPORT: Self = Self(97);
    pub const EADDRINUSE: Self = Self(98);
    pub const EADDRNOTAVAIL: Self = Self(99);
    pub const ENETDOWN: Self = Self(100);
    pub const ENETUNREACH: Self = Self(101);
    pub const ECONNABORTED: Self = Self(103);
    pub const ECONNRESET: Self = Self(104);
    pub const ENOBUFS: Self = Self(105);
    pub const EISCONN: Self = Self(106);
    pub const ENOTCONN: Self = Self(107);
    pub const ETIMEDOUT: Self = Self(110);
    pub const ECONNREFUSED: Self = Self(111);
    pub const EHOSTDOWN: Self = Self(112);
    pub const EHOSTUNREACH: Self = Self(113);
    pub const EALREADY: Self = Self(114);
    pub const EINPROGRESS: Self = Self(115);
    pub const ELOOP: Self = Self(40);
}

impl fmt::Display for Errno {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "errno {}", self.0)
    }
}

impl Errno {
    /// Of an error that a router or the peer's host told of a packet over IPv4 or IPv6. As Linux: over IPv6 a protocol
    /// that nobody speaks there is as any other header that is not understood.
    pub(crate) fn told(error: SocketError, is_ipv4: bool) -> Self {
        match error {
            SocketError::ProtocolUnreachable if !is_ipv4 => Self::EPROTO,
            other => other.into(),
        }
    }
}

impl From<SocketError> for Errno {
    fn from(error: SocketError) -> Self {
        match error {
            SocketError::WouldBlock => Self::EAGAIN,
            SocketError::AddressInUse => Self::EADDRINUSE,
            SocketError::AddressNotAvailable | SocketError::NoPortLeft => Self::EADDRNOTAVAIL,
            SocketError::NoRoute(_)
            | SocketError::NetworkUnreachable
            | SocketError::NoSourceFor(_) => Self::ENETUNREACH,
            SocketError::DeviceFailed => Self::ENETDOWN,
            SocketError::HostUnreachable => Self::EHOSTUNREACH,
            SocketError::HostUnknown => Self::EHOSTDOWN,
            SocketError::SourceIsolated => Self::ENONET,
            SocketError::SourceRouteFailed => Self::EOPNOTSUPP,
            SocketError::ParameterProblem => Self::EPROTO,
            SocketError::ProtocolUnreachable => Self::ENOPROTOOPT,
            SocketError::Prohibited => Self::EACCES,
            SocketError::ConnectionRefused => Self::ECONNREFUSED,
            // Whoever reset it: a program that shut both directions is told so of data that came then.
            SocketError::ConnectionReset | SocketError::ConnectionAborted => Self::ECONNRESET,
            SocketError::AddressRemoved => Self::ECONNABORTED,
            SocketError::TimedOut => Self::ETIMEDOUT,
            SocketError::NotConnected => Self::ENOTCONN,
            SocketError::BrokenPipe => Self::EPIPE,
            SocketError::MessageTooLong => Self::EMSGSIZE,
            SocketError::DestinationRequired => Self::EDESTADDRREQ,
            SocketError::NoMemory | SocketError::TooManyAddresses => Self::ENOBUFS,
            SocketError::InvalidSocket => Self::EBADF,
            SocketError::TooManySockets => Self::EMFILE,
            SocketError::NoSuchInterface => Self::ENODEV,
            SocketError::InvalidArgument(wrong) => wrong.into(),
            SocketError::NoHostAddress => Self::EINVAL,
            SocketError::ProtocolNotRaw => Self::EPROTONOSUPPORT,
        }
    }
}

impl From<BadArgument> for Errno {
    fn from(wrong: BadArgument) -> Self {
        match wrong {
            // As Linux: no way leads to a group that a connection could have for its peer, nor from an IPv6 address to
            // a mapped one.
            BadArgument::PeerIsMany(_)
            | BadArgument::FamiliesDiffer { local: IpAddr::V6(_), .. } => Self::ENETUNREACH,
            BadArgument::FamiliesDiffer { .. } => Self::EAFNOSUPPORT,
            _ => Self::EINVAL,
        }
    }
}
