//! `libmultidata_packetdrill.so`: anyone's packetdrill runs its scripts against this stack.
//!
//! ```text
//! packetdrill --so_filename=libmultidata_packetdrill.so [--so_flags=tcp_sack=0,...] script.pkt
//! ```
//!
//! Scripts are mostly written for Linux, so the host here has Linux's habits
//! ([`packetdrill::apply_linux_habits`]), unless `--so_flags=linux_habits=0` is given. Other flags hold against what a
//! script sets.
//!
//! packetdrill loads the library, calls [`packetdrill_interface_init`], and makes every system call
//! of the script, and every look at the clock and the network, through the functions it finds in
//! the structure. They go to a [`posix::Host`] in virtual time:
//!
//! * time passes where packetdrill sleeps (`usleep`), looks at the clock (a microsecond a look, so
//!   that its waiting in a loop ends) or waits for a packet (`netdev_receive`);
//! * a call that blocks is made by packetdrill's second thread. It sleeps here until the first thread
//!   lets enough time pass or packets arrive; then time stands still until the second thread has
//!   looked at the clock, so that what it reads is when the call returned (`session`);
//! * a descriptor is a real one, of `/dev/null`, because packetdrill closes with close(2) what a
//!   script left open.
//!
//! For code blocks (`%{ ... }%`) packetdrill asks the kernel for `TCP_INFO` behind the structure's back; so
//! for scripts that have some the library is preloaded, too (`preload.rs`):
//!
//! ```text
//! LD_PRELOAD=$PWD/libmultidata_packetdrill.so packetdrill --so_filename=$PWD/libmultidata_packetdrill.so ...
//! ```
//!
//! `abi.rs` is the structure, `calls.rs` and `files.rs` its functions, `memory.rs` reads and writes
//! the caller's memory without trusting its pointers.

mod abi;
mod calls;
mod control;
mod files;
mod memory;
mod network;
mod preload;
mod session;

pub use abi::Interface;

use core::ffi::{CStr, c_char};
use session::Session;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Fills in packetdrill's structure. `flags` may hold settings by the names of Linux's sysctls,
/// separated by commas or spaces: `tcp_sack=0,tcp_timestamps=0`.
///
/// # Safety
/// `flags` is null or a string that ends with a zero, and `interface` points to a structure that may
/// be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetdrill_interface_init(
    flags: *const c_char,
    interface: *mut Interface,
) {
    let settings = match flags.is_null() {
        true => String::new(),
        // SAFETY: the caller vouches for the string.
        false => unsafe { CStr::from_ptr(flags) }.to_string_lossy().into_owned(),
    };
    let made = catch_unwind(AssertUnwindSafe(|| Session::new(&settings)));
    let Ok(session) = made else { std::process::abort() };
    let userdata = Box::into_raw(Box::new(session)).cast();
    // SAFETY: the caller vouches for the structure.
    unsafe { interface.write(abi::interface(userdata)) };
}
