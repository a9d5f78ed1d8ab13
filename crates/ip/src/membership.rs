//! Membership of multicast groups: a host's part of IGMPv3 (RFC 3376) and MLDv2 (RFC 3810), and of
//! IGMPv2 (RFC 2236) and MLDv1 (RFC 2710) where a querier speaks no more than these.
//!
//! The protocols of the two families say the same with other numbers, so there is one state machine,
//! and `message.rs` knows the numbers.
//!
//! ```text
//!  set(group, filter) --changed--> report at once, and once more within a second (robustness)
//!  on_query ---------> answer at a random time within what the query allows
//!  poll_report <------ what is to be sent
//! ```
//!
//! What always holds: groups and sources are bounded ([`GROUPS_MAX`], [`SOURCES_MAX`]); a flood of
//! queries makes one answer in the time that each allows, because an answer that is due serves later
//! queries too (RFC 3376, 5.2); a query of another family or from beyond the link changes nothing.

mod message;
#[cfg(test)]
mod tests;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
pub use message::{GroupMessage, Query, Version, report_packet};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use time::{Duration, Instant, Jitter};

/// Groups of one family on one interface.
pub const GROUPS_MAX: usize = 64;
/// Sources of one group that are included.
pub const SOURCES_MAX: usize = 32;

/// Robustness Variable (RFC 3376, 8.1; RFC 3810, 9.1), and what a querier may make of it.
const ROBUSTNESS: u32 = 2;
const ROBUSTNESS_MAX: u32 = 7;
/// Unsolicited Report Interval of the current versions (RFC 3376, 8.11; RFC 3810, 9.11) and of the
/// older ones (RFC 2236, 8.10; RFC 2710, 7.10).
const UNSOLICITED: Duration = Duration::from_secs(1);
const UNSOLICITED_OLDER: Duration = Duration::from_secs(10);
/// Older Version Querier Present Timeout (RFC 3376, 8.12): robustness times the query interval of
/// 125 s, and one query response interval of 10 s.
const OLDER_QUERIER: Duration = Duration::from_secs(ROBUSTNESS as u64 * 125 + 10);

/// Whose datagrams to a group are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filter {
    /// Everybody's (EXCLUDE of nobody).
    AnySource,
    /// Those of these hosts alone (INCLUDE).
    Sources(BTreeSet<IpAddr>),
}

impl Filter {
    /// Whether datagrams of `source` are wanted.
    #[must_use]
    pub fn accepts(&self, source: IpAddr) -> bool {
        match self {
            Self::AnySource => true,
            Self::Sources(sources) => sources.contains(&source),
        }
    }

    /// What two that listen want together (RFC 3376, 3.2).
    #[must_use]
    pub fn merged(self, other: &Self) -> Self {
        match (self, other) {
            (Self::Sources(mut sources), Self::Sources(more)) => {
                sources.extend(more);
                Self::Sources(sources)
            }
            _ => Self::AnySource,
        }
    }
}

/// What a record of a report says of a group (RFC 3376, 4.2.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// MODE_IS_INCLUDE: in answer to a query.
    IsInclude,
    /// MODE_IS_EXCLUDE: in answer to a query.
    IsExclude,
    /// CHANGE_TO_INCLUDE_MODE.
    ToInclude,
    /// CHANGE_TO_EXCLUDE_MODE.
    ToExclude,
    /// ALLOW_NEW_SOURCES.
    Allow,
    /// BLOCK_OLD_SOURCES.
    Block,
}

/// One record of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What it says.
    pub kind: RecordKind,
    /// Of which group.
    pub group: IpAddr,
    /// About these sources; at most [`SOURCES_MAX`].
    pub sources: Vec<IpAddr>,
}

/// A message to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// A report of IGMPv3 or MLDv2, to all routers that listen for them.
    Current(Vec<Record>),
    /// A report of IGMPv2 or MLDv1, to the group itself.
    Older(IpAddr),
    /// A leave message of IGMPv2, or MLDv1's done, to all routers.
    Leave(IpAddr),
}

/// A change that is told, and told again.
#[derive(Clone, Debug, Default)]
struct Pending {
    /// The mode has changed, or else these sources were added or taken away.
    is_mode: bool,
    allowed: BTreeSet<IpAddr>,
    blocked: BTreeSet<IpAddr>,
    /// Reports still to be sent.
    left: u32,
    at: Instant,
}

/// An answer that is due.
#[derive(Clone, Debug)]
struct Answer {
    at: Instant,
    /// About these sources alone; empty: about the whole group.
    sources: BTreeSet<IpAddr>,
}

#[derive(Clone, Debug, Default)]
struct Group {
    /// `None` where we have left and only reports of that remain.
    filter: Option<Filter>,
    pending: Option<Pending>,
    answer: Option<Answer>,
    /// Another host has answered the general query that waits for our answer, as far as this group goes.
    is_answered: bool,
}

/// The memberships of one family on one interface. See the module documentation.
#[derive(Debug)]
pub struct Membership {
    groups: BTreeMap<IpAddr, Group>,
    general_at: Option<Instant>,
    older_until: Option<Instant>,
    robustness: u32,
    reports: VecDeque<Report>,
    /// What [`Membership::poll_timeout`] says: it is asked in every turn, and seldom changes.
    due: Option<Instant>,
}

impl Default for Membership {
    fn default() -> Self {
        Self {
            groups: BTreeMap::new(),
            general_at: None,
            older_until: None,
            robustness: ROBUSTNESS,
            reports: VecDeque::new(),
            due: None,
        }
    }
}

/// Whether a group is told of at all. RFC 3376, 5: all systems never; RFC 3810, 6: neither all nodes
/// nor groups that do not leave the host.
fn is_reported(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(group) => group != Ipv4Addr::new(224, 0, 0, 1),
        IpAddr::V6(group) => {
            group.octets()[1] & 0xf > 1 && group != Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1)
        }
    }
}

impl Membership {
    /// From now on datagrams to `group` are wanted as `filter` says, or not at all. Says whether
    /// there was room for it: where not, nothing has changed.
    #[must_use]
    pub fn set(
        &mut self,
        now: Instant,
        group: IpAddr,
        filter: Option<Filter>,
        jitter: &mut Jitter,
    ) -> bool {
        let is_known = self.groups.contains_key(&group);
        let is_long = matches!(&filter, Some(Filter::Sources(list)) if list.len() > SOURCES_MAX);
        let is_more = filter.is_some() && !self.is_joined(group);
        if is_long || (is_more && !self.has_room(is_known)) {
            return false;
        }
        if !is_known && filter.is_none() {
            return true;
        }
        let entry = self.groups.entry(group).or_default();
        let old = core::mem::replace(&mut entry.filter, filter);
        if old == entry.filter {
            return true;
        }
        if is_reported(group) {
            entry.change(now, old.as_ref(), self.robustness);
            self.on_timeout(now, jitter);
        } else if entry.filter.is_none() {
            self.groups.remove(&group);
        }
        true
    }

    /// Whether one more group may be wanted. Those that were left, and are told of for a while, are nobody's places;
    /// they are as many again at most.
    fn has_room(&self, is_known: bool) -> bool {
        let wanted = self.groups.values().filter(|entry| entry.filter.is_some()).count();
        wanted < GROUPS_MAX && (is_known || self.groups.len() < 2 * GROUPS_MAX)
    }

    /// Whether datagrams to `group` are wanted by anybody.
    #[must_use]
    pub fn is_joined(&self, group: IpAddr) -> bool {
        self.groups.get(&group).is_some_and(|entry| entry.filter.is_some())
    }

    /// A querier asks (RFC 3376, 5.2; RFC 3810, 6.2).
    pub fn on_query(&mut self, now: Instant, query: &Query, jitter: &mut Jitter) {
        self.take_query(now, query, jitter);
        self.due = self.first_due();
    }

    fn take_query(&mut self, now: Instant, query: &Query, jitter: &mut Jitter) {
        if query.version == Version::Older {
            if self.older_until.is_none_or(|until| until <= now) {
                // RFC 3376, 7.2.1: "cancels all its pending response and retransmission timers".
                self.general_at = None;
                for entry in self.groups.values_mut() {
                    (entry.pending, entry.answer) = (None, None);
                }
                self.groups.retain(|_, entry| entry.filter.is_some());
            }
            self.older_until = Some(now + OLDER_QUERIER);
        } else if let Some(robustness) = query.robustness {
            self.robustness = robustness.min(ROBUSTNESS_MAX);
        }
        // What others said before was no answer to this one.
        for (group, entry) in &mut self.groups {
            entry.is_answered &= query.group.is_some_and(|asked| asked != *group);
        }
        let at = now + jitter.between(Duration::ZERO, query.max_response);
        // 1. "If there is a pending response to a previous General Query scheduled sooner than the
        // selected delay, no additional response needs to be scheduled."
        if self.general_at.is_some_and(|general| general <= at) {
            return;
        }
        let Some(group) = query.group else {
            // 2. "any previously pending response to a General Query is canceled".
            self.general_at = Some(at);
            return;
        };
        let Some(entry) = self.groups.get_mut(&group).filter(|entry| entry.filter.is_some()) else {
            return;
        };
        if !is_reported(group) {
            return;
        }
        let sources: BTreeSet<IpAddr> = query.sources.iter().copied().take(SOURCES_MAX).collect();
        entry.answer = Some(match entry.answer.take() {
            None => Answer { at, sources },
            // 4. and 5.: one answer for all, at the earlier time; about the group where either is.
            Some(mut before) => {
                let is_whole = before.sources.is_empty() || sources.is_empty();
                before.sources.extend(sources);
                if is_whole || before.sources.len() > SOURCES_MAX {
                    before.sources.clear();
                }
                Answer { at: before.at.min(at), sources: before.sources }
            }
        });
    }

    /// Another host reported a group. RFC 2236, 3, and RFC 2710, 4: with older versions one report is enough, in answer
    /// to a query about the group or about all as for what is said unasked; the current ones do not suppress (RFC
    /// 3376, A.2).
    pub fn on_report(&mut self, now: Instant, group: IpAddr) {
        if self.is_older(now)
            && let Some(entry) = self.groups.get_mut(&group).filter(|entry| entry.filter.is_some())
        {
            (entry.pending, entry.answer) = (None, None);
            entry.is_answered = self.general_at.is_some();
            self.due = self.first_due();
        }
    }

    fn is_older(&self, now: Instant) -> bool {
        self.older_until.is_some_and(|until| now < until)
    }

    /// When [`Membership::on_timeout`] is due.
    #[inline]
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }

    fn first_due(&self) -> Option<Instant> {
        let of_group = |entry: &Group| {
            let pending = entry.pending.as_ref().map(|pending| pending.at);
            pending.into_iter().chain(entry.answer.as_ref().map(|answer| answer.at)).min()
        };
        self.groups.values().filter_map(of_group).chain(self.general_at).min()
    }

    /// Makes the reports that are due.
    pub fn on_timeout(&mut self, now: Instant, jitter: &mut Jitter) {
        let is_older = self.is_older(now);
        let is_general = self.general_at.is_some_and(|at| at <= now);
        if is_general {
            self.general_at = None;
        }
        let mut records = Vec::new();
        for (group, entry) in &mut self.groups {
            let is_answered = is_general && core::mem::take(&mut entry.is_answered);
            let is_asked = is_general && is_reported(*group) && !is_answered;
            match is_older {
                true => entry.older_reports(now, *group, is_asked, &mut self.reports, jitter),
                false => entry.current_records(now, *group, is_asked, &mut records, jitter),
            }
        }
        self.groups.retain(|_, entry| entry.filter.is_some() || entry.pending.is_some());
        message::pack(records, &mut self.reports);
        self.due = self.first_due();
    }

    /// The next message to send; call until there is none.
    pub fn poll_report(&mut self) -> Option<Report> {
        self.reports.pop_front()
    }
}

impl Group {
    /// Notes what is to be told of a change from `old` (RFC 3376, 5.1). To have left is INCLUDE of
    /// nobody.
    fn change(&mut self, now: Instant, old: Option<&Filter>, robustness: u32) {
        let before = self.pending.take().unwrap_or_default();
        let mut pending = Pending { left: robustness, at: now, ..before };
        let nobody = BTreeSet::new();
        let list = |filter: Option<&Filter>| match filter {
            Some(Filter::Sources(sources)) => sources.clone(),
            _ => nobody.clone(),
        };
        let is_any = |filter: Option<&Filter>| matches!(filter, Some(Filter::AnySource));
        let new = self.filter.as_ref();
        if is_any(old) != is_any(new) {
            pending.is_mode = true;
        } else {
            let (old, new) = (list(old), list(new));
            for source in new.difference(&old) {
                pending.blocked.remove(source);
                pending.allowed.insert(*source);
            }
            for source in old.difference(&new) {
                pending.allowed.remove(source);
                pending.blocked.insert(*source);
            }
        }
        self.pending = Some(pending);
    }

    /// Counts a report of a change and says whether one is due.
    fn take_pending(
        &mut self,
        now: Instant,
        interval: Duration,
        jitter: &mut Jitter,
    ) -> Option<Pending> {
        let pending = self.pending.as_mut().filter(|pending| pending.at <= now)?;
        pending.left = pending.left.saturating_sub(1);
        pending.at = now + jitter.between(Duration::ZERO, interval);
        let due = pending.clone();
        if due.left == 0 {
            self.pending = None;
        }
        Some(due)
    }

    fn current_records(
        &mut self,
        now: Instant,
        group: IpAddr,
        is_asked: bool,
        records: &mut Vec<Record>,
        jitter: &mut Jitter,
    ) {
        let record = |kind, sources: Vec<IpAddr>| Record { kind, group, sources };
        if let Some(due) = self.take_pending(now, UNSOLICITED, jitter) {
            match (&self.filter, due.is_mode) {
                (Some(Filter::AnySource), _) => {
                    records.push(record(RecordKind::ToExclude, Vec::new()));
                }
                (Some(Filter::Sources(sources)), true) => {
                    let sources = sources.iter().copied().collect();
                    records.push(record(RecordKind::ToInclude, sources));
                }
                (None, true) => records.push(record(RecordKind::ToInclude, Vec::new())),
                (_, false) => {
                    let parts =
                        [(RecordKind::Allow, due.allowed), (RecordKind::Block, due.blocked)];
                    let parts = parts.into_iter().filter(|(_, sources)| !sources.is_empty());
                    records.extend(parts.map(|(kind, list)| {
                        record(kind, list.into_iter().take(SOURCES_MAX).collect())
                    }));
                }
            }
        }
        let answer = self.answer.take_if(|answer| answer.at <= now);
        let Some(filter) = self.filter.as_ref().filter(|_| is_asked || answer.is_some()) else {
            return;
        };
        let asked =
            answer.map(|answer| answer.sources).filter(|list| !list.is_empty() && !is_asked);
        match (filter, asked) {
            (Filter::AnySource, None) => records.push(record(RecordKind::IsExclude, Vec::new())),
            (Filter::Sources(sources), None) => {
                records.push(record(RecordKind::IsInclude, sources.iter().copied().collect()));
            }
            // RFC 3376, 5.2: IS_IN (B - X) with nobody excluded, and IS_IN (A * B).
            (filter, Some(asked)) => {
                let wanted: Vec<_> =
                    asked.into_iter().filter(|source| filter.accepts(*source)).collect();
                if !wanted.is_empty() {
                    records.push(record(RecordKind::IsInclude, wanted));
                }
            }
        }
    }

    /// RFC 3376, 7.2.1: with an older querier reports name groups and no sources.
    fn older_reports(
        &mut self,
        now: Instant,
        group: IpAddr,
        is_asked: bool,
        reports: &mut VecDeque<Report>,
        jitter: &mut Jitter,
    ) {
        let due = self.take_pending(now, UNSOLICITED_OLDER, jitter);
        let answer = self.answer.take_if(|answer| answer.at <= now);
        match &self.filter {
            Some(_) if due.is_some() || is_asked || answer.is_some() => {
                reports.push_back(Report::Older(group));
            }
            None if due.is_some() => {
                // A leave is told once.
                self.pending = None;
                reports.push_back(Report::Leave(group));
            }
            _ => {}
        }
    }
}
