//! When a squeue is to have its next turn, and what calls do until then.
//!
//! A turn that used up its budget, or was cut short, is *unfinished*: the rest is owed, and pressing for whoever comes
//! next. Calls that find their answers have a while of their own between two turns all the same, and a call that wrote
//! little polls no device.

use time::{Duration, Instant};

/// A turn may have taken longer than its budget because the system ran others meanwhile, or nobody: so long are calls
/// left alone at most.
const REST_MAX: Duration = Duration::from_millis(4);

/// A call that was answered polls the devices only when they were not polled for so long, nor for as long as the
/// last turn took: where more comes than the budget of a turn can take in, reading takes turns with it. With a
/// turn after each datagram read, a flood left 900 a second of 43,000.
pub(super) const POLL_INTERVAL: Duration = Duration::from_micros(500);

/// And when as much was written since: by then there are ACKs, and after each short write it would be a failing
/// read with every packet. With 256 KiB, which saves reads, the wire and the plain TAP lost a quarter of their
/// throughput: the window stood still meanwhile.
const POLL_BYTES: usize = 16 << 10;

/// What a turn left to the devices because its caller had enough is due after so long, for a worker that sleeps on the
/// device. One that stands aside comes when its park ends, and is called no earlier: up to 20 ms later, and 5 ms more
/// where a call was just made.
const LEFT_MAX: Duration = Duration::from_millis(5);

/// See the module documentation.
#[derive(Default)]
pub(crate) struct Pace {
    /// Tells the time within a turn; without one it stands still.
    clock: Option<Box<dyn FnMut() -> Instant + Send>>,
    /// Something is left for the next turn: the last one used up its budget, or more came to be owed since.
    is_unfinished: bool,
    /// When the next turn is due though calls can be answered without.
    poll_at: Instant,
    /// One was, since the last turn.
    has_answered: bool,
    /// Bytes that were written to sockets since the devices were polled.
    unpolled_bytes: usize,
    /// When devices are to be asked again that had no room in the last turn, or were left with what they have.
    retry: Option<Instant>,
}

impl Pace {
    /// What tells the time within a turn.
    pub(super) fn set_clock(&mut self, clock: impl FnMut() -> Instant + Send + 'static) {
        self.clock = Some(Box::new(clock));
    }

    /// A turn begins, and is unfinished until [`Pace::finish`].
    pub(super) fn begin_turn(&mut self) {
        self.unpolled_bytes = 0;
        (self.has_answered, self.retry, self.is_unfinished) = (false, None, true);
    }

    /// The time within a turn that began at `now`.
    pub(super) fn time(&mut self, now: Instant) -> Instant {
        self.clock.as_mut().map_or(now, |clock| clock())
    }

    /// Nothing is left to move.
    pub(super) fn finish(&mut self) {
        self.is_unfinished = false;
    }

    /// The devices are to be asked again at `at` at the latest.
    pub(super) fn retry_at(&mut self, at: Instant) {
        self.retry = Instant::earliest(self.retry, Some(at));
    }

    /// Who came has enough at `at`: what the devices have is nobody's hurry.
    pub(super) fn leave_rest(&mut self, at: Instant) {
        self.finish();
        self.retry_at(at + LEFT_MAX);
    }

    /// The turn that began at `now` has ended at `at`. The next one is due after as long.
    pub(super) fn end_turn(&mut self, now: Instant, at: Instant) {
        self.poll_at = at + at.since(now).clamp(POLL_INTERVAL, REST_MAX);
    }

    /// Something is left for the next turn.
    pub(crate) fn owe(&mut self) {
        self.is_unfinished = true;
    }

    /// The next turn is due at once.
    pub(super) fn hurry(&mut self, now: Instant) {
        self.poll_at = now;
    }

    /// So much was written to a socket.
    pub(crate) fn on_written(&mut self, bytes: usize) {
        self.unpolled_bytes += bytes;
    }

    /// A call was answered without a turn.
    pub(super) fn on_answered(&mut self) {
        self.has_answered = true;
    }

    /// Whether a call that was answered is to be followed by a turn.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        now >= self.poll_at || !self.has_little_unpolled()
    }

    /// Whether something was written since the devices were polled.
    pub(crate) fn has_unpolled(&self) -> bool {
        self.unpolled_bytes > 0
    }

    /// Whether little was written since the devices were polled.
    pub(super) fn has_little_unpolled(&self) -> bool {
        self.unpolled_bytes < POLL_BYTES
    }

    /// Whether something is left for the next turn.
    pub(crate) fn is_unfinished(&self) -> bool {
        self.is_unfinished
    }

    /// When the next turn is due though calls can be answered without.
    pub(super) fn poll_at(&self) -> Instant {
        self.poll_at
    }

    /// When the devices are to be asked again, where one had no room.
    pub(super) fn retry(&self) -> Option<Instant> {
        self.retry
    }

    /// How long the rest of an unfinished turn is left alone where calls find their answers meanwhile, or somebody
    /// waits for the lock: they have as much time as the turn took, and the devices shed what is too much.
    pub(super) fn time_for_calls(&self, now: Instant, is_wanted: bool) -> Duration {
        if self.is_unfinished && (is_wanted || self.has_answered) {
            self.poll_at.since(now)
        } else {
            Duration::ZERO
        }
    }
}
