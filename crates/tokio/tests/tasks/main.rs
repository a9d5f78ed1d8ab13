//! Tasks over the sockets of stacks, in real time: one binary, as each would link the whole stack anew. Tests that
//! enter a network of their own have binaries of their own.

#[path = "../pair/mod.rs"]
mod pair;

mod accepts;
mod datagrams;
mod drive;
mod drive_in_process;
mod ecosystem;
mod many;
mod panics;
mod readiness;
mod streams;
