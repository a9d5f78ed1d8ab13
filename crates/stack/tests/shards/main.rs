//! Two shards on one link in virtual time: one binary, as each would link the whole stack anew. Tests that count
//! all that their process allocates have binaries of their own.

#[path = "../harness/mod.rs"]
mod harness;

mod addresses;
mod advertising;
mod backlog;
mod broadcasts;
mod capabilities;
mod connected_datagrams;
mod deferred_accept;
mod dhcp;
mod drop_reasons;
mod endpoints;
mod fairness;
mod families;
mod fast_open;
mod filtered_messages;
mod forwarding;
mod fragments;
mod ip_options;
mod lifecycles;
mod marks;
mod mixed_batches;
mod multicast;
mod multirouting;
mod next_hops;
mod pacing;
mod paths;
mod ports_left;
mod raw;
mod routers;
mod scattered;
mod shared_addresses;
mod shares;
mod silent_neighbours;
mod slow_readers;
mod trains;
mod two_hosts;
mod unread_datagrams;
mod unread_streams;
