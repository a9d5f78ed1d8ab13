//! The receiver: Linux, in a network namespace of its own, behind a TAP device whose other side is
//! handed out.
//!
//! A namespace belongs to a thread, so the receiver is one. It accepts one connection, checks every
//! byte, and stops its clock when the time is over, whatever is still under way.

use crate::verify::{Flow, Pattern};
use crate::{Attempt, Failure};
use linux::{Sandbox, TapConfig, TapDevice, TapQueue};
use std::io::{self, Read};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver as Channel, Sender, channel, sync_channel};
use std::time::{Duration, Instant};

/// How long the first byte may take: a SYN that is lost a few times is no failure.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long one read waits, which is how exactly the time of a stalled connection ends.
const READ_WAIT: Duration = Duration::from_millis(20);

/// What the receiver is to do.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    /// Its address.
    pub address: IpAddr,
    /// Length of its network's prefix.
    pub prefix_len: u8,
    /// How long it reads, from the first byte on.
    pub time: Duration,
    /// How far its buffers may grow.
    pub buffer_max_bytes: usize,
    /// From which the contents derive.
    pub seed: u64,
}

/// What was read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// Bytes, all as they were sent.
    pub bytes: u64,
    /// From the first byte to the end of the time.
    pub seconds: f64,
}

/// A receiver at work.
#[derive(Debug)]
pub struct Receiver {
    /// Where it listens.
    pub listening: SocketAddr,
    reading: Channel<Result<Reading, Failure>>,
    done: Ended,
}

/// By whom the run ends: the receiver, once it has read, or before that a sender that cannot connect.
#[derive(Clone, Debug)]
pub struct Ended(Sender<Result<Reading, Failure>>);

impl Ended {
    /// The sender's socket, or nothing where there is none: then the receiver is not waited for.
    pub fn unless_connected<S>(self, connected: io::Result<S>) -> Option<S> {
        let connected = connected.attempt(|| "the sender cannot connect");
        // Somebody waits, or knows already.
        connected.map_err(|failure| drop(self.0.send(Err(failure)))).ok()
    }
}

impl Receiver {
    /// Starts it; the queue is the other side of its TAP device.
    ///
    /// # Errors
    /// A sentence: no namespace, no device, no address.
    pub fn start(sandbox: &Arc<Sandbox>, order: Order) -> Result<(Self, TapQueue), Failure> {
        let (ready_sender, ready) = sync_channel(1);
        let (done, reading) = channel();
        let done = Ended(done);
        let receiver = done.clone();
        let sandbox = sandbox.clone();
        std::thread::spawn(move || {
            let (device, listener) = match open(&sandbox, order) {
                Ok((device, queue, listener)) => {
                    let at = listener.local_addr().attempt(|| "a listening socket has no address");
                    let _ = ready_sender.send(at.map(|at| (at, queue)));
                    (device, listener)
                }
                Err(failure) => {
                    let _ = ready_sender.send(Err(failure));
                    return;
                }
            };
            let _ = receiver.0.send(receive(&listener, order));
            // The device lives until here.
            drop(device);
        });
        let (listening, queue) = ready.recv().attempt(|| "the receiver did not start")??;
        Ok((Self { listening, reading, done }, queue))
    }

    /// For the sender, which says so where it cannot connect.
    #[must_use]
    pub fn ended(&self) -> Ended {
        self.done.clone()
    }

    /// Waits for what it read.
    ///
    /// # Errors
    /// A sentence: nothing came, or a byte that was not sent; the sender could not connect.
    pub fn finish(self) -> Result<Reading, Failure> {
        // Nobody but those two may keep it waiting.
        drop(self.done);
        self.reading.recv().attempt(|| "the receiver ended without a word")?
    }
}

fn open(sandbox: &Sandbox, order: Order) -> Result<(TapDevice, TapQueue, TcpListener), Failure> {
    let refused = || "cannot set the receiver's network up";
    sandbox.enter_further().attempt(refused)?;
    sandbox.set_tcp_buffers_max(order.buffer_max_bytes).attempt(refused)?;
    let (device, queue) = open_tap(order.address, order.prefix_len)?;
    let listener = TcpListener::bind((order.address, 0)).attempt(refused)?;
    Ok((device, queue, listener))
}

/// A plain TAP device in the network of the calling thread, with the kernel's side at `address`.
///
/// # Errors
/// A sentence: the device cannot be had or set up.
pub fn open_tap(address: IpAddr, prefix_len: u8) -> Result<(TapDevice, TapQueue), Failure> {
    let (device, queue) = open_silent_tap()?;
    let refused = || "cannot give a TAP device an address";
    let interface = device.interface().attempt(refused)?;
    interface.add_address(address, prefix_len).attempt(refused)?;
    Ok((device, queue))
}

/// The same without an address: the kernel says nothing there and answers nothing, so that somebody else may be the
/// host at its side.
///
/// # Errors
/// As [`open_tap`].
pub fn open_silent_tap() -> Result<(TapDevice, TapQueue), Failure> {
    let refused = || "cannot open a TAP device";
    let mut device =
        TapDevice::open(&TapConfig { offload: false, ..TapConfig::default() }).attempt(refused)?;
    let interface = device.interface().attempt(refused)?;
    // A kernel without IPv6 has nothing to be switched off.
    let _ = interface.disable_ipv6();
    interface.set_up().attempt(refused)?;
    let queue = device.queue(0).attempt(refused)?;
    Ok((device, queue))
}

fn receive(listener: &TcpListener, order: Order) -> Result<Reading, Failure> {
    let refused = || "cannot accept the connection";
    let deadline = Instant::now() + PATIENCE;
    listener.set_nonblocking(true).attempt(refused)?;
    let (socket, peer) = loop {
        match listener.accept() {
            Ok(accepted) => break accepted,
            Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(1)),
            Err(error) => return Err(error).attempt(refused),
        }
    };
    socket.set_nonblocking(false).attempt(refused)?;
    socket.set_read_timeout(Some(READ_WAIT)).attempt(refused)?;
    let pattern = Pattern::new(order.seed, peer.port(), Flow::FromConnector);
    let reading = read(&socket, pattern, order.time, deadline);
    // Whoever still sends learns that nobody reads any more.
    let _ = socket.shutdown(Shutdown::Both);
    reading
}

fn read(
    mut socket: &TcpStream,
    pattern: Pattern,
    time: Duration,
    deadline: Instant,
) -> Result<Reading, Failure> {
    let mut buffer = vec![0; 256 << 10];
    let mut bytes = 0;
    let mut started: Option<Instant> = None;
    loop {
        let count = match socket.read(&mut buffer) {
            Ok(0) => return Err(Failure::new("the sender ended the connection before its time")),
            Ok(count) => count,
            Err(error) if is_timeout(&error) => 0,
            Err(error) => return Err(error).attempt(|| "the receiver's connection failed"),
        };
        let now = Instant::now();
        pattern.check(bytes, &buffer[..count]).attempt(|| "what arrived is not what was sent")?;
        match started {
            None if count == 0 && now > deadline => return Err(Failure::new("nothing arrived")),
            None if count == 0 => {}
            None => {
                started = Some(now);
                bytes += count as u64;
            }
            Some(from) => {
                bytes += count as u64;
                if now - from >= time {
                    return Ok(Reading { bytes, seconds: (now - from).as_secs_f64() });
                }
            }
        }
    }
}

/// A socket with a timeout had nothing to say.
pub(crate) fn is_timeout(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_that_cannot_connect_ends_the_run() {
        let (done, reading) = channel();
        let ended = Ended(done);
        assert_eq!(ended.clone().unless_connected(Ok("a socket")), Some("a socket"));
        let refused = io::Error::new(io::ErrorKind::Unsupported, "no such congestion control");
        assert_eq!(ended.unless_connected::<()>(Err(refused)), None);
        let failure = reading.recv().expect("it was said").expect_err("nothing was read");
        assert_eq!(failure.to_string(), "the sender cannot connect: no such congestion control");
        assert!(reading.recv().is_err(), "and nobody keeps the run waiting");
    }
}
