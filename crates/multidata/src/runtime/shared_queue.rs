//! A device queue that several squeues transmit by, and one receives from.
//!
//! A device may have fewer queues than its stack has squeues. The squeues then share the queues:
//! each queue has one squeue that receives from it, sleeps on it and hands on what is for the others
//! ([`hand_over`](super::hand_over)); all transmit by it, behind a lock that is taken once for each
//! batch. The others sleep on a [`Bell`], which those ring who hand something over, and the receiving
//! squeue when the device may have room again.
//!
//! What the device can do is each shard's to know. A capability that is taken back is told to who
//! transmits then; the others are told when they transmit next, before the device sees what they built
//! on it. A failure is kept for all: whose squeue meets it has the others look
//! ([`hand_over`](super::hand_over)), and they are told it in place of frames.

use batch::{BlockPool, Multidata, ReceiveBatch};
use device::{DeviceCounters, DeviceError, Queue, Received, Stop, Transmitted, Waiter};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

/// A squeue's access to an interface's device.
pub(crate) struct Place {
    pub(crate) queue: Box<dyn Queue>,
    /// Whether frames are received by it: otherwise there is no device to wait for.
    pub(crate) receives: bool,
}

/// Gives each of `count` squeues its access to a device with these queues, of which there is at
/// least one and no more than `count`.
pub(crate) fn distribute(queues: Vec<Box<dyn Queue>>, count: usize) -> Vec<Place> {
    let rings = queues.len().max(1);
    let mut places: Vec<Option<Place>> = (0..count).map(|_| None).collect();
    for (ring, queue) in queues.into_iter().enumerate() {
        let squeues: Vec<usize> = (ring..count).step_by(rings).collect();
        if squeues.len() == 1 {
            places[ring] = Some(Place { queue, receives: true });
            continue;
        }
        let device = queue.waiter();
        let state = State { queue, revocations: 0 };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            full: Mutex::default(),
            failed: OnceLock::new(),
        });
        for index in squeues {
            let bell = Arc::new(Bell::default());
            let receives = index == ring;
            let waiter: Arc<dyn Waiter> =
                if receives { Arc::clone(&device) } else { Arc::clone(&bell) as _ };
            let shared = Arc::clone(&shared);
            let queue = SharedQueue { shared, waiter, bell, receives, revocations_seen: 0 };
            places[index] = Some(Place { queue: Box::new(queue), receives });
        }
    }
    places.into_iter().flatten().collect()
}

/// What the squeues of one queue share.
struct Shared {
    state: Mutex<State>,
    /// Squeues that found the device full since its receiver looked last.
    full: Mutex<Vec<Arc<Bell>>>,
    /// The device failed, whoever met it: all squeues then have it for failed. Read without a lock by who
    /// has nothing to receive.
    failed: OnceLock<DeviceError>,
}

struct State {
    queue: Box<dyn Queue>,
    /// How often the device took a capability back.
    revocations: u64,
}

impl Shared {
    /// A thread that panicked in the device left it as it is, as with a queue of one squeue.
    fn state(&self) -> MutexGuard<'_, State> {
        super::locked(&self.state)
    }

    /// The first failure is kept.
    fn fail(&self, error: &DeviceError) {
        self.failed.get_or_init(|| error.clone());
    }

    fn full(&self) -> MutexGuard<'_, Vec<Arc<Bell>>> {
        super::locked(&self.full)
    }
}

/// A device queue as one of several squeues has it.
struct SharedQueue {
    shared: Arc<Shared>,
    waiter: Arc<dyn Waiter>,
    bell: Arc<Bell>,
    receives: bool,
    /// Of [`State::revocations`], those that this squeue was told of.
    revocations_seen: u64,
}

impl Queue for SharedQueue {
    device::forward_queue!(
        |self| self.shared.state().queue,
        but transmit, receive, waiter, counters
    );

    fn transmit(&mut self, batch: &Multidata) -> Transmitted {
        if let Some(error) = self.shared.failed.get() {
            return Transmitted { taken: 0, stopped: Some(Stop::Failed(error.clone())) };
        }
        let mut state = self.shared.state();
        if core::mem::replace(&mut self.revocations_seen, state.revocations) != state.revocations {
            return Transmitted { taken: 0, stopped: Some(Stop::Revoked) };
        }
        let transmitted = state.queue.transmit(batch);
        if transmitted.stopped == Some(Stop::Revoked) {
            state.revocations += 1;
            self.revocations_seen = state.revocations;
        }
        drop(state);
        if let Some(Stop::Failed(error)) = &transmitted.stopped {
            self.shared.fail(error);
        }
        if transmitted.stopped == Some(Stop::Full) && !self.receives {
            let mut full = self.shared.full();
            if !full.iter().any(|other| Arc::ptr_eq(other, &self.bell)) {
                full.push(Arc::clone(&self.bell));
            }
        }
        transmitted
    }

    fn receive(
        &mut self,
        pool: &BlockPool,
        batch: &mut ReceiveBatch,
        frames_max: usize,
    ) -> Received {
        let failed = self.shared.failed.get();
        if failed.is_some() || !self.receives {
            return Received { failed: failed.cloned(), ..Received::default() };
        }
        let received = self.shared.state().queue.receive(pool, batch, frames_max);
        if let Some(error) = &received.failed {
            self.shared.fail(error);
        }
        // The device woke its receiver, for frames or for room.
        let full = core::mem::take(&mut *self.shared.full());
        full.iter().for_each(|bell| bell.wake());
        received
    }

    fn waiter(&self) -> Arc<dyn Waiter> {
        Arc::clone(&self.waiter)
    }

    /// The device's counters are told once.
    fn counters(&self) -> DeviceCounters {
        match self.receives {
            true => self.shared.state().queue.counters(),
            false => DeviceCounters::default(),
        }
    }
}

/// What a squeue without a device of its own sleeps on.
#[derive(Debug, Default)]
struct Bell {
    state: Mutex<BellState>,
    changed: Condvar,
    /// The event loop that is to be woken, where there is one.
    #[cfg(unix)]
    called: OnceLock<Arc<dyn device::CalledSource>>,
}

#[derive(Debug, Default)]
struct BellState {
    /// Threads that sleep: a leader and the worker may both.
    sleepers: usize,
    /// Counts how often it rang; who sleeps, sleeps until it changes.
    rung: u64,
    /// It rang while nobody slept.
    is_pending: bool,
}

impl Waiter for Bell {
    fn wait(&self, timeout: Option<Duration>) {
        let mut state = super::locked(&self.state);
        if core::mem::take(&mut state.is_pending) {
            return;
        }
        let before = state.rung;
        state.sleepers += 1;
        let is_quiet = |state: &mut BellState| state.rung == before;
        let mut state = super::waited_while(&self.changed, state, timeout, is_quiet);
        state.sleepers -= 1;
    }

    fn wake(&self) {
        let has_sleepers = {
            let mut state = super::locked(&self.state);
            state.rung += 1;
            state.is_pending |= state.sleepers == 0;
            state.sleepers > 0
        };
        if has_sleepers {
            self.changed.notify_all();
        }
        #[cfg(unix)]
        self.called.get().into_iter().for_each(|source| source.wake());
    }

    #[cfg(unix)]
    fn event_source(&self, make: device::MakeSource<'_>) -> Option<Arc<dyn device::EventSource>> {
        Some(device::made_once(&self.called, make)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bell_wakes_all_who_sleep_and_else_the_next() {
        let bell = Arc::new(Bell::default());
        bell.wake();
        bell.wait(None);
        let sleepers: Vec<_> = (0..2)
            .map(|_| {
                let bell = Arc::clone(&bell);
                std::thread::spawn(move || bell.wait(None))
            })
            .collect();
        while bell.state.lock().expect("no panic").sleepers < 2 {
            std::thread::yield_now();
        }
        bell.wake();
        sleepers.into_iter().for_each(|it| it.join().expect("it ends"));
        let before = std::time::Instant::now();
        bell.wait(Some(Duration::from_millis(5)));
        assert!(before.elapsed() >= Duration::from_millis(5), "nothing was left over");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_bell_calls_the_event_loop_besides() {
        let bell = Bell::default();
        let source = bell.event_source(&crate::driver::make_source).expect("descriptors are left");
        assert!(source.begin(None), "nobody rang");
        source.end();
        bell.wake();
        assert!(!source.begin(None), "it rang before");
        source.end();
        bell.wait(None);
        assert!(source.begin(None), "neither takes the other's call");
    }

    /// Stops for this reason the first batch that it is offered.
    struct Stopping(device::WireQueue, Option<Stop>);

    impl Queue for Stopping {
        device::forward_queue!(|self| self.0, but transmit);

        fn transmit(&mut self, _: &Multidata) -> Transmitted {
            Transmitted { taken: 0, stopped: self.1.take() }
        }
    }

    /// A queue that stops so, as the squeue has it that receives from it and as another one has it.
    fn shared(stop: Stop) -> [Box<dyn Queue>; 2] {
        let end = device::WireEnd::plain(device::Medium::Ip);
        let (near, _) = device::wire(device::WireConfig::new(end, end));
        let places = distribute(vec![Box::new(Stopping(near, Some(stop)))], 2);
        let queues: Vec<_> = places.into_iter().map(|place| place.queue).collect();
        queues.try_into().ok().expect("two places")
    }

    #[test]
    fn a_failure_that_one_squeue_meets_in_sending_is_kept_for_all() {
        let error = DeviceError::new(std::io::ErrorKind::NetworkDown, "it was cut");
        let failed = Some(Stop::Failed(error.clone()));
        for first in [0, 1] {
            let mut queues = shared(Stop::Failed(error.clone()));
            // The device says it once.
            for index in [first, 1 - first] {
                let transmitted = queues[index].transmit(&Multidata::default());
                assert_eq!(transmitted.stopped, failed, "squeue {index} behind {first}");
            }
            let (pool, mut batch) = (BlockPool::new(Default::default()), ReceiveBatch::new());
            for queue in &mut queues {
                assert_eq!(queue.receive(&pool, &mut batch, 1).failed.as_ref(), Some(&error));
            }
        }
    }

    #[test]
    fn who_found_the_device_full_is_called_when_its_receiver_looks() {
        let [mut receiving, mut other] = shared(Stop::Full);
        assert_eq!(other.transmit(&Multidata::default()).stopped, Some(Stop::Full));
        let (pool, mut batch) = (BlockPool::new(Default::default()), ReceiveBatch::new());
        receiving.receive(&pool, &mut batch, 1);
        let (before, patience) = (std::time::Instant::now(), Duration::from_secs(5));
        other.waiter().wait(Some(patience));
        assert!(before.elapsed() < patience, "it was called");
    }

    #[test]
    fn queues_are_shared_only_where_there_are_too_few() {
        let end = device::WireEnd::plain(device::Medium::Ip);
        let queues = |count: usize| -> Vec<Box<dyn Queue>> {
            let wires = (0..count).map(|_| device::wire(device::WireConfig::new(end, end)).0);
            wires.map(|queue| Box::new(queue) as _).collect()
        };
        for (rings, squeues, receiving) in
            [(1, 1, vec![0]), (2, 2, vec![0, 1]), (1, 3, vec![0]), (2, 5, vec![0, 1])]
        {
            let places = distribute(queues(rings), squeues);
            assert_eq!(places.len(), squeues);
            let receives = places.iter().enumerate().filter(|(_, place)| place.receives);
            let receives: Vec<usize> = receives.map(|(index, _)| index).collect();
            assert_eq!(receives, receiving, "{rings} queues, {squeues} squeues");
        }
    }
}
