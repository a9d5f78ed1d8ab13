//! Headers as they lie on the wire, and as values.
//!
//! Every protocol this stack speaks has a module here, and every module answers two questions: what
//! do these bytes say, and which bytes say this? Nothing else is decided. Whether a packet is for
//! us, whether a segment is in the window, whether an answer is due: that is for the layers above.
//! So this crate keeps no state, knows no batch and no block, and works on plain slices.
//!
//! # Two forms of a header
//!
//! A `FooView` is *bytes that were checked*. Its `parse` looks at every length a later access
//! relies on and says what is wrong with a [`Malformed`]; after that no accessor can fail or panic.
//! Nothing is copied: a view borrows the frame.
//!
//! A `FooRepr` is *the value*: the fields with their meanings, without what follows from others.
//! `FooRepr::parse` takes it from a view, `FooRepr::emit` writes it, and parsing what was emitted
//! gives the same value back: a property test of each module holds that. `LEN` is the length of
//! what `emit` writes. A header of which nothing but the value is of use has no view.
//!
//! Parsing is lenient where RFCs demand it (unknown options, reserved bits), emitting is strict:
//! reserved bits are zero.
//!
//! # Checksums
//!
//! A header with a checksum of its own ([`Ipv4Repr`]) is emitted with it. Where the checksum covers
//! addresses or payload that lie elsewhere, `emit` leaves the field zero and whoever knows the rest
//! fills it in: `ip::stamp` for TCP, UDP and ICMPv6. Verifying is a separate question from parsing
//! (`checksum_ok`), because a device may have done it already.
//!
//! # The modules, from the link up
//!
//! * `ethernet`: [`HardwareAddress`], [`EthernetView`] and [`EthernetRepr`]: the frame around
//!   everything else. [`ether_type`] names what is inside.
//! * `arp`: [`ArpView`], [`ArpRepr`]: who has this IPv4 address (RFC 826)?
//! * `ipv4`: [`Ipv4View`], [`Ipv4Repr`] (RFC 791). A view has a second door,
//!   [`Ipv4View::parse_quoted`], for the heads of packets that ICMP errors quote. `ipv4_options`:
//!   [`ipv4_options()`], a walk over the options of a header, and [`Ipv4Options`], those that are sent.
//! * `ipv6`: [`Ipv6View`], [`Ipv6Repr`] (RFC 8200), and [`Ipv6FragmentRepr`]. Walking the extension
//!   headers takes decisions, so it is the `ip` crate's.
//! * [`protocol`]: the numbers by which an IP header names what follows.
//! * `icmp`: [`IcmpView`]; `icmpv4`: [`Icmpv4Repr`] (RFC 792), and `icmpv6`: [`Icmpv6Repr`]
//!   (RFC 4443): echo and errors.
//! * [`ndp`]: [`NdpRepr`], the neighbour discovery of IPv6 (RFC 4861), which rides on ICMPv6.
//! * `udp`: [`UdpView`], [`UdpRepr`] (RFC 768).
//! * [`tcp`]: [`TcpHeader`] with its options (RFC 9293, RFC 7323, RFC 2018).
//! * [`seq`]: [`SeqNumber`], TCP's arithmetic modulo 2^32, which deliberately has no order.
//! * `malformed`: [`Malformed`], all that can be wrong with bytes.
//!
//! # What always holds
//!
//! No parser panics, allocates, or reads a byte it has not checked, whatever the bytes are: each
//! module feeds its parser arbitrary bytes in a test. `emit` panics where the slice it is given is
//! shorter than `LEN`, which no packet can bring about.
//!
//! Read first, to follow this crate: RFC 1071 (the checksum), RFC 791, RFC 8200, RFC 9293, section
//! 3.1, and RFC 1122, section 3.2, for what a host does with all of it.

mod icmp;
mod icmpv4;
mod icmpv6;
mod ipv4;
mod ipv4_options;
mod ipv6;
mod malformed;
pub mod protocol;
mod udp;

pub use icmp::IcmpView;
pub use icmpv4::Icmpv4Repr;
pub use icmpv6::Icmpv6Repr;
pub use ipv4::{Ipv4Repr, Ipv4View};
pub use ipv4_options::{Ipv4Options, RefusedOptions, ipv4_options};
pub use ipv6::{Ipv6FragmentRepr, Ipv6Repr, Ipv6View};
pub use malformed::Malformed;
pub use udp::{UdpRepr, UdpView};

pub mod seq;

pub use seq::SeqNumber;

pub mod tcp;
pub use tcp::{
    SackBlocks, TCP_CHECKSUM_OFFSET, TCP_HEADER_LEN_MAX, TCP_HEADER_LEN_MIN, TcpFastOpen, TcpFlags,
    TcpHeader, TcpOptionCounters, TcpOptions, TcpTimestamps, TcpUserTimeout,
};

mod arp;
mod ethernet;
pub mod ndp;

pub use arp::{ArpOperation, ArpRepr, ArpView};
pub use ethernet::{EthernetRepr, EthernetView, HardwareAddress, ether_type};
pub use ndp::{NdpEnvelope, NdpRepr};
