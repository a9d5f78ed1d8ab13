//! A run of datagrams is cut into what its sender would have sent.

use super::*;
use crate::lowering::{DATAGRAMS_MAX, DatagramRun};

const LINK: [u8; 14] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x00];

/// A frame with `payload`, its checksum complete, or the pseudo-header's sum alone.
fn frame(ipv6: bool, identification: u16, payload: &[u8], is_complete: bool) -> Vec<u8> {
    let udp_len = (8 + payload.len()) as u16;
    let mut frame = LINK.to_vec();
    let (network, addresses) = (frame.len(), if ipv6 { 8..40 } else { 12..20 });
    if ipv6 {
        frame.extend([0x60, 0, 0, 0]);
        frame.extend(udp_len.to_be_bytes());
        frame.extend([17, 64]);
        frame.extend((0..32).map(|at| at * 7));
    } else {
        frame.extend([0x45, 0]);
        frame.extend((20 + udp_len).to_be_bytes());
        frame.extend(identification.to_be_bytes());
        frame.extend([0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        let sum = !checksum::sum(&frame[network..]);
        frame[network + 10..network + 12].copy_from_slice(&sum.to_be_bytes());
    }
    let mut pseudo = checksum::Accumulator::new();
    pseudo.add(&frame[network + addresses.start..network + addresses.end]);
    pseudo.add_u16(17);
    pseudo.add_u16(udp_len);
    let transport = frame.len();
    frame.extend([0x12, 0x34, 0, 9]);
    frame.extend(udp_len.to_be_bytes());
    frame.extend(pseudo.sum().to_be_bytes());
    frame.extend(payload);
    if is_complete {
        complete_checksum(&mut frame, transport, UDP_CHECKSUM).expect("a datagram");
    }
    frame
}

fn cut(run: &DatagramRun<'_>) -> Vec<Vec<u8>> {
    let one = |index| {
        let mut out = vec![0xa5; run.len_of(index)];
        run.write(index, &mut out).expect("room");
        out
    };
    (0..run.count()).map(one).collect()
}

#[test]
fn each_datagram_has_headers_of_its_own() {
    let payload: Vec<u8> = (0..3_333).map(|at| (at * 31 % 251) as u8).collect();
    for ipv6 in [false, true] {
        // What was summed in the run does not matter: a merged one may hold either.
        for is_complete in [false, true] {
            let mut merged = frame(ipv6, 0xffff, &payload, is_complete);
            merged.extend([0; 9]);
            let run = DatagramRun::parse(&merged, 14, 1_000).expect("a run");
            let expected: Vec<_> = payload
                .chunks(1_000)
                .enumerate()
                .map(|(at, part)| frame(ipv6, 0xffff_u16.wrapping_add(at as u16), part, false))
                .collect();
            assert_eq!(cut(&run), expected, "what lies behind the packet is no part of it");
        }
    }
}

#[test]
fn a_run_of_one_is_the_datagram() {
    let merged = frame(false, 7, &[1; 100], false);
    let run = DatagramRun::parse(&merged, 14, 1_000).expect("a run");
    assert_eq!((run.count(), cut(&run)), (1, vec![merged.clone()]));
    assert_eq!(run.write(0, &mut [0; 141]), None, "there is no room");
}

#[test]
fn what_is_no_run_is_refused() {
    let good = frame(false, 7, &[1; 600], false);
    let parse = |frame: &[u8], len| DatagramRun::parse(frame, 14, len).map(|run| run.count());
    assert_eq!(parse(&good, 3), Some(200));
    assert_eq!(parse(&good, 0), None, "datagrams of no length");
    assert_eq!((parse(&good, 2), DATAGRAMS_MAX), (None, 256), "too many");
    assert_eq!(parse(&good[..good.len() - 1], 100), None, "cut short");
    let changed = |at: usize, value: u8| {
        let mut frame = good.clone();
        frame[14 + at] = value;
        parse(&frame, 100)
    };
    assert_eq!(changed(9, 6), None, "TCP");
    assert_eq!(changed(6, 0x20), None, "a fragment");
    assert_eq!(changed(0, 0x44), None, "a header that is none");
    assert_eq!(changed(2, 0xff), None, "longer than the frame");
}

proptest! {
    #[test]
    fn no_bytes_make_cutting_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        network in 0..40_usize,
        (total_len, payload_len) in (0..200_u16, any::<u16>()),
        first in prop_oneof![Just(0x45_u8), Just(0x60), any::<u8>()],
    ) {
        let mut bytes = bytes;
        if let Some(header) = bytes.get_mut(network..network + 12) {
            header[0] = first;
            header[2..4].copy_from_slice(&total_len.to_be_bytes());
            header[6] &= 0x11;
            header[9] = 17;
        }
        if let Some(run) = DatagramRun::parse(&bytes, network, payload_len) {
            let lens = cut(&run).iter().map(Vec::len).sum::<usize>();
            prop_assert!(run.count() <= DATAGRAMS_MAX && lens <= bytes.len() * run.count());
        }
    }
}
