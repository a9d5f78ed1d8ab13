//! UDP and raw IP as sockets.
//!
//! * `udp_socket.rs` is the calls on UDP sockets, `udp_connecting.rs` what it is for one to have a peer.
//! * `raw_socket.rs` is those on sockets of an IP protocol, or of an echo identifier.
//! * `envelope.rs` is what datagrams say of themselves, `reports.rs` what is told of errors about them.

pub(crate) mod envelope;
pub(crate) mod raw_socket;
pub(crate) mod reports;
pub(crate) mod udp_connecting;
pub(crate) mod udp_socket;
