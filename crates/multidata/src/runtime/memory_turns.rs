//! The turns of tasks that wait for memory to write with.
//!
//! They are woken by turns, because a crowd that looks again for every block that comes back would have no time for
//! anything else. Here is whose turn it is, and when the first is to look again; who they are knows
//! [`Waiting`](super::waiting::Waiting).

use batch::BlockPool;
use std::collections::VecDeque;
use time::{Duration, Instant};

/// What a task lacks that waits for memory to write with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lack {
    /// The pool had no block.
    Blocks,
    /// It has as much in its queue as its share of the pool allows.
    Share,
}

/// The first of the tasks that wait for memory looks again after so long at the latest.
pub(super) const MEMORY_RETRY: Duration = Duration::from_millis(1);

/// As long as this, where their share is used up and nothing has come back since: each time twice as long.
const SHARE_RETRY_MAX: Duration = Duration::from_millis(32);

/// How much memory there is to be for each task that is woken because of it: a block of the usual size.
pub(super) const MEMORY_EACH_BYTES: usize = 65_536;

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct MemoryTurns {
    /// Sockets whose task waits for memory, by index, longest first, each once; the task may be gone.
    sockets: VecDeque<usize>,
    /// So many of them, from the first on, hold all who found no block at all; the others' share is used up.
    for_blocks: usize,
    /// When the first of them is to look again, whether there is memory or not.
    until: Option<Instant>,
    /// How long those wait for that whose share is used up.
    share_retry: Duration,
    /// What was left of the pool to share when it was looked at last, and when that was.
    share_left_bytes: usize,
    share_looked_at: Instant,
}

impl MemoryTurns {
    /// Whether nobody waits.
    pub(super) fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }

    /// When the first is to look again.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.until
    }

    /// A task of this socket waits, which has a turn already or gets one behind all others.
    pub(super) fn add(&mut self, socket_index: usize, had_turn: bool, lack: Lack, now: Instant) {
        if !had_turn {
            self.sockets.push_back(socket_index);
        }
        if lack == Lack::Blocks {
            self.for_blocks = self.sockets.len();
        }
        // Who has just looked in vain is back at once; nobody was there to see what came back meanwhile.
        if self.until.is_none() && now.since(self.share_looked_at) > self.share_retry {
            self.share_retry = MEMORY_RETRY;
        }
        self.until = Instant::earliest(self.until, Some(now + self.retry()));
    }

    /// After how long the first in turn looks again. A block that others give back, for who found none, is gone soon.
    fn retry(&self) -> Duration {
        match self.for_blocks {
            0 => self.share_retry.max(MEMORY_RETRY),
            _ => MEMORY_RETRY,
        }
    }

    /// Ends the turns of as many sockets as there is memory for, and of one where it has waited long. `wake` wakes the
    /// tasks of each, and says whether there were any left.
    ///
    /// What the pool sets aside is memory only for who found no block at all: whose share is used up would
    /// find nothing in it, and look for ever. Those look less and less often while nothing comes back; room in
    /// their own queues they are told of.
    pub(super) fn on_memory(
        &mut self,
        now: Instant,
        pool: &BlockPool,
        mut wake: impl FnMut(usize) -> bool,
    ) {
        let Some(due) = self.until else { return };
        let is_due = due <= now;
        self.on_share_left(now, is_due, pool.left_to_share_bytes());
        let turns = |left_bytes: usize| (left_bytes / MEMORY_EACH_BYTES).max(usize::from(is_due));
        let of_blocks = turns(pool.left_to_send_bytes());
        let of_shares = turns(pool.left_to_share_bytes());
        let mut taken = 0;
        while taken < if self.for_blocks > 0 { of_blocks } else { of_shares }
            && let Some(index) = self.sockets.pop_front()
        {
            self.for_blocks = self.for_blocks.saturating_sub(1);
            taken += usize::from(wake(index));
        }
        if self.sockets.is_empty() {
            self.until = None;
        } else if is_due {
            self.until = Some(now + self.retry());
        }
    }

    /// So much is left to share now.
    fn on_share_left(&mut self, now: Instant, is_due: bool, left_bytes: usize) {
        let was_left_bytes = core::mem::replace(&mut self.share_left_bytes, left_bytes);
        self.share_looked_at = now;
        if left_bytes > was_left_bytes {
            self.share_retry = MEMORY_RETRY;
            self.until = Instant::earliest(self.until, Some(now + MEMORY_RETRY));
        } else if is_due {
            self.share_retry = (self.share_retry.max(MEMORY_RETRY) * 2).min(SHARE_RETRY_MAX);
        }
    }

    /// Ends all turns.
    pub(super) fn clear(&mut self) {
        self.sockets.clear();
        (self.for_blocks, self.until) = (0, None);
    }
}
