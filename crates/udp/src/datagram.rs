//! Datagrams on their way through a batch.

use batch::{Attributes, Checksum, Chunk, Multidata};
use core::ops::Range;
use counters::DropReason;
use wire::{Malformed, UdpRepr, UdpView};

/// Longest payload in bytes that the header's length field can express. Over IPv4 the network
/// header takes another 20 from it: 65,507.
pub const PAYLOAD_LEN_MAX: usize = u16::MAX as usize - UdpRepr::LEN;

/// A received header, and what it says of the bytes behind it. Ranges are in bytes from the start
/// of the header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The sender's port; 0 where the sender expects no answer.
    pub source_port: u16,
    /// The receiver's port.
    pub destination_port: u16,
    /// Header and payload: what the checksum covers. The packet may be longer.
    pub datagram: Range<usize>,
    /// The payload alone.
    pub payload: Range<usize>,
    /// The sender computed a checksum, which must be verified. Over IPv4 it may have chosen not to
    /// (RFC 768); over IPv6 a datagram without must be dropped (RFC 8200, 8.1), unless this is the
    /// outside of a tunnel (RFC 6935), which this stack does not terminate.
    pub has_checksum: bool,
}

/// Reads the header at the front of `transport`, which is what an IP packet carries.
///
/// # Errors
/// [`DropReason::Truncated`] where there are fewer bytes than the header or its length says,
/// [`DropReason::MalformedUdp`] where the length does not even cover the header.
pub fn parse_datagram(transport: &[u8]) -> Result<Header, DropReason> {
    let view = UdpView::parse(transport).map_err(|malformed| match malformed {
        Malformed::Truncated => DropReason::Truncated,
        _ => DropReason::MalformedUdp,
    })?;
    Ok(Header {
        source_port: view.source_port(),
        destination_port: view.destination_port(),
        datagram: 0..view.len(),
        payload: UdpRepr::LEN..view.len(),
        has_checksum: view.checksum() != 0,
    })
}

/// Adds a datagram to the batch; its checksum is left to the network layer, whatever `attributes`
/// says of it. Datagrams of one length to one peer may share a run number.
///
/// Says whether there was room; where not, or where the payload is longer than
/// [`PAYLOAD_LEN_MAX`], the batch has not changed.
#[must_use]
pub fn push_datagram(
    batch: &mut Multidata,
    source_port: u16,
    destination_port: u16,
    payload: &Chunk,
    attributes: Attributes,
) -> bool {
    let payload_len = payload.len();
    if payload_len > PAYLOAD_LEN_MAX {
        return false;
    }
    let packets = batch.len();
    let checksum = Checksum::Missing { offset: UdpRepr::CHECKSUM_OFFSET };
    let attributes = Attributes { checksum, ..attributes };
    let Some(header) = batch.push_packet(UdpRepr::LEN, attributes) else { return false };
    UdpRepr { source_port, destination_port, payload_len }.emit(header);
    let appended = batch.append_span(payload.block(), payload.offset(), payload_len);
    if !appended {
        batch.truncate(packets);
    }
    appended
}

#[cfg(test)]
mod tests {
    use super::*;
    use batch::{Block, HeaderLayout, Limits};
    use bytes::Bytes;
    use proptest::prelude::*;

    fn chunk(bytes: &[u8]) -> Chunk {
        Chunk::whole(Block::from(Bytes::copy_from_slice(bytes)))
    }

    proptest! {
        #[test]
        fn what_is_pushed_is_what_is_parsed(
            (source_port, destination_port) in any::<(u16, u16)>(),
            payload in proptest::collection::vec(any::<u8>(), 0..100),
            padding in 0_usize..9,
        ) {
            let mut batch = Multidata::default();
            let attributes = Attributes { owner: 3, run: 4, ..Attributes::default() };
            prop_assert!(
                push_datagram(&mut batch, source_port, destination_port, &chunk(&payload), attributes)
            );
            let packet = batch.packet(0).expect("one packet");
            let checksum = Checksum::Missing { offset: 6 };
            prop_assert_eq!(packet.attributes(), Attributes { checksum, ..attributes });
            let mut bytes = vec![0xee; packet.len() + padding];
            prop_assert_eq!(packet.copy_to(&mut bytes), Some(8 + payload.len()));
            let header = parse_datagram(&bytes).expect("a sound datagram");
            prop_assert_eq!((header.source_port, header.destination_port), (source_port, destination_port));
            prop_assert_eq!(&bytes[header.payload], &payload[..]);
            prop_assert_eq!(header.datagram, 0..8 + payload.len());
            prop_assert!(!header.has_checksum, "nobody has filled it in yet");
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(header) = parse_datagram(&bytes) {
                prop_assert!(header.payload.end <= bytes.len() && header.payload.start == 8);
            }
        }
    }

    #[test]
    fn a_refused_datagram_leaves_the_batch_as_it_was() {
        let limits = Limits { packets: 3, blocks: 1, payload_bytes: 10 };
        let mut batch = Multidata::new(HeaderLayout::default(), limits);
        let attributes = Attributes::default();
        assert!(push_datagram(&mut batch, 1, 2, &chunk(b"12345678"), attributes));
        assert!(!push_datagram(&mut batch, 1, 2, &chunk(b"123"), attributes), "too many bytes");
        assert!(!push_datagram(&mut batch, 1, 2, &chunk(b"1"), attributes), "too many blocks");
        assert_eq!((batch.len(), batch.payload_bytes()), (1, 8));
        assert!(push_datagram(&mut batch, 1, 2, &chunk(b""), attributes));
        assert!(push_datagram(&mut batch, 1, 2, &chunk(b""), attributes));
        assert!(!push_datagram(&mut batch, 1, 2, &chunk(b""), attributes), "too many packets");
        assert_eq!(batch.len(), 3);
    }

    #[test]
    fn the_longest_payload_is_what_the_length_field_holds() {
        let mut batch = Multidata::default();
        let long = chunk(&vec![0; PAYLOAD_LEN_MAX + 1]);
        assert!(!push_datagram(&mut batch, 1, 2, &long, Attributes::default()));
        let mut fits = long;
        fits.truncate(PAYLOAD_LEN_MAX);
        assert!(push_datagram(&mut batch, 1, 2, &fits, Attributes::default()));
        assert_eq!(batch.packet(0).expect("one packet").len(), 65_535);
    }

    #[test]
    fn reads_lengths_as_they_are_meant() {
        assert_eq!(parse_datagram(&[0; 7]), Err(DropReason::Truncated));
        assert_eq!(parse_datagram(&[0; 8]), Err(DropReason::MalformedUdp));
        assert_eq!(parse_datagram(&[0, 1, 0, 2, 0, 9, 0, 0]), Err(DropReason::Truncated));
        let header = parse_datagram(&[0, 1, 0, 2, 0, 8, 0, 7]).expect("an empty datagram");
        assert!(header.payload.is_empty() && header.has_checksum);
    }
}
