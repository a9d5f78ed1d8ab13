//! Segment scripts against one connection, and two connections joined back to back.

mod close;
mod handshake;
mod harness;
mod hostile;
mod joined;
mod loss;
mod options;
mod reset;
mod timers;
mod transfer;
mod window;
