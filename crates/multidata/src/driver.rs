//! A stack in somebody's event loop.

use crate::runtime::squeue::{Core, Squeue};
use crate::runtime::turn::{Panic, resume_unless_panicking};
use crate::stack::Stack;
use device::{CalledSource, EventSource, Waiter};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Weak};
use time::{Duration, Instant};

/// Where the driver cannot or need not wait for the device, it looks again after so long: a thread of the application's
/// does, all devices have failed, or the one there is now cannot be watched.
const LOOK: Duration = Duration::from_millis(20);

/// Runs a squeue of a stack from an event loop ([`Stack::drivers`]).
///
/// A stack has threads that sleep on its devices and run it when a packet comes. With them a wake-up between threads
/// stands between a packet and the task that waits for it. A loop that watches [`Driver::file`], and calls
/// [`Driver::turn`] when it is readable, takes their place, and they stand aside:
///
/// ```no_run
/// # fn watch(file: &multidata::DriverFile) {}
/// # fn readable() {}
/// use multidata::Turn;
///
/// # fn run(mut driver: multidata::Driver) {
/// let mut file = driver.file();
/// watch(&file);
/// loop {
///     let turn = driver.turn();
///     // Another device may be in the place of the one there was: what is waited for is that one.
///     if driver.file() != file {
///         file = driver.file();
///         watch(&file);
///     }
///     match turn {
///         Turn::Wait => readable(),
///         Turn::Again => {}
///         Turn::Ended => return,
///     }
/// }
/// # }
/// ```
///
/// Where a turn has brought several frames for tasks, or while they send, it says [`Turn::Again`], and what tasks of the
/// same thread send and close until the next turn, of up to 16 KiB, leaves with that: together, and not a packet each.
///
/// The loop is to come back soon: for as long as it does something else, what arrives waits, and so do timers and what was
/// left to the next turn, for 40 ms at most, which is how long it takes one of the stack's threads to notice. Sockets may
/// be used from the loop and from everywhere else, blocking calls from other threads only. Dropped, it leaves its part to
/// the stack's own threads again.
pub struct Driver {
    /// Gone with the stack, and its devices with it, whenever the loop comes.
    squeue: Weak<Squeue>,
    /// The device's.
    source: Arc<dyn EventSource>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It runs, or could.
    Awake,
    /// It waits for the device, and who has to wait meanwhile relies on it.
    Leads,
    /// It waits for the device besides somebody else.
    Looks,
    /// It comes back behind the tasks that it has woken, which leave the shard to it ([`Core::is_left_to_loop`]).
    Yields,
}

/// What is to be done after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Wait until the file is readable.
    Wait,
    /// Something is left: let others run, and then call again.
    Again,
    /// The stack is gone.
    Ended,
}

/// What an event loop watches: readable when the driver is to have a turn. Whatever made it readable may stay, so it is to
/// be watched for the edge (EPOLLET, as tokio and mio do).
#[derive(Clone)]
pub struct DriverFile(Arc<dyn EventSource>);

/// Both are of the same device.
impl PartialEq for DriverFile {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for DriverFile {}

impl AsFd for DriverFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.file()
    }
}

impl AsRawFd for DriverFile {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl fmt::Debug for DriverFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "DriverFile({})", self.as_raw_fd())
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Driver").field("state", &self.state).finish_non_exhaustive()
    }
}

impl Stack {
    /// What an event loop needs to run the stack in the place of its threads: a driver for each squeue. The devices of
    /// interfaces behind the first have a thread each, as before.
    ///
    /// # Errors
    /// The device of the first interface cannot be watched by an event loop (on a system other than Linux: unless it brings
    /// an event source of its own), or the process has no descriptor left; `ResourceBusy` where there are drivers already.
    pub fn drivers(&self) -> io::Result<Vec<Driver>> {
        self.squeues().iter().map(Driver::new).collect()
    }
}

/// For devices that are no files.
pub(crate) fn make_source() -> Option<Arc<dyn CalledSource>> {
    #[cfg(target_os = "linux")]
    return Some(Arc::new(event_file::EventFile::new().ok()?));
    #[cfg(not(target_os = "linux"))]
    None
}

impl Driver {
    fn new(squeue: &Arc<Squeue>) -> io::Result<Self> {
        let source = squeue.first_waiter().and_then(|waiter| waiter.event_source(&make_source));
        let source = source.ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::Unsupported,
                "an event loop cannot watch the first interface's device, or the process has no descriptor left: leave the \
                 stack to its own threads, or raise RLIMIT_NOFILE",
            )
        })?;
        if !squeue.look(|core| core.event_loop.attach()) {
            let message = "the stack has drivers already: drop those first";
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, message));
        }
        Ok(Self { squeue: Arc::downgrade(squeue), source, state: State::Awake })
    }

    /// What to watch. It is another one when the device was replaced.
    #[must_use]
    pub fn file(&self) -> DriverFile {
        DriverFile(Arc::clone(&self.source))
    }

    /// Runs the squeue, its devices included.
    pub fn turn(&mut self) -> Turn {
        let Some(squeue) = self.squeue.upgrade() else { return Turn::Ended };
        let _alarm = squeue.alarm();
        let (before, panic) = self.end_wait();
        let mut core = squeue.lock();
        core.on_driver_back(before);
        if core.watch.ends_rest() {
            // This loop may be busy for longer now than it says.
            squeue.call_worker();
        }
        if let Some(panic) = panic {
            squeue.release(core);
            resume_unwind(panic);
        }
        if core.stopping.is_some() {
            squeue.release(core);
            return Turn::Ended;
        }
        let now = squeue.now();
        // A task that has not read everything yet, because it lets others run between, is woken by nothing.
        let (came_before, is_sending) = (core.discipline.arrived(), core.pace.has_unpolled());
        core.run(now);
        // With one frame there is one answer, which goes soonest by itself.
        let has_several = core.discipline.arrived().saturating_sub(came_before) > 1;
        let may_send = is_sending || core.waiting.wakes_tasks();
        if has_several && may_send && !core.watch.is_led() {
            self.state = State::Yields;
            core.begin_yielding(now);
            squeue.release(core);
            return Turn::Again;
        }
        if core.pace.is_unfinished() || core.owed_frames() > 0 {
            squeue.release(core);
            return Turn::Again;
        }
        let watched = self.follow_device(&squeue);
        // Kept for a lone thread, the lead is taken all the same: who looks comes late for timers.
        let until = if watched.is_none() || core.devices.all_failed() || core.watch.is_led() {
            self.state = State::Looks;
            Some(now + LOOK)
        } else {
            self.state = State::Leads;
            core.begin_loop_lead(now)
        };
        // What lies in a device that failed stays there, and what waits for readers.
        let asked = watched.filter(|_| squeue.left_first(&core).is_none());
        squeue.release(core);
        match self.begin_wait(asked.as_deref(), until, now) {
            true => Turn::Wait,
            false => Turn::Again,
        }
    }

    /// Another device may have taken the place of the one there was. Says which can be watched; one that cannot is
    /// left to the stack's threads. To be asked under the lock: who replaces it calls the one there was afterwards.
    fn follow_device(&mut self, squeue: &Squeue) -> Option<Arc<dyn Waiter>> {
        let current = squeue.first_waiter()?;
        self.source = current.event_source(&make_source)?;
        Some(current)
    }

    /// Begins to wait; says whether there is something to wait for: `asked` may have it already.
    fn begin_wait(&self, asked: Option<&dyn Waiter>, until: Option<Instant>, now: Instant) -> bool {
        self.source.begin(until.map(|until| until.since(now)))
            && asked.and_then(Waiter::is_ready) != Some(true)
    }

    /// Says what it was. What a device panics with, which is the application's code, is kept for the caller: who has led
    /// must not do so for ever.
    fn end_wait(&mut self) -> (State, Option<Panic>) {
        let before = core::mem::replace(&mut self.state, State::Awake);
        if matches!(before, State::Awake | State::Yields) {
            return (before, None);
        }
        (before, catch_unwind(AssertUnwindSafe(|| self.source.end())).err())
    }
}

impl Core {
    /// The driver is back; where it led, it does so no more.
    fn on_driver_back(&mut self, before: State) {
        match before {
            State::Awake | State::Looks => {}
            State::Leads => self.end_loop_lead(),
            State::Yields => self.end_yielding(),
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let (before, panic) = self.end_wait();
        if let Some(squeue) = self.squeue.upgrade() {
            let mut core = squeue.lock();
            core.event_loop.detach();
            core.on_driver_back(before);
            // What was left to it, the worker does.
            if before == State::Yields {
                core.pace.owe();
            }
            squeue.release(core);
        }
        resume_unless_panicking(panic);
    }
}
