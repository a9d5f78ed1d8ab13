//! UDP (RFC 768): datagrams in, datagrams out, and sockets that hold those nobody has read yet.
//!
//! In: [`parse_datagram`] reads a header, whose checksum the network layer verifies because it
//! covers addresses, and [`Socket::on_datagram`] queues the payload as the part of the received
//! block it already is. Out: [`push_datagram`] opens a packet in a batch whose payload is a span of
//! the application's block. So a datagram is not copied in either direction.
//!
//! What always holds: a socket holds no more datagrams and no more bytes than its limits say, the
//! cost of holding an empty datagram included; a datagram is queued whole or not at all; datagrams
//! leave in the order they came.

mod datagram;
mod socket;

pub use datagram::{Header, PAYLOAD_LEN_MAX, parse_datagram, push_datagram};
pub use socket::{Datagram, QueueLimits, Socket, SocketFailure, UdpCounters};
