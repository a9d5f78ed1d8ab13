//! How `send`, `receive` and `ping` end before they are done: a signal, or something that makes going on
//! useless, such as another host with this stack's address.
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

use crate::output::complain;
use bench::{Attempt, Failure};
use multidata::TcpStream;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, pthread_sigmask};
use std::path::PathBuf;
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
    is_over: bool,
}

static END: Mutex<End> =
    Mutex::new(End { why: None, temporary: None, stream: None, is_over: false });

fn end() -> MutexGuard<'static, End> {
    END.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets an interruption from the terminal, or a polite request to end, begin the end. Signals go to a thread of
/// their own, so nothing is done inside a handler; a second one is not waited with.
///
/// # Errors
/// A sentence.
pub(crate) fn arrange() -> Result<(), Failure> {
    let refused = || "cannot arrange for interruptions";
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        signals.add(signal);
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

/// Begins the end, unless it has begun, and sees it through. Blocks until the process is gone.
pub(crate) fn begin(reason: Why) {
    let stream = {
        let mut end = end();
        if end.why.is_some() || end.is_over {
            return;
        }
        end.why = Some(reason.clone());
        end.stream.take()
    };
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
