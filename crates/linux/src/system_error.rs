//! The one error of this crate.

use core::fmt;
use device::DeviceError;
use rustix::io::Errno;

/// Something the system refused: what was attempted, what the system said, what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemError {
    /// A sentence.
    pub message: String,
}

impl SystemError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }

    /// `what` was attempted and the system said `errno`.
    pub(crate) fn refused(what: impl fmt::Display, errno: Errno) -> Self {
        Self { message: format!("{what}: {}", said(errno)) }
    }
}

/// What the system says of `errno`, in words.
pub(crate) fn said(errno: Errno) -> std::io::Error {
    errno.into()
}

/// The interface `name` is down, and may come up again.
pub(crate) fn interface_down(name: &str) -> DeviceError {
    let message = format!("the interface {name} is down: bring it up (`ip link set {name} up`)");
    DeviceError { message }
}

/// The interface `name` is gone for good, of which `errno` tells.
pub(crate) fn interface_gone(name: &str, errno: Errno) -> DeviceError {
    let what = said(errno);
    let message = format!("the interface {name} is gone ({what}): it was deleted, open it again");
    DeviceError { message }
}

/// A call on the interface `name` failed for another reason.
pub(crate) fn interface_failed(name: &str, errno: Errno) -> DeviceError {
    DeviceError { message: format!("the interface {name} failed: {}", said(errno)) }
}

impl fmt::Display for SystemError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for SystemError {}

impl From<SystemError> for DeviceError {
    fn from(error: SystemError) -> Self {
        Self { message: error.message }
    }
}
