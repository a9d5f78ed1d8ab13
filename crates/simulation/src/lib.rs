//! Stacks in virtual time, over links that lose, shuffle, double and damage, with a checker that
//! watches the wire.
//!
//! A run is a world of a few hosts (one or several [`stack::Shard`]s with a device, a pool and
//! applications), joined by a switch. The shards of a host hand frames to each other by the exchange that
//! squeues use (`steering`), and the seed says who of them runs when. A seed says everything: which links, which faults, which settings, who opens
//! a connection when, what is said, read, closed, aborted, which host restarts. The same seed gives
//! the same run to the last bit, so a failing seed is the whole bug report.
//!
//! ```text
//!   scenario   what a seed fixes beforehand         application  what the ends of a connection do
//!   host       shards + device + pool               link         loss, delay, order, damage
//!   world      time, events, phases, what must hold checker      what RFCs let a stack send
//!   packet     frames read with foreign parsers     stream       bytes that say whose they are
//!                                                   marks        urgent marks in them
//! ```
//!
//! What must hold:
//! * every stream arrives as it was sent, or the application is told of an error that has a cause, which
//!   the wire shows for that connection and that error: a reset that arrived from a peer with a reason, a
//!   peer that was silent for as long as it takes though it answered all that came to it;
//! * who can go on is told so, and has announced what room it has;
//! * urgent marks arrive where they were set;
//! * a connection is accepted once, and only what came with the SYN of a fast open is ever read twice;
//! * a connection whose address is taken away fails with the error that says so, nothing is sent from
//!   an address that is tentative or gone, and one that a neighbour has is not taken;
//! * once the links are good everybody makes progress and every connection ends;
//! * and then datagrams arrive, and their echoes;
//! * frames of a connection reach its shard in the order in which they came, whichever squeue of the
//!   host runs first or stands still, and what squeues hand to each other is taken or counted as dropped;
//! * nothing is left at the end: no block, socket, timer;
//! * no segment is sent that an RFC forbids ([`checker`]);
//! * a run repeats: [`Report::hash`] is the same for the same seed.
//!
//! Nothing here reads a clock, starts a thread or prints; `examples/simulate` does.

pub mod application;
pub mod checker;
pub mod frame;
pub mod host;
pub mod link;
pub mod marks;
pub mod packet;
pub mod random;
mod report;
pub mod scenario;
pub mod stream;
pub mod trace;
mod world;

pub use report::{Failure, Report, RunCounters};
pub use world::{Keep, World, run};
