//! A userspace TCP/IP stack whose unit of work is a batch of packets.

mod copy_in;
mod counters;
mod error;
mod runtime;
mod socket;
mod stack;
mod tcp_listener;
mod tcp_stream;
mod udp_socket;

pub use crate::copy_in::CopyIn;
pub use crate::counters::Counters;
pub use crate::error::socket_error;
pub use crate::runtime::RuntimeCounters;
pub use crate::runtime::waiting::Interest;
pub use crate::stack::{
    InterfaceConfig, InterfaceStatus, LINGER_ON_DROP, Stack, StackBuilder, StackConfig,
};
pub use crate::tcp_listener::{BACKLOG_DEFAULT, Incoming, TcpListener};
pub use crate::tcp_stream::TcpStream;
pub use crate::udp_socket::UdpSocket;
