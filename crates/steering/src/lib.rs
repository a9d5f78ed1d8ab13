//! What lies between a device queue and the squeues, without IO, clocks or threads.
//!
//! The receive path of seed 004 in parts that the runtime, virtual time and loom put together alike:
//!
//! ```text
//!  device ring --> Coalescer ----> SoftRingSet ----> SoftRing ----> Door, Discipline --> shard
//!                  how many        classify, split   bounded,       who processes, how
//!                  at a time       by home           fair queue     much, poll or wait
//! ```
//!
//! * [`coalescing`]: how many frames are handed up in one call (seed 003, section 5.2).
//! * [`toeplitz`], [`classify()`]: what flow a frame is of, and its hash.
//! * [`Layout`], [`Policy`], [`Spread`]: `R1S8F1`, and which home a flow has. A connection has one home
//!   for life; [`Spread::home_of_reply`] tells it before it is opened.
//! * [`SoftRingSet`] takes a batch apart into [`Lane`]s, sharing the blocks; [`SoftRing`] takes a lane
//!   from one thread to another and bounds what one flow may hold.
//! * [`Door`] sees that work put in for a squeue is not forgotten by a thread on its way out;
//!   [`Discipline`] says how much a thread may do inside, and when to poll; [`Watch`] who waits for the device
//!   and who is to be called;
//!   [`Feedback`] when nothing is to be taken in, because readers do not keep up.
//!
//! * [`Exchange`] and its [`Desk`]s are all of that together, for homes that hand frames to each other.
//!
//! What always holds: no frame is copied, lost without a count, or processed before an earlier one of its
//! flow; nothing here grows without a bound or trusts a length in a frame.
//!
//! Whoever runs a home does, in one turn:
//!
//! ```
//! use batch::ReceiveBatch;
//! use std::sync::Arc;
//! use steering::{Arrived, Desk, Exchange, Home, Policy, SoftRingConfig, Spread};
//!
//! let spread = Spread::new("R1S2F1".parse()?, Policy::Flow, 2)?;
//! let exchange = Arc::new(Exchange::<()>::new(spread, 1, SoftRingConfig::default()));
//! let mut desk = Desk::new(&exchange, Home::FIRST);
//!
//! // Inside, with the home's lock.
//! let mut batch = ReceiveBatch::new();
//! let taken = desk.take_in(&mut batch, |arrived| match arrived {
//!     Arrived::Frames(interface, frames) => { /* shard.on_receive(now, interface, frames) */ }
//!     Arrived::Stray(()) => {}
//! });
//! // ... queue.receive(pool, &mut batch, coalescer.frames_max()) ...
//! desk.spread(0, device::Medium::Ip, &mut batch, |own| { /* shard.on_receive(now, 0, own) */ });
//! desk.take_note();
//! let concerned = desk.take_concerned();
//! // Outside: whoever was handed something is told, and is called where nobody is inside there.
//! (0..2).filter(|home| concerned & 1 << home != 0).for_each(|home| exchange.announce(home));
//! assert!(!taken.more && !exchange.is_owed(0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod classify;
pub mod coalescing;
mod counting;
mod discipline;
mod door;
mod exchange;
mod feedback;
#[cfg(all(feature = "interleavings", test))]
mod interleavings;
mod layout;
mod lone;
#[cfg(test)]
mod packets;
mod socket_program;
mod soft_ring;
mod soft_ring_set;
mod spread;
mod sync;
pub mod toeplitz;
mod watch;

pub use classify::{Class, Flow, Transport, classify};
pub use coalescing::{Coalescer, Coalescing, Verdict};
pub use counters::BatchSizes;
pub use counting::{SoftRingCounters, SoftRingSetCounters, SqueueCounters};
pub use discipline::{
    Budget, Discipline, Mode, Polling, PollingMarks, ThreadToken, UnknownPolling,
};
pub use door::Door;
pub use exchange::{Arrived, Desk, Exchange, SoftRings, TakenIn};
pub use feedback::Feedback;
pub use layout::{BadLayout, Layout};
pub use socket_program::Instruction;
pub use soft_ring::{Drained, Pushed, SoftRing, SoftRingConfig};
pub use soft_ring_set::{Lane, SoftRingSet};
pub use spread::{BadSpread, Home, Policy, Spread, Target, UnknownPolicy};
pub use watch::{Calls, Left, Parked, Role, Watch, Worker};
