//! Tasks that accept from several squeues, polled by hand in the one order in which a task could be forgotten.

use crate::pair;
use multidata::device::{
    HardwareAddress, Medium, Queue, Received, WireConfig, WireEnd, WireQueue, wire,
};
use multidata::{InterfaceConfig, Stack, batch};
use multidata_tokio::TcpListener;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

/// A ring from which one thread alone receives, until it is open to all.
struct Ring {
    wire: WireQueue,
    owner: ThreadId,
    is_open: Arc<AtomicBool>,
}

impl Queue for Ring {
    multidata::device::forward_queue!(|self| self.wire, but receive);

    fn receive(
        &mut self,
        pool: &batch::BlockPool,
        batch: &mut batch::ReceiveBatch,
        frames_max: usize,
    ) -> Received {
        let is_owner = std::thread::current().id() == self.owner;
        match is_owner || self.is_open.load(Ordering::SeqCst) {
            true => self.wire.receive(pool, batch, frames_max),
            false => Received::default(),
        }
    }
}

type Rings = Vec<Box<dyn Queue>>;

/// Two stacks, the right one with two squeues that have a ring each; this thread receives there.
fn stacks(is_open: &Arc<AtomicBool>) -> (Stack, Stack) {
    let end = |last| WireEnd::plain(Medium::Ethernet(HardwareAddress([2, 0, 0, 0, 0, last])));
    let (mut left, mut right) = (Rings::new(), Rings::new());
    for _ in 0..2 {
        let (one, wire) = wire(WireConfig::new(end(1), end(2)));
        left.push(Box::new(one));
        let owner = std::thread::current().id();
        right.push(Box::new(Ring { wire, owner, is_open: Arc::clone(is_open) }));
    }
    let build = |queues: Rings, address: &str| {
        let builder = Stack::builder().layout("R2S0F0".parse().expect("a layout"));
        let interface = InterfaceConfig::new(address.parse().expect("an address"));
        builder.multiqueue_interface(queues, interface).build().expect("a stack")
    };
    (build(left, "10.1.0.1/24"), build(right, "10.1.0.2/24"))
}

/// A connection of the first squeues: where the device spreads flows, those have the even ports.
fn connect(left: &Stack, port: u16) -> std::thread::JoinHandle<multidata::TcpStream> {
    let left = left.clone();
    std::thread::spawn(move || {
        let local = SocketAddr::from(([10, 1, 0, 1], port));
        multidata::TcpStream::connect_from(&left, local, pair::right(7)).expect("it listens")
    })
}

type Accepting = Pin<Box<dyn Future<Output = SocketAddr> + Send>>;

fn accept(listener: &Arc<TcpListener>) -> Accepting {
    let listener = Arc::clone(listener);
    Box::pin(async move { listener.accept().await.expect("it came").1 })
}

/// A task that is polled by whoever wakes it, at once, or by who is polling it already.
struct Immediate {
    task: Mutex<Option<Accepting>>,
    is_woken: AtomicBool,
    accepted: mpsc::Sender<SocketAddr>,
}

impl Wake for Immediate {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        let waker = Waker::from(Arc::clone(&self));
        while self.is_woken.load(Ordering::SeqCst) {
            let Ok(mut task) = self.task.try_lock() else { return };
            self.is_woken.store(false, Ordering::SeqCst);
            let Some(accepting) = &mut *task else { return };
            if let Poll::Ready(peer) = accepting.as_mut().poll(&mut Context::from_waker(&waker)) {
                *task = None;
                self.accepted.send(peer).expect("the test waits");
            }
        }
    }
}

// Between the moment one task has its connection and that in which it takes the listener's waker back, the
// other is woken by the same event, finds nothing, and has the waker entered again: for itself, it believes.
#[test]
fn a_task_that_waits_again_while_another_accepts_is_not_forgotten() {
    let is_open = Arc::<AtomicBool>::default();
    let (left, right) = stacks(&is_open);
    let listener = Arc::new(TcpListener::bind(&right, pair::right(7)).expect("a free port"));
    let mut first = accept(&listener);
    let (accepted, came) = mpsc::channel();
    let task = Mutex::new(Some(accept(&listener)));
    let second = Arc::new(Immediate { task, is_woken: AtomicBool::new(false), accepted });

    // Nobody but this thread receives, so the first task's own attempt brings the connection.
    let context = &mut Context::from_waker(Waker::noop());
    assert!(first.as_mut().poll(context).is_pending());
    Arc::clone(&second).wake();
    let client = connect(&left, 40_000);
    let started = Instant::now();
    while first.as_mut().poll(context).is_pending() {
        assert!(started.elapsed() < PATIENCE, "no connection came");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(came.try_recv().is_err(), "there was one connection");

    is_open.store(true, Ordering::SeqCst);
    let other_client = connect(&left, 40_002);
    let peer = came.recv_timeout(PATIENCE).expect("the second task was forgotten");
    assert_eq!(peer.port(), 40_002);
    for client in [client, other_client] {
        client.join().expect("connected");
    }
}
