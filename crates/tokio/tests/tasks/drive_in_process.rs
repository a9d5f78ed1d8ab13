//! Stacks that tokio runs whose devices are no files: wires, packet pipes, and what lies around them.

use crate::pair::{self, connected, exchange, transact};
use multidata::device::{self, FaultConfig, FaultQueue, PacketReceiver, PacketSender, Queue};
use multidata::{InterfaceConfig, Stack};
use multidata_tokio::{TcpStream, drive};
use std::future::{Future, poll_fn};
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Longest time a test may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs it in one thread. A task that is not woken fails the test.
fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        tokio::time::timeout(PATIENCE, test).await.expect("nobody was woken");
    });
}

fn drive_both(left: &Stack, right: &Stack) {
    for stack in [left, right] {
        drive(stack).expect("its device calls a loop");
    }
}

fn build(queue: impl Queue + 'static, address: &str) -> Stack {
    let interface = InterfaceConfig::new(address.parse().expect("an address"));
    Stack::builder().interface(queue, interface).build().expect("a stack")
}

fn worker_turns(stack: &Stack) -> u64 {
    stack.counters().runtime.worker_turns
}

/// Transactions, for which the threads of these stacks have next to nothing to do.
async fn transact_alone(stacks: &[&Stack], mut client: TcpStream, server: TcpStream) {
    // The threads find out that they are not needed.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let turns = || stacks.iter().map(|stack| worker_turns(stack)).collect::<Vec<_>>();
    let before = turns();
    let _server = transact(&mut client, server, 200).await;
    for (before, after) in before.into_iter().zip(turns()) {
        let turns = after - before;
        assert!(turns < 50, "{turns} turns of the stack's own threads in 200 transactions");
    }
}

#[test]
fn a_wire_calls_the_loop_and_the_stacks_threads_stand_aside() {
    let (left, right) = pair::pair();
    run(async {
        drive_both(&left, &right);
        let (client, server) = connected(&left, &right).await;
        transact_alone(&[&left, &right], client, server).await;
    });
}

/// More than a wire holds, so that both wait for room as well.
#[test]
fn streams_over_a_wire_arrive_equal() {
    let (left, right) = pair::pair();
    run(async {
        drive_both(&left, &right);
        let (client, server) = connected(&left, &right).await;
        exchange(client, server, 20_000_000).await;
    });
}

/// Each loop in a thread of its own, so that frames come while the other one is about to wait.
#[test]
fn loops_of_two_threads_miss_no_frame() {
    let (left, right) = pair::pair();
    let listener = multidata::TcpListener::bind(&right, pair::right(7)).expect("a free port");
    let answering = std::thread::spawn(move || {
        run(async move {
            drive(&right).expect("its device calls a loop");
            let (stream, _) = listener.accept().expect("it came");
            let mut stream = TcpStream::try_from(stream).expect("it is open");
            let mut byte = [0; 1];
            while stream.read(&mut byte).await.expect("it is open") > 0 {
                stream.write_all(&byte).await.expect("it is open");
            }
        });
    });
    run(async {
        drive(&left).expect("its device calls a loop");
        let mut client = TcpStream::connect(&left, pair::right(7)).await.expect("it listens");
        let began = Instant::now();
        let before = worker_turns(&left);
        let mut byte = [0; 1];
        for _ in 0..20_000 {
            client.write_all(b"x").await.expect("it is open");
            client.read_exact(&mut byte).await.expect("it is echoed");
        }
        // What a loop missed, a timer or the stack's own thread would find after many milliseconds.
        let turns = worker_turns(&left) - before;
        let elapsed = began.elapsed();
        assert!(turns < 500, "{turns} turns of the stack's own thread in {elapsed:?}");
    });
    answering.join().expect("it answered");
}

/// They are called by who receives for them.
#[test]
fn squeues_that_share_a_device_have_a_driver_each() {
    let (left, right) = pair::pair_with_squeues(3);
    run(async {
        drive_both(&left, &right);
        let mut streams = Vec::new();
        for _ in 0..12 {
            streams.push(connected(&left, &right).await);
        }
        let exchanges = streams
            .into_iter()
            .map(|(client, server)| tokio::spawn(exchange(client, server, 300_000)));
        for exchanged in exchanges.collect::<Vec<_>>() {
            exchanged.await.expect("no end failed");
        }
        let (client, server) = connected(&left, &right).await;
        transact_alone(&[&right], client, server).await;
    });
}

#[test]
fn frames_that_a_fault_holds_back_come_in_time() {
    let ethernet = |last| device::Medium::Ethernet(device::HardwareAddress([2, 0, 0, 0, 0, last]));
    let end = |last| device::WireEnd::plain(ethernet(last));
    let (near, far) = device::wire(device::WireConfig::new(end(1), end(2)));
    let config = FaultConfig { reorder: 0.5, duplicate: 0.1, loss: 0.01, ..FaultConfig::default() };
    let left = build(FaultQueue::new(near, config), "10.1.0.1/24");
    let right = build(far, "10.1.0.2/24");
    run(async {
        drive_both(&left, &right);
        let (client, server) = connected(&left, &right).await;
        exchange(client, server, 500_000).await;
    });
}

#[test]
fn the_end_of_the_other_stack_is_noticed() {
    let (left, right) = pair::pair();
    run(async {
        drive_both(&left, &right);
        let (mut client, server) = connected(&left, &right).await;
        // A socket left would keep its stack.
        drop(transact(&mut client, server, 1).await);
        let reading = tokio::spawn(async move {
            let mut bytes = Vec::new();
            (client.read_to_end(&mut bytes).await, Instant::now())
        });
        let mut idle = connected(&left, &right).await.0;
        tokio::task::yield_now().await;
        let began = Instant::now();
        tokio::task::spawn_blocking(move || drop(right)).await.expect("it ends");
        let (_, ended) = reading.await.expect("it ends");
        let outcome = idle.read(&mut [0]).await;
        assert!(began.elapsed() < PATIENCE / 3, "{:?} {:?}", began.elapsed(), ended - began);
        assert!(!matches!(outcome, Ok(1..)), "{outcome:?}");
    });
}

/// Carries what one stack sends to the other.
async fn carry(mut from: PacketReceiver, mut to: PacketSender) {
    let mut packet = vec![0; 1_500];
    loop {
        let Ok(len) = poll_fn(|context| from.poll_recv(context, &mut packet)).await else { return };
        let packets = [&packet[..len]];
        let Ok(1) = poll_fn(|context| to.poll_send_many(context, &packets)).await else { return };
    }
}

/// As a tunnel client is: the stacks, what carries their packets and what uses them in one thread.
#[test]
fn a_packet_pipe_needs_no_other_thread() {
    let (near, near_sender, near_receiver) = device::packet_pipe(1_500);
    let (far, far_sender, far_receiver) = device::packet_pipe(1_500);
    let (left, right) = (build(near, "10.1.0.1/24"), build(far, "10.1.0.2/24"));
    run(async {
        drive_both(&left, &right);
        tokio::spawn(carry(near_receiver, far_sender));
        tokio::spawn(carry(far_receiver, near_sender));
        let (client, server) = connected(&left, &right).await;
        transact_alone(&[&left, &right], client, server).await;
        let (client, server) = connected(&left, &right).await;
        exchange(client, server, 3_000_000).await;
    });
}

/// Nobody fetches them, so that they are no reason for another turn.
#[test]
fn what_lies_in_a_device_that_failed_keeps_no_loop_busy() {
    for has_another in [false, true] {
        let (near, mut sender, receiver) = device::packet_pipe(1_500);
        let (other, _other_sender, _other_receiver) = device::packet_pipe(1_500);
        let interface = |address: &str| InterfaceConfig::new(address.parse().expect("an address"));
        let builder = Stack::builder().interface(near, interface("10.1.0.1/24"));
        let builder = match has_another {
            true => builder.interface(other, interface("10.2.0.1/24")),
            false => builder,
        };
        let stack = builder.build().expect("a stack");
        run(async move {
            drive(&stack).expect("its device calls a loop");
            let socket = multidata::UdpSocket::bind(&stack, "10.1.0.1:7").expect("a free port");
            let brought =
                (0..).take_while(|_| sender.try_send_many(&[&[0x45; 40]]).is_ok()).count();
            drop(receiver);
            // It is how the stack notices, before it has fetched all of them.
            let _ = socket.send_to(b"x", "10.1.0.2:7");
            let status = stack.interfaces().remove(0);
            assert!(status.failed.is_some());
            assert!(status.counters.receive_frames < brought as u64, "none lies there");
            let runs = || stack.counters().runtime.squeue_runs;
            let before = runs();
            tokio::time::sleep(Duration::from_millis(300)).await;
            let runs = runs() - before;
            assert!(runs < 100, "{runs} turns in 300 ms, with another interface: {has_another}");
        });
    }
}

/// A device on which only threads can wait.
struct ForThreads<Q>(Q);

struct OnlyThreads(Arc<dyn device::Waiter>);

impl device::Waiter for OnlyThreads {
    fn wait(&self, timeout: Option<Duration>) {
        self.0.wait(timeout);
    }

    fn wake(&self) {
        self.0.wake();
    }
}

impl<Q: Queue> Queue for ForThreads<Q> {
    device::forward_queue!(|self| self.0, but waiter);

    fn waiter(&self) -> Arc<dyn device::Waiter> {
        Arc::new(OnlyThreads(self.0.waiter()))
    }
}

#[test]
fn a_device_that_no_event_loop_can_watch_is_named() {
    let (queue, _sender, _receiver) = device::packet_pipe(1_500);
    let stack = build(ForThreads(queue), "10.1.0.1/24");
    run(async move {
        let error = drive(&stack).expect_err("it does not call");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("an event loop cannot watch"), "{error}");
    });
}

/// A device whose file an event loop refuses, which takes none that lies on a disk.
struct Unwatchable<Q>(Q);

struct OnDisk(Arc<dyn device::Waiter>, Arc<Disk>);

struct Disk(std::fs::File);

impl device::EventSource for Disk {
    fn file(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn begin(&self, _: Option<Duration>) -> bool {
        true
    }

    fn end(&self) {}
}

impl device::Waiter for OnDisk {
    fn wait(&self, timeout: Option<Duration>) {
        self.0.wait(timeout);
    }

    fn wake(&self) {
        self.0.wake();
    }

    fn event_source(&self, _: device::MakeSource<'_>) -> Option<Arc<dyn device::EventSource>> {
        Some(Arc::clone(&self.1) as _)
    }
}

impl<Q: Queue> Queue for Unwatchable<Q> {
    device::forward_queue!(|self| self.0, but waiter);

    fn waiter(&self) -> Arc<dyn device::Waiter> {
        let file = std::fs::File::open("/proc/self/exe").expect("what runs is a file");
        Arc::new(OnDisk(self.0.waiter(), Arc::new(Disk(file))))
    }
}

/// All squeues are driven, or none.
#[test]
fn a_stack_of_which_one_queue_cannot_be_watched_is_left_to_its_threads() {
    let [near, other] = [(); 2].map(|()| device::packet_pipe(1_500));
    let queues: Vec<Box<dyn Queue>> = vec![Box::new(near.0), Box::new(Unwatchable(other.0))];
    let interface = InterfaceConfig::new("10.1.0.1/24".parse().expect("an address"));
    let builder = Stack::builder().squeues(2).multiqueue_interface(queues, interface);
    let stack = builder.build().expect("a stack");
    run(async move {
        drive(&stack).expect_err("a file on a disk is never readable by an event");
        let drivers = stack.drivers().expect("nobody has them");
        assert_eq!(drivers.len(), 2);
    });
}
