//! A second stack of ours at the other end of an in-process wire.

use crate::station::{self, Station};
use crate::workload::request_response::{self, Asked, AskingAll};
use crate::workload::stream::{self, By, Task, Totals};
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
    [near_by, far_by]: [By<'_>; 2],
    pair: Pair,
    near: &[Task],
    far: &[Task],
) -> Result<(Totals, Totals), Failure> {
    std::thread::scope(|scope| {
        let other = scope.spawn(|| stream::run_all_by(far_by, pair.far, far));
        let ours = stream::run_all_by(near_by, pair.near, near);
        let theirs = joined(other.join());
        Ok((ours?, theirs?))
    })
}

/// The other end asks, this one answers.
///
/// # Errors
/// A sentence.
pub fn ask(
    pair: &Pair,
    (near, far): (&Station, &Station),
    asking: &AskingAll,
) -> Result<Asked, Failure> {
    for socket in pair.near.iter().chain(&pair.far) {
        socket.set_nodelay(true).attempt(|| "cannot set a socket up")?;
    }
    let (near, far) = (near.placed(&pair.near), far.placed(&pair.far));
    std::thread::scope(|scope| {
        let answering = scope.spawn(|| request_response::answer_all(&near, asking.len_bytes));
        let asked = request_response::ask_all(&far, asking);
        joined(answering.join())?;
        asked
    })
}

fn joined<T>(outcome: std::thread::Result<Result<T, Failure>>) -> Result<T, Failure> {
    outcome.unwrap_or_else(|_| Err(Failure::new("a thread of the other end panicked")))
}
