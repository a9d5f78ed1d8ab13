//! Two squeues, one at each end of a wire, in virtual time: nothing takes any but what waits.

use crate::runtime::Clock;
use crate::runtime::port::Port;
use crate::runtime::shared_queue::Place;
use crate::runtime::squeue::{Core, Squeue};
use batch::{
    Block, BlockPool, Chunk, Frame, Multidata, PoolConfig, ReceiveBatch, ReceivedChecksum,
};
use bytes::Bytes;
use device::{
    Capabilities, DeviceCounters, DeviceError, Medium, Queue, Received, Room, Stop, TransmitMode,
    Transmitted, Waiter, WireConfig, WireEnd, wire,
};
use stack::{InterfaceConfig, Shard, ShardConfig, SocketId};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use steering::Coalescing;
use time::{Duration, Instant};

const HOLD_OFF: Duration = Duration::from_micros(50);

fn core(queue: impl Queue + 'static, last: u8, coalescing: Coalescing) -> Core {
    let pool = BlockPool::new(PoolConfig::default());
    let mut shard = Shard::new(ShardConfig {
        tcp: tcp::Config { nodelay: true, ..tcp::Config::default() },
        pool: pool.clone(),
        secret: [last; 32],
        sockets_max: 16,
    });
    let queue: Box<dyn Queue> = Box::new(queue);
    let mode = Some(TransmitMode::Multidata);
    let address = format!("10.1.0.{last}/24").parse().expect("an address");
    let capabilities = queue.capabilities();
    let config = InterfaceConfig { capabilities, mode, addresses: vec![address], gateways: vec![] };
    let id = shard.add_interface(config).expect("no gateway");
    let port = Port::new(id, Place { queue, receives: true }, coalescing);
    Core::new(shard, vec![port], pool, None)
}

/// A client and a server, connected, and the time.
struct World {
    ends: [Core; 2],
    sockets: [SocketId; 2],
    now: Instant,
}

impl World {
    fn connected(coalescing: Coalescing) -> Self {
        let end = WireEnd::plain(Medium::Ip);
        let (a, b) = wire(WireConfig::new(end, end));
        let mut ends = [core(a, 1, coalescing), core(b, 2, coalescing)];
        let now = Instant::ZERO;
        let at = ([10, 1, 0, 2], 80).into();
        let listener = ends[1].shard.tcp_listen(at, 1).expect("a free port");
        let client = ends[0].shard.tcp_connect(now, None, at).expect("a route");
        let mut world = Self { ends, sockets: [client, client], now };
        world.sockets[1] = world.until(|ends| ends[1].shard.tcp_accept(listener).ok());
        world
    }

    /// Lets both ends run, and time pass where neither has anything left to do, until `done`.
    fn until<T>(&mut self, mut done: impl FnMut(&mut [Core; 2]) -> Option<T>) -> T {
        for _ in 0..100_000 {
            // What one end sends is there for the other in the same moment.
            for _ in 0..4 {
                self.ends.iter_mut().for_each(|core| core.run(self.now));
            }
            if let Some(it) = done(&mut self.ends) {
                return it;
            }
            let deadlines = self.ends.iter().filter_map(Core::deadline);
            self.now = deadlines.min().expect("somebody waits for something").max(self.now);
        }
        panic!("it never came to that");
    }

    /// Sends `len` bytes from one end and waits for all of them at the other.
    fn send(&mut self, from: usize, len: usize) {
        let to = 1 - from;
        let chunk = Chunk::whole(Block::from(Bytes::from(vec![7; len])));
        let socket = self.sockets[from];
        self.ends[from].shard.tcp_append(self.now, socket, chunk).expect("room");
        let socket = self.sockets[to];
        let now = self.now;
        let mut left = len;
        self.until(|ends| {
            let mut bytes = [0; 16_384];
            while left > 0
                && let Ok(count) = ends[to].shard.tcp_read(now, socket, &mut bytes)
            {
                left -= count;
            }
            (left == 0).then_some(())
        });
    }

    /// The virtual time of so many transactions of one byte.
    fn transactions(&mut self, count: usize) -> Duration {
        let started = self.now;
        for _ in 0..count {
            self.send(0, 1);
            self.send(1, 1);
        }
        self.now.since(started)
    }
}

#[test]
fn transactions_of_one_byte_take_no_longer_with_adaptive_coalescing_than_one_by_one() {
    let time = |coalescing| World::connected(coalescing).transactions(100);
    assert_eq!(time(Coalescing::OFF), Duration::ZERO);
    assert_eq!(time(Coalescing::ADAPTIVE), Duration::ZERO);
    // After a bulk transfer has made the batch large it is the same.
    let mut world = World::connected(Coalescing::ADAPTIVE);
    world.send(0, 512 << 10);
    let largest = world.ends[1].devices.ports()[0].intake.sizes();
    assert!(largest.batches_of_17_to_32 + largest.batches_of_33_to_64 > 0, "{largest:?}");
    assert_eq!(world.transactions(100), Duration::ZERO);
    // What the clock would show: each way waits for a frame that never comes.
    let held = Coalescing { count: 8, hold_off: HOLD_OFF, adaptive: false };
    assert!(time(held) >= 200 * HOLD_OFF, "{:?}", time(held));
}

/// A device that never runs out of frames, until it is told to.
struct Flood {
    fetches: Arc<AtomicUsize>,
    left: usize,
}

impl Queue for Flood {
    fn capabilities(&self) -> Capabilities {
        Capabilities::plain(Medium::Ip, 1_500)
    }

    fn set_mode(&mut self, _: TransmitMode) -> Result<(), DeviceError> {
        Ok(())
    }

    fn room(&self) -> Room {
        Room::UNBOUNDED
    }

    fn transmit(&mut self, batch: &Multidata) -> Transmitted {
        Transmitted { taken: batch.len(), stopped: None }
    }

    fn receive(&mut self, _: &BlockPool, batch: &mut ReceiveBatch, max: usize) -> Received {
        let frames = max.min(self.left);
        self.left -= frames;
        self.fetches.fetch_add(1, Ordering::SeqCst);
        let block = batch.add_block(Block::from(Bytes::from(vec![0; 20])));
        for _ in 0..frames {
            let checksum = ReceivedChecksum::Unverified;
            let frame = Frame { block, offset: 0, len: 20, checksum, segmented: None };
            assert!(batch.push_frame(frame));
        }
        Received { frames, more: self.left > 0, ..Received::default() }
    }

    fn waiter(&self) -> Arc<dyn Waiter> {
        unreachable!("nobody waits")
    }

    fn counters(&self) -> DeviceCounters {
        DeviceCounters::default()
    }
}

// "Inline" is for a bounded time, whoever it is that came in: what is left is for the next.
#[test]
fn a_turn_ends_by_frames_or_by_time_and_what_is_left_is_owed() {
    // What a round takes by the clock, and the frames that one fetches; the rounds of the turn.
    for (round_us, frames, rounds) in [(0, 256, 4), (300, 16, 4), (2_000, 1, 1), (0, 1, 64)] {
        let fetches = Arc::new(AtomicUsize::new(0));
        let coalescing = Coalescing { count: frames, hold_off: Duration::ZERO, adaptive: false };
        let left = frames * (rounds + 2);
        let mut core = core(Flood { fetches: Arc::clone(&fetches), left }, 1, coalescing);
        let mut now = Instant::ZERO;
        core.pace.set_clock(move || {
            now += Duration::from_micros(round_us);
            now
        });
        core.run(Instant::ZERO);
        assert_eq!(fetches.load(Ordering::SeqCst), rounds, "{round_us} us, {frames} frames");
        assert!(core.pace.is_unfinished(), "the rest is owed");
        assert_eq!(core.discipline.counters().squeue_inline_batches, rounds as u64);
        core.run(Instant::from_micros(1_000_000));
        assert_eq!(fetches.load(Ordering::SeqCst), rounds + 2);
        assert!(!core.pace.is_unfinished());
    }
}

// Else each datagram that is read in a flood costs a turn, in which a thousand more are lost at the full socket.
#[test]
fn calls_that_find_their_answers_have_as_much_time_as_an_unfinished_turn_took() {
    let fetches = Arc::new(AtomicUsize::new(0));
    let fetched = || fetches.load(Ordering::SeqCst);
    let coalescing = Coalescing { count: 16, hold_off: Duration::ZERO, adaptive: false };
    let mut core = core(Flood { fetches: Arc::clone(&fetches), left: usize::MAX }, 1, coalescing);
    let mut now = Instant::ZERO;
    core.pace.set_clock(move || {
        now += Duration::from_micros(700);
        now
    });
    core.run(Instant::ZERO);
    assert_eq!((fetched(), core.pace.is_unfinished()), (2, true), "it took 1,400 us");
    let (at, us) = (Instant::from_micros, Duration::from_micros);
    assert_eq!(core.pace.time_for_calls(at(1_400), false), us(0), "nobody calls");
    assert_eq!(core.pace.time_for_calls(at(1_400), true), us(1_400), "somebody waits to");
    for now in [1_400, 2_000, 2_799] {
        core.run_outgoing(at(now));
        assert_eq!((fetched(), core.pace.is_unfinished()), (2, true), "at {now} us");
        assert_eq!(core.pace.time_for_calls(at(now), false), us(2_800 - now));
    }
    core.run_outgoing(at(2_800));
    assert!(fetched() > 2, "a turn of its own");
    // The system ran nobody here for an hour, within the turn.
    core.pace.set_clock(|| Instant::from_micros(3_600_000_000));
    core.run(at(10_000));
    assert!(core.pace.is_unfinished());
    assert_eq!(core.pace.time_for_calls(at(3_600_000_000), true), us(4_000));
}

#[test]
fn a_hold_off_ends_by_itself_and_a_full_batch_ends_it_early() {
    let held = Coalescing { count: 4, hold_off: HOLD_OFF, adaptive: false };
    let mut world = World::connected(held);
    let before = (world.ends[1].devices.ports()[0].intake.sizes(), world.now);
    // Ten segments at once, which one write of ten times the MSS makes.
    world.send(0, 10 * 1_448);
    let after = world.ends[1].devices.ports()[0].intake.sizes();
    assert!(after.batches_of_3_to_4 - before.0.batches_of_3_to_4 >= 2, "{after:?}");
    let last = after.batches_of_2 + after.batches_of_1;
    assert!(last > before.0.batches_of_2 + before.0.batches_of_1, "what is left came up, too");
    assert!(world.now.since(before.1) >= HOLD_OFF);
}

#[test]
fn one_by_one_is_one_by_one_and_a_changed_setting_loses_nothing_that_is_held() {
    let mut world = World::connected(Coalescing::OFF);
    world.send(0, 100 * 1_448);
    let sizes = world.ends[1].devices.ports()[0].intake.sizes();
    let mut larger = sizes;
    larger.batches_of_1 = 0;
    assert_eq!(larger, steering::BatchSizes::default(), "{sizes:?}");
    assert!(sizes.batches_of_1 >= 100);

    let held = Coalescing { count: 64, hold_off: Duration::from_secs(1), adaptive: false };
    world.ends[1].devices.ports_mut()[0].intake.set_coalescing(held);
    let chunk = Chunk::whole(Block::from(Bytes::from_static(b"held")));
    let (client, server) = (world.sockets[0], world.sockets[1]);
    let (now, mut bytes) = (world.now, [0; 16]);
    world.ends[0].shard.tcp_append(now, client, chunk).expect("room");
    world.ends.iter_mut().for_each(|core| core.run(now));
    assert!(world.ends[1].shard.tcp_read(now, server, &mut bytes).is_err(), "it is held");
    assert_eq!(world.ends[1].devices.ports()[0].intake.deadline(), Some(now + held.hold_off));
    assert!(world.ends[1].deadline().is_some_and(|due| due <= now + held.hold_off));
    world.ends[1].devices.ports_mut()[0].intake.set_coalescing(Coalescing::ADAPTIVE);
    world.ends[1].run(now);
    assert_eq!(world.ends[1].shard.tcp_read(now, server, &mut bytes), Ok(4));
}

/// What a [`Faulty`] does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    /// It brings a frame with each call.
    Brings,
    /// The same, and then panics.
    Panics,
    /// It brings nothing, and takes what is sent.
    Rests,
    /// It brings nothing, and fails where it is to send.
    Fails,
}

struct Faulty(Arc<Mutex<Plan>>);

impl Faulty {
    fn plan(&self) -> Plan {
        *self.0.lock().expect("no panic under it")
    }
}

struct Nothing;

impl Waiter for Nothing {
    fn wait(&self, _: Option<Duration>) {}

    fn wake(&self) {}
}

impl Queue for Faulty {
    fn capabilities(&self) -> Capabilities {
        Capabilities::plain(Medium::Ip, 1_500)
    }

    fn set_mode(&mut self, _: TransmitMode) -> Result<(), DeviceError> {
        Ok(())
    }

    fn room(&self) -> Room {
        Room::UNBOUNDED
    }

    fn transmit(&mut self, batch: &Multidata) -> Transmitted {
        let cut = || DeviceError::new(std::io::ErrorKind::NetworkDown, "it was cut");
        match self.plan() {
            Plan::Fails => Transmitted { taken: 0, stopped: Some(Stop::Failed(cut())) },
            _ => Transmitted { taken: batch.len(), stopped: None },
        }
    }

    fn receive(&mut self, pool: &BlockPool, batch: &mut ReceiveBatch, _: usize) -> Received {
        if matches!(self.plan(), Plan::Rests | Plan::Fails) {
            return Received::default();
        }
        let block = batch.add_block(pool.allocate(20).expect("room").freeze());
        let checksum = ReceivedChecksum::Unverified;
        assert!(batch.push_frame(Frame { block, offset: 0, len: 20, checksum, segmented: None }));
        assert!(self.plan() != Plan::Panics, "of the test's own making");
        Received { frames: 1, ..Received::default() }
    }

    fn waiter(&self) -> Arc<dyn Waiter> {
        Arc::new(Nothing)
    }

    fn counters(&self) -> DeviceCounters {
        DeviceCounters::default()
    }
}

/// A squeue whose device has brought a frame, which is held for an hour.
fn holding() -> (Core, Arc<Mutex<Plan>>) {
    let held = Coalescing { count: 64, hold_off: Duration::from_secs(3_600), adaptive: false };
    let plan = Arc::new(Mutex::new(Plan::Brings));
    let mut core = core(Faulty(Arc::clone(&plan)), 1, held);
    core.run(Instant::ZERO);
    assert_eq!(state(&core), (0, true));
    assert_eq!(core.deadline(), Some(Instant::ZERO + held.hold_off));
    (core, plan)
}

/// How many frames the shard was given, and whether any are held.
fn state(core: &Core) -> (u64, bool) {
    let is_held = core.pool.counters().outstanding_bytes > 0;
    (core.shard.counters().shard.receive_frames, is_held)
}

// It was received, and a device that panics each time would hold it for ever.
#[test]
fn what_is_held_goes_up_where_the_device_panics_and_what_that_call_has_brought_does_not() {
    let (mut core, plan) = holding();
    *plan.lock().expect("no panic under it") = Plan::Panics;
    for _ in 0..3 {
        let ran = catch_unwind(AssertUnwindSafe(|| core.run(Instant::ZERO)));
        assert!(ran.is_err(), "the caller hears of it");
        assert_eq!(state(&core), (1, false));
        assert_eq!(core.deadline(), None, "nobody need come for it");
    }
    *plan.lock().expect("no panic under it") = Plan::Brings;
    core.run(Instant::ZERO);
    assert_eq!(state(&core), (1, true), "with a hold-off of its own");
}

// Who waits would otherwise be back at once, again and again.
#[test]
fn what_is_held_goes_up_where_no_more_is_fetched_and_sets_no_deadline() {
    for end in ["it fails", "the stack is ended", "it is replaced", "the interface is removed"] {
        let (core, plan) = holding();
        *plan.lock().expect("no panic under it") = Plan::Rests;
        let squeue = Squeue::new(core, Clock::start(), None);
        let id = squeue.look(|core| core.devices.ports()[0].id);
        let mut panic = None;
        match end {
            "it fails" => {
                *plan.lock().expect("no panic under it") = Plan::Fails;
                let peer = ([10, 1, 0, 2], 80).into();
                let connecting = squeue
                    .once_of_all(&mut panic, |core, now| core.shard.tcp_connect(now, None, peer));
                connecting.expect("a route");
                squeue.look(|core| assert!(core.devices.all_failed() && core.pace.is_unfinished()));
            }
            "the stack is ended" => squeue.once_of_all(&mut panic, |core, _| core.end()),
            "it is replaced" => {
                let place = Place { queue: Box::new(Faulty(Arc::clone(&plan))), receives: true };
                assert!(squeue.replace(id, place, None, &mut panic).is_ok());
            }
            _ => assert!(squeue.remove(id, &mut panic).is_ok()),
        }
        squeue.look(|core| {
            assert_eq!(state(core), (1, false), "{end}");
            assert_eq!(core.devices.ports()[0].intake.deadline(), None, "{end}");
            assert_eq!(core.devices.ports()[0].intake.sizes().batches_of_1, 1, "{end}");
        });
    }
}

#[test]
fn batches_of_an_interface_count_though_another_one_has_its_place() {
    let (core, plan) = holding();
    *plan.lock().expect("no panic under it") = Plan::Rests;
    let squeue = Squeue::new(core, Clock::start(), None);
    let (id, mut panic) = (squeue.look(|core| core.devices.ports()[0].id), None);
    assert!(squeue.remove(id, &mut panic).is_ok());
    let added = squeue.add(
        |shard, _| {
            let queue = Box::new(Faulty(plan));
            let capabilities = queue.capabilities();
            let addresses = vec!["10.1.0.1/24".parse().expect("an address")];
            let config = InterfaceConfig { capabilities, mode: None, addresses, gateways: vec![] };
            let id = shard.add_interface(config).expect("no gateway");
            Ok(Port::new(id, Place { queue, receives: true }, Coalescing::default()))
        },
        &mut panic,
    );
    assert!(added.expect("its place is free").is_some() && panic.is_none());
    assert_eq!(squeue.counters().receive.batches_of_1, 1);
}
