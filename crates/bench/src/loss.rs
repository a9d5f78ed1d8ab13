//! Goodput over a bad path: this stack as sender beside Linux as sender.
//!
//! ```text
//!  namespace of this program                          a namespace of its own
//!
//!  this stack == packet socket ==+
//!                                |== TAP == joint == TAP == Linux, which receives
//!  Linux ========================+
//! ```
//!
//! Both senders leave by the kernel's side of the same kind of TAP, in turn: Linux has an address there, or this stack
//! has one and the kernel none, so that it answers nothing. From there on all is the same: the interface's queue, the
//! [`joint`] with its faults, rate, queue and delay, the receiver. What decides a run beside the sender is a [`Cell`].
//! In comes a list of cells, out come [`Results`].
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
