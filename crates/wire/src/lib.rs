//! Header views and values of the protocols, and sequence numbers

mod icmpv4;
mod icmpv6;
mod ipv4;
mod ipv6;
mod malformed;
pub mod protocol;
mod udp;

pub use icmpv4::{Icmpv4Repr, Icmpv4View};
pub use icmpv6::{Icmpv6Repr, Icmpv6View};
pub use ipv4::{Ipv4Repr, Ipv4View};
pub use ipv6::{Ipv6FragmentRepr, Ipv6Repr, Ipv6View};
pub use malformed::Malformed;
pub use udp::{UdpRepr, UdpView};

pub mod seq;

pub use seq::SeqNumber;

pub mod tcp;
pub use tcp::{
    SackBlocks, TCP_CHECKSUM_OFFSET, TCP_HEADER_LEN_MAX, TCP_HEADER_LEN_MIN, TcpFlags, TcpHeader,
    TcpOptions, TcpTimestamps,
};

mod arp;
mod ethernet;
pub mod ndp;

pub use arp::{ArpOperation, ArpRepr, ArpView};
pub use ethernet::{EthernetRepr, EthernetView, HardwareAddress, ether_type};
pub use ndp::{NdpEnvelope, NdpRepr};
