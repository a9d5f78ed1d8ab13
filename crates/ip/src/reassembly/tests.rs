//! Fragments built by hand, and random ones against a model that keeps one flag for each byte.

use super::{Reassembly, ReassemblyConfig, ReceivedFragment};
use crate::{Arrival, IcmpErrorKind, RefusedFragment, parse, parse_fragment};
use batch::{Block, BlockPool, Chunk, PoolConfig};
use bytes::Bytes;
use counters::{DropCounters, DropReason};
use proptest::prelude::*;
use std::collections::hash_map::RandomState;
use time::{Duration, Instant};
use wire::{Ipv4Repr, Ipv6FragmentRepr, Ipv6Repr, protocol};

const START: Instant = Instant::from_millis(1_000);

/// A fragment to be: where its data begins, the data, whether more follow.
#[derive(Clone, Debug)]
struct Cut {
    offset: usize,
    data: Vec<u8>,
    more: bool,
}

#[derive(Clone, Copy, Debug)]
struct Datagram {
    ipv6: bool,
    source: u8,
    identification: u32,
    ecn: u8,
    protocol: u8,
}

const UDP4: Datagram =
    Datagram { ipv6: false, source: 1, identification: 7, ecn: 0, protocol: protocol::UDP };
const UDP6: Datagram = Datagram { ipv6: true, ..UDP4 };

fn packet(of: Datagram, cut: &Cut) -> Vec<u8> {
    if of.ipv6 { packet_ipv6(of, cut) } else { packet_ipv4(of, cut) }
}

fn packet_ipv4(of: Datagram, cut: &Cut) -> Vec<u8> {
    let mut bytes = vec![0; Ipv4Repr::LEN];
    let repr = Ipv4Repr {
        dscp_ecn: 0x28 | of.ecn,
        identification: of.identification as u16,
        dont_fragment: false,
        more_fragments: cut.more,
        fragment_offset_bytes: cut.offset,
        hop_limit: 9,
        protocol: of.protocol,
        source: [192, 0, 2, of.source].into(),
        destination: [192, 0, 2, 200].into(),
        payload_len: cut.data.len(),
    };
    repr.emit(&mut bytes);
    bytes.extend(&cut.data);
    bytes
}

fn packet_ipv6(of: Datagram, cut: &Cut) -> Vec<u8> {
    let mut bytes = vec![0; Ipv6Repr::LEN + Ipv6FragmentRepr::LEN];
    let repr = Ipv6Repr {
        dscp_ecn: 0x28 | of.ecn,
        flow_label: 5,
        payload_len: Ipv6FragmentRepr::LEN + cut.data.len(),
        next_header: protocol::FRAGMENT,
        hop_limit: 9,
        source: [0x2001, 0xdb8, 0, of.source.into(), 0, 0, 0, 1].into(),
        destination: [0x2001, 0xdb8, 0, 0, 0, 0, 0, 2].into(),
    };
    repr.emit(&mut bytes);
    let fragment = Ipv6FragmentRepr {
        next_header: of.protocol,
        offset_bytes: cut.offset,
        more_fragments: cut.more,
        identification: of.identification,
    };
    fragment.emit(&mut bytes[Ipv6Repr::LEN..]);
    bytes.extend(&cut.data);
    bytes
}

struct Ground {
    reassembly: Reassembly<RandomState>,
    pool: BlockPool,
    drops: DropCounters,
    now: Instant,
}

impl Ground {
    fn new(config: ReassemblyConfig) -> Self {
        let reassembly = Reassembly::new(config, RandomState::new());
        let pool = BlockPool::new(PoolConfig::default());
        Self { reassembly, pool, drops: DropCounters::default(), now: START }
    }

    fn plain() -> Self {
        Self::new(ReassemblyConfig::default())
    }

    /// As the way in does it: what is dropped is counted.
    fn take(&mut self, packet: Vec<u8>) -> Result<Option<Vec<u8>>, RefusedFragment> {
        let outcome = parse_fragment(&packet).and_then(|fragment| {
            let packet = Chunk::whole(Block::from(Bytes::from(packet)));
            let arrival = Arrival::default();
            let received = ReceivedFragment { packet, sparse: false, interface: 0, arrival };
            let (pool, drops) = (&self.pool, &mut self.drops);
            let taken = self.reassembly.on_fragment(self.now, &fragment, received, pool, drops)?;
            Ok(taken.map(|chunk| chunk.bytes().to_vec()))
        });
        if let Err(refused) = &outcome {
            self.drops.add(refused.reason);
        }
        outcome
    }

    fn reason(&mut self, packet: Vec<u8>) -> Option<DropReason> {
        self.take(packet).err().map(|refused| refused.reason)
    }
}

fn data(len: usize) -> Vec<u8> {
    (0..len as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 9) as u8).collect()
}

fn cut(whole: &[u8], range: core::ops::Range<usize>) -> Cut {
    Cut { offset: range.start, more: range.end < whole.len(), data: whole[range].to_vec() }
}

fn transport(packet: &[u8]) -> Vec<u8> {
    let info = parse(packet).expect("what was put together is sound");
    assert!(!info.fragmented && info.total_len == packet.len());
    info.transport(packet).to_vec()
}

// RFC 791, 3.2; RFC 8200, 4.5.
#[test]
fn fragments_become_the_datagram_whatever_their_order() {
    let whole = data(40);
    let cuts = [cut(&whole, 0..16), cut(&whole, 16..32), cut(&whole, 32..40)];
    for of in [UDP4, UDP6] {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut ground = Ground::plain();
            for index in &order[..2] {
                assert_eq!(ground.take(packet(of, &cuts[*index])), Ok(None));
            }
            let packet = ground.take(packet(of, &cuts[order[2]]));
            let packet = packet.expect("sound").expect("the last one");
            assert_eq!(transport(&packet), whole);
            let info = parse(&packet).expect("sound");
            assert_eq!((info.protocol, info.hop_limit), (protocol::UDP, 9));
            assert!(ground.reassembly.is_empty() && ground.reassembly.held_bytes() == 0);
        }
    }
}

#[test]
fn datagrams_are_kept_apart() {
    let whole = data(32);
    let of =
        |source, identification, protocol| Datagram { source, identification, protocol, ..UDP4 };
    let mut ground = Ground::plain();
    assert_eq!(ground.take(packet(of(1, 1, 17), &cut(&whole, 0..16))), Ok(None));
    for other in [of(2, 1, 17), of(1, 2, 17), of(1, 1, 200)] {
        assert_eq!(ground.take(packet(other, &cut(&whole, 16..32))), Ok(None), "{other:?}");
    }
    assert!(ground.take(packet(of(1, 1, 17), &cut(&whole, 16..32))).expect("sound").is_some());
}

// RFC 5722, 4 and RFC 8200, 4.5: "reassembly of that packet must be abandoned and all the fragments
// that have been received for that packet must be discarded", and those not yet received as well.
#[test]
fn overlapping_fragments_end_their_datagram() {
    let whole = data(64);
    for of in [UDP4, UDP6] {
        for (first, second) in [(0..32, 24..48), (24..48, 0..32), (0..48, 16..32), (16..32, 0..48)]
        {
            let mut ground = Ground::plain();
            assert_eq!(ground.take(packet(of, &cut(&whole, first))), Ok(None));
            let reason = ground.reason(packet(of, &cut(&whole, second)));
            assert_eq!(reason, Some(DropReason::FragmentOverlap));
            for rest in [0..32, 32..64] {
                let reason = ground.reason(packet(of, &cut(&whole, rest)));
                assert_eq!(reason, Some(DropReason::FragmentOverlap), "also what comes later");
            }
            assert_eq!(ground.drops.count(DropReason::FragmentOverlap), 4, "each is counted");
            ground.now += Duration::from_secs(60);
            assert!(ground.reassembly.poll_expired(ground.now, &mut ground.drops).is_some());
            assert!(ground.reassembly.is_empty());
        }
    }
}

// RFC 8200, 4.5: "an implementation may choose to detect this case and drop exact duplicate
// fragments while keeping the other fragments belonging to the same packet".
#[test]
fn an_exact_repetition_is_dropped_alone() {
    let whole = data(32);
    let mut ground = Ground::plain();
    assert_eq!(ground.take(packet(UDP6, &cut(&whole, 16..32))), Ok(None));
    let reason = ground.reason(packet(UDP6, &cut(&whole, 16..32)));
    assert_eq!(reason, Some(DropReason::FragmentDuplicate));
    let mut other = cut(&whole, 16..32);
    let complete = ground.take(packet(UDP6, &cut(&whole, 0..16))).expect("sound");
    assert_eq!(transport(&complete.expect("complete")), whole);
    assert_eq!(ground.take(packet(UDP6, &other)), Ok(None), "the next datagram of this number");
    other.data[3] ^= 1;
    let reason = ground.reason(packet(UDP6, &other));
    assert_eq!(reason, Some(DropReason::FragmentOverlap), "other bytes at the same place");
}

// Two datagrams of one identification: their lengths contradict each other (RFC 4963).
#[test]
fn fragments_that_disagree_about_the_end_are_of_two_datagrams() {
    let whole = data(64);
    for second in [cut(&whole[..24], 16..24), cut(&whole, 48..56), cut(&whole[..48], 32..48)] {
        let mut ground = Ground::plain();
        assert_eq!(ground.take(packet(UDP4, &cut(&whole[..32], 24..32))), Ok(None));
        let reason = ground.reason(packet(UDP4, &second));
        assert_eq!(reason, Some(DropReason::FragmentOverlap), "{second:?}");
    }
}

// The "ping of death": RFC 791's total length cannot hold it. RFC 8200, 4.5 has the sender told.
#[test]
fn a_datagram_beyond_its_length_field_is_refused() {
    let last = |offset, len| Cut { offset, data: vec![0; len], more: false };
    let mut ground = Ground::plain();
    assert_eq!(ground.reason(packet(UDP4, &last(65_512, 8))), Some(DropReason::Fragment));
    assert_eq!(ground.reason(packet(UDP4, &last(65_512, 3))), None);
    let refused = ground.take(packet(UDP6, &last(65_528, 8))).expect_err("too long");
    let answer = Some(IcmpErrorKind::ParameterProblem { pointer: 42 });
    assert_eq!(refused, RefusedFragment { reason: DropReason::Fragment, answer });
    assert_eq!(ground.reason(packet(UDP6, &last(65_528, 7))), None);
}

#[test]
fn a_fragment_of_odd_length_is_refused() {
    let odd = Cut { offset: 8, data: vec![0; 9], more: true };
    let mut ground = Ground::plain();
    assert_eq!(ground.reason(packet(UDP4, &odd)), Some(DropReason::Fragment));
    let refused = ground.take(packet(UDP6, &odd)).expect_err("odd");
    assert_eq!(refused.answer, Some(IcmpErrorKind::ParameterProblem { pointer: 4 }));
    let empty = Cut { offset: 8, data: Vec::new(), more: false };
    assert_eq!(ground.reason(packet(UDP4, &empty)), Some(DropReason::Fragment));
    assert_eq!(ground.reason(packet(UDP6, &empty)), Some(DropReason::Fragment));
    assert!(ground.reassembly.is_empty());
}

// RFC 1858, 3 and RFC 7112, 5: headers that are not all in the first fragment hide from filters.
#[test]
fn a_first_fragment_without_whole_headers_is_refused() {
    let tcp = |ipv6| Datagram { protocol: protocol::TCP, ipv6, ..UDP4 };
    let mut segment = data(32);
    segment[12] = 0x70;
    let mut ground = Ground::plain();
    let tiny = cut(&segment, 0..24);
    let reason = ground.reason(packet(tcp(false), &tiny));
    assert_eq!(reason, Some(DropReason::Fragment), "the header has 28 bytes");
    let refused = ground.take(packet(tcp(true), &tiny)).expect_err("tiny");
    assert_eq!(refused.answer, Some(IcmpErrorKind::HeaderChainIncomplete));
    segment[12] = 0x60;
    assert_eq!(ground.reason(packet(tcp(false), &cut(&segment, 0..24))), None);
    assert_eq!(ground.reason(packet(tcp(true), &cut(&segment, 0..24))), None);
    let overwriting = Cut { offset: 8, data: vec![0; 8], more: true };
    assert_eq!(ground.reason(packet(tcp(false), &overwriting)), Some(DropReason::Fragment));
    let options = Datagram { protocol: protocol::DESTINATION_OPTIONS, identification: 9, ..UDP6 };
    let mut chain = data(64);
    chain[..2].copy_from_slice(&[protocol::UDP, 3]);
    chain[2..4].copy_from_slice(&[1, 28]);
    let refused = ground.take(packet(options, &cut(&chain, 0..24))).expect_err("tiny");
    assert_eq!(refused.answer, Some(IcmpErrorKind::HeaderChainIncomplete));
    assert_eq!(ground.reason(packet(options, &cut(&chain, 0..40))), None);
    // RFC 8200, 4.5: what is for nodes on the way stands before the fragment header.
    let late = Datagram { protocol: protocol::HOP_BY_HOP, identification: 10, ..UDP6 };
    let hidden = ground.reason(packet(late, &cut(&chain, 0..40)));
    assert_eq!(
        hidden,
        Some(DropReason::MalformedIp),
        "behind it they would be read as if they stood there"
    );
}

// RFC 3168, 5.3: CE in any fragment is CE of the datagram; not-ECT beside CE is dropped.
#[test]
fn congestion_that_one_fragment_met_is_the_datagrams() {
    let whole = data(32);
    for base in [UDP4, UDP6] {
        for (first, second, expected) in [
            (2, 3, Some(3)),
            (3, 2, Some(3)),
            (2, 2, Some(2)),
            (1, 2, Some(1)),
            (0, 3, None),
            (3, 0, None),
        ] {
            let of = |ecn| Datagram { ecn, ..base };
            let mut ground = Ground::plain();
            assert_eq!(ground.take(packet(of(first), &cut(&whole, 0..16))), Ok(None));
            let second = ground.take(packet(of(second), &cut(&whole, 16..32)));
            let ecn = second
                .as_ref()
                .ok()
                .and_then(Option::as_ref)
                .map(|packet| parse(packet).expect("sound").ecn());
            assert_eq!(ecn, expected);
            let dropped = ground.drops.count(DropReason::FragmentEcn);
            assert_eq!(dropped, if expected.is_none() { 2 } else { 0 });
        }
    }
}

// RFC 1122, 3.3.2; RFC 8200, 4.5: 60 s after the first fragment came, and the first-offset one is
// what the error is about.
#[test]
fn a_datagram_is_given_up_in_time() {
    let whole = data(48);
    for (of, seconds) in [(UDP4, 30), (UDP6, 60)] {
        let mut ground = Ground::plain();
        let last = Datagram { identification: 8, ..of };
        assert_eq!(ground.take(packet(of, &cut(&whole, 0..16))), Ok(None));
        assert_eq!(ground.take(packet(last, &cut(&whole, 32..48))), Ok(None));
        ground.now += Duration::from_secs(20);
        assert_eq!(ground.take(packet(of, &cut(&whole, 16..32))), Ok(None));
        let due = START + Duration::from_secs(seconds);
        assert_eq!(ground.reassembly.poll_timeout(), Some(due), "later fragments change nothing");
        let early = START + (Duration::from_secs(seconds) - Duration::from_millis(1));
        assert!(ground.reassembly.poll_expired(early, &mut ground.drops).is_none());
        let expired = ground.reassembly.poll_expired(due, &mut ground.drops).expect("due");
        let (first, _) = expired.first.expect("the first fragment had come");
        assert_eq!(first.bytes(), packet(of, &cut(&whole, 0..16)));
        assert_eq!(ground.drops.count(DropReason::FragmentTimeout), 2);
        let expired = ground.reassembly.poll_expired(due, &mut ground.drops).expect("due");
        assert!(expired.first.is_none());
        assert_eq!((ground.reassembly.held_bytes(), ground.reassembly.poll_timeout()), (0, None));
    }
}

#[test]
fn a_flood_of_one_source_costs_that_source_alone() {
    let config = ReassemblyConfig { source_datagrams_max: 4, ..ReassemblyConfig::default() };
    let mut ground = Ground::new(config);
    let whole = data(32);
    let other = Datagram { source: 2, ..UDP4 };
    assert_eq!(ground.take(packet(other, &cut(&whole, 0..16))), Ok(None));
    for identification in 0..100 {
        let of = Datagram { identification, ..UDP4 };
        assert_eq!(ground.take(packet(of, &cut(&whole, 0..16))), Ok(None));
        assert!(ground.reassembly.len() <= 5);
    }
    assert_eq!(ground.drops.count(DropReason::FragmentLimit), 96);
    let newest = Datagram { identification: 99, ..UDP4 };
    for of in [newest, other] {
        assert!(ground.take(packet(of, &cut(&whole, 16..32))).expect("sound").is_some());
    }
}

#[test]
fn what_is_held_stays_within_the_bounds() {
    let config = ReassemblyConfig {
        bytes_max: 100_000,
        source_bytes_max: 30_000,
        ..ReassemblyConfig::default()
    };
    let mut ground = Ground::new(config);
    let whole = data(2_000);
    for identification in 0..2_000 {
        let source = (identification % 50) as u8;
        let ipv6 = identification % 3 == 0;
        let of = Datagram { source, identification, ipv6, ..UDP4 };
        assert_eq!(ground.take(packet(of, &cut(&whole, 0..1_000))), Ok(None));
        assert!(ground.reassembly.held_bytes() <= 100_000);
    }
    assert!(ground.reassembly.len() > 50, "the bound is used");
    let count = ground.reassembly.len() as u64;
    assert_eq!(ground.drops.count(DropReason::FragmentLimit), 2_000 - count);
    ground.now += Duration::from_secs(60);
    while ground.reassembly.poll_expired(ground.now, &mut ground.drops).is_some() {}
    assert_eq!(ground.reassembly.held_bytes(), 0);
    assert!(ground.reassembly.sources.is_empty() && ground.reassembly.turns.is_empty());
}

// A block of which a fragment is a small part is kept only while there is memory, for all and for its source.
#[test]
fn large_blocks_are_not_pinned_for_small_fragments() {
    for is_of_one_source in [false, true] {
        let mut ground = Ground::plain();
        let whole = data(64);
        for identification in 0..60_u32 {
            let source = if is_of_one_source { 1 } else { identification as u8 };
            let of = Datagram { identification, source, ..UDP4 };
            let bytes = packet(of, &cut(&whole, 0..32));
            let fragment = parse_fragment(&bytes).expect("sound");
            let mut block = bytes.clone();
            block.resize(65_536, 0);
            let packet = Chunk::new(Block::from(Bytes::from(block)), 0..bytes.len());
            let arrival = Arrival::default();
            let received = ReceivedFragment { packet, sparse: false, interface: 0, arrival };
            let (pool, drops) = (&ground.pool, &mut ground.drops);
            let taken = ground.reassembly.on_fragment(START, &fragment, received, pool, drops);
            assert!(matches!(taken, Ok(None)));
        }
        assert_eq!(ground.reassembly.len(), 60, "nothing had to go");
        assert!(ground.reassembly.held_bytes() < 3 << 20);
    }
}

/// Splits of one datagram: sorted places, in units of 8 bytes.
fn splits() -> impl Strategy<Value = (usize, Vec<usize>)> {
    (9_usize..400).prop_flat_map(|len| {
        let units = len.div_ceil(8);
        (Just(len), proptest::collection::btree_set(1..units.max(2), 1..12)).prop_map(
            move |(len, places)| {
                (len, places.into_iter().map(|unit| unit * 8).filter(|at| *at < len).collect())
            },
        )
    })
}

/// What a host that keeps one flag for each byte makes of fragments: `None` is "still waiting".
#[derive(Default)]
struct Model {
    bytes: Vec<Option<u8>>,
    seen: Vec<(usize, Vec<u8>, bool)>,
    total_len: Option<usize>,
    broken: bool,
}

impl Model {
    fn take(&mut self, cut: &Cut) -> Option<Vec<u8>> {
        let seen = (cut.offset, cut.data.clone(), cut.more);
        if self.broken || self.seen.contains(&seen) {
            return None;
        }
        let end = cut.offset + cut.data.len();
        self.bytes.resize(self.bytes.len().max(end), None);
        let overlaps = self.bytes[cut.offset..end].iter().any(Option::is_some);
        if !cut.more {
            self.broken |= self.total_len.is_some();
            self.total_len = Some(end);
        }
        let beyond = self.total_len.is_some_and(|total| self.bytes.len() > total);
        let no_end = cut.more && self.total_len == Some(end);
        self.broken |= overlaps || beyond || no_end;
        for (place, byte) in self.bytes[cut.offset..].iter_mut().zip(&cut.data) {
            *place = Some(*byte);
        }
        self.seen.push(seen);
        let complete = !self.broken && self.total_len == Some(self.bytes.len());
        let whole: Option<Vec<u8>> = self.bytes.iter().copied().collect();
        whole.filter(|_| complete)
    }
}

proptest! {
    #[test]
    fn any_split_in_any_order_with_repetitions_is_the_datagram(
        (len, places) in splits(),
        order in proptest::collection::vec(any::<proptest::sample::Index>(), 30),
        ipv6 in any::<bool>(),
    ) {
        let whole = data(len);
        let bounds: Vec<usize> = [0].into_iter().chain(places).chain([len]).collect();
        let cuts: Vec<Cut> = bounds.windows(2).map(|pair| cut(&whole, pair[0]..pair[1])).collect();
        prop_assume!(cuts.len() > 1);
        let of = Datagram { ipv6, ..UDP4 };
        let mut ground = Ground::plain();
        let mut complete = None;
        // Whatever the order says first, all of them come at last.
        let chosen = order.iter().map(|index| index.index(cuts.len())).chain(0..cuts.len());
        for index in chosen {
            match ground.take(packet(of, &cuts[index])) {
                Ok(None) | Err(RefusedFragment { reason: DropReason::FragmentDuplicate, .. }) => {}
                Ok(Some(packet)) => { complete = Some(packet); break; }
                Err(refused) => prop_assert!(false, "{:?}", refused),
            }
        }
        let complete = complete.expect("every fragment came");
        prop_assert_eq!(transport(&complete), whole);
        prop_assert_eq!(ground.reassembly.held_bytes(), 0);
    }

    #[test]
    fn random_fragments_are_judged_as_by_the_model(
        pieces in proptest::collection::vec((1_usize..6, 1_usize..4, any::<bool>(), 0_u8..3), 1..12),
        ipv6 in any::<bool>(),
    ) {
        let of = Datagram { ipv6, protocol: 200, ..UDP4 };
        let (mut ground, mut model) = (Ground::plain(), Model::default());
        let whole = data(200);
        let first = Cut { offset: 0, data: whole[..8].to_vec(), more: true };
        let random = pieces.into_iter().map(|(unit, units, more, change)| {
            let mut data = whole[unit * 8..(unit + units) * 8].to_vec();
            // Mostly the same bytes at the same place, so that repetitions are frequent.
            data[0] ^= u8::from(change == 0);
            Cut { offset: unit * 8, data, more }
        });
        for cut in random.chain([first]) {
            let expected = model.take(&cut);
            let taken = ground.take(packet(of, &cut)).unwrap_or(None);
            prop_assert_eq!(taken.as_deref().map(transport), expected.clone());
            if expected.is_some() {
                break;
            }
        }
    }

    #[test]
    fn arbitrary_packets_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 1..120), version in 0..2) {
        bytes[0] = if version == 0 { 0x45 } else { 0x60 };
        if let Some(next_header) = bytes.get_mut(6).filter(|_| version == 1) {
            *next_header = protocol::FRAGMENT;
        }
        let _ = Ground::plain().take(bytes);
    }
}
