//! Standard output and standard error, without panics.

use bench::{Attempt, Failure};
use std::io::{self, Write};

/// Prints text on standard output. A reader that went away (`| head`) wants no more; that is all.
///
/// # Errors
/// A sentence, where the text cannot be written for another reason.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut output = io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome.attempt(|| "cannot write to standard output"),
    }
}

/// Says something on standard error, or to nobody where that is closed.
pub(crate) fn complain(sentence: &str) {
    let _ = writeln!(io::stderr(), "multidata: {sentence}");
}
