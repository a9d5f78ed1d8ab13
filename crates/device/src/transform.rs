//! Transforms: what a tunnel does to each packet on its way out and in.
//!
//! A device that wraps packets (a tunnel that encrypts them, say) may not write payload blocks: they
//! are shared with retransmit queues, or are the caller's own memory. So a packet is transformed
//! while it is laid into the lowered block, which the device owns: [`Transform::seal`] gets the
//! packet in pieces and writes what is sent in their stead, and that is the device's one copy. On
//! the way in nobody shares the block yet, so [`Transform::open`] works in place and says where the
//! packet lies. No second path is needed for devices that transform nothing: [`Null`] is a copy.
//!
//! What always holds: a sealed packet is at most [`Transform::overhead_bytes`] longer than the
//! packet, and `open` of what `seal` wrote gives the packet again, byte for byte. Sealing depends on
//! the bytes of a packet only, not on the pieces in which they lie.

mod replay;

pub use replay::ReplayWindow;

use batch::PacketView;
use core::ops::Range;
use counters::DropReason;

/// What is done to each packet. One value serves both directions of one tunnel end and belongs to
/// its queue.
pub trait Transform: Send {
    /// The name in reports.
    fn name(&self) -> &'static str;

    /// Bytes by which a sealed packet is longer than the packet at most.
    fn overhead_bytes(&self) -> usize;

    /// Whether `open` accepts only what the peer sealed, so that nobody else can have changed it.
    fn is_authenticated(&self) -> bool {
        false
    }

    /// Whether it wants its packets one by one at present (seed 000, 4.4.2): the stack then hands the
    /// device no batches. It is asked with each call, so a transform may change its mind.
    fn wants_single_packets(&self) -> bool {
        false
    }

    /// Writes the transformed `packet` to the front of `out` and says how many bytes that is. `out`
    /// holds at least the packet's length and the overhead; where it does not, or where nothing can
    /// be sealed any more (the counter of a cipher is used up), the result is `None`.
    fn seal(&mut self, packet: &PacketView<'_>, out: &mut [u8]) -> Option<usize>;

    /// Turns a received datagram into the packet in it, in place, and says where in `datagram` the
    /// packet lies.
    ///
    /// # Errors
    /// The reason for which it must be dropped; `datagram` then holds anything.
    fn open(&mut self, datagram: &mut [u8]) -> Result<Range<usize>, DropReason>;
}

/// Transforms nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Null;

impl Transform for Null {
    fn name(&self) -> &'static str {
        "null"
    }

    fn overhead_bytes(&self) -> usize {
        0
    }

    fn seal(&mut self, packet: &PacketView<'_>, out: &mut [u8]) -> Option<usize> {
        packet.copy_to(out)
    }

    fn open(&mut self, datagram: &mut [u8]) -> Result<Range<usize>, DropReason> {
        if datagram.is_empty() { Err(DropReason::Truncated) } else { Ok(0..datagram.len()) }
    }
}
