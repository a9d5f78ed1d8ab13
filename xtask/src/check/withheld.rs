//! Tests that could not run, and why.
//!
//! The agreement with the tests: `MULTIDATA_CANNOT_RUN_DIR` names a directory; a test that lacks
//! what it needs writes a file there, named after itself, with the reason in it, prints
//! `CANNOT RUN: <test>: <why>` to standard error and returns. Each run of tests has a directory of
//! its own, because the same test may run in two profiles.

use std::fs;
use std::path::PathBuf;

use crate::Failure;

/// What was held back in all runs.
pub(super) struct Withheld {
    directory: PathBuf,
    /// Which test or bench, and why.
    found: Vec<(String, String)>,
}

impl Withheld {
    /// Starts with an empty directory.
    ///
    /// # Errors
    /// When it cannot be emptied or made.
    pub(super) fn prepare(directory: PathBuf) -> Result<Self, Failure> {
        if directory.exists() {
            fs::remove_dir_all(&directory)?;
        }
        fs::create_dir_all(&directory)?;
        Ok(Self { directory, found: Vec::new() })
    }

    /// The directory of one run, made.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(super) fn directory(&self, run: &str) -> Result<PathBuf, Failure> {
        let directory = self.directory.join(run.replace([' ', '/'], "-"));
        fs::create_dir_all(&directory)?;
        Ok(directory)
    }

    /// Reads what the tests of a run left behind, and says how many could not run.
    ///
    /// # Errors
    /// When the directory or a file in it cannot be read.
    pub(super) fn collect(&mut self, run: &str) -> Result<usize, Failure> {
        let mut left = Vec::new();
        for entry in fs::read_dir(self.directory(run)?)? {
            let entry = entry?;
            let reason = String::from_utf8_lossy(&fs::read(entry.path())?).trim().to_owned();
            left.push((entry.file_name().to_string_lossy().into_owned(), reason));
        }
        left.sort();
        for (test, reason) in &left {
            self.push(&format!("{test} ({run})"), reason);
        }
        Ok(left.len())
    }

    pub(super) fn push(&mut self, name: &str, reason: &str) {
        self.found.push((name.to_owned(), reason.to_owned()));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    pub(super) fn print(&self) {
        if self.is_empty() {
            return;
        }
        println!("{} could not run here:", self.found.len());
        for (name, reason) in &self.found {
            println!("  CANNOT RUN: {name}: {reason}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tests_leave_behind_is_collected_per_run() {
        let place = std::env::temp_dir().join(format!("xtask-withheld-{}", std::process::id()));
        let mut withheld = Withheld::prepare(place.clone()).expect("a writable directory");
        assert!(withheld.is_empty());
        let run = withheld.directory("test --release a").expect("a writable directory");
        fs::write(run.join("tap_transfers"), "no /dev/net/tun\n").expect("a writable file");
        assert_eq!(withheld.collect("test --release a").expect("readable"), 1);
        assert_eq!(withheld.collect("test").expect("readable"), 0);
        let expected = ("tap_transfers (test --release a)".into(), "no /dev/net/tun".into());
        assert_eq!(withheld.found, [expected]);

        let again = Withheld::prepare(place.clone()).expect("a writable directory");
        assert!(!run.exists() && again.is_empty());
        fs::remove_dir_all(place).ok();
    }
}
