use super::*;
use crate::{Contiguous, HardwareAddress};
use batch::{Attributes, Block, HeaderLayout, Limits};
use bytes::Bytes;
use core::task::Waker;
use proptest::prelude::*;
use std::sync::Mutex;
use std::task::Wake;
use std::time::Instant;

const TCP_CHECKSUM: u8 = 16;

fn ends() -> (WireEnd, WireEnd) {
    let end = |last| Medium::Ethernet(HardwareAddress([2, 0, 0, 0, 0, last]));
    (WireEnd::plain(end(1)), WireEnd::plain(end(2)))
}

fn plain(capacity_packets: usize, capacity_bytes: usize) -> (WireQueue, WireQueue) {
    let (a, b) = ends();
    wire(WireConfig { capacity_packets, capacity_bytes, ..WireConfig::new(a, b) })
}

fn empty_batch() -> Multidata {
    let limits = Limits { packets: 512, blocks: 512, payload_bytes: 1 << 20 };
    Multidata::new(HeaderLayout::default(), limits)
}

/// Packets of 14 bytes of link header, 20 of other headers, and payload, numbered in all bytes.
fn batch_of(numbers_and_lens: &[(u8, usize)]) -> Multidata {
    let mut batch = empty_batch();
    for (number, len) in numbers_and_lens {
        batch.push_packet(20, Attributes::default()).expect("room").fill(*number);
        // Two pieces, as a packet across two writes has.
        for piece in [len / 3, len - len / 3] {
            let block = Block::from(Bytes::from(vec![*number; piece]));
            assert!(batch.append_span(&block, 0, piece));
        }
        let index = batch.len() - 1;
        batch.prepend(index, 14).expect("headroom").fill(*number);
    }
    batch
}

fn pool() -> BlockPool {
    BlockPool::new(PoolConfig::default())
}

/// The number and length of every frame that comes, after one call.
fn receive(queue: &mut WireQueue, frames_max: usize) -> Vec<(u8, usize)> {
    let mut batch = ReceiveBatch::new();
    let received = queue.receive(&pool(), &mut batch, frames_max);
    assert_eq!(received.frames, batch.len());
    (0..batch.len())
        .map(|index| {
            let bytes = batch.bytes(index);
            assert!(bytes.iter().all(|byte| *byte == bytes[0]), "a frame is of one packet");
            let offset = batch.frame(index).expect("a frame").offset as usize;
            assert_eq!(offset % lowering::FRAME_ALIGN_BYTES, 0);
            (bytes[0], bytes.len() - 34)
        })
        .collect()
}

#[test]
fn a_batch_arrives_whole_in_order_and_in_one_block() {
    let (mut a, mut b) = plain(64, 1 << 20);
    let batch = batch_of(&[(1, 1_000), (2, 0), (3, 1_400)]);
    assert_eq!(a.transmit(&batch), Transmitted { taken: 3, stopped: None });
    let mut received = ReceiveBatch::new();
    let result = b.receive(&pool(), &mut received, 64);
    assert_eq!(result, Received { frames: 3, more: false, failed: None });
    for (index, packet) in batch.packets().enumerate() {
        let mut wanted = vec![0; packet.len()];
        packet.copy_to(&mut wanted).expect("long enough");
        assert_eq!(received.bytes(index), wanted);
        let frame = received.frame(index).expect("a frame");
        assert_eq!((frame.block, frame.checksum), (0, ReceivedChecksum::Unverified));
    }
    assert_eq!(b.receive(&pool(), &mut received, 64), Received::default());
    let (sent, got) = (a.counters(), b.counters());
    assert_eq!((sent.transmit_packets, sent.transmit_frames, sent.transmit_bytes), (3, 3, 2_502));
    assert_eq!((got.receive_batches, got.receive_frames, got.receive_bytes), (1, 3, 2_502));
}

#[test]
fn both_directions_are_apart() {
    let (mut a, mut b) = plain(1, 1 << 20);
    assert_eq!(a.transmit(&batch_of(&[(1, 5)])).taken, 1);
    assert_eq!(b.transmit(&batch_of(&[(2, 6)])).taken, 1);
    assert_eq!(receive(&mut a, 9), [(2, 6)]);
    assert_eq!(receive(&mut b, 9), [(1, 5)]);
}

#[test]
fn what_does_not_fit_is_not_taken_and_room_says_so_beforehand() {
    let (mut a, mut b) = plain(3, 3_000);
    let batch = batch_of(&[(1, 966), (2, 966), (3, 966), (4, 966)]);
    assert_eq!(a.room(), Room { packets: 3, bytes: 3_000 });
    assert_eq!(a.transmit(&batch), Transmitted { taken: 3, stopped: Some(Stop::Full) });
    assert_eq!(a.room(), Room { packets: 0, bytes: 0 });
    assert_eq!(a.transmit(&batch), Transmitted { taken: 0, stopped: Some(Stop::Full) });
    assert_eq!(receive(&mut b, 1), [(1, 966)], "partial fill");
    assert_eq!(a.room(), Room { packets: 1, bytes: 1_000 });
    let batch = batch_of(&[(4, 967)]);
    assert_eq!(a.transmit(&batch).stopped, Some(Stop::Full), "a byte too long for now");
    assert_eq!(receive(&mut b, 9), [(2, 966), (3, 966)]);
    assert_eq!(a.transmit(&batch).taken, 1);
    assert_eq!(a.counters().transmit_full, 3);
}

#[test]
fn a_packet_that_can_never_go_is_refused_after_those_before_it() {
    let (mut a, mut b) = plain(64, 1 << 20);
    let too_long = batch_of(&[(1, 10), (2, 1_501), (3, 10)]);
    assert_eq!(a.transmit(&too_long), Transmitted { taken: 1, stopped: Some(Stop::Refused) });
    assert_eq!(receive(&mut b, 9), [(1, 10)]);
    for checksum in [Checksum::Partial { offset: 16 }, Checksum::Missing { offset: 16 }] {
        let mut batch = batch_of(&[(1, 10)]);
        batch.set_checksum(0, checksum);
        assert_eq!(a.transmit(&batch).stopped, Some(Stop::Refused), "{checksum:?}");
    }
    let mut empty = empty_batch();
    empty.push_packet(0, Attributes::default()).expect("room");
    empty.prepend(0, 14).expect("headroom");
    assert_eq!(a.transmit(&empty).stopped, Some(Stop::Refused), "nothing but a link header");
    let (mut tiny, _b) = plain(64, 100);
    assert_eq!(tiny.transmit(&batch_of(&[(1, 67)])).stopped, Some(Stop::Refused));
    assert_eq!(tiny.transmit(&batch_of(&[(1, 66)])).stopped, None);
}

#[test]
fn mode_single_takes_one_packet_per_call() {
    let (mut a, mut b) = plain(64, 1 << 20);
    a.set_mode(TransmitMode::Single).expect("every device can");
    assert_eq!(a.room().packets, 1);
    let batch = batch_of(&[(1, 10), (2, 10)]);
    assert_eq!(a.transmit(&batch), Transmitted { taken: 1, stopped: Some(Stop::Full) });
    let asked = Instant::now();
    a.waiter().wait(Some(Duration::from_secs(60)));
    assert!(asked.elapsed() < Duration::from_secs(50), "there is room for another call");
    assert_eq!(a.transmit(&batch_of(&[(2, 10)])), Transmitted { taken: 1, stopped: None });
    assert_eq!(receive(&mut b, 9), [(1, 10), (2, 10)]);
    let error = a.set_mode(TransmitMode::Lso).expect_err("a plain end splits nothing");
    assert!(error.message.contains("lso"));
}

#[test]
fn a_receiver_may_hand_up_frames_one_by_one() {
    let (a, b) = ends();
    let (mut a, mut b) = wire(WireConfig::new(a, WireEnd { receive_frames_max: 1, ..b }));
    a.transmit(&batch_of(&[(1, 10), (2, 10)]));
    let mut received = ReceiveBatch::new();
    let result = b.receive(&pool(), &mut received, 64);
    assert_eq!(result, Received { frames: 1, more: true, failed: None });
    assert_eq!(receive(&mut b, 64), [(2, 10)]);
}

#[test]
fn the_peer_of_a_dropped_end_drains_and_then_fails() {
    let (mut a, mut b) = plain(64, 1 << 20);
    a.transmit(&batch_of(&[(1, 10), (2, 10)]));
    drop(a);
    let mut received = ReceiveBatch::new();
    let first = b.receive(&pool(), &mut received, 1);
    assert_eq!(first, Received { frames: 1, more: true, failed: None });
    let last = b.receive(&pool(), &mut received, 9);
    assert_eq!((last.frames, last.failed), (1, Some(peer_gone())));
    assert_eq!(b.receive(&pool(), &mut received, 9).failed, Some(peer_gone()));
    let stopped = b.transmit(&batch_of(&[(1, 10)]));
    assert_eq!(stopped, Transmitted { taken: 0, stopped: Some(Stop::Failed(peer_gone())) });
}

/// `count` segments of a TCP connection as one run, payload of `len` bytes each.
fn run_of(count: u32, len: usize) -> Multidata {
    let mut batch = empty_batch();
    let run = batch.next_run();
    let checksum = Checksum::Partial { offset: TCP_CHECKSUM };
    let payload: Vec<u8> = (0..count as usize * len).map(|at| (at / 5) as u8).collect();
    let block = Block::from(Bytes::from(payload));
    for index in 0..count {
        let attributes = Attributes { run, checksum, ..Attributes::default() };
        let tcp = batch.push_packet(20, attributes).expect("room");
        tcp.fill(0);
        tcp[..4].copy_from_slice(&[0, 80, 0, 81]);
        tcp[4..8].copy_from_slice(&(7 + index * len as u32).to_be_bytes());
        tcp[12..16].copy_from_slice(&[0x50, 0x10, 1, 0]);
        let pseudo = [10, 0, 0, 1, 10, 0, 0, 2, 0, 6, 0, 20 + len as u8];
        let sum = checksum::sum(&pseudo);
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        assert!(batch.append_span(&block, index as usize * len, len));
        let (ip, _) = batch.prepend_network(index as usize, 20).expect("headroom");
        ip[..20].copy_from_slice(&[
            0x45,
            0,
            0,
            40 + len as u8,
            0,
            index as u8,
            0x40,
            0,
            64,
            6,
            0,
            0,
            10,
            0,
            0,
            1,
            10,
            0,
            0,
            2,
        ]);
        let sum = !checksum::sum(&ip[..20]);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        let ethernet = batch.prepend(index as usize, 14).expect("headroom");
        ethernet.copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
    }
    batch
}

/// What the packets of a batch are on a wire without offload.
fn completed(batch: &Multidata) -> Vec<Vec<u8>> {
    let complete = |packet: PacketView<'_>| {
        let mut bytes = vec![0; packet.len()];
        packet.copy_to(&mut bytes).expect("long enough");
        lowering::complete_checksum(&mut bytes, packet.transport_offset(), TCP_CHECKSUM);
        bytes
    };
    batch.packets().map(complete).collect()
}

fn offloading(capacity_packets: usize, capacity_bytes: usize) -> (WireQueue, WireQueue) {
    let (a, b) = ends();
    let config = WireConfig::new(WireEnd::offloading(a.medium), WireEnd::offloading(b.medium));
    let (mut a, b) = wire(WireConfig { capacity_packets, capacity_bytes, ..config });
    a.set_mode(TransmitMode::Lso).expect("the end can split");
    (a, b)
}

/// What comes is what the other end may send.
#[test]
fn ends_that_differ_say_what_each_of_them_gets() {
    let (a, b) = ends();
    let (a, b) = wire(WireConfig::new(WireEnd::offloading(a.medium), b));
    let sends = |it: Capabilities| (it.checksum_transmit, it.segmentation.is_some());
    let gets = |it: Capabilities| (it.checksum_receive, it.receive_super_frames);
    assert_eq!((sends(a.capabilities()), gets(b.capabilities())), ((true, true), (true, true)));
    assert_eq!((sends(b.capabilities()), gets(a.capabilities())), ((false, false), (false, false)));
}

#[test]
fn partial_checksums_arrive_as_partial() {
    let (mut a, mut b) = offloading(64, 1 << 20);
    assert!(b.capabilities().checksum_receive && b.capabilities().receive_super_frames);
    a.set_mode(TransmitMode::Multidata).expect("every device can");
    let batch = run_of(3, 100);
    assert_eq!(a.transmit(&batch), Transmitted { taken: 3, stopped: None });
    let mut received = ReceiveBatch::new();
    assert_eq!(b.receive(&pool(), &mut received, 9).frames, 3);
    for (index, wanted) in completed(&batch).into_iter().enumerate() {
        let frame = received.frame(index).expect("a frame");
        assert_eq!((frame.checksum, frame.segmented), (ReceivedChecksum::Partial, None));
        let mut bytes = received.bytes(index).to_vec();
        lowering::complete_checksum(&mut bytes, 34, TCP_CHECKSUM);
        assert_eq!(bytes, wanted);
    }
}

#[test]
fn a_run_goes_as_one_super_frame_and_stands_for_its_packets() {
    let (mut a, mut b) = offloading(64, 1 << 20);
    let batch = run_of(40, 100);
    assert_eq!(a.transmit(&batch), Transmitted { taken: 40, stopped: None });
    assert_eq!(a.room().packets, 24, "the lane counts packets");
    let mut received = ReceiveBatch::new();
    assert_eq!(b.receive(&pool(), &mut received, 9).frames, 1);
    assert_eq!(a.room().packets, 64);
    let frame = received.frame(0).expect("a frame");
    assert_eq!(frame.segmented, Some(Segmented { segment_len: 100 }));
    assert_eq!(frame.checksum, ReceivedChecksum::Partial);
    let packets = lowering::expand(received.bytes(0), 14, 100).expect("a super-frame");
    assert_eq!(packets, completed(&batch));
    let counters = a.counters();
    assert_eq!((counters.transmit_packets, counters.transmit_frames), (40, 1));
}

/// Modes that take many packets in a call and hand each of them up.
const BATCHED: [TransmitMode; 4] = [
    TransmitMode::Multidata,
    TransmitMode::Chain,
    TransmitMode::Contiguous(Contiguous::FRAMES),
    TransmitMode::Contiguous(Contiguous::PAYLOAD),
];

#[test]
fn every_mode_hands_up_the_same_packets_in_blocks_of_its_own() {
    let batch = run_of(40, 100);
    for mode in BATCHED {
        let (mut a, mut b) = offloading(64, 1 << 20);
        a.set_mode(mode).expect("every device can");
        assert_eq!(a.transmit(&batch), Transmitted { taken: 40, stopped: None });
        assert_eq!(a.room().packets, 24);
        let (mut received, mut got) = (ReceiveBatch::new(), Vec::new());
        // In two calls: the first ends within a block.
        assert_eq!(b.receive(&pool(), &mut received, 13).frames, 13);
        assert_eq!(a.room().packets, 37, "room for what was handed up");
        let first_len = received.bytes(0).len();
        let in_all = if mode == TransmitMode::Chain { first_len } else { 40 * first_len };
        assert_eq!(received.filled_bytes(0), in_all, "{mode}: as full as if it came up at once");
        let rest = b.receive(&pool(), &mut received, 64);
        assert_eq!(rest, Received { frames: 27, more: false, failed: None });
        let mut blocks = Vec::new();
        for index in 0..received.len() {
            let frame = received.frame(index).expect("a frame");
            assert_eq!((frame.checksum, frame.segmented), (ReceivedChecksum::Partial, None));
            let mut bytes = received.bytes(index).to_vec();
            lowering::complete_checksum(&mut bytes, 34, TCP_CHECKSUM);
            got.push(bytes);
            blocks.push(received.chunk(index, 0..1).expect("a byte").block().clone());
        }
        blocks.dedup_by(|a, b| a.is_same(b));
        assert_eq!(blocks.len(), if mode == TransmitMode::Chain { 40 } else { 1 }, "{mode}");
        assert_eq!(a.counters().transmit_mappings, blocks.len() as u64, "{mode}");
        assert_eq!(got, completed(&batch));
        let counters = a.counters();
        assert_eq!((counters.transmit_batches, counters.transmit_packets), (1, 40));
        assert_eq!((counters.transmit_frames, counters.transmit_bytes), (40, 40 * 154));
        assert_eq!(b.counters().receive_bytes, 40 * 154);
    }
}

#[test]
fn a_contiguous_call_takes_one_block_of_frames() {
    let (mut a, mut b) = plain(64, 1 << 20);
    let five = Contiguous::FRAMES.with_frames_max(5).expect("in range");
    a.set_mode(TransmitMode::Contiguous(five)).expect("every device can");
    assert_eq!(a.room().packets, 5);
    let batch = batch_of(&[(1, 9), (2, 0), (3, 7), (4, 1_400), (5, 8), (6, 1)]);
    assert_eq!(a.transmit(&batch), Transmitted { taken: 5, stopped: Some(Stop::Full) });
    assert_eq!(receive(&mut b, 9), [(1, 9), (2, 0), (3, 7), (4, 1_400), (5, 8)]);
}

#[test]
fn of_a_super_frame_that_does_not_fit_as_many_packets_go_as_do() {
    for (packets, bytes) in [(7, 1 << 20), (64, 7 * 154 + 153)] {
        let (mut a, mut b) = offloading(packets, bytes);
        let batch = run_of(40, 100);
        assert_eq!(a.transmit(&batch), Transmitted { taken: 7, stopped: Some(Stop::Full) });
        let mut received = ReceiveBatch::new();
        assert_eq!(b.receive(&pool(), &mut received, 64).frames, 7);
        let bytes: Vec<u8> = received.bytes(6).to_vec();
        let expanded = lowering::expand(&bytes, 14, 0).expect("a packet");
        assert_eq!(expanded[0], completed(&batch)[6]);
    }
}

#[test]
fn nobody_sleeps_with_news_and_nobody_is_woken_who_does_not_sleep() {
    let (mut a, mut b) = plain(64, 1 << 20);
    a.transmit(&batch_of(&[(1, 10)]));
    b.waiter().wait(None);
    assert_eq!(receive(&mut b, 9), [(1, 10)]);
    b.waiter().wake();
    b.waiter().wait(None);
    b.waiter().wait(Some(Duration::from_millis(1)));
    assert_eq!(b.counters().wait_syscalls, 1, "only the last had reason to sleep");
}

#[test]
fn a_sender_that_met_a_full_lane_is_woken_by_room() {
    let (mut a, mut b) = plain(2, 1 << 20);
    assert_eq!(a.transmit(&batch_of(&[(1, 1), (2, 1), (3, 1)])).taken, 2);
    let waiter = a.waiter();
    let sleeper = std::thread::spawn(move || waiter.wait(None));
    assert_eq!(receive(&mut b, 1), [(1, 1)]);
    sleeper.join().expect("woken");
    assert_eq!(a.transmit(&batch_of(&[(3, 1)])).taken, 1);
}

#[test]
fn dropping_an_end_wakes_the_other() {
    let (a, b) = plain(2, 1 << 20);
    let waiter = b.waiter();
    let sleeper = std::thread::spawn(move || waiter.wait(None));
    drop(a);
    sleeper.join().expect("woken");
}

/// Receives a frame as soon as there is one, while who sent it is still in the call.
struct Eager(Mutex<WireQueue>);

impl Wake for Eager {
    fn wake(self: Arc<Self>) {
        receive(&mut self.0.lock().expect("no panic"), 1);
    }
}

#[test]
fn room_made_while_the_sender_finds_the_lane_full_still_wakes_it() {
    let (mut a, b) = plain(3, 1 << 20);
    assert_eq!(a.transmit(&batch_of(&[(0, 1)])).taken, 1);
    let doorbell = Arc::clone(&b.doorbell);
    let eager = Waker::from(Arc::new(Eager(Mutex::new(b))));
    doorbell.register(&eager);
    let sent = a.transmit(&batch_of(&[(1, 1), (2, 1), (3, 1), (4, 1)]));
    assert_eq!(sent, Transmitted { taken: 2, stopped: Some(Stop::Full) });
    let asked = Instant::now();
    a.waiter().wait(Some(Duration::from_secs(60)));
    assert!(asked.elapsed() < Duration::from_secs(50), "there is room for one");
}

/// A leader and the worker may both sleep there.
#[test]
fn all_who_sleep_at_an_end_are_woken() {
    let (mut a, b) = plain(2, 1 << 20);
    let sleepers = [(); 2].map(|()| {
        let waiter = b.waiter();
        std::thread::spawn(move || waiter.wait(Some(Duration::from_secs(60))))
    });
    while b.counters().wait_syscalls < 2 {
        std::thread::yield_now();
    }
    let sent = Instant::now();
    a.transmit(&batch_of(&[(1, 10)]));
    sleepers.into_iter().for_each(|sleeper| sleeper.join().expect("woken"));
    assert!(sent.elapsed() < Duration::from_secs(50));
    assert_eq!(b.waiter().is_ready(), Some(true));
}

/// Whoever keeps a little of one is not to pin all of a long batch.
#[test]
fn a_long_batch_lies_in_blocks_of_a_bounded_length() {
    const COUNT: usize = 200;
    let (a, b) = ends();
    let (mut a, mut b) = wire(WireConfig::new(WireEnd { batch_packets_max: COUNT, ..a }, b));
    assert_eq!(a.transmit(&batch_of(&[(7, 1_400); COUNT])).taken, COUNT);
    assert_eq!(a.counters().transmit_mappings, 3);
    assert_eq!(receive(&mut b, COUNT), [(7, 1_400); COUNT]);
}

/// The other end may go between any two steps of a call.
#[test]
fn what_was_sent_before_an_end_was_dropped_arrives() {
    for _ in 0..2_000 {
        let (mut a, mut b) = plain(2, 1 << 20);
        let sender = std::thread::spawn(move || a.transmit(&batch_of(&[(1, 10)])).taken);
        let (pool, mut batch) = (pool(), ReceiveBatch::new());
        while b.receive(&pool, &mut batch, 9).failed.is_none() {}
        assert_eq!(batch.len(), sender.join().expect("no panic"));
    }
}

/// A stream of numbered packets over a small lane between two threads that sleep whenever they
/// can: it ends only if no wake-up is lost, and the blocks come back.
#[test]
fn two_threads_pass_a_stream_without_losing_a_wake_up() {
    BATCHED.into_iter().for_each(pass_a_stream);
}

fn pass_a_stream(mode: TransmitMode) {
    const PACKETS: u32 = 20_000;
    let (mut a, mut b) = plain(7, 4_000);
    a.set_mode(mode).expect("every device can");
    let sender = std::thread::spawn(move || {
        let waiter = a.waiter();
        let mut next = 0;
        while next < PACKETS {
            let mut batch = empty_batch();
            for number in next..PACKETS.min(next + 1 + next % 11) {
                let header = batch.push_packet(34, Attributes::default()).expect("room");
                header[..4].copy_from_slice(&number.to_be_bytes());
            }
            let result = a.transmit(&batch);
            next += result.taken as u32;
            if result.stopped == Some(Stop::Full) {
                waiter.wait(None);
            }
        }
        a
    });
    let (waiter, pool) = (b.waiter(), pool());
    let (mut wanted, mut batch) = (0_u32, ReceiveBatch::new());
    while wanted < PACKETS {
        batch.clear();
        let received = b.receive(&pool, &mut batch, 1 + wanted as usize % 5);
        assert!(received.failed.is_none() || wanted + received.frames as u32 == PACKETS);
        for index in 0..batch.len() {
            assert_eq!(batch.bytes(index)[..4], wanted.to_be_bytes());
            wanted += 1;
        }
        if received.frames == 0 {
            waiter.wait(None);
        }
    }
    batch.clear();
    let a = sender.join().expect("the sender ends");
    assert_eq!(a.pool.counters().outstanding_bytes, 0);
}

proptest! {
    /// However batches and calls are cut: what was taken arrives, once and in order, and the lane
    /// is never fuller than it may be.
    #[test]
    fn what_was_taken_arrives(
        steps in prop::collection::vec((prop::collection::vec(0..1_400_usize, 0..9), 0..9_usize), 1..40),
        modes in prop::collection::vec(prop::sample::select(&BATCHED[..]), 1..4),
    ) {
        let (mut a, mut b) = plain(10, 5_000);
        let mut modes = modes.into_iter().cycle();
        let (mut number, mut wanted, mut got) = (0_u8, Vec::new(), Vec::new());
        for (lens, frames_max) in steps {
            let packets: Vec<(u8, usize)> = lens
                .into_iter()
                .map(|len| {
                    number = number.wrapping_add(1);
                    (number, len)
                })
                .collect();
            // A mode may be changed while frames of another are on their way.
            a.set_mode(modes.next().expect("one at least")).expect("every device can");
            let room = a.room();
            let fitting = packets
                .iter()
                .scan((0, 0), |(count, bytes), (_, len)| {
                    (*count, *bytes) = (*count + 1, *bytes + len + 34);
                    Some(*count <= room.packets && *bytes <= room.bytes)
                })
                .take_while(|fits| *fits)
                .count();
            let result = a.transmit(&batch_of(&packets));
            prop_assert_eq!(result.taken, fitting, "room is exact");
            prop_assert_eq!(result.stopped, (fitting < packets.len()).then_some(Stop::Full));
            wanted.extend(&packets[..fitting]);
            got.extend(receive(&mut b, frames_max));
        }
        got.extend(receive(&mut b, usize::MAX));
        prop_assert_eq!(got, wanted);
        prop_assert_eq!(a.room(), Room { packets: 10, bytes: 5_000 });
        prop_assert_eq!(a.pool.counters().outstanding_bytes, 0);
    }
}
