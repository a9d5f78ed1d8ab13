//! Clocks: what a run cost.
//!
//! The stack's CPU is that of this process, exact, from the scheduler's own account; the kernel's
//! end of a TAP runs in a child process and so is not in it. What a system call of ours makes the
//! kernel do - a TAP write runs the kernel's whole receive path - is ours. The system's CPU is the
//! sum over all CPUs of what `/proc/stat` calls user, nice, system, irq and softirq: it holds the
//! kernel's end and its threads too, and whatever else ran meanwhile.

use crate::Failure;
use linux::cpu::{SystemSample, process_kernel_time, process_time};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// What the clocks showed at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Clocks {
    process: Duration,
    kernel: Duration,
    system: SystemSample,
}

/// CPU seconds spent between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spent {
    /// By this process.
    pub process_cpu_s: f64,
    /// The part of it that was spent in the kernel.
    pub kernel_cpu_s: f64,
    /// By the machine.
    pub system_cpu_s: f64,
}

impl Clocks {
    /// Reads the clocks.
    ///
    /// # Errors
    /// A sentence, where the system does not tell.
    pub fn read() -> Result<Self, Failure> {
        let system = SystemSample::take().map_err(|error| Failure::new(error.to_string()))?;
        Ok(Self { process: process_time(), kernel: process_kernel_time(), system })
    }

    /// What was spent since `self` was read.
    ///
    /// # Errors
    /// As [`Clocks::read`].
    pub fn spent(self) -> Result<Spent, Failure> {
        Ok(self.spent_until(&Self::read()?))
    }

    /// What was spent from then until `later`.
    #[must_use]
    pub fn spent_until(&self, later: &Self) -> Spent {
        Spent {
            process_cpu_s: later.process.saturating_sub(self.process).as_secs_f64(),
            kernel_cpu_s: later.kernel.saturating_sub(self.kernel).as_secs_f64(),
            system_cpu_s: later.system.since(&self.system).busy_by_ticks.as_secs_f64(),
        }
    }
}

/// The figures of a counter table by name.
pub type Counters = BTreeMap<String, u64>;

/// What was counted between `before` and `after`. A counter that can fall (a level, such as bytes
/// outstanding) shows what it stands at.
#[must_use]
pub fn counted_since(before: &Counters, after: &Counters) -> Counters {
    after
        .iter()
        .map(|(name, count)| {
            let earlier = before.get(name).copied().unwrap_or(0);
            (name.clone(), count.checked_sub(earlier).unwrap_or(*count))
        })
        .collect()
}

/// The counter of this name, or zero.
#[must_use]
pub fn counter(counters: &Counters, name: &str) -> u64 {
    counters.get(name).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_shows_on_the_process_clock() {
        let clocks = Clocks::read().unwrap();
        let mut sum = 0_u64;
        while clocks.spent().unwrap().process_cpu_s < 0.002 {
            sum = sum.wrapping_add((0..10_000).sum());
        }
        assert!(sum > 0);
    }

    #[test]
    fn counters_are_told_apart_by_their_difference() {
        let table = |packets, level| {
            Counters::from([("packets".to_owned(), packets), ("level".to_owned(), level)])
        };
        let since = counted_since(&table(5, 9), &table(12, 4));
        assert_eq!(counter(&since, "packets"), 7);
        assert_eq!(counter(&since, "level"), 4);
        assert_eq!(counter(&since, "absent"), 0);
    }
}
