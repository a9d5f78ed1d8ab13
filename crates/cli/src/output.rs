//! Standard output and standard error, without panics.

use bench::table::TABLE_EDGE;
use bench::whole_file::WholeFile;
use bench::{Attempt, Failure};
use std::io::{self, IsTerminal, Write};

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

/// Prints what was measured, prose in lines that fit a terminal, and writes it as JSON where that is asked for: a place
/// that takes the one not does not lose the other. Where standard output is for the JSON, the text goes to standard error.
///
/// # Errors
/// A sentence: the first thing that failed.
pub(crate) fn deliver(
    text: &str,
    place: Option<WholeFile>,
    json: impl FnOnce() -> Result<String, Failure>,
) -> Result<(), Failure> {
    let text = &wrap(text);
    let Some(place) = place else { return print(text) };
    let printed = match place.is_standard_output() {
        true => {
            io::stderr().write_all(text.as_bytes()).attempt(|| "cannot write to standard error")
        }
        false => print(text),
    };
    let written = json().and_then(|json| place.complete(json.as_bytes()));
    printed.and(written)
}

/// Columns of a terminal, as it comes.
pub(crate) const WIDTH: usize = 80;

/// Prose in lines that fit a terminal: what is longer goes on in the next line, where a word ends. Tables stay as
/// they are.
pub(crate) fn wrap(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / WIDTH);
    let mut is_table = false;
    for line in text.split_inclusive('\n') {
        let is_edge = line.starts_with(TABLE_EDGE);
        is_table ^= is_edge;
        if is_table || is_edge {
            out.push_str(line);
            continue;
        }
        let mut column = 0;
        for word in line.split_inclusive(' ') {
            let len = word.trim_end().chars().count();
            if column > 0 && column + len > WIDTH {
                out.truncate(out.trim_end_matches(' ').len());
                out.push('\n');
                column = 0;
            }
            out.push_str(word);
            column += word.chars().count();
        }
    }
    out
}

/// Says on standard error what is waited for, where that is a terminal: nobody else has to be told.
pub(crate) fn tell(sentence: &str) {
    if io::stderr().is_terminal() {
        complain(sentence);
    }
}

/// Ends a line that says what runs now, where standard error is a terminal and whoever drew it will not.
pub(crate) fn leave_line() {
    if io::stderr().is_terminal() {
        note("\n");
    }
}

/// Writes lines to standard error, or to nobody where that is closed.
pub(crate) fn note(lines: &str) {
    let _ = io::stderr().write_all(lines.as_bytes());
}

/// Says that a capture is not whole, where so many packets came faster than it was written.
pub(crate) fn tell_missing(packets: u64) {
    if packets > 0 {
        complain(&format!("{packets} packets are missing from the capture"));
    }
}

/// Says something on standard error, or to nobody where that is closed.
pub(crate) fn complain(sentence: &str) {
    let _ = writeln!(io::stderr(), "multidata: {sentence}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_go_on_where_a_word_ends_and_short_ones_stay() {
        let sentence = "word ".repeat(40);
        let text = format!("short\n{}.\n\nthe end", sentence.trim_end());
        let wrapped = wrap(&text);
        assert!(
            wrapped.lines().all(|line| line.len() <= WIDTH && !line.ends_with(' ')),
            "{wrapped}"
        );
        assert!(wrapped.starts_with("short\nword word"), "{wrapped}");
        assert!(wrapped.ends_with(".\n\nthe end"), "{wrapped}");
        assert_eq!(wrapped.split_whitespace().count(), text.split_whitespace().count());
        assert_eq!(wrapped.lines().count(), 1 + 3 + 1 + 1);
        let table = format!("────\n{sentence}\n────\n");
        assert_eq!(wrap(&table), table);
        assert!(wrap(&(table.clone() + &text)).starts_with(&(table + "short\nword")));
        // What has no place to break stays whole.
        assert_eq!(wrap(&"x".repeat(100)), "x".repeat(100));
    }
}
