//! A wait as one file, for who has an event loop.
//!
//! It is an epoll that watches an eventfd of those who call, a timer, and the files that whoever waits is waiting for,
//! where there are such. The loop watches it for the edge, so a file that stays readable does not keep the loop busy.
//!
//! The eventfd is the loop's and no thread's: one that a loop has yet to see, which may do something else for long,
//! would end all sleeps of threads meanwhile, and one that it has seen would be missing to a thread that is about to
//! sleep. It is never emptied, as each call is an edge.

#![cfg(target_os = "linux")]

use device::{CalledSource, EventSource};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What events of its own carry; a file that is watched may have any other mark.
const CALL: u64 = u64::MAX;
const TIMER: u64 = u64::MAX - 1;

/// See the crate's documentation.
#[derive(Debug)]
pub struct EventFile {
    epoll: OwnedFd,
    timer: OwnedFd,
    call: OwnedFd,
    /// The loop waits, or is about to.
    waits: AtomicBool,
    /// It was called, and has not come back since.
    woken: AtomicBool,
    /// When the timer goes off. A wait that may last longer leaves it, and is over early.
    armed: Mutex<Option<Instant>>,
    /// How many files the epoll watches, or has watched.
    watched: AtomicUsize,
    syscalls: AtomicU64,
}

impl EventFile {
    /// # Errors
    /// Where the process has no descriptor left.
    pub fn new() -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let call = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        for (file, mark) in [(&call, CALL), (&timer, TIMER)] {
            epoll::add(&epoll, file, EventData::new_u64(mark), interest(false))?;
        }
        Ok(Self {
            epoll,
            timer,
            call,
            waits: AtomicBool::new(false),
            woken: AtomicBool::new(false),
            armed: Mutex::default(),
            watched: AtomicUsize::new(2),
            syscalls: AtomicU64::new(0),
        })
    }

    /// Has waits end when `file`, which is not watched yet, becomes readable, or has room where that is asked for. It is
    /// not kept open, and is watched until it is closed. Any `mark` is the caller's but the two highest, which nothing is
    /// told of.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn watch(&self, file: BorrowedFd<'_>, mark: u64, for_room: bool) -> io::Result<()> {
        self.count_syscall();
        epoll::add(&self.epoll, file, EventData::new_u64(mark), interest(for_room))?;
        self.watched.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// The same for a file that is watched already.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn watch_otherwise(
        &self,
        file: BorrowedFd<'_>,
        mark: u64,
        for_room: bool,
    ) -> io::Result<()> {
        self.count_syscall();
        Ok(epoll::modify(&self.epoll, file, EventData::new_u64(mark), interest(for_room))?)
    }

    /// Ends a wait, and says which of the watched files were ready, by their marks, and whether they have room.
    pub fn end_with(&self, mut on_ready: impl FnMut(u64, bool)) {
        // For all at once: what is left out would be told by the next edge, which may never come.
        let mut events: Vec<Event> = Vec::with_capacity(self.watched.load(Ordering::Relaxed));
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        self.count_syscall();
        if epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&at_once)).is_ok() {
            for Event { flags, data } in events {
                if !matches!(data.u64(), CALL | TIMER) {
                    on_ready(data.u64(), flags.contains(EventFlags::OUT));
                }
            }
        }
        self.end();
    }

    fn count_syscall(&self) {
        self.syscalls.fetch_add(1, Ordering::Relaxed);
    }

    /// Has the timer go off in time; fails where that cannot be.
    fn arm(&self, timeout: Duration) -> rustix::io::Result<()> {
        let now = Instant::now();
        let Some(due) = now.checked_add(timeout) else { return Ok(()) };
        let mut armed = self.armed.lock().unwrap_or_else(PoisonError::into_inner);
        // What has gone off, or is about to, is armed anew: the loop may have seen it between two waits.
        if armed.is_some_and(|armed| now < armed && armed <= due) {
            return Ok(());
        }
        let Ok(it_value) = Timespec::try_from(timeout) else { return Ok(()) };
        let value = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        self.count_syscall();
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &value)?;
        *armed = Some(due);
        Ok(())
    }
}

fn interest(for_room: bool) -> EventFlags {
    let room = if for_room { EventFlags::OUT } else { EventFlags::empty() };
    EventFlags::IN | EventFlags::ET | room
}

impl EventSource for EventFile {
    fn file(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    fn begin(&self, timeout: Option<Duration>) -> bool {
        self.waits.store(true, Ordering::SeqCst);
        if self.woken.swap(false, Ordering::SeqCst) {
            return false;
        }
        timeout.is_none_or(|timeout| !timeout.is_zero() && self.arm(timeout).is_ok())
    }

    fn end(&self) {
        // Whoever called meanwhile is answered by this return.
        self.woken.store(false, Ordering::SeqCst);
        self.waits.store(false, Ordering::SeqCst);
    }
}

impl CalledSource for EventFile {
    fn wake(&self) {
        if !self.woken.swap(true, Ordering::SeqCst) && self.waits.load(Ordering::SeqCst) {
            self.count_syscall();
            // It fails only when the counter is at its end, after centuries.
            let _ = rustix::io::write(&self.call, &1_u64.to_ne_bytes());
        }
    }

    fn wake_waiting(&self) {
        if self.waits.load(Ordering::SeqCst) {
            self.wake();
        }
    }

    fn syscalls(&self) -> u64 {
        self.syscalls.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    const LONG: Duration = Duration::from_secs(20);

    /// What watches an event file for the edge.
    struct Loop(OwnedFd);

    impl Loop {
        fn new(file: &EventFile) -> Self {
            let epoll = epoll::create(CreateFlags::CLOEXEC).expect("descriptors are left");
            epoll::add(&epoll, file.file(), EventData::new_u64(0), interest(false)).expect("new");
            Self(epoll)
        }

        /// Whether there was an edge within `timeout`.
        fn is_called(&self, timeout: Duration) -> bool {
            let mut events: Vec<Event> = Vec::with_capacity(1);
            let timeout = Timespec::try_from(timeout).expect("it is short");
            epoll::wait(&self.0, spare_capacity(&mut events), Some(&timeout)).expect("an epoll") > 0
        }
    }

    fn watched() -> (EventFile, Loop) {
        let file = EventFile::new().expect("descriptors are left");
        let of_it = Loop::new(&file);
        (file, of_it)
    }

    #[test]
    fn each_call_is_an_edge_and_ends_one_wait() {
        let (file, of_it) = watched();
        for _ in 0..3 {
            file.wake_waiting();
            assert!(file.begin(None), "nobody waited");
            assert!(!of_it.is_called(Duration::ZERO));
            file.wake_waiting();
            assert!(of_it.is_called(LONG));
            file.end();
            file.wake();
            assert!(!file.begin(None), "it was called before");
            file.end();
            assert!(file.begin(None));
            file.wake();
            assert!(of_it.is_called(LONG));
            file.wake();
            assert!(!of_it.is_called(Duration::ZERO), "once is enough");
            file.end();
        }
    }

    #[test]
    fn the_timer_goes_off_once_for_each_wait_that_needs_it() {
        let (file, of_it) = watched();
        let short = Duration::from_millis(3);
        for _ in 0..3 {
            assert!(file.begin(Some(short)) && of_it.is_called(LONG));
            file.end();
        }
        assert!(!file.begin(Some(Duration::ZERO)), "it is over already");
        file.end();
        // One that is left, for a shorter wait, ends a longer one early; the next is waited for to its end.
        assert!(file.begin(Some(10 * short)));
        file.wake();
        assert!(of_it.is_called(LONG));
        file.end();
        assert!(file.begin(Some(LONG)) && of_it.is_called(LONG / 2));
        file.end();
        assert!(file.begin(Some(short)) && of_it.is_called(LONG));
        file.end();
        assert!(file.begin(None) && !of_it.is_called(3 * short), "nothing is left");
        file.end();
    }

    /// As where a turn of the loop leaves something to do, and another file's turn is between the two.
    #[test]
    fn a_timer_that_went_off_between_two_waits_is_armed_anew() {
        let (file, of_it) = watched();
        let short = Duration::from_millis(3);
        assert!(file.begin(Some(short)));
        file.end();
        assert!(of_it.is_called(LONG), "nobody waits, and the loop has seen it");
        assert!(file.begin(Some(short)) && of_it.is_called(LONG / 20), "it was left as it was");
        file.end();
    }

    #[test]
    fn all_files_that_are_ready_are_told() {
        let (file, of_it) = watched();
        let files = [(); 10].map(|()| eventfd(1, EventfdFlags::CLOEXEC).expect("descriptors"));
        for (mark, other) in files.iter().enumerate() {
            file.watch(other.as_fd(), mark as u64, mark % 2 > 0).expect("it is new");
        }
        assert!(file.begin(None) && of_it.is_called(LONG));
        file.wake();
        let mut told = Vec::new();
        file.end_with(|mark, has_room| told.push((mark, has_room)));
        told.sort_unstable();
        assert_eq!(told, (0..10).map(|mark| (mark, mark % 2 > 0)).collect::<Vec<_>>());
        file.end_with(|mark, _| panic!("nothing new is in {mark}"));
    }

    /// Who brings news calls who waits; who waits looks for news after it has begun.
    #[test]
    fn no_news_are_missed_between_two_threads() {
        const NEWS: u32 = 30_000;
        let (file, of_it) = watched();
        let (brought, seen) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for news in 1..=NEWS {
                    // Now before, now while, now after the other one goes to wait.
                    (0..news % 64).for_each(|_| std::hint::spin_loop());
                    brought.store(news, Ordering::SeqCst);
                    file.wake_waiting();
                    while seen.load(Ordering::SeqCst) < news {
                        std::thread::yield_now();
                    }
                }
            });
            let mut known = 0;
            while known < NEWS {
                if file.begin(None) && brought.load(Ordering::SeqCst) == known {
                    assert!(of_it.is_called(LONG), "{known} were seen, the next was missed");
                }
                file.end();
                known = brought.load(Ordering::SeqCst);
                seen.store(known, Ordering::SeqCst);
            }
        });
    }
}
