//! The contract of a device queue.

use crate::{Capabilities, TransmitMode};
use batch::{BlockPool, Multidata, ReceiveBatch};
use core::fmt;
use core::time::Duration;
use std::io::ErrorKind;
#[cfg(unix)]
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// What a device can take now without dropping any of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Packets.
    pub packets: usize,
    /// Bytes, headers included.
    pub bytes: usize,
}

impl Room {
    /// For devices that take whatever comes and say so afterwards.
    pub const UNBOUNDED: Self = Self { packets: usize::MAX, bytes: usize::MAX };
}

/// What became of a batch: the first `taken` packets are the device's, the rest never left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmitted {
    /// Packets taken, from the front.
    pub taken: usize,
    /// Why the device stopped there; `None` when it took all.
    pub stopped: Option<Stop>,
}

/// Why a device stopped before the end of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// No room now; try again when the waiter says so, after the next receive, or at the time that
    /// [`Queue::retry_after`] says.
    Full,
    /// A capability was taken back; ask for the capabilities again and build the rest afresh.
    Revoked,
    /// This one packet, the first not taken, can never be sent (too long, malformed for this
    /// device): it must be dropped and counted.
    Refused,
    /// The device is gone or failed.
    Failed(DeviceError),
}

/// What a receive call brought.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Frames added to the batch.
    pub frames: usize,
    /// The device may have more; it stopped because the batch was full.
    pub more: bool,
    /// The device is gone or failed; what was received before is in the batch.
    pub failed: Option<DeviceError>,
}

/// A device failed: what was attempted and what the system said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceError {
    /// What a program can tell it by: `PermissionDenied`, `NotFound`, `ResourceBusy`, `InvalidInput` for a setting
    /// that cannot be, `Unsupported`, `NetworkDown` for a device that was there and is of no use any more.
    pub kind: ErrorKind,
    /// A sentence: what failed, why, and what to do.
    pub message: String,
}

impl DeviceError {
    /// An error of this kind with its sentence.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}

impl fmt::Display for DeviceError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for DeviceError {}

/// Of the same kind, and with the error itself as its source.
impl From<DeviceError> for std::io::Error {
    fn from(error: DeviceError) -> Self {
        Self::new(error.kind, error)
    }
}

counters::counters! {
    /// What a device queue did.
    pub struct DeviceCounters {
        /// Transmit calls that found a batch.
        transmit_batches,
        /// Packets taken.
        transmit_packets,
        /// Bytes taken, link headers included.
        transmit_bytes,
        /// Frames handed to the medium: fewer than packets where runs were merged.
        transmit_frames,
        /// Pieces of memory that the medium was shown, each of which it maps, copies from or cuts by
        /// itself: vectors of system calls, descriptors of rings, blocks of the in-process wire.
        transmit_mappings,
        /// System calls made to transmit.
        transmit_syscalls,
        /// Transmit calls that ended with `Full`.
        transmit_full,
        /// Packets that were refused although packets behind them were taken, or for too long: they count as
        /// taken, and are lost, as another call would not have had them either.
        transmit_lost,
        /// Packets that found no room although packets behind them did, and were written behind those.
        transmit_late,
        /// Rings for many frames by one system call that were not to be had, or that the kernel
        /// stopped to serve: each frame has a call of its own since.
        rings_lost,
        /// Receive calls that brought at least one frame.
        receive_batches,
        /// Frames received.
        receive_frames,
        /// Bytes received, link headers included.
        receive_bytes,
        /// System calls made to receive.
        receive_syscalls,
        /// Frames that were lost before they could be received: the device had no room for them,
        /// or could not tell what they are.
        receive_dropped,
        /// System calls made to wait.
        wait_syscalls,
        /// Capabilities that were taken back.
        capabilities_revoked,
        /// Times the interface below went down or away.
        links_lost,
        /// Times it came back.
        links_restored,
        /// Reports that nobody listens at the other end of a tunnel, or that no way leads there:
        /// something sent before was lost.
        transmit_unreachable,
        /// Frames that came up merged with others and were split here, in a tunnel or a packet socket.
        receive_coalesced,
        /// Datagrams of a tunnel dropped because they were cut short or could hold no packet.
        drop_tunnel_truncated,
        /// Datagrams that the tunnel's peer did not seal, or that were changed on their way.
        drop_tunnel_forged,
        /// Datagrams of a tunnel that came before, or are far too old.
        drop_tunnel_replayed,
        /// Datagrams from an address that is not the tunnel's peer.
        drop_tunnel_foreign,
    }
}

/// Waits for a device without owning its queue. Shared between threads.
pub trait Waiter: Send + Sync {
    /// Returns when a frame can be received, when [`Waiter::wake`] was called (also before the
    /// call), or after `timeout`; may return early for no reason. After [`Stop::Full`] it may return when there is
    /// room, too, which saves asking again and again; after a receive that found no memory it does not return at
    /// once for the frames that wait ([`Queue::receive`]).
    fn wait(&self, timeout: Option<Duration>);

    /// Makes the current or the next [`Waiter::wait`] return at once.
    fn wake(&self);

    /// Whether a frame can be received now; `None` where only a system call could tell.
    fn is_ready(&self) -> Option<bool> {
        None
    }

    /// The same as something that an event loop can watch, which a device that is no file has `make` make. One that is
    /// a file brings its own, as an `EventFile` of the crate `multidata-event-file` that watches it. `None` where only a
    /// thread can wait. Whoever has it lets go of it when it comes to that, so it is not to keep the device open. Each
    /// call says the same one.
    #[cfg(unix)]
    fn event_source(&self, make: MakeSource<'_>) -> Option<Arc<dyn EventSource>> {
        let _ = make;
        None
    }
}

/// Makes what a device that is no file calls for an event loop; `None` where the process has no descriptor left. Files
/// are the system's, and not of this crate.
#[cfg(unix)]
pub type MakeSource<'a> = &'a dyn Fn() -> Option<Arc<dyn CalledSource>>;

/// An [`EventSource`] for a device whose frames somebody brings, who calls. It is asked for when a loop first watches the
/// device, and kept:
///
/// ```
/// use device::{CalledSource, EventSource, MakeSource, Waiter};
/// use std::sync::{Arc, OnceLock};
/// use std::time::Duration;
///
/// /// Whoever brings a frame wakes it.
/// #[derive(Default)]
/// struct Bell {
///     // What threads sleep on is left out here.
///     source: OnceLock<Arc<dyn CalledSource>>,
/// }
///
/// impl Waiter for Bell {
///     fn wait(&self, _timeout: Option<Duration>) {}
///
///     fn wake(&self) {
///         self.source.get().into_iter().for_each(|source| source.wake());
///     }
///
///     fn event_source(&self, make: MakeSource<'_>) -> Option<Arc<dyn EventSource>> {
///         Some(device::made_once(&self.source, make)?)
///     }
/// }
/// ```
#[cfg(unix)]
pub trait CalledSource: EventSource + core::fmt::Debug {
    /// Ends this wait or the next one.
    fn wake(&self);

    /// Ends a wait that has begun. Who looks for news after that, as who waits is to do, finds what was there before:
    /// that must have been stored with sequential consistency.
    fn wake_waiting(&self);

    /// How many system calls it took.
    fn syscalls(&self) -> u64;
}

/// The source in `place`, made there when it is first asked for; `None` where that cannot be, as it may be another time.
/// Of two who make one, the first one's is kept.
#[cfg(unix)]
pub fn made_once(
    place: &std::sync::OnceLock<Arc<dyn CalledSource>>,
    make: MakeSource<'_>,
) -> Option<Arc<dyn CalledSource>> {
    if place.get().is_none() {
        let _ = place.set(make()?);
    }
    place.get().cloned()
}

/// A wait for a device that takes no thread: an event loop watches a file.
///
/// Each wait is between a [`begin`](EventSource::begin) and an [`end`](EventSource::end), one at a time. [`Waiter::wake`]
/// calls the loop besides a thread, and neither's call ends the other's wait or is taken by it.
#[cfg(unix)]
pub trait EventSource: Send + Sync {
    /// Readable when the wait is over. What made it readable may stay: it is to be watched for the edge
    /// (EPOLLET), from before the wait begins. It is always the same file.
    fn file(&self) -> BorrowedFd<'_>;

    /// Begins to wait, for `timeout` at most where there is one. Says `false` where the wait is over already. Frames that
    /// came before are told by [`Waiter::is_ready`], asked after it, where that can tell.
    fn begin(&self, timeout: Option<Duration>) -> bool;

    /// Ends the wait, be it over or not.
    fn end(&self);
}

/// One transmit and receive pair of a device; owned by one shard.
///
/// Its calls come from any thread that runs the shard's squeue, under the lock of that, and the blocks that it hands up
/// are let go of there: neither may wait, nor call a socket of the same stack, or the stack itself. A queue that sends
/// by one, as a tunnel through a tunnel would, waits for itself for ever; a thread or a task in between
/// ([`packet_pipe`](crate::packet_pipe)) may. The queue itself is let go of under no lock.
///
/// A panic in one ends the call or the turn that it came up in, and nothing else: what was offered is offered again. A
/// queue that panics four times in a row where it is to send, or to receive, has failed.
///
/// A queue around another one, which counts, delays, changes or refuses, has the calls of its own that it is
/// there for, and passes all others on by [`forward_queue`](crate::forward_queue). One that left a call to its
/// default would keep silent what the queue within says there.
///
/// ```
/// use batch::Multidata;
/// use device::{Queue, Transmitted};
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// /// Counts the bytes that leave.
/// struct Metered<Q> {
///     inner: Q,
///     sent_bytes: Arc<AtomicU64>,
/// }
///
/// impl<Q: Queue> Queue for Metered<Q> {
///     device::forward_queue!(|self| self.inner, but transmit);
///
///     fn transmit(&mut self, batch: &Multidata) -> Transmitted {
///         let transmitted = self.inner.transmit(batch);
///         let taken = batch.packets().take(transmitted.taken);
///         let bytes: usize = taken.map(|packet| packet.len()).sum();
///         self.sent_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
///         transmitted
///     }
/// }
/// ```
pub trait Queue: Send {
    /// What the device can do now.
    fn capabilities(&self) -> Capabilities;

    /// Selects how batches reach the device.
    ///
    /// # Errors
    /// [`DeviceError`] where the device cannot do it; the old mode stays.
    fn set_mode(&mut self, mode: TransmitMode) -> Result<(), DeviceError>;

    /// What the device can take now without dropping any of it.
    fn room(&self) -> Room;

    /// Offers the packets of `batch`, complete with link headers, in order.
    fn transmit(&mut self, batch: &Multidata) -> Transmitted;

    /// Adds at most `frames_max` received frames to `batch`; never blocks.
    ///
    /// Where `pool` has no block for what has come, that stays where it is and is no [`Received::more`]. It is the
    /// waiter's to leave it alone for a while then, a millisecond with the devices of this house: whoever sleeps would
    /// else be called for it at once, again and again, until somebody has read.
    fn receive(
        &mut self,
        pool: &BlockPool,
        batch: &mut ReceiveBatch,
        frames_max: usize,
    ) -> Received;

    /// Takes back what the device is done with (descriptors, buffers in flight).
    fn reclaim(&mut self) {}

    /// Whether packets that were taken have not left, and only another [`Queue::reclaim`] has them go on: it is
    /// called soon again, also where there is nothing more to send.
    fn is_stalled(&self) -> bool {
        false
    }

    /// What is wrong with the device at present and may pass, as an interface that is down: until
    /// then it takes nothing ([`Stop::Full`]) and nothing comes.
    fn trouble(&self) -> Option<DeviceError> {
        None
    }

    /// After [`Stop::Full`], when to offer again, where that is a matter of time and not of something
    /// that wakes its waiter; zero where it is now. `None` where the device cannot know: then it is asked after a
    /// millisecond, and while it takes nothing after as long as it was full, 10 ms at most.
    fn retry_after(&self) -> Option<Duration> {
        None
    }

    /// How to wait for this queue.
    fn waiter(&self) -> Arc<dyn Waiter>;

    /// What the queue did so far.
    fn counters(&self) -> DeviceCounters;
}

/// So that what wraps a queue wraps one of any device.
impl<Q: Queue + ?Sized> Queue for Box<Q> {
    crate::forward_queue!(|self| **self);
}

#[cfg(all(test, unix))]
pub(crate) mod tests {
    use super::{CalledSource, EventSource};
    use core::sync::atomic::{AtomicU64, Ordering};
    use std::fs::File;
    use std::os::fd::{AsFd, BorrowedFd};
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    /// Notes how it is called, and how long the waits may last.
    #[derive(Debug)]
    pub(crate) struct Noting {
        file: File,
        pub(crate) wakes: AtomicU64,
        pub(crate) wakes_waiting: AtomicU64,
        pub(crate) waits: Mutex<Vec<Option<Duration>>>,
    }

    impl Noting {
        pub(crate) fn new() -> Arc<Self> {
            Arc::new(Self {
                file: File::open("/dev/null").expect("it can be read"),
                wakes: AtomicU64::new(0),
                wakes_waiting: AtomicU64::new(0),
                waits: Mutex::default(),
            })
        }
    }

    impl EventSource for Noting {
        fn file(&self) -> BorrowedFd<'_> {
            self.file.as_fd()
        }

        fn begin(&self, timeout: Option<Duration>) -> bool {
            self.waits.lock().expect("no panic").push(timeout);
            true
        }

        fn end(&self) {}
    }

    impl CalledSource for Noting {
        fn wake(&self) {
            self.wakes.fetch_add(1, Ordering::SeqCst);
        }

        fn wake_waiting(&self) {
            self.wakes_waiting.fetch_add(1, Ordering::SeqCst);
        }

        fn syscalls(&self) -> u64 {
            0
        }
    }
}
