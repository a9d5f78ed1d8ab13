//! Where the time of those who send goes: into the device, into copying in, into the rest, or by waiting.
//!
//! ```text
//!   a sender's thread   |copy|..|transmit|.|receive|....|copy|...  waits  ...|transmit|..
//!                        a sample of these, by the thread's own CPU clock
//! ```
//!
//! A queue around the device's own ([`TimedQueue`]) sees its calls, an observer ([`CopyTimes`]) the copies of
//! writes. Reading a thread's CPU clock is a system call, so it is read around one call in sixteen, which one
//! is left to chance, and what that took counts for sixteen; of copies one in four. Chance, because calls
//! alternate: every other receive call finds nothing. Unlike a wall clock this one stands still while others
//! have the CPU, and the parts are parts of what the thread took in all. What a thread takes is its own; what
//! the stack's worker does meanwhile is nobody's here.

use crate::results::{Results, Run};
use crate::statistics::ratio;
use batch::{BlockPool, Multidata, ReceiveBatch};
use core::cell::Cell;
use core::time::Duration;
use device::{Queue, Received, Transmitted};
use linux::cpu::thread_time;
use multidata::CopyObserver;
use serde::{Deserialize, Serialize};
use std::sync::OnceLock;

/// One call of a device in so many is measured.
const CALLS_PER_SAMPLE: u64 = 16;

/// One copy in so many is measured: they are fewer, and longer.
const COPIES_PER_SAMPLE: u64 = 4;

/// Counters of a run: what those who send took together, in nanoseconds; the longest time that one of them
/// was sending, by the clock on the wall.
pub(crate) const SENDER_ELAPSED_NS: &str = "sender_elapsed_ns";
const TRANSMIT_NS: &str = "sender_device_transmit_ns";
const RECEIVE_NS: &str = "sender_device_receive_ns";
const COPY_NS: &str = "sender_copy_in_ns";

/// CPU time of a thread by what it was taken for, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// Inside the device's transmit calls, the kernel's work there included.
    pub transmit_ns: u64,
    /// Inside its receive calls.
    pub receive_ns: u64,
    /// By copying writes in.
    pub copy_ns: u64,
}

thread_local! {
    static TAKEN: Cell<Taken> = const { Cell::new(Taken { transmit_ns: 0, receive_ns: 0, copy_ns: 0 }) };
    static RANDOM: Cell<u64> = const { Cell::new(0x9e37_79b9_7f4a_7c15) };
    /// When a copy that is measured began.
    static COPY_BEGAN: Cell<Option<Duration>> = const { Cell::new(None) };
}

impl Taken {
    /// What was found of the calling thread so far.
    #[must_use]
    pub fn of_this_thread() -> Self {
        TAKEN.get()
    }

    /// What was taken since `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            transmit_ns: self.transmit_ns.saturating_sub(before.transmit_ns),
            receive_ns: self.receive_ns.saturating_sub(before.receive_ns),
            copy_ns: self.copy_ns.saturating_sub(before.copy_ns),
        }
    }

    /// What two threads took.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            transmit_ns: self.transmit_ns + other.transmit_ns,
            receive_ns: self.receive_ns + other.receive_ns,
            copy_ns: self.copy_ns + other.copy_ns,
        }
    }

    /// Enters it among a run's counters.
    pub(crate) fn count(self, counters: &mut crate::measure::Counters) {
        let Self { transmit_ns, receive_ns, copy_ns } = self;
        for (name, ns) in [(TRANSMIT_NS, transmit_ns), (RECEIVE_NS, receive_ns), (COPY_NS, copy_ns)]
        {
            counters.insert(name.to_owned(), ns);
        }
    }
}

/// Whether chance has this one measured.
fn is_sample(one_in: u64) -> bool {
    // Marsaglia's xorshift, 64 bits.
    let mut word = RANDOM.get();
    word ^= word << 13;
    word ^= word >> 7;
    word ^= word << 17;
    RANDOM.set(word);
    (word >> 32).is_multiple_of(one_in)
}

/// What a sample that began then counts for.
fn sampled_ns(began: Duration, one_in: u64) -> u64 {
    let took = thread_time().saturating_sub(began);
    let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
    took_ns.saturating_sub(clock_ns()).saturating_mul(one_in)
}

/// What the clock shows for nothing.
fn clock_ns() -> u64 {
    static CLOCK_NS: OnceLock<u64> = OnceLock::new();
    *CLOCK_NS.get_or_init(|| {
        let nothing = || {
            let began = thread_time();
            thread_time().saturating_sub(began).as_nanos()
        };
        let least = (0..100).map(|_| nothing()).min().unwrap_or(0);
        u64::try_from(least).unwrap_or(0)
    })
}

/// Does a call of the device and enters what it took, if it is a sample.
fn timed<T>(enter: fn(&mut Taken, u64), call: impl FnOnce() -> T) -> T {
    if !is_sample(CALLS_PER_SAMPLE) {
        return call();
    }
    let began = thread_time();
    let outcome = call();
    let ns = sampled_ns(began, CALLS_PER_SAMPLE);
    let mut taken = TAKEN.get();
    enter(&mut taken, ns);
    TAKEN.set(taken);
    outcome
}

/// A queue whose calls are measured. It changes nothing of what passes.
pub struct TimedQueue<Q> {
    inner: Q,
}

impl<Q: Queue> TimedQueue<Q> {
    /// Wraps `inner`.
    pub fn new(inner: Q) -> Self {
        // Now, and not when the first sample is taken.
        clock_ns();
        Self { inner }
    }
}

impl<Q: Queue> Queue for TimedQueue<Q> {
    device::forward_queue!(|self| self.inner, but transmit, receive);

    fn transmit(&mut self, batch: &Multidata) -> Transmitted {
        timed(|taken, ns| taken.transmit_ns += ns, || self.inner.transmit(batch))
    }

    fn receive(
        &mut self,
        pool: &BlockPool,
        batch: &mut ReceiveBatch,
        frames_max: usize,
    ) -> Received {
        let call = || self.inner.receive(pool, batch, frames_max);
        timed(|taken, ns| taken.receive_ns += ns, call)
    }
}

/// Measures the copies of writes.
#[derive(Debug)]
pub struct CopyTimes;

impl CopyObserver for CopyTimes {
    fn on_begin(&self) {
        COPY_BEGAN.set(is_sample(COPIES_PER_SAMPLE).then(thread_time));
    }

    fn on_end(&self) {
        let Some(began) = COPY_BEGAN.take() else { return };
        let copy_ns = sampled_ns(began, COPIES_PER_SAMPLE);
        TAKEN.set(TAKEN.get().plus(Taken { copy_ns, ..Taken::default() }));
    }
}

/// Where the time went that it took to send 10^9 bytes, in seconds: by the clock on the wall, or the CPU time of all who
/// send together where that is longer, as it is where several of them work at the same time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Split {
    /// Inside the device's transmit calls.
    pub transmit_s: f64,
    /// Inside its receive calls.
    pub receive_s: f64,
    /// By copying in.
    pub copy_s: f64,
    /// By everything else that those who send did: TCP, IP, locks, the application itself.
    pub rest_s: f64,
    /// In which none of them was at work, at least: what is left of the time by the clock on the wall.
    pub waiting_s: f64,
}

impl Split {
    /// What the parts are called, in their order.
    pub const NAMES: [&str; 5] =
        ["device transmit", "device receive", "copy-in", "the rest", "waiting"];

    /// The parts.
    #[must_use]
    pub fn parts(&self) -> [f64; 5] {
        let Self { transmit_s, receive_s, copy_s, rest_s, waiting_s } = *self;
        [transmit_s, receive_s, copy_s, rest_s, waiting_s]
    }

    /// All of it.
    #[must_use]
    pub fn whole_s(&self) -> f64 {
        self.parts().iter().sum()
    }

    /// Of all runs of a scenario together, so that the parts make the whole; `None` where nobody measured.
    #[must_use]
    pub fn of(results: &Results, scenario: &str) -> Option<Self> {
        let runs: Vec<&Run> = results.runs.iter().filter(|run| run.scenario == scenario).collect();
        let is_measured = runs.iter().any(|run| run.counters.contains_key(TRANSMIT_NS));
        let gb = runs.iter().map(|run| run.bytes).sum::<u64>() as f64 / 1e9;
        let each_gb = |name: &str| {
            let counted = runs.iter().filter_map(|run| run.counters.get(name));
            ratio(counted.sum::<u64>() as f64 / 1e9, gb).unwrap_or(0.0)
        };
        is_measured.then(|| {
            let (transmit_s, receive_s) = (each_gb(TRANSMIT_NS), each_gb(RECEIVE_NS));
            let (copy_s, cpu_s) = (each_gb(COPY_NS), each_gb(crate::copy_in::SENDER_CPU_NS));
            let rest_s = (cpu_s - transmit_s - receive_s - copy_s).max(0.0);
            let waiting_s = (each_gb(SENDER_ELAPSED_NS) - cpu_s).max(0.0);
            Self { transmit_s, receive_s, copy_s, rest_s, waiting_s }
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::copy_in::SENDER_CPU_NS;
    use crate::results::tests::{results, run};
    use device::{HardwareAddress, Medium, TransmitMode, WireConfig, WireEnd, wire};

    fn burn() {
        let began = thread_time();
        while thread_time() - began < Duration::from_micros(50) {}
    }

    #[test]
    fn a_sample_stands_for_those_that_were_not_measured() {
        let before = Taken::of_this_thread();
        let began = thread_time();
        for _ in 0..2_000 {
            timed(|taken, ns| taken.transmit_ns += ns, burn);
        }
        let took_ns = (thread_time() - began).as_nanos() as f64;
        let taken = Taken::of_this_thread().since(before);
        assert_eq!((taken.receive_ns, taken.copy_ns), (0, 0));
        // 125 samples, and by chance some more or less; the seed is the same in each thread.
        let share = taken.transmit_ns as f64 / took_ns;
        assert!((0.6..1.4).contains(&share), "{share}");
    }

    #[test]
    fn copies_are_seen_and_what_is_no_sample_is_not_taken_for_one() {
        let before = Taken::of_this_thread();
        for _ in 0..400 {
            CopyTimes.on_begin();
            burn();
            CopyTimes.on_end();
            CopyTimes.on_end();
        }
        let copy_ns = Taken::of_this_thread().since(before).copy_ns;
        assert!((10_000_000..40_000_000).contains(&copy_ns), "20 ms, not {copy_ns} ns");
    }

    #[test]
    fn a_timed_queue_is_the_queue_within() {
        let end = WireEnd::plain(Medium::Ethernet(HardwareAddress([2, 0, 0, 0, 0, 1])));
        let (plain, _other) = wire(WireConfig::new(end, end));
        let capabilities = plain.capabilities();
        let mut queue = TimedQueue::new(plain);
        assert_eq!(queue.capabilities(), capabilities);
        assert_eq!(queue.transmit(&Multidata::default()).taken, 0);
        let pool = BlockPool::new(batch::PoolConfig::default());
        assert_eq!(queue.receive(&pool, &mut ReceiveBatch::new(), 8).frames, 0);
        assert!(queue.trouble().is_none() && queue.retry_after().is_none());
    }

    pub(crate) fn measured() -> Results {
        let run = |cpu_ns, elapsed_ns| {
            let mut run = run(TransmitMode::Multidata, 8.0);
            run.bytes = 500_000_000;
            let taken =
                Taken { transmit_ns: 60_000_000, receive_ns: 10_000_000, copy_ns: 20_000_000 };
            taken.count(&mut run.counters);
            run.counters.insert(SENDER_CPU_NS.to_owned(), cpu_ns);
            run.counters.insert(SENDER_ELAPSED_NS.to_owned(), elapsed_ns);
            run
        };
        results(vec![run(150_000_000, 200_000_000), run(130_000_000, 200_000_000)])
    }

    #[test]
    fn the_parts_make_the_whole() {
        let results = measured();
        let split = Split::of(&results, &results.runs[0].scenario).expect("it was measured");
        let wanted = [0.12, 0.02, 0.04, 0.10, 0.12];
        assert!(split.parts().iter().zip(wanted).all(|(is, wanted)| (is - wanted).abs() < 1e-9));
        assert!((split.whole_s() - 0.4).abs() < 1e-9, "{split:?}");
        let plain = crate::results::tests::results(vec![run(TransmitMode::Single, 8.0)]);
        assert_eq!(Split::of(&plain, &plain.runs[0].scenario), None);
    }
}
