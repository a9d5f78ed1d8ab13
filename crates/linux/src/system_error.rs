//! The one error of this crate.

use core::fmt;
use device::DeviceError;
use rustix::io::Errno;
use std::io::ErrorKind;

/// Something the system refused: what was attempted, what the system said, what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemError {
    /// What a program can tell it by: `PermissionDenied`, `NotFound`, `ResourceBusy`, ...
    pub kind: ErrorKind,
    /// A sentence.
    pub message: String,
}

impl SystemError {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// `what` was attempted and the system said `errno`.
    pub(crate) fn refused(what: impl fmt::Display, errno: Errno) -> Self {
        Self { kind: kind_of(errno), message: format!("{what}: {}", said(errno)) }
    }

    /// `what` was attempted on a file and failed so.
    pub(crate) fn failed(what: impl fmt::Display, error: &std::io::Error) -> Self {
        Self { kind: error.kind(), message: format!("{what}: {error}") }
    }
}

/// What the system says of `errno`, in words.
pub(crate) fn said(errno: Errno) -> std::io::Error {
    errno.into()
}

/// What `errno` is to a program, also where the standard library has no kind for it.
pub(crate) fn kind_of(errno: Errno) -> ErrorKind {
    match errno {
        Errno::NODEV | Errno::NXIO => ErrorKind::NotFound,
        Errno::NOBUFS => ErrorKind::OutOfMemory,
        Errno::AFNOSUPPORT | Errno::PROTONOSUPPORT | Errno::OPNOTSUPP => ErrorKind::Unsupported,
        errno => said(errno).kind(),
    }
}

/// The interface `name` is down, and may come up again.
pub(crate) fn interface_down(name: &str) -> DeviceError {
    let message = format!("the interface {name} is down: bring it up (`ip link set {name} up`)");
    DeviceError::new(ErrorKind::NetworkDown, message)
}

/// The interface `name` is gone for good, of which `errno` tells.
pub(crate) fn interface_gone(name: &str, errno: Errno) -> DeviceError {
    let what = said(errno);
    let message = format!("the interface {name} is gone ({what}): it was deleted, open it again");
    DeviceError::new(ErrorKind::NetworkDown, message)
}

/// A call on the interface `name` failed for another reason.
pub(crate) fn interface_failed(name: &str, errno: Errno) -> DeviceError {
    let message = format!("the interface {name} failed: {}", said(errno));
    DeviceError::new(ErrorKind::NetworkDown, message)
}

impl fmt::Display for SystemError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for SystemError {}

impl From<SystemError> for DeviceError {
    fn from(error: SystemError) -> Self {
        Self { kind: error.kind, message: error.message }
    }
}

/// Of the same kind, and with the error itself as its source.
impl From<SystemError> for std::io::Error {
    fn from(error: SystemError) -> Self {
        Self::new(error.kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_can_tell_errors_apart_and_pass_them_on() {
        for (errno, kind) in [
            (Errno::PERM, ErrorKind::PermissionDenied),
            (Errno::ACCESS, ErrorKind::PermissionDenied),
            (Errno::BUSY, ErrorKind::ResourceBusy),
            (Errno::NOENT, ErrorKind::NotFound),
            (Errno::NODEV, ErrorKind::NotFound),
            (Errno::INVAL, ErrorKind::InvalidInput),
            (Errno::OPNOTSUPP, ErrorKind::Unsupported),
        ] {
            let error = SystemError::refused("an interface", errno);
            assert_eq!(error.kind, kind, "{errno}");
            let sentence = error.to_string();
            let error = std::io::Error::from(DeviceError::from(error));
            assert_eq!((error.kind(), error.to_string()), (kind, sentence));
            assert!(error.get_ref().is_some_and(|source| source.is::<DeviceError>()));
        }
    }
}
