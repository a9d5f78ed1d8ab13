//! Who waits for which socket.
//!
//! A table beside the shard, indexed by [`SocketId::index`]: an event reaches the threads and tasks
//! that wait for its socket without a search. An entry is taken out when it is woken; who is woken
//! and still finds nothing registers again, under the same lock under which it looked.
//!
//! Nobody is woken under the lock of the squeue: whoever is to be is put into a list, which who
//! releases the lock takes ([`Waiting::take_woken`]).

use super::event_watch::EventWatch;
use super::memory_turns::{Lack, MemoryTurns};
use batch::BlockPool;
use core::cell::Cell;
use core::ops::Deref;
use stack::{Readiness, SocketEvent, SocketId};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Wake, Waker};
use time::{Duration, Instant};

/// What a thread or task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Data, a connection to accept, the end of the stream or an error.
    Readable,
    /// Room to send, the end of a connection attempt, or an error.
    Writable,
}

impl Interest {
    /// Whether an event of these bits is waited for.
    fn matches(self, readiness: Readiness) -> bool {
        let wanted = match self {
            Self::Readable => Readiness::READABLE | Readiness::ACCEPTABLE,
            Self::Writable => Readiness::WRITABLE | Readiness::CONNECTED,
        };
        readiness.intersects(wanted | Readiness::CLOSED)
    }
}

/// Where one thread sleeps until another one wakes it.
///
/// Not `std::thread::park`: its token belongs to the application, which may park the same thread
/// for reasons of its own.
#[derive(Debug, Default)]
pub(crate) struct Parker {
    notified: Mutex<bool>,
    changed: Condvar,
}

thread_local! {
    /// Not here while it is in use.
    static OWN: Cell<Option<Arc<Parker>>> = const { Cell::new(None) };
}

/// The calling thread's parker, until this is dropped.
#[derive(Debug)]
pub(crate) struct OwnParker(Arc<Parker>);

impl Deref for OwnParker {
    type Target = Arc<Parker>;

    fn deref(&self) -> &Arc<Parker> {
        &self.0
    }
}

impl Drop for OwnParker {
    fn drop(&mut self) {
        // A thread that ends has none any more.
        let _ = OWN.try_with(|own| own.set(Some(Arc::clone(&self.0))));
    }
}

impl Parker {
    /// The calling thread's parker, without notification. A thread may come to wait for something else before it parks,
    /// in a waker that it calls: it has another one for that, or would lose what it is told meanwhile.
    pub(crate) fn own() -> OwnParker {
        let parker = OWN.try_with(Cell::take).ok().flatten().unwrap_or_default();
        *super::locked(&parker.notified) = false;
        OwnParker(parker)
    }

    /// Sleeps until notified (also before the call) or for `timeout`; says whether it was notified.
    pub(crate) fn park(&self, timeout: Option<Duration>) -> bool {
        let guard = super::locked(&self.notified);
        let mut guard = match timeout {
            Some(timeout) => {
                let waited = self.changed.wait_timeout_while(guard, timeout, |told| !*told);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => {
                let waited = self.changed.wait_while(guard, |told| !*told);
                waited.unwrap_or_else(PoisonError::into_inner)
            }
        };
        core::mem::take(&mut *guard)
    }

    /// Ends the current or the next [`Parker::park`].
    pub(crate) fn notify(&self) {
        let mut guard = super::locked(&self.notified);
        if !core::mem::replace(&mut *guard, true) {
            drop(guard);
            self.changed.notify_one();
        }
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.notify();
    }
}

/// A thread or a task that waits.
#[derive(Clone, Debug)]
pub(crate) enum Sleeper {
    Thread(Arc<Parker>),
    Task(Waker),
}

impl Sleeper {
    /// Wakes it. A waker is the application's code; says `false` where it panicked, which must not keep others
    /// from being woken.
    pub(crate) fn wake(self) -> bool {
        match self {
            Self::Thread(parker) => parker.notify(),
            Self::Task(waker) => {
                return catch_unwind(AssertUnwindSafe(|| waker.wake())).is_ok();
            }
        }
        true
    }
}

/// So many places for sockets are kept, used or not, and so many in each for those who wait for it.
const SLOTS_KEPT: usize = 1_024;
const SLEEPERS_KEPT: usize = 4;

/// The table of those who wait.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    slots: Vec<Slot>,
    tasks: usize,
    memory_turns: MemoryTurns,
    /// Who waits for something to happen to an interface or an address, of all squeues.
    pub(crate) event_watch: Arc<EventWatch>,
    /// Who is to be woken when the lock is released.
    woken: Vec<Sleeper>,
    /// Entries that were looked at.
    visited: u64,
}

/// Who waits for one socket.
#[derive(Debug, Default)]
struct Slot {
    sleepers: Vec<(Interest, Sleeper)>,
    /// The tasks that wait for memory to write with, mostly one.
    memory: Vec<Waker>,
    /// It stands among the turns.
    has_turn: bool,
}

impl Waiting {
    fn entry(&mut self, socket: SocketId) -> &mut Slot {
        let index = socket.index();
        if self.slots.len() <= index {
            self.slots.resize_with(index + 1, Slot::default);
        }
        &mut self.slots[index]
    }

    fn slot(&mut self, socket: SocketId) -> &mut Vec<(Interest, Sleeper)> {
        let visited = self.entry(socket).sleepers.len() as u64;
        self.visited += visited;
        &mut self.entry(socket).sleepers
    }

    /// How many entries were looked at since this was asked last.
    pub(crate) fn take_visited(&mut self) -> u64 {
        core::mem::take(&mut self.visited)
    }

    /// Whether any task (not thread) waits.
    pub(crate) fn has_tasks(&self) -> bool {
        self.tasks > 0 || !self.memory_turns.is_empty()
    }

    /// When the first of the tasks is to look again that wait for memory.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.memory_turns.deadline()
    }

    /// Enters a task that waits for memory to write with.
    pub(crate) fn add_memory_task(
        &mut self,
        socket: SocketId,
        lack: Lack,
        waker: &Waker,
        now: Instant,
    ) {
        let slot = self.entry(socket);
        let had_turn = core::mem::replace(&mut slot.has_turn, true);
        if !slot.memory.iter().any(|known| known.will_wake(waker)) {
            slot.memory.push(waker.clone());
        }
        self.memory_turns.add(socket.index(), had_turn, lack, now);
    }

    /// Enters as such the tasks that are to hear when they can write on a socket.
    pub(crate) fn add_memory_tasks_of_writers(&mut self, socket: SocketId, now: Instant) {
        let wakers: Vec<Waker> = self
            .slot(socket)
            .iter()
            .filter_map(|(interest, sleeper)| match sleeper {
                Sleeper::Task(waker) if *interest == Interest::Writable => Some(waker.clone()),
                Sleeper::Task(_) | Sleeper::Thread(_) => None,
            })
            .collect();
        for waker in &wakers {
            self.add_memory_task(socket, Lack::Blocks, waker, now);
        }
    }

    /// Wakes as many of the tasks that wait for memory as there is memory for ([`MemoryTurns::on_memory`]).
    pub(crate) fn on_memory(&mut self, now: Instant, pool: &BlockPool) {
        let Self { slots, visited, woken, memory_turns, .. } = self;
        memory_turns.on_memory(now, pool, |index| {
            let Some(slot) = slots.get_mut(index) else { return false };
            *visited += 1 + slot.memory.len() as u64;
            slot.has_turn = false;
            let waits = !slot.memory.is_empty();
            woken.extend(slot.memory.drain(..).map(Sleeper::Task));
            waits
        });
    }

    /// Enters a thread.
    pub(crate) fn add_thread(&mut self, socket: SocketId, interest: Interest, who: &Arc<Parker>) {
        self.slot(socket).push((interest, Sleeper::Thread(Arc::clone(who))));
    }

    /// Takes a thread out again; it may have been woken and taken out before.
    pub(crate) fn remove_thread(&mut self, socket: SocketId, who: &Arc<Parker>) {
        let is_other = |entry: &(Interest, Sleeper)| match &entry.1 {
            Sleeper::Thread(parker) => !Arc::ptr_eq(parker, who),
            Sleeper::Task(_) => true,
        };
        self.slot(socket).retain(is_other);
    }

    /// Enters a task's waker, once for each interest.
    pub(crate) fn add_task(&mut self, socket: SocketId, interest: Interest, waker: &Waker) {
        let slot = self.slot(socket);
        let is_same = |entry: &(Interest, Sleeper)| match &entry.1 {
            Sleeper::Task(known) => entry.0 == interest && known.will_wake(waker),
            Sleeper::Thread(_) => false,
        };
        if !slot.iter().any(is_same) {
            slot.push((interest, Sleeper::Task(waker.clone())));
            self.tasks += 1;
        }
    }

    /// Takes a task out again; it may have been woken and taken out before.
    pub(crate) fn remove_task(&mut self, socket: SocketId, waker: &Waker) {
        let Some(slot) = self.slots.get_mut(socket.index()) else { return };
        let before = slot.sleepers.len();
        self.visited += (before + slot.memory.len()) as u64;
        slot.sleepers.retain(|entry| match &entry.1 {
            Sleeper::Task(known) => !known.will_wake(waker),
            Sleeper::Thread(_) => true,
        });
        self.tasks -= before - slot.sleepers.len();
        slot.memory.retain(|known| !known.will_wake(waker));
    }

    /// Wakes those whom an event concerns.
    pub(crate) fn on_event(&mut self, event: SocketEvent) {
        let Some(slot) = self.slots.get_mut(event.socket.index()) else { return };
        let before = self.woken.len();
        self.visited += slot.sleepers.len() as u64;
        let concerned = slot.sleepers.extract_if(.., |entry| entry.0.matches(event.readiness));
        self.woken.extend(concerned.map(|entry| entry.1));
        self.tasks -= count_tasks(&self.woken[before..]);
    }

    /// Wakes those who wait for something to happen to an interface or an address.
    pub(crate) fn on_interface_event(&mut self) {
        self.event_watch.on_events(&mut self.woken);
    }

    /// Wakes everybody who waits for a socket: the devices are gone.
    pub(crate) fn wake_all(&mut self) {
        self.visited += self.slots.len() as u64;
        for slot in &mut self.slots {
            self.woken.extend(slot.sleepers.drain(..).map(|entry| entry.1));
            self.woken.extend(slot.memory.drain(..).map(Sleeper::Task));
            slot.has_turn = false;
        }
        self.memory_turns.clear();
        self.tasks = 0;
    }

    /// Wakes and forgets who waited for a socket that is being closed.
    pub(crate) fn forget(&mut self, socket: SocketId) {
        let Some(slot) = self.slots.get_mut(socket.index()) else { return };
        let before = self.woken.len();
        self.visited += (slot.sleepers.len() + slot.memory.len()) as u64;
        self.woken.extend(slot.sleepers.drain(..).map(|entry| entry.1));
        self.tasks -= count_tasks(&self.woken[before..]);
        self.woken.extend(slot.memory.drain(..).map(Sleeper::Task));
        slot.sleepers.shrink_to(SLEEPERS_KEPT);
        slot.memory.shrink_to(SLEEPERS_KEPT);
    }

    /// Gives memory back once most of very many sockets are gone: none has an index from `count` on.
    pub(crate) fn shrink(&mut self, count: usize) {
        if self.slots.len() <= SLOTS_KEPT.max(2 * count) {
            return;
        }
        let before = self.woken.len();
        let mut rest: Vec<Slot> = self.slots.drain(count..).collect();
        let sleepers = rest.iter_mut().flat_map(|slot| slot.sleepers.drain(..));
        self.woken.extend(sleepers.map(|entry| entry.1));
        self.tasks -= count_tasks(&self.woken[before..]);
        self.woken.extend(rest.into_iter().flat_map(|slot| slot.memory).map(Sleeper::Task));
        self.slots.shrink_to(SLOTS_KEPT);
    }

    /// Wakes somebody who waits for no socket, or would wait in vain.
    pub(crate) fn wake(&mut self, sleeper: Sleeper) {
        self.woken.push(sleeper);
    }

    /// Whether any task is about to be woken.
    pub(crate) fn wakes_tasks(&self) -> bool {
        self.woken.iter().any(|sleeper| matches!(sleeper, Sleeper::Task(_)))
    }

    /// Whether this thread is about to be woken.
    pub(super) fn wakes_thread(&self, thread: &Arc<Parker>) -> bool {
        let is_it =
            |woken: &Sleeper| matches!(woken, Sleeper::Thread(it) if Arc::ptr_eq(it, thread));
        self.woken.iter().any(is_it)
    }

    /// Those who are to be woken now that the lock is being released.
    pub(super) fn take_woken(&mut self) -> Vec<Sleeper> {
        core::mem::take(&mut self.woken)
    }
}

fn count_tasks(sleepers: &[Sleeper]) -> usize {
    sleepers.iter().filter(|sleeper| matches!(sleeper, Sleeper::Task(_))).count()
}

#[cfg(test)]
mod tests {
    use super::super::memory_turns::MEMORY_RETRY;
    use super::*;
    use stack::{Shard, ShardConfig};

    #[test]
    fn places_of_very_many_sockets_that_are_gone_are_given_back_and_nobody_is_forgotten() {
        const COUNT: usize = 5_000;
        let (tcp, pool) = (tcp::Config::default(), batch::BlockPool::new(Default::default()));
        let config = ShardConfig { tcp, pool, secret: [0; 32], sockets_max: COUNT };
        let mut shard = Shard::new(config);
        let any = std::net::SocketAddr::from(([0; 4], 0));
        let sockets: Vec<_> =
            (0..COUNT).map(|_| shard.udp_bind(any).expect("a free port")).collect();
        let mut waiting = Waiting::default();
        for socket in &sockets {
            waiting.add_task(*socket, Interest::Readable, Waker::noop());
        }
        waiting.shrink(shard.slot_count());
        assert_eq!((waiting.slots.len(), waiting.woken.len()), (COUNT, 0));
        for socket in &sockets[100..] {
            shard.close(Instant::ZERO, *socket);
        }
        waiting.shrink(300);
        assert_eq!((waiting.slots.len(), waiting.tasks), (300, 300));
        assert_eq!(waiting.woken.len(), COUNT - 300);
        assert!(waiting.slots.capacity() <= SLOTS_KEPT);
        waiting.wake_all();
        assert_eq!((waiting.woken.len(), waiting.has_tasks()), (COUNT, false));
    }

    /// Whatever takes a task out is counted: a squeue whose tasks seem to wait has its worker look for ever.
    #[test]
    fn tasks_are_counted_while_they_wait_and_all_hear_that_it_is_over() {
        let (socket, now) = (some_socket(), Instant::ZERO);
        let mut waiting = Waiting::default();
        for interest in [Interest::Readable, Interest::Writable] {
            waiting.add_task(socket, interest, Waker::noop());
            waiting.on_event(SocketEvent { socket, readiness: Readiness::CLOSED });
            assert_eq!((waiting.take_woken().len(), waiting.tasks), (1, 0), "{interest:?}");
        }
        // One task may wait for both.
        for interest in [Interest::Readable, Interest::Writable] {
            waiting.add_task(socket, interest, Waker::noop());
        }
        waiting.on_event(SocketEvent { socket, readiness: Readiness::WRITABLE });
        assert_eq!((waiting.take_woken().len(), waiting.tasks), (1, 1));
        waiting.on_event(SocketEvent { socket, readiness: Readiness::READABLE });
        assert_eq!((waiting.take_woken().len(), waiting.tasks), (1, 0));
        let memory_tasks = |waiting: &Waiting| waiting.slots[socket.index()].memory.len();
        waiting.add_memory_task(socket, Lack::Blocks, Waker::noop(), now);
        waiting.remove_task(socket, Waker::noop());
        assert_eq!(memory_tasks(&waiting), 0, "it waits no more");
        waiting.add_task(socket, Interest::Writable, Waker::noop());
        waiting.add_memory_task(socket, Lack::Blocks, Waker::noop(), now);
        waiting.forget(socket);
        assert_eq!((waiting.woken.len(), waiting.tasks, memory_tasks(&waiting)), (2, 0, 0));
    }

    /// How often a task that looks in vain each time is woken in the second from this millisecond on.
    fn looks_in_vain(waiting: &mut Waiting, pool: &BlockPool, lack: Lack, from: u64) -> usize {
        let socket = some_socket();
        let mut looks = 0;
        for now in from..from + 1_000 {
            let now = Instant::from_millis(now);
            if !waiting.has_tasks() {
                waiting.add_memory_task(socket, lack, Waker::noop(), now);
            }
            waiting.on_memory(now, pool);
            looks += waiting.take_woken().len();
        }
        looks
    }

    fn some_socket() -> SocketId {
        let (tcp, pool) = (tcp::Config::default(), BlockPool::new(Default::default()));
        let config = ShardConfig { tcp, pool, secret: [0; 32], sockets_max: 1 };
        Shard::new(config).udp_bind(([0; 4], 0).into()).expect("a free port")
    }

    #[test]
    fn whose_share_stays_used_up_looks_less_and_less_often_until_something_comes_back() {
        let pool = BlockPool::new(Default::default());
        let rest = pool.left_to_send_bytes() - pool.left_to_share_bytes();
        let mut held = vec![pool.allocate(pool.left_to_share_bytes() - 8_192).expect("room")];
        held.extend([4_096; 2].map(|len| pool.allocate(len).expect("room")));
        assert_eq!((pool.left_to_share_bytes(), pool.left_to_send_bytes()), (0, rest));
        let mut waiting = Waiting::default();
        let looks = looks_in_vain(&mut waiting, &pool, Lack::Share, 0);
        assert!((20..50).contains(&looks), "{looks} looks in a second");
        // Less than a block of the usual size: it is looked for, and not told of.
        let mut now = Instant::from_millis(2_000);
        waiting.wake_all();
        waiting.add_memory_task(some_socket(), Lack::Share, Waker::noop(), now);
        assert_eq!(waiting.deadline(), Some(now + MEMORY_RETRY), "nobody has waited for long");
        let looks = looks_in_vain(&mut waiting, &pool, Lack::Share, 2_000);
        assert!((20..50).contains(&looks), "{looks} looks in a second");
        now += Duration::from_millis(1_000);
        waiting.wake_all();
        waiting.take_woken();
        waiting.add_memory_task(some_socket(), Lack::Share, Waker::noop(), now);
        held.pop();
        waiting.on_memory(now, &pool);
        now += MEMORY_RETRY;
        waiting.on_memory(now, &pool);
        assert_eq!(waiting.woken.len(), 1, "as soon as anything has come back");
        // Who found no block looks each time: others may have taken it before.
        let looks = looks_in_vain(&mut waiting, &pool, Lack::Blocks, 4_000);
        assert!(looks > 400, "{looks} looks in a second");
    }
}
