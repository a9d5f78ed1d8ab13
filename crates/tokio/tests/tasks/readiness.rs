//! Datagrams by readiness and attempts, as who drives many connections over one socket sends and receives them: the
//! traits are of the shape of quinn's `AsyncUdpSocket` and `UdpPoller`.

use crate::pair::{pair, right, run};
use multidata::device::{Medium, Queue, WireConfig, WireEnd, WireQueue, wire};
use multidata::{InterfaceConfig, Stack, batch};
use multidata_tokio::{RawSocket, UdpSocket};
use std::fmt::{self, Debug};
use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker, ready};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

struct Transmit<'a> {
    destination: SocketAddr,
    contents: &'a [u8],
}

#[derive(Clone, Copy)]
struct Meta {
    addr: SocketAddr,
    len: usize,
}

trait AsyncUdpSocket: Send + Sync + Debug + 'static {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>>;
    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()>;
    fn poll_recv(
        &self,
        context: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [Meta],
    ) -> Poll<io::Result<usize>>;
}

trait UdpPoller: Send + Sync + Debug + 'static {
    fn poll_writable(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>>;
}

#[derive(Debug)]
struct Endpoint(UdpSocket);

type Writable = Pin<Box<dyn Future<Output = io::Result<()>> + Send + Sync>>;

/// Of one connection; several wait at the same time.
struct Poller {
    endpoint: Arc<Endpoint>,
    waiting: Option<Writable>,
}

impl Debug for Poller {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Poller").finish_non_exhaustive()
    }
}

impl UdpPoller for Poller {
    fn poll_writable(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let endpoint = Arc::clone(&self.endpoint);
        let writable = || -> Writable { Box::pin(async move { endpoint.0.writable().await }) };
        let outcome = ready!(self.waiting.get_or_insert_with(writable).as_mut().poll(context));
        self.waiting = None;
        Poll::Ready(outcome)
    }
}

impl AsyncUdpSocket for Endpoint {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Poller { endpoint: self, waiting: None })
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.0.try_send_to(transmit.contents, transmit.destination).map(drop)
    }

    fn poll_recv(
        &self,
        context: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [Meta],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_recv_ready(context))?;
            match self.0.try_recv_from(&mut bufs[0]) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
                Ok((len, addr)) => {
                    meta[0] = Meta { addr, len };
                    return Poll::Ready(Ok(1));
                }
            }
        }
    }
}

#[test]
fn connections_of_one_socket_share_it_as_quinns_do() {
    const TASKS: u8 = 4;
    const ROUNDS: u8 = 100;
    run(async {
        let (left, right_stack) = pair();
        let server: Arc<dyn AsyncUdpSocket> =
            Arc::new(Endpoint(UdpSocket::bind(&right_stack, right(7)).expect("a free port")));
        tokio::spawn(async move {
            let mut poller = Arc::clone(&server).create_io_poller();
            let (mut memory, mut meta) = ([0; 100], [Meta { addr: right(0), len: 0 }]);
            loop {
                let mut bufs = [IoSliceMut::new(&mut memory)];
                let received = poll_fn(|it| server.poll_recv(it, &mut bufs, &mut meta)).await;
                assert_eq!(received.expect("open"), 1);
                let [Meta { addr: destination, len }] = meta;
                let answer = Transmit { destination, contents: &memory[..len] };
                send(&*server, &mut poller, &answer).await;
            }
        });
        let tasks = (0..TASKS).map(|task| {
            let client = UdpSocket::bind(&left, ([10, 1, 0, 1], 0)).expect("a free port");
            let client = Arc::new(Endpoint(client));
            tokio::spawn(async move {
                let mut poller = Arc::clone(&client).create_io_poller();
                for round in 0..ROUNDS {
                    let contents = &[task, round];
                    let asked = Transmit { destination: right(7), contents };
                    send(&*client, &mut poller, &asked).await;
                    let (mut memory, mut meta) = ([0; 100], [Meta { addr: right(0), len: 0 }]);
                    let mut bufs = [IoSliceMut::new(&mut memory)];
                    let received = poll_fn(|it| client.poll_recv(it, &mut bufs, &mut meta)).await;
                    assert_eq!((received.expect("open"), meta[0].addr), (1, right(7)));
                    assert_eq!(&memory[..meta[0].len], contents);
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.expect("it ends well");
        }
    });
}

async fn send(
    socket: &dyn AsyncUdpSocket,
    poller: &mut Pin<Box<dyn UdpPoller>>,
    what: &Transmit<'_>,
) {
    loop {
        match socket.try_send(what) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                poll_fn(|it| poller.as_mut().poll_writable(it)).await.expect("open");
            }
            outcome => return outcome.expect("a route"),
        }
    }
}

/// A stack at 10.1.0.1 and the other end of its wire, where nobody receives until the test does.
fn stalled() -> (Stack, WireQueue) {
    let end = WireEnd::plain(Medium::Ip);
    let (near, far) = wire(WireConfig::new(end, end));
    let interface = InterfaceConfig::new("10.1.0.1/24".parse().expect("an address"));
    (Stack::builder().interface(near, interface).build().expect("a stack"), far)
}

/// Receives what there is, and says how much that was.
fn drain(far: &mut WireQueue, pool: &batch::BlockPool) -> usize {
    let mut packets = 0;
    loop {
        let mut batch = batch::ReceiveBatch::new();
        match far.receive(pool, &mut batch, 64).frames {
            0 => return packets,
            frames => packets += frames,
        }
    }
}

#[derive(Default)]
struct Calls(AtomicUsize);

impl Wake for Calls {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Fills the queue by `attempt` and sees that all of these have to wait; receives at the other end, and sees that all are
/// woken and need not any more.
fn wait_for_room(
    mut far: WireQueue,
    pool: &batch::BlockPool,
    attempt: impl Fn() -> io::Result<usize>,
    mut waiting: Vec<impl FnMut(&mut Context<'_>) -> Poll<io::Result<()>>>,
) {
    for poll in &mut waiting {
        assert!(poll(&mut Context::from_waker(Waker::noop())).is_ready(), "nothing was sent yet");
    }
    let mut sent = 0;
    let refused = loop {
        match attempt() {
            Ok(_) => sent += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refused.kind(), ErrorKind::WouldBlock, "{refused} after {sent}");
    let calls: Vec<Arc<Calls>> = waiting.iter().map(|_| Arc::default()).collect();
    for (poll, calls) in waiting.iter_mut().zip(&calls) {
        assert!(poll(&mut Context::from_waker(&Waker::from(Arc::clone(calls)))).is_pending());
    }
    let started = Instant::now();
    let mut received = 0;
    while calls.iter().any(|calls| calls.0.load(Ordering::SeqCst) == 0) {
        received += drain(&mut far, pool);
        assert!(started.elapsed() < PATIENCE, "nobody was told of room");
        std::thread::sleep(Duration::from_millis(1));
    }
    for poll in &mut waiting {
        assert!(poll(&mut Context::from_waker(Waker::noop())).is_ready());
    }
    assert!(attempt().is_ok());
    while received <= sent {
        received += drain(&mut far, pool);
        assert!(started.elapsed() < PATIENCE, "{received} of {sent} and one");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(received, sent + 1);
}

#[test]
fn all_who_wait_for_room_are_told_of_it() {
    let (stack, far) = stalled();
    let socket = UdpSocket::bind(&stack, ([10, 1, 0, 1], 0)).expect("a free port");
    let error = socket.try_recv_from(&mut [0; 10]).expect_err("nobody sends");
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    let endpoint = Arc::new(Endpoint(socket));
    let waiting = (0..3).map(|_| {
        let mut poller = Arc::clone(&endpoint).create_io_poller();
        move |context: &mut Context<'_>| poller.as_mut().poll_writable(context)
    });
    let attempt = || endpoint.0.try_send_to(b"datagram", right(7));
    wait_for_room(far, stack.pool(), attempt, waiting.collect());
}

#[test]
fn who_waits_for_room_for_raw_packets_is_told_of_it() {
    let (stack, far) = stalled();
    let socket = Arc::new(RawSocket::bind(&stack, 253).expect("nobody's"));
    let waiting = (0..2).map(|_| {
        let socket = Arc::clone(&socket);
        let mut writable: Option<Writable> = None;
        move |context: &mut Context<'_>| {
            let socket = Arc::clone(&socket);
            let wait = || -> Writable { Box::pin(async move { socket.writable().await }) };
            let outcome = ready!(writable.get_or_insert_with(wait).as_mut().poll(context));
            writable = None;
            Poll::Ready(outcome)
        }
    });
    let attempt = || socket.try_send_to(b"packet", right(0).ip());
    wait_for_room(far, stack.pool(), attempt, waiting.collect());
}

#[test]
fn raw_packets_are_tried_and_waited_for() {
    run(async {
        let (left, right_stack) = pair();
        let ours = RawSocket::bind(&left, 253).expect("nobody's");
        let theirs = RawSocket::bind(&right_stack, 253).expect("nobody's");
        let to: IpAddr = right(0).ip();
        let mut buffer = [0; 10];
        let error = theirs.try_recv(&mut buffer).expect_err("nothing was sent");
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        for round in 0..100_u8 {
            ours.writable().await.expect("open");
            assert_eq!(ours.try_send_to(&[round; 5], to).expect("there is room"), 5);
            theirs.readable().await.expect("open");
            let packet = theirs.try_recv(&mut buffer).expect("it is there");
            assert_eq!(&buffer[..packet.len], [round; 5]);
        }
    });
}
