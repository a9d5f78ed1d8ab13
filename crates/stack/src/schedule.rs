//! Who has something to send, and who wants to be called when.
//!
//! Both queues are lazy. A socket stands in its interface's ready list at most once; whether it
//! still has something to send is found when its turn comes. A socket has at most one deadline
//! here: one that moves earlier takes the place of the old one, and one that moves later (the
//! retransmission timer does with every ACK) costs nothing until the old one is due.

use std::collections::{BTreeSet, VecDeque};
use time::Instant;

/// Deadlines of sockets, the earliest first; no more of them than sockets.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    queue: BTreeSet<(Instant, u32)>,
}

impl Deadlines {
    /// Makes sure that `index` is called at `wanted` at the latest. `earliest` is the socket's own
    /// note of the deadline it has here.
    pub(crate) fn want(
        &mut self,
        index: u32,
        wanted: Option<Instant>,
        earliest: &mut Option<Instant>,
    ) {
        let Some(wanted) = wanted else { return };
        if earliest.is_none_or(|at| wanted < at) {
            self.forget(index, *earliest);
            *earliest = Some(wanted);
            self.queue.insert((wanted, index));
        }
    }

    /// Takes the deadline of `index` out, if it has one.
    pub(crate) fn forget(&mut self, index: u32, earliest: Option<Instant>) {
        if let Some(at) = earliest {
            self.queue.remove(&(at, index));
        }
    }

    /// The earliest deadline; it may turn out to be stale.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.queue.first().map(|(at, _)| *at)
    }

    /// A socket whose deadline is due, with the deadline it had.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<(Instant, u32)> {
        if self.next()? > now {
            return None;
        }
        self.queue.pop_first()
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
    fn a_near_deadline_that_comes_and_goes_leaves_nothing_before_a_far_one() {
        let at = Instant::from_millis;
        let far = Some(at(7_200_000));
        let mut deadlines = Deadlines::default();
        let mut earliest = None;
        deadlines.want(1, far, &mut earliest);
        for round in 0..1_000 {
            let near = at(round * 300 + 200);
            deadlines.want(1, Some(near), &mut earliest);
            assert_eq!(deadlines.pop_due(near), Some((near, 1)));
            assert_eq!(deadlines.pop_due(near), None);
            earliest = None;
            deadlines.want(1, far, &mut earliest);
        }
        assert_eq!(deadlines.queue.len(), 1);
    }

    #[test]
    fn a_deadline_that_moves_later_costs_nothing_and_one_that_moves_earlier_takes_its_place() {
        let at = Instant::from_millis;
        let mut deadlines = Deadlines::default();
        let mut earliest = None;
        deadlines.want(1, Some(at(200)), &mut earliest);
        deadlines.want(1, Some(at(300)), &mut earliest);
        deadlines.want(1, None, &mut earliest);
        assert_eq!(deadlines.queue.len(), 1);
        deadlines.want(1, Some(at(40)), &mut earliest);
        assert_eq!(deadlines.next(), Some(at(40)));
        assert_eq!(deadlines.pop_due(at(39)), None);
        assert_eq!(deadlines.pop_due(at(40)), Some((at(40), 1)));
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
