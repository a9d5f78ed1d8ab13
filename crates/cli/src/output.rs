//! Standard output and standard error, without panics.

use bench::{Attempt, Failure, whole_file};
use std::io::{self, IsTerminal, Write};
use std::path::Path;

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

/// Prints what was measured and writes it as JSON where that is asked for: a place that takes the one not does not
/// lose the other. Where standard output is for the JSON, the text goes to standard error.
///
/// # Errors
/// A sentence: the first thing that failed.
pub(crate) fn deliver(
    text: &str,
    file: Option<&Path>,
    json: impl FnOnce() -> Result<String, Failure>,
) -> Result<(), Failure> {
    let Some(file) = file else { return print(text) };
    let printed = match whole_file::is_standard_output(file) {
        true => {
            io::stderr().write_all(text.as_bytes()).attempt(|| "cannot write to standard error")
        }
        false => print(text),
    };
    let written = json().and_then(|json| whole_file::write_whole(file, json.as_bytes()));
    printed.and(written)
}

/// Says on standard error what is waited for, where that is a terminal: nobody else has to be told.
pub(crate) fn tell(sentence: &str) {
    if io::stderr().is_terminal() {
        complain(sentence);
    }
}

/// Says something on standard error, or to nobody where that is closed.
pub(crate) fn complain(sentence: &str) {
    let _ = writeln!(io::stderr(), "multidata: {sentence}");
}
