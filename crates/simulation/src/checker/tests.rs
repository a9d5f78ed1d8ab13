//! Every rule is broken once, in traffic that is right otherwise.
//!
//! A run is captured and judged again frame by frame: nothing is found. Then one frame of a host is
//! changed, its checksums made good, and the rule that it breaks must be named.

mod rules;
mod segments;

use super::{Checker, Facts};
use crate::packet::{self, Body, Packet, Segment, Transport, flag};
use crate::scenario::Scenario;
use crate::trace::{Captured, Way};
use crate::{Keep, World};
use etherparse::{IpEcn, IpNumber, Ipv4Header, TcpHeader, TcpOptionElement};
use std::collections::BTreeSet;
use time::{Duration, Instant};

/// A run with Ethernet, timestamps, SACK, losses and IPv4 among others.
const SEED: u64 = 1;

struct Recorded {
    scenario: Scenario,
    frames: Vec<Captured>,
}

fn recorded() -> Recorded {
    let seed = (SEED..).find(|seed| {
        let scenario = Scenario::draw(*seed);
        let clean = |tcp: &tcp::Config| tcp.timestamps && tcp.sack && tcp.window_scaling;
        let quiet = scenario.disturbances.is_empty() && scenario.fast_open == 0.0;
        !scenario.bare_ip
            && quiet
            && scenario.stream_max >= 100_000
            && scenario.hosts.iter().all(|host| clean(&host.tcp))
            && scenario.hosts.iter().any(|host| host.up.damage() > 0.005)
    });
    let scenario = Scenario::draw(seed.expect("one of many"));
    let keep = Keep { capture: true, ..Keep::default() };
    let (report, trace) = World::new(scenario.clone(), keep).run_captured();
    assert!(report.is_ok());
    Recorded { scenario, frames: trace.captured().to_vec() }
}

/// Of hosts that may answer with cookies.
fn facts() -> Facts {
    Facts { cookies: true, ..Facts::default() }
}

/// A checker that takes for a host's own the addresses from which it sent: one of them is drawn (RFC 7217).
fn checker(Recorded { scenario, frames }: &Recorded) -> Checker {
    let mut checker = Checker::default();
    for number in 0..scenario.hosts.len() {
        let sent = frames.iter().filter(|it| it.way == Way::Out && it.host == number);
        let source = |frame: &Captured| match packet::read(&frame.bytes, true).ok()?.body {
            Body::Arp(arp) => Some(arp.sender),
            Body::Ip(ip) => Some(ip.source),
        };
        let addresses: BTreeSet<_> = sent.filter_map(source).collect();
        checker.add_host(addresses.into_iter().collect(), true, scenario.mtu, facts());
    }
    checker
}

/// The rule that is broken where `change` has made something else of a frame.
fn verdict(
    recorded: &Recorded,
    mut change: impl FnMut(&Captured) -> Option<Vec<Captured>>,
) -> Option<&'static str> {
    let mut checker = checker(recorded);
    let mut changed = false;
    for frame in &recorded.frames {
        let instead = if changed || frame.way == Way::In { None } else { change(frame) };
        changed |= instead.is_some();
        for frame in instead.as_deref().unwrap_or(core::slice::from_ref(frame)) {
            match frame.way {
                Way::Out => {
                    checker.on_sent(frame.at, frame.host, &frame.bytes);
                }
                Way::In => checker.on_arrived(frame.at, frame.host, &frame.bytes),
            }
        }
        if let Some(finding) = checker.findings().first() {
            return Some(finding.rule);
        }
    }
    assert!(changed || recorded.frames.is_empty(), "the run has no such frame");
    None
}

/// As [`verdict`] for the first IPv4 segment that `wanted` likes, changed by `change`.
fn verdict_on(
    recorded: &Recorded,
    mut wanted: impl FnMut(&Segment<'_>) -> bool,
    change: impl Fn(&mut Ipv4Header, &mut TcpHeader, &mut Vec<u8>),
) -> Option<&'static str> {
    verdict(recorded, |frame| {
        with_segment(frame, &mut wanted)?;
        let bytes = rewritten(&frame.bytes, &change);
        Some(vec![Captured { bytes, ..frame.clone() }])
    })
}

fn with_segment(frame: &Captured, wanted: &mut impl FnMut(&Segment<'_>) -> bool) -> Option<()> {
    let packet = packet::read(&frame.bytes, true).ok()?;
    let Packet { body: Body::Ip(ip), .. } = &packet else { return None };
    let Transport::Tcp(segment) = &ip.transport else { return None };
    (ip.source.is_ipv4() && wanted(segment)).then_some(())
}

/// The frame with its headers changed and its checksums right.
fn rewritten(
    frame: &[u8],
    change: &impl Fn(&mut Ipv4Header, &mut TcpHeader, &mut Vec<u8>),
) -> Vec<u8> {
    let (mut ip, rest) = Ipv4Header::from_slice(&frame[14..]).expect("IPv4");
    let (mut tcp, payload) = TcpHeader::from_slice(rest).expect("TCP");
    let mut payload = payload.to_vec();
    change(&mut ip, &mut tcp, &mut payload);
    tcp.checksum = tcp.calc_checksum_ipv4(&ip, &payload).expect("short");
    ip.set_payload_len(tcp.header_len() + payload.len()).expect("short");
    ip.protocol = IpNumber::TCP;
    ip.header_checksum = ip.calc_header_checksum();
    [&frame[..14], &ip.to_bytes(), &tcp.to_bytes(), &payload].concat()
}

fn is_plain(segment: &Segment<'_>) -> bool {
    !segment.has(flag::SYN) && !segment.has(flag::RST) && !segment.has(flag::FIN)
}

fn carries(segment: &Segment<'_>) -> bool {
    is_plain(segment) && segment.payload.len() > 20
}

/// The second data segment of a connection, so that there is a past to contradict.
fn later() -> impl FnMut(&Segment<'_>) -> bool {
    let mut seen = std::collections::BTreeMap::new();
    move |segment| {
        if !carries(segment) {
            return false;
        }
        let count = seen.entry((segment.source, segment.destination)).or_insert(0);
        *count += 1;
        *count == 3
    }
}

#[track_caller]
fn assert_rule(found: Option<&'static str>, start: &str) {
    assert!(found.is_some_and(|rule| rule.starts_with(start)), "{found:?} instead of {start}");
}

#[test]
fn what_was_recorded_breaks_no_rule() {
    let recorded = recorded();
    let nothing = verdict(&recorded, |frame| Some(vec![frame.clone()]));
    assert_eq!(nothing, None);
}

#[test]
fn rules_of_link_and_network_are_noticed() {
    let recorded = recorded();
    let mut damaged = |frame: &Captured| {
        with_segment(frame, &mut carries)?;
        let mut frame = frame.clone();
        *frame.bytes.last_mut().expect("a payload") ^= 1;
        Some(vec![frame])
    };
    assert_rule(verdict(&recorded, &mut damaged), "RFC 1122, 3.2.1: a frame");
    let long = |_: &mut Ipv4Header, _: &mut TcpHeader, payload: &mut Vec<u8>| {
        payload.resize(9_100, 0);
    };
    assert_rule(verdict_on(&recorded, carries, long), "RFC 1122, 3.3.2");
    let relabelled = verdict(&recorded, |frame| {
        let packet = packet::read(&frame.bytes, true).ok()?;
        let Packet { body: Body::Ip(ip), .. } = &packet else { return None };
        let Transport::Tcp(segment) = &ip.transport else { return None };
        let mut frame = (ip.source.is_ipv6() && is_plain(segment)).then(|| frame.clone())?;
        // It is no part of any checksum.
        frame.bytes[14 + 3] ^= 1;
        Some(vec![frame])
    });
    assert_rule(relabelled, "RFC 6437, 3");
    let foreign = |ip: &mut Ipv4Header, _: &mut TcpHeader, _: &mut Vec<u8>| ip.source[3] = 77;
    assert_rule(verdict_on(&recorded, carries, foreign), "RFC 1122, 3.2.1.3");
    let dead = |ip: &mut Ipv4Header, _: &mut TcpHeader, _: &mut Vec<u8>| ip.time_to_live = 0;
    assert_rule(verdict_on(&recorded, carries, dead), "RFC 1122, 3.2.1.7");
    let divisible =
        |ip: &mut Ipv4Header, _: &mut TcpHeader, _: &mut Vec<u8>| ip.dont_fragment = false;
    assert_rule(verdict_on(&recorded, carries, divisible), "RFC 1191");
    let twice = |frame: &Captured| {
        let is_request = frame.bytes[12..14] == [8, 6] && frame.bytes[21] == 1;
        let target_is_other = frame.bytes.get(28..32) != frame.bytes.get(38..42);
        let again = Captured { at: frame.at + Duration::from_millis(300), ..frame.clone() };
        let probes = frame.bytes.get(28..32) == Some(&[0; 4]);
        (is_request && target_is_other && !probes).then(|| vec![frame.clone(), again])
    };
    assert_rule(verdict(&recorded, twice), "RFC 1122, 2.3.2.1");
}

#[test]
fn rules_of_sequence_numbers_are_noticed() {
    let recorded = recorded();
    type Change = fn(&mut Ipv4Header, &mut TcpHeader, &mut Vec<u8>);
    let cases: [(&str, Change); 6] = [
        ("RFC 9293, 3.4: sequence numbers", |_, tcp, _| {
            tcp.sequence_number = tcp.sequence_number.wrapping_add(100_000);
        }),
        ("RFC 9293, 3.4: only what arrived", |_, tcp, _| {
            tcp.acknowledgment_number = tcp.acknowledgment_number.wrapping_add(1 << 20);
        }),
        ("RFC 9293, 3.4: only what arrived", |_, tcp, _| {
            tcp.acknowledgment_number = tcp.acknowledgment_number.wrapping_sub(1 << 20);
        }),
        ("RFC 9293, 3.8.6: the window", |_, tcp, _| tcp.window_size = 0),
        ("RFC 9293, 3.1", |_, tcp, _| tcp.ack = false),
        ("RFC 9293, 3.10.7.1", |_, tcp, _| tcp.source_port ^= 0x0101),
    ];
    for (rule, change) in cases {
        assert_rule(verdict_on(&recorded, later(), change), rule);
    }
}

#[test]
fn rules_of_what_is_sent_again_are_noticed() {
    let recorded = recorded();
    let mut third = later();
    let differs = verdict(&recorded, |frame| {
        with_segment(frame, &mut third)?;
        let change = |_: &mut Ipv4Header, _: &mut TcpHeader, payload: &mut Vec<u8>| {
            payload[7] ^= 0x20;
        };
        let bytes = rewritten(&frame.bytes, &change);
        Some(vec![frame.clone(), Captured { bytes, ..frame.clone() }])
    });
    assert_rule(differs, "RFC 9293, 3.4: a retransmission");
    let mut wanted = |segment: &Segment<'_>| segment.has(flag::FIN);
    let beyond = verdict(&recorded, |frame| {
        with_segment(frame, &mut wanted)?;
        let change = |_: &mut Ipv4Header, tcp: &mut TcpHeader, payload: &mut Vec<u8>| {
            tcp.sequence_number = tcp.sequence_number.wrapping_add(payload.len() as u32 + 1);
            *payload = b"more".to_vec();
            tcp.fin = false;
        };
        let bytes = rewritten(&frame.bytes, &change);
        Some(vec![frame.clone(), Captured { bytes, ..frame.clone() }])
    });
    assert_rule(beyond, "RFC 9293, 3.6: nothing is sent behind");
    let hasty = verdict(&recorded, |frame| {
        with_segment(frame, &mut |segment: &Segment<'_>| segment.has(flag::SYN))?;
        let at = |index: u32| frame.at + Duration::from_secs(1) * index;
        Some((0..6).map(|index| Captured { at: at(index), ..frame.clone() }).collect())
    });
    assert_rule(hasty, "RFC 6298, 5.5");
    let mut third = later();
    let flood = verdict(&recorded, |frame| {
        with_segment(frame, &mut third)?;
        let len = packet_len(&frame.bytes);
        let next = |index: u32| {
            let change = move |_: &mut Ipv4Header, tcp: &mut TcpHeader, _: &mut Vec<u8>| {
                tcp.sequence_number = tcp.sequence_number.wrapping_add(index * len);
            };
            Captured { bytes: rewritten(&frame.bytes, &change), ..frame.clone() }
        };
        Some((0..1 + (8 << 20) / len.max(1)).map(next).collect())
    });
    assert_rule(flood, "RFC 9293, 3.8.6: nothing beyond");
}

fn packet_len(frame: &[u8]) -> u32 {
    let packet = packet::read(frame, true).expect("sound");
    let Packet { body: Body::Ip(ip), .. } = packet else { panic!("IP") };
    let Transport::Tcp(segment) = ip.transport else { panic!("TCP") };
    segment.payload.len() as u32
}

#[test]
fn rules_of_options_and_flags_are_noticed() {
    let recorded = recorded();
    let set = |tcp: &mut TcpHeader, options: &[TcpOptionElement]| {
        tcp.set_options(options).expect("short");
    };
    use TcpOptionElement as O;
    let nothing = |_: &mut Ipv4Header, tcp: &mut TcpHeader, _: &mut Vec<u8>| set(tcp, &[]);
    assert_rule(verdict_on(&recorded, later(), nothing), "RFC 7323, 3.2: timestamps in every");
    let mss = |_: &mut Ipv4Header, tcp: &mut TcpHeader, _: &mut Vec<u8>| {
        set(tcp, &[O::MaximumSegmentSize(1_460)]);
    };
    assert_rule(verdict_on(&recorded, later(), mss), "RFC 9293, 3.7.1, RFC 7323");
    let clock = |_: &mut Ipv4Header, tcp: &mut TcpHeader, _: &mut Vec<u8>| {
        let timestamps = tcp.options_iterator().flatten().find_map(|option| match option {
            O::Timestamp(value, echo) => Some((value.wrapping_sub(1 << 20), echo)),
            _ => None,
        });
        let (value, echo) = timestamps.expect("timestamps were agreed on");
        set(tcp, &[O::Timestamp(value, echo)]);
    };
    assert_rule(verdict_on(&recorded, later(), clock), "RFC 7323, 5.4");
    let block = |ip: &mut Ipv4Header, tcp: &mut TcpHeader, payload: &mut Vec<u8>| {
        payload.clear();
        ip.ecn = IpEcn::default();
        let mut options: Vec<_> = tcp.options_iterator().flatten().collect();
        let start = tcp.acknowledgment_number.wrapping_add(5_000);
        options.retain(|option| !matches!(option, O::SelectiveAcknowledgement(..)));
        options.push(O::SelectiveAcknowledgement((start, start.wrapping_add(9)), [None; 3]));
        set(tcp, &options);
    };
    assert_rule(verdict_on(&recorded, later(), block), "RFC 2018, 3 and 4");
    let both = |_: &mut Ipv4Header, tcp: &mut TcpHeader, _: &mut Vec<u8>| tcp.fin = true;
    let is_syn = |segment: &Segment<'_>| segment.has(flag::SYN);
    assert_rule(verdict_on(&recorded, is_syn, both), "RFC 9293, 3.5");
    let is_answer = |segment: &Segment<'_>| segment.has(flag::SYN | flag::ACK);
    let other = |_: &mut Ipv4Header, tcp: &mut TcpHeader, _: &mut Vec<u8>| {
        tcp.acknowledgment_number ^= 1 << 13;
    };
    assert_rule(verdict_on(&recorded, is_answer, other), "RFC 9293, 3.10.7.2");
    let vast = |_: &mut Ipv4Header, tcp: &mut TcpHeader, _: &mut Vec<u8>| {
        set(tcp, &[O::MaximumSegmentSize(9_500)]);
    };
    assert_rule(verdict_on(&recorded, is_syn, vast), "RFC 9293, 3.7.1, MUST-14");
}

#[test]
fn rules_of_urgent_data_are_noticed() {
    let recorded = recorded();
    let unmarked = || {
        let mut third = later();
        move |segment: &Segment<'_>| third(segment) && !segment.has(flag::URG)
    };
    let nothing = |_: &mut Ipv4Header, tcp: &mut TcpHeader, _: &mut Vec<u8>| tcp.urg = true;
    assert_rule(verdict_on(&recorded, unmarked(), nothing), "RFC 9293, 3.8.5, MUST-62");
    // The segment, and once more with a pointer that is nearer, or with none.
    let then = |second: Option<u16>| {
        let mut wanted = unmarked();
        verdict(&recorded, |frame| {
            with_segment(frame, &mut wanted)?;
            let marked = |pointer: Option<u16>| {
                let change = move |_: &mut Ipv4Header, tcp: &mut TcpHeader, _: &mut Vec<u8>| {
                    (tcp.urg, tcp.urgent_pointer) = (pointer.is_some(), pointer.unwrap_or(0));
                };
                Captured { bytes: rewritten(&frame.bytes, &change), ..frame.clone() }
            };
            Some(vec![marked(Some(2)), marked(second)])
        })
    };
    assert_rule(then(Some(1)), "RFC 9293, 3.8.5: what was urgent");
    assert_rule(then(None), "RFC 9293, 3.10.4: segments say");
}

#[test]
fn rules_of_fast_open_are_noticed() {
    let recorded = recorded();
    let is_first = |segment: &Segment<'_>| segment.has(flag::SYN) && !segment.has(flag::ACK);
    let is_answer = |segment: &Segment<'_>| segment.has(flag::SYN | flag::ACK);
    // An MSS of 536, which fits every link.
    let cookie = |tcp: &mut TcpHeader| {
        let raw = [2, 4, 2, 0x18, 34, 10, 1, 2, 3, 4, 5, 6, 7, 8, 1, 1];
        tcp.set_options_raw(&raw).expect("short");
    };
    let data = |_: &mut Ipv4Header, _: &mut TcpHeader, payload: &mut Vec<u8>| {
        *payload = b"early".to_vec();
    };
    assert_rule(verdict_on(&recorded, is_first, data), "RFC 7413, 4.1.3: data goes");
    let invented = |_: &mut Ipv4Header, tcp: &mut TcpHeader, _: &mut Vec<u8>| cookie(tcp);
    assert_rule(verdict_on(&recorded, is_first, invented), "RFC 7413, 4.1.3: a client shows");
    let unasked = |_: &mut Ipv4Header, tcp: &mut TcpHeader, _: &mut Vec<u8>| cookie(tcp);
    assert_rule(verdict_on(&recorded, is_answer, unasked), "RFC 7413, 4.1.2 and 4.2.2: a cookie");
    let late = |_: &mut Ipv4Header, tcp: &mut TcpHeader, _: &mut Vec<u8>| {
        tcp.set_options_raw(&[34, 2, 1, 1]).expect("short");
    };
    assert_rule(verdict_on(&recorded, later(), late), "RFC 7413, 4.1.1");
    let again = verdict(&recorded, |frame| {
        with_segment(frame, &mut { is_first })?;
        let change = |_: &mut Ipv4Header, tcp: &mut TcpHeader, _: &mut Vec<u8>| {
            tcp.set_options_raw(&[2, 4, 2, 0x18, 34, 2, 1, 1]).expect("short");
        };
        let bytes = rewritten(&frame.bytes, &change);
        // A request arrived from nobody, so it may be sent, but not twice.
        Some(vec![Captured { bytes, ..frame.clone() }; 2])
    });
    assert_rule(again, "RFC 7413, 4.2.1");
}

#[test]
fn rules_of_ecn_are_noticed() {
    let recorded = recorded();
    let capable = |ip: &mut Ipv4Header, _: &mut TcpHeader, _: &mut Vec<u8>| {
        ip.ecn = IpEcn::try_new(2).expect("two bits");
    };
    // RFC 3168, 6.1.1: "MUST NOT set ECT on SYN or SYN-ACK packets".
    let is_syn = |segment: &Segment<'_>| segment.has(flag::SYN);
    assert_rule(verdict_on(&recorded, is_syn, capable), "RFC 3168, 6.1.1");
    let reset = |ip: &mut Ipv4Header, tcp: &mut TcpHeader, payload: &mut Vec<u8>| {
        capable(ip, tcp, payload);
        tcp.rst = true;
        payload.clear();
    };
    assert_rule(verdict_on(&recorded, later(), reset), "RFC 3168, 6.1.1");
    // 6.1.4: "pure acknowledgement packets MUST be sent with the not-ECT codepoint".
    let is_pure = |segment: &Segment<'_>| is_plain(segment) && segment.payload.is_empty();
    assert_rule(verdict_on(&recorded, is_pure, capable), "RFC 3168, 6.1.4");
    // 6.1.5: "MUST NOT set either an ECT codepoint [...] for retransmitted data packets".
    let mut third = later();
    let again = verdict(&recorded, |frame| {
        with_segment(frame, &mut third)?;
        let bytes = rewritten(&frame.bytes, &capable);
        Some(vec![frame.clone(), Captured { bytes, ..frame.clone() }])
    });
    assert_rule(again, "RFC 3168, 6.1.5");
}

#[test]
fn an_unknown_host_is_judged_by_what_it_does() {
    let mut checker = Checker::default();
    checker.add_host(Vec::new(), true, 1_500, Facts::default());
    checker.on_sent(Instant::ZERO, 0, b"no frame");
    assert_eq!(checker.findings().len(), 1);
}
