//! The Queue contract: what a device is to the stack.
//!
//! A device is what an interface stands on; a [`Queue`] is one of its transmit and receive
//! pairs, owned by one shard, and all that the stack knows of it. A queue takes a [`Multidata`](batch::Multidata) in one call and hands frames up in a
//! [`ReceiveBatch`](batch::ReceiveBatch); it says beforehand how much it can take ([`Queue::room`]) and afterwards how
//! much it took and why it stopped ([`Transmitted`]). What was not taken was not consumed: the
//! caller forgets it and builds it afresh.
//!
//! Capabilities are found when the device is opened and can be taken back while it runs
//! ([`Stop::Revoked`]); whoever drives the queue then asks for [`Queue::capabilities`] again.
//!
//! A device that changes every packet on its way (a tunnel) does so by a [`Transform`].
//!
//! Waiting is a contract of its own ([`Waiter`]), because the thread that waits for a device does
//! not own its queue meanwhile.

mod capabilities;
pub mod capture;
pub mod fault;
pub mod in_process;
pub mod lowering;
mod queue;
pub mod rate;
pub mod transform;
mod wrapping;

pub use capabilities::{
    Capabilities, ChecksumKinds, Forms, FragmentSplitting, HardwareAddress, MULTIDATA_VERSION,
    Medium, Segmentation, TransmitMode,
};
pub use capture::{Capture, CaptureConfig, CaptureCounters, CaptureQueue};
pub use fault::{FaultConfig, FaultCounters, FaultQueue, Injection};
pub use in_process::{
    PacketReceiver, PacketSender, WireConfig, WireEnd, WireQueue, packet_pipe, wire,
};
pub use lowering::{BlockForm, Contiguous};
#[cfg(unix)]
pub use queue::{CalledSource, EventSource, MakeSource, made_once};
pub use queue::{DeviceCounters, DeviceError, Queue, Received, Room, Stop, Transmitted, Waiter};
pub use rate::{RateConfig, RateCounters, RateLimit, RateQueue};
pub use transform::Transform;

// For what `forward_queue` writes in other crates.
#[doc(hidden)]
pub use batch;
