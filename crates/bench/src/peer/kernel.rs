//! The kernel's end: plain sockets in a child process.
//!
//! CPU time is accounted per process, so the kernel's end must not share ours. The child is this
//! same program, started again under a hidden verb ([`VERB`]) inside the same namespaces. The two
//! talk over the child's standard input and output, one JSON object a line:
//!
//! ```text
//!  parent                                 child
//!    | Task ------------------------------> |
//!    | <----------- Listening { address }   |   only where the child listens
//!    |        ...the connections work...    |
//!    | <---- Done { .. } | Failed { .. }    |
//!    | (closes standard input) -----------> |   ends
//! ```
//!
//! The child ends when its standard input does, so it never outlives its parent.

use crate::peer::tunnel::TunnelEnd;
use crate::scenario::Amount;
use crate::socket::{Socket, retry_interrupted};
use crate::workload::request_response::{self, Asked, AskingAll};
use crate::workload::stream::{self, By, Totals, Workers};
use crate::{Attempt, Failure};
use linux::{descriptors, kernel_socket};
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// The hidden verb under which the program is the kernel's end.
pub const VERB: &str = "kernel-end";

/// Nothing moves for this long: the connection is stuck and the run fails.
pub const STUCK: Duration = Duration::from_secs(30);

/// What the child has open beside its connections: standard streams, a listener, what the scheduler of tasks waits by.
const OTHER_DESCRIPTORS: usize = 64;

/// How long a connection may take to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// What the child is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    /// How the ends meet.
    pub meeting: Meeting,
    /// How many connections.
    pub connections: usize,
    /// A task for each of them instead of a thread.
    pub workers: Workers,
    /// What to do over them.
    pub work: Work,
    /// Run on this CPU only.
    pub cpu: Option<usize>,
}

/// How the ends meet.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Meeting {
    /// The kernel listens here; port 0 lets it choose.
    Listen(SocketAddr),
    /// The kernel connects to this stack there.
    Connect(SocketAddr),
    /// No kernel: a second stack of ours listens at the far end of a tunnel.
    Tunnel(TunnelEnd),
}

/// What to do over the connections.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Work {
    /// Bulk transfer.
    Stream(stream::Plan),
    /// Requests, over each connection.
    Ask {
        /// From which the contents derive.
        seed: u64,
        /// When to end.
        amount: Amount,
        /// Length of a request.
        len_bytes: usize,
    },
}

/// What the child reports.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Report {
    Listening(SocketAddr),
    Streamed(Totals),
    Asked(Asked),
    Failed(String),
}

/// What the kernel's end did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Done {
    /// Bulk transfer.
    Streamed(Totals),
    /// Transactions.
    Asked(Asked),
}

/// The child, as its parent sees it. Dropped, it ends.
#[derive(Debug)]
pub struct KernelEnd {
    child: Child,
    /// Held open: its end tells the child to end.
    _stdin: ChildStdin,
    reports: Receiver<Report>,
}

impl KernelEnd {
    /// Starts the child with this task.
    ///
    /// # Errors
    /// A sentence, where the program cannot be started again.
    pub fn start(task: &Task) -> Result<Self, Failure> {
        let refused = || "cannot start the process that holds the kernel's end";
        let mut child = Command::new("/proc/self/exe")
            .arg(VERB)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .attempt(refused)?;
        let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Failure::new(refused()));
        };
        let mut line = serde_json::to_vec(task).attempt(refused)?;
        line.push(b'\n');
        stdin.write_all(&line).attempt(refused)?;
        let (sender, reports) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let report = serde_json::from_str(&line)
                    .unwrap_or_else(|_| Report::Failed(format!("it said \"{line}\"")));
                if sender.send(report).is_err() {
                    break;
                }
            }
        });
        Ok(Self { child, _stdin: stdin, reports })
    }

    /// The address that the child listens on.
    ///
    /// # Errors
    /// A sentence, where it does not listen.
    pub fn listening(&self) -> Result<SocketAddr, Failure> {
        match self.report(CONNECT_TIMEOUT)? {
            Report::Listening(address) => Ok(address),
            _ => Err(Failure::new("the kernel's end did not say where it listens")),
        }
    }

    /// What the child did, once this stack's end is done.
    ///
    /// # Errors
    /// The child's failure, as a sentence.
    pub fn done(self) -> Result<Done, Failure> {
        match self.report(STUCK)? {
            Report::Streamed(totals) => Ok(Done::Streamed(totals)),
            Report::Asked(asked) => Ok(Done::Asked(asked)),
            _ => Err(Failure::new("the kernel's end said something unexpected")),
        }
    }

    /// Where both ends failed, the one that failed first knows why; that is the child where it
    /// speaks now.
    #[must_use]
    pub fn blame(self, ours: Failure) -> Failure {
        match self.reports.recv_timeout(Duration::from_millis(500)) {
            Ok(Report::Failed(sentence)) => theirs(&sentence),
            _ => ours,
        }
    }

    fn report(&self, timeout: Duration) -> Result<Report, Failure> {
        match self.reports.recv_timeout(timeout) {
            Ok(Report::Failed(sentence)) => Err(theirs(&sentence)),
            Ok(report) => Ok(report),
            Err(RecvTimeoutError::Timeout) => Err(Failure::new(format!(
                "the kernel's end said nothing for {} s",
                timeout.as_secs()
            ))),
            Err(RecvTimeoutError::Disconnected) => {
                Err(Failure::new("the process that holds the kernel's end ended without a word"))
            }
        }
    }
}

fn theirs(sentence: &str) -> Failure {
    Failure::new(format!("at the kernel's end, {sentence}"))
}

impl Drop for KernelEnd {
    fn drop(&mut self) {
        // It may be gone already, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Why the kernel's end cannot have so many connections here, if it cannot: each is a descriptor.
#[must_use]
pub fn why_not(connections: usize) -> Option<Failure> {
    let most = descriptors::most();
    (connections > most.saturating_sub(OTHER_DESCRIPTORS)).then(|| {
        Failure::new(format!(
            "{connections} sockets of the kernel's are more than a process may have open here: raise its limit \
             of {most} descriptors (ulimit -Hn)"
        ))
    })
}

/// The child's whole life: reads its task from standard input, does it, reports on standard output.
#[must_use]
pub fn serve() -> ExitCode {
    descriptors::raise();
    let mut input = BufReader::new(std::io::stdin());
    let mut line = String::new();
    let task = input
        .read_line(&mut line)
        .attempt(|| "cannot read the task")
        .and_then(|_| serde_json::from_str::<Task>(&line).attempt(|| "the task is not one"));
    std::thread::spawn(move || {
        // Nothing more comes: this returns when the parent has ended or has what it wanted.
        let _ = retry_interrupted(|| input.read_line(&mut String::new()));
        std::process::exit(1);
    });
    match task.and_then(|task| work(&task)) {
        Ok(report) => {
            say(&report);
            ExitCode::SUCCESS
        }
        Err(failure) => {
            say(&Report::Failed(failure.to_string()));
            ExitCode::FAILURE
        }
    }
}

/// A parent that does not listen any more has ended, and so will this process.
fn say(report: &Report) {
    let mut output = std::io::stdout().lock();
    let _ = serde_json::to_writer(&mut output, report);
    let _ = output.write_all(b"\n").and_then(|()| output.flush());
}

fn work(task: &Task) -> Result<Report, Failure> {
    if let Some(cpu) = task.cpu {
        crate::place::pin_to_cpu(cpu)?;
    }
    if let Meeting::Tunnel(end) = &task.meeting {
        let said = |address| say(&Report::Listening(address));
        let (station, sockets) = end.meet(task.connections, said)?;
        if let Work::Ask { .. } = task.work {
            for socket in &sockets {
                socket.set_nodelay(true).attempt(|| "cannot set a socket up")?;
            }
        }
        return work_over(task, sockets, station.by(task.workers));
    }
    work_over(task, meet(task)?, task.workers.of(None))
}

fn work_over<S: Socket>(task: &Task, sockets: Vec<S>, by: By<'_>) -> Result<Report, Failure> {
    match (&task.work, sockets.first()) {
        (Work::Stream(plan), _) => {
            let tasks = plan.tasks(&sockets)?;
            stream::run_all_by(by, sockets, &tasks).map(Report::Streamed)
        }
        (Work::Ask { seed, amount, len_bytes }, Some(_)) => {
            let connected = matches!(task.meeting, Meeting::Connect(_));
            let asking =
                AskingAll { seed: *seed, connected, amount: *amount, len_bytes: *len_bytes };
            let sockets: Vec<(&S, Option<usize>)> = sockets.iter().map(|it| (it, None)).collect();
            request_response::ask_all(&sockets, &asking).map(Report::Asked)
        }
        (Work::Ask { .. }, None) => Err(Failure::new("there is no connection to ask over")),
    }
}

fn meet(task: &Task) -> Result<Vec<TcpStream>, Failure> {
    let sockets: Result<Vec<TcpStream>, Failure> = match task.meeting {
        Meeting::Listen(address) => {
            let listener = listen(address, task.connections)
                .attempt(|| format!("cannot listen on {address}"))?;
            let listening =
                listener.local_addr().attempt(|| "a listening socket has no address")?;
            say(&Report::Listening(listening));
            (0..task.connections)
                .map(|_| {
                    let accepted = listener.accept().attempt(|| "cannot accept a connection")?;
                    Ok(accepted.0)
                })
                .collect()
        }
        // That end has sockets of its own, see `work`.
        Meeting::Tunnel(_) => return Err(Failure::new("a tunnel has no kernel at its end")),
        Meeting::Connect(address) => (0..task.connections)
            .map(|_| {
                connect(&address).attempt(|| format!("cannot connect to this stack at {address}"))
            })
            .collect(),
    };
    let sockets = sockets?;
    for socket in &sockets {
        prepare(socket)?;
    }
    Ok(sockets)
}

/// The kernel's ends use what this stack does: a machine's default may be another algorithm, and a
/// namespace of one's own may not change that. Where the kernel has no CUBIC, its default stays.
const CONGESTION: &str = "cubic";

/// Listens by the kernel's TCP for so many, with [`CONGESTION`].
pub(crate) fn listen(address: SocketAddr, connections: usize) -> io::Result<TcpListener> {
    let listener = kernel_socket::listen(address, connections)?;
    let _ = kernel_socket::set_congestion(&listener, CONGESTION);
    Ok(listener)
}

/// Connects by the kernel's TCP, with [`CONGESTION`].
pub(crate) fn connect(to: &SocketAddr) -> io::Result<TcpStream> {
    match kernel_socket::connect(to, CONGESTION, CONNECT_TIMEOUT) {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {
            TcpStream::connect_timeout(to, CONNECT_TIMEOUT)
        }
        outcome => outcome,
    }
}

fn prepare(socket: &TcpStream) -> Result<(), Failure> {
    socket
        .set_nodelay(true)
        .and_then(|()| socket.set_read_timeout(Some(STUCK)))
        .and_then(|()| socket.set_write_timeout(Some(STUCK)))
        .attempt(|| "cannot set the kernel's socket up")
}
