//! A timer wheel: deadlines of things that are known by small numbers.
//!
//! Nine levels of 64 slots. A slot of level 0 spans one tick of 16 us, one of level n spans 64^n of
//! them, so nine levels cover every instant there is and nothing ever wraps. A deadline lies on the
//! level of the highest digit in which it differs from the present; when time reaches its slot, it
//! moves to a lower level, at most eight times in its life.
//!
//! ```text
//!   level 2  [ ][ ][x][ ]...      slots of 64 ms
//!   level 1  [ ][x][ ][ ]...      slots of 1 ms
//!   level 0  [ ][ ][ ][x]...      slots of 16 us: what is here is compared with the clock itself
//! ```
//!
//! Setting and cancelling are O(1): a slot is a list through the nodes, which lie in an array
//! indexed by the number. The memory is 24 bytes for each number below the largest one used.

use time::Instant;

/// log2 of a tick in nanoseconds.
const TICK_SHIFT: u32 = 14;
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
const LEVELS: usize = 9;

/// Ends a list; stands for "in no slot".
const NONE: u32 = u32::MAX;

/// Longest list that is searched for its earliest deadline. A longer one is announced by the time
/// its slot begins, at which it is spread over the level below.
const SEARCHED_MAX: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Node {
    deadline: u64,
    previous: u32,
    next: u32,
    /// Level times 64 plus slot; [`NONE`] where the node is in no list.
    place: u32,
}

const IDLE: Node = Node { deadline: 0, previous: NONE, next: NONE, place: NONE };

/// Deadlines, at most one for each number.
#[derive(Debug)]
pub(crate) struct Wheel {
    nodes: Vec<Node>,
    heads: [u32; SLOTS * LEVELS],
    /// Which slots of each level hold something.
    occupied: [u64; LEVELS],
    /// The tick up to which everything was moved down.
    elapsed: u64,
    /// At or before the earliest deadline.
    earliest: Option<u64>,
    len: usize,
}

impl Default for Wheel {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            heads: [NONE; SLOTS * LEVELS],
            occupied: [0; LEVELS],
            elapsed: 0,
            earliest: None,
            len: 0,
        }
    }
}

impl Wheel {
    /// How many numbers have a deadline.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Sets the deadline of `number`, in place of the one it may have.
    pub(crate) fn set(&mut self, number: u32, deadline: Instant) {
        self.cancel(number);
        let index = number as usize;
        if index >= self.nodes.len() {
            self.nodes.resize(index + 1, IDLE);
        }
        let deadline = deadline.as_nanos();
        self.nodes[index].deadline = deadline;
        self.link(number);
        self.len += 1;
        self.earliest = Some(self.earliest.map_or(deadline, |earliest| earliest.min(deadline)));
    }

    /// The deadline of `number`, if it has one.
    #[inline]
    pub(crate) fn deadline(&self, number: u32) -> Option<Instant> {
        let node = self.nodes.get(number as usize).filter(|node| node.place != NONE)?;
        Some(Instant::from_nanos(node.deadline))
    }

    /// Takes the deadline of `number` out, if it has one.
    pub(crate) fn cancel(&mut self, number: u32) {
        if self.nodes.get(number as usize).is_some_and(|node| node.place != NONE) {
            self.unlink(number);
            self.len -= 1;
            if self.len == 0 {
                self.earliest = None;
            }
        }
    }

    /// The earliest deadline, or an instant before it at which to ask again: one that was cancelled
    /// may still count, and of very many that lie far ahead only the first millisecond is known.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.earliest.map(Instant::from_nanos)
    }

    /// Takes a number whose deadline is due, in no particular order among those of one tick.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<u32> {
        let now = now.as_nanos();
        if self.earliest? > now {
            return None;
        }
        let today = now >> TICK_SHIFT;
        while let Some((level, slot, start)) = self.first_slot() {
            if start > today {
                break;
            }
            self.elapsed = self.elapsed.max(start);
            if level > 0 {
                self.spread(level, slot);
                continue;
            }
            if let Some(number) = self.due_in(slot, now) {
                self.unlink(number);
                self.len -= 1;
                if self.len == 0 {
                    self.earliest = None;
                }
                return Some(number);
            }
            break;
        }
        self.earliest = self.search();
        None
    }

    /// A number with the earliest deadline, or one that shares its slot.
    pub(crate) fn first(&self) -> Option<u32> {
        let (level, slot, _) = self.first_slot()?;
        // The list's last one was set first, but to find it the whole list would have to be walked.
        self.list(level * SLOTS + slot)
            .take(SEARCHED_MAX)
            .min_by_key(|(_, node)| node.deadline)
            .map(|(number, _)| number)
    }

    /// Gives memory back where the numbers from `count` on are not used any more.
    pub(crate) fn shrink(&mut self, count: usize) {
        if self.nodes.iter().skip(count).all(|node| node.place == NONE) {
            self.nodes.truncate(count);
            self.nodes.shrink_to_fit();
        }
    }

    fn link(&mut self, number: u32) {
        let index = number as usize;
        let tick = (self.nodes[index].deadline >> TICK_SHIFT).max(self.elapsed);
        let differing = (tick ^ self.elapsed) | (SLOTS as u64 - 1);
        let level = ((63 - differing.leading_zeros()) / SLOT_BITS) as usize;
        let slot = (tick >> (level as u32 * SLOT_BITS)) as usize % SLOTS;
        let place = level * SLOTS + slot;
        let next = core::mem::replace(&mut self.heads[place], number);
        if let Some(node) = self.nodes.get_mut(next as usize) {
            node.previous = number;
        }
        let node = &mut self.nodes[index];
        (node.previous, node.next, node.place) = (NONE, next, place as u32);
        self.occupied[level] |= 1 << slot;
    }

    fn unlink(&mut self, number: u32) {
        let Node { previous, next, place, .. } = self.nodes[number as usize];
        match self.nodes.get_mut(previous as usize) {
            Some(node) => node.next = next,
            None => self.heads[place as usize] = next,
        }
        if let Some(node) = self.nodes.get_mut(next as usize) {
            node.previous = previous;
        }
        if self.heads[place as usize] == NONE {
            self.occupied[place as usize / SLOTS] &= !(1 << (place as usize % SLOTS));
        }
        self.nodes[number as usize].place = NONE;
    }

    /// The first slot that holds something, and the tick at which it begins: that of the lowest
    /// level, for what lies on a higher one differs from the present in a higher digit.
    fn first_slot(&self) -> Option<(usize, usize, u64)> {
        let level = self.occupied.iter().position(|slots| *slots != 0)?;
        let shift = level as u32 * SLOT_BITS;
        // What is occupied is never behind the present, so the lowest bit is the first.
        let slot = self.occupied[level].trailing_zeros();
        let above = self.elapsed.checked_shr(shift + SLOT_BITS).unwrap_or(0);
        let start = above.checked_shl(shift + SLOT_BITS).unwrap_or(0) | u64::from(slot) << shift;
        Some((level, slot as usize, start))
    }

    /// Moves what lies in a slot that the present has reached to the levels below.
    fn spread(&mut self, level: usize, slot: usize) {
        let mut number = core::mem::replace(&mut self.heads[level * SLOTS + slot], NONE);
        self.occupied[level] &= !(1 << slot);
        while let Some(node) = self.nodes.get(number as usize) {
            let next = node.next;
            self.link(number);
            number = next;
        }
    }

    fn due_in(&self, slot: usize, now: u64) -> Option<u32> {
        self.list(slot).find(|(_, node)| node.deadline <= now).map(|(number, _)| number)
    }

    /// The earliest deadline, or a bound below it.
    fn search(&self) -> Option<u64> {
        let (level, slot, start) = self.first_slot()?;
        let place = level * SLOTS + slot;
        let limit = if level == 0 { usize::MAX } else { SEARCHED_MAX };
        if self.list(place).nth(limit).is_some() {
            return Some(start << TICK_SHIFT);
        }
        self.list(place).map(|(_, node)| node.deadline).min()
    }

    fn list(&self, place: usize) -> impl Iterator<Item = (u32, &Node)> {
        let mut number = self.heads[place];
        core::iter::from_fn(move || {
            let node = self.nodes.get(number as usize)?;
            Some((core::mem::replace(&mut number, node.next), node))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    #[derive(Clone, Debug)]
    enum Step {
        Set(u32, u64),
        Cancel(u32),
        Pass(u64),
    }

    fn spans() -> impl Strategy<Value = u64> {
        // Of every order of magnitude, from nanoseconds to months.
        (0_u32..52, any::<u64>()).prop_map(|(bits, value)| value & ((1 << bits) - 1))
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (0_u32..40, spans()).prop_map(|(number, span)| Step::Set(number, span)),
            1 => (0_u32..40).prop_map(Step::Cancel),
            3 => spans().prop_map(Step::Pass),
        ];
        prop::collection::vec(step, 1..200)
    }

    proptest! {
        /// The model is an ordered set: the same deadlines fall due at the same time, `next` is
        /// never late, and who sleeps until `next` again and again gets there.
        #[test]
        fn agrees_with_an_ordered_set(steps in steps()) {
            let mut wheel = Wheel::default();
            let mut model: BTreeMap<u32, u64> = BTreeMap::new();
            let mut now = 5_u64;
            for step in steps {
                match step {
                    Step::Set(number, span) => {
                        wheel.set(number, Instant::from_nanos(now + span));
                        model.insert(number, now + span);
                    }
                    Step::Cancel(number) => {
                        wheel.cancel(number);
                        model.remove(&number);
                    }
                    Step::Pass(span) => now += span,
                }
                let earliest = model.values().min().copied();
                match (wheel.next(), earliest) {
                    (Some(next), Some(earliest)) => prop_assert!(next.as_nanos() <= earliest),
                    (next, earliest) => prop_assert_eq!(next.is_some(), earliest.is_some()),
                }
                let due: BTreeSet<u32> =
                    model.iter().filter(|(_, at)| **at <= now).map(|(number, _)| *number).collect();
                let mut popped = BTreeSet::new();
                while let Some(number) = wheel.pop_due(Instant::from_nanos(now)) {
                    prop_assert!(popped.insert(number), "twice");
                }
                prop_assert_eq!(&due, &popped);
                model.retain(|number, _| !due.contains(number));
                for number in 0..40 {
                    let at = wheel.deadline(number).map(Instant::as_nanos);
                    prop_assert_eq!(at, model.get(&number).copied());
                }
            }
            let mut calls = 0;
            while let Some(next) = wheel.next() {
                prop_assert!(next.as_nanos() > now, "would spin");
                now = next.as_nanos();
                while let Some(number) = wheel.pop_due(next) {
                    prop_assert_eq!(model.remove(&number), Some(now), "late");
                }
                calls += 1;
                prop_assert!(calls <= 10 * 40);
            }
            prop_assert!(model.is_empty());
        }
    }

    #[test]
    fn many_deadlines_far_ahead_are_not_searched_at_every_turn() {
        let mut wheel = Wheel::default();
        for number in 0..100_000 {
            wheel.set(number, Instant::from_nanos(7_200_000_000_000 + u64::from(number)));
        }
        let (mut now, mut turns, mut fired) = (Instant::ZERO, 0, 0);
        while let Some(next) = wheel.next() {
            now = next.max(now);
            turns += 1;
            while wheel.pop_due(now).is_some() {
                fired += 1;
            }
            assert!(turns < 400_000);
        }
        assert_eq!(fired, 100_000);
        wheel.shrink(0);
        assert_eq!(wheel.nodes.capacity(), 0);
    }
}
