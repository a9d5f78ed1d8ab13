//! The wait for a device as one file, for who has an event loop.
//!
//! It is an epoll that watches the device, an eventfd of those who wake, the netlink socket and a timer. The loop
//! watches it for the edge, so a device that stays readable, with no memory to receive into or because it failed,
//! does not keep the loop busy.
//!
//! The eventfd is not that of the threads: one that a loop has yet to see, which may do something else for long, would
//! end all their sleeps meanwhile, and one that it has seen would be missing to a thread that is about to sleep. It is
//! never emptied, as each call is an edge.
//!
//! A loop comes when it comes, so what it holds does not keep the device open: that is closed when the stack lets go of
//! it, and its place in the epoll goes with it.

use super::{Condition, FileWaiter};
use device::EventSource;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// What an event is about.
const DEVICE: u64 = 0;
const CALL: u64 = 1;
const CHANGES: u64 = 2;
const TIMER: u64 = 3;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Epoll {
    epoll: OwnedFd,
    timer: OwnedFd,
    call: OwnedFd,
    /// The device, which is let go of by others.
    file: Weak<OwnedFd>,
    condition: Arc<Condition>,
    /// As [`FileWaiter::waiters`] and [`FileWaiter::woken`], of the loop.
    waits: AtomicBool,
    woken: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The device is watched for room, too.
    wants_room: bool,
    /// When the timer goes off. A wait that may last longer leaves it, and is over early.
    armed: Option<Instant>,
}

impl Epoll {
    /// # Errors
    /// Where the process has no descriptor left.
    pub(super) fn new(waiter: &FileWaiter) -> rustix::io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let call = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let watch = |file: BorrowedFd<'_>, what| {
            epoll::add(&epoll, file, EventData::new_u64(what), EventFlags::IN | EventFlags::ET)
        };
        watch(waiter.file.as_fd(), DEVICE)?;
        watch(call.as_fd(), CALL)?;
        watch(timer.as_fd(), TIMER)?;
        if let Some(changes) = &waiter.condition.changes {
            watch(changes.as_fd(), CHANGES)?;
        }
        let (waits, woken) = (AtomicBool::new(false), AtomicBool::new(false));
        let (file, condition) = (Arc::downgrade(&waiter.file), Arc::clone(&waiter.condition));
        let state = Mutex::default();
        Ok(Self { epoll, timer, call, file, condition, waits, woken, state })
    }

    /// The loop is called.
    pub(super) fn wake(&self) {
        if !self.woken.swap(true, Ordering::SeqCst) && self.waits.load(Ordering::SeqCst) {
            self.count_syscall();
            // It fails only when the counter is at its end, after centuries.
            let _ = rustix::io::write(&self.call, &1_u64.to_ne_bytes());
        }
    }

    fn count_syscall(&self) {
        self.condition.syscalls.fetch_add(1, Ordering::Relaxed);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the epoll watch what the wait is for; fails where that cannot be.
    fn prepare(&self, timeout: Option<Duration>) -> rustix::io::Result<()> {
        let mut state = self.state();
        let wants_room = self.condition.wants_room.load(Ordering::Relaxed);
        if wants_room != state.wants_room
            && let Some(file) = self.file.upgrade()
        {
            let room = if wants_room { EventFlags::OUT } else { EventFlags::empty() };
            let wanted = EventFlags::IN | EventFlags::ET | room;
            self.count_syscall();
            epoll::modify(&self.epoll, &*file, EventData::new_u64(DEVICE), wanted)?;
            state.wants_room = wants_room;
        }
        let Some(timeout) = timeout else { return Ok(()) };
        let Some(due) = Instant::now().checked_add(timeout) else { return Ok(()) };
        if state.armed.is_some_and(|armed| armed <= due) {
            return Ok(());
        }
        let Ok(it_value) = Timespec::try_from(timeout) else { return Ok(()) };
        let value = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        self.count_syscall();
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &value)?;
        state.armed = Some(due);
        Ok(())
    }

    /// Takes note of what ended the wait.
    fn take_events(&self) {
        let mut events: Vec<Event> = Vec::with_capacity(4);
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        self.count_syscall();
        if epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&at_once)).is_err() {
            return;
        }
        for Event { flags, data } in events {
            match data.u64() {
                DEVICE if flags.contains(EventFlags::OUT) => {
                    self.condition.wants_room.store(false, Ordering::Relaxed);
                }
                CHANGES => self.condition.read_changes(),
                TIMER => self.state().armed = None,
                _ => {}
            }
        }
    }
}

impl EventSource for Epoll {
    fn file(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    fn begin(&self, timeout: Option<Duration>) -> bool {
        self.waits.store(true, Ordering::SeqCst);
        if self.woken.swap(false, Ordering::SeqCst) {
            return false;
        }
        let timeout = self.condition.patience(timeout);
        let is_over = timeout.is_some_and(|timeout| timeout.is_zero());
        !is_over && self.prepare(timeout).is_ok()
    }

    fn end(&self) {
        self.take_events();
        // Whoever called meanwhile is answered by this return.
        self.woken.store(false, Ordering::SeqCst);
        self.waits.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waiter::tests::quiet;
    use device::Waiter;
    use rustix::event::{PollFd, PollFlags, poll};

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
        let source = &*waiter.event_source().expect("descriptors are left");
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
        let source = &*waiter.event_source().expect("descriptors are left");
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
        let source = &*waiter.event_source().expect("descriptors are left");
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
    fn a_loop_that_does_not_come_keeps_no_thread_awake() {
        let waiter = quiet();
        let source = &*waiter.event_source().expect("descriptors are left");
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
        let source = &*waiter.event_source().expect("descriptors are left");
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
