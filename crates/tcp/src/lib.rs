//! The TCP state machine (RFC 9293)

pub mod isn;
pub mod rtt;
pub mod assembler;
pub mod scoreboard;
