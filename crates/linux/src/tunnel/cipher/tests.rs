use super::*;
use batch::{Attributes, Block, HeaderLayout, Limits, Multidata};
use bytes::Bytes;
use chacha20poly1305::aead::inout::InOutBuf;
use proptest::prelude::*;

const KEYS: ChaChaKeys = ChaChaKeys { seal: [0x42; 32], open: [0x17; 32] };

/// A batch of one packet: `bytes` with a header of `header_len`, the payload in pieces that end at
/// `cuts`, each at some place in a block of its own.
fn packet(bytes: &[u8], header_len: usize, cuts: &[usize]) -> Multidata {
    let limits = Limits { blocks: 1_000, ..Limits::default() };
    let mut batch = Multidata::new(HeaderLayout::default(), limits);
    let header = batch.push_packet(header_len, Attributes::default()).expect("room");
    let (first, payload) = bytes.split_at(header_len);
    header.copy_from_slice(first);
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (payload.len() + 1)).collect();
    cuts.push(payload.len());
    cuts.sort_unstable();
    let mut start = 0;
    for cut in cuts {
        let mut block = vec![0xee; 7];
        block.extend_from_slice(&payload[start..cut]);
        let block = Block::from(Bytes::from(block));
        assert!(batch.append_span(&block, 7, cut - start));
        start = cut;
    }
    batch
}

fn seal(transform: &mut dyn Transform, batch: &Multidata) -> Vec<u8> {
    let packet = batch.packet(0).expect("one");
    let mut out = vec![0xaa; packet.len() + transform.overhead_bytes() + 9];
    let len = transform.seal(&packet, &mut out).expect("room for it");
    assert!(out[len..].iter().all(|byte| *byte == 0xaa), "beyond its end nothing is written");
    out.truncate(len);
    out
}

fn opened(transform: &mut dyn Transform, datagram: &[u8]) -> Result<Vec<u8>, DropReason> {
    let mut datagram = datagram.to_vec();
    transform.open(&mut datagram).map(|range| datagram[range].to_vec())
}

#[test]
fn what_is_sealed_is_what_the_rfc_makes_of_it() {
    let text: Vec<u8> = (0..200).collect();
    let mut ours = ChaChaPoly::new(&KEYS);
    for counter in 0_u64..3 {
        let sealed = seal(&mut ours, &packet(&text, 40, &[10, 90]));
        let cipher = ChaCha20Poly1305::new(&KEYS.seal.into());
        let mut nonce = [0; 12];
        nonce[4..].copy_from_slice(&counter.to_be_bytes());
        let mut expected = text.clone();
        let tag = cipher
            .encrypt_inout_detached(&nonce.into(), &[], InOutBuf::from(&mut expected[..]))
            .expect("short enough");
        assert_eq!(sealed, [&counter.to_be_bytes()[..], &expected, &tag].concat());
    }
}

#[test]
fn each_datagram_passes_once_and_only_at_the_other_end() {
    let (mut near, mut far) = (ChaChaPoly::new(&KEYS), ChaChaPoly::new(&KEYS.swapped()));
    let text = [7; 60];
    let sealed: Vec<Vec<u8>> = (0..3).map(|_| seal(&mut near, &packet(&text, 20, &[]))).collect();
    assert_eq!(opened(&mut far, &sealed[2]), Ok(text.to_vec()));
    assert_eq!(opened(&mut far, &sealed[0]), Ok(text.to_vec()), "late is not too late");
    assert_eq!(opened(&mut far, &sealed[2]), Err(DropReason::TunnelReplayed));
    assert_eq!(opened(&mut near, &sealed[1]), Err(DropReason::TunnelForged), "sent back");
    assert_eq!(opened(&mut far, &sealed[1]), Ok(text.to_vec()));
    for len in 0..=24 {
        assert_eq!(opened(&mut far, &sealed[1][..len]), Err(DropReason::Truncated), "{len}");
    }
    let mut forged = sealed[1].clone();
    forged[7] = 9;
    assert_eq!(opened(&mut far, &forged), Err(DropReason::TunnelForged), "another counter");
    let next = seal(&mut near, &packet(&text, 20, &[]));
    assert!(opened(&mut far, &next).is_ok(), "a forged counter must not move the window");
}

#[test]
fn a_counter_that_is_used_up_seals_nothing() {
    let mut near = ChaChaPoly::new(&KEYS);
    near.counter = u64::MAX - 1;
    let batch = packet(&[1; 30], 20, &[]);
    assert!(!seal(&mut near, &batch).is_empty());
    assert_eq!(near.seal(&batch.packet(0).expect("one"), &mut [0; 99]), None);
}

#[test]
fn keys_are_not_shown() {
    assert_eq!(format!("{KEYS:?}"), "ChaChaKeys");
    assert!(!format!("{:?}", ChaChaPoly::new(&KEYS)).contains("66"));
    let (one, other) =
        (ChaChaKeys::generate().expect("bytes"), ChaChaKeys::generate().expect("bytes"));
    assert!(one.seal != one.open && one.seal != other.seal);
}

proptest! {
    #[test]
    fn pieces_make_no_difference_and_opening_gives_the_packet_again(
        bytes in prop::collection::vec(any::<u8>(), 1..3_000),
        header_len in 0_usize..100,
        cuts in prop::collection::vec(any::<usize>(), 0..9),
        flip in any::<prop::sample::Index>(),
    ) {
        let header_len = header_len.min(bytes.len());
        let mut cipher = ChaChaPoly::new(&KEYS);
        let transforms: [(&mut dyn Transform, &mut dyn Transform); 2] = [
            (&mut cipher, &mut ChaChaPoly::new(&KEYS.swapped())),
            (&mut device::transform::Null, &mut device::transform::Null),
        ];
        for (near, far) in transforms {
            let sealed = seal(near, &packet(&bytes, header_len, &cuts));
            prop_assert_eq!(sealed.len(), bytes.len() + near.overhead_bytes());
            if near.is_authenticated() {
                let whole = seal(&mut ChaChaPoly::new(&KEYS), &packet(&bytes, header_len, &[]));
                prop_assert_eq!(&sealed, &whole);
                let mut forged = sealed.clone();
                forged[flip.index(sealed.len())] ^= 1 << (header_len % 8);
                prop_assert_eq!(opened(far, &forged), Err(DropReason::TunnelForged));
            }
            prop_assert_eq!(opened(far, &sealed), Ok(bytes.clone()));
        }
    }
}
