//! A DHCPv4 client and a server for one network (RFC 2131, RFC 2132), sans-IO.
//!
//! [`Client`] is the state machine of RFC 2131, 4.4: it is told the time and the messages that
//! servers send, and says what to do: send a message, check an address, configure the interface,
//! give the address up. Sockets, addresses and routes are its owner's. [`Server`] is told the time
//! and the messages that clients send, and says what to answer. `message.rs` is the codec: a crate
//! for it was looked for, and the well-kept one brings a DNS library and a source of random numbers
//! from the operating system along, which a sans-IO core cannot have.
//!
//! What always holds: nothing a server sends makes the client allocate beyond the bounds in
//! `message.rs`, or send more often than its own timers say; a message that is not an answer to the
//! question under way changes nothing and is counted. Nothing a client sends makes the server
//! allocate beyond the addresses that it leases, or answer with more than one message.

mod client;
mod message;
mod server;

pub use client::{Action, Client, ClientConfig, DhcpCounters, LEASE_MIN_S, Lease, Packet};
pub use message::{ClientMessage, MessageKind, Route, ServerMessage, distinct_identifier};
pub use server::{Answer, LEASED_MAX, Server, ServerConfig, ServerCounters};

/// The port that clients listen on (RFC 2131, 4.1).
pub const CLIENT_PORT: u16 = 68;
/// The port that servers listen on.
pub const SERVER_PORT: u16 = 67;
