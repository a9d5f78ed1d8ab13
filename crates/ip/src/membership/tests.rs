use super::*;
use crate::parse;
use batch::{Attributes, Multidata};
use counters::DropReason;

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn sources(all: &[&str]) -> Option<Filter> {
    Some(Filter::Sources(all.iter().map(|text| address(text)).collect()))
}

const GROUP: &str = "239.1.2.3";
const QUERY: Query = Query {
    version: Version::Current,
    max_response: Duration::from_secs(10),
    group: None,
    sources: Vec::new(),
    robustness: None,
};

struct Bed {
    membership: Membership,
    jitter: Jitter,
    now: Instant,
}

impl Bed {
    fn new() -> Self {
        let now = Instant::from_millis(1_000);
        Self { membership: Membership::default(), jitter: Jitter::new(2), now }
    }

    fn set(&mut self, group: &str, filter: Option<Filter>) -> Vec<Report> {
        assert!(self.membership.set(self.now, address(group), filter, &mut self.jitter));
        self.reports()
    }

    fn query(&mut self, query: &Query) {
        self.membership.on_query(self.now, query, &mut self.jitter);
    }

    fn reports(&mut self) -> Vec<Report> {
        core::iter::from_fn(|| self.membership.poll_report()).collect()
    }

    /// Goes on for `seconds` and says what was reported when, in milliseconds from now.
    fn pass(&mut self, seconds: u64) -> Vec<(u64, Report)> {
        let (start, end) = (self.now, self.now + Duration::from_secs(seconds));
        let mut all = Vec::new();
        while let Some(at) = self.membership.poll_timeout().filter(|at| *at <= end) {
            self.now = at.max(self.now);
            self.membership.on_timeout(self.now, &mut self.jitter);
            let ms = (self.now - start).as_millis() as u64;
            all.extend(self.reports().into_iter().map(|report| (ms, report)));
        }
        self.now = end;
        all
    }
}

fn record(kind: RecordKind, group: &str, list: &[&str]) -> Report {
    let sources = list.iter().map(|text| address(text)).collect();
    Report::Current(vec![Record { kind, group: address(group), sources }])
}

/// RFC 3376, 5.1: "To cover the possibility of the State-Change Report being missed by one or more
/// multicast routers, it is retransmitted [Robustness Variable] - 1 more times, at intervals chosen
/// at random from the range (0, [Unsolicited Report Interval])."
#[test]
fn joining_and_leaving_are_told_twice() {
    for group in [GROUP, "ff05::1:3"] {
        let mut bed = Bed::new();
        let joined = record(RecordKind::ToExclude, group, &[]);
        assert_eq!(bed.set(group, Some(Filter::AnySource)), core::slice::from_ref(&joined));
        let again = bed.pass(100);
        assert!(matches!(&again[..], [(0..=1_000, report)] if *report == joined), "{again:?}");
        assert_eq!(bed.set(group, Some(Filter::AnySource)), [], "nothing has changed");
        let left = record(RecordKind::ToInclude, group, &[]);
        assert_eq!(bed.set(group, None), core::slice::from_ref(&left));
        assert!(!bed.membership.is_joined(address(group)));
        assert!(matches!(&bed.pass(100)[..], [(_, report)] if *report == left));
        assert_eq!(bed.membership.poll_timeout(), None);
        assert!(bed.membership.groups.is_empty(), "nothing is kept of what was left");
    }
}

/// RFC 3376, 5.1, the table: INCLUDE (A) to INCLUDE (B): ALLOW (B-A), BLOCK (A-B); INCLUDE (A) to
/// EXCLUDE (B): TO_EX (B); EXCLUDE (A) to INCLUDE (B): TO_IN (B).
#[test]
fn changes_of_sources_are_told_as_the_table_says() {
    use RecordKind::{Allow, Block, ToExclude, ToInclude};
    let mut bed = Bed::new();
    let first = bed.set(GROUP, sources(&["10.0.0.1", "10.0.0.2"]));
    assert_eq!(first, [record(Allow, GROUP, &["10.0.0.1", "10.0.0.2"])]);
    bed.pass(10);
    let second = bed.set(GROUP, sources(&["10.0.0.2", "10.0.0.3"]));
    let both = vec![
        Record { kind: Allow, group: address(GROUP), sources: vec![address("10.0.0.3")] },
        Record { kind: Block, group: address(GROUP), sources: vec![address("10.0.0.1")] },
    ];
    assert_eq!(second, [Report::Current(both)]);
    // "merged": what was blocked and is allowed again before it was told twice is allowed.
    let third = bed.set(GROUP, sources(&["10.0.0.1", "10.0.0.2", "10.0.0.3"]));
    assert_eq!(third, [record(Allow, GROUP, &["10.0.0.1", "10.0.0.3"])]);
    bed.pass(10);
    assert_eq!(bed.set(GROUP, Some(Filter::AnySource)), [record(ToExclude, GROUP, &[])]);
    bed.pass(10);
    let back = bed.set(GROUP, sources(&["10.0.0.9"]));
    assert_eq!(back, [record(ToInclude, GROUP, &["10.0.0.9"])]);
    bed.pass(10);
    assert_eq!(bed.set(GROUP, None), [record(Block, GROUP, &["10.0.0.9"])]);
}

/// RFC 3376, 5.2: a random delay within Max Resp Time, one answer for all groups; a flood of queries
/// makes no more of them.
#[test]
fn a_general_query_is_answered_once_within_its_time() {
    let mut bed = Bed::new();
    bed.set(GROUP, Some(Filter::AnySource));
    bed.set("239.9.9.9", sources(&["10.0.0.1"]));
    // RFC 3376, 5: "The all-systems multicast address, 224.0.0.1, is handled as a special case [...]
    // no IGMP messages are ever sent regarding it".
    assert_eq!(bed.set("224.0.0.1", Some(Filter::AnySource)), []);
    bed.pass(10);
    for _ in 0..1_000 {
        bed.query(&QUERY);
    }
    let answers = bed.pass(100);
    let [(at, Report::Current(records))] = &answers[..] else { panic!("{answers:?}") };
    assert!(*at <= 10_000);
    let kinds: Vec<_> = records.iter().map(|record| record.kind).collect();
    assert_eq!(kinds, [RecordKind::IsExclude, RecordKind::IsInclude]);
    assert_eq!(bed.pass(1_000), []);
}

/// RFC 3376, 5.2: group-specific, and group-and-source-specific: IS_IN (A * B), IS_IN (B - X).
#[test]
fn a_query_about_a_group_or_its_sources_is_answered_about_these() {
    let mut bed = Bed::new();
    bed.set(GROUP, Some(Filter::AnySource));
    bed.set("239.9.9.9", sources(&["10.0.0.1", "10.0.0.2"]));
    bed.pass(10);
    let about = |group: &str, list: &[&str]| Query {
        group: Some(address(group)),
        sources: list.iter().map(|text| address(text)).collect(),
        max_response: Duration::from_secs(1),
        ..QUERY
    };
    let mut answer = |query: &Query| -> Vec<Report> {
        bed.query(query);
        bed.pass(2).into_iter().map(|(_, report)| report).collect()
    };
    let excluded = record(RecordKind::IsExclude, GROUP, &[]);
    assert_eq!(answer(&about(GROUP, &[])), [excluded]);
    let of_all = record(RecordKind::IsInclude, GROUP, &["10.0.0.7"]);
    assert_eq!(answer(&about(GROUP, &["10.0.0.7"])), [of_all]);
    let of_some = record(RecordKind::IsInclude, "239.9.9.9", &["10.0.0.2"]);
    assert_eq!(answer(&about("239.9.9.9", &["10.0.0.2", "10.0.0.3"])), [of_some]);
    assert_eq!(answer(&about("239.9.9.9", &["10.0.0.3"])), [], "nothing to say");
    assert_eq!(answer(&about("239.7.7.7", &[])), [], "not ours");
}

/// RFC 3376, 7.2.1: with an IGMPv2 querier present the host "operates in IGMPv2 mode" for the Older
/// Version Querier Present Timeout; RFC 2236, 3: others' reports suppress ours, leaving is told.
#[test]
fn an_older_querier_is_answered_in_its_own_version() {
    let mut bed = Bed::new();
    bed.set(GROUP, Some(Filter::AnySource));
    bed.pass(10);
    let older = Query { version: Version::Older, ..QUERY };
    bed.query(&older);
    let answers = bed.pass(20);
    assert!(
        matches!(&answers[..], [(0..=10_000, Report::Older(group))] if *group == address(GROUP))
    );
    bed.query(&Query { group: Some(address(GROUP)), ..older.clone() });
    bed.membership.on_report(bed.now, address(GROUP));
    assert_eq!(bed.pass(20), [], "somebody else has reported it");
    assert_eq!(
        bed.set("239.5.5.5", Some(Filter::AnySource)),
        [Report::Older(address("239.5.5.5"))]
    );
    assert_eq!(bed.pass(20).len(), 1, "twice");
    assert_eq!(bed.set("239.5.5.5", None), [Report::Leave(address("239.5.5.5"))]);
    assert_eq!(bed.pass(260), [], "once");
    let left = bed.set(GROUP, None);
    assert_eq!(left, [record(RecordKind::ToInclude, GROUP, &[])], "IGMPv3 again");
}

/// RFC 2236, 3: "If the host receives another host's Report (version 1 or 2) while it has a timer running, it stops its
/// timer for the specified group", whatever it runs for; RFC 2710, 4 says the same of MLD.
#[test]
fn what_another_host_has_reported_to_an_older_querier_is_not_reported_again() {
    let mut bed = Bed::new();
    let other = "239.5.5.5";
    bed.set(GROUP, Some(Filter::AnySource));
    bed.set(other, Some(Filter::AnySource));
    bed.pass(10);
    let older = Query { version: Version::Older, ..QUERY };
    let answers = |bed: &mut Bed| -> Vec<Report> {
        bed.pass(20).into_iter().map(|(_, report)| report).collect()
    };
    bed.query(&older);
    bed.membership.on_report(bed.now, address(GROUP));
    assert_eq!(answers(&mut bed), [Report::Older(address(other))], "of a query about all groups");
    bed.query(&older);
    assert_eq!(answers(&mut bed).len(), 2, "the next one is answered again");
    // A query that comes behind the report wants an answer of its own.
    for again in [older.clone(), Query { group: Some(address(GROUP)), ..older.clone() }] {
        bed.query(&older);
        bed.membership.on_report(bed.now, address(GROUP));
        bed.query(&again);
        assert_eq!(answers(&mut bed).len(), 2, "{again:?}");
    }
    let joined = "239.6.6.6";
    assert_eq!(bed.set(joined, Some(Filter::AnySource)).len(), 1);
    bed.membership.on_report(bed.now, address(joined));
    assert_eq!(answers(&mut bed), [], "nor what would be said a second time");
    bed.set(joined, None);
    bed.membership.on_report(bed.now, address(joined));
    assert_eq!(answers(&mut bed), []);
}

#[test]
fn groups_and_sources_are_bounded() {
    let mut bed = Bed::new();
    for index in 0..GROUPS_MAX as u8 {
        bed.set(&format!("239.0.0.{index}"), Some(Filter::AnySource));
    }
    let any = Some(Filter::AnySource);
    assert!(!bed.membership.set(bed.now, address(GROUP), any.clone(), &mut bed.jitter));
    let many = (0..=SOURCES_MAX as u8).map(|host| IpAddr::from([10, 0, 0, host])).collect();
    let many = Some(Filter::Sources(many));
    assert!(!bed.membership.set(bed.now, address("239.0.0.1"), many, &mut bed.jitter));
    bed.query(&QUERY);
    let records: usize = bed
        .pass(11)
        .iter()
        .map(|(_, report)| match report {
            Report::Current(records) => records.len(),
            _ => 0,
        })
        .sum();
    assert!(records >= GROUPS_MAX);
    assert!(bed.membership.set(bed.now, address("239.0.0.0"), None, &mut bed.jitter));
    bed.pass(10);
    assert!(bed.membership.set(bed.now, address(GROUP), any, &mut bed.jitter), "there is room");
}

/// The packet of a report, as it goes out.
fn packet(report: &Report, source: &str) -> Vec<u8> {
    let (header, body) = report_packet(report, address(source));
    let mut batch = Multidata::default();
    batch.push_packet(body.len(), Attributes::default()).expect("room").copy_from_slice(&body);
    assert_eq!(crate::stamp(&mut batch, 0..1, &header, &mut 1, false), 1);
    let packet = batch.packet(0).expect("pushed");
    let mut bytes = vec![0; packet.len()];
    packet.copy_to(&mut bytes).expect("room");
    bytes
}

/// RFC 3376, 4 and 4.2: TTL 1, router alert, to 224.0.0.22; RFC 3810, 5 and 5.2: hop limit 1, router
/// alert in a hop-by-hop header, to ff02::16.
#[test]
fn reports_are_laid_out_as_the_rfcs_say() {
    let igmp = packet(&record(RecordKind::ToExclude, GROUP, &[]), "10.0.0.1");
    let info = parse(&igmp).expect("a sound packet");
    assert_eq!((info.hop_limit, info.protocol, info.header_len), (1, 2, 24));
    assert_eq!(info.destination, address("224.0.0.22"));
    assert_eq!(igmp[20..24], [148, 4, 0, 0]);
    assert_eq!(igmp[24..26], [0x22, 0]);
    assert_eq!(igmp[30..40], [0, 1, 4, 0, 0, 0, 239, 1, 2, 3]);
    assert_eq!(checksum::sum(&igmp[24..]), 0xffff);

    let sources = ["fd00::7"];
    let mld = packet(&record(RecordKind::Allow, "ff05::1:3", &sources), "fe80::1");
    let info = parse(&mld).expect("a sound packet");
    assert_eq!((info.hop_limit, info.protocol, info.header_len), (1, 58, 48));
    assert_eq!(info.destination, address("ff02::16"));
    assert_eq!(mld[40..48], [58, 0, 5, 2, 0, 0, 1, 0]);
    assert_eq!((mld[48], mld[56], mld[59]), (143, 5, 1));
    assert!(crate::transport_checksum_ok(&info, &mld[48..]));

    let older = packet(&Report::Older(address(GROUP)), "10.0.0.1");
    assert_eq!(parse(&older).expect("sound").destination, address(GROUP));
    assert_eq!((older[24], &older[28..]), (0x16, &[239, 1, 2, 3][..]));
    let done = packet(&Report::Leave(address("ff05::1:3")), "fe80::1");
    assert_eq!(parse(&done).expect("sound").destination, address("ff02::2"));
    assert_eq!((done[48], done.len()), (132, 72));
}

fn info(source: &str, destination: &str, hop_limit: u8, has_options: bool) -> crate::PacketInfo {
    let bytes = packet(&Report::Older(address(GROUP)), "10.0.0.1");
    let template = parse(&bytes).expect("a sound packet");
    let (source, destination) = (address(source), address(destination));
    crate::PacketInfo { source, destination, hop_limit, has_options, ..template }
}

fn igmp(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let sum = !checksum::sum(&bytes);
    bytes[2..4].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// RFC 3376, 4.1.1 and 7.1; RFC 3810, 5.1.3 and 8.1.
#[test]
fn queries_of_all_versions_are_read() {
    let all = info("10.0.0.254", "224.0.0.1", 1, true);
    let read = |message: &[u8]| match GroupMessage::parse(&all, message) {
        Ok(GroupMessage::Query(query)) => query,
        other => panic!("{other:?}"),
    };
    let ms = |query: Query| query.max_response.as_millis();
    assert_eq!(ms(read(&igmp(&[0x11, 0, 0, 0, 0, 0, 0, 0]))), 10_000, "version 1");
    let v2 = read(&igmp(&[0x11, 100, 0, 0, 239, 1, 2, 3]));
    assert_eq!((v2.version, v2.group), (Version::Older, Some(address(GROUP))));
    let v3 = read(&igmp(&[0x11, 0x8b, 0, 0, 239, 1, 2, 3, 0x0a, 125, 0, 1, 10, 0, 0, 7]));
    assert_eq!((v3.version, v3.robustness), (Version::Current, Some(2)));
    assert_eq!(v3.sources, [address("10.0.0.7")]);
    assert_eq!(ms(v3), (0x1b << 3) * 100, "(mant | 0x10) << (exp + 3)");
    let mut mld = vec![130, 0, 0, 0, 0x90, 0x01, 0, 0];
    mld.extend([0; 16]);
    let of_router = info("fe80::1", "ff02::1", 1, true);
    let read = |message: &[u8]| GroupMessage::parse(&of_router, message);
    let Ok(GroupMessage::Query(v1)) = read(&mld) else { panic!("MLDv1") };
    assert_eq!((v1.version, ms(v1)), (Version::Older, 0x9001));
    mld.extend([2, 125, 0, 0]);
    let Ok(GroupMessage::Query(v2)) = read(&mld) else { panic!("MLDv2") };
    assert_eq!((v2.version, ms(v2)), (Version::Current, 0x1001 << 4));
}

#[test]
fn queries_that_break_the_rules_are_refused() {
    let general = igmp(&[0x11, 100, 0, 0, 0, 0, 0, 0]);
    let refused = |info: &crate::PacketInfo, message: &[u8]| {
        GroupMessage::parse(info, message).expect_err("broken")
    };
    let all = info("10.0.0.254", "224.0.0.1", 1, true);
    assert!(GroupMessage::parse(&all, &general).is_ok());
    let mut broken = general.clone();
    broken[5] ^= 1;
    assert_eq!(refused(&all, &broken), DropReason::IcmpChecksum);
    assert_eq!(refused(&all, &general[..7]), DropReason::MalformedIcmp);
    let forwarded = info("10.0.0.254", "224.0.0.1", 2, true);
    assert_eq!(refused(&forwarded, &general), DropReason::MalformedIcmp);
    let unicast = info("10.0.0.254", "10.0.0.1", 1, true);
    assert_eq!(refused(&unicast, &general), DropReason::MalformedIcmp);
    let cut = igmp(&[0x11, 100, 0, 0, 239, 1, 2, 3, 2, 125, 0, 2, 10, 0, 0, 7]);
    assert_eq!(refused(&all, &cut), DropReason::MalformedIcmp, "two sources are one");
    let mut mld = vec![130, 0, 0, 0, 0, 100, 0, 0];
    mld.extend([0; 16]);
    for (source, hop_limit, alert) in
        [("fd00::1", 1, true), ("fe80::1", 2, true), ("fe80::1", 1, false)]
    {
        let envelope = info(source, "ff02::1", hop_limit, alert);
        assert_eq!(refused(&envelope, &mld), DropReason::MalformedIcmp, "{source}");
    }
}

// RFC 2236, 10 and RFC 2710, 9: a forged report must not silence a listener, least of all from beyond the link.
#[test]
fn reports_of_others_are_believed_from_the_link_and_to_their_group_only() {
    let v2 = igmp(&[0x16, 0, 0, 0, 239, 1, 2, 3]);
    let mut v1 = vec![131, 0, 0, 0, 0, 0, 0, 0];
    let group = "ff05::1:3".parse::<Ipv6Addr>().expect("an address");
    v1.extend(group.octets());
    for (message, source, destination, hop_limit, is_believed) in [
        (&v2, "10.0.0.7", GROUP, 1, true),
        (&v2, "10.0.0.7", GROUP, 64, false),
        (&v2, "10.0.0.7", "10.0.0.1", 1, false),
        (&v1, "fe80::7", "ff05::1:3", 1, true),
        (&v1, "fd00::7", "ff05::1:3", 1, false),
        (&v1, "fe80::7", "ff05::1:3", 64, false),
        (&v1, "fe80::7", "fe80::1", 1, false),
    ] {
        let envelope = info(source, destination, hop_limit, true);
        let read = GroupMessage::parse(&envelope, message);
        let report =
            GroupMessage::Report(if source.contains(':') { group.into() } else { address(GROUP) });
        let expected = if is_believed { Ok(report) } else { Err(DropReason::MalformedIcmp) };
        assert_eq!(read, expected, "{source} {destination} {hop_limit}");
    }
}

/// That a group was left is told twice, and is nobody's place meanwhile.
#[test]
fn a_group_that_was_left_makes_room_for_another_at_once() {
    let mut bed = Bed::new();
    let group = |number: usize| format!("239.1.{}.{}", number / 250, number % 250 + 1);
    for number in 0..GROUPS_MAX {
        bed.set(&group(number), Some(Filter::AnySource));
    }
    let joins = |bed: &mut Bed, number| {
        let (now, filter) = (bed.now, Some(Filter::AnySource));
        bed.membership.set(now, address(&group(number)), filter, &mut bed.jitter)
    };
    assert!(!joins(&mut bed, GROUPS_MAX));
    bed.set(&group(3), None);
    assert!(joins(&mut bed, GROUPS_MAX) && !joins(&mut bed, GROUPS_MAX + 1));
    // One that is told of as left is one more if it is wanted again.
    assert!(!joins(&mut bed, 3));
    // Who joins and leaves without end is bounded all the same.
    for number in GROUPS_MAX..10 * GROUPS_MAX {
        bed.set(&group(number), None);
        let _ = joins(&mut bed, number + 1);
        assert!(bed.membership.groups.len() <= 2 * GROUPS_MAX);
    }
    bed.pass(100);
    assert!(bed.membership.groups.len() <= GROUPS_MAX);
}
