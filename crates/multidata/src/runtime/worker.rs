//! The threads that keep a stack alive while no application thread is in a call.
//!
//! Each squeue has its own. The *worker* ("squeue-0" is that of the first) answers pings, sends ACKs, fires timers and closes connections when
//! nobody else does. It must not compete with an active application thread, so it stands aside,
//! looking again every few milliseconds, while an application thread leads or has run the shard
//! within the last 5 ms. Otherwise it does the leader's part. Tasks (wakers) cannot lead, so with
//! a task waiting it does not stand aside for recency.
//!
//! A stack with several interfaces has several devices to wait for and a thread can sleep on one.
//! The leader sleeps on the first; each further interface has a *watcher* ("squeue-0-interface-1")
//! that sleeps on its device and runs the shard when a frame comes. That costs those interfaces a
//! wake-up between threads; the first one stays free of it.

use super::hand_over::Desk;
use super::outside::Entered;
use super::pace::POLL_INTERVAL;
use super::squeue::{Core, Squeue};
use super::squeues::Squeues;
use super::waiter_slot::WaiterSlot;
use crate::affinity;
use device::Waiter as _;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{Builder, JoinHandle};
use steering::Worker;
use time::{Duration, Instant};

/// An application thread that ran the shard within this time is taken to come back by itself.
const GRACE: Duration = Duration::from_millis(5);

/// The same where there are several squeues: frames for another one may come by this one's device, and
/// whoever waits for them is not the thread that ran here. While a thread sleeps here on the device,
/// there is no hurry; the worker is called when that thread leaves.
const SHARED_GRACE: Duration = Duration::from_micros(200);

/// As long as every look finds an application thread that leads, the next one may wait so long. With
/// looks every 200 us the workers of two stacks of two squeues each slept and woke 10,000 times a second
/// for nothing, a tenth of all CPU time.
const ASIDE_ACTIVE_MAX: Duration = Duration::from_millis(1);

/// The worker looks at least so often while a leader sleeps undisturbed, unless it rests. Below the delay of an
/// ACK (40 ms), because a leader may leave without coming back.
pub(super) const ASIDE_MAX: Duration = Duration::from_millis(20);

/// Where nothing happens for longer, the worker rests for up to so long, and who leaves or begins to work calls it: a
/// program that is idle is not to wake a CPU fifty times a second.
const REST_MAX: Duration = Duration::from_secs(1);

/// How long a thread whose every turn panics rests between two of them in the end. The stack's end waits for it.
const PANIC_PAUSE_MAX: Duration = Duration::from_millis(500);

/// How long a watcher sleeps at most; it is woken when the stack ends.
const WATCH_MAX: Duration = Duration::from_secs(1);

/// The threads of all squeues.
#[derive(Debug)]
pub(crate) struct Threads {
    handles: Vec<JoinHandle<()>>,
}

impl Threads {
    pub(crate) fn start(squeues: &Squeues) -> io::Result<Self> {
        let mut threads = Self { handles: Vec::new() };
        for (number, squeue) in squeues.iter().enumerate() {
            let cpu = squeues.cpu(number);
            let receives: Vec<bool> =
                squeue.look(|core| core.devices.ports().iter().map(|port| port.receives).collect());
            for (index, receives) in receives.into_iter().enumerate() {
                let added = match index {
                    0 => threads.add(squeue, number, None, cpu),
                    _ if receives => threads.watch(squeue, number, index, cpu),
                    _ => Ok(()),
                };
                if let Err(error) = added {
                    squeues.stop(Duration::ZERO);
                    threads.join();
                    return Err(error);
                }
            }
        }
        Ok(threads)
    }

    /// Has interface `index` of squeue `number` watched, unless it is or was removed meanwhile. Threads that have ended are
    /// forgotten.
    pub(crate) fn watch(
        &mut self,
        squeue: &Arc<Squeue>,
        number: usize,
        index: usize,
        cpu: Option<usize>,
    ) -> io::Result<()> {
        self.handles.retain(|handle| !handle.is_finished());
        match squeue.waiters.further(index).filter(|slot| !slot.is_closed() && slot.take_watch()) {
            Some(slot) => self.add(squeue, number, Some((index, slot)), cpu),
            None => Ok(()),
        }
    }

    /// The thread of squeue `number`, or that for a further interface.
    fn add(
        &mut self,
        squeue: &Arc<Squeue>,
        number: usize,
        further: Option<(usize, Arc<WaiterSlot>)>,
        cpu: Option<usize>,
    ) -> io::Result<()> {
        let squeue = Arc::clone(squeue);
        let name = match &further {
            None => format!("squeue-{number}"),
            Some((index, _)) => format!("squeue-{number}-interface-{index}"),
        };
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        let live = move || {
            let pinned = cpu.map_or(Ok(()), affinity::pin);
            let is_pinned = pinned.is_ok();
            // Who starts the threads waits for it.
            if tell.send(pinned).is_err() || !is_pinned {
                return;
            }
            squeue.live(|| match &further {
                None => squeue.work(),
                Some((index, slot)) => squeue.watch(*index, slot),
            });
        };
        self.handles.push(Builder::new().name(name).spawn(live)?);
        match told.recv() {
            Ok(pinned) => pinned,
            Err(_) => Err(io::Error::other("a thread of the stack ended before it began")),
        }
    }

    /// Waits for all threads to end, but where one of them is calling: the last handle of a stack may be dropped by a
    /// waker that a worker runs. That one has its own squeue to deliver for, the others wait until it has, and each
    /// ends by itself.
    pub(crate) fn join(self) {
        let own = std::thread::current().id();
        if self.handles.iter().any(|handle| handle.thread().id() == own) {
            return;
        }
        for handle in self.handles {
            // A thread that panicked has said so on standard error already.
            drop(handle.join());
        }
    }
}

impl Squeue {
    /// A life that a panic does not end: what it came from, a device for example, may go on, and whoever waits here
    /// has nobody else. Not while the stack ends, for which another thread waits.
    fn live(&self, life: impl Fn()) {
        let mut pause = ASIDE_MAX;
        loop {
            let began = self.clock.now();
            if catch_unwind(AssertUnwindSafe(&life)).is_ok() {
                return;
            }
            self.workers_restarted.fetch_add(1, Ordering::Relaxed);
            if self.is_stopping.load(Ordering::Acquire) {
                return;
            }
            std::thread::sleep(pause);
            // Where each turn panics, they come to be few.
            let is_again = self.clock.now().since(began) < 2 * PANIC_PAUSE_MAX;
            pause = if is_again { PANIC_PAUSE_MAX.min(pause * 2) } else { ASIDE_MAX };
        }
    }

    /// The worker's life.
    fn work(&self) {
        let grace = if self.others.is_some() { SHARED_GRACE } else { GRACE };
        let active_max = grace.max(ASIDE_ACTIVE_MAX);
        let mut aside = grace;
        let mut application_ran = Instant::ZERO;
        // At first, for the thread may have panicked before.
        let (mut is_due, mut is_called) = (true, false);
        loop {
            let Some(mut core) = self.lock_for_worker(is_due || is_called) else {
                is_called = self.worker_parker.park(Some(aside.min(active_max)));
                continue;
            };
            if let Some(until) = core.stopping {
                drop(core);
                return self.linger(until);
            }
            if is_due {
                core.watch.on_worker_back();
            }
            let now = self.clock.now();
            if core::mem::take(&mut is_due) || core.is_left_to_worker(now) {
                core.run(now);
            }
            core.give_up_late_loop(now);
            core.watch.give_up_absent(now);
            if core.pace.is_unfinished() {
                let rest = core.pace.time_for_calls(self.clock.now(), self.is_wanted());
                core.watch.set_worker(Worker::Awake);
                self.release(core);
                if rest > Duration::ZERO {
                    self.worker_parker.park(Some(rest));
                }
                // It owes the rest, whoever holds the lock.
                is_called = true;
            } else if core.stands_aside(now) {
                aside = core.aside_after(aside, grace, application_ran);
                application_ran = core.application_ran;
                let is_well = !core.devices.all_failed();
                // All devices failed: there is nothing to do until somebody brings one ([`Squeue::once_of_all`]).
                let may_wait = !is_well && !core.watch.is_led();
                let rests = is_well && aside > ASIDE_MAX;
                let is_late = is_well && aside > ASIDE_ACTIVE_MAX;
                let is_overdue = rests || is_late && self.others.is_some();
                core.watch.set_worker(Worker::Aside { is_overdue, is_late, rests });
                self.release(core);
                is_called = self.worker_parker.park(Some(aside).filter(|_| !may_wait));
                if is_called {
                    // Something happens again.
                    aside = grace;
                }
            } else if core.polls(now) {
                aside = grace;
                core.watch.set_worker(Worker::Awake);
                self.release(core);
                // Whoever is to bring the next frames may need this CPU.
                std::thread::yield_now();
                is_due = true;
            } else {
                aside = grace;
                let until = core.deadline();
                core.watch.set_worker(Worker::Waiting { until });
                core.counters.worker_turns += 1;
                let left = self.left_first(&core);
                self.release(core);
                self.sleep_on_first(left.as_ref(), until.map(|until| until.since(now)));
                is_due = true;
            }
        }
    }

    /// A worker that stood aside looks again without queueing for the lock: who holds it is active.
    fn lock_for_worker(&self, must: bool) -> Option<Entered<'_>> {
        if must { Some(self.lock()) } else { self.try_lock() }
    }

    /// The life of the watcher of a further interface, which ends with that.
    fn watch(&self, index: usize, slot: &WaiterSlot) {
        while !self.is_stopping.load(Ordering::Acquire) && !slot.is_closed() {
            slot.wait(Some(WATCH_MAX));
            let seen = slot.seen();
            let mut core = self.lock();
            core.run(self.clock.now());
            let is_failed = core.devices.port(index).is_some_and(|port| port.failed().is_some());
            let is_inhibited = core.inhibition.is_on();
            self.release(core);
            let rest = match (is_failed, is_inhibited) {
                // Another device may come in its place.
                (true, _) => Some(WATCH_MAX),
                // What made it return is there still.
                (false, true) => Some(POLL_INTERVAL),
                (false, false) => None,
            };
            if rest.is_some() && !slot.is_closed() {
                slot.wait_for_another(&seen, rest);
            }
        }
    }

    /// Runs the shard until nothing is left to deliver, at most `until`: neither here nor in other
    /// squeues, which may need what is received here.
    fn linger(&self, until: Instant) {
        let mut is_delivered = false;
        loop {
            let mut core = self.lock();
            let now = self.clock.now();
            core.run(now);
            is_delivered |= core.devices.all_failed() || core.is_flushed();
            if now >= until || (is_delivered && self.others.is_none()) {
                return self.release(core);
            }
            // The watchers are gone: further interfaces are looked at every few milliseconds.
            let look = if core.devices.ports().len() > 1 { until.min(now + GRACE) } else { until };
            let wait = Instant::earliest(core.deadline(), Some(look));
            core.watch.set_worker(Worker::Waiting { until: wait });
            let is_unfinished = core.pace.is_unfinished() || core.owed_frames() > 0;
            let left = self.left_first(&core);
            self.release(core);
            if let Some((index, others)) = &self.others
                && is_delivered
            {
                others.on_delivered(*index);
                if others.is_delivered() {
                    return;
                }
            }
            if !is_unfinished {
                self.sleep_on_first(left.as_ref(), wait.map(|wait| wait.since(now)));
            }
        }
    }
}

impl Core {
    /// Whether there is something for a worker to do that was not called from the device.
    fn is_left_to_worker(&self, now: Instant) -> bool {
        let is_left =
            self.pace.is_unfinished() && self.pace.time_for_calls(now, false) == Duration::ZERO;
        is_left || self.is_loop_late(now) || self.owed_frames() > 0
    }

    /// How long the worker stands aside now, behind `aside` before; an application thread had run at `before`.
    fn aside_after(&self, aside: Duration, grace: Duration, before: Instant) -> Duration {
        let active_max = match self.watch.may_be_kept() {
            true => ASIDE_ACTIVE_MAX,
            false => grace.max(ASIDE_ACTIVE_MAX),
        };
        let most = match (self.watch.is_led(), self.application_ran == before) {
            (false, _) => return grace.min(active_max),
            (true, false) => active_max,
            // Who leaves failed devices does not call it.
            (true, true) if self.devices.all_failed() => ASIDE_MAX,
            (true, true) => REST_MAX,
        };
        most.min(aside * 2)
    }

    /// Whether application threads do the worker's part.
    fn stands_aside(&self, now: Instant) -> bool {
        let has_others = self.desk.as_ref().is_some_and(Desk::has_others);
        let grace = if has_others { SHARED_GRACE } else { GRACE };
        let is_recent = now.since(self.application_ran) < grace && !self.waiting.has_tasks();
        self.watch.is_led() || is_recent || self.devices.all_failed()
    }
}
