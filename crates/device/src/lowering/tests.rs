//! Lowering loses nothing: what an engine makes of the super-frames is what the batch held.

use super::*;
use batch::{Attributes, Block, HeaderLayout, Limits};
use bytes::Bytes;
use proptest::prelude::*;

mod blocks;
mod datagrams;

const LIMITS: Segmentation =
    Segmentation { tcp_ipv4: true, tcp_ipv6: true, len_bytes_max: IP_LEN_MAX };

/// A flow's worth of packets.
#[derive(Clone, Debug)]
struct Flow {
    ipv6: bool,
    udp: bool,
    /// Checksums are complete, not left to the device.
    complete: bool,
    /// Packets that begin another run, for no reason that shows.
    run_ends: Vec<usize>,
    /// Link header length in bytes.
    link_len: usize,
    /// TCP option words of four bytes.
    option_words: usize,
    segment_len: usize,
    payload_len: usize,
    /// Where the payload changes from one block to the next, in bytes.
    block_len: usize,
    identification: u16,
    sequence: u32,
    /// Flags of single packets, by index.
    flags: Vec<(usize, u8)>,
    /// Headers are written only where no other implies them.
    implied: bool,
}

impl Default for Flow {
    fn default() -> Self {
        Self {
            ipv6: false,
            udp: false,
            complete: false,
            run_ends: Vec::new(),
            link_len: 14,
            option_words: 3,
            segment_len: 1_448,
            payload_len: 10_000,
            block_len: 65_536,
            identification: 0xfffe,
            sequence: 0xffff_ff00,
            flags: Vec::new(),
            implied: false,
        }
    }
}

impl Flow {
    fn header_len(&self) -> usize {
        if self.udp { 8 } else { 20 + 4 * self.option_words }
    }

    fn protocol(&self) -> u8 {
        if self.udp { 17 } else { PROTOCOL_TCP }
    }

    fn checksum_offset(&self) -> u8 {
        if self.udp { UDP_CHECKSUM } else { TCP_CHECKSUM }
    }

    /// Whether the headers of packet `index` follow from those of the one before it: TCP's, of a whole
    /// segment behind a whole segment, both without a flag, in one block, with the sum left open.
    fn is_implied(&self, index: usize) -> bool {
        let end = (index + 1) * self.segment_len;
        let is_plain = |index| self.flags.iter().all(|(at, _)| *at != index);
        let is_in_one_block =
            (end - self.segment_len) / self.block_len == (end - 1) / self.block_len;
        self.implied
            && !self.udp
            && !self.complete
            && index > 0
            && end <= self.payload_len
            && is_plain(index)
            && is_plain(index - 1)
            && is_in_one_block
    }
}

/// Flows of TCP as a stack with offload sends them.
fn flows() -> impl Strategy<Value = Flow> {
    let flags = prop_oneof![Just(PSH), Just(FIN), Just(CWR), Just(URG), Just(PSH | FIN)];
    (
        (any::<bool>(), prop_oneof![Just(0_usize), Just(14), Just(18)], 0..11_usize),
        (1..1_461_usize, 0..90_000_usize, 100..70_000_usize),
        (
            any::<u16>(),
            any::<u32>(),
            prop::collection::vec((0..60_usize, flags), 0..4),
            any::<bool>(),
        ),
    )
        .prop_map(|((ipv6, link_len, option_words), (segment, payload, block), rest)| Flow {
            ipv6,
            link_len,
            option_words,
            segment_len: segment,
            // At most 200 packets.
            payload_len: payload.min(segment * 200),
            block_len: block,
            identification: rest.0,
            sequence: rest.1,
            flags: rest.2,
            implied: rest.3,
            ..Flow::default()
        })
}

/// Flows of either protocol and in either checksum state, in runs that may end anywhere.
fn any_flows() -> impl Strategy<Value = Flow> {
    let run_ends = prop::collection::vec(0..60_usize, 0..4);
    // Nothing to send, too little for a second packet, or what the flow says.
    let payload_max = prop_oneof![Just(0_usize), Just(700), Just(usize::MAX)];
    (flows(), any::<(bool, bool)>(), run_ends, payload_max).prop_map(
        |(flow, (udp, complete), run_ends, payload_max)| Flow {
            udp,
            complete,
            run_ends,
            payload_len: flow.payload_len.min(payload_max).min(60 * flow.segment_len),
            ..flow
        },
    )
}

/// The transport header of packet `index`, its payload `payload` of the flow's.
fn transport_header(flow: &Flow, index: usize, payload: Range<usize>, out: &mut [u8]) {
    let offset = payload.start;
    if flow.udp {
        out[..4].copy_from_slice(&[0x13, 0x89, 0, 53]);
        out[4..6].copy_from_slice(&(8 + payload.len() as u16).to_be_bytes());
        return out[6..].fill(0);
    }
    out.fill(0x01);
    out[..2].copy_from_slice(&5_001_u16.to_be_bytes());
    out[2..4].copy_from_slice(&80_u16.to_be_bytes());
    out[4..8].copy_from_slice(&flow.sequence.wrapping_add(offset as u32).to_be_bytes());
    out[12] = ((out.len() / 4) << 4) as u8;
    let flags = flow.flags.iter().filter(|(at, _)| *at == index);
    out[13] = flags.fold(0x10, |all, (_, flags)| all | flags);
    out[16..18].fill(0);
}

/// The IP header of a packet and the sum of its pseudo-header.
fn network_header(flow: &Flow, index: usize, transport_len: usize, out: &mut [u8]) -> u16 {
    let mut pseudo = checksum::Accumulator::new();
    pseudo.add_u16(u16::from(flow.protocol()));
    pseudo.add_u16(transport_len as u16);
    out.fill(0);
    if flow.ipv6 {
        out[0] = 0x60;
        out[4..6].copy_from_slice(&(transport_len as u16).to_be_bytes());
        out[6] = flow.protocol();
        out[7] = 64;
        out[8..40].copy_from_slice(&core::array::from_fn::<u8, 32, _>(|at| at as u8 * 7));
        pseudo.add(&out[8..40]);
    } else {
        out[0] = 0x45;
        out[2..4].copy_from_slice(&(20 + transport_len as u16).to_be_bytes());
        let identification = flow.identification.wrapping_add(index as u16);
        out[4..6].copy_from_slice(&identification.to_be_bytes());
        out[6] = 0x40;
        out[8] = 64;
        out[9] = flow.protocol();
        out[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        let checksum = !checksum::sum(out);
        out[10..12].copy_from_slice(&checksum.to_be_bytes());
        pseudo.add(&out[12..20]);
    }
    pseudo.sum()
}

/// Appends the flow.
fn build(batch: &mut Multidata, flow: &Flow) {
    let payload: Vec<u8> = (0..flow.payload_len).map(|at| (at * 31 + at / 257) as u8).collect();
    let blocks: Vec<Block> = payload
        .chunks(flow.block_len)
        .map(|part| Block::from(Bytes::copy_from_slice(part)))
        .collect();
    let checksum = match flow.complete {
        true => Checksum::Complete,
        false => Checksum::Partial { offset: flow.checksum_offset() },
    };
    let run = batch.next_run();
    let mut attributes = Attributes { run, checksum, ..Attributes::default() };
    let (header_len, field) = (flow.header_len(), flow.checksum_offset() as usize);
    for index in 0..flow.payload_len.div_ceil(flow.segment_len).max(1) {
        let start = index * flow.segment_len;
        let end = flow.payload_len.min(start + flow.segment_len);
        if flow.run_ends.contains(&index) {
            attributes.run = batch.next_run();
        } else if flow.is_implied(index) {
            let (block, offset) = (start / flow.block_len, start % flow.block_len);
            assert_eq!(batch.push_implied(1, 4, (&blocks[block], offset)), 1);
            continue;
        }
        let header = batch.push_packet(header_len, attributes).expect("room");
        transport_header(flow, index, start..end, header);
        let mut at = start;
        while at < end {
            let (block, offset) = (at / flow.block_len, at % flow.block_len);
            let len = (flow.block_len - offset).min(end - at);
            assert!(batch.append_span(&blocks[block], offset, len));
            at += len;
        }
        let packet = batch.len() - 1;
        let network_len = if flow.ipv6 { 40 } else { 20 };
        let (headers, body) = batch.prepend_network(packet, network_len).expect("headroom");
        let transport_len = header_len + end - start;
        let sum = network_header(flow, index, transport_len, &mut headers[..network_len]);
        let transport = &mut headers[network_len..];
        transport[field..field + 2].copy_from_slice(&sum.to_be_bytes());
        if flow.complete {
            let mut whole = [&*transport, &body.collect::<Vec<_>>().concat()].concat();
            complete_checksum(&mut whole, 0, field as u8).expect("a field");
            transport.copy_from_slice(&whole[..header_len]);
        }
        batch.prepend(packet, flow.link_len).expect("headroom").fill(0xee);
        if !flow.ipv6 {
            batch.count_identification(packet, 4, 10);
        }
    }
}

fn batch_of(flows: &[Flow]) -> Multidata {
    let limits = Limits { packets: 1_000, blocks: 4_000, payload_bytes: 1 << 24 };
    let mut batch = Multidata::new(HeaderLayout::default(), limits);
    for flow in flows {
        build(&mut batch, flow);
    }
    batch
}

/// The packets of a batch as they leave a device that completes checksums.
fn sent_singly(batch: &Multidata) -> Vec<Vec<u8>> {
    batch
        .packets()
        .map(|view| {
            let mut packet = vec![0; view.len()];
            copy_complete(&view, &mut packet).expect("room, and a field");
            packet
        })
        .collect()
}

/// The packets that come out of the engine behind a device that takes super-frames, or none.
fn sent_lowered(
    batch: &Multidata,
    segmentation: Option<Segmentation>,
) -> (Vec<Vec<u8>>, Vec<SuperFrame>) {
    let frames: Vec<SuperFrame> = frames(batch, 0, segmentation).collect();
    let mut packets = Vec::new();
    for frame in &frames {
        let mut scratch = [0; HEADER_LEN_MAX];
        let mut bytes = frame.header(batch, &mut scratch).expect("a header").to_vec();
        let head = batch.packet(frame.packets.start).expect("in the batch");
        for piece in batch.payload_of(frame.packets.clone()) {
            bytes.extend_from_slice(piece);
        }
        match head.attributes().checksum {
            Checksum::Partial { offset: TCP_CHECKSUM } => {
                let network = head.link_header_len();
                let len_max = segmentation.map_or(0, |limits| limits.len_bytes_max);
                assert!(bytes.len() - network <= len_max || !frame.is_merged());
                packets.extend(expand(&bytes, network, frame.segment_len).expect("a TCP frame"));
                continue;
            }
            Checksum::Partial { offset } => {
                complete_checksum(&mut bytes, head.transport_offset(), offset).expect("a field");
            }
            _ => {}
        }
        assert!(!frame.is_merged(), "an engine knows TCP only, and makes its checksums");
        packets.push(bytes);
    }
    (packets, frames)
}

proptest! {
    #[test]
    fn the_lowered_form_expands_to_the_same_packets(
        flows in prop::collection::vec(prop_oneof![flows(), any_flows()], 1..4),
        len_bytes_max in 1_000..70_000_usize,
        splits in any::<bool>(),
    ) {
        let batch = batch_of(&flows);
        let limits = Segmentation { len_bytes_max, ..LIMITS };
        let (lowered, frames) = sent_lowered(&batch, splits.then_some(limits));
        prop_assert_eq!(lowered, sent_singly(&batch));
        let mut next = 0;
        for frame in frames {
            prop_assert_eq!(frame.packets.start, next);
            next = frame.packets.end;
        }
        prop_assert_eq!(next, batch.len());
    }

    #[test]
    fn a_run_that_is_written_once_is_lowered_as_one_that_is_written_out(
        flows in prop::collection::vec(prop_oneof![flows(), any_flows()], 1..4),
        len_bytes_max in 1_000..70_000_usize,
        splits in any::<bool>(),
    ) {
        let flows = |implied| -> Vec<Flow> {
            flows.iter().map(|flow| Flow { implied, ..flow.clone() }).collect()
        };
        let segmentation = splits.then_some(Segmentation { len_bytes_max, ..LIMITS });
        let (once, out) = (batch_of(&flows(true)), batch_of(&flows(false)));
        prop_assert_eq!(sent_lowered(&once, segmentation), sent_lowered(&out, segmentation));
        prop_assert_eq!(sent_singly(&once), sent_singly(&out));
        prop_assert!(!once.has_made_headers(), "to lower is not to look at the packets");
    }

    #[test]
    fn completed_checksums_are_those_that_a_receiver_accepts(flow in any_flows()) {
        let batch = batch_of(std::slice::from_ref(&flow));
        for packet in sent_singly(&batch) {
            let ip = &packet[flow.link_len..];
            let (addresses, header_len) = if flow.ipv6 { (8..40, 40) } else { (12..20, 20) };
            let mut all = checksum::Accumulator::new();
            all.add(&ip[addresses]);
            all.add_u16(u16::from(flow.protocol()));
            all.add_u16((ip.len() - header_len) as u16);
            all.add(&ip[header_len..]);
            prop_assert_eq!(all.sum(), 0xffff);
            prop_assert!(flow.ipv6 || checksum::sum(&ip[..20]) == 0xffff);
        }
    }

    #[test]
    fn no_bytes_make_expansion_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        network in 0..40_usize,
        segment_len in any::<u16>(),
        first in prop_oneof![Just(0x45_u8), Just(0x60), any::<u8>()],
    ) {
        let mut bytes = bytes;
        if let Some(byte) = bytes.get_mut(network) {
            *byte = first;
        }
        let _ = expand(&bytes, network, segment_len);
    }
}

#[test]
fn a_run_becomes_super_frames_of_the_longest_length() {
    let batch = batch_of(&[Flow { payload_len: 1_448 * 50, ..Flow::default() }]);
    let frames: Vec<_> = super_frames(&batch, 0, LIMITS).collect();
    // 20 + 32 + 45 * 1,448 = 65,212; one more would exceed 65,535.
    assert_eq!(frames.len(), 2);
    assert_eq!((frames[0].packets.clone(), frames[0].segment_len), (0..45, 1_448));
    assert_eq!((frames[1].packets.clone(), frames[1].payload_len), (45..50, 5 * 1_448));
    let pieces: Vec<_> = batch.payload_of(frames[0].packets.clone()).collect();
    assert_eq!(pieces.len(), 1, "neighbouring spans of one block are one piece");
    assert_eq!(pieces[0].len(), 45 * 1_448);
}

#[test]
fn super_frames_may_begin_within_a_batch() {
    let batch = batch_of(&[Flow::default()]);
    let mut frames = super_frames(&batch, 3, LIMITS).map(|frame| frame.packets);
    assert_eq!((frames.next(), frames.next()), (Some(3..7), None));
    assert_eq!(super_frames(&batch, 7, LIMITS).count(), 0);
    assert_eq!(super_frames(&batch, 99, LIMITS).count(), 0);
}

#[test]
fn flags_end_and_begin_super_frames() {
    let ranges = |flags: &[(usize, u8)]| -> Vec<Range<usize>> {
        let batch = batch_of(&[Flow { flags: flags.to_vec(), ..Flow::default() }]);
        super_frames(&batch, 0, LIMITS).map(|frame| frame.packets).collect()
    };
    let whole = 0..7;
    assert_eq!(ranges(&[]), vec![whole.clone()]);
    assert_eq!(ranges(&[(2, PSH)]), [0..3, 3..7]);
    assert_eq!(ranges(&[(0, PSH)]), [0..1, 1..7]);
    assert_eq!(ranges(&[(0, CWR)]), vec![whole.clone()]);
    assert_eq!(ranges(&[(2, CWR)]), [0..2, 2..7]);
    assert_eq!(ranges(&[(6, PSH | FIN)]), vec![whole]);
}

#[test]
fn what_the_device_does_not_split_goes_singly() {
    let merged = |batch: &Multidata, limits| {
        super_frames(batch, 0, limits).filter(SuperFrame::is_merged).count()
    };
    let mut four = batch_of(&[Flow::default()]);
    let six = batch_of(&[Flow { ipv6: true, ..Flow::default() }]);
    let only_ipv6 = Segmentation { tcp_ipv4: false, ..LIMITS };
    assert_eq!((merged(&four, LIMITS), merged(&six, LIMITS)), (1, 1));
    assert_eq!((merged(&four, only_ipv6), merged(&six, only_ipv6)), (0, 1));
    for packet in 0..four.len() {
        four.set_checksum(packet, Checksum::Complete);
    }
    assert_eq!(merged(&four, LIMITS), 0, "the engine could not make the checksums");
}
