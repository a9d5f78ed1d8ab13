//! Every interleaving of the threads around a squeue, by loom: feature `interleavings`.
//!
//! The squeue of these tests is the smallest one: a lock around the frames processed, a soft ring for each
//! ring's thread, a door, and a worker who sleeps. Each test ends by counting: what was pushed was
//! processed, in order, by whoever it was, and nobody was asked to look once more.

mod watch;

use crate::door::Door;
use crate::exchange::{Arrived, Desk, Exchange};
use crate::packets::batch;
use crate::soft_ring::{SoftRing, SoftRingConfig};
use crate::soft_ring_set::Lane;
use crate::spread::{Home, Policy, Spread};
use ::batch::{ReceiveBatch, StrayWeight};
use bytes::Bytes;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// A lane of frames of three bytes: flow, number, filling.
fn lane(flow: u8, numbers: impl IntoIterator<Item = u8>) -> Lane {
    let frames: Vec<_> = numbers.into_iter().map(|number| [flow, number, 0]).collect();
    let batch = batch(frames.iter().map(|frame| &frame[..]));
    let mut lane = Lane::new(Home::FIRST);
    (0..batch.len()).for_each(|index| lane.share_frame(&batch, index, flow.into()));
    lane
}

fn ring() -> SoftRing {
    SoftRing::new(SoftRingConfig { frames_max: 64, bytes_max: 4_096 })
}

/// Every interleaving with at most three switches away from a thread that could go on; each mistake
/// that was planted in the door and the ring shows with fewer. Without a bound a test takes many minutes.
fn interleave(test: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(test);
}

struct Squeue {
    processed: Mutex<Vec<(u8, u8)>>,
    rings: Vec<SoftRing>,
    door: Door,
    worker: Worker,
}

/// The worker's bed.
#[derive(Default)]
struct Worker {
    called: Mutex<bool>,
    bell: Condvar,
    is_stopping: AtomicBool,
}

impl Worker {
    fn wake(&self) {
        *self.called.lock().expect("not poisoned") = true;
        self.bell.notify_one();
    }

    fn sleep(&self) {
        let mut called = self.called.lock().expect("not poisoned");
        while !*called {
            called = self.bell.wait(called).expect("not poisoned");
        }
        *called = false;
    }
}

impl Squeue {
    fn new(rings: usize) -> Arc<Self> {
        Arc::new(Self {
            processed: Mutex::new(Vec::new()),
            rings: (0..rings).map(|_| ring()).collect(),
            door: Door::default(),
            worker: Worker::default(),
        })
    }

    /// Brings work.
    fn bring(&self, ring: usize, mut lane: Lane) {
        assert_eq!(self.rings[ring].push(&mut lane).dropped, 0);
        self.door.announce();
        self.enter(usize::MAX);
    }

    /// Goes in if it is free, for at most `turns` turns; who leaves with work owed goes in again, or
    /// with no turn left wakes the worker.
    fn enter(&self, turns: usize) {
        let mut left = turns;
        while let Ok(mut processed) = self.processed.try_lock() {
            if left > 0 {
                left -= 1;
                self.turn(&mut processed, usize::MAX);
            }
            drop(processed);
            if !self.door.is_owed() {
                return;
            }
            if left == 0 {
                return self.worker.wake();
            }
        }
    }

    /// One turn; says whether it ended before all work was done.
    fn turn(&self, processed: &mut Vec<(u8, u8)>, frames_max: usize) -> bool {
        self.door.take();
        let mut is_unfinished = false;
        for ring in &self.rings {
            let mut batch = ReceiveBatch::new();
            is_unfinished |= ring.drain(frames_max, &mut batch).more;
            processed.extend((0..batch.len()).map(|it| (batch.bytes(it)[0], batch.bytes(it)[1])));
        }
        is_unfinished
    }

    /// The worker's life: whatever is left to it, until it is told to stop and nothing is.
    fn work(&self) {
        loop {
            self.worker.sleep();
            let is_stopping = self.worker.is_stopping.load(Ordering::Acquire);
            self.enter(usize::MAX);
            if is_stopping {
                return;
            }
        }
    }

    fn of_flow(&self, flow: u8) -> Vec<u8> {
        let processed = self.processed.lock().expect("not poisoned");
        processed.iter().filter(|frame| frame.0 == flow).map(|frame| frame.1).collect()
    }
}

#[test]
fn what_two_rings_bring_is_processed_once_and_in_order() {
    interleave(|| {
        let squeue = Squeue::new(2);
        let other = {
            let squeue = Arc::clone(&squeue);
            thread::spawn(move || squeue.bring(1, lane(1, 0..2)))
        };
        squeue.bring(0, lane(0, 0..1));
        squeue.bring(0, lane(0, 1..3));
        other.join().expect("no panic");
        assert_eq!(squeue.of_flow(0), [0, 1, 2]);
        assert_eq!(squeue.of_flow(1), [0, 1]);
    });
}

#[test]
fn a_thread_on_its_way_out_forgets_nothing() {
    interleave(|| {
        let squeue = Squeue::new(1);
        let application = {
            let squeue = Arc::clone(&squeue);
            // A call that does its own work and runs the squeue while it is there.
            thread::spawn(move || squeue.enter(usize::MAX))
        };
        squeue.bring(0, lane(0, 0..1));
        squeue.bring(0, lane(0, 1..2));
        application.join().expect("no panic");
        assert_eq!(squeue.of_flow(0), [0, 1]);
    });
}

#[test]
fn who_has_used_up_its_turns_wakes_the_worker_and_no_wake_up_is_lost() {
    interleave(|| {
        let squeue = Squeue::new(1);
        let worker = {
            let squeue = Arc::clone(&squeue);
            thread::spawn(move || squeue.work())
        };
        let application = {
            let squeue = Arc::clone(&squeue);
            thread::spawn(move || {
                let Ok(mut processed) = squeue.processed.try_lock() else { return };
                let is_unfinished = squeue.turn(&mut processed, 1);
                drop(processed);
                if is_unfinished || squeue.door.is_owed() {
                    squeue.worker.wake();
                }
            })
        };
        squeue.bring(0, lane(0, 0..3));
        application.join().expect("no panic");
        squeue.worker.is_stopping.store(true, Ordering::Release);
        squeue.worker.wake();
        worker.join().expect("no panic");
        assert_eq!(squeue.of_flow(0), [0, 1, 2]);
    });
}

#[test]
fn a_ring_between_two_pushers_and_a_drainer_keeps_each_flow_in_order() {
    interleave(|| {
        let shared = Arc::new(ring());
        let pushers: Vec<_> = (0..2)
            .map(|flow| {
                let ring = Arc::clone(&shared);
                thread::spawn(move || {
                    for number in 0..2 {
                        assert_eq!(ring.push(&mut lane(flow, number..number + 1)).dropped, 0);
                    }
                })
            })
            .collect();
        let mut batch = ReceiveBatch::new();
        shared.drain(1, &mut batch);
        for pusher in pushers {
            pusher.join().expect("no panic");
        }
        assert_eq!(shared.depth() + batch.len(), 4);
        assert!(!shared.drain(usize::MAX, &mut batch).more);
        for flow in 0..2 {
            let frames = (0..batch.len()).map(|index| batch.bytes(index));
            let numbers: Vec<_> = frames.filter(|it| it[0] == flow).map(|it| it[1]).collect();
            assert_eq!(numbers, [0, 1]);
        }
    });
}

#[test]
fn shutdown_under_load_leaks_no_block() {
    interleave(|| {
        let memory = Bytes::from(vec![0; 30]);
        let squeue = Squeue::new(1);
        let pusher = {
            let (squeue, memory) = (Arc::clone(&squeue), memory.clone());
            thread::spawn(move || {
                let mut source = ReceiveBatch::new();
                let block = source.add_block(::batch::Block::from(memory));
                for offset in [0, 3, 6] {
                    let checksum = ::batch::ReceivedChecksum::Verified;
                    let frame = ::batch::Frame { block, offset, len: 3, checksum, segmented: None };
                    assert!(source.push_frame(frame));
                }
                let mut lane = Lane::new(Home::FIRST);
                (0..3).for_each(|index| lane.share_frame(&source, index, 0));
                squeue.rings[0].push(&mut lane);
                squeue.door.announce();
            })
        };
        let mut batch = ReceiveBatch::new();
        squeue.rings[0].drain(1, &mut batch);
        drop(batch);
        pusher.join().expect("no panic");
        // Whatever came after the draining goes with the ring.
        drop(squeue);
        assert!(memory.is_unique());
    });
}

/// Two homes of an exchange, each behind its lock.
struct Homes {
    exchange: Arc<Exchange<u8>>,
    all: [Mutex<(Desk<u8>, Vec<u8>)>; 2],
}

impl Homes {
    /// A thread in home `own` hands strays to the other, and leaves as threads of the runtime do.
    fn hand_on(&self, own: usize, strays: core::ops::Range<u8>) {
        for stray in strays {
            let mut home = self.all[own].lock().expect("not poisoned");
            let weight = StrayWeight::Packet { key: 0, held_bytes: 1 };
            home.0.hand_on(1 - own, stray, weight);
            home.0.take_note();
            self.turn(&mut home);
            let concerned = home.0.take_concerned();
            drop(home);
            assert_eq!(concerned, 2 >> own);
            self.exchange.announce(1 - own);
            self.enter(1 - own);
            self.enter_if_owed(own);
        }
    }

    fn enter(&self, index: usize) {
        if let Ok(mut home) = self.all[index].try_lock() {
            home.0.take_note();
            self.turn(&mut home);
            drop(home);
            self.enter_if_owed(index);
        }
    }

    fn enter_if_owed(&self, index: usize) {
        while self.exchange.is_owed(index)
            && let Ok(mut home) = self.all[index].try_lock()
        {
            home.0.take_note();
            self.turn(&mut home);
        }
    }

    fn turn(&self, (desk, seen): &mut (Desk<u8>, Vec<u8>)) {
        desk.take_in(&mut ReceiveBatch::new(), |arrived| match arrived {
            Arrived::Stray(stray) => seen.push(stray),
            Arrived::Frames(..) => panic!("there are none"),
        });
    }
}

#[test]
fn two_homes_that_hand_to_each_other_leave_nothing_lying() {
    interleave(|| {
        let layout = "R1S2F1".parse().expect("a layout");
        let spread = Spread::new(layout, Policy::Flow, 2).expect("a spread");
        let exchange = Arc::new(Exchange::new(spread, 0, SoftRingConfig::default()));
        let all = [0, 1].map(|home| Mutex::new((Desk::new(&exchange, Home(home)), Vec::new())));
        let homes = Arc::new(Homes { exchange, all });
        let other = {
            let homes = Arc::clone(&homes);
            thread::spawn(move || homes.hand_on(1, 10..12))
        };
        homes.hand_on(0, 0..2);
        other.join().expect("no panic");
        for (home, expected) in [[10, 11], [0, 1]].into_iter().enumerate() {
            let home = homes.all[home].lock().expect("not poisoned");
            assert_eq!(home.1, expected);
            assert_eq!(home.0.depth(), 0);
        }
    });
}
