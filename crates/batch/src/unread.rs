//! How much of a pool may be held by what nobody has read, in all sockets together: datagrams and raw packets, and the
//! data of connections.
//!
//! Each socket's queue has a bound of its own, and many sockets whose applications do not read, each within
//! its bound, would hold all there is to send with, for ever: a datagram is not acknowledged, so no window closes
//! for it, and those that fill their blocks cannot be copied out of them. So one count is shared by all who share a
//! pool, with a limit ([`PoolConfig::datagrams_limit_bytes`](crate::PoolConfig::datagrams_limit_bytes)).
//!
//! ```text
//!  shard 0: Unread { bytes, charged_bytes } --+
//!  shard 1: Unread { bytes, charged_bytes } --+--> Depot::unread_bytes[kind] = sum of charged_bytes <= limit, about
//!                    bytes <= charged_bytes
//! ```
//!
//! Connections have a count and a limit of their own ([`PoolConfig::streams_limit_bytes`](crate::PoolConfig)): what was
//! announced to their peers cannot be taken back, so some hundred that are not read hold what their windows said. They
//! say themselves what they hold ([`Unread::recount`]), and ask the pool what is left.
//!
//! A queue may grow while it holds less than is left (the rule of [`FlowShares`](crate::FlowShares)): of `n` that
//! grow at the same time each comes to one part of `n + 1`. Who holds nothing may always take one packet, however
//! little is left: a reader who comes is served. So the limit may be exceeded by one packet of each socket.
//!
//! A packet is counted as long as a block of its own would be. While it lies among others in a device's block that
//! is about what it takes there, and exact once it was copied out.
//!
//! A shard charges the shared count ahead, a step at a time, and gives back what it has too much of, also in steps:
//! a packet costs an addition and a comparison, not an atomic operation on what all threads write. So the shared
//! count is too high by up to two steps for each shard.

use crate::pool::{BlockPool, Depot, Kind};
use std::sync::Arc;

/// What is charged ahead, unless the limit is very small.
const STEP_BYTES_MAX: usize = 65_536;

/// Of a small limit, one part in so many.
const STEP_PART: usize = 1_024;

/// How much may be unread in all sockets that share a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnreadBound {
    /// In all.
    pub limit_bytes: usize,
    /// Of that, what is left.
    pub left_bytes: usize,
}

impl UnreadBound {
    /// Whether readers do not keep up: more than half of what may be unread is.
    #[inline]
    #[must_use]
    pub fn is_near(self) -> bool {
        self.left_bytes < self.limit_bytes / 2
    }
}

/// What the sockets of one shard hold unread. What is counted here goes back to the pool's count with it.
#[derive(Debug)]
pub struct Unread {
    depot: Arc<Depot>,
    kind: Kind,
    step_bytes: usize,
    bytes: usize,
    /// What the pool counts for it; no less than `bytes`.
    charged_bytes: usize,
}

impl Unread {
    /// No datagrams yet, of this pool.
    #[must_use]
    pub fn datagrams(pool: &BlockPool) -> Self {
        Self::new(pool, Kind::Datagrams)
    }

    /// Nothing yet of what connections receive, of this pool.
    #[must_use]
    pub fn streams(pool: &BlockPool) -> Self {
        Self::new(pool, Kind::Streams)
    }

    fn new(pool: &BlockPool, kind: Kind) -> Self {
        let depot = pool.depot().clone();
        let step_bytes = STEP_BYTES_MAX.min(depot.unread_limit_bytes(kind) / STEP_PART);
        Self { depot, kind, step_bytes, bytes: 0, charged_bytes: 0 }
    }

    /// Whether a queue that holds so many bytes may have another packet.
    #[inline]
    #[must_use]
    pub fn may_grow(&self, held_bytes: usize) -> bool {
        held_bytes == 0 || held_bytes < self.depot.left_unread_bytes(self.kind)
    }

    /// Who held `before_bytes` now holds `bytes`.
    #[inline]
    pub fn recount(&mut self, before_bytes: usize, bytes: usize) {
        self.bytes = self.bytes - before_bytes + bytes;
        let is_much = self.charged_bytes > self.bytes + 2 * self.step_bytes;
        if is_much || self.bytes > self.charged_bytes {
            self.charge();
        }
    }

    /// A packet with a payload of `len` bytes is in a queue.
    #[inline]
    pub fn add(&mut self, len: usize) {
        self.recount(0, self.depot.size_of(len).1);
    }

    /// A packet with a payload of `len` bytes is in it no more.
    #[inline]
    pub fn remove(&mut self, len: usize) {
        self.recount(self.depot.size_of(len).1, 0);
    }

    /// What is counted here.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Has the pool count what is counted here, and a step more.
    #[cold]
    fn charge(&mut self) {
        let wanted_bytes = self.bytes + self.step_bytes;
        self.depot.count_unread(self.kind, self.charged_bytes, wanted_bytes);
        self.charged_bytes = wanted_bytes;
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        self.depot.count_unread(self.kind, self.charged_bytes, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PoolConfig;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn pool(datagrams_limit_bytes: Option<usize>) -> BlockPool {
        BlockPool::new(PoolConfig { datagrams_limit_bytes, ..PoolConfig::default() })
    }

    /// How many packets of 2,000 bytes a queue takes that holds `held_bytes` already.
    fn taken(unread: &mut Unread, mut held_bytes: usize) -> usize {
        let mut count = 0;
        while unread.may_grow(held_bytes) {
            unread.add(2_000);
            (held_bytes, count) = (held_bytes + 2_048, count + 1);
        }
        count
    }

    #[test]
    fn the_limit_is_half_of_what_there_is_to_send_with_unless_it_is_told() {
        let pools = [pool(None), pool(Some(1_000_000))];
        assert_eq!(pools.map(|pool| pool.datagrams_limit_bytes()), [96 << 20, 1_000_000]);
    }

    #[test]
    fn a_queue_has_half_of_what_is_left_and_an_empty_one_a_packet() {
        let pool = pool(Some(1 << 20));
        let mut unread = Unread::datagrams(&pool);
        // 512 of 2 KiB are the limit; what is charged ahead is taken for used.
        let mut counts = Vec::new();
        for _ in 0..12 {
            counts.push(taken(&mut unread, 0));
        }
        assert!((250..=256).contains(&counts[0]) && (120..=128).contains(&counts[1]), "{counts:?}");
        assert!(counts.is_sorted_by(|one, next| one >= next) && counts[11] == 1, "{counts:?}");
        assert!(!unread.may_grow(2_048) && unread.may_grow(0));
        for _ in 0..counts[0] {
            unread.remove(2_000);
        }
        assert!(taken(&mut unread, 0) > 120, "what was read is there for others");
    }

    #[test]
    fn what_one_shard_holds_another_has_not_and_a_shard_that_ends_leaves_nothing_counted() {
        let pool = pool(Some(4 << 20));
        let [mut one, mut other] = [Unread::datagrams(&pool), Unread::datagrams(&pool)];
        assert!(other.may_grow(1 << 20));
        assert!((1_000..=1_024).contains(&taken(&mut one, 0)));
        assert!((480..=512).contains(&taken(&mut other, 0)));
        drop(one);
        assert!(other.may_grow(2 << 20));
        drop(other);
        assert_eq!(pool.datagrams_bytes(), 0);
    }

    #[test]
    fn one_packet_after_the_other_does_not_touch_the_count_of_all() {
        let pool = pool(None);
        let mut unread = Unread::datagrams(&pool);
        unread.add(1_472);
        let charged_bytes = pool.datagrams_bytes();
        for _ in 0..10_000 {
            unread.remove(1_472);
            assert_eq!(pool.datagrams_bytes(), charged_bytes);
            unread.add(1_472);
            assert_eq!(pool.datagrams_bytes(), charged_bytes);
        }
    }

    proptest! {
        #[test]
        fn the_count_of_all_is_what_is_held_and_little_more(
            limit_bytes in prop_oneof![Just(None), (0_usize..1 << 24).prop_map(Some)],
            steps in proptest::collection::vec((0..3_usize, any::<bool>(), 0..70_000_usize), 1..300),
        ) {
            let pool = pool(limit_bytes);
            let mut shards = [0; 3].map(|_| (Unread::datagrams(&pool), VecDeque::new()));
            for (at, is_read, len) in steps {
                let (unread, queue) = &mut shards[at];
                match (is_read, queue.front().copied()) {
                    (true, Some(len)) => {
                        queue.pop_front();
                        unread.remove(len);
                    }
                    _ => {
                        queue.push_back(len);
                        unread.add(len);
                    }
                }
                let held_bytes: usize = shards.iter().map(|(unread, _)| unread.bytes()).sum();
                let more_bytes = pool.datagrams_bytes().checked_sub(held_bytes).expect("no less");
                prop_assert!(more_bytes <= 3 * 2 * STEP_BYTES_MAX);
                prop_assert!(limit_bytes.is_none_or(|it| more_bytes <= 3 * 2 * (it / STEP_PART)));
            }
            for (unread, queue) in &mut shards {
                queue.drain(..).for_each(|len| unread.remove(len));
                prop_assert_eq!(unread.bytes(), 0);
            }
            drop(shards);
            prop_assert_eq!(pool.datagrams_bytes(), 0);
        }
    }
}
