//! Devices that panic where something is done in all squeues, or undone where a thread panics already: it is done all the
//! same, in each of them, and the process goes on.

use crate::pair::{self, LEFT, interface};
use batch::{BlockPool, ReceiveBatch};
use device::{Queue, Received, WireQueue};
use multidata::{InterfaceConfig, Stack, TcpListener, UdpSocket};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
