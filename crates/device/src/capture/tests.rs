use super::*;
use crate::HardwareAddress;
use crate::in_process::{WireConfig, WireEnd, wire};
use batch::{Attributes, Block, Checksum, PoolConfig};
use bytes::Bytes;
use checksum::Accumulator;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::{Block as PcapBlock, PcapNgReader};
use std::sync::atomic::{AtomicUsize, Ordering};

const TIME_NS: u64 = 1_700_000_000_123_456_789;

/// A captured end and an end at the other side.
fn pair(config: CaptureConfig) -> (CaptureQueue, Box<dyn Queue>, Capture) {
    let end = WireEnd { checksum_transmit: true, ..WireEnd::plain(Medium::Ip) };
    let (left, right) = wire(WireConfig::new(end, end));
    let clock = Box::new(|| TIME_NS);
    let (queue, capture) = CaptureQueue::new(Box::new(left), config, clock);
    (queue, Box::new(right), capture)
}

/// A batch of UDP-like packets with a pseudo-header's sum where the checksum goes.
fn batch(payloads: &[&'static [u8]]) -> Multidata {
    let mut batch = Multidata::default();
    for payload in payloads {
        let checksum = Checksum::Partial { offset: 6 };
        let attributes = Attributes { checksum, ..Attributes::default() };
        let header = batch.push_packet(8, attributes).expect("room");
        header.copy_from_slice(&[0, 1, 0, 2, 0, 12, 0x12, 0x34]);
        let block = Block::from(Bytes::from_static(payload));
        assert!(batch.append_span(&block, 0, payload.len()));
    }
    batch
}

/// What another implementation reads: bytes, original length, time, direction.
fn read(capture: &Capture) -> Vec<(Vec<u8>, u32, u64, u32)> {
    let mut bytes = Vec::new();
    capture.take(&mut bytes);
    packets_in(&bytes)
}

fn packets_in(bytes: &[u8]) -> Vec<(Vec<u8>, u32, u64, u32)> {
    let mut reader = PcapNgReader::new(bytes).expect("a section header");
    let mut packets = Vec::new();
    while let Some(block) = reader.next_block() {
        match block.expect("a sound block") {
            PcapBlock::EnhancedPacket(packet) => {
                let flags = packet.options.iter().find_map(|option| match option {
                    EnhancedPacketOption::Flags(flags) => Some(*flags),
                    _ => None,
                });
                let time_ns = packet.timestamp.as_nanos() as u64;
                let direction = flags.expect("a direction");
                packets.push((packet.data.to_vec(), packet.original_len, time_ns, direction));
            }
            PcapBlock::InterfaceDescription(interface) => {
                assert_eq!(u32::from(interface.linktype), 101);
            }
            other => panic!("{other:?}"),
        }
    }
    packets
}

#[test]
fn both_ways_are_captured_with_time_direction_and_complete_checksums() {
    let (mut ours, mut theirs, capture) = pair(CaptureConfig::default());
    let sent = batch(&[b"even", b"odd"]);
    assert_eq!(ours.transmit(&sent).taken, 2);
    assert_eq!(theirs.transmit(&sent).taken, 2);
    let pool = BlockPool::new(PoolConfig::default());
    let mut received = ReceiveBatch::new();
    assert_eq!(ours.receive(&pool, &mut received, 10).frames, 2);
    let packets = read(&capture);
    let directions: Vec<_> = packets.iter().map(|packet| packet.3).collect();
    assert_eq!(directions, [2, 2, 1, 1]);
    for (data, original_len, time_ns, direction) in &packets {
        assert_eq!((*original_len as usize, *time_ns), (data.len(), TIME_NS));
        if *direction == 2 {
            // The field held the pseudo-header's sum: what it holds now makes it all come out.
            let mut sum = Accumulator::default();
            sum.add_u16(0x1234);
            sum.add(data);
            assert_eq!(sum.sum(), 0xffff);
        }
    }
    assert_eq!(&packets[1].0[8..], b"odd");
    assert_eq!(capture.counters().capture_packets, 4);
    assert_eq!(sent.packet(0).expect("unchanged").header()[6..8], [0x12, 0x34]);
}

#[test]
fn a_checksum_of_zero_is_captured_as_it_is_sent() {
    const TCP_CHECKSUM: u8 = 16;
    const UDP_CHECKSUM: u8 = 6;
    for (offset, wanted) in [(TCP_CHECKSUM, 0), (UDP_CHECKSUM, 0xffff)] {
        let (mut ours, _theirs, capture) = pair(CaptureConfig::default());
        let checksum = Checksum::Partial { offset };
        let mut sent = Multidata::default();
        let header = sent.push_packet(20, Attributes { checksum, ..Attributes::default() });
        header.expect("room")[..2].fill(0xff);
        assert_eq!(ours.transmit(&sent).taken, 1);
        let mut left = [0; 20];
        lowering::copy_complete(&sent.packet(0).expect("one"), &mut left).expect("a field");
        let captured = &read(&capture)[0].0;
        assert_eq!(captured[..], left, "offset {offset}");
        let field = usize::from(offset);
        assert_eq!(u16::from_be_bytes([captured[field], captured[field + 1]]), wanted);
    }
}

#[test]
fn only_what_the_device_took_is_captured() {
    let end = WireEnd { checksum_transmit: true, ..WireEnd::plain(Medium::Ip) };
    let config = WireConfig { capacity_packets: 1, ..WireConfig::new(end, end) };
    let (left, _right) = wire(config);
    let (mut queue, capture) =
        CaptureQueue::new(Box::new(left), CaptureConfig::default(), Box::new(|| 0));
    assert_eq!(queue.transmit(&batch(&[b"one", b"two"])).taken, 1);
    let packets = read(&capture);
    assert_eq!(packets.len(), 1);
    assert_eq!(&packets[0].0[8..], b"one");
}

#[test]
fn long_packets_are_cut_and_a_full_buffer_loses_packets_of_the_capture_alone() {
    let config = CaptureConfig { snap_len_bytes: 9, buffer_bytes: 200 };
    let (mut ours, _theirs, capture) = pair(config);
    let sent = batch(&[b"first", b"second", b"third", b"fourth"]);
    assert_eq!(ours.transmit(&sent).taken, 4, "the stack notices nothing");
    let counters = capture.counters();
    assert_eq!((counters.capture_packets, counters.capture_lost), (2, 2));
    assert_eq!(counters.capture_cut, 2);
    assert!(capture.len_bytes() <= 200);
    let packets = read(&capture);
    assert_eq!((packets[0].0.len(), packets[0].1), (9, 13));
    assert_eq!(capture.len_bytes(), 0);
    assert_eq!(ours.transmit(&batch(&[b"again"])).taken, 1);
    assert_eq!(capture.counters().capture_packets, 3, "there is room again");
}

/// Whoever receives into a batch that has something in it, and takes what was captured to where something lies.
#[test]
fn what_comes_by_several_calls_is_captured_once_and_in_order() {
    let (mut ours, mut theirs, capture) = pair(CaptureConfig::default());
    let pool = BlockPool::new(PoolConfig::default());
    let (mut received, mut bytes) = (ReceiveBatch::new(), Vec::new());
    capture.take(&mut bytes);
    let payloads: [&[u8]; 3] = [b"a first one that is longer than a header", b"second", b"third"];
    for payload in payloads {
        assert_eq!(theirs.transmit(&batch(&[payload])).taken, 1);
        assert_eq!(ours.receive(&pool, &mut received, 10).frames, 1);
        capture.take(&mut bytes);
        assert_eq!(capture.len_bytes(), 0);
    }
    let captured = packets_in(&bytes);
    assert!(captured.iter().map(|packet| &packet.0[8..]).eq(payloads));
}

#[test]
fn a_capture_says_what_its_packets_begin_with() {
    const LINKTYPE_ETHERNET: u32 = 1;
    const LINKTYPE_RAW: u32 = 101;
    let ethernet = Medium::Ethernet(HardwareAddress([2, 0, 0, 0, 0, 1]));
    for (medium, wanted) in [(ethernet, LINKTYPE_ETHERNET), (Medium::Ip, LINKTYPE_RAW)] {
        let (left, _right) = wire(WireConfig::new(WireEnd::plain(medium), WireEnd::plain(medium)));
        let (_queue, capture) =
            CaptureQueue::new(Box::new(left), CaptureConfig::default(), Box::new(|| 0));
        let mut bytes = Vec::new();
        capture.take(&mut bytes);
        let mut reader = PcapNgReader::new(&bytes[..]).expect("a section header");
        let Some(Ok(PcapBlock::InterfaceDescription(interface))) = reader.next_block() else {
            panic!("no interface behind the section header");
        };
        assert_eq!(u32::from(interface.linktype), wanted);
    }
}

#[test]
fn what_nobody_can_take_any_more_is_not_captured() {
    let end = WireEnd::plain(Medium::Ip);
    let (left, mut right) = wire(WireConfig::new(end, end));
    let asked = Arc::new(AtomicUsize::new(0));
    let clock = Arc::clone(&asked);
    let clock = Box::new(move || clock.fetch_add(1, Ordering::Relaxed) as u64);
    let config = CaptureConfig::default();
    let (mut queue, capture) = CaptureQueue::new(Box::new(left), config, clock);
    let mut sent = Multidata::default();
    sent.push_packet(8, Attributes::default()).expect("room").fill(7);
    let pool = BlockPool::new(PoolConfig::default());
    let mut received = ReceiveBatch::new();
    for capture in [Some(capture), None] {
        for queue in [&mut queue as &mut dyn Queue, &mut right] {
            assert_eq!(queue.transmit(&sent).taken, 1);
        }
        assert_eq!(queue.receive(&pool, &mut received, 10).frames, 1);
        assert_eq!(asked.load(Ordering::Relaxed), 2, "both ways, while it is there");
        drop(capture);
    }
}
