//! UDP (RFC 768): datagrams into a batch, and sockets that hold those nobody has read yet.
//!
//! Out: [`push_datagram`] opens a packet in a batch whose payload is a span of the application's
//! block; checksum and everything below are the network layer's. In: a datagram's header is read
//! with [`wire::UdpView`], and its payload is queued in a [`Socket`] as the part of the received
//! block it already is. So a datagram is not copied in either direction.
//!
//! What always holds: a socket holds no more datagrams and no more bytes than its limits say, the
//! cost of holding an empty datagram included; a datagram is queued whole or not at all; datagrams
//! leave in the order they came.
//!
//! Deliberately absent: ports and peers, which the stack demultiplexes by, and fragmentation of
//! datagrams that are longer than the path takes.

mod datagram;
mod socket;

pub use datagram::{PAYLOAD_LEN_MAX, push_datagram};
pub use socket::{Datagram, QueueLimits, Socket};
