//! Ethernet and neighbour resolution (ARP, NDP).
//!
//! Two things, and both know nothing of routes, sockets or devices:
//!
//! * the link header: [`stamp_ethernet`] puts it in front of a run of packets with one neighbour,
//!   [`parse_ethernet`] reads it and keeps out frames that are for somebody else;
//! * the neighbour cache ([`NeighbourCache`]): which hardware address a next hop has, found with
//!   ARP for IPv4 and neighbour discovery for IPv6, by one state machine for both;
//! * the claim of an own address ([`Claim`]): whether somebody else has it, telling others that it
//!   is ours, and what to do when somebody disputes it, again by one state machine for both.
//!
//! Messages of ARP and neighbour discovery travel as packets of a batch like all others:
//! [`push_arp`] and [`push_ndp`] append them, the message in the place of the transport header.

mod claim;
mod ethernet;
mod message;
mod neighbour;

pub use claim::{Claim, ClaimConfig, ClaimStep, Dispute};
pub use ethernet::{EthernetFrame, parse_ethernet, stamp_ethernet};
pub use message::{push_arp, push_ndp};
pub use neighbour::{
    Advertisement, Known, Lookup, NeighbourCache, NeighbourConfig, NeighbourCounters,
    NeighbourState, Request, Resolved, Unreachable, Waiting,
};
