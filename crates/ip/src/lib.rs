//! IPv4, IPv6, ICMP and routes

mod cidr;
mod icmp;
mod parse;
mod pseudo_header;
mod rate;
mod route;
mod stamp;
mod template;

pub use cidr::{Cidr, NotACidr};
pub use icmp::{
    Arrival, Echo, IcmpError, IcmpErrorKind, IcmpIncoming, Quoted, may_answer_echo,
    may_answer_with_error, parse_icmp, push_echo_reply, push_echo_request, push_error,
};
pub use parse::{PacketInfo, parse, parse_quoted, transport_checksum_ok};
pub use rate::RateLimiter;
pub use route::{Route, RouteTable};
pub use stamp::stamp;
pub use template::HeaderTemplate;
