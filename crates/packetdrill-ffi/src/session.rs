//! The host, its clock, and the two threads that use them.
//!
//! The thread that made the session is packetdrill's main thread; any other one makes calls that
//! block. packetdrill lets only one of them run at a time. A call that blocks is put aside ([`Waiting`]); whenever time
//! passes or a packet arrives, the thread that did it attempts the calls put aside, and wakes the
//! thread of one that has returned.

use crate::{network, preload};
use posix::{Call, Errno, Host, Reply, Task};
use std::collections::HashMap;
use std::ffi::{OsString, c_int};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration as RealDuration;
use time::{Duration, Instant};

/// How often a thread is looked at that has looked at the clock and has not gone to sleep yet.
const GLANCE: RealDuration = RealDuration::from_micros(50);

/// Real time after which a thread whose call has returned, and which sleeps, will not look at the clock.
const SETTLE: RealDuration = RealDuration::from_millis(100);

/// The most real time that it gets where it does not sleep: a machine may have much else to do.
const SETTLE_MAX: RealDuration = RealDuration::from_secs(30);

/// Real time without a call of the main thread after which, if it sleeps, it must be waiting for the other one:
/// packetdrill does so at most for a second.
const IDLE: RealDuration = RealDuration::from_millis(150);

/// Virtual time in which a packet that is waited for must come.
const PACKET_PATIENCE: Duration = Duration::from_secs(3_600);

/// What one look at the clock costs.
const LOOK: Duration = Duration::from_micros(1);

/// The flag without which the host has Linux's habits.
const WITHOUT_HABITS: &str = "linux_habits=0";

/// One run of packetdrill.
pub(crate) struct Session {
    main: Caller,
    state: Mutex<State>,
    changed: Condvar,
    /// Counts what the main thread does, before it waits for the state.
    activity: AtomicUsize,
}

/// What the threads share.
pub(crate) struct State {
    pub(crate) host: Host,
    /// Real descriptors and the host's.
    fds: HashMap<c_int, posix::Fd>,
    waiting: Option<Waiting>,
    /// A thread whose call has returned, and that must be through with it before time passes.
    settling: Option<Settling>,
}

/// A thread that takes what its call has brought.
#[derive(Clone, Copy)]
struct Settling {
    caller: Caller,
    has_looked: bool,
}

/// A thread that makes calls, as it and as the kernel know it.
#[derive(Clone, Copy)]
struct Caller {
    thread: ThreadId,
    tid: libc::pid_t,
}

impl Caller {
    fn this() -> Self {
        // SAFETY: the call has no arguments and no effect.
        Self { thread: thread::current().id(), tid: unsafe { libc::gettid() } }
    }

    /// Whether the thread waits for something, or has ended, and is not merely kept from running on a machine with
    /// much to do. Where the kernel does not say, silence must do.
    fn sleeps(self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{}/stat", self.tid));
        // The state follows the name, which stands in brackets and may have some in it.
        let stat = stat.unwrap_or_default();
        stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with(['S', 'Z', 'X']))
    }
}

/// A call that blocks.
struct Waiting {
    caller: Caller,
    task: Task,
    returned: Option<Result<Reply, Errno>>,
}

impl Session {
    pub(crate) fn new(settings: &str) -> Self {
        let mut config = packetdrill::host_config();
        config.adopts_addresses = true;
        if !settings.split([',', ' ']).any(|word| word == WITHOUT_HABITS) {
            packetdrill::apply_linux_habits(&mut config);
        }
        let mut words = Vec::new();
        if let Some(script) = script_of_this_run() {
            // packetdrill runs commands where it was started.
            packetdrill::apply_script_settings(&script, Path::new("."), &mut config);
            words.extend(network::options_of(&script));
        }
        words.extend(std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()));
        network::apply_options(&words, &mut config);
        packetdrill::apply_settings(&settings.replace(',', " "), &mut config);
        let state =
            State { host: Host::new(config), fds: HashMap::new(), waiting: None, settling: None };
        Self {
            main: Caller::this(),
            state: Mutex::new(state),
            changed: Condvar::new(),
            activity: AtomicUsize::new(0),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a call and waits for its return: in the main thread by letting time pass, in another
    /// by waiting for the main thread to do so.
    pub(crate) fn call(&self, call: Call) -> Result<Reply, Errno> {
        let is_main = self.note_activity();
        let mut state = self.lock();
        let mut task = state.host.begin(call);
        if !is_main {
            self.go_on(&mut state);
            return self.call_beside(state, task);
        }
        loop {
            if let Some(returned) = state.host.attempt(&mut task) {
                self.attempt_waiting(&mut state);
                return returned;
            }
            let far = state.host.now() + PACKET_PATIENCE;
            let Some(limit) = next_event(&state, far, task.deadline()) else {
                // Nothing will ever happen that could end it.
                return Err(Errno::EINTR);
            };
            state = self.settle(state, false);
            self.step(&mut state, limit);
        }
    }

    fn call_beside(
        &self,
        mut state: MutexGuard<'_, State>,
        mut task: Task,
    ) -> Result<Reply, Errno> {
        if let Some(returned) = state.host.attempt(&mut task) {
            self.attempt_waiting(&mut state);
            return returned;
        }
        state.waiting = Some(Waiting { caller: Caller::this(), task, returned: None });
        loop {
            let activity = self.activity.load(Ordering::SeqCst);
            let waited = self.changed.wait_timeout(state, IDLE);
            let (woken, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = woken;
            if timeout.timed_out() && self.main.sleeps() {
                match self.main_waits_for_a_thread() {
                    true => self.step_until_returned(&mut state, activity),
                    // It waits for something else, a command perhaps: the call goes on, but not through hours.
                    false => self.step_once(&mut state, activity),
                }
            }
            match state.waiting.take() {
                Some(Waiting { returned: Some(returned), .. }) => return returned,
                waiting => state.waiting = waiting,
            }
        }
    }

    /// The main thread waits for the call put aside, and lets no time pass while it does: lets all happen that
    /// will by itself until the call returns, or the main thread goes on after all.
    fn step_until_returned(&self, state: &mut State, activity: usize) {
        let far = state.host.now() + PACKET_PATIENCE;
        let blocks = |state: &State| {
            state.waiting.as_ref().is_some_and(|waiting| waiting.returned.is_none())
        };
        while blocks(state)
            && state.host.now() < far
            && self.activity.load(Ordering::SeqCst) == activity
            && let Some(limit) = next_event(state, far, None)
        {
            self.step(state, limit);
        }
    }

    /// Lets happen what is next, where the main thread has done nothing meanwhile.
    fn step_once(&self, state: &mut State, activity: usize) {
        let far = state.host.now() + PACKET_PATIENCE;
        if self.activity.load(Ordering::SeqCst) == activity
            && let Some(limit) = next_event(state, far, None)
        {
            self.step(state, limit);
        }
    }

    /// Says that the main thread does something, where this is it.
    fn note_activity(&self) -> bool {
        let is_main = thread::current().id() == self.main.thread;
        if is_main {
            self.activity.fetch_add(1, Ordering::SeqCst);
        }
        is_main
    }

    /// Whether what the main thread sleeps in is what threads wait for each other with. Where the kernel does not say, it is.
    fn main_waits_for_a_thread(&self) -> bool {
        let call = std::fs::read_to_string(format!("/proc/self/task/{}/syscall", self.main.tid));
        // The number of the call comes first.
        let call = call.unwrap_or_default();
        let number = call.split_whitespace().next();
        number.is_none_or(|number| number.parse() == Ok(libc::SYS_futex))
    }

    /// The call put aside may have been waiting for what just happened.
    fn attempt_waiting(&self, state: &mut State) {
        let Some(mut waiting) = state.waiting.take() else { return };
        if waiting.returned.is_none() {
            waiting.returned = state.host.attempt(&mut waiting.task);
            if waiting.returned.is_some() {
                state.settling = Some(Settling { caller: waiting.caller, has_looked: false });
                self.changed.notify_all();
            }
        }
        state.waiting = Some(waiting);
    }

    /// This thread is through with what its call has brought, or it would do nothing else. It may wait for the start of
    /// the next by looking at the clock or by sleeping here, and is not to wait for itself.
    fn go_on(&self, state: &mut State) {
        let thread = thread::current().id();
        if state.settling.is_some_and(|settling| settling.caller.thread == thread) {
            state.settling = None;
            self.changed.notify_all();
        }
    }

    /// Waits until a thread whose call has returned has looked at the clock, and sleeps. What the call has brought it takes
    /// under a lock of packetdrill's, for which it may be that it sleeps: the main thread leaves that lock to it only while it
    /// sleeps itself (`is_lent`), and wakes it so.
    fn settle<'a>(&self, mut state: MutexGuard<'a, State>, is_lent: bool) -> MutexGuard<'a, State> {
        self.go_on(&mut state);
        let started = std::time::Instant::now();
        while let Some(Settling { caller, has_looked }) = state.settling {
            let may_be_through = has_looked || started.elapsed() >= SETTLE;
            let is_settled = may_be_through && caller.sleeps();
            if is_settled || started.elapsed() >= SETTLE_MAX {
                if is_lent || !has_looked || !is_settled {
                    state.settling = None;
                }
                break;
            }
            let waited = self.changed.wait_timeout(state, if has_looked { GLANCE } else { SETTLE });
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state
    }

    fn step(&self, state: &mut State, limit: Instant) {
        state.host.step(limit);
        self.attempt_waiting(state);
    }

    /// Lets time pass until `until` as seen from now.
    pub(crate) fn sleep(&self, span: Duration) {
        self.note_activity();
        let mut state = self.settle(self.lock(), true);
        let until = state.host.now() + span;
        while state.host.now() < until {
            let limit = next_event(&state, until, None).unwrap_or(until);
            self.step(&mut state, limit);
            state = self.settle(state, true);
        }
    }

    /// The time. Looks let it pass, because packetdrill's threads wait by looking (the second one for
    /// the start of its call); but not the first look after a call that blocked has returned.
    pub(crate) fn look_at_clock(&self) -> Instant {
        let thread = thread::current().id();
        let is_main = self.note_activity();
        let mut state = self.lock();
        match &mut state.settling {
            Some(settling) if settling.caller.thread == thread && !settling.has_looked => {
                settling.has_looked = true;
                self.changed.notify_all();
                return state.host.now();
            }
            _ => self.go_on(&mut state),
        }
        if is_main {
            state = self.settle(state, false);
        }
        let limit = state.host.now() + LOOK;
        self.step(&mut state, limit);
        state.host.now()
    }

    /// A packet arrives.
    pub(crate) fn inject(&self, packet: &[u8]) {
        self.note_activity();
        let mut state = self.lock();
        state.host.inject(packet);
        self.attempt_waiting(&mut state);
    }

    /// The next packet that was sent, and when; lets time pass until there is one. `None` where
    /// there will be none.
    pub(crate) fn next_packet(&self) -> Option<(Instant, Vec<u8>)> {
        self.note_activity();
        let mut state = self.settle(self.lock(), false);
        let far = state.host.now() + PACKET_PATIENCE;
        loop {
            if let Some(packet) = state.host.take_packet() {
                return Some(packet);
            }
            let limit = next_event(&state, far, None).filter(|_| state.host.now() < far)?;
            self.step(&mut state, limit);
            state = self.settle(state, false);
        }
    }

    /// Where it lies, which is what packetdrill hands back with each call.
    fn address(&self) -> usize {
        core::ptr::from_ref(self).expose_provenance()
    }

    /// A real descriptor for one of the host's: one that cannot be written to, so that a call which does not come
    /// here, like sendfile(2), fails and does not lose what it was given.
    pub(crate) fn publish(&self, fd: posix::Fd) -> Result<c_int, Errno> {
        // SAFETY: the string ends with a zero.
        let real = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
        if real < 0 {
            return Err(Errno::EMFILE);
        }
        self.lock().fds.insert(real, fd);
        preload::publish(real, self.address());
        Ok(real)
    }

    /// The host's descriptor; one that was never published names nothing.
    pub(crate) fn fd(&self, real: c_int) -> posix::Fd {
        self.lock().fds.get(&real).copied().unwrap_or(-1)
    }

    /// The same, of one that is open: as in the kernel that comes before anything is read of the caller's memory.
    pub(crate) fn open_fd(&self, real: c_int) -> Result<posix::Fd, Errno> {
        if self.has_published(real) { Ok(self.fd(real)) } else { Err(Errno::EBADF) }
    }

    /// Whether a real descriptor stands for one of the host's.
    pub(crate) fn has_published(&self, real: c_int) -> bool {
        self.lock().fds.contains_key(&real)
    }

    /// The descriptor is closed.
    pub(crate) fn retire(&self, real: c_int) {
        preload::retire(real);
        if self.lock().fds.remove(&real).is_some() {
            // SAFETY: it was opened by `publish` and is known to nobody else any more.
            unsafe { libc::close(real) };
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        preload::end(self.address());
    }
}

/// How many sessions there were: packetdrill makes one for each script, in the order of its
/// arguments.
static SESSIONS: AtomicUsize = AtomicUsize::new(0);

/// The text of the script that is about to run. packetdrill does not tell the library, but a script
/// sets sysctls of the kernel in commands, which here are settings of the stack.
fn script_of_this_run() -> Option<String> {
    let index = SESSIONS.fetch_add(1, Ordering::Relaxed);
    scripts(std::env::args_os().skip(1)).nth(index)
}

/// The texts of the scripts among packetdrill's arguments, whatever they are called. The value of an option may be a word
/// of its own, which names no text, but for that of `--init_scripts`.
fn scripts(words: impl Iterator<Item = OsString>) -> impl Iterator<Item = String> {
    let mut before = OsString::new();
    words.filter_map(move |word| {
        let before = std::mem::replace(&mut before, word.clone());
        let is_script = !word.as_encoded_bytes().starts_with(b"-") && before != "--init_scripts";
        is_script.then(|| std::fs::read_to_string(word).ok()).flatten()
    })
}

/// When something will happen next, `limit` at most; `None` where nothing will.
fn next_event(state: &State, limit: Instant, deadline: Option<Instant>) -> Option<Instant> {
    let waiting = state.waiting.as_ref().and_then(|waiting| waiting.task.deadline());
    let events = [state.host.poll_timeout(), waiting, deadline];
    events.into_iter().flatten().min().map(|next| next.min(limit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn scripts_are_told_from_options_and_their_values_and_not_by_their_names() {
        let directory = std::env::temp_dir().join(format!("scripts-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a place for files");
        let file_named = |name: &OsStr, bytes: &[u8]| {
            let path = directory.join(name);
            std::fs::write(&path, bytes).expect("room");
            path.into_os_string()
        };
        let file = |name: &str, bytes| file_named(OsStr::new(name), bytes);
        let words = [
            "--so_filename".into(),
            file("library.so", &[0x7f, b'E', b'L', b'F', 0xff]),
            "-D".into(),
            "CODE=x.pkt".into(),
            file("first.pkt", b"one"),
            "--init_scripts".into(),
            file("defaults.sh", b"none"),
            "-v".into(),
            file("second", b"two"),
            file_named(OsStr::from_bytes(b"third-\xff"), b"three"),
        ];
        let found: Vec<_> = scripts(words.into_iter()).collect();
        std::fs::remove_dir_all(&directory).expect("it is there");
        assert_eq!(found, ["one", "two", "three"]);
    }
}
