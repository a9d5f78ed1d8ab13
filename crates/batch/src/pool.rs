//! The block pool: size classes, a bound, and a reserve for receiving.
//!
//! Seed 000 (section 2.1) found that one large buffer per write beats forty small ones, until the
//! buffer exceeds the largest cached size and falls through to a slow, shared arena. So the
//! largest cached class is a tunable here ([`PoolConfig::largest_cached_len_bytes`]) and every
//! allocation that misses the cache is counted.
//!
//! The pool is bounded: [`PoolConfig::limit_bytes`] caps what is out at any time, and transmit
//! allocations may not touch the last [`PoolConfig::receive_reserve_bytes`], so that ACKs, which
//! free memory, can always come in. Who keeps what was received asks first whether the pool
//! [is low](BlockPool::is_low): memory that waits for something else to arrive, or for somebody to
//! read it, must not take the room in which that would arrive.
//!
//! ```text
//! 0                              limit - reserve     limit - reserve / 4         limit - reserve / 8   limit
//! | to send, to wait, to be read | what comes next   | the same, for who has     | frames looked at    |
//! |                              |                   | nothing else to be read   |                     |
//! ```
//!
//! Of what there is to send with, the last eighth is not divided among those who write as much as they can
//! ([`BlockPool::left_to_share_bytes`]): peers that read nothing would hold it for as long as they like, and
//! who asks for a little would get nothing.
//!
//! What is held only because it lies in one block with what is kept can be had back
//! ([`BlockPool::copy_out`]).
//!
//! A class is a stack of free buffers behind a mutex. At one acquisition per 64 KiB of payload an
//! uncontended lock (about 20 ns a pair) is a thousandth of the copy it serves.

use crate::block::{Block, BlockMut};
use crate::sums::{PieceSums, Pieces};
use core::fmt;
use core::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// One part in so many of what there is to send with is set aside for who asks for a little. Of the default
/// pool it is 24 MiB, a page for each of six thousand connections.
const SET_ASIDE_PART: usize = 8;

/// Sizes of a [`BlockPool`].
#[derive(Clone, Debug)]
pub struct PoolConfig {
    /// Buffer sizes in bytes, ascending. A request is rounded up to the next one; what is larger
    /// than all of them is allocated at its own size and never cached.
    pub size_classes_bytes: Vec<usize>,
    /// Buffers longer than this are not kept when they come back (seed 000's DBLK_MAX_CACHE).
    pub largest_cached_len_bytes: usize,
    /// How many bytes may be out of the pool at any time.
    pub limit_bytes: usize,
    /// How many of those only [`BlockPool::allocate_receive`] may take; a quarter by default. The
    /// last eighth of it is for frames while they are looked at, and never for what is kept; the
    /// eighth before it is for readers who have nothing else to read.
    pub receive_reserve_bytes: usize,
    /// How many bytes of free buffers are kept for reuse.
    pub cached_limit_bytes: usize,
}

impl PoolConfig {
    /// Whether anything could be sent with these settings.
    ///
    /// # Errors
    /// The field that is wrong, and what to do about it.
    pub fn check(&self) -> Result<(), &'static str> {
        match self.receive_reserve_bytes < self.limit_bytes {
            true => Ok(()),
            false => {
                Err("receive_reserve_bytes is not below limit_bytes, which leaves nothing to \
                          send with: lower the one or raise the other")
            }
        }
    }
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            // 2,048 holds a frame of MTU 1500; 69,632 holds the largest super-frame with headers.
            size_classes_bytes: vec![
                256, 512, 2_048, 4_096, 9_216, 16_384, 32_768, 65_536, 69_632, 131_072, 262_144,
            ],
            largest_cached_len_bytes: 262_144,
            limit_bytes: 256 << 20,
            receive_reserve_bytes: 64 << 20,
            cached_limit_bytes: 32 << 20,
        }
    }
}

counters::counters! {
    /// What a [`BlockPool`] did since it was made.
    pub struct PoolCounters {
        /// Buffers handed out.
        allocations,
        /// Of these, buffers that were not in the cache and came from the allocator.
        allocation_misses,
        /// Of the misses, buffers longer than the largest cached class (seed 000's oversize arena).
        allocation_oversize,
        /// Requests refused because the pool's bound was reached.
        allocation_failures,
        /// Bytes out of the pool now.
        outstanding_bytes,
    }
}

/// The pool's bound is reached: buffers must come back before more can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted;

impl fmt::Display for Exhausted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the block pool is exhausted: raise its limit or read and send faster")
    }
}

impl std::error::Error for Exhausted {}

/// A bounded pool of buffers in size classes. Clones share it; every clone may be used from any
/// thread.
#[derive(Clone, Debug)]
pub struct BlockPool {
    depot: Arc<Depot>,
}

impl BlockPool {
    /// An empty pool of these sizes.
    #[must_use]
    pub fn new(config: PoolConfig) -> Self {
        let classes = config.size_classes_bytes.iter().map(|_| Mutex::default()).collect();
        Self {
            depot: Arc::new(Depot {
                config,
                classes,
                cached_bytes: AtomicUsize::new(0),
                outstanding_bytes: AtomicUsize::new(0),
                allocations: AtomicU64::new(0),
                misses: AtomicU64::new(0),
                oversize: AtomicU64::new(0),
                failures: AtomicU64::new(0),
            }),
        }
    }

    /// A buffer of at least `len_bytes`, for sending.
    ///
    /// # Errors
    /// [`Exhausted`] where the pool's limit, less the receive reserve, is reached.
    pub fn allocate(&self, len_bytes: usize) -> Result<BlockMut, Exhausted> {
        self.depot.take(len_bytes, self.send_limit_bytes())
    }

    /// A buffer of at least `len_bytes`, to receive into; may use the reserve.
    ///
    /// # Errors
    /// [`Exhausted`] where the pool's limit is reached.
    pub fn allocate_receive(&self, len_bytes: usize) -> Result<BlockMut, Exhausted> {
        self.depot.take(len_bytes, self.depot.config.limit_bytes)
    }

    /// The settings that it was made with.
    #[must_use]
    pub fn config(&self) -> &PoolConfig {
        &self.depot.config
    }

    /// How many bytes [`BlockPool::allocate`] could hand out now.
    #[must_use]
    pub fn left_to_send_bytes(&self) -> usize {
        self.send_limit_bytes().saturating_sub(self.depot.outstanding_bytes.load(Ordering::Relaxed))
    }

    /// How many of those bytes may be divided among who would queue as much as there is. What is set aside
    /// is a part and no constant, because pools may be small.
    #[must_use]
    pub fn left_to_share_bytes(&self) -> usize {
        self.left_to_send_bytes().saturating_sub(self.send_limit_bytes() / SET_ASIDE_PART)
    }

    fn send_limit_bytes(&self) -> usize {
        let config = &self.depot.config;
        config.limit_bytes.saturating_sub(config.receive_reserve_bytes)
    }

    /// Whether [`BlockPool::allocate`] would have a buffer of `len_bytes` now.
    #[must_use]
    pub fn has_room_for(&self, len_bytes: usize) -> bool {
        self.depot.size_of(len_bytes).1 <= self.left_to_send_bytes()
    }

    /// Whether only the receive reserve is left: what is received and must wait (for what is
    /// missing before it, or for a reader who has enough unread) should not be kept.
    #[must_use]
    pub fn is_low(&self) -> bool {
        self.is_beyond(self.depot.config.receive_reserve_bytes)
    }

    /// Whether only the last quarter of the receive reserve is left: what is received should be kept
    /// only for a reader who has nothing else to read, and no more than a little of it. So readers who
    /// do not come, however many blocks they hold, leave something to those who do.
    #[must_use]
    pub fn is_scarce(&self) -> bool {
        self.is_beyond(self.depot.config.receive_reserve_bytes / 4)
    }

    /// Whether nothing is [left to be shared](BlockPool::left_to_share_bytes): what is held for nothing
    /// ([`BlockPool::copy_out`]) should be had back. That is so before the pool [is low](BlockPool::is_low).
    #[must_use]
    pub fn is_used_up(&self) -> bool {
        self.left_to_share_bytes() == 0
    }

    /// Whether as much is left to be shared again as is set aside: who began to do something about a pool that
    /// [is used up](BlockPool::is_used_up) may end.
    #[must_use]
    pub fn is_relieved(&self) -> bool {
        self.left_to_share_bytes() >= self.send_limit_bytes() / SET_ASIDE_PART
    }

    /// Whether a block is this pool's.
    #[must_use]
    pub fn owns(&self, block: &Block) -> bool {
        block.home().is_some_and(|home| core::ptr::eq(home.as_ptr(), Arc::as_ptr(&self.depot)))
    }

    /// Whether only the last eighth of the receive reserve is left: nothing received should be
    /// kept, so that frames can still be looked at.
    #[must_use]
    pub fn is_nearly_exhausted(&self) -> bool {
        self.is_beyond(self.depot.config.receive_reserve_bytes / 8)
    }

    fn is_beyond(&self, rest_bytes: usize) -> bool {
        let outstanding_bytes = self.depot.outstanding_bytes.load(Ordering::Relaxed);
        outstanding_bytes > self.depot.config.limit_bytes.saturating_sub(rest_bytes)
    }

    /// What the pool did so far.
    #[must_use]
    pub fn counters(&self) -> PoolCounters {
        PoolCounters {
            allocations: self.depot.allocations.load(Ordering::Relaxed),
            allocation_misses: self.depot.misses.load(Ordering::Relaxed),
            allocation_oversize: self.depot.oversize.load(Ordering::Relaxed),
            allocation_failures: self.depot.failures.load(Ordering::Relaxed),
            outstanding_bytes: self.depot.outstanding_bytes.load(Ordering::Relaxed) as u64,
        }
    }
}

/// What the pool's clones and the slabs that are out share.
#[derive(Debug)]
pub(crate) struct Depot {
    config: PoolConfig,
    classes: Vec<Mutex<Vec<Arc<Slab>>>>,
    cached_bytes: AtomicUsize,
    outstanding_bytes: AtomicUsize,
    allocations: AtomicU64,
    misses: AtomicU64,
    oversize: AtomicU64,
    failures: AtomicU64,
}

/// A buffer and the way home.
#[derive(Debug)]
pub(crate) struct Slab {
    bytes: Box<[u8]>,
    /// Index of the size class; `None` for a size of its own.
    class: Option<usize>,
    /// Empty while the slab lies in the depot, so that the depot does not keep itself alive.
    home: Weak<Depot>,
    /// What is known of the bytes' checksums.
    sums: PieceSums,
}

impl Slab {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn home(&self) -> &Weak<Depot> {
        &self.home
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.sums.clear();
        &mut self.bytes
    }

    /// The bytes from `from` on; what is known of those before stays known.
    pub(crate) fn tail_mut(&mut self, from: usize) -> Option<&mut [u8]> {
        if from < self.sums.end() {
            self.sums.clear();
        }
        self.bytes.get_mut(from..)
    }

    pub(crate) fn copy_in(&mut self, at: usize, source: &[u8], pieces: Pieces) {
        self.sums.copy(&mut self.bytes, at, source, pieces);
    }

    #[inline]
    pub(crate) fn sum(&self, range: Range<usize>) -> (u16, usize) {
        self.sums.sum(&self.bytes, range)
    }
}

impl Drop for Slab {
    /// Reached when a slab goes back to the allocator: what it held is no longer out.
    fn drop(&mut self) {
        if let Some(depot) = self.home.upgrade() {
            depot.outstanding_bytes.fetch_sub(self.bytes.len(), Ordering::Relaxed);
        }
    }
}

impl Depot {
    /// The size class of a buffer of so many bytes, where there is one, and how long it is.
    fn size_of(&self, len_bytes: usize) -> (Option<usize>, usize) {
        let sizes_bytes = &self.config.size_classes_bytes;
        let class = sizes_bytes.iter().position(|size| *size >= len_bytes);
        (class, class.map_or(len_bytes, |index| sizes_bytes[index]))
    }

    fn take(self: &Arc<Self>, len_bytes: usize, limit_bytes: usize) -> Result<BlockMut, Exhausted> {
        let (class, size) = self.size_of(len_bytes);
        let before = self.outstanding_bytes.fetch_add(size, Ordering::Relaxed);
        if before + size > limit_bytes {
            self.outstanding_bytes.fetch_sub(size, Ordering::Relaxed);
            self.failures.fetch_add(1, Ordering::Relaxed);
            return Err(Exhausted);
        }
        self.allocations.fetch_add(1, Ordering::Relaxed);
        let cached = class.and_then(|index| {
            self.classes[index].lock().unwrap_or_else(PoisonError::into_inner).pop()
        });
        let slab = match cached {
            Some(mut slab) => {
                self.cached_bytes.fetch_sub(size, Ordering::Relaxed);
                if let Some(slab) = Arc::get_mut(&mut slab) {
                    slab.home = Arc::downgrade(self);
                    slab.sums.clear();
                }
                slab
            }
            None => {
                self.misses.fetch_add(1, Ordering::Relaxed);
                if size > self.config.largest_cached_len_bytes {
                    self.oversize.fetch_add(1, Ordering::Relaxed);
                }
                let bytes = vec![0; size].into_boxed_slice();
                let (home, sums) = (Arc::downgrade(self), PieceSums::default());
                Arc::new(Slab { bytes, class, home, sums })
            }
        };
        Ok(BlockMut::new(slab))
    }

    /// Lets go of one reference; the last one brings the buffer home.
    pub(crate) fn give_back(mut slab: Arc<Slab>) {
        // Of the handles of a full block all but the last end here. `get_mut` would lock for each.
        if Arc::strong_count(&slab) > 1 {
            return;
        }
        let Some(last) = Arc::get_mut(&mut slab) else { return };
        let Some(depot) = last.home.upgrade() else { return };
        let size = last.bytes.len();
        let Some(class) = last.class.filter(|_| size <= depot.config.largest_cached_len_bytes)
        else {
            return;
        };
        if depot.cached_bytes.load(Ordering::Relaxed) + size > depot.config.cached_limit_bytes {
            return;
        }
        last.home = Weak::new();
        depot.outstanding_bytes.fetch_sub(size, Ordering::Relaxed);
        depot.cached_bytes.fetch_add(size, Ordering::Relaxed);
        depot.classes[class].lock().unwrap_or_else(PoisonError::into_inner).push(slab);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> BlockPool {
        BlockPool::new(PoolConfig {
            size_classes_bytes: vec![1_000, 2_000],
            largest_cached_len_bytes: 1_000,
            limit_bytes: 5_000,
            receive_reserve_bytes: 2_000,
            cached_limit_bytes: 10_000,
        })
    }

    #[test]
    fn a_buffer_that_came_back_is_used_again() {
        let pool = small();
        let first = pool.allocate(900).expect("room");
        assert_eq!(first.capacity(), 1_000);
        let shared = first.freeze();
        let other = shared.clone();
        drop(shared);
        assert_eq!(pool.counters().outstanding_bytes, 1_000, "still held");
        drop(other);
        assert_eq!(pool.counters().outstanding_bytes, 0);
        drop(pool.allocate(10).expect("room"));
        let counters = pool.counters();
        assert_eq!((counters.allocations, counters.allocation_misses), (2, 1));
    }

    #[test]
    fn sizes_above_the_largest_cached_class_go_back_to_the_allocator() {
        let pool = small();
        drop(pool.allocate(1_500).expect("room"));
        drop(pool.allocate(1_500).expect("room"));
        let counters = pool.counters();
        assert_eq!((counters.allocation_misses, counters.allocation_oversize), (2, 2));
        assert_eq!(counters.outstanding_bytes, 0);
    }

    #[test]
    fn the_bound_holds_and_receiving_has_a_reserve() {
        let pool = small();
        let held: Vec<_> = (0..3).map(|_| pool.allocate(1_000).expect("room")).collect();
        assert_eq!(pool.allocate(1).unwrap_err(), Exhausted);
        assert!(!pool.is_low() && pool.left_to_send_bytes() == 0);
        let reserve = pool.allocate_receive(2_000).expect("the reserve is for receiving");
        assert!(pool.is_low() && pool.is_nearly_exhausted());
        assert_eq!(pool.allocate_receive(1).unwrap_err(), Exhausted);
        assert_eq!(pool.left_to_send_bytes(), 0);
        drop((held, reserve));
        assert_eq!(pool.left_to_send_bytes(), 3_000);
        assert_eq!(pool.counters().outstanding_bytes, 0);
        assert_eq!(pool.counters().allocation_failures, 2);
    }

    #[test]
    fn a_part_of_what_there_is_to_send_with_is_not_divided() {
        let pool = small();
        assert_eq!((pool.left_to_send_bytes(), pool.left_to_share_bytes()), (3_000, 2_625));
        let held = [(); 2].map(|()| pool.allocate(1_000).expect("room"));
        assert_eq!((pool.left_to_send_bytes(), pool.left_to_share_bytes()), (1_000, 625));
        let last = pool.allocate(1_000).expect("what is set aside is there to be sent with");
        assert_eq!(pool.left_to_share_bytes(), 0);
        drop((held, last));
    }

    #[test]
    fn a_block_may_outlive_its_pool() {
        let pool = small();
        let block = pool.allocate(5).expect("room").freeze();
        drop(pool);
        assert_eq!(block.len(), 1_000);
    }
}
