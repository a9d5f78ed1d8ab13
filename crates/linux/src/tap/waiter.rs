//! Waiting for a TUN file.
//!
//! One thread waits in poll(2) on the file and on an eventfd; anybody may wake it. Waking writes
//! the eventfd, a system call, only when somebody waits: `woken` is set first and `waiters` read
//! after, and a waiter counts itself first and looks at `woken` after, so one of the two sees the
//! other. An eventfd left readable costs an early return and nothing else.

use device::Waiter;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct TapWaiter {
    file: Arc<OwnedFd>,
    event: OwnedFd,
    waiters: AtomicUsize,
    woken: AtomicBool,
    /// The last transmit found the device full: also wait for room.
    wants_room: AtomicBool,
    syscalls: AtomicU64,
}

impl TapWaiter {
    /// # Errors
    /// Where the process has no descriptor left.
    pub(super) fn new(file: Arc<OwnedFd>) -> rustix::io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self {
            file,
            event,
            waiters: AtomicUsize::new(0),
            woken: AtomicBool::new(false),
            wants_room: AtomicBool::new(false),
            syscalls: AtomicU64::new(0),
        })
    }

    /// From now on, waiting also ends when the device has room.
    pub(super) fn want_room(&self) {
        self.wants_room.store(true, Ordering::Relaxed);
    }

    /// How many system calls waiting and waking took.
    pub(super) fn syscalls(&self) -> u64 {
        self.syscalls.load(Ordering::Relaxed)
    }

    fn poll(&self, timeout: Option<Duration>) {
        let mut wanted = PollFlags::IN;
        if self.wants_room.load(Ordering::Relaxed) {
            wanted |= PollFlags::OUT;
        }
        let mut files = [PollFd::new(&*self.file, wanted), PollFd::new(&self.event, PollFlags::IN)];
        // A timeout too long for the kernel is none.
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        self.syscalls.fetch_add(1, Ordering::Relaxed);
        // An interrupted wait returns early, which the contract allows.
        if poll(&mut files, timeout.as_ref()).is_err() {
            return;
        }
        if files[0].revents().contains(PollFlags::OUT) {
            self.wants_room.store(false, Ordering::Relaxed);
        }
        if !files[1].revents().is_empty() {
            self.syscalls.fetch_add(1, Ordering::Relaxed);
            // It fails only where another waiter was faster.
            let _ = rustix::io::read(&self.event, &mut [0_u8; 8]);
        }
    }
}

impl Waiter for TapWaiter {
    fn wait(&self, timeout: Option<Duration>) {
        self.waiters.fetch_add(1, Ordering::SeqCst);
        if !self.woken.swap(false, Ordering::SeqCst) {
            self.poll(timeout);
            // Whoever woke us meanwhile is answered by this return.
            self.woken.swap(false, Ordering::SeqCst);
        }
        self.waiters.fetch_sub(1, Ordering::SeqCst);
    }

    fn wake(&self) {
        if !self.woken.swap(true, Ordering::SeqCst) && self.waiters.load(Ordering::SeqCst) > 0 {
            self.syscalls.fetch_add(1, Ordering::Relaxed);
            // It fails only when the counter is at its end, which is readable too.
            let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
        }
    }
}
