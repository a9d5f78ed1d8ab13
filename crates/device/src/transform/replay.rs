//! Which counters were seen: a sliding window without shifts (RFC 6479).
//!
//! Every datagram has a counter of its own. The highest one seen is the window's head; for the ones
//! below it a bit each says whether they were seen. The bits lie in a ring of words, and moving the
//! head clears only the words that it enters.
//!
//! ```text
//!            head - SPAN          head
//!   refused | seen or not, by bit | new
//! ```

/// Words of the ring, a power of two.
const WORDS: usize = 64;
const WORD_BITS: u64 = u64::BITS as u64;
/// Counters below the head that are told apart: one word of the ring is being cleared.
const SPAN: u64 = (WORDS as u64 - 1) * WORD_BITS;

/// Refuses counters that were seen, or are older than 4,032 counters.
#[derive(Clone, Debug)]
pub struct ReplayWindow {
    /// The highest counter accepted and 1; 0 where none was.
    next: u64,
    words: [u64; WORDS],
}

impl Default for ReplayWindow {
    fn default() -> Self {
        Self { next: 0, words: [0; WORDS] }
    }
}

impl ReplayWindow {
    /// A window that has seen nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether `counter` was not seen yet and is not too old. The highest counter of all is refused,
    /// because nothing could follow it.
    #[must_use]
    pub fn is_new(&self, counter: u64) -> bool {
        if counter == u64::MAX {
            return false;
        }
        if counter >= self.next {
            return true;
        }
        let is_recent = self.next - 1 - counter < SPAN;
        is_recent && self.words[word_of(counter)] & bit_of(counter) == 0
    }

    /// Notes that `counter` was seen, once its datagram has proved authentic. Says whether it was
    /// new.
    pub fn accept(&mut self, counter: u64) -> bool {
        if !self.is_new(counter) {
            return false;
        }
        if counter >= self.next {
            let head = self.next.saturating_sub(1) / WORD_BITS;
            let entered = (counter / WORD_BITS - head).min(WORDS as u64);
            for step in 1..=entered {
                self.words[((head + step) % WORDS as u64) as usize] = 0;
            }
            self.next = counter + 1;
        }
        self.words[word_of(counter)] |= bit_of(counter);
        true
    }
}

const fn word_of(counter: u64) -> usize {
    (counter / WORD_BITS % WORDS as u64) as usize
}

const fn bit_of(counter: u64) -> u64 {
    1 << (counter % WORD_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[test]
    fn each_counter_passes_once_and_old_ones_never() {
        let mut window = ReplayWindow::new();
        assert!(window.accept(0) && !window.accept(0));
        assert!(window.accept(5) && window.accept(3) && !window.accept(3) && !window.accept(5));
        assert!(window.accept(5 + SPAN));
        assert!(!window.is_new(5), "as old as the window is long");
        assert!(window.accept(6) && !window.accept(6), "the oldest that is told apart");
        assert!(window.accept(u64::MAX - 1) && !window.accept(u64::MAX));
        assert!(!window.is_new(1 << 40));
        assert!(window.accept(u64::MAX - 1 - (SPAN - 1)));
    }

    proptest! {
        /// The window and a set of all counters ever seen agree.
        #[test]
        fn it_agrees_with_a_set_of_all_counters(steps in prop::collection::vec((0_u64..5_000, any::<bool>()), 1..400)) {
            let (mut window, mut seen, mut head) = (ReplayWindow::new(), HashSet::new(), 0_u64);
            for (distance, is_forward) in steps {
                let counter =
                    if is_forward { head + distance } else { head.saturating_sub(distance) };
                let is_recent = counter > head || head - counter < SPAN;
                let expected = is_recent && !seen.contains(&counter);
                prop_assert_eq!(window.is_new(counter), expected);
                prop_assert_eq!(window.accept(counter), expected);
                if expected {
                    seen.insert(counter);
                    head = head.max(counter);
                }
            }
        }
    }
}
