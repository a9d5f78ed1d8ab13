//! On which CPU a thread runs, where the system says so and lets a program choose.

use std::io;

/// The CPUs that this process may run on.
///
/// # Errors
/// The system does not tell.
pub(crate) fn allowed() -> io::Result<Vec<usize>> {
    #[cfg(target_os = "linux")]
    return linux::cpu::allowed().map_err(io::Error::from);
    #[cfg(not(target_os = "linux"))]
    Err(unsupported())
}

/// Keeps the calling thread on a CPU.
///
/// # Errors
/// The system does not keep it there.
pub(crate) fn pin(cpu: usize) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    return linux::cpu::pin(&[cpu]).map_err(io::Error::from);
    #[cfg(not(target_os = "linux"))]
    {
        let _ = cpu;
        Err(unsupported())
    }
}

/// The CPU that the calling thread runs on at the moment; `None` where the system does not tell.
pub(crate) fn current() -> Option<usize> {
    #[cfg(target_os = "linux")]
    return Some(linux::cpu::current());
    #[cfg(not(target_os = "linux"))]
    None
}

#[cfg(not(target_os = "linux"))]
fn unsupported() -> io::Error {
    let message = "threads cannot be kept on CPUs on this system: build the stack without pin()";
    io::Error::new(io::ErrorKind::Unsupported, message)
}
