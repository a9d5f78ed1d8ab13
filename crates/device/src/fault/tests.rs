use super::*;
use crate::{HardwareAddress, WireConfig, WireEnd, WireQueue, wire};
use batch::{Attributes, HeaderLayout, Limits, PoolConfig};
use proptest::prelude::*;

const UDP_CHECKSUM: u8 = 6;
const HEADERS: usize = 14 + 20 + 8;

fn pool() -> BlockPool {
    BlockPool::new(PoolConfig::default())
}

fn pair(config: FaultConfig) -> (WireQueue, FaultQueue<WireQueue>) {
    let end = |last| Medium::Ethernet(HardwareAddress([2, 0, 0, 0, 0, last]));
    let mut wire_config = WireConfig::new(WireEnd::offloading(end(1)), WireEnd::offloading(end(2)));
    wire_config.a.batch_packets_max = 1_024;
    let (a, b) = wire(wire_config);
    (a, FaultQueue::new(b, config))
}

/// Datagrams with a number as payload and their checksum left to the device.
fn batch_of(numbers: impl IntoIterator<Item = u32>) -> Multidata {
    let limits = Limits { packets: 1_024, blocks: 1_024, payload_bytes: 1 << 20 };
    let mut batch = Multidata::new(HeaderLayout::default(), limits);
    for (index, number) in numbers.into_iter().enumerate() {
        let checksum = Checksum::Partial { offset: UDP_CHECKSUM };
        let attributes = Attributes { checksum, ..Attributes::default() };
        let pseudo = checksum::sum(&[10, 0, 0, 1, 10, 0, 0, 2, 0, 17, 0, 12]);
        let udp = batch.push_packet(8, attributes).expect("room");
        udp.copy_from_slice(&[0, 1, 0, 2, 0, 12, 0, 0]);
        udp[6..].copy_from_slice(&pseudo.to_be_bytes());
        let block = Block::from(bytes::Bytes::copy_from_slice(&number.to_be_bytes()));
        assert!(batch.append_span(&block, 0, 4));
        let (ip, _) = batch.prepend_network(index, 20).expect("headroom");
        ip[..20]
            .copy_from_slice(&[0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        let sum = !checksum::sum(&ip[..20]);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        let ethernet = batch.prepend(index, 14).expect("headroom");
        ethernet.copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
    }
    batch
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[HEADERS..].try_into().expect("four bytes of payload"))
}

/// The numbers of the frames that come in one call.
fn receive(queue: &mut impl Queue, frames_max: usize) -> Vec<u32> {
    let mut batch = ReceiveBatch::new();
    let received = queue.receive(&pool(), &mut batch, frames_max);
    assert_eq!(received.frames, batch.len());
    assert!(received.frames <= frames_max);
    (0..batch.len()).map(|index| number(batch.bytes(index))).collect()
}

/// Everything that comes until nothing does.
fn drain(queue: &mut impl Queue) -> Vec<u32> {
    let mut all = Vec::new();
    for _ in 0..100 {
        all.extend(receive(queue, 64));
    }
    all
}

#[test]
fn without_faults_a_batch_passes_as_it_is() {
    let (mut a, mut b) = pair(FaultConfig::default());
    a.transmit(&batch_of(0..10));
    let mut batch = ReceiveBatch::new();
    assert_eq!(b.receive(&pool(), &mut batch, 64).frames, 10);
    assert!((0..10).all(|index| batch.frame(index).expect("a frame").block == 0));
    assert_eq!(b.fault_counters(), FaultCounters::default());
}

#[test]
fn loss_loses_about_as_many_as_it_says_and_counts_them() {
    let (mut a, mut b) = pair(FaultConfig { loss: 0.25, seed: 3, ..FaultConfig::default() });
    a.transmit(&batch_of(0..1_000));
    let got = drain(&mut b);
    assert_eq!(got.len() as u64 + b.fault_counters().fault_lost, 1_000);
    assert!((680..820).contains(&got.len()), "{} of 1,000", got.len());
    assert!(got.is_sorted(), "and does nothing else");
}

#[test]
fn frames_of_one_block_stay_in_one_block() {
    let (mut a, mut b) = pair(FaultConfig { loss: 0.5, ..FaultConfig::default() });
    a.transmit(&batch_of(0..64));
    let mut batch = ReceiveBatch::new();
    let frames = b.receive(&pool(), &mut batch, 64).frames;
    assert!(frames > 10);
    assert!((0..frames).all(|index| batch.frame(index).expect("a frame").block == 0));
}

#[test]
fn duplicates_follow_their_frame_and_do_not_exceed_what_was_asked_for() {
    let (mut a, mut b) = pair(FaultConfig { duplicate: 1.0, ..FaultConfig::default() });
    a.transmit(&batch_of(0..3));
    let mut batch = ReceiveBatch::new();
    let received = b.receive(&pool(), &mut batch, 4);
    assert_eq!((received.frames, received.more), (4, true));
    assert_eq!(receive(&mut b, 4), [2, 2]);
    assert_eq!(b.fault_counters().fault_duplicated, 3);
}

#[test]
fn held_frames_are_overtaken_by_a_bounded_number_and_come_out() {
    let config =
        FaultConfig { reorder: 0.2, reorder_distance_max: 4, seed: 9, ..FaultConfig::default() };
    let (mut a, mut b) = pair(config);
    a.transmit(&batch_of(0..500));
    let got = drain(&mut b);
    let held = b.fault_counters().fault_reordered;
    assert!((60..140).contains(&held), "{held} of 500");
    assert!(!got.is_sorted());
    let mut sorted = got.clone();
    sorted.sort_unstable();
    assert!(sorted.iter().copied().eq(0..500), "nothing is lost");
    for (at, number) in got.iter().enumerate() {
        let overtaken_by = got[..at].iter().filter(|before| *before > number).count();
        // A frame that others release may have been held behind it.
        assert!(overtaken_by <= 8, "{number} was overtaken by {overtaken_by}");
    }
}

#[test]
fn a_held_frame_with_nothing_behind_it_comes_out_when_nothing_comes() {
    let config = FaultConfig { reorder: 1.0, hold_receives_max: 2, ..FaultConfig::default() };
    let (mut a, mut b) = pair(config);
    a.transmit(&batch_of([7]));
    assert_eq!(receive(&mut b, 9), []);
    assert_eq!(receive(&mut b, 9), []);
    b.waiter().wait(None); // Returns: it does not sleep for long on a held frame.
    assert_eq!(receive(&mut b, 9), [7]);
}

#[test]
fn corruption_flips_one_bit_that_the_checksums_find() {
    let (mut a, mut b) = pair(FaultConfig { corrupt: 1.0, seed: 5, ..FaultConfig::default() });
    let batch = batch_of(0..200);
    a.transmit(&batch);
    let mut received = ReceiveBatch::new();
    assert_eq!(b.receive(&pool(), &mut received, 200).frames, 200);
    for (index, packet) in batch.packets().enumerate() {
        let mut wanted = vec![0; packet.len()];
        packet.copy_to(&mut wanted).expect("long enough");
        lowering::complete_checksum(&mut wanted, 34, UDP_CHECKSUM).expect("a datagram");
        let got = received.bytes(index);
        let flipped: u32 = wanted.iter().zip(got).map(|(a, b)| (a ^ b).count_ones()).sum();
        assert_eq!((flipped, &got[..14]), (1, &wanted[..14]), "behind the link header");
        let checksum = received.frame(index).expect("a frame").checksum;
        assert_eq!(checksum, ReceivedChecksum::Unverified);
        let ip_ok = checksum::sum(&got[14..34]) == 0xffff;
        let mut udp = checksum::Accumulator::new();
        udp.add(&got[26..]);
        udp.add_u16(17);
        udp.add_u16(12);
        assert!(!ip_ok || udp.sum() != 0xffff, "found by one of the two");
    }
}

#[test]
fn arp_is_never_corrupted() {
    let (mut a, mut b) = pair(FaultConfig { corrupt: 1.0, ..FaultConfig::default() });
    let mut batch = Multidata::default();
    batch.push_packet(28, Attributes::default()).expect("room").fill(9);
    batch
        .prepend(0, 14)
        .expect("headroom")
        .copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 6]);
    a.transmit(&batch);
    let mut received = ReceiveBatch::new();
    assert_eq!(b.receive(&pool(), &mut received, 9).frames, 1);
    assert_eq!(received.bytes(0)[14..], [9; 28]);
    assert_eq!(b.fault_counters().fault_corrupted, 0);
}

#[test]
fn a_peer_that_goes_away_is_reported_when_everything_came_out() {
    let (mut a, mut b) = pair(FaultConfig { reorder: 1.0, ..FaultConfig::default() });
    a.transmit(&batch_of([1, 2]));
    drop(a);
    let mut batch = ReceiveBatch::new();
    let received = b.receive(&pool(), &mut batch, 1);
    assert_eq!((received.frames, received.failed), (0, None));
    let received = b.receive(&pool(), &mut batch, 1);
    assert_eq!((received.frames, received.failed), (1, None));
    let received = b.receive(&pool(), &mut batch, 9);
    assert_eq!((received.frames, received.failed.is_some()), (1, true));
}

/// A fault queue that sends and a plain one that receives.
fn sending_pair() -> (FaultQueue<WireQueue>, WireQueue) {
    let (a, b) = pair(FaultConfig::default());
    (b, a)
}

#[test]
fn a_stop_comes_behind_as_many_packets_as_it_says() {
    let (mut a, mut b) = sending_pair();
    a.inject(Injection { after_packets: 5, stop: Stop::Full });
    a.inject(Injection { after_packets: 2, stop: Stop::Refused });
    assert_eq!(a.transmit(&batch_of(0..3)), Transmitted { taken: 3, stopped: None });
    let result = a.transmit(&batch_of(3..9));
    assert_eq!(result, Transmitted { taken: 2, stopped: Some(Stop::Full) });
    a.waiter().wait(None); // Returns: there is room.
    assert_eq!(a.transmit(&batch_of(5..7)), Transmitted { taken: 2, stopped: None });
    let refused = Transmitted { taken: 0, stopped: Some(Stop::Refused) };
    assert_eq!(a.transmit(&batch_of(7..9)), refused);
    assert_eq!(a.transmit(&batch_of(7..9)), Transmitted { taken: 2, stopped: None });
    assert_eq!(drain(&mut b), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(a.fault_counters().fault_stops, 2);
}

#[test]
fn what_is_taken_of_a_stopped_batch_is_unchanged() {
    let (mut a, mut b) = sending_pair();
    let batch = batch_of(0..4);
    a.inject(Injection { after_packets: 3, stop: Stop::Full });
    assert_eq!(a.transmit(&batch).taken, 3);
    let mut received = ReceiveBatch::new();
    assert_eq!(b.receive(&pool(), &mut received, 9).frames, 3);
    for (index, packet) in batch.packets().take(3).enumerate() {
        let mut wanted = vec![0; packet.len()];
        packet.copy_to(&mut wanted).expect("long enough");
        assert_eq!(received.bytes(index), wanted);
        let checksum = received.frame(index).expect("a frame").checksum;
        assert_eq!(checksum, ReceivedChecksum::Partial);
    }
}

#[test]
fn what_was_offered_is_not_held_afterwards() {
    let (mut a, mut b) = sending_pair();
    let payload = bytes::Bytes::from(vec![7; 100]);
    let mut batch = Multidata::default();
    for _ in 0..2 {
        batch.push_packet(40, Attributes::default()).expect("room").fill(7);
        assert!(batch.append_span(&Block::from(payload.clone()), 0, 100));
    }
    a.inject(Injection { after_packets: 1, stop: Stop::Full });
    assert_eq!(a.transmit(&batch).taken, 1);
    assert_eq!(b.receive(&pool(), &mut ReceiveBatch::new(), 9).frames, 1);
    drop(batch);
    assert!(payload.is_unique());
}

/// The queue within may be full before the stop comes.
#[test]
fn only_what_was_taken_counts_towards_a_stop() {
    let end = WireEnd::plain(Medium::Ip);
    let (a, mut b) = wire(WireConfig { capacity_packets: 2, ..WireConfig::new(end, end) });
    let mut a = FaultQueue::new(a, FaultConfig::default());
    a.inject(Injection { after_packets: 3, stop: Stop::Refused });
    let mut batch = Multidata::default();
    for _ in 0..4 {
        batch.push_packet(40, Attributes::default()).expect("room").fill(7);
    }
    let mut transmit = |taken, stop| {
        assert_eq!(a.transmit(&batch), Transmitted { taken, stopped: Some(stop) });
        assert_eq!(b.receive(&pool(), &mut ReceiveBatch::new(), 9).frames, taken);
    };
    transmit(2, Stop::Full);
    transmit(1, Stop::Refused);
    transmit(2, Stop::Full);
}

#[test]
fn revoked_capabilities_stay_away() {
    let (mut a, _b) = sending_pair();
    a.set_mode(TransmitMode::Lso).expect("the wire can split");
    a.inject(Injection { after_packets: 1, stop: Stop::Revoked });
    let result = a.transmit(&batch_of(0..3));
    assert_eq!(result, Transmitted { taken: 1, stopped: Some(Stop::Revoked) });
    let capabilities = a.capabilities();
    assert!(!capabilities.checksum_transmit && capabilities.segmentation.is_none());
    assert!(a.set_mode(TransmitMode::Lso).is_err());
    assert_eq!(a.counters().capabilities_revoked, 1);
    let refused = Transmitted { taken: 0, stopped: Some(Stop::Refused) };
    assert_eq!(a.transmit(&batch_of(1..3)), refused, "built for a device that is no more");
    let mut complete = batch_of(1..3);
    (0..2).for_each(|index| complete.set_checksum(index, Checksum::Complete));
    assert_eq!(a.transmit(&complete), Transmitted { taken: 2, stopped: None });
}

#[test]
fn a_failed_queue_stays_failed() {
    let (mut a, mut b) = sending_pair();
    let error = DeviceError::new(std::io::ErrorKind::NetworkDown, "unplugged");
    a.inject(Injection { after_packets: 1, stop: Stop::Failed(error.clone()) });
    b.transmit(&batch_of([1]));
    for taken in [1, 0] {
        let stopped = Some(Stop::Failed(error.clone()));
        assert_eq!(a.transmit(&batch_of(0..3)), Transmitted { taken, stopped });
    }
    let mut batch = ReceiveBatch::new();
    let received = a.receive(&pool(), &mut batch, 9);
    assert_eq!((received.frames, received.failed), (1, Some(error)));
}

proptest! {
    #[test]
    fn a_seed_replays_exactly_and_the_counters_add_up(
        seed: u64,
        loss in 0.0..0.5_f64,
        duplicate in 0.0..0.5_f64,
        reorder in 0.0..0.5_f64,
        reorder_distance_max in 0..9_u32,
        cuts in prop::collection::vec((0..20_u32, 0..9_usize), 1..20),
    ) {
        let config = FaultConfig {
            seed, loss, duplicate, reorder, reorder_distance_max, ..FaultConfig::default()
        };
        let run = || {
            let (mut a, mut b) = pair(config);
            let (mut sent, mut got) = (0, Vec::new());
            for (count, frames_max) in &cuts {
                a.transmit(&batch_of(sent..sent + count));
                sent += count;
                got.extend(receive(&mut b, *frames_max));
            }
            got.extend(drain(&mut b));
            (sent, got, b.fault_counters())
        };
        let (sent, got, counters) = run();
        let wanted = u64::from(sent) + counters.fault_duplicated - counters.fault_lost;
        prop_assert_eq!(got.len() as u64, wanted);
        let (_, again, _) = run();
        prop_assert_eq!(got, again);
    }
}

#[test]
fn who_waits_can_look_first_whether_something_came() {
    let (mut a, mut b) = pair(FaultConfig::default());
    let waiter = b.waiter();
    assert_eq!(waiter.is_ready(), Some(false));
    a.transmit(&batch_of(0..10));
    assert_eq!(waiter.is_ready(), Some(true));
    assert_eq!(drain(&mut b).len(), 10);
    assert_eq!(waiter.is_ready(), Some(false));
}

#[cfg(unix)]
#[test]
fn an_event_loop_does_not_wait_for_long_on_a_held_frame_either() {
    use crate::queue::tests::Noting;
    let (mut a, mut b) = pair(FaultConfig { reorder: 1.0, ..FaultConfig::default() });
    let noting = Noting::new();
    let made = || Some(Arc::clone(&noting) as _);
    let source = b.waiter().event_source(&made).expect("it is made");
    let again = b.waiter().event_source(&|| None).expect("it is there");
    assert!(Arc::ptr_eq(&source, &again), "the same");
    assert!(source.begin(None));
    a.transmit(&batch_of([7]));
    assert_eq!(receive(&mut b, 9), []);
    assert!(source.begin(None));
    assert_eq!(receive(&mut b, 9), []);
    assert_eq!(receive(&mut b, 9), [7]);
    assert!(source.begin(None));
    assert_eq!(*noting.waits.lock().expect("no panic"), [None, Some(HOLDING_WAIT), None]);
}

/// Brings what a wire does, and then says once that it has failed.
struct FailsOnce(WireQueue, bool);

impl Queue for FailsOnce {
    crate::forward_queue!(|self| self.0, but receive);

    fn receive(&mut self, pool: &BlockPool, batch: &mut ReceiveBatch, max: usize) -> Received {
        let received = self.0.receive(pool, batch, max);
        let fails = !received.more && !core::mem::replace(&mut self.1, true);
        let failed = fails.then(|| DeviceError::new(ErrorKind::NetworkDown, "it was cut"));
        Received { failed, ..received }
    }
}

#[test]
fn a_failure_that_the_inner_queue_says_once_is_told_when_everything_came_out() {
    let duplicates = FaultConfig { duplicate: 1.0, ..FaultConfig::default() };
    let (mut a, b) = pair(duplicates);
    let mut b = FaultQueue::new(FailsOnce(b.inner, false), duplicates);
    assert_eq!(a.transmit(&batch_of(0..4)).taken, 4);
    let mut batch = ReceiveBatch::new();
    let (mut frames, mut failed) = (0, None);
    for _ in 0..9 {
        assert_eq!(failed, None, "{frames} frames came before");
        let received = b.receive(&pool(), &mut batch, 5);
        frames += received.frames;
        failed = received.failed;
        if !received.more {
            break;
        }
    }
    assert_eq!((frames, failed.is_some()), (8, true));
}
