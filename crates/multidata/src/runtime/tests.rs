//! Who leads, who follows and who is woken, on a device that does what the test says.

mod failing;

use super::Clock;
use super::hand_over::HandOver;
use super::memory_turns::Lack;
use super::port::Port;
use super::shared_queue::Place;
use super::squeue::{Core, Squeue};
use super::squeues::Squeues;
use super::turn::{After, Call};
use super::waiting::{Interest, Sleeper};
use super::worker::Threads;
use batch::{BlockPool, Multidata, PoolConfig, ReceiveBatch};
use device::{
    Capabilities, DeviceCounters, DeviceError, Medium, Queue, Received, Room, Stop, TransmitMode,
    Transmitted, Waiter,
};
use stack::{InterfaceConfig, Shard, ShardConfig, SocketError, SocketId, Stray};
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Wake, Waker};
use std::time::Duration;
use steering::{Coalescing, Exchange, Policy, Spread};

/// A device that takes everything, or nothing, and brings nothing; it counts how often its waiter
/// was woken on purpose.
#[derive(Default)]
struct Silent {
    wakes: AtomicUsize,
    is_full: AtomicBool,
    /// What it took goes on when it is called once more so often.
    stalls: AtomicUsize,
    is_flooding: AtomicBool,
    /// It panics when it is asked what it has counted.
    is_ruined: AtomicBool,
    sent_packets: AtomicUsize,
    /// It fails where it is to send, and where it is to receive.
    transmit_fails: AtomicBool,
    receive_fails: AtomicBool,
    /// It panics, once, where it is to send, where somebody has slept on it, and where it is woken.
    transmit_panics: AtomicBool,
    wait_panics: AtomicBool,
    wake_panics: AtomicBool,
    woken: Mutex<bool>,
    changed: Condvar,
}

struct SilentQueue(Arc<Silent>);

fn failure() -> DeviceError {
    DeviceError::new(ErrorKind::NetworkDown, "it was cut")
}

impl Waiter for Silent {
    fn wait(&self, timeout: Option<Duration>) {
        let woken = self.woken.lock().expect("no panic");
        let timeout = timeout.unwrap_or(Duration::from_secs(60));
        let (mut woken, _) =
            self.changed.wait_timeout_while(woken, timeout, |woken| !*woken).expect("no panic");
        *woken = false;
        drop(woken);
        assert!(!self.wait_panics.swap(false, Ordering::SeqCst), "of the test's own making");
    }

    fn wake(&self) {
        self.wakes.fetch_add(1, Ordering::SeqCst);
        assert!(!self.wake_panics.swap(false, Ordering::SeqCst), "of the test's own making");
        *self.woken.lock().expect("no panic") = true;
        self.changed.notify_all();
    }
}

impl Queue for SilentQueue {
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
        let device = &self.0;
        assert!(!device.transmit_panics.swap(false, Ordering::SeqCst), "of the test's own making");
        if device.is_full.load(Ordering::SeqCst) {
            return Transmitted { taken: 0, stopped: Some(Stop::Full) };
        }
        if device.transmit_fails.load(Ordering::SeqCst) {
            return Transmitted { taken: 0, stopped: Some(Stop::Failed(failure())) };
        }
        device.sent_packets.fetch_add(batch.len(), Ordering::SeqCst);
        Transmitted { taken: batch.len(), stopped: None }
    }

    fn receive(&mut self, _: &BlockPool, _: &mut ReceiveBatch, _: usize) -> Received {
        let failed = self.0.receive_fails.load(Ordering::SeqCst).then(failure);
        Received { more: self.0.is_flooding.load(Ordering::SeqCst), failed, ..Received::default() }
    }

    fn reclaim(&mut self) {
        let _ = self
            .0
            .stalls
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
    }

    fn is_stalled(&self) -> bool {
        self.0.stalls.load(Ordering::SeqCst) > 0
    }

    fn waiter(&self) -> Arc<dyn Waiter> {
        self.0.clone()
    }

    fn counters(&self) -> DeviceCounters {
        assert!(!self.0.is_ruined.load(Ordering::SeqCst), "of the test's own making");
        let transmit_packets = self.0.sent_packets.load(Ordering::SeqCst) as u64;
        DeviceCounters { transmit_packets, ..DeviceCounters::default() }
    }
}

/// A squeue without worker, so that the test's threads are the only ones, with two UDP sockets.
fn squeue() -> (Squeue, Arc<Silent>, [SocketId; 2]) {
    squeue_of(None)
}

fn squeue_of(others: Option<(usize, Arc<HandOver>)>) -> (Squeue, Arc<Silent>, [SocketId; 2]) {
    squeue_with(others, BlockPool::new(PoolConfig::default()))
}

fn squeue_with(
    others: Option<(usize, Arc<HandOver>)>,
    pool: BlockPool,
) -> (Squeue, Arc<Silent>, [SocketId; 2]) {
    let device = Arc::new(Silent::default());
    let mut shard = Shard::new(ShardConfig {
        tcp: tcp::Config::default(),
        pool: pool.clone(),
        secret: [7; 32],
        sockets_max: 16,
    });
    let queue: Box<dyn Queue> = Box::new(SilentQueue(device.clone()));
    let mode = Some(TransmitMode::Multidata);
    let config = InterfaceConfig {
        capabilities: queue.capabilities(),
        mode,
        addresses: vec!["10.1.0.1/24".parse().expect("an address")],
        gateways: vec![],
    };
    let id = shard.add_interface(config).expect("no gateway");
    let sockets =
        [1_u16, 2].map(|port| shard.udp_bind(([10, 1, 0, 1], port).into()).expect("a free port"));
    let port = Port::new(id, Place { queue, receives: true }, Coalescing::default());
    let desk = others.as_ref().map(|(index, it)| it.desk(*index));
    let core = Core::new(shard, vec![port], pool, desk);
    (Squeue::new(core, Clock::start(), others), device, sockets)
}

fn call(socket: SocketId, timeout_ms: Option<u64>) -> Call {
    Call {
        socket: Some(socket),
        interest: Interest::Readable,
        after: After::Send,
        takes_bytes: 0,
        blocks: true,
        timeout: timeout_ms.map(Duration::from_millis),
        expired: ErrorKind::TimedOut,
    }
}

/// Waits for a datagram, or until `done`.
fn wait_for(squeue: &Squeue, call: Call, done: &AtomicBool) -> std::io::Result<()> {
    let socket = call.socket.expect("a socket");
    squeue.operate(&call, |core, _| match done.load(Ordering::SeqCst) {
        true => Ok(()),
        false => core.shard.udp_receive(socket).map(drop),
    })
}

fn until(squeue: &Squeue, condition: impl Fn(&Core) -> bool) {
    let start = std::time::Instant::now();
    while !squeue.look(|core| condition(core)) {
        assert!(start.elapsed() < Duration::from_secs(5), "it never came to that");
        std::thread::sleep(Duration::from_micros(200));
    }
}

#[test]
fn the_lead_goes_from_one_thread_to_exactly_one_other() {
    let (squeue, device, [socket, _]) = squeue();
    let never = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let wait = |timeout_ms| {
            let error = wait_for(&squeue, call(socket, Some(timeout_ms)), &never);
            assert_eq!(error.expect_err("nothing comes").kind(), ErrorKind::TimedOut);
        };
        let first = scope.spawn(move || wait(150));
        until(&squeue, |core| core.watch.has_leader());
        for _ in 0..3 {
            scope.spawn(move || wait(1_000));
        }
        until(&squeue, |core| core.watch.followers().len() == 3);
        assert_eq!(squeue.look(|core| core.counters.wakeups_sent), 0);
        first.join().expect("no panic");
        until(&squeue, |core| core.watch.has_leader() && core.watch.followers().len() == 2);
        let counters = squeue.look(|core| core.counters);
        assert_eq!((counters.wakeups_sent, counters.leader_waits), (1, 2));
    });
    assert_eq!(device.wakes.load(Ordering::SeqCst), 0);
    assert!(squeue.look(|core| !core.watch.has_leader() && core.watch.followers().len() == 0));
}

#[test]
fn an_event_wakes_the_thread_it_concerns_and_no_other() {
    let (squeue, device, [one, other]) = squeue();
    let (one_done, other_done) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let leader = scope.spawn(|| wait_for(&squeue, call(one, None), &one_done));
        until(&squeue, |core| core.watch.has_leader());
        let follower = scope.spawn(|| wait_for(&squeue, call(other, None), &other_done));
        until(&squeue, |core| core.watch.followers().len() == 1);
        other_done.store(true, Ordering::SeqCst);
        squeue.once(|core, _| core.wake_socket(other));
        follower.join().expect("no panic").expect("it was told");
        assert_eq!(device.wakes.load(Ordering::SeqCst), 0, "the leader sleeps on");
        assert_eq!(squeue.look(|core| core.counters.leader_waits), 1);
        one_done.store(true, Ordering::SeqCst);
        squeue.once(|core, _| core.wake_socket(one));
        leader.join().expect("no panic").expect("it was told");
        assert_eq!(device.wakes.load(Ordering::SeqCst), 1);
    });
}

/// A waker that waits itself, once the thread that calls it has been given the lead.
struct InPlace {
    squeue: Arc<Squeue>,
    leader: SocketId,
    leader_done: Arc<AtomicBool>,
}

impl Wake for InPlace {
    fn wake(self: Arc<Self>) {
        self.leader_done.store(true, Ordering::SeqCst);
        self.squeue.once(|core, _| core.wake_socket(self.leader));
        until(&self.squeue, |core| core.watch.is_led() && !core.watch.has_leader());
        let call = call(self.leader, Some(5));
        let outcome = wait_for(&self.squeue, call, &AtomicBool::new(false));
        outcome.expect_err("nothing comes");
    }
}

#[test]
fn a_thread_that_waits_in_a_waker_keeps_the_lead_that_it_was_given_before() {
    let (squeue, _, [one, other]) = squeue();
    let squeue = Arc::new(squeue);
    let (one_done, other_done) = (Arc::<AtomicBool>::default(), AtomicBool::new(false));
    let in_place = (Arc::clone(&squeue), Arc::clone(&one_done));
    let in_place = InPlace { squeue: in_place.0, leader: one, leader_done: in_place.1 };
    let mut task = Some(Waker::from(Arc::new(in_place)));
    std::thread::scope(|scope| {
        scope.spawn(|| wait_for(&squeue, call(one, None), &one_done));
        until(&squeue, |core| core.watch.has_leader());
        let follower = scope.spawn(|| {
            squeue.operate(&call(other, Some(10_000)), |core, _| {
                task.take().map(Sleeper::Task).into_iter().for_each(|it| core.waiting.wake(it));
                other_done.load(Ordering::SeqCst).then_some(()).ok_or(SocketError::WouldBlock)
            })
        });
        until(&squeue, |core| core.watch.has_leader() && core.counters.leader_waits == 2);
        other_done.store(true, Ordering::SeqCst);
        squeue.once(|core, _| core.wake_socket(other));
        follower.join().expect("no panic").expect("it was told");
    });
}

#[test]
fn a_deadline_before_the_leaders_wakes_it_and_a_later_one_does_not() {
    let (squeue, device, [socket, _]) = squeue();
    let done = AtomicBool::new(false);
    let connect = || {
        let remote = ([10, 1, 0, 9], 80).into();
        squeue.once(|core, now| core.shard.tcp_connect(now, None, remote)).expect("a route");
    };
    std::thread::scope(|scope| {
        let leader = scope.spawn(|| wait_for(&squeue, call(socket, None), &done));
        until(&squeue, |core| core.watch.has_leader());
        connect();
        assert_eq!(device.wakes.load(Ordering::SeqCst), 1, "the SYN's timer");
        until(&squeue, |core| core.watch.has_leader() && core.counters.leader_waits == 2);
        connect();
        assert_eq!(device.wakes.load(Ordering::SeqCst), 1, "the second SYN's timer is later");
        done.store(true, Ordering::SeqCst);
        squeue.once(|core, _| core.wake_socket(socket));
        leader.join().expect("no panic").expect("it was told");
    });
}

#[test]
fn a_full_device_is_asked_again_and_a_flooding_one_does_not_keep_a_thread() {
    let (squeue, device, _) = squeue();
    device.is_full.store(true, Ordering::SeqCst);
    let remote = ([10, 1, 0, 9], 80).into();
    squeue.once(|core, now| core.shard.tcp_connect(now, None, remote)).expect("a route");
    let (now, deadline) = (squeue.clock.now(), squeue.look(|core| core.deadline()));
    let retry = deadline.expect("the device was full") - now;
    assert!(retry <= Duration::from_millis(1), "{retry:?}");
    device.is_full.store(false, Ordering::SeqCst);
    device.is_flooding.store(true, Ordering::SeqCst);
    squeue.once(|_, _| ());
    let (unfinished, sent) = squeue.look(|core| {
        (core.counters.squeue_runs_unfinished, core.shard.counters().shard.transmit_packets)
    });
    assert_eq!(unfinished, 1, "the budget was used up and the call came back");
    assert_eq!(sent, 2, "the SYN was built twice and sent once");
}

/// Who is woken has left frames for the squeue and found it taken.
struct Announcing(Arc<Exchange<Stray>>);

impl Wake for Announcing {
    fn wake(self: Arc<Self>) {
        self.0.announce(1);
    }
}

#[test]
fn what_was_left_at_a_taken_squeue_is_seen_to_by_who_leaves_it() {
    let layout = "R1S2F1".parse().expect("a layout");
    let spread = Spread::new(layout, Policy::Flow, 2).expect("a spread");
    let hand_over = HandOver::new(spread, 1, [1, 2]).expect("two squeues");
    let (squeue, _, [socket, _]) = squeue_of(Some((1, Arc::clone(&hand_over))));
    let exchange = Arc::clone(hand_over.desk(1).exchange());
    let waker = Waker::from(Arc::new(Announcing(exchange)));
    squeue.register_waker(socket, Interest::Readable, &waker);
    let before = squeue.counters().runtime;
    squeue.once(|core, _| core.wake_socket(socket));
    let after = squeue.counters().runtime;
    assert_eq!(after.squeue_owed_on_leaving, 1);
    // Its call, the way back in, and the two looks at the counters less the first.
    assert_eq!(after.squeue_enters - before.squeue_enters, 3);
    assert_eq!(after.squeue_migrations, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| drop(squeue.try_lock().expect("nobody is inside")));
    });
    assert_eq!(squeue.counters().runtime.squeue_migrations, 2, "there and back");
}

#[test]
fn memory_that_one_squeue_gives_back_is_looked_for_in_another() {
    let layout = "R1S2F1".parse().expect("a layout");
    let spread = Spread::new(layout, Policy::Flow, 2).expect("a spread");
    let hand_over = HandOver::new(spread, 1, [1, 2]).expect("two squeues");
    let pool = BlockPool::new(PoolConfig::default());
    let of = |index| squeue_with(Some((index, Arc::clone(&hand_over))), pool.clone());
    let [(first, device, [socket, _]), (second, ..)] = [of(0), of(1)];
    let squeues = [first, second].map(Arc::new);
    hand_over.connect(&squeues);
    let [first, second] = squeues;
    let blocks = core::iter::repeat_with(|| pool.allocate(65_536).expect("room"));
    // Not all, which the squeues would have to do something about.
    let mut held: Vec<_> = blocks.take(pool.left_to_share_bytes() / 65_536 - 1).collect();
    first.wait_for_memory(socket, Lack::Share, Waker::noop());
    let told = || {
        second.once(|_, _| ());
        device.wakes.load(Ordering::SeqCst)
    };
    assert_eq!(told(), 0, "nothing has come back");
    held.pop();
    assert_eq!((told(), told()), (1, 1), "it is told once");
    assert!(first.look(|core| core.waiting.has_tasks()));
    first.once(|_, _| ());
    assert!(!first.look(|core| core.waiting.has_tasks()));
    held.pop();
    assert_eq!(told(), 1, "nobody waits");
}

#[test]
fn a_call_that_may_not_wait_never_leads() {
    let (squeue, _, [socket, _]) = squeue();
    let call = Call { blocks: false, ..call(socket, None) };
    let outcome = squeue.operate(&call, |_, _| Err::<(), _>(SocketError::WouldBlock));
    assert_eq!(outcome.expect_err("nothing is there").kind(), ErrorKind::WouldBlock);
    assert_eq!(squeue.look(|core| core.counters.leader_waits), 0);
}

#[test]
fn a_thread_that_cannot_be_kept_on_its_cpu_is_told_of() {
    let squeues = |cpus| Squeues::new(vec![Arc::new(squeue().0)], None, cpus);
    let error = Threads::start(&squeues(vec![usize::MAX])).expect_err("there is no such CPU");
    assert!(error.to_string().contains("pinned"), "{error}");
    let good = squeues(vec![crate::affinity::allowed().expect("an answer")[0]]);
    let threads = Threads::start(&good).expect("it runs there");
    good.stop(Duration::ZERO);
    threads.join();
}

/// A core without threads at one end of a wire, fetching two frames at a time.
fn core_on(queue: device::WireQueue, address: &str, seed: u8) -> Core {
    let pool = BlockPool::new(PoolConfig::default());
    let mut shard = Shard::new(ShardConfig {
        tcp: tcp::Config::default(),
        pool: pool.clone(),
        secret: [seed; 32],
        sockets_max: 16,
    });
    let config = InterfaceConfig {
        capabilities: queue.capabilities(),
        mode: Some(TransmitMode::Multidata),
        addresses: vec![address.parse().expect("an address")],
        gateways: vec![],
    };
    let id = shard.add_interface(config).expect("no gateway");
    let place = Place { queue: Box::new(queue), receives: true };
    let coalescing = Coalescing { count: 2, hold_off: time::Duration::ZERO, adaptive: false };
    Core::new(shard, vec![Port::new(id, place, coalescing)], pool, None)
}

#[test]
fn a_turn_for_a_lone_reader_ends_when_there_is_what_he_can_take() {
    let end = device::WireEnd::plain(Medium::Ip);
    let (near, far) = device::wire(device::WireConfig::new(end, end));
    let (mut reader, mut writer) =
        (core_on(near, "10.1.0.1/24", 1), core_on(far, "10.1.0.2/24", 2));
    let now = time::Instant::from_millis(1_000);
    let address = ([10, 1, 0, 1], 80).into();
    let listener = reader.shard.tcp_listen(address, 1).expect("a free port");
    let to = writer.shard.tcp_connect(now, None, address).expect("a route");
    for _ in 0..3 {
        writer.run(now);
        reader.run(now);
    }
    let from = reader.shard.tcp_accept(listener).expect("it is open");
    let readable = |reader: &mut Core| reader.shard.tcp_status(from).expect("open").readable_bytes;
    let write = |writer: &mut Core| {
        let bytes = batch::Chunk::whole(batch::Block::from(bytes::Bytes::from(vec![7; 14_000])));
        writer.shard.tcp_append(now, to, bytes).expect("room");
        writer.run(now);
    };
    write(&mut writer);
    reader.run_for(now, Some((from, 4_000)));
    let first = readable(&mut reader);
    assert!((4_000..9_000).contains(&first), "{first}");
    assert!(!reader.pace.is_unfinished(), "nobody is called for the rest");
    let deadline = reader.deadline().expect("somebody comes for it");
    assert!(deadline <= now + time::Duration::from_millis(5));
    reader.run(now);
    assert_eq!(readable(&mut reader), 14_000);
    // Where a task waits, too, what is there may be for it.
    reader.waiting.add_task(listener, Interest::Readable, Waker::noop());
    write(&mut writer);
    reader.run_for(now, Some((from, 16_000)));
    assert_eq!(readable(&mut reader), 28_000);
}

/// The squeues of a stack that has a CPU for each, and more CPUs besides.
#[test]
fn a_thread_on_a_cpu_without_a_squeue_takes_each_in_turn() {
    let layout = "R1S2F1".parse().expect("a layout");
    let spread = Spread::new(layout, Policy::Flow, 2).expect("a spread");
    let hand_over = HandOver::new(spread, 1, [1, 2]).expect("two squeues");
    let all = [0, 1].map(|index| Arc::new(squeue_of(Some((index, Arc::clone(&hand_over)))).0));
    let here = crate::affinity::allowed().expect("an answer")[0];
    let cpus = vec![usize::MAX - 1, usize::MAX, here];
    let squeues = Squeues::new(all.to_vec(), Some(hand_over), cpus);
    let picked = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            crate::affinity::pin(here).expect("it is allowed");
            [(); 4].map(|()| squeues.for_port(0))
        });
        thread.join().expect("no panic")
    });
    assert_eq!(picked, [0, 1, 0, 1]);
}

/// What stands in a device that does not go on by itself is not left there because nobody sends any more.
#[test]
fn a_device_that_is_stalled_is_called_again_though_nothing_is_sent() {
    let (squeue, device, _) = squeue();
    let mut core = squeue.lock();
    let mut now = squeue.clock.now();
    core.run(now);
    let otherwise = core.deadline();
    device.stalls.store(3, Ordering::SeqCst);
    for left in [2, 1] {
        core.run(now);
        assert_eq!(device.stalls.load(Ordering::SeqCst), left);
        let again = core.deadline().expect("somebody is to look again");
        assert!(again > now && again <= now + time::Duration::from_millis(1));
        now = again;
    }
    core.run(now);
    assert_eq!(core.deadline(), otherwise);
}

#[test]
fn who_sleeps_is_woken_by_the_device_in_the_place_of_one_that_panics() {
    let (squeue, device, _) = squeue();
    device.is_ruined.store(true, Ordering::SeqCst);
    let new = Arc::new(Silent::default());
    let place = Place { queue: Box::new(SilentQueue(Arc::clone(&new))), receives: true };
    let id = squeue.look(|core| core.devices.ports()[0].id);
    let mut panic = None;
    let replaced = squeue.replace(id, place, None, &mut panic);
    drop(replaced.ok().expect("the interface is there").empty(&mut None));
    assert!(panic.is_some(), "who replaces it hears of it");
    squeue.waiters.wake_first();
    assert_eq!(new.wakes.load(Ordering::SeqCst), 1);
}
