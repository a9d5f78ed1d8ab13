//! The messages of IGMP and MLD as they lie in a packet.
//!
//! ```text
//!  IGMP query   | 0x11 | max response | checksum | group 4 | v3: S,QRV | QQIC | count 2 | sources |
//!  MLD query    | 130  | 0 | checksum | max response 2 | 0 0 | group 16 | v2: as above            |
//!  v3 report    | 0x22 | 0 | checksum | 0 0 | count 2 | records ...
//!  v2 report    | 143  | 0 | checksum | 0 0 | count 2 | records ...
//!  record       | kind | 0 | count 2 | group | sources |
//! ```
//!
//! Reports leave with hop limit 1 and a router alert, an IPv4 option (RFC 2113) or an option in an IPv6
//! hop-by-hop header (RFC 2711), which is the first of what lies behind the IP header.

use super::{Record, RecordKind, Report};
use crate::pseudo_header;
use crate::{HeaderTemplate, PacketInfo};
use checksum::Accumulator;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use counters::DropReason;
use std::collections::VecDeque;
use std::sync::Arc;
use time::Duration;
use wire::{Ipv4Options, protocol};

const IGMP_QUERY: u8 = 0x11;
const IGMP_V1_REPORT: u8 = 0x12;
const IGMP_V2_REPORT: u8 = 0x16;
const IGMP_LEAVE: u8 = 0x17;
const IGMP_V3_REPORT: u8 = 0x22;
const MLD_QUERY: u8 = 130;
const MLD_V1_REPORT: u8 = 131;
const MLD_DONE: u8 = 132;
const MLD_V2_REPORT: u8 = 143;

/// Bytes of records in one report: with the headers it fits the smallest IPv6 MTU.
const RECORDS_LEN_MAX: usize = 1_150;

/// RFC 2113, 2.1, and RFC 2711, 2.1 behind a next header and a length, with padding.
const ROUTER_ALERT_IPV4: [u8; 4] = [148, 4, 0, 0];
/// RFC 3376, 4: IP Precedence of Internetwork Control.
const INTERNETWORK_CONTROL: u8 = 0xc0;
const HOP_BY_HOP: [u8; 8] = [protocol::ICMPV6, 0, 5, 2, 0, 0, 1, 0];

/// Sources of a query that are looked at.
const QUERIED_SOURCES_MAX: usize = 64;

/// Which versions of the protocols a querier speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// IGMPv3 or MLDv2.
    Current,
    /// IGMPv1, IGMPv2 or MLDv1.
    Older,
}

/// A router asks who listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// What it speaks.
    pub version: Version,
    /// How long answers may take.
    pub max_response: Duration,
    /// To which group; `None`: to any.
    pub group: Option<IpAddr>,
    /// To datagrams of which sources; empty: of anybody. At most 64.
    pub sources: Vec<IpAddr>,
    /// Querier's Robustness Variable, where it says one.
    pub robustness: Option<u32>,
}

/// A message that came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupMessage {
    /// A router asks.
    Query(Query),
    /// Another host reported this group, in an older version.
    Report(IpAddr),
    /// What only routers have a use for.
    Other,
}

impl GroupMessage {
    /// Reads an IGMP message, `None` of whose checksum was verified before, or an MLD message, whose
    /// checksum was (it covers the pseudo-header).
    ///
    /// # Errors
    /// [`DropReason::MalformedIcmp`] where it is too short or breaks the rules of its family;
    /// [`DropReason::IcmpChecksum`] where IGMP's checksum is wrong.
    pub fn parse(info: &PacketInfo, message: &[u8]) -> Result<Self, DropReason> {
        match info.source {
            IpAddr::V4(_) => parse_igmp(info, message),
            IpAddr::V6(source) => {
                // RFC 3810, 5.1.14 and 6.2: link-local source, hop limit 1, router alert.
                let is_sound =
                    source.is_unicast_link_local() && info.hop_limit == 1 && info.has_options;
                let is_heard = matches!(message.first(), Some(&(MLD_QUERY | MLD_V1_REPORT)));
                if !is_sound && is_heard {
                    return Err(DropReason::MalformedIcmp);
                }
                parse_mld(info, message)
            }
        }
    }
}

fn parse_igmp(info: &PacketInfo, message: &[u8]) -> Result<GroupMessage, DropReason> {
    let (fixed, rest) = message.split_first_chunk::<8>().ok_or(DropReason::MalformedIcmp)?;
    let mut sum = Accumulator::default();
    sum.add(message);
    if sum.sum() != 0xffff {
        return Err(DropReason::IcmpChecksum);
    }
    let [kind, code, _, _, a, b, c, d] = *fixed;
    let group = Ipv4Addr::new(a, b, c, d);
    match kind {
        IGMP_QUERY => {}
        IGMP_V1_REPORT | IGMP_V2_REPORT => return report(info, group.into()),
        _ => return Ok(GroupMessage::Other),
    }
    let is_all_systems = info.destination == IpAddr::V4(Ipv4Addr::new(224, 0, 0, 1));
    // RFC 3376, 9.1: general queries to another address are how a victim is made to answer alone.
    if info.hop_limit != 1 || (group.is_unspecified() && !is_all_systems) {
        return Err(DropReason::MalformedIcmp);
    }
    let tail = Tail::parse::<4>(rest)?;
    let tenths = match (code, &tail) {
        // RFC 2236, 4: a code of zero is a query of version 1 and means 10 seconds.
        (0, None) => 100,
        (code, None) => u64::from(code),
        (code @ 128.., Some(_)) => u64::from(code & 0xf | 0x10) << ((code >> 4 & 7) + 3),
        (code, Some(_)) => u64::from(code),
    };
    let group = (!group.is_unspecified()).then_some(group.into());
    Ok(GroupMessage::Query(Tail::query(tail, Duration::from_millis(tenths * 100), group)))
}

fn parse_mld(info: &PacketInfo, message: &[u8]) -> Result<GroupMessage, DropReason> {
    let (fixed, rest) = message.split_first_chunk::<24>().ok_or(DropReason::MalformedIcmp)?;
    let group: [u8; 16] = core::array::from_fn(|index| fixed[8 + index]);
    let group = Ipv6Addr::from(group);
    match fixed[0] {
        MLD_QUERY => {}
        MLD_V1_REPORT => return report(info, group.into()),
        _ => return Ok(GroupMessage::Other),
    }
    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    if group.is_unspecified() && info.destination != IpAddr::V6(all_nodes) {
        return Err(DropReason::MalformedIcmp);
    }
    let tail = Tail::parse::<16>(rest)?;
    let code = u16::from_be_bytes([fixed[4], fixed[5]]);
    let ms = match (code, &tail) {
        (code @ 0x8000.., Some(_)) => u64::from(code & 0xfff | 0x1000) << ((code >> 12 & 7) + 3),
        (code, _) => u64::from(code),
    };
    let group = (!group.is_unspecified()).then_some(group.into());
    Ok(GroupMessage::Query(Tail::query(tail, Duration::from_millis(ms), group)))
}

/// Another host's report keeps us from ours, so it must be one: RFC 2236, 2 and 3, and RFC 2710, 3 and 4 have it sent
/// to the group that it names, with a hop limit of 1, which nobody beyond the link can bring here.
fn report(info: &PacketInfo, group: IpAddr) -> Result<GroupMessage, DropReason> {
    match info.hop_limit == 1 && info.destination == group {
        true => Ok(GroupMessage::Report(group)),
        false => Err(DropReason::MalformedIcmp),
    }
}

/// What queries of the current versions have more than those of the older.
struct Tail {
    robustness: u8,
    sources: Vec<IpAddr>,
}

impl Tail {
    /// `None` where there is none: RFC 3376, 7.1 and RFC 3810, 8.1 tell versions by their length.
    fn parse<const ADDRESS_LEN: usize>(rest: &[u8]) -> Result<Option<Self>, DropReason> {
        if rest.is_empty() {
            return Ok(None);
        }
        let (fixed, rest) = rest.split_first_chunk::<4>().ok_or(DropReason::MalformedIcmp)?;
        let [flags, _, high, low] = *fixed;
        let count = usize::from(u16::from_be_bytes([high, low]));
        let listed = rest.get(..count * ADDRESS_LEN).ok_or(DropReason::MalformedIcmp)?;
        let address = |octets: &[u8]| match *octets {
            [a, b, c, d] => IpAddr::V4(Ipv4Addr::new(a, b, c, d)),
            _ => IpAddr::V6(Ipv6Addr::from(core::array::from_fn::<u8, 16, _>(|i| {
                octets.get(i).copied().unwrap_or(0)
            }))),
        };
        let sources = listed.chunks_exact(ADDRESS_LEN).take(QUERIED_SOURCES_MAX).map(address);
        Ok(Some(Self { robustness: flags & 7, sources: sources.collect() }))
    }

    fn query(tail: Option<Self>, max_response: Duration, group: Option<IpAddr>) -> Query {
        let version = if tail.is_some() { Version::Current } else { Version::Older };
        let robustness = tail.as_ref().map(|tail| u32::from(tail.robustness)).filter(|r| *r > 0);
        let sources = tail.map_or(Vec::new(), |tail| tail.sources);
        Query { version, max_response, group, sources, robustness }
    }
}

/// Puts records into as few reports as hold them.
pub(super) fn pack(records: Vec<Record>, reports: &mut VecDeque<Report>) {
    let mut packed = Vec::new();
    let mut len = 0;
    for record in records {
        let record_len = record_len(&record);
        if len + record_len > RECORDS_LEN_MAX && !packed.is_empty() {
            reports.push_back(Report::Current(core::mem::take(&mut packed)));
            len = 0;
        }
        len += record_len;
        packed.push(record);
    }
    if !packed.is_empty() {
        reports.push_back(Report::Current(packed));
    }
}

fn record_len(record: &Record) -> usize {
    let address_len = if record.group.is_ipv4() { 4 } else { 16 };
    4 + address_len * (1 + record.sources.len())
}

/// A report as a packet from `source`, which is of the family of the group: its header, and what lies behind
/// that, at least eight bytes, any checksum complete. The header has hop limit 1 and a router alert (RFC 3376, 4;
/// RFC 3810, 5).
#[must_use]
pub fn report_packet(report: &Report, source: IpAddr) -> (HeaderTemplate, Vec<u8>) {
    let (destination, body) = report_body(report, source);
    if source.is_ipv6() {
        let header = HeaderTemplate::new(source, destination, protocol::HOP_BY_HOP, 1, 0);
        return (header, [&HOP_BY_HOP[..], &body].concat());
    }
    let (protocol, class) = (protocol::IGMP, INTERNETWORK_CONTROL);
    let mut header = HeaderTemplate::new(source, destination, protocol, 1, class);
    header.set_options(Ipv4Options::parse(&ROUTER_ALERT_IPV4).ok().map(Arc::new));
    header.set_dont_fragment(true);
    (header, body)
}

/// Where a report goes, and its message.
fn report_body(report: &Report, source: IpAddr) -> (IpAddr, Vec<u8>) {
    let is_ipv4 = source.is_ipv4();
    let (kind, destination, mut body) = match (report, is_ipv4) {
        // RFC 3376, 4.2.14 and RFC 3810, 5.2.14.
        (Report::Current(records), true) => {
            (IGMP_V3_REPORT, Ipv4Addr::new(224, 0, 0, 22).into(), current_body(records))
        }
        (Report::Current(records), false) => {
            let routers = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);
            (MLD_V2_REPORT, routers.into(), current_body(records))
        }
        // RFC 2236, 9 and RFC 2710, 4.
        (Report::Older(group), true) => (IGMP_V2_REPORT, *group, older_body(*group)),
        (Report::Older(group), false) => (MLD_V1_REPORT, *group, older_body(*group)),
        (Report::Leave(group), true) => {
            (IGMP_LEAVE, Ipv4Addr::new(224, 0, 0, 2).into(), older_body(*group))
        }
        (Report::Leave(group), false) => {
            let routers = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
            (MLD_DONE, routers.into(), older_body(*group))
        }
    };
    body[0] = kind;
    let mut sum = Accumulator::default();
    if !is_ipv4 {
        sum.add_u16(pseudo_header::sum(source, destination, protocol::ICMPV6));
        sum.add_u32(body.len() as u32);
    }
    sum.add(&body);
    let checksum = sum.finish();
    body[2..4].copy_from_slice(&checksum.to_be_bytes());
    (destination, body)
}

fn current_body(records: &[Record]) -> Vec<u8> {
    let mut body = vec![0; 8];
    body[6..8].copy_from_slice(&(records.len() as u16).to_be_bytes());
    for record in records {
        let kind = match record.kind {
            RecordKind::IsInclude => 1,
            RecordKind::IsExclude => 2,
            RecordKind::ToInclude => 3,
            RecordKind::ToExclude => 4,
            RecordKind::Allow => 5,
            RecordKind::Block => 6,
        };
        body.extend([kind, 0]);
        body.extend((record.sources.len() as u16).to_be_bytes());
        push_address(&mut body, record.group);
        record.sources.iter().for_each(|source| push_address(&mut body, *source));
    }
    body
}

fn older_body(group: IpAddr) -> Vec<u8> {
    let mut body = vec![0; if group.is_ipv4() { 4 } else { 8 }];
    push_address(&mut body, group);
    body
}

fn push_address(body: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => body.extend(address.octets()),
        IpAddr::V6(address) => body.extend(address.octets()),
    }
}
