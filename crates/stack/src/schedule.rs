//! Who has something to send, and who wants to be called when.
//!
//! Both queues are lazy. A socket stands in its interface's ready list at most once; whether it
//! still has something to send is found when its turn comes. A socket has at most one deadline
//! here: one that moves earlier takes the place of the old one, and one that moves later (the
//! retransmission timer does with every ACK) costs nothing until the old one is due.
//! The deadlines lie on a wheel (`wheel.rs`).

use crate::wheel::Wheel;
use std::collections::VecDeque;
use time::Instant;

/// Deadlines of sockets; no more of them than sockets.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    wheel: Wheel,
}

impl Deadlines {
    /// Makes sure that `index` is called at `wanted` at the latest.
    #[inline]
    pub(crate) fn want(&mut self, index: u32, wanted: Option<Instant>) {
        let Some(wanted) = wanted else { return };
        if self.wheel.deadline(index).is_none_or(|at| wanted < at) {
            self.wheel.set(index, wanted);
        }
    }

    /// Takes the deadline of `index` out, if it has one.
    pub(crate) fn forget(&mut self, index: u32) {
        self.wheel.cancel(index);
    }

    /// The earliest deadline, or before it; it may turn out to be stale.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.wheel.next()
    }

    /// A socket whose deadline is due.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<u32> {
        self.wheel.pop_due(now)
    }

    pub(crate) fn len(&self) -> usize {
        self.wheel.len()
    }

    /// Gives memory back where no socket has an index from `count` on.
    pub(crate) fn shrink(&mut self, count: usize) {
        self.wheel.shrink(count);
    }
}

/// Sockets with something to send over one interface, each at most once, served in turn.
#[derive(Debug, Default)]
pub(crate) struct Ready {
    queue: VecDeque<u32>,
}

impl Ready {
    /// Adds a socket unless it stands in the list already (`queued` is its own note of that).
    pub(crate) fn add(&mut self, index: u32, queued: &mut bool) {
        if !*queued {
            *queued = true;
            self.queue.push_back(index);
        }
    }

    /// As [`Ready::add`], for a socket whose turn was cut short: it goes on before all others.
    pub(crate) fn add_first(&mut self, index: u32, queued: &mut bool) {
        if !*queued {
            *queued = true;
            self.queue.push_front(index);
        }
    }

    /// Takes a socket out, wherever it stands.
    pub(crate) fn remove(&mut self, index: u32) {
        self.queue.retain(|other| *other != index);
    }

    /// Takes all out; each needs its own note cleared.
    pub(crate) fn clear(&mut self) {
        self.queue.clear();
    }

    /// Gives memory back after a time of many sockets.
    pub(crate) fn shrink(&mut self) {
        self.queue.shrink_to_fit();
    }

    /// Takes the socket whose turn it is out of the list; the caller clears its note.
    pub(crate) fn next(&mut self) -> Option<u32> {
        self.queue.pop_front()
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_that_moves_later_costs_nothing_and_one_that_moves_earlier_takes_its_place() {
        let at = Instant::from_millis;
        let mut deadlines = Deadlines::default();
        deadlines.want(1, Some(at(200)));
        deadlines.want(1, Some(at(300)));
        deadlines.want(1, None);
        assert_eq!(deadlines.next(), Some(at(200)));
        deadlines.want(1, Some(at(40)));
        assert_eq!(deadlines.next(), Some(at(40)));
        assert_eq!(deadlines.pop_due(at(39)), None);
        assert_eq!(deadlines.pop_due(at(40)), Some(1));
        assert_eq!(deadlines.pop_due(at(250)), None, "the earlier one stood for both");
    }

    #[test]
    fn a_socket_stands_in_the_ready_list_once() {
        let mut ready = Ready::default();
        let mut queued = false;
        ready.add(4, &mut queued);
        ready.add(4, &mut queued);
        assert_eq!((ready.len(), ready.next(), ready.next()), (1, Some(4), None));
    }
}
