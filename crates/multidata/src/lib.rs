//! A userspace TCP/IP stack whose unit of work is a batch of packets.
//!
//! This is the crate to depend on. It puts sockets shaped like those of [`std::net`] over a device
//! queue of your choice: a TAP or TUN device, an in-process wire, a queue of your own. No kernel
//! socket is involved, and no privilege beyond what the device needs.
//!
//! # Two stacks in one process
//!
//! ```
//! use multidata::device::{Medium, WireConfig, WireEnd, wire};
//! use multidata::{InterfaceConfig, Stack, TcpListener, TcpStream};
//! use std::io::{Read, Write};
//!
//! # fn main() -> std::io::Result<()> {
//! // A wire has two ends; each is a device queue, and a stack stands on each.
//! let end = WireEnd::plain(Medium::Ip);
//! let (left, right) = wire(WireConfig::new(end, end));
//! let address = |text: &str| InterfaceConfig::new(text.parse().expect("an address and a prefix"));
//! let client_stack = Stack::builder().interface(left, address("10.0.0.1/24")).build()?;
//! let server_stack = Stack::builder().interface(right, address("10.0.0.2/24")).build()?;
//!
//! let listener = TcpListener::bind(&server_stack, "10.0.0.2:7")?;
//! let server = std::thread::spawn(move || -> std::io::Result<()> {
//!     let (mut stream, _peer) = listener.accept()?;
//!     let mut text = String::new();
//!     stream.read_to_string(&mut text)?;
//!     stream.write_all(text.as_bytes())
//! });
//!
//! let mut stream = TcpStream::connect(&client_stack, "10.0.0.2:7")?;
//! stream.write_all(b"a batch of packets")?;
//! stream.shutdown(std::net::Shutdown::Write)?;
//! let mut echo = String::new();
//! stream.read_to_string(&mut echo)?;
//! assert_eq!(echo, "a batch of packets");
//! server.join().expect("the server ran")?;
//!
//! // One table tells what it took: batches, packets, copies, system calls, wake-ups, drops.
//! let counters = client_stack.counters();
//! assert_eq!(counters.runtime.bytes_copied_in, 18);
//! counters.for_each(&mut |name, value| println!("{name} {value}"));
//! # Ok(())
//! # }
//! ```
//!
//! # What a call costs
//!
//! A thread that reads, writes, accepts or connects runs the stack itself: it takes one lock, does
//! its part, sends what is to be sent and fetches what the device has. A lone thread therefore
//! never waits for another one, and nobody has to "poll" the stack. Threads that share a stack take
//! turns: one waits for the device, the others for it (see the counters `runtime.leader_waits` and
//! `runtime.follower_parks`). One thread of the stack, "squeue-0", answers pings, sends
//! acknowledgments and fires timers while no application thread is in a call.
//!
//! A stack may spread its work over several *squeues*, which threads can be in at the same time
//! ([`StackBuilder::squeues`], one for each core that it is to use). Sockets are used in the same way.
//!
//! [`TcpStream`]'s `write` copies the caller's whole buffer into blocks of up to 64 KiB, outside
//! the lock; TCP cuts the blocks into segments by reference, a batch of packets at a time, and the
//! device gets the batch in one call. So *large writes are cheap writes*: 64 KiB at a time is a good
//! size. [`TcpStream::write_bytes`] leaves out the copy, and [`TcpStream::read_bytes`] hands out
//! the blocks that the device filled.
//!
//! # What differs from `std::net`
//!
//! * Every constructor takes the [`Stack`] as its first argument.
//! * A name (`"host:443"`) is resolved as `std::net` does it, by the system's resolver and so past this
//!   stack, and waits for it outside all timeouts: in a tunnel's client, where that tells the outside
//!   what it should not know, pass addresses.
//! * A timeout that expires is an error of kind `WouldBlock`, as on Unix.
//! * [`TcpStream::take_error`] leaves the error in place.
//! * Dropping the last handle of a stack gives its connections a second ([`LINGER_ON_DROP`]) to
//!   deliver what they hold; [`Stack::shutdown`] waits as long as you say.
//! * A device that fails ends every call, those that wait and those that follow, with an error of
//!   kind `NetworkDown` that says what happened to it; what had arrived can still be read. A connection outlives it: who
//!   drops one then has what was written, and the end of the stream, sent by a device that takes the failed one's place
//!   ([`Stack::replace_device`]). Where the peer must not take that for the whole, abort it ([`TcpStream::abort`]).
//! * A datagram that does not fit the MTU goes out in fragments, unless `UdpSocket::set_mtu_discovery`
//!   says that it must not: then it is refused.
//!
//! # Raw IP and ICMP
//!
//! A [`RawSocket`] is bound to an IP protocol and sends and receives what lies behind the IP header, or
//! to an echo identifier, for [`echo_request`] and what answers one ([`EchoAnswer`]).
//!
//! # Errors
//!
//! As a programmer of POSIX sockets expects them:
//!
//! | what happened | the call | kind of the error |
//! |---|---|---|
//! | nobody listens there: the SYN was answered by a reset or ICMP | `connect` | `ConnectionRefused` |
//! | no answer to the SYN and its repetitions, or `connect_timeout` is over | `connect` | `TimedOut` |
//! | ICMP: the host, its network; a filter of IPv6; the host knows no TCP | `connect` | `HostUnreachable`, `NetworkUnreachable`; `PermissionDenied`; `Unsupported` |
//! | no route, or no own address of that IP version; an address that is not ours; no port left or taken | `connect`, `bind` | `NetworkUnreachable`; `AddrNotAvailable`; `AddrInUse` |
//! | a port and address others are bound to, unless all said `shared` (of UDP sockets: or all `yielding`) | `bind` | `AddrInUse` |
//! | the peer's end of the stream, all of it read, whatever came behind it | `read` | none: zero bytes |
//! | the peer reset the connection | `read`, once what had arrived was read; `write` | `ConnectionReset` |
//! | the peer stopped answering (retries, user timeout, keepalive) | `read`, `write` | `TimedOut` |
//! | the stream was shut down for writing, or the peer reset the connection behind its end of the stream | `write` | `BrokenPipe` |
//! | the stream was shut down for reading | `read`, once what had arrived was read | none: zero bytes |
//! | [`TcpStream::abort`] on this side | `read`, `write` | `ConnectionAborted` |
//! | the peer sent on after both directions had been shut down | `read`, once what had arrived was read | `ConnectionAborted` |
//! | the connection is gone | `shutdown` | `NotConnected` |
//! | it would wait, and may not, or not for longer | every one | `WouldBlock` |
//! | all devices failed, all interfaces were removed, or [`Stack::abort`]: at once, each time, until there is a device again | every one but `bind` | `NetworkDown` |
//! | the same of connections that [`Stack::abort`] reset | `read`, once what had arrived was read; `shutdown` | `ConnectionAborted`; `NotConnected` |
//!
//! A listener may be bound while connections in TIME-WAIT have its port: what SO_REUSEADDR asks for is
//! always so, because four-tuples and not ports are what must be unique.
//!
//! # Readiness
//!
//! Every socket can be set to not block and has `register_waker`. The `poll_*` calls and
//! [`Connecting`] are what an executor's types can be built from; the crate `multidata-tokio` has
//! those of tokio. They try and enter the waker under one lock, so no event is missed and nobody is
//! woken who does not wait. Tasks cannot wait for a device, so with tasks waiting it is the stack's own thread
//! that does, at the price of a wake-up between threads. An event loop that watches the device does without
//! ([`Stack::drivers`]; `multidata_tokio::drive`).
//!
//! # Looking inside
//!
//! [`Stack::counters`] tells what happened so far, [`Stack::gauges`] how much of everything there is now; both visit
//! names and figures, for a program that publishes them. [`Stack::sockets`] lists connections, listeners and sockets of
//! datagrams, [`Stack::interfaces`] the interfaces with their addresses and MTUs, [`Stack::routes`] and
//! [`Stack::neighbours`] what their names say. What happens to interfaces and addresses, as that a
//! device fails, a thread learns by [`Stack::wait_for_event`] and a task by [`Stack::next_event`].
//!
//! # What may be added
//!
//! Options have a `Default`, or a constructor, from which to take what one does not set
//! (`ConnectOptions { local, ..ConnectOptions::default() }`): more of them are no change for who does so. Events
//! and what a stack tells of itself are `non_exhaustive`.
//!
//! # Bounds
//!
//! All packet memory comes from one [`BlockPool`](::batch::BlockPool) with a limit; a part of it is
//! reserved for receiving, so that acknowledgments, which free memory, always come in. A write that
//! finds the pool exhausted waits for it, and fails where no write gets on for a second. Sockets,
//! backlogs, buffers and queues are bounded by [`StackConfig`] and [`tcp::Config`].

mod affinity;
mod capture;
mod copy_in;
mod counters;
#[cfg(unix)]
mod driver;
mod echo;
mod error;
mod groups;
mod rate;
mod raw_socket;
mod runtime;
mod socket;
mod socket_set;
mod stack;
mod tcp_forwarder;
mod tcp_listener;
mod tcp_stream;
mod udp_forwarder;
mod udp_sender;
mod udp_socket;

// What stands in this crate's signatures, and in what those hold, so that it can be named by who depends on this crate
// alone. Of devices, batches and time that is all there is, for who writes a device queue or a filter; `bytes` is the crate
// whose `Bytes` are lent and handed out.
pub use ::counters::{DropCounters, DropReason, MultidataRefusal, RefusalCounters};
pub use ::stack::{
    AddressEvent, AddressOrigin, AddressState, AddressStatus, BACKLOG_DEFAULT, BadArgument,
    BindOptions, ClaimPolicy, FastOpenKeys, FastOpenOptions, FilterFlow, Handling, InterfaceEvent,
    InterfaceId, ListenOptions, MtuDiscovery, MultidataProtocols, NeighbourCounters,
    NeighbourState, NeighbourStatus, PacketFilter, PacketMarks, RouteStatus, ShardCounters,
    SocketError, SocketKind, SocketStatus, StackCounters, SynCookieMode, TcpStatus, TransmitStatus,
    Verdict,
};
pub use ::steering::{
    BadLayout, BatchSizes, Coalescing, Layout, Policy, Polling, PollingMarks, SoftRingCounters,
    SoftRingSetCounters, UnknownPolicy, UnknownPolling,
};
pub use {::batch, ::bytes, ::device, ::time};

pub use crate::capture::CaptureFile;
pub use crate::copy_in::{BlockSize, CopyIn, CopyObserver, CopyOrder};
pub use crate::counters::{Counters, SteeringCounters};
#[cfg(unix)]
pub use crate::driver::{Driver, DriverFile, Turn};
pub use crate::echo::{EchoAnswer, echo_request};
pub use crate::error::socket_error;
pub use crate::rate::rate_limit;
pub use crate::raw_socket::{RawPacket, RawSocket, ReceivedPacket};
pub use crate::runtime::RuntimeCounters;
pub use crate::runtime::waiting::Interest;
pub use crate::stack::{
    Gauges, InterfaceConfig, InterfaceStatus, LINGER_ON_DROP, QueueStatus, Sockets, Stack,
    StackBuilder, StackConfig, StackEvent,
};
pub use crate::tcp_forwarder::{PendingConnection, TcpForwarder};
pub use crate::tcp_listener::{Incoming, TcpListener};
pub use crate::tcp_stream::{ConnectOptions, Connecting, TcpStream};
pub use crate::udp_forwarder::{ForwardedDatagram, UdpForwarder};
pub use crate::udp_socket::{Datagram, LentDatagram, ReceivedDatagram, UdpSocket};
pub use ::device::{CaptureConfig, CaptureCounters};

/// How connections are set up, and what they tell of themselves.
pub mod tcp {
    pub use ::tcp::{
        AssemblerConfig, Config, EcnMode, Keepalive, MSS_DEFAULT_IPV4, MSS_DEFAULT_IPV6, MSS_MIN,
        Pacing, PathProbing, RecoveryState, RttConfig, SegmentCounts, State, TcpCounters, TcpInfo,
    };
    pub use ::wire::{SeqNumber, TcpOptionCounters};

    /// Congestion control.
    pub mod congestion {
        pub use ::tcp::{Algorithm, CongestionConfig, Idle};
    }
}

/// Networks, and what routers and ICMP tell.
pub mod ip {
    pub use ::ip::router::{IdentifierKey, RouterCounters};
    pub use ::ip::{Cidr, IcmpErrorKind, NotACidr};
    pub use ::wire::ndp::{NameServers, PrefixInformation, RouterAdvertisement, RouterPreference};
}

/// Addresses from a DHCP server, and a server for those who ask a socket of this stack.
pub mod dhcp {
    pub use ::dhcp::{Answer, CLIENT_PORT, SERVER_PORT, Server, ServerConfig, ServerCounters};
    pub use ::dhcp::{ClientConfig, DhcpCounters};
}
