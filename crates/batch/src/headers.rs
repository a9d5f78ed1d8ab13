//! The bytes of a batch's headers, and those that nobody has written.
//!
//! The segments of a run have one header, but for what counts on from each to the next. So only the
//! first is written, the *model*, and those behind it are *implied*: [`derive()`] makes each of them
//! from the model and its distance. A device that takes the run as one never asks for them.
//!
//! ```text
//!  written  [ model 0 |         |         | model 3 |         ]   what the layers wrote
//!  made     [         |    1    |    2    |         |    4    ]   all implied ones, at the first look
//! ```
//!
//! What always holds: `made` is what [`derive()`] makes of `written` as it is. There is no way to
//! change a byte of `written` that does not throw `made` away, and what else implies headers (a
//! descriptor that is added or changed) does so by [`Headers::forget_made`].

use core::cell::{OnceCell, RefCell};
use core::num::NonZeroU8;

/// What counts on from the model to the headers that it implies. Offsets in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counting {
    /// From the transport header to 32 bits that grow by the payload of each packet.
    pub(crate) sequence: u8,
    /// From the network header to 16 bits that grow by one with each packet, and to the checksum
    /// that covers them; `None` where the network header is equal in all.
    pub(crate) identification: Option<(NonZeroU8, u8)>,
}

/// A model's header: its bytes and what is where in them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Model<'a> {
    pub(crate) bytes: &'a [u8],
    /// Where the network header begins in it.
    pub(crate) network: usize,
    /// Where the transport header begins in it.
    pub(crate) transport: usize,
    /// Payload bytes of the model's packet and of all that it implies.
    pub(crate) payload_len: u32,
    pub(crate) counting: Counting,
}

/// Writes to `out`, which has the model's length, the header `distance` packets behind it.
#[inline]
pub(crate) fn derive(model: &Model<'_>, distance: u16, out: &mut [u8]) {
    copy(model.bytes, out);
    let at = model.transport + usize::from(model.counting.sequence);
    if let Some(field) = out.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<4>) {
        let grown = u32::from(distance).wrapping_mul(model.payload_len);
        *field = u32::from_be_bytes(*field).wrapping_add(grown).to_be_bytes();
    }
    let Some((identification, checksum)) = model.counting.identification else { return };
    let Some(network) = out.get_mut(model.network..) else { return };
    let (at, checksum_at) = (usize::from(identification.get()), usize::from(checksum));
    let word = |at: usize| network.get(at..).and_then(<[u8]>::first_chunk::<2>).copied();
    let (Some(old), Some(checksum)) = (word(at), word(checksum_at)) else { return };
    let (old, checksum) = (u16::from_be_bytes(old), u16::from_be_bytes(checksum));
    let new = old.wrapping_add(distance);
    network[at..at + 2].copy_from_slice(&new.to_be_bytes());
    let checksum = checksum::update(checksum, old, new);
    network[checksum_at..checksum_at + 2].copy_from_slice(&checksum.to_be_bytes());
}

/// Copies a header to one of its length. In pieces of known length, of which the last two overlap, it
/// is a few moves instead of a call.
#[inline]
fn copy(from: &[u8], to: &mut [u8]) {
    const PIECE: usize = 32;
    if from.len() < PIECE {
        return to.copy_from_slice(from);
    }
    for (from, to) in from.chunks_exact(PIECE).zip(to.chunks_exact_mut(PIECE)) {
        to.copy_from_slice(from);
    }
    if let (Some(from), Some(to)) = (from.last_chunk::<PIECE>(), to.last_chunk_mut::<PIECE>()) {
        *to = *from;
    }
}

/// The header block of a batch.
#[derive(Debug, Default)]
pub(crate) struct Headers {
    written: Vec<u8>,
    made: OnceCell<Vec<u8>>,
    /// The memory of what was made last.
    spare: RefCell<Vec<u8>>,
}

impl Headers {
    /// A block of `len_bytes`.
    pub(crate) fn new(len_bytes: usize) -> Self {
        Self { written: vec![0; len_bytes], ..Self::default() }
    }

    /// Makes the block as long as that, if it is shorter.
    pub(crate) fn grow(&mut self, len_bytes: usize) {
        if self.written.len() < len_bytes {
            self.written.resize(len_bytes, 0);
        }
    }

    /// Takes over the first `len_bytes` of another block, and makes this one as long where it is shorter.
    pub(crate) fn copy_front(&mut self, from: &Self, len_bytes: usize) {
        self.grow(from.written.len());
        self.written_mut()[..len_bytes].copy_from_slice(&from.written[..len_bytes]);
    }

    #[inline]
    pub(crate) fn written(&self) -> &[u8] {
        &self.written
    }

    /// To be written; what was made is void.
    #[inline]
    pub(crate) fn written_mut(&mut self) -> &mut [u8] {
        self.forget_made();
        &mut self.written
    }

    /// What implies headers has changed: those that were made are void.
    #[inline]
    pub(crate) fn forget_made(&mut self) {
        if let Some(made) = self.made.take() {
            *self.spare.get_mut() = made;
        }
    }

    /// The implied headers, by `make` where they have to be made first: it gets a block of the same
    /// length, with any bytes in it.
    #[inline]
    pub(crate) fn made(&self, make: impl FnOnce(&mut [u8])) -> &[u8] {
        self.made.get_or_init(|| {
            let mut made = self.spare.take();
            made.resize(self.written.len(), 0);
            make(&mut made);
            made
        })
    }

    /// Whether implied headers had to be made since the last change.
    pub(crate) fn has_made(&self) -> bool {
        self.made.get().is_some()
    }
}
