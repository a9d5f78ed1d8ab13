//! The squeue: the lock around a shard and its device queues, and the loop between them.
//!
//! Any thread that reads, writes, accepts or connects takes the lock, does its own part on the
//! shard, and then runs the whole shard, device poll included ([`Core::run`]). So a lone thread
//! sends its own packets and fetches its own answers, and pays for no other thread. What happens
//! when it has to wait is told in [`turn`](super::turn).
//!
//! What always holds:
//! * the shard, the queues and the two reused batches are touched under the lock only;
//! * nobody sleeps or copies an application's bulk data in while holding the lock, and nobody is
//!   woken under it, nor is memory let go of that the application lent ([`outside`](super::outside));
//! * after [`Core::run`] every event of the shard was taken and those whom it concerns stand in
//!   [`Core::waiting`], to be woken when the lock is released.

use super::closing::Closing;
use super::devices::Devices;
use super::event_loop::EventLoop;
use super::hand_over::{self, Concern, Desk, HandOver};
use super::inhibition::Inhibition;
use super::outside::Entered;
use super::pace::Pace;
use super::port::Port;
use super::waiter_slot::WaiterSlot;
use super::waiters::Waiters;
use super::waiting::{Parker, Waiting};
use super::{Clock, RuntimeCounters};
use ::counters::DropReason;
use batch::{BlockPool, Multidata, ReceiveBatch};
use device::Waiter;
use stack::{Shard, SocketId};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use steering::{Discipline, Mode, Polling, ThreadToken, Watch};
use time::{Duration, Instant};

/// Rounds of one turn, should the clock stand still; what ends a turn that finds no end is the
/// discipline's [`Budget`](steering::Budget) of frames and time, asked after each round.
const ROUNDS_MAX: usize = 64;

/// What the lock protects.
pub(crate) struct Core {
    pub(crate) shard: Shard,
    /// The device queues, and what became of them.
    pub(crate) devices: Devices,
    /// Where frames are handed to other squeues and taken from them, where there are others.
    pub(super) desk: Option<Desk>,
    pub(crate) counters: RuntimeCounters,
    /// Who comes in, how long they may stay, how much comes, and whether who waits for more sleeps or polls.
    pub(crate) discipline: Discipline,
    /// When the next turn is due, and what is owed.
    pub(crate) pace: Pace,
    /// Whether anything is taken in, while readers do not keep up.
    pub(super) inhibition: Inhibition,
    /// Who waits for which socket, and who is to be woken when the lock is released.
    pub(crate) waiting: Waiting,
    /// Who waits for the device, and who for whom.
    pub(crate) watch: Watch<SocketId, Arc<Parker>>,
    /// When an application thread last took the lock.
    pub(crate) application_ran: Instant,
    /// The event loop that may lead.
    pub(crate) event_loop: EventLoop,
    /// Whether the other squeues are to look again.
    pub(super) concern: Concern,
    /// The stack's last handle is gone; until when its connections may linger.
    pub(crate) stopping: Option<Instant>,
    /// Closed connections with something left to deliver.
    pub(super) closing: Closing,
    pub(super) pool: BlockPool,
    pub(super) receive: ReceiveBatch,
    pub(super) transmit: Multidata,
}

impl Core {
    pub(crate) fn new(shard: Shard, ports: Vec<Port>, pool: BlockPool, desk: Option<Desk>) -> Self {
        // An only squeue's worker leaves its CPU to the application.
        let has_others = desk.as_ref().is_some_and(Desk::has_others);
        let polling = if has_others { Polling::ADAPTIVE } else { Polling::Off };
        Self {
            shard,
            devices: Devices::new(ports),
            desk,
            counters: RuntimeCounters::default(),
            discipline: Discipline::new(polling),
            pace: Pace::default(),
            inhibition: Inhibition::default(),
            waiting: Waiting::default(),
            watch: Watch::default(),
            event_loop: EventLoop::default(),
            application_ran: Instant::ZERO,
            concern: Concern::default(),
            stopping: None,
            closing: Closing::default(),
            pool,
            receive: ReceiveBatch::new(),
            transmit: Multidata::default(),
        }
    }

    /// Has everybody who waits for the devices poll them like this: the worker and application threads.
    pub(crate) fn set_polling(&mut self, polling: Polling) {
        self.discipline = Discipline::for_everybody(polling);
    }

    /// Runs the shard until nothing is left to move or the budget is used: what the devices received
    /// goes in, timers that are due fire, and whatever there is to send and room for goes out. This
    /// is the only place where the shard and the devices meet.
    ///
    /// A turn that is done in one round reads no clock. What the budget leaves is owed: it is pressing for
    /// whoever comes next, or is called when the lock is released.
    pub(crate) fn run(&mut self, now: Instant) {
        self.run_for(now, None);
    }

    /// As [`Core::run`], for who came for so many bytes of a connection: while nobody else waits, the turn ends
    /// when they are there. What waits in a device is out of no cache yet, and is fetched by the next call that
    /// finds nothing; taken in now, it would be cold when it is copied out.
    pub(super) fn run_for(&mut self, now: Instant, wanted: Option<(SocketId, usize)>) {
        self.counters.squeue_runs += 1;
        self.pace.begin_turn();
        let mut budget = self.discipline.budget(now);
        let mut at = now;
        for _ in 0..ROUNDS_MAX {
            let before = (self.discipline.arrived(), self.shed());
            let is_inhibited = self.inhibition.on_round(at, &self.shard, &self.pool);
            let received_more = !is_inhibited && self.receive_round(now);
            let sends_more = self.send_round(now);
            if !(received_more || sends_more) {
                self.pace.finish();
                break;
            }
            at = self.pace.time(now);
            let frames = self.discipline.arrived().saturating_sub(before.0);
            let shed = self.shed() - before.1;
            // Where most of what comes finds no room, who reads is to have its turn.
            let is_in_vain = shed > 0 && 2 * shed >= frames as u64;
            if is_in_vain || !budget.spend(at, frames) {
                break;
            }
            if !sends_more && self.has_enough(wanted) {
                self.pace.leave_rest(at);
                break;
            }
        }
        self.pace.end_turn(now, at);
        self.counters.squeue_runs_unfinished += u64::from(self.pace.is_unfinished());
        self.counters.squeue_runs_inhibited += u64::from(self.inhibition.is_on());
        self.take_events(now);
    }

    /// How much was dropped because nobody has read what came before.
    fn shed(&self) -> u64 {
        let full =
            [DropReason::SocketQueueFull, DropReason::DatagramsFull, DropReason::StreamsFull];
        full.into_iter().map(|reason| self.shard.drop_count(reason)).sum()
    }

    /// Whether so many bytes of a connection can be read, and nobody else waits for what the devices have.
    fn has_enough(&mut self, wanted: Option<(SocketId, usize)>) -> bool {
        let Some((socket, wanted_bytes)) = wanted else { return false };
        let is_lone = self.desk.is_none()
            && !self.watch.is_led()
            && self.watch.followers().len() == 0
            && !self.waiting.has_tasks();
        let has_enough = |status: stack::TcpStatus| status.readable_bytes >= wanted_bytes;
        is_lone && self.shard.tcp_status(socket).is_ok_and(has_enough)
    }

    /// Whether what the last turn left waits for readers still.
    fn awaits_readers(&self) -> bool {
        self.inhibition.awaits_readers(&self.shard, &self.pool)
    }

    /// What came by soft rings and devices goes in, a batch from each; says whether there is more.
    fn receive_round(&mut self, now: Instant) -> bool {
        let (came_before, _) = self.shard.stream_bytes();
        let has_more = self.fetch_round(now);
        self.inhibition.on_received(now, came_before, &self.shard, &self.pool);
        has_more
    }

    /// Takes in what waits from other squeues; what follows from it is done by the next [`Core::run`], which is due.
    pub(super) fn take_in(&mut self, now: Instant) {
        let Self { shard, devices, desk, receive, .. } = self;
        if let Some(desk) = desk.as_mut().filter(|desk| desk.depth() > 0) {
            let taken = hand_over::take_in(desk, shard, now, devices.ports(), receive);
            receive.clear();
            self.discipline.on_drained(taken.frames);
            self.pace.hurry(now);
        }
    }

    /// As [`Core::run`], for a call that fetched what was there: the devices are not polled unless
    /// that is overdue. A bulk reader takes several buffers full between two polls.
    pub(crate) fn run_outgoing(&mut self, now: Instant) {
        if self.is_left_to_loop() {
            return;
        }
        if self.pace.is_due(now) {
            return self.run(now);
        }
        self.pace.on_answered();
        if self.shard.wants_transmit() || self.shard.is_loopback_pending() {
            if self.transmit_round(now) {
                // What it left is no flood.
                self.pace.owe();
                self.pace.hurry(now);
            }
        } else if let Some(desk) = &mut self.desk {
            hand_over::pass_strays(desk, &mut self.shard);
        }
        self.take_events(now);
    }

    /// Takes the shard's events and notes whom to wake.
    fn take_events(&mut self, now: Instant) {
        self.waiting.on_memory(now, &self.pool);
        self.look_at_devices(now);
        if self.shard.take_event_news() {
            self.waiting.on_interface_event();
        }
        self.concern.on_pressures(self.shard.pool_pressures());
        while let Some(event) = self.shard.poll_event() {
            self.watch.on_event(event.socket);
            self.waiting.on_event(event);
        }
        self.waiting.shrink(self.shard.slot_count());
        self.counters.sleepers_visited += self.waiting.take_visited();
    }

    /// Wakes everybody who waits for a socket: a call of this side changed what they wait for.
    pub(crate) fn wake_socket(&mut self, socket: SocketId) {
        self.waiting.forget(socket);
        self.watch.on_event(socket);
    }

    /// Frames that other squeues received for this one and that wait, but for those that wait for readers.
    pub(crate) fn owed_frames(&self) -> usize {
        // Where all devices failed there is no deadline, and nobody would come for them.
        let awaits_readers = !self.devices.all_failed() && self.awaits_readers();
        self.desk.as_ref().filter(|_| !awaits_readers).map_or(0, Desk::depth)
    }

    /// Whether who would wait for the devices is to ask them again without sleeping: while every turn
    /// finds a backlog, to be woken for each is waste.
    pub(super) fn polls(&mut self, now: Instant) -> bool {
        self.discipline.on_turn(now) == Mode::Poll
    }

    /// What is left of the pool to share, in all squeues.
    pub(super) fn left_to_share_bytes(&self) -> usize {
        self.pool.left_to_share_bytes()
    }

    /// When the shard has to run again at the latest.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let retry = Instant::earliest(self.pace.retry(), self.waiting.deadline());
        let retry = Instant::earliest(retry, self.devices.deadline());
        // Readers that never come are not waited for, and once they have, what was left is due.
        let left = if self.awaits_readers() { self.pace.poll_at() } else { Instant::ZERO };
        let retry = Instant::earliest(retry, self.inhibition.is_on().then_some(left));
        if self.devices.all_failed() {
            None
        } else {
            Instant::earliest(self.shard.poll_timeout(), retry)
        }
    }
}

thread_local! {
    /// Every thread's has an address of its own.
    static TOKEN: u8 = const { 0 };
}

/// The calling thread, told from others.
pub(crate) fn own_token() -> ThreadToken {
    ThreadToken(TOKEN.try_with(|token| core::ptr::from_ref(token).addr() as u64).unwrap_or(0))
}

/// One shard, its devices, and everybody who waits for them.
pub(crate) struct Squeue {
    core: Mutex<Core>,
    /// Threads that wait for the lock.
    wanting: AtomicUsize,
    pub(super) clock: Clock,
    /// Those of the devices. The leader waits on the first interface's.
    pub(super) waiters: Waiters,
    /// Where the worker sleeps while application threads do its work.
    pub(super) worker_parker: Arc<Parker>,
    /// Set with [`Core::stopping`], for threads that do not hold the lock.
    pub(super) is_stopping: AtomicBool,
    /// Counted without the lock: wakers and owners of lent memory that panicked, and threads of the squeue that
    /// did and went on.
    pub(super) wakers_panicked: AtomicU64,
    pub(super) workers_restarted: AtomicU64,
    /// The squeue's number, and what it shares with others, where there are others.
    pub(super) others: Option<(usize, Arc<HandOver>)>,
}

/// See [`Squeue::alarm`].
pub(crate) struct Alarm<'a> {
    squeue: &'a Squeue,
    was_panicking: bool,
}

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.was_panicking {
            self.squeue.wake_threads();
        }
    }
}

impl Squeue {
    /// `others` is the squeue's number and what it shares with others, where there are others.
    pub(crate) fn new(
        mut core: Core,
        clock: Clock,
        others: Option<(usize, Arc<HandOver>)>,
    ) -> Self {
        core.pace.set_clock(move || clock.now());
        Self {
            waiters: Waiters::new(core.devices.ports().iter().map(|port| port.queue.waiter())),
            others,
            core: Mutex::new(core),
            wanting: AtomicUsize::new(0),
            clock,
            worker_parker: Arc::default(),
            is_stopping: AtomicBool::new(false),
            wakers_panicked: AtomicU64::new(0),
            workers_restarted: AtomicU64::new(0),
        }
    }

    /// Takes the lock. A thread that panicked under it did so in a device or a waker, between two calls
    /// of the shard or in what one of them lets go of, so the others go on.
    pub(crate) fn lock(&self) -> Entered<'_> {
        let within = self.within();
        let (mut core, was_held) = match self.core.try_lock() {
            Ok(core) => (core, false),
            Err(TryLockError::Poisoned(poisoned)) => (self.heal(poisoned), false),
            Err(TryLockError::WouldBlock) => {
                self.wanting.fetch_add(1, Ordering::Relaxed);
                let core = self.core.lock();
                self.wanting.fetch_sub(1, Ordering::Relaxed);
                (core.unwrap_or_else(|poisoned| self.heal(poisoned)), true)
            }
        };
        core.discipline.on_enter(own_token(), was_held);
        Entered { core, within }
    }

    /// Takes the lock if nobody holds it.
    pub(super) fn try_lock(&self) -> Option<Entered<'_>> {
        let within = self.within();
        let mut core = match self.core.try_lock() {
            Ok(core) => core,
            Err(TryLockError::Poisoned(poisoned)) => self.heal(poisoned),
            Err(TryLockError::WouldBlock) => return None,
        };
        core.discipline.on_enter(own_token(), false);
        Some(Entered { core, within })
    }

    /// The waiter of the first interface's device.
    #[cfg(unix)]
    pub(crate) fn first_waiter(&self) -> Option<Arc<dyn Waiter>> {
        self.waiters.first().map(WaiterSlot::current)
    }

    /// Whether somebody waits for the lock, as far as who holds it can see.
    pub(super) fn is_wanted(&self) -> bool {
        self.wanting.load(Ordering::Relaxed) > 0
    }

    fn heal<'a>(&self, poisoned: PoisonError<MutexGuard<'a, Core>>) -> MutexGuard<'a, Core> {
        self.core.clear_poison();
        let mut core = poisoned.into_inner();
        core.counters.panics_inside += 1;
        core
    }

    /// For the time of a call: where it panics inside, whom it would have woken when it left has the squeue's
    /// threads look instead. To be made before the lock is taken.
    pub(crate) fn alarm(&self) -> Alarm<'_> {
        Alarm { squeue: self, was_panicking: std::thread::panicking() }
    }

    /// Tells all threads of the runtime that the stack's last handle is gone.
    pub(crate) fn stop(&self, linger: Duration) {
        let mut core = self.lock();
        core.stopping = Some(self.clock.now() + linger);
        self.is_stopping.store(true, Ordering::Release);
        drop(core);
        self.wake_threads();
    }

    /// Has the worker look again.
    pub(crate) fn call_worker(&self) {
        self.worker_parker.notify();
    }

    /// Has all threads of this squeue look again.
    pub(super) fn wake_threads(&self) {
        self.call_worker();
        self.waiters.wake();
    }
}
