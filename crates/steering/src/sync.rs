//! Locks and atomics: the standard library's, or loom's, which tries every interleaving of them.

#[cfg(all(loom, test))]
pub(crate) use loom::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering, fence},
};
#[cfg(not(all(loom, test)))]
pub(crate) use std::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering, fence},
};
