//! What a run over a bad path is, beside who sends.

use core::fmt;
use std::time::Duration;

/// Who sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sender {
    /// This stack, in batches of real packets.
    Ours,
    /// The kernel.
    Linux,
}

impl Sender {
    /// The name in tables and results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ours => "multidata",
            Self::Linux => "linux",
        }
    }
}

/// The path of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// Frames lost, in percent, each way.
    pub loss_percent: f64,
    /// Frames held back while up to three others pass, in percent, each way.
    pub reorder_percent: f64,
    /// Frames that arrive with a flipped bit, in percent, each way.
    pub corrupt_percent: f64,
    /// Round-trip time of the path, half of it each way.
    pub round_trip: Duration,
    /// Rate of the path each way.
    pub rate_bits_per_s: u64,
    /// Bytes that wait in front of the path at most.
    pub queue_bytes_max: usize,
}

impl Cell {
    /// A path of 1 Gbit/s with a queue of a thousand full frames, which is the queue that Linux
    /// gives an interface.
    #[must_use]
    pub fn new(loss_percent: f64, round_trip: Duration) -> Self {
        Self {
            loss_percent,
            reorder_percent: 0.0,
            corrupt_percent: 0.0,
            round_trip,
            rate_bits_per_s: 1_000_000_000,
            queue_bytes_max: 1_000 * 1_514,
        }
    }
}

impl Cell {
    /// What is on the way at most where the queue is empty: rate times round-trip time, in bytes.
    #[must_use]
    pub fn product_bytes(&self) -> u64 {
        (self.rate_bits_per_s as f64 / 8.0 * self.round_trip.as_secs_f64()) as u64
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} % lost, {} ms", self.loss_percent, self.round_trip.as_millis())?;
        if self.reorder_percent > 0.0 {
            write!(formatter, ", {} % reordered", self.reorder_percent)?;
        }
        if self.corrupt_percent > 0.0 {
            write!(formatter, ", {} % corrupted", self.corrupt_percent)?;
        }
        Ok(())
    }
}
