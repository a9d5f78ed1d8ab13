//! Transactions: a request of some bytes, the same bytes back, and again.
//!
//! The asking end holds the clock and checks that each response is its request; the contents go on
//! from transaction to transaction, so that an answer to an earlier request does not pass.

use crate::place::on_cpu;
use crate::scenario::{Amount, Scenario};
use crate::socket::Socket;
use crate::verify::{Flow, Pattern};
use crate::workload::stream::connector_port;
use crate::{Attempt, Failure};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// How many transaction times are kept for median and p99; later ones overwrite earlier ones.
const TIMES_KEPT: usize = 1 << 16;

/// What the asking end of one connection is to do.
#[derive(Clone, Debug)]
pub struct Asking {
    /// The contents of the requests.
    pub pattern: Pattern,
    /// When to end: a time, or bytes of requests.
    pub amount: Amount,
    /// Length of a request.
    pub len_bytes: usize,
}

/// What the asking end did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    /// Transactions completed.
    pub transactions: u64,
    /// Seconds they took together; over several connections, the longest of these.
    pub seconds: f64,
    /// Median time of one, in nanoseconds; over several connections, the median of their medians.
    pub median_ns: u64,
    /// The time that one in a hundred exceeded, in nanoseconds; over several connections, the longest of
    /// theirs.
    pub p99_ns: u64,
}

/// What the asking end of all connections is to do.
#[derive(Clone, Debug)]
pub struct AskingAll {
    /// From which all contents derive.
    pub seed: u64,
    /// This end made the connections.
    pub connected: bool,
    /// When to end; bytes are divided among the connections.
    pub amount: Amount,
    /// Length of a request.
    pub len_bytes: usize,
}

/// Asks over each of these connections at the same time, see `over_all`.
///
/// # Errors
/// The first failure, as a sentence.
pub fn ask_all<S: Socket>(
    sockets: &[(&S, Option<usize>)],
    all: &AskingAll,
) -> Result<Asked, Failure> {
    let flow = if all.connected { Flow::FromConnector } else { Flow::ToConnector };
    let asked = over_all(sockets, |index, socket| {
        let port = connector_port(socket, all.connected)?;
        let amount = match all.amount {
            Amount::Bytes(bytes) => {
                Amount::Bytes(Scenario::share_bytes(bytes, sockets.len(), index))
            }
            time @ Amount::Time(_) => time,
        };
        let pattern = Pattern::new(all.seed, port, flow);
        ask(socket, &Asking { pattern, amount, len_bytes: all.len_bytes })
    })?;
    let mut medians: Vec<u64> = asked.iter().map(|one| one.median_ns).collect();
    medians.sort_unstable();
    Ok(Asked {
        transactions: asked.iter().map(|one| one.transactions).sum(),
        seconds: asked.iter().fold(0.0, |longest, one| longest.max(one.seconds)),
        median_ns: medians.get(medians.len() / 2).copied().unwrap_or(0),
        p99_ns: asked.iter().map(|one| one.p99_ns).max().unwrap_or(0),
    })
}

/// Answers over each of these connections at the same time, see `over_all`. Returns the number of
/// transactions.
///
/// # Errors
/// The first failure, as a sentence.
pub fn answer_all<S: Socket>(
    sockets: &[(&S, Option<usize>)],
    len_bytes: usize,
) -> Result<u64, Failure> {
    Ok(over_all(sockets, |_, socket| answer(socket, len_bytes))?.into_iter().sum())
}

/// Does the same over each connection, in a thread each that is kept on the CPU named beside it, or in
/// this thread where there is one connection and no CPU is named.
fn over_all<S: Socket, T: Send>(
    sockets: &[(&S, Option<usize>)],
    act: impl Fn(usize, &S) -> Result<T, Failure> + Sync,
) -> Result<Vec<T>, Failure> {
    if let [(socket, None)] = sockets {
        return act(0, socket).map(|done| vec![done]);
    }
    std::thread::scope(|scope| {
        let each = sockets.iter().enumerate().map(|(index, &(socket, cpu))| {
            let act = &act;
            scope.spawn(move || on_cpu(cpu, || act(index, socket))?)
        });
        let threads: Vec<_> = each.collect();
        let joined = threads.into_iter().map(|thread| {
            let panicked = || Err(Failure::new("a thread of the workload panicked"));
            thread.join().unwrap_or_else(|_| panicked())
        });
        joined.collect()
    })
}

/// Sends requests and waits for each response.
///
/// # Errors
/// A sentence: the connection failed, or a response is not its request.
pub fn ask(socket: &impl Socket, asking: &Asking) -> Result<Asked, Failure> {
    let (bytes_max, time) = match asking.amount {
        Amount::Bytes(bytes) => (bytes, Duration::MAX),
        Amount::Time(time) => (u64::MAX, time),
    };
    let mut request = vec![0; asking.len_bytes];
    let mut response = vec![0; asking.len_bytes];
    let mut times_ns = Vec::new();
    let mut asked_bytes = 0_u64;
    let mut transactions = 0_u64;
    let started = Instant::now();
    let mut ended = Duration::ZERO;
    while asked_bytes < bytes_max && ended < time {
        asking.pattern.fill(asked_bytes, &mut request);
        socket
            .send(&request)
            .attempt(|| format!("the request failed after {transactions} transactions"))?;
        if !read_exactly(socket, &mut response)? {
            return Err(Failure::new(format!(
                "the other end ended the stream after {transactions} transactions"
            )));
        }
        asking.pattern.check(asked_bytes, &response).attempt(|| "a response is not its request")?;
        let now = started.elapsed();
        keep(&mut times_ns, transactions, now.saturating_sub(ended));
        ended = now;
        asked_bytes += asking.len_bytes as u64;
        transactions += 1;
    }
    socket.finish().attempt(|| "cannot end the stream")?;
    let mut rest = [0];
    match socket.receive(&mut rest).attempt(|| "the other end did not end the stream")? {
        0 => {}
        _ => return Err(Failure::new("the other end answered more than it was asked")),
    }
    times_ns.sort_unstable();
    let at = |index: usize| times_ns.get(index).copied().unwrap_or(0);
    let (median_ns, p99_ns) = (at(times_ns.len() / 2), at(times_ns.len() * 99 / 100));
    Ok(Asked { transactions, seconds: ended.as_secs_f64(), median_ns, p99_ns })
}

fn keep(times_ns: &mut Vec<u64>, index: u64, time: Duration) {
    let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    if times_ns.len() < TIMES_KEPT {
        times_ns.push(time_ns);
    } else {
        times_ns[index as usize % TIMES_KEPT] = time_ns;
    }
}

/// Sends back what comes in, `len_bytes` at a time, until the other end ends the stream. Returns
/// the number of transactions.
///
/// # Errors
/// A sentence: the connection failed.
pub fn answer(socket: &impl Socket, len_bytes: usize) -> Result<u64, Failure> {
    let mut buffer = vec![0; len_bytes];
    let mut transactions = 0;
    while read_exactly(socket, &mut buffer)? {
        socket
            .send(&buffer)
            .attempt(|| format!("the response failed after {transactions} transactions"))?;
        transactions += 1;
    }
    socket.finish().attempt(|| "cannot end the stream")?;
    Ok(transactions)
}

/// Fills `bytes`, or finds the end of the stream before the first of them (`false`).
fn read_exactly(socket: &impl Socket, bytes: &mut [u8]) -> Result<bool, Failure> {
    let mut len = 0;
    while len < bytes.len() {
        match socket.receive(&mut bytes[len..]).attempt(|| "receiving failed")? {
            0 if len == 0 => return Ok(false),
            0 => return Err(Failure::new("the stream ended inside a transaction")),
            more => len += more,
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    fn asking(amount: Amount, len_bytes: usize) -> Asking {
        Asking { pattern: Pattern::new(3, 1, Flow::FromConnector), amount, len_bytes }
    }

    #[test]
    fn counts_transactions_at_both_ends() {
        for len_bytes in [1, 7, 20_000] {
            let (near, far) = pair();
            let other = std::thread::spawn(move || answer(&far, len_bytes));
            let bytes = 50 * len_bytes as u64;
            let asked = ask(&near, &asking(Amount::Bytes(bytes), len_bytes)).unwrap();
            assert_eq!(asked.transactions, 50);
            assert!(asked.seconds > 0.0 && asked.median_ns > 0);
            assert!(asked.p99_ns >= asked.median_ns);
            assert_eq!(other.join().unwrap().unwrap(), 50);
        }
    }

    #[test]
    fn several_connections_are_summed_up() {
        let (near, far): (Vec<_>, Vec<_>) = (0..3).map(|_| pair()).unzip();
        let all = AskingAll { seed: 3, connected: true, amount: Amount::Bytes(10), len_bytes: 1 };
        let cpus = linux::cpu::allowed().unwrap();
        std::thread::scope(|scope| {
            let far: Vec<_> = far.iter().map(|socket| (socket, None)).collect();
            let other = scope.spawn(move || answer_all(&far, 1));
            let near: Vec<_> = near.iter().map(|socket| (socket, cpus.last().copied())).collect();
            let asked = ask_all(&near, &all).unwrap();
            assert_eq!(asked.transactions, 4 + 3 + 3);
            assert!(asked.seconds > 0.0 && asked.median_ns > 0);
            assert_eq!(other.join().unwrap().unwrap(), 10);
        });
    }

    #[test]
    fn a_wrong_response_is_a_failure() {
        let (near, mut far) = pair();
        let other = std::thread::spawn(move || {
            let mut byte = [0];
            far.read_exact(&mut byte).unwrap();
            far.write_all(&[!byte[0]]).unwrap();
        });
        let failure = ask(&near, &asking(Amount::Bytes(10), 1)).unwrap_err();
        assert!(failure.to_string().contains("a response is not its request"), "{failure}");
        other.join().unwrap();
    }
}
