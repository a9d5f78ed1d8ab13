//! Interfaces that come and go while a stack runs.

mod pair;

use batch::{BlockPool, ReceiveBatch};
use multidata::device::{
    self, DeviceError, Queue, Received, TransmitMode, Waiter, WireConfig, WireQueue, wire,
};
use multidata::ip::Cidr;
use multidata::{
    InterfaceConfig, InterfaceEvent, SocketKind, Stack, StackBuilder, StackEvent, TcpListener,
    TcpStream, UdpSocket,
};
use pair::PATIENCE;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// They count the threads of the process, so they run one by one.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn interface(address: &str) -> InterfaceConfig {
    InterfaceConfig::new(address.parse().expect("an address"))
}

/// A stack at 10.3.`network`.1, and what is at the other end of its wire, 10.3.`network`.2.
fn hub(squeues: usize) -> (Stack, Stack) {
    hub_of(Stack::builder().squeues(squeues))
}

fn hub_of(builder: StackBuilder) -> (Stack, Stack) {
    let (near, far) = wire(pair::ethernet());
    let hub = builder.interface(near, interface("10.3.0.1/24"));
    (hub.build().expect("a stack"), peer(far, 0))
}

/// Stacks of so many squeues, and one whose only squeue has soft rings.
fn shapes(squeues: [usize; 2]) -> [StackBuilder; 3] {
    let [one, other] = squeues.map(|count| Stack::builder().squeues(count));
    [one, other, Stack::builder().layout("R1S8F0".parse().expect("a layout"))]
}

fn peer(far: WireQueue, network: usize) -> Stack {
    let config = interface(&format!("10.3.{network}.2/24"));
    Stack::builder().interface(far, config).build().expect("a stack")
}

/// One more interface, and who is there.
fn join(hub: &Stack, network: usize) -> (usize, Stack) {
    let (near, far) = wire(pair::ethernet());
    let config = interface(&format!("10.3.{network}.1/24"));
    (hub.add_interface(near, config).expect("it can be added"), peer(far, network))
}

/// Bytes there and back on a new connection, opened by `client`.
fn talk(client: &Stack, server: &Stack, at: &str) -> (TcpStream, TcpStream) {
    let at: SocketAddr = at.parse().expect("an address");
    let listener = TcpListener::bind(server, at).expect("a free port");
    let mut ours = TcpStream::connect_timeout(client, &at, PATIENCE).expect("it listens");
    let (mut theirs, _) = listener.accept().expect("connected");
    for stream in [&ours, &theirs] {
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    }
    let mut bytes = [0; 5];
    ours.write_all(b"there").expect("connected");
    theirs.read_exact(&mut bytes).expect("sent");
    theirs.write_all(&bytes).expect("connected");
    ours.read_exact(&mut bytes).expect("sent");
    assert_eq!(&bytes, b"there");
    (ours, theirs)
}

/// The stack's threads that watch further interfaces.
fn watchers() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("of Linux");
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
    };
    // Linux keeps 15 bytes of "squeue-0-interface-1".
    tasks.filter_map(name).filter(|name| name.trim_end().ends_with("-interf")).count()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn an_interface_that_comes_later_is_as_good_as_one_from_the_start() {
    let _alone = alone();
    for builder in shapes([1, 3]) {
        let (hub, first) = hub_of(builder);
        let before = talk(&hub, &first, "10.3.0.2:80");
        // Who waits already hears by it, too.
        let listener = TcpListener::bind(&hub, "0.0.0.0:81").expect("a free port");
        let waiting = std::thread::spawn(move || listener.accept().expect("somebody comes").1);
        let (index, second) = join(&hub, 1);
        assert_eq!((index, hub.interfaces().len()), (1, 2));
        let client = TcpStream::connect(&second, "10.3.1.1:81").expect("it listens");
        let heard = waiting.join().expect("no panic");
        assert_eq!(heard, client.local_addr().expect("connected"));
        let (ours, theirs) = talk(&hub, &second, "10.3.1.2:80");
        let (index, far) = (hub.interfaces()[1].id, ours.peer_addr().expect("connected"));
        let listed = hub.sockets().find(|it| it.remote == Some(far)).expect("it is listed");
        assert_eq!(listed.interface, Some(index));
        std::thread::scope(|scope| {
            scope.spawn(|| pair::exchange(&before.0, &before.1, 1, 4 << 20));
            pair::exchange(&ours, &theirs, 2, 4 << 20);
        });
        // Each connection of very many finds its squeue.
        for port in 90..110 {
            talk(&second, &hub, &format!("10.3.1.1:{port}"));
        }
    }
}

#[test]
fn interfaces_come_and_go_and_leave_nothing_behind() {
    let _alone = alone();
    for squeues in [1, 2] {
        let (hub, first) = hub(squeues);
        let (_kept, other) = join(&hub, 9);
        let watched = watchers();
        let mut received = 0;
        for round in 0..40 {
            let (index, second) = join(&hub, 1);
            assert_eq!(index, 2, "the place of the one before is taken again");
            let (mut ours, mut theirs) = talk(&hub, &second, "10.3.1.2:80");
            assert_eq!(hub.interfaces().len(), 3);
            assert!(watchers() <= watched + 1 + squeues, "in round {round}");
            hub.remove_interface(index).expect("it is there");
            let gone = ours.read(&mut [0]).expect_err("its address is gone");
            assert_eq!(gone.kind(), ErrorKind::AddrNotAvailable, "{gone}");
            let ended = theirs.read(&mut [0]).expect_err("its device failed");
            assert_eq!(ended.kind(), ErrorKind::NetworkDown);
            let now = hub.counters();
            assert!(now.device.receive_frames > received, "what was counted is kept");
            assert!(now.stack.neighbours.neighbour_requests > round, "here, too");
            received = now.device.receive_frames;
        }
        until("the watchers end", || watchers() == watched);
        until("no socket is left", || hub.sockets().next().is_none());
        assert_eq!(hub.routes().len(), 2);
        talk(&hub, &first, "10.3.0.2:80");
        talk(&hub, &other, "10.3.9.2:80");
    }
}

#[test]
fn the_first_interface_can_go_and_another_take_its_place() {
    let _alone = alone();
    for builder in shapes([1, 2]) {
        let (hub, first) = hub_of(builder);
        talk(&hub, &first, "10.3.0.2:80");
        hub.remove_interface(0).expect("it is there");
        let error = TcpStream::connect(&hub, "10.3.0.2:80").map(drop).expect_err("no device");
        assert_eq!(error.kind(), ErrorKind::NetworkUnreachable);
        let (index, second) = join(&hub, 1);
        assert_eq!((index, hub.interfaces().len()), (0, 1));
        let (client, server) = talk(&hub, &second, "10.3.1.2:80");
        pair::exchange(&client, &server, 7, 1 << 20);
        talk(&second, &hub, "10.3.1.1:80");
        assert_eq!(hub.interfaces()[0].failed, None::<DeviceError>);
    }
}

#[test]
fn what_meant_an_interface_that_was_removed_never_means_the_next_one() {
    let _alone = alone();
    let (hub, _first) = hub(1);
    let (near, far) = wire(pair::ethernet());
    let linked = |address: &str| interface(address).address("fe80::1/64".parse().expect("one"));
    let index = hub.add_interface(near, linked("10.3.1.1/24")).expect("it can be added");
    let old = hub.interfaces()[index].id;
    assert_eq!((index, old.scope_id()), (1, 2));
    let groups = UdpSocket::bind(&hub, "0.0.0.0:5353").expect("a free port");
    groups.set_multicast_interface(Some(index)).expect("there");
    let scoped: SocketAddr = "[fe80::1%2]:7".parse().expect("an address");
    let bound = UdpSocket::bind(&hub, scoped).expect("it is there");
    drop(far);
    hub.remove_interface(index).expect("it is there");

    let (near, far) = wire(pair::ethernet());
    assert_eq!(hub.add_interface(near, linked("10.3.2.1/24")).expect("it can be added"), index);
    let next = hub.interfaces()[index].id;
    assert!(next != old && next.index() == Some(index) && next.scope_id() != 2);
    let error = groups.send_to(b"to whom?", "224.0.0.251:5353").expect_err("it was removed");
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    let error = bound.send_to(b"to whom?", "[fe80::9]:7").expect_err("it was removed");
    assert!(error.kind() != ErrorKind::WouldBlock, "{error}");
    assert!(UdpSocket::bind(&hub, scoped).is_err());
    // What the new one brings is for sockets of the new one.
    let there = Stack::builder().interface(far, interface("fe80::2/64")).build().expect("a stack");
    let sender = UdpSocket::bind(&there, "[fe80::2]:0").expect("a free port");
    let own = format!("[fe80::1%{}]:8", next.scope_id()).parse::<SocketAddr>().expect("one");
    let own = UdpSocket::bind(&hub, own).expect("a free port");
    sender.send_to(b"stranger", "[fe80::1]:7").expect("a route");
    sender.send_to(b"hello", "[fe80::1]:8").expect("a route");
    own.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    assert_eq!(own.recv_from(&mut [0; 9]).expect("it comes").0, 5);
    bound.set_nonblocking(true).expect("open");
    assert_eq!(
        bound.recv_from(&mut [0; 9]).expect_err("of a stranger").kind(),
        ErrorKind::WouldBlock
    );
}

#[test]
fn what_cannot_be_added_changes_nothing() {
    let _alone = alone();
    let (hub, first) = hub(2);
    let network: Cidr = "198.51.100.0/24".parse().expect("a network");
    let ip = |text: &str| text.parse().expect("an address");
    let queues = |count: usize| -> Vec<Box<dyn Queue>> {
        (0..count).map(|_| Box::new(wire(pair::ethernet()).0) as _).collect()
    };
    let good = || interface("10.3.1.1/24");
    for (queues, config, sentence) in [
        (queues(0), good(), "interface 1 has 0 queues"),
        (queues(3), good(), "for each of the 2 squeues at most"),
        (queues(1), good().gateway(ip("10.9.0.1")), "10.9.0.1 is on no network"),
        (queues(1), good().route(network, Some(ip("fd00::1"))), "of the other IP version"),
        (queues(1), good().mtu(100), "the MTU of interface 1 cannot be 100 bytes"),
        (queues(1), interface("10.3.1.255/24"), "no host can have the address"),
        (queues(1), good().gateway(ip("10.3.1.1")), "10.3.1.1 of interface 1 is an own address"),
        (queues(1), good().route(network, Some(ip("10.3.1.1"))), "10.3.1.1 of interface 1 is an"),
        (queues(1), good().route(network, Some(ip("10.3.0.1"))), "10.3.0.1 of interface 1 is an"),
        (queues(1), good().route(network, Some(ip("127.0.0.1"))), "127.0.0.1 of interface 1 is"),
    ] {
        let error = hub.add_multiqueue_interface(queues, config).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(sentence), "{error}");
    }
    assert_eq!((hub.interfaces().len(), hub.routes().len()), (1, 1));
    talk(&hub, &first, "10.3.0.2:80");
    let (index, second) = join(&hub, 1);
    for port in 80..90 {
        talk(&hub, &second, &format!("10.3.1.2:{port}"));
    }
    hub.remove_interface(index).expect("it is there");
    let queues = vec![wire(pair::ethernet()).0, wire(WireConfig { ..pair::ethernet() }).0];
    let queues = queues.into_iter().map(|queue| Box::new(queue) as _).collect();
    assert_eq!(hub.add_multiqueue_interface(queues, good()).expect("as many as squeues"), 1);
    let kinds: Vec<_> = hub.sockets().map(|it| it.kind).collect();
    assert!(!kinds.contains(&SocketKind::Udp), "{kinds:?}");
    let is_new = |event: &StackEvent| matches!(event, StackEvent::Interface(InterfaceEvent::Negotiated(id, _)) if id.index() == Some(1));
    let events = std::iter::from_fn(|| hub.wait_for_event(Some(std::time::Duration::ZERO)).ok());
    assert!(events.into_iter().any(|event| is_new(&event)));
}

/// A device that can be brought to no mode, and changes the stack when it is let go of.
struct Refusing(WireQueue, Stack);

impl Queue for Refusing {
    device::forward_queue!(|self| self.0, but set_mode);

    fn set_mode(&mut self, _mode: TransmitMode) -> Result<(), DeviceError> {
        Err(DeviceError::new(ErrorKind::PermissionDenied, "nobody may"))
    }
}

impl Drop for Refusing {
    fn drop(&mut self) {
        self.1.set_mtu(0, 1_400).expect("there");
    }
}

#[test]
fn what_a_device_refuses_leaves_nothing_in_any_squeue() {
    let _alone = alone();
    let (hub, _first) = hub(2);
    let refused = {
        let hub = hub.clone();
        std::thread::spawn(move || {
            let [one, other] = [(); 2].map(|()| wire(pair::ethernet()).0);
            let queues: Vec<Box<dyn Queue>> =
                vec![Box::new(Refusing(one, hub.clone())), Box::new(other)];
            hub.add_multiqueue_interface(queues, interface("10.3.1.1/24")).map_err(|it| it.kind())
        })
    };
    until("it is let go of under no lock", || refused.is_finished());
    assert_eq!(refused.join().expect("no panic"), Err(ErrorKind::PermissionDenied));
    assert_eq!(hub.interfaces()[0].ipv4_mtu_bytes, 1_400);
    let (index, second) = join(&hub, 1);
    talk(&hub, &second, "10.3.1.2:80");
    let id = hub.interfaces()[index].id;
    let next = || hub.wait_for_event(Some(std::time::Duration::ZERO)).ok();
    let events: Vec<_> = std::iter::from_fn(next).collect();
    let of_place = events.iter().filter_map(|event| match event {
        StackEvent::Interface(
            InterfaceEvent::Negotiated(id, _) | InterfaceEvent::Removed(id, _),
        ) if id.index() == Some(index) => Some(*id),
        _ => None,
    });
    assert!(of_place.eq([id]), "all squeues call it the same, and know of no other: {events:?}");
}

/// A device that changes the stack when it is brought to a mode.
struct Meddling(WireQueue, Option<Box<dyn FnOnce() + Send>>);

impl Queue for Meddling {
    device::forward_queue!(|self| self.0, but set_mode);

    fn set_mode(&mut self, mode: TransmitMode) -> Result<(), DeviceError> {
        if let Some(meddle) = self.1.take() {
            meddle();
        }
        self.0.set_mode(mode)
    }
}

#[test]
fn a_device_for_an_interface_that_was_removed_is_not_put_below_the_next_one() {
    let _alone = alone();
    for squeues in [1, 2] {
        let (hub, _first) = hub(squeues);
        let (index, _second) = join(&hub, 1);
        let (next, ours) = std::sync::mpsc::channel();
        let meddled = hub.clone();
        let meddle = move || {
            meddled.remove_interface(index).expect("it is there");
            next.send(join(&meddled, 2)).expect("it is waited for");
        };
        let device = Meddling(wire(pair::ethernet()).0, Some(Box::new(meddle)));
        let error = hub.replace_device(index, device).expect_err("it was removed");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        let (taken, third) = ours.recv().expect("it was added");
        assert_eq!(taken, index);
        talk(&hub, &third, "10.3.2.2:80");
    }
}

#[test]
fn who_waits_for_an_address_of_an_interface_gets_none_of_the_next_one() {
    let _alone = alone();
    let (hub, _first) = hub(1);
    let (index, _second) = join(&hub, 1);
    let (asked, is_asked) = std::sync::mpsc::channel();
    let waiting = std::thread::spawn({
        let hub = hub.clone();
        move || {
            let wanted: std::net::IpAddr = "10.3.2.1".parse().expect("an address");
            let is_wanted = |address| {
                asked.send(()).expect("somebody waits for it");
                address == wanted
            };
            hub.wait_for_address(index, is_wanted, PATIENCE).map_err(|error| error.kind())
        }
    });
    is_asked.recv().expect("it looks");
    hub.remove_interface(index).expect("it is there");
    assert_eq!(join(&hub, 2).0, index);
    let outcome = waiting.join().expect("no panic");
    assert!(matches!(outcome, Err(kind) if kind != ErrorKind::TimedOut), "{outcome:?}");
}

/// A device that panics, once, in a thread of the application's, when it is told to.
struct Panicking(WireQueue, Arc<AtomicBool>);

impl Queue for Panicking {
    device::forward_queue!(|self| self.0, but receive);

    fn receive(&mut self, pool: &BlockPool, batch: &mut ReceiveBatch, max: usize) -> Received {
        let is_worker = std::thread::current().name().is_some_and(|it| it.starts_with("squeue-"));
        assert!(is_worker || !self.1.swap(false, Ordering::SeqCst), "of the test's own making");
        self.0.receive(pool, batch, max)
    }
}

#[test]
fn a_device_that_panics_meanwhile_leaves_the_squeues_equal() {
    let _alone = alone();
    let armed = Arc::new(AtomicBool::new(false));
    // Without its other end it would have failed.
    let [(one, _end), (other, _other_end)] = [(); 2].map(|()| wire(pair::ethernet()));
    let queues: Vec<Box<dyn Queue>> =
        vec![Box::new(one), Box::new(Panicking(other, Arc::clone(&armed)))];
    let hub = Stack::builder().squeues(2).multiqueue_interface(queues, interface("10.3.0.1/24"));
    let hub = hub.build().expect("a stack");
    let panics = |act: &dyn Fn()| {
        armed.store(true, Ordering::SeqCst);
        catch_unwind(AssertUnwindSafe(act)).expect_err("it is handed on");
        assert!(!armed.load(Ordering::SeqCst));
    };
    let serves = |peer: &Stack, network: usize| {
        for port in 80..90 {
            talk(&hub, peer, &format!("10.3.{network}.2:{port}"));
            talk(peer, &hub, &format!("10.3.{network}.1:{port}"));
        }
    };
    let (near, far) = wire(pair::ethernet());
    let near = Mutex::new(Some(near));
    panics(&|| {
        let near = near.lock().expect("no panic").take().expect("once");
        let _ = hub.add_interface(near, interface("10.3.1.1/24"));
    });
    assert_eq!(hub.interfaces().len(), 2, "it is there all the same");
    serves(&peer(far, 1), 1);
    panics(&|| drop(hub.remove_interface(1)));
    assert!(hub.remove_interface(1).is_err(), "it is gone all the same");
    let (index, second) = join(&hub, 2);
    assert_eq!(index, 1);
    serves(&second, 2);
    let (near, far) = wire(pair::ethernet());
    let near = Mutex::new(Some(near));
    panics(&|| {
        let near = near.lock().expect("no panic").take().expect("once");
        let _ = hub.replace_device(index, near);
    });
    drop(second);
    serves(&peer(far, 2), 2);
}

type Queues = Vec<Box<dyn Queue>>;

/// A device that panics where it is asked what to wait for.
struct Sleepless(WireQueue);

impl Queue for Sleepless {
    device::forward_queue!(|self| self.0, but waiter);

    fn waiter(&self) -> Arc<dyn Waiter> {
        panic!("of the test's own making");
    }
}

#[test]
fn a_device_that_panics_when_it_is_added_or_replaces_another_leaves_all_as_it_was() {
    let _alone = alone();
    for squeues in [1, 2] {
        let wires = (0..squeues).map(|_| wire(pair::ethernet()));
        let (near, far): (Queues, Queues) =
            wires.map(|(near, far)| (Box::new(near) as _, Box::new(far) as _)).unzip();
        let build = |queues, address| {
            let builder = Stack::builder().squeues(squeues);
            builder.multiqueue_interface(queues, interface(address)).build().expect("a stack")
        };
        let (hub, first) = (build(near, "10.3.0.1/24"), build(far, "10.3.0.2/24"));
        let refuses = |act: &dyn Fn(Queues)| {
            let (near, mut far) = wire(pair::ethernet());
            // That of the squeue which comes last.
            let queues = (1..squeues).map(|_| Box::new(wire(pair::ethernet()).0) as _);
            let queues = queues.chain([Box::new(Sleepless(near)) as _]).collect();
            catch_unwind(AssertUnwindSafe(|| act(queues))).expect_err("it is handed on");
            let pool = BlockPool::new(Default::default());
            let received = far.receive(&pool, &mut ReceiveBatch::new(), 1);
            assert!(received.failed.is_some(), "it is let go of");
        };
        refuses(&|queues| drop(hub.add_multiqueue_interface(queues, interface("10.3.1.1/24"))));
        let (index, second) = join(&hub, 2);
        assert_eq!(index, 1);
        refuses(&|queues| drop(hub.replace_queues(0, queues)));
        talk(&hub, &first, "10.3.0.2:80");
        talk(&hub, &second, "10.3.2.2:80");
        assert_eq!(hub.interfaces()[index].id.index(), Some(index), "as events name it");
        hub.remove_interface(index).expect("all squeues have the same");
    }
}
