//! The TCP state machine (RFC 9293)

pub mod assembler;
pub mod congestion;
pub mod isn;
pub mod rtt;
pub mod scoreboard;
