//! How a verb ends before it is done: by a signal, or by something that makes going on useless, such as another
//! host with this stack's address.
//!
//! Whoever finds a reason [`begin`]s the end, on a thread of its own. The connection is reset there and then, so
//! that the other end is not left with half of a file and no word; that fails the call in which the main thread
//! waits, which then takes its usual way out of an error: the temporary file goes, the reset leaves the device, the
//! capture is completed. Where the main thread waits for something else, a file or a key exchange, it is given
//! [`WAY_OUT_TIME`], and the process ends without it.
//!
//! ```text
//!   signal, conflict -> begin: the reason, the reset -> main thread: error -> cleans up -> exit_code
//!                          \-> WAY_OUT_TIME later: the temporary file -> the process ends
//! ```
//!
//! What is measured goes on on a thread of its own, and the main thread tells what there is ([`unless_it_ends`]).

use crate::output::complain;
use bench::{Attempt, Failure};
use multidata::TcpStream;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, pthread_sigmask};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What the main thread may take to clean up.
const WAY_OUT_TIME: Duration = Duration::from_secs(1);

/// Why the program ends.
#[derive(Clone, Debug)]
pub(crate) enum Why {
    /// Somebody asked for it.
    Signal(Signal),
    /// Going on is useless.
    Useless(Failure),
}

/// The one end that a process has.
struct End {
    why: Option<Why>,
    temporary: Option<PathBuf>,
    stream: Option<TcpStream>,
    /// Has the main thread see the end through, where that is free to.
    on_begin: Option<Box<dyn FnOnce() + Send>>,
    is_over: bool,
}

static END: Mutex<End> =
    Mutex::new(End { why: None, temporary: None, stream: None, on_begin: None, is_over: false });

fn end() -> MutexGuard<'static, End> {
    END.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets an interruption from the terminal, or a polite request to end, begin the end. Signals go to a thread of
/// their own, so nothing is done inside a handler; a second one is not waited with. Those that this process was started
/// to ignore (nohup, a job in the background of a script) it ignores: who waits for a signal would get it all the same.
///
/// # Errors
/// A sentence.
pub(crate) fn arrange() -> Result<(), Failure> {
    let refused = || "cannot arrange for interruptions";
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT] {
        if !is_ignored(&status, signal) {
            signals.add(signal);
        }
    }
    pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&signals), None).attempt(refused)?;
    let wait = move || {
        while let Ok(signal) = signals.wait() {
            let is_first = why().is_none();
            let ending = std::thread::Builder::new().spawn(move || begin(Why::Signal(signal)));
            if !is_first || ending.is_err() {
                leave(&Why::Signal(signal));
            }
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(wait).map(drop).attempt(refused)
}

/// Whether a process of this /proc/PID/status ignores a signal.
fn is_ignored(status: &str, signal: Signal) -> bool {
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok());
    ignored.is_some_and(|bits| bits >> (signal as u32 - 1) & 1 == 1)
}

/// Does `work` on a thread of its own and waits until it is done or the end begins. Then there is no outcome: the caller
/// sees the end through, and the work goes on until the process is gone.
///
/// # Errors
/// There is no thread to be had.
pub(crate) fn unless_it_ends<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<Option<T>, Failure> {
    let (done, outcome) = channel();
    let begun = done.clone();
    end().on_begin = Some(Box::new(move || drop(begun.send(None))));
    if why().is_some() {
        return Ok(None);
    }
    let work = move || drop(done.send(Some(catch_unwind(AssertUnwindSafe(work)))));
    let refused = || "there is no thread to measure in";
    std::thread::Builder::new().name("work".to_owned()).spawn(work).attempt(refused)?;
    let outcome = outcome.recv().ok().flatten();
    end().on_begin = None;
    Ok(outcome.map(|done| done.unwrap_or_else(|panic| resume_unwind(panic))))
}

/// The temporary file, which must not be left behind.
pub(crate) fn remove_at_end(temporary: PathBuf) {
    end().temporary = Some(temporary);
}

/// The connection, which must not be left open.
pub(crate) fn reset_at_end(stream: TcpStream) {
    end().stream = Some(stream);
}

/// Lets go of the connection, which has its own end now.
pub(crate) fn spare_connection() {
    let spared = end().stream.take();
    drop(spared);
}

/// Why the program is about to end, if it is.
pub(crate) fn why() -> Option<Why> {
    end().why.clone()
}

/// An error where the program is about to end; its sentence is not for anybody to read.
///
/// # Errors
/// That one.
pub(crate) fn check() -> Result<(), Failure> {
    match why() {
        None => Ok(()),
        Some(_) => Err(Failure::new("interrupted")),
    }
}

/// Begins the end, unless it has begun, and sees it through, or leaves that to who waits for it. Blocks until the
/// process is gone otherwise.
pub(crate) fn begin(reason: Why) {
    let (stream, on_begin) = {
        let mut end = end();
        if end.why.is_some() || end.is_over {
            return;
        }
        end.why = Some(reason.clone());
        (end.stream.take(), end.on_begin.take())
    };
    if let Some(on_begin) = on_begin {
        return on_begin();
    }
    if let Some(stream) = stream {
        stream.abort();
    }
    std::thread::sleep(WAY_OUT_TIME);
    leave(&reason);
}

/// Ends the process, unless the main thread is about to.
fn leave(reason: &Why) {
    let temporary = {
        let mut end = end();
        if end.is_over {
            return;
        }
        end.is_over = true;
        end.temporary.take()
    };
    if let Some(temporary) = temporary {
        let _ = std::fs::remove_file(temporary);
    }
    std::process::exit(said(reason).into());
}

/// Says why the program ends, and with which exit code.
fn said(reason: &Why) -> u8 {
    match reason {
        // As shells have it.
        Why::Signal(signal) => 128 + *signal as u8,
        Why::Useless(failure) => {
            complain(&failure.to_string());
            1
        }
    }
}

/// The exit code of a verb whose outcome this is; says why it failed.
pub(crate) fn exit_code(outcome: Result<(), Failure>) -> u8 {
    let reason = {
        let mut end = end();
        if end.is_over {
            // The process ends this moment, and its code is decided.
            drop(end);
            loop {
                std::thread::park();
            }
        }
        end.is_over = true;
        end.why.clone()
    };
    match (outcome, reason) {
        (Ok(()), _) => 0,
        (Err(_), Some(reason)) => said(&reason),
        (Err(failure), None) => {
            complain(&failure.to_string());
            1
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ignored_is_known_by_its_bit() {
        let status = "Name:\tmultidata\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001003\n";
        let ignored =
            [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM].map(|it| is_ignored(status, it));
        assert_eq!(ignored, [true, true, false]);
        assert!(!is_ignored("", Signal::SIGINT));
    }
}
