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
