//! What stands at the other end: the kernel's TCP in a child process, a second stack in this one,
//! or a second stack in a child process.

pub mod kernel;
pub mod tunnel;
pub mod wire;
