//! A soft ring: what one ring's thread hands to a squeue.
//!
//! ```text
//!  ring's thread                              whoever runs the squeue
//!   Lane { batch, keys } --push-->  [ batch | batch | batch ]  --drain(n)--> ReceiveBatch
//!                            |       frames, bytes; frames of each flow
//!                            +--> what has no room: dropped here, early, and counted
//! ```
//!
//! Batches go in and come out in order, so the frames of a flow keep theirs; where the batches that
//! wait are short they come out as one, where one is long it comes out in parts.
//!
//! **Fair between flows.** A frame comes in if its flow holds less of the ring than is still free
//! ([`FlowShares`]): one flow alone may fill half the ring, and there is always room for a flow that has
//! nothing in it. The keys of a lane's frames tell flows apart.
//!
//! **A lock, taken once for each batch**, and no clever ring. Measured beside a channel without a lock
//! (`examples/steering_cost.rs`, one thread, nobody else): a batch of one costs 60 ns in and out instead
//! of 41, so the lock is 19 ns for a batch and half a nanosecond for a frame of 32. Telling flows apart
//! costs 8 ns a frame, which a clever ring would have to pay as well.

use crate::counting::SoftRingCounters;
use crate::soft_ring_set::Lane;
use crate::sync::{AtomicUsize, Mutex, Ordering};
use batch::{Admission, FlowShares, ReceiveBatch};
use counters::{BatchSizes, DropCounters, DropReason};
use std::collections::VecDeque;

/// Emptied batches kept to be filled again.
const SPARES_MAX: usize = 16;

/// How much may wait in a soft ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SoftRingConfig {
    /// Frames, at least 2. One flow alone gets half of it.
    pub frames_max: usize,
    /// Bytes of frames. One flow alone gets half of it. The blocks they lie in may be longer.
    pub bytes_max: usize,
}

impl Default for SoftRingConfig {
    /// 4096 frames, 8 MiB: a receive window of 1 MiB from each of some connections, as full frames or as
    /// 128 super-frames. With 1024 frames a lossless wire lost one segment in 700 here, three where 64
    /// connections shared it, because a home whose thread waits for a CPU takes nothing out.
    fn default() -> Self {
        Self { frames_max: 4096, bytes_max: 8 << 20 }
    }
}

/// What became of a batch that was put into a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pushed {
    /// Frames that wait in the ring now.
    pub queued: usize,
    /// Frames dropped.
    pub dropped: usize,
}

/// What a drain gave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Frames added to the batch.
    pub frames: usize,
    /// Whether more wait.
    pub more: bool,
}

/// A bounded queue of batches from one thread to another. Several threads may push and several
/// drain; order holds for what one thread pushes and is drained by one at a time.
#[derive(Debug)]
pub struct SoftRing {
    queue: Mutex<Queue>,
    /// How many frames wait, for who only asks.
    depth: AtomicUsize,
}

#[derive(Debug)]
struct Queue {
    waiting: VecDeque<Waiting>,
    spares: Vec<Waiting>,
    /// What each flow has in the ring.
    shares: FlowShares,
    counters: SoftRingCounters,
    drops: DropCounters,
    sizes: BatchSizes,
}

/// A batch in the ring.
#[derive(Debug, Default)]
struct Waiting {
    batch: ReceiveBatch,
    /// The flow of each frame.
    keys: Vec<u32>,
    /// Frames drained already.
    taken: usize,
}

impl SoftRing {
    /// An empty ring. Bounds below what a ring needs (2 frames, 2 bytes) are taken as that.
    #[must_use]
    pub fn new(config: SoftRingConfig) -> Self {
        let queue = Queue {
            waiting: VecDeque::new(),
            spares: Vec::new(),
            shares: FlowShares::new(config.frames_max, config.bytes_max),
            counters: SoftRingCounters::default(),
            drops: DropCounters::default(),
            sizes: BatchSizes::default(),
        };
        Self { queue: Mutex::new(queue), depth: AtomicUsize::new(0) }
    }

    /// Puts the frames of a lane at the end of the ring, as far as there is room for them, and drops
    /// the rest. The lane is empty afterwards.
    pub fn push(&self, lane: &mut Lane) -> Pushed {
        if lane.is_empty() {
            return Pushed { queued: self.depth(), dropped: 0 };
        }
        let dropped;
        let mut refused = ReceiveBatch::new();
        let queued = {
            let mut queue = self.lock();
            dropped = queue.push(lane, &mut refused);
            self.depth.store(queue.shares.count(), Ordering::Release);
            queue.shares.count()
        };
        // Blocks of a batch that was refused altogether go back to their pool outside the lock.
        drop(refused);
        Pushed { queued, dropped }
    }

    /// Moves frames, oldest first, to the end of `batch` until it has `frames_max`.
    pub fn drain(&self, frames_max: usize, batch: &mut ReceiveBatch) -> Drained {
        if self.depth() == 0 || batch.len() >= frames_max {
            return Drained { frames: 0, more: self.depth() > 0 };
        }
        let mut queue = self.lock();
        let frames = queue.drain(frames_max, batch);
        self.depth.store(queue.shares.count(), Ordering::Release);
        Drained { frames, more: queue.shares.count() > 0 }
    }

    /// How many frames wait. Who pushed them may see more at once, others a moment later.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.depth.load(Ordering::Acquire)
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.depth() == 0
    }

    /// What the ring saw.
    #[must_use]
    pub fn counters(&self) -> SoftRingCounters {
        self.lock().counters
    }

    /// What the ring dropped, by reason.
    #[must_use]
    pub fn drops(&self) -> DropCounters {
        self.lock().drops
    }

    /// The sizes of the batches drained.
    #[must_use]
    pub fn batch_sizes(&self) -> BatchSizes {
        self.lock().sizes
    }

    /// A thread that panicked under the lock left counts and batches that belong together: nothing
    /// under it panics between the two.
    fn lock(&self) -> impl core::ops::DerefMut<Target = Queue> + '_ {
        self.queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Queue {
    fn push(&mut self, lane: &mut Lane, refused: &mut ReceiveBatch) -> usize {
        let mut entry = self.spares.pop().unwrap_or_default();
        core::mem::swap(&mut entry.batch, &mut lane.batch);
        core::mem::swap(&mut entry.keys, &mut lane.keys);
        let Waiting { batch, keys, .. } = &mut entry;
        let before = batch.len();
        keys.resize(before, 0);
        let mut kept = 0;
        batch.retain(|index, frame| {
            let admitted = self.admit(keys[index], frame.len as usize);
            if admitted {
                keys[kept] = keys[index];
                kept += 1;
            }
            admitted
        });
        keys.truncate(kept);
        let queued = entry.batch.len();
        self.counters.soft_ring_batches += 1;
        self.counters.soft_ring_frames += queued as u64;
        if queued > 0 {
            self.waiting.push_back(entry);
        } else {
            core::mem::swap(refused, &mut entry.batch);
            self.keep_spare(entry);
        }
        before - queued
    }

    /// Whether a frame may come in; if so, it is counted as being there.
    fn admit(&mut self, key: u32, len: usize) -> bool {
        let reason = match self.shares.admit(key, len) {
            Admission::Admitted => {
                self.counters.soft_ring_bytes += len as u64;
                return true;
            }
            Admission::Full => {
                self.counters.soft_ring_dropped_full += 1;
                DropReason::SoftRingFull
            }
            Admission::Share => {
                self.counters.soft_ring_dropped_share += 1;
                DropReason::SoftRingShare
            }
        };
        self.drops.add(reason);
        false
    }

    fn drain(&mut self, frames_max: usize, out: &mut ReceiveBatch) -> usize {
        let before = out.len();
        while let Some(mut entry) = self.waiting.pop_front() {
            let room = frames_max.saturating_sub(out.len());
            let end = entry.batch.len().min(entry.taken.saturating_add(room));
            for index in entry.taken..end {
                self.release(&entry, index);
            }
            if end == entry.batch.len() && entry.taken == 0 {
                out.append(&mut entry.batch);
            } else {
                for index in entry.taken..end {
                    out.share_frame(&entry.batch, index);
                }
                entry.taken = end;
                if end < entry.batch.len() {
                    self.waiting.push_front(entry);
                    break;
                }
            }
            self.keep_spare(entry);
            if out.len() >= frames_max {
                break;
            }
        }
        let frames = out.len() - before;
        self.counters.soft_ring_drains += 1;
        self.counters.soft_ring_drained_frames += frames as u64;
        self.sizes.add(frames);
        frames
    }

    /// Frame `index` of a batch leaves.
    fn release(&mut self, entry: &Waiting, index: usize) {
        let len = entry.batch.frame(index).map_or(0, |frame| frame.len as usize);
        let key = entry.keys.get(index).copied().unwrap_or(0);
        self.shares.release(key, len);
    }

    fn keep_spare(&mut self, mut entry: Waiting) {
        if self.spares.len() < SPARES_MAX {
            entry.batch.clear();
            entry.keys.clear();
            entry.taken = 0;
            self.spares.push(entry);
        }
    }
}

#[cfg(test)]
mod tests;
