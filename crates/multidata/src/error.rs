//! Socket errors as `std::io::Error`s.

use device::DeviceError;
use stack::SocketError;
use std::io::{Error, ErrorKind};

/// A socket error as an I/O error of the kind that `std::net` would give it. The sentence stays,
/// and so does the [`SocketError`] itself, as the error's source.
#[must_use]
pub fn socket_error(error: SocketError) -> Error {
    let kind = match error {
        // Without a sentence and so without an allocation: who polls gets many of these.
        SocketError::WouldBlock => return ErrorKind::WouldBlock.into(),
        SocketError::AddressInUse | SocketError::NoPortLeft => ErrorKind::AddrInUse,
        SocketError::AddressNotAvailable | SocketError::AddressRemoved => {
            ErrorKind::AddrNotAvailable
        }
        SocketError::NoRoute(_) | SocketError::NetworkUnreachable | SocketError::NoSourceFor(_) => {
            ErrorKind::NetworkUnreachable
        }
        SocketError::DeviceFailed => ErrorKind::NetworkDown,
        SocketError::SourceIsolated => ErrorKind::NetworkUnreachable,
        SocketError::HostUnreachable | SocketError::HostUnknown => ErrorKind::HostUnreachable,
        SocketError::Prohibited => ErrorKind::PermissionDenied,
        SocketError::ConnectionRefused => ErrorKind::ConnectionRefused,
        SocketError::ConnectionReset => ErrorKind::ConnectionReset,
        SocketError::ConnectionAborted => ErrorKind::ConnectionAborted,
        SocketError::TimedOut => ErrorKind::TimedOut,
        SocketError::NotConnected => ErrorKind::NotConnected,
        SocketError::BrokenPipe => ErrorKind::BrokenPipe,
        SocketError::NoMemory => ErrorKind::OutOfMemory,
        SocketError::MessageTooLong
        | SocketError::DestinationRequired
        | SocketError::InvalidSocket
        | SocketError::NoSuchInterface
        | SocketError::NoHostAddress
        | SocketError::InvalidArgument(_) => ErrorKind::InvalidInput,
        SocketError::TooManySockets | SocketError::TooManyAddresses => ErrorKind::QuotaExceeded,
        SocketError::ProtocolUnreachable
        | SocketError::SourceRouteFailed
        | SocketError::ParameterProblem
        | SocketError::ProtocolNotRaw => ErrorKind::Unsupported,
    };
    Error::new(kind, error)
}

/// A failed device as an I/O error: every call on every socket fails until another takes its place.
pub(crate) fn device_error(error: &DeviceError) -> Error {
    Error::new(ErrorKind::NetworkDown, error.clone())
}
