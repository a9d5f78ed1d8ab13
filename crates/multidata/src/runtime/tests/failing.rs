//! Devices that fail, panic and make room for others: what they were offered is not lost, and who waits hears what there
//! is to hear.

use super::*;
use stack::{Homes as _, InterfaceEvent};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A place on a new device.
fn place() -> (Place, Arc<Silent>) {
    let device = Arc::new(Silent::default());
    (Place { queue: Box::new(SilentQueue(device.clone())), receives: true }, device)
}

/// One more interface of the squeue, at this address, and its device.
fn add(squeue: &Squeue, address: &str) -> (stack::InterfaceId, Arc<Silent>) {
    let (place, device) = place();
    let config = InterfaceConfig {
        capabilities: place.queue.capabilities(),
        mode: Some(TransmitMode::Multidata),
        addresses: vec![address.parse().expect("an address")],
        gateways: vec![],
    };
    let (mut id, mut panic) = (None, None);
    let added = squeue.add(
        |shard, _| {
            let made = shard.add_interface(config).expect("no gateway");
            id = Some(made);
            Ok(Port::new(made, place, Coalescing::default()))
        },
        &mut panic,
    );
    drop(added.expect("it is added").map(|old| old.empty(&mut None)));
    assert!(panic.is_none());
    (id.expect("it was made"), device)
}

fn connect(squeue: &Squeue, remote: [u8; 4]) -> SocketId {
    let remote = (remote, 80).into();
    squeue.once(|core, now| core.shard.tcp_connect(now, None, remote)).expect("a route")
}

fn failures_told(squeue: &Squeue) -> usize {
    squeue.look(|core| {
        let events = core::iter::from_fn(|| core.shard.poll_interface_event());
        events.filter(|event| matches!(event, InterfaceEvent::DeviceFailed(..))).count()
    })
}

#[test]
fn what_a_device_was_offered_that_panicked_is_sent_afresh() {
    let (squeue, device, [socket, _]) = squeue();
    device.transmit_panics.store(true, Ordering::SeqCst);
    let remote = ([10, 1, 0, 9], 80).into();
    let mut panic = None;
    squeue.once_keeping(&mut panic, |core, now| {
        core.shard.tcp_connect(now, None, remote).expect("a route");
        let bytes = batch::Chunk::whole(batch::Block::from(bytes::Bytes::from_static(b"x")));
        core.shard.udp_send(socket, Some(remote), bytes).expect("room");
    });
    assert!(panic.is_some(), "who calls hears of it");
    squeue.once(|_, _| ());
    assert_eq!(device.sent_packets.load(Ordering::SeqCst), 2, "the SYN and the datagram");
    assert_eq!(squeue.counters().runtime.panics_inside, 1);
}

/// It waits for the one that failed, and sleeps on the other.
#[test]
fn a_leader_hears_of_the_failure_of_another_device_than_it_sleeps_on() {
    let (squeue, device, _) = squeue();
    let (_, second) = add(&squeue, "10.2.0.1/24");
    let socket = connect(&squeue, [10, 2, 0, 9]);
    std::thread::scope(|scope| {
        let leader = scope.spawn(|| {
            let blocked = |_: &mut Core, _| Err::<(), _>(SocketError::WouldBlock);
            squeue.operate(&call(socket, Some(20_000)), blocked)
        });
        until(&squeue, |core| core.watch.has_leader());
        second.receive_fails.store(true, Ordering::SeqCst);
        squeue.once(|_, _| ());
        assert_eq!(device.wakes.load(Ordering::SeqCst), 1, "before the SYN is due again");
        let error = leader.join().expect("no panic").expect_err("the device failed");
        assert_eq!(error.kind(), ErrorKind::NetworkDown);
    });
}

#[test]
fn a_failure_that_is_found_in_sending_is_told_once() {
    let (squeue, device, _) = squeue();
    device.transmit_fails.store(true, Ordering::SeqCst);
    connect(&squeue, [10, 1, 0, 9]);
    squeue.once(|_, _| ());
    assert_eq!(failures_told(&squeue), 1);
}

#[derive(Default)]
struct Counting(AtomicUsize);

impl Wake for Counting {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// For them there is no event: no device has failed.
#[test]
fn who_waits_for_events_hears_that_the_stack_was_ended_until_it_has_a_device_again() {
    for is_replaced in [true, false] {
        let (squeue, ..) = squeue();
        // Its devices were told of before.
        squeue.once(|_, _| ());
        let (place_of_task, id) =
            squeue.look(|core| (core.waiting.event_watch.place(), core.devices.ports()[0].id));
        let task = Arc::new(Counting::default());
        place_of_task.enter(Sleeper::Task(Waker::from(Arc::clone(&task))));
        squeue.once(|core, _| core.end());
        assert_eq!(task.0.load(Ordering::SeqCst), 1);
        assert_eq!(failures_told(&squeue), 0);
        assert!(squeue.look(|core| core.devices.ended().is_some()));
        if is_replaced {
            let (place, _) = place();
            let replaced = squeue.replace(id, place, None, &mut None);
            drop(replaced.ok().expect("the interface is there").empty(&mut None));
        } else {
            add(&squeue, "10.2.0.1/24");
        }
        assert!(squeue.look(|core| core.devices.ended().is_none()), "{is_replaced}");
    }
}

#[test]
fn a_leader_whose_device_panics_hands_the_lead_over() {
    let (squeue, device, [one, other]) = squeue();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let leader = scope
            .spawn(|| catch_unwind(AssertUnwindSafe(|| wait_for(&squeue, call(one, None), &done))));
        until(&squeue, |core| core.watch.has_leader());
        let follower = scope.spawn(|| wait_for(&squeue, call(other, Some(10_000)), &done));
        until(&squeue, |core| core.watch.followers().len() == 1);
        device.wait_panics.store(true, Ordering::SeqCst);
        squeue.waiters.wake_first();
        assert!(leader.join().expect("it was caught").is_err(), "who panics hears of it");
        until(&squeue, |core| core.watch.has_leader() && core.watch.followers().len() == 0);
        done.store(true, Ordering::SeqCst);
        squeue.once(|core, _| core.wake_socket(other));
        follower.join().expect("no panic").expect("it was told");
    });
    assert_eq!(squeue.counters().runtime.panics_inside, 0, "it held no lock");
}

/// Whom it would have woken, it does not.
#[test]
fn who_panics_inside_has_the_sleepers_look_again() {
    let (squeue, device, [socket, _]) = squeue();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let leader = scope.spawn(|| wait_for(&squeue, call(socket, Some(10_000)), &done));
        until(&squeue, |core| core.watch.has_leader());
        done.store(true, Ordering::SeqCst);
        device.transmit_panics.store(true, Ordering::SeqCst);
        let remote = ([10, 1, 0, 9], 80).into();
        let calling = catch_unwind(AssertUnwindSafe(|| {
            squeue.once(|core, now| {
                core.wake_socket(socket);
                core.shard.tcp_connect(now, None, remote).expect("a route");
            });
        }));
        assert!(calling.is_err(), "who panics hears of it");
        assert_eq!(device.wakes.load(Ordering::SeqCst), 1);
        leader.join().expect("no panic").expect("it looked again");
    });
    assert_eq!(squeue.counters().runtime.panics_inside, 1);
}

#[test]
fn what_waits_for_a_device_that_failed_goes_by_an_interface_that_is_added() {
    let (squeue, device, _) = squeue();
    let everywhere = "0.0.0.0/0".parse().expect("a network");
    squeue.once(|core, now| {
        let id = core.devices.ports()[0].id;
        let gateway = Some("10.1.0.254".parse().expect("an address"));
        core.shard.add_route(now, everywhere, gateway, id).expect("a sound route");
    });
    device.transmit_fails.store(true, Ordering::SeqCst);
    connect(&squeue, [10, 2, 0, 9]);
    assert!(squeue.look(|core| core.devices.all_failed()));
    let (_, second) = add(&squeue, "10.2.0.1/24");
    assert_eq!(second.sent_packets.load(Ordering::SeqCst), 1, "the SYN");
    assert!(squeue.look(|core| !core.devices.all_failed()), "one works");
}

#[test]
fn what_was_counted_of_an_interface_that_was_removed_counts_though_another_has_its_place() {
    let (squeue, ..) = squeue();
    let (id, device) = add(&squeue, "10.2.0.1/24");
    device.wake_panics.store(true, Ordering::SeqCst);
    squeue.waiters.wake();
    connect(&squeue, [10, 2, 0, 9]);
    drop(squeue.remove(id, &mut None).expect("it is there").empty(&mut None));
    assert_eq!(failures_told(&squeue), 0, "it was the user's wish");
    add(&squeue, "10.3.0.1/24");
    let counters = squeue.counters();
    assert_eq!((counters.runtime.wakers_panicked, counters.device.transmit_packets), (1, 1));
}

/// They are of another link: whoever sent them from there is not to be heard here.
#[test]
fn what_another_squeue_has_received_of_an_interface_is_not_taken_for_one_in_its_place() {
    const FRAMES: usize = 300;
    let layout = "R1S2F1".parse().expect("a layout");
    let spread = Spread::new(layout, Policy::Flow, 2).expect("a spread");
    let hand_over = HandOver::new(spread, 1, [1, 2]).expect("two squeues");
    let index = hand_over.of_port(1);
    let (squeue, _, [socket, _]) = squeue_of(Some((index, Arc::clone(&hand_over))));
    let id = squeue.look(|core| core.devices.ports()[0].id);
    let hand_on = || {
        // From 10.1.0.9, port 9, to the first socket, without a checksum of UDP's.
        let packet =
            b"E\0\0\x1c\0\0\0\0\x40\x11\x66\xc6\x0a\x01\0\x09\x0a\x01\0\x01\0\x09\0\x01\0\x08\0\0";
        let mut batch = ReceiveBatch::new();
        for _ in 0..FRAMES {
            let block = batch.add_block(bytes::Bytes::from_static(packet).into());
            let (len, checksum) = (packet.len() as u32, batch::ReceivedChecksum::Unverified);
            let frame = batch::Frame { block, offset: 0, len, checksum, segmented: None };
            assert!(batch.push_frame(frame));
        }
        hand_over.desk(1 - index).spread(0, Medium::Ip, &mut batch, |_| panic!("it is another's"));
        assert_eq!(squeue.look(|core| core.owed_frames()), FRAMES);
    };
    let receive = || squeue.look(|core| core.shard.udp_receive(socket).map(drop));
    hand_on();
    squeue.once(|_, _| ());
    receive().expect("it is for this socket");
    while receive().is_ok() {}
    drop(squeue.remove(id, &mut None).expect("it is there").empty(&mut None));
    // Of a squeue that has not removed it yet.
    hand_on();
    add(&squeue, "10.1.0.1/24");
    assert_eq!(receive(), Err(SocketError::WouldBlock));
    hand_on();
    squeue.once(|_, _| ());
    receive().expect("it came by the new one");
}

/// So a machine that stands still costs little, and one that is full for a moment waits for no longer than that.
#[test]
fn a_device_that_stays_full_is_asked_less_often_until_it_takes_something() {
    let (squeue, device, _) = squeue();
    let (soon, late) = (Duration::from_millis(1), Duration::from_millis(10));
    // When it is asked again, between which times.
    let asked_again = || {
        let before = squeue.clock.now();
        squeue.once(|_, _| ());
        let deadline = squeue.look(|core| core.deadline()).expect("it was full");
        (before, deadline, squeue.clock.now())
    };
    for _ in 0..2 {
        device.is_full.store(true, Ordering::SeqCst);
        connect(&squeue, [10, 1, 0, 9]);
        std::thread::sleep(2 * late);
        let (before, deadline, now) = asked_again();
        assert!(deadline >= before + late && deadline <= now + late, "it has long been full");
        device.is_full.store(false, Ordering::SeqCst);
        squeue.once(|_, _| ());
        device.is_full.store(true, Ordering::SeqCst);
        connect(&squeue, [10, 1, 0, 9]);
        let deadline = squeue.look(|core| core.deadline()).expect("it is full again");
        assert!(deadline <= squeue.clock.now() + soon, "it has just taken something");
        device.is_full.store(false, Ordering::SeqCst);
        squeue.once(|_, _| ());
    }
}

/// Says each time that it can do less than before, and may refuse to do less.
struct Revoking {
    is_revoked: bool,
    refuses: bool,
    offers: Arc<AtomicUsize>,
}

impl Queue for Revoking {
    fn capabilities(&self) -> Capabilities {
        let wants_single_packets = self.is_revoked;
        Capabilities { wants_single_packets, ..Capabilities::plain(Medium::Ip, 1_500) }
    }

    fn set_mode(&mut self, _: TransmitMode) -> Result<(), DeviceError> {
        if self.refuses { Err(failure()) } else { Ok(()) }
    }

    fn room(&self) -> Room {
        Room::UNBOUNDED
    }

    fn transmit(&mut self, _: &Multidata) -> Transmitted {
        self.is_revoked = true;
        self.offers.fetch_add(1, Ordering::SeqCst);
        Transmitted { taken: 0, stopped: Some(Stop::Revoked) }
    }

    fn receive(&mut self, _: &BlockPool, _: &mut ReceiveBatch, _: usize) -> Received {
        Received::default()
    }

    fn waiter(&self) -> Arc<dyn Waiter> {
        Arc::new(Silent::default())
    }

    fn counters(&self) -> DeviceCounters {
        DeviceCounters::default()
    }
}

#[test]
fn a_device_that_revokes_again_and_again_keeps_no_thread_busy() {
    for refuses in [false, true] {
        let (squeue, ..) = squeue();
        let offers = Arc::<AtomicUsize>::default();
        let queue = Revoking { is_revoked: false, refuses, offers: Arc::clone(&offers) };
        let place = Place { queue: Box::new(queue), receives: true };
        let id = squeue.look(|core| core.devices.ports()[0].id);
        let replaced = squeue.replace(id, place, None, &mut None);
        drop(replaced.ok().expect("the interface is there").empty(&mut None));
        connect(&squeue, [10, 1, 0, 9]);
        let (has_failed, unfinished) =
            squeue.look(|core| (core.devices.all_failed(), core.counters.squeue_runs_unfinished));
        // One that does not do as it says is not offered anything more.
        assert_eq!(has_failed, refuses);
        let offers = offers.load(Ordering::SeqCst);
        assert!(!refuses || offers == 1, "{offers} offers");
        assert_eq!(unfinished, 0, "{offers} offers, {refuses}");
    }
}
