//! Results that can be looked at while they grow: of a job that is broken off, what there was.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A handle of results; all of them show the same.
#[derive(Debug)]
pub struct Growing<R> {
    results: Arc<Mutex<R>>,
}

impl<R: Clone> Growing<R> {
    /// What there is before anything was measured.
    pub fn new(results: R) -> Self {
        Self { results: Arc::new(Mutex::new(results)) }
    }

    /// Adds what was measured.
    pub fn add(&self, add: impl FnOnce(&mut R)) {
        add(&mut self.lock());
    }

    /// What there is.
    #[must_use]
    pub fn so_far(&self) -> R {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, R> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R> Clone for Growing<R> {
    fn clone(&self) -> Self {
        Self { results: Arc::clone(&self.results) }
    }
}
