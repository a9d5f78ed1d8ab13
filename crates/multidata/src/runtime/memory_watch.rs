//! Which squeues have tasks that wait for memory, for who gives some back.
//!
//! All squeues of a stack have their memory of one pool. Each looks at the end of its turns whether there is some for its
//! tasks, and one that makes none would see what the others give back only when the first of its tasks is to look
//! again, up to 32 ms later. So a squeue that is left with such tasks says so here, and who leaves another one, when as
//! much has come back as a task is woken for, has it look. It is told once, and says so again: whose share stays used up
//! is not called for each block.
//!
//! Where nobody waits, that costs one load of a word that nobody writes.

use super::memory_turns::MEMORY_EACH_BYTES;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// See the module documentation.
pub(super) struct MemoryWatch {
    /// Squeues that have such tasks and were not told since, a bit for each.
    waiting: AtomicU64,
    /// How much is to be left to share when each is told.
    from_bytes: Box<[AtomicUsize]>,
}

impl MemoryWatch {
    /// For so many squeues.
    pub(super) fn new(count: usize) -> Self {
        let from_bytes = (0..count).map(|_| AtomicUsize::new(0)).collect();
        Self { waiting: AtomicU64::new(0), from_bytes }
    }

    /// Squeue `index` is being left, with tasks that wait for memory or without. Says which others are to look, a bit for
    /// each; `left_bytes` is what is left to share.
    pub(super) fn on_leave(
        &self,
        index: usize,
        has_tasks: bool,
        left_bytes: impl FnOnce() -> usize,
    ) -> u64 {
        // What a bit is said for was written before it.
        let waiting = self.waiting.load(Ordering::Acquire);
        if waiting == 0 && !has_tasks {
            return 0;
        }
        let (own, left_bytes) = (1 << index, left_bytes());
        match (waiting & own > 0, has_tasks) {
            (false, true) => {
                let from_bytes = left_bytes.saturating_add(MEMORY_EACH_BYTES);
                self.from_bytes[index].store(from_bytes, Ordering::Relaxed);
                self.waiting.fetch_or(own, Ordering::Release);
            }
            (true, false) => drop(self.waiting.fetch_and(!own, Ordering::Relaxed)),
            _ => {}
        }
        let is_due = |other: &usize| {
            (waiting & !own) >> other & 1 > 0
                && left_bytes >= self.from_bytes[*other].load(Ordering::Relaxed)
        };
        let due = (0..self.from_bytes.len()).filter(is_due).fold(0, |due, other| due | 1 << other);
        match due {
            0 => 0,
            // Of several who leave, one tells.
            _ => self.waiting.fetch_and(!due, Ordering::Relaxed) & due,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_is_told_once_for_as_much_as_a_task_is_woken_for() {
        let watch = MemoryWatch::new(3);
        let leave = |index, has_tasks, left_bytes| watch.on_leave(index, has_tasks, || left_bytes);
        assert_eq!(watch.on_leave(0, false, || unreachable!("nobody asks")), 0);
        assert_eq!(leave(0, true, 10), 0);
        assert_eq!(leave(2, true, 20), 0);
        // That it is left again changes nothing.
        assert_eq!(leave(0, true, 5_000), 0);
        assert_eq!(leave(1, false, MEMORY_EACH_BYTES + 9), 0);
        assert_eq!(leave(1, false, MEMORY_EACH_BYTES + 10), 0b001);
        assert_eq!(leave(1, false, MEMORY_EACH_BYTES + 10), 0, "it was told");
        assert_eq!(leave(0, true, MEMORY_EACH_BYTES + 20), 0b100, "it tells others, too");
        assert_eq!(leave(1, false, MEMORY_EACH_BYTES + 20), 0, "as much again is to come back");
        assert_eq!(leave(0, false, 0), 0);
        assert_eq!(leave(1, false, usize::MAX), 0, "it has no tasks any more");
    }
}
