//! The network layer of a host: IPv4 (RFC 791), IPv6 (RFC 8200), ICMP and routes.
//!
//! A host does not forward, so this is a small layer, and it keeps little state. It is a set of
//! answers to what the layers around it ask:
//!
//! * *Where does a packet to this address go?* [`RouteTable`] and [`Cidr`].
//!   [`PathMtus`] knows what the path there takes.
//! * *Which address is it sent from?* [`select_source`].
//! * *What stands in front of these segments?* [`HeaderTemplate`], made once per connection or
//!   datagram, and [`stamp`], which puts it on a run of packets and fills in what differs. This is
//!   the whole of IP in the way out, so its cost is every packet's: 9 ns for IPv4 and 12 ns for
//!   IPv6 where the device completes checksums; 13 and 17 ns where they are summed here, payload
//!   not counted.
//! * *What is this packet?* [`parse`] checks all that can be checked without knowing this host and
//!   yields a [`PacketInfo`]; [`transport_checksum_ok`] verifies what the transport cannot, not
//!   knowing addresses. This is the whole of IP in the way in.
//! * *Is this part of a datagram?* [`parse_fragment`] reads what [`parse`] refuses as a fragment, and
//!   [`Reassembly`] keeps it, within bounds, until the datagram is whole. [`Fragmenting`] is the
//!   way out of a datagram that is longer than its path takes.
//! * *Who listens to which group?* [`membership::Membership`] tells routers, by IGMP and MLD.
//! * *What do routers say of this link?* [`router::RouterDiscovery`] learns default routers,
//!   networks and addresses.
//! * *What do others say of our packets, and what do we say of theirs?* [`parse_icmp`] turns errors
//!   into what a transport can judge; [`push_error`] and [`push_echo_reply`] build answers;
//!   [`may_answer_with_error`] and [`RateLimiter`] keep us from making an attack worse.
//!
//! ```text
//!   transport headers + payload spans                    PacketInfo { protocol, header_len, .. }
//!             |                                                        ^
//!             v  stamp(batch, run, template)                           |  parse(packet)
//!   IP header in front, lengths, checksums                       packet in a received block
//! ```
//!
//! What always holds: no byte from the network makes a function here panic, allocate without a
//! bound, or loop beyond the packet's own length; no header is written that [`parse`] would refuse;
//! a batch stamped in one call is, byte for byte, its packets stamped singly.
//!
//! Deliberately absent: forwarding, redirects (a first hop is learned from advertisements, which are checked, and never from a single
//! packet that anybody on the link can forge for any destination).

mod cidr;
mod fragment;
mod fragmenting;
mod icmp;
pub mod membership;
mod parse;
mod path_mtu;
mod problem;
mod pseudo_header;
mod rate;
mod reassembly;
mod route;
pub mod router;
mod source;
mod stamp;
mod template;

pub use cidr::{Cidr, NotACidr};
pub use fragment::{Fragment, RefusedFragment, parse_fragment};
pub use fragmenting::{FRAGMENTED_HEADER_LEN, Fragmenting, Identifications};
pub use icmp::{
    Arrival, Echo, IcmpError, IcmpErrorKind, IcmpIncoming, Quoted, may_answer_echo,
    may_answer_with_error, parse_icmp, push_echo_reply, push_error,
};
pub use parse::{PacketInfo, parse, parse_fixed, parse_quoted, transport_checksum_ok};
pub use path_mtu::{PathMtuConfig, PathMtus, Trust};
pub use problem::parameter_problem;
pub use pseudo_header::sum as pseudo_header_sum;
pub use rate::RateLimiter;
pub use reassembly::{ExpiredDatagram, Reassembly, ReassemblyConfig, ReceivedFragment};
pub use route::{Route, RouteOrigin, RouteTable};
pub use source::{SourceCandidate, select_source};
pub use stamp::stamp;
pub use template::HeaderTemplate;
