//! One direction of an in-process wire, and how its ends sleep and wake.
//!
//! A lane has one sender and one receiver. The sender copies frames into blocks on its own and
//! takes the lock once per batch to hang them in (a chain is no batch: once per packet); the
//! receiver takes it once per call to take them out, or once for each block that it must cut
//! itself. How much lies in the lane is read without the lock: whoever reads it errs only to the
//! safe side, because the sender alone adds and the receiver alone removes.
//!
//! A [`Doorbell`] costs nothing but two atomic accesses while nobody sleeps: who has news looks
//! whether anybody waits, and who waits says so before it looks for news. Both accesses are
//! sequentially consistent, so at least one of the two sees the other.

use crate::lowering::{BlockFrame, FrameBlock};
use batch::{Block, BlockMut, Frame, ReceiveBatch, ReceivedChecksum};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use core::task::Waker;
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
#[cfg(unix)]
use {crate::CalledSource, std::sync::OnceLock};

/// Wakes the threads of one end, a task, or an event loop.
#[derive(Debug, Default)]
pub(super) struct Doorbell {
    /// Rung and not yet heard.
    rung: AtomicBool,
    /// Threads that sleep or are about to, and the task.
    waiting: AtomicUsize,
    /// The task that is to be woken.
    task: Mutex<Option<Waker>>,
    condition: Condvar,
    sleeps: AtomicU64,
    /// The event loop that is to be woken, where there is one.
    #[cfg(unix)]
    called: OnceLock<Arc<dyn CalledSource>>,
}

impl Doorbell {
    /// Sleeps until somebody rings or signals, unless there is news already; may return early.
    pub(super) fn wait(&self, timeout: Option<Duration>, has_news: impl Fn() -> bool) {
        if self.rung.swap(false, Ordering::SeqCst) || has_news() {
            return;
        }
        let guard = self.task();
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
            let task = self.task().take();
            self.condition.notify_all();
            if let Some(task) = task {
                self.waiting.fetch_sub(1, Ordering::SeqCst);
                task.wake();
            }
        }
        #[cfg(unix)]
        self.called.get().into_iter().for_each(|source| source.wake_waiting());
    }

    /// Has this task woken once, in the place of any other. It looks for news afterwards.
    pub(super) fn register(&self, waker: &Waker) {
        let mut task = self.task();
        if task.as_ref().is_some_and(|own| own.will_wake(waker)) {
            return;
        }
        let other = task.replace(waker.clone());
        if other.is_none() {
            self.waiting.fetch_add(1, Ordering::SeqCst);
        }
        drop(task);
        // It may be the last holder of a task, and what that has may ring here: it is let go of under no lock.
        drop(other);
    }

    fn task(&self) -> MutexGuard<'_, Option<Waker>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes who waits now or waits next.
    pub(super) fn ring(&self) {
        self.rung.store(true, Ordering::SeqCst);
        #[cfg(unix)]
        self.called.get().into_iter().for_each(|source| source.wake());
        self.signal();
    }

    /// What an event loop watches for this.
    #[cfg(unix)]
    pub(super) fn called_source(
        &self,
        make: crate::MakeSource<'_>,
    ) -> Option<Arc<dyn CalledSource>> {
        crate::made_once(&self.called, make)
    }

    /// How often a thread went to sleep, and how often the kernel was called for an event loop.
    pub(super) fn sleeps(&self) -> u64 {
        #[cfg(unix)]
        let of_loop = self.called.get().map_or(0, |source| source.syscalls());
        #[cfg(not(unix))]
        let of_loop = 0;
        self.sleeps.load(Ordering::Relaxed) + of_loop
    }
}

/// A frame on its way; its block is the one that is in turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueuedFrame {
    pub(super) frame: Frame,
    /// How many packets of the sender's batch it stands for.
    pub(super) packets: usize,
}

/// A block on its way.
#[derive(Debug)]
pub(super) enum Parcel {
    /// With queued frames.
    Listed(Listed),
    /// The receiver finds the frames in it, and inserts their headers where they are missing.
    Uncut(BlockMut, FrameBlock),
}

/// A block whose frames are queued.
#[derive(Debug)]
pub(super) struct Listed {
    block: Block,
    /// How many of its frames are still to be received.
    left: usize,
    /// Bytes of frames in it, of those that are received as well.
    filled_bytes: usize,
}

/// What a transmit call hangs into a lane: blocks, and a descriptor for each frame but for those
/// the receiver cuts.
#[derive(Debug, Default)]
pub(super) struct Staged {
    frames: VecDeque<QueuedFrame>,
    parcels: VecDeque<Parcel>,
    /// Bytes of the frames of the block that is to be added next.
    filled_bytes: usize,
    pub(super) totals: Totals,
}

/// How much is staged.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub(super) packets: usize,
    pub(super) frames: usize,
    pub(super) bytes: usize,
}

impl Totals {
    fn add(&mut self, packets: usize, frames: usize, bytes: usize) {
        self.packets += packets;
        self.frames += frames;
        self.bytes += bytes;
    }
}

impl Staged {
    /// How many blocks are staged.
    pub(super) fn blocks(&self) -> usize {
        self.parcels.len()
    }

    /// Adds a frame of the block that is to be added next.
    pub(super) fn push_frame(&mut self, queued: QueuedFrame) {
        self.totals.add(queued.packets, 1, queued.frame.len as usize);
        self.filled_bytes += queued.frame.len as usize;
        self.frames.push_back(queued);
    }

    /// Adds the block of the last `count` frames.
    pub(super) fn push_block(&mut self, block: Block, count: usize) {
        let filled_bytes = core::mem::take(&mut self.filled_bytes);
        self.parcels.push_back(Parcel::Listed(Listed { block, left: count, filled_bytes }));
    }

    /// Adds a block that the receiver cuts.
    pub(super) fn push_uncut(&mut self, block: BlockMut, layout: FrameBlock) {
        let bytes = layout.frames().map(|frame| frame.range.len()).sum();
        self.totals.add(layout.packets.len(), layout.packets.len(), bytes);
        self.parcels.push_back(Parcel::Uncut(block, layout));
    }
}

#[derive(Debug, Default)]
struct Contents {
    frames: VecDeque<QueuedFrame>,
    parcels: VecDeque<Parcel>,
}

/// The block that the receiver is cutting, with the frames in it that it has not handed up.
#[derive(Debug, Default)]
pub(super) struct Opened {
    block: Option<Block>,
    /// Bytes of frames in it, of those that are handed up as well.
    filled_bytes: usize,
    frames: VecDeque<Frame>,
}

impl Opened {
    /// Cuts a block.
    fn open(&mut self, mut block: BlockMut, layout: &FrameBlock) {
        let inserted = layout.insert_headers(block.bytes_mut());
        debug_assert!(inserted.is_some(), "the sender made the block as long as its frames");
        self.frames.extend(layout.frames().map(|BlockFrame { range, checksum }| Frame {
            block: 0,
            offset: range.start as u32,
            len: range.len() as u32,
            checksum: match checksum {
                Some(_) => ReceivedChecksum::Partial,
                None => ReceivedChecksum::Unverified,
            },
            segmented: None,
        }));
        self.filled_bytes = self.frames.iter().map(|frame| frame.len as usize).sum();
        self.block = Some(block.freeze());
    }

    /// Hands up at most `frames_max` frames of the block, says how many and how many bytes they
    /// have; `None` where no block is open.
    fn take(&mut self, batch: &mut ReceiveBatch, frames_max: usize) -> Option<(usize, usize)> {
        let block = self.block.take()?;
        let count = self.frames.len().min(frames_max);
        if count < self.frames.len() {
            self.block = Some(block.clone());
        }
        let (index, mut bytes) = (batch.add_part(block, self.filled_bytes), 0);
        for frame in self.frames.drain(..count) {
            bytes += frame.len as usize;
            let fits = batch.push_frame(Frame { block: index, ..frame });
            debug_assert!(fits, "the sender laid the frame into this block");
        }
        Some((count, bytes))
    }
}

impl Contents {
    /// Takes out frames up to the first block that must be cut.
    fn pop_listed(&mut self, batch: &mut ReceiveBatch, frames_max: usize, taken: &mut Totals) {
        while taken.frames < frames_max {
            let Some(Parcel::Listed(listed)) = self.parcels.front_mut() else { return };
            let count = listed.left.min(frames_max - taken.frames);
            listed.left -= count;
            let index = if listed.left > 0 {
                batch.add_part(listed.block.clone(), listed.filled_bytes)
            } else if let Some(Parcel::Listed(listed)) = self.parcels.pop_front() {
                batch.add_part(listed.block, listed.filled_bytes)
            } else {
                return;
            };
            for queued in self.frames.drain(..count) {
                taken.add(queued.packets, 1, queued.frame.len as usize);
                let fits = batch.push_frame(Frame { block: index, ..queued.frame });
                debug_assert!(fits, "the sender laid the frame into this block");
            }
        }
    }
}

/// Moves all of `staged` behind what lies in `queue`. Where that is nothing they change places: nothing is moved, and the
/// memory goes back and forth.
#[inline]
fn hang_in<T>(queue: &mut VecDeque<T>, staged: &mut VecDeque<T>) {
    match queue.is_empty() {
        true => core::mem::swap(queue, staged),
        false => queue.append(staged),
    }
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

    /// Hangs frames in, for the sender, and leaves `staged` empty with its memory. The receiver is
    /// told by [`Lane::signal`].
    pub(super) fn push(&self, staged: &mut Staged) {
        let Totals { packets, bytes, .. } = core::mem::take(&mut staged.totals);
        if staged.parcels.is_empty() {
            return;
        }
        let mut contents = self.lock();
        hang_in(&mut contents.frames, &mut staged.frames);
        hang_in(&mut contents.parcels, &mut staged.parcels);
        self.bytes.fetch_add(bytes, Ordering::SeqCst);
        self.packets.fetch_add(packets, Ordering::SeqCst);
    }

    /// Wakes a receiver that sleeps, after the sender hung in what it had.
    pub(super) fn signal(&self) {
        self.receiver.signal();
    }

    /// Takes out at most `frames_max` frames, for the receiver, and says how many there were, how
    /// many bytes they have, and whether others are left. `opened` is the receiver's own.
    pub(super) fn pop(
        &self,
        opened: &mut Opened,
        batch: &mut ReceiveBatch,
        frames_max: usize,
    ) -> (usize, usize, bool) {
        let mut taken = Totals::default();
        while taken.frames < frames_max && self.packets() > taken.packets {
            if let Some((frames, bytes)) = opened.take(batch, frames_max - taken.frames) {
                taken.add(frames, frames, bytes);
                continue;
            }
            let mut contents = self.lock();
            contents.pop_listed(batch, frames_max, &mut taken);
            // Cut without the lock: the sender need not wait for that.
            if taken.frames < frames_max {
                let Some(Parcel::Uncut(block, layout)) = contents.parcels.pop_front() else {
                    break;
                };
                drop(contents);
                opened.open(block, &layout);
            }
        }
        if taken.frames == 0 {
            return (0, 0, self.packets() > 0);
        }
        self.bytes.fetch_sub(taken.bytes, Ordering::SeqCst);
        let before = self.packets.fetch_sub(taken.packets, Ordering::SeqCst);
        if self.blocked.load(Ordering::SeqCst) && self.blocked.swap(false, Ordering::SeqCst) {
            self.sender.ring();
        }
        (taken.frames, taken.bytes, before > taken.packets)
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
    use bytes::Bytes;
    use std::time::Instant;

    fn lane() -> Lane {
        Lane::new(Arc::default(), Arc::default())
    }

    fn push(lane: &Lane, count: usize) {
        let checksum = ReceivedChecksum::Unverified;
        let frame = Frame { block: 0, offset: 0, len: 5, checksum, segmented: None };
        let mut staged = Staged::default();
        (0..count).for_each(|_| staged.push_frame(QueuedFrame { frame, packets: 1 }));
        staged.push_block(Block::from(Bytes::from_static(b"frame")), count);
        lane.push(&mut staged);
    }

    #[test]
    fn room_made_before_the_sender_says_it_is_blocked_still_wakes_it() {
        let lane = lane();
        push(&lane, 2);
        let found_full = lane.packets();
        assert_eq!(lane.pop(&mut Opened::default(), &mut ReceiveBatch::new(), 9), (2, 10, false));
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
        lane.pop(&mut Opened::default(), &mut ReceiveBatch::new(), 1);
        assert!(!lane.sender.rung.load(Ordering::SeqCst));
        lane.block_sender(lane.packets());
        lane.pop(&mut Opened::default(), &mut ReceiveBatch::new(), 1);
        assert!(lane.sender.rung.load(Ordering::SeqCst));
    }

    #[test]
    fn who_is_about_to_sleep_looks_once_more() {
        let (doorbell, asked) = (Doorbell::default(), Instant::now());
        let looks = AtomicUsize::new(0);
        doorbell.wait(Some(Duration::from_secs(60)), || looks.fetch_add(1, Ordering::SeqCst) > 0);
        doorbell.wait(Some(Duration::from_secs(60)), || {
            doorbell.ring();
            false
        });
        assert_eq!(doorbell.sleeps(), 0);
        assert!(asked.elapsed() < Duration::from_secs(50));
    }

    /// Who is taken to wait costs whoever has news a lock each time.
    #[test]
    fn who_waits_no_more_is_not_counted() {
        let doorbell = Doorbell::default();
        let count = || doorbell.waiting.load(Ordering::SeqCst);
        doorbell.wait(Some(Duration::ZERO), || false);
        assert_eq!(count(), 0);
        for _ in 0..2 {
            doorbell.register(Waker::noop());
            doorbell.register(&Waker::from(Arc::new(Another)));
            assert_eq!(count(), 1, "there is one task at most");
            doorbell.signal();
            assert_eq!(count(), 0);
        }
        doorbell.ring();
        doorbell.wait(None, || false);
        doorbell.wait(Some(Duration::ZERO), || false);
        assert_eq!((count(), doorbell.sleeps()), (0, 2), "a ring is heard once");
    }

    /// Else each sleep that is ended by a ring is followed by one that ends at once.
    #[test]
    fn a_ring_that_ends_a_sleep_is_heard_once() {
        let doorbell = Doorbell::default();
        std::thread::scope(|scope| {
            scope.spawn(|| doorbell.wait(None, || false));
            while doorbell.sleeps() == 0 {
                std::thread::yield_now();
            }
            doorbell.ring();
        });
        doorbell.wait(Some(Duration::ZERO), || false);
        assert_eq!(doorbell.sleeps(), 2);
    }

    struct Another;

    impl std::task::Wake for Another {
        fn wake(self: Arc<Self>) {}
    }

    #[cfg(unix)]
    #[test]
    fn a_loop_is_called_for_news_while_it_waits_and_for_a_ring_at_any_time() {
        use crate::queue::tests::Noting;
        let (doorbell, noting) = (Doorbell::default(), Noting::new());
        let made = doorbell.called_source(&|| Some(Arc::clone(&noting) as _)).expect("it is made");
        let again = doorbell.called_source(&|| None).expect("it is there");
        assert!(Arc::ptr_eq(&made, &again), "the same");
        let called = || [&noting.wakes, &noting.wakes_waiting].map(|it| it.load(Ordering::SeqCst));
        doorbell.signal();
        assert_eq!(called(), [0, 1], "only who waits is called for news");
        doorbell.ring();
        assert_eq!(called()[0], 1, "a ring is for the next wait, too");
    }
}
