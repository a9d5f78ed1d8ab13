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
//! Of the same memory datagrams and raw packets that nobody has read hold half at most, whoever has them
//! ([`Unread`](crate::Unread)), and what connections have received and nobody has read about three eighths: with both
//! there is still what is set aside.
//!
//! What is held only because it lies in one block with what is kept can be had back
//! ([`BlockPool::copy_out`]).
//!
//! A class is a stack of free buffers behind a mutex. At one acquisition per 64 KiB of payload an
//! uncontended lock (about 20 ns a pair) is a thousandth of the copy it serves. Who sends a byte at a time feels it,
//! and cores that share a pool feel each write to what they share: so what a class counts it counts under the lock
//! that it needs anyway, and what is kept for reuse is told from two numbers of which one seldom changes.

use crate::block::{Block, BlockMut};
use crate::sums::{PieceSums, Pieces};
use crate::unread::UnreadBound;
use core::fmt;
use core::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

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
    /// How many bytes of free buffers are kept for reuse; while more are out, as many as those, as far as the limit goes.
    pub cached_limit_bytes: usize,
    /// How many bytes the datagrams and raw packets that nobody has read may hold, in all sockets of all who share the
    /// pool: each counted as long as a block of its own, with one more for each socket that has none
    /// ([`Unread`](crate::Unread)). `None` is half of what there is to send with, so that readers who do not come leave
    /// the other half to connections.
    pub datagrams_limit_bytes: Option<usize>,
    /// How many bytes the data may hold that connections have received and nobody has read, in all of them that share the
    /// pool: of each the blocks that it lies in, or twice its length, if that is less, for it can be copied out of them.
    /// Where this leaves a connection less than twice its buffer, its window opens no further than half of what is left,
    /// but for 8 KiB; who holds as much as is left gets no more, but for 8 KiB in order, so that the limit may be exceeded
    /// by about as much for each connection. `None` is three eighths of what there is to send with. Low limits slow down
    /// readers that are slower than their peers, high ones leave less to send with where many do not read.
    pub streams_limit_bytes: Option<usize>,
}

/// What [`PoolConfig::for_connections`] allows for each.
const CONNECTION_BYTES: usize = 256 << 10;

impl PoolConfig {
    /// The usual settings, with the limits of a program that has so many connections busy at the same time: 256 KiB for
    /// each, of which 64 KiB are for what arrives and 72 KiB for what nobody has read yet. The usual limits have that for
    /// a thousand. With less of it, what windows have invited is dropped where the peers fill them at the same time, and
    /// has to be sent again. A proxy whose both sides are connections of the stack has two for each client: with 500
    /// clients at once it is at the usual limits.
    ///
    /// Limits are what may be out at most. Memory is taken as it is needed, and most of it given back afterwards.
    #[must_use]
    pub fn for_connections(count: usize) -> Self {
        let usual = Self::default();
        let limit_bytes = usual.limit_bytes.max(count.saturating_mul(CONNECTION_BYTES));
        Self { limit_bytes, receive_reserve_bytes: limit_bytes / 4, ..usual }
    }

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

    fn send_limit_bytes(&self) -> usize {
        self.limit_bytes.saturating_sub(self.receive_reserve_bytes)
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
            datagrams_limit_bytes: None,
            streams_limit_bytes: None,
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
        // The last is that of buffers with a size of their own, none of which is kept.
        let classes = (0..=config.size_classes_bytes.len()).map(|_| Mutex::default()).collect();
        Self {
            depot: Arc::new(Depot {
                config,
                classes,
                outstanding_bytes: AtomicUsize::new(0),
                held_bytes: AtomicUsize::new(0),
                unread_bytes: Default::default(),
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
        self.depot.config.send_limit_bytes()
    }

    /// How many bytes what nobody has read may hold ([`PoolConfig::datagrams_limit_bytes`]).
    #[must_use]
    pub fn datagrams_limit_bytes(&self) -> usize {
        self.depot.unread_limit_bytes(Kind::Datagrams)
    }

    /// How many bytes of that are charged, a little ahead of what is held ([`Unread`](crate::Unread)).
    #[must_use]
    pub fn datagrams_bytes(&self) -> usize {
        self.depot.unread_bytes(Kind::Datagrams)
    }

    /// How many bytes of what connections hold unread are charged, a little ahead of what is held.
    #[must_use]
    pub fn streams_bytes(&self) -> usize {
        self.depot.unread_bytes(Kind::Streams)
    }

    /// How many bytes connections may hold of what nobody has read ([`PoolConfig::streams_limit_bytes`]), and how many of
    /// them are left.
    #[inline]
    #[must_use]
    pub fn streams_bound(&self) -> UnreadBound {
        UnreadBound {
            limit_bytes: self.depot.unread_limit_bytes(Kind::Streams),
            left_bytes: self.depot.left_unread_bytes(Kind::Streams),
        }
    }

    /// How many bytes there are, out or free.
    #[cfg(test)]
    fn held_bytes(&self) -> usize {
        self.depot.held_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn depot(&self) -> &Arc<Depot> {
        &self.depot
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
            allocations: self.depot.classes.iter().map(|class| lock(class).allocations).sum(),
            allocation_misses: self.depot.misses.load(Ordering::Relaxed),
            allocation_oversize: self.depot.oversize.load(Ordering::Relaxed),
            allocation_failures: self.depot.failures.load(Ordering::Relaxed),
            outstanding_bytes: self.depot.outstanding_bytes.load(Ordering::Relaxed) as u64,
        }
    }
}

/// What there is a count of as long as nobody has read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Datagrams and raw packets.
    Datagrams,
    /// What connections have received.
    Streams,
}

impl Kind {
    /// Its usual part of what there is to send with. Together they leave what is set aside.
    fn eighths(self) -> usize {
        match self {
            Self::Datagrams => 4,
            Self::Streams => 3,
        }
    }
}

/// What the pool's clones and the slabs that are out share.
#[derive(Debug)]
pub(crate) struct Depot {
    config: PoolConfig,
    classes: Vec<Mutex<Class>>,
    /// Of the buffers that are out.
    outstanding_bytes: AtomicUsize,
    /// Of all buffers that there are, out or free.
    held_bytes: AtomicUsize,
    /// What [`Unread`](crate::Unread) counts, of each kind.
    unread_bytes: [AtomicUsize; 2],
    misses: AtomicU64,
    oversize: AtomicU64,
    failures: AtomicU64,
}

/// The free buffers of one size.
#[derive(Debug, Default)]
struct Class {
    free: Vec<Arc<Slab>>,
    /// How many were handed out, free ones or new.
    allocations: u64,
}

fn lock(class: &Mutex<Class>) -> MutexGuard<'_, Class> {
    class.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A buffer and the way home.
#[derive(Debug)]
pub(crate) struct Slab {
    bytes: Box<[u8]>,
    /// Index of the size class.
    class: usize,
    /// Weak, so that a depot does not keep itself alive by the slabs that lie in it.
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
            depot.held_bytes.fetch_sub(self.bytes.len(), Ordering::Relaxed);
        }
    }
}

impl Depot {
    #[inline]
    pub(crate) fn size_of(&self, len_bytes: usize) -> (usize, usize) {
        let sizes_bytes = &self.config.size_classes_bytes;
        let class = sizes_bytes.iter().position(|size| *size >= len_bytes);
        match class {
            Some(index) => (index, sizes_bytes[index]),
            None => (sizes_bytes.len(), len_bytes),
        }
    }

    pub(crate) fn unread_limit_bytes(&self, kind: Kind) -> usize {
        let config = &self.config;
        match kind {
            Kind::Datagrams => config.datagrams_limit_bytes,
            Kind::Streams => config.streams_limit_bytes,
        }
        .unwrap_or_else(|| config.send_limit_bytes() / 8 * kind.eighths())
    }

    fn unread_bytes(&self, kind: Kind) -> usize {
        self.unread_bytes[kind as usize].load(Ordering::Relaxed)
    }

    /// How many bytes more may be held unread.
    #[inline]
    pub(crate) fn left_unread_bytes(&self, kind: Kind) -> usize {
        self.unread_limit_bytes(kind).saturating_sub(self.unread_bytes(kind))
    }

    /// Who was counted with so many bytes now is with others.
    pub(crate) fn count_unread(&self, kind: Kind, before_bytes: usize, bytes: usize) {
        // Wraps back where it becomes less.
        let more_bytes = bytes.wrapping_sub(before_bytes);
        self.unread_bytes[kind as usize].fetch_add(more_bytes, Ordering::Relaxed);
    }

    fn take(self: &Arc<Self>, len_bytes: usize, limit_bytes: usize) -> Result<BlockMut, Exhausted> {
        let (class, size) = self.size_of(len_bytes);
        let before = self.outstanding_bytes.fetch_add(size, Ordering::Relaxed);
        if before + size > limit_bytes {
            self.outstanding_bytes.fetch_sub(size, Ordering::Relaxed);
            self.failures.fetch_add(1, Ordering::Relaxed);
            return Err(Exhausted);
        }
        let free = {
            let mut class = lock(&self.classes[class]);
            class.allocations += 1;
            class.free.pop()
        };
        Ok(BlockMut::new(free.unwrap_or_else(|| self.make(class, size))))
    }

    #[cold]
    fn make(self: &Arc<Self>, class: usize, size: usize) -> Arc<Slab> {
        self.misses.fetch_add(1, Ordering::Relaxed);
        if size > self.config.largest_cached_len_bytes {
            self.oversize.fetch_add(1, Ordering::Relaxed);
        }
        self.held_bytes.fetch_add(size, Ordering::Relaxed);
        // What is free was of no use for this, and may be more than there is room for beside it.
        self.release_surplus();
        let bytes = vec![0; size].into_boxed_slice();
        Arc::new(Slab { bytes, class, home: Arc::downgrade(self), sums: PieceSums::default() })
    }

    /// Whether buffers of such a length are kept for reuse at all.
    fn is_cached(&self, class: usize, size: usize) -> bool {
        class < self.config.size_classes_bytes.len() && size <= self.config.largest_cached_len_bytes
    }

    /// Whether there are more free buffers than are kept. While much is out as much is kept: what thousands of
    /// connections hold comes back and goes out again in waves, which would make and clear buffers anew. All there are
    /// together never exceed the pool's limit for that.
    fn has_too_many(&self) -> bool {
        let outstanding_bytes = self.outstanding_bytes.load(Ordering::Relaxed);
        let free_bytes = self.held_bytes.load(Ordering::Relaxed).saturating_sub(outstanding_bytes);
        let left_bytes = self.config.limit_bytes.saturating_sub(outstanding_bytes);
        free_bytes > self.config.cached_limit_bytes.max(outstanding_bytes.min(left_bytes))
    }

    /// Lets go of free buffers until there are not too many, of the class that has most: what one size left behind goes
    /// where another one is used.
    fn release_surplus(&self) {
        while self.has_too_many() {
            let classes = self.classes.iter().zip(&self.config.size_classes_bytes);
            let most = classes.max_by_key(|(class, size)| lock(class).free.len() * **size);
            let released = most.and_then(|(class, _)| lock(class).free.pop());
            let Some(mut slab) = released else { return };
            self.held_bytes.fetch_sub(slab.bytes.len(), Ordering::Relaxed);
            if let Some(free) = Arc::get_mut(&mut slab) {
                // It would be counted off as one that was out.
                free.home = Weak::new();
            }
        }
    }

    /// Lets go of one reference; the last one brings the buffer home.
    pub(crate) fn give_back(mut slab: Arc<Slab>) {
        // Of the handles of a full block all but the last end here. `get_mut` would lock for each.
        if Arc::strong_count(&slab) > 1 {
            return;
        }
        let Some(last) = Arc::get_mut(&mut slab) else { return };
        let Some(depot) = last.home.upgrade() else { return };
        let (class, size) = (last.class, last.bytes.len());
        if !depot.is_cached(class, size) {
            return;
        }
        last.sums.clear();
        depot.outstanding_bytes.fetch_sub(size, Ordering::Relaxed);
        lock(&depot.classes[class]).free.push(slab);
        depot.release_surplus();
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
            datagrams_limit_bytes: None,
            streams_limit_bytes: None,
        })
    }

    #[test]
    fn limits_grow_with_the_connections_that_they_are_for() {
        let usual = PoolConfig::default();
        let same = [0, 1, 1_024].map(PoolConfig::for_connections);
        assert!(same.iter().all(|it| it.limit_bytes == usual.limit_bytes));
        assert!(same.iter().all(|it| it.receive_reserve_bytes == usual.receive_reserve_bytes));
        let many = PoolConfig::for_connections(10_000);
        assert_eq!(many.check(), Ok(()));
        let pool = BlockPool::new(many);
        assert_eq!(pool.streams_bound().limit_bytes / 10_000, 72 << 10);
        assert_eq!(PoolConfig::for_connections(usize::MAX).check(), Ok(()));
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
    fn what_comes_back_in_waves_is_kept_while_as_much_is_out_and_goes_with_it() {
        let config = PoolConfig {
            limit_bytes: 102_000,
            cached_limit_bytes: 3_000,
            ..small().config().clone()
        };
        let pool = BlockPool::new(config);
        let buffers =
            |count| (0..count).map(|_| pool.allocate(1_000).expect("room")).collect::<Vec<_>>();
        let mut out = buffers(80);
        for _ in 0..5 {
            out.truncate(45);
            assert!(pool.held_bytes() <= 102_000);
            out.extend(buffers(35));
        }
        // As many as were out were free, but for what the limit had no room for.
        assert!((80..115).contains(&pool.counters().allocation_misses), "{:?}", pool.counters());
        out.clear();
        assert_eq!((pool.counters().outstanding_bytes, pool.held_bytes()), (0, 3_000));
        assert_eq!(pool.depot.classes.iter().map(|it| lock(it).free.len()).sum::<usize>(), 3);
    }

    #[test]
    fn what_one_size_left_free_goes_as_another_comes_back_and_makes_room_for_it() {
        let config = PoolConfig {
            limit_bytes: 102_000,
            cached_limit_bytes: 3_000,
            largest_cached_len_bytes: 2_000,
            ..small().config().clone()
        };
        let pool = BlockPool::new(config);
        let buffers = |count, size| {
            (0..count).map(|_| pool.allocate(size).expect("room")).collect::<Vec<_>>()
        };
        let (small, mut large) = (buffers(40, 1_000), buffers(20, 2_000));
        drop(small);
        assert_eq!(pool.held_bytes(), 80_000, "as many are kept as are out");
        large.extend(buffers(30, 2_000));
        assert!(pool.held_bytes() <= 105_000, "{} beyond both limits", pool.held_bytes());
        // In waves, for which there is as much as for the only size that is used.
        let misses = pool.counters().allocation_misses;
        for _ in 0..10 {
            large.truncate(30);
            large.extend(buffers(20, 2_000));
        }
        let misses = pool.counters().allocation_misses - misses;
        assert!(misses <= 20, "{misses} buffers made anew for want of kept ones");
        drop(large);
        assert!(pool.held_bytes() <= 3_000, "{} are kept", pool.held_bytes());
    }

    #[test]
    fn nothing_is_miscounted_among_threads() {
        let config = PoolConfig {
            limit_bytes: 400_000,
            cached_limit_bytes: 3_000,
            largest_cached_len_bytes: 2_000,
            ..small().config().clone()
        };
        let pool = BlockPool::new(config);
        let (to_other, from_other) = std::sync::mpsc::sync_channel(64);
        std::thread::scope(|scope| {
            scope.spawn(|| from_other.into_iter().for_each(drop));
            for seed in 1..3_usize {
                let (pool, to_other) = (pool.clone(), to_other.clone());
                scope.spawn(move || {
                    let mut kept = std::collections::VecDeque::new();
                    for turn in 0..20_000 {
                        let size = if turn / 500 % 2 == 0 { 1_000 } else { 2_000 };
                        if let Ok(block) = pool.allocate(size) {
                            let block = block.freeze();
                            // Two threads let go of it, perhaps at the same moment.
                            to_other.send(block.clone()).expect("it takes all");
                            kept.push_back(block);
                        }
                        kept.truncate(turn * seed % 40);
                    }
                });
            }
            drop(to_other);
        });
        let free = pool.depot.classes.iter().zip([1_000, 2_000]);
        let free_bytes: usize = free.map(|(class, size)| lock(class).free.len() * size).sum();
        assert_eq!(pool.counters().outstanding_bytes, 0);
        assert_eq!(pool.held_bytes(), free_bytes);
        assert!(free_bytes <= 3_000, "{free_bytes}");
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
