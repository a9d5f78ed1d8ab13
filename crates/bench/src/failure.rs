//! The one error of the workloads and of the command: a sentence for a person.

use core::fmt;

/// What went wrong, as one sentence that says what was attempted, why it failed and, where that is
/// known, what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    sentence: String,
}

impl Failure {
    /// A failure described by this sentence.
    pub fn new(sentence: impl Into<String>) -> Self {
        Self { sentence: sentence.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.sentence)
    }
}

impl std::error::Error for Failure {}

/// Says what was attempted when a step fails.
pub trait Attempt<T> {
    /// Turns the error into the sentence `<attempt>: <error>`.
    ///
    /// # Errors
    /// The sentence, where `self` is an error.
    fn attempt<A: fmt::Display>(self, attempt: impl FnOnce() -> A) -> Result<T, Failure>;
}

impl<T, E: fmt::Display> Attempt<T> for Result<T, E> {
    fn attempt<A: fmt::Display>(self, attempt: impl FnOnce() -> A) -> Result<T, Failure> {
        self.map_err(|error| Failure::new(format!("{}: {}", attempt(), plain(&error.to_string()))))
    }
}

/// Drops the number that the standard library appends to a system error: the words say it.
fn plain(error: &str) -> &str {
    match error.rfind(" (os error ") {
        Some(end) if error.ends_with(')') => &error[..end],
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_was_attempted_and_drops_the_error_number() {
        let failed: Result<(), _> = Err(std::io::Error::from_raw_os_error(28));
        let failure = failed.attempt(|| "cannot write results.json").unwrap_err();
        assert_eq!(failure.to_string(), "cannot write results.json: No space left on device");
    }
}
