//! What happens while a person waits: one line on standard error, where that is a terminal, and
//! nothing elsewhere.

use indicatif::{ProgressBar, ProgressStyle};

/// A line that says what runs now and how much of the whole is done.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Counts `steps` steps.
    #[must_use]
    pub fn steps(steps: usize) -> Self {
        let bar = ProgressBar::new(steps as u64);
        Self::styled(bar, "[{pos:>2}/{len}] {bar:24} {elapsed} {wide_msg}")
    }

    /// Counts bytes, up to `len_bytes` where that is known.
    #[must_use]
    pub fn bytes(len_bytes: Option<u64>) -> Self {
        match len_bytes {
            Some(len_bytes) => Self::styled(
                ProgressBar::new(len_bytes),
                "{bar:24} {bytes}/{total_bytes} {bytes_per_sec} {eta} {wide_msg}",
            ),
            None => Self::styled(
                ProgressBar::no_length(),
                "{spinner} {bytes} {bytes_per_sec} {elapsed} {wide_msg}",
            ),
        }
    }

    fn styled(bar: ProgressBar, template: &str) -> Self {
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self { bar }
    }

    /// Says what runs now.
    pub fn say(&self, message: &str) {
        self.bar.set_message(message.to_owned());
        self.bar.tick();
    }

    /// One step, or this many bytes, are done.
    pub fn advance(&self, count: u64) {
        self.bar.inc(count);
    }

    /// Takes the line away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}
