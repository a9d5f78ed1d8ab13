//! What the stack needs of Linux: devices, namespaces, CPU accounts.
//!
//! * [`TapDevice`]: a TAP or TUN interface, its queues each a [`device::Queue`]. Everything beyond the bare
//!   frame (checksum offload, super-frames, NAPI) is negotiated at run time; what the kernel
//!   refuses is switched off and reported.
//! * [`PacketDevice`]: packet sockets (AF_PACKET) on an interface of the kernel's.
//! * [`TunnelDevice`]: packets as datagrams of a UDP flow, each sealed by a transform of the
//!   caller's choice.
//! * [`StreamDevice`]: Ethernet frames over a stream socket, as to a virtual machine.
//! * [`XdpDevice`]: an existing interface taken over by AF_XDP, frames in memory shared with the kernel.
//! * [`Sandbox`]: user, network and mount namespaces of our own, so that tests and benches need no
//!   root and leave no trace.
//! * [`VethPair`]: two interfaces joined by a cable, for devices that take over an interface.
//! * [`Bridge`]: interfaces joined as by a switch, for two stacks over two TAPs.
//! * [`Interface`]: the kernel's side of a device: up, MTU, addresses, neighbours, without any tool.
//! * [`TunFile`] and [`raw_calls`]: for playing the network in front of the kernel, and asking it
//!   what it says to any socket call.
//! * [`cpu`]: CPU time of a thread, the process and the system; pinning; what the host is.
//! * [`descriptors`]: how many of them this process may have open.
//!
//! This crate, the checksum kernels and `packetdrill-ffi` are the only homes of `unsafe`; here it is in
//! `ioctl.rs`, `mapping.rs`, `packet/calls.rs`, `packet/block_ring.rs`, `raw_calls.rs`, `tap/write_ring.rs`,
//! `tunnel/calls.rs`, `xdp/` and one call in `namespace.rs`. Every error is a sentence that says what was
//! attempted, what the system said and what to do.

mod bridge;
pub mod cpu;
mod datagrams;
pub mod descriptors;
#[cfg(feature = "fuzzed")]
#[doc(hidden)]
pub mod fuzzed;
mod held;
mod interface;
mod ioctl;
pub mod kernel_socket;
mod mapping;
mod namespace;
mod netlink;
mod packet;
mod pending;
pub mod raw_calls;
mod stream;
mod system_error;
mod tap;
mod tun_file;
mod tunnel;
mod veth;
mod vnet;
mod waiter;
#[cfg(test)]
#[path = "../tests/network/withheld.rs"]
mod withheld;
mod xdp;

pub use bridge::Bridge;
pub use interface::{Feature, Interface};
pub use namespace::Sandbox;
pub use packet::{PacketAddress, PacketConfig, PacketDevice, PacketQueue};
pub use stream::{StreamConfig, StreamDevice, StreamQueue};
pub use system_error::SystemError;
pub use tap::{IoUring, Napi, TapConfig, TapDevice, TapKind, TapQueue};
pub use tun_file::TunFile;
#[cfg(feature = "chacha20poly1305")]
pub use tunnel::{ChaChaKeys, ChaChaPoly};
pub use tunnel::{TunnelConfig, TunnelDevice, TunnelQueue};
pub use veth::VethPair;
pub use xdp::{XdpAttach, XdpConfig, XdpCopy, XdpDevice, XdpQueue};
