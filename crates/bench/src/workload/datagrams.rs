//! Datagrams one way, as many in a call as make a write.
//!
//! ```text
//!   write of the application   [ n | pattern .. ][ n+1 | pattern .. ] ...   one call of the socket
//!   the other end              reads n, and checks that the rest is what stands there in the pattern
//! ```
//!
//! What a datagram costs its sender is what is to be seen; nothing slows the sender down for the receiver's
//! sake. So what the receiver has no room for is lost, and only what arrived is checked, and counts for
//! throughput.

use crate::place::pin_to_cpu;
use crate::scenario::Amount;
use crate::socket::retry_interrupted;
use crate::verify::Pattern;
use crate::workload::stream::Sender;
use crate::{Attempt, Failure};
use bytes::Bytes;
use multidata::{Datagram, LentDatagram, UdpSocket};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Length of the number that a datagram begins with.
const NUMBER_LEN: usize = 8;

/// How long the receiver waits for more when the sender is done.
const SILENCE: Duration = Duration::from_millis(50);

/// How long the first datagram may take to get through.
const MEET_TIMEOUT: Duration = Duration::from_secs(10);

/// What to send.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The contents.
    pub pattern: Pattern,
    /// When to end.
    pub amount: Amount,
    /// Length of a datagram.
    pub len_bytes: usize,
    /// How much to hand over in one call: at least one datagram.
    pub write_len_bytes: usize,
    /// Lend the memory to the socket instead of having it copied.
    pub zero_copy: bool,
    /// How much of the contents is the pattern's; the rest repeats its last write.
    pub verified_len_bytes: u64,
    /// The CPU that the receiver is kept on.
    pub receiver_cpu: Option<usize>,
}

/// What both ends did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Bytes handed over.
    pub sent_bytes: u64,
    /// What sending took of the thread that sent.
    pub sender: Sender,
    /// Bytes that arrived.
    pub received_bytes: u64,
    /// How long it sent.
    pub seconds: f64,
}

/// The end that receives, whoever implements it.
pub trait ReceivingEnd: Sync {
    /// Bounds how long [`ReceivingEnd::receive`] waits.
    ///
    /// # Errors
    /// What the socket says.
    fn set_patience(&self, patience: Duration) -> io::Result<()>;

    /// Waits a while for a datagram; `None` where none came.
    ///
    /// # Errors
    /// What the socket says.
    fn receive(&self, out: &mut [u8]) -> io::Result<Option<usize>>;
}

fn or_none(received: io::Result<usize>) -> io::Result<Option<usize>> {
    match received {
        Ok(len) => Ok(Some(len)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

impl ReceivingEnd for UdpSocket {
    fn set_patience(&self, patience: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(patience))
    }

    fn receive(&self, out: &mut [u8]) -> io::Result<Option<usize>> {
        or_none(self.recv_from(out).map(|(len, _)| len))
    }
}

impl ReceivingEnd for std::net::UdpSocket {
    fn set_patience(&self, patience: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(patience))
    }

    fn receive(&self, out: &mut [u8]) -> io::Result<Option<usize>> {
        or_none(retry_interrupted(|| self.recv_from(out).map(|(len, _)| len)))
    }
}

/// Sends to `to`, where `far` receives in a thread of its own. `ready` is called when the way is known to be
/// open, before the first datagram that counts.
///
/// # Errors
/// A sentence: a socket failed, nothing arrives, or what arrives is not what was sent.
pub fn run(
    near: &UdpSocket,
    far: &impl ReceivingEnd,
    to: SocketAddr,
    plan: &Plan,
    ready: impl FnOnce(),
) -> Result<Outcome, Failure> {
    far.set_patience(SILENCE).attempt(|| "cannot set a socket up")?;
    meet(near, far, to)?;
    ready();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            plan.receiver_cpu.map_or(Ok(()), pin_to_cpu)?;
            receive(far, plan, &is_over)
        });
        let started = Instant::now();
        let sent = send(near, to, plan);
        let seconds = started.elapsed().as_secs_f64();
        is_over.store(true, Ordering::Release);
        let received = receiver
            .join()
            .unwrap_or_else(|_| Err(Failure::new("the receiver of datagrams panicked")));
        let ((sent_bytes, sender), received_bytes) = (sent?, received?);
        Ok(Outcome { sent_bytes, sender, received_bytes, seconds })
    })
}

/// One empty datagram gets through: addresses are resolved then.
fn meet(near: &UdpSocket, far: &impl ReceivingEnd, to: SocketAddr) -> Result<(), Failure> {
    let started = Instant::now();
    while started.elapsed() < MEET_TIMEOUT {
        near.send_to(&[], to).attempt(|| "cannot send a datagram")?;
        if far.receive(&mut [0]).attempt(|| "cannot receive a datagram")?.is_some() {
            return Ok(());
        }
    }
    Err(Failure::new(format!("no datagram arrived for {} s", MEET_TIMEOUT.as_secs())))
}

fn send(socket: &UdpSocket, to: SocketAddr, plan: &Plan) -> Result<(u64, Sender), Failure> {
    let (bytes_max, time) = match plan.amount {
        Amount::Bytes(bytes) => (bytes, Duration::MAX),
        Amount::Time(time) => (u64::MAX, time),
    };
    let count = (plan.write_len_bytes / plan.len_bytes).max(1);
    let mut memory = vec![0; count * plan.len_bytes];
    let mut lent = Bytes::new();
    let mut sent_bytes = 0;
    let before = Sender::of_this_thread();
    let started = Instant::now();
    while sent_bytes < bytes_max && started.elapsed() < time {
        if sent_bytes == 0 || sent_bytes < plan.verified_len_bytes {
            fill(plan, sent_bytes / plan.len_bytes as u64, &mut memory);
            lent = if plan.zero_copy { Bytes::copy_from_slice(&memory) } else { lent };
        }
        send_all(socket, to, plan, (&memory, &lent))
            .attempt(|| format!("sending failed after {sent_bytes} bytes"))?;
        sent_bytes += memory.len() as u64;
    }
    Ok((sent_bytes, Sender::of_this_thread().since(before)))
}

/// Writes datagrams from number `first` on, one behind the other.
fn fill(plan: &Plan, first: u64, memory: &mut [u8]) {
    for (number, datagram) in (first..).zip(memory.chunks_exact_mut(plan.len_bytes)) {
        let (head, rest) = datagram.split_at_mut(NUMBER_LEN.min(plan.len_bytes));
        head.copy_from_slice(&number.to_le_bytes()[..head.len()]);
        plan.pattern.fill(number.wrapping_mul(plan.len_bytes as u64), rest);
    }
}

fn send_all(
    socket: &UdpSocket,
    to: SocketAddr,
    plan: &Plan,
    (memory, lent): (&[u8], &Bytes),
) -> io::Result<()> {
    let to = Some(to);
    let mut done = 0;
    if plan.zero_copy {
        let payloads = (0..lent.len()).step_by(plan.len_bytes);
        let payloads = payloads.map(|at| lent.slice(at..at + plan.len_bytes));
        let datagrams: Vec<_> = payloads
            .map(|payload| LentDatagram { payload, to, ..LentDatagram::default() })
            .collect();
        while done < datagrams.len() {
            done += socket.send_many_bytes(&datagrams[done..])?;
        }
    } else {
        let payloads = memory.chunks_exact(plan.len_bytes);
        let datagrams: Vec<_> =
            payloads.map(|payload| Datagram { payload, to, ..Datagram::default() }).collect();
        while done < datagrams.len() {
            done += socket.send_many(&datagrams[done..])?;
        }
    }
    Ok(())
}

fn receive(far: &impl ReceivingEnd, plan: &Plan, is_over: &AtomicBool) -> Result<u64, Failure> {
    let mut memory = vec![0; plan.len_bytes + 1];
    let mut received_bytes = 0;
    loop {
        let was_over = is_over.load(Ordering::Acquire);
        match far.receive(&mut memory).attempt(|| "cannot receive a datagram")? {
            None if was_over => return Ok(received_bytes),
            // One of those that opened the way.
            None | Some(0) => {}
            Some(len) => {
                let is_checked = received_bytes < plan.verified_len_bytes;
                check(plan, &memory[..len], is_checked)?;
                received_bytes += len as u64;
            }
        }
    }
}

fn check(plan: &Plan, datagram: &[u8], is_checked: bool) -> Result<(), Failure> {
    if datagram.len() != plan.len_bytes {
        let (len, of) = (datagram.len(), plan.len_bytes);
        return Err(Failure::new(format!("a datagram of {len} bytes arrived where all have {of}")));
    }
    let Some((number, rest)) = datagram.split_first_chunk().filter(|_| is_checked) else {
        return Ok(());
    };
    let at = u64::from_le_bytes(*number).wrapping_mul(plan.len_bytes as u64);
    plan.pattern
        .check(at, rest)
        .attempt(|| "the datagram that arrived is not the one that was sent")
}
