//! Contiguous blocks lose nothing: what is cut from them is what the batch held.

use super::*;

const GARBAGE: u8 = 0xa5;

/// A frame and what the device is told of its checksum.
type Told = (Vec<u8>, Option<PartialChecksum>);

fn modes() -> impl Strategy<Value = Contiguous> {
    let forms = prop_oneof![Just(Contiguous::FRAMES), Just(Contiguous::PAYLOAD)];
    (forms, prop_oneof![1..=FRAMES_MAX, Just(FRAMES_MAX)])
        .prop_map(|(form, frames_max)| form.with_frames_max(frames_max).expect("in range"))
}

/// The packets as a device below gets them, before it completes checksums, with what it is told.
fn uncompleted(batch: &Multidata) -> Vec<Told> {
    let packet = |view: PacketView<'_>| {
        let mut packet = vec![0; view.len()];
        view.copy_to(&mut packet).expect("room for the packet");
        let checksum = match view.attributes().checksum {
            Checksum::Partial { offset } => Some(PartialChecksum {
                transport_offset: view.transport_offset() as u16,
                field_offset: offset,
            }),
            _ => None,
        };
        (packet, checksum)
    };
    batch.packets().map(packet).collect()
}

/// Sends the batch in blocks, looks at each, and cuts it as a device does.
fn sent_in_blocks(
    batch: &Multidata,
    contiguous: Contiguous,
    prefix_len: usize,
) -> (Vec<Told>, Vec<FrameBlock>) {
    let blocks: Vec<FrameBlock> = blocks(batch, 0..batch.len(), contiguous, prefix_len).collect();
    let (mut cut, mut next) = (Vec::new(), 0);
    for block in &blocks {
        assert_eq!(block.packets.start, next);
        next = block.packets.end;
        let count = block.packets.len();
        assert!((1..=contiguous.frames_max()).contains(&count));
        assert!(block.len_bytes <= BLOCK_LEN_MAX || count == 1);
        assert_eq!(block.is_replicated(), contiguous.form() == BlockForm::Payload);

        let mut bytes = vec![GARBAGE; block.len_bytes];
        // A packet without a byte fits everywhere.
        if let Some(short) = bytes.get_mut(1..) {
            assert!(block.lay_out(batch, short).is_none(), "a buffer that is too short");
        }
        bytes.fill(GARBAGE);
        block.lay_out(batch, &mut bytes).expect("as long as it says");
        if block.is_replicated() {
            for (index, frame) in block.packets.clone().zip(block.frames()) {
                let header_len = batch.packet(index).expect("a packet").header().len();
                let gap = &bytes[frame.range][..header_len];
                assert!(gap.iter().all(|byte| *byte == GARBAGE), "a header was carried");
            }
        }
        block.insert_headers(&mut bytes).expect("as long as it says");
        let mut end = 0;
        for frame in block.frames() {
            assert_eq!(frame.range.start % FRAME_ALIGN_BYTES, 0);
            assert!(frame.range.start >= end + prefix_len, "room for the device's own bytes");
            end = frame.range.end;
            cut.push((bytes[frame.range].to_vec(), frame.checksum));
        }
        assert_eq!(end, block.len_bytes);
    }
    assert_eq!(next, batch.len());
    (cut, blocks)
}

proptest! {
    #[test]
    fn what_is_cut_from_blocks_are_the_packets(
        flows in prop::collection::vec(any_flows(), 1..5),
        contiguous in modes(),
        prefix_len in prop_oneof![Just(0_usize), Just(10), Just(12), 0..40_usize],
    ) {
        let batch = batch_of(&flows);
        let (cut, _) = sent_in_blocks(&batch, contiguous, prefix_len);
        prop_assert_eq!(&cut, &uncompleted(&batch));
        let completed: Vec<_> = cut
            .into_iter()
            .map(|(mut frame, checksum)| {
                if let Some(partial) = checksum {
                    let start = partial.transport_offset as usize;
                    complete_checksum(&mut frame, start, partial.field_offset).expect("a field");
                }
                frame
            })
            .collect();
        prop_assert_eq!(completed, sent_singly(&batch));
    }

    /// Whatever the packets are: the headers here are no headers at all, or nearly those of a run.
    #[test]
    fn headers_that_nothing_can_be_made_of_are_carried_as_they_are(
        packets in prop::collection::vec((0..60_usize, 0..40_usize, 0..20_usize, 0..200_usize), 1..60),
        bytes in prop::collection::vec(prop_oneof![Just(0x45_u8), Just(6), Just(17), any::<u8>()], 256),
        contiguous in modes(),
    ) {
        let limits = Limits { packets: 64, blocks: 64, payload_bytes: 1 << 20 };
        let mut batch = Multidata::new(HeaderLayout::default(), limits);
        let block = Block::from(Bytes::from(bytes.clone()));
        for (transport, network, link, payload) in packets {
            let header = batch.push_packet(transport, Attributes::default()).expect("room");
            header.copy_from_slice(&bytes[..transport]);
            assert!(batch.append_span(&block, 3, payload));
            let index = batch.len() - 1;
            let (headers, _) = batch.prepend_network(index, network).expect("headroom");
            headers[..network].copy_from_slice(&bytes[..network]);
            batch.prepend(index, link).expect("headroom").fill(1);
        }
        let (cut, _) = sent_in_blocks(&batch, contiguous, 0);
        prop_assert_eq!(cut, uncompleted(&batch));
    }
}

#[test]
fn a_full_block_is_43_frames_of_a_bulk_flow_cut_by_one_length() {
    let batch = batch_of(&[Flow { payload_len: 1_448 * 100, ..Flow::default() }]);
    for contiguous in [Contiguous::FRAMES, Contiguous::PAYLOAD] {
        let (_, blocks) = sent_in_blocks(&batch, contiguous, 0);
        let counts: Vec<usize> = blocks.iter().map(|block| block.packets.len()).collect();
        assert_eq!(counts, [43, 43, 14]);
        // 42 slots of 1,520 bytes and a frame of 1,514.
        assert_eq!(blocks[0].len_bytes, 65_354);
        for block in &blocks {
            let partial = PartialChecksum { transport_offset: 34, field_offset: 16 };
            let frame = FrameDescriptor { len_bytes: 1_514, checksum: Some(partial) };
            assert_eq!(block.split, Split::Fixed(frame));
        }
    }
    let seven = Contiguous::FRAMES.with_frames_max(7).expect("in range");
    assert_eq!(blocks(&batch, 0..20, seven, 0).count(), 3);
    let mut last = blocks(&batch, 98..200, seven, 0).map(|block| block.packets);
    assert_eq!((last.next(), last.next()), (Some(98..100), None));
    assert_eq!(blocks(&batch, 100..101, seven, 0).count(), 0);
}

#[test]
fn a_last_frame_may_be_shorter_and_every_other_length_takes_a_list() {
    let lens = |payload_lens: &[usize]| {
        let flow = |payload_len: &usize| Flow {
            payload_len: *payload_len,
            segment_len: 1_400,
            ..Flow::default()
        };
        let batch = batch_of(&payload_lens.iter().map(flow).collect::<Vec<_>>());
        let (_, blocks) = sent_in_blocks(&batch, Contiguous::FRAMES, 0);
        assert_eq!(blocks.len(), 1);
        match &blocks[0].split {
            Split::Fixed(frame) => vec![frame.len_bytes as usize - 66],
            Split::Lengths(frames) => {
                frames.iter().map(|frame| frame.len_bytes as usize - 66).collect()
            }
        }
    };
    assert_eq!(lens(&[500, 500, 500]), [500]);
    assert_eq!(lens(&[500, 500, 499]), [500]);
    assert_eq!(lens(&[500, 499, 499]), [500, 499, 499]);
    assert_eq!(lens(&[500, 500, 501]), [500, 500, 501]);
    assert_eq!(lens(&[500, 0, 500]), [500, 0, 500]);
}

#[test]
fn only_headers_that_follow_from_the_first_are_replicated() {
    let count = |flows: &[Flow]| {
        let (_, blocks) = sent_in_blocks(&batch_of(flows), Contiguous::PAYLOAD, 0);
        blocks.len()
    };
    let bulk = Flow { payload_len: 10_000, ..Flow::default() };
    let flags = vec![(2, PSH), (4, CWR), (6, FIN)];
    assert_eq!(count(&[Flow { flags, ..bulk.clone() }]), 1, "flags and checksums are adjusted");
    assert_eq!(count(&[Flow { run_ends: vec![1, 3], ..bulk.clone() }]), 1, "runs do not matter");
    let datagrams = Flow { udp: true, complete: true, ..bulk.clone() };
    assert_eq!(count(std::slice::from_ref(&datagrams)), 1);
    assert_eq!(count(&[bulk.clone(), datagrams]), 2, "another protocol");
    assert_eq!(count(&[bulk.clone(), bulk]), 2, "sequence numbers that go back");
}

#[test]
fn the_bound_of_a_block_is_from_1_to_43() {
    assert_eq!(Contiguous::FRAMES.with_frames_max(0), None);
    assert_eq!(Contiguous::FRAMES.with_frames_max(44), None);
    let one = Contiguous::PAYLOAD.with_frames_max(1).expect("in range");
    assert_eq!((one.frames_max(), one.form()), (1, BlockForm::Payload));
}
