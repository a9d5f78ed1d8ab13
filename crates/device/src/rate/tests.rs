use super::*;
use crate::fault::FaultConfig;
use crate::{FaultQueue, HardwareAddress, Injection, WireConfig, WireEnd, WireQueue, wire};
use batch::{Attributes, Block, BlockPool, HeaderLayout, Limits, PoolConfig, ReceiveBatch};
use core::sync::atomic::{AtomicU64, Ordering};
use proptest::prelude::*;
use std::collections::VecDeque;

const HEADERS: usize = 14 + 20 + 8;
/// Bits a second at which a byte takes a microsecond.
const BYTE_A_MICROSECOND: u64 = 8_000_000;

/// A rate-limited end of a wire, the other end, and the time.
struct Bench {
    queue: RateQueue<WireQueue>,
    far: WireQueue,
    now_ns: Arc<AtomicU64>,
    pool: BlockPool,
}

fn clock(now_ns: &Arc<AtomicU64>) -> Clock {
    let now_ns = Arc::clone(now_ns);
    Box::new(move || Instant::from_nanos(now_ns.load(Ordering::Relaxed)))
}

impl Bench {
    fn new(bits_per_second: u64, burst_bytes: usize) -> Self {
        let end = |last| WireEnd::plain(Medium::Ethernet(HardwareAddress([2, 0, 0, 0, 0, last])));
        let (near, far) = wire(WireConfig::new(end(1), end(2)));
        let now_ns = Arc::new(AtomicU64::new(0));
        let limit = RateLimit::new(RateConfig { bits_per_second, burst_bytes }, clock(&now_ns));
        let pool = BlockPool::new(PoolConfig::default());
        Self { queue: RateQueue::new(near, limit), far, now_ns, pool }
    }

    fn advance(&self, by: Duration) {
        self.now_ns.fetch_add(by.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Number and length of each frame that came out at the far end.
    fn arrived(&mut self) -> Vec<(u32, usize)> {
        let mut batch = ReceiveBatch::new();
        while self.far.receive(&self.pool, &mut batch, usize::MAX).more {}
        let frame = |index| {
            let bytes: &[u8] = batch.bytes(index);
            let number = bytes[HEADERS..].first_chunk().expect("a number");
            assert!(bytes[HEADERS + 4..].iter().all(|byte| *byte == number[3]), "its bytes");
            (u32::from_be_bytes(*number), bytes.len())
        };
        (0..batch.len()).map(frame).collect()
    }
}

/// Frames of these lengths, each with its number and bytes that are made of it as payload.
fn batch_of(frames: impl IntoIterator<Item = (u32, usize)>) -> Multidata {
    let limits = Limits { packets: 1_024, blocks: 1_024, payload_bytes: 1 << 20 };
    let mut batch = Multidata::new(HeaderLayout::default(), limits);
    for (index, (number, len)) in frames.into_iter().enumerate() {
        batch.push_packet(8, Attributes::default()).expect("room").fill(0);
        let mut payload = vec![number as u8; len - HEADERS];
        payload[..4].copy_from_slice(&number.to_be_bytes());
        assert!(batch.append_span(&Block::from(bytes::Bytes::from(payload)), 0, len - HEADERS));
        let (ip, _) = batch.prepend_network(index, 20).expect("headroom");
        ip[..20].fill(0x45);
        batch.prepend(index, 14).expect("headroom").fill(0);
    }
    batch
}

fn full(taken: usize) -> Transmitted {
    Transmitted { taken, stopped: Some(Stop::Full) }
}

#[test]
fn a_batch_is_taken_as_far_as_there_are_tokens_and_the_rest_when_they_have_come() {
    let mut bench = Bench::new(BYTE_A_MICROSECOND, 3_000);
    let batch = batch_of((0..5).map(|number| (number, 1_000)));
    assert_eq!(bench.queue.transmit(&batch), full(3));
    assert_eq!(bench.queue.room(), Room { packets: 0, bytes: 0 });
    assert_eq!(bench.arrived(), [(0, 1_000), (1, 1_000), (2, 1_000)]);
    // What comes in a millisecond is one frame.
    assert_eq!(bench.queue.retry_after(), Some(Duration::from_millis(1)));
    bench.advance(Duration::from_micros(999));
    let rest = batch_of([(3, 1_000), (4, 1_000)]);
    assert_eq!(bench.queue.transmit(&rest), full(0));
    assert_eq!(bench.queue.retry_after(), Some(Duration::from_micros(1)));
    bench.advance(Duration::from_micros(1));
    assert_eq!(bench.queue.retry_after(), Some(Duration::ZERO));
    assert_eq!(bench.queue.transmit(&rest), full(1));
    bench.advance(Duration::from_secs(100));
    assert_eq!(bench.queue.room().bytes, 3_000, "no more than the burst");
    assert_eq!(bench.queue.transmit(&batch_of([(4, 1_000)])).stopped, None);
    assert_eq!(bench.queue.retry_after(), None, "nobody waits for tokens");
    assert_eq!(bench.arrived(), [(3, 1_000), (4, 1_000)]);
    assert_eq!(bench.queue.rate_counters(), RateCounters { rate_full: 3, rate_parts: 2 });
    assert_eq!(bench.queue.counters().transmit_full, 3);
}

#[test]
fn after_tokens_ran_out_there_is_no_room_for_less_than_a_batch() {
    // 125 bytes a microsecond.
    let mut bench = Bench::new(1_000_000_000, 64_000);
    let batch = batch_of((0..50).map(|number| (number, 1_500)));
    assert_eq!(bench.queue.transmit(&batch), full(42));
    // Half a burst is less than comes in a millisecond, and 1,000 bytes are left.
    let retry = bench.queue.retry_after().expect("tokens are awaited");
    assert_eq!(retry, Duration::from_micros((32_000 - 1_000) / 125));
    bench.advance(retry - Duration::from_micros(1));
    assert_eq!(bench.queue.room().packets, 0);
    assert_eq!(bench.queue.transmit(&batch_of([(42, 100)])), full(0), "not even a short one");
    bench.advance(Duration::from_micros(1));
    assert_eq!(bench.queue.room(), Room { packets: 32_000 / 1_514, bytes: 32_000 });
    let rest = batch_of((42..50).map(|number| (number, 1_500)));
    assert_eq!(bench.queue.transmit(&rest), Transmitted { taken: 8, stopped: None });
}

#[test]
fn a_burst_holds_the_longest_frame_whatever_was_asked_for() {
    let mut bench = Bench::new(BYTE_A_MICROSECOND, 1);
    assert_eq!(
        bench.queue.transmit(&batch_of([(0, 1_514)])),
        full(0),
        "the bucket is not full yet"
    );
    assert_eq!(bench.queue.retry_after(), Some(Duration::from_micros(1_513)));
    bench.advance(Duration::from_micros(1_513));
    assert_eq!(bench.queue.transmit(&batch_of([(0, 1_514)])).taken, 1);
    let slowest = RateLimit::new(RateConfig::new(0), clock(&bench.now_ns));
    assert_eq!(slowest.lock().config, RateConfig { bits_per_second: 1, burst_bytes: 65_536 });
}

/// Who looks first and offers nothing where there is no room would never begin.
#[test]
fn there_is_room_for_the_longest_frame_before_any_was_offered() {
    let bench = Bench::new(BYTE_A_MICROSECOND, 1);
    bench.advance(Duration::from_secs(1));
    assert_eq!(bench.queue.room(), Room { packets: 1, bytes: 1_514 });
}

/// As where the MTU of the interface below was raised: whether it can be sent is for the device to say.
#[test]
fn a_frame_that_is_longer_than_any_was_to_be_reaches_the_device() {
    let mut bench = Bench::new(BYTE_A_MICROSECOND, 1);
    assert_eq!(bench.queue.transmit(&batch_of([(0, 2_000)])), full(0));
    bench.advance(Duration::from_millis(2));
    let refused = Transmitted { taken: 0, stopped: Some(Stop::Refused) };
    assert_eq!(bench.queue.transmit(&batch_of([(0, 2_000)])), refused);
}

#[test]
fn there_is_no_more_room_than_the_device_has() {
    let mut bench = Bench::new(1_000_000_000, 1 << 30);
    let of_tokens = (1 << 30) / 1_514;
    for _ in 0..2 {
        let room = bench.queue.inner().room();
        assert!(room.packets < of_tokens);
        assert_eq!(bench.queue.room(), room);
        assert_eq!(bench.queue.transmit(&batch_of([(0, 1_000)])).taken, 1);
    }
}

#[test]
fn what_the_device_does_not_take_costs_nothing_and_its_own_stop_is_told() {
    let mut bench = Bench::new(BYTE_A_MICROSECOND, 10_000);
    let limit = bench.queue.limit.clone();
    let mut faulty = FaultQueue::new(bench.queue.inner, FaultConfig::default());
    for stop in [Stop::Full, Stop::Refused, Stop::Revoked] {
        faulty.inject(Injection { after_packets: 1, stop });
    }
    let mut queue = RateQueue::new(faulty, limit);
    for (at, stop) in [Stop::Full, Stop::Refused, Stop::Revoked].into_iter().enumerate() {
        // Of a batch that fits, and of one that does not.
        let batch = batch_of((0..4 + 8 * at as u32).map(|number| (number, 1_000)));
        assert_eq!(queue.transmit(&batch), Transmitted { taken: 1, stopped: Some(stop) });
        assert_eq!(queue.room().bytes, 10_000 - 1_000 * (at + 1));
        assert_eq!(queue.retry_after(), None);
    }
    bench.queue = Bench::new(BYTE_A_MICROSECOND, 1).queue;
    assert_eq!(bench.arrived().len(), 3);
}

#[test]
fn what_was_offered_is_not_held_afterwards() {
    let mut bench = Bench::new(BYTE_A_MICROSECOND, 2_000);
    let payload = bytes::Bytes::from(vec![7; 1_000]);
    let mut batch = Multidata::default();
    for _ in 0..2 {
        batch.push_packet(40, Attributes::default()).expect("room").fill(7);
        assert!(batch.append_span(&Block::from(payload.clone()), 0, 1_000));
    }
    assert_eq!(bench.queue.transmit(&batch), full(1));
    assert_eq!(bench.far.receive(&bench.pool, &mut ReceiveBatch::new(), 9).frames, 1);
    drop(batch);
    assert!(payload.is_unique());
}

#[test]
fn queues_of_one_device_share_its_rate() {
    let mut bench = Bench::new(BYTE_A_MICROSECOND, 4_000);
    let mut other = RateQueue::new(Bench::new(1, 1).queue.inner, bench.queue.limit.clone());
    assert_eq!(bench.queue.transmit(&batch_of([(0, 1_000), (1, 1_000), (2, 1_000)])).taken, 3);
    assert_eq!(other.room().bytes, 1_000);
    // Its wire has no other end.
    let gone = other.transmit(&batch_of([(3, 1_000)]));
    assert!(matches!(gone, Transmitted { taken: 0, stopped: Some(Stop::Failed(_)) }));
    assert_eq!(bench.queue.transmit(&batch_of([(3, 1_000), (4, 1_000)])), full(1));
}

proptest! {
    /// The law of the module, and that nobody who comes when he is told comes in vain.
    #[test]
    fn no_window_has_more_than_its_share_and_everything_arrives_in_order(
        bits_per_second in 1_000_000_u64..10_000_000_000,
        burst_bytes in 1_usize..100_000,
        steps in proptest::collection::vec(
            (proptest::option::of(0_u64..3_000_000),
             proptest::collection::vec(HEADERS + 4..1_515_usize, 0..50)),
            1..60,
        ),
    ) {
        let mut bench = Bench::new(bits_per_second, burst_bytes);
        let burst_bytes = burst_bytes.max(1_514) as u128;
        let (mut waiting, mut offered) = (VecDeque::new(), 0);
        let mut passed: Vec<(u64, u32, usize)> = Vec::new();
        for (pause_ns, lens) in steps {
            let told = bench.queue.retry_after();
            let after = pause_ns.map_or(told.unwrap_or_default(), Duration::from_nanos);
            bench.advance(after);
            for len in lens {
                waiting.push_back((offered, len));
                offered += 1;
            }
            let room = bench.queue.room();
            let batch = batch_of(waiting.iter().copied().take(64));
            let Transmitted { taken, stopped } = bench.queue.transmit(&batch);
            prop_assert_eq!(stopped, (taken < batch.len()).then_some(Stop::Full));
            prop_assert!(taken >= room.packets.min(batch.len()), "room was promised");
            let in_time = told.is_some_and(|told| after >= told);
            prop_assert!(!in_time || taken > 0 || batch.is_empty(), "told to come now");
            let now_ns = bench.now_ns.load(Ordering::Relaxed);
            let wanted: Vec<_> = waiting.drain(..taken).collect();
            let arrived = bench.arrived();
            prop_assert_eq!(&arrived, &wanted);
            passed.extend(arrived.into_iter().map(|(number, len)| (now_ns, number, len)));
        }
        for (first, (start_ns, ..)) in passed.iter().enumerate() {
            let mut bytes = 0;
            for (end_ns, _, len) in &passed[first..] {
                bytes += *len as u128;
                let come = u128::from(end_ns - start_ns) * u128::from(bits_per_second);
                prop_assert!(bytes * TOKENS_PER_BYTE <= come + burst_bytes * TOKENS_PER_BYTE);
            }
        }
        prop_assert!(passed.iter().map(|(_, number, _)| *number).eq(0..passed.len() as u32));
    }
}
