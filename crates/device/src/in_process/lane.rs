//! One direction of an in-process wire, and how its ends sleep and wake.
//!
//! A lane has one sender and one receiver. The sender copies frames into blocks on its own and
//! takes the lock once per batch to hang them in; the receiver takes it once per call to take them
//! out. How much lies in the lane is changed under the lock and read without it: whoever reads it
//! errs only to the safe side, because the sender alone adds and the receiver alone removes.
//!
//! A [`Doorbell`] costs nothing but two atomic accesses while nobody sleeps: who has news looks
//! whether anybody waits, and who waits says so before it looks for news. Both accesses are
//! sequentially consistent, so at least one of the two sees the other.

use batch::{Block, Frame, ReceiveBatch};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Wakes the threads of one end.
#[derive(Debug, Default)]
pub(super) struct Doorbell {
    /// Rung and not yet heard.
    rung: AtomicBool,
    /// Threads that sleep or are about to.
    waiting: AtomicUsize,
    lock: Mutex<()>,
    condition: Condvar,
    sleeps: AtomicU64,
}

impl Doorbell {
    /// Sleeps until somebody rings or signals, unless there is news already; may return early.
    pub(super) fn wait(&self, timeout: Option<Duration>, has_news: impl Fn() -> bool) {
        if self.rung.swap(false, Ordering::SeqCst) || has_news() {
            return;
        }
        let guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_add(1, Ordering::SeqCst);
        if !self.rung.load(Ordering::SeqCst) && !has_news() {
            self.sleeps.fetch_add(1, Ordering::Relaxed);
            match timeout {
                Some(timeout) => {
                    drop(self.condition.wait_timeout(guard, timeout));
                }
                None => drop(self.condition.wait(guard)),
            }
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        self.rung.swap(false, Ordering::SeqCst);
    }

    /// Wakes who waits now. What they are to find must have been stored before, with sequential
    /// consistency.
    pub(super) fn signal(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            // A waiter holds the lock from before it says so until it sleeps.
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.condition.notify_all();
        }
    }

    /// Wakes who waits now or waits next.
    pub(super) fn ring(&self) {
        self.rung.store(true, Ordering::SeqCst);
        self.signal();
    }

    /// How often a thread went to sleep.
    pub(super) fn sleeps(&self) -> u64 {
        self.sleeps.load(Ordering::Relaxed)
    }
}

/// A frame on its way; its block is the one that is in turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueuedFrame {
    pub(super) frame: Frame,
    /// How many packets of the sender's batch it stands for.
    pub(super) packets: usize,
}

/// What a transmit call hangs into a lane: frames, and the blocks they lie in with the number of
/// frames in each.
#[derive(Debug, Default)]
pub(super) struct Staged {
    pub(super) frames: Vec<QueuedFrame>,
    pub(super) blocks: Vec<(Block, usize)>,
}

#[derive(Debug, Default)]
struct Contents {
    frames: VecDeque<QueuedFrame>,
    /// With how many frames in each are still to be received.
    blocks: VecDeque<(Block, usize)>,
}

/// One direction of a wire.
#[derive(Debug)]
pub(super) struct Lane {
    contents: Mutex<Contents>,
    packets: AtomicUsize,
    bytes: AtomicUsize,
    /// The sender was told that the lane is full and has not been woken since.
    blocked: AtomicBool,
    /// One of the ends is gone.
    closed: AtomicBool,
    sender: Arc<Doorbell>,
    receiver: Arc<Doorbell>,
}

impl Lane {
    pub(super) fn new(sender: Arc<Doorbell>, receiver: Arc<Doorbell>) -> Self {
        Self {
            contents: Mutex::default(),
            packets: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            blocked: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            sender,
            receiver,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many packets lie in the lane.
    pub(super) fn packets(&self) -> usize {
        self.packets.load(Ordering::SeqCst)
    }

    /// How many bytes lie in the lane.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::SeqCst)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// One of the ends goes away. What lies in the lane can still be received.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.sender.ring();
        self.receiver.ring();
    }

    /// Hangs frames in, for the sender, and leaves `staged` empty with its memory.
    pub(super) fn push(&self, staged: &mut Staged) {
        if staged.frames.is_empty() {
            return;
        }
        let packets: usize = staged.frames.iter().map(|queued| queued.packets).sum();
        let bytes: usize = staged.frames.iter().map(|queued| queued.frame.len as usize).sum();
        let mut contents = self.lock();
        contents.frames.extend(staged.frames.drain(..));
        contents.blocks.extend(staged.blocks.drain(..));
        self.bytes.fetch_add(bytes, Ordering::SeqCst);
        self.packets.fetch_add(packets, Ordering::SeqCst);
        drop(contents);
        self.receiver.signal();
    }

    /// Takes out at most `frames_max` frames, for the receiver, and says how many there were, how
    /// many bytes they have, and whether others are left.
    pub(super) fn pop(&self, batch: &mut ReceiveBatch, frames_max: usize) -> (usize, usize, bool) {
        if self.packets() == 0 {
            return (0, 0, false);
        }
        let (mut frames, mut packets, mut bytes) = (0, 0, 0);
        let mut contents = self.lock();
        while frames < frames_max {
            let Some((block, left)) = contents.blocks.front_mut() else { break };
            let count = (*left).min(frames_max - frames);
            *left -= count;
            let index = if *left > 0 {
                batch.add_block(block.clone())
            } else if let Some((block, _)) = contents.blocks.pop_front() {
                batch.add_block(block)
            } else {
                break;
            };
            for queued in contents.frames.drain(..count) {
                bytes += queued.frame.len as usize;
                packets += queued.packets;
                let fits = batch.push_frame(Frame { block: index, ..queued.frame });
                debug_assert!(fits, "the sender laid the frame into this block");
            }
            frames += count;
        }
        self.bytes.fetch_sub(bytes, Ordering::SeqCst);
        self.packets.fetch_sub(packets, Ordering::SeqCst);
        let more = !contents.frames.is_empty();
        drop(contents);
        if self.blocked.load(Ordering::SeqCst) && self.blocked.swap(false, Ordering::SeqCst) {
            self.sender.ring();
        }
        (frames, bytes, more)
    }

    /// The sender found the lane full when `packets` lay in it: the receiver is to wake it. Where
    /// the receiver took some of them meanwhile, the sender's next wait returns at once.
    pub(super) fn block_sender(&self, packets: usize) {
        self.blocked.store(true, Ordering::SeqCst);
        if self.packets() < packets && self.blocked.swap(false, Ordering::SeqCst) {
            self.sender.ring();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use batch::ReceivedChecksum;
    use bytes::Bytes;
    use std::time::Instant;

    fn lane() -> Lane {
        Lane::new(Arc::default(), Arc::default())
    }

    fn push(lane: &Lane, count: usize) {
        let checksum = ReceivedChecksum::Unverified;
        let frame = Frame { block: 0, offset: 0, len: 5, checksum, segmented: None };
        let mut staged = Staged {
            frames: vec![QueuedFrame { frame, packets: 1 }; count],
            blocks: vec![(Block::from(Bytes::from_static(b"frame")), count)],
        };
        lane.push(&mut staged);
    }

    #[test]
    fn room_made_before_the_sender_says_it_is_blocked_still_wakes_it() {
        let lane = lane();
        push(&lane, 2);
        let found_full = lane.packets();
        assert_eq!(lane.pop(&mut ReceiveBatch::new(), 9), (2, 10, false));
        lane.block_sender(found_full);
        let asked = Instant::now();
        lane.sender.wait(Some(Duration::from_secs(60)), || false);
        assert!(asked.elapsed() < Duration::from_secs(50));
        assert!(!lane.blocked.load(Ordering::SeqCst), "and the receiver need not ring again");
    }

    #[test]
    fn a_sender_that_is_not_blocked_is_left_alone() {
        let lane = lane();
        push(&lane, 2);
        lane.pop(&mut ReceiveBatch::new(), 1);
        assert!(!lane.sender.rung.load(Ordering::SeqCst));
        lane.block_sender(lane.packets());
        lane.pop(&mut ReceiveBatch::new(), 1);
        assert!(lane.sender.rung.load(Ordering::SeqCst));
    }
}
