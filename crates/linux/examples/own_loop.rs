//! An echo server on a loop of its own: a TAP, poll(2) and a shard, without a thread, a lock or the `multidata` crate.
//!
//! ```sh
//! cargo run --release -p multidata-linux --example own_loop tap0 10.0.0.2/24 &    # as root
//! until ip address add 10.0.0.1/24 dev tap0 2> /dev/null; do sleep 1; done
//! ip link set tap0 up
//! ping -c 3 10.0.0.2 && echo hello | nc -N 10.0.0.2 7
//! ```
//!
//! What a driver owes a shard is told at `stack::Shard`, in "Driving it".

use core::mem::replace;
use linux::{TapConfig, TapDevice};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;
use rustix::io::Errno;
use stack::batch::{BlockPool, Multidata, PoolConfig, ReceiveBatch};
use stack::device::{DeviceError, Queue, Room, Stop};
use stack::ip::Cidr;
use stack::time::{Duration, Instant};
use stack::{AddressingConfig, InterfaceConfig, InterfaceId, Shard, ShardConfig};
use stack::{SocketError, SocketId, tcp};
use std::error::Error;
use std::io::{self, Read};
use std::process::ExitCode;

/// Frames fetched and batches sent in a turn at most: both directions, and timers, get their share.
const FRAMES_MAX: usize = 256;
const BATCHES_MAX: usize = 16;

/// When a device without room is asked again that cannot say when it has some, and when one is that has frames
/// and finds no memory for them.
const RETRY: Duration = Duration::from_millis(1);

/// Longer than any link header.
const LINK_HEADER_LEN_MAX: usize = 32;

/// A host of one interface, and its server.
pub(crate) struct Host<Q> {
    shard: Shard,
    id: InterfaceId,
    queue: Q,
    pool: BlockPool,
    received: ReceiveBatch,
    batch: Multidata,
    /// The shard's time begins here.
    started: std::time::Instant,
    /// The device had no room, and is asked again then.
    retry: Option<Instant>,
    /// Something is wrong with the device that may pass.
    is_in_trouble: bool,
    /// poll(2) said that there is something to read, and nothing could be read.
    is_starved: bool,
    is_readable: bool,
    /// There is more to do at once.
    has_more: bool,
    listener: SocketId,
}

impl<Q: Queue + AsFd> Host<Q> {
    /// A host that echoes on port 7 of this address.
    pub(crate) fn new(queue: Q, address: Cidr) -> Result<Self, Box<dyn Error>> {
        // Sequence numbers, ports and the keys of tables come of it.
        let mut secret = [0; 32];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut secret)?;
        let pool = BlockPool::new(PoolConfig::default());
        let (tcp, sockets_max) = (tcp::Config::default(), 10_000);
        let mut shard = Shard::new(ShardConfig { tcp, pool: pool.clone(), secret, sockets_max });
        let id = shard.add_interface(InterfaceConfig {
            capabilities: queue.capabilities(),
            // What suits the device.
            mode: None,
            addresses: vec![address],
            gateways: Vec::new(),
        })?;
        // The address is told to neighbours, and defended.
        shard.start_addressing(Instant::ZERO, id, AddressingConfig::default());
        let listener = shard.tcp_listen((address.address(), 7).into(), 128)?;
        let (received, batch) = (ReceiveBatch::new(), Multidata::default());
        let started = std::time::Instant::now();
        let (retry, is_in_trouble, is_starved, is_readable) = (None, false, false, false);
        let mut host = Self {
            shard,
            id,
            queue,
            pool,
            received,
            batch,
            started,
            retry,
            is_in_trouble,
            is_starved,
            is_readable,
            has_more: true,
            listener,
        };
        host.negotiate()?;
        Ok(host)
    }

    /// What came in is taken, timers that are due fire, what there is to send goes out, and the server does its part.
    ///
    /// # Errors
    /// The device failed. The shard knows it; another one may take its place (`Shard::on_device_replaced`).
    pub(crate) fn turn(&mut self) -> Result<(), DeviceError> {
        let now = Instant::ZERO + self.started.elapsed();
        // Before the device is asked, which needs memory to receive into.
        self.has_more = self.shard.relieve_pool();
        self.received.clear();
        let received = self.queue.receive(&self.pool, &mut self.received, FRAMES_MAX);
        self.is_starved = replace(&mut self.is_readable, false) && received.frames == 0;
        self.has_more |= received.more;
        self.shard.on_receive(now, self.id, &mut self.received);
        if let Some(error) = received.failed {
            self.shard.on_device_failed(now, self.id, &error);
            return Err(error);
        }
        if self.shard.poll_timeout().is_some_and(|due| due <= now) {
            self.shard.on_timeout(now);
        }
        self.send(now)?;
        let trouble = self.queue.trouble();
        if trouble.is_some() != replace(&mut self.is_in_trouble, trouble.is_some()) {
            self.shard.on_device_trouble(now, self.id, trouble.as_ref());
        }
        while let Some(event) = self.shard.poll_event() {
            match event.socket == self.listener {
                true => self.accept(now),
                false => self.echo(now, event.socket),
            }
            // What it wrote is to be sent.
            self.has_more = true;
        }
        Ok(())
    }

    fn send(&mut self, now: Instant) -> Result<(), DeviceError> {
        let Self { shard, queue, batch, id, .. } = self;
        self.retry = None;
        queue.reclaim();
        for _ in 0..BATCHES_MAX {
            let Room { packets, bytes } = queue.room();
            let frame_len_max = queue.capabilities().mtu_bytes + LINK_HEADER_LEN_MAX;
            // A full device is offered one packet all the same: then it says when it has room.
            let room = Room { packets: packets.max(1), bytes: bytes.max(frame_len_max) };
            if shard.poll_transmit(now, *id, room, batch) == 0 {
                // Packets to our own addresses, of which a turn carries so many.
                self.has_more |= shard.is_loopback_pending();
                // What the device has taken goes on when it is called again.
                self.retry = queue.is_stalled().then(|| now + RETRY);
                return Ok(());
            }
            let transmitted = queue.transmit(batch);
            // What was not taken is forgotten, and built afresh when it is asked for.
            shard.on_transmitted(now, *id, &transmitted);
            match transmitted.stopped {
                // The one that was refused is dropped.
                None | Some(Stop::Refused) => {}
                Some(Stop::Full) => {
                    self.retry = Some(now + queue.retry_after().unwrap_or(RETRY));
                    return Ok(());
                }
                Some(Stop::Revoked) => return self.negotiate().map(|()| self.has_more = true),
                // The shard has heard of it by `on_transmitted`.
                Some(Stop::Failed(error)) => return Err(error),
            }
        }
        self.has_more = true;
        Ok(())
    }

    /// The device can do something else than before: shard and device agree on what.
    fn negotiate(&mut self) -> Result<(), DeviceError> {
        self.shard.set_capabilities(self.id, self.queue.capabilities());
        self.queue.set_mode(self.shard.mode(self.id).unwrap_or_default())?;
        // It may be able to do something else in another mode.
        self.shard.set_capabilities(self.id, self.queue.capabilities());
        Ok(())
    }

    /// Sleeps until there is something to do, or for `most`.
    pub(crate) fn wait(&mut self, most: Option<Duration>) -> io::Result<()> {
        let now = Instant::ZERO + self.started.elapsed();
        let mut due = Instant::earliest(self.shard.poll_timeout(), self.retry);
        if self.is_starved {
            due = Instant::earliest(due, Some(now + RETRY));
        }
        let until_due =
            if self.has_more { Some(Duration::ZERO) } else { due.map(|due| due.since(now)) };
        let timeout = [until_due, most].into_iter().flatten().min();
        let mut wanted = PollFlags::empty();
        wanted.set(PollFlags::IN, !self.is_starved);
        wanted.set(PollFlags::OUT, self.retry.is_some());
        let mut files = [PollFd::new(&self.queue, wanted)];
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        match poll(&mut files, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        self.is_readable = files[0].revents().contains(PollFlags::IN);
        Ok(())
    }

    fn accept(&mut self, now: Instant) {
        while let Ok(connection) = self.shard.tcp_accept(self.listener) {
            // What has arrived by now is told nobody again.
            self.echo(now, connection);
        }
    }

    /// Sends back what has arrived, in the blocks that it arrived in, as far as there is room.
    fn echo(&mut self, now: Instant, id: SocketId) {
        while let Ok(room) = self.shard.tcp_send_room(id) {
            if room == 0 {
                // There will be an event when there is some.
                return;
            }
            let mut chunks = Vec::new();
            match self.shard.tcp_read_chunks(now, id, (room, 64), |chunk| chunks.push(chunk)) {
                Err(SocketError::WouldBlock) => return,
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
            let is_queued = |chunk| self.shard.tcp_append(now, id, chunk).is_ok();
            if !chunks.into_iter().all(is_queued) {
                break;
            }
        }
        self.shard.close(now, id);
    }
}

// In the test, which brings a device of its own, nobody calls these two.
#[allow(dead_code)]
fn main() -> ExitCode {
    let outcome = run();
    if let Err(error) = &outcome {
        eprintln!("own_loop: {error}");
    }
    ExitCode::from(u8::from(outcome.is_err()))
}

#[allow(dead_code)]
fn run() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (name, address) = (arguments.next(), arguments.next());
    let config = TapConfig { name, ..TapConfig::default() };
    let mut device = TapDevice::open(&config)?;
    println!("{}", device.negotiated());
    let address = address.as_deref().unwrap_or("10.0.0.2/24").parse()?;
    let mut host = Host::new(device.queue(0)?, address)?;
    loop {
        host.turn()?;
        host.wait(None)?;
    }
}
