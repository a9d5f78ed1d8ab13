//! Faults on purpose: a queue around another queue.
//!
//! On the way in it loses, duplicates, reorders and corrupts frames, each with a probability, out
//! of a seeded generator, so that a run is replayed by its seed. On the way out it stops where a
//! test says: after so many packets full, refused, revoked or failed. Batches stay batches: frames
//! that came in one block stay in it, and without faults nothing is touched.
//!
//! What always holds:
//! * every frame draws the same number of random words, so switching one fault on or off does not
//!   move the others;
//! * of what the inner queue hands up, everything comes out exactly once but for the frames counted
//!   in [`FaultCounters`];
//! * a frame held back is overtaken by at most [`FaultConfig::reorder_distance_max`] others, and
//!   comes out after [`FaultConfig::hold_receives_max`] receive calls that brought nothing: held
//!   back is not lost;
//! * corruption hits IP packets only, behind the link header. ARP has no checksum, so a corrupted
//!   message would be believed: that is a test of ARP, not of the stack. A frame whose checksum was
//!   left to hardware is completed first, as the hardware would have done on a wire that corrupts.

mod random;
#[cfg(test)]
mod tests;

use crate::{
    Capabilities, DeviceCounters, DeviceError, Medium, Queue, Received, Stop, TransmitMode,
    Transmitted, Waiter, lowering,
};
use batch::{
    Block, BlockPool, Checksum, Chunk, Frame, Multidata, PacketView, ReceiveBatch,
    ReceivedChecksum, Segmented,
};
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use random::SplitMix64;
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::sync::Arc;
use wire::{EthernetRepr, EthernetView, ether_type, protocol};
#[cfg(unix)]
use {
    crate::{EventSource, MakeSource},
    std::{fmt, os::fd::BorrowedFd, sync::OnceLock},
};

/// How long a waiter sleeps at most while frames are held back.
const HOLDING_WAIT: Duration = Duration::from_millis(1);

/// What to do to received frames. Probabilities are per frame, from 0 (never) to 1 (always).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FaultConfig {
    /// Where the random numbers begin.
    pub seed: u64,
    /// The frame does not arrive.
    pub loss: f64,
    /// The frame arrives twice, one behind the other.
    pub duplicate: f64,
    /// The frame is held back while others pass it.
    pub reorder: f64,
    /// By how many frames it is overtaken: from 1 to this number.
    pub reorder_distance_max: u32,
    /// After how many receive calls in a row that bring nothing held frames come out.
    pub hold_receives_max: u32,
    /// One bit of the frame arrives flipped.
    pub corrupt: f64,
}

impl Default for FaultConfig {
    /// No faults.
    fn default() -> Self {
        Self {
            seed: 0,
            loss: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            reorder_distance_max: 3,
            hold_receives_max: 2,
            corrupt: 0.0,
        }
    }
}

impl FaultConfig {
    fn has_faults(&self) -> bool {
        [self.loss, self.duplicate, self.reorder, self.corrupt].iter().any(|chance| *chance > 0.0)
    }
}

/// A stop on the way out: the packet behind the next `after_packets` is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Injection {
    /// Packets that are still taken, over any number of calls.
    pub after_packets: usize,
    /// Why the next one is not. `Full` and `Refused` pass; `Revoked` takes checksum and
    /// segmentation away for good; `Failed` ends the queue.
    pub stop: Stop,
}

counters::counters! {
    /// What a [`FaultQueue`] did to its traffic.
    pub struct FaultCounters {
        /// Frames that did not arrive.
        fault_lost,
        /// Frames that arrived twice.
        fault_duplicated,
        /// Frames that were held back.
        fault_reordered,
        /// Frames that arrived with a flipped bit.
        fault_corrupted,
        /// Injected stops that were reached.
        fault_stops,
    }
}

/// A frame between the inner queue and the caller.
#[derive(Clone, Debug)]
struct Delivery {
    chunk: Chunk,
    /// Bytes of frames in its block.
    filled_bytes: usize,
    checksum: ReceivedChecksum,
    segmented: Option<Segmented>,
}

/// A queue with faults. See the module documentation.
#[derive(Debug)]
pub struct FaultQueue<Q> {
    inner: Q,
    config: FaultConfig,
    random: SplitMix64,
    /// What the inner queue handed up, while faults are done to it.
    scratch: ReceiveBatch,
    /// In the order in which they come out.
    ready: VecDeque<Delivery>,
    /// Held back, with the number of frames that are still to pass each.
    held: VecDeque<(Delivery, u32)>,
    idle_receives: u32,
    /// Blocks that the caller's batch already has in this call, by index.
    added: Vec<(Block, u32)>,
    holding: Arc<AtomicBool>,
    #[cfg(unix)]
    source: Arc<OnceLock<Arc<FaultSource>>>,
    injections: VecDeque<Injection>,
    revoked: bool,
    failed: Option<DeviceError>,
    /// What the inner queue failed of when it was to receive, which it may say once; said when everything came out.
    ended: Option<DeviceError>,
    /// The front of a batch that is stopped in the middle.
    front: Multidata,
    counters: FaultCounters,
}

impl<Q: Queue> FaultQueue<Q> {
    /// Wraps `inner`.
    #[must_use]
    pub fn new(inner: Q, config: FaultConfig) -> Self {
        Self {
            inner,
            config,
            random: SplitMix64::new(config.seed),
            scratch: ReceiveBatch::new(),
            ready: VecDeque::new(),
            held: VecDeque::new(),
            idle_receives: 0,
            added: Vec::new(),
            holding: Arc::new(AtomicBool::new(false)),
            #[cfg(unix)]
            source: Arc::default(),
            injections: VecDeque::new(),
            revoked: false,
            failed: None,
            ended: None,
            front: Multidata::default(),
            counters: FaultCounters::default(),
        }
    }

    /// The queue inside.
    pub fn inner(&self) -> &Q {
        &self.inner
    }

    /// Adds a stop on the way out, behind those that are still to come.
    pub fn inject(&mut self, injection: Injection) {
        self.injections.push_back(injection);
    }

    /// What was done to the traffic so far.
    #[must_use]
    pub fn fault_counters(&self) -> FaultCounters {
        self.counters
    }

    /// Does to a frame of the scratch batch what chance wants.
    fn pass(&mut self, pool: &BlockPool, index: usize) {
        let config = self.config;
        let lost = self.random.chance(config.loss);
        let corrupted = self.random.chance(config.corrupt);
        let duplicated = self.random.chance(config.duplicate);
        let reordered = self.random.chance(config.reorder);
        let (bit, distance) = (self.random.next(), self.random.next());
        let Some(mut delivery) = self.delivery(index) else { return };
        if lost {
            self.counters.fault_lost += 1;
            return;
        }
        if corrupted && let Some(broken) = corrupt(&delivery, self.network_offset(), pool, bit) {
            self.counters.fault_corrupted += 1;
            delivery = broken;
        }
        if duplicated {
            self.counters.fault_duplicated += 1;
            self.deliver(delivery.clone());
        }
        if reordered {
            self.counters.fault_reordered += 1;
            let distance = distance % u64::from(config.reorder_distance_max.max(1)) + 1;
            self.held.push_back((delivery, distance as u32));
        } else {
            self.deliver(delivery);
        }
    }

    fn delivery(&self, index: usize) -> Option<Delivery> {
        let frame = self.scratch.frame(index)?;
        let chunk = self.scratch.chunk(index, 0..frame.len as usize)?;
        let filled_bytes = self.scratch.filled_bytes(index);
        let (checksum, segmented) = (frame.checksum, frame.segmented);
        Some(Delivery { chunk, filled_bytes, checksum, segmented })
    }

    fn network_offset(&self) -> usize {
        match self.inner.capabilities().medium {
            Medium::Ethernet(_) => EthernetRepr::LEN,
            Medium::Ip => 0,
        }
    }

    /// Lets a frame out, and behind it those that it was the last to pass.
    fn deliver(&mut self, delivery: Delivery) {
        self.ready.push_back(delivery);
        for (_, passes) in &mut self.held {
            *passes = passes.saturating_sub(1);
        }
        while let Some(at) = self.held.iter().position(|(_, passes)| *passes == 0) {
            self.ready.extend(self.held.remove(at).map(|(delivery, _)| delivery));
        }
    }

    fn release_held(&mut self) {
        self.ready.extend(self.held.drain(..).map(|(delivery, _)| delivery));
    }

    /// Moves ready frames to the caller's batch, at most `frames_max`, and says how many.
    fn hand_up(&mut self, batch: &mut ReceiveBatch, frames_max: usize) -> usize {
        let count = self.ready.len().min(frames_max);
        for delivery in self.ready.drain(..count) {
            let block = delivery.chunk.block();
            let known = self.added.iter().rev().find(|(added, _)| added.is_same(block));
            let index = match known {
                Some((_, index)) => *index,
                None => {
                    let index = batch.add_part(block.clone(), delivery.filled_bytes);
                    self.added.push((block.clone(), index));
                    index
                }
            };
            let fits = batch.push_frame(Frame {
                block: index,
                offset: delivery.chunk.offset() as u32,
                len: delivery.chunk.len() as u32,
                checksum: delivery.checksum,
                segmented: delivery.segmented,
            });
            debug_assert!(fits, "a chunk lies in its block");
        }
        self.added.clear();
        count
    }

    /// Offers the first `count` packets of `batch` and nothing behind them. The inner queue takes
    /// whole batches, so the front is a batch of its own.
    fn transmit_front(&mut self, batch: &Multidata, count: usize) -> Transmitted {
        if count >= batch.len() {
            return self.inner.transmit(batch);
        }
        self.front.set_front(batch, count);
        let result = self.inner.transmit(&self.front);
        self.front.clear();
        result
    }

    /// An injected stop was reached.
    fn stop(&mut self, stop: &Stop) {
        self.counters.fault_stops += 1;
        match stop {
            // There was room all the time, so nobody else will wake the sender.
            Stop::Full => self.inner.waiter().wake(),
            Stop::Refused => {}
            Stop::Revoked => {
                self.revoked = true;
                // Cannot fail: every device can do this.
                let _ = self.inner.set_mode(TransmitMode::Multidata);
            }
            Stop::Failed(error) => self.failed = Some(error.clone()),
        }
    }

    /// How many packets may go before the first that needs what was revoked.
    fn allowed(&self, batch: &Multidata) -> usize {
        let needs = |packet: PacketView<'_>| {
            matches!(packet.attributes().checksum, Checksum::Partial { .. })
        };
        let first = if self.revoked { batch.packets().position(needs) } else { None };
        first.unwrap_or(batch.len())
    }
}

/// A copy of the frame with one bit flipped; `None` where that is not for this frame, or there is
/// no memory for it.
fn corrupt(
    delivery: &Delivery,
    network_offset: usize,
    pool: &BlockPool,
    bit: u64,
) -> Option<Delivery> {
    let bytes = delivery.chunk.bytes();
    if network_offset > 0 {
        let ether_type = EthernetView::parse(bytes).ok()?.ether_type();
        if !matches!(ether_type, ether_type::IPV4 | ether_type::IPV6) {
            return None;
        }
    }
    let mut block = pool.allocate_receive(bytes.len()).ok()?;
    let copy = block.bytes_mut().get_mut(..bytes.len())?;
    copy.copy_from_slice(bytes);
    if delivery.checksum == ReceivedChecksum::Partial {
        let (transport, field) = checksum_field(copy.get(network_offset..)?)?;
        lowering::complete_checksum(copy, network_offset + transport, field)?;
    }
    let network = copy.get_mut(network_offset..).filter(|network| !network.is_empty())?;
    let bit = bit % (network.len() as u64 * 8);
    network[(bit / 8) as usize] ^= 1 << (bit % 8);
    let chunk = Chunk::new(block.freeze(), 0..bytes.len());
    let (filled_bytes, checksum) = (bytes.len(), ReceivedChecksum::Unverified);
    Some(Delivery { chunk, filled_bytes, checksum, segmented: delivery.segmented })
}

/// Where the transport header begins in an IP packet and where its checksum is in it.
fn checksum_field(packet: &[u8]) -> Option<(usize, u8)> {
    let (transport, number) = match packet.first()? >> 4 {
        4 => (usize::from(packet.first()? & 0xf) * 4, *packet.get(9)?),
        6 => (40, *packet.get(6)?),
        _ => return None,
    };
    let field = match number {
        protocol::TCP => 16,
        protocol::UDP => 6,
        protocol::ICMPV6 => 2,
        _ => return None,
    };
    Some((transport, field))
}

impl<Q: Queue> Queue for FaultQueue<Q> {
    crate::forward_queue!(
        |self| self.inner,
        but capabilities, set_mode, transmit, receive, waiter, counters
    );

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = self.inner.capabilities();
        if self.revoked {
            capabilities.checksum_transmit = false;
            capabilities.segmentation = None;
        }
        capabilities
    }

    fn set_mode(&mut self, mode: TransmitMode) -> Result<(), DeviceError> {
        if !self.capabilities().supports(mode) {
            let message = format!("the device does not support {mode}");
            return Err(DeviceError::new(ErrorKind::Unsupported, message));
        }
        self.inner.set_mode(mode)
    }

    fn transmit(&mut self, batch: &Multidata) -> Transmitted {
        if let Some(error) = &self.failed {
            return Transmitted { taken: 0, stopped: Some(Stop::Failed(error.clone())) };
        }
        let allowed = self.allowed(batch);
        let until_stop = self.injections.front().map_or(usize::MAX, |next| next.after_packets);
        let count = allowed.min(until_stop);
        let mut result = match count {
            0 => Transmitted { taken: 0, stopped: None },
            count => self.transmit_front(batch, count),
        };
        if let Some(next) = self.injections.front_mut() {
            next.after_packets -= result.taken.min(next.after_packets);
        }
        // The inner queue stopped first, or took everything there is.
        if result.taken < count || result.taken == batch.len() {
            return result;
        }
        result.stopped = Some(Stop::Refused);
        if until_stop == count
            && let Some(reached) = self.injections.pop_front()
        {
            self.stop(&reached.stop);
            result.stopped = Some(reached.stop);
        }
        result
    }

    fn receive(
        &mut self,
        pool: &BlockPool,
        batch: &mut ReceiveBatch,
        frames_max: usize,
    ) -> Received {
        if !self.config.has_faults() && self.ready.is_empty() && self.held.is_empty() {
            let mut received = self.inner.receive(pool, batch, frames_max);
            if !received.more && received.failed.is_none() {
                received.failed.clone_from(&self.failed);
            }
            return received;
        }
        let wanted = frames_max.saturating_sub(self.ready.len());
        let mut received = Received { more: self.ended.is_none(), ..Received::default() };
        if wanted > 0 && self.ended.is_none() {
            self.scratch.clear();
            let mut scratch = core::mem::take(&mut self.scratch);
            received = self.inner.receive(pool, &mut scratch, wanted);
            self.scratch = scratch;
            for index in 0..self.scratch.len() {
                self.pass(pool, index);
            }
            self.scratch.clear();
            self.idle_receives = if received.frames == 0 { self.idle_receives + 1 } else { 0 };
            self.ended = received.failed.take();
            if self.idle_receives >= self.config.hold_receives_max || self.ended.is_some() {
                self.idle_receives = 0;
                self.release_held();
            }
        }
        received.frames = self.hand_up(batch, frames_max);
        received.more |= !self.ready.is_empty();
        let drained = !received.more && self.held.is_empty();
        received.failed = self.ended.clone().or_else(|| self.failed.clone()).filter(|_| drained);
        self.holding.store(!self.held.is_empty() || !self.ready.is_empty(), Ordering::SeqCst);
        received
    }

    fn waiter(&self) -> Arc<dyn Waiter> {
        Arc::new(FaultWaiter {
            inner: self.inner.waiter(),
            holding: Arc::clone(&self.holding),
            #[cfg(unix)]
            source: Arc::clone(&self.source),
        })
    }

    fn counters(&self) -> DeviceCounters {
        let mut counters = self.inner.counters();
        counters.capabilities_revoked += u64::from(self.revoked);
        counters
    }
}

/// Waits for the inner queue, and not for long while frames are held back.
struct FaultWaiter {
    inner: Arc<dyn Waiter>,
    holding: Arc<AtomicBool>,
    #[cfg(unix)]
    source: Arc<OnceLock<Arc<FaultSource>>>,
}

impl Waiter for FaultWaiter {
    fn wait(&self, timeout: Option<Duration>) {
        self.inner.wait(patience(&self.holding, timeout));
    }

    fn wake(&self) {
        self.inner.wake();
    }

    fn is_ready(&self) -> Option<bool> {
        // What is held comes when its time has come, which the inner one does not know.
        if self.holding.load(Ordering::SeqCst) { None } else { self.inner.is_ready() }
    }

    #[cfg(unix)]
    fn event_source(&self, make: MakeSource<'_>) -> Option<Arc<dyn EventSource>> {
        if self.source.get().is_none() {
            let (inner, holding) = (self.inner.event_source(make)?, Arc::clone(&self.holding));
            // Of two who make one, the first one's is kept.
            let _ = self.source.set(Arc::new(FaultSource { inner, holding }));
        }
        self.source.get().cloned().map(|source| source as _)
    }
}

/// The same for an event loop.
#[cfg(unix)]
struct FaultSource {
    inner: Arc<dyn EventSource>,
    holding: Arc<AtomicBool>,
}

#[cfg(unix)]
impl fmt::Debug for FaultSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("FaultSource")
            .field("holding", &self.holding)
            .finish_non_exhaustive()
    }
}

#[cfg(unix)]
impl EventSource for FaultSource {
    fn file(&self) -> BorrowedFd<'_> {
        self.inner.file()
    }

    fn begin(&self, timeout: Option<Duration>) -> bool {
        self.inner.begin(patience(&self.holding, timeout))
    }

    fn end(&self) {
        self.inner.end();
    }
}

/// How long to wait where `timeout` is asked for.
fn patience(holding: &AtomicBool, timeout: Option<Duration>) -> Option<Duration> {
    let look = holding.load(Ordering::SeqCst).then_some(HOLDING_WAIT);
    look.into_iter().chain(timeout).min()
}
