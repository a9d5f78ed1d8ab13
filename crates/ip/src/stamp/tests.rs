//! What leaves [`stamp`](super::stamp) is read back with the parser and checked against sums made
//! the slow way.

use crate::{HeaderTemplate, PacketInfo, parse, stamp, transport_checksum_ok};
use batch::{Attributes, Block, Checksum, HeaderLayout, Limits, Multidata};
use bytes::Bytes;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use proptest::prelude::*;
use std::sync::Arc;
use wire::{Ipv4Options, Ipv4Repr, Ipv4View, Ipv6View, protocol};

/// A transport header and payload, the latter in pieces.
#[derive(Clone, Debug)]
struct Sample {
    header: Vec<u8>,
    pieces: Vec<Vec<u8>>,
    checksum: Checksum,
}

const MISSING: Checksum = Checksum::Missing { offset: 6 };

fn any_sample() -> impl Strategy<Value = Sample> {
    let header = proptest::collection::vec(any::<u8>(), 8..60);
    let piece = proptest::collection::vec(any::<u8>(), 0..200);
    let pieces = proptest::collection::vec(piece, 0..4);
    (header, pieces, any::<bool>()).prop_map(|(mut header, pieces, missing)| {
        let checksum = if missing { MISSING } else { Checksum::Complete };
        if missing {
            header[6..8].fill(0);
        }
        Sample { header, pieces, checksum }
    })
}

fn any_options() -> impl Strategy<Value = Option<Arc<Ipv4Options>>> {
    let record_route = (1_usize..10).prop_map(|places| {
        let mut bytes = vec![0; 3 + 4 * places];
        bytes[..3].copy_from_slice(&[7, 3 + 4 * places as u8, 4]);
        bytes
    });
    let options = prop_oneof![
        2 => Just(Vec::new()),
        1 => (1_usize..=40).prop_map(|len| vec![1; len]),
        1 => Just(vec![148, 4, 0, 0]),
        1 => record_route,
    ];
    options.prop_map(|bytes| Some(Arc::new(Ipv4Options::parse(&bytes).expect("harmless"))))
}

fn any_template() -> impl Strategy<Value = HeaderTemplate> {
    let protocol = prop_oneof![Just(protocol::TCP), Just(protocol::UDP), Just(protocol::ICMPV6)];
    (any::<(bool, u128, u128, u8, u8, bool)>(), protocol, any_options()).prop_map(
        |(fields, protocol, options)| {
            let (v6, source, destination, hop_limit, dscp_ecn, dont_fragment) = fields;
            // Addresses that the parser lets pass as sources.
            let (source, destination): (IpAddr, IpAddr) = if v6 {
                let source = Ipv6Addr::from(source >> 8 | 0x20 << 120);
                (source.into(), Ipv6Addr::from(destination).into())
            } else {
                let source = Ipv4Addr::from(source as u32 >> 8 | 10 << 24);
                (source.into(), Ipv4Addr::from(destination as u32).into())
            };
            let mut template =
                HeaderTemplate::new(source, destination, protocol, hop_limit, dscp_ecn);
            template.set_options(options);
            template.set_dont_fragment(dont_fragment);
            template
        },
    )
}

fn push(batch: &mut Multidata, sample: &Sample) {
    let attributes = Attributes { checksum: sample.checksum, ..Attributes::default() };
    batch
        .push_packet(sample.header.len(), attributes)
        .expect("room")
        .copy_from_slice(&sample.header);
    for piece in &sample.pieces {
        let block = Block::from(Bytes::copy_from_slice(piece));
        assert!(batch.append_span(&block, 0, piece.len()));
    }
}

fn bytes_of(batch: &Multidata, index: usize) -> Vec<u8> {
    let packet = batch.packet(index).expect("a packet");
    let mut bytes = vec![0; packet.len()];
    assert_eq!(packet.copy_to(&mut bytes), Some(packet.len()));
    bytes
}

fn large_batch() -> Multidata {
    let limits = Limits { packets: 16, blocks: 64, payload_bytes: 1 << 20 };
    Multidata::new(HeaderLayout::default(), limits)
}

/// The checksum in the field, made the slow way from the packet itself.
fn slow_checksum(info: &PacketInfo, packet: &[u8], field: usize) -> u16 {
    let mut bytes = Vec::new();
    for address in [info.source, info.destination] {
        match address {
            IpAddr::V4(address) => bytes.extend(address.octets()),
            IpAddr::V6(address) => bytes.extend(address.octets()),
        }
    }
    bytes.extend([0, info.protocol]);
    bytes.extend(u32::try_from(info.total_len - info.header_len).expect("short").to_be_bytes());
    bytes.extend(info.transport(packet));
    let at = bytes.len() - (info.total_len - info.header_len) + field;
    bytes[at..at + 2].fill(0);
    if bytes.len() % 2 == 1 {
        bytes.push(0);
    }
    let words = bytes.chunks_exact(2).map(|word| u64::from(u16::from_be_bytes([word[0], word[1]])));
    // The one's-complement sum is the sum modulo 2^16 - 1; with a protocol in it, never zero.
    let sum = match words.sum::<u64>() % 0xffff {
        0 => 0xffff,
        sum => sum as u16,
    };
    match !sum {
        0 if info.protocol == protocol::UDP => 0xffff,
        checksum => checksum,
    }
}

proptest! {
    #[test]
    fn a_batch_is_its_packets_sent_singly(
        samples in proptest::collection::vec(any_sample(), 1..12),
        template in any_template(),
        start in any::<u16>(),
        offload in any::<bool>(),
    ) {
        let (mut whole, mut identification) = (large_batch(), start);
        for sample in &samples {
            push(&mut whole, sample);
        }
        let count = samples.len();
        prop_assert_eq!(stamp(&mut whole, 0..count, &template, &mut identification, offload), count);

        let mut identification_single = start;
        for (index, sample) in samples.iter().enumerate() {
            let mut single = large_batch();
            push(&mut single, sample);
            assert_eq!(stamp(&mut single, 0..1, &template, &mut identification_single, offload), 1);
            prop_assert_eq!(bytes_of(&single, 0), bytes_of(&whole, index));
            prop_assert_eq!(single.attributes(0), whole.attributes(index));
        }
        prop_assert_eq!(identification, identification_single);
    }

    #[test]
    fn a_run_that_is_written_once_is_its_packets_sent_singly(
        (count, len, sequence) in (1..15_usize, 1..300_usize, any::<u32>()),
        template in any_template(),
        start in any::<u16>(),
        offload in any::<bool>(),
        ends_run in any::<bool>(),
    ) {
        let payload = Bytes::from((0..count * len).map(|at| (at * 7) as u8).collect::<Vec<_>>());
        let segment = |number: usize| {
            let mut header = vec![0x77; 20];
            let sequence = sequence.wrapping_add((number * len) as u32);
            header[8..12].copy_from_slice(&sequence.to_be_bytes());
            header[6..8].fill(0);
            let piece = payload[number * len..(number + 1) * len].to_vec();
            Sample { header, pieces: vec![piece], checksum: MISSING }
        };
        let mut whole = large_batch();
        push(&mut whole, &segment(0));
        let implied = whole.push_implied(count - 1, 8, (&Block::from(payload.clone()), len));
        prop_assert_eq!(implied, count - 1);
        let total = count + usize::from(ends_run);
        if ends_run {
            push(&mut whole, &segment(0));
        }
        let (mut identification, mut identification_single) = (start, start);
        let stamped = stamp(&mut whole, 0..total, &template, &mut identification, offload);
        prop_assert_eq!(stamped, total);
        for number in 0..total {
            let mut single = large_batch();
            push(&mut single, &segment(number % count));
            assert_eq!(stamp(&mut single, 0..1, &template, &mut identification_single, offload), 1);
            prop_assert_eq!(bytes_of(&single, 0), bytes_of(&whole, number));
            prop_assert_eq!(single.attributes(0), whole.attributes(number));
        }
        prop_assert_eq!(identification, identification_single);
    }

    #[test]
    fn what_is_stamped_parses_and_its_sums_are_right(
        sample in any_sample(),
        template in any_template(),
        start in any::<u16>(),
    ) {
        let (mut batch, mut identification) = (large_batch(), start);
        let mut sample = sample;
        // A UDP checksum covers as much as UDP's length says: let it say the truth.
        let len = sample.header.len() + sample.pieces.iter().map(Vec::len).sum::<usize>();
        sample.header[4..6].copy_from_slice(&(len as u16).to_be_bytes());
        push(&mut batch, &sample);
        prop_assert_eq!(stamp(&mut batch, 0..1, &template, &mut identification, false), 1);
        let bytes = bytes_of(&batch, 0);
        let info = parse(&bytes).expect("what was stamped is sound");
        prop_assert_eq!(info.source, template.source());
        prop_assert_eq!(info.destination, template.destination());
        prop_assert_eq!(info.protocol, template.protocol());
        prop_assert_eq!(info.header_len, template.header_len());
        prop_assert_eq!(info.total_len, bytes.len());
        prop_assert_eq!(info.has_options, !template.options().is_empty());
        prop_assert!(!info.fragment);
        if let Ok(view) = Ipv4View::parse(&bytes) {
            prop_assert_eq!(view.options(), template.options());
        }
        prop_assert_eq!(batch.attributes(0).map(|a| a.checksum), Some(Checksum::Complete));
        let transport = info.transport(&bytes);
        if sample.checksum == MISSING {
            prop_assert!(transport_checksum_ok(&info, transport));
            let field = u16::from_be_bytes([transport[6], transport[7]]);
            prop_assert_eq!(field, slow_checksum(&info, &bytes, 6));
        } else {
            prop_assert_eq!(&transport[..sample.header.len()], &sample.header[..], "left alone");
        }
    }

    #[test]
    fn a_partial_checksum_is_completed_by_summing_what_lies_there(
        sample in any_sample(),
        template in any_template(),
    ) {
        let mut sample = sample;
        sample.checksum = MISSING;
        sample.header[6..8].fill(0);
        let (mut batch, mut complete, mut identification) = (large_batch(), large_batch(), 0);
        push(&mut batch, &sample);
        push(&mut complete, &sample);
        assert_eq!(stamp(&mut complete, 0..1, &template, &mut identification, false), 1);
        identification = 0;
        assert_eq!(stamp(&mut batch, 0..1, &template, &mut identification, true), 1);
        let state = batch.attributes(0).expect("a packet").checksum;
        let mut bytes = bytes_of(&batch, 0);
        if template.protocol() == protocol::ICMPV6 {
            prop_assert_eq!(state, Checksum::Complete, "devices complete TCP and UDP only");
        } else {
            prop_assert_eq!(state, Checksum::Partial { offset: 6 });
            let at = template.header_len();
            let sum = match !checksum::sum(&bytes[at..]) {
                0 if template.protocol() == protocol::UDP => 0xffff,
                sum => sum,
            };
            bytes[at + 6..at + 8].copy_from_slice(&sum.to_be_bytes());
        }
        prop_assert_eq!(bytes, bytes_of(&complete, 0));
    }

    // RFC 3168, 5: the two bits are the packet's, the others its route's.
    #[test]
    fn the_ecn_bits_of_a_packet_join_those_of_the_template(
        template in any_template(),
        (dscp_ecn, ecn) in (any::<u8>(), 0_u8..4),
    ) {
        let mut template = template;
        template.set_dscp_ecn(dscp_ecn);
        let (mut batch, mut identification) = (large_batch(), 5);
        let attributes = Attributes { ecn, checksum: MISSING, ..Attributes::default() };
        batch.push_packet(8, attributes).expect("room").fill(1);
        assert_eq!(stamp(&mut batch, 0..1, &template, &mut identification, false), 1);
        let info = parse(&bytes_of(&batch, 0)).expect("its checksum is right");
        prop_assert_eq!(info.ecn(), (dscp_ecn | ecn) & 3);
        let bytes = bytes_of(&batch, 0);
        let found = match template.source().is_ipv4() {
            true => bytes[1],
            false => bytes[0] << 4 | bytes[1] >> 4,
        };
        prop_assert_eq!(found, dscp_ecn | ecn);
    }

    #[test]
    fn a_changed_template_is_one_made_so(
        template in any_template(),
        (hop_limit, dscp_ecn) in any::<(u8, u8)>(),
    ) {
        let mut changed = template.clone();
        changed.set_hop_limit(hop_limit);
        changed.set_dscp_ecn(dscp_ecn);
        changed.set_dont_fragment(true);
        let (source, destination) = (template.source(), template.destination());
        let mut fresh =
            HeaderTemplate::new(source, destination, template.protocol(), hop_limit, dscp_ecn);
        fresh.set_dont_fragment(true);
        if !template.options().is_empty() {
            fresh.set_options(Ipv4Options::parse(template.options()).ok().map(Arc::new));
        }
        let stamped = |template: &HeaderTemplate| {
            let (mut batch, mut identification) = (large_batch(), 5);
            push(&mut batch, &Sample { header: vec![1; 8], pieces: vec![], checksum: MISSING });
            assert_eq!(stamp(&mut batch, 0..1, template, &mut identification, false), 1);
            bytes_of(&batch, 0)
        };
        let bytes = stamped(&changed);
        prop_assert_eq!(&bytes, &stamped(&fresh));
        let info = parse(&bytes).expect("what was stamped is sound");
        prop_assert_eq!((info.hop_limit, info.ecn()), (hop_limit, dscp_ecn & 3));
        if source.is_ipv6() {
            let view = Ipv6View::parse(&bytes).expect("parsed before");
            prop_assert_eq!((view.flow_label(), view.dscp_ecn()), (0, dscp_ecn));
        }
    }
}

fn template_ipv4(protocol: u8) -> HeaderTemplate {
    let (source, destination) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    HeaderTemplate::new(source.into(), destination.into(), protocol, 64, 0)
}

#[test]
fn identifications_count_on_over_packets_and_calls_and_wrap() {
    let (mut batch, mut identification) = (large_batch(), 0xfffe);
    for _ in 0..4 {
        push(&mut batch, &Sample { header: vec![0; 20], pieces: vec![], checksum: MISSING });
    }
    let template = template_ipv4(protocol::TCP);
    assert_eq!(stamp(&mut batch, 0..3, &template, &mut identification, true), 3);
    assert_eq!(stamp(&mut batch, 3..4, &template, &mut identification, true), 1);
    for (index, expected) in [0xfffe, 0xffff, 0, 1].into_iter().enumerate() {
        let bytes = bytes_of(&batch, index);
        let view = Ipv4View::parse(&bytes).expect("a sound packet");
        assert_eq!(view.identification(), expected);
        assert!(view.dont_fragment() && view.checksum_ok());
    }
    assert_eq!(identification, 2);
}

/// The words of this header sum up to almost 0xffff, so that with one of the identifications the
/// sum carries twice.
#[test]
fn the_header_checksum_is_right_for_every_identification() {
    let (source, destination) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 38, 232));
    let template = HeaderTemplate::new(source.into(), destination.into(), protocol::TCP, 64, 0);
    let mut identification = 0;
    let mut batch = large_batch();
    for _ in 0..=u16::MAX {
        batch.clear();
        push(&mut batch, &Sample { header: vec![0; 20], pieces: vec![], checksum: MISSING });
        assert_eq!(stamp(&mut batch, 0..1, &template, &mut identification, true), 1);
        let header = batch.packet(0).expect("a packet").header();
        let view = Ipv4View::parse(header).expect("a sound packet");
        assert!(view.checksum_ok(), "identification {}", view.identification());
    }
    assert_eq!(identification, 0, "all were tried");
}

#[test]
fn only_tcp_forbids_fragments_unless_told_otherwise() {
    for (protocol, expected) in [(protocol::TCP, true), (protocol::UDP, false)] {
        let mut template = template_ipv4(protocol);
        for expected in [expected, !expected] {
            template.set_dont_fragment(expected);
            let (mut batch, mut identification) = (large_batch(), 0);
            push(&mut batch, &Sample { header: vec![0; 20], pieces: vec![], checksum: MISSING });
            assert_eq!(stamp(&mut batch, 0..1, &template, &mut identification, false), 1);
            let bytes = bytes_of(&batch, 0);
            let view = Ipv4View::parse(&bytes).expect("a sound packet");
            assert_eq!(view.dont_fragment(), expected, "protocol {protocol}");
        }
    }
}

/// RFC 768: "If the computed checksum is zero, it is transmitted as all ones".
#[test]
fn udp_alone_sends_a_checksum_of_zero_as_all_ones() {
    for (protocol, expected) in [(protocol::UDP, 0xffff), (protocol::TCP, 0)] {
        let template = template_ipv4(protocol);
        // The last word brings the sum of everything to 0xffff.
        let others = u32::from(crate::pseudo_header::sum(
            template.source(),
            template.destination(),
            protocol,
        )) + 8;
        let word = 0xffff - (others % 0xffff) as u16;
        let mut header = vec![0; 8];
        header[..2].copy_from_slice(&word.to_be_bytes());
        let (mut batch, mut identification) = (large_batch(), 0);
        push(&mut batch, &Sample { header, pieces: vec![], checksum: MISSING });
        assert_eq!(stamp(&mut batch, 0..1, &template, &mut identification, false), 1);
        let bytes = bytes_of(&batch, 0);
        let info = parse(&bytes).expect("a sound packet");
        let transport = info.transport(&bytes);
        assert_eq!(u16::from_be_bytes([transport[6], transport[7]]), expected);
        assert!(transport_checksum_ok(&info, transport));
    }
}

#[test]
fn stamping_ends_at_a_packet_that_no_header_can_describe() {
    let limits = Limits { packets: 4, blocks: 4, payload_bytes: 1 << 20 };
    let payload =
        |len: usize| Sample { header: vec![0; 20], pieces: vec![vec![0; len]], checksum: MISSING };
    let longest = 65_535 - Ipv4Repr::LEN - 20;
    for (len, expected) in [(longest, 3), (longest + 1, 1)] {
        let (mut batch, mut identification) = (Multidata::new(HeaderLayout::default(), limits), 0);
        for sample in [payload(10), payload(len), payload(10)] {
            push(&mut batch, &sample);
        }
        let template = template_ipv4(protocol::TCP);
        assert_eq!(stamp(&mut batch, 0..3, &template, &mut identification, false), expected);
        assert_eq!(usize::from(identification), expected);
    }

    let layout = HeaderLayout { stride_bytes: 64, headroom_bytes: 19 };
    let mut batch = Multidata::new(layout, limits);
    push(&mut batch, &payload(1));
    let template = template_ipv4(protocol::TCP);
    assert_eq!(stamp(&mut batch, 0..1, &template, &mut 0, false), 0, "no headroom");

    let mut batch = Multidata::new(HeaderLayout::default(), limits);
    push(&mut batch, &Sample { checksum: Checksum::Missing { offset: 19 }, ..payload(1) });
    assert_eq!(stamp(&mut batch, 0..1, &template, &mut 0, true), 0, "the field is cut off");
    assert_eq!(stamp(&mut batch, 5..9, &template, &mut 0, true), 0, "there are no such packets");
}
