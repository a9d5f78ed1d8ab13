//! ICMP, for IPv4 (RFC 792, RFC 1122) and IPv6 (RFC 4443) alike.
//!
//! The two protocols say the same things with other numbers, so there is one vocabulary here: an
//! [`Echo`], and an [`IcmpErrorKind`] with the packet it is about ([`Quoted`]).
//!
//! * [`parse_icmp`] turns a received message into an [`IcmpIncoming`]. An error becomes what a
//!   transport needs to find its socket and to judge the error: the four-tuple, and for TCP the
//!   sequence number, which RFC 5927, 4.1 tells it to compare with what is in flight, because
//!   anybody can send an ICMP error.
//! * [`push_echo_reply`] and [`push_error`] build messages as packets of a
//!   batch, their data a span of the block it came in: nothing is copied.
//! * [`may_answer_with_error`] and [`may_answer_echo`] say when the answer must be silence. Whoever
//!   answers asks a [`RateLimiter`](crate::RateLimiter) as well.

mod incoming;
mod outgoing;
mod rules;

pub use incoming::{Echo, IcmpError, IcmpErrorKind, IcmpIncoming, Quoted, parse_icmp};
pub use outgoing::{push_echo_reply, push_error};
pub use rules::{Arrival, may_answer_echo, may_answer_with_error};

#[cfg(test)]
mod tests;
