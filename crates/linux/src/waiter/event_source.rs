//! The wait for a device as one file, for who has an event loop.
//!
//! It is an [`EventFile`] that watches the device and the netlink socket, too. A device that stays readable, with no
//! memory to receive into or because it failed, does not keep the loop busy, which watches for the edge.
//!
//! A loop comes when it comes, so what it holds does not keep the device open: that is closed when the stack lets go of
//! it, and its place among what is watched goes with it.

use super::{Condition, FileWaiter};
use device::{CalledSource, EventSource};
use event_file::EventFile;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// What an event is about.
const DEVICE: u64 = 0;
const CHANGES: u64 = 1;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Watch {
    event_file: EventFile,
    /// The device, which is let go of by others.
    device: Weak<OwnedFd>,
    condition: Arc<Condition>,
    /// The device is watched for room, too.
    wants_room: AtomicBool,
}

impl Watch {
    /// # Errors
    /// Where the process has no descriptor left.
    pub(super) fn new(waiter: &FileWaiter) -> io::Result<Self> {
        let event_file = EventFile::new()?;
        event_file.watch(waiter.file.as_fd(), DEVICE, false)?;
        if let Some(changes) = &waiter.condition.changes {
            event_file.watch(changes.as_fd(), CHANGES, false)?;
        }
        let (device, condition) = (Arc::downgrade(&waiter.file), Arc::clone(&waiter.condition));
        Ok(Self { event_file, device, condition, wants_room: AtomicBool::new(false) })
    }

    /// The loop is called.
    pub(super) fn wake(&self) {
        self.event_file.wake();
    }

    /// How many system calls it took.
    pub(super) fn syscalls(&self) -> u64 {
        self.event_file.syscalls()
    }

    /// Has the device watched for what the wait is for; fails where that cannot be.
    fn prepare(&self) -> io::Result<()> {
        let wants_room = self.condition.wants_room.load(Ordering::Relaxed);
        if wants_room != self.wants_room.load(Ordering::Relaxed)
            && let Some(device) = self.device.upgrade()
        {
            self.event_file.watch_otherwise(device.as_fd(), DEVICE, wants_room)?;
            self.wants_room.store(wants_room, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl EventSource for Watch {
    fn file(&self) -> BorrowedFd<'_> {
        self.event_file.file()
    }

    fn begin(&self, timeout: Option<Duration>) -> bool {
        self.event_file.begin(self.condition.patience(timeout)) && self.prepare().is_ok()
    }

    fn end(&self) {
        self.event_file.end_with(|what, has_room| match what {
            DEVICE if has_room => self.condition.wants_room.store(false, Ordering::Relaxed),
            CHANGES => self.condition.read_changes(),
            _ => {}
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waiter::tests::{quiet, with_changes};
    use device::Waiter;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::time::Instant;

    const LONG: Duration = Duration::from_secs(20);

    /// Whether the file of a wait is readable within `timeout`.
    fn is_over(source: &dyn EventSource, timeout: Duration) -> bool {
        let file = source.file();
        let timeout = Timespec::try_from(timeout).expect("it is short");
        poll(&mut [PollFd::new(&file, PollFlags::IN)], Some(&timeout)).expect("it can be polled")
            > 0
    }

    #[test]
    fn a_call_ends_the_wait_also_one_that_came_before() {
        let waiter = quiet();
        let source = &*waiter.event_source(&|| None).expect("descriptors are left");
        for _ in 0..3 {
            assert!(source.begin(None));
            assert!(!is_over(source, Duration::ZERO));
            waiter.wake();
            assert!(is_over(source, LONG));
            source.end();
        }
        waiter.wake();
        assert!(!source.begin(None), "it was called already");
        source.end();
        assert!(source.begin(None));
        assert!(!is_over(source, Duration::from_millis(5)), "a call is one");
        source.end();
    }

    #[test]
    fn the_wait_ends_in_time_and_a_longer_one_behind_it_too() {
        let waiter = quiet();
        let source = &*waiter.event_source(&|| None).expect("descriptors are left");
        for span in [Duration::from_millis(3), Duration::from_millis(30), Duration::from_millis(1)]
        {
            let began = Instant::now();
            while began.elapsed() < span {
                if source.begin(Some(span.saturating_sub(began.elapsed()))) {
                    assert!(is_over(source, LONG));
                }
                source.end();
            }
            assert!(began.elapsed() < LONG / 2, "{:?}", began.elapsed());
        }
    }

    #[test]
    fn who_is_starved_looks_again_and_is_not_kept_busy_by_what_it_cannot_fetch() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("loopback");
        let address = socket.local_addr().expect("bound");
        let waiter = FileWaiter::new(std::sync::Arc::new(socket.into())).expect("an eventfd");
        let source = &*waiter.event_source(&|| None).expect("descriptors are left");
        assert!(source.begin(None));
        let sender = std::net::UdpSocket::bind("127.0.0.1:0").expect("loopback");
        sender.send_to(b"x", address).expect("loopback");
        assert!(is_over(source, LONG), "a frame came");
        source.end();
        waiter.on_receive(true, false);
        let began = Instant::now();
        assert!(source.begin(None) && is_over(source, LONG));
        source.end();
        assert!(began.elapsed() >= super::super::STARVED, "{:?}", began.elapsed());
    }

    #[test]
    fn room_ends_one_wait_of_who_wanted_it() {
        let waiter = quiet();
        let source = &*waiter.event_source(&|| None).expect("descriptors are left");
        for wants_room in [false, true, false] {
            if wants_room {
                waiter.want_room();
            }
            assert!(source.begin(None));
            let patience = if wants_room { LONG } else { Duration::from_millis(5) };
            assert_eq!(is_over(source, patience), wants_room);
            source.end();
            assert!(!waiter.wants_room(), "it was told");
        }
    }

    #[test]
    fn a_change_of_an_interface_ends_the_wait() {
        let (waiter, kernel) = with_changes();
        let source = &*waiter.event_source(&|| None).expect("descriptors are left");
        assert!(source.begin(None));
        assert!(!is_over(source, Duration::ZERO));
        kernel.send(b"news").expect("room");
        assert!(is_over(source, LONG));
        source.end();
        assert!(waiter.take_changed());
    }

    #[test]
    fn a_loop_that_does_not_come_keeps_no_thread_awake() {
        let waiter = quiet();
        let source = &*waiter.event_source(&|| None).expect("descriptors are left");
        assert!(source.begin(None));
        waiter.wake();
        let began = Instant::now();
        let pause = Duration::from_millis(30);
        (0..2).for_each(|_| waiter.wait(Some(pause)));
        assert!(began.elapsed() >= pause, "a call ended two sleeps: {:?}", began.elapsed());
        assert!(is_over(source, Duration::ZERO), "the loop was called");
        source.end();
    }

    /// Between a thread's leave of the lock and its sleep.
    #[test]
    fn a_loop_does_not_take_the_call_of_a_thread_that_is_about_to_sleep() {
        let waiter = quiet();
        let source = &*waiter.event_source(&|| None).expect("descriptors are left");
        for is_before in [false, true] {
            if !is_before {
                assert!(source.begin(None));
            }
            waiter.wake();
            if is_before {
                assert!(!source.begin(None), "it was called");
            }
            source.end();
            let began = Instant::now();
            waiter.wait(Some(LONG));
            assert!(began.elapsed() < LONG / 2, "the call was lost");
        }
    }
}
