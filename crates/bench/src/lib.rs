//! Workloads, peers and results as data.
//!
//! ```text
//!  plan ----> job ----> run ----------> results ----> table, findings, JSON
//!  (which     (rounds)  (one scenario    (data)
//!  scenarios)            once)
//!                          |
//!        +-----------------+------------------+
//!        place             station            peer
//!        (namespace,       (this stack over   (the kernel in a child process,
//!        addresses, CPUs)  one device)         or a second stack over the wire)
//!                          |                  |
//!                          +--- workload -----+
//!                               (the same code at both ends)
//! ```
//!
//! In comes a list of [`scenario::Scenario`]; out comes [`results::Results`]. What always holds:
//! a scenario is timed only after a pass of its own in which every byte was checked at the end
//! that received it; a byte that is not the one that was sent is an error, not a figure; and the
//! CPU time of the kernel's end is never counted as the stack's.

mod failure;

pub mod cipher;
pub mod copy_in;
pub mod counted;
pub mod growing;
pub mod host;
pub mod job;
pub mod latency;
pub mod layouts;
pub mod loss;
pub mod many;
pub mod measure;
pub mod peer;
pub mod ping;
pub mod place;
pub mod plan;
pub mod progress;
pub mod receive;
pub mod report;
pub mod results;
pub mod run;
pub mod scenario;
pub mod sizes;
pub mod socket;
pub mod station;
pub mod statistics;
pub mod table;
pub mod times;
pub mod transmit;
pub mod verify;
pub mod whole_file;
pub mod workload;

pub use failure::{Attempt, Failure};
pub use scenario::{Direction, Scenario};
