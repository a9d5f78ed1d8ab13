//! Memory of queues that are empty most of the time.
//!
//! A connection that waits for work holds nothing in its queues, and a hundred thousand of them
//! should hold no memory for what once was there. One that exchanges small messages, on the other
//! hand, should not go to the allocator for each of them. So an empty queue keeps room for one
//! piece and no more, and one that outgrows that gets room for a burst at once.

use std::collections::VecDeque;

/// Pieces an empty queue keeps room for.
const KEPT: usize = 1;

/// Pieces a queue has room for once it holds more.
const BURST: usize = 16;

/// Makes room for one more.
#[inline]
pub(crate) fn make_room<T>(queue: &mut VecDeque<T>) {
    if queue.len() == queue.capacity() {
        let wanted = if queue.is_empty() { KEPT } else { BURST.max(2 * queue.len()) };
        queue.reserve_exact(wanted - queue.len());
    }
}

/// Gives memory back, where the queue is empty.
#[inline]
pub(crate) fn release<T>(queue: &mut VecDeque<T>) {
    if queue.is_empty() && queue.capacity() > KEPT {
        *queue = VecDeque::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_queue_keeps_room_for_one_piece() {
        let mut queue = VecDeque::new();
        let push = |queue: &mut VecDeque<u64>| {
            make_room(queue);
            queue.push_back(7);
        };
        push(&mut queue);
        assert_eq!(queue.capacity(), 1);
        queue.pop_front();
        release(&mut queue);
        assert_eq!(queue.capacity(), 1, "for the next message");
        for len in 1..100 {
            push(&mut queue);
            assert!(queue.capacity() <= BURST.max(2 * len));
        }
        release(&mut queue);
        assert!(queue.capacity() >= 99, "it is in use");
        queue.clear();
        release(&mut queue);
        assert_eq!(queue.capacity(), 0);
    }
}
