//! The deadlines of a connection.
//!
//! A timer is a deadline or nothing. Nothing runs by itself: the owner asks for the earliest
//! deadline and calls when it has passed, as late as it likes.

use time::Instant;

/// What a deadline is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    /// The oldest unacknowledged byte, or the SYN, is to be sent again (RFC 6298).
    Retransmission,
    /// What came out of order has had its time, or a probe is to find out about the tail of the
    /// flight (RFC 8985, 6.2 and 7.2).
    Loss,
    /// The peer's window is to be probed, or a small segment sent after all (RFC 9293, 3.8.6).
    Persist,
    /// The owed ACK is to be sent (RFC 9293, 3.8.6.3).
    DelayedAck,
    /// The connection has been idle long enough to be probed (RFC 9293, 3.8.4).
    Keepalive,
    /// The connection may be forgotten: 2 MSL in TIME-WAIT, or the limit on an orphan's FIN-WAIT-2.
    Lifetime,
    /// New data is released ([`crate::sender::pacing`]).
    Pacing,
    /// Data has waited for its acknowledgment, or for the peer's window, for as long as the user allows
    /// (RFC 9293, 3.8.3).
    User,
}

const COUNT: usize = 8;

impl Timer {
    /// In the order in which they are handled: a probe puts the retransmission off.
    const ALL: [Self; COUNT] = [
        Self::Loss,
        Self::Retransmission,
        Self::Persist,
        Self::DelayedAck,
        Self::Keepalive,
        Self::Lifetime,
        Self::Pacing,
        Self::User,
    ];
}

/// Stands for no deadline: half the size of an `Option`, of which a connection would have one for
/// each timer.
const NEVER: Instant = Instant::from_nanos(u64::MAX);

/// The latest instant at which anything can be due.
const LATEST: Instant = Instant::from_nanos(u64::MAX - 1);

/// One deadline for each [`Timer`].
#[derive(Clone, Debug)]
pub(crate) struct Timers {
    deadlines: [Instant; COUNT],
}

impl Default for Timers {
    fn default() -> Self {
        Self { deadlines: [NEVER; COUNT] }
    }
}

impl Timers {
    pub(crate) fn set(&mut self, timer: Timer, deadline: Instant) {
        self.deadlines[timer as usize] = deadline;
    }

    /// Sets a deadline unless there is one.
    pub(crate) fn set_if_idle(&mut self, timer: Timer, deadline: Instant) {
        if !self.is_set(timer) {
            self.set(timer, deadline);
        }
    }

    pub(crate) fn stop(&mut self, timer: Timer) {
        self.deadlines[timer as usize] = NEVER;
    }

    pub(crate) fn stop_all(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn is_set(&self, timer: Timer) -> bool {
        self.deadlines[timer as usize] != NEVER
    }

    /// When it is due, if it runs.
    pub(crate) fn deadline(&self, timer: Timer) -> Option<Instant> {
        Some(self.deadlines[timer as usize]).filter(|deadline| *deadline != NEVER)
    }

    /// The earliest deadline.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.deadlines.iter().copied().min().filter(|deadline| *deadline != NEVER)
    }

    /// Takes a timer whose deadline has passed, if there is one.
    pub(crate) fn take_expired(&mut self, now: Instant) -> Option<Timer> {
        let expired = |timer: &Timer| self.deadlines[*timer as usize] <= now.min(LATEST);
        let timer = Timer::ALL.into_iter().find(expired)?;
        self.stop(timer);
        Some(timer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_deadline_is_next_and_each_expires_once() {
        let mut timers = Timers::default();
        assert_eq!(timers.next(), None);
        timers.set(Timer::Keepalive, Instant::from_millis(30));
        timers.set(Timer::DelayedAck, Instant::from_millis(20));
        timers.set_if_idle(Timer::DelayedAck, Instant::from_millis(5));
        assert_eq!(timers.next(), Some(Instant::from_millis(20)));
        assert_eq!(timers.take_expired(Instant::from_millis(19)), None);
        assert_eq!(timers.take_expired(Instant::from_millis(40)), Some(Timer::DelayedAck));
        assert_eq!(timers.take_expired(Instant::from_millis(40)), Some(Timer::Keepalive));
        assert_eq!(timers.take_expired(Instant::from_millis(40)), None);
        assert!(!timers.is_set(Timer::Keepalive));
    }
}
