//! Stacks that an event loop of the test's own runs, and what their own threads do meanwhile.
#![cfg(target_os = "linux")]

mod pair;

use batch::{BlockPool, ReceiveBatch};
use device::{EventSource, PacketSender, Queue, Received, Waiter, WireQueue};
use multidata::{Driver, InterfaceConfig, Stack, TcpListener, TcpStream, Turn, UdpSocket};
use pair::{LEFT, PATIENCE, RIGHT, connected, is_soon, pair};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

const PACKET: [u8; 40] = [0x45; 40];

/// What happens to a wait, and what the device says.
struct Course {
    sender: PacketSender,
    /// A packet is to be sent when the next one begins.
    is_due: bool,
    /// One has begun and not ended.
    is_under_way: bool,
    /// There is always more.
    is_busy: bool,
}

type Plan = Arc<Mutex<Course>>;

/// A device that a packet comes to just before a wait for it begins.
struct Late(WireQueue, Plan);

struct LateWaiter(Arc<dyn Waiter>, Plan);

struct LateSource(Arc<dyn EventSource>, Plan);

impl Queue for Late {
    device::forward_queue!(|self| self.0, but waiter, receive);

    fn receive(&mut self, pool: &BlockPool, batch: &mut ReceiveBatch, max: usize) -> Received {
        let received = self.0.receive(pool, batch, max);
        Received { more: received.more || self.1.lock().expect("no panic").is_busy, ..received }
    }

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
        let course = &mut *self.1.lock().expect("no panic");
        if std::mem::take(&mut course.is_due) {
            course.sender.send(&PACKET).expect("there is room");
        }
        assert!(!std::mem::replace(&mut course.is_under_way, true), "one at a time");
        self.0.begin(timeout)
    }

    fn end(&self) {
        self.1.lock().expect("no panic").is_under_way = false;
        self.0.end();
    }
}

/// Who brought it found nobody who waits.
#[test]
fn a_frame_that_comes_between_a_turn_and_its_wait_is_fetched() {
    let (queue, sender, _receiver) = device::packet_pipe(1_500);
    let course = Course { sender, is_due: false, is_under_way: false, is_busy: false };
    let plan: Plan = Arc::new(Mutex::new(course));
    let plan_now = || plan.lock().expect("no panic");
    let interface = InterfaceConfig::new("10.1.0.1/24".parse().expect("an address"));
    let stack = Stack::builder().interface(Late(queue, Arc::clone(&plan)), interface);
    let stack = stack.build().expect("a stack");
    let mut driver = stack.drivers().expect("it is watched").remove(0);
    let mut settle = || assert!((0..100).any(|_| driver.turn() == Turn::Wait), "nothing is there");
    settle();
    // The stack's own thread sees that it is not needed.
    plan_now().sender.send(&PACKET).expect("there is room");
    std::thread::sleep(Duration::from_millis(50));
    settle();
    plan_now().is_due = true;
    assert_eq!(driver.turn(), Turn::Again);
    assert_eq!(driver.turn(), Turn::Wait, "it was fetched");
    assert!(plan_now().is_under_way);
    plan_now().is_busy = true;
    assert_eq!(driver.turn(), Turn::Again);
    assert!(!plan_now().is_under_way, "who is to come back need not be called for it");
    plan_now().is_busy = false;
    driver.turn();
    drop(driver);
    assert!(!plan_now().is_under_way, "it waits no more");
}

/// Two connections of the left stack, and their other ends.
type Two = [(TcpStream, TcpStream); 2];

/// How many batches and packets the device of a stack took meanwhile.
fn taken_by(stack: &Stack, work: impl FnOnce()) -> [u64; 2] {
    let taken = || {
        let device = stack.counters().device;
        [device.transmit_batches, device.transmit_packets]
    };
    let before = taken();
    work();
    let after = taken();
    [after[0] - before[0], after[1] - before[1]]
}

/// A byte comes for each, in one turn, whose tasks answer with one. Says what the left device took before the next turn.
fn answer_both(left: &Stack, driver: &mut Driver, two: &mut Two) -> [u64; 2] {
    let context = &mut Context::from_waker(Waker::noop());
    let mut byte = [0];
    settle(driver);
    for (near, _) in two.iter_mut() {
        assert!(near.poll_read(context, &mut byte).is_pending());
    }
    for (_, far) in two.iter_mut() {
        far.write_all(b"x").expect("open");
    }
    driver.turn();
    taken_by(left, || {
        for (near, _) in two.iter_mut() {
            assert!(matches!(near.poll_read(context, &mut byte), Poll::Ready(Ok(1))));
            assert!(matches!(near.poll_write(context, b"y"), Poll::Ready(Ok(1))));
            assert!(near.poll_read(context, &mut byte).is_pending());
        }
    })
}

fn hear_both(two: &mut Two) {
    for (_, far) in two {
        far.set_read_timeout(Some(PATIENCE)).expect("open");
        far.read_exact(&mut [0]).expect("the answer");
    }
}

#[test]
fn what_woken_tasks_send_leaves_together_behind_them() {
    let (left, right) = pair();
    let mut two = [(); 2].map(|()| connected(&left, &right));
    let mut driver = left.drivers().expect("it is watched").remove(0);
    // Where this thread was held up the stack's own took its part.
    let is_together = (0..20).any(|_| {
        let taken = answer_both(&left, &mut driver, &mut two);
        let behind = taken_by(&left, || _ = driver.turn());
        hear_both(&mut two);
        taken == [0, 0] && behind == [1, 2]
    });
    assert!(is_together);
}

/// A task lets others run before it has read everything, as tokio has it: what comes meanwhile wakes nobody.
#[test]
fn what_a_task_sends_that_has_more_to_read_leaves_together_as_well() {
    let (left, right) = pair();
    let address = SocketAddr::new(LEFT.parse().expect("an address"), 53);
    let near = UdpSocket::bind(&left, address).expect("a free port");
    let far = UdpSocket::bind(&right, "0.0.0.0:0").expect("a free port");
    let mut driver = left.drivers().expect("it is watched").remove(0);
    let context = &mut Context::from_waker(Waker::noop());
    // Says how many it could echo.
    let mut echo = |count_max: usize| {
        for count in 0..count_max {
            let received = near.poll_recv_from(context, &mut [0]);
            let Poll::Ready(Ok((1, from))) = received else { return count };
            let sent = near.poll_send_to(context, b"y", Some(from));
            assert!(matches!(sent, Poll::Ready(Ok(1))));
        }
        count_max
    };
    let ask = || (0..4).for_each(|_| _ = far.send_to(b"x", address).expect("a route"));
    // At first neither knows where the other is.
    ask();
    while echo(1) == 0 {
        driver.turn();
        std::thread::yield_now();
    }
    // Where this thread was held up the stack's own took its part.
    let is_together = (0..20).any(|_| {
        settle(&mut driver);
        while echo(1) > 0 {}
        let mut counts = [0; 2];
        ask();
        driver.turn();
        let few = taken_by(&left, || counts[0] = echo(2));
        ask();
        driver.turn();
        let rest = taken_by(&left, || counts[1] = echo(7));
        let behind = taken_by(&left, || _ = driver.turn());
        (counts, few, rest, behind) == ([2, 6], [0, 0], [0, 0], [1, 6])
    });
    assert!(is_together);
}

#[test]
fn what_woken_tasks_close_leaves_with_what_they_send() {
    let (left, right) = pair();
    let is_together = (0..20).any(|_| {
        let mut two = [(); 2].map(|()| connected(&left, &right));
        let mut driver = left.drivers().expect("it is watched").remove(0);
        let answered = answer_both(&left, &mut driver, &mut two);
        let [(first, far), (second, other)] = two;
        let closed = taken_by(&left, || drop((first, second)));
        let behind = taken_by(&left, || _ = driver.turn());
        for mut far in [far, other] {
            far.set_read_timeout(Some(PATIENCE)).expect("open");
            let mut answer = Vec::new();
            assert_eq!(far.read_to_end(&mut answer).expect("the answer and the end"), 1);
        }
        answered == [0, 0] && closed == [0, 0] && behind == [1, 2]
    });
    assert!(is_together);
}

/// Much is not left lying while others have their turn.
#[test]
fn what_woken_tasks_send_leaves_at_once_where_it_is_much() {
    let (left, right) = pair();
    let mut two = [(); 2].map(|()| connected(&left, &right));
    let mut driver = left.drivers().expect("it is watched").remove(0);
    answer_both(&left, &mut driver, &mut two);
    let context = &mut Context::from_waker(Waker::noop());
    let much = vec![0; 32 << 10];
    assert!(matches!(two[0].0.poll_write(context, &much), Poll::Ready(Ok(1..))));
    hear_both(&mut two);
}

#[test]
fn what_was_left_to_a_loop_leaves_without_it() {
    let (left, right) = pair();
    let mut two = [(); 2].map(|()| connected(&left, &right));
    for is_dropped in [false, true] {
        let mut driver = None;
        let is_soon = is_soon(Duration::from_millis(300), || {
            let driven = || left.drivers().expect("it is watched").remove(0);
            answer_both(&left, driver.get_or_insert_with(driven), &mut two);
            let began = Instant::now();
            if is_dropped {
                drop(driver.take());
            }
            hear_both(&mut two);
            began.elapsed()
        });
        assert!(is_soon, "dropped: {is_dropped}");
    }
}

/// What it leaves to its next turn is to leave without it, and soon.
#[test]
fn a_loop_that_stays_away_behind_its_tasks_is_not_waited_for() {
    let (left, right) = pair();
    let mut two = [(); 2].map(|()| connected(&left, &right));
    let mut answers = Vec::new();
    // The stack's own thread would have come to rest for up to a second each time.
    for _ in 0..2 {
        let mut driver = left.drivers().expect("it is watched").remove(0);
        answer_both(&left, &mut driver, &mut two);
        hear_both(&mut two);
        std::thread::sleep(Duration::from_millis(700));
        let began = Instant::now();
        let context = &mut Context::from_waker(Waker::noop());
        for (near, _) in two.iter_mut() {
            assert!(matches!(near.poll_write(context, b"z"), Poll::Ready(Ok(1))));
        }
        hear_both(&mut two);
        answers.push(began.elapsed());
    }
    assert!(answers.iter().sum::<Duration>() < Duration::from_millis(300), "{answers:?}");
}

/// The loop leads all the same: it costs a turn, and nobody a wake-up.
#[test]
fn a_loop_waits_for_no_thread_that_alone_is_busy() {
    let (left, right) = pair();
    let mut driver = right.drivers().expect("it is watched").remove(0);
    let address = |port| SocketAddr::new(RIGHT.parse().expect("an address"), port);
    let client = UdpSocket::bind(&left, "0.0.0.0:0").expect("a free port");
    client.set_read_timeout(Some(PATIENCE)).expect("open");
    let server = UdpSocket::bind(&right, address(53)).expect("a free port");
    let asked = |driver: &mut Driver, question| {
        client.send_to(&[question], address(53)).expect("a route");
        driver.turn();
        client.recv(&mut [0]).expect("answered");
    };
    let leads = (0..5).any(|_| {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut byte = [0];
                while byte == [0] {
                    let (_, from) = server.recv_from(&mut byte).expect("asked");
                    server.send_to(&byte, from).expect("a route");
                }
            });
            (0..12).for_each(|_| asked(&mut driver, 0));
            asked(&mut driver, 1);
            // It is away.
            let before = right.counters().runtime.leader_waits;
            driver.turn();
            right.counters().runtime.leader_waits > before
        })
    });
    assert!(leads);
}

/// So long nothing happens before a stack's threads are taken to rest: 5 ms doubled until it is a second, with a margin.
const UNTIL_REST: Duration = Duration::from_millis(2_500);

fn settle(driver: &mut Driver) {
    let mut waits = || {
        // A thread of the stack's that was called is to come first.
        std::thread::yield_now();
        driver.turn() == Turn::Wait
    };
    assert!((0..10_000).any(|_| waits()), "there is always something");
}

/// How often the workers of this process have gone to sleep so far.
fn sleeps_of_workers() -> u64 {
    let threads = std::fs::read_dir("/proc/self/task").expect("threads").flatten();
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    let workers =
        threads.map(|it| it.path()).filter(|it| read(it.join("comm")).starts_with("squeue"));
    let sleeps = workers.filter_map(|it| {
        let status = read(it.join("status"));
        let line = status.lines().find(|it| it.starts_with("voluntary_ctxt_switches"))?;
        line.split_whitespace().last()?.parse::<u64>().ok()
    });
    sleeps.sum()
}

/// Who led for longer than to the next deadline would be called for it each time it begins to wait.
#[test]
fn a_loop_waits_until_a_timer_goes_off() {
    let (queue, _sender, _receiver) = device::packet_pipe(1_500);
    let interface = InterfaceConfig::new("10.1.0.1/24".parse().expect("an address"));
    let stack = Stack::builder().interface(queue, interface).build().expect("a stack");
    let mut driver = stack.drivers().expect("it is watched").remove(0);
    let peer = "10.1.0.2:80".parse().expect("an address");
    let _connecting = TcpStream::start_connect(&stack, peer).expect("a route");
    for _ in 0..10 {
        settle(&mut driver);
    }
}

// One test, for it counts what all threads of the process do.
#[test]
fn a_stack_at_rest_wakes_nobody_and_is_soon_awake() {
    let (left, right) = pair();
    // On the left an event loop leads, on the right a thread in a call.
    let mut driver = left.drivers().expect("it is watched").remove(0);
    let left_end = SocketAddr::new(LEFT.parse().expect("an address"), 80);
    let _listener = TcpListener::bind(&left, left_end).expect("a free port");
    let (other, another) = pair();
    let (held, mut reader) = connected(&other, &another);
    let reading = std::thread::spawn(move || {
        reader.set_read_timeout(Some(PATIENCE)).expect("open");
        let mut byte = [0];
        reader.read(&mut byte)
    });
    settle(&mut driver);
    std::thread::sleep(UNTIL_REST);
    let before = sleeps_of_workers();
    std::thread::sleep(Duration::from_secs(2));
    let sleeps = sleeps_of_workers() - before;
    assert!(sleeps <= 20, "{sleeps} in two seconds of four workers, of which two are aside");
    // The loop has worked again and is busy with something else: the worker stands in for it.
    let mut answers = Vec::new();
    let answered = is_soon(Duration::from_millis(300), || {
        settle(&mut driver);
        let began = Instant::now();
        drop(TcpStream::connect(&right, left_end).expect("the stack's own thread answers"));
        let took = began.elapsed();
        answers.push(took);
        settle(&mut driver);
        std::thread::sleep(UNTIL_REST);
        took
    });
    assert!(answered, "{answers:?}");
    drop(held);
    assert_eq!(reading.join().expect("no panic").expect("its end"), 0);
}
