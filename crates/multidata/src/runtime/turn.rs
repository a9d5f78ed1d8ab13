//! Who waits for the device, and who waits for whom.
//!
//! A call that cannot be answered yet waits, and somebody must meanwhile wait for the *device*. The
//! first thread that has to wait becomes the *leader*: it lets go of the lock and sleeps on the
//! device until a frame comes or the shard's next deadline, then takes the lock, runs the shard and
//! looks again. Whoever has to wait while there is a leader is a *follower* and parks; the thread
//! that runs the shard wakes it when its socket has an event. When the leader's own call is answered
//! it hands the lead to the follower that has waited longest, and wakes exactly that one. So a lone
//! thread leads every time and never pays a wake-up between threads; nor does it where others merely wait, who
//! accept connections or have none that is busy: the lead is kept for it while it is away, and the leader that wakes
//! it follows.
//!
//! Threads that run the shard without having to wait leave the leader asleep, unless its socket had
//! an event or a deadline has come up before the one it sleeps for. Who leads, who follows and who is called
//! when a thread leaves is decided by [`steering::Watch`], which knows no threads; here are those who sleep.
//!
//! With no application thread in a wait, the squeue's worker does the leader's part; see
//! [`worker`](super::worker). It is no competitor: an application thread that has to wait takes the
//! lead although the worker sleeps on the device, too.

use super::hand_over::Desk;
use super::memory_turns::Lack;
use super::outside::{Entered, Within};
use super::squeue::{Core, Squeue, own_token};
use super::waiter_slot::{Seen, WaiterSlot};
use super::waiting::{Interest, Parker, Sleeper};
use crate::error::{device_error, socket_error};
use device::Waiter;
use stack::{SocketError, SocketId};
use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, MutexGuard};
use std::task::{Context, Poll, Waker};
use steering::{Calls, Left, Parked, Role};
use time::{Duration, Instant};

/// No call has a turn fetch more than so much for it: a part of a second-level cache, from which it is copied out.
const ENOUGH_BYTES_MAX: usize = 128 << 10;

/// Waits of calls that no event ends (flushing) look again after so long.
const RECHECK: Duration = Duration::from_millis(5);

/// How often a thread lets others go first before it sleeps.
const TURNS_GIVEN_MAX: usize = 4;

/// So many frames from other squeues are not left to an application thread that may come back.
const OWED_FRAMES_CALL: usize = 128;

/// Others ran if giving way took so long.
const TURN_MIN: Duration = Duration::from_micros(3);

/// What a device panicked with.
pub(crate) type Panic = Box<dyn Any + Send>;

/// For who is being dropped: goes on with a panic, but where its thread panics already. A second one would end the
/// process.
pub(crate) fn resume_unless_panicking(panic: Option<Panic>) {
    if let Some(panic) = panic.filter(|_| !std::thread::panicking()) {
        resume_unwind(panic);
    }
}

/// Asks a device something in the middle of what is done whatever becomes of it; what it panics with is kept for the
/// caller, who has more to do.
pub(crate) fn ask_keeping<T: Default>(panic: &mut Option<Panic>, ask: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(ask)).unwrap_or_else(|it| {
        panic.get_or_insert(it);
        T::default()
    })
}

/// What follows a call that could be answered at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// Nothing: the call only looked.
    Leave,
    /// What it made the shard owe is sent.
    Send,
}

/// A call on a socket, as far as waiting is concerned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    /// Whose events end the wait; `None` looks again every few milliseconds.
    pub(crate) socket: Option<SocketId>,
    pub(crate) interest: Interest,
    pub(crate) after: After,
    /// How many bytes that a connection received it can take; 0 where that is not what it is for.
    pub(crate) takes_bytes: usize,
    /// Whether to wait at all.
    pub(crate) blocks: bool,
    /// How long to wait at most.
    pub(crate) timeout: Option<Duration>,
    /// What an expired timeout is called.
    pub(crate) expired: io::ErrorKind,
}

impl Call {
    /// Of which connection how many bytes are enough for a turn.
    fn wanted(&self) -> Option<(SocketId, usize)> {
        let socket = self.socket.filter(|_| self.takes_bytes > 0)?;
        Some((socket, self.takes_bytes.min(ENOUGH_BYTES_MAX)))
    }
}

impl Squeue {
    /// Does `attempt` on the shard, and again whenever its socket may have become ready, until it
    /// says something else than [`SocketError::WouldBlock`] or the call's time is up.
    pub(crate) fn operate<T>(
        &self,
        call: &Call,
        attempt: impl FnMut(&mut Core, Instant) -> Result<T, SocketError>,
    ) -> io::Result<T> {
        self.operate_for(call, None, attempt)
    }

    /// As [`Squeue::operate`], for a task: where a thread would wait, the task's waker is entered, under
    /// the same lock under which the attempt failed. So no event is lost in between, and a task that
    /// does not wait leaves nothing behind that would wake it later.
    pub(crate) fn poll<T>(
        &self,
        call: &Call,
        context: &Context<'_>,
        attempt: impl FnMut(&mut Core, Instant) -> Result<T, SocketError>,
    ) -> Poll<io::Result<T>> {
        let call = Call { blocks: false, ..*call };
        match self.operate_for(&call, Some(context.waker()), attempt) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
            outcome => Poll::Ready(outcome),
        }
    }

    fn operate_for<T>(
        &self,
        call: &Call,
        task: Option<&Waker>,
        mut attempt: impl FnMut(&mut Core, Instant) -> Result<T, SocketError>,
    ) -> io::Result<T> {
        let _alarm = self.alarm();
        let mut core = self.lock();
        let mut deadline = None;
        loop {
            let now = self.clock.now();
            core.application_ran = now;
            if deadline.is_some() {
                core.watch.on_back(own_token(), now);
            }
            if let Some(error) = core.failure_of(call.socket).cloned() {
                // What has arrived can still be read.
                let outcome = match call.interest {
                    Interest::Readable => attempt(&mut core, now),
                    Interest::Writable => Err(SocketError::WouldBlock),
                };
                self.release(core);
                return match outcome {
                    Err(SocketError::WouldBlock) => Err(device_error(&error)),
                    outcome => outcome.map_err(socket_error),
                };
            }
            let mut outcome = attempt(&mut core, now);
            let is_left =
                !call.blocks && call.interest == Interest::Readable && core.is_left_to_loop();
            if matches!(outcome, Err(SocketError::WouldBlock)) && !is_left {
                core.run_for(now, call.wanted());
                outcome = attempt(&mut core, now);
            }
            let Err(SocketError::WouldBlock) = outcome else {
                if call.after == After::Send {
                    core.run_outgoing(now);
                }
                self.release(core);
                return outcome.map_err(socket_error);
            };
            let is_first = deadline.is_none();
            let until = *deadline.get_or_insert_with(|| call.timeout.map(|timeout| now + timeout));
            if core.failure_of(call.socket).is_some() {
                continue;
            }
            if !call.blocks || until.is_some_and(|until| until <= now) {
                if let (Some(waker), Some(socket)) = (task, call.socket) {
                    core.waiting.add_task(socket, call.interest, waker);
                }
                self.release(core);
                return Err(would_block(call));
            }
            core.watch.on_wait(own_token(), is_first, now);
            if core.wakes_lone() {
                core.watch.keep(now);
            }
            core = self.wait(core, call, until, now);
        }
    }

    /// Does something on the shard that never waits, and runs it, or leaves that to the event loop it is called from.
    /// What other squeues have said before is known first: a connection can be opened from an address that the stack
    /// has told of.
    pub(crate) fn once<T>(&self, act: impl FnOnce(&mut Core, Instant) -> T) -> T {
        self.once_then(Core::run_unless_left, act)
    }

    /// As [`Squeue::once`], for what is to be done in all squeues, and run at once: where a device panics in the turn that
    /// follows, which is behind it, the panic is kept until the others have done it, too.
    pub(crate) fn once_of_all<T>(
        &self,
        panic: &mut Option<Panic>,
        act: impl FnOnce(&mut Core, Instant) -> T,
    ) -> T {
        let outcome = self.once_then(keeping(panic, Core::run), act);
        // It is how devices come: the worker rests for as long as all have failed.
        self.worker_parker.notify();
        outcome
    }

    /// As [`Squeue::once`]; what a device panics with in the turn that follows is kept for the caller, who has more to do.
    pub(crate) fn once_keeping<T>(
        &self,
        panic: &mut Option<Panic>,
        act: impl FnOnce(&mut Core, Instant) -> T,
    ) -> T {
        self.once_then(keeping(panic, Core::run_unless_left), act)
    }

    /// As [`Squeue::once`], for what needs nothing that devices brought: what it makes the shard owe is sent.
    pub(crate) fn once_sending<T>(&self, act: impl FnOnce(&mut Core, Instant) -> T) -> T {
        self.once_then(Core::run_outgoing, act)
    }

    fn once_then<T>(
        &self,
        run: impl FnOnce(&mut Core, Instant),
        act: impl FnOnce(&mut Core, Instant) -> T,
    ) -> T {
        let _alarm = self.alarm();
        let mut core = self.lock();
        let now = self.clock.now();
        core.application_ran = now;
        core.take_in(now);
        let outcome = act(&mut core, now);
        run(&mut core, now);
        self.release(core);
        outcome
    }

    /// The time of the stack's clock.
    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Looks at the shard without running it.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&mut Core) -> T) -> T {
        let mut core = self.lock();
        let outcome = look(&mut core);
        drop(core);
        self.look_after();
        outcome
    }

    /// Has a task woken once, at the next event its interest is in.
    pub(crate) fn register_waker(&self, socket: SocketId, interest: Interest, waker: &Waker) {
        let _alarm = self.alarm();
        let mut core = self.lock();
        match core.failure_of(Some(socket)) {
            Some(_) => core.waiting.wake(Sleeper::Task(waker.clone())),
            None => core.waiting.add_task(socket, interest, waker),
        }
        self.release(core);
    }

    /// Has a task that lacks memory woken when its turn for it has come. Memory that came back before this
    /// call is found when the first in turn looks again.
    pub(crate) fn wait_for_memory(&self, socket: SocketId, lack: Lack, waker: &Waker) {
        let _alarm = self.alarm();
        let mut guard = self.lock();
        let core = &mut *guard;
        core.counters.pool_waits += 1;
        match core.failure_of(Some(socket)) {
            Some(_) => core.waiting.wake(Sleeper::Task(waker.clone())),
            None => {
                core.waiting.add_memory_task(socket, lack, waker, self.clock.now());
            }
        }
        self.release(guard);
    }

    /// Has the tasks that are to hear when they can write on a socket hear of memory, too: a write that may
    /// not wait found none, and of memory there is no event.
    pub(crate) fn miss_memory(&self, socket: SocketId) {
        let _alarm = self.alarm();
        let mut core = self.lock();
        core.waiting.add_memory_tasks_of_writers(socket, self.clock.now());
        self.release(core);
    }

    /// Sleeps, with the lock released, until it makes sense to look again.
    fn wait<'a>(
        &'a self,
        mut core: Entered<'a>,
        call: &Call,
        until: Option<Instant>,
        now: Instant,
    ) -> Entered<'a> {
        // Who waits while the stack is being built waits for what comes.
        core.devices.set_hears(true);
        if core.pace.is_unfinished() || core.owed_frames() > 0 {
            let rest = core.pace.time_for_calls(self.clock.now(), self.is_wanted());
            self.release(core);
            std::thread::sleep(rest);
            return self.lock();
        }
        let until = match call.socket {
            Some(_) => until,
            None => Instant::earliest(until, Some(now + RECHECK)),
        };
        if core.watch.role(now) == Role::Follows {
            return self.follow(core, call, until, now);
        }
        let socket = call.socket;
        if core.discipline.leader_polls() && core.polls(now) {
            core.watch.lead_awake(socket, now);
            self.release(core);
            // Whoever is to bring the next frames may need this CPU.
            std::thread::yield_now();
            let mut core = self.lock();
            core.watch.on_awake_leader_back();
            return core;
        }
        let until = Instant::earliest(until, core.deadline());
        core.watch.lead(socket, until);
        core.counters.leader_waits += 1;
        let left = self.left_first(&core);
        self.release(core);
        // A device is the application's code: who panics in it must not lead for ever.
        let waited = catch_unwind(AssertUnwindSafe(|| {
            if let (None, Some(waiter)) = (&left, self.waiters.first()) {
                give_way(waiter);
            }
            self.sleep_on_first(left.as_ref(), until.map(|until| until.since(now)));
        }));
        let mut core = self.lock();
        core.watch.on_leader_back();
        if let Err(panic) = waited {
            self.release(core);
            resume_unwind(panic);
        }
        core
    }

    /// The waiter of the first interface, where nobody receives from its device any more, or not until readers have
    /// read; asked under the lock by who is to sleep there.
    pub(crate) fn left_first(&self, core: &Core) -> Option<Seen> {
        let is_left = core.devices.port(0)?.failed().is_some() || core.inhibition.is_on();
        self.waiters.first().filter(|_| is_left).map(WaiterSlot::seen)
    }

    /// Sleeps on the first interface's device, or, where that is `left` alone, until somebody calls: what lies
    /// in it must not end the sleep, because it stays there.
    pub(super) fn sleep_on_first(&self, left: Option<&Seen>, timeout: Option<Duration>) {
        let Some(waiter) = self.waiters.first() else { return };
        match left {
            Some(seen) => waiter.wait_for_another(seen, timeout),
            None => waiter.wait(timeout),
        }
    }

    /// Parks until this socket has an event, the lead is handed over, or time is up.
    fn follow<'a>(
        &'a self,
        mut core: Entered<'a>,
        call: &Call,
        until: Option<Instant>,
        now: Instant,
    ) -> Entered<'a> {
        let own = Parker::own();
        if let Some(socket) = call.socket {
            core.waiting.add_thread(socket, call.interest, &own);
        }
        core.watch.follow(own_token(), Arc::clone(&own));
        core.counters.follower_parks += 1;
        self.release(core);
        own.park(until.map(|until| until.since(now)));
        let mut core = self.lock();
        if let Some(socket) = call.socket {
            core.waiting.remove_thread(socket, &own);
        }
        core.watch.on_follower_back(|other| Arc::ptr_eq(other, &own));
        core
    }

    /// Releases the lock, then wakes whomever the turn concerns, in other squeues as well.
    pub(crate) fn release(&self, entered: Entered<'_>) {
        // What was put aside comes last: it may take its time.
        let Entered { core, within } = entered;
        let concerned = self.leave(core, &within);
        if let Some((_, others)) = &self.others {
            others.tell(concerned);
            self.look_after();
        }
    }

    /// After the lock was released: somebody may have brought frames meanwhile, and have found it
    /// taken.
    fn look_after(&self) {
        let Some((index, others)) = &self.others else { return };
        while others.is_told(*index)
            && let Some(Entered { mut core, within }) = self.try_lock()
        {
            core.discipline.on_owed();
            let concerned = self.leave(core, &within);
            others.tell(concerned);
        }
    }

    /// Releases the lock and wakes those of this squeue; says which others are to be told.
    fn leave(&self, mut core: MutexGuard<'_, Core>, within: &Within<'_>) -> u64 {
        let wakes_waiter = core.settle(&self.worker_parker);
        let woken = core.waiting.take_woken();
        core.counters.wakeups_sent += woken.len() as u64 + u64::from(wakes_waiter);
        let concerned = core.desk.as_mut().map_or(0, Desk::take_concerned);
        let concerns_all = core.concern.take();
        let has_memory = self.others.as_ref().map_or(0, |(index, others)| {
            let has_tasks = core.waiting.deadline().is_some();
            others.memory().on_leave(*index, has_tasks, || core.left_to_share_bytes())
        });
        drop(core);
        if let Some((index, others)) = &self.others {
            if concerns_all {
                others.wake_others(*index);
            }
            if has_memory > 0 {
                others.tell_of_memory(has_memory);
            }
        }
        within.wake(woken);
        if wakes_waiter && let Some(waiter) = self.waiters.first() {
            waiter.wake();
        }
        concerned
    }
}

impl Core {
    /// Runs the shard, or leaves that to the event loop that the call comes from.
    fn run_unless_left(&mut self, now: Instant) {
        if !self.is_left_to_loop() {
            self.run(now);
        }
    }

    /// Whether the thread which alone is busy is about to be woken.
    fn wakes_lone(&self) -> bool {
        self.watch.lone_follower().is_some_and(|lone| self.waiting.wakes_thread(lone))
    }

    /// Makes sure, before the lock is released, that somebody goes on: the leader if it sleeps past
    /// what has come up, else a follower, else the worker. Says whether the sleeper on the device
    /// must be woken.
    fn settle(&mut self, worker: &Arc<Parker>) -> bool {
        if let Some(desk) = &self.desk {
            desk.take_note();
        }
        let owed_frames = self.owed_frames();
        // A worker whose devices have all failed does not look again by itself.
        let rests_on_frames = self.devices.all_failed() && owed_frames > 0;
        let deadline = if self.watch.is_slept_for() { self.deadline() } else { None };
        let is_crowded = owed_frames >= OWED_FRAMES_CALL;
        let Calls { device, parked } = self.watch.settle(&Left {
            is_pressing: self.pace.is_unfinished() || self.devices.all_failed() || owed_frames > 0,
            calls_worker: self.pace.is_unfinished()
                || self.waiting.has_tasks()
                || is_crowded
                || rests_on_frames,
            deadline,
        });
        if device {
            self.discipline.on_wakeup();
        }
        if let Some(parked) = parked {
            self.discipline.on_wakeup();
            self.waiting.wake(Sleeper::Thread(match parked {
                Parked::Follower(follower) => follower,
                Parked::Worker => Arc::clone(worker),
            }));
        }
        device
    }
}

/// A turn that keeps what a device panics with.
fn keeping(
    panic: &mut Option<Panic>,
    run: impl FnOnce(&mut Core, Instant),
) -> impl FnOnce(&mut Core, Instant) {
    move |core, now| {
        let ran = catch_unwind(AssertUnwindSafe(|| run(core, now)));
        core.counters.panics_inside += u64::from(ran.is_err());
        *panic = panic.take().or(ran.err());
    }
}

/// Before sleeping, lets threads that are ready to run on this CPU go first, for some turns. Where
/// both ends of a wire share a CPU the sender so fills the wire before it is read, instead of being
/// preempted for each of its batches (a tenth of the throughput, and the faster the receiver, the
/// worse); where nobody else wants the CPU, the first turn takes no time and is the last.
fn give_way(waiter: &dyn Waiter) {
    for _ in 0..TURNS_GIVEN_MAX {
        if waiter.is_ready() != Some(false) {
            return;
        }
        let before = std::time::Instant::now();
        std::thread::yield_now();
        if before.elapsed() < TURN_MIN {
            return;
        }
    }
}

fn would_block(call: &Call) -> io::Error {
    if !call.blocks {
        return socket_error(SocketError::WouldBlock);
    }
    io::Error::new(call.expired, "the socket's timeout expired before the call could be answered")
}
