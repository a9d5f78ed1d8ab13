//! A second stack of ours at the other end of an in-process wire.

use crate::scenario::Amount;
use crate::station::{self, Station};
use crate::verify::{Flow, Pattern};
use crate::workload::request_response::{self, Asked, Asking};
use crate::workload::stream::{self, Task, Totals};
use crate::{Attempt, Failure};
use multidata::TcpStream;

/// The connections of two stacks, each by both its ends; the near end made them.
#[derive(Debug)]
pub struct Pair {
    /// This stack's ends.
    pub near: Vec<TcpStream>,
    /// The other stack's ends, in the order in which they were accepted.
    pub far: Vec<TcpStream>,
}

/// Connects two stacks.
///
/// # Errors
/// A sentence.
pub fn meet(near: &Station, far: &Station, connections: usize) -> Result<Pair, Failure> {
    let listener = far.listen(connections)?;
    let at = listener.local_addr().attempt(|| "a listening socket has no address")?;
    std::thread::scope(|scope| {
        let accepting = scope.spawn(|| station::accept(&listener, connections));
        let near = near.connect(at, connections)?;
        Ok(Pair { near, far: joined(accepting.join())? })
    })
}

/// Does both ends' tasks at the same time.
///
/// # Errors
/// A sentence.
pub fn stream(
    by_tasks: bool,
    pair: Pair,
    near: &[Task],
    far: &[Task],
) -> Result<(Totals, Totals), Failure> {
    std::thread::scope(|scope| {
        let other = scope.spawn(|| stream::run_all_by(by_tasks, pair.far, far));
        let ours = stream::run_all_by(by_tasks, pair.near, near);
        let theirs = joined(other.join());
        Ok((ours?, theirs?))
    })
}

/// The other end asks, this one answers.
///
/// # Errors
/// A sentence.
pub fn ask(pair: &Pair, seed: u64, amount: Amount, len_bytes: usize) -> Result<Asked, Failure> {
    let ([near, ..], [far, ..]) = (&pair.near[..], &pair.far[..]) else {
        return Err(Failure::new("there is no connection to ask over"));
    };
    for socket in [near, far] {
        socket.set_nodelay(true).attempt(|| "cannot set a socket up")?;
    }
    let port = stream::connector_port(far, false)?;
    let pattern = Pattern::new(seed, port, Flow::ToConnector);
    let asking = Asking { pattern, amount, len_bytes };
    std::thread::scope(|scope| {
        let answering = scope.spawn(|| request_response::answer(near, len_bytes));
        let asked = request_response::ask(far, &asking);
        joined(answering.join())?;
        asked
    })
}

fn joined<T>(outcome: std::thread::Result<Result<T, Failure>>) -> Result<T, Failure> {
    outcome.unwrap_or_else(|_| Err(Failure::new("a thread of the other end panicked")))
}
