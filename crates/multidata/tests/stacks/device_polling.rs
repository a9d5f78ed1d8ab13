//! Whether who waits for frames sleeps on the device or asks it again: as the stack was told.

use crate::pair::{self, LEFT, RIGHT, connected, exchange, interface, right};
use device::{Queue, Waiter, WireQueue};
use multidata::{Polling, PollingMarks, Stack, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A wire's end that counts how often somebody sleeps on it.
struct Device {
    queue: WireQueue,
    waits: Arc<AtomicUsize>,
}

struct DeviceWaiter {
    waiter: Arc<dyn Waiter>,
    waits: Arc<AtomicUsize>,
}

impl Waiter for DeviceWaiter {
    fn wait(&self, timeout: Option<Duration>) {
        self.waits.fetch_add(1, Ordering::SeqCst);
        self.waiter.wait(timeout);
    }

    fn wake(&self) {
        self.waiter.wake();
    }
}

impl Queue for Device {
    device::forward_queue!(|self| self.queue, but waiter);

    fn waiter(&self) -> Arc<dyn Waiter> {
        let (waiter, waits) = (self.queue.waiter(), Arc::clone(&self.waits));
        Arc::new(DeviceWaiter { waiter, waits })
    }
}

/// Two stacks, the right one polling so, and how often somebody slept on its device.
fn stacks(squeues: usize, polling: Polling) -> (Stack, Stack, Arc<AtomicUsize>) {
    let (left, other) = device::wire(pair::ethernet());
    let waits = Arc::new(AtomicUsize::new(0));
    let device = Device { queue: other, waits: Arc::clone(&waits) };
    let left = Stack::builder().interface(left, interface(LEFT)).build().expect("a stack");
    let builder = Stack::builder().squeues(squeues).polling(polling);
    let right_stack = builder.interface(device, interface(RIGHT)).build().expect("a stack");
    (left, right_stack, waits)
}

/// Datagrams come as fast as they can until `is_over`, while an application thread reads them.
fn flooded(left: &Stack, right_stack: &Stack, is_over: impl Fn() -> bool) {
    let sink = UdpSocket::bind(right_stack, right(6_668)).expect("a free port");
    sink.set_read_timeout(Some(Duration::from_millis(5))).expect("a time");
    let source = UdpSocket::bind(left, (LEFT, 0)).expect("a free port");
    source.set_nonblocking(true).expect("open");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                drop(source.send_to(&[0; 200], right(6_668)));
            }
        });
        let started = Instant::now();
        while !is_over() && started.elapsed() < pair::PATIENCE {
            drop(sink.recv_from(&mut [0; 256]));
        }
        done.store(true, Ordering::SeqCst);
    });
    assert!(is_over(), "{:?}", right_stack.counters().runtime);
}

#[test]
fn off_sleeps_on_the_device_however_much_comes() {
    for squeues in [1, 2] {
        let (left, right_stack, waits) = stacks(squeues, Polling::Off);
        let frames = || right_stack.counters().stack.shard.receive_frames;
        flooded(&left, &right_stack, || frames() > 20_000);
        let runtime = right_stack.counters().runtime;
        assert_eq!((runtime.poll_turns, runtime.to_polling), (0, 0));
        assert!(waits.load(Ordering::SeqCst) > 0);
    }
}

#[test]
fn always_never_sleeps_on_the_device() {
    for squeues in [1, 2] {
        let (left, right_stack, waits) = stacks(squeues, Polling::Always);
        let (client, server) = connected(&left, &right_stack);
        exchange(&client, &server, 5, 1 << 20);
        let runtime = right_stack.counters().runtime;
        assert!(runtime.poll_turns > 0);
        assert_eq!((waits.load(Ordering::SeqCst), runtime.interrupt_turns), (0, 0));
    }
}

#[test]
fn adaptive_polls_under_a_backlog_and_sleeps_when_it_is_over() {
    let calm = Duration::from_millis(1);
    let marks = PollingMarks { backlog_high: 8, backlog_low: 2, calm };
    for squeues in [1, 2] {
        let (left, right_stack, waits) = stacks(squeues, Polling::Adaptive(marks));
        let runtime = || right_stack.counters().runtime;
        flooded(&left, &right_stack, || runtime().to_polling > 0 && runtime().poll_turns > 10);
        let started = Instant::now();
        loop {
            let before = runtime().poll_turns;
            std::thread::sleep(Duration::from_millis(50));
            if runtime().poll_turns == before {
                break;
            }
            assert!(started.elapsed() < pair::PATIENCE, "it polls for ever");
        }
        // Who waits now, waits on the device.
        let before = waits.load(Ordering::SeqCst);
        let sink = UdpSocket::bind(&right_stack, right(6_669)).expect("a free port");
        sink.set_read_timeout(Some(Duration::from_millis(20))).expect("a time");
        sink.recv_from(&mut [0; 16]).expect_err("nothing comes");
        assert!(squeues > 1 || waits.load(Ordering::SeqCst) > before);
    }
}
