//! Rates of device queues, by the monotonic clock.

use crate::runtime::Clock;
use device::{RateConfig, RateLimit};

/// A limit for the queues of a device, so many bits of frames a second: wrap each of them in a
/// [`device::RateQueue`]. What does not fit waits in the stack, where it is not even built yet.
///
/// ```no_run
/// # fn run(queue: impl device::Queue + 'static) -> std::io::Result<()> {
/// use device::{RateConfig, RateQueue};
/// use multidata::{InterfaceConfig, Stack};
/// let limit = multidata::rate_limit(RateConfig::new(100_000_000));
/// let queue = RateQueue::new(queue, limit);
/// let stack = Stack::builder().interface(queue, InterfaceConfig::automatic()).build()?;
/// # Ok(())
/// # }
/// ```
#[must_use]
pub fn rate_limit(config: RateConfig) -> RateLimit {
    let clock = Clock::start();
    RateLimit::new(config, Box::new(move || clock.now()))
}
