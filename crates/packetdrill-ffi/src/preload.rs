//! Code blocks (`%{ ... }%`). For them packetdrill calls getsockopt(2) itself and not through the structure. Where
//! this library is preloaded (`LD_PRELOAD`), the call comes here: for a descriptor that a session published it is
//! answered as through the structure, for all others by the kernel. Where it is not preloaded nobody calls this.

use crate::calls;
use core::ptr::with_exposed_provenance_mut;
use libc::socklen_t;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Which session a real descriptor is of, as an address: only whoever holds the lock may follow it.
static PUBLISHED: Mutex<Option<HashMap<c_int, usize>>> = Mutex::new(None);

fn published() -> MutexGuard<'static, Option<HashMap<c_int, usize>>> {
    PUBLISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A session has given out a descriptor.
pub(crate) fn publish(fd: c_int, session: usize) {
    published().get_or_insert_with(HashMap::new).insert(fd, session);
}

/// A descriptor is closed.
pub(crate) fn retire(fd: c_int) {
    if let Some(sessions) = published().as_mut() {
        sessions.remove(&fd);
    }
}

/// A session is over, with whatever it left open.
pub(crate) fn end(session: usize) {
    if let Some(sessions) = published().as_mut() {
        sessions.retain(|_, of| *of != session);
    }
}

/// getsockopt(2).
///
/// # Safety
/// As of the system call; no session is freed meanwhile, as packetdrill does so last.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    let session = published().as_ref().and_then(|sessions| sessions.get(&fd).copied());
    match session {
        // SAFETY: the session is not over, and the caller vouches for the rest.
        Some(session) => unsafe {
            calls::getsockopt(with_exposed_provenance_mut(session), fd, level, name, value, len)
        },
        // SAFETY: the caller's own call.
        None => unsafe {
            libc::syscall(libc::SYS_getsockopt, fd, level, name, value, len) as c_int
        },
    }
}
