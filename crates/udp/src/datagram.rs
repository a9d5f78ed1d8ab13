//! Datagrams on their way out.

use batch::{Attributes, Checksum, Chunks, Multidata};
use wire::UdpRepr;

/// Longest payload in bytes that the header's length field can express. Over IPv4 the network
/// header takes another 20 from it: 65,507.
pub const PAYLOAD_LEN_MAX: usize = u16::MAX as usize - UdpRepr::LEN;

/// Adds a datagram to the batch; its checksum is left to the network layer.
///
/// Says whether there was room; where not, or where the payload is longer than
/// [`PAYLOAD_LEN_MAX`], the batch has not changed.
#[must_use]
pub fn push_datagram(
    batch: &mut Multidata,
    source_port: u16,
    destination_port: u16,
    payload: &Chunks,
) -> bool {
    let payload_len = payload.len();
    if payload_len > PAYLOAD_LEN_MAX {
        return false;
    }
    let packets = batch.len();
    let checksum = Checksum::Missing { offset: UdpRepr::CHECKSUM_OFFSET };
    let attributes = Attributes { checksum, ..Attributes::default() };
    let Some(header) = batch.push_packet(UdpRepr::LEN, attributes) else { return false };
    UdpRepr { source_port, destination_port, payload_len }.emit(header);
    let appended = batch.append_chunks(payload, 0..payload_len);
    if !appended {
        batch.truncate(packets);
    }
    appended
}

#[cfg(test)]
mod tests {
    use super::*;
    use batch::{Block, Chunk, HeaderLayout, Limits};
    use bytes::Bytes;
    use proptest::prelude::*;
    use wire::UdpView;

    fn chunk(bytes: &[u8]) -> Chunks {
        Chunk::whole(Block::from(Bytes::copy_from_slice(bytes))).into()
    }

    proptest! {
        #[test]
        fn what_is_pushed_is_what_is_parsed(
            (source_port, destination_port) in any::<(u16, u16)>(),
            payload in proptest::collection::vec(any::<u8>(), 0..100),
            padding in 0_usize..9,
        ) {
            let mut batch = Multidata::default();
            prop_assert!(push_datagram(&mut batch, source_port, destination_port, &chunk(&payload)));
            let packet = batch.packet(0).expect("one packet");
            let checksum = Checksum::Missing { offset: 6 };
            prop_assert_eq!(packet.attributes().checksum, checksum);
            let mut bytes = vec![0xee; packet.len() + padding];
            prop_assert_eq!(packet.copy_to(&mut bytes), Some(8 + payload.len()));
            let view = UdpView::parse(&bytes).expect("a sound datagram");
            prop_assert_eq!((view.source_port(), view.destination_port()), (source_port, destination_port));
            prop_assert_eq!(view.payload(), &payload[..]);
            prop_assert_eq!(view.checksum(), 0, "nobody has filled it in yet");
        }
    }

    #[test]
    fn a_refused_datagram_leaves_the_batch_as_it_was() {
        let limits = Limits { packets: 3, blocks: 1, payload_bytes: 10 };
        let mut batch = Multidata::new(HeaderLayout::default(), limits);
        assert!(push_datagram(&mut batch, 1, 2, &chunk(b"12345678")));
        assert!(!push_datagram(&mut batch, 1, 2, &chunk(b"123")), "too many bytes");
        assert!(!push_datagram(&mut batch, 1, 2, &chunk(b"1")), "too many blocks");
        assert_eq!((batch.len(), batch.payload_bytes()), (1, 8));
        assert!(push_datagram(&mut batch, 1, 2, &chunk(b"")));
        assert!(push_datagram(&mut batch, 1, 2, &chunk(b"")));
        assert!(!push_datagram(&mut batch, 1, 2, &chunk(b"")), "too many packets");
        assert_eq!(batch.len(), 3);
    }

    #[test]
    fn the_longest_payload_is_what_the_length_field_holds() {
        let mut batch = Multidata::default();
        let long = chunk(&vec![0; PAYLOAD_LEN_MAX + 1]);
        assert!(!push_datagram(&mut batch, 1, 2, &long));
        let fits = chunk(&vec![0; PAYLOAD_LEN_MAX]);
        assert!(push_datagram(&mut batch, 1, 2, &fits));
        assert_eq!(batch.packet(0).expect("one packet").len(), 65_535);
    }
}
