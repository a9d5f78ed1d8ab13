//! How a packet is divided among chunks of the UMEM, each of which has a descriptor of its own.
//!
//! ```text
//!  whole      [eth ip tcp | payload      ]
//!  long       [eth ip tcp | payload ....][....... payload .......][payload ]
//!  scattered  [eth ip tcp]  [payload ....][....... payload .......][payload ]
//! ```
//!
//! A packet that fits lies in one chunk, unless headers are to have one of their own. Behind the
//! first chunk there is nothing but payload, so the checksum, which stands in the headers, can be
//! completed before any chunk is given away.

use batch::{Checksum, PacketView, Payload};
use device::lowering::complete_checksum_apart;

/// The chunks of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Division {
    /// Bytes of the first of them: all headers, and as much payload as goes with them.
    pub(super) first_len: usize,
    /// How many there are.
    pub(super) chunks: usize,
}

impl Division {
    /// That of a packet among chunks of `chunk_len` bytes; `scatters`: payload is kept apart.
    pub(super) fn of(packet: &PacketView<'_>, chunk_len: usize, scatters: bool) -> Self {
        Self::of_lens(packet.header_len(), packet.payload_len(), chunk_len, scatters)
    }

    pub(super) fn of_lens(
        header_len: usize,
        payload_len: usize,
        chunk_len: usize,
        scatters: bool,
    ) -> Self {
        let with_headers = if scatters { 0 } else { chunk_len.saturating_sub(header_len) };
        let with_headers = with_headers.min(payload_len);
        Self {
            first_len: header_len + with_headers,
            chunks: 1 + (payload_len - with_headers).div_ceil(chunk_len),
        }
    }
}

/// A packet on its way into chunks.
#[derive(Debug)]
pub(super) struct Divided<'a> {
    packet: PacketView<'a>,
    payload: Payload<'a>,
    /// What is left of the last piece of the payload.
    piece: &'a [u8],
}

impl<'a> Divided<'a> {
    /// Nothing of the packet is written yet.
    pub(super) fn new(packet: PacketView<'a>) -> Self {
        Self { packet, payload: packet.payload(), piece: &[] }
    }

    /// Fills the first chunk: the headers, with a checksum that is complete, and payload to the end of
    /// `chunk`. `None` where the headers do not fit, or where the checksum does not lie in them.
    pub(super) fn begin(&mut self, chunk: &mut [u8]) -> Option<usize> {
        let header = self.packet.copy_header(chunk)?;
        if let Checksum::Partial { offset } = self.packet.attributes().checksum {
            let start = self.packet.transport_offset();
            complete_checksum_apart(header, self.packet.payload(), start, offset)?;
        }
        let header_len = header.len();
        Some(header_len + self.go_on(&mut chunk[header_len..]))
    }

    /// Fills a further chunk with what comes next, and says how much that was.
    pub(super) fn go_on(&mut self, chunk: &mut [u8]) -> usize {
        let mut len = 0;
        while len < chunk.len() {
            if self.piece.is_empty() {
                match self.payload.next() {
                    Some(piece) => self.piece = piece,
                    None => break,
                }
            }
            let (now, later) = self.piece.split_at(self.piece.len().min(chunk.len() - len));
            chunk[len..len + now.len()].copy_from_slice(now);
            (self.piece, len) = (later, len + now.len());
        }
        len
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use batch::{Attributes, Block, HeaderLayout, Limits, Multidata};
    use bytes::Bytes;
    use device::lowering::copy_complete;
    use proptest::prelude::*;

    const HEADER_LEN: usize = 54;

    /// A batch of one packet whose payload is these pieces, with a partial checksum of TCP.
    fn packet_of(pieces: &[Vec<u8>]) -> Multidata {
        let mut batch = Multidata::new(HeaderLayout::default(), Limits::default());
        let checksum = Checksum::Partial { offset: 16 };
        let header = batch.push_packet(20, Attributes { checksum, ..Attributes::default() });
        header.expect("room").fill(7);
        for piece in pieces {
            let block = Block::from(Bytes::copy_from_slice(piece));
            assert!(batch.append_span(&block, 0, piece.len()));
        }
        batch.prepend_network(0, 20).expect("room").0[..20].fill(8);
        batch.prepend(0, 14).expect("room").fill(9);
        batch
    }

    proptest! {
        /// However it is divided, the chunks one behind the other are the packet that one chunk
        /// would hold, none is longer than a chunk, none but the last of its part is shorter, and
        /// headers are alone where that is asked for.
        #[test]
        fn chunks_are_the_packet(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..700), 0..8),
            chunk_len in prop::sample::select(vec![64_usize, 128, 256, 2_048]),
            scatters in any::<bool>(),
        ) {
            let batch = packet_of(&pieces);
            let packet = batch.packet(0).expect("one");
            let mut whole = vec![0; packet.len()];
            copy_complete(&packet, &mut whole).expect("it fits");

            let division = Division::of(&packet, chunk_len, scatters);
            let mut divided = Divided::new(packet);
            let mut chunks = vec![vec![0; division.first_len]];
            prop_assert_eq!(divided.begin(&mut chunks[0]), Some(division.first_len));
            for _ in 1..division.chunks {
                let mut chunk = vec![0; chunk_len];
                let len = divided.go_on(&mut chunk);
                chunk.truncate(len);
                chunks.push(chunk);
            }
            prop_assert_eq!(divided.go_on(&mut [0; 64]), 0, "something was left");
            prop_assert_eq!(chunks.concat(), whole);
            let (last, before) = chunks.split_last().expect("one at least");
            prop_assert!(!last.is_empty() && last.len() <= chunk_len);
            let full = before.iter().skip(usize::from(scatters));
            prop_assert!(full.into_iter().all(|chunk| chunk.len() == chunk_len));
            if scatters {
                prop_assert_eq!(chunks[0].len(), HEADER_LEN);
            }
        }
    }

    #[test]
    fn a_packet_takes_as_many_chunks_as_it_needs() {
        let chunks = |payload_len, scatters| {
            Division::of_lens(HEADER_LEN, payload_len, 2_048, scatters).chunks
        };
        assert_eq!(
            [0, 1, 1_994, 1_995, 4_042, 4_043].map(|len| chunks(len, false)),
            [1, 1, 1, 2, 2, 3]
        );
        assert_eq!(
            [0, 1, 2_048, 2_049, 4_096, 4_097].map(|len| chunks(len, true)),
            [1, 2, 2, 3, 3, 4]
        );
    }
}
