//! The sans-IO shard: everything one squeue protects.
//!
//! A [`Shard`] is a host's protocol state: interfaces and their neighbours, routes, sockets,
//! timers. It reads no clock, starts no thread and makes no system call; who drives it gives it
//! the time and the batches, and carries out what it says. The driver of production is the
//! `multidata` crate, that of tests is a loop over virtual time, and `crates/linux/examples/own_loop.rs` is a small
//! one over a TAP; what a driver owes a shard is told at [`Shard`]. This crate alone is what it needs: [`batch`],
//! [`device`], [`tcp`] and [`time`] are what stands in its signatures.
//!
//! * `egress.rs` is the whole way out, `ingress.rs` the whole way in.
//! * `shard.rs` has the parts, and settles a connection after each call on it.
//! * `network/` is a host without its sockets: interfaces, addresses, routes, neighbours, groups, fragments, the filter.
//! * `sockets/` is where sockets are kept and found, and what they hold; `connections/` is how those of TCP begin, work and
//!   end, `datagrams/` those of UDP and of raw IP.
//! * `control.rs` is what hosts say to each other about the network itself (ICMP).
//! * `loopback.rs` is the way to our own addresses.
//! * `forwarding.rs` is connections and datagrams to addresses that are not ours, for relays (`foreign_icmp.rs`: errors about
//!   them, and pings).
//! * `schedule.rs` knows who has something to send and who wants to be called when (`wheel.rs`).
//! * `share.rs` is what several shards that are one host leave to each other.
//! * `inspection.rs` shows what there is, to whoever looks inside, `holdings.rs` how much of it.
//! * `outbox.rs` holds the few packets that cannot be built afresh.

mod connections;
mod control;
mod counters;
mod datagrams;
mod egress;
mod error;
mod event;
mod foreign_icmp;
mod forwarding;
mod holdings;
mod ingress;
mod inspection;
mod loopback;
mod network;
mod outbox;
mod schedule;
mod shard;
mod share;
mod sockets;
mod wheel;

// What stands in this crate's signatures, so that who drives a shard needs no other.
pub use {::batch, ::device, ::ip, ::tcp, ::time};

pub use connections::backlog::{BACKLOG_DEFAULT, ListenOptions, SynCookieMode};
pub use connections::fast_open::FastOpenOptions;
pub use connections::fast_open_keys::FastOpenKeys;
pub use connections::tcp_socket::{SendPlan, TcpOption, TcpStatus};
pub use connections::time_wait::TIME_WAIT_MAX;
pub use counters::{ShardCounters, StackCounters};
pub use datagrams::envelope::Envelope;
pub use datagrams::raw_socket::RawPacket;
pub use datagrams::reports::{ErrorReport, ReportOrigin};
pub use datagrams::udp_socket::DatagramPlan;
pub use error::{BadArgument, SocketError};
pub use event::{Readiness, SocketEvent};
pub use forwarding::{ACCEPTED_PREFIXES_MAX, PendingId};
pub use holdings::Holdings;
pub use inspection::{ListPosition, NeighbourStatus, RouteStatus, SocketKind, SocketStatus};
pub use link::{NeighbourCounters, NeighbourState};
pub use network::addressing::{
    ADDRESSES_MAX, AddressEvent, AddressOrigin, AddressState, AddressStatus, AddressingConfig,
    ClaimPolicy,
};
pub use network::endpoint::canonical;
pub use network::filter::{FilterFlow, Handling, PacketFilter, Verdict};
pub use network::interface::InterfaceConfig;
pub use network::interfaces::{INTERFACES_MAX, InterfaceId};
pub use network::multicast::MulticastOptions;
pub use network::negotiation::{InterfaceEvent, MultidataProtocols, TransmitStatus};
pub use network::way::MtuDiscovery;
pub use shard::{Shard, ShardConfig};
pub use share::{Homes, Share, Stray};
pub use sockets::SocketId;
pub use sockets::marks::PacketMarks;
pub use sockets::ports::BindOptions;
pub use udp::Datagram as ReceivedDatagram;
pub use wire::{Ipv4Options, RefusedOptions};

/// Hop limit of what is sent (RFC 1700's recommendation).
pub(crate) const HOP_LIMIT_DEFAULT: u8 = 64;

/// The ECN bits that say "congestion experienced" (RFC 3168, 5).
pub(crate) const ECN_CE: u8 = 0b11;
