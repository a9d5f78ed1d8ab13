//! Goodput over a bad path: this stack as sender beside Linux as sender.
//!
//! ```text
//!  namespace of this program                        a namespace of its own
//!
//!  this stack == wire ==+                           +== TAP == Linux, which receives
//!                       |== joint: faults, rate, ===|
//!  Linux ====== TAP ====+   queue, delay
//! ```
//!
//! Both senders go through the same [`joint`] to the same kind of receiver, in turn; what decides a
//! run beside the sender is a [`Cell`]. In comes a list of cells, out come [`Results`].
//!
//! Goodput is what the receiving application read from the first byte to the end of the time, so
//! that slow start counts and what still lies in buffers does not.

pub mod cell;
pub mod delay_line;
pub mod joint;
pub mod receiver;
pub mod results;
pub mod run;

pub use cell::Cell;
pub use results::Results;
