//! Application code that panics where the stack calls it, in any thread: wakers, packet filters, devices. What
//! it was asked about may be lost; everybody else goes on.

use crate::pair::{self, LEFT, RIGHT, connected, exchange, interface, right};
use batch::{BlockPool, Multidata, ReceiveBatch};
use counters::DropReason;
use device::{Queue, Received, Transmitted, Waiter, WireQueue};
use multidata::{
    FilterFlow, Handling, InterfaceId, PacketFilter, Stack, TcpListener, TcpStream, UdpSocket,
    Verdict,
};
use std::io::{Read, Write};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

fn is_worker() -> bool {
    std::thread::current().name().is_some_and(|name| name.starts_with("squeue-"))
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < pair::PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Panics when it is told to, once in a thread of the stack's and once in one of the application's.
#[derive(Default)]
struct Plan {
    in_worker: AtomicBool,
    in_application: AtomicBool,
}

impl Plan {
    fn arm(&self) {
        self.in_worker.store(true, Ordering::SeqCst);
        self.in_application.store(true, Ordering::SeqCst);
    }

    fn is_over(&self) -> bool {
        !self.in_worker.load(Ordering::SeqCst) && !self.in_application.load(Ordering::SeqCst)
    }

    fn act(&self) {
        let armed = if is_worker() { &self.in_worker } else { &self.in_application };
        assert!(!armed.swap(false, Ordering::SeqCst), "of the test's own making");
    }
}

/// Which takes what is received in batches, or frame by frame.
struct Filter(Arc<Plan>, bool);

impl PacketFilter for Filter {
    fn handling(&self, _: &FilterFlow) -> Handling {
        Handling::Batches
    }

    fn transmit(
        &mut self,
        _: time::Instant,
        _: InterfaceId,
        _: &Multidata,
        _: Range<usize>,
        _: &mut [Verdict],
    ) {
        self.0.act();
    }

    fn receives_batches(&self) -> bool {
        self.1
    }

    fn receive(&mut self, _: time::Instant, _: InterfaceId, _: &ReceiveBatch, _: &mut [Verdict]) {
        self.0.act();
    }
}

/// Frames come to a stack whose application is away: its worker takes them.
fn leave_to_the_worker(client: &TcpStream, mut server: &TcpStream, is_over: impl Fn() -> bool) {
    let mut sent = 0;
    until("the worker never ran", || {
        let mut client = client;
        client.write_all(&[5; 100]).expect("connected");
        sent += 100;
        std::thread::sleep(Duration::from_millis(20));
        is_over()
    });
    server.read_exact(&mut vec![0; sent]).expect("nothing is lost");
}

#[test]
fn a_filter_that_panics_costs_the_packets_it_was_asked_about() {
    for (squeues, batches) in [(1, true), (2, true), (1, false)] {
        let (left, right_stack) = pair::pair_with(|builder| builder.squeues(squeues));
        let (client, server) = connected(&left, &right_stack);
        let plan = Arc::new(Plan::default());
        right_stack.set_filter(Some(Box::new(Filter(Arc::clone(&plan), batches))));
        plan.arm();
        leave_to_the_worker(&client, &server, || !plan.in_worker.load(Ordering::SeqCst));
        exchange(&client, &server, 3, 1 << 20);
        let (client, server) = connected(&left, &right_stack);
        exchange(&client, &server, 4, 1 << 20);
        assert!(plan.is_over(), "it ran in threads of both kinds");
        let counters = right_stack.counters();
        assert_eq!(counters.stack.shard.filter_panics, 2);
        assert!(counters.stack.drops.count(DropReason::FilterPanicked) >= 2);
        assert_eq!(counters.stack.drops.count(DropReason::Filtered), 0);
        assert_eq!(counters.runtime.panics_inside + counters.runtime.workers_restarted, 0);
    }
}

struct Panicking;

impl Wake for Panicking {
    fn wake(self: Arc<Self>) {
        panic!("of the test's own making");
    }
}

#[derive(Default)]
struct Counting(AtomicUsize);

impl Wake for Counting {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn is_pending(socket: &UdpSocket, waker: &Waker) -> bool {
    matches!(socket.poll_recv_from(&mut Context::from_waker(waker), &mut [0; 16]), Poll::Pending)
}

#[test]
fn a_waker_that_panics_in_the_worker_keeps_nobody_else_asleep() {
    for squeues in [1, 2] {
        let (left, right_stack) = pair::pair_with(|builder| builder.squeues(squeues));
        let source = UdpSocket::bind(&left, (LEFT, 0)).expect("a free port");
        let sockets: Vec<UdpSocket> = (7_000..7_004)
            .map(|port| UdpSocket::bind(&right_stack, right(port)).expect("a free port"))
            .collect();
        let panicking = Waker::from(Arc::new(Panicking));
        let counting = Arc::new(Counting::default());
        for round in 1..=2 {
            // The same socket has both, so that they are woken in one turn.
            for socket in &sockets {
                assert!(is_pending(socket, &panicking));
                assert!(is_pending(socket, &Waker::from(Arc::clone(&counting))));
            }
            for socket in &sockets {
                source.send_to(b"wake", socket.local_addr().expect("bound")).expect("a route");
            }
            let expected = round * sockets.len();
            until("a task was forgotten", || counting.0.load(Ordering::SeqCst) == expected);
            sockets.iter().for_each(|socket| {
                socket.recv_from(&mut [0; 16]).expect("it came");
            });
        }
        let runtime = right_stack.counters().runtime;
        assert_eq!(runtime.wakers_panicked, 2 * sockets.len() as u64);
        assert_eq!(runtime.panics_inside + runtime.workers_restarted, 0);
    }
}

/// Where a device may panic.
#[derive(Default)]
struct Places {
    receive: Plan,
    transmit: Plan,
    wait: Plan,
}

struct Device {
    queue: WireQueue,
    places: Arc<Places>,
}

struct DeviceWaiter {
    waiter: Arc<dyn Waiter>,
    places: Arc<Places>,
}

impl Waiter for DeviceWaiter {
    fn wait(&self, timeout: Option<Duration>) {
        self.places.wait.act();
        self.waiter.wait(timeout);
    }

    fn wake(&self) {
        self.waiter.wake();
    }
}

impl Queue for Device {
    device::forward_queue!(|self| self.queue, but transmit, receive, waiter);

    fn transmit(&mut self, batch: &Multidata) -> Transmitted {
        self.places.transmit.act();
        self.queue.transmit(batch)
    }

    fn receive(&mut self, pool: &BlockPool, batch: &mut ReceiveBatch, max: usize) -> Received {
        self.places.receive.act();
        self.queue.receive(pool, batch, max)
    }

    fn waiter(&self) -> Arc<dyn Waiter> {
        let (waiter, places) = (self.queue.waiter(), Arc::clone(&self.places));
        Arc::new(DeviceWaiter { waiter, places })
    }
}

#[test]
fn a_device_that_panics_ends_one_call_or_one_turn_of_the_worker() {
    for squeues in [1, 2] {
        let (left, other) = device::wire(pair::ethernet());
        let places = Arc::new(Places::default());
        let device = Device { queue: other, places: Arc::clone(&places) };
        let left = Stack::builder().interface(left, interface(LEFT)).build().expect("a stack");
        let builder = Stack::builder().squeues(squeues).interface(device, interface(RIGHT));
        let right_stack = builder.build().expect("a stack");
        let (client, server) = connected(&left, &right_stack);
        for plan in [&places.receive, &places.wait, &places.transmit] {
            plan.in_worker.store(true, Ordering::SeqCst);
            leave_to_the_worker(&client, &server, || !plan.in_worker.load(Ordering::SeqCst));
            // Of two squeues the connection's may be the one that does not receive.
            if squeues == 1 || std::ptr::eq(plan, &raw const places.transmit) {
                panics_in_the_application(&left, &right_stack, &server, plan);
            }
        }
        let (client, server) = connected(&left, &right_stack);
        exchange(&client, &server, 6, 1 << 20);
        let runtime = right_stack.counters().runtime;
        assert!(runtime.workers_restarted >= 3, "{runtime:?}");
        assert!(runtime.panics_inside >= 4 || squeues > 1, "{runtime:?}");
    }
}

/// A device that can do nothing else.
/// A wait of an event loop that panics when it ends.
#[cfg(unix)]
struct Watched(Arc<dyn Waiter>, Arc<Ending>);

#[cfg(unix)]
struct Ending(std::os::unix::net::UnixStream, AtomicUsize);

#[cfg(unix)]
impl device::EventSource for Ending {
    fn file(&self) -> std::os::fd::BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.0)
    }

    fn begin(&self, _: Option<Duration>) -> bool {
        true
    }

    fn end(&self) {
        self.1.fetch_add(1, Ordering::SeqCst);
        panic!("of the test's own making");
    }
}

#[cfg(unix)]
impl Waiter for Watched {
    fn wait(&self, timeout: Option<Duration>) {
        self.0.wait(timeout);
    }

    fn wake(&self) {
        self.0.wake();
    }

    fn event_source(&self, _: device::MakeSource<'_>) -> Option<Arc<dyn device::EventSource>> {
        Some(Arc::clone(&self.1) as _)
    }
}

#[cfg(unix)]
struct WatchedQueue(WireQueue, Arc<Ending>);

#[cfg(unix)]
impl Queue for WatchedQueue {
    device::forward_queue!(|self| self.0, but waiter);

    fn waiter(&self) -> Arc<dyn Waiter> {
        Arc::new(Watched(self.0.waiter(), Arc::clone(&self.1)))
    }
}

/// Be it in its turn or when it is dropped, perhaps by a panic.
#[cfg(unix)]
#[test]
fn a_driver_whose_wait_panics_leads_no_more() {
    let (file, _other) = std::os::unix::net::UnixStream::pair().expect("descriptors are left");
    let ending = Arc::new(Ending(file, AtomicUsize::new(0)));
    let (queue, _peer) = device::wire(pair::ethernet());
    let queue = WatchedQueue(queue, Arc::clone(&ending));
    let stack = Stack::builder().interface(queue, interface(RIGHT)).build().expect("a stack");
    for (ended, is_dropped) in [(1, false), (2, true)] {
        let mut driver = stack.drivers().expect("it is watched").remove(0);
        assert_eq!(driver.turn(), multidata::Turn::Wait);
        let ends = AssertUnwindSafe(|| if is_dropped { drop(driver) } else { _ = driver.turn() });
        catch_unwind(ends).expect_err("it panicked");
        assert_eq!(ending.1.load(Ordering::SeqCst), ended);
        let before = stack.counters().runtime;
        let socket = UdpSocket::bind(&stack, right(7)).expect("a free port");
        socket.set_read_timeout(Some(Duration::from_millis(5))).expect("it is open");
        socket.recv_from(&mut [0; 1]).expect_err("nothing came");
        let after = stack.counters().runtime;
        assert!(after.leader_waits > before.leader_waits, "its thread leads");
        assert_eq!(after.follower_parks, before.follower_parks);
    }
}

/// Panics whenever it is to send.
struct Mute(WireQueue);

impl Queue for Mute {
    device::forward_queue!(|self| self.0, but transmit);

    fn transmit(&mut self, _: &Multidata) -> Transmitted {
        panic!("of the test's own making");
    }
}

/// So a task that sleeps hears of it, and what goes by other devices goes on.
#[test]
fn a_device_that_panics_again_and_again_has_failed() {
    let (left, other) = device::wire(pair::ethernet());
    let (mute, _peer) = device::wire(pair::ethernet());
    let left = Stack::builder().interface(left, interface(LEFT)).build().expect("a stack");
    let address = "10.2.0.1/24".parse().expect("an address");
    let builder = Stack::builder()
        .interface(Mute(mute), multidata::InterfaceConfig::new(address))
        .interface(other, interface(RIGHT));
    let stack = builder.build().expect("a stack");
    until("it is told of", || {
        let failed = stack.interfaces()[0].failed.clone();
        failed.is_some_and(|it| it.to_string().contains("panicked 4 times in a row"))
    });
    let (client, server) = connected(&left, &stack);
    exchange(&client, &server, 5, 1 << 20);
}

struct Broken(WireQueue);

impl Queue for Broken {
    device::forward_queue!(|self| self.0, but receive);

    fn receive(&mut self, _: &BlockPool, _: &mut ReceiveBatch, _: usize) -> Received {
        panic!("of the test's own making");
    }
}

#[test]
fn a_worker_whose_every_turn_panics_comes_seldom() {
    let (queue, _peer) = device::wire(pair::ethernet());
    let stack = Stack::builder().interface(Broken(queue), interface(RIGHT)).build();
    let stack = stack.expect("a stack");
    let restarts = || stack.counters().runtime.workers_restarted;
    until("it never panicked", || restarts() > 1);
    let before = restarts();
    std::thread::sleep(Duration::from_millis(900));
    assert!(restarts() - before <= 6, "{} times", restarts() - before);
}

/// One thread waits in `accept` while another one calls, until one of the two panics, and both go on.
fn panics_in_the_application(left: &Stack, stack: &Stack, server: &TcpStream, plan: &Plan) {
    let panics = AtomicUsize::new(0);
    let fails = |call: &mut dyn FnMut()| {
        let failed = catch_unwind(AssertUnwindSafe(call)).is_err();
        panics.fetch_add(usize::from(failed), Ordering::SeqCst);
        failed
    };
    std::thread::scope(|scope| {
        let listener = TcpListener::bind(stack, right(0)).expect("a free port");
        let address = listener.local_addr().expect("bound");
        let patient =
            scope.spawn(
                move || {
                    while fails(&mut || drop(listener.accept().expect("somebody comes"))) {}
                },
            );
        std::thread::sleep(Duration::from_millis(5));
        plan.in_application.store(true, Ordering::SeqCst);
        let mut server = server;
        until("it never came to that", || {
            server.set_read_timeout(Some(Duration::from_millis(2))).expect("a time");
            fails(&mut || drop(server.read(&mut [0; 1])));
            fails(&mut || server.write_all(b"x").expect("connected"));
            !plan.in_application.load(Ordering::SeqCst)
        });
        server.set_read_timeout(None).expect("no time");
        TcpStream::connect(left, address).expect("it listens");
        patient.join().expect("it went on");
    });
    assert_eq!(panics.load(Ordering::SeqCst), 1, "who panics hears of it");
}
