//! Whether what other squeues and the devices have is left to them, because readers do not keep up with what came.
//!
//! [`Feedback`] decides it from what was read and what may be unread; here it is told of them, and what it said is kept
//! for those who are to sleep: what lies in a device must not wake them then.

use batch::BlockPool;
use stack::Shard;
use steering::Feedback;
use time::Instant;

/// See the module documentation.
#[derive(Default)]
pub(super) struct Inhibition {
    feedback: Feedback,
    /// The last turn left what the devices have, and other squeues.
    is_on: bool,
}

impl Inhibition {
    /// A round of a turn begins. Says whether nothing is to be taken in.
    pub(super) fn on_round(&mut self, now: Instant, shard: &Shard, pool: &BlockPool) -> bool {
        let (_, read_bytes) = shard.stream_bytes();
        self.is_on = self.feedback.inhibits(now, read_bytes, pool.streams_bound());
        self.is_on
    }

    /// A batch was taken in, before which so much had come for readers.
    pub(super) fn on_received(
        &mut self,
        now: Instant,
        before_bytes: u64,
        shard: &Shard,
        pool: &BlockPool,
    ) {
        let (came_bytes, read_bytes) = shard.stream_bytes();
        let brought_bytes = came_bytes - before_bytes;
        self.feedback.on_received(now, brought_bytes, read_bytes, pool.streams_bound());
    }

    /// Whether the last turn took nothing in.
    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Whether what the last turn left waits for readers still.
    pub(super) fn awaits_readers(&self, shard: &Shard, pool: &BlockPool) -> bool {
        let (_, read_bytes) = shard.stream_bytes();
        self.is_on && self.feedback.awaits(read_bytes, pool.streams_bound())
    }
}
