//! A worker that the system does not run for a while, wherever it stands: before it takes the lock, and
//! with frames in its hands. Nothing is lost and nothing changes its order.

use crate::pair::{self, LEFT, RIGHT, connected, interface, right, run};
use device::{Queue, Received, Waiter};
use multidata::{Stack, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Context;
use std::time::Duration;

/// Longer than a worker's patience, shorter than a retransmission timeout.
const STALL: Duration = Duration::from_millis(15);

/// Stalls the threads of a stack at every so many calls, and counts how often.
#[derive(Clone, Debug, Default)]
struct Stalls {
    calls: Arc<AtomicUsize>,
    stalled: Arc<AtomicUsize>,
}

impl Stalls {
    fn pass(&self, each: usize) {
        let is_worker = std::thread::current().name().is_some_and(|it| it.starts_with("squeue-"));
        if is_worker && self.calls.fetch_add(1, Ordering::Relaxed).is_multiple_of(each) {
            self.stalled.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(STALL);
        }
    }
}

struct StallingQueue {
    inner: Box<dyn Queue>,
    stalls: Stalls,
}

impl Queue for StallingQueue {
    device::forward_queue!(|self| self.inner, but receive, waiter);

    fn receive(
        &mut self,
        pool: &batch::BlockPool,
        batch: &mut batch::ReceiveBatch,
        frames_max: usize,
    ) -> Received {
        let received = self.inner.receive(pool, batch, frames_max);
        if received.frames > 0 {
            self.stalls.pass(2);
        }
        received
    }

    fn waiter(&self) -> Arc<dyn Waiter> {
        Arc::new(StallingWaiter { inner: self.inner.waiter(), stalls: self.stalls.clone() })
    }
}

struct StallingWaiter {
    inner: Arc<dyn Waiter>,
    stalls: Stalls,
}

impl Waiter for StallingWaiter {
    fn wait(&self, timeout: Option<Duration>) {
        self.inner.wait(timeout);
        self.stalls.pass(3);
    }

    fn wake(&self) {
        self.inner.wake();
    }

    fn is_ready(&self) -> Option<bool> {
        self.inner.is_ready()
    }
}

/// The right stack's workers stall; it has as many squeues as `layout` says.
fn stacks(layout: &str) -> (Stack, Stack, Stalls) {
    let (left, right) = device::wire(pair::ethernet());
    let stalls = Stalls::default();
    let right: Box<dyn Queue> =
        Box::new(StallingQueue { inner: Box::new(right), stalls: stalls.clone() });
    let left = Stack::builder().interface(left, interface(LEFT)).build().expect("a stack");
    let builder = Stack::builder().layout(layout.parse().expect("a layout"));
    let right = builder.multiqueue_interface(vec![right], interface(RIGHT)).build();
    (left, right.expect("a stack"), stalls)
}

const LAYOUTS: [&str; 2] = ["R1S0F0", "R1S2F1"];

/// Packets that a stack dropped, for whatever reason.
fn drops(stack: &Stack) -> u64 {
    let mut sum = 0;
    stack.counters().stack.drops.for_each(&mut |_, count| sum += count);
    sum
}

#[test]
fn datagrams_arrive_all_and_in_order_while_workers_stall() {
    for layout in LAYOUTS {
        let (left, right_stack, stalls) = stacks(layout);
        let ours = UdpSocket::bind(&left, (LEFT, 0)).expect("a free port");
        let theirs: Vec<UdpSocket> = (0..4)
            .map(|at| UdpSocket::bind(&right_stack, right(5_000 + at)).expect("a free port"))
            .collect();
        // Both have found each other by now: while that is going on only a few datagrams are kept.
        let _open = connected(&left, &right_stack);
        let dropped_before = drops(&right_stack);
        let mut number = 0_u32;
        for _ in 0..60 {
            let first = number;
            for _ in 0..8 {
                for socket in &theirs {
                    let to = socket.local_addr().expect("bound");
                    ours.send_to(&number.to_be_bytes(), to).expect("a route");
                }
                number += 1;
            }
            for socket in &theirs {
                for expected in first..number {
                    // A task: so the worker, and nobody else, waits for the device.
                    let mut bytes = [0; 8];
                    let poll = |it: &mut Context<'_>| socket.poll_recv_from(it, &mut bytes);
                    let (len, _) = run(poll).expect("open");
                    assert_eq!(bytes[..len], expected.to_be_bytes(), "{layout}");
                }
            }
        }
        let stalled = stalls.stalled.load(Ordering::Relaxed);
        assert!(stalled >= 1, "{layout}: the workers stalled {stalled} times");
        assert_eq!(drops(&right_stack), dropped_before, "{layout}");
    }
}

#[test]
fn streams_stay_in_order_while_workers_stall() {
    for layout in LAYOUTS {
        let (left, right_stack, stalls) = stacks(layout);
        let pairs: Vec<_> = (0..4).map(|_| connected(&left, &right_stack)).collect();
        std::thread::scope(|scope| {
            for (seed, (client, server)) in pairs.iter().enumerate() {
                let seed = seed as u64;
                scope.spawn(move || write_in_a_task(client, seed));
                scope.spawn(move || read_in_a_task(server, seed));
                scope.spawn(move || write_in_a_task(server, !seed));
                scope.spawn(move || read_in_a_task(client, !seed));
            }
        });
        assert!(stalls.stalled.load(Ordering::Relaxed) >= 1, "{layout}");
    }
}

const STREAM_LEN: usize = 1 << 20;

fn write_in_a_task(stream: &TcpStream, seed: u64) {
    let mut bytes = vec![0; STREAM_LEN];
    pair::Pattern::new(seed).fill(&mut bytes);
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let count = run(|it| stream.poll_write(it, rest)).expect("the peer reads");
        rest = &rest[count..];
    }
}

fn read_in_a_task(stream: &TcpStream, seed: u64) {
    let mut pattern = pair::Pattern::new(seed);
    let (mut buffer, mut received) = (vec![0; 50_000], 0);
    while received < STREAM_LEN {
        let count = run(|it| stream.poll_read(it, &mut buffer)).expect("the peer writes");
        assert!(count > 0, "the stream ended early");
        pattern.check(&buffer[..count]);
        received += count;
    }
}
