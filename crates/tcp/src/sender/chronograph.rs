//! For how long a sender waited for what: whether the path, the peer's window or the size of the send
//! buffer bounded a transfer (the idea of Linux's `tcp_chrono`).
//!
//! The sender waits for one thing at a time. The time since it began to is added to that thing's sum
//! when it waits for something else.

use time::{Duration, Instant};

/// What the sender waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Waits {
    /// There is nothing to send, and all of it is acknowledged.
    #[default]
    Nothing,
    /// The path: ACKs, or the congestion window.
    Path,
    /// The peer's window.
    PeerWindow,
    /// The application, which could not queue more than is in flight.
    SendBuffer,
}

/// Sums of waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Times {
    /// All waiting for anything.
    pub(crate) busy: Duration,
    pub(crate) window_limited: Duration,
    pub(crate) send_buffer_limited: Duration,
}

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Chronograph {
    since: Instant,
    busy_ns: u64,
    window_limited_ns: u64,
    send_buffer_limited_ns: u64,
    waits: Waits,
}

impl Chronograph {
    /// The sender waits for this from now on.
    #[inline]
    pub(crate) fn enter(&mut self, now: Instant, waits: Waits) {
        if waits == self.waits {
            return;
        }
        let elapsed_ns = now.as_nanos().saturating_sub(self.since.as_nanos());
        self.add(elapsed_ns);
        (self.since, self.waits) = (now, waits);
    }

    /// The sums, up to now.
    pub(crate) fn times(&self, now: Instant) -> Times {
        let mut until_now = *self;
        until_now.add(now.as_nanos().saturating_sub(self.since.as_nanos()));
        Times {
            busy: Duration::from_nanos(until_now.busy_ns),
            window_limited: Duration::from_nanos(until_now.window_limited_ns),
            send_buffer_limited: Duration::from_nanos(until_now.send_buffer_limited_ns),
        }
    }

    fn add(&mut self, elapsed_ns: u64) {
        match self.waits {
            Waits::Nothing => return,
            Waits::Path => {}
            Waits::PeerWindow => self.window_limited_ns += elapsed_ns,
            Waits::SendBuffer => self.send_buffer_limited_ns += elapsed_ns,
        }
        self.busy_ns += elapsed_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wait_adds_to_its_own_sum_and_to_that_of_all() {
        let mut chronograph = Chronograph::default();
        let at = Instant::from_millis;
        let waits = [Waits::Path, Waits::PeerWindow, Waits::PeerWindow, Waits::SendBuffer];
        for (step, waits) in (1..).zip(waits) {
            chronograph.enter(at(step * 10), waits);
        }
        chronograph.enter(at(100), Waits::Nothing);
        chronograph.enter(at(500), Waits::Path);
        let times = chronograph.times(at(501));
        assert_eq!(times.busy, Duration::from_millis(91));
        assert_eq!(times.window_limited, Duration::from_millis(20));
        assert_eq!(times.send_buffer_limited, Duration::from_millis(60));
    }
}
