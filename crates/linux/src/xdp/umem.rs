//! The UMEM: memory that is registered with the kernel once, in chunks of one size.
//!
//! A chunk is owned. Whoever holds a [`Chunk`] may read and write its bytes; to give it to the
//! kernel is to take its address and let go of it, and it comes back when the kernel names the
//! address in a ring. So a chunk that the kernel works on cannot be touched by mistake.

#![allow(unsafe_code)]

use crate::mapping::Mapping;
use rustix::io::{Errno, Result};

/// One chunk that is ours. There is one value for each chunk at most, and none while the kernel has
/// it.
#[derive(Debug)]
pub(super) struct Chunk {
    index: u32,
}

/// The registered memory.
#[derive(Debug)]
pub(super) struct Umem {
    mapping: Mapping,
    chunk_len: usize,
    count: u32,
}

impl Umem {
    /// Memory of `count` chunks of `chunk_len` bytes, a power of two, and all of its chunks.
    pub(super) fn new(chunk_len: usize, count: u32) -> Result<(Self, Vec<Chunk>)> {
        let len = chunk_len.checked_mul(count as usize).filter(|len| *len > 0);
        if !chunk_len.is_power_of_two() {
            return Err(Errno::INVAL);
        }
        let mapping = Mapping::anonymous(len.ok_or(Errno::OVERFLOW)?)?;
        let chunks = (0..count).map(|index| Chunk { index }).collect();
        Ok((Self { mapping, chunk_len, count }, chunks))
    }

    /// Where it lies, for the kernel.
    pub(super) fn address(&self) -> u64 {
        self.mapping.start().as_ptr().expose_provenance() as u64
    }

    /// Length of the whole in bytes.
    pub(super) fn len(&self) -> u64 {
        self.mapping.len() as u64
    }

    /// Length of a chunk in bytes.
    pub(super) fn chunk_len(&self) -> usize {
        self.chunk_len
    }

    /// The address of a chunk, for the kernel, who owns it from now on.
    pub(super) fn give(&self, chunk: Chunk) -> u64 {
        u64::from(chunk.index) * self.chunk_len as u64
    }

    /// The chunk in which `address`, named by the kernel in a ring, lies: it is ours again. `None`
    /// where there is no such chunk.
    pub(super) fn take_back(&self, address: u64) -> Option<Chunk> {
        let index = u32::try_from(address / self.chunk_len as u64).ok()?;
        (index < self.count).then_some(Chunk { index })
    }

    /// The `len` bytes of a chunk of ours from `address`, which the kernel named with it; `None`
    /// where they do not lie within the chunk.
    pub(super) fn part(&self, chunk: &Chunk, address: u64, len: u32) -> Option<&[u8]> {
        let start = address.checked_sub(u64::from(chunk.index) * self.chunk_len as u64)?;
        let start = usize::try_from(start).ok()?;
        self.bytes(chunk).get(start..start.checked_add(len as usize)?)
    }

    fn bytes(&self, chunk: &Chunk) -> &[u8] {
        let start = chunk.index as usize * self.chunk_len;
        // SAFETY: the index of a chunk is less than `count`, so it lies within the mapping, which
        // is initialised and lives as long as `self`. The chunk is ours, so the kernel does not
        // write it, and we write it only through `bytes_mut`, which borrows `self` exclusively.
        unsafe {
            core::slice::from_raw_parts(self.mapping.start().add(start).as_ptr(), self.chunk_len)
        }
    }

    /// All bytes of a chunk of ours, to be written.
    pub(super) fn bytes_mut(&mut self, chunk: &mut Chunk) -> &mut [u8] {
        let start = chunk.index as usize * self.chunk_len;
        // SAFETY: as in `bytes`; the exclusive borrow of `self` keeps every other view away.
        unsafe {
            core::slice::from_raw_parts_mut(
                self.mapping.start().add(start).as_ptr(),
                self.chunk_len,
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_goes_to_the_kernel_and_comes_back_by_its_address() {
        let (mut umem, mut chunks) = Umem::new(2_048, 4).expect("a few pages");
        assert_eq!((umem.len(), chunks.len()), (8_192, 4));
        let mut last = chunks.pop().expect("four");
        umem.bytes_mut(&mut last)[300..303].copy_from_slice(b"abc");
        let address = umem.give(last);
        assert_eq!(address, 3 * 2_048);
        // The kernel names the place of the bytes, not of the chunk.
        let again = umem.take_back(address + 300).expect("a chunk");
        assert_eq!(umem.part(&again, address + 300, 3), Some(&b"abc"[..]));
        assert_eq!(umem.part(&again, address + 300, 1_748).map(<[u8]>::len), Some(1_748));
        assert_eq!(umem.part(&again, address + 300, 1_749), None, "beyond the chunk");
        assert_eq!(umem.part(&again, address - 1, 1), None, "before the chunk");
        assert!(umem.take_back(8_192).is_none() && umem.take_back(u64::MAX).is_none());
    }

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        assert_eq!(Umem::new(3_000, 4).err(), Some(Errno::INVAL));
        assert_eq!(Umem::new(2_048, 0).err(), Some(Errno::OVERFLOW));
    }
}
