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
//! * `tcp_socket.rs`, `udp_socket.rs` (`envelope.rs`: what datagrams say of themselves) and `raw_socket.rs` are the calls on sockets.
//! * `control.rs` is what hosts say to each other about the network itself (ICMP), `neighbours.rs`
//!   what they say to find each other on a link (ARP, NDP).
//! * `network.rs` is a host without its sockets, the larger half of its duties: the methods of `NetworkLayer`, many of them in
//!   the files below, reach no connection.
//! * `multicast.rs` knows who listens to which group, and tells routers.
//! * `addressing/` is the life of the interfaces' own addresses.
//! * `paths.rs` knows what the paths to peers take, `way.rs` by which way a datagram leaves.
//! * `interfaces.rs` is how interfaces are named; `interface.rs` is one of them.
//! * `negotiation.rs` is what interfaces and devices agree on, `filter.rs` where a filter looks at
//!   packets, `unscreened.rs` what of the outbox it looks at together, `loopback.rs` the way to our own addresses.
//! * `schedule.rs` knows who has something to send and who wants to be called when (`wheel.rs`).
//! * `fragments.rs` is the way of fragments until they are whole, `offered.rs` how what is too long
//!   becomes fragments.
//! * `connect.rs` is how our own connections are opened, `endpoint.rs` what their ends are called.
//! * `backlog.rs` is how peers' connections come to be (`handshakes.rs`); `time_wait.rs` is what is left of closed ones;
//!   both keep small entries in a `flow_table.rs`, and so does `spent_cookies.rs`, which knows the SYN
//!   cookies that have opened a connection.
//! * `forwarding.rs` is connections and datagrams to addresses that are not ours, for relays.
//! * `fast_open.rs` keeps the cookies of connections that begin with data, `fast_open_keys.rs` has the keys of ours.
//! * `ports.rs` knows who is bound where.
//! * `share.rs` is what several shards that are one host leave to each other.
//! * `inspection.rs` shows what there is, to whoever looks inside.
//! * `outbox.rs` holds the few packets that cannot be built afresh.

mod addressing;
mod backlog;
mod connect;
mod control;
mod counters;
mod egress;
mod endpoint;
mod envelope;
mod error;
mod event;
mod fast_open;
mod fast_open_keys;
mod filter;
mod flow_labels;
mod flow_table;
mod foreign_icmp;
mod forwarding;
mod fragments;
mod handshakes;
mod holdings;
mod ingress;
mod inspection;
mod interface;
mod interfaces;
mod loopback;
mod marks;
mod multicast;
mod multirouting;
mod negotiation;
mod neighbours;
mod network;
mod offered;
mod outbox;
mod paths;
mod ports;
mod pressure;
mod raw_socket;
mod reports;
mod rerouting;
mod schedule;
mod shard;
mod share;
mod shared_groups;
mod slots;
mod sockets;
mod spent_cookies;
mod taken_ports;
mod tcp_socket;
mod time_wait;
mod train;
mod udp_connecting;
mod udp_socket;
mod unscreened;
mod way;
mod wheel;

// What stands in this crate's signatures, so that who drives a shard needs no other.
pub use {::batch, ::device, ::ip, ::tcp, ::time};

pub use addressing::{
    ADDRESSES_MAX, AddressEvent, AddressOrigin, AddressState, AddressStatus, AddressingConfig,
    ClaimPolicy,
};
pub use backlog::{BACKLOG_DEFAULT, ListenOptions, SynCookieMode};
pub use counters::{ShardCounters, StackCounters};
pub use endpoint::canonical;
pub use envelope::Envelope;
pub use error::{BadArgument, SocketError};
pub use event::{Readiness, SocketEvent};
pub use fast_open::FastOpenOptions;
pub use fast_open_keys::FastOpenKeys;
pub use filter::{FilterFlow, Handling, PacketFilter, Verdict};
pub use forwarding::{ACCEPTED_PREFIXES_MAX, PendingId};
pub use holdings::Holdings;
pub use inspection::{ListPosition, NeighbourStatus, RouteStatus, SocketKind, SocketStatus};
pub use interface::InterfaceConfig;
pub use interfaces::{INTERFACES_MAX, InterfaceId};
pub use link::{NeighbourCounters, NeighbourState};
pub use marks::PacketMarks;
pub use multicast::MulticastOptions;
pub use negotiation::{InterfaceEvent, MultidataProtocols, TransmitStatus};
pub use ports::BindOptions;
pub use raw_socket::RawPacket;
pub use reports::{ErrorReport, ReportOrigin};
pub use shard::{Shard, ShardConfig};
pub use share::{Homes, Share, Stray};
pub use sockets::SocketId;
pub use tcp_socket::{SendPlan, TcpOption, TcpStatus};
pub use time_wait::TIME_WAIT_MAX;
pub use udp::Datagram as ReceivedDatagram;
pub use udp_socket::DatagramPlan;
pub use way::MtuDiscovery;
pub use wire::{Ipv4Options, RefusedOptions};

/// Hop limit of what is sent (RFC 1700's recommendation).
pub(crate) const HOP_LIMIT_DEFAULT: u8 = 64;

/// The ECN bits that say "congestion experienced" (RFC 3168, 5).
pub(crate) const ECN_CE: u8 = 0b11;
