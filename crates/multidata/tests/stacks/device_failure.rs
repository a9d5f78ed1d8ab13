//! Devices that fail or take capabilities back while the stack runs.

use crate::pair;
use batch::{BlockPool, Multidata, ReceiveBatch};
use device::{
    Capabilities, DeviceCounters, DeviceError, Medium, Queue, Received, Room, Segmentation, Stop,
    TransmitMode, Transmitted, Waiter,
};
use multidata::{InterfaceConfig, LINGER_ON_DROP, Stack, TcpListener, TcpStream, UdpSocket};
use std::io::{ErrorKind, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// What the test and the stack's queue share.
#[derive(Default)]
struct State {
    failed: bool,
    revokes: bool,
    has_segmentation: bool,
    woken: bool,
    sent_packets: usize,
    modes: Vec<TransmitMode>,
}

/// A device that sends into the void and never receives.
#[derive(Clone, Default)]
struct Void(Arc<(Mutex<State>, Condvar)>);

impl Void {
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let outcome = change(&mut self.0.0.lock().expect("no panic"));
        self.0.1.notify_all();
        outcome
    }

    fn error() -> DeviceError {
        DeviceError::new(std::io::ErrorKind::NetworkDown, "the cable was cut: splice it")
    }
}

impl Waiter for Void {
    fn wait(&self, timeout: Option<Duration>) {
        let state = self.0.0.lock().expect("no panic");
        let timeout = timeout.unwrap_or(Duration::from_secs(3_600));
        let is_quiet = |state: &mut State| !state.woken && !state.failed;
        let (mut state, _) =
            self.0.1.wait_timeout_while(state, timeout, is_quiet).expect("no panic");
        state.woken = false;
    }

    fn wake(&self) {
        self.change(|state| state.woken = true);
    }
}

impl Queue for Void {
    fn capabilities(&self) -> Capabilities {
        let segmentation = self.change(|state| {
            state.has_segmentation.then_some(Segmentation {
                tcp_ipv4: true,
                tcp_ipv6: true,
                len_bytes_max: 65_535,
            })
        });
        Capabilities { segmentation, ..Capabilities::plain(Medium::Ip, 1_500) }
    }

    fn set_mode(&mut self, mode: TransmitMode) -> Result<(), DeviceError> {
        self.change(|state| state.modes.push(mode));
        Ok(())
    }

    fn room(&self) -> Room {
        Room::UNBOUNDED
    }

    fn transmit(&mut self, batch: &Multidata) -> Transmitted {
        self.change(|state| {
            if state.revokes {
                (state.revokes, state.has_segmentation) = (false, false);
                return Transmitted { taken: 0, stopped: Some(Stop::Revoked) };
            }
            state.sent_packets += batch.len();
            Transmitted { taken: batch.len(), stopped: None }
        })
    }

    fn receive(&mut self, _: &BlockPool, _: &mut ReceiveBatch, _: usize) -> Received {
        let failed = self.change(|state| state.failed.then(Self::error));
        Received { failed, ..Received::default() }
    }

    fn waiter(&self) -> Arc<dyn Waiter> {
        Arc::new(self.clone())
    }

    fn counters(&self) -> DeviceCounters {
        DeviceCounters::default()
    }
}

fn stack_on(device: &Void, mode: TransmitMode) -> Stack {
    let interface = InterfaceConfig::new("10.1.0.1/24".parse().expect("an address")).mode(mode);
    Stack::builder().interface(device.clone(), interface).build().expect("a stack")
}

#[test]
fn a_failed_device_ends_every_call_that_waits_with_its_own_sentence() {
    let device = Void::default();
    let stack = stack_on(&device, TransmitMode::Multidata);
    let listener = TcpListener::bind(&stack, "10.1.0.1:80").expect("a free port");
    let socket = UdpSocket::bind(&stack, "10.1.0.1:53").expect("a free port");
    std::thread::scope(|scope| {
        let calls = [
            scope.spawn(|| listener.accept().expect_err("the device fails")),
            scope.spawn(|| socket.recv(&mut [0]).expect_err("the device fails")),
            scope.spawn(|| TcpStream::connect(&stack, "10.1.0.9:1").expect_err("the device fails")),
        ];
        std::thread::sleep(Duration::from_millis(50));
        device.change(|state| state.failed = true);
        for call in calls {
            let error = call.join().expect("no panic");
            assert_eq!(error.kind(), ErrorKind::NetworkDown);
            assert_eq!(error.to_string(), "the cable was cut: splice it");
        }
    });
    let later = socket.send_to(b"x", "10.1.0.9:1").expect_err("the device has failed");
    assert_eq!(later.kind(), ErrorKind::NetworkDown);
    assert_eq!(stack.interfaces()[0].failed, Some(Void::error()));
}

/// Waits until `holds`.
fn eventually(holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(10), "waited in vain");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What the stack told of its interfaces.
fn told(stack: &Stack) -> Vec<String> {
    std::iter::from_fn(|| stack.poll_interface_event()).map(|event| event.to_string()).collect()
}

#[test]
fn a_failure_that_is_found_in_receiving_is_counted_and_told() {
    let device = Void::default();
    let stack = stack_on(&device, TransmitMode::Multidata);
    device.change(|state| state.failed = true);
    eventually(|| stack.interfaces()[0].failed.is_some());
    assert_eq!(stack.counters().stack.shard.device_failures, 1);
    let told = told(&stack);
    let failed = |line: &&String| line.ends_with("its device failed: the cable was cut: splice it");
    assert_eq!(told.iter().filter(failed).count(), 1, "{told:?}");
}

#[test]
fn connections_by_a_failed_device_are_told_and_others_go_on() {
    // The failing one comes first and second: a leader sleeps on the first.
    for first in [true, false] {
        let (near, far) = device::wire(pair::ethernet());
        let device = Void::default();
        let void = InterfaceConfig::new("10.9.0.1/24".parse().expect("an address"));
        let hub = match first {
            true => Stack::builder()
                .interface(device.clone(), void)
                .interface(near, pair::interface(pair::LEFT)),
            false => Stack::builder()
                .interface(near, pair::interface(pair::LEFT))
                .interface(device.clone(), void),
        };
        let hub = hub.build().expect("a stack");
        let peer = Stack::builder().interface(far, pair::interface(pair::RIGHT));
        let peer = peer.build().expect("a stack");
        let (here, there) = pair::connected(&hub, &peer);
        let socket = UdpSocket::bind(&hub, "10.9.0.1:53").expect("a free port");
        std::thread::scope(|scope| {
            let calls = [0, 1].map(|_| {
                scope.spawn(|| TcpStream::connect(&hub, "10.9.0.9:1").expect_err("it fails"))
            });
            std::thread::sleep(Duration::from_millis(50));
            device.change(|state| state.failed = true);
            for call in calls {
                let error = call.join().expect("no panic");
                assert_eq!(error.kind(), ErrorKind::NetworkDown);
                assert_eq!(error.to_string(), "the cable was cut: splice it");
            }
        });
        let error = socket.send_to(b"x", "10.9.0.9:1").expect_err("the device has failed");
        assert_eq!(error.kind(), ErrorKind::NetworkDown);
        pair::exchange(&here, &there, 1, 1 << 20);
    }
}

// A leader and the worker sleep on the first device, whose waiter has them look again and again where it has
// failed, as a file does that is at its end, or where a frame lies there that nobody receives any more.
#[test]
fn nobody_looks_again_and_again_at_a_first_device_that_is_out_of_use() {
    const SPAN: Duration = Duration::from_millis(300);
    for removed in [true, false] {
        let device = Void::default();
        let (first, first_peer) = device::wire(pair::ethernet());
        let (near, far) = device::wire(pair::ethernet());
        let apart = || InterfaceConfig::new("10.9.0.1/24".parse().expect("an address"));
        let hub = match removed {
            true => Stack::builder().interface(first, apart()),
            false => Stack::builder().interface(device.clone(), apart()),
        };
        let hub = hub.interface(near, pair::interface(pair::LEFT)).build().expect("a stack");
        let peer = Stack::builder().interface(far, pair::interface(pair::RIGHT));
        let peer = peer.build().expect("a stack");
        let apart_peer = InterfaceConfig::new("10.9.0.2/24".parse().expect("an address"));
        let apart_peer = Stack::builder().interface(first_peer, apart_peer).build();
        let apart_peer = apart_peer.expect("a stack");
        match removed {
            true => hub.remove_interface(0).expect("an interface"),
            false => device.change(|state| state.failed = true),
        }
        // The question who has the address stays in the wire, or has none any more.
        let asking = UdpSocket::bind(&apart_peer, "10.9.0.2:53").expect("a free port");
        let asked = asking.send_to(b"x", "10.9.0.1:53").map_err(|error| error.kind());
        assert!(asked == Ok(1) || (removed && asked == Err(ErrorKind::NetworkDown)), "{asked:?}");
        eventually(|| hub.interfaces()[0].failed.is_some());

        let turns = || {
            let runtime = hub.counters().runtime;
            runtime.worker_turns + runtime.leader_waits
        };
        let before = turns();
        std::thread::sleep(SPAN);
        assert!(turns() - before < 100, "the worker took {} turns", turns() - before);
        let socket = UdpSocket::bind(&hub, "10.1.0.1:53").expect("a free port");
        socket.set_read_timeout(Some(SPAN)).expect("a timeout");
        let before = turns();
        let error = socket.recv(&mut [0]).expect_err("nothing comes");
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        assert!(turns() - before < 100, "the leader took {} turns", turns() - before);

        // Who sleeps is called all the same, by the other interface and by the first where it works again.
        socket.set_read_timeout(Some(pair::PATIENCE)).expect("a timeout");
        let sending = UdpSocket::bind(&peer, "10.1.0.2:53").expect("a free port");
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| socket.recv(&mut [0]));
            std::thread::sleep(Duration::from_millis(20));
            sending.send_to(b"x", "10.1.0.1:53").expect("a route");
            assert_eq!(reader.join().expect("no panic").expect("it comes"), 1);
            if !removed {
                let reader = scope.spawn(|| socket.recv(&mut [0]));
                std::thread::sleep(Duration::from_millis(20));
                let works = Void::default();
                hub.replace_device(0, works.clone()).expect("an interface");
                let there = UdpSocket::bind(&hub, "10.9.0.1:54").expect("a free port");
                there.send_to(b"x", "10.9.0.9:1").expect("a route");
                assert_eq!(works.change(|state| state.sent_packets), 1);
                sending.send_to(b"x", "10.1.0.1:53").expect("a route");
                assert_eq!(reader.join().expect("no panic").expect("it comes"), 1);
            }
        });
        let started = Instant::now();
        drop((socket, hub));
        assert!(started.elapsed() < Duration::from_secs(10), "its threads ended");
    }
}

/// The worker has nothing to look at until there is a device again, and is there then.
#[test]
fn a_stack_that_was_ended_looks_at_nothing_until_it_has_a_device_again() {
    for squeues in [1, 2] {
        let (left, right_device) = device::wire(pair::ethernet());
        let builder = Stack::builder().squeues(squeues);
        let stack = builder.interface(left, pair::interface(pair::LEFT)).build().expect("a stack");
        let peer = Stack::builder().interface(right_device, pair::interface(pair::RIGHT)).build();
        drop(peer.expect("a stack"));
        stack.abort();
        // Those who were there when it ended.
        std::thread::sleep(Duration::from_millis(100));
        let enters = || stack.counters().runtime.squeue_enters;
        let before = enters();
        std::thread::sleep(Duration::from_millis(300));
        let looks = enters() - before;
        assert!(looks <= 4 * squeues as u64, "{looks} looks at {squeues} squeues");

        let (left, right_device) = device::wire(pair::ethernet());
        stack.replace_device(0, left).expect("an interface");
        let peer = Stack::builder().interface(right_device, pair::interface(pair::RIGHT)).build();
        let peer = peer.expect("a stack");
        let listener = TcpListener::bind(&stack, (pair::LEFT, 80)).expect("a free port");
        std::thread::sleep(Duration::from_millis(20));
        // Nobody of the application is in the stack, so it is the worker who answers.
        let address = (pair::LEFT.parse::<std::net::IpAddr>().expect("an address"), 80).into();
        TcpStream::connect_timeout(&peer, &address, pair::PATIENCE).expect("it answers");
        drop(listener);
    }
}

/// Who loops over it would loop for ever, a million times a second.
#[test]
fn the_connections_of_a_listener_end_with_its_stack() {
    let (stack, _peer) = pair::pair();
    let listener = TcpListener::bind(&stack, (pair::LEFT, 80)).expect("a free port");
    stack.remove_interface(0).expect("an interface");
    for ends in 0..2 {
        let kinds = listener.incoming().map(|it| it.expect_err("nobody comes").kind());
        assert_eq!(kinds.collect::<Vec<_>>(), [ErrorKind::NetworkDown], "{ends}");
        stack.abort();
    }
    let mut incoming = listener.incoming();
    let (device, _end) = device::wire(pair::ethernet());
    stack.add_interface(device, pair::interface(pair::LEFT)).expect("a device again");
    listener.set_nonblocking(true).expect("open");
    let error = incoming.next().expect("it goes on").expect_err("nobody came yet");
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
}

// Only one of the squeues receives by the queue, and sleeps on the device.
#[test]
fn a_reader_in_a_squeue_that_shares_its_queue_hears_of_the_failure() {
    // The shared device comes first, and second behind one that every squeue has a queue of.
    for first in [true, false] {
        let limit = Duration::from_millis(400);
        assert!(pair::is_soon(limit, || time_to_fail(first)), "before the SYNs are due again");
    }
}

/// How long after the failure calls that wait for an answer take to hear of it.
fn time_to_fail(first: bool) -> Duration {
    let (device, others) = (Void::default(), [Void::default(), Void::default()]);
    let others = others.into_iter().map(|device| Box::new(device) as Box<dyn Queue>).collect();
    let config = |network| InterfaceConfig::new(format!("{network}.1/24").parse().expect("one"));
    let builder = Stack::builder().squeues(2);
    let builder = match first {
        true => builder.interface(device.clone(), config("10.1.0")),
        false => builder
            .multiqueue_interface(others, config("10.9.0"))
            .interface(device.clone(), config("10.1.0")),
    };
    let stack = builder.build().expect("a stack");
    std::thread::scope(|scope| {
        // Connections that nobody answers: of so many some are at home in each squeue.
        let calls: Vec<_> = (1..=16)
            .map(|port| {
                let to = (std::net::Ipv4Addr::new(10, 1, 0, 9), port);
                let stack = &stack;
                scope.spawn(move || TcpStream::connect(stack, to).expect_err("it fails"))
            })
            .collect();
        // Nobody sends by then, which would meet the failure, too.
        std::thread::sleep(Duration::from_millis(300));
        let sent = device.change(|state| {
            state.failed = true;
            state.sent_packets
        });
        let start = Instant::now();
        for call in calls {
            let error = call.join().expect("no panic");
            assert_eq!(error.to_string(), "the cable was cut: splice it");
            assert_eq!(error.kind(), ErrorKind::NetworkDown);
        }
        let took = start.elapsed();
        assert_eq!(device.change(|state| state.sent_packets), sent);
        took
    })
}

#[test]
fn what_another_squeue_meets_is_told_as_well() {
    let devices = [Void::default(), Void::default()];
    let queues = devices.iter().map(|device| Box::new(device.clone()) as Box<dyn Queue>).collect();
    let config = InterfaceConfig::new("10.1.0.1/24".parse().expect("an address"));
    let stack = Stack::builder().squeues(2).multiqueue_interface(queues, config);
    let stack = stack.build().expect("a stack");
    let negotiated = |line: &&String| line.contains("transmit multidata");
    let before = told(&stack);
    assert_eq!(before.iter().filter(negotiated).count(), 1, "both squeues say it: {before:?}");
    devices[1].change(|state| state.failed = true);
    eventually(|| stack.interfaces()[0].failed.is_some());
    let told = told(&stack);
    assert!(told.iter().any(|line| line.contains("the cable was cut")), "{told:?}");
}

#[test]
fn a_revoked_capability_changes_the_mode_and_loses_nothing() {
    let device = Void::default();
    device.change(|state| (state.revokes, state.has_segmentation) = (true, true));
    let stack = stack_on(&device, TransmitMode::Lso);
    assert_eq!(stack.interfaces()[0].mode, TransmitMode::Lso);
    let socket = UdpSocket::bind(&stack, "10.1.0.1:53").expect("a free port");
    socket.send_to(b"once", "10.1.0.9:1").expect("a route");
    assert_eq!(stack.interfaces()[0].mode, TransmitMode::Multidata);
    device.change(|state| {
        assert_eq!(state.sent_packets, 1, "built afresh and sent");
        assert_eq!(state.modes, [TransmitMode::Lso, TransmitMode::Multidata]);
    });
    let error = stack.set_transmit_mode(0, TransmitMode::Lso).expect_err("not any more");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    stack.set_transmit_mode(0, TransmitMode::Single).expect("always possible");
    assert_eq!(stack.interfaces()[0].mode, TransmitMode::Single);
}

#[test]
fn the_last_handle_waits_a_bounded_time_for_a_peer_that_is_gone() {
    let limit = multidata::LINGER_ON_DROP + Duration::from_millis(500);
    assert!(pair::is_soon(limit, || {
        let device = Void::default();
        let stack = stack_on(&device, TransmitMode::Multidata);
        let unanswered = "10.1.0.9:1".parse().expect("an address");
        TcpStream::connect_timeout(&stack, &unanswered, Duration::from_millis(20))
            .expect_err("nobody answers");
        let start = Instant::now();
        drop(stack);
        start.elapsed()
    }));
}

#[test]
fn a_stack_needs_an_interface() {
    let error = Stack::builder().build().expect_err("no interface");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}

/// A wire that can be cut.
struct Cut(device::WireQueue, Arc<AtomicBool>);

impl Queue for Cut {
    device::forward_queue!(|self| self.0, but receive);

    fn receive(&mut self, pool: &BlockPool, batch: &mut ReceiveBatch, max: usize) -> Received {
        match self.1.load(Ordering::SeqCst) {
            true => Received { failed: Some(Void::error()), ..Received::default() },
            false => self.0.receive(pool, batch, max),
        }
    }
}

#[test]
fn a_stack_that_ends_waits_for_no_device_that_failed() {
    for (squeues, datagram) in [(1, true), (1, false), (2, false)] {
        let is_cut = Arc::<AtomicBool>::default();
        let mut hub = Stack::builder().squeues(squeues);
        let mut peers = Vec::new();
        for index in 0..2 {
            let (near, far) = device::wire(pair::ethernet());
            let config = |last| {
                let address = format!("10.{}.0.{last}/24", index + 1);
                InterfaceConfig::new(address.parse().expect("an address"))
            };
            hub = match index {
                0 => hub.interface(near, config(1)),
                _ => hub.interface(Cut(near, Arc::clone(&is_cut)), config(1)),
            };
            peers.push(Stack::builder().interface(far, config(2)).build().expect("a stack"));
        }
        let hub = hub.build().expect("a stack");
        let connected = |index: usize| {
            let address = format!("10.{}.0.2:80", index + 1);
            let listener = TcpListener::bind(&peers[index], &address).expect("a free port");
            let client = TcpStream::connect(&hub, &address).expect("it listens");
            (client, listener.accept().expect("it is there").0)
        };
        let [(mut here, mut there), (mut stranded, _unread)] = [connected(0), connected(1)];
        stranded.set_nonblocking(true).expect("open");
        if !datagram {
            // More than the peer takes unread.
            while stranded.write(&[7; 100_000]).is_ok() {}
        }
        let socket = UdpSocket::bind(&hub, "10.2.0.1:53").expect("a free port");
        if datagram {
            // It waits for its neighbour.
            socket.send_to(b"x", "10.2.0.9:1").expect("a route");
        }
        is_cut.store(true, Ordering::SeqCst);
        eventually(|| hub.interfaces()[1].failed.is_some());
        drop(socket);
        // A connection that is open holds nobody up, and has nothing to tell of.
        let _open = datagram.then_some(stranded);
        here.write_all(&[7; 300_000]).expect("connected");
        drop(here);
        let reader = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            there.read_to_end(&mut Vec::new()).expect("it is delivered")
        });
        let started = Instant::now();
        let error = hub.shutdown(pair::PATIENCE).expect_err("something was left");
        assert!(started.elapsed() < pair::PATIENCE / 2, "it waited for {:?}", started.elapsed());
        assert_eq!(reader.join().expect("no panic"), 300_000, "by the other interface");
        assert_eq!(error.kind(), ErrorKind::NetworkDown);
        assert_eq!(error.to_string(), "the cable was cut: splice it");
    }
}

#[test]
fn a_stack_that_ends_waits_for_a_neighbour_that_may_answer_yet() {
    let (near, _far) = device::wire(pair::ethernet());
    let interface = InterfaceConfig::new("10.1.0.1/24".parse().expect("an address"));
    let stack = Stack::builder().interface(near, interface).build().expect("a stack");
    let socket = UdpSocket::bind(&stack, "10.1.0.1:53").expect("a free port");
    socket.send_to(b"x", "10.1.0.9:1").expect("a route");
    drop(socket);
    let error = stack.clone().shutdown(Duration::from_millis(200)).expect_err("it waits");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert_eq!(error.to_string(), "something was left to send");
    // It is given up after three seconds, and who drops the stack does not wait for that.
    let started = Instant::now();
    drop(stack);
    let lingered = LINGER_ON_DROP..LINGER_ON_DROP + Duration::from_millis(1_500);
    assert!(lingered.contains(&started.elapsed()), "{:?}", started.elapsed());
}

#[test]
fn a_stack_whose_devices_failed_behind_the_last_byte_has_delivered_everything() {
    for squeues in [1, 2] {
        let (left, right_stack) = pair::pair_with(|builder| builder.squeues(squeues));
        let (client, server) = pair::connected(&left, &right_stack);
        pair::exchange(&client, &server, 3, 100_000);
        drop((client, server));
        left.clone().shutdown(pair::PATIENCE).expect("it is delivered");
        drop(right_stack);
        eventually(|| left.interfaces()[0].failed.is_some());
        left.clone().shutdown(pair::PATIENCE).expect("nothing was left");
        left.remove_interface(0).expect("it is there");
        left.shutdown(pair::PATIENCE).expect("nothing was left");
    }
}
