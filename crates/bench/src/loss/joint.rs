//! What joins the sender's device to the receiver's: a thread for each direction that takes frames
//! from one queue, does to them what the path does, and gives them to the other.
//!
//! Faults are those of [`device::FaultQueue`] around either queue; rate, queue and delay are a
//! [`DelayLine`]. While frames are under way a direction looks at its device every `TICK` instead
//! of sleeping until the next frame, so that a frame does not cost a wake-up.

use super::delay_line::{DelayLine, DelayLineConfig};
use batch::{
    Attributes, BlockPool, Checksum, HeaderLayout, Limits, Multidata, PoolConfig, ReceiveBatch,
};
use device::{FaultConfig, FaultQueue, Queue, Waiter};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How exactly frames are timed.
const TICK: Duration = Duration::from_micros(100);

/// How long an idle direction sleeps before it looks whether it is to end.
const IDLE_WAIT: Duration = Duration::from_millis(20);

/// Frames per call.
const FRAMES_MAX: usize = 64;

/// The Ethernet header, which is the link header of a batch's packet.
const LINK_HEADER_LEN: usize = 14;

/// A slot holds the Ethernet header and nothing else; the rest of a frame is payload.
const LAYOUT: HeaderLayout =
    HeaderLayout { stride_bytes: 64, headroom_bytes: LINK_HEADER_LEN as u16 };

/// Two queues joined. Dropped, it ends.
pub struct Joint {
    stop: Arc<AtomicBool>,
    waiters: Vec<Arc<dyn Waiter>>,
    threads: Vec<JoinHandle<Carried>>,
}

/// What a direction did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Frames handed to the other device.
    pub frames: u64,
    /// Frames that found the path's queue full.
    pub overflowed: u64,
    /// Frames that the other device did not take.
    pub refused: u64,
}

type Shared = Arc<Mutex<Box<dyn Queue>>>;

struct Direction {
    from: Shared,
    to: Shared,
    waiter: Arc<dyn Waiter>,
    line: DelayLine,
    stop: Arc<AtomicBool>,
    pool: BlockPool,
    carried: Carried,
}

impl Joint {
    /// Joins `near` and `far`; each direction has the faults and the line given for it.
    #[must_use]
    pub fn start(
        near: impl Queue + 'static,
        far: impl Queue + 'static,
        faults: [FaultConfig; 2],
        lines: [DelayLineConfig; 2],
    ) -> Self {
        let shared = |queue: Box<dyn Queue>| Arc::new(Mutex::new(queue));
        let near = shared(Box::new(FaultQueue::new(near, faults[0])));
        let far = shared(Box::new(FaultQueue::new(far, faults[1])));
        let stop = Arc::new(AtomicBool::new(false));
        let direction = |from: &Shared, to: &Shared, config| Direction {
            from: from.clone(),
            to: to.clone(),
            waiter: lock(from).waiter(),
            line: DelayLine::new(config),
            stop: stop.clone(),
            pool: BlockPool::new(PoolConfig::default()),
            carried: Carried::default(),
        };
        let directions = [direction(&near, &far, lines[0]), direction(&far, &near, lines[1])];
        let waiters = directions.iter().map(|direction| direction.waiter.clone()).collect();
        let threads = directions.map(|direction| std::thread::spawn(move || direction.run()));
        Self { stop, waiters, threads: threads.into() }
    }

    /// Ends both directions and says what they carried: from near to far, and back.
    #[must_use]
    pub fn finish(mut self) -> [Carried; 2] {
        self.end();
        let mut carried = self.threads.drain(..).map(|thread| thread.join().unwrap_or_default());
        [carried.next().unwrap_or_default(), carried.next().unwrap_or_default()]
    }

    fn end(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.waiters.iter().for_each(|waiter| waiter.wake());
    }
}

impl Drop for Joint {
    fn drop(&mut self) {
        self.end();
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

fn lock(queue: &Shared) -> MutexGuard<'_, Box<dyn Queue>> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Direction {
    fn run(mut self) -> Carried {
        let mut received = ReceiveBatch::new();
        let limits = Limits { packets: FRAMES_MAX, ..Limits::default() };
        let mut batch = Multidata::new(LAYOUT, limits);
        while !self.stop.load(Ordering::SeqCst) {
            let more = self.take(&mut received);
            self.give(&mut batch);
            if more {
                continue;
            }
            match self.line.next_due() {
                Some(due) => {
                    let wait = due.saturating_duration_since(Instant::now()).min(TICK);
                    if !wait.is_zero() {
                        std::thread::sleep(wait);
                    }
                }
                None => self.waiter.wait(Some(IDLE_WAIT)),
            }
        }
        Carried { overflowed: self.line.overflowed(), ..self.carried }
    }

    /// Takes what the device has; says whether it may have more.
    fn take(&mut self, received: &mut ReceiveBatch) -> bool {
        received.clear();
        let outcome = lock(&self.from).receive(&self.pool, received, FRAMES_MAX);
        let now = Instant::now();
        for index in 0..received.len() {
            self.line.push(now, received.bytes(index));
        }
        received.clear();
        outcome.more
    }

    /// Gives the other device what has arrived.
    fn give(&mut self, batch: &mut Multidata) {
        let now = Instant::now();
        while self.line.next_due().is_some_and(|due| due <= now) {
            batch.clear();
            while batch.room_packets() > 0 {
                let Some(frame) = self.line.pop(now) else { break };
                if push_frame(batch, &self.pool, &frame).is_none() {
                    self.carried.refused += 1;
                    batch.truncate(batch.len().saturating_sub(1));
                }
            }
            let taken = lock(&self.to).transmit(batch).taken;
            self.carried.frames += taken as u64;
            self.carried.refused += (batch.len() - taken) as u64;
        }
        batch.clear();
    }
}

/// Appends a frame as it is: the link header in the slot, the rest as payload.
fn push_frame(batch: &mut Multidata, pool: &BlockPool, frame: &[u8]) -> Option<()> {
    let (link, packet) = frame.split_at_checked(LINK_HEADER_LEN)?;
    let mut block = pool.allocate(packet.len()).ok()?;
    block.bytes_mut().get_mut(..packet.len())?.copy_from_slice(packet);
    let block = block.freeze();
    let index = batch.len();
    let attributes =
        Attributes { run: index as u32, checksum: Checksum::Complete, ..Attributes::default() };
    batch.push_packet(0, attributes)?;
    batch.append_span(&block, 0, packet.len()).then_some(())?;
    batch.prepend(index, link.len())?.copy_from_slice(link);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use device::{HardwareAddress, Medium, WireConfig, WireEnd, WireQueue, wire};

    fn pair() -> (WireQueue, WireQueue) {
        let end = |last| WireEnd::plain(Medium::Ethernet(HardwareAddress([2, 0, 0, 0, 0, last])));
        wire(WireConfig::new(end(1), end(2)))
    }

    fn line(delay: Duration) -> DelayLineConfig {
        DelayLineConfig { rate_bits_per_s: 1_000_000_000, delay, queue_bytes_max: 1 << 20 }
    }

    fn send(queue: &mut impl Queue, frame: &[u8]) {
        let pool = BlockPool::new(PoolConfig::default());
        let mut batch = Multidata::new(LAYOUT, Limits::default());
        push_frame(&mut batch, &pool, frame).expect("a frame with a link header");
        assert_eq!(queue.transmit(&batch).taken, 1);
    }

    fn receive(queue: &mut impl Queue) -> Option<Vec<u8>> {
        let pool = BlockPool::new(PoolConfig::default());
        let mut batch = ReceiveBatch::new();
        let deadline = Instant::now() + Duration::from_secs(2);
        while Instant::now() < deadline {
            if queue.receive(&pool, &mut batch, 1).frames == 1 {
                return Some(batch.bytes(0).to_vec());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        None
    }

    #[test]
    fn frames_cross_unchanged_both_ways_and_not_before_their_time() {
        let ((mut sender, near), (far, mut receiver)) = (pair(), pair());
        let delay = Duration::from_millis(10);
        let joint =
            Joint::start(near, far, [FaultConfig::default(); 2], [line(delay), line(delay)]);
        let frame: Vec<u8> = (0..200).collect();
        let started = Instant::now();
        send(&mut sender, &frame);
        assert_eq!(receive(&mut receiver).as_deref(), Some(&frame[..]));
        assert!(started.elapsed() >= delay);
        send(&mut receiver, &frame);
        assert_eq!(receive(&mut sender).as_deref(), Some(&frame[..]));
        let [there, back] = joint.finish();
        assert_eq!((there.frames, back.frames, there.refused), (1, 1, 0));
    }

    #[test]
    fn faults_are_done_to_the_direction_they_were_given_for() {
        let ((mut sender, near), (far, mut receiver)) = (pair(), pair());
        let lossy = FaultConfig { loss: 1.0, ..FaultConfig::default() };
        let lines = [line(Duration::ZERO); 2];
        let joint = Joint::start(near, far, [lossy, FaultConfig::default()], lines);
        send(&mut sender, &[7; 60]);
        send(&mut receiver, &[9; 60]);
        assert_eq!(receive(&mut sender).as_deref(), Some(&[9; 60][..]));
        let [there, _] = joint.finish();
        assert_eq!(there.frames, 0);
    }
}
