//! Waiting for a file that frames come from.
//!
//! One thread waits in poll(2) on the file and on an eventfd; anybody may wake it. Waking writes
//! the eventfd, a system call, only when somebody waits: `woken` is set first and `waiters` read
//! after, and a waiter counts itself first and looks at `woken` after, so one of the two sees the
//! other. Several may wait at once (a leader and the squeue's worker do), and a wake-up is for all
//! of them: the last to leave empties the eventfd. An eventfd left readable costs an early return
//! and nothing else.
//!
//! A file that is readable is not always worth a return: with no memory to receive into, or after
//! the device failed, waiting for it would be spinning.
//!
//! A device that cannot say that it has room again, or that its interface is gone, is helped: where
//! it is stalled the wait is a short one, and a second file, a netlink socket, tells of changes.
//!
//! Who has an event loop watches one file for all of that ([`event_source`]), and is called besides the threads.

mod event_source;

use crate::netlink;
use device::{EventSource, MakeSource, Waiter};
use event_source::Watch;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct FileWaiter {
    file: Arc<OwnedFd>,
    event: OwnedFd,
    waiters: AtomicUsize,
    woken: AtomicBool,
    condition: Arc<Condition>,
    /// What an event loop watches, where one does.
    watch: OnceLock<Arc<Watch>>,
}

/// What decides for what is waited, and what came of it. It does not have the device.
#[derive(Debug, Default)]
struct Condition {
    /// The last transmit found the device full: also wait for room.
    wants_room: AtomicBool,
    /// The last receive found no memory: frames are looked for again after [`STARVED`].
    is_starved: AtomicBool,
    /// The device failed: there is nothing to wait for but being woken.
    is_failed: AtomicBool,
    /// The interface is away: there is nothing to wait for but looking again after [`LOST`].
    is_lost: AtomicBool,
    /// The device has no room and will not say when it has: look again after [`STARVED`].
    is_stalled: AtomicBool,
    /// Where the kernel tells of changes of interfaces.
    changes: Option<OwnedFd>,
    /// It told of some since the last [`FileWaiter::take_changed`].
    is_changed: AtomicBool,
    syscalls: AtomicU64,
}

/// How long a wait for an interface that is away lasts, until it is looked for again.
const LOST: Duration = Duration::from_millis(20);

/// How long frames that could not be received for want of memory wait in the kernel.
const STARVED: Duration = Duration::from_millis(1);

/// How long it takes at most until who sends, and never waits, notices that the interface is another.
const UNNOTICED: Duration = Duration::from_millis(1);

impl FileWaiter {
    /// # Errors
    /// Where the process has no descriptor left.
    pub(crate) fn new(file: Arc<OwnedFd>) -> rustix::io::Result<Self> {
        Self::over(file, None)
    }

    /// The same, which also returns when `changes`, a non-blocking netlink socket that is told of
    /// interfaces, has something to say.
    ///
    /// # Errors
    /// Where the process has no descriptor left.
    pub(crate) fn with_changes(file: Arc<OwnedFd>, changes: OwnedFd) -> rustix::io::Result<Self> {
        Self::over(file, Some(changes))
    }

    fn over(file: Arc<OwnedFd>, changes: Option<OwnedFd>) -> rustix::io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self {
            file,
            event,
            waiters: AtomicUsize::new(0),
            woken: AtomicBool::new(false),
            condition: Arc::new(Condition { changes, ..Condition::default() }),
            watch: OnceLock::new(),
        })
    }

    /// As [`FileWaiter::new`], and returns also when an interface of the network namespace changes, where the
    /// kernel tells of that.
    ///
    /// # Errors
    /// Where the process has no descriptor left.
    pub(crate) fn of_interface(file: Arc<OwnedFd>) -> rustix::io::Result<Self> {
        match netlink::changes() {
            Ok(changes) => Self::with_changes(file, changes),
            Err(_) => Self::new(file),
        }
    }

    /// Whether something about interfaces has changed since the last call.
    pub(crate) fn take_changed(&self) -> bool {
        self.condition.is_changed.load(Ordering::Relaxed)
            && self.condition.is_changed.swap(false, Ordering::Relaxed)
    }

    /// The same for who sends and does not come to wait: it is asked now and then whether there was a
    /// change, `asked` is when that was last.
    pub(crate) fn has_changed(&self, asked: &mut Option<Instant>) -> bool {
        let now = Instant::now();
        if asked.is_none_or(|asked| now.duration_since(asked) >= UNNOTICED) {
            *asked = Some(now);
            self.read_changes();
        }
        self.take_changed()
    }

    /// Reads what the netlink socket says, without waiting for it, for who does not wait.
    pub(crate) fn read_changes(&self) {
        self.condition.read_changes();
    }

    /// Whether the device has no room and cannot say when it has: then waits are short.
    pub(crate) fn on_stall(&self, stalled: bool) {
        self.condition.is_stalled.store(stalled, Ordering::Relaxed);
    }

    /// From now on, waiting also ends when the device has room.
    pub(crate) fn want_room(&self) {
        self.condition.wants_room.store(true, Ordering::Relaxed);
    }

    /// Whether waiting ends when the device has room.
    #[cfg(test)]
    pub(crate) fn wants_room(&self) -> bool {
        self.condition.wants_room.load(Ordering::Relaxed)
    }

    /// How the last receive ended, which decides whether frames are waited for.
    pub(crate) fn on_receive(&self, starved: bool, failed: bool) {
        self.condition.is_starved.store(starved, Ordering::Relaxed);
        self.condition.is_failed.store(failed, Ordering::Relaxed);
    }

    /// The device failed: until a receive succeeds, waiting ends when woken only.
    pub(crate) fn on_failure(&self) {
        self.condition.is_failed.store(true, Ordering::Relaxed);
    }

    /// Whether the interface is away, and may come back.
    pub(crate) fn set_lost(&self, lost: bool) {
        self.condition.is_lost.store(lost, Ordering::Relaxed);
    }

    /// How many system calls waiting and waking took.
    pub(crate) fn syscalls(&self) -> u64 {
        let watching = self.watch.get().map_or(0, |watch| watch.syscalls());
        self.condition.syscalls.load(Ordering::Relaxed) + watching
    }

    /// Waits, and says whether somebody woke us by the eventfd.
    fn poll(&self, timeout: Option<Duration>) -> bool {
        let mut wanted = PollFlags::IN;
        if self.condition.wants_room.load(Ordering::Relaxed) {
            wanted |= PollFlags::OUT;
        }
        let is_starved = self.condition.is_starved.load(Ordering::Relaxed);
        let is_lost = self.condition.is_lost.load(Ordering::Relaxed);
        let is_failed = self.condition.is_failed.load(Ordering::Relaxed);
        let changes = self.condition.changes.as_ref().unwrap_or(&self.event);
        let mut files = [
            PollFd::new(&self.event, PollFlags::IN),
            PollFd::new(&*self.file, wanted),
            PollFd::new(changes, PollFlags::IN),
        ];
        // The kernel tells of errors whether asked or not, so a file that is not called is left out.
        let is_left = is_lost || is_starved || is_failed;
        let watched = match (is_left, &self.condition.changes) {
            (true, _) => 1,
            (false, None) => 2,
            (false, Some(_)) => 3,
        };
        // A timeout too long for the kernel is none.
        let timeout =
            self.condition.patience(timeout).and_then(|timeout| Timespec::try_from(timeout).ok());
        self.condition.syscalls.fetch_add(1, Ordering::Relaxed);
        // An interrupted wait returns early, which the contract allows.
        if poll(&mut files[..watched], timeout.as_ref()).is_err() {
            return false;
        }
        if files[1].revents().contains(PollFlags::OUT) {
            self.condition.wants_room.store(false, Ordering::Relaxed);
        }
        if watched == 3 && !files[2].revents().is_empty() {
            self.condition.read_changes();
        }
        !files[0].revents().is_empty()
    }

    fn empty_event(&self) {
        self.condition.syscalls.fetch_add(1, Ordering::Relaxed);
        // It fails only where another waiter was faster.
        let _ = rustix::io::read(&self.event, &mut [0_u8; 8]);
        // Somebody began to wait since the last one left, and what was just read may have been for them.
        if self.waiters.load(Ordering::SeqCst) > 0 {
            self.write_event();
        }
    }

    fn write_event(&self) {
        self.condition.syscalls.fetch_add(1, Ordering::Relaxed);
        // It fails only when the counter is at its end, which is readable too.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }
}

impl Condition {
    /// How long to wait at most, where `timeout` is asked for, and the device must be looked at again.
    fn patience(&self, timeout: Option<Duration>) -> Option<Duration> {
        let looks =
            [(&self.is_starved, STARVED), (&self.is_stalled, STARVED), (&self.is_lost, LOST)];
        // After a device has failed there is nothing to look for again, whatever was wrong with it before.
        let is_failed = self.is_failed.load(Ordering::Relaxed);
        let looks = looks.iter().filter(|(flag, _)| !is_failed && flag.load(Ordering::Relaxed));
        looks.map(|(_, look)| *look).chain(timeout).min()
    }

    /// Reads what the netlink socket says, without waiting for it; that it says something is enough.
    /// Who waits has it done, who does not may do so himself.
    fn read_changes(&self) {
        let Some(changes) = &self.changes else { return };
        let mut message = [0_u8; 4_096];
        loop {
            self.syscalls.fetch_add(1, Ordering::Relaxed);
            match rustix::io::read(changes, &mut message) {
                // The kernel had more to say than it can hold: what it was is not asked anyway.
                Ok(_) | Err(Errno::NOBUFS) => self.is_changed.store(true, Ordering::Relaxed),
                Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }
}

impl Waiter for FileWaiter {
    fn wait(&self, timeout: Option<Duration>) {
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let mut by_event = false;
        if !self.woken.swap(false, Ordering::SeqCst) {
            by_event = self.poll(timeout);
            // Whoever woke us meanwhile is answered by this return.
            self.woken.swap(false, Ordering::SeqCst);
        }
        // Others who still wait are to find it readable, too.
        if self.waiters.fetch_sub(1, Ordering::SeqCst) == 1 && by_event {
            self.empty_event();
        }
    }

    fn wake(&self) {
        if !self.woken.swap(true, Ordering::SeqCst) && self.waiters.load(Ordering::SeqCst) > 0 {
            self.write_event();
        }
        self.watch.get().into_iter().for_each(|watch| watch.wake());
    }

    fn event_source(&self, _: MakeSource<'_>) -> Option<Arc<dyn EventSource>> {
        if self.watch.get().is_none() {
            // Another time there may be a descriptor left. Of two who make one, the first one's is kept.
            let _ = self.watch.set(Watch::new(self).ok()?.into());
        }
        Some(Arc::clone(self.watch.get()?) as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixDatagram;
    use std::thread;

    /// A file on which nothing ever arrives.
    pub(super) fn quiet() -> FileWaiter {
        let file = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd");
        FileWaiter::new(Arc::new(file)).expect("another one")
    }

    /// The steps of `wait` and of `wake` in an order that threads take once in a blue moon: a call that
    /// comes between the last one's leave and its reading of the event is for whoever waits next.
    #[test]
    fn a_call_is_not_swallowed_by_the_one_that_leaves() {
        let waiter = quiet();
        // One was called and leaves.
        waiter.waiters.fetch_add(1, Ordering::SeqCst);
        waiter.wake();
        assert!(waiter.poll(Some(Duration::ZERO)));
        waiter.woken.swap(false, Ordering::SeqCst);
        assert_eq!(waiter.waiters.fetch_sub(1, Ordering::SeqCst), 1);
        // Another begins to wait, and is called.
        waiter.waiters.fetch_add(1, Ordering::SeqCst);
        assert!(!waiter.woken.swap(false, Ordering::SeqCst));
        waiter.wake();
        // The first one goes on.
        waiter.empty_event();
        assert!(waiter.poll(Some(Duration::ZERO)), "the other sleeps although it was called");
    }

    /// A device that has room says so for as long as it has, and is not asked again before it was full again.
    #[test]
    fn room_ends_one_wait_of_who_wanted_it() {
        let waiter = quiet();
        waiter.want_room();
        let (started, pause) = (Instant::now(), Duration::from_millis(30));
        waiter.wait(Some(Duration::from_secs(60)));
        assert!(started.elapsed() < Duration::from_secs(30), "there is room");
        let started = Instant::now();
        waiter.wait(Some(pause));
        assert!(started.elapsed() >= pause, "{:?}", started.elapsed());
    }

    /// A file on which nothing ever arrives, and the end by which a change of interfaces is told.
    pub(super) fn with_changes() -> (FileWaiter, UnixDatagram) {
        let file = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd");
        let (changes, kernel) = UnixDatagram::pair().expect("a pair of sockets");
        changes.set_nonblocking(true).expect("an option of sockets");
        let waiter = FileWaiter::with_changes(Arc::new(file), changes.into());
        (waiter.expect("another one"), kernel)
    }

    #[test]
    fn a_change_of_an_interface_ends_a_wait() {
        let (waiter, kernel) = with_changes();
        kernel.send(b"news").expect("room");
        let (started, pause) = (Instant::now(), Duration::from_millis(30));
        waiter.wait(Some(Duration::from_secs(60)));
        assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
        assert!(waiter.take_changed() && !waiter.take_changed(), "it is told once");
        let started = Instant::now();
        waiter.wait(Some(pause));
        assert!(started.elapsed() >= pause, "{:?}", started.elapsed());
    }

    /// The kernel tells of an error whether it was asked for or not, and who has no memory, or no interface, does not
    /// fetch it.
    #[test]
    fn an_error_that_nobody_fetches_does_not_end_the_wait_of_who_looks_again() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("loopback");
        let closed = std::net::UdpSocket::bind("127.0.0.1:0").expect("loopback");
        socket.connect(closed.local_addr().expect("bound")).expect("an address");
        drop(closed);
        socket.send(b"x").expect("it is sent, and refused");
        let waiter = FileWaiter::new(Arc::new(socket.into())).expect("an eventfd");
        // Until the error is there, which ends it.
        waiter.poll(None);
        for (is_starved, look) in [(true, STARVED), (false, LOST)] {
            waiter.on_receive(is_starved, false);
            waiter.set_lost(!is_starved);
            let started = Instant::now();
            (0..10).for_each(|_| waiter.wait(None));
            assert!(started.elapsed() >= 10 * look, "{:?}", started.elapsed());
        }
    }

    /// Whatever it was that had to be looked for again.
    #[test]
    fn of_a_device_that_failed_nothing_is_looked_for_again() {
        let waiter = quiet();
        let least = Duration::from_millis(60);
        waiter.on_stall(true);
        waiter.set_lost(true);
        let started = Instant::now();
        waiter.wait(Some(Duration::from_secs(60)));
        assert!(started.elapsed() < Duration::from_secs(30), "it is looked for");
        waiter.on_receive(true, true);
        let started = Instant::now();
        waiter.wait(Some(least));
        assert!(started.elapsed() >= least, "{:?}", started.elapsed());
    }

    #[test]
    fn one_wake_ends_the_wait_of_everybody_who_waits() {
        for _ in 0..200 {
            let waiter = quiet();
            let returned = AtomicUsize::new(0);
            thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        waiter.wait(Some(Duration::from_secs(3)));
                        returned.fetch_add(1, Ordering::SeqCst);
                    });
                }
                while waiter.syscalls() < 2 {
                    thread::yield_now();
                }
                thread::sleep(Duration::from_micros(200));
                let woken = Instant::now();
                waiter.wake();
                while returned.load(Ordering::SeqCst) < 2 {
                    thread::yield_now();
                }
                let took = woken.elapsed();
                assert!(took < Duration::from_secs(2), "one took the wake-up from the other");
            });
        }
    }
}
