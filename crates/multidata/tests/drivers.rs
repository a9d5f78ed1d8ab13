//! Stacks that an event loop of the test's own runs.
#![cfg(target_os = "linux")]

use device::{EventSource, PacketSender, Queue, Waiter, WireQueue};
use multidata::{InterfaceConfig, Stack, Turn};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const PACKET: [u8; 40] = [0x45; 40];

/// Sends, and is to do so when the next wait begins.
type Plan = Arc<Mutex<(PacketSender, bool)>>;

/// A device that a packet comes to just before a wait for it begins.
struct Late(WireQueue, Plan);

struct LateWaiter(Arc<dyn Waiter>, Plan);

struct LateSource(Arc<dyn EventSource>, Plan);

impl Queue for Late {
    device::forward_queue!(|self| self.0, but waiter);

    fn waiter(&self) -> Arc<dyn Waiter> {
        Arc::new(LateWaiter(self.0.waiter(), Arc::clone(&self.1)))
    }
}

impl Waiter for LateWaiter {
    fn wait(&self, timeout: Option<Duration>) {
        self.0.wait(timeout);
    }

    fn wake(&self) {
        self.0.wake();
    }

    fn is_ready(&self) -> Option<bool> {
        self.0.is_ready()
    }

    fn event_source(&self, make: device::MakeSource<'_>) -> Option<Arc<dyn EventSource>> {
        Some(Arc::new(LateSource(self.0.event_source(make)?, Arc::clone(&self.1))))
    }
}

impl EventSource for LateSource {
    fn file(&self) -> BorrowedFd<'_> {
        self.0.file()
    }

    fn begin(&self, timeout: Option<Duration>) -> bool {
        let (sender, is_due) = &mut *self.1.lock().expect("no panic");
        if std::mem::take(is_due) {
            sender.send(&PACKET).expect("there is room");
        }
        self.0.begin(timeout)
    }

    fn end(&self) {
        self.0.end();
    }
}

/// Who brought it found nobody who waits.
#[test]
fn a_frame_that_comes_between_a_turn_and_its_wait_is_fetched() {
    let (queue, sender, _receiver) = device::packet_pipe(1_500);
    let plan: Plan = Arc::new(Mutex::new((sender, false)));
    let plan_now = || plan.lock().expect("no panic");
    let interface = InterfaceConfig::new("10.1.0.1/24".parse().expect("an address"));
    let stack = Stack::builder().interface(Late(queue, Arc::clone(&plan)), interface);
    let stack = stack.build().expect("a stack");
    let mut driver = stack.drivers().expect("it is watched").remove(0);
    let mut settle = || assert!((0..100).any(|_| driver.turn() == Turn::Wait), "nothing is there");
    settle();
    // The stack's own thread sees that it is not needed.
    plan_now().0.send(&PACKET).expect("there is room");
    std::thread::sleep(Duration::from_millis(50));
    settle();
    plan_now().1 = true;
    assert_eq!(driver.turn(), Turn::Again);
    assert_eq!(driver.turn(), Turn::Wait, "it was fetched");
}
