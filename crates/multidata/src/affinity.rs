//! On which CPU a thread runs, where the system says so and lets a program choose.
//!
//! These are the only system calls for Linux outside of `linux`: who brings a device queue of his own does not build
//! that crate's devices.

#[cfg(target_os = "linux")]
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::io;

/// The CPUs that this process may run on.
///
/// # Errors
/// The system does not tell.
pub(crate) fn allowed() -> io::Result<Vec<usize>> {
    #[cfg(target_os = "linux")]
    {
        let set = sched_getaffinity(None)?;
        Ok((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
    }
    #[cfg(not(target_os = "linux"))]
    Err(unsupported())
}

/// Keeps the calling thread on a CPU.
///
/// # Errors
/// The system does not keep it there.
pub(crate) fn pin(cpu: usize) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        let mut set = CpuSet::new();
        if cpu < CpuSet::MAX_CPU {
            set.set(cpu);
        }
        let refused = |error: io::Error| {
            let message = format!("the thread could not be pinned to CPU {cpu}: {error}");
            io::Error::new(error.kind(), message)
        };
        sched_setaffinity(None, &set).map_err(|errno| refused(errno.into()))
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = cpu;
        Err(unsupported())
    }
}

/// The CPU that the calling thread runs on at the moment; `None` where the system does not tell.
pub(crate) fn current() -> Option<usize> {
    #[cfg(target_os = "linux")]
    return Some(sched_getcpu());
    #[cfg(not(target_os = "linux"))]
    None
}

#[cfg(not(target_os = "linux"))]
fn unsupported() -> io::Error {
    let message = "threads cannot be kept on CPUs on this system: build the stack without pin()";
    io::Error::new(io::ErrorKind::Unsupported, message)
}
