//! Every interleaving of the threads that wait for a squeue's device: a leader, followers, the worker, threads
//! that only pass through, and whoever stops or fails all of it.
//!
//! The squeue of these tests has a device with frames for numbered sockets, a table of who is parked for
//! which, and the [`Watch`]; its threads do what those of the runtime do (`turn.rs`, `worker.rs`), with the same
//! decisions. No wait has a timeout, so a wake-up that is lost is a deadlock, which loom reports; but a worker that is to
//! look whether a lone thread stays away does so at any time.

use super::interleave;
use crate::discipline::{Discipline, Mode, Polling, PollingMarks, ThreadToken};
use crate::watch::{Left, Parked, Role, Watch, Worker};
use bytes::Bytes;
use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
use loom::thread;
use time::{Duration, Instant};

/// Where one thread sleeps until it is told.
#[derive(Debug, Default)]
struct Bed {
    told: Mutex<bool>,
    bell: Condvar,
}

impl Bed {
    fn wake(&self) {
        *self.told.lock().expect("not poisoned") = true;
        self.bell.notify_one();
    }

    fn sleep(&self) {
        let mut told = self.told.lock().expect("not poisoned");
        while !*told {
            told = self.bell.wait(told).expect("not poisoned");
        }
        *told = false;
    }
}

/// A device on which several threads may sleep: a frame keeps all of them awake, a call one.
#[derive(Default)]
struct Device {
    state: Mutex<DeviceState>,
    changed: Condvar,
}

#[derive(Default)]
struct DeviceState {
    /// For which socket each is, and what it holds.
    frames: Vec<(usize, Bytes)>,
    is_called: bool,
}

impl Device {
    fn bring(&self, socket: usize, memory: &Bytes) {
        self.state.lock().expect("not poisoned").frames.push((socket, memory.clone()));
        self.changed.notify_all();
    }

    fn call(&self) {
        self.state.lock().expect("not poisoned").is_called = true;
        self.changed.notify_all();
    }

    fn sleep(&self) {
        let mut state = self.state.lock().expect("not poisoned");
        while state.frames.is_empty() && !state.is_called {
            state = self.changed.wait(state).expect("not poisoned");
        }
        state.is_called = false;
        drop(state);
        // Who took another's call has that one called again: it must come to run.
        thread::yield_now();
    }

    /// Takes out all frames.
    fn fetch(&self) -> Vec<(usize, Bytes)> {
        core::mem::take(&mut self.state.lock().expect("not poisoned").frames)
    }
}

/// What the lock protects.
struct Core {
    watch: Watch<usize, Arc<Bed>>,
    /// What has arrived for each socket and was not taken.
    arrived: [Vec<Bytes>; 2],
    /// Who is parked for which socket.
    parked: Vec<(usize, Arc<Bed>)>,
    /// Who is to be woken when the lock is released.
    woken: Vec<Arc<Bed>>,
    discipline: Discipline,
    turns: u64,
    /// What turns fetched and left: no device keeps anybody awake for it.
    unfinished: Vec<(usize, Bytes)>,
    has_failed: bool,
    is_stopping: bool,
}

struct World {
    core: Mutex<Core>,
    device: Device,
    /// Where the worker stands aside.
    aside: Arc<Bed>,
}

impl World {
    fn new(polling: Polling) -> Arc<Self> {
        Self::with(polling, Watch::default())
    }

    /// Socket 0's thread has been alone for long.
    fn with_lone() -> Arc<Self> {
        let mut watch = Watch::default();
        watch.assume_lone(thread_of(0), NOW);
        Self::with(Polling::Off, watch)
    }

    fn with(polling: Polling, watch: Watch<usize, Arc<Bed>>) -> Arc<Self> {
        let core = Core {
            watch,
            arrived: Default::default(),
            parked: Vec::new(),
            woken: Vec::new(),
            discipline: Discipline::new(polling),
            turns: 0,
            unfinished: Vec::new(),
            has_failed: false,
            is_stopping: false,
        };
        Arc::new(Self {
            core: Mutex::new(core),
            device: Device::default(),
            aside: Arc::new(Bed::default()),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().expect("not poisoned")
    }

    /// A turn, of at most so many frames.
    fn run(&self, core: &mut Core, frames_max: usize) {
        core.unfinished.extend(self.device.fetch());
        let count = core.unfinished.len().min(frames_max);
        let frames: Vec<_> = core.unfinished.drain(..count).collect();
        core.discipline.on_arrived(count);
        for (socket, memory) in frames {
            core.arrived[socket].push(memory);
            core.watch.on_event(socket);
            let concerned = core.parked.extract_if(.., |(parked, _)| *parked == socket);
            core.woken.extend(concerned.map(|(_, bed)| bed));
        }
    }

    fn leave(&self, mut core: MutexGuard<'_, Core>) {
        let is_pressing = !core.unfinished.is_empty();
        let calls_worker = is_pressing;
        let calls = core.watch.settle(&Left { is_pressing, calls_worker, deadline: None });
        let woken = core::mem::take(&mut core.woken);
        let is_kept = !core.watch.is_led() && core.watch.role(NOW) == Role::Follows;
        drop(core);
        woken.iter().for_each(|bed| bed.wake());
        match calls.parked {
            Some(Parked::Follower(bed)) => bed.wake(),
            Some(Parked::Worker) => self.aside.wake(),
            None => {}
        }
        if calls.device {
            self.device.call();
        }
        if is_kept {
            // The worker is to look by itself whether the lone thread stays away; it may do so at once.
            self.aside.wake();
        }
    }

    /// A call of an application thread that waits for a frame; `None` where all has failed. Each socket has one thread.
    fn receive(&self, socket: usize) -> Option<Bytes> {
        let mut core = self.lock();
        let mut has_waited = false;
        loop {
            if has_waited {
                core.watch.on_back(thread_of(socket), NOW);
            }
            let mut found = core.arrived[socket].pop();
            if found.is_none() && !core.has_failed {
                self.run(&mut core, usize::MAX);
                found = core.arrived[socket].pop();
            }
            if found.is_some() || core.has_failed {
                self.leave(core);
                return found;
            }
            // None of them is the first wait of a call: who is taken to be alone stays so.
            core.watch.on_wait(thread_of(socket), false, NOW);
            let Core { watch, woken, .. } = &mut *core;
            let is_lone = |lone| woken.iter().any(|bed| Arc::ptr_eq(bed, lone));
            if watch.lone_follower().is_some_and(is_lone) {
                watch.keep(NOW);
            }
            core = self.wait(core, socket);
            has_waited = true;
        }
    }

    fn wait<'a>(&'a self, mut core: MutexGuard<'a, Core>, socket: usize) -> MutexGuard<'a, Core> {
        if !core.unfinished.is_empty() {
            self.leave(core);
            return self.lock();
        }
        if core.watch.role(NOW) == Role::Leads {
            core.watch.lead(Some(socket), None);
            self.leave(core);
            self.device.sleep();
            let mut core = self.lock();
            core.watch.on_leader_back();
            return core;
        }
        let own = Arc::new(Bed::default());
        core.parked.push((socket, Arc::clone(&own)));
        core.watch.follow(thread_of(socket), Arc::clone(&own));
        self.leave(core);
        own.sleep();
        let mut core = self.lock();
        core.parked.retain(|(_, bed)| !Arc::ptr_eq(bed, &own));
        core.watch.on_follower_back(|other| Arc::ptr_eq(other, &own));
        core
    }

    /// A call that does not wait, and has the budget of so many frames.
    fn pass_through(&self, frames_max: usize) {
        let mut core = self.lock();
        self.run(&mut core, frames_max);
        self.leave(core);
    }

    /// The worker's life.
    fn work(&self) {
        let mut is_due = true;
        loop {
            let mut core = self.lock();
            if core.is_stopping {
                return self.leave(core);
            }
            if is_due {
                core.watch.on_worker_back();
            }
            if core::mem::take(&mut is_due) || !core.unfinished.is_empty() {
                self.run(&mut core, usize::MAX);
            }
            core.turns += 1;
            let now = Instant::from_micros(core.turns);
            // When it looks, the lone thread has stayed away.
            core.watch.give_up_absent(NOW + Duration::from_secs(1));
            let has_followers = core.watch.followers().len() > 0;
            if core.watch.is_led() || core.has_failed || has_followers {
                core.watch.set_worker(Worker::Aside {
                    is_overdue: false,
                    is_late: false,
                    rests: false,
                });
                self.leave(core);
                self.aside.sleep();
            } else if core.discipline.on_turn(now) == Mode::Poll {
                core.watch.set_worker(Worker::Awake);
                self.leave(core);
                thread::yield_now();
                is_due = true;
            } else {
                core.watch.set_worker(Worker::Waiting { until: None });
                self.leave(core);
                self.device.sleep();
                is_due = true;
            }
        }
    }

    /// As the last handle of a stack does it.
    fn stop(&self) {
        self.lock().is_stopping = true;
        self.aside.wake();
        self.device.call();
    }

    /// As one of several devices that fails does it: nothing is left to do for anybody but those who wait.
    fn fail(&self) {
        let mut core = self.lock();
        core.has_failed = true;
        core.watch.on_failure();
        let Core { watch, parked, woken, .. } = &mut *core;
        woken.extend(parked.drain(..).map(|(_, bed)| bed));
        woken.extend(watch.followers().cloned());
        self.leave(core);
    }
}

fn spawn<T: 'static>(
    world: &Arc<World>,
    act: impl FnOnce(&World) -> T + 'static,
) -> thread::JoinHandle<T> {
    let world = Arc::clone(world);
    thread::spawn(move || act(&world))
}

const NOW: Instant = Instant::ZERO;

/// Of the thread that receives for a socket.
fn thread_of(socket: usize) -> ThreadToken {
    ThreadToken(socket as u64)
}

fn memory() -> Bytes {
    Bytes::from(vec![0; 3])
}

#[test]
fn a_leader_and_its_follower_get_what_arrives_for_them() {
    interleave(|| {
        let world = World::new(Polling::Off);
        let waiters = [0, 1].map(|socket| spawn(&world, move |it| it.receive(socket)));
        // The follower's first, or the leader's; where one thread does both, the lead goes on.
        world.device.bring(1, &memory());
        world.device.bring(0, &memory());
        for waiter in waiters {
            waiter.join().expect("no panic").expect("nothing failed");
        }
    });
}

#[test]
fn a_lone_thread_leaves_nobody_who_waits_beside_it_alone() {
    interleave(|| {
        let world = World::with_lone();
        let worker = spawn(&world, World::work);
        let waiters = [0, 1].map(|socket| spawn(&world, move |it| it.receive(socket)));
        // The lone one stays away then.
        world.device.bring(0, &memory());
        world.device.bring(1, &memory());
        for waiter in waiters {
            waiter.join().expect("no panic").expect("nothing failed");
        }
        world.stop();
        worker.join().expect("no panic");
    });
}

#[test]
fn what_a_passing_thread_fetches_for_the_leader_wakes_it_though_the_worker_sleeps_there_too() {
    interleave(|| {
        let world = World::new(Polling::Off);
        let worker = spawn(&world, World::work);
        let waiter = spawn(&world, |it| it.receive(0));
        world.device.bring(0, &memory());
        world.pass_through(usize::MAX);
        waiter.join().expect("no panic").expect("nothing failed");
        world.stop();
        worker.join().expect("no panic");
    });
}

#[test]
fn what_a_turn_leaves_is_seen_to_by_the_worker_wherever_it_sleeps() {
    interleave(|| {
        let world = World::new(Polling::Off);
        let worker = spawn(&world, World::work);
        let waiter = spawn(&world, |it| it.receive(1));
        world.device.bring(1, &memory());
        world.device.bring(0, &memory());
        world.pass_through(1);
        waiter.join().expect("no panic").expect("nothing failed");
        // Nobody waits for socket 0: its frame must not lie there all the same, nor what a later turn leaves.
        world.device.bring(0, &memory());
        world.pass_through(0);
        while world.lock().arrived[0].len() < 2 {
            thread::yield_now();
        }
        world.stop();
        worker.join().expect("no panic");
    });
}

#[test]
fn a_worker_that_polls_and_goes_back_to_sleep_misses_no_frame() {
    interleave(|| {
        let marks = PollingMarks { backlog_high: 0, backlog_low: 0, calm: Duration::ZERO };
        let world = World::new(Polling::Adaptive(marks));
        let worker = spawn(&world, World::work);
        world.device.bring(0, &memory());
        world.device.bring(0, &memory());
        while world.lock().arrived[0].len() < 2 {
            thread::yield_now();
        }
        world.stop();
        worker.join().expect("no panic");
    });
}

#[test]
fn a_stop_ends_the_worker_wherever_it_is_and_leaves_no_memory() {
    interleave(|| {
        let memory = memory();
        let world = World::new(Polling::Off);
        let worker = spawn(&world, World::work);
        let passer = {
            let memory = memory.clone();
            spawn(&world, move |it| {
                it.device.bring(0, &memory);
                it.pass_through(1);
            })
        };
        world.stop();
        worker.join().expect("no panic");
        passer.join().expect("no panic");
        drop(world);
        assert!(memory.is_unique());
    });
}

#[test]
fn a_failure_ends_the_calls_of_the_leader_and_of_its_follower() {
    interleave(|| {
        let world = World::new(Polling::Off);
        let waiters = [0, 1].map(|socket| spawn(&world, move |it| it.receive(socket)));
        world.fail();
        for waiter in waiters {
            assert!(waiter.join().expect("no panic").is_none());
        }
        let core = world.lock();
        assert!(!core.watch.is_led() && core.watch.followers().len() == 0);
        assert!(core.parked.is_empty());
    });
}
