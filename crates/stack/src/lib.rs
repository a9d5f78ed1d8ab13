//! The sans-IO shard: everything one squeue protects.
//!
//! A [`Shard`] is a host's protocol state: interfaces and their neighbours, routes, sockets,
//! timers. It reads no clock, starts no thread and makes no system call; who drives it gives it
//! the time and the batches, and carries out what it says. The driver of production is the
//! `multidata` crate, that of tests is a loop over virtual time.
//!
//! * `egress.rs` is the whole way out, `ingress.rs` the whole way in.
//! * `tcp_socket.rs` and `udp_socket.rs` are the calls on sockets.
//! * `control.rs` is what hosts say to each other about the network itself (ARP, NDP, ICMP).
//! * `schedule.rs` knows who has something to send and who wants to be called when.
//! * `outbox.rs` holds the few packets that cannot be built afresh.

mod control;
mod counters;
mod egress;
mod error;
mod event;
mod ingress;
mod interface;
mod outbox;
mod schedule;
mod shard;
mod sockets;
mod tcp_socket;
mod udp_socket;

pub use counters::{ShardCounters, StackCounters};
pub use error::SocketError;
pub use event::{Readiness, SocketEvent};
pub use interface::{InterfaceConfig, InterfaceId};
pub use shard::{Shard, ShardConfig};
pub use sockets::SocketId;
pub use tcp_socket::{TcpOption, TcpStatus};

/// Hop limit of what is sent (RFC 1700's recommendation).
pub(crate) const HOP_LIMIT_DEFAULT: u8 = 64;

/// The ECN bits that say "congestion experienced" (RFC 3168, 5).
pub(crate) const ECN_CE: u8 = 0b11;
