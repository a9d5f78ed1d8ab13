//! Who runs next: in the place of threads and of the system that schedules them.
//!
//! With one squeue nothing is drawn. With several the seed decides who of those that have something to
//! do goes next, how much he takes, how soon he comes when he is told of something, and who does not
//! come for a while although he should.

use crate::random::Random;
use time::{Duration, Instant};

/// Short beside a retransmission timer: what is due meanwhile is done late, and the checker, which knows of
/// no stalls, measures from one repetition to the next.
const STALL_MAX_US: u64 = 30_000;

/// The schedule of a host's squeues.
pub(super) struct Schedule {
    random: Random,
    count: usize,
    /// Squeues that have something to do, a bit for each.
    wanted: u64,
    stalled_until: Vec<Instant>,
}

impl Schedule {
    pub(super) fn new(count: usize, random: Random) -> Self {
        Self { random, count, wanted: 0, stalled_until: vec![Instant::ZERO; count] }
    }

    /// This squeue has something to do.
    pub(super) fn want(&mut self, home: usize) {
        self.wanted |= 1 << home;
    }

    /// Takes a squeue that has something to do and can run now.
    pub(super) fn next(&mut self, now: Instant) -> Option<usize> {
        let is_able = |home: &usize| {
            self.wanted & (1 << home) != 0 && self.stalled_until(now, *home).is_none()
        };
        let able: Vec<usize> = (0..self.count).filter(is_able).collect();
        let home = match *able {
            [] => return None,
            [only] => only,
            _ => self.random.pick(&able),
        };
        self.wanted &= !(1 << home);
        Some(home)
    }

    /// Until when the system keeps the squeue from running, if it does.
    pub(super) fn stalled_until(&self, now: Instant, home: usize) -> Option<Instant> {
        Some(self.stalled_until[home]).filter(|until| now < *until)
    }

    /// Until when a squeue that is called now does not come, where the system does not let it.
    pub(super) fn stall(&mut self, now: Instant, home: usize, share: f64) -> Option<Instant> {
        if self.count == 1 || self.stalled_until(now, home).is_some() || !self.random.chance(share)
        {
            return None;
        }
        let until = now + Duration::from_micros(self.random.magnitude(20, STALL_MAX_US));
        self.stalled_until[home] = until;
        Some(until)
    }

    /// How many frames are taken from a device's ring in one turn.
    pub(super) fn frames(&mut self) -> usize {
        match self.count {
            1 => usize::MAX,
            _ => self.random.pick(&[1, 2, 8, 64, usize::MAX]),
        }
    }

    /// How long a squeue takes to come when it is told of something.
    pub(super) fn delay(&mut self) -> Duration {
        match self.random.chance(0.5) {
            true => Duration::ZERO,
            false => Duration::from_micros(self.random.magnitude(1, 500)),
        }
    }

    /// Where a new connection is opened that may be anywhere.
    pub(super) fn pick(&mut self) -> usize {
        match self.count {
            1 => 0,
            count => self.random.within(0, count as u64 - 1) as usize,
        }
    }
}
