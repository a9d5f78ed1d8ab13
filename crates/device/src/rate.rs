//! A rate limit: a queue around another queue that takes so many bytes a second and no more.
//!
//! ```text
//!              tokens: `bits_per_second`, at most `burst_bytes` of them
//!                 |
//!   batch --> [ bucket ] --> front of the batch, whole packets --> inner queue
//!                 '--> Stop::Full for the rest, and after what time to come again
//! ```
//!
//! It is back-pressure, not policing: what there are no tokens for is not taken
//! ([`Stop::Full`]), so nothing is dropped, copied or reordered, and whoever sends keeps it where it
//! can still be built otherwise. Of a batch the packets are taken that there are tokens for; what
//! counts is the length of the frame, link header included, and only what the inner queue takes.
//! Frames that come in pass as they are.
//!
//! What always holds: in any time `t` the bytes taken are at most `rate * t + burst`. The burst is
//! never less than the longest frame, which could else never be sent.
//!
//! After tokens have run out the queue stays full until there are some for a batch: as many as come
//! in a millisecond, or half a burst where that is less, or one frame where that is more. Else every
//! frame that comes in, and with it a turn of the stack, would take the one packet that there are
//! tokens for by then, and batches would be gone. [`Queue::retry_after`] says when that is, so
//! nobody needs to ask in between.
//!
//! The queues of one device share one [`RateLimit`], where it is the device's rate that is limited.

use crate::{Capabilities, DeviceCounters, Medium, Queue, Room, Stop, Transmitted};
use batch::Multidata;
use core::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use time::{Duration, Instant};
use wire::EthernetRepr;

/// Tokens that come in this time are a batch.
const BATCH_TIME: Duration = Duration::from_millis(1);

/// What a byte costs in tokens, one of which comes in a nanosecond at one bit a second.
const TOKENS_PER_BYTE: u128 = 8 * 1_000_000_000;

/// Says what time it is.
pub type Clock = Box<dyn Fn() -> Instant + Send>;

/// How much may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateConfig {
    /// Bits of frames a second, link headers included; at least one.
    pub bits_per_second: u64,
    /// Bytes that may pass at once after a time without traffic.
    pub burst_bytes: usize,
}

impl RateConfig {
    /// So many bits a second, with what comes in 10 ms as burst, but 64 KiB at least: whoever comes up
    /// to half of that late has lost nothing.
    #[must_use]
    pub fn new(bits_per_second: u64) -> Self {
        let burst_bytes = usize::try_from(bits_per_second / 800).unwrap_or(usize::MAX);
        Self { bits_per_second, burst_bytes: burst_bytes.max(64 << 10) }
    }
}

/// A token bucket, for one queue or for several together.
#[derive(Clone)]
pub struct RateLimit {
    shared: Arc<Mutex<Bucket>>,
}

impl fmt::Debug for RateLimit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("RateLimit").field("config", &self.lock().config).finish()
    }
}

impl RateLimit {
    /// A full bucket. `clock` is asked a few times for each batch.
    #[must_use]
    pub fn new(config: RateConfig, clock: Clock) -> Self {
        let config = RateConfig { bits_per_second: config.bits_per_second.max(1), ..config };
        let filled = clock();
        let tokens = config.burst_bytes as u128 * TOKENS_PER_BYTE;
        Self { shared: Arc::new(Mutex::new(Bucket { config, clock, filled, tokens })) }
    }

    /// A thread that panicked while it held the lock left a sound bucket behind.
    fn lock(&self) -> MutexGuard<'_, Bucket> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Bucket {
    config: RateConfig,
    clock: Clock,
    /// When tokens came last.
    filled: Instant,
    tokens: u128,
}

impl Bucket {
    fn capacity(&self) -> u128 {
        self.config.burst_bytes as u128 * TOKENS_PER_BYTE
    }

    /// Lets tokens in that have come since, and says for how many bytes there are some.
    fn fill(&mut self) -> usize {
        let now = (self.clock)();
        let come = now.since(self.filled).as_nanos() * u128::from(self.config.bits_per_second);
        self.tokens = self.capacity().min(self.tokens + come);
        self.filled = self.filled.max(now);
        (self.tokens / TOKENS_PER_BYTE) as usize
    }

    /// Makes room for a frame of this length, which may be longer than any before.
    fn hold_at_least(&mut self, len_bytes: usize) {
        self.config.burst_bytes = self.config.burst_bytes.max(len_bytes);
    }

    fn take(&mut self, bytes: usize) {
        self.tokens = self.tokens.saturating_sub(bytes as u128 * TOKENS_PER_BYTE);
    }

    fn give_back(&mut self, bytes: usize) {
        self.tokens = self.capacity().min(self.tokens + bytes as u128 * TOKENS_PER_BYTE);
    }

    /// For how many bytes there are to be tokens before a packet of `len_bytes` is taken that there
    /// were none for.
    fn batch_bytes(&self, len_bytes: usize) -> usize {
        let come = BATCH_TIME.as_nanos() * u128::from(self.config.bits_per_second);
        let come = usize::try_from(come / TOKENS_PER_BYTE).unwrap_or(usize::MAX);
        come.min(self.config.burst_bytes / 2).max(len_bytes)
    }

    /// After what time there are tokens for so many bytes; nothing where that is now.
    fn wait(&mut self, bytes: usize) -> Duration {
        self.fill();
        let missing = (bytes as u128 * TOKENS_PER_BYTE).saturating_sub(self.tokens);
        let ns = missing.div_ceil(u128::from(self.config.bits_per_second));
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }
}

counters::counters! {
    /// What a [`RateQueue`] did.
    pub struct RateCounters {
        /// Transmit calls of which all or a part was not taken for want of tokens.
        rate_full,
        /// Batches of which a part was taken.
        rate_parts,
    }
}

/// A queue whose way out has a rate. See the module documentation.
#[derive(Debug)]
pub struct RateQueue<Q> {
    inner: Q,
    limit: RateLimit,
    /// Tokens had run out: for how many bytes there must be some before anything is taken.
    awaited_bytes: Option<usize>,
    /// The front of a batch that is taken in part.
    front: Multidata,
    counters: RateCounters,
}

impl<Q: Queue> RateQueue<Q> {
    /// Wraps `inner`.
    #[must_use]
    pub fn new(inner: Q, limit: RateLimit) -> Self {
        limit.lock().hold_at_least(frame_len_max(&inner.capabilities()));
        let (front, counters) = (Multidata::default(), RateCounters::default());
        Self { inner, limit, awaited_bytes: None, front, counters }
    }

    /// The queue inside.
    pub fn inner(&self) -> &Q {
        &self.inner
    }

    /// What the limit did so far.
    #[must_use]
    pub fn rate_counters(&self) -> RateCounters {
        self.counters
    }

    /// Takes tokens for as many packets from the front as there are some for; says how many packets
    /// and bytes that is.
    fn admit(&mut self, batch: &Multidata) -> (usize, usize) {
        let mut bucket = self.limit.lock();
        let there = bucket.fill();
        if self.awaited_bytes.is_some_and(|awaited| there < awaited) {
            return (0, 0);
        }
        self.awaited_bytes = None;
        let (mut count, mut bytes) = (0, 0);
        for len in batch.packets().map(|packet| packet.len()) {
            if bytes + len > there {
                bucket.hold_at_least(len);
                self.awaited_bytes = Some(bucket.batch_bytes(len));
                break;
            }
            (count, bytes) = (count + 1, bytes + len);
        }
        bucket.take(bytes);
        (count, bytes)
    }
}

/// The longest frame of a device, link header included.
fn frame_len_max(capabilities: &Capabilities) -> usize {
    let link_header_len = match capabilities.medium {
        Medium::Ethernet(_) => EthernetRepr::LEN,
        Medium::Ip => 0,
    };
    capabilities.mtu_bytes.saturating_add(link_header_len)
}

impl<Q: Queue> Queue for RateQueue<Q> {
    crate::forward_queue!(|self| self.inner, but room, transmit, retry_after, counters);

    fn room(&self) -> Room {
        let bytes = self.limit.lock().fill();
        let bytes = if self.awaited_bytes.is_some_and(|it| bytes < it) { 0 } else { bytes };
        let inner = self.inner.room();
        // Frames that may all be of full length; who has shorter ones asks again.
        let packets = bytes / frame_len_max(&self.inner.capabilities()).max(1);
        Room { packets: inner.packets.min(packets), bytes: inner.bytes.min(bytes) }
    }

    fn transmit(&mut self, batch: &Multidata) -> Transmitted {
        if batch.is_empty() {
            return self.inner.transmit(batch);
        }
        let (count, bytes) = self.admit(batch);
        let mut transmitted = match count {
            0 => Transmitted { taken: 0, stopped: None },
            _ if count == batch.len() => self.inner.transmit(batch),
            _ => {
                self.counters.rate_parts += 1;
                self.front.set_front(batch, count);
                let transmitted = self.inner.transmit(&self.front);
                self.front.clear();
                transmitted
            }
        };
        if transmitted.taken < count {
            let taken = batch.packets().take(transmitted.taken).map(|packet| packet.len());
            let taken_bytes: usize = taken.sum();
            self.limit.lock().give_back(bytes - taken_bytes);
        }
        if transmitted.stopped.is_some() {
            // It was not for want of tokens.
            self.awaited_bytes = None;
        } else if count < batch.len() {
            self.counters.rate_full += 1;
            transmitted.stopped = Some(Stop::Full);
        }
        transmitted
    }

    fn retry_after(&self) -> Option<Duration> {
        match self.awaited_bytes {
            Some(bytes) => Some(self.limit.lock().wait(bytes)),
            None => self.inner.retry_after(),
        }
    }

    fn counters(&self) -> DeviceCounters {
        let mut counters = self.inner.counters();
        counters.transmit_full += self.counters.rate_full;
        counters
    }
}

#[cfg(test)]
mod tests;
