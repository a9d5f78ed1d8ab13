//! How much of the window was used (RFC 2861, 3.2; what RFC 7661 calls a validated window).

use time::Instant;

/// Watches whether a connection ever needs its window.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WindowUse {
    used_bytes: u32,
    since: Instant,
    /// The window held data back when something was sent last, or asked for.
    pub(crate) is_limited: bool,
    /// The application had nothing to send before what waits now.
    pub(crate) after_silence: bool,
    /// The window was reduced for a silence, and nothing was sent since.
    pub(crate) is_decayed: bool,
}

impl WindowUse {
    /// An ACK came while `in_flight_bytes` were in flight.
    /// Once for every RTO in which it never did: the most that was in flight, which is what
    /// [`super::Congestion::on_unused`] is to be told.
    pub(crate) fn on_ack(
        &mut self,
        now: Instant,
        in_flight_bytes: u32,
        rto_ns: u64,
    ) -> Option<u32> {
        if self.is_limited {
            (self.used_bytes, self.since) = (0, now);
            return None;
        }
        self.used_bytes = self.used_bytes.max(in_flight_bytes);
        if now < self.since.after_nanos(rto_ns) {
            return None;
        }
        self.since = now;
        Some(core::mem::take(&mut self.used_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTO_NS: u64 = 200_000_000;

    #[test]
    fn reports_once_per_timeout_in_which_the_window_held_nothing_back() {
        let mut usage = WindowUse::default();
        let mut on_ack = |ms: u64, bytes, is_limited| {
            usage.is_limited = is_limited;
            usage.on_ack(Instant::from_millis(10_000 + ms), bytes, RTO_NS)
        };
        assert_eq!(on_ack(0, 9_000, true), None);
        assert_eq!(on_ack(100, 5_000, false), None);
        assert_eq!(on_ack(150, 3_000, false), None);
        assert_eq!(on_ack(200, 1_000, false), Some(5_000));
        assert_eq!(on_ack(300, 1_000, false), None);
        assert_eq!(on_ack(350, 9_000, true), None);
        assert_eq!(on_ack(500, 1_000, false), None, "a new interval");
    }
}
