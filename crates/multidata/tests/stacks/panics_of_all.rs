//! Devices that panic where something is done in all squeues, or undone where a thread panics already: it is done all the
//! same, in each of them, and the process goes on.

use crate::pair::{self, LEFT, RIGHT, interface};
use batch::{BlockPool, PoolConfig, ReceiveBatch};
use device::{Capabilities, DeviceCounters, Queue, Received, Waiter, WireQueue};
use multidata::{InterfaceConfig, Stack, TcpListener, UdpSocket};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// Panics while it is told to: in threads of the application, or in all.
struct Device {
    queue: WireQueue,
    panics: Arc<AtomicBool>,
    in_all: bool,
}

impl Queue for Device {
    device::forward_queue!(|self| self.queue, but receive);

    fn receive(&mut self, pool: &BlockPool, batch: &mut ReceiveBatch, max: usize) -> Received {
        let thread = std::thread::current();
        let is_worker = thread.name().is_some_and(|name| name.starts_with("squeue-"));
        let spares = is_worker && !self.in_all;
        assert!(spares || !self.panics.load(Ordering::SeqCst), "of the test's own making");
        self.queue.receive(pool, batch, max)
    }
}

struct Host {
    stack: Stack,
    panics: Arc<AtomicBool>,
    _peers: Vec<WireQueue>,
}

impl Host {
    /// Of so many squeues, each with a queue of its own.
    fn new(squeues: usize) -> Self {
        let panics = Arc::<AtomicBool>::default();
        let (queues, peers) = Self::queues(squeues, &panics, false);
        let builder =
            Stack::builder().squeues(squeues).multiqueue_interface(queues, interface(LEFT));
        Self { stack: builder.build().expect("a stack"), panics, _peers: peers }
    }

    fn queues(
        count: usize,
        panics: &Arc<AtomicBool>,
        in_all: bool,
    ) -> (Vec<Box<dyn Queue>>, Vec<WireQueue>) {
        let device = |queue| Box::new(Device { queue, panics: Arc::clone(panics), in_all }) as _;
        let wires = (0..count).map(|_| device::wire(pair::ethernet()));
        wires.map(|(near, far)| (device(near), far)).unzip()
    }

    /// What the call says while the device panics, which it must hear of.
    fn panicking(&self, call: impl FnOnce()) {
        self.panics.store(true, Ordering::SeqCst);
        let outcome = catch_unwind(AssertUnwindSafe(call));
        self.panics.store(false, Ordering::SeqCst);
        assert!(outcome.is_err(), "who panics hears of it");
    }
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::new(LEFT.parse().expect("an address"), port)
}

#[test]
fn what_is_changed_is_changed_in_all_squeues_though_a_device_panics() {
    for squeues in [1, 2, 3] {
        let host = Host::new(squeues);
        let network = "10.7.0.0/16".parse().expect("a network");
        let inside = "10.7.0.1".parse().expect("an address");
        host.panicking(|| host.stack.add_route(network, None, 0).expect("a sound route"));
        // All squeues are asked.
        host.stack.path_mtu(inside).expect("the route is there");
        host.panicking(|| host.stack.remove_route(network, 0).expect("it is there"));
        host.stack.path_mtu(inside).expect_err("the route is gone");
    }
}

#[test]
fn a_stack_is_ended_though_its_device_panics() {
    for squeues in [1, 2] {
        let host = Host::new(squeues);
        let ports = 7_000..7_008;
        let bind = |port| UdpSocket::bind(&host.stack, local(port)).expect("a free port");
        let sockets: Vec<UdpSocket> = ports.map(bind).collect();
        host.panicking(|| host.stack.abort());
        for socket in &sockets {
            socket.set_nonblocking(true).expect("always");
            let error = socket.recv_from(&mut [0; 9]).expect_err("the stack was ended");
            assert_eq!(error.kind(), ErrorKind::NetworkDown, "{error}");
        }
    }
}

#[test]
fn a_listener_of_several_squeues_may_be_dropped_though_each_turn_panics() {
    for squeues in [1, 2, 3] {
        let host = Host::new(squeues);
        let listener = TcpListener::bind(&host.stack, local(7_000)).expect("a free port");
        host.panicking(|| drop(listener));
        TcpListener::bind(&host.stack, local(7_000)).expect("it was closed in all squeues");
    }
}

#[test]
fn sockets_of_a_thread_that_a_device_makes_panic_are_closed() {
    let host = Host::new(2);
    let sockets: Vec<UdpSocket> = (7_000..7_004)
        .map(|port| UdpSocket::bind(&host.stack, local(port)).expect("free"))
        .collect();
    host.panicking(|| {
        // They are dropped by the panic.
        let sockets = sockets;
        drop(sockets[0].recv_from(&mut [0; 9]));
    });
    for port in 7_000..7_004 {
        UdpSocket::bind(&host.stack, local(port)).expect("it was closed");
    }
}

#[test]
fn a_place_is_taken_again_though_no_turn_came_to_its_end() {
    let panics = Arc::<AtomicBool>::default();
    let (mut queues, _peers) = Host::queues(3, &panics, true);
    let mut next = || queues.remove(0);
    let config =
        |at: u8| InterfaceConfig::new(format!("10.{at}.0.1/24").parse().expect("an address"));
    let builder = Stack::builder().multiqueue_interface(vec![next()], config(1));
    let stack = builder.multiqueue_interface(vec![next()], config(2)).build().expect("a stack");
    panics.store(true, Ordering::SeqCst);
    let removed = catch_unwind(AssertUnwindSafe(|| drop(stack.remove_interface(0))));
    let added = catch_unwind(AssertUnwindSafe(|| {
        drop(stack.add_multiqueue_interface(vec![next()], config(3)));
    }));
    panics.store(false, Ordering::SeqCst);
    for outcome in [removed, added] {
        let panic = outcome.expect_err("who panics hears of it");
        assert_eq!(panic.downcast_ref(), Some(&"of the test's own making"));
    }
    let addresses: Vec<_> = stack.interfaces().into_iter().map(|it| it.addresses).collect();
    assert_eq!(
        addresses.concat(),
        ["10.3.0.1/24", "10.2.0.1/24"].map(|it| it.parse().expect("one"))
    );
}

/// Panics whatever it is asked of itself, once it is told to, as one whose lock a panic has poisoned.
struct Ruined(WireQueue, Arc<AtomicBool>);

impl Ruined {
    fn ask(&self) {
        assert!(!self.1.load(Ordering::SeqCst), "of the test's own making");
    }
}

impl Queue for Ruined {
    device::forward_queue!(|self| self.0, but capabilities, counters);

    fn capabilities(&self) -> Capabilities {
        self.ask();
        self.0.capabilities()
    }

    fn counters(&self) -> DeviceCounters {
        self.ask();
        self.0.counters()
    }
}

type Queues = Vec<Box<dyn Queue>>;

/// A device whose waiter panics when it is woken, once it is told to, and knows how many sleep on it.
struct Asleep(WireQueue, Arc<Sleep>);

#[derive(Default)]
struct Sleep {
    woken: Mutex<bool>,
    changed: Condvar,
    inside: AtomicUsize,
    panics: AtomicBool,
}

impl Queue for Asleep {
    device::forward_queue!(|self| self.0, but waiter);

    fn waiter(&self) -> Arc<dyn Waiter> {
        Arc::clone(&self.1) as _
    }
}

impl Waiter for Sleep {
    fn wait(&self, timeout: Option<Duration>) {
        self.inside.fetch_add(1, Ordering::SeqCst);
        let timeout = timeout.unwrap_or(pair::PATIENCE);
        let woken = self.woken.lock().expect("no panic");
        let waited = self.changed.wait_timeout_while(woken, timeout, |woken| !*woken);
        *waited.expect("no panic").0 = false;
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }

    fn wake(&self) {
        assert!(!self.panics.load(Ordering::SeqCst), "of the test's own making");
        *self.woken.lock().expect("no panic") = true;
        self.changed.notify_all();
        // Who was called comes back, and sleeps again, before anything else happens.
        std::thread::sleep(Duration::from_millis(30));
    }
}

/// Else a squeue would hear nothing of what comes by its new device.
#[test]
fn threads_leave_the_devices_that_were_replaced_though_one_of_them_panics() {
    let wires = || (0..2).map(|_| device::wire(pair::ethernet()));
    let (near, _far): (Vec<WireQueue>, Vec<WireQueue>) = wires().unzip();
    let sleeps = [(); 2].map(|()| Arc::<Sleep>::default());
    let asleep = near.into_iter().zip(&sleeps);
    let queues = asleep.map(|(queue, it)| Box::new(Asleep(queue, Arc::clone(it))) as _).collect();
    let builder = Stack::builder().squeues(2).multiqueue_interface(queues, interface(LEFT));
    let stack = builder.build().expect("a stack");
    let started = Instant::now();
    while sleeps[1].inside.load(Ordering::SeqCst) == 0 {
        assert!(started.elapsed() < pair::PATIENCE, "a worker sleeps on it");
        std::thread::yield_now();
    }
    sleeps[0].panics.store(true, Ordering::SeqCst);
    let (near, _far_too): (Queues, Vec<WireQueue>) =
        wires().map(|(near, far)| (Box::new(near) as _, far)).unzip();
    let replaced = catch_unwind(AssertUnwindSafe(|| stack.replace_queues(0, near)));
    assert!(replaced.is_err(), "who panics hears of it");
    assert_eq!(sleeps[1].inside.load(Ordering::SeqCst), 0, "it sleeps on a device that is gone");
    sleeps[0].panics.store(false, Ordering::SeqCst);
    sleeps[0].wake();
}

/// It is what others are put in the place of.
#[test]
fn a_device_that_panics_whatever_it_is_asked_can_be_replaced_and_removed() {
    for (squeues, removes) in [(1, false), (2, false), (1, true), (2, true)] {
        let is_ruined = Arc::<AtomicBool>::default();
        let wires = (0..squeues).map(|_| device::wire(pair::ethernet()));
        let (ruined, mut ends): (Queues, Vec<WireQueue>) = wires
            .map(|(near, far)| (Box::new(Ruined(near, Arc::clone(&is_ruined))) as _, far))
            .unzip();
        let stack = Stack::builder().squeues(squeues).multiqueue_interface(ruined, interface(LEFT));
        let stack = stack.build().expect("a stack");
        let wires = (0..squeues).map(|_| device::wire(pair::ethernet()));
        let (near, far): (Queues, Queues) =
            wires.map(|(near, far)| (Box::new(near) as _, Box::new(far) as _)).unzip();
        let sockets: Vec<UdpSocket> = (7_000..7_008)
            .map(|port| UdpSocket::bind(&stack, ("0.0.0.0", port)).expect("a free port"))
            .collect();
        let peer = Stack::builder().squeues(squeues).multiqueue_interface(far, interface(RIGHT));
        // It outlives those who read: they would hear that its end of the wires is gone.
        let peer = peer.build().expect("a stack");
        let source = UdpSocket::bind(&peer, (RIGHT, 0)).expect("a free port");
        let pool = BlockPool::new(PoolConfig::default());
        let read = |socket: &UdpSocket| {
            socket.set_read_timeout(Some(pair::PATIENCE)).expect("a timeout");
            assert_eq!(socket.recv(&mut [0; 9]).expect("it arrives"), 5);
        };
        std::thread::scope(|scope| {
            // Who waits for the only device hears that it is gone.
            let waiting = sockets.iter().filter(|_| !removes);
            waiting.for_each(|socket| drop(scope.spawn(|| read(socket))));
            std::thread::sleep(Duration::from_millis(30));
            is_ruined.store(true, Ordering::SeqCst);
            let mut near = Some(near);
            let ended = catch_unwind(AssertUnwindSafe(|| match removes {
                true => stack.remove_interface(0),
                false => stack.replace_queues(0, near.take().expect("once")),
            }));
            assert!(ended.is_err(), "who panics hears of it");
            for end in &mut ends {
                let received = end.receive(&pool, &mut ReceiveBatch::new(), usize::MAX);
                assert!(received.failed.is_some(), "the other end is let go of");
            }
            if let Some(near) = near {
                let added = stack.add_multiqueue_interface(near, interface(LEFT));
                assert_eq!(added.expect("its place is free"), 0);
            }
            for port in 7_000..7_008 {
                source.send_to(b"hello", local(port)).expect("a route");
            }
            sockets.iter().filter(|_| removes).for_each(read);
        });
    }
}
