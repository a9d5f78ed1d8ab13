//! Mapped memory: the UMEM of AF_XDP and the pages of rings that are shared with the kernel.

#![allow(unsafe_code)]

use core::ptr::NonNull;
use rustix::fd::AsFd;
use rustix::io::{Errno, Result};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

/// A mapping that ends with this value. Zero at first, page-aligned, never empty.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory belongs to the process, not to a thread; who writes what in it, and when, is
// decided by those who hold the mapping (`Ring`, `Umem`, `BlockRing`).
unsafe impl Send for Mapping {}
// SAFETY: as above; a shared mapping hands out nothing but its address.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Memory of our own, backed by pages at once, so that no fault comes while frames pass. A child of fork(2)
    /// does not have it: before Linux 5.12 the first write behind a fork gave this process another page than
    /// the one that a device knows.
    pub(crate) fn anonymous(len: usize) -> Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing.
        let start = unsafe { mmap_anonymous(core::ptr::null_mut(), len, access, flags) }?;
        // SAFETY: the mapping is ours, and what is asked changes nothing in this process. Where it is refused
        // everything but a fork goes as well.
        let _ = unsafe { madvise(start, len, Advice::LinuxDontFork) };
        Self::at(start.cast(), len)
    }

    /// `len` bytes of what a file shares at `offset`.
    pub(crate) fn of_file(file: impl AsFd, offset: u64, len: usize) -> Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing.
        let start = unsafe { mmap(core::ptr::null_mut(), len, access, flags, file, offset) }?;
        Self::at(start.cast(), len)
    }

    fn at(start: *mut u8, len: usize) -> Result<Self> {
        NonNull::new(start).map(|start| Self { start, len }).ok_or(Errno::NOMEM)
    }

    /// The first byte.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is what mmap(2) gave us, and whoever borrowed from it borrowed `self`.
        // It cannot fail for a range that is mapped.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}
