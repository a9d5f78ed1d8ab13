use super::*;
use proptest::prelude::*;

const OURS: HardwareAddress = HardwareAddress([2, 0, 0, 0, 0, 1]);
const THEIRS: HardwareAddress = HardwareAddress([2, 0, 0, 0, 0, 2]);
const OTHER: HardwareAddress = HardwareAddress([2, 0, 0, 0, 0, 3]);
const OUR_V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const HOP_V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const HOP: IpAddr = IpAddr::V4(HOP_V4);
const HOP_V6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);

type Cache = NeighbourCache<u32>;

/// Packets are numbers, which hold as many bytes.
impl Waiting for u32 {
    fn held_bytes(&self) -> usize {
        *self as usize
    }
}

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

fn cache() -> Cache {
    Cache::new(NeighbourConfig::default())
}

fn arp(operation: ArpOperation, sender_hardware: HardwareAddress) -> ArpRepr {
    ArpRepr {
        operation,
        sender_hardware,
        sender_protocol: HOP_V4,
        target_hardware: OURS,
        target_protocol: OUR_V4,
    }
}

fn reply(cache: &mut Cache, ms: u64, link: HardwareAddress) {
    let message = arp(ArpOperation::Reply, link);
    assert_eq!(cache.on_arp(at(ms), &message, OURS, true), Ok(None), "a reply is not answered");
}

/// All requests that are owed.
fn requests(cache: &mut Cache, ms: u64) -> Vec<Option<HardwareAddress>> {
    core::iter::from_fn(|| cache.poll_request(at(ms))).map(|request| request.unicast_to).collect()
}

/// Lets time pass to `ms`, with every deadline kept and every request sent; says when requests
/// were sent.
fn run_until(cache: &mut Cache, ms: u64) -> Vec<u64> {
    let mut sent = Vec::new();
    while let Some(due) = cache.poll_timeout().filter(|due| *due <= at(ms)) {
        cache.on_timeout(due);
        sent.extend(requests(cache, due.as_millis()).iter().map(|_| due.as_millis()));
    }
    sent
}

/// A cache that knows `HOP`, confirmed at 0.
fn resolved() -> Cache {
    let mut cache = cache();
    assert_eq!(cache.lookup(at(0), HOP), Lookup::Pending);
    assert_eq!(requests(&mut cache, 0), [None]);
    reply(&mut cache, 0, THEIRS);
    assert!(cache.poll_resolved().is_some());
    cache
}

#[test]
fn an_unknown_neighbour_is_asked_for_once_and_its_packets_wait() {
    let mut cache = cache();
    assert_eq!(cache.lookup(at(0), HOP), Lookup::Pending);
    assert_eq!(cache.lookup(at(0), HOP), Lookup::Pending);
    assert_eq!(cache.enqueue(HOP, 1), []);
    assert_eq!(cache.enqueue(HOP, 2), []);
    let request = Request { target: HOP, unicast_to: None };
    assert_eq!(cache.poll_request(at(0)), Some(request));
    assert_eq!(cache.poll_request(at(0)), None);
    assert!(cache.poll_resolved().is_none());

    reply(&mut cache, 3, THEIRS);
    let ended = cache.poll_resolved().expect("it answered");
    assert_eq!((ended.next_hop, ended.outcome), (HOP, Ok(THEIRS)));
    assert_eq!(ended.waiting, [1, 2]);
    assert!(cache.poll_resolved().is_none());
    assert_eq!(cache.lookup(at(4), HOP), Lookup::Resolved(THEIRS));
    assert_eq!(cache.enqueue(HOP, 3), [3], "nothing waits for a known neighbour");
    assert_eq!(cache.poll_timeout(), None);
}

#[test]
fn a_silent_neighbour_is_asked_three_times_and_then_unreachable_for_a_second() {
    // RFC 4861, 7.2.2 and RFC 1122, 2.3.2.1: at most one request per second.
    let mut cache = cache();
    cache.lookup(at(0), HOP);
    assert_eq!(cache.enqueue(HOP, 7), []);
    assert_eq!(requests(&mut cache, 0), [None]);
    assert_eq!(run_until(&mut cache, 60_000), [1_000, 2_000]);
    let ended = cache.poll_resolved().expect("it was given up");
    assert_eq!((ended.outcome, ended.waiting.len()), (Err(Unreachable), 1));
    assert_eq!(cache.counters().neighbour_unreachable, 1);
    assert_eq!(cache.lookup(at(3_500), HOP), Lookup::Unreachable);
    assert_eq!(requests(&mut cache, 3_500), []);
    assert_eq!(cache.lookup(at(4_000), HOP), Lookup::Pending, "it is given another chance");
    assert_eq!(requests(&mut cache, 4_000), [None]);
}

#[test]
fn requests_that_could_not_be_sent_are_not_counted_as_unanswered() {
    let mut cache = cache();
    cache.lookup(at(0), HOP);
    assert_eq!(run_until(&mut cache, 60_000), [0; 0], "the device took nothing");
    assert_eq!(cache.lookup(at(60_000), HOP), Lookup::Pending);
    assert_eq!(requests(&mut cache, 60_000), [None]);
}

#[test]
fn a_stale_neighbour_is_used_and_probed_alone() {
    // RFC 4861, 7.3.3.
    let mut cache = resolved();
    assert_eq!(cache.lookup(at(29_999), HOP), Lookup::Resolved(THEIRS));
    assert_eq!(cache.poll_timeout(), None, "reachable");
    assert_eq!(cache.lookup(at(30_000), HOP), Lookup::Resolved(THEIRS));
    assert_eq!(requests(&mut cache, 30_000), [], "a confirmation may come on its own");
    assert_eq!(cache.poll_timeout(), Some(at(35_000)));
    cache.on_timeout(at(35_000));
    assert_eq!(requests(&mut cache, 35_000), [Some(THEIRS)]);
    assert_eq!(cache.lookup(at(35_001), HOP), Lookup::Resolved(THEIRS));
    reply(&mut cache, 35_002, THEIRS);
    assert_eq!(cache.poll_timeout(), None);
    assert_eq!(cache.lookup(at(65_001), HOP), Lookup::Resolved(THEIRS));
    assert_eq!(cache.poll_timeout(), None, "still reachable");
}

#[test]
fn a_neighbour_that_answers_no_probe_is_forgotten_and_asked_for_afresh() {
    let mut cache = resolved();
    cache.lookup(at(40_000), HOP);
    assert_eq!(run_until(&mut cache, 100_000), [45_000, 46_000, 47_000]);
    assert!(cache.is_empty());
    // 7.3.3: there may be another next hop.
    let resolved = cache.poll_resolved().expect("it is told");
    assert_eq!((resolved.next_hop, resolved.outcome), (HOP, Err(Unreachable)));
    assert!(resolved.waiting.is_empty(), "nobody was waiting");
    assert_eq!(cache.lookup(at(100_000), HOP), Lookup::Pending);
    assert_eq!(requests(&mut cache, 100_000), [None]);
}

#[test]
fn progress_of_the_upper_layer_spares_the_probe() {
    // RFC 4861, 7.3.1.
    let mut cache = resolved();
    cache.lookup(at(40_000), HOP);
    cache.on_confirmed(HOP, at(41_000));
    assert_eq!(run_until(&mut cache, 70_999), [0; 0]);
    cache.lookup(at(70_999), HOP);
    assert_eq!(cache.poll_timeout(), None, "confirmed until 71 s");
    cache.lookup(at(71_000), HOP);
    assert_eq!(cache.poll_timeout(), Some(at(76_000)));
    // A confirmation says nothing of a neighbour whose address is not known.
    let unknown = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9));
    cache.lookup(at(71_000), unknown);
    cache.on_confirmed(unknown, at(71_001));
    assert_eq!(cache.lookup(at(71_002), unknown), Lookup::Pending);
}

#[test]
fn an_arp_request_for_us_is_answered_and_remembered() {
    let mut cache = cache();
    let request = arp(ArpOperation::Request, THEIRS);
    let answer = cache.on_arp(at(0), &request, OURS, true).expect("sound").expect("an answer");
    assert_eq!(answer.operation, ArpOperation::Reply);
    assert_eq!((answer.sender_hardware, answer.sender_protocol), (OURS, OUR_V4));
    assert_eq!((answer.target_hardware, answer.target_protocol), (THEIRS, HOP_V4));
    assert_eq!(cache.lookup(at(1), HOP), Lookup::Resolved(THEIRS));
    assert!(cache.poll_timeout().is_some(), "it was not confirmed, so it is watched");
}

#[test]
fn arp_for_others_makes_no_entry_but_updates_one() {
    let mut cache = cache();
    let gratuitous = ArpRepr { target_protocol: HOP_V4, ..arp(ArpOperation::Request, THEIRS) };
    assert_eq!(cache.on_arp(at(0), &gratuitous, OURS, false), Ok(None));
    let unsolicited = arp(ArpOperation::Reply, THEIRS);
    assert_eq!(cache.on_arp(at(0), &unsolicited, OURS, true), Ok(None));
    assert!(cache.is_empty(), "nobody asked");

    let mut cache = resolved();
    let moved = ArpRepr { sender_hardware: OTHER, ..gratuitous };
    assert_eq!(cache.on_arp(at(5), &moved, OURS, false), Ok(None));
    assert_eq!(cache.lookup(at(6), HOP), Lookup::Resolved(OTHER));
    assert_eq!(cache.poll_timeout(), Some(at(5_006)), "and it is not trusted");
    assert_eq!(cache.counters().neighbour_address_changes, 1);
}

#[test]
fn an_arp_probe_tells_nothing_and_is_answered() {
    // RFC 5227, 2.1.1 and 2.4: an address in use is defended.
    let mut cache = cache();
    let probe =
        ArpRepr { sender_protocol: Ipv4Addr::UNSPECIFIED, ..arp(ArpOperation::Request, THEIRS) };
    assert!(cache.on_arp(at(0), &probe, OURS, true).expect("sound").is_some());
    assert!(cache.is_empty());
}

#[test]
fn nobody_has_a_group_address() {
    // RFC 1812, 3.3.2.
    let mut cache = resolved();
    for link in [HardwareAddress::BROADCAST, HardwareAddress::ZERO] {
        let message = arp(ArpOperation::Reply, link);
        let refused = Err(DropReason::MalformedNeighbour);
        assert_eq!(cache.on_arp(at(0), &message, OURS, true), refused);
        let told = cache.on_neighbour_advertisement(at(0), HOP_V6, Some(link), true, true);
        assert_eq!(told, Err(DropReason::MalformedNeighbour));
        let told = cache.on_link_address(at(0), HOP, link);
        assert_eq!(told, Err(DropReason::MalformedNeighbour));
    }
    assert_eq!(cache.lookup(at(1), HOP), Lookup::Resolved(THEIRS));
}

#[test]
fn groups_and_broadcast_need_no_neighbour() {
    let mut cache = cache();
    let group = cache.lookup(at(0), "ff02::1".parse().expect("an address"));
    assert_eq!(group, Lookup::Resolved(HardwareAddress([0x33, 0x33, 0, 0, 0, 1])));
    let all = cache.lookup(at(0), Ipv4Addr::BROADCAST.into());
    assert_eq!(all, Lookup::Resolved(HardwareAddress::BROADCAST));
    assert_eq!(cache.lookup(at(0), Ipv4Addr::UNSPECIFIED.into()), Lookup::Unreachable);
    assert!(cache.is_empty());
}

#[test]
fn a_solicitation_is_answered_to_its_sender_or_to_all() {
    // RFC 4861, 7.2.4.
    let mut cache = cache();
    let target = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
    let envelope = NdpEnvelope { source: HOP_V6, destination: target, hop_limit: 255 };
    let answer = cache.on_neighbour_solicitation(at(0), &envelope, target, Some(THEIRS), OURS);
    let answer = answer.expect("sound");
    let advertisement = |solicited| NdpRepr::NeighbourAdvertisement {
        router: false,
        solicited,
        replaces: true,
        target,
        target_link: Some(OURS),
    };
    assert_eq!((answer.destination, answer.message), (HOP_V6, advertisement(true)));
    assert_eq!(cache.lookup(at(1), HOP_V6.into()), Lookup::Resolved(THEIRS));
    assert_eq!(cache.poll_timeout(), Some(at(5_001)), "kept as stale (7.2.3)");

    let probe = NdpEnvelope { source: Ipv6Addr::UNSPECIFIED, ..envelope };
    let answer = cache.on_neighbour_solicitation(at(0), &probe, target, None, OURS);
    let answer = answer.expect("sound");
    assert_eq!((answer.destination, answer.message), (ALL_NODES, advertisement(false)));
    assert_eq!(cache.len(), 1);
}

/// A cache that knows `HOP_V6`, reachable since 0 or stale.
fn knows_v6(reachable: bool) -> Cache {
    let mut cache = cache();
    cache.on_link_address(at(0), HOP_V6.into(), THEIRS).expect("sound");
    if reachable {
        cache.on_confirmed(HOP_V6.into(), at(0));
    }
    cache
}

#[test]
fn advertisements_change_a_known_neighbour_as_rfc_4861_says() {
    // RFC 4861, 7.2.5 and appendix C: (reachable before, link, solicited, override) to
    // (link after, reachable after).
    let cases = [
        ((true, Some(OTHER), false, false), (THEIRS, false)),
        ((true, Some(OTHER), true, false), (THEIRS, false)),
        ((false, Some(OTHER), true, false), (THEIRS, false)),
        ((true, Some(OTHER), true, true), (OTHER, true)),
        ((false, Some(OTHER), true, true), (OTHER, true)),
        ((true, Some(OTHER), false, true), (OTHER, false)),
        ((false, Some(THEIRS), true, false), (THEIRS, true)),
        ((false, None, true, false), (THEIRS, true)),
        ((true, Some(THEIRS), false, true), (THEIRS, true)),
        ((false, None, false, true), (THEIRS, false)),
    ];
    for (case, after) in cases {
        let (reachable, link, solicited, replaces) = case;
        let mut cache = knows_v6(reachable);
        let told = cache.on_neighbour_advertisement(at(1), HOP_V6, link, solicited, replaces);
        // What names another station without replacing the one known "MUST NOT update the cache".
        assert_eq!(told, Ok(replaces || link != Some(OTHER)), "{case:?}");
        let lookup = cache.lookup(at(2), HOP_V6.into());
        // A lookup starts the watch over every entry that is not reachable.
        assert_eq!(
            (lookup, cache.poll_timeout().is_none()),
            (Lookup::Resolved(after.0), after.1),
            "{case:?}"
        );
    }
}

#[test]
fn advertisements_end_a_resolution_only_with_an_address() {
    let mut cache = cache();
    let advertise = |cache: &mut Cache, link, solicited| {
        cache.on_neighbour_advertisement(at(1), HOP_V6, link, solicited, true).expect("sound")
    };
    assert!(!advertise(&mut cache, Some(THEIRS), true));
    assert!(cache.is_empty(), "7.2.5: nobody asked, so there is no need to know");
    cache.lookup(at(0), HOP_V6.into());
    requests(&mut cache, 0);
    assert!(!advertise(&mut cache, None, true));
    assert_eq!(cache.lookup(at(1), HOP_V6.into()), Lookup::Pending);
    assert!(advertise(&mut cache, Some(THEIRS), false));
    assert_eq!(cache.poll_resolved().expect("ended").outcome, Ok(THEIRS));
    cache.lookup(at(2), HOP_V6.into());
    assert!(cache.poll_timeout().is_some(), "not solicited: stale");
}

#[test]
fn waiting_packets_are_bounded_for_one_and_for_all() {
    let config = NeighbourConfig {
        waiting_packets_max: 2,
        waiting_packets_total_max: 3,
        ..NeighbourConfig::default()
    };
    let mut cache = Cache::new(config);
    let hops: Vec<IpAddr> = (2..5).map(|host| Ipv4Addr::new(10, 0, 0, host).into()).collect();
    for hop in &hops {
        cache.lookup(at(0), *hop);
    }
    assert_eq!(cache.enqueue(hops[0], 1), []);
    assert_eq!(cache.enqueue(hops[0], 2), []);
    assert_eq!(cache.enqueue(hops[0], 3), [1], "the oldest gives way");
    assert_eq!(cache.enqueue(hops[1], 4), []);
    assert_eq!(cache.enqueue(hops[1], 5), [4], "all together are three");
    assert_eq!(cache.enqueue(hops[2], 6), [6], "nothing of its own to give way");
    reply(&mut cache, 1, THEIRS);
    assert_eq!(cache.poll_resolved().expect("ended").waiting, [2, 3]);
    assert_eq!(cache.enqueue(hops[2], 7), [], "there is room again");
}

#[test]
fn bytes_that_wait_are_bounded_for_one_and_for_all() {
    let config = NeighbourConfig {
        waiting_bytes_max: 100,
        waiting_bytes_total_max: 200,
        ..NeighbourConfig::default()
    };
    let mut cache = Cache::new(config);
    let hops: Vec<IpAddr> = (2..5).map(|host| Ipv4Addr::new(10, 0, 0, host).into()).collect();
    for hop in &hops {
        cache.lookup(at(0), *hop);
    }
    for bytes in [30, 31, 32] {
        assert_eq!(cache.enqueue(hops[0], bytes), []);
    }
    assert_eq!(cache.enqueue(hops[0], 50), [30, 31], "as many as it needs give way");
    assert_eq!(cache.enqueue(hops[0], 150), [32, 50], "one that is longer may wait alone");
    assert_eq!(cache.enqueue(hops[1], 40), []);
    assert_eq!(cache.enqueue(hops[1], 41), [40], "all together are 200");
    assert_eq!(cache.enqueue(hops[1], 60), [60], "too little of its own to give way");
    assert_eq!(cache.enqueue(hops[2], 12), [12], "nothing of its own to give way");
    reply(&mut cache, 1, THEIRS);
    assert_eq!(cache.poll_resolved().expect("ended").waiting, [150]);
    assert_eq!(cache.enqueue(hops[2], 100), [], "there is room again");
}

/// Two neighbours that do not answer leave room for the others.
#[test]
fn a_long_queue_has_half_of_the_room_for_all() {
    let config = NeighbourConfig {
        waiting_packets_max: 60,
        waiting_packets_total_max: 100,
        ..NeighbourConfig::default()
    };
    let mut cache = Cache::new(config);
    let hops: Vec<IpAddr> = (2..8).map(|host| Ipv4Addr::new(10, 0, 0, host).into()).collect();
    let waiting = |cache: &mut Cache, hop| {
        cache.lookup(at(0), hop);
        (0..90).filter(|_| cache.enqueue(hop, 1).is_empty()).count()
    };
    let counts: Vec<usize> = hops.iter().map(|hop| waiting(&mut cache, *hop)).collect();
    assert_eq!(counts, [50, SHARE_PACKETS, SHARE_PACKETS, SHARE_PACKETS, 2, 0]);
    assert_eq!(cache.waiting_count(), 100);
}

#[test]
fn a_scan_of_the_subnet_does_not_push_out_a_working_neighbour() {
    // RFC 6583.
    let config = NeighbourConfig { entries_max: 8, ..NeighbourConfig::default() };
    let mut cache = Cache::new(config);
    cache.lookup(at(0), HOP);
    reply(&mut cache, 0, THEIRS);
    while cache.poll_resolved().is_some() {}
    for host in 0..1_000_u32 {
        let target = IpAddr::V4(Ipv4Addr::from(0x0a01_0000 + host));
        assert_eq!(cache.lookup(at(1), target), Lookup::Pending);
        assert_eq!(cache.enqueue(target, host), []);
        assert!(cache.len() <= 8);
        while let Some(ended) = cache.poll_resolved() {
            assert_eq!((ended.outcome, ended.waiting.len()), (Err(Unreachable), 1));
        }
    }
    assert_eq!(cache.lookup(at(2), HOP), Lookup::Resolved(THEIRS));
    assert_eq!(cache.counters().neighbour_evictions, 1_000 - 7);
    assert_eq!(requests(&mut cache, 2).len(), 7, "requests for evicted entries are gone");
}

#[test]
fn resolutions_that_nobody_reads_are_bounded() {
    let config = NeighbourConfig { entries_max: 4, ..NeighbourConfig::default() };
    let mut cache = Cache::new(config);
    let pending = (0..1_000_u32)
        .filter(|host| {
            let target = IpAddr::V4(Ipv4Addr::from(0x0a01_0000 + host));
            cache.lookup(at(0), target) == Lookup::Pending
        })
        .count();
    assert_eq!(pending, 8, "four entries and four unread resolutions");
}

#[derive(Clone, Debug)]
enum Step {
    Lookup(u8),
    Enqueue(u8),
    Confirm(u8),
    Arp { sender: u8, link: u8, reply: bool, ours: bool },
    Advertise { link: Option<u8>, solicited: bool, replaces: bool },
    Wait(u16),
    Send,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..12_u8).prop_map(Step::Lookup),
        (0..12_u8).prop_map(Step::Enqueue),
        (0..12_u8).prop_map(Step::Confirm),
        (0..12_u8, 0..4_u8, any::<bool>(), any::<bool>())
            .prop_map(|(sender, link, reply, ours)| Step::Arp { sender, link, reply, ours }),
        (prop::option::of(0..4_u8), any::<bool>(), any::<bool>())
            .prop_map(|(link, solicited, replaces)| Step::Advertise { link, solicited, replaces }),
        (0..9_000_u16).prop_map(Step::Wait),
        Just(Step::Send),
    ]
}

proptest! {
    /// Whatever comes: bounds hold, and every packet that waited comes back exactly once.
    #[test]
    fn no_waiting_packet_is_lost(steps in prop::collection::vec(step(), 0..300)) {
        let config = NeighbourConfig {
            entries_max: 5,
            waiting_packets_max: 2,
            waiting_packets_total_max: 6,
            ..NeighbourConfig::default()
        };
        let mut cache = Cache::new(config);
        let hop = |index: u8| match index {
            0 => IpAddr::V6(HOP_V6),
            _ => IpAddr::V4(Ipv4Addr::new(10, 0, 0, index)),
        };
        let link = |index: u8| HardwareAddress([2, 0, 0, 0, 0, index]);
        let (mut now, mut given, mut back) = (0_u64, 0_u32, Vec::new());
        for step in steps {
            match step {
                Step::Lookup(index) => {
                    cache.lookup(at(now), hop(index));
                }
                Step::Enqueue(index) => {
                    back.extend(cache.enqueue(hop(index), given));
                    given += 1;
                }
                Step::Confirm(index) => cache.on_confirmed(hop(index), at(now)),
                Step::Arp { sender, link: of, reply, ours } => {
                    let operation = if reply { ArpOperation::Reply } else { ArpOperation::Request };
                    let sender_protocol = Ipv4Addr::new(10, 0, 0, sender);
                    let message = ArpRepr { sender_protocol, ..arp(operation, link(of)) };
                    let _ = cache.on_arp(at(now), &message, OURS, ours);
                }
                Step::Advertise { link: of, solicited, replaces } => {
                    let _ = cache.on_neighbour_advertisement(at(now), HOP_V6, of.map(link), solicited, replaces);
                }
                Step::Wait(ms) => {
                    now += u64::from(ms);
                    cache.on_timeout(at(now));
                    prop_assert!(cache.poll_timeout().is_none_or(|due| due > at(now)));
                }
                Step::Send => {
                    prop_assert!(requests(&mut cache, now).len() <= 5);
                }
            }
            prop_assert!(cache.len() <= 5);
            while let Some(ended) = cache.poll_resolved() {
                prop_assert!(ended.waiting.len() <= 2);
                back.extend(ended.waiting);
            }
        }
        for _ in 0..4 {
            requests(&mut cache, now);
            now += 1_000;
            cache.on_timeout(at(now));
        }
        while let Some(ended) = cache.poll_resolved() {
            back.extend(ended.waiting);
        }
        back.sort_unstable();
        prop_assert_eq!(back, (0..given).collect::<Vec<_>>());
    }
}

#[test]
fn requests_without_a_source_address_do_not_make_a_neighbour_unreachable() {
    let mut cache = cache();
    assert_eq!(cache.lookup(at(0), HOP), Lookup::Pending);
    assert_eq!(requests(&mut cache, 0), [None]);
    assert_eq!(run_until(&mut cache, 2_500), [1_000, 2_000]);
    // All three were swallowed; the address comes before the third would have been answered.
    cache.on_source_address(false);
    cache.on_source_address(true);
    assert_eq!(run_until(&mut cache, 5_500), [3_000, 4_000, 5_000], "one a second, as ever");
    assert!(cache.poll_resolved().is_none());
    run_until(&mut cache, 6_000);
    assert!(cache.poll_resolved().is_some_and(|it| it.outcome == Err(Unreachable)));
    assert_eq!(cache.lookup(at(6_100), HOP), Lookup::Unreachable);
    cache.on_source_address(true);
    assert_eq!(cache.lookup(at(6_200), HOP), Lookup::Pending);
}

/// Two caches of one host: what one knows the other is told, and a neighbour is asked once a second however
/// many want to know.
#[test]
fn a_cache_that_asks_for_another_asks_no_more_often_and_tells_what_it_knows() {
    let (mut first, mut other) = (cache(), cache());
    assert_eq!(other.lookup(at(0), HOP), Lookup::Pending);
    assert_eq!(requests(&mut other, 0), [None]);
    assert_eq!(first.on_asked_for(at(0), HOP, false), None);
    assert_eq!(first.on_asked_for(at(1), HOP, false), None);
    assert_eq!(requests(&mut first, 1), [None], "two want to know, one asks");
    reply(&mut first, 2, THEIRS);
    let known = first.on_asked_for(at(3), HOP, false).expect("it is known now");
    assert_eq!(known, Known { link: THEIRS, is_reachable: true });
    other.on_told(at(3), HOP, &known);
    assert_eq!(other.lookup(at(3), HOP), Lookup::Resolved(THEIRS));

    // The other one doubts it: the neighbour is asked, but not twice within a second.
    assert_eq!(first.on_asked_for(at(500), HOP, true), Some(known), "it answered a moment ago");
    assert_eq!(first.on_asked_for(at(1_001), HOP, true), None);
    assert_eq!(requests(&mut first, 1_001), [Some(THEIRS)]);
    assert_eq!(first.on_asked_for(at(1_500), HOP, true), None, "it is being asked");
    assert_eq!(requests(&mut first, 1_500), []);
    assert_eq!(
        first.on_asked_for(at(1_500), HOP, false),
        Some(Known { is_reachable: false, ..known })
    );

    // What is no longer sure is told as that.
    reply(&mut first, 2_000, THEIRS);
    let known = first.on_asked_for(at(60_000), HOP, false).expect("a stale entry");
    assert!(!known.is_reachable);
    let mut third = cache();
    third.on_told(at(60_000), HOP, &known);
    assert!(third.is_empty(), "nobody waited for it there");
    assert_eq!(third.lookup(at(60_000), HOP), Lookup::Pending);
    third.on_told(at(60_001), HOP, &known);
    assert_eq!(third.lookup(at(60_002), HOP), Lookup::Resolved(THEIRS));
    assert!(third.poll_timeout().is_some(), "it is used and will be probed");
}

#[test]
fn once_links_are_forgotten_everybody_is_asked_for_again() {
    let mut cache = resolved();
    assert_eq!(cache.lookup(at(1), HOP), Lookup::Resolved(THEIRS));
    cache.forget_links();
    assert_eq!(cache.lookup(at(1), HOP), Lookup::Pending);
    assert_eq!(requests(&mut cache, 1), [None], "asked of all, not of the station it was");
    reply(&mut cache, 2, OTHER);
    assert_eq!(cache.lookup(at(2), HOP), Lookup::Resolved(OTHER));
}

/// RFC 6583: of entries of one kind the one that was used last stays.
#[test]
fn who_was_asked_for_lately_is_not_pushed_out() {
    let mut cache = Cache::new(NeighbourConfig { entries_max: 2, ..NeighbourConfig::default() });
    let other = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 3));
    for (ms, hop) in [(0, HOP_V4), (1, Ipv4Addr::new(10, 0, 0, 3))] {
        cache.lookup(at(ms), hop.into());
        let message = ArpRepr { sender_protocol: hop, ..arp(ArpOperation::Reply, THEIRS) };
        assert_eq!(cache.on_arp(at(ms), &message, OURS, true), Ok(None));
        assert!(cache.poll_resolved().is_some());
    }
    assert_eq!(cache.lookup(at(2), HOP), Lookup::Resolved(THEIRS));
    cache.lookup(at(3), Ipv4Addr::new(10, 0, 0, 4).into());
    assert_eq!(cache.lookup(at(4), HOP), Lookup::Resolved(THEIRS));
    assert_eq!(cache.lookup(at(4), other), Lookup::Pending, "it made room");
}

/// What waited is counted until it is handed back: it may not be forgotten where an interface goes.
#[test]
fn what_is_to_be_handed_back_still_waits() {
    let mut cache = cache();
    cache.lookup(at(0), HOP);
    assert_eq!(cache.enqueue(HOP, 7), []);
    reply(&mut cache, 1, THEIRS);
    assert_eq!((cache.waiting_count(), cache.has_waiting()), (1, true));
    assert_eq!(cache.poll_resolved().map(|it| it.waiting.len()), Some(1));
    assert!(!cache.has_waiting());
}

/// Who was given up on one link, of either family, is asked for at once on another.
#[test]
fn who_was_asked_in_vain_is_asked_on_another_link() {
    for hop in [HOP, HOP_V6.into()] {
        let mut cache = cache();
        cache.lookup(at(0), hop);
        assert_eq!(requests(&mut cache, 0), [None]);
        run_until(&mut cache, 3_000);
        assert_eq!(cache.lookup(at(3_001), hop), Lookup::Unreachable);
        cache.forget_links();
        assert_eq!(cache.lookup(at(3_001), hop), Lookup::Pending, "{hop}");
    }
}
