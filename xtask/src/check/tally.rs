//! Counting tests while their output passes through.
//!
//! In: the standard output of `cargo test`. Out: the same bytes, line by line, and the sum of all
//! `test result:` lines. A test binary that dies prints no such line; its run then counts as one
//! failure at least, so that the sum cannot say that all is well. What failed tests said is kept, to
//! be printed under the sums: of a log of thousands of lines often only the end is at hand.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use crate::Failure;

/// What is kept of what one failed test said, its name's line among them.
const REPORT_LINES_MAX: usize = 20;

/// The sum over all runs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    passed: usize,
    failed: usize,
    failures: String,
}

/// What one run of `cargo test` gave.
#[derive(Debug, Default)]
pub(super) struct Counted {
    passed: usize,
    failed: usize,
    /// What failed tests said.
    failures: String,
    /// Of the test whose report is being read, what may still be kept. None outside of reports.
    report_lines_left: Option<usize>,
    /// Whether cargo itself was content.
    pub(super) success: bool,
}

impl Tally {
    /// Adds a run. A test that could not run says so and returns, which the test harness takes for
    /// a pass; `withheld` of them are taken out again.
    pub(super) fn add(&mut self, run: &Counted, withheld: usize) {
        self.passed += run.passed.saturating_sub(withheld);
        self.failed += if run.success { run.failed } else { run.failed.max(1) };
        self.failures.push_str(&run.failures);
    }

    /// What failed tests said, each from its name on. Empty where none failed, or none could say so.
    pub(super) fn failures(&self) -> &str {
        &self.failures
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} passed, {} failed", self.passed, self.failed)
    }
}

impl Counted {
    fn on_line(&mut self, line: &str) {
        self.keep_report(line);
        // A test that prints without a newline leaves its text in front.
        let Some((_, result)) = line.split_once("test result: ") else { return };
        let number_of = |what: &str| {
            let part =
                result.split([';', '.']).map(str::trim).find_map(|part| part.strip_suffix(what));
            part.and_then(|number| number.trim().parse::<usize>().ok()).unwrap_or(0)
        };
        self.passed += number_of("passed");
        self.failed += number_of("failed");
    }

    /// Between two lines `failures:` the test harness prints what each failed test said, under its name.
    fn keep_report(&mut self, line: &str) {
        let is_bound = line.trim_end() == "failures:";
        if is_bound || line.starts_with("---- ") {
            let ends = is_bound && self.report_lines_left.is_some();
            self.report_lines_left = (!ends).then_some(REPORT_LINES_MAX);
        }
        if is_bound {
            return;
        }
        if let Some(left @ 1..) = &mut self.report_lines_left {
            *left -= 1;
            self.failures.push_str(line.trim_end());
            self.failures.push('\n');
        }
    }
}

/// Runs a command, passes its standard output through to `through` and counts.
///
/// # Errors
/// When it cannot be started or its output cannot be read or written.
pub(super) fn stream(command: &mut Command, through: &mut impl Write) -> Result<Counted, Failure> {
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut counted = Counted::default();
    if let Some(output) = child.stdout.take() {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        while output.read_until(b'\n', &mut line)? > 0 {
            through.write_all(&line)?;
            counted.on_line(&String::from_utf8_lossy(&line));
            line.clear();
        }
    }
    counted.success = child.wait()?.success();
    Ok(counted)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSED: &str = "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s";
    const FAILED: &str = "test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s";

    fn counted(lines: &[&str], success: bool) -> Counted {
        let mut counted = Counted { success, ..Counted::default() };
        lines.iter().for_each(|line| counted.on_line(line));
        counted
    }

    fn tally(runs: &[(Counted, usize)]) -> String {
        let mut tally = Tally::default();
        runs.iter().for_each(|(run, withheld)| tally.add(run, *withheld));
        tally.to_string()
    }

    #[test]
    fn results_are_summed_over_binaries_and_runs() {
        let first = counted(&["running 12 tests", PASSED, FAILED], false);
        let second = counted(&[&format!("text without newline{PASSED}")], true);
        assert_eq!(tally(&[(first, 0), (second, 0)]), "27 passed, 2 failed");
    }

    #[test]
    fn a_run_that_dies_is_a_failure() {
        assert_eq!(tally(&[(counted(&[PASSED], false), 0)]), "12 passed, 1 failed");
    }

    #[test]
    fn a_test_that_could_not_run_has_not_passed() {
        assert_eq!(tally(&[(counted(&[PASSED], true), 2)]), "10 passed, 0 failed");
    }

    #[test]
    fn what_failed_tests_said_is_kept_in_part() {
        let long = "a line\n".repeat(100);
        let report = format!(
            "noise\nfailures:\n\n---- a stdout ----\nbecause\n\n---- b stdout ----\n{long}\nfailures:\n    a\n{FAILED}"
        );
        let run = counted(&report.lines().collect::<Vec<_>>(), false);
        let mut tally = Tally::default();
        tally.add(&run, 0);
        let kept: Vec<&str> = tally.failures().lines().filter(|line| !line.is_empty()).collect();
        assert_eq!(kept[..3], ["---- a stdout ----", "because", "---- b stdout ----"]);
        assert_eq!(kept.len(), 3 + REPORT_LINES_MAX - 1);
    }

    #[test]
    fn a_command_is_streamed_and_its_verdict_kept() {
        let mut through = Vec::new();
        let script = format!("echo '{FAILED}'; exit 1");
        let run = stream(Command::new("sh").args(["-c", &script]), &mut through).expect("sh runs");
        assert_eq!(String::from_utf8_lossy(&through), format!("{FAILED}\n"));
        assert!(!run.success);
        assert_eq!((run.passed, run.failed), (3, 2));
    }
}
