//! IPv4, IPv6, ICMP and routes

mod cidr;
mod parse;
mod pseudo_header;
mod route;
mod stamp;
mod template;

pub use cidr::{Cidr, NotACidr};
pub use parse::{PacketInfo, parse, parse_quoted, transport_checksum_ok};
pub use route::{Route, RouteTable};
pub use stamp::stamp;
pub use template::HeaderTemplate;
