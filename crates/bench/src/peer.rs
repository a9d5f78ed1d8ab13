//! What stands at the other end: the kernel's TCP in a child process, or a second stack in this
//! one.

pub mod kernel;
pub mod wire;
