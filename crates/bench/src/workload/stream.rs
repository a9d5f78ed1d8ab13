//! Bulk transfer: a byte stream as fast as it goes.
//!
//! The sending end writes the contents its place in the stream demands ([`Pattern`]) as long as
//! they are to be verified, then the last block over and over, which stays in the cache: what is
//! timed is the stack, not the making of data. It ends the stream, and the receiving end's answer
//! to that - the end of its own stream - says that everything arrived.
//!
//! The receiving end checks what is to be verified, counts the rest, and holds the clock: from the
//! first byte to the end of the stream.

use crate::measure::Spent;
use crate::place::pin_to_cpu;
use crate::scenario::{Amount, Scenario};
use crate::socket::Socket;
use crate::times::Taken;
use crate::verify::{Flow, Pattern};
use crate::{Attempt, Failure};
use bytes::Bytes;
use linux::cpu::{thread_time, thread_waits};
use multidata::Stack;
use serde::{Deserialize, Serialize};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

pub mod tasks;

/// How much the application asks for in one read.
pub const READ_LEN_BYTES: usize = 256 << 10;

/// What one end of all connections is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// From which all contents derive.
    pub seed: u64,
    /// This end made the connections, the other one accepted them.
    pub connected: bool,
    /// This end sends.
    pub sends: bool,
    /// This end receives.
    pub receives: bool,
    /// When sending ends; bytes are divided among the connections.
    pub amount: Amount,
    /// How much to write in one call; at least 1.
    pub write_len_bytes: usize,
    /// Lend the memory to the socket instead of having it copied, and take received memory as it is,
    /// where the socket does that.
    pub zero_copy: bool,
    /// How much of each stream is checked.
    pub verified_len_bytes: u64,
}

impl Plan {
    /// What is to be done over each of these connections.
    ///
    /// # Errors
    /// A sentence, where a socket does not tell its addresses.
    pub fn tasks(&self, sockets: &[impl Socket]) -> Result<Vec<Task>, Failure> {
        let (out, back) = match self.connected {
            true => (Flow::FromConnector, Flow::ToConnector),
            false => (Flow::ToConnector, Flow::FromConnector),
        };
        let task = |(index, socket)| -> Result<Task, Failure> {
            let port = connector_port(socket, self.connected)?;
            let amount = match self.amount {
                Amount::Bytes(bytes) => {
                    Amount::Bytes(Scenario::share_bytes(bytes, sockets.len(), index))
                }
                time @ Amount::Time(_) => time,
            };
            Ok(Task {
                cpu: None,
                send: self.sends.then(|| Sending {
                    pattern: Pattern::new(self.seed, port, out),
                    amount,
                    write_len_bytes: self.write_len_bytes,
                    zero_copy: self.zero_copy,
                    verified_len_bytes: self.verified_len_bytes,
                }),
                receive: self.receives.then(|| Receiving {
                    time: self.amount.time(),
                    pattern: Pattern::new(self.seed, port, back),
                    zero_copy: self.zero_copy,
                    verified_len_bytes: self.verified_len_bytes,
                }),
            })
        };
        sockets.iter().enumerate().map(task).collect()
    }
}

/// The port of the end that connected, which both ends know.
///
/// # Errors
/// A sentence, where the socket does not tell.
pub fn connector_port(socket: &impl Socket, connected: bool) -> Result<u16, Failure> {
    let address = if connected { socket.local() } else { socket.remote() };
    Ok(address.attempt(|| "a connected socket has no address")?.port())
}

/// What one end of one connection is to do. One of the two at least.
#[derive(Clone, Debug)]
pub struct Task {
    /// The CPU that the thread which does it is kept on.
    pub cpu: Option<usize>,
    /// What to send.
    pub send: Option<Sending>,
    /// What to expect.
    pub receive: Option<Receiving>,
}

/// What to send.
#[derive(Clone, Debug)]
pub struct Sending {
    /// The contents.
    pub pattern: Pattern,
    /// When to end.
    pub amount: Amount,
    /// How much to write in one call; at least 1.
    pub write_len_bytes: usize,
    /// Lend the memory to the socket instead of having it copied.
    pub zero_copy: bool,
    /// How much of the contents is the pattern's; the rest repeats its last block.
    pub verified_len_bytes: u64,
}

/// What to expect.
#[derive(Clone, Debug)]
pub struct Receiving {
    /// How long the other end sends, where that is known.
    pub time: Option<Duration>,
    /// The contents.
    pub pattern: Pattern,
    /// Take the memory that was received into instead of having it copied, where the socket does
    /// that.
    pub zero_copy: bool,
    /// How much of them to check.
    pub verified_len_bytes: u64,
}

/// What one end of one connection did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Bytes written.
    pub sent_bytes: u64,
    /// Bytes read.
    pub received_bytes: u64,
    /// What sending took of the thread that sent.
    pub sender: Sender,
    /// When the first byte and the end of the stream arrived.
    pub received_between: Option<(Instant, Instant)>,
    /// Reads that brought some.
    pub reads: u64,
}

/// What threads that send take while they do: from the first write to the end of the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sender {
    /// CPU time in nanoseconds, the kernel's work inside system calls included.
    pub cpu_ns: u64,
    /// Times they gave up the CPU to wait.
    pub waits: u64,
    /// Time by the clock on the wall; of several threads the longest. Of one moment: since some other.
    pub elapsed_ns: u64,
    /// What the CPU time was taken for, where that is measured.
    pub taken: Taken,
}

/// Time by the clock on the wall, since this was first asked.
fn wall_time() -> Duration {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    FIRST.get_or_init(Instant::now).elapsed()
}

impl Sender {
    /// What the calling thread has taken so far.
    pub(crate) fn of_this_thread() -> Self {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self {
            cpu_ns: ns(thread_time()),
            waits: thread_waits(),
            elapsed_ns: ns(wall_time()),
            taken: Taken::of_this_thread(),
        }
    }

    pub(crate) fn since(self, before: Self) -> Self {
        let cpu_ns = self.cpu_ns.saturating_sub(before.cpu_ns);
        Self {
            cpu_ns,
            waits: self.waits.saturating_sub(before.waits),
            elapsed_ns: self.elapsed_ns.saturating_sub(before.elapsed_ns),
            taken: self.taken.since(before.taken),
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns + other.cpu_ns,
            waits: self.waits + other.waits,
            elapsed_ns: self.elapsed_ns.max(other.elapsed_ns),
            taken: self.taken.plus(other.taken),
        }
    }
}

/// What an end did in the time in which every connection had something to send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Busy {
    /// Bytes read.
    pub bytes: u64,
    /// Bytes read and bytes written.
    pub moved_bytes: u64,
    /// The length of that time.
    pub seconds: f64,
    /// What that took of the end's process and of the machine, where its end was seen.
    pub spent: Option<Spent>,
}

/// What all connections of one end did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Bytes written.
    pub sent_bytes: u64,
    /// Bytes read.
    pub received_bytes: u64,
    /// What sending took of the threads that sent.
    pub sender: Sender,
    /// From the first byte of any connection to the last end of a stream; zero where one read brought all there
    /// was, as nobody saw how long that took to come.
    pub receiving_s: f64,
    /// What was done while all were busy, where that was told apart.
    pub busy: Option<Busy>,
    /// What the connection read over which the least came.
    pub least_received_bytes: u64,
    /// What the connection read over which the most came.
    pub most_received_bytes: u64,
}

impl Totals {
    /// Sums up the connections of one end.
    #[must_use]
    pub fn of(outcomes: &[Outcome]) -> Self {
        let first = outcomes.iter().filter_map(|outcome| Some(outcome.received_between?.0)).min();
        let last = outcomes.iter().filter_map(|outcome| Some(outcome.received_between?.1)).max();
        let received = || outcomes.iter().map(|outcome| outcome.received_bytes);
        let reads: u64 = outcomes.iter().map(|outcome| outcome.reads).sum();
        Self {
            sent_bytes: outcomes.iter().map(|outcome| outcome.sent_bytes).sum(),
            received_bytes: received().sum(),
            sender: outcomes.iter().fold(Sender::default(), |sum, it| sum.plus(it.sender)),
            receiving_s: first
                .zip(last)
                .filter(|_| reads > 1)
                .map_or(0.0, |(first, last)| last.duration_since(first).as_secs_f64()),
            busy: None,
            least_received_bytes: received().min().unwrap_or(0),
            most_received_bytes: received().max().unwrap_or(0),
        }
    }
}

/// Who does the work over the connections of an end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Workers {
    /// A thread for each.
    #[default]
    Threads,
    /// A task for each, all of an end's in one thread.
    Tasks,
    /// The same, and that thread runs the stack as well, where the end is ours ([`multidata_tokio::drive`]).
    Drivers,
}

impl Workers {
    /// Those of the end with this stack; the kernel's has none.
    pub fn of(self, stack: Option<&Stack>) -> By<'_> {
        match self {
            Self::Threads => By::Threads,
            Self::Tasks => By::Tasks(None),
            Self::Drivers => By::Tasks(stack),
        }
    }
}

/// Who does the work of an end.
#[derive(Clone, Copy, Debug)]
pub enum By<'a> {
    /// See [`Workers`].
    Threads,
    /// With the stack that they run.
    Tasks(Option<&'a Stack>),
}

/// Does the task over each of these connections.
///
/// # Errors
/// The first failure, as a sentence.
pub fn run_all_by<S: Socket>(
    by: By<'_>,
    sockets: Vec<S>,
    tasks: &[Task],
) -> Result<Totals, Failure> {
    match by {
        By::Tasks(stack) => tasks::run_all(sockets, tasks, stack),
        By::Threads => run_all(&sockets, tasks),
    }
}

/// Does the task over each of these connections, in a thread each, or in this thread where there
/// is only one thing to do, anywhere.
///
/// # Errors
/// The first failure, as a sentence.
pub fn run_all<S: Socket>(sockets: &[S], tasks: &[Task]) -> Result<Totals, Failure> {
    let outcomes: Result<Vec<Outcome>, Failure> = match (sockets, tasks) {
        ([socket], [task]) if task.cpu.is_none() => run(socket, task).map(|outcome| vec![outcome]),
        _ => std::thread::scope(|scope| {
            let threads: Vec<_> = sockets
                .iter()
                .zip(tasks)
                .map(|(socket, task)| {
                    scope.spawn(move || {
                        task.cpu.map_or(Ok(()), pin_to_cpu)?;
                        run(socket, task)
                    })
                })
                .collect();
            threads.into_iter().map(joined).collect()
        }),
    };
    outcomes.map(|outcomes| Totals::of(&outcomes))
}

fn joined(
    thread: std::thread::ScopedJoinHandle<'_, Result<Outcome, Failure>>,
) -> Result<Outcome, Failure> {
    thread.join().unwrap_or_else(|_| Err(Failure::new("a thread of the workload panicked")))
}

/// Does the task over one connection and leaves it ended in both directions.
///
/// # Errors
/// A sentence: the connection failed, or a byte is not the one that was sent.
pub fn run(socket: &impl Socket, task: &Task) -> Result<Outcome, Failure> {
    match (&task.send, &task.receive) {
        (Some(sending), Some(receiving)) => std::thread::scope(|scope| {
            let receiver = scope.spawn(|| receive(socket, receiving));
            let sent = send(socket, sending).and_then(|sent| finish(socket).map(|()| sent));
            let received = joined(receiver);
            let (sent_bytes, sender) = sent?;
            Ok(Outcome { sent_bytes, sender, ..received? })
        }),
        (Some(sending), None) => {
            let (sent_bytes, sender) = send(socket, sending)?;
            finish(socket)?;
            wait_for_end(socket)?;
            Ok(Outcome { sent_bytes, sender, ..Outcome::default() })
        }
        (None, Some(receiving)) => {
            let outcome = receive(socket, receiving)?;
            finish(socket)?;
            Ok(outcome)
        }
        (None, None) => Ok(Outcome::default()),
    }
}

fn finish(socket: &impl Socket) -> Result<(), Failure> {
    socket.finish().attempt(|| "cannot end the stream")
}

fn wait_for_end(socket: &impl Socket) -> Result<(), Failure> {
    let mut byte = [0];
    match socket.receive(&mut byte).attempt(|| "the other end did not confirm the stream's end")? {
        0 => Ok(()),
        _ => {
            Err(Failure::new("the other end sent data where it should only have ended the stream"))
        }
    }
}

fn send(socket: &impl Socket, sending: &Sending) -> Result<(u64, Sender), Failure> {
    let (bytes_max, time) = match sending.amount {
        Amount::Bytes(bytes) => (bytes, Duration::MAX),
        Amount::Time(time) => (u64::MAX, time),
    };
    let mut block = Block::new(sending);
    let mut sent_bytes = 0;
    let before = Sender::of_this_thread();
    let started = Instant::now();
    while sent_bytes < bytes_max && started.elapsed() < time {
        let len = usize::try_from(bytes_max - sent_bytes)
            .map_or(sending.write_len_bytes, |left| left.min(sending.write_len_bytes));
        let pattern_at = (sent_bytes < sending.verified_len_bytes).then_some(sent_bytes);
        block
            .send(socket, pattern_at, len)
            .attempt(|| format!("sending failed after {sent_bytes} bytes"))?;
        sent_bytes += len as u64;
    }
    Ok((sent_bytes, Sender::of_this_thread().since(before)))
}

/// The application's memory: one block that is written over and over, or, where it is lent,
/// a new one each time the contents change.
struct Block {
    pattern: Pattern,
    copied: Vec<u8>,
    lent: Option<Bytes>,
}

impl Block {
    fn new(sending: &Sending) -> Self {
        Self {
            pattern: sending.pattern,
            copied: vec![0; sending.write_len_bytes],
            lent: sending.zero_copy.then(|| Bytes::from(vec![0; sending.write_len_bytes])),
        }
    }

    /// Sends `len` bytes: those that stand at `pattern_at`, or the block as it is.
    fn send(
        &mut self,
        socket: &impl Socket,
        pattern_at: Option<u64>,
        len: usize,
    ) -> std::io::Result<()> {
        let Some(lent) = &mut self.lent else {
            if let Some(offset) = pattern_at {
                self.pattern.fill(offset, &mut self.copied[..len]);
            }
            return socket.send(&self.copied[..len]);
        };
        if let Some(offset) = pattern_at {
            let mut fresh = vec![0; self.copied.len()];
            self.pattern.fill(offset, &mut fresh[..len]);
            *lent = Bytes::from(fresh);
        }
        socket.send_shared(lent.slice(..len))
    }
}

fn receive<S: Socket>(socket: &S, receiving: &Receiving) -> Result<Outcome, Failure> {
    let lends = receiving.zero_copy && S::LENDS;
    let mut buffer = vec![0; if lends { 0 } else { READ_LEN_BYTES }];
    let mut pieces = Vec::new();
    let (mut received_bytes, mut reads) = (0_u64, 0);
    let mut first = None;
    loop {
        pieces.clear();
        let received = match lends {
            true => socket.receive_shared(READ_LEN_BYTES, &mut pieces),
            false => socket.receive(&mut buffer),
        };
        let len = received.attempt(|| format!("receiving failed after {received_bytes} bytes"))?;
        if len == 0 {
            break;
        }
        first.get_or_insert_with(Instant::now);
        reads += 1;
        if lends {
            for piece in &pieces {
                receiving.check(received_bytes, piece)?;
                received_bytes += piece.len() as u64;
            }
        } else {
            receiving.check(received_bytes, &buffer[..len])?;
            received_bytes += len as u64;
        }
    }
    Ok(Outcome {
        received_bytes,
        received_between: first.map(|first| (first, Instant::now())),
        reads,
        ..Outcome::default()
    })
}

impl Receiving {
    /// Checks what arrived at this place of the stream, as far as it is to be checked.
    fn check(&self, at: u64, bytes: &[u8]) -> Result<(), Failure> {
        let left = self.verified_len_bytes.saturating_sub(at);
        let checked = usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
        if checked == 0 {
            return Ok(());
        }
        self.pattern
            .check(at, &bytes[..checked])
            .attempt(|| "the data that arrived is not the data that was sent")
    }
}

#[cfg(test)]
mod tests;
