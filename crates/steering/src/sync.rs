//! Locks and atomics: the standard library's, or loom's, which tries every interleaving of them.

#[cfg(all(feature = "interleavings", test))]
pub(crate) use loom::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering, fence},
};
#[cfg(not(all(feature = "interleavings", test)))]
pub(crate) use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering, fence},
};
