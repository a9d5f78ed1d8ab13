//! A host whose programs speak POSIX: this stack behind file descriptors, in virtual time.
//!
//! A [`Host`] owns a shard on a bare IP device, the clock, and a table of descriptors. Programs
//! make [`Call`]s; whoever plays the network injects packets and takes those that were sent, with
//! the instant at which they were. Nothing here reads a clock or waits: a call that would block is
//! a [`Task`] that is attempted again after whatever may have changed its mind, and says at which
//! time it gives up.
//!
//! Errors, option numbers and what counts as readable are Linux's, because the programs (segment
//! scripts) are written for it. What the stack does not have is `ENOPROTOOPT`.
//!
//! * `call.rs`: calls and replies as data, so that a script runner, a C interface and a thread for
//!   the kernel's own calls can share them.
//! * `host.rs`: the shard, time and packets; `addresses.rs`: addresses as programs write them.
//! * `descriptors.rs`: files; `stream.rs`, `datagram.rs`, `pipe.rs`, `epoll.rs`: their kinds.
//! * `transfer.rs`: reading and writing; `zero_copy.rs`: being told of what was written; `told.rs`: what is told with what is read; `error_queue.rs`: errors of
//!   datagrams; `options.rs`: socket options, `fast_open.rs`: those of fast open, `buffers.rs`: sizes of buffers, `path_mtu.rs`: MTUs of paths; `readiness.rs`: poll.

pub mod abi;
mod addresses;
mod buffers;
mod call;
mod connecting;
mod control;
mod cork;
mod datagram;
mod descriptors;
mod epoll;
mod errno;
mod error_queue;
mod fast_open;
mod host;
mod kept_options;
mod marks;
mod options;
mod path_mtu;
mod pipe;
mod readiness;
mod stream;
mod tcp_info;
mod told;
mod transfer;
mod zero_copy;

pub use addresses::Address;
pub use call::{Call, EpollEvent, Fd, Output, PollEntry, Reply};
pub use control::ControlMessage;
pub use errno::Errno;
pub use host::{Host, HostConfig, Task};
pub use stack::{FastOpenKeys, FastOpenOptions, ListenOptions, SynCookieMode};

#[cfg(test)]
mod tests;
