//! An event loop that does not come back, and the stack's own thread that sleeps on the device meanwhile.

use crate::pair::{LEFT, RIGHT, ethernet, interface, is_soon};
use device::{EventSource, Queue, Waiter, WireQueue};
use multidata::{Stack, Turn, UdpSocket};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Waker};

use std::time::{Duration, Instant};

/// A device that tells sleepers of no frame while it is deaf: as poll(2) does where another thread fetches it before they
/// come to look.
struct Deaf(WireQueue, Arc<DeafWaiter>);

struct DeafWaiter {
    inner: Arc<dyn Waiter>,
    is_deaf: AtomicBool,
    is_called: Mutex<bool>,
    called: Condvar,
}

impl Queue for Deaf {
    device::forward_queue!(|self| self.0, but waiter);

    fn waiter(&self) -> Arc<dyn Waiter> {
        Arc::clone(&self.1) as Arc<dyn Waiter>
    }
}

impl Waiter for DeafWaiter {
    fn wait(&self, timeout: Option<Duration>) {
        if !self.is_deaf.load(Ordering::SeqCst) {
            return self.inner.wait(timeout);
        }
        let is_called = self.is_called.lock().expect("no panic");
        let timeout = timeout.unwrap_or(Duration::MAX);
        let waited = self.called.wait_timeout_while(is_called, timeout, |is_called| !*is_called);
        *waited.expect("no panic").0 = false;
    }

    fn wake(&self) {
        *self.is_called.lock().expect("no panic") = true;
        self.called.notify_one();
        self.inner.wake();
    }

    fn is_ready(&self) -> Option<bool> {
        self.inner.is_ready()
    }

    fn event_source(&self, make: device::MakeSource<'_>) -> Option<Arc<dyn EventSource>> {
        self.inner.event_source(make)
    }
}

fn at(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse().expect("an address"), port)
}

/// So long nothing happens before a stack's thread sleeps on the device with no timer before it, with a margin.
const UNTIL_ASLEEP: Duration = Duration::from_millis(2_500);

#[test]
fn what_was_left_to_a_loop_is_done_by_the_thread_that_sleeps_on_the_device() {
    let (queue, other) = device::wire(ethernet());
    let waiter = Arc::new(DeafWaiter {
        inner: queue.waiter(),
        is_deaf: false.into(),
        is_called: false.into(),
        called: Condvar::new(),
    });
    let queue = Deaf(queue, Arc::clone(&waiter));
    let left = Stack::builder().interface(queue, interface(LEFT)).build().expect("a stack");
    let right = Stack::builder().interface(other, interface(RIGHT)).build().expect("a stack");
    let near = [1, 2].map(|port| UdpSocket::bind(&left, at(LEFT, port)).expect("a free port"));
    let far = UdpSocket::bind(&right, at(RIGHT, 3)).expect("a free port");
    far.set_read_timeout(Some(Duration::from_millis(500))).expect("open");
    // They know each other's hardware addresses.
    near[0].send_to(b"x", at(RIGHT, 3)).expect("a route");
    far.recv(&mut [0]).expect("it comes");
    far.send_to(b"x", at(LEFT, 1)).expect("a route");
    near[0].recv(&mut [0]).expect("it comes");
    waiter.is_deaf.store(true, Ordering::SeqCst);
    let context = &mut Context::from_waker(Waker::noop());
    let is_soon = is_soon(Duration::from_millis(300), || {
        std::thread::sleep(UNTIL_ASLEEP);
        let mut driver = left.drivers().expect("it is watched").remove(0);
        assert!((0..10_000).any(|_| {
            std::thread::yield_now();
            driver.turn() == Turn::Wait
        }));
        for near in &near {
            assert!(near.poll_recv_from(context, &mut [0]).is_pending());
        }
        for port in [1, 2] {
            far.send_to(b"x", at(LEFT, port)).expect("a route");
        }
        driver.turn();
        for near in &near {
            let Poll::Ready(Ok((_, from))) = near.poll_recv_from(context, &mut [0]) else {
                panic!("it has come");
            };
            assert!(near.poll_send_to(context, b"y", Some(from)).is_ready());
        }
        // The loop is busy with something else from here on.
        let began = Instant::now();
        let missing = near.iter().filter(|_| far.recv(&mut [0]).is_err()).count();
        let took = began.elapsed();
        drop(driver);
        (0..missing).for_each(|_| _ = far.recv(&mut [0]).expect("the stack's own threads do it"));
        took
    });
    assert!(is_soon);
}
