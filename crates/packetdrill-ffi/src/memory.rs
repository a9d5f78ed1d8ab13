//! The caller's memory. Scripts pass bad pointers on purpose, and the kernel answers `EFAULT`; so
//! memory is copied by the kernel here, too, which does not trust a pointer, and where it may not
//! (some containers forbid it) by a plain copy after a look for null.

use posix::Errno;
use std::ffi::c_void;
use std::mem::MaybeUninit;

/// Copies `len` bytes at `from`.
///
/// # Errors
/// `EFAULT` where they cannot be read.
///
/// # Safety
/// Where the kernel forbids this process to read itself, `from` must be null or readable.
pub(crate) unsafe fn read(from: *const c_void, len: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0_u8; len];
    if len == 0 {
        return Ok(bytes);
    }
    if from.is_null() {
        return Err(Errno::EFAULT);
    }
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: len };
    let remote = libc::iovec { iov_base: from.cast_mut(), iov_len: len };
    // SAFETY: the kernel writes at most `len` bytes to the local buffer, and checks the other.
    let copied = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    match usize::try_from(copied) {
        Ok(copied) if copied == len => {}
        Err(_) if is_forbidden() => {
            // SAFETY: the caller vouches for it.
            unsafe { core::ptr::copy_nonoverlapping(from.cast(), bytes.as_mut_ptr(), len) };
        }
        _ => return Err(Errno::EFAULT),
    }
    Ok(bytes)
}

/// Copies `bytes` to `to`.
///
/// # Errors
/// `EFAULT` where they cannot be written.
///
/// # Safety
/// Where the kernel forbids this process to write to itself, `to` must be null or writable.
pub(crate) unsafe fn write(to: *mut c_void, bytes: &[u8]) -> Result<(), Errno> {
    // SAFETY: the caller vouches for `to`, and the slice can be read.
    unsafe { copy(to, bytes.as_ptr().cast(), bytes.len()) }
}

/// Copies `len` bytes at `from` to `to`, those between fields included, which may never have been written.
///
/// # Safety
/// As [`write`]; `from` must be readable.
unsafe fn copy(to: *mut c_void, from: *const c_void, len: usize) -> Result<(), Errno> {
    if len == 0 {
        return Ok(());
    }
    if to.is_null() {
        return Err(Errno::EFAULT);
    }
    let local = libc::iovec { iov_base: from.cast_mut(), iov_len: len };
    let remote = libc::iovec { iov_base: to, iov_len: len };
    // SAFETY: the kernel reads `len` bytes of the local buffer, and checks the other.
    let copied = unsafe { libc::process_vm_writev(libc::getpid(), &local, 1, &remote, 1, 0) };
    match usize::try_from(copied) {
        Ok(copied) if copied == len => Ok(()),
        Err(_) if is_forbidden() => {
            // SAFETY: the caller vouches for it.
            unsafe {
                core::ptr::copy_nonoverlapping(from.cast::<MaybeUninit<u8>>(), to.cast(), len)
            };
            Ok(())
        }
        _ => Err(Errno::EFAULT),
    }
}

/// Reads a value of plain data.
///
/// # Errors
/// As [`read`].
///
/// # Safety
/// As [`read`]; any bytes must make a valid `T`.
pub(crate) unsafe fn read_value<T: Copy>(from: *const T) -> Result<T, Errno> {
    // SAFETY: the caller vouches for it.
    let bytes = unsafe { read(from.cast(), size_of::<T>())? };
    // SAFETY: there are as many bytes as a `T` has, and the caller vouches that any will do.
    Ok(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

/// Writes a value of plain data.
///
/// # Errors
/// As [`write`].
///
/// # Safety
/// As [`write`]; `T` has no padding, or it does not matter what is in it.
pub(crate) unsafe fn write_value<T: Copy>(to: *mut T, value: T) -> Result<(), Errno> {
    // SAFETY: the caller vouches for `to`; the value lives until the end of this call.
    unsafe { copy(to.cast(), (&raw const value).cast(), size_of::<T>()) }
}

fn is_forbidden() -> bool {
    let errno = std::io::Error::last_os_error().raw_os_error();
    matches!(errno, Some(libc::EPERM | libc::ENOSYS | libc::ESRCH))
}
