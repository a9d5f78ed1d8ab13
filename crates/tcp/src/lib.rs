//! The TCP state machine (RFC 9293), sans-IO: segments and the passing of time go in, batches of
//! segments come out. It knows neither IP nor devices.
//!
//! A [`Connection`] is a sender, a receiver and the state machine that joins them; both halves are made of parts, each the
//! owner of one idea and each in the module of that name. Segments come in through [`Connection::on_segment`] and
//! [`Connection::on_batch_end`]; they go out through [`Connection::poll_transmit`], which builds and commits nothing, and
//! [`Connection::on_transmitted`], which commits what a device took. There is one way out: a pure
//! ACK, a retransmission and a burst of sixty-four segments are all batches, planned and written
//! by the same few functions of `output`.
//!
//! Read first: RFC 9293, 3.10 (event processing), then RFC 7323 (timestamps, window scale), RFC
//! 5681 and RFC 6675 (congestion, SACK recovery), RFC 6298 (timeouts), RFC 5961 (blind attacks).

mod buffers;
mod config;
mod connection;
mod counters;
mod ecn;
mod event;
mod fast_open;
mod half_open;
mod info;
mod input;
mod isn;
mod options;
mod output;
mod receiver;
mod reset;
mod room;
mod sender;
mod settings;
mod state;
mod syn_cookie;
mod time_wait;
mod timeouts;
mod timers;
mod urgent;
mod user_timeout;

pub use crate::config::{
    Config, Keepalive, MSS_DEFAULT_IPV4, MSS_DEFAULT_IPV6, MSS_MIN, Parameters,
};
pub use crate::connection::Connection;
pub use crate::counters::{Lent, TcpCounters};
pub use crate::ecn::EcnMode;
pub use crate::event::{ConnectionError, Events, SendError};
pub use crate::fast_open::FastOpenOutcome;
pub use crate::half_open::{HalfOpen, Verdict};
pub use crate::info::{SegmentCounts, TcpInfo};
pub use crate::input::{Follower, Segment};
pub use crate::isn::IsnGenerator;
pub use crate::receiver::assembler::AssemblerConfig;
pub use crate::reset::{ResetReply, push_control, reset_reply};
pub use crate::sender::congestion::{Algorithm, CongestionConfig, Idle};
pub use crate::sender::pacing::Pacing;
pub use crate::sender::path_mtu::PathProbing;
pub use crate::sender::recovery::RecoveryState;
pub use crate::sender::rtt::RttConfig;
pub use crate::state::State;
pub use crate::syn_cookie::{SYN_COOKIE_LIFETIME, SynCookies};
pub use crate::time_wait::{TimeWait, TimeWaitVerdict};

#[cfg(test)]
mod tests;
