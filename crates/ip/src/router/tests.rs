use super::*;
use wire::ndp::{NameServers, PrefixInformation};

const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const OTHER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);
const PREFIX: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0);
const STATION: HardwareAddress = HardwareAddress([2, 0, 0, 0, 0, 1]);
const KEY: IdentifierKey = IdentifierKey([3; 16]);

struct Bed {
    discovery: RouterDiscovery,
    jitter: Jitter,
    now: Instant,
}

impl Bed {
    /// Discovery that has sent nothing.
    fn new() -> Self {
        let mut jitter = Jitter::new(4);
        let now = Instant::from_millis(1_000);
        let config = RouterConfig::new(KEY);
        let discovery = RouterDiscovery::new(now, config, STATION, &mut jitter);
        Self { discovery, jitter, now }
    }

    fn hear(&mut self, source: Ipv6Addr, message: RouterAdvertisement) -> Vec<LinkChange> {
        self.discovery.on_advertisement(self.now, source, &message, &mut self.jitter);
        self.changes()
    }

    fn changes(&mut self) -> Vec<LinkChange> {
        core::iter::from_fn(|| self.discovery.poll_change()).collect()
    }

    /// Goes on by `seconds`, stopping at every deadline on the way.
    fn pass(&mut self, seconds: u64) -> Vec<LinkChange> {
        let end = self.now + Duration::from_secs(seconds);
        while let Some(at) = self.discovery.poll_timeout().filter(|at| *at <= end) {
            assert!(at > self.now, "the deadline moves on");
            self.now = at;
            self.discovery.on_timeout(at);
            let _ = self.discovery.poll_solicitation(at, &mut self.jitter);
        }
        self.now = end;
        self.changes()
    }
}

fn silent() -> RouterAdvertisement {
    RouterAdvertisement {
        hop_limit: 0,
        managed: false,
        other: false,
        preference: RouterPreference::Medium,
        router_lifetime_s: 0,
        reachable_ms: 0,
        retransmit_ms: 0,
        source_link: None,
        mtu_bytes: None,
        prefixes: Vec::new(),
        name_servers: Vec::new(),
    }
}

fn router(lifetime_s: u16, preference: RouterPreference) -> RouterAdvertisement {
    RouterAdvertisement { router_lifetime_s: lifetime_s, preference, ..silent() }
}

fn prefix(of: Ipv6Addr, len: u8, valid_s: u32, preferred_s: u32) -> RouterAdvertisement {
    let mut message = silent();
    let told = PrefixInformation {
        prefix: of,
        prefix_len_bits: len,
        on_link: false,
        autonomous: true,
        valid_s,
        preferred_s,
    };
    message.prefixes.push(told);
    message
}

fn on_link(of: Ipv6Addr, len: u8, valid_s: u32) -> RouterAdvertisement {
    let mut message = silent();
    let told = PrefixInformation {
        prefix: of,
        prefix_len_bits: len,
        on_link: true,
        autonomous: false,
        valid_s,
        preferred_s: 0,
    };
    message.prefixes.push(told);
    message
}

fn formed() -> Ipv6Addr {
    stable_address(PREFIX, STATION, 0, &KEY)
}

/// Without the draw of times, which comes with the first advertisement.
fn but_times(changes: Vec<LinkChange>) -> Vec<LinkChange> {
    changes.into_iter().filter(|change| !matches!(change, LinkChange::Times { .. })).collect()
}

/// RFC 7559, 2: IRT 4 s, MRT 3600 s, for ever; RFC 4861, 6.3.7: the first within a second.
#[test]
fn solicitations_go_out_ever_more_rarely_until_a_router_answers() {
    let mut bed = Bed::new();
    let mut at = Vec::new();
    for _ in 0..15 {
        bed.now = bed.discovery.poll_timeout().expect("a solicitation");
        assert!(bed.discovery.poll_solicitation(bed.now, &mut bed.jitter));
        assert!(!bed.discovery.poll_solicitation(bed.now, &mut bed.jitter), "one at a time");
        at.push(bed.now);
    }
    assert!(at[0] <= Instant::from_millis(2_000));
    for (index, pair) in at.windows(2).enumerate() {
        let expected = Duration::from_secs((4 << index).min(3_600));
        let interval = pair[1] - pair[0];
        assert!(interval >= expected * 9 / 10 && interval <= expected * 11 / 10, "{interval:?}");
    }
    bed.hear(ROUTER, router(1_800, RouterPreference::Medium));
    bed.pass(1_700);
    assert_eq!(bed.discovery.counters().router_solicitations, 15);
}

/// RFC 4861, 6.3.4 and 6.3.5; RFC 4191, 3.2.
#[test]
fn the_best_router_is_the_default_until_its_lifetime_ends() {
    use RouterPreference::{High, Low, Medium};
    let mut bed = Bed::new();
    let default = |router| vec![LinkChange::DefaultRouter(router)];
    assert_eq!(but_times(bed.hear(ROUTER, router(100, Medium))), default(Some(ROUTER)));
    assert_eq!(bed.hear(OTHER, router(200, Medium)), [], "equals do not take over");
    assert_eq!(bed.hear(OTHER, router(200, High)), default(Some(OTHER)));
    assert_eq!(bed.hear(OTHER, router(200, Low)), default(Some(ROUTER)));
    assert_eq!(bed.pass(99), []);
    assert_eq!(bed.pass(1), default(Some(OTHER)), "the first one's hundred seconds are over");
    assert_eq!(bed.hear(OTHER, router(0, Medium)), default(None));
}

/// RFC 4861, 6.3.6: "routers that are reachable or probably reachable [...] SHOULD be preferred
/// over routers whose reachability is unknown or suspect"; 7.2.5 for one that is none any more.
#[test]
fn a_router_that_is_silent_or_is_none_gives_way() {
    let mut bed = Bed::new();
    bed.hear(ROUTER, router(1_000, RouterPreference::High));
    bed.hear(OTHER, router(1_000, RouterPreference::Low));
    bed.discovery.on_silent(bed.now, ROUTER);
    assert_eq!(bed.changes(), [LinkChange::DefaultRouter(Some(OTHER))]);
    bed.discovery.on_silent(bed.now, OTHER);
    assert_eq!(bed.changes(), [LinkChange::DefaultRouter(Some(ROUTER))], "better than none");
    bed.hear(ROUTER, router(1_000, RouterPreference::High));
    bed.discovery.on_no_router(bed.now, ROUTER);
    assert_eq!(bed.changes(), [LinkChange::DefaultRouter(Some(OTHER))]);
}

/// RFC 4862, 5.5.3 a) to d): what is ignored.
#[test]
fn prefixes_that_form_no_address_are_ignored() {
    let mut bed = Bed::new();
    bed.hear(ROUTER, silent());
    let mut not_autonomous = prefix(PREFIX, 64, 100, 100);
    not_autonomous.prefixes = Vec::new();
    for message in [
        on_link(LINK_LOCAL_PREFIX, 64, 100),
        prefix(LINK_LOCAL_PREFIX, 64, 100, 100),
        prefix(PREFIX, 64, 100, 101),
        prefix(PREFIX, 64, 0, 0),
        prefix(PREFIX, 63, 100, 100),
        prefix(PREFIX, 128, 100, 100),
        prefix("ff02::".parse().expect("an address"), 64, 100, 100),
        not_autonomous,
    ] {
        assert_eq!(bed.hear(ROUTER, message), []);
    }
    assert_eq!(bed.hear(ROUTER, prefix(PREFIX, 64, 100, 100)), [LinkChange::Form(formed())]);
}

/// RFC 4862, 5.5.4: "a preferred address becomes deprecated when its preferred lifetime expires",
/// and "invalid when its valid lifetime expires".
#[test]
fn a_formed_address_is_deprecated_and_then_goes() {
    let mut bed = Bed::new();
    bed.hear(ROUTER, prefix(PREFIX, 64, 100, 50));
    assert_eq!(bed.pass(50), [LinkChange::Prefer(formed(), false)]);
    let again = bed.hear(ROUTER, prefix(PREFIX, 64, 100, 30));
    assert_eq!(again, [LinkChange::Prefer(formed(), true)], "told anew");
    assert_eq!(bed.pass(30), [LinkChange::Prefer(formed(), false)]);
    assert_eq!(bed.pass(100), [LinkChange::Expire(formed())]);
    let for_ever = bed.hear(ROUTER, prefix(PREFIX, 64, u32::MAX, u32::MAX));
    assert_eq!(for_ever, [LinkChange::Form(formed())]);
    assert_eq!(but_times(bed.pass(1 << 33)), []);
}

/// RFC 4862, 5.5.3 e): the two-hour rule, against "a denial-of-service attack in which a bogus
/// advertisement could contain a prefix with very short Valid Lifetimes".
#[test]
fn a_lifetime_is_not_cut_below_two_hours() {
    const HOUR: u32 = 3_600;
    // Remaining lifetime, lifetime told, lifetime that holds.
    for (remaining_s, told_s, holds_s) in [
        (10 * HOUR, 3 * HOUR, 3 * HOUR),
        (10 * HOUR, 60, 2 * HOUR),
        (10 * HOUR, 0, 2 * HOUR),
        (HOUR, 60, HOUR),
        (HOUR, HOUR + 60, HOUR + 60),
        (2 * HOUR, 2 * HOUR - 1, 2 * HOUR),
    ] {
        let mut bed = Bed::new();
        bed.hear(ROUTER, prefix(PREFIX, 64, remaining_s, 0));
        bed.hear(ROUTER, prefix(PREFIX, 64, told_s, 0));
        assert_eq!(bed.pass(u64::from(holds_s) - 1), [], "{remaining_s} {told_s}");
        assert_eq!(bed.pass(1), [LinkChange::Expire(formed())], "{remaining_s} {told_s}");
    }
}

/// RFC 4861, 6.3.4.
#[test]
fn networks_on_the_link_come_and_go() {
    let mut bed = Bed::new();
    let (prefix, prefix_len) = (PREFIX, 60);
    let with_host_bits = "2001:db8::99".parse().expect("an address");
    let heard = but_times(bed.hear(ROUTER, on_link(with_host_bits, 60, 100)));
    assert_eq!(heard, [LinkChange::OnLink { prefix, prefix_len }]);
    bed.pass(50);
    assert_eq!(bed.hear(ROUTER, on_link(PREFIX, 60, 100)), [], "told again: it goes on");
    assert_eq!(bed.pass(99), []);
    assert_eq!(bed.pass(1), [LinkChange::OffLink { prefix, prefix_len }]);
    bed.hear(ROUTER, on_link(PREFIX, 60, 100));
    let ended = bed.hear(ROUTER, on_link(PREFIX, 60, 0));
    assert_eq!(ended, [LinkChange::OffLink { prefix, prefix_len }]);
}

#[test]
fn a_flood_of_routers_and_prefixes_is_bounded_and_pushes_nothing_out() {
    let mut bed = Bed::new();
    bed.hear(ROUTER, router(1_000, RouterPreference::Low));
    bed.hear(OTHER, prefix(PREFIX, 64, 1_000, 1_000));
    for index in 0..10_000_u32 {
        let low = u128::from(index) + 100;
        let source = Ipv6Addr::from(u128::from(LINK_LOCAL_PREFIX) | low);
        bed.hear(source, router(9_000, RouterPreference::Low));
        let network = Ipv6Addr::from(u128::from(PREFIX) | low << 64);
        bed.hear(OTHER, prefix(network, 64, 9_000, 9_000));
        bed.hear(OTHER, on_link(network, 64, 9_000));
    }
    assert_eq!(bed.discovery.routers.len(), 8);
    assert_eq!(bed.discovery.chosen, Some(ROUTER));
    assert_eq!(bed.discovery.counters().router_entries_refused, 3 * 10_000 - (7 + 7 + 8));
    let expired = bed.pass(1_000);
    assert!(expired.contains(&LinkChange::Expire(formed())), "the first one was kept");
}

/// RFC 4861, 6.3.2 and 6.3.4: zero says nothing; the reachable time is drawn around its base.
#[test]
fn parameters_of_the_link_are_passed_on() {
    let mut bed = Bed::new();
    let message = RouterAdvertisement {
        hop_limit: 99,
        mtu_bytes: Some(1_400),
        reachable_ms: 10_000,
        ..silent()
    };
    let heard = bed.hear(ROUTER, message);
    assert_eq!(heard[..2], [LinkChange::HopLimit(99), LinkChange::Mtu(1_400)]);
    let LinkChange::Times { reachable, retransmit } = heard[2] else { panic!("{heard:?}") };
    assert!(reachable >= Duration::from_secs(5) && reachable <= Duration::from_secs(15));
    assert_eq!(retransmit, Duration::from_secs(1));
    let tiny = RouterAdvertisement { mtu_bytes: Some(68), ..silent() };
    assert_eq!(bed.hear(ROUTER, tiny), [], "no IPv6 link is that narrow");
    let fast = bed.hear(ROUTER, RouterAdvertisement { retransmit_ms: 1, ..silent() });
    let least = Duration::from_millis(100);
    assert!(matches!(fast[..], [LinkChange::Times { retransmit, .. }] if retransmit == least));
}

/// An advertisement with an option for each lifetime.
fn servers(all: &[(&[Ipv6Addr], u32)]) -> RouterAdvertisement {
    let options = all.iter().map(|(addresses, lifetime_s)| NameServers {
        lifetime_s: *lifetime_s,
        addresses: addresses.to_vec(),
    });
    RouterAdvertisement { name_servers: options.collect(), ..silent() }
}

/// RFC 8106, 6.2: a server that is told of for longer takes the place of the one that would expire first; a withdrawn one
/// and its successor are two options.
#[test]
fn a_new_name_server_takes_the_place_of_the_one_that_ends_first() {
    let [a, b, c, d, e] = [1, 2, 3, 4, 5].map(|last| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last));
    let mut bed = Bed::new();
    bed.hear(ROUTER, silent());
    let all = [a, b, c, d];
    let told = bed.hear(ROUTER, servers(&[(&all, 100)]));
    assert_eq!(told, [LinkChange::NameServers(vec![a, b, c])]);
    assert_eq!(bed.discovery.counters().router_entries_refused, 1);
    bed.pass(10);
    assert_eq!(
        bed.hear(ROUTER, servers(&[(&all, 100)])),
        [],
        "a router that has more than are kept"
    );
    bed.pass(10);
    let told = bed.hear(ROUTER, servers(&[(&[b, c], 100), (&[d], 50), (&[e], 200)]));
    assert_eq!(told, [LinkChange::NameServers(vec![b, c, e])], "the first ended before");
    let told = bed.hear(ROUTER, servers(&[(&[b], 0), (&[d], 100)]));
    assert_eq!(told, [LinkChange::NameServers(vec![c, e, d])]);
}

/// Two routers with more servers than are kept leave the list alone while both go on telling; where one falls silent,
/// the other's come in.
#[test]
fn routers_with_many_name_servers_do_not_take_turns() {
    let [a, b, c, d] = [1, 2, 3, 4].map(|last| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last));
    let mut bed = Bed::new();
    let told = bed.hear(ROUTER, servers(&[(&[a, b], 90)]));
    assert!(told.contains(&LinkChange::NameServers(vec![a, b])));
    let told = bed.hear(OTHER, servers(&[(&[c, d], 90)]));
    assert!(told.contains(&LinkChange::NameServers(vec![a, b, c])));
    for _ in 0..5 {
        bed.pass(15);
        assert_eq!(bed.hear(ROUTER, servers(&[(&[a, b], 90)])), []);
        bed.pass(15);
        assert_eq!(bed.hear(OTHER, servers(&[(&[c, d], 90)])), []);
    }
    bed.pass(40);
    let told = bed.hear(OTHER, servers(&[(&[c, d], 90)]));
    assert_eq!(told, [LinkChange::NameServers(vec![b, c, d])]);
}

/// RFC 8106, 5.3.1: at least three servers, each until its lifetime ends; zero ends it.
#[test]
fn name_servers_are_told_until_their_lifetime_ends() {
    let mut bed = Bed::new();
    bed.hear(ROUTER, silent());
    let told = bed.hear(ROUTER, servers(&[(&[ROUTER, OTHER], 100)]));
    assert_eq!(told, [LinkChange::NameServers(vec![ROUTER, OTHER])]);
    let told = bed.hear(ROUTER, servers(&[(&[ROUTER], 0)]));
    assert_eq!(told, [LinkChange::NameServers(vec![OTHER])]);
    assert_eq!(bed.pass(100), [LinkChange::NameServers(vec![])]);
}

/// RFC 7217, 6: another DAD counter, at most IDGEN_RETRIES (3) times.
#[test]
fn after_a_duplicate_another_identifier_is_tried_three_times() {
    let mut bed = Bed::new();
    bed.hear(ROUTER, prefix(PREFIX, 64, 100, 100));
    let mut address = formed();
    for duplicates in 1..=3 {
        bed.discovery.on_duplicate(address);
        address = stable_address(PREFIX, STATION, duplicates, &KEY);
        assert_eq!(bed.changes(), [LinkChange::Form(address)]);
    }
    bed.discovery.on_duplicate(address);
    assert_eq!(bed.changes(), []);
}

/// RFC 7559, 2: a host without a default route asks, at intervals that begin at 4 s.
#[test]
fn routers_are_asked_for_again_when_the_last_one_goes_and_on_another_link() {
    let goes: [fn(&mut Bed); 4] = [
        |bed| bed.discovery.on_no_router(bed.now, ROUTER),
        |bed| drop(bed.hear(ROUTER, router(0, RouterPreference::Medium))),
        |bed| drop(bed.pass(60)),
        |bed| bed.discovery.on_new_link(bed.now),
    ];
    for go in goes {
        let mut bed = Bed::new();
        bed.pass(100);
        bed.hear(ROUTER, router(60, RouterPreference::Medium));
        let asked = |bed: &Bed| bed.discovery.counters().router_solicitations;
        let before = asked(&bed);
        bed.pass(50);
        assert_eq!(asked(&bed), before, "there is one");
        bed.hear(ROUTER, router(60, RouterPreference::Medium));
        go(&mut bed);
        bed.pass(7);
        assert_eq!(asked(&bed), before + 2, "within a second, and 4 s later");
        bed.hear(ROUTER, router(60, RouterPreference::Medium));
        bed.pass(50);
        assert_eq!(asked(&bed), before + 2);
    }
    let mut bed = Bed::new();
    bed.hear(ROUTER, router(60, RouterPreference::Medium));
    bed.hear(OTHER, router(600, RouterPreference::Medium));
    let before = bed.discovery.counters().router_solicitations;
    bed.pass(100);
    assert_eq!(bed.discovery.counters().router_solicitations, before, "another one is left");
}

#[test]
fn nobody_says_that_everything_is_on_the_link() {
    let mut bed = Bed::new();
    assert_eq!(but_times(bed.hear(ROUTER, on_link(Ipv6Addr::UNSPECIFIED, 0, 600))), []);
    assert_eq!(bed.hear(ROUTER, on_link(Ipv6Addr::UNSPECIFIED, 0, 0)), []);
}

// RFC 4861, 6.3.6: "When no routers on the list are known to be reachable or probably reachable, routers SHOULD be
// selected in a round-robin fashion".
#[test]
fn routers_that_are_all_silent_take_turns() {
    let mut bed = Bed::new();
    bed.hear(ROUTER, router(1_800, RouterPreference::Medium));
    bed.hear(OTHER, router(1_800, RouterPreference::Medium));
    bed.changes();
    let mut chosen = ROUTER;
    for other in [OTHER, ROUTER, OTHER] {
        bed.discovery.on_silent(bed.now, chosen);
        assert_eq!(bed.changes(), [LinkChange::DefaultRouter(Some(other))]);
        chosen = other;
    }
}

// RFC 4862, 5.5.4.
#[test]
fn what_is_formed_anew_is_deprecated_as_its_prefix_is() {
    let mut bed = Bed::new();
    bed.hear(ROUTER, prefix(PREFIX, 64, 1_000, 0));
    bed.changes();
    bed.discovery.on_duplicate(formed());
    let address = stable_address(PREFIX, STATION, 1, &KEY);
    let expected = [LinkChange::Form(address), LinkChange::Prefer(address, false)];
    assert_eq!(bed.changes(), expected);
}
