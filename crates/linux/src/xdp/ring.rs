//! The rings that are shared with the kernel.
//!
//! A ring has one producer and one consumer, one of which is the kernel. Both count up without end,
//! modulo 2^32; the entry of a count is found by its low bits.
//!
//! ```text
//!            consumer              producer
//!               v                     v
//!  entries  [ .  taken  .  .  .  .  .  free  .  .  . ]   producer - consumer <= size
//! ```
//!
//! | ring       | producer | consumer | an entry is                            |
//! |------------|----------|----------|----------------------------------------|
//! | fill       | we       | kernel   | the address of a chunk to receive into |
//! | rx         | kernel   | we       | a descriptor of what was received      |
//! | tx         | we       | kernel   | a descriptor of what is to be sent     |
//! | completion | kernel   | we       | the address of a chunk that was sent   |
//!
//! *Ordering.* Who produces writes the entries, and the memory that they name, before it stores the
//! producer's count with `Release`; who consumes loads that count with `Acquire` and only then reads
//! the entries. In the other direction it is the same with the consumer's count: entries are read
//! before it is stored with `Release`, and the producer loads it with `Acquire` before it writes
//! those entries again. Each side keeps its own count in ordinary memory and writes it to the
//! shared one once per batch. The kernel does the same on its side (net/xdp/xsk_queue.h).
//!
//! *Room.* Nobody asks whether there is any. A ring that we produce has an entry for each chunk that can
//! stand in it, an entry holds its chunk until the kernel names that in the ring that brings it back, and what it
//! names there it has read here. So whoever holds a chunk has room for its entry. The consumer's count
//! would say less: the kernel stores it when it likes, up to Linux 6.16 in the tx ring when it has
//! sent all that it knew of, which may be long after chunks came back, and in the fill ring after it has
//! told of the frames that it took chunks for.
//!
//! The `NEED_WAKEUP` flag is the exception: we store a count and then load the flag, the kernel
//! stores the flag and then loads the count, so both need a full barrier between the two.

#![allow(unsafe_code)]

use crate::mapping::Mapping;
use core::marker::PhantomData;
use rustix::fd::AsFd;
use rustix::io::{Errno, Result};
use rustix::net::xdp::XdpRingOffset;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// What lies in rings.
///
/// # Safety
/// Every pattern of bits must be a value, and no byte may be padding.
pub(super) unsafe trait Entry: Copy {}

// SAFETY: an integer.
unsafe impl Entry for u64 {}

/// `struct xdp_desc` (linux/if_xdp.h): a part of a chunk.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Descriptor {
    /// Bytes from the start of the UMEM.
    pub(super) address: u64,
    /// Bytes.
    pub(super) len: u32,
    /// [`CONTINUED`], or nothing.
    pub(super) options: u32,
}

// SAFETY: 16 bytes of integers without padding.
unsafe impl Entry for Descriptor {}

/// The packet goes on in the next descriptor (`XDP_PKT_CONTD`).
pub(super) const CONTINUED: u32 = 1;

const NEED_WAKEUP: u32 = 1;

/// The shared part of a ring.
#[derive(Debug)]
pub(super) struct Ring<T> {
    mapping: Mapping,
    producer: usize,
    consumer: usize,
    flags: Option<usize>,
    entries: usize,
    size: u32,
    entry: PhantomData<T>,
}

impl<T: Entry> Ring<T> {
    /// Maps a ring of `size` entries, a power of two, that the socket has at `page_offset`.
    pub(super) fn map(
        socket: impl AsFd,
        page_offset: u64,
        offsets: &XdpRingOffset,
        size: u32,
    ) -> Result<Arc<Self>> {
        let at = |offset: u64| usize::try_from(offset).map_err(|_| Errno::OVERFLOW);
        let entries = at(offsets.desc)?;
        let len = entries + size as usize * size_of::<T>();
        let mapping = Mapping::of_file(socket, page_offset, len)?;
        Self::over(mapping, offsets, size).map(Arc::new)
    }

    /// A ring in this memory. Everything that is read or written later lies within it and is aligned.
    fn over(mapping: Mapping, offsets: &XdpRingOffset, size: u32) -> Result<Self> {
        let word = |offset: u64| {
            let offset = usize::try_from(offset).map_err(|_| Errno::OVERFLOW)?;
            let is_sound = offset.is_multiple_of(align_of::<AtomicU32>())
                && offset
                    .checked_add(size_of::<AtomicU32>())
                    .is_some_and(|end| end <= mapping.len());
            is_sound.then_some(offset).ok_or(Errno::INVAL)
        };
        let (producer, consumer) = (word(offsets.producer)?, word(offsets.consumer)?);
        let flags = offsets.flags.map(word).transpose()?;
        let entries = usize::try_from(offsets.desc).map_err(|_| Errno::OVERFLOW)?;
        let end = entries.checked_add(size as usize * size_of::<T>());
        if !size.is_power_of_two()
            || !entries.is_multiple_of(align_of::<T>())
            || end.is_none_or(|end| end > mapping.len())
        {
            return Err(Errno::INVAL);
        }
        Ok(Self { mapping, producer, consumer, flags, entries, size, entry: PhantomData })
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: `over` saw that an aligned word lies there; the mapping lives as long as `self`;
        // the kernel writes it by atomic stores, and we through this type only.
        unsafe { self.mapping.start().add(offset).cast::<AtomicU32>().as_ref() }
    }

    fn read(&self, count: u32) -> T {
        let index = (count & (self.size - 1)) as usize;
        // SAFETY: `over` saw that `size` aligned entries lie there, and any bits are a `T`. Only a
        // consumer calls this, for a count that the producer has passed: nobody writes the entry.
        unsafe { self.mapping.start().add(self.entries).cast::<T>().add(index).read() }
    }

    fn write(&self, count: u32, entry: T) {
        let index = (count & (self.size - 1)) as usize;
        // SAFETY: as above; only a producer calls this, for a count that the consumer has read
        // ([`Producer::push`]): nobody reads or writes the entry.
        unsafe { self.mapping.start().add(self.entries).cast::<T>().add(index).write(entry) }
    }
}

/// Our side of a ring that the kernel consumes.
#[derive(Debug)]
pub(super) struct Producer<T> {
    ring: Arc<Ring<T>>,
    /// Entries written, of which the kernel knows those before the last [`Producer::submit`].
    produced: u32,
}

impl<T: Entry> Producer<T> {
    /// The one producer of a fresh ring.
    pub(super) fn new(ring: Arc<Ring<T>>) -> Self {
        let produced = ring.word(ring.producer).load(Ordering::Relaxed);
        Self { ring, produced }
    }

    /// Writes an entry, for which there must be room: one entry for each chunk, and the chunk is the
    /// caller's (see the module documentation). That it came back, which was seen with `Acquire`, says that
    /// the kernel has read the entry in whose place this one comes.
    pub(super) fn push(&mut self, entry: T) {
        self.ring.write(self.produced, entry);
        self.produced = self.produced.wrapping_add(1);
    }

    /// Hands the kernel what was written.
    pub(super) fn submit(&mut self) {
        self.ring.word(self.ring.producer).store(self.produced, Ordering::Release);
    }

    /// How many entries the kernel has not consumed yet, or did not say so. None means none.
    pub(super) fn pending(&self) -> u32 {
        let consumed = self.ring.word(self.ring.consumer).load(Ordering::Acquire);
        self.produced.wrapping_sub(consumed)
    }

    /// Whether the kernel wants to be told of what was submitted.
    pub(super) fn needs_wakeup(&self) -> bool {
        fence(Ordering::SeqCst);
        let flags = self.ring.flags.map(|offset| self.ring.word(offset).load(Ordering::Relaxed));
        flags.is_none_or(|flags| flags & NEED_WAKEUP != 0)
    }
}

/// Our side of a ring that the kernel produces.
#[derive(Debug)]
pub(super) struct Consumer<T> {
    ring: Arc<Ring<T>>,
    /// Entries read, of which the kernel may write those before the last [`Consumer::release`].
    consumed: u32,
    /// What the kernel had produced when we last looked.
    produced: u32,
}

impl<T: Entry> Consumer<T> {
    /// The one consumer of a fresh ring.
    pub(super) fn new(ring: Arc<Ring<T>>) -> Self {
        let consumed = ring.word(ring.consumer).load(Ordering::Relaxed);
        Self { ring, consumed, produced: consumed }
    }

    /// Looks for what the kernel produced, and says how many entries can be read.
    pub(super) fn look(&mut self) -> u32 {
        self.produced = self.ring.word(self.ring.producer).load(Ordering::Acquire);
        self.produced.wrapping_sub(self.consumed)
    }

    /// The entry `index` behind the next one, of those that the last look found.
    pub(super) fn peek(&self, index: u32) -> Option<T> {
        (index < self.produced.wrapping_sub(self.consumed))
            .then(|| self.ring.read(self.consumed.wrapping_add(index)))
    }

    /// Takes the next entry of those that the last look found.
    pub(super) fn pop(&mut self) -> Option<T> {
        let entry = self.peek(0)?;
        self.consumed = self.consumed.wrapping_add(1);
        Some(entry)
    }

    /// Gives the kernel the room of what was taken.
    pub(super) fn release(&mut self) {
        self.ring.word(self.ring.consumer).store(self.consumed, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OFFSETS: XdpRingOffset =
        XdpRingOffset { producer: 0, consumer: 64, desc: 192, flags: Some(128) };

    fn ring(size: u32) -> Arc<Ring<u64>> {
        let mapping = Mapping::anonymous(4_096).expect("a page");
        Arc::new(Ring::over(mapping, &OFFSETS, size).expect("it fits"))
    }

    #[test]
    fn a_ring_that_does_not_fit_its_memory_is_refused() {
        let over = |offsets: XdpRingOffset, size| {
            Ring::<u64>::over(Mapping::anonymous(4_096).expect("a page"), &offsets, size).err()
        };
        assert_eq!(over(OFFSETS, 256), None);
        assert_eq!(over(OFFSETS, 512), Some(Errno::INVAL), "longer than the page");
        assert_eq!(over(OFFSETS, 100), Some(Errno::INVAL), "no power of two");
        assert_eq!(over(XdpRingOffset { producer: 2, ..OFFSETS }, 16), Some(Errno::INVAL));
        assert_eq!(over(XdpRingOffset { desc: 196, ..OFFSETS }, 16), Some(Errno::INVAL));
        assert_eq!(over(XdpRingOffset { consumer: 4_094, ..OFFSETS }, 16), Some(Errno::INVAL));
    }

    #[test]
    fn a_wake_up_is_wanted_where_the_flag_is_set_and_where_there_is_none() {
        let shared = ring(16);
        let producer = Producer::new(Arc::clone(&shared));
        assert!(!producer.needs_wakeup());
        shared.word(128).store(NEED_WAKEUP, Ordering::Relaxed);
        assert!(producer.needs_wakeup());
        let old = XdpRingOffset { flags: None, ..OFFSETS };
        let old = Ring::<u64>::over(Mapping::anonymous(4_096).expect("a page"), &old, 16);
        assert!(Producer::new(Arc::new(old.expect("it fits"))).needs_wakeup());
    }

    proptest! {
        /// A ring is a queue: whatever is pushed, submitted, taken and released in whatever order,
        /// the consumer sees the same in the same order, and never more than was submitted, also where the
        /// consumer tells of what it took long after that, or never. The counts pass 2^32.
        #[test]
        fn a_ring_is_a_bounded_queue(steps in prop::collection::vec(0_u8..4, 1..400)) {
            const SIZE: u32 = 16;
            let shared = ring(SIZE);
            for offset in [0, 64] {
                shared.word(offset).store(u32::MAX - 20, Ordering::Relaxed);
            }
            let mut producer = Producer::new(Arc::clone(&shared));
            let mut consumer = Consumer::new(Arc::clone(&shared));
            let (mut pushed, mut submitted, mut taken, mut released) = (0_u64, 0_u64, 0_u64, 0_u64);
            for step in steps {
                match step {
                    // What was taken has come back, whether it was released or not.
                    0 if pushed - taken < u64::from(SIZE) => {
                        producer.push(pushed);
                        pushed += 1;
                    }
                    0 => {}
                    1 => {
                        producer.submit();
                        submitted = pushed;
                        prop_assert_eq!(u64::from(producer.pending()), pushed - released);
                    }
                    2 => {
                        prop_assert_eq!(u64::from(consumer.look()), submitted - taken);
                        while taken < submitted {
                            prop_assert_eq!(consumer.peek(0), Some(taken));
                            prop_assert_eq!(consumer.pop(), Some(taken));
                            taken += 1;
                        }
                        prop_assert_eq!(consumer.pop(), None);
                    }
                    _ => {
                        consumer.release();
                        released = taken;
                    }
                }
            }
        }
    }
}
