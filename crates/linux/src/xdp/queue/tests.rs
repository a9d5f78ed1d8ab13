//! How often a kick is repeated, told by a kernel of the test's own, and the queue on a virtual cable, where AF_XDP
//! can be had (root of the machine).

use super::*;
use crate::{VethPair, XdpDevice, namespace, withheld};
use batch::{Attributes, PoolConfig};
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

/// Longest time any step may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// A cable in a network of the calling thread's own, and the queue of its near end, with 64 chunks each way.
fn opened(test: &str) -> Option<(VethPair, XdpDevice, XdpQueue)> {
    let open = || -> Result<_, DeviceError> {
        namespace::enter_by_thread()?;
        let cable = VethPair::new("near0", "far0")?;
        let _ = cable.far().disable_ipv6();
        cable.set_up()?;
        let config =
            XdpConfig { receive_frames: 64, transmit_frames: 64, ..XdpConfig::new("near0") };
        let mut device = XdpDevice::open(&config)?;
        let queue = device.queue(0)?;
        Ok((cable, device, queue))
    };
    open().map_err(|error| withheld::cannot_run(test, &error.message)).ok()
}

/// So many frames that nobody wants.
fn batch_of(count: usize) -> Multidata {
    let mut batch = Multidata::default();
    for _ in 0..count {
        batch.push_packet(40, Attributes::default()).expect("room").fill(2);
    }
    batch
}

/// Takes what comes, and has the queue look at its interface.
fn receive(queue: &mut XdpQueue) {
    let pool = BlockPool::new(PoolConfig::default());
    while queue.receive(&pool, &mut ReceiveBatch::new(), 64).more {}
}

/// How often a wait for the queue ends in a fifth of a second.
fn waits(queue: &mut XdpQueue) -> usize {
    let (started, mut count) = (Instant::now(), 0);
    while started.elapsed() < Duration::from_millis(200) {
        queue.waiter().wait(Some(PATIENCE / 200));
        receive(queue);
        count += 1;
    }
    count
}

/// Until the interface changes again, or a second has passed, who sends does not hear of it.
fn overlook(queue: &mut XdpQueue) {
    queue.asked = Some(Instant::now() + PATIENCE);
}

#[test]
fn who_has_nothing_more_to_send_does_not_look_for_room() {
    let name = "who_has_nothing_more_to_send_does_not_look_for_room";
    let Some((_cable, _device, mut queue)) = opened(name) else { return };
    queue.rings.free.truncate(8);
    let transmitted = queue.transmit(&batch_of(9));
    assert_eq!(transmitted, Transmitted { taken: 8, stopped: Some(Stop::Full) });
    // It is not known that there is room.
    assert!(waits(&mut queue) > 40);
    let started = Instant::now();
    while queue.room().packets < 8 {
        assert!(started.elapsed() < PATIENCE, "{:?} is free", queue.room());
        queue.reclaim();
    }
    assert!(!queue.is_stalled());
    let count = waits(&mut queue);
    assert!(count < 20, "{count} waits in a fifth of a second for nothing");
}

#[test]
fn what_stands_in_the_ring_waits_for_an_interface_that_is_down_and_nobody_is_busy_with_that() {
    let name =
        "what_stands_in_the_ring_waits_for_an_interface_that_is_down_and_nobody_is_busy_with_that";
    let Some((cable, _device, mut queue)) = opened(name) else { return };
    let down = |queue: &mut XdpQueue| {
        // A frame that is taken before the interface is looked at.
        cable.near().set_down().expect("root of the namespace");
        overlook(queue);
    };
    let up = |queue: &mut XdpQueue| {
        cable.near().set_up().expect("root of the namespace");
        receive(queue);
        assert_eq!(queue.trouble(), None);
    };
    down(&mut queue);
    let taken = Transmitted { taken: 1, stopped: None };
    assert_eq!(queue.transmit(&batch_of(1)), taken);
    assert!(queue.is_stalled() && queue.trouble().is_some());
    let full = Transmitted { taken: 0, stopped: Some(Stop::Full) };
    assert_eq!(queue.transmit(&batch_of(1)), full);
    // Once more while it is down: it is not kicked.
    let calls = queue.counters().transmit_syscalls;
    queue.reclaim();
    assert_eq!(queue.counters().transmit_syscalls, calls);
    assert!(queue.is_stalled());
    let count = waits(&mut queue);
    assert!(count < 20, "{count} waits in a fifth of a second for an interface that is down");
    // It is down again before what stands in the ring is kicked.
    up(&mut queue);
    down(&mut queue);
    queue.reclaim();
    assert!(queue.is_stalled() && queue.trouble().is_some());
    let count = waits(&mut queue);
    assert!(count < 20, "{count} waits in a fifth of a second for an interface that is down");
    up(&mut queue);
    assert!(waits(&mut queue) > 40, "what stands in the ring is not looked at");
    queue.reclaim();
    assert!(!queue.is_stalled() && queue.rings.transmit.pending() == 0);
    let count = waits(&mut queue);
    assert!(count < 20, "{count} waits in a fifth of a second for nothing");
    let counters = queue.counters();
    assert_eq!((counters.links_lost, counters.links_restored), (2, 2));
    assert_eq!(queue.failed, None);
}

/// Where another one has its name by then.
#[test]
fn a_queue_is_of_the_interface_that_was_opened() {
    let name = "a_queue_is_of_the_interface_that_was_opened";
    let Some((cable, device, queue)) = opened(name) else { return };
    drop((device, queue));
    cable.near().set_down().expect("root of the namespace");
    let mut device = XdpDevice::open(&XdpConfig::new("near0")).expect("it was opened before");
    netlink::set_name(cable.near().index(), "new0").expect("root of the namespace");
    let other = VethPair::new("near0", "far1").expect("the name is free");
    cable.near().set_up().and_then(|()| other.set_up()).expect("root of the namespace");
    let queue = device.queue(0).expect("it is there, and up");
    assert_eq!(queue.interface.index(), cable.near().index());
    drop(cable);
    assert!(device.interface().expect_err("it is gone").message.contains("is gone"));
}

/// A driver of zero-copy is a socket whose peer has no room, or has.
#[test]
fn a_driver_that_is_busy_is_told_again() {
    let name = "a_driver_that_is_busy_is_told_again";
    let Some((_cable, _device, mut queue)) = opened(name) else { return };
    let (driver, hardware) = UnixDatagram::pair().expect("a pair of sockets");
    driver.set_nonblocking(true).expect("an option of sockets");
    hardware.set_nonblocking(true).expect("an option of sockets");
    let mut before = 0;
    while driver.send(&[1]).is_ok() {
        before += 1;
    }
    let kernel = core::mem::replace(&mut queue.rings.socket, Arc::new(driver.into()));
    queue.rings.is_zero_copy = true;
    let taken = Transmitted { taken: 1, stopped: None };
    assert_eq!(queue.transmit(&batch_of(1)), taken);
    assert!(queue.is_stalled(), "nobody comes back to it");
    queue.reclaim();
    assert!(queue.is_stalled());
    // The kernel sends it meanwhile, for it knows better what it was opened as.
    assert!(waits(&mut queue) > 40, "nobody comes back to it soon");
    assert_eq!(queue.transmit(&batch_of(1)), taken);
    assert!(queue.is_stalled());
    let mut buffer = [0; 8];
    assert!((0..before).all(|_| hardware.recv(&mut buffer).is_ok()));
    queue.reclaim();
    assert!(!queue.is_stalled());
    assert_eq!(hardware.recv(&mut buffer).ok(), Some(0), "it was not told");
    assert!(waits(&mut queue) < 20);
    queue.rings.socket = kernel;
}

#[test]
fn a_driver_is_told_where_it_wants_to_be_and_of_something() {
    let told = |pending, needs_wakeup, says| {
        let mut count = 0;
        let kicked = kick_driver(pending, needs_wakeup, || {
            count += 1;
            says
        });
        (kicked, count)
    };
    assert_eq!(told(0, true, Ok(())), (Ok(false), 0));
    assert_eq!(told(3, false, Ok(())), (Ok(false), 0));
    // What is left in the ring is the hardware's.
    assert_eq!(told(3, true, Ok(())), (Ok(false), 1));
    assert_eq!(told(3, true, Err(Errno::AGAIN)), (Ok(true), 1));
    assert_eq!(told(3, true, Err(Errno::NETDOWN)), (Err(Errno::NETDOWN), 1));
}

/// `xsk_generic_xmit` of the kernel: what it knows of the ring, and what it tells.
#[derive(Default)]
struct Kernel {
    /// Whether it tells of all that it has taken after a kick that sent something, or only when it looks
    /// for more (up to 6.16).
    tells_taken: bool,
    written: u32,
    known: u32,
    taken: u32,
    told: u32,
    /// Frames for which it has memory.
    memory: u32,
    /// Frames come back as soon as they are taken, with their memory.
    is_prompt: bool,
    /// The interface drops every frame.
    drops: bool,
    sent: u32,
    kicks: u32,
}

impl Kernel {
    fn left(&self) -> Left {
        Left { pending: self.written - self.told, sent: self.sent }
    }

    fn kick(&mut self) -> Result<(), Errno> {
        let before = self.taken;
        let outcome = self.send();
        let dropped = u32::from(outcome == Err(Errno::BUSY));
        if self.tells_taken && self.taken - before > dropped {
            self.told = self.taken;
        }
        outcome
    }

    fn send(&mut self) -> Result<(), Errno> {
        self.kicks += 1;
        for budget in (0..KICK_FRAMES + 1).rev() {
            if self.known == self.taken {
                (self.told, self.known) = (self.taken, self.written);
                if self.known == self.taken {
                    return Ok(());
                }
            }
            if budget == 0 || self.memory == 0 {
                return Err(Errno::AGAIN);
            }
            self.taken += 1;
            self.memory -= u32::from(!self.is_prompt);
            self.sent += u32::from(self.is_prompt);
            if self.drops {
                return Err(Errno::BUSY);
            }
        }
        unreachable!("the last round returns")
    }
}

#[test]
fn a_kernel_that_does_not_tell_what_it_took_is_kicked_until_it_has_all() {
    let plenty = Kernel { written: 64, memory: 1_000, ..Kernel::default() };
    let kicked = |mut kernel: Kernel, fresh| {
        let cell = core::cell::RefCell::new(&mut kernel);
        let tells_taken = cell.borrow().tells_taken;
        let is_stalled =
            kick_all(tells_taken, fresh, || cell.borrow().left(), || cell.borrow_mut().kick());
        (is_stalled, kernel.taken, kernel.kicks)
    };
    // Two budgets, whether frames come back at once or later; then it looks for more and tells.
    for is_prompt in [true, false] {
        let kernel = Kernel { is_prompt, ..plenty };
        assert_eq!(kicked(kernel, 64), (Ok(false), 64, 2));
    }
    // What was left over is not fresh: a kick that comes to nothing ends it, one that does not goes on.
    assert_eq!(kicked(Kernel { ..plenty }, 0), (Ok(true), 32, 1));
    assert_eq!(kicked(Kernel { is_prompt: true, ..plenty }, 0), (Ok(false), 64, 2));
    // No memory: no more kicks than budgets.
    assert_eq!(kicked(Kernel { memory: 40, ..plenty }, 64), (Ok(true), 40, 2));
    // A frame a kick, and one to be told of the last; also where some other reason for EBUSY has no end.
    for tells_taken in [false, true] {
        let kernel = Kernel { drops: true, tells_taken, ..plenty };
        assert_eq!(kicked(kernel, 64), (Ok(false), 64, 65));
        let left = || Left { pending: 64, sent: 0 };
        assert_eq!(kick_all(tells_taken, 0, left, || Err(Errno::BUSY)), Ok(true));
    }
    // Who tells needs no guessing.
    let new = Kernel { tells_taken: true, ..plenty };
    assert_eq!(kicked(Kernel { memory: 40, ..new }, 64), (Ok(true), 40, 3));
    assert_eq!(kicked(new, 64), (Ok(false), 64, 2));
    let left = || Left { pending: 1, sent: 0 };
    assert_eq!(kick_all(false, 64, left, || Err(Errno::NETDOWN)), Err(Errno::NETDOWN));
}

#[test]
fn want_of_memory_is_no_failure_of_the_device() {
    assert!([Errno::AGAIN, Errno::NOBUFS, Errno::NOMEM].into_iter().all(is_for_later));
    assert!(![Errno::NETDOWN, Errno::NXIO, Errno::INVAL].into_iter().any(is_for_later));
}
